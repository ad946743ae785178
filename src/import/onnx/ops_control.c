/* If, Loop, Scan. A constant condition or a tiny trip count needs no control flow in the graph; the rest becomes `if`
 * and `while`. A `while` carries: i (i64, trips done), the condition (Loop), the loop's variables, and one buffer for
 * each scan output, into which trip i writes its element. */
#include <string.h>

#include "import/onnx/emit.h"

static tn_dim num(onnx_ctx *c, int64_t value)
{
    return tn_dim_const(c->session, value);
}

static tn_value *scalar(onnx_ctx *c, tn_value *v)
{
    return v && v->type.rank ? tn_reshape(&c->b, v, NULL, 0) : v;
}

static bool constant_truth(onnx_ctx *c, const tn_value *v, bool *out)
{
    double number;
    if (!onnx_constant_number(c, v, &number))
        return false;
    *out = number != 0;
    return true;
}

static tn_value **new_values(onnx_ctx *c, size_t count)
{
    return TN_NEW_ARRAY(&c->session->arena, tn_value *, count + 1);
}

/* ---- If
 * --------------------------------------------------------------------------------------------------------------------------
 */

/* Of the first output that cannot come from either branch: what is wrong; NULL: there is none. */
static const char *difference(onnx_ctx *c, tn_value *const *x, tn_value *const *y, size_t count, size_t *output)
{
    for (*output = 0; *output < count; ++*output) {
        if (onnx_is_sequence(c, x[*output]) || onnx_is_sequence(c, y[*output]))
            return "is a sequence";
        const tn_type *s = &x[*output]->type, *t = &y[*output]->type;
        bool same = s->dtype == t->dtype && s->rank == t->rank;
        for (int j = 0; same && j < s->rank; j++)
            same = tn_dim_eq(c->session, s->dim[j], t->dim[j]);
        if (!same)
            return "has different shapes or types in the branches";
    }
    return NULL;
}

/* The size that a scalar is, through what changes only its shape or type; NULL: none. */
static tn_dim size_of(onnx_ctx *c, const tn_value *v)
{
    tn_dim dims[ONNX_MAX_KNOWN];
    int count;
    while (v && !onnx_known_dims(c, v, dims, &count)) {
        bool wide = v->type.dtype == TN_I32 || v->type.dtype == TN_I64;
        bool moves = v->def && (v->def->code == TN_OP_reshape || v->def->code == TN_OP_broadcast_in_dim || (v->def->code == TN_OP_convert && wide));
        v = moves ? v->def->operand[0].value : NULL;
    }
    return v && count == 1 ? dims[0] : NULL;
}

/* Whether the condition asks if a size is a certain number: *dim, *size, and what the condition is for all other sizes. */
static bool asks_size(onnx_ctx *c, const tn_value *condition, tn_dim *dim, int64_t *size, bool *otherwise)
{
    *otherwise = false;
    for (const tn_op *op; condition && (op = condition->def); condition = op->operand[0].value) {
        if (op->code == TN_OP_compare) {
            const char *direction = tn_find_attr(op, TN_A_direction)->s;
            tn_dim x = size_of(c, op->operand[0].value), y = size_of(c, op->operand[1].value);
            if (!x || !y || tn_dim_is_const(x) == tn_dim_is_const(y) || (strcmp(direction, "EQ") && strcmp(direction, "NE")))
                return false;
            *otherwise ^= !strcmp(direction, "NE");
            *dim = tn_dim_is_const(x) ? y : x;
            *size = tn_dim_is_const(x) ? x->value : y->value;
            return true;
        }
        if (op->code != TN_OP_reshape && op->code != TN_OP_not)
            return false;
        *otherwise ^= op->code == TN_OP_not;
    }
    return false;
}

static bool taken_branch(onnx_ctx *c, const onnx_node *n, const onnx_graph *taken);

