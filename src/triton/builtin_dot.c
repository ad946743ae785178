/* Products of tiles. The accumulator is added after the sum: `acc = tl.dot(a, b, acc)` and `acc += tl.dot(a, b)` are one. Floats are summed in fp32
 * (fp64 for fp64). input_precision is at least met: the three that split into bf16 become the next better one that the Tile IR has. */
#include "triton/builtin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool done(tn_py *out, tn_tvalue *v)
{
    *out = tn_py_tensor(v);
    return true;
}

/* ---- dot ------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tn_precision precision;
} precisions[] = {{"tf32", TN_TF32}, {"tf32x3", TN_TF32X3}, {"ieee", TN_IEEE}, {"bf16x3", TN_TF32X3}, {"bf16x6", TN_IEEE}};

static bool find_precision(const char *name, tn_precision *out)
{
    for (size_t i = 0; i < TN_COUNT(precisions); i++)
        if (strcasecmp(name, precisions[i].name) == 0) {
            *out = precisions[i].precision;
            return true;
        }
    return false;
}

/* Of factors of fp32: what is asked for, else what the environment says, else tf32, unless that is not allowed. */
static bool precision_options(tn_tcompiler *c, const tn_call *call, tn_precision *out)
{
    const tn_py *precision = &call->argument[3], *allow = &call->argument[4];
    const char *name, *otherwise = getenv("TRITON_F32_DEFAULT");
    bool allowed = true;
    if (!tn_t_string(c, call->node, precision, "input_precision", &name))
        return false;
    if (name && !find_precision(name, out))
        return tn_t_error(c, call->node, "input_precision is one of 'tf32', 'tf32x3', 'ieee', 'bf16x3', 'bf16x6', found '%s'", name);
    if (name && !tn_t_is_none(allow))
        return tn_t_error(c, call->node, "only one of input_precision and allow_tf32 can be given");
    if (!tn_t_is_none(allow) && !tn_t_constant_bool(c, call->node, allow, "allow_tf32", &allowed))
        return false;
    if (!name && (!otherwise || !*otherwise))
        *out = allowed ? TN_TF32 : TN_IEEE;
    else if (!name && !find_precision(otherwise, out))
        return tn_t_error(c, call->node, "TRITON_F32_DEFAULT is one of 'tf32', 'tf32x3', 'ieee', 'bf16x3', 'bf16x6', found '%s'", otherwise);
    return true;
}

/* Of how many products of fp8 the machine may make sums by itself; 0: of any number, what is said by saying nothing. None: of as few as there are in an instruction. */
static bool imprecise_option(tn_tcompiler *c, const tn_call *call, int64_t *out)
{
    const tn_py *imprecise = &call->argument[5];
    if (tn_t_is_none(imprecise))
        return true;
    if (!tn_t_constant_int(c, call->node, imprecise, "max_num_imprecise_acc", out))
        return false;
    *out = tn_max(*out, 1);
    return true;
}

static bool out_type(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype *out)
{
    tn_ttype type = tn_tscalar(TN_F32);
    if (!tn_t_is_none(v) && !tn_t_dtype_argument(c, at, v, "out_dtype", &type))
        return false;
    *out = type.dtype;
    return !type.pointer || tn_t_error(c, at, "out_dtype is a type of numbers");
}

/* [B x] M x K and [B x] K x N. */
static bool fitting_operands(tn_tcompiler *c, const tn_ast *at, const char *what, const tn_ttype *x, const tn_ttype *y)
{
    int r = x->rank;
    if ((r != 2 && r != 3) || y->rank != r)
        return tn_t_error(c, at, "%s takes two tensors of two axes, or of three with a batch first, found %s and %s", what, tn_t_shape_text(c, x),
                          tn_t_shape_text(c, y));
    bool fits = x->extent[r - 1].size == y->extent[r - 2].size && (r == 2 || x->extent[0].size == y->extent[0].size);
    return fits || tn_t_error(c, at, "%s of %s and %s: the last axis of the first and the last but one of the second must be equal%s", what, tn_t_shape_text(c, x),
                              tn_t_shape_text(c, y), r == 3 ? ", and the batches too" : "");
}

