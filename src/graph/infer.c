/* Type rules: one function infer_RULE for each rule named in ops.def. A rule checks the constraints of StableHLO's
 * specification, under its labels (`reverse C2`), and writes the result types.
 *
 * Sizes that are proven different are an error; sizes that are neither proven equal nor different become a fact in
 * graph->equal, which a run checks before it starts. The same serves inequalities: a <= b is min(a, b) = a. */
#include "graph/internal.h"

#include <assert.h>
#include <string.h>

struct infer {
    tn_session *session;
    tn_graph *graph;
    const tn_op *op;
    const char *name;
    bool record;
    tn_type *result;
    int nresults, capacity;
};

/* ---- reporting ------------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static bool bad(struct infer *x, const char *label, const char *format, ...)
{
    va_list args;
    tn_text text = {.arena = &x->session->arena};
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    tn_error(x->session, TN_INVALID, x->op->loc, "%s%s%s: %s", x->name, *label ? " " : "", label, text.at);
    return false;
}

static const char *text_type(struct infer *x, const tn_type *type)
{
    tn_text text = {.arena = &x->session->arena};
    tn_text_type(&text, type);
    return text.at;
}

static const char *text_dim(struct infer *x, tn_dim d)
{
    tn_text text = {.arena = &x->session->arena};
    tn_text_dim(&text, d);
    return text.at;
}

static const char *text_dims(struct infer *x, const tn_dim *dims, int n)
{
    tn_text text = {.arena = &x->session->arena};
    tn_text_dims(&text, dims, n);
    return text.at;
}

static const char *text_ints(struct infer *x, const int64_t *ints, int n)
{
    tn_text text = {.arena = &x->session->arena};
    tn_text_add(&text, "[");
    for (int i = 0; i < n; i++)
        tn_text_add(&text, "%s%lld", i ? ", " : "", (long long)ints[i]);
    tn_text_add(&text, "]");
    return text.at;
}

/* ---- common checks ---------------------------------------------------------------------------------------------------------- */

static tn_session *session_of(struct infer *x) { return x->session; }
static const tn_type *type_of(struct infer *x, int i) { return &x->op->operand[i].value->type; }
static tn_dim constant(struct infer *x, int64_t value) { return tn_dim_const(x->session, value); }

static void add_result(struct infer *x, tn_type type)
{
    if (x->nresults == x->capacity) {
        int capacity = x->capacity ? 2 * x->capacity : 2;
        tn_type *bigger = TN_NEW_ARRAY(&x->session->arena, tn_type, (size_t)capacity);
        if (x->nresults)
            memcpy(bigger, x->result, (size_t)x->nresults * sizeof *bigger);
        x->result = bigger;
        x->capacity = capacity;
    }
    x->result[x->nresults++] = type;
}

void tn_record_equal(tn_graph *graph, tn_loc loc, tn_dim a, tn_dim b)
{
    for (size_t i = 0; i < graph->equal.len; i++)
        if ((graph->equal.at[i].a == a && graph->equal.at[i].b == b) || (graph->equal.at[i].a == b && graph->equal.at[i].b == a))
            return;
    TN_PUSH(&graph->session->arena, &graph->equal, (struct tn_dim_equal){a, b, loc, NULL});
}

void tn_require_equal(tn_builder *b, tn_dim x, tn_dim y, const char *why)
{
    if (!tn_dim_eq(b->graph->session, x, y))
        TN_PUSH(&b->graph->session->arena, &b->graph->equal, (struct tn_dim_equal){x, y, b->loc, why});
}

static bool dims_may_equal(struct infer *x, tn_dim a, tn_dim b)
{
    if (tn_dim_eq(x->session, a, b))
        return true;
    if (tn_dim_ne(x->session, a, b))
        return false;
    if (x->record)
        tn_record_equal(x->graph, x->op->loc, a, b);
    return true;
}

static bool dim_may_be_at_most(struct infer *x, tn_dim a, tn_dim b)
{
    tn_dim more = tn_dim_add(x->session, b, constant(x, 1));
    if (tn_dim_le(x->session, a, b))
        return true;
    if (tn_dim_le(x->session, more, a))
        return false;
    if (x->record)
        tn_record_equal(x->graph, x->op->loc, tn_dim_min(x->session, a, b), a);
    return true;
}

static tn_dim better(tn_dim a, tn_dim b) { return tn_dim_is_const(b) ? b : a; }

/* Same shapes; *into (may be a) takes the better known of each pair of sizes. */
static bool same_shape(struct infer *x, const char *label, const char *what_a, const tn_type *a, const char *what_b,
                       const tn_type *b, tn_type *into)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = dims_may_equal(x, a->dim[i], b->dim[i]);
    if (!same)
        return bad(x, label, "%s and %s must have the same shape, found %s and %s", what_a, what_b, text_type(x, a), text_type(x, b));
    for (int i = 0; into && i < a->rank; i++)
        into->dim[i] = better(a->dim[i], b->dim[i]);
    return true;
}

static bool same_dtype(struct infer *x, const char *label, const char *what_a, tn_dtype a, const char *what_b, tn_dtype b)
{
    return a == b || bad(x, label, "%s and %s must have the same element type, found %s and %s; convert one of them", what_a,
                         what_b, tn_dtype_text(a), tn_dtype_text(b));
}

static bool same_type(struct infer *x, const char *label, const char *what_a, const tn_type *a, const char *what_b, const tn_type *b)
{
    return same_dtype(x, label, what_a, a->dtype, what_b, b->dtype) && same_shape(x, label, what_a, a, what_b, b, NULL);
}

static bool is_scalar(struct infer *x, const char *label, const char *what, const tn_type *type, tn_dtype dtype)
{
    return (type->rank == 0 && type->dtype == dtype) ||
           bad(x, label, "%s must be %s[], found %s", what, tn_dtype_text(dtype), text_type(x, type));
}

static bool has_size(struct infer *x, const char *label, const char *what, int found, int expected)
{
    return found == expected || bad(x, label, "%s must have %d entries, found %d", what, expected, found);
}

static const int64_t *ints_of(struct infer *x, tn_attr_name name, int *n) { return tn_attr_ints(x->op, name, n); }

/* Every entry in [0, limit). */
static bool in_range(struct infer *x, const char *label, const char *what, const int64_t *list, int n, int64_t limit)
{
    for (int i = 0; i < n; i++)
        if (list[i] < 0 || list[i] >= limit)
            return bad(x, label, "%s must lie in [0, %lld), found %s", what, (long long)limit, text_ints(x, list, n));
    return true;
}

static bool contains(const int64_t *list, int n, int64_t value)
{
    for (int i = 0; i < n; i++)
        if (list[i] == value)
            return true;
    return false;
}

static bool unique(struct infer *x, const char *label, const char *what, const int64_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (contains(list, i, list[i]))
            return bad(x, label, "%s must be unique, found %s; remove the second %lld", what, text_ints(x, list, n),
                       (long long)list[i]);
    return true;
}

static bool disjoint(struct infer *x, const char *label, const char *what_a, const int64_t *a, int na, const char *what_b,
                     const int64_t *b, int nb)
{
    for (int i = 0; i < na; i++)
        if (contains(b, nb, a[i]))
            return bad(x, label, "%s %s and %s %s must not share a dimension, both have %lld", what_a, text_ints(x, a, na), what_b,
                       text_ints(x, b, nb), (long long)a[i]);
    return unique(x, label, what_a, a, na) && unique(x, label, what_b, b, nb);
}

static bool sorted(struct infer *x, const char *label, const char *what, const int64_t *list, int n)
{
    for (int i = 1; i < n; i++)
        if (list[i] < list[i - 1])
            return bad(x, label, "%s must be sorted, found %s", what, text_ints(x, list, n));
    return true;
}

static bool at_least(struct infer *x, const char *label, const char *what, const int64_t *list, int n, int64_t least)
{
    for (int i = 0; i < n; i++)
        if (list[i] < least || list[i] > INT32_MAX)
            return bad(x, label, "%s must be %s and below 2^31, found %s", what, least ? "positive" : "at least 0",
                       text_ints(x, list, n));
    return true;
}

tn_op *tn_block_return(const tn_block *block)
{
    return block->last && block->last->code == TN_OP_return ? block->last : NULL;
}

/* A region (T1, T2, …) -> (R1, …); result == NULL: what it returns is not checked. */
static bool region_is(struct infer *x, const char *label, int region, const tn_type *arg, int nargs, const tn_type *result, int nresults)
{
    const tn_block *block = x->op->region[region];
    const tn_op *end = tn_block_return(block);
    if (!end)
        return bad(x, label, "region %d must end with `return`", region);
    if (block->nargs != nargs)
        return bad(x, label, "region %d must have %d arguments, found %d", region, nargs, block->nargs);
    for (int i = 0; i < nargs; i++)
        if (!same_type(x, label, tn_format(&x->session->arena, "argument %d of region %d", i, region), &block->arg[i]->type,
                       "what it is given", &arg[i]))
            return false;
    if (result && end->noperands != nresults)
        return bad(x, label, "region %d must return %d values, found %d", region, nresults, end->noperands);
    for (int i = 0; result && i < nresults; i++)
        if (!same_type(x, label, tn_format(&x->session->arena, "value %d returned by region %d", i, region),
                       &end->operand[i].value->type, "what is expected of it", &result[i]))
            return false;
    return true;
}

