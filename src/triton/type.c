/* Triton's arithmetic: which type two operands meet in, how shapes are made equal, what a conversion does.
 *
 * A literal (a Python number) is weak: against a tensor of its kind or a higher one (bool < int < float) it takes the tensor's type. Everything else,
 * arguments of the kernel included, takes part by its type. Division and remainder of halfs are in f32. bool is an unsigned integer of one bit: it adds
 * by xor. Integers wrap, `//` and `%` truncate, shifts are those of the scalar table. */
#include "triton/builtin.h"

#include <math.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tn_dtype dtype;
} dtype_names[] = {
    /* the first of a type is how it prints */
    {"int1", TN_BOOL},       {"int8", TN_I8},        {"int16", TN_I16},        {"int32", TN_I32},    {"int64", TN_I64},   {"uint8", TN_U8},
    {"uint16", TN_U16},      {"uint32", TN_U32},     {"uint64", TN_U64},       {"fp16", TN_F16},     {"bf16", TN_BF16},   {"fp32", TN_F32},
    {"fp64", TN_F64},        {"fp8e4nv", TN_F8E4M3}, {"fp8e5", TN_F8E5M2},     {"float16", TN_F16},  {"bfloat16", TN_BF16}, {"float32", TN_F32},
    {"float64", TN_F64},     {"float8e4nv", TN_F8E4M3}, {"float8e5", TN_F8E5M2}, {"i1", TN_BOOL},    {"i8", TN_I8},       {"i16", TN_I16},
    {"i32", TN_I32},         {"i64", TN_I64},        {"u8", TN_U8},            {"u16", TN_U16},      {"u32", TN_U32},     {"u64", TN_U64},
    {"u1", TN_BOOL},         {"f16", TN_F16},        {"f32", TN_F32},          {"f64", TN_F64},      {"f8e4m3", TN_F8E4M3}, {"f8e5m2", TN_F8E5M2},
    {"fp8e4m3fn", TN_F8E4M3}, {"fp8e5m2", TN_F8E5M2}, {"bool", TN_BOOL},
};

tn_dtype tn_t_dtype_named(const char *name)
{
    for (size_t i = 0; i < TN_COUNT(dtype_names); i++)
        if (strcmp(dtype_names[i].name, name) == 0)
            return dtype_names[i].dtype;
    return TN_NO_DTYPE;
}

const char *tn_t_dtype_name(tn_dtype dtype)
{
    for (size_t i = 0; i < TN_COUNT(dtype_names); i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].name;
    return tn_dtype_text(dtype);
}

const char *tn_t_type_name(tn_tcompiler *c, const tn_ttype *type)
{
    const char *name = tn_t_dtype_name(type->dtype);
    return type->pointer ? tn_format(&c->session->arena, "pointer<%s>", name) : name;
}

const char *tn_t_shape_text(tn_tcompiler *c, const tn_ttype *type)
{
    tn_text text = {.arena = &c->session->arena};
    tn_text_add(&text, "[");
    for (int i = 0; i < type->rank; i++)
        tn_text_add(&text, i ? ", %lld" : "%lld", (long long)type->extent[i].size);
    tn_text_add(&text, "]");
    return text.at;
}

/* ---- constants ------------------------------------------------------------------------------------------------------- */

static double greatest_f8(tn_dtype dtype) { return dtype == TN_F8E4M3 ? 448 : 57344; }
static bool is_half(tn_dtype dtype) { return dtype == TN_F16 || dtype == TN_BF16; }
static int width(tn_dtype dtype) { return dtype == TN_BOOL ? 1 : tn_dtype_bits(dtype); }
static int kind(tn_dtype dtype) { return dtype == TN_BOOL ? 0 : tn_is_float(dtype) ? 2 : 1; }

