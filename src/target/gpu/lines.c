/* What works along the lines of a tile, on GPUs: scan, sort, reduce in a fixed order; and histogram.
 *
 * scan       in a layout of its own, whose registers, then lanes, walk the axis: each thread scans its registers in order, lanes pass on their totals in log2
 *            steps, and what lies before a chunk of a warp comes from the totals of the chunks, which warps leave in shared memory.
 * sort       a bitonic network of pairs in shared memory. What it moves are numbers of elements; the smaller number wins among equals, so it is stable.
 * reduce     with `order tree`: neighbours in shared memory combined, level by level, where they lie.
 * histogram  counted by atomics in shared memory: integers, so the order of threads does not show. */
#include "target/gpu/lower.h"

#include <string.h>

/* ---- scan ---------------------------------------------------------------------------------------------------------------------- */

typedef struct scanning {
    const tn_top *op;
    int n, axis;
    tn_layout layout;
    nest walks;                        /* of the layout; not opened */
    int64_t vector, lanes;             /* neighbours in a thread's registers, and in neighbouring lanes */
    int64_t chunks, slots;             /* of vector * lanes elements along the axis; those of one thread */
    int64_t lines;                     /* of one thread */
    int64_t warp_chunks;               /* bits of a chunk's number that the warp gives */
    tn_lvalue *x[TN_TILE_COMBINED];    /* registers: elements, scanned in place */
    tn_lvalue *total[TN_TILE_COMBINED]; /* registers: of the chunk of each line and slot; then of all that lies before it */
} scanning;

static bool is_low(const scanning *s, const walk *w) { return w->axis == s->axis && w->stride < s->vector; }

/* Neighbours along the axis that one thread has: as many as an access takes where memory lies along it, so that lanes' accesses are neighbours too (twice as many
 * made partial writes of every piece: 0.61 of a copy against 0.96); else what saves steps between lanes. */
static bool most_neighbours(lower *L, const tn_ttype *type, int axis, int64_t each, int64_t *out)
{
    enum { MOST_VECTOR = 16, MOST_CHUNKS = 32 /* of a thread, each with its own steps between lanes */ };
    tn_layout shape;
    if (!gpu_class_layout(L, type, &shape))
        return false;
    bool lies = (shape.reg_bits && tn_layout_column(&shape, 0, axis) == 1) || tn_layout_column(&shape, TN_LAYOUT_LANE, axis) == 1;
    *out = lies ? tn_min(tn_max(tn_layout_vector(&shape, axis), each / MOST_CHUNKS), MOST_VECTOR) : MOST_VECTOR;
    return true;
}

/* How the axis is shared out: bits of registers, then of lanes, then of warps and registers, then repeats. */
static bool scan_layout(lower *L, scanning *s)
{
    int64_t most;
    const tn_ttype *type = &s->op->operand[0]->type;
    int order[TN_TILE_RANK], n = 0;
    int64_t extent = type->extent[s->axis].size, each = gpu_elements(type) / (GPU(L)->warps * TN_WARP);
    if (!most_neighbours(L, type, s->axis, each, &most))
        return false;
    order[n++] = s->axis;
    for (int a = type->rank - 1; a >= 0; a--)
        if (a != s->axis)
            order[n++] = a;
    s->vector = s->lanes = s->slots = s->lines = 1;
    while (s->vector < most && s->vector * 2 <= each && extent % (s->vector * 2) == 0)
        s->vector *= 2;
    if (!tn_layout_blocked(type, order, (int)s->vector, GPU(L)->warps, &s->layout)) {
        gpu_refuse(L, s->op, "a scan of so large a tile");
        return false;
    }
    for (int i = 0; i < TN_LAYOUT_LANE_BITS; i++)
        s->lanes *= tn_layout_column(&s->layout, TN_LAYOUT_LANE + i, s->axis) ? 2 : 1;
    s->chunks = extent / (s->vector * s->lanes);
    for (int i = 0; i < s->layout.warp_bits; i++)
        s->warp_chunks |= tn_layout_column(&s->layout, TN_LAYOUT_WARP + i, s->axis) / (s->vector * s->lanes);
    gpu_find_walks(&s->layout, &s->walks);
    for (int i = 0; i < s->walks.nwalks; i++) {
        const walk *w = &s->walks.walk[i];
        if (w->axis != s->axis)
            s->lines *= w->count;
        else if (!is_low(s, w))
            s->slots *= w->count;
    }
    return true;
}

static tn_lop *unrolled(tn_lbuilder *b, const char *name, int64_t count)
{
    tn_lop *loop = tn_l_for(b, name, tn_l_index(b, 0), tn_l_index(b, count), tn_l_index(b, 1), TN_FOR_UNROLL);
    *b = tn_l_in(b, loop->region[0]);
    return loop;
}

static tn_lvalue *plus_times(tn_lbuilder *b, tn_lvalue *sum, tn_lvalue *x, int64_t by)
{
    return gpu_plus(b, sum, gpu_times(b, x, by));
}

/* A line of this thread, and a chunk of it: the first register, and the number among the thread's chunks of the line. */
typedef struct spot {
    tn_lvalue *line, *reg, *slot;
} spot;

