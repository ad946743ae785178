/* Hints, checks, messages, and the ways out of the language. */
#include <stdlib.h>
#include <string.h>

#include "triton/internal.h"

static bool nothing(tn_py *out)
{
    *out = tn_py_none();
    return true;
}

/* ---- when the kernel is compiled ------------------------------------------------------------------------------------- */

/* A note of the session: who compiles decides where it goes. */
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
    tn_note(c->session, c->b.loc, "%s", text.at);
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

/* ---- escapes --------------------------------------------------------------------------------------------------------- */

enum { ASM_MOST = 16 };

/* Inline assembly with several elements or several results at once: the registers that it names, in order. */
typedef struct asm_call {
    tn_tcompiler *c;
    const tn_ast *at;
    const char *text;
    int64_t pack;
    char out[ASM_MOST], in[ASM_MOST]; /* letters of the constraints */
    int nout, nin;
    tn_tvalue *reg[ASM_MOST];
    int nreg;
    tn_ttype part; /* a pack's place: elements / pack of them */
} asm_call;

/* "=r,=r,r": letters. False: something else stands there. */
static bool read_constraints(asm_call *a, const char *at)
{
    while (*at) {
        bool result = *at == '=';
        at += result;
        if (!*at || !strchr("hrlfd", *at) || (at[1] && at[1] != ',') || (result ? a->nin > 0 || a->nout == ASM_MOST : a->nin == ASM_MOST))
            return false;
        if (result)
            a->out[a->nout++] = *at;
        else
            a->in[a->nin++] = *at;
        at += at[1] ? 2 : 1;
        at += strspn(at, " ");
    }
    return a->nout > 0;
}

/* How many elements of a type lie in one register: narrow ones are packed, the first lowest, if there are several. */
static int in_register(const asm_call *a, tn_dtype dtype)
{
    int bits = tn_dtype_bits(dtype);
    return a->pack > 1 && bits < 32 ? (int)tn_min(32 / bits, a->pack) : 1;
}

static tn_dtype bits_type(tn_dtype dtype) { return tn_dtype_bits(dtype) == 8 ? TN_U8 : TN_U16; }

/* The elements of each pack apart: the last axis tells even from odd. */
static void take_apart(asm_call *a, tn_tvalue *x, int64_t n, tn_tvalue **out, int64_t stride)
{
    tn_tvalue *half[2];
    if (n == 1) {
        *out = x;
        return;
    }
    tn_t_split(&a->c->b, x, &half[0], &half[1]);
    take_apart(a, half[0], n / 2, out, 2 * stride);
    take_apart(a, half[1], n / 2, out + stride, 2 * stride);
}

static tn_tvalue *put_together(asm_call *a, tn_tvalue *const *in, int64_t n, int64_t stride)
{
    if (n == 1)
        return *in;
    tn_tvalue *even = put_together(a, in, n / 2, 2 * stride);
    return tn_t_join(&a->c->b, even, put_together(a, in + stride, n / 2, 2 * stride));
}

static bool add_operand(asm_call *a, tn_tvalue *x)
{
    tn_tbuilder *b = &a->c->b;
    tn_tvalue *element[ASM_MOST];
    tn_ttype type = a->part;
    int each = in_register(a, x->type.dtype);
    type.dtype = x->type.dtype;
    for (int64_t n = a->pack; n > 1; n /= 2)
        type.extent[type.rank++] = tn_extent_const(2);
    take_apart(a, a->pack > 1 ? tn_t_reshape(b, x, type) : x, a->pack, element, 1);
    for (int64_t i = 0; i < a->pack; i += each) {
        tn_tvalue *word = element[i];
        if (a->nreg == a->nin)
            return false;
        for (int k = 0; a->pack > 1 && tn_dtype_bits(x->type.dtype) < 32 && k < each; k++) {
            tn_tvalue *one = tn_t_cast(b, tn_t_bitcast(b, element[i + k], bits_type(x->type.dtype)), TN_U32);
            one = k ? tn_t_map2(b, TN_S_shl, one, tn_t_scalar_int(a->c, TN_U32, k * tn_dtype_bits(x->type.dtype))) : one;
            word = k ? tn_t_map2(b, TN_S_or, word, one) : one;
        }
        a->reg[a->nreg++] = word;
    }
    return true;
}

