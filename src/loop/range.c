/* Interval analysis of integer scalars, on demand: what simplify.c and vectorize.c need to know of indices; and what divides them.
 * Signed arithmetic that might leave its type gives the whole type, so wrapped values are covered. */
#include "loop/internal.h"

enum { MAX_DEPTH = 48 };
static const int64_t max_size = INT64_C(1) << 47;

static tn_lrange whole_type(tn_dtype dtype)
{
    int bits = tn_dtype_bits(dtype);
    switch (tn_dtype_class(dtype)) {
    case TN_CLASS_BOOL:
        return (tn_lrange){0, 1};
    case TN_CLASS_UINT: /* u64 is seen as its bits: unknown */
        return bits < 64 ? (tn_lrange){0, (INT64_C(1) << bits) - 1} : (tn_lrange){INT64_MIN, INT64_MAX};
    default:
        return bits < 64 ? (tn_lrange){-(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1}
                         : (tn_lrange){INT64_MIN, INT64_MAX};
    }
}

static tn_lrange range_at(tn_map *memo, const tn_lvalue *v, int depth);

static tn_lrange hull(tn_lrange a, tn_lrange b)
{
    return (tn_lrange){tn_min(a.lo, b.lo), tn_max(a.hi, b.hi)};
}

static tn_lrange product(tn_lrange a, tn_lrange b, tn_lrange whole)
{
    tn_lrange r = {INT64_MAX, INT64_MIN};
    const int64_t as[] = {a.lo, a.hi}, bs[] = {b.lo, b.hi};
    for (int i = 0; i < 4; i++) {
        int64_t p;
        if (!tn_mul(as[i / 2], bs[i % 2], &p))
            return whole;
        r = hull(r, (tn_lrange){p, p});
    }
    return r;
}

/* Division and remainder are told only for x >= 0 and y > 0. */
static tn_lrange quotient(tn_lrange a, tn_lrange b, tn_lrange whole)
{
    return a.lo >= 0 && b.lo > 0 ? (tn_lrange){a.lo / b.hi, a.hi / b.lo} : whole;
}

static tn_lrange remainder_range(tn_lrange a, tn_lrange b, tn_lrange whole)
{
    return a.lo >= 0 && b.lo > 0 ? (tn_lrange){0, tn_min(a.hi, b.hi - 1)} : whole;
}

/* Bits that two numbers >= 0 have, one or both: below the next power of two. */
static tn_lrange bits_of_both(tn_lrange a, tn_lrange b, tn_lrange whole)
{
    int64_t most = tn_max(a.hi, b.hi);
    if (a.lo < 0 || b.lo < 0)
        return whole;
    return (tn_lrange){0, most ? (int64_t)(UINT64_MAX >> __builtin_clzll((uint64_t)most)) : 0};
}

static tn_lrange binary(tn_scalar fn, tn_lrange a, tn_lrange b, tn_lrange whole)
{
    tn_lrange r = whole;
    switch (fn) {
    case TN_S_add:
        return tn_add(a.lo, b.lo, &r.lo) && tn_add(a.hi, b.hi, &r.hi) ? r : whole;
    case TN_S_sub:
        return tn_sub(a.lo, b.hi, &r.lo) && tn_sub(a.hi, b.lo, &r.hi) ? r : whole;
    case TN_S_mul:
        return product(a, b, whole);
    case TN_S_div:
        return quotient(a, b, whole);
    case TN_S_rem:
        return remainder_range(a, b, whole);
    case TN_S_max:
        return (tn_lrange){tn_max(a.lo, b.lo), tn_max(a.hi, b.hi)};
    case TN_S_min:
        return (tn_lrange){tn_min(a.lo, b.lo), tn_min(a.hi, b.hi)};
    case TN_S_and:
        return a.lo >= 0 || b.lo >= 0 ? (tn_lrange){0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : tn_min(a.hi, b.hi)} : whole;
    case TN_S_shl:
        return b.lo == b.hi && b.lo >= 0 && b.lo < 62 ? product(a, (tn_lrange){INT64_C(1) << b.lo, INT64_C(1) << b.lo}, whole) : whole;
    case TN_S_or:
    case TN_S_xor:
        return bits_of_both(a, b, whole);
    case TN_S_shr_logical:
    case TN_S_shr_arith:
        return a.lo >= 0 && b.lo == b.hi && b.lo >= 0 && b.lo < 63 ? (tn_lrange){a.lo >> b.lo, a.hi >> b.lo} : whole;
    default:
        return whole;
    }
}

static tn_lrange of_fn(tn_map *memo, const tn_lop *op, tn_lrange whole, int depth)
{
    int n = op->noperands;
    if (op->fn == TN_S_select)
        return hull(range_at(memo, op->operand[1], depth), range_at(memo, op->operand[2], depth));
    if (n == 1 && op->fn == TN_S_neg)
        return binary(TN_S_sub, (tn_lrange){0, 0}, range_at(memo, op->operand[0], depth), whole);
    if (n != 2 || op->operand[0]->type.dtype != op->result->type.dtype)
        return whole;
    return binary(op->fn, range_at(memo, op->operand[0], depth), range_at(memo, op->operand[1], depth), whole);
}

static tn_lrange of_index(tn_map *memo, const tn_lop *loop, int depth)
{
    tn_lrange lo = range_at(memo, loop->operand[0], depth), hi = range_at(memo, loop->operand[1], depth);
    return (tn_lrange){lo.lo, tn_max(lo.lo, hi.hi > INT64_MIN ? hi.hi - 1 : hi.hi)};
}

static tn_lrange of_parameter(const tn_lvalue *v)
{
    return !v->holds ? (tn_lrange){0, max_size} : whole_type(tn_is_integer(v->holds) ? v->holds : TN_I64);
}

static tn_lrange of_definition(tn_map *memo, const tn_lvalue *v, tn_lrange whole, int depth)
{
    const tn_lop *op = v->def;
    if (!op)
        return v->block->parent ? of_index(memo, v->block->parent, depth) : of_parameter(v);
    switch (op->code) {
    case TN_L_const:
        return (tn_lrange){op->number.i, op->number.i};
    case TN_L_fn:
        return of_fn(memo, op, whole, depth);
    case TN_L_cast:
        return tn_is_integer(op->operand[0]->type.dtype) || op->operand[0]->type.dtype == TN_BOOL
                   ? range_at(memo, op->operand[0], depth)
                   : whole;
    case TN_L_splat:
        return range_at(memo, op->operand[0], depth);
    case TN_L_thread:
        return (tn_lrange){0, TN_MOST_THREADS - 1};
    case TN_L_cta:
        return (tn_lrange){0, TN_MOST_CLUSTER - 1};
    case TN_L_address:
        return (tn_lrange){0, INT64_MAX - 1};
    case TN_L_iota:
        return (tn_lrange){0, op->result->type.lanes - 1};
    default:
        return whole;
    }
}

static tn_lrange range_at(tn_map *memo, const tn_lvalue *v, int depth)
{
    tn_dtype dtype = v->type.dtype;
    tn_lrange whole = whole_type(dtype);
    if (!(tn_is_integer(dtype) || dtype == TN_BOOL) ||
        (tn_dtype_class(dtype) == TN_CLASS_UINT && tn_dtype_bits(dtype) == 64))
        return (tn_lrange){INT64_MIN, INT64_MAX};
    tn_lrange *known = tn_map_get(memo, TN_KEY(v));
    if (known)
        return *known;
    tn_lrange r = depth < MAX_DEPTH ? of_definition(memo, v, whole, depth + 1) : whole;
    if (r.lo < whole.lo || r.hi > whole.hi || r.lo > r.hi)
        r = whole;
    if (depth == 0 || r.lo != whole.lo || r.hi != whole.hi)
        *tn_map_at(memo, TN_KEY(v)) = tn_memdup(memo->arena, &r, sizeof r);
    return r;
}

tn_lrange tn_l_range(tn_map *memo, const tn_lvalue *v)
{
    return range_at(memo, v, 0);
}

/* ---- multiples ---- */

enum { MOST_MULTIPLE = 64, MULTIPLE_DEPTH = 10 };

static int64_t multiple_at(const tn_lvalue *v, const tn_lvalue *first, int depth);

static int64_t multiple_of_number(int64_t x)
{
    return x % MOST_MULTIPLE ? x & -x : MOST_MULTIPLE;
}

static int64_t multiple_of_argument(const tn_lvalue *v, const tn_lvalue *first, int depth)
{
    const tn_lop *loop = v->block ? v->block->parent : NULL;
    if (!loop || loop->code != TN_L_for)
        return v->multiple > 1 ? tn_min(v->multiple & -v->multiple, MOST_MULTIPLE) : 1;
    int64_t lo = multiple_at(loop->operand[0], first, depth);
    return v == first ? lo : tn_min(lo, multiple_at(loop->operand[2], first, depth));
}

static int64_t multiple_of_fn(const tn_lop *op, const tn_lvalue *first, int depth)
{
    int64_t x = multiple_at(op->operand[0], first, depth), y = op->noperands > 1 ? multiple_at(op->operand[1], first, depth) : 1, by;
    bool constant = op->noperands == 2 && tn_l_is_const(op->operand[1], &by) && by > 0;
    switch (op->fn) {
    case TN_S_mul:
        return tn_min(x * y, MOST_MULTIPLE);
    case TN_S_shl:
        return constant && by < 6 ? tn_min(x << by, MOST_MULTIPLE) : constant && by < tn_dtype_bits(op->result->type.dtype) ? MOST_MULTIPLE : x;
    case TN_S_and:
        return tn_max(x, y);
    case TN_S_add:
    case TN_S_sub:
    case TN_S_rem:
    case TN_S_min:
    case TN_S_max:
    case TN_S_or:
    case TN_S_xor:
        return tn_min(x, y);
    case TN_S_neg:
        return x;
    case TN_S_select:
        return tn_min(y, multiple_at(op->operand[2], first, depth));
    case TN_S_shr_logical:
    case TN_S_shr_arith:
        return constant && by < 6 ? tn_max(x >> by, 1) : 1;
    case TN_S_div:
        return constant && (by & (by - 1)) == 0 ? tn_max(x / by, 1) : 1;
    default:
        return 1;
    }
}

static int64_t multiple_at(const tn_lvalue *v, const tn_lvalue *first, int depth)
{
    const tn_lop *op = v->def;
    int64_t constant;
    if (tn_l_is_const(v, &constant))
        return multiple_of_number(constant);
    if (depth == MULTIPLE_DEPTH || v->type.buffer || v->type.lanes != 1 || !tn_is_integer(v->type.dtype))
        return 1;
    if (!op)
        return multiple_of_argument(v, first, depth + 1);
    if (op->code == TN_L_cast && tn_is_integer(op->operand[0]->type.dtype)) /* what is cut off above keeps the zeros below */
        return multiple_at(op->operand[0], first, depth + 1);
    return op->code == TN_L_fn ? multiple_of_fn(op, first, depth + 1) : 1;
}

int64_t tn_l_multiple(const tn_lvalue *value, const tn_lvalue *first)
{
    return multiple_at(value, first, 0);
}
