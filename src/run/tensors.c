/* Inputs and outputs as the caller has them: used where they lie if they are dense and aligned, and where kernels run; else through a copy. */
#include <stdlib.h>
#include <string.h>

#include "run/device.h"

static size_t element_align(tn_dtype dtype)
{
    size_t bytes = (size_t)tn_dtype_bits(dtype) / 8;
    return bytes < 1 ? 1 : tn_is_complex(dtype) ? bytes / 2 : bytes;
}

static bool is_dense(const DLTensor *t)
{
    int64_t expected = 1;
    bool dense = true;
    for (int d = t->ndim - 1; t->strides && d >= 0; d--) {
        if (t->shape[d] == 0)
            return true;
        dense = dense && (t->shape[d] == 1 || t->strides[d] == expected);
        expected *= t->shape[d];
    }
    return dense;
}

static char *data_of(const DLTensor *t) { return (char *)t->data + t->byte_offset; }

static bool on_gpu(DLDevice device) { return device.device_type == TN_DEVICE_CUDA || device.device_type == TN_DEVICE_CUDA_MANAGED; }

/* Device 0 is what a cleared DLTensor says, as outputs without data may. */
static bool on_host(const struct tn_context *s, DLDevice device)
{
    return device.device_type == TN_DEVICE_CPU || (s->gpu && device.device_type == TN_DEVICE_CUDA_HOST);
}

tn_status tn_state_check_device(struct tn_context *s, const char *what, int i, DLDevice device)
{
    if (on_host(s, device) || (s->gpu && on_gpu(device) && device.device_id == s->exec->device))
        return TN_OK;
    if (!s->gpu)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "%s %d: expected memory of the CPU (device 1), found device %d", what, i, device.device_type);
    return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "%s %d: expected memory of the CPU (device 1) or of GPU %d (device 2), found device %d, number %d", what, i,
                    s->exec->device, device.device_type, device.device_id);
}

/* A GPU does not load vectors from addresses that their size does not divide: there all buffers are aligned as those of a segment. */
static bool usable(const struct tn_context *s, const DLTensor *t, tn_dtype dtype)
{
    return is_dense(t) && (s->gpu != NULL) == on_gpu(t->device) && (uintptr_t)data_of(t) % (s->gpu ? (size_t)TN_ALIGN : element_align(dtype)) == 0;
}

/* Copies between a dense array and a tensor of any strides, element by element along the last axis. */
static void copy_strided(const DLTensor *t, int axis, size_t element, char *strided, char **dense, bool to_dense)
{
    if (axis == t->ndim) {
        memcpy(to_dense ? *dense : strided, to_dense ? strided : *dense, element);
        *dense += element;
        return;
    }
    for (int64_t i = 0; i < t->shape[axis]; i++)
        copy_strided(t, axis + 1, element, strided + i * t->strides[axis] * (int64_t)element, dense, to_dense);
}

static void copy(const DLTensor *t, tn_dtype dtype, int64_t bytes, void *dense, bool to_dense)
{
    char *at = dense;
    if (bytes == 0)
        return;
    if (is_dense(t))
        memcpy(to_dense ? dense : data_of(t), to_dense ? data_of(t) : dense, (size_t)bytes);
    else
        copy_strided(t, 0, (size_t)tn_dtype_bits(dtype) / 8, data_of(t), &at, to_dense);
}

/* Host memory for the dense form of a tensor of the host that goes to or comes from a GPU. */
static tn_status stage_host(struct tn_context *s, int buffer)
{
    struct tn_gpu_run *r = s->gpu;
    int64_t wanted = s->layout.bytes[buffer];
    if (!r->host[buffer] || wanted > r->host_size[buffer]) {
        free(r->host[buffer]);
        r->host[buffer] = tn_state_host_memory(s, wanted, tn_state_buffer_text(s, buffer));
        r->host_size[buffer] = wanted;
    }
    return r->host[buffer] ? TN_OK : TN_NO_MEMORY;
}

static tn_status no_strides(struct tn_context *s, const char *what, int i)
{
    return tn_error(&s->session, TN_UNSUPPORTED, TN_NO_LOC, "%s %d: a tensor on a GPU must be dense", what, i);
}

/* To where kernels run. */
static tn_status bring(struct tn_context *s, int i, const DLTensor *t, tn_dtype dtype, int buffer)
{
    int64_t bytes = s->layout.bytes[buffer];
    const void *dense = data_of(t);
    if (!s->gpu) {
        copy(t, dtype, bytes, s->staging[buffer], true);
        return TN_OK;
    }
    if (on_gpu(t->device))
        return !is_dense(t) ? no_strides(s, "input", i)
                            : tn_gpu_copy(&s->session, s->gpu->exec->gpu, tn_gpu_address(s->staging[buffer]), tn_gpu_address(dense), bytes, s->gpu->stream);
    if (!is_dense(t)) {
        TN_TRY(stage_host(s, buffer));
        copy(t, dtype, bytes, s->gpu->host[buffer], true);
        dense = s->gpu->host[buffer];
    }
    s->gpu->host_tensors = true;
    return tn_gpu_copy_in(&s->session, s->gpu->exec->gpu, tn_gpu_address(s->staging[buffer]), dense, bytes, s->gpu->stream);
}

