/* Attention, rotary embedding, cache updates. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

/* ---- attention
 * ---------------------------------------------------------------------------------------------------------------- */

/* [B, S, H * D] to [B, H, S, D]; rank 4 is left. */
static tn_value *split_heads(onnx_ctx *c, const onnx_node *n, tn_value *x, const char *heads_attr)
{
    if (x->type.rank == 4)
        return x;
    int64_t heads = onnx_attr_int(c, n, heads_attr, 0);
    if (x->type.rank != 3 || heads < 1) {
        onnx_error(c, n, "Q, K and V must have rank 4, or rank 3 with `%s`; found rank %d", heads_attr, x->type.rank);
        return NULL;
    }
    tn_dim h = emit_dim(c, heads),
           dims[] = {x->type.dim[0], x->type.dim[1], h, tn_dim_floordiv(c->session, x->type.dim[2], h)};
    x = tn_reshape(&c->b, x, dims, 4);
    return x ? emit_transpose(c, x, EMIT_AXES(0, 2, 1, 3)) : NULL;
}

/* q [B, H, S, D] and kv heads G: [B, G, H / G, S, D], so that each group meets its key head without copies. */
static tn_value *grouped(onnx_ctx *c, tn_value *q, tn_dim kv_heads)
{
    tn_dim dims[] = {q->type.dim[0], kv_heads, tn_dim_floordiv(c->session, q->type.dim[1], kv_heads), q->type.dim[2],
                     q->type.dim[3]};
    return tn_reshape(&c->b, q, dims, 5);
}

/* x [B, H, S, A] by y [B, G, …]: contracts A with y's axis `contract`; the result is [B, H, S, y's other axis]. */
static tn_value *heads_product(onnx_ctx *c, tn_value *x, tn_value *y, int64_t contract)
{
    static const int64_t batch[] = {0, 1};
    if (!x || !y)
        return NULL;
    if (tn_dim_eq(c->session, x->type.dim[1], y->type.dim[1]))
        return tn_dot_general(&c->b, x, y, batch, batch, 2, (int64_t[]){3}, &contract, 1);
    tn_value *wide = grouped(c, x, y->type.dim[1]);
    tn_value *product = tn_dot_general(&c->b, wide, y, batch, batch, 2, (int64_t[]){4}, &contract, 1);
    if (!product)
        return NULL;
    tn_dim dims[] = {x->type.dim[0], x->type.dim[1], x->type.dim[2], product->type.dim[4]};
    return tn_reshape(&c->b, product, dims, 4);
}

static tn_value *hide(onnx_ctx *c, tn_value *score, tn_value *visible)
{
    return !score ? NULL : emit_select(c, visible, score, emit_number(c, score->type.dtype, -INFINITY));
}

/* A mask whose last dimension is shorter than the keys hides the rest. */
static tn_value *full_mask(onnx_ctx *c, tn_value *mask, tn_dim keys)
{
    int rank = mask->type.rank;
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK];
    if (rank < 1 || tn_dim_eq(c->session, mask->type.dim[rank - 1], keys))
        return mask;
    for (int i = 0; i < rank; i++)
        low[i] = high[i] = emit_dim(c, 0);
    high[rank - 1] = tn_dim_sub(c->session, keys, mask->type.dim[rank - 1]);
    return emit_pad_zero(c, mask, low, high,
                         emit_number(c, mask->type.dtype, mask->type.dtype == TN_BOOL ? 0 : -INFINITY));
}

static tn_value *masked(onnx_ctx *c, const onnx_node *n, tn_value *score, tn_value *past_key)
{
    tn_type type = score->type;
    tn_value *mask = onnx_in(n, 3), *lengths = onnx_in(n, 6);
    if (mask) {
        mask = full_mask(c, mask, type.dim[3]);
        score = mask && mask->type.dtype == TN_BOOL ? hide(c, score, mask) : emit_add(c, score, mask);
    }
    if (onnx_attr_int(c, n, "is_causal", 0)) { /* a query sees the keys up to its own place after the past */
        tn_value *query = tn_iota(&c->b, TN_I64, type.dim + 2, 2, 0), *key = tn_iota(&c->b, TN_I64, type.dim + 2, 2, 1);
        if (past_key)
            query = emit_add(c, query, emit_size(c, past_key->type.dim[2], TN_I64));
        score = hide(c, score, emit_compare(c, "LE", key, query));
    }
    if (lengths) {
        tn_dim dims[] = {type.dim[0], emit_dim(c, 1), emit_dim(c, 1), type.dim[3]};
        tn_value *end = emit_broadcast(c, tn_convert(&c->b, lengths, TN_I64), dims, 4, EMIT_AXES(0));
        score = hide(c, score, emit_compare(c, "LT", tn_iota(&c->b, TN_I64, dims, 4, 3), end));
    }
    return score;
}

