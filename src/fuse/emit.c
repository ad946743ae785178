/* A group becomes a Tile kernel.
 *
 * Phases: a point kernel has one; a kernel with reductions has a row phase (values of the kept dims) and, for each fold and for the final store,
 * a full phase in which the fold dims are in scope too. Row values are computed once in the row phase and repeated along the folded axis. A costly
 * full value that several phases need (the exponential of a softmax) is kept in a local buffer. */
#include "fuse/internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------------- */

emitter *emitter_new(fuser *F, group *g, const char *stem)
{
    emitter *E = TN_NEW(F->arena, emitter);
    E->F = F;
    E->g = g;
    char name[64];
    snprintf(name, sizeof name, "k%d_%s", F->next_kernel++, stem);
    E->kernel = tn_kernel_new(F->session, name);
    E->b = tn_tbuilder_at(E->kernel, E->kernel->body, g && g->root ? g->root->loc : TN_NO_LOC);
    E->folds.arena = E->views.arena = F->arena;
    for (int j = 0; j < FUSE_DIMS; j++)
        E->axis[j] = -1;
    return E;
}

/* Parameters come before locals: the new last buffer takes the place of the first local. */
static void move_before_locals(emitter *E, int last)
{
    tn_kernel *k = E->kernel;
    tn_tbuffer added = k->buffers.at[last];
    if (last == E->nargs)
        return;
    memmove(&k->buffers.at[E->nargs + 1], &k->buffers.at[E->nargs], sizeof added * (size_t)(last - E->nargs));
    k->buffers.at[E->nargs] = added;
    for (size_t i = 0; i < k->views.len; i++)
        k->views.at[i]->buffer += k->views.at[i]->buffer >= E->nargs;
    for (size_t i = 0; i < E->g->demands.len; i++)
        E->g->demands.at[i]->local += E->g->demands.at[i]->local >= E->nargs;
}

int emitter_arg(emitter *E, int buffer, tn_buffer_mode mode)
{
    for (int i = 0; i < E->nargs; i++)
        if (E->arg_buffer[i] == buffer) {
            if (E->kernel->buffers.at[i].mode != mode)
                E->kernel->buffers.at[i].mode = TN_READ_WRITE;
            return i;
        }
    assert(E->nargs < FUSE_ARGS);
    char name[16];
    snprintf(name, sizeof name, "b%d", E->nargs);
    const tn_pbuffer *p = &E->F->program->buffers.at[buffer];
    E->arg_buffer[E->nargs] = buffer;
    int last = tn_kernel_buffer(E->kernel, name, p->type.dtype, mode, p->elements);
    move_before_locals(E, last);
    return E->nargs++;
}

static bool view_is_static(const tn_view *v)
{
    bool known = tn_dim_is_const(v->offset);
    for (int d = 0; d < v->rank; d++)
        known &= tn_dim_is_const(v->shape[d]) && tn_dim_is_const(v->stride[d]);
    for (int g = 0; g < v->nguards; g++) {
        known &= tn_dim_is_const(v->guard[g].base) && tn_dim_is_const(v->guard[g].limit);
        for (int d = 0; d < v->rank; d++)
            known &= tn_dim_is_const(v->guard[g].coef[d]);
    }
    return known;
}

static bool reads_size(const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->code == TN_T_size && !tn_dim_is_const(op->dim))
            return true;
        for (int r = 0; r < op->nregions; r++)
            if (reads_size(op->region[r]))
                return true;
    }
    return false;
}

/* From constants alone, with sizes known now: it runs once, at load. */
static bool runs_at_load(const emitter *E)
{
    const tn_kernel *k = E->kernel;
    for (int i = 0; i < E->nargs; i++) {
        const tn_pbuffer *p = &E->F->program->buffers.at[E->arg_buffer[i]];
        tn_buffer_mode mode = k->buffers.at[i].mode;
        if (mode == TN_READ ? p->kind != TN_B_CONSTANT && !p->persistent : mode != TN_WRITE || p->kind != TN_B_TEMP || p->shared)
            return false;
        if (!tn_dim_is_const(p->elements))
            return false;
    }
    for (size_t i = 0; i < k->grid.len; i++)
        if (!tn_dim_is_const(k->grid.at[i].limit))
            return false;
    for (size_t i = 0; i < k->views.len; i++)
        if (!view_is_static(k->views.at[i]))
            return false;
    return !reads_size(k->body);
}

/* The element at which the first of a parameter's views begins; NULL: the buffer's first, or it is not known which comes first, or what a guard hides may lie before the
 * buffer. A GPU's buffers begin at multiples of a vector. */
static tn_dim common_offset(const emitter *E, int parameter)
{
    enum { GPU_ALIGN = 64 };
    int bits = tn_dtype_bits(E->kernel->buffers.at[parameter].dtype);
    tn_dim offset = NULL;
    for (size_t i = 0; i < E->kernel->views.len; i++) {
        const tn_view *v = E->kernel->views.at[i];
        if (v->buffer != parameter)
            continue;
        bool known = offset && tn_dim_is_const(offset) && tn_dim_is_const(v->offset);
        if (v->nguards || (offset && v->offset != offset && !known))
            return NULL;
        offset = known && offset->value < v->offset->value ? offset : v->offset;
    }
    if (!offset || tn_dim_is(offset, 0) || offset->lo < 0 || bits % 8 || (fuse_for_gpu(E->F) && offset->multiple * (bits / 8) % GPU_ALIGN))
        return NULL;
    return offset;
}

/* Elements from `from` to the end of the parameter's views; NULL: not known. */
static tn_dim elements_of_views(const emitter *E, int parameter, tn_dim from)
{
    tn_session *s = E->F->session;
    tn_dim one = tn_dim_const(s, 1), most = NULL;
    for (size_t i = 0; i < E->kernel->views.len; i++) {
        const tn_view *v = E->kernel->views.at[i];
        tn_dim elements = one;
        if (v->buffer != parameter)
            continue;
        if (v->offset != from)
            elements = tn_dim_add(s, elements, tn_dim_sub(s, v->offset, from));
        for (int d = 0; d < v->rank; d++) {
            if (v->stride[d]->lo < 0 || v->nguards || v->panel)
                return NULL;
            elements = tn_dim_add(s, elements, tn_dim_mul(s, v->stride[d], tn_dim_sub(s, v->shape[d], one)));
        }
        most = most ? tn_dim_max(s, most, elements) : elements;
    }
    return most && (!tn_dim_is_const(most) || most->value > 0) ? most : NULL;
}

/* The step says where a parameter begins, not the kernel: kernels that differ in nothing else (parts of a concatenation, slices) are one. */
static void move_offsets(emitter *E, tn_step *step)
{
    for (int a = 0; a < E->nargs; a++) {
        tn_session *s = E->F->session;
        tn_dim offset = common_offset(E, a), from = offset ? offset : tn_dim_const(s, 0), elements = elements_of_views(E, a, from);
        if (offset || elements) /* the whole, of which they see a part, may be larger for another */
            E->kernel->buffers.at[a].elements = elements;
        if (!offset)
            continue;
        if (!step->offset)
            step->offset = TN_NEW_ARRAY(&s->arena, tn_dim, (size_t)E->nargs);
        step->offset[a] = offset;
        for (size_t i = 0; i < E->kernel->views.len; i++)
            if (E->kernel->views.at[i]->buffer == a)
                E->kernel->views.at[i]->offset = tn_dim_sub(s, E->kernel->views.at[i]->offset, offset);
    }
}

tn_step *emitter_finish(emitter *E, tn_steps *steps)
{
    fuser *F = E->F;
    if (fuse_for_gpu(F))
        fuse_gpu_finish(E);
    bool init = runs_at_load(E);
    for (int i = 0; init && i < E->nargs; i++)
        if (E->kernel->buffers.at[i].mode == TN_WRITE)
            F->program->buffers.at[E->arg_buffer[i]].persistent = true;
    if (init)
        steps = &F->program->steps;
    tn_step *step = fuse_step(F, steps, TN_STEP_KERNEL, NULL);
    step->kernel = E->kernel;
    step->nargs = E->nargs;
    step->args = TN_NEW_ARRAY(&F->session->arena, int, (size_t)E->nargs + 1);
    memcpy(step->args, E->arg_buffer, sizeof(int) * (size_t)E->nargs);
    step->init = init;
    if (!init)
        move_offsets(E, step);
    if (F->options->estimate && E->g && E->g->demands.len) {
        step->ns = fuse_together_ns(F, E->g);
        step->apart_ns = fuse_apart_ns(F, E->g);
    }
    for (size_t i = 0; E->g && i < E->g->demands.len; i++) {
        const tn_op *op = E->g->demands.at[i]->op;
        bool known = false;
        for (size_t k = 0; k < step->ops.len; k++)
            known |= step->ops.at[k] == op;
        if (!known)
            TN_PUSH(&F->session->arena, &step->ops, op);
    }
    if (!step->ops.len) /* what moves or packs elements for an operation */
        TN_PUSH(&F->session->arena, &step->ops, F->current);
    return step;
}

