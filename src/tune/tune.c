/* Who answers when kernels ask for their schedule. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tune/internal.h"

enum { CANDIDATES = 8 }; /* of a kernel that are measured: with a model that ranks well, the best of 8 is within a few percent of the best of all */
static const double worth_it = 0.99;

typedef enum origin { BY_SELECTOR, BY_RECORD, BY_FILE } origin;

/* A distinct kernel. */
typedef struct kind {
    const char *key, *name;
    tn_choice choice;  /* a copy: strings and candidates on the session's arena */
    int uses;
    size_t taken;
    origin origin;
    int number[CANDIDATES]; /* by round: tn_choice.number of the first such kernel; 0: none yet */
} kind;

struct tn_tuner {
    tn_session *session;
    tn_tune_options options;
    tn_records *records;
    const char *machine; /* in the database; NULL: it has no records */
    tune_pins pins;
    tn_map kinds;        /* key -> kind, in order of appearance */
    tn_status status;
};

size_t tn_tune_best(const tn_measured *measured, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (measured[i].ns > 0 && (measured[best].ns <= 0 || measured[i].ns < measured[best].ns))
            best = i;
    return best && measured[0].ns > 0 && measured[best].ns > worth_it * measured[0].ns ? 0 : best;
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------ */

/* What the CPU calls itself. */
static const char *cpu_model(tn_arena *arena)
{
    char line[512], *model = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !model && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (colon && !strncmp(line, "model name", 10))
            model = tn_strndup(arena, colon + 1 + strspn(colon + 1, " \t"), strcspn(colon + 1 + strspn(colon + 1, " \t"), "\n"));
    }
    if (file)
        fclose(file);
    return model ? model : "unknown CPU";
}

/* Why kernels for the machine can't be measured here; NULL: they can. */
static const char *not_here(tn_session *session, const tn_tune_options *o)
{
    const tn_machine *m = o->bench.options.machine;
    return m->gpu ? tn_gpu_refusal(session, m, o->bench.options.device) : tn_machine_refusal(&session->arena, m);
}

static const char *machine_text(tn_session *session, const tn_tune_options *o)
{
    const tn_machine *m = o->bench.options.machine;
    tn_gpu_info info;
    if (not_here(session, o))
        return NULL;
    if (!m->gpu)
        return tn_format(&session->arena, "%s, %s, %d threads", m->name, cpu_model(&session->arena), o->threads);
    return tn_gpu_describe(session, o->bench.options.device, &info) == TN_OK ? tn_format(&session->arena, "%s, %s", m->name, info.name) : NULL;
}

/* ---- choosing --------------------------------------------------------------------------------------------------------------- */

tn_status tn_tuner_new(tn_session *session, const tn_tune_options *options, tn_tuner **out)
{
    tn_tuner *t = TN_NEW(&session->arena, tn_tuner);
    *t = (tn_tuner){.session = session, .options = *options, .kinds.arena = &session->arena};
    if (options->schedule)
        TN_TRY(tune_read_pins(session, options->schedule, &t->pins));
    t->machine = options->records && options->folder ? machine_text(session, options) : NULL;
    if (t->machine)
        t->records = tn_records_open(session, options->folder, options->seconds > 0);
    *out = t;
    return TN_OK;
}

void tn_tuner_free(tn_tuner *tuner)
{
    if (tuner)
        tn_records_close(tuner->records);
}

static tn_choice copy_choice(tn_arena *arena, const tn_choice *c)
{
    tn_choice copy = *c;
    copy.kernel = tn_strdup(arena, c->kernel);
    copy.stem = tn_strdup(arena, c->stem);
    copy.key = tn_strdup(arena, c->key);
    copy.candidate = tn_memdup(arena, c->candidate, sizeof *c->candidate * c->n);
    return copy;
}

static tune_pin *find_pin(tn_tuner *t, const tn_choice *c, const char *name)
{
    for (size_t i = 0; i < t->pins.len; i++)
        if (!strcmp(t->pins.at[i].name, name) || !strcmp(t->pins.at[i].name, c->kernel))
            return &t->pins.at[i];
    return NULL;
}

static void take_pin(tn_tuner *t, kind *k, tune_pin *pin)
{
    const char *what;
    pin->used = true;
    k->origin = BY_FILE;
    if (!tune_find(&t->session->arena, &k->choice, pin->entries.at, pin->entries.len, &k->taken, &what)) {
        k->taken = 0;
        t->status = tn_error(t->session, TN_INVALID, pin->loc, "%s: %s", pin->name, what);
    }
}

static void take_record(tn_tuner *t, kind *k)
{
    tn_record record;
    tune_pin entries = {.name = k->name};
    const char *what;
    size_t index;
    if (!t->records || !tn_records_get(t->records, &t->session->arena, t->machine, TN_SCHEDULE_VOCABULARY, k->key, &record))
        return;
    if (tune_parse_values(&t->session->arena, record.schedule, strlen(record.schedule), &entries, &what) && entries.entries.len == (size_t)k->choice.nfields &&
        tune_find(&t->session->arena, &k->choice, entries.entries.at, entries.entries.len, &index, &what)) {
        k->taken = index;
        k->origin = BY_RECORD;
    }
}