static bool branch(onnx_ctx *c, const onnx_node *n, const onnx_graph *graph, tn_block **block, tn_value ***outputs)
{
    *block = tn_block_new(c->b.graph, NULL);
    *outputs = new_values(c, graph->output.len);
    return onnx_subgraph(c, n, graph, *block, NULL, 0, *outputs);
}

static void finish(onnx_ctx *c, tn_block *block, tn_value *const *values, size_t count)
{
    tn_builder b = tn_builder_at_end(block, c->b.loc);
    tn_return(&b, values, (int)count);
}

static bool run_time_if(onnx_ctx *c, const onnx_node *n, tn_value *condition, const onnx_graph *yes,
                        const onnx_graph *no)
{
    tn_block *blocks[2];
    tn_value **x, **y;
    size_t output, facts = c->b.graph->equal.len;
    if (!branch(c, n, yes, &blocks[0], &x) || !branch(c, n, no, &blocks[1], &y))
        return false;
    const char *wrong = difference(c, x, y, yes->output.len, &output);
    tn_dim dim;
    int64_t size;
    bool otherwise;
    if (wrong && asks_size(c, condition, &dim, &size, &otherwise)) {
        c->b.graph->equal.len = facts; /* the branches' own: one is read anew */
        onnx_assume_not(c, n, dim, size, "the other branch, whose results have other shapes, would be taken");
        return taken_branch(c, n, otherwise ? yes : no);
    }
    if (wrong)
        return onnx_unsupported(c, n, "output %zu %s, and the condition is known only at run time", output, wrong);
    finish(c, blocks[0], x, yes->output.len);
    finish(c, blocks[1], y, no->output.len);
    tn_op *op = tn_build(&c->b, TN_OP_if, &condition, 1, NULL, 0, blocks, 2);
    for (int i = 0; op && i < op->nresults; i++)
        onnx_set_output(c, n, i, &op->result[i]);
    return op != NULL;
}

bool onnx_If(onnx_ctx *c, const onnx_node *n)
{
    const onnx_graph *yes = onnx_attr_graph(c, n, "then_branch"), *no = onnx_attr_graph(c, n, "else_branch");
    bool truth;
    if (!yes || !no || yes->output.len != no->output.len || yes->output.len < (size_t)n->noutputs)
        return onnx_error(c, n, "needs a then_branch and an else_branch with the node's number of outputs");
    if (n->input[0]->type.dtype != TN_BOOL)
        return onnx_error(c, n, "the condition must be bool");
    if (!constant_truth(c, n->input[0], &truth))
        return run_time_if(c, n, scalar(c, n->input[0]), yes, no);
    return taken_branch(c, n, truth ? yes : no);
}

static bool taken_branch(onnx_ctx *c, const onnx_node *n, const onnx_graph *taken)
{
    tn_value **outputs = new_values(c, taken->output.len);
    if (!onnx_subgraph(c, n, taken, c->b.block, NULL, 0, outputs))
        return false;
    for (size_t i = 0; i < taken->output.len; i++)
        onnx_set_output(c, n, (int)i, outputs[i]);
    return true;
}

/* ---- what Loop and Scan share
 * ------------------------------------------------------------------------------------------------------ */

typedef struct loop {
    const onnx_node *n;
    const onnx_graph *body;
    int nvars, nscans; /* loop variables; scan outputs */
    tn_value **init;   /* nvars */
    tn_dim trips;      /* elements of a scan output; NULL: no bound */
    tn_block *block;
    tn_value *i;        /* argument of block: trips done */
    tn_value **vars;    /* arguments of block */
    tn_value **outputs; /* of the body */
} loop;

/* Buffers of the scan outputs: before the loop, and as arguments of the body. */
typedef struct loop_scan {
    tn_value **init, **arg;
} loop_scan;

