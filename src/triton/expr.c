/* Expressions. Constants go to constant.c, what has a tensor in it to type.c and the builtins; here is who gets what. */
#include "triton/internal.h"

#include <string.h>

enum { MOST_ARGUMENTS = 4096 };

/* ---- descriptions ---------------------------------------------------------------------------------------------------- */

static const char *describe_block(tn_tcompiler *c, const char *what, const tn_py_block *block)
{
    tn_ttype type = {.dtype = block->base->type.dtype, .rank = block->rank};
    for (int i = 0; i < block->rank; i++)
        type.extent[i] = tn_extent_const(block->extent[i]);
    return tn_format(&c->session->arena, "%s of %s%s", what, tn_t_dtype_name(type.dtype), tn_t_shape_text(c, &type));
}

static const char *describe_type(tn_tcompiler *c, const tn_ttype *type)
{
    return type->rank ? tn_format(&c->session->arena, "%s%s", tn_t_type_name(c, type), tn_t_shape_text(c, type)) : tn_t_type_name(c, type);
}

const char *tn_t_describe(tn_tcompiler *c, const tn_py *v)
{
    tn_arena *arena = &c->session->arena;
    tn_text text = {.arena = arena};
    switch (v->kind) {
    case TN_PY_NONE:
        return "None";
    case TN_PY_BOOL:
    case TN_PY_INT:
    case TN_PY_FLOAT:
    case TN_PY_STRING:
        tn_text_add(&text, "constexpr ");
        tn_t_text_constant(c, &text, v, true);
        return text.at;
    case TN_PY_DTYPE:
        return tn_format(arena, "the type %s", describe_type(c, &v->type));
    case TN_PY_TUPLE:
        return tn_format(arena, "a tuple of %d", v->n);
    case TN_PY_DICT:
        return tn_format(arena, "a dict of %d", v->n);
    case TN_PY_SLICE:
        return "a slice";
    case TN_PY_RANGE:
        return "a range";
    case TN_PY_FUNCTION:
    case TN_PY_LAMBDA:
        return tn_format(arena, "the function %s", v->function->name);
    case TN_PY_BUILTIN:
        return tn_format(arena, "the function %s", v->builtin->name);
    case TN_PY_MODULE:
        return tn_format(arena, "the module %s", v->text);
    case TN_PY_CONFIG:
        return "a triton.Config";
    case TN_PY_TENSOR:
        return v->tensor ? describe_type(c, &v->tensor->type) : "a number that is known only when the kernel runs";
    case TN_PY_BLOCK_POINTER:
        return describe_block(c, "a block pointer", v->block);
    case TN_PY_DESCRIPTOR:
        return describe_block(c, "a tensor descriptor", v->block);
    }
    return "?";
}

/* ---- constants that are wanted --------------------------------------------------------------------------------------- */

static bool no_constant(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, const char *wanted)
{
    if (tn_py_is_constant(v))
        return tn_t_error(c, at, "%s must be %s, found %s", what, wanted, tn_t_describe(c, v));
    return tn_t_error(c, at, "%s must be %s that is known when the kernel is compiled, found %s; a variable is such a constant if it is annotated: "
                             "x: tl.constexpr = …", what, wanted, tn_t_describe(c, v));
}

bool tn_t_constant_int(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int64_t *out)
{
    if (v->kind != TN_PY_INT && v->kind != TN_PY_BOOL)
        return no_constant(c, at, v, what, "an integer");
    if (v->integer != (int64_t)v->integer)
        return tn_t_error(c, at, "%s must have 64 bits at most, found %s", what, tn_t_describe(c, v));
    *out = (int64_t)v->integer;
    return true;
}

bool tn_t_constant_bool(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, bool *out)
{
    if (v->kind != TN_PY_INT && v->kind != TN_PY_BOOL)
        return no_constant(c, at, v, what, "True or False");
    *out = v->integer != 0;
    return true;
}

/* ---- operators ------------------------------------------------------------------------------------------------------- */

bool tn_t_operator(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out)
{
    if (tn_py_is_constant(x) && tn_py_is_constant(y))
        return tn_t_constant_binary(c, at, op, x, y, out);
    return tn_t_binary(c, at, op, x, y, out);
}