static kind *kind_of(tn_tuner *t, const tn_choice *c)
{
    void **cell = tn_map_at_str(&t->kinds, c->key);
    kind *k = *cell;
    if (!k) {
        *cell = k = TN_NEW(&t->session->arena, kind);
        k->choice = copy_choice(&t->session->arena, c);
        k->key = k->choice.key;
        k->name = tune_name(&t->session->arena, c);
        tune_pin *pin = find_pin(t, c, k->name);
        if (pin)
            take_pin(t, k, pin);
        else
            take_record(t, k);
    }
    return k;
}

/* The number, in this kernel's own list, of a candidate of its kind; the selector's if it has no such. */
static size_t own_number(const tn_choice *c, const kind *k, size_t number)
{
    size_t bytes = sizeof *c->candidate->value * (size_t)c->nfields;
    for (size_t i = 0; i < c->n; i++)
        if (!memcmp(c->candidate[i].value, k->choice.candidate[number].value, bytes))
            return i;
    return 0;
}

static size_t choose(void *context, const tn_choice *c)
{
    tn_tuner *t = context;
    kind *k = kind_of(t, c);
    return own_number(c, k, k->taken);
}

tn_chooser tn_tuner_chooser(tn_tuner *tuner)
{
    bool asks = tuner->records || tuner->pins.len || tuner->kinds.len || tuner->options.listed;
    return asks ? (tn_chooser){choose, tuner} : (tn_chooser){NULL, NULL};
}

tn_status tn_tuner_finish(tn_tuner *t)
{
    for (size_t i = 0; i < t->pins.len; i++)
        if (!t->pins.at[i].used)
            tn_warning(t->session, t->pins.at[i].loc, "'%s': no kernel of this network that has a choice is called so; `tenon compile --emit=schedule` prints their names", t->pins.at[i].name);
    return t->status;
}

/* ---- tuning ----------------------------------------------------------------------------------------------------------------- */

typedef struct round {
    tn_tuner *tuner;
    size_t number;
} round;

/* Candidate number `round` of each kernel that has as many. */
static size_t choose_in_round(void *context, const tn_choice *c)
{
    const round *r = context;
    kind *k = kind_of(r->tuner, c);
    k->uses += r->number == 0;
    if (!k->number[r->number])
        k->number[r->number] = c->number;
    return own_number(c, k, k->origin == BY_SELECTOR && r->number < k->choice.n ? r->number : k->taken);
}

static double weight(const kind *k) { return k->choice.candidate[0].ns * k->uses; }

static int by_weight(const void *a, const void *b)
{
    const kind *const *x = a, *const *y = b;
    if (weight(*x) != weight(*y))
        return weight(*x) > weight(*y) ? -1 : 1;
    return (*x)->choice.number - (*y)->choice.number;
}

static const char *now(tn_arena *arena)
{
    char text[32];
    struct tm parts;
    time_t seconds = time(NULL);
    return gmtime_r(&seconds, &parts) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) ? tn_strdup(arena, text) : "";
}

static const char *values_text(tn_arena *arena, const kind *k, size_t i)
{
    tn_text text = {.arena = arena};
    tune_text_values(&text, &k->choice, &k->choice.candidate[i]);
    return text.at;
}

static void keep(tn_tuner *t, const kind *k, const tn_measured *measured, size_t n, const char *at)
{
    tn_arena *arena = &t->session->arena;
    tn_text times = {.arena = arena};
    if (*at)
        tn_text_add(&times, "at %s\n", at);
    for (size_t i = 0; i < n; i++) {
        if (measured[i].ns > 0)
            tn_text_add(&times, "%.0f", measured[i].ns);
        else
            tn_text_add(&times, "%s", measured[i].fault ? measured[i].fault : "too slow");
        tn_text_add(&times, ": %s\n", values_text(arena, k, i));
    }
    tn_record record = {values_text(arena, k, k->taken), times.at, now(arena)};
    if (t->records)
        tn_records_put(t->records, t->machine, TN_SCHEDULE_VOCABULARY, k->key, &record);
}

static void report(tn_tuner *t, const kind *k, const tn_measured *measured, size_t n, const char *at)
{
    tn_session *s = t->session;
    tn_loc loc = k->choice.root->loc;
    for (size_t i = 0; i < n; i++)
        if (measured[i].differs)
            tn_warning(s, loc, "kernel %s with %s: %s: a fault of Tenon's; it is not taken", k->name, values_text(&s->arena, k, i), measured[i].fault);
    if (measured[0].ns <= 0)
        tn_warning(s, loc, "kernel %s is not tuned: %s", k->name, measured[0].fault ? measured[0].fault : "it was not measured");
    else
        tn_note(s, loc, "kernel %s%s%s: %.2f us with %s%s", k->name, *at ? " at " : "", at, measured[k->taken].ns / 1e3, values_text(&s->arena, k, k->taken),
                k->taken ? tn_format(&s->arena, "; the selector's took %.2f us (%s)", measured[0].ns / 1e3, values_text(&s->arena, k, 0)) : ", the selector's choice");
}

