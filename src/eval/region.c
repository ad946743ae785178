/* Regions of rank-0 values, called once an element by reduce, sort, scatter and the like. */
#include "eval/internal.h"

#include <assert.h>

static int find_register(const tn_value *const *known, int n, const tn_value *v)
{
    for (int i = n - 1; i >= 0; i--)
        if (known[i] == v)
            return i;
    return -1;
}

static bool is_step(const tn_op *op)
{
    if (op->nresults != 1 || op->result[0].type.rank != 0 || op->nregions)
        return false;
    return op->code == TN_OP_constant ||
           ((tn_op_traits(op->code) & TN_ELEMENTWISE) && op->noperands >= 1 && op->noperands <= 3);
}

/* Registers that the straight program needs, or -1 if the region is not one. */
static int count_registers(const tn_evaluator *e, const tn_block *block)
{
    int n = block->nargs;
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->noperands; i++) {
            const tn_value *v = tn_operand(op, i);
            bool inside = v->def ? v->def->block == block : v->block == block;
            if (!inside && (v->type.rank || v->id >= e->slots || !e->slot[v->id]))
                return -1;
            n += !inside; /* at most: one a use of an outer value */
        }
        if (op != block->last && !is_step(op))
            return -1;
        n += op != block->last;
    }
    return n;
}

/* The register of v; an outer value gets one when first met. */
static int use(tn_region *r, const tn_value **known, int *n, const tn_value *v)
{
    int at = find_register(known, *n, v);
    if (at >= 0)
        return at;
    r->reg[*n] = tn_at(&r->e->slot[v->id]->tensor, 0);
    known[*n] = v;
    return (*n)++;
}

static void compile(tn_region *r, const tn_value **known)
{
    int n = 0;
    for (; n < r->nargs; n++)
        known[n] = r->block->arg[n];
    for (const tn_op *op = r->block->first; op != r->block->last; op = op->next) {
        if (op->code == TN_OP_constant) {
            r->reg[n] = tn_at(tn_find_attr(op, TN_A_value)->tensor, 0);
        } else {
            tn_step *step = &r->step[r->nsteps++];
            step->kernel = tn_kernel_of(op);
            for (int i = 0; i < op->noperands; i++)
                step->operand[i] = use(r, known, &n, tn_operand(op, i));
            step->result = n;
        }
        known[n++] = &op->result[0];
    }
    for (int i = 0; i < r->nresults; i++)
        r->result[i] = use(r, known, &n, tn_operand(r->block->last, i));
}

static tn_scalar single_function(const tn_region *r)
{
    if (!r->straight || r->nsteps != 1 || r->nargs != 2 || r->nresults != 1)
        return TN_SCALAR_NONE;
    const tn_step *s = r->step;
    bool both = (s->operand[0] == 0 && s->operand[1] == 1) || (s->operand[0] == 1 && s->operand[1] == 0);
    if (s->kernel.kind != TN_KERNEL_SCALAR || tn_scalar_arity(s->kernel.fn) != 2 || !both || r->result[0] != s->result)
        return TN_SCALAR_NONE;
    return tn_scalar_traits(s->kernel.fn) & TN_SCALAR_COMMUTES ? s->kernel.fn : TN_SCALAR_NONE;
}

static tn_status check_signature(tn_evaluator *e, const tn_op *op, const tn_block *block, int nargs, int nresults)
{
    if (block->nargs != nargs)
        return tn_eval_expect(e, op, "arguments of the region", nargs, block->nargs);
    if (block->last->noperands != nresults)
        return tn_eval_expect(e, op, "results of the region", nresults, block->last->noperands);
    for (int i = 0; i < nargs; i++)
        if (block->arg[i]->type.rank)
            return tn_eval_expect(e, op, "rank of an argument of the region", 0, block->arg[i]->type.rank);
    for (int i = 0; i < nresults; i++)
        if (tn_operand(block->last, i)->type.rank)
            return tn_eval_expect(e, op, "rank of a result of the region", 0, tn_operand(block->last, i)->type.rank);
    return TN_OK;
}

