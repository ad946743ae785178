/* tile-simplify on what front ends leave behind: random kernels of loops, branches, pointers and absent lanes do the same before and after; and it takes
 * time by the number of operations. TILE_RUNS and TILE_SEED as in test_tile_random.c. */
#include "tile_test.h"

enum { LANES = 8, ELEMENTS = 32, POOL = 40, CARRIED = 4 };

typedef struct generator {
    tn_kernel *kernel;
    tn_session *session;
    tn_tbuilder b;
    uint64_t seed;
    tn_tvalue *scalar[POOL], *tile[POOL]; /* i64; LANES x i64 */
    int nscalars, ntiles, depth;
    tn_tvalue *pointer[2];
} generator;

static int64_t below(generator *g, int64_t n) { return (int64_t)(test_random(&g->seed) % (uint64_t)n); }

static tn_ttype tile_type(tn_dtype dtype, bool pointer) { return (tn_ttype){.dtype = dtype, .rank = 1, .extent = {tn_extent_const(LANES)}, .pointer = pointer}; }

static void keep(generator *g, tn_tvalue *v)
{
    int *n = v->type.rank ? &g->ntiles : &g->nscalars;
    (v->type.rank ? g->tile : g->scalar)[*n < POOL ? (*n)++ : below(g, POOL)] = v;
}

static tn_tvalue *number(generator *g, tn_ttype type)
{
    static const int64_t numbers[] = {0, 0, 1, 1, -1, 2, 5};
    return tn_t_const(&g->b, type, tn_number_from_int(TN_I64, numbers[below(g, 7)]));
}

static tn_tvalue *any(generator *g, bool tile)
{
    if (below(g, 4) == 0)
        return number(g, tile ? tile_type(TN_I64, false) : tn_tscalar(TN_I64));
    return tile ? g->tile[below(g, g->ntiles)] : g->scalar[below(g, g->nscalars)];
}

static tn_tvalue *splat(generator *g, tn_tvalue *x) { return tn_t_broadcast(&g->b, x, tile_type(x->type.dtype, x->type.pointer), NULL); }

static tn_tvalue *condition(generator *g, bool tile)
{
    static const tn_scalar tests[] = {TN_S_lt, TN_S_eq, TN_S_ge};
    tn_ttype type = tile ? tile_type(TN_BOOL, false) : tn_tscalar(TN_BOOL);
    if (below(g, 3) == 0)
        return tn_t_const(&g->b, type, tn_number_from_int(TN_BOOL, below(g, 2)));
    tn_tvalue *c = tn_t_map2(&g->b, tests[below(g, 3)], any(g, tile), any(g, tile));
    return below(g, 3) ? c : tn_t_map2(&g->b, below(g, 2) ? TN_S_and : TN_S_or, c, tn_t_const(&g->b, type, tn_number_from_int(TN_BOOL, below(g, 2))));
}

static void map(generator *g)
{
    static const tn_scalar fns[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_and, TN_S_or, TN_S_xor, TN_S_max, TN_S_div, TN_S_shl};
    bool tile = below(g, 2);
    tn_tvalue *x = any(g, tile);
    keep(g, below(g, 5) ? tn_t_map2(&g->b, fns[below(g, 9)], x, any(g, tile)) : tn_t_map3(&g->b, TN_S_select, condition(g, tile), x, any(g, tile)));
}

/* Casts, splats, shapes, reductions: all that comes back to an integer or a tile of them. */
static void move(generator *g)
{
    static const tn_dtype types[] = {TN_I8, TN_U8, TN_I16, TN_I32, TN_F32, TN_F64, TN_BOOL};
    tn_extent square[] = {tn_extent_const(LANES / 2), tn_extent_const(2)}, column[] = {tn_extent_const(LANES), tn_extent_const(1)};
    tn_extent wide[] = {tn_extent_const(LANES), tn_extent_const(2)};
    tn_tvalue *x = any(g, true);
    tn_number zero = {0};
    const int axis = 0;
    switch (below(g, 5)) {
    case 0:
        x = any(g, below(g, 2));
        keep(g, tn_t_cast(&g->b, tn_t_cast(&g->b, tn_t_cast(&g->b, x, types[below(g, 7)]), types[below(g, 7)]), TN_I64));
        return;
    case 1:
        keep(g, splat(g, any(g, false)));
        return;
    case 2:
        keep(g, tn_t_reshape(&g->b, tn_t_reshape(&g->b, x, tn_tile_type(TN_I64, 2, square)), x->type));
        return;
    case 3:
        x = tn_t_broadcast(&g->b, tn_t_reshape(&g->b, x, tn_tile_type(TN_I64, 2, column)), tn_tile_type(TN_I64, 2, wide), (int[]){0, 1});
        keep(g, tn_t_slice(&g->b, tn_t_reshape(&g->b, x, (tn_ttype){.dtype = TN_I64, .rank = 1, .extent = {tn_extent_const(2 * LANES)}}), 0, LANES, LANES));
        return;
    default: {
        tn_top *op = tn_t_reduce(&g->b, &x, 1, 1, &axis, below(g, 2) ? &zero : NULL);
        tn_t_combine_fn(&g->b, op->region[0], TN_S_add, TN_I64);
        keep(g, op->result);
    }
    }
}

