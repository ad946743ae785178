/* The kernel of an attention: a program takes a block of rows of one head, and walks blocks of keys.
 *
 *     q = Q[rows]                                     once
 *     for blocks of keys:  s = scores of q K[keys]    masked, biased: the graph's operations on the product's accumulators
 *                          m' = max(m, rows of s);  p = exp(s - m');  c = exp(m - m')
 *                          l = l c + sum(p);  acc = acc c + p V[keys];  m = m'
 *     y = acc / l                                     and what the graph computes of it
 *
 * One block of keys needs no loop.
 *
 * (the online softmax of M. Milakov and N. Gimelshein, 2018, with the product of T. Dao et al., FlashAttention, 2022). So that special values are those of the
 * graph: maxima keep NaN; while all keys seen so far are at -inf, 0 is subtracted in place of m, so that such a row ends as 0 / 0, as the graph's does; +inf gives
 * inf - inf. Where a mask hides keys by -inf from all rows of a block, they are not visited: a key's NaN or infinity is then not seen in V.
 *
 * What of the scores is the same for all rows is computed for a row of keys, what is the same for all keys once, before the loop. */
#include "fuse/internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Where the tiles of scores are made. */
struct attend {
    int row, key;                         /* dims of the group; row -1: one */
    int all, keys, rows;                  /* phases: scores, what rows share, what keys share */
    int64_t M, N;
    tn_tvalue *whole;                     /* the block of keys is one that all rows see; NULL: it is not known when */
    bool open;                            /* scores of such a block are made */
};

static tn_dim konst(const emitter *E, int64_t v) { return tn_dim_const(E->F->session, v); }

static tn_dim extent_of(const emitter *E, int j) { return j >= 0 ? fuse_whole_extent(E->F, E->g, j) : konst(E, 1); }

/* ---- phases ------------------------------------------------------------------------------------------------------------------ */

static bool uses(const group *g, const fmap *m, int j)
{
    int parts[FUSE_DIMS], n = fuse_parts_of(g, j, parts);
    for (int i = 0; i < m->rank; i++) {
        if (m->c[i].dyn && uses(g, m->c[i].dyn->at, j))
            return true;
        for (int k = 0; k < n; k++)
            if (m->c[i].a.coef[parts[k]])
                return true;
    }
    return map_is_guarded(m, parts, n);
}

static bool varies_within(const group *g, const demand *d, int j, int depth)
{
    int parts[FUSE_DIMS], n = fuse_parts_of(g, j, parts);
    bool by_operands = tn_op_traits(d->op->code) & TN_ELEMENTWISE || op_is_view(d->op);
    if (d->op->code == TN_OP_iota) {
        for (int k = 0; k < n; k++)
            if (d->map->c[tn_attr_int(d->op, TN_A_iota_dimension, 0)].a.coef[parts[k]])
                return true;
        return false;
    }
    if (!by_operands || depth == 0 || map_is_guarded(d->map, parts, n))
        return uses(g, d->map, j);
    for (int i = 0; i < d->nargs; i++)
        if (d->arg[i] ? varies_within(g, d->arg[i], j, depth - 1) : !fuse_single_constant(tn_operand(d->op, i)) && (!d->argmap[i] || uses(g, d->argmap[i], j)))
            return true;
    return false;
}

/* Its elements differ along dim j. */
static bool varies(const group *g, const demand *d, int j)
{
    enum { DEPTH = 12 };
    return varies_within(g, d, j, DEPTH);
}

/* In a phase of one axis, which is axis `axis` of the scores. */
static tn_tvalue *in_phase(emitter *E, demand *d, int phase, int axis)
{
    const struct attend *t = E->attend;
    int dim[2] = {t->row, t->key}, outer = E->phase;
    tn_extent extent[2] = {E->extent[0], E->extent[1]};
    int others = dim[1 - axis];
    if (others >= 0)
        E->axis[others] = -1;
    if (dim[axis] >= 0)
        E->axis[dim[axis]] = 0;
    E->extent[0] = extent[axis];
    E->rank = 1;
    E->phase = phase;
    tn_tvalue *v = emit_demand(E, d);
    E->phase = outer;
    E->rank = 2;
    for (int i = 0; i < 2; i++) {
        E->extent[i] = extent[i];
        if (dim[i] >= 0)
            E->axis[dim[i]] = i;
    }
    return v->type.rank == 0 ? v : tn_t_broadcast(&E->b, v, emitter_type(E, v->type.dtype), &axis);
}

