/* Graphs, blocks, and the builder: tn_build checks and infers through infer.c; the rest are conveniences over it. */
#include "graph/internal.h"

#include <assert.h>
#include <string.h>

/* ---- graphs and blocks ------------------------------------------------------------------------------------------------- */

tn_block *tn_block_new(tn_graph *graph, tn_op *parent)
{
    tn_block *block = TN_NEW(&graph->session->arena, tn_block);
    block->graph = graph;
    block->parent = parent;
    return block;
}

tn_graph *tn_graph_new(tn_session *session, const char *name)
{
    tn_graph *graph = TN_NEW(&session->arena, tn_graph);
    graph->session = session;
    graph->name = tn_intern_z(session, name);
    graph->body = tn_block_new(graph, NULL);
    return graph;
}

/* The array of arguments grows in powers of two: nargs alone says when it is full. */
static void push_arg(tn_arena *arena, tn_block *block, tn_value *value)
{
    int n = block->nargs;
    if ((n & (n - 1)) == 0) {
        tn_value **bigger = TN_NEW_ARRAY(arena, tn_value *, n ? 2 * (size_t)n : 1);
        if (n)
            memcpy(bigger, block->arg, (size_t)n * sizeof *bigger);
        block->arg = bigger;
    }
    block->arg[block->nargs++] = value;
}

tn_value *tn_block_arg(tn_block *block, const tn_type *type, const char *name)
{
    tn_session *session = block->graph->session;
    tn_value *value = TN_NEW(&session->arena, tn_value);
    value->type = *type;
    value->block = block;
    value->index = block->nargs;
    value->name = name ? tn_intern_z(session, name) : NULL;
    value->id = block->graph->next_id++;
    push_arg(&session->arena, block, value);
    return value;
}

/* NULL with a diagnostic if the type is none that a program may have. */
tn_value *tn_graph_input(tn_graph *graph, const char *name, const tn_type *type)
{
    const char *what = name ? tn_format(&graph->session->arena, "input '%s'", name) : "input";
    return tn_check_type(graph, TN_NO_LOC, what, type, false) ? tn_block_arg(graph->body, type, name) : NULL;
}

tn_builder tn_builder_at_end(tn_block *block, tn_loc loc)
{
    return (tn_builder){.graph = block->graph, .block = block, .loc = loc};
}

tn_builder tn_builder_before(tn_op *op)
{
    return (tn_builder){.graph = op->block->graph, .block = op->block, .before = op, .loc = op->loc};
}

/* ---- the general form ----------------------------------------------------------------------------------------------------- */

static tn_attr copy_attr(tn_session *session, const tn_attr *attr)
{
    tn_attr copy = *attr;
    switch (tn_attr_kind_of(attr->name)) {
    case TN_ATTR_INTS:
        copy.ints = attr->n > 0 ? tn_memdup(&session->arena, attr->ints, (size_t)attr->n * sizeof *attr->ints) : NULL;
        break;
    case TN_ATTR_DIMS:
        copy.dims = attr->n > 0 ? tn_memdup(&session->arena, attr->dims, (size_t)attr->n * sizeof *attr->dims) : NULL;
        break;
    case TN_ATTR_STRING:
        copy.s = tn_intern_z(session, attr->s);
        break;
    default:
        break;
    }
    return copy;
}

void tn_set_attrs(tn_session *session, tn_op *op, const tn_attr *attrs, int n)
{
    op->attr = TN_NEW_ARRAY(&session->arena, tn_attr, (size_t)n);
    op->nattrs = n;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && op->attr[at - 1].name > attrs[i].name; at--)
            op->attr[at] = op->attr[at - 1];
        op->attr[at] = copy_attr(session, &attrs[i]);
    }
}

tn_op *tn_new_op(tn_session *session, tn_opcode code, tn_loc loc, int noperands, int nregions)
{
    tn_op *op = TN_NEW(&session->arena, tn_op);
    op->code = code;
    op->loc = loc;
    op->noperands = noperands;
    op->operand = TN_NEW_ARRAY(&session->arena, tn_use, (size_t)noperands);
    op->nregions = nregions;
    op->region = TN_NEW_ARRAY(&session->arena, tn_block *, (size_t)nregions);
    return op;
}

