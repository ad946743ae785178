/* gather and scatter: slices read from, or combined into, places that an index tensor names. */
#include "eval/internal.h"

#include <inttypes.h>

/* The dimension numbers of either operation under common names. `slice` is the result of gather and the updates of
 * scatter: its dimensions `window` walk inside a slice, the others walk over the index vectors. */
typedef struct indexing {
    const int64_t *window, *dropped, *batching, *indices_batching, *map;
    int nwindow, ndropped, nbatching, nindices_batching, nmap;
    int64_t vector_dim;
    const tn_tensor *operand, *indices, *slice;
    int64_t operand_strides[TN_MAX_RANK], index_strides[TN_MAX_RANK + 1];
} indexing;

static indexing gather_indexing(const tn_op *op, const tn_tensor *operand, const tn_tensor *indices,
                                const tn_tensor *slice)
{
    indexing x = {.operand = operand,
                  .indices = indices,
                  .slice = slice,
                  .vector_dim = tn_attr_int(op, TN_A_index_vector_dim, 0)};
    x.window = tn_attr_ints(op, TN_A_offset_dims, &x.nwindow);
    x.dropped = tn_attr_ints(op, TN_A_collapsed_slice_dims, &x.ndropped);
    x.batching = tn_attr_ints(op, TN_A_operand_batching_dims, &x.nbatching);
    x.indices_batching = tn_attr_ints(op, TN_A_indices_batching_dims, &x.nindices_batching);
    x.map = tn_attr_ints(op, TN_A_start_index_map, &x.nmap);
    return x;
}

static indexing scatter_indexing(const tn_op *op, const tn_tensor *operand, const tn_tensor *indices,
                                 const tn_tensor *slice)
{
    indexing x = {.operand = operand,
                  .indices = indices,
                  .slice = slice,
                  .vector_dim = tn_attr_int(op, TN_A_index_vector_dim, 0)};
    x.window = tn_attr_ints(op, TN_A_update_window_dims, &x.nwindow);
    x.dropped = tn_attr_ints(op, TN_A_inserted_window_dims, &x.ndropped);
    x.batching = tn_attr_ints(op, TN_A_input_batching_dims, &x.nbatching);
    x.indices_batching = tn_attr_ints(op, TN_A_scatter_indices_batching_dims, &x.nindices_batching);
    x.map = tn_attr_ints(op, TN_A_scatter_dims_to_operand_dims, &x.nmap);
    return x;
}

static bool all_below(const int64_t *list, int n, int64_t limit)
{
    for (int i = 0; i < n; i++)
        if (list[i] < 0 || list[i] >= limit)
            return false;
    return true;
}

/* What the walk below relies on: numbers in range, ranks that add up, index dimensions that the slice repeats. */
static tn_status prepare(tn_evaluator *e, const tn_op *op, indexing *x)
{
    const int rank = x->operand->rank, batch_rank = x->slice->rank - x->nwindow;
    const int index_rank = x->indices->rank, vectors = x->vector_dim < index_rank ? index_rank - 1 : index_rank;
    if (x->vector_dim < 0 || x->vector_dim > index_rank)
        return tn_eval_expect(e, op, "index_vector_dim at most", index_rank, x->vector_dim);
    if (!all_below(x->window, x->nwindow, x->slice->rank) || !all_below(x->dropped, x->ndropped, rank) ||
        !all_below(x->batching, x->nbatching, rank) ||
        !all_below(x->indices_batching, x->nindices_batching, index_rank) || !all_below(x->map, x->nmap, rank) ||
        tn_among(x->vector_dim, x->indices_batching, x->nindices_batching))
        return tn_error(e->session, TN_INVALID, op->loc, "%s: a dimension number is out of range",
                        tn_op_name(op->code));
    if (x->nwindow + x->ndropped + x->nbatching != rank || x->nbatching != x->nindices_batching)
        return tn_eval_expect(e, op, "window, dropped and batching dimensions in all", rank,
                              x->nwindow + x->ndropped + x->nbatching);
    if (batch_rank != vectors)
        return tn_eval_expect(e, op, "rank of the slices' batch", vectors, batch_rank);
    int64_t vector = x->vector_dim < index_rank ? x->indices->dim[x->vector_dim] : 1;
    if (x->nmap != vector)
        return tn_eval_expect(e, op, "components of an index vector", vector, x->nmap);
    for (int d = 0, b = 0; d < x->slice->rank; d++) {
        if (tn_among(d, x->window, x->nwindow))
            continue;
        int from = b < x->vector_dim ? b : b + 1;
        b++;
        if (x->slice->dim[d] != x->indices->dim[from])
            return tn_eval_expect(e, op, "size of a batch dimension", x->indices->dim[from], x->slice->dim[d]);
    }
    tn_strides_of(rank, x->operand->dim, x->operand_strides);
    tn_strides_of(index_rank, x->indices->dim, x->index_strides);
    x->index_strides[index_rank] = 0;
    return TN_OK;
}

/* Position in the operand, dimension by dimension, of slice element `at`: the start that the index vector gives
 * (clamped to [0, dim - sizes] if sizes is given), the batch position, and the offset inside the window. */