/* Pointers to places that exist: buffer + (an integer and 7) + the lane. */
static tn_tvalue *place(generator *g, bool tile)
{
    tn_tvalue *p = g->pointer[below(g, 2)], *mask = tn_t_const(&g->b, tn_tscalar(TN_I64), tn_number_from_int(TN_I64, 7));
    p = tn_t_addptr(&g->b, p, tn_t_map2(&g->b, TN_S_and, any(g, false), mask));
    if (!tile)
        return p;
    return tn_t_addptr(&g->b, splat(g, p), tn_t_range(&g->b, tn_t_index(&g->b, below(g, 2)), tn_extent_const(LANES)));
}

static void access(generator *g)
{
    bool tile = below(g, 2);
    tn_tvalue *p = place(g, tile), *mask = below(g, 2) ? condition(g, tile) : NULL, *other = below(g, 2) ? any(g, tile) : NULL;
    switch (below(g, 4)) {
    case 0:
        keep(g, tn_t_load_ptr(&g->b, p, tile ? mask : NULL, tile ? other : NULL));
        keep(g, tn_t_load_ptr(&g->b, p, NULL, NULL));
        return;
    case 1:
        keep(g, tn_t_load_ptr(&g->b, p, tile ? mask : NULL, tile ? other : NULL));
        tn_t_store_ptr(&g->b, place(g, tile), any(g, tile), mask);
        keep(g, tn_t_load_ptr(&g->b, p, tile ? mask : NULL, tile ? other : NULL));
        return;
    case 2:
        tn_t_store_ptr(&g->b, p, any(g, tile), mask);
        return;
    default:
        keep(g, tn_t_atomic_ptr(&g->b, TN_S_add, p, any(g, tile), tile ? mask : NULL, NULL));
    }
}

static void grow(generator *g, int ops);

/* What a body yields for an argument: as it came, the start, a constant, or something of its type. */
static tn_tvalue *next_of(generator *g, tn_tvalue *arg, tn_tvalue *start)
{
    switch (below(g, 5)) {
    case 0:
        return arg;
    case 1:
        return start;
    case 2:
        return start->def && start->def->code == TN_T_const ? tn_t_const(&g->b, start->type, start->def->number) : arg;
    case 3:
        return tn_t_map2(&g->b, TN_S_add, arg, any(g, arg->type.rank > 0));
    default:
        return any(g, arg->type.rank > 0);
    }
}

/* Runs ops in a region and yields; the pool forgets what the region made. */
static void fill(generator *g, tn_tblock *region, int first, tn_tvalue *const *start, int n, tn_tvalue *counter)
{
    tn_tblock *outer = g->b.block;
    int scalars = g->nscalars, tiles = g->ntiles;
    tn_tvalue *kept[2][POOL], *next[CARRIED + 1];
    memcpy(kept[0], g->scalar, sizeof kept[0]), memcpy(kept[1], g->tile, sizeof kept[1]);
    g->b.block = region;
    for (int i = 0; i < region->nargs; i++)
        keep(g, &region->arg[i]);
    grow(g, (int)below(g, 5));
    for (int i = 0; i < n; i++)
        next[i] = next_of(g, region->nargs ? &region->arg[first + i] : start[i], start[i]);
    if (counter)
        next[n++] = tn_t_map2(&g->b, TN_S_add, counter, tn_t_index(&g->b, 1));
    tn_t_yield(&g->b, next, n);
    g->b.block = outer;
    g->nscalars = scalars, g->ntiles = tiles;
    memcpy(g->scalar, kept[0], sizeof kept[0]), memcpy(g->tile, kept[1], sizeof kept[1]);
}

