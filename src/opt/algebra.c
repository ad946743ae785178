/* Rules on elementwise operations. Neutral and absorbing elements, repeated and inverse operations are tables;
 * every entry is exact for the types that it names: x + 0 is not x for x = -0, x * 0 is not 0 for NaN, so floats
 * have neither. */
#include "opt/internal.h"

#include <math.h>
#include <string.h>

enum { B = TN_CLASS_BOOL, I = TN_CLASS_INT, U = TN_CLASS_UINT, F = TN_CLASS_FLOAT };

/* ---- special numbers ------------------------------------------------------------------------------------------- */

typedef enum special { ZERO, MINUS_ZERO, ONE, MINUS_ONE, ALL_ONES, LOWEST, HIGHEST } special;

static bool number_is(tn_dtype dtype, tn_number x, special which)
{
    bool is_float = tn_is_float(dtype);
    if (tn_is_complex(dtype))
        return false;
    switch (which) {
    case ZERO:
        return is_float ? x.f == 0 && !signbit(x.f) : x.i == 0;
    case MINUS_ZERO:
        return is_float && x.f == 0 && signbit(x.f);
    case ONE:
        return is_float ? x.f == 1 : x.i == 1;
    case MINUS_ONE:
        return is_float ? x.f == -1 : tn_dtype_class(dtype) == TN_CLASS_INT && x.i == -1;
    case ALL_ONES:
        return !is_float && tn_number_same(dtype, x, tn_number_from_int(dtype, dtype == TN_BOOL ? 1 : -1));
    case LOWEST:
        return tn_number_same(dtype, x, tn_number_lowest(dtype));
    case HIGHEST:
        return tn_number_same(dtype, x, tn_number_highest(dtype));
    }
    return false;
}

static bool splat_is(const tn_value *v, special which)
{
    tn_number x;
    return value_splat(v, &x) && number_is(v->type.dtype, x, which);
}

static bool commutes(const tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    return fn != TN_SCALAR_NONE && (tn_scalar_traits(fn) & TN_SCALAR_COMMUTES);
}

static bool of_class(const tn_op *op, unsigned classes)
{
    return tn_dtype_class(tn_operand(op, 0)->type.dtype) & classes;
}

/* ---- neutral and absorbing elements ---------------------------------------------------------------------------- */

typedef struct element {
    tn_scalar fn;
    special number; /* on the right; on either side if fn commutes */
    unsigned classes;
} element;

static const element neutral[] = {
    {TN_S_add, ZERO, B | I | U},
    {TN_S_add, MINUS_ZERO, F},
    {TN_S_sub, ZERO, I | U | F},
    {TN_S_mul, ONE, B | I | U | F},
    {TN_S_div, ONE, I | U | F},
    {TN_S_max, LOWEST, B | I | U | F},
    {TN_S_min, HIGHEST, B | I | U | F},
    {TN_S_and, ALL_ONES, B | I | U},
    {TN_S_or, ZERO, B | I | U},
    {TN_S_xor, ZERO, B | I | U},
    {TN_S_shl, ZERO, I | U},
    {TN_S_shr_arith, ZERO, I | U},
    {TN_S_pow, ONE, F},
    {TN_S_shr_logical, ZERO, I | U},
};
static const element neutral_fast[] = {{TN_S_add, ZERO, F}, {TN_S_sub, MINUS_ZERO, F}};
static const element absorbing[] = {
    {TN_S_mul, ZERO, B | I | U},    {TN_S_and, ZERO, B | I | U},   {TN_S_or, ALL_ONES, B | I | U},
    {TN_S_max, HIGHEST, B | I | U}, {TN_S_min, LOWEST, B | I | U},
};

/* The operand that is such an element, -1: none. */
static int find_element(const tn_op *op, const element *table, size_t n)
{
    tn_scalar fn = tn_op_scalar(op);
    for (size_t k = 0; k < n && op->noperands == 2; k++) {
        if (table[k].fn != fn || !of_class(op, table[k].classes))
            continue;
        if (splat_is(tn_operand(op, 1), table[k].number))
            return 1;
        if (commutes(op) && splat_is(tn_operand(op, 0), table[k].number))
            return 0;
    }
    return -1;
}

