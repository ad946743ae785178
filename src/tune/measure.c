/* Times candidates. The steps of a choice become a program of their own: what they read and do not write is an input, what they write and do not read an output, the
 * rest memory of the program. Symbols get their values by an input each that nothing reads. */
#include <stdlib.h>
#include <string.h>

#include "tune/tune.h"

enum {
    LARGEST = 1 << 16,        /* upper bound of a symbol that serves as its size */
    TURNS = 30, TURNS_LEAST = 5, TURNS_SHORT = 2, /* enough samples; with which a median is taken; of a candidate that is surely slower */
    REPEATS = 1000,           /* of a run in a sample, at most */
    PERIOD = 65521,           /* elements that are random; then they begin again: a prime, so that rows differ */
};
static const double sample_ns = 50e3;      /* of a CPU's sample, at least */
static const double kernel_seconds = 0.5;  /* for the turns of one kernel */
static const double surely_slower = 1.3;
static const int64_t most_bytes = INT64_C(8) << 30;

/* ---- the program of a trial ---------------------------------------------------------------------------------------------- */

typedef struct trial_buffer {
    int buffer; /* of the original */
    bool read, written, read_first;
} trial_buffer;

typedef struct extract {
    tn_session *session;
    const tn_trial *trial;
    TN_VEC(const tn_step *) steps;
    TN_VEC(trial_buffer) used;
    TN_VEC(tn_dim) symbols;
    const char *fault;
} extract;

static void collect_steps(extract *x, const tn_steps *steps)
{
    for (size_t i = 0; i < steps->list.len; i++) {
        const tn_step *s = steps->list.at[i];
        if (s->kernel && s->choice == x->trial->number && !s->init)
            TN_PUSH(&x->session->arena, &x->steps, s);
        for (int b = 0; b < s->nblocks; b++)
            collect_steps(x, &s->blocks[b]);
    }
}

static trial_buffer *use(extract *x, int buffer)
{
    for (size_t i = 0; i < x->used.len; i++)
        if (x->used.at[i].buffer == buffer)
            return &x->used.at[i];
    TN_PUSH(&x->session->arena, &x->used, ((trial_buffer){.buffer = buffer}));
    return &x->used.at[x->used.len - 1];
}

static void add_symbol(void *context, tn_dim symbol)
{
    extract *x = context;
    for (size_t i = 0; i < x->symbols.len; i++)
        if (x->symbols.at[i] == symbol)
            return;
    TN_PUSH(&x->session->arena, &x->symbols, symbol);
}

static void collect_buffers(extract *x, const tn_step *step)
{
    for (int a = 0; a < step->nargs; a++) {
        trial_buffer *b = use(x, step->args[a]);
        tn_buffer_mode mode = step->kernel->buffers.at[a].mode;
        bool read = mode != TN_WRITE;
        if (mode == TN_READ_WRITE)
            x->fault = "it reads what it writes";
        b->read_first |= read && !b->written;
        b->read |= read;
        b->written |= mode != TN_READ;
    }
    for (size_t i = 0; i < step->kernel->grid.len; i++)
        tn_dim_symbols(step->kernel->grid.at[i].limit, add_symbol, x);
    for (size_t v = 0; v < step->kernel->views.len; v++) {
        const tn_view *view = step->kernel->views.at[v];
        tn_dim_symbols(view->offset, add_symbol, x);
        for (int d = 0; d < view->rank; d++) {
            tn_dim_symbols(view->shape[d], add_symbol, x);
            tn_dim_symbols(view->stride[d], add_symbol, x);
        }
    }
}