tn_tvalue *attend_widen(emitter *E, tn_tvalue *v)
{
    tn_dtype wide = fuse_accumulator(v->type.dtype);
    const tn_top *op = v->def;
    if (wide == v->type.dtype || !op || op->code != TN_T_broadcast || !op->naxes)
        return tn_t_cast(&E->b, v, wide);
    return tn_t_broadcast(&E->b, tn_t_cast(&E->b, op->operand[0], wide), emitter_type(E, wide), op->axis);
}

static tn_tvalue *number(emitter *E, tn_dtype dtype, double x) { return tn_t_const(&E->b, tn_tscalar(dtype), tn_number_from_double(dtype, x)); }

/* Of a step that hides some: as they were where none is hidden here, -inf by a condition that stands in for a sum. NULL: d is computed as it stands. */
static tn_tvalue *hidden_scores(emitter *E, demand *d)
{
    double by;
    bool inverted;
    int way;
    if (attention_step_of(E->F, d, &way, &by) != STEP_HIDES)
        return NULL;
    bool passes = d->bounded && E->attend->open;
    demand *select = (demand *)(uintptr_t)attention_hider(E->F, d, way, &inverted);
    if (!passes && select == d)
        return NULL;
    tn_tvalue *score = attend_widen(E, emit_operand(E, d, way));
    if (passes)
        return score;
    tn_tvalue *seen = emit_operand(E, select, 0), *hidden = number(E, score->type.dtype, -INFINITY);
    return inverted ? tn_t_map3(&E->b, TN_S_select, seen, hidden, score) : tn_t_map3(&E->b, TN_S_select, seen, score, hidden);
}

tn_tvalue *attend_demand(emitter *E, demand *d)
{
    const struct attend *t = E->attend;
    if (E->phase == t->all && d->wide && tn_op_scalar(d->op) != TN_SCALAR_NONE)
        return hidden_scores(E, d);
    if (d->wide || E->phase != t->all)
        return NULL;
    bool row = varies(E->g, d, t->row), key = varies(E->g, d, t->key);
    if (row && key)
        return NULL;
    return in_phase(E, d, key ? t->keys : t->rows, key);
}