/* add(x, -0) -> x, multiply(x, 1) -> x, … */
static bool neutral_element(rewriter *rw, tn_op *op)
{
    int at = find_element(op, neutral, TN_COUNT(neutral));
    return at >= 0 && rw_replace(rw, op, tn_operand(op, 1 - at));
}

static bool neutral_element_fast(rewriter *rw, tn_op *op)
{
    int at = find_element(op, neutral_fast, TN_COUNT(neutral_fast));
    return at >= 0 && rw_replace(rw, op, tn_operand(op, 1 - at));
}

/* multiply(x, 0) -> 0 on integers, … */
static bool absorbing_element(rewriter *rw, tn_op *op)
{
    int at = find_element(op, absorbing, TN_COUNT(absorbing));
    return at >= 0 && rw_replace(rw, op, tn_operand(op, at));
}

/* ---- the same operand twice ------------------------------------------------------------------------------------ */

static tn_value *truth(rewriter *rw, const tn_op *op, bool value)
{
    return build_splat(&rw->b, &op->result[0].type, (tn_number){.u = value});
}

/* maximum(x, x) -> x; subtract(x, x) -> 0 and xor(x, x) -> 0 on integers */
static bool same_operands(rewriter *rw, tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    if (op->noperands != 2 || fn == TN_SCALAR_NONE || tn_operand(op, 0) != tn_operand(op, 1) ||
        op->code == TN_OP_compare)
        return false;
    if (tn_scalar_traits(fn) & TN_SCALAR_IDEMPOTENT)
        return rw_replace(rw, op, tn_operand(op, 0));
    bool cancels = (fn == TN_S_sub || fn == TN_S_xor) && of_class(op, B | I | U);
    return cancels && rw_replace(rw, op, build_splat(&rw->b, &op->result[0].type, (tn_number){.i = 0}));
}

/* compare EQ x, x -> true but for NaN; compare LT x, x -> false */
static bool compare_same(rewriter *rw, tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    if (tn_operand(op, 0) != tn_operand(op, 1))
        return false;
    if (fn == TN_S_lt || fn == TN_S_gt)
        return rw_replace(rw, op, truth(rw, op, false));
    if (!of_class(op, B | I | U))
        return rw_decline(rw, op, "NaN is not equal to itself");
    return rw_replace(rw, op, truth(rw, op, fn != TN_S_ne));
}

/* maximum(maximum(x, c), c) -> maximum(x, c) */
static bool repeated_operand(rewriter *rw, tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    if (op->noperands != 2 || fn == TN_SCALAR_NONE || !(tn_scalar_traits(fn) & TN_SCALAR_IDEMPOTENT))
        return false;
    for (int i = 0; i < 2; i++) {
        const tn_value *inner = tn_operand(op, i), *other = tn_operand(op, 1 - i);
        if (tn_is_op(inner, op->code) && (tn_operand(inner->def, 0) == other || tn_operand(inner->def, 1) == other))
            return rw_replace(rw, op, tn_operand(op, i));
    }
    return false;
}

/* ---- one operation after another ------------------------------------------------------------------------------- */

typedef enum outcome { TO_OPERAND, TO_INNER, TO_OUTER } outcome;
static const struct {
    tn_opcode outer, inner;
    outcome to; /* outer(inner(x)) -> x, inner(x), outer(x) */
} chains[] = {
    {TN_OP_negate, TN_OP_negate, TO_OPERAND},
    {TN_OP_not, TN_OP_not, TO_OPERAND},
    {TN_OP_abs, TN_OP_negate, TO_OUTER},
    {TN_OP_sign, TN_OP_sign, TO_INNER},
};

static bool is_rounding(tn_opcode code)
{
    return code == TN_OP_floor || code == TN_OP_ceil || code == TN_OP_round_nearest_even ||
           code == TN_OP_round_nearest_afz;
}

