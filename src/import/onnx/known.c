/* Contents of small integer tensors, known while importing: numbers, dimensions, or symbols born when the graph runs.
 */
#include <string.h>

#include "import/onnx/internal.h"

typedef struct contents {
    tn_block *block; /* where the symbols in dim are born or known: they mean nothing outside */
    int count;
    tn_dim dim[];
} contents;

/* The innermost block being filled, and those around it (graph.c pushes and pops). */
static bool in_scope(const onnx_ctx *c, const tn_block *block)
{
    for (const onnx_region *r = c->region; r; r = r->outer)
        if (r->block == block)
            return true;
    return false;
}

const tn_tensor *onnx_constant_tensor(onnx_ctx *c, const tn_value *value)
{
    (void)c;
    return value ? tn_constant_of(value) : NULL;
}

bool onnx_constant_number(onnx_ctx *c, const tn_value *value, double *out)
{
    const tn_tensor *t = onnx_constant_tensor(c, value);
    int64_t count;
    if (!t || !tn_tensor_count(t, &count) || count != 1)
        return false;
    *out = tn_number_to_double(t->dtype, tn_tensor_at(t, 0));
    return true;
}

static bool is_list(tn_dtype dtype, int rank)
{
    return rank <= 1 && tn_is_integer(dtype);
}

bool onnx_static_ints(onnx_ctx *c, const tn_value *value, int64_t *out, int max, int *count)
{
    tn_dim dims[ONNX_MAX_KNOWN];
    const tn_tensor *t = onnx_constant_tensor(c, value);
    int64_t n;
    *count = 0;
    if (t) {
        if (!is_list(t->dtype, t->rank) || !tn_tensor_count(t, &n) || n > max)
            return false;
        for (int64_t i = 0; i < n; i++)
            out[i] = tn_number_to_int(t->dtype, tn_tensor_at(t, i));
        *count = (int)n;
        return true;
    }
    if (!onnx_known_dims(c, value, dims, count) || *count > max)
        return false;
    for (int i = 0; i < *count; i++) {
        if (!tn_dim_is_const(dims[i]))
            return false;
        out[i] = dims[i]->value;
    }
    return true;
}

bool onnx_partial_dims(onnx_ctx *c, const tn_value *value, tn_dim *dims, int *count)
{
    int64_t ints[ONNX_MAX_KNOWN];
    *count = 0;
    if (!value || !is_list(value->type.dtype, value->type.rank))
        return false;
    const contents *k = tn_map_get(&c->known, TN_KEY(value));
    if (k && in_scope(c, k->block)) {
        *count = k->count;
        memcpy(dims, k->dim, (size_t)k->count * sizeof *dims);
        return true;
    }
    if (!tn_constant_of(value) || !onnx_static_ints(c, value, ints, ONNX_MAX_KNOWN, count))
        return false;
    for (int i = 0; i < *count; i++)
        dims[i] = tn_dim_const(c->session, ints[i]);
    return true;
}

bool onnx_known_dims(onnx_ctx *c, const tn_value *value, tn_dim *dims, int *count)
{
    if (!onnx_partial_dims(c, value, dims, count))
        return false;
    for (int i = 0; i < *count; i++)
        if (!dims[i])
            return false;
    return true;
}

void onnx_assume_not(onnx_ctx *c, const onnx_node *n, tn_dim dim, int64_t size, const char *why)
{
    tn_session *s = c->session;
    tn_dim number = tn_dim_const(s, size), one = tn_dim_const(s, 1);
    if (tn_dim_ne(s, dim, number))
        return;
    tn_dim distance = tn_dim_max(s, tn_dim_sub(s, dim, number), tn_dim_sub(s, number, dim));
    tn_text text = {.arena = &s->arena};
    tn_text_add(&text, "%s: dimension ", n->op_type);
    tn_text_dim(&text, dim);
    tn_text_add(&text, " is %lld in this run: %s. A size that is fixed when the network is loaded (--dim) may be any", (long long)size, why);
    tn_require_equal(&c->b, tn_dim_max(s, distance, one), distance, text.at);
}

void onnx_set_known_dims(onnx_ctx *c, const tn_value *value, const tn_dim *dims, int count)
{
    if (!value || count > ONNX_MAX_KNOWN)
        return;
    contents *k = tn_alloc(&c->session->arena, sizeof *k + (size_t)count * sizeof *dims);
    k->block = c->b.block;
    k->count = count;
    if (count)
        memcpy(k->dim, dims, (size_t)count * sizeof *dims);
    *tn_map_at(&c->known, TN_KEY(value)) = k;
}

tn_value *onnx_ints(onnx_ctx *c, tn_dtype dtype, const int64_t *values, int count)
{
    int64_t dim = count;
    const tn_tensor *t = tn_tensor_from_i64(c->session, 1, &dim, values);
    return tn_convert(&c->b, tn_constant(&c->b, t), dtype);
}

tn_value *onnx_int(onnx_ctx *c, tn_dtype dtype, int64_t value)
{
    return tn_int_constant(&c->b, dtype, value);
}

static bool all_constant(const tn_dim *dims, int count)
{
    for (int i = 0; i < count; i++)
        if (!tn_dim_is_const(dims[i]))
            return false;
    return true;
}