/* What keys share, where it meets what they don't: made before the loop. */
static void prepare(emitter *E, demand *d)
{
    const struct attend *t = E->attend;
    for (int i = 0; i < d->nargs; i++) {
        demand *from = d->arg[i];
        if (!from || (from->tile && from->phase == t->rows) || tn_map_get(&E->folds, TN_KEY(from)) || from == E->g->attention->keys_demand)
            continue;
        if (from->wide || varies(E->g, from, t->key))
            prepare(E, from);
        else
            in_phase(E, from, t->rows, 0);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------------------ */

static tn_tvalue *spread(emitter *E, tn_tvalue *rows, tn_dtype dtype)
{
    int axis = 0;
    return tn_t_broadcast(&E->b, rows, emitter_type(E, dtype), &axis);
}

static tn_tvalue *reduce_rows(emitter *E, tn_tvalue *x, tn_scalar fn)
{
    tn_number identity;
    int axis = 1;
    tn_scalar_identity(fn, x->type.dtype, &identity);
    tn_top *op = tn_t_reduce(&E->b, &x, 1, 1, &axis, &identity);
    tn_t_combine_fn(&E->b, op->region[0], fn, x->type.dtype);
    return op->result;
}

/* The factor by which the product's sums are multiplied before anything else is done to them but hiding some at -inf: it commutes with that and with the
 * maximum, so that it can be part of the exponent. The multiplication is then passed over. 1: none. */
static double take_factor(fuser *F, attention *a)
{
    double scale = a->scale, by;
    int way;
    for (const demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        attention_step step = attention_step_of(F, d, &way, &by);
        if (step == STEP_OTHER)
            return 0;
        scale = step == STEP_SCALES ? scale * by : step == STEP_DIVIDES ? scale / by : scale;
    }
    if (!(scale > 0) || isinf(scale))
        return 0;
    for (demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        attention_step step = attention_step_of(F, d, &way, &by);
        if (step == STEP_SCALES || step == STEP_DIVIDES)
            d->passes = way + 1;
    }
    return scale;
}

/* Something is added to scores, other than what is known to hide keys by their place. */
static bool adds_to_scores(fuser *F, const attention *a)
{
    double by;
    int way;
    for (const demand *d = a->scores; d != a->keys_demand; d = d->arg[way])
        if (attention_step_of(F, d, &way, &by) == STEP_OTHER && !d->bounded)
            return true;
    return false;
}

/* Scores past the last key, if a block may hold some, do not count. */
static bool ends_in_block(emitter *E, const struct attend *t)
{
    tn_dim keys = extent_of(E, t->key);
    return !tn_dim_eq(E->F->session, tn_dim_mul(E->F->session, tn_dim_floordiv(E->F->session, keys, konst(E, t->N)), konst(E, t->N)), keys);
}

static tn_tvalue *end_keys(emitter *E, const struct attend *t, tn_tvalue *s)
{
    tn_dim keys = extent_of(E, t->key);
    int axis = 1;
    if (!ends_in_block(E, t))
        return s;
    tn_tbuilder *b = &E->b;
    tn_tvalue *at = tn_t_range(b, E->start[t->key], tn_extent_const(t->N));
    tn_tvalue *inside = tn_t_broadcast(b, tn_t_map2(b, TN_S_lt, at, tn_t_size(b, keys)), emitter_type(E, TN_BOOL), &axis);
    return tn_t_map3(b, TN_S_select, inside, s, number(E, s->type.dtype, -INFINITY));
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

typedef struct shape {
    int row, key, depth, column;
    int64_t M, N, D, C;
    tn_dtype sums;  /* of maxima and accumulators */
    double scale;   /* of what scores() gives; 1 but for a factor that is part of the exponent */
    bool base2;
    bool low;       /* a mask that is added may leave a row nothing but the lowest numbers of f32 */
} shape;

static tn_dtype factor_type(const tn_op *op) { return product_type(tn_operand(op, 0)->type.dtype, tn_operand(op, 1)->type.dtype, op->result->type.dtype); }

static tn_tvalue *all_scores(emitter *E, const attention *a, const shape *x) { return emit_full_tile(E, tn_t_cast(&E->b, emit_demand(E, a->scores), x->sums)); }

static tn_tvalue *scores(emitter *E, const attention *a, const shape *x, tn_tvalue *q)
{
    struct attend *t = E->attend;
    tn_dtype type = factor_type(a->keys), sums = fuse_accumulator(a->keys->result->type.dtype);
    product_matrix_axes(E, x->depth, x->D, x->key, x->N);
    tn_tvalue *k = product_factor(E, emit_operand(E, a->keys_demand, 1 - a->query), type);
    tn_tvalue *product = tn_t_dot(&E->b, q, k, sums, fuse_precision(E->F, q->type.dtype));
    product_matrix_axes(E, x->row, x->M, x->key, x->N);
    t->all = E->phase;
    t->keys = ++E->phases;
    if (a->scale != 1 && !x->scale)
        product = tn_t_map2(&E->b, TN_S_mul, product, number(E, sums, a->scale));
    emit_set_result(E, a->keys_demand, product);
    if (!t->whole)
        return end_keys(E, t, all_scores(E, a, x));
    tn_ttype tile = emitter_type(E, x->sums);
    tn_top *either = tn_t_if(&E->b, t->whole, 1, &tile);
    tn_tblock *outer = E->b.block;
    for (int i = 0; i < 2; i++) {
        E->b.block = either->region[i];
        E->phase = t->all = ++E->phases;
        t->keys = ++E->phases;
        t->open = i == 0;
        tn_tvalue *s = all_scores(E, a, x);
        s = i == 0 ? s : end_keys(E, t, s);
        tn_t_yield(&E->b, &s, 1);
    }
    E->b.block = outer;
    return either->result;
}

/* Threads of a GPU hold it: it is there in registers as its product's accumulators were. What an `if` gives is held anyway. */
static void keep(emitter *E, tn_tvalue *v, const char *label)
{
    if (!fuse_for_gpu(E->F) || v->def->code == TN_T_dot || v->def->code == TN_T_if)
        return;
    v->def->label = tn_intern_z(E->F->session, label);
    tn_schedule_set(E->kernel, label, "keep", 1);
}

/* old: what blocks before left, NULL: there is no other block. */
static void one_block(emitter *E, const attention *a, const shape *x, tn_tvalue *q, tn_tvalue *const *old, tn_tvalue **next)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *s = scores(E, a, x, q);
    keep(E, s, "scores");
    double by = (x->scale ? x->scale : 1) * 1.4426950408889634;
    tn_tvalue *top = reduce_rows(E, s, TN_S_max), *lowest = number(E, x->sums, -INFINITY);
    if (old)
        top = tn_t_map2(b, TN_S_max, old[0], top);
    tn_tvalue *from = tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_eq, top, lowest), number(E, x->sums, 0), top), *p, *fade = NULL;
    if (x->base2) {
        tn_tvalue *c = number(E, x->sums, by), *each = c;
        if (x->low) { /* the product with `by` would be infinite; where scores are that low, any two that differ are far apart by half of it too */
            c = tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_lt, from, number(E, x->sums, -1e38)), number(E, x->sums, 0.5), c);
            each = spread(E, c, x->sums);
        }
        tn_tvalue *minus = tn_t_map1(b, TN_S_neg, tn_t_map2(b, TN_S_mul, from, c));
        p = tn_t_map1(b, TN_S_exp2, tn_t_map3(b, TN_S_fma, s, each, spread(E, minus, x->sums)));
        if (old)
            fade = tn_t_map1(b, TN_S_exp2, tn_t_map3(b, TN_S_fma, old[0], c, minus));
    } else {
        p = tn_t_map1(b, TN_S_exp, tn_t_map2(b, TN_S_sub, s, spread(E, from, x->sums)));
        if (old)
            fade = tn_t_map1(b, TN_S_exp, tn_t_map2(b, TN_S_sub, old[0], from));
    }
    keep(E, p, "weights");
    next[0] = top;
    next[1] = reduce_rows(E, p, TN_S_add);
    if (old)
        next[1] = tn_t_map3(b, TN_S_fma, old[1], fade, next[1]);
    tn_dtype type = factor_type(a->values);
    tn_tvalue *weights = tn_t_cast(b, p, type);
    product_matrix_axes(E, x->key, x->N, x->column, x->C);
    tn_tvalue *v = product_factor(E, emit_operand(E, a->values_demand, 1 - a->weights), type);
    product_matrix_axes(E, x->row, x->M, x->column, x->C);
    tn_tvalue *product = tn_t_dot(b, weights, v, x->sums, fuse_precision(E->F, type));
    next[2] = old ? tn_t_map3(b, TN_S_fma, old[2], spread(E, fade, x->sums), product) : product;
}