/* Loops over the thread's lines. */
static spot open_scan_lines(tn_lbuilder *b, const scanning *s)
{
    spot at = {tn_l_index(b, 0), tn_l_index(b, 0), tn_l_index(b, 0)};
    int64_t step = 1;
    for (int i = 0; i < s->walks.nwalks; i++) {
        const walk *w = &s->walks.walk[i];
        if (w->axis == s->axis)
            continue;
        tn_lvalue *index = unrolled(b, "line", w->count)->region[0]->arg;
        at.reg = plus_times(b, at.reg, index, w->registers);
        at.line = plus_times(b, at.line, index, step);
        step *= w->count;
    }
    return at;
}

/* And over its chunks in a line. */
static spot open_chunks(tn_lbuilder *b, const scanning *s, spot at)
{
    int64_t step = 1;
    for (int i = 0; i < s->walks.nwalks; i++) {
        const walk *w = &s->walks.walk[i];
        if (w->axis != s->axis || is_low(s, w))
            continue;
        tn_lvalue *index = unrolled(b, "chunk", w->count)->region[0]->arg;
        at.reg = plus_times(b, at.reg, index, w->registers);
        at.slot = plus_times(b, at.slot, index, step);
        step *= w->count;
    }
    return at;
}

/* The slot of a chunk, by its number along the axis. */
static tn_lvalue *slot_of(tn_lbuilder *b, const scanning *s, tn_lvalue *chunk)
{
    tn_lvalue *slot = tn_l_index(b, 0);
    int64_t step = 1, size = s->vector * s->lanes;
    for (int i = 0; i < s->walks.nwalks; i++) {
        const walk *w = &s->walks.walk[i];
        if (w->axis != s->axis || is_low(s, w))
            continue;
        tn_lvalue *part = tn_l_fn2(b, TN_S_div, chunk, tn_l_index(b, w->stride / size));
        slot = plus_times(b, slot, tn_l_fn2(b, TN_S_rem, part, tn_l_index(b, w->count)), step);
        step *= w->count;
    }
    return slot;
}

static void load_all(tn_lbuilder *b, int n, tn_lvalue *const *buffer, tn_lvalue *at, tn_lvalue **out)
{
    for (int i = 0; i < n; i++)
        out[i] = tn_l_load(b, buffer[i], at, 1, NULL, NULL);
}

/* From shared memory, as the operands' types. */
static void get_all(tn_lbuilder *b, const tn_top *op, tn_lvalue *const *buffer, tn_lvalue *at, tn_lvalue **out)
{
    for (int i = 0; i < op->nresults; i++)
        out[i] = gpu_get(b, buffer[i], at, gpu_held_dtype(&op->operand[i]->type));
}

static void store_all(tn_lbuilder *b, int n, tn_lvalue *const *buffer, tn_lvalue *at, tn_lvalue *const *x)
{
    for (int i = 0; i < n; i++)
        tn_l_store(b, buffer[i], at, x[i], NULL);
}

/* The elements into registers; those that are not there as what changes nothing. */
static void read_elements(lower *L, tn_lbuilder *b, scanning *s, place *const *out)
{
    tn_lbuilder in;
    nest n;
    element x[TN_TILE_COMBINED];
    for (int i = 0; i < s->n; i++)
        gpu_prepare_own(L, b, s->op->operand[i], &s->layout);
    in = *b;
    gpu_open(L, &in, &s->layout, &n);
    for (int i = 0; i < s->n; i++)
        x[i] = lower_element(L, &in, s->op->operand[i], n.idx);
    tn_lvalue *present = lower_all_present(&in, x, s->n);
    for (int i = 0; i < s->n; i++) {
        tn_lvalue *none = tn_l_const(&in, tn_lscalar(s->op->operand[i]->type.dtype), s->op->identity[i]);
        s->x[i] = out[i]->held->regs;
        tn_l_store(&in, s->x[i], n.reg, present ? tn_l_fn3(&in, TN_S_select, present, x[i].value, none) : x[i].value, NULL);
    }
    gpu_close(L, &n);
}

/* Register i of a vector, in the order of the scan. */
static tn_lvalue *nth(tn_lbuilder *b, const scanning *s, tn_lvalue *reg, tn_lvalue *i)
{
    return tn_l_fn2(b, TN_S_add, reg, s->op->reverse ? tn_l_fn2(b, TN_S_sub, tn_l_index(b, s->vector - 1), i) : i);
}