void tn_link_use(tn_use *use)
{
    use->prev = NULL;
    use->next = use->value->uses;
    if (use->next)
        use->next->prev = use;
    use->value->uses = use;
}

void tn_insert_op(tn_builder *b, tn_op *op)
{
    op->block = b->block;
    op->next = b->before;
    op->prev = b->before ? b->before->prev : b->block->last;
    *(op->prev ? &op->prev->next : &b->block->first) = op;
    *(op->next ? &op->next->prev : &b->block->last) = op;
}

void tn_set_results(tn_graph *graph, tn_op *op, const tn_type *types, int n)
{
    op->nresults = n;
    op->result = TN_NEW_ARRAY(&graph->session->arena, tn_value, (size_t)n);
    for (int i = 0; i < n; i++)
        op->result[i] = (tn_value){.type = types[i], .def = op, .index = i, .id = graph->next_id++};
}

/* Links a checked operation: uses, regions, position. */
void tn_attach(tn_builder *b, tn_op *op)
{
    for (int i = 0; i < op->noperands; i++)
        tn_link_use(&op->operand[i]);
    for (int i = 0; i < op->nregions; i++)
        op->region[i]->parent = op;
    tn_insert_op(b, op);
}

tn_op *tn_build(tn_builder *b, tn_opcode code, tn_value *const *operands, int noperands, const tn_attr *attrs, int nattrs,
                tn_block *const *regions, int nregions)
{
    tn_session *session = b->graph->session;
    tn_type *types;
    int nresults;
    tn_op *op = tn_new_op(session, code, b->loc, noperands, nregions);
    bool whole = true;
    for (int i = 0; i < noperands; i++) {
        op->operand[i] = (tn_use){.value = operands[i], .user = op};
        whole = whole && operands[i];
    }
    for (int i = 0; i < nregions; i++) {
        op->region[i] = regions[i];
        whole = whole && regions[i];
    }
    tn_set_attrs(session, op, attrs, nattrs);
    if (!whole || !tn_infer_types(b->graph, op, true, &types, &nresults)) {
        b->failed = true;
        return NULL;
    }
    tn_set_results(b->graph, op, types, nresults);
    tn_attach(b, op);
    return op;
}

static tn_value *build_one(tn_builder *b, tn_opcode code, tn_value *const *operands, int noperands, const tn_attr *attrs, int nattrs)
{
    tn_op *op = tn_build(b, code, operands, noperands, attrs, nattrs, NULL, 0);
    return op ? &op->result[0] : NULL;
}

/* ---- attributes as compound literals ------------------------------------------------------------------------------------ */

static tn_attr attr_int(tn_attr_name name, int64_t value) { return (tn_attr){.name = name, .i = value}; }
static tn_attr attr_ints(tn_attr_name name, const int64_t *list, int n) { return (tn_attr){.name = name, .n = n, .ints = list}; }
static tn_attr attr_dims(tn_attr_name name, const tn_dim *list, int n) { return (tn_attr){.name = name, .n = n, .dims = list}; }

/* ---- conveniences ----------------------------------------------------------------------------------------------------------- */

void tn_return(tn_builder *b, tn_value *const *values, int n) { tn_build(b, TN_OP_return, values, n, NULL, 0, NULL, 0); }

tn_value *tn_unary(tn_builder *b, tn_opcode code, tn_value *x) { return build_one(b, code, &x, 1, NULL, 0); }

tn_value *tn_binary(tn_builder *b, tn_opcode code, tn_value *x, tn_value *y)
{
    return build_one(b, code, (tn_value *[]){x, y}, 2, NULL, 0);
}

