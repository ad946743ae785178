/* Products on a GPU with so few rows or tiles that a tile for each would leave it idle.
 *
 *   parts    k (and taps of a convolution) goes into parts, each summed up by programs of its own; they store what they have, in the accumulators' type, and a
 *            second kernel adds the parts up in order and does what the group does with the product. No atomics, so the same bits each time.
 *   vectors  a matrix times a vector is a fold of multiply-adds, whose tile lies as the matrix does: every element is loaded once, as in a sum of rows or columns.
 *            Neighbours along k: a warp a row; else lines of columns, in parts. Of 16-bit floats that lie across k an instruction of 16 rows is faster (0.98 of a
 *            copy, lines 0.84), since its copies need no registers. */
#include "fuse/product.h"

static bool is_unit(fuser *F, const group *g, int j) { return j < 0 || tn_dim_is(fuse_whole_extent(F, g, j), 1); }

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

static bool is_tap(const product *p, int j) { return p->g->dim[j].fold && !p->g->dim[j].absorbed && j != p->x.k; }

static tn_tvalue *numbered(emitter *E, tn_tvalue *number, tn_tvalue *digit, int64_t of)
{
    return number ? tn_t_map2(&E->b, TN_S_add, tn_t_map2(&E->b, TN_S_mul, number, tn_t_index(&E->b, of)), digit) : digit;
}

static int kept_dims(const group *g)
{
    int n = 0;
    for (int j = 0; j < g->ndims; j++)
        n += !g->dim[j].fold && !g->dim[j].absorbed;
    return n;
}

sum_parts product_open_parts(emitter *E, const product *p, const gpu_product *tiles)
{
    fuser *F = E->F;
    const group *g = p->g;
    sum_parts parts = {.total = 1, .taps = tiles->taps};
    if (kept_dims(g) == TN_MAX_RANK) /* none is left for the parts */
        return (sum_parts){.total = 1};
    for (int at = 0; at < g->ndims && parts.taps; at++) {
        int j = g->order[at];
        if (!is_tap(p, j))
            continue;
        tn_dim extent = fuse_whole_extent(F, g, j);
        emit_grid_dim(E, j, 1, -1);
        parts.number = numbered(E, parts.number, E->start[j], extent->value);
        parts.total *= extent->value;
    }
    if (tiles->parts > 1) {
        tn_dim count = tn_dim_const(F->session, tiles->parts);
        int64_t strips = tn_ceildiv(fuse_whole_extent(F, g, p->x.k)->value, p->x.K);
        parts.chunk = tn_ceildiv(strips, tiles->parts) * p->x.K;
        parts.of_k = tn_kernel_grid(E->kernel, "part", count, tn_extent_const(1));
        parts.number = numbered(E, parts.number, parts.of_k, tiles->parts);
        parts.total *= tiles->parts;
    }
    if (parts.total == 1)
        return parts;
    tn_dim dims[TN_MAX_RANK] = {tn_dim_const(F->session, parts.total)};
    int rank = 1;
    for (int at = 0; at < g->ndims; at++)
        if (!g->dim[g->order[at]].fold && !g->dim[g->order[at]].absorbed)
            dims[rank++] = fuse_whole_extent(F, g, g->order[at]);
    tn_type type = tn_type_make(p->acc, rank, dims);
    parts.buffer = fuse_buffer(F, TN_B_TEMP, &type, "parts");
    return parts;
}

/* The parts' sums; what the phase walks of them, but for the part's number, which comes first. */
static tn_view *part_view(emitter *E, const sum_parts *parts, tn_buffer_mode mode, tn_subscript *subs)
{
    const group *g = E->g;
    int arg = emitter_arg(E, parts->buffer, mode), rank = 1;
    const tn_type *type = &E->F->program->buffers.at[parts->buffer].type;
    const location *l = fuse_dense(E->F, parts->buffer, type);
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (!g->dim[j].fold && !g->dim[j].absorbed)
            subs[rank++] = E->axis[j] >= 0 ? tn_sub_block(E->start[j], E->axis[j]) : tn_sub_point(E->start[j]);
    }
    return tn_kernel_view(E->kernel, "parts", arg, type->rank, type->dim, l->stride, l->offset);
}

static tn_subscript part_number(tn_tvalue *number)
{
    tn_subscript s = tn_sub_point(number);
    s.inside = true;
    return s;
}

/* The root's elements, from the sums of the phase in scope. */
static void store_root(emitter *E, tn_steps *steps, const product *p, tn_tvalue *sums)
{
    emit_set_result(E, p->d, tn_t_cast(&E->b, sums, p->result));
    E->row_axes = E->rank;
    emit_results(E, true);
    emitter_finish(E, steps);
}