static bool binary(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_py x, y;
    if (!tn_t_expression(c, node->child[0], &x) || !tn_t_expression(c, node->child[1], &y))
        return false;
    tn_t_at(c, node);
    return tn_t_operator(c, node, node->op, &x, &y, out);
}

static bool unary(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_py x;
    if (!tn_t_expression(c, node->child[0], &x))
        return false;
    tn_t_at(c, node);
    return tn_py_is_constant(&x) ? tn_t_constant_unary(c, node, node->op, &x, out) : tn_t_unary(c, node, node->op, &x, out);
}

static bool to_bool(tn_tcompiler *c, const tn_ast *at, tn_py *v)
{
    tn_tvalue *tensor;
    if (v->kind != TN_PY_TENSOR || (v->tensor->type.dtype == TN_BOOL && !v->tensor->type.pointer))
        return true;
    if (!tn_t_to_dtype(c, at, v, TN_BOOL, &tensor))
        return false;
    *v = tn_py_tensor(tensor);
    return true;
}

/* Constants decide as in Python; tensors are combined element by element, both sides computed. */
static bool logical(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    bool is_and = node->kind == TN_AST_AND, truth, tensors = false;
    const tn_builtin *combine = tn_t_builtin_find("tensor", is_and ? "logical_and" : "logical_or");
    if (!tn_t_expression(c, node->child[0], out))
        return false;
    for (int i = 1; i < node->nchildren; i++) {
        tn_py next, left = *out;
        tensors |= left.kind == TN_PY_TENSOR;
        if (left.kind != TN_PY_TENSOR) {
            if (!tn_t_truth(c, node->child[i - 1], &left, &truth))
                return false;
            if (truth != is_and)
                break;
            if (!tn_t_expression(c, node->child[i], out))
                return false;
            continue;
        }
        if (!tn_t_expression(c, node->child[i], &next))
            return false;
        if (tn_py_is_constant(&next)) {
            if (!tn_t_truth(c, node->child[i], &next, &truth))
                return false;
            next = tn_py_bool(truth);
        }
        tn_t_at(c, node);
        if (!tn_t_builtin_call(c, node, combine, &left, &next, 1, NULL, NULL, 0, out))
            return false;
    }
    tn_t_at(c, node);
    return (!tensors && out->kind != TN_PY_TENSOR) || to_bool(c, node, out);
}

bool tn_t_condition(tn_tcompiler *c, const tn_ast *at, const char *where, bool *known, bool *truth, tn_tvalue **out)
{
    tn_py v;
    *out = NULL;
    *truth = false;
    if (!tn_t_expression(c, at, &v))
        return false;
    *known = tn_py_is_constant(&v);
    if (*known)
        return tn_t_truth(c, at, &v, truth);
    bool by_elements = c->by_elements && strcmp(where, "if") == 0;
    if (v.kind != TN_PY_TENSOR || (v.tensor->type.rank && !by_elements))
        return tn_t_error(c, at, "the condition of `%s` must be one value, found %s; tl.where chooses element by element", where, tn_t_describe(c, &v));
    tn_t_at(c, at);
    return tn_t_to_dtype(c, at, &v, TN_BOOL, out);
}

/* One side of a choice, in a block of its own. */
static bool side_of(tn_tcompiler *c, const tn_ast *node, tn_side *side, tn_py *value)
{
    tn_tblock *before = c->b.block;
    *side = (tn_side){.block = TN_NEW(&c->session->arena, tn_tblock), .value = value};
    c->b.block = side->block;
    bool ok = tn_t_expression(c, node, value);
    c->b.block = before;
    value->from_constexpr = false;
    return ok;
}

static bool ternary(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    bool known, truth;
    tn_tvalue *condition;
    tn_side x, y;
    tn_py values[2];
    const char *name = "this choice";
    if (!tn_t_condition(c, node->child[0], "if", &known, &truth, &condition))
        return false;
    if (known)
        return tn_t_expression(c, node->child[truth ? 1 : 2], out);
    if (!side_of(c, node->child[1], &x, &values[0]) || !side_of(c, node->child[2], &y, &values[1]))
        return false;
    tn_t_at(c, node);
    return tn_t_choose(c, node, condition, &x, &y, &name, 1, out);
}

