/* layout: transposes sink towards the results, through every operation that can as well work on the untransposed
 * data, until one meets its inverse and both go. With convolutions channels-last (canonicalize), a network of
 * convolutions, elementwise operations, pooling and concatenations keeps only the transposes of its inputs and
 * outputs.
 *
 *     %1 = transpose %x, permutation = [0, 3, 1, 2]       %1 = maximum %x, splat
 *     %2 = maximum %1, splat                          ->  %3 = %1
 *     %3 = transpose %2, permutation = [0, 2, 3, 1]
 *
 * A rule here never adds a transpose of data: other operands must be transposed alike, splats, broadcasts (which
 * only rename their dimensions), or constants (transposed once, at load). Sums of floats are only reordered where
 * the order of their elements stays. */
#include "opt/internal.h"

#include <string.h>

/* The permutation of v's transpose; NULL: v is none. */
static const int64_t *permutation_of(const tn_value *v)
{
    return tn_is_op(v, TN_OP_transpose) ? ints_of(v->def, TN_A_permutation) : NULL;
}

static void invert(const int64_t *p, int n, int64_t *inverse)
{
    for (int i = 0; i < n; i++)
        inverse[p[i]] = i;
}

/* out[p[i]] = list[i]: an attribute of the transposed data as one of the data. */
static void untranspose_ints(const int64_t *p, const int64_t *list, int n, int64_t *out)
{
    for (int i = 0; i < n; i++)
        out[p[i]] = list[i];
}

static void untranspose_dims(const int64_t *p, const tn_dim *list, int n, tn_dim *out)
{
    for (int i = 0; i < n; i++)
        out[p[i]] = list[i];
}

/* ---- operands -----------------------------------------------------------------------------------------------------
 */

enum { DEEPEST = 3 };

/* Nothing that holds data needs to move for it: splats, constants, what is spread out or counted up, and arithmetic on
 * such. */
static bool is_free(const tn_value *v, int depth)
{
    tn_number splat;
    if (v->type.rank == 0 || value_splat(v, &splat) || value_is_constant(v) || tn_is_op(v, TN_OP_broadcast_in_dim) ||
        tn_is_op(v, TN_OP_iota))
        return true;
    if (!v->def || depth == 0 || !(tn_op_traits(v->def->code) & TN_ELEMENTWISE))
        return false;
    for (int i = 0; i < v->def->noperands; i++)
        if (!is_free(tn_operand(v->def, i), depth - 1))
            return false;
    return true;
}

/* The permutation that every operand of [0, n) has which is not free; NULL: none, or they differ. */
static const int64_t *common_permutation(const tn_op *op, int n, int rank)
{
    const int64_t *common = NULL;
    for (int i = 0; i < n; i++) {
        const tn_value *v = tn_operand(op, i);
        const int64_t *p = value_is_constant(v) ? NULL : permutation_of(v);
        if (p && common && memcmp(p, common, (size_t)rank * sizeof *p) != 0)
            return NULL;
        if (!p && !is_free(v, DEEPEST))
            return NULL;
        common = p ? p : common;
    }
    return common;
}

/* v as it was before the transpose by p. */
static tn_value *untransposed(rewriter *rw, tn_value *v, const int64_t *p)
{
    const int64_t *own = permutation_of(v);
    int64_t inverse[TN_MAX_RANK];
    if (v->type.rank == 0)
        return v;
    if (own && memcmp(own, p, (size_t)v->type.rank * sizeof *p) == 0)
        return tn_operand(v->def, 0);
    if (v->def && (tn_op_traits(v->def->code) & TN_ELEMENTWISE) && v->def->noperands <= 3) { /* a free one */
        tn_value *operands[3];
        for (int i = 0; i < v->def->noperands; i++)
            operands[i] = untransposed(rw, tn_operand(v->def, i), p);
        tn_op *made = build_like(&rw->b, v->def, operands, NULL, 0);
        return made ? &made->result[0] : NULL;
    }
    invert(p, v->type.rank, inverse);
    return tn_transpose(&rw->b, v, inverse);
}

