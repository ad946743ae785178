/* Non-maximum suppression, determinants, and operators of ai.onnx.ml that are tensor arithmetic. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- non-maximum suppression
 * --------------------------------------------------------------------------------------------------- All batches and
 * classes at once: in each step the best remaining box of each is chosen and the boxes that overlap it are struck out.
 * The chosen boxes are then brought together in order by a stable sort, and counted. */

typedef struct nms {
    tn_dim batch, classes, boxes, steps;
    tn_value *edge[4]; /* low y, low x, high y, high x: [B, N] */
    tn_value *area;    /* [B, N] */
    tn_value *overlap; /* rank 0: threshold */
} nms;

static tn_value *over_classes(onnx_ctx *c, const nms *m, tn_value *x)
{
    tn_dim dims[] = {m->batch, m->classes, m->boxes};
    return x ? emit_broadcast(c, x, dims, 3, EMIT_AXES(0, 2)) : NULL;
}

/* Value of x [B, N] at the box that `hit` [B, C, N] marks, spread over [B, C, N]. */
static tn_value *at_hit(onnx_ctx *c, const nms *m, tn_value *x, tn_value *hit)
{
    tn_value *wide = over_classes(c, m, x);
    if (!wide)
        return NULL;
    int64_t axis = 2;
    tn_value *one = emit_sum_axis(c, emit_select(c, hit, wide, emit_number(c, wide->type.dtype, 0)), 2);
    return emit_spread(c, one, &wide->type, &axis, 1);
}

/* Carried: scores [B, C, N] (-inf: out), chosen [B, C, K] i64 (-1: none). */
static bool nms_body(onnx_ctx *c, void *context, tn_value *step, tn_value *const *carried, tn_value **next)
{
    const nms *m = context;
    tn_value *score = carried[0], *zero = emit_number(c, score->type.dtype, 0);
    tn_type type = score->type;
    int64_t axis = 2;
    tn_value *best = emit_arg_max(c, score, 2, false);
    tn_value *top = emit_reduce(c, TN_OP_maximum, score, &axis, 1);
    tn_value *valid = emit_compare_number(c, "GT", top, -INFINITY);
    tn_value *hit = emit_compare(c, "EQ", emit_iota_like(c, TN_I64, &type, 2), emit_spread(c, best, &type, &axis, 1));
    tn_value *extent[2];
    for (int i = 0; i < 2; i++) {
        tn_value *high = emit_min(c, over_classes(c, m, m->edge[2 + i]), at_hit(c, m, m->edge[2 + i], hit));
        tn_value *low = emit_max(c, over_classes(c, m, m->edge[i]), at_hit(c, m, m->edge[i], hit));
        extent[i] = emit_max(c, emit_sub(c, high, low), zero);
    }
    tn_value *common = emit_mul(c, extent[0], extent[1]);
    tn_value *joint = emit_sub(c, emit_add(c, over_classes(c, m, m->area), at_hit(c, m, m->area, hit)), common);
    tn_value *ratio = emit_select(c, emit_compare_number(c, "GT", joint, 0), emit_div(c, common, joint), zero);
    tn_value *out = emit_or(c, hit, emit_compare(c, "GT", ratio, m->overlap));
    next[0] = emit_select(c, out, emit_number(c, type.dtype, -INFINITY), score);
    tn_value *entry = emit_select(c, valid, best, emit_number(c, TN_I64, -1));
    tn_value *place = emit_compare(c, "EQ", emit_iota_like(c, TN_I64, &carried[1]->type, 2), step);
    next[1] = !entry ? NULL : emit_select(c, place, emit_spread(c, entry, &carried[1]->type, &axis, 1), carried[1]);
    return next[0] && next[1];
}

/* Corners (y1, x1, y2, x2) in any order, or centre and size (x, y, width, height). */
static bool nms_boxes(onnx_ctx *c, const onnx_node *n, nms *m)
{
    tn_value *boxes = n->input[0], *part[4];
    tn_dim dims[] = {m->batch, m->boxes};
    for (int i = 0; i < 4; i++) {
        part[i] = emit_slice_axis(c, boxes, 2, emit_dim(c, i), emit_dim(c, i + 1), 1);
        part[i] = part[i] ? tn_reshape(&c->b, part[i], dims, 2) : NULL;
    }
    for (int i = 0; i < 2; i++) {
        if (onnx_attr_int(c, n, "center_point_box", 0)) {
            tn_value *half = emit_mul_number(c, part[3 - i], 0.5);
            m->edge[i] = emit_sub(c, part[1 - i], half);
            m->edge[2 + i] = emit_add(c, part[1 - i], half);
        } else {
            m->edge[i] = emit_min(c, part[i], part[2 + i]);
            m->edge[2 + i] = emit_max(c, part[i], part[2 + i]);
        }
    }
    m->area = emit_mul(c, emit_sub(c, m->edge[2], m->edge[0]), emit_sub(c, m->edge[3], m->edge[1]));
    return m->area != NULL;
}