/* Region 0 combines scalars: (E1…En, E1…En) -> (E1…En), Ei the element type of operand i. */
static bool region_combines(struct infer *x, const char *label, int region, int n)
{
    tn_type *arg = TN_NEW_ARRAY(&x->session->arena, tn_type, 2 * (size_t)n);
    for (int i = 0; i < n; i++)
        arg[i] = arg[n + i] = tn_type_scalar(type_of(x, i)->dtype);
    return region_is(x, label, region, arg, 2 * n, arg, n);
}

bool tn_check_type(tn_graph *graph, tn_loc loc, const char *what, const tn_type *type, bool record)
{
    tn_session *session = graph->session;
    tn_text text = {.arena = &session->arena};
    int64_t bits = tn_dtype_bits(type->dtype);
    bool fits = true;
    for (int i = 0; i < type->rank; i++) {
        tn_dim d = type->dim[i];
        if (d->hi < 0) {
            tn_text_type(&text, type);
            tn_error(session, TN_INVALID, loc, "%s: size %d of %s is negative", what, i, text.at);
            return false;
        }
        if (d->lo < 0 && record)
            tn_record_equal(graph, loc, tn_dim_max(session, d, tn_dim_const(session, 0)), d);
        fits = fits && tn_mul(bits, tn_max(d->lo, 1), &bits) && bits <= 8 * TN_MAX_TENSOR_BYTES;
    }
    if (!fits) {
        tn_text_type(&text, type);
        tn_error(session, TN_UNSUPPORTED, loc, "%s: %s needs more than 2^47 bytes", what, text.at);
    }
    return fits;
}

/* ---- elementwise ------------------------------------------------------------------------------------------------------------- */

static const char *class_names(struct infer *x, tn_scalar fn)
{
    static const tn_dtype example[] = {TN_BOOL, TN_I32, TN_U32, TN_F32, TN_C64};
    static const char *const name[] = {"bool", "signed integers", "unsigned integers", "floats", "complex numbers"};
    tn_text text = {.arena = &x->session->arena};
    tn_text_put(&text, "", 0);
    for (size_t i = 0; i < TN_COUNT(example); i++)
        if (tn_scalar_accepts(fn, example[i]))
            tn_text_add(&text, "%s%s", text.len ? ", " : "", name[i]);
    return text.at;
}

static bool infer_elementwise(struct infer *x)
{
    tn_scalar fn = tn_op_row_of(x->op->code)->scalar;
    tn_type type = *type_of(x, 0);
    for (int i = 1; i < x->op->noperands; i++)
        if (!same_dtype(x, "C1", "operand 0", type.dtype, "the others", type_of(x, i)->dtype) ||
            !same_shape(x, "C1", "operand 0", &type, "the others", type_of(x, i), &type))
            return false;
    if (!tn_scalar_accepts(fn, type.dtype))
        return bad(x, "I1", "operands must be of %s, found %s", class_names(x, fn), tn_dtype_text(type.dtype));
    type.dtype = tn_scalar_result(fn, type.dtype);
    add_result(x, type);
    return true;
}

static bool infer_compare(struct infer *x)
{
    const char *direction = tn_find_attr(x->op, TN_A_direction)->s;
    tn_type type = *type_of(x, 0);
    tn_scalar fn;
    if (!tn_compare_scalar(direction, &fn))
        return bad(x, "I3", "direction must be EQ, NE, GE, GT, LE or LT, found '%s'", direction);
    if (!same_dtype(x, "C1", "operand 0", type.dtype, "operand 1", type_of(x, 1)->dtype) ||
        !same_shape(x, "C2", "operand 0", &type, "operand 1", type_of(x, 1), &type))
        return false;
    if (!tn_scalar_accepts(fn, type.dtype))
        return bad(x, "C3", "%s does not order %s; only EQ and NE compare them", direction, tn_dtype_text(type.dtype));
    if (tn_attr_int(x->op, TN_A_total_order, 0) && !tn_is_float(type.dtype))
        return bad(x, "C3", "total_order is for floats, found %s", tn_dtype_text(type.dtype));
    type.dtype = TN_BOOL;
    add_result(x, type);
    return true;
}

static bool infer_select(struct infer *x)
{
    tn_type type = *type_of(x, 1);
    if (type_of(x, 0)->dtype != TN_BOOL)
        return bad(x, "I1", "the predicate must be bool, found %s", text_type(x, type_of(x, 0)));
    if (!same_dtype(x, "C2", "operand 1", type.dtype, "operand 2", type_of(x, 2)->dtype) ||
        !same_shape(x, "C2", "operand 1", &type, "operand 2", type_of(x, 2), &type))
        return false;
    if (type_of(x, 0)->rank > 0 && !same_shape(x, "C1", "operand 1", &type, "the predicate", type_of(x, 0), &type))
        return false;
    add_result(x, type);
    return true;
}

static bool infer_clamp(struct infer *x)
{
    tn_type type = *type_of(x, 1);
    static const char *const label[] = {"C1", "", "C2"};
    for (int i = 0; i < 3; i += 2) {
        if (!same_dtype(x, "C3", "the operand", type.dtype, i ? "max" : "min", type_of(x, i)->dtype))
            return false;
        if (type_of(x, i)->rank > 0 && !same_shape(x, label[i], "the operand", &type, i ? "max" : "min", type_of(x, i), &type))
            return false;
    }
    if (!tn_scalar_accepts(TN_S_clamp, type.dtype))
        return bad(x, "I1", "operands must be of %s, found %s", class_names(x, TN_S_clamp), tn_dtype_text(type.dtype));
    add_result(x, type);
    return true;
}

static bool infer_complex(struct infer *x)
{
    tn_type type = *type_of(x, 0);
    if (!same_dtype(x, "C1", "operand 0", type.dtype, "operand 1", type_of(x, 1)->dtype) ||
        !same_shape(x, "C1", "operand 0", &type, "operand 1", type_of(x, 1), &type))
        return false;
    if (type.dtype != TN_F32 && type.dtype != TN_F64)
        return bad(x, "I1", "operands must be f32 or f64, found %s", tn_dtype_text(type.dtype));
    type.dtype = type.dtype == TN_F32 ? TN_C64 : TN_C128;
    add_result(x, type);
    return true;
}

static bool infer_convert(struct infer *x)
{
    tn_type type = *type_of(x, 0);
    type.dtype = (tn_dtype)tn_attr_int(x->op, TN_A_dtype, 0);
    add_result(x, type);
    return true;
}

static bool infer_bitcast_convert(struct infer *x)
{
    tn_type type = *type_of(x, 0);
    tn_dtype to = (tn_dtype)tn_attr_int(x->op, TN_A_dtype, 0);
    int from_bits = tn_dtype_bits(type.dtype), to_bits = tn_dtype_bits(to);
    if (tn_is_complex(type.dtype) != tn_is_complex(to) || (type.dtype == TN_BOOL) != (to == TN_BOOL))
        return bad(x, "C2", "%s cannot be read as %s", tn_dtype_text(type.dtype), tn_dtype_text(to));
    if (from_bits > to_bits) {
        if (type.rank == TN_MAX_RANK)
            return bad(x, "C1", "the result would have more than %d dimensions", TN_MAX_RANK);
        type.dim[type.rank++] = constant(x, from_bits / to_bits);
    } else if (from_bits < to_bits) {
        if (type.rank == 0 || !dims_may_equal(x, type.dim[type.rank - 1], constant(x, to_bits / from_bits)))
            return bad(x, "C1", "the last size must be %d to form one %s, found %s", to_bits / from_bits, tn_dtype_text(to),
                       text_type(x, &type));
        type.rank--;
    }
    type.dtype = to;
    add_result(x, type);
    return true;
}

static bool check_cholesky(struct infer *x)
{
    const tn_type *a = type_of(x, 0);
    if (!tn_is_float(a->dtype) && !tn_is_complex(a->dtype))
        return bad(x, "I1", "the operand must be of floats or complex numbers, found %s", tn_dtype_text(a->dtype));
    if (a->rank < 2)
        return bad(x, "C2", "the operand must have at least 2 dimensions, found %s", text_type(x, a));
    return dims_may_equal(x, a->dim[a->rank - 2], a->dim[a->rank - 1]) ||
           bad(x, "C3", "the last two sizes must be equal, found %s", text_type(x, a));
}

