/* Compiled kernels against tn_loop_interpret, on every machine that runs here: control flow, every kind of access, local buffers, lanes. */
#include "llvm_test.h"

#include "loop/internal.h"

#include <unistd.h>

enum { MOST_BUFFERS = 4, MOST_BYTES = 1 << 14 };

typedef struct testcase {
    tn_session session;
    tn_lfunc *func;
    tn_lbuilder b;
    tn_lvalue *buffer[MOST_BUFFERS];
    size_t nbuffers;
    int64_t sizes[4];
} testcase;

static void start(testcase *t, const char *name)
{
    *t = (testcase){0};
    t->func = tn_lfunc_new(&t->session, name);
    t->b = tn_lbuilder_at_end(t->func, t->func->body);
}

static tn_lvalue *add_buffer(testcase *t, tn_dtype dtype, bool readonly)
{
    char name[2] = {(char)('p' + t->nbuffers), 0};
    return t->buffer[t->nbuffers++] = tn_lfunc_buffer(t->func, name, dtype, readonly, 8);
}

static tn_lvalue *at(tn_lbuilder *b, int64_t value) { return tn_l_index(b, value); }

static tn_lvalue *number(tn_lbuilder *b, tn_dtype dtype, int lanes, double value)
{
    return tn_l_const(b, tn_lvector(dtype, lanes), tn_number_from_double(dtype, value));
}

/* Bytes that mean small values in every type, so that sums stay apart from one another and floats are mostly normal. */
static void fill(tn_dtype dtype, char *data)
{
    uint64_t state = 42;
    int64_t n = MOST_BYTES * 8 / tn_dtype_bits(dtype);
    for (int64_t i = 0; i < n; i++)
        tn_number_store(dtype, data, i, tn_number_from_int(dtype, (int64_t)(next_random(&state) % 41) - 20));
}

static void *call_kernel(testcase *t, const tn_machine *machine, int level, char *data)
{
    int64_t scratch_bytes;
    tn_jit *jit = compile_and_link(&t->session, &t->func, 1, machine, level);
    void *buffers[MOST_BUFFERS];
    for (size_t i = 0; i < t->nbuffers; i++)
        buffers[i] = data + i * MOST_BYTES;
    assert_true(tn_kernel_scratch(t->func, t->sizes, &scratch_bytes));
    assert_int_equal(scratch_bytes % 64, 0);
    char *scratch = aligned_alloc(64, (size_t)scratch_bytes + 64);
    memset(scratch, 0x5a, (size_t)scratch_bytes + 64);
    kernel_named(jit, t->func->name)(buffers, t->sizes, 0, 1, scratch);
    for (int i = 0; i < 64; i++) /* not a byte beyond what tn_kernel_scratch said */
        assert_int_equal(scratch[scratch_bytes + i], 0x5a);
    free(scratch);
    tn_jit_free(jit);
    return NULL;
}

static void check_machine(testcase *t, const tn_machine *machine, int level, const char *expected)
{
    static char data[MOST_BUFFERS * MOST_BYTES];
    for (size_t i = 0; i < t->nbuffers; i++)
        fill(t->buffer[i]->type.dtype, data + i * MOST_BYTES);
    call_kernel(t, machine, level, data);
    for (size_t i = 0; i < t->nbuffers * MOST_BYTES; i++)
        if (data[i] != expected[i])
            fail_msg("%s level %d: @%s: byte %zu of buffer %zu is %d, not %d", machine->name, level, t->func->name, i % MOST_BYTES,
                     i / MOST_BYTES, data[i], expected[i]);
}

