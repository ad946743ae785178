#include "base/internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------------------------------- */

typedef struct dtype_row {
    const char *text;
    int bits;
    tn_class class;
    uint8_t code;
} dtype_row;

static const dtype_row rows[TN_DTYPE_COUNT] = {
    [TN_NO_DTYPE] = {"?", 0, 0, 0},
#define DTYPE(NAME, text, bits, class, code) [TN_##NAME] = {text, bits, TN_CLASS_##class, code},
#include "base/dtypes.def"
#undef DTYPE
};

const char *tn_dtype_text(tn_dtype dtype)
{
    return rows[dtype].text;
}

tn_dtype tn_dtype_from_text(const char *text, size_t len)
{
    for (int d = TN_NO_DTYPE + 1; d < TN_DTYPE_COUNT; d++)
        if (strlen(rows[d].text) == len && !memcmp(rows[d].text, text, len))
            return (tn_dtype)d;
    return TN_NO_DTYPE;
}

int tn_dtype_bits(tn_dtype dtype)
{
    return rows[dtype].bits;
}

tn_class tn_dtype_class(tn_dtype dtype)
{
    return rows[dtype].class;
}

DLDataType tn_dtype_to_dlpack(tn_dtype dtype)
{
    return (DLDataType){rows[dtype].code, (uint8_t)rows[dtype].bits, 1};
}

tn_dtype tn_dtype_from_dlpack(DLDataType type)
{
    for (int d = TN_NO_DTYPE + 1; d < TN_DTYPE_COUNT; d++)
        if (rows[d].code == type.code && rows[d].bits == type.bits && type.lanes == 1)
            return (tn_dtype)d;
    return TN_NO_DTYPE;
}

tn_dtype tn_dtype_real(tn_dtype dtype)
{
    return dtype == TN_C64 ? TN_F32 : dtype == TN_C128 ? TN_F64 : dtype;
}

bool tn_dtype_bytes(tn_dtype dtype, int64_t n, size_t *out)
{
    int64_t bits;
    if (n < 0)
        return false;
    if (rows[dtype].bits >= 8) {
        if (!tn_mul(n, rows[dtype].bits / 8, &bits))
            return false;
        *out = (size_t)bits;
        return true;
    }
    if (!tn_mul(n, rows[dtype].bits, &bits) || !tn_add(bits, 7, &bits))
        return false;
    *out = (size_t)(bits / 8);
    return true;
}

/* ---- small floats -------------------------------------------------------------------------------------------------- */

/* A float format of 16 bits or fewer: sign, exponent, `mantissa` bits without the implicit one. */
typedef struct small_float {
    int bits, mantissa;
    int least_exponent; /* of the normal numbers; denormals share it */
    uint32_t greatest;  /* code of the greatest finite number */
    uint32_t overflow;  /* code of what lies above it: infinity, or NaN where the format has none */
    uint32_t nan;
} small_float;

static const small_float small_floats[TN_DTYPE_COUNT] = {
    [TN_F8E4M3] = {8, 3, -6, 0x7e, 0x7f, 0x7f},
    [TN_F8E5M2] = {8, 2, -14, 0x7b, 0x7c, 0x7e},
    [TN_F16] = {16, 10, -14, 0x7bff, 0x7c00, 0x7e00},
    [TN_BF16] = {16, 7, -126, 0x7f7f, 0x7f80, 0x7fc0},
};

/* Rounds to nearest, ties to even, in one step. A normal number of exponent e and significand m (with the implicit one)
 * has the code ((e - least) << mantissa) + m, a denormal the code m: one formula, and a carry out of m does the right
 * thing, up to overflow. */
static uint32_t encode_small(const small_float *format, double value)
{
    uint32_t sign = signbit(value) ? 1u << (format->bits - 1) : 0;
    double magnitude = fabs(value);
    if (isnan(value))
        return sign | format->nan;
    if (isinf(value))
        return sign | format->overflow;
    int exponent = format->least_exponent;
    if (magnitude != 0 && ilogb(magnitude) > exponent)
        exponent = ilogb(magnitude);
    if (exponent > 128)
        return sign | format->overflow;
    uint32_t significand = (uint32_t)roundeven(ldexp(magnitude, format->mantissa - exponent));
    uint32_t code = ((uint32_t)(exponent - format->least_exponent) << format->mantissa) + significand;
    return sign | (code > format->greatest ? format->overflow : code);
}

