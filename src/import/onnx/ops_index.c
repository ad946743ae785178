/* Operators that pick elements by position or by value: gather and scatter, one-hot, selection by mask, sorting, scans.
 */
#include <string.h>

#include "import/onnx/emit.h"

static tn_dim num(onnx_ctx *c, int64_t value)
{
    return tn_dim_const(c->session, value);
}

static tn_value *first_result(tn_op *op)
{
    return op ? &op->result[0] : NULL;
}

/* Indices may count from the end: i < 0 means i + size. As i64; bounds [rank 0 or broadcastable]: the sizes. */
static tn_value *from_start(onnx_ctx *c, tn_value *indices, tn_value *sizes)
{
    tn_value *i = tn_convert(&c->b, indices, TN_I64);
    return i ? emit_select(c, emit_compare_number(c, "LT", i, 0), emit_add(c, i, sizes), i) : NULL;
}

static bool integer_indices(onnx_ctx *c, const onnx_node *n, const tn_value *indices)
{
    return tn_is_integer(indices->type.dtype) ||
           onnx_error(c, n, "indices must be integers, found %s", tn_dtype_text(indices->type.dtype));
}

/* ---- Gather
 * -------------------------------------------------------------------------------------------------------------------
 */

/* One constant position: a slice. */
static tn_value *gather_one(onnx_ctx *c, const onnx_node *n, tn_value *x, int axis, int64_t index)
{
    tn_dim dims[TN_MAX_RANK], d = x->type.dim[axis], at;
    if (tn_dim_is_const(d) && (index < -d->value || index >= d->value)) {
        onnx_error(c, n, "index %lld is outside dimension %d of size %lld", (long long)index, axis,
                   (long long)d->value);
        return NULL;
    }
    at = index < 0 ? tn_dim_add(c->session, d, num(c, index)) : num(c, index);
    x = emit_slice_axis(c, x, axis, at, tn_dim_add(c->session, at, num(c, 1)), 1);
    if (!x)
        return NULL;
    for (int i = 0, j = 0; i < x->type.rank; i++)
        if (i != axis)
            dims[j++] = x->type.dim[i];
    return tn_reshape(&c->b, x, dims, x->type.rank - 1);
}

/* x[..., indices, ...]: the indices' dimensions take the place of axis. */
static tn_value *gather_axis(onnx_ctx *c, tn_value *x, tn_value *indices, int axis)
{
    int rank = x->type.rank, q = indices->type.rank, noffset = 0;
    int64_t offset[TN_MAX_RANK], map[1] = {axis};
    tn_dim sizes[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        sizes[i] = i == axis ? num(c, 1) : x->type.dim[i];
        if (i != axis)
            offset[noffset++] = i < axis ? i : i + q - 1;
    }
    tn_attr attrs[] = {
        {.name = TN_A_offset_dims, .n = noffset, .ints = offset},
        {.name = TN_A_collapsed_slice_dims, .n = 1, .ints = map},
        {.name = TN_A_operand_batching_dims, .n = 0},
        {.name = TN_A_indices_batching_dims, .n = 0},
        {.name = TN_A_start_index_map, .n = 1, .ints = map},
        {.name = TN_A_index_vector_dim, .i = q},
        {.name = TN_A_sizes, .n = rank, .dims = sizes},
    };
    tn_value *operands[2] = {x, indices};
    return first_result(tn_build(&c->b, TN_OP_gather, operands, 2, attrs, TN_COUNT(attrs), NULL, 0));
}

/* From an axis of size 0 no indices can be right but none. */
static tn_value *gather_nothing(onnx_ctx *c, const onnx_node *n, tn_value *x, const tn_type *indices, int axis)
{
    tn_dim dims[TN_MAX_RANK];
    int rank = 0;
    if (!tn_dim_is(tn_type_elements(c->session, indices), 0)) {
        onnx_error(c, n, "an index is outside dimension %d of size 0", axis);
        return NULL;
    }
    for (int i = 0; i < x->type.rank; i++) {
        for (int k = 0; i == axis && k < indices->rank; k++)
            dims[rank++] = indices->dim[k];
        if (i != axis)
            dims[rank++] = x->type.dim[i];
    }
    return emit_fill(c, emit_number(c, x->type.dtype, 0), dims, rank);
}

