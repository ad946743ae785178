/* Which threads hold what: a survey of the kernel before it is lowered.
 *
 * All tiles of one shape have the same layout unless something speaks against it, so that values meet in the same registers. How memory lies under the tiles
 * of that shape decides: the axis along which most bytes are neighbours is the fastest, in vectors of 16 bytes if the address is known to be so aligned. What
 * is derived from a tile (a reduced row, what is broadcast to it) follows that tile. An access that lies otherwise is made in a layout of its own, and its
 * tile converted. */
#include <string.h>

#include "target/gpu/lower.h"

/* ---- how memory lies ------------------------------------------------------------------------------------------------------ */

typedef struct lying {
    int axis;         /* of the tile, along which elements are neighbours; -1: none, or not known */
    int64_t multiple; /* of elements: where vectors along the axis start in memory, and where they end */
    int64_t bytes;    /* of an element */
} lying;

static int64_t gcd(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a; /* 0: a multiple of anything */
}

/* Axis of an operand that becomes `axis` of what moves or repeats it; NO_AXIS: none. */
enum { NO_AXIS = -1, ALL_AXES = -2 };
static int axis_behind(const tn_top *op, int axis)
{
    if (axis < 0 || op->code == TN_T_reshape)
        return axis == ALL_AXES ? ALL_AXES : NO_AXIS;
    if (op->code == TN_T_permute)
        return op->axis[axis];
    for (int k = 0; op->code == TN_T_broadcast && k < op->operand[0]->type.rank; k++)
        if (op->axis[k] == axis)
            return k;
    return op->code == TN_T_broadcast ? NO_AXIS : axis;
}

/* What divides v, an integer or pointer, at indices that are multiples of a vector's length themselves along `axis` (NO_AXIS: none, ALL_AXES: all), any along others
 * (0: anything). */
static int64_t multiple_of(const lower *L, const tn_tvalue *v, int axis, int depth)
{
    int64_t step, product;
    const tn_top *op = v->def;
    if (lower_range_of(L, v, &step))
        return step;
    if (!op && v->type.pointer) {
        int buffer = lower_root(L, v);
        return buffer >= 0 ? L->buffer[buffer]->align / ((tn_dtype_bits(v->type.dtype) + 7) / 8) : 1;
    }
    const tn_top *loop = v->block ? v->block->parent : NULL;
    if (!op && depth && loop && loop->code == TN_T_for && v == loop->region[0]->arg)
        return gcd(multiple_of(L, loop->operand[0], ALL_AXES, depth - 1), multiple_of(L, loop->operand[2], ALL_AXES, depth - 1));
    if (!op || depth == 0)
        return 1;
    switch (op->code) {
    case TN_T_const:
        return tn_is_integer(v->type.dtype) ? op->number.i : 1;
    case TN_T_size:
        return op->dim->multiple;
    case TN_T_range:
        return axis == NO_AXIS ? 1 : multiple_of(L, op->operand[0], ALL_AXES, depth - 1);
    case TN_T_broadcast:
    case TN_T_reshape:
    case TN_T_permute:
    case TN_T_assume:
    case TN_T_cast:
        return op->operand[0]->type.pointer || tn_is_integer(op->operand[0]->type.dtype) ? multiple_of(L, op->operand[0], axis_behind(op, axis), depth - 1) : 1;
    case TN_T_addptr:
        return gcd(multiple_of(L, op->operand[0], axis, depth - 1), multiple_of(L, op->operand[1], axis, depth - 1));
    case TN_T_map:
        if (op->fn == TN_S_add || op->fn == TN_S_sub || op->fn == TN_S_min || op->fn == TN_S_max)
            return gcd(multiple_of(L, op->operand[0], axis, depth - 1), multiple_of(L, op->operand[1], axis, depth - 1));
        if (op->fn == TN_S_mul && tn_mul(multiple_of(L, op->operand[0], axis, depth - 1), multiple_of(L, op->operand[1], axis, depth - 1), &product))
            return product;
        return 1;
    default:
        return 1;
    }
}

enum { DEPTH = 12 };

