/* inline on random kernels of folds and loops, most of which run once: views that end early, late or are padded, ranges that walk any axis, elements that
 * are absent or left out. The kernel does the same before and after, and after tile-simplify. TILE_RUNS and TILE_SEED as in test_tile_random.c. */
#include "tile_test.h"

enum { ROWS = 4, COLUMNS = 8, ELEMENTS = 256, VALUES = 40 };

typedef struct generator {
    tn_kernel *kernel;
    tn_session *session;
    tn_tbuilder b;
    uint64_t seed;
    int buffer;
    tn_tvalue *value[VALUES]; /* ROWS x COLUMNS x i64 */
    int nvalues, depth, stored;
    tn_tvalue *start[4]; /* of ranges in scope */
    tn_dim limit[4];
    int nstarts;
    tn_view *result;
} generator;

static int64_t below(generator *g, int64_t n) { return (int64_t)(test_random(&g->seed) % (uint64_t)n); }

static tn_ttype tile_of(tn_dtype dtype)
{
    tn_extent extents[] = {tn_extent_const(ROWS), tn_extent_const(COLUMNS)};
    return tn_tile_type(dtype, 2, extents);
}

static void keep(generator *g, tn_tvalue *v) { g->value[g->nvalues < VALUES ? g->nvalues++ : (int)below(g, VALUES)] = v; }
static tn_tvalue *any(generator *g) { return g->value[below(g, g->nvalues)]; }

/* A number of elements: constant, or a symbol, whose value (3) may be known to end in the first strip or not. */
static tn_dim length(generator *g)
{
    static const char *const symbols[] = {"n", "m", "q"};
    return below(g, 2) ? tn_dim_const(g->session, 1 + below(g, 9)) : tn_dim_symbol(g->session, symbols[below(g, 3)]);
}

static tn_tvalue *place_of(generator *g)
{
    return g->nstarts && below(g, 4) ? g->start[below(g, g->nstarts)] : tn_t_index(&g->b, below(g, 2));
}

/* Dimensions of ROWS or COLUMNS and a few more or fewer, those of the ranges' limits among them. */
static tn_dim shape_of(generator *g) { return g->nstarts && below(g, 2) ? g->limit[below(g, g->nstarts)] : length(g); }

static void load(generator *g)
{
    tn_dim shape[] = {shape_of(g), shape_of(g)}, stride[] = {tn_dim_const(g->session, 12), tn_dim_const(g->session, 1)};
    tn_view *view = tn_kernel_view(g->kernel, "X", g->buffer, 2, shape, stride, tn_dim_const(g->session, below(g, 3)));
    view->padded = below(g, 4) == 0;
    view->padding = tn_number_from_int(TN_I64, 5);
    int axes[] = {0, 1};
    bool turned = below(g, 4) == 0;
    tn_subscript subs[] = {tn_sub_block(place_of(g), turned), tn_sub_block(place_of(g), !turned)};
    subs[0].inside = below(g, 5) == 0;
    if (below(g, 4) == 0)
        subs[1] = tn_sub_index(any(g), 2, axes);
    else if (below(g, 4) == 0)
        subs[1] = tn_sub_index(tn_t_range(&g->b, place_of(g), tn_extent_const(turned ? ROWS : COLUMNS)), 1, &axes[!turned]);
    keep(g, tn_t_load(&g->b, view, subs, tile_of(TN_I64)));
}

static void map(generator *g)
{
    static const tn_scalar fns[] = {TN_S_add, TN_S_sub, TN_S_max, TN_S_mul};
    int axis = (int)below(g, 2);
    if (below(g, 3) == 0) {
        tn_tvalue *range = tn_t_range(&g->b, place_of(g), tn_extent_const(axis ? COLUMNS : ROWS));
        keep(g, tn_t_broadcast(&g->b, range, tile_of(TN_I64), &axis));
    } else if (below(g, 3) == 0) {
        keep(g, tn_t_map3(&g->b, TN_S_select, tn_t_map2(&g->b, TN_S_lt, any(g), any(g)), any(g), any(g)));
    } else {
        keep(g, tn_t_map2(&g->b, fns[below(g, 4)], any(g), any(g)));
    }
}