/* A body's result as the next value of a loop variable: the type may not change from trip to trip. */
static tn_value *carried(onnx_ctx *c, const loop *l, tn_value *next, const tn_type *type, int index)
{
    if (next->type.dtype != type->dtype || next->type.rank != type->rank) {
        onnx_unsupported(c, l->n, "loop variable %d changes its type or rank from one trip to the next", index);
        return NULL;
    }
    for (int i = 0; i < type->rank; i++)
        if (tn_dim_ne(c->session, next->type.dim[i], type->dim[i])) {
            onnx_unsupported(c, l->n, "loop variable %d changes its shape from one trip to the next", index);
            return NULL;
        }
    return tn_reshape(&c->b, next, type->dim, type->rank);
}

/* Axis of a scan input or output; positions for dynamic_slice and dynamic_update_slice: 0 but for `at` on the axis. */
static void starts(onnx_ctx *c, int rank, int axis, tn_value *at, tn_value **out)
{
    for (int i = 0; i < rank; i++)
        out[i] = i == axis ? at : onnx_int(c, TN_I64, 0);
}

/* Element `at` of x along axis, which vanishes. */
static tn_value *element(onnx_ctx *c, tn_value *x, int axis, tn_value *at)
{
    tn_value *operands[1 + TN_MAX_RANK] = {x};
    tn_dim sizes[TN_MAX_RANK], dims[TN_MAX_RANK];
    for (int i = 0, j = 0; i < x->type.rank; i++) {
        sizes[i] = i == axis ? num(c, 1) : x->type.dim[i];
        if (i != axis)
            dims[j++] = x->type.dim[i];
    }
    starts(c, x->type.rank, axis, at, operands + 1);
    tn_attr attr = {.name = TN_A_sizes, .n = x->type.rank, .dims = sizes};
    tn_op *op = tn_build(&c->b, TN_OP_dynamic_slice, operands, 1 + x->type.rank, &attr, 1, NULL, 0);
    return op ? tn_reshape(&c->b, &op->result[0], dims, x->type.rank - 1) : NULL;
}

static void element_dims(onnx_ctx *c, const tn_type *t, int axis, tn_dim size, tn_dim *out)
{
    (void)c;
    for (int i = 0, j = 0; i < t->rank + 1; i++)
        out[i] = i == axis ? size : t->dim[j++];
}

/* buffer with x as its element `at` along axis. */
static tn_value *put_element(onnx_ctx *c, tn_value *buffer, tn_value *x, int axis, tn_value *at)
{
    tn_dim dims[TN_MAX_RANK];
    tn_value *operands[2 + TN_MAX_RANK] = {buffer};
    element_dims(c, &x->type, axis, num(c, 1), dims);
    operands[1] = tn_reshape(&c->b, x, dims, x->type.rank + 1);
    starts(c, x->type.rank + 1, axis, at, operands + 2);
    if (!operands[1])
        return NULL;
    tn_op *op = tn_build(&c->b, TN_OP_dynamic_update_slice, operands, 3 + x->type.rank, NULL, 0, NULL, 0);
    return op ? &op->result[0] : NULL;
}

/* Rows of a scan output's buffer: one at least, since the body writes a row wherever it stands, even if no trip runs. */
static tn_dim buffer_rows(onnx_ctx *c, const loop *l)
{
    return tn_dim_max(c->session, l->trips, num(c, 1));
}

/* An empty buffer for a scan output with elements of type t. */
static tn_value *new_buffer(onnx_ctx *c, const loop *l, const tn_type *t, int axis)
{
    tn_dim dims[TN_MAX_RANK];
    if (t->rank + 1 > TN_MAX_RANK || !l->trips) {
        onnx_unsupported(c, l->n, "a scan output needs a known bound of the trips, and at most %d dimensions",
                         TN_MAX_RANK);
        return NULL;
    }
    element_dims(c, t, axis, buffer_rows(c, l), dims);
    return emit_fill(c, emit_number(c, t->dtype, 0), dims, t->rank + 1);
}