static bool operand_types(tn_tcompiler *c, const tn_ast *at, const tn_ttype *x, const tn_ttype *y)
{
    static const tn_dtype allowed[] = {TN_I8, TN_F16, TN_BF16, TN_F32, TN_F64, TN_F8E4M3, TN_F8E5M2};
    bool both_f8 = !x->pointer && !y->pointer && tn_is_f8(x->dtype) && tn_is_f8(y->dtype), known = false;
    for (size_t i = 0; i < TN_COUNT(allowed); i++)
        known |= allowed[i] == x->dtype && !x->pointer;
    if (!known)
        return tn_t_error(c, at, "dot takes int8, fp8, fp16, bf16, fp32 and fp64, found %s", tn_t_type_name(c, x));
    return both_f8 || (x->dtype == y->dtype && !y->pointer) ||
           tn_t_error(c, at, "dot takes two tensors of one type, found %s and %s; cast one of them", tn_t_type_name(c, x), tn_t_type_name(c, y));
}

/* What Triton's result is, and the type that the sum is made in. */
static bool result_types(tn_tcompiler *c, const tn_ast *at, tn_dtype operand, tn_dtype asked, tn_dtype *result, tn_dtype *sum)
{
    if (operand == TN_I8) {
        *result = *sum = TN_I32;
        return true;
    }
    if (asked == TN_BF16)
        return tn_t_error(c, at, "out_dtype of dot cannot be bf16: sum in fp32, then cast by .to(tl.bfloat16)");
    *sum = operand == TN_F64 ? TN_F64 : TN_F32;
    bool chosen = operand == TN_F16 || tn_is_f8(operand);
    if (chosen && asked != TN_F32 && asked != TN_F16)
        return tn_t_error(c, at, "out_dtype of dot is fp32 or fp16, found %s", tn_t_dtype_name(asked));
    *result = chosen ? asked : *sum;
    return true;
}

/* acc + product, in the product's type, then in the result's. */
static bool accumulate(tn_tcompiler *c, const tn_ast *at, const tn_py *acc, tn_tvalue *product, tn_dtype result, tn_py *out)
{
    tn_ttype wanted = product->type;
    tn_tvalue *v;
    wanted.dtype = result;
    if (!tn_t_is_none(acc)) {
        if (!tn_t_tensor_argument(c, at, acc, "the accumulator", &v))
            return false;
        if (!tn_t_same_shape(&v->type, &wanted) || v->type.dtype != result || v->type.pointer)
            return tn_t_error(c, at, "the accumulator must be %s of shape %s, found %s", tn_t_dtype_name(result), tn_t_shape_text(c, &wanted), tn_t_describe(c, acc));
        product = tn_t_map2(&c->b, TN_S_add, tn_t_cast(&c->b, v, product->type.dtype), product);
    }
    return done(out, tn_t_cast(&c->b, product, result));
}

bool tn_bi_dot(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_ast *at = call->node;
    tn_tvalue *x, *y;
    tn_dtype asked, result = TN_F32, sum = TN_F32;
    tn_precision precision = TN_IEEE;
    int64_t imprecise = 0;
    if (!tn_t_tensor_argument(c, at, &call->argument[0], "the first operand of dot", &x) ||
        !tn_t_tensor_argument(c, at, &call->argument[1], "the second operand of dot", &y) || !fitting_operands(c, at, "dot", &x->type, &y->type) ||
        !operand_types(c, at, &x->type, &y->type) || !precision_options(c, call, &precision) || !imprecise_option(c, call, &imprecise) || !out_type(c, at, &call->argument[6], &asked) ||
        !result_types(c, at, x->type.dtype, asked, &result, &sum))
        return false;
    if (x->type.dtype != TN_F32)
        precision = TN_IEEE;
    tn_tvalue *dot = tn_t_dot(&c->b, x, y, sum, precision);
    dot->def->imprecise = tn_is_f8(x->type.dtype) ? imprecise : 0;
    return accumulate(c, at, &call->argument[2], dot, result, out);
}

/* ---- dot_scaled ------------------------------------------------------------------------------------------------------ */

/* Microscaling: groups of 32 numbers along k share a scale 2^(x - 127); those of NVIDIA's fp4 are of 16 and fp8e4nv. Taken apart here into what any target
 * has: numbers and scales as fp32, where all of them and their products are exact. */
typedef struct format {
    const char *name;
    tn_dtype type, bits; /* type NO_DTYPE: two e2m1 in a byte, the first in its lower half */
} format;
static const format formats[] = {
    {"e2m1", TN_NO_DTYPE, TN_U8}, {"e4m3", TN_F8E4M3, TN_U8}, {"e5m2", TN_F8E5M2, TN_U8}, {"bf16", TN_BF16, TN_U16}, {"fp16", TN_F16, TN_U16},
};