bool onnx_Gather(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *indices = n->input[1];
    int axis, count;
    int64_t index;
    if (!integer_indices(c, n, indices) || !onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), x->type.rank, &axis))
        return false;
    if (x->type.rank - 1 + indices->type.rank > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the result has more than %d dimensions", TN_MAX_RANK);
    if (indices->type.rank == 0 && onnx_static_ints(c, indices, &index, 1, &count))
        return onnx_set_output(c, n, 0, gather_one(c, n, x, axis, index));
    if (tn_dim_is(x->type.dim[axis], 0))
        return onnx_set_output(c, n, 0, gather_nothing(c, n, x, &indices->type, axis));
    indices = from_start(c, indices, emit_size(c, x->type.dim[axis], TN_I64));
    return indices && onnx_set_output(c, n, 0, gather_axis(c, x, indices, axis));
}

/* ---- GatherElements, ScatterElements
 * ------------------------------------------------------------------------------------------- */

/* Whether indices and x have the same size but for axis: then the other dimensions are batch dimensions. */
static bool same_but_axis(onnx_ctx *c, const tn_type *x, const tn_type *indices, int axis)
{
    for (int i = 0; i < x->rank; i++)
        if (i != axis && !tn_dim_eq(c->session, x->dim[i], indices->dim[i]))
            return false;
    return true;
}

/* The whole position of each element: [dims of indices..., rank], own coordinates but on axis. */
static tn_value *whole_positions(onnx_ctx *c, const onnx_node *n, tn_value *indices, int axis)
{
    tn_value *parts[TN_MAX_RANK];
    tn_type t = indices->type;
    tn_dim dims[TN_MAX_RANK];
    if (t.rank + 1 > TN_MAX_RANK) {
        onnx_unsupported(c, n, "rank %d", t.rank);
        return NULL;
    }
    memcpy(dims, t.dim, sizeof dims);
    dims[t.rank] = num(c, 1);
    for (int i = 0; i < t.rank; i++)
        parts[i] = tn_reshape(&c->b, i == axis ? indices : tn_iota(&c->b, TN_I64, t.dim, t.rank, i), dims, t.rank + 1);
    return tn_concatenate(&c->b, parts, t.rank, t.rank);
}

/* Indices ready for gather or scatter along axis, and the attributes that go with them. */
typedef struct element_plan {
    tn_value *indices;
    int64_t all[TN_MAX_RANK], batch[TN_MAX_RANK], one[1];
    int nmap, nbatch, vector_dim;
    const int64_t *map;
} element_plan;

static bool plan_elements(onnx_ctx *c, const onnx_node *n, const tn_type *x, tn_value *indices, int axis,
                          element_plan *p)
{
    *p = (element_plan){.one = {axis}};
    p->indices = from_start(c, indices, emit_size(c, x->dim[axis], TN_I64));
    p->vector_dim = x->rank;
    for (int i = 0; i < x->rank; i++) {
        p->all[i] = i;
        if (i != axis)
            p->batch[p->nbatch++] = i;
    }
    p->map = p->one;
    p->nmap = 1;
    if (p->indices && !same_but_axis(c, x, &p->indices->type, axis)) {
        p->nbatch = 0;
        p->map = p->all;
        p->nmap = x->rank;
        p->indices = whole_positions(c, n, p->indices, axis);
    }
    return p->indices != NULL;
}

static bool element_inputs(onnx_ctx *c, const onnx_node *n, int *axis)
{
    const tn_type *x = &n->input[0]->type, *i = &n->input[1]->type;
    if (x->rank == 0 || x->rank != i->rank)
        return onnx_error(c, n, "data of rank %d and indices of rank %d", x->rank, i->rank);
    return integer_indices(c, n, n->input[1]) && onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), x->rank, axis);
}

