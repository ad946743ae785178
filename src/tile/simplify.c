/* tile-simplify: constants, operations and loads that a block has computed already, operations that nobody needs. */
#include "tile/internal.h"

#include <string.h>

enum { LOOK_BACK = 64 }; /* operations that are searched for an equal one */

/* ---- constants ------------------------------------------------------------------------------------------------------- */

static const tn_number *constant_of(const tn_tvalue *v) { return v->def && v->def->code == TN_T_const ? &v->def->number : NULL; }

static void become_constant(tn_top *op, tn_number number)
{
    op->code = TN_T_const;
    op->number = number;
    op->noperands = op->naxes = 0;
}

static void fold_map(tn_top *op)
{
    tn_number x[3];
    for (int i = 0; i < op->noperands; i++) {
        const tn_number *c = constant_of(op->operand[i]);
        if (!c)
            return;
        x[i] = *c;
    }
    become_constant(op, tn_scalar_eval(op->fn, op->operand[op->noperands - 1]->type.dtype, x));
}

/* The value that op's result equals; NULL: none known. */
static tn_tvalue *same_value(const tn_top *op)
{
    if (op->code == TN_T_cast && op->operand[0]->type.dtype == op->result->type.dtype)
        return op->operand[0];
    if ((op->code == TN_T_broadcast || op->code == TN_T_permute || op->code == TN_T_reshape) && tn_ttype_same(&op->operand[0]->type, &op->result->type)) {
        for (int i = 0; i < op->naxes; i++)
            if (op->axis[i] != i)
                return NULL;
        return op->operand[0];
    }
    const tn_number *cond = op->code == TN_T_map && op->fn == TN_S_select ? constant_of(op->operand[0]) : NULL;
    return cond ? op->operand[cond->u ? 1 : 2] : NULL;
}

static void fold_constant(tn_top *op)
{
    const tn_number *x = op->noperands == 1 ? constant_of(op->operand[0]) : NULL;
    if (op->code == TN_T_map)
        fold_map(op);
    else if (op->code == TN_T_size && tn_dim_is_const(op->dim))
        become_constant(op, tn_number_from_int(TN_I64, op->dim->value));
    else if (op->code == TN_T_cast && x)
        become_constant(op, tn_number_convert(*x, op->operand[0]->type.dtype, op->result->type.dtype));
    else if ((op->code == TN_T_broadcast || op->code == TN_T_permute || op->code == TN_T_reshape || op->code == TN_T_slice) && x)
        become_constant(op, *x);
}

/* ---- equal operations ------------------------------------------------------------------------------------------------ */

static bool same_view(const tn_view *a, const tn_view *b)
{
    if (a == b)
        return true;
    if (a->buffer != b->buffer || a->rank != b->rank || a->offset != b->offset || a->nguards != b->nguards || a->panel != b->panel ||
        a->padded != b->padded || (a->padded && memcmp(&a->padding, &b->padding, sizeof a->padding)))
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d] || a->stride[d] != b->stride[d])
            return false;
    for (int g = 0; g < a->nguards; g++) {
        const tn_guard *x = &a->guard[g], *y = &b->guard[g];
        if (x->base != y->base || x->limit != y->limit || memcmp(x->coef, y->coef, sizeof x->coef[0] * (size_t)a->rank))
            return false;
    }
    return true;
}

static bool same_subscripts(const tn_top *a, const tn_top *b)
{
    for (int d = 0; d < a->view->rank; d++) {
        const tn_subscript *x = &a->subscript[d], *y = &b->subscript[d];
        if (x->value != y->value || x->block != y->block || x->inside != y->inside || x->naxes != y->naxes ||
            memcmp(x->axis, y->axis, sizeof x->axis[0] * (size_t)x->naxes))
            return false;
    }
    return true;
}

static bool same_op(const tn_top *a, const tn_top *b)
{
    if (a->code != b->code || a->fn != b->fn || a->noperands != b->noperands || a->naxes != b->naxes || a->dim != b->dim ||
        a->nresults != b->nresults || memcmp(&a->number, &b->number, sizeof a->number) ||
        memcmp(a->axis, b->axis, sizeof a->axis[0] * (size_t)a->naxes))
        return false;
    for (int i = 0; i < a->noperands; i++)
        if (a->operand[i] != b->operand[i])
            return false;
    for (int i = 0; i < a->nresults; i++)
        if (!tn_ttype_same(&a->result[i].type, &b->result[i].type))
            return false;
    return !a->view || (same_view(a->view, b->view) && same_subscripts(a, b));
}