static tn_tvalue *splat(emitter *E, double value, tn_ttype type) { return tn_t_const(&E->b, type, tn_number_from_double(type.dtype, value)); }

static bool hides_by_bounds(fuser *F, const attention *a)
{
    int way;
    double by;
    for (const demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        if (d->bounded)
            return true;
        if (attention_step_of(F, d, &way, &by) == STEP_OTHER)
            return false;
    }
    return false;
}

/* All rows see all of the turn's block of keys, as far as bounds hide any: most blocks, of which no condition is looked at. */
static tn_tvalue *is_whole(emitter *E, const attention_keys *keys, int64_t N)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *start = E->start[E->attend->key], *before = tn_t_map2(b, TN_S_le, tn_t_map2(b, TN_S_add, start, tn_t_index(b, N)), keys->all_limit);
    return keys->all_first ? tn_t_map2(b, TN_S_and, before, tn_t_map2(b, TN_S_ge, start, keys->all_first)) : before;
}

/* Maxima, sums and accumulators behind the loop. */
static tn_tvalue **walk_blocks(emitter *E, const attention *a, const shape *x, tn_tvalue *q)
{
    tn_tbuilder *b = &E->b;
    tn_extent rows = tn_extent_const(x->M), both[2] = {rows, tn_extent_const(x->C)};
    tn_tvalue *start[3] = {splat(E, -INFINITY, tn_tile_type(x->sums, 1, &rows)), splat(E, 0, tn_tile_type(x->sums, 1, &rows)), splat(E, 0, tn_tile_type(x->sums, 2, both))};
    tn_tvalue *next[3], **last = TN_NEW_ARRAY(E->F->arena, tn_tvalue *, 3);
    tn_tblock *outer = b->block;
    attention_keys keys = attention_visible(E, x->row, x->M, x->N);
    tn_top *loop = tn_t_for(b, keys.first, keys.limit, tn_t_index(b, x->N), start, 3);
    loop->label = tn_intern_z(E->F->session, "keys");
    b->block = loop->region[0];
    E->start[x->key] = &loop->region[0]->arg[0];
    if (fuse_for_gpu(E->F) && (ends_in_block(E, E->attend) || hides_by_bounds(E->F, a)))
        E->attend->whole = is_whole(E, &keys, x->N);
    tn_tvalue *old[3] = {&loop->region[0]->arg[1], &loop->region[0]->arg[2], &loop->region[0]->arg[3]};
    one_block(E, a, x, q, old, next);
    tn_t_yield(b, next, 3);
    b->block = outer;
    for (int i = 0; i < 3; i++)
        last[i] = &loop->result[i];
    return last;
}

