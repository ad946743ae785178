/* Builtins that work element by element. Functions of one float take fp32 and fp64, as Triton's do: a half is cast first, by the kernel. */
#include "triton/builtin.h"

#include <string.h>

static bool done(tn_py *out, tn_tvalue *v)
{
    *out = tn_py_tensor(v);
    return true;
}

/* ---- operands of one type -------------------------------------------------------------------------------------------- */

/* Promotes and broadcasts n >= 1 values, pair by pair. */
static bool unify_all(tn_tcompiler *c, const tn_ast *at, const tn_py *x, int n, tn_tvalue **out)
{
    tn_py all[3];
    for (int i = 0; i < n; i++) {
        if (x[i].kind != TN_PY_TENSOR && !tn_py_is_number(&x[i]))
            return tn_t_error(c, at, "expected a tensor or a number, found %s", tn_t_describe(c, &x[i]));
        all[i] = x[i];
    }
    for (int i = 0; i + 1 < n; i++)
        if (!tn_t_unify(c, at, &all[i], &all[i + 1]))
            return false;
    for (int i = n - 2; i > 0; i--)
        if (!tn_t_unify(c, at, &all[i - 1], &all[i]))
            return false;
    for (int i = 0; i < n; i++)
        if (!tn_t_to_tensor(c, at, &all[i], &out[i]))
            return false;
    return true;
}

/* The same where literals are not weak: Triton's functions (not its operators, nor where) make tensors of them first, so that maximum of fp16 and 0.0 is
 * fp32. widen: bf16 becomes fp32, as minimum, maximum and clamp have it. */
static bool unify_strong(tn_tcompiler *c, const tn_ast *at, const tn_py *x, int n, bool widen, tn_tvalue **out)
{
    tn_py all[3];
    for (int i = 0; i < n; i++) {
        tn_tvalue *v;
        if (!tn_t_tensor_argument(c, at, &x[i], "an operand", &v))
            return false;
        bool wide = widen && v->type.dtype == TN_BF16 && !v->type.pointer;
        all[i] = tn_py_tensor(wide ? tn_t_cast(&c->b, v, TN_F32) : v);
    }
    return unify_all(c, at, all, n, out);
}

static bool expect_float(tn_tcompiler *c, const tn_ast *at, const char *what, const tn_tvalue *v, bool (*fits)(tn_dtype dtype), const char *types)
{
    return (!v->type.pointer && fits(v->type.dtype)) || tn_t_error(c, at, "%s takes %s, found %s; cast it by x.to(tl.float32)", what, types, tn_t_type_name(c, &v->type));
}

static bool is_wide(tn_dtype dtype) { return dtype == TN_F32 || dtype == TN_F64; }
static bool is_single(tn_dtype dtype) { return dtype == TN_F32; }

bool tn_t_map_values(tn_tcompiler *c, const tn_ast *at, const char *what, tn_scalar fn, const tn_py *x, int n, tn_tvalue **out)
{
    tn_tvalue *v[3];
    bool selects = fn == TN_S_select;
    if (n != tn_scalar_arity(fn))
        return tn_t_error(c, at, "%s takes %d values, found %d", what, tn_scalar_arity(fn), n);
    if (!unify_all(c, at, x + selects, n - selects, v + selects))
        return false;
    if (selects && !tn_t_to_dtype(c, at, &x[0], TN_BOOL, &v[0]))
        return false;
    const tn_ttype *t = &v[n - 1]->type;
    if (!selects && (t->pointer || !tn_scalar_accepts(fn, t->dtype)))
        return tn_t_error(c, at, "%s is not defined on %s", what, tn_t_type_name(c, t));
    if (selects && (!tn_t_broadcast_pair(c, at, &v[0], &v[1]) || !tn_t_broadcast_pair(c, at, &v[0], &v[2])))
        return false;
    *out = tn_t_map(&c->b, fn, v, n);
    return true;
}

bool tn_bi_map(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const char *name;
    tn_tvalue *v;
    if (!tn_t_string(c, call->node, &call->argument[0], "the name of a function", &name))
        return false;
    tn_scalar fn = name ? tn_scalar_from_name(name) : TN_SCALAR_NONE;
    if (fn == TN_SCALAR_NONE)
        return tn_t_error(c, call->node, "there is no scalar function '%s'", name ? name : "None");
    return tn_t_map_values(c, call->node, name, fn, call->argument[1].at, call->argument[1].n, &v) && done(out, v);
}

/* ---- operators as functions ------------------------------------------------------------------------------------------ */

static bool apply(tn_tcompiler *c, const tn_call *call, tn_ast_op op, tn_py *out)
{
    tn_tvalue *v;
    return tn_t_apply(c, call->node, op, &call->argument[0], &call->argument[1], &v) && done(out, v);
}

