/* fold: an operation whose operands are constants becomes one, computed by the reference interpreter.
 *
 *     %0 = constant dense<[1, 2]> : i32[2]
 *     %1 = add %0, %0 : i32[2]                ->   %1 = constant dense<[2, 4]> : i32[2]
 *
 * What costs nothing is done at any size: elementwise and moving operations on splats give splats (a splat of a
 * symbolic shape is a broadcast of a scalar), a reshape of a constant shares its data. Everything else must be
 * small, make nothing much larger than what it reads, and stay within the budget of bytes and steps. Large weights
 * are not touched: what is computed from constants alone runs once, at load. */
#include "opt/internal.h"

#include <string.h>

enum { MOST_OPERANDS = 64, MOST_RESULTS = 8, EACH_BYTES = 64 << 10, ALWAYS_BYTES = 4 << 10, IOTA_ELEMENTS = 1024 };
enum { DEFAULT_BYTES = 16 << 20, DEFAULT_WORK = 20000000 };

typedef struct budget {
    size_t bytes;
    int64_t work;
} budget;

/* ---- splats -------------------------------------------------------------------------------------------------------
 */

/* op on scalars that stand for its operands. False: the operation failed. */
static bool evaluate_scalars(rewriter *rw, const tn_op *op, const tn_number *in, tn_number *out)
{
    tn_session *session = rw->session;
    tn_op scalar = *op;
    tn_value value[3], result = op->result[0];
    tn_use use[3];
    const tn_tensor *operand[3];
    tn_tensor *computed[1];
    for (int i = 0; i < op->noperands; i++) {
        tn_dtype dtype = tn_operand(op, i)->type.dtype;
        value[i] = *tn_operand(op, i);
        value[i].type = tn_type_scalar(dtype);
        use[i] = (tn_use){.value = &value[i], .user = &scalar};
        operand[i] = tn_tensor_splat(session, dtype, 0, NULL, in[i]);
    }
    result.type = tn_type_scalar(result.type.dtype);
    scalar.operand = use;
    scalar.result = &result;
    if (tn_eval_op(session, &session->arena, &scalar, operand, computed, NULL, NULL) != TN_OK)
        return false;
    *out = tn_tensor_at(computed[0], 0);
    return true;
}

/* add(splat a, splat b) -> splat (a + b) */
static bool fold_elementwise_splat(rewriter *rw, tn_op *op)
{
    tn_number in[3], out;
    if (op->noperands > 3 || op->result[0].type.rank == 0)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!value_splat(tn_operand(op, i), &in[i]))
            return false;
    return evaluate_scalars(rw, op, in, &out) && rw_replace(rw, op, build_splat(&rw->b, &op->result[0].type, out));
}

/* Each result element is an operand's element: if all of them are one number, so is the result. */
static bool fold_moved_splat(rewriter *rw, tn_op *op)
{
    const tn_type *type = &op->result[0].type;
    tn_number first, other;
    int n = op->code == TN_OP_concatenate || op->code == TN_OP_pad ? op->noperands : 1;
    if (op->code == TN_OP_broadcast_in_dim && !tn_type_is_static(type) && tn_constant_of(tn_operand(op, 0)) &&
        tn_operand(op, 0)->type.rank == 0)
        return false; /* it is the form of a splat already */
    if (!value_splat(tn_operand(op, 0), &first))
        return false;
    for (int i = 1; i < n; i++)
        if (!value_splat(tn_operand(op, i), &other) || !tn_number_same(type->dtype, first, other))
            return false;
    return rw_replace(rw, op, build_splat(&rw->b, type, first));
}

/* ---- reshapes of constants ------------------------------------------------------------------------------------- */

static bool fold_reshape(rewriter *rw, tn_op *op)
{
    const tn_type *type = &op->result[0].type;
    if (!tn_constant_of(tn_operand(op, 0)) || !tn_type_is_static(type))
        return false;
    return rw_replace(rw, op, build_reshaped(&rw->b, tn_operand(op, 0), type->dim, type->rank));
}

/* ---- the general case ------------------------------------------------------------------------------------------ */

static bool has_symbols(const tn_op *op)
{
    for (int i = 0; i < op->nattrs; i++) {
        const tn_attr *attr = &op->attr[i];
        tn_attr_kind kind = tn_attr_kind_of(attr->name);
        if (kind == TN_ATTR_DIM && !tn_dim_is_const(attr->dim))
            return true;
        for (int k = 0; kind == TN_ATTR_DIMS && k < attr->n; k++)
            if (!tn_dim_is_const(attr->dims[k]))
                return true;
    }
    return false;
}

static bool may_evaluate(const tn_op *op)
{
    unsigned traits = tn_op_traits(op->code);
    if ((traits & (TN_EFFECT | TN_TERMINATOR | TN_CONTROL)) || op->noperands == 0 || op->noperands > MOST_OPERANDS ||
        op->nresults > MOST_RESULTS)
        return false;
    return op->code != TN_OP_composite && op->code != TN_OP_rng_bit_generator && op_is_removable(op) &&
           !op_has_captures(op) && !has_symbols(op);
}