static tn_status stage(struct tn_context *s, int buffer)
{
    int64_t wanted = s->layout.bytes[buffer];
    if (!s->staging[buffer] || wanted > s->staging_size[buffer]) {
        void *old = s->staging[buffer];
        s->staging[buffer] = NULL;
        tn_state_give(s, old);
        s->staging[buffer] = tn_state_memory(s, wanted, tn_state_buffer_text(s, buffer));
        s->staging_size[buffer] = wanted;
    }
    s->pointer[buffer] = s->staging[buffer];
    return s->staging[buffer] ? TN_OK : tn_state_why(s);
}

static tn_status take_input(struct tn_context *s, int i, const DLTensor *input)
{
    int buffer = s->exec->input[i];
    tn_dtype dtype = tn_dtype_from_dlpack(input->dtype);
    if (!input->data && s->layout.bytes[buffer] > 0)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "input %d: its data is NULL", i);
    if (!is_dense(input) && tn_dtype_bits(dtype) < 8)
        return tn_error(&s->session, TN_UNSUPPORTED, TN_NO_LOC, "input %d: elements of less than a byte must be dense", i);
    if (usable(s, input, dtype)) {
        s->pointer[buffer] = data_of(input);
        return TN_OK;
    }
    TN_TRY(stage(s, buffer));
    return bring(s, i, input, dtype, buffer);
}

tn_status tn_state_take_inputs(struct tn_context *s, const DLTensor *inputs)
{
    for (int i = 0; i < s->exec->ninputs; i++)
        if (s->exec->input[i] >= 0)
            TN_TRY(take_input(s, i, &inputs[i]));
    return TN_OK;
}

tn_status tn_state_upload(struct tn_context *s, const DLTensor *from, DLTensor *to)
{
    tn_dtype dtype = tn_dtype_from_dlpack(from->dtype);
    int64_t n = 1;
    size_t bytes;
    if (!s->gpu)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "a tensor is put on a GPU, but the context runs on the CPU");
    if (dtype == TN_NO_DTYPE || !on_host(s, from->device) || from->ndim < 0 || from->ndim > TN_MAX_RANK || (from->ndim && !from->shape))
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "expected a tensor of the host, of at most %d dimensions and a type that Tenon has", TN_MAX_RANK);
    for (int d = 0; d < from->ndim; d++)
        if (from->shape[d] < 0 || !tn_mul(n, from->shape[d], &n))
            return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "dimension %d has a size of %lld, which can't be", d, (long long)from->shape[d]);
    if (!tn_dtype_bytes(dtype, n, &bytes) || bytes > INT64_MAX / 4)
        return tn_error(&s->session, TN_NO_MEMORY, TN_NO_LOC, "the tensor's size overflows");
    if (!is_dense(from))
        return no_strides(s, "tensor", 0);
    TN_TRY(tn_device_tensor_new(s, (int64_t)bytes, from->shape, from->ndim, dtype, to));
    TN_TRY(tn_gpu_copy_in(&s->session, s->gpu->exec->gpu, tn_gpu_address(to->data), data_of(from), (int64_t)bytes, s->gpu->stream));
    return tn_gpu_wait(&s->session, s->gpu->exec->gpu, s->gpu->stream);
}

tn_status tn_state_download(struct tn_context *s, const DLTensor *from, void *to, int64_t bytes)
{
    if (s->gpu && on_gpu(from->device))
        return tn_device_read(s, data_of(from), to, bytes);
    memcpy(to, data_of(from), (size_t)bytes);
    return TN_OK;
}

/* ---- outputs -------------------------------------------------------------------------------------------------------------- */

static const tn_type *output_type(const struct tn_context *s, int o)
{
    return &tn_operand(s->exec->program->graph->body->last, o)->type;
}

/* One block: the shape, then the data at a multiple of TN_ALIGN. tn_state_release frees it through `shape`. */
static tn_status allocate(struct tn_context *s, int o, const int64_t *dims, int64_t bytes)
{
    const tn_type *type = output_type(s, o);
    int64_t head = ((int64_t)sizeof(int64_t) * tn_max(type->rank, 1) + TN_ALIGN - 1) & -(int64_t)TN_ALIGN;
    if (s->outputs[o].device.device_type == TN_DEVICE_CUDA && s->gpu) {
        TN_TRY(tn_device_tensor_new(s, bytes, dims, type->rank, type->dtype, &s->outputs[o]));
        s->ours[o] = true;
        return TN_OK;
    }
    char *block = tn_state_host_memory(s, bytes + head, tn_state_buffer_text(s, s->exec->output[o]));
    if (!block)
        return TN_NO_MEMORY;
    memcpy(block, dims, sizeof *dims * (size_t)type->rank);
    s->outputs[o] = (DLTensor){.data = block + head, .device = {TN_DEVICE_CPU, 0}, .ndim = type->rank, .dtype = tn_dtype_to_dlpack(type->dtype), .shape = (int64_t *)(void *)block};
    s->ours[o] = true;
    return TN_OK;
}