/* Types of scan outputs must not depend on what is known only inside the body. */
static bool scan_output_ok(onnx_ctx *c, const loop *l, int axis, const tn_value *v)
{
    return axis <= v->type.rank ||
           onnx_error(c, l->n, "scan output axis %d for elements of rank %d", axis, v->type.rank);
}

static tn_value *plus_one(onnx_ctx *c, tn_value *i)
{
    return emit_add(c, i, onnx_int(c, TN_I64, 1));
}

/* ---- Loop
 * --------------------------------------------------------------------------------------------------------------------------
 */

static bool loop_shape(onnx_ctx *c, const onnx_node *n, loop *l)
{
    l->n = n;
    l->body = onnx_attr_graph(c, n, "body");
    l->nvars = n->ninputs > 2 ? n->ninputs - 2 : 0;
    if (!l->body)
        return onnx_error(c, n, "the body is missing");
    l->nscans = (int)l->body->output.len - 1 - l->nvars;
    if (l->nscans < 0 || (int)l->body->input.len != 2 + l->nvars || n->noutputs > l->nvars + l->nscans)
        return onnx_error(c, n, "a body with %zu inputs and %zu outputs does not fit %d loop variables and %d outputs",
                          l->body->input.len, l->body->output.len, l->nvars, n->noutputs);
    l->init = n->input + 2;
    for (int i = 0; i < l->nvars; i++)
        if (!l->init[i])
            return onnx_error(c, n, "loop variable %d has no initial value", i);
    l->outputs = new_values(c, l->body->output.len);
    l->vars = new_values(c, (size_t)l->nvars + 2);
    return true;
}

static bool collect_scan(onnx_ctx *c, const loop *l, tn_value **parts, int count, int k)
{
    tn_dim dims[TN_MAX_RANK];
    for (int i = 0; i < count; i++) {
        if (parts[i]->type.rank + 1 > TN_MAX_RANK || onnx_is_sequence(c, parts[i]))
            return onnx_unsupported(c, l->n, "scan output %d is a sequence or has rank %d", k, parts[i]->type.rank);
        element_dims(c, &parts[i]->type, 0, num(c, 1), dims);
        parts[i] = tn_reshape(&c->b, parts[i], dims, parts[i]->type.rank + 1);
    }
    return onnx_set_output(c, l->n, l->nvars + k, count == 1 ? parts[0] : tn_concatenate(&c->b, parts, count, 0));
}

enum { UNROLL_TRIPS = 32, UNROLL_NODES = 512 };

/* Trip by trip, as long as the condition stays constant. *done: it did; else the caller builds a loop. */
static bool unroll(onnx_ctx *c, loop *l, int64_t trips, bool *done)
{
    tn_value **args = new_values(c, (size_t)l->nvars + 2), **parts = new_values(c, (size_t)l->nscans * UNROLL_TRIPS);
    int count = 0;
    bool more = true;
    *done = false;
    memcpy(args + 2, l->init, (size_t)l->nvars * sizeof *args);
    args[1] = tn_constant(&c->b, tn_tensor_splat(c->session, TN_BOOL, 0, NULL, (tn_number){.u = 1}));
    for (; more && count < trips; count++) {
        args[0] = onnx_int(c, TN_I64, count);
        if (!onnx_subgraph(c, l->n, l->body, c->b.block, args, l->nvars + 2, l->outputs))
            return false;
        if (!constant_truth(c, l->outputs[0], &more))
            return true;
        memcpy(args + 2, l->outputs + 1, (size_t)l->nvars * sizeof *args);
        args[1] = l->outputs[0];
        for (int k = 0; k < l->nscans; k++)
            parts[k * UNROLL_TRIPS + count] = l->outputs[1 + l->nvars + k];
    }
    *done = true;
    for (int i = 0; i < l->nvars; i++)
        onnx_set_output(c, l->n, i, args[2 + i]);
    for (int k = 0; k < l->nscans; k++)
        if (!collect_scan(c, l, parts + k * UNROLL_TRIPS, count, k))
            return false;
    return true;
}

