/* Vectorisation of the loops of kind `vector`, to the register width of the machine.
 *
 *     for %i = %0 to %n step %1 vector {            %main = and %n, -64
 *       %a = load %x[%i] : f32                      for %i = %0 to %main step %64 {     four vectors of 16 in flight
 *       %b = load %y[%3] : f32                        %b = load %y[%3] : f32
 *       %c = mul %a, %b : f32              =>         %a.0 = load %x[%i] : f32x16 … four of each operation
 *       store %z[%i], %c                            }
 *     }                                             for %i = %main to %n step %16 {     what is left, under a mask
 *                                                     %m = lt iota, splat(%n - %i) : boolx16 …
 *                                                   }
 *
 * No dependence analysis: `vector` is a promise of who made the loop (loop.h), and reductions are buffers indexed by
 * lane, never carried values. What is analysed is the shape of each value as a function of the loop's index:
 *
 *     uniform   the same for all iterations that run together: stays scalar, computed once, splat where a vector needs
 * it affine    an integer, base + stride * iteration with a constant stride: stays scalar (the value of lane 0); a
 * vector of it, splat(base) + stride * iota, is made only where lanes need it varying   a vector lanes     a buffer
 * allocated in the body: each iteration has its own, so element e becomes the vector of the lanes' elements e. Offsets
 * into it must be uniform
 *
 * An access to memory at an affine offset of stride 1 is a contiguous vector access, of stride -1 one with a reversing
 * shuffle, everything else a gather or scatter. A load at a uniform offset stays a scalar load. Loops inside with
 * uniform bounds stay loops, their bodies widened. `if` with a uniform condition stays; under a varying one both sides
 * run, pure operations as they are (scalar functions are total), memory accesses under masks; a long side is skipped
 * when no lane wants it.
 *
 * Lanes: register bits / bits of the widest element that becomes a vector; bool and scalar offset arithmetic don't
 * count. f16, bf16 and f8 that compute count as f32, because expand.c computes them there. Comparing an affine value
 * with a uniform one (`i < n`) is done on small integers: stride * iota ? clamp(n - base), when ranges prove that
 * nothing wraps.
 *
 * Remainder: masked where the machine has masks for every element type that the body accesses; else powers of two for a
 * constant remainder, a scalar loop for an unknown one. Which one runs depends on sizes alone, never on addresses, and
 * lanes don't exchange values, so results don't depend on it.
 *
 * Stays scalar (the loop becomes serial, which is always right): a loop within with bounds that vary or of kind
 * `vector` (then the inner one is widened), `while`, atomics, cas, print, traps, stores to one place from all
 * iterations, varying offsets into lane buffers, vectors in the body, complex and sub-byte elements, varying `if`s that would need masks
 * the machine lacks.
 *
 * On a GPU a vector is what one thread has side by side: a loop of a constant number of iterations becomes one vector of that many (tn_vector_spec.most_lanes), a mask is always
 * there, and a comparison `base + lane < n` of a base and an n that the number of lanes divides is the same for all lanes: uniform, so that accesses under it are
 * whole. What stays scalar is unrolled, so that registers keep constant offsets.
 *
 * Needs: nothing; better after simplify. Keeps: size linear in the body (at most six copies). Ensures: no `vector` loop
 * is left and no vector is wider than the machine's. */
#include "loop/internal.h"

#include <assert.h>

enum { MAX_COPIES = 4, MAX_LANES = 64 /* so that i8 counts lanes */, LONG_BLOCK = 24, EXPANDED = 24 };

typedef enum shape { UNIFORM, AFFINE, VARYING, LANES } shape;

/* What a value of the body is, and, while code is emitted, what it has become: scalar[c] the uniform value (c = 0),
 * lane 0 of copy c, or copy c's buffer; vector[c] its vector. */
typedef struct info {
    const tn_lop *loop; /* whose analysis this is */
    shape shape;
    int64_t stride;
    tn_lvalue *scalar[MAX_COPIES], *vector[MAX_COPIES];
} info;

typedef struct widener {
    tn_lfunc *func;
    const tn_vector_spec *spec;
    tn_lop *loop;
    int64_t step;
    int exact; /* lanes, if all iterations are one vector of a GPU's thread; else 0 */
    tn_map ranges;
    /* found by the analysis */
    int widest; /* bits */
    int nops;
    bool masks;     /* masked accesses exist for all contiguous accesses */
    bool outer_reg; /* accesses a `reg` buffer of outside by lanes: its offsets must become constants */
    bool dear;      /* has calls or scalarised operations: more copies would only bloat */
    int ncontiguous, ngather, nloops;
    /* of the code being emitted */
    int lanes, copies;
    bool predicated;             /* pred is narrower than the tail's mask: some group of lanes may have none active */
    tn_lvalue *pred[MAX_COPIES]; /* active lanes; NULL: all */
} widener;

/* ---- analysis ---- */

static info *info_of(const widener *w, const tn_lvalue *v)
{
    info *known = v->scratch;
    return known && known->loop == w->loop ? known : NULL;
}

static info *set_info(widener *w, tn_lvalue *v, shape shape, int64_t stride)
{
    info *i = TN_NEW(tn_l_arena(w->func), info);
    *i = (info){.loop = w->loop, .shape = shape, .stride = stride};
    v->scratch = i;
    return i;
}

static shape shape_of(const widener *w, const tn_lvalue *v)
{
    const info *known = info_of(w, v);
    return known ? known->shape : UNIFORM;
}

static int64_t stride_of(const widener *w, const tn_lvalue *v)
{
    const info *known = info_of(w, v);
    return known && known->shape == AFFINE ? known->stride : 0;
}