static bool replace_by_transpose(rewriter *rw, tn_op *op, tn_op *made, const int64_t *p)
{
    return made && rw_replace(rw, op, tn_transpose(&rw->b, &made->result[0], p));
}

/* ---- what looks at one place ----------------------------------------------------------------------------------- */

/* maximum(transpose(x), transpose(y)) -> transpose(maximum(x, y)) */
static bool sink_elementwise(rewriter *rw, tn_op *op)
{
    int rank = op->result[0].type.rank;
    tn_value *operands[3];
    const int64_t *p = rank ? common_permutation(op, op->noperands, rank) : NULL;
    if (!p || op->noperands > 3)
        return false;
    for (int i = 0; i < op->noperands; i++)
        operands[i] = untransposed(rw, tn_operand(op, i), p);
    return replace_by_transpose(rw, op, build_like(&rw->b, op, operands, NULL, 0), p);
}

static bool sink_concatenate(rewriter *rw, tn_op *op)
{
    const int64_t *p = common_permutation(op, op->noperands, op->result[0].type.rank);
    if (!p)
        return rw_decline(rw, op, "its operands are transposed differently");
    tn_value **operands = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands);
    for (int i = 0; i < op->noperands; i++)
        operands[i] = untransposed(rw, tn_operand(op, i), p);
    tn_attr change = {.name = TN_A_dimension, .i = p[tn_attr_int(op, TN_A_dimension, 0)]};
    return replace_by_transpose(rw, op, build_like(&rw->b, op, operands, &change, 1), p);
}

static bool sink_pad(rewriter *rw, tn_op *op)
{
    int rank = op->result[0].type.rank;
    const int64_t *p = permutation_of(tn_operand(op, 0));
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t interior[TN_MAX_RANK];
    if (!p)
        return false;
    untranspose_dims(p, dims_of(op, TN_A_low), rank, low);
    untranspose_dims(p, dims_of(op, TN_A_high), rank, high);
    untranspose_ints(p, ints_of(op, TN_A_interior), rank, interior);
    tn_attr changes[] = {attr_dims(TN_A_low, low, rank), attr_dims(TN_A_high, high, rank),
                         attr_ints(TN_A_interior, interior, rank)};
    tn_value *operands[] = {tn_operand(tn_operand(op, 0)->def, 0), tn_operand(op, 1)};
    return replace_by_transpose(rw, op, build_like(&rw->b, op, operands, changes, 3), p);
}

static bool sink_slice(rewriter *rw, tn_op *op)
{
    int rank = op->result[0].type.rank;
    const int64_t *p = permutation_of(tn_operand(op, 0));
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK];
    if (!p)
        return false;
    untranspose_dims(p, dims_of(op, TN_A_start), rank, start);
    untranspose_dims(p, dims_of(op, TN_A_limit), rank, limit);
    untranspose_ints(p, ints_of(op, TN_A_strides), rank, strides);
    tn_attr changes[] = {attr_dims(TN_A_start, start, rank), attr_dims(TN_A_limit, limit, rank),
                         attr_ints(TN_A_strides, strides, rank)};
    tn_value *x = tn_operand(tn_operand(op, 0)->def, 0);
    return replace_by_transpose(rw, op, build_like(&rw->b, op, &x, changes, 3), p);
}

