/* Nests over the registers of a layout; tiles in registers and in the CTA's shared memory; barriers.
 *
 * A nest runs, in every thread, over the registers that a layout gives it: one loop for each run of register bits along an axis, all of them unrolled later,
 * the innermost a `vector` loop where its elements are neighbours. A tile in registers can be read where the nest's layout, restricted to the tile's axes, has
 * the same threads hold the same elements; else by way of shared memory, from where any thread reads any element.
 *
 * Barriers are not placed by hand: whoever touches memory that other threads touch too says so before (gpu_touch_…, gpu_prepare_…), and a barrier comes where
 * that meets what was touched since the last one, one of them a write. */
#include "target/gpu/lower.h"

#include <assert.h>
#include <string.h>

/* ---- where threads are ------------------------------------------------------------------------------------------------- */

tn_lvalue *gpu_thread_bits(lower *L, tn_lbuilder *b, int from, int n)
{
    bool cta = gpu_is_cta_bit(L, from);
    tn_lvalue *t = cta ? GPU(L)->cta : GPU(L)->thread;
    int inside = TN_LAYOUT_LANE_BITS + __builtin_ctz((unsigned)GPU(L)->warps), all = cta ? __builtin_ctz((unsigned)GPU(L)->ctas) : inside;
    assert(cta || from + n <= inside);
    from -= cta ? inside : 0;
    if (from)
        t = tn_l_fn2(b, TN_S_shr_logical, t, tn_l_index(b, from));
    if (from + n < all)
        t = tn_l_fn2(b, TN_S_and, t, tn_l_index(b, (INT64_C(1) << n) - 1));
    return t;
}

tn_lvalue *gpu_thread_index(lower *L, const tn_layout *layout, int axis)
{
    uint32_t part[TN_LAYOUT_BITS] = {0};
    int n = TN_LAYOUT_LANE_BITS + layout->warp_bits;
    for (int i = 0; i < n; i++)
        part[i] = tn_layout_column(layout, TN_LAYOUT_LANE + i, axis);
    void **known = tn_map_at(&GPU(L)->parts, tn_hash(part, sizeof part, 1));
    if (*known)
        return *known;
    tn_lvalue *sum = tn_l_index(&L->entry, 0);
    for (int i = 0; i < n;) {
        int run = 1;
        if (!part[i]) {
            i++;
            continue;
        }
        assert(!(part[i] & (part[i] - 1))); /* no swizzle in registers */
        while (i + run < n && part[i + run] == part[i] << run && gpu_is_cta_bit(L, i + run) == gpu_is_cta_bit(L, i))
            run++;
        sum = tn_l_fn2(&L->entry, TN_S_add, sum, tn_l_fn2(&L->entry, TN_S_shl, gpu_thread_bits(L, &L->entry, i, run), tn_l_index(&L->entry, __builtin_ctz(part[i]))));
        i += run;
    }
    return *known = sum;
}

tn_layout gpu_scalar_layout(const lower *L) { return (tn_layout){.warp_bits = (uint8_t)__builtin_ctz((unsigned)gpu_all_warps(L))}; }

tn_lvalue *gpu_owns(lower *L, const tn_layout *layout)
{
    tn_place free = tn_layout_replicas(layout);
    tn_lbuilder *b = &L->entry;
    int64_t mask = free.lane | (int64_t)free.warp << TN_LAYOUT_LANE_BITS, threads = TN_WARP * GPU(L)->warps;
    tn_lvalue *parts[2] = {GPU(L)->thread, GPU(L)->cta}, *owns = NULL;
    for (int i = 0; i < 2; i++, mask /= threads)
        if (mask % threads)
            owns = lower_and(b, owns, tn_l_fn2(b, TN_S_eq, tn_l_fn2(b, TN_S_and, parts[i], tn_l_index(b, mask % threads)), tn_l_index(b, 0)));
    return owns;
}

/* ---- nests -------------------------------------------------------------------------------------------------------------- */

enum { MOST_VECTOR = 16 };

static int repeat_registers(const tn_layout *l, int axis)
{
    int registers = 1 << l->reg_bits;
    for (int a = axis + 1; a < l->rank; a++)
        registers *= l->repeats[a];
    return registers;
}

void gpu_find_walks(const tn_layout *l, nest *n)
{
    n->nwalks = 0;
    for (int i = 0; i < l->reg_bits; i++)
        for (int a = 0; a < l->rank; a++) {
            uint32_t part = tn_layout_column(l, i, a);
            walk *last = n->nwalks ? &n->walk[n->nwalks - 1] : NULL;
            if (!part)
                continue;
            assert(!(part & (part - 1)));
            if (last && last->axis == a && last->stride * last->count == part && last->registers * last->count == 1 << i && last->count < MOST_VECTOR)
                last->count *= 2;
            else
                n->walk[n->nwalks++] = (walk){.axis = a, .stride = part, .registers = INT64_C(1) << i, .count = 2};
        }
    for (int a = l->rank - 1; a >= 0; a--)
        if (l->repeats[a] > 1)
            n->walk[n->nwalks++] = (walk){.axis = a, .stride = INT64_C(1) << l->bits[a], .registers = repeat_registers(l, a), .count = l->repeats[a]};
}

