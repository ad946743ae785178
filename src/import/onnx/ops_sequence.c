/* Sequences and optionals whose length is known while importing: lists of tensors that exist only here. A name bound to
 * one is a tn_value without a type that stands in no graph; c->sequences holds its tensors. Only the operators below
 * and those that pass values through (onnx_takes_sequences) ever see it; a graph's inputs and outputs are tensors. */
#include <string.h>

#include "import/onnx/emit.h"

typedef struct onnx_sequence {
    int count; /* -1: an optional without a value */
    tn_value *item[];
} sequence;

static sequence *find(onnx_ctx *c, const tn_value *value)
{
    return value && c->sequences.len ? tn_map_get(&c->sequences, TN_KEY(value)) : NULL;
}

bool onnx_is_sequence(onnx_ctx *c, const tn_value *value)
{
    return find(c, value) != NULL;
}

bool onnx_takes_sequences(const char *op_type)
{
    static const char *const names[] = {"SequenceAt",         "SequenceInsert", "SequenceErase", "SequenceLength",
                                        "ConcatFromSequence", "SequenceMap",    "Optional",      "OptionalHasElement",
                                        "OptionalGetElement", "Identity",       "Loop"};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (!strcmp(names[i], op_type))
            return true;
    return false;
}

/* A new sequence of `count` tensors (to be filled in) and the value that stands for it. Its length counts towards the
 * limit of nodes, so that a short file cannot ask for long lists again and again. */
static sequence *new_sequence(onnx_ctx *c, int count, tn_value **value)
{
    size_t items = count > 0 ? (size_t)count : 0;
    c->nodes += items / 16;
    sequence *s = tn_alloc(&c->session->arena, sizeof *s + items * sizeof *s->item);
    s->count = count;
    *value = TN_NEW(&c->session->arena, tn_value);
    *tn_map_at(&c->sequences, TN_KEY(*value)) = s;
    return s;
}

static sequence *input_sequence(onnx_ctx *c, const onnx_node *n)
{
    sequence *s = find(c, onnx_in(n, 0));
    if (!s || s->count < 0) {
        onnx_unsupported(c, n, "the first input must be a sequence whose length is known");
        return NULL;
    }
    return s;
}

/* The position that input i names, in [0, limit), counted from the end of `length` when negative; `otherwise` without
 * the input. */
static bool position(onnx_ctx *c, const onnx_node *n, int i, int length, int limit, int otherwise, int *out)
{
    int64_t at;
    int count;
    *out = otherwise;
    if (onnx_in(n, i)) {
        if (!onnx_static_ints(c, n->input[i], &at, 1, &count) || count != 1)
            return onnx_unsupported(c, n, "the position must be constant");
        if (at < -(int64_t)length || at >= limit)
            return onnx_error(c, n, "position %lld in a sequence of length %d", (long long)at, length);
        *out = (int)(at < 0 ? at + length : at);
    }
    return *out >= 0 || onnx_error(c, n, "the sequence is empty");
}

bool onnx_SequenceEmpty(onnx_ctx *c, const onnx_node *n)
{
    tn_value *value;
    new_sequence(c, 0, &value);
    return onnx_set_output(c, n, 0, value);
}

bool onnx_SequenceConstruct(onnx_ctx *c, const onnx_node *n)
{
    tn_value *value;
    sequence *s = new_sequence(c, n->ninputs, &value);
    for (int i = 0; i < n->ninputs; i++)
        if (!(s->item[i] = n->input[i]))
            return onnx_error(c, n, "input %d is missing", i);
    return onnx_set_output(c, n, 0, value);
}

bool onnx_SequenceLength(onnx_ctx *c, const onnx_node *n)
{
    sequence *s = input_sequence(c, n);
    return s && onnx_set_output(c, n, 0, onnx_int(c, TN_I64, s->count));
}

bool onnx_SequenceAt(onnx_ctx *c, const onnx_node *n)
{
    int at;
    sequence *s = input_sequence(c, n);
    return s && position(c, n, 1, s->count, s->count, -1, &at) && onnx_set_output(c, n, 0, s->item[at]);
}