static lying of_view(const lower *L, const tn_top *op, const tn_ttype *type)
{
    const tn_view *view = op->view;
    lying m = {.axis = -1, .bytes = (tn_dtype_bits(type->dtype) + 7) / 8};
    for (int d = 0; d < view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        if (s->block && tn_dim_is(view->stride[d], 1) && type->extent[s->axis[0]].size > 1)
            m.axis = s->axis[0];
    }
    m.multiple = gcd(view->offset->multiple, L->buffer[view->buffer] ? L->buffer[view->buffer]->align / tn_max(1, m.bytes) : 1);
    if (view->panel)
        m.axis = -1;
    for (int d = 0; d < view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        int64_t stride = view->stride[d]->multiple, at = 1, product;
        if (tn_dim_is(view->stride[d], 0))
            continue;
        if (s->block || !lower_walks(s, m.axis)) /* an index that the vectors' axis does not move is one number for each of them */
            at = multiple_of(L, s->value, s->block ? ALL_AXES : NO_AXIS, DEPTH);
        if (s->block && s->axis[0] != m.axis && type->extent[s->axis[0]].size > 1)
            at = 1;
        m.multiple = gcd(m.multiple, tn_mul(stride, at, &product) ? product : 1);
        if (s->block && s->axis[0] == m.axis && !s->inside && !lower_block_fits(L, s->value, view->shape[d], type->extent[m.axis].size))
            m.multiple = gcd(m.multiple, view->shape[d]->multiple);
    }
    return m;
}

static lying of_pointer(const lower *L, const tn_top *op, const tn_ttype *type)
{
    lying m = {.axis = -1, .bytes = (tn_dtype_bits(type->dtype) + 7) / 8};
    strides s = lower_own_strides(L, op->operand[0]);
    for (int a = 0; a < type->rank; a++)
        if (s.along[a] == 1 && type->extent[a].size > 1)
            m.axis = a;
    m.multiple = multiple_of(L, op->operand[0], ALL_AXES, DEPTH);
    bool known = true;
    for (int a = 0; a < type->rank; a++) {
        if (a == m.axis || type->extent[a].size == 1)
            continue;
        if (s.along[a] == LOWER_UNKNOWN || s.along[a] == LOWER_UNIFORM)
            known = false;
        else
            m.multiple = gcd(m.multiple, s.along[a]);
    }
    if (!known)
        m.multiple = multiple_of(L, op->operand[0], m.axis, DEPTH);
    return m;
}

static lying lying_of(const lower *L, const tn_top *op)
{
    const tn_ttype *type = &lower_accessed_tile(op)->type;
    return op->view ? of_view(L, op, type) : of_pointer(L, op, type);
}

/* ---- layouts of shapes ------------------------------------------------------------------------------------------------------ */

typedef struct vote {
    int64_t weight[TN_TILE_RANK]; /* bytes that lie along the axis */
    int64_t multiple[TN_TILE_RANK], widest[TN_TILE_RANK];
} vote;

static uint64_t shape_key(const tn_ttype *type)
{
    int64_t shape[TN_TILE_RANK + 1] = {type->rank};
    for (int a = 0; a < type->rank; a++)
        shape[a + 1] = type->extent[a].size;
    return tn_hash(shape, sizeof shape, 1);
}

static void vote_for(lower *L, const tn_top *op)
{
    if (op->code != TN_T_load && op->code != TN_T_load_ptr && op->code != TN_T_store && op->code != TN_T_store_ptr)
        return;
    const tn_tvalue *v = lower_accessed_tile(op);
    if (v->type.rank == 0)
        return;
    lying m = lying_of(L, op);
    if (m.axis < 0)
        return;
    void **cell = tn_map_at(&GPU(L)->votes, shape_key(&v->type));
    if (!*cell)
        *cell = TN_NEW(&L->arena, vote);
    vote *votes = *cell;
    votes->weight[m.axis] += gpu_elements(&v->type) * m.bytes;
    votes->multiple[m.axis] = votes->multiple[m.axis] ? gcd(votes->multiple[m.axis], m.multiple) : m.multiple ? m.multiple : INT64_C(1) << 20;
    votes->widest[m.axis] = tn_max(votes->widest[m.axis], m.bytes);
}

