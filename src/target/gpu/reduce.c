/* Reductions and folds: every thread combines its registers in order, then lanes of a warp exchange theirs, then warps by way of shared memory. Each step's
 * order is fixed by the layout, so the bits are the same each time; all threads that hold an element of the result end with the same bits.
 *
 * A fold that still has ranges keeps a partial result in every thread while it walks them, and combines threads once, at the end. */
#include "target/gpu/lower.h"

#include <assert.h>
#include <math.h>

enum { MOST_VALUES = 16 };

typedef struct folding {
    const tn_top *op;
    const tn_tblock *body; /* NULL: reduce */
    const tn_tblock *combine;
    tn_tvalue *const *value; /* n tiles of one shape */
    int n;
    int kept[TN_TILE_RANK], nkept; /* axes that stay */
    tn_layout layout, result;
    axes kept_axes;                /* of the result in the nest */
    tn_lvalue *acc[MOST_VALUES];   /* registers of `result` */
} folding;

static folding folding_of(const tn_top *op)
{
    bool fold = op->code == TN_T_fold, folded[TN_TILE_RANK] = {false};
    folding f = {.op = op, .body = fold ? op->region[0] : NULL, .combine = op->region[fold], .n = op->nresults};
    f.value = fold ? f.body->last->operand : op->operand;
    for (int i = 0; i < op->naxes; i++)
        folded[op->axis[i]] = true;
    f.kept_axes = lower_own_axes();
    for (int a = 0; a < f.value[0]->type.rank; a++)
        if (!folded[a]) {
            f.kept_axes.axis[f.nkept] = a;
            f.kept[f.nkept++] = a;
        }
    return f;
}

/* The accumulators at register `offset`, combined with x. */
static void combine_into(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *offset, const element *x)
{
    lower_accumulate(L, b, f->combine, f->n, f->acc, offset, x);
}

/* Leaves out what lies past the limit of a range that walks an axis. */
static tn_lvalue *below_limits(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *const *idx)
{
    tn_lvalue *present = NULL;
    for (int i = 0; f->body && i < f->n; i++)
        for (int a = 0; a < f->value[i]->type.rank; a++) {
            int range = tn_fold_range_of(f->op, f->value[i], a);
            if (range < 0)
                continue;
            const tn_tvalue *start = &f->body->arg[range];
            tn_dim limit = lower_value_dim(L, f->op->operand[range]);
            if (limit && lower_block_fits(L, start, limit, f->value[i]->type.extent[a].size))
                continue;
            tn_lvalue *at = tn_l_fn2(b, TN_S_add, lower_scalar(L, b, start), idx[a]);
            present = lower_and(b, present, tn_l_fn2(b, TN_S_lt, at, lower_scalar(L, b, f->op->operand[range])));
        }
    return present;
}

static bool same_rank(const folding *f)
{
    for (int i = 1; i < f->n; i++)
        if (f->value[i]->type.rank != f->value[0]->type.rank)
            return false;
    return true;
}

/* What fn combines with any x to x, bit for bit; false: nothing that is known. */
static bool neutral_of(tn_scalar fn, tn_dtype dtype, tn_number *out)
{
    bool is_float = tn_is_float(dtype);
    if (fn == TN_SCALAR_NONE || !tn_scalar_identity(fn, dtype, out))
        return false;
    if (is_float && fn == TN_S_add)
        out->f = -0.0;
    if (is_float && (fn == TN_S_maxnum || fn == TN_S_minnum))
        out->f = NAN;
    return true;
}

