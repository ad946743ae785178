/* Tile IR -> Loop IR for CPUs.
 *
 * A tile is never held as a value. It is one of three things:
 *   - an expression: emit() computes one element of it, at indices that are Loop IR values, wherever a nest needs that element;
 *   - a place: a buffer of this program that a nest has filled (results of folds, carried values, what a store would disturb);
 *   - a register block: the accumulators of a product.
 * Sinks make nests: a store, a fold, a reduction, a scan. A nest runs over the axes of the sink's tile, one of them tagged `vector`;
 * its bounds are cut to where elements exist, so that the vectoriser makes full vectors and a remainder, and no mask is
 * computed for what the bounds already say (`fact`s record it).
 *
 * Folds: when the vectors walk a folded axis, L partial results are kept (lanes) and combined by a fixed tree at the end; the tree depends on
 * the schedule alone, never on addresses or thread counts. When they walk a kept axis, each lane folds its own element.
 * Products: lower_dot.c. */
#include "target/cpu/lower.h"

#include <assert.h>
#include <string.h>

/* ---- what is known of indices ------------------------------------------------------------------------------------------ */

static bool subscript_bound(const tn_top *access, int axis, axis_bound *out)
{
    for (int d = 0; d < access->view->rank; d++) {
        const tn_subscript *s = &access->subscript[d];
        if (s->block && s->axis[0] == axis && !s->inside) {
            *out = (axis_bound){s->value, access->view->shape[d]};
            return true;
        }
    }
    return false;
}

static bool find_bound(const lower *L, const tn_tvalue *v, int axis, tn_axis_search *search, axis_bound *out)
{
    const tn_top *op = v->def;
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    if (!op || (p && !p->kept && op->code != TN_T_load)) /* a load that was taken early keeps its bounds */
        return false;
    if (op->code == TN_T_load)
        return !op->view->padded && subscript_bound(op, axis, out);
    if (!tn_axis_search_enter(search, v, axis) || (op->code == TN_T_map && op->fn == TN_S_select))
        return false;
    for (int i = 0; i < op->noperands; i++) {
        int from = tn_axis_of_operand(op, i, axis);
        if (from >= 0 && find_bound(L, op->operand[i], from, search, out))
            return true;
    }
    return false;
}

/* The bound that the limit of a fold's own range is. */
static axis_bound range_bound(const lower *L, const tn_top *fold, const tn_tvalue *v, int axis)
{
    int range = tn_fold_range_of(fold, v, axis);
    const tn_dim limit = range < 0 ? NULL : lower_value_dim(L, fold->operand[range]);
    return limit ? (axis_bound){&fold->region[0]->arg[range], limit} : (axis_bound){NULL, NULL};
}

/* Opens the bound of an axis: how many of its `extent` elements exist. Records the fact through `index` when the loop is open. */
tn_lvalue *lower_axis_count(lower *L, tn_lbuilder *b, int64_t extent, const axis_bound *bound)
{
    if (!bound->start)
        return tn_l_index(b, extent);
    int64_t step, start;
    tn_dim range = lower_range_of(L, bound->start, &step);
    tn_dim limit = bound->limit;
    bool constant_start = bound->start->def && bound->start->def->code == TN_T_const;
    start = constant_start ? bound->start->def->number.i : 0;
    if (range && tn_dim_is_const(range) && range->value <= step)
        constant_start = true; /* one trip: the start is 0 */
    if (constant_start && tn_dim_is_const(limit))
        return tn_l_index(b, tn_max(0, tn_min(extent, limit->value - start)));
    if (lower_block_fits(L, bound->start, limit, extent))
        return tn_l_index(b, extent);
    tn_lvalue *left = tn_l_fn2(b, TN_S_sub, lower_dim(L, limit), lower_scalar(L, b, bound->start));
    return tn_l_fn2(b, TN_S_min, tn_l_index(b, extent), left);
}

/* ---- elements ------------------------------------------------------------------------------------------------------------ */


bool lower_copies(const lower *L, const tn_top *store) { return CPU(L)->aside.store == store && CPU(L)->aside.copying; }

/* From or to where a store's values are put aside. */
static element take_from_aside(const lower *L, tn_lbuilder *b, int rank, tn_lvalue *const *idx)
{
    const aside *a = &CPU(L)->aside;
    element e = {tn_l_load(b, a->value->buffer, lower_place_offset(b, a->value, rank, idx), 1, NULL, NULL), NULL};
    if (a->some)
        e.present = tn_l_cast(b, tn_l_load(b, a->stored->buffer, lower_place_offset(b, a->stored, rank, idx), 1, NULL, NULL), TN_BOOL);
    return e;
}

static void put_aside(lower *L, tn_lbuilder *b, int rank, tn_lvalue *const *idx, element e)
{
    aside *a = &CPU(L)->aside;
    tn_l_store(b, a->value->buffer, lower_place_offset(b, a->value, rank, idx), e.value, NULL);
    if (e.present)
        tn_l_store(b, a->stored->buffer, lower_place_offset(b, a->stored, rank, idx), tn_l_cast(b, e.present, a->stored->buffer->type.dtype), NULL);
    a->some |= e.present != NULL;
}

void lower_write(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, tn_lvalue *memory, const access *to, element e, tn_lvalue *stream)
{
    tn_lbuilder in = *b;
    const tn_ttype *type = &op->operand[op->code == TN_T_store_ptr]->type;
    e.present = lower_and(b, to->exists, e.present);
    if (lower_copies(L, op)) {
        e = take_from_aside(L, b, type->rank, idx);
    } else if (CPU(L)->aside.store == op) {
        tn_lop *branch = tn_l_if(&in, CPU(L)->aside.apart);
        tn_lbuilder otherwise = tn_l_in(&in, branch->region[1]);
        put_aside(L, &otherwise, type->rank, idx, e);
        in = tn_l_in(&in, branch->region[0]);
    }
    if (stream) {
        tn_lop *branch = tn_l_if(&in, stream);
        tn_lbuilder then = tn_l_in(&in, branch->region[0]);
        tn_l_store(&then, memory, to->offset, e.value, e.present)->stream = true;
        in = tn_l_in(&in, branch->region[1]);
    }
    tn_l_store(&in, memory, to->offset, e.value, e.present);
}

static void store_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, tn_lvalue *stream)
{
    element e = lower_copies(L, op) ? (element){NULL, NULL} : lower_element(L, b, op->operand[0], idx);
    access a = lower_resolve(L, b, op, idx);
    lower_write(L, b, op, idx, L->buffer[op->view->buffer], &a, e, stream);
}

void lower_store_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx) { store_element(L, b, op, idx, NULL); }

static element place_element(lower *L, tn_lbuilder *b, const place *p, const tn_tvalue *v, tn_lvalue *const *idx)
{
    tn_lvalue *present = p->present ? tn_l_load(b, p->present->buffer, lower_place_offset(b, p->present, v->type.rank, idx), 1, NULL, NULL)
                         : p->kept  ? lower_present(L, b, v, idx)
                         : v->def   ? lower_place_present(L, b, v->def, idx)
                                    : NULL;
    tn_lvalue *value = tn_l_load(b, p->buffer, lower_place_offset(b, p, v->type.rank, idx), 1, NULL, NULL);
    if (v->type.pointer)
        value = lower_rebase(L, b, value, p->root, lower_root(L, v), v->type.dtype);
    return (element){value, present};
}

/* ---- nests ----------------------------------------------------------------------------------------------------------------- */

