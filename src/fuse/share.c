/* Kernels that read the same become one. Two groups that both walk all of a stored value are one kernel that reads it once and stores what both gave: a mean and a variance that
 * the network returns, gradients of one tensor, a sum and a maximum of the same rows. The earlier one moves to where the later one stands, if whatever reads its results stands
 * behind that; what the later one read of them is then computed, not loaded. */
#include "fuse/internal.h"

#include <string.h>

/* How the dims of `from` lie among those of `to`; -1: an extent of 1, which `to` need not have. */
typedef struct turn {
    group *from, *to;
    int dim[FUSE_DIMS];
    tn_map guards; /* guard of `from` -> the same in `to`: maps are the same if their guards are */
} turn;

/* The map names every place of the group's space, of more than one: dims[i] is the dim of coordinate i, -1 of an extent of 1. */
static bool walks_all(fuser *F, const group *g, const fmap *m, const tn_type *type, int *dims)
{
    bool many = false;
    for (int j = 0; j < g->ndims; j++)
        many |= !group_dim_is_one(g, j);
    return many && map_walks_all(F, g, m, type, dims);
}

/* Operand i of d if it is read from memory, all of it; NULL: it is not. */
static const tn_value *read_whole(fuser *F, const demand *d, int i, int *dims)
{
    const tn_value *v = tn_operand(d->op, i);
    return !d->arg[i] && d->argmap[i] && v->type.rank > 0 && walks_all(F, d->group, d->argmap[i], &v->type, dims) ? v : NULL;
}

static affine turn_affine(const turn *t, const affine *a)
{
    affine to = {.base = a->base};
    for (int j = 0; j < t->from->ndims; j++)
        if (t->dim[j] >= 0)
            to.coef[t->dim[j]] = a->coef[j];
    return to;
}

static fguard *turn_guards(fuser *F, turn *t, fguard *q)
{
    if (!q)
        return NULL;
    fguard *known = tn_map_get(&t->guards, TN_KEY(q));
    if (known)
        return known;
    fguard *to = TN_NEW(F->arena, fguard);
    *to = (fguard){turn_affine(t, &q->at), q->limit, turn_guards(F, t, q->next)};
    *tn_map_at(&t->guards, TN_KEY(q)) = to;
    return to;
}

static bool same_when_turned(const turn *t, const fmap *m, const fmap *in)
{
    if (m->rank != in->rank || m->guards || in->guards || m->movement_only || in->movement_only || m->repeated || in->repeated)
        return false;
    for (int i = 0; i < m->rank; i++) {
        affine a = turn_affine(t, &m->c[i].a);
        if (m->c[i].dyn || in->c[i].dyn || a.base != in->c[i].a.base || memcmp(a.coef, in->c[i].a.coef, sizeof a.coef))
            return false;
    }
    return true;
}

/* Behind the kernel of `to` stands all that reads what d gives, but for the two groups; `to` itself reads it where d computes it. */
static bool is_free_until(fuser *F, const turn *t, const demand *d, int64_t place)
{
    for (const tn_use *use = d->op->result->uses; use; use = use->next) {
        const tn_op *user = use->user;
        int i = (int)(use - user->operand);
        if (fuse_leaves_block(d->op, user))
            return false;
        const demand *by = tn_map_get(&F->demands, TN_KEY(user));
        if (!by && fuse_place(F, user) < place)
            return false;
        for (; by; by = by->next) {
            if (by->group == t->from ? !by->arg[i]
                : by->group == t->to ? fuse_is_position(user, i) || !by->argmap[i] || !same_when_turned(t, d->map, by->argmap[i])
                                     : fuse_place(F, by->group->root) < place)
                return false;
        }
    }
    return true;
}

