/* Random kernels: chains of all operations that have a CPU lowering, on tiles with absent elements, run by the definitions and as loops.
 * Integers, so that every order of a reduction gives the same bits. TILE_RUNS, TILE_SEED as in test_tile_lower.c. */
#include "tile_test.h"

enum { MAX_POOL = 48, MAX_RESULTS = 4, MAX_TILE = 512, MAX_WIDE = 4096, REGION = 64 };

typedef struct generator {
    tn_kernel *kernel;
    tn_session *session;
    tn_tbuilder b;
    uint64_t seed;
    tn_tvalue *pool[MAX_POOL];
    int n;
    tn_tvalue *p, *q; /* grid: rows, columns */
    tn_view *x[4];    /* [m, n], plain, padded, guarded, int64 */
    int64_t rows, columns; /* steps */
    int64_t most;          /* elements of a tile */
    int depth, folds;
    bool apart;         /* no two elements of a store or atomic meet: threads would race */
    tn_tvalue *pointer; /* REGION elements of memory of this program's own */
} generator;

static int64_t below(generator *g, int64_t n) { return (int64_t)(test_random(&g->seed) % (uint64_t)n); }

static tn_dim constant(generator *g, int64_t n) { return tn_dim_const(g->session, n); }

static int64_t elements(const tn_ttype *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= type->extent[i].size;
    return n;
}

static void keep(generator *g, tn_tvalue *v)
{
    if (!v || elements(&v->type) > g->most)
        return;
    g->pool[g->n < MAX_POOL ? g->n++ : below(g, MAX_POOL)] = v;
}

static tn_tvalue *any(generator *g) { return g->pool[below(g, g->n)]; }

static tn_tvalue *any_integer(generator *g)
{
    for (int i = 0; i < 32; i++) {
        tn_tvalue *v = any(g);
        if (v->type.dtype == TN_I32)
            return v;
    }
    return tn_t_const(&g->b, tn_tscalar(TN_I32), tn_number_from_int(TN_I32, 3));
}

static tn_tvalue *zero(generator *g) { return tn_t_index(&g->b, 0); }

static tn_ttype tile2(generator *g, tn_dtype dtype)
{
    tn_extent extents[] = {tn_extent_const(g->rows), tn_extent_const(g->columns)};
    return tn_tile_type(dtype, 2, extents);
}

/* A load: both block subscripts, transposed, one point, or an index tile. */
static tn_tvalue *load(generator *g)
{
    const tn_view *view = g->x[below(g, 3)];
    tn_ttype type = tile2(g, TN_I32);
    tn_subscript s[2] = {tn_sub_block(g->p, 0), tn_sub_block(g->q, 1)};
    switch (below(g, 5)) {
    case 0:
        type.extent[0] = tn_extent_const(g->columns);
        type.extent[1] = tn_extent_const(g->rows);
        s[0].axis[0] = 1, s[1].axis[0] = 0;
        break;
    case 1:
        s[0] = tn_sub_point(g->p);
        s[1].axis[0] = 0;
        type = tn_tile_type(TN_I32, 1, &type.extent[1]);
        break;
    case 2: {
        tn_tvalue *i = any_integer(g);
        int axes[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5};
        if (i->type.rank == 0)
            return tn_t_load(&g->b, view, (tn_subscript[]){tn_sub_point(g->p), tn_sub_point(i)}, tn_tscalar(TN_I32));
        type = i->type;
        s[0] = tn_sub_block(g->p, (int)below(g, type.rank));
        s[1] = tn_sub_index(i, type.rank, axes);
        break;
    }
    }
    return tn_t_load(&g->b, view, s, type);
}

/* Offsets into the program's region: of one shape with what is stored there, read from a value, or by their place in the tile; `apart`: all
 * different. */
