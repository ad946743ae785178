/* Integer constants whose elements count, first, first + step, …, as a Range of known bounds leaves them, become iotas where elements are computed from them: what a load of each
 * would cost is an addition then, and what compares two of them (a causal mask) is known to be a bound of places (visible.c). */
#include "fuse/internal.h"

/* The one dim of more than one element along which it counts; -1: none. */
static int counts_along(const tn_tensor *t, int64_t *first, int64_t *step)
{
    int64_t n;
    int axis = -1;
    if (!t || t->splat || (t->dtype != TN_I64 && t->dtype != TN_I32) || !tn_tensor_count(t, &n) || n < 2)
        return -1;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] > 1) {
            if (axis >= 0)
                return -1;
            axis = i;
        }
    *first = tn_number_to_int(t->dtype, tn_tensor_at(t, 0));
    if (__builtin_sub_overflow(tn_number_to_int(t->dtype, tn_tensor_at(t, 1)), *first, step) || *step == 0)
        return -1;
    int64_t expected = *first;
    for (int64_t i = 1; i < n; i++)
        if (__builtin_add_overflow(expected, *step, &expected) || tn_number_to_int(t->dtype, tn_tensor_at(t, i)) != expected)
            return -1;
    return axis;
}

/* Elements of v are computed with, perhaps moved before. */
static bool is_computed_with(const tn_use *use, int depth)
{
    const tn_op *op = use->user;
    if (tn_op_traits(op->code) & TN_ELEMENTWISE)
        return true;
    if (!op_is_view(op) || depth == 0 || !op->result->uses)
        return false;
    for (const tn_use *next = op->result->uses; next; next = next->next)
        if (!is_computed_with(next, depth - 1))
            return false;
    return true;
}

static void replace(tn_op *op, int axis, int64_t first, int64_t step)
{
    enum { DEPTH = 4 };
    tn_builder b = tn_builder_before(op);
    tn_value *made = NULL;
    for (tn_use *use = op->result->uses, *next; use; use = next) {
        next = use->next;
        if (!is_computed_with(use, DEPTH))
            continue;
        if (!made)
            made = tn_series(&b, op->result->type.dtype, op->result->type.dim, op->result->type.rank, axis, first, step);
        tn_set_operand(use->user, (int)(use - use->user->operand), made);
    }
}

void fuse_count_constants(tn_block *block)
{
    for (tn_op *op = block->first, *next; op; op = next) {
        int64_t first, step;
        next = op->next;
        for (int r = 0; r < op->nregions; r++)
            fuse_count_constants(op->region[r]);
        int axis = op->nresults == 1 ? counts_along(tn_constant_of(op->result), &first, &step) : -1;
        if (axis >= 0)
            replace(op, axis, first, step);
    }
}
