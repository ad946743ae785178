/* Splits a loop in two.
 *
 *     for %i = %lo to %hi step %s {          for %i.tile = %lo to %hi step %s * factor {
 *       body(%i)                       =>      %end = min(%i.tile + %s * factor, %hi)
 *     }                                        for %i = %i.tile to %end step %s { body(%i) }
 *                                            }
 *
 * The inner loop keeps the kind, the outer one is serial; the order of iterations stays. Needs: nothing. Keeps: every
 * stage's rules. */
#include "loop/internal.h"

#include <string.h>

typedef struct search {
    const char *index;
    tn_lop *found;
} search;

static void match(void *context, tn_lop *op)
{
    search *s = context;
    if (!s->found && op->code == TN_L_for && op->region[0]->arg->name &&
        strcmp(op->region[0]->arg->name, s->index) == 0)
        s->found = op;
}

tn_lop *tn_l_find_loop(const tn_lfunc *func, const char *index)
{
    search s = {.index = index};
    tn_l_walk(func->body, match, &s);
    return s.found;
}

tn_status tn_loop_tile(tn_lfunc *func, const char *index, int64_t factor)
{
    tn_lop *loop = tn_l_find_loop(func, index);
    if (!loop)
        return tn_error(func->session, TN_INVALID, TN_NO_LOC, "kernel @%s: tile: no loop has the index %%%s",
                        func->name, index);
    if (factor < 1)
        return tn_error(func->session, TN_INVALID, TN_NO_LOC,
                        "kernel @%s: tile %%%s: the factor must be at least 1, found %lld", func->name, index,
                        (long long)factor);
    tn_lbuilder b = tn_lbuilder_before(func, loop);
    tn_lvalue *stride = tn_l_fn2(&b, TN_S_mul, loop->operand[2], tn_l_index(&b, factor));
    const char *name = tn_format(tn_l_arena(func), "%s.tile", index);
    tn_lop *outer = tn_l_for(&b, name, loop->operand[0], loop->operand[1], stride, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&b, outer->region[0]);
    tn_lvalue *start = outer->region[0]->arg;
    tn_lvalue *end = tn_l_fn2(&in, TN_S_min, tn_l_fn2(&in, TN_S_add, start, stride), loop->operand[1]);
    tn_lop_unlink(loop);
    tn_lop_insert(&in, loop);
    loop->operand[0] = start;
    loop->operand[1] = end;
    return TN_OK;
}
