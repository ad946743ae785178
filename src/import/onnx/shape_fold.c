/* Integer operators on known contents: what Shape/Gather/Concat/… arithmetic means as dimensions. Each function gets
 * the contents of the inputs it needs and writes the output's; an element is NULL where it is not known. Structure
 * (Gather, Slice, Concat, Reshape …) passes unknown elements through, arithmetic gives up on them. */
#include <string.h>

#include "import/onnx/internal.h"

typedef onnx_contents contents;
typedef bool shape_rule(onnx_ctx *c, const onnx_node *n, contents *out);

static bool get(onnx_ctx *c, const onnx_node *n, int i, contents *out)
{
    const tn_value *v = onnx_in(n, i);
    if (!v || !onnx_partial_dims(c, v, out->dim, &out->count))
        return false;
    out->dtype = v->type.dtype;
    out->rank = v->type.rank;
    return out->dtype == TN_I64 || out->dtype == TN_I32;
}

/* ---- elementwise
 * ---------------------------------------------------------------------------------------------------------- */

static tn_dim constant(onnx_ctx *c, int64_t value)
{
    return tn_dim_const(c->session, value);
}

static tn_dim truth(onnx_ctx *c, bool yes, bool no)
{
    return yes ? constant(c, 1) : no ? constant(c, 0) : NULL;
}

static tn_dim less(onnx_ctx *c, tn_dim a, tn_dim b)
{
    tn_session *s = c->session;
    return truth(c, tn_dim_le(s, tn_dim_add(s, a, constant(c, 1)), b), tn_dim_le(s, b, a));
}

static tn_dim f_add(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return tn_dim_add(c->session, a, b);
}
static tn_dim f_sub(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return tn_dim_sub(c->session, a, b);
}
static tn_dim f_mul(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return tn_dim_mul(c->session, a, b);
}
static tn_dim f_div(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return a->lo < 0 || b->lo < 0 || tn_dim_is(b, 0) ? NULL : onnx_dim_div(c, a, b);
}
static tn_dim f_mod(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return a->lo < 0 || b->lo <= 0 ? NULL : tn_dim_mod(c->session, a, b);
}
static tn_dim f_min(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return tn_dim_min(c->session, a, b);
}
static tn_dim f_max(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return tn_dim_max(c->session, a, b);
}
static tn_dim f_eq(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return truth(c, tn_dim_eq(c->session, a, b), tn_dim_ne(c->session, a, b));
}
static tn_dim f_lt(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return less(c, a, b);
}
static tn_dim f_gt(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return less(c, b, a);
}
static tn_dim negate_truth(onnx_ctx *c, tn_dim t)
{
    return t ? constant(c, !t->value) : NULL;
}
static tn_dim f_le(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return negate_truth(c, less(c, b, a));
}
static tn_dim f_ge(onnx_ctx *c, tn_dim a, tn_dim b)
{
    return negate_truth(c, less(c, a, b));
}

static bool elementwise(onnx_ctx *c, const onnx_node *n, contents *out, tn_dim (*f)(onnx_ctx *, tn_dim, tn_dim),
                        bool compares)
{
    contents y;
    if (!get(c, n, 0, out))
        return false;
    for (int k = 1; k < n->ninputs; k++) {
        if (!get(c, n, k, &y) || (out->count != 1 && y.count != 1 && out->count != y.count))
            return false;
        int count = out->count == 1 ? y.count : out->count;
        for (int i = count - 1; i >= 0; i--) {
            tn_dim a = out->dim[out->count == 1 ? 0 : i], b = y.dim[y.count == 1 ? 0 : i];
            out->dim[i] = a && b ? f(c, a, b) : NULL;
        }
        out->count = count;
        out->rank = out->rank > y.rank ? out->rank : y.rank;
    }
    if (compares)
        out->dtype = TN_BOOL;
    return true;
}

#define ELEMENTWISE(name, f, compares)                                                                                 \
    static bool rule_##name(onnx_ctx *c, const onnx_node *n, contents *out)                                            \
    {                                                                                                                  \
        return elementwise(c, n, out, f, compares);                                                                    \
    }
ELEMENTWISE(Add, f_add, false)
ELEMENTWISE(Sub, f_sub, false)
ELEMENTWISE(Mul, f_mul, false)
ELEMENTWISE(Div, f_div, false)
ELEMENTWISE(Mod, f_mod, false)
ELEMENTWISE(Min, f_min, false)
ELEMENTWISE(Max, f_max, false)
ELEMENTWISE(Equal, f_eq, true)
ELEMENTWISE(Less, f_lt, true)
ELEMENTWISE(Greater, f_gt, true)
ELEMENTWISE(LessOrEqual, f_le, true)
ELEMENTWISE(GreaterOrEqual, f_ge, true)

static bool rule_Neg(onnx_ctx *c, const onnx_node *n, contents *out)
{
    if (!get(c, n, 0, out))
        return false;
    for (int i = 0; i < out->count; i++)
        out->dim[i] = out->dim[i] ? tn_dim_sub(c->session, constant(c, 0), out->dim[i]) : NULL;
    return true;
}

