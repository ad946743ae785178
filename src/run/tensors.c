/* Inputs and outputs as the caller has them: used where they lie if dense and aligned, else through a copy. */
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

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

static bool usable(const DLTensor *t, tn_dtype dtype)
{
    return is_dense(t) && (uintptr_t)data_of(t) % element_align(dtype) == 0;
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

static tn_status stage(struct tn_context *s, int buffer)
{
    int64_t wanted = s->layout.bytes[buffer];
    if (!s->staging[buffer] || wanted > s->staging_size[buffer]) {
        free(s->staging[buffer]);
        s->staging[buffer] = tn_state_memory(s, wanted);
        s->staging_size[buffer] = wanted;
    }
    s->pointer[buffer] = s->staging[buffer];
    return s->staging[buffer] ? TN_OK : TN_NO_MEMORY;
}

static tn_status take_input(struct tn_context *s, int i, const DLTensor *input)
{
    int buffer = s->exec->input[i];
    tn_dtype dtype = tn_dtype_from_dlpack(input->dtype);
    if (!input->data && s->layout.bytes[buffer] > 0)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "input %d: its data is NULL", i);
    if (!is_dense(input) && tn_dtype_bits(dtype) < 8)
        return tn_error(&s->session, TN_UNSUPPORTED, TN_NO_LOC, "input %d: elements of less than a byte must be dense", i);
    if (usable(input, dtype)) {
        s->pointer[buffer] = data_of(input);
        return TN_OK;
    }
    TN_TRY(stage(s, buffer));
    copy(input, dtype, s->layout.bytes[buffer], s->staging[buffer], true);
    return TN_OK;
}

tn_status tn_state_take_inputs(struct tn_context *s, const DLTensor *inputs)
{
    for (int i = 0; i < s->exec->ninputs; i++)
        if (s->exec->input[i] >= 0)
            TN_TRY(take_input(s, i, &inputs[i]));
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
    char *block = tn_state_memory(s, bytes + head);
    if (!block)
        return TN_NO_MEMORY;
    memcpy(block, dims, sizeof *dims * (size_t)type->rank);
    s->outputs[o] = (DLTensor){.data = block + head, .device = {1, 0}, .ndim = type->rank, .dtype = tn_dtype_to_dlpack(type->dtype), .shape = (int64_t *)(void *)block};
    s->ours[o] = true;
    return TN_OK;
}

static tn_status check_output(struct tn_context *s, int o, const int64_t *dims)
{
    const DLTensor *t = &s->outputs[o];
    const tn_type *type = output_type(s, o);
    if (t->device.device_type != 1)
        return tn_error(&s->session, TN_USAGE, TN_NO_LOC, "output %d: expected memory of the CPU (device 1), found device %d", o, t->device.device_type);
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
    if (!t->data)
        TN_TRY(allocate(s, o, dims, s->layout.bytes[buffer]));
    else
        TN_TRY(check_output(s, o, dims));
    if (!usable(t, output_type(s, o)->dtype))
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

void tn_state_give_outputs(struct tn_context *s)
{
    for (int o = 0; o < s->exec->noutputs; o++) {
        int buffer = s->exec->output[o];
        if (buffer >= 0 && s->outputs[o].data && !usable(&s->outputs[o], output_type(s, o)->dtype))
            copy(&s->outputs[o], output_type(s, o)->dtype, s->layout.bytes[buffer], s->staging[buffer], false);
    }
}

void tn_state_release(DLTensor *tensor)
{
    if (tensor->shape)
        free(tensor->shape);
    *tensor = (DLTensor){.ndim = 0};
}

void tn_state_drop_outputs(struct tn_context *s)
{
    for (int o = 0; o < s->exec->noutputs; o++)
        if (s->ours[o])
            tn_state_release(&s->outputs[o]);
}
