/* Exchanges two perfectly nested loops.
 *
 *     for %i … {                      for %j … {
 *       for %j … { body }      =>       for %i … { body }
 *     }                               }
 *
 * Refused unless the outer body is the inner loop alone, apart from pure operations that compute the inner one's bounds
 * and don't use the outer index: those move in front. The caller vouches that the iterations of both are independent.
 */
#include "loop/internal.h"

static tn_status refuse(const tn_lfunc *func, const char *outer, const char *inner, const char *why)
{
    return tn_error(func->session, TN_INVALID, TN_NO_LOC, "kernel @%s: interchange %%%s and %%%s: %s", func->name,
                    outer, inner, why);
}

/* Whether all operations of the block but `inner` are pure and independent of `index`. */
static const char *obstacle(tn_lblock *block, const tn_lop *inner, tn_lvalue *index)
{
    index->scratch = index;
    for (const tn_lop *op = block->first; op; op = op->next) {
        bool depends = false;
        for (int i = 0; i < op->noperands; i++)
            depends |= op->operand[i]->scratch != NULL;
        if (op == inner && depends)
            return "the inner loop's bounds depend on the outer index";
        if (op != inner && !(tn_lop_traits(op->code) & TN_L_PURE))
            return "the outer loop's body is more than the inner loop";
        if (op != inner && depends)
            return "the outer loop's body computes with its index outside the inner loop";
    }
    return NULL;
}

static void swap_operands(tn_lop *a, tn_lop *b)
{
    for (int i = 0; i < 3; i++) {
        tn_lvalue *t = a->operand[i];
        a->operand[i] = b->operand[i];
        b->operand[i] = t;
    }
}

tn_status tn_loop_interchange(tn_lfunc *func, const char *outer, const char *inner)
{
    tn_lop *a = tn_l_find_loop(func, outer), *b = tn_l_find_loop(func, inner);
    if (!a || !b)
        return refuse(func, outer, inner, a ? "the inner one does not exist" : "the outer one does not exist");
    if (b->block != a->region[0])
        return refuse(func, outer, inner, "the second is not directly inside the first");
    tn_l_clear_scratch(func);
    const char *why = obstacle(a->region[0], b, a->region[0]->arg);
    if (why)
        return refuse(func, outer, inner, why);
    tn_lbuilder before = tn_lbuilder_before(func, a);
    for (tn_lop *op = a->region[0]->first, *next; op; op = next) {
        next = op->next;
        if (op == b)
            continue;
        tn_lop_unlink(op);
        tn_lop_insert(&before, op);
    }
    /* The loops trade headers: bounds, kind, index. */
    swap_operands(a, b);
    tn_loop_kind kind = a->kind;
    a->kind = b->kind;
    b->kind = kind;
    tn_lvalue *index = a->region[0]->arg;
    a->region[0]->arg = b->region[0]->arg;
    b->region[0]->arg = index;
    a->region[0]->arg->block = a->region[0];
    b->region[0]->arg->block = b->region[0];
    return TN_OK;
}
