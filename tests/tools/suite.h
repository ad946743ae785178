/* What the programs that run the ONNX backend suite share: comparison by the suite's rule, one process a case, the lines they print.
 * A case is a folder (model.onnx, test_data_set_N/{input,output}_M.pb) or, for the light models, a file NAME.onnx beside NAME_output_0.pb. */
#ifndef SUITE_H
#define SUITE_H

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "import/import.h"

enum { SUITE_PASS, SUITE_FAIL, SUITE_UNSUPPORTED, SUITE_CRASH };

/* Runs one case; *why is set unless it passes. */
typedef int suite_case(tn_session *session, const char *path, const char **why);

typedef struct suite_options {
    suite_case *run;
    bool verbose; /* the whole diagnostics */
    int seconds;  /* a case */
    int jobs;     /* cases at once */
} suite_options;

static inline const char *suite_first_error(const tn_session *session)
{
    for (size_t i = 0; i < session->diags.len; i++)
        if (session->diags.at[i].severity == TN_ERROR)
            return session->diags.at[i].message;
    return "no diagnostic";
}

static inline bool suite_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static inline bool suite_is_file(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".onnx");
}

/* |have - want| <= 1e-7 + 1e-3 * |want|, NaN equal to NaN: the suite's own rule. */
static inline bool suite_close(double have, double want)
{
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    return have == want || fabs(have - want) <= 1e-7 + 1e-3 * fabs(want);
}

static inline bool suite_element_ok(const tn_tensor *have, const tn_tensor *want, int64_t i)
{
    tn_number x = tn_tensor_at(have, i), y = tn_tensor_at(want, i);
    if (tn_is_complex(want->dtype))
        return suite_close(x.f, y.f) && suite_close(x.im, y.im);
    if (!tn_is_float(want->dtype))
        return tn_number_same(want->dtype, x, y);
    return suite_close(tn_number_to_double(have->dtype, x), tn_number_to_double(want->dtype, y));
}

static inline void suite_text_shape(tn_text *text, const tn_tensor *t)
{
    tn_text_add(text, "%s[", tn_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++)
        tn_text_add(text, " %lld", (long long)t->dim[i]);
    tn_text_add(text, " ]");
}

static inline bool suite_compare(tn_arena *arena, int index, const tn_tensor *have, const tn_tensor *want, const char **why)
{
    int64_t count = 0, wrong = 0, first = -1;
    tn_text text = {.arena = arena};
    bool same = have->dtype == want->dtype && have->rank == want->rank;
    for (int i = 0; same && i < want->rank; i++)
        same = have->dim[i] == want->dim[i];
    if (!same) {
        tn_text_add(&text, "output %d: found ", index);
        suite_text_shape(&text, have);
        tn_text_add(&text, ", expected ");
        suite_text_shape(&text, want);
        *why = text.at;
        return false;
    }
    tn_tensor_count(want, &count);
    for (int64_t i = 0; i < count; i++)
        if (!suite_element_ok(have, want, i)) {
            wrong++;
            first = first < 0 ? i : first;
        }
    if (wrong) {
        tn_text_add(&text, "output %d: %lld of %lld elements differ, first at %lld: found ", index, (long long)wrong, (long long)count, (long long)first);
        tn_text_number(&text, have->dtype, tn_tensor_at(have, first));
        tn_text_add(&text, ", expected ");
        tn_text_number(&text, want->dtype, tn_tensor_at(want, first));
        *why = text.at;
    }
    return wrong == 0;
}

static inline void suite_print(const char *word, const char *path, const char *why)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name) - (suite_is_file(name) ? 5 : 0);
    printf("%s %.*s%s", word, (int)n, name, why ? ": " : "");
    for (; why && *why; why++)
        putchar(*why == '\n' ? ' ' : *why);
    putchar('\n');
    fflush(stdout);
}

static inline int suite_in_child(const suite_options *options, const char *path)
{
    static const char *const words[] = {"PASS", "FAIL", "UNSUPPORTED"};
    tn_session *session = tn_session_new();
    const char *why = NULL;
    alarm((unsigned)options->seconds);
    int result = options->run(session, path, &why);
    suite_print(words[result], path, why);
    if (options->verbose && result != SUITE_PASS)
        tn_print_diags(session, stdout);
    fflush(stdout);
    return result;
}

typedef struct suite_child {
    pid_t pid;
    const char *path;
} suite_child;

static inline void suite_reap(suite_child *children, int n, int *counts)
{
    int state = 0;
    pid_t pid = wait(&state);
    for (int i = 0; i < n; i++) {
        if (children[i].pid != pid || pid <= 0)
            continue;
        int result = WIFEXITED(state) && WEXITSTATUS(state) < SUITE_CRASH ? WEXITSTATUS(state) : SUITE_CRASH;
        if (result == SUITE_CRASH)
            suite_print(WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM ? "TIMEOUT" : "CRASH", children[i].path, NULL);
        counts[result]++;
        children[i].pid = 0;
    }
}

/* Every case in a process of its own, `jobs` at once; prints a line a case and the counts. 1 if one crashed, else 0. */
static inline int suite_run_all(const suite_options *options, char *const *paths, int n)
{
    enum { MOST = 64 };
    suite_child children[MOST] = {0};
    int counts[SUITE_CRASH + 1] = {0}, jobs = options->jobs < 1 ? 1 : options->jobs > MOST ? MOST : options->jobs, running = 0;
    for (int i = 0; i < n; i++) {
        if (running == jobs)
            suite_reap(children, jobs, counts), running--;
        int free = 0;
        while (children[free].pid)
            free++;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            _exit(suite_in_child(options, paths[i]));
        children[free] = (suite_child){pid, paths[i]};
        running++;
    }
    for (; running; running--)
        suite_reap(children, jobs, counts);
    printf("%d pass, %d fail, %d unsupported, %d crash\n", counts[0], counts[1], counts[2], counts[3]);
    return counts[SUITE_CRASH] ? 1 : 0;
}

/* Options before the cases: -v, -j N, -t SECONDS, and those that `extra` takes (it returns how many words it used, 0: unknown). Returns the index of the first case. */
static inline int suite_arguments(suite_options *options, int argc, char **argv, int (*extra)(int argc, char **argv))
{
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        int used = extra ? extra(argc - i, argv + i) : 0;
        if (used)
            i += used;
        else if (!strcmp(argv[i], "-v"))
            options->verbose = true, i++;
        else if (!strcmp(argv[i], "-j") && i + 1 < argc)
            options->jobs = atoi(argv[i + 1]), i += 2;
        else if (!strcmp(argv[i], "-t") && i + 1 < argc)
            options->seconds = atoi(argv[i + 1]), i += 2;
        else
            return -1;
    }
    return i;
}

#endif
