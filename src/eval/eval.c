/* The driver: values, memory, work, running blocks and graphs. A value of a block is freed when its last user has run,
 * so that what is alive at once, not what was ever made, must fit in max_bytes. */
#include "eval/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, ALIGNMENT = 64 };

static const tn_eval_fn functions[TN_OP_COUNT] = {
#define OP(name, ...) [TN_OP_##name] = tn_eval_##name,
#include "graph/ops.def"
#undef OP
};

/* ---- memory and work --------------------------------------------------------------------------------------------- */

static tn_status reserve(tn_evaluator *e, tn_loc loc, size_t bytes)
{
    int64_t total;
    if (bytes > INT64_MAX || !tn_add(e->bytes, (int64_t)bytes, &total) || total > e->max_bytes)
        return tn_error(e->session, TN_NO_MEMORY, loc,
                        "evaluation needs %zu bytes more, %" PRId64 " of at most %" PRId64
                        " are in use; raise max_bytes",
                        bytes, e->bytes, e->max_bytes);
    e->bytes = total;
    return TN_OK;
}

static tn_status out_of_memory(tn_evaluator *e, tn_loc loc, size_t bytes)
{
    e->bytes -= (int64_t)bytes;
    return tn_error(e->session, TN_NO_MEMORY, loc, "no memory for %zu bytes of a tensor", bytes);
}

/* Sizes of zero count as one: strides, and products of some of the dimensions, must not overflow either. */
static bool sizes_fit(int rank, const int64_t *dims)
{
    int64_t product = 1;
    for (int i = 0; i < rank; i++)
        if (!tn_mul(product, dims[i] > 0 ? dims[i] : 1, &product))
            return false;
    return true;
}

tn_status tn_eval_new(tn_evaluator *e, tn_loc loc, tn_dtype dtype, int rank, const int64_t *dims, tn_eval_value **out)
{
    tn_tensor t = {.dtype = dtype, .rank = rank};
    int64_t count;
    size_t bytes, padded;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return tn_error(e->session, TN_INVALID, loc, "dimension %d of a result is negative: %" PRId64, i, dims[i]);
        t.dim[i] = dims[i];
    }
    if (!sizes_fit(rank, dims) || !tn_tensor_count(&t, &count) || !tn_dtype_bytes(dtype, count, &bytes) ||
        __builtin_add_overflow(bytes, 2 * (size_t)ALIGNMENT, &padded) || padded > INT64_MAX / 2)
        return tn_error(e->session, TN_NO_MEMORY, loc, "size of a result overflows");
    TN_TRY(reserve(e, loc, bytes));
    tn_eval_value *v = calloc(1, sizeof *v);
    /* calloc, not aligned_alloc: sub-byte stores read what is there, and large blocks come zeroed for free */
    char *memory = v ? calloc(1, padded) : NULL;
    if (!memory)
        return free(v), out_of_memory(e, loc, bytes);
    t.data = memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT);
    *v = (tn_eval_value){.tensor = t, .refs = 1, .bytes = bytes, .memory = memory};
    *out = v;
    return TN_OK;
}

tn_status tn_eval_borrow(tn_evaluator *e, tn_loc loc, const tn_tensor *tensor, tn_eval_value **out)
{
    tn_eval_value *v = calloc(1, sizeof *v);
    if (!v)
        return tn_error(e->session, TN_NO_MEMORY, loc, "no memory");
    *v = (tn_eval_value){.tensor = *tensor, .refs = 1};
    *out = v;
    return TN_OK;
}

void tn_eval_release(tn_evaluator *e, tn_eval_value *v)
{
    if (!v || --v->refs > 0)
        return;
    e->bytes -= (int64_t)v->bytes;
    free(v->memory);
    free(v);
}

tn_status tn_eval_alloc(tn_evaluator *e, tn_loc loc, int64_t n, size_t size, void *out)
{
    size_t bytes, total;
    if (n < 0 || __builtin_mul_overflow((size_t)n, size, &bytes) ||
        __builtin_add_overflow(bytes, 2 * (size_t)ALIGNMENT, &total))
        return tn_error(e->session, TN_NO_MEMORY, loc, "size of working memory overflows");
    TN_TRY(reserve(e, loc, total));
    tn_eval_scratch *block = calloc(1, total);
    if (!block)
        return out_of_memory(e, loc, total);
    *block = (tn_eval_scratch){.next = e->scratch, .bytes = total};
    e->scratch = block;
    *(void **)out = (char *)block + ALIGNMENT;
    return TN_OK;
}