tn_status tn_region_prepare(tn_evaluator *e, const tn_op *op, int index, int nargs, int nresults, tn_region *out)
{
    const tn_block *block = op->region[index];
    tn_region r = {.e = e, .block = block, .op = op, .nargs = nargs, .nresults = nresults};
    TN_TRY(check_signature(e, op, block, nargs, nresults));
    TN_TRY(tn_eval_alloc(e, op->loc, nargs, sizeof *r.arg_type, &r.arg_type));
    TN_TRY(tn_eval_alloc(e, op->loc, nresults, sizeof *r.result_type, &r.result_type));
    for (int i = 0; i < nargs; i++)
        r.arg_type[i] = block->arg[i]->type.dtype;
    for (int i = 0; i < nresults; i++)
        r.result_type[i] = tn_operand(block->last, i)->type.dtype;
    int registers = count_registers(e, block);
    r.straight = registers >= 0;
    if (r.straight) {
        const tn_value **known;
        TN_TRY(tn_eval_alloc(e, op->loc, registers, sizeof *known, &known));
        TN_TRY(tn_eval_alloc(e, op->loc, registers, sizeof *r.reg, &r.reg));
        TN_TRY(tn_eval_alloc(e, op->loc, registers, sizeof *r.step, &r.step));
        TN_TRY(tn_eval_alloc(e, op->loc, nresults, sizeof *r.result, &r.result));
        compile(&r, known);
    }
    r.single = single_function(&r);
    *out = r;
    return TN_OK;
}

/* A call of a region that holds more than elementwise operations: through the general block runner. */
static tn_status call_block(tn_region *r, const tn_number *args, tn_number *results)
{
    tn_evaluator *e = r->e;
    tn_eval_value **in, **out;
    TN_TRY(tn_eval_alloc(e, r->op->loc, r->nargs, sizeof *in, &in));
    TN_TRY(tn_eval_alloc(e, r->op->loc, r->nresults, sizeof *out, &out));
    tn_status status = TN_OK;
    for (int i = 0; i < r->nargs && status == TN_OK; i++) {
        status = tn_eval_new(e, r->op->loc, r->arg_type[i], 0, NULL, &in[i]);
        if (status == TN_OK)
            tn_number_store(r->arg_type[i], tn_eval_data(in[i]), 0, args[i]);
    }
    if (status == TN_OK)
        status = tn_eval_block(e, r->block, in, out);
    for (int i = 0; i < r->nresults && status == TN_OK; i++)
        results[i] = tn_at(&out[i]->tensor, 0);
    for (int i = 0; i < r->nargs; i++)
        tn_eval_release(e, in[i]);
    for (int i = 0; i < r->nresults; i++)
        tn_eval_release(e, out[i]);
    return status;
}

tn_status tn_region_call(tn_region *r, const tn_number *args, tn_number *results)
{
    if (!r->straight) {
        const tn_eval_scratch *mark = r->e->scratch;
        tn_status status = call_block(r, args, results);
        tn_eval_release_scratch(r->e, mark);
        return status;
    }
    TN_TRY(tn_eval_work(r->e, r->op->loc, 1 + r->nsteps, 1));
    for (int i = 0; i < r->nargs; i++)
        r->reg[i] = args[i];
    for (int i = 0; i < r->nsteps; i++) {
        const tn_step *s = &r->step[i];
        tn_number x[3] = {r->reg[s->operand[0]], r->reg[s->operand[1]], r->reg[s->operand[2]]};
        r->reg[s->result] = tn_kernel_eval(&s->kernel, x);
    }
    for (int i = 0; i < r->nresults; i++)
        results[i] = r->reg[r->result[i]];
    return TN_OK;
}

tn_dtype tn_region_widen(tn_region *r)
{
    bool sums = r->single == TN_S_add || r->single == TN_S_mul;
    if (!sums || (!tn_is_float(r->arg_type[0]) && !tn_is_complex(r->arg_type[0])))
        return r->result_type[0];
    tn_dtype wide = tn_is_complex(r->arg_type[0]) ? TN_C128 : TN_F64;
    r->step[0].kernel.from = r->step[0].kernel.to = wide;
    return wide;
}
