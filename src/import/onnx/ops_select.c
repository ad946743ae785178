/* Unique, and the counts of n-grams. */
#include "import/onnx/emit.h"

#include <string.h>

/* ---- unique
 * ------------------------------------------------------------------------------------------------------------------ */

/* Sorts keys ascending, stable, with a payload; results in place. */
static bool sort_with(onnx_ctx *c, tn_value **key, tn_value **payload)
{
    if (!*key || !*payload)
        return false;
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_type types[] = {tn_type_scalar((*key)->type.dtype), tn_type_scalar((*payload)->type.dtype)};
    tn_value *a = tn_block_arg(block, &types[0], NULL), *b = tn_block_arg(block, &types[0], NULL);
    tn_block_arg(block, &types[1], NULL);
    tn_block_arg(block, &types[1], NULL);
    tn_builder inner = tn_builder_at_end(block, c->b.loc);
    tn_value *less = emit_comes_before(&inner, "LT", a, b);
    tn_return(&inner, &less, 1);
    tn_attr attrs[] = {{.name = TN_A_dimension, .i = 0}, {.name = TN_A_stable, .i = 1}};
    tn_op *op = tn_build(&c->b, TN_OP_sort, (tn_value *[]){*key, *payload}, 2, attrs, 2, &block, 1);
    if (!op)
        return false;
    *key = &op->result[0];
    *payload = &op->result[1];
    return true;
}

/* One number a slice along axis, equal for equal slices and ordered as they are (lexicographically): how many are
 * smaller. */
static tn_value *slice_ranks(onnx_ctx *c, tn_value *x, int axis)
{
    int64_t permutation[TN_MAX_RANK];
    int at = 1, rank = x->type.rank;
    permutation[0] = axis;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            permutation[at++] = i;
    x = tn_transpose(&c->b, x, permutation);
    if (!x)
        return NULL;
    tn_dim rows = x->type.dim[0], width = tn_dim_product(c->session, x->type.dim + 1, rank - 1), flat[] = {rows, width};
    x = tn_reshape(&c->b, x, flat, 2);
    tn_dim dims[] = {rows, rows, width};
    tn_value *a = x ? emit_broadcast(c, x, dims, 3, EMIT_AXES(0, 2)) : NULL;
    tn_value *b = x ? emit_broadcast(c, x, dims, 3, EMIT_AXES(1, 2)) : NULL;
    int64_t last = 2;
    tn_value *column = tn_iota(&c->b, TN_I64, dims, 3, 2), *none = emit_highest(c, TN_I64);
    tn_value *first =
        emit_reduce(c, TN_OP_minimum, emit_select(c, emit_compare(c, "NE", a, b), column, none), &last, 1);
    if (!first || !column)
        return NULL;
    tn_value *decides = emit_compare(c, "EQ", column, emit_spread(c, first, &column->type, &last, 1));
    tn_value *less = emit_reduce(c, TN_OP_or, emit_and(c, decides, emit_compare(c, "LT", a, b)), &last, 1);
    return emit_sum_axis(c, tn_convert(&c->b, less, TN_I64), 0);
}

typedef struct groups {
    tn_value *first, *counts, *inverse; /* [groups], [groups], [n] */
} groups;

static tn_value *column_of(onnx_ctx *c, tn_value *x)
{
    return x ? tn_reshape(&c->b, x, (tn_dim[]){x->type.dim[0], emit_dim(c, 1)}, 2) : NULL;
}

static tn_value *filled(onnx_ctx *c, tn_dim size)
{
    return emit_fill(c, tn_int_constant(&c->b, TN_I64, 0), &size, 1);
}

/* Groups of equal keys (rank 1) in ascending order: smallest position, size, and which group each position belongs to.
 */
static bool group_keys(onnx_ctx *c, const onnx_node *n, tn_value *key, groups *out)
{
    tn_dim size = key->type.dim[0], number, one = emit_dim(c, 1);
    tn_value *place = tn_iota(&c->b, TN_I64, &size, 1, 0), *order = place;
    if (!sort_with(c, &key, &order))
        return false;
    tn_dim back = emit_dim(c, -1);
    tn_value *before = emit_pad_zero(c, key, &one, &back, emit_number(c, key->type.dtype, 0));
    tn_value *starts = emit_or(c, emit_compare(c, "NE", key, before), emit_compare_number(c, "EQ", place, 0));
    tn_value *ones = tn_convert(&c->b, starts, TN_I64), *total = emit_sum_axis(c, ones, 0);
    tn_value *group = emit_add_number(c, emit_scan(c, TN_OP_add, ones, 0), -1);
    if (!total || !group || !onnx_runtime_dims(c, n, total, 1, &size, &number))
        return false;
    tn_value *target = emit_select(c, starts, group, emit_highest(c, TN_I64)); /* out of bounds: dropped */
    out->first = emit_put_nd(c, filled(c, number), column_of(c, target), order, TN_OP_return);
    tn_value *each = emit_fill(c, tn_int_constant(&c->b, TN_I64, 1), &size, 1);
    out->counts = emit_put_nd(c, filled(c, number), column_of(c, group), each, TN_OP_add);
    out->inverse = emit_put_nd(c, filled(c, size), column_of(c, order), group, TN_OP_return);
    return out->first && out->counts && out->inverse;
}

