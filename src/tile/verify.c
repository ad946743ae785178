/* The rules of the Tile IR. A kernel that breaks one came from a text (the message says where) or from a bug of ours.
 *
 *   K1 buffers, views and grid: ranks, modes, panels of at least two dimensions, extents r * 2^k with small odd r
 *   K2 values are defined before their use in an enclosing block; regions end in their only yield
 *   K3 operand, result and region counts; the type rule of each operation
 *   K4 accesses: a subscript a view dimension, axes in range, extents of one axis agree; read buffers are never stored
 *   K5 combine regions are pure scalar code on 2n arguments, with n identities
 *   K6 a fold's body does not load what it stores, but at the same place; it writes through views alone
 *   K7 the schedule names labels and keys that exist, with values that make sense */
#include "tile/internal.h"

#include <string.h>

typedef struct verifier {
    const tn_kernel *kernel;
    tn_session *session;
    tn_arena *arena;                  /* of this check alone */
    tn_map visible;                   /* value -> itself */
    TN_VEC(const tn_tvalue *) scope;  /* to leave a block */
    tn_map labels;                    /* label -> operation */
} verifier;

#define FAIL(v, op, ...) fail((v), (op), tn_format((v)->arena, __VA_ARGS__))
static bool fail(const verifier *v, const tn_top *op, const char *message)
{
    const char *what = !op ? NULL : op->code == TN_T_map ? tn_scalar_name(op->fn) : tn_top_name(op->code);
    tn_error(v->session, TN_INVALID, op ? op->loc : TN_NO_LOC, "kernel @%s: %s%s%s", v->kernel->name, what ? what : "", what ? ": " : "",
             message);
    return false;
}

static const char *type_text(const verifier *v, const tn_ttype *type) { return tn_ttype_text(v->arena, type); }

/* ---- extents and types ----------------------------------------------------------------------------------------------- */

/* The size where it is known: constant, or bound by the schedule; else 0. */
static int64_t size_of(const verifier *v, tn_extent e)
{
    for (size_t i = 0; e.param && i < v->kernel->schedule.bind.len; i++)
        if (v->kernel->schedule.bind.at[i].param == e.param)
            return v->kernel->schedule.bind.at[i].value;
    return e.param ? 0 : e.size;
}

static bool same_extent(const verifier *v, tn_extent a, tn_extent b)
{
    int64_t size = size_of(v, a);
    return tn_extent_same(a, b) || (size && size == size_of(v, b));
}

static bool check_extent(const verifier *v, const tn_top *op, tn_extent e)
{
    int64_t size = size_of(v, e);
    if (e.param && !size)
        return true; /* still to be bound */
    return tn_extent_is_good(size) || FAIL(v, op, "an extent is r * 2^k with odd r up to %d, found %lld", TN_TILE_ODD, (long long)size);
}

static bool check_type(const verifier *v, const tn_top *op, const tn_ttype *type)
{
    if (type->rank < 0 || type->rank > TN_TILE_RANK || type->dtype <= TN_NO_DTYPE || type->dtype >= TN_DTYPE_COUNT)
        return FAIL(v, op, "a tile has an element type and at most %d axes", TN_TILE_RANK);
    if (type->pointer && tn_dtype_bits(type->dtype) < 8)
        return FAIL(v, op, "no pointer points to %s, which is less than a byte", tn_dtype_text(type->dtype));
    for (int i = 0; i < type->rank; i++)
        if (!check_extent(v, op, type->extent[i]))
            return false;
    return true;
}

static bool same_shape(const verifier *v, const tn_ttype *a, const tn_ttype *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = same_extent(v, a->extent[i], b->extent[i]);
    return same;
}

static bool same_type(const verifier *v, const tn_ttype *a, const tn_ttype *b)
{
    return a->dtype == b->dtype && a->pointer == b->pointer && same_shape(v, a, b);
}

static bool expect_type(const verifier *v, const tn_top *op, const char *what, const tn_ttype *found, const tn_ttype *wanted)
{
    return same_type(v, found, wanted) ||
           FAIL(v, op, "%s must be of type %s, found %s", what, type_text(v, wanted), type_text(v, found));
}

static bool expect_integer_scalar(const verifier *v, const tn_top *op, const char *what, const tn_tvalue *x)
{
    return (x->type.rank == 0 && !x->type.pointer && tn_is_integer(x->type.dtype)) ||
           FAIL(v, op, "%s must be an integer scalar, found %s", what, type_text(v, &x->type));
}

static bool expect_operands(const verifier *v, const tn_top *op, int least, int most)
{
    if (op->noperands >= least && op->noperands <= most)
        return true;
    return least == most ? FAIL(v, op, "takes %d operands, found %d", least, op->noperands)
                         : FAIL(v, op, "takes %d to %d operands, found %d", least, most, op->noperands);
}

static const tn_ttype *type_of(const tn_top *op, int i) { return &op->operand[i]->type; }

static tn_ttype with_dtype(tn_ttype type, tn_dtype dtype)
{
    type.dtype = dtype;
    type.pointer = false;
    return type;
}

static bool expect_result(const verifier *v, const tn_top *op, tn_ttype wanted)
{
    return expect_type(v, op, "the result", &op->result->type, &wanted);
}

/* Distinct axes below rank. */
static bool check_axes(const verifier *v, const tn_top *op, int rank)
{
    bool seen[TN_TILE_RANK] = {false};
    for (int i = 0; i < op->naxes; i++) {
        int a = op->axis[i];
        if (a < 0 || a >= rank)
            return FAIL(v, op, "axis %d of a tile with %d axes", a, rank);
        if (seen[a])
            return FAIL(v, op, "axis %d is named twice", a);
        seen[a] = true;
    }
    return true;
}

