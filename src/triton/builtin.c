/* The table of builtins, how a call meets a signature, what else a module of the language and a type offer. */
#include "triton/builtin.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const tn_builtin table[] = {
#define BUILTIN(module, name, signature, flags, function) {module, name, signature, flags, function},
#include "triton/builtins.def"
#undef BUILTIN
};

/* triton.language's own submodules are seen through it as well. */
static const char *canonical(const char *module)
{
    static const char *const same[] = {"triton.language.core", "triton.language.standard", "triton.language.semantic"};
    for (size_t i = 0; i < TN_COUNT(same); i++)
        if (strcmp(module, same[i]) == 0)
            return LANGUAGE;
    return module;
}

const tn_builtin *tn_t_builtin_find(const char *module, const char *name)
{
    module = canonical(module);
    for (size_t i = 0; i < TN_COUNT(table); i++)
        if (strcmp(table[i].name, name) == 0 && strcmp(table[i].module, module) == 0)
            return &table[i];
    return NULL;
}

/* ---- constants of modules -------------------------------------------------------------------------------------------- */

#define NAN_CLASS LANGUAGE ".PropagateNan"
enum { NAN_NONE = 0, NAN_ALL = 0xffff };
static const struct {
    const char *module, *name;
    int64_t value;
} integers[] = {
    {LANGUAGE, "TRITON_MAX_TENSOR_NUMEL", 1 << 20},
    {NAN_CLASS, "NONE", NAN_NONE},
    {NAN_CLASS, "ALL", NAN_ALL},
};

#define OLD_FLOAT8 "it converts fp8e4b15, a format of old GPUs that Triton has deprecated; use x.to(tl.float8e4nv)"
static const struct {
    const char *name, *why;
} refused_names[] = {
    {"convert_custom_float8_sm70", OLD_FLOAT8},
    {"convert_custom_float8_sm80", OLD_FLOAT8},
    {"float8e4b8", "fp8e4b8 is a format of AMD's gfx942 alone; use float8e4nv"},
    {"float8e5b16", "fp8e5b16 is a format of AMD's gfx942 alone; use float8e5"},
    {"float8e4b15", "fp8e4b15 is a format of old GPUs that Triton has deprecated; use float8e4nv"},
    {"fp8e4b8", "fp8e4b8 is a format of AMD's gfx942 alone; use float8e4nv"},
    {"fp8e5b16", "fp8e5b16 is a format of AMD's gfx942 alone; use float8e5"},
    {"fp8e4b15", "fp8e4b15 is a format of old GPUs that Triton has deprecated; use float8e4nv"},
    {"void", "no value in a kernel has this type"},
    {"slice", "a tensor is subscripted by None and `:`"},
    {"constexpr_type", "tl.constexpr is what annotates a constant"},
    {"async_task", "warp specialisation is chosen by the schedule, not by the kernel"},
};

/* Names of types that tl has; the short ones (i32, f16) are names of arguments' types only. */
static bool language_type(const char *name)
{
    return strncmp(name, "int", 3) == 0 || strncmp(name, "uint", 4) == 0 || strncmp(name, "float", 5) == 0 || strcmp(name, "bfloat16") == 0;
}

bool tn_t_constant_member(const char *module, const char *name, tn_py *out, const char **refused)
{
    module = canonical(module);
    *refused = NULL;
    for (size_t i = 0; i < TN_COUNT(integers); i++)
        if (strcmp(integers[i].module, module) == 0 && strcmp(integers[i].name, name) == 0) {
            *out = tn_py_int(integers[i].value);
            return true;
        }
    bool language = strcmp(module, LANGUAGE) == 0;
    if (!language && strcmp(module, LANGUAGE ".extra.cuda") != 0)
        return false;
    tn_dtype dtype = !language ? TN_NO_DTYPE : language_type(name) ? tn_t_dtype_named(name) : strcmp(name, "pi32_t") == 0 ? TN_I32 : TN_NO_DTYPE;
    if (dtype != TN_NO_DTYPE) {
        *out = tn_py_dtype(dtype);
        out->type.pointer = name[0] == 'p';
        return true;
    }
    for (size_t i = 0; i < TN_COUNT(refused_names); i++)
        if (strcmp(refused_names[i].name, name) == 0)
            *refused = refused_names[i].why;
    return false;
}