static bool rule_Abs(onnx_ctx *c, const onnx_node *n, contents *out)
{
    if (!get(c, n, 0, out))
        return false;
    for (int i = 0; i < out->count; i++)
        if (out->dim[i] && out->dim[i]->lo < 0)
            out->dim[i] = NULL;
    return true;
}

static bool rule_Where(onnx_ctx *c, const onnx_node *n, contents *out)
{
    contents x, y;
    const tn_tensor *cond = onnx_constant_tensor(c, onnx_in(n, 0));
    int64_t count;
    if (!cond || cond->rank > 1 || cond->dtype != TN_BOOL || !tn_tensor_count(cond, &count) || count > ONNX_MAX_KNOWN ||
        !get(c, n, 1, &x) || !get(c, n, 2, &y))
        return false;
    *out = x;
    out->rank = cond->rank > x.rank ? cond->rank : x.rank;
    out->rank = out->rank > y.rank ? out->rank : y.rank;
    out->count = count != 1 ? (int)count : x.count != 1 ? x.count : y.count;
    if ((x.count != 1 && x.count != out->count) || (y.count != 1 && y.count != out->count))
        return false;
    for (int i = 0; i < out->count; i++) {
        bool yes = tn_tensor_at(cond, count == 1 ? 0 : i).u != 0;
        out->dim[i] = yes ? x.dim[x.count == 1 ? 0 : i] : y.dim[y.count == 1 ? 0 : i];
    }
    return true;
}

/* ---- structure
 * -------------------------------------------------------------------------------------------------------------- */

static bool rule_Identity(onnx_ctx *c, const onnx_node *n, contents *out)
{
    return get(c, n, 0, out);
}

static bool rule_Cast(onnx_ctx *c, const onnx_node *n, contents *out)
{
    if (!get(c, n, 0, out))
        return false;
    out->dtype = onnx_attr_dtype(c, n, "to", TN_NO_DTYPE);
    return out->dtype == TN_I64 || out->dtype == TN_I32;
}

static bool rule_Gather(onnx_ctx *c, const onnx_node *n, contents *out)
{
    contents x;
    int64_t index[ONNX_MAX_KNOWN];
    if (!get(c, n, 0, &x) || x.rank != 1 || !onnx_in(n, 1) ||
        !onnx_static_ints(c, n->input[1], index, ONNX_MAX_KNOWN, &out->count))
        return false;
    out->dtype = x.dtype;
    out->rank = n->input[1]->type.rank;
    for (int i = 0; i < out->count; i++) {
        if (index[i] < -x.count || index[i] >= x.count)
            return false;
        out->dim[i] = x.dim[index[i] < 0 ? index[i] + x.count : index[i]];
    }
    return true;
}

static bool rule_Concat(onnx_ctx *c, const onnx_node *n, contents *out)
{
    contents part;
    bool any = false;
    *out = (contents){.rank = 1};
    for (int i = 0; i < n->ninputs; i++) {
        const tn_value *v = onnx_in(n, i);
        if (!v || v->type.rank != 1 || (v->type.dtype != TN_I64 && v->type.dtype != TN_I32) ||
            !tn_dim_is_const(v->type.dim[0]))
            return false;
        int64_t count = v->type.dim[0]->value;
        if (count > ONNX_MAX_KNOWN - out->count)
            return false;
        if (get(c, n, i, &part))
            any = true;
        else
            memset(part.dim, 0, sizeof part.dim);
        memcpy(out->dim + out->count, part.dim, (size_t)count * sizeof *part.dim);
        out->count += (int)count;
        out->dtype = v->type.dtype;
    }
    return any;
}

/* One bound of Slice: from an attribute in opset 1, from an input later. */
static bool slice_bound(onnx_ctx *c, const onnx_node *n, const char *name, int i, int64_t otherwise, int64_t *out)
{
    int count;
    const int64_t *list = onnx_attr_ints(c, n, name, &count);
    *out = otherwise;
    if (list)
        return count == 1 && (*out = list[0], true);
    return !onnx_in(n, i) || (onnx_static_ints(c, n->input[i], out, 1, &count) && count == 1);
}

static bool rule_Slice(onnx_ctx *c, const onnx_node *n, contents *out)
{
    contents x;
    int64_t start, end, axis, step;
    if (!get(c, n, 0, &x) || x.rank != 1 || !slice_bound(c, n, "starts", 1, 0, &start) ||
        !slice_bound(c, n, "ends", 2, 0, &end) || !slice_bound(c, n, "axes", 3, 0, &axis) ||
        !slice_bound(c, n, "steps", 4, 1, &step) || step == 0 || step < -ONNX_MAX_KNOWN || step > ONNX_MAX_KNOWN ||
        (axis != 0 && axis != -1))
        return false;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? x.count : x.count - 1;
    start = start < 0 ? start + x.count : start;
    end = end < 0 ? end + x.count : end;
    start = tn_max(0, tn_min(start, high));
    end = tn_max(low, tn_min(end, x.count));
    *out = (contents){.dtype = x.dtype, .rank = 1};
    for (int64_t i = start; (step > 0 ? i < end : i > end) && i >= 0 && i < x.count; i += step)
        out->dim[out->count++] = x.dim[i];
    return true;
}