static void walk_keys(emitter *E, const attention *a, const shape *x)
{
    tn_tbuilder *b = &E->b;
    struct attend t = {.row = x->row, .key = x->key, .M = x->M, .N = x->N};
    tn_tvalue *zero = tn_t_index(b, 0);
    E->start[x->depth] = zero;
    if (x->column >= 0)
        E->start[x->column] = zero;
    product_matrix_axes(E, x->row, x->M, x->depth, x->D);
    tn_tvalue *q = product_factor(E, emit_operand(E, a->keys_demand, a->query), factor_type(a->keys));

    E->attend = &t;
    t.rows = ++E->phases;
    t.all = -1;
    product_matrix_axes(E, x->row, x->M, x->key, x->N);
    prepare(E, a->scores);
    tn_dim keys = extent_of(E, x->key);
    tn_tvalue *done[3], **last = done;
    if (tn_dim_is_const(keys) && keys->value >= 1 && keys->value <= x->N) {
        E->start[x->key] = zero;
        one_block(E, a, x, q, NULL, done);
    } else {
        last = walk_blocks(E, a, x, q);
    }
    E->start[x->key] = E->start[x->depth] = NULL;
    E->attend = NULL;

    product_matrix_axes(E, x->row, x->M, x->column, x->C);
    tn_tvalue *y = tn_t_map2(b, TN_S_div, last[2], spread(E, last[1], x->sums));
    if (extent_of(E, x->key)->lo < 1) /* of no keys comes the empty product */
        y = tn_t_map3(b, TN_S_select, tn_t_map2(b, TN_S_gt, tn_t_size(b, extent_of(E, x->key)), zero), y, number(E, x->sums, 0));
    emit_set_result(E, a->values_demand, tn_t_cast(b, y, a->values->result->type.dtype));
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

/* Rows are dims that Q walks and V does not: the longest one is the tiles', of equal ones the innermost. */
static int pick_rows(fuser *F, const group *g)
{
    const attention *a = g->attention;
    const fmap *w = a->values_demand->argmap[a->weights], *v = a->values_demand->argmap[1 - a->weights];
    int best = -1;
    int64_t most = 1;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at], parts[FUSE_DIMS], n = fuse_parts_of(g, j, parts);
        bool row = !g->dim[j].fold && !g->dim[j].absorbed;
        for (int i = 0; i < n; i++)
            row &= map_uses(w, parts[i]) && !map_uses(v, parts[i]);
        tn_dim extent = fuse_whole_extent(F, g, j);
        int64_t size = tn_dim_is_const(extent) ? extent->value : INT64_MAX;
        if (row && size > 1 && size >= most) {
            best = j;
            most = size;
        }
    }
    return best;
}

/* What tiles walk of dim j, -1: 1: as few blocks of one size as hold it, at most `most`; r * 2^k with r up to 15, as extents are. */
static int64_t side_of(fuser *F, const group *g, int j, int64_t most)
{
    enum { ODD = 15 };
    tn_dim d = j >= 0 ? fuse_whole_extent(F, g, j) : tn_dim_const(F->session, 1);
    int64_t n = tn_dim_is_const(d) ? tn_max(d->value, 1) : most, unit = 1;
    n = tn_ceildiv(n, tn_ceildiv(n, most));
    while (tn_ceildiv(n, unit) > ODD)
        unit *= 2;
    return tn_ceildiv(n, unit) * unit;
}

/* Blocks of keys whose scores stay in the second cache with the panels of both products; rows that make packing those cheap, fewer where threads would idle. */
fuse_attention_tile fuse_cpu_attention(fuser *F, const group *g, int row)
{
    enum { ROWS = 128, LEAST_ROWS = 32, KEYS = 128, WIDE = 1 << 16 };
    const attention *a = g->attention;
    int64_t tasks = F->options->target.threads > 1 ? 4 * F->options->target.threads : 1, others = 1, most = ROWS;
    fuse_attention_tile t = {.N = side_of(F, g, a->key, KEYS), .D = side_of(F, g, a->depth, WIDE), .C = side_of(F, g, a->column, WIDE)};
    tn_dim rows = row >= 0 ? fuse_whole_extent(F, g, row) : tn_dim_const(F->session, 1);
    for (int j = 0; j < g->ndims; j++)
        if (!g->dim[j].fold && !g->dim[j].absorbed && j != row && j != a->column)
            others *= tn_dim_is_const(g->dim[j].extent) ? g->dim[j].extent->value : 4;
    while (most > LEAST_ROWS && others * tn_ceildiv(tn_dim_is_const(rows) ? rows->value : 256, most) < tasks)
        most /= 2;
    t.M = side_of(F, g, row, most);
    return t;
}