static double decode_small(const small_float *format, uint32_t code)
{
    uint32_t sign = code >> (format->bits - 1), magnitude = code & ~(1u << (format->bits - 1));
    double value;
    if (magnitude > format->greatest) {
        value = magnitude == format->overflow && format->overflow != format->nan ? INFINITY : NAN;
    } else {
        uint32_t field = magnitude >> format->mantissa;
        uint32_t significand = magnitude & ((1u << format->mantissa) - 1);
        if (field > 0)
            significand += 1u << format->mantissa;
        int exponent = format->least_exponent + (field > 0 ? (int)field - 1 : 0);
        value = ldexp(significand, exponent - format->mantissa);
    }
    return sign ? -value : value;
}

static double round_float(tn_dtype dtype, double value)
{
    if (dtype == TN_F64)
        return value;
    if (dtype == TN_F32)
        return (float)value;
    return decode_small(&small_floats[dtype], encode_small(&small_floats[dtype], value));
}

/* ---- elements in memory -------------------------------------------------------------------------------------------- */

int64_t tn_wrap(tn_dtype dtype, uint64_t value)
{
    int unused = 64 - rows[dtype].bits;
    if (dtype == TN_BOOL)
        return value != 0;
    if (rows[dtype].class == TN_CLASS_INT)
        return (int64_t)(value << unused) >> unused;
    return (int64_t)(value << unused >> unused);
}

static tn_number load_integer(tn_dtype dtype, const char *data, int64_t index)
{
    uint64_t raw = 0;
    int bits = rows[dtype].bits;
    if (bits == 4)
        raw = (uint64_t)((unsigned char)data[index / 2] >> (index % 2 * 4)) & 15;
    else
        memcpy(&raw, data + index * (bits / 8), (size_t)bits / 8);
    return (tn_number){.i = tn_wrap(dtype, raw)};
}

static double load_float(tn_dtype dtype, const char *data, int64_t index)
{
    int bytes = rows[dtype].bits / 8;
    if (dtype == TN_F64) {
        double value;
        memcpy(&value, data + index * bytes, sizeof value);
        return value;
    }
    if (dtype == TN_F32) {
        float value;
        memcpy(&value, data + index * bytes, sizeof value);
        return value;
    }
    uint32_t code = 0;
    memcpy(&code, data + index * bytes, (size_t)bytes);
    return decode_small(&small_floats[dtype], code);
}

tn_number tn_number_load(tn_dtype dtype, const void *data, int64_t index)
{
    tn_dtype part = tn_dtype_real(dtype);
    if (tn_is_complex(dtype))
        return (tn_number){.f = load_float(part, data, 2 * index), .im = load_float(part, data, 2 * index + 1)};
    if (tn_is_float(dtype))
        return (tn_number){.f = load_float(dtype, data, index)};
    return load_integer(dtype, data, index);
}

static void store_integer(tn_dtype dtype, char *data, int64_t index, uint64_t value)
{
    int bits = rows[dtype].bits;
    if (dtype == TN_BOOL)
        value = value != 0;
    if (bits == 4) {
        int shift = (int)(index % 2) * 4;
        unsigned char *byte = (unsigned char *)data + index / 2;
        *byte = (unsigned char)((*byte & ~(15u << shift)) | (value & 15) << shift);
    } else {
        memcpy(data + index * (bits / 8), &value, (size_t)bits / 8);
    }
}

static void store_float(tn_dtype dtype, char *data, int64_t index, double value)
{
    int bytes = rows[dtype].bits / 8;
    if (dtype == TN_F64) {
        memcpy(data + index * bytes, &value, sizeof value);
    } else if (dtype == TN_F32) {
        float narrow = (float)value;
        memcpy(data + index * bytes, &narrow, sizeof narrow);
    } else {
        uint32_t code = encode_small(&small_floats[dtype], value);
        memcpy(data + index * bytes, &code, (size_t)bytes);
    }
}

void tn_number_store(tn_dtype dtype, void *data, int64_t index, tn_number value)
{
    tn_dtype part = tn_dtype_real(dtype);
    if (tn_is_complex(dtype)) {
        store_float(part, data, 2 * index, value.f);
        store_float(part, data, 2 * index + 1, value.im);
    } else if (tn_is_float(dtype)) {
        store_float(dtype, data, index, value.f);
    } else {
        store_integer(dtype, data, index, value.u);
    }
}

