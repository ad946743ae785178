/* Reductions. The axes are constants in nearly every model. Where they only exist when the graph runs, every axis is
 * reduced in turn and a flag an axis says whether the reduced value (spread back) or the value itself goes on; the
 * result's sizes are symbols that are born from the flags. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

typedef struct reduction {
    tn_type type; /* of the operand */
    int64_t axes[TN_MAX_RANK];
    int n;
    bool runtime, keepdims;
    int chosen;      /* runtime: how many axes are reduced, known from the type of `axes` */
    tn_value *flags; /* runtime: bool[rank] */
} reduction;

static tn_value *flag_of(onnx_ctx *c, const reduction *r, int axis)
{
    tn_value *one = emit_slice_axis(c, r->flags, 0, emit_dim(c, axis), emit_dim(c, axis + 1), 1);
    return one ? tn_reshape(&c->b, one, NULL, 0) : NULL;
}

static bool may_be_empty(const reduction *r)
{
    for (int i = 0; i < r->type.rank; i++)
        if (r->type.dim[i]->lo < 1)
            return true;
    return false;
}

/* Runtime axes: an empty axis gets one identity, so that what it reduces to has a place. */
static tn_value *filled(onnx_ctx *c, const reduction *r, tn_opcode combine, tn_value *x)
{
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    if (!x || !may_be_empty(r))
        return x;
    for (int i = 0; i < r->type.rank; i++) {
        low[i] = emit_dim(c, 0);
        high[i] = tn_dim_sub(c->session, tn_dim_max(c->session, r->type.dim[i], emit_dim(c, 1)), r->type.dim[i]);
    }
    return emit_pad_zero(c, x, low, high, emit_identity(c, combine, x->type.dtype));
}

/* Static: the axes vanish. Runtime: the shape stays, each slice along the reduced axes holds one value. */
static tn_value *reduce(onnx_ctx *c, const reduction *r, tn_opcode combine, tn_value *x)
{
    if (!r->runtime)
        return emit_reduce(c, combine, x, r->axes, r->n);
    x = filled(c, r, combine, x);
    for (int64_t i = 0; x && i < r->type.rank; i++) {
        tn_type like = x->type;
        tn_value *all = emit_spread(c, emit_reduce(c, combine, x, &i, 1), &like, &i, 1);
        x = emit_select(c, flag_of(c, r, (int)i), all, x);
    }
    return x;
}

static tn_value *spread(onnx_ctx *c, const reduction *r, tn_value *x)
{
    tn_dim start[TN_MAX_RANK];
    int64_t step[TN_MAX_RANK];
    if (!r->runtime)
        return emit_spread(c, x, &r->type, r->axes, r->n);
    for (int i = 0; i < r->type.rank; i++)
        start[i] = emit_dim(c, 0), step[i] = 1;
    return x && may_be_empty(r) ? tn_slice(&c->b, x, start, r->type.dim, step) : x;
}

static tn_value *count(onnx_ctx *c, const reduction *r, tn_dtype dtype)
{
    if (!r->runtime)
        return emit_count(c, &r->type, r->axes, r->n, dtype);
    tn_value *product = emit_number(c, dtype, 1);
    for (int i = 0; i < r->type.rank; i++)
        product =
            emit_mul(c, product,
                     emit_select(c, flag_of(c, r, i), emit_size(c, r->type.dim[i], dtype), emit_number(c, dtype, 1)));
    return product;
}

/* bool[rank]: does `axes` (i64[k], negative ones allowed) hold the axis? */
static tn_value *axis_flags(onnx_ctx *c, tn_value *axes, int rank)
{
    tn_dim dims[2] = {emit_dim(c, rank), axes->type.dim[0]};
    tn_value *wrapped = emit_select(c, emit_compare_number(c, "LT", axes, 0), emit_add_number(c, axes, rank), axes);
    tn_value *hit = tn_compare(&c->b, "EQ", tn_iota(&c->b, axes->type.dtype, dims, 2, 0),
                               wrapped ? emit_broadcast(c, wrapped, dims, 2, EMIT_AXES(1)) : NULL);
    return emit_reduce(c, TN_OP_or, hit, (int64_t[]){1}, 1);
}