static void control(generator *g)
{
    tn_tvalue *start[CARRIED + 1];
    int n = (int)below(g, CARRIED + 1);
    tn_top *op;
    if (g->depth == 2)
        return;
    g->depth++;
    for (int i = 0; i < n; i++)
        start[i] = any(g, below(g, 2));
    int64_t kind = below(g, 3);
    if (kind == 0) {
        tn_tvalue *hi = below(g, 3) ? tn_t_index(&g->b, below(g, 4)) : tn_t_map2(&g->b, TN_S_and, any(g, false), tn_t_index(&g->b, 3));
        op = tn_t_for(&g->b, tn_t_index(&g->b, below(g, 2)), hi, tn_t_index(&g->b, 1 + below(g, 2)), start, n);
        fill(g, op->region[0], 1, start, n, NULL);
    } else if (kind == 1) {
        start[n] = tn_t_index(&g->b, below(g, 4));
        op = tn_t_while(&g->b, start, n + 1);
        tn_tbuilder in = tn_tbuilder_at(g->kernel, op->region[0], TN_NO_LOC);
        tn_tvalue *more = tn_t_map2(&in, TN_S_lt, &op->region[0]->arg[n], tn_t_index(&in, 3));
        tn_t_yield(&in, &more, 1);
        fill(g, op->region[1], 0, start, n, &op->region[1]->arg[n]);
    } else {
        tn_ttype types[CARRIED];
        for (int i = 0; i < n; i++)
            types[i] = start[i]->type;
        op = tn_t_if(&g->b, condition(g, false), n, types);
        fill(g, op->region[0], 0, start, n, NULL);
        fill(g, op->region[1], 0, start, n, NULL);
    }
    for (int i = 0; i < n; i++)
        keep(g, &op->result[i]);
    g->depth--;
}

static void grow(generator *g, int ops)
{
    void (*const make[])(generator *) = {map, map, move, access, control};
    for (int i = 0; i < ops; i++)
        make[below(g, (int64_t)TN_COUNT(make))](g);
}

static tn_kernel *random_kernel(tn_session *session, uint64_t seed)
{
    generator g = {.kernel = tn_kernel_new(session, "random"), .session = session, .seed = seed};
    tn_ttype pointer = {.dtype = TN_I64, .pointer = true};
    g.kernel->overlap = below(&g, 2);
    tn_kernel_buffer(g.kernel, "x", TN_I64, TN_READ_WRITE, NULL);
    tn_kernel_buffer(g.kernel, "y", TN_I64, TN_READ_WRITE, NULL);
    g.pointer[0] = tn_kernel_scalar(g.kernel, "x", pointer);
    g.pointer[1] = tn_kernel_scalar(g.kernel, "y", pointer);
    keep(&g, tn_kernel_scalar(g.kernel, "n", tn_tscalar(TN_I64)));
    keep(&g, tn_kernel_grid(g.kernel, "p", tn_dim_const(session, 2), tn_extent_const(1)));
    g.b = tn_tbuilder_at(g.kernel, g.kernel->body, TN_NO_LOC);
    keep(&g, tn_t_range(&g.b, g.scalar[1], tn_extent_const(LANES)));
    grow(&g, 6 + (int)below(&g, 10));
    for (int i = 0; i < g.ntiles; i++) {
        tn_tvalue *at = tn_t_addptr(&g.b, g.pointer[1], tn_t_index(&g.b, i % 16));
        tn_t_store_ptr(&g.b, tn_t_addptr(&g.b, splat(&g, at), tn_t_range(&g.b, tn_t_index(&g.b, 0), tn_extent_const(LANES))), g.tile[i], NULL);
    }
    for (int i = 0; i < g.nscalars; i++)
        tn_t_store_ptr(&g.b, tn_t_addptr(&g.b, g.pointer[0], tn_t_index(&g.b, i % 16)), g.scalar[i], NULL);
    return g.kernel;
}

/* x and y in one memory: apart, or (the kernel says so) overlapping by some elements. */
static void run(const tn_kernel *kernel, uint64_t seed, int64_t *memory)
{
    static const variant v = {.size = {{"n", 3}}};
    for (int i = 0; i < 2 * ELEMENTS; i++)
        memory[i] = (int64_t)(test_random(&seed) % 7) - 2;
    int64_t *y = memory + (kernel->overlap ? test_random(&seed) % 8 : ELEMENTS);
    tn_tile_arg args[] = {{memory, ELEMENTS}, {y, ELEMENTS}};
    if (tn_tile_interpret(kernel, args, test_lookup, (void *)&v) != TN_OK) {
        report(kernel, NULL, &v, "interpret");
        fail_msg("a random kernel does not run");
    }
}