/* Buffer for a tile's elements, row-major over its extents. */
place *lower_new_place(lower *L, tn_lbuilder *b, const tn_ttype *type, const char *name)
{
    place *p = TN_NEW(&L->arena, place);
    int64_t size = 1;
    for (int i = type->rank; i-- > 0;) {
        p->stride[i] = size;
        size *= type->extent[i].size;
    }
    p->root = LOWER_MEMORY;
    p->buffer = tn_l_alloc(b, name, type->pointer ? TN_I64 : type->dtype, size == 1 ? TN_SPACE_REG : TN_SPACE_LOCAL, size);
    return p;
}

/* Opens one loop of a nest over `axis` and records what its bound says. Returns the index. */
tn_lvalue *lower_open_axis(lower *L, tn_lbuilder *b, int axis, int64_t extent, const axis_bound *bound, tn_loop_kind kind)
{
    static const char *const names[TN_TILE_RANK] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    tn_lvalue *index;
    if (extent == 1 && !bound->start) {
        index = tn_l_index(b, 0);
    } else {
        tn_lvalue *count = lower_axis_count(L, b, extent, bound);
        int64_t n;
        if (tn_l_is_const(count, &n) && n == 1) {
            index = tn_l_index(b, 0);
        } else {
            tn_lop *loop = tn_l_for(b, names[axis], tn_l_index(b, 0), count, tn_l_index(b, 1), kind);
            *b = tn_l_in(b, loop->region[0]);
            index = loop->region[0]->arg;
        }
    }
    lower_fact(L, bound, index);
    return index;
}

axis_bound lower_store_bound(const tn_top *store, int axis)
{
    axis_bound found = {NULL, NULL};
    subscript_bound(store, axis, &found);
    return found;
}

/* From a view that is absent where the tile ends; start NULL if none says. */
axis_bound lower_value_bound(const lower *L, const tn_tvalue *v, int axis)
{
    axis_bound found = {NULL, NULL};
    tn_axis_search search;
    search.n = 0;
    find_bound(L, v, axis, &search, &found);
    return found;
}

/* The axis that a store's vectors walk: the one with stride 1 in memory, else the last. */
int lower_store_vector_axis(const lower *L, const tn_top *store)
{
    int rank = store->operand[0]->type.rank;
    int64_t chosen = tn_schedule_get(&L->kernel->schedule, store->label, "vector-axis", -1);
    if (chosen >= 0)
        return (int)chosen;
    for (int d = store->view->rank; d-- > 0;)
        if (store->subscript[d].block && tn_dim_is(store->view->stride[d], 1) && store->operand[0]->type.extent[store->subscript[d].axis[0]].size > 1)
            return store->subscript[d].axis[0];
    return rank - 1;
}

/* min(most, total - at), constant where every block is whole. */
tn_lvalue *lower_block_count(tn_lbuilder *b, tn_lvalue *total, tn_lvalue *at, int64_t most)
{
    int64_t n;
    if (tn_l_is_const(total, &n) && n % most == 0)
        return tn_l_index(b, most);
    return tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_sub, total, at), tn_l_index(b, most));
}

/* Opens `for (at = 0 to count by step)`, but where one trip is sure. */
tn_lvalue *lower_block_loop(tn_lbuilder *b, const char *name, tn_lvalue *count, int64_t step)
{
    int64_t n;
    if (tn_l_is_const(count, &n) && n > 0 && n <= step)
        return tn_l_index(b, 0);
    tn_lop *loop = tn_l_for(b, name, tn_l_index(b, 0), count, tn_l_index(b, step), TN_FOR_SERIAL);
    *b = tn_l_in(b, loop->region[0]);
    return loop->region[0]->arg;
}


/* ---- stores that turn their operand ---- */

/* Loads of the stored expression whose elements lie along `u` while the store's lie along `v`. Read as they are stored they would be gathered a line
 * an element; block by block through a small buffer, both sides move whole vectors. */
typedef struct turned {
    const tn_top *load[4];
    int n, u;
} turned;

static bool axis_stride(const tn_top *access, int axis, tn_dim *stride, tn_dim *shape, const tn_tvalue **start)
{
    bool found = false;
    for (int d = 0; d < access->view->rank; d++) {
        const tn_subscript *s = &access->subscript[d];
        for (int i = 0; i < (s->block ? 1 : s->naxes); i++) {
            if (s->axis[i] != axis)
                continue;
            if (!s->block || found)
                return false;
            found = true;
            *stride = access->view->stride[d];
            *shape = access->view->shape[d];
            *start = s->value;
        }
    }
    return found;
}

/* The store's bounds along u and v are the load's: every element that is stored is loaded from inside. */
static bool same_bound(lower *L, const tn_top *store, const tn_top *load, int axis, bool contiguous)
{
    tn_dim stride, shape;
    const tn_tvalue *start;
    axis_bound bound = lower_store_bound(store, axis);
    return axis_stride(load, axis, &stride, &shape, &start) && bound.start == start && tn_dim_eq(L->session, bound.limit, shape) &&
           (contiguous ? tn_dim_is(stride, 1) : !tn_dim_is(stride, 1) && !tn_dim_is(stride, 0));
}

static void find_turned(lower *L, const tn_top *store, const tn_tvalue *v, int vector, turned *found)
{
    const tn_top *op = v->def;
    if (!op || tn_map_get(&L->places, TN_KEY(v)))
        return;
    if (op->code == TN_T_map || op->code == TN_T_cast || op->code == TN_T_bitcast)
        for (int i = 0; i < op->noperands; i++)
            find_turned(L, store, op->operand[i], vector, found);
    if (op->code != TN_T_load || op->view->nguards || op->view->padded || op->view->panel || found->n == 4)
        return;
    for (int u = 0; u < v->type.rank; u++)
        if (u != vector && (found->n == 0 || u == found->u) && v->type.extent[u].size > 1 && same_bound(L, store, op, u, true) &&
            same_bound(L, store, op, vector, false)) {
            for (int i = 0; i < found->n; i++)
                if (found->load[i] == op)
                    return;
            found->u = u;
            found->load[found->n++] = op;
            return;
        }
}

/* Walks a block's elements with `fast` innermost; gives the position in the block too. */
typedef struct block_walk {
    tn_lvalue *at[2]; /* in the block: slow, fast */
} block_walk;

static block_walk walk_block(lower *L, tn_lbuilder *b, int slow, int fast, tn_lvalue *const *origin, tn_lvalue *const *count, const axis_bound *bound, tn_lvalue **idx)
{
    block_walk w;
    int axes[2] = {slow, fast};
    for (int i = 0; i < 2; i++) {
        tn_lop *loop = tn_l_for(b, i ? "fast" : "slow", tn_l_index(b, 0), count[axes[i]], tn_l_index(b, 1), i ? TN_FOR_VECTOR : TN_FOR_SERIAL);
        *b = tn_l_in(b, loop->region[0]);
        w.at[i] = loop->region[0]->arg;
        idx[axes[i]] = tn_l_fn2(b, TN_S_add, origin[axes[i]], w.at[i]);
        lower_fact(L, &bound[axes[i]], idx[axes[i]]);
    }
    return w;
}