/* i64[rank - chosen]: the sizes of the axes whose flag is off, in order. */
static tn_value *kept_sizes(onnx_ctx *c, const reduction *r, tn_value *sizes)
{
    int left = r->type.rank - r->chosen;
    tn_dim dims[2] = {emit_dim(c, left), emit_dim(c, r->type.rank)};
    tn_value *kept = tn_convert(&c->b, emit_unary(c, TN_OP_not, r->flags), TN_I64);
    tn_value *place = emit_mul(c, emit_scan(c, TN_OP_add, kept, 0), kept); /* 1, 2, … on kept axes, 0 elsewhere */
    if (!place || !sizes)
        return NULL;
    tn_value *hit = tn_compare(&c->b, "EQ", emit_add_number(c, tn_iota(&c->b, TN_I64, dims, 2, 0), 1),
                               emit_broadcast(c, place, dims, 2, EMIT_AXES(1)));
    tn_value *spread_sizes = emit_broadcast(c, sizes, dims, 2, EMIT_AXES(1));
    return emit_sum_axis(c, emit_select(c, hit, spread_sizes, emit_number(c, TN_I64, 0)), 1);
}

static tn_value *shrink_runtime(onnx_ctx *c, const onnx_node *n, const reduction *r, tn_value *x)
{
    tn_dim one[TN_MAX_RANK], zero[TN_MAX_RANK], size[TN_MAX_RANK], most[TN_MAX_RANK];
    int64_t step[TN_MAX_RANK];
    int rank = r->type.rank;
    for (int i = 0; i < rank; i++)
        one[i] = emit_dim(c, 1), zero[i] = emit_dim(c, 0), step[i] = 1,
        most[i] = tn_dim_max(c->session, r->type.dim[i], one[i]);
    tn_value *all = onnx_dims_value(c, TN_I64, 1, r->type.dim, rank);
    tn_value *sizes = emit_select(c, r->flags, emit_number(c, TN_I64, 1), all);
    if (!x || !sizes || !onnx_runtime_dims(c, n, sizes, rank, most, size))
        return NULL;
    x = tn_slice(&c->b, x, zero, size, step);
    if (!x || r->keepdims)
        return x;
    int left = rank - r->chosen;
    tn_value *kept = left == 0 ? NULL : kept_sizes(c, r, all);
    if (left == 0)
        return tn_reshape(&c->b, tn_slice(&c->b, x, zero, one, step), NULL, 0);
    tn_dim result[TN_MAX_RANK];
    if (!kept || !onnx_runtime_dims(c, n, kept, left, NULL, result))
        return NULL;
    return tn_reshape(&c->b, x, result, left);
}

static bool finish(onnx_ctx *c, const onnx_node *n, const reduction *r, tn_value *x)
{
    if (r->runtime)
        x = shrink_runtime(c, n, r, x);
    else if (r->keepdims)
        x = emit_keep(c, x, &r->type, r->axes, r->n);
    return onnx_set_output(c, n, 0, x);
}

/* Axes: an attribute in older opsets, input 1 since; none or an empty list mean all, or none when noop_with_empty_axes.
 */
static bool read_reduction(onnx_ctx *c, const onnx_node *n, reduction *r)
{
    tn_value *axes = onnx_in(n, 1);
    *r = (reduction){.type = n->input[0]->type, .keepdims = onnx_attr_int(c, n, "keepdims", 1)};
    int64_t given[TN_MAX_RANK];
    int known;
    if (axes && !onnx_static_ints(c, axes, given, TN_MAX_RANK, &known)) {
        if (axes->type.rank != 1 || !tn_dim_is_const(axes->type.dim[0]) || axes->type.dim[0]->value > r->type.rank)
            return onnx_unsupported(c, n, "how many `axes` there are must be known");
        r->runtime = axes->type.dim[0]->value > 0;
        r->chosen = (int)axes->type.dim[0]->value;
        if (r->runtime) {
            r->flags = axis_flags(c, axes, r->type.rank);
            return r->flags != NULL;
        }
        r->n = 0;
    } else if (!onnx_axes_of(c, n, "axes", 1, r->type.rank, r->axes, &r->n)) {
        return false;
    }
    if (r->n > 0 || onnx_attr_int(c, n, "noop_with_empty_axes", 0)) {
        r->n = (int)tn_max(r->n, 0);
        return true;
    }
    r->n = r->type.rank;
    for (int i = 0; i < r->n; i++)
        r->axes[i] = i;
    return true;
}

