/* Fold rules of the Loop IR, one small function a scalar function or a family of them. They run while code is built
 * (tn_l_fn1..3) and in simplify.c; each is exact (see internal.h), so that both may apply them anywhere. */
#include "loop/internal.h"

#include <math.h>

const tn_number *tn_l_number(const tn_lvalue *v)
{
    return v->def && v->def->code == TN_L_const ? &v->def->number : NULL;
}

bool tn_l_same_type(tn_ltype a, tn_ltype b)
{
    return a.dtype == b.dtype && a.lanes == b.lanes && a.buffer == b.buffer && (!a.buffer || a.space == b.space);
}

static bool is_integer_like(const tn_lvalue *v)
{
    return tn_is_integer(v->type.dtype);
}

/* Whether v is a constant equal to the integer n (for floats: that number, +0 for 0). */
static bool is_number(const tn_lvalue *v, int n)
{
    const tn_number *number = tn_l_number(v);
    return number && !tn_is_complex(v->type.dtype) &&
           tn_number_same(v->type.dtype, *number, tn_number_from_int(v->type.dtype, n));
}

static bool is_minus_zero(const tn_lvalue *v)
{
    const tn_number *number = tn_l_number(v);
    return number && tn_is_float(v->type.dtype) && number->f == 0 && signbit(number->f);
}

static tn_lvalue *integer_const(tn_lbuilder *b, tn_ltype type, int64_t value)
{
    return tn_l_const(b, type, tn_number_from_int(type.dtype, value));
}

/* The defining fn of v with a constant second operand, NULL otherwise. Constants stand second after `canonical`. */
static const tn_lop *with_constant(const tn_lvalue *v, tn_scalar fn)
{
    const tn_lop *op = v->def;
    return op && op->code == TN_L_fn && op->fn == fn && tn_l_number(op->operand[1]) ? op : NULL;
}

static tn_lvalue *eval_constants(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n)
{
    tn_number numbers[3];
    for (int i = 0; i < n; i++) {
        const tn_number *number = tn_l_number(operands[i]);
        if (!number)
            return NULL;
        numbers[i] = *number;
    }
    tn_ltype last = operands[n - 1]->type;
    return tn_l_const(b, tn_lvector(tn_scalar_result(fn, last.dtype), last.lanes),
                      tn_scalar_eval(fn, last.dtype, numbers));
}

/* x + y of integers with a constant somewhere inside: constants move outwards and merge, so that an offset ends as
 * (everything else) + constant, which addressing modes take for free. */
static tn_lvalue *fold_add(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    if (is_minus_zero(y))
        return x;
    if (!is_integer_like(x))
        return NULL;
    if (is_number(y, 0))
        return x;
    const tn_lop *left = with_constant(x, TN_S_add), *right = with_constant(y, TN_S_add);
    if (left && tn_l_number(y))
        return tn_l_fn2(b, TN_S_add, left->operand[0], tn_l_fn2(b, TN_S_add, left->operand[1], y));
    if (left && right)
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_add, left->operand[0], right->operand[0]),
                        tn_l_fn2(b, TN_S_add, left->operand[1], right->operand[1]));
    if (left)
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_add, left->operand[0], y), left->operand[1]);
    if (right)
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_add, x, right->operand[0]), right->operand[1]);
    return NULL;
}

static tn_lvalue *fold_sub(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    if (is_number(y, 0))
        return x; /* x - +0 is x for -0 too */
    if (!is_integer_like(x))
        return NULL;
    if (x == y)
        return integer_const(b, x->type, 0);
    if (tn_l_number(y)) /* one form for both: x + -c */
        return tn_l_fn2(b, TN_S_add, x, tn_l_fn1(b, TN_S_neg, y));
    const tn_lop *left = x->def, *right = with_constant(y, TN_S_add);
    if (left && left->code == TN_L_fn && left->fn == TN_S_add) { /* (p + q) - q */
        if (left->operand[0] == y)
            return left->operand[1];
        if (left->operand[1] == y)
            return left->operand[0];
    }
    if (right && right->operand[0] == x) /* x - (x + c) */
        return tn_l_fn1(b, TN_S_neg, right->operand[1]);
    return NULL;
}

static tn_lvalue *fold_mul(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    if (is_number(y, 1))
        return x;
    if (!is_integer_like(x) || !tn_l_number(y))
        return NULL;
    if (is_number(y, 0))
        return y;
    const tn_lop *product = with_constant(x, TN_S_mul), *sum = with_constant(x, TN_S_add);
    if (product)
        return tn_l_fn2(b, TN_S_mul, product->operand[0], tn_l_fn2(b, TN_S_mul, product->operand[1], y));
    if (sum) /* (p + c) * d: the constant goes on outwards */
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, sum->operand[0], y),
                        tn_l_fn2(b, TN_S_mul, sum->operand[1], y));
    return NULL;
}

static tn_lvalue *fold_div(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    (void)b;
    return is_number(y, 1) ? x : NULL;
}

static tn_lvalue *fold_rem(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    return is_integer_like(x) && is_number(y, 1) ? integer_const(b, x->type, 0) : NULL;
}

static tn_lvalue *fold_idempotent(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    (void)b;
    return x == y ? x : NULL;
}