static void store(generator *g, tn_tvalue *v)
{
    tn_subscript subs[] = {tn_sub_point(tn_t_index(&g->b, g->stored++ % 8)), tn_sub_block(tn_t_index(&g->b, 0), 0), tn_sub_block(tn_t_index(&g->b, 0), 1)};
    tn_t_store(&g->b, g->result, subs, v);
}

static void grow(generator *g, int ops);

/* Makes a region's values and forgets them. */
static void fill(generator *g, tn_tblock *region, int starts)
{
    g->b.block = region;
    g->depth++;
    grow(g, 2 + (int)below(g, 5));
    g->depth--;
    g->nstarts -= starts;
}

/* What a fold gave, as a tile again. */
static void spread(generator *g, tn_tvalue *v, const int *axes, int naxes)
{
    int kept[2], n = 0;
    for (int a = 0; a < 2; a++)
        if (!(naxes && axes[0] == a) && naxes < 2)
            kept[n++] = a;
    keep(g, tn_t_broadcast(&g->b, v, tile_of(TN_I64), kept));
}

static void fold(generator *g)
{
    static const struct {
        tn_scalar fn;
        int64_t identity;
    } combines[] = {{TN_S_add, 0}, {TN_S_max, INT64_MIN}, {TN_S_mul, 1}};
    tn_tvalue *limit[2], *x[2];
    tn_extent step[2];
    int nranges = 1 + (int)below(g, 2), naxes = (int)below(g, 3), axes[] = {0, 1}, n = 1 + (int)(below(g, 4) == 0), outside = g->nvalues;
    if (naxes == 1)
        axes[0] = (int)below(g, 2);
    for (int i = 0; i < nranges; i++) {
        g->limit[g->nstarts + i] = length(g);
        limit[i] = tn_t_size(&g->b, g->limit[g->nstarts + i]);
        step[i] = tn_extent_const(INT64_C(1) << below(g, 5));
    }
    tn_tblock *outer = g->b.block;
    tn_top *op = tn_t_fold(&g->b, nranges, limit, step, naxes, axes);
    for (int i = 0; i < nranges; i++)
        g->start[g->nstarts++] = &op->region[0]->arg[i];
    fill(g, op->region[0], nranges);
    for (int i = 0; i < n; i++)
        x[i] = g->value[g->nvalues - 1 - (int)below(g, tn_min(4, g->nvalues))];
    tn_t_yield(&g->b, x, n);
    g->b.block = outer;
    g->nvalues = tn_min(outside, g->nvalues);
    int which = (int)below(g, 3);
    tn_number identity[] = {tn_number_from_int(TN_I64, combines[which].identity), tn_number_from_int(TN_I64, 0)};
    op->ordered = below(g, 6) == 0;
    tn_t_fold_finish(&g->b, op, identity, n);
    tn_tbuilder in = tn_tbuilder_at(g->kernel, op->region[1], TN_NO_LOC);
    tn_tvalue *arg = op->region[1]->arg, *r[] = {tn_t_map2(&in, combines[which].fn, &arg[0], &arg[n]), NULL};
    if (n == 2)
        r[1] = tn_t_map2(&in, TN_S_add, &arg[1], &arg[3]);
    tn_t_yield(&in, r, n);
    for (int i = 0; i < n; i++)
        spread(g, &op->result[i], axes, naxes);
}

static void loop(generator *g)
{
    int n = (int)below(g, 2), outside = g->nvalues;
    tn_dim limit = length(g);
    tn_tvalue *start = any(g), *next;
    tn_tblock *outer = g->b.block;
    tn_top *op = tn_t_for(&g->b, tn_t_index(&g->b, 0), tn_t_size(&g->b, limit), tn_t_index(&g->b, INT64_C(1) << below(g, 5)), &start, n);
    g->limit[g->nstarts] = limit;
    g->start[g->nstarts++] = &op->region[0]->arg[0];
    if (n)
        keep(g, &op->region[0]->arg[1]);
    fill(g, op->region[0], 1);
    if (g->depth == 0 && below(g, 2))
        store(g, any(g));
    next = any(g);
    tn_t_yield(&g->b, &next, n);
    g->b.block = outer;
    g->nvalues = tn_min(outside, g->nvalues);
    if (n)
        keep(g, op->result);
}

static void grow(generator *g, int ops)
{
    void (*const make[])(generator *) = {load, load, map, map, fold, loop};
    for (int i = 0; i < ops; i++)
        make[below(g, g->depth < 2 ? 6 : 4)](g);
}