static tn_tvalue *offsets(generator *g, tn_tvalue *x, bool apart)
{
    static const tn_dtype dtypes[] = {TN_I32, TN_I64, TN_U32};
    tn_ttype type = x->type;
    type.dtype = dtypes[below(g, 3)];
    tn_tvalue *last = tn_t_const(&g->b, tn_tscalar(type.dtype), tn_number_from_int(type.dtype, REGION - 1));
    tn_tvalue *sum = tn_t_map2(&g->b, TN_S_and, tn_t_cast(&g->b, x, type.dtype), last);
    if (!type.rank || (!apart && below(g, 3) == 0))
        return sum;
    tn_tvalue *start = tn_t_map2(&g->b, TN_S_rem, tn_t_cast(&g->b, g->q, type.dtype), tn_t_const(&g->b, tn_tscalar(type.dtype), tn_number_from_int(type.dtype, 3)));
    sum = start;
    bool turned = below(g, 2), repeats = !apart && below(g, 4) == 0;
    int64_t stride = 1;
    for (int k = 0; k < type.rank; k++) { /* row-major, or the other way round */
        int axis = turned ? k : type.rank - 1 - k, axes[1] = {axis};
        tn_tvalue *i = tn_t_cast(&g->b, tn_t_range(&g->b, zero(g), type.extent[axis]), type.dtype);
        i = tn_t_map2(&g->b, TN_S_mul, i, tn_t_const(&g->b, tn_tscalar(type.dtype), tn_number_from_int(type.dtype, stride)));
        i = tn_t_broadcast(&g->b, i, type, axes);
        sum = tn_t_map2(&g->b, TN_S_add, sum, i);
        stride *= repeats ? 1 : type.extent[axis].size;
    }
    return elements(&type) + 3 > REGION ? tn_t_map2(&g->b, TN_S_and, sum, last) : sum;
}

static tn_tvalue *partner(generator *g, const tn_tvalue *x, tn_dtype dtype);

static tn_tvalue *as_shape(generator *g, tn_tvalue *v, const tn_ttype *shape)
{
    tn_ttype type = *shape;
    type.dtype = v->type.dtype;
    type.pointer = v->type.pointer;
    return v->type.rank || !type.rank ? v : tn_t_broadcast(&g->b, v, type, NULL);
}

static tn_tvalue *pointers(generator *g, tn_tvalue *at)
{
    tn_tvalue *p = tn_t_addptr(&g->b, as_shape(g, g->pointer, &at->type), at);
    if (below(g, 4))
        return p;
    return tn_t_bitcast_type(&g->b, tn_t_bitcast_type(&g->b, p, tn_tscalar(TN_I64)), (tn_ttype){.dtype = TN_I32, .pointer = true});
}

/* NULL: none; a bool, or offsets below some number. */
static tn_tvalue *some_mask(generator *g, tn_tvalue *at)
{
    tn_tvalue *limit = tn_t_const(&g->b, tn_tscalar(at->type.dtype), tn_number_from_int(at->type.dtype, below(g, REGION)));
    switch (below(g, 3)) {
    case 0:
        return tn_t_map2(&g->b, below(g, 2) ? TN_S_lt : TN_S_le, at, limit);
    case 1:
        return as_shape(g, partner(g, at, TN_BOOL), &at->type);
    default:
        return NULL;
    }
}

static tn_tvalue *load_pointer(generator *g)
{
    tn_tvalue *at = offsets(g, any_integer(g), false), *mask = some_mask(g, at);
    tn_tvalue *other = mask && below(g, 2) ? as_shape(g, partner(g, at, TN_I32), &at->type) : NULL;
    return tn_t_load_ptr(&g->b, pointers(g, at), mask, other);
}

/* What a fold's strip stores no other may load: none there. */
static tn_tvalue *store_pointer(generator *g)
{
    tn_tvalue *x = any_integer(g);
    if (g->folds || (g->apart && elements(&x->type) + 3 > REGION))
        return NULL;
    tn_tvalue *at = offsets(g, x, g->apart), *value = as_shape(g, partner(g, x, TN_I32), &x->type);
    tn_t_store_ptr(&g->b, pointers(g, at), value, some_mask(g, at));
    return NULL;
}

