/* Expansion of what no machine has, operation by operation.
 *
 *     %y = exp %x : f32x16     =>   range reduction, polynomial, scaling (vecmath.c)
 *     %z = mul %a, %b : bf16   =>   cast to f32, mul : f32, cast to bf16
 *     %p = pow %x, 2.0 : f32   =>   mul %x, %x
 *
 * f32: the functions of vecmath.c. f16, bf16 and f8: every function is the one of f32 between casts; f32 has more than
 * twice their digits, so + - * / and sqrt are still rounded as if once. A pow with one of a few constant exponents:
 * products and roots. Quotients by one number for all lanes: a reciprocal, products and corrections; those that stand side by side, as copies of a loop's body do,
 * share the look at what the correction can't do. f32 fma on a machine that lacks it: by way of f64.
 *
 * A GPU computes sums, products, maxima and minima of f16 and bf16 in that type where lanes are even, also of f32 where that is what comes out:
 *
 *     cast (mul (cast %a : f32x2) (cast %b : f32x2)) : bf16x2   =>   mul %a, %b : bf16x2
 *
 * Casts to and from f8: float8.c. On a GPU (tn_vector_spec.approx) its own instructions come first, shorter ones where the result is rounded to a narrow float
 * at once (gpumath.c), and f64 has formulas too (doublemath.c).
 *
 * What may remain, for the emitter: casts of all other types; on f32 and f64 neg abs sign floor ceil trunc round_even
 * round_away sqrt rsqrt is_finite add sub mul div rem max min maxnum minnum fma clamp, comparisons, select; all
 * functions of integers and bool (with the meaning that scalars.def gives them at 0 and overflow); fma of f16, bf16, f8
 * (their product and sum need f64); those of pairs, above; complex functions; every other function of f64, which is the C library's; and
 * atomics of any function of two operands, for which the emitter makes a loop of compare and swap where no instruction does it.
 *
 * Needs: vectorize before it (it counts operations as they stand). Keeps: all stage rules; size linear, the factor is
 * bounded by vecmath.c's longest function. Running it twice changes nothing. */
#include "loop/expand.h"

#include <math.h>

typedef struct expander {
    tn_lfunc *func;
    const tn_vector_spec *spec;
    tn_dtype stored;      /* the widest float that the function stores to its buffers; TN_NO_DTYPE: none */
    tn_dtype *rounded_to; /* by value: the narrow float that each use casts it to; TN_F32: it is used as it is */
    bool *seen;           /* by value: somebody gets it, or what is computed of it, in f32; NULL: that does not matter */
    uint32_t known;       /* values that there were at first; rounded_to and seen have no others */
} expander;

/* ---- fused multiply-add without the instruction ---- */

static tn_lvalue *half(tn_lbuilder *b, tn_lvalue *x, int first, int n)
{
    int lanes[TN_L_MAX_LANES];
    for (int i = 0; i < n; i++)
        lanes[i] = first + i;
    return n == 1 ? tn_l_extract(b, x, tn_l_index(b, first)) : tn_l_shuffle(b, x, x, lanes, n);
}

static tn_lvalue *joined(tn_lbuilder *b, tn_lvalue *low, tn_lvalue *high)
{
    int lanes[TN_L_MAX_LANES], n = low->type.lanes + high->type.lanes;
    for (int i = 0; i < n; i++)
        lanes[i] = i;
    if (n > 2)
        return tn_l_shuffle(b, low, high, lanes, n);
    return tn_l_insert(b, tn_l_splat(b, low, 2), high, tn_l_index(b, 1));
}

static tn_lvalue *fused_by_f64(tn_lbuilder *b, int bits, tn_lvalue *const *x)
{
    int lanes = x[0]->type.lanes;
    if (lanes > 1 && lanes % 2 == 0 && lanes * 64 > bits) { /* f64 vectors would be too wide */
        tn_lvalue *part[2];
        for (int h = 0; h < 2; h++) {
            tn_lvalue *operands[3];
            for (int i = 0; i < 3; i++)
                operands[i] = half(b, x[i], h * lanes / 2, lanes / 2);
            part[h] = fused_by_f64(b, bits, operands);
        }
        return joined(b, part[0], part[1]);
    }
    tn_lvalue *product = tn_l_fn2(b, TN_S_mul, tn_l_cast(b, x[0], TN_F64), tn_l_cast(b, x[1], TN_F64));
    return tn_l_cast(b, tn_l_fn2(b, TN_S_add, product, tn_l_cast(b, x[2], TN_F64)), TN_F32);
}

tn_lvalue *tn_l_fused(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z)
{
    return spec->fma ? tn_l_fn3(b, TN_S_fma, x, y, z) : fused_by_f64(b, spec->bits, (tn_lvalue *[]){x, y, z});
}

