/* Builtins that make tensors and move their elements. */
#include "triton/builtin.h"

#include <string.h>

static bool done(tn_py *out, tn_tvalue *v)
{
    *out = tn_py_tensor(v);
    return true;
}

/* ---- creation -------------------------------------------------------------------------------------------------------- */

static bool grid_axis(tn_tcompiler *c, const tn_call *call, const char *what, int64_t *axis)
{
    if (!tn_t_constant_int(c, call->node, &call->argument[0], what, axis))
        return false;
    return (*axis >= 0 && *axis <= 2) || tn_t_error(c, call->node, "%s must be 0, 1 or 2, found %lld", what, (long long)*axis);
}

/* The last coordinate of the kernel's grid is axis 0. */
bool tn_bi_program_id(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t axis;
    if (!grid_axis(c, call, "the axis of program_id", &axis))
        return false;
    int64_t at = (int64_t)c->kernel->grid.len - 1 - axis;
    tn_tvalue *v = at < 0 ? tn_t_index(&c->b, 0) : c->kernel->grid.at[at].value;
    return done(out, tn_t_cast(&c->b, v, TN_I32));
}

bool tn_bi_num_programs(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    static const char *const names[] = {"grid_x", "grid_y", "grid_z"};
    int64_t axis;
    if (!grid_axis(c, call, "the axis of num_programs", &axis))
        return false;
    return done(out, tn_t_cast(&c->b, tn_t_size(&c->b, tn_dim_symbol(c->session, names[axis])), TN_I32));
}

bool tn_bi_arange(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t start, end;
    if (!tn_t_constant_int(c, call->node, &call->argument[0], "the start of arange", &start) ||
        !tn_t_constant_int(c, call->node, &call->argument[1], "the end of arange", &end))
        return false;
    if (start < 0 || end < 0 || start > UINT32_MAX || end > UINT32_MAX)
        return tn_t_error(c, call->node, "arange(%lld, %lld): its numbers must be of 32 bits and not negative", (long long)start, (long long)end);
    if (end <= start)
        return tn_t_error(c, call->node, "arange(%lld, %lld): the end must be greater than the start", (long long)start, (long long)end);
    int64_t n = end - start;
    if (n & (n - 1))
        return tn_t_error(c, call->node, "arange(%lld, %lld): the number of elements must be a power of two, it is %lld", (long long)start, (long long)end,
                          (long long)n);
    tn_py count = tn_py_int(n);
    int rank;
    if (!tn_t_shape(c, call->node, &count, "arange", &rank, &n))
        return false;
    return done(out, tn_t_cast(&c->b, tn_t_range(&c->b, tn_t_index(&c->b, start), tn_extent_const(n)), TN_I32));
}

bool tn_bi_full(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t extents[TN_TILE_RANK];
    int rank;
    tn_ttype type;
    tn_tvalue *v;
    if (!tn_t_shape(c, call->node, &call->argument[0], "the shape of full", &rank, extents) ||
        !tn_t_dtype_argument(c, call->node, &call->argument[2], "the type of full", &type))
        return false;
    if (type.pointer)
        return tn_t_refuse(c, call->node, "a tensor of pointers starts from a pointer: pointer + tl.zeros(shape, tl.int64)");
    if (c->scalars_only && rank)
        return tn_t_error(c, call->node, "a combine function computes with scalars alone");
    if (!tn_t_to_dtype(c, call->node, &call->argument[1], type.dtype, &v))
        return false;
    if (tn_t_elements(&v->type) != 1)
        return tn_t_error(c, call->node, "the value of full must be one number, found %s", tn_t_describe(c, &call->argument[1]));
    if (v->type.rank)
        v = tn_t_reshape(&c->b, v, tn_tscalar(type.dtype));
    type.rank = rank;
    for (int i = 0; i < rank; i++)
        type.extent[i] = tn_extent_const(extents[i]);
    if (rank && v->def && v->def->code == TN_T_const)
        return done(out, tn_t_const(&c->b, type, v->def->number));
    return done(out, tn_t_stretch(c, v, &type));
}