tn_number tn_t_number(const tn_py *v, tn_dtype dtype)
{
    if (dtype == TN_BOOL)
        return (tn_number){.u = v->kind == TN_PY_FLOAT ? v->number != 0 : v->integer != 0};
    if (v->kind != TN_PY_FLOAT && !tn_is_float(dtype))
        return tn_number_convert((tn_number){.u = (uint64_t)v->integer}, TN_U64, dtype);
    if (v->kind != TN_PY_FLOAT && v->integer == (int64_t)v->integer && !tn_is_f8(dtype))
        return tn_number_from_int(dtype, (int64_t)v->integer);
    double number = v->kind == TN_PY_FLOAT ? v->number : (double)v->integer;
    if (tn_is_f8(dtype) && fabs(number) > greatest_f8(dtype))
        number = copysign(greatest_f8(dtype), number);
    return tn_number_from_double(dtype, number);
}

tn_tvalue *tn_t_scalar_const(tn_tcompiler *c, tn_dtype dtype, tn_number number) { return tn_t_const(&c->b, tn_tscalar(dtype), number); }

tn_tvalue *tn_t_scalar_int(tn_tcompiler *c, tn_dtype dtype, int64_t value) { return tn_t_scalar_const(c, dtype, tn_number_from_int(dtype, value)); }

/* The type that a literal has where nothing else decides. */
static bool literal_type(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype *out)
{
    static const struct {
        tn_dtype dtype;
        __int128 lo, hi;
    } integers[] = {
        {TN_I32, INT32_MIN, INT32_MAX},
        {TN_U32, 0, UINT32_MAX},
        {TN_I64, INT64_MIN, INT64_MAX},
        {TN_U64, 0, UINT64_MAX},
    };
    double size = fabs(v->number);
    if (v->kind == TN_PY_FLOAT) {
        bool narrow = !isfinite(size) || size == 0 || (size >= 0x1p-126 && size <= 0x1.fffffep127);
        *out = narrow ? TN_F32 : TN_F64;
        return true;
    }
    if (v->kind == TN_PY_BOOL) {
        *out = TN_BOOL;
        return true;
    }
    for (size_t i = 0; i < TN_COUNT(integers); i++)
        if (v->integer >= integers[i].lo && v->integer <= integers[i].hi) {
            *out = integers[i].dtype;
            return true;
        }
    return tn_t_error(c, at, "%s is outside of all integer types: from -2**63 to 2**64 - 1", tn_t_describe(c, v));
}

static bool may_build(tn_tcompiler *c, const tn_ast *at)
{
    return !c->constants_only || tn_t_error(c, at, "only constants are known here: a decorator and a default value are evaluated before the kernel runs");
}

bool tn_t_to_tensor(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_tvalue **out)
{
    tn_dtype dtype;
    if (v->kind != TN_PY_TENSOR && !tn_py_is_number(v))
        return tn_t_error(c, at, "expected a tensor or a number, found %s", tn_t_describe(c, v));
    if (!may_build(c, at))
        return false;
    if (v->kind == TN_PY_TENSOR) {
        *out = v->tensor;
        return true;
    }
    if (!literal_type(c, at, v, &dtype))
        return false;
    *out = tn_t_scalar_const(c, dtype, tn_t_number(v, dtype));
    return true;
}

bool tn_t_to_dtype(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype dtype, tn_tvalue **out)
{
    if (v->kind != TN_PY_TENSOR && !tn_py_is_number(v))
        return tn_t_error(c, at, "expected a tensor or a number, found %s", tn_t_describe(c, v));
    if (!may_build(c, at))
        return false;
    if (v->kind == TN_PY_TENSOR) {
        if (v->tensor->type.pointer && dtype != TN_BOOL && dtype != TN_I64 && dtype != TN_U64)
            return tn_t_error(c, at, "a pointer converts to int64, uint64 or int1 only, not to %s", tn_t_dtype_name(dtype));
        *out = tn_t_cast_value(c, v->tensor, dtype, TN_T_ROUND_DEFAULT);
        return true;
    }
    tn_py whole = *v;
    if (v->kind == TN_PY_FLOAT && kind(dtype) == 1) {
        if (!(fabs(v->number) < 0x1p64) || v->number != rint(v->number))
            return tn_t_error(c, at, "%s is no %s", tn_t_describe(c, v), tn_t_dtype_name(dtype));
        whole = tn_py_int((__int128)v->number);
    }
    *out = tn_t_scalar_const(c, dtype, tn_t_number(&whole, dtype));
    return true;
}

/* ---- conversions ----------------------------------------------------------------------------------------------------- */

