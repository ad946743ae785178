/* Casts to and from the 8-bit floats, on the bits of f32, for machines that do not have them.
 *
 * From f8: its exponent and fraction, placed in f32's fields, are the value times 2^(bias - 127); a multiplication mends that, subnormals
 * included. To f8: normals round by adding half of the last place (less one, plus the last bit kept: ties to even) to f32's bits; subnormals
 * by adding the power of two whose last place is theirs. f8e4m3fn has no infinity: what rounds past 448 is NaN, as in base/dtype.c. */
#include "loop/expand.h"

#include <math.h>

typedef struct format {
    int fraction, bias;
    double scale;        /* 2^(127 - bias) */
    double subnormal;    /* adding it rounds at the last place of the subnormals: 2^(23 + 1 - bias - fraction) */
    double smallest;     /* normal */
    double most;         /* |x| above it rounds past the largest finite value */
    int past, nan;       /* codes of what is past it, and of NaN */
    int special;         /* codes from here on are not finite */
} format;

static format format_of(tn_dtype dtype)
{
    if (dtype == TN_F8E4M3)
        return (format){3, 7, 0x1p120, 0x1p14, 0x1p-6, 464, 0x7f, 0x7f, 0x7f};
    return (format){2, 15, 0x1p112, 0x1p7, 0x1p-14, 61440, 0x7c, 0x7f, 0x7c};
}

static tn_ltype like(const tn_lvalue *x, tn_dtype dtype) { return tn_lvector(dtype, x->type.lanes); }

static tn_lvalue *integer(tn_lbuilder *b, const tn_lvalue *x, int64_t value) { return tn_l_const(b, like(x, TN_I32), (tn_number){.i = value}); }

static tn_lvalue *number(tn_lbuilder *b, const tn_lvalue *x, double value) { return tn_l_const(b, like(x, TN_F32), (tn_number){.f = value}); }

static tn_lvalue *from_f8(tn_lbuilder *b, tn_lvalue *x)
{
    format f = format_of(x->type.dtype);
    tn_lvalue *code = tn_l_cast(b, tn_l_bitcast(b, x, like(x, TN_U8)), TN_I32);
    tn_lvalue *magnitude = tn_l_fn2(b, TN_S_and, code, integer(b, x, 0x7f));
    tn_lvalue *placed = tn_l_fn2(b, TN_S_shl, magnitude, integer(b, x, 23 - f.fraction));
    tn_lvalue *value = tn_l_fn2(b, TN_S_mul, tn_l_bitcast(b, placed, like(x, TN_F32)), number(b, x, f.scale));
    tn_lvalue *special = number(b, x, NAN);
    if (x->type.dtype == TN_F8E5M2)
        special = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_eq, magnitude, integer(b, x, f.special)), number(b, x, INFINITY), special);
    value = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_ge, magnitude, integer(b, x, f.special)), special, value);
    tn_lvalue *sign = tn_l_fn2(b, TN_S_shl, tn_l_fn2(b, TN_S_and, code, integer(b, x, 0x80)), integer(b, x, 24));
    return tn_l_bitcast(b, tn_l_fn2(b, TN_S_or, tn_l_bitcast(b, value, like(x, TN_I32)), sign), like(x, TN_F32));
}

static tn_lvalue *to_f8(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype)
{
    format f = format_of(dtype);
    int shift = 23 - f.fraction;
    tn_lvalue *bits = tn_l_bitcast(b, x, like(x, TN_I32)), *a = tn_l_fn1(b, TN_S_abs, x);
    tn_lvalue *magnitude = tn_l_bitcast(b, a, like(x, TN_I32));
    tn_lvalue *last = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_shr_logical, magnitude, integer(b, x, shift)), integer(b, x, 1));
    tn_lvalue *rounded = tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_add, magnitude, integer(b, x, (INT64_C(1) << (shift - 1)) - 1)), last);
    tn_lvalue *normal = tn_l_fn2(b, TN_S_sub, tn_l_fn2(b, TN_S_shr_logical, rounded, integer(b, x, shift)), integer(b, x, (int64_t)(127 - f.bias) << f.fraction));
    tn_lvalue *magic = number(b, x, f.subnormal);
    tn_lvalue *small = tn_l_fn2(b, TN_S_sub, tn_l_bitcast(b, tn_l_fn2(b, TN_S_add, a, magic), like(x, TN_I32)), tn_l_bitcast(b, magic, like(x, TN_I32)));
    tn_lvalue *code = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_lt, a, number(b, x, f.smallest)), small, normal);
    tn_lvalue *tie = f.past == f.nan ? tn_l_fn2(b, TN_S_gt, a, number(b, x, f.most)) : tn_l_fn2(b, TN_S_ge, a, number(b, x, f.most));
    code = tn_l_fn3(b, TN_S_select, tie, integer(b, x, f.past), code);
    code = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_ne, x, x), integer(b, x, f.nan), code);
    tn_lvalue *sign = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_shr_logical, bits, integer(b, x, 24)), integer(b, x, 0x80));
    return tn_l_bitcast(b, tn_l_cast(b, tn_l_fn2(b, TN_S_or, code, sign), TN_U8), like(x, dtype));
}

tn_lvalue *tn_l_float_cast(tn_lbuilder *b, const tn_vector_spec *spec, tn_lvalue *x, tn_dtype dtype)
{
    if (x->type.dtype == dtype)
        return x;
    if (tn_is_f8(x->type.dtype))
        x = spec->f8 ? tn_l_cast(b, x, TN_F32) : from_f8(b, x);
    if (tn_is_f8(dtype) && x->type.dtype != TN_F32)
        x = tn_l_cast(b, x, TN_F32);
    return tn_is_f8(dtype) && !spec->f8 ? to_f8(b, x, dtype) : tn_l_cast(b, x, dtype);
}