/* Lanes' totals, scanned; each vector gets what lies before it in its chunk. Returns the chunk's total. */
static void scan_lanes(lower *L, tn_lbuilder *b, const scanning *s, tn_lvalue *reg, tn_lvalue **total)
{
    const tn_tblock *combine = s->op->region[0];
    tn_lvalue *last = tn_l_index(b, s->lanes - 1), *lane = tn_l_fn2(b, TN_S_and, GPU(L)->thread, last), *other[TN_TILE_COMBINED], *sum[TN_TILE_COMBINED];
    if (s->op->reverse)
        lane = tn_l_fn2(b, TN_S_sub, last, lane); /* counted in the order of the scan */
    for (int64_t by = 1; by < s->lanes; by *= 2) {
        tn_lvalue *from = tn_l_fn2(b, TN_S_add, GPU(L)->thread, tn_l_index(b, s->op->reverse ? by : -by)), *has = tn_l_fn2(b, TN_S_ge, lane, tn_l_index(b, by));
        for (int i = 0; i < s->n; i++)
            other[i] = tn_l_lane_at(b, total[i], from);
        lower_combine(L, b, combine, s->n, other, total, sum);
        for (int i = 0; i < s->n; i++)
            total[i] = tn_l_fn3(b, TN_S_select, has, sum[i], total[i]);
    }
    tn_lvalue *before = tn_l_fn2(b, TN_S_add, GPU(L)->thread, tn_l_index(b, s->op->reverse ? 1 : -1)), *has = tn_l_fn2(b, TN_S_ge, lane, tn_l_index(b, 1));
    tn_lvalue *end = tn_l_fn2(b, TN_S_and, GPU(L)->thread, tn_l_index(b, ~(s->lanes - 1)));
    end = s->op->reverse ? end : tn_l_fn2(b, TN_S_add, end, last);
    for (int i = 0; i < s->n; i++)
        other[i] = tn_l_lane_at(b, total[i], before);
    tn_lbuilder in = *b;
    tn_lvalue *at = nth(&in, s, reg, unrolled(&in, "v", s->vector)->region[0]->arg), *mine[TN_TILE_COMBINED];
    load_all(&in, s->n, s->x, at, mine);
    lower_combine(L, &in, combine, s->n, other, mine, sum);
    for (int i = 0; i < s->n; i++)
        tn_l_store(&in, s->x[i], at, tn_l_fn3(&in, TN_S_select, has, sum[i], mine[i]), NULL);
    for (int i = 0; i < s->n; i++)
        total[i] = tn_l_lane_at(b, total[i], end);
}

/* Every chunk by itself; its total to its slot. */
static void scan_chunks(lower *L, tn_lbuilder *b, const scanning *s)
{
    tn_lbuilder in = *b, each;
    tn_lvalue *acc[TN_TILE_COMBINED], *x[TN_TILE_COMBINED], *total[TN_TILE_COMBINED];
    scope open = lower_open(L);
    spot at = open_chunks(&in, s, open_scan_lines(&in, s));
    tn_lvalue *zero = tn_l_index(&in, 0);
    load_all(&in, s->n, s->x, nth(&in, s, at.reg, zero), total);
    if (s->vector > 1) {
        each = in;
        tn_lop *loop = tn_l_for(&each, "v", tn_l_index(&each, 1), tn_l_index(&each, s->vector), tn_l_index(&each, 1), TN_FOR_UNROLL);
        each = tn_l_in(&each, loop->region[0]);
        tn_lvalue *i = loop->region[0]->arg, *to = nth(&each, s, at.reg, i);
        load_all(&each, s->n, s->x, nth(&each, s, at.reg, tn_l_fn2(&each, TN_S_sub, i, tn_l_index(&each, 1))), acc);
        load_all(&each, s->n, s->x, to, x);
        lower_combine(L, &each, s->op->region[0], s->n, acc, x, x);
        store_all(&each, s->n, s->x, to, x);
        load_all(&in, s->n, s->x, nth(&in, s, at.reg, tn_l_index(&in, s->vector - 1)), total);
    }
    if (s->lanes > 1)
        scan_lanes(L, &in, s, at.reg, total);
    if (s->chunks > 1)
        store_all(&in, s->n, s->total, plus_times(&in, at.slot, at.line, s->slots), total);
    lower_close(L, open);
}

/* Where a line's total of chunk 0 lies in shared memory. */
static tn_lvalue *line_offset(lower *L, tn_lbuilder *b, const scanning *s, tn_lvalue *reg)
{
    const tn_ttype *type = &s->op->operand[0]->type;
    tn_lvalue *at = tn_l_index(b, 0);
    int64_t stride = s->chunks;
    for (int a = type->rank - 1; a >= 0; a--) {
        if (a == s->axis)
            continue;
        tn_lvalue *idx = gpu_thread_index(L, &s->layout, a);
        for (int i = 0; i < s->walks.nwalks; i++) {
            const walk *w = &s->walks.walk[i];
            if (w->axis == a) { /* this walk's digit of the register's number */
                tn_lvalue *digit = tn_l_fn2(b, TN_S_rem, tn_l_fn2(b, TN_S_div, reg, tn_l_index(b, w->registers)), tn_l_index(b, w->count));
                idx = plus_times(b, idx, digit, w->stride);
            }
        }
        at = plus_times(b, at, idx, stride);
        stride *= type->extent[a].size;
    }
    return at;
}

static tn_lvalue *warp_chunk(lower *L, tn_lbuilder *b, const scanning *s)
{
    tn_lvalue *at = gpu_thread_index(L, &s->layout, s->axis);
    return tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_shr_logical, at, tn_l_index(b, __builtin_ctzll((uint64_t)(s->vector * s->lanes)))), tn_l_index(b, s->warp_chunks));
}

