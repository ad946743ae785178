/* Compiled code against the reference, value by value. The reference runs a graph that returns every value. The compiled graph has every value as an
 * input as well: each operation works on the reference's operands, so that a difference is its own and not its producers'. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

typedef struct checker {
    tn_session *session;
    const tn_network *network;
    tn_compile_options options;
    const DLTensor *inputs;
    size_t ninputs;
    tn_arena arena;    /* the reference's results */
    tn_graph *graph;   /* returns every value */
    tn_graph *apart;   /* the same, each operation on operands that are inputs */
    int nvalues;
    tn_tensor **expected;
    DLTensor *found;
    tn_executable *executable;
    tn_context *context;
} checker;

/* ---- comparison ------------------------------------------------------------------------------------------------------------- */

static const char *number_text(tn_session *session, tn_dtype dtype, tn_number value)
{
    tn_text text = {.arena = &session->arena};
    tn_text_number(&text, dtype, value);
    return text.at;
}

static const char *shape_text(tn_session *session, int rank, const int64_t *dims)
{
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "[");
    for (int d = 0; d < rank; d++)
        tn_text_add(&text, "%s%lld", d ? ", " : "", (long long)dims[d]);
    tn_text_add(&text, "]");
    return text.at;
}

static tn_loc value_loc(const tn_value *value) { return value->def ? value->def->loc : TN_NO_LOC; }

static const char *value_text(tn_session *session, const tn_value *value)
{
    return tn_format(&session->arena, "%s%s%s", value->def ? tn_op_name(value->def->code) : "input", value->name ? " " : "", value->name ? value->name : "");
}

/* expected: written out, known_inputs sees to that. */
static tn_status compare_tensors(checker *c, const tn_value *value, const tn_tensor *expected, const DLTensor *found, double slack, const char *when)
{
    int64_t n = 0;
    const char *what = value_text(c->session, value);
    if (expected->rank != found->ndim || memcmp(expected->dim, found->shape, sizeof(int64_t) * (size_t)found->ndim) != 0)
        return tn_error(c->session, TN_MISMATCH, value_loc(value), "%s%s: expected shape %s, found %s", what, when, shape_text(c->session, expected->rank, expected->dim),
                        shape_text(c->session, found->ndim, found->shape));
    tn_tensor_count(expected, &n);
    int64_t first, wrong = tn_differences(expected->dtype, expected->data, found->data, n, slack, &first);
    if (!wrong)
        return TN_OK;
    return tn_error(c->session, TN_MISMATCH, value_loc(value), "%s%s: element %lld of %s: expected %s, found %s; %lld of %lld elements differ", what, when,
                    (long long)first, shape_text(c->session, expected->rank, expected->dim), number_text(c->session, expected->dtype, tn_tensor_at(expected, first)),
                    number_text(c->session, expected->dtype, tn_number_load(expected->dtype, found->data, first)), (long long)wrong, (long long)n);
}

/* ---- the graph that returns everything ---------------------------------------------------------------------------------------- */

static bool is_interesting(const tn_op *op)
{
    return op->code != TN_OP_constant && !(tn_op_traits(op->code) & TN_TERMINATOR);
}

static void end_graph(tn_graph *graph, tn_value *const *values, int n, tn_loc loc)
{
    tn_builder b = tn_builder_at_end(graph->body, loc);
    tn_return(&b, values, n);
    graph->output_names = NULL;
}

static void return_everything(checker *c)
{
    tn_graph *graph = tn_graph_clone(c->session, c->network->graph);
    TN_VEC(tn_value *) values = {0};
    for (tn_op *op = graph->body->first; op; op = op->next)
        for (int i = 0; i < op->nresults && is_interesting(op); i++)
            TN_PUSH(&c->session->arena, &values, &op->result[i]);
    tn_loc loc = graph->body->last->loc;
    tn_erase(graph->body->last);
    end_graph(graph, values.at, (int)values.len, loc);
    c->graph = graph;
    c->nvalues = (int)values.len;
}

/* Constants stay constants: what lowers only with them is checked with them. */
static void take_apart(checker *c)
{
    const tn_graph *graph = c->graph;
    tn_graph *apart = tn_graph_new(c->session, graph->name);
    tn_map values = {.arena = &c->session->arena};
    TN_VEC(tn_value *) results = {0};
    for (int i = 0; i < graph->body->nargs; i++)
        *tn_map_at(&values, TN_KEY(graph->body->arg[i])) = tn_graph_input(apart, graph->body->arg[i]->name, &graph->body->arg[i]->type);
    for (const tn_op *op = graph->body->first; op != graph->body->last; op = op->next) {
        tn_builder b = tn_builder_at_end(apart->body, op->loc);
        tn_op *copy = tn_clone(&b, op, &values);
        for (int r = 0; r < op->nresults && is_interesting(op); r++) {
            TN_PUSH(&c->session->arena, &results, &copy->result[r]);
            *tn_map_at(&values, TN_KEY(&op->result[r])) = tn_graph_input(apart, NULL, &op->result[r].type);
        }
    }
    end_graph(apart, results.at, (int)results.len, graph->body->last->loc);
    c->apart = apart;
}