/* Each turn of the loop around a store stores to elements of its own. */
static bool walks_with_loop(const lower *L, const tn_top *op)
{
    for (int d = 0; op->view && d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        int64_t step;
        if (s->block && lower_range_of(L, s->value, &step) && step >= lower_accessed_tile(op)->type.extent[s->axis[0]].size && !tn_dim_is(op->view->stride[d], 0))
            return true;
    }
    return false;
}

/* What one thread touches in one of them no other thread touches in the other. */
static bool is_own(const tn_layout *a, const tn_layout *b)
{
    if (!a || !b || !tn_layout_same_threads(a, b))
        return false;
    tn_place copies = tn_layout_replicas(a);
    return !copies.lane && !copies.warp;
}

static bool is_constant(const lower *L, int buffer) { return buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_READ && !L->func->overlap; }

static bool conflict(const lower *L, const touch *a, const touch *b, bool same_turn)
{
    if ((!a->write && !b->write) || (a->adds && b->adds))
        return false;
    if ((a->buffer == GPU_SHARED) != (b->buffer == GPU_SHARED))
        return false;
    if (a->buffer == GPU_ALL || b->buffer == GPU_ALL)
        return !is_constant(L, a->buffer) && !is_constant(L, b->buffer);
    if (a->buffer == GPU_SHARED)
        return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
    if (!lower_may_alias(L, a->buffer, b->buffer))
        return false;
    if (!same_turn && a->op == b->op && walks_with_loop(L, a->op))
        return false;
    bool order = is_own(a->layout, b->layout) && a->op && b->op && (b->write ? lower_same_element(L, a->op, b->op) : lower_same_element(L, b->op, a->op));
    return !(same_turn && order);
}

void gpu_barrier(lower *L, tn_lbuilder *b)
{
    gpu_await_stored(L, b); /* else others would store where it still reads */
    tn_l_barrier(b);
    GPU(L)->touched.len = 0;
}

static void touch_now(lower *L, tn_lbuilder *b, const touch *t, size_t n)
{
    gpu_lower *g = GPU(L);
    bool meets = false, outside = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < g->touched.len; k++)
            if (conflict(L, &g->touched.at[k], &t[i], true)) {
                meets = true;
                outside |= t[i].buffer != GPU_SHARED;
            }
    if (outside && g->ctas > 1)
        gpu_give_up_cluster(L, "its CTAs would have to meet");
    if (meets)
        gpu_barrier(L, b);
    for (size_t i = 0; i < n; i++) {
        TN_PUSH(&L->arena, &g->touched, t[i]);
        TN_PUSH(&L->arena, &g->log, t[i]);
    }
}

/* Before a nest that is prepared and not yet open: in it. A barrier may come as it opens, behind which this still counts. */
static void touch_soon(lower *L, tn_lbuilder *b, const touch *t)
{
    if (GPU(L)->next.len && !GPU(L)->nest)
        TN_PUSH(&L->arena, &GPU(L)->next, *t);
    else
        touch_now(L, b, t, 1);
}

static touch shared_touch(const tn_lvalue *buffer, bool write)
{
    return (touch){.buffer = GPU_SHARED, .at = buffer->def->at, .bytes = buffer->def->size * ((tn_dtype_bits(buffer->type.dtype) + 7) / 8), .write = write};
}

void gpu_touch_shared(lower *L, tn_lbuilder *b, const tn_lvalue *buffer, bool write)
{
    touch t = shared_touch(buffer, write);
    touch_soon(L, b, &t);
}

static void touch_global(lower *L, tn_lbuilder *b, const touch *by)
{
    touch t = *by;
    t.layout = t.layout ? tn_memdup(&L->arena, t.layout, sizeof *t.layout) : NULL;
    touch_soon(L, b, &t);
}

void gpu_touch_global(lower *L, tn_lbuilder *b, int buffer, const tn_top *op, const tn_layout *layout, bool write)
{
    touch_global(L, b, &(touch){.buffer = buffer, .write = write, .op = op, .layout = layout});
}

void gpu_touch_sums(lower *L, tn_lbuilder *b, int buffer, const tn_top *op, const tn_layout *layout)
{
    touch_global(L, b, &(touch){.buffer = buffer, .write = true, .adds = true, .op = op, .layout = layout});
}

void gpu_order(lower *L, tn_lbuilder *b, bool before, bool after)
{
    gpu_lower *g = GPU(L);
    touch all = {.buffer = GPU_ALL, .write = true};
    bool meets = false;
    for (size_t i = 0; before && i < g->touched.len; i++)
        meets |= conflict(L, &g->touched.at[i], &all, true);
    if (meets)
        gpu_barrier(L, b);
    if (after)
        TN_PUSH(&L->arena, &g->touched, all);
    TN_PUSH(&L->arena, &g->log, all);
}

