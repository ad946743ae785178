/* Grouping: which operations share a kernel. One walk over a block, last operation first; when an operation is reached, every user has its place.
 * An operation joins the one group that all its users are in, if the maps at which they read it can be written down and the group's form allows
 * it; else it becomes the root of a group of its own and its result is stored. Cheap data movement may join several groups. */
#include "fuse/internal.h"

#include <string.h>

/* ---- what kind of operation ------------------------------------------------------------------------------------------- */

static bool pads_inside(const tn_op *op)
{
    int n;
    const int64_t *interior = tn_attr_ints(op, TN_A_interior, &n);
    for (int i = 0; i < n; i++)
        if (interior[i])
            return true;
    return false;
}

bool op_is_special(const tn_op *op)
{
    switch (op->code) {
    case TN_OP_while:
    case TN_OP_if:
    case TN_OP_case:
    case TN_OP_scatter:
    case TN_OP_sort:
    case TN_OP_select_and_scatter:
    case TN_OP_fft:
    case TN_OP_cholesky:
    case TN_OP_triangular_solve:
    case TN_OP_rng_bit_generator:
    case TN_OP_custom_call:
    case TN_OP_define_dimension:
    case TN_OP_optimization_barrier:
        return true;
    case TN_OP_pad:
        return pads_inside(op);
    default:
        return false;
    }
}

bool op_is_point(const tn_op *op)
{
    if (op_is_special(op))
        return false;
    unsigned traits = tn_op_traits(op->code);
    return (traits & (TN_ELEMENTWISE | TN_MOVES_DATA)) || op->code == TN_OP_iota || op->code == TN_OP_dimension ||
           op->code == TN_OP_bitcast_convert || op->code == TN_OP_dynamic_update_slice;
}

bool op_is_view(const tn_op *op)
{
    return op->code == TN_OP_reshape || op->code == TN_OP_broadcast_in_dim || op->code == TN_OP_transpose || op->code == TN_OP_slice ||
           op->code == TN_OP_reverse;
}

static bool makes_elements(const tn_op *op)
{
    return op->code == TN_OP_pad || op->code == TN_OP_concatenate || op->code == TN_OP_select || op->code == TN_OP_iota ||
           op->code == TN_OP_dimension || op->code == TN_OP_dynamic_update_slice;
}

static bool is_cheap(const tn_op *op)
{
    if (op_is_view(op) || op->code == TN_OP_convert || op->code == TN_OP_iota || op->code == TN_OP_pad || op->code == TN_OP_dimension)
        return true;
    tn_scalar fn = tn_op_scalar(op);
    return fn != TN_SCALAR_NONE && (tn_scalar_traits(fn) & TN_SCALAR_CHEAP);
}

/* Made of positions and numbers: it reads nothing, wherever it is computed. */
static bool is_of_positions(const tn_value *x, int depth)
{
    enum { DEEPEST = 8 };
    const tn_op *op = x->def;
    const tn_tensor *constant = tn_constant_of(x);
    if (constant)
        return constant->splat || x->type.rank == 0;
    if (!op || depth == DEEPEST || op->nregions || !is_cheap(op) || op->code == TN_OP_pad)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!is_of_positions(tn_operand(op, i), depth + 1))
            return false;
    return true;
}

/* Operands that are more than one number: what recomputing the operation somewhere else would read again. */
static int wide_operands(const tn_op *op)
{
    int n = 0;
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *x = tn_operand(op, i);
        const tn_tensor *constant = tn_constant_of(x);
        n += x->type.rank > 0 && !(constant && constant->splat) && !is_of_positions(x, 0) &&
             !(tn_is_op(x, TN_OP_broadcast_in_dim) && (tn_operand(x->def, 0)->type.rank == 0 || tn_constant_of(tn_operand(x->def, 0))));
    }
    return n;
}

/* What a convolution on a GPU would read in another order than features last, since copies to shared memory want neighbours, and the weights of a depthwise one on a CPU,
 * where vectors want them. Stored once, of a constant at load. */
static bool is_turned_for_convolution(const fuser *F, const tn_op *op)
{
    bool read = false;
    for (const tn_use *use = op->result->uses; op->code == TN_OP_transpose && use; use = use->next)
        read |= use->user->code == TN_OP_convolution && conv_is_depthwise(use->user) != fuse_for_gpu(F) && (fuse_for_gpu(F) || tn_operand(use->user, 1) == op->result);
    return read;
}

