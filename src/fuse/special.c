/* Operations that are kernels or steps of their own form: control flow, births of symbols, scatter, sort, interior padding. */
#include "fuse/internal.h"

#include <assert.h>
#include <string.h>

/* ---- control flow ------------------------------------------------------------------------------------------------------ */

static int *one_arg(fuser *F, int buffer)
{
    int *args = TN_NEW_ARRAY(&F->session->arena, int, 1);
    args[0] = buffer;
    return args;
}

/* A buffer of its own for a value that several steps write. */
static location *shared_location(fuser *F, const tn_value *v)
{
    location *l = fuse_location(F, v);
    F->program->buffers.at[l->buffer].shared = true;
    return l;
}

static void emit_while(fuser *F, tn_steps *steps, const tn_op *op)
{
    int n = op->nresults;
    location *state[256];
    if (n > 256) {
        F->status = tn_error(F->session, TN_UNSUPPORTED, op->loc, "while: %d carried values; 256 at most", n);
        return;
    }
    for (int i = 0; i < n; i++) {
        state[i] = shared_location(F, &op->result[i]);
        for (int r = 0; r < 2; r++)
            *tn_map_at(&F->locations, TN_KEY(op->region[r]->arg[i])) = state[i];
        fuse_emit_copy(F, steps, tn_operand(op, i), state[i], op);
    }
    tn_step *loop = fuse_step(F, steps, TN_STEP_WHILE, op);
    loop->nblocks = 2;
    loop->blocks = TN_NEW_ARRAY(&F->session->arena, tn_steps, 2);
    fuse_block(F, op->region[0], &loop->blocks[0]);
    if (F->status != TN_OK)
        return;
    loop->nargs = 1;
    loop->args = one_arg(F, fuse_dense_buffer(F, &loop->blocks[0], tn_operand(op->region[0]->last, 0), op));
    fuse_block(F, op->region[1], &loop->blocks[1]);
    /* What comes from the state itself is copied aside first: the state changes under it. */
    const tn_op *ret = op->region[1]->last;
    location *aside[256] = {NULL};
    for (int i = 0; i < n && F->status == TN_OK; i++) {
        const tn_value *v = tn_operand(ret, i);
        if (v->def || v->block != op->region[1] || v->index == i)
            continue;
        aside[i] = fuse_dense(F, fuse_buffer(F, TN_B_TEMP, &v->type, NULL), &v->type);
        F->program->buffers.at[aside[i]->buffer].shared = true;
        fuse_emit_copy(F, &loop->blocks[1], v, aside[i], op);
    }
    for (int i = 0; i < n && F->status == TN_OK; i++) {
        const tn_value *v = tn_operand(ret, i);
        if (!v->def && v->block == op->region[1] && v->index == i)
            continue;
        if (aside[i]) {
            tn_value copy = {.type = v->type};
            *tn_map_at(&F->locations, TN_KEY(&copy)) = aside[i];
            fuse_emit_copy(F, &loop->blocks[1], &copy, state[i], op);
            *tn_map_at(&F->locations, TN_KEY(&copy)) = NULL;
        } else {
            fuse_emit_copy(F, &loop->blocks[1], v, state[i], op);
        }
    }
}

static void emit_branches(fuser *F, tn_steps *steps, const tn_op *op)
{
    int selector = fuse_dense_buffer(F, steps, tn_operand(op, 0), op);
    tn_step *step = fuse_step(F, steps, op->code == TN_OP_if ? TN_STEP_IF : TN_STEP_CASE, op);
    step->nargs = 1;
    step->args = one_arg(F, selector);
    step->nblocks = op->nregions;
    step->blocks = TN_NEW_ARRAY(&F->session->arena, tn_steps, (size_t)op->nregions);
    for (int r = 0; r < op->nregions && F->status == TN_OK; r++) {
        fuse_block(F, op->region[r], &step->blocks[r]);
        for (int i = 0; i < op->nresults && F->status == TN_OK; i++)
            fuse_emit_copy(F, &step->blocks[r], tn_operand(op->region[r]->last, i), shared_location(F, &op->result[i]), op);
    }
}