static bool meets_store(lower *L, const touches *t, const tn_top *op, const tn_layout *layout)
{
    touch store = {.buffer = lower_accessed(L, op), .write = true, .op = op, .layout = layout};
    bool meets = false;
    for (size_t i = 0; i < t->len; i++)
        meets |= conflict(L, &t->at[i], &store, true);
    return meets;
}

bool gpu_next_meets(lower *L, const tn_top *op, const tn_layout *layout) { return meets_store(L, &GPU(L)->next, op, layout); }
bool gpu_store_waits(lower *L, const tn_top *op, const tn_layout *layout) { return meets_store(L, &GPU(L)->touched, op, layout); }

region gpu_enter(lower *L)
{
    const gpu_lower *g = GPU(L);
    touch *before = TN_NEW_ARRAY(&L->arena, touch, g->touched.len + 1);
    for (size_t i = 0; i < g->touched.len; i++)
        before[i] = g->touched.at[i];
    return (region){.log = g->log.len, .shares = g->shares.len, .made = g->made.len, .before = before, .nbefore = g->touched.len};
}

void gpu_leave(lower *L, tn_lbuilder *b, region r)
{
    gpu_lower *g = GPU(L);
    bool meets = false;
    for (size_t i = r.log; b && i < g->log.len; i++)
        for (size_t k = 0; k < g->touched.len; k++)
            meets |= (!r.programs || g->log.at[i].buffer == GPU_SHARED) && conflict(L, &g->touched.at[k], &g->log.at[i], false);
    if (meets)
        gpu_barrier(L, b);
    for (size_t i = 0; b && !r.runs && i < r.nbefore; i++) /* a loop without a turn has no barriers */
        TN_PUSH(&L->arena, &g->touched, r.before[i]);
    while (g->shares.len > r.shares)
        g->shares.at[--g->shares.len]->buffer = NULL;
    while (g->made.len > r.made)
        lower_set_place(L, g->made.at[--g->made.len], NULL);
}

void gpu_meet(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    assert(!g->nest);
    touch_now(L, b, g->next.at, g->next.len);
    g->next.len = 0;
    g->prepared = (tn_map){.arena = &L->arena};
}

void gpu_open(lower *L, tn_lbuilder *b, const tn_layout *layout, nest *out) { gpu_open_part(L, b, layout, 0, 1, out); }

void gpu_open_part(lower *L, tn_lbuilder *b, const tn_layout *layout, int part, int parts, nest *out)
{
    static const char *const names[TN_TILE_RANK] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    gpu_lower *g = GPU(L);
    gpu_meet(L, b);
    *out = (nest){.layout = *layout, .scope = lower_open(L)};
    gpu_find_walks(layout, out);
    for (int a = 0; a < layout->rank; a++)
        out->idx[a] = gpu_thread_index(L, layout, a);
    out->reg = tn_l_index(b, 0);
    for (int i = out->nwalks - 1; i >= 0; i--) {
        walk *w = &out->walk[i];
        bool outer = parts > 1 && i == out->nwalks - 1, vector = !outer && i == 0 && w->stride == 1 && w->registers == 1;
        int64_t from = outer ? part * w->count / parts : 0, to = outer ? (part + 1) * w->count / parts : w->count;
        tn_lop *loop = tn_l_for(b, names[w->axis], tn_l_index(b, from), tn_l_index(b, to), tn_l_index(b, 1), vector ? TN_FOR_VECTOR : TN_FOR_UNROLL);
        *b = tn_l_in(b, loop->region[0]);
        w->index = loop->region[0]->arg;
        out->idx[w->axis] = tn_l_fn2(b, TN_S_add, out->idx[w->axis], tn_l_fn2(b, TN_S_mul, w->index, tn_l_index(b, w->stride)));
        out->reg = tn_l_fn2(b, TN_S_add, out->reg, tn_l_fn2(b, TN_S_mul, w->index, tn_l_index(b, w->registers)));
    }
    g->nest = out;
}

void gpu_close(lower *L, nest *n)
{
    assert(GPU(L)->nest == n);
    GPU(L)->nest = NULL;
    lower_close(L, n->scope);
    gpu_lower *g = GPU(L);
    size_t left = 0;
    for (size_t i = 0; i < g->once.len; i++) {
        place *p = g->once.at[i];
        if (!p->held->used)
            g->once.at[left++] = p;
        else if (p->held->waiting || p->held->own)
            p->held->parted = true;
        else
            p->held = NULL;
    }
    g->once.len = left;
}

/* ---- registers ------------------------------------------------------------------------------------------------------------ */

static int axis_of(const axes *of, int rank, int nest_axis)
{
    for (int k = 0; k < rank; k++)
        if (of->axis[k] == nest_axis)
            return k;
    return -1;
}

static int register_bit(const tn_layout *l, int axis, uint32_t part)
{
    for (int i = 0; i < l->reg_bits; i++)
        if (tn_layout_column(l, i, axis) == part)
            return i;
    return -1;
}

