/* May a kernel write its result over an operand? It must read an element for the last time before that element is written, in every order of
 * programs and of elements inside one. That holds if the kernel has one store to a
 * parameter, which comes last, and each load of the operand either
 *   - stands in the store's block with the store's subscripts: the element is read where it is written, or
 *   - is part of a fold or loop that ends before the store begins, and reads nothing that another program writes: where the store's
 *     subscript is a grid coordinate, the load's is the same one.
 * Products are excluded: the lowering computes their tiles between the parts of the store. */
#include "plan/internal.h"

typedef struct search {
    const tn_kernel *kernel;
    int out, in;
    const tn_top *store;
    bool excluded, same;
} search;

static bool same_subscript(const tn_subscript *a, const tn_subscript *b)
{
    if (a->value != b->value || a->block != b->block || a->naxes != b->naxes || !(a->block || a->naxes == 0))
        return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axis[i] != b->axis[i])
            return false;
    return true;
}

static bool same_subscripts(const tn_top *a, const tn_top *b)
{
    for (int d = 0; d < a->view->rank; d++)
        if (!same_subscript(&a->subscript[d], &b->subscript[d]))
            return false;
    return true;
}

static bool is_grid(const search *s, const tn_tvalue *value)
{
    for (size_t i = 0; i < s->kernel->grid.len; i++)
        if (s->kernel->grid.at[i].value == value)
            return true;
    return false;
}

/* Nothing that another program writes is read. */
static bool stays_in_program(const search *s, const tn_top *load)
{
    for (int d = 0; d < load->view->rank; d++)
        if (is_grid(s, s->store->subscript[d].value) && !same_subscript(&load->subscript[d], &s->store->subscript[d]))
            return false;
    return true;
}

/* The operation of the kernel's body that holds op. */
static const tn_top *outermost(const search *s, const tn_top *op)
{
    while (op->block != s->kernel->body)
        op = op->block->parent;
    return op;
}

static bool precedes(const tn_top *a, const tn_top *b)
{
    for (a = a->next; a; a = a->next)
        if (a == b)
            return true;
    return false;
}

static bool reads_in_time(const search *s, const tn_top *load)
{
    if (load->view->rank != s->store->view->rank)
        return false;
    if (load->block == s->store->block)
        return same_subscripts(load, s->store);
    const tn_top *holds_load = outermost(s, load), *holds_store = outermost(s, s->store);
    return holds_load != load && precedes(holds_load, holds_store) && stays_in_program(s, load);
}

static void find_store(search *s, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->code == TN_T_store) {
            s->excluded |= s->store != NULL; /* computed after it, perhaps from the same operand */
            s->store = s->kernel->buffers.at[op->view->buffer].mode != TN_LOCAL ? op : s->store;
        }
        s->excluded |= op->code == TN_T_store_ptr || op->code == TN_T_atomic || op->code == TN_T_atomic_ptr ||
                       op->code == TN_T_cas_ptr || op->code == TN_T_dot;
        for (int r = 0; r < op->nregions; r++)
            find_store(s, op->region[r]);
    }
}

static void check_loads(search *s, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op && s->same; op = op->next) {
        if (op->code == TN_T_load && op->view->buffer == s->in)
            s->same = reads_in_time(s, op);
        for (int r = 0; r < op->nregions; r++)
            check_loads(s, op->region[r]);
    }
}

bool tn_plan_same_place(const tn_kernel *kernel, int out, int in)
{
    search s = {.kernel = kernel, .out = out, .in = in, .same = true};
    find_store(&s, kernel->body);
    if (s.excluded || !s.store || s.store->view->buffer != out)
        return false;
    check_loads(&s, kernel->body);
    return s.same;
}