bool tn_bi_to_tensor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v;
    return tn_t_to_tensor(c, call->node, &call->argument[0], &v) && done(out, v);
}

/* ---- conversions ----------------------------------------------------------------------------------------------------- */

static bool rounding_of(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_ttype *from, const tn_ttype *to, tn_t_rounding *out)
{
    const char *name;
    *out = TN_T_ROUND_DEFAULT;
    if (!tn_t_string(c, at, v, "fp_downcast_rounding", &name) || !name)
        return v->kind == TN_PY_NONE;
    bool narrows = !from->pointer && !to->pointer && tn_is_float(from->dtype) && tn_is_float(to->dtype) && tn_dtype_bits(to->dtype) < tn_dtype_bits(from->dtype);
    if (!narrows)
        return tn_t_error(c, at, "fp_downcast_rounding is for conversions to a narrower float type, this one is from %s to %s", tn_t_type_name(c, from),
                          tn_t_type_name(c, to));
    if (strcmp(name, "rtne") != 0 && strcmp(name, "rtz") != 0)
        return tn_t_error(c, at, "fp_downcast_rounding is 'rtne' or 'rtz', found '%s'", name);
    *out = strcmp(name, "rtz") == 0 ? TN_T_ROUND_ZERO : TN_T_ROUND_EVEN;
    return true;
}

static bool to_pointer(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, const tn_ttype *to, tn_tvalue **out)
{
    if (!x->type.pointer && tn_is_float(x->type.dtype))
        return tn_t_error(c, at, "%s does not convert to a pointer", tn_t_type_name(c, &x->type));
    if (!x->type.pointer)
        x = tn_t_cast(&c->b, x, TN_I64);
    return tn_t_bitcast_value(c, at, x, *to, out);
}

bool tn_bi_cast(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    tn_ttype to;
    tn_tvalue *v;
    tn_t_rounding rounding;
    bool bitcast;
    if (!tn_t_dtype_argument(c, call->node, &call->argument[1], "the type of a cast", &to) ||
        !tn_t_constant_bool(c, call->node, &call->argument[3], "bitcast", &bitcast))
        return false;
    if (x->kind == TN_PY_BLOCK_POINTER || x->kind == TN_PY_DESCRIPTOR)
        return tn_t_error(c, call->node, "%s cannot be cast", tn_t_describe(c, x));
    if (tn_py_is_number(x) && !bitcast && !to.pointer && tn_t_is_none(&call->argument[2]))
        return tn_t_to_dtype(c, call->node, x, to.dtype, &v) && done(out, v);
    if (!tn_t_tensor_argument(c, call->node, x, "what is cast", &v) || !rounding_of(c, call->node, &call->argument[2], &v->type, &to, &rounding))
        return false;
    if (bitcast)
        return tn_t_bitcast_value(c, call->node, v, to, &v) && done(out, v);
    if (to.pointer)
        return to_pointer(c, call->node, v, &to, &v) && done(out, v);
    tn_py tensor = tn_py_tensor(v);
    if (v->type.pointer || rounding != TN_T_ROUND_ZERO)
        return tn_t_to_dtype(c, call->node, &tensor, to.dtype, &v) && done(out, v);
    return done(out, tn_t_cast_value(c, v, to.dtype, rounding));
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

bool tn_bi_broadcast(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x, *y;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of broadcast", &x) ||
        !tn_t_tensor_argument(c, call->node, &call->argument[1], "the other tensor of broadcast", &y) || !tn_t_broadcast_pair(c, call->node, &x, &y))
        return false;
    tn_py both[2] = {tn_py_tensor(x), tn_py_tensor(y)};
    *out = tn_t_tuple(c, both, 2);
    return true;
}