static tn_tvalue *atomic_pointer(generator *g)
{
    static const tn_scalar fn[] = {TN_S_add, TN_S_max, TN_S_xor, TN_SCALAR_NONE};
    tn_tvalue *x = any_integer(g);
    if (g->folds || (g->apart && elements(&x->type) + 3 > REGION))
        return NULL;
    tn_tvalue *at = offsets(g, x, g->apart), *value = as_shape(g, partner(g, x, TN_I32), &x->type);
    if (below(g, 3) == 0)
        return tn_t_cas_ptr(&g->b, pointers(g, at), as_shape(g, partner(g, x, TN_I32), &x->type), value, NULL);
    return tn_t_atomic_ptr(&g->b, fn[below(g, 4)], pointers(g, at), value, some_mask(g, at), NULL);
}

static bool same_shape(const tn_tvalue *a, const tn_tvalue *b)
{
    bool same = a->type.rank == b->type.rank;
    for (int i = 0; same && i < a->type.rank; i++)
        same = a->type.extent[i].size == b->type.extent[i].size;
    return same;
}

static tn_tvalue *partner(generator *g, const tn_tvalue *x, tn_dtype dtype)
{
    for (int i = 0; i < 40; i++) {
        tn_tvalue *v = any(g);
        if (v->type.dtype == dtype && (same_shape(v, x) || v->type.rank == 0))
            return v;
    }
    return tn_t_const(&g->b, tn_tscalar(dtype), tn_number_from_int(dtype, dtype == TN_BOOL ? below(g, 2) : below(g, 9) - 4));
}

static tn_tvalue *map(generator *g)
{
    static const tn_scalar unary[] = {TN_S_neg, TN_S_abs, TN_S_not, TN_S_sign}, binary[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_max, TN_S_min, TN_S_xor, TN_S_rem, TN_S_div};
    static const tn_scalar test[] = {TN_S_eq, TN_S_lt, TN_S_ge};
    tn_tvalue *x = any_integer(g);
    switch (below(g, 4)) {
    case 0:
        return tn_t_map1(&g->b, unary[below(g, 4)], x);
    case 1:
        return tn_t_map2(&g->b, binary[below(g, 8)], x, partner(g, x, TN_I32));
    case 2:
        return tn_t_map2(&g->b, test[below(g, 3)], x, partner(g, x, TN_I32));
    default:
        return tn_t_map3(&g->b, TN_S_select, partner(g, x, TN_BOOL), x, partner(g, x, TN_I32));
    }
}

static tn_tvalue *cast(generator *g)
{
    static const tn_dtype small[] = {TN_I8, TN_U8, TN_I16, TN_F32, TN_I64};
    tn_tvalue *x = any(g);
    if (x->type.dtype == TN_BOOL)
        return tn_t_cast(&g->b, x, TN_I32);
    return tn_t_cast(&g->b, tn_t_cast(&g->b, x, small[below(g, 5)]), TN_I32);
}

static tn_tvalue *broadcast(generator *g)
{
    static const int64_t sizes[] = {1, 2, 3, 4};
    tn_tvalue *x = any(g);
    int at = (int)below(g, x->type.rank + 1), axes[TN_TILE_RANK];
    if (x->type.rank >= 4)
        return NULL;
    tn_ttype type = {.dtype = x->type.dtype, .rank = x->type.rank + 1};
    for (int i = 0; i < x->type.rank; i++) {
        axes[i] = i + (i >= at);
        type.extent[axes[i]] = x->type.extent[i];
        if (x->type.extent[i].size == 1 && below(g, 2))
            type.extent[axes[i]] = tn_extent_const(3);
    }
    type.extent[at] = tn_extent_const(sizes[below(g, 4)]);
    return tn_t_broadcast(&g->b, x, type, axes);
}

static tn_tvalue *permute(generator *g)
{
    tn_tvalue *x = any(g);
    int axes[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5};
    for (int i = x->type.rank - 1; i > 0; i--) {
        int j = (int)below(g, i + 1), k = axes[i];
        axes[i] = axes[j], axes[j] = k;
    }
    return x->type.rank ? tn_t_permute(&g->b, x, axes) : NULL;
}