void tn_eval_release_scratch(tn_evaluator *e, const tn_eval_scratch *mark)
{
    while (e->scratch != mark) {
        tn_eval_scratch *block = e->scratch;
        e->scratch = block->next;
        e->bytes -= (int64_t)block->bytes;
        free(block);
    }
}

tn_status tn_eval_work(tn_evaluator *e, tn_loc loc, int64_t steps, int64_t each)
{
    int64_t more;
    if (!tn_mul(steps, each, &more) || !tn_add(e->work, more, &e->work))
        e->work = INT64_MAX;
    if (e->max_work && e->work > e->max_work)
        return tn_error(e->session, TN_UNSUPPORTED, loc, "evaluation takes more than %" PRId64 " steps; raise max_work",
                        e->max_work);
    return TN_OK;
}

tn_status tn_eval_dim(tn_evaluator *e, tn_loc loc, tn_dim dim, int64_t *out)
{
    if (tn_env_eval(e->env, dim, out))
        return TN_OK;
    tn_text text = {.arena = &e->session->arena};
    tn_text_dim(&text, dim);
    return tn_error(e->session, TN_INVALID, loc,
                    "dimension %s has no value: a symbol is not bound, or it overflows or divides by 0", text.at);
}

tn_status tn_eval_dims(tn_evaluator *e, const tn_op *op, tn_attr_name name, int expected, int64_t *out)
{
    int n = 0;
    const tn_dim *dims = tn_attr_dims(op, name, &n);
    if (n != expected)
        return tn_eval_expect(e, op, tn_attr_text(name), expected, n);
    for (int i = 0; i < n; i++)
        TN_TRY(tn_eval_dim(e, op->loc, dims[i], &out[i]));
    return TN_OK;
}

tn_status tn_eval_expect(tn_evaluator *e, const tn_op *op, const char *what, int64_t expected, int64_t found)
{
    return tn_error(e->session, TN_INVALID, op->loc, "%s: %s: expected %" PRId64 ", found %" PRId64,
                    tn_op_name(op->code), what, expected, found);
}

