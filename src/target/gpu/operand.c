/* Operands of products by matrix instructions: how they get into shared memory, how they lie there, how fragments come out of it.
 *
 * A fragment's row is 16 bytes of an operand: ldmatrix reads 8 of them at once, one a lane. So tiles lie in rows of the axis along which global memory has
 * neighbours, whichever that is, in boxes of at most 128 bytes, and the 16-byte pieces of a row are permuted: piece p of row r lies at p ^ (r's low bits).
 * Then 8 rows of a piece are in all 32 banks, and so are 8 pieces of a row, which is what copies write. If the axis is not k, ldmatrix turns 2-byte elements as
 * it loads; others are read one by one. */
#include "target/gpu/dot.h"

#include <assert.h>

enum { PIECE = 16, LINE = 128 }; /* bytes */

static int log2_of(int64_t x) { return __builtin_ctzll((uint64_t)x); }

static void set_inner(gpu_operand *o, int inner)
{
    o->inner = inner;
    o->box = tn_min(o->value->type.extent[inner].size, LINE / o->bytes);
    o->columns = tn_ceildiv(o->value->type.extent[inner].size, o->box) * o->box;
    o->rows = o->value->type.extent[1 - inner].size;
    o->piece_bits = log2_of(PIECE / o->bytes);
    o->piece_count = (int)(o->box >> o->piece_bits);
}

bool gpu_operand_of(lower *L, const tn_top *dot, int number, gpu_operand *out)
{
    const tn_tvalue *v = dot->operand[number];
    *out = (gpu_operand){.value = v, .left = number == 0, .bytes = tn_dtype_bits(v->type.dtype) / 8};
    if (!gpu_operand_layout(L, v, &out->lies, &out->layout))
        return false;
    bool groups = gpu_dot_is_by_groups(L, dot);
    out->rounds = groups && v->type.dtype == TN_F32;
    set_inner(out, groups && out->bytes != 2 ? gpu_k_axis(out) : out->lies); /* wgmma turns halves only */
    return true;
}

const tn_tvalue *gpu_unturned(const tn_tvalue *v, bool *turned)
{
    const tn_top *op = v->def;
    *turned = op && op->code == TN_T_permute && v->type.rank == 2 && op->axis[0] == 1;
    return *turned ? op->operand[0] : v;
}

bool gpu_is_copied(lower *L, const tn_tvalue *v)
{
    bool turned;
    const tn_tvalue *from = gpu_unturned(v, &turned);
    return from->def && from->def->code == TN_T_load && tn_map_get(&GPU(L)->ready, TN_KEY(from));
}

static void turn_axes(gpu_operand *o)
{
    o->inner = 1 - o->inner;
    o->lies = 1 - o->lies;
}

void gpu_unturn_operand(gpu_operand *o)
{
    bool turned;
    o->value = gpu_unturned(o->value, &turned);
    if (turned)
        turn_axes(o);
}

bool gpu_ready_operand(lower *L, const tn_top *dot, int number, gpu_operand *out)
{
    const gpu_operand *o = tn_map_get(&GPU(L)->ready, TN_KEY(&dot->operand[number]));
    bool turned;
    if (!o || !(o->settled || (o->width && o->stage)))
        return false;
    *out = *o;
    out->value = dot->operand[number];
    out->left = number == 0;
    gpu_unturned(out->value, &turned);
    if (turned)
        turn_axes(out);
    return true;
}

void gpu_operand_to_turn(const gpu_operand *o, gpu_operand *out)
{
    *out = *o;
    out->rounds = false;
    set_inner(out, o->lies);
}

/* ---- where an element lies --------------------------------------------------------------------------------------------- */

static tn_lvalue *and_mask(tn_lbuilder *b, tn_lvalue *x, int64_t mask) { return tn_l_fn2(b, TN_S_and, x, tn_l_index(b, mask)); }
static tn_lvalue *shift_right(tn_lbuilder *b, tn_lvalue *x, int by) { return by ? tn_l_fn2(b, TN_S_shr_logical, x, tn_l_index(b, by)) : x; }
static tn_lvalue *shift_left(tn_lbuilder *b, tn_lvalue *x, int by) { return by ? tn_l_fn2(b, TN_S_shl, x, tn_l_index(b, by)) : x; }
static tn_lvalue *xor(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y) { return tn_l_fn2(b, TN_S_xor, x, y); }

/* What the row's number does to the pieces of its box. A rest that is a multiple of 8 rows changes nothing. */
static tn_lvalue *permutation(tn_lbuilder *b, const gpu_operand *o, tn_lvalue *row)
{
    return and_mask(b, shift_right(b, row, log2_of(8 / o->piece_count)), o->piece_count - 1);
}