/* May a nest of `layout` read registers of `to` in its own thread? */
static bool is_readable(const tn_layout *layout, const axes *of, const tn_layout *to)
{
    for (int k = 0; k < to->rank; k++) {
        int a = of->axis[k];
        if (to->bits[k] == 0 && to->repeats[k] == 1)
            continue;
        if (a < 0 || layout->bits[a] != to->bits[k] || layout->repeats[a] != to->repeats[k])
            return false;
    }
    for (int i = TN_LAYOUT_LANE; i < TN_LAYOUT_BITS; i++)
        for (int k = 0; k < to->rank; k++)
            if (to->bits[k] && tn_layout_column(layout, i, of->axis[k]) != tn_layout_column(to, i, k))
                return false;
    for (int i = 0; i < layout->reg_bits; i++)
        for (int k = 0; k < to->rank; k++) {
            uint32_t part = to->bits[k] ? tn_layout_column(layout, i, of->axis[k]) : 0;
            if (part && register_bit(to, k, part) < 0)
                return false;
        }
    return true;
}

tn_lvalue *gpu_register(tn_lbuilder *b, const nest *n, const axes *of, const tn_layout *to) { return gpu_spread_register(b, n, of, to, 0, 1); }

tn_lvalue *gpu_spread_register(tn_lbuilder *b, const nest *n, const axes *of, const tn_layout *to, int from, int64_t by)
{
    tn_lvalue *reg = tn_l_index(b, 0);
    for (int i = n->nwalks - 1; i >= 0; i--) {
        const walk *w = &n->walk[i];
        int k = axis_of(of, to->rank, w->axis);
        if (k < 0)
            continue;
        if (w->stride >> n->layout.bits[w->axis]) { /* repeats */
            reg = tn_l_fn2(b, TN_S_add, reg, tn_l_fn2(b, TN_S_mul, w->index, tn_l_index(b, repeat_registers(to, k) * by)));
            continue;
        }
        int m = __builtin_ctzll((uint64_t)w->count);
        for (int j = 0, run; j < m; j += run) { /* runs of bits that are neighbours there too */
            int at = register_bit(to, k, (uint32_t)(w->stride << j));
            for (run = 1; j + run < m && at + run != from && register_bit(to, k, (uint32_t)(w->stride << (j + run))) == at + run; run++)
                ;
            tn_lvalue *bits = w->index;
            if (j)
                bits = tn_l_fn2(b, TN_S_shr_logical, bits, tn_l_index(b, j));
            if (j + run < m)
                bits = tn_l_fn2(b, TN_S_and, bits, tn_l_index(b, (INT64_C(1) << run) - 1));
            reg = tn_l_fn2(b, TN_S_add, reg, tn_l_fn2(b, TN_S_mul, bits, tn_l_index(b, (INT64_C(1) << at) * (at >= from ? by : 1))));
        }
    }
    return reg;
}

static void remark(lower *L, const tn_ttype *type, const tn_layout *layout, const char *name)
{
    gpu_lower *g = GPU(L);
    void **seen = tn_map_at(&g->remarked, tn_hash(layout, sizeof *layout, tn_hash(name, strlen(name), 1)));
    if (*seen)
        return;
    *seen = (void *)name;
    tn_text_add(&g->remarks, "\n%%%s: ", name);
    for (int a = 0; a < type->rank; a++)
        tn_text_add(&g->remarks, "%lld x ", (long long)type->extent[a].size);
    tn_text_add(&g->remarks, "%s in ", tn_dtype_text(gpu_held_dtype(type)));
    tn_text_layout(&g->remarks, layout);
}

place *gpu_new_place(lower *L, tn_lbuilder *b, const tn_ttype *type, const tn_layout *layout, const char *name)
{
    place *p = TN_NEW(&L->arena, place);
    p->root = LOWER_MEMORY;
    if (type->rank == 0) {
        p->buffer = tn_l_alloc(b, name, gpu_held_dtype(type), TN_SPACE_REG, 1);
        return p;
    }
    remark(L, type, layout, name);
    p->held = TN_NEW(&L->arena, gpu_held);
    *p->held = (gpu_held){.layout = *layout, .regs = tn_l_alloc(b, name, gpu_held_dtype(type), TN_SPACE_REG, tn_layout_regs(layout))};
    return p;
}

/* The nest's axes that v's are, by the indices that v is read at. */
static bool axes_from_indices(const nest *n, const tn_ttype *type, tn_lvalue *const *idx, axes *out)
{
    for (int k = 0; k < type->rank; k++) {
        out->axis[k] = -1;
        for (int a = 0; a < n->layout.rank && type->extent[k].size > 1; a++)
            if (n->idx[a] == idx[k] && (n->layout.repeats[a] > 1 || n->layout.bits[a]))
                out->axis[k] = a;
        if (type->extent[k].size > 1 && out->axis[k] < 0)
            return false;
    }
    return true;
}

tn_ttype gpu_flags(const tn_ttype *type)
{
    tn_ttype flags = *type;
    flags.dtype = TN_BOOL;
    flags.pointer = false;
    return flags;
}

tn_lvalue *gpu_registers(const place *p) { return p->held ? p->held->regs : p->buffer; }