/* Bytes of a static type; false if symbolic or beyond what is ever folded. */
static bool bytes_of(const tn_type *type, size_t *bytes)
{
    int64_t count;
    return tn_type_count(type, &count) && tn_dtype_bytes(type->dtype, count, bytes);
}

/* A vector spread over a tensor says more as it is than written out. */
static bool spreads(const tn_op *op)
{
    int64_t few, many;
    return op->code == TN_OP_broadcast_in_dim && tn_type_count(&tn_operand(op, 0)->type, &few) &&
           tn_type_count(&op->result[0].type, &many) && few < many;
}

static bool result_fits(const tn_op *op, size_t *total)
{
    size_t read = 0, made = 0, bytes;
    if (spreads(op))
        return false;
    for (int i = 0; i < op->noperands; i++)
        read += bytes_of(&tn_operand(op, i)->type, &bytes) ? bytes : 0;
    for (int i = 0; i < op->nresults; i++) {
        if (!bytes_of(&op->result[i].type, &bytes) || bytes > EACH_BYTES)
            return false;
        made += bytes;
    }
    *total = made;
    return made <= ALWAYS_BYTES || made <= 2 * read;
}

static bool evaluate(rewriter *rw, const tn_op *op, const tn_tensor *const *operands, tn_tensor **results,
                     int64_t max_work)
{
    tn_eval_options options = {.max_bytes = 1 << 24, .max_work = max_work};
    return tn_eval_op(rw->session, &rw->session->arena, op, operands, results, NULL, &options) == TN_OK;
}

/* The constant behind an operand; a small iota counts as one. */
static const tn_tensor *operand_tensor(rewriter *rw, const tn_value *v)
{
    int64_t count;
    tn_tensor *made[1];
    if (!tn_is_op(v, TN_OP_iota))
        return tn_constant_of(v);
    if (!tn_type_count(&v->type, &count) || count > IOTA_ELEMENTS ||
        !evaluate(rw, v->def, NULL, made, 2 * IOTA_ELEMENTS))
        return NULL;
    return made[0];
}

/* What it may take: operations that read an operand more than once (products, windows, sorts) some more. */
static int64_t steps_of(const tn_op *op)
{
    enum { BASE = 64, FACTOR = 64 };
    bool once = tn_op_traits(op->code) & (TN_ELEMENTWISE | TN_MOVES_DATA);
    int64_t steps = BASE, count;
    for (int i = 0; i < op->noperands; i++)
        steps += tn_type_count(&tn_operand(op, i)->type, &count) ? count : 0;
    for (int i = 0; i < op->nresults; i++)
        steps += tn_type_count(&op->result[i].type, &count) ? count : 0;
    return once ? 4 * steps : FACTOR * steps;
}

static bool fold_small(rewriter *rw, tn_op *op)
{
    budget *left = rw->context;
    const tn_tensor *operands[MOST_OPERANDS];
    tn_tensor *results[MOST_RESULTS];
    tn_value *constants[MOST_RESULTS];
    size_t bytes;
    if (!may_evaluate(op))
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!tn_constant_of(tn_operand(op, i)) && !tn_is_op(tn_operand(op, i), TN_OP_iota))
            return false;
    if (!result_fits(op, &bytes))
        return rw_decline(rw, op, "the constant would be large");
    int64_t steps = steps_of(op);
    if (bytes > left->bytes || steps > left->work)
        return rw_decline(rw, op, "beyond the budget of this pass");
    for (int i = 0; i < op->noperands; i++)
        if (!(operands[i] = operand_tensor(rw, tn_operand(op, i))))
            return false;
    left->work -= steps;
    if (!evaluate(rw, op, operands, results, steps))
        return rw_decline(rw, op, "it takes too many steps, or fails on these operands");
    left->bytes -= bytes;
    for (int i = 0; i < op->nresults; i++)
        constants[i] = tn_constant(&rw->b, tn_tensor_as_splat(rw->session, results[i]));
    return rw_replace_all(rw, op, constants);
}

tn_status opt_fold(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    static const rule rules[] = {
        RULE_FOR(TN_ELEMENTWISE, fold_elementwise_splat, EXACT),
        RULE_FOR(TN_MOVES_DATA, fold_moved_splat, EXACT),
        RULE(reshape, fold_reshape, EXACT),
        RULE_FOR(0, fold_small, EXACT),
        {.apply = NULL},
    };
    static const rule *const sets[] = {rules};
    budget left = {options->fold_bytes ? options->fold_bytes : DEFAULT_BYTES,
                   options->fold_work ? options->fold_work : DEFAULT_WORK};
    return rw_run(graph, options, "fold", sets, TN_COUNT(sets), &left, changed);
}