/* Adds up what the parts stored: tiles of all parts by a line of results, so that warps load parts side by side. `phases` have been before, in the parts' kernel. */
static void emit_total(fuser *F, tn_steps *steps, const product *p, const sum_parts *parts, int phases)
{
    const group *g = p->g;
    emitter *E = emitter_new(F, p->g, "total");
    int vector = is_unit(F, g, p->x.n) ? p->x.m : p->x.n, dims[2] = {-1, vector}, first = 0;
    gpu_tile t = fuse_gpu_total(F, g, vector, parts->total);
    int64_t extents[2] = {t.rows, t.columns};
    tn_schedule_set(E->kernel, "", "warps", t.warps);
    emit_other_grid_dims(E, vector, -1);
    if (vector >= 0)
        E->start[vector] = tn_kernel_grid(E->kernel, "n", fuse_whole_extent(F, g, vector), tn_extent_const(t.columns));
    E->phases = phases;
    product_axes(E, 1 + (vector >= 0), dims, extents);
    tn_subscript subs[TN_MAX_RANK];
    tn_view *view = part_view(E, parts, TN_READ, subs);
    subs[0] = tn_sub_block(tn_t_index(&E->b, 0), 0);
    tn_tvalue *all = tn_t_load(&E->b, view, subs, emitter_type(E, p->acc));
    tn_number zero = tn_number_from_int(p->acc, 0);
    tn_top *sum = tn_t_reduce(&E->b, &all, 1, 1, &first, &zero);
    tn_t_combine_fn(&E->b, sum->region[0], TN_S_add, p->acc);
    product_axes(E, vector >= 0, &vector, &t.columns);
    store_root(E, steps, p, sum->result);
}

void product_finish(emitter *E, tn_steps *steps, const product *p, const sum_parts *parts, tn_tvalue *sums)
{
    if (parts->total == 1) {
        store_root(E, steps, p, sums);
        return;
    }
    tn_subscript subs[TN_MAX_RANK];
    tn_view *view = part_view(E, parts, TN_WRITE, subs);
    subs[0] = part_number(parts->number);
    emit_store_at(E, view, subs, sums);
    emitter_finish(E, steps);
    emit_total(E->F, steps, p, parts, E->phases);
}

/* ---- vectors ------------------------------------------------------------------------------------------------------------ */

/* The dim of the results that the matrix has (-1: none), the matrix' operand, and whether its neighbours lie along k. */
static int matrix_of(fuser *F, const product *p, int *operand, bool *along_k)
{
    *operand = is_unit(F, p->g, p->x.m);
    int kept = *operand ? p->x.n : p->x.m;
    const source *from = *operand ? &p->right : &p->left;
    *along_k = is_unit(F, p->g, kept) || tn_dim_is(fuse_total_stride(F, from->l, from->m, p->x.k), 1);
    return is_unit(F, p->g, kept) ? -1 : kept;
}

bool product_is_vector(fuser *F, const product *p)
{
    int operand;
    bool along_k, one = is_unit(F, p->g, p->x.m) || (is_unit(F, p->g, p->x.n) && p->d->op->code != TN_OP_convolution);
    matrix_of(F, p, &operand, &along_k);
    return one && (tn_is_float(p->acc) || tn_is_integer(p->acc)) && (along_k || !(p->types.left == TN_BF16 || p->types.left == TN_F16));
}

/* The operand as a tile of the sums' type. Two casts: they are rounded to the factors' type first. What is scaled by blocks is so before it is multiplied. */
static tn_tvalue *factor(emitter *E, const product *p, int i)
{
    if (p->scaled[i])
        return tn_t_cast(&E->b, emit_operand(E, p->d, i), p->acc);
    return tn_t_cast(&E->b, tn_t_cast(&E->b, product_operand(E, p, i), i ? p->types.right : p->types.left), p->acc);
}

void product_emit_vector(fuser *F, tn_steps *steps, product *p)
{
    axes *x = &p->x;
    group *g = p->g;
    int matrix;
    bool along_k;
    int kept = matrix_of(F, p, &matrix, &along_k);
    gpu_product tiles = fuse_gpu_choose_vector(F, g, "vector", kept, x->k, (matrix ? &p->right : &p->left)->value->type.dtype, along_k);
    bool two = tiles.N > 1;
    x->K = tiles.K;
    emitter *E = emitter_new(F, g, "vector");
    tn_schedule_set(E->kernel, "", "warps", tiles.warps);
    sum_parts parts = product_open_parts(E, p, &tiles);
    emit_other_grid_dims(E, two ? kept : -1, -1);
    if (two)
        E->start[kept] = tn_kernel_grid(E->kernel, "n", fuse_whole_extent(F, g, kept), tn_extent_const(tiles.N));

    int k_axis = two && along_k, dims[2] = {x->k, x->k};
    int64_t extents[2] = {tiles.K, tiles.K};
    dims[1 - k_axis] = two ? kept : x->k;
    extents[1 - k_axis] = two ? tiles.N : tiles.K;
    tn_tblock *outer = E->b.block;
    tn_top *fold = product_open_sum(E, p, &parts, 1, &k_axis);
    product_axes(E, 1, &x->k, &tiles.K);
    tn_tvalue *vector = factor(E, p, !matrix), *element;
    product_axes(E, 1 + two, dims, extents);
    if (vector->type.rank)
        vector = tn_t_broadcast(&E->b, vector, emitter_type(E, p->acc), &k_axis);
    element = tn_t_map2(&E->b, TN_S_mul, factor(E, p, matrix), vector);
    element = emit_end(E, emit_full_tile(E, element), x->k, tn_number_from_int(p->acc, 0));
    product_close_sum(E, p, fold, element, outer);
    product_axes(E, two, &kept, &tiles.N);
    product_finish(E, steps, p, &parts, fold->result);
}