/* Two axes become one, or a unit axis comes in. */
static tn_tvalue *reshape(generator *g)
{
    tn_tvalue *x = any(g);
    tn_ttype type = {.dtype = x->type.dtype};
    int at = (int)below(g, x->type.rank + 1);
    bool merge = below(g, 2) && at + 1 < x->type.rank;
    if (!merge && x->type.rank >= 4)
        return NULL;
    for (int i = 0; i <= x->type.rank; i++) {
        if (!merge && i == at)
            type.extent[type.rank++] = tn_extent_const(1);
        if (i == x->type.rank)
            break;
        type.extent[type.rank++] = x->type.extent[i];
        if (merge && i == at)
            type.extent[type.rank - 1].size *= x->type.extent[++i].size;
    }
    int64_t odd = merge ? type.extent[at].size : 1;
    while (odd % 2 == 0)
        odd /= 2;
    return odd > 15 ? NULL : tn_t_reshape(&g->b, x, type);
}

static tn_tvalue *operation(generator *g, tn_topcode code, tn_tvalue *const *x, int n, tn_ttype type, int axis)
{
    /* The builder has no function for these: through text would do, too. */
    tn_tvalue *first = tn_t_bitcast(&g->b, x[0], x[0]->type.dtype);
    tn_top *op = first->def;
    tn_tvalue **operands = TN_NEW_ARRAY(&g->session->arena, tn_tvalue *, 2);
    for (int i = 0; i < n; i++)
        operands[i] = x[i];
    op->code = code;
    op->operand = operands;
    op->noperands = n;
    op->result->type = type;
    op->naxes = axis >= 0;
    op->axis[0] = axis;
    return op->result;
}

static tn_tvalue *pairs(generator *g)
{
    tn_tvalue *x = any(g), *y = partner(g, x, x->type.dtype);
    if (!same_shape(x, y))
        return NULL;
    tn_ttype type = x->type;
    if (below(g, 2) && type.rank < 4) {
        type.extent[type.rank++] = tn_extent_const(2);
        return operation(g, TN_T_join, (tn_tvalue *[]){x, y}, 2, type, -1);
    }
    if (!type.rank)
        return NULL;
    int axis = (int)below(g, type.rank);
    type.extent[axis].size *= 2;
    return operation(g, TN_T_cat, (tn_tvalue *[]){x, y}, 2, type, axis);
}

static tn_tvalue *slice(generator *g)
{
    tn_tvalue *x = any(g);
    tn_ttype type = x->type;
    int axis = type.rank ? (int)below(g, type.rank) : -1;
    if (axis < 0 || type.extent[axis].size % 2)
        return NULL;
    type.extent[axis].size /= 2;
    tn_tvalue *v = operation(g, TN_T_slice, &x, 1, type, axis);
    v->def->number.i = below(g, 2) * type.extent[axis].size;
    return v;
}

static tn_tvalue *gather(generator *g)
{
    tn_tvalue *x = any(g), *i = any_integer(g);
    int axis = x->type.rank ? (int)below(g, x->type.rank) : -1;
    if (axis < 0 || !same_shape(x, i))
        return NULL;
    int64_t last = x->type.extent[axis].size - 1;
    tn_tvalue *lo = tn_t_const(&g->b, tn_tscalar(TN_I32), tn_number_from_int(TN_I32, 0)), *hi = tn_t_const(&g->b, tn_tscalar(TN_I32), tn_number_from_int(TN_I32, last));
    i = tn_t_map3(&g->b, TN_S_clamp, lo, i, hi);
    return operation(g, TN_T_gather, (tn_tvalue *[]){x, i}, 2, x->type, axis);
}

static tn_number identity_of(tn_scalar fn)
{
    return fn == TN_S_max ? tn_number_lowest(TN_I32) : fn == TN_S_min ? tn_number_highest(TN_I32) : tn_number_from_int(TN_I32, fn == TN_S_mul);
}

static tn_scalar combiner(generator *g)
{
    static const tn_scalar fn[] = {TN_S_add, TN_S_max, TN_S_min, TN_S_mul, TN_S_xor};
    return fn[below(g, 5)];
}

static int some_axes(generator *g, int rank, int *axes)
{
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (below(g, 2))
            axes[n++] = i;
    return n;
}