/* ---- names and members ----------------------------------------------------------------------------------------------- */

static bool name_value(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    const tn_variable *v = tn_t_variable(c, node->text);
    bool found;
    if (v && v->gone)
        return tn_t_error(c, node, "'%s' has no value here: %s", node->text, v->gone);
    if (v) {
        *out = v->value;
        out->from_constexpr = false;
        return true;
    }
    if (!tn_t_global(c, node, c->frame->function->unit_number, node->text, out, &found))
        return false;
    return found || tn_t_error(c, node, "the name '%s' is not defined", node->text);
}

static const tn_py *own_copy(tn_tcompiler *c, const tn_py *v) { return tn_memdup(&c->session->arena, v, sizeof *v); }

static bool is_method_of(tn_tcompiler *c, const tn_py *value, const char *name, tn_py *out)
{
    bool tensor = value->kind == TN_PY_TENSOR || value->kind == TN_PY_BLOCK_POINTER || tn_py_is_number(value);
    const char *module = value->kind == TN_PY_DTYPE ? "dtype" : value->kind == TN_PY_DESCRIPTOR ? "descriptor" : tensor ? "tensor" : NULL;
    const tn_builtin *builtin = module ? tn_t_builtin_find(module, name) : NULL;
    const tn_function *function = tensor && value->kind != TN_PY_BLOCK_POINTER && !builtin ? tn_t_method(c, name) : NULL;
    *out = (tn_py){.kind = builtin ? TN_PY_BUILTIN : TN_PY_FUNCTION, .builtin = builtin, .function = function, .self = own_copy(c, value)};
    return builtin || function;
}

bool tn_t_attribute(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const char *name, tn_py *out)
{
    if (value->kind == TN_PY_MODULE)
        return tn_t_member(c, at, value->text, name, out);
    if (value->kind == TN_PY_TENSOR && !value->tensor)
        return tn_t_error(c, at, "this argument is known only when the kernel runs");
    if ((tn_py_is_number(value) || value->kind == TN_PY_STRING || value->kind == TN_PY_NONE) && strcmp(name, "value") == 0) {
        *out = *value; /* of a constexpr */
        return true;
    }
    if (is_method_of(c, value, name, out))
        return true;
    if (!tn_py_is_constant(value) || tn_py_is_number(value) || value->kind == TN_PY_DTYPE)
        return tn_t_tensor_attribute(c, at, value, name, out);
    return tn_t_error(c, at, "%s has no attribute '%s'", tn_t_describe(c, value), name);
}

/* ---- subscripts ------------------------------------------------------------------------------------------------------ */

static bool slice_bound(tn_tcompiler *c, const tn_ast *at, const tn_py *v, int64_t n, int64_t otherwise, int64_t lowest, int64_t *out)
{
    *out = otherwise;
    if (v->kind == TN_PY_NONE)
        return true;
    if (!tn_t_constant_int(c, at, v, "a bound of a slice", out))
        return false;
    *out += *out < 0 ? n : 0;
    *out = *out < lowest ? lowest : *out > n + lowest ? n + lowest : *out;
    return true;
}

/* Of a tuple or string: which of n elements, in order. */
static bool slice_indices(tn_tcompiler *c, const tn_ast *at, const tn_py *slice, int64_t n, int64_t *first, int64_t *last, int64_t *step)
{
    *step = 1;
    if (slice->at[2].kind != TN_PY_NONE && !tn_t_constant_int(c, at, &slice->at[2], "the step of a slice", step))
        return false;
    if (*step == 0 || *step > n + 1 || *step < -n - 1)
        *step = *step > 0 ? n + 1 : *step < 0 ? -n - 1 : 0;
    if (*step == 0)
        return tn_t_error(c, at, "the step of a slice is 0");
    bool up = *step > 0;
    return slice_bound(c, at, &slice->at[0], n, up ? 0 : n - 1, up ? 0 : -1, first) && slice_bound(c, at, &slice->at[1], n, up ? n : -1, up ? 0 : -1, last);
}