bool tn_t_is_module(const char *module)
{
    module = canonical(module);
    for (size_t i = 0; i < TN_COUNT(table); i++)
        if (strcmp(table[i].module, module) == 0)
            return true;
    return strcmp(module, NAN_CLASS) == 0;
}

/* ---- binding --------------------------------------------------------------------------------------------------------- */

enum { MOST_PARAMETERS = 16 };
typedef struct parameter {
    const char *name;
    bool starred, keyword_only, optional;
    tn_py otherwise;
} parameter;

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == ',')
        s++;
    return s;
}

/* What a default is written as: None, True, False, a number, a 'string', (). */
static tn_py read_default(tn_tcompiler *c, const char **at)
{
    const char *s = *at;
    size_t n = *s == '\'' ? strcspn(s + 1, "'") + 2 : strcspn(s, ",");
    char *text = tn_strndup(&c->session->arena, s, n);
    *at = s + n;
    if (*s == '\'') {
        text[n - 1] = '\0';
        return (tn_py){.kind = TN_PY_STRING, .text = tn_intern_z(c->session, text + 1), .length = n - 2};
    }
    if (strcmp(text, "()") == 0)
        return (tn_py){.kind = TN_PY_TUPLE};
    if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
        return tn_py_bool(text[0] == 'T');
    return strcmp(text, "None") == 0 ? tn_py_none() : tn_py_int(strtoll(text, NULL, 10));
}

static int read_signature(tn_tcompiler *c, const char *s, parameter *p)
{
    int n = 0;
    bool keyword_only = false;
    for (s = skip_blanks(s); *s; s = skip_blanks(s)) {
        parameter *at = &p[n++];
        *at = (parameter){.starred = *s == '*', .keyword_only = keyword_only};
        s += at->starred;
        size_t length = strcspn(s, ",=");
        at->name = tn_intern(c->session, s, length);
        s += length;
        keyword_only |= at->starred;
        if (*s == '=') {
            s++;
            at->optional = true;
            at->otherwise = read_default(c, &s);
        }
    }
    return n;
}

static bool too_many(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin, const parameter *p, int n, int given)
{
    int positional = 0;
    for (int i = 0; i < n; i++)
        positional += !p[i].keyword_only && !p[i].starred;
    return tn_t_error(c, at, "%s(%s) takes %d positional argument%s, but %d were given", builtin->name, builtin->signature, positional,
                      positional == 1 ? "" : "s", given);
}

static bool bind_positional(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin, const parameter *p, int n, const tn_py *given, int ngiven,
                            tn_py *argument, bool *is_given)
{
    int used = 0;
    for (int i = 0; i < n && !p[i].keyword_only; i++) {
        if (p[i].starred) {
            argument[i] = tn_t_tuple(c, given + used, ngiven - used);
            is_given[i] = ngiven > used;
            used = ngiven;
        } else if (used < ngiven) {
            argument[i] = given[used++];
            is_given[i] = true;
        }
    }
    return used == ngiven || too_many(c, at, builtin, p, n, ngiven);
}

static bool bind_keyword(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin, const parameter *p, int n, const char *name, const tn_py *value,
                         tn_py *argument, bool *is_given)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(p[i].name, name) != 0)
            continue;
        if (p[i].starred && value->kind != TN_PY_TUPLE) /* reshape(x, shape=(2, 4)) is what people write */
            break;
        if (is_given[i])
            return tn_t_error(c, at, "%s() got multiple values for argument '%s'", builtin->name, name);
        argument[i] = *value;
        is_given[i] = true;
        return true;
    }
    if (value->kind == TN_PY_NONE && (strcmp(name, "_semantic") == 0 || strcmp(name, "_builder") == 0)) /* what functions with @tl.core.extern hand on */
        return true;
    return tn_t_error(c, at, "%s() got an unexpected keyword argument '%s'; it is %s(%s)", builtin->name, name, builtin->name, builtin->signature);
}