static bool sink_reverse(rewriter *rw, tn_op *op)
{
    int n;
    const int64_t *p = permutation_of(tn_operand(op, 0)), *list = tn_attr_ints(op, TN_A_dimensions, &n);
    int64_t axes[TN_MAX_RANK];
    if (!p)
        return false;
    for (int i = 0; i < n; i++)
        axes[i] = p[list[i]];
    tn_attr change = attr_ints(TN_A_dimensions, axes, n);
    tn_value *x = tn_operand(tn_operand(op, 0)->def, 0);
    return replace_by_transpose(rw, op, build_like(&rw->b, op, &x, &change, 1), p);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------
 */

/* Does the order of the elements matter to the last bit? Not to what associates: maximum and minimum, and integers in
 * general. */
static bool order_matters(const tn_op *op)
{
    tn_opcode combine = op->nresults == 1 ? region_combine(op->region[0]) : TN_OP_COUNT;
    if (combine == TN_OP_COUNT)
        return true;
    tn_scalar fn = tn_op_scalar(op->region[0]->first);
    tn_dtype dtype = tn_operand(op, 0)->type.dtype;
    bool commutes = tn_scalar_traits(fn) & TN_SCALAR_COMMUTES, associates = tn_scalar_traits(fn) & TN_SCALAR_ASSOCIATES;
    bool rounds = (tn_is_float(dtype) || tn_is_complex(dtype)) && !(tn_scalar_traits(fn) & TN_SCALAR_IDEMPOTENT);
    return !commutes || !associates || rounds;
}

/* The dimensions i with counts[i] true keep their order under p. */
static bool order_stays(const int64_t *p, const bool *counts, int rank)
{
    int64_t last = -1;
    for (int i = 0; i < rank; i++) {
        if (!counts[i])
            continue;
        if (p[i] < last)
            return false;
        last = p[i];
    }
    return true;
}

/* All inputs transposed alike, initial values are scalars: the operands before it. NULL: not so. */
static tn_value **untransposed_inputs(rewriter *rw, const tn_op *op, const int64_t **p)
{
    int n = op->nresults;
    *p = common_permutation(op, n, tn_operand(op, 0)->type.rank);
    if (!*p)
        return NULL;
    tn_value **operands = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands);
    for (int i = 0; i < op->noperands; i++)
        operands[i] = i < n ? untransposed(rw, tn_operand(op, i), *p) : tn_operand(op, i);
    return operands;
}

/* The dimensions that remain, numbered anew: q[k] is the place of the k-th remaining one of the transposed data among
 * those of the data. */
static int remaining_permutation(const int64_t *p, int rank, const bool *reduced, int64_t *q)
{
    int64_t place[TN_MAX_RANK];
    bool reduced_before[TN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < rank; i++)
        reduced_before[p[i]] = reduced[i];
    for (int i = 0, k = 0; i < rank; i++)
        place[i] = reduced_before[i] ? -1 : k++;
    for (int i = 0; i < rank; i++)
        if (!reduced[i])
            q[n++] = place[p[i]];
    return n;
}

static bool replace_each_by_transpose(rewriter *rw, tn_op *op, tn_op *made, const int64_t *q)
{
    tn_value **to = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->nresults);
    for (int i = 0; made && i < op->nresults; i++)
        to[i] = tn_transpose(&rw->b, &made->result[i], q);
    return made && rw_replace_all(rw, op, to);
}

/* reduce(transpose(x), dimensions) -> transpose(reduce(x, their places in x)) */
static bool sink_reduce(rewriter *rw, tn_op *op)
{
    int n, rank = tn_operand(op, 0)->type.rank, at = 0;
    const int64_t *p, *list = tn_attr_ints(op, TN_A_dimensions, &n);
    bool reduced[TN_MAX_RANK] = {false}, counts[TN_MAX_RANK];
    int64_t axes[TN_MAX_RANK], q[TN_MAX_RANK];
    tn_value **operands = untransposed_inputs(rw, op, &p);
    if (!operands)
        return false;
    for (int i = 0; i < n; i++)
        reduced[list[i]] = true;
    for (int i = 0; i < rank; i++)
        counts[i] = reduced[i] && !tn_dim_is(tn_operand(op, 0)->type.dim[i], 1);
    if (order_matters(op) && !order_stays(p, counts, rank))
        return rw_decline(rw, op, "the order of summation would change");
    for (int64_t i = 0; i < rank; i++) /* in increasing order */
        for (int k = 0; k < n; k++)
            if (p[list[k]] == i)
                axes[at++] = i;
    remaining_permutation(p, rank, reduced, q);
    tn_attr change = attr_ints(TN_A_dimensions, axes, n);
    return replace_each_by_transpose(rw, op, build_like(&rw->b, op, operands, &change, 1), q);
}