tn_value *tn_binary_b(tn_builder *b, tn_opcode code, tn_value *x, tn_value *y)
{
    tn_type type;
    if (!tn_broadcast_types(b, (tn_value *[]){x, y}, 2, &type))
        return NULL;
    return tn_binary(b, code, tn_broadcast_to(b, x, type.dim, type.rank), tn_broadcast_to(b, y, type.dim, type.rank));
}

/* One pair of sizes by NumPy's rule; NULL: they do not go together. */
static tn_dim broadcast_dim(tn_builder *b, tn_dim x, tn_dim y)
{
    tn_session *session = b->graph->session;
    if (tn_dim_is(x, 1))
        return y;
    if (tn_dim_is(y, 1) || tn_dim_eq(session, x, y))
        return tn_dim_is_const(y) && !tn_dim_is(y, 1) ? y : x;
    if (tn_dim_ne(session, x, y))
        return NULL;
    tn_record_equal(b->graph, b->loc, x, y);
    return tn_dim_is_const(y) ? y : x;
}

static bool broadcast_into(tn_builder *b, tn_type *common, const tn_type *type)
{
    int more = type->rank - common->rank;
    if (more > 0) { /* align at the end */
        memmove(common->dim + more, common->dim, (size_t)common->rank * sizeof(tn_dim));
        memcpy(common->dim, type->dim, (size_t)more * sizeof(tn_dim));
        common->rank = type->rank;
    }
    int offset = common->rank - type->rank;
    for (int i = more > 0 ? more : 0; i < type->rank; i++) {
        tn_dim d = broadcast_dim(b, common->dim[offset + i], type->dim[i]);
        if (!d)
            return false;
        common->dim[offset + i] = d;
    }
    return true;
}

bool tn_broadcast_types(tn_builder *b, tn_value *const *values, int n, tn_type *out)
{
    tn_session *session = b->graph->session;
    for (int i = 0; i < n; i++)
        if (!values[i]) {
            b->failed = true;
            return false;
        }
    *out = n > 0 ? values[0]->type : (tn_type){0};
    for (int i = 1; i < n; i++) {
        tn_type before = *out;
        if (broadcast_into(b, out, &values[i]->type))
            continue;
        tn_text x = {.arena = &session->arena}, y = {.arena = &session->arena};
        tn_text_dims(&x, before.dim, before.rank);
        tn_text_dims(&y, values[i]->type.dim, values[i]->type.rank);
        tn_error(session, TN_INVALID, b->loc, "shapes %s and %s do not broadcast: sizes, aligned at the end, must be equal or 1", x.at, y.at);
        b->failed = true;
        return false;
    }
    return true;
}

static bool same_dims(const tn_type *type, const tn_dim *dims, int rank)
{
    return type->rank == rank && (rank == 0 || memcmp(type->dim, dims, (size_t)rank * sizeof *dims) == 0);
}

tn_value *tn_broadcast_to(tn_builder *b, tn_value *x, const tn_dim *dims, int rank)
{
    int64_t map[TN_MAX_RANK];
    if (x && same_dims(&x->type, dims, rank))
        return x;
    int n = x ? x->type.rank : 0;
    for (int i = 0; i < n; i++)
        map[i] = rank - n + i;
    return tn_broadcast_in_dim(b, x, dims, rank, map);
}

tn_value *tn_compare(tn_builder *b, const char *direction, tn_value *x, tn_value *y)
{
    tn_attr attr = {.name = TN_A_direction, .s = direction};
    return build_one(b, TN_OP_compare, (tn_value *[]){x, y}, 2, &attr, 1);
}

tn_value *tn_select(tn_builder *b, tn_value *pred, tn_value *x, tn_value *y)
{
    return build_one(b, TN_OP_select, (tn_value *[]){pred, x, y}, 3, NULL, 0);
}

tn_value *tn_convert(tn_builder *b, tn_value *x, tn_dtype dtype)
{
    tn_attr attr = attr_int(TN_A_dtype, dtype);
    return x && x->type.dtype == dtype ? x : build_one(b, TN_OP_convert, &x, 1, &attr, 1);
}