/* Warps tell each other the totals of their chunks. */
static void share_totals(lower *L, tn_lbuilder *b, const scanning *s, tn_lvalue **shared)
{
    const tn_ttype *type = &s->op->operand[0]->type;
    int64_t size = s->vector * s->lanes;
    tn_lbuilder in;
    for (int i = 0; i < s->n; i++) {
        shared[i] = gpu_shared(L, "totals", gpu_held_dtype(&s->op->operand[i]->type), gpu_elements(type) / type->extent[s->axis].size * s->chunks);
        gpu_touch_shared(L, b, shared[i], true);
    }
    in = *b;
    spot at = open_scan_lines(&in, s);
    tn_lvalue *line = line_offset(L, &in, s, at.reg), *chunk = warp_chunk(L, &in, s), *total[TN_TILE_COMBINED];
    at.slot = tn_l_index(&in, 0);
    int64_t step = 1;
    for (int i = 0; i < s->walks.nwalks; i++) {
        const walk *w = &s->walks.walk[i];
        if (w->axis != s->axis || is_low(s, w))
            continue;
        tn_lvalue *index = unrolled(&in, "chunk", w->count)->region[0]->arg;
        chunk = plus_times(&in, chunk, index, w->stride / size);
        at.slot = plus_times(&in, at.slot, index, step);
        step *= w->count;
    }
    tn_lvalue *first = tn_l_fn2(&in, TN_S_eq, tn_l_fn2(&in, TN_S_and, GPU(L)->thread, tn_l_index(&in, s->lanes - 1)), tn_l_index(&in, 0));
    first = lower_and(&in, s->lanes > 1 ? first : NULL, gpu_owns(L, &s->layout));
    load_all(&in, s->n, s->total, plus_times(&in, at.slot, at.line, s->slots), total);
    for (int i = 0; i < s->n; i++)
        gpu_put(&in, shared[i], tn_l_fn2(&in, TN_S_add, line, chunk), total[i], first);
    for (int i = 0; i < s->n; i++)
        gpu_touch_shared(L, b, shared[i], false);
}

/* Totals become what lies before each chunk, and elements get it. shared: all chunks' totals; NULL: a thread has all of its lines. */
static void add_carries(lower *L, tn_lbuilder *b, const scanning *s, tn_lvalue *const *shared)
{
    tn_lbuilder in = *b, each;
    tn_lvalue *acc[TN_TILE_COMBINED], *old[TN_TILE_COMBINED], *x[TN_TILE_COMBINED], *sum[TN_TILE_COMBINED];
    scope open = lower_open(L);
    spot at = open_scan_lines(&in, s);
    tn_lvalue *zero = tn_l_index(&in, 0);
    for (int i = 0; i < s->n; i++) {
        tn_dtype dtype = s->op->operand[i]->type.dtype;
        acc[i] = tn_l_alloc(&in, "before", dtype, TN_SPACE_REG, 1);
        tn_l_store(&in, acc[i], zero, tn_l_const(&in, tn_lscalar(dtype), s->op->identity[i]), NULL);
    }
    each = in;
    tn_lvalue *chunk = unrolled(&each, "chunk", s->chunks)->region[0]->arg, *mine = NULL;
    if (s->op->reverse)
        chunk = tn_l_fn2(&each, TN_S_sub, tn_l_index(&each, s->chunks - 1), chunk);
    tn_lvalue *slot = plus_times(&each, slot_of(&each, s, chunk), at.line, s->slots);
    load_all(&each, s->n, acc, zero, old);
    if (shared) {
        mine = tn_l_fn2(&each, TN_S_eq, tn_l_fn2(&each, TN_S_and, chunk, tn_l_index(&each, s->warp_chunks)), warp_chunk(L, &each, s));
        get_all(&each, s->op, shared, tn_l_fn2(&each, TN_S_add, line_offset(L, &each, s, at.reg), chunk), x);
    } else {
        load_all(&each, s->n, s->total, slot, x);
    }
    for (int i = 0; i < s->n; i++) {
        tn_lvalue *before = mine ? tn_l_fn3(&each, TN_S_select, mine, old[i], tn_l_load(&each, s->total[i], slot, 1, NULL, NULL)) : old[i];
        tn_l_store(&each, s->total[i], slot, before, NULL);
    }
    lower_combine(L, &each, s->op->region[0], s->n, old, x, sum);
    store_all(&each, s->n, acc, zero, sum);
    lower_close(L, open);

    open = lower_open(L);
    at = open_chunks(&in, s, at);
    load_all(&in, s->n, s->total, plus_times(&in, at.slot, at.line, s->slots), old);
    tn_lvalue *reg = tn_l_fn2(&in, TN_S_add, at.reg, unrolled(&in, "v", s->vector)->region[0]->arg);
    load_all(&in, s->n, s->x, reg, x);
    lower_combine(L, &in, s->op->region[0], s->n, old, x, sum);
    store_all(&in, s->n, s->x, reg, sum);
    lower_close(L, open);
}