static tn_status check_output(struct tn_context *s, int o, const int64_t *dims)
{
    const DLTensor *t = &s->outputs[o];
    const tn_type *type = output_type(s, o);
    TN_TRY(tn_state_check_device(s, "output", o, t->device));
    if (tn_dtype_from_dlpack(t->dtype) != type->dtype)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "output %d: expected elements of type %s", o, tn_dtype_text(type->dtype));
    if (t->ndim != type->rank)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "output %d: expected rank %d, found %d", o, type->rank, t->ndim);
    if (t->ndim > 0 && !t->shape)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "output %d: its shape is NULL", o);
    for (int d = 0; d < type->rank; d++)
        if (t->shape[d] != dims[d])
            return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "output %d: expected size %lld in dimension %d, found %lld", o, (long long)dims[d], d,
                            (long long)t->shape[d]);
    if (!is_dense(t) && tn_dtype_bits(type->dtype) < 8)
        return tn_error(&s->session, TN_UNSUPPORTED, TN_NO_LOC, "output %d: elements of less than a byte must be dense", o);
    return TN_OK;
}

static tn_status take_output(struct tn_context *s, int o)
{
    int buffer = s->exec->output[o];
    int64_t dims[TN_MAX_RANK];
    tn_state_output_shape(s, o, dims);
    DLTensor *t = &s->outputs[o];
    if (!t->data && t->device.device_type != 0)
        TN_TRY(tn_state_check_device(s, "output", o, t->device));
    if (!t->data)
        TN_TRY(allocate(s, o, dims, s->layout.bytes[buffer]));
    else
        TN_TRY(check_output(s, o, dims));
    if (s->gpu && on_gpu(t->device) && !is_dense(t))
        return no_strides(s, "output", o);
    if (!usable(s, t, output_type(s, o)->dtype))
        return stage(s, buffer);
    s->pointer[buffer] = data_of(t);
    return TN_OK;
}

tn_status tn_state_take_outputs(struct tn_context *s, int group)
{
    for (int o = 0; o < s->exec->noutputs; o++)
        if (s->exec->output[o] >= 0 && s->exec->buffers[s->exec->output[o]].group == group)
            TN_TRY(take_output(s, o));
    return TN_OK;
}

/* From where kernels wrote into the tensor, or into what it is spread out from. */
static tn_status fetch(struct tn_context *s, const DLTensor *t, int buffer)
{
    void *to = data_of(t);
    if (on_gpu(t->device))
        return tn_gpu_copy(&s->session, s->gpu->exec->gpu, tn_gpu_address(to), tn_gpu_address(s->staging[buffer]), s->layout.bytes[buffer], s->gpu->stream);
    if (!is_dense(t)) {
        TN_TRY(stage_host(s, buffer));
        to = s->gpu->host[buffer];
    }
    s->gpu->host_tensors = true;
    return tn_gpu_copy_out(&s->session, s->gpu->exec->gpu, to, tn_gpu_address(s->staging[buffer]), s->layout.bytes[buffer], s->gpu->stream);
}

/* Was it computed elsewhere? */
static bool is_staged(const struct tn_context *s, int o)
{
    return s->exec->output[o] >= 0 && s->outputs[o].data && !usable(s, &s->outputs[o], output_type(s, o)->dtype);
}

tn_status tn_state_give_outputs(struct tn_context *s)
{
    for (int o = 0; s->gpu && o < s->exec->noutputs; o++)
        if (is_staged(s, o))
            TN_TRY(fetch(s, &s->outputs[o], s->exec->output[o]));
    if (s->gpu && (s->gpu->host_tensors || s->gpu->stream == s->gpu->own))
        TN_TRY(tn_gpu_wait(&s->session, s->gpu->exec->gpu, s->gpu->stream));
    for (int o = 0; o < s->exec->noutputs; o++)
        if (is_staged(s, o) && !(s->gpu && is_dense(&s->outputs[o])))
            copy(&s->outputs[o], output_type(s, o)->dtype, s->layout.bytes[s->exec->output[o]],
                 s->gpu ? s->gpu->host[s->exec->output[o]] : s->staging[s->exec->output[o]], false);
    return TN_OK;
}

void tn_state_release(DLTensor *tensor)
{
    if (tensor->shape && tensor->device.device_type == TN_DEVICE_CUDA)
        tn_device_tensor_free(tensor);
    else if (tensor->shape)
        free(tensor->shape);
    *tensor = (DLTensor){.ndim = 0};
}

void tn_state_drop_outputs(struct tn_context *s)
{
    for (int o = 0; o < s->exec->noutputs; o++)
        if (s->ours[o])
            tn_state_release(&s->outputs[o]);
}