static bool check_reduce_precision(struct infer *x)
{
    int64_t exponent = tn_attr_int(x->op, TN_A_exponent_bits, 0), mantissa = tn_attr_int(x->op, TN_A_mantissa_bits, 0);
    if (!tn_is_float(type_of(x, 0)->dtype))
        return bad(x, "I1", "the operand must be of floats, found %s", tn_dtype_text(type_of(x, 0)->dtype));
    if (exponent < 1 || exponent > 64)
        return bad(x, "C2", "exponent_bits must be at least 1, found %lld", (long long)exponent);
    return (mantissa >= 0 && mantissa <= 64) || bad(x, "C3", "mantissa_bits must be at least 0, found %lld", (long long)mantissa);
}

static bool infer_same(struct infer *x)
{
    if (x->op->code == TN_OP_cholesky && !check_cholesky(x))
        return false;
    if (x->op->code == TN_OP_reduce_precision && !check_reduce_precision(x))
        return false;
    for (int i = 0; i < x->op->noperands; i++)
        add_result(x, *type_of(x, i));
    return true;
}

/* ---- sources ------------------------------------------------------------------------------------------------------------------ */

static bool infer_constant(struct infer *x)
{
    const tn_tensor *value = tn_find_attr(x->op, TN_A_value)->tensor;
    tn_type type = {.dtype = value->dtype, .rank = value->rank};
    for (int i = 0; i < value->rank; i++)
        type.dim[i] = constant(x, value->dim[i]);
    add_result(x, type);
    return true;
}

static bool shape_attr(struct infer *x, tn_attr_name name, tn_dtype dtype, tn_type *out)
{
    int n;
    const tn_dim *dims = tn_attr_dims(x->op, name, &n);
    if (n > TN_MAX_RANK)
        return bad(x, "", "%s has %d dimensions; the most is %d", tn_attr_text(name), n, TN_MAX_RANK);
    *out = tn_type_make(dtype, n, dims);
    return true;
}

static bool infer_shaped(struct infer *x)
{
    tn_type type;
    int64_t axis = tn_attr_int(x->op, TN_A_iota_dimension, 0);
    if (!shape_attr(x, TN_A_shape, (tn_dtype)tn_attr_int(x->op, TN_A_dtype, 0), &type))
        return false;
    if (type.dtype == TN_BOOL)
        return bad(x, "I1", "the element type must be a number, found bool");
    if (!in_range(x, "C1", "iota_dimension", &axis, 1, type.rank))
        return false;
    add_result(x, type);
    return true;
}

static bool infer_index_scalar(struct infer *x)
{
    add_result(x, tn_type_scalar(TN_I64));
    return true;
}

static bool infer_define_dimension(struct infer *x)
{
    tn_dim dim = tn_find_attr(x->op, TN_A_dim)->dim;
    if (dim->kind != TN_DIM_SYMBOL)
        return bad(x, "", "dim must be one symbol, found %s", text_dim(x, dim));
    return is_scalar(x, "", "the operand", type_of(x, 0), TN_I64);
}

static bool infer_rng_bit_generator(struct infer *x)
{
    const char *algorithm = tn_find_attr(x->op, TN_A_algorithm)->s;
    tn_type type;
    if (strcmp(algorithm, "DEFAULT") && strcmp(algorithm, "THREE_FRY") && strcmp(algorithm, "PHILOX"))
        return bad(x, "I1", "algorithm must be DEFAULT, THREE_FRY or PHILOX, found '%s'", algorithm);
    if (type_of(x, 0)->rank != 1 || type_of(x, 0)->dtype != TN_U64)
        return bad(x, "I2", "the state must be u64[2] or u64[3], found %s", text_type(x, type_of(x, 0)));
    if (!shape_attr(x, TN_A_shape, (tn_dtype)tn_attr_int(x->op, TN_A_dtype, 0), &type))
        return false;
    if (!tn_is_integer(type.dtype) && !tn_is_float(type.dtype))
        return bad(x, "", "dtype must be an integer or float type, found %s", tn_dtype_text(type.dtype));
    add_result(x, *type_of(x, 0));
    add_result(x, type);
    return true;
}

/* ---- data movement -------------------------------------------------------------------------------------------------------------- */

static bool infer_broadcast_in_dim(struct infer *x)
{
    const tn_type *from = type_of(x, 0);
    tn_type type;
    int n;
    const int64_t *map = ints_of(x, TN_A_broadcast_dimensions, &n);
    if (!shape_attr(x, TN_A_shape, from->dtype, &type) || !has_size(x, "C2", "broadcast_dimensions", n, from->rank) ||
        !in_range(x, "C3", "broadcast_dimensions", map, n, type.rank) || !unique(x, "C4", "broadcast_dimensions", map, n))
        return false;
    for (int i = 0; i < n; i++)
        if (!tn_dim_is(from->dim[i], 1) && !dims_may_equal(x, from->dim[i], type.dim[map[i]]))
            return bad(x, "C5", "size %d of %s must be 1 or that of dimension %lld of %s", i, text_type(x, from),
                       (long long)map[i], text_type(x, &type));
    add_result(x, type);
    return true;
}

static bool infer_reshape(struct infer *x)
{
    const tn_type *from = type_of(x, 0);
    tn_type type;
    if (!shape_attr(x, TN_A_shape, from->dtype, &type))
        return false;
    tn_dim before = tn_type_elements(x->session, from), after = tn_type_elements(x->session, &type);
    if (!dims_may_equal(x, before, after))
        return bad(x, "C2", "the number of elements must stay: %s has %s, %s would have %s", text_type(x, from), text_dim(x, before),
                   text_type(x, &type), text_dim(x, after));
    add_result(x, type);
    return true;
}

static bool infer_transpose(struct infer *x)
{
    const tn_type *from = type_of(x, 0);
    tn_type type = *from;
    int n;
    const int64_t *permutation = ints_of(x, TN_A_permutation, &n);
    if (!has_size(x, "C2", "permutation", n, from->rank) || !in_range(x, "C2", "permutation", permutation, n, from->rank) ||
        !unique(x, "C2", "permutation", permutation, n))
        return false;
    for (int i = 0; i < n; i++)
        type.dim[i] = from->dim[permutation[i]];
    add_result(x, type);
    return true;
}

static bool infer_slice(struct infer *x)
{
    tn_type type = *type_of(x, 0);
    int nstart, nlimit, nstrides;
    const tn_dim *start = tn_attr_dims(x->op, TN_A_start, &nstart), *limit = tn_attr_dims(x->op, TN_A_limit, &nlimit);
    const int64_t *strides = ints_of(x, TN_A_strides, &nstrides);
    if (!has_size(x, "C2", "start", nstart, type.rank) || !has_size(x, "C2", "limit", nlimit, type.rank) ||
        !has_size(x, "C2", "strides", nstrides, type.rank) || !at_least(x, "C4", "strides", strides, nstrides, 1))
        return false;
    for (int i = 0; i < type.rank; i++) {
        if (!dim_may_be_at_most(x, constant(x, 0), start[i]) || !dim_may_be_at_most(x, start[i], limit[i]) ||
            !dim_may_be_at_most(x, limit[i], type.dim[i]))
            return bad(x, "C3", "0 <= start <= limit <= size must hold, found start %s, limit %s, size %s in dimension %d",
                       text_dim(x, start[i]), text_dim(x, limit[i]), text_dim(x, type.dim[i]), i);
        type.dim[i] = tn_dim_ceildiv(x->session, tn_dim_sub(x->session, limit[i], start[i]), constant(x, strides[i]));
    }
    add_result(x, type);
    return true;
}

/* Size with `dilation - 1` holes between elements: 0 stays 0. */
static tn_dim dilated(struct infer *x, tn_dim size, int64_t dilation)
{
    tn_session *s = session_of(x);
    if (dilation == 1 || tn_dim_is(size, 0))
        return size;
    tn_dim gaps = tn_dim_mul(s, tn_dim_sub(s, size, constant(x, 1)), constant(x, dilation));
    tn_dim all = tn_dim_add(s, gaps, constant(x, 1));
    return size->lo >= 1 ? all : tn_dim_max(s, all, constant(x, 0));
}

static bool infer_pad(struct infer *x)
{
    tn_session *s = session_of(x);
    tn_type type = *type_of(x, 0);
    int nlow, nhigh, ninterior;
    const tn_dim *low = tn_attr_dims(x->op, TN_A_low, &nlow), *high = tn_attr_dims(x->op, TN_A_high, &nhigh);
    const int64_t *interior = ints_of(x, TN_A_interior, &ninterior);
    if (!same_dtype(x, "C1", "the operand", type.dtype, "the padding value", type_of(x, 1)->dtype))
        return false;
    if (type_of(x, 1)->rank != 0)
        return bad(x, "I2", "the padding value must be a scalar, found %s", text_type(x, type_of(x, 1)));
    if (!has_size(x, "C2", "low", nlow, type.rank) || !has_size(x, "C2", "high", nhigh, type.rank) ||
        !has_size(x, "C2", "interior", ninterior, type.rank) || !at_least(x, "C3", "interior", interior, ninterior, 0))
        return false;
    for (int i = 0; i < type.rank; i++)
        type.dim[i] = tn_dim_add(s, tn_dim_add(s, low[i], high[i]), dilated(x, type.dim[i], interior[i] + 1));
    add_result(x, type);
    return true;
}