bool tn_bi_broadcast_to(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t extents[TN_TILE_RANK];
    int rank;
    tn_tvalue *x;
    return tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of broadcast_to", &x) &&
           tn_t_shape(c, call->node, &call->argument[1], "the shape of broadcast_to", &rank, extents) &&
           tn_t_broadcast_to(c, call->node, x, rank, extents, &x) && done(out, x);
}

bool tn_bi_expand_dims(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t axes[TN_TILE_RANK];
    int n;
    tn_tvalue *x;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of expand_dims", &x) ||
        !tn_t_ints(c, call->node, &call->argument[1], "the axes of expand_dims", TN_TILE_RANK, &n, axes))
        return false;
    int rank = x->type.rank + n;
    for (int i = 0; i < n; i++) {
        if (axes[i] < -rank || axes[i] >= rank)
            return tn_t_error(c, call->node, "axis %lld of expand_dims: the result has %d axes", (long long)axes[i], rank);
        axes[i] += axes[i] < 0 ? rank : 0;
    }
    for (int axis = 0; axis < rank; axis++) /* in rising order, so that each is where it will be */
        for (int i = 0, seen = 0; i < n; i++)
            if (axes[i] == axis && (seen++ || !tn_t_expand_dims(c, call->node, x, axis, &x)))
                return seen > 1 ? tn_t_error(c, call->node, "axis %d of expand_dims is named twice", axis) : false;
    return done(out, x);
}

static tn_ttype without_axis(tn_ttype type, int axis)
{
    for (int i = axis; i + 1 < type.rank; i++)
        type.extent[i] = type.extent[i + 1];
    type.rank--;
    return type;
}

bool tn_bi_squeeze(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x;
    int axis;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of squeeze", &x) ||
        !tn_t_axis(c, call->node, &call->argument[1], "the axis of squeeze", x->type.rank, &axis))
        return false;
    if (x->type.extent[axis].size != 1)
        return tn_t_error(c, call->node, "axis %d of %s has more than one element", axis, tn_t_shape_text(c, &x->type));
    return done(out, tn_t_reshape(&c->b, x, without_axis(x->type, axis)));
}

static bool reshape(tn_tcompiler *c, const tn_call *call, const char *name, tn_py *out)
{
    int64_t extents[TN_TILE_RANK];
    tn_tvalue *x;
    int rank;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "what is reshaped", &x) ||
        !tn_t_shape(c, call->node, &call->argument[1], tn_format(&c->session->arena, "the shape of %s", name), &rank, extents))
        return false;
    tn_ttype type = {.dtype = x->type.dtype, .pointer = x->type.pointer, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.extent[i] = tn_extent_const(extents[i]);
    if (tn_t_elements(&type) != tn_t_elements(&x->type))
        return tn_t_error(c, call->node, "%s from %s to %s changes the number of elements", name, tn_t_shape_text(c, &x->type), tn_t_shape_text(c, &type));
    return done(out, tn_t_same_shape(&type, &x->type) ? x : tn_t_reshape(&c->b, x, type));
}

bool tn_bi_reshape(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    bool reorder;
    return tn_t_constant_bool(c, call->node, &call->argument[2], "can_reorder", &reorder) && reshape(c, call, "reshape", out);
}

bool tn_bi_view(tn_tcompiler *c, const tn_call *call, tn_py *out) { return reshape(c, call, "view", out); }

static bool permute(tn_tcompiler *c, const tn_ast *at, const char *name, tn_tvalue *x, int n, const int64_t *dims, tn_py *out)
{
    int axes[TN_TILE_RANK];
    bool seen[TN_TILE_RANK] = {false}, right = n == x->type.rank;
    for (int i = 0; right && i < n; i++) {
        int64_t axis = dims[i] < 0 ? dims[i] + n : dims[i];
        right = axis >= 0 && axis < n && !seen[axis];
        if (right)
            seen[axis] = true, axes[i] = (int)axis;
    }
    if (!right)
        return tn_t_error(c, at, "the axes of %s must be 0 to %d in some order, for a tensor with the shape %s", name, x->type.rank - 1,
                          tn_t_shape_text(c, &x->type));
    return done(out, tn_t_permute(&c->b, x, axes));
}