static bool expect_axes(const verifier *v, const tn_top *op, int n, int rank)
{
    return (op->naxes == n || FAIL(v, op, "needs %d axes, found %d", n, op->naxes)) && check_axes(v, op, rank);
}

/* ---- accesses -------------------------------------------------------------------------------------------------------- */

static bool check_subscript(const verifier *v, const tn_top *op, const tn_subscript *s, const tn_ttype *tile, bool *named)
{
    const tn_ttype *type = &s->value->type;
    if (type->pointer || !tn_is_integer(type->dtype))
        return FAIL(v, op, "a subscript must be an integer, found %s", type_text(v, type));
    if (s->block && (type->rank || s->naxes != 1))
        return FAIL(v, op, "a block subscript is a scalar and one axis, found %s", type_text(v, type));
    if (!s->block && type->rank != s->naxes)
        return FAIL(v, op, "an index tile of %d axes is indexed by %d", type->rank, s->naxes);
    for (int i = 0; i < s->naxes; i++) {
        int a = s->axis[i];
        if (a < 0 || a >= tile->rank)
            return FAIL(v, op, "subscript axis @%d of a tile with %d axes", a, tile->rank);
        if (!s->block && !same_extent(v, type->extent[i], tile->extent[a]))
            return FAIL(v, op, "the index tile %s does not fit axis @%d of %s", type_text(v, type), a, type_text(v, tile));
        named[a] = true;
    }
    return true;
}

static bool check_access(const verifier *v, const tn_top *op, const tn_ttype *tile)
{
    bool named[TN_TILE_RANK] = {false}, known = false;
    for (size_t i = 0; i < v->kernel->views.len; i++)
        known |= v->kernel->views.at[i] == op->view;
    if (!known)
        return FAIL(v, op, "the view is none of the kernel's");
    for (int d = 0; d < op->view->rank; d++) {
        if (!check_subscript(v, op, &op->subscript[d], tile, named))
            return false;
        if (tn_dim_is(op->view->shape[d], TN_TILE_ANY) && !op->subscript[d].inside)
            return FAIL(v, op, "dimension %d of view %%%s has no bounds: its subscript must be in(…)", d, op->view->name);
    }
    const tn_tbuffer *buffer = &v->kernel->buffers.at[op->view->buffer];
    if (tile->dtype != buffer->dtype || tile->pointer)
        return FAIL(v, op, "buffer %%%s holds %s, found %s", buffer->name, tn_dtype_text(buffer->dtype), type_text(v, tile));
    bool reads = tn_top_traits(op->code) & TN_T_READS, writes = tn_top_traits(op->code) & TN_T_WRITES;
    if ((writes && buffer->mode == TN_READ) || (reads && buffer->mode == TN_WRITE))
        return FAIL(v, op, "buffer %%%s is declared `%s`", buffer->name, tn_buffer_mode_text(buffer->mode));
    for (int a = 0; writes && a < tile->rank; a++)
        if (!named[a] && size_of(v, tile->extent[a]) > 1)
            return FAIL(v, op, "no subscript names axis @%d of %s: its elements would be stored over each other", a, type_text(v, tile));
    return true;
}

static bool check_pointers(const verifier *v, const tn_top *op, const tn_ttype *value, int mask)
{
    const tn_ttype *p = type_of(op, 0);
    if (!p->pointer)
        return FAIL(v, op, "expected pointers, found %s", type_text(v, p));
    tn_ttype data = with_dtype(*p, p->dtype), bools = with_dtype(*p, TN_BOOL);
    return expect_type(v, op, "the value", value, &data) &&
           (mask >= op->noperands || expect_type(v, op, "the mask", type_of(op, mask), &bools));
}

/* ---- operations without regions -------------------------------------------------------------------------------------- */

static bool check_map(const verifier *v, const tn_top *op)
{
    if (op->fn <= TN_SCALAR_NONE || op->fn >= TN_SCALAR_COUNT)
        return FAIL(v, op, "no such scalar function");
    if (!expect_operands(v, op, tn_scalar_arity(op->fn), tn_scalar_arity(op->fn)))
        return false;
    const tn_ttype *last = type_of(op, op->noperands - 1);
    bool selects = op->fn == TN_S_select;
    if (!selects && (last->pointer || !tn_scalar_accepts(op->fn, last->dtype)))
        return FAIL(v, op, "is not defined on %s", type_text(v, last));
    for (int i = 0; i < op->noperands; i++) {
        tn_ttype wanted = selects && i == 0 ? with_dtype(*last, TN_BOOL) : *last;
        if (!expect_type(v, op, "an operand", type_of(op, i), &wanted))
            return false;
    }
    tn_ttype result = *last;
    result.dtype = tn_scalar_result(op->fn, last->dtype);
    return expect_result(v, op, result);
}

static int element_bits(const tn_ttype *type) { return type->pointer ? 64 : tn_dtype_bits(type->dtype); }

static bool check_cast(const verifier *v, const tn_top *op)
{
    const tn_ttype *from = type_of(op, 0), *to = &op->result->type;
    if (!same_shape(v, from, to))
        return FAIL(v, op, "keeps the shape, found %s of %s", type_text(v, to), type_text(v, from));
    if (op->code == TN_T_cast && (from->pointer || to->pointer))
        return FAIL(v, op, "no conversion between %s and %s", type_text(v, from), type_text(v, to));
    bool fits = op->code == TN_T_cast || element_bits(from) == element_bits(to);
    return fits || FAIL(v, op, "needs elements of one size, found %s and %s", type_text(v, from), type_text(v, to));
}