static bool all_uniform(const widener *w, const tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++)
        if (shape_of(w, op->operand[i]) != UNIFORM)
            return false;
    return true;
}

static bool within(tn_lrange r, int64_t lo, int64_t hi)
{
    return r.lo >= lo && r.hi <= hi;
}

static bool fits_i32(widener *w, const tn_lvalue *v)
{
    return within(tn_l_range(&w->ranges, v), INT32_MIN, INT32_MAX);
}

static bool elements_ok(tn_dtype dtype)
{
    return !tn_is_complex(dtype) && tn_dtype_bits(dtype) >= 8;
}

static void count_bits(widener *w, tn_dtype dtype, bool computes)
{
    if (dtype == TN_BOOL)
        return;
    int bits = tn_dtype_bits(dtype);
    if (computes && tn_is_float(dtype) && bits < 32)
        bits = 32;
    w->widest = bits > w->widest ? bits : w->widest;
}

/* The stride of an integer fn of affine and uniform operands; false: not affine. */
static bool affine_fn(const widener *w, const tn_lop *op, int64_t *stride)
{
    if (!tn_is_integer(op->result->type.dtype))
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (shape_of(w, op->operand[i]) > AFFINE)
            return false;
    int64_t x = stride_of(w, op->operand[0]), y = op->noperands > 1 ? stride_of(w, op->operand[1]) : 0, factor;
    switch (op->fn) {
    case TN_S_add:
        return tn_add(x, y, stride);
    case TN_S_sub:
        return tn_sub(x, y, stride);
    case TN_S_neg:
        return tn_sub(0, x, stride);
    case TN_S_mul:
        if (tn_l_is_const(op->operand[1], &factor))
            return tn_mul(x, factor, stride);
        return tn_l_is_const(op->operand[0], &factor) && tn_mul(y, factor, stride);
    case TN_S_shl:
        return tn_l_is_const(op->operand[1], &factor) && factor >= 0 && factor < 62 &&
               factor < tn_dtype_bits(op->result->type.dtype) && tn_mul(x, INT64_C(1) << factor, stride);
    default:
        return false;
    }
}

static bool is_compare(tn_scalar fn)
{
    return fn >= TN_S_eq && fn <= TN_S_ge;
}

/* The integer type on whose lanes `i < n` is compared: as wide as the data. */
static tn_dtype lane_dtype(int bits)
{
    return bits <= 8 ? TN_I8 : bits == 16 ? TN_I16 : bits == 32 ? TN_I32 : TN_I64;
}

static const int64_t no_wrap = INT64_C(1) << 61;

/* compare(affine, uniform) or the reverse, of indices that can't wrap. -1: no; else the number of the affine operand.
 */
static int narrow_compare(widener *w, const tn_lop *op)
{
    if (!is_compare(op->fn) || op->operand[0]->type.dtype != TN_I64)
        return -1;
    for (int i = 0; i < 2; i++) {
        int64_t stride = stride_of(w, op->operand[i]);
        if (shape_of(w, op->operand[i]) == AFFINE && shape_of(w, op->operand[1 - i]) == UNIFORM && stride >= -1 &&
            stride <= 1 && within(tn_l_range(&w->ranges, op->operand[0]), -no_wrap, no_wrap) &&
            within(tn_l_range(&w->ranges, op->operand[1]), -no_wrap, no_wrap))
            return i;
    }
    return -1;
}

/* Whether first + stride * lane < last or >= last for all lanes alike: the whole vector's width divides both, and nothing wraps. A width that is a power of two
 * divides the numbers at which types wrap: no vector goes over one. */
static bool same_for_all_lanes(widener *w, const tn_lop *op)
{
    static const struct {
        tn_scalar fn;
        int affine;
    } forms[] = {{TN_S_lt, 0}, {TN_S_ge, 0}, {TN_S_gt, 1}, {TN_S_le, 1}};
    for (size_t i = 0; w->exact && i < TN_COUNT(forms); i++) {
        if (op->fn != forms[i].fn)
            continue;
        const tn_lvalue *x = op->operand[forms[i].affine], *last = op->operand[1 - forms[i].affine], *index = w->loop->region[0]->arg;
        int64_t stride = stride_of(w, x), limit = tn_dtype_bits(x->type.dtype) == 64 ? no_wrap : INT32_MAX / 2, width;
        if (stride > 0 && shape_of(w, last) == UNIFORM && (x->type.dtype == TN_I64 || x->type.dtype == TN_I32) && tn_mul(stride, w->exact, &width) &&
            tn_l_multiple(x, index) % width == 0 && tn_l_multiple(last, NULL) % width == 0 && ((width & (width - 1)) == 0 || within(tn_l_range(&w->ranges, x), -limit, limit)))
            return true;
    }
    return false;
}

/* Notes that a value of the body is needed as a vector. */
static void need_vector(widener *w, const tn_lvalue *v, bool computes)
{
    count_bits(w, v->type.dtype, computes);
}

static bool analyse_fn(widener *w, tn_lop *op)
{
    int64_t stride = 0;
    tn_dtype operand = op->operand[op->noperands - 1]->type.dtype;
    if (affine_fn(w, op, &stride)) {
        set_info(w, op->result, stride ? AFFINE : UNIFORM, stride);
        return true;
    }
    if (same_for_all_lanes(w, op)) {
        set_info(w, op->result, UNIFORM, 0);
        return true;
    }
    set_info(w, op->result, VARYING, 0);
    if (!elements_ok(operand))
        return false;
    if (narrow_compare(w, op) >= 0)
        return true;
    bool moves = op->fn == TN_S_select;
    for (int i = 0; i < op->noperands; i++)
        need_vector(w, op->operand[i], !moves);
    need_vector(w, op->result, !moves);
    if (tn_is_float(operand) && !(tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP)) /* expand.c makes a polynomial of it */
        w->nops += EXPANDED;
    bool division = (op->fn == TN_S_div || op->fn == TN_S_rem) && (tn_is_integer(operand) || op->fn == TN_S_rem);
    w->dear |= division || (operand == TN_F64 && !(tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP) && op->fn != TN_S_div && op->fn != TN_S_div_full);
    return true;
}