/* The register that holds the element of the open nest is one of the first n; the same for all elements of a vector. */
static tn_lvalue *is_below(tn_lbuilder *b, const nest *n, int64_t registers)
{
    tn_lvalue *first = tn_l_index(b, 0);
    for (int i = n->nwalks - 1; i >= 0; i--)
        if (n->walk[i].registers > 1 || n->walk[i].stride > 1)
            first = gpu_plus(b, first, gpu_times(b, n->walk[i].index, n->walk[i].registers));
    return tn_l_fn2(b, TN_S_lt, first, tn_l_index(b, registers));
}

static tn_lvalue *read_place(lower *L, tn_lbuilder *b, const place *p, const tn_ttype *type, tn_lvalue *const *idx)
{
    const nest *n = GPU(L)->nest;
    axes of;
    if (p->held && tn_layout_elements(&p->held->layout) == 1) /* in every thread, outside of nests too */
        return tn_l_load(b, p->held->regs, tn_l_index(b, 0), 1, NULL, NULL);
    if (p->held && n && axes_from_indices(n, type, idx, &of) && is_readable(&n->layout, &of, &p->held->layout)) {
        if (p->held->own && p->held->parted)
            return gpu_read_left(L, b, n, &of, type, p);
        p->held->used = true;
        tn_lvalue *mine = tn_l_load(b, p->held->regs, gpu_register(b, n, &of, &p->held->layout), 1, NULL, NULL);
        if (!p->held->parted)
            return mine;
        tn_lvalue *waiting = gpu_get(b, p->buffer, lower_place_offset(b, p, type->rank, idx), gpu_held_dtype(type)); /* one of the two is dropped */
        return tn_l_fn3(b, TN_S_select, is_below(b, n, p->held->waiting), waiting, mine);
    }
    assert(p->buffer || L->status != TN_OK); /* gpu_prepare_own, or whoever opened the nest, has seen to it */
    if (!p->buffer)
        return tn_l_const(b, tn_lscalar(gpu_held_dtype(type)), (tn_number){0});
    return gpu_get(b, p->buffer, lower_place_offset(b, p, type->rank, idx), gpu_held_dtype(type));
}

element gpu_place_element(lower *L, tn_lbuilder *b, const place *p, const tn_tvalue *v, tn_lvalue *const *idx)
{
    tn_ttype flags = gpu_flags(&v->type);
    tn_lvalue *present = p->present ? read_place(L, b, p->present, &flags, idx) : p->kept ? lower_present(L, b, v, idx) : NULL;
    tn_lvalue *value = read_place(L, b, p, &v->type, idx);
    if (v->type.pointer)
        value = lower_rebase(L, b, value, p->root, lower_root(L, v), v->type.dtype);
    return (element){value, present};
}

void gpu_materialise_into(lower *L, tn_lbuilder *b, const tn_tvalue *v, place *p)
{
    tn_lbuilder in = *b;
    nest n;
    if (v->type.rank == 0) {
        tn_lvalue *x = lower_scalar(L, b, v);
        if (v->type.pointer)
            x = lower_rebase(L, b, x, lower_root(L, v), p->root, v->type.dtype);
        tn_l_store(b, p->buffer, tn_l_index(b, 0), x, NULL);
        return;
    }
    gpu_prepare_own(L, &in, v, &p->held->layout);
    gpu_open(L, &in, &p->held->layout, &n);
    element e = lower_element(L, &in, v, n.idx);
    if (v->type.pointer)
        e.value = lower_rebase(L, &in, e.value, lower_root(L, v), p->root, v->type.dtype);
    tn_l_store(&in, p->held->regs, n.reg, p->kept ? e.value : lower_frozen(&in, e), NULL);
    if (p->present && e.present)
        tn_l_store(&in, p->present->held->regs, n.reg, e.present, NULL);
    else
        p->present = NULL;
    gpu_close(L, &n);
}

/* Computed from scalars and ranges alone. */
static bool is_plain(const lower *L, const tn_tvalue *v, int *budget)
{
    const tn_top *op = v->def;
    if (v->type.rank == 0)
        return true;
    if (!op || --*budget < 0 || tn_map_get(&L->places, TN_KEY(v)) || !lower_is_expression(op) || lower_is_load(op) || op->code == TN_T_gather || op->code == TN_T_asm)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!is_plain(L, op->operand[i], budget))
            return false;
    return true;
}

/* Whether an element exists can be told again wherever it is wanted, from scalars and ranges alone. */
static bool is_plainly_present(const lower *L, const tn_tvalue *v, int *budget)
{
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    const tn_top *op = v->def;
    bool plain = true;
    if (v->type.rank == 0 || (p && !p->kept))
        return v->type.rank == 0 || !p->present;
    if (!op || --*budget < 0 || op->nregions || op->code == TN_T_cat || op->code == TN_T_join)
        return false;
    if (op->code == TN_T_load_ptr && lower_mask_operand(op) >= 0)
        plain = is_plain(L, op->operand[1], budget);
    if (op->code == TN_T_map && op->fn == TN_S_select)
        plain = is_plain(L, op->operand[0], budget);
    for (int d = 0; op->view && d < op->view->rank; d++)
        plain &= op->subscript[d].block || is_plain(L, op->subscript[d].value, budget);
    for (int i = op->code == TN_T_gather; i < op->noperands; i++)
        plain = plain && is_plainly_present(L, op->operand[i], budget);
    return plain;
}