static tn_tvalue *reduce(generator *g)
{
    tn_tvalue *x = any_integer(g);
    int axes[TN_TILE_RANK], n = some_axes(g, x->type.rank, axes);
    tn_scalar fn = combiner(g);
    tn_number identity = identity_of(fn);
    tn_top *op = tn_t_reduce(&g->b, &x, 1, n, axes, &identity);
    tn_t_combine_fn(&g->b, op->region[0], fn, TN_I32);
    return op->result;
}

/* In a fixed order, of values that do not commute: the first minus what follows. */
static tn_tvalue *reduce_tree(generator *g)
{
    tn_tvalue *x = any_integer(g);
    int axes[TN_TILE_RANK], n = some_axes(g, x->type.rank, axes);
    tn_top *op = tn_t_reduce(&g->b, &x, 1, n, axes, NULL);
    tn_t_combine_fn(&g->b, op->region[0], TN_S_sub, TN_I32);
    op->ordered = true;
    return op->result;
}

/* Of one value; or of two, without identities the first of the second. */
static tn_tvalue *scan(generator *g)
{
    tn_tvalue *x[2] = {any_integer(g)};
    x[1] = partner(g, x[0], TN_I32);
    if (!x[0]->type.rank)
        return NULL;
    int axis = (int)below(g, x[0]->type.rank);
    bool two = same_shape(x[0], x[1]) && below(g, 2), reverse = below(g, 2), none = two && below(g, 2);
    tn_scalar fn = combiner(g);
    tn_number identity[2] = {identity_of(fn), tn_number_from_int(TN_I32, 0)};
    tn_top *op = tn_t_scan(&g->b, x, two ? 2 : 1, axis, reverse, none ? NULL : identity);
    if (!two) {
        tn_t_combine_fn(&g->b, op->region[0], fn, TN_I32);
    } else {
        tn_tbuilder in = tn_tbuilder_at(g->kernel, op->region[0], TN_NO_LOC);
        tn_tvalue *a = op->region[0]->arg, *sum = tn_t_map2(&in, fn, &a[0], &a[2]);
        tn_t_yield(&in, (tn_tvalue *[]){sum, none ? &a[1] : tn_t_map2(&in, TN_S_xor, &a[1], &a[3])}, 2);
    }
    return &op->result[two ? below(g, 2) : 0];
}

static tn_tvalue *sort(generator *g)
{
    tn_tvalue *x[2] = {any_integer(g)};
    x[1] = partner(g, x[0], TN_I32);
    if (!x[0]->type.rank)
        return NULL;
    int n = same_shape(x[0], x[1]) ? 2 : 1;
    tn_top *op = tn_t_sort(&g->b, x, n, (int)below(g, x[0]->type.rank));
    tn_tbuilder in = tn_tbuilder_at(g->kernel, op->region[0], TN_NO_LOC);
    tn_tvalue *a = op->region[0]->arg, *before = tn_t_map2(&in, below(g, 2) ? TN_S_lt : TN_S_gt, &a[0], &a[n]);
    tn_t_yield(&in, &before, 1);
    return &op->result[below(g, n)];
}

static tn_tvalue *histogram(generator *g)
{
    static const int64_t bins[] = {1, 4, 12};
    tn_tvalue *x = any_integer(g);
    return x->type.rank == 1 ? tn_t_histogram(&g->b, x, bins[below(g, 3)], TN_I32) : NULL;
}

static void grow(generator *g, int ops);