/* A wider integer of an affine value is affine if the narrow one didn't wrap, which a proven range smaller than its
 * type tells. */
static bool affine_cast(widener *w, const tn_lop *op)
{
    tn_dtype from = op->operand[0]->type.dtype, to = op->result->type.dtype;
    if (shape_of(w, op->operand[0]) != AFFINE || !tn_is_integer(to))
        return false;
    if (tn_dtype_bits(to) <= tn_dtype_bits(from))
        return true;
    return from == TN_I32 && within(tn_l_range(&w->ranges, op->operand[0]), INT32_MIN + 1, INT32_MAX - 1);
}

/* Index to float by way of i32, so that it needs no vector of 64-bit lanes. */
static bool by_i32(widener *w, const tn_lop *op)
{
    return op->code == TN_L_cast && shape_of(w, op->operand[0]) == AFFINE && tn_is_float(op->result->type.dtype) &&
           op->operand[0]->type.dtype == TN_I64 && fits_i32(w, op->operand[0]);
}

static bool analyse_cast(widener *w, tn_lop *op)
{
    if (op->code == TN_L_cast && affine_cast(w, op)) {
        set_info(w, op->result, AFFINE, stride_of(w, op->operand[0]));
        return true;
    }
    set_info(w, op->result, VARYING, 0);
    tn_dtype from = op->operand[0]->type.dtype, to = op->result->type.dtype;
    if (!elements_ok(from) || !elements_ok(to) ||
        (op->code == TN_L_bitcast && tn_dtype_bits(from) != tn_dtype_bits(to)))
        return false;
    count_bits(w, by_i32(w, op) ? TN_I32 : from, true);
    count_bits(w, to, true);
    return true;
}

static bool contiguous(const widener *w, const tn_lvalue *offset)
{
    int64_t stride = stride_of(w, offset);
    return stride == 1 || stride == -1;
}

/* An access to memory of outside by vectors. */
static bool analyse_vector_access(widener *w, const tn_lop *op, bool predicated)
{
    const tn_lvalue *buffer = op->operand[0], *offset = op->operand[1];
    tn_dtype dtype = buffer->type.dtype;
    if (!elements_ok(dtype) || buffer->type.lanes != 1)
        return false;
    count_bits(w, dtype, false);
    w->outer_reg |= buffer->type.space == TN_SPACE_REG;
    bool has_mask = predicated || tn_lop_mask(op);
    if (contiguous(w, offset)) {
        bool exists = w->exact || (w->spec->mask_min_bits && tn_dtype_bits(dtype) >= w->spec->mask_min_bits);
        w->masks &= exists;
        w->ncontiguous++;
        return exists || !has_mask;
    }
    if (!(shape_of(w, offset) == AFFINE && fits_i32(w, offset)))
        count_bits(w, TN_I64, false);
    else
        count_bits(w, TN_I32, false);
    w->ngather++;
    return true;
}

static bool analyse_load(widener *w, tn_lop *op, bool predicated)
{
    const tn_lvalue *buffer = op->operand[0], *offset = op->operand[1];
    if (shape_of(w, buffer) == LANES) {
        set_info(w, op->result, VARYING, 0);
        count_bits(w, buffer->type.dtype, false);
        return shape_of(w, offset) == UNIFORM;
    }
    if (shape_of(w, offset) == UNIFORM) {
        bool uniform = all_uniform(w, op);
        set_info(w, op->result, uniform ? UNIFORM : VARYING, 0);
        if (!uniform)
            count_bits(w, buffer->type.dtype, false);
        return uniform || elements_ok(buffer->type.dtype);
    }
    set_info(w, op->result, VARYING, 0);
    return analyse_vector_access(w, op, predicated);
}

static bool analyse_store(widener *w, tn_lop *op, bool predicated)
{
    const tn_lvalue *buffer = op->operand[0], *offset = op->operand[1];
    if (shape_of(w, buffer) == LANES) {
        count_bits(w, buffer->type.dtype, false);
        return shape_of(w, offset) == UNIFORM;
    }
    return shape_of(w, offset) != UNIFORM && analyse_vector_access(w, op, predicated);
}

static bool analyse_block(widener *w, tn_lblock *block, bool predicated);

static bool analyse_control(widener *w, tn_lop *op, bool predicated)
{
    if (op->code == TN_L_for) {
        if (op->kind == TN_FOR_VECTOR || op->kind == TN_FOR_GRID || !all_uniform(w, op))
            return false;
        w->nloops++;
        set_info(w, op->region[0]->arg, UNIFORM, 0);
        return analyse_block(w, op->region[0], predicated);
    }
    predicated |= !all_uniform(w, op);
    return analyse_block(w, op->region[0], predicated) && analyse_block(w, op->region[1], predicated);
}

static bool scalars_only(const tn_lop *op)
{
    if (op->result && op->result->type.lanes != 1)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (op->operand[i]->type.lanes != 1)
            return false;
    return true;
}