place *gpu_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_layout *layout)
{
    place *p = gpu_new_place(L, b, &v->type, layout, v->name ? v->name : "tile");
    p->root = lower_root(L, v);
    int budget = LOWER_BUDGET;
    p->kept = v->type.rank > 0 && is_plainly_present(L, v, &budget);
    if (v->type.rank && !p->kept) {
        tn_ttype flags = gpu_flags(&v->type);
        p->present = gpu_new_place(L, b, &flags, layout, "there");
    }
    gpu_materialise_into(L, b, v, p);
    lower_set_place(L, v, p);
    TN_PUSH(&L->arena, &GPU(L)->made, v);
    return p;
}

/* ---- shared memory -------------------------------------------------------------------------------------------------------- */

tn_lvalue *gpu_shared(lower *L, const char *name, tn_dtype dtype, int64_t elements)
{
    enum { ALIGN = 16 }; /* of the widest access */
    gpu_lower *g = GPU(L);
    int64_t at = (g->shared + ALIGN - 1) / ALIGN * ALIGN;
    dtype = dtype == TN_I4 ? TN_I8 : dtype == TN_U4 ? TN_U8 : dtype; /* threads write whole bytes */
    g->shared = at + elements * ((tn_dtype_bits(dtype) + 7) / 8);
    g->most_at_once = tn_max(g->most_at_once, g->shared);
    return tn_l_alloc_shared(&L->entry, name, dtype, elements, at);
}

void gpu_give_back(lower *L, int64_t from)
{
    gpu_lower *g = GPU(L);
    touch all = {.buffer = GPU_SHARED, .at = from, .bytes = g->shared - from, .write = true};
    if (all.bytes <= 0)
        return;
    TN_PUSH(&L->arena, &g->touched, all);
    TN_PUSH(&L->arena, &g->log, all);
    g->shared = from;
}

tn_lvalue *gpu_get(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *at, tn_dtype dtype) { return tn_l_cast(b, tn_l_load(b, buffer, at, 1, NULL, NULL), dtype); }

void gpu_put(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *at, tn_lvalue *x, tn_lvalue *mask)
{
    tn_l_store(b, buffer, at, tn_l_cast(b, x, buffer->type.dtype), mask);
}

/* Cycles that a warp's accesses of a tile with these strides take, for all its registers: what lanes ask of one bank goes one after another. */
static int64_t access_cycles(const tn_layout *l, const int64_t *stride, int64_t bytes)
{
    enum { BANKS = 32, WORD = 4, LANES = 32, WIDEST = 16 };
    int last = l->rank - 1;
    int64_t vector = tn_layout_vector(l, last), cycles = 0, pitch = last ? stride[last - 1] : WIDEST;
    while (vector > 1 && (vector * bytes > WIDEST || pitch % vector))
        vector /= 2;
    int phases = (int)tn_max(1, vector * bytes / WORD), lanes = LANES / phases;
    for (int phase = 0; phase < phases; phase++) {
        int64_t word[LANES * (WIDEST / WORD)], asked[BANKS] = {0}, most = 1;
        int n = 0;
        for (int lane = phase * lanes; lane < (phase + 1) * lanes; lane++) {
            int64_t index[TN_TILE_RANK], at = 0;
            tn_layout_element(l, (tn_place){0, (uint32_t)lane, 0}, index);
            for (int a = 0; a < l->rank; a++)
                at += index[a] * stride[a];
            for (int64_t w = at * bytes / WORD; w * WORD < (at + vector) * bytes; w++) {
                bool known = false;
                for (int i = 0; i < n; i++)
                    known |= word[i] == w;
                if (!known)
                    word[n++] = w;
            }
        }
        for (int i = 0; i < n; i++)
            most = tn_max(most, ++asked[word[i] % BANKS]);
        cycles += most;
    }
    return cycles * tn_layout_regs(l) / vector;
}

static int64_t padded_strides(const tn_ttype *type, int64_t pad, int64_t *stride)
{
    int64_t size = 1;
    for (int i = type->rank; i-- > 0;) {
        stride[i] = size;
        size = size * type->extent[i].size + (i && i == type->rank - 1 ? pad : 0);
    }
    return size;
}

/* Row-major, with as many elements between rows as make both sides' accesses fastest. Returns the elements that it takes. */
static int64_t choose_strides(const tn_ttype *type, int64_t bytes, const tn_layout *writer, const tn_layout *reader, int64_t *stride)
{
    static const int64_t pads[] = {0, 16, 4, 8, 2}; /* bytes; the first of equals */
    int64_t best = 0, least = INT64_MAX;
    for (size_t i = 0; i < TN_COUNT(pads); i++) {
        if (pads[i] % bytes)
            continue;
        padded_strides(type, pads[i] / bytes, stride);
        int64_t cycles = access_cycles(writer, stride, bytes) + (reader ? access_cycles(reader, stride, bytes) : 0);
        if (cycles < least) {
            least = cycles;
            best = pads[i] / bytes;
        }
    }
    return padded_strides(type, best, stride);
}

