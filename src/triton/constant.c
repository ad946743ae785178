/* Python's own arithmetic, on constants. Integers have 128 bits, where Python's have no end: what needs more is an error, never a wrong value. */
#include "triton/internal.h"

#include <math.h>
#include <string.h>

enum { MOST_ITEMS = 1 << 16 };
#define INT_BOUND "an integer of more than 128 bits"

const char *tn_t_operator_text(tn_ast_op op)
{
    static const char *const texts[] = {
        [TN_AST_ADD] = "+",       [TN_AST_SUB] = "-",     [TN_AST_MUL] = "*",     [TN_AST_DIV] = "/",       [TN_AST_FLOORDIV] = "//", [TN_AST_MOD] = "%",
        [TN_AST_POW] = "**",      [TN_AST_MATMUL] = "@",  [TN_AST_LSHIFT] = "<<", [TN_AST_RSHIFT] = ">>",   [TN_AST_BITAND] = "&",    [TN_AST_BITOR] = "|",
        [TN_AST_BITXOR] = "^",    [TN_AST_POSITIVE] = "+", [TN_AST_NEGATIVE] = "-", [TN_AST_INVERT] = "~",  [TN_AST_NOT] = "not",     [TN_AST_EQ] = "==",
        [TN_AST_NE] = "!=",       [TN_AST_LT] = "<",      [TN_AST_LE] = "<=",     [TN_AST_GT] = ">",        [TN_AST_GE] = ">=",       [TN_AST_IS] = "is",
        [TN_AST_IS_NOT] = "is not", [TN_AST_IN] = "in",   [TN_AST_NOT_IN] = "not in",
    };
    return texts[op];
}

tn_py tn_t_string_value(tn_tcompiler *c, const char *text, size_t length)
{
    return (tn_py){.kind = TN_PY_STRING, .text = tn_intern(c->session, text, length), .length = length};
}

/* ---- text ------------------------------------------------------------------------------------------------------------ */

static void text_int(tn_text *text, __int128 value)
{
    char digits[48];
    int n = 0;
    unsigned __int128 left = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    do
        digits[n++] = (char)('0' + (int)(left % 10));
    while (left /= 10);
    tn_text_add(text, "%s", value < 0 ? "-" : "");
    while (n > 0)
        tn_text_put(text, &digits[--n], 1);
}

/* Python writes a float so that it does not read as an integer. */
static void text_float(tn_text *text, double value)
{
    size_t start = text->len;
    tn_text_double(text, value);
    bool plain = true;
    for (size_t i = start; i < text->len; i++)
        plain &= strchr("-0123456789", text->at[i]) != NULL;
    if (plain)
        tn_text_add(text, ".0");
}

static void text_string(tn_text *text, const tn_py *v)
{
    tn_text_add(text, "'");
    for (size_t i = 0; i < v->length; i++) {
        char ch = v->text[i];
        if (ch == '\n')
            tn_text_add(text, "\\n");
        else if (ch == '\'' || ch == '\\')
            tn_text_add(text, "\\%c", ch);
        else
            tn_text_put(text, &ch, 1);
    }
    tn_text_add(text, "'");
}

void tn_t_text_constant(tn_tcompiler *c, tn_text *text, const tn_py *v, bool quoted)
{
    switch (v->kind) {
    case TN_PY_NONE:
        tn_text_add(text, "None");
        break;
    case TN_PY_BOOL:
        tn_text_add(text, v->integer ? "True" : "False");
        break;
    case TN_PY_INT:
        text_int(text, v->integer);
        break;
    case TN_PY_FLOAT:
        text_float(text, v->number);
        break;
    case TN_PY_STRING:
        if (quoted)
            text_string(text, v);
        else
            tn_text_put(text, v->text, v->length);
        break;
    case TN_PY_TUPLE:
        tn_text_add(text, "(");
        for (int i = 0; i < v->n; i++) {
            tn_text_add(text, i ? ", " : "");
            tn_t_text_constant(c, text, &v->at[i], true);
        }
        tn_text_add(text, v->n == 1 ? ",)" : ")");
        break;
    case TN_PY_DTYPE:
        tn_text_add(text, "%s%s", tn_t_type_name(c, &v->type), v->type.rank ? tn_t_shape_text(c, &v->type) : "");
        break;
    default:
        tn_text_add(text, "%s", tn_t_describe(c, v));
    }
}

