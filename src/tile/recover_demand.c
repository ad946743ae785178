/* recover: indices modulo a size. Kernels compute rows as `(start + i) % M`, or `where(start + i < M, start + i, 0)`, so that the last block reads inside the matrix
 * without a mask, and store only rows below M. What they read for the others is needed by nobody. Where that is so, the index is start + i, and rows end at M: memory is walked, not gathered. */
#include "tile/recover.h"

enum { MAX_VISITED = 256 };

typedef struct use {
    tn_top *op;
    int operand; /* -1: a subscript */
    struct use *next;
} use;

typedef struct demand {
    recover *R;
    tn_map uses;    /* value -> use */
    tn_map visited; /* value and axis */
    const form *end; /* elements i < end may be needed */
} demand;

static void add_use(demand *d, const tn_tvalue *v, tn_top *op, int operand)
{
    void **cell = tn_map_at(&d->uses, TN_KEY(v));
    use *u = TN_NEW(&d->R->arena, use);
    *u = (use){op, operand, *cell};
    *cell = u;
}

static void add_uses(void *context, tn_top *op)
{
    demand *d = context;
    for (int i = 0; i < op->noperands; i++)
        add_use(d, op->operand[i], op, i);
    for (int i = 0; op->view && i < op->view->rank; i++)
        add_use(d, op->subscript[i].value, op, -1);
}

static bool unneeded(demand *d, const tn_tvalue *v, int axis);

/* The axis without those that are combined; -1: it is one of them. */
static int kept_axis(const tn_top *op, int axis)
{
    int to = axis;
    for (int i = 0; i < op->naxes; i++) {
        if (op->axis[i] == axis)
            return -1;
        to -= op->axis[i] < axis;
    }
    return to;
}

static bool unneeded_results(demand *d, const tn_top *op, int axis)
{
    for (int i = 0; axis >= 0 && i < op->nresults; i++)
        if (!unneeded(d, &op->result[i], axis))
            return false;
    return axis >= 0;
}

/* A row of the product is of a row of its left side, a column of a column of its right one. */
static bool unneeded_product(demand *d, const use *u, int axis)
{
    int rank = u->op->result->type.rank, k = u->operand ? rank - 2 : rank - 1;
    return axis != k && unneeded(d, u->op->result, axis);
}

static bool unneeded_yield(demand *d, const use *u, int axis)
{
    const tn_top *parent = u->op->block->parent;
    switch (parent->code) {
    case TN_T_fold:
        return unneeded_results(d, parent, kept_axis(parent, axis));
    case TN_T_for:
        return unneeded(d, &parent->region[0]->arg[1 + u->operand], axis) && unneeded(d, &parent->result[u->operand], axis);
    case TN_T_if:
        return unneeded(d, &parent->result[u->operand], axis);
    default:
        return false;
    }
}

/* Elements that are stored lie below the end. */
static bool stored_below(const demand *d, const use *u, int axis)
{
    const access *a = tn_map_get(&d->R->accesses, TN_KEY(u->op));
    for (int i = 0; a && u->operand == 0 && i < a->bound[axis].nupper; i++) {
        form left = *d->end;
        if (recover_add(d->R, &left, &a->bound[axis].upper[i], tn_dim_const(d->R->session, -1)) && left.n == 0 && left.base->lo >= 0)
            return true;
    }
    return false;
}

static bool unneeded_by(demand *d, const use *u, int axis)
{
    const tn_top *op = u->op;
    int map[TN_TILE_RANK], to = 0;
    if (u->operand < 0)
        return false;
    switch (op->code) {
    case TN_T_map:
    case TN_T_cast:
    case TN_T_bitcast:
        return unneeded(d, op->result, axis);
    case TN_T_broadcast:
        return unneeded(d, op->result, op->axis[axis]);
    case TN_T_permute:
        while (op->axis[to] != axis)
            to++;
        return unneeded(d, op->result, to);
    case TN_T_reshape:
        return recover_unit_map(&op->operand[0]->type, &op->result->type, map) && unneeded(d, op->result, map[axis]);
    case TN_T_dot:
        return unneeded_product(d, u, axis);
    case TN_T_reduce:
        return unneeded_results(d, op, kept_axis(op, axis));
    case TN_T_for: /* what it starts carrying */
        return u->operand >= 3 && unneeded(d, &op->region[0]->arg[u->operand - 2], axis) && unneeded(d, &op->result[u->operand - 3], axis);
    case TN_T_yield:
        return unneeded_yield(d, u, axis);
    case TN_T_store:
        return stored_below(d, u, axis);
    default:
        return false;
    }
}

/* Elements of v from `end` on, along the axis, change nothing that is stored. */
static bool unneeded(demand *d, const tn_tvalue *v, int axis)
{
    void **cell = tn_map_at(&d->visited, TN_KEY(v) << TN_TILE_RANK | (unsigned)axis);
    if (*cell)
        return true;
    *cell = (void *)v;
    if (d->visited.len > MAX_VISITED)
        return false;
    for (const use *u = tn_map_get(&d->uses, TN_KEY(v)); u; u = u->next)
        if (!unneeded_by(d, u, axis))
            return false;
    return true;
}