bool onnx_SequenceInsert(onnx_ctx *c, const onnx_node *n)
{
    int at;
    tn_value *value;
    sequence *s = input_sequence(c, n);
    if (!s || s->count >= 1 << 16 || !position(c, n, 2, s->count, s->count + 1, s->count, &at))
        return false;
    if (onnx_is_sequence(c, n->input[1]))
        return onnx_error(c, n, "the element must be a tensor");
    sequence *out = new_sequence(c, s->count + 1, &value);
    for (int i = 0; i < out->count; i++)
        out->item[i] = i < at ? s->item[i] : i == at ? n->input[1] : s->item[i - 1];
    return onnx_set_output(c, n, 0, value);
}

bool onnx_SequenceErase(onnx_ctx *c, const onnx_node *n)
{
    int at;
    tn_value *value;
    sequence *s = input_sequence(c, n);
    if (!s || !position(c, n, 1, s->count, s->count, s->count - 1, &at))
        return false;
    sequence *out = new_sequence(c, s->count - 1, &value);
    for (int i = 0; i < out->count; i++)
        out->item[i] = s->item[i < at ? i : i + 1];
    return onnx_set_output(c, n, 0, value);
}

/* ---- to and from one tensor
 * --------------------------------------------------------------------------------------------------- */

static tn_value *with_axis(onnx_ctx *c, tn_value *x, int axis)
{
    tn_dim dims[TN_MAX_RANK];
    for (int i = 0, j = 0; i <= x->type.rank; i++)
        dims[i] = i == axis ? emit_dim(c, 1) : x->type.dim[j++];
    return tn_reshape(&c->b, x, dims, x->type.rank + 1);
}

static tn_value *without_axis(onnx_ctx *c, tn_value *x, int axis)
{
    tn_dim dims[TN_MAX_RANK];
    if (!x)
        return NULL;
    for (int i = 0, j = 0; i < x->type.rank; i++)
        if (i != axis)
            dims[j++] = x->type.dim[i];
    return tn_reshape(&c->b, x, dims, x->type.rank - 1);
}

bool onnx_ConcatFromSequence(onnx_ctx *c, const onnx_node *n)
{
    sequence *s = input_sequence(c, n);
    bool stack = onnx_attr_int(c, n, "new_axis", 0) != 0;
    int axis;
    if (!s || s->count == 0)
        return s ? onnx_error(c, n, "the sequence is empty") : false;
    int rank = s->item[0]->type.rank + stack;
    if (rank > TN_MAX_RANK || !onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), rank, &axis))
        return false;
    tn_value **parts = TN_NEW_ARRAY(&c->session->arena, tn_value *, (size_t)s->count);
    for (int i = 0; i < s->count; i++) {
        if (s->item[i]->type.rank + stack != rank)
            return onnx_error(c, n, "the sequence's tensors have different ranks");
        parts[i] = stack ? with_axis(c, s->item[i], axis) : s->item[i];
    }
    return onnx_set_output(c, n, 0, s->count == 1 ? parts[0] : tn_concatenate(&c->b, parts, s->count, axis));
}

enum { MAX_PARTS = 4096 };

/* Sizes of the parts, into room for MAX_PARTS: those that a list gives, else equal ones (the last may be smaller). */
static bool part_sizes(onnx_ctx *c, const onnx_node *n, tn_dim size, tn_dim *sizes, int *count)
{
    int64_t each = 1;
    tn_value *split = onnx_in(n, 1);
    if (split && split->type.rank == 1) {
        if (!tn_dim_is_const(split->type.dim[0]) || split->type.dim[0]->value > ONNX_MAX_KNOWN)
            return onnx_unsupported(c, n, "a list of sizes must have a known number of at most %d entries",
                                    ONNX_MAX_KNOWN);
        *count = (int)split->type.dim[0]->value;
        return onnx_runtime_dims(c, n, split, *count, NULL, sizes);
    }
    if (split && (!onnx_static_ints(c, split, &each, 1, count) || each < 1))
        return onnx_unsupported(c, n, "the size of the parts must be constant and positive");
    if (!tn_dim_is_const(size) || tn_ceildiv(size->value, each) > MAX_PARTS)
        return onnx_unsupported(c, n, "the size of the dimension must be known, and give at most %d parts", MAX_PARTS);
    *count = (int)tn_ceildiv(size->value, each);
    for (int i = 0; i < *count; i++)
        sizes[i] = emit_dim(c, tn_min(each, size->value - i * each));
    return true;
}