/* Groups in the order of their first position instead. */
static bool by_appearance(onnx_ctx *c, groups *g)
{
    tn_dim number = g->first->type.dim[0];
    tn_value *place = tn_iota(&c->b, TN_I64, &number, 1, 0), *order = place;
    if (!sort_with(c, &g->first, &order))
        return false;
    g->counts = emit_take_some(c, g->counts, order, 0);
    tn_value *rank = emit_put_nd(c, filled(c, number), column_of(c, order), place, TN_OP_return);
    g->inverse = emit_take_some(c, rank, g->inverse, 0);
    return g->counts && g->inverse;
}

bool onnx_op_unique(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *key = x;
    int axis = 0;
    groups g;
    if (onnx_has_attr(n, "axis")) {
        if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), x->type.rank, &axis))
            return false;
        if (x->type.rank > 1)
            key = slice_ranks(c, x, axis);
    } else {
        tn_dim count = tn_type_elements(c->session, &x->type);
        key = x = tn_reshape(&c->b, x, &count, 1);
    }
    if (!key || !group_keys(c, n, key, &g) || (!onnx_attr_int(c, n, "sorted", 1) && !by_appearance(c, &g)))
        return false;
    return onnx_set_output(c, n, 0, emit_take_some(c, x, g.first, axis)) && onnx_set_output(c, n, 1, g.first) &&
           onnx_set_output(c, n, 2, g.inverse) && onnx_set_output(c, n, 3, g.counts);
}

/* ---- n-grams
 * ------------------------------------------------------------------------------------------------------------------ */

typedef struct ngrams {
    const int64_t *pool, *starts, *indexes;
    int npool, nstarts, nindexes;
    int64_t least, most, skips, width;
    tn_value *x; /* [rows, length] i64 */
    int64_t length;
} ngrams;

/* How often each of the `count` grams of `size` from pool[from] on occurs in each row: f32 [rows, count]. */
static tn_value *gram_counts(onnx_ctx *c, const ngrams *g, int64_t size, int64_t from, int64_t count)
{
    tn_value *sum = NULL;
    for (int64_t skip = 0; skip <= (size == 1 ? 0 : g->skips); skip++) {
        int64_t windows = g->length - (size - 1) * (skip + 1);
        if (windows < 1)
            break;
        tn_dim dims[] = {g->x->type.dim[0], emit_dim(c, windows), emit_dim(c, count)};
        tn_value *match = NULL;
        for (int64_t k = 0; k < size; k++) {
            int64_t *column = TN_NEW_ARRAY(&c->session->arena, int64_t, (size_t)count);
            for (int64_t i = 0; i < count; i++)
                column[i] = g->pool[from + i * size + k];
            int64_t start = k * (skip + 1);
            tn_value *item = emit_slice_axis(c, g->x, 1, emit_dim(c, start), emit_dim(c, start + windows), 1);
            item = item ? emit_broadcast(c, item, dims, 3, EMIT_AXES(0, 1)) : NULL;
            tn_value *want = emit_broadcast(c, onnx_ints(c, TN_I64, column, (int)count), dims, 3, EMIT_AXES(2));
            tn_value *equal = emit_compare(c, "EQ", item, want);
            match = match ? emit_and(c, match, equal) : equal;
        }
        tn_value *found = emit_sum_axis(c, tn_convert(&c->b, match, TN_F32), 1);
        sum = sum ? emit_add(c, sum, found) : found;
    }
    tn_dim dims[] = {g->x->type.dim[0], emit_dim(c, count)};
    return sum ? sum : emit_fill(c, emit_number(c, TN_F32, 0), dims, 2);
}