static bool check_broadcast(const verifier *v, const tn_top *op)
{
    const tn_ttype *from = type_of(op, 0), *to = &op->result->type;
    if (!expect_axes(v, op, from->rank, to->rank))
        return false;
    for (int i = 0; i < from->rank; i++)
        if (size_of(v, from->extent[i]) != 1 && !same_extent(v, from->extent[i], to->extent[op->axis[i]]))
            return FAIL(v, op, "axis %d of %s does not fit axis %d of %s", i, type_text(v, from), op->axis[i], type_text(v, to));
    tn_ttype wanted = *to;
    wanted.dtype = from->dtype;
    wanted.pointer = from->pointer;
    return expect_result(v, op, wanted);
}

/* Number of elements; 0: unknown. */
static int64_t elements_of(const verifier *v, const tn_ttype *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++)
        if (!tn_mul(n, size_of(v, type->extent[i]), &n))
            return 0;
    return n;
}

static bool check_reshape(const verifier *v, const tn_top *op)
{
    const tn_ttype *from = type_of(op, 0), *to = &op->result->type;
    int64_t n = elements_of(v, from), m = elements_of(v, to);
    if ((n && m && n != m) || from->dtype != to->dtype || from->pointer != to->pointer)
        return FAIL(v, op, "%s does not hold the elements of %s", type_text(v, to), type_text(v, from));
    return true;
}

static bool check_permute(const verifier *v, const tn_top *op)
{
    const tn_ttype *from = type_of(op, 0);
    if (!expect_axes(v, op, from->rank, from->rank))
        return false;
    tn_ttype wanted = *from;
    for (int i = 0; i < from->rank; i++)
        wanted.extent[i] = from->extent[op->axis[i]];
    return expect_result(v, op, wanted);
}

static bool check_join(const verifier *v, const tn_top *op)
{
    tn_ttype wanted = *type_of(op, 0);
    if (!expect_type(v, op, "an operand", type_of(op, 1), &wanted))
        return false;
    if (wanted.rank == TN_TILE_RANK)
        return FAIL(v, op, "the result has more than %d axes", TN_TILE_RANK);
    wanted.extent[wanted.rank++] = tn_extent_const(2);
    return expect_result(v, op, wanted);
}

static bool check_split(const verifier *v, const tn_top *op)
{
    tn_ttype wanted = *type_of(op, 0);
    if (wanted.rank == 0 || size_of(v, wanted.extent[wanted.rank - 1]) != 2)
        return FAIL(v, op, "the last axis must have 2 elements, found %s", type_text(v, &wanted));
    wanted.rank--;
    return expect_result(v, op, wanted) && expect_type(v, op, "the second result", &op->result[1].type, &wanted);
}

/* cat, slice: the same type but for the extent of axis[0]. */
static bool check_along(const verifier *v, const tn_top *op, const tn_ttype *x, const tn_ttype *y)
{
    tn_ttype wanted = *x;
    wanted.extent[op->axis[0]] = y->rank == x->rank ? y->extent[op->axis[0]] : wanted.extent[op->axis[0]];
    return same_type(v, y, &wanted) || FAIL(v, op, "%s and %s differ elsewhere than on axis %d", type_text(v, x), type_text(v, y), op->axis[0]);
}

static bool check_cat(const verifier *v, const tn_top *op)
{
    const tn_ttype *x = type_of(op, 0), *y = type_of(op, 1), *to = &op->result->type;
    if (!expect_axes(v, op, 1, x->rank) || !check_along(v, op, x, y) || !check_along(v, op, x, to))
        return false;
    int64_t n = size_of(v, x->extent[op->axis[0]]), m = size_of(v, y->extent[op->axis[0]]), sum = size_of(v, to->extent[op->axis[0]]);
    return !n || !m || !sum || n + m == sum || FAIL(v, op, "%lld and %lld elements do not make %lld", (long long)n, (long long)m, (long long)sum);
}

static bool check_slice(const verifier *v, const tn_top *op)
{
    const tn_ttype *x = type_of(op, 0), *to = &op->result->type;
    if (!expect_axes(v, op, 1, x->rank) || !check_along(v, op, x, to))
        return false;
    int64_t n = size_of(v, x->extent[op->axis[0]]), m = size_of(v, to->extent[op->axis[0]]), start = op->number.i;
    bool inside = start >= 0 && (!m || (start % m == 0 && (!n || (start < n && m <= n - start))));
    return inside || FAIL(v, op, "start %lld is no whole part of %s in %s", (long long)start, type_text(v, to), type_text(v, x));
}

static tn_class family(tn_dtype dtype)
{
    tn_class c = tn_dtype_class(dtype);
    return c == TN_CLASS_UINT || c == TN_CLASS_BOOL ? TN_CLASS_INT : c;
}

static bool check_dot(const verifier *v, const tn_top *op)
{
    const tn_ttype *x = type_of(op, 0), *y = type_of(op, 1), *to = &op->result->type;
    int r = x->rank;
    bool fits = (r == 2 || r == 3) && y->rank == r && !x->pointer && !y->pointer && tn_t_dot_takes(x->dtype, y->dtype) &&
                same_extent(v, x->extent[r - 1], y->extent[r - 2]) &&
                (r == 2 || same_extent(v, x->extent[0], y->extent[0]));
    if (!fits)
        return FAIL(v, op, "expected [B x] M x K and [B x] K x N of one element type (or of two of 8 bits), found %s and %s", type_text(v, x), type_text(v, y));
    tn_ttype wanted = with_dtype(*x, to->dtype);
    wanted.extent[r - 1] = y->extent[r - 1];
    if (family(x->dtype) != family(to->dtype))
        return FAIL(v, op, "%s cannot be accumulated in %s", tn_dtype_text(x->dtype), tn_dtype_text(to->dtype));
    if (op->precision != TN_IEEE && x->dtype != TN_F32)
        return FAIL(v, op, "%s is a precision of factors of f32, found %s", tn_precision_text(op->precision), type_text(v, x));
    if (op->imprecise && (!tn_is_f8(x->dtype) || op->imprecise < 0))
        return FAIL(v, op, "imprecise %lld: expected a number of products of 8-bit floats, found %s", (long long)op->imprecise, type_text(v, x));
    return expect_result(v, op, wanted);
}

