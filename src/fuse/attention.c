/* Attention in its parts: softmax(scores) V, where scores are computed element by element from a product Q K^T.
 *
 *     s = dot_general(q, k)        scaled, masked, biased, capped …: any chain of elementwise operations and views, whatever else it reads
 *     w = exp(s - max(s)) / sum(…) along the axis that the second product contracts; converts anywhere
 *     y = dot_general(w, v)        either factor; views (heads moved about, grouped heads) at every joint
 *
 * All of it becomes one kernel (attend.c) that walks blocks of keys and never stores s or w. What is recognised is where elements are read, not the spelling:
 * every operation between the products gets its map of the group's dims as anywhere in grouping, and the maps must say that sums and maxima run over the contracted
 * dim and are read back all along it. Numbers that Q and K are multiplied by become one scale of the scores. If anything does not fit, the group stays as it was, and
 * why is said of the quotient, whose result is then stored. */
#include "fuse/internal.h"

#include <math.h>

enum { MOST_OPS = 500 };

typedef struct finder {
    fuser *F;
    attention *a;
    tn_map state; /* op -> reach */
    TN_VEC(const tn_op *) ops; /* between the products, both included, producers first */
    TN_VEC(const tn_op *) products; /* from which scores may come */
    const tn_op *quotient, *sum, *top;
    const tn_value *score;
    int seen;
} finder;

typedef enum reach { REACH_UNKNOWN, REACH_NO, REACH_YES } reach;

static bool is_float_convert(const tn_op *op)
{
    return op->code == TN_OP_convert && tn_is_float(op->result->type.dtype) && tn_is_float(tn_operand(op, 0)->type.dtype);
}

/* What makes v, behind views and conversions between floats; NULL: an argument or a value from outside. */
static const tn_op *maker(const tn_value *v, const tn_block *block)
{
    while (v->def && v->def->block == block && (op_is_view(v->def) || is_float_convert(v->def)))
        v = tn_operand(v->def, 0);
    return v->def && v->def->block == block ? v->def : NULL;
}

static const tn_op *maker_by(const tn_value *v, const tn_block *block, tn_scalar fn)
{
    const tn_op *op = maker(v, block);
    return op && op->nresults == 1 && tn_op_scalar(op) == fn ? op : NULL;
}

/* A reduction of one value along one dim by fn, from where fn starts. */
static bool reduces_by(const tn_op *op, tn_scalar fn)
{
    int n;
    if (!op || op->code != TN_OP_reduce || op->nresults != 1 || fuse_region_fn(op->region[0]) != fn)
        return false;
    const tn_tensor *start = fuse_single_constant(tn_operand(op, 1));
    tn_attr_ints(op, TN_A_dimensions, &n);
    if (!start || n != 1 || !tn_is_float(start->dtype))
        return false;
    double first = tn_number_to_double(start->dtype, tn_tensor_at(start, 0));
    return fn == TN_S_add ? first == 0 : first == -INFINITY;
}

/* The softmax behind factor v of the product: fills in the quotient and the scores. */
static bool find_softmax(finder *f, const tn_value *v, const tn_block *block)
{
    const tn_op *quotient = maker_by(v, block, TN_S_div);
    const tn_op *power = quotient ? maker_by(tn_operand(quotient, 0), block, TN_S_exp) : NULL;
    const tn_op *sum = power ? maker(tn_operand(quotient, 1), block) : NULL;
    const tn_op *shift = power ? maker_by(tn_operand(power, 0), block, TN_S_sub) : NULL;
    const tn_op *top = shift ? maker(tn_operand(shift, 1), block) : NULL;
    if (!top || !reduces_by(sum, TN_S_add) || !reduces_by(top, TN_S_max) || maker(tn_operand(sum, 0), block) != power ||
        tn_operand(top, 0) != tn_operand(shift, 0))
        return false;
    f->quotient = quotient;
    f->sum = sum;
    f->top = top;
    f->score = tn_operand(shift, 0);
    return true;
}

/* ---- what lies between ------------------------------------------------------------------------------------------------------- */

/* Scores may be computed by it: element by element, or elsewhere. */
static bool is_step(const tn_op *op)
{
    if (op->nresults != 1)
        return false;
    return tn_op_scalar(op) != TN_SCALAR_NONE || is_float_convert(op) || op->code == TN_OP_reshape || op->code == TN_OP_transpose || op->code == TN_OP_broadcast_in_dim;
}

static void find_products(finder *f, const tn_value *v)
{
    const tn_op *op = v->def;
    if (!op || op->block != f->quotient->block || f->seen > MOST_OPS || tn_map_get(&f->state, TN_KEY(op)))
        return;
    *tn_map_at(&f->state, TN_KEY(op)) = (void *)(intptr_t)REACH_NO;
    f->seen++;
    if (op->code == TN_OP_dot_general)
        TN_PUSH(f->F->arena, &f->products, op);
    for (int i = 0; is_step(op) && i < op->noperands; i++)
        find_products(f, tn_operand(op, i));
}