/* ---- comparison ------------------------------------------------------------------------------------------------------ */

static double number_of(const tn_py *v) { return v->kind == TN_PY_FLOAT ? v->number : (double)v->integer; }

static bool same_types(const tn_ttype *x, const tn_ttype *y)
{
    return x->dtype == y->dtype && x->pointer == y->pointer && tn_t_same_shape(x, y);
}

static bool same_items(const tn_py *x, const tn_py *y, int n)
{
    for (int i = 0; i < n; i++)
        if (!tn_t_equal(&x->at[i], &y->at[i]))
            return false;
    return true;
}

bool tn_t_equal(const tn_py *x, const tn_py *y)
{
    if (tn_py_is_number(x) && tn_py_is_number(y))
        return x->kind == TN_PY_FLOAT || y->kind == TN_PY_FLOAT ? number_of(x) == number_of(y) : x->integer == y->integer;
    if (x->kind != y->kind)
        return false;
    switch (x->kind) {
    case TN_PY_NONE:
        return true;
    case TN_PY_STRING:
        return x->length == y->length && memcmp(x->text, y->text, x->length) == 0;
    case TN_PY_DTYPE:
        return same_types(&x->type, &y->type) && x->block == y->block;
    case TN_PY_TUPLE:
        return x->n == y->n && same_items(x, y, x->n);
    case TN_PY_DICT:
        return x->n == y->n && same_items(x, y, 2 * x->n);
    case TN_PY_SLICE:
    case TN_PY_RANGE:
    case TN_PY_CONFIG:
        return x->unrolled == y->unrolled && same_items(x, y, 3);
    case TN_PY_FUNCTION:
    case TN_PY_LAMBDA:
        return x->function->node == y->function->node;
    case TN_PY_BUILTIN:
        return x->builtin == y->builtin && (x->self == y->self || (x->self && y->self && tn_t_equal(x->self, y->self)));
    case TN_PY_MODULE:
        return strcmp(x->text, y->text) == 0;
    case TN_PY_TENSOR:
        return x->tensor == y->tensor;
    default:
        return x->block == y->block;
    }
}

static bool compare(tn_ast_op op, int order)
{
    return op == TN_AST_LT ? order < 0 : op == TN_AST_LE ? order <= 0 : op == TN_AST_GT ? order > 0 : order >= 0;
}

static bool compare_doubles(tn_ast_op op, double x, double y)
{
    return op == TN_AST_LT ? x < y : op == TN_AST_LE ? x <= y : op == TN_AST_GT ? x > y : x >= y; /* all false for NaN */
}

static bool order(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, bool *out)
{
    if (tn_py_is_number(x) && tn_py_is_number(y)) {
        bool floats = x->kind == TN_PY_FLOAT || y->kind == TN_PY_FLOAT;
        *out = floats ? compare_doubles(op, number_of(x), number_of(y)) : compare(op, (x->integer > y->integer) - (x->integer < y->integer));
        return true;
    }
    if (x->kind == TN_PY_STRING && y->kind == TN_PY_STRING) {
        size_t n = x->length < y->length ? x->length : y->length;
        int first = memcmp(x->text, y->text, n);
        *out = compare(op, first ? first : (x->length > y->length) - (x->length < y->length));
        return true;
    }
    if (x->kind == TN_PY_TUPLE && y->kind == TN_PY_TUPLE) {
        for (int i = 0; i < x->n && i < y->n; i++)
            if (!tn_t_equal(&x->at[i], &y->at[i]))
                return order(c, at, op, &x->at[i], &y->at[i], out);
        *out = compare(op, (x->n > y->n) - (x->n < y->n));
        return true;
    }
    return tn_t_error(c, at, "%s does not order %s and %s", tn_t_operator_text(op), tn_t_describe(c, x), tn_t_describe(c, y));
}