/* v is x where x < y, something else where it is not. */
static bool is_clamped(recover *R, const tn_top *op, const form **x, const form **y)
{
    const tn_top *below = op->fn == TN_S_select ? op->operand[0]->def : NULL;
    if (!below || below->code != TN_T_map || below->fn != TN_S_lt)
        return false;
    *x = recover_form(R, below->operand[0]), *y = recover_form(R, below->operand[1]);
    form none = **x;
    return recover_add(R, &none, recover_form(R, op->operand[1]), tn_dim_const(R->session, -1)) && none.n == 0 && tn_dim_is(none.base, 0);
}

/* v is (start + position) % size, start not negative, or `clamped`: that position where it is below the size. */
static bool is_remainder(recover *R, const tn_tvalue *v, form *start, tn_dim *size, bool *clamped)
{
    const tn_top *op = v->def;
    const form *x, *y;
    if (!op || op->code != TN_T_map || v->type.rank != 1 || tn_dtype_class(v->type.dtype) != TN_CLASS_INT || tn_dtype_bits(v->type.dtype) < 32)
        return false;
    *clamped = op->fn == TN_S_select;
    if (op->fn == TN_S_rem)
        x = recover_form(R, op->operand[0]), y = recover_form(R, op->operand[1]);
    else if (!is_clamped(R, op, &x, &y))
        return false;
    int positions = 0;
    *start = (form){.base = x->base};
    for (int i = 0; i < x->n; i++) {
        bool one = !x->term[i].atom.value && tn_dim_is(x->term[i].coef, 1);
        positions += one;
        if (!one && x->term[i].atom.naxes)
            return false;
        if (!one)
            start->term[start->n++] = x->term[i];
    }
    *size = y->base;
    return positions == 1 && y->n == 0 && (*clamped || recover_not_negative(R, start));
}

/* The index `at` of a load becomes a walk from the start along the axis, as far as the end. */
static void walk(recover *R, tn_top *load, int at, int axis, const form *start, const form *end, tn_dim size)
{
    bool proven = recover_not_negative(R, start);
    tn_dim extent = tn_dim_const(R->session, load->result->type.extent[axis].size);
    tn_tvalue *guard = proven ? NULL : recover_clamped_start(R, extent, end);
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK];
    tn_subscript subscript[TN_MAX_RANK];
    int rank = 0;
    if (!proven && !guard)
        return;
    for (int k = 0; k < load->view->rank; k++) {
        if (k == at && guard) {
            shape[rank] = extent;
            stride[rank] = tn_dim_const(R->session, 0);
            subscript[rank++] = tn_sub_block(guard, axis);
        }
        shape[rank] = k == at && proven ? size : load->view->shape[k];
        stride[rank] = load->view->stride[k];
        subscript[rank] = load->subscript[k];
        if (k == at) {
            subscript[rank] = tn_sub_block(recover_block_start(R, start, proven), axis);
            subscript[rank].inside = !proven;
        }
        rank++;
    }
    load->view = recover_view(R, load->view->buffer, rank, shape, stride, load->view->offset, load->view->padded, load->view->padding);
    load->subscript = tn_memdup(&R->kernel->session->arena, subscript, sizeof *subscript * (size_t)rank);
}

static void walk_index(demand *d, access *a, int i)
{
    recover *R = d->R;
    tn_top *load = a->op;
    const atom *index = &a->index[i].atom;
    form start, left;
    tn_dim size;
    bool clamped;
    int at = -1;
    for (int k = 0; k < load->view->rank; k++)
        at = load->subscript[k].inside && !load->subscript[k].block && load->subscript[k].value == index->value ? k : at;
    if (at < 0 || index->naxes != 1 || load->view->rank == TN_MAX_RANK || !is_remainder(R, index->value, &start, &size, &clamped))
        return;
    left = (form){.base = size};
    if (!recover_add(R, &left, &start, tn_dim_const(R->session, -1)))
        return;
    d->end = &left;
    d->visited = (tn_map){.arena = &R->arena};
    if (unneeded(d, load->result, index->axis[0]))
        walk(R, load, at, index->axis[0], &start, &left, size);
}

void recover_remainders(recover *R)
{
    demand d = {.R = R, .uses = {.arena = &R->arena}};
    bool ready = false;
    for (size_t i = 0; i < R->accesses.len; i++) {
        access *a = tn_map_value(&R->accesses, i);
        if (a->op->code != TN_T_load || !a->nindex)
            continue;
        if (!ready)
            tn_tile_walk(R->kernel->body, add_uses, &d);
        ready = true;
        for (int k = 0; k < a->nindex; k++)
            walk_index(&d, a, k);
    }
}