static bool analyse_op(widener *w, tn_lop *op, bool predicated)
{
    w->nops++;
    if (!scalars_only(op))
        return false;
    switch (op->code) {
    case TN_L_for:
    case TN_L_if:
        return analyse_control(w, op, predicated);
    case TN_L_load:
        return analyse_load(w, op, predicated);
    case TN_L_store:
        return analyse_store(w, op, predicated);
    case TN_L_alloc:
        set_info(w, op->result, LANES, 0);
        return op->result->type.space != TN_SPACE_SHARED && all_uniform(w, op) && elements_ok(op->result->type.dtype);
    case TN_L_prefetch:
        return true;
    default:
        break;
    }
    if (!(tn_lop_traits(op->code) & TN_L_PURE))
        return false;
    if (all_uniform(w, op)) {
        set_info(w, op->result, UNIFORM, 0);
        return true;
    }
    if (op->code == TN_L_fn)
        return analyse_fn(w, op);
    return (op->code == TN_L_cast || op->code == TN_L_bitcast) && analyse_cast(w, op);
}

static bool analyse_block(widener *w, tn_lblock *block, bool predicated)
{
    for (tn_lop *op = block->first; op; op = op->next)
        if (!analyse_op(w, op, predicated))
            return false;
    return true;
}

static bool constant_trips(const widener *w, int64_t *trips)
{
    int64_t lo, hi, extent;
    if (!tn_l_is_const(w->loop->operand[0], &lo) || !tn_l_is_const(w->loop->operand[1], &hi) ||
        !tn_sub(hi, lo, &extent))
        return false;
    *trips = extent <= 0 ? 0 : (extent - 1) / w->step + 1;
    return true;
}

static bool can_widen(widener *w)
{
    int64_t trips;
    if (!tn_l_is_const(w->loop->operand[2], &w->step) || w->step <= 0)
        return false;
    if (constant_trips(w, &trips) && trips > 1 && trips <= w->spec->most_lanes && (trips & (trips - 1)) == 0)
        w->exact = (int)trips;
    w->masks = w->spec->mask_min_bits > 0;
    set_info(w, w->loop->region[0]->arg, AFFINE, w->step);
    if (!analyse_block(w, w->loop->region[0], false))
        return false;
    if (w->widest == 0) /* nothing but bool */
        w->widest = 8;
    if (w->exact)
        return true;
    if (w->spec->bits / w->widest < 2)
        return false;
    return w->spec->gather || w->ngather == 0 || w->ncontiguous > 0; /* emulated gathers alone gain nothing */
}

/* ---- values while emitting ---- */

static tn_lvalue *scalar_of(const widener *w, tn_lvalue *v, int copy)
{
    const info *known = info_of(w, v);
    return !known ? v : known->shape == UNIFORM ? known->scalar[0] : known->scalar[copy];
}

static tn_lvalue *integer(tn_lbuilder *b, tn_dtype dtype, int64_t value)
{
    return tn_l_const(b, tn_lscalar(dtype), tn_number_from_int(dtype, value));
}

/* stride * iota of an integer type. */
static tn_lvalue *steps(const widener *w, tn_lbuilder *b, tn_dtype dtype, int64_t stride)
{
    tn_lvalue *iota = tn_l_iota(b, dtype, w->lanes);
    return tn_l_fn2(b, TN_S_mul, iota, tn_l_splat(b, integer(b, dtype, stride), w->lanes));
}

/* The lanes of an affine value, in `dtype` (no wider than its own: sums wrap alike). */
static tn_lvalue *affine_vector(const widener *w, tn_lbuilder *b, tn_lvalue *v, int copy, tn_dtype dtype)
{
    tn_lvalue *base = tn_l_splat(b, tn_l_cast(b, scalar_of(w, v, copy), dtype), w->lanes);
    return tn_l_fn2(b, TN_S_add, base, steps(w, b, dtype, stride_of(w, v)));
}

static tn_lvalue *vector_of(const widener *w, tn_lbuilder *b, tn_lvalue *v, int copy)
{
    const info *known = info_of(w, v);
    if (known && known->shape == VARYING)
        return known->vector[copy];
    if (known && known->shape == AFFINE)
        return affine_vector(w, b, v, copy, v->type.dtype);
    return tn_l_splat(b, scalar_of(w, v, 0), w->lanes);
}

static tn_lvalue *reversed(const widener *w, tn_lbuilder *b, tn_lvalue *v)
{
    int lanes[MAX_LANES];
    for (int i = 0; i < w->lanes; i++)
        lanes[i] = w->lanes - 1 - i;
    return v ? tn_l_shuffle(b, v, v, lanes, w->lanes) : NULL;
}

static tn_lvalue *both(tn_lbuilder *b, tn_lvalue *m, tn_lvalue *n)
{
    return m && n ? tn_l_fn2(b, TN_S_and, m, n) : m ? m : n;
}

/* The mask of an access: its own and the lanes that are active. */
static tn_lvalue *mask_of(const widener *w, tn_lbuilder *b, const tn_lop *op, int copy)
{
    tn_lvalue *own = tn_lop_mask(op);
    return both(b, w->pred[copy], own ? vector_of(w, b, own, copy) : NULL);
}

/* A scalar: whether any lane of any copy is active. */
static tn_lvalue *any_active(const widener *w, tn_lbuilder *b)
{
    tn_lvalue *any = w->pred[0];
    for (int c = 1; c < w->copies; c++)
        any = tn_l_fn2(b, TN_S_or, any, w->pred[c]);
    return tn_l_hreduce(b, TN_S_or, any);
}

/* ---- emitting one operation ---- */

static void emit_uniform(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    tn_map values = {.arena = tn_l_arena(w->func)};
    for (int i = 0; i < op->noperands; i++)
        *tn_map_at(&values, TN_KEY(op->operand[i])) = scalar_of(w, op->operand[i], 0);
    info_of(w, op->result)->scalar[0] = tn_lop_clone(b, op, &values)->result;
}