static bool check_gather(const verifier *v, const tn_top *op)
{
    const tn_ttype *x = type_of(op, 0), *index = type_of(op, 1);
    if (!expect_axes(v, op, 1, x->rank))
        return false;
    if (index->pointer || !tn_is_integer(index->dtype))
        return FAIL(v, op, "the index must be integers, found %s", type_text(v, index));
    tn_ttype wanted = *index;
    wanted.dtype = x->dtype;
    wanted.pointer = x->pointer;
    return check_along(v, op, x, &wanted) && expect_result(v, op, wanted);
}

static bool check_atomic(const verifier *v, const tn_top *op)
{
    tn_dtype dtype = op->result->type.dtype;
    if (op->fn <= TN_SCALAR_NONE || tn_scalar_arity(op->fn) != 2 || !tn_scalar_accepts(op->fn, dtype) || tn_scalar_result(op->fn, dtype) != dtype)
        return FAIL(v, op, "needs a function of two %s that gives one", tn_dtype_text(dtype));
    return check_access(v, op, &op->result->type) && expect_operands(v, op, 1, 1) &&
           expect_type(v, op, "the value", type_of(op, 0), &op->result->type);
}

/* Memory order and scope of an atomic on pointers; NULL: acq_rel.gpu. */
static bool check_order(const verifier *v, const tn_top *op)
{
    static const char *const orders[] = {"relaxed", "acquire", "release", "acq_rel"}, *const scopes[] = {"cta", "gpu", "sys"};
    const char *dot = op->text ? strchr(op->text, '.') : NULL;
    bool order = false, scope = false;
    for (size_t i = 0; dot && i < TN_COUNT(orders); i++)
        order |= strlen(orders[i]) == (size_t)(dot - op->text) && memcmp(op->text, orders[i], strlen(orders[i])) == 0;
    for (size_t i = 0; dot && i < TN_COUNT(scopes); i++)
        scope |= strcmp(dot + 1, scopes[i]) == 0;
    return !op->text || (order && scope) || FAIL(v, op, "an order is relaxed, acquire, release or acq_rel, a dot, and cta, gpu or sys, found %s", op->text);
}

static bool check_atomic_ptr(const verifier *v, const tn_top *op)
{
    tn_dtype dtype = op->result->type.dtype;
    if (op->fn != TN_SCALAR_NONE && (tn_scalar_arity(op->fn) != 2 || !tn_scalar_accepts(op->fn, dtype) || tn_scalar_result(op->fn, dtype) != dtype))
        return FAIL(v, op, "needs a function of two %s that gives one", tn_dtype_text(dtype));
    return expect_operands(v, op, 2, 3) && check_pointers(v, op, type_of(op, 1), 2) && expect_result(v, op, *type_of(op, 1)) && check_order(v, op);
}

static bool check_atomic_load(const verifier *v, const tn_top *op)
{
    return expect_operands(v, op, 1, 2) && check_pointers(v, op, &op->result->type, 1) && check_order(v, op);
}

static bool check_cas_ptr(const verifier *v, const tn_top *op)
{
    return check_pointers(v, op, type_of(op, 1), 3) && expect_type(v, op, "the new value", type_of(op, 2), type_of(op, 1)) &&
           expect_result(v, op, *type_of(op, 1)) && check_order(v, op);
}

static bool check_addptr(const verifier *v, const tn_top *op)
{
    const tn_ttype *p = type_of(op, 0), *i = type_of(op, 1);
    if (!p->pointer || i->pointer || !tn_is_integer(i->dtype) || !same_shape(v, p, i))
        return FAIL(v, op, "expected pointers and integers of one shape, found %s and %s", type_text(v, p), type_text(v, i));
    return expect_result(v, op, *p);
}