/* Its registers, those below `registers` alone if that is not 0, to a buffer of so many elements, where they lie by p's strides. */
static void copy_to_shared(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, int64_t size, int64_t registers)
{
    tn_dtype dtype = gpu_held_dtype(type);
    tn_lvalue *buffer = gpu_shared(L, "shared", dtype, size);
    gpu_touch_shared(L, b, buffer, true);
    tn_lbuilder in = *b;
    nest n;
    const tn_layout *layout = &p->held->layout;
    gpu_open(L, &in, layout, &n);
    place to = *p;
    to.buffer = buffer;
    to.held = NULL;
    tn_lvalue *x = read_place(L, &in, p, type, n.idx);
    gpu_put(&in, buffer, lower_place_offset(&in, &to, type->rank, n.idx), x, lower_and(&in, gpu_owns(L, layout), registers ? is_below(&in, &n, registers) : NULL));
    gpu_close(L, &n);
    p->buffer = buffer;
    TN_PUSH(&L->arena, &GPU(L)->shares, p);
    GPU(L)->conversions++;
    GPU(L)->converted_bytes += 2 * (registers ? size : tn_layout_elements(layout)) * ((tn_dtype_bits(dtype) + 7) / 8);
}

void gpu_share(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, const tn_layout *reader)
{
    if (p->buffer && !(p->held && p->held->waiting))
        return;
    if (GPU(L)->ctas > 1) {
        gpu_give_up_cluster(L, "elements go from thread to thread");
        return;
    }
    int64_t bytes = (tn_dtype_bits(gpu_held_dtype(type)) + 7) / 8, size = choose_strides(type, bytes, &p->held->layout, reader, p->stride);
    copy_to_shared(L, b, type, p, size, 0);
    if (p->held->waiting)
        p->held = NULL;
}

void gpu_let_wait(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, int64_t registers)
{
    if (GPU(L)->ctas > 1) {
        gpu_leave_registers(L, b, type, p);
    } else if (!registers) {
        gpu_share(L, b, type, p, NULL);
    } else {
        padded_strides(type, 0, p->stride);
        copy_to_shared(L, b, type, p, registers * 32 * GPU(L)->warps, registers);
        p->held->waiting = registers;
    }
    /* One CTA a processor: the assembler, which does not know of this memory, may spend all registers on it (RMSNorm of 65536 columns: 0.79 to 0.95 of a copy). */
    if (2 * GPU(L)->shared > gpu_most_shared(L) && !L->func->resident)
        L->func->resident = 1;
    GPU(L)->waits = true;
    p->held->once = true;
    p->held->used = false;
    TN_PUSH(&L->arena, &GPU(L)->once, p);
}

void gpu_spread(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p)
{
    tn_layout layout = p->held ? p->held->layout : gpu_scalar_layout(L);
    tn_lvalue *owns = gpu_owns(L, &layout);
    tn_lbuilder in = *b;
    nest n;
    if (!owns)
        return;
    if (type->rank) {
        gpu_share(L, b, type, p, &layout);
        gpu_touch_shared(L, b, p->buffer, false);
        in = *b;
        gpu_open(L, &in, &layout, &n);
        tn_l_store(&in, p->held->regs, n.reg, gpu_get(&in, p->buffer, lower_place_offset(&in, p, type->rank, n.idx), gpu_held_dtype(type)), NULL);
        gpu_close(L, &n);
        return;
    }
    tn_lvalue *shared = gpu_shared(L, "shared", gpu_held_dtype(type), 1), *zero = tn_l_index(b, 0);
    gpu_touch_shared(L, b, shared, true);
    gpu_put(b, shared, zero, tn_l_load(b, p->buffer, zero, 1, NULL, NULL), owns);
    gpu_touch_shared(L, b, shared, false);
    tn_l_store(b, p->buffer, zero, gpu_get(b, shared, zero, gpu_held_dtype(type)), NULL);
}

/* ---- what a nest reads ------------------------------------------------------------------------------------------------------ */

enum { COMPUTED = -2 }; /* an axis whose index in the nest is computed: no register can be told from it */

static void prepare(lower *L, tn_lbuilder *b, const tn_tvalue *v, const axes *of, const tn_layout *layout);

static void will_read(lower *L, touch t) { TN_PUSH(&L->arena, &GPU(L)->next, t); }

static void prepare_place(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, const axes *of, const tn_layout *layout)
{
    bool known = true;
    if (p->present) {
        tn_ttype flags = gpu_flags(type);
        prepare_place(L, b, &flags, p->present, of, layout);
    }
    for (int k = 0; k < type->rank; k++)
        known &= of->axis[k] >= 0 || type->extent[k].size == 1;
    if (p->held && known && is_readable(layout, of, &p->held->layout))
        return;
    if (p->held && (!p->buffer || p->held->waiting)) { /* a nest of its own: what is prepared already waits */
        gpu_lower *g = GPU(L);
        touches waiting = g->next;
        g->next = (touches){.len = 0};
        tn_layout reader = known ? tn_layout_restrict(layout, type->rank, of->axis) : *layout;
        gpu_share(L, b, type, p, known ? &reader : NULL);
        g->next = waiting;
    }
    if (p->buffer && p->buffer->type.space == TN_SPACE_SHARED)
        will_read(L, shared_touch(p->buffer, false));
}