static bool infer_reverse(struct infer *x)
{
    int n;
    const int64_t *dimensions = ints_of(x, TN_A_dimensions, &n);
    if (!unique(x, "C2", "dimensions", dimensions, n) || !in_range(x, "C3", "dimensions", dimensions, n, type_of(x, 0)->rank))
        return false;
    add_result(x, *type_of(x, 0));
    return true;
}

static bool infer_concatenate(struct infer *x)
{
    if (x->op->noperands == 0)
        return bad(x, "C3", "there must be at least one operand");
    tn_type type = *type_of(x, 0);
    int64_t axis = tn_attr_int(x->op, TN_A_dimension, 0);
    if (!in_range(x, "C4", "dimension", &axis, 1, type.rank))
        return false;
    for (int i = 1; i < x->op->noperands; i++) {
        tn_type other = *type_of(x, i);
        if (!same_dtype(x, "C1", "operand 0", type.dtype, tn_format(&x->session->arena, "operand %d", i), other.dtype))
            return false;
        tn_dim size = other.rank == type.rank ? other.dim[axis] : NULL, sum = type.dim[axis];
        if (size)
            other.dim[axis] = sum;
        if (!same_shape(x, "C2", "apart from the dimension joined, operand 0", &type, tn_format(&x->session->arena, "operand %d", i), &other, &type))
            return false;
        type.dim[axis] = tn_dim_add(x->session, sum, size);
    }
    add_result(x, type);
    return true;
}

/* Operands first… are scalars of one integer type, `rank` of them. */
static bool start_indices(struct infer *x, const char *count_label, const char *type_label, int first, int rank)
{
    if (!has_size(x, count_label, "start indices", x->op->noperands - first, rank))
        return false;
    for (int i = first; i < x->op->noperands; i++) {
        const tn_type *type = type_of(x, i);
        if (type->rank != 0 || !tn_is_integer(type->dtype) || type->dtype != type_of(x, first)->dtype)
            return bad(x, type_label, "start indices must be scalars of one integer type, found %s", text_type(x, type));
    }
    return true;
}

static bool infer_dynamic_slice(struct infer *x)
{
    tn_type type;
    if (x->op->noperands == 0)
        return bad(x, "I1", "there must be an operand");
    const tn_type *from = type_of(x, 0);
    if (!shape_attr(x, TN_A_sizes, from->dtype, &type) || !has_size(x, "C2", "sizes", type.rank, from->rank) ||
        !start_indices(x, "C2", "C3", 1, from->rank))
        return false;
    for (int i = 0; i < type.rank; i++)
        if (!dim_may_be_at_most(x, type.dim[i], from->dim[i]))
            return bad(x, "C4", "sizes must be at most those of the operand, found %s of %s", text_dims(x, type.dim, type.rank),
                       text_type(x, from));
    add_result(x, type);
    return true;
}

static bool infer_dynamic_update_slice(struct infer *x)
{
    if (x->op->noperands < 2)
        return bad(x, "I2", "there must be an operand and an update");
    const tn_type *type = type_of(x, 0), *update = type_of(x, 1);
    if (!same_dtype(x, "C2", "the operand", type->dtype, "the update", update->dtype))
        return false;
    if (update->rank != type->rank)
        return bad(x, "C3", "the update must have the operand's rank, found %s and %s", text_type(x, update), text_type(x, type));
    if (!start_indices(x, "C4", "C5", 2, type->rank))
        return false;
    for (int i = 0; i < type->rank; i++)
        if (!dim_may_be_at_most(x, update->dim[i], type->dim[i]))
            return bad(x, "C6", "the update must fit into the operand, found %s and %s", text_type(x, update), text_type(x, type));
    add_result(x, *type);
    return true;
}

/* ---- gather, scatter ---------------------------------------------------------------------------------------------------------------- */

/* Sizes of `type` without dimension index_vector_dim; number of index components in *components (NULL: symbolic). */
static int index_batch(struct infer *x, const tn_type *type, int64_t index_vector_dim, tn_dim *batch, tn_dim *components)
{
    int n = 0;
    *components = index_vector_dim < type->rank ? type->dim[index_vector_dim] : constant(x, 1);
    for (int i = 0; i < type->rank; i++)
        if (i != index_vector_dim)
            batch[n++] = type->dim[i];
    return n;
}

static bool is_index_type(struct infer *x, const char *label, const tn_type *type)
{
    return tn_is_integer(type->dtype) || bad(x, label, "indices must be integers, found %s", text_type(x, type));
}

static bool check_gather_dims(struct infer *x, const tn_type *operand, const tn_type *indices, int64_t index_vector_dim)
{
    int noffset, ncollapsed, nbatch, nibatch, nmap;
    const int64_t *offset = ints_of(x, TN_A_offset_dims, &noffset);
    const int64_t *collapsed = ints_of(x, TN_A_collapsed_slice_dims, &ncollapsed);
    const int64_t *batch = ints_of(x, TN_A_operand_batching_dims, &nbatch);
    const int64_t *ibatch = ints_of(x, TN_A_indices_batching_dims, &nibatch);
    const int64_t *map = ints_of(x, TN_A_start_index_map, &nmap);
    tn_dim unused[TN_MAX_RANK], components;
    if (!is_index_type(x, "I2", indices))
        return false;
    if (noffset + ncollapsed + nbatch != operand->rank)
        return bad(x, "C1", "offset_dims, collapsed_slice_dims and operand_batching_dims must have %d entries together, found %d",
                   operand->rank, noffset + ncollapsed + nbatch);
    if (!in_range(x, "C2", "index_vector_dim", &index_vector_dim, 1, indices->rank + 1))
        return false;
    int nindex = index_batch(x, indices, index_vector_dim, unused, &components);
    if (!dims_may_equal(x, components, constant(x, nmap)))
        return bad(x, "C3", "start_index_map must have %s entries, found %d", text_dim(x, components), nmap);
    if (nindex + noffset > TN_MAX_RANK)
        return bad(x, "C5", "the result would have %d dimensions; the most is %d", nindex + noffset, TN_MAX_RANK);
    bool ok = unique(x, "C4", "offset_dims", offset, noffset) && sorted(x, "C4", "offset_dims", offset, noffset) &&
              in_range(x, "C5", "offset_dims", offset, noffset, nindex + noffset) &&
              disjoint(x, "C6", "collapsed_slice_dims", collapsed, ncollapsed, "operand_batching_dims", batch, nbatch) &&
              sorted(x, "C7", "collapsed_slice_dims", collapsed, ncollapsed) &&
              in_range(x, "C8", "collapsed_slice_dims", collapsed, ncollapsed, operand->rank) &&
              sorted(x, "C10", "operand_batching_dims", batch, nbatch) &&
              in_range(x, "C11", "operand_batching_dims", batch, nbatch, operand->rank) &&
              unique(x, "C13", "indices_batching_dims", ibatch, nibatch) &&
              in_range(x, "C14", "indices_batching_dims", ibatch, nibatch, indices->rank);
    if (!ok)
        return false;
    if (contains(ibatch, nibatch, index_vector_dim))
        return bad(x, "C15", "indices_batching_dims %s must not have index_vector_dim %lld", text_ints(x, ibatch, nibatch),
                   (long long)index_vector_dim);
    if (!has_size(x, "C16", "indices_batching_dims", nibatch, nbatch))
        return false;
    for (int i = 0; i < nbatch; i++)
        if (!dims_may_equal(x, operand->dim[batch[i]], indices->dim[ibatch[i]]))
            return bad(x, "C17", "batching sizes must be equal, found %s and %s", text_dim(x, operand->dim[batch[i]]),
                       text_dim(x, indices->dim[ibatch[i]]));
    return disjoint(x, "C18", "start_index_map", map, nmap, "operand_batching_dims", batch, nbatch) &&
           in_range(x, "C19", "start_index_map", map, nmap, operand->rank);
}