tn_ttype emitter_type(const emitter *E, tn_dtype dtype) { return tn_tile_type(dtype, E->rank, E->extent); }

/* ---- accesses ---------------------------------------------------------------------------------------------------------------- */

tn_dim fuse_total_stride(fuser *F, const location *l, const fmap *m, int j)
{
    tn_dim sum = tn_dim_const(F->session, 0);
    for (int i = 0; i < m->rank; i++)
        if (m->c[i].a.coef[j])
            sum = tn_dim_add(F->session, sum, tn_dim_mul(F->session, l->stride[i], m->c[i].a.coef[j]));
    return sum;
}

/* The extent of a dim together with the dims absorbed into it. */
tn_dim fuse_whole_extent(fuser *F, const group *g, int j)
{
    tn_dim e = g->dim[j].extent;
    int at = 0;
    while (g->order[at] != j)
        at++;
    for (int k = at - 1; k >= 0 && g->dim[g->order[k]].absorbed; k--)
        e = tn_dim_mul(F->session, e, g->dim[g->order[k]].extent);
    return e;
}

static tn_subscript dim_subscript(const emitter *E, int j)
{
    return E->axis[j] >= 0 ? tn_sub_block(E->start[j], E->axis[j]) : tn_sub_point(E->start[j]);
}

static tn_tvalue *raw_index(emitter *E, const dynamic_index *dyn) { return dyn->from ? emit_demand(E, dyn->from) : emit_load(E, dyn->value, dyn->at, NULL); }

static tn_tvalue *clamped(emitter *E, const dynamic_index *dyn, tn_tvalue *index)
{
    return tn_t_map3(&E->b, TN_S_clamp, tn_t_index(&E->b, 0), tn_t_cast(&E->b, index, TN_I64), tn_t_size(&E->b, dyn->limit));
}

/* The clamped run-time index, as an i64 tile or scalar of this phase. */
static tn_tvalue *dynamic_value(emitter *E, const dynamic_index *dyn) { return clamped(E, dyn, raw_index(E, dyn)); }

/* The same as a subscript. What is alike along some axes is not walked there, so that elements may be neighbours along them. */
static tn_subscript dynamic_subscript(emitter *E, const dynamic_index *dyn)
{
    int axes[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5};
    tn_tvalue *index = raw_index(E, dyn);
    if (index->def && index->def->code == TN_T_broadcast) {
        memcpy(axes, index->def->axis, sizeof axes);
        index = index->def->operand[0];
    }
    index = clamped(E, dyn, index);
    tn_subscript sub = index->type.rank ? tn_sub_index(index, index->type.rank, axes) : tn_sub_point(index);
    sub.inside = true;
    return sub;
}

/* Builds the view and subscripts of one access: a view dim for each group dim that moves it, one for each run-time index. */
static tn_view *access_view(emitter *E, int arg, const location *l, const fmap *m, tn_subscript *subs)
{
    fuser *F = E->F;
    tn_session *s = F->session;
    const group *g = E->g;
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK], offset = l->offset;
    int rank = 0, view_dim[FUSE_DIMS];
    for (int i = 0; i < m->rank; i++)
        offset = tn_dim_add(s, offset, tn_dim_mul(s, l->stride[i], m->c[i].a.base));
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        view_dim[j] = -1;
        if (g->dim[j].absorbed)
            continue;
        tn_dim by = fuse_total_stride(F, l, m, j);
        bool guarded = false;
        for (const fguard *q = m->guards; q; q = q->next)
            guarded |= q->at.coef[j] != NULL;
        if (tn_dim_is(by, 0) && !guarded)
            continue;
        assert(E->start[j] && rank < TN_MAX_RANK);
        view_dim[j] = rank;
        shape[rank] = fuse_whole_extent(F, g, j);
        stride[rank] = by;
        subs[rank++] = dim_subscript(E, j);
    }
    for (int i = 0; i < m->rank; i++) {
        const dynamic_index *dyn = m->c[i].dyn;
        if (!dyn)
            continue;
        assert(rank < TN_MAX_RANK);
        shape[rank] = tn_dim_add(s, dyn->limit, tn_dim_const(s, 1));
        stride[rank] = l->stride[i];
        subs[rank++] = dynamic_subscript(E, dyn);
    }
    char name[16];
    snprintf(name, sizeof name, "v%zu", E->kernel->views.len);
    tn_view *view = tn_kernel_view(E->kernel, name, arg, rank, shape, stride, offset);
    for (const fguard *q = m->guards; q; q = q->next) {
        tn_dim coef[TN_MAX_RANK];
        bool any = false;
        for (int k = 0; k < rank; k++)
            coef[k] = tn_dim_const(s, 0);
        for (int j = 0; j < g->ndims; j++)
            if (q->at.coef[j] && view_dim[j] >= 0) {
                coef[view_dim[j]] = q->at.coef[j];
                any = true;
            }
        if (any || !(tn_dim_is_const(q->at.base) && q->at.base->value >= 0 && tn_dim_le(s, tn_dim_add(s, q->at.base, tn_dim_const(s, 1)), q->limit)))
            tn_view_guard(E->kernel, view, coef, q->at.base, q->limit);
    }
    return view;
}

static tn_tvalue *constant_tile(emitter *E, const tn_tensor *t)
{
    return tn_t_const(&E->b, tn_tscalar(t->dtype), tn_tensor_at(t, 0));
}

/* A constant of one value, wherever it is read. */
const tn_tensor *fuse_single_constant(const tn_value *v)
{
    const tn_tensor *t = tn_constant_of(v);
    int64_t n;
    return t && tn_tensor_count(t, &n) && n > 0 && (t->splat || n == 1) ? t : NULL;
}

static tn_tvalue *load_at(emitter *E, const location *l, const fmap *m, tn_dtype dtype, const tn_number *padding)
{
    tn_subscript subs[TN_MAX_RANK];
    int arg = emitter_arg(E, l->buffer, TN_READ);
    tn_view *view = access_view(E, arg, l, m, subs);
    if (view->nguards && padding) {
        view->padded = true;
        view->padding = *padding;
    }
    int nblocks = 0;
    for (int d = 0; d < view->rank; d++)
        nblocks += subs[d].block || subs[d].naxes;
    tn_tvalue *v = tn_t_load(&E->b, view, subs, nblocks ? emitter_type(E, dtype) : tn_tscalar(dtype));
    if (nblocks && E->phase && E->last_sweep[arg] != E->phase) {
        E->row_load[arg][E->sweeps[arg] > 0] = v->def;
        E->sweeps[arg]++;
        E->last_sweep[arg] = E->phase;
    }
    return v;
}

tn_tvalue *emit_load(emitter *E, const tn_value *v, const fmap *map, const tn_number *padding)
{
    const tn_tensor *single = fuse_single_constant(v);
    if (single && !map->guards)
        return constant_tile(E, single);
    tn_number zero = tn_number_from_int(v->type.dtype, 0);
    if (!padding && !map->repeated) /* guards of a pad or a concatenation: a select discards what is outside. Taps outside are absent. */
        padding = &zero;
    return load_at(E, fuse_location(E->F, v), map, v->type.dtype, padding);
}

/* A tile axis that no dim of the group walks (a product without columns): its first element is stored. */
static void store_first_of_axis(emitter *E, tn_view *view, tn_subscript *subs, int axis)
{
    tn_session *s = E->F->session;
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < (subs[d].block ? 1 : subs[d].naxes); i++)
            if (subs[d].axis[i] == axis)
                return;
    assert(view->rank < TN_MAX_RANK);
    view->shape[view->rank] = tn_dim_const(s, 1);
    view->stride[view->rank] = tn_dim_const(s, 0);
    for (int g = 0; g < view->nguards; g++)
        view->guard[g].coef[view->rank] = tn_dim_const(s, 0);
    subs[view->rank++] = tn_sub_block(tn_t_index(&E->b, 0), axis);
}

void emit_store(emitter *E, const location *to, const fmap *map, tn_tvalue *value)
{
    tn_subscript subs[TN_MAX_RANK];
    int arg = emitter_arg(E, to->buffer, TN_WRITE);
    emit_store_at(E, access_view(E, arg, to, map, subs), subs, value);
}

void emit_store_at(emitter *E, tn_view *view, tn_subscript *subs, tn_tvalue *value)
{
    if (value->type.rank == 0 && E->rank) /* a scalar result is stored at each element */
        value = tn_t_broadcast(&E->b, value, emitter_type(E, value->type.dtype), NULL);
    for (int axis = 0; axis < value->type.rank; axis++)
        if (value->type.extent[axis].size != 1)
            store_first_of_axis(E, view, subs, axis);
    tn_t_store(&E->b, view, subs, value);
}

/* ---- elements of operations ------------------------------------------------------------------------------------------------- */

