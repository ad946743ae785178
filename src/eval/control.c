/* Operations that run regions or pass values through. */
#include "eval/internal.h"

#include <inttypes.h>

static tn_status pass_through(const tn_op *op, tn_eval_value *const *in, tn_eval_value **out)
{
    for (int i = 0; i < op->noperands; i++)
        out[i] = tn_eval_retain(in[i]);
    return TN_OK;
}

EVAL(optimization_barrier)
{
    (void)e;
    return pass_through(op, in, out);
}

EVAL(return) /* out: the results of the block that ends */
{
    (void)e;
    return pass_through(op, in, out);
}

/* The regions' signatures were verified; a graph built wrongly must still not write past `out`. */
static tn_status run_region(tn_evaluator *e, const tn_op *op, int index, tn_eval_value *const *args, int nargs,
                            tn_eval_value **out, int nout)
{
    const tn_block *block = op->region[index];
    if (block->nargs != nargs)
        return tn_eval_expect(e, op, "arguments of the region", nargs, block->nargs);
    if (block->last->noperands != nout)
        return tn_eval_expect(e, op, "results of the region", nout, block->last->noperands);
    return tn_eval_block(e, block, args, out);
}

EVAL(composite)
{
    return run_region(e, op, 0, in, op->noperands, out, op->nresults);
}

EVAL(custom_call)
{
    (void)in, (void)out;
    const tn_attr *name = tn_find_attr(op, TN_A_name);
    return tn_error(e->session, TN_UNSUPPORTED, op->loc, "custom_call: the reference interpreter cannot call '%s'",
                    name ? name->s : "");
}

EVAL(if)
{
    const tn_tensor *selector = &in[0]->tensor;
    if (selector->rank)
        return tn_eval_expect(e, op, "rank of the selector", 0, selector->rank);
    const tn_number value = tn_at(selector, 0);
    int64_t branch = op->code == TN_OP_if ? value.u == 0 : value.i;
    if (branch < 0 || branch >= op->nregions)
        branch = op->nregions - 1;
    return run_region(e, op, (int)branch, NULL, 0, out, op->nresults);
}

EVAL(case)
{
    return tn_eval_if(e, op, in, out);
}

/* Runs region 0 on the state: goes on while it returns true. */
static tn_status holds(tn_evaluator *e, const tn_op *op, tn_eval_value *const *state, bool *yes)
{
    tn_eval_value *result = NULL;
    TN_TRY(run_region(e, op, 0, state, op->noperands, &result, 1));
    tn_status status =
        result->tensor.rank ? tn_eval_expect(e, op, "rank of the condition", 0, result->tensor.rank) : TN_OK;
    *yes = status == TN_OK && tn_at(&result->tensor, 0).u != 0;
    tn_eval_release(e, result);
    return status;
}

EVAL(while)
{
    const int n = op->noperands;
    tn_eval_value **next;
    if (op->nresults != n)
        return tn_eval_expect(e, op, "number of results", n, op->nresults);
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *next, &next));
    pass_through(op, in, out);
    for (bool yes;;) {
        TN_TRY(holds(e, op, out, &yes));
        if (!yes)
            return TN_OK;
        TN_TRY(run_region(e, op, 1, out, n, next, n));
        for (int i = 0; i < n; i++) {
            tn_eval_release(e, out[i]);
            out[i] = next[i], next[i] = NULL;
        }
    }
}