/* The program's inputs: a carrier of each symbol, each buffer that is read, and, unused, one of each output's type. */
static tn_program *build(extract *x)
{
    tn_arena *arena = &x->session->arena;
    tn_program *p = TN_NEW(arena, tn_program);
    tn_graph *graph = tn_graph_new(x->session, "tune");
    TN_VEC(tn_value *) results = {0};
    *p = (tn_program){.session = x->session, .graph = graph};
    for (size_t i = 0; i < x->symbols.len; i++) {
        tn_type type = tn_type_make(TN_I8, 1, &x->symbols.at[i]);
        tn_graph_input(graph, x->symbols.at[i]->name, &type);
    }
    for (int outputs = 0; outputs < 2; outputs++)
        for (size_t i = 0; i < x->used.len; i++) {
            const trial_buffer *u = &x->used.at[i];
            if (outputs ? u->written && !u->read : u->read_first)
                tn_graph_input(graph, NULL, &x->trial->program->buffers.at[u->buffer].type);
        }
    int input = (int)x->symbols.len, output = 0;
    for (size_t i = 0; i < x->used.len; i++) {
        const trial_buffer *u = &x->used.at[i];
        const tn_pbuffer *from = &x->trial->program->buffers.at[u->buffer];
        tn_pbuffer b = {.kind = u->read_first ? TN_B_INPUT : u->read ? TN_B_TEMP : TN_B_OUTPUT, .type = from->type, .elements = from->elements};
        b.index = b.kind == TN_B_INPUT ? input++ : b.kind == TN_B_OUTPUT ? output++ : 0;
        TN_PUSH(arena, &p->buffers, b);
    }
    for (int o = 0; o < output; o++)
        TN_PUSH(arena, &results, graph->body->arg[input + o]);
    tn_builder b = tn_builder_at_end(graph->body, TN_NO_LOC);
    tn_return(&b, results.at, output);
    for (size_t i = 0; i < x->steps.len; i++) {
        const tn_step *s = x->steps.at[i];
        tn_step *copy = TN_NEW(arena, tn_step);
        *copy = (tn_step){.kind = TN_STEP_KERNEL, .kernel = s->kernel, .nargs = s->nargs, .offset = s->offset, .args = TN_NEW_ARRAY(arena, int, (size_t)s->nargs + 1)};
        for (int a = 0; a < s->nargs; a++)
            copy->args[a] = (int)(use(x, s->args[a]) - x->used.at);
        TN_PUSH(arena, &p->steps.list, copy);
    }
    return p;
}

static tn_program *program_of(tn_session *session, const tn_trial *trial, const char **fault)
{
    extract x = {.session = session, .trial = trial};
    collect_steps(&x, &trial->program->steps);
    for (size_t i = 0; i < x.steps.len; i++)
        collect_buffers(&x, x.steps.at[i]);
    for (size_t i = 0; i < x.used.len; i++) {
        const tn_pbuffer *b = &trial->program->buffers.at[x.used.at[i].buffer];
        tn_dim_symbols(b->elements, add_symbol, &x);
        for (int d = 0; d < b->type.rank; d++)
            tn_dim_symbols(b->type.dim[d], add_symbol, &x);
        if (x.used.at[i].read_first && x.used.at[i].written)
            x.fault = "it reads what it writes";
    }
    *fault = x.steps.len == 0 ? "it runs at load alone" : x.fault;
    return *fault ? NULL : build(&x);
}

/* ---- candidates ------------------------------------------------------------------------------------------------------------ */

typedef struct variant {
    tn_exec *exec;
    struct tn_context *state;
    tn_measured *out;
    double *sample;
    int n;
    bool off; /* no more turns */
} variant;

typedef struct measuring {
    tn_session *session;
    const tn_bench *bench;
    variant *variant;
    size_t n;
    int ninputs, noutputs; /* of the programs: all graph inputs, and outputs */
    DLTensor *tensor;      /* inputs, then outputs, where runs take them */
    DLTensor *host;        /* the same on the host */
    int64_t *bytes;
    char *expected, *found; /* one output's elements */
    int repeats;
} measuring;

/* What a candidate's failure said is no error of the caller's: the last of it tells why, and all of it goes. */
static const char *take_back(tn_session *session, size_t diags, size_t errors)
{
    const char *last = NULL;
    for (size_t i = diags; i < session->diags.len; i++)
        last = session->diags.at[i].severity == TN_ERROR ? session->diags.at[i].message : last;
    session->diags.len = diags;
    session->errors = errors;
    return last;
}

static const char *last_words(const struct tn_context *s)
{
    return s->session.diags.len ? s->session.diags.at[s->session.diags.len - 1].message : "no memory";
}

static void fail(measuring *m, variant *v, const char *why)
{
    v->out->ns = 0;
    v->out->fault = tn_strdup(&m->session->arena, why ? why : "no memory");
    v->off = true;
}