static bool unary_chain(rewriter *rw, tn_op *op)
{
    if (op->noperands != 1 || !tn_operand(op, 0)->def)
        return false;
    const tn_op *inner = tn_operand(op, 0)->def;
    if (is_rounding(op->code) && is_rounding(inner->code))
        return rw_replace(rw, op, tn_operand(op, 0));
    if (op->code == TN_OP_abs && inner->code == TN_OP_abs && !tn_is_complex(tn_operand(inner, 0)->type.dtype))
        return rw_replace(rw, op, tn_operand(op, 0));
    for (size_t i = 0; i < TN_COUNT(chains); i++) {
        if (chains[i].outer != op->code || chains[i].inner != inner->code)
            continue;
        tn_value *x = tn_operand(inner, 0);
        return rw_replace(rw, op,
                          chains[i].to == TO_OPERAND ? x
                          : chains[i].to == TO_INNER ? tn_operand(op, 0)
                                                     : tn_unary(&rw->b, op->code, x));
    }
    return false;
}

/* add(x, negate(y)) -> subtract(x, y); subtract(x, negate(y)) -> add(x, y): IEEE defines them so. */
static bool add_negated(rewriter *rw, tn_op *op)
{
    bool adds = op->code == TN_OP_add;
    for (int i = 1; i >= (adds ? 0 : 1); i--)
        if (tn_is_op(tn_operand(op, i), TN_OP_negate))
            return rw_replace(rw, op,
                              tn_binary(&rw->b, adds ? TN_OP_subtract : TN_OP_add, tn_operand(op, 1 - i),
                                        tn_operand(tn_operand(op, i)->def, 0)));
    return false;
}

/* multiply(negate(x), negate(y)) -> multiply(x, y); divide alike */
static bool both_negated(rewriter *rw, tn_op *op)
{
    const tn_value *x = tn_operand(op, 0), *y = tn_operand(op, 1);
    if (!tn_is_op(x, TN_OP_negate) || !tn_is_op(y, TN_OP_negate) ||
        !of_class(op, op->code == TN_OP_multiply ? I | U | F : F))
        return false;
    return rw_replace(rw, op, tn_binary(&rw->b, op->code, tn_operand(x->def, 0), tn_operand(y->def, 0)));
}

/* multiply(x, -1) -> negate(x) */
static bool times_minus_one(rewriter *rw, tn_op *op)
{
    for (int i = 1; i >= 0; i--)
        if (splat_is(tn_operand(op, i), MINUS_ONE))
            return rw_replace(rw, op, tn_unary(&rw->b, TN_OP_negate, tn_operand(op, 1 - i)));
    return false;
}

/* subtract(0, x) -> negate(x) on integers; floats need -0: 0 - 0 is 0 */
static bool minus_from_zero(rewriter *rw, tn_op *op)
{
    if (!splat_is(tn_operand(op, 0), of_class(op, F) ? MINUS_ZERO : ZERO))
        return false;
    return rw_replace(rw, op, tn_unary(&rw->b, TN_OP_negate, tn_operand(op, 1)));
}

/* ---- division and powers --------------------------------------------------------------------------------------- */

/* divide(x, c) -> multiply(x, 1/c) where c is a power of two whose reciprocal the type holds: both round the same real
 * number. */
static bool divide_by_power_of_two(rewriter *rw, tn_op *op)
{
    const tn_value *y = tn_operand(op, 1);
    tn_number c;
    int exponent;
    if (!of_class(op, F) || !value_splat(y, &c) || !isfinite(c.f) || fabs(frexp(c.f, &exponent)) != 0.5)
        return false;
    tn_number reciprocal = tn_number_from_double(y->type.dtype, 1 / c.f);
    if (reciprocal.f != 1 / c.f || reciprocal.f == 0 || !isfinite(reciprocal.f))
        return false;
    return rw_replace(rw, op,
                      tn_binary(&rw->b, TN_OP_multiply, tn_operand(op, 0), build_splat(&rw->b, &y->type, reciprocal)));
}

