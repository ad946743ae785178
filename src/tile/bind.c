/* Walks over a kernel; its size; what a lowering needs done before: parameters bound, identities given. */
#include "tile/internal.h"

#include <string.h>

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

/* ---- reductions without identity ------------------------------------------------------------------------------------- */

/* reduce and scan without identities get one tile more, of `true`: is there something yet? Its identity is false, and
 *   (a, fa) with (b, fb) = (fa and fb ? combine(a, b) : fa ? a : b, fa or fb). */
static void move_arguments(tn_kernel *kernel, tn_tblock *region, int n, tn_map *became)
{
    tn_ttype types[2 * TN_TILE_COMBINED];
    const tn_tvalue *old = region->arg;
    for (int i = 0; i < n; i++)
        types[i] = types[n + 1 + i] = old[i].type;
    types[n] = types[2 * n + 1] = tn_tscalar(TN_BOOL);
    tn_tblock_args(kernel, region, types, 2 * n + 2);
    for (int i = 0; i < 2 * n; i++) {
        tn_tvalue *to = &region->arg[i < n ? i : i + 1];
        to->name = old[i].name;
        *tn_map_at(became, TN_KEY(&old[i])) = to;
    }
}

static void replace_use(void *context, tn_tvalue **use)
{
    tn_tvalue *to = tn_map_get(context, TN_KEY(*use));
    if (to)
        *use = to;
}

static void replace_uses(void *context, tn_top *op) { tn_top_uses(op, replace_use, context); }

static void combine_with_flags(tn_kernel *kernel, tn_tblock *region, int n)
{
    tn_map became = {.arena = &kernel->session->arena};
    move_arguments(kernel, region, n, &became);
    tn_tile_walk(region, replace_uses, &became);
    tn_top *yield = region->last;
    tn_top_unlink(yield);
    tn_tbuilder b = tn_tbuilder_at(kernel, region, yield->loc);
    tn_tvalue *values[TN_TILE_COMBINED], *fa = &region->arg[n], *fb = &region->arg[2 * n + 1], *both = tn_t_map2(&b, TN_S_and, fa, fb);
    for (int i = 0; i < n; i++) {
        tn_tvalue *one = tn_t_map3(&b, TN_S_select, fa, &region->arg[i], &region->arg[n + 1 + i]);
        values[i] = tn_t_map3(&b, TN_S_select, both, yield->operand[i], one);
    }
    values[n] = tn_t_map2(&b, TN_S_or, fa, fb);
    tn_t_yield(&b, values, n + 1);
}

typedef struct completion {
    tn_kernel *kernel;
    tn_map became; /* result -> result of the operation with identities */
    tn_status status;
} completion;

static void complete_op(void *context, tn_top *op)
{
    completion *c = context;
    int n = op->nresults;
    if ((op->code != TN_T_reduce && op->code != TN_T_scan) || op->identity)
        return;
    if (n == TN_TILE_COMBINED) {
        c->status = tn_error(c->kernel->session, TN_UNSUPPORTED, op->loc, "kernel @%s: %s without identity takes %d tiles at most", c->kernel->name,
                             tn_top_name(op->code), TN_TILE_COMBINED - 1);
        return;
    }
    tn_arena *arena = &c->kernel->session->arena;
    tn_ttype types[TN_TILE_COMBINED], flags = op->operand[0]->type;
    tn_tblock aside = {.first = NULL};
    tn_tbuilder b = tn_tbuilder_at(c->kernel, &aside, op->loc);
    flags.dtype = TN_BOOL;
    tn_top *truth = tn_t_const(&b, flags, tn_number_from_int(TN_BOOL, 1))->def;
    tn_tvalue **operands = TN_NEW_ARRAY(arena, tn_tvalue *, (size_t)n + 1), *old = op->result;
    memcpy(operands, op->operand, sizeof *operands * (size_t)n);
    operands[n] = truth->result;
    for (int i = 0; i < n; i++)
        types[i] = old[i].type;
    types[n] = old[0].type;
    types[n].dtype = TN_BOOL;
    tn_top_move_before(truth, op);
    b.block = op->block;
    op->operand = operands;
    op->noperands = n + 1;
    tn_top_results(&b, op, types, n + 1);
    for (int i = 0; i < n; i++) {
        op->result[i].name = old[i].name;
        *tn_map_at(&c->became, TN_KEY(&old[i])) = &op->result[i];
    }
    op->identity = TN_NEW_ARRAY(arena, tn_number, (size_t)n + 1);
    combine_with_flags(c->kernel, op->region[0], n);
}

static tn_status give_identities(tn_kernel *kernel)
{
    completion c = {.kernel = kernel, .became = {.arena = &kernel->session->arena}};
    tn_tile_walk(kernel->body, complete_op, &c);
    if (c.became.len)
        tn_tile_walk(kernel->body, replace_uses, &c.became);
    return c.status;
}

tn_status tn_tile_bind(tn_kernel *kernel)
{
    binder b = {.kernel = kernel};
    for (size_t i = 0; i < kernel->scalars.len; i++)
        bind_type(&b, &kernel->scalars.at[i]->type);
    for (size_t i = 0; i < kernel->grid.len; i++)
        bind_extent(&b, &kernel->grid.at[i].step);
    tn_tile_walk(kernel->body, bind_op, &b);
    return b.status == TN_OK ? give_identities(kernel) : b.status;
}