tn_tvalue *tn_t_pointer_bits(tn_tcompiler *c, tn_tvalue *x) { return tn_t_bitcast_type(&c->b, x, tn_tscalar(TN_I64)); }

static tn_dtype bits_type(tn_dtype dtype)
{
    static const tn_dtype of[] = {[1] = TN_U8, [2] = TN_U16, [4] = TN_U32, [8] = TN_U64};
    return of[tn_dtype_bits(dtype) / 8];
}

/* What rounding to nearest made larger goes back by one: floats of one sign are ordered as their bits. Infinity goes back to the greatest number. */
static tn_tvalue *toward_zero(tn_tcompiler *c, tn_tvalue *x, tn_tvalue *nearest)
{
    tn_tbuilder *b = &c->b;
    tn_dtype bits = bits_type(nearest->type.dtype);
    tn_tvalue *back = tn_t_cast(b, nearest, x->type.dtype);
    tn_tvalue *grew = tn_t_map2(b, TN_S_gt, tn_t_map1(b, TN_S_abs, back), tn_t_map1(b, TN_S_abs, x));
    tn_tvalue *less = tn_t_map2(b, TN_S_sub, tn_t_bitcast(b, nearest, bits), tn_t_cast(b, grew, bits));
    return tn_t_bitcast(b, less, nearest->type.dtype);
}

static tn_tvalue *saturate(tn_tcompiler *c, tn_tvalue *x, tn_dtype to)
{
    tn_dtype from = x->type.dtype;
    tn_tvalue *lo = tn_t_scalar_const(c, from, tn_number_from_double(from, -greatest_f8(to)));
    tn_tvalue *hi = tn_t_scalar_const(c, from, tn_number_from_double(from, greatest_f8(to)));
    return tn_t_map3(&c->b, TN_S_clamp, lo, x, hi);
}

tn_tvalue *tn_t_cast_value(tn_tcompiler *c, tn_tvalue *x, tn_dtype dtype, tn_t_rounding rounding)
{
    if (x->type.pointer) {
        tn_tvalue *bits = tn_t_pointer_bits(c, x);
        return dtype == TN_BOOL ? tn_t_map2(&c->b, TN_S_ne, bits, tn_t_index(&c->b, 0)) : tn_t_cast(&c->b, bits, dtype);
    }
    tn_dtype from = x->type.dtype;
    if (from == dtype)
        return x;
    if (tn_is_f8(dtype)) {
        if (!tn_is_float(from) || tn_is_f8(from))
            x = tn_t_cast(&c->b, x, TN_F32);
        if (from != TN_F8E4M3)
            x = saturate(c, x, dtype);
    }
    tn_tvalue *to = tn_t_cast(&c->b, x, dtype);
    bool narrows = tn_is_float(from) && tn_is_float(dtype) && tn_dtype_bits(dtype) <= tn_dtype_bits(from);
    return rounding == TN_T_ROUND_ZERO && narrows ? toward_zero(c, x, to) : to;
}

