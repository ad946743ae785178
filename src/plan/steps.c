/* The program's steps in one array, in run order, with what each needs to know before it starts. */
#include <string.h>

#include "plan/internal.h"

int tn_plan_slot(tn_exec *exec, tn_dim symbol)
{
    void **cell = tn_map_at(&exec->slots, TN_KEY(symbol->name));
    if (!*cell) {
        TN_PUSH(&exec->session->arena, &exec->symbols, ((tn_exec_symbol){symbol, 0}));
        *cell = (void *)exec->symbols.len;
    }
    return (int)(uintptr_t)*cell - 1;
}

typedef struct flattening {
    tn_exec *exec;
    int position;
    int group;      /* of the dimension being looked at */
} flattening;

static void take_slot(void *context, tn_dim symbol)
{
    flattening *f = context;
    int slot = tn_plan_slot(f->exec, symbol);
    int group = f->exec->symbols.at[slot].group;
    if (group > f->group)
        f->group = group;
}

/* The group after which a dimension is known. */
static int dim_group(flattening *f, tn_dim dim)
{
    f->group = 0;
    if (dim)
        tn_dim_symbols(dim, take_slot, f);
    return f->group;
}

static int add_block(flattening *f, const tn_steps *steps, bool init, int parent, int depth);

static void add_blocks(flattening *f, int index, int depth)
{
    tn_exec *exec = f->exec;
    const tn_step *step = exec->steps.at[index].step;
    int *blocks = TN_NEW_ARRAY(&exec->session->arena, int, (size_t)step->nblocks + 1);
    for (int i = 0; i < step->nblocks; i++)
        blocks[i] = add_block(f, &step->blocks[i], step->init, index, depth + 1);
    exec->steps.at[index].blocks = blocks;
    exec->steps.at[index].nblocks = step->nblocks;
}

/* Names of the nodes, each once, in order. */
static void add_node(tn_text *text, tn_map *seen, const char *node)
{
    if (!node || tn_map_get_str(seen, node))
        return;
    *tn_map_at_str(seen, node) = (void *)1;
    tn_text_add(text, "%s%s", text->len ? "," : "", node);
}

static const char *node_names(const tn_program *program, const tn_step *step)
{
    tn_text text = {.arena = &program->session->arena};
    tn_map seen = {.arena = &program->session->arena};
    tn_text_put(&text, "", 0);
    for (size_t i = 0; i < step->ops.len; i++) {
        const tn_nodes *more = tn_map_get(&program->stands_for, TN_KEY(step->ops.at[i]));
        add_node(&text, &seen, step->ops.at[i]->loc.node);
        for (size_t k = 0; more && k < more->list.len; k++)
            add_node(&text, &seen, more->list.at[k]);
    }
    return text.at ? text.at : "";
}

static int add_step(flattening *f, const tn_step *step, int block, int depth)
{
    tn_exec *exec = f->exec;
    int index = (int)exec->steps.len;
    tn_exec_step s = {.step = step, .kernel = -1, .slot = -1, .block = block, .first = f->position++};
    if (step->kind == TN_STEP_KERNEL) {
        s.name = step->kernel->name;
        s.nodes = node_names(exec->program, step);
        exec->kernel_steps += !step->init;
    }
    if (step->kind == TN_STEP_DEFINE) {
        s.slot = tn_plan_slot(exec, step->dim);
        s.group = dim_group(f, step->upper);
        s.defines = exec->ngroups++;
        exec->symbols.at[s.slot].group = s.defines;
    }
    TN_PUSH(&exec->session->arena, &exec->steps, s);
    if (step->nblocks)
        add_blocks(f, index, depth);
    exec->steps.at[index].last = step->nblocks ? f->position++ : exec->steps.at[index].first;
    return index;
}