tn_tvalue *emit_affine(emitter *E, const affine *a)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *sum = tn_t_size(b, a->base);
    for (int j = 0; j < E->g->ndims; j++) {
        if (!a->coef[j] || E->g->dim[j].absorbed) /* the dim that took it in walks it too */
            continue;
        tn_tvalue *at = E->start[j];
        if (E->axis[j] >= 0) {
            at = tn_t_range(b, at, E->extent[E->axis[j]]);
            at = tn_t_broadcast(b, at, emitter_type(E, TN_I64), &E->axis[j]);
        }
        sum = tn_t_map2(b, TN_S_add, sum, tn_t_map2(b, TN_S_mul, at, tn_t_size(b, a->coef[j])));
    }
    return sum;
}

static tn_tvalue *emit_coord(emitter *E, const coord *c)
{
    tn_tvalue *at = emit_affine(E, &c->a);
    return c->dyn ? tn_t_map2(&E->b, TN_S_add, at, dynamic_value(E, c->dyn)) : at;
}

static tn_tvalue *emit_guards(emitter *E, const fguard *from, const fguard *until)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *all = NULL;
    for (const fguard *q = from; q && q != until; q = q->next) {
        tn_tvalue *at = emit_affine(E, &q->at);
        tn_tvalue *ok = tn_t_map2(b, TN_S_and, tn_t_map2(b, TN_S_ge, at, tn_t_index(b, 0)), tn_t_map2(b, TN_S_lt, at, tn_t_size(b, q->limit)));
        all = all ? tn_t_map2(b, TN_S_and, all, ok) : ok;
    }
    return all;
}

static tn_tvalue *select_where(emitter *E, tn_tvalue *cond, tn_tvalue *x, tn_tvalue *y)
{
    return cond ? tn_t_map3(&E->b, TN_S_select, cond, x, y) : x;
}

static bool all_constant(const tn_op *op)
{
    for (int i = 0; i < op->noperands; i++)
        if (!fuse_single_constant(tn_operand(op, i)))
            return false;
    return true;
}

tn_tvalue *emit_operand(emitter *E, demand *d, int i)
{
    const tn_value *x = tn_operand(d->op, i);
    const tn_tensor *single = fuse_single_constant(x);
    const fmap *m = d->argmap[i];
    bool tap = m && m->repeated && m->guards && (!op_is_point(d->op) || all_constant(d->op)); /* outside its window it must be absent */
    if (single && !tap)
        return constant_tile(E, single);
    if (d->arg[i])
        return emit_demand(E, d->arg[i]);
    if (d->argmap[i])
        return emit_load(E, x, d->argmap[i], NULL);
    /* A reshape of a stored operand: the same elements in the same order, so the result's own strides serve. */
    assert(d->op->code == TN_OP_reshape);
    const location *l = fuse_location(E->F, x);
    location *as = fuse_dense(E->F, l->buffer, &d->op->result->type);
    as->offset = l->offset;
    tn_number zero = tn_number_from_int(x->type.dtype, 0);
    return load_at(E, as, d->map, x->type.dtype, d->map->repeated ? NULL : &zero);
}

static tn_tvalue *emit_pad(emitter *E, demand *d)
{
    const tn_value *x = tn_operand(d->op, 0);
    const tn_tensor *value = fuse_single_constant(tn_operand(d->op, 1));
    if (value && !d->arg[0] && !fuse_single_constant(x) && d->map->guards == NULL) {
        tn_number number = tn_tensor_at(value, 0);
        return emit_load(E, x, d->argmap[0], &number);
    }
    return select_where(E, emit_guards(E, d->argmap[0]->guards, d->map->guards), emit_operand(E, d, 0), emit_operand(E, d, 1));
}

static tn_tvalue *emit_concatenate(emitter *E, demand *d)
{
    tn_tvalue *v = emit_operand(E, d, d->nargs - 1);
    for (int i = d->nargs - 2; i >= 0; i--)
        v = select_where(E, emit_guards(E, d->argmap[i]->guards, d->map->guards), emit_operand(E, d, i), v);
    return v;
}

static tn_tvalue *emit_update_slice(emitter *E, demand *d)
{
    tn_tbuilder *b = &E->b;
    const tn_value *update = tn_operand(d->op, 1);
    const location *l = fuse_location(E->F, update);
    tn_subscript subs[TN_MAX_RANK];
    tn_tvalue *inside = NULL;
    int axes[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5}, rank = update->type.rank;
    for (int k = 0; k < rank; k++) {
        tn_tvalue *at = emit_affine(E, &d->map->c[k].a);
        tn_dim size = update->type.dim[k], limit = tn_dim_sub(E->F->session, d->op->result->type.dim[k], size);
        if (!tn_dim_is(limit, 0)) {
            tn_tvalue *start = tn_t_cast(b, emit_operand(E, d, 2 + k), TN_I64);
            at = tn_t_map2(b, TN_S_sub, at, tn_t_map3(b, TN_S_clamp, tn_t_index(b, 0), start, tn_t_size(b, limit)));
            tn_tvalue *ok = tn_t_map2(b, TN_S_and, tn_t_map2(b, TN_S_ge, at, tn_t_index(b, 0)), tn_t_map2(b, TN_S_lt, at, tn_t_size(b, size)));
            inside = inside ? tn_t_map2(b, TN_S_and, inside, ok) : ok;
        }
        subs[k] = at->type.rank ? tn_sub_index(at, at->type.rank, axes) : tn_sub_point(at);
    }
    char name[16];
    snprintf(name, sizeof name, "v%zu", E->kernel->views.len);
    tn_view *view = tn_kernel_view(E->kernel, name, emitter_arg(E, l->buffer, TN_READ), rank, update->type.dim, l->stride, l->offset);
    view->padded = true;
    view->padding = tn_number_from_int(update->type.dtype, 0);
    bool any = false;
    for (int k = 0; k < rank; k++)
        any |= subs[k].naxes > 0;
    tn_tvalue *x = tn_t_load(b, view, subs, any ? emitter_type(E, update->type.dtype) : tn_tscalar(update->type.dtype));
    return select_where(E, inside, x, emit_operand(E, d, 0));
}

static tn_tvalue *emit_convert(emitter *E, const tn_op *op, tn_tvalue *x)
{
    tn_dtype to = op->result->type.dtype;
    if (tn_attr_int(op, TN_A_saturate, 0) && (to == TN_F8E4M3 || to == TN_F8E5M2) && tn_is_float(x->type.dtype)) {
        double most = to == TN_F8E4M3 ? 448.0 : 57344.0;
        tn_tvalue *hi = tn_t_const(&E->b, tn_tscalar(x->type.dtype), tn_number_from_double(x->type.dtype, most));
        tn_tvalue *lo = tn_t_const(&E->b, tn_tscalar(x->type.dtype), tn_number_from_double(x->type.dtype, -most));
        x = tn_t_map3(&E->b, TN_S_clamp, lo, x, hi);
    }
    return tn_t_cast(&E->b, x, to);
}

static tn_tvalue *emit_reduce_precision(emitter *E, const tn_op *op, tn_tvalue *x)
{
    tn_dtype through = tn_attr_int(op, TN_A_mantissa_bits, 0) == 7 ? TN_BF16 : TN_F16;
    return tn_t_cast(&E->b, tn_t_cast(&E->b, x, through), op->result->type.dtype);
}

static bool is_total_order(const tn_op *op)
{
    return op->code == TN_OP_compare && tn_attr_int(op, TN_A_total_order, 0) && tn_is_float(tn_operand(op, 0)->type.dtype);
}

/* Integers ordered as IEEE totalOrder orders the floats: all bits but the sign flip where the sign is set. */
static tn_tvalue *order_key(tn_tbuilder *b, tn_tvalue *x)
{
    int bits = tn_dtype_bits(x->type.dtype);
    tn_dtype dtype = bits == 64 ? TN_I64 : bits == 32 ? TN_I32 : bits == 16 ? TN_I16 : TN_I8;
    tn_ttype scalar = tn_tscalar(dtype);
    tn_number last = {.i = bits - 1}, rest = {.i = INT64_MAX >> (64 - bits)};
    tn_tvalue *key = tn_t_bitcast(b, x, dtype), *sign = tn_t_map2(b, TN_S_shr_arith, key, tn_t_const(b, scalar, last));
    return tn_t_map2(b, TN_S_xor, key, tn_t_map2(b, TN_S_and, sign, tn_t_const(b, scalar, rest)));
}

static tn_tvalue *emit_scalar_fn(tn_tbuilder *b, const tn_op *op, tn_tvalue **x)
{
    for (int i = 0; i < op->noperands && is_total_order(op); i++)
        x[i] = order_key(b, x[i]);
    return tn_t_map(b, tn_op_scalar(op), x, op->noperands);
}