static void finish(testcase *t)
{
    static char expected[MOST_BUFFERS * MOST_BYTES];
    tn_loop_arg args[MOST_BUFFERS];
    const tn_machine *machines[8];
    for (size_t i = 0; i < t->nbuffers; i++) {
        fill(t->buffer[i]->type.dtype, expected + i * MOST_BYTES);
        args[i] = (tn_loop_arg){expected + i * MOST_BYTES, MOST_BYTES * 8 / tn_dtype_bits(t->buffer[i]->type.dtype)};
    }
    tn_status status = tn_loop_verify(t->func, 0);
    if (status == TN_OK)
        status = tn_loop_interpret(t->func, args, t->sizes);
    tn_print_diags(&t->session, stderr);
    assert_int_equal(status, TN_OK);
    size_t n = runnable_machines(machines);
    for (size_t m = 0; m < n && m < 3; m++)
        check_machine(t, machines[m], 2, expected);
    check_machine(t, tn_machine_find(NULL), 0, expected);
    free_session(&t->session);
}

/* ---- control flow -------------------------------------------------------------------------------------------------------- */

/* r[i * 5 + j] = sum over k of p[i * 7 + k] * q[k * 5 + j], the sum in a register; loops with run-time bounds, one of them empty. */
static void nested_loops(void **state)
{
    (void)state;
    testcase t;
    start(&t, "nest");
    add_buffer(&t, TN_F32, true), add_buffer(&t, TN_F32, true), add_buffer(&t, TN_F32, false);
    tn_lvalue *rows = tn_lfunc_index(t.func, "rows"), *depth = tn_lfunc_index(t.func, "depth"), *none = tn_lfunc_index(t.func, "none");
    t.sizes[0] = 9, t.sizes[1] = 7, t.sizes[2] = 0;
    tn_lop *i = tn_l_for(&t.b, "i", at(&t.b, 0), rows, at(&t.b, 2), TN_FOR_SERIAL);
    tn_lbuilder bi = tn_l_in(&t.b, i->region[0]);
    tn_lop *j = tn_l_for(&bi, "j", at(&bi, 0), at(&bi, 5), at(&bi, 1), TN_FOR_SERIAL);
    tn_lbuilder bj = tn_l_in(&bi, j->region[0]);
    tn_lvalue *acc = tn_l_alloc(&bj, "acc", TN_F32, TN_SPACE_REG, 1), *vi = i->region[0]->arg, *vj = j->region[0]->arg;
    tn_l_store(&bj, acc, at(&bj, 0), number(&bj, TN_F32, 1, 0.25), NULL);
    tn_lop *k = tn_l_for(&bj, "k", at(&bj, 0), depth, at(&bj, 1), TN_FOR_SERIAL);
    tn_lbuilder bk = tn_l_in(&bj, k->region[0]);
    tn_lvalue *vk = k->region[0]->arg;
    tn_lvalue *x = tn_l_load(&bk, t.buffer[0], tn_l_fn2(&bk, TN_S_add, tn_l_fn2(&bk, TN_S_mul, vi, depth), vk), 1, NULL, NULL);
    tn_lvalue *y = tn_l_load(&bk, t.buffer[1], tn_l_fn2(&bk, TN_S_add, tn_l_fn2(&bk, TN_S_mul, vk, at(&bk, 5)), vj), 1, NULL, NULL);
    tn_l_store(&bk, acc, at(&bk, 0), tn_l_fn3(&bk, TN_S_fma, x, y, tn_l_load(&bk, acc, at(&bk, 0), 1, NULL, NULL)), NULL);
    tn_lop *never = tn_l_for(&bj, "n", at(&bj, 0), none, at(&bj, 1), TN_FOR_SERIAL);
    tn_lbuilder bn = tn_l_in(&bj, never->region[0]);
    tn_l_store(&bn, acc, at(&bn, 0), number(&bn, TN_F32, 1, 99), NULL);
    tn_l_store(&bj, t.buffer[2], tn_l_fn2(&bj, TN_S_add, tn_l_fn2(&bj, TN_S_mul, vi, at(&bj, 5)), vj),
               tn_l_load(&bj, acc, at(&bj, 0), 1, NULL, NULL), NULL);
    finish(&t);
}