/* x's elements at the planned positions. */
static tn_value *gather_elements(onnx_ctx *c, tn_value *x, const element_plan *p)
{
    tn_dim sizes[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        sizes[i] = num(c, 1);
    tn_attr attrs[] = {
        {.name = TN_A_offset_dims, .n = 0},
        {.name = TN_A_collapsed_slice_dims, .n = p->nmap, .ints = p->map},
        {.name = TN_A_operand_batching_dims, .n = p->nbatch, .ints = p->batch},
        {.name = TN_A_indices_batching_dims, .n = p->nbatch, .ints = p->batch},
        {.name = TN_A_start_index_map, .n = p->nmap, .ints = p->map},
        {.name = TN_A_index_vector_dim, .i = p->vector_dim},
        {.name = TN_A_sizes, .n = x->type.rank, .dims = sizes},
    };
    tn_value *operands[2] = {x, p->indices};
    return first_result(tn_build(&c->b, TN_OP_gather, operands, 2, attrs, TN_COUNT(attrs), NULL, 0));
}

bool onnx_GatherElements(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int axis;
    element_plan p;
    if (!element_inputs(c, n, &axis) || !plan_elements(c, n, &x->type, n->input[1], axis, &p))
        return false;
    return onnx_set_output(c, n, 0, gather_elements(c, x, &p));
}

/* What scatter does with the old and the new element: TN_OP_return keeps the new one. */
static bool scatter_mode(onnx_ctx *c, const onnx_node *n, tn_opcode *out)
{
    const char *mode = onnx_attr_string(c, n, "reduction", "none");
    *out = !strcmp(mode, "none")  ? TN_OP_return
           : !strcmp(mode, "add") ? TN_OP_add
           : !strcmp(mode, "mul") ? TN_OP_multiply
           : !strcmp(mode, "max") ? TN_OP_maximum
           : !strcmp(mode, "min") ? TN_OP_minimum
                                  : TN_OP_COUNT;
    return *out != TN_OP_COUNT || onnx_unsupported(c, n, "reduction '%s'", mode);
}

/* (old, new) -> combined; TN_OP_return: the new one. */
static tn_block *scatter_block(onnx_ctx *c, tn_opcode combine, tn_dtype dtype)
{
    if (combine != TN_OP_return)
        return tn_combine_block(c->b.graph, combine, dtype);
    tn_type scalar = tn_type_scalar(dtype);
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_block_arg(block, &scalar, NULL);
    tn_value *update = tn_block_arg(block, &scalar, NULL);
    tn_builder b = tn_builder_at_end(block, c->b.loc);
    tn_return(&b, &update, 1);
    return block;
}

typedef struct scatter_dims {
    const int64_t *window, *inserted, *batch, *map;
    int nwindow, ninserted, nbatch, nmap, vector_dim;
} scatter_dims;

static tn_value *scatter(onnx_ctx *c, tn_value *x, tn_value *indices, tn_value *updates, tn_opcode combine,
                         const scatter_dims *d)
{
    tn_attr attrs[] = {
        {.name = TN_A_update_window_dims, .n = d->nwindow, .ints = d->window},
        {.name = TN_A_inserted_window_dims, .n = d->ninserted, .ints = d->inserted},
        {.name = TN_A_input_batching_dims, .n = d->nbatch, .ints = d->batch},
        {.name = TN_A_scatter_indices_batching_dims, .n = d->nbatch, .ints = d->batch},
        {.name = TN_A_scatter_dims_to_operand_dims, .n = d->nmap, .ints = d->map},
        {.name = TN_A_index_vector_dim, .i = d->vector_dim},
    };
    tn_value *operands[3] = {x, indices, updates};
    if (!x || !indices || !updates)
        return NULL;
    tn_block *block = scatter_block(c, combine, x->type.dtype);
    return first_result(tn_build(&c->b, TN_OP_scatter, operands, 3, attrs, TN_COUNT(attrs), &block, 1));
}

bool onnx_ScatterElements(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    int axis;
    element_plan p;
    tn_opcode combine;
    if (!element_inputs(c, n, &axis) || !scatter_mode(c, n, &combine) ||
        !plan_elements(c, n, &x->type, n->input[1], axis, &p))
        return false;
    scatter_dims d = {.inserted = p.map,
                      .ninserted = p.nmap,
                      .batch = p.batch,
                      .nbatch = p.nbatch,
                      .map = p.map,
                      .nmap = p.nmap,
                      .vector_dim = p.vector_dim};
    return onnx_set_output(c, n, 0, scatter(c, x, p.indices, n->input[2], combine, &d));
}

/* ---- GatherND, ScatterND
 * --------------------------------------------------------------------------------------------------------- */

/* Length of the index vectors (last dimension of indices) and the sizes of the dimensions that they address. */
static bool nd_indices(onnx_ctx *c, const onnx_node *n, int batch, int *length, tn_value **indices)
{
    const tn_type *x = &n->input[0]->type, *i = &n->input[1]->type;
    if (!integer_indices(c, n, n->input[1]))
        return false;
    if (i->rank < 1 || batch < 0 || batch >= i->rank || !tn_dim_is_const(i->dim[i->rank - 1]) ||
        i->dim[i->rank - 1]->value > x->rank - batch)
        return onnx_error(
            c, n,
            "indices must end in a dimension of known size, at most the rank of the data without batch dimensions");
    *length = (int)i->dim[i->rank - 1]->value;
    *indices = from_start(c, n->input[1], onnx_dims_value(c, TN_I64, 1, x->dim + batch, *length));
    return *indices != NULL;
}

bool onnx_GatherND(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *indices;
    int64_t batch_dims = onnx_attr_int(c, n, "batch_dims", 0), batch[TN_MAX_RANK], map[TN_MAX_RANK],
            offset[TN_MAX_RANK];
    tn_dim sizes[TN_MAX_RANK];
    int k, q = n->input[1]->type.rank;
    if (batch_dims < 0 || batch_dims > x->type.rank)
        return onnx_error(c, n, "batch_dims %lld for data of rank %d", (long long)batch_dims, x->type.rank);
    if (!nd_indices(c, n, (int)batch_dims, &k, &indices))
        return false;
    int nb = (int)batch_dims, noffset = x->type.rank - nb - k;
    if (q - 1 + noffset > TN_MAX_RANK)
        return onnx_unsupported(c, n, "the result has more than %d dimensions", TN_MAX_RANK);
    for (int i = 0; i < x->type.rank; i++)
        sizes[i] = i < nb + k ? num(c, 1) : x->type.dim[i];
    for (int i = 0; i < nb; i++)
        batch[i] = i;
    for (int i = 0; i < k; i++)
        map[i] = nb + i;
    for (int i = 0; i < noffset; i++)
        offset[i] = q - 1 + i;
    tn_attr attrs[] = {
        {.name = TN_A_offset_dims, .n = noffset, .ints = offset},
        {.name = TN_A_collapsed_slice_dims, .n = k, .ints = map},
        {.name = TN_A_operand_batching_dims, .n = nb, .ints = batch},
        {.name = TN_A_indices_batching_dims, .n = nb, .ints = batch},
        {.name = TN_A_start_index_map, .n = k, .ints = map},
        {.name = TN_A_index_vector_dim, .i = q - 1},
        {.name = TN_A_sizes, .n = x->type.rank, .dims = sizes},
    };
    tn_value *operands[2] = {x, indices};
    return onnx_set_output(c, n, 0,
                           first_result(tn_build(&c->b, TN_OP_gather, operands, 2, attrs, TN_COUNT(attrs), NULL, 0)));
}

bool onnx_ScatterND(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *indices;
    int64_t map[TN_MAX_RANK], window[TN_MAX_RANK];
    int k, q = n->input[1]->type.rank;
    tn_opcode combine;
    if (!scatter_mode(c, n, &combine) || !nd_indices(c, n, 0, &k, &indices))
        return false;
    int nwindow = x->type.rank - k;
    for (int i = 0; i < k; i++)
        map[i] = i;
    for (int i = 0; i < nwindow; i++)
        window[i] = q - 1 + i;
    scatter_dims d = {.window = window,
                      .nwindow = nwindow,
                      .inserted = map,
                      .ninserted = k,
                      .map = map,
                      .nmap = k,
                      .vector_dim = q - 1};
    return onnx_set_output(c, n, 0, scatter(c, x, indices, n->input[2], combine, &d));
}

/* ---- OneHot
 * -----------------------------------------------------------------------------------------------------------------------
 */

static bool one_hot_depth(onnx_ctx *c, const onnx_node *n, tn_dim *depth)
{
    double number;
    tn_value *d = n->input[1];
    if (onnx_constant_number(c, d, &number)) {
        if (!(number >= 0 && number < 1e15))
            return onnx_error(c, n, "depth %g", number);
        *depth = num(c, (int64_t)number);
        return true;
    }
    if (!tn_is_integer(d->type.dtype))
        d = tn_convert(&c->b, d, TN_I64);
    return d && onnx_runtime_dims(c, n, d, 1, NULL, depth);
}

bool onnx_OneHot(onnx_ctx *c, const onnx_node *n)
{
    tn_value *indices = n->input[0], *values = n->input[2];
    int rank = indices->type.rank, axis;
    tn_type t = {.dtype = TN_I64, .rank = rank + 1};
    int64_t map[TN_MAX_RANK];
    tn_dim depth;
    if (rank + 1 > TN_MAX_RANK)
        return onnx_unsupported(c, n, "rank %d", rank);
    if (values->type.rank != 1 || !tn_dim_is(values->type.dim[0], 2))
        return onnx_error(c, n, "values must be a list of two: off and on");
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", -1), rank + 1, &axis) || !one_hot_depth(c, n, &depth))
        return false;
    for (int i = 0; i < rank; i++) {
        map[i] = i < axis ? i : i + 1;
        t.dim[map[i]] = indices->type.dim[i];
    }
    t.dim[axis] = depth;
    indices = from_start(c, indices, emit_size(c, depth, TN_I64));
    if (!indices)
        return false;
    indices = tn_broadcast_in_dim(&c->b, indices, t.dim, t.rank, map);
    tn_value *hot = emit_compare(c, "EQ", indices, tn_iota(&c->b, TN_I64, t.dim, t.rank, axis));
    tn_value *off = tn_reshape(&c->b, emit_slice_axis(c, values, 0, num(c, 0), num(c, 1), 1), NULL, 0);
    tn_value *on = tn_reshape(&c->b, emit_slice_axis(c, values, 0, num(c, 1), num(c, 2), 1), NULL, 0);
    return onnx_set_output(c, n, 0, emit_select(c, hot, on, off));
}

/* ---- sorting
 * ------------------------------------------------------------------------------------------------------------------------
 */

/* Sorts keys along axis, stably, and their positions (i64) with them. direction: of compare, "LT" ascends. */
static bool sort_with_positions(onnx_ctx *c, tn_value *keys, int axis, const char *direction, tn_value **sorted,
                                tn_value **positions)
{
    if (!keys)
        return false;
    tn_type key = tn_type_scalar(keys->type.dtype), position = tn_type_scalar(TN_I64);
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_value *x = tn_block_arg(block, &key, NULL), *y = tn_block_arg(block, &key, NULL);
    tn_block_arg(block, &position, NULL);
    tn_block_arg(block, &position, NULL);
    tn_builder b = tn_builder_at_end(block, c->b.loc);
    tn_value *less = emit_comes_before(&b, direction, x, y);
    if (!less)
        return false;
    tn_return(&b, &less, 1);
    tn_attr attrs[2] = {{.name = TN_A_dimension, .i = axis}, {.name = TN_A_stable, .i = 1}};
    tn_value *operands[2] = {keys, emit_iota_like(c, TN_I64, &keys->type, axis)};
    tn_op *op = tn_build(&c->b, TN_OP_sort, operands, 2, attrs, 2, &block, 1);
    if (!op)
        return false;
    *sorted = &op->result[0];
    *positions = &op->result[1];
    return true;
}

static bool top_k_count(onnx_ctx *c, const onnx_node *n, tn_dim size, tn_dim *k)
{
    if (c->opset < 10)
        *k = num(c, onnx_attr_int(c, n, "k", -1));
    else if (!onnx_in(n, 1))
        return onnx_error(c, n, "k is missing");
    else if (!onnx_runtime_dims(c, n, n->input[1], 1, &size, k))
        return false;
    if ((*k)->hi < 0 || (tn_dim_is_const(size) && (*k)->lo > size->value))
        return onnx_error(c, n, "k must be in [0, size of the axis]");
    return true;
}

bool onnx_TopK(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *values, *positions;
    int axis;
    tn_dim k;
    bool largest = onnx_attr_int(c, n, "largest", 1) != 0;
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", -1), x->type.rank, &axis) ||
        !top_k_count(c, n, x->type.dim[axis], &k) ||
        !sort_with_positions(c, x, axis, largest ? "GT" : "LT", &values, &positions))
        return false;
    onnx_set_output(c, n, 0, emit_slice_axis(c, values, axis, num(c, 0), k, 1));
    onnx_set_output(c, n, 1, emit_slice_axis(c, positions, axis, num(c, 0), k, 1));
    return true;
}

