/* Python's functions that kernels and decorators call, and what triton offers to host code and to loops. On constants they are Python's; on tensors min, max
 * and abs are those of the language. */
#include "triton/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool give(tn_py *out, tn_py value)
{
    *out = value;
    return true;
}

static bool call_language(tn_tcompiler *c, const tn_call *call, const char *name, const tn_py *arguments, int n, tn_py *out)
{
    return tn_t_builtin_call(c, call->node, tn_t_builtin_find(TN_TRITON_LANGUAGE, name), NULL, arguments, n, NULL, NULL, 0, out);
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------- */

/* range(stop), range(start, stop), range(start, stop, step) */
static bool make_range(tn_tcompiler *c, const tn_py *a, bool unrolled, tn_py *out)
{
    tn_py at[3] = {tn_py_int(0), a[0], tn_py_int(1)};
    if (a[1].kind != TN_PY_NONE)
        at[0] = a[0], at[1] = a[1];
    if (a[2].kind != TN_PY_NONE)
        at[2] = a[2];
    *out = (tn_py){.kind = TN_PY_RANGE, .unrolled = unrolled, .n = 3, .at = tn_memdup(&c->session->arena, at, sizeof at)};
    return true;
}

static bool py_range(tn_tcompiler *c, const tn_call *call, tn_py *out) { return make_range(c, call->argument, false, out); }

static bool py_static_range(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t unused;
    for (int i = 0; i < 3; i++)
        if (call->argument[i].kind != TN_PY_NONE && !tn_t_constant_int(c, call->node, &call->argument[i], "an argument of static_range", &unused))
            return false;
    return make_range(c, call->argument, true, out);
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

/* Of two or more, or of a tuple's elements. */
static bool extreme(tn_tcompiler *c, const tn_call *call, const char *name, tn_ast_op better, const char *of_tensors, tn_py *out)
{
    const tn_py *items = call->argument[0].at;
    int n = call->argument[0].n;
    if (n == 1 && items[0].kind == TN_PY_TUPLE) {
        n = items[0].n;
        items = items[0].at;
    }
    if (n == 0 || (n == 1 && call->argument[0].n == 1 && call->argument[0].at[0].kind != TN_PY_TUPLE))
        return tn_t_error(c, call->node, "%s needs two values, or a tuple; tl.%s is the reduction of a tensor", name, name);
    *out = items[0];
    for (int i = 1; i < n; i++) {
        tn_py both[2] = {*out, items[i]}, is_better;
        if (!tn_py_is_constant(&both[0]) || !tn_py_is_constant(&both[1])) {
            if (!call_language(c, call, of_tensors, both, 2, out))
                return false;
            continue;
        }
        if (!tn_t_constant_binary(c, call->node, better, &both[1], &both[0], &is_better))
            return false;
        *out = both[is_better.integer != 0];
    }
    return true;
}

static bool py_min(tn_tcompiler *c, const tn_call *call, tn_py *out) { return extreme(c, call, "min", TN_AST_LT, "minimum", out); }
static bool py_max(tn_tcompiler *c, const tn_call *call, tn_py *out) { return extreme(c, call, "max", TN_AST_GT, "maximum", out); }

static bool py_abs(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    if (!tn_py_is_constant(x))
        return call_language(c, call, "abs", x, 1, out);
    if (x->kind == TN_PY_FLOAT)
        return give(out, tn_py_float(fabs(x->number)));
    return tn_t_constant_unary(c, call->node, x->integer < 0 ? TN_AST_NEGATIVE : TN_AST_POSITIVE, x, out);
}

static bool needs_constant(tn_tcompiler *c, const tn_call *call, const char *name, const char *instead)
{
    return tn_py_is_constant(&call->argument[0]) ||
           tn_t_error(c, call->node, "%s(…) of %s, which is known only when the kernel runs; %s", name, tn_t_describe(c, &call->argument[0]), instead);
}

/* The text without blanks around it. */
static const char *trimmed(tn_tcompiler *c, const tn_py *v)
{
    char *text = tn_strndup(&c->session->arena, v->text, v->length), *end = text + strlen(text);
    while (isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    return text;
}

static bool py_int(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    if (!needs_constant(c, call, "int", "x.to(tl.int32) converts it"))
        return false;
    if (x->kind == TN_PY_INT || x->kind == TN_PY_BOOL)
        return give(out, tn_py_int(x->integer));
    if (x->kind == TN_PY_FLOAT && fabs(x->number) < 0x1p126)
        return give(out, tn_py_int((__int128)x->number));
    if (x->kind == TN_PY_STRING) {
        const char *text = trimmed(c, x);
        char *end;
        long long value = strtoll(text, &end, 10);
        if (end != text && !*end && strlen(text) < 19)
            return give(out, tn_py_int(value));
    }
    return tn_t_error(c, call->node, "int(…) of %s", tn_t_describe(c, x));
}

/* Digits, a point, an exponent; inf, infinity and nan: strtod takes more than Python does. */
static bool float_of_text(const char *text, double *out)
{
    const char *word = text + (*text == '+' || *text == '-');
    char *end;
    *out = strtod(text, &end);
    bool named = strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0 || strcasecmp(word, "nan") == 0;
    return end != text && !*end && (named || !strpbrk(word, "xXpPnN("));
}

static bool py_float(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    double value;
    if (!needs_constant(c, call, "float", "x.to(tl.float32) converts it"))
        return false;
    if (tn_py_is_number(x))
        return give(out, tn_py_float(x->kind == TN_PY_FLOAT ? x->number : (double)x->integer));
    if (x->kind == TN_PY_STRING && float_of_text(trimmed(c, x), &value))
        return give(out, tn_py_float(value));
    return tn_t_error(c, call->node, "float(…) of %s", tn_t_describe(c, x));
}

static bool py_bool(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    bool truth;
    if (!needs_constant(c, call, "bool", "x != 0 compares it") || !tn_t_truth(c, call->node, &call->argument[0], &truth))
        return false;
    return give(out, tn_py_bool(truth));
}

/* ---- collections ----------------------------------------------------------------------------------------------------- */

static bool py_len(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *x = &call->argument[0];
    if (x->kind == TN_PY_STRING)
        return give(out, tn_py_int((__int128)x->length));
    if (x->kind == TN_PY_TUPLE || x->kind == TN_PY_DICT)
        return give(out, tn_py_int(x->n));
    const tn_py *items;
    int n;
    if (x->kind == TN_PY_RANGE && tn_t_iterate(c, call->node, x, &items, &n))
        return give(out, tn_py_int(n));
    return x->kind != TN_PY_RANGE && tn_t_error(c, call->node, "len(…) is of tuples and strings, found %s; a tensor has x.shape and x.numel", tn_t_describe(c, x));
}

static bool py_tuple(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *items = NULL;
    int n = 0;
    if (call->given[0] && !tn_t_iterate(c, call->node, &call->argument[0], &items, &n))
        return false;
    return give(out, tn_t_tuple(c, items, n));
}

static bool py_str(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_text text = {.arena = &c->session->arena};
    if (!needs_constant(c, call, "str", "tl.device_print prints it"))
        return false;
    tn_text_put(&text, "", 0);
    tn_t_text_constant(c, &text, &call->argument[0], false);
    return give(out, tn_t_string_value(c, text.at, text.len));
}

static bool py_print(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *values = call->argument[0].at;
    int n = call->argument[0].n;
    if (n == 0)
        return give(out, tn_py_none());
    if (values[0].kind == TN_PY_STRING)
        return call_language(c, call, "device_print", values, n, out);
    tn_py *with_text = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)n + 1);
    with_text[0] = tn_t_string_value(c, "", 0);
    memcpy(with_text + 1, values, sizeof *values * (size_t)n);
    return call_language(c, call, "device_print", with_text, n + 1, out);
}

/* ---- looking at values ----------------------------------------------------------------------------------------------- */

static bool is_instance(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_py *class, bool *out)
{
    static const struct {
        const char *name;
        tn_py_kind kinds[2];
    } classes[] = {
        {"int", {TN_PY_INT, TN_PY_BOOL}},     {"bool", {TN_PY_BOOL, TN_PY_BOOL}},  {"float", {TN_PY_FLOAT, TN_PY_FLOAT}}, {"str", {TN_PY_STRING, TN_PY_STRING}},
        {"tuple", {TN_PY_TUPLE, TN_PY_TUPLE}}, {"list", {TN_PY_TUPLE, TN_PY_TUPLE}}, {"dtype", {TN_PY_DTYPE, TN_PY_DTYPE}},
        {"triton.language.tensor", {TN_PY_TENSOR, TN_PY_BLOCK_POINTER}}, {"triton.language.tuple", {TN_PY_TUPLE, TN_PY_TUPLE}},
        {"triton.language.tensor_descriptor", {TN_PY_DESCRIPTOR, TN_PY_DESCRIPTOR}}, {"triton.language.block_pointer", {TN_PY_BLOCK_POINTER, TN_PY_BLOCK_POINTER}},
    };
    if (class->kind == TN_PY_TUPLE) {
        bool one = false;
        *out = false;
        for (int i = 0; i < class->n; i++) {
            if (!is_instance(c, at, v, &class->at[i], &one))
                return false;
            *out |= one;
        }
        return true;
    }
    const char *name = class->kind == TN_PY_BUILTIN ? class->builtin->name : class->kind == TN_PY_MODULE ? class->text : "";
    if (strcmp(name, "constexpr") == 0) {
        *out = tn_py_is_constant(v) && v->kind != TN_PY_TUPLE;
        return true;
    }
    for (size_t i = 0; i < TN_COUNT(classes); i++)
        if (strcmp(classes[i].name, name) == 0) {
            *out = v->kind == classes[i].kinds[0] || v->kind == classes[i].kinds[1];
            return true;
        }
    return tn_t_error(c, at, "isinstance knows int, bool, float, str, tuple, tl.tensor, tl.constexpr, tl.dtype and tl.tensor_descriptor, found %s", tn_t_describe(c, class));
}

static bool py_isinstance(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    bool is;
    return is_instance(c, call->node, &call->argument[0], &call->argument[1], &is) && give(out, tn_py_bool(is));
}

static bool attribute_name(tn_tcompiler *c, const tn_call *call, const char **name)
{
    return tn_t_string(c, call->node, &call->argument[1], "the name of an attribute", name) &&
           (*name || tn_t_error(c, call->node, "the name of an attribute is a string, found None"));
}

/* Without a report. */
static bool try_attribute(tn_tcompiler *c, const tn_call *call, const char *name, tn_py *out)
{
    size_t errors = c->session->errors, diags = c->session->diags.len;
    bool found = tn_t_attribute(c, call->node, &call->argument[0], name, out);
    c->session->errors = errors;
    c->session->diags.len = diags;
    return found;
}

static bool py_getattr(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const char *name;
    if (!attribute_name(c, call, &name))
        return false;
    if (!call->given[2])
        return tn_t_attribute(c, call->node, &call->argument[0], name, out);
    if (!try_attribute(c, call, name, out))
        *out = call->argument[2];
    return true;
}

static bool py_hasattr(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const char *name;
    tn_py unused;
    return attribute_name(c, call, &name) && give(out, tn_py_bool(try_attribute(c, call, name, &unused)));
}

/* ---- triton ---------------------------------------------------------------------------------------------------------- */

static bool py_cdiv(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_py sum, less, one = tn_py_int(1);
    return tn_t_operator(c, call->node, TN_AST_ADD, &call->argument[0], &call->argument[1], &sum) && tn_t_operator(c, call->node, TN_AST_SUB, &sum, &one, &less) &&
           tn_t_operator(c, call->node, TN_AST_FLOORDIV, &less, &call->argument[1], out);
}

static bool py_next_power_of_2(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t n, power = 1;
    if (!tn_t_constant_int(c, call->node, &call->argument[0], "the argument of next_power_of_2", &n))
        return false;
    if (n > (int64_t)1 << 62)
        return tn_t_error(c, call->node, "next_power_of_2 of %lld has more than 63 bits", (long long)n);
    while (power < n)
        power *= 2;
    return give(out, tn_py_int(n <= 0 ? 0 : power));
}

static bool py_config(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *a = call->argument;
    int64_t unused;
    if (a[0].kind != TN_PY_DICT)
        return tn_t_error(c, call->node, "triton.Config takes a dict of constants, found %s", tn_t_describe(c, &a[0]));
    for (int i = 0; i < a[0].n; i++)
        if (a[0].at[2 * i].kind != TN_PY_STRING)
            return tn_t_error(c, call->node, "the names in triton.Config are strings, found %s", tn_t_describe(c, &a[0].at[2 * i]));
    for (int i = 1; i <= 2; i++)
        if (a[i].kind != TN_PY_NONE && !tn_t_constant_int(c, call->node, &a[i], i == 1 ? "num_warps" : "num_stages", &unused))
            return false;
    *out = (tn_py){.kind = TN_PY_CONFIG, .n = 3, .at = tn_memdup(&c->session->arena, a, 3 * sizeof *a)};
    return true;
}

static bool py_none(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)c, (void)call;
    return give(out, tn_py_none());
}