static bool check_simple(const verifier *v, const tn_top *op)
{
    const tn_ttype *to = op->nresults ? &op->result->type : NULL;
    switch (op->code) {
    case TN_T_const:
        return !to->pointer || FAIL(v, op, "a pointer cannot be a constant");
    case TN_T_size:
        return (op->dim != NULL || FAIL(v, op, "has no dimension")) && expect_result(v, op, tn_tscalar(TN_I64));
    case TN_T_range:
        return expect_integer_scalar(v, op, "the start", op->operand[0]) &&
               ((to->rank == 1 && to->dtype == TN_I64 && !to->pointer) || FAIL(v, op, "gives i64 along one axis, found %s", type_text(v, to)));
    case TN_T_assume:
        return (type_of(op, 1)->dtype == TN_BOOL || FAIL(v, op, "the fact must be of type bool")) && expect_result(v, op, *type_of(op, 0));
    case TN_T_load:
        return expect_operands(v, op, 0, 0) && check_access(v, op, to);
    case TN_T_store:
        return expect_operands(v, op, 1, 1) && check_access(v, op, type_of(op, 0));
    case TN_T_load_ptr: {
        if (!expect_operands(v, op, 1, 3) || !check_pointers(v, op, to, 1))
            return false;
        return op->noperands < 3 || expect_type(v, op, "the value elsewhere", type_of(op, 2), to);
    }
    case TN_T_store_ptr:
        return expect_operands(v, op, 2, 3) && check_pointers(v, op, type_of(op, 1), 2);
    case TN_T_addptr:
        return check_addptr(v, op);
    case TN_T_atomic:
        return check_atomic(v, op);
    case TN_T_atomic_ptr:
        return check_atomic_ptr(v, op);
    case TN_T_atomic_load:
        return check_atomic_load(v, op);
    case TN_T_cas_ptr:
        return check_cas_ptr(v, op);
    case TN_T_map:
        return check_map(v, op);
    case TN_T_cast:
    case TN_T_bitcast:
        return check_cast(v, op);
    case TN_T_broadcast:
        return check_broadcast(v, op);
    case TN_T_reshape:
        return check_reshape(v, op);
    case TN_T_permute:
        return check_permute(v, op);
    case TN_T_join:
        return check_join(v, op);
    case TN_T_split:
        return check_split(v, op);
    case TN_T_cat:
        return check_cat(v, op);
    case TN_T_slice:
        return check_slice(v, op);
    case TN_T_dot:
        return check_dot(v, op);
    case TN_T_gather:
        return check_gather(v, op);
    case TN_T_histogram:
        return (type_of(op, 0)->rank == 1 && tn_is_integer(type_of(op, 0)->dtype) && to->rank == 1 && tn_is_integer(to->dtype)) ||
               FAIL(v, op, "counts integers along one axis into integers, found %s and %s", type_text(v, type_of(op, 0)), type_text(v, to));
    case TN_T_assert:
        return (type_of(op, 0)->dtype == TN_BOOL && !type_of(op, 0)->pointer) || FAIL(v, op, "needs a bool");
    default: /* fence, print, asm: free */
        return true;
    }
}

/* ---- regions --------------------------------------------------------------------------------------------------------- */

static bool check_block(verifier *v, const tn_tblock *block, const tn_top *parent);

static bool check_yield(const verifier *v, const tn_top *op, const tn_tblock *block, const tn_ttype *types, int n)
{
    const tn_top *yield = block->last;
    if (yield->noperands != n)
        return FAIL(v, yield, "%s needs %d values here, found %d", tn_top_name(op->code), n, yield->noperands);
    for (int i = 0; i < n; i++)
        if (!expect_type(v, yield, "a yielded value", type_of(yield, i), &types[i]))
            return false;
    return true;
}

static bool check_arguments(const verifier *v, const tn_top *op, const tn_tblock *block, const tn_ttype *types, int n)
{
    if (block->nargs != n)
        return FAIL(v, op, "a region takes %d arguments here, found %d", n, block->nargs);
    for (int i = 0; i < n; i++)
        if (!expect_type(v, op, "an argument", &block->arg[i].type, &types[i]))
            return false;
    return true;
}

/* K5. Arguments: the n parts of a, then those of b. order: the region says whether a comes before b. */
static bool check_combine(verifier *v, const tn_top *op, const tn_tblock *combine, bool order)
{
    tn_ttype args[2 * TN_TILE_COMBINED], truth = tn_tscalar(TN_BOOL);
    int n = op->nresults;
    for (int i = 0; i < n; i++) {
        if (op->result[i].type.pointer)
            return FAIL(v, op, "pointers cannot be combined");
        args[i] = args[n + i] = tn_tscalar(op->result[i].type.dtype);
    }
    if (!check_arguments(v, op, combine, args, 2 * n) || !check_block(v, combine, op))
        return false;
    for (const tn_top *in = combine->first; in != combine->last; in = in->next) {
        if (!(tn_top_traits(in->code) & TN_T_PURE) || in->nregions || in->nresults != 1 || in->result->type.rank)
            return FAIL(v, in, "a combine region holds only pure operations on scalars");
    }
    for (const tn_top *in = combine->first; in; in = in->next)
        for (int i = 0; i < in->noperands; i++)
            if (in->operand[i]->type.rank)
                return FAIL(v, in, "a combine region holds only pure operations on scalars");
    return order ? check_yield(v, op, combine, &truth, 1) : check_yield(v, op, combine, args, n);
}

static tn_ttype without_axes(const tn_ttype *type, const tn_top *op)
{
    tn_ttype r = {.dtype = type->dtype};
    for (int i = 0; i < type->rank; i++) {
        bool dropped = false;
        for (int a = 0; a < op->naxes; a++)
            dropped |= op->axis[a] == i;
        if (!dropped)
            r.extent[r.rank++] = type->extent[i];
    }
    return r;
}

/* The combined tiles have one shape; the results are what `dropped` leaves of it. */
static bool check_combined(verifier *v, const tn_top *op, tn_tvalue *const *tiles, int n, bool drop)
{
    if (n < 1 || n > TN_TILE_COMBINED || op->nresults != n)
        return FAIL(v, op, "needs 1 to %d tiles and as many results, found %d and %d", TN_TILE_COMBINED, n, op->nresults);
    if (!check_axes(v, op, tiles[0]->type.rank))
        return false;
    for (int i = 0; i < n; i++) {
        tn_ttype wanted = drop ? without_axes(&tiles[i]->type, op) : tiles[i]->type;
        if (!same_shape(v, &tiles[i]->type, &tiles[0]->type))
            return FAIL(v, op, "tiles of one shape, found %s and %s", type_text(v, &tiles[0]->type), type_text(v, &tiles[i]->type));
        if (!expect_type(v, op, "a result", &op->result[i].type, &wanted))
            return false;
    }
    return op->identity || op->code != TN_T_fold || FAIL(v, op, "has no identities");
}

/* K6: folds may run as lanes and parts, so what one strip stores no other may load. */
static bool same_place(const tn_top *a, const tn_top *b)
{
    if (a->view != b->view)
        return false;
    for (int d = 0; d < a->view->rank; d++) {
        const tn_subscript *x = &a->subscript[d], *y = &b->subscript[d];
        if (x->value != y->value || x->block != y->block || x->naxes != y->naxes || memcmp(x->axis, y->axis, sizeof x->axis[0] * (size_t)x->naxes))
            return false;
    }
    return true;
}