/* Gives the trip number a symbol, so that x[i:i + 1] has a static size; it is swept if nobody asks. */
static bool name_trip(onnx_ctx *c, loop *l)
{
    tn_builder outside = c->b;
    tn_dim symbol;
    c->b = tn_builder_at_end(l->block, l->n->loc);
    bool ok = onnx_runtime_dims(c, l->n, l->i, 1, NULL, &symbol);
    c->b = outside;
    return ok;
}

/* The body: arguments i, condition, variables, then the buffers, whose types the body's own results give. */
static bool loop_body(onnx_ctx *c, loop *l, loop_scan *scan, bool *endless)
{
    tn_type i64 = tn_type_scalar(TN_I64), truth = tn_type_scalar(TN_BOOL);
    bool again;
    l->block = tn_block_new(c->b.graph, NULL);
    l->vars[0] = l->i = tn_block_arg(l->block, &i64, NULL);
    l->vars[1] = tn_block_arg(l->block, &truth, NULL);
    for (int i = 0; i < l->nvars; i++)
        l->vars[2 + i] = tn_block_arg(l->block, &l->init[i]->type, NULL);
    if (!name_trip(c, l) || !onnx_subgraph(c, l->n, l->body, l->block, l->vars, l->nvars + 2, l->outputs))
        return false;
    for (size_t i = 0; i < l->body->output.len; i++)
        if (onnx_is_sequence(c, l->outputs[i]))
            return onnx_unsupported(
                c, l->n, "the body's output %zu is a sequence, and the number of trips is not a small constant", i);
    *endless = l->outputs[0] == l->vars[1] || (constant_truth(c, l->outputs[0], &again) && again);
    for (int k = 0; k < l->nscans; k++) {
        tn_value *element = l->outputs[1 + l->nvars + k];
        scan->init[k] = new_buffer(c, l, &element->type, 0);
        if (!scan->init[k])
            return false;
        scan->arg[k] = tn_block_arg(l->block, &scan->init[k]->type, NULL);
    }
    return true;
}

/* Ends the body's block: i + 1, the condition, the next variables and buffers. */
static bool loop_body_end(onnx_ctx *c, loop *l, loop_scan *scan)
{
    tn_builder outside = c->b;
    tn_value **results = new_values(c, (size_t)(2 + l->nvars + l->nscans));
    c->b = tn_builder_at_end(l->block, l->n->loc);
    results[0] = plus_one(c, l->i);
    results[1] = scalar(c, l->outputs[0]);
    bool ok = results[0] && results[1];
    for (int i = 0; ok && i < l->nvars; i++)
        ok = (results[2 + i] = carried(c, l, l->outputs[1 + i], &l->init[i]->type, i)) != NULL;
    for (int k = 0; ok && k < l->nscans; k++)
        ok = (results[2 + l->nvars + k] = put_element(c, scan->arg[k], l->outputs[1 + l->nvars + k], 0, l->i)) != NULL;
    if (ok)
        tn_return(&c->b, results, 2 + l->nvars + l->nscans);
    c->b = outside;
    return ok;
}

/* i < limit (NULL: no limit) and the condition. */
static tn_block *loop_condition(onnx_ctx *c, loop *l, tn_value *limit)
{
    tn_builder outside = c->b;
    tn_block *block = tn_block_new(c->b.graph, NULL);
    tn_value *i = NULL, *go = NULL;
    for (int k = 0; k < l->block->nargs; k++) {
        tn_value *arg = tn_block_arg(block, &l->block->arg[k]->type, NULL);
        i = k == 0 ? arg : i;
        go = k == 1 ? arg : go;
    }
    c->b = tn_builder_at_end(block, l->n->loc);
    if (limit)
        go = emit_and(c, go, emit_compare(c, "LT", i, limit));
    if (go)
        tn_return(&c->b, &go, 1);
    c->b = outside;
    return go ? block : NULL;
}