static void store_turned(lower *L, tn_lbuilder *b, const tn_top *op, int vector, const turned *t, tn_lvalue **idx)
{
    enum { BLOCK = 32, PITCH = BLOCK + 1 }; /* the pitch keeps a column's elements in different cache sets */
    int u = t->u, v = vector;
    tn_lvalue *origin[TN_TILE_RANK], *count[TN_TILE_RANK], *buffer[4];
    axis_bound bound[TN_TILE_RANK];
    for (int i = 0; i < t->n; i++)
        buffer[i] = tn_l_alloc(b, "turn", t->load[i]->result->type.dtype, TN_SPACE_LOCAL, BLOCK * PITCH);
    for (int i = 0; i < 2; i++) {
        int axis = i ? v : u;
        bound[axis] = lower_store_bound(op, axis);
        tn_lvalue *total = lower_axis_count(L, b, op->operand[0]->type.extent[axis].size, &bound[axis]);
        origin[axis] = lower_block_loop(b, i ? "v0" : "u0", total, BLOCK);
        count[axis] = lower_block_count(b, total, origin[axis], BLOCK);
    }
    for (int i = 0; i < t->n; i++) {
        tn_lbuilder in = *b;
        scope s = lower_open(L);
        block_walk w = walk_block(L, &in, v, u, origin, count, bound, idx);
        tn_lvalue *at = tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, w.at[0], tn_l_index(&in, PITCH)), w.at[1]);
        tn_l_store(&in, buffer[i], at, lower_element(L, &in, t->load[i]->result, idx).value, NULL);
        lower_close(L, s);
    }
    block_walk w = walk_block(L, b, u, v, origin, count, bound, idx);
    tn_lvalue *at = tn_l_fn2(b, TN_S_add, w.at[0], tn_l_fn2(b, TN_S_mul, w.at[1], tn_l_index(b, PITCH)));
    for (int i = 0; i < t->n; i++)
        lower_memo(L, t->load[i]->result, idx, (element){tn_l_load(b, buffer[i], at, 1, NULL, NULL), NULL});
    lower_store_element(L, b, op, idx);
}

/* ---- stores past the caches ----
 *
 * A store brings the line that it writes into the cache first: a third of all traffic of a kernel that reads as much as it writes. A kernel whose result is
 * larger than the caches, and which does not read it again, stores around them, where a vector's address allows it. */

static bool reads_buffer(const tn_tblock *block, int buffer)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->view && op->view->buffer == buffer && op->code != TN_T_store)
            return true;
        for (int r = 0; r < op->nregions; r++)
            if (reads_buffer(op->region[r], buffer))
                return true;
    }
    return false;
}

/* Bytes that the stored buffer has: as declared, else (user kernels) what all programs store. NULL: no guess. */
static tn_dim stored_bytes(lower *L, const tn_top *op)
{
    const tn_kernel *k = L->kernel;
    const tn_ttype *type = &op->operand[0]->type;
    int64_t bytes = tn_dtype_bits(type->dtype) / 8;
    tn_dim elements = k->buffers.at[op->view->buffer].elements;
    if (elements)
        return tn_dim_is_const(elements) ? tn_dim_mul(L->session, elements, tn_dim_const(L->session, bytes)) : NULL;
    if (!k->overlap)
        return NULL;
    for (int i = 0; i < type->rank; i++)
        bytes *= type->extent[i].size;
    tn_dim total = tn_dim_const(L->session, bytes);
    for (size_t i = 0; i < k->grid.len; i++)
        total = tn_dim_mul(L->session, total, tn_dim_ceildiv(L->session, k->grid.at[i].limit, tn_dim_const(L->session, k->grid.at[i].step.size)));
    return total;
}

/* Whether the row of `op` at idx, from 0 along `vector`, is better stored past the caches; NULL: no. */
static tn_lvalue *stream_condition(lower *L, tn_lbuilder *b, const tn_top *op, int vector, tn_lvalue **idx)
{
    const tn_view *view = op->view;
    const tn_ttype *type = &op->operand[0]->type;
    int bits = tn_dtype_bits(type->dtype);
    bool contiguous = false;
    for (int d = 0; d < view->rank; d++)
        contiguous |= op->subscript[d].block && op->subscript[d].axis[0] == vector && tn_dim_is(view->stride[d], 1);
    if (!contiguous || view->panel || view->nguards || bits < 8 || tn_is_complex(type->dtype) || L->kernel->buffers.at[view->buffer].mode == TN_LOCAL ||
        type->extent[vector].size * bits < 4 * L->machine->vector.bits || reads_buffer(L->kernel->body, view->buffer))
        return NULL;
    tn_dim bytes = stored_bytes(L, op);
    if (!bytes || (tn_dim_is_const(bytes) && bytes->value < TN_STREAM_BYTES))
        return NULL;
    scope s = lower_open(L);
    idx[vector] = tn_l_index(b, 0);
    tn_lvalue *offset = lower_resolve(L, b, op, idx).offset;
    lower_close(L, s);
    tn_lvalue *at = tn_l_fn2(b, TN_S_add, tn_l_address(b, L->buffer[view->buffer]), tn_l_fn2(b, TN_S_mul, offset, tn_l_index(b, bits / 8)));
    tn_lvalue *aligned = tn_l_fn2(b, TN_S_eq, tn_l_fn2(b, TN_S_and, at, tn_l_index(b, L->machine->vector.bits / 8 - 1)), tn_l_index(b, 0));
    return lower_and(b, aligned, tn_dim_is_const(bytes) ? NULL : tn_l_fn2(&L->entry, TN_S_ge, lower_dim(L, bytes), tn_l_index(&L->entry, TN_STREAM_BYTES)));
}

/* The innermost loop of a store, along `vector`. A branch in it costs less than a second loop would to compile. */
static void store_row(lower *L, tn_lbuilder *b, const tn_top *op, int vector, tn_lvalue **idx)
{
    axis_bound bound = lower_store_bound(op, vector);
    tn_lvalue *stream = lower_copies(L, op) ? NULL : stream_condition(L, b, op, vector, idx);
    idx[vector] = lower_open_axis(L, b, vector, op->operand[0]->type.extent[vector].size, &bound, TN_FOR_VECTOR);
    if (!lower_copies(L, op))
        lower_fill(L, b, idx);
    store_element(L, b, op, idx, stream);
}

static void lower_store(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    int vector = lower_store_vector_axis(L, op);
    turned t = {.n = 0};
    if (type->rank >= 2 && !lower_copies(L, op))
        find_turned(L, op, op->operand[0], vector, &t);
    for (int axis = 0; axis < type->rank; axis++) {
        if (axis == vector || (t.n && axis == t.u))
            continue;
        axis_bound bound = lower_store_bound(op, axis);
        idx[axis] = lower_open_axis(L, &in, axis, type->extent[axis].size, &bound, TN_FOR_SERIAL);
    }
    if (t.n) {
        store_turned(L, &in, op, vector, &t, idx);
    } else if (type->rank == 0) {
        lower_store_element(L, &in, op, idx);
    } else { /* the vector axis comes last */
        store_row(L, &in, op, vector, idx);
    }
    lower_close(L, s);
}