/* Collects the operations on ways from f->a->keys to v, producers first. */
static reach collect(finder *f, const tn_value *v)
{
    const tn_op *op = v->def;
    if (!op || op->block != f->quotient->block)
        return REACH_NO;
    void **state = tn_map_at(&f->state, TN_KEY(op));
    if (*state)
        return (reach)(intptr_t)*state;
    *state = (void *)(intptr_t)REACH_NO;
    reach r = op == f->a->keys ? REACH_YES : REACH_NO;
    bool goes_on = op != f->a->keys && (is_step(op) || op == f->sum || op == f->top) && f->seen++ < MOST_OPS;
    for (int i = 0; goes_on && i < op->noperands; i++)
        if (collect(f, tn_operand(op, i)) == REACH_YES)
            r = REACH_YES;
    if (r == REACH_YES)
        TN_PUSH(f->F->arena, &f->ops, op);
    *tn_map_at(&f->state, TN_KEY(op)) = (void *)(intptr_t)r;
    return r;
}

static bool used_within(const finder *f, const tn_op *op)
{
    for (const tn_use *use = op->result->uses; use; use = use->next)
        if (use->user != f->a->values && (reach)(intptr_t)tn_map_get(&f->state, TN_KEY(use->user)) != REACH_YES)
            return false;
    return true;
}

/* ---- demands ------------------------------------------------------------------------------------------------------------------ */

/* The dim that the product contracts, whole. -1: none, or several. */
static int contract(fuser *F, group *g, demand *d)
{
    int n;
    tn_attr_ints(d->op, TN_A_lhs_contract, &n);
    if (n != 1 || !product_contract(F, g, d))
        return -1;
    g->dim[g->ndims - 1].whole = true;
    return g->ndims - 1;
}

/* Along `axis` the operand is read all over the keys, else where the result is. */
static bool reduce_over_keys(fuser *F, group *g, demand *d, int key)
{
    int n, k = 0;
    int64_t axis = tn_attr_ints(d->op, TN_A_dimensions, &n)[0];
    const tn_type *type = &tn_operand(d->op, 0)->type;
    if (!tn_dim_eq(F->session, type->dim[axis], g->dim[key].extent))
        return false;
    fmap *m = map_new(F, g, type->rank);
    for (int i = 0; i < type->rank; i++)
        if (i == axis)
            m->c[i].a.coef[key] = tn_dim_const(F->session, 1);
        else
            m->c[i] = d->map->c[k++];
    d->argmap[0] = m;
    d->argmap[1] = map_new(F, g, 0);
    return !map_uses(d->map, key);
}

static bool all_derived(const demand *d)
{
    for (int i = 0; i < d->nargs; i++)
        if (!d->argmap[i])
            return false;
    return true;
}

static demand *add(finder *f, group *g, const tn_op *op)
{
    fuser *F = f->F;
    fmap *m = group_only_reading(F, op, g);
    if (!m || m->guards)
        return NULL;
    demand *d = group_demand(F, g, op, m);
    bool ok = true;
    if (op->code == TN_OP_reduce) {
        ok = reduce_over_keys(F, g, d, f->a->key);
    } else if (op == f->a->keys) {
        f->a->depth = contract(F, g, d);
        ok = f->a->depth >= 0;
    } else {
        group_derive(F, g, d);
        ok = all_derived(d);
    }
    group_link(F, op);
    return ok ? d : NULL;
}

bool attention_number(const tn_value *v, double *number)
{
    enum { MOST = 1 << 16 };
    while (v->def && op_is_view(v->def))
        v = tn_operand(v->def, 0);
    const tn_tensor *t = tn_constant_of(v);
    int64_t n;
    if (!t || !tn_is_float(t->dtype) || !tn_tensor_count(t, &n) || n < 1 || (!t->splat && n > MOST))
        return false;
    *number = tn_number_to_double(t->dtype, tn_tensor_at(t, 0));
    for (int64_t i = 1; !t->splat && i < n; i++)
        if (tn_number_to_double(t->dtype, tn_tensor_at(t, i)) != *number)
            return false;
    return true;
}

/* Numbers by which a factor is multiplied, behind views, as long as nobody else wants them so. */
static void take_scales(finder *f, group *g, int side)
{
    const tn_value *v = tn_operand(f->a->keys, side);
    for (;;) {
        const tn_op *op = v->def;
        if (!op || op->block != f->quotient->block || !tn_has_one_use(v))
            return;
        double x = 1;
        int number = 1;
        bool by = false;
        for (number = 1; number >= 0 && tn_op_scalar(op) == TN_S_mul; number--)
            if ((by = attention_number(tn_operand(op, number), &x)))
                break;
        if (!by && !op_is_view(op))
            return;
        const tn_op *behind = by ? NULL : maker(v, op->block);
        if (!by && !(behind && tn_op_scalar(behind) == TN_S_mul)) /* views join by themselves */
            return;
        fmap *m = isfinite(x) && x != 0 ? group_only_reading(f->F, op, g) : NULL;
        if (!m)
            return;
        demand *d = group_demand(f->F, g, op, m);
        group_derive(f->F, g, d);
        if (!all_derived(d)) {
            group_drop(f->F, op);
            return;
        }
        group_link(f->F, op);
        d->passes = by ? 2 - number : 0;
        f->a->scale *= x;
        v = tn_operand(op, by ? 1 - number : 0);
    }
}