static tn_tvalue *emit_point(emitter *E, demand *d)
{
    const tn_op *op = d->op;
    tn_scalar fn = tn_op_scalar(op);
    if (d->passes)
        return emit_operand(E, d, d->passes - 1);
    if (fn != TN_SCALAR_NONE) {
        tn_tvalue *x[3];
        for (int i = 0; i < op->noperands; i++) {
            x[i] = emit_operand(E, d, i);
            x[i] = d->wide ? attend_widen(E, x[i]) : x[i];
        }
        return emit_scalar_fn(&E->b, op, x);
    }
    switch (op->code) {
    case TN_OP_convert:
        if (d->wide)
            return tn_t_cast(&E->b, emit_operand(E, d, 0), fuse_accumulator(op->result->type.dtype));
        return emit_convert(E, op, emit_operand(E, d, 0));
    case TN_OP_reduce_precision:
        return emit_reduce_precision(E, op, emit_operand(E, d, 0));
    case TN_OP_bitcast_convert:
        return tn_t_bitcast(&E->b, emit_operand(E, d, 0), op->result->type.dtype);
    case TN_OP_iota:
        return tn_t_cast(&E->b, emit_coord(E, &d->map->c[tn_attr_int(op, TN_A_iota_dimension, 0)]), op->result->type.dtype);
    case TN_OP_dimension:
        return tn_t_size(&E->b, tn_find_attr(op, TN_A_dim)->dim);
    case TN_OP_pad:
        return emit_pad(E, d);
    case TN_OP_concatenate:
        return emit_concatenate(E, d);
    case TN_OP_dynamic_update_slice:
        return emit_update_slice(E, d);
    default: /* a view: nothing but the operand's map differs */
        return emit_operand(E, d, 0);
    }
}

/* ---- phases --------------------------------------------------------------------------------------------------------------------- */

static bool is_reduction_op(const tn_op *op)
{
    return op->code == TN_OP_reduce || op->code == TN_OP_reduce_window || op->code == TN_OP_convolution;
}

/* The demand's element is the same for every value of the fold dims. */
static bool is_row_value(const group *g, const demand *d)
{
    if (g->kind != GROUP_FOLD)
        return false;
    for (int i = 0; i < d->map->rank; i++)
        for (int j = 0; j < g->ndims; j++)
            if (g->dim[j].fold && d->map->c[i].a.coef[j])
                return false;
    for (int i = 0; i < d->map->rank; i++)
        if (d->map->c[i].dyn)
            return false;
    for (const fguard *q = d->map->guards; q; q = q->next)
        for (int j = 0; j < g->ndims; j++)
            if (g->dim[j].fold && q->at.coef[j])
                return false;
    return true;
}

static bool in_full_phase(const emitter *E)
{
    for (int j = 0; j < E->g->ndims; j++)
        if (E->g->dim[j].fold && !E->g->dim[j].absorbed)
            return E->start[j] != NULL;
    return false;
}

/* A row tile in a full phase. Row axes lead, so axis i stays axis i. */
static tn_tvalue *spread_row(emitter *E, tn_tvalue *row)
{
    int axes[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5};
    if (row->type.rank == 0 || row->type.rank == E->rank)
        return row;
    return tn_t_broadcast(&E->b, row, emitter_type(E, row->type.dtype), axes);
}

static tn_tvalue *load_local(emitter *E, const demand *d);
static void store_local(emitter *E, const demand *d, tn_tvalue *value);

static bool is_product_of(const group *g, const demand *d)
{
    for (int i = 0; i < g->nproducts; i++)
        if (g->product[i] == d)
            return true;
    return false;
}

tn_tvalue *emit_demand(emitter *E, demand *d)
{
    bool full = in_full_phase(E), row = is_row_value(E->g, d);
    tn_tvalue **results = E->g->kind == GROUP_POINT ? NULL : tn_map_get(&E->folds, TN_KEY(d)), *narrow;
    if (results || is_product_of(E->g, d) || (E->g->kind == GROUP_FOLD && is_reduction_op(d->op))) {
        assert(results && "a reduction is emitted before its users");
        return full && E->g->kind == GROUP_FOLD ? spread_row(E, results[0]) : results[0];
    }
    if (d->tile && d->phase == E->phase)
        return d->tile;
    if (full && row && d->tile && d->phase == 0)
        return spread_row(E, d->tile);
    if (full && d->local != NOT_KEPT && d->last_phase >= 0 && d->last_phase != E->phase) {
        d->tile = load_local(E, d);
        d->phase = E->phase;
        return d->tile;
    }
    if (E->attend && (narrow = attend_demand(E, d)))
        return narrow;
    tn_tvalue *v = emit_point(E, d);
    if (full && d->local != NOT_KEPT && d->last_phase < 0) {
        v = v->type.rank == E->rank ? v : tn_t_broadcast(&E->b, v, emitter_type(E, v->type.dtype), NULL);
        store_local(E, d, v);
        d->last_phase = E->phase;
    }
    d->tile = v;
    d->phase = E->phase;
    return v;
}

/* Emits, in the row phase, the row values that a full expression will read; what several operations read is looked at once a walk. */
static void visit_rows(emitter *E, demand *d)
{
    if (is_reduction_op(d->op) || d->walk == E->walk)
        return;
    d->walk = E->walk;
    if (is_row_value(E->g, d)) {
        if (!(d->tile && d->phase == 0))
            emit_demand(E, d);
        return;
    }
    for (int i = 0; i < d->nargs; i++)
        if (d->arg[i])
            visit_rows(E, d->arg[i]);
}

static void prepare_rows(emitter *E, demand *d)
{
    E->walk++;
    visit_rows(E, d);
}

/* ---- values kept between phases --------------------------------------------------------------------------------------------------- */

static bool is_costly(const tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    return fn != TN_SCALAR_NONE && !(tn_scalar_traits(fn) & TN_SCALAR_CHEAP) && fn != TN_S_div && fn != TN_S_rem;
}

static void count_phase(const group *g, demand *d, int phase)
{
    if (is_reduction_op(d->op) || is_row_value(g, d) || d->last_phase == phase)
        return;
    d->last_phase = phase;
    d->phases++;
    for (int i = 0; i < d->nargs; i++)
        if (d->arg[i])
            count_phase(g, d->arg[i], phase);
}

/* dims of a local buffer: the fold dims in order, then the row tile's axis. */
static tn_view *local_view(emitter *E, const demand *d, tn_subscript *subs)
{
    fuser *F = E->F;
    tn_session *s = F->session;
    const group *g = E->g;
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK], size = tn_dim_const(s, 1);
    int rank = 0;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (!g->dim[j].fold || g->dim[j].absorbed)
            continue;
        shape[rank] = fuse_whole_extent(F, g, j);
        subs[rank++] = dim_subscript(E, j);
    }
    for (int a = 0; a < E->row_axes; a++) {
        shape[rank] = tn_dim_const(s, E->extent[a].size);
        subs[rank] = tn_sub_block(tn_t_index(&E->b, 0), a);
        subs[rank++].inside = true;
    }
    for (int i = rank; i-- > 0;) {
        stride[i] = size;
        size = tn_dim_mul(s, size, shape[i]);
    }
    char name[16];
    snprintf(name, sizeof name, "v%zu", E->kernel->views.len);
    return tn_kernel_view(E->kernel, name, d->local, rank, shape, stride, tn_dim_const(s, 0));
}

static tn_tvalue *load_local(emitter *E, const demand *d)
{
    if (d->local == KEPT_IN_RESULT)
        return load_at(E, fuse_location(E->F, E->g->root->result), d->map, d->op->result->type.dtype, NULL);
    tn_subscript subs[TN_MAX_RANK];
    tn_view *view = local_view(E, d, subs);
    return tn_t_load(&E->b, view, subs, emitter_type(E, d->op->result->type.dtype));
}

static void store_local(emitter *E, const demand *d, tn_tvalue *value)
{
    if (d->local == KEPT_IN_RESULT) {
        emit_store(E, fuse_location(E->F, E->g->root->result), d->map, value);
        return;
    }
    tn_subscript subs[TN_MAX_RANK];
    tn_view *view = local_view(E, d, subs);
    tn_t_store(&E->b, view, subs, value);
}

/* ---- scalar regions ------------------------------------------------------------------------------------------------------------------- */

tn_tvalue *emit_scalar_region(emitter *E, tn_tbuilder *b, const tn_block *region, tn_tvalue *const *args, int which)
{
    tn_map values = {.arena = E->F->arena};
    for (int i = 0; i < region->nargs; i++)
        *tn_map_at(&values, TN_KEY(region->arg[i])) = args[i];
    for (const tn_op *op = region->first; op != region->last; op = op->next) {
        tn_tvalue *x[3], *r;
        const tn_tensor *constant = op->code == TN_OP_constant ? tn_find_attr(op, TN_A_value)->tensor : NULL;
        for (int i = 0; !constant && i < op->noperands; i++)
            x[i] = tn_map_get(&values, TN_KEY(tn_operand(op, i)));
        tn_scalar fn = tn_op_scalar(op);
        if (constant)
            r = tn_t_const(b, tn_tscalar(constant->dtype), tn_tensor_at(constant, 0));
        else if (op->code == TN_OP_convert)
            r = tn_t_cast(b, x[0], op->result->type.dtype);
        else if (fn != TN_SCALAR_NONE)
            r = emit_scalar_fn(b, op, x);
        else
            r = x[0]; /* a reshape or broadcast of a scalar */
        *tn_map_at(&values, TN_KEY(op->result)) = r;
    }
    return tn_map_get(&values, TN_KEY(tn_operand(region->last, which)));
}