static bool subscript_sequence(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const tn_py *index, tn_py *out)
{
    bool string = value->kind == TN_PY_STRING;
    int64_t n = string ? (int64_t)value->length : value->n, i, last, step;
    if (index->kind != TN_PY_SLICE) {
        if (!tn_t_constant_int(c, at, index, string ? "the index of a string" : "the index of a tuple", &i))
            return false;
        if (i < -n || i >= n)
            return tn_t_error(c, at, "index %lld of %s", (long long)i, tn_t_describe(c, value));
        i += i < 0 ? n : 0;
        *out = string ? tn_t_string_value(c, value->text + i, 1) : value->at[i];
        return true;
    }
    if (!slice_indices(c, at, index, n, &i, &last, &step))
        return false;
    tn_text text = {.arena = &c->session->arena};
    tn_text_put(&text, "", 0);
    TN_VEC(tn_py) items = {0};
    for (; step > 0 ? i < last : i > last; i += step) {
        if (string)
            tn_text_put(&text, value->text + i, 1);
        else
            TN_PUSH(&c->session->arena, &items, value->at[i]);
    }
    *out = string ? tn_t_string_value(c, text.at, text.len) : tn_t_tuple(c, items.at, (int)items.len);
    return true;
}

static bool subscript_dict(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const tn_py *index, tn_py *out)
{
    tn_text key = {.arena = &c->session->arena};
    tn_t_text_constant(c, &key, index, true);
    for (int i = 0; i < value->n; i++) {
        if (!tn_t_equal(&value->at[2 * i], index))
            continue;
        *out = value->at[2 * i + 1];
        if (out->kind == TN_PY_TENSOR && !out->tensor)
            return tn_t_error(c, at, "argument %s is known only when the kernel runs, and this is needed to compile it: make %s a constant (--const %s=…), or give what "
                                     "is computed from it", key.at, key.at, index->kind == TN_PY_STRING ? index->text : key.at);
        return true;
    }
    return tn_t_error(c, at, "there is no %s in this dict", key.at);
}

bool tn_t_subscript(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const tn_py *index, tn_py *out)
{
    if (value->kind == TN_PY_TENSOR)
        return tn_t_tensor_subscript(c, at, value, index, out);
    if (value->kind == TN_PY_TUPLE || value->kind == TN_PY_STRING)
        return subscript_sequence(c, at, value, index, out);
    if (value->kind == TN_PY_DICT)
        return subscript_dict(c, at, value, index, out);
    return tn_t_error(c, at, "%s takes no subscript", tn_t_describe(c, value));
}

static bool subscript(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_py value, index;
    if (!tn_t_expression(c, node->child[0], &value) || !tn_t_expression(c, node->child[1], &index))
        return false;
    tn_t_at(c, node);
    return tn_t_subscript(c, node, &value, &index, out);
}

static bool slice(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_py *bounds = TN_NEW_ARRAY(&c->session->arena, tn_py, 3);
    for (int i = 0; i < 3; i++) {
        bounds[i] = tn_py_none();
        if (i < node->nchildren && node->child[i] && !tn_t_expression(c, node->child[i], &bounds[i]))
            return false;
    }
    *out = (tn_py){.kind = TN_PY_SLICE, .at = bounds, .n = 3};
    return true;
}

/* ---- collections ----------------------------------------------------------------------------------------------------- */

typedef TN_VEC(tn_py) py_list;
typedef TN_VEC(const char *) name_list;

static bool range_items(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_py **items, int *n)
{
    enum { MOST = 1 << 20 };
    int64_t bound[3];
    py_list list = {0};
    static const char *const what[] = {"the start of this range", "the end of this range", "the step of this range"};
    for (int i = 0; i < 3; i++)
        if (!tn_t_constant_int(c, at, &v->at[i], what[i], &bound[i]))
            return false;
    if (bound[2] == 0)
        return tn_t_error(c, at, "the step of range is 0");
    for (__int128 i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1]; i += bound[2]) {
        if (list.len == MOST)
            return tn_t_refuse(c, at, "a range of more than %d elements is unrolled here; tl.range makes a loop", MOST);
        TN_PUSH(&c->session->arena, &list, tn_py_int(i));
    }
    *items = list.at;
    *n = (int)list.len;
    return true;
}