/* q[i] = steps of the 3n + 1 sequence from |p[i]| + 1 to 1; even starts also get r[i] = 1, odd ones 2. */
static void while_and_if(void **state)
{
    (void)state;
    testcase t;
    start(&t, "collatz");
    add_buffer(&t, TN_I32, true), add_buffer(&t, TN_I32, false), add_buffer(&t, TN_I8, false);
    tn_lop *i = tn_l_for(&t.b, "i", at(&t.b, 0), at(&t.b, 100), at(&t.b, 1), TN_FOR_SERIAL);
    tn_lbuilder b = tn_l_in(&t.b, i->region[0]);
    tn_lvalue *n = tn_l_alloc(&b, "n", TN_I32, TN_SPACE_REG, 2), *zero = at(&b, 0), *one = at(&b, 1), *vi = i->region[0]->arg;
    tn_lvalue *first = tn_l_fn2(&b, TN_S_add, tn_l_fn1(&b, TN_S_abs, tn_l_load(&b, t.buffer[0], vi, 1, NULL, NULL)), number(&b, TN_I32, 1, 1));
    tn_l_store(&b, n, zero, first, NULL);
    tn_l_store(&b, n, one, number(&b, TN_I32, 1, 0), NULL);
    tn_lop *loop = tn_l_while(&b);
    tn_lbuilder head = tn_l_in(&b, loop->region[0]), body = tn_l_in(&b, loop->region[1]);
    tn_l_yield(&head, tn_l_fn2(&head, TN_S_ne, tn_l_load(&head, n, zero, 1, NULL, NULL), number(&head, TN_I32, 1, 1)));
    tn_lvalue *now = tn_l_load(&body, n, zero, 1, NULL, NULL);
    tn_lvalue *odd = tn_l_cast(&body, tn_l_fn2(&body, TN_S_and, now, number(&body, TN_I32, 1, 1)), TN_BOOL);
    tn_lop *branch = tn_l_if(&body, odd);
    tn_lbuilder yes = tn_l_in(&body, branch->region[0]), no = tn_l_in(&body, branch->region[1]);
    tn_l_store(&yes, n, zero, tn_l_fn2(&yes, TN_S_add, tn_l_fn2(&yes, TN_S_mul, now, number(&yes, TN_I32, 1, 3)), number(&yes, TN_I32, 1, 1)), NULL);
    tn_l_store(&no, n, zero, tn_l_fn2(&no, TN_S_div, now, number(&no, TN_I32, 1, 2)), NULL);
    tn_l_store(&body, n, one, tn_l_fn2(&body, TN_S_add, tn_l_load(&body, n, one, 1, NULL, NULL), number(&body, TN_I32, 1, 1)), NULL);
    tn_l_store(&b, t.buffer[1], vi, tn_l_load(&b, n, one, 1, NULL, NULL), NULL);
    tn_lop *parity = tn_l_if(&b, tn_l_fn2(&b, TN_S_eq, tn_l_fn2(&b, TN_S_rem, first, number(&b, TN_I32, 1, 2)), number(&b, TN_I32, 1, 0)));
    tn_lbuilder even = tn_l_in(&b, parity->region[0]), other = tn_l_in(&b, parity->region[1]);
    tn_l_store(&even, t.buffer[2], vi, number(&even, TN_I8, 1, 1), NULL);
    tn_l_store(&other, t.buffer[2], vi, number(&other, TN_I8, 1, 2), NULL);
    finish(&t);
}

/* ---- accesses -------------------------------------------------------------------------------------------------------------- */

/* One way through memory for every type: from offset `shift`, `lanes` at a time, under masks from the values of a bool buffer. */
static void access_case(tn_dtype dtype, int lanes, int64_t shift, bool masked)
{
    testcase t;
    start(&t, "access");
    add_buffer(&t, dtype, true), add_buffer(&t, TN_BOOL, true), add_buffer(&t, dtype, false);
    tn_lop *i = tn_l_for(&t.b, "i", at(&t.b, 0), at(&t.b, 4 * lanes), at(&t.b, lanes), TN_FOR_SERIAL);
    tn_lbuilder b = tn_l_in(&t.b, i->region[0]);
    tn_lvalue *vi = i->region[0]->arg, *from = tn_l_fn2(&b, TN_S_add, vi, at(&b, shift)), *mask = NULL, *other = NULL;
    if (masked)
        mask = tn_l_load(&b, t.buffer[1], vi, lanes, NULL, NULL), other = number(&b, dtype, lanes, 1);
    tn_lvalue *x = tn_l_load(&b, t.buffer[0], from, lanes, mask, other);
    tn_l_store(&b, t.buffer[2], from, x, NULL);
    tn_l_store(&b, t.buffer[2], tn_l_fn2(&b, TN_S_add, from, at(&b, 4 * lanes + 3)), x, mask);
    finish(&t);
}