static bool contains(tn_tcompiler *c, const tn_ast *at, const tn_py *x, const tn_py *y, bool *out)
{
    *out = false;
    if (y->kind == TN_PY_STRING && x->kind == TN_PY_STRING) {
        *out = memmem(y->text, y->length, x->text, x->length) != NULL;
        return true;
    }
    int step = y->kind == TN_PY_DICT ? 2 : 1;
    if (y->kind != TN_PY_TUPLE && y->kind != TN_PY_DICT)
        return tn_t_error(c, at, "`in` looks into tuples, dicts and strings, found %s in %s", tn_t_describe(c, x), tn_t_describe(c, y));
    for (int i = 0; i < y->n; i++)
        *out |= tn_t_equal(x, &y->at[step * i]);
    return true;
}

bool tn_t_truth(tn_tcompiler *c, const tn_ast *at, const tn_py *v, bool *out)
{
    switch (v->kind) {
    case TN_PY_NONE:
        *out = false;
        return true;
    case TN_PY_BOOL:
    case TN_PY_INT:
        *out = v->integer != 0;
        return true;
    case TN_PY_FLOAT:
        *out = v->number != 0;
        return true;
    case TN_PY_STRING:
        *out = v->length > 0;
        return true;
    case TN_PY_TUPLE:
    case TN_PY_DICT:
        *out = v->n > 0;
        return true;
    case TN_PY_FUNCTION:
    case TN_PY_LAMBDA:
    case TN_PY_BUILTIN:
    case TN_PY_DTYPE:
        *out = true;
        return true;
    default:
        return tn_t_error(c, at, "expected a constant that is true or false, found %s", tn_t_describe(c, v));
    }
}

/* ---- integers -------------------------------------------------------------------------------------------------------- */

static bool too_wide(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y)
{
    return tn_t_error(c, at, "%s %s %s is " INT_BOUND, tn_t_describe(c, x), tn_t_operator_text(op), tn_t_describe(c, y));
}

static __int128 floor_quotient(__int128 a, __int128 b)
{
    __int128 q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static bool power(__int128 base, __int128 exponent, __int128 *out)
{
    __int128 result = 1;
    bool squares = true; /* base still is base ** (2 ** k) */
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && (!squares || __builtin_mul_overflow(result, base, &result)))
            return false;
        if (squares && __builtin_mul_overflow(base, base, &base))
            squares = false;
    }
    *out = result;
    return true;
}

static bool shift_left(__int128 x, __int128 by, __int128 *out)
{
    if (x == 0 || by == 0) {
        *out = x;
        return true;
    }
    return by < 127 && !__builtin_mul_overflow(x, (__int128)1 << by, out);
}

static bool integers(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out)
{
    __int128 a = x->integer, b = y->integer, r = 0;
    bool fits = true, divides = op == TN_AST_DIV || op == TN_AST_FLOORDIV || op == TN_AST_MOD;
    if (divides && b == 0)
        return tn_t_error(c, at, "division of %s by zero", tn_t_describe(c, x));
    if ((op == TN_AST_LSHIFT || op == TN_AST_RSHIFT) && b < 0)
        return tn_t_error(c, at, "%s by a negative number, %s", tn_t_operator_text(op), tn_t_describe(c, y));
    if (divides && b == -1) { /* the lowest number has no negative */
        fits = op == TN_AST_MOD || !__builtin_sub_overflow((__int128)0, a, &r);
        *out = op == TN_AST_DIV ? tn_py_float(-(double)a) : tn_py_int(op == TN_AST_MOD ? 0 : r);
        return fits || too_wide(c, at, op, x, y);
    }
    switch (op) {
    case TN_AST_ADD:
        fits = !__builtin_add_overflow(a, b, &r);
        break;
    case TN_AST_SUB:
        fits = !__builtin_sub_overflow(a, b, &r);
        break;
    case TN_AST_MUL:
        fits = !__builtin_mul_overflow(a, b, &r);
        break;
    case TN_AST_DIV:
        *out = tn_py_float((double)a / (double)b);
        return true;
    case TN_AST_FLOORDIV:
        r = floor_quotient(a, b);
        break;
    case TN_AST_MOD:
        r = a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
        break;
    case TN_AST_POW:
        if (b < 0 && a == 0)
            return tn_t_error(c, at, "0 to a negative power");
        if (b < 0) {
            *out = tn_py_float(pow((double)a, (double)b));
            return true;
        }
        fits = power(a, b, &r);
        break;
    case TN_AST_LSHIFT:
        fits = shift_left(a, b, &r);
        break;
    case TN_AST_RSHIFT:
        r = a >> (b > 127 ? 127 : (int)b);
        break;
    case TN_AST_BITAND:
        r = a & b;
        break;
    case TN_AST_BITOR:
        r = a | b;
        break;
    case TN_AST_BITXOR:
        r = a ^ b;
        break;
    default:
        return tn_t_refuse(c, at, "%s of %s and %s", tn_t_operator_text(op), tn_t_describe(c, x), tn_t_describe(c, y));
    }
    bool logical = (op == TN_AST_BITAND || op == TN_AST_BITOR || op == TN_AST_BITXOR) && x->kind == TN_PY_BOOL && y->kind == TN_PY_BOOL;
    *out = logical ? tn_py_bool(r != 0) : tn_py_int(r);
    return fits || too_wide(c, at, op, x, y);
}