/* A fold over the rows of the matrix: the strip's load, and whatever grows on it. */
static tn_tvalue *fold(generator *g)
{
    tn_tvalue *limit = tn_t_size(&g->b, g->x[0]->shape[0]), *rows = g->p;
    tn_extent step = tn_extent_const(g->rows);
    int axes[TN_TILE_RANK], pool = g->n;
    tn_tblock *outer = g->b.block;
    tn_scalar fn = combiner(g);
    tn_number identity = identity_of(fn);
    tn_top *op = tn_t_fold(&g->b, 1, &limit, &step, 0, NULL);
    g->b.block = op->region[0];
    g->p = &op->region[0]->arg[0];
    keep(g, load(g));
    g->folds++;
    if (g->depth++ < 2)
        grow(g, (int)below(g, 4));
    g->folds--;
    tn_tvalue *x = any_integer(g);
    tn_t_yield(&g->b, &x, 1);
    op->naxes = some_axes(g, x->type.rank, axes);
    memcpy(op->axis, axes, sizeof axes[0] * (size_t)op->naxes);
    g->b.block = outer;
    g->p = rows;
    g->n = pool;
    g->depth--;
    tn_t_fold_finish(&g->b, op, &identity, 1);
    tn_t_combine_fn(&g->b, op->region[1], fn, TN_I32);
    return op->result;
}

static tn_tvalue *loop(generator *g)
{
    tn_tvalue *start = any_integer(g), *lo = zero(g), *hi = tn_t_index(&g->b, below(g, 4)), *step = tn_t_index(&g->b, 1);
    tn_tblock *outer = g->b.block;
    int pool = g->n;
    if (g->n > MAX_POOL - 8)
        return NULL;
    tn_top *op = tn_t_for(&g->b, lo, hi, step, &start, 1);
    g->b.block = op->region[0];
    tn_tvalue *now = &op->region[0]->arg[1], *index = tn_t_cast(&g->b, &op->region[0]->arg[0], TN_I32);
    keep(g, now);
    tn_tvalue *next = tn_t_map2(&g->b, TN_S_add, now, index);
    keep(g, next);
    if (g->depth++ < 2)
        grow(g, (int)below(g, 3));
    for (int i = g->n; i-- > pool;)
        if (g->pool[i]->type.dtype == TN_I32 && same_shape(g->pool[i], now))
            next = g->pool[i];
    tn_t_yield(&g->b, &next, 1);
    g->depth--;
    g->n = pool;
    g->b.block = outer;
    return op->result;
}

static tn_tvalue *branch(generator *g)
{
    tn_tvalue *x = any_integer(g), *two = tn_t_index(&g->b, 2 * g->columns);
    tn_tvalue *cond = tn_t_map2(&g->b, TN_S_lt, tn_t_map2(&g->b, TN_S_rem, g->q, two), tn_t_index(&g->b, g->columns));
    tn_tblock *outer = g->b.block;
    tn_top *op = tn_t_if(&g->b, cond, 1, &x->type);
    g->b.block = op->region[0];
    tn_tvalue *y = tn_t_map2(&g->b, TN_S_sub, partner(g, x, TN_I32), x);
    tn_t_yield(&g->b, &y, 1);
    g->b.block = op->region[1];
    tn_t_yield(&g->b, &x, 1);
    g->b.block = outer;
    return op->result;
}

static tn_tvalue *dot(generator *g)
{
    tn_tvalue *x = any_integer(g), *y = any_integer(g);
    int r = x->type.rank;
    if (r < 2 || r > 3 || y->type.rank != r || (r == 3 && x->type.extent[0].size != y->type.extent[0].size))
        return NULL;
    if (x->type.extent[r - 1].size != y->type.extent[r - 2].size) {
        int axes[3] = {0, r - 1, r - 2};
        if (x->type.extent[r - 1].size != y->type.extent[r - 1].size)
            return NULL;
        y = tn_t_permute(&g->b, y, r == 2 ? (int[]){1, 0} : axes);
    }
    return tn_t_dot(&g->b, x, y, TN_I32, TN_IEEE);
}

/* A value kept in the local buffer and read back, shifted. */
static tn_tvalue *through_local(generator *g, tn_tvalue *x)
{
    int local = -1;
    for (size_t i = 0; i < g->kernel->buffers.len; i++)
        if (g->kernel->buffers.at[i].mode == TN_LOCAL)
            local = (int)i;
    tn_dim shape = constant(g, elements(&x->type)), one = constant(g, 1);
    tn_ttype flat = {.dtype = TN_I32, .rank = 1, .extent = {tn_extent_const(elements(&x->type))}};
    int64_t odd = elements(&x->type);
    while (odd % 2 == 0)
        odd /= 2;
    if (odd > 15)
        return NULL;
    tn_view *to = tn_kernel_view(g->kernel, "L", local, 1, &shape, &one, constant(g, 0));
    tn_view *from = tn_kernel_view(g->kernel, "M", local, 1, &shape, &one, constant(g, 0));
    tn_subscript s = tn_sub_block(zero(g), 0);
    tn_t_store(&g->b, to, &s, tn_t_const(&g->b, flat, tn_number_from_int(TN_I32, 5)));
    tn_t_store(&g->b, to, &s, tn_t_reshape(&g->b, x, flat));
    s.value = tn_t_index(&g->b, below(g, 3));
    return tn_t_load(&g->b, from, &s, flat);
}

