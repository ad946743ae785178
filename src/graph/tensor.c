/* Constant data. */
#include "graph/internal.h"

#include <assert.h>
#include <string.h>

bool tn_tensor_count(const tn_tensor *tensor, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dim[i] < 0 || !tn_mul(*out, tensor->dim[i], out))
            return false;
    return true;
}

tn_number tn_tensor_at(const tn_tensor *tensor, int64_t index)
{
    return tn_number_load(tensor->dtype, tensor->data, tensor->splat ? 0 : index);
}

static tn_tensor *new_tensor(tn_session *session, tn_dtype dtype, int rank, const int64_t *dims)
{
    assert(rank >= 0 && rank <= TN_MAX_RANK);
    tn_tensor *tensor = TN_NEW(&session->arena, tn_tensor);
    tensor->dtype = dtype;
    tensor->rank = rank;
    for (int i = 0; i < rank; i++)
        tensor->dim[i] = dims[i];
    return tensor;
}

const tn_tensor *tn_tensor_splat(tn_session *session, tn_dtype dtype, int rank, const int64_t *dims, tn_number value)
{
    tn_tensor *tensor = new_tensor(session, dtype, rank, dims);
    void *data = tn_alloc(&session->arena, 16);
    tn_number_store(dtype, data, 0, value);
    tensor->data = data;
    tensor->splat = true;
    return tensor;
}

const tn_tensor *tn_tensor_from_i64(tn_session *session, int rank, const int64_t *dims, const int64_t *values)
{
    tn_tensor *tensor = new_tensor(session, TN_I64, rank, dims);
    int64_t count;
    bool counted = tn_tensor_count(tensor, &count);
    assert(counted);
    (void)counted;
    int64_t *data = TN_NEW_ARRAY(&session->arena, int64_t, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        data[i] = values[i];
    tensor->data = data;
    return tensor;
}

const tn_tensor *tn_tensor_as_splat(tn_session *session, const tn_tensor *tensor)
{
    int64_t count;
    size_t bytes, one = (size_t)tn_dtype_bits(tensor->dtype) / 8;
    if (tensor->splat || !tn_is_float(tensor->dtype) || !tn_tensor_count(tensor, &count) || count < 2 || !tn_dtype_bytes(tensor->dtype, count, &bytes) ||
        memcmp(tensor->data, (const char *)tensor->data + one, bytes - one) != 0)
        return tensor;
    tn_tensor *same = tn_memdup(&session->arena, tensor, sizeof *tensor);
    same->splat = true;
    return same;
}

bool tn_tensor_same(const tn_tensor *a, const tn_tensor *b)
{
    int64_t count;
    size_t bytes;
    if (a == b)
        return true;
    if (a->dtype != b->dtype || a->rank != b->rank || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) != 0)
        return false;
    if (!tn_tensor_count(a, &count) || count == 0)
        return count == 0;
    if (!a->splat && !b->splat && count % 2 == 0) /* an odd number of 4-bit elements leaves half a byte undefined */
        return a->data == b->data || (tn_dtype_bytes(a->dtype, count, &bytes) && memcmp(a->data, b->data, bytes) == 0);
    for (int64_t i = 0; i < (a->splat && b->splat ? 1 : count); i++) {
        char x[16] = {0}, y[16] = {0}; /* bits, not values: -0 and 0 differ */
        tn_number_store(a->dtype, x, 0, tn_tensor_at(a, i));
        tn_number_store(b->dtype, y, 0, tn_tensor_at(b, i));
        if (memcmp(x, y, sizeof x) != 0)
            return false;
    }
    return true;
}