void lower_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const place *p)
{
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    axis_bound none = {NULL, NULL};
    for (int i = 0; i < v->type.rank; i++)
        idx[i] = lower_open_axis(L, &in, i, v->type.extent[i].size, &none, i == v->type.rank - 1 ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    element e = lower_element(L, &in, v, idx);
    if (v->type.pointer)
        e.value = lower_rebase(L, &in, e.value, lower_root(L, v), p->root, v->type.dtype);
    tn_l_store(&in, p->buffer, lower_place_offset(&in, p, v->type.rank, idx), lower_frozen(&in, e), NULL);
    lower_close(L, s);
}

/* ---- combine ---------------------------------------------------------------------------------------------------------------- */

/* ---- folds and reductions ----------------------------------------------------------------------------------------------------- */

/* A fold or a reduce, in one shape: ranges to walk (none for reduce), the values to combine at each element, and what else
 * happens there (stores of the body that have the same tile). */
typedef struct folding {
    const tn_top *op;
    const tn_tblock *body; /* NULL: reduce */
    const tn_tblock *combine;
    tn_tvalue *const *value; /* n tiles of one shape */
    int n;
    bool folded[TN_TILE_RANK];
    int kept[TN_TILE_RANK], nkept; /* axes that stay */
} folding;

static folding folding_of(const tn_top *op)
{
    folding f = {.op = op};
    if (op->code == TN_T_fold) {
        f.body = op->region[0];
        f.combine = op->region[1];
        f.value = f.body->last->operand;
    } else {
        f.combine = op->region[0];
        f.value = op->operand;
    }
    f.n = op->nresults;
    for (int i = 0; i < op->naxes; i++)
        f.folded[op->axis[i]] = true;
    for (int i = 0; i < f.value[0]->type.rank; i++)
        if (!f.folded[i])
            f.kept[f.nkept++] = i;
    return f;
}

axis_bound lower_bound_outside(const tn_top *fold, axis_bound bound)
{
    for (const tn_tblock *block = bound.start ? bound.start->block : NULL; block && block->parent; block = block->parent->block)
        if (block->parent == fold)
            return (axis_bound){NULL, NULL};
    return bound;
}

static axis_bound folding_bound(const lower *L, const folding *f, int axis)
{
    axis_bound bound = {NULL, NULL};
    for (int i = 0; i < f->n && !bound.start; i++)
        bound = lower_value_bound(L, f->value[i], axis);
    for (int i = 0; i < f->n; i++) {
        axis_bound range = range_bound(L, f->op, f->value[i], axis);
        if (range.start && !bound.start)
            bound = range;
        else if (range.start == bound.start && range.start)
            bound.limit = tn_dim_min(L->session, bound.limit, range.limit);
    }
    return bound;
}

/* Leaves out what lies past the limit of a range, where the nest's bounds do not. */
static tn_lvalue *below_limits(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *const *idx)
{
    const tn_ttype *type = &f->value[0]->type;
    tn_lvalue *present = NULL;
    for (int i = 0; i < f->n; i++)
        for (int a = 0; a < type->rank; a++) {
            int range = tn_fold_range_of(f->op, f->value[i], a);
            int64_t n;
            if (range < 0)
                continue;
            const tn_tvalue *start = &f->op->region[0]->arg[range];
            axis_bound bound = range_bound(L, f->op, f->value[i], a);
            if (bound.start && (lower_known_below(L, start, idx[a], bound.limit) ||
                                (tn_l_is_const(lower_axis_count(L, b, type->extent[a].size, &bound), &n) && n == type->extent[a].size)))
                continue;
            tn_lvalue *at = tn_l_fn2(b, TN_S_add, lower_scalar(L, b, start), idx[a]);
            present = lower_and(b, present, tn_l_fn2(b, TN_S_lt, at, lower_scalar(L, b, f->op->operand[range])));
        }
    return present;
}

/* The elements to combine at idx, after the body's stores there. */
static void folding_elements(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *const *idx, element *x)
{
    for (int i = 0; i < f->n; i++)
        x[i] = lower_element(L, b, f->value[i], idx);
    lower_fill(L, b, idx);
    x[0].present = lower_and(b, x[0].present, below_limits(L, b, f, idx));
    if (f->body)
        for (const tn_top *op = f->body->first; op; op = op->next)
            if (op->code == TN_T_store)
                lower_store_element(L, b, op, idx);
}

static void set_identities(tn_lbuilder *b, const folding *f, tn_lvalue *const *acc, tn_lvalue *offset)
{
    for (int i = 0; i < f->n; i++)
        tn_l_store(b, acc[i], offset, tn_l_const(b, tn_lscalar(f->value[i]->type.dtype), f->op->identity[i]), NULL);
}

/* Appends a loop of n independent iterations; `in` builds its body. Returns the index. */
tn_lvalue *lower_vector_loop(tn_lbuilder *b, int64_t n, tn_lbuilder *in)
{
    tn_lop *loop = tn_l_for(b, "l", tn_l_index(b, 0), tn_l_index(b, n), tn_l_index(b, 1), TN_FOR_VECTOR);
    *in = tn_l_in(b, loop->region[0]);
    return loop->region[0]->arg;
}

static void allocate_parts(tn_lbuilder *b, const folding *f, const char *name, tn_space space, int64_t size, tn_lvalue **acc)
{
    for (int i = 0; i < f->n; i++)
        acc[i] = tn_l_alloc(b, name, f->value[i]->type.dtype, space, size);
}

/* parts[0 … lanes) of each value -> parts[0], by halves: the tree is the schedule's, not the data's. */
static void combine_tree(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *const *parts, int64_t lanes)
{
    for (int64_t half = lanes / 2; half >= 1; half /= 2) {
        tn_lbuilder in = *b;
        scope s = lower_open(L);
        tn_lvalue *l = half > 1 ? lower_vector_loop(b, half, &in) : tn_l_index(b, 0);
        element x[16] = {{NULL, NULL}};
        for (int i = 0; i < f->n; i++)
            x[i] = (element){tn_l_load(&in, parts[i], tn_l_fn2(&in, TN_S_add, l, tn_l_index(&in, half)), 1, NULL, NULL), NULL};
        lower_accumulate(L, &in, f->combine, f->n, parts, l, x);
        lower_close(L, s);
    }
}

/* dst[at + l] := src[l] for l in [0, n) */
static void copy_lanes(tn_lbuilder *b, const folding *f, tn_lvalue *const *dst, int64_t at, tn_lvalue *const *src, int64_t from, int64_t n)
{
    tn_lbuilder in;
    tn_lvalue *l = lower_vector_loop(b, n, &in);
    for (int i = 0; i < f->n; i++) {
        tn_lvalue *x = tn_l_load(&in, src[i], tn_l_fn2(&in, TN_S_add, l, tn_l_index(&in, from)), 1, NULL, NULL);
        tn_l_store(&in, dst[i], tn_l_fn2(&in, TN_S_add, l, tn_l_index(&in, at)), x, NULL);
    }
}

static int widest_bits(const folding *f)
{
    int bits = 8;
    for (int i = 0; i < f->n; i++)
        bits = (int)tn_max(bits, tn_dtype_bits(f->value[i]->type.dtype));
    return bits;
}

/* Lane partials over the last axis; the kept indices are fixed in idx. Leaves the total in out[0] of a `fin` buffer. */
static void fold_lanes(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue **idx, tn_lvalue **total)
{
    const tn_ttype *type = &f->value[0]->type;
    int last = type->rank - 1;
    int64_t width = L->machine->vector.bits / widest_bits(f);
    axis_bound bound = folding_bound(L, f, last);
    int64_t extent = type->extent[last].size, most = extent;
    if (bound.start && tn_dim_is_const(bound.limit))
        most = tn_min(most, bound.limit->value);
    int64_t usual = f->body || !lower_is_dear(L, f->value[0]) ? 4 : 2; /* as many as hide the latency of combining */
    int64_t vectors = tn_schedule_get(&L->kernel->schedule, f->op->label, "lanes", usual * width) / width;
    while (vectors > 1 && vectors * width > most)
        vectors /= 2;
    vectors = tn_max(vectors, 1);
    int64_t lanes = vectors * width;

    /* One register buffer a vector: every access has the vector's width and a constant offset. */
    tn_lvalue *part[16][16], *rest[16];
    assert(vectors <= 16);
    for (int64_t v = 0; v < vectors; v++)
        allocate_parts(b, f, "part", TN_SPACE_REG, width, part[v]);
    allocate_parts(b, f, "rest", TN_SPACE_REG, width, rest);
    for (int64_t v = 0; v <= vectors; v++) {
        tn_lbuilder in;
        tn_lvalue *l = lower_vector_loop(b, width, &in);
        set_identities(&in, f, v < vectors ? part[v] : rest, l);
    }

    tn_lbuilder in = *b;
    scope s = lower_open(L);
    lower_open_ranges(L, &in, f->op);
    axis_bound none = {NULL, NULL};
    for (int i = 0; i < last; i++)
        if (f->folded[i]) {
            axis_bound outer = folding_bound(L, f, i);
            idx[i] = lower_open_axis(L, &in, i, type->extent[i].size, outer.start ? &outer : &none, TN_FOR_SERIAL);
        }
    tn_lvalue *count = lower_axis_count(L, &in, extent, &bound);
    tn_lvalue *whole = tn_l_fn2(&in, TN_S_mul, tn_l_fn2(&in, TN_S_div, tn_l_fn2(&in, TN_S_max, count, tn_l_index(&in, 0)), tn_l_index(&in, lanes)),
                                tn_l_index(&in, lanes));
    tn_lop *main = tn_l_for(&in, "i", tn_l_index(&in, 0), whole, tn_l_index(&in, lanes), TN_FOR_SERIAL);
    tn_lbuilder at_main = tn_l_in(&in, main->region[0]);
    for (int64_t v = 0; v < vectors; v++) {
        tn_lbuilder lane;
        scope inner = lower_open(L);
        tn_lvalue *base = tn_l_fn2(&at_main, TN_S_add, main->region[0]->arg, tn_l_index(&at_main, v * width));
        tn_lvalue *l = lower_vector_loop(&at_main, width, &lane);
        idx[last] = tn_l_fn2(&lane, TN_S_add, base, l);
        lower_fact(L, &bound, idx[last]);
        element x[16] = {{NULL, NULL}};
        folding_elements(L, &lane, f, idx, x);
        lower_accumulate(L, &lane, f->combine, f->n, part[v], l, x);
        lower_close(L, inner);
    }
    /* The rest of the axis, a vector at a time, lanes past the end left out. */
    tn_lop *tail = tn_l_for(&in, "i", whole, count, tn_l_index(&in, width), TN_FOR_SERIAL);
    tn_lbuilder at_tail = tn_l_in(&in, tail->region[0]);
    {
        tn_lbuilder lane;
        scope inner = lower_open(L);
        tn_lvalue *l = lower_vector_loop(&at_tail, width, &lane);
        idx[last] = tn_l_fn2(&lane, TN_S_add, tail->region[0]->arg, l);
        tn_lop *exists = tn_l_if(&lane, tn_l_fn2(&lane, TN_S_lt, idx[last], count));
        tn_lbuilder then = tn_l_in(&lane, exists->region[0]);
        lower_fact(L, &bound, idx[last]);
        element x[16] = {{NULL, NULL}};
        folding_elements(L, &then, f, idx, x);
        lower_accumulate(L, &then, f->combine, f->n, rest, l, x);
        lower_close(L, inner);
    }
    lower_close(L, s);

    /* All partials into one buffer, the rest into its first vector; then halves. */
    allocate_parts(b, f, "total", TN_SPACE_REG, lanes, total);
    for (int64_t v = 0; v < vectors; v++)
        copy_lanes(b, f, total, v * width, part[v], 0, width);
    tn_lbuilder lane;
    scope inner = lower_open(L);
    tn_lvalue *l = lower_vector_loop(b, width, &lane);
    element x[16] = {{NULL, NULL}};
    for (int i = 0; i < f->n; i++)
        x[i] = (element){tn_l_load(&lane, rest[i], l, 1, NULL, NULL), NULL};
    lower_accumulate(L, &lane, f->combine, f->n, total, l, x);
    lower_close(L, inner);
    combine_tree(L, b, f, total, lanes);
}

static void store_results(tn_lbuilder *b, const folding *f, place *const *out, tn_lvalue *const *kept_idx, tn_lvalue *const *from)
{
    for (int i = 0; i < f->n; i++)
        tn_l_store(b, out[i]->buffer, lower_place_offset(b, out[i], f->nkept, kept_idx), tn_l_load(b, from[i], tn_l_index(b, 0), 1, NULL, NULL), NULL);
}

/* Each lane of a kept axis (or a plain scalar) folds its own element, in order of the ranges and axes. */
static void fold_serial(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue **idx, tn_lvalue **acc)
{
    const tn_ttype *type = &f->value[0]->type;
    allocate_parts(b, f, "acc", TN_SPACE_REG, 1, acc);
    set_identities(b, f, acc, tn_l_index(b, 0));
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    lower_open_ranges(L, &in, f->op);
    for (int i = 0; i < type->rank; i++)
        if (f->folded[i]) {
            axis_bound bound = folding_bound(L, f, i);
            idx[i] = lower_open_axis(L, &in, i, type->extent[i].size, &bound, TN_FOR_SERIAL);
        }
    element x[16] = {{NULL, NULL}};
    folding_elements(L, &in, f, idx, x);
    lower_accumulate(L, &in, f->combine, f->n, acc, tn_l_index(&in, 0), x);
    lower_close(L, s);
}

/* The nest over the folded values reaches all that the store stores. */
static bool store_is_covered(const lower *L, const folding *f, const tn_top *store)
{
    for (int i = 0; i < f->value[0]->type.rank; i++) {
        axis_bound nest = folding_bound(L, f, i), to = lower_store_bound(store, i), from = lower_value_bound(L, store->operand[0], i);
        bool cut = (to.start == nest.start && tn_dim_le(L->session, to.limit, nest.limit)) ||
                   (from.start == nest.start && tn_dim_le(L->session, from.limit, nest.limit));
        if (nest.start && !cut)
            return false;
    }
    return true;
}

static bool stored_before(const lower *L, const tn_top *load)
{
    for (const tn_top *op = load->prev; op; op = op->prev)
        if (lower_writes(L, op, lower_accessed(L, load)))
            return true;
    return false;
}

/* Done element by element, the store would change what the body loads for others. */
static bool store_disturbs(const lower *L, const tn_tblock *body, const tn_top *store)
{
    for (const tn_top *op = body->first; L->func->overlap && op; op = op->next)
        if (lower_is_load(op) && lower_may_alias(L, lower_accessed(L, op), store->view->buffer) && !lower_same_element(L, op, store))
            return true;
    return false;
}

/* A body may hold stores of the folded tile's shape and pure operations; anything else needs its own nests inside the ranges. */
static bool body_is_simple(const lower *L, const folding *f)
{
    if (!f->body)
        return true;
    const tn_ttype *type = &f->value[0]->type;
    for (int i = 1; i < f->n; i++)
        if (f->value[i]->type.rank != type->rank)
            return false;
    for (const tn_top *op = f->body->first; op; op = op->next) {
        if (lower_is_load(op) && stored_before(L, op))
            return false;
        if (op->code == TN_T_yield || lower_is_load(op))
            continue;
        if (op->code == TN_T_store) {
            if (op->operand[0]->type.rank != type->rank || !store_is_covered(L, f, op) || store_disturbs(L, f->body, op))
                return false;
            continue;
        }
        if (op->nregions || op->code == TN_T_dot || op->code == TN_T_histogram || !(tn_top_traits(op->code) & TN_T_PURE))
            return false;
    }
    return true;
}

static void lower_block(lower *L, tn_lbuilder *b, const tn_tblock *block);

/* out[kept] := the identities, for every element. */
static void set_results(lower *L, tn_lbuilder *b, const folding *f, place *const *out)
{
    const tn_ttype *type = &f->value[0]->type;
    axis_bound none = {NULL, NULL};
    tn_lvalue *kept_idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    for (int i = 0; i < f->nkept; i++)
        kept_idx[i] = lower_open_axis(L, &in, i, type->extent[f->kept[i]].size, &none, i == f->nkept - 1 ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    for (int i = 0; i < f->n; i++)
        tn_l_store(&in, out[i]->buffer, lower_place_offset(&in, out[i], f->nkept, kept_idx),
                   tn_l_const(&in, tn_lscalar(f->value[i]->type.dtype), f->op->identity[i]), NULL);
    lower_close(L, s);
}

/* Some kept elements may be absent in every strip: the nest does not reach them. */
static bool is_cut(lower *L, tn_lbuilder *b, const folding *f)
{
    for (int i = 0; i < f->nkept; i++) {
        int64_t extent = f->value[0]->type.extent[f->kept[i]].size, n;
        axis_bound bound = lower_bound_outside(f->op, folding_bound(L, f, f->kept[i]));
        if (bound.start && !(tn_l_is_const(lower_axis_count(L, b, extent, &bound), &n) && n == extent))
            return true;
    }
    return false;
}

/* Ranges outermost; inside, the body's own nests, then acc[kept] := combine(acc[kept], value) over the tile. */
static void fold_general(lower *L, tn_lbuilder *b, const folding *f, place *const *out)
{
    const tn_ttype *type = &f->value[0]->type;
    tn_lvalue *idx[TN_TILE_RANK], *kept_idx[TN_TILE_RANK], *acc[16];
    set_results(L, b, f, out);
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    lower_open_ranges(L, &in, f->op);
    lower_block(L, &in, f->body);
    for (int i = 0; i < f->nkept; i++) {
        axis_bound bound = folding_bound(L, f, f->kept[i]);
        kept_idx[i] = idx[f->kept[i]] =
            lower_open_axis(L, &in, f->kept[i], type->extent[f->kept[i]].size, &bound, i == f->nkept - 1 ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    }
    for (int i = 0; i < type->rank; i++)
        if (f->folded[i]) {
            axis_bound bound = folding_bound(L, f, i);
            idx[i] = lower_open_axis(L, &in, i, type->extent[i].size, &bound, TN_FOR_SERIAL);
        }
    element x[16] = {{NULL, NULL}};
    for (int i = 0; i < f->n; i++) {
        x[i] = lower_element(L, &in, f->value[i], idx);
        acc[i] = out[i]->buffer;
    }
    x[0].present = lower_and(&in, x[0].present, below_limits(L, &in, f, idx));
    lower_accumulate(L, &in, f->combine, f->n, acc, lower_place_offset(&in, out[0], f->nkept, kept_idx), x);
    lower_close(L, s);
}

enum { FOLD_VECTORS = 4 };

/* [from, to) of the last kept axis by blocks of so many vectors. */
static void fold_vectors(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue **idx, tn_lvalue **kept_idx, place *const *out, const axis_bound *bound,
                         int vectors, tn_lvalue *from, tn_lvalue *to)
{
    const tn_ttype *type = &f->value[0]->type;
    int last = f->kept[f->nkept - 1];
    int64_t width = L->machine->vector.bits / widest_bits(f);
    tn_lop *loop = tn_l_for(b, "block", from, to, tn_l_index(b, vectors * width), TN_FOR_SERIAL);
    tn_lbuilder at = tn_l_in(b, loop->region[0]), lane;
    tn_lvalue *part[FOLD_VECTORS][16], *l;
    for (int v = 0; v < vectors; v++) {
        allocate_parts(&at, f, "part", TN_SPACE_REG, width, part[v]);
        l = lower_vector_loop(&at, width, &lane);
        set_identities(&lane, f, part[v], l);
    }
    tn_lbuilder in = at;
    scope s = lower_open(L);
    lower_open_ranges(L, &in, f->op);
    for (int i = 0; i < type->rank; i++)
        if (f->folded[i]) {
            axis_bound folded = folding_bound(L, f, i);
            idx[i] = lower_open_axis(L, &in, i, type->extent[i].size, &folded, TN_FOR_SERIAL);
        }
    /* What is there for all lanes or for none is asked once, and needs no mask. */
    tn_lvalue *there = f->n == 1 ? lower_grant_guards(L, &in, f->value[0]) : NULL;
    if (there)
        in = tn_l_in(&in, tn_l_if(&in, there)->region[0]);
    for (int v = 0; v < vectors; v++) {
        scope inner = lower_open(L);
        tn_lvalue *base = tn_l_fn2(&in, TN_S_add, loop->region[0]->arg, tn_l_index(&in, v * width));
        l = lower_vector_loop(&in, width, &lane);
        idx[last] = tn_l_fn2(&lane, TN_S_add, base, l);
        lower_fact(L, bound, idx[last]);
        element x[16] = {{NULL, NULL}};
        folding_elements(L, &lane, f, idx, x);
        lower_accumulate(L, &lane, f->combine, f->n, part[v], l, x);
        lower_close(L, inner);
    }
    lower_close(L, s);
    for (int v = 0; v < vectors; v++) {
        tn_lvalue *base = tn_l_fn2(&at, TN_S_add, loop->region[0]->arg, tn_l_index(&at, v * width));
        l = lower_vector_loop(&at, width, &lane);
        kept_idx[f->nkept - 1] = tn_l_fn2(&lane, TN_S_add, base, l);
        for (int i = 0; i < f->n; i++)
            tn_l_store(&lane, out[i]->buffer, lower_place_offset(&lane, out[i], f->nkept, kept_idx), tn_l_load(&lane, part[v][i], l, 1, NULL, NULL), NULL);
    }
}

/* Several vectors of the last kept axis at once: more sums in flight, and whole lines where the folded axis jumps from row to row. Of a length that is known, the
 * vectors that do not fill a block are one too. What is less than a vector is left to fold_serial, from the returned index on. */
static tn_lvalue *fold_blocks(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue **idx, tn_lvalue **kept_idx, place *const *out, const axis_bound *bound,
                              tn_lvalue *count)
{
    int64_t width = L->machine->vector.bits / widest_bits(f), block = FOLD_VECTORS * width, extent = f->value[0]->type.extent[f->kept[f->nkept - 1]].size, known;
    tn_lvalue *zero = tn_l_index(b, 0);
    if (!tn_l_is_const(count, &known)) {
        if (extent < block)
            return zero;
        tn_lvalue *size = tn_l_index(b, block), *whole = tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, tn_l_fn2(b, TN_S_max, count, zero), size), size);
        fold_vectors(L, b, f, idx, kept_idx, out, bound, FOLD_VECTORS, zero, whole);
        return whole;
    }
    int64_t blocks = known / block * block, vectors = known % block / width, end = blocks + vectors * width;
    if (blocks)
        fold_vectors(L, b, f, idx, kept_idx, out, bound, FOLD_VECTORS, zero, tn_l_index(b, blocks));
    if (vectors)
        fold_vectors(L, b, f, idx, kept_idx, out, bound, (int)vectors, tn_l_index(b, blocks), tn_l_index(b, end));
    return tn_l_index(b, end);
}

static void lower_fold(lower *L, tn_lbuilder *b, const tn_top *op)
{
    folding f = folding_of(op);
    const tn_ttype *type = &f.value[0]->type;
    place *out[16];
    for (int i = 0; i < f.n; i++)
        out[i] = lower_new_place(L, b, &op->result[i].type, "fold");
    if (!body_is_simple(L, &f)) {
        fold_general(L, b, &f, out);
    } else {
        int axis = (int)tn_schedule_get(&L->kernel->schedule, op->label, "vector-axis", type->rank - 1);
        if (is_cut(L, b, &f))
            set_results(L, b, &f, out);
        bool lanes = type->rank && f.folded[axis] && axis == type->rank - 1 && type->extent[axis].size > 1;
        tn_lvalue *idx[TN_TILE_RANK], *kept_idx[TN_TILE_RANK], *total[16];
        tn_lbuilder in = *b;
        scope s = lower_open(L);
        for (int i = 0; i < f.nkept; i++) {
            axis_bound bound = lower_bound_outside(op, folding_bound(L, &f, f.kept[i]));
            int64_t extent = type->extent[f.kept[i]].size;
            if (lanes || i < f.nkept - 1 || extent == 1) {
                kept_idx[i] = idx[f.kept[i]] = lower_open_axis(L, &in, f.kept[i], extent, &bound, TN_FOR_SERIAL);
                continue;
            }
            tn_lvalue *count = lower_axis_count(L, &in, extent, &bound);
            tn_lvalue *from = fold_blocks(L, &in, &f, idx, kept_idx, out, &bound, count);
            tn_lop *loop = tn_l_for(&in, "i", from, count, tn_l_index(&in, 1), TN_FOR_VECTOR);
            in = tn_l_in(&in, loop->region[0]);
            kept_idx[i] = idx[f.kept[i]] = loop->region[0]->arg;
            lower_fact(L, &bound, kept_idx[i]);
        }
        if (lanes)
            fold_lanes(L, &in, &f, idx, total);
        else
            fold_serial(L, &in, &f, idx, total);
        store_results(&in, &f, out, kept_idx, total);
        lower_close(L, s);
    }
    for (int i = 0; i < f.n; i++)
        lower_set_place(L, &op->result[i], out[i]);
    for (int i = 0; i < f.n && op->result->type.rank == 0; i++)
        lower_scalar(L, b, &op->result[i]); /* read once, not in every nest that uses it */
}

/* A reduction computes its operands at its own index, a store what it stores. */
bool lower_nest_fills(lower *L, const tn_top *op, const tn_tvalue *v)
{
    axis_bound nest[TN_TILE_RANK];
    if (op->code == TN_T_reduce && !op->ordered) {
        folding f = folding_of(op);
        for (int a = 0; a < f.value[0]->type.rank; a++)
            nest[a] = folding_bound(L, &f, a);
        for (int i = 0; i < f.n; i++)
            if (lower_fills(L, f.value[i], v, nest))
                return true;
    }
    turned t = {.n = 0};
    if (op->code == TN_T_store && op->operand[0]->type.rank > 0) {
        find_turned(L, op, op->operand[0], lower_store_vector_axis(L, op), &t);
        for (int a = 0; a < op->operand[0]->type.rank; a++)
            nest[a] = lower_store_bound(op, a);
        return t.n == 0 && !lower_waits_for_product(L, op->operand[0]) && lower_fills(L, op->operand[0], v, nest);
    }
    return false;
}

/* ---- control ---------------------------------------------------------------------------------------------------------------------- */

static void bind_state(lower *L, const tn_tvalue *args, place *const *state, int n)
{
    for (int i = 0; i < n; i++)
        lower_set_place(L, &args[i], state[i]);
}

static void lower_for(lower *L, tn_lbuilder *b, const tn_top *op)
{
    int n = op->nresults;
    place *state[TN_TILE_CARRIED];
    tn_lvalue *lo = lower_scalar(L, b, op->operand[0]), *hi = lower_scalar(L, b, op->operand[1]), *step = lower_scalar(L, b, op->operand[2]);
    for (int i = 0; i < n; i++) {
        state[i] = lower_new_place(L, b, &op->result[i].type, "carried");
        state[i]->root = lower_root(L, &op->result[i]);
        lower_materialise(L, b, op->operand[3 + i], state[i]);
    }
    int64_t from, to, by;
    if (!tn_l_is_const(step, &by)) /* a user's, at launch: one that does not go up would never end */
        hi = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_gt, step, tn_l_const(b, tn_lscalar(step->type.dtype), tn_number_from_int(step->type.dtype, 0))),
                      tn_l_cast(b, hi, TN_I64), tn_l_cast(b, lo, TN_I64));
    size_t copied = CPU(L)->copied.len;
    lower_copy_operands(L, b, op->region[0]);
    bool once = tn_l_is_const(lo, &from) && tn_l_is_const(hi, &to) && tn_l_is_const(step, &by) && from < to && to - from <= by;
    tn_lbuilder in = *b;
    tn_lvalue *index = tn_l_cast(b, lo, TN_I64);
    if (!once) {
        tn_lop *loop = tn_l_for(b, "i", tn_l_cast(b, lo, TN_I64), tn_l_cast(b, hi, TN_I64), tn_l_cast(b, step, TN_I64), TN_FOR_SERIAL);
        in = tn_l_in(b, loop->region[0]);
        index = loop->region[0]->arg;
    }
    scope s = lower_open(L);
    lower_memo(L, &op->region[0]->arg[0], NULL, (element){index, NULL});
    bind_state(L, op->region[0]->arg + 1, state, n);
    lower_block(L, &in, op->region[0]);
    lower_carry(L, &in, op->region[0]->arg + 1, op->region[0]->last->operand, state, n);
    lower_close(L, s);
    lower_forget_operands(L, copied);
    bind_state(L, op->result, state, n);
}

