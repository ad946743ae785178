/* The emitter's scalar functions: every row that a type accepts, one lane and sixteen, on every machine that runs here, against
 * tn_scalar_eval on special values and random bits. */
#include "llvm_test.h"

#include <math.h>

enum { COUNT = 2048, WIDE = 16 };

typedef struct inputs {
    tn_dtype dtype;
    char data[3][COUNT * 16];
    char masks[COUNT];
} inputs;

static const tn_dtype dtypes[] = {TN_BOOL, TN_I4, TN_U4, TN_I8,  TN_U8,   TN_I16, TN_U16, TN_I32,
                                  TN_U32,  TN_I64, TN_U64, TN_F16, TN_BF16, TN_F32, TN_F64, TN_C64, TN_C128};

static const double special_floats[] = {0.0,  -0.0, 1.0,   -1.0,   0.5,    -0.5,    1.5,     2.5,        -2.5,     2,       3,          -3,     0.1,
                                        1e-3, 100,  1e4,   6e-8,   -6e-8,  6.1e-5,  65504,   -65504,     65519.9,  1e-38,   -1e-40,     1e-45,  3.4e38,
                                        88.7, -104, 709.5, 1e-308, 1.7e308, 5e-324, 16777216, 8388607.5, -8388607.5, 0.99999994, 1.0000001, 2147483648.0};

static tn_number special_float(size_t i)
{
    if (i < TN_COUNT(special_floats))
        return (tn_number){.f = special_floats[i]};
    return (tn_number){.f = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : NAN};
}

static tn_number special_complex(size_t i)
{
    return (tn_number){.f = special_float(i % 7 * 6 % 40).f, .im = special_float(i / 7 * 5 % 40).f};
}

static tn_number special_integer(tn_dtype dtype, size_t i)
{
    static const int64_t values[] = {0, 1, 2, 3, -1, -2, 7, 8, 15, 16, 31, 32, 63, 64, 100, -100};
    if (i < TN_COUNT(values))
        return (tn_number){.i = values[i]};
    return i % 2 ? tn_number_lowest(dtype) : tn_number_highest(dtype);
}

/* All pairs of special values first, then random mixes of special values and bits. */
static void fill(inputs *in, tn_dtype dtype)
{
    uint64_t state = 88172645463325252u + dtype;
    size_t specials = tn_is_complex(dtype) ? 49 : tn_is_float(dtype) ? TN_COUNT(special_floats) + 3 : 18;
    in->dtype = dtype;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t bits = next_random(&state);
            size_t pick = i >= specials * specials || k == 2 ? bits % specials : k == 0 ? i % specials : i / specials;
            tn_number number = tn_is_complex(dtype) ? special_complex(pick) : tn_is_float(dtype) ? special_float(pick) : special_integer(dtype, pick);
            if ((i >= specials * specials || k == 2) && bits >> 62 == 0) {
                uint64_t random[2] = {next_random(&state), next_random(&state)};
                number = tn_number_load(dtype, random, 0);
            }
            tn_number_store(dtype, in->data[k], (int64_t)i, number);
        }
    for (size_t i = 0; i < COUNT; i++)
        in->masks[i] = next_random(&state) >> 63 != 0;
}