tn_status tn_eval_result(tn_evaluator *e, const tn_op *op, int i, tn_eval_value **out)
{
    const tn_type *type = &op->result[i].type;
    int64_t dims[TN_MAX_RANK];
    for (int d = 0; d < type->rank; d++)
        TN_TRY(tn_eval_dim(e, op->loc, type->dim[d], &dims[d]));
    return tn_eval_new(e, op->loc, type->dtype, type->rank, dims, out);
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

/* A tensor must be what the graph says it is: every function below relies on it to stay inside its buffers. */
static tn_status check_value(tn_evaluator *e, const tn_op *op, const char *what, const tn_type *type,
                             const tn_tensor *t)
{
    if (t->dtype != type->dtype || t->rank != type->rank)
        return tn_error(e->session, TN_INVALID, op->loc, "%s: %s is %s of rank %d, found %s of rank %d",
                        tn_op_name(op->code), what, tn_dtype_text(type->dtype), type->rank, tn_dtype_text(t->dtype),
                        t->rank);
    if (!sizes_fit(t->rank, t->dim))
        return tn_error(e->session, TN_NO_MEMORY, op->loc, "%s: sizes of %s overflow", tn_op_name(op->code), what);
    for (int i = 0; i < t->rank; i++) {
        int64_t size;
        TN_TRY(tn_eval_dim(e, op->loc, type->dim[i], &size));
        if (size != t->dim[i])
            return tn_error(e->session, TN_INVALID, op->loc, "%s: dimension %d of %s is %" PRId64 ", found %" PRId64,
                            tn_op_name(op->code), i, what, size, t->dim[i]);
    }
    return TN_OK;
}

static tn_status call(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, tn_eval_value **out)
{
    for (int i = 0; i < op->noperands; i++)
        TN_TRY(check_value(e, op, "an operand", &tn_operand(op, i)->type, &in[i]->tensor));
    TN_TRY(tn_eval_work(e, op->loc, 1, 1));
    TN_TRY(functions[op->code](e, op, in, out));
    for (int i = 0; i < op->nresults; i++)
        TN_TRY(check_value(e, op, "a result", &op->result[i].type, &out[i]->tensor));
    return TN_OK;
}

static tn_status run_op(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, tn_eval_value **out, int nout)
{
    const tn_eval_scratch *mark = e->scratch;
    tn_status status = call(e, op, in, out);
    tn_eval_release_scratch(e, mark);
    for (int i = 0; i < nout && status != TN_OK; i++)
        tn_eval_release(e, out[i]), out[i] = NULL;
    return status;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int count_uses(const tn_value *v)
{
    int n = 0;
    for (const tn_use *use = v->uses; use; use = use->next)
        n++;
    return n;
}

/* Puts a value in its slot, taking the reference over; a value without uses is dropped at once. */
static void define(tn_evaluator *e, const tn_value *v, tn_eval_value *value)
{
    assert(v->id < e->slots);
    tn_eval_release(e, e->slot[v->id]);
    e->uses[v->id] = count_uses(v);
    e->slot[v->id] = value;
    if (e->uses[v->id] == 0)
        tn_eval_release(e, value), e->slot[v->id] = NULL;
}

static const tn_block *block_of(const tn_value *v)
{
    return v->def ? v->def->block : v->block;
}

/* `op` has run: ends the uses that it and the operations inside it make of values of its own block. What they use from
 * further out ends when the operation of that block ends, since a loop may run op again. */
static void end_uses(tn_evaluator *e, const tn_op *op, const tn_op *user)
{
    for (int i = 0; i < user->noperands; i++) {
        const tn_value *v = tn_operand(user, i);
        if (block_of(v) == op->block && --e->uses[v->id] == 0)
            tn_eval_release(e, e->slot[v->id]), e->slot[v->id] = NULL;
    }
    for (int i = 0; i < user->nregions; i++)
        for (const tn_op *inner = user->region[i]->first; inner; inner = inner->next)
            end_uses(e, op, inner);
}

static tn_status watch(tn_evaluator *e, const tn_op *op, tn_eval_value *const *out)
{
    if (op->block->parent || !e->options || !e->options->watch || op->code == TN_OP_return)
        return TN_OK;
    tn_tensor **results;
    TN_TRY(tn_eval_alloc(e, op->loc, op->nresults, sizeof *results, &results));
    for (int i = 0; i < op->nresults; i++)
        results[i] = &out[i]->tensor;
    return e->options->watch(e->options->watch_context, op, results);
}

/* One operation of a running block: operands from their slots, results into theirs (or into `results` for return). */
static tn_status step(tn_evaluator *e, const tn_op *op, tn_eval_value **results)
{
    const tn_eval_scratch *mark = e->scratch;
    int nout = op->code == TN_OP_return ? op->noperands : op->nresults;
    tn_eval_value **in, **out = results;
    TN_TRY(tn_eval_alloc(e, op->loc, op->noperands, sizeof *in, &in));
    if (op->code != TN_OP_return)
        TN_TRY(tn_eval_alloc(e, op->loc, nout, sizeof *out, &out));
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *v = tn_operand(op, i);
        in[i] = v->id < e->slots ? e->slot[v->id] : NULL;
        if (!in[i])
            return tn_error(e->session, TN_INVALID, op->loc, "%s: operand %d is not known here", tn_op_name(op->code),
                            i);
    }
    TN_TRY(run_op(e, op, in, out, nout));
    tn_status status = watch(e, op, out);
    end_uses(e, op, op);
    for (int i = 0; op->code != TN_OP_return && i < nout; i++)
        define(e, &op->result[i], out[i]);
    tn_eval_release_scratch(e, mark);
    return status;
}

/* Drops what a failed run left in the slots of a block. */
static void drop_block(tn_evaluator *e, const tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        tn_eval_release(e, e->slot[block->arg[i]->id]), e->slot[block->arg[i]->id] = NULL;
    for (const tn_op *op = block->first; op; op = op->next)
        for (int i = 0; i < op->nresults; i++)
            tn_eval_release(e, e->slot[op->result[i].id]), e->slot[op->result[i].id] = NULL;
}

tn_status tn_eval_block(tn_evaluator *e, const tn_block *block, tn_eval_value *const *args, tn_eval_value **results)
{
    const tn_op *last = block->last;
    assert(last && last->code == TN_OP_return);
    if (e->depth >= MAX_DEPTH)
        return tn_error(e->session, TN_UNSUPPORTED, last->loc, "regions are nested more than %d deep", MAX_DEPTH);
    const tn_eval_scratch *mark = e->scratch;
    e->depth++;
    for (int i = 0; i < block->nargs; i++)
        define(e, block->arg[i], tn_eval_retain(args[i]));
    tn_status status = TN_OK;
    for (const tn_op *op = block->first; op && status == TN_OK; op = op->next)
        status = step(e, op, results);
    if (status != TN_OK)
        drop_block(e, block);
    tn_eval_release_scratch(e, mark);
    e->depth--;
    return status;
}

/* ---- entry points ------------------------------------------------------------------------------------------------ */

static tn_status start(tn_evaluator *e, tn_session *session, const tn_graph *graph, const tn_eval_options *options,
                       tn_loc loc)
{
    *e = (tn_evaluator){.session = session, .options = options};
    e->max_bytes = options && options->max_bytes ? options->max_bytes : (int64_t)8 << 30;
    e->max_work = options ? options->max_work : 0;
    if (!graph)
        return TN_OK;
    e->slot = calloc((size_t)graph->next_id + 1, sizeof *e->slot);
    e->uses = calloc((size_t)graph->next_id + 1, sizeof *e->uses);
    e->slots = graph->next_id;
    return e->slot && e->uses ? TN_OK : tn_error(session, TN_NO_MEMORY, loc, "no memory for %u values", graph->next_id);
}

static void finish(tn_evaluator *e)
{
    tn_eval_release_scratch(e, NULL);
    for (uint32_t i = 0; e->slot && i < e->slots; i++)
        tn_eval_release(e, e->slot[i]);
    free(e->slot);
    free(e->uses);
}

/* A copy in the caller's arena, whole even if the value is a splat. */
static tn_tensor *copy_out(tn_arena *arena, const tn_tensor *t)
{
    tn_tensor *copy = TN_NEW(arena, tn_tensor);
    size_t bytes = 0;
    bool known = tn_dtype_bytes(t->dtype, t->splat ? 1 : tn_count_of(t), &bytes);
    assert(known), (void)known;
    void *data = tn_alloc_aligned(arena, bytes ? bytes : 1, ALIGNMENT);
    if (bytes)
        memcpy(data, t->data, bytes);
    *copy = *t;
    copy->data = data;
    copy->name = NULL;
    return copy;
}

/* Binds symbols input by input, twice: an input may hold a symbol that a later one gives. */
static tn_status bind_inputs(tn_session *session, const tn_graph *graph, const tn_tensor *const *inputs,
                             tn_dim_env *env)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < graph->body->nargs; i++) {
            const tn_value *arg = graph->body->arg[i];
            const char *what = tn_format(&session->arena, "input %d (%s)", i, arg->name ? arg->name : "unnamed");
            if (inputs[i]->dtype != arg->type.dtype)
                return tn_error(session, TN_INVALID, TN_NO_LOC, "%s: element type is %s, found %s", what,
                                tn_dtype_text(arg->type.dtype), tn_dtype_text(inputs[i]->dtype));
            TN_TRY(tn_env_bind(session, env, TN_NO_LOC, what, &arg->type, inputs[i]->rank, inputs[i]->dim));
        }
    return TN_OK;
}