/* (key a, key b, …payloads) -> a < b. */
static tn_block *ascending_block(onnx_ctx *c, const tn_dtype *types, int n)
{
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_value *key[2] = {NULL, NULL};
    for (int i = 0; i < 2 * n; i++) {
        tn_type scalar = tn_type_scalar(types[i / 2]);
        tn_value *argument = tn_block_arg(block, &scalar, NULL);
        if (i < 2)
            key[i] = argument;
    }
    tn_builder inner = tn_builder_at_end(block, c->b.loc);
    tn_value *less = tn_compare(&inner, "LT", key[0], key[1]);
    tn_return(&inner, &less, 1);
    return block;
}

/* chosen [B, C, K]: rows (batch, class, box) of the entries that are not -1, in order. */
static tn_value *nms_rows(onnx_ctx *c, const onnx_node *n, tn_value *chosen)
{
    tn_type type = chosen->type;
    tn_dim total = tn_type_elements(c->session, &type), count, none = emit_dim(c, 0);
    tn_value *empty = tn_convert(&c->b, emit_compare_number(c, "LT", chosen, 0), TN_I32);
    tn_value *operands[4] = {empty, emit_iota_like(c, TN_I64, &type, 0), emit_iota_like(c, TN_I64, &type, 1), chosen};
    for (int i = 0; i < 4; i++)
        if (!operands[i] || !(operands[i] = tn_reshape(&c->b, operands[i], &total, 1)))
            return NULL;
    tn_block *order = ascending_block(c, (tn_dtype[]){TN_I32, TN_I64, TN_I64, TN_I64}, 4);
    tn_attr attrs[] = {{.name = TN_A_dimension, .i = 0}, {.name = TN_A_stable, .i = 1}};
    tn_op *sort = tn_build(&c->b, TN_OP_sort, operands, 4, attrs, 2, &order, 1);
    tn_value *kept = emit_sub(c, emit_number(c, TN_I64, 1), tn_convert(&c->b, operands[0], TN_I64));
    tn_value *number = emit_sum_axis(c, kept, 0), *columns[3];
    if (!sort || !number || !onnx_runtime_dims(c, n, number, 1, &total, &count))
        return NULL;
    for (int i = 0; i < 3; i++) {
        tn_value *column = emit_slice_axis(c, &sort->result[i + 1], 0, none, count, 1);
        columns[i] = column ? tn_reshape(&c->b, column, (tn_dim[]){count, emit_dim(c, 1)}, 2) : NULL;
        if (!columns[i])
            return NULL;
    }
    return tn_concatenate(&c->b, columns, 3, 1);
}

static tn_value *scalar_or(onnx_ctx *c, tn_value *x, tn_dtype dtype, double otherwise)
{
    if (!x)
        return emit_number(c, dtype, otherwise);
    x = tn_convert(&c->b, x, dtype);
    return x ? tn_reshape(&c->b, x, NULL, 0) : NULL;
}

bool onnx_op_non_max_suppression(onnx_ctx *c, const onnx_node *n)
{
    tn_value *score = n->input[1], *most = onnx_in(n, 2), *threshold = onnx_in(n, 4);
    tn_dtype dtype = score->type.dtype;
    nms m = {.batch = score->type.dim[0], .classes = score->type.dim[1], .boxes = score->type.dim[2]};
    tn_dim limit = emit_dim(c, 0);
    if (most && !onnx_runtime_dims(c, n, most, 1, NULL, &limit))
        return false;
    m.steps = tn_dim_min(c->session, limit, m.boxes);
    m.overlap = scalar_or(c, onnx_in(n, 3), dtype, 0);
    if (!m.overlap || !nms_boxes(c, n, &m))
        return false;
    if (threshold) {
        tn_value *passes = emit_compare(c, "GT", score, scalar_or(c, threshold, dtype, 0));
        score = emit_select(c, passes, score, emit_number(c, dtype, -INFINITY));
    }
    tn_dim dims[] = {m.batch, m.classes, m.steps};
    tn_value *init[] = {score, emit_fill(c, emit_number(c, TN_I64, -1), dims, 3)}, *final[2];
    if (!emit_counted_loop(c, emit_size(c, m.steps, TN_I64), init, 2, nms_body, &m, final))
        return false;
    return onnx_set_output(c, n, 0, nms_rows(c, n, final[1]));
}

/* ---- determinant
 * ------------------------------------------------------------------------------------------------------------------ */