static void tune_kind(tn_tuner *t, kind *k, const tn_program *programs, double seconds)
{
    tn_measured measured[CANDIDATES];
    tn_trial trial[CANDIDATES];
    size_t n = k->choice.n < CANDIDATES ? k->choice.n : CANDIDATES;
    const char *at = "";
    for (size_t i = 0; i < n; i++)
        trial[i] = (tn_trial){&programs[i], k->number[i]};
    tn_status status = t->options.measure ? t->options.measure(t->options.measure_context, &k->choice, n, measured)
                                          : tn_tune_measure(t->session, &t->options.bench, trial, n, seconds, measured, &at);
    if (status != TN_OK)
        return;
    k->taken = tn_tune_best(measured, n);
    report(t, k, measured, n, at);
    if (measured[0].ns <= 0) {
        k->taken = 0;
        return;
    }
    k->origin = BY_RECORD;
    keep(t, k, measured, n, at);
}

/* A program a round, as many as the kernel with most candidates wants. */
static tn_status make_programs(tn_tuner *t, const tn_graph *graph, const tn_fuse_options *options, tn_program *programs)
{
    size_t rounds = 1;
    for (size_t r = 0; r < rounds; r++) {
        round one = {t, r};
        tn_fuse_options asked = *options;
        asked.chooser = (tn_chooser){choose_in_round, &one};
        TN_TRY(tn_fuse(t->session, tn_graph_clone(t->session, graph), &asked, &programs[r]));
        for (size_t i = 0; r == 0 && i < t->kinds.len; i++) {
            const kind *k = tn_map_value(&t->kinds, i);
            if (k->origin == BY_SELECTOR && k->choice.n > rounds)
                rounds = k->choice.n < CANDIDATES ? k->choice.n : CANDIDATES;
        }
    }
    return TN_OK;
}

/* Kernels that nothing is known of yet, those that take longest first. */
static size_t find_unknown(const tn_tuner *t, kind **order)
{
    size_t n = 0;
    for (size_t i = 0; i < t->kinds.len; i++) {
        kind *k = tn_map_value(&t->kinds, i);
        if (k->origin == BY_SELECTOR)
            order[n++] = k;
    }
    if (n)
        qsort(order, n, sizeof *order, by_weight);
    return n;
}

tn_status tn_tune(tn_tuner *t, const tn_graph *graph, const tn_fuse_options *options)
{
    tn_session *session = t->session;
    tn_program programs[CANDIDATES];
    double end = tn_seconds() + t->options.seconds;
    const char *refusal = t->options.seconds > 0 && !t->options.measure ? not_here(session, &t->options) : NULL;
    if (refusal)
        tn_warning(session, TN_NO_LOC, "nothing is tuned: %s", refusal);
    if (refusal || t->options.seconds <= 0)
        return TN_OK;
    TN_TRY(make_programs(t, graph, options, programs));
    kind **order = TN_NEW_ARRAY(&session->arena, kind *, t->kinds.len + 1);
    size_t n = find_unknown(t, order), done = 0;
    for (double left = t->options.seconds; done < n && (done == 0 || left > 0); left = end - tn_seconds()) {
        tune_kind(t, order[done++], programs, left);
        if (session->progress)
            session->progress(session->progress_context, "tune", done, n);
    }
    if (done < n)
        tn_note(session, TN_NO_LOC, "the time for tuning was over before %zu of %zu kernels; another run goes on with them", n - done, n);
    return TN_OK;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------- */

void tn_text_schedule(tn_text *text, const tn_tuner *t)
{
    static const char *const origins[] = {[BY_SELECTOR] = "the selector's", [BY_RECORD] = "measured", [BY_FILE] = "pinned"};
    tn_text_add(text, "# schedules for %s\n", t->machine ? t->machine : t->options.bench.options.machine->name);
    for (size_t i = 0; i < t->kinds.len; i++) {
        const kind *k = tn_map_value(&t->kinds, i);
        tn_text_add(text, "%s ", k->name);
        tune_text_values(text, &k->choice, &k->choice.candidate[k->taken]);
        tn_text_add(text, " # %s, %s of %zu", k->choice.kernel, origins[k->origin], k->choice.n);
        for (const char *at = k->choice.root->loc.node, *first = ", "; at && *at; at++, first = "")
            tn_text_add(text, "%s%c", first, (unsigned char)*at < ' ' ? '?' : *at); /* a name can't end the line */
        tn_text_add(text, "\n");
    }
}