static void emit_define(fuser *F, tn_steps *steps, const tn_op *op)
{
    int buffer = fuse_dense_buffer(F, steps, tn_operand(op, 0), op);
    tn_step *step = fuse_step(F, steps, TN_STEP_DEFINE, op);
    step->nargs = 1;
    step->args = one_arg(F, buffer);
    step->dim = tn_find_attr(op, TN_A_dim)->dim;
    const tn_attr *upper = tn_find_attr(op, TN_A_upper);
    step->upper = upper ? upper->dim : NULL;
}

/* ---- kernels by hand -------------------------------------------------------------------------------------------------------- */

static tn_view *dense_view(emitter *E, const char *name, const location *l, const tn_type *type, tn_buffer_mode mode)
{
    return tn_kernel_view(E->kernel, name, emitter_arg(E, l->buffer, mode), type->rank, type->dim, l->stride, l->offset);
}

static bool in_list(const int64_t *list, int n, int64_t x, int *at)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x) {
            if (at)
                *at = i;
            return true;
        }
    return false;
}

/* Opens `for (i = 0 to dim by 1)` and enters its body. */
static tn_tvalue *open_loop(emitter *E, tn_dim limit, int64_t step)
{
    tn_top *loop = tn_t_for(&E->b, tn_t_index(&E->b, 0), tn_t_size(&E->b, limit), tn_t_index(&E->b, step), NULL, 0);
    E->b.block = loop->region[0];
    return &loop->region[0]->arg[0];
}

static void close_loops(emitter *E, tn_tblock *outer)
{
    while (E->b.block != outer) {
        tn_tblock *parent = E->b.block->parent->block;
        tn_t_yield(&E->b, NULL, 0);
        E->b.block = parent;
    }
}

/* ---- scatter ------------------------------------------------------------------------------------------------------------------- */

/* Dims of the updates along which two never meet in the result: those of the window that no index moves, batches, and all where indices are promised to differ. */
static void find_apart(const tn_op *op, int n, bool *apart)
{
    int n_window, n_inserted, n_map, n_batch, q;
    const int64_t *window = tn_attr_ints(op, TN_A_update_window_dims, &n_window), *inserted = tn_attr_ints(op, TN_A_inserted_window_dims, &n_inserted);
    const int64_t *index_map = tn_attr_ints(op, TN_A_scatter_dims_to_operand_dims, &n_map), *batching = tn_attr_ints(op, TN_A_input_batching_dims, &n_batch);
    const int64_t *indices_batching = tn_attr_ints(op, TN_A_scatter_indices_batching_dims, &q);
    int64_t vector = tn_attr_int(op, TN_A_index_vector_dim, 0);
    int next = 0, k = 0, rank = tn_operand(op, n + 1)->type.rank;
    for (int i = 0; i < rank; i++)
        apart[i] = tn_attr_int(op, TN_A_unique_indices, 0) != 0;
    for (int i = 0; i < tn_operand(op, 0)->type.rank; i++)
        if (!in_list(inserted, n_inserted, i, NULL) && !in_list(batching, n_batch, i, NULL))
            apart[window[next++]] |= !in_list(index_map, n_map, i, NULL);
    for (int i = 0; i < rank; i++) {
        if (in_list(window, n_window, i, NULL))
            continue;
        k += k == vector;
        apart[i] |= in_list(indices_batching, n_batch, k++, NULL);
    }
}

static tn_subscript coordinate(const emitter *E, tn_tvalue *index)
{
    for (int j = 0; j < E->g->ndims; j++)
        if (E->axis[j] >= 0 && E->start[j] == index)
            return tn_sub_block(index, E->axis[j]);
    return tn_sub_point(index);
}

