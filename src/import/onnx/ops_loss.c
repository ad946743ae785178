/* Losses, optimiser steps. */
#include "import/onnx/emit.h"

#include <string.h>

/* ---- losses
 * ------------------------------------------------------------------------------------------------------------------ */

/* x [N, C, d…] at the class that target [N, d…] names: [N, d…], 0 where there is none. */
static tn_value *at_class(onnx_ctx *c, tn_value *x, tn_value *target)
{
    if (!x || !target)
        return NULL;
    tn_type like = x->type;
    int64_t axis = 1;
    tn_value *wanted = emit_spread(c, target, &like, &axis, 1);
    tn_value *hit = emit_compare(c, "EQ", emit_iota_like(c, target->type.dtype, &like, 1), wanted);
    return emit_sum_axis(c, emit_select(c, hit, x, emit_number(c, like.dtype, 0)), 1);
}

/* Weighted negative of the logarithmic probability at each target, reduced. */
static tn_value *nll(onnx_ctx *c, const onnx_node *n, tn_value *log_probability, tn_value *target, tn_value *weight)
{
    const char *reduction = onnx_attr_string(c, n, "reduction", "mean");
    tn_value *each = NULL, *loss = emit_unary(c, TN_OP_negate, at_class(c, log_probability, target));
    if (!loss)
        return NULL;
    tn_dtype dtype = log_probability->type.dtype;
    if (weight)
        each = at_class(c, emit_along(c, tn_convert(&c->b, weight, dtype), &log_probability->type, 1), target);
    if (onnx_has_attr(n, "ignore_index")) {
        tn_value *counts = emit_compare_number(c, "NE", target, (double)onnx_attr_int(c, n, "ignore_index", 0));
        each = emit_select(c, counts, each ? each : emit_number(c, dtype, 1), emit_number(c, dtype, 0));
    }
    if (each)
        loss = emit_mul(c, loss, each);
    if (!loss || strcmp(reduction, "none") == 0)
        return loss;
    int64_t axes[TN_MAX_RANK];
    int rank = loss->type.rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    tn_value *sum = emit_reduce(c, TN_OP_add, loss, axes, rank);
    if (strcmp(reduction, "sum") == 0)
        return sum;
    return emit_div(c, sum,
                    each ? emit_reduce(c, TN_OP_add, each, axes, rank) : emit_count(c, &loss->type, axes, rank, dtype));
}

static bool fits(onnx_ctx *c, const onnx_node *n)
{
    const tn_type *x = &n->input[0]->type, *target = &n->input[1]->type;
    if (x->rank < 2 || target->rank != x->rank - 1)
        return onnx_error(
            c, n, "the input must have shape [N, C, …] and the target one dimension less, found ranks %d and %d",
            x->rank, target->rank);
    return true;
}

bool onnx_op_nll_loss(onnx_ctx *c, const onnx_node *n)
{
    return fits(c, n) && onnx_set_output(c, n, 0, nll(c, n, n->input[0], n->input[1], onnx_in(n, 2)));
}

bool onnx_op_softmax_loss(onnx_ctx *c, const onnx_node *n)
{
    int64_t axis = 1;
    if (!fits(c, n))
        return false;
    tn_value *log_probability = emit_softmax(c, n->input[0], &axis, 1, true);
    return onnx_set_output(c, n, 0, nll(c, n, log_probability, n->input[1], onnx_in(n, 2))) &&
           onnx_set_output(c, n, 1, log_probability);
}

/* ---- optimiser steps (ai.onnx.preview.training)
 * ------------------------------------------------------------------------------ */

/* Inputs are rate R, count T, then all weights, all gradients, all states of a kind; outputs the new weights, then
 * states. */
static bool optimizer_groups(onnx_ctx *c, const onnx_node *n, int kinds, int *groups)
{
    *groups = (n->ninputs - 2) / (kinds + 2);
    if (*groups < 1 || *groups * (kinds + 2) != n->ninputs - 2)
        return onnx_error(c, n, "2 + %d inputs a weight are expected, found %d inputs", kinds + 2, n->ninputs);
    for (int i = 2; i < n->ninputs; i++)
        if (!n->input[i])
            return onnx_error(c, n, "input %d is missing", i);
    return true;
}

static tn_value *scalar_of(onnx_ctx *c, tn_value *x, tn_dtype dtype)
{
    x = tn_convert(&c->b, x, dtype);
    return x ? tn_reshape(&c->b, x, NULL, 0) : NULL;
}

/* gradient + decay * weight */
static tn_value *decayed(onnx_ctx *c, const onnx_node *n, tn_value *weight, tn_value *gradient, const char *name)
{
    double decay = onnx_attr_float(c, n, name, 0);
    return decay == 0 ? gradient : emit_add(c, gradient, emit_mul_number(c, weight, decay));
}