static void lower_while(lower *L, tn_lbuilder *b, const tn_top *op)
{
    int n = op->nresults;
    place *state[TN_TILE_CARRIED];
    for (int i = 0; i < n; i++) {
        state[i] = lower_new_place(L, b, &op->result[i].type, "carried");
        state[i]->root = lower_root(L, &op->result[i]);
        lower_materialise(L, b, op->operand[i], state[i]);
    }
    size_t copied = CPU(L)->copied.len;
    lower_copy_operands(L, b, op->region[1]);
    tn_lop *loop = tn_l_while(b);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    scope s = lower_open(L);
    bind_state(L, op->region[0]->arg, state, n);
    lower_block(L, &in, op->region[0]);
    tn_l_yield(&in, lower_scalar(L, &in, op->region[0]->last->operand[0]));
    lower_close(L, s);
    in = tn_l_in(b, loop->region[1]);
    s = lower_open(L);
    bind_state(L, op->region[1]->arg, state, n);
    lower_block(L, &in, op->region[1]);
    lower_carry(L, &in, op->region[1]->arg, op->region[1]->last->operand, state, n);
    lower_close(L, s);
    lower_forget_operands(L, copied);
    bind_state(L, op->result, state, n);
}

static void lower_if(lower *L, tn_lbuilder *b, const tn_top *op)
{
    place *out[TN_TILE_CARRIED];
    for (int i = 0; i < op->nresults; i++) {
        out[i] = lower_new_place(L, b, &op->result[i].type, "if");
        out[i]->root = lower_root(L, &op->result[i]);
    }
    tn_lop *branch = tn_l_if(b, lower_scalar(L, b, op->operand[0]));
    for (int r = 0; r < 2; r++) {
        tn_lbuilder in = tn_l_in(b, branch->region[r]);
        scope s = lower_open(L);
        lower_block(L, &in, op->region[r]);
        for (int i = 0; i < op->nresults; i++)
            if (!lower_pending_value(L, &in, op->region[r]->last->operand[i], out[i]))
                lower_materialise(L, &in, op->region[r]->last->operand[i], out[i]);
        lower_close(L, s);
    }
    bind_state(L, op->result, out, op->nresults);
}