/* ---- pow with constant exponents ---- */

static tn_lvalue *float_const(tn_lbuilder *b, tn_ltype type, double value)
{
    return tn_l_const(b, type, (tn_number){.f = value});
}

/* x^(1/2): sqrt, but for -0 (gives 0) and -inf (gives inf). */
static tn_lvalue *power_half(tn_lbuilder *b, tn_lvalue *x)
{
    tn_lvalue *root = tn_l_fn1(b, TN_S_sqrt, tn_l_fn2(b, TN_S_add, x, float_const(b, x->type, 0)));
    tn_lvalue *is_low = tn_l_fn2(b, TN_S_eq, x, float_const(b, x->type, -INFINITY));
    return tn_l_fn3(b, TN_S_select, is_low, float_const(b, x->type, INFINITY), root);
}

static tn_lvalue *constant_power(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *exponent)
{
    const tn_number *number = tn_l_number(exponent);
    double p = number ? number->f : 0;
    if (p == 1)
        return x;
    if (p == 2)
        return tn_l_fn2(b, TN_S_mul, x, x);
    if (p == -1)
        return tn_l_fn2(b, TN_S_div, float_const(b, x->type, 1), x);
    return p == 0.5 ? power_half(b, x) : NULL;
}

/* ---- one operation ---- */

static tn_lvalue *expand_f32(expander *e, tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands)
{
    tn_lvalue *v = e->spec->approx ? tn_l_gpumath(b, e->spec, fn, operands, TN_F32) : NULL;
    if (v)
        return v;
    if (tn_l_has_vecmath(fn))
        return tn_l_vecmath(b, e->spec, fn, operands);
    if ((fn == TN_S_div || fn == TN_S_div_full) && !e->spec->approx)
        return tn_l_divide_by_uniform(b, e->spec, &operands[0], 1, operands[1], fn == TN_S_div, &v) ? v : NULL;
    return fn == TN_S_fma && !e->spec->fma ? fused_by_f64(b, e->spec->bits, operands) : NULL;
}

/* ---- what becomes of a value of f32 ---- */

static void note_use(void *context, tn_lop *op)
{
    expander *e = context;
    if (tn_lop_traits(op->code) & TN_L_WRITES && op->noperands > 2 && op->operand[0]->type.buffer && op->operand[0]->type.space == TN_SPACE_GLOBAL &&
        tn_is_float(op->operand[0]->type.dtype) && tn_dtype_bits(op->operand[0]->type.dtype) > tn_dtype_bits(e->stored))
        e->stored = op->operand[0]->type.dtype;
    for (int i = 0; i < op->noperands; i++) {
        tn_dtype *seen = &e->rounded_to[op->operand[i]->id], to = op->code == TN_L_cast ? op->result->type.dtype : TN_F32;
        bool narrow = tn_is_float(to) && tn_dtype_bits(to) < 32;
        *seen = narrow && (*seen == TN_NO_DTYPE || *seen == to) ? to : TN_F32;
    }
}

typedef struct all_ops {
    tn_arena *arena;
    TN_VEC(const tn_lop *) ops;
} all_ops;

static void note_op(void *context, tn_lop *op)
{
    all_ops *all = context;
    TN_PUSH(all->arena, &all->ops, op);
}

static bool is_narrow(tn_dtype dtype) { return tn_is_float(dtype) && tn_dtype_bits(dtype) < 32; }

/* Who reads operand i gets it as it is: no cast to a narrow float lies between it and all that is made of it. */
static bool is_seen_by(const bool *seen, const tn_lop *op, int i)
{
    const tn_lvalue *buffer = op->noperands && op->operand[0]->type.buffer ? op->operand[0] : NULL;
    if (op->code == TN_L_cast && is_narrow(op->result->type.dtype))
        return false;
    if (buffer && buffer->type.space == TN_SPACE_REG && (op->code == TN_L_load || op->code == TN_L_store))
        return op->code == TN_L_load ? seen[op->result->id] : seen[buffer->id] || i > 2;
    return !((op->code == TN_L_fn || op->code == TN_L_cast) && op->result->type.dtype == TN_F32 && !op->nregions) || seen[op->result->id];
}

/* From what is read last on; values whose use is not found out about in a few rounds count as seen. */
static void find_seen(expander *e)
{
    enum { ROUNDS = 8 };
    all_ops all = {.arena = tn_l_arena(e->func)};
    bool more = true;
    tn_l_walk(e->func->body, note_op, &all);
    e->seen = TN_NEW_ARRAY(all.arena, bool, e->known);
    for (int round = 0; round < ROUNDS && more; round++) {
        more = false;
        for (size_t k = all.ops.len; k-- > 0;)
            for (int i = 0; i < all.ops.at[k]->noperands; i++) {
                bool *seen = &e->seen[all.ops.at[k]->operand[i]->id];
                if (*seen || !is_seen_by(e->seen, all.ops.at[k], i))
                    continue;
                *seen = more = true;
            }
    }
    if (more)
        e->seen = NULL;
}

