/* Tuning: the database, also damaged, locked and shared; which candidate is taken, by measurements that are made up and by real ones; pins; a GPU that is a fake. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "opt/opt.h"
#include "tune/tune.h"
#include "unit.h"

static fake_state *fake;
static char folder[64];

static int start_tests(void **state)
{
    (void)state;
    void *library = dlopen(FAKE_CUDA, RTLD_NOW); /* the one that dlopen finds by its name from now on */
    fake = library ? dlsym(library, "fake_cuda") : NULL;
    setenv("TENON_PTXAS", "", 1);
    setenv("TENON_CACHE", "", 1);
    return fake && tn_gpu_count(NULL) == 1 ? 0 : -1;
}

static int new_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tenon-tune-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *records_path(tn_session *s) { return tn_format(&s->arena, "%s/" TN_RECORDS_FILE, folder); }

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    static const char *const names[] = {"/" TN_RECORDS_FILE, "/" TN_RECORDS_FILE "-journal", "/pins"};
    for (size_t i = 0; i < TN_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* ---- the database ----------------------------------------------------------------------------------------------------------- */

static void records_are_kept(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_record record = {"M=1 N='2'", "10: M=1\n", "2026-01-01T00:00:00Z"}, found;
    assert_null(tn_records_open(s, folder, false)); /* none is made */
    assert_int_equal(s->diags.len, 0);
    tn_records *r = tn_records_open(s, folder, true);
    assert_non_null(r);
    assert_false(tn_records_get(r, &s->arena, "cpu", 1, "kernel", &found));
    assert_true(tn_records_put(r, "cpu", 1, "kernel", &record));
    assert_true(tn_records_put(r, "cpu", 1, "kernel '; DROP TABLE records", &record));
    tn_records_close(r);
    r = tn_records_open(s, folder, false);
    assert_true(tn_records_get(r, &s->arena, "cpu", 1, "kernel", &found));
    assert_string_equal(found.schedule, record.schedule);
    assert_string_equal(found.times, record.times);
    assert_string_equal(found.date, record.date);
    assert_true(tn_records_get(r, &s->arena, "cpu", 1, "kernel '; DROP TABLE records", &found));
    assert_false(tn_records_get(r, &s->arena, "other", 1, "kernel", &found));
    assert_false(tn_records_get(r, &s->arena, "cpu", 2, "kernel", &found));
    assert_false(tn_records_get(r, &s->arena, "cpu", 1, "kern", &found));
    tn_records_close(r);
    r = tn_records_open(s, folder, true);
    record.schedule = "M=2";
    assert_true(tn_records_put(r, "cpu", 1, "kernel", &record)); /* replaces */
    assert_true(tn_records_get(r, &s->arena, "cpu", 1, "kernel", &found));
    assert_string_equal(found.schedule, "M=2");
    tn_records_close(r);
    assert_int_equal(s->diags.len, 0);
    free_test_session(s);
}

static void write_file(const char *path, const void *data, size_t size, mode_t mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* One warning, no record, no crash. */
static void expect_useless(tn_session *s, const char *words)
{
    tn_record record = {"M=1", "", ""}, found;
    for (int write = 0; write < 2; write++) {
        size_t before = s->diags.len;
        tn_records *r = tn_records_open(s, folder, write != 0);
        if (r && !tn_records_get(r, &s->arena, "cpu", 1, "kernel", &found))
            assert_false(tn_records_put(r, "cpu", 1, "kernel", &record));
        tn_records_close(r);
        assert_int_equal(s->diags.len, before + 1);
        assert_int_equal(s->diags.at[before].severity, TN_WARNING);
        if (!strstr(s->diags.at[before].message, words))
            fail_msg("%s", s->diags.at[before].message);
        assert_non_null(strstr(s->diags.at[before].message, "going on without"));
    }
    assert_int_equal(s->errors, 0);
}

static void damaged_files_are_warnings(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    char noise[5000];
    tn_record record = {"M=1", "", ""};
    memset(noise, 'x', sizeof noise);
    write_file(records_path(s), noise, sizeof noise, 0600);
    expect_useless(s, "not a database");

    unlink(records_path(s));
    tn_records *r = tn_records_open(s, folder, true);
    tn_records_put(r, "cpu", 1, "kernel", &record);
    tn_records_close(r);
    int fd = open(records_path(s), O_WRONLY);
    assert_int_equal(pwrite(fd, noise, 4000, 100), 4000); /* the header is right, the pages are not */
    close(fd);
    expect_useless(s, "malformed");

    unlink(records_path(s));
    write_file(records_path(s), noise, 10, 0666);
    expect_useless(s, "only this user may write");
    unlink(records_path(s));
    assert_int_equal(symlink("/etc/passwd", records_path(s)), 0);
    expect_useless(s, "belongs to this user");
    unlink(records_path(s));
    assert_int_equal(mkdir(records_path(s), 0700), 0);
    expect_useless(s, "not a file");
    rmdir(records_path(s));

    size_t before = s->diags.len;
    assert_null(tn_records_open(s, "/proc/no/such/folder", true));
    assert_int_equal(s->diags.len, before + 1);
    assert_null(tn_records_open(s, "/proc/no/such/folder", false));
    assert_int_equal(s->diags.len, before + 1);
    free_test_session(s);
}

static void a_lock_that_stays_is_a_warning(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_record record = {"M=1", "", ""}, found;
    tn_records_close(tn_records_open(s, folder, true));
    tn_records *r = tn_records_open(s, folder, false);
    sqlite3 *other;
    assert_int_equal(sqlite3_open(records_path(s), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    assert_false(tn_records_get(r, &s->arena, "cpu", 1, "kernel", &found));
    assert_non_null(strstr(last_message(s), "locked"));
    assert_false(tn_records_put(r, "cpu", 1, "kernel", &record)); /* at once */
    assert_int_equal(s->diags.len, 1);
    sqlite3_close(other);
    tn_records_close(r);
    free_test_session(s);
}

enum { WRITES = 15 };

static int write_records(int who)
{
    tn_session *s = new_test_session();
    tn_records *r = tn_records_open(s, folder, true);
    int wrong = r == NULL;
    for (int i = 0; r && i < WRITES; i++) {
        tn_record record = {tn_format(&s->arena, "M=%d", i), "", ""};
        wrong += !tn_records_put(r, "cpu", who, tn_format(&s->arena, "kernel %d", i), &record);
    }
    tn_records_close(r);
    tn_print_diags(s, stderr);
    free_test_session(s);
    return wrong;
}

static void two_processes_write_at_once(void **state)
{
    (void)state;
    pid_t child[2];
    tn_session *s = new_test_session();
    for (int i = 0; i < 2; i++)
        if ((child[i] = fork()) == 0)
            _exit(write_records(i));
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    tn_records *r = tn_records_open(s, folder, false);
    for (int who = 0; who < 2; who++)
        for (int i = 0; i < WRITES; i++) {
            tn_record found;
            assert_true(tn_records_get(r, &s->arena, "cpu", who, tn_format(&s->arena, "kernel %d", i), &found));
            assert_string_equal(found.schedule, tn_format(&s->arena, "M=%d", i));
        }
    tn_records_close(r);
    free_test_session(s);
}

/* ---- which is taken ----------------------------------------------------------------------------------------------------------- */

static size_t best(double a, double b, double c) { return tn_tune_best((tn_measured[]){{.ns = a}, {.ns = b}, {.ns = c}}, 3); }

static void the_fastest_is_taken(void **state)
{
    (void)state;
    assert_int_equal(best(100, 80, 90), 1);
    assert_int_equal(best(100, 90, 80), 2);
    assert_int_equal(best(100, 100, 100), 0);
    assert_int_equal(best(100, 99.5, 100), 0); /* no hundredth */
    assert_int_equal(best(100, 98, 98), 1);    /* of equals the earlier */
    assert_int_equal(best(100, 0, 50), 2);     /* without a time */
    assert_int_equal(best(0, 0, 50), 2);
    assert_int_equal(best(0, 0, 0), 0);
}

/* relu(x w + b), twice the same and once another. */
static const char layers[] = "graph @f(%x: f32[64, 128], %w: f32[128, 128], %v: f32[128, 32]) {\n"
                             "  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[64, 128]\n"
                             "  %q = dot_general %p, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[64, 128]\n"
                             "  %r = dot_general %q, %v, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[64, 32]\n"
                             "  return %r\n}\n";
static const char symbolic[] = "graph @f(%x: f32[n, 128], %w: f32[128, 128]) {\n"
                               "  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[n, 128]\n"
                               "  return %p\n}\n";

static tn_graph *parse(tn_session *s, const char *text)
{
    tn_graph_module *module;
    tn_opt_options opt = {.verify = true};
    if (tn_graph_parse(s, "test", text, strlen(text), &module) != TN_OK || tn_opt_run(s, module->graphs.at[0], NULL, &opt) != TN_OK)
        fail_msg("%s", last_message(s));
    return module->graphs.at[0];
}

typedef struct made_up {
    int asked;
    size_t fastest;  /* of each kernel's candidates */
    size_t different; /* a candidate whose results differ; 0: none */
    int64_t M, N;    /* of the fastest of the first kernel asked about */
    const char *first; /* key of it */
} made_up;

static tn_status make_up(void *context, const tn_choice *choice, size_t n, tn_measured *out)
{
    made_up *m = context;
    assert_true(n >= 2 && n <= choice->n);
    for (size_t i = 1; i < n; i++)
        assert_true(choice->candidate[i].ns > 0);
    for (size_t i = 0; i < n; i++)
        out[i] = (tn_measured){.ns = i == m->fastest ? 50 : 100};
    if (m->different)
        out[m->different] = (tn_measured){.fault = "element 3 of its result is not that of the first candidate", .differs = true};
    if (m->asked++ == 0) {
        m->M = choice->candidate[m->fastest].value[0];
        m->N = choice->candidate[m->fastest].value[1];
        m->first = choice->key;
    }
    return TN_OK;
}

/* The program that is made with these options, as text; *schedule: what was chosen. */
static const char *compile(tn_session *s, const char *graph, const tn_tune_options *options, const char *machine, const char **schedule, tn_status *status)
{
    tn_tune_options o = *options;
    tn_tuner *tuner = NULL;
    tn_program program;
    tn_graph *g = parse(s, graph);
    tn_text text = {.arena = &s->arena}, chosen = {.arena = &s->arena};
    o.bench.options.machine = tn_machine_find(machine);
    o.bench.options.threads = o.threads = 1;
    o.bench.options.level = 1;
    o.listed = true;
    tn_fuse_options fuse = {.target = tn_machine_tile_target(o.bench.options.machine, 1)};
    *status = tn_tuner_new(s, &o, &tuner);
    if (*status == TN_OK) {
        assert_int_equal(tn_tune(tuner, g, &fuse), TN_OK);
        fuse.chooser = tn_tuner_chooser(tuner);
        assert_int_equal(tn_fuse(s, g, &fuse, &program), TN_OK);
        *status = tn_tuner_finish(tuner);
        tn_text_program(&text, &program);
        tn_text_schedule(&chosen, tuner);
        *schedule = chosen.at;
    }
    tn_tuner_free(tuner);
    return text.at;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static void equal_kernels_are_asked_about_once(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    made_up m = {.fastest = 2};
    tn_status status;
    const char *chosen, *plain = compile(s, layers, &(tn_tune_options){.records = false}, "baseline", &chosen, &status);
    assert_int_equal(count(chosen, "the selector's of"), 2);
    const char *tuned = compile(s, layers, &(tn_tune_options){.seconds = 1, .records = true, .folder = folder, .measure = make_up, .measure_context = &m}, "baseline", &chosen, &status);
    assert_int_equal(m.asked, 2);
    assert_non_null(strstr(m.first, "dim 128, dim 128 folded")); /* what takes longest, twice */
    assert_int_equal(count(chosen, "measured of"), 2);
    assert_non_null(strstr(chosen, tn_format(&s->arena, "M=%lld N=%lld", (long long)m.M, (long long)m.N)));
    assert_string_not_equal(plain, tuned);
    assert_int_equal(s->errors, 0);

    /* From the database, the same code; nothing is measured again; without the database the selector's. */
    const char *again = compile(s, layers, &(tn_tune_options){.records = true, .folder = folder}, "baseline", &chosen, &status);
    assert_string_equal(again, tuned);
    m.asked = 0;
    again = compile(s, layers, &(tn_tune_options){.seconds = 1, .records = true, .folder = folder, .measure = make_up, .measure_context = &m}, "baseline", &chosen, &status);
    assert_string_equal(again, tuned);
    assert_int_equal(m.asked, 0);
    again = compile(s, layers, &(tn_tune_options){.records = false, .folder = folder}, "baseline", &chosen, &status);
    assert_string_equal(again, plain);
    tn_session_free(s);
}

static void ties_keep_the_selectors_choice(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    made_up m = {.fastest = SIZE_MAX};
    tn_status status;
    const char *chosen, *plain = compile(s, layers, &(tn_tune_options){.records = false}, "baseline", &chosen, &status);
    tn_tune_options tune = {.seconds = 1, .records = true, .folder = folder, .measure = make_up, .measure_context = &m};
    assert_string_equal(compile(s, layers, &tune, "baseline", &chosen, &status), plain);
    assert_int_equal(m.asked, 2);
    compile(s, layers, &tune, "baseline", &chosen, &status);
    assert_int_equal(m.asked, 2); /* that is known now */
    tn_session_free(s);
}

static void candidates_at_fault_are_not_taken(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    made_up m = {.fastest = 1, .different = 1};
    tn_status status;
    const char *chosen, *plain = compile(s, layers, &(tn_tune_options){.records = false}, "baseline", &chosen, &status);
    const char *tuned = compile(s, layers, &(tn_tune_options){.seconds = 1, .measure = make_up, .measure_context = &m}, "baseline", &chosen, &status);
    assert_string_equal(tuned, plain);
    int warnings = 0;
    for (size_t i = 0; i < s->diags.len; i++)
        warnings += s->diags.at[i].severity == TN_WARNING && strstr(s->diags.at[i].message, "element 3") && strstr(s->diags.at[i].message, "a fault of Tenon's");
    assert_int_equal(warnings, 2);
    tn_session_free(s);
}

/* A record whose values no candidate has, of a kernel whose text is the same, is none. */
static void foreign_records_are_none(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    made_up m = {.fastest = 1};
    tn_status status;
    sqlite3 *db;
    const char *chosen, *plain = compile(s, layers, &(tn_tune_options){.records = false}, "baseline", &chosen, &status);
    compile(s, layers, &(tn_tune_options){.seconds = 1, .records = true, .folder = folder, .measure = make_up, .measure_context = &m}, "baseline", &chosen, &status);
    static const char *const schedules[] = {"M=5 N=3", "M=4", "", "N=x", "M=1 N=1 parts=3"};
    for (size_t i = 0; i < TN_COUNT(schedules); i++) {
        assert_int_equal(sqlite3_open(records_path(s), &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, tn_format(&s->arena, "UPDATE records SET schedule = '%s'", schedules[i]), NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        assert_string_equal(compile(s, layers, &(tn_tune_options){.records = true, .folder = folder}, "baseline", &chosen, &status), plain);
    }
    assert_int_equal(s->errors, 0);
    tn_session_free(s);
}

/* ---- pins ------------------------------------------------------------------------------------------------------------------ */

static const char *pins_file(tn_session *s, const char *text)
{
    const char *path = tn_format(&s->arena, "%s/pins", folder);
    write_file(path, text, strlen(text), 0600);
    return path;
}

static void a_file_pins(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    tn_status status;
    const char *chosen, *pinned, *name = NULL;
    compile(s, layers, &(tn_tune_options){.records = false}, "baseline", &chosen, &status);
    name = strstr(chosen, "dot-");
    name = tn_strndup(&s->arena, name, strcspn(name, " "));
    tn_tune_options options = {.records = false, .schedule = pins_file(s, tn_format(&s->arena, "# mine\n\n%s M=12 # rows\n", name))};
    const char *code = compile(s, layers, &options, "baseline", &pinned, &status);
    assert_int_equal(status, TN_OK);
    assert_non_null(strstr(pinned, tn_format(&s->arena, "%s M=12 N=", name)));
    assert_int_equal(count(pinned, "pinned of"), 1);

    /* What is printed can be read, and gives the same. */
    options.schedule = pins_file(s, pinned);
    assert_string_equal(compile(s, layers, &options, "baseline", &chosen, &status), code);
    assert_int_equal(status, TN_OK);
    assert_int_equal(count(chosen, "pinned of"), 2);

    /* A name in this network; a pin is not measured. */
    made_up m = {.fastest = 1};
    options = (tn_tune_options){.seconds = 1, .schedule = pins_file(s, "k2_dot M=12\n"), .measure = make_up, .measure_context = &m};
    compile(s, layers, &options, "baseline", &chosen, &status);
    assert_int_equal(status, TN_OK);
    assert_int_equal(m.asked, 1);
    assert_int_equal(s->errors, 0);
    tn_session_free(s);
}

static void wrong_pins_name_line_and_entry(void **state)
{
    (void)state;
    static const struct { const char *text; int line; tn_status status; const char *words; } cases[] = {
        {"k0_dot M=5\n", 1, TN_INVALID, "k0_dot: M=5: expected one of "},
        {"\n# x\nk0_dot M=12 depth=3\n", 3, TN_INVALID, "there is no field 'depth'; there are M, N"},
        {"k0_dot M=12 N=7", 1, TN_INVALID, "N=7: expected one of"},
        {"k0_dot M\n", 1, TN_INVALID, "'M' of k0_dot: expected FIELD=NUMBER"},
        {"k0_dot M=4x\n", 1, TN_INVALID, "'M=4x' of k0_dot"},
        {"k0_dot =4\n", 1, TN_INVALID, "'=4' of k0_dot"},
        {"k0_dot M=99999999999999999999\n", 1, TN_INVALID, "expected FIELD=NUMBER"},
        {"M=4\n", 1, TN_INVALID, "a line begins with a kernel's name"},
        {"k0_dot M=12\nk0_dot M=12\n", 2, TN_INVALID, "pinned in line 1 already"},
        {"k77_dot M=4\n", 1, TN_OK, "'k77_dot': no kernel of this network"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *s = tn_session_new();
        const char *chosen;
        tn_status status;
        compile(s, layers, &(tn_tune_options){.schedule = pins_file(s, cases[i].text)}, "baseline", &chosen, &status);
        assert_int_equal(status, cases[i].status);
        if (!strstr(last_message(s), cases[i].words))
            fail_msg("%s: %s", cases[i].text, last_message(s));
        assert_int_equal(s->diags.at[s->diags.len - 1].loc.line, cases[i].line);
        tn_session_free(s);
    }
    tn_session *s = tn_session_new();
    const char *chosen;
    tn_status status;
    compile(s, layers, &(tn_tune_options){.schedule = "/no/such/file"}, "baseline", &chosen, &status);
    assert_int_equal(status, TN_IO);
    tn_session_free(s);
}

/* ---- real measurements -------------------------------------------------------------------------------------------------------- */

static bool n_is_96(void *context, const char *name, int64_t *size)
{
    (void)context;
    *size = 96;
    return !strcmp(name, "n");
}

static bool has_diagnostic(const tn_session *s, tn_severity severity, const char *words)
{
    for (size_t i = 0; i < s->diags.len; i++)
        if (s->diags.at[i].severity == severity && strstr(s->diags.at[i].message, words))
            return true;
    return false;
}

static void kernels_are_measured_on_this_cpu(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    tn_pool *pool = tn_pool_new(1);
    tn_status status;
    const char *chosen, *again;
    tn_tune_options options = {.seconds = 5, .records = true, .folder = folder, .bench.pool = pool};
    const char *code = compile(s, layers, &options, "baseline", &chosen, &status);
    assert_int_equal(count(chosen, "measured of"), 2);
    assert_int_equal(s->errors, 0);
    assert_true(has_diagnostic(s, TN_NOTE, " us with M="));
    assert_false(has_diagnostic(s, TN_WARNING, ""));
    options.seconds = 0;
    assert_string_equal(compile(s, layers, &options, "baseline", &again, &status), code);
    assert_string_equal(again, chosen);

    /* A symbol has a size if it is given one, or a bound. */
    options.seconds = 5;
    compile(s, symbolic, &options, "baseline", &chosen, &status);
    assert_true(has_diagnostic(s, TN_WARNING, "no size of 'n' to measure it at is known"));
    assert_int_equal(count(chosen, "the selector's of"), 1);
    options.bench.size = n_is_96;
    compile(s, symbolic, &options, "baseline", &chosen, &status);
    assert_true(has_diagnostic(s, TN_NOTE, " at n=96: "));
    assert_int_equal(count(chosen, "measured of"), 1);
    tn_session_free(s);

    s = tn_session_new();
    tn_dim_declare(s, "n", 1, 50, 1);
    options = (tn_tune_options){.seconds = 5, .bench.pool = pool};
    compile(s, symbolic, &options, "baseline", &chosen, &status);
    assert_true(has_diagnostic(s, TN_NOTE, " at n=50: "));
    assert_int_equal(s->errors, 0);
    tn_session_free(s);
    tn_pool_free(pool);
}

static void other_machines_are_not_measured(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    tn_status status;
    const char *chosen;
    tn_tune_options options = {.seconds = 1, .records = true, .folder = folder};
    compile(s, layers, &options, "neon", &chosen, &status);
    assert_int_equal(status, TN_OK);
    assert_true(has_diagnostic(s, TN_WARNING, "nothing is tuned: "));
    assert_int_equal(access(records_path(s), F_OK), -1);
    tn_session_free(s);
}

/* ---- candidates ------------------------------------------------------------------------------------------------------------------ */

static size_t take_number(void *context, const tn_choice *choice)
{
    size_t *number = context; /* then how many there are of the kernel that has most */
    size_t taken = number[0] < choice->n ? number[0] : choice->n - 1;
    number[1] = choice->n > number[1] ? choice->n : number[1];
    for (size_t i = 0; i < choice->n; i++)
        for (int f = 0; f < choice->nfields; f++)
            assert_true(choice->candidate[i].value[f] >= 0 && choice->candidate[i].ns > 0);
    return taken;
}

/* The graph's outputs as candidate number[0] of each kernel makes them for the target's tiles, by this CPU. */
static void run_candidate(const char *text, const char *target, size_t *number, const DLTensor *inputs, DLTensor *out)
{
    tn_session *s = tn_session_new();
    tn_graph *graph = parse(s, text);
    tn_program program;
    tn_fuse_options fuse = {.target = tn_machine_tile_target(tn_machine_find(target), 2), .chooser = {take_number, number}};
    tn_exec_options options = {.machine = tn_machine_find("baseline"), .threads = 1, .level = 1, .verify = true};
    tn_pool *pool = tn_pool_new(2);
    tn_exec *exec;
    tn_context *context;
    if (tn_fuse(s, graph, &fuse, &program) != TN_OK || tn_exec_new(s, &program, &options, &exec) != TN_OK || tn_exec_load(s, exec, pool) != TN_OK)
        fail_msg("candidate %zu for %s of %s: %s", number[0], target, text, last_message(s));
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);
    if (tn_run(context, inputs, (size_t)graph->body->nargs, out, 1) != TN_OK)
        fail_msg("candidate %zu for %s of %s: %s", number[0], target, text, tn_context_error(context));
    tn_context_free(context);
    tn_exec_free(exec);
    tn_pool_free(pool);
    tn_session_free(s);
}

typedef struct candidate_case {
    const char *text;
    tn_dtype dtype;
    int ninputs, rank[3];
    int64_t size[3][4], elements; /* of the output */
} candidate_case;

/* softmax(q k^T) v, by head. */
static const char *attention_text(tn_session *s)
{
    static const char wide[] = "[1, 2, 100, 150]";
    tn_text t = {.arena = &s->arena};
    tn_text_add(&t, "graph @f(%%q: f32[1, 2, 100, 32], %%k: f32[1, 2, 150, 32], %%v: f32[1, 2, 150, 32]) {\n");
    tn_text_add(&t, "  %%s = dot_general %%q, %%k, lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], rhs_contract = [3] : f32%s\n", wide);
    for (int i = 0; i < 2; i++) {
        const char *of = i ? "e" : "s", *op = i ? "add" : "maximum", *to = i ? "n" : "m";
        tn_text_add(&t, "  %%z%d = constant dense<%s> : f32[]\n  %%r%d = reduce %%%s, %%z%d, dimensions = [3] : f32[1, 2, 100] {\n  ^(%%a: f32[], %%b: f32[]):\n"
                        "    %%c = %s %%a, %%b : f32[]\n    return %%c\n  }\n", i, i ? "0.0" : "-inf", i, of, i, op);
        tn_text_add(&t, "  %%%s = broadcast_in_dim %%r%d, shape = %s, broadcast_dimensions = [0, 1, 2] : f32%s\n", to, i, wide, wide);
        if (!i)
            tn_text_add(&t, "  %%d = subtract %%s, %%m : f32%s\n  %%e = exponential %%d : f32%s\n", wide, wide);
    }
    tn_text_add(&t, "  %%w = divide %%e, %%n : f32%s\n", wide);
    tn_text_add(&t, "  %%y = dot_general %%w, %%v, lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [3], rhs_contract = [2] : f32[1, 2, 100, 32]\n  return %%y\n}\n");
    return t.at;
}

static void every_candidate_computes_the_same(void **state)
{
    (void)state;
    static const char sum[] = "{\n  ^(%a: f32[], %b: f32[]):\n    %c = add %a, %b : f32[]\n    return %c\n  }\n";
    static const char *const targets[] = {"baseline", "sm_90a"};
    tn_session *s = new_test_session();
    const candidate_case cases[] = {
        {"graph @f(%x: f32[70, 150], %w: f32[150, 90]) {\n  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[70, 90]\n"
         "  return %p\n}\n", TN_F32, 2, {2, 2}, {{70, 150}, {150, 90}}, 70 * 90},
        {"graph @f(%x: bf16[40, 300], %w: bf16[300, 200]) {\n  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : bf16[40, 200]\n"
         "  return %p\n}\n", TN_BF16, 2, {2, 2}, {{40, 300}, {300, 200}}, 40 * 200},
        {"graph @f(%x: f32[1, 900], %w: f32[900, 200]) {\n  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[1, 200]\n"
         "  return %p\n}\n", TN_F32, 2, {2, 2}, {{1, 900}, {900, 200}}, 200},
        {"graph @f(%x: f32[1, 900], %w: f32[200, 900]) {\n  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [1] : f32[1, 200]\n"
         "  return %p\n}\n", TN_F32, 2, {2, 2}, {{1, 900}, {200, 900}}, 200},
        {"graph @f(%x: f32[9, 1000], %y: f32[9, 1000]) {\n  %p = add %x, %y : f32[9, 1000]\n  return %p\n}\n", TN_F32, 2, {2, 2}, {{9, 1000}, {9, 1000}}, 9000},
        {"graph @f(%x: f32[100, 130]) {\n  %p = transpose %x, permutation = [1, 0] : f32[130, 100]\n  return %p\n}\n", TN_F32, 1, {2}, {{100, 130}}, 13000},
        {tn_format(&s->arena, "graph @f(%%x: f32[50, 700]) {\n  %%z = constant dense<0.0> : f32[]\n  %%s = reduce %%x, %%z, dimensions = [1] : f32[50] %s"
                   "  %%t = broadcast_in_dim %%s, shape = [50, 700], broadcast_dimensions = [0] : f32[50, 700]\n  %%d = divide %%x, %%t : f32[50, 700]\n  return %%d\n}\n", sum),
         TN_F32, 1, {2}, {{50, 700}}, 35000},
        {tn_format(&s->arena, "graph @f(%%x: f32[300, 70]) {\n  %%z = constant dense<0.0> : f32[]\n  %%s = reduce %%x, %%z, dimensions = [0] : f32[70] %s  return %%s\n}\n", sum),
         TN_F32, 1, {2}, {{300, 70}}, 70},
        {tn_format(&s->arena, "graph @f(%%x: f32[6, 90, 70]) {\n  %%z = constant dense<0.0> : f32[]\n  %%s = reduce %%x, %%z, dimensions = [0, 2] : f32[90] %s  return %%s\n}\n", sum),
         TN_F32, 1, {3}, {{6, 90, 70}}, 90},
        {attention_text(s), TN_F32, 3, {4, 4, 4}, {{1, 2, 100, 32}, {1, 2, 150, 32}, {1, 2, 150, 32}}, 2 * 100 * 32},
    };
    for (size_t c = 0; c < TN_COUNT(cases); c++) {
        const candidate_case *at = &cases[c];
        DLTensor in[3] = {{0}}, first = {.data = NULL};
        for (int i = 0; i < at->ninputs; i++) {
            int64_t n = 1;
            for (int d = 0; d < at->rank[i]; d++)
                n *= at->size[i][d];
            in[i] = (DLTensor){.data = tn_alloc_tensor((size_t)n * 4), .device = {1, 0}, .ndim = at->rank[i], .dtype = tn_dtype_to_dlpack(at->dtype), .shape = (int64_t *)at->size[i]};
            tn_fill_random(at->dtype, in[i].data, n, 3, (uint64_t)i);
        }
        run_candidate(at->text, "baseline", (size_t[2]){0, 0}, in, &first);
        for (size_t t = 0; t < TN_COUNT(targets); t++) {
            size_t number[2] = {0, 1};
            for (; number[0] < number[1]; number[0]++) {
                DLTensor out = {.data = NULL};
                int64_t wrong;
                run_candidate(at->text, targets[t], number, in, &out);
                if (tn_differences(at->dtype, first.data, out.data, at->elements, 1, &wrong) > 0)
                    fail_msg("candidate %zu for %s of %s: element %lld", number[0], targets[t], at->text, (long long)wrong);
                tn_tensor_free(&out);
            }
            assert_true(number[1] >= 2);
        }
        tn_tensor_free(&first);
        for (int i = 0; i < at->ninputs; i++)
            free(in[i].data);
    }
    free_test_session(s);
}

/* ---- a GPU that is a fake -------------------------------------------------------------------------------------------------------- */

static const char halves[] = "graph @f(%x: bf16[128, 256], %w: bf16[256, 128]) {\n"
                             "  %p = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : bf16[128, 128]\n"
                             "  return %p\n}\n";

static void do_nothing(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    (void)context, (void)grid, (void)threads, (void)params;
}

/* A product by itself, and one in parts. */
static void teach_fake(void (*run)(void *context, unsigned grid, unsigned threads, const uint64_t *params), void *context)
{
    fake->most_threads = 1024;
    fake->kernel[0] = (fake_kernel){.name = "k0_dot", .nparams = 3, .run = run, .context = context};
    fake->kernel[1] = (fake_kernel){.name = "k1_total", .nparams = 2, .run = do_nothing};
    fake->nkernels = 2;
}

/* Results by the number of programs: kernels of other grids than the first differ. */
static void write_grid(void *context, unsigned grid, unsigned threads, const uint64_t *params)
{
    unsigned *first = context;
    (void)threads;
    *first = *first ? *first : grid;
    if (grid != *first)
        ((uint16_t *)(uintptr_t)params[2])[0] = 0x4780;
}

static void kernels_are_measured_on_a_gpu(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    tn_pool *pool = tn_pool_new(1);
    tn_status status;
    const char *chosen, *again;
    tn_tune_options options = {.seconds = 5, .records = true, .folder = folder, .bench.pool = pool};
    teach_fake(do_nothing, NULL);
    fake->launches = 0;
    const char *code = compile(s, halves, &options, "sm_80", &chosen, &status);
    assert_int_equal(status, TN_OK);
    assert_true(fake->launches > 10);
    assert_true(has_diagnostic(s, TN_NOTE, "1500.00 us with M=")); /* as the events say; all alike */
    assert_int_equal(count(chosen, "measured of"), 1);
    assert_int_equal(fake->memory, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->retained, 0);
    int launches = fake->launches;
    options.seconds = 0;
    assert_string_equal(compile(s, halves, &options, "sm_80", &again, &status), code);
    assert_string_equal(again, chosen);
    assert_int_equal(fake->launches, launches);
    tn_session_free(s);
    tn_pool_free(pool);
}

static void faults_on_a_gpu_are_told(void **state)
{
    (void)state;
    tn_session *s = tn_session_new();
    tn_pool *pool = tn_pool_new(1);
    tn_status status;
    const char *chosen;
    unsigned first = 0;
    tn_tune_options options = {.seconds = 5, .bench.pool = pool};
    teach_fake(write_grid, &first);
    compile(s, halves, &options, "sm_80", &chosen, &status);
    assert_int_equal(status, TN_OK);
    assert_true(has_diagnostic(s, TN_WARNING, "element 0 of its result is not that of the first candidate: a fault of Tenon's"));
    assert_int_equal(s->errors, 0);
    teach_fake(do_nothing, NULL);
    static const char *const calls[] = {"cuModuleLoadDataEx", "cuMemAlloc_v2", "cuLaunchKernel", "cuEventElapsedTime", "cuMemcpyDtoHAsync_v2"};
    for (size_t i = 0; i < TN_COUNT(calls); i++) {
        size_t before = s->diags.len;
        fake->failing = calls[i], fake->result = 1, fake->after = 0;
        compile(s, halves, &options, "sm_80", &chosen, &status);
        fake->failing = NULL;
        assert_int_equal(status, TN_OK);
        assert_int_equal(s->errors, 0);
        assert_true(s->diags.len > before && s->diags.at[before].severity == TN_WARNING);
        assert_non_null(strstr(s->diags.at[before].message, calls[i]));
        assert_int_equal(count(chosen, "the selector's of"), 1);
        assert_int_equal(fake->memory, 0);
        assert_int_equal(fake->modules, 0);
        assert_int_equal(fake->streams, 0);
        assert_int_equal(fake->events, 0);
        assert_int_equal(fake->retained, 0);
    }
    tn_session_free(s);
    tn_pool_free(pool);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(records_are_kept), IN_FOLDER(damaged_files_are_warnings), IN_FOLDER(a_lock_that_stays_is_a_warning), IN_FOLDER(two_processes_write_at_once),
        cmocka_unit_test(the_fastest_is_taken), IN_FOLDER(equal_kernels_are_asked_about_once), IN_FOLDER(ties_keep_the_selectors_choice),
        IN_FOLDER(candidates_at_fault_are_not_taken), IN_FOLDER(foreign_records_are_none), IN_FOLDER(a_file_pins), IN_FOLDER(wrong_pins_name_line_and_entry),
        cmocka_unit_test(every_candidate_computes_the_same), IN_FOLDER(kernels_are_measured_on_this_cpu), IN_FOLDER(other_machines_are_not_measured), IN_FOLDER(kernels_are_measured_on_a_gpu),
        IN_FOLDER(faults_on_a_gpu_are_told),
    };
    return cmocka_run_group_tests(tests, start_tests, NULL);
}