static tn_status find_expected(checker *c)
{
    tn_tensor *inputs = TN_NEW_ARRAY(&c->session->arena, tn_tensor, c->ninputs + 1);
    const tn_tensor **pointers = TN_NEW_ARRAY(&c->session->arena, const tn_tensor *, c->ninputs + 1);
    c->expected = TN_NEW_ARRAY(&c->session->arena, tn_tensor *, (size_t)c->nvalues + 1);
    c->arena.on_oom = c->session->arena.on_oom;
    for (size_t i = 0; i < c->ninputs; i++) {
        TN_TRY(tn_api_tensor(c->session, &c->arena, &c->inputs[i], tn_format(&c->session->arena, "input %zu", i), &inputs[i]));
        pointers[i] = &inputs[i];
    }
    tn_eval_options options = {0};
    return tn_eval_graph(c->session, &c->arena, c->graph, pointers, c->expected, &options);
}

static void drop_run(checker *c)
{
    for (int i = 0; c->found && i < c->nvalues; i++)
        tn_tensor_free(&c->found[i]);
    tn_context_free(c->context);
    tn_executable_free(c->executable);
    c->context = NULL;
    c->executable = NULL;
    c->found = NULL;
}

static tn_status run_compiled(checker *c, tn_graph *graph, const char *passes, const DLTensor *inputs, size_t noutputs)
{
    tn_compile_options options = c->options;
    options.passes = passes;
    c->found = TN_NEW_ARRAY(&c->session->arena, DLTensor, (size_t)c->nvalues + noutputs + 1);
    TN_TRY(tn_api_compile(c->session, graph, &options, &c->executable));
    TN_TRY(tn_context_new(c->executable, &c->context));
    tn_status status = tn_run(c->context, inputs, (size_t)graph->body->nargs, c->found, noutputs);
    return status == TN_OK ? TN_OK : tn_error(c->session, status, TN_NO_LOC, "%s", tn_context_error(c->context));
}

/* The caller's inputs, then the reference's results, all elements of them written out. */
static tn_status known_inputs(checker *c, DLTensor **out)
{
    DLTensor *inputs = TN_NEW_ARRAY(&c->session->arena, DLTensor, c->ninputs + (size_t)c->nvalues + 1);
    if (c->ninputs)
        memcpy(inputs, c->inputs, sizeof *inputs * c->ninputs);
    for (int i = 0; i < c->nvalues; i++) {
        tn_tensor *t = c->expected[i];
        int64_t n = 0;
        size_t bytes = 0;
        tn_tensor_count(t, &n);
        tn_dtype_bytes(t->dtype, n, &bytes);
        if (t->splat) {
            void *whole = tn_alloc_aligned(&c->arena, bytes, TN_ALIGN);
            for (int64_t k = 0; k < n; k++)
                tn_number_store(t->dtype, whole, k, tn_tensor_at(t, 0));
            t->data = whole;
            t->splat = false;
        }
        inputs[c->ninputs + (size_t)i] = (DLTensor){.data = (void *)(uintptr_t)t->data, .device = {1, 0}, .ndim = t->rank,
                                                    .dtype = tn_dtype_to_dlpack(t->dtype), .shape = t->dim};
    }
    *out = inputs;
    return TN_OK;
}

static tn_status check_values(checker *c)
{
    DLTensor *inputs;
    take_apart(c);
    TN_TRY(known_inputs(c, &inputs));
    TN_TRY(run_compiled(c, c->apart, "canonicalize,-fuse", inputs, (size_t)c->nvalues));
    for (int i = 0; i < c->nvalues; i++)
        TN_TRY(compare_tensors(c, tn_operand(c->graph->body->last, i), c->expected[i], &c->found[i], 1, ""));
    return TN_OK;
}

/* As it is compiled for use. Outputs are among the values, found by their place in the clone. Rounding errors of a whole network add up. */
static tn_status check_outputs(checker *c)
{
    const tn_op *all = c->graph->body->last, *returned = c->network->graph->body->last;
    tn_graph *copy = tn_graph_clone(c->session, c->network->graph);
    TN_TRY(run_compiled(c, copy, c->options.passes, c->inputs, (size_t)returned->noperands));
    int value = 0;
    for (const tn_op *op = c->network->graph->body->first; op; op = op->next)
        for (int r = 0; r < op->nresults && is_interesting(op); r++, value++)
            for (int o = 0; o < returned->noperands; o++)
                if (tn_operand(returned, o) == &op->result[r])
                    TN_TRY(compare_tensors(c, tn_operand(all, value), c->expected[value], &c->found[o], TN_WHOLE, " (as part of the whole network)"));
    return TN_OK;
}

static tn_status check(void *argument)
{
    checker *c = argument;
    return_everything(c);
    TN_TRY(find_expected(c));
    TN_TRY(check_values(c));
    drop_run(c);
    return check_outputs(c);
}

tn_status tn_check(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs)
{
    if (!session || !network || (!inputs && ninputs))
        return TN_USAGE;
    if (ninputs != tn_input_count(network))
        return tn_error(session, TN_USAGE, TN_NO_LOC, "expected %zu inputs, found %zu", tn_input_count(network), ninputs);
    checker c = {.session = session, .network = network, .inputs = inputs, .ninputs = ninputs};
    if (options)
        c.options = *options;
    tn_status status = tn_api_guard(session, check, &c);
    drop_run(&c);
    tn_arena_free(&c.arena);
    return status;
}