/* With `axis` fastest, then from the last axis on, in vectors of at most `most` elements. */
static bool layout_along(lower *L, const tn_ttype *type, int axis, int64_t most, tn_layout *out)
{
    int order[TN_TILE_RANK], n = 0;
    order[n++] = axis;
    for (int a = type->rank - 1; a >= 0; a--)
        if (a != axis)
            order[n++] = a;
    int64_t each = gpu_elements(type) / (gpu_all_warps(L) * TN_WARP), vector = 1;
    while (vector * 2 <= most && vector * 2 <= each && most % (vector * 2) == 0)
        vector *= 2;
    if (tn_layout_blocked(type, order, (int)vector, gpu_all_warps(L), out))
        return true;
    L->status = tn_error(L->session, TN_UNSUPPORTED, TN_NO_LOC, "kernel %s: a tile of %lld elements is more than %d threads can hold on a GPU", L->kernel->name,
                         (long long)gpu_elements(type), gpu_all_warps(L) * TN_WARP);
    return false;
}

enum { VECTOR_BYTES = 16 };

bool gpu_class_layout(lower *L, const tn_ttype *type, tn_layout *out)
{
    void **cell = tn_map_at(&GPU(L)->classes, shape_key(type));
    if (!*cell) {
        const vote *votes = tn_map_get(&GPU(L)->votes, shape_key(type));
        int axis = type->rank - 1;
        int64_t most = VECTOR_BYTES / tn_max(1, (tn_dtype_bits(type->dtype) + 7) / 8);
        for (int a = type->rank - 1; votes && a >= 0; a--)
            if (votes->weight[a] > votes->weight[axis])
                axis = a;
        if (votes && votes->weight[axis])
            most = gcd(votes->multiple[axis], VECTOR_BYTES / tn_min(VECTOR_BYTES, votes->widest[axis]));
        tn_layout *made = TN_NEW(&L->arena, tn_layout);
        if (!layout_along(L, type, axis, most, made))
            return false;
        *tn_map_at(&GPU(L)->classes, shape_key(type)) = made;
        *out = *made;
        return true;
    }
    *out = *(const tn_layout *)*cell;
    return true;
}

bool gpu_neighbours(const lower *L, const tn_top *access, int *axis, int64_t *multiple)
{
    lying m = lying_of(L, access);
    *axis = m.axis;
    *multiple = m.multiple;
    return m.axis >= 0;
}

/* As memory lies under an access. */
static bool layout_for(lower *L, const tn_ttype *type, const lying *m, tn_layout *out)
{
    return layout_along(L, type, m->axis, gcd(m->multiple, VECTOR_BYTES / tn_min(VECTOR_BYTES, m->bytes)), out);
}

bool gpu_is_scattered(lower *L, const tn_top *load, const tn_layout *layout, tn_layout *better)
{
    enum { FEW = 256 }; /* elements: not worth a trip through shared memory */
    const tn_ttype *type = &load->result->type;
    if (gpu_elements(type) < FEW)
        return false;
    lying m = lying_of(L, load);
    if (m.axis < 0 || type->extent[m.axis].size < 8 || tn_layout_column(layout, 0, m.axis) == 1 || tn_layout_column(layout, TN_LAYOUT_LANE, m.axis) == 1)
        return false;
    return layout_for(L, type, &m, better);
}

/* Bytes side by side in memory that one instruction of a warp touches, along the axis. */
static int64_t run_bytes(const tn_layout *l, int axis, int64_t bytes)
{
    uint32_t next = 1;
    for (int i = 0; i < l->reg_bits && tn_layout_column(l, i, axis) == next; i++)
        next *= 2;
    for (int i = TN_LAYOUT_LANE; i < TN_LAYOUT_WARP && tn_layout_column(l, i, axis) == next; i++)
        next *= 2;
    return next * bytes;
}

bool gpu_store_is_scattered(lower *L, const tn_top *store, const tn_layout *layout)
{
    enum { FEW = 2048, SECTORS = 64 }; /* elements; bytes: two of what memory moves */
    const tn_ttype *type = &lower_accessed_tile(store)->type;
    lying m = lying_of(L, store);
    return gpu_elements(type) >= FEW && m.axis >= 0 && run_bytes(layout, m.axis, m.bytes) < SECTORS && type->extent[m.axis].size * m.bytes >= SECTORS;
}