bool onnx_op_adagrad(onnx_ctx *c, const onnx_node *n)
{
    int groups;
    if (!optimizer_groups(c, n, 1, &groups))
        return false;
    for (int i = 0; i < groups; i++) {
        tn_value *weight = n->input[2 + i], *state = n->input[2 + 2 * groups + i];
        tn_dtype dtype = weight->type.dtype;
        tn_value *count =
            emit_mul_number(c, scalar_of(c, n->input[1], dtype), onnx_attr_float(c, n, "decay_factor", 0));
        tn_value *rate = emit_div(c, scalar_of(c, n->input[0], dtype), emit_add_number(c, count, 1));
        tn_value *gradient = decayed(c, n, weight, n->input[2 + groups + i], "norm_coefficient");
        state = emit_add(c, state, emit_mul(c, gradient, gradient));
        tn_value *scale = emit_add_number(c, emit_unary(c, TN_OP_sqrt, state), onnx_attr_float(c, n, "epsilon", 1e-6f));
        weight = emit_sub(c, weight, emit_div(c, emit_mul(c, gradient, rate), scale));
        if (!onnx_set_output(c, n, i, weight) || !onnx_set_output(c, n, groups + i, state))
            return false;
    }
    return true;
}

bool onnx_op_momentum(onnx_ctx *c, const onnx_node *n)
{
    int groups;
    if (!optimizer_groups(c, n, 1, &groups))
        return false;
    bool nesterov = strcmp(onnx_attr_string(c, n, "mode", "standard"), "nesterov") == 0;
    double alpha = onnx_attr_float(c, n, "alpha", 0), beta = onnx_attr_float(c, n, "beta", 0);
    for (int i = 0; i < groups; i++) {
        tn_value *weight = n->input[2 + i], *state = n->input[2 + 2 * groups + i];
        tn_dtype dtype = weight->type.dtype;
        tn_value *first = emit_compare_number(c, "GT", scalar_of(c, n->input[1], TN_I64), 0);
        tn_value *share = emit_select(c, first, emit_number(c, dtype, beta), emit_number(c, dtype, 1));
        tn_value *gradient = decayed(c, n, weight, n->input[2 + groups + i], "norm_coefficient");
        state = emit_add(c, emit_mul_number(c, state, alpha), emit_mul(c, gradient, share));
        tn_value *move = nesterov ? emit_add(c, gradient, emit_mul_number(c, state, alpha)) : state;
        weight = emit_sub(c, weight, emit_mul(c, move, scalar_of(c, n->input[0], dtype)));
        if (!onnx_set_output(c, n, i, weight) || !onnx_set_output(c, n, groups + i, state))
            return false;
    }
    return true;
}

/* rate * sqrt(1 - beta^T) / (1 - alpha^T), or the rate itself when T = 0. */
static tn_value *adam_rate(onnx_ctx *c, const onnx_node *n, tn_dtype dtype, double alpha, double beta)
{
    tn_value *rate = scalar_of(c, n->input[0], dtype), *count = scalar_of(c, n->input[1], dtype),
             *one = emit_number(c, dtype, 1);
    tn_value *second = emit_sub(c, one, tn_binary_b(&c->b, TN_OP_power, emit_number(c, dtype, beta), count));
    tn_value *first = emit_sub(c, one, tn_binary_b(&c->b, TN_OP_power, emit_number(c, dtype, alpha), count));
    tn_value *adjusted = emit_div(c, emit_mul(c, rate, emit_unary(c, TN_OP_sqrt, second)), first);
    return emit_select(c, emit_compare_number(c, "GT", count, 0), adjusted, rate);
}

bool onnx_op_adam(onnx_ctx *c, const onnx_node *n)
{
    int groups;
    if (!optimizer_groups(c, n, 2, &groups))
        return false;
    double alpha = onnx_attr_float(c, n, "alpha", 0.9f), beta = onnx_attr_float(c, n, "beta", 0.999f);
    double post = onnx_attr_float(c, n, "norm_coefficient_post", 0);
    for (int i = 0; i < groups; i++) {
        tn_value *weight = n->input[2 + i], *mean = n->input[2 + 2 * groups + i],
                 *square = n->input[2 + 3 * groups + i];
        tn_value *gradient = decayed(c, n, weight, n->input[2 + groups + i], "norm_coefficient");
        mean = emit_add(c, emit_mul_number(c, mean, alpha), emit_mul_number(c, gradient, 1 - alpha));
        square = emit_add(c, emit_mul_number(c, square, beta),
                          emit_mul_number(c, emit_mul(c, gradient, gradient), 1 - beta));
        tn_value *scale =
            emit_add_number(c, emit_unary(c, TN_OP_sqrt, square), onnx_attr_float(c, n, "epsilon", 1e-6f));
        tn_value *rate = adam_rate(c, n, weight->type.dtype, alpha, beta);
        weight = emit_sub(c, weight, emit_div(c, emit_mul(c, mean, rate), scale));
        if (post != 0)
            weight = emit_mul_number(c, weight, 1 - post);
        if (!onnx_set_output(c, n, i, weight) || !onnx_set_output(c, n, groups + i, mean) ||
            !onnx_set_output(c, n, 2 * groups + i, square))
            return false;
    }
    return true;
}
