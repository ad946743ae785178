/* extern_elementwise: functions of device libraries by their symbols. Those of NVIDIA's libdevice are the language's own; other libraries are not linked. */
#include <string.h>

#include "triton/internal.h"

/* Symbols whose name in libdevice is not that in the language, with or without an f behind it. */
static const struct {
    const char *symbol, *name;
} spelled[] = {
    {"clzll", "clz"},         {"popcll", "popc"},   {"brevll", "brev"},     {"ffsll", "ffs"},     {"umulhi", "mulhi"},           {"mul64hi", "mulhi"},
    {"umul64hi", "mulhi"},    {"umul24", "mul24"},  {"usad", "sad"},        {"uhadd", "hadd"},    {"urhadd", "rhadd"},           {"llabs", "abs"},
    {"fabs", "abs"},          {"fabsf", "abs"},     {"isnand", "isnan"},    {"isinfd", "isinf"},  {"signbitd", "signbit"},       {"powif", "pow"},
    {"powi", "pow"},          {"fmaf_rn", "fma_rn"}, {"fmaf_rz", "fma_rz"}, {"fmaf_rd", "fma_rd"}, {"fmaf_ru", "fma_ru"},        {"frsqrt_rn", "rsqrt_rn"},
    {"fast_fdividef", "fast_dividef"},
    /* the language has these under other names */
    {"fmin", "_fmin"},        {"fminf", "_fmin"},   {"fmax", "_fmax"},      {"fmaxf", "_fmax"},   {"min", "_min"},               {"umin", "_min"},
    {"llmin", "_min"},        {"ullmin", "_min"},   {"max", "_max"},        {"umax", "_max"},     {"llmax", "_max"},             {"ullmax", "_max"},
};

/* fadd_rd, dadd_rd: of fp32 and fp64. */
static bool is_rounded(const char *name)
{
    static const char *const operations[] = {"add_r", "sub_r", "mul_r", "div_r", "rcp_r", "sqrt_r"};
    for (size_t i = 0; (name[0] == 'f' || name[0] == 'd') && i < TN_COUNT(operations); i++)
        if (strncmp(name + 1, operations[i], strlen(operations[i])) == 0)
            return true;
    return false;
}

/* The function behind a symbol; NULL: there is none. */
static const tn_function *function_of_symbol(tn_tcompiler *c, const char *symbol)
{
    static const char prefix[] = "__nv_";
    if (strncmp(symbol, prefix, sizeof prefix - 1) != 0)
        return NULL;
    const char *name = symbol + sizeof prefix - 1;
    for (size_t i = 0; i < TN_COUNT(spelled); i++)
        if (strcmp(spelled[i].symbol, name) == 0)
            return tn_t_libdevice(c, spelled[i].name);
    if (name[0] == '_')
        return NULL;
    const tn_function *found = tn_t_libdevice(c, is_rounded(name) ? name + 1 : name);
    size_t n = strlen(name);
    if (!found && n > 1 && name[n - 1] == 'f')
        found = tn_t_libdevice(c, tn_strndup(&c->session->arena, name, n - 1));
    return found;
}

/* The row (symbol, type of the result) for the arguments' types; NULL and a report: there is none. */
static const tn_py *row_of(tn_tcompiler *c, const tn_ast *at, const tn_py *dict, tn_tvalue *const *values, int n)
{
    tn_text text = {.arena = &c->session->arena};
    for (int i = 0; i < dict->n; i++) {
        const tn_py *key = &dict->at[2 * i];
        bool same = key->kind == TN_PY_TUPLE && key->n == n;
        for (int k = 0; same && k < n; k++)
            same = key->at[k].kind == TN_PY_DTYPE && key->at[k].type.dtype == values[k]->type.dtype && key->at[k].type.pointer == values[k]->type.pointer;
        if (same)
            return &dict->at[2 * i + 1];
    }
    for (int i = 0; i < n; i++)
        tn_text_add(&text, "%s%s", i ? ", " : "", tn_t_type_name(c, &values[i]->type));
    tn_t_error(c, at, "arg_type_symbol_dict has no row for (%s)", text.at ? text.at : "");
    return NULL;
}

bool tn_bi_extern(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    enum { MOST = 8 };
    const tn_ast *at = call->node;
    const tn_py *dict = &call->argument[3], *item;
    tn_tvalue *values[MOST];
    tn_py arguments[MOST];
    int n;
    item = tn_t_elements_of(&call->argument[2], &n);
    if (n < 1 || n > MOST || dict->kind != TN_PY_DICT)
        return tn_t_error(c, at, "extern_elementwise needs 1 to %d tensors, and a dict from their types to symbols", MOST);
    for (int i = 0; i < n; i++)
        if (!tn_t_tensor_argument(c, at, &item[i], "an operand", &values[i]))
            return false;
    const tn_py *row = row_of(c, at, dict, values, n);
    if (!row)
        return false;
    if (row->kind != TN_PY_TUPLE || row->n != 2 || row->at[0].kind != TN_PY_STRING || row->at[1].kind != TN_PY_DTYPE || row->at[1].type.pointer)
        return tn_t_error(c, at, "a row of arg_type_symbol_dict is (symbol, type of the result), found %s", tn_t_describe(c, row));
    const tn_function *function = function_of_symbol(c, row->at[0].text);
    if (!function)
        return tn_t_refuse(c, at, "extern_elementwise: the symbol '%s' is none of libdevice's, and libraries of device code are not linked", row->at[0].text);
    for (int pass = 0; pass < 2; pass++) /* the first takes the widest shape of all, then all take it */
        for (int i = 1; i < n; i++)
            if (!tn_t_broadcast_pair(c, at, &values[0], &values[i]))
                return false;
    for (int i = 0; i < n; i++)
        arguments[i] = tn_py_tensor(values[i]);
    if (!tn_t_call(c, at, function, arguments, n, NULL, NULL, 0, out))
        return false;
    tn_dtype have = out->tensor->type.dtype, want = row->at[1].type.dtype;
    if (have == want)
        return true;
    if (tn_is_float(have) || tn_is_float(want)) /* whether something holds is an int32 there */
        return tn_t_error(c, at, "%s of these gives %s, not %s", row->at[0].text, tn_t_dtype_name(have), tn_t_dtype_name(want));
    *out = tn_py_tensor(tn_t_cast(&c->b, out->tensor, want));
    return true;
}
