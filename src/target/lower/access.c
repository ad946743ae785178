/* Which accesses touch the same memory. */
#include "target/lower/lower.h"

#include <string.h>

bool lower_same_access(const tn_top *a, const tn_top *b)
{
    if (a->view->rank != b->view->rank || a->view->offset != b->view->offset || a->view->panel != b->view->panel)
        return false;
    for (int d = 0; d < a->view->rank; d++) {
        const tn_subscript *x = &a->subscript[d], *y = &b->subscript[d];
        if (a->view->stride[d] != b->view->stride[d] || x->value != y->value || x->block != y->block || x->naxes != y->naxes)
            return false;
        for (int i = 0; i < x->naxes; i++)
            if (x->axis[i] != y->axis[i])
                return false;
    }
    return true;
}

/* op, or something inside it, reads a value of the set. */
bool lower_depends_on(const tn_top *op, const tn_map *marked)
{
    for (int i = 0; i < op->noperands; i++)
        if (tn_map_get(marked, TN_KEY(op->operand[i])))
            return true;
    for (int d = 0; op->subscript && d < op->view->rank; d++)
        if (tn_map_get(marked, TN_KEY(op->subscript[d].value)))
            return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_depends_on(in, marked))
                return true;
    return false;
}

bool lower_is_used(lower *L, const tn_top *op)
{
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(op->result)) = (void *)op;
    for (const tn_top *next = op->next; next; next = next->next)
        if (lower_depends_on(next, &marked))
            return true;
    return false;
}

bool lower_is_load(const tn_top *op) { return op->code == TN_T_load || op->code == TN_T_load_ptr; }

bool lower_is_expression(const tn_top *op)
{
    return lower_is_load(op) || (!op->nregions && op->code != TN_T_dot && op->code != TN_T_histogram && (tn_top_traits(op->code) & TN_T_PURE));
}

bool lower_writes_memory(const tn_top *op)
{
    return op->code == TN_T_store || op->code == TN_T_atomic || op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_cas_ptr;
}

bool lower_walks(const tn_subscript *s, int axis)
{
    for (int i = 0; i < s->naxes; i++)
        if (s->axis[i] == axis)
            return true;
    return false;
}

const tn_tvalue *lower_accessed_tile(const tn_top *op)
{
    return op->code == TN_T_store ? op->operand[0] : op->code == TN_T_store_ptr ? op->operand[1] : op->result;
}

int lower_accessed(const lower *L, const tn_top *op)
{
    if (op->view)
        return op->view->buffer;
    return op->code == TN_T_load_ptr || op->code == TN_T_atomic_load || lower_writes_memory(op) ? lower_root(L, op->operand[0]) : LOWER_NOTHING;
}

static bool is_local(const lower *L, int buffer) { return buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_LOCAL; }

bool lower_may_alias(const lower *L, int a, int b)
{
    if (a == b)
        return true;
    return !is_local(L, a) && !is_local(L, b) && (a == LOWER_MEMORY || b == LOWER_MEMORY || L->kernel->overlap);
}

bool lower_writes(const lower *L, const tn_top *op, int buffer)
{
    if (lower_writes_memory(op) && lower_may_alias(L, lower_accessed(L, op), buffer))
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_writes(L, in, buffer))
                return true;
    return false;
}

lower_order lower_order_of(const tn_top *op, bool used)
{
    const char *text = op->text ? op->text : "acq_rel";
    if (op->code == TN_T_atomic) /* by whose old values nobody steers, it adds something up */
        return (lower_order){used, used};
    return (lower_order){.release = op->code != TN_T_atomic_load && (strncmp(text, "acq_rel", 7) == 0 || strncmp(text, "release", 7) == 0),
                         .acquire = used && strncmp(text, "acq", 3) == 0}; /* who does not look at what was there knows of nobody */
}

/* Volatile loads too, whatever their order says: what is loaded behind one may have been waited for by it. */
static bool orders(const tn_top *op)
{
    lower_order o = tn_top_is_atomic(op->code) ? lower_order_of(op, true) : (lower_order){false, false};
    return op->code == TN_T_fence || op->code == TN_T_atomic_load || o.release || o.acquire;
}

bool lower_acquires(lower *L, const tn_top *op)
{
    if (orders(op) && (op->code == TN_T_fence || op->code == TN_T_atomic_load || lower_order_of(op, lower_is_used(L, op)).acquire))
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_acquires(L, in))
                return true;
    return false;
}

bool lower_synchronises(const tn_top *op)
{
    if (orders(op))
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_synchronises(in))
                return true;
    return false;
}

bool lower_writes_unknown(const lower *L, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (lower_writes_memory(op) && lower_accessed(L, op) == LOWER_MEMORY)
            return true;
        for (int r = 0; r < op->nregions; r++)
            if (lower_writes_unknown(L, op->region[r]))
                return true;
    }
    return false;
}

/* Every axis of the tile walks a dimension of the view that moves in memory. */
static bool walks_all_axes(const tn_top *access, const tn_ttype *type)
{
    for (int axis = 0; axis < type->rank; axis++) {
        bool walked = type->extent[axis].size == 1;
        for (int d = 0; d < access->view->rank; d++)
            walked |= access->subscript[d].block && access->subscript[d].axis[0] == axis && !tn_dim_is(access->view->stride[d], 0);
        if (!walked)
            return false;
    }
    return true;
}

bool lower_same_element(const lower *L, const tn_top *load, const tn_top *store)
{
    if (load->code == TN_T_load_ptr && store->code == TN_T_store_ptr)
        return load->operand[0] == store->operand[0] && lower_is_injective(L, load->operand[0]);
    if (load->code != TN_T_load || store->code != TN_T_store || load->view->buffer != store->view->buffer || !lower_same_access(load, store))
        return false;
    return !L->kernel->overlap || walks_all_axes(store, &store->operand[0]->type);
}