void gpu_scan(lower *L, tn_lbuilder *b, const tn_top *op)
{
    scanning s = {.op = op, .n = op->nresults, .axis = op->axis[0]};
    place *out[TN_TILE_COMBINED];
    tn_lvalue *shared[TN_TILE_COMBINED];
    if (!scan_layout(L, &s))
        return;
    for (int i = 0; i < s.n; i++) {
        out[i] = gpu_new_place(L, b, &op->result[i].type, &s.layout, "scan");
        out[i]->root = lower_root(L, op->operand[i]);
        if (s.chunks > 1)
            s.total[i] = tn_l_alloc(b, "total", gpu_held_dtype(&op->operand[i]->type), TN_SPACE_REG, s.lines * s.slots);
    }
    read_elements(L, b, &s, out);
    scan_chunks(L, b, &s);
    if (s.warp_chunks)
        share_totals(L, b, &s, shared);
    if (s.chunks > 1)
        add_carries(L, b, &s, s.warp_chunks ? shared : NULL);
    for (int i = 0; i < s.n; i++)
        lower_set_place(L, &op->result[i], out[i]);
}

/* ---- lines in shared memory -------------------------------------------------------------------------------------------------------- */

/* n tiles of one shape, in shared memory: the elements along `inner` axes together, row-major, the others row-major around them. */
typedef struct held_lines {
    int n;
    bool inner[TN_TILE_RANK];
    int64_t length, count;
    tn_lvalue *value[TN_TILE_COMBINED], *exists[TN_TILE_COMBINED]; /* exists NULL: all do */
} held_lines;

static held_lines lines_of(const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    held_lines h = {.n = op->nresults, .length = 1, .count = 1};
    for (int i = 0; i < op->naxes; i++)
        h.inner[op->axis[i]] = true;
    for (int a = 0; a < type->rank; a++)
        *(h.inner[a] ? &h.length : &h.count) *= type->extent[a].size;
    return h;
}

/* The number of an element in its line, or of its line: over the axes that are inner, or the others. */
static tn_lvalue *number_along(tn_lbuilder *b, const held_lines *h, const tn_ttype *type, tn_lvalue *const *idx, bool inner)
{
    tn_lvalue *at = tn_l_index(b, 0);
    int64_t stride = 1;
    for (int a = type->rank - 1; a >= 0; a--)
        if (h->inner[a] == inner) {
            at = plus_times(b, at, idx[a], stride);
            stride *= type->extent[a].size;
        }
    return at;
}

static tn_lvalue *held_offset(tn_lbuilder *b, const held_lines *h, const tn_ttype *type, tn_lvalue *const *idx)
{
    return plus_times(b, number_along(b, h, type, idx, true), number_along(b, h, type, idx, false), h->length);
}

static bool hold_lines(lower *L, tn_lbuilder *b, const tn_top *op, held_lines *h)
{
    const tn_ttype *type = &op->operand[0]->type;
    tn_layout layout;
    nest n;
    if (!gpu_sink_layout(L, op->operand[0], &layout))
        return false;
    for (int k = 0; k < h->n; k++) {
        gpu_prepare_own(L, b, op->operand[k], &layout);
        h->value[k] = gpu_shared(L, "lines", gpu_held_dtype(&op->operand[k]->type), h->length * h->count);
        h->exists[k] = NULL;
    }
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    tn_lvalue *at = held_offset(&in, h, type, n.idx), *owns = gpu_owns(L, &layout);
    for (int k = 0; k < h->n; k++) { /* the buffers are new: nothing meets */
        element x = lower_element(L, &in, op->operand[k], n.idx);
        gpu_touch_shared(L, &in, h->value[k], true);
        gpu_put(&in, h->value[k], at, lower_frozen(&in, x), owns);
        if (!x.present)
            continue;
        h->exists[k] = gpu_shared(L, "exists", TN_BOOL, h->length * h->count);
        gpu_touch_shared(L, &in, h->exists[k], true);
        tn_l_store(&in, h->exists[k], at, x.present, owns);
    }
    gpu_close(L, &n);
    return L->status == TN_OK;
}

/* All threads share out `count` turns; the index of a thread's turn. */
static tn_lvalue *share_out(lower *L, tn_lbuilder *b, int64_t count)
{
    int64_t threads = GPU(L)->warps * TN_WARP;
    tn_lop *loop = tn_l_for(b, "t", GPU(L)->thread, tn_l_index(b, count), tn_l_index(b, threads), TN_FOR_SERIAL);
    *b = tn_l_in(b, loop->region[0]);
    return loop->region[0]->arg;
}

static void touch_lines(lower *L, tn_lbuilder *b, const held_lines *h, bool write)
{
    for (int k = 0; k < h->n; k++) {
        gpu_touch_shared(L, b, h->value[k], write);
        if (h->exists[k])
            gpu_touch_shared(L, b, h->exists[k], write);
    }
}

/* ---- sort ----------------------------------------------------------------------------------------------------------------------- */

enum { ABSENT = 1 << 24 }; /* in a key, above the numbers of elements */