static void scatter_body(emitter *E, const tn_op *op, int n, location *const *results, tn_tvalue *const *update_at)
{
    fuser *F = E->F;
    tn_tbuilder *b = &E->b;
    int n_window, n_inserted, n_map, n_batch, q;
    const int64_t *window = tn_attr_ints(op, TN_A_update_window_dims, &n_window), *inserted = tn_attr_ints(op, TN_A_inserted_window_dims, &n_inserted);
    const int64_t *index_map = tn_attr_ints(op, TN_A_scatter_dims_to_operand_dims, &n_map);
    const int64_t *batching = tn_attr_ints(op, TN_A_input_batching_dims, &n_batch);
    const int64_t *indices_batching = tn_attr_ints(op, TN_A_scatter_indices_batching_dims, &q);
    int64_t vector = tn_attr_int(op, TN_A_index_vector_dim, 0);
    const tn_value *operand = tn_operand(op, 0), *indices = tn_operand(op, n), *update = tn_operand(op, n + 1);
    /* coordinates of the indices tensor: the update's scatter dims, with room for the vector dim */
    tn_tvalue *at[TN_MAX_RANK + 1];
    int k = 0;
    for (int i = 0; i < update->type.rank; i++)
        if (!in_list(window, n_window, i, NULL)) {
            if (k == vector)
                k++;
            at[k++] = update_at[i];
        }
    tn_view *iv = dense_view(E, "indices", fuse_location(F, indices), &indices->type, TN_READ);
    tn_tvalue *index[TN_MAX_RANK], *moved[TN_MAX_RANK];
    int next = 0, which;
    for (int i = 0; i < operand->type.rank; i++) {
        bool any = false;
        index[i] = moved[i] = NULL;
        if (!in_list(inserted, n_inserted, i, NULL) && !in_list(batching, n_batch, i, NULL))
            index[i] = update_at[window[next++]];
        if (in_list(batching, n_batch, i, &which))
            index[i] = at[indices_batching[which]];
        if (in_list(index_map, n_map, i, &which)) {
            tn_subscript subs[TN_MAX_RANK];
            if (vector < indices->type.rank)
                at[vector] = tn_t_index(b, which);
            for (int d = 0; d < indices->type.rank; d++)
                subs[d] = coordinate(E, at[d]), any |= subs[d].block;
            tn_tvalue *start = tn_t_cast(b, tn_t_load(b, iv, subs, any ? emitter_type(E, indices->type.dtype) : tn_tscalar(indices->type.dtype)), TN_I64);
            moved[i] = index[i];
            index[i] = start;
        }
        if (!index[i])
            index[i] = tn_t_index(b, 0);
    }
    tn_subscript to[TN_MAX_RANK], from[TN_MAX_RANK];
    int axis = 0;
    for (int i = 0; i < operand->type.rank; i++) {
        bool block = moved[i] && coordinate(E, moved[i]).block;
        tn_tvalue *by = block ? tn_t_range(b, moved[i], E->extent[0]) : moved[i], *sum = by ? tn_t_map2(b, TN_S_add, index[i], by) : index[i];
        to[i] = sum->type.rank ? tn_sub_index(sum, 1, &axis) : coordinate(E, sum);
    }
    for (int i = 0; i < update->type.rank; i++)
        from[i] = coordinate(E, update_at[i]);
    tn_tvalue *args[32];
    tn_view *view[16];
    for (int i = 0; i < n; i++) {
        tn_dtype dtype = tn_operand(op, i)->type.dtype;
        view[i] = dense_view(E, "result", results[i], &operand->type, TN_READ_WRITE);
        tn_view *uv = dense_view(E, "update", fuse_location(F, tn_operand(op, n + 1 + i)), &update->type, TN_READ);
        args[i] = tn_t_load(b, view[i], to, emitter_type(E, dtype));
        args[n + i] = tn_t_load(b, uv, from, emitter_type(E, tn_operand(op, n + 1 + i)->type.dtype));
    }
    tn_tvalue *value[16];
    for (int i = 0; i < n; i++)
        value[i] = emit_scalar_region(E, b, op->region[0], args, i);
    for (int i = 0; i < n; i++)
        tn_t_store(b, view[i], to, E->rank ? emit_full_tile(E, value[i]) : value[i]);
}

/* The operand's copy, then the updates. Those that may meet are applied in order, by one program; dims along which they don't are dealt out to programs, and the innermost
 * of them to its elements. */
