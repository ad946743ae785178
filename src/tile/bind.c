/* Walks over a kernel; binding of its parameters; its size. */
#include "tile/internal.h"

void tn_tile_walk(const tn_tblock *block, void (*visit)(void *context, tn_top *op), void *context)
{
    for (tn_top *op = block->first, *next; op; op = next) {
        next = op->next; /* the callback may take op out */
        visit(context, op);
        for (int r = 0; r < op->nregions; r++)
            tn_tile_walk(op->region[r], visit, context);
    }
}

void tn_top_uses(tn_top *op, void (*visit)(void *context, tn_tvalue **use), void *context)
{
    for (int i = 0; i < op->noperands; i++)
        visit(context, &op->operand[i]);
    for (int d = 0; op->subscript && d < op->view->rank; d++)
        visit(context, &op->subscript[d].value);
}

static void count(void *context, tn_top *op)
{
    (void)op;
    ++*(size_t *)context;
}

size_t tn_tile_size(const tn_kernel *kernel)
{
    size_t n = 0;
    tn_tile_walk(kernel->body, count, &n);
    return n;
}

/* ---- binding --------------------------------------------------------------------------------------------------------- */

typedef struct binder {
    tn_kernel *kernel;
    tn_loc loc;
    tn_status status;
} binder;

static void bind_extent(binder *b, tn_extent *extent)
{
    if (!extent->param)
        return;
    for (size_t i = 0; i < b->kernel->schedule.bind.len; i++)
        if (b->kernel->schedule.bind.at[i].param == extent->param) {
            *extent = tn_extent_const(b->kernel->schedule.bind.at[i].value);
            return;
        }
    if (b->status == TN_OK)
        b->status = tn_error(b->kernel->session, TN_INVALID, b->loc, "kernel @%s: the schedule binds no %s; add `bind %s = …`", b->kernel->name,
                             extent->param, extent->param);
}

static void bind_type(binder *b, tn_ttype *type)
{
    for (int i = 0; i < type->rank; i++)
        bind_extent(b, &type->extent[i]);
}

static void bind_op(void *context, tn_top *op)
{
    binder *b = context;
    b->loc = op->loc;
    for (int i = 0; i < op->nresults; i++)
        bind_type(b, &op->result[i].type);
    for (int i = 0; i < TN_TILE_RANK; i++)
        bind_extent(b, &op->step[i]);
    for (int r = 0; r < op->nregions; r++)
        for (int i = 0; i < op->region[r]->nargs; i++)
            bind_type(b, &op->region[r]->arg[i].type);
}

tn_status tn_tile_bind(tn_kernel *kernel)
{
    binder b = {.kernel = kernel};
    for (size_t i = 0; i < kernel->scalars.len; i++)
        bind_type(&b, &kernel->scalars.at[i]->type);
    for (size_t i = 0; i < kernel->grid.len; i++)
        bind_extent(&b, &kernel->grid.at[i].step);
    tn_tile_walk(kernel->body, bind_op, &b);
    return b.status;
}