/* ---- floats ---------------------------------------------------------------------------------------------------------- */

static double floor_remainder(double a, double b)
{
    double r = fmod(a, b);
    if (r != 0)
        return (r < 0) != (b < 0) ? r + b : r;
    return copysign(0, b);
}

static bool floats(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out)
{
    double a = number_of(x), b = number_of(y), r;
    bool divides = op == TN_AST_DIV || op == TN_AST_FLOORDIV || op == TN_AST_MOD;
    if (divides && b == 0)
        return tn_t_error(c, at, "division of %s by zero", tn_t_describe(c, x));
    switch (op) {
    case TN_AST_ADD:
        r = a + b;
        break;
    case TN_AST_SUB:
        r = a - b;
        break;
    case TN_AST_MUL:
        r = a * b;
        break;
    case TN_AST_DIV:
        r = a / b;
        break;
    case TN_AST_FLOORDIV:
        r = floor((a - floor_remainder(a, b)) / b + 0.5);
        r = isfinite(a) && isfinite(b) ? r : floor(a / b);
        break;
    case TN_AST_MOD:
        r = floor_remainder(a, b);
        break;
    case TN_AST_POW:
        if ((a < 0 && isfinite(a) && isfinite(b) && b != rint(b)) || (a == 0 && b < 0))
            return tn_t_error(c, at, "%s ** %s is no real number", tn_t_describe(c, x), tn_t_describe(c, y));
        r = pow(a, b);
        break;
    default:
        return tn_t_error(c, at, "%s takes integers, found %s and %s", tn_t_operator_text(op), tn_t_describe(c, x), tn_t_describe(c, y));
    }
    *out = tn_py_float(r);
    return true;
}

/* ---- strings and tuples ---------------------------------------------------------------------------------------------- */

static bool repeat(tn_tcompiler *c, const tn_ast *at, const tn_py *v, __int128 times, tn_py *out)
{
    size_t size = v->kind == TN_PY_STRING ? v->length : (size_t)v->n;
    times = times < 0 ? 0 : times;
    if (size && times > (__int128)(MOST_ITEMS / size))
        return tn_t_error(c, at, "%s that often has more than %d elements", tn_t_describe(c, v), MOST_ITEMS);
    if (v->kind == TN_PY_STRING) {
        tn_text text = {.arena = &c->session->arena};
        for (__int128 i = 0; size && i < times; i++)
            tn_text_put(&text, v->text, v->length);
        *out = tn_t_string_value(c, text.at ? text.at : "", text.len);
        return true;
    }
    int n = size ? (int)times * v->n : 0;
    tn_py *at_items = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        at_items[i] = v->at[i % v->n];
    *out = (tn_py){.kind = TN_PY_TUPLE, .at = at_items, .n = n};
    return true;
}

