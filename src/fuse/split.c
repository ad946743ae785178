/* Reductions that would leave a GPU's processors idle, in two: the outermost dim that is reduced is cut into parts, each is reduced by programs of its own, and a
 * second kernel reduces what they gave. Both are ordinary reductions of the graph. What is summed in a wider type stays so between them. */
#include "fuse/internal.h"

/* The operation that combines two values, if the parts can be combined by it in any order. */
static bool combine_of(const tn_op *reduce, tn_opcode *combine)
{
    const tn_block *region = reduce->region[0];
    const tn_op *op = region->first;
    if (reduce->nresults != 1 || op->next != region->last || op->noperands != 2 || tn_operand(region->last, 0) != op->result ||
        tn_operand(op, 0) == tn_operand(op, 1) || tn_operand(op, 0)->def || tn_operand(op, 1)->def || tn_operand(op, 0)->block != region ||
        tn_operand(op, 1)->block != region)
        return false;
    *combine = op->code;
    tn_scalar fn = tn_op_scalar(op);
    tn_number identity;
    return fn != TN_SCALAR_NONE && tn_scalar_traits(fn) & TN_SCALAR_ASSOCIATES && tn_scalar_identity(fn, reduce->result->type.dtype, &identity);
}

static bool starts_with_identity(const tn_op *reduce)
{
    const tn_value *init = tn_operand(reduce, 1);
    const tn_tensor *constant = fuse_single_constant(init);
    tn_number identity;
    return constant && tn_scalar_identity(tn_op_scalar(reduce->region[0]->first), init->type.dtype, &identity) &&
           tn_number_same(init->type.dtype, tn_tensor_at(constant, 0), identity);
}

static bool is_reduced(const tn_op *reduce, int dim)
{
    int n;
    const int64_t *dims = tn_attr_ints(reduce, TN_A_dimensions, &n);
    for (int i = 0; i < n; i++)
        if (dims[i] == dim)
            return true;
    return false;
}

/* Bytes of an element of what is loaded: conversions are made on the way. */
static int64_t loaded_bytes(const tn_value *x)
{
    while (x->def && x->def->code == TN_OP_convert)
        x = tn_operand(x->def, 0);
    return tn_dtype_bits(x->type.dtype) / 8;
}

/* How many parts of which dim; 0: none. */
static int64_t parts_of(const tn_tile_target *target, const tn_op *reduce, int *dim)
{
    const tn_type *type = &tn_operand(reduce, 0)->type;
    int64_t kept = 1, folded = 1;
    *dim = -1;
    for (int i = 0; i < type->rank; i++) {
        bool reduced = is_reduced(reduce, i);
        if (!tn_dim_is_const(type->dim[i]) || type->dim[i]->value < 1 || !tn_mul(reduced ? folded : kept, type->dim[i]->value, reduced ? &folded : &kept))
            return 0;
        if (reduced && *dim < 0 && type->dim[i]->value > 1)
            *dim = i;
    }
    if (*dim < 0 || type->rank == TN_MAX_RANK)
        return 0;
    int64_t parts = fuse_gpu_parts(target, kept, folded, is_reduced(reduce, type->rank - 1), loaded_bytes(tn_operand(reduce, 0))), extent = type->dim[*dim]->value;
    while (parts > 1 && extent % parts)
        parts /= 2;
    return parts > 1 ? parts : 0;
}

static void split(tn_session *session, tn_op *reduce, tn_opcode combine, int dim, int64_t parts)
{
    tn_builder b = tn_builder_before(reduce);
    tn_value *x = tn_operand(reduce, 0);
    tn_dtype dtype = x->type.dtype;
    tn_dim dims[TN_MAX_RANK];
    int64_t axes[TN_MAX_RANK], at = 0;
    int rank = 0, n = 0;
    for (int i = 0; i < x->type.rank; i++) {
        if (i == dim) {
            at = rank - n;
            dims[rank++] = tn_dim_const(session, parts);
            dims[rank] = tn_dim_const(session, x->type.dim[i]->value / parts);
        } else {
            dims[rank] = x->type.dim[i];
        }
        if (is_reduced(reduce, i))
            axes[n++] = rank;
        rank++;
    }
    tn_value *part = tn_reduce(&b, combine, tn_convert(&b, tn_reshape(&b, x, dims, rank), fuse_accumulator(dtype)), axes, n);
    tn_value *whole = tn_convert(&b, tn_reduce(&b, combine, part, &at, 1), dtype);
    tn_replace_uses(reduce->result, whole);
    tn_erase(reduce);
}

void fuse_split_reductions(tn_session *session, tn_block *block, const tn_tile_target *target)
{
    for (tn_op *op = block->first, *next; op; op = next) {
        tn_opcode combine;
        int dim;
        next = op->next;
        if (op->code == TN_OP_while || op->code == TN_OP_if || op->code == TN_OP_case)
            for (int r = 0; r < op->nregions; r++)
                fuse_split_reductions(session, op->region[r], target);
        if (!op_is_reduce(op) || !combine_of(op, &combine) || !starts_with_identity(op))
            continue;
        int64_t parts = parts_of(target, op, &dim);
        if (parts)
            split(session, op, combine, dim, parts);
    }
}