/* ---- selection by mask
 * ------------------------------------------------------------------------------------------------------------ */

/* Positions of the true elements of a rank-1 mask, ascending, i64. How many they are is a number when the mask is
 * constant, else a symbol that is born here. */
static tn_value *true_positions(onnx_ctx *c, const onnx_node *n, tn_value *mask)
{
    const int64_t axis = 0;
    const tn_tensor *t = onnx_constant_tensor(c, mask);
    tn_value *sorted, *positions;
    tn_dim count;
    int64_t total;
    if (t && tn_tensor_count(t, &total) && total <= 1 << 16) {
        if (!onnx_charge(c, n, (size_t)total * 16))
            return NULL;
        int64_t *list = TN_NEW_ARRAY(&c->session->arena, int64_t, (size_t)total + 1);
        int found = 0;
        for (int64_t i = 0; i < total; i++)
            if (tn_tensor_at(t, i).u)
                list[found++] = i;
        return onnx_ints(c, TN_I64, list, found);
    }
    tn_value *many = emit_reduce(c, TN_OP_add, tn_convert(&c->b, mask, TN_I64), &axis, 1);
    tn_value *last = tn_convert(&c->b, tn_unary(&c->b, TN_OP_not, mask), TN_I32); /* true ones first */
    if (!many || !onnx_runtime_dims(c, n, many, 1, &mask->type.dim[0], &count) ||
        !sort_with_positions(c, last, 0, "LT", &sorted, &positions))
        return NULL;
    return emit_slice_axis(c, positions, 0, num(c, 0), count, 1);
}