bool tn_bi_permute(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t dims[TN_TILE_RANK];
    tn_tvalue *x;
    int n;
    return tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of permute", &x) &&
           tn_t_ints(c, call->node, &call->argument[1], "the axes of permute", TN_TILE_RANK, &n, dims) &&
           permute(c, call->node, "permute", x, n, dims, out);
}

/* Without axes the last two change places. */
bool tn_bi_trans(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t dims[TN_TILE_RANK];
    tn_tvalue *x;
    int n;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of trans", &x) ||
        !tn_t_ints(c, call->node, &call->argument[1], "the axes of trans", TN_TILE_RANK, &n, dims))
        return false;
    if (n == 0) {
        if (x->type.rank < 2)
            return tn_t_error(c, call->node, "trans needs two axes at least, found the shape %s", tn_t_shape_text(c, &x->type));
        n = x->type.rank;
        for (int i = 0; i < n; i++)
            dims[i] = i < n - 2 ? i : 2 * n - 3 - i;
    }
    return permute(c, call->node, "trans", x, n, dims, out);
}

bool tn_bi_cat(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_py a = call->argument[0], b = call->argument[1];
    bool reorder;
    int axis;
    if (a.kind != TN_PY_TENSOR || b.kind != TN_PY_TENSOR)
        return tn_t_error(c, call->node, "cat takes two tensors, found %s and %s", tn_t_describe(c, &a), tn_t_describe(c, &b));
    const tn_ttype *t = &a.tensor->type, *u = &b.tensor->type;
    if (!tn_t_constant_bool(c, call->node, &call->argument[2], "can_reorder", &reorder) ||
        !tn_t_axis(c, call->node, &call->argument[3], "the axis of cat", t->rank, &axis))
        return false;
    tn_ttype other = *u;
    if (u->rank == t->rank)
        other.extent[axis] = t->extent[axis];
    if (!tn_t_same_shape(t, &other) || t->dtype != u->dtype || t->pointer != u->pointer)
        return tn_t_error(c, call->node, "cat along axis %d of %s and %s: they differ elsewhere", axis, tn_t_describe(c, &a), tn_t_describe(c, &b));
    int64_t n = t->extent[axis].size + u->extent[axis].size;
    if (n & (n - 1))
        return tn_t_error(c, call->node, "cat of %s and %s: the number of elements must be a power of two", tn_t_describe(c, &a), tn_t_describe(c, &b));
    return done(out, tn_t_cat(&c->b, a.tensor, b.tensor, axis));
}

bool tn_bi_join(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x, *y;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the first tensor of join", &x) ||
        !tn_t_tensor_argument(c, call->node, &call->argument[1], "the second tensor of join", &y) || !tn_t_broadcast_pair(c, call->node, &x, &y))
        return false;
    if (x->type.dtype != y->type.dtype || x->type.pointer != y->type.pointer)
        return tn_t_error(c, call->node, "join of %s and %s: cast one of them", tn_t_type_name(c, &x->type), tn_t_type_name(c, &y->type));
    if (x->type.rank == TN_TILE_RANK)
        return tn_t_refuse(c, call->node, "a tensor has at most %d axes; join would add one to %s", TN_TILE_RANK, tn_t_shape_text(c, &x->type));
    return done(out, tn_t_join(&c->b, x, y));
}

bool tn_bi_split(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x, *half[2];
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "what is split", &x))
        return false;
    int rank = x->type.rank;
    if (rank == 0 || x->type.extent[rank - 1].size != 2)
        return tn_t_error(c, call->node, "split needs two elements along the last axis, found the shape %s", tn_t_shape_text(c, &x->type));
    tn_t_split(&c->b, x, &half[0], &half[1]);
    tn_py both[2] = {tn_py_tensor(half[0]), tn_py_tensor(half[1])};
    *out = tn_t_tuple(c, both, 2);
    return true;
}