static void gather_case(tn_dtype dtype, tn_dtype index, int lanes, bool masked)
{
    testcase t;
    start(&t, "gather");
    add_buffer(&t, dtype, true), add_buffer(&t, TN_BOOL, true), add_buffer(&t, dtype, false);
    tn_lvalue *mask = NULL, *other = NULL, *lane = tn_l_iota(&t.b, index, lanes);
    tn_lvalue *offsets = tn_l_fn2(&t.b, TN_S_mul, lane, number(&t.b, index, lanes, 7));
    if (masked)
        mask = tn_l_load(&t.b, t.buffer[1], at(&t.b, 0), lanes, NULL, NULL), other = number(&t.b, dtype, lanes, 1);
    tn_lvalue *x = tn_l_gather(&t.b, t.buffer[0], offsets, mask, other);
    tn_l_store(&t.b, t.buffer[2], at(&t.b, 1), x, NULL);
    /* Two lanes to each place: the later one stays. */
    tn_lvalue *half = tn_l_fn2(&t.b, TN_S_div, lane, number(&t.b, index, lanes, 2));
    tn_l_scatter(&t.b, t.buffer[2], tn_l_fn2(&t.b, TN_S_add, half, number(&t.b, index, lanes, 64)), x, mask);
    finish(&t);
}

static const tn_dtype stored[] = {TN_BOOL, TN_I4, TN_U4, TN_I8, TN_F8E5M2, TN_U16, TN_F16, TN_BF16, TN_I32, TN_F32, TN_I64, TN_F64};

static void loads_and_stores(void **state)
{
    (void)state;
    static const int lanes[] = {1, 3, 8, 16};
    for (size_t d = 0; d < TN_COUNT(stored); d++)
        for (size_t l = 0; l < TN_COUNT(lanes); l++)
            for (int masked = 0; masked < 2; masked++) {
                access_case(stored[d], lanes[l], masked, masked);
                if (tn_dtype_bits(stored[d]) < 8) /* from odd and even places */
                    access_case(stored[d], lanes[l], 1 - masked, masked);
            }
}

static void gathers_and_scatters(void **state)
{
    (void)state;
    for (size_t d = 0; d < TN_COUNT(stored); d++)
        for (int masked = 0; masked < 2; masked++)
            gather_case(stored[d], d % 2 ? TN_I64 : TN_I32, 16, masked);
}

static void atomics(void **state)
{
    (void)state;
    static const struct {
        tn_scalar fn;
        tn_dtype dtype;
    } cases[] = {{TN_S_add, TN_I32}, {TN_S_max, TN_I64}, {TN_S_max, TN_U8}, {TN_S_mul, TN_I16}, {TN_S_add, TN_F32},
                 {TN_S_min, TN_F64}, {TN_S_add, TN_BF16}, {TN_S_or, TN_BOOL}, {TN_S_max, TN_F16}, {TN_SCALAR_NONE, TN_F32},
                 {TN_SCALAR_NONE, TN_BOOL}, {TN_SCALAR_NONE, TN_I64}, {TN_SCALAR_NONE, TN_F16}};
    for (size_t c = 0; c < TN_COUNT(cases); c++) {
        testcase t;
        tn_dtype dtype = cases[c].dtype;
        start(&t, "atomics");
        add_buffer(&t, dtype, true), add_buffer(&t, TN_BOOL, true), add_buffer(&t, dtype, false), add_buffer(&t, dtype, false);
        tn_lop *i = tn_l_for(&t.b, "i", at(&t.b, 0), at(&t.b, 60), at(&t.b, 1), TN_FOR_SERIAL);
        tn_lbuilder b = tn_l_in(&t.b, i->region[0]);
        tn_lvalue *vi = i->region[0]->arg, *slot = tn_l_fn2(&b, TN_S_rem, vi, at(&b, 3));
        tn_lvalue *x = tn_l_load(&b, t.buffer[0], vi, 1, NULL, NULL), *mask = tn_l_load(&b, t.buffer[1], vi, 1, NULL, NULL);
        tn_l_store(&b, t.buffer[3], vi, tn_l_atomic(&b, cases[c].fn, t.buffer[2], slot, x, NULL), NULL);
        tn_l_store(&b, t.buffer[3], tn_l_fn2(&b, TN_S_add, vi, at(&b, 60)), tn_l_atomic(&b, cases[c].fn, t.buffer[2], slot, x, mask), NULL);
        finish(&t);
    }
}