bool gpu_store_whole_rows(lower *L, const tn_top *store, const tn_layout *layout, tn_layout *better)
{
    enum { ROOM = 160 << 10 }; /* bytes */
    const tn_ttype *type = &lower_accessed_tile(store)->type;
    lying m = lying_of(L, store);
    return GPU(L)->shared + gpu_elements(type) * m.bytes <= ROOM && layout_for(L, type, &m, better) && run_bytes(better, m.axis, m.bytes) > run_bytes(layout, m.axis, m.bytes);
}

/* ---- who wants what --------------------------------------------------------------------------------------------------------- */

static bool is_in_loop(const tn_top *sink, const tn_tvalue *v)
{
    const tn_tblock *home = v->def ? v->def->block : v->block;
    for (const tn_tblock *block = sink->block; block && block != home; block = block->parent ? block->parent->block : NULL)
        if (block->parent && block->parent->code != TN_T_if)
            return true;
    return false;
}

static void demand_of(lower *L, const tn_top *sink, const tn_ttype *nest, const tn_tvalue *v, const axes *of)
{
    void **cell = tn_map_at(&GPU(L)->demands, TN_KEY(v));
    demand *d = *cell;
    axes inner;
    if (!d) {
        d = *cell = TN_NEW(&L->arena, demand);
        d->nest = *nest;
        d->of = *of;
        d->known = true;
        for (int k = 0; k < v->type.rank; k++)
            d->known &= of->axis[k] >= 0 || v->type.extent[k].size == 1;
    }
    if (d->last == sink)
        return;
    d->last = sink;
    d->sinks++;
    d->from_loop |= is_in_loop(sink, v);
    d->elsewhere |= sink->code != TN_T_store && sink->code != TN_T_store_ptr && sink->code != TN_T_reduce;
    const tn_top *op = v->def;
    if (!op || !lower_is_expression(op))
        return;
    const tn_tvalue *from = lower_moved_axes(op, of, &inner);
    if (from) {
        demand_of(L, sink, nest, from, &inner);
        return;
    }
    for (int i = 0; i < op->noperands; i++) {
        inner = gpu_operand_axes(op, i, of);
        demand_of(L, sink, nest, op->operand[i], &inner);
    }
    for (int k = 0; op->view && k < op->view->rank; k++) {
        const tn_subscript *s = &op->subscript[k];
        inner = lower_own_axes();
        for (int i = 0; i < s->naxes; i++)
            inner.axis[i] = of->axis[s->axis[i]];
        if (!s->block)
            demand_of(L, sink, nest, s->value, &inner);
    }
}

static void survey_op(void *context, tn_top *op)
{
    lower *L = context;
    axes own = lower_own_axes();
    vote_for(L, op);
    GPU(L)->multiplies |= op->code == TN_T_dot;
    if (op->code == TN_T_dot)
        gpu_survey_dot(L, op);
    if (lower_is_expression(op) && op->code != TN_T_gather)
        return;
    for (int i = 0; i < op->noperands; i++)
        demand_of(L, op, &op->operand[i]->type, op->operand[i], &own);
    for (int k = 0; op->view && k < op->view->rank; k++)
        if (!op->subscript[k].block)
            demand_of(L, op, &op->subscript[k].value->type, op->subscript[k].value, &own);
}

void gpu_survey(lower *L) { tn_tile_walk(L->kernel->body, survey_op, L); }