/* What a result of `from` is stored at is in the order of the dims of `to`, each once. */
static bool is_stored_in_order(fuser *F, const turn *t, const demand *d)
{
    int dims[FUSE_DIMS];
    if (!map_picks_dims(F, t->from, d->map, &d->op->result->type, dims))
        return false;
    for (int i = 0; i < d->map->rank; i++)
        dims[i] = dims[i] >= 0 ? t->dim[dims[i]] : -1;
    return group_has_in_order(t->to, dims, d->map->rank);
}

static bool is_shareable(const group *g)
{
    return (g->kind == GROUP_POINT || g->kind == GROUP_FOLD) && !g->windowed && g->root->nresults == 1 && (g->kind == GROUP_FOLD || (tn_op_traits(g->root->code) & TN_ELEMENTWISE));
}

/* from's dims by way of a value that both walk all of; false: the two do not walk alike. Where only one reduces rows, rows must be many. */
static bool find_turn(turn *t, const int *from, const int *to, int rank)
{
    bool fold[FUSE_DIMS] = {false};
    for (int j = 0; j < t->from->ndims; j++)
        t->dim[j] = -1;
    for (int i = 0; i < rank; i++) {
        if ((from[i] < 0) != (to[i] < 0))
            return false;
        if (from[i] < 0)
            continue;
        if (t->from->kind == t->to->kind && t->from->dim[from[i]].fold != t->to->dim[to[i]].fold)
            return false;
        fold[to[i]] = t->from->dim[from[i]].fold || t->to->dim[to[i]].fold;
        t->dim[from[i]] = to[i];
    }
    for (int j = 0; j < t->from->ndims; j++)
        if (t->from->dim[j].fold && t->dim[j] < 0)
            return false; /* a sum of one element: `to` may have no such dim */
    return t->from->kind == t->to->kind || group_rows_are_many(t->to, fold);
}

/* Places along an extent of 1 are 0, so that maps that name the same are the same. */
static void forget_units(group *g)
{
    for (size_t i = 0; i < g->maps.len; i++)
        for (int k = 0; k < g->maps.at[i]->rank; k++)
            for (int j = 0; j < g->ndims; j++)
                if (group_dim_is_one(g, j) || (g->maps.at[i]->c[k].a.coef[j] && tn_dim_is(g->maps.at[i]->c[k].a.coef[j], 0)))
                    g->maps.at[i]->c[k].a.coef[j] = NULL;
}

static bool reads_all(fuser *F, const group *g, const tn_value *v)
{
    int dims[FUSE_DIMS];
    for (size_t k = 0; k < g->demands.len; k++)
        for (int i = 0; i < g->demands.at[k]->nargs; i++)
            if (tn_operand(g->demands.at[k]->op, i) == v && read_whole(F, g->demands.at[k], i, dims))
                return true;
    return false;
}

/* Does `from` read all of more than one value that `to` does not? A row of each would have to be kept too. */
static bool has_more_to_read(fuser *F, const turn *t)
{
    const tn_value *more = NULL;
    int dims[FUSE_DIMS];
    for (size_t k = 0; k < t->from->demands.len; k++)
        for (int i = 0; i < t->from->demands.at[k]->nargs; i++) {
            const tn_value *v = read_whole(F, t->from->demands.at[k], i, dims);
            if (!v || v == more || reads_all(F, t->to, v))
                continue;
            if (more)
                return true;
            more = v;
        }
    return false;
}

static bool may_share(fuser *F, turn *t)
{
    enum { MOST_INPUTS = 24 };
    group *a = t->from, *b = t->to;
    int64_t place = fuse_place(F, b->root);
    bool rows = a->kind == GROUP_FOLD || b->kind == GROUP_FOLD;
    if (a->nops + b->nops > FUSE_OPS || a->inputs + b->inputs + 1 > MOST_INPUTS || a->stored.len + b->stored.len > FUSE_RESULTS || (rows && has_more_to_read(F, t)))
        return false;
    forget_units(a);
    forget_units(b);
    for (size_t i = 0; i < a->stored.len; i++)
        if (!is_free_until(F, t, a->stored.at[i], place) || !is_stored_in_order(F, t, a->stored.at[i]))
            return false;
    return true;
}

