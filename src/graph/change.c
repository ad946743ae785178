/* Changes to a graph that passes make: uses, positions, copies. */
#include "graph/internal.h"

#include <assert.h>

static void unlink_use(tn_use *use)
{
    *(use->prev ? &use->prev->next : &use->value->uses) = use->next;
    if (use->next)
        use->next->prev = use->prev;
    use->prev = use->next = NULL;
}

void tn_set_operand(tn_op *op, int i, tn_value *value)
{
    unlink_use(&op->operand[i]);
    op->operand[i].value = value;
    tn_link_use(&op->operand[i]);
}

void tn_replace_uses(tn_value *from, tn_value *to)
{
    assert(from != to);
    while (from->uses) {
        tn_use *use = from->uses;
        unlink_use(use);
        use->value = to;
        tn_link_use(use);
    }
}

static void unlink_op(tn_op *op)
{
    *(op->prev ? &op->prev->next : &op->block->first) = op->next;
    *(op->next ? &op->next->prev : &op->block->last) = op->prev;
    op->prev = op->next = NULL;
}

/* Drops the uses that op and the operations of its regions have of values. */
static void drop_uses(tn_op *op)
{
    for (int i = 0; i < op->noperands; i++)
        unlink_use(&op->operand[i]);
    for (int r = 0; r < op->nregions; r++)
        for (tn_op *inner = op->region[r]->first; inner; inner = inner->next)
            drop_uses(inner);
}

void tn_erase(tn_op *op)
{
    for (int i = 0; i < op->nresults; i++)
        assert(!op->result[i].uses);
    drop_uses(op);
    unlink_op(op);
    op->block = NULL;
}

void tn_move_before(tn_op *op, tn_op *before)
{
    tn_builder at = {.graph = before->block->graph, .block = before->block, .before = before};
    if (op == before || op->next == before)
        return;
    unlink_op(op);
    tn_insert_op(&at, op);
}

static tn_value *mapped(const tn_map *values, tn_value *value)
{
    tn_value *to = tn_map_get(values, TN_KEY(value));
    return to ? to : value;
}

static tn_block *clone_block(tn_graph *graph, const tn_block *block, tn_map *values)
{
    tn_block *copy = tn_block_new(graph, NULL);
    for (int i = 0; i < block->nargs; i++)
        *tn_map_at(values, TN_KEY(block->arg[i])) = tn_block_arg(copy, &block->arg[i]->type, block->arg[i]->name);
    tn_builder inner = tn_builder_at_end(copy, TN_NO_LOC);
    for (const tn_op *op = block->first; op; op = op->next)
        tn_clone(&inner, op, values);
    return copy;
}

tn_op *tn_clone(tn_builder *b, const tn_op *op, tn_map *values)
{
    tn_session *session = b->graph->session;
    tn_op *copy = tn_new_op(session, op->code, op->loc, op->noperands, op->nregions);
    for (int i = 0; i < op->noperands; i++)
        copy->operand[i] = (tn_use){.value = mapped(values, op->operand[i].value), .user = copy};
    tn_set_attrs(session, copy, op->attr, op->nattrs);
    for (int i = 0; i < op->nregions; i++)
        copy->region[i] = clone_block(b->graph, op->region[i], values);
    tn_type *types = TN_NEW_ARRAY(&session->arena, tn_type, (size_t)op->nresults);
    for (int i = 0; i < op->nresults; i++)
        types[i] = op->result[i].type;
    tn_set_results(b->graph, copy, types, op->nresults);
    for (int i = 0; i < op->nresults; i++) {
        copy->result[i].name = op->result[i].name;
        *tn_map_at(values, TN_KEY(&op->result[i])) = &copy->result[i];
    }
    tn_attach(b, copy);
    return copy;
}

tn_graph *tn_graph_clone(tn_session *session, const tn_graph *graph)
{
    tn_graph *copy = tn_graph_new(session, graph->name);
    tn_map values = {.arena = &session->arena};
    for (int i = 0; i < graph->body->nargs; i++) {
        const tn_value *arg = graph->body->arg[i];
        *tn_map_at(&values, TN_KEY(arg)) = tn_graph_input(copy, arg->name, &arg->type);
    }
    for (const tn_op *op = graph->body->first; op; op = op->next) {
        tn_builder b = tn_builder_at_end(copy->body, op->loc);
        tn_clone(&b, op, &values);
    }
    copy->output_names = graph->output_names;
    for (size_t i = 0; i < graph->equal.len; i++)
        TN_PUSH(&session->arena, &copy->equal, graph->equal.at[i]);
    return copy;
}
