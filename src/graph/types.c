/* Tensor types. */
#include "graph/internal.h"

#include <assert.h>

tn_type tn_type_make(tn_dtype dtype, int rank, const tn_dim *dims)
{
    assert(rank >= 0 && rank <= TN_MAX_RANK);
    tn_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.dim[i] = dims[i];
    return type;
}

tn_type tn_type_scalar(tn_dtype dtype) { return (tn_type){.dtype = dtype}; }

bool tn_type_same(const tn_type *a, const tn_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

bool tn_type_is_static(const tn_type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (!tn_dim_is_const(type->dim[i]))
            return false;
    return true;
}

bool tn_type_count(const tn_type *type, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < type->rank; i++)
        if (!tn_dim_is_const(type->dim[i]) || type->dim[i]->value < 0 || !tn_mul(*out, type->dim[i]->value, out))
            return false;
    return true;
}

tn_dim tn_type_elements(tn_session *session, const tn_type *type)
{
    return tn_dim_product(session, type->dim, type->rank);
}

void tn_text_dims(tn_text *text, const tn_dim *dims, int n)
{
    tn_text_add(text, "[");
    for (int i = 0; i < n; i++) {
        tn_text_add(text, i ? ", " : "");
        tn_text_dim(text, dims[i]);
    }
    tn_text_add(text, "]");
}

void tn_text_type(tn_text *text, const tn_type *type)
{
    tn_text_add(text, "%s", tn_dtype_text(type->dtype));
    tn_text_dims(text, type->dim, type->rank);
}
