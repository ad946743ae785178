/* Kernels in Triton's language, given as C strings, compiled and run by the definitions of the Tile IR. */
#ifndef TN_TRITON_TEST_H
#define TN_TRITON_TEST_H

#include "unit.h"

#include "triton/triton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL(parameters) "import triton\nimport triton.language as tl\n@triton.jit\ndef k(" parameters "):\n"

/* What the kernel is given, one a parameter. type as tn_triton_compile takes it; a pointer has data, a number its bits. */
typedef struct given {
    const char *type;
    void *data;
    int64_t elements;
    int64_t bits;
} given;
#define ARRAY(type, array) {(type), (array), (int64_t)TN_COUNT(array), 0}

typedef struct launch {
    const tn_triton_kernel *kernel;
    const given *arguments;
    const int64_t *grid;
} launch;

static inline int64_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline bool launch_value(void *context, const char *symbol, int64_t *value)
{
    const launch *l = context;
    static const char *const axes[] = {"grid_x", "grid_y", "grid_z"};
    for (int i = 0; i < 3; i++)
        if (strcmp(symbol, axes[i]) == 0) {
            *value = l->grid[i];
            return true;
        }
    for (size_t i = 0; i < l->kernel->nvalues; i++)
        if (strcmp(l->kernel->value[i].name, symbol) == 0) {
            *value = l->arguments[i].bits;
            return true;
        }
    return false;
}

static inline tn_status compile_triton(tn_session *session, const char *text, const given *arguments, size_t n, bool debug, tn_triton_kernel *out)
{
    const char *types[32];
    int unit;
    tn_triton_module *module = tn_triton_module_new(session);
    tn_triton_options options = {.debug = debug};
    for (size_t i = 0; i < n; i++)
        types[i] = arguments[i].type;
    tn_status status = tn_triton_add(module, "test.py", 1, text, strlen(text), &unit);
    return status == TN_OK ? tn_triton_compile(module, unit, "k", types, n, &options, out) : status;
}

/* Compiles and runs; the caller looks at the memory. No parameter of these tests is a descriptor, so that values are the parameters that are no constants. */
static inline tn_status run_triton(tn_session *session, const char *text, const int64_t grid[3], const given *arguments, size_t n)
{
    tn_triton_kernel kernel;
    tn_tile_arg buffers[32] = {{NULL, 0}};
    given run[32];
    size_t nrun = 0;
    TN_TRY(compile_triton(session, text, arguments, n, true, &kernel));
    for (size_t i = 0; i < n; i++)
        if (arguments[i].type && arguments[i].type[0] != '=' && !strchr(arguments[i].type, '='))
            run[nrun++] = arguments[i];
    assert_int_equal(nrun, kernel.nvalues);
    for (size_t i = 0; i < nrun; i++)
        if (kernel.value[i].buffer >= 0)
            buffers[kernel.value[i].buffer] = (tn_tile_arg){run[i].data, run[i].elements};
    launch l = {&kernel, run, grid};
    return tn_tile_interpret(kernel.kernel, buffers, launch_value, &l);
}

static inline void must_run(const char *text, const int64_t grid[3], const given *arguments, size_t n)
{
    tn_session *session = new_test_session();
    if (run_triton(session, text, grid, arguments, n) != TN_OK) {
        tn_print_diags(session, stderr);
        fprintf(stderr, "%s", text);
        fail_msg("the kernel did not run");
    }
    free_test_session(session);
}
#define RUN(text, x, ...)                                                                                                       \
    do {                                                                                                                        \
        const given given_[] = {__VA_ARGS__};                                                                                   \
        must_run((text), (const int64_t[3]){(x), 1, 1}, given_, TN_COUNT(given_));                                              \
    } while (0)

static inline void must_fail(const char *text, const given *arguments, size_t n, const char *expected)
{
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    tn_status status = compile_triton(session, text, arguments, n, true, &kernel);
    const char *found = session->diags.len ? session->diags.at[0].message : "nothing";
    if (status == TN_OK || !strstr(found, expected)) {
        tn_print_diags(session, stderr);
        fail_msg("%s\nexpected: %s\nfound: %s", text, expected, status == TN_OK ? "no error" : found);
    }
    free_test_session(session);
}

#endif