static tn_value *joined(onnx_ctx *c, tn_value *past, tn_value *x)
{
    return !past || !x ? x : tn_concatenate(&c->b, (tn_value *[]){past, x}, 2, 2);
}

/* `scale`, or 1 / sqrt(size): rank 0. */
static tn_value *head_scale(onnx_ctx *c, const onnx_node *n, tn_dim size, tn_dtype dtype)
{
    if (onnx_has_attr(n, "scale"))
        return emit_number(c, dtype, onnx_attr_float(c, n, "scale", 0));
    if (tn_dim_is_const(size) && size->value > 0)
        return emit_number(c, dtype, 1 / sqrt((double)size->value));
    return tn_convert(&c->b, emit_unary(c, TN_OP_rsqrt, emit_size(c, size, TN_F64)), dtype);
}

bool onnx_op_attention(onnx_ctx *c, const onnx_node *n)
{
    tn_value *q = split_heads(c, n, n->input[0], "q_num_heads"), *past_key = onnx_in(n, 4);
    tn_value *k = joined(c, past_key, split_heads(c, n, n->input[1], "kv_num_heads"));
    tn_value *v = joined(c, onnx_in(n, 5), split_heads(c, n, n->input[2], "kv_num_heads"));
    double softcap = onnx_attr_float(c, n, "softcap", 0);
    tn_dtype precision = onnx_attr_dtype(c, n, "softmax_precision", n->input[0]->type.dtype);
    int64_t mode = onnx_attr_int(c, n, "qk_matmul_output_mode", 0);
    if (!q || !k || !v || precision == TN_NO_DTYPE)
        return false;
    tn_value *root =
        emit_unary(c, TN_OP_sqrt, head_scale(c, n, q->type.dim[3], q->type.dtype)); /* on both sides: no overflow */
    tn_value *score = heads_product(c, emit_mul(c, q, root), emit_mul(c, k, root), 3), *report = score;
    if (softcap > 0)
        score = emit_mul_number(c, emit_unary(c, TN_OP_tanh, emit_mul_number(c, score, 1 / softcap)), softcap);
    if (mode == 1)
        report = score;
    if (!score || !(score = masked(c, n, score, past_key)))
        return false;
    if (mode == 2)
        report = score;
    int64_t axis = 3;
    tn_value *weight = emit_softmax(c, tn_convert(&c->b, score, precision), &axis, 1, false);
    weight = tn_convert(&c->b, weight, q->type.dtype);
    if (mode == 3)
        report = weight;
    tn_value *y = heads_product(c, weight, v, 2);
    if (y && n->input[0]->type.rank == 3) {
        y = emit_transpose(c, y, EMIT_AXES(0, 2, 1, 3));
        tn_dim dims[] = {q->type.dim[0], q->type.dim[2], tn_dim_mul(c->session, q->type.dim[1], v->type.dim[3])};
        y = y ? tn_reshape(&c->b, y, dims, 3) : NULL;
    }
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, n->input[0]->type.dtype)) && onnx_set_output(c, n, 1, k) &&
           onnx_set_output(c, n, 2, v) && onnx_set_output(c, n, 3, report);
}

/* The tensor that subgraph `name` (one input, one output of its shape) makes of x; x itself when there is none. */
static tn_value *modified(onnx_ctx *c, const onnx_node *n, const char *name, tn_value *x)
{
    const onnx_graph *graph = onnx_has_attr(n, name) ? onnx_attr_graph(c, n, name) : NULL;
    tn_value *out[1];
    if (!graph || !x)
        return x;
    if (graph->input.len != 1 || graph->output.len != 1) {
        onnx_error(c, n, "`%s` must have one input and one output", name);
        return NULL;
    }
    return onnx_subgraph(c, n, graph, c->b.block, &x, 1, out) ? out[0] : NULL;
}