/* The instructions for one result alone: what the others get goes into registers of its own, $0 is this one. */
static const char *text_for(asm_call *a, int result)
{
    tn_text text = {.arena = &a->c->session->arena};
    tn_text_add(&text, "=%c", a->out[result]);
    for (int i = 0; i < a->nin; i++)
        tn_text_add(&text, ",%c", a->in[i]);
    tn_text_add(&text, "\n{ ");
    for (int i = 0; i < a->nout; i++) {
        const char *type = a->out[i] == 'h' ? "b16" : a->out[i] == 'l' ? "b64" : a->out[i] == 'f' ? "f32" : a->out[i] == 'd' ? "f64" : "b32";
        if (i != result)
            tn_text_add(&text, ".reg .%s tn_result_%d; ", type, i);
    }
    for (const char *at = a->text; *at;) {
        char *end;
        if (at[0] != '$' || at[1] < '0' || at[1] > '9') {
            size_t n = at[0] == '$' && at[1] ? 2 : 1;
            tn_text_add(&text, "%.*s", (int)n, at);
            at += n;
            continue;
        }
        long k = strtol(at + 1, &end, 10);
        if (k < a->nout && k != result)
            tn_text_add(&text, "tn_result_%ld", k);
        else
            tn_text_add(&text, "$%ld", k < a->nout ? 0 : k - a->nout + 1);
        at = end;
    }
    tn_text_add(&text, " }");
    return text.at;
}

static tn_tvalue *take_result(asm_call *a, tn_ttype shape, tn_dtype dtype, int *next)
{
    tn_tbuilder *b = &a->c->b;
    tn_tvalue *element[ASM_MOST];
    int each = in_register(a, dtype), bits = tn_dtype_bits(dtype);
    bool packed = a->pack > 1 && bits < 32;
    tn_ttype type = a->part;
    type.dtype = packed ? TN_U32 : dtype;
    for (int64_t i = 0; i < a->pack; i += each) {
        tn_tvalue *word = tn_t_asm(b, text_for(a, (*next)++), a->reg, a->nreg, type);
        for (int k = 0; k < each; k++)
            element[i + k] = packed ? tn_t_bitcast(b, tn_t_cast(b, k ? tn_t_map2(b, TN_S_shr_logical, word, tn_t_scalar_int(a->c, TN_U32, k * bits)) : word, bits_type(dtype)), dtype)
                                    : word;
    }
    shape.dtype = dtype;
    shape.pointer = false;
    return a->pack > 1 ? tn_t_reshape(b, put_together(a, element, a->pack, 1), shape) : element[0];
}