/* The buffer that a pointer was made from; -1: not known. */
static int root_of(const verifier *v, const tn_tvalue *p)
{
    while (p->def && p->def->noperands && p->def->operand[0]->type.pointer && p->def->code != TN_T_map && p->def->nregions == 0)
        p = p->def->operand[0];
    for (size_t b = 0; !p->def && p->name && b < v->kernel->buffers.len; b++)
        if (strcmp(v->kernel->buffers.at[b].name, p->name) == 0)
            return (int)b;
    return -1;
}

static bool may_alias(const verifier *v, int a, int b)
{
    bool local = (a >= 0 && v->kernel->buffers.at[a].mode == TN_LOCAL) || (b >= 0 && v->kernel->buffers.at[b].mode == TN_LOCAL);
    return a == b || a < 0 || b < 0 || (v->kernel->overlap && !local);
}

static bool check_aliasing(const verifier *v, const tn_tblock *body, const tn_top *store)
{
    for (const tn_top *op = body->first; op; op = op->next) {
        bool loads = op->code == TN_T_load || op->code == TN_T_load_ptr;
        int from = op->code == TN_T_load ? op->view->buffer : loads ? root_of(v, op->operand[0]) : -1;
        if (loads && may_alias(v, from, store->view->buffer) && (op->code == TN_T_load_ptr || !same_place(op, store)))
            return FAIL(v, store, from == store->view->buffer ? "a fold's body loads buffer %%%s elsewhere than it stores it"
                                                              : "a fold's body loads what may overlap buffer %%%s, which it stores",
                        v->kernel->buffers.at[store->view->buffer].name);
        for (int r = 0; r < op->nregions; r++)
            if (!check_aliasing(v, op->region[r], store))
                return false;
    }
    return true;
}

static bool check_stores(const verifier *v, const tn_tblock *body, const tn_tblock *in)
{
    for (const tn_top *op = in->first; op; op = op->next) {
        if (op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_atomic_load || op->code == TN_T_cas_ptr)
            return FAIL(v, op, "a fold's body writes through views alone: its strips run in any order");
        if (op->code == TN_T_store && !check_aliasing(v, body, op))
            return false;
        for (int r = 0; r < op->nregions; r++)
            if (!check_stores(v, body, op->region[r]))
                return false;
    }
    return true;
}

static bool check_fold(verifier *v, const tn_top *op)
{
    tn_ttype starts[TN_TILE_RANK];
    if (op->nranges < 1 || op->nranges > TN_TILE_RANK || op->noperands != op->nranges)
        return FAIL(v, op, "has 1 to %d ranges with a limit each", TN_TILE_RANK);
    for (int i = 0; i < op->nranges; i++) {
        starts[i] = tn_tscalar(TN_I64);
        if (!expect_type(v, op, "a limit", type_of(op, i), &starts[i]) || !check_extent(v, op, op->step[i]))
            return false;
    }
    const tn_tblock *body = op->region[0];
    return check_arguments(v, op, body, starts, op->nranges) && check_block(v, body, op) &&
           check_combined(v, op, body->last->operand, body->last->noperands, true) && check_combine(v, op, op->region[1], false) &&
           check_stores(v, body, body);
}

static bool check_for(verifier *v, const tn_top *op)
{
    tn_ttype args[TN_T_MAX_VALUES + 1] = {tn_tscalar(TN_I64)};
    int n = op->nresults;
    if (n > TN_T_MAX_VALUES || op->noperands != 3 + n)
        return FAIL(v, op, "needs bounds, a step and a start for each of its %d results", n);
    for (int i = 0; i < 3; i++)
        if (!expect_integer_scalar(v, op, "a bound", op->operand[i]))
            return false;
    for (int i = 0; i < n; i++) {
        args[1 + i] = op->result[i].type;
        if (!expect_type(v, op, "a start", type_of(op, 3 + i), &args[1 + i]))
            return false;
    }
    return check_arguments(v, op, op->region[0], args, 1 + n) && check_block(v, op->region[0], op) &&
           check_yield(v, op, op->region[0], args + 1, n);
}

static bool check_while(verifier *v, const tn_top *op)
{
    tn_ttype args[TN_T_MAX_VALUES], truth = tn_tscalar(TN_BOOL);
    int n = op->nresults;
    if (n > TN_T_MAX_VALUES || op->noperands != n)
        return FAIL(v, op, "needs a start for each of its %d results", n);
    for (int i = 0; i < n; i++) {
        args[i] = op->result[i].type;
        if (!expect_type(v, op, "a start", type_of(op, i), &args[i]))
            return false;
    }
    return check_arguments(v, op, op->region[0], args, n) && check_block(v, op->region[0], op) && check_yield(v, op, op->region[0], &truth, 1) &&
           check_arguments(v, op, op->region[1], args, n) && check_block(v, op->region[1], op) && check_yield(v, op, op->region[1], args, n);
}

static bool check_if(verifier *v, const tn_top *op)
{
    tn_ttype types[TN_T_MAX_VALUES], truth = tn_tscalar(TN_BOOL);
    if (op->nresults > TN_T_MAX_VALUES || !expect_type(v, op, "the condition", type_of(op, 0), &truth))
        return false;
    for (int i = 0; i < op->nresults; i++)
        types[i] = op->result[i].type;
    for (int r = 0; r < 2; r++)
        if (!check_arguments(v, op, op->region[r], NULL, 0) || !check_block(v, op->region[r], op) ||
            !check_yield(v, op, op->region[r], types, op->nresults))
            return false;
    return true;
}