static double count_of(fuser *F, const group *g, int j)
{
    tn_dim d = j >= 0 ? fuse_whole_extent(F, g, j) : tn_dim_const(F->session, 1);
    return tn_dim_is_const(d) ? (double)tn_max(d->value, 1) : 1024;
}

/* The tiles, or what the tuner takes instead. Time is estimated at a multiply-add a cycle and lane, 64 lanes a GPU's processor: kernels that take longest are tuned first. */
static void ask_for_tiles(fuser *F, group *g, int row, fuse_attention_tile *t)
{
    enum { LEAST = 16, WIDEST = 256, MOST_WARPS = 8, LANES = 64 };
    static const char *const fields[] = {"M", "N", "warps"};
    const attention *a = g->attention;
    const tn_tile_target *target = &F->options->target;
    fuse_candidates c = {.field = fields, .nfields = TN_COUNT(fields), .tile = TN_COUNT(fields)};
    double ns = count_of(F, g, a->key) * (count_of(F, g, a->depth) + count_of(F, g, a->column));
    for (int j = 0; j < g->ndims; j++)
        if (!g->dim[j].fold && !g->dim[j].absorbed && j != a->column)
            ns *= count_of(F, g, j);
    ns /= (double)(target->gpu ? LANES * tn_max(target->wave, 1) : tn_max(target->vector_bits / 32, 1) * tn_max(target->threads, 1));
    int64_t most_rows = tn_min(pow2_ceil((int64_t)count_of(F, g, row)), WIDEST), most_keys = tn_min(pow2_ceil((int64_t)count_of(F, g, a->key)), WIDEST);
    fuse_add_neighbours(F, &c, (int64_t[]){t->M, t->N, t->warps}, (int64_t[]){LEAST, LEAST, 1}, (int64_t[]){most_rows, most_keys, t->warps ? tn_max(MOST_WARPS, t->warps) : 0}, ns);
    const int64_t *v = fuse_choose(F, g, "attention", NULL, &c)->value;
    t->M = v[0], t->N = v[1], t->warps = (int)v[2];
}

void fuse_emit_attention(fuser *F, tn_steps *steps, group *g)
{
    attention *a = g->attention;
    fuse_merge_dims(F, g);
    shape x = {.row = pick_rows(F, g), .key = a->key, .depth = a->depth, .column = a->column, .sums = fuse_accumulator(a->values->result->type.dtype)};
    fuse_attention_tile tiles = fuse_for_gpu(F) ? fuse_gpu_attention(F, g, x.row) : fuse_cpu_attention(F, g, x.row);
    if (fuse_is_asked(F))
        ask_for_tiles(F, g, x.row, &tiles);
    x.M = tiles.M, x.N = tiles.N, x.D = tiles.D, x.C = tiles.C;
    if (tn_dtype_bits(fuse_accumulator(a->scores->op->result->type.dtype)) > tn_dtype_bits(x.sums))
        x.sums = fuse_accumulator(a->scores->op->result->type.dtype);
    x.base2 = x.sums == TN_F32 && (F->options->numerics == TN_NUMERICS_FAST || tn_dtype_bits(a->values->result->type.dtype) < 32);
    x.scale = x.base2 ? take_factor(F, a) : 0;
    x.low = x.base2 && adds_to_scores(F, a);

    emitter *E = emitter_new(F, g, "attention");
    if (tiles.warps)
        tn_schedule_set(E->kernel, "", "warps", tiles.warps);
    emit_other_grid_dims(E, x.row, x.column);
    if (x.row >= 0)
        E->start[x.row] = tn_kernel_grid(E->kernel, "m", fuse_whole_extent(F, g, x.row), tn_extent_const(x.M));
    walk_keys(E, a, &x);
    demand *root = g->demands.at[0];
    E->row_axes = 2;
    emit_store(E, fuse_location(F, g->root->result), root->map, emit_full_tile(E, emit_demand(E, root)));
    emitter_finish(E, steps);
}