static bool infer_gather(struct infer *x)
{
    const tn_type *operand = type_of(x, 0), *indices = type_of(x, 1);
    int64_t index_vector_dim = tn_attr_int(x->op, TN_A_index_vector_dim, 0);
    int nsizes, noffset, ncollapsed, nbatch;
    const tn_dim *sizes = tn_attr_dims(x->op, TN_A_sizes, &nsizes);
    const int64_t *offset = ints_of(x, TN_A_offset_dims, &noffset);
    const int64_t *collapsed = ints_of(x, TN_A_collapsed_slice_dims, &ncollapsed);
    const int64_t *batch = ints_of(x, TN_A_operand_batching_dims, &nbatch);
    if (!check_gather_dims(x, operand, indices, index_vector_dim) || !has_size(x, "C20", "sizes", nsizes, operand->rank))
        return false;
    tn_dim batch_size[TN_MAX_RANK], offset_size[TN_MAX_RANK], components;
    tn_type type = {.dtype = operand->dtype};
    int nindex = index_batch(x, indices, index_vector_dim, batch_size, &components), n = 0;
    for (int i = 0; i < nsizes; i++) {
        bool is_collapsed = contains(collapsed, ncollapsed, i), is_batch = contains(batch, nbatch, i);
        if (!dim_may_be_at_most(x, constant(x, 0), sizes[i]) || !dim_may_be_at_most(x, sizes[i], operand->dim[i]))
            return bad(x, "C21", "sizes must be at most those of the operand, found %s of %s", text_dims(x, sizes, nsizes),
                       text_type(x, operand));
        if ((is_collapsed || is_batch) && !dim_may_be_at_most(x, sizes[i], constant(x, 1)))
            return bad(x, is_collapsed ? "C9" : "C12", "sizes must be at most 1 in dimension %d, found %s", i, text_dim(x, sizes[i]));
        if (!is_collapsed && !is_batch)
            offset_size[n++] = sizes[i];
    }
    type.rank = nindex + noffset;
    for (int i = 0, o = 0, b = 0; i < type.rank; i++)
        type.dim[i] = contains(offset, noffset, i) ? offset_size[o++] : batch_size[b++];
    add_result(x, type);
    return true;
}

static bool check_scatter_dims(struct infer *x, const tn_type *input, const tn_type *indices, int update_rank, int64_t index_vector_dim)
{
    int nwindow, ninserted, nbatch, nibatch, nmap;
    const int64_t *window = ints_of(x, TN_A_update_window_dims, &nwindow);
    const int64_t *inserted = ints_of(x, TN_A_inserted_window_dims, &ninserted);
    const int64_t *batch = ints_of(x, TN_A_input_batching_dims, &nbatch);
    const int64_t *ibatch = ints_of(x, TN_A_scatter_indices_batching_dims, &nibatch);
    const int64_t *map = ints_of(x, TN_A_scatter_dims_to_operand_dims, &nmap);
    tn_dim unused[TN_MAX_RANK], components;
    if (!is_index_type(x, "I2", indices))
        return false;
    if (nwindow + ninserted + nbatch != input->rank)
        return bad(x, "C2", "update_window_dims, inserted_window_dims and input_batching_dims must have %d entries together, found %d",
                   input->rank, nwindow + ninserted + nbatch);
    bool ok = unique(x, "C7", "update_window_dims", window, nwindow) && sorted(x, "C7", "update_window_dims", window, nwindow) &&
              in_range(x, "C8", "update_window_dims", window, nwindow, update_rank) &&
              disjoint(x, "C9", "inserted_window_dims", inserted, ninserted, "input_batching_dims", batch, nbatch) &&
              sorted(x, "C10", "inserted_window_dims", inserted, ninserted) &&
              in_range(x, "C11", "inserted_window_dims", inserted, ninserted, input->rank) &&
              sorted(x, "C12", "input_batching_dims", batch, nbatch) &&
              in_range(x, "C13", "input_batching_dims", batch, nbatch, input->rank) &&
              unique(x, "C14", "scatter_indices_batching_dims", ibatch, nibatch) &&
              in_range(x, "C15", "scatter_indices_batching_dims", ibatch, nibatch, indices->rank) &&
              in_range(x, "C22", "index_vector_dim", &index_vector_dim, 1, indices->rank + 1);
    if (!ok)
        return false;
    if (contains(ibatch, nibatch, index_vector_dim))
        return bad(x, "C16", "scatter_indices_batching_dims %s must not have index_vector_dim %lld", text_ints(x, ibatch, nibatch),
                   (long long)index_vector_dim);
    if (!has_size(x, "C17", "scatter_indices_batching_dims", nibatch, nbatch))
        return false;
    for (int i = 0; i < nbatch; i++)
        if (!dims_may_equal(x, input->dim[batch[i]], indices->dim[ibatch[i]]))
            return bad(x, "C18", "batching sizes must be equal, found %s and %s", text_dim(x, input->dim[batch[i]]),
                       text_dim(x, indices->dim[ibatch[i]]));
    index_batch(x, indices, index_vector_dim, unused, &components);
    if (!dims_may_equal(x, components, constant(x, nmap)))
        return bad(x, "C19", "scatter_dims_to_operand_dims must have %s entries, found %d", text_dim(x, components), nmap);
    return disjoint(x, "C20", "scatter_dims_to_operand_dims", map, nmap, "input_batching_dims", batch, nbatch) &&
           in_range(x, "C21", "scatter_dims_to_operand_dims", map, nmap, input->rank);
}

/* The update's scatter dimensions are those of the indices, its window dimensions fit into the input. */
static bool check_update_shape(struct infer *x, const tn_type *input, const tn_type *indices, const tn_type *update, int64_t index_vector_dim)
{
    int nwindow, ninserted, nbatch;
    const int64_t *window = ints_of(x, TN_A_update_window_dims, &nwindow);
    const int64_t *inserted = ints_of(x, TN_A_inserted_window_dims, &ninserted);
    const int64_t *batch = ints_of(x, TN_A_input_batching_dims, &nbatch);
    tn_dim batch_size[TN_MAX_RANK], window_limit[TN_MAX_RANK], components;
    int nindex = index_batch(x, indices, index_vector_dim, batch_size, &components), n = 0;
    bool fits = update->rank == nindex + nwindow;
    for (int i = 0; i < input->rank; i++)
        if (!contains(inserted, ninserted, i) && !contains(batch, nbatch, i))
            window_limit[n++] = input->dim[i];
    for (int i = 0, w = 0, b = 0; fits && i < update->rank; i++)
        fits = contains(window, nwindow, i) ? dim_may_be_at_most(x, update->dim[i], window_limit[w++])
                                            : dims_may_equal(x, update->dim[i], batch_size[b++]);
    return fits || bad(x, "C4", "updates %s do not fit indices %s and input %s", text_type(x, update), text_type(x, indices),
                       text_type(x, input));
}

static bool infer_scatter(struct infer *x)
{
    int n = x->op->noperands / 2;
    if (x->op->noperands < 3 || x->op->noperands % 2 == 0)
        return bad(x, "C5", "operands must be inputs, indices, and as many updates as inputs, found %d operands", x->op->noperands);
    const tn_type *input = type_of(x, 0), *indices = type_of(x, n), *update = type_of(x, n + 1);
    int64_t index_vector_dim = tn_attr_int(x->op, TN_A_index_vector_dim, 0);
    for (int i = 0; i < n; i++) {
        if (!same_shape(x, "C1", "input 0", input, "the other inputs", type_of(x, i), NULL) ||
            !same_shape(x, "C3", "update 0", update, "the other updates", type_of(x, n + 1 + i), NULL) ||
            !same_dtype(x, "C6", "input", type_of(x, i)->dtype, "update", type_of(x, n + 1 + i)->dtype))
            return false;
    }
    if (!check_scatter_dims(x, input, indices, update->rank, index_vector_dim) ||
        !check_update_shape(x, input, indices, update, index_vector_dim) || !region_combines(x, "C23", 0, n))
        return false;
    for (int i = 0; i < n; i++)
        add_result(x, *type_of(x, i));
    return true;
}

/* ---- reductions, windows, sort ------------------------------------------------------------------------------------------------------- */

/* Operands are n inputs of one shape and n scalars of their types. n, or -1. */
static int inputs_and_inits(struct infer *x, const char *count_label, const char *shape_label, const char *type_label)
{
    int n = x->op->noperands / 2;
    if (n == 0 || x->op->noperands % 2 != 0) {
        bad(x, count_label, "operands must be inputs and as many initial values, found %d operands", x->op->noperands);
        return -1;
    }
    for (int i = 0; i < n; i++)
        if (!same_shape(x, shape_label, "input 0", type_of(x, 0), "the other inputs", type_of(x, i), NULL) ||
            !is_scalar(x, type_label, "an initial value", type_of(x, n + i), type_of(x, i)->dtype))
            return -1;
    return n;
}

static bool infer_reduce(struct infer *x)
{
    int ndims, n = inputs_and_inits(x, "C3", "C1", "C2");
    const int64_t *dimensions = ints_of(x, TN_A_dimensions, &ndims);
    if (n < 0 || !in_range(x, "C4", "dimensions", dimensions, ndims, type_of(x, 0)->rank) ||
        !unique(x, "C5", "dimensions", dimensions, ndims) || !region_combines(x, "C6", 0, n))
        return false;
    for (int k = 0; k < n; k++) {
        const tn_type *from = type_of(x, k);
        tn_type type = {.dtype = from->dtype};
        for (int i = 0; i < from->rank; i++)
            if (!contains(dimensions, ndims, i))
                type.dim[type.rank++] = from->dim[i];
        add_result(x, type);
    }
    return true;
}