static bool py_current_target(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)call;
    return give(out, (tn_py){.kind = TN_PY_MODULE, .text = tn_intern_z(c->session, TN_TRITON_TARGET)});
}

/* ---- several collections at once: for the host code that makes configurations -------------------------------------------- */

enum { MOST_COLLECTIONS = 16, MOST_COMBINATIONS = 1 << 16 };

typedef struct collections {
    const tn_py *items[MOST_COLLECTIONS];
    int length[MOST_COLLECTIONS], n;
} collections;

static bool take_collections(tn_tcompiler *c, const tn_call *call, const char *what, collections *out)
{
    const tn_py *all = &call->argument[0];
    out->n = all->n;
    if (all->n > MOST_COLLECTIONS)
        return tn_t_refuse(c, call->node, "%s of %d collections; %d is the most", what, all->n, MOST_COLLECTIONS);
    for (int i = 0; i < all->n; i++)
        if (!tn_t_iterate(c, call->node, &all->at[i], &out->items[i], &out->length[i]))
            return false;
    return true;
}

/* `count` tuples; one at `at` has element place(at, i) of collection i. */
static bool give_tuples(tn_tcompiler *c, const tn_call *call, const collections *from, int64_t count, bool combine, tn_py *out)
{
    tn_py row[MOST_COLLECTIONS], *all;
    if (count > MOST_COMBINATIONS)
        return tn_t_refuse(c, call->node, "%lld combinations; %d is the most", (long long)count, MOST_COMBINATIONS);
    all = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)count + 1);
    for (int64_t at = 0; at < count; at++) {
        int64_t rest = at; /* the last collection goes fastest */
        for (int i = from->n; i-- > 0; rest = combine ? rest / from->length[i] : rest)
            row[i] = from->items[i][combine ? rest % from->length[i] : rest];
        all[at] = tn_t_tuple(c, row, from->n);
    }
    return give(out, tn_t_tuple(c, all, (int)count));
}