/* The pair's elements are in the order that the sort wants: `low` before `high`. */
static tn_lvalue *in_order(lower *L, tn_lbuilder *b, const tn_top *op, const held_lines *h, tn_lvalue *line, tn_lvalue *low, tn_lvalue *high, bool absent, bool padded)
{
    tn_lvalue *low_first = tn_l_fn2(b, TN_S_lt, low, high), *x[TN_TILE_COMBINED], *y[TN_TILE_COMBINED], *comes, *at[2];
    tn_lvalue *key[2] = {tn_l_fn3(b, TN_S_select, low_first, high, low), tn_l_fn3(b, TN_S_select, low_first, low, high)}; /* the later element, the earlier one */
    for (int i = 0; i < 2; i++) {
        tn_lvalue *number = tn_l_cast(b, key[i], TN_I64);
        if (absent || padded)
            number = tn_l_fn2(b, TN_S_and, number, tn_l_index(b, ABSENT - 1));
        if (padded)
            number = tn_l_fn2(b, TN_S_min, number, tn_l_index(b, h->length - 1));
        at[i] = plus_times(b, number, line, h->length);
    }
    get_all(b, op, h->value, at[0], x);
    get_all(b, op, h->value, at[1], y);
    lower_combine(L, b, op->region[0], h->n, x, y, &comes);
    if (absent || padded) /* by their numbers, the absent ones' being the largest */
        comes = tn_l_fn2(b, TN_S_and, comes, tn_l_fn2(b, TN_S_lt, key[0], tn_l_const(b, tn_lscalar(TN_I32), tn_number_from_int(TN_I32, ABSENT))));
    return tn_l_fn2(b, TN_S_ne, comes, low_first); /* the later one comes first, and is `low`; or does not, and is `high` */
}

static void compare_pairs(lower *L, tn_lbuilder *b, const tn_top *op, const held_lines *h, tn_lvalue *keys, int64_t length, tn_lvalue *level, tn_lvalue *bit, bool absent)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    tn_lvalue *t = share_out(L, &in, h->count * (length / 2)), *one = tn_l_index(&in, 1);
    tn_lvalue *line = tn_l_fn2(&in, TN_S_shr_logical, t, tn_l_index(&in, __builtin_ctzll((uint64_t)length) - 1)), *pair = tn_l_fn2(&in, TN_S_and, t, tn_l_index(&in, length / 2 - 1));
    tn_lvalue *far = tn_l_fn2(&in, TN_S_shl, one, bit), *inside = tn_l_fn2(&in, TN_S_and, pair, tn_l_fn2(&in, TN_S_sub, far, one));
    tn_lvalue *low = tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, tn_l_fn2(&in, TN_S_sub, pair, inside), tn_l_index(&in, 2)), inside);
    tn_lvalue *up = tn_l_fn2(&in, TN_S_eq, tn_l_fn2(&in, TN_S_and, tn_l_fn2(&in, TN_S_shr_logical, low, level), one), tn_l_index(&in, 0));
    low = plus_times(&in, low, line, length);
    tn_lvalue *high = tn_l_fn2(&in, TN_S_add, low, far);
    tn_lvalue *x = tn_l_load(&in, keys, low, 1, NULL, NULL), *y = tn_l_load(&in, keys, high, 1, NULL, NULL);
    tn_lvalue *swap = tn_l_fn2(&in, TN_S_ne, in_order(L, &in, op, h, line, x, y, absent, length != h->length), up);
    tn_l_store(&in, keys, low, y, swap);
    tn_l_store(&in, keys, high, x, swap);
    lower_close(L, s);
}

/* Keys: the numbers of a line's elements, and then of what pads it to a power of two. */
static tn_lvalue *new_keys(lower *L, tn_lbuilder *b, const held_lines *h, int64_t length, bool absent)
{
    tn_lvalue *keys = gpu_shared(L, "keys", TN_I32, h->count * length);
    touch_lines(L, b, h, false);
    gpu_touch_shared(L, b, keys, true);
    tn_lbuilder in = *b;
    tn_lvalue *t = share_out(L, &in, h->count * length), *number = tn_l_fn2(&in, TN_S_and, t, tn_l_index(&in, length - 1)), *exists = NULL, *real = NULL;
    tn_lvalue *line = tn_l_fn2(&in, TN_S_shr_logical, t, tn_l_index(&in, __builtin_ctzll((uint64_t)length)));
    if (length != h->length)
        exists = real = tn_l_fn2(&in, TN_S_lt, number, tn_l_index(&in, h->length));
    for (int k = 0; absent && k < h->n; k++)
        if (h->exists[k])
            exists = lower_and(&in, exists, tn_l_load(&in, h->exists[k], plus_times(&in, number, line, h->length), 1, real, NULL));
    tn_lvalue *key = number;
    if (exists)
        key = tn_l_fn3(&in, TN_S_select, exists, number, tn_l_fn2(&in, TN_S_add, number, tn_l_index(&in, ABSENT)));
    tn_l_store(&in, keys, t, tn_l_cast(&in, key, TN_I32), NULL);
    return keys;
}