static void emit_scatter(fuser *F, tn_steps *steps, const tn_op *op)
{
    enum { ELEMENTS = 1024 /* of a program on a CPU */ };
    int n = op->nresults;
    location *results[16];
    if (n > 16) {
        F->status = tn_error(F->session, TN_UNSUPPORTED, op->loc, "scatter: %d operands; 16 at most", n);
        return;
    }
    for (int i = 0; i < n; i++) {
        results[i] = shared_location(F, &op->result[i]);
        fuse_emit_copy(F, steps, tn_operand(op, i), results[i], op);
    }
    const tn_type *type = &tn_operand(op, n + 1)->type;
    group *g = fuse_group_new(F, op, type);
    emitter *E = emitter_new(F, g, "scatter");
    tn_tblock *outer = E->b.block;
    tn_tvalue *at[TN_MAX_RANK];
    bool apart[TN_MAX_RANK];
    int inner = -1;
    find_apart(op, n, apart);
    for (int i = 0; i < type->rank; i++) {
        g->dim[i].fold = !apart[i];
        inner = apart[i] && !tn_dim_is(type->dim[i], 1) ? i : inner;
    }
    int64_t most = inner >= 0 && tn_dim_is_const(type->dim[inner]) ? pow2_ceil(type->dim[inner]->value) : INT64_MAX;
    gpu_tile t = {.columns = tn_min(most, ELEMENTS)};
    if (fuse_for_gpu(F) && inner >= 0) {
        t = fuse_gpu_scatter(F, g, inner);
        tn_schedule_set(E->kernel, "", "warps", t.warps);
    }
    for (int i = 0; i < type->rank; i++)
        if (apart[i])
            emit_grid_dim(E, i, i == inner ? t.columns : 1, i == inner ? 0 : -1);
    for (int i = 0; i < type->rank; i++)
        at[i] = apart[i] ? E->start[i] : open_loop(E, type->dim[i], 1);
    scatter_body(E, op, n, results, at);
    close_loops(E, outer);
    emitter_finish(E, steps);
}

/* ---- sort ------------------------------------------------------------------------------------------------------------------------ */

/* Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): any length, fixed order of comparisons. The position in
 * the input breaks ties, which makes it stable. */
typedef struct sorting {
    const tn_op *op;
    int n; /* operands */
    tn_view *view[16];
    tn_view *position;
    tn_subscript at[TN_MAX_RANK]; /* of the row; [dimension] is filled in */
    int dimension;
} sorting;

static tn_tvalue *row_load(emitter *E, const sorting *s, int i, tn_tvalue *index)
{
    if (i == s->n) {
        tn_subscript sub = tn_sub_point(index);
        sub.inside = true;
        return tn_t_load(&E->b, s->position, &sub, tn_tscalar(TN_I64));
    }
    tn_subscript subs[TN_MAX_RANK];
    memcpy(subs, s->at, sizeof subs);
    subs[s->dimension] = tn_sub_point(index);
    subs[s->dimension].inside = true;
    return tn_t_load(&E->b, s->view[i], subs, tn_tscalar(tn_operand(s->op, i)->type.dtype));
}

static void row_store(emitter *E, const sorting *s, int i, tn_tvalue *index, tn_tvalue *value)
{
    tn_subscript subs[TN_MAX_RANK];
    memcpy(subs, s->at, sizeof subs);
    subs[s->dimension] = tn_sub_point(index);
    subs[s->dimension].inside = true;
    if (i == s->n) {
        subs[0] = tn_sub_point(index);
        subs[0].inside = true;
    }
    tn_t_store(&E->b, i == s->n ? s->position : s->view[i], subs, value);
}

/* Elements x < y of the row change places if y belongs before x. */
static void exchange(emitter *E, const sorting *s, tn_tvalue *x, tn_tvalue *y)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *a[17], *c[17], *forward[32], *backward[32];
    for (int i = 0; i <= s->n; i++) {
        a[i] = row_load(E, s, i, x);
        c[i] = row_load(E, s, i, y);
    }
    for (int i = 0; i < s->n; i++) {
        forward[2 * i] = backward[2 * i + 1] = a[i];
        forward[2 * i + 1] = backward[2 * i] = c[i];
    }
    tn_tvalue *before = emit_scalar_region(E, b, s->op->region[0], forward, 0), *after = emit_scalar_region(E, b, s->op->region[0], backward, 0);
    tn_tvalue *tie = tn_t_map2(b, TN_S_gt, a[s->n], c[s->n]);
    tn_tvalue *swap = tn_t_map2(b, TN_S_or, after, tn_t_map2(b, TN_S_and, tn_t_map1(b, TN_S_not, before), tie));
    tn_top *branch = tn_t_if(b, swap, 0, NULL);
    tn_tblock *outer = b->block;
    b->block = branch->region[0];
    for (int i = 0; i <= s->n; i++) {
        row_store(E, s, i, x, c[i]);
        row_store(E, s, i, y, a[i]);
    }
    tn_t_yield(b, NULL, 0);
    b->block = branch->region[1];
    tn_t_yield(b, NULL, 0);
    b->block = outer;
}