static bool may_run(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin)
{
    if (c->constants_only && !(builtin->flags & TN_T_CONSTANT))
        return tn_t_error(c, at, "%s() cannot be called here: decorators and default values are evaluated before the kernel runs", builtin->name);
    if (c->scalars_only && !(builtin->flags & TN_T_SCALAR))
        return tn_t_error(c, at, "%s() cannot be called in a combine function, which computes with scalars alone", builtin->name);
    return true;
}

bool tn_t_builtin_call(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin, const tn_py *self, const tn_py *arguments, int n, const char *const *keywords,
                       const tn_py *values, int nkeywords, tn_py *out)
{
    parameter p[MOST_PARAMETERS];
    tn_py argument[MOST_PARAMETERS];
    bool given[MOST_PARAMETERS] = {false};
    tn_py *positional = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)n + 1);
    int np = read_signature(c, builtin->signature, p), npositional = 0;
    if (!may_run(c, at, builtin))
        return false;
    if (self)
        positional[npositional++] = *self;
    for (int i = 0; i < n; i++)
        positional[npositional++] = arguments[i];
    for (int i = 0; i < np; i++)
        argument[i] = p[i].starred ? (tn_py){.kind = TN_PY_TUPLE} : p[i].otherwise;
    if (!bind_positional(c, at, builtin, p, np, positional, npositional, argument, given))
        return false;
    for (int i = 0; i < nkeywords; i++)
        if (!bind_keyword(c, at, builtin, p, np, keywords[i], &values[i], argument, given))
            return false;
    for (int i = 0; i < np; i++)
        if (!given[i] && !p[i].optional && !p[i].starred)
            return tn_t_error(c, at, "%s() misses its argument '%s'; it is %s(%s)", builtin->name, p[i].name, builtin->name, builtin->signature);
    tn_call call = {.node = at, .argument = argument, .given = given, .n = np};
    return builtin->run(c, &call, out);
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

tn_py tn_t_tuple(tn_tcompiler *c, const tn_py *at, int n)
{
    tn_py t = {.kind = TN_PY_TUPLE, .n = n < 0 ? 0 : n};
    t.at = t.n ? tn_memdup(&c->session->arena, at, sizeof *at * (size_t)t.n) : NULL;
    return t;
}

tn_py tn_t_shape_tuple(tn_tcompiler *c, int rank, const int64_t *extents)
{
    tn_py at[TN_TILE_RANK];
    for (int i = 0; i < rank; i++)
        at[i] = tn_py_int(extents[i]);
    return tn_t_tuple(c, at, rank);
}

bool tn_t_tensor_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_tvalue **out)
{
    if (v->kind != TN_PY_TENSOR && !tn_py_is_number(v))
        return tn_t_error(c, at, "%s must be a tensor, found %s", what, tn_t_describe(c, v));
    return tn_t_to_tensor(c, at, v, out);
}