static bool rule_Unsqueeze(onnx_ctx *c, const onnx_node *n, contents *out)
{
    int count;
    const tn_value *axes = onnx_in(n, 1);
    if (!onnx_attr_ints(c, n, "axes", &count))
        count = axes && axes->type.rank == 1 && tn_dim_is(axes->type.dim[0], 1) ? 1 : 0;
    if (!get(c, n, 0, out) || out->rank != 0 || count != 1)
        return false;
    out->rank = 1;
    return true;
}

static bool rule_Squeeze(onnx_ctx *c, const onnx_node *n, contents *out)
{
    int count;
    if (!get(c, n, 0, out) || out->rank != 1 || out->count != 1)
        return false;
    const int64_t *axes = onnx_attr_ints(c, n, "axes", &count);
    const tn_value *axes_input = onnx_in(n, 1);
    if ((axes && count == 0) || (axes_input && (axes_input->type.rank != 1 || !tn_dim_is(axes_input->type.dim[0], 1))))
        return false;
    out->rank = 0;
    return true;
}

static bool rule_Reshape(onnx_ctx *c, const onnx_node *n, contents *out)
{
    int64_t shape[2];
    int rank;
    if (!get(c, n, 0, out) || !onnx_in(n, 1) || !onnx_static_ints(c, n->input[1], shape, 1, &rank))
        return false;
    if (rank == 0 ? out->count != 1 : shape[0] != -1 && shape[0] != out->count)
        return false;
    out->rank = rank;
    return true;
}

static bool reduce(onnx_ctx *c, const onnx_node *n, contents *out, tn_dim (*f)(onnx_ctx *, tn_dim, tn_dim))
{
    if (!get(c, n, 0, out) || out->rank != 1 || out->count == 0 || onnx_attr_int(c, n, "noop_with_empty_axes", 0))
        return false;
    for (int i = 0; i < out->count; i++)
        if (!out->dim[i])
            return false;
    for (int i = 1; i < out->count; i++)
        out->dim[0] = f(c, out->dim[0], out->dim[i]);
    out->count = 1;
    out->rank = onnx_attr_int(c, n, "keepdims", 1) ? 1 : 0;
    return true;
}

static bool rule_ReduceProd(onnx_ctx *c, const onnx_node *n, contents *out)
{
    return reduce(c, n, out, f_mul);
}
static bool rule_ReduceSum(onnx_ctx *c, const onnx_node *n, contents *out)
{
    return reduce(c, n, out, f_add);
}
static bool rule_ReduceMax(onnx_ctx *c, const onnx_node *n, contents *out)
{
    return reduce(c, n, out, f_max);
}
static bool rule_ReduceMin(onnx_ctx *c, const onnx_node *n, contents *out)
{
    return reduce(c, n, out, f_min);
}

static const struct rule {
    const char *name;
    shape_rule *rule;
} rules[] = {
#define RULE(name) {#name, rule_##name}
    RULE(Add),       RULE(Sub),       RULE(Mul),       RULE(Div),      RULE(Mod),         RULE(Min),
    RULE(Max),       RULE(Equal),     RULE(Less),      RULE(Greater),  RULE(LessOrEqual), RULE(GreaterOrEqual),
    RULE(Neg),       RULE(Abs),       RULE(Where),     RULE(Identity), RULE(Cast),        RULE(Gather),
    RULE(Concat),    RULE(Slice),     RULE(Unsqueeze), RULE(Squeeze),  RULE(Reshape),     RULE(ReduceProd),
    RULE(ReduceSum), RULE(ReduceMax), RULE(ReduceMin),
#undef RULE
};

/* Constants alone are left to constant folding, which wraps as the type does. */
static bool worth_it(onnx_ctx *c, const onnx_node *n)
{
    bool symbolic = false;
    for (int i = 0; i < n->ninputs; i++) {
        const tn_value *v = n->input[i];
        if (!v)
            continue;
        if (v->type.rank > 1)
            return false;
        symbolic |= !tn_constant_of(v) && tn_map_get(&c->known, TN_KEY(v));
    }
    return symbolic;
}

bool onnx_shape_contents(onnx_ctx *c, const onnx_node *n, onnx_contents *out)
{
    if (n->domain[0] || n->ninputs == 0 || !worth_it(c, n))
        return false;
    for (size_t i = 0; i < TN_COUNT(rules); i++)
        if (!strcmp(rules[i].name, n->op_type))
            return rules[i].rule(c, n, out);
    return false;
}
