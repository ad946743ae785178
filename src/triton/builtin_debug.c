/* Hints, checks and messages. */
#include "triton/internal.h"

static bool nothing(tn_py *out)
{
    *out = tn_py_none();
    return true;
}

/* ---- when the kernel is compiled ------------------------------------------------------------------------------------- */

/* A diagnostic of the session: who compiles decides where it goes. */
bool tn_bi_static_print(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_text text = {.arena = &c->session->arena};
    const tn_py *values = &call->argument[0], *separator = &call->argument[1];
    tn_text_add(&text, "%s", "");
    for (int i = 0; i < values->n; i++) {
        if (i)
            tn_t_text_constant(c, &text, separator, false);
        tn_t_text_constant(c, &text, &values->at[i], false);
    }
    tn_said(c->session, c->b.loc, text.at);
    return nothing(out);
}

bool tn_bi_static_assert(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_text text = {.arena = &c->session->arena};
    const tn_py *condition = &call->argument[0], *message = &call->argument[1];
    bool holds;
    if (!tn_py_is_constant(condition))
        return tn_t_error(c, call->node, "static_assert needs what is known now, found %s; tl.device_assert checks when the kernel runs", tn_t_describe(c, condition));
    if (!tn_t_truth(c, call->node, condition, &holds))
        return false;
    tn_t_text_constant(c, &text, message, false);
    bool says = message->kind != TN_PY_STRING || message->length;
    return holds ? nothing(out) : tn_t_error(c, call->node, "static assertion failed%s%s", says ? ": " : "", says ? text.at : "");
}

/* ---- when it runs ---------------------------------------------------------------------------------------------------- */

bool tn_bi_device_print(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    enum { MOST = 32 };
    tn_tvalue *values[MOST];
    const tn_py *arguments = &call->argument[1];
    const char *prefix;
    bool hex;
    if (!tn_t_string(c, call->node, &call->argument[0], "the text of device_print", &prefix) || !tn_t_constant_bool(c, call->node, &call->argument[2], "hex", &hex))
        return false;
    if (arguments->n > MOST)
        return tn_t_refuse(c, call->node, "device_print of %d values; %d is the most", arguments->n, MOST);
    for (int i = 0; i < arguments->n; i++)
        if (!tn_t_tensor_argument(c, call->node, &arguments->at[i], "what device_print prints", &values[i]))
            return false;
    tn_t_print(&c->b, prefix ? prefix : "", hex, values, arguments->n);
    return nothing(out);
}

/* A failed one ends the run in the checked mode; without `debug` it is not there. */
bool tn_bi_device_assert(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *condition, *mask;
    const char *text;
    if (!tn_t_string(c, call->node, &call->argument[1], "the message of device_assert", &text))
        return false;
    if (!c->options || !c->options->debug)
        return nothing(out);
    if (!tn_t_to_dtype(c, call->node, &call->argument[0], TN_BOOL, &condition))
        return false;
    if (!tn_t_is_none(&call->argument[2])) {
        if (!tn_t_to_dtype(c, call->node, &call->argument[2], TN_BOOL, &mask) || !tn_t_broadcast_pair(c, call->node, &condition, &mask))
            return false;
        condition = tn_t_map2(&c->b, TN_S_or, condition, tn_t_map1(&c->b, TN_S_not, mask));
    }
    tn_t_assert(&c->b, condition, text ? text : "");
    return nothing(out);
}

bool tn_bi_debug_barrier(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)call;
    tn_t_fence(&c->b);
    return nothing(out);
}

/* ---- hints ----------------------------------------------------------------------------------------------------------- */

/* Of a while: the hint with it changes nothing here. */
bool tn_bi_condition(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    bool hint;
    *out = call->argument[0];
    return tn_t_constant_bool(c, call->node, &call->argument[1], "disable_licm", &hint);
}

bool tn_bi_assume(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *condition = &call->argument[0];
    tn_tvalue *fact;
    bool holds;
    if (tn_py_is_constant(condition)) {
        if (!tn_t_truth(c, call->node, condition, &holds))
            return false;
        return holds ? nothing(out) : tn_t_error(c, call->node, "what tl.assume says is false");
    }
    if (!tn_t_to_dtype(c, call->node, condition, TN_BOOL, &fact))
        return false;
    tn_t_assume(&c->b, fact, fact);
    return nothing(out);
}

/* One number an axis; a scalar has one. */
static bool hint(tn_tcompiler *c, const tn_call *call, int64_t *values)
{
    const tn_py *x = &call->argument[0];
    int n, rank = x->kind == TN_PY_TENSOR ? x->tensor->type.rank : 0;
    if (x->kind != TN_PY_TENSOR && !tn_py_is_number(x))
        return tn_t_error(c, call->node, "a hint is about a tensor, found %s", tn_t_describe(c, x));
    if (!tn_t_ints(c, call->node, &call->argument[1], "the values of a hint", TN_TILE_RANK, &n, values))
        return false;
    for (int i = 0; i < n; i++)
        if (values[i] < 1)
            return tn_t_error(c, call->node, "the values of a hint are positive, found %lld", (long long)values[i]);
    return n == (rank ? rank : 1) || tn_t_error(c, call->node, "a hint has one value an axis: %d, found %d", rank ? rank : 1, n);
}

bool tn_bi_hint(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t values[TN_TILE_RANK];
    *out = call->argument[0];
    return hint(c, call, values);
}

/* Of an integer scalar it becomes a fact that the checked mode verifies; of tensors Triton means only the first element of each run, which no pass here asks. */
bool tn_bi_multiple_of(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    int64_t values[TN_TILE_RANK];
    *out = *x;
    if (!hint(c, call, values))
        return false;
    if (x->kind != TN_PY_TENSOR || x->tensor->type.rank || x->tensor->type.pointer || !tn_is_integer(x->tensor->type.dtype))
        return true;
    tn_tvalue *v = x->tensor;
    if (!tn_number_same(v->type.dtype, tn_number_from_int(v->type.dtype, values[0]), (tn_number){.i = values[0]}))
        return tn_t_error(c, call->node, "%lld is no %s", (long long)values[0], tn_t_dtype_name(v->type.dtype));
    tn_tvalue *rest = tn_t_map2(&c->b, TN_S_rem, v, tn_t_scalar_int(c, v->type.dtype, values[0]));
    *out = tn_py_tensor(tn_t_assume(&c->b, v, tn_t_map2(&c->b, TN_S_eq, rest, tn_t_scalar_int(c, v->type.dtype, 0))));
    return true;
}