tn_lvalue *gpu_piece_at(tn_lbuilder *b, const gpu_operand *o, gpu_split row, gpu_split piece, bool by_thread)
{
    int bits = log2_of(o->piece_count);
    tn_lvalue *p = permutation(b, o, by_thread ? row.thread : gpu_plus(b, row.thread, row.rest));
    tn_lvalue *thread = xor(b, and_mask(b, piece.thread, o->piece_count - 1), p), *rest = and_mask(b, piece.rest, o->piece_count - 1);
    tn_lvalue *in_row = shift_left(b, xor(b, thread, rest), o->piece_bits);
    tn_lvalue *of_thread = gpu_plus(b, gpu_times(b, row.thread, o->box), gpu_times(b, shift_right(b, piece.thread, bits), o->rows * o->box));
    tn_lvalue *of_rest = gpu_plus(b, gpu_times(b, row.rest, o->box), gpu_times(b, shift_right(b, piece.rest, bits), o->rows * o->box));
    return gpu_plus(b, gpu_plus(b, of_thread, in_row), of_rest);
}

tn_lvalue *gpu_element_at(tn_lbuilder *b, const gpu_operand *o, tn_lvalue *row, tn_lvalue *column)
{
    tn_lvalue *zero = tn_l_index(b, 0);
    tn_lvalue *piece = gpu_piece_at(b, o, (gpu_split){row, zero}, (gpu_split){shift_right(b, column, o->piece_bits), zero}, true);
    return gpu_plus(b, piece, and_mask(b, column, (INT64_C(1) << o->piece_bits) - 1));
}

static tn_lvalue *in_stage(tn_lbuilder *b, const tn_lvalue *at, tn_lvalue *stage)
{
    return stage ? gpu_plus(b, stage, (tn_lvalue *)(uintptr_t)at) : (tn_lvalue *)(uintptr_t)at;
}

/* ---- into shared memory ------------------------------------------------------------------------------------------------ */

/* All elements of a copy exist, or none: no guard looks at where in it one is, and rows by number are the same for all. */
static bool exists_whole(const gpu_operand *o, const tn_top *load)
{
    const tn_view *view = load->view;
    for (int d = 0; d < view->rank; d++) {
        const tn_subscript *s = &load->subscript[d];
        if (!lower_walks(s, o->inner))
            continue;
        if (!s->block)
            return false;
        for (int g = 0; g < view->nguards; g++)
            if (!tn_dim_is(view->guard[g].coef[d], 0))
                return false;
    }
    return true;
}

void gpu_plan_copies(lower *L, const tn_top *loop, gpu_operand *o)
{
    const tn_top *load = o->value->def;
    int64_t multiple;
    int axis;
    if (!load || load->code != TN_T_load || tn_map_get(&L->places, TN_KEY(o->value)) || load->view->panel || !exists_whole(o, load))
        return;
    if (load->view->padded && (load->view->padding.f != 0 || load->view->padding.u != 0))
        return;
    if (lower_writes(L, loop, load->view->buffer) || !gpu_neighbours(L, load, &axis, &multiple) || axis != o->inner)
        return;
    for (int bytes = PIECE; bytes >= 4 && !o->width; bytes /= 2)
        if (bytes >= o->bytes && multiple % (bytes / o->bytes) == 0)
            o->width = bytes / o->bytes;
    tn_ttype copies = o->value->type; /* an element a copy */
    int order[2] = {o->inner, 1 - o->inner};
    copies.extent[o->inner].size /= tn_max(1, o->width);
    if (o->width && !tn_layout_blocked(&copies, order, 1, GPU(L)->warps, &o->copies))
        o->width = 0;
}

/* The part of a coordinate that the loops of a nest give, and whether it is a multiple of 8. */
static gpu_split split_axis(lower *L, tn_lbuilder *b, const nest *n, int axis, bool *eights)
{
    gpu_split s = {gpu_thread_index(L, &n->layout, axis), tn_l_index(b, 0)};
    *eights = true;
    for (int i = n->nwalks - 1; i >= 0; i--) {
        const walk *w = &n->walk[i];
        if (w->axis != axis)
            continue;
        *eights &= w->stride % 8 == 0;
        s.rest = gpu_plus(b, s.rest, gpu_times(b, w->index, w->stride));
    }
    return s;
}