static bool format_of(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, const format **out)
{
    const char *name;
    if (!tn_t_string(c, at, v, what, &name))
        return false;
    for (size_t i = 0; i < TN_COUNT(formats); i++)
        if (name && strcmp(formats[i].name, name) == 0) {
            *out = &formats[i];
            return true;
        }
    return tn_t_error(c, at, "%s is one of 'e2m1', 'e4m3', 'e5m2', 'bf16', 'fp16', found %s", what, tn_t_describe(c, v));
}

static tn_tvalue *u32(tn_tcompiler *c, int64_t value) { return tn_t_scalar_int(c, TN_U32, value); }

/* A sign, two bits of exponent, one of mantissa; 0 and 0.5 have the exponent 0. */
static tn_tvalue *decode_e2m1(tn_tcompiler *c, tn_tvalue *code)
{
    tn_tbuilder *b = &c->b;
    tn_tvalue *size = tn_t_map2(b, TN_S_and, code, u32(c, 7));
    tn_tvalue *normal = tn_t_map2(b, TN_S_shl, tn_t_map2(b, TN_S_add, size, u32(c, 252)), u32(c, 22));
    tn_tvalue *small = tn_t_map2(b, TN_S_mul, tn_t_cast(b, size, TN_F32), tn_t_scalar_const(c, TN_F32, tn_number_from_double(TN_F32, 0.5)));
    tn_tvalue *value = tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_lt, size, u32(c, 2)), small, tn_t_bitcast(b, normal, TN_F32));
    return tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_ge, code, u32(c, 8)), tn_t_map1(b, TN_S_neg, value), value);
}

/* Two along `axis` from each byte. */
static tn_tvalue *unpack(tn_tcompiler *c, tn_tvalue *x, int axis)
{
    tn_tbuilder *b = &c->b;
    tn_tvalue *byte = tn_t_cast(b, x, TN_U32);
    tn_tvalue *low = decode_e2m1(c, tn_t_map2(b, TN_S_and, byte, u32(c, 15))), *high = decode_e2m1(c, tn_t_map2(b, TN_S_shr_logical, byte, u32(c, 4)));
    tn_tvalue *both = tn_t_join(b, low, high);
    int axes[TN_TILE_RANK], n = 0;
    for (int i = 0; i < x->type.rank; i++) {
        axes[n++] = i;
        if (i == axis)
            axes[n++] = x->type.rank;
    }
    if (axis != x->type.rank - 1)
        both = tn_t_permute(b, both, axes);
    tn_ttype type = low->type;
    type.extent[axis].size *= 2;
    return tn_t_reshape(b, both, type);
}

/* As fp32; packed: the axis along which bytes hold two. */
static bool numbers_of(tn_tcompiler *c, const tn_ast *at, const char *what, tn_tvalue *x, const format *f, int packed, tn_tvalue **out)
{
    if (x->type.pointer || (x->type.dtype != f->type && x->type.dtype != f->bits))
        return tn_t_error(c, at, "%s in format %s must be of %s, found %s", what, f->name, f->type == TN_NO_DTYPE ? "uint8" : tn_t_dtype_name(f->type),
                          tn_t_type_name(c, &x->type));
    if (f->type == TN_NO_DTYPE) {
        *out = unpack(c, x, packed);
        return true;
    }
    *out = tn_t_cast(&c->b, x->type.dtype == f->type ? x : tn_t_bitcast(&c->b, x, f->type), TN_F32);
    return true;
}

/* 2^(x - 127); 255 is NaN, and 0 is below the normal numbers. */
static tn_tvalue *decode_e8m0(tn_tcompiler *c, tn_tvalue *x)
{
    tn_tbuilder *b = &c->b;
    tn_tvalue *code = tn_t_cast(b, x, TN_U32);
    tn_tvalue *bits = tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_eq, code, u32(c, 0)), u32(c, 1 << 22), tn_t_map2(b, TN_S_shl, code, u32(c, 23)));
    tn_tvalue *nan = tn_t_scalar_const(c, TN_F32, (tn_number){.f = NAN});
    return tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_eq, code, u32(c, 255)), nan, tn_t_bitcast(b, bits, TN_F32));
}