static bool packed_asm(asm_call *a, const char *constraints, const tn_py *dtypes, bool pure, tn_tvalue *const *values, int n, tn_py *out)
{
    tn_tcompiler *c = a->c;
    tn_ttype shape = values[0]->type, type[ASM_MOST];
    tn_py result[ASM_MOST];
    int64_t elements = tn_t_elements(&shape);
    int nresults, want = 0, have = 0, next = 0;
    const tn_py *item = tn_t_elements_of(dtypes, &nresults);
    if (a->pack < 1 || a->pack > 8 || (a->pack & (a->pack - 1)) || elements % a->pack)
        return tn_t_refuse(c, a->at, "inline_asm_elementwise with a pack of %lld for %lld elements: 1, 2, 4 and 8 are there, where they divide them", (long long)a->pack, (long long)elements);
    if (nresults < 1 || nresults > ASM_MOST || !read_constraints(a, constraints))
        return tn_t_error(c, a->at, "the constraints '%s' are not =x for each register of the results and x for each of the operands, x one of h, r, l, f, d, up to %d", constraints, ASM_MOST);
    for (int i = 0; i < nresults; i++) {
        if (!tn_t_dtype_argument(c, a->at, &item[i], "the type of a result", &type[i]))
            return false;
        want += (int)a->pack / in_register(a, type[i].dtype);
    }
    for (int i = 0; i < n; i++)
        have += (int)a->pack / in_register(a, values[i]->type.dtype);
    for (int i = 0; i < n + nresults; i++) {
        const tn_ttype *one = i < n ? &values[i]->type : &type[i - n];
        if (a->pack > 1 && (one->dtype == TN_BOOL || tn_dtype_bits(one->dtype) < 8 || one->pointer))
            return tn_t_refuse(c, a->at, "inline_asm_elementwise packs numbers of 8 bits and more, not %s", tn_t_type_name(c, one));
    }
    if (want != a->nout || have != a->nin)
        return tn_t_error(c, a->at, "the results take %d registers and the operands %d, the constraints '%s' have %d and %d", want, have, constraints, a->nout, a->nin);
    if (want > 1 && !pure)
        return tn_t_refuse(c, a->at, "inline_asm_elementwise of several results that is not pure: its instructions run once for each of them");
    a->part = shape;
    if (a->pack > 1) {
        a->part.rank = 1;
        a->part.extent[0] = tn_extent_const(elements / a->pack);
    }
    for (int i = 0; i < n; i++)
        if (!add_operand(a, values[i]))
            return false;
    for (int i = 0; i < nresults; i++)
        result[i] = tn_py_tensor(take_result(a, shape, type[i].dtype, &next));
    *out = dtypes->kind == TN_PY_TUPLE ? tn_t_tuple(c, result, nresults) : result[0];
    return true;
}

bool tn_bi_inline_asm(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_ast *at = call->node;
    const tn_py *args = &call->argument[2], *item;
    const char *text, *constraints;
    tn_tvalue *values[ASM_MOST];
    tn_ttype type;
    int64_t pack;
    int n;
    bool pure;
    if (!c->options || !c->options->gpu)
        return tn_t_refuse(c, at, "inline_asm_elementwise holds instructions of one GPU; compile for a GPU, or write it with operations of the language");
    if (!tn_t_string(c, at, &call->argument[0], "the instructions", &text) || !tn_t_string(c, at, &call->argument[1], "the constraints", &constraints) ||
        !tn_t_truth(c, at, &call->argument[4], &pure) || !tn_t_constant_int(c, at, &call->argument[5], "pack", &pack))
        return false;
    item = tn_t_elements_of(args, &n);
    if (n < 1 || n > ASM_MOST || !text || !constraints)
        return tn_t_error(c, at, "inline_asm_elementwise needs instructions, constraints and 1 to %d tensors", ASM_MOST);
    for (int i = 0; i < n; i++)
        if (!tn_t_tensor_argument(c, at, &item[i], "an operand", &values[i]))
            return false;
    for (int pass = 0; pass < 2; pass++) /* the first takes the widest shape of all, then all take it */
        for (int i = 1; i < n; i++)
            if (!tn_t_broadcast_pair(c, at, &values[0], &values[i]))
                return false;
    if (pack != 1 || call->argument[3].kind == TN_PY_TUPLE)
        return packed_asm(&(asm_call){.c = c, .at = at, .text = text, .pack = pack}, constraints, &call->argument[3], pure, values, n, out);
    if (!tn_t_dtype_argument(c, at, &call->argument[3], "the type of the result", &type))
        return false;
    tn_ttype result = values[0]->type;
    result.dtype = type.dtype;
    result.pointer = type.pointer;
    *out = tn_py_tensor(tn_t_asm(&c->b, tn_format(&c->session->arena, "%s\n%s", constraints, text), values, n, result));
    return true;
}

bool tn_bi_extern(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)out;
    return tn_t_refuse(c, call->node, "extern_elementwise calls a library of device code, which Tenon does not link; tl.math and tl.extra.libdevice have the usual functions");
}