bool tn_bi_item(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "item", &x))
        return false;
    if (tn_t_elements(&x->type) != 1)
        return tn_t_error(c, call->node, "item() of a tensor with one element, found the shape %s", tn_t_shape_text(c, &x->type));
    tn_ttype scalar = {.dtype = x->type.dtype, .pointer = x->type.pointer};
    return done(out, x->type.rank ? tn_t_reshape(&c->b, x, scalar) : x);
}

bool tn_bi_slice(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t start, size;
    tn_tvalue *x;
    int axis;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "what is sliced", &x) ||
        !tn_t_axis(c, call->node, &call->argument[1], "the axis of a slice", x->type.rank, &axis) ||
        !tn_t_constant_int(c, call->node, &call->argument[2], "the start of a slice", &start) ||
        !tn_t_constant_int(c, call->node, &call->argument[3], "the size of a slice", &size))
        return false;
    if (size < 1 || start < 0 || start % size || start > x->type.extent[axis].size - size)
        return tn_t_error(c, call->node, "%lld elements from %lld are no whole part of axis %d of %s", (long long)size, (long long)start, axis,
                          tn_t_shape_text(c, &x->type));
    return done(out, size == x->type.extent[axis].size ? x : tn_t_slice(&c->b, x, axis, start, size));
}

/* ---- by index -------------------------------------------------------------------------------------------------------- */

bool tn_bi_gather(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x, *index;
    int axis;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the source of gather", &x) ||
        !tn_t_tensor_argument(c, call->node, &call->argument[1], "the index of gather", &index))
        return false;
    const tn_ttype *t = &x->type, *i = &index->type;
    if (i->pointer || !tn_is_integer(i->dtype))
        return tn_t_error(c, call->node, "the index of gather must be integers, found %s", tn_t_describe(c, &call->argument[1]));
    if (t->rank == 0 || t->rank != i->rank)
        return tn_t_error(c, call->node, "gather needs a source and an index of as many axes, found %s and %s", tn_t_shape_text(c, t), tn_t_shape_text(c, i));
    if (!tn_t_axis(c, call->node, &call->argument[2], "the axis of gather", t->rank, &axis))
        return false;
    for (int d = 0; d < t->rank; d++)
        if (d != axis && t->extent[d].size != i->extent[d].size)
            return tn_t_error(c, call->node, "gather along axis %d of %s by %s: they differ on axis %d", axis, tn_t_shape_text(c, t), tn_t_shape_text(c, i), d);
    return done(out, tn_t_gather(&c->b, x, index, axis));
}

/* A masked element counts nowhere: its bin becomes -1. */
bool tn_bi_histogram(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x, *mask;
    int64_t bins;
    int rank;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "the input of histogram", &x) ||
        !tn_t_shape(c, call->node, &call->argument[1], "the bins of histogram", &rank, &bins))
        return false;
    if (x->type.pointer || x->type.rank != 1 || !tn_is_integer(x->type.dtype))
        return tn_t_error(c, call->node, "histogram counts integers along one axis, found %s", tn_t_describe(c, &call->argument[0]));
    if (rank != 1)
        return tn_t_error(c, call->node, "the bins of histogram are one number");
    if (!tn_t_is_none(&call->argument[2])) {
        if (!tn_t_tensor_argument(c, call->node, &call->argument[2], "the mask of histogram", &mask))
            return false;
        if (mask->type.dtype != TN_BOOL || mask->type.pointer)
            return tn_t_error(c, call->node, "the mask of histogram must be of int1, found %s", tn_t_describe(c, &call->argument[2]));
        if (!tn_t_broadcast_to(c, call->node, mask, 1, &x->type.extent[0].size, &mask))
            return false;
        x = tn_t_map3(&c->b, TN_S_select, mask, tn_t_cast(&c->b, x, TN_I64), tn_t_index(&c->b, -1));
    }
    return done(out, tn_t_histogram(&c->b, x, bins, TN_I32));
}