/* ---- reductions --------------------------------------------------------------------------------------------------------------------------- */

tn_scalar fuse_region_fn(const tn_block *region)
{
    const tn_op *op = region->first;
    if (region->nargs != 2 || !op || op->next != region->last || op->noperands != 2 || tn_operand(region->last, 0) != op->result)
        return TN_SCALAR_NONE;
    bool both = (tn_operand(op, 0) == region->arg[0] && tn_operand(op, 1) == region->arg[1]) ||
                (tn_operand(op, 0) == region->arg[1] && tn_operand(op, 1) == region->arg[0]);
    tn_scalar fn = tn_op_scalar(op);
    return both && fn != TN_SCALAR_NONE && (tn_scalar_traits(fn) & TN_SCALAR_ASSOCIATES) && (tn_scalar_traits(fn) & TN_SCALAR_COMMUTES) ? fn : TN_SCALAR_NONE;
}

tn_precision fuse_precision(const fuser *F, tn_dtype factors) { return factors == TN_F32 ? F->options->precision : TN_IEEE; }

tn_dtype fuse_accumulator(tn_dtype dtype) { return tn_is_float(dtype) && tn_dtype_bits(dtype) < 32 ? TN_F32 : dtype; }

/* Enters a full phase inside `block`: the fold dims get their starts. */
static void enter_full(emitter *E, tn_tblock *block, tn_tvalue *const *starts, const int *dims, int n, const int *axis, const tn_extent *extent)
{
    E->b.block = block;
    E->phase = ++E->phases;
    for (int i = 0; i < n; i++) {
        E->start[dims[i]] = starts[i];
        E->axis[dims[i]] = axis[i];
        if (axis[i] >= 0) {
            E->extent[axis[i]] = extent[i];
            E->rank = axis[i] + 1;
        }
    }
}

static void leave_full(emitter *E, tn_tblock *block, const int *dims, int n)
{
    E->b.block = block;
    E->phase = 0;
    E->rank = E->row_axes;
    for (int i = 0; i < n; i++) {
        E->start[dims[i]] = NULL;
        E->axis[dims[i]] = -1;
    }
}

typedef struct fold_plan {
    int dim[FUSE_DIMS], n;     /* fold dims, outermost first */
    int axis[FUSE_DIMS];       /* tile axis or -1 (one element at a time) */
    tn_extent step[FUSE_DIMS];
    bool lanes;                /* the vectors walk the last fold dim */
} fold_plan;

/* The elements that a reduction combines, in the phase in scope. */
static tn_tvalue *reduction_element(emitter *E, demand *d, int i)
{
    if (d->op->code != TN_OP_convolution)
        return tn_t_cast(&E->b, emit_operand(E, d, i), fuse_accumulator(tn_operand(d->op, i)->type.dtype));
    tn_dtype acc = fuse_accumulator(d->op->result->type.dtype);
    return tn_t_map2(&E->b, TN_S_mul, tn_t_cast(&E->b, emit_operand(E, d, 0), acc), tn_t_cast(&E->b, emit_operand(E, d, 1), acc));
}

tn_tvalue *emit_full_tile(emitter *E, tn_tvalue *v)
{
    return v->type.rank == E->rank ? v : tn_t_broadcast(&E->b, v, emitter_type(E, v->type.dtype), NULL);
}

/* result := result combined with the initial value, which is the identity almost always. */
static tn_tvalue *with_initial(emitter *E, demand *d, int i, tn_scalar fn, tn_number identity, tn_tvalue *folded)
{
    int n = d->op->nresults;
    const tn_value *init = tn_operand(d->op, n + i);
    const tn_tensor *constant = fuse_single_constant(init);
    tn_dtype dtype = init->type.dtype;
    tn_number start = tn_number_convert(identity, fuse_accumulator(dtype), dtype);
    if (tn_is_float(dtype) && isnan(start.f)) /* of nothing the type can hold nothing: f8 e4m3 has no infinity. Only maxima and minima start at one, which are as exact before the cast */
        return tn_t_cast(&E->b, tn_t_map2(&E->b, fn, folded, tn_t_cast(&E->b, emit_operand(E, d, n + i), folded->type.dtype)), dtype);
    folded = tn_t_cast(&E->b, folded, dtype);
    if (constant && tn_number_same(dtype, tn_number_convert(identity, fuse_accumulator(dtype), dtype), tn_tensor_at(constant, 0)))
        return folded;
    return tn_t_map2(&E->b, fn, folded, emit_operand(E, d, n + i));
}

/* Some element of the tile is found by its position along the axis, so that it ends where that does. */
static bool walks_axis(const tn_tvalue *v, int axis)
{
    const tn_top *op = v->def;
    if (axis >= v->type.rank || !op || op->code == TN_T_const)
        return false;
    for (int d = 0; op->code == TN_T_load && d < op->view->rank; d++)
        for (int i = 0; i < (op->subscript[d].block ? 1 : op->subscript[d].naxes); i++)
            if (op->subscript[d].axis[i] == axis && (op->subscript[d].block || walks_axis(op->subscript[d].value, i)))
                return true;
    if (op->code == TN_T_load)
        return false;
    if (op->code == TN_T_broadcast) {
        for (int i = 0; i < op->naxes; i++)
            if (op->axis[i] == axis)
                return walks_axis(op->operand[0], i);
        return false;
    }
    bool any = op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_bitcast;
    for (int i = 0; !any && i < op->noperands; i++)
        any = walks_axis(op->operand[i], axis);
    return any;
}

/* A tile that is the same all along the folded dim still has only as many elements as the dim. */
tn_tvalue *emit_end(emitter *E, tn_tvalue *x, int j, tn_number identity)
{
    int axis = E->axis[j];
    if (walks_axis(x, axis))
        return x;
    tn_tbuilder *b = &E->b;
    tn_tvalue *at = tn_t_broadcast(b, tn_t_range(b, E->start[j], E->extent[axis]), emitter_type(E, TN_I64), &axis);
    tn_tvalue *inside = tn_t_map2(b, TN_S_lt, at, tn_t_size(b, fuse_whole_extent(E->F, E->g, j)));
    return tn_t_map3(b, TN_S_select, inside, x, tn_t_const(b, tn_tscalar(x->type.dtype), identity));
}

static void emit_reduction(emitter *E, demand *d, const fold_plan *plan)
{
    fuser *F = E->F;
    const tn_op *op = d->op;
    bool depthwise = op->code == TN_OP_convolution;
    int n = depthwise ? 1 : op->nresults;
    for (int i = 0; i < d->nargs; i++)
        if (d->arg[i] && (depthwise || i < n))
            prepare_rows(E, d->arg[i]);
    tn_tvalue *limit[FUSE_DIMS];
    for (int i = 0; i < plan->n; i++)
        limit[i] = tn_t_size(&E->b, fuse_whole_extent(F, E->g, plan->dim[i]));
    int axes[TN_TILE_RANK], naxes = 0;
    for (int i = 0; i < plan->n; i++)
        if (plan->axis[i] >= 0)
            axes[naxes++] = plan->axis[i];
    tn_tblock *outer = E->b.block;
    tn_top *fold = tn_t_fold(&E->b, plan->n, limit, plan->step, naxes, axes);
    tn_tvalue *starts[FUSE_DIMS];
    for (int i = 0; i < plan->n; i++)
        starts[i] = &fold->region[0]->arg[i];
    enter_full(E, fold->region[0], starts, plan->dim, plan->n, plan->axis, plan->step);
    tn_tvalue *x[16];
    for (int i = 0; i < n; i++)
        x[i] = emit_full_tile(E, reduction_element(E, d, i));
    tn_scalar fn = depthwise ? TN_S_add : fuse_region_fn(op->region[0]);
    tn_number identity[16];
    tn_dtype acc = x[0]->type.dtype;
    if (fn != TN_SCALAR_NONE)
        tn_scalar_identity(fn, acc, &identity[0]);
    else
        for (int i = 0; i < n; i++)
            identity[i] = tn_number_convert(tn_tensor_at(fuse_single_constant(tn_operand(op, n + i)), 0), tn_operand(op, i)->type.dtype, x[i]->type.dtype);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < plan->n; k++)
            if (plan->axis[k] >= 0)
                x[i] = emit_end(E, x[i], plan->dim[k], identity[i]);
    tn_t_yield(&E->b, x, n);
    leave_full(E, outer, plan->dim, plan->n);

    if (fn != TN_SCALAR_NONE) {
        tn_t_fold_finish(&E->b, fold, identity, 1);
        tn_t_combine_fn(&E->b, fold->region[1], fn, acc);
    } else {
        tn_t_fold_finish(&E->b, fold, identity, n);
        tn_tbuilder in = tn_tbuilder_at(E->kernel, fold->region[1], op->loc);
        tn_tvalue *args[32], *r[16];
        for (int i = 0; i < 2 * n; i++)
            args[i] = tn_t_cast(&in, &fold->region[1]->arg[i], tn_operand(op, i % n)->type.dtype);
        for (int i = 0; i < n; i++)
            r[i] = tn_t_cast(&in, emit_scalar_region(E, &in, op->region[0], args, i), x[i]->type.dtype);
        tn_t_yield(&in, r, n);
    }
    tn_tvalue **results = TN_NEW_ARRAY(F->arena, tn_tvalue *, 16);
    for (int i = 0; i < n; i++)
        results[i] = depthwise                 ? tn_t_cast(&E->b, &fold->result[i], op->result->type.dtype)
                     : fn != TN_SCALAR_NONE ? with_initial(E, d, i, fn, identity[0], &fold->result[i])
                                            : tn_t_cast(&E->b, &fold->result[i], op->result[i].type.dtype);
    *tn_map_at(&E->folds, TN_KEY(d)) = results;
}