static bool sink_window(rewriter *rw, tn_op *op)
{
    int rank = tn_operand(op, 0)->type.rank;
    const int64_t *p;
    bool counts[TN_MAX_RANK];
    tn_dim window[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], base[TN_MAX_RANK], dilation[TN_MAX_RANK];
    tn_value **operands = untransposed_inputs(rw, op, &p);
    if (!operands)
        return false;
    for (int i = 0; i < rank; i++)
        counts[i] = !tn_dim_is(dims_of(op, TN_A_window)[i], 1);
    if (order_matters(op) && !order_stays(p, counts, rank))
        return rw_decline(rw, op, "the order of summation would change");
    untranspose_dims(p, dims_of(op, TN_A_window), rank, window);
    untranspose_dims(p, dims_of(op, TN_A_padding_low), rank, low);
    untranspose_dims(p, dims_of(op, TN_A_padding_high), rank, high);
    untranspose_ints(p, ints_of(op, TN_A_window_strides), rank, strides);
    untranspose_ints(p, ints_of(op, TN_A_base_dilation), rank, base);
    untranspose_ints(p, ints_of(op, TN_A_window_dilation), rank, dilation);
    tn_attr changes[] = {attr_dims(TN_A_window, window, rank),      attr_dims(TN_A_padding_low, low, rank),
                         attr_dims(TN_A_padding_high, high, rank),  attr_ints(TN_A_window_strides, strides, rank),
                         attr_ints(TN_A_base_dilation, base, rank), attr_ints(TN_A_window_dilation, dilation, rank)};
    return replace_each_by_transpose(rw, op, build_like(&rw->b, op, operands, changes, TN_COUNT(changes)), p);
}

/* ---- reshape, broadcast -------------------------------------------------------------------------------------------
 */

/* One run of dimensions of the transposed operand [i0, i1) that a run of the result [k0, k1) has the elements of. */
typedef struct segment {
    int i0, i1, k0, k1;
} segment;

/* Cuts both shapes into the smallest runs of equal products; 0: they can't be matched. */
static int cut(rewriter *rw, const tn_type *from, const tn_type *to, segment *out)
{
    tn_session *s = rw->session;
    int i = 0, k = 0, n = 0;
    while (i < from->rank && k < to->rank) {
        segment *g = &out[n++];
        g->i0 = i;
        g->k0 = k;
        tn_dim a = from->dim[i++], b = to->dim[k++];
        while (!tn_dim_eq(s, a, b)) {
            bool left = i < from->rank && tn_dim_le(s, a, b) && !tn_dim_is(a, 0);
            if (!left && (k == to->rank || !tn_dim_le(s, b, a)))
                return 0;
            if (left)
                a = tn_dim_mul(s, a, from->dim[i++]);
            else
                b = tn_dim_mul(s, b, to->dim[k++]);
        }
        g->i1 = i;
        g->k1 = k;
    }
    if (n == 0)
        return 0;
    for (; i < from->rank; i++) /* what is left must be sizes of 1 */
        if (!tn_dim_is(from->dim[i], 1))
            return 0;
    for (; k < to->rank; k++)
        if (!tn_dim_is(to->dim[k], 1))
            return 0;
    out[n - 1].i1 = from->rank;
    out[n - 1].k1 = to->rank;
    return n;
}

/* reshape(transpose(x, p)) as transpose(reshape(transpose(x, inner), shape), outer): the runs that are split or merged
 * are put in the order that their first dimensions have in x, so that `inner` only brings together what is merged. */
typedef struct regrouping {
    int64_t inner[TN_MAX_RANK], outer[TN_MAX_RANK];
    tn_dim shape[TN_MAX_RANK];
    int rank;
} regrouping;

