/* What an operator function sees of its node: attributes, axes, diagnostics. */
#include <stdarg.h>
#include <string.h>

#include "import/onnx/internal.h"

static bool report(onnx_ctx *c, const onnx_node *n, tn_status status, const char *format, va_list args)
{
    tn_text text = {.arena = &c->session->arena};
    tn_text_add(&text, "%s: ", n->op_type);
    tn_text_addv(&text, format, args);
    tn_error(c->session, status, n->loc, "%s", text.at);
    c->bad = true;
    return false;
}

bool onnx_error(onnx_ctx *c, const onnx_node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(c, n, TN_INVALID, format, args);
    va_end(args);
    return false;
}

bool onnx_unsupported(onnx_ctx *c, const onnx_node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(c, n, TN_UNSUPPORTED, format, args);
    va_end(args);
    return false;
}

bool onnx_set_output(onnx_ctx *c, const onnx_node *n, int i, tn_value *value)
{
    (void)c;
    if (onnx_wants(n, i))
        n->output[i] = value;
    return value != NULL;
}

/* ---- attributes
 * ------------------------------------------------------------------------------------------------------------- */

/* AttributeProto.AttributeType */
enum { UNDEFINED, FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS };
static const char *const type_names[] = {"no type", "float",  "int",  "string", "tensor",
                                         "graph",   "floats", "ints", "strings"};

static const onnx_attribute *find(const onnx_node *n, const char *name)
{
    for (int i = 0; i < n->nattributes; i++)
        if (onnx_is(n->attribute[i]->name, name))
            return n->attribute[i];
    return NULL;
}

/* The attribute if it is there with the type; files of IR version 1 have no type, and mean the field that is filled. */
static const onnx_attribute *typed(onnx_ctx *c, const onnx_node *n, const char *name, int type)
{
    const onnx_attribute *a = find(n, name);
    if (!a || a->type == type || a->type == UNDEFINED)
        return a;
    onnx_error(c, n, "attribute '%s' must be of type %s, found %s", name, type_names[type],
               a->type > 0 && a->type < (int64_t)TN_COUNT(type_names) ? type_names[a->type] : "another type");
    return NULL;
}

bool onnx_has_attr(const onnx_node *n, const char *name)
{
    return find(n, name) != NULL;
}

int64_t onnx_attr_int(onnx_ctx *c, const onnx_node *n, const char *name, int64_t otherwise)
{
    const onnx_attribute *a = typed(c, n, name, INT);
    return a ? a->i : otherwise;
}

double onnx_attr_float(onnx_ctx *c, const onnx_node *n, const char *name, double otherwise)
{
    const onnx_attribute *a = typed(c, n, name, FLOAT);
    return a ? (double)a->f : otherwise;
}

const char *onnx_attr_string(onnx_ctx *c, const onnx_node *n, const char *name, const char *otherwise)
{
    const onnx_attribute *a = typed(c, n, name, STRING);
    return a ? onnx_text(c, a->s) : otherwise;
}

/* Lists longer than this are a hostile file's: no operator has one. */
static bool short_list(onnx_ctx *c, const onnx_node *n, const char *name, size_t len)
{
    return len <= 1 << 20 || onnx_error(c, n, "attribute '%s' has %zu elements", name, len);
}

const int64_t *onnx_attr_ints(onnx_ctx *c, const onnx_node *n, const char *name, int *count)
{
    static const int64_t none[1];
    const onnx_attribute *a = typed(c, n, name, INTS);
    *count = 0;
    if (!a || !short_list(c, n, name, a->ints.len))
        return NULL;
    *count = (int)a->ints.len;
    return a->ints.len ? a->ints.at : none;
}

const float *onnx_attr_floats(onnx_ctx *c, const onnx_node *n, const char *name, int *count)
{
    static const float none[1];
    const onnx_attribute *a = typed(c, n, name, FLOATS);
    *count = 0;
    if (!a || !short_list(c, n, name, a->floats.len))
        return NULL;
    *count = (int)a->floats.len;
    return a->floats.len ? a->floats.at : none;
}