/* The scan outputs: whole buffers if every trip ran, else the part that was written. */
static bool loop_results(onnx_ctx *c, loop *l, tn_op *op, bool endless)
{
    tn_dim count = l->trips;
    for (int i = 0; i < l->nvars; i++)
        onnx_set_output(c, l->n, i, &op->result[2 + i]);
    if (l->nscans && !endless && !onnx_runtime_dims(c, l->n, &op->result[0], 1, &l->trips, &count))
        return false;
    for (int k = 0; k < l->nscans; k++) {
        tn_value *buffer = &op->result[2 + l->nvars + k];
        if (count != buffer_rows(c, l))
            buffer = emit_slice_axis(c, buffer, 0, num(c, 0), count, 1);
        if (!onnx_set_output(c, l->n, l->nvars + k, buffer))
            return false;
    }
    return true;
}

static bool run_time_loop(onnx_ctx *c, loop *l, tn_value *limit, tn_value *go, bool always)
{
    loop_scan scan = {new_values(c, (size_t)l->nscans), new_values(c, (size_t)l->nscans)};
    bool endless = false;
    for (int i = 0; i < l->nvars; i++)
        if (onnx_is_sequence(c, l->init[i]))
            return onnx_unsupported(
                c, l->n, "loop variable %d is a sequence, and the number of trips is not a small constant", i);
    if (!loop_body(c, l, &scan, &endless) || !loop_body_end(c, l, &scan))
        return false;
    tn_value **init = new_values(c, (size_t)(2 + l->nvars + l->nscans));
    init[0] = onnx_int(c, TN_I64, 0);
    init[1] = go;
    memcpy(init + 2, l->init, (size_t)l->nvars * sizeof *init);
    if (l->nscans)
        memcpy(init + 2 + l->nvars, scan.init, (size_t)l->nscans * sizeof *init);
    tn_block *blocks[2] = {loop_condition(c, l, limit), l->block};
    if (!blocks[0])
        return false;
    tn_op *op = tn_build(&c->b, TN_OP_while, init, 2 + l->nvars + l->nscans, NULL, 0, blocks, 2);
    return op && loop_results(c, l, op, endless && always);
}

bool onnx_Loop(onnx_ctx *c, const onnx_node *n)
{
    loop l = {0};
    int64_t trips = -1;
    int count;
    bool go = true, done;
    tn_value *limit = scalar(c, onnx_in(n, 0)), *condition = scalar(c, onnx_in(n, 1));
    if (!loop_shape(c, n, &l))
        return false;
    if ((condition && condition->type.dtype != TN_BOOL) || (limit && limit->type.dtype != TN_I64))
        return onnx_error(c, n, "the trip count must be int64 and the condition bool");
    bool known = !condition || constant_truth(c, condition, &go);
    if (known && limit && onnx_static_ints(c, limit, &trips, 1, &count))
        trips = go ? tn_max(trips, 0) : 0;
    else
        trips = -1;
    if (trips >= (l.nscans ? 1 : 0) && trips <= UNROLL_TRIPS && trips * (int64_t)l.body->node.len <= UNROLL_NODES) {
        if (!unroll(c, &l, trips, &done) || done)
            return done && !c->bad;
    }
    if (limit && l.nscans && !onnx_runtime_dims(c, n, emit_max(c, limit, onnx_int(c, TN_I64, 0)), 1, NULL, &l.trips))
        return false;
    if (!condition)
        condition = tn_constant(&c->b, tn_tensor_splat(c->session, TN_BOOL, 0, NULL, (tn_number){.u = 1}));
    return run_time_loop(c, &l, limit, condition, known && go);
}

/* ---- Scan
 * --------------------------------------------------------------------------------------------------------------------------
 */

typedef struct scan_axes {
    int in_axis[64], out_axis[64];
    bool in_back[64], out_back[64];
} scan_axes;