static bool read_ngrams(onnx_ctx *c, const onnx_node *n, ngrams *g)
{
    *g =
        (ngrams){.least = onnx_attr_int(c, n, "min_gram_length", 1), .most = onnx_attr_int(c, n, "max_gram_length", 1)};
    g->skips = onnx_attr_int(c, n, "max_skip_count", 0);
    g->pool = onnx_attr_ints(c, n, "pool_int64s", &g->npool);
    g->starts = onnx_attr_ints(c, n, "ngram_counts", &g->nstarts);
    g->indexes = onnx_attr_ints(c, n, "ngram_indexes", &g->nindexes);
    if (!g->pool)
        return onnx_unsupported(c, n, "a pool of strings");
    if (!g->starts || !g->indexes || g->least < 1 || g->most < g->least || g->skips < 0 || g->skips > INT16_MAX ||
        g->most > g->nstarts)
        return onnx_error(c, n, "gram lengths, counts and indexes do not fit together");
    for (int i = 0; i < g->nstarts; i++) {
        int64_t end = i + 1 < g->nstarts ? g->starts[i + 1] : g->npool;
        if (g->starts[i] < 0 || end < g->starts[i] || end > g->npool || (end - g->starts[i]) % (i + 1))
            return onnx_error(c, n, "`ngram_counts` must divide the pool, found %lld at %d", (long long)g->starts[i],
                              i);
    }
    for (int i = 0; i < g->nindexes; i++) {
        if (g->indexes[i] < 0 || g->indexes[i] >= INT32_MAX)
            return onnx_error(c, n, "`ngram_indexes` must lie in [0, 2^31 - 1), found %lld", (long long)g->indexes[i]);
        g->width = tn_max(g->width, g->indexes[i] + 1);
    }
    return true;
}

/* All grams' counts side by side, in pool order, and a last column of zeros. */
static tn_value *all_counts(onnx_ctx *c, const ngrams *g, int64_t *grams)
{
    tn_value *parts[TN_MAX_RANK + 1];
    int nparts = 0;
    *grams = 0;
    for (int i = 0; i < g->nstarts && nparts < TN_MAX_RANK; i++) {
        int64_t end = i + 1 < g->nstarts ? g->starts[i + 1] : g->npool, count = (end - g->starts[i]) / (i + 1);
        tn_dim dims[] = {g->x->type.dim[0], emit_dim(c, count)};
        if (count == 0)
            continue;
        bool counted = i + 1 >= g->least && i + 1 <= g->most;
        parts[nparts] =
            counted ? gram_counts(c, g, i + 1, g->starts[i], count) : emit_fill(c, emit_number(c, TN_F32, 0), dims, 2);
        if (!parts[nparts++])
            return NULL;
        *grams += count;
    }
    tn_dim dims[] = {g->x->type.dim[0], emit_dim(c, 1)};
    parts[nparts++] = emit_fill(c, emit_number(c, TN_F32, 0), dims, 2);
    return tn_concatenate(&c->b, parts, nparts, 1);
}

bool onnx_op_tfidf(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    ngrams g;
    int64_t grams;
    int nweights;
    const float *weights = onnx_attr_floats(c, n, "weights", &nweights);
    const char *mode = onnx_attr_string(c, n, "mode", "TF");
    if (!read_ngrams(c, n, &g))
        return false;
    if (x->type.rank < 1 || x->type.rank > 2 || !tn_dim_is_const(x->type.dim[x->type.rank - 1]))
        return onnx_unsupported(c, n, "the input must have rank 1 or 2 and rows of a known length");
    bool vector = x->type.rank == 1;
    tn_dim rows[] = {vector ? emit_dim(c, 1) : x->type.dim[0], x->type.dim[x->type.rank - 1]};
    g.length = rows[1]->value;
    g.x = tn_convert(&c->b, tn_reshape(&c->b, x, rows, 2), TN_I64);
    /* Places and weights, and the pool's columns once for each skip. */
    int64_t tables = (g.npool * (g.skips + 1) + g.width) * 2 * (int64_t)sizeof(int64_t); /* at most 2^31 * 2^15 and 2^31 of them */
    if (!onnx_charge(c, n, (size_t)tables))
        return false;
    tn_value *counts = g.x ? all_counts(c, &g, &grams) : NULL;
    if (!counts)
        return false;
    if (grams != g.nindexes || (weights && nweights != grams))
        return onnx_error(c, n, "the pool has %lld grams, but there are %d indexes and %d weights", (long long)grams,
                          g.nindexes, nweights);
    int64_t *from = TN_NEW_ARRAY(&c->session->arena, int64_t, (size_t)g.width);
    double *weight = TN_NEW_ARRAY(&c->session->arena, double, (size_t)g.width);
    for (int64_t i = 0; i < g.width; i++) {
        from[i] = grams; /* the zeros */
        weight[i] = 1;
    }
    for (int64_t i = 0; i < grams; i++) {
        from[g.indexes[i]] = i;
        weight[g.indexes[i]] = weights ? (double)weights[i] : 1;
    }
    tn_value *y = emit_take(c, counts, onnx_ints(c, TN_I64, from, (int)g.width), 1);
    if (strcmp(mode, "IDF") == 0)
        y = tn_convert(&c->b, emit_compare_number(c, "GT", y, 0), TN_F32);
    if (strcmp(mode, "TF") != 0 && y)
        y = emit_mul(c, y, emit_along(c, emit_doubles(c, TN_F32, weight, g.width), &y->type, 1));
    if (vector && y)
        y = tn_reshape(&c->b, y, y->type.dim + 1, 1);
    return onnx_set_output(c, n, 0, y);
}