bool tn_t_iterate(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_py **items, int *n)
{
    py_list list = {0};
    if (v->kind == TN_PY_RANGE)
        return range_items(c, at, v, items, n);
    if (v->kind == TN_PY_TUPLE) {
        *items = v->at;
        *n = v->n;
        return true;
    }
    if (v->kind != TN_PY_DICT && v->kind != TN_PY_STRING)
        return tn_t_error(c, at, "%s has no elements to go through", tn_t_describe(c, v));
    int count = v->kind == TN_PY_DICT ? v->n : (int)v->length;
    for (int i = 0; i < count; i++)
        TN_PUSH(&c->session->arena, &list, v->kind == TN_PY_DICT ? v->at[2 * i] : tn_t_string_value(c, v->text + i, 1));
    *items = list.at;
    *n = count;
    return true;
}

/* Expressions in a row, *x being all of x's elements. */
static bool list_items(tn_tcompiler *c, tn_ast *const *nodes, int count, py_list *out)
{
    for (int i = 0; i < count; i++) {
        bool starred = nodes[i]->kind == TN_AST_STARRED;
        const tn_py *items;
        tn_py value;
        int n = 1;
        if (!tn_t_expression(c, starred ? nodes[i]->child[0] : nodes[i], &value))
            return false;
        items = &value;
        if (starred && !tn_t_iterate(c, nodes[i], &value, &items, &n))
            return false;
        for (int k = 0; k < n; k++)
            TN_PUSH(&c->session->arena, out, items[k]);
        if (out->len > MOST_ARGUMENTS)
            return tn_t_refuse(c, nodes[i], "more than %d elements", MOST_ARGUMENTS);
    }
    return true;
}

static bool tuple(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    py_list items = {0};
    if (!list_items(c, node->child, node->nchildren, &items))
        return false;
    *out = tn_t_tuple(c, items.at, (int)items.len);
    return true;
}

static bool dict(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    py_list items = {0};
    for (int i = 0; i < node->nchildren; i++)
        if (!node->child[i])
            return tn_t_refuse(c, node, "** in a dict");
    if (!list_items(c, node->child, node->nchildren, &items))
        return false;
    *out = tn_t_tuple(c, items.at, (int)items.len);
    out->kind = TN_PY_DICT;
    out->n /= 2;
    return true;
}

static bool bind_target(tn_tcompiler *c, const tn_ast *target, const tn_py *value)
{
    const tn_py *items;
    int n;
    if (target->kind == TN_AST_NAME) {
        tn_t_set(c, target->text, *value);
        return true;
    }
    if (target->kind != TN_AST_TUPLE && target->kind != TN_AST_LIST)
        return tn_t_refuse(c, target, "names are what a comprehension goes through with");
    if (!tn_t_iterate(c, target, value, &items, &n))
        return false;
    if (n != target->nchildren)
        return tn_t_error(c, target, "%d values for %d names", n, target->nchildren);
    for (int i = 0; i < n; i++)
        if (!bind_target(c, target->child[i], &items[i]))
            return false;
    return true;
}

static bool comprehend(tn_tcompiler *c, const tn_ast *node, py_list *out)
{
    const tn_ast *element = node->child[0], *condition = node->nchildren > 3 ? node->child[3] : NULL;
    const tn_py *items;
    tn_py iterable, value;
    bool truth = true;
    int n;
    if (!tn_t_expression(c, node->child[2], &iterable) || !tn_t_iterate(c, node->child[2], &iterable, &items, &n))
        return false;
    for (int i = 0; i < n; i++) {
        if (!tn_t_spend(c, node) || !bind_target(c, node->child[1], &items[i]))
            return false;
        if (condition && (!tn_t_expression(c, condition, &value) || !tn_t_truth(c, condition, &value, &truth)))
            return false;
        if (!truth)
            continue;
        if (node->integer) { /* the next `for` of the same comprehension */
            if (!comprehend(c, element, out))
                return false;
            continue;
        }
        if (!tn_t_expression(c, element, &value))
            return false;
        TN_PUSH(&c->session->arena, out, value);
    }
    return true;
}