static void test_random_kernels(void **state)
{
    (void)state;
    int64_t runs = getenv("TILE_RUNS") ? atoll(getenv("TILE_RUNS")) : 600, first = getenv("TILE_SEED") ? atoll(getenv("TILE_SEED")) : 0;
    size_t before = 0, after = 0;
    for (int64_t i = first; i < first + runs; i++) {
        tn_session *session = new_test_session();
        uint64_t seed = tn_hash_u64((uint64_t)i + 1);
        tn_kernel *kernel = random_kernel(session, seed);
        int64_t want[2 * ELEMENTS], got[2 * ELEMENTS];
        const char *text = tile_text(kernel);
        if (tn_tile_verify(kernel) != TN_OK)
            fail_msg("%s\n%s", session->diags.at[0].message, text);
        run(kernel, seed, want);
        before += tn_tile_size(kernel);
        assert_int_equal(tn_tile_passes[0].run(kernel), TN_OK);
        after += tn_tile_size(kernel);
        if (tn_tile_verify(kernel) != TN_OK)
            fail_msg("seed %lld: %s\n%s\n%s", (long long)i, session->diags.at[0].message, text, tile_text(kernel));
        run(kernel, seed, got);
        if (memcmp(want, got, sizeof want)) {
            fprintf(stderr, "%s", text);
            report(kernel, NULL, &(variant){.size = {{NULL, 0}}}, "simplified");
            fail_msg("seed %lld: the simplified kernel does something else", (long long)i);
        }
        free_test_session(session);
    }
    assert_true(after < before * 3 / 4);
}

/* An unrolled loop: 20,000 steps that carry pointers and sums, each with splats and equal parts. */
static void test_size(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_kernel *kernel = tn_kernel_new(session, "unrolled");
    tn_ttype pointer = {.dtype = TN_F32, .pointer = true}, tile = tile_type(TN_F32, false);
    tn_kernel_buffer(kernel, "x", TN_F32, TN_READ, NULL);
    tn_kernel_buffer(kernel, "y", TN_F32, TN_READ_WRITE, NULL);
    tn_tvalue *x = tn_kernel_scalar(kernel, "x", pointer), *y = tn_kernel_scalar(kernel, "y", pointer), *n = tn_kernel_scalar(kernel, "n", tn_tscalar(TN_I64));
    tn_tbuilder b = tn_tbuilder_at(kernel, kernel->body, TN_NO_LOC);
    tn_tvalue *sum = tn_t_const(&b, tile, tn_number_from_double(TN_F32, 0)), *lanes = tn_t_range(&b, tn_t_index(&b, 0), tn_extent_const(LANES));
    tn_tvalue *p = tn_t_addptr(&b, tn_t_broadcast(&b, x, tile_type(TN_F32, true), NULL), lanes);
    for (int i = 0; i < 20000; i++) {
        tn_tvalue *offset = tn_t_broadcast(&b, tn_t_map2(&b, TN_S_mul, n, tn_t_index(&b, 1)), tile_type(TN_I64, false), NULL);
        tn_tvalue *twice = tn_t_map2(&b, TN_S_add, offset, tn_t_broadcast(&b, n, tile_type(TN_I64, false), NULL));
        sum = tn_t_map2(&b, TN_S_add, sum, tn_t_load_ptr(&b, p, NULL, NULL));
        p = tn_t_addptr(&b, p, twice);
        tn_tvalue *same = tn_t_map2(&b, TN_S_lt, lanes, offset);
        sum = tn_t_map3(&b, TN_S_select, same, sum, sum);
    }
    tn_t_store_ptr(&b, tn_t_addptr(&b, tn_t_broadcast(&b, y, tile_type(TN_F32, true), NULL), lanes), sum, NULL);
    assert_true(tn_tile_size(kernel) > 150000);
    assert_int_equal(tn_tile_passes[0].run(kernel), TN_OK);
    assert_true(tn_tile_size(kernel) < 60000 + 20); /* a load, a sum and a pointer a step */
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels), cmocka_unit_test(test_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
