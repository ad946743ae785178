/* Several CTAs that work on one program together, as a cluster: each holds its part of the tiles in its registers and its own shared memory, and what their parts
 * of a reduction gave goes from every warp to all CTAs (reduce.c).
 *
 * A CTA sends by `send`, which fills shared memory of another one and tells an mbarrier there how many bytes have come; who waits for that mbarrier has them all, its
 * own among them. So nobody meets but once, before the first is sent: a CTA that has not begun has no memory yet. They arrive there first of all, and wait behind what
 * they load. Nor does one have to wait before it ends: whoever would send to it has done so before it could go on, and what it sends itself goes to CTAs that wait for it.
 *
 * That holds for a program that runs once, whose deliveries come each to a place of its own. No loops, therefore, nothing that moves elements from thread to thread in
 * other ways, and no assertions, at which a thread may end that others wait for: then one CTA does the program, which has as many warps. */
#include <assert.h>

#include "target/gpu/lower.h"

static void find_obstacle(void *context, tn_top *op)
{
    const char **why = context;
    bool reduces = op->code == TN_T_reduce || op->code == TN_T_fold, sinks = op->code == TN_T_store || op->code == TN_T_store_ptr;
    bool nested = op->block->parent != NULL; /* in a loop or branch; or in what a reduction or fold does with an element */
    if (*why || op->code == TN_T_yield || sinks)
        return;
    if (reduces ? nested || op->ordered : op->code == TN_T_gather || !lower_is_expression(op))
        *why = tn_top_name(op->code);
}

const char *gpu_cluster_obstacle(const tn_kernel *kernel)
{
    const char *why = NULL;
    for (size_t i = 0; i < kernel->buffers.len; i++)
        if (kernel->buffers.at[i].mode == TN_LOCAL)
            why = "local buffers";
    tn_tile_walk(kernel->body, find_obstacle, &why);
    return why;
}

/* Reductions and stores of what is loaded, element by element. */
static int sinks_of(tn_arena *arena, const tn_top *load)
{
    tn_map marked = {.arena = arena};
    int sinks = 0;
    *tn_map_at(&marked, TN_KEY(load->result)) = (void *)load;
    for (const tn_top *op = load->next; op; op = op->next) {
        if (!lower_depends_on(op, &marked))
            continue;
        sinks += !lower_is_expression(op);
        for (int i = 0; lower_is_expression(op) && i < op->nresults; i++)
            *tn_map_at(&marked, TN_KEY(&op->result[i])) = (void *)op;
    }
    return sinks;
}

int tn_gpu_cluster(tn_session *session, const tn_kernel *kernel, const tn_machine *machine)
{
    enum { MANY = 3 /* two reductions and a store: with one, a CTA of its own is as fast (RMSNorm of 65536 columns 0.95 of a copy, 0.92 by two) */ };
    int64_t bytes = 0, ctas = 1;
    if (!machine->groups || kernel->overlap || gpu_cluster_obstacle(kernel))
        return 1;
    for (const tn_top *op = kernel->body->first; op; op = op->next)
        if (lower_is_load(op) && op->result->type.rank && sinks_of(&session->arena, op) >= MANY)
            bytes += gpu_elements(&op->result->type) * ((tn_dtype_bits(op->result->type.dtype) + 7) / 8);
    while (bytes > TN_CLUSTER_ROW && ctas < TN_MOST_CLUSTER && ctas * TN_CLUSTER_PART < bytes)
        ctas *= 2;
    return (int)ctas;
}

void gpu_give_up_cluster(lower *L, const char *why)
{
    GPU(L)->apart = GPU(L)->apart ? GPU(L)->apart : why;
    L->status = L->status == TN_OK ? TN_NO_MEMORY : L->status; /* nobody is told */
}

void gpu_start_cluster(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    if (g->ctas == 1)
        return;
    g->start = tn_l_in(b, tn_l_if(b, gpu_is_first_thread(L))->region[0]);
    tn_l_machine(b, "cluster_arrive", NULL, 0);
}