/* Its names are its own. */
static bool comprehension(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_scope before = c->frame->scope;
    tn_variable *copy = TN_NEW_ARRAY(&c->session->arena, tn_variable, (size_t)before.n + 1);
    py_list items = {0};
    if (before.n)
        memcpy(copy, before.at, sizeof *copy * (size_t)before.n);
    c->frame->scope = (tn_scope){copy, before.n, before.n};
    if (!comprehend(c, node, &items))
        return false;
    c->frame->scope = before;
    *out = tn_t_tuple(c, items.at, (int)items.len);
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

static bool cast_call(tn_tcompiler *c, const tn_ast *at, const tn_py *callee, const tn_py *arguments, int n, int nkeywords, tn_py *out)
{
    const tn_builtin *cast = tn_t_builtin_find("tensor", "to");
    if (n != 1 || nkeywords)
        return tn_t_error(c, at, "%s converts one value", tn_t_describe(c, callee));
    return tn_t_builtin_call(c, at, cast, &arguments[0], callee, 1, NULL, NULL, 0, out);
}

/* dict(), dict(other), dict(NAME=value, …) */
static bool dict_call(tn_tcompiler *c, const tn_ast *at, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values, int nkeywords, tn_py *out)
{
    py_list items = {0};
    if (n > 1 || (n == 1 && arguments[0].kind != TN_PY_DICT))
        return tn_t_error(c, at, "dict(…) takes a dict, and NAME=value");
    for (int i = 0; n && i < 2 * arguments[0].n; i++)
        TN_PUSH(&c->session->arena, &items, arguments[0].at[i]);
    for (int i = 0; i < nkeywords; i++) {
        tn_py key = tn_t_string_value(c, keywords[i], strlen(keywords[i]));
        size_t k = 0;
        while (k < items.len && !tn_t_equal(&items.at[k], &key))
            k += 2;
        if (k == items.len) {
            TN_PUSH(&c->session->arena, &items, key);
            TN_PUSH(&c->session->arena, &items, values[i]);
        } else {
            items.at[k + 1] = values[i];
        }
    }
    *out = tn_t_tuple(c, items.at, (int)items.len);
    out->kind = TN_PY_DICT;
    out->n /= 2;
    return true;
}

bool tn_t_apply_call(tn_tcompiler *c, const tn_ast *at, const tn_py *callee, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values,
                     int nkeywords, tn_py *out)
{
    py_list all = {0};
    switch (callee->kind) {
    case TN_PY_BUILTIN:
        if (strcmp(callee->builtin->name, "dict") == 0) /* the one whose keywords are any */
            return dict_call(c, at, arguments, n, keywords, values, nkeywords, out);
        return tn_t_builtin_call(c, at, callee->builtin, callee->self, arguments, n, keywords, values, nkeywords, out);
    case TN_PY_FUNCTION:
    case TN_PY_LAMBDA:
        if (callee->self)
            TN_PUSH(&c->session->arena, &all, *callee->self);
        for (int i = 0; i < n; i++)
            TN_PUSH(&c->session->arena, &all, arguments[i]);
        return tn_t_call(c, at, callee->function, all.at, (int)all.len, keywords, values, nkeywords, out);
    case TN_PY_DTYPE:
        return cast_call(c, at, callee, arguments, n, nkeywords, out);
    default:
        return tn_t_error(c, at, "%s is not a function", tn_t_describe(c, callee));
    }
}

static bool keyword_argument(tn_tcompiler *c, const tn_ast *node, py_list *values, name_list *names)
{
    tn_py value;
    if (!tn_t_expression(c, node->child[0], &value))
        return false;
    if (!node->text && value.kind != TN_PY_DICT)
        return tn_t_error(c, node, "** takes a dict, found %s", tn_t_describe(c, &value));
    int n = node->text ? 1 : value.n;
    for (int i = 0; i < n; i++) {
        const tn_py *key = node->text ? NULL : &value.at[2 * i];
        if (key && key->kind != TN_PY_STRING)
            return tn_t_error(c, node, "the names of arguments are strings, found %s", tn_t_describe(c, key));
        TN_PUSH(&c->session->arena, names, key ? key->text : node->text);
        TN_PUSH(&c->session->arena, values, key ? value.at[2 * i + 1] : value);
    }
    return true;
}

static bool call(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    py_list arguments = {0}, values = {0};
    name_list names = {0};
    tn_py callee;
    if (!tn_t_expression(c, node->child[0], &callee))
        return false;
    for (int i = 1; i < node->nchildren; i++) {
        bool keyword = node->child[i]->kind == TN_AST_KEYWORD;
        if (keyword ? !keyword_argument(c, node->child[i], &values, &names) : !list_items(c, &node->child[i], 1, &arguments))
            return false;
    }
    tn_t_at(c, node);
    return tn_t_apply_call(c, node, &callee, arguments.at, (int)arguments.len, names.at, values.at, (int)values.len, out);
}

static bool lambda(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_function *function = TN_NEW(&c->session->arena, tn_function);
    if (!c->constants_only)
        return tn_t_refuse(c, node, "`lambda` is not part of the kernel language: a function of a kernel is a `def` with @triton.jit");
    *function = *c->frame->function;
    function->node = node;
    function->name = "lambda";
    *out = (tn_py){.kind = TN_PY_LAMBDA, .function = function};
    return true;
}

/* ---- strings --------------------------------------------------------------------------------------------------------- */

static bool format(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_text text = {.arena = &c->session->arena};
    tn_text_put(&text, "", 0);
    for (int i = 0; i < node->nchildren; i++) {
        tn_py piece;
        if (!tn_t_expression(c, node->child[i], &piece))
            return false;
        if (!tn_py_is_constant(&piece))
            return tn_t_error(c, node->child[i], "a string is made when the kernel is compiled, and %s is known only when it runs; tl.device_print prints it",
                              tn_t_describe(c, &piece));
        tn_t_text_constant(c, &text, &piece, false);
    }
    *out = tn_t_string_value(c, text.at, text.len);
    return true;
}

/* ---- expressions ----------------------------------------------------------------------------------------------------- */

static bool attribute(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    tn_py value;
    if (!tn_t_expression(c, node->child[0], &value))
        return false;
    tn_t_at(c, node);
    return tn_t_attribute(c, node, &value, node->text, out);
}

static bool done(tn_py *out, tn_py value)
{
    *out = value;
    return true;
}

bool tn_t_expression(tn_tcompiler *c, const tn_ast *node, tn_py *out)
{
    if (!tn_t_spend(c, node))
        return false;
    switch (node->kind) {
    case TN_AST_NAME:
        return name_value(c, node, out);
    case TN_AST_INT:
        return done(out, tn_py_int(node->integer));
    case TN_AST_FLOAT:
        return done(out, tn_py_float(node->number));
    case TN_AST_STRING:
        return done(out, tn_t_string_value(c, node->text, node->length));
    case TN_AST_FORMAT:
        return format(c, node, out);
    case TN_AST_TRUE:
    case TN_AST_FALSE:
        return done(out, tn_py_bool(node->kind == TN_AST_TRUE));
    case TN_AST_NONE:
        return done(out, tn_py_none());
    case TN_AST_ATTRIBUTE:
        return attribute(c, node, out);
    case TN_AST_SUBSCRIPT:
        return subscript(c, node, out);
    case TN_AST_SLICE:
        return slice(c, node, out);
    case TN_AST_CALL:
        return call(c, node, out);
    case TN_AST_UNARY:
        return unary(c, node, out);
    case TN_AST_BINARY:
    case TN_AST_COMPARE:
        return binary(c, node, out);
    case TN_AST_AND:
    case TN_AST_OR:
        return logical(c, node, out);
    case TN_AST_TERNARY:
        return ternary(c, node, out);
    case TN_AST_TUPLE:
    case TN_AST_LIST:
        return tuple(c, node, out);
    case TN_AST_DICT:
        return dict(c, node, out);
    case TN_AST_LAMBDA:
        return lambda(c, node, out);
    case TN_AST_COMPREHENSION:
        return comprehension(c, node, out);
    case TN_AST_ELLIPSIS:
        return tn_t_refuse(c, node, "`...` is not part of the kernel language");
    default:
        return tn_t_refuse(c, node, "this expression is not part of the kernel language");
    }
}