bool tn_t_bitcast_value(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, tn_ttype element, tn_tvalue **out)
{
    const tn_ttype *from = &x->type;
    if (from->pointer == element.pointer && from->dtype == element.dtype) {
        *out = x;
        return true;
    }
    int n = from->pointer ? 64 : width(from->dtype), m = element.pointer ? 64 : width(element.dtype);
    if (from->pointer && !element.pointer && element.dtype == TN_BOOL) {
        *out = tn_t_cast_value(c, x, TN_BOOL, TN_T_ROUND_DEFAULT);
        return true;
    }
    if (n != m)
        return tn_t_error(c, at, "cannot bitcast %s of %d bits to %s of %d", tn_t_type_name(c, from), n, tn_t_type_name(c, &element), m);
    if (element.pointer || from->pointer) {
        if (from->pointer && !element.pointer) {
            *out = tn_t_pointer_bits(c, x);
            *out = element.dtype == TN_I64 ? *out : tn_t_bitcast(&c->b, *out, element.dtype);
            return true;
        }
        if (!from->pointer && from->dtype != TN_I64)
            x = tn_t_bitcast(&c->b, x, TN_I64);
        tn_ttype to = {.dtype = element.dtype, .pointer = true};
        *out = tn_t_bitcast_type(&c->b, x, to);
        return true;
    }
    *out = tn_t_bitcast(&c->b, x, element.dtype);
    return true;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

bool tn_t_same_shape(const tn_ttype *a, const tn_ttype *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->extent[i].size == b->extent[i].size;
    return same;
}

/* Operand axes become the last axes of the shape, units stretch. */
tn_tvalue *tn_t_stretch(tn_tcompiler *c, tn_tvalue *x, const tn_ttype *shape)
{
    if (tn_t_same_shape(&x->type, shape))
        return x;
    tn_ttype type = *shape;
    int axes[TN_TILE_RANK];
    type.dtype = x->type.dtype;
    type.pointer = x->type.pointer;
    for (int i = 0; i < x->type.rank; i++)
        axes[i] = shape->rank - x->type.rank + i;
    return tn_t_broadcast(&c->b, x, type, axes);
}

bool tn_t_broadcast_pair(tn_tcompiler *c, const tn_ast *at, tn_tvalue **x, tn_tvalue **y)
{
    const tn_ttype *a = &(*x)->type, *b = &(*y)->type;
    if (tn_t_same_shape(a, b))
        return true;
    tn_ttype shape = a->rank >= b->rank ? *a : *b;
    for (int i = 0; i < shape.rank; i++) {
        int k = i - (shape.rank - a->rank), l = i - (shape.rank - b->rank);
        int64_t n = k < 0 ? 1 : a->extent[k].size, m = l < 0 ? 1 : b->extent[l].size;
        if (n != m && n != 1 && m != 1)
            return tn_t_error(c, at, "shapes %s and %s do not fit: at index %d they have %lld and %lld elements, and neither is 1", tn_t_shape_text(c, a),
                              tn_t_shape_text(c, b), i, (long long)n, (long long)m);
        shape.extent[i] = tn_extent_const(n == 1 ? m : n);
    }
    *x = tn_t_stretch(c, *x, &shape);
    *y = tn_t_stretch(c, *y, &shape);
    return true;
}

bool tn_t_broadcast_to(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, int rank, const int64_t *extents, tn_tvalue **out)
{
    tn_ttype shape = {.dtype = x->type.dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        shape.extent[i] = tn_extent_const(extents[i]);
    if (x->type.rank && x->type.rank != rank)
        return tn_t_error(c, at, "cannot broadcast %s to %s: the numbers of axes differ", tn_t_shape_text(c, &x->type), tn_t_shape_text(c, &shape));
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.extent[i].size != extents[i] && x->type.extent[i].size != 1)
            return tn_t_error(c, at, "cannot broadcast %s to %s: axis %d has %lld elements, and only 1 stretches", tn_t_shape_text(c, &x->type),
                              tn_t_shape_text(c, &shape), i, (long long)x->type.extent[i].size);
    *out = tn_t_stretch(c, x, &shape);
    return true;
}

bool tn_t_expand_dims(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, int axis, tn_tvalue **out)
{
    int rank = x->type.rank, axes[TN_TILE_RANK];
    if (axis < -rank - 1 || axis > rank)
        return tn_t_error(c, at, "axis %d of expand_dims: a tensor of shape %s takes one from %d to %d", axis, tn_t_shape_text(c, &x->type), -rank - 1, rank);
    if (rank == TN_TILE_RANK)
        return tn_t_refuse(c, at, "a tensor has at most %d axes; this would be one more than %s", TN_TILE_RANK, tn_t_shape_text(c, &x->type));
    axis += axis < 0 ? rank + 1 : 0;
    tn_ttype type = x->type;
    type.rank = 0;
    for (int i = 0; i <= rank; i++) {
        if (i == axis)
            type.extent[type.rank++] = tn_extent_const(1);
        if (i == rank)
            break;
        axes[i] = type.rank;
        type.extent[type.rank++] = x->type.extent[i];
    }
    *out = tn_t_broadcast(&c->b, x, type, axes);
    return true;
}

bool tn_t_shape(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int *rank, int64_t *extents)
{
    enum { MOST = 1 << 20 };
    int64_t elements = 1;
    int n;
    if (!tn_t_ints(c, at, v, what, TN_TILE_RANK, &n, extents))
        return false;
    for (int i = 0; i < n; i++) {
        if (extents[i] < 1 || (extents[i] & (extents[i] - 1)))
            return tn_t_error(c, at, "%s must hold powers of two, found %lld at index %d", what, (long long)extents[i], i);
        if (!tn_mul(elements, extents[i], &elements) || elements > MOST)
            return tn_t_error(c, at, "%s has more than %d elements, the most a tensor may have", what, MOST);
    }
    *rank = n;
    return true;
}

/* ---- operands -------------------------------------------------------------------------------------------------------- */

typedef struct operand {
    const tn_py *py;
    tn_tvalue *value; /* NULL: a literal */
    tn_ttype type;    /* a literal's: that it has alone */
} operand;

static bool operand_of(tn_tcompiler *c, const tn_ast *at, const char *sign, const tn_py *v, operand *out)
{
    *out = (operand){.py = v};
    if (v->kind == TN_PY_TENSOR) {
        out->value = v->tensor;
        out->type = v->tensor->type;
        return true;
    }
    if (tn_py_is_number(v))
        return literal_type(c, at, v, &out->type.dtype);
    if (v->kind == TN_PY_BLOCK_POINTER)
        return tn_t_error(c, at, "%s on a block pointer: it moves by tl.advance(pointer, offsets)", sign);
    return tn_t_error(c, at, "%s takes tensors and numbers, found %s", sign, tn_t_describe(c, v));
}

static bool refuse_operands(tn_tcompiler *c, const tn_ast *at, const char *sign, const operand *x, const operand *y, const char *why)
{
    return tn_t_error(c, at, "%s of %s and %s: %s", sign, tn_t_describe(c, x->py), tn_t_describe(c, y->py), why);
}

static tn_dtype promote_integers(tn_dtype a, tn_dtype b)
{
    if (tn_is_unsigned(a) == tn_is_unsigned(b))
        return width(a) > width(b) ? a : b;
    if (tn_is_unsigned(a))
        return width(a) >= width(b) ? a : b;
    return width(b) >= width(a) ? b : a;
}

/* The type that the operation is done in. division: of / // %. */
static bool promote(tn_tcompiler *c, const tn_ast *at, const char *sign, const operand *x, const operand *y, bool division, tn_dtype *out)
{
    tn_dtype a = x->type.dtype, b = y->type.dtype;
    if (!x->value != !y->value) {
        tn_dtype literal = x->value ? b : a, tensor = x->value ? a : b;
        if (kind(literal) <= kind(tensor)) {
            *out = division && is_half(tensor) ? TN_F32 : tensor;
            return true;
        }
    }
    if (a == TN_F64 || b == TN_F64)
        *out = TN_F64;
    else if (a == TN_F32 || b == TN_F32)
        *out = TN_F32;
    else if (a == TN_F16 || b == TN_F16)
        *out = division ? TN_F32 : TN_F16;
    else if (a == TN_BF16 || b == TN_BF16)
        *out = a == b && !division ? TN_BF16 : TN_F32;
    else if (tn_is_f8(a) && tn_is_f8(b))
        *out = a == b ? a : TN_F16;
    else if (tn_is_f8(a) || tn_is_f8(b))
        return refuse_operands(c, at, sign, x, y, "fp8 meets no integers; cast one of them");
    else if (division && tn_is_unsigned(a) != tn_is_unsigned(b))
        return refuse_operands(c, at, sign, x, y, "one is signed, the other is not, so that the result is unlikely to be useful; cast one of them");
    else
        *out = promote_integers(a, b);
    return true;
}

/* A literal must be a value of the integer type that it takes. */
static bool literal_fits(tn_tcompiler *c, const tn_ast *at, const operand *x, tn_dtype dtype)
{
    if (x->value || kind(dtype) == 2 || x->py->kind == TN_PY_FLOAT)
        return true;
    if (x->py->integer < 0 && tn_is_unsigned(dtype))
        return tn_t_error(c, at, "a negative number, %s, meets an unsigned tensor of %s; cast one of them", tn_t_describe(c, x->py), tn_t_dtype_name(dtype));
    bool is_u = tn_is_unsigned(dtype);
    __int128 lo = is_u ? 0 : -((__int128)1 << (width(dtype) - 1)), hi = ((__int128)1 << (width(dtype) - !is_u)) - 1;
    return (x->py->integer >= lo && x->py->integer <= hi) ||
           tn_t_error(c, at, "%s is out of range for %s", tn_t_describe(c, x->py), tn_t_dtype_name(dtype));
}

static bool take_type(tn_tcompiler *c, const tn_ast *at, const operand *x, tn_dtype dtype, tn_tvalue **out)
{
    if (x->value)
        *out = tn_t_cast_value(c, x->value, dtype, TN_T_ROUND_DEFAULT);
    else if (!literal_fits(c, at, x, dtype))
        return false;
    else
        *out = tn_t_scalar_const(c, dtype, tn_t_number(x->py, dtype));
    return true;
}

/* Both as tensors of the type. */
static bool meet(tn_tcompiler *c, const tn_ast *at, const operand *x, const operand *y, tn_dtype dtype, tn_tvalue **a, tn_tvalue **b)
{
    return take_type(c, at, x, dtype, a) && take_type(c, at, y, dtype, b) && tn_t_broadcast_pair(c, at, a, b);
}

/* ---- operators ------------------------------------------------------------------------------------------------------- */

typedef enum op_class { NO_OP, ARITHMETIC, DIVISION, FLOOR_DIVISION, REMAINDER, BITWISE, SHIFT, COMPARISON } op_class;
static const struct {
    const char *sign;
    op_class class;
    tn_scalar fn, of_bool;
} operators[] = {
    [TN_AST_ADD] = {"+", ARITHMETIC, TN_S_add, TN_S_xor},
    [TN_AST_SUB] = {"-", ARITHMETIC, TN_S_sub, TN_S_xor},
    [TN_AST_MUL] = {"*", ARITHMETIC, TN_S_mul, TN_S_and},
    [TN_AST_DIV] = {"/", DIVISION, TN_S_div_full, TN_S_div_full},
    [TN_AST_FLOORDIV] = {"//", FLOOR_DIVISION, TN_S_div, TN_S_div},
    [TN_AST_MOD] = {"%", REMAINDER, TN_S_rem, TN_S_rem},
    [TN_AST_POW] = {"**", NO_OP, TN_SCALAR_NONE, TN_SCALAR_NONE},
    [TN_AST_MATMUL] = {"@", NO_OP, TN_SCALAR_NONE, TN_SCALAR_NONE},
    [TN_AST_LSHIFT] = {"<<", SHIFT, TN_S_shl, TN_S_shl},
    [TN_AST_RSHIFT] = {">>", SHIFT, TN_S_shr_arith, TN_S_shr_arith},
    [TN_AST_BITAND] = {"&", BITWISE, TN_S_and, TN_S_and},
    [TN_AST_BITOR] = {"|", BITWISE, TN_S_or, TN_S_or},
    [TN_AST_BITXOR] = {"^", BITWISE, TN_S_xor, TN_S_xor},
    [TN_AST_EQ] = {"==", COMPARISON, TN_S_eq, TN_S_eq},
    [TN_AST_NE] = {"!=", COMPARISON, TN_S_ne, TN_S_ne},
    [TN_AST_LT] = {"<", COMPARISON, TN_S_lt, TN_S_lt},
    [TN_AST_LE] = {"<=", COMPARISON, TN_S_le, TN_S_le},
    [TN_AST_GT] = {">", COMPARISON, TN_S_gt, TN_S_gt},
    [TN_AST_GE] = {">=", COMPARISON, TN_S_ge, TN_S_ge},
    [TN_AST_NOT_IN] = {"not in", NO_OP, TN_SCALAR_NONE, TN_SCALAR_NONE},
};

static bool add_pointer(tn_tcompiler *c, const tn_ast *at, tn_tvalue *pointer, tn_tvalue *offset, bool subtract, tn_tvalue **out)
{
    tn_dtype dtype = offset->type.dtype;
    if (dtype == TN_BOOL)
        offset = tn_t_cast(&c->b, offset, TN_I32);
    else if (subtract || (tn_is_unsigned(dtype) && width(dtype) < 64))
        offset = tn_t_cast(&c->b, offset, TN_I64);
    if (subtract)
        offset = tn_t_map1(&c->b, TN_S_neg, offset->type.dtype == TN_I64 ? offset : tn_t_cast(&c->b, offset, TN_I64));
    if (!tn_t_broadcast_pair(c, at, &pointer, &offset))
        return false;
    *out = tn_t_addptr(&c->b, pointer, offset);
    return true;
}

/* One operand at least is a pointer. */
static bool pointer_operator(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, operand *x, operand *y, tn_tvalue **out)
{
    const char *sign = operators[op].sign;
    if (operators[op].class == COMPARISON) {
        if (!x->type.pointer || !y->type.pointer || x->type.dtype != y->type.dtype)
            return refuse_operands(c, at, sign, x, y, "a pointer compares with pointers of its type only");
        tn_tvalue *a = tn_t_bitcast(&c->b, tn_t_pointer_bits(c, x->value), TN_U64), *b = tn_t_bitcast(&c->b, tn_t_pointer_bits(c, y->value), TN_U64);
        if (!tn_t_broadcast_pair(c, at, &a, &b))
            return false;
        *out = tn_t_map2(&c->b, operators[op].fn, a, b);
        return true;
    }
    if (x->type.pointer && y->type.pointer)
        return refuse_operands(c, at, sign, x, y, "pointers do not add up and have no difference; compare them, or cast them to int64");
    bool first = x->type.pointer;
    if ((op != TN_AST_ADD && op != TN_AST_SUB) || (op == TN_AST_SUB && !first))
        return refuse_operands(c, at, sign, x, y, "with a pointer there is pointer + integer and pointer - integer");
    operand *pointer = first ? x : y, *offset = first ? y : x;
    if (kind(offset->type.dtype) == 2)
        return refuse_operands(c, at, sign, x, y, "the offset, in elements, is an integer");
    tn_tvalue *by;
    return tn_t_to_tensor(c, at, offset->py, &by) && add_pointer(c, at, pointer->value, by, op == TN_AST_SUB, out);
}

static tn_tvalue *divide(tn_tcompiler *c, tn_scalar fn, tn_tvalue *a, tn_tvalue *b)
{
    if (a->type.dtype != TN_BOOL)
        return tn_t_map2(&c->b, fn, a, b);
    a = tn_t_map2(&c->b, fn, tn_t_cast(&c->b, a, TN_U8), tn_t_cast(&c->b, b, TN_U8));
    return tn_t_cast(&c->b, a, TN_BOOL);
}

static bool apply(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const operand *x, const operand *y, tn_dtype dtype, tn_tvalue **out)
{
    const char *sign = operators[op].sign;
    tn_scalar fn = dtype == TN_BOOL ? operators[op].of_bool : operators[op].fn;
    tn_tvalue *a, *b;
    bool floats = kind(dtype) == 2;
    op_class class = operators[op].class;
    if (class == FLOOR_DIVISION && floats)
        return refuse_operands(c, at, sign, x, y, "it divides integers; for floats write tl.floor(x / y)");
    if ((class == BITWISE || class == SHIFT) && floats)
        return refuse_operands(c, at, sign, x, y, "it takes integers; the bits of a float are x.to(tl.int32, bitcast=True)");
    if (class == SHIFT && dtype == TN_BOOL)
        return refuse_operands(c, at, sign, x, y, "a bool has no bits to shift; cast it");
    if (!meet(c, at, x, y, dtype, &a, &b))
        return false;
    if (class == DIVISION && !floats) {
        a = tn_t_cast(&c->b, a, TN_F32);
        b = tn_t_cast(&c->b, b, TN_F32);
    }
    if (op == TN_AST_RSHIFT && tn_is_unsigned(x->value ? x->type.dtype : dtype))
        fn = TN_S_shr_logical;
    *out = class == FLOOR_DIVISION || class == REMAINDER ? divide(c, fn, a, b) : tn_t_map2(&c->b, fn, a, b);
    return true;
}

bool tn_t_apply(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_tvalue **out)
{
    operand a, b;
    tn_dtype dtype;
    if (op == TN_AST_POW)
        return tn_t_refuse(c, at, "** of tensors is not part of Triton's language; write tl.exp2(y * tl.log2(x)), or multiply");
    if (op == TN_AST_MATMUL)
        return tn_t_refuse(c, at, "@ of tensors is not part of Triton's language; write tl.dot(x, y)");
    if ((size_t)op >= TN_COUNT(operators) || operators[op].class == NO_OP)
        return tn_t_refuse(c, at, "this operator takes no tensors");
    const char *sign = operators[op].sign;
    op_class class = operators[op].class;
    if (!may_build(c, at) || !operand_of(c, at, sign, x, &a) || !operand_of(c, at, sign, y, &b))
        return false;
    if (a.type.pointer || b.type.pointer)
        return pointer_operator(c, at, op, &a, &b, out);
    bool division = class == DIVISION || class == FLOOR_DIVISION || class == REMAINDER;
    return promote(c, at, sign, &a, &b, division, &dtype) && apply(c, at, op, &a, &b, dtype, out);
}

bool tn_t_binary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out)
{
    bool same = op == TN_AST_EQ || op == TN_AST_IS, differs = op == TN_AST_NE || op == TN_AST_IS_NOT;
    if ((same || differs) && (x->kind == TN_PY_NONE || y->kind == TN_PY_NONE || op == TN_AST_IS || op == TN_AST_IS_NOT)) {
        bool equal = x->kind == y->kind && (x->kind == TN_PY_NONE || (x->kind == TN_PY_TENSOR && x->tensor == y->tensor));
        *out = tn_py_bool(equal == same);
        return true;
    }
    tn_tvalue *value;
    if (!tn_t_apply(c, at, op, x, y, &value))
        return false;
    *out = tn_py_tensor(value);
    return true;
}