bool tn_bi_add(tn_tcompiler *c, const tn_call *call, tn_py *out) { return apply(c, call, TN_AST_ADD, out); }
bool tn_bi_sub(tn_tcompiler *c, const tn_call *call, tn_py *out) { return apply(c, call, TN_AST_SUB, out); }
bool tn_bi_mul(tn_tcompiler *c, const tn_call *call, tn_py *out) { return apply(c, call, TN_AST_MUL, out); }

static bool logical(tn_tcompiler *c, const tn_call *call, tn_scalar fn, tn_py *out)
{
    tn_tvalue *v[2];
    for (int i = 0; i < 2; i++)
        if (!tn_t_to_dtype(c, call->node, &call->argument[i], TN_BOOL, &v[i]))
            return false;
    return tn_t_broadcast_pair(c, call->node, &v[0], &v[1]) && done(out, tn_t_map(&c->b, fn, v, 2));
}

bool tn_bi_logical_and(tn_tcompiler *c, const tn_call *call, tn_py *out) { return logical(c, call, TN_S_and, out); }
bool tn_bi_logical_or(tn_tcompiler *c, const tn_call *call, tn_py *out) { return logical(c, call, TN_S_or, out); }

bool tn_bi_where(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *condition = &call->argument[0];
    tn_tvalue *v = NULL;
    if (condition->kind != TN_PY_TENSOR && !tn_py_is_number(condition))
        return tn_t_error(c, call->node, "the condition of where must be a tensor, found %s", tn_t_describe(c, condition));
    return tn_t_map_values(c, call->node, "where", TN_S_select, call->argument, 3, &v) && done(out, v);
}

/* By default a number wins over NaN. */
static bool extremum(tn_tcompiler *c, const tn_call *call, const char *what, tn_scalar propagating, tn_scalar number, tn_py *out)
{
    tn_tvalue *v[2];
    bool all;
    if (!tn_t_propagate_nan(c, call->node, &call->argument[2], &all) || !unify_strong(c, call->node, call->argument, 2, true, v))
        return false;
    if (v[0]->type.pointer)
        return tn_t_error(c, call->node, "%s of pointers", what);
    bool numbers = !all && tn_is_float(v[0]->type.dtype);
    return done(out, tn_t_map(&c->b, numbers ? number : propagating, v, 2));
}

bool tn_bi_maximum(tn_tcompiler *c, const tn_call *call, tn_py *out) { return extremum(c, call, "maximum", TN_S_max, TN_S_maxnum, out); }
bool tn_bi_minimum(tn_tcompiler *c, const tn_call *call, tn_py *out) { return extremum(c, call, "minimum", TN_S_min, TN_S_minnum, out); }

bool tn_bi_clamp(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v[3];
    bool all;
    if (!tn_t_propagate_nan(c, call->node, &call->argument[3], &all) || !unify_strong(c, call->node, call->argument, 3, true, v))
        return false;
    if (v[0]->type.pointer || !tn_is_float(v[0]->type.dtype))
        return tn_t_error(c, call->node, "clamp takes floats, found %s; for integers write tl.minimum(tl.maximum(x, lo), hi)", tn_t_type_name(c, &v[0]->type));
    if (all)
        return done(out, tn_t_map3(&c->b, TN_S_clamp, v[1], v[0], v[2]));
    return done(out, tn_t_map2(&c->b, TN_S_minnum, tn_t_map2(&c->b, TN_S_maxnum, v[0], v[1]), v[2]));
}

/* The sign does not come in, whatever the type. */
bool tn_bi_shift_right_logical(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v[2];
    if (!unify_all(c, call->node, call->argument, 2, v))
        return false;
    if (v[0]->type.pointer || !tn_is_integer(v[0]->type.dtype))
        return tn_t_error(c, call->node, "a shift takes integers, found %s", tn_t_type_name(c, &v[0]->type));
    return done(out, tn_t_map(&c->b, TN_S_shr_logical, v, 2));
}

/* ---- functions of one number ----------------------------------------------------------------------------------------- */

static bool of_wide(tn_tcompiler *c, const tn_call *call, const char *what, tn_scalar fn, tn_py *out)
{
    tn_tvalue *v;
    return tn_t_tensor_argument(c, call->node, &call->argument[0], what, &v) && expect_float(c, call->node, what, v, is_wide, "fp32 and fp64") &&
           done(out, tn_t_map1(&c->b, fn, v));
}

#define OF_WIDE(name) \
    bool tn_bi_##name(tn_tcompiler *c, const tn_call *call, tn_py *out) { return of_wide(c, call, #name, TN_S_##name, out); }
OF_WIDE(ceil)
OF_WIDE(cos)
OF_WIDE(erf)
OF_WIDE(exp)
OF_WIDE(exp2)
OF_WIDE(floor)
OF_WIDE(log)
OF_WIDE(log2)
OF_WIDE(rsqrt)
OF_WIDE(sin)
OF_WIDE(sqrt)