/* Somebody reads what d gives from memory. */
static bool is_wanted(fuser *F, const demand *d)
{
    for (const tn_use *use = d->op->result->uses; use; use = use->next) {
        const demand *by = tn_map_get(&F->demands, TN_KEY(use->user));
        if (!by)
            return true;
        for (; by; by = by->next)
            if (by->group != d->group || !by->arg[use - use->user->operand])
                return true;
    }
    return false;
}

static void share(fuser *F, turn *t)
{
    group *a = t->from, *b = t->to;
    for (size_t i = 0; i < a->maps.len; i++) {
        fmap *m = a->maps.at[i];
        for (int k = 0; k < m->rank; k++)
            m->c[k].a = turn_affine(t, &m->c[k].a);
        m->guards = turn_guards(F, t, m->guards);
        TN_PUSH(F->arena, &b->maps, m);
    }
    for (size_t i = 0; i < a->demands.len; i++) {
        a->demands.at[i]->group = b;
        TN_PUSH(F->arena, &b->demands, a->demands.at[i]);
    }
    if (a->kind == GROUP_FOLD && b->kind == GROUP_POINT) {
        for (int j = 0; j < a->ndims; j++)
            if (t->dim[j] >= 0)
                b->dim[t->dim[j]].fold = a->dim[j].fold;
        b->kind = GROUP_FOLD;
        b->full_root = true;
    }
    b->nops += a->nops;
    b->inputs += a->inputs + 1;
    *tn_map_at(&F->roots, TN_KEY(a->root)) = NULL;
    for (size_t i = 0; i < a->stored.len; i++) {
        group_link(F, a->stored.at[i]->op);
        TN_PUSH(F->arena, &b->stored, a->stored.at[i]);
    }
    size_t n = 1;
    for (size_t i = 1; i < b->stored.len; i++)
        if (is_wanted(F, b->stored.at[i]))
            b->stored.at[n++] = b->stored.at[i];
    b->stored.len = n;
    a->demands.len = 0;
}

/* A group that walked all of a value, or gave it, the last one so far, and how. */
typedef struct walker {
    group *g;
    int dims[TN_MAX_RANK];
} walker;

/* b walks v so: it is shared with who did before. */
static void meet(fuser *F, tn_map *walkers, const tn_value *v, group *b, const int *dims)
{
    walker **cell = (walker **)tn_map_at(walkers, TN_KEY(v)), *w = *cell;
    turn t = {.from = w ? w->g : NULL, .to = b, .guards.arena = F->arena};
    if (t.from && t.from != b && t.from->demands.len && find_turn(&t, w->dims, dims, v->type.rank) && may_share(F, &t))
        share(F, &t);
    if (!w)
        *cell = w = TN_NEW(F->arena, walker);
    w->g = b;
    memcpy(w->dims, dims, sizeof w->dims);
}

static void share_reads(fuser *F, tn_map *walkers, group *b)
{
    int dims[FUSE_DIMS];
    for (size_t k = 0; k < b->demands.len; k++) /* more come when one moves in */
        for (int i = 0; i < b->demands.at[k]->nargs; i++) {
            const tn_value *v = read_whole(F, b->demands.at[k], i, dims);
            if (v && !tn_constant_of(v))
                meet(F, walkers, v, b, dims);
        }
    for (size_t k = 1; k < b->stored.len; k++)
        if (walks_all(F, b, b->stored.at[k]->map, &b->stored.at[k]->op->result->type, dims))
            meet(F, walkers, b->stored.at[k]->op->result, b, dims);
}

void fuse_share_reads(fuser *F, const tn_block *block)
{
    tn_map walkers = {.arena = F->arena};
    for (const tn_op *op = block->first; op; op = op->next) {
        group *g = tn_map_get(&F->roots, TN_KEY(op));
        if (g && is_shareable(g))
            share_reads(F, &walkers, g);
    }
}