static void prepare_subscripts(lower *L, tn_lbuilder *b, const tn_top *op, const axes *of, const tn_layout *layout)
{
    for (int d = 0; op->view && d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        axes own = lower_own_axes();
        for (int i = 0; i < s->naxes; i++)
            own.axis[i] = of->axis[s->axis[i]];
        if (!s->block)
            prepare(L, b, s->value, &own, layout);
    }
}

static void prepare_load(lower *L, tn_lbuilder *b, const tn_tvalue *v, const axes *of, const tn_layout *layout)
{
    const tn_top *op = v->def;
    int map[TN_TILE_RANK];
    bool known = true;
    for (int k = 0; k < v->type.rank; k++) {
        map[k] = of->axis[k];
        known &= map[k] >= 0 || v->type.extent[k].size == 1;
    }
    tn_layout mine = known ? tn_layout_restrict(layout, v->type.rank, map) : *layout, better;
    if (known && gpu_is_scattered(L, op, &mine, &better) && !tn_layout_same(&mine, &better)) {
        gpu_lower *g = GPU(L);
        touches waiting = g->next;
        g->next = (touches){.len = 0};
        tn_map seen = g->prepared; /* of the nest that waits, not of the one that loads */
        g->prepared = (tn_map){.arena = &L->arena};
        place *p = gpu_materialise(L, b, v, &better);
        g->prepared = seen;
        g->next = waiting;
        prepare_place(L, b, &v->type, p, of, layout);
        return;
    }
    if (op->code == TN_T_load)
        prepare_subscripts(L, b, op, of, layout);
    else
        for (int i = 0; i < op->noperands; i++)
            prepare(L, b, op->operand[i], of, layout);
    tn_layout *kept = known ? TN_NEW(&L->arena, tn_layout) : NULL;
    if (kept)
        *kept = mine;
    int buffer = lower_accessed(L, op);
    will_read(L, (touch){.buffer = buffer, .op = op, .layout = kept});
}

axes gpu_operand_axes(const tn_top *op, int i, const axes *of)
{
    axes out = *of;
    int rank = op->operand[i]->type.rank;
    switch (op->code) {
    case TN_T_reshape:
    case TN_T_slice:
    case TN_T_cat:
    case TN_T_split:
    case TN_T_join:
        for (int k = 0; k < rank; k++)
            if (op->code == TN_T_reshape || ((op->code == TN_T_slice || op->code == TN_T_cat) && k == op->axis[0]) || (op->code == TN_T_split && k == rank - 1))
                out.axis[k] = COMPUTED;
        break;
    default:
        break;
    }
    return out;
}

static void prepare(lower *L, tn_lbuilder *b, const tn_tvalue *v, const axes *of, const tn_layout *layout)
{
    place *p = tn_map_get(&L->places, TN_KEY(v));
    element known;
    if (L->status != TN_OK || tn_map_get(&L->scalars, TN_KEY(v)) || (v->type.rank == 0 && lower_recall(L, v, NULL, &known)))
        return;
    void **seen = tn_map_at(&GPU(L)->prepared, tn_hash(of->axis, sizeof of->axis[0] * (size_t)v->type.rank, TN_KEY(v)));
    if (*seen)
        return;
    *seen = (void *)v;
    if (p) {
        prepare_place(L, b, &v->type, p, of, layout);
        return;
    }
    const tn_top *op = v->def;
    axes inner;
    if (!op || op->nregions || op->code == TN_T_dot)
        return;
    if (lower_is_load(op)) {
        prepare_load(L, b, v, of, layout);
        return;
    }
    const tn_tvalue *from = lower_moved_axes(op, of, &inner);
    if (from) {
        prepare(L, b, from, &inner, layout);
        return;
    }
    if (op->code == TN_T_gather) { /* the source lies in shared memory since the operation itself */
        const place *source = tn_map_get(&L->gathered, TN_KEY(op));
        if (source)
            will_read(L, shared_touch(source->buffer, false));
        prepare(L, b, op->operand[1], of, layout);
        return;
    }
    for (int i = 0; i < op->noperands; i++) {
        inner = gpu_operand_axes(op, i, of);
        prepare(L, b, op->operand[i], &inner, layout);
    }
}

void gpu_prepare_own(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_layout *layout)
{
    axes own = lower_own_axes();
    prepare(L, b, v, &own, layout);
}

void gpu_prepare_access(lower *L, tn_lbuilder *b, const tn_top *op, const tn_layout *layout)
{
    axes own = lower_own_axes();
    prepare_subscripts(L, b, op, &own, layout);
    for (int i = 0; i < op->noperands; i++)
        prepare(L, b, op->operand[i], &own, layout);
}