/* The graph's recorded equalities, as far as their symbols have values; the others are caught by check_value. */
static tn_status check_equal(tn_session *session, const tn_graph *graph, const tn_dim_env *env)
{
    for (size_t i = 0; i < graph->equal.len; i++) {
        const struct tn_dim_equal *fact = &graph->equal.at[i];
        int64_t a, b;
        if (!tn_env_eval(env, fact->a, &a) || !tn_env_eval(env, fact->b, &b) || a == b)
            continue;
        if (fact->why)
            return tn_error(session, TN_INVALID, fact->loc, "%s", fact->why);
        tn_text text = {.arena = &session->arena};
        tn_text_dim(&text, fact->a);
        tn_text_add(&text, " = %" PRId64 " and ", a);
        tn_text_dim(&text, fact->b);
        return tn_error(session, TN_INVALID, fact->loc, "dimensions must be equal here: %s = %" PRId64, text.at, b);
    }
    return TN_OK;
}

/* Borrows the inputs, runs the body, copies the results out. */
static tn_status run_body(tn_evaluator *e, tn_arena *arena, const tn_graph *graph, const tn_tensor *const *inputs,
                          tn_tensor **outputs)
{
    const tn_block *body = graph->body;
    tn_eval_value **args, **results;
    int noutputs = body->last->noperands;
    TN_TRY(tn_eval_alloc(e, TN_NO_LOC, body->nargs, sizeof *args, &args));
    TN_TRY(tn_eval_alloc(e, TN_NO_LOC, noutputs, sizeof *results, &results));
    tn_status status = TN_OK;
    for (int i = 0; i < body->nargs && status == TN_OK; i++)
        status = tn_eval_borrow(e, TN_NO_LOC, inputs[i], &args[i]);
    if (status == TN_OK)
        status = tn_eval_block(e, body, args, results);
    for (int i = 0; i < noutputs && status == TN_OK; i++)
        outputs[i] = copy_out(arena, &results[i]->tensor);
    for (int i = 0; i < body->nargs; i++)
        tn_eval_release(e, args[i]);
    for (int i = 0; i < noutputs; i++)
        tn_eval_release(e, results[i]);
    return status;
}