/* ---- schedules ------------------------------------------------------------------------------------------------------------------------------- */

/* Visits each stored access of the group: operands read at a map, run-time indices, what is stored. */
void fuse_visit_accesses(fuser *F, group *g, access_visit *visit, void *context)
{
    for (size_t k = 0; k < g->demands.len; k++) {
        demand *d = g->demands.at[k];
        for (int i = 0; i < d->nargs; i++) {
            const tn_value *x = tn_operand(d->op, i);
            if (d->arg[i] || fuse_single_constant(x) || (d->op->code == TN_OP_gather && i == 1))
                continue;
            if (d->argmap[i]) {
                visit(context, F, fuse_location(F, x), d->argmap[i], false);
            } else if (d->op->code == TN_OP_reshape) {
                location *as = fuse_dense(F, fuse_location(F, x)->buffer, &d->op->result->type);
                visit(context, F, as, d->map, false);
            }
        }
        for (int i = 0; d->nargs && d->argmap[0] && i < d->argmap[0]->rank; i++) {
            const dynamic_index *dyn = d->argmap[0]->c[i].dyn;
            if (dyn && !dyn->from && !fuse_single_constant(dyn->value))
                visit(context, F, fuse_location(F, dyn->value), dyn->at, false);
        }
    }
    for (size_t k = 0; k < g->stored.len; k++)
        for (int i = 0; i < g->stored.at[k]->op->nresults; i++)
            visit(context, F, fuse_location(F, &g->stored.at[k]->op->result[i]), g->stored.at[k]->map, true);
}

typedef struct stride_votes {
    group *g;
    int unit[FUSE_DIMS];
    bool store[FUSE_DIMS];
} stride_votes;

/* Is the place read another one for more than one of the group's dims, or for what an index says? On a GPU, and where rows are reduced, such an access counts more than any number of vectors; but not what is
 * the same along so many elements that it is little beside what moves along them: numbers of words, statistics of rows. */
static bool is_wide(fuser *F, const group *g, const location *l, const fmap *m)
{
    enum { LITTLE = 64 };
    int moving = 0;
    int64_t same = 1;
    for (int j = 0; j < g->ndims; j++) {
        if (tn_dim_is(g->dim[j].extent, 1))
            continue;
        bool moves = !tn_dim_is(fuse_total_stride(F, l, m, j), 0);
        moving += moves;
        if (!moves && tn_dim_is_const(g->dim[j].extent))
            same = tn_min(same, LITTLE) * tn_min(g->dim[j].extent->value, LITTLE + 1);
    }
    for (int i = 0; i < m->rank; i++)
        if (m->c[i].dyn)
            moving++, same = 1;
    return moving > 1 && same <= LITTLE;
}

/* How often an access is made for one element of the result: what a window reads counts once for each of its places. */
static int64_t times_read(fuser *F, const group *g, const location *l, const fmap *m)
{
    int64_t times = 1;
    for (int j = 0; j < g->ndims; j++)
        if (g->dim[j].fold && tn_dim_is_const(g->dim[j].extent) && !tn_dim_is(fuse_total_stride(F, l, m, j), 0))
            times = tn_min(times * tn_max(g->dim[j].extent->value, 1), FUSE_ARGS);
    return times;
}

static void vote(void *context, fuser *F, const location *l, const fmap *m, bool store)
{
    stride_votes *v = context;
    bool gpu = fuse_for_gpu(F);
    int weight = (gpu || (v->g->kind == GROUP_FOLD && !v->g->windowed)) && is_wide(F, v->g, l, m) ? FUSE_ARGS : !gpu && v->g->windowed && !store ? (int)times_read(F, v->g, l, m) : 1;
    for (int j = 0; j < v->g->ndims; j++)
        if (!v->g->dim[j].absorbed && !tn_dim_is(v->g->dim[j].extent, 1) && tn_dim_is(fuse_total_stride(F, l, m, j), 1)) {
            v->unit[j] += weight;
            v->store[j] |= store;
        }
}

typedef struct merge_check {
    group *g;
    int a, b;
    bool ok;
} merge_check;

static bool merges(fuser *F, const affine *at, int a, int b, tn_dim extent)
{
    tn_dim ca = affine_coef(F, at, a), cb = affine_coef(F, at, b);
    return tn_dim_eq(F->session, ca, tn_dim_mul(F->session, cb, extent));
}

static void check_merge(void *context, fuser *F, const location *l, const fmap *m, bool store)
{
    merge_check *c = context;
    (void)store;
    tn_dim extent = c->g->dim[c->b].extent;
    c->ok &= tn_dim_eq(F->session, fuse_total_stride(F, l, m, c->a), tn_dim_mul(F->session, fuse_total_stride(F, l, m, c->b), extent));
    for (const fguard *q = m->guards; q; q = q->next)
        c->ok &= merges(F, &q->at, c->a, c->b, extent);
}

/* Coordinates that become values must not lose a dim. */
static bool coordinates_are_values(const group *g, int a, int b)
{
    for (size_t k = 0; k < g->demands.len; k++) {
        const demand *d = g->demands.at[k];
        if (d->op->code == TN_OP_iota || d->op->code == TN_OP_dynamic_update_slice)
            for (int i = 0; i < d->map->rank; i++)
                if (d->map->c[i].a.coef[a] || d->map->c[i].a.coef[b])
                    return true;
    }
    return false;
}

/* Adjacent dims that every access walks as one become one. */
void fuse_merge_dims(fuser *F, group *g)
{
    for (int at = 0; at + 1 < g->ndims; at++) {
        int a = g->order[at], b = g->order[at + 1];
        if (g->dim[a].fold != g->dim[b].fold || g->dim[a].whole || g->dim[b].whole)
            continue;
        merge_check c = {g, a, b, !coordinates_are_values(g, a, b)};
        if (c.ok)
            fuse_visit_accesses(F, g, check_merge, &c);
        for (size_t k = 0; c.ok && k < g->demands.len; k++)
            for (const fguard *q = g->demands.at[k]->argmap[0] ? g->demands.at[k]->argmap[0]->guards : NULL; q; q = q->next)
                c.ok &= merges(F, &q->at, a, b, g->dim[b].extent);
        g->dim[a].absorbed = c.ok;
    }
}

static int64_t extent_or(tn_dim d, int64_t otherwise) { return tn_dim_is_const(d) ? d->value : otherwise; }

void emit_other_grid_dims(emitter *E, int j0, int j1)
{
    const group *g = E->g;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (!g->dim[j].fold && !g->dim[j].absorbed && j != j0 && j != j1)
            emit_grid_dim(E, j, 1, -1);
    }
}

void emit_set_result(emitter *E, const demand *d, tn_tvalue *v)
{
    tn_tvalue **results = TN_NEW_ARRAY(E->F->arena, tn_tvalue *, 1);
    results[0] = v;
    *tn_map_at(&E->folds, TN_KEY(d)) = results;
}

/* Splits the row dims into grid coordinates: `tiled` (if >= 0) walks by `step` along tile axis `axis`, the others by one. */
void emit_grid_dim(emitter *E, int j, int64_t step, int axis)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15"};
    char param[8];
    tn_extent extent = tn_extent_const(1);
    if (axis >= 0) {
        snprintf(param, sizeof param, "$%c", "RCABDE"[axis]);
        extent = tn_extent_param(E->kernel, param);
        tn_schedule_bind(E->kernel, param, step);
        extent.size = step;
        E->extent[axis] = extent;
        E->rank = axis + 1 > E->rank ? axis + 1 : E->rank;
        E->axis[j] = axis;
    }
    E->start[j] = tn_kernel_grid(E->kernel, names[j], fuse_whole_extent(E->F, E->g, j), extent);
}

static int pick_vector_dim(const group *g, const stride_votes *v, bool only_store)
{
    int best = -1, score = 0;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at], points = only_store ? v->store[j] * 100 : v->unit[j];
        if (!g->dim[j].absorbed && points >= score && points > 0) {
            best = j;
            score = points;
        }
    }
    for (int at = g->ndims; best < 0 && at-- > 0;)
        if (!g->dim[g->order[at]].absorbed && !tn_dim_is(g->dim[g->order[at]].extent, 1))
            best = g->order[at];
    return best;
}

