/* How long each buffer must keep its contents, in step positions.
 *
 * Let B be the innermost block that holds all uses of a buffer. A use inside a control step of B counts as a use during the whole control
 * step, because the step may run its blocks in any order and more than once. If B is a block of a `while` and the first use there is a read, the
 * value comes from the iteration before: the buffer lives as long as the loop. So what is written and read again inside one iteration shares
 * memory as outside of loops, and what a loop carries does not. */
#include "plan/internal.h"

typedef enum use { USE_READ = 1, USE_WRITE = 2 } use;

typedef struct lifetimes {
    tn_exec *exec;
    int *block;         /* by buffer: the innermost block of all uses so far, -1: none */
    bool *written_first;
    void (*visit)(struct lifetimes *l, int buffer, int step, use how);
} lifetimes;

static const tn_exec_block *block_of(const lifetimes *l, int block) { return &l->exec->blocks.at[block]; }

static int outer(const lifetimes *l, int block)
{
    return l->exec->steps.at[block_of(l, block)->parent].block;
}

static int common_block(const lifetimes *l, int a, int b)
{
    while (a != b) {
        bool a_deeper = block_of(l, a)->depth >= block_of(l, b)->depth;
        if (block_of(l, a_deeper ? a : b)->parent < 0)
            return l->exec->main_block; /* a constant's buffer, used at load and later */
        if (a_deeper)
            a = outer(l, a);
        else
            b = outer(l, b);
    }
    return a;
}

static void find_block(lifetimes *l, int buffer, int step, use how)
{
    int block = l->exec->steps.at[step].block;
    if (l->block[buffer] < 0)
        l->written_first[buffer] = how == USE_WRITE;
    l->block[buffer] = l->block[buffer] < 0 ? block : common_block(l, l->block[buffer], block);
}

static void lengthen(tn_exec_buffer *buffer, int first, int last)
{
    if (buffer->first < 0 || first < buffer->first)
        buffer->first = first;
    if (last > buffer->last)
        buffer->last = last;
}

static void find_extent(lifetimes *l, int buffer, int step, use how)
{
    (void)how;
    tn_exec *exec = l->exec;
    const tn_exec_step *at = &exec->steps.at[step];
    while (at->block != l->block[buffer] && block_of(l, at->block)->parent >= 0)
        at = &exec->steps.at[block_of(l, at->block)->parent];
    lengthen(&exec->buffers[buffer], at->first, at->last);
    int parent = block_of(l, l->block[buffer])->parent;
    if (parent >= 0 && exec->steps.at[parent].step->kind == TN_STEP_WHILE && !l->written_first[buffer])
        lengthen(&exec->buffers[buffer], exec->steps.at[parent].first, exec->steps.at[parent].last);
}

static use argument_use(const tn_step *step, int arg)
{
    if (step->kind == TN_STEP_COPY)
        return arg == 0 ? USE_WRITE : USE_READ;
    if (step->kind != TN_STEP_KERNEL)
        return USE_READ;
    tn_buffer_mode mode = tn_plan_parameter(step->kernel, arg)->mode;
    return mode == TN_WRITE ? USE_WRITE : USE_READ;
}

static void visit_block(lifetimes *l, int block);

static void visit_step(lifetimes *l, int index)
{
    const tn_exec_step *s = &l->exec->steps.at[index];
    const tn_step *step = s->step;
    for (int how = USE_READ; how <= USE_WRITE; how++)
        for (int a = 0; a < step->nargs; a++)
            if (argument_use(step, a) == (use)how)
                l->visit(l, step->args[a], index, (use)how);
    for (int i = 0; i < s->nblocks; i++)
        visit_block(l, s->blocks[i]);
}

static void visit_block(lifetimes *l, int block)
{
    for (int i = 0; i < block_of(l, block)->n; i++)
        visit_step(l, block_of(l, block)->step[i]);
}

static bool may_share(const tn_exec *exec, int buffer)
{
    return exec->buffers[buffer].planned && tn_plan_buffer(exec, buffer)->kind == TN_B_TEMP;
}

/* The output takes the input's memory where the input is used for the last time, is not written again, and has the same size. Whether the
 * sizes are equal is known for certain only by the dimension: equal expressions are one pointer. */
static void share_in_place(tn_exec *exec, const tn_exec_step *s)
{
    for (size_t i = 0; i < s->step->inplace.len; i++) {
        if (!tn_plan_same_place(s->step->kernel, s->step->inplace.at[i].out, s->step->inplace.at[i].in))
            continue;
        int out = s->step->args[s->step->inplace.at[i].out], in = s->step->args[s->step->inplace.at[i].in];
        const tn_pbuffer *to = tn_plan_buffer(exec, out), *from = tn_plan_buffer(exec, in);
        if (out == in || !may_share(exec, out) || !may_share(exec, in) || exec->buffers[out].same_as >= 0)
            continue;
        if (to->elements != from->elements || tn_dtype_bits(to->type.dtype) != tn_dtype_bits(from->type.dtype))
            continue;
        int root = in;
        while (exec->buffers[root].same_as >= 0)
            root = exec->buffers[root].same_as;
        if (exec->buffers[out].group != exec->buffers[root].group || exec->buffers[in].last != s->first || exec->buffers[out].first != s->first ||
            exec->buffers[root].last != s->first)
            continue;
        exec->buffers[out].same_as = root;
        exec->kernels.at[s->kernel].loop->params.at[s->step->inplace.at[i].in]->readonly = false; /* LLVM may not move its loads past the store */
        lengthen(&exec->buffers[root], exec->buffers[out].first, exec->buffers[out].last);
        return; /* one output a step takes one input */
    }
}

void tn_plan_lifetimes(tn_exec *exec)
{
    size_t n = exec->program->buffers.len;
    lifetimes l = {.exec = exec, .visit = find_block};
    l.block = TN_NEW_ARRAY(&exec->session->arena, int, n + 1);
    l.written_first = TN_NEW_ARRAY(&exec->session->arena, bool, n + 1);
    for (size_t b = 0; b < n; b++)
        l.block[b] = -1;
    visit_block(&l, exec->main_block);
    l.visit = find_extent;
    visit_block(&l, exec->main_block);
    for (size_t b = 0; b < n; b++)
        exec->buffers[b].planned = tn_plan_buffer(exec, (int)b)->kind == TN_B_TEMP && !tn_plan_buffer(exec, (int)b)->persistent && l.block[b] >= 0;
    for (size_t i = 0; i < exec->steps.len && !exec->no_reuse; i++)
        if (exec->steps.at[i].step->kind == TN_STEP_KERNEL && !exec->steps.at[i].step->init)
            share_in_place(exec, &exec->steps.at[i]);
}