/* One list of axes or directions; 0 where the attribute is absent. */
static bool scan_list(onnx_ctx *c, const onnx_node *n, const char *name, int count, int64_t *out)
{
    int have;
    const int64_t *list = onnx_attr_ints(c, n, name, &have);
    memset(out, 0, 64 * sizeof *out);
    if (list && have != count)
        return onnx_error(c, n, "%s has %d entries, expected %d", name, have, count);
    if (list)
        memcpy(out, list, (size_t)have * sizeof *out);
    return true;
}

static bool read_scan_axes(onnx_ctx *c, const onnx_node *n, const loop *l, int nin, scan_axes *a)
{
    int64_t in[64], in_back[64], out[64], out_back[64];
    if (!scan_list(c, n, "scan_input_axes", nin, in) || !scan_list(c, n, "scan_input_directions", nin, in_back) ||
        !scan_list(c, n, "scan_output_axes", l->nscans, out) ||
        !scan_list(c, n, "scan_output_directions", l->nscans, out_back))
        return false;
    for (int k = 0; k < nin; k++) {
        const tn_value *x = n->input[l->nvars + k];
        if (!onnx_axis(c, n, in[k], x->type.rank, &a->in_axis[k]))
            return false;
        a->in_back[k] = in_back[k] != 0;
    }
    for (int k = 0; k < l->nscans; k++) {
        if (out[k] < -TN_MAX_RANK || out[k] >= TN_MAX_RANK)
            return onnx_error(c, n, "scan output axis %lld", (long long)out[k]);
        a->out_axis[k] = (int)out[k]; /* negative: normalised when the element's rank is known */
        a->out_back[k] = out_back[k] != 0;
    }
    return true;
}

/* Position of trip i on an axis that is walked forwards or backwards. */
static tn_value *position(onnx_ctx *c, const loop *l, bool back)
{
    return back ? emit_sub(c, emit_size(c, tn_dim_sub(c->session, l->trips, num(c, 1)), TN_I64), l->i) : l->i;
}

static bool scan_body(onnx_ctx *c, loop *l, int nin, scan_axes *a, loop_scan *scan)
{
    tn_type i64 = tn_type_scalar(TN_I64);
    tn_builder outside = c->b;
    l->block = tn_block_new(c->b.graph, NULL);
    l->i = tn_block_arg(l->block, &i64, NULL);
    for (int i = 0; i < l->nvars; i++)
        l->vars[i] = tn_block_arg(l->block, &l->init[i]->type, NULL);
    c->b = tn_builder_at_end(l->block, l->n->loc);
    for (int k = 0; k < nin; k++)
        l->vars[l->nvars + k] = element(c, l->n->input[l->nvars + k], a->in_axis[k], position(c, l, a->in_back[k]));
    bool ok = !c->b.failed;
    c->b = outside;
    if (!ok || !onnx_subgraph(c, l->n, l->body, l->block, l->vars, l->nvars + nin, l->outputs))
        return false;
    for (int k = 0; k < l->nscans; k++) {
        const tn_value *x = l->outputs[l->nvars + k];
        if (onnx_is_sequence(c, x))
            return onnx_unsupported(c, l->n, "scan output %d is a sequence", k);
        if (a->out_axis[k] < 0)
            a->out_axis[k] += x->type.rank + 1;
        if (a->out_axis[k] < 0 || !scan_output_ok(c, l, a->out_axis[k], x) ||
            !(scan->init[k] = new_buffer(c, l, &x->type, a->out_axis[k])))
            return false;
        scan->arg[k] = tn_block_arg(l->block, &scan->init[k]->type, NULL);
    }
    return true;
}