static tn_kernel *random_kernel(tn_session *session, uint64_t seed)
{
    generator g = {.kernel = tn_kernel_new(session, "random"), .session = session, .seed = seed};
    tn_dim_declare(session, "n", 1, 8, 1);
    tn_dim_declare(session, "m", 0, 4, 1);
    tn_dim_declare(session, "q", 3, 3, 1);
    tn_dim shape[] = {tn_dim_const(session, 8), tn_dim_const(session, ROWS), tn_dim_const(session, COLUMNS)};
    tn_dim stride[] = {tn_dim_const(session, ROWS * COLUMNS), tn_dim_const(session, COLUMNS), tn_dim_const(session, 1)};
    g.buffer = tn_kernel_buffer(g.kernel, "x", TN_I64, TN_READ, NULL);
    int y = tn_kernel_buffer(g.kernel, "y", TN_I64, TN_WRITE, NULL);
    g.result = tn_kernel_view(g.kernel, "Y", y, 3, shape, stride, tn_dim_const(session, 0));
    tn_kernel_grid(g.kernel, "p", tn_dim_const(session, 1), tn_extent_const(1));
    g.b = tn_tbuilder_at(g.kernel, g.kernel->body, TN_NO_LOC);
    keep(&g, tn_t_const(&g.b, tile_of(TN_I64), tn_number_from_int(TN_I64, 2)));
    grow(&g, 6 + (int)below(&g, 8));
    for (int i = 0; i < g.nvalues; i++)
        store(&g, g.value[i]);
    return g.kernel;
}

static void run(const tn_kernel *kernel, uint64_t seed, int64_t *y)
{
    static const variant v = {.size = {{"n", 3}, {"m", 3}, {"q", 3}}};
    int64_t x[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = (int64_t)(test_random(&seed) % 7) - 1;
        y[i] = -99;
    }
    tn_tile_arg args[] = {{x, ELEMENTS}, {y, ELEMENTS}};
    if (tn_tile_interpret(kernel, args, test_lookup, (void *)&v) != TN_OK) {
        report(kernel, NULL, &v, "interpret");
        fail_msg("a random kernel does not run");
    }
}

static void count_loops(void *context, tn_top *op) { *(size_t *)context += op->code == TN_T_fold || op->code == TN_T_for; }

static size_t loops_of(const tn_kernel *kernel)
{
    size_t n = 0;
    tn_tile_walk(kernel->body, count_loops, &n);
    return n;
}

static tn_status run_pass(const char *name, tn_kernel *kernel)
{
    const tn_tile_pass *pass = tn_tile_passes;
    while (strcmp(pass->name, name))
        pass++;
    return pass->run(kernel);
}

static void test_random_kernels(void **state)
{
    (void)state;
    static const char *const passes[] = {"inline", "tile-simplify", "inline"};
    int64_t runs = getenv("TILE_RUNS") ? atoll(getenv("TILE_RUNS")) : 1500, first = getenv("TILE_SEED") ? atoll(getenv("TILE_SEED")) : 0;
    size_t before = 0, after = 0;
    for (int64_t i = first; i < first + runs; i++) {
        tn_session *session = new_test_session();
        uint64_t seed = tn_hash_u64((uint64_t)i + 7);
        tn_kernel *kernel = random_kernel(session, seed);
        int64_t want[ELEMENTS], got[ELEMENTS];
        const char *text = tile_text(kernel);
        if (tn_tile_verify(kernel) != TN_OK)
            fail_msg("%s\n%s", session->diags.at[0].message, text);
        run(kernel, seed, want);
        before += loops_of(kernel);
        for (size_t p = 0; p < TN_COUNT(passes); p++) {
            assert_int_equal(run_pass(passes[p], kernel), TN_OK);
            if (tn_tile_verify(kernel) != TN_OK)
                fail_msg("seed %lld: %s\n%s\n%s", (long long)i, session->diags.at[0].message, text, tile_text(kernel));
            run(kernel, seed, got);
            if (memcmp(want, got, sizeof want)) {
                fprintf(stderr, "%s", text);
                report(kernel, NULL, &(variant){.size = {{NULL, 0}}}, passes[p]);
                fail_msg("seed %lld: the kernel does something else after %s", (long long)i, passes[p]);
            }
        }
        after += loops_of(kernel);
        free_test_session(session);
    }
    assert_true(after < before / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