static int add_block(flattening *f, const tn_steps *steps, bool init, int parent, int depth)
{
    tn_exec *exec = f->exec;
    int index = (int)exec->blocks.len, n = 0;
    TN_PUSH(&exec->session->arena, &exec->blocks, ((tn_exec_block){.parent = parent, .depth = depth}));
    int *list = TN_NEW_ARRAY(&exec->session->arena, int, steps->list.len + 1);
    for (size_t i = 0; i < steps->list.len; i++)
        if (depth > 0 || steps->list.at[i]->init == init)
            list[n++] = add_step(f, steps->list.at[i], index, depth);
    exec->blocks.at[index].step = list;
    exec->blocks.at[index].n = n;
    return index;
}

/* Symbols of the graph's inputs first, in order: slots are then the same for every compile. Those that only a fact of the graph names get none: nothing
 * defines them any more, so nothing depends on the fact. */
static void take_graph_symbols(flattening *f)
{
    const tn_graph *graph = f->exec->program->graph;
    for (int i = 0; i < graph->body->nargs; i++)
        for (int d = 0; d < graph->body->arg[i]->type.rank; d++)
            dim_group(f, graph->body->arg[i]->type.dim[d]);
}

static int kernel_group(flattening *f, const tn_kernel *kernel)
{
    int group = 0;
    for (size_t i = 0; i < kernel->grid.len; i++) {
        int one = dim_group(f, kernel->grid.at[i].limit);
        group = one > group ? one : group;
    }
    return group;
}

/* What a step's sizes depend on: its grid, its buffers. */
static void find_groups(flattening *f)
{
    tn_exec *exec = f->exec;
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        const tn_pbuffer *buffer = &exec->program->buffers.at[b];
        /* By its dimensions, not by their product alone: 0 * n is known before n, but an output tells its shape. */
        int group = dim_group(f, buffer->elements);
        for (int d = 0; d < buffer->type.rank; d++)
            group = (int)tn_max(group, dim_group(f, buffer->type.dim[d]));
        exec->buffers[b].group = group;
    }
    for (size_t i = 0; i < exec->steps.len; i++) {
        tn_exec_step *step = &exec->steps.at[i];
        if (step->step->kind == TN_STEP_KERNEL)
            step->group = kernel_group(f, step->step->kernel);
        for (int a = 0; a < step->step->nargs && step->step->kind != TN_STEP_DEFINE; a++) {
            int group = exec->buffers[step->step->args[a]].group;
            if (step->step->offset && step->step->offset[a])
                group = (int)tn_max(group, dim_group(f, step->step->offset[a]));
            step->group = group > step->group ? group : step->group;
        }
    }
}

static void find_ends(tn_exec *exec)
{
    const tn_graph *graph = exec->program->graph;
    tn_arena *arena = &exec->session->arena;
    exec->ninputs = graph->body->nargs;
    exec->noutputs = graph->body->last ? graph->body->last->noperands : 0;
    exec->input = TN_NEW_ARRAY(arena, int, (size_t)exec->ninputs + 1);
    exec->output = TN_NEW_ARRAY(arena, int, (size_t)exec->noutputs + 1);
    memset(exec->input, -1, sizeof(int) * (size_t)exec->ninputs);
    memset(exec->output, -1, sizeof(int) * (size_t)exec->noutputs);
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        const tn_pbuffer *buffer = &exec->program->buffers.at[b];
        if (buffer->kind == TN_B_INPUT)
            exec->input[buffer->index] = (int)b;
        if (buffer->kind == TN_B_OUTPUT)
            exec->output[buffer->index] = (int)b;
    }
}

tn_status tn_plan_steps(tn_exec *exec)
{
    flattening f = {.exec = exec};
    size_t nbuffers = exec->program->buffers.len;
    exec->ngroups = 1;
    exec->buffers = TN_NEW_ARRAY(&exec->session->arena, tn_exec_buffer, nbuffers + 1);
    for (size_t b = 0; b < nbuffers; b++)
        exec->buffers[b] = (tn_exec_buffer){.same_as = -1, .first = -1, .last = -1};
    take_graph_symbols(&f);
    exec->main_block = add_block(&f, &exec->program->steps, false, -1, 0);
    exec->init_block = add_block(&f, &exec->program->steps, true, -1, 0);
    exec->positions = f.position;
    find_groups(&f);
    find_ends(exec);
    return TN_OK;
}