struct window {
    tn_dim size, low, high;
    int64_t stride, base_dilation, window_dilation;
};

/* Positions of a window that lies inside the padded, dilated base: 0 if none does. */
static tn_dim window_count(struct infer *x, tn_dim base, const struct window *w)
{
    tn_session *s = session_of(x);
    tn_dim padded = tn_dim_add(s, tn_dim_add(s, w->low, w->high), dilated(x, base, w->base_dilation));
    tn_dim window = dilated(x, w->size, w->window_dilation), zero = constant(x, 0);
    tn_dim steps = tn_dim_floordiv(s, tn_dim_sub(s, padded, window), constant(x, w->stride));
    tn_dim count = tn_dim_add(s, steps, constant(x, 1));
    return tn_dim_max(s, count, zero);
}

static bool windows_positive(struct infer *x, const char *label, const tn_dim *window, int n)
{
    for (int i = 0; i < n; i++)
        if (window[i]->lo < 1)
            return bad(x, label, "window sizes must be positive, found %s", text_dims(x, window, n));
    return true;
}

static bool infer_reduce_window(struct infer *x)
{
    int n = inputs_and_inits(x, "C1", "C2", "C3"), counts[6];
    if (n < 0)
        return false;
    int rank = type_of(x, 0)->rank;
    const tn_dim *window = tn_attr_dims(x->op, TN_A_window, &counts[0]);
    const int64_t *strides = ints_of(x, TN_A_window_strides, &counts[1]);
    const int64_t *base = ints_of(x, TN_A_base_dilation, &counts[2]), *dilation = ints_of(x, TN_A_window_dilation, &counts[3]);
    const tn_dim *low = tn_attr_dims(x->op, TN_A_padding_low, &counts[4]), *high = tn_attr_dims(x->op, TN_A_padding_high, &counts[5]);
    if (!has_size(x, "C4", "window", counts[0], rank) || !windows_positive(x, "C5", window, rank) ||
        !has_size(x, "C6", "window_strides", counts[1], rank) || !at_least(x, "C7", "window_strides", strides, rank, 1) ||
        !has_size(x, "C8", "base_dilation", counts[2], rank) || !at_least(x, "C9", "base_dilation", base, rank, 1) ||
        !has_size(x, "C10", "window_dilation", counts[3], rank) || !at_least(x, "C11", "window_dilation", dilation, rank, 1) ||
        !has_size(x, "C12", "padding_low", counts[4], rank) || !has_size(x, "C12", "padding_high", counts[5], rank) ||
        !region_combines(x, "C13", 0, n))
        return false;
    for (int k = 0; k < n; k++) {
        tn_type type = *type_of(x, k);
        for (int i = 0; i < rank; i++)
            type.dim[i] = window_count(x, type.dim[i], &(struct window){window[i], low[i], high[i], strides[i], base[i], dilation[i]});
        add_result(x, type);
    }
    return true;
}

static bool infer_select_and_scatter(struct infer *x)
{
    const tn_type *operand = type_of(x, 0), *source = type_of(x, 1);
    int rank = operand->rank, counts[4];
    const tn_dim *window = tn_attr_dims(x->op, TN_A_window, &counts[0]);
    const int64_t *strides = ints_of(x, TN_A_window_strides, &counts[1]);
    const tn_dim *low = tn_attr_dims(x->op, TN_A_padding_low, &counts[2]), *high = tn_attr_dims(x->op, TN_A_padding_high, &counts[3]);
    tn_type scalar = tn_type_scalar(operand->dtype), arg[2] = {scalar, scalar}, boolean = tn_type_scalar(TN_BOOL), expected = *operand;
    if (!same_dtype(x, "C1", "the operand", operand->dtype, "the source", source->dtype) ||
        !is_scalar(x, "C3", "the initial value", type_of(x, 2), operand->dtype) || !has_size(x, "C4", "window", counts[0], rank) ||
        !windows_positive(x, "C5", window, rank) || !has_size(x, "C6", "window_strides", counts[1], rank) ||
        !at_least(x, "C7", "window_strides", strides, rank, 1) || !has_size(x, "C8", "padding_low", counts[2], rank) ||
        !has_size(x, "C8", "padding_high", counts[3], rank))
        return false;
    for (int i = 0; i < rank; i++)
        expected.dim[i] = window_count(x, operand->dim[i], &(struct window){window[i], low[i], high[i], strides[i], 1, 1});
    if (!same_shape(x, "C2", "the source", source, "the windows of the operand", &expected, NULL) ||
        !region_is(x, "C9", 0, arg, 2, &boolean, 1) || !region_is(x, "C10", 1, arg, 2, &scalar, 1))
        return false;
    add_result(x, *operand);
    return true;
}

static bool infer_sort(struct infer *x)
{
    int n = x->op->noperands;
    if (n == 0)
        return bad(x, "C1", "there must be at least one operand");
    int64_t axis = tn_attr_int(x->op, TN_A_dimension, 0);
    tn_type boolean = tn_type_scalar(TN_BOOL), *arg = TN_NEW_ARRAY(&x->session->arena, tn_type, 2 * (size_t)n);
    for (int i = 0; i < n; i++) {
        if (!same_shape(x, "C3", "operand 0", type_of(x, 0), "the others", type_of(x, i), NULL))
            return false;
        arg[2 * i] = arg[2 * i + 1] = tn_type_scalar(type_of(x, i)->dtype);
    }
    if (!in_range(x, "C4", "dimension", &axis, 1, type_of(x, 0)->rank) || !region_is(x, "C5", 0, arg, 2 * n, &boolean, 1))
        return false;
    for (int i = 0; i < n; i++)
        add_result(x, *type_of(x, i));
    return true;
}

/* ---- products ---------------------------------------------------------------------------------------------------------------------------- */

/* Element type of a product: `dtype` if given, else that of the operands. */
static bool product_dtype(struct infer *x, const char *label, tn_dtype *out)
{
    tn_dtype a = type_of(x, 0)->dtype, b = type_of(x, 1)->dtype;
    *out = (tn_dtype)tn_attr_int(x->op, TN_A_dtype, a);
    bool integers = tn_is_integer(a) && tn_is_integer(b) && tn_find_attr(x->op, TN_A_dtype); /* u8 times i8 into i32 */
    return integers || same_dtype(x, label, "operand 0", a, "operand 1", b);
}

static bool infer_dot_general(struct infer *x)
{
    const tn_type *lhs = type_of(x, 0), *rhs = type_of(x, 1);
    int nlb, nrb, nlc, nrc;
    const int64_t *lb = ints_of(x, TN_A_lhs_batch, &nlb), *rb = ints_of(x, TN_A_rhs_batch, &nrb);
    const int64_t *lc = ints_of(x, TN_A_lhs_contract, &nlc), *rc = ints_of(x, TN_A_rhs_contract, &nrc);
    tn_type type = {0};
    if (!product_dtype(x, "C13", &type.dtype) || !has_size(x, "C1", "rhs_batch", nrb, nlb) ||
        !has_size(x, "C2", "rhs_contract", nrc, nlc) || !disjoint(x, "C3", "lhs_batch", lb, nlb, "lhs_contract", lc, nlc) ||
        !disjoint(x, "C4", "rhs_batch", rb, nrb, "rhs_contract", rc, nrc) || !in_range(x, "C5", "lhs_batch", lb, nlb, lhs->rank) ||
        !in_range(x, "C6", "lhs_contract", lc, nlc, lhs->rank) || !in_range(x, "C7", "rhs_batch", rb, nrb, rhs->rank) ||
        !in_range(x, "C8", "rhs_contract", rc, nrc, rhs->rank))
        return false;
    int rank = lhs->rank + rhs->rank - nlb - 2 * nlc;
    if (rank > TN_MAX_RANK)
        return bad(x, "C12", "the result would have %d dimensions; the most is %d", rank, TN_MAX_RANK);
    for (int i = 0; i < nlb; i++) {
        if (!dims_may_equal(x, lhs->dim[lb[i]], rhs->dim[rb[i]]))
            return bad(x, "C9", "batch sizes must be equal, found %s of %s and %s of %s", text_dim(x, lhs->dim[lb[i]]),
                       text_type(x, lhs), text_dim(x, rhs->dim[rb[i]]), text_type(x, rhs));
        type.dim[type.rank++] = better(lhs->dim[lb[i]], rhs->dim[rb[i]]);
    }
    for (int i = 0; i < nlc; i++)
        if (!dims_may_equal(x, lhs->dim[lc[i]], rhs->dim[rc[i]]))
            return bad(x, "C10", "contracted sizes must be equal, found %s of %s and %s of %s", text_dim(x, lhs->dim[lc[i]]),
                       text_type(x, lhs), text_dim(x, rhs->dim[rc[i]]), text_type(x, rhs));
    for (int i = 0; i < lhs->rank; i++)
        if (!contains(lb, nlb, i) && !contains(lc, nlc, i))
            type.dim[type.rank++] = lhs->dim[i];
    for (int i = 0; i < rhs->rank; i++)
        if (!contains(rb, nrb, i) && !contains(rc, nrc, i))
            type.dim[type.rank++] = rhs->dim[i];
    add_result(x, type);
    return true;
}