/* power(x, 0.5) -> select(x == -inf, inf, sqrt(x + 0)): x + 0 since power(-0, 0.5) is 0. */
static tn_value *half_power(rewriter *rw, tn_value *x)
{
    tn_builder *b = &rw->b;
    tn_dtype dtype = x->type.dtype;
    tn_value *minus = build_splat(b, &x->type, tn_number_from_double(dtype, -INFINITY));
    tn_value *plus = build_splat(b, &x->type, tn_number_from_double(dtype, INFINITY));
    tn_value *zero = build_splat(b, &x->type, tn_number_from_double(dtype, 0));
    return tn_select(b, tn_compare(b, "EQ", x, minus), plus, tn_unary(b, TN_OP_sqrt, tn_binary(b, TN_OP_add, x, zero)));
}

/* power by 2, -1, 0.5 and 0 in floats of at most 32 bits. Exact there: x * x fits a double, and 1 / x and the root of x
 * are never so near the middle between two floats that a double's rounding error matters. In f64 the library's power
 * may round another way. */
static bool power_by_constant(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    tn_dtype dtype = x->type.dtype;
    tn_number c;
    if (!of_class(op, F) || tn_dtype_bits(dtype) < 16 || !value_splat(tn_operand(op, 1), &c))
        return false;
    if (c.f == 0)
        return rw_replace(rw, op, build_splat(&rw->b, &op->result[0].type, tn_number_from_double(dtype, 1)));
    if (tn_dtype_bits(dtype) > 32 && rw->options->numerics != TN_NUMERICS_FAST)
        return rw_decline(rw, op, "power of f64 is not exact");
    if (c.f == 2)
        return rw_replace(rw, op, tn_binary(&rw->b, TN_OP_multiply, x, x));
    if (c.f == -1)
        return rw_replace(
            rw, op, tn_binary(&rw->b, TN_OP_divide, build_splat(&rw->b, &x->type, tn_number_from_double(dtype, 1)), x));
    return c.f == 0.5 && rw_replace(rw, op, half_power(rw, x));
}

/* ---- select, compare, clamp ------------------------------------------------------------------------------------ */

static tn_value *shaped_like(rewriter *rw, tn_value *scalar, const tn_type *type)
{
    return scalar->type.rank == 0 ? tn_broadcast_to(&rw->b, scalar, type->dim, type->rank) : scalar;
}

/* select(true, x, y) -> x; select(p, x, x) -> x */
static bool select_known(rewriter *rw, tn_op *op)
{
    tn_number pred;
    if (tn_operand(op, 1) == tn_operand(op, 2))
        return rw_replace(rw, op, tn_operand(op, 1));
    return value_splat(tn_operand(op, 0), &pred) && rw_replace(rw, op, tn_operand(op, pred.u ? 1 : 2));
}

/* select(not p, x, y) -> select(p, y, x) */
static bool select_not(rewriter *rw, tn_op *op)
{
    const tn_value *p = tn_operand(op, 0);
    return tn_is_op(p, TN_OP_not) &&
           rw_replace(rw, op, tn_select(&rw->b, tn_operand(p->def, 0), tn_operand(op, 2), tn_operand(op, 1)));
}

/* select(p, true, false) -> p; select(p, false, true) -> not p */
static bool select_truth(rewriter *rw, tn_op *op)
{
    tn_number x, y;
    if (op->result[0].type.dtype != TN_BOOL || !value_splat(tn_operand(op, 1), &x) ||
        !value_splat(tn_operand(op, 2), &y) || x.u == y.u)
        return false;
    tn_value *p = tn_operand(op, 0);
    return rw_replace(rw, op, shaped_like(rw, x.u ? p : tn_unary(&rw->b, TN_OP_not, p), &op->result[0].type));
}

/* select(p, select(p, x, y), z) -> select(p, x, z), and on the other side */
static bool select_again(rewriter *rw, tn_op *op)
{
    tn_value *p = tn_operand(op, 0), *side[2] = {tn_operand(op, 1), tn_operand(op, 2)};
    for (int i = 0; i < 2; i++)
        if (tn_is_op(side[i], TN_OP_select) && tn_operand(side[i]->def, 0) == p) {
            side[i] = tn_operand(side[i]->def, 1 + i);
            return rw_replace(rw, op, tn_select(&rw->b, p, side[0], side[1]));
        }
    return false;
}