/* acc := combine(acc, element), over the nest. The elements of a vector are computed first, all of them, so that they are loaded together. */
static void accumulate(lower *L, tn_lbuilder *b, const folding *f)
{
    tn_lbuilder in = *b, each;
    nest n;
    for (int i = 0; i < f->n; i++)
        gpu_prepare_own(L, b, f->value[i], &f->layout);
    in = *b;
    gpu_open(L, &in, &f->layout, &n);
    element x[MOST_VALUES] = {{NULL, NULL}};
    tn_lvalue *part[MOST_VALUES], *there = NULL, *present = NULL;
    const walk *first = n.nwalks ? &n.walk[0] : NULL;
    bool vector = first && first->stride == 1 && first->registers == 1;
    for (int i = 0; i < f->n; i++) {
        x[i] = lower_element(L, &in, f->value[i], n.idx);
        present = lower_and(&in, present, x[i].present); /* a tuple exists if all of it does */
    }
    present = lower_and(&in, present, below_limits(L, &in, f, n.idx));
    tn_number neutral;
    if (present && f->n == 1 && neutral_of(tn_combine_fn(f->combine), x[0].value->type.dtype, &neutral)) {
        x[0].value = tn_l_fn3(&in, TN_S_select, present, x[0].value, tn_l_const(&in, tn_lscalar(x[0].value->type.dtype), neutral));
        present = NULL;
    }
    tn_lvalue *at = gpu_register(&in, &n, &f->kept_axes, &f->result);
    each = in;
    if (vector) { /* part 1 of the vector's loop ends here; its values go on to a second loop */
        const tn_lblock *body = in.block;
        tn_lbuilder before = {L->func, body->parent->block, body->parent, b->line};
        for (int i = 0; i < f->n; i++) {
            part[i] = tn_l_alloc(&before, "part", x[i].value->type.dtype, TN_SPACE_REG, first->count);
            tn_l_store(&in, part[i], first->index, x[i].value, NULL);
        }
        if (present) {
            there = tn_l_alloc(&before, "there", TN_BOOL, TN_SPACE_REG, first->count);
            tn_l_store(&in, there, first->index, present, NULL);
        }
        each = tn_l_in(b, body->parent->block);
        tn_lop *loop = tn_l_for(&each, "l", tn_l_index(&each, 0), tn_l_index(&each, first->count), tn_l_index(&each, 1), TN_FOR_UNROLL);
        each = tn_l_in(&each, loop->region[0]);
        nest again = n;
        again.walk[0].index = loop->region[0]->arg;
        at = gpu_register(&each, &again, &f->kept_axes, &f->result);
        for (int i = 0; i < f->n; i++)
            x[i].value = tn_l_load(&each, part[i], loop->region[0]->arg, 1, NULL, NULL);
        present = there ? tn_l_load(&each, there, loop->region[0]->arg, 1, NULL, NULL) : NULL;
    }
    for (int i = 0; i < f->n; i++)
        x[i].present = present;
    combine_into(L, &each, f, at, x);
    gpu_close(L, &n);
}

/* The loop over the registers of the result: one for all, since it walks nothing but them. */
static tn_lvalue *open_registers(tn_lbuilder *b, const tn_layout *layout)
{
    int count = tn_layout_regs(layout);
    if (count == 1)
        return tn_l_index(b, 0);
    tn_lop *loop = tn_l_for(b, "r", tn_l_index(b, 0), tn_l_index(b, count), tn_l_index(b, 1), TN_FOR_UNROLL);
    *b = tn_l_in(b, loop->region[0]);
    return loop->region[0]->arg;
}

/* One function, which gives the same bits whichever operand comes first. */
static bool commutes(const folding *f)
{
    tn_scalar fn = f->n == 1 ? tn_combine_fn(f->combine) : TN_SCALAR_NONE;
    return fn != TN_SCALAR_NONE && tn_scalar_traits(fn) & TN_SCALAR_COMMUTES;
}

/* Lanes that differ in one bit of their number exchange what they have. */
static void combine_lanes(lower *L, tn_lbuilder *b, const folding *f, int bit)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    tn_lvalue *r = open_registers(&in, &f->result);
    element mine[MOST_VALUES], other[MOST_VALUES];
    tn_lvalue *upper = NULL;
    if (!commutes(f)) {
        tn_lvalue *lane = tn_l_fn2(&in, TN_S_and, GPU(L)->thread, tn_l_index(&in, INT64_C(1) << bit));
        upper = tn_l_fn2(&in, TN_S_ne, lane, tn_l_index(&in, 0));
    }
    for (int i = 0; i < f->n; i++) {
        mine[i] = (element){tn_l_load(&in, f->acc[i], r, 1, NULL, NULL), NULL};
        other[i] = (element){tn_l_lane_xor(&in, mine[i].value, INT64_C(1) << bit), NULL};
    }
    for (int i = 0; upper && i < f->n; i++) { /* the lower lane's comes first, in both */
        tn_l_store(&in, f->acc[i], r, tn_l_fn3(&in, TN_S_select, upper, other[i].value, mine[i].value), NULL);
        other[i].value = tn_l_fn3(&in, TN_S_select, upper, mine[i].value, other[i].value);
    }
    combine_into(L, &in, f, r, other);
    lower_close(L, s);
}