static bool py_zip(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    collections all;
    if (!take_collections(c, call, "zip", &all))
        return false;
    int64_t count = all.n ? all.length[0] : 0;
    for (int i = 1; i < all.n; i++)
        count = tn_min(count, all.length[i]);
    return give_tuples(c, call, &all, count, false, out);
}

static bool py_product(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    collections all;
    int64_t count = 1;
    if (!take_collections(c, call, "product", &all))
        return false;
    for (int i = 0; i < all.n && count <= MOST_COMBINATIONS; i++)
        count *= all.length[i];
    for (int i = 0; i < all.n; i++)
        count = all.length[i] ? count : 0;
    return give_tuples(c, call, &all, count, true, out);
}

static bool py_enumerate(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *items;
    int64_t start;
    int n;
    if (!tn_t_iterate(c, call->node, &call->argument[0], &items, &n) || !tn_t_constant_int(c, call->node, &call->argument[1], "the start of enumerate", &start))
        return false;
    tn_py *all = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        all[i] = tn_t_tuple(c, (tn_py[]){tn_py_int((__int128)start + i), items[i]}, 2);
    return give(out, tn_t_tuple(c, all, n));
}

static const tn_builtin table[] = {
#define ANYWHERE (TN_T_CONSTANT | TN_T_SCALAR)
    {"python", "range", "start, stop=None, step=None", ANYWHERE, py_range},
    {"python", "min", "*values", ANYWHERE, py_min},
    {"python", "max", "*values", ANYWHERE, py_max},
    {"python", "abs", "x", ANYWHERE, py_abs},
    {"python", "int", "x=0", ANYWHERE, py_int},
    {"python", "float", "x=0", ANYWHERE, py_float},
    {"python", "bool", "x=False", ANYWHERE, py_bool},
    {"python", "str", "x=''", ANYWHERE, py_str},
    {"python", "len", "x", ANYWHERE, py_len},
    {"python", "tuple", "items=()", ANYWHERE, py_tuple},
    {"python", "list", "items=()", ANYWHERE, py_tuple},
    {"python", "dict", "", ANYWHERE, py_none}, /* expr.c calls it */
    {"python", "zip", "*collections", ANYWHERE, py_zip},
    {"python", "enumerate", "items, start=0", ANYWHERE, py_enumerate},
    {"itertools", "product", "*collections", ANYWHERE, py_product},
    {"triton.runtime.driver.active", "get_current_target", "", TN_T_CONSTANT, py_current_target},
    {"python", "print", "*values", 0, py_print},
    {"python", "isinstance", "value, type", ANYWHERE, py_isinstance},
    {"python", "getattr", "value, name, default=None", ANYWHERE, py_getattr},
    {"python", "hasattr", "value, name", ANYWHERE, py_hasattr},
    {"triton", "cdiv", "x, y", ANYWHERE, py_cdiv},
    {"triton", "next_power_of_2", "n", ANYWHERE, py_next_power_of_2},
    {"triton", "Config", "kwargs, num_warps=None, num_stages=None, num_ctas=1, maxnreg=None, pre_hook=None, ir_override=None", TN_T_CONSTANT, py_config},
    {TN_TRITON_LANGUAGE, "range",
     "arg1, arg2=None, step=None, num_stages=None, loop_unroll_factor=None, disallow_acc_multi_buffer=False, flatten=False, warp_specialize=False, disable_licm=False", ANYWHERE,
     py_range},
    {TN_TRITON_LANGUAGE, "tuple", "args=()", ANYWHERE, py_tuple},
    {TN_TRITON_LANGUAGE, "static_range", "arg1, arg2=None, step=None", ANYWHERE, py_static_range},
#undef ANYWHERE
};

const tn_builtin *tn_t_python_find(const char *module, const char *name)
{
    for (size_t i = 0; i < TN_COUNT(table); i++)
        if (strcmp(table[i].name, name) == 0 && strcmp(table[i].module, module) == 0)
            return &table[i];
    return NULL;
}