static tn_status make(measuring *m, variant *v, const tn_trial *trial)
{
    const char *fault;
    tn_program *program = program_of(m->session, trial, &fault);
    if (!program)
        return tn_error(m->session, TN_UNSUPPORTED, TN_NO_LOC, "%s", fault);
    TN_TRY(tn_exec_new(m->session, program, &m->bench->options, &v->exec));
    TN_TRY(tn_exec_load(m->session, v->exec, m->bench->pool));
    if (tn_state_new(v->exec, m->bench->pool, &v->state) != TN_OK)
        return tn_error(m->session, TN_NO_MEMORY, TN_NO_LOC, "no memory");
    tn_state_time_runs(v->state, true);
    return TN_OK;
}

static void make_all(measuring *m, const tn_trial *trials)
{
    for (size_t i = 0; i < m->n; i++) {
        size_t diags = m->session->diags.len, errors = m->session->errors;
        tn_status status = make(m, &m->variant[i], &trials[i]);
        const char *why = take_back(m->session, diags, errors);
        if (status != TN_OK)
            fail(m, &m->variant[i], why);
    }
}

/* ---- operands ---------------------------------------------------------------------------------------------------------------- */

typedef struct sizing {
    const tn_bench *bench;
    tn_text at;
    const char *missing;
} sizing;

static bool size_of_symbol(void *context, const char *name, int64_t *out)
{
    sizing *z = context;
    return z->bench->size && z->bench->size(z->bench->size_context, name, out);
}

static bool choose_size(sizing *z, tn_dim symbol, int64_t *out)
{
    if (!size_of_symbol(z, symbol->name, out)) {
        if (symbol->hi > LARGEST) {
            z->missing = symbol->name;
            return false;
        }
        *out = tn_max(symbol->hi, 1);
    }
    tn_text_add(&z->at, "%s%s=%lld", z->at.len ? "," : "", symbol->name, (long long)*out);
    return true;
}

typedef struct known_sizes {
    const tn_graph *graph;
    const DLTensor *host;
} known_sizes;

static bool known_size(void *context, const char *name, int64_t *out)
{
    const known_sizes *k = context;
    for (int i = 0; i < k->graph->body->nargs; i++)
        if (k->graph->body->arg[i]->name && !strcmp(k->graph->body->arg[i]->name, name)) {
            *out = k->host[i].shape[0];
            return true;
        }
    return false;
}

/* Shapes of all graph inputs: of the symbols' carriers first, from which the others follow. */
static const char *choose_shapes(measuring *m, const char **at)
{
    const tn_graph *graph = m->variant[0].exec->program->graph;
    sizing z = {.bench = m->bench, .at = {.arena = &m->session->arena}};
    known_sizes known = {graph, m->host};
    int64_t total = 0;
    tn_text_put(&z.at, "", 0);
    for (int i = 0; i < graph->body->nargs; i++) {
        const tn_value *value = graph->body->arg[i];
        DLTensor *t = &m->host[i];
        int64_t n = 1;
        size_t bytes;
        *t = (DLTensor){.device = {TN_DEVICE_CPU, 0}, .ndim = value->type.rank, .dtype = tn_dtype_to_dlpack(value->type.dtype),
                        .shape = TN_NEW_ARRAY(&m->session->arena, int64_t, (size_t)value->type.rank + 1)};
        for (int d = 0; d < value->type.rank; d++) {
            if (value->name && !choose_size(&z, value->type.dim[d], &t->shape[d]))
                return tn_format(&m->session->arena, "no size of '%s' to measure it at is known; give one with --size %s=N", z.missing, z.missing);
            if (!value->name && !tn_dim_eval(value->type.dim[d], known_size, &known, &t->shape[d]))
                return "its sizes are not known before a run";
            if (t->shape[d] < 0 || !tn_mul(n, t->shape[d], &n))
                return "its operands' sizes overflow";
        }
        if (value->name) /* nothing reads it */
            continue;
        if (!tn_dtype_bytes(value->type.dtype, n, &bytes) || !tn_add(total, (int64_t)tn_min((int64_t)bytes, most_bytes), &total) || total >= most_bytes)
            return "its operands are too large to be measured";
        m->bytes[i] = (int64_t)bytes;
    }
    *at = z.at.at;
    return NULL;
}

