/* Dimensions, and what is known of indices. */
#include <assert.h>
#include <string.h>

#include "target/lower/lower.h"

static tn_lvalue *symbol_param(lower *L, const char *name)
{
    for (size_t i = (size_t)L->func->nbuffers; i < L->func->params.len; i++)
        if (strcmp(L->func->params.at[i]->name, name) == 0)
            return L->func->params.at[i];
    assert(!"symbol was not collected");
    return NULL;
}

static tn_lvalue *dim_op(lower *L, tn_dim d)
{
    static const tn_scalar fn[] = {[TN_DIM_ADD] = TN_S_add, [TN_DIM_MUL] = TN_S_mul, [TN_DIM_FLOORDIV] = TN_S_div,
                                   [TN_DIM_CEILDIV] = TN_S_div, [TN_DIM_MOD] = TN_S_rem, [TN_DIM_MIN] = TN_S_min, [TN_DIM_MAX] = TN_S_max};
    tn_lbuilder *b = &L->entry;
    tn_lvalue *x = lower_dim(L, d->operand[0]);
    for (int i = 1; i < d->noperands; i++) {
        tn_lvalue *y = lower_dim(L, d->operand[i]);
        if (d->kind == TN_DIM_CEILDIV) /* of a non-negative dividend, as all sizes are */
            x = tn_l_fn2(b, TN_S_add, x, tn_l_fn2(b, TN_S_sub, y, tn_l_index(b, 1)));
        bool negative = d->operand[0]->lo < 0 && (d->kind == TN_DIM_FLOORDIV || d->kind == TN_DIM_CEILDIV || d->kind == TN_DIM_MOD);
        if (negative) { /* floor: (x - ((x rem y) + y) rem y) / y */
            tn_lvalue *m = tn_l_fn2(b, TN_S_rem, tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_rem, x, y), y), y);
            x = d->kind == TN_DIM_MOD ? m : tn_l_fn2(b, TN_S_div, tn_l_fn2(b, TN_S_sub, x, m), y);
        } else {
            x = tn_l_fn2(b, fn[d->kind], x, y);
        }
    }
    return x;
}

tn_lvalue *lower_dim(lower *L, tn_dim d)
{
    void **cell = tn_map_at(&L->dims, TN_KEY(d));
    if (!*cell) {
        tn_lvalue *v = d->kind == TN_DIM_CONST    ? tn_l_index(&L->entry, d->value)
                       : d->kind == TN_DIM_SYMBOL ? symbol_param(L, d->name)
                                                  : dim_op(L, d);
        cell = tn_map_at(&L->dims, TN_KEY(d)); /* lower_dim of operands may have grown the map */
        *cell = v;
    }
    return *cell;
}

static tn_lvalue *find_or_add_index(lower *L, const char *name)
{
    for (size_t i = (size_t)L->func->nbuffers; i < L->func->params.len; i++)
        if (strcmp(L->func->params.at[i]->name, name) == 0)
            return L->func->params.at[i];
    return tn_lfunc_index(L->func, name);
}

static void collect_symbol(void *context, tn_dim symbol)
{
    tn_lvalue *index = find_or_add_index(context, symbol->name);
    index->multiple = tn_max(index->multiple, symbol->multiple > 1 ? symbol->multiple : 0);
}

static void collect(lower *L, tn_dim d)
{
    if (d)
        tn_dim_symbols(d, collect_symbol, L);
}

static void collect_block(lower *L, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->code == TN_T_size)
            collect(L, op->dim);
        for (int r = 0; r < op->nregions; r++)
            collect_block(L, op->region[r]);
    }
}

void lower_collect_symbols(lower *L)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < k->grid.len; i++)
        collect(L, k->grid.at[i].limit);
    for (size_t i = 0; i < k->views.len; i++) {
        const tn_view *v = k->views.at[i];
        collect(L, v->offset);
        for (int d = 0; d < v->rank; d++)
            collect(L, v->shape[d]), collect(L, v->stride[d]);
        for (int g = 0; g < v->nguards; g++) {
            collect(L, v->guard[g].base), collect(L, v->guard[g].limit);
            for (int d = 0; d < v->rank; d++)
                collect(L, v->guard[g].coef[d]);
        }
    }
    for (size_t i = 0; i < k->buffers.len; i++)
        if (k->buffers.at[i].mode == TN_LOCAL)
            collect(L, k->buffers.at[i].elements);
    collect_block(L, k->body);
}

/* A number that the kernel is called with is a parameter beside the sizes; one that has a size's name is that size. */
void lower_collect_scalars(lower *L)
{
    for (size_t i = 0; i < L->kernel->scalars.len; i++) {
        const tn_tvalue *v = L->kernel->scalars.at[i];
        if (v->type.pointer)
            continue;
        tn_lvalue *index = find_or_add_index(L, v->name);
        index->holds = v->type.dtype;
        index->multiple = tn_max(index->multiple, v->divisor);
    }
}

/* ---- what is known of indices ------------------------------------------------------------------------------------------ */

static const tn_trange *grid_range(const lower *L, const tn_tvalue *v)
{
    for (size_t i = 0; i < L->kernel->grid.len; i++)
        if (L->kernel->grid.at[i].value == v)
            return &L->kernel->grid.at[i];
    return NULL;
}

/* v is the start of a fold's range: its limit and step. */
static bool fold_range(const tn_tvalue *v, const tn_tvalue **limit, int64_t *step)
{
    if (v->def || !v->block || !v->block->parent || v->block->parent->code != TN_T_fold || v->block != v->block->parent->region[0])
        return false;
    const tn_top *fold = v->block->parent;
    int64_t i = v - v->block->arg;
    *limit = fold->operand[i];
    *step = fold->step[i].size;
    return true;
}