/* ---- loads that a store disturbs ------------------------------------------------------------------------------------------------------ */

/* The operation is computed where it stands: what uses its results needs no load any more. */
static bool is_done_at_once(const lower *L, const tn_top *op)
{
    switch (op->code) {
    case TN_T_reduce:
    case TN_T_scan:
    case TN_T_sort:
    case TN_T_histogram:
    case TN_T_for:
    case TN_T_while:
    case TN_T_if:
        return true;
    case TN_T_dot:
        return L->func->overlap;
    case TN_T_fold:
        return L->func->overlap || !lower_is_dot_fold(op);
    default:
        return false;
    }
}

/* An expression is computed where it is used, so a load of memory that is written in between must be taken now. */
static bool must_load_now(lower *L, const tn_top *load)
{
    int buffer = lower_accessed(L, load);
    bool local = buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_LOCAL;
    if (buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_READ && !L->func->overlap)
        return false;
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(load->result)) = (void *)load;
    bool written = false;
    const tn_top *store = NULL; /* uses what it may write */
    for (const tn_top *op = load->next; op; op = op->next) {
        bool uses = lower_depends_on(op, &marked) || lower_keeps_marked(L, op, &marked);
        if (uses && written)
            return true;
        if (lower_writes(L, op, buffer)) {
            bool disturbs = uses && !lower_same_element(L, load, op);
            if (disturbs && op->code != TN_T_store && op->code != TN_T_store_ptr)
                return true;
            store = disturbs ? op : store;
            written = true;
        }
        written |= !local && lower_synchronises(op);
        if (uses && !is_done_at_once(L, op) && !lower_keeps_all_of(L, op))
            for (int i = 0; i < op->nresults; i++)
                *tn_map_at(&marked, TN_KEY(&op->result[i])) = (void *)op;
    }
    return store && !(L->func->overlap && lower_leave_to_store(L, load, store));
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------------------ */