/* Folds a small constant before it is asked for; the operation stays when it is not. */
static tn_value *flat(onnx_ctx *c, tn_value *x)
{
    tn_dim total = tn_type_elements(c->session, &x->type);
    return tn_reshape(&c->b, x, &total, 1);
}

bool onnx_NonZero(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *rows[TN_MAX_RANK];
    tn_type t = x->type;
    tn_op *mark = c->b.block->last;
    tn_value *mask = t.dtype == TN_BOOL ? flat(c, x) : emit_compare_number(c, "NE", flat(c, x), 0);
    if (!mask)
        return false;
    onnx_node probe = {.output = &mask, .noutputs = 1};
    onnx_fold_constants(c, &probe, mark);
    tn_value *at = true_positions(c, n, mask);
    if (!at)
        return false;
    if (t.rank == 0)
        return onnx_set_output(c, n, 0,
                               emit_slice_axis(c, tn_reshape(&c->b, at, (tn_dim[2]){num(c, 1), at->type.dim[0]}, 2), 0,
                                               num(c, 0), num(c, 0), 1));
    tn_dim row[2] = {num(c, 1), at->type.dim[0]};
    for (int i = t.rank - 1; i >= 0; i--) {
        tn_value *size = emit_size(c, t.dim[i], TN_I64);
        tn_value *here = i == 0 ? at : tn_binary_b(&c->b, TN_OP_remainder, at, size);
        rows[i] = tn_reshape(&c->b, here, row, 2);
        at = i == 0 ? at : emit_div(c, at, size);
    }
    return onnx_set_output(c, n, 0, t.rank == 1 ? rows[0] : tn_concatenate(&c->b, rows, t.rank, 0));
}