/* Multiplies x ([B x] rows x K) by its scales ([B x] rows x K / group). */
static bool scale(tn_tcompiler *c, const tn_ast *at, const char *what, const tn_py *v, tn_tvalue **x)
{
    tn_tvalue *s;
    if (tn_t_is_none(v))
        return true;
    if (!tn_t_tensor_argument(c, at, v, what, &s))
        return false;
    bool f8 = s->type.dtype == TN_F8E4M3;
    int64_t group = f8 ? 16 : 32;
    int r = (*x)->type.rank;
    tn_ttype wanted = (*x)->type, spread = (*x)->type;
    wanted.extent[r - 1].size /= group;
    if (s->type.pointer || (!f8 && s->type.dtype != TN_U8) || !wanted.extent[r - 1].size || !tn_t_same_shape(&s->type, &wanted))
        return tn_t_error(c, at, "%s must be uint8 with a scale for each 32 numbers, or fp8e4nv with one for each 16, of shape %s here; found %s", what,
                          tn_t_shape_text(c, &wanted), tn_t_describe(c, v));
    s = f8 ? tn_t_cast(&c->b, s, TN_F32) : decode_e8m0(c, s);
    spread.extent[r - 1] = wanted.extent[r - 1];
    spread.extent[spread.rank++] = tn_extent_const(group);
    int axes[TN_TILE_RANK];
    for (int i = 0; i < r; i++)
        axes[i] = i;
    s = tn_t_reshape(&c->b, tn_t_broadcast(&c->b, s, spread, axes), (*x)->type);
    *x = tn_t_map2(&c->b, TN_S_mul, *x, s);
    return true;
}

static tn_tvalue *swap_last(tn_tcompiler *c, tn_tvalue *x)
{
    int r = x->type.rank, axes[TN_TILE_RANK];
    for (int i = 0; i < r; i++)
        axes[i] = i < r - 2 ? i : 2 * r - 3 - i;
    return tn_t_permute(&c->b, x, axes);
}

/* Scaled numbers have no more bits than tf32 keeps: those of the format, and 4 of a scale that is no power of two. */
static bool is_tf32(const format *f, const tn_py *scale) { return f->bits == TN_U8 || !scale->tensor || scale->tensor->type.dtype != TN_F8E4M3; }

bool tn_bi_dot_scaled(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_ast *at = call->node;
    const tn_py *a = call->argument;
    const format *f = NULL, *g = NULL;
    tn_tvalue *x, *y;
    tn_dtype result;
    bool fast, left_k, right_k;
    if (!tn_t_tensor_argument(c, at, &a[0], "lhs", &x) || !tn_t_tensor_argument(c, at, &a[3], "rhs", &y) || !format_of(c, at, &a[2], "lhs_format", &f) ||
        !format_of(c, at, &a[5], "rhs_format", &g) || !tn_t_constant_bool(c, at, &a[7], "fast_math", &fast) ||
        !tn_t_constant_bool(c, at, &a[8], "lhs_k_pack", &left_k) || !tn_t_constant_bool(c, at, &a[9], "rhs_k_pack", &right_k) ||
        !out_type(c, at, &a[10], &result))
        return false;
    if ((!left_k && f->type != TN_NO_DTYPE) || (!right_k && g->type != TN_NO_DTYPE))
        return tn_t_error(c, at, "only e2m1 is packed, so only it can be packed along another axis than k");
    int r = x->type.rank;
    if ((r != 2 && r != 3) || y->type.rank != r)
        return fitting_operands(c, at, "dot_scaled", &x->type, &y->type);
    if (!numbers_of(c, at, "lhs", x, f, left_k ? r - 1 : r - 2, &x) || !numbers_of(c, at, "rhs", y, g, right_k ? r - 2 : r - 1, &y) ||
        !fitting_operands(c, at, "dot_scaled", &x->type, &y->type))
        return false;
    if (!scale(c, at, "lhs_scale", &a[1], &x))
        return false;
    if (!tn_t_is_none(&a[4])) { /* the scales of rhs are N x K / 32 */
        tn_tvalue *turned = swap_last(c, y);
        if (!scale(c, at, "rhs_scale", &a[4], &turned))
            return false;
        y = swap_last(c, turned);
    }
    if (result != TN_F32 && result != TN_F16 && result != TN_BF16)
        return tn_t_error(c, at, "out_dtype of dot_scaled is fp32, fp16 or bf16, found %s", tn_t_dtype_name(result));
    tn_precision precision = is_tf32(f, &a[1]) && is_tf32(g, &a[4]) ? TN_TF32 : TN_IEEE;
    return accumulate(c, at, &a[6], tn_t_dot(&c->b, x, y, TN_F32, precision), result, out);
}