/* ---- conversion ---------------------------------------------------------------------------------------------------- */

/* Truncates; saturates outside the range; NaN gives 0. */
static int64_t float_to_integer(double value, tn_dtype to)
{
    int bits = rows[to].bits;
    if (to == TN_BOOL)
        return value != 0;
    if (isnan(value))
        return 0;
    bool is_signed = rows[to].class == TN_CLASS_INT;
    if (value >= ldexp(1, is_signed ? bits - 1 : bits))
        return tn_number_highest(to).i;
    if (value <= (is_signed ? -ldexp(1, bits - 1) : 0))
        return tn_number_lowest(to).i;
    return is_signed ? (int64_t)value : (int64_t)(uint64_t)value;
}

/* The double next to `value` whose last bit says whether digits were lost (rounding to odd): rounding it again, to 51
 * bits or fewer, gives what one rounding of the integer would. S. Boldo, G. Melquiond, "Emulation of FMA and correctly
 * rounded sums: proved algorithms using rounding to odd", 2008. */
static double integer_to_odd_double(uint64_t magnitude)
{
    int lost = 11 - (magnitude ? __builtin_clzll(magnitude) : 64);
    if (lost <= 0)
        return (double)magnitude;
    uint64_t kept = magnitude >> lost;
    if (kept << lost != magnitude)
        kept |= 1;
    return ldexp((double)kept, lost);
}

static double integer_to_float(tn_number value, tn_dtype from, tn_dtype to)
{
    bool negative = rows[from].class == TN_CLASS_INT && value.i < 0;
    if (to == TN_F64)
        return negative ? (double)value.i : (double)value.u;
    double magnitude = integer_to_odd_double(negative ? -value.u : value.u);
    return round_float(to, negative ? -magnitude : magnitude);
}

tn_number tn_number_convert(tn_number value, tn_dtype from, tn_dtype to)
{
    bool from_float = tn_is_float(from) || tn_is_complex(from);
    if (!tn_is_float(to) && !tn_is_complex(to)) {
        if (from_float)
            return (tn_number){.i = float_to_integer(value.f, to)};
        return (tn_number){.i = tn_wrap(to, value.u)};
    }
    tn_dtype part = tn_dtype_real(to);
    tn_number result = {.f = from_float ? round_float(part, value.f) : integer_to_float(value, from, part)};
    if (tn_is_complex(from) && tn_is_complex(to))
        result.im = round_float(part, value.im);
    return result;
}

tn_number tn_number_from_double(tn_dtype dtype, double value)
{
    return tn_number_convert((tn_number){.f = value}, TN_F64, dtype);
}

tn_number tn_number_from_int(tn_dtype dtype, int64_t value)
{
    return tn_number_convert((tn_number){.i = value}, TN_I64, dtype);
}

double tn_number_to_double(tn_dtype dtype, tn_number value)
{
    return tn_number_convert(value, dtype, TN_F64).f;
}

int64_t tn_number_to_int(tn_dtype dtype, tn_number value)
{
    return tn_number_convert(value, dtype, TN_I64).i;
}

static bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

bool tn_number_same(tn_dtype dtype, tn_number a, tn_number b)
{
    if (tn_is_complex(dtype))
        return same_double(a.f, b.f) && same_double(a.im, b.im);
    return tn_is_float(dtype) ? same_double(a.f, b.f) : a.i == b.i;
}

static tn_number float_limit(tn_dtype dtype, double sign)
{
    bool has_infinity = dtype != TN_F8E4M3;
    return (tn_number){.f = sign * (has_infinity ? INFINITY : decode_small(&small_floats[dtype], small_floats[dtype].greatest))};
}

tn_number tn_number_lowest(tn_dtype dtype)
{
    if (tn_is_float(dtype) || tn_is_complex(dtype))
        return float_limit(dtype, -1);
    bool is_signed = rows[dtype].class == TN_CLASS_INT;
    return (tn_number){.i = is_signed ? (int64_t)(~UINT64_C(0) << (rows[dtype].bits - 1)) : 0};
}