/* A place of the nest's own shape that v is computed from, element by element. */
static const place *same_shaped_place(lower *L, const tn_tvalue *v, int *budget)
{
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    const tn_top *op = v->def;
    if (p)
        return p->held ? p : NULL;
    if (!op || --*budget < 0 || (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_bitcast && op->code != TN_T_assume && op->code != TN_T_addptr))
        return NULL;
    for (int i = 0; i < op->noperands; i++) {
        const place *found = op->operand[i]->type.rank == v->type.rank ? same_shaped_place(L, op->operand[i], budget) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

bool gpu_natural_layout(lower *L, const tn_tvalue *v, tn_layout *out)
{
    int budget = LOWER_BUDGET;
    const place *p = same_shaped_place(L, v, &budget);
    const demand *d = tn_map_get(&GPU(L)->demands, TN_KEY(v));
    if (p) {
        *out = p->held->layout;
        return true;
    }
    if (d && d->known && v->type.rank) {
        tn_layout nest;
        if (!gpu_class_layout(L, &d->nest, &nest))
            return false;
        *out = tn_layout_restrict(&nest, v->type.rank, d->of.axis);
        tn_layout better;
        if (v->def && lower_is_load(v->def) && gpu_is_scattered(L, v->def, out, &better))
            *out = better;
        return true;
    }
    return gpu_class_layout(L, &v->type, out);
}

/* The load that v is computed from element by element, perhaps turned; *axis: of v, along which memory has neighbours. */
static const tn_top *load_below(const lower *L, const tn_tvalue *v, int *axis, int64_t *multiple, int *budget)
{
    const tn_top *op = v->def;
    if (!op || --*budget < 0)
        return NULL;
    if (lower_is_load(op))
        return gpu_neighbours(L, op, axis, multiple) ? op : NULL;
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_bitcast && op->code != TN_T_permute)
        return NULL;
    for (int i = 0; i < op->noperands; i++) {
        const tn_top *load = op->operand[i]->type.rank == v->type.rank ? load_below(L, op->operand[i], axis, multiple, budget) : NULL;
        for (int k = 0; load && op->code == TN_T_permute && k < v->type.rank; k++)
            if (op->axis[k] == *axis) {
                *axis = k;
                return load;
            }
        if (load)
            return load;
    }
    return NULL;
}

bool gpu_operand_layout(lower *L, const tn_tvalue *v, int *inner, tn_layout *out)
{
    int budget = LOWER_BUDGET, bytes = tn_max(1, tn_dtype_bits(v->type.dtype) / 8);
    int64_t multiple;
    const place *p = same_shaped_place(L, v, &budget);
    *inner = v->type.rank - 1;
    if (p) {
        int first = p->held->layout.reg_bits && p->held->layout.col[0] ? 0 : TN_LAYOUT_LANE;
        *out = p->held->layout;
        for (int a = 0; a < v->type.rank; a++)
            if (tn_layout_column(out, first, a) == 1)
                *inner = a;
        return true;
    }
    budget = LOWER_BUDGET;
    const tn_top *load = load_below(L, v, inner, &multiple, &budget);
    if (!load)
        *inner = v->type.rank - 1;
    return layout_along(L, &v->type, *inner, load ? gcd(multiple, VECTOR_BYTES / bytes) : VECTOR_BYTES / bytes, out);
}

void gpu_set_class_layout(lower *L, const tn_ttype *type, const tn_layout *layout)
{
    *tn_map_at(&GPU(L)->classes, shape_key(type)) = tn_memdup(&L->arena, layout, sizeof *layout);
}

/* Instructions or so that one element takes, of what is in no place. */
static int cost_of(lower *L, const tn_tvalue *v, tn_axis_search *search)
{
    const tn_top *op = v->def;
    if (v->type.rank == 0 || !op || !lower_is_expression(op) || tn_map_get(&L->places, TN_KEY(v)) || !tn_axis_search_enter(search, v, 0))
        return 0;
    int cost = lower_is_load(op) ? 20 : op->code == TN_T_map ? 1 : 0;
    if (op->code == TN_T_map && (!(tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP) || op->fn == TN_S_div))
        cost = 10;
    for (int i = 0; i < op->noperands; i++)
        cost += cost_of(L, op->operand[i], search);
    return cost;
}

/* Registers of a thread, so that two CTAs at least are on a processor: one loads while the other computes. */
int64_t gpu_thread_room(const lower *L)
{
    enum { RESIDENT = 1024 /* threads, which hide each other's waiting */, OTHERS = 24 /* needed besides */ };
    return gpu_processor_registers(L) / tn_max(RESIDENT, 2 * 32 * GPU(L)->warps) - OTHERS;
}

int gpu_resident(const lower *L)
{
    enum { NEEDED = 40 /* registers */, LONGER = 64 /* of rows that clusters share: all loads of a part are under way at once (users' kernels of 65536 columns: 0.91, 0.89, 0.92 of a
                                                       copy, with 40 0.86, 0.66, 0.76) */,
           OTHERS = 256 /* bytes: more reductions' parts */ };
    int64_t needed = GPU(L)->ctas > 1 ? LONGER : NEEDED;
    return (int)tn_min(gpu_processor_registers(L) / (needed * 32 * GPU(L)->warps), gpu_most_shared(L) / (GPU(L)->shared + OTHERS));
}

int64_t gpu_words(const lower *L, const tn_ttype *type) { return tn_ceildiv(gpu_elements(type) * tn_dtype_bits(type->dtype), 32 * 32 * gpu_all_warps(L)); }

/* Of a row in order (vectors, lanes, warps, then the other registers): the elements that all threads' next vectors make. 0: it does not lie so. */
static int64_t slice_of(const tn_layout *layout)
{
    int vector = 0, bits;
    if (layout->rank != 1)
        return 0;
    while (vector < layout->reg_bits && tn_layout_column(layout, vector, 0) == UINT32_C(1) << vector)
        vector++;
    bits = vector;
    for (int i = 0; i < TN_LAYOUT_LANE_BITS + layout->warp_bits; i++, bits++)
        if (tn_layout_column(layout, TN_LAYOUT_LANE + i, 0) != UINT32_C(1) << bits)
            return 0;
    for (int i = vector; i < layout->reg_bits; i++, bits++)
        if (tn_layout_column(layout, i, 0) != UINT32_C(1) << bits)
            return 0;
    return INT64_C(1) << (vector + TN_LAYOUT_LANE_BITS + layout->warp_bits);
}

bool gpu_had_better_wait(lower *L, const tn_tvalue *v, const tn_layout *layout, int64_t *registers)
{
    enum { MOST_SHARED = 160 << 10, OTHERS = 1 << 10 /* reductions' parts */, RESERVED = 1 << 10 /* of each CTA, by the driver */, MOST_LEFT = 16, TWO = 16 /* warps */ };
    const demand *d = tn_map_get(&GPU(L)->demands, TN_KEY(v));
    int64_t element = (tn_dtype_bits(v->type.dtype) + 7) / 8, bytes = gpu_elements(&v->type) / GPU(L)->ctas * element;
    int64_t wide = gpu_elements(&v->type) / (32 * gpu_all_warps(L)); /* as f32, which compilers keep too */
    int64_t words = gpu_words(L, &v->type) + (tn_dtype_bits(v->type.dtype) < 32 ? wide : 0);
    *registers = 0;
    if (!d || d->sinks < 2 || d->from_loop || words <= gpu_thread_room(L) || GPU(L)->shared + bytes > MOST_SHARED)
        return false;
    int64_t room = (gpu_most_shared(L) + RESERVED) / 2 - RESERVED - OTHERS - GPU(L)->shared, slice = slice_of(layout), threads = 32 * GPU(L)->warps;
    if (bytes > room && room > 0 && slice && !d->elsewhere && GPU(L)->warps <= TWO && GPU(L)->ctas == 1) {
        int64_t waiting = room / (slice * element) * slice;
        if ((gpu_elements(&v->type) - waiting) * element <= MOST_LEFT * 4 * threads)
            *registers = waiting / threads;
    }
    return true;
}

bool gpu_is_worth_keeping(lower *L, const tn_tvalue *v)
{
    enum { WORTH = 8, MOST_LOADED = 128 /* registers */ };
    const demand *d = tn_map_get(&GPU(L)->demands, TN_KEY(v));
    tn_axis_search search;
    search.n = 0;
    int64_t forced = v->def && v->def->label ? tn_schedule_get(&L->kernel->schedule, v->def->label, "keep", -1) : -1;
    if (d && v->type.rank && forced >= 0)
        return forced;
    if (!d || v->type.rank == 0 || (d->sinks < 2 && !d->from_loop) || cost_of(L, v, &search) < WORTH)
        return false;
    int64_t words = gpu_words(L, &v->type), room = gpu_thread_room(L) - GPU(L)->kept_words;
    bool load = v->def && (lower_is_load(v->def)); /* dearer to have again than anything */
    if (words > (load ? MOST_LOADED : room))
        return false;
    GPU(L)->kept_words += words;
    return true;
}
