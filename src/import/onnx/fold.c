/* Folding of small constants while importing, and the sweep of what nobody uses. Large ones are for src/opt: here only
 * shape arithmetic and the parameters of operators (scales, pads, axes) must become numbers, because lowerings ask for
 * them. */
#include "eval/eval.h"
#include "import/onnx/internal.h"

enum { FOLD_ELEMENTS = 4096, FOLD_BYTES = 256 << 20 };

static size_t budget(const onnx_ctx *c)
{
    return c->options && c->options->fold_bytes ? c->options->fold_bytes : FOLD_BYTES;
}

bool onnx_charge(onnx_ctx *c, const onnx_node *n, size_t bytes)
{
    if (bytes > budget(c) || c->folded > budget(c) - bytes)
        return onnx_unsupported(c, n, "more than %zu bytes of constants would be made while importing", budget(c));
    c->folded += bytes;
    return true;
}

static bool small(const tn_type *type, size_t *bytes)
{
    int64_t count;
    return tn_type_count(type, &count) && count <= FOLD_ELEMENTS && tn_dtype_bytes(type->dtype, count, bytes);
}

/* Sizes and positions in the attributes may be symbols even where the result is static. */
static bool symbolic(const tn_op *op)
{
    for (int i = 0; i < op->nattrs; i++) {
        const tn_attr *a = &op->attr[i];
        tn_attr_kind kind = tn_attr_kind_of(a->name);
        if (kind == TN_ATTR_DIM && !tn_dim_is_const(a->dim))
            return true;
        for (int j = 0; kind == TN_ATTR_DIMS && j < a->n; j++)
            if (!tn_dim_is_const(a->dims[j]))
                return true;
    }
    return false;
}

/* The operands, if the operation is one to fold. */
static bool foldable(onnx_ctx *c, const tn_op *op, const tn_tensor **operands)
{
    unsigned traits = tn_op_traits(op->code);
    size_t bytes;
    if (traits & (TN_EFFECT | TN_TERMINATOR | TN_CONTROL | TN_CONTRACTS) || op->code == TN_OP_constant ||
        op->nresults == 0)
        return false;
    if ((op->nregions && op->code != TN_OP_reduce) || op->code == TN_OP_fft || op->code == TN_OP_rng_bit_generator ||
        symbolic(op))
        return false;
    for (int i = 0; i < op->noperands; i++) {
        operands[i] = tn_constant_of(tn_operand(op, i));
        if (!operands[i] || !small(&tn_operand(op, i)->type, &bytes))
            return false;
    }
    for (int i = 0; i < op->nresults; i++) {
        if (!small(&op->result[i].type, &bytes) || c->folded + bytes > budget(c))
            return false;
        c->folded += bytes;
    }
    return true;
}

/* The value that a node's output is known by moves from `from` to `to`. */
static void rename_output(onnx_ctx *c, const onnx_node *n, tn_value *from, tn_value *to)
{
    void *known = tn_map_get(&c->known, TN_KEY(from));
    if (known)
        *tn_map_at(&c->known, TN_KEY(to)) = known;
    for (int i = 0; i < n->noutputs; i++)
        if (n->output[i] == from)
            n->output[i] = to;
    tn_replace_uses(from, to);
}

static bool fold(onnx_ctx *c, const onnx_node *n, tn_op *op)
{
    enum { MANY = 64 };
    const tn_tensor *operands[MANY];
    tn_tensor *results[MANY] = {NULL};
    if (op->noperands > MANY || op->nresults > MANY || !foldable(c, op, operands))
        return true;
    if (tn_eval_op(c->session, &c->session->arena, op, operands, results, NULL, NULL) != TN_OK)
        return false;
    tn_builder b = tn_builder_before(op);
    for (int i = 0; i < op->nresults; i++) {
        tn_value *constant = tn_constant(&b, tn_tensor_as_splat(c->session, results[i]));
        if (!constant)
            return false;
        rename_output(c, n, &op->result[i], constant);
    }
    tn_erase(op);
    return true;
}

void onnx_fold_constants(onnx_ctx *c, const onnx_node *n, tn_op *mark)
{
    tn_op *next;
    for (tn_op *op = mark ? mark->next : c->b.block->first; op; op = next) {
        next = op->next;
        if (!fold(c, n, op)) {
            c->bad = true;
            return;
        }
    }
}

static bool unused(const tn_op *op)
{
    if (tn_op_traits(op->code) & (TN_EFFECT | TN_TERMINATOR))
        return false;
    for (int i = 0; i < op->nresults; i++)
        if (op->result[i].uses)
            return false;
    return true;
}

static void sweep_values(tn_block *block)
{
    tn_op *prev;
    for (tn_op *op = block->last; op; op = prev) {
        prev = op->prev;
        if (unused(op)) {
            tn_erase(op);
            continue;
        }
        for (int i = 0; i < op->nregions; i++)
            sweep_values(op->region[i]);
    }
}

/* ---- births of symbols that occur nowhere
 * ---------------------------------------------------------------------------------- */

static void mark_symbol(void *context, tn_dim symbol)
{
    *tn_map_at(context, TN_KEY(symbol)) = context;
}

static void mark_dims(const tn_dim *dims, int n, tn_map *seen)
{
    for (int i = 0; i < n; i++)
        tn_dim_symbols(dims[i], mark_symbol, seen);
}

static void mark_symbols(const tn_block *block, tn_map *seen)
{
    for (int i = 0; i < block->nargs; i++)
        mark_dims(block->arg[i]->type.dim, block->arg[i]->type.rank, seen);
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nresults; i++)
            mark_dims(op->result[i].type.dim, op->result[i].type.rank, seen);
        for (int i = 0; i < op->nattrs; i++) {
            tn_attr_kind kind = tn_attr_kind_of(op->attr[i].name);
            if (kind == TN_ATTR_DIM && !(op->code == TN_OP_define_dimension && op->attr[i].name == TN_A_dim))
                mark_dims(&op->attr[i].dim, 1, seen);
            else if (kind == TN_ATTR_DIMS)
                mark_dims(op->attr[i].dims, op->attr[i].n, seen);
        }
        for (int i = 0; i < op->nregions; i++)
            mark_symbols(op->region[i], seen);
    }
}

static bool sweep_births(tn_block *block, const tn_map *seen)
{
    bool any = false;
    tn_op *next;
    for (tn_op *op = block->first; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->nregions; i++)
            any |= sweep_births(op->region[i], seen);
        if (op->code == TN_OP_define_dimension && !tn_map_get(seen, TN_KEY(tn_find_attr(op, TN_A_dim)->dim))) {
            tn_erase(op);
            any = true;
        }
    }
    return any;
}

/* A birth that goes may leave another one unused; a few rounds are enough for what importing makes. */
void onnx_sweep(tn_block *block)
{
    enum { ROUNDS = 4 };
    bool more = true;
    for (int round = 0; more && round < ROUNDS; round++) {
        sweep_values(block);
        tn_map seen = {.arena = &block->graph->session->arena};
        mark_symbols(block, &seen);
        for (size_t i = 0; i < block->graph->equal.len; i++)
            if (block->graph->equal.at[i].why) /* no operation says it */
                mark_dims((tn_dim[]){block->graph->equal.at[i].a, block->graph->equal.at[i].b}, 2, &seen);
        more = sweep_births(block, &seen);
    }
    sweep_values(block);
}
