/* Atomics, and what orders programs.
 *
 * The owner of an element does its atomic, so that it is done once; the old values that copies in other threads want come by way of shared memory. A scalar
 * one is the first thread's. What a program passes on by an atomic is all that its threads have stored: the release is a barrier of the CTA and then a fence
 * of the thread that does the atomic; the acquire is that thread's fence, and then a barrier before any thread looks at memory again. */
#include "target/gpu/lower.h"

/* Of the threads that do the atomics: fences are cumulative, so that of what the others stored before they met they tell too, and each one that threads do
 * without shortens what others wait for a lock. A program is a CTA: what its own threads see of each other barriers see to. */
static void fence(tn_lbuilder *b, tn_lscope scope, tn_lvalue *owns)
{
    if (scope == TN_SCOPE_CTA)
        return;
    tn_lbuilder in = owns ? tn_l_in(b, tn_l_if(b, owns)->region[0]) : *b;
    tn_l_fence(&in, scope);
}

/* Adds to f32 in memory and wants nothing back, nor orders anything: what the memory does by itself. */
static bool only_adds(lower *L, const tn_top *op, bool used)
{
    lower_order o = lower_order_of(op, used);
    return !used && (op->code == TN_T_atomic || op->code == TN_T_atomic_ptr) && op->fn == TN_S_add && op->result->type.dtype == TN_F32 && op->result->type.rank && !o.release &&
           !o.acquire && lower_scope_of(op) == TN_SCOPE_GPU && lower_accessed(L, op) >= 0;
}

/* Two neighbours at once, where a thread has them and they exist together. */
static bool adds_pairs(lower *L, const tn_top *op, const tn_layout *layout)
{
    int64_t multiple;
    int axis;
    bool masked = op->code == TN_T_atomic_ptr && op->noperands > 2;
    return L->machine->groups && !masked && gpu_neighbours(L, op, &axis, &multiple) && multiple % 2 == 0 && layout->reg_bits && tn_layout_column(layout, 0, axis) == 1;
}

/* From registers, without a branch for each: a mask is the instruction's. */
static void add_to_memory(lower *L, tn_lbuilder *b, const tn_top *op, const tn_layout *layout)
{
    const tn_tvalue *v = op->operand[op->code == TN_T_atomic_ptr];
    place *p = tn_map_get(&L->places, TN_KEY(v));
    tn_layout walked = *layout; /* over pairs: without the bit that tells its two apart */
    axes own = lower_own_axes();
    element x[2];
    nest n;
    if (!p || !p->held || !tn_layout_same(&p->held->layout, layout))
        p = gpu_materialise(L, b, v, layout);
    gpu_prepare_access(L, b, op, layout);
    gpu_touch_sums(L, b, lower_accessed(L, op), op, layout);
    bool pairs = adds_pairs(L, op, layout);
    if (pairs) {
        walked.reg_bits--;
        for (int i = 0; i < walked.reg_bits; i++)
            walked.col[i] = walked.col[i + 1];
        walked.col[walked.reg_bits] = 0;
    }
    tn_lbuilder in = *b;
    gpu_open(L, &in, &walked, &n);
    access a = lower_atomic_access(L, &in, op, n.idx, x);
    tn_lvalue *mask = lower_and(&in, gpu_owns(L, layout), a.exists), *memory = op->view ? L->buffer[op->view->buffer] : lower_pointed_memory(L, op);
    mask = mask ? tn_l_cast(&in, mask, TN_I64) : tn_l_index(&in, 1);
    tn_l_machine(&in, pairs ? "add_f32_2" : "add_f32", (tn_lvalue *[]){memory, a.offset, p->held->regs, gpu_register(&in, &n, &own, &p->held->layout), mask}, 5);
    gpu_close(L, &n);
}

void gpu_atomic(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    bool view = op->code == TN_T_atomic, loads = op->code == TN_T_atomic_load, used = lower_is_used(L, op);
    lower_order o = lower_order_of(op, used);
    tn_layout layout;
    nest n;
    element x[2];
    if (!gpu_sink_layout(L, op->operand[!view && !loads], &layout))
        return;
    if (only_adds(L, op, used)) {
        add_to_memory(L, b, op, &layout);
        return;
    }
    place *old = used ? gpu_new_place(L, b, type, &layout, "old") : NULL, *there = NULL;
    if (used) {
        tn_ttype flags = gpu_flags(type);
        there = gpu_new_place(L, b, &flags, &layout, "there");
    }
    gpu_prepare_access(L, b, op, &layout);
    if (o.release) {
        gpu_order(L, b, true, false);
        fence(b, lower_scope_of(op), gpu_owns(L, &layout));
    }
    gpu_touch_global(L, b, lower_accessed(L, op), op, &layout, !loads);
    tn_lbuilder in = *b;
    gpu_open(L, &in, &layout, &n);
    access a = lower_atomic_access(L, &in, op, n.idx, x);
    tn_lvalue *memory = view ? L->buffer[op->view->buffer] : lower_pointed_memory(L, op), *mask = lower_and(&in, gpu_owns(L, &layout), a.exists), *was;
    was = lower_do_atomic(&in, op, memory, a.offset, x, mask);
    if (old) {
        tn_l_store(&in, gpu_registers(old), n.reg, was, NULL);
        if (a.exists)
            tn_l_store(&in, gpu_registers(there), n.reg, a.exists, NULL);
        old->present = a.exists ? there : NULL;
    }
    gpu_close(L, &n);
    if (o.acquire) {
        fence(b, lower_scope_of(op), gpu_owns(L, &layout));
        gpu_order(L, b, false, true);
    }
    if (!old)
        return;
    gpu_spread(L, b, type, old);
    lower_set_place(L, op->result, old);
    if (type->rank == 0)
        lower_scalar(L, b, op->result); /* read once */
}

/* What comes next is an atomic that releases to all who a fence would tell. */
static bool is_released_next(lower *L, const tn_top *op)
{
    while ((op = op->next) && tn_top_traits(op->code) & TN_T_PURE)
        ;
    return op && tn_top_is_atomic(op->code) && lower_scope_of(op) != TN_SCOPE_CTA && lower_order_of(op, lower_is_used(L, op)).release;
}

void gpu_fence(lower *L, tn_lbuilder *b, const tn_top *op)
{
    if (is_released_next(L, op))
        return;
    gpu_order(L, b, true, true);
    tn_l_fence(b, TN_SCOPE_GPU);
}