static bool check_regions(verifier *v, const tn_top *op)
{
    switch (op->code) {
    case TN_T_reduce:
        return check_combined(v, op, op->operand, op->noperands, true) && check_combine(v, op, op->region[0], false);
    case TN_T_scan:
    case TN_T_sort:
        return check_combined(v, op, op->operand, op->noperands, false) && expect_axes(v, op, 1, type_of(op, 0)->rank) &&
               check_combine(v, op, op->region[0], op->code == TN_T_sort);
    case TN_T_fold:
        return check_fold(v, op);
    case TN_T_for:
        return check_for(v, op);
    case TN_T_while:
        return check_while(v, op);
    case TN_T_if:
        return check_if(v, op);
    default:
        return check_simple(v, op);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

static void define(verifier *v, const tn_tvalue *value)
{
    *tn_map_at(&v->visible, TN_KEY(value)) = (void *)value;
    TN_PUSH(v->arena, &v->scope, value);
}

static bool check_visible(const verifier *v, const tn_top *op)
{
    bool ok = true;
    for (int i = 0; i < op->noperands; i++)
        ok &= tn_map_get(&v->visible, TN_KEY(op->operand[i])) != NULL;
    for (int d = 0; op->view && d < op->view->rank; d++)
        ok &= tn_map_get(&v->visible, TN_KEY(op->subscript[d].value)) != NULL;
    return ok || FAIL(v, op, "reads a value that is not defined before it in an enclosing block");
}

static bool check_counts(const verifier *v, const tn_top *op)
{
    enum { VARIADIC = -1 };
    static const signed char counts[][3] = {
#define TOP(name, operands, results, regions, traits) {operands, results, regions},
#include "tile/ops.def"
#undef TOP
    };
    const signed char *c = counts[op->code];
    if ((c[0] >= 0 && op->noperands != c[0]) || (c[1] >= 0 && op->nresults != c[1]) || op->nregions != c[2])
        return FAIL(v, op, "takes %d operands and gives %d results, found %d and %d", c[0], c[1], op->noperands, op->nresults);
    bool accesses = op->code == TN_T_load || op->code == TN_T_store || op->code == TN_T_atomic;
    return accesses == (op->view != NULL) || FAIL(v, op, "a view belongs to loads, stores and atomics");
}

static bool check_label(verifier *v, const tn_top *op)
{
    if (!op->label)
        return true;
    void **cell = tn_map_at_str(&v->labels, op->label);
    if (*cell)
        return FAIL(v, op, "the label @%s names another operation already", op->label);
    *cell = (void *)op;
    return true;
}

static bool check_op(verifier *v, const tn_top *op)
{
    if (op->code < 0 || op->code >= TN_TOP_COUNT)
        return FAIL(v, NULL, "an operation of no known kind");
    if (!check_counts(v, op) || !check_visible(v, op) || !check_label(v, op))
        return false;
    for (int i = 0; i < op->nresults; i++)
        if (!check_type(v, op, &op->result[i].type))
            return false;
    if (!check_regions(v, op))
        return false;
    for (int i = 0; i < op->nresults; i++)
        define(v, &op->result[i]);
    return true;
}

static bool check_block(verifier *v, const tn_tblock *block, const tn_top *parent)
{
    size_t mark = v->scope.len;
    for (int i = 0; i < block->nargs; i++)
        define(v, &block->arg[i]);
    for (const tn_top *op = block->first; op; op = op->next) {
        if ((op->code == TN_T_yield) != (parent && op == block->last))
            return FAIL(v, op, parent ? "a region ends in its only yield" : "a kernel's body has no yield");
        if (!check_op(v, op))
            return false;
    }
    if (parent && !block->last)
        return FAIL(v, parent, "a region ends in a yield");
    for (; v->scope.len > mark; v->scope.len--)
        *tn_map_at(&v->visible, TN_KEY(v->scope.at[v->scope.len - 1])) = NULL;
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

static bool negative(tn_dim d) { return tn_dim_is_const(d) && d->value < 0; }

static bool check_view(const verifier *v, const tn_view *view)
{
    if (view->buffer < 0 || (size_t)view->buffer >= v->kernel->buffers.len || view->rank < 0 || view->rank > TN_MAX_RANK)
        return FAIL(v, NULL, "view %%%s names no buffer, or has more than %d dimensions", view->name, TN_MAX_RANK);
    for (int d = 0; d < view->rank; d++)
        if (negative(view->shape[d]))
            return FAIL(v, NULL, "view %%%s has a negative dimension", view->name);
    if (view->panel < 0 || (view->panel && view->rank < 2))
        return FAIL(v, NULL, "view %%%s: panels are positive and need two dimensions at least", view->name);
    return true;
}

static bool check_header(verifier *v)
{
    const tn_kernel *k = v->kernel;
    for (size_t i = 0; i < k->buffers.len; i++) {
        const tn_tbuffer *t = &k->buffers.at[i];
        if (t->mode == TN_LOCAL ? !t->elements || negative(t->elements) : t->elements && negative(t->elements))
            return FAIL(v, NULL, "buffer %%%s has no size, or a negative one", t->name);
        if (t->align < 0 || (t->align & (t->align - 1)) || (t->align && t->mode == TN_LOCAL))
            return FAIL(v, NULL, "buffer %%%s: the alignment of a parameter is a power of two, found %lld", t->name, (long long)t->align);
    }
    for (size_t i = 0; i < k->views.len; i++)
        if (!check_view(v, k->views.at[i]))
            return false;
    for (size_t i = 0; i < k->scalars.len; i++) {
        define(v, k->scalars.at[i]);
        if (k->scalars.at[i]->type.rank || !check_type(v, NULL, &k->scalars.at[i]->type))
            return FAIL(v, NULL, "parameter %%%s is no scalar", k->scalars.at[i]->name);
        if (k->scalars.at[i]->divisor && (k->scalars.at[i]->divisor < 0 || k->scalars.at[i]->type.pointer || !tn_is_integer(k->scalars.at[i]->type.dtype)))
            return FAIL(v, NULL, "parameter %%%s: only an integer is a `multiple`, and of a number that is not negative", k->scalars.at[i]->name);
    }
    for (size_t i = 0; i < k->grid.len; i++) {
        define(v, k->grid.at[i].value);
        if (negative(k->grid.at[i].limit) || !check_extent(v, NULL, k->grid.at[i].step))
            return false;
    }
    return true;
}

/* ---- schedules ------------------------------------------------------------------------------------------------------- */

enum { ON_KERNEL = 1, ON_FOLD = 2, ON_STORE = 4, ON_DOT = 8, ON_LOAD = 16, ON_VALUE = 32 };
static const struct {
    const char *key;
    unsigned on;
    int64_t least, most;
} keys[] = {
    {"threads-grain", ON_KERNEL, 1, INT64_MAX}, {"vector-axis", ON_FOLD | ON_STORE, 0, TN_TILE_RANK - 1}, {"lanes", ON_FOLD, 1, 4096},
    {"rows", ON_FOLD | ON_DOT, 1, 64},          {"columns", ON_FOLD | ON_DOT, 1, 4096},
    {"unroll", ON_FOLD | ON_DOT, 1, 16},        {"prefetch", ON_LOAD, 0, 64},
    {"prefetch-buffer", ON_LOAD, 0, 1 << 16},   {"keep", ON_LOAD | ON_VALUE, 0, 1},
    {"strip", ON_FOLD | ON_DOT, 0, 1 << 20},    {"ahead", ON_FOLD | ON_DOT, 0, 64},
    {"window", ON_FOLD, 0, 1 << 20},            {"direct", ON_FOLD | ON_DOT, 0, 64},
    {"warps", ON_KERNEL, 1, 32},                {"stages", ON_KERNEL | ON_FOLD, 1, 8},                {"group", ON_KERNEL, 1, 1 << 20},
    {"instances", ON_KERNEL, 1, 4},             {"longest", ON_KERNEL, 0, 1},                {"result-boxes", ON_KERNEL, 0, 4},
    {"cluster", ON_KERNEL, 1, 8},
};

static unsigned kind_of(const tn_top *op)
{
    return !op ? ON_KERNEL
           : op->code == TN_T_fold || op->code == TN_T_reduce ? ON_FOLD
           : op->code == TN_T_store                           ? ON_STORE
           : op->code == TN_T_dot                             ? ON_DOT
           : op->code == TN_T_load                            ? ON_LOAD
           : op->nregions == 0 && op->nresults == 1           ? ON_VALUE
                                                              : 0;
}

static bool check_entry(const verifier *v, const tn_schedule_entry *e)
{
    const tn_top *op = e->label[0] ? tn_map_get_str(&v->labels, e->label) : NULL;
    if (e->label[0] && !op)
        return FAIL(v, NULL, "schedule: no operation has the label @%s", e->label);
    for (size_t i = 0; i < TN_COUNT(keys); i++) {
        if (strcmp(keys[i].key, e->key) != 0)
            continue;
        if (!(keys[i].on & kind_of(op)))
            return FAIL(v, op, "schedule: the key `%s` does not belong here", e->key);
        bool power = (strcmp(e->key, "lanes") != 0 && strcmp(e->key, "warps") != 0) || (e->value & (e->value - 1)) == 0;
        return (e->value >= keys[i].least && e->value <= keys[i].most && power) ||
               FAIL(v, op, "schedule: `%s` cannot be %lld", e->key, (long long)e->value);
    }
    return FAIL(v, op, "schedule: no key is called `%s`", e->key);
}

static bool check_vector_axis(const verifier *v, const tn_schedule_entry *e)
{
    const tn_top *op = e->label[0] ? tn_map_get_str(&v->labels, e->label) : NULL;
    if (!op || strcmp(e->key, "vector-axis") != 0)
        return true;
    const tn_tvalue *tile = op->code == TN_T_fold ? op->region[0]->last->operand[0] : op->operand[0];
    return e->value < tn_max(tile->type.rank, 1) || FAIL(v, op, "schedule: `vector-axis` %lld of %s", (long long)e->value, type_text(v, &tile->type));
}

static bool check_schedule(const verifier *v)
{
    const tn_schedule *s = &v->kernel->schedule;
    for (size_t i = 0; i < s->bind.len; i++)
        if (!tn_extent_is_good(s->bind.at[i].value))
            return FAIL(v, NULL, "schedule: %s must be r * 2^k with odd r up to %d, found %lld", s->bind.at[i].param, TN_TILE_ODD,
                        (long long)s->bind.at[i].value);
    for (size_t i = 0; i < s->entry.len; i++)
        if (!check_entry(v, &s->entry.at[i]) || !check_vector_axis(v, &s->entry.at[i]))
            return false;
    return true;
}

tn_status tn_tile_verify(const tn_kernel *kernel)
{
    tn_arena arena = {.on_oom = kernel->session->arena.on_oom};
    verifier v = {.kernel = kernel, .session = kernel->session, .arena = &arena, .visible = {.arena = &arena}, .labels = {.arena = &arena}};
    bool ok = check_header(&v) && check_block(&v, kernel->body, NULL) && check_schedule(&v);
    tn_arena_free(&arena);
    return ok ? TN_OK : TN_INVALID;
}