/* Elimination with partial pivoting, one column a step; x [..., n, n] keeps its size, finished rows are masked. */
bool onnx_op_det(onnx_ctx *c, const onnx_node *n)
{
    enum { MAX_SIZE = 64 };
    tn_value *x = n->input[0], *product = NULL;
    int rank = x->type.rank;
    if (rank < 2 || !tn_dim_is_const(x->type.dim[rank - 1]) ||
        !tn_dim_eq(c->session, x->type.dim[rank - 1], x->type.dim[rank - 2]))
        return onnx_error(c, n, "input must be square matrices of a known size");
    int64_t size = x->type.dim[rank - 1]->value, row_axis = rank - 2, column_axis = rank - 1;
    if (size > MAX_SIZE)
        return onnx_unsupported(c, n, "matrices larger than %d", MAX_SIZE);
    tn_type type = x->type, column_type = x->type;
    column_type.rank = rank - 1; /* [..., n]: rows of one column */
    tn_dtype dtype = type.dtype;
    tn_value *zero = emit_number(c, dtype, 0), *one = emit_number(c, dtype, 1);
    tn_value *rows = emit_iota_like(c, TN_I64, &column_type, (int)row_axis);
    for (int64_t k = 0; k < size; k++) {
        tn_value *column = emit_slice_axis(c, x, (int)column_axis, emit_dim(c, k), emit_dim(c, k + 1), 1);
        column = column ? tn_reshape(&c->b, column, column_type.dim, column_type.rank) : NULL;
        tn_value *open = emit_compare_number(c, "GE", rows, (double)k);
        tn_value *rating = emit_select(c, open, emit_unary(c, TN_OP_abs, column), emit_number(c, dtype, -1));
        tn_value *best = emit_arg_max(c, rating, (int)row_axis, false);
        tn_value *is_best = emit_compare(c, "EQ", rows, emit_spread(c, best, &column_type, &row_axis, 1));
        tn_value *is_top = emit_compare_number(c, "EQ", rows, (double)k);
        tn_value *pivot_row = emit_reduce(
            c, TN_OP_add, emit_select(c, emit_spread(c, is_best, &type, &column_axis, 1), x, zero), &row_axis, 1);
        tn_value *top_row = emit_reduce(
            c, TN_OP_add, emit_select(c, emit_spread(c, is_top, &type, &column_axis, 1), x, zero), &row_axis, 1);
        tn_value *pivot = emit_reduce(c, TN_OP_add, emit_select(c, is_best, column, zero), &row_axis, 1);
        tn_value *wide_pivot = emit_spread(c, pivot_row, &type, &row_axis, 1);
        if (!pivot || !wide_pivot || !top_row)
            return false;
        /* Row k and the pivot's change places; below, the pivot's multiples go off. */
        x = emit_select(c, emit_spread(c, is_best, &type, &column_axis, 1),
                        emit_spread(c, top_row, &type, &row_axis, 1), x);
        x = emit_select(c, emit_spread(c, is_top, &type, &column_axis, 1), wide_pivot, x);
        tn_value *below = emit_slice_axis(c, x, (int)column_axis, emit_dim(c, k), emit_dim(c, k + 1), 1);
        below = below ? tn_reshape(&c->b, below, column_type.dim, column_type.rank) : NULL;
        tn_value *safe = emit_select(c, emit_compare_number(c, "EQ", pivot, 0), one, pivot);
        tn_value *factor = emit_div(c, below, emit_spread(c, safe, &column_type, &row_axis, 1));
        factor = emit_select(c, emit_compare_number(c, "GT", rows, (double)k), factor, zero);
        x = emit_sub(c, x, emit_mul(c, emit_spread(c, factor, &type, &column_axis, 1), wide_pivot));
        tn_value *sign = emit_select(c, emit_compare_number(c, "EQ", best, (double)k), one, emit_number(c, dtype, -1));
        tn_value *term = emit_mul(c, pivot, sign);
        product = product ? emit_mul(c, product, term) : term;
    }
    return onnx_set_output(c, n, 0, product ? product : emit_fill(c, one, type.dim, rank - 2));
}

/* ---- ai.onnx.ml
 * ----------------------------------------------------------------------------------------------------------------------
 */

bool onnx_op_binarizer(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_value *above = emit_compare_number(c, "GT", x, onnx_attr_float(c, n, "threshold", 0));
    return onnx_set_output(c, n, 0, tn_convert(&c->b, above, x->type.dtype));
}

/* Columns of the last axis; a vector counts as one row. */
bool onnx_op_array_feature_extractor(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *indices = n->input[1];
    tn_dim count = tn_type_elements(c->session, &indices->type);
    if (x->type.rank < 1)
        return onnx_error(c, n, "input must have at least rank 1");
    if (x->type.rank == 1)
        x = tn_reshape(&c->b, x, (tn_dim[]){emit_dim(c, 1), x->type.dim[0]}, 2);
    indices = tn_reshape(&c->b, indices, &count, 1);
    return onnx_set_output(c, n, 0, x ? emit_take(c, x, indices, x->type.rank - 1) : NULL);
}