bool tn_t_unary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, tn_py *out)
{
    tn_tvalue *v, *r = NULL;
    if (x->kind != TN_PY_TENSOR && !tn_py_is_number(x))
        return tn_t_error(c, at, "a unary operator takes a tensor or a number, found %s", tn_t_describe(c, x));
    if (!tn_t_to_tensor(c, at, x, &v))
        return false;
    const tn_ttype *type = &v->type;
    switch (op) {
    case TN_AST_POSITIVE:
        r = v;
        break;
    case TN_AST_NEGATIVE:
        if (type->pointer)
            return tn_t_error(c, at, "a pointer has no negative");
        r = type->dtype == TN_BOOL ? v : tn_t_map1(&c->b, TN_S_neg, v); /* in one bit 0 - x is x */
        break;
    case TN_AST_INVERT:
        if (type->pointer || tn_is_float(type->dtype))
            return tn_t_error(c, at, "~ takes integers, found %s", tn_t_describe(c, x));
        r = tn_t_map1(&c->b, TN_S_not, v);
        break;
    case TN_AST_NOT:
        r = tn_t_map1(&c->b, TN_S_not, tn_t_cast_value(c, v, TN_BOOL, TN_T_ROUND_DEFAULT));
        break;
    default:
        return tn_t_refuse(c, at, "this operator takes no tensors");
    }
    *out = tn_py_tensor(r);
    return true;
}

bool tn_t_unify(tn_tcompiler *c, const tn_ast *at, tn_py *x, tn_py *y)
{
    operand a, b;
    tn_dtype dtype;
    tn_tvalue *v, *w;
    if (!may_build(c, at) || !operand_of(c, at, "a choice", x, &a) || !operand_of(c, at, "a choice", y, &b))
        return false;
    if (a.type.pointer || b.type.pointer) {
        if (!a.type.pointer || !b.type.pointer || a.type.dtype != b.type.dtype)
            return refuse_operands(c, at, "a choice", &a, &b, "they have no type in common");
        v = a.value, w = b.value;
        if (!tn_t_broadcast_pair(c, at, &v, &w))
            return false;
    } else if (!promote(c, at, "a choice", &a, &b, false, &dtype) || !meet(c, at, &a, &b, dtype, &v, &w)) {
        return false;
    }
    *x = tn_py_tensor(v);
    *y = tn_py_tensor(w);
    return true;
}