static tn_tvalue *half(emitter *E, tn_tvalue *x) { return tn_t_map2(&E->b, TN_S_div, x, tn_t_index(&E->b, 2)); }

/* The largest power of two below n (0 for n < 2). */
static tn_tvalue *top_power(emitter *E, tn_tvalue *n)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *one = tn_t_index(b, 1);
    tn_top *loop = tn_t_while(b, &one, 1);
    tn_tblock *outer = b->block;
    b->block = loop->region[0];
    tn_tvalue *more = tn_t_map2(b, TN_S_lt, &loop->region[0]->arg[0], n);
    tn_t_yield(b, &more, 1);
    b->block = loop->region[1];
    tn_tvalue *twice = tn_t_map2(b, TN_S_mul, &loop->region[1]->arg[0], tn_t_index(b, 2));
    tn_t_yield(b, &twice, 1);
    b->block = outer;
    return half(E, loop->result);
}

static void merge_exchange(emitter *E, const sorting *s, tn_tvalue *n)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *top = top_power(E, n), *zero = tn_t_index(b, 0);
    tn_top *phases = tn_t_while(b, &top, 1);
    tn_tblock *outer = b->block;
    b->block = phases->region[0];
    tn_tvalue *go = tn_t_map2(b, TN_S_gt, &phases->region[0]->arg[0], tn_t_index(b, 0));
    tn_t_yield(b, &go, 1);
    b->block = phases->region[1];
    tn_tvalue *p = &phases->region[1]->arg[0], *start[3] = {top, zero, p}; /* q, r, d */
    tn_top *rounds = tn_t_while(b, start, 3);
    b->block = rounds->region[0];
    go = tn_t_map2(b, TN_S_gt, &rounds->region[0]->arg[2], tn_t_index(b, 0));
    tn_t_yield(b, &go, 1);
    b->block = rounds->region[1];
    tn_tvalue *q = &rounds->region[1]->arg[0], *r = &rounds->region[1]->arg[1], *d = &rounds->region[1]->arg[2];
    tn_top *pairs = tn_t_for(b, tn_t_index(b, 0), tn_t_map2(b, TN_S_sub, n, d), tn_t_index(b, 1), NULL, 0);
    tn_tblock *round = b->block;
    b->block = pairs->region[0];
    tn_tvalue *i = &pairs->region[0]->arg[0];
    tn_top *chosen = tn_t_if(b, tn_t_map2(b, TN_S_eq, tn_t_map2(b, TN_S_and, i, p), r), 0, NULL);
    b->block = chosen->region[0];
    exchange(E, s, i, tn_t_map2(b, TN_S_add, i, d));
    tn_t_yield(b, NULL, 0);
    b->block = chosen->region[1];
    tn_t_yield(b, NULL, 0);
    b->block = pairs->region[0];
    tn_t_yield(b, NULL, 0);
    b->block = round;
    tn_tvalue *next[3] = {half(E, q), p, tn_t_map2(b, TN_S_sub, q, p)};
    tn_t_yield(b, next, 3);
    b->block = phases->region[1];
    tn_tvalue *smaller = half(E, p);
    tn_t_yield(b, &smaller, 1);
    b->block = outer;
}

/* On a GPU: runs that fit shared memory are sorted as tiles, then merged two by two, each pass a kernel. Every element of two runs finds its place by itself: its
 * number in its own run, and how many of the other one come before it, which a binary search finds. Those of the first run come before their equals. */
typedef struct merging {
    const tn_op *op;
    const tn_type *type;
    int n, dimension;
    location *from[16], *to[16];
} merging;

/* Whether x comes before y. */
static tn_tvalue *comes_before(emitter *E, tn_tbuilder *b, const tn_op *op, tn_tvalue *const *x, tn_tvalue *const *y)
{
    tn_tvalue *args[32];
    for (int i = 0; i < op->nresults; i++) {
        args[2 * i] = x[i];
        args[2 * i + 1] = y[i];
    }
    return emit_scalar_region(E, b, op->region[0], args, 0);
}