static void grow(generator *g, int ops)
{
    for (int i = 0; i < ops; i++) {
        tn_tvalue *(*const make[])(generator *) = {load, map, map, map, cast, broadcast, permute, reshape, pairs, slice, gather, reduce, reduce_tree, scan, sort, histogram,
                                                    fold, loop, branch, dot, load_pointer, store_pointer, atomic_pointer};
        int64_t k = below(g, (int64_t)TN_COUNT(make) + 1);
        if (k == (int64_t)TN_COUNT(make))
            keep(g, g->depth ? NULL : through_local(g, any_integer(g)));
        else
            keep(g, make[k](g));
    }
}

/* Every program writes its results to places of their own. */
static void store_result(generator *g, tn_tvalue *x, int number)
{
    tn_dim m = g->x[0]->shape[0], n = g->x[0]->shape[1], shape[2 + TN_TILE_RANK], stride[2 + TN_TILE_RANK], size = constant(g, 1);
    tn_subscript s[2 + TN_TILE_RANK];
    shape[0] = m, shape[1] = n;
    s[0] = tn_sub_point(g->p), s[1] = tn_sub_point(g->q);
    for (int i = 0; i < x->type.rank; i++) {
        shape[2 + i] = constant(g, x->type.extent[i].size);
        s[2 + i] = tn_sub_block(zero(g), i);
    }
    for (int i = 2 + x->type.rank; i-- > 0; size = tn_dim_mul(g->session, size, shape[i]))
        stride[i] = size;
    char name[16];
    snprintf(name, sizeof name, "y%d", number);
    g->kernel->buffers.at[3 + number].elements = size;
    tn_view *view = tn_kernel_view(g->kernel, name, 3 + number, 2 + x->type.rank, shape, stride, constant(g, 0));
    tn_t_store(&g->b, view, s, x);
}