static bool concatenate(tn_tcompiler *c, const tn_ast *at, const tn_py *x, const tn_py *y, tn_py *out)
{
    if (x->kind == TN_PY_STRING) {
        if (x->length + y->length > MOST_ITEMS)
            return tn_t_error(c, at, "a string of more than %d characters", MOST_ITEMS);
        tn_text text = {.arena = &c->session->arena};
        tn_text_put(&text, x->text, x->length);
        tn_text_put(&text, y->text, y->length);
        *out = tn_t_string_value(c, text.at ? text.at : "", text.len);
        return true;
    }
    if (x->n + y->n > MOST_ITEMS)
        return tn_t_error(c, at, "a tuple of more than %d elements", MOST_ITEMS);
    tn_py *items = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)(x->n + y->n) + 1);
    for (int i = 0; i < x->n + y->n; i++)
        items[i] = i < x->n ? x->at[i] : y->at[i - x->n];
    *out = (tn_py){.kind = TN_PY_TUPLE, .at = items, .n = x->n + y->n};
    return true;
}

static bool is_whole(const tn_py *v) { return v->kind == TN_PY_INT || v->kind == TN_PY_BOOL; }
static bool is_sequence(const tn_py *v) { return v->kind == TN_PY_STRING || v->kind == TN_PY_TUPLE; }

/* ---- operators ------------------------------------------------------------------------------------------------------- */

bool tn_t_constant_binary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out)
{
    bool result = false;
    switch (op) {
    case TN_AST_EQ:
    case TN_AST_NE:
        *out = tn_py_bool(tn_t_equal(x, y) == (op == TN_AST_EQ));
        return true;
    case TN_AST_IS:
    case TN_AST_IS_NOT: /* of what is small, Python keeps one; 1 is no True */
        *out = tn_py_bool((x->kind == y->kind && tn_t_equal(x, y)) == (op == TN_AST_IS));
        return true;
    case TN_AST_IN:
    case TN_AST_NOT_IN:
        if (!contains(c, at, x, y, &result))
            return false;
        *out = tn_py_bool(result == (op == TN_AST_IN));
        return true;
    case TN_AST_LT:
    case TN_AST_LE:
    case TN_AST_GT:
    case TN_AST_GE:
        if (!order(c, at, op, x, y, &result))
            return false;
        *out = tn_py_bool(result);
        return true;
    default:
        break;
    }
    if (is_whole(x) && is_whole(y))
        return integers(c, at, op, x, y, out);
    if (tn_py_is_number(x) && tn_py_is_number(y))
        return floats(c, at, op, x, y, out);
    if (op == TN_AST_ADD && is_sequence(x) && x->kind == y->kind)
        return concatenate(c, at, x, y, out);
    if (op == TN_AST_MUL && is_sequence(x) && is_whole(y))
        return repeat(c, at, x, y->integer, out);
    if (op == TN_AST_MUL && is_whole(x) && is_sequence(y))
        return repeat(c, at, y, x->integer, out);
    return tn_t_error(c, at, "%s does not work on %s and %s", tn_t_operator_text(op), tn_t_describe(c, x), tn_t_describe(c, y));
}

bool tn_t_constant_unary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, tn_py *out)
{
    bool truth;
    __int128 r;
    if (op == TN_AST_NOT) {
        if (!tn_t_truth(c, at, x, &truth))
            return false;
        *out = tn_py_bool(!truth);
        return true;
    }
    if (x->kind == TN_PY_FLOAT && op != TN_AST_INVERT) {
        *out = tn_py_float(op == TN_AST_NEGATIVE ? -x->number : x->number);
        return true;
    }
    if (!is_whole(x))
        return tn_t_error(c, at, "unary %s does not work on %s", tn_t_operator_text(op), tn_t_describe(c, x));
    if (op == TN_AST_NEGATIVE && __builtin_sub_overflow((__int128)0, x->integer, &r))
        return tn_t_error(c, at, "-%s is " INT_BOUND, tn_t_describe(c, x));
    *out = tn_py_int(op == TN_AST_NEGATIVE ? -x->integer : op == TN_AST_INVERT ? ~x->integer : x->integer);
    return true;
}