/* The number that these bits of the thread's number make, the first one lowest. */
static tn_lvalue *bits_of_thread(lower *L, tn_lbuilder *b, const int *bits, int n)
{
    tn_lvalue *sum = tn_l_index(b, 0);
    for (int i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && bits[i + run] == bits[i] + run && gpu_is_cta_bit(L, bits[i + run]) == gpu_is_cta_bit(L, bits[i]); run++)
            ;
        sum = tn_l_fn2(b, TN_S_add, sum, tn_l_fn2(b, TN_S_shl, gpu_thread_bits(L, b, bits[i], run), tn_l_index(b, i)));
    }
    return sum;
}

/* Bits of the lane's number that do not matter to the layout. */
static int free_lanes(const tn_layout *layout, int *out)
{
    int n = 0;
    for (int i = 0; i < TN_LAYOUT_LANE_BITS; i++)
        if (!layout->col[TN_LAYOUT_LANE + i])
            out[n++] = i;
    return n;
}

static tn_lvalue *part_offset(tn_lbuilder *b, const folding *f, tn_lvalue *const *idx, tn_lvalue *part, int64_t elements)
{
    tn_lvalue *at = tn_l_fn2(b, TN_S_mul, part, tn_l_index(b, elements));
    int64_t stride = elements;
    for (int k = 0; k < f->nkept; k++) {
        stride /= f->value[0]->type.extent[f->kept[k]].size;
        at = tn_l_fn2(b, TN_S_add, at, tn_l_fn2(b, TN_S_mul, idx[k], tn_l_index(b, stride)));
    }
    return at;
}

static int64_t kept_elements(const folding *f)
{
    int64_t elements = 1;
    for (int k = 0; k < f->nkept; k++)
        elements *= f->value[0]->type.extent[f->kept[k]].size;
    return elements;
}

/* Of the threads that hold copies of an element those whose warp or CTA has a part of its own. */
static tn_layout writers_of(const folding *f, const int *bits, int nbits)
{
    tn_layout writers = f->result;
    for (int i = 0; i < nbits; i++)
        writers.col[TN_LAYOUT_LANE + bits[i]] = UINT32_C(1) << 31;
    return writers;
}

/* Lanes that hold the same elements, told apart by these bits, read parts of shared memory each and exchange what they make; without bits every thread combines all parts. In
 * order of parts. */
static void combine_parts(lower *L, tn_lbuilder *b, const folding *f, tn_lvalue *const *shared, int64_t parts, const int *bits, int nbits)
{
    nest n;
    tn_lbuilder in = *b;
    gpu_open(L, &in, &f->result, &n);
    for (int64_t p = 0; p < parts >> nbits; p++) {
        element x[MOST_VALUES] = {{NULL, NULL}};
        tn_lvalue *part = gpu_plus(&in, bits_of_thread(L, &in, bits, nbits), tn_l_index(&in, p << nbits));
        tn_lvalue *from = part_offset(&in, f, n.idx, part, kept_elements(f));
        for (int i = 0; i < f->n; i++) {
            x[i] = (element){gpu_get(&in, shared[i], from, f->value[i]->type.dtype), NULL};
            if (p == 0)
                tn_l_store(&in, f->acc[i], n.reg, x[i].value, NULL);
        }
        if (p)
            combine_into(L, &in, f, n.reg, x);
    }
    gpu_close(L, &n);
    for (int i = 0; i < nbits; i++)
        combine_lanes(L, b, f, bits[i]);
}

/* Warps write what they have. Then lanes that hold the same elements read a part each and exchange, if there are as many; else every thread combines all
 * parts, in the order of warps. bits: of the warp's number, that differ, as bits of the thread's. */