static void fill(tn_dtype dtype, char *data, int64_t bytes, uint64_t number)
{
    int64_t n = tn_min(bytes * 8 / tn_dtype_bits(dtype), PERIOD), period = n * tn_dtype_bits(dtype) / 8;
    tn_fill_random(dtype, data, n, 1, number);
    for (int64_t at = period; at < bytes && period > 0; at += period)
        memcpy(data + at, data, (size_t)tn_min(period, bytes - at));
}

static void release(measuring *m, int i)
{
    if (m->tensor[i].data && m->tensor[i].data != m->host[i].data)
        tn_state_release(&m->tensor[i]);
    m->tensor[i].data = NULL;
}

/* The host's tensor, or on a GPU a copy of it there. */
static bool place(measuring *m, int i)
{
    struct tn_context *s = m->variant[0].state;
    release(m, i);
    if (m->variant[0].exec->machine->gpu)
        return tn_state_upload(s, &m->host[i], &m->tensor[i]) == TN_OK;
    m->tensor[i] = m->host[i];
    return true;
}

static const char *make_operands(measuring *m)
{
    for (int i = 0; i < m->ninputs; i++) {
        const tn_value *value = m->variant[0].exec->program->graph->body->arg[i];
        m->tensor[i] = m->host[i];
        if (value->name) /* a symbol's carrier */
            continue;
        m->host[i].data = tn_alloc_tensor((size_t)m->bytes[i]);
        if (!m->host[i].data)
            return "no memory for its operands";
        if (i >= m->ninputs - m->noutputs)
            continue;
        fill(value->type.dtype, m->host[i].data, m->bytes[i], (uint64_t)i);
        if (!place(m, i))
            return last_words(m->variant[0].state);
    }
    return NULL;
}

/* Results begin as zeros: what a kernel leaves alone is not its own. */
static bool clear_results(measuring *m)
{
    for (int o = m->ninputs - m->noutputs; o < m->ninputs; o++) {
        memset(m->host[o].data, 0, (size_t)m->bytes[o]);
        if (!place(m, o))
            return false;
    }
    return true;
}