static void lower_op(lower *L, tn_lbuilder *b, const tn_top *op)
{
    b->line = op->loc.line;
    if (op->ordered && op->code == TN_T_fold) {
        L->status = tn_error(L->session, TN_UNSUPPORTED, op->loc, "kernel %s: `order tree` of a fold has no CPU lowering", L->kernel->name);
        return;
    }
    switch (op->code) {
    case TN_T_store:
        if (!lower_pending_dots(L, b, op) && !lower_guarded_store(L, b, op, lower_store))
            lower_store(L, b, op);
        return;
    case TN_T_store_ptr:
        if (!lower_guarded_store(L, b, op, lower_store_ptr))
            lower_store_ptr(L, b, op);
        return;
    case TN_T_atomic:
    case TN_T_atomic_ptr:
    case TN_T_atomic_load:
    case TN_T_cas_ptr:
        lower_atomic(L, b, op);
        return;
    case TN_T_print:
        lower_print(L, b, op);
        return;
    case TN_T_assert:
        lower_assert(L, b, op);
        return;
    case TN_T_load:
    case TN_T_load_ptr:
        if (op->result->type.rank == 0) {
            lower_scalar(L, b, op->result);
        } else if (must_load_now(L, op)) {
            place *p = lower_new_place(L, b, &op->result->type, "loaded");
            lower_materialise(L, b, op->result, p);
            lower_set_place(L, op->result, p);
        }
        return;
    case TN_T_gather: { /* its source is read at computed places: it had better lie in memory */
        const tn_tvalue *source = op->operand[0];
        if (!tn_map_get(&L->places, TN_KEY(source))) {
            place *p = lower_new_place(L, b, &source->type, "source");
            p->root = lower_root(L, source);
            lower_materialise(L, b, source, p);
            *tn_map_at(&L->gathered, TN_KEY(op)) = p;
        }
        return;
    }
    case TN_T_dot:
        lower_dot(L, b, op);
        return;
    case TN_T_fold:
        if (lower_is_dot_fold(op))
            lower_dot(L, b, op);
        else
            lower_fold(L, b, op);
        return;
    case TN_T_reduce:
        if (op->ordered)
            lower_reduce_tree(L, b, op);
        else
            lower_fold(L, b, op);
        return;
    case TN_T_scan:
        lower_scan(L, b, op);
        return;
    case TN_T_sort:
        lower_sort(L, b, op);
        return;
    case TN_T_histogram:
        lower_histogram(L, b, op);
        return;
    case TN_T_for:
        lower_for(L, b, op);
        return;
    case TN_T_while:
        lower_while(L, b, op);
        return;
    case TN_T_if:
        lower_if(L, b, op);
        return;
    case TN_T_yield:
    case TN_T_fence: /* one program is one thread here */
        return;
    default:
        if (!(tn_top_traits(op->code) & TN_T_PURE) || op->nregions)
            L->status = tn_error(L->session, TN_UNSUPPORTED, op->loc, "kernel %s: '%s' has no CPU lowering", L->kernel->name, tn_top_name(op->code));
        else if (op->nresults == 1 && op->result->type.rank == 0)
            lower_scalar(L, b, op->result); /* once, here, not in every nest that uses it */
        return; /* other pure operations are computed where they are used */
    }
}

