/* Rules on control flow whose way is known. */
#include "opt/internal.h"

/* The region's operations before op, its arguments replaced by `args`; results of its return in `out`. */
static void inline_region(rewriter *rw, const tn_block *region, tn_value *const *args, tn_value **out)
{
    tn_map values = {.arena = &rw->session->arena};
    for (int i = 0; i < region->nargs; i++)
        *tn_map_at(&values, TN_KEY(region->arg[i])) = args[i];
    for (const tn_op *op = region->first; op != region->last; op = op->next)
        tn_clone(&rw->b, op, &values);
    for (int i = 0; i < region->last->noperands; i++) {
        tn_value *to = tn_map_get(&values, TN_KEY(tn_operand(region->last, i)));
        out[i] = to ? to : tn_operand(region->last, i);
    }
}

bool replace_by_region(rewriter *rw, tn_op *op, const tn_block *region, tn_value *const *args)
{
    tn_value **out = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->nresults + 1);
    inline_region(rw, region, args, out);
    return rw_replace_all(rw, op, out);
}

/* if true { a } { b } -> a */
static bool if_constant(rewriter *rw, tn_op *op)
{
    tn_number pred;
    if (!value_splat(tn_operand(op, 0), &pred))
        return false;
    return replace_by_region(rw, op, op->region[pred.u ? 0 : 1], NULL);
}

/* case 1 { a } { b } { c } -> b; an index outside is the last one. */
static bool case_constant(rewriter *rw, tn_op *op)
{
    tn_number index;
    if (!value_splat(tn_operand(op, 0), &index))
        return false;
    bool inside = index.i >= 0 && index.i < op->nregions;
    return replace_by_region(rw, op, op->region[inside ? index.i : op->nregions - 1], NULL);
}

/* while { return false } { … } -> its operands */
static bool while_never(rewriter *rw, tn_op *op)
{
    tn_number again;
    if (!value_splat(tn_operand(op->region[0]->last, 0), &again) || again.u)
        return false;
    tn_value **out = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->nresults + 1);
    for (int i = 0; i < op->nresults; i++)
        out[i] = tn_operand(op, i);
    return rw_replace_all(rw, op, out);
}

const rule opt_control_rules[] = {
    RULE(if, if_constant, EXACT),
    RULE(case, case_constant, EXACT),
    RULE(while, while_never, EXACT),
    {.apply = NULL},
};