static const char *const directions[] = {"EQ", "NE", "LT", "GE", "GT", "LE"}; /* neighbours are opposites */
static const char *const swapped_direction[] = {"EQ", "NE", "GT", "LE", "LT", "GE"};

static size_t direction_of(const tn_op *op)
{
    size_t i = 0;
    while (i + 1 < TN_COUNT(directions) && strcmp(directions[i], tn_find_attr(op, TN_A_direction)->s))
        i++;
    return i;
}

static bool total_order(const tn_op *op)
{
    return tn_attr_int(op, TN_A_total_order, 0);
}

/* compare LT c, x -> compare GT x, c: constants stand on the right. */
static bool compare_swapped(rewriter *rw, tn_op *op)
{
    tn_number c;
    if (total_order(op) || !value_splat(tn_operand(op, 0), &c) || value_splat(tn_operand(op, 1), &c))
        return false;
    return rw_replace(rw, op,
                      tn_compare(&rw->b, swapped_direction[direction_of(op)], tn_operand(op, 1), tn_operand(op, 0)));
}

/* compare NE convert(p), 0 -> p for a bool p; compare EQ p, true -> p; and their opposites */
static bool compare_truth(rewriter *rw, tn_op *op)
{
    tn_value *p = tn_operand(op, 0);
    const char *direction = tn_find_attr(op, TN_A_direction)->s;
    bool equal = !strcmp(direction, "EQ"), different = !strcmp(direction, "NE");
    if (tn_is_op(p, TN_OP_convert) && tn_operand(p->def, 0)->type.dtype == TN_BOOL)
        p = tn_operand(p->def, 0);
    bool zero = splat_is(tn_operand(op, 1), ZERO), one = splat_is(tn_operand(op, 1), ONE);
    if (p->type.dtype != TN_BOOL || (!equal && !different) || (!zero && !one) ||
        tn_is_complex(tn_operand(op, 0)->type.dtype))
        return false;
    return rw_replace(rw, op, equal == one ? p : tn_unary(&rw->b, TN_OP_not, p));
}

/* compare GE x, 0 -> true and LT -> false where x cannot be less (unsigned); the same for the largest number */
static bool compare_limit(rewriter *rw, tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    if (!of_class(op, B | I | U))
        return false;
    bool least = splat_is(tn_operand(op, 1), LOWEST), most = splat_is(tn_operand(op, 1), HIGHEST);
    if ((least && fn == TN_S_ge) || (most && fn == TN_S_le))
        return rw_replace(rw, op, truth(rw, op, true));
    return ((least && fn == TN_S_lt) || (most && fn == TN_S_gt)) && rw_replace(rw, op, truth(rw, op, false));
}

/* not(compare LT x, y) -> compare GE x, y; of floats only EQ and NE, since NaN makes both false */
static bool not_compare(rewriter *rw, tn_op *op)
{
    const tn_value *x = tn_operand(op, 0);
    if (!tn_is_op(x, TN_OP_compare) || total_order(x->def))
        return false;
    size_t i = direction_of(x->def);
    if (i > 1 && !of_class(x->def, B | I | U))
        return rw_decline(rw, op, "NaN makes a comparison and its opposite false");
    return rw_replace(rw, op, tn_compare(&rw->b, directions[i ^ 1], tn_operand(x->def, 0), tn_operand(x->def, 1)));
}

/* clamp(-inf, x, hi) -> minimum(x, hi); clamp(lo, x, inf) -> maximum(x, lo) */
static bool clamp_one_side(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 1);
    if (splat_is(tn_operand(op, 0), LOWEST))
        return rw_replace(rw, op, tn_binary(&rw->b, TN_OP_minimum, x, shaped_like(rw, tn_operand(op, 2), &x->type)));
    return splat_is(tn_operand(op, 2), HIGHEST) &&
           rw_replace(rw, op, tn_binary(&rw->b, TN_OP_maximum, x, shaped_like(rw, tn_operand(op, 0), &x->type)));
}