/* Elements that a tile has along a dim (-1: none) at most: as many as there are, in whole tiles. */
static int64_t most_of(fuser *F, const group *g, int j) { return j >= 0 ? pow2_ceil(extent_or(fuse_whole_extent(F, g, j), INT32_MAX)) : 1; }

/* The tile of a CPU's program, or what the tuner takes instead. Time is estimated at a byte a ns and core: kernels that take longest are tuned first. */
static void ask_for_tile(emitter *E, int64_t *rows, int row, int64_t *columns, int vector)
{
    static const char *const fields[] = {"rows", "columns"};
    fuser *F = E->F;
    group *g = E->g;
    fuse_candidates c = {.field = fields, .nfields = TN_COUNT(fields), .tile = TN_COUNT(fields)};
    double ns = 1;
    if (!fuse_is_asked(F))
        return;
    for (int j = 0; j < g->ndims; j++)
        ns *= (double)extent_or(g->dim[j].extent, 256);
    fuse_add_neighbours(F, &c, (int64_t[]){*rows, *columns}, (int64_t[]){1, 1}, (int64_t[]){most_of(F, g, row), most_of(F, g, vector)}, ns / (double)tn_max(F->options->target.threads, 1));
    const int64_t *v = fuse_choose(F, g, tn_op_name(g->root->code), E, &c)->value;
    *rows = v[0], *columns = v[1];
}

const tn_top *emit_results(emitter *E, bool full)
{
    group *g = E->g;
    tn_tvalue **values[FUSE_RESULTS];
    const tn_top *store = NULL;
    for (size_t k = 0; k < g->stored.len; k++) { /* all of them first: what a row keeps may lie where one is stored */
        demand *d = g->stored.at[k];
        values[k] = NULL;
        if (g->kind == GROUP_FOLD && is_row_value(g, d) == full)
            continue;
        values[k] = g->kind == GROUP_FOLD && is_reduction_op(d->op) ? tn_map_get(&E->folds, TN_KEY(d)) : NULL; /* of which there may be several */
        if (values[k])
            continue;
        tn_tvalue *value = emit_demand(E, d);
        values[k] = tn_memdup(E->F->arena, &(tn_tvalue *){full && E->rank ? emit_full_tile(E, value) : value}, sizeof value);
    }
    for (size_t k = 0; k < g->stored.len; k++)
        for (int i = 0; values[k] && i < g->stored.at[k]->op->nresults; i++) {
            emit_store(E, fuse_location(E->F, &g->stored.at[k]->op->result[i]), g->stored.at[k]->map, values[k][i]);
            store = k == 0 ? E->b.block->last : store;
        }
    return store;
}

typedef struct crossings {
    const group *g;
    int vector;
    bool along[FUSE_DIMS]; /* one or more accesses have their elements along this dim and move along `vector` too */
} crossings;

static void see_crossing(void *context, fuser *F, const location *l, const fmap *m, bool store)
{
    crossings *c = context;
    (void)store;
    for (int j = 0; j < c->g->ndims && c->vector >= 0 && !tn_dim_is(fuse_total_stride(F, l, m, c->vector), 0); j++)
        c->along[j] |= j != c->vector && !tn_dim_is(c->g->dim[j].extent, 1) && tn_dim_is(fuse_total_stride(F, l, m, j), 1);
}

static void emit_point_group(fuser *F, tn_steps *steps, group *g)
{
    fuse_merge_dims(F, g);
    stride_votes votes = {.g = g};
    fuse_visit_accesses(F, g, vote, &votes);
    emitter *E = emitter_new(F, g, tn_op_name(g->root->code));
    int vector = pick_vector_dim(g, &votes, true), row = -1;
    for (int at = 0; at < g->ndims; at++)
        if (g->order[at] != vector && !g->dim[g->order[at]].absorbed && !tn_dim_is(g->dim[g->order[at]].extent, 1))
            row = g->order[at]; /* the innermost of the others */
    bool turned = false;
    crossings crossing = {g, vector, {false}};
    fuse_visit_accesses(F, g, see_crossing, &crossing);
    for (int j = 0; j < g->ndims; j++) /* or the one along which an operand lies: blocks of both are turned together */
        if (crossing.along[j] && !g->dim[j].absorbed && !g->dim[j].fold) {
            row = j;
            turned = true;
        }
    int64_t columns = 1, rows = 1;
    if (fuse_for_gpu(F)) {
        gpu_tile t = fuse_gpu_point(F, g, vector, row, turned);
        t = fuse_gpu_choose_tile(F, g, E, t, most_of(F, g, row), most_of(F, g, vector));
        columns = t.columns, rows = t.rows;
        tn_schedule_set(E->kernel, "", "warps", t.warps);
    } else if (vector >= 0) {
        int64_t n = extent_or(fuse_whole_extent(F, g, vector), 1024);
        columns = tn_min(pow2_ceil(n), 8192);
        if (turned) {
            columns = tn_min(columns, 256);
            rows = tn_min(64, pow2_ceil(extent_or(fuse_whole_extent(F, g, row), 64)));
        } else if (row >= 0)
            rows = tn_max(1, tn_min(4096 / columns, pow2_ceil(extent_or(fuse_whole_extent(F, g, row), 64))));
        ask_for_tile(E, &rows, row, &columns, vector);
    }
    bool two = row >= 0 && rows > 1;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (g->dim[j].absorbed)
            continue;
        if (j == vector)
            emit_grid_dim(E, j, columns, two ? 1 : 0);
        else
            emit_grid_dim(E, j, j == row ? rows : 1, j == row && two ? 0 : -1);
    }
    E->row_axes = E->rank;
    emit_results(E, false);
    emitter_finish(E, steps);
}

/* So large that the lowering stores it past the caches. */
static bool is_streamed(const group *g)
{
    const tn_type *type = &g->demands.at[0]->op->result->type;
    int64_t elements, bytes;
    return tn_type_count(type, &elements) && tn_mul(elements, tn_dtype_bits(type->dtype) / 8, &bytes) && bytes >= TN_STREAM_BYTES;
}

static bool lies_alike(const tn_view *a, const tn_view *b)
{
    bool alike = a->rank == b->rank && a->offset == b->offset;
    for (int d = 0; alike && d < a->rank; d++)
        alike = a->stride[d] == b->stride[d] && a->shape[d] == b->shape[d];
    return alike;
}

/* A row that several sweeps read comes from memory in the first, from the cache in the others. So that memory works all the while: the first sweep asks
 * for the result's row, which will be written, the second for the next program's row. */
static void prefetch_rows(emitter *E, const tn_top *store)
{
    for (int i = 0; i < E->nargs; i++) {
        if (E->sweeps[i] < 2 || E->kernel->buffers.at[i].mode != TN_READ)
            continue;
        for (int sweep = 0; sweep < 2; sweep++) {
            tn_top *load = E->row_load[i][sweep];
            char label[32];
            snprintf(label, sizeof label, "row%d_%d", i, sweep);
            if (sweep == 0 && (!store || is_streamed(E->g) || !lies_alike(load->view, store->view)))
                continue;
            load->label = tn_intern_z(E->F->session, label);
            tn_schedule_set(E->kernel, label, "prefetch", sweep);
            if (sweep == 0)
                tn_schedule_set(E->kernel, label, "prefetch-buffer", store->view->buffer);
        }
        return; /* one row: more would crowd each other out */
    }
}

/* ---- kernels with reductions ------------------------------------------------------------------------------------------------------------------- */

/* step: of the last fold dim, if the vectors walk it. */
static fold_plan plan_folds(group *g, int vector, int64_t step)
{
    fold_plan plan = {.lanes = vector >= 0 && g->dim[vector].fold};
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (g->dim[j].fold && !g->dim[j].absorbed && j != vector)
            plan.dim[plan.n++] = j;
    }
    if (plan.lanes)
        plan.dim[plan.n++] = vector;
    for (int i = 0; i < plan.n; i++) {
        bool last = plan.lanes && i == plan.n - 1;
        plan.axis[i] = last ? 0 : -1;
        plan.step[i] = tn_extent_const(last ? step : 1);
    }
    return plan;
}

/* The result's own row can hold it until the result replaces it, element by element. */
static bool fits_result(const group *g, const demand *d)
{
    const demand *root = g->demands.at[0];
    return g->full_root && d != root && d->op->result->type.dtype == root->op->result->type.dtype && map_same(d->map, root->map, g->ndims);
}