static tn_kernel *random_kernel(tn_session *session, uint64_t seed, bool apart, bool wide)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 16}, wide_sizes[] = {1, 4, 8, 16, 12, 32, 64, 96};
    tn_kernel *kernel = tn_kernel_new(session, "random");
    generator g = {.kernel = kernel, .session = session, .b = tn_tbuilder_at(kernel, kernel->body, TN_NO_LOC), .seed = seed, .apart = apart, .most = MAX_TILE};
    tn_dim m = tn_dim_symbol(session, "m"), n = tn_dim_symbol(session, "n"), one = constant(&g, 1), shape[] = {m, n}, stride[] = {n, one};
    tn_dim transposed[] = {one, m}, coef[] = {one, one};
    g.rows = sizes[below(&g, 4)], g.columns = sizes[below(&g, 6)];
    if (wide) /* some elements for each thread */
        g.rows = wide_sizes[below(&g, 6)], g.columns = wide_sizes[below(&g, 8)], g.most = MAX_WIDE;
    for (int i = 0; i < 3; i++)
        tn_kernel_buffer(kernel, (const char *[]){"a", "b", "c"}[i], TN_I32, TN_READ, tn_dim_mul(session, m, n));
    for (int i = 0; i < MAX_RESULTS; i++)
        tn_kernel_buffer(kernel, (const char *[]){"y0", "y1", "y2", "y3"}[i], TN_I32, TN_WRITE, constant(&g, 0));
    tn_kernel_buffer(kernel, "keep", TN_I32, TN_LOCAL, constant(&g, g.most));
    for (int i = 0; i < 3; i++)
        g.x[i] = tn_kernel_view(kernel, (const char *[]){"A", "B", "C"}[i], i, 2, shape, i == 1 ? transposed : stride, constant(&g, 0));
    g.x[1]->padded = true;
    g.x[1]->padding = tn_number_from_int(TN_I32, -7);
    tn_view_guard(kernel, g.x[2], coef, constant(&g, -1), tn_dim_add(session, n, one));
    g.p = tn_kernel_grid(kernel, "p", m, tn_extent_const(g.rows));
    g.q = tn_kernel_grid(kernel, "q", n, tn_extent_const(g.columns));
    tn_kernel_buffer(kernel, "d", TN_I32, TN_READ_WRITE, tn_dim_mul(session, tn_dim_mul(session, m, n), constant(&g, REGION)));
    kernel->overlap = below(&g, 2);
    tn_tvalue *program = tn_t_map2(&g.b, TN_S_add, tn_t_map2(&g.b, TN_S_mul, g.p, tn_t_size(&g.b, n)), g.q);
    program = tn_t_map2(&g.b, TN_S_mul, program, tn_t_index(&g.b, REGION));
    g.pointer = tn_t_addptr(&g.b, tn_kernel_scalar(kernel, "d", (tn_ttype){.dtype = TN_I32, .pointer = true}), program);
    keep(&g, tn_t_cast(&g.b, g.p, TN_I32));
    keep(&g, load(&g));
    keep(&g, load(&g));
    grow(&g, 3 + (int)below(&g, 14));
    for (int i = 0; i < MAX_RESULTS; i++)
        store_result(&g, i == 0 ? g.pool[g.n - 1]->type.dtype == TN_I32 ? g.pool[g.n - 1] : any_integer(&g) : any_integer(&g), i);
    return kernel;
}

static void test_random_kernels(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 16, 17};
    int64_t runs = getenv("TILE_RUNS") ? atoll(getenv("TILE_RUNS")) : 60, start = getenv("TILE_SEED") ? atoll(getenv("TILE_SEED")) : 0;
    for (int64_t i = start; i < start + runs; i++) {
        uint64_t seed = tn_hash_u64((uint64_t)i + 77);
        tn_session *session = new_test_session();
        tn_kernel *kernel = random_kernel(session, seed, false, false);
        const char *text = tile_text(kernel);
        variant v = {.size = {{"m", sizes[test_random(&seed) % 6]}, {"n", sizes[test_random(&seed) % 8]}}};
        if (getenv("TILE_TRACE"))
            fprintf(stderr, "// %lld\n%s", (long long)i, text);
        check_kernel(text, &v, seed);
        free_test_session(session);
    }
}

/* The same on a GPU, fewer: many threads take their time. */
static void test_random_kernels_gpu(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 16, 17};
    int64_t runs = getenv("TILE_RUNS") ? atoll(getenv("TILE_RUNS")) : 40, start = getenv("TILE_SEED") ? atoll(getenv("TILE_SEED")) : 0, refused = 0;
    for (int64_t i = start; i < start + runs; i++) {
        uint64_t seed = tn_hash_u64((uint64_t)i + 77);
        tn_session *session = new_test_session();
        tn_kernel *kernel = random_kernel(session, seed, true, i % 2);
        int64_t rows = kernel->grid.at[0].step.size, columns = kernel->grid.at[1].step.size;
        const char *text = tile_text(kernel);
        variant v = {.size = {{"m", rows + (int64_t)(test_random(&seed) % (uint64_t)rows)}, {"n", columns + (int64_t)(test_random(&seed) % (uint64_t)columns)}}};
        if (i % 2 == 0)
            v.size[0].value = sizes[test_random(&seed) % 6], v.size[1].value = sizes[test_random(&seed) % 8];
        if (getenv("TILE_TRACE"))
            fprintf(stderr, "// %lld\n%s", (long long)i, text);
        refused += check_gpu_kernel(text, &v, 1 << i / 2 % 4, seed) != TN_OK;
        free_test_session(session);
    }
    assert_true(refused <= runs / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels), cmocka_unit_test(test_random_kernels_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
