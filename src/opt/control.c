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

/* Operations of the region and of those inside, but leaves; one that does what may be done once, as to give a size its name, counts as too many. */
static int64_t count_ops(const tn_block *region)
{
    enum { TOO_MANY = 1 << 20 };
    int64_t n = 0;
    for (const tn_op *op = region->first; op != region->last; op = op->next) {
        n += tn_op_traits(op->code) & TN_EFFECT ? TOO_MANY : op->noperands > 0;
        for (int r = 0; r < op->nregions; r++)
            n += count_ops(op->region[r]);
    }
    return n;
}

/* v is a function of the region's argument i, an integer, and of numbers: its value where the argument is x. */
static bool value_of_counter(const tn_block *region, const tn_value *v, int i, tn_number x, tn_number *out)
{
    const tn_op *op = v->def;
    tn_number in[2];
    if (!op || op->block != region || op->noperands != 2 || tn_op_scalar(op) == TN_SCALAR_NONE)
        return false;
    for (int k = 0; k < 2; k++)
        if (tn_operand(op, k) == region->arg[i])
            in[k] = x;
        else if (!value_splat(tn_operand(op, k), &in[k]))
            return false;
    *out = tn_scalar_eval(tn_op_scalar(op), region->arg[i]->type.dtype, in);
    return true;
}

/* How often the loop runs, by its argument i, which starts at a number and says when it ends; -1: i is no such counter, or it runs more often. */
static int64_t trips_by(const tn_op *op, int i, int64_t most)
{
    const tn_type *type = &op->region[0]->arg[i]->type;
    tn_number x, again;
    int64_t trips = 0;
    if (type->rank || !tn_is_integer(type->dtype) || !value_splat(tn_operand(op, i), &x))
        return -1;
    for (;; trips++) {
        if (!value_of_counter(op->region[0], tn_operand(op->region[0]->last, 0), i, x, &again))
            return -1;
        if (!again.u)
            return trips;
        if (trips == most || !value_of_counter(op->region[1], tn_operand(op->region[1]->last, i), i, x, &x))
            return -1;
    }
}

/* while i < 3 { … } -> its body three times, if it is small */
static bool while_counted(rewriter *rw, tn_op *op)
{
    enum { MOST_TRIPS = 16, MOST_OPS = 64 };
    int64_t trips = -1;
    for (int i = 0; i < op->noperands && trips < 0; i++)
        trips = trips_by(op, i, MOST_TRIPS);
    if (trips < 0)
        return false;
    if (trips * count_ops(op->region[1]) > MOST_OPS)
        return rw_decline(rw, op, "its trips are known, but together they have too many operations to write them out");
    size_t bytes = sizeof(tn_value *) * ((size_t)op->noperands + 1);
    tn_value **args = tn_alloc(&rw->session->arena, bytes), **out = tn_alloc(&rw->session->arena, bytes);
    for (int i = 0; i < op->noperands; i++)
        args[i] = tn_operand(op, i);
    for (int64_t t = 0; t < trips; t++) {
        inline_region(rw, op->region[1], args, out);
        tn_value **done = args;
        args = out, out = done;
    }
    return rw_replace_all(rw, op, args);
}

const rule opt_control_rules[] = {
    RULE(if, if_constant, EXACT),
    RULE(case, case_constant, EXACT),
    RULE(while, while_never, EXACT),
    RULE(while, while_counted, EXACT),
    {.apply = NULL},
};