static bool scan_body_end(onnx_ctx *c, loop *l, const scan_axes *a, loop_scan *scan)
{
    tn_builder outside = c->b;
    tn_value **results = new_values(c, (size_t)(1 + l->nvars + l->nscans));
    c->b = tn_builder_at_end(l->block, l->n->loc);
    bool ok = (results[0] = plus_one(c, l->i)) != NULL;
    for (int i = 0; ok && i < l->nvars; i++)
        ok = (results[1 + i] = carried(c, l, l->outputs[i], &l->init[i]->type, i)) != NULL;
    for (int k = 0; ok && k < l->nscans; k++)
        ok = (results[1 + l->nvars + k] = put_element(c, scan->arg[k], l->outputs[l->nvars + k], a->out_axis[k],
                                                      position(c, l, a->out_back[k]))) != NULL;
    if (ok)
        tn_return(&c->b, results, 1 + l->nvars + l->nscans);
    c->b = outside;
    return ok;
}

static tn_block *scan_condition(onnx_ctx *c, const loop *l)
{
    tn_builder outside = c->b;
    tn_block *block = tn_block_new(c->b.graph, NULL);
    for (int k = 0; k < l->block->nargs; k++)
        tn_block_arg(block, &l->block->arg[k]->type, NULL);
    c->b = tn_builder_at_end(block, l->n->loc);
    tn_value *go = emit_compare(c, "LT", block->arg[0], emit_size(c, l->trips, TN_I64));
    if (go)
        tn_return(&c->b, &go, 1);
    c->b = outside;
    return go ? block : NULL;
}

static bool scan_shape(onnx_ctx *c, const onnx_node *n, loop *l, int *nin)
{
    int64_t count = onnx_attr_int(c, n, "num_scan_inputs", -1);
    l->n = n;
    l->body = onnx_attr_graph(c, n, "body");
    if (!l->body || count < 1 || count > 64 || count > n->ninputs)
        return onnx_error(c, n, "needs a body and between 1 and 64 scan inputs");
    *nin = (int)count;
    l->nvars = n->ninputs - *nin;
    l->nscans = (int)l->body->output.len - l->nvars;
    if (l->nscans < 0 || l->nscans > 64 || n->noutputs > l->nvars + l->nscans || (int)l->body->input.len != n->ninputs)
        return onnx_error(c, n, "the body does not fit the node's inputs and outputs");
    for (int i = 0; i < n->ninputs; i++)
        if (!n->input[i] || (i >= l->nvars && n->input[i]->type.rank == 0))
            return onnx_error(c, n, "input %d is missing or a scalar", i);
    l->init = n->input;
    l->outputs = new_values(c, l->body->output.len);
    l->vars = new_values(c, (size_t)n->ninputs);
    return true;
}

bool onnx_Scan(onnx_ctx *c, const onnx_node *n)
{
    loop l = {0};
    scan_axes axes;
    int nin;
    if (!scan_shape(c, n, &l, &nin) || !read_scan_axes(c, n, &l, nin, &axes))
        return false;
    l.trips = n->input[l.nvars]->type.dim[axes.in_axis[0]];
    for (int k = 1; k < nin; k++)
        if (tn_dim_ne(c->session, l.trips, n->input[l.nvars + k]->type.dim[axes.in_axis[k]]))
            return onnx_error(c, n, "the scan inputs have different lengths");
    loop_scan scan = {new_values(c, (size_t)l.nscans), new_values(c, (size_t)l.nscans)};
    if (!scan_body(c, &l, nin, &axes, &scan) || !scan_body_end(c, &l, &axes, &scan))
        return false;
    tn_value **init = new_values(c, (size_t)(1 + l.nvars + l.nscans));
    init[0] = onnx_int(c, TN_I64, 0);
    memcpy(init + 1, l.init, (size_t)l.nvars * sizeof *init);
    memcpy(init + 1 + l.nvars, scan.init, (size_t)l.nscans * sizeof *init);
    tn_block *blocks[2] = {scan_condition(c, &l), l.block};
    tn_op *op = blocks[0] ? tn_build(&c->b, TN_OP_while, init, 1 + l.nvars + l.nscans, NULL, 0, blocks, 2) : NULL;
    for (int i = 0; op && i < l.nvars + l.nscans; i++)
        onnx_set_output(c, n, i, &op->result[1 + i]);
    return op != NULL;
}