/* A result that is rounded to a narrow float at once, as if it had been computed in that; its operands are any f32. */
static tn_lvalue *expand_rounded(expander *e, tn_lbuilder *b, const tn_lop *op)
{
    static const tn_scalar allowed[] = {TN_S_exp, TN_S_exp2, TN_S_logistic, TN_S_sqrt, TN_S_tanh, TN_S_div};
    tn_dtype to = e->rounded_to[op->result->id];
    if (to == TN_F32 || to == TN_NO_DTYPE)
        return NULL;
    for (size_t i = 0; i < TN_COUNT(allowed); i++)
        if (op->fn == allowed[i])
            return tn_l_gpumath(b, e->spec, op->fn == TN_S_div ? TN_S_div_full : op->fn, op->operand, op->fn == TN_S_div ? TN_F32 : to);
    return NULL;
}

/* What a GPU computes in f16 and bf16, two lanes an instruction: the result of f32, rounded. */
static bool has_pairs(const expander *e, tn_scalar fn, tn_ltype type)
{
    static const tn_scalar paired[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_max, TN_S_min};
    bool found = false;
    for (size_t i = 0; i < TN_COUNT(paired); i++)
        found |= fn == paired[i];
    return found && e->spec->approx && (type.dtype == TN_F16 || type.dtype == TN_BF16) && type.lanes % 2 == 0;
}

/* The value of which this f32 is the widened form: what a cast widened, or a number that the narrow type holds. NULL: neither. */
static tn_lvalue *before_widening(tn_lbuilder *b, tn_lvalue *wide, tn_dtype narrow)
{
    const tn_number *number = tn_l_number(wide);
    if (number && tn_number_convert(*number, TN_F32, narrow).f == number->f)
        return tn_l_const(b, tn_lvector(narrow, wide->type.lanes), *number);
    const tn_lop *op = wide->def;
    return op && op->code == TN_L_cast && op->operand[0]->type.dtype == narrow ? op->operand[0] : NULL;
}

/* cast (f (cast a : f32) (cast b : f32)) : bf16 is f a b : bf16. */
static tn_lvalue *expand_pairs(expander *e, tn_lbuilder *b, const tn_lop *cast)
{
    const tn_lop *op = cast->operand[0]->def;
    tn_dtype to = cast->result->type.dtype;
    if (!op || op->code != TN_L_fn || op->result->id >= e->known || op->result->type.dtype != TN_F32 || !has_pairs(e, op->fn, cast->result->type) ||
        e->rounded_to[op->result->id] != to)
        return NULL;
    tn_lvalue *x = before_widening(b, op->operand[0], to), *y = x ? before_widening(b, op->operand[1], to) : NULL;
    return y ? tn_l_fn2(b, op->fn, x, y) : NULL;
}

/* In a function whose results are all narrow floats, or where it comes to no other result but by those: their rounding hides what an exponential or a quotient on the
 * way is off by. */
static tn_lvalue *expand_hidden(expander *e, tn_lbuilder *b, const tn_lop *op)
{
    bool hides = e->stored != TN_NO_DTYPE && tn_dtype_bits(e->stored) <= 16;
    bool flushes = op->fn == TN_S_exp2 && op->contract; /* three instructions less: a comparison and two products under it */
    if (!hides && !flushes && (!e->seen || op->result->id >= e->known || e->seen[op->result->id]))
        return NULL;
    if (op->fn == TN_S_div)
        return tn_l_gpumath(b, e->spec, TN_S_div_full, op->operand, TN_F32);
    bool hidden = op->fn == TN_S_exp || op->fn == TN_S_exp2 || op->fn == TN_S_logistic;
    return hidden ? tn_l_gpumath(b, e->spec, op->fn, op->operand, TN_F16) : NULL;
}

static tn_lvalue *expand_narrow(expander *e, tn_lbuilder *b, const tn_lop *op)
{
    tn_lvalue *wide[3];
    if (op->fn == TN_S_fma || has_pairs(e, op->fn, op->result->type))
        return NULL;
    for (int i = 0; i < op->noperands; i++)
        wide[i] = tn_l_float_cast(b, e->spec, op->operand[i], TN_F32);
    tn_lvalue *v = e->spec->approx ? tn_l_gpumath(b, e->spec, op->fn, wide, op->result->type.dtype) : NULL;
    v = v ? v : expand_f32(e, b, op->fn, wide);
    v = v ? v : tn_l_fn(b, op->fn == TN_S_div_full ? TN_S_div : op->fn, wide, op->noperands);
    return op->result->type.dtype == TN_BOOL ? v : tn_l_float_cast(b, e->spec, v, op->result->type.dtype);
}