tn_number tn_number_highest(tn_dtype dtype)
{
    if (tn_is_float(dtype) || tn_is_complex(dtype))
        return float_limit(dtype, 1);
    if (dtype == TN_BOOL)
        return (tn_number){.i = 1};
    bool is_signed = rows[dtype].class == TN_CLASS_INT;
    return (tn_number){.u = ~UINT64_C(0) >> (64 - rows[dtype].bits + is_signed)};
}

/* ---- text ---------------------------------------------------------------------------------------------------------- */

void tn_text_number(tn_text *text, tn_dtype dtype, tn_number value)
{
    switch (tn_dtype_class(dtype)) {
    case TN_CLASS_BOOL:
        tn_text_add(text, "%s", value.u ? "true" : "false");
        break;
    case TN_CLASS_INT:
        tn_text_add(text, "%lld", (long long)value.i);
        break;
    case TN_CLASS_UINT:
        tn_text_add(text, "%llu", (unsigned long long)value.u);
        break;
    case TN_CLASS_FLOAT:
        tn_text_double(text, value.f);
        break;
    case TN_CLASS_COMPLEX:
        tn_text_put(text, "(", 1);
        tn_text_double(text, value.f);
        tn_text_put(text, ", ", 2);
        tn_text_double(text, value.im);
        tn_text_put(text, ")", 1);
        break;
    }
}

static size_t parse_bool(const char *text, tn_number *out)
{
    bool is_true = !strncmp(text, "true", 4);
    if (!is_true && strncmp(text, "false", 5) != 0)
        return 0;
    out->u = is_true;
    return is_true ? 4 : 5;
}

/* Decimal digits with an optional minus for signed types; a value outside the type's range is malformed. */
static size_t parse_integer(tn_dtype dtype, const char *text, tn_number *out)
{
    bool negative = *text == '-' && rows[dtype].class == TN_CLASS_INT;
    const char *digits = text + negative;
    if (!isdigit((unsigned char)*digits))
        return 0;
    char *end;
    errno = 0;
    unsigned long long magnitude = strtoull(digits, &end, 10);
    uint64_t limit = negative ? -tn_number_lowest(dtype).u : tn_number_highest(dtype).u;
    if (errno || magnitude > limit)
        return 0;
    out->u = negative ? -(uint64_t)magnitude : magnitude;
    return (size_t)(end - text);
}

/* What strtod takes beyond a plain decimal number (blanks, "infinity", hexadecimal, "nan(...)") is not our text form. */
static size_t parse_float(tn_dtype dtype, const char *text, double *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t sign = (size_t)(digits - text);
    if (!strncmp(digits, "nan", 3) || !strncmp(digits, "inf", 3)) {
        double value = *digits == 'n' ? NAN : INFINITY;
        *out = round_float(dtype, *text == '-' ? -value : value);
        return sign + 3;
    }
    if (!isdigit((unsigned char)digits[*digits == '.']) || (digits[0] == '0' && (digits[1] | 32) == 'x'))
        return 0;
    char *end;
    locale_t c = tn_c_locale();
    *out = dtype == TN_F32 ? strtof_l(text, &end, c) : round_float(dtype, strtod_l(text, &end, c));
    return (size_t)(end - text);
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " ");
}

static size_t parse_complex(tn_dtype dtype, const char *text, tn_number *out)
{
    tn_dtype part = tn_dtype_real(dtype);
    size_t used;
    if (*text != '(')
        return 0;
    const char *at = skip_blanks(text + 1);
    if (!(used = parse_float(part, at, &out->f)))
        return 0;
    at = skip_blanks(at + used);
    if (*at++ != ',')
        return 0;
    at = skip_blanks(at);
    if (!(used = parse_float(part, at, &out->im)))
        return 0;
    at = skip_blanks(at + used);
    return *at == ')' ? (size_t)(at + 1 - text) : 0;
}

size_t tn_number_parse(tn_dtype dtype, const char *text, tn_number *out)
{
    *out = (tn_number){0};
    switch (tn_dtype_class(dtype)) {
    case TN_CLASS_BOOL:
        return parse_bool(text, out);
    case TN_CLASS_INT:
    case TN_CLASS_UINT:
        return parse_integer(dtype, text, out);
    case TN_CLASS_FLOAT:
        return parse_float(dtype, text, &out->f);
    case TN_CLASS_COMPLEX:
        return parse_complex(dtype, text, out);
    }
    return 0;
}