static void write_sorted(lower *L, tn_lbuilder *b, const tn_top *op, const held_lines *h, tn_lvalue *keys, int64_t length)
{
    const tn_ttype *type = &op->operand[0]->type, flags = gpu_flags(type);
    tn_layout layout;
    place *out[TN_TILE_COMBINED];
    nest n;
    if (!gpu_sink_layout(L, op->result, &layout))
        return;
    for (int k = 0; k < h->n; k++) {
        out[k] = gpu_new_place(L, b, &op->result[k].type, &layout, "sorted");
        out[k]->root = lower_root(L, op->operand[k]);
        out[k]->present = h->exists[k] ? gpu_new_place(L, b, &flags, &layout, "there") : NULL;
    }
    touch_lines(L, b, h, false);
    gpu_touch_shared(L, b, keys, false);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    tn_lvalue *line = number_along(&in, h, type, n.idx, false), *at = number_along(&in, h, type, n.idx, true);
    at = tn_l_cast(&in, tn_l_load(&in, keys, plus_times(&in, at, line, length), 1, NULL, NULL), TN_I64);
    at = plus_times(&in, tn_l_fn2(&in, TN_S_and, at, tn_l_index(&in, ABSENT - 1)), line, h->length);
    for (int k = 0; k < h->n; k++) {
        tn_l_store(&in, gpu_registers(out[k]), n.reg, gpu_get(&in, h->value[k], at, gpu_held_dtype(&op->operand[k]->type)), NULL);
        if (h->exists[k])
            tn_l_store(&in, gpu_registers(out[k]->present), n.reg, tn_l_load(&in, h->exists[k], at, 1, NULL, NULL), NULL);
    }
    gpu_close(L, &n);
    for (int k = 0; k < h->n; k++)
        lower_set_place(L, &op->result[k], out[k]);
}

void gpu_sort(lower *L, tn_lbuilder *b, const tn_top *op)
{
    held_lines h = lines_of(op);
    bool absent = false;
    int levels = 0;
    if (!hold_lines(L, b, op, &h))
        return;
    while (INT64_C(1) << levels < h.length)
        levels++;
    for (int k = 0; k < h.n; k++)
        absent |= h.exists[k] != NULL;
    int64_t length = INT64_C(1) << levels;
    tn_lvalue *keys = new_keys(L, b, &h, length, absent), *one = tn_l_index(b, 1);
    if (levels) {
        tn_lop *loop = tn_l_for(b, "level", one, tn_l_index(b, levels + 1), one, TN_FOR_SERIAL);
        tn_lbuilder in = tn_l_in(b, loop->region[0]);
        tn_lvalue *level = loop->region[0]->arg;
        loop = tn_l_for(&in, "step", tn_l_index(&in, 0), level, one, TN_FOR_SERIAL);
        in = tn_l_in(&in, loop->region[0]);
        tn_lvalue *bit = tn_l_fn2(&in, TN_S_sub, tn_l_fn2(&in, TN_S_sub, level, one), loop->region[0]->arg);
        tn_l_barrier(&in);
        compare_pairs(L, &in, op, &h, keys, length, level, bit, absent);
    }
    write_sorted(L, b, op, &h, keys, length);
}

/* ---- reduce, in the order of a tree ------------------------------------------------------------------------------------------------ */

/* value[left] := value[left] with value[right], or the one of them that exists, where `both` lie in the line. */
static void join_leaves(lower *L, tn_lbuilder *b, const tn_top *op, const held_lines *h, tn_lvalue *exists, tn_lvalue *left, tn_lvalue *right)
{
    tn_lvalue *x[TN_TILE_COMBINED], *y[TN_TILE_COMBINED], *out[TN_TILE_COMBINED], *first = NULL, *second = NULL;
    get_all(b, op, h->value, left, x);
    get_all(b, op, h->value, right, y);
    lower_combine(L, b, op->region[0], h->n, x, y, out);
    if (exists) {
        first = tn_l_load(b, exists, left, 1, NULL, NULL);
        second = tn_l_load(b, exists, right, 1, NULL, NULL);
        tn_l_store(b, exists, left, tn_l_fn2(b, TN_S_or, first, second), NULL);
    }
    for (int k = 0; first && k < h->n; k++)
        out[k] = tn_l_fn3(b, TN_S_select, first, tn_l_fn3(b, TN_S_select, second, out[k], x[k]), y[k]);
    for (int k = 0; k < h->n; k++)
        gpu_put(b, h->value[k], left, out[k], NULL);
}

/* A tuple exists if all of it does: one flag for it, in the first buffer of flags. */
static tn_lvalue *join_flags(lower *L, tn_lbuilder *b, const held_lines *h)
{
    tn_lvalue *flags[TN_TILE_COMBINED], *all = NULL;
    int n = 0;
    for (int k = 0; k < h->n; k++)
        if (h->exists[k])
            flags[n++] = h->exists[k];
    if (n < 2)
        return n ? flags[0] : NULL;
    touch_lines(L, b, h, true);
    tn_lbuilder in = *b;
    tn_lvalue *t = share_out(L, &in, h->length * h->count);
    for (int k = 0; k < n; k++)
        all = lower_and(&in, all, tn_l_load(&in, flags[k], t, 1, NULL, NULL));
    tn_l_store(&in, flags[0], t, all, NULL);
    return flags[0];
}

