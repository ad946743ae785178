/* A copy of a kernel: passes change what they are given, and the checked mode wants what the author wrote. */
#include "tile/internal.h"

#include <assert.h>
#include <string.h>

typedef struct cloner {
    tn_arena *arena;
    tn_kernel *to;
    tn_map became; /* value or view -> its copy */
} cloner;

static void *copy_array(cloner *c, const void *from, size_t n, size_t size)
{
    return from && n ? tn_memdup(c->arena, from, n * size) : NULL;
}

static void became(cloner *c, const void *from, void *to) { *tn_map_at(&c->became, TN_KEY(from)) = to; }

static tn_tvalue *value_of(const cloner *c, const tn_tvalue *from)
{
    tn_tvalue *to = tn_map_get(&c->became, TN_KEY(from));
    assert(to && "values are defined before they are used");
    return to;
}

static tn_tvalue *clone_values(cloner *c, const tn_tvalue *from, int n, tn_top *def, tn_tblock *block)
{
    tn_tvalue *to = copy_array(c, from, (size_t)n, sizeof *to);
    for (int i = 0; i < n; i++) {
        to[i].def = def;
        to[i].block = block;
        to[i].scratch = NULL;
        became(c, &from[i], &to[i]);
    }
    return to;
}

static tn_tblock *clone_block(cloner *c, const tn_tblock *from, tn_top *parent);

static void clone_op(cloner *c, const tn_top *from, tn_tblock *block)
{
    tn_top *to = tn_memdup(c->arena, from, sizeof *from);
    to->block = block;
    to->next = NULL;
    to->prev = block->last;
    *(to->prev ? &to->prev->next : &block->first) = to;
    block->last = to;
    to->operand = TN_NEW_ARRAY(c->arena, tn_tvalue *, (size_t)from->noperands + 1);
    for (int i = 0; i < from->noperands; i++)
        to->operand[i] = value_of(c, from->operand[i]);
    if (from->view) {
        to->view = tn_map_get(&c->became, TN_KEY(from->view));
        to->subscript = copy_array(c, from->subscript, (size_t)from->view->rank, sizeof *from->subscript);
        for (int d = 0; d < from->view->rank; d++)
            to->subscript[d].value = value_of(c, from->subscript[d].value);
    }
    for (int r = 0; r < from->nregions; r++)
        to->region[r] = clone_block(c, from->region[r], to);
    to->result = clone_values(c, from->result, from->nresults, to, block);
}

static tn_tblock *clone_block(cloner *c, const tn_tblock *from, tn_top *parent)
{
    tn_tblock *to = TN_NEW(c->arena, tn_tblock);
    to->parent = parent;
    to->nargs = from->nargs;
    to->arg = clone_values(c, from->arg, from->nargs, NULL, to);
    for (const tn_top *op = from->first; op; op = op->next)
        clone_op(c, op, to);
    return to;
}

#define COPY_VEC(c, v) ((v)->at = copy_array((c), (v)->at, (v)->len, sizeof *(v)->at), (v)->cap = (v)->len)

static void clone_parameters(cloner *c, const tn_kernel *from)
{
    tn_kernel *to = c->to;
    COPY_VEC(c, &to->buffers);
    COPY_VEC(c, &to->views);
    COPY_VEC(c, &to->scalars);
    COPY_VEC(c, &to->grid);
    COPY_VEC(c, &to->schedule.bind);
    COPY_VEC(c, &to->schedule.entry);
    for (size_t i = 0; i < from->views.len; i++) {
        tn_view *view = tn_memdup(c->arena, from->views.at[i], sizeof *view);
        view->guard = copy_array(c, view->guard, (size_t)view->nguards, sizeof *view->guard);
        to->views.at[i] = view;
        became(c, from->views.at[i], view);
    }
    for (size_t i = 0; i < from->scalars.len; i++)
        to->scalars.at[i] = clone_values(c, from->scalars.at[i], 1, NULL, NULL);
    for (size_t i = 0; i < from->grid.len; i++)
        to->grid.at[i].value = clone_values(c, from->grid.at[i].value, 1, NULL, NULL);
}

tn_kernel *tn_kernel_clone(const tn_kernel *kernel)
{
    cloner c = {.arena = &kernel->session->arena, .became = {.arena = &kernel->session->arena}};
    c.to = tn_memdup(c.arena, kernel, sizeof *kernel);
    clone_parameters(&c, kernel);
    c.to->body = clone_block(&c, kernel->body, NULL);
    return c.to;
}