/* What a step along the axis adds to an access's offset, where only blocks walk it; NULL: something else does. */
static tn_lvalue *step_of(lower *L, tn_lbuilder *b, const tn_top *load, int axis)
{
    tn_lvalue *step = tn_l_index(b, 0);
    for (int d = 0; d < load->view->rank; d++) {
        const tn_subscript *s = &load->subscript[d];
        for (int i = 0; i < s->naxes; i++) {
            if (s->axis[i] != axis)
                continue;
            if (!s->block)
                return NULL;
            step = gpu_plus(b, step, lower_dim(L, load->view->stride[d]));
        }
    }
    return step;
}

void gpu_copy_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *stage)
{
    static const char *const names[] = {[4] = "copy_async_4", [8] = "copy_async_8", [16] = "copy_async_16"};
    const tn_top *load = o->value->def;
    int64_t bytes = o->width * o->bytes;
    int per_piece = log2_of(PIECE / bytes), inner = o->inner;
    bool eights, ignored;
    nest n;
    gpu_prepare_access(L, b, load, &o->copies);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &o->copies, &n);
    gpu_split row = split_axis(L, &in, &n, 1 - inner, &eights), copy = split_axis(L, &in, &n, inner, &ignored);
    gpu_split piece = {shift_right(&in, copy.thread, per_piece), shift_right(&in, copy.rest, per_piece)};
    tn_lvalue *at = gpu_piece_at(&in, o, row, piece, eights);
    if (per_piece)
        at = gpu_plus(&in, at, gpu_times(&in, and_mask(&in, n.idx[inner], (1 << per_piece) - 1), o->width));
    tn_lvalue *idx[TN_TILE_RANK] = {n.idx[0], n.idx[1]};
    idx[inner] = gpu_times(&in, n.idx[inner], o->width);
    access a = lower_resolve(L, &in, load, idx);
    tn_lvalue *step = step_of(L, &in, load, 1 - inner);
    if (step) { /* the thread's part and the rest's apart: a register for all rows, and numbers that all threads share */
        idx[1 - inner] = row.thread;
        a.offset = gpu_plus(&in, lower_resolve(L, &in, load, idx).offset, tn_l_fn2(&in, TN_S_mul, row.rest, step));
    }
    tn_lvalue *there = tn_l_index(&in, bytes), *none = tn_l_index(&in, 0);
    if (a.exists)
        there = tn_l_fn3(&in, TN_S_select, a.exists, there, none);
    tn_lvalue *owns = gpu_owns(L, &o->copies);
    if (owns)
        in = tn_l_in(&in, tn_l_if(&in, owns)->region[0]);
    tn_l_machine(&in, names[bytes], (tn_lvalue *[]){o->buffer, in_stage(&in, at, stage), L->buffer[load->view->buffer], a.offset, there}, 5);
    gpu_close(L, &n);
}

/* What the registers hold in the layout, into the operand's buffer. */
static void store_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, const place *p, const tn_layout *layout)
{
    nest n;
    if (o->rounds)
        gpu_round(b, p->held->regs, tn_layout_regs(layout));
    if (!o->apart)
        gpu_touch_shared(L, b, o->buffer, true);
    tn_lbuilder in = *b;
    gpu_open(L, &in, layout, &n);
    const walk *first = n.nwalks ? &n.walk[0] : NULL;
    bool vector = first && first->axis == o->inner && first->stride == 1 && first->registers == 1 && first->count <= PIECE / o->bytes;
    tn_lvalue *column = n.idx[o->inner], *at;
    if (vector) { /* its elements are neighbours there too: the address is that of the first */
        column = gpu_thread_index(L, layout, o->inner);
        for (int i = n.nwalks - 1; i > 0; i--)
            if (n.walk[i].axis == o->inner)
                column = gpu_plus(&in, column, gpu_times(&in, n.walk[i].index, n.walk[i].stride));
    }
    at = gpu_element_at(&in, o, n.idx[1 - o->inner], column);
    if (vector)
        at = gpu_plus(&in, at, first->index);
    tn_l_store(&in, o->buffer, in_stage(&in, at, o->stage), tn_l_load(&in, p->held->regs, n.reg, 1, NULL, NULL), gpu_owns(L, layout));
    gpu_close(L, &n);
}

void gpu_fill_operand(lower *L, tn_lbuilder *b, const gpu_operand *o)
{
    gpu_prepare_own(L, b, o->value, &o->layout);
    place *p = gpu_new_place(L, b, &o->value->type, &o->layout, "operand");
    gpu_materialise_into(L, b, o->value, p);
    store_operand(L, b, o, p, &o->layout);
}

/* A thread has 16 bytes along k, lanes stand side by side along the other axis: elements are read row by row of the one, and written a piece a row of the other,
 * both in all banks. */