static void locate(const indexing *x, const int64_t *at, const int64_t *sizes, int64_t *position)
{
    int64_t batch[TN_MAX_RANK] = {0}, window[TN_MAX_RANK] = {0}, base = 0;
    int nbatch = 0, nwindow = 0, w = 0;
    for (int d = 0; d < x->slice->rank; d++) {
        if (tn_among(d, x->window, x->nwindow))
            window[nwindow++] = at[d];
        else
            batch[nbatch++] = at[d];
    }
    for (int b = 0; b < nbatch; b++)
        base += batch[b] * x->index_strides[b < x->vector_dim ? b : b + 1];
    for (int d = 0; d < x->operand->rank; d++) {
        bool hidden = tn_among(d, x->dropped, x->ndropped) || tn_among(d, x->batching, x->nbatching);
        position[d] = hidden ? 0 : window[w++];
    }
    for (int i = 0; i < x->nbatching; i++) {
        int64_t from = x->indices_batching[i];
        position[x->batching[i]] += batch[from < x->vector_dim ? from : from - 1];
    }
    for (int i = 0; i < x->nmap; i++) {
        tn_number n = tn_at(x->indices, base + i * x->index_strides[x->vector_dim]);
        int64_t start = tn_dtype_class(x->indices->dtype) == TN_CLASS_UINT && n.u > INT64_MAX / 2 ? INT64_MAX / 2 : n.i;
        if (sizes)
            start = tn_max(0, tn_min(start, x->operand->dim[x->map[i]] - sizes[x->map[i]]));
        start = tn_max(-(INT64_MAX / 2), tn_min(start, INT64_MAX / 2));
        position[x->map[i]] += start;
    }
}

static bool inside(const indexing *x, const int64_t *position, int64_t *flat)
{
    *flat = 0;
    for (int d = 0; d < x->operand->rank; d++) {
        if (position[d] < 0 || position[d] >= x->operand->dim[d])
            return false;
        *flat += position[d] * x->operand_strides[d];
    }
    return true;
}

EVAL(gather)
{
    int64_t sizes[TN_MAX_RANK], at[TN_MAX_RANK] = {0}, position[TN_MAX_RANK], flat;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const tn_tensor *y = &out[0]->tensor;
    indexing x = gather_indexing(op, &in[0]->tensor, &in[1]->tensor, y);
    TN_TRY(tn_eval_dims(e, op, TN_A_sizes, x.operand->rank, sizes));
    TN_TRY(prepare(e, op, &x));
    for (int d = 0; d < x.operand->rank; d++)
        if (sizes[d] < 0 || sizes[d] > x.operand->dim[d])
            return tn_eval_expect(e, op, "size of the slice at most", x.operand->dim[d], sizes[d]);
    const int64_t n = tn_count_of(y), unit[1] = {1}, one[1] = {1};
    TN_TRY(tn_eval_work(e, op->loc, n, 1 + x.nmap));
    for (int64_t i = 0; i < n; i++) {
        locate(&x, at, sizes, position);
        if (!inside(&x, position, &flat))
            return tn_error(e->session, TN_INVALID, op->loc, "gather: the slice reaches outside the operand");
        tn_copy_box(out[0], i, unit, x.operand, flat, unit, 1, one);
        tn_next_index(y->rank, y->dim, at);
    }
    return TN_OK;
}

/* n operands, the indices, n updates. Updates outside the operands are skipped; the others are applied in the updates'
 * row-major order, region(old…, update…) -> new…, each rounded to the operand's type. */
EVAL(scatter)
{
    const int n = op->nresults;
    if (op->noperands != 2 * n + 1)
        return tn_eval_expect(e, op, "number of operands", 2 * n + 1, op->noperands);
    tn_region region;
    tn_number *args, *results;
    int64_t at[TN_MAX_RANK] = {0}, position[TN_MAX_RANK], flat;
    const tn_tensor *updates = &in[n + 1]->tensor;
    indexing x = scatter_indexing(op, &in[0]->tensor, &in[n]->tensor, updates);
    TN_TRY(prepare(e, op, &x));
    TN_TRY(tn_region_prepare(e, op, 0, 2 * n, n, &region));
    TN_TRY(tn_eval_alloc(e, op->loc, 2 * n, sizeof *args, &args));
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *results, &results));
    for (int j = 0; j < n; j++) {
        const int64_t all[1] = {tn_count_of(x.operand)}, unit[1] = {1};
        TN_TRY(tn_eval_result(e, op, j, &out[j]));
        if (tn_count_of(&in[j]->tensor) != all[0] || tn_count_of(&out[j]->tensor) != all[0])
            return tn_eval_expect(e, op, "elements of an operand", all[0], tn_count_of(&in[j]->tensor));
        if (tn_count_of(&in[n + 1 + j]->tensor) != tn_count_of(updates))
            return tn_eval_expect(e, op, "elements of the updates", tn_count_of(updates),
                                  tn_count_of(&in[n + 1 + j]->tensor));
        tn_copy_box(out[j], 0, unit, &in[j]->tensor, 0, unit, 1, all);
    }
    const int64_t count = tn_count_of(updates);
    TN_TRY(tn_eval_work(e, op->loc, count, 1 + x.nmap));
    for (int64_t i = 0; i < count; i++, tn_next_index(updates->rank, updates->dim, at)) {
        locate(&x, at, NULL, position);
        if (!inside(&x, position, &flat))
            continue;
        for (int j = 0; j < n; j++) {
            args[j] = tn_at(&out[j]->tensor, flat);
            args[n + j] = tn_at(&in[n + 1 + j]->tensor, i);
        }
        TN_TRY(tn_region_call(&region, args, results));
        for (int j = 0; j < n; j++)
            tn_number_store(out[j]->tensor.dtype, tn_eval_data(out[j]), flat, results[j]);
    }
    return TN_OK;
}