static void emit_runs(fuser *F, tn_steps *steps, const merging *m, int row, gpu_tile t)
{
    emitter *E = emitter_new(F, fuse_group_new(F, m->op, m->type), "sort");
    bool two = row >= 0 && t.rows > 1;
    tn_tvalue *x[16], *y[32] = {NULL};
    tn_subscript subs[TN_MAX_RANK];
    tn_schedule_set(E->kernel, "", "warps", t.warps);
    for (int i = 0; i < m->type->rank; i++) {
        int axis = i == m->dimension ? two : i == row && two ? 0 : -1;
        emit_grid_dim(E, i, i == m->dimension ? t.columns : axis >= 0 ? t.rows : 1, axis);
        subs[i] = axis >= 0 ? tn_sub_block(E->start[i], axis) : tn_sub_point(E->start[i]);
    }
    for (int i = 0; i < m->n; i++)
        x[i] = tn_t_load(&E->b, dense_view(E, "row", m->from[i], m->type, TN_READ), subs, emitter_type(E, tn_operand(m->op, i)->type.dtype));
    tn_top *sort = tn_t_sort(&E->b, x, m->n, two);
    for (int i = 0; i < 2 * m->n; i++)
        y[i] = &sort->region[0]->arg[i];
    tn_tbuilder in = tn_tbuilder_at(E->kernel, sort->region[0], m->op->loc);
    tn_tvalue *before = comes_before(E, &in, m->op, y, y + m->n);
    tn_t_yield(&in, &before, 1);
    for (int i = 0; i < m->n; i++)
        tn_t_store(&E->b, dense_view(E, "sorted", m->to[i], m->type, TN_WRITE), subs, &sort->result[i]);
    emitter_finish(E, steps);
}

/* Elements at the places `at` along the sorted dim, which are there. */
static void load_places(emitter *E, const merging *m, tn_view *const *view, tn_subscript *subs, tn_tvalue *at, tn_tvalue **out)
{
    int axis = 0;
    subs[m->dimension] = tn_sub_index(at, 1, &axis);
    subs[m->dimension].inside = true;
    for (int i = 0; i < m->n; i++)
        out[i] = tn_t_load(&E->b, view[i], subs, emitter_type(E, tn_operand(m->op, i)->type.dtype));
}

static void emit_merge(fuser *F, tn_steps *steps, const merging *m, int64_t width)
{
    enum { ELEMENTS = 512, STEPS_MORE = 1 };
    emitter *E = emitter_new(F, fuse_group_new(F, m->op, m->type), "merge");
    tn_tbuilder *b = &E->b;
    tn_view *view[16];
    tn_subscript subs[TN_MAX_RANK];
    tn_tvalue *x[16], *y[16];
    for (int i = 0; i < m->type->rank; i++) {
        emit_grid_dim(E, i, i == m->dimension ? ELEMENTS : 1, i == m->dimension ? 0 : -1);
        subs[i] = tn_sub_point(E->start[i]);
    }
    for (int i = 0; i < m->n; i++)
        view[i] = dense_view(E, "run", m->from[i], m->type, TN_READ);
    tn_tvalue *n = tn_t_size(b, m->type->dim[m->dimension]), *zero = tn_t_index(b, 0), *one = tn_t_index(b, 1), *w = tn_t_index(b, width);
    tn_tvalue *last = tn_t_map2(b, TN_S_sub, n, one), *at = tn_t_range(b, E->start[m->dimension], E->extent[0]), *mine = tn_t_map2(b, TN_S_min, at, last);
    tn_tvalue *place = tn_t_map2(b, TN_S_rem, mine, tn_t_index(b, 2 * width)), *pair = tn_t_map2(b, TN_S_sub, mine, place), *second = tn_t_map2(b, TN_S_ge, place, w);
    tn_tvalue *own = tn_t_map3(b, TN_S_select, second, tn_t_map2(b, TN_S_sub, place, w), place);
    tn_tvalue *other = tn_t_map2(b, TN_S_add, pair, tn_t_map3(b, TN_S_select, second, zero, w));
    tn_tvalue *start[2] = {tn_t_map2(b, TN_S_mul, place, zero), tn_t_map3(b, TN_S_clamp, zero, tn_t_map2(b, TN_S_sub, n, other), w)};
    load_places(E, m, view, subs, mine, x);
    tn_top *loop = tn_t_for(b, zero, tn_t_index(b, __builtin_ctzll((uint64_t)width) + STEPS_MORE), one, start, 2);
    tn_tblock *outer = b->block;
    b->block = loop->region[0];
    tn_tvalue *lo = &loop->region[0]->arg[1], *hi = &loop->region[0]->arg[2], *open = tn_t_map2(b, TN_S_lt, lo, hi);
    tn_tvalue *middle = tn_t_map2(b, TN_S_div, tn_t_map2(b, TN_S_add, lo, hi), tn_t_index(b, 2));
    load_places(E, m, view, subs, tn_t_map2(b, TN_S_min, tn_t_map2(b, TN_S_add, other, middle), last), y);
    tn_tvalue *before = comes_before(E, b, m->op, y, x), *not_after = tn_t_map1(b, TN_S_not, comes_before(E, b, m->op, x, y));
    tn_tvalue *comes = tn_t_map2(b, TN_S_and, open, tn_t_map3(b, TN_S_select, second, not_after, before));
    tn_tvalue *next[2] = {tn_t_map3(b, TN_S_select, comes, tn_t_map2(b, TN_S_add, middle, one), lo),
                          tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_and, open, tn_t_map1(b, TN_S_not, comes)), middle, hi)};
    tn_t_yield(b, next, 2);
    b->block = outer;
    tn_tvalue *to = tn_t_map2(b, TN_S_add, tn_t_map2(b, TN_S_add, pair, own), &loop->result[0]);
    int axis = 0;
    subs[m->dimension] = tn_sub_index(tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_lt, at, n), to, n), 1, &axis); /* n: nowhere */
    for (int i = 0; i < m->n; i++)
        tn_t_store(b, dense_view(E, "merged", m->to[i], m->type, TN_WRITE), subs, x[i]);
    emitter_finish(E, steps);
}