bool onnx_op_flex_attention(onnx_ctx *c, const onnx_node *n)
{
    tn_value *q = n->input[0], *k = n->input[1], *v = n->input[2];
    tn_dtype precision = onnx_attr_dtype(c, n, "softmax_precision", q->type.dtype == TN_F64 ? TN_F64 : TN_F32);
    if (q->type.rank != 4 || k->type.rank != 4 || v->type.rank != 4)
        return onnx_error(c, n, "Q, K and V must have rank 4");
    if (precision == TN_NO_DTYPE)
        return false;
    tn_value *score = heads_product(c, tn_convert(&c->b, q, precision), tn_convert(&c->b, k, precision), 3);
    score = modified(c, n, "score_mod", emit_mul(c, score, head_scale(c, n, q->type.dim[3], precision)));
    int64_t axis = 3;
    tn_value *weight = modified(c, n, "prob_mod", emit_softmax(c, score, &axis, 1, false));
    tn_value *y = heads_product(c, weight, tn_convert(&c->b, v, precision), 2);
    return onnx_set_output(c, n, 0, tn_convert(&c->b, y, q->type.dtype));
}

/* ---- rotary embedding
 * ----------------------------------------------------------------------------------------------------------- */

/* A table [max, R / 2] at positions [B, S], or [B, S, R / 2] already, as [B, S, 1, R / 2]. */
static tn_value *rotary_table(onnx_ctx *c, tn_value *table, tn_value *positions, const tn_dim *x)
{
    tn_dim half = table->type.dim[table->type.rank - 1], dims[] = {x[0], x[1], emit_dim(c, 1), half};
    if (positions) {
        tn_dim count = tn_dim_mul(c->session, x[0], x[1]);
        tn_value *flat = tn_reshape(&c->b, tn_broadcast_to(&c->b, positions, x, 2), &count, 1);
        table = emit_take(c, table, flat, 0);
    }
    return table ? tn_reshape(&c->b, table, dims, 4) : NULL;
}

/* Elements 2i (which 0) or 2i + 1 of the last axis; or its first or second half. */
static tn_value *rotary_half(onnx_ctx *c, tn_value *x, tn_dim size, int which, bool interleaved)
{
    tn_dim half = tn_dim_floordiv(c->session, size, emit_dim(c, 2));
    if (interleaved)
        return emit_slice_axis(c, x, 3, emit_dim(c, which), size, 2);
    return emit_slice_axis(c, x, 3, which ? half : emit_dim(c, 0), which ? size : half, 1);
}

static tn_value *rotated(onnx_ctx *c, tn_value *x, tn_value *cosine, tn_value *sine, tn_dim size, bool interleaved)
{
    tn_dim dims[5], whole[4];
    tn_value *a = rotary_half(c, x, size, 0, interleaved), *b = rotary_half(c, x, size, 1, interleaved);
    tn_value *real = emit_sub(c, emit_mul(c, cosine, a), emit_mul(c, sine, b));
    tn_value *imaginary = emit_add(c, emit_mul(c, sine, a), emit_mul(c, cosine, b));
    if (!real || !imaginary || !interleaved)
        return real && imaginary ? tn_concatenate(&c->b, (tn_value *[]){real, imaginary}, 2, 3) : NULL;
    memcpy(dims, real->type.dim, sizeof(tn_dim) * 4);
    memcpy(whole, x->type.dim, sizeof whole);
    dims[4] = emit_dim(c, 1);
    whole[3] = size;
    real = tn_reshape(&c->b, real, dims, 5);
    imaginary = tn_reshape(&c->b, imaginary, dims, 5);
    tn_value *pairs = tn_concatenate(&c->b, (tn_value *[]){real, imaginary}, 2, 4);
    return pairs ? tn_reshape(&c->b, pairs, whole, 4) : NULL;
}