static tn_layout turning_layout(lower *L, const gpu_operand *o)
{
    const tn_ttype *type = &o->value->type;
    int k = gpu_k_axis(o), at[2] = {0, 0}, bits[2] = {log2_of(type->extent[0].size), log2_of(type->extent[1].size)}, start[2] = {bits[1], 0};
    tn_layout layout = {.rank = 2, .bits = {(uint8_t)bits[0], (uint8_t)bits[1]}, .repeats = {1, 1}};
    while (at[k] < tn_min(o->piece_bits, bits[k]))
        layout.col[layout.reg_bits++] = UINT32_C(1) << (start[k] + at[k]++);
    for (int i = 0; i < TN_LAYOUT_LANE_BITS + log2_of(GPU(L)->warps); i++) {
        bool warp = i >= TN_LAYOUT_LANE_BITS;
        int axis = at[1 - k] < bits[1 - k] ? 1 - k : k;
        layout.warp_bits += warp;
        if (at[axis] < bits[axis])
            layout.col[warp ? TN_LAYOUT_WARP + i - TN_LAYOUT_LANE_BITS : TN_LAYOUT_LANE + i] = UINT32_C(1) << (start[axis] + at[axis]++);
    }
    for (int axis = 0; axis < 2; axis++)
        while (at[axis] < bits[axis])
            layout.col[layout.reg_bits++] = UINT32_C(1) << (start[axis] + at[axis]++);
    return layout;
}

void gpu_turn_operand(lower *L, tn_lbuilder *b, const gpu_operand *from, const gpu_operand *o)
{
    nest n;
    tn_layout layout = turning_layout(L, o);
    place *p = gpu_new_place(L, b, &o->value->type, &layout, "turned");
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    tn_lvalue *at = gpu_element_at(&in, from, n.idx[1 - from->inner], n.idx[from->inner]);
    tn_l_store(&in, p->held->regs, n.reg, tn_l_load(&in, from->buffer, in_stage(&in, at, from->stage), 1, NULL, NULL), NULL);
    gpu_close(L, &n);
    store_operand(L, b, o, p, &layout);
}

/* ---- out of shared memory --------------------------------------------------------------------------------------------------- */

static tn_lvalue *thread_bits(lower *L, int from, int bits, int to)
{
    tn_lbuilder *b = &L->entry;
    return shift_left(b, and_mask(b, shift_right(b, GPU(L)->thread, from), (INT64_C(1) << bits) - 1), to);
}

static tn_lvalue *warp_bits(lower *L, const gpu_operand *o, gpu_warps warps, int to)
{
    int m = log2_of(warps.m), n = log2_of(warps.n);
    return o->left ? thread_bits(L, TN_LAYOUT_LANE_BITS, m, to) : thread_bits(L, TN_LAYOUT_LANE_BITS + m, n, to);
}