void gpu_reduce_tree(lower *L, tn_lbuilder *b, const tn_top *op)
{
    held_lines h = lines_of(op);
    tn_lvalue *x[TN_TILE_COMBINED], *start[TN_TILE_COMBINED], *sum[TN_TILE_COMBINED];
    place *out[TN_TILE_COMBINED];
    tn_layout layout;
    int levels = 0;
    nest n;
    if (!gpu_sink_layout(L, op->result, &layout) || !hold_lines(L, b, op, &h))
        return;
    tn_lvalue *exists = join_flags(L, b, &h);
    while (INT64_C(1) << levels < h.length)
        levels++;
    touch_lines(L, b, &h, true);
    if (levels) {
        int64_t pairs = (h.length + 1) / 2;
        tn_lop *loop = tn_l_for(b, "level", tn_l_index(b, 0), tn_l_index(b, levels), tn_l_index(b, 1), TN_FOR_SERIAL);
        tn_lbuilder in = tn_l_in(b, loop->region[0]), each = in;
        scope s = lower_open(L);
        tn_lvalue *level = loop->region[0]->arg, *t = share_out(L, &each, pairs * h.count), *count = tn_l_index(&each, pairs);
        tn_lvalue *far = tn_l_fn2(&each, TN_S_shl, tn_l_index(&each, 1), level), *line = tn_l_fn2(&each, TN_S_mul, tn_l_fn2(&each, TN_S_div, t, count), tn_l_index(&each, h.length));
        tn_lvalue *left = tn_l_fn2(&each, TN_S_mul, tn_l_fn2(&each, TN_S_rem, t, count), tn_l_fn2(&each, TN_S_mul, far, tn_l_index(&each, 2)));
        tn_lvalue *right = tn_l_fn2(&each, TN_S_add, left, far);
        tn_lbuilder then = tn_l_in(&each, tn_l_if(&each, tn_l_fn2(&each, TN_S_lt, right, tn_l_index(&each, h.length)))->region[0]);
        join_leaves(L, &then, op, &h, exists, tn_l_fn2(&then, TN_S_add, line, left), tn_l_fn2(&then, TN_S_add, line, right));
        tn_l_barrier(&in);
        lower_close(L, s);
    }
    for (int k = 0; k < h.n; k++)
        out[k] = gpu_new_place(L, b, &op->result[k].type, &layout, "fold");
    touch_lines(L, b, &h, false);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    tn_lvalue *at = tn_l_index(&in, 0);
    int64_t stride = h.length;
    for (int a = op->result->type.rank - 1; a >= 0; a--) {
        at = plus_times(&in, at, n.idx[a], stride);
        stride *= op->result->type.extent[a].size;
    }
    get_all(&in, op, h.value, at, x);
    for (int k = 0; k < h.n; k++)
        start[k] = tn_l_const(&in, tn_lscalar(op->operand[k]->type.dtype), op->identity[k]);
    lower_combine(L, &in, op->region[0], h.n, start, x, sum);
    tn_lvalue *there = exists ? tn_l_load(&in, exists, at, 1, NULL, NULL) : NULL;
    for (int k = 0; k < h.n; k++)
        tn_l_store(&in, gpu_registers(out[k]), n.reg, there ? tn_l_fn3(&in, TN_S_select, there, sum[k], start[k]) : sum[k], NULL);
    gpu_close(L, &n);
    for (int k = 0; k < h.n; k++)
        lower_set_place(L, &op->result[k], out[k]);
}

/* ---- histogram ------------------------------------------------------------------------------------------------------------------------ */

void gpu_histogram(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_tvalue *x = op->operand[0];
    tn_dtype from = x->type.dtype, type = op->result->type.dtype, wide = tn_dtype_bits(from) < 32 || from == TN_I32 ? TN_I32 : TN_I64;
    int64_t bins = op->result->type.extent[0].size;
    tn_layout layout, result;
    nest n;
    if (!gpu_sink_layout(L, x, &layout) || !gpu_sink_layout(L, op->result, &result))
        return;
    tn_lvalue *table = gpu_shared(L, "table", TN_I32, bins);
    gpu_touch_shared(L, b, table, true);
    tn_lbuilder in = *b;
    tn_lvalue *i = share_out(L, &in, bins);
    tn_l_store(&in, table, i, tn_l_const(&in, tn_lscalar(TN_I32), tn_number_from_int(TN_I32, 0)), NULL);

    gpu_prepare_own(L, b, x, &layout);
    gpu_touch_shared(L, b, table, true);
    in = *b;
    gpu_open(L, &in, &layout, &n);
    element e = lower_element(L, &in, x, n.idx);
    tn_lvalue *v = tn_l_cast(&in, e.value, wide), *past = tn_l_const(&in, tn_lscalar(wide), tn_number_from_int(wide, bins));
    tn_lvalue *inside = tn_l_fn2(&in, TN_S_ge, v, tn_l_const(&in, tn_lscalar(wide), tn_number_from_int(wide, 0)));
    inside = lower_and(&in, tn_l_fn2(&in, TN_S_and, inside, tn_l_fn2(&in, TN_S_lt, v, past)), lower_and(&in, e.present, gpu_owns(L, &layout)));
    tn_l_atomic(&in, TN_S_add, table, tn_l_cast(&in, v, TN_I64), tn_l_const(&in, tn_lscalar(TN_I32), tn_number_from_int(TN_I32, 1)), inside);
    gpu_close(L, &n);

    place *out = gpu_new_place(L, b, &op->result->type, &result, "histogram");
    gpu_touch_shared(L, b, table, false);
    in = *b;
    gpu_open(L, &in, &result, &n);
    tn_l_store(&in, gpu_registers(out), n.reg, tn_l_cast(&in, tn_l_load(&in, table, n.idx[0], 1, NULL, NULL), type), NULL);
    gpu_close(L, &n);
    lower_set_place(L, op->result, out);
}