static void combine_warps(lower *L, tn_lbuilder *b, const folding *f, const int *bits, int nbits)
{
    int64_t elements = kept_elements(f), parts = INT64_C(1) << nbits;
    tn_lvalue *shared[MOST_VALUES];
    nest n;
    tn_lbuilder in = *b;
    for (int i = 0; i < f->n; i++) {
        shared[i] = gpu_shared(L, "parts", f->value[i]->type.dtype, parts * elements);
        gpu_touch_shared(L, b, shared[i], true);
    }
    in = *b;
    gpu_open(L, &in, &f->result, &n);
    tn_layout writers = writers_of(f, bits, nbits);
    for (int i = TN_LAYOUT_WARP; i < TN_LAYOUT_BITS; i++) /* each CTA has its own memory */
        writers.col[i] |= gpu_is_cta_bit(L, i - TN_LAYOUT_LANE) ? UINT32_C(1) << 31 : 0;
    tn_lvalue *at = part_offset(&in, f, n.idx, bits_of_thread(L, &in, bits, nbits), elements), *owns = gpu_owns(L, &writers);
    for (int i = 0; i < f->n; i++)
        gpu_put(&in, shared[i], at, tn_l_load(&in, f->acc[i], n.reg, 1, NULL, NULL), owns);
    gpu_close(L, &n);

    for (int i = 0; i < f->n; i++)
        gpu_touch_shared(L, b, shared[i], false);
    int free[TN_LAYOUT_LANE_BITS], nfree = free_lanes(&f->result, free);
    combine_parts(L, b, f, shared, parts, free, nbits > 1 && nfree >= nbits ? nbits : 0);
}

/* What others receive: at least 4 bytes. */
static tn_dtype sent_as(tn_dtype dtype)
{
    if (tn_dtype_bits(dtype) >= 32)
        return dtype;
    return tn_is_float(dtype) ? TN_F32 : TN_I32;
}

/* Warps of all CTAs of a cluster send what they have to each, a lane to one if there are as many that hold the same. There such lanes read parts and exchange. */
static void combine_ctas(lower *L, tn_lbuilder *b, const folding *f, const int *bits, int nbits)
{
    enum { MOST_BYTES = 16 << 10 /* of parts */ };
    int64_t elements = kept_elements(f), parts = INT64_C(1) << nbits, bytes = 0;
    int free[TN_LAYOUT_LANE_BITS], all_free = free_lanes(&f->result, free), nfree = tn_min(all_free, nbits), to = __builtin_ctz((unsigned)GPU(L)->ctas);
    tn_lvalue *shared[MOST_VALUES];
    nest n;
    for (int i = 0; i < f->n; i++) {
        tn_dtype dtype = sent_as(f->value[i]->type.dtype);
        bytes += parts * elements * (tn_dtype_bits(dtype) / 8);
        if (tn_is_complex(dtype) || bytes > MOST_BYTES) {
            gpu_give_up_cluster(L, "its CTAs would have too much to exchange");
            return;
        }
        shared[i] = gpu_shared(L, "parts", dtype, parts * elements);
    }
    tn_lvalue *delivery = gpu_new_delivery(L, b, bytes);
    tn_layout writers = writers_of(f, bits, nbits);
    for (int i = 0; i < to && to <= all_free; i++)
        writers.col[TN_LAYOUT_LANE + free[i]] = UINT32_C(1) << 31;
    tn_lbuilder in = *b;
    gpu_open(L, &in, &f->result, &n);
    tn_lvalue *at = part_offset(&in, f, n.idx, bits_of_thread(L, &in, bits, nbits), elements), *owns = gpu_owns(L, &writers);
    tn_lvalue *cta = to <= all_free ? bits_of_thread(L, &in, free, to) : NULL;
    for (int i = 0; i < f->n; i++)
        gpu_send(L, &in, tn_l_cast(&in, tn_l_load(&in, f->acc[i], n.reg, 1, NULL, NULL), shared[i]->type.dtype), shared[i], at, cta, delivery, owns);
    gpu_close(L, &n);

    gpu_await_delivery(b, delivery);
    combine_parts(L, b, f, shared, parts, free, nfree);
}

