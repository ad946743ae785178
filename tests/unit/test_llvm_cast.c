/* The emitter's conversions against tn_number_convert: every pattern of the types of 16 bits or fewer, and for wider ones special values, ties
 * and random bits; one lane and sixteen, on every machine that runs here. */
#include "llvm_test.h"

#include <math.h>

enum { COUNT = 65536, WIDE = 16 };

static const tn_dtype dtypes[] = {TN_BOOL, TN_I4, TN_U4, TN_I8,  TN_U8,   TN_I16, TN_U16, TN_I32,
                                  TN_U32,  TN_I64, TN_U64, TN_F16, TN_BF16, TN_F32, TN_F64, TN_C64, TN_C128};

/* A float near a value of f16 or bf16, or near the middle of two: where roundings go wrong. */
static double near_tie(uint64_t bits)
{
    uint64_t code = bits & 0xffff;
    tn_dtype narrow = bits >> 16 & 1 ? TN_F16 : TN_BF16;
    double low = tn_number_load(narrow, &code, 0).f;
    code++;
    double high = tn_number_load(narrow, &code, 0).f, middle = bits >> 17 & 1 ? low : low / 2 + high / 2;
    switch (bits >> 18 & 3) {
    case 0:
        return nextafter(middle, INFINITY);
    case 1:
        return nextafter(middle, -INFINITY);
    case 2:
        return nextafterf((float)middle, INFINITY);
    default:
        return middle;
    }
}

/* An integer with its set bits far apart, so that rounding has a tie and something below it. */
static uint64_t sparse_integer(uint64_t bits)
{
    uint64_t top = bits & 63, tie = bits >> 6 & 63, last = bits >> 12 & 63;
    uint64_t value = UINT64_C(1) << top | UINT64_C(1) << tie | (bits >> 18 & 1 ? UINT64_C(1) << last : 0);
    return bits >> 19 & 1 ? -value : value;
}

static void fill(tn_dtype dtype, char *data)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < COUNT; i++) {
        uint64_t bits = next_random(&state);
        tn_number number = {.u = bits};
        if (dtype == TN_BOOL)
            number.u = (uint64_t)i & 1;
        else if (tn_dtype_bits(dtype) <= 16)
            bits = (uint64_t)i, number = dtype == TN_I4 || dtype == TN_U4 ? (tn_number){.i = i} : tn_number_load(dtype, &bits, 0);
        else if (tn_is_complex(dtype))
            number = (tn_number){.f = near_tie(bits), .im = near_tie(bits * 3)};
        else if (tn_is_integer(dtype) && i % 2)
            number.u = sparse_integer(bits);
        else if (tn_is_float(dtype))
            number = i % 4 == 0 ? tn_number_load(dtype, &bits, 0) : i % 4 == 1 ? (tn_number){.f = (double)(int64_t)sparse_integer(bits)} : (tn_number){.f = near_tie(bits)};
        tn_number_store(dtype, data, i, number);
    }
}

static tn_lfunc *cast_kernel(tn_session *session, tn_dtype from, tn_dtype to, int lanes)
{
    tn_lfunc *func = tn_lfunc_new(session, tn_format(&session->arena, "%s_%s", tn_dtype_text(from), tn_dtype_text(to)));
    tn_lvalue *x = tn_lfunc_buffer(func, "x", from, true, 64), *y = tn_lfunc_buffer(func, "y", to, false, 64);
    tn_lvalue *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lop *loop = tn_l_for(&b, "i", begin, end, tn_l_index(&b, lanes), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg;
    tn_l_store(&in, y, i, tn_l_cast(&in, tn_l_load(&in, x, i, lanes, NULL, NULL), to), NULL);
    return func;
}

static void check_cast(const tn_machine *machine, tn_kernel_fn kernel, tn_dtype from, tn_dtype to, const char *in, int lanes)
{
    static char out[COUNT * 16];
    memset(out, 0, sizeof out);
    kernel((void *[]){(void *)in, out}, NULL, 0, COUNT, NULL);
    for (int64_t i = 0; i < COUNT; i++) {
        tn_number x = tn_number_load(from, in, i), got = tn_number_load(to, out, i), expected = tn_number_convert(x, from, to);
        if (tn_number_same(to, got, expected))
            continue;
        tn_arena arena = {0};
        tn_text text = {.arena = &arena};
        tn_text_number(&text, from, x);
        tn_text_add(&text, " -> got "), tn_text_number(&text, to, got);
        tn_text_add(&text, ", expected "), tn_text_number(&text, to, expected);
        fail_msg("%s: %s to %s x%d: %s", machine->name, tn_dtype_text(from), tn_dtype_text(to), lanes, text.at);
    }
}

static void check_from(const tn_machine *machine, tn_dtype from, const char *in, int lanes)
{
    tn_session session = {0};
    tn_lfunc *funcs[TN_COUNT(dtypes)];
    size_t n = lanes == 1 ? TN_COUNT(dtypes) : TN_COUNT(dtypes) - 2; /* complex numbers come one at a time */
    for (size_t i = 0; i < n; i++)
        funcs[i] = cast_kernel(&session, from, dtypes[i], lanes);
    tn_jit *jit = compile_and_link(&session, funcs, n, machine, 2);
    for (size_t i = 0; i < n; i++)
        check_cast(machine, kernel_named(jit, funcs[i]->name), from, dtypes[i], in, lanes);
    tn_jit_free(jit);
    free_session(&session);
}

static void all_pairs(void **state)
{
    (void)state;
    static char in[COUNT * 16];
    const tn_machine *machines[8];
    size_t n = runnable_machines(machines);
    for (size_t d = 0; d < TN_COUNT(dtypes); d++) {
        fill(dtypes[d], in);
        for (size_t m = 0; m < n && m < 3; m++) { /* rows beyond the third differ in special instructions only */
            check_from(machines[m], dtypes[d], in, 1);
            if (!tn_is_complex(dtypes[d]))
                check_from(machines[m], dtypes[d], in, WIDE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
