/* The verifier: structure (blocks, links, use lists), dominance, and types inferred anew. */
#include "graph/internal.h"

#include <string.h>

struct verifier {
    const tn_graph *graph;
    tn_map order; /* operation or argument -> its place in the text + 1 */
    tn_map uses;  /* value -> number of operand slots that hold it */
    tn_map born;  /* symbol -> the define_dimension of it */
    uintptr_t place;
};

__attribute__((format(printf, 3, 4))) static bool wrong(struct verifier *v, const tn_op *op, const char *format, ...)
{
    va_list args;
    tn_text text = {.arena = &v->graph->session->arena};
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    tn_error(v->graph->session, TN_INVALID, op ? op->loc : TN_NO_LOC, "graph '%s': %s%s%s", v->graph->name,
             op ? tn_op_name(op->code) : "", op ? ": " : "", text.at);
    return false;
}

/* ---- first walk: places, links -------------------------------------------------------------------------------------------------- */

static bool check_links(struct verifier *v, const tn_block *block, const tn_op *op)
{
    if (op->block != block || (op->prev ? op->prev->next != op : block->first != op) ||
        (op->next ? op->next->prev != op : block->last != op))
        return wrong(v, op, "the links of its block are broken");
    for (int i = 0; i < op->noperands; i++) {
        if (!op->operand[i].value || op->operand[i].user != op)
            return wrong(v, op, "operand %d is not linked", i);
        void **count = tn_map_at(&v->uses, TN_KEY(op->operand[i].value));
        *count = (void *)((uintptr_t)*count + 1);
    }
    for (int i = 0; i < op->nresults; i++)
        if (op->result[i].def != op || op->result[i].index != i)
            return wrong(v, op, "result %d does not know its operation", i);
    for (int i = 1; i < op->nattrs; i++)
        if (op->attr[i - 1].name >= op->attr[i].name)
            return wrong(v, op, "attributes are not sorted");
    return true;
}

static bool check_terminator(struct verifier *v, const tn_block *block, const tn_op *op)
{
    bool terminates = (tn_op_traits(op->code) & TN_TERMINATOR) != 0;
    if (terminates && op != block->last)
        return wrong(v, op, "it must be the last operation of its block");
    return terminates || op != block->last || wrong(v, op, "a block must end with `return`");
}

static bool number_block(struct verifier *v, const tn_block *block, const tn_op *parent)
{
    if (block->graph != v->graph || block->parent != parent)
        return wrong(v, parent, "a region does not belong to it");
    if (!block->last)
        return wrong(v, parent, "a block must end with `return`");
    for (int i = 0; i < block->nargs; i++) {
        *tn_map_at(&v->order, TN_KEY(block->arg[i])) = (void *)++v->place;
        if (block->arg[i]->block != block || block->arg[i]->index != i || block->arg[i]->def)
            return wrong(v, parent, "argument %d does not know its block", i);
    }
    for (const tn_op *op = block->first; op; op = op->next) {
        *tn_map_at(&v->order, TN_KEY(op)) = (void *)++v->place;
        if (!check_links(v, block, op) || !check_terminator(v, block, op))
            return false;
        for (int i = 0; i < op->nregions; i++)
            if (!number_block(v, op->region[i], op))
                return false;
    }
    return true;
}

/* ---- second walk: meaning ---------------------------------------------------------------------------------------------------------- */

static const tn_block *block_of(const tn_value *value) { return value->def ? value->def->block : value->block; }

/* The value is defined before op, in op's block or one around it. */
static bool dominates(struct verifier *v, const tn_value *value, const tn_op *op)
{
    const tn_block *home = block_of(value);
    const tn_op *at = op;
    while (at && at->block != home)
        at = at->block ? at->block->parent : NULL;
    if (!at)
        return false;
    if (!value->def)
        return tn_map_get(&v->order, TN_KEY(value)) != NULL;
    uintptr_t defined = (uintptr_t)tn_map_get(&v->order, TN_KEY(value->def));
    return defined != 0 && defined < (uintptr_t)tn_map_get(&v->order, TN_KEY(at));
}

static bool check_uses(struct verifier *v, const tn_op *op, const tn_value *value)
{
    uintptr_t n = 0, expected = (uintptr_t)tn_map_get(&v->uses, TN_KEY(value));
    const tn_use *prev = NULL;
    for (const tn_use *use = value->uses; use; prev = use, use = use->next, n++)
        if (use->value != value || use->prev != prev || n >= expected || use < use->user->operand ||
            use >= use->user->operand + use->user->noperands)
            return wrong(v, op, "the list of uses of a value is broken");
    return n == expected || wrong(v, op, "the list of uses of a value has %zu entries for %zu uses", (size_t)n, (size_t)expected);
}

static const char *text_of(struct verifier *v, const tn_type *type)
{
    tn_text text = {.arena = &v->graph->session->arena};
    tn_text_type(&text, type);
    return text.at;
}

static bool check_types(struct verifier *v, const tn_op *op)
{
    tn_type *inferred;
    int n;
    if (!tn_infer_types((tn_graph *)v->graph, op, false, &inferred, &n))
        return false;
    if (n != op->nresults)
        return wrong(v, op, "it has %d results, expected %d", op->nresults, n);
    for (int i = 0; i < n; i++) {
        const tn_type *type = &op->result[i].type;
        bool same = type->dtype == inferred[i].dtype && type->rank == inferred[i].rank;
        for (int d = 0; same && d < type->rank; d++)
            same = !tn_dim_ne(v->graph->session, type->dim[d], inferred[i].dim[d]);
        if (!same)
            return wrong(v, op, "result %d has type %s, expected %s", i, text_of(v, type), text_of(v, &inferred[i]));
    }
    return true;
}

static bool check_born(struct verifier *v, const tn_op *op)
{
    if (op->code != TN_OP_define_dimension)
        return true;
    tn_dim symbol = tn_find_attr(op, TN_A_dim)->dim;
    void **cell = tn_map_at(&v->born, TN_KEY(symbol));
    if (*cell)
        return wrong(v, op, "symbol '%s' is defined twice", symbol->name);
    *cell = (void *)op;
    return true;
}

static bool check_block(struct verifier *v, const tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        if (!check_uses(v, block->parent, block->arg[i]))
            return false;
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->noperands; i++)
            if (!dominates(v, tn_operand(op, i), op))
                return wrong(v, op, "operand %d is not defined before it", i);
        for (int i = 0; i < op->nresults; i++)
            if (!check_uses(v, op, &op->result[i]))
                return false;
        for (int i = 0; i < op->nregions; i++)
            if (!check_block(v, op->region[i]))
                return false;
        if (!check_types(v, op) || !check_born(v, op))
            return false;
    }
    return true;
}

tn_status tn_graph_verify(const tn_graph *graph)
{
    struct verifier v = {.graph = graph};
    v.order.arena = v.uses.arena = v.born.arena = &graph->session->arena;
    return number_block(&v, graph->body, NULL) && check_block(&v, graph->body) ? TN_OK : TN_INVALID;
}