static void emit_affine(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    info *to = info_of(w, op->result);
    tn_dtype dtype = op->result->type.dtype;
    tn_lvalue *operand[3];
    for (int i = 0; i < op->noperands; i++)
        operand[i] = scalar_of(w, op->operand[i], 0);
    if (op->code == TN_L_cast)
        to->scalar[0] = tn_l_cast(b, operand[0], dtype);
    else if (op->noperands == 1)
        to->scalar[0] = tn_l_fn1(b, op->fn, operand[0]);
    else
        to->scalar[0] = tn_l_fn2(b, op->fn, operand[0], operand[1]);
    for (int c = 1; c < w->copies; c++)
        to->scalar[c] = tn_l_fn2(b, TN_S_add, to->scalar[0], integer(b, dtype, c * w->lanes * to->stride));
}

/* stride * lane ? limit - base, on integers of the data's width; limit - base is clamped to just outside the lanes'
 * values. */
static tn_lvalue *emit_narrow_compare(widener *w, tn_lbuilder *b, const tn_lop *op, int affine, int copy)
{
    tn_dtype dtype = lane_dtype(w->widest);
    int64_t reach = w->lanes;
    tn_lvalue *base = scalar_of(w, op->operand[affine], copy), *limit = scalar_of(w, op->operand[1 - affine], 0);
    tn_lvalue *distance = tn_l_fn2(b, TN_S_sub, limit, base);
    distance = tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_max, distance, tn_l_index(b, -reach)), tn_l_index(b, reach));
    tn_lvalue *x[2];
    x[affine] = steps(w, b, dtype, stride_of(w, op->operand[affine]));
    x[1 - affine] = tn_l_splat(b, tn_l_cast(b, distance, dtype), w->lanes);
    return tn_l_fn2(b, op->fn, x[0], x[1]);
}

static tn_lvalue *emit_varying(widener *w, tn_lbuilder *b, const tn_lop *op, int copy)
{
    int affine = op->code == TN_L_fn ? narrow_compare(w, op) : -1;
    if (affine >= 0)
        return emit_narrow_compare(w, b, op, affine, copy);
    if (by_i32(w, op))
        return tn_l_cast(b, affine_vector(w, b, op->operand[0], copy, TN_I32), op->result->type.dtype);
    tn_lvalue *operand[3];
    for (int i = 0; i < op->noperands; i++)
        operand[i] = vector_of(w, b, op->operand[i], copy);
    if (op->code == TN_L_cast)
        return tn_l_cast(b, operand[0], op->result->type.dtype);
    if (op->code == TN_L_bitcast)
        return tn_l_bitcast(b, operand[0], tn_lvector(op->result->type.dtype, w->lanes));
    tn_lvalue *folded = tn_l_fold(b, op->fn, operand, op->noperands);
    return folded ? folded : tn_l_fn_like(b, op, operand);
}

/* A buffer of vectors: the lanes' own buffers, interleaved. */
static void emit_alloc(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    info *to = info_of(w, op->result);
    tn_ltype type = op->result->type;
    for (int c = 0; c < w->copies; c++) {
        tn_lvalue *buffer = op->noperands
                                ? tn_l_alloc_sized(b, op->result->name, type.dtype, scalar_of(w, op->operand[0], 0))
                                : tn_l_alloc(b, op->result->name, type.dtype, type.space, op->size);
        buffer->type.lanes = w->lanes;
        to->scalar[c] = buffer;
    }
}

static tn_lvalue *zero_vector(const widener *w, tn_lbuilder *b, tn_dtype dtype)
{
    return tn_l_const(b, tn_lvector(dtype, w->lanes), tn_number_from_int(dtype, 0));
}

/* What the access's own mask turns off gives `other`, or 0. */
static tn_lvalue *blend_other(widener *w, tn_lbuilder *b, const tn_lop *op, tn_lvalue *loaded, int copy)
{
    tn_lvalue *mask = tn_lop_mask(op), *other = tn_lop_other(op);
    if (!mask)
        return loaded;
    other = other ? vector_of(w, b, other, copy) : zero_vector(w, b, loaded->type.dtype);
    return tn_l_fn3(b, TN_S_select, vector_of(w, b, mask, copy), loaded, other);
}

/* One address for all lanes, perhaps under a mask: a scalar load if any lane is active. */
static tn_lvalue *load_once(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    tn_lvalue *mask = w->predicated ? any_active(w, b) : NULL;
    return tn_l_load(b, scalar_of(w, op->operand[0], 0), scalar_of(w, op->operand[1], 0), 1, mask, NULL);
}

static void emit_uniform_load(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    tn_lvalue *mask = tn_lop_mask(op), *other = tn_lop_other(op);
    mask = both(b, w->predicated ? any_active(w, b) : NULL, mask ? scalar_of(w, mask, 0) : NULL);
    info_of(w, op->result)->scalar[0] = tn_l_load(b, scalar_of(w, op->operand[0], 0), scalar_of(w, op->operand[1], 0),
                                                  1, mask, other ? scalar_of(w, other, 0) : NULL);
}

/* Offsets of a gather or scatter: 32-bit lanes where they are proven to do. */
static tn_lvalue *offsets_of(widener *w, tn_lbuilder *b, tn_lvalue *offset, int copy)
{
    if (shape_of(w, offset) == AFFINE && fits_i32(w, offset))
        return affine_vector(w, b, offset, copy, TN_I32);
    return vector_of(w, b, offset, copy);
}

static tn_lvalue *first_of_reverse(const widener *w, tn_lbuilder *b, tn_lvalue *offset)
{
    return tn_l_fn2(b, TN_S_add, offset, tn_l_index(b, 1 - w->lanes));
}