/* ---- conversions --------------------------------------------------------------------------------------------------
 */

/* Bits of a number that a type holds without its sign; exponents reach further than any integer type's bits but for f16
 * and f8. */
static int precision_of(tn_dtype dtype)
{
    switch (dtype) {
    case TN_F64:
        return 53;
    case TN_F32:
        return 24;
    case TN_F16:
        return 11;
    case TN_BF16:
        return 8;
    case TN_F8E4M3:
        return 4;
    case TN_F8E5M2:
        return 3;
    default:
        return tn_dtype_class(dtype) == TN_CLASS_BOOL ? 1
                                                      : tn_dtype_bits(dtype) - (tn_dtype_class(dtype) == TN_CLASS_INT);
    }
}

/* A wider float that holds all numbers of a narrower one: more precision and exponents. */
static bool float_holds(tn_dtype wide, tn_dtype narrow)
{
    switch (wide) {
    case TN_F64:
        return true;
    case TN_F32:
        return narrow != TN_F64;
    case TN_F16:
    case TN_BF16:
        return narrow == wide || tn_dtype_bits(narrow) == 8;
    default:
        return narrow == wide;
    }
}

/* Every value of `from` has its twin in `to`. */
static bool lossless(tn_dtype from, tn_dtype to)
{
    tn_class a = tn_dtype_class(from), b = tn_dtype_class(to);
    if (from == to || a == TN_CLASS_COMPLEX || b == TN_CLASS_COMPLEX)
        return from == to;
    if (a == TN_CLASS_FLOAT)
        return b == TN_CLASS_FLOAT && float_holds(to, from);
    if (b == TN_CLASS_BOOL || (a == TN_CLASS_INT && b == TN_CLASS_UINT))
        return false;
    if (b == TN_CLASS_FLOAT) /* the least integer is a power of two; f16 reaches 65504, f8 448 */
        return precision_of(from) <= precision_of(to) && tn_dtype_bits(to) > 8;
    return precision_of(from) <= precision_of(to);
}

/* convert(convert(x, A to B), B to C) -> convert(x, A to C) if B holds all of A, or if all are integers and B has at
 * least C's bits. Integers out of C's range wrap when they come as integers and stop at its ends when they come as
 * floats. */
static bool convert_chain(rewriter *rw, tn_op *op)
{
    tn_value *x = tn_operand(op, 0);
    if (tn_find_attr(op, TN_A_saturate))
        return false;
    if (x->type.dtype == op->result[0].type.dtype)
        return rw_replace(rw, op, x);
    if (!tn_is_op(x, TN_OP_convert) || tn_find_attr(x->def, TN_A_saturate))
        return false;
    tn_dtype a = tn_operand(x->def, 0)->type.dtype, b = x->type.dtype, c = op->result[0].type.dtype;
    bool wraps = tn_is_integer(a) && tn_is_integer(b) && tn_is_integer(c) && tn_dtype_bits(b) >= tn_dtype_bits(c);
    bool saturates = !tn_is_float(a) && tn_is_float(b) && tn_is_integer(c) && !lossless(a, c);
    if ((!lossless(a, b) && !wraps) || saturates)
        return rw_decline(rw, op, "the type between changes the number");
    return rw_replace(rw, op, tn_convert(&rw->b, tn_operand(x->def, 0), c));
}

/* real(complex(x, y)) -> x; imag -> y */
static bool part_of_complex(rewriter *rw, tn_op *op)
{
    const tn_value *x = tn_operand(op, 0);
    return tn_is_op(x, TN_OP_complex) && rw_replace(rw, op, tn_operand(x->def, op->code == TN_OP_imag));
}

/* ---- less work ----------------------------------------------------------------------------------------------------
 */

/* The broadcast behind an operand; NULL: another operation. */
static const tn_op *broadcast_of(const tn_value *v)
{
    return tn_is_op(v, TN_OP_broadcast_in_dim) ? v->def : NULL;
}