tn_status tn_eval_graph(tn_session *session, tn_arena *arena, const tn_graph *graph, const tn_tensor *const *inputs,
                        tn_tensor **outputs, const tn_eval_options *options)
{
    tn_evaluator e;
    tn_arena symbols = {0};
    tn_dim_env env = {.arena = &symbols};
    symbols.on_oom = session->arena.on_oom;
    tn_status status = start(&e, session, graph, options, TN_NO_LOC);
    e.env = &env;
    if (status == TN_OK)
        status = bind_inputs(session, graph, inputs, &env);
    if (status == TN_OK)
        status = check_equal(session, graph, &env);
    if (status == TN_OK)
        status = run_body(&e, arena, graph, inputs, outputs);
    finish(&e);
    tn_arena_free(&symbols);
    return status;
}

static tn_status run_single(tn_evaluator *e, tn_arena *arena, const tn_op *op, const tn_tensor *const *operands,
                            tn_tensor **results)
{
    tn_eval_value **in, **out;
    TN_TRY(tn_eval_alloc(e, op->loc, op->noperands, sizeof *in, &in));
    TN_TRY(tn_eval_alloc(e, op->loc, op->nresults, sizeof *out, &out));
    tn_status status = TN_OK;
    for (int i = 0; i < op->noperands && status == TN_OK; i++)
        status = tn_eval_borrow(e, op->loc, operands[i], &in[i]);
    if (status == TN_OK)
        status = run_op(e, op, in, out, op->nresults);
    for (int i = 0; i < op->nresults && status == TN_OK; i++)
        results[i] = copy_out(arena, &out[i]->tensor);
    for (int i = 0; i < op->noperands; i++)
        tn_eval_release(e, in[i]);
    for (int i = 0; i < op->nresults; i++)
        tn_eval_release(e, out[i]);
    return status;
}

tn_status tn_eval_op(tn_session *session, tn_arena *arena, const tn_op *op, const tn_tensor *const *operands,
                     tn_tensor **results, tn_dim_env *env, const tn_eval_options *options)
{
    tn_evaluator e;
    assert(op->code != TN_OP_return);
    tn_status status = start(&e, session, op->nregions ? op->block->graph : NULL, options, op->loc);
    e.env = env;
    if (status == TN_OK)
        status = run_single(&e, arena, op, operands, results);
    finish(&e);
    return status;
}