static tn_lvalue *emit_vector_load(widener *w, tn_lbuilder *b, const tn_lop *op, int copy)
{
    tn_lvalue *buffer = op->operand[0], *offset = op->operand[1], *other = tn_lop_other(op);
    if (shape_of(w, buffer) == LANES) {
        tn_lvalue *v = tn_l_load(b, scalar_of(w, buffer, copy), scalar_of(w, offset, 0), w->lanes, NULL, NULL);
        return blend_other(w, b, op, v, copy);
    }
    buffer = scalar_of(w, buffer, 0);
    tn_lvalue *mask = mask_of(w, b, op, copy);
    other = other && mask ? vector_of(w, b, other, copy) : NULL;
    int64_t stride = stride_of(w, offset);
    if (stride == 1)
        return tn_l_load(b, buffer, scalar_of(w, offset, copy), w->lanes, mask, other);
    if (stride != -1)
        return tn_l_gather(b, buffer, offsets_of(w, b, offset, copy), mask, other);
    tn_lvalue *first = first_of_reverse(w, b, scalar_of(w, offset, copy));
    return reversed(w, b, tn_l_load(b, buffer, first, w->lanes, reversed(w, b, mask), reversed(w, b, other)));
}

static void emit_load(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    info *to = info_of(w, op->result);
    if (to->shape == UNIFORM) {
        emit_uniform_load(w, b, op);
        return;
    }
    bool one_address = shape_of(w, op->operand[0]) != LANES && shape_of(w, op->operand[1]) == UNIFORM;
    if (one_address && tn_lop_mask(op)) { /* the mask varies: lanes that want it share one guarded load */
        for (int c = 0; c < w->copies; c++) {
            tn_lvalue *mask = tn_l_hreduce(b, TN_S_or, mask_of(w, b, op, c));
            tn_lvalue *v =
                tn_l_load(b, scalar_of(w, op->operand[0], 0), scalar_of(w, op->operand[1], 0), 1, mask, NULL);
            to->vector[c] = blend_other(w, b, op, tn_l_splat(b, v, w->lanes), c);
        }
        return;
    }
    for (int c = 0; c < w->copies; c++)
        to->vector[c] = one_address ? tn_l_splat(b, load_once(w, b, op), w->lanes) : emit_vector_load(w, b, op, c);
}

/* Lanes that a mask turns off keep what they had; lanes beyond the end of the loop may get anything. */
static void emit_lane_store(widener *w, tn_lbuilder *b, const tn_lop *op, int copy)
{
    tn_lvalue *buffer = scalar_of(w, op->operand[0], copy), *offset = scalar_of(w, op->operand[1], 0);
    tn_lvalue *value = vector_of(w, b, op->operand[2], copy);
    if (w->predicated || tn_lop_mask(op)) {
        tn_lvalue *old = tn_l_load(b, buffer, offset, w->lanes, NULL, NULL);
        value = tn_l_fn3(b, TN_S_select, mask_of(w, b, op, copy), value, old);
    }
    tn_l_store(b, buffer, offset, value, NULL);
}

static void emit_store(widener *w, tn_lbuilder *b, const tn_lop *op, int copy)
{
    tn_lvalue *buffer = op->operand[0], *offset = op->operand[1];
    if (shape_of(w, buffer) == LANES) {
        emit_lane_store(w, b, op, copy);
        return;
    }
    buffer = scalar_of(w, buffer, 0);
    tn_lvalue *mask = mask_of(w, b, op, copy), *value = vector_of(w, b, op->operand[2], copy);
    int64_t stride = stride_of(w, offset);
    if (stride == 1)
        tn_l_store(b, buffer, scalar_of(w, offset, copy), value, mask)->stream = op->stream;
    else if (stride == -1)
        tn_l_store(b, buffer, first_of_reverse(w, b, scalar_of(w, offset, copy)), reversed(w, b, value),
                   reversed(w, b, mask));
    else
        tn_l_scatter(b, buffer, offsets_of(w, b, offset, copy), value, mask);
}

/* A hint: the first lane's address stands for the vector's; none where lanes differ. */
static void emit_prefetch(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    shape buffer = shape_of(w, op->operand[0]), offset = shape_of(w, op->operand[1]);
    if (w->predicated || buffer != UNIFORM || offset > AFFINE)
        return;
    int n = offset == UNIFORM ? 1 : w->copies;
    for (int c = 0; c < n; c++) {
        tn_lvalue *operands[] = {scalar_of(w, op->operand[0], 0), scalar_of(w, op->operand[1], c)};
        tn_lop *hint = tn_lop_new(w->func, TN_L_prefetch, operands, 2);
        hint->number = op->number;
        tn_lop_insert(b, hint);
    }
}

/* ---- emitting control ---- */

static void emit_block(widener *w, tn_lbuilder *b, const tn_lblock *block);

static void emit_for(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    tn_lop *loop = tn_l_for(b, op->region[0]->arg->name, scalar_of(w, op->operand[0], 0),
                            scalar_of(w, op->operand[1], 0), scalar_of(w, op->operand[2], 0), op->kind);
    info_of(w, op->region[0]->arg)->scalar[0] = loop->region[0]->arg;
    tn_lbuilder inner = tn_l_in(b, loop->region[0]);
    emit_block(w, &inner, op->region[0]);
}

static bool is_long(const tn_lblock *block)
{
    int n = 0;
    for (const tn_lop *op = block->first; op; op = op->next, n++)
        if (op->nregions)
            return true;
    return n > LONG_BLOCK;
}