/* Threads' partial results become the result, in every thread that holds an element of it. */
static void combine_threads(lower *L, tn_lbuilder *b, const folding *f)
{
    int warp[TN_LAYOUT_WARP_BITS], nwarp = 0;
    bool ctas = false;
    for (int i = 0; i < TN_LAYOUT_LANE_BITS + f->layout.warp_bits; i++) {
        bool parts = f->layout.col[TN_LAYOUT_LANE + i] && !f->result.col[TN_LAYOUT_LANE + i];
        if (parts && i < TN_LAYOUT_LANE_BITS)
            combine_lanes(L, b, f, i);
        else if (parts)
            warp[nwarp++] = i;
        ctas |= parts && gpu_is_cta_bit(L, i);
    }
    if (ctas)
        combine_ctas(L, b, f, warp, nwarp);
    else if (nwarp)
        combine_warps(L, b, f, warp, nwarp);
}

bool gpu_sums_by_threads(lower *L, const tn_top *op, const tn_layout *sums)
{
    if (op->code != TN_T_reduce || op->ordered || op->nresults != 1)
        return false;
    folding f = folding_of(op);
    if (tn_combine_fn(f.combine) != TN_S_add || !tn_is_float(f.value[0]->type.dtype) || !gpu_natural_layout(L, f.value[0], &f.layout))
        return false;
    f.result = tn_layout_restrict(&f.layout, f.nkept, f.kept);
    return tn_layout_same(&f.result, sums);
}

void gpu_start_own_sums(lower *L, tn_lbuilder *b, const tn_top *op, place *sums)
{
    tn_lvalue *owns = gpu_owns(L, &sums->held->layout);
    *tn_map_at(&GPU(L)->own_sums, TN_KEY(op)) = (void *)(uintptr_t)op;
    if (!owns)
        return;
    tn_lbuilder in = *b;
    tn_lvalue *r = open_registers(&in, &sums->held->layout), *x = tn_l_load(&in, sums->held->regs, r, 1, NULL, NULL);
    tn_l_store(&in, sums->held->regs, r, tn_l_fn3(&in, TN_S_select, owns, x, tn_l_const(&in, x->type, tn_number_from_int(x->type.dtype, 0))), NULL);
}

void gpu_end_own_sums(lower *L, tn_lbuilder *b, const tn_top *op, place *sums)
{
    folding f = folding_of(op);
    if (!gpu_natural_layout(L, f.value[0], &f.layout))
        return;
    f.result = sums->held->layout;
    f.acc[0] = sums->held->regs;
    combine_threads(L, b, &f);
    *tn_map_at(&GPU(L)->own_sums, TN_KEY(op)) = NULL;
}

void gpu_reduce(lower *L, tn_lbuilder *b, const tn_top *op)
{
    folding f = folding_of(op);
    place *out[MOST_VALUES];
    if (op->ordered || !same_rank(&f)) {
        gpu_refuse(L, op, op->ordered ? "`order tree` of a fold" : "a fold of tiles of different ranks");
        return;
    }
    if (f.value[0]->type.rank == 0) /* one element: any thread's registers will do */
        f.layout = f.result = gpu_scalar_layout(L);
    else if (!gpu_natural_layout(L, f.value[0], &f.layout))
        return;
    f.result = tn_layout_restrict(&f.layout, f.nkept, f.kept);
    for (int i = 0; i < f.n; i++) {
        out[i] = gpu_new_place(L, b, &op->result[i].type, &f.result, f.body ? "fold" : "reduce");
        f.acc[i] = out[i]->held ? out[i]->held->regs : out[i]->buffer;
    }
    tn_lbuilder in = *b;
    tn_lvalue *reg = open_registers(&in, &f.result);
    for (int i = 0; i < f.n; i++)
        tn_l_store(&in, f.acc[i], reg, tn_l_const(&in, tn_lscalar(f.value[i]->type.dtype), op->identity[i]), NULL);

    in = *b;
    scope s = lower_open(L);
    region r = gpu_enter(L);
    lower_open_ranges(L, &in, op);
    if (f.body)
        gpu_block(L, &in, f.body);
    if (L->status == TN_OK)
        accumulate(L, &in, &f);
    gpu_leave(L, in.block == b->block ? NULL : &in, r);
    lower_close(L, s);
    if (L->status == TN_OK && !tn_map_get(&GPU(L)->own_sums, TN_KEY(op)))
        combine_threads(L, b, &f);
    for (int i = 0; i < f.n; i++)
        lower_set_place(L, &op->result[i], out[i]);
}