tn_value *tn_constant(tn_builder *b, const tn_tensor *tensor)
{
    tn_attr attr = {.name = TN_A_value, .tensor = tensor};
    if (!tensor)
        b->failed = true;
    return tensor ? build_one(b, TN_OP_constant, NULL, 0, &attr, 1) : NULL;
}

static tn_value *scalar_of(tn_builder *b, tn_dtype dtype, tn_number value)
{
    return tn_constant(b, tn_tensor_splat(b->graph->session, dtype, 0, NULL, value));
}

tn_value *tn_scalar_constant(tn_builder *b, tn_dtype dtype, double value)
{
    return scalar_of(b, dtype, tn_number_from_double(dtype, value));
}

tn_value *tn_int_constant(tn_builder *b, tn_dtype dtype, int64_t value)
{
    return scalar_of(b, dtype, tn_number_from_int(dtype, value));
}

tn_value *tn_full_like(tn_builder *b, tn_value *x, double value)
{
    if (!x) {
        b->failed = true;
        return NULL;
    }
    return tn_broadcast_to(b, tn_scalar_constant(b, x->type.dtype, value), x->type.dim, x->type.rank);
}

tn_value *tn_dimension(tn_builder *b, tn_dim dim)
{
    tn_attr attr = {.name = TN_A_dim, .dim = dim};
    return tn_dim_is_const(dim) ? tn_int_constant(b, TN_I64, dim->value) : build_one(b, TN_OP_dimension, NULL, 0, &attr, 1);
}

tn_value *tn_iota(tn_builder *b, tn_dtype dtype, const tn_dim *dims, int rank, int axis)
{
    tn_attr attr[] = {attr_dims(TN_A_shape, dims, rank), attr_int(TN_A_dtype, dtype), attr_int(TN_A_iota_dimension, axis)};
    return build_one(b, TN_OP_iota, NULL, 0, attr, 3);
}

tn_value *tn_series(tn_builder *b, tn_dtype dtype, const tn_dim *dims, int rank, int axis, int64_t first, int64_t step)
{
    tn_value *x = tn_iota(b, dtype, dims, rank, axis);
    if (step != 1)
        x = tn_binary(b, TN_OP_multiply, x, tn_broadcast_in_dim(b, tn_int_constant(b, dtype, step), dims, rank, NULL));
    return first ? tn_binary(b, TN_OP_add, x, tn_broadcast_in_dim(b, tn_int_constant(b, dtype, first), dims, rank, NULL)) : x;
}

tn_value *tn_reshape(tn_builder *b, tn_value *x, const tn_dim *dims, int rank)
{
    tn_attr attr = attr_dims(TN_A_shape, dims, rank);
    return x && same_dims(&x->type, dims, rank) ? x : build_one(b, TN_OP_reshape, &x, 1, &attr, 1);
}

static int rank_of(const tn_value *x) { return x ? x->type.rank : 0; }

tn_value *tn_transpose(tn_builder *b, tn_value *x, const int64_t *permutation)
{
    tn_attr attr = attr_ints(TN_A_permutation, permutation, rank_of(x));
    return build_one(b, TN_OP_transpose, &x, 1, &attr, 1);
}

tn_value *tn_broadcast_in_dim(tn_builder *b, tn_value *x, const tn_dim *dims, int rank, const int64_t *broadcast_dimensions)
{
    tn_attr attr[] = {attr_dims(TN_A_shape, dims, rank), attr_ints(TN_A_broadcast_dimensions, broadcast_dimensions, rank_of(x))};
    return build_one(b, TN_OP_broadcast_in_dim, &x, 1, attr, 2);
}

tn_value *tn_slice(tn_builder *b, tn_value *x, const tn_dim *start, const tn_dim *limit, const int64_t *strides)
{
    tn_attr attr[] = {attr_dims(TN_A_start, start, rank_of(x)), attr_dims(TN_A_limit, limit, rank_of(x)),
                      attr_ints(TN_A_strides, strides, rank_of(x))};
    return build_one(b, TN_OP_slice, &x, 1, attr, 3);
}