/* One constant of the exact type, so that no operation stands between a shape and its use. */
static tn_value *constant_list(onnx_ctx *c, tn_dtype dtype, int rank, const tn_dim *dims, int count)
{
    size_t bytes;
    tn_dtype_bytes(dtype, count, &bytes);
    tn_tensor *t = TN_NEW(&c->session->arena, tn_tensor);
    void *data = tn_alloc(&c->session->arena, bytes + 1);
    *t = (tn_tensor){.dtype = dtype, .rank = rank, .dim = {count}, .data = data};
    for (int i = 0; i < count; i++)
        tn_number_store(dtype, data, i, tn_number_from_int(dtype, dims[i]->value));
    return tn_constant(&c->b, t);
}

tn_value *onnx_dims_value(onnx_ctx *c, tn_dtype dtype, int rank, const tn_dim *dims, int count)
{
    tn_value *parts[ONNX_MAX_KNOWN], *out;
    tn_dim one = tn_dim_const(c->session, 1);
    if (all_constant(dims, count)) {
        out = constant_list(c, dtype, rank, dims, count);
    } else if (rank == 0) {
        out = tn_convert(&c->b, tn_dimension(&c->b, dims[0]), dtype);
    } else {
        for (int i = 0; i < count; i++)
            parts[i] = tn_reshape(&c->b, tn_dimension(&c->b, dims[i]), &one, 1);
        out = tn_convert(&c->b, count == 1 ? parts[0] : tn_concatenate(&c->b, parts, count, 0), dtype);
    }
    onnx_set_known_dims(c, out, dims, count);
    return out;
}

tn_dim onnx_dim_div(onnx_ctx *c, tn_dim a, tn_dim b)
{
    tn_session *s = c->session;
    if (tn_dim_eq(s, a, b))
        return tn_dim_const(s, 1);
    if (b->lo > 0)
        return tn_dim_floordiv(s, a, b);
    if (a->kind == TN_DIM_MUL && b->kind != TN_DIM_CONST) {
        /* Take out of a each factor of b; what is left of b divides as usual. */
        const tn_dim *factors = b->kind == TN_DIM_MUL ? b->operand : &b;
        int nfactors = b->kind == TN_DIM_MUL ? b->noperands : 1;
        bool used[TN_MAX_RANK * 4] = {false};
        tn_dim rest_a = tn_dim_const(s, 1), rest_b = tn_dim_const(s, 1);
        if (a->noperands <= (int)TN_COUNT(used)) {
            for (int i = 0; i < nfactors; i++) {
                int j = 0;
                while (j < a->noperands && (used[j] || a->operand[j] != factors[i]))
                    j++;
                if (j < a->noperands)
                    used[j] = true;
                else
                    rest_b = tn_dim_mul(s, rest_b, factors[i]);
            }
            for (int j = 0; j < a->noperands; j++)
                if (!used[j])
                    rest_a = tn_dim_mul(s, rest_a, a->operand[j]);
            a = rest_a, b = rest_b;
        }
    }
    return tn_dim_floordiv(s, a, b->lo > 0 ? b : tn_dim_max(s, b, tn_dim_const(s, 1)));
}

/* Gives birth to a symbol from element i of a list (or from a scalar). */
static tn_dim born(onnx_ctx *c, tn_value *value, int i, tn_dim upper)
{
    tn_session *s = c->session;
    tn_dim start = tn_dim_const(s, i), limit = tn_dim_const(s, i + 1);
    int64_t stride = 1;
    tn_value *x =
        value->type.rank == 0 ? value : tn_reshape(&c->b, tn_slice(&c->b, value, &start, &limit, &stride), NULL, 0);
    x = tn_convert(&c->b, x, TN_I64);
    if (!x)
        return NULL;
    tn_dim symbol = tn_dim_fresh(s, "n", 0, upper ? upper->hi : (int64_t)1 << 40);
    tn_attr attrs[2] = {{.name = TN_A_dim, .dim = symbol}, {.name = TN_A_upper, .dim = upper}};
    return tn_build(&c->b, TN_OP_define_dimension, &x, 1, attrs, upper ? 2 : 1, NULL, 0) ? symbol : NULL;
}

bool onnx_runtime_dims(onnx_ctx *c, const onnx_node *n, tn_value *value, int count, const tn_dim *upper, tn_dim *out)
{
    tn_dim dims[ONNX_MAX_KNOWN] = {NULL};
    int have = 0;
    const tn_type *t = &value->type;
    if (count > ONNX_MAX_KNOWN || !is_list(t->dtype, t->rank) ||
        (t->rank == 0 ? count != 1 : !tn_dim_is(t->dim[0], count)))
        return onnx_error(c, n, "expected %d integers that say a shape, found a tensor of type %s and rank %d", count,
                          tn_dtype_text(t->dtype), t->rank);
    if (!onnx_partial_dims(c, value, dims, &have))
        memset(dims, 0, sizeof dims);
    for (int i = 0; i < count; i++)
        if (!dims[i] && !(dims[i] = born(c, value, i, upper ? upper[i] : NULL)))
            return false;
    onnx_set_known_dims(c, value, dims, count);
    memcpy(out, dims, (size_t)count * sizeof *out);
    return true;
}
