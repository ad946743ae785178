/* What nobody needs: operations without effect whose results nobody reads, and values that loops carry or branches give for nobody. A value that a loop
 * carries only to compute itself is one of these. */
#include "tile/simplify.h"

#include <string.h>

typedef struct liveness {
    tn_arena arena;
    tn_map ops; /* that are needed -> themselves */
    TN_VEC(tn_tvalue *) todo;
    tn_map became;
} liveness;

static void need_op(liveness *l, tn_top *op);

static void need(liveness *l, tn_tvalue *v)
{
    if (v->scratch)
        return;
    v->scratch = v;
    TN_PUSH(&l->arena, &l->todo, v);
}

static void need_use(void *context, tn_tvalue **use) { need(context, *use); }

static void need_yielded(liveness *l, const tn_tblock *block)
{
    for (int i = 0; i < block->last->noperands; i++)
        need(l, block->last->operand[i]);
}

/* The operands that op reads whichever of its results are needed. */
static void need_op(liveness *l, tn_top *op)
{
    void **cell = tn_map_at(&l->ops, TN_KEY(op));
    if (*cell)
        return;
    *cell = op;
    if (op->block->parent)
        need_op(l, op->block->parent);
    switch (op->code) {
    case TN_T_yield:
        return;
    case TN_T_for:
        for (int i = 0; i < 3; i++)
            need(l, op->operand[i]);
        return;
    case TN_T_while:
        need_yielded(l, op->region[0]);
        return;
    case TN_T_if:
        need(l, op->operand[0]);
        return;
    default:
        tn_top_uses(op, need_use, l);
        for (int r = 0; r < op->nregions; r++)
            need_yielded(l, op->region[r]);
    }
}

/* Value number i that a loop carries, or a branch gives. */
static void need_carried(liveness *l, tn_top *op, int i)
{
    bool loop = op->code == TN_T_for || op->code == TN_T_while;
    need(l, &op->result[i]);
    if (loop)
        need(l, op->operand[(op->code == TN_T_for ? 3 : 0) + i]);
    for (int r = 0; r < op->nregions; r++) {
        tn_tblock *region = op->region[r];
        if (loop)
            need(l, &region->arg[(op->code == TN_T_for) + i]);
        if (op->code != TN_T_while || r == 1)
            need(l, region->last->operand[i]);
    }
}

static bool gives_by_number(const tn_top *op) { return op->code == TN_T_for || op->code == TN_T_while || op->code == TN_T_if; }

static void need_value(liveness *l, tn_tvalue *v)
{
    tn_top *op = v->def ? v->def : v->block ? v->block->parent : NULL;
    if (!op)
        return;
    need_op(l, op);
    if (!gives_by_number(op))
        return;
    int i = (int)(v - (v->def ? op->result : v->block->arg)) - (!v->def && op->code == TN_T_for);
    if (i >= 0) /* -1: the index */
        need_carried(l, op, i);
}

static bool has_effect(const tn_top *op)
{
    if (op->code == TN_T_while) /* it may not end */
        return true;
    return !op->nregions && op->code != TN_T_yield &&
           (op->code == TN_T_assert || op->code == TN_T_assume || (tn_top_traits(op->code) & TN_T_WRITES) != 0);
}

static void need_effects(void *context, tn_top *op)
{
    if (has_effect(op))
        need_op(context, op);
}

static void forget(void *context, tn_top *op)
{
    (void)context;
    for (int i = 0; i < op->nresults; i++)
        op->result[i].scratch = NULL;
    for (int r = 0; r < op->nregions; r++)
        for (int i = 0; i < op->region[r]->nargs; i++)
            op->region[r]->arg[i].scratch = NULL;
}

/* ---- removal --------------------------------------------------------------------------------------------------------- */

/* Values move to new places, because arrays hold them. */
static tn_tvalue *keep_values(liveness *l, tn_kernel *kernel, tn_tvalue *values, int n, int first, const bool *kept, int *left)
{
    tn_tvalue *out = TN_NEW_ARRAY(&kernel->session->arena, tn_tvalue, (size_t)n + 1);
    *left = 0;
    for (int i = 0; i < n; i++) {
        if (i >= first && !kept[i - first])
            continue;
        out[*left] = values[i];
        *tn_map_at(&l->became, TN_KEY(&values[i])) = &out[(*left)++];
    }
    return out;
}

static void keep_uses(tn_top *op, int first, const bool *kept)
{
    int left = 0;
    for (int i = 0; i < op->noperands; i++)
        if (i < first || kept[i - first])
            op->operand[left++] = op->operand[i];
    op->noperands = left;
}

static void remove_unread(liveness *l, tn_kernel *kernel, tn_top *op)
{
    bool kept[TN_T_MAX_VALUES], all = true;
    int n = op->nresults;
    for (int i = 0; i < n; i++) {
        kept[i] = op->result[i].scratch != NULL;
        all &= kept[i];
    }
    if (all)
        return;
    op->result = keep_values(l, kernel, op->result, n, 0, kept, &op->nresults);
    if (op->code != TN_T_if)
        keep_uses(op, op->code == TN_T_for ? 3 : 0, kept);
    for (int r = 0; r < op->nregions; r++) {
        tn_tblock *region = op->region[r];
        if (op->code != TN_T_if)
            region->arg = keep_values(l, kernel, region->arg, region->nargs, op->code == TN_T_for, kept, &region->nargs);
        if (op->code != TN_T_while || r == 1)
            keep_uses(region->last, 0, kept);
    }
}

static void sweep(liveness *l, tn_kernel *kernel, tn_tblock *block)
{
    for (tn_top *op = block->first, *next; op; op = next) {
        next = op->next;
        if (op->code != TN_T_yield && !tn_map_get(&l->ops, TN_KEY(op))) {
            tn_top_unlink(op);
            continue;
        }
        if (gives_by_number(op))
            remove_unread(l, kernel, op);
        for (int r = 0; r < op->nregions; r++)
            sweep(l, kernel, op->region[r]);
    }
}

static void move_use(void *context, tn_tvalue **use)
{
    tn_tvalue *to = tn_map_get(context, TN_KEY(*use));
    *use = to ? to : *use;
}

static void move_uses(void *context, tn_top *op) { tn_top_uses(op, move_use, context); }

void tn_remove_dead(tn_kernel *kernel)
{
    liveness l = {.arena = {.on_oom = kernel->session->arena.on_oom}};
    l.ops.arena = l.became.arena = &l.arena;
    tn_tile_walk(kernel->body, forget, NULL);
    tn_tile_walk(kernel->body, need_effects, &l);
    while (l.todo.len)
        need_value(&l, l.todo.at[--l.todo.len]);
    sweep(&l, kernel, kernel->body);
    if (l.became.len)
        tn_tile_walk(kernel->body, move_uses, &l.became);
    tn_tile_walk(kernel->body, forget, NULL);
    for (size_t i = 0; i < kernel->scalars.len; i++)
        kernel->scalars.at[i]->scratch = NULL;
    for (size_t i = 0; i < kernel->grid.len; i++)
        kernel->grid.at[i].value->scratch = NULL;
    tn_arena_free(&l.arena);
}