/* Four matrices at a time: a fragment of the left operand, or two of the right one. Lane 8 q + r tells where row r of matrix q lies. */
static void load_matrices(lower *L, tn_lbuilder *b, const gpu_operand *o, gpu_warps warps, tn_lvalue *to, int count, tn_lvalue *k)
{
    bool k_inner = o->inner == gpu_k_axis(o);
    int registers = PIECE / o->bytes, each = o->left ? 1 : 2, wm = log2_of(o->left ? warps.m : warps.n);
    tn_lbuilder *e = &L->entry;
    tn_lop *loop = tn_l_for(b, "f", tn_l_index(b, 0), tn_l_index(b, count / each), tn_l_index(b, 1), TN_FOR_UNROLL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *f = loop->region[0]->arg, *row8 = thread_bits(L, 0, 3, 0), *q0 = thread_bits(L, 3, 1, 0), *q1 = thread_bits(L, 4, 1, 0);
    int64_t apart = (int64_t)16 << wm; /* rows or columns of 16 that all warps have */
    gpu_split row, piece;
    if (o->left && k_inner) { /* matrices: 8 rows lower, then 16 bytes of k further */
        row = (gpu_split){gpu_plus(e, gpu_plus(e, row8, shift_left(e, q0, 3)), warp_bits(L, o, warps, 4)), gpu_times(&in, f, apart)};
        piece = (gpu_split){q1, gpu_times(&in, k, 2)};
    } else if (o->left) {
        row = (gpu_split){gpu_plus(e, row8, shift_left(e, q1, 3)), gpu_times(&in, k, 16)};
        piece = (gpu_split){gpu_plus(e, q0, warp_bits(L, o, warps, 1)), gpu_times(&in, f, apart / 8)};
    } else if (k_inner) { /* matrices: 16 bytes of k further, then the next 8 columns of this warp */
        row = (gpu_split){gpu_plus(e, gpu_plus(e, row8, shift_left(e, q1, 3 + wm)), warp_bits(L, o, warps, 3)), gpu_times(&in, f, apart)};
        piece = (gpu_split){q0, gpu_times(&in, k, 2)};
    } else {
        row = (gpu_split){gpu_plus(e, row8, shift_left(e, q0, 3)), gpu_times(&in, k, 16)};
        piece = (gpu_split){gpu_plus(e, shift_left(e, q1, wm), warp_bits(L, o, warps, 0)), gpu_times(&in, f, apart / 8)};
    }
    tn_lvalue *at = gpu_piece_at(&in, o, row, piece, true);
    tn_l_machine(&in, k_inner ? "ldmatrix_x4" : "ldmatrix_x4_turned", (tn_lvalue *[]){to, gpu_times(&in, f, registers), o->buffer, in_stage(&in, at, o->stage)}, 4);
}

/* Element by element: what ldmatrix can't turn, or a single fragment of the right operand. */
static void load_elements(lower *L, tn_lbuilder *b, const gpu_operand *o, gpu_warps warps, tn_lvalue *to, int count, tn_lvalue *k)
{
    int per_word = 4 / o->bytes, words = o->left ? 4 : 2, wm = log2_of(o->left ? warps.m : warps.n), span = o->left ? 4 : 3;
    tn_lop *loop = tn_l_for(b, "f", tn_l_index(b, 0), tn_l_index(b, count), tn_l_index(b, 1), TN_FOR_UNROLL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *f = loop->region[0]->arg;
    tn_lvalue *outer = gpu_plus(&in, gpu_plus(&in, thread_bits(L, 2, 3, 0), warp_bits(L, o, warps, span)), gpu_times(&in, f, INT64_C(1) << (span + wm)));
    tn_lvalue *deep = gpu_plus(&in, gpu_times(&in, thread_bits(L, 0, 2, 0), per_word), gpu_times(&in, k, GPU_MMA_DEPTH / o->bytes));
    for (int w = 0; w < words; w++)
        for (int i = 0; i < per_word; i++) {
            tn_lvalue *side = gpu_plus(&in, outer, tn_l_index(&in, o->left ? w % 2 * 8 : 0));
            tn_lvalue *depth = gpu_plus(&in, deep, tn_l_index(&in, i + (o->left ? w / 2 : w) * 4 * per_word));
            bool k_inner = o->inner == gpu_k_axis(o);
            tn_lvalue *at = k_inner ? gpu_element_at(&in, o, side, depth) : gpu_element_at(&in, o, depth, side);
            tn_lvalue *x = tn_l_load(&in, o->buffer, in_stage(&in, at, o->stage), 1, NULL, NULL);
            tn_l_store(&in, to, gpu_plus(&in, gpu_times(&in, f, words * per_word), tn_l_index(&in, w * per_word + i)), x, NULL);
        }
}

bool gpu_loads_elements(const gpu_operand *o) { return o->bytes != 2 && o->inner != gpu_k_axis(o); }

void gpu_load_fragments(lower *L, tn_lbuilder *b, const gpu_operand *o, gpu_warps warps, tn_lvalue *to, int count, tn_lvalue *k)
{
    bool k_inner = o->inner == gpu_k_axis(o), pieces = o->columns * o->bytes >= PIECE && (o->left || count % 2 == 0);
    if (pieces && (k_inner || o->bytes == 2))
        load_matrices(L, b, o, warps, to, count, k);
    else
        load_elements(L, b, o, warps, to, count, k);
}

gpu_matrix gpu_matrix_of(tn_lbuilder *b, const gpu_operand *o, tn_lvalue *group, tn_lvalue *k)
{
    enum { ROWS = 64 };
    int depth = GPU_MMA_DEPTH / o->bytes;
    bool turned = o->inner != gpu_k_axis(o);
    assert(o->box * o->bytes == LINE && (o->bytes == 2 || !turned));
    tn_lvalue *at = turned ? gpu_plus(b, gpu_times(b, group, ROWS / o->box * o->rows * o->box), gpu_times(b, k, depth * o->box))
                           : gpu_plus(b, gpu_times(b, group, ROWS * o->box), gpu_plus(b, gpu_times(b, shift_right(b, k, 2), o->rows * o->box), gpu_times(b, and_mask(b, k, 3), depth)));
    return (gpu_matrix){in_stage(b, at, o->stage), tn_l_index(b, turned ? o->rows * LINE : PIECE), tn_l_index(b, turned)};
}
