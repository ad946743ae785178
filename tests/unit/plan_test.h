/* Programs of copies, built by hand: enough to test what plan and run do without a kernel. */
#ifndef PLAN_TEST_H
#define PLAN_TEST_H

#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "unit.h"

typedef struct fixture {
    tn_session *session;
    tn_graph *graph;
    tn_program program;
} fixture;

static inline void fixture_start(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->session = tn_session_new();
    f->graph = tn_graph_new(f->session, "test");
    f->program.session = f->session;
    f->program.graph = f->graph;
}

static inline void fixture_end(fixture *f) { tn_session_free(f->session); }

static inline int add_buffer(fixture *f, tn_pbuffer_kind kind, tn_dtype dtype, int index, tn_dim size)
{
    tn_pbuffer b = {.kind = kind, .type = tn_type_make(dtype, 1, &size), .elements = size, .index = index};
    TN_PUSH(&f->session->arena, &f->program.buffers, b);
    return (int)f->program.buffers.len - 1;
}

static inline int add_input(fixture *f, tn_dtype dtype, tn_dim size)
{
    tn_type type = tn_type_make(dtype, 1, &size);
    tn_graph_input(f->graph, NULL, &type);
    return add_buffer(f, TN_B_INPUT, dtype, f->graph->body->nargs - 1, size);
}

static inline int add_temp(fixture *f, tn_dtype dtype, tn_dim size) { return add_buffer(f, TN_B_TEMP, dtype, 0, size); }

/* The outputs' types are those of inputs: the graph itself is never run. */
static inline void set_outputs(fixture *f, int n, const int *inputs)
{
    tn_value *values[64];
    for (int i = 0; i < n; i++)
        values[i] = f->graph->body->arg[inputs[i]];
    tn_builder b = tn_builder_at_end(f->graph->body, TN_NO_LOC);
    tn_return(&b, values, n);
}

static inline tn_step *add_step(fixture *f, tn_steps *to, tn_step_kind kind, int nargs, const int *args)
{
    tn_step *s = TN_NEW(&f->session->arena, tn_step);
    s->kind = kind;
    s->nargs = nargs;
    s->args = tn_memdup(&f->session->arena, args, sizeof *args * (size_t)nargs);
    TN_PUSH(&f->session->arena, &to->list, s);
    return s;
}

static inline void add_copy(fixture *f, tn_steps *to, int destination, int source)
{
    add_step(f, to, TN_STEP_COPY, 2, (int[]){destination, source});
}

static inline tn_exec *make_exec(fixture *f, bool no_reuse)
{
    tn_exec_options options = {.machine = tn_machine_find("baseline"), .threads = 1, .no_reuse = no_reuse};
    tn_exec *exec = NULL;
    tn_status status = tn_exec_new(f->session, &f->program, &options, &exec);
    if (status != TN_OK)
        tn_print_diags(f->session, stderr);
    assert_int_equal(status, TN_OK);
    return exec;
}

static inline DLTensor vector(tn_dtype dtype, void *data, int64_t *size)
{
    return (DLTensor){.data = data, .device = {1, 0}, .ndim = 1, .dtype = tn_dtype_to_dlpack(dtype), .shape = size};
}

#endif