static bool regroup(rewriter *rw, const tn_op *reshape, regrouping *out)
{
    const tn_value *v = tn_operand(reshape, 0);
    const int64_t *p = permutation_of(v);
    const tn_type *to = &reshape->result[0].type;
    segment list[TN_MAX_RANK];
    int order[TN_MAX_RANK], moved = 0;
    int n = p ? cut(rw, &v->type, to, list) : 0;
    out->rank = 0;
    for (int g = 0; g < n; g++) {
        int k = g;
        for (; k > 0 && p[list[order[k - 1]].i0] > p[list[g].i0]; k--)
            order[k] = order[k - 1];
        order[k] = g;
    }
    for (int o = 0; o < n; o++) {
        const segment *run = &list[order[o]];
        for (int i = run->i0; i < run->i1; i++)
            out->inner[moved++] = p[i];
        for (int k = run->k0; k < run->k1; k++) {
            out->outer[k] = out->rank;
            out->shape[out->rank++] = to->dim[k];
        }
    }
    return n > 0;
}

/* reshape(transpose(x)) -> transpose(reshape(x)) where what is merged lies together in x */
static bool sink_reshape(rewriter *rw, tn_op *op)
{
    regrouping r;
    if (!regroup(rw, op, &r))
        return false;
    const tn_op *transpose = tn_operand(op, 0)->def;
    if (!permutation_is_identity(r.inner, transpose->result[0].type.rank))
        return rw_decline(rw, op, "dimensions that are joined lie apart before the transpose");
    tn_value *made = tn_reshape(&rw->b, tn_operand(transpose, 0), r.shape, r.rank);
    return rw_replace(rw, op, permutation_is_identity(r.outer, r.rank) ? made : tn_transpose(&rw->b, made, r.outer));
}

/* transpose(reshape(transpose(x))) -> reshape(transpose(x)) where the outer transpose undoes what the reshape's runs
 * need not (a shuffle of channels) */
static bool transpose_regrouped(rewriter *rw, tn_op *op)
{
    const tn_value *v = tn_operand(op, 0);
    const int64_t *t = ints_of(op, TN_A_permutation);
    regrouping r;
    if (!tn_is_op(v, TN_OP_reshape) || !regroup(rw, v->def, &r))
        return false;
    for (int i = 0; i < r.rank; i++)
        if (r.outer[t[i]] != i)
            return rw_decline(rw, op, "it does not undo the transpose before the reshape");
    tn_value *x = tn_operand(tn_operand(v->def, 0)->def, 0);
    return rw_replace(rw, op, tn_reshape(&rw->b, tn_transpose(&rw->b, x, r.inner), r.shape, r.rank));
}

/* broadcast_in_dim(transpose(x)) -> broadcast_in_dim(x) */
static bool broadcast_transposed(rewriter *rw, tn_op *op)
{
    const tn_value *v = tn_operand(op, 0);
    const int64_t *p = permutation_of(v), *spread = ints_of(op, TN_A_broadcast_dimensions);
    const tn_type *to = &op->result[0].type;
    int64_t map[TN_MAX_RANK];
    if (!p)
        return false;
    untranspose_ints(p, spread, v->type.rank, map);
    return rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, tn_operand(v->def, 0), to->dim, to->rank, map));
}

/* ---- the pass -----------------------------------------------------------------------------------------------------
 */

tn_status opt_layout(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    static const rule rules[] = {
        RULE_FOR(TN_ELEMENTWISE, sink_elementwise, EXACT),
        RULE(concatenate, sink_concatenate, EXACT),
        RULE(pad, sink_pad, EXACT),
        RULE(slice, sink_slice, EXACT),
        RULE(reverse, sink_reverse, EXACT),
        RULE(reduce, sink_reduce, EXACT),
        RULE(reduce_window, sink_window, EXACT),
        RULE(reshape, sink_reshape, EXACT),
        RULE(transpose, transpose_regrouped, EXACT),
        RULE(broadcast_in_dim, broadcast_transposed, EXACT),
        {.apply = NULL},
    };
    static const rule *const sets[] = {opt_movement_rules, rules};
    return rw_run(graph, options, "layout", sets, TN_COUNT(sets), NULL, changed);
}
