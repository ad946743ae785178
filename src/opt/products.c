/* Rules on products: factors as narrow as they are stored, which is what machines multiply fastest. */
#include "opt/internal.h"

static bool is_small_integer(tn_dtype dtype) { return dtype == TN_I8 || dtype == TN_U8; }
/* What an operand is converted from; NULL: it is not. */
static tn_value *unconverted(const tn_value *v)
{
    return tn_is_op(v, TN_OP_convert) && !tn_find_attr(v->def, TN_A_saturate) ? tn_operand(v->def, 0) : NULL;
}

/* So few products of 8-bit integers that their sum is an i32. */
static bool sum_fits(const tn_op *op)
{
    enum { MOST = 1 << 15 }; /* times 255 * 255 */
    int n;
    const int64_t *contract = tn_attr_ints(op, TN_A_lhs_contract, &n);
    int64_t products = 1;
    for (int i = 0; i < n; i++) {
        int64_t size = tn_operand(op, 0)->type.dim[contract[i]]->hi;
        if (size > MOST || (products *= tn_max(size, 1)) > MOST)
            return false;
    }
    return true;
}

/* The type that a product of factors `x` and `y` is summed in, if it is what the product of both converted to `wide` is; TN_NO_DTYPE: it is another. */
static tn_dtype narrow_sum(const tn_op *op, tn_dtype x, tn_dtype y, tn_dtype wide)
{
    bool integers = is_small_integer(x) && is_small_integer(y), small = wide == TN_F16 || wide == TN_BF16;
    if (integers && (wide == TN_I32 || (wide == TN_F32 && sum_fits(op))))
        return TN_I32;
    if (x == y && ((wide == TN_F32 && (x == TN_F16 || x == TN_BF16)) || ((wide == TN_F32 || small) && tn_is_f8(x))))
        return wide;
    return TN_NO_DTYPE;
}

/* dot_general(convert(x), convert(y)) -> dot_general(x, y) with the sum's type, where products are exact in it; of 8-bit integers in f32 the sum is made in
 * i32, which is the exact one. */
static bool narrow_factors(rewriter *rw, tn_op *op)
{
    tn_value *x = unconverted(tn_operand(op, 0)), *y = unconverted(tn_operand(op, 1));
    tn_dtype wide = tn_operand(op, 0)->type.dtype, result = op->result[0].type.dtype;
    tn_dtype sum = x && y && wide == result && tn_operand(op, 1)->type.dtype == wide ? narrow_sum(op, x->type.dtype, y->type.dtype, wide) : TN_NO_DTYPE;
    if (sum == TN_NO_DTYPE)
        return false;
    tn_attr change = {.name = TN_A_dtype, .i = sum};
    tn_op *made = build_like(&rw->b, op, (tn_value *[]){x, y}, &change, 1);
    return made && rw_replace(rw, op, tn_convert(&rw->b, &made->result[0], result));
}

/* Which dimension of the product an operand's is; -1: it is contracted. */
static int dim_of_result(const tn_op *op, int side, int64_t dim)
{
    int nb, nc[2];
    const int64_t *batch[2] = {tn_attr_ints(op, TN_A_lhs_batch, &nb), tn_attr_ints(op, TN_A_rhs_batch, &nb)};
    const int64_t *contract[2] = {tn_attr_ints(op, TN_A_lhs_contract, &nc[0]), tn_attr_ints(op, TN_A_rhs_contract, &nc[1])};
    for (int i = 0; i < nb; i++)
        if (batch[side][i] == dim)
            return i;
    if (ints_contain(contract[side], nc[side], dim))
        return -1;
    int at = side ? tn_operand(op, 0)->type.rank - nc[0] : nb;
    for (int64_t d = 0; d < dim; d++)
        at += !ints_contain(batch[side], nb, d) && !ints_contain(contract[side], nc[side], d);
    return at;
}

/* The scale as it multiplies the product instead of the operand; NULL: it changes along what is contracted. */
static tn_value *scale_of_result(rewriter *rw, const tn_op *op, int side, tn_value *scale)
{
    const tn_type *type = &op->result[0].type;
    tn_number number;
    if (value_splat(scale, &number))
        return build_splat(&rw->b, type, number);
    if (!tn_is_op(scale, TN_OP_broadcast_in_dim))
        return NULL;
    int n, before = -1;
    const int64_t *dims = tn_attr_ints(scale->def, TN_A_broadcast_dimensions, &n);
    int64_t map[TN_MAX_RANK];
    for (int i = 0; i < n; i++) {
        map[i] = dim_of_result(op, side, dims[i]);
        if (map[i] <= before)
            return NULL;
        before = (int)map[i];
    }
    return tn_broadcast_in_dim(&rw->b, tn_operand(scale->def, 0), type->dim, type->rank, map);
}

/* dot_general(multiply(convert(x), scale), y) -> multiply(dot_general(convert(x), y), scale) for x of 8 bits, so that the factors can be narrow. */
static bool scale_behind_product(rewriter *rw, tn_op *op)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < 2; i++) {
            const tn_value *v = tn_operand(op, side);
            if (!tn_is_op(v, TN_OP_multiply) || v->type.dtype != op->result[0].type.dtype)
                continue;
            tn_value *x = tn_operand(v->def, i), *stored = unconverted(x);
            if (!stored || (!is_small_integer(stored->type.dtype) && !tn_is_f8(stored->type.dtype)))
                continue;
            tn_value *scale = scale_of_result(rw, op, side, tn_operand(v->def, 1 - i));
            if (!scale)
                continue;
            tn_value *operands[] = {tn_operand(op, 0), tn_operand(op, 1)};
            operands[side] = x;
            tn_op *made = build_like(&rw->b, op, operands, NULL, 0);
            return made && rw_replace(rw, op, tn_binary(&rw->b, TN_OP_multiply, &made->result[0], scale));
        }
    return false;
}

const rule opt_product_rules[] = {
    RULE(dot_general, narrow_factors, EXACT),
    RULE(dot_general, scale_behind_product, REASSOCIATES),
    {.apply = NULL},
};