bool onnx_Compress(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *mask = n->input[1];
    int axis = 0;
    if (mask->type.dtype != TN_BOOL || mask->type.rank != 1)
        return onnx_error(c, n, "the condition must be a list of bool");
    if (!onnx_has_attr(n, "axis"))
        x = flat(c, x);
    else if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), x->type.rank, &axis))
        return false;
    tn_value *at = true_positions(c, n, mask);
    return at && onnx_set_output(c, n, 0, emit_take(c, x, at, axis));
}

/* ---- ReverseSequence
 * ---------------------------------------------------------------------------------------------------------------- */

/* Row b of the batch, reversed in its first lengths[b] steps: gathered at position t < length ? length - 1 - t : t. */
bool onnx_ReverseSequence(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *lengths = tn_convert(&c->b, n->input[1], TN_I64);
    int time, batch;
    element_plan p;
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "time_axis", 0), x->type.rank, &time) ||
        !onnx_axis(c, n, onnx_attr_int(c, n, "batch_axis", 1), x->type.rank, &batch))
        return false;
    if (time > 1 || batch > 1 || time == batch)
        return onnx_error(c, n, "time_axis and batch_axis must be 0 and 1 in some order");
    tn_type t = tn_type_make(TN_I64, x->type.rank, x->type.dim);
    tn_value *step = emit_iota_like(c, TN_I64, &t, time), *length = emit_along(c, lengths, &t, batch);
    tn_value *back = emit_sub(c, emit_add_number(c, length, -1), step);
    tn_value *at = emit_select(c, emit_compare(c, "LT", step, length), back, step);
    if (!at || !plan_elements(c, n, &x->type, at, time, &p))
        return false;
    return onnx_set_output(c, n, 0, gather_elements(c, x, &p));
}