/* Memory changes where it holds the bits that are expected: -0 is not 0. */
static void compare_and_swap(void **state)
{
    (void)state;
    static const tn_dtype dtypes[] = {TN_I32, TN_I64, TN_U8, TN_F32, TN_F16, TN_F64, TN_BOOL};
    for (size_t d = 0; d < TN_COUNT(dtypes); d++) {
        testcase t;
        tn_dtype dtype = dtypes[d];
        start(&t, "swaps");
        add_buffer(&t, dtype, true), add_buffer(&t, TN_BOOL, true), add_buffer(&t, dtype, false), add_buffer(&t, dtype, false);
        tn_lop *i = tn_l_for(&t.b, "i", at(&t.b, 0), at(&t.b, 60), at(&t.b, 1), TN_FOR_SERIAL);
        tn_lbuilder b = tn_l_in(&t.b, i->region[0]);
        tn_lvalue *vi = i->region[0]->arg, *same = tn_l_load(&b, t.buffer[2], vi, 1, NULL, NULL), *zero = tn_l_fn2(&b, TN_S_eq, same, number(&b, dtype, 1, 0));
        tn_lvalue *x = tn_l_load(&b, t.buffer[0], tn_l_fn2(&b, TN_S_add, vi, at(&b, 7)), 1, NULL, NULL), *mask = tn_l_load(&b, t.buffer[1], vi, 1, NULL, NULL);
        tn_lvalue *expected = tn_l_fn3(&b, TN_S_select, zero, number(&b, dtype, 1, -0.0), same);
        tn_lvalue *often = tn_l_fn3(&b, TN_S_select, mask, expected, x);
        tn_l_store(&b, t.buffer[3], vi, tn_l_cas(&b, t.buffer[2], vi, often, x, NULL), NULL);
        tn_l_store(&b, t.buffer[3], tn_l_fn2(&b, TN_S_add, vi, at(&b, 60)), tn_l_cas(&b, t.buffer[2], tn_l_fn2(&b, TN_S_add, vi, at(&b, 1)), often, x, mask), NULL);
        finish(&t);
    }
}