static void keep_costly(emitter *E, demand *const *reductions, int n)
{
    fuser *F = E->F;
    group *g = E->g;
    bool result_keeps = is_streamed(g);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < reductions[r]->nargs; i++)
            if (reductions[r]->arg[i])
                count_phase(g, reductions[r]->arg[i], r + 1);
    for (size_t k = 0; k < g->stored.len; k++)
        count_phase(g, g->stored.at[k], n + 1);
    for (size_t k = 0; k < g->demands.len; k++) {
        demand *d = g->demands.at[k];
        d->last_phase = -1;
        if (d->phases < 2 || !is_costly(d->op) || g->windowed)
            continue;
        if (!result_keeps && fits_result(g, d)) {
            d->local = KEPT_IN_RESULT;
            result_keeps = true;
            continue;
        }
        tn_dim size = tn_dim_const(F->session, E->row_axes ? E->extent[0].size : 1);
        for (int j = 0; j < g->ndims; j++)
            if (g->dim[j].fold)
                size = tn_dim_mul(F->session, size, g->dim[j].extent);
        if (!tn_dim_is_const(size) || size->value * 4 <= F->options->target.l2_bytes) {
            char name[32];
            snprintf(name, sizeof name, "keep%zu", k);
            d->local = tn_kernel_buffer(E->kernel, name, d->op->result->type.dtype, TN_LOCAL, size);
        }
    }
}

/* The innermost dim that is folded, or is not, and has more than one element; neither `not` nor one merged into another. -1: none. */
static int innermost(const group *g, bool fold, int not)
{
    for (int at = g->ndims; at-- > 0;) {
        int j = g->order[at];
        if (g->dim[j].fold == fold && !g->dim[j].absorbed && j != not && !tn_dim_is(g->dim[j].extent, 1))
            return j;
    }
    return -1;
}

/* Puts fold dim j last, where the tile walks it. */
static void fold_axis(fold_plan *plan, int j, int64_t step, int axis)
{
    int at = 0;
    while (plan->dim[at] != j)
        at++;
    memmove(&plan->dim[at], &plan->dim[at + 1], sizeof plan->dim[0] * (size_t)(plan->n - at - 1));
    plan->dim[plan->n - 1] = j;
    for (int i = at; i < plan->n - 1; i++) {
        plan->axis[i] = plan->axis[i + 1];
        plan->step[i] = plan->step[i + 1];
    }
    plan->axis[plan->n - 1] = axis;
    plan->step[plan->n - 1] = tn_extent_const(step);
}

/* Grid and folds for a GPU: a tile of rows, of columns, or of results that sum up taps. Kept dims are the first axes of tiles. */
static fold_plan plan_gpu_folds(emitter *E, int vector, int sweeps)
{
    fuser *F = E->F;
    group *g = E->g;
    fold_plan plan = {.n = 0};
    for (int at = 0; at < g->ndims; at++)
        if (g->dim[g->order[at]].fold && !g->dim[g->order[at]].absorbed) {
            plan.axis[plan.n] = -1;
            plan.step[plan.n] = tn_extent_const(1);
            plan.dim[plan.n++] = g->order[at];
        }
    bool folds = vector >= 0 && g->dim[vector].fold;
    int row = innermost(g, false, vector), outer = innermost(g, true, vector), tiled[2], ntiled = 0;
    int64_t step[2], outer_step = 1;
    gpu_tile t;
    if (g->windowed || outer < 0 || folds) {
        if (g->windowed && folds)
            vector = row, row = innermost(g, false, row);
        bool along = folds && !g->windowed;
        t = along ? fuse_gpu_rows(F, g, vector, row, outer, sweeps, &outer_step) : fuse_gpu_window(F, g, vector, row);
        t = fuse_gpu_choose_tile(F, g, E, t, most_of(F, g, row), along ? t.columns : most_of(F, g, vector));
        if (row >= 0 && t.rows > 1)
            tiled[ntiled] = row, step[ntiled++] = t.rows;
        if (vector >= 0 && (g->windowed || !folds))
            tiled[ntiled] = vector, step[ntiled++] = t.columns;
    } else {
        t = fuse_gpu_columns(F, g, vector, outer, sweeps > 1);
        t = fuse_gpu_choose_tile(F, g, E, t, most_of(F, g, outer), most_of(F, g, vector));
        if (vector >= 0)
            tiled[ntiled] = vector, step[ntiled++] = t.columns;
        outer_step = t.rows;
    }
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at], axis = -1;
        for (int i = 0; i < ntiled; i++)
            axis = tiled[i] == j ? i : axis;
        if (!g->dim[j].fold && !g->dim[j].absorbed)
            emit_grid_dim(E, j, axis >= 0 ? step[axis] : 1, axis);
    }
    if (outer >= 0 && outer_step > 1)
        fold_axis(&plan, outer, outer_step, ntiled++);
    if (folds && !g->windowed)
        fold_axis(&plan, vector, t.columns, ntiled);
    tn_schedule_set(E->kernel, "", "warps", t.warps);
    if (t.cluster > 1)
        tn_schedule_set(E->kernel, "", "cluster", t.cluster);
    return plan;
}

static fold_plan plan_cpu_folds(emitter *E, int vector)
{
    fuser *F = E->F;
    group *g = E->g;
    int64_t rows = 1, columns = 1;
    if (vector >= 0) {
        bool fold = g->dim[vector].fold;
        int64_t n = extent_or(fuse_whole_extent(F, g, vector), fold ? 4096 : 256), width = F->options->target.vector_bits / 32;
        bool whole = !fold && width > 0 && n > 0 && n % width == 0 && n <= 256 && tn_extent_is_good(n);
        columns = whole ? n : tn_min(pow2_ceil(n), fold ? 65536 : 256);
    }
    ask_for_tile(E, &rows, -1, &columns, vector);
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (!g->dim[j].fold && !g->dim[j].absorbed)
            emit_grid_dim(E, j, j == vector ? columns : 1, j == vector ? 0 : -1);
    }
    return plan_folds(g, vector, columns);
}

/* Places of a window lie as its results do, where these are neighbours. They are the fewer: vectors of them would be summed up across for each result. */
static void vote_for_results(const fuser *F, const group *g, stride_votes *v)
{
    int64_t width = F->options->target.vector_bits / 32, results = 0;
    for (int j = 0; j < g->ndims; j++)
        if (v->unit[j] && !g->dim[j].fold)
            results = tn_max(results, extent_or(g->dim[j].extent, width));
    for (int j = 0; j < g->ndims; j++)
        if (g->dim[j].fold && results > 0 && (results >= width || results >= extent_or(g->dim[j].extent, width)))
            v->unit[j] = 0;
}

static void emit_fold_group(fuser *F, tn_steps *steps, group *g)
{
    fuse_merge_dims(F, g);
    stride_votes votes = {.g = g};
    fuse_visit_accesses(F, g, vote, &votes);
    bool gpu = fuse_for_gpu(F);
    if (!gpu && g->windowed)
        vote_for_results(F, g, &votes);
    int vector = pick_vector_dim(g, &votes, gpu && g->windowed);
    emitter *E = emitter_new(F, g, tn_op_name(g->root->code));
    demand *reductions[FUSE_OPS];
    const tn_top *last = NULL; /* the store of a result that runs over the folded dims */
    int n = 0;
    bool full = false;
    for (size_t k = 0; k < g->stored.len; k++)
        full |= !is_row_value(g, g->stored.at[k]);
    for (size_t k = g->demands.len; k-- > 0;)
        if (is_reduction_op(g->demands.at[k]->op) && n < FUSE_OPS)
            reductions[n++] = g->demands.at[k];
    fold_plan plan = gpu ? plan_gpu_folds(E, vector, n + full) : plan_cpu_folds(E, vector);
    E->row_axes = E->rank;
    if (!gpu) /* threads hold what fits, and compute the rest again: memory of a program is far away */
        keep_costly(E, reductions, n);
    for (int i = 0; i < n; i++)
        emit_reduction(E, reductions[i], &plan);

    emit_results(E, false);
    if (full) {
        for (size_t k = 0; k < g->stored.len; k++)
            prepare_rows(E, g->stored.at[k]);
        tn_tblock *outer = E->b.block;
        tn_tvalue *starts[FUSE_DIMS] = {NULL};
        for (int i = 0; i < plan.n; i++) {
            tn_tvalue *zero = tn_t_index(&E->b, 0), *limit = tn_t_size(&E->b, fuse_whole_extent(F, g, plan.dim[i])), *step = tn_t_index(&E->b, plan.step[i].size);
            tn_top *loop = tn_t_for(&E->b, zero, limit, step, NULL, 0);
            starts[i] = &loop->region[0]->arg[0];
            E->b.block = loop->region[0];
        }
        tn_tblock *inner = E->b.block;
        enter_full(E, inner, starts, plan.dim, plan.n, plan.axis, plan.step);
        last = emit_results(E, true);
        for (tn_tblock *block = inner; block != outer; block = block->parent->block) {
            E->b.block = block;
            tn_t_yield(&E->b, NULL, 0);
        }
        leave_full(E, outer, plan.dim, plan.n);
    }
    if (plan.lanes)
        prefetch_rows(E, last);
    emitter_finish(E, steps);
}

void fuse_emit_group(fuser *F, tn_steps *steps, group *g)
{
    if (g->kind == GROUP_ATTENTION)
        fuse_emit_attention(F, steps, g);
    else if (g->kind == GROUP_PRODUCT)
        fuse_emit_product(F, steps, g);
    else if (g->kind == GROUP_FOLD)
        emit_fold_group(F, steps, g);
    else
        emit_point_group(F, steps, g);
    F->choice = 0;
}