bool onnx_SplitToSequence(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *value;
    int axis, count;
    tn_dim *sizes = TN_NEW_ARRAY(&c->session->arena, tn_dim, MAX_PARTS), at = emit_dim(c, 0);
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", 0), x->type.rank, &axis) ||
        !part_sizes(c, n, x->type.dim[axis], sizes, &count))
        return false;
    bool squeeze = !onnx_in(n, 1) && !onnx_attr_int(c, n, "keepdims", 1);
    sequence *s = new_sequence(c, count, &value);
    for (int i = 0; i < count; i++) {
        if (sizes[i]->hi < 0)
            return onnx_error(c, n, "part %d has a negative size", i);
        tn_dim end = tn_dim_add(c->session, at, sizes[i]);
        s->item[i] = emit_slice_axis(c, x, axis, at, end, 1);
        c->nodes++;
        if (squeeze)
            s->item[i] = without_axis(c, s->item[i], axis);
        if (!s->item[i])
            return false;
        at = end;
    }
    return onnx_set_output(c, n, 0, value);
}

/* ---- SequenceMap
 * ----------------------------------------------------------------------------------------------------------------- */

/* The body once for each element; inputs that are tensors are the same in every call. */
bool onnx_SequenceMap(onnx_ctx *c, const onnx_node *n)
{
    const onnx_graph *body = onnx_attr_graph(c, n, "body");
    sequence *s = input_sequence(c, n);
    if (!body || !s || body->output.len > 64 || (size_t)n->noutputs > body->output.len)
        return s ? onnx_error(c, n, "the body does not fit the node") : false;
    tn_value **args = TN_NEW_ARRAY(&c->session->arena, tn_value *, (size_t)n->ninputs + 1), *results[64], *values[64];
    sequence *out[64];
    for (size_t k = 0; k < body->output.len; k++)
        out[k] = new_sequence(c, s->count, &values[k]);
    for (int i = 0; i < s->count; i++) {
        for (int k = 0; k < n->ninputs; k++) {
            sequence *other = find(c, n->input[k]);
            if (other && other->count != s->count)
                return onnx_error(c, n, "the sequences have different lengths");
            args[k] = other ? other->item[i] : n->input[k];
        }
        if (!onnx_subgraph(c, n, body, c->b.block, args, n->ninputs, results))
            return false;
        for (size_t k = 0; k < body->output.len; k++)
            out[k]->item[i] = results[k];
    }
    for (int k = 0; k < n->noutputs; k++)
        onnx_set_output(c, n, k, values[k]);
    return true;
}

/* ---- optionals: a value is its own optional
 * --------------------------------------------------------------------------------------- */

bool onnx_Optional(onnx_ctx *c, const onnx_node *n)
{
    tn_value *none;
    if (onnx_in(n, 0))
        return onnx_set_output(c, n, 0, n->input[0]);
    new_sequence(c, -1, &none);
    return onnx_set_output(c, n, 0, none);
}

bool onnx_OptionalHasElement(onnx_ctx *c, const onnx_node *n)
{
    const sequence *s = find(c, onnx_in(n, 0));
    bool has = onnx_in(n, 0) && !(s && s->count < 0);
    return onnx_set_output(c, n, 0,
                           tn_constant(&c->b, tn_tensor_splat(c->session, TN_BOOL, 0, NULL, (tn_number){.u = has})));
}

bool onnx_OptionalGetElement(onnx_ctx *c, const onnx_node *n)
{
    const sequence *s = find(c, n->input[0]);
    if (s && s->count < 0)
        return onnx_error(c, n, "the optional has no value");
    return onnx_set_output(c, n, 0, n->input[0]);
}