/* Elements by their addresses: one, a vector, lanes of a vector of addresses, under masks; every way is the buffer's own memory. */
static void absolute_addresses(void **state)
{
    (void)state;
    static const tn_dtype dtypes[] = {TN_F32, TN_I64, TN_U8, TN_F16};
    for (size_t d = 0; d < TN_COUNT(dtypes); d++) {
        testcase t;
        tn_dtype dtype = dtypes[d];
        start(&t, "addresses");
        add_buffer(&t, dtype, false), add_buffer(&t, dtype, false);
        t.func->overlap = true;
        tn_lbuilder *b = &t.b;
        tn_lvalue *memory = tn_l_memory(b, dtype), *size = at(b, tn_dtype_bits(dtype) / 8);
        tn_lvalue *from = tn_l_fn2(b, TN_S_div, tn_l_address(b, t.buffer[0]), size), *to = tn_l_fn2(b, TN_S_div, tn_l_address(b, t.buffer[1]), size);
        tn_lvalue *four = tn_l_load(b, memory, tn_l_fn2(b, TN_S_add, from, at(b, 5)), 4, NULL, NULL);
        tn_l_store(b, memory, to, four, NULL);
        tn_l_store(b, t.buffer[1], at(b, 4), tn_l_load(b, memory, tn_l_fn2(b, TN_S_add, to, at(b, 1)), 1, NULL, NULL), NULL);
        tn_lvalue *lanes = tn_l_fn2(b, TN_S_mul, tn_l_iota(b, TN_I64, 8), tn_l_splat(b, at(b, 3), 8));
        tn_lvalue *mask = tn_l_fn2(b, TN_S_lt, tn_l_iota(b, TN_I32, 8), number(b, TN_I32, 8, 6));
        tn_lvalue *eight = tn_l_gather(b, memory, tn_l_fn2(b, TN_S_add, lanes, tn_l_splat(b, from, 8)), mask, NULL);
        tn_l_scatter(b, memory, tn_l_fn2(b, TN_S_add, lanes, tn_l_splat(b, tn_l_fn2(b, TN_S_add, to, at(b, 40)), 8)), eight, mask);
        tn_l_store(b, t.buffer[1], at(b, 5), tn_l_load(b, memory, tn_l_fn2(b, TN_S_add, to, at(b, 43)), 1, NULL, NULL), NULL);
        tn_l_store(b, t.buffer[1], at(b, 6), tn_l_atomic(b, TN_S_add, memory, to, tn_l_load(b, t.buffer[1], at(b, 1), 1, NULL, NULL), NULL), NULL);
        finish(&t);
    }
}

static const char *const printed = "{ 100% -3 250 18446744073709551615 1 -0.500000 3.000000 | 0xfffffffd 0xfa 0x3e00 \"\n\n";

static void print_lines(testcase *t)
{
    tn_lbuilder *b = &t->b;
    tn_lvalue *values[] = {number(b, TN_I32, 1, -3), number(b, TN_U8, 1, 250), tn_l_const(b, tn_lscalar(TN_U64), (tn_number){.u = UINT64_MAX}),
                           number(b, TN_BOOL, 1, 1), number(b, TN_F32, 1, -0.5), number(b, TN_F16, 1, 3), number(b, TN_I32, 1, -3), number(b, TN_U8, 1, 250),
                           number(b, TN_F16, 1, 1.5)};
    tn_l_print(b, "{{ 100% {} {} {} {} {} {} | {x} {x} {x} \"", values, (int)TN_COUNT(values));
    tn_l_print(b, "", NULL, 0);
}