/* ---- whether maps say what they should -------------------------------------------------------------------------------------------- */

/* Which factor of Q K^T is Q; V's columns. NULL, or why not. */
static const char *assign(group *g, attention *a)
{
    const demand *keys = a->keys_demand, *values = a->values_demand;
    bool left = map_uses(keys->argmap[0], a->key), right = map_uses(keys->argmap[1], a->key);
    const fmap *v = values->argmap[1 - a->weights], *w = values->argmap[a->weights];
    if (left == right)
        return group_dim_is_one(g, a->key) ? "there is one key" : "keys are not one side of the scores' product";
    a->query = left;
    a->column = -1;
    for (int j = 0; j < g->ndims; j++) {
        if (g->dim[j].fold || group_dim_is_one(g, j) || !map_uses(v, j) || map_uses(w, j))
            continue;
        if (a->column >= 0)
            return "values have columns of several dimensions";
        a->column = j;
    }
    if (a->column >= 0 && (map_uses(keys->argmap[0], a->column) || map_uses(keys->argmap[1], a->column)))
        return "scores differ from column to column of the values";
    return NULL;
}

static const char *join_all(finder *f, group *g, demand *d)
{
    attention *a = f->a;
    a->values_demand = d;
    a->key = contract(f->F, g, d);
    if (a->key < 0)
        return "the product contracts several dimensions";
    d->argmap[a->weights]->movement_only = false;
    for (size_t i = f->ops.len; i-- > 0;) {
        const tn_op *op = f->ops.at[i];
        demand *mine = add(f, g, op);
        if (!mine)
            return "its parts are not read at the same places";
        mine->wide = op->code != TN_OP_reduce;
        if (op == a->keys)
            a->keys_demand = mine;
        if (op->result == f->score)
            a->scores = mine;
    }
    const char *why = assign(g, a);
    if (why)
        return why;
    if (a->column >= 0)
        g->dim[a->column].whole = true;
    for (int side = 0; side < 2; side++)
        take_scales(f, g, side);
    return NULL;
}

static void undo(finder *f, group *g, int ndims)
{
    for (size_t i = 0; i < f->ops.len; i++)
        group_drop(f->F, f->ops.at[i]);
    for (int j = ndims; j < g->ndims; j++)
        if (g->dim[j].fold) /* a dim of one element is nobody's */
            g->dim[j] = (gdim){.extent = tn_dim_const(f->F->session, 1)};
}

static const char *fits(finder *f)
{
    const tn_op *values = f->a->values;
    tn_dtype score = f->score->type.dtype;
    if (f->F->options->numerics == TN_NUMERICS_STRICT)
        return "numerics=strict keeps the order of an attention's steps";
    if (!tn_is_float(score) || !tn_is_float(values->result->type.dtype) || tn_dtype_bits(score) > tn_dtype_bits(fuse_accumulator(f->a->keys->result->type.dtype)))
        return "scores are wider than the sums of their product";
    if (!f->ops.len)
        return "scores are made of too many operations";
    for (size_t i = 0; i < f->ops.len; i++)
        if (!used_within(f, f->ops.at[i]))
            return "scores or weights of an attention are used outside it";
    return NULL;
}

/* Tries the products from which scores may come, the one that is nearest first. */
static const char *try_products(finder *f, group *g, demand *d)
{
    const char *why = "scores are not made of a product";
    for (size_t i = 0; i < f->products.len; i++) {
        int ndims = g->ndims;
        f->a->keys = f->products.at[i];
        f->a->scale = 1;
        f->ops.len = 0;
        f->seen = 0;
        f->state = (tn_map){.arena = f->F->arena};
        collect(f, tn_operand(f->a->values, f->a->weights));
        why = fits(f);
        if (why)
            continue;
        why = join_all(f, g, d);
        if (!why)
            return NULL;
        undo(f, g, ndims);
    }
    return why;
}

bool attention_joins(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    if (op->code != TN_OP_dot_general || g->kind != GROUP_POINT || g->stored.len > 1 || d->map->guards || d->map->repeated || d->map->movement_only || F->options->no_fusion)
        return false;
    attention *a = TN_NEW(F->arena, attention);
    finder f = {.F = F, .a = a, .state = {.arena = F->arena}};
    a->values = op;
    for (a->weights = 0; a->weights < 2 && !f.quotient; a->weights++)
        if (find_softmax(&f, tn_operand(op, a->weights), op->block))
            break;
    int dims[FUSE_DIMS];
    if (!f.quotient || !map_walks_all(F, g, d->map, &op->result->type, dims))
        return false;
    find_products(&f, f.score);
    const char *why = try_products(&f, g, d);
    if (why) {
        *tn_map_at(&F->declined, TN_KEY(f.quotient)) = (void *)(uintptr_t)why;
        return false;
    }
    g->kind = GROUP_ATTENTION;
    g->attention = a;
    return true;
}