static void lower_block(lower *L, tn_lbuilder *b, const tn_tblock *block)
{
    lower_survey(L, block);
    for (const tn_top *op = block->first; op && L->status == TN_OK; op = op->next) {
        CPU(L)->nest++;
        lower_keep_before(L, b, op);
        lower_op(L, b, op);
        lower_keep_after(L);
    }
}

static void lower_body(lower *L, tn_lbuilder *b) { lower_block(L, b, L->kernel->body); }
static void all_programs(lower *L, tn_lbuilder *b) { lower_programs(L, b, lower_body); }

static void open_locals(lower *L, tn_lbuilder *b)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < k->buffers.len; i++) {
        const tn_tbuffer *t = &k->buffers.at[i];
        if (t->mode != TN_LOCAL)
            continue;
        L->buffer[i] = tn_dim_is_const(t->elements) ? tn_l_alloc(b, t->name, t->dtype, TN_SPACE_LOCAL, t->elements->value)
                                                    : tn_l_alloc_sized(b, t->name, t->dtype, lower_dim(L, t->elements));
    }
}

tn_status tn_cpu_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out)
{
    static const lower_target cpu = {"CPU", place_element, lower_prefetch_ahead, open_locals, all_programs};
    assert(!machine->gpu);
    TN_TRY(tn_tile_bind(kernel));
    cpu_lower state = {.base = {.target = &cpu, .session = session, .kernel = kernel, .machine = machine}};
    lower *L = &state.base;
    L->arena.on_oom = session->arena.on_oom;
    state.readers.arena = state.guarded.arena = state.pending.arena = state.operands.arena = &L->arena;
    return lower_run(L, out);
}