/* "bf01" -> where[0] = position of `first`, where[1] = of `second`, where[2 + k] = of digit k. */
static bool read_layout(struct infer *x, const char *label, tn_attr_name name, int rank, char first, char second, int *where)
{
    const char *layout = tn_find_attr(x->op, name)->s;
    bool ok = (int)strlen(layout) == rank;
    for (int i = 0; i < rank; i++)
        where[i] = -1;
    for (int i = 0; ok && i < rank; i++) {
        int slot = layout[i] == first ? 0 : layout[i] == second ? 1 : layout[i] >= '0' && layout[i] <= '9' ? 2 + layout[i] - '0' : rank;
        ok = slot < rank && where[slot] < 0;
        if (ok)
            where[slot] = i;
    }
    return ok || bad(x, label, "%s must name each of the %d dimensions once: '%c', '%c' and the spatial digits from 0, found '%s'",
                     tn_attr_text(name), rank, first, second, layout);
}

static bool check_convolution_attrs(struct infer *x, int spatial)
{
    int counts[6];
    const int64_t *strides = ints_of(x, TN_A_window_strides, &counts[0]);
    const int64_t *base = ints_of(x, TN_A_base_dilation, &counts[1]), *dilation = ints_of(x, TN_A_window_dilation, &counts[2]);
    ints_of(x, TN_A_window_reversal, &counts[3]);
    tn_attr_dims(x->op, TN_A_padding_low, &counts[4]);
    tn_attr_dims(x->op, TN_A_padding_high, &counts[5]);
    return has_size(x, "C2", "window_strides", counts[0], spatial) && at_least(x, "C3", "window_strides", strides, spatial, 1) &&
           has_size(x, "C4", "padding_low", counts[4], spatial) && has_size(x, "C4", "padding_high", counts[5], spatial) &&
           has_size(x, "C5", "base_dilation", counts[1], spatial) && at_least(x, "C6", "base_dilation", base, spatial, 1) &&
           has_size(x, "C7", "window_dilation", counts[2], spatial) && at_least(x, "C8", "window_dilation", dilation, spatial, 1) &&
           has_size(x, "C9", "window_reversal", counts[3], spatial);
}

static bool divisible(struct infer *x, const char *label, const char *what, tn_dim size, int64_t by)
{
    return dims_may_equal(x, tn_dim_mod(x->session, size, constant(x, by)), constant(x, 0)) ||
           bad(x, label, "%s must be divisible by %lld, found %s", what, (long long)by, text_dim(x, size));
}

static bool check_groups(struct infer *x, tn_dim batch, tn_dim feature, tn_dim kernel_input, tn_dim kernel_output)
{
    int64_t features = tn_attr_int(x->op, TN_A_feature_group_count, 1), batches = tn_attr_int(x->op, TN_A_batch_group_count, 1);
    if (!at_least(x, "C21", "feature_group_count", &features, 1, 1) || !at_least(x, "C22", "batch_group_count", &batches, 1, 1))
        return false;
    if (features != 1 && batches != 1)
        return bad(x, "C23", "feature_group_count or batch_group_count must be 1, found %lld and %lld", (long long)features, (long long)batches);
    if (!divisible(x, "C10", "the batch size", batch, batches) || !divisible(x, "C11", "the feature size", feature, features) ||
        !divisible(x, "C15", "the kernel's output feature size", kernel_output, batches) ||
        !divisible(x, "C16", "the kernel's output feature size", kernel_output, features))
        return false;
    tn_dim group = tn_dim_floordiv(x->session, feature, constant(x, features));
    return dims_may_equal(x, kernel_input, group) ||
           bad(x, "C14", "the kernel's input feature size must be %s (features / feature_group_count), found %s", text_dim(x, group),
               text_dim(x, kernel_input));
}

static bool infer_convolution(struct infer *x)
{
    const tn_type *lhs = type_of(x, 0), *rhs = type_of(x, 1);
    int in[TN_MAX_RANK], kernel[TN_MAX_RANK], out[TN_MAX_RANK], n, rank = lhs->rank;
    tn_type type = {.rank = rank};
    if (rank != rhs->rank || rank < 2)
        return bad(x, "C1", "operands must have the same rank, at least 2, found %s and %s", text_type(x, lhs), text_type(x, rhs));
    if (!product_dtype(x, "C27", &type.dtype) || !check_convolution_attrs(x, rank - 2) ||
        !read_layout(x, "C13", TN_A_lhs_layout, rank, 'b', 'f', in) || !read_layout(x, "C18", TN_A_rhs_layout, rank, 'o', 'i', kernel) ||
        !read_layout(x, "C20", TN_A_out_layout, rank, 'b', 'f', out) ||
        !check_groups(x, lhs->dim[in[0]], lhs->dim[in[1]], rhs->dim[kernel[1]], rhs->dim[kernel[0]]))
        return false;
    const int64_t *strides = ints_of(x, TN_A_window_strides, &n), *base = ints_of(x, TN_A_base_dilation, &n);
    const int64_t *dilation = ints_of(x, TN_A_window_dilation, &n);
    const tn_dim *low = tn_attr_dims(x->op, TN_A_padding_low, &n), *high = tn_attr_dims(x->op, TN_A_padding_high, &n);
    type.dim[out[0]] = tn_dim_floordiv(x->session, lhs->dim[in[0]], constant(x, tn_attr_int(x->op, TN_A_batch_group_count, 1)));
    type.dim[out[1]] = rhs->dim[kernel[0]];
    for (int i = 0; i < rank - 2; i++)
        type.dim[out[2 + i]] = window_count(x, lhs->dim[in[2 + i]],
                                            &(struct window){rhs->dim[kernel[2 + i]], low[i], high[i], strides[i], base[i], dilation[i]});
    add_result(x, type);
    return true;
}

static bool infer_batch_norm_inference(struct infer *x)
{
    static const char *const label[] = {"", "C3", "C4", "C5", "C6"}, *const what[] = {"", "scale", "offset", "mean", "variance"};
    const tn_type *operand = type_of(x, 0);
    int64_t axis = tn_attr_int(x->op, TN_A_feature_index, 0);
    if (!tn_is_float(operand->dtype))
        return bad(x, "I1", "the operand must be of floats, found %s", tn_dtype_text(operand->dtype));
    if (!in_range(x, "C1", "feature_index", &axis, 1, operand->rank))
        return false;
    for (int i = 1; i < 5; i++) {
        const tn_type *type = type_of(x, i);
        if (!same_dtype(x, "C2", "the operand", operand->dtype, what[i], type->dtype))
            return false;
        if (type->rank != 1 || !dims_may_equal(x, type->dim[0], operand->dim[axis]))
            return bad(x, label[i], "%s must have shape [%s], found %s", what[i], text_dim(x, operand->dim[axis]), text_type(x, type));
    }
    add_result(x, *operand);
    return true;
}

/* ---- transforms, linear algebra ------------------------------------------------------------------------------------------------------------ */

static bool infer_fft(struct infer *x)
{
    const tn_type *operand = type_of(x, 0);
    const char *kind = tn_find_attr(x->op, TN_A_fft_type)->s;
    bool forward_real = strcmp(kind, "RFFT") == 0, inverse_real = strcmp(kind, "IRFFT") == 0;
    int n, rank = operand->rank;
    const int64_t *length = ints_of(x, TN_A_fft_length, &n);
    tn_type type = *operand;
    if (!forward_real && !inverse_real && strcmp(kind, "FFT") != 0 && strcmp(kind, "IFFT") != 0)
        return bad(x, "I2", "fft_type must be FFT, IFFT, RFFT or IRFFT, found '%s'", kind);
    if (n > rank)
        return bad(x, "C1", "fft_length must have at most %d entries, found %d", rank, n);
    if (forward_real ? operand->dtype != TN_F32 && operand->dtype != TN_F64 : !tn_is_complex(operand->dtype))
        return bad(x, "C2", "%s needs an operand of %s, found %s", kind, forward_real ? "f32 or f64" : "complex numbers",
                   tn_dtype_text(operand->dtype));
    if (n < 1 || n > 3)
        return bad(x, "C3", "fft_length must have 1 to 3 entries, found %d", n);
    if (!at_least(x, "C4", "fft_length", length, n, 0))
        return false;
    for (int i = 0; i < n; i++) {
        bool half = inverse_real && i == n - 1;
        int64_t expected = half ? (length[i] == 0 ? 0 : length[i] / 2 + 1) : length[i];
        if (!dims_may_equal(x, operand->dim[rank - n + i], constant(x, expected)))
            return bad(x, half ? "C5" : "C4", "fft_length %s needs size %lld in dimension %d, found %s", text_ints(x, length, n),
                       (long long)expected, rank - n + i, text_type(x, operand));
        type.dim[rank - n + i] = constant(x, forward_real && i == n - 1 ? (length[i] == 0 ? 0 : length[i] / 2 + 1) : length[i]);
    }
    if (forward_real)
        type.dtype = operand->dtype == TN_F32 ? TN_C64 : TN_C128;
    if (inverse_real)
        type.dtype = tn_dtype_real(operand->dtype);
    add_result(x, type);
    return true;
}

