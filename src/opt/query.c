/* Questions about operations and values. */
#include "opt/internal.h"

#include <string.h>

bool op_is_unused(const tn_op *op)
{
    for (int i = 0; i < op->nresults; i++)
        if (op->result[i].uses)
            return false;
    return true;
}

bool op_is_removable(const tn_op *op)
{
    if (op->code == TN_OP_optimization_barrier)
        return true; /* with nobody behind it, it keeps nothing apart */
    if (tn_op_traits(op->code) & (TN_EFFECT | TN_TERMINATOR))
        return false;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_op *inner = op->region[r]->first; inner; inner = inner->next)
            if (inner->code != TN_OP_return && !op_is_removable(inner))
                return false;
    return true;
}

static bool is_inside(const tn_block *block, const tn_block *outer)
{
    for (; block; block = block->parent ? block->parent->block : NULL)
        if (block == outer)
            return true;
    return false;
}

static bool block_captures(const tn_block *block, const tn_block *outer)
{
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->noperands; i++) {
            const tn_value *v = tn_operand(op, i);
            if (!is_inside(v->def ? v->def->block : v->block, outer))
                return true;
        }
        for (int r = 0; r < op->nregions; r++)
            if (block_captures(op->region[r], outer))
                return true;
    }
    return false;
}

bool op_has_captures(const tn_op *op)
{
    for (int r = 0; r < op->nregions; r++)
        if (block_captures(op->region[r], op->region[r]))
            return true;
    return false;
}

bool value_splat(const tn_value *v, tn_number *out)
{
    while (tn_is_op(v, TN_OP_broadcast_in_dim))
        v = tn_operand(v->def, 0);
    const tn_tensor *constant = tn_constant_of(v);
    int64_t count;
    if (!constant || !tn_tensor_count(constant, &count) || (!constant->splat && count != 1))
        return false;
    *out = tn_tensor_at(constant, 0);
    return true;
}

tn_value *build_splat(tn_builder *b, const tn_type *type, tn_number number)
{
    tn_session *session = b->graph->session;
    int64_t dims[TN_MAX_RANK];
    if (!tn_type_is_static(type))
        return tn_broadcast_in_dim(b, tn_constant(b, tn_tensor_splat(session, type->dtype, 0, NULL, number)), type->dim,
                                   type->rank, NULL);
    for (int i = 0; i < type->rank; i++)
        dims[i] = type->dim[i]->value;
    return tn_constant(b, tn_tensor_splat(session, type->dtype, type->rank, dims, number));
}

tn_value *build_reshaped(tn_builder *b, tn_value *v, const tn_dim *dims, int rank)
{
    const tn_tensor *constant = tn_constant_of(v);
    tn_type type = tn_type_make(v->type.dtype, rank, dims);
    if (!constant || !tn_type_is_static(&type))
        return tn_reshape(b, v, dims, rank);
    tn_tensor *shaped = TN_NEW(&b->graph->session->arena, tn_tensor);
    *shaped = *constant;
    shaped->rank = rank;
    for (int i = 0; i < rank; i++)
        shaped->dim[i] = dims[i]->value;
    return tn_constant(b, shaped);
}

bool value_is_constant(const tn_value *v)
{
    enum { DEEPEST = 8 };
    for (int depth = 0; v->def && depth < DEEPEST; depth++) {
        const tn_op *op = v->def;
        if (op->code == TN_OP_constant)
            return true;
        if (!(tn_op_traits(op->code) & TN_MOVES_DATA) || op->noperands != 1)
            return false;
        v = tn_operand(op, 0);
    }
    return false;
}

bool dims_agree(tn_session *session, const tn_dim *a, const tn_dim *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i] && !tn_dim_eq(session, a[i], b[i]))
            return false;
    return true;
}

bool types_agree(tn_session *session, const tn_type *a, const tn_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && dims_agree(session, a->dim, b->dim, a->rank);
}

bool ints_contain(const int64_t *list, int n, int64_t x)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

bool permutation_is_identity(const int64_t *p, int n)
{
    for (int i = 0; i < n; i++)
        if (p[i] != i)
            return false;
    return true;
}

tn_opcode region_combine(const tn_block *region)
{
    const tn_op *op = region->first;
    if (region->nargs != 2 || !op || op->noperands != 2 || op->nresults != 1 || op->next != region->last ||
        region->last->noperands != 1 || tn_operand(region->last, 0) != &op->result[0])
        return TN_OP_COUNT;
    tn_scalar fn = tn_op_scalar(op);
    bool straight = tn_operand(op, 0) == region->arg[0] && tn_operand(op, 1) == region->arg[1];
    bool crossed = tn_operand(op, 0) == region->arg[1] && tn_operand(op, 1) == region->arg[0];
    bool commutes = fn != TN_SCALAR_NONE && (tn_scalar_traits(fn) & TN_SCALAR_COMMUTES);
    return straight || (crossed && commutes) ? op->code : TN_OP_COUNT;
}

const tn_attr *attrs_with(tn_session *session, const tn_op *op, const tn_attr *changes, int nchanges, int *n)
{
    tn_attr *list = TN_NEW_ARRAY(&session->arena, tn_attr, (size_t)(op->nattrs + nchanges) + 1);
    *n = 0;
    for (int i = 0; i < op->nattrs; i++) {
        bool changed = false;
        for (int k = 0; k < nchanges; k++)
            changed |= changes[k].name == op->attr[i].name;
        if (!changed)
            list[(*n)++] = op->attr[i];
    }
    for (int k = 0; k < nchanges; k++)
        list[(*n)++] = changes[k];
    return list;
}

/* Copies a region that stands alone; what it captures stays the same value. */
static tn_block *copy_region(tn_graph *graph, const tn_block *block)
{
    tn_map values = {.arena = &graph->session->arena};
    tn_block *copy = tn_block_new(graph, NULL);
    for (int i = 0; i < block->nargs; i++)
        *tn_map_at(&values, TN_KEY(block->arg[i])) = tn_block_arg(copy, &block->arg[i]->type, block->arg[i]->name);
    tn_builder inner = tn_builder_at_end(copy, TN_NO_LOC);
    for (const tn_op *op = block->first; op; op = op->next)
        tn_clone(&inner, op, &values);
    return copy;
}

/* A region that no operation took: its uses of values outside must go. */
static void drop_region(tn_block *block)
{
    while (block->last)
        tn_erase(block->last);
}

tn_op *build_like(tn_builder *b, const tn_op *op, tn_value *const *operands, const tn_attr *changes, int nchanges)
{
    enum { MOST_REGIONS = 8 };
    tn_block *regions[MOST_REGIONS];
    int n;
    const tn_attr *attrs = attrs_with(b->graph->session, op, changes, nchanges, &n);
    if (op->nregions > MOST_REGIONS)
        return NULL;
    for (int i = 0; i < op->noperands; i++)
        if (!operands[i]) {
            b->failed = true;
            return NULL;
        }
    for (int i = 0; i < op->nregions; i++)
        regions[i] = copy_region(b->graph, op->region[i]);
    tn_op *made = tn_build(b, op->code, operands, op->noperands, attrs, n, regions, op->nregions);
    for (int i = 0; !made && i < op->nregions; i++)
        drop_region(regions[i]);
    return made;
}
