/* The reference interpreter behind the public API. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

static bool is_dense(const DLTensor *t)
{
    int64_t expected = 1;
    for (int d = t->ndim - 1; t->strides && d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != expected)
            return false;
        expected *= t->shape[d];
    }
    return true;
}

static void gather(tn_tensor *to, const DLTensor *from, int axis, const char *data, size_t element, char **at)
{
    if (axis == to->rank) {
        memcpy(*at, data, element);
        *at += element;
        return;
    }
    for (int64_t i = 0; i < to->dim[axis]; i++)
        gather(to, from, axis + 1, data + i * from->strides[axis] * (int64_t)element, element, at);
}

tn_status tn_api_tensor(tn_session *session, tn_arena *arena, const DLTensor *from, const char *what, tn_tensor *to)
{
    int64_t n = 0;
    size_t bytes;
    *to = (tn_tensor){.dtype = tn_dtype_from_dlpack(from->dtype), .rank = from->ndim};
    if (to->dtype == TN_NO_DTYPE || from->device.device_type != 1)
        return tn_error(session, TN_USAGE, TN_NO_LOC, "%s: expected memory of the CPU and an element type that Tenon has", what);
    if (from->ndim < 0 || from->ndim > TN_MAX_RANK)
        return tn_error(session, TN_USAGE, TN_NO_LOC, "%s: expected at most %d dimensions, found %d", what, TN_MAX_RANK, from->ndim);
    if (from->ndim > 0 && !from->shape)
        return tn_error(session, TN_USAGE, TN_NO_LOC, "%s: its shape is NULL", what);
    for (int d = 0; d < from->ndim; d++)
        to->dim[d] = from->shape[d];
    if (!tn_tensor_count(to, &n) || !tn_dtype_bytes(to->dtype, n, &bytes))
        return tn_error(session, TN_INVALID, TN_NO_LOC, "%s: its size overflows or is negative", what);
    to->data = (const char *)from->data + from->byte_offset;
    if (n > 0 && !is_dense(from)) {
        if (tn_dtype_bits(to->dtype) < 8)
            return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "%s: elements of less than a byte must be dense", what);
        char *copy = tn_alloc_aligned(arena, bytes, TN_ALIGN), *at = copy;
        gather(to, from, 0, to->data, (size_t)tn_dtype_bits(to->dtype) / 8, &at);
        to->data = copy;
    }
    return TN_OK;
}

typedef struct reference_call {
    tn_session *session;
    const tn_network *network;
    const DLTensor *inputs;
    size_t ninputs;
    DLTensor *outputs;
    size_t noutputs;
    tn_arena arena;
} reference_call;

static tn_status take_result(tn_session *session, const tn_tensor *tensor, DLTensor *out)
{
    size_t bytes, head = ((size_t)tensor->rank * sizeof(int64_t) + TN_ALIGN) & ~(size_t)(TN_ALIGN - 1);
    int64_t n;
    if (!tn_tensor_count(tensor, &n) || !tn_dtype_bytes(tensor->dtype, n, &bytes))
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "an output's size overflows");
    char *block = aligned_alloc(TN_ALIGN, (head + bytes + TN_ALIGN) & ~(size_t)(TN_ALIGN - 1));
    if (!block)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for an output of %zu bytes", bytes);
    memcpy(block, tensor->dim, sizeof(int64_t) * (size_t)tensor->rank);
    *out = (DLTensor){.data = block + head, .device = {1, 0}, .ndim = tensor->rank, .dtype = tn_dtype_to_dlpack(tensor->dtype), .shape = (int64_t *)(void *)block};
    for (int64_t i = 0; tensor->splat && i < n; i++)
        tn_number_store(tensor->dtype, out->data, i, tn_tensor_at(tensor, 0));
    if (!tensor->splat && bytes)
        memcpy(out->data, tensor->data, bytes);
    return TN_OK;
}

static tn_status evaluate(void *argument)
{
    reference_call *c = argument;
    tn_tensor *inputs = TN_NEW_ARRAY(&c->session->arena, tn_tensor, c->ninputs + 1);
    const tn_tensor **pointers = TN_NEW_ARRAY(&c->session->arena, const tn_tensor *, c->ninputs + 1);
    tn_tensor **results = TN_NEW_ARRAY(&c->session->arena, tn_tensor *, c->noutputs + 1);
    tn_eval_options options = {0};
    c->arena.on_oom = c->session->arena.on_oom;
    for (size_t i = 0; i < c->ninputs; i++) {
        const tn_value_info *info = &c->network->inputs[i];
        TN_TRY(tn_api_tensor(c->session, &c->arena, &c->inputs[i], tn_format(&c->session->arena, "input %zu '%s'", i, info->name), &inputs[i]));
        pointers[i] = &inputs[i];
        if (inputs[i].dtype != c->network->graph->body->arg[i]->type.dtype)
            return tn_error(c->session, TN_INVALID, TN_NO_LOC, "input %zu '%s': expected elements of type %s, found %s", i, info->name, info->dtype_name,
                            tn_dtype_text(inputs[i].dtype));
    }
    TN_TRY(tn_eval_graph(c->session, &c->arena, c->network->graph, pointers, results, &options));
    for (size_t i = 0; i < c->noutputs; i++)
        TN_TRY(take_result(c->session, results[i], &c->outputs[i]));
    return TN_OK;
}

tn_status tn_run_reference(tn_session *session, const tn_network *network, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs)
{
    if (!session || !network || (!inputs && ninputs) || (!outputs && noutputs))
        return TN_USAGE;
    if (ninputs != tn_input_count(network) || noutputs != tn_output_count(network))
        return tn_error(session, TN_USAGE, TN_NO_LOC, "expected %zu inputs and %zu outputs, found %zu and %zu", tn_input_count(network),
                        tn_output_count(network), ninputs, noutputs);
    reference_call c = {.session = session, .network = network, .inputs = inputs, .ninputs = ninputs, .outputs = outputs, .noutputs = noutputs};
    for (size_t i = 0; i < noutputs; i++)
        outputs[i] = (DLTensor){.ndim = 0};
    tn_status status = tn_api_guard(session, evaluate, &c);
    tn_arena_free(&c.arena);
    for (size_t i = 0; i < noutputs && status != TN_OK; i++)
        tn_tensor_free(&outputs[i]);
    return status;
}