static bool infer_triangular_solve(struct infer *x)
{
    const tn_type *a = type_of(x, 0), *b = type_of(x, 1);
    const char *transpose = tn_find_attr(x->op, TN_A_transpose_a)->s;
    int rank = a->rank;
    if (strcmp(transpose, "NO_TRANSPOSE") && strcmp(transpose, "TRANSPOSE") && strcmp(transpose, "ADJOINT"))
        return bad(x, "I6", "transpose_a must be NO_TRANSPOSE, TRANSPOSE or ADJOINT, found '%s'", transpose);
    if (!tn_is_float(a->dtype) && !tn_is_complex(a->dtype))
        return bad(x, "I1", "operands must be of floats or complex numbers, found %s", tn_dtype_text(a->dtype));
    if (!same_dtype(x, "C1", "a", a->dtype, "b", b->dtype))
        return false;
    if (rank < 2 || b->rank != rank)
        return bad(x, "C2", "operands must have the same rank, at least 2, found %s and %s", text_type(x, a), text_type(x, b));
    int solved = tn_attr_int(x->op, TN_A_left_side, 0) ? rank - 2 : rank - 1;
    bool fits = dims_may_equal(x, a->dim[rank - 2], a->dim[rank - 1]) && dims_may_equal(x, a->dim[rank - 1], b->dim[solved]);
    for (int i = 0; fits && i < rank - 2; i++)
        fits = dims_may_equal(x, a->dim[i], b->dim[i]);
    if (!fits)
        return bad(x, "C3", "a must be square and fit b, found %s and %s", text_type(x, a), text_type(x, b));
    add_result(x, *b);
    return true;
}

/* ---- control ---------------------------------------------------------------------------------------------------------------------------------- */

static bool infer_while(struct infer *x)
{
    int n = x->op->noperands;
    tn_type boolean = tn_type_scalar(TN_BOOL), *type = TN_NEW_ARRAY(&x->session->arena, tn_type, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        type[i] = *type_of(x, i);
    if (!region_is(x, "C1", 0, type, n, &boolean, 1) || !region_is(x, "C2", 1, type, n, type, n))
        return false;
    for (int i = 0; i < n; i++)
        add_result(x, type[i]);
    return true;
}

static bool infer_if(struct infer *x)
{
    bool is_if = x->op->code == TN_OP_if;
    const char *label = is_if ? "C2" : "C3";
    if (x->op->nregions < 1)
        return bad(x, "C1", "there must be at least one region");
    if (!is_scalar(x, "I1", is_if ? "the predicate" : "the index", type_of(x, 0), is_if ? TN_BOOL : TN_I32))
        return false;
    for (int r = 0; r < x->op->nregions; r++) {
        if (!region_is(x, is_if ? "C1" : "C2", r, NULL, 0, NULL, 0))
            return false;
        const tn_op *end = tn_block_return(x->op->region[r]);
        if (r > 0 && end->noperands != x->nresults)
            return bad(x, label, "regions must return the same types, found %d and %d values", x->nresults, end->noperands);
        for (int i = 0; i < end->noperands; i++) {
            const tn_type *type = &end->operand[i].value->type;
            if (r == 0)
                add_result(x, *type);
            else if (!same_type(x, label, "a value returned by region 0", &x->result[i],
                                tn_format(&x->session->arena, "that of region %d", r), type))
                return false;
        }
    }
    return true;
}

static bool infer_composite(struct infer *x)
{
    int n = x->op->noperands;
    tn_type *type = TN_NEW_ARRAY(&x->session->arena, tn_type, (size_t)n + 1);
    for (int i = 0; i < n; i++)
        type[i] = *type_of(x, i);
    if (!region_is(x, "C1", 0, type, n, NULL, 0))
        return false;
    const tn_op *end = tn_block_return(x->op->region[0]);
    for (int i = 0; i < end->noperands; i++)
        add_result(x, end->operand[i].value->type);
    return true;
}

/* One result if shape and dtype are given, else none. */
static bool infer_custom_call(struct infer *x)
{
    tn_type type;
    const tn_attr *dtype = tn_find_attr(x->op, TN_A_dtype), *shape = tn_find_attr(x->op, TN_A_shape);
    if (!dtype != !shape)
        return bad(x, "", "shape and dtype must be given together: they are the result's type");
    if (!dtype)
        return true;
    if (!shape_attr(x, TN_A_shape, (tn_dtype)dtype->i, &type))
        return false;
    add_result(x, type);
    return true;
}

static bool infer_none(struct infer *x)
{
    (void)x;
    return true;
}

/* ---- the entry ---------------------------------------------------------------------------------------------------------------------------------- */

static bool (*const rule[TN_OP_COUNT])(struct infer *x) = {
#define OP(name, operands, results, attributes, regions, rule, scalar, traits) infer_##rule,
#include "graph/ops.def"
#undef OP
};

static bool check_attr_value(struct infer *x, const tn_attr *attr)
{
    switch (tn_attr_kind_of(attr->name)) {
    case TN_ATTR_DTYPE:
        return (attr->i > TN_NO_DTYPE && attr->i < TN_DTYPE_COUNT) || bad(x, "", "%s is no element type", tn_attr_text(attr->name));
    case TN_ATTR_TENSOR: {
        int64_t count;
        return (attr->tensor->rank <= TN_MAX_RANK && tn_tensor_count(attr->tensor, &count)) ||
               bad(x, "", "%s has too many elements", tn_attr_text(attr->name));
    }
    case TN_ATTR_DIMS:
    case TN_ATTR_INTS:
        return attr->n >= 0;
    default:
        return true;
    }
}

/* Each required attribute is there, and none that the row does not list. */
static bool check_attrs(struct infer *x, const struct tn_op_row *row)
{
    for (int i = 0; i < x->op->nattrs; i++) {
        const tn_attr *attr = &x->op->attr[i];
        int k = 0;
        while (row->attr[k].name != TN_ATTR_COUNT && row->attr[k].name != attr->name)
            k++;
        if (row->attr[k].name == TN_ATTR_COUNT)
            return bad(x, "", "there is no attribute '%s'", tn_attr_text(attr->name));
        if (i > 0 && x->op->attr[i - 1].name == attr->name)
            return bad(x, "", "attribute '%s' is given twice", tn_attr_text(attr->name));
        if (!check_attr_value(x, attr))
            return false;
    }
    for (int k = 0; row->attr[k].name != TN_ATTR_COUNT; k++)
        if (row->attr[k].required && !tn_find_attr(x->op, row->attr[k].name))
            return bad(x, "", "attribute '%s' is missing", tn_attr_text(row->attr[k].name));
    return true;
}

static bool check_counts(struct infer *x, const struct tn_op_row *row)
{
    if (row->operands != TN_VARIADIC && row->operands != x->op->noperands)
        return bad(x, "", "expected %d operands, found %d", row->operands, x->op->noperands);
    if (row->regions != TN_VARIADIC && row->regions != x->op->nregions)
        return bad(x, "", "expected %d regions, found %d", row->regions, x->op->nregions);
    return true;
}

bool tn_infer_types(tn_graph *graph, const tn_op *op, bool record, tn_type **results, int *nresults)
{
    const struct tn_op_row *row = tn_op_row_of(op->code);
    struct infer x = {.session = graph->session, .graph = graph, .op = op, .name = row->name, .record = record};
    size_t errors = graph->session->errors;
    if (!check_counts(&x, row) || !check_attrs(&x, row) || !rule[op->code](&x))
        return false;
    assert(row->results == TN_VARIADIC || row->results == x.nresults);
    for (int i = 0; i < x.nresults; i++)
        if (!tn_check_type(graph, op->loc, row->name, &x.result[i], record))
            return false;
    if (graph->session->errors != errors) { /* dimension arithmetic failed: it knows no location */
        tn_note(graph->session, op->loc, "%s: while computing the type of the result", row->name);
        return false;
    }
    *results = x.result;
    *nresults = x.nresults;
    return true;
}