static bool may_duplicate(const tn_op *op)
{
    return op_is_view(op) || op->code == TN_OP_iota || op->code == TN_OP_dimension || (is_cheap(op) && op->code != TN_OP_pad && wide_operands(op) <= 1);
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

static demand *first_demand(const fuser *F, const tn_op *op) { return tn_map_get(&F->demands, TN_KEY(op)); }

group *fuse_group_new(fuser *F, const tn_op *root, const tn_type *type)
{
    group *g = TN_NEW(F->arena, group);
    g->root = root;
    for (int i = 0; i < type->rank; i++) {
        g->dim[i].extent = type->dim[i];
        g->order[i] = i;
    }
    g->ndims = type->rank;
    return g;
}

/* Stored operands that the operation may add to those of its users: all but the one place that it takes itself. */
static int new_inputs(const tn_op *op)
{
    int n = 0;
    for (int i = 0; i < op->noperands; i++)
        n += !fuse_single_constant(tn_operand(op, i));
    return n - 1;
}

/* The demand of op at map m in group g: the same one again if it exists. Maps of the operands are derived here. */
demand *group_demand(fuser *F, group *g, const tn_op *op, fmap *m)
{
    void **cell = tn_map_at(&F->demands, TN_KEY(op));
    for (demand *d = *cell; d; d = d->next)
        if (d->group == g && map_same(d->map, m, g->ndims))
            return d;
    demand *d = TN_NEW(F->arena, demand);
    *d = (demand){.op = op, .group = g, .map = m, .nargs = op->noperands, .local = -1, .next = *cell, .phase = -1, .last_phase = -1};
    d->argmap = TN_NEW_ARRAY(F->arena, fmap *, (size_t)op->noperands + 1);
    d->arg = TN_NEW_ARRAY(F->arena, demand *, (size_t)op->noperands + 1);
    *cell = d;
    TN_PUSH(F->arena, &g->demands, d);
    g->nops++;
    g->inputs += new_inputs(op);
    return d;
}

void group_derive(fuser *F, group *g, demand *d)
{
    for (int i = 0; i < d->nargs; i++)
        d->argmap[i] = derive_operand(F, g, d, i);
}

/* A point operation can be computed at its map: every operand's map is known (a reshape may read a stored operand by position). */
static bool point_is_derived(const demand *d)
{
    for (int i = 0; i < d->nargs; i++)
        if (!d->argmap[i] && d->op->code != TN_OP_reshape)
            return false;
    return true;
}

/* ---- reductions in a group ------------------------------------------------------------------------------------------------ */

static bool is_reduction(const tn_op *op)
{
    return op->code == TN_OP_reduce || op->code == TN_OP_reduce_window || (op->code == TN_OP_convolution && conv_is_depthwise(op));
}

bool op_is_reduce(const tn_op *op) { return op->code == TN_OP_reduce; }

/* Which dims of the group the map's coordinates are, one each, whole; false if it is anything else. */
bool map_picks_dims(fuser *F, const group *g, const fmap *m, const tn_type *type, int *dims)
{
    bool used[FUSE_DIMS] = {false};
    if (m->guards || m->movement_only || m->repeated)
        return false;
    for (int i = 0; i < m->rank; i++) {
        dims[i] = -1;
        if (tn_dim_is(type->dim[i], 1) && tn_dim_is(m->c[i].a.base, 0)) {
            bool zero = !m->c[i].dyn;
            for (int j = 0; j < g->ndims; j++)
                zero &= !m->c[i].a.coef[j];
            if (zero)
                continue; /* a unit dim that no dim of the group walks */
        }
        affine a = m->c[i].a;
        for (int j = 0; j < g->ndims; j++)
            if (tn_dim_is(g->dim[j].extent, 1) && !tn_dim_is(type->dim[i], 1)) /* whose index is 0 */
                a.coef[j] = NULL;
        if (m->c[i].dyn || !affine_is_dim(&a, g->ndims, &dims[i]) || used[dims[i]] ||
            !tn_dim_eq(F->session, g->dim[dims[i]].extent, type->dim[i]))
            return false;
        used[dims[i]] = true;
    }
    return true;
}

bool map_walks_all(fuser *F, const group *g, const fmap *m, const tn_type *type, int *dims)
{
    int walked = 0, wanted = 0;
    if (!map_picks_dims(F, g, m, type, dims))
        return false;
    for (int i = 0; i < m->rank; i++) {
        dims[i] = dims[i] >= 0 && group_dim_is_one(g, dims[i]) ? -1 : dims[i];
        walked += dims[i] >= 0;
    }
    for (int j = 0; j < g->ndims; j++)
        wanted += !group_dim_is_one(g, j);
    return walked == wanted;
}

bool group_has_in_order(const group *g, const int *dims, int n)
{
    int at[FUSE_DIMS], last = -1;
    for (int i = 0; i < g->ndims; i++)
        at[g->order[i]] = i;
    for (int i = 0; i < n; i++) {
        if (dims[i] < 0 || group_dim_is_one(g, dims[i]))
            continue;
        if (at[dims[i]] < last)
            return false;
        last = at[dims[i]];
    }
    return true;
}

static int add_fold_dim(group *g, tn_dim extent)
{
    g->dim[g->ndims] = (gdim){.extent = extent, .fold = true};
    g->order[g->ndims] = g->ndims;
    return g->ndims++;
}

/* The coordinate counts through dims of the group, each of its values once, as a number of several digits does: marks them. A unit dim needs none. */
static bool walk_coordinate(fuser *F, const group *g, const coord *c, tn_dim extent, bool *walked)
{
    tn_session *s = F->session;
    tn_dim run = tn_dim_const(s, 1);
    int terms = 0, found = 1;
    if (c->dyn || !tn_dim_is(c->a.base, 0))
        return false;
    for (int j = 0; j < g->ndims; j++)
        terms += c->a.coef[j] && !group_dim_is_one(g, j);
    for (; terms > 0 && found; terms -= found) {
        found = 0;
        for (int j = 0; j < g->ndims && !found; j++)
            if (c->a.coef[j] && !group_dim_is_one(g, j) && !walked[j] && tn_dim_eq(s, c->a.coef[j], run)) {
                run = tn_dim_mul(s, run, g->dim[j].extent);
                walked[j] = true;
                found = 1;
            }
    }
    return found && tn_dim_eq(s, run, extent);
}

static bool has_folds(const group *g)
{
    bool has = false;
    for (int j = 0; j < g->ndims; j++)
        has |= g->dim[j].fold;
    return has;
}

/* Every dim but those that are kept is folded over, or will be. */
static bool folds_the_rest(const group *g, const bool *kept)
{
    bool has = has_folds(g), same = true;
    for (int j = 0; j < g->ndims; j++)
        same &= !has || group_dim_is_one(g, j) || g->dim[j].fold != kept[j];
    return same;
}

static void fold_the_rest(group *g, const bool *kept)
{
    if (has_folds(g))
        return;
    for (int j = 0; j < g->ndims; j++)
        g->dim[j].fold = !kept[j] && !group_dim_is_one(g, j);
    g->full_root = true;
}

/* The reduced coordinates of m where the group has a dim for each that is more than one, or no other dims than the kept ones: then it gets those. False: neither. */
static bool fold_dims(fuser *F, group *g, const bool *kept, fmap *m, const int *axis, const tn_dim *reduced, int nreduced)
{
    int rest[FUSE_DIMS], nrest = 0, wanted = 0, n = 0;
    tn_dim one = tn_dim_const(F->session, 1);
    for (int at = 0; at < g->ndims; at++)
        if (!kept[g->order[at]] && !group_dim_is_one(g, g->order[at]))
            rest[nrest++] = g->order[at];
    for (int i = 0; i < nreduced; i++)
        wanted += !tn_dim_is(reduced[i], 1);
    if (nrest == 0 && !has_folds(g)) {
        if (g->ndims + nreduced > FUSE_DIMS || nreduced == 0)
            return false;
        for (int i = 0; i < nreduced; i++)
            if (!tn_dim_is(reduced[i], 1) || (wanted == 0 && i == 0))
                m->c[axis[i]].a.coef[add_fold_dim(g, reduced[i])] = one;
        return true;
    }
    bool same = nrest == wanted;
    for (int i = 0; i < nreduced && same; i++)
        same = tn_dim_is(reduced[i], 1) || tn_dim_eq(F->session, g->dim[rest[n++]].extent, reduced[i]);
    n = 0;
    for (int i = 0; i < nreduced && same; i++)
        if (!tn_dim_is(reduced[i], 1))
            m->c[axis[i]].a.coef[rest[n++]] = one;
    return same;
}

/* Whatever the index along unit dims, which is 0. */
static bool same_place(const group *g, const affine *a, const affine *b)
{
    bool same = a->base == b->base;
    for (int j = 0; j < g->ndims; j++)
        same &= a->coef[j] == b->coef[j] || group_dim_is_one(g, j);
    return same;
}

/* The same where what is reduced has other dims than the group (a reshape regroups elements: norms of groups of channels): as somebody else in the group reads such a tensor, whose kept
 * coordinates are those of m and whose reduced ones go through all the rest. */
static bool fold_as_read(fuser *F, const group *g, fmap *m, const tn_type *type, const bool *folded)
{
    for (size_t i = 0; i < g->maps.len; i++) {
        const fmap *by = g->maps.at[i];
        bool walked[FUSE_DIMS] = {false}, same = by != m && by->rank == m->rank && !by->guards && !by->movement_only && !by->repeated;
        for (int k = 0; k < m->rank && same; k++)
            same = walk_coordinate(F, g, &by->c[k], type->dim[k], walked) && (folded[k] || same_place(g, &by->c[k].a, &m->c[k].a));
        for (int j = 0; j < g->ndims && same; j++)
            same = walked[j] || group_dim_is_one(g, j);
        for (int k = 0; k < m->rank && same; k++)
            m->c[k] = by->c[k];
        if (same)
            return true;
    }
    return false;
}

/* reduce: operand coordinates are the kept ones and the fold dims. */
static bool reduce_demand(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    int n = op->nresults, naxes, axis[TN_MAX_RANK], nkept = 0, k = 0;
    const int64_t *dims = tn_attr_ints(op, TN_A_dimensions, &naxes);
    const tn_type *type = &tn_operand(op, 0)->type;
    bool kept[FUSE_DIMS] = {false}, folded[TN_MAX_RANK] = {false};
    tn_dim reduced[TN_MAX_RANK];
    if (g->windowed || g->kind == GROUP_PRODUCT || g->kind == GROUP_ATTENTION || d->map->guards || d->map->movement_only || d->map->repeated)
        return false;
    for (int i = 0; i < d->map->rank; i++)
        if (!walk_coordinate(F, g, &d->map->c[i], op->result->type.dim[i], kept))
            return false;
    for (int a = 0; a < naxes; a++)
        folded[dims[a]] = true;
    fmap *m = map_new(F, g, type->rank);
    for (int i = 0; i < type->rank; i++)
        if (folded[i])
            axis[k] = i, reduced[k++] = type->dim[i];
        else
            m->c[i].a = d->map->c[nkept++].a;
    if (!folds_the_rest(g, kept) || (!fold_dims(F, g, kept, m, axis, reduced, naxes) && !fold_as_read(F, g, m, type, folded)))
        return false;
    fold_the_rest(g, kept);
    for (int i = 0; i < n; i++) {
        d->argmap[i] = m;
        d->argmap[n + i] = map_new(F, g, 0);
    }
    g->kind = GROUP_FOLD;
    return true;
}

static void set_window_coord(fuser *F, fmap *m, int i, const fmap *out, int o, tn_dim low, int64_t stride, int64_t dilation, int fold, tn_dim extent)
{
    tn_session *s = F->session;
    affine *a = &m->c[i].a;
    memset(a, 0, sizeof *a);
    a->base = tn_dim_sub(s, tn_dim_mul(s, out->c[o].a.base, tn_dim_const(s, stride)), low);
    for (int j = 0; j < FUSE_DIMS; j++)
        if (out->c[o].a.coef[j])
            a->coef[j] = tn_dim_mul(s, out->c[o].a.coef[j], tn_dim_const(s, stride));
    if (fold >= 0)
        a->coef[fold] = tn_dim_const(s, dilation);
    (void)extent;
}

void fuse_guard_coord(fuser *F, fmap *m, int i, tn_dim extent)
{
    fguard *guard = TN_NEW(F->arena, fguard);
    *guard = (fguard){m->c[i].a, extent, m->guards};
    m->guards = guard;
}

/* Windows: fold dims are the taps; the operand is read at stride * out + dilation * tap - low, where that exists. */
static bool window_demand(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    int rank, kept[FUSE_DIMS], n = op->nresults, q;
    const tn_dim *window = tn_attr_dims(op, TN_A_window, &rank);
    const tn_dim *low = tn_attr_dims(op, TN_A_padding_low, &q), *high = tn_attr_dims(op, TN_A_padding_high, &q);
    const int64_t *stride = tn_attr_ints(op, TN_A_window_strides, &q), *dilation = tn_attr_ints(op, TN_A_window_dilation, &q);
    const tn_type *type = &tn_operand(op, 0)->type;
    if (g->kind != GROUP_POINT || !map_picks_dims(F, g, d->map, &op->result->type, kept) || g->ndims != d->map->rank)
        return false;
    int taps = 0;
    for (int i = 0; i < rank; i++)
        taps += !tn_dim_is(window[i], 1);
    if (g->ndims + taps + 1 > FUSE_DIMS)
        return false;
    fmap *m = map_new(F, g, rank);
    for (int i = 0; i < rank; i++) {
        int fold = tn_dim_is(window[i], 1) ? -1 : add_fold_dim(g, window[i]);
        set_window_coord(F, m, i, d->map, i, low[i], stride[i], dilation[i], fold, type->dim[i]);
        if (!(low[i]->hi <= 0 && high[i]->hi <= 0))
            fuse_guard_coord(F, m, i, type->dim[i]);
        m->repeated |= fold >= 0;
    }
    if (taps == 0) /* a window of one element: one trip */
        add_fold_dim(g, tn_dim_const(F->session, 1));
    for (int i = 0; i < n; i++) {
        d->argmap[i] = m;
        d->argmap[n + i] = map_new(F, g, 0);
    }
    g->kind = GROUP_FOLD;
    g->windowed = true;
    return true;
}

/* Depthwise convolution: a window over the left operand times the taps of the right. */
static bool depthwise_demand(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    int q, kept[FUSE_DIMS];
    const char *ll = tn_find_attr(op, TN_A_lhs_layout)->s, *rl = tn_find_attr(op, TN_A_rhs_layout)->s, *ol = tn_find_attr(op, TN_A_out_layout)->s;
    const tn_dim *low = tn_attr_dims(op, TN_A_padding_low, &q), *high = tn_attr_dims(op, TN_A_padding_high, &q);
    const int64_t *stride = tn_attr_ints(op, TN_A_window_strides, &q), *dilation = tn_attr_ints(op, TN_A_window_dilation, &q);
    const tn_type *lhs = &tn_operand(op, 0)->type, *rhs = &tn_operand(op, 1)->type;
    int rank = lhs->rank;
    if (g->kind != GROUP_POINT || !map_picks_dims(F, g, d->map, &op->result->type, kept) || g->ndims != d->map->rank || g->ndims + rank > FUSE_DIMS)
        return false;
    fmap *x = map_new(F, g, rank), *w = map_new(F, g, rank);
    int out_feature = (int)(strchr(ol, 'f') - ol);
    x->c[strchr(ll, 'b') - ll] = d->map->c[strchr(ol, 'b') - ol];
    x->c[strchr(ll, 'f') - ll] = d->map->c[out_feature];
    w->c[strchr(rl, 'o') - rl] = d->map->c[out_feature];
    for (int s = 0; s < rank - 2; s++) {
        int i = (int)(strchr(ll, '0' + s) - ll), o = (int)(strchr(ol, '0' + s) - ol), t = (int)(strchr(rl, '0' + s) - rl);
        int fold = tn_dim_is(rhs->dim[t], 1) ? -1 : add_fold_dim(g, rhs->dim[t]);
        set_window_coord(F, x, i, d->map, o, low[s], stride[s], dilation[s], fold, lhs->dim[i]);
        if (fold >= 0)
            w->c[t].a.coef[fold] = tn_dim_const(F->session, 1);
        if (!(low[s]->hi <= 0 && high[s]->hi <= 0))
            fuse_guard_coord(F, x, i, lhs->dim[i]);
    }
    if (g->ndims == d->map->rank) /* one tap */
        add_fold_dim(g, tn_dim_const(F->session, 1));
    x->repeated = w->repeated = true;
    d->argmap[0] = x;
    d->argmap[1] = w;
    g->kind = GROUP_FOLD;
    g->windowed = true;
    return true;
}

static bool reduction_demand(fuser *F, group *g, demand *d)
{
    return d->op->code == TN_OP_reduce          ? reduce_demand(F, g, d)
           : d->op->code == TN_OP_reduce_window ? window_demand(F, g, d)
                                                : depthwise_demand(F, g, d);
}

/* ---- the walk --------------------------------------------------------------------------------------------------------------- */

/* Maps at which one group reads the operation. */
typedef struct reading {
    group *g;
    TN_VEC(fmap *) maps;
} reading;
typedef TN_VEC(reading) readings;

static void add_reading(fuser *F, readings *r, group *g, fmap *m)
{
    size_t i = 0;
    while (i < r->len && r->at[i].g != g)
        i++;
    if (i == r->len)
        TN_PUSH(F->arena, r, ((reading){.g = g}));
    for (size_t k = 0; k < r->at[i].maps.len; k++)
        if (map_same(r->at[i].maps.at[k], m, g->ndims))
            return;
    TN_PUSH(F->arena, &r->at[i].maps, m);
}

/* Maps of dynamic indices that demand `d` reads from its operand i. */
static bool read_dynamic(fuser *F, readings *r, const demand *d, int i)
{
    const fmap *m = d->argmap[0];
    bool any = false;
    for (int k = 0; m && k < m->rank; k++)
        if (m->c[k].dyn && m->c[k].dyn->operand == i && m->c[k].dyn->value == tn_operand(d->op, i)) {
            add_reading(F, r, d->group, m->c[k].dyn->at);
            any = true;
        }
    return any;
}

static const char *collect_readings(fuser *F, const tn_op *op, readings *r)
{
    if (op->nresults != 1)
        return "it gives several results; only what gives one joins its user";
    if (!op->result->uses)
        return "nothing uses it";
    for (const tn_use *use = op->result->uses; use; use = use->next) {
        const tn_op *user = use->user;
        int i = (int)(use - user->operand);
        if (user->block != op->block)
            return "the body of a branch or loop reads it";
        if (user->code == TN_OP_return)
            return op->block->parent ? "it is a result of the body of a branch or loop" : "it is an output of the network";
        demand *d = first_demand(F, user);
        if (!d)
            return "its user is a step of its own, which takes in nothing else";
        for (; d; d = d->next) {
            if ((user->code == TN_OP_gather || user->code == TN_OP_dynamic_slice) && i > 0) {
                read_dynamic(F, r, d, i);
                continue;
            }
            if (user->code == TN_OP_dynamic_update_slice && i == 1)
                return "an update is read at run-time positions";
            if (!d->argmap[i])
                return "a reshape in between regroups its elements, and its user walks them in the other groups";
            add_reading(F, r, d->group, d->argmap[i]);
        }
    }
    return r->len ? NULL : "nothing reads its elements";
}

fmap *group_only_reading(fuser *F, const tn_op *op, const group *g)
{
    readings r = {0};
    return !collect_readings(F, op, &r) && r.len == 1 && r.at[0].g == g && r.at[0].maps.len == 1 ? r.at[0].maps.at[0] : NULL;
}

void group_link(fuser *F, const tn_op *op)
{
    for (const tn_use *use = op->result->uses; use; use = use->next) {
        int i = (int)(use - use->user->operand);
        for (demand *d = first_demand(F, use->user); d; d = d->next) {
            for (demand *mine = first_demand(F, op); mine; mine = mine->next) {
                if (mine->group != d->group)
                    continue;
                if (d->argmap[i] && map_same(mine->map, d->argmap[i], d->group->ndims))
                    d->arg[i] = mine;
                const fmap *m = d->argmap[0];
                for (int k = 0; m && k < m->rank; k++) {
                    dynamic_index *dyn = m->c[k].dyn;
                    if (dyn && dyn->operand == i && dyn->value == op->result && map_same(mine->map, dyn->at, d->group->ndims))
                        dyn->from = mine;
                }
            }
        }
    }
}

void group_drop(fuser *F, const tn_op *op)
{
    void **cell = tn_map_at(&F->demands, TN_KEY(op));
    for (demand *d = *cell; d; d = d->next) {
        group *g = d->group;
        for (size_t i = 0; i < g->demands.len; i++)
            if (g->demands.at[i] == d) {
                memmove(&g->demands.at[i], &g->demands.at[i + 1], sizeof(demand *) * (g->demands.len - i - 1));
                g->demands.len--;
                g->nops--;
                g->inputs -= new_inputs(op);
                break;
            }
    }
    *cell = NULL;
}

/* An elementwise operation that ends what is computed from a product alone, where the product's kernel can compute it. */
static bool follows_product(const tn_op *op)
{
    enum { DEEPEST = 8 };
    for (int depth = 0; depth < DEEPEST && tn_op_traits(op->code) & TN_ELEMENTWISE; depth++) {
        const tn_op *from = NULL;
        for (int i = 0; i < op->noperands; i++) {
            const tn_value *x = tn_operand(op, i);
            if (x->def && tn_has_one_use(x) && (tn_op_traits(x->def->code) & (TN_ELEMENTWISE | TN_CONTRACTS)) && !from)
                from = x->def;
        }
        if (!from || tn_op_traits(from->code) & TN_CONTRACTS)
            return from && !is_reduction(from);
        op = from;
    }
    return false;
}

static const char *join_point(fuser *F, const tn_op *op, const readings *r)
{
    if (r->len > 1 && !may_duplicate(op))
        return "several kernels use it, and to compute it in each costs more than to store it once";
    for (size_t i = 0; i < r->len; i++) {
        group *g = r->at[i].g;
        if (g->nops > FUSE_OPS || op->noperands > 8 || g->inputs + new_inputs(op) > FUSE_ARGS - 8)
            return "its user's kernel is as large as a kernel may be";
        if (r->at[i].maps.len > 4)
            return "its user reads it at more than four places at once";
        for (size_t k = 0; k < r->at[i].maps.len; k++) {
            fmap *m = r->at[i].maps.at[k];
            bool scale = m->movement_only && g->kind == GROUP_PRODUCT && (product_takes_scale(F, op) || product_dequantises(F, op));
            g->scaled |= scale;
            if (m->movement_only && !op_is_view(op) && op->code != TN_OP_convert && !scale)
                return "a product reads it, which loads its factors again and again: they are computed once and stored";
            if (g->kind == GROUP_ATTENTION && !is_cheap(op) && op->code != TN_OP_gather)
                return "it would be computed once for every block of rows of an attention";
            if (m->repeated && !is_cheap(op) && op->code != TN_OP_gather)
                return "it would be computed once for every tap of a window";
            if (m->repeated && !fuse_repeats_for_less(F, g, op))
                return "to compute it once for every tap of a window costs more than to store it";
            if (m->repeated && follows_product(op))
                return "the product before it computes it once, not once for every tap of a window";
            if (m->repeated && m->guards && makes_elements(op)) /* they would exist where the window has none */
                return "it makes elements where the window around it has none";
        }
        if (op->code == TN_OP_concatenate && (op->noperands > 2 || g->kind != GROUP_POINT))
            return "each of its parts is computed where the concatenation wants it";
    }
    for (size_t i = 0; i < r->len; i++)
        for (size_t k = 0; k < r->at[i].maps.len; k++) {
            demand *d = group_demand(F, r->at[i].g, op, r->at[i].maps.at[k]);
            group_derive(F, r->at[i].g, d);
            if (!point_is_derived(d)) {
                group_drop(F, op);
                return "its elements can't be named by its user's indices";
            }
        }
    return NULL;
}

static const char *join_one(fuser *F, const tn_op *op, const readings *r, bool (*derive)(fuser *, group *, demand *), const char *otherwise)
{
    if (r->len != 1 || r->at[0].maps.len != 1)
        return "several kernels use it, and it is computed once";
    demand *d = group_demand(F, r->at[0].g, op, r->at[0].maps.at[0]);
    if (derive(F, r->at[0].g, d))
        return NULL;
    group_drop(F, op);
    return otherwise;
}

/* The group walks the product's elements, one each, in whatever order its result has them: a permutation of the product's dims. */
static bool product_joins(fuser *F, group *g, demand *d)
{
    bool walked[FUSE_DIMS] = {false};
    if (g->kind != GROUP_POINT || g->ndims != d->map->rank || d->map->guards || d->map->repeated || d->map->movement_only)
        return false;
    for (int i = 0; i < d->map->rank; i++) {
        int dim;
        if (d->map->c[i].dyn || !affine_is_dim(&d->map->c[i].a, g->ndims, &dim) || walked[dim] || !tn_dim_eq(F->session, g->dim[dim].extent, d->op->result->type.dim[i]))
            return false;
        walked[dim] = true;
    }
    return product_demand(F, g, d);
}

static bool contraction_joins(fuser *F, group *g, demand *d) { return attention_joins(F, g, d) || product_joins(F, g, d) || product_joins_sibling(F, g, d); }

/* ---- results besides the root's ---------------------------------------------------------------------------------------------- */

int64_t fuse_place(const fuser *F, const tn_op *op) { return (int64_t)(intptr_t)tn_map_get(&F->places, TN_KEY(op)); }

bool fuse_leaves_block(const tn_op *op, const tn_op *user) { return user->block != op->block || (user->code == TN_OP_return && op->block->parent); }

bool fuse_is_position(const tn_op *op, int i) { return (op->code == TN_OP_gather || op->code == TN_OP_dynamic_slice || op->code == TN_OP_dynamic_update_slice) && i > 0; }

/* The first kernel that reads the operation's elements, if all else that wants them runs behind it: a kernel runs where its root stands. */
static bool first_reading(fuser *F, const tn_op *op, reading *first)
{
    readings r = {0};
    int64_t others = INT64_MAX, least = INT64_MAX;
    for (const tn_use *use = op->result->uses; use; use = use->next) {
        const tn_op *user = use->user;
        int i = (int)(use - user->operand);
        if (fuse_leaves_block(op, user))
            return false;
        demand *d = first_demand(F, user);
        if (!d)
            others = tn_min(others, fuse_place(F, user));
        for (; d; d = d->next) {
            if (fuse_is_position(user, i) || !d->argmap[i])
                others = tn_min(others, fuse_place(F, d->group->root));
            else
                add_reading(F, &r, d->group, d->argmap[i]);
        }
    }
    for (size_t k = 0; k < r.len; k++)
        if (fuse_place(F, r.at[k].g->root) < least) {
            least = fuse_place(F, r.at[k].g->root);
            *first = r.at[k];
        }
    return least < others;
}

bool group_rows_are_many(const group *g, const bool *fold)
{
    enum { MANY = 64 };
    int64_t rows = 1;
    bool inner = true;
    for (int at = g->ndims; at-- > 0;) {
        int j = g->order[at];
        if (group_dim_is_one(g, j))
            continue;
        if (fold[j] && !inner)
            return false;
        inner &= fold[j];
        if (!fold[j])
            rows = tn_dim_is_const(g->dim[j].extent) && rows < MANY ? rows * tn_min(g->dim[j].extent->value, MANY) : MANY;
    }
    return rows >= MANY;
}

/* The map names each element of the group's space once, or each of its rows, in the order of its dims. */
static bool map_covers(fuser *F, const group *g, const fmap *m, const tn_type *type)
{
    int dims[FUSE_DIMS];
    bool walked[FUSE_DIMS] = {false}, fold[FUSE_DIMS], all = true, rows = true, folds = false;
    if (!map_picks_dims(F, g, m, type, dims))
        return false;
    for (int i = 0; i < m->rank; i++)
        if (dims[i] >= 0)
            walked[dims[i]] = true;
    for (int j = 0; j < g->ndims; j++) {
        fold[j] = g->dim[j].fold;
        if (group_dim_is_one(g, j))
            continue;
        all &= walked[j];
        rows &= walked[j] != fold[j];
        folds |= fold[j];
    }
    return group_has_in_order(g, dims, m->rank) && (all ? !folds || group_rows_are_many(g, fold) : rows);
}

/* What several kernels want, or an output that a kernel uses too: the first of them computes it and stores it, so that it is not read there. Not what a product's kernel could
 * end with, unless that is this one. */
static bool join_and_store(fuser *F, const tn_op *op)
{
    reading first = {0};
    if (op->nresults != 1 || !(op_is_reduce(op) || (tn_op_traits(op->code) & TN_ELEMENTWISE)) || op_is_special(op) || !first_reading(F, op, &first))
        return false;
    group *g = first.g;
    if ((g->kind != GROUP_POINT && g->kind != GROUP_FOLD) || g->windowed || first.maps.len != 1 || g->stored.len >= FUSE_RESULTS || (g->kind == GROUP_FOLD && follows_product(op)) ||
        !map_covers(F, g, first.maps.at[0], &op->result->type))
        return false;
    readings r = {0};
    TN_PUSH(F->arena, &r, first);
    if (op_is_point(op) ? join_point(F, op, &r) : join_one(F, op, &r, reduction_demand, ""))
        return false;
    group_link(F, op);
    TN_PUSH(F->arena, &g->stored, first_demand(F, op));
    g->inputs++;
    return true;
}

static const char *why_apart(const readings *r)
{
    static const char *const words[] = {[GROUP_POINT] = "its user does not walk the product's result element by element", [GROUP_FOLD] = "its user's kernel reduces",
                                        [GROUP_PRODUCT] = "its user's kernel has a product of its own", [GROUP_ATTENTION] = "its user's kernel is an attention with products of its own"};
    return r->len ? words[r->at[0].g->kind] : words[GROUP_POINT];
}

static void note_refusal(fuser *F, const tn_op *op, const char *why)
{
    const tn_op *user = op->nresults && op->result->uses ? op->result->uses->user : NULL;
    TN_PUSH(&F->session->arena, &F->program->refusals, ((tn_refusal){op, user, why}));
}

/* The demand of the operation as a new group's root. */
static demand *new_root(fuser *F, const tn_op *op)
{
    group *g = fuse_group_new(F, op, &op->result->type);
    *tn_map_at(&F->roots, TN_KEY(op)) = g;
    demand *d = group_demand(F, g, op, map_identity(F, g, op->result->type.rank, NULL));
    TN_PUSH(F->arena, &g->stored, d);
    return d;
}

static bool make_root(fuser *F, const tn_op *op)
{
    demand *d = new_root(F, op);
    if (is_reduction(op))
        return reduction_demand(F, d->group, d);
    if (tn_op_traits(op->code) & TN_CONTRACTS) {
        if (attention_joins(F, d->group, d))
            return true;
        if (d->group->ndims != op->result->type.rank) { /* what an attempt left behind */
            group_drop(F, op);
            d = new_root(F, op);
        }
        return product_joins(F, d->group, d);
    }
    group_derive(F, d->group, d);
    return point_is_derived(d);
}

/* Can all who use v besides the concatenation read it from a part? Steps want whole buffers. */
static bool others_read_parts(const tn_value *v, const tn_op *concat)
{
    int times = 0;
    for (const tn_use *u = v->uses; u; u = u->next) {
        times += u->user == concat;
        if (u->user->block != concat->block || u->user == concat->block->last || op_is_special(u->user))
            return false;
    }
    return times == 1;
}

/* Concatenation stores each operand into its part; operands computed for it alone are computed there. So is a concatenation that others read too (a network that adds
 * features at each layer would copy all of them each time), on a CPU, where rows may begin anywhere. */
static bool is_in_place_part(const fuser *F, const tn_op *concat, int i)
{
    enum { DEEP = 200 }; /* finding the place of a part goes through all that it is in */
    const tn_value *v = tn_operand(concat, i);
    if (!v->def || v->def->block != concat->block || v->def->code == TN_OP_constant || v->def->nresults != 1 || op_is_special(v->def))
        return false;
    const concat_part *outer = tn_map_get(&F->wanted, TN_KEY(concat->result));
    if (outer && outer->depth >= DEEP)
        return false;
    return tn_has_one_use(v) || (v->def->code == TN_OP_concatenate && !fuse_for_gpu(F) && !tn_map_get(&F->wanted, TN_KEY(v)) && others_read_parts(v, concat));
}

/* A concatenation of two small parts on a GPU, of which one at least is computed: a launch costs more than looking at each element for where it comes from. */
static bool is_one_kernel(const fuser *F, const tn_op *concat)
{
    enum { SMALL_BYTES = 4 << 20 };
    int64_t count;
    size_t bytes;
    const tn_type *type = &concat->result->type;
    return fuse_for_gpu(F) && !F->options->no_fusion && concat->noperands == 2 && (is_in_place_part(F, concat, 0) || is_in_place_part(F, concat, 1)) && tn_type_count(type, &count) &&
           tn_dtype_bytes(type->dtype, count, &bytes) && bytes <= SMALL_BYTES;
}

static void want_parts(fuser *F, const tn_op *concat)
{
    int axis = (int)tn_attr_int(concat, TN_A_dimension, 0);
    const concat_part *outer = tn_map_get(&F->wanted, TN_KEY(concat->result));
    concat_part p = {concat, tn_dim_const(F->session, 0), outer ? outer->depth + 1 : 1};
    for (int i = 0; i < concat->noperands; i++) {
        if (is_in_place_part(F, concat, i))
            *tn_map_at(&F->wanted, TN_KEY(tn_operand(concat, i))) = tn_memdup(F->arena, &p, sizeof p);
        p.at = tn_dim_add(F->session, p.at, tn_operand(concat, i)->type.dim[axis]);
    }
}

static void group_op(fuser *F, const tn_op *op)
{
    if (op->code == TN_OP_return || op->code == TN_OP_constant || op_is_special(op) || first_demand(F, op))
        return;
    bool unused = true;
    for (int i = 0; i < op->nresults; i++)
        unused &= !op->result[i].uses;
    if (unused)
        return;
    readings r = {0};
    const char *why = F->options->no_fusion && !op_is_view(op) && op->code != TN_OP_iota ? "fusion is switched off" : collect_readings(F, op, &r);
    if (!why && is_turned_for_convolution(F, op))
        why = "a convolution reads it faster in this order";
    if (!why)
        why = op_is_point(op)      ? join_point(F, op, &r)
              : is_reduction(op)   ? join_one(F, op, &r, reduction_demand, "its user does not walk the rows that it reduces")
                                   : join_one(F, op, &r, contraction_joins, why_apart(&r));
    if (!why) {
        group_link(F, op);
        return;
    }
    const char *known = tn_map_get(&F->declined, TN_KEY(op));
    note_refusal(F, op, known ? known : why);
    if (!F->options->no_fusion && !is_turned_for_convolution(F, op) && join_and_store(F, op))
        return;
    if (op->code == TN_OP_concatenate && !is_one_kernel(F, op)) {
        want_parts(F, op);
        return;
    }
    if (!make_root(F, op))
        F->status = tn_error(F->session, TN_UNSUPPORTED, op->loc, "%s: this form has no lowering", tn_op_name(op->code));
}

bool fuse_group_block(fuser *F, const tn_block *block)
{
    intptr_t place = 0;
    for (const tn_op *op = block->first; op; op = op->next)
        *tn_map_at(&F->places, TN_KEY(op)) = (void *)++place;
    for (const tn_op *op = block->last; op && F->status == TN_OK; op = op->prev)
        group_op(F, op);
    if (F->status == TN_OK && !F->options->no_fusion)
        fuse_share_reads(F, block);
    return F->status == TN_OK;
}