/* One side of a varying `if`: its lanes are those in `cond`, the others with `negate`. */
static void emit_side(widener *w, tn_lbuilder *b, const tn_lblock *side, tn_lvalue *const *cond, bool negate)
{
    if (!side->first)
        return;
    widener outer = *w;
    for (int c = 0; c < w->copies; c++)
        w->pred[c] = both(b, outer.pred[c], negate ? tn_l_fn1(b, TN_S_not, cond[c]) : cond[c]);
    w->predicated = true;
    if (is_long(side)) {
        tn_lop *guard = tn_l_if(b, any_active(w, b));
        tn_lbuilder inner = tn_l_in(b, guard->region[0]);
        emit_block(w, &inner, side);
    } else {
        emit_block(w, b, side);
    }
    w->predicated = outer.predicated;
    for (int c = 0; c < w->copies; c++)
        w->pred[c] = outer.pred[c];
}

static void emit_if(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    if (shape_of(w, op->operand[0]) != UNIFORM) {
        tn_lvalue *cond[MAX_COPIES];
        for (int c = 0; c < w->copies; c++)
            cond[c] = vector_of(w, b, op->operand[0], c);
        emit_side(w, b, op->region[0], cond, false);
        emit_side(w, b, op->region[1], cond, true);
        return;
    }
    tn_lop *branch = tn_l_if(b, scalar_of(w, op->operand[0], 0));
    for (int i = 0; i < 2; i++) {
        tn_lbuilder inner = tn_l_in(b, branch->region[i]);
        emit_block(w, &inner, op->region[i]);
    }
}

static void emit_pure(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    info *to = info_of(w, op->result);
    if (to->shape == UNIFORM && all_uniform(w, op))
        emit_uniform(w, b, op);
    else if (to->shape != VARYING) /* also the difference of two affine values */
        emit_affine(w, b, op);
    else
        for (int c = 0; c < w->copies; c++)
            to->vector[c] = emit_varying(w, b, op, c);
}

static void emit_op(widener *w, tn_lbuilder *b, const tn_lop *op)
{
    b->line = op->line;
    switch (op->code) {
    case TN_L_for:
        emit_for(w, b, op);
        break;
    case TN_L_if:
        emit_if(w, b, op);
        break;
    case TN_L_alloc:
        emit_alloc(w, b, op);
        break;
    case TN_L_load:
        emit_load(w, b, op);
        break;
    case TN_L_store:
        for (int c = 0; c < w->copies; c++)
            emit_store(w, b, op, c);
        break;
    case TN_L_prefetch:
        emit_prefetch(w, b, op);
        break;
    default:
        emit_pure(w, b, op);
    }
}

static void emit_block(widener *w, tn_lbuilder *b, const tn_lblock *block)
{
    for (const tn_lop *op = block->first; op; op = op->next)
        emit_op(w, b, op);
}

/* `copies` vectors of `lanes` iterations from `index` on; `mask` (one copy): which lanes exist, NULL: all. */
static void emit_body(widener *w, tn_lbuilder *b, tn_lvalue *index, int lanes, int copies, tn_lvalue *mask)
{
    assert(copies <= MAX_COPIES && (copies == 1 || !mask));
    w->lanes = lanes;
    w->copies = copies;
    w->predicated = false;
    for (int c = 0; c < copies; c++)
        w->pred[c] = mask;
    info *arg = info_of(w, w->loop->region[0]->arg);
    for (int c = 0; c < copies; c++)
        arg->scalar[c] = tn_l_fn2(b, TN_S_add, index, tn_l_index(b, c * lanes * w->step));
    emit_block(w, b, w->loop->region[0]);
}

/* ---- splitting the iterations ---- */

static tn_lvalue *plus(tn_lbuilder *b, tn_lvalue *x, int64_t n)
{
    return tn_l_fn2(b, TN_S_add, x, tn_l_index(b, n));
}

/* A loop over whole groups of copies * lanes iterations. */
static void emit_groups(widener *w, tn_lbuilder *b, tn_lvalue *lo, tn_lvalue *hi, int lanes, int copies,
                        tn_loop_kind kind)
{
    tn_lvalue *step = tn_l_index(b, lanes * copies * w->step);
    tn_lop *loop = tn_l_for(b, w->loop->region[0]->arg->name, lo, hi, step, kind);
    tn_lbuilder inner = tn_l_in(b, loop->region[0]);
    emit_body(w, &inner, loop->region[0]->arg, lanes, copies, NULL);
}

/* lane < number of iterations left (at least one). */
static tn_lvalue *tail_mask(widener *w, tn_lbuilder *b, tn_lvalue *left, int lanes)
{
    tn_dtype dtype = lane_dtype(w->widest);
    left = tn_l_cast(b, tn_l_fn2(b, TN_S_min, left, tn_l_index(b, lanes)), dtype);
    return tn_l_fn2(b, TN_S_lt, tn_l_iota(b, dtype, lanes), tn_l_splat(b, left, lanes));
}

static tn_lvalue *iterations_between(widener *w, tn_lbuilder *b, tn_lvalue *lo, tn_lvalue *hi)
{
    tn_lvalue *extent = tn_l_fn2(b, TN_S_sub, hi, lo);
    return tn_l_fn2(b, TN_S_div, plus(b, extent, w->step - 1), tn_l_index(b, w->step));
}

static void emit_masked(widener *w, tn_lbuilder *b, tn_lvalue *index, int lanes)
{
    tn_lvalue *left = iterations_between(w, b, index, w->loop->operand[1]);
    emit_body(w, b, index, lanes, 1, tail_mask(w, b, left, lanes));
}

static void emit_scalar_rest(widener *w, tn_lbuilder *b, tn_lvalue *lo)
{
    tn_map values = {.arena = tn_l_arena(w->func)};
    tn_lop *rest = tn_lop_clone(b, w->loop, &values);
    rest->operand[0] = lo;
    rest->kind = TN_FOR_SERIAL;
}

static bool is_large(const widener *w) { return w->dear || w->nops > 40; }

/* How many copies of each operation the main loop interleaves: enough independent work to cover latencies, while the
 * body stays small and its values stay in registers. */