const char *const *onnx_attr_strings(onnx_ctx *c, const onnx_node *n, const char *name, int *count)
{
    const onnx_attribute *a = typed(c, n, name, STRINGS);
    *count = 0;
    if (!a || !short_list(c, n, name, a->strings.len))
        return NULL;
    *count = (int)a->strings.len;
    const char **out = TN_NEW_ARRAY(&c->session->arena, const char *, a->strings.len + 1);
    for (int i = 0; i < *count; i++)
        out[i] = onnx_text(c, a->strings.at[i]);
    return out;
}

/* A tensor that was copied counts towards the budget: a function's body may be read again and again. */
bool onnx_charge_copy(onnx_ctx *c, const onnx_node *n, const onnx_tensor *p, const tn_tensor *t)
{
    int64_t count;
    size_t bytes;
    bool borrowed = t->data == p->raw_data.at || t->data == p->float_data.at || t->data == p->int64_data.at ||
                    t->data == p->double_data.at || t->data == p->uint64_data.at || p->data_location == 1;
    if (borrowed || !tn_tensor_count(t, &count) || !tn_dtype_bytes(t->dtype, count, &bytes))
        return true;
    return onnx_charge(c, n, bytes);
}

const tn_tensor *onnx_attr_tensor(onnx_ctx *c, const onnx_node *n, const char *name)
{
    const onnx_attribute *a = typed(c, n, name, TENSOR);
    if (!a)
        return NULL;
    if (!a->t) {
        onnx_error(c, n, "attribute '%s' holds no tensor", name);
        return NULL;
    }
    tn_tensor *t = TN_NEW(&c->session->arena, tn_tensor);
    if (onnx_tensor_data(c->session, c, n->loc, a->t, t) != TN_OK) {
        c->bad = true;
        return NULL;
    }
    if (!onnx_charge_copy(c, n, a->t, t))
        return NULL;
    t->name = NULL; /* names are for initializers */
    return t;
}

const onnx_graph *onnx_attr_graph(onnx_ctx *c, const onnx_node *n, const char *name)
{
    const onnx_attribute *a = typed(c, n, name, GRAPH);
    if (a && !a->g)
        onnx_error(c, n, "attribute '%s' holds no graph", name);
    return a ? a->g : NULL;
}

tn_dtype onnx_attr_dtype(onnx_ctx *c, const onnx_node *n, const char *name, tn_dtype otherwise)
{
    const onnx_attribute *a = typed(c, n, name, INT);
    if (!a)
        return otherwise;
    tn_dtype dtype = onnx_dtype(a->i);
    if (dtype == TN_NO_DTYPE)
        onnx_unsupported(c, n, "attribute '%s': element type %s (%lld)", name, onnx_data_type_name(a->i),
                         (long long)a->i);
    return dtype;
}

/* ---- axes
 * ------------------------------------------------------------------------------------------------------------------ */

bool onnx_axis(onnx_ctx *c, const onnx_node *n, int64_t axis, int rank, int *out)
{
    *out = 0;
    if (axis < -rank || axis >= rank)
        return onnx_error(c, n, "axis %lld is outside [%d, %d)", (long long)axis, -rank, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

bool onnx_axes(onnx_ctx *c, const onnx_node *n, const int64_t *axes, int count, int rank, int64_t *out)
{
    bool seen[TN_MAX_RANK] = {false};
    if (count > rank)
        return onnx_error(c, n, "%d axes for a tensor of rank %d", count, rank);
    for (int i = 0; i < count; i++) {
        int axis;
        if (!onnx_axis(c, n, axes[i], rank, &axis))
            return false;
        if (seen[axis])
            return onnx_error(c, n, "axis %d occurs twice", axis);
        seen[axis] = true;
        out[i] = axis;
    }
    return true;
}

bool onnx_axes_of(onnx_ctx *c, const onnx_node *n, const char *name, int i, int rank, int64_t *out, int *count)
{
    int64_t raw[TN_MAX_RANK];
    const int64_t *axes = onnx_attr_ints(c, n, name, count);
    if (!axes && i >= 0 && onnx_in(n, i)) {
        if (!onnx_static_ints(c, n->input[i], raw, TN_MAX_RANK, count))
            return onnx_unsupported(c, n, "input '%s' (axes) must be a constant list of at most %d axes",
                                    n->input_name[i], TN_MAX_RANK);
        axes = raw;
    }
    if (!axes) {
        *count = -1;
        return !c->bad;
    }
    return onnx_axes(c, n, axes, *count, rank, out);
}