/* Marks the dimensions of the result along which the operand changes. */
static void mark_varying(const tn_op *spread, bool *varies)
{
    int n;
    const int64_t *map = tn_attr_ints(spread, TN_A_broadcast_dimensions, &n);
    for (int i = 0; i < n; i++)
        varies[map[i]] |= !tn_dim_is(tn_operand(spread, 0)->type.dim[i], 1);
}

/* The operand of a broadcast, broadcast only along the dimensions of `small`: place[d] is where dimension d of the
 * result stands in it, -1: nowhere. */
static tn_value *spread_less(rewriter *rw, const tn_op *spread, const tn_type *small, const int *place)
{
    int n;
    const int64_t *from = tn_attr_ints(spread, TN_A_broadcast_dimensions, &n);
    tn_value *x = tn_operand(spread, 0);
    tn_type kept = {.dtype = x->type.dtype};
    int64_t map[TN_MAX_RANK];
    for (int i = 0; i < n; i++) {
        if (place[from[i]] < 0) /* a size of 1 */
            continue;
        map[kept.rank] = place[from[i]];
        kept.dim[kept.rank++] = x->type.dim[i];
    }
    if (kept.rank < n)
        x = build_reshaped(&rw->b, x, kept.dim, kept.rank);
    if (kept.rank == small->rank && permutation_is_identity(map, kept.rank) &&
        dims_agree(rw->session, kept.dim, small->dim, kept.rank))
        return x;
    return tn_broadcast_in_dim(&rw->b, x, small->dim, small->rank, map);
}

/* add(broadcast(x), broadcast(y)) -> broadcast(add(x, y)): computed only along the dimensions in which an operand
 * changes. */
static bool compute_before_broadcast(rewriter *rw, tn_op *op)
{
    const tn_type *type = &op->result[0].type;
    tn_number c;
    bool varies[TN_MAX_RANK] = {false}, any = false, saves = false;
    if (op->noperands > 3 || type->rank == 0)
        return false;
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *v = tn_operand(op, i);
        if (value_splat(v, &c) || v->type.rank == 0)
            continue;
        if (!broadcast_of(v))
            return false;
        mark_varying(v->def, varies);
        any = true;
    }
    tn_type small = {0};
    int place[TN_MAX_RANK];
    int64_t map[TN_MAX_RANK];
    for (int d = 0; d < type->rank; d++) {
        saves |= !varies[d] && !tn_dim_is(type->dim[d], 1);
        place[d] = varies[d] ? small.rank : -1;
        if (!varies[d])
            continue;
        map[small.rank] = d;
        small.dim[small.rank++] = type->dim[d];
    }
    if (!any || !saves)
        return false;
    tn_value *operands[3];
    for (int i = 0; i < op->noperands; i++) {
        tn_value *v = tn_operand(op, i);
        small.dtype = v->type.dtype;
        if (value_splat(v, &c))
            operands[i] = build_splat(&rw->b, &small, c);
        else
            operands[i] = v->type.rank == 0 ? v : spread_less(rw, v->def, &small, place);
    }
    tn_op *computed = build_like(&rw->b, op, operands, NULL, 0);
    return computed &&
           rw_replace(rw, op, tn_broadcast_in_dim(&rw->b, &computed->result[0], type->dim, type->rank, map));
}

/* multiply(convolution(x, w), broadcast of c along the features) -> convolution(x, multiply(w, broadcast of c)) for
 * constants w and c: the product is made once, at load. Rounds differently. */
