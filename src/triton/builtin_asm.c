/* Inline assembly: instructions of a GPU, one run for each element, or for each pack of neighbours. */
#include <stdlib.h>
#include <string.h>

#include "triton/internal.h"

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

/* Bits of an element in a register: a bool takes one. */
static int bits_in_register(tn_dtype dtype) { return dtype == TN_BOOL ? 1 : tn_dtype_bits(dtype); }

/* How many elements of a type lie in one register: narrow ones are packed, the first lowest, if there are several. */
static int in_register(const asm_call *a, tn_dtype dtype)
{
    int bits = bits_in_register(dtype);
    return a->pack > 1 && bits < 32 ? (int)tn_min(32 / bits, a->pack) : 1;
}

static tn_tvalue *to_word(asm_call *a, tn_tvalue *x)
{
    tn_dtype dtype = x->type.dtype;
    return tn_t_cast(&a->c->b, dtype == TN_BOOL ? x : tn_t_bitcast(&a->c->b, x, tn_dtype_bits(dtype) == 8 ? TN_U8 : TN_U16), TN_U32);
}

/* What the lowest bits of a word are as an element of the type. */
static tn_tvalue *from_word(asm_call *a, tn_tvalue *word, tn_dtype dtype)
{
    tn_tbuilder *b = &a->c->b;
    if (dtype == TN_BOOL)
        return tn_t_cast(b, tn_t_map2(b, TN_S_and, word, tn_t_scalar_int(a->c, TN_U32, 1)), TN_BOOL);
    return tn_t_bitcast(b, tn_t_cast(b, word, tn_dtype_bits(dtype) == 8 ? TN_U8 : TN_U16), dtype);
}

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
    int each = in_register(a, x->type.dtype), bits = bits_in_register(x->type.dtype);
    type.dtype = x->type.dtype;
    for (int64_t n = a->pack; n > 1; n /= 2)
        type.extent[type.rank++] = tn_extent_const(2);
    take_apart(a, a->pack > 1 ? tn_t_reshape(b, x, type) : x, a->pack, element, 1);
    for (int64_t i = 0; i < a->pack; i += each) {
        tn_tvalue *word = element[i];
        if (a->nreg == a->nin)
            return false;
        for (int k = 0; a->pack > 1 && bits < 32 && k < each; k++) {
            tn_tvalue *one = to_word(a, element[i + k]);
            one = k ? tn_t_map2(b, TN_S_shl, one, tn_t_scalar_int(a->c, TN_U32, k * bits)) : one;
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
    int each = in_register(a, dtype), bits = bits_in_register(dtype);
    bool packed = a->pack > 1 && bits < 32;
    tn_ttype type = a->part;
    type.dtype = packed ? TN_U32 : dtype;
    for (int64_t i = 0; i < a->pack; i += each) {
        tn_tvalue *word = tn_t_asm(b, text_for(a, (*next)++), a->reg, a->nreg, type);
        for (int k = 0; k < each; k++)
            element[i + k] = packed ? from_word(a, k ? tn_t_map2(b, TN_S_shr_logical, word, tn_t_scalar_int(a->c, TN_U32, k * bits)) : word, dtype) : word;
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
        if (a->pack > 1 && one->pointer)
            return tn_t_refuse(c, a->at, "inline_asm_elementwise packs numbers and bools, not %s", tn_t_type_name(c, one));
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