/* out[i] = fn(x[i], y[i], z[i]); select takes its condition from the masks. */
static tn_lfunc *fn_kernel(tn_session *session, tn_scalar fn, tn_dtype dtype, int lanes)
{
    tn_lvalue *buffers[4], *args[3];
    tn_lfunc *func = tn_lfunc_new(session, tn_format(&session->arena, "kernel_%s", tn_scalar_name(fn))); /* a plain `exp` is the C library's */
    for (int k = 0; k < 3; k++)
        buffers[k] = tn_lfunc_buffer(func, (const char *[]){"x", "y", "z"}[k], k == 0 && fn == TN_S_select ? TN_BOOL : dtype, true, 64);
    buffers[3] = tn_lfunc_buffer(func, "out", tn_scalar_result(fn, dtype), false, 64);
    tn_lvalue *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lop *loop = tn_l_for(&b, "i", begin, end, tn_l_index(&b, lanes), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    for (int k = 0; k < tn_scalar_arity(fn); k++)
        args[k] = tn_l_load(&in, buffers[k], loop->region[0]->arg, lanes, NULL, NULL);
    tn_l_store(&in, buffers[3], loop->region[0]->arg, tn_l_fn(&in, fn, args, tn_scalar_arity(fn)), NULL);
    return func;
}

/* Rows that the C library computes: its own error, and one more rounding for what is computed in f32. */
static double allowed_ulps(tn_scalar fn, tn_dtype dtype)
{
    static const tn_scalar library[] = {TN_S_cbrt, TN_S_exp,   TN_S_exp2,  TN_S_expm1, TN_S_log,   TN_S_log2,  TN_S_log1p, TN_S_logistic,
                                        TN_S_sin,  TN_S_cos,   TN_S_tan,   TN_S_tanh,  TN_S_erf,   TN_S_asin,  TN_S_acos,  TN_S_atan,
                                        TN_S_sinh, TN_S_cosh,  TN_S_asinh, TN_S_acosh, TN_S_atanh, TN_S_pow,   TN_S_atan2, TN_S_rsqrt};
    for (size_t i = 0; i < TN_COUNT(library) && tn_is_float(dtype); i++)
        if (library[i] == fn)
            return dtype == TN_F64 ? 2 : tn_dtype_bits(dtype) == 32 ? 4 : 1;
    return 0;
}

/* Complex: each part right, or wrong by little of the whole; what division and the C library do with infinities and NaN is their own. */
static bool is_close_complex(tn_dtype dtype, tn_number got, tn_number expected)
{
    double epsilon = dtype == TN_C64 ? 0x1p-22 : 0x1p-48, size = hypot(expected.f, expected.im);
    if (!isfinite(expected.f) || !isfinite(expected.im))
        return !isfinite(got.f) || !isfinite(got.im) || hypot(got.f, got.im) > 1e300; /* or overflowed on the way */
    return hypot(got.f - expected.f, got.im - expected.im) <= epsilon * size + (dtype == TN_C64 ? 0x1p-149 : 0x1p-1070);
}

static bool is_close(tn_scalar fn, tn_dtype dtype, tn_number got, tn_number expected)
{
    tn_dtype result = tn_scalar_result(fn, dtype);
    if (tn_number_same(result, got, expected))
        return true;
    if (tn_is_complex(result))
        return is_close_complex(result, got, expected);
    double allowed = allowed_ulps(fn, dtype);
    return allowed > 0 && isfinite(got.f) && isfinite(expected.f) && ulps_apart(result, got.f, expected.f) <= allowed;
}

static void check_fn(const tn_machine *machine, tn_kernel_fn kernel, tn_scalar fn, inputs *in, int lanes)
{
    static char out[COUNT * 16];
    tn_dtype result = tn_scalar_result(fn, in->dtype);
    bool selects = fn == TN_S_select;
    memset(out, 0, sizeof out);
    kernel((void *[]){selects ? in->masks : in->data[0], in->data[1], in->data[2], out}, NULL, 0, COUNT, NULL);
    for (int64_t i = 0; i < COUNT; i++) {
        tn_number args[3], got = tn_number_load(result, out, i);
        args[0] = selects ? tn_number_load(TN_BOOL, in->masks, i) : tn_number_load(in->dtype, in->data[0], i);
        for (int k = 1; k < 3; k++)
            args[k] = tn_number_load(in->dtype, in->data[k], i);
        tn_number expected = tn_scalar_eval(fn, in->dtype, args);
        if (is_close(fn, in->dtype, got, expected))
            continue;
        tn_arena arena = {0};
        tn_text text = {.arena = &arena};
        for (int k = 0; k < tn_scalar_arity(fn); k++)
            tn_text_number(&text, selects && k == 0 ? TN_BOOL : in->dtype, args[k]), tn_text_add(&text, " ");
        tn_text_add(&text, "-> got "), tn_text_number(&text, result, got);
        tn_text_add(&text, ", expected "), tn_text_number(&text, result, expected);
        fail_msg("%s: %s %sx%d: %s", machine->name, tn_scalar_name(fn), tn_dtype_text(in->dtype), lanes, text.at);
    }
}

static void check_dtype(const tn_machine *machine, inputs *in, int lanes, int level)
{
    tn_session session = {0};
    tn_lfunc *funcs[TN_SCALAR_COUNT];
    tn_scalar fns[TN_SCALAR_COUNT];
    size_t n = 0;
    for (tn_scalar fn = TN_SCALAR_NONE + 1; fn < TN_SCALAR_COUNT; fn++)
        if (tn_scalar_accepts(fn, in->dtype))
            fns[n] = fn, funcs[n++] = fn_kernel(&session, fn, in->dtype, lanes);
    tn_jit *jit = compile_and_link(&session, funcs, n, machine, level);
    for (size_t i = 0; i < n; i++)
        check_fn(machine, kernel_named(jit, funcs[i]->name), fns[i], in, lanes);
    tn_jit_free(jit);
    free_session(&session);
}

static void all_rows(void **state)
{
    (void)state;
    const tn_machine *machines[8];
    size_t n = runnable_machines(machines);
    static inputs in;
    assert_true(n > 0);
    for (size_t d = 0; d < TN_COUNT(dtypes); d++) {
        fill(&in, dtypes[d]);
        for (size_t m = 0; m < n && m < 3; m++) { /* rows beyond the third differ in special instructions only */
            check_dtype(machines[m], &in, 1, 1);
            if (!tn_is_complex(dtypes[d]))
                check_dtype(machines[m], &in, WIDE, 2);
        }
    }
}

static void unoptimized(void **state)
{
    (void)state;
    static inputs in;
    fill(&in, TN_F32);
    check_dtype(tn_machine_find(NULL), &in, WIDE, 0);
    fill(&in, TN_I32);
    check_dtype(tn_machine_find("baseline"), &in, WIDE, 0);
}

static void refusals(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_blob blob;
    tn_lfunc *func = fn_kernel(&session, TN_S_exp, TN_F8E4M3, 1);
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("baseline"), TN_EMIT_LLVM, 1, &blob), TN_UNSUPPORTED);
    assert_string_equal(session.diags.at[0].message, "kernel @kernel_exp: machine 'baseline' can't do cast from f8e4m3fn to f32: the pass `expand` rewrites it; run it before this stage");
    func = fn_kernel(&session, TN_S_add, TN_C64, 4);
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("baseline"), TN_EMIT_LLVM, 1, &blob), TN_UNSUPPORTED);
    assert_int_equal(session.errors, 2);
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_rows), cmocka_unit_test(unoptimized), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