bool onnx_op_reduce(onnx_ctx *c, const onnx_node *n)
{
    static const struct {
        const char *type;
        tn_opcode code;
    } rows[] = {{"ReduceSum", TN_OP_add},
                {"ReduceProd", TN_OP_multiply},
                {"ReduceMax", TN_OP_maximum},
                {"ReduceMin", TN_OP_minimum}};
    reduction r;
    if (!read_reduction(c, n, &r))
        return false;
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (strcmp(rows[i].type, n->op_type) == 0)
            return finish(c, n, &r, reduce(c, &r, rows[i].code, n->input[0]));
    return false;
}

bool onnx_op_reduce_mean(onnx_ctx *c, const onnx_node *n)
{
    reduction r;
    if (!read_reduction(c, n, &r))
        return false;
    tn_dtype wide = emit_sum_type(r.type.dtype);
    tn_value *sum = reduce(c, &r, TN_OP_add, tn_convert(&c->b, n->input[0], wide));
    return finish(c, n, &r, tn_convert(&c->b, emit_div(c, sum, count(c, &r, wide)), r.type.dtype));
}

bool onnx_op_reduce_norm(onnx_ctx *c, const onnx_node *n)
{
    reduction r;
    if (!read_reduction(c, n, &r))
        return false;
    tn_value *x = n->input[0];
    if (strcmp(n->op_type, "ReduceL1") == 0)
        return finish(c, n, &r, reduce(c, &r, TN_OP_add, emit_unary(c, TN_OP_abs, x)));
    bool root = strcmp(n->op_type, "ReduceL2") == 0;
    x = root ? tn_convert(&c->b, x, emit_sum_type(r.type.dtype)) : x;
    tn_value *sum = reduce(c, &r, TN_OP_add, emit_mul(c, x, x));
    if (root) {
        tn_dtype work = tn_is_float(r.type.dtype) ? emit_sum_type(r.type.dtype) : TN_F64;
        sum = tn_convert(&c->b, emit_unary(c, TN_OP_sqrt, tn_convert(&c->b, sum, work)), r.type.dtype);
    }
    return finish(c, n, &r, sum);
}

bool onnx_op_reduce_log_sum(onnx_ctx *c, const onnx_node *n)
{
    reduction r;
    if (!read_reduction(c, n, &r))
        return false;
    tn_dtype work = tn_is_float(r.type.dtype) ? r.type.dtype : TN_F64;
    tn_value *sum = tn_convert(&c->b, reduce(c, &r, TN_OP_add, n->input[0]), work);
    return finish(c, n, &r, tn_convert(&c->b, emit_unary(c, TN_OP_log, sum), r.type.dtype));
}

/* log(sum(e^(x - m))) + m with m the largest element, 0 where that is infinite (so that no inf - inf arises). */
bool onnx_op_reduce_log_sum_exp(onnx_ctx *c, const onnx_node *n)
{
    reduction r;
    if (!read_reduction(c, n, &r))
        return false;
    tn_dtype work = tn_is_float(r.type.dtype) ? r.type.dtype : TN_F64;
    tn_value *x = tn_convert(&c->b, n->input[0], work);
    tn_value *top = reduce(c, &r, TN_OP_maximum, x);
    top = emit_select(c, emit_unary(c, TN_OP_is_finite, top), top, emit_number(c, work, 0));
    tn_value *sum = reduce(c, &r, TN_OP_add, emit_unary(c, TN_OP_exponential, emit_sub(c, x, spread(c, &r, top))));
    return finish(c, n, &r, tn_convert(&c->b, emit_add(c, emit_unary(c, TN_OP_log, sum), top), r.type.dtype));
}

/* ArgMax, ArgMin: of the first (last) extreme element. Smallest: largest of the opposite, bitwise for integers (no
 * overflow). */
bool onnx_op_arg(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_type type = x->type;
    int axis;
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), type.rank, &axis))
        return false;
    if (strcmp(n->op_type, "ArgMin") == 0)
        x = emit_unary(c, tn_is_integer(type.dtype) ? TN_OP_not : TN_OP_negate, x);
    tn_value *at = emit_arg_max(c, x, axis, onnx_attr_int(c, n, "select_last_index", 0));
    if (onnx_attr_int(c, n, "keepdims", 1))
        at = emit_keep(c, at, &type, (int64_t[]){axis}, 1);
    return onnx_set_output(c, n, 0, at);
}