static bool writes(const tn_top *op, int buffer)
{
    if (op->code == TN_T_store_ptr || op->code == TN_T_fence || op->code == TN_T_asm)
        return true;
    if ((op->code == TN_T_store || op->code == TN_T_atomic) && op->view->buffer == buffer)
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (writes(in, buffer))
                return true;
    return false;
}

static tn_top *equal_before(tn_top *op)
{
    bool load = op->code == TN_T_load;
    if (op->nregions || op->label || !op->nresults || !(load || tn_top_traits(op->code) == TN_T_PURE) || op->code == TN_T_asm)
        return NULL;
    int left = LOOK_BACK;
    for (tn_top *prev = op->prev; prev && left-- > 0; prev = prev->prev) {
        if (same_op(prev, op))
            return prev;
        if (load && writes(prev, op->view->buffer))
            return NULL;
    }
    return NULL;
}

/* ---- replacement ----------------------------------------------------------------------------------------------------- */

static void resolve(void *context, tn_tvalue **use)
{
    tn_tvalue *to = tn_map_get(context, TN_KEY(*use));
    if (to)
        *use = to;
}

static void unlink_op(tn_top *op)
{
    *(op->prev ? &op->prev->next : &op->block->first) = op->next;
    *(op->next ? &op->next->prev : &op->block->last) = op->prev;
}

static void simplify_op(void *context, tn_top *op)
{
    tn_map *became = context;
    tn_top_uses(op, resolve, became);
    fold_constant(op);
    tn_tvalue *same = same_value(op);
    tn_top *equal = same ? NULL : equal_before(op);
    if (!same && !equal)
        return;
    for (int i = 0; i < op->nresults; i++)
        *tn_map_at(became, TN_KEY(&op->result[i])) = same ? same : &equal->result[i];
    unlink_op(op);
}

/* ---- what nobody needs ----------------------------------------------------------------------------------------------- */

static void clear_op(void *context, tn_top *op)
{
    (void)context;
    for (int i = 0; i < op->nresults; i++)
        op->result[i].scratch = NULL;
}

static void mark_use(void *context, tn_tvalue **use)
{
    (void)context;
    if ((*use)->def)
        (*use)->scratch = *use;
}

static bool has_effect(const tn_top *op)
{
    if (!op->nregions)
        return op->code == TN_T_assert || op->code == TN_T_assume || ((tn_top_traits(op->code) & TN_T_WRITES) != 0 && op->code != TN_T_yield);
    if (op->code == TN_T_while) /* it may not end */
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (has_effect(in))
                return true;
    return false;
}

/* Last operation first, so that what served only a dead one is dead too. */
static void remove_dead(tn_tblock *block)
{
    for (tn_top *op = block->last, *prev; op; op = prev) {
        prev = op->prev;
        bool used = op->code == TN_T_yield || has_effect(op);
        for (int i = 0; i < op->nresults; i++)
            used |= op->result[i].scratch != NULL;
        if (!used) {
            unlink_op(op);
            continue;
        }
        tn_top_uses(op, mark_use, NULL);
        for (int r = op->nregions; r-- > 0;)
            remove_dead(op->region[r]);
    }
}

/* A labelled operation that goes takes its entries in the schedule along. */
static void note_label(void *context, tn_top *op)
{
    if (op->label)
        *tn_map_at_str(context, op->label) = op;
}

static void prune_schedule(tn_kernel *kernel, tn_arena *arena)
{
    tn_map labels = {.arena = arena};
    tn_tile_walk(kernel->body, note_label, &labels);
    size_t kept = 0;
    for (size_t i = 0; i < kernel->schedule.entry.len; i++) {
        tn_schedule_entry e = kernel->schedule.entry.at[i];
        if (!e.label[0] || tn_map_get_str(&labels, e.label))
            kernel->schedule.entry.at[kept++] = e;
    }
    kernel->schedule.entry.len = kept;
}

static tn_status simplify(tn_kernel *kernel)
{
    tn_arena arena = {.on_oom = kernel->session->arena.on_oom};
    tn_map became = {.arena = &arena};
    tn_tile_walk(kernel->body, simplify_op, &became);
    tn_tile_walk(kernel->body, clear_op, NULL);
    remove_dead(kernel->body);
    tn_tile_walk(kernel->body, clear_op, NULL);
    prune_schedule(kernel, &arena);
    tn_arena_free(&arena);
    return TN_OK;
}

const tn_tile_pass tn_tile_passes[] = {{"tile-simplify", simplify}, {NULL, NULL}};