static bool scale_into_weights(rewriter *rw, tn_op *op)
{
    for (int i = 0; i < 2; i++) {
        const tn_value *y = tn_operand(op, i), *scale = tn_operand(op, 1 - i);
        const tn_op *spread = broadcast_of(scale);
        int n;
        if (!tn_is_op(y, TN_OP_convolution) || !tn_has_one_use(y) || !spread || !value_is_constant(scale) ||
            !value_is_constant(tn_operand(y->def, 1)))
            continue;
        const int64_t *dims = tn_attr_ints(spread, TN_A_broadcast_dimensions, &n);
        const char *out = tn_find_attr(y->def, TN_A_out_layout)->s, *rhs = tn_find_attr(y->def, TN_A_rhs_layout)->s;
        tn_value *w = tn_operand(y->def, 1), *c = tn_operand(spread, 0);
        if (n != 1 || out[dims[0]] != 'f' || w->type.dtype != c->type.dtype ||
            tn_attr_int(y->def, TN_A_batch_group_count, 1) != 1)
            continue;
        int64_t feature = strchr(rhs, 'o') - rhs;
        tn_value *spread_weights = tn_broadcast_in_dim(&rw->b, c, w->type.dim, w->type.rank, &feature);
        tn_value *operands[] = {tn_operand(y->def, 0), tn_binary(&rw->b, TN_OP_multiply, w, spread_weights)};
        tn_op *scaled = build_like(&rw->b, y->def, operands, NULL, 0);
        return scaled && rw_replace(rw, op, &scaled->result[0]);
    }
    return false;
}

/* multiply(add(convolution(x, w), b), s) -> add(multiply(convolution(x, w), s), b * s) for constants b and s of a feature: a bias does not keep a scale from the weights. */
static bool scale_before_bias(rewriter *rw, tn_op *op)
{
    for (int i = 0; i < 4; i++) {
        const tn_value *sum = tn_operand(op, i & 1);
        tn_value *scale = tn_operand(op, !(i & 1));
        if (!tn_is_op(sum, TN_OP_add) || !tn_has_one_use(sum) || !broadcast_of(scale) || !value_is_constant(scale))
            continue;
        tn_value *y = tn_operand(sum->def, i >> 1), *bias = tn_operand(sum->def, !(i >> 1));
        if (!tn_is_op(y, TN_OP_convolution) || !tn_has_one_use(y) || !broadcast_of(bias) || !value_is_constant(bias))
            continue;
        tn_value *scaled = tn_binary(&rw->b, TN_OP_multiply, y, scale);
        return rw_replace(rw, op, tn_binary(&rw->b, TN_OP_add, scaled, tn_binary(&rw->b, TN_OP_multiply, bias, scale)));
    }
    return false;
}

const rule opt_algebra_rules[] = {
    RULE_FOR(TN_ELEMENTWISE, neutral_element, EXACT),
    RULE_FOR(TN_ELEMENTWISE, neutral_element_fast, REASSOCIATES),
    RULE_FOR(TN_ELEMENTWISE, absorbing_element, EXACT_INT),
    RULE_FOR(TN_ELEMENTWISE, same_operands, EXACT),
    RULE_FOR(TN_ELEMENTWISE, repeated_operand, EXACT),
    RULE_FOR(TN_ELEMENTWISE, unary_chain, EXACT),
    RULE(compare, compare_same, EXACT),
    RULE(add, add_negated, EXACT),
    RULE(subtract, add_negated, EXACT),
    RULE(subtract, minus_from_zero, EXACT),
    RULE(multiply, both_negated, EXACT),
    RULE(divide, both_negated, EXACT),
    RULE(multiply, times_minus_one, EXACT),
    RULE(divide, divide_by_power_of_two, EXACT),
    RULE(power, power_by_constant, EXACT),
    RULE(select, select_known, EXACT),
    RULE(select, select_not, EXACT),
    RULE(select, select_truth, EXACT),
    RULE(select, select_again, EXACT),
    RULE(compare, compare_swapped, EXACT),
    RULE(compare, compare_truth, EXACT),
    RULE(compare, compare_limit, EXACT_INT),
    RULE(not, not_compare, EXACT),
    RULE(clamp, clamp_one_side, EXACT),
    RULE(convert, convert_chain, EXACT),
    RULE(real, part_of_complex, EXACT),
    RULE(imag, part_of_complex, EXACT),
    RULE_FOR(TN_ELEMENTWISE, compute_before_broadcast, EXACT),
    RULE(multiply, scale_into_weights, REASSOCIATES),
    RULE(multiply, scale_before_bias, REASSOCIATES),
    {.apply = NULL},
};