tn_dim lower_value_dim(const lower *L, const tn_tvalue *v)
{
    if (v->def && v->def->code == TN_T_size)
        return v->def->dim;
    if (v->def && v->def->code == TN_T_const && v->type.rank == 0)
        return tn_dim_const(L->session, v->def->number.i);
    return NULL;
}

/* v is the index of a `for` that starts at 0 and walks by a constant: the same. */
static bool for_range(const tn_tvalue *v, const tn_tvalue **limit, int64_t *step)
{
    if (v->def || !v->block || !v->block->parent || v->block->parent->code != TN_T_for || v != &v->block->arg[0])
        return false;
    const tn_top *loop = v->block->parent, *lo = loop->operand[0]->def, *by = loop->operand[2]->def;
    if (!lo || lo->code != TN_T_const || lo->number.i != 0 || !by || by->code != TN_T_const || by->number.i <= 0)
        return false;
    *limit = loop->operand[1];
    *step = by->number.i;
    return true;
}

/* The limit of a range variable as a dimension, and its step; NULL if v is none. */
tn_dim lower_range_of(const lower *L, const tn_tvalue *v, int64_t *step)
{
    const tn_trange *g = grid_range(L, v);
    const tn_tvalue *limit;
    if (g) {
        *step = g->step.size;
        return g->limit;
    }
    return fold_range(v, &limit, step) || for_range(v, &limit, step) ? lower_value_dim(L, limit) : NULL;
}

/* v >= 0, by what it is made of; depth: of the search, which doubles with each. Sums and products wrap in narrow types; x / 0 is -1. */
static bool not_negative_within(const lower *L, const tn_tvalue *v, int depth)
{
    int64_t step;
    const tn_tvalue *limit;
    if (grid_range(L, v) || fold_range(v, &limit, &step) || for_range(v, &limit, &step))
        return true;
    const tn_top *op = v->def;
    if (!op || depth == 0)
        return false;
    if (op->code == TN_T_const)
        return op->number.i >= 0;
    if (op->code == TN_T_size)
        return op->dim->lo >= 0;
    if (op->code == TN_T_range || op->code == TN_T_broadcast)
        return not_negative_within(L, op->operand[0], depth - 1);
    if (op->code != TN_T_map || op->noperands != 2)
        return false;
    bool a = not_negative_within(L, op->operand[0], depth - 1), b = not_negative_within(L, op->operand[1], depth - 1);
    tn_dim divisor = lower_value_dim(L, op->operand[1]);
    switch (op->fn) {
    case TN_S_max:
        return a || b;
    case TN_S_min:
        return a && b;
    case TN_S_add:
    case TN_S_mul:
        return a && b && v->type.dtype == TN_I64;
    case TN_S_rem:
        return a;
    case TN_S_div:
        return a && divisor && divisor->lo > 0;
    default:
        return false;
    }
}

bool lower_not_negative(const lower *L, const tn_tvalue *v) { return not_negative_within(L, v, 8); }

/* Records start + index < limit, if the bound says anything. */
void lower_fact(lower *L, const axis_bound *bound, tn_lvalue *index)
{
    if (bound->start)
        TN_PUSH(&L->arena, &L->facts, ((fact){bound->start, index, bound->limit}));
}

/* start + index < limit for every iteration: recorded, or by constants. */
bool lower_known_below(const lower *L, const tn_tvalue *start, const tn_lvalue *index, tn_dim limit)
{
    for (size_t i = L->facts.len; i-- > 0;) {
        const fact *f = &L->facts.at[i];
        if (f->start == start && f->index == index && tn_dim_le(L->session, f->limit, limit))
            return true;
    }
    return false;
}

/* The largest value of a start that is not negative: range variables, constants, sums and products of them. */
static bool largest_start(const lower *L, const tn_tvalue *v, int depth, int64_t *most)
{
    int64_t step, a, b;
    tn_dim range = lower_range_of(L, v, &step);
    if (range) {
        *most = tn_dim_is_const(range) ? (tn_max(tn_ceildiv(range->value, step), 1) - 1) * step : -1;
        return *most >= 0;
    }
    const tn_top *op = v->def;
    if (op && op->code == TN_T_const && v->type.rank == 0 && tn_is_integer(v->type.dtype)) {
        *most = op->number.i;
        return *most >= 0;
    }
    if (!op || depth == 0 || op->code != TN_T_map || (op->fn != TN_S_add && op->fn != TN_S_mul) || v->type.dtype != TN_I64)
        return false;
    return largest_start(L, op->operand[0], depth - 1, &a) && largest_start(L, op->operand[1], depth - 1, &b) &&
           (op->fn == TN_S_add ? tn_add(a, b, most) : tn_mul(a, b, most));
}

bool lower_block_fits(const lower *L, const tn_tvalue *start, tn_dim limit, int64_t extent)
{
    enum { DEPTH = 4 };
    int64_t step, last;
    tn_dim range = lower_range_of(L, start, &step);
    if (range && tn_dim_is_const(range) && range->value <= step) /* one trip: the start is 0 */
        return tn_dim_is_const(limit) && extent <= limit->value;
    if (range)
        return step % extent == 0 && limit->multiple % extent == 0 && tn_dim_le(L->session, range, limit);
    if (start->def && start->def->code == TN_T_const)
        last = start->def->number.i;
    else if (!largest_start(L, start, DEPTH, &last))
        return false;
    return tn_dim_is_const(limit) && tn_add(last, extent, &last) && last <= limit->value;
}