/* False: so many elements, or none that are known to be fewer, want too many passes. */
static bool emit_sort_by_runs(fuser *F, tn_steps *steps, const tn_op *op)
{
    enum { MOST_PASSES = 16 };
    merging m = {.op = op, .type = &tn_operand(op, 0)->type, .n = op->nresults, .dimension = (int)tn_attr_int(op, TN_A_dimension, 0)};
    tn_dim n = m.type->dim[m.dimension];
    location *source[16], *temporary[16], *result[16];
    int64_t bytes = 0;
    int row = -1, passes = 0;
    for (int i = 0; i < m.type->rank; i++)
        row = i != m.dimension && !tn_dim_is(m.type->dim[i], 1) ? i : row;
    for (int i = 0; i < m.n; i++)
        bytes += tn_max(tn_dtype_bits(tn_operand(op, i)->type.dtype) / 8, 1);
    gpu_tile t = fuse_gpu_sort(F, n, row >= 0 ? m.type->dim[row] : NULL, bytes, m.n);
    for (int64_t run = t.columns; passes <= MOST_PASSES && run < n->hi; run *= 2)
        passes++;
    if (passes > MOST_PASSES)
        return false;
    for (int i = 0; i < m.n; i++) {
        source[i] = fuse_location(F, tn_operand(op, i));
        result[i] = passes ? shared_location(F, &op->result[i]) : fuse_location(F, &op->result[i]);
        if (passes)
            temporary[i] = fuse_dense(F, fuse_buffer(F, TN_B_TEMP, &tn_operand(op, i)->type, "runs"), &tn_operand(op, i)->type);
    }
    for (int pass = 0; pass <= passes; pass++) {
        memcpy(m.from, pass ? m.to : source, sizeof m.from);
        memcpy(m.to, (passes - pass) % 2 ? temporary : result, sizeof m.to);
        if (pass == 0)
            emit_runs(F, steps, &m, row, t);
        else
            emit_merge(F, steps, &m, t.columns << (pass - 1));
    }
    return true;
}