static tn_lvalue *fold_and(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    (void)b;
    if (x == y || is_number(y, 0))
        return y;
    return x->type.dtype == TN_BOOL && is_number(y, 1) ? x : NULL;
}

static tn_lvalue *fold_or(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    (void)b;
    if (x == y || is_number(y, 0))
        return x;
    return x->type.dtype == TN_BOOL && is_number(y, 1) ? y : NULL;
}

static tn_lvalue *fold_xor(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    if (is_number(y, 0))
        return x;
    return x == y ? tn_l_const(b, x->type, (tn_number){0}) : NULL;
}

static tn_lvalue *fold_shift(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    (void)b;
    return is_number(y, 0) ? x : NULL;
}

/* x ? x of integers and bool: known. */
static tn_lvalue *fold_compare(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y)
{
    if (x != y || !(is_integer_like(x) || x->type.dtype == TN_BOOL))
        return NULL;
    bool holds = fn == TN_S_eq || fn == TN_S_le || fn == TN_S_ge;
    return tn_l_const(b, tn_lvector(TN_BOOL, x->type.lanes), (tn_number){.u = holds});
}

static tn_lvalue *fold_not(tn_lbuilder *b, tn_lvalue *x)
{
    (void)b;
    return x->def && x->def->code == TN_L_fn && x->def->fn == TN_S_not ? x->def->operand[0] : NULL;
}

static tn_lvalue *fold_select(tn_lbuilder *b, tn_lvalue *cond, tn_lvalue *x, tn_lvalue *y)
{
    const tn_number *number = tn_l_number(cond);
    if (number)
        return number->u ? x : y;
    if (x == y)
        return x;
    if (x->type.dtype == TN_BOOL && is_number(x, 1) && is_number(y, 0))
        return cond;
    if (cond->def && cond->def->code == TN_L_fn && cond->def->fn == TN_S_not)
        return tn_l_fn3(b, TN_S_select, cond->def->operand[0], y, x);
    return NULL;
}

static tn_lvalue *fold_binary(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y)
{
    switch (fn) {
    case TN_S_add:
        return fold_add(b, x, y);
    case TN_S_sub:
        return fold_sub(b, x, y);
    case TN_S_mul:
        return fold_mul(b, x, y);
    case TN_S_div:
        return fold_div(b, x, y);
    case TN_S_rem:
        return fold_rem(b, x, y);
    case TN_S_max:
    case TN_S_min:
    case TN_S_maxnum:
    case TN_S_minnum:
        return fold_idempotent(b, x, y);
    case TN_S_and:
        return fold_and(b, x, y);
    case TN_S_or:
        return fold_or(b, x, y);
    case TN_S_xor:
        return fold_xor(b, x, y);
    case TN_S_shl:
    case TN_S_shr_arith:
    case TN_S_shr_logical:
        return fold_shift(b, x, y);
    case TN_S_eq:
    case TN_S_ne:
    case TN_S_lt:
    case TN_S_le:
    case TN_S_gt:
    case TN_S_ge:
        return fold_compare(b, fn, x, y);
    default:
        return NULL;
    }
}

tn_lvalue *tn_l_fold(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n)
{
    tn_lvalue *constant = eval_constants(b, fn, operands, n);
    if (constant)
        return constant;
    if (n == 1)
        return fn == TN_S_not ? fold_not(b, operands[0]) : NULL;
    if (n == 3)
        return fn == TN_S_select ? fold_select(b, operands[0], operands[1], operands[2]) : NULL;
    if (!(tn_scalar_traits(fn) & TN_SCALAR_COMMUTES) || !tn_l_number(operands[0]))
        return fold_binary(b, fn, operands[0], operands[1]);
    tn_lvalue *folded = fold_binary(b, fn, operands[1], operands[0]);
    /* Constants stand second from here on: one form for the rules above and for merging equal operations. */
    return folded ? folded : tn_l_fn(b, fn, (tn_lvalue *[]){operands[1], operands[0]}, n);
}

/* Whether every value of `from` is a value of `to`, so that a cast there and back, or on to a third type, is one cast.
 */
static bool embeds(tn_dtype from, tn_dtype to)
{
    if (tn_dtype_class(from) == tn_dtype_class(to))
        return tn_is_float(from) ? from == to || (tn_dtype_bits(from) < tn_dtype_bits(to) && tn_dtype_bits(to) >= 32)
                                 : tn_dtype_bits(from) <= tn_dtype_bits(to);
    return tn_dtype_class(from) == TN_CLASS_UINT && tn_dtype_class(to) == TN_CLASS_INT &&
           tn_dtype_bits(from) < tn_dtype_bits(to);
}

tn_lvalue *tn_l_fold_cast(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype)
{
    tn_dtype from = x->type.dtype;
    if (from == dtype)
        return x;
    const tn_number *number = tn_l_number(x);
    if (number)
        return tn_l_const(b, tn_lvector(dtype, x->type.lanes), tn_number_convert(*number, from, dtype));
    const tn_lop *op = x->def;
    if (op && op->code == TN_L_cast && embeds(op->operand[0]->type.dtype, from) && dtype != TN_BOOL)
        return tn_l_cast(b, op->operand[0], dtype);
    return NULL;
}