/* What replaces the operation, built before it; NULL: it stays. */
static tn_lvalue *expand_op(expander *e, const tn_lop *op, tn_lbuilder *b)
{
    if (op->code == TN_L_cast && (tn_is_f8(op->operand[0]->type.dtype) || tn_is_f8(op->result->type.dtype)))
        return e->spec->f8 ? NULL : tn_l_float_cast(b, e->spec, op->operand[0], op->result->type.dtype);
    if (op->code == TN_L_cast)
        return expand_pairs(e, b, op);
    if (op->code != TN_L_fn || op->fn == TN_S_select)
        return NULL;
    tn_dtype dtype = op->operand[0]->type.dtype;
    if (!tn_is_float(dtype))
        return NULL;
    tn_lvalue *power = op->fn == TN_S_pow ? constant_power(b, op->operand[0], op->operand[1]) : NULL;
    if (power)
        return power;
    tn_lvalue *v = dtype == TN_F32 && e->spec->approx ? expand_rounded(e, b, op) : NULL;
    if (!v && dtype == TN_F32 && e->spec->approx)
        v = expand_hidden(e, b, op);
    if (!v && dtype == TN_F32)
        v = expand_f32(e, b, op->fn, op->operand);
    if (dtype == TN_F64 && e->spec->approx)
        v = tn_l_doublemath(b, e->spec, op->fn, op->operand);
    if (v)
        return v;
    if (op->fn == TN_S_div_full && dtype != TN_F16 && dtype != TN_BF16 && !tn_is_f8(dtype))
        return tn_l_fn2(b, TN_S_div, op->operand[0], op->operand[1]);
    return dtype == TN_F64 || dtype == TN_F32 ? NULL : expand_narrow(e, b, op);
}

/* Divisions of f32 by one value, this one and those that stand behind it and don't need it: `next` is what stands behind all of them. False: nothing has changed. */
static bool expand_quotients(expander *e, tn_lop *op, tn_lop **next)
{
    tn_lop *all[TN_L_QUOTIENTS] = {op};
    tn_lvalue *x[TN_L_QUOTIENTS] = {op->noperands ? op->operand[0] : NULL}, *q[TN_L_QUOTIENTS];
    int n = 1;
    if (op->code != TN_L_fn || (op->fn != TN_S_div && op->fn != TN_S_div_full) || op->result->type.dtype != TN_F32 || e->spec->approx)
        return false;
    for (tn_lop *other = op->next; other && n < TN_L_QUOTIENTS && other->code == TN_L_fn && other->fn == op->fn; other = other->next) {
        tn_l_resolve_operands(other);
        bool needs = other->operand[1] != op->operand[1];
        for (int i = 0; i < n; i++)
            needs |= other->operand[0] == all[i]->result;
        if (needs)
            break;
        all[n] = other;
        x[n++] = other->operand[0];
    }
    tn_lbuilder b = tn_lbuilder_before(e->func, op);
    if (!tn_l_divide_by_uniform(&b, e->spec, x, n, op->operand[1], op->fn == TN_S_div, q))
        return false;
    *next = all[n - 1]->next;
    for (int i = 0; i < n; i++) {
        all[i]->result->scratch = q[i];
        tn_lop_erase(all[i]);
    }
    return true;
}

static void expand_block(expander *e, tn_lblock *block)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        tn_l_resolve_operands(op);
        if (expand_quotients(e, op, &next))
            continue;
        tn_lbuilder b = tn_lbuilder_before(e->func, op);
        tn_lvalue *v = op->nregions ? NULL : expand_op(e, op, &b);
        if (v) {
            op->result->scratch = v;
            tn_lop_erase(op);
            continue;
        }
        for (int i = 0; i < op->nregions; i++)
            expand_block(e, op->region[i]);
    }
}

tn_status tn_loop_expand(tn_lfunc *func, const tn_pass_options *options)
{
    expander e = {func, &options->vector, TN_NO_DTYPE, TN_NEW_ARRAY(tn_l_arena(func), tn_dtype, func->next_id), NULL, func->next_id};
    for (uint32_t i = 0; i < func->next_id; i++)
        e.rounded_to[i] = TN_NO_DTYPE;
    tn_l_walk(func->body, note_use, &e);
    if (e.spec->approx && tn_dtype_bits(e.stored) > 16)
        find_seen(&e);
    tn_l_clear_scratch(func);
    expand_block(&e, func->body);
    return TN_OK;
}