static void emit_sort(fuser *F, tn_steps *steps, const tn_op *op)
{
    const tn_type *type = &tn_operand(op, 0)->type;
    sorting s = {.op = op, .n = op->nresults, .dimension = (int)tn_attr_int(op, TN_A_dimension, 0)};
    if (s.n > 15) {
        F->status = tn_error(F->session, TN_UNSUPPORTED, op->loc, "sort: %d operands; 15 at most", s.n);
        return;
    }
    if (fuse_for_gpu(F) && emit_sort_by_runs(F, steps, op))
        return;
    location *results[16];
    for (int i = 0; i < s.n; i++) {
        results[i] = shared_location(F, &op->result[i]);
        fuse_emit_copy(F, steps, tn_operand(op, i), results[i], op);
    }
    group *g = fuse_group_new(F, op, type);
    emitter *E = emitter_new(F, g, "sort");
    for (int i = 0; i < s.n; i++)
        s.view[i] = dense_view(E, "row", results[i], type, TN_READ_WRITE);
    for (int i = 0; i < type->rank; i++) {
        if (i != s.dimension)
            emit_grid_dim(E, i, 1, -1);
        s.at[i] = i == s.dimension ? (tn_subscript){0} : tn_sub_point(E->start[i]);
    }
    tn_dim n = type->dim[s.dimension], one = tn_dim_const(F->session, 1), zero = tn_dim_const(F->session, 0);
    int position = tn_kernel_buffer(E->kernel, "position", TN_I64, TN_LOCAL, tn_dim_max(F->session, n, one));
    s.position = tn_kernel_view(E->kernel, "position", position, 1, &n, &one, zero);
    tn_tblock *outer = E->b.block;
    tn_tvalue *i = open_loop(E, n, 1);
    row_store(E, &s, s.n, i, i);
    close_loops(E, outer);
    merge_exchange(E, &s, tn_t_size(&E->b, n));
    emitter_finish(E, steps);
}

/* ---- interior padding ---------------------------------------------------------------------------------------------------------------- */

/* Every element the padding value; then the operand's elements, spread out, those that land inside. */
static void emit_interior_pad(fuser *F, tn_steps *steps, const tn_op *op)
{
    int n;
    const tn_dim *low = tn_attr_dims(op, TN_A_low, &n);
    const int64_t *interior = tn_attr_ints(op, TN_A_interior, &n);
    const tn_value *x = tn_operand(op, 0), *value = tn_operand(op, 1);
    location *to = shared_location(F, op->result);
    tn_session *session = F->session;

    group *fill = fuse_group_new(F, op, &op->result->type);
    emitter *E = emitter_new(F, fill, "fill");
    int last = fill->ndims - 1;
    for (int j = 0; j < fill->ndims; j++)
        emit_grid_dim(E, j, j == last ? 1024 : 1, j == last ? 0 : -1);
    emit_store(E, to, map_identity(F, fill, fill->ndims, NULL), emit_load(E, value, map_new(F, fill, 0), NULL));
    emitter_finish(E, steps);

    group *g = fuse_group_new(F, op, &x->type);
    E = emitter_new(F, g, "spread");
    for (int j = 0; j < g->ndims; j++)
        emit_grid_dim(E, j, j == last ? 1024 : 1, j == last ? 0 : -1);
    fmap *m = map_identity(F, g, n, NULL);
    for (int i = 0; i < n; i++) {
        m->c[i].a.coef[i] = tn_dim_const(session, interior[i] + 1);
        m->c[i].a.base = low[i];
        fguard *guard = TN_NEW(F->arena, fguard);
        *guard = (fguard){m->c[i].a, op->result->type.dim[i], m->guards};
        m->guards = guard;
    }
    emit_store(E, to, m, emit_load(E, x, map_identity(F, g, n, NULL), NULL));
    emitter_finish(E, steps);
}

void fuse_emit_special(fuser *F, tn_steps *steps, const tn_op *op)
{
    switch (op->code) {
    case TN_OP_while:
        emit_while(F, steps, op);
        return;
    case TN_OP_if:
    case TN_OP_case:
        emit_branches(F, steps, op);
        return;
    case TN_OP_define_dimension:
        emit_define(F, steps, op);
        return;
    case TN_OP_scatter:
        emit_scatter(F, steps, op);
        return;
    case TN_OP_sort:
        emit_sort(F, steps, op);
        return;
    case TN_OP_pad:
        emit_interior_pad(F, steps, op);
        return;
    case TN_OP_optimization_barrier:
        for (int i = 0; i < op->nresults; i++)
            *tn_map_at(&F->locations, TN_KEY(&op->result[i])) = fuse_location(F, tn_operand(op, i));
        return;
    default:
        assert(!"tn_fuse_check lets nothing else through");
    }
}