void gpu_end_cluster(lower *L)
{
    gpu_lower *g = GPU(L);
    if (g->ctas == 1 || L->status != TN_OK)
        return;
    tn_l_machine(&g->start, "mbarrier_fence", NULL, 0);
    if (!g->met)
        gpu_give_up_cluster(L, "nothing passes between its CTAs");
}

bool gpu_is_cta_bit(const lower *L, int bit) { return bit >= TN_LAYOUT_LANE_BITS + __builtin_ctz((unsigned)GPU(L)->warps); }

/* ---- what CTAs send each other --------------------------------------------------------------------------------------------- */

tn_lvalue *gpu_new_delivery(lower *L, tn_lbuilder *b, int64_t bytes)
{
    gpu_lower *g = GPU(L);
    tn_lvalue *delivery = gpu_shared(L, "delivery", TN_I64, 1), *zero = tn_l_index(&g->start, 0);
    tn_l_machine(&g->start, "mbarrier_init", (tn_lvalue *[]){delivery, zero, tn_l_index(&g->start, 1)}, 3);
    tn_l_machine(&g->start, "mbarrier_expect", (tn_lvalue *[]){delivery, zero, tn_l_index(&g->start, bytes)}, 3);
    if (!g->met)
        tn_l_machine(b, "cluster_wait", NULL, 0);
    g->met = true;
    return delivery;
}

void gpu_send(lower *L, tn_lbuilder *b, tn_lvalue *x, tn_lvalue *buffer, tn_lvalue *at, tn_lvalue *cta, tn_lvalue *delivery, tn_lvalue *mask)
{
    tn_lvalue *zero = tn_l_index(b, 0), *sent = tn_l_alloc(b, "sent", x->type.dtype, TN_SPACE_REG, 1), *wanted = mask ? tn_l_cast(b, mask, TN_I64) : tn_l_index(b, 1);
    tn_l_store(b, sent, zero, x, NULL);
    for (int i = 0; i < (cta ? 1 : GPU(L)->ctas); i++)
        tn_l_machine(b, tn_dtype_bits(x->type.dtype) == 64 ? "send_8" : "send_4",
                     (tn_lvalue *[]){sent, zero, buffer, at, cta ? cta : tn_l_index(b, i), delivery, zero, wanted}, 8);
}

void gpu_await_delivery(tn_lbuilder *b, tn_lvalue *delivery)
{
    tn_lvalue *zero = tn_l_index(b, 0);
    tn_l_machine(b, "mbarrier_wait", (tn_lvalue *[]){delivery, zero, zero}, 3);
}

/* ---- rows that wait -------------------------------------------------------------------------------------------------------- */

/* A thread's registers lie there as it would access them: vectors of neighbours, those of all threads side by side. */
static tn_lvalue *place_of_register(lower *L, tn_lbuilder *b, const nest *n, const axes *of, const place *p)
{
    const tn_layout *layout = &p->held->layout;
    int64_t vector = tn_layout_vector(layout, layout->rank - 1);
    return gpu_plus(b, gpu_times(&L->entry, GPU(L)->thread, vector), gpu_spread_register(b, n, of, layout, __builtin_ctzll((uint64_t)vector), TN_WARP * GPU(L)->warps));
}

void gpu_leave_registers(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p)
{
    tn_dtype dtype = gpu_held_dtype(type);
    axes own = lower_own_axes();
    tn_lbuilder in = *b;
    nest n;
    p->held->own = gpu_shared(L, "own", dtype, (int64_t)tn_layout_regs(&p->held->layout) * TN_WARP * GPU(L)->warps);
    gpu_open(L, &in, &p->held->layout, &n);
    tn_lvalue *at = place_of_register(L, &in, &n, &own, p);
    gpu_put(&in, p->held->own, at, tn_l_load(&in, p->held->regs, n.reg, 1, NULL, NULL), NULL);
    gpu_close(L, &n);
    L->func->resident = tn_max(gpu_resident(L), 1);
}

tn_lvalue *gpu_read_left(lower *L, tn_lbuilder *b, const nest *n, const axes *of, const tn_ttype *type, const place *p)
{
    return gpu_get(b, p->held->own, place_of_register(L, b, n, of, p), gpu_held_dtype(type));
}