bool tn_bi_sqrt_rn(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v;
    return tn_t_tensor_argument(c, call->node, &call->argument[0], "sqrt_rn", &v) && expect_float(c, call->node, "sqrt_rn", v, is_single, "fp32") &&
           done(out, tn_t_map1(&c->b, TN_S_sqrt, v));
}

bool tn_bi_abs(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "abs", &v))
        return false;
    if (v->type.pointer)
        return tn_t_error(c, call->node, "abs of a pointer");
    tn_class class = tn_dtype_class(v->type.dtype);
    return done(out, class == TN_CLASS_FLOAT || class == TN_CLASS_INT ? tn_t_map1(&c->b, TN_S_abs, v) : v);
}

/* ---- of two and three ------------------------------------------------------------------------------------------------ */

bool tn_bi_fdiv(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    bool rounding;
    for (int i = 0; i < 2; i++) {
        const tn_py *v = &call->argument[i];
        bool is_float = v->kind == TN_PY_FLOAT || (v->kind == TN_PY_TENSOR && !v->tensor->type.pointer && tn_is_float(v->tensor->type.dtype));
        if (!is_float)
            return tn_t_error(c, call->node, "fdiv takes floats, found %s", tn_t_describe(c, v));
    }
    tn_tvalue *v[2];
    return tn_t_constant_bool(c, call->node, &call->argument[2], "ieee_rounding", &rounding) && unify_strong(c, call->node, call->argument, 2, false, v) &&
           done(out, tn_t_map(&c->b, TN_S_div, v, 2));
}

bool tn_bi_div_rn(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v[2];
    return unify_strong(c, call->node, call->argument, 2, false, v) && expect_float(c, call->node, "div_rn", v[0], is_single, "fp32") &&
           done(out, tn_t_map(&c->b, TN_S_div, v, 2));
}

bool tn_bi_fma(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v[3];
    if (!unify_strong(c, call->node, call->argument, 3, false, v))
        return false;
    if (v[0]->type.pointer || !tn_is_float(v[0]->type.dtype))
        return tn_t_error(c, call->node, "fma takes floats, found %s", tn_t_type_name(c, &v[0]->type));
    return done(out, tn_t_map(&c->b, TN_S_fma, v, 3));
}

/* The upper half of the product of the bits, as unsigned numbers, whatever the type says. */
bool tn_bi_umulhi(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *v[2];
    if (!unify_strong(c, call->node, call->argument, 2, false, v))
        return false;
    tn_dtype dtype = v[0]->type.dtype;
    if (v[0]->type.pointer || !tn_is_integer(dtype) || tn_dtype_bits(dtype) < 32)
        return tn_t_error(c, call->node, "umulhi takes integers of 32 and 64 bits, found %s", tn_t_type_name(c, &v[0]->type));
    bool is_signed = tn_dtype_class(dtype) == TN_CLASS_INT;
    for (int i = 0; is_signed && i < 2; i++)
        v[i] = tn_t_bitcast(&c->b, v[i], tn_dtype_bits(dtype) == 32 ? TN_U32 : TN_U64);
    tn_tvalue *high = tn_t_map(&c->b, TN_S_mulhi, v, 2);
    return done(out, is_signed ? tn_t_bitcast(&c->b, high, dtype) : high);
}

/* Makes tensors one shape; what is no tensor stays. */
static bool one_shape(tn_tcompiler *c, const tn_ast *at, tn_py *v, int n)
{
    tn_tvalue *wide = NULL;
    for (int i = 0; i < 2 * n; i++) { /* the second time each gets the shape of all */
        tn_py *each = &v[i % n];
        if (each->kind != TN_PY_TENSOR)
            continue;
        if (wide && !tn_t_broadcast_pair(c, at, &wide, &each->tensor))
            return false;
        wide = each->tensor;
    }
    return true;
}

/* Calls the function with the tensors: everything that a kernel may compute goes by elements. */
bool tn_bi_map_elementwise(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *fn = &call->argument[0], *pack = &call->argument[2];
    if (fn->kind != TN_PY_FUNCTION && fn->kind != TN_PY_LAMBDA)
        return tn_t_error(c, call->node, "map_elementwise calls a @triton.jit function, found %s", tn_t_describe(c, fn));
    if (!tn_t_is_static(pack, 1))
        return tn_t_refuse(c, call->node, "map_elementwise with pack other than 1: the function sees one element at a time here");
    if (call->argument[1].n == 0)
        return tn_t_error(c, call->node, "map_elementwise needs a tensor");
    int n = call->argument[1].n;
    tn_py *arguments = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)n);
    memcpy(arguments, call->argument[1].at, (size_t)n * sizeof *arguments);
    if (!one_shape(c, call->node, arguments, n))
        return false;
    bool before = c->by_elements;
    c->by_elements = true;
    bool ok = tn_t_call(c, call->node, fn->function, arguments, n, NULL, NULL, 0, out);
    c->by_elements = before;
    return ok;
}