static int choose_copies(const widener *w)
{
    if (w->outer_reg || is_large(w))
        return 1;
    int most = w->spec->registers >= 32 ? 4 : 2;
    return w->ngather || w->nloops || w->nops > 24 ? (w->nops > 32 ? 1 : 2) : most;
}

static int power_of_two_at_least(int64_t n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* `n` < lanes iterations from `at` on, n constant. */
static void emit_constant_rest(widener *w, tn_lbuilder *b, tn_lvalue *at, int64_t n)
{
    int lanes = power_of_two_at_least(n);
    if (n >= 2 && (lanes == n || w->masks)) {
        emit_body(w, b, at, lanes, 1, lanes == n ? NULL : tail_mask(w, b, tn_l_index(b, n), lanes));
        return;
    }
    for (lanes /= 2; n >= 2; lanes /= 2) {
        if (n < lanes)
            continue;
        emit_body(w, b, at, lanes, 1, NULL);
        at = plus(b, at, lanes * w->step);
        n -= lanes;
    }
    if (n)
        emit_scalar_rest(w, b, at);
}

static void split_constant(widener *w, tn_lbuilder *b, int64_t trips, int lanes)
{
    int64_t vectors = trips / lanes;
    tn_lvalue *at = w->loop->operand[0], *end = plus(b, at, vectors * lanes * w->step);
    if (w->outer_reg && vectors > 1) {
        emit_groups(w, b, at, end, lanes, 1, TN_FOR_UNROLL);
    } else {
        int copies = choose_copies(w), whole = (int)tn_min(vectors, copies);
        int64_t groups = whole ? vectors / whole : 0, left = vectors - groups * whole;
        end = plus(b, at, groups * whole * lanes * w->step);
        if (groups == 1)
            emit_body(w, b, at, lanes, whole, NULL);
        else if (groups)
            emit_groups(w, b, at, end, lanes, whole, TN_FOR_SERIAL);
        if (left)
            emit_body(w, b, end, lanes, (int)left, NULL);
        end = plus(b, end, left * lanes * w->step);
    }
    if (trips % lanes)
        emit_constant_rest(w, b, end, trips % lanes);
}

/* lo + the largest multiple of `group` (a power of two) iterations below the trip count. */
static tn_lvalue *end_of_groups(widener *w, tn_lbuilder *b, tn_lvalue *trips, int64_t group)
{
    tn_lvalue *whole = tn_l_fn2(b, TN_S_and, trips, tn_l_index(b, -group));
    return tn_l_fn2(b, TN_S_add, w->loop->operand[0], tn_l_fn2(b, TN_S_mul, whole, tn_l_index(b, w->step)));
}

static void split_unknown(widener *w, tn_lbuilder *b, int lanes)
{
    tn_lvalue *lo = w->loop->operand[0], *hi = w->loop->operand[1], *at = lo;
    tn_lvalue *trips = iterations_between(w, b, lo, hi);
    if (tn_l_range(&w->ranges, trips).lo < 0)
        trips = tn_l_fn2(b, TN_S_max, trips, tn_l_index(b, 0));
    int copies = choose_copies(w);
    bool free_masks = w->masks && w->spec->mask_min_bits <= 8;
    if (copies > 1) {
        tn_lvalue *end = end_of_groups(w, b, trips, (int64_t)lanes * copies);
        emit_groups(w, b, at, end, lanes, copies, TN_FOR_SERIAL);
        at = end;
    }
    if (free_masks && (copies > 1 || is_large(w))) { /* one loop for whole vectors and the last; of a large body there is no other */
        tn_lop *loop = tn_l_for(b, w->loop->region[0]->arg->name, at, hi, tn_l_index(b, lanes * w->step), TN_FOR_SERIAL);
        tn_lbuilder inner = tn_l_in(b, loop->region[0]);
        emit_masked(w, &inner, loop->region[0]->arg, lanes);
        return;
    }
    tn_lvalue *end = end_of_groups(w, b, trips, lanes);
    emit_groups(w, b, at, end, lanes, 1, TN_FOR_SERIAL);
    if (!w->masks) {
        emit_scalar_rest(w, b, end);
        return;
    }
    tn_lop *rest = tn_l_if(b, tn_l_fn2(b, TN_S_lt, end, hi));
    tn_lbuilder inner = tn_l_in(b, rest->region[0]);
    emit_masked(w, &inner, end, lanes);
}

static void widen(widener *w)
{
    tn_lbuilder b = tn_lbuilder_before(w->func, w->loop);
    int lanes = w->exact ? w->exact : (int)tn_min(w->spec->bits / w->widest, MAX_LANES);
    int64_t trips;
    if (constant_trips(w, &trips))
        split_constant(w, &b, trips, lanes);
    else
        split_unknown(w, &b, lanes);
    tn_lop_erase(w->loop);
}

static void vectorize_block(tn_lfunc *func, const tn_vector_spec *spec, tn_lblock *block)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        if (op->code == TN_L_for && op->kind == TN_FOR_VECTOR) {
            widener w = {.func = func, .spec = spec, .loop = op, .ranges = {.arena = tn_l_arena(func)}};
            if (can_widen(&w)) {
                widen(&w);
                continue;
            }
            op->kind = spec->most_lanes ? TN_FOR_UNROLL : TN_FOR_SERIAL; /* unroll leaves alone what has no constant number of iterations */
        }
        for (int i = 0; i < op->nregions; i++)
            vectorize_block(func, spec, op->region[i]);
    }
}

tn_status tn_loop_vectorize(tn_lfunc *func, const tn_pass_options *options)
{
    tn_l_clear_scratch(func);
    vectorize_block(func, &options->vector, func->body);
    return TN_OK;
}
