/* dce: removes operations that nobody uses and that have no effect, and births of symbols that occur nowhere.
 *
 *     %0 = add %x, %x : f32[4]      ->   (gone)
 *     return %x                          return %x
 *
 * One walk over each block, last operation first, so that a whole unused chain goes at once. */
#include "opt/internal.h"

static void mark_symbol(void *context, tn_dim symbol)
{
    *tn_map_at(context, TN_KEY(symbol)) = context;
}

static void mark_dims(const tn_dim *dims, int n, tn_map *used)
{
    for (int i = 0; i < n; i++)
        tn_dim_symbols(dims[i], mark_symbol, used);
}

static void mark_op(const tn_op *op, tn_map *used)
{
    for (int i = 0; i < op->nresults; i++)
        mark_dims(op->result[i].type.dim, op->result[i].type.rank, used);
    for (int i = 0; i < op->nattrs; i++) {
        const tn_attr *attr = &op->attr[i];
        tn_attr_kind kind = tn_attr_kind_of(attr->name);
        if (kind == TN_ATTR_DIM && !(op->code == TN_OP_define_dimension && attr->name == TN_A_dim))
            mark_dims(&attr->dim, 1, used);
        else if (kind == TN_ATTR_DIMS)
            mark_dims(attr->dims, attr->n, used);
    }
}

static void mark_block(const tn_block *block, tn_map *used)
{
    for (int i = 0; i < block->nargs; i++)
        mark_dims(block->arg[i]->type.dim, block->arg[i]->type.rank, used);
    for (const tn_op *op = block->first; op; op = op->next) {
        mark_op(op, used);
        for (int i = 0; i < op->nregions; i++)
            mark_block(op->region[i], used);
    }
}

/* used: NULL while births stay. */
static bool sweep(tn_block *block, const tn_map *used)
{
    bool any = false;
    for (tn_op *op = block->last, *prev; op; op = prev) {
        prev = op->prev;
        bool unborn =
            used && op->code == TN_OP_define_dimension && !tn_map_get(used, TN_KEY(tn_find_attr(op, TN_A_dim)->dim));
        if (unborn || (op_is_unused(op) && op_is_removable(op))) {
            tn_erase(op);
            any = true;
            continue;
        }
        for (int i = 0; i < op->nregions; i++)
            any |= sweep(op->region[i], used);
    }
    return any;
}

/* A birth that goes may leave operations unused, and those another birth. */
tn_status opt_dce(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    (void)options;
    for (bool more = true; more;) {
        *changed |= sweep(graph->body, NULL);
        tn_map used = {.arena = &graph->session->arena};
        mark_block(graph->body, &used);
        for (size_t i = 0; i < graph->equal.len; i++) {
            mark_dims(&graph->equal.at[i].a, 1, &used);
            mark_dims(&graph->equal.at[i].b, 1, &used);
        }
        more = sweep(graph->body, &used);
        *changed |= more;
    }
    return TN_OK;
}