tn_value *tn_pad(tn_builder *b, tn_value *x, tn_value *value, const tn_dim *low, const tn_dim *high, const int64_t *interior)
{
    tn_attr attr[] = {attr_dims(TN_A_low, low, rank_of(x)), attr_dims(TN_A_high, high, rank_of(x)),
                      attr_ints(TN_A_interior, interior, rank_of(x))};
    return build_one(b, TN_OP_pad, (tn_value *[]){x, value}, 2, attr, 3);
}

tn_value *tn_concatenate(tn_builder *b, tn_value *const *xs, int n, int axis)
{
    tn_attr attr = attr_int(TN_A_dimension, axis);
    return build_one(b, TN_OP_concatenate, xs, n, &attr, 1);
}

tn_value *tn_reverse(tn_builder *b, tn_value *x, const int64_t *axes, int n)
{
    tn_attr attr = attr_ints(TN_A_dimensions, axes, n);
    return build_one(b, TN_OP_reverse, &x, 1, &attr, 1);
}

/* The element that leaves `combine` unchanged. add: +0, as StableHLO's producers write it. */
static tn_value *identity_of(tn_builder *b, tn_opcode combine, tn_dtype dtype)
{
    switch (combine) {
    case TN_OP_add:
    case TN_OP_or:
    case TN_OP_xor:
        return tn_int_constant(b, dtype, 0);
    case TN_OP_multiply:
        return tn_int_constant(b, dtype, 1);
    case TN_OP_and:
        return tn_int_constant(b, dtype, dtype == TN_BOOL ? 1 : -1);
    case TN_OP_maximum:
        return scalar_of(b, dtype, tn_number_lowest(dtype));
    case TN_OP_minimum:
        return scalar_of(b, dtype, tn_number_highest(dtype));
    default:
        assert(!"an operation with an identity");
        return NULL;
    }
}

tn_block *tn_combine_block(tn_graph *graph, tn_opcode combine, tn_dtype dtype)
{
    tn_block *block = tn_block_new(graph, NULL);
    tn_type scalar = tn_type_scalar(dtype);
    tn_value *x = tn_block_arg(block, &scalar, NULL), *y = tn_block_arg(block, &scalar, NULL);
    tn_builder inner = tn_builder_at_end(block, TN_NO_LOC);
    tn_value *result = tn_binary(&inner, combine, x, y);
    tn_return(&inner, &result, 1);
    return inner.failed ? NULL : block;
}

tn_value *tn_reduce(tn_builder *b, tn_opcode combine, tn_value *x, const int64_t *axes, int n)
{
    if (!x || (tn_is_complex(x->type.dtype) && combine != TN_OP_add && combine != TN_OP_multiply)) {
        if (x)
            tn_error(b->graph->session, TN_INVALID, b->loc, "%s does not reduce %s", tn_op_name(combine), tn_dtype_text(x->type.dtype));
        b->failed = true;
        return NULL;
    }
    tn_attr attr = attr_ints(TN_A_dimensions, axes, n);
    tn_value *operand[] = {x, identity_of(b, combine, x->type.dtype)};
    tn_block *block = tn_combine_block(b->graph, combine, x->type.dtype);
    tn_op *op = tn_build(b, TN_OP_reduce, operand, 2, &attr, 1, &block, 1);
    return op ? &op->result[0] : NULL;
}

tn_value *tn_dot_general(tn_builder *b, tn_value *x, tn_value *y, const int64_t *lhs_batch, const int64_t *rhs_batch, int nbatch,
                         const int64_t *lhs_contract, const int64_t *rhs_contract, int ncontract)
{
    tn_attr attr[] = {attr_ints(TN_A_lhs_batch, lhs_batch, nbatch), attr_ints(TN_A_rhs_batch, rhs_batch, nbatch),
                      attr_ints(TN_A_lhs_contract, lhs_contract, ncontract), attr_ints(TN_A_rhs_contract, rhs_contract, ncontract)};
    return build_one(b, TN_OP_dot_general, (tn_value *[]){x, y}, 2, attr, 4);
}