bool onnx_op_rotary_embedding(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_type type = x->type;
    int64_t heads = onnx_attr_int(c, n, "num_heads", 0), size = onnx_attr_int(c, n, "rotary_embedding_dim", 0);
    if (type.rank != 4 && (type.rank != 3 || heads < 1))
        return onnx_error(c, n, "input must have rank 4, or rank 3 with `num_heads`; found rank %d", type.rank);
    if (type.rank == 4) {
        x = emit_transpose(c, x, EMIT_AXES(0, 2, 1, 3)); /* [B, S, H, D] */
    } else {
        tn_dim h = emit_dim(c, heads),
               dims[] = {type.dim[0], type.dim[1], h, tn_dim_floordiv(c->session, type.dim[2], h)};
        x = tn_reshape(&c->b, x, dims, 4);
    }
    if (!x)
        return false;
    tn_dim head = x->type.dim[3];
    tn_dim part = size == 0 ? head : emit_dim(c, size);
    if (size < 0 || (tn_dim_is_const(part) && part->value % 2))
        return onnx_error(c, n, "the rotated part must be even, found %lld", (long long)(size ? size : part->value));
    tn_value *cosine = rotary_table(c, n->input[1], onnx_in(n, 3), x->type.dim),
             *sine = rotary_table(c, n->input[2], onnx_in(n, 3), x->type.dim);
    tn_value *turned = emit_slice_axis(c, x, 3, emit_dim(c, 0), part, 1);
    tn_value *y = !turned || !cosine || !sine
                      ? NULL
                      : rotated(c, turned, cosine, sine, part, onnx_attr_int(c, n, "interleaved", 0));
    if (y && !tn_dim_eq(c->session, part, head)) {
        tn_value *rest = emit_slice_axis(c, x, 3, part, head, 1);
        y = tn_concatenate(&c->b, (tn_value *[]){y, rest}, 2, 3);
    }
    if (!y)
        return false;
    y = type.rank == 4 ? emit_transpose(c, y, EMIT_AXES(0, 2, 1, 3)) : tn_reshape(&c->b, y, type.dim, 3);
    return onnx_set_output(c, n, 0, y);
}

/* ---- cache update
 * ------------------------------------------------------------------------------------------------------------------ */

/* update's rows go to cache positions write_indices[b] + i along the axis; circular: modulo the cache's length. */
bool onnx_op_tensor_scatter(onnx_ctx *c, const onnx_node *n)
{
    tn_value *cache = n->input[0], *update = n->input[1], *start = onnx_in(n, 2);
    tn_type type = cache->type;
    int axis, rank = type.rank;
    const char *mode = onnx_attr_string(c, n, "mode", "linear");
    if (!onnx_axis(c, n, onnx_attr_int(c, n, "axis", -2), rank, &axis))
        return false;
    if (axis == 0 || update->type.rank != rank)
        return onnx_error(c, n, "`axis` must not be the batch and both tensors must have one rank");
    int64_t permutation[TN_MAX_RANK], back[TN_MAX_RANK];
    permutation[0] = 0;
    permutation[1] = axis;
    for (int i = 1, at = 2; i < rank; i++)
        if (i != axis)
            permutation[at++] = i;
    for (int i = 0; i < rank; i++)
        back[permutation[i]] = i;
    cache = tn_transpose(&c->b, cache, permutation);
    update = tn_transpose(&c->b, update, permutation);
    if (!cache || !update)
        return false;
    tn_dim rows[] = {update->type.dim[0], update->type.dim[1]}, count = tn_dim_mul(c->session, rows[0], rows[1]);
    tn_value *batch = tn_iota(&c->b, TN_I64, rows, 2, 0), *place = tn_iota(&c->b, TN_I64, rows, 2, 1);
    if (start)
        place = emit_add(c, place, emit_broadcast(c, tn_convert(&c->b, start, TN_I64), rows, 2, EMIT_AXES(0)));
    if (strcmp(mode, "circular") == 0)
        place = emit_floor_mod(c, place, emit_size(c, type.dim[axis], TN_I64));
    tn_dim column[] = {count, emit_dim(c, 1)};
    batch = batch ? tn_reshape(&c->b, batch, column, 2) : NULL;
    place = place ? tn_reshape(&c->b, place, column, 2) : NULL;
    if (!batch || !place)
        return false;
    tn_value *indices = tn_concatenate(&c->b, (tn_value *[]){batch, place}, 2, 1);
    tn_dim flat[TN_MAX_RANK] = {count};
    memcpy(flat + 1, update->type.dim + 2, sizeof(tn_dim) * (size_t)(rank - 2));
    update = tn_reshape(&c->b, update, flat, rank - 1);
    tn_value *y = emit_put_nd(c, cache, indices, update, TN_OP_return);
    return onnx_set_output(c, n, 0, y ? tn_transpose(&c->b, y, back) : NULL);
}