static void free_operands(measuring *m)
{
    for (int i = 0; m->host && i < m->ninputs; i++) {
        release(m, i);
        free(m->host[i].data);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------------------- */

static tn_status run(measuring *m, variant *v)
{
    return tn_state_run(v->state, m->tensor, (size_t)m->ninputs, m->tensor + m->ninputs - m->noutputs, (size_t)m->noutputs);
}

/* One sample: nanoseconds of a run. */
static bool sample(measuring *m, variant *v, int repeats, double *ns)
{
    bool gpu = v->exec->machine->gpu;
    tn_status status = gpu ? tn_state_flush(v->state) : TN_OK;
    double start = tn_seconds();
    for (int i = 0; i < repeats && status == TN_OK; i++)
        status = run(m, v);
    *ns = (gpu ? tn_state_seconds(v->state) : (tn_seconds() - start) / repeats) * 1e9;
    if (status != TN_OK)
        fail(m, v, last_words(v->state));
    return status == TN_OK;
}

/* The first candidate's results are kept, the others' compared with them. */
static bool run_once(measuring *m, variant *v, bool first)
{
    char *expected = m->expected;
    double ns;
    if (!clear_results(m)) {
        fail(m, v, last_words(m->variant[0].state));
        return false;
    }
    if (!sample(m, v, 1, &ns))
        return false;
    for (int o = m->ninputs - m->noutputs; o < m->ninputs; o++) {
        tn_dtype dtype = tn_dtype_from_dlpack(m->host[o].dtype);
        int64_t at;
        if (tn_state_download(v->state, &m->tensor[o], first ? expected : m->found, m->bytes[o]) != TN_OK) {
            fail(m, v, last_words(v->state));
            return false;
        }
        int64_t n = m->bytes[o] * 8 / tn_dtype_bits(dtype);
        if (!first && memcmp(expected, m->found, (size_t)m->bytes[o]) != 0 && tn_differences(dtype, expected, m->found, n, 1, &at) > 0) {
            fail(m, v, tn_format(&m->session->arena, "element %lld of its result is not that of the first candidate", (long long)at));
            v->out->differs = true;
            return false;
        }
        expected += m->bytes[o];
    }
    return true;
}

static bool make_results(measuring *m)
{
    int64_t all = 0, most = 0;
    for (int o = m->ninputs - m->noutputs; o < m->ninputs; o++)
        all += m->bytes[o], most = tn_max(most, m->bytes[o]);
    m->expected = malloc((size_t)all + 1);
    m->found = malloc((size_t)most + 1);
    return m->expected && m->found;
}

static void finish_variant(variant *v)
{
    if (v->out->fault || v->n == 0)
        return;
    qsort(v->sample, (size_t)v->n, sizeof *v->sample, tn_by_value);
    v->out->ns = v->n % 2 ? v->sample[v->n / 2] : (v->sample[v->n / 2 - 1] + v->sample[v->n / 2]) / 2;
}

static double least_of(const variant *v)
{
    double least = v->sample[0];
    for (int i = 1; i < v->n; i++)
        least = v->sample[i] < least ? v->sample[i] : least;
    return least;
}

static void drop_slow(measuring *m)
{
    double best = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->variant[i].n && (best == 0 || least_of(&m->variant[i]) < best))
            best = least_of(&m->variant[i]);
    for (size_t i = 1; i < m->n; i++)
        m->variant[i].off |= m->variant[i].n && least_of(&m->variant[i]) > surely_slower * best;
}

static void take_turns(measuring *m, double end)
{
    double now = tn_seconds();
    end = now + kernel_seconds < end ? now + kernel_seconds : end;
    for (int turn = 0; turn < TURNS && (turn < TURNS_LEAST || tn_seconds() < end); turn++) {
        for (size_t i = 0; i < m->n; i++) {
            variant *v = &m->variant[i];
            double ns;
            if (!v->off && sample(m, v, m->repeats, &ns))
                v->sample[v->n++] = ns;
        }
        if (turn + 1 == TURNS_SHORT)
            drop_slow(m);
    }
}

static void measure(measuring *m, double end, const char **at)
{
    variant *first = &m->variant[0];
    const char *why = first->off ? first->out->fault : choose_shapes(m, at);
    why = why ? why : make_operands(m);
    if (why || !make_results(m)) {
        fail(m, first, why);
        return;
    }
    if (!run_once(m, first, true))
        return;
    double ns;
    if (!sample(m, first, 1, &ns)) /* the first run planned memory */
        return;
    m->repeats = first->exec->machine->gpu || ns >= sample_ns ? 1 : (int)tn_min(REPEATS, (int64_t)(sample_ns / tn_max(ns, 1)) + 1);
    for (size_t i = 1; i < m->n; i++)
        if (!m->variant[i].off && run_once(m, &m->variant[i], false))
            sample(m, &m->variant[i], 1, &ns);
    take_turns(m, end);
    for (size_t i = 0; i < m->n; i++)
        finish_variant(&m->variant[i]);
}

tn_status tn_tune_measure(tn_session *session, const tn_bench *bench, const tn_trial *trials, size_t n, double seconds, tn_measured *out, const char **at)
{
    measuring m = {.session = session, .bench = bench, .n = n, .variant = TN_NEW_ARRAY(&session->arena, variant, n + 1)};
    double end = tn_seconds() + seconds;
    *at = "";
    for (size_t i = 0; i < n; i++) {
        out[i] = (tn_measured){.ns = 0};
        m.variant[i] = (variant){.out = &out[i], .sample = TN_NEW_ARRAY(&session->arena, double, TURNS)};
    }
    make_all(&m, trials);
    if (!m.variant[0].off) {
        m.ninputs = m.variant[0].exec->ninputs;
        m.noutputs = m.variant[0].exec->noutputs;
        m.host = TN_NEW_ARRAY(&session->arena, DLTensor, (size_t)m.ninputs + 1);
        m.tensor = TN_NEW_ARRAY(&session->arena, DLTensor, (size_t)m.ninputs + 1);
        m.bytes = TN_NEW_ARRAY(&session->arena, int64_t, (size_t)m.ninputs + 1);
        measure(&m, end, at);
    }
    free_operands(&m);
    free(m.expected);
    free(m.found);
    for (size_t i = n; i-- > 0;) {
        tn_state_free(m.variant[i].state);
        tn_exec_unload(m.variant[i].exec);
        tn_exec_free(m.variant[i].exec);
    }
    return TN_OK;
}