bool tn_t_axis(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int rank, int *out)
{
    int64_t axis;
    if (!tn_t_constant_int(c, at, v, what, &axis))
        return false;
    if (axis < -rank || axis >= rank)
        return tn_t_error(c, at, "%s is %lld, and there are %d axes", what, (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

bool tn_t_ints(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int most, int *n, int64_t *out)
{
    const tn_py *item = tn_t_elements_of(v, n);
    if (*n == 1 && item->kind == TN_PY_TUPLE) /* a starred one that was given a tuple */
        item = tn_t_elements_of(item, n);
    if (*n > most)
        return tn_t_error(c, at, "%s has %d elements, and %d is the most", what, *n, most);
    for (int i = 0; i < *n; i++)
        if (!tn_t_constant_int(c, at, &item[i], what, &out[i]))
            return false;
    return true;
}

bool tn_t_string(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, const char **out)
{
    *out = v->kind == TN_PY_STRING ? v->text : NULL;
    return *out || v->kind == TN_PY_NONE || tn_t_error(c, at, "%s must be a string, found %s", what, tn_t_describe(c, v));
}

bool tn_t_dtype_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_ttype *out)
{
    if (v->kind != TN_PY_DTYPE)
        return tn_t_error(c, at, "%s must be a type as tl.float32, found %s", what, tn_t_describe(c, v));
    *out = (tn_ttype){.dtype = v->type.dtype, .pointer = v->type.pointer};
    return true;
}

bool tn_t_propagate_nan(tn_tcompiler *c, const tn_ast *at, const tn_py *v, bool *all)
{
    *all = false;
    if (v->kind == TN_PY_NONE)
        return true;
    *all = v->kind == TN_PY_INT && v->integer == NAN_ALL;
    return *all || (v->kind == TN_PY_INT && v->integer == NAN_NONE) ||
           tn_t_error(c, at, "propagate_nan must be tl.PropagateNan.ALL or tl.PropagateNan.NONE, found %s", tn_t_describe(c, v));
}

bool tn_t_is_static(const tn_py *v, int64_t value) { return (v->kind == TN_PY_INT || v->kind == TN_PY_BOOL) && v->integer == value; }

/* ---- types as values ------------------------------------------------------------------------------------------------- */

bool tn_bi_constexpr(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    if (!tn_py_is_constant(&call->argument[0]))
        return tn_t_error(c, call->node, "tl.constexpr of what is only known when the kernel runs, %s", tn_t_describe(c, &call->argument[0]));
    *out = call->argument[0];
    out->from_constexpr = true;
    return true;
}

bool tn_bi_pointer_type(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_ttype element = {0};
    if (!tn_t_dtype_argument(c, call->node, &call->argument[0], "the element type of pointer_type", &element))
        return false;
    if (element.pointer || call->argument[0].type.rank)
        return tn_t_refuse(c, call->node, "a pointer to %s: pointers point to numbers", tn_t_describe(c, &call->argument[0]));
    *out = tn_py_dtype(element.dtype);
    out->type.pointer = true;
    return true;
}

bool tn_bi_block_type(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_ttype element;
    int64_t extents[TN_TILE_RANK];
    int rank;
    if (!tn_t_dtype_argument(c, call->node, &call->argument[0], "the element type of block_type", &element) ||
        !tn_t_shape(c, call->node, &call->argument[1], "the shape of block_type", &rank, extents))
        return false;
    *out = tn_py_dtype(element.dtype);
    out->type = element;
    out->type.rank = rank;
    for (int i = 0; i < rank; i++)
        out->type.extent[i] = tn_extent_const(extents[i]);
    return true;
}

bool tn_bi_dtype(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const char *name;
    if (!tn_t_string(c, call->node, &call->argument[0], "the name of a type", &name))
        return false;
    tn_dtype dtype = name ? tn_t_dtype_named(name) : TN_NO_DTYPE;
    *out = tn_py_dtype(dtype);
    return dtype != TN_NO_DTYPE || tn_t_error(c, call->node, "there is no type '%s'", name ? name : "None");
}

bool tn_bi_get_int_dtype(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    static const tn_dtype types[2][4] = {{TN_U8, TN_U16, TN_U32, TN_U64}, {TN_I8, TN_I16, TN_I32, TN_I64}};
    int64_t bits;
    bool is_signed;
    if (!tn_t_constant_int(c, call->node, &call->argument[0], "bitwidth", &bits) || !tn_t_constant_bool(c, call->node, &call->argument[1], "signed", &is_signed))
        return false;
    int at = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    *out = tn_py_dtype(bits == 1 ? TN_BOOL : types[is_signed][at]);
    return bits == 1 || bits == 8 << at || tn_t_error(c, call->node, "there is no integer type of %lld bits", (long long)bits);
}

/* A question about a type. t: the element's. */
#define QUESTION(function, answer)                                                                                                     \
    bool function(tn_tcompiler *c, const tn_call *call, tn_py *out)                                                                    \
    {                                                                                                                                  \
        const tn_ttype *t = &call->argument[0].type;                                                                                   \
        tn_dtype d = t->pointer ? TN_NO_DTYPE : t->dtype;                                                                              \
        (void)c, (void)d;                                                                                                              \
        *out = tn_py_bool(answer);                                                                                                     \
        return true;                                                                                                                   \
    }
static bool is_integer(tn_dtype d) { return d != TN_NO_DTYPE && (d == TN_BOOL || tn_is_integer(d)); }
static bool is_signed(tn_dtype d) { return d != TN_NO_DTYPE && tn_dtype_class(d) == TN_CLASS_INT; }
QUESTION(tn_bi_is_floating, d != TN_NO_DTYPE && tn_is_float(d))
QUESTION(tn_bi_is_standard_floating, d != TN_NO_DTYPE && tn_is_float(d) && tn_dtype_bits(d) > 8)
QUESTION(tn_bi_is_int, is_integer(d))
QUESTION(tn_bi_is_int_signed, is_signed(d))
QUESTION(tn_bi_is_int_unsigned, is_integer(d) && !is_signed(d))
QUESTION(tn_bi_is_int1, d == TN_BOOL)
QUESTION(tn_bi_is_int8, d == TN_I8)
QUESTION(tn_bi_is_int16, d == TN_I16)
QUESTION(tn_bi_is_int32, d == TN_I32)
QUESTION(tn_bi_is_int64, d == TN_I64)
QUESTION(tn_bi_is_uint8, d == TN_U8)
QUESTION(tn_bi_is_uint16, d == TN_U16)
QUESTION(tn_bi_is_uint32, d == TN_U32)
QUESTION(tn_bi_is_uint64, d == TN_U64)
QUESTION(tn_bi_is_fp16, d == TN_F16)
QUESTION(tn_bi_is_bf16, d == TN_BF16)
QUESTION(tn_bi_is_fp32, d == TN_F32)
QUESTION(tn_bi_is_fp64, d == TN_F64)
QUESTION(tn_bi_is_fp8, d == TN_F8E4M3 || d == TN_F8E5M2)
QUESTION(tn_bi_is_never, false)
QUESTION(tn_bi_is_fp8e4nv, d == TN_F8E4M3)
QUESTION(tn_bi_is_fp8e5, d == TN_F8E5M2)
QUESTION(tn_bi_is_ptr, t->pointer && !t->rank)
QUESTION(tn_bi_is_block, t->rank > 0)

/* Of an integer type; sign: the least. */
static bool bound_of_type(tn_tcompiler *c, const tn_call *call, bool least, tn_py *out)
{
    const tn_ttype *t = &call->argument[0].type;
    if (t->pointer || !is_integer(t->dtype))
        return tn_t_error(c, call->node, "%s has no greatest and least integer", tn_t_describe(c, &call->argument[0]));
    int bits = t->dtype == TN_BOOL ? 1 : tn_dtype_bits(t->dtype) - is_signed(t->dtype);
    *out = tn_py_int(!least ? ((__int128)1 << bits) - 1 : is_signed(t->dtype) ? -((__int128)1 << bits) : 0);
    return true;
}

bool tn_bi_int_max(tn_tcompiler *c, const tn_call *call, tn_py *out) { return bound_of_type(c, call, false, out); }
bool tn_bi_int_min(tn_tcompiler *c, const tn_call *call, tn_py *out) { return bound_of_type(c, call, true, out); }

/* ---- attributes ------------------------------------------------------------------------------------------------------ */

static tn_py type_value(tn_ttype type) { return (tn_py){.kind = TN_PY_DTYPE, .type = type}; }

static tn_py element_of(const tn_ttype *type) { return type_value((tn_ttype){.dtype = type->dtype, .pointer = type->pointer}); }

static tn_py extents_of(tn_tcompiler *c, const tn_ttype *type)
{
    int64_t extents[TN_TILE_RANK];
    for (int i = 0; i < type->rank; i++)
        extents[i] = type->extent[i].size;
    return tn_t_shape_tuple(c, type->rank, extents);
}

static int bits_of(const tn_ttype *type) { return type->pointer ? 64 : type->dtype == TN_BOOL ? 1 : tn_dtype_bits(type->dtype); }

static int mantissa_of(tn_dtype dtype)
{
    static const int bits[TN_DTYPE_COUNT] = {[TN_F8E4M3] = 3, [TN_F8E5M2] = 2, [TN_F16] = 10, [TN_BF16] = 7, [TN_F32] = 23, [TN_F64] = 52};
    return bits[dtype];
}

/* The tile of a block pointer or descriptor. */
static tn_ttype tile_of(const tn_py_block *block)
{
    tn_ttype type = {.dtype = block->base->type.dtype, .rank = block->rank};
    for (int i = 0; i < block->rank; i++)
        type.extent[i] = tn_extent_const(block->extent[i]);
    return type;
}

typedef struct attribute {
    const char *name;
    bool found;
    tn_py value;
} attribute;

static bool is(attribute *a, const char *name) { return strcmp(a->name, name) == 0 && (a->found = true); }

static void type_attribute(tn_tcompiler *c, const tn_py *self, attribute *a)
{
    const tn_ttype *t = &self->type;
    if (is(a, "element_ty")) {
        bool is_block = t->rank > 0;
        a->value = self->block ? type_value(tile_of(self->block)) : is_block ? element_of(t) : tn_py_dtype(t->dtype);
    } else if (is(a, "scalar")) {
        a->value = element_of(t);
    } else if (is(a, "shape")) {
        a->value = extents_of(c, t);
    } else if (is(a, "numel")) {
        a->value = tn_py_int(tn_t_elements(t));
    } else if (is(a, "primitive_bitwidth")) {
        a->value = tn_py_int(bits_of(t));
    } else if (is(a, "nbytes") && t->rank) {
        a->value = tn_py_int(tn_t_elements(t) * ((bits_of(t) + 7) / 8));
    } else if (is(a, "itemsize")) {
        a->value = tn_py_int((bits_of(t) + 7) / 8);
    } else if (is(a, "int_bitwidth") && is_integer(t->dtype)) {
        a->value = tn_py_int(bits_of(t));
    } else if (is(a, "fp_mantissa_width") && tn_is_float(t->dtype)) {
        a->value = tn_py_int(mantissa_of(t->dtype));
    } else if (is(a, "name")) {
        a->value = (tn_py){.kind = TN_PY_STRING, .text = tn_t_type_name(c, t)};
        a->value.length = strlen(a->value.text);
    } else {
        a->found = false;
    }
}

static tn_py tuple_of_tensors(tn_tcompiler *c, tn_tvalue *const *at, int n)
{
    tn_py items[TN_TILE_RANK];
    for (int i = 0; i < n; i++)
        items[i] = tn_py_tensor(at[i]);
    return tn_t_tuple(c, items, n);
}

static void block_attribute(tn_tcompiler *c, const tn_py *self, attribute *a)
{
    const tn_py_block *block = self->block;
    tn_ttype tile = tile_of(block), pointer = {.dtype = tile.dtype, .pointer = true};
    bool descriptor = self->kind == TN_PY_DESCRIPTOR;
    if (is(a, "dtype")) {
        a->value = descriptor ? tn_py_dtype(tile.dtype) : type_value(pointer);
        a->value.block = descriptor ? NULL : block;
    } else if (is(a, "type") && !descriptor) {
        a->value = type_value(pointer);
        a->value.block = block;
    } else if (is(a, "shape") && descriptor) {
        a->value = tuple_of_tensors(c, block->shape, block->rank);
    } else if (is(a, "strides") && descriptor) {
        a->value = tuple_of_tensors(c, block->stride, block->rank);
    } else if (is(a, "block_shape") && descriptor) {
        a->value = tn_t_shape_tuple(c, block->rank, block->extent);
    } else if (is(a, "block_type") && descriptor) {
        a->value = type_value(tile);
    } else {
        a->found = false;
    }
}

static bool tensor_attribute(tn_tcompiler *c, const tn_ast *at, tn_tvalue *v, attribute *a)
{
    const tn_ttype *t = &v->type;
    if (is(a, "shape")) {
        a->value = extents_of(c, t);
    } else if (is(a, "dtype")) {
        a->value = element_of(t);
    } else if (is(a, "type")) {
        a->value = type_value(*t);
    } else if (is(a, "numel")) {
        a->value = tn_py_int(tn_t_elements(t));
    } else if (is(a, "T")) {
        if (t->rank != 2)
            return tn_t_error(c, at, "T is of two axes, this tensor has the shape %s; use tl.permute", tn_t_shape_text(c, t));
        a->value = tn_py_tensor(tn_t_permute(&c->b, v, (int[]){1, 0}));
    }
    return true;
}

bool tn_t_tensor_attribute(tn_tcompiler *c, const tn_ast *at, const tn_py *self, const char *name, tn_py *out)
{
    attribute a = {.name = name};
    const char *there = "shape, dtype, type, T and numel";
    tn_tvalue *v;
    if (self->kind == TN_PY_DTYPE) {
        there = "element_ty, scalar, shape, numel, primitive_bitwidth, int_bitwidth, fp_mantissa_width, itemsize, name and questions as is_floating()";
        type_attribute(c, self, &a);
    } else if (self->kind == TN_PY_BLOCK_POINTER || self->kind == TN_PY_DESCRIPTOR) {
        there = self->kind == TN_PY_DESCRIPTOR ? "shape, strides, block_shape, block_type and dtype" : "type and dtype";
        block_attribute(c, self, &a);
    } else if (!tn_t_to_tensor(c, at, self, &v) || !tensor_attribute(c, at, v, &a)) {
        return false;
    }
    *out = a.value;
    return a.found || tn_t_error(c, at, "%s has no attribute '%s'; there are %s", tn_t_describe(c, self), name, there);
}

/* ---- subscripts ------------------------------------------------------------------------------------------------------ */

static bool full_slice(const tn_py *v)
{
    bool full = v->kind == TN_PY_SLICE;
    for (int i = 0; full && i < 3; i++)
        full = v->at[i].kind == TN_PY_NONE;
    return full;
}

bool tn_t_tensor_subscript(tn_tcompiler *c, const tn_ast *at, const tn_py *self, const tn_py *index, tn_py *out)
{
    int n, axes = 0;
    const tn_py *item = tn_t_elements_of(index, &n);
    tn_tvalue *v;
    if (!tn_t_tensor_argument(c, at, self, "what is subscripted", &v))
        return false;
    for (int i = 0; i < n; i++)
        axes += full_slice(&item[i]);
    if (axes > v->type.rank)
        return tn_t_error(c, at, "%d subscripts `:` of a tensor with the shape %s", axes, tn_t_shape_text(c, &v->type));
    for (int i = 0; i < n; i++) {
        if (full_slice(&item[i]))
            continue;
        if (item[i].kind != TN_PY_NONE)
            return tn_t_error(c, at, "a tensor is subscripted by None and `:` only, found %s; single elements come from tl.gather, or from a reduction of tl.where",
                              tn_t_describe(c, &item[i]));
        if (!tn_t_expand_dims(c, at, v, i, &v))
            return false;
    }
    *out = tn_py_tensor(v);
    return true;
}