/* The same lines from compiled code and from the definition. */
static void print_values(void **state)
{
    (void)state;
    for (int compiled = 0; compiled < 2; compiled++) {
        static char data[MOST_BUFFERS * MOST_BYTES];
        char text[512] = "";
        testcase t;
        start(&t, "prints");
        print_lines(&t);
        fflush(stdout);
        FILE *file = tmpfile();
        int saved = dup(STDOUT_FILENO);
        dup2(fileno(file), STDOUT_FILENO);
        if (compiled)
            call_kernel(&t, tn_machine_find(NULL), 2, data);
        else
            assert_int_equal(tn_loop_interpret(t.func, NULL, NULL), TN_OK);
        fflush(stdout);
        dup2(saved, STDOUT_FILENO);
        close(saved);
        rewind(file);
        assert_true(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        assert_string_equal(text, printed);
        free_session(&t.session);
    }
}

/* ---- local buffers ---------------------------------------------------------------------------------------------------------- */

static void copy_through(tn_lbuilder *b, tn_lvalue *from, tn_lvalue *local, tn_lvalue *to, int64_t to_offset, int64_t n)
{
    tn_lop *in = tn_l_for(b, "i", at(b, 0), at(b, n), at(b, 1), TN_FOR_SERIAL);
    tn_lbuilder bi = tn_l_in(b, in->region[0]);
    tn_l_store(&bi, local, in->region[0]->arg, tn_l_load(&bi, from, in->region[0]->arg, 1, NULL, NULL), NULL);
    tn_lop *out = tn_l_for(b, "o", at(b, 0), at(b, n), at(b, 1), TN_FOR_SERIAL);
    tn_lbuilder bo = tn_l_in(b, out->region[0]);
    tn_lvalue *o = out->region[0]->arg, *back = tn_l_fn2(&bo, TN_S_sub, at(&bo, n - 1), o);
    tn_l_store(&bo, to, tn_l_fn2(&bo, TN_S_add, o, at(&bo, to_offset)), tn_l_load(&bo, local, back, 1, NULL, NULL), NULL);
}

/* A buffer on the stack, two in scratch (one with a size from the parameters) and two in blocks side by side, which share their place. */
static void local_buffers(void **state)
{
    (void)state;
    testcase t;
    int64_t bytes;
    start(&t, "locals");
    add_buffer(&t, TN_I16, true), add_buffer(&t, TN_I16, false);
    tn_lvalue *n = tn_lfunc_index(t.func, "n");
    t.sizes[0] = 70;
    tn_lvalue *small = tn_l_alloc(&t.b, "small", TN_I16, TN_SPACE_LOCAL, 100);
    tn_lvalue *large = tn_l_alloc(&t.b, "large", TN_I16, TN_SPACE_LOCAL, 5001);
    tn_lvalue *size = tn_l_fn2(&t.b, TN_S_add, tn_l_fn2(&t.b, TN_S_mul, n, at(&t.b, 3)), at(&t.b, 1));
    tn_lvalue *sized = tn_l_alloc_sized(&t.b, "sized", TN_I16, size);
    copy_through(&t.b, t.buffer[0], small, t.buffer[1], 0, 100);
    copy_through(&t.b, t.buffer[0], large, t.buffer[1], 100, 100);
    copy_through(&t.b, t.buffer[0], sized, t.buffer[1], 200, 211);
    for (int i = 0; i < 2; i++) {
        tn_lop *loop = tn_l_for(&t.b, "l", at(&t.b, 0), at(&t.b, 2), at(&t.b, 1), TN_FOR_SERIAL);
        tn_lbuilder b = tn_l_in(&t.b, loop->region[0]);
        tn_lvalue *inner = tn_l_alloc_sized(&b, "inner", TN_I16, tn_l_fn2(&b, TN_S_mul, n, at(&b, 10)));
        copy_through(&b, t.buffer[0], inner, t.buffer[1], 500 + 100 * i, 100);
    }
    assert_true(tn_kernel_scratch(t.func, t.sizes, &bytes));
    assert_int_equal(bytes, 10048 + 448 + 1408); /* 5001, 211 and 700 elements of two bytes, each rounded up to 64 */
    assert_false(tn_kernel_scratch(t.func, (int64_t[]){INT64_MAX / 4}, &bytes));
    finish(&t);
}

/* A `reg` buffer whose elements are vectors, as widening leaves it; bool accumulators; an index that is no constant. */
static void register_buffers(void **state)
{
    (void)state;
    testcase t;
    start(&t, "registers");
    add_buffer(&t, TN_F32, true), add_buffer(&t, TN_F32, false), add_buffer(&t, TN_BOOL, false);
    tn_lvalue *acc = tn_l_alloc(&t.b, "acc", TN_F32, TN_SPACE_REG, 3), *any = tn_l_alloc(&t.b, "any", TN_BOOL, TN_SPACE_REG, 8);
    acc->type.lanes = 8;
    for (int i = 0; i < 3; i++)
        tn_l_store(&t.b, acc, at(&t.b, i), number(&t.b, TN_F32, 8, i), NULL);
    tn_l_store(&t.b, any, at(&t.b, 0), number(&t.b, TN_BOOL, 8, 0), NULL);
    tn_lop *loop = tn_l_for(&t.b, "i", at(&t.b, 0), at(&t.b, 9), at(&t.b, 1), TN_FOR_SERIAL);
    tn_lbuilder b = tn_l_in(&t.b, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg, *slot = tn_l_fn2(&b, TN_S_rem, i, at(&b, 3));
    tn_lvalue *x = tn_l_load(&b, t.buffer[0], tn_l_fn2(&b, TN_S_mul, i, at(&b, 8)), 8, NULL, NULL);
    tn_l_store(&b, acc, slot, tn_l_fn2(&b, TN_S_add, tn_l_load(&b, acc, slot, 8, NULL, NULL), x), NULL);
    tn_lvalue *seen = tn_l_load(&b, any, at(&b, 0), 8, NULL, NULL), *large = tn_l_fn2(&b, TN_S_gt, x, number(&b, TN_F32, 8, 17));
    tn_l_store(&b, any, at(&b, 0), tn_l_fn2(&b, TN_S_or, seen, large), NULL);
    for (int k = 0; k < 3; k++)
        tn_l_store(&t.b, t.buffer[1], at(&t.b, 8 * k), tn_l_load(&t.b, acc, at(&t.b, k), 8, NULL, NULL), NULL);
    tn_l_store(&t.b, t.buffer[2], at(&t.b, 0), tn_l_load(&t.b, any, at(&t.b, 0), 8, NULL, NULL), NULL);
    finish(&t);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------------------ */

static void lanes(void **state)
{
    (void)state;
    testcase t;
    start(&t, "lanes");
    add_buffer(&t, TN_F32, true), add_buffer(&t, TN_F32, false), add_buffer(&t, TN_U8, false), add_buffer(&t, TN_I4, false);
    tn_lbuilder *b = &t.b;
    tn_lvalue *x = tn_l_load(b, t.buffer[0], at(b, 0), 8, NULL, NULL), *y = tn_l_load(b, t.buffer[0], at(b, 8), 8, NULL, NULL);
    static const int order[] = {15, 0, 7, 8, 3, 3, 12, 1, 4, 10, 2, 6};
    tn_l_store(b, t.buffer[1], at(b, 0), tn_l_shuffle(b, x, y, order, 12), NULL);
    tn_l_store(b, t.buffer[1], at(b, 12), tn_l_hreduce(b, TN_S_add, x), NULL);
    tn_l_store(b, t.buffer[1], at(b, 13), tn_l_hreduce(b, TN_S_max, y), NULL);
    tn_lvalue *lane = tn_l_load(b, t.buffer[0], at(b, 20), 1, NULL, NULL);
    lane = tn_l_fn2(b, TN_S_and, tn_l_cast(b, lane, TN_I64), at(b, 7)); /* not a constant */
    tn_l_store(b, t.buffer[1], at(b, 14), tn_l_extract(b, y, lane), NULL);
    tn_l_store(b, t.buffer[1], at(b, 16), tn_l_insert(b, x, tn_l_extract(b, y, at(b, 2)), lane), NULL);
    tn_l_store(b, t.buffer[1], at(b, 24), tn_l_cast(b, tn_l_iota(b, TN_U8, 16), TN_F32), NULL);
    tn_l_store(b, t.buffer[2], at(b, 0), tn_l_bitcast(b, x, tn_lvector(TN_U8, 32)), NULL);
    tn_lvalue *nibbles = tn_l_bitcast(b, x, tn_lvector(TN_I4, 64));
    tn_l_store(b, t.buffer[3], at(b, 1), nibbles, NULL);
    tn_lvalue *positive = tn_l_fn2(b, TN_S_gt, x, number(b, TN_F32, 8, 0));
    tn_l_store(b, t.buffer[2], at(b, 40), tn_l_bitcast(b, positive, tn_lvector(TN_U8, 8)), NULL);
    tn_l_store(b, t.buffer[2], at(b, 48), tn_l_cast(b, tn_l_hreduce(b, TN_S_and, positive), TN_U8), NULL);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_loops),         cmocka_unit_test(while_and_if), cmocka_unit_test(loads_and_stores),
        cmocka_unit_test(gathers_and_scatters), cmocka_unit_test(atomics),      cmocka_unit_test(local_buffers),
        cmocka_unit_test(register_buffers),     cmocka_unit_test(lanes),        cmocka_unit_test(compare_and_swap),
        cmocka_unit_test(absolute_addresses),   cmocka_unit_test(print_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
