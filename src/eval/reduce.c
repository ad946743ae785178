/* reduce, reduce_window, select_and_scatter, sort: what combines or orders elements by a region. */
#include "eval/internal.h"

#include <assert.h>
#include <math.h>

/* An accumulation in progress: n accumulators and the region that takes (accumulators…, elements…). Sums and products
 * of floats are held in double (tn_region_widen) and rounded when stored. */
typedef struct fold {
    tn_region region;
    int n;
    tn_eval_value *const *in; /* n inputs, n initial values */
    bool sums;                /* one input of floats, summed */
    tn_number *acc, *args, *init;
} fold;

static tn_status fold_prepare(tn_evaluator *e, const tn_op *op, tn_eval_value *const *in, fold *f)
{
    *f = (fold){.n = op->nresults, .in = in};
    if (op->noperands != 2 * f->n || f->n == 0)
        return tn_eval_expect(e, op, "number of operands", 2 * (int64_t)f->n, op->noperands);
    TN_TRY(tn_region_prepare(e, op, 0, 2 * f->n, f->n, &f->region));
    TN_TRY(tn_eval_alloc(e, op->loc, f->n, sizeof *f->acc, &f->acc));
    TN_TRY(tn_eval_alloc(e, op->loc, f->n, sizeof *f->init, &f->init));
    TN_TRY(tn_eval_alloc(e, op->loc, 2 * f->n, sizeof *f->args, &f->args));
    f->sums = tn_region_widen(&f->region) == TN_F64 && f->region.single == TN_S_add && tn_is_float(in[0]->tensor.dtype);
    for (int j = 0; j < f->n; j++) {
        const tn_tensor *init = &in[f->n + j]->tensor;
        if (init->rank)
            return tn_eval_expect(e, op, "rank of an initial value", 0, init->rank);
        f->init[j] = tn_number_convert(tn_at(init, 0), init->dtype, f->region.arg_type[j]);
        for (int d = 0; d < in[j]->tensor.rank; d++)
            if (in[j]->tensor.rank != in[0]->tensor.rank || in[j]->tensor.dim[d] != in[0]->tensor.dim[d])
                return tn_eval_expect(e, op, "size of a dimension of an input", in[0]->tensor.dim[d],
                                      in[j]->tensor.dim[d]);
    }
    return TN_OK;
}

static void fold_start(fold *f)
{
    for (int j = 0; j < f->n; j++)
        f->acc[j] = f->init[j];
}

/* Takes in the elements at position `at`, or the initial values (padding of a window) if at < 0. */
static tn_status fold_step(fold *f, int64_t at)
{
    if (f->sums) {
        f->acc[0].f += at < 0 ? f->init[0].f : tn_at(&f->in[0]->tensor, at).f;
        return TN_OK;
    }
    for (int j = 0; j < f->n; j++) {
        const tn_tensor *x = &f->in[j]->tensor;
        tn_dtype type = f->region.arg_type[f->n + j];
        f->args[j] = f->acc[j];
        f->args[f->n + j] = at < 0             ? f->init[j]
                            : x->dtype == type ? tn_at(x, at)
                                               : tn_number_convert(tn_at(x, at), x->dtype, type);
    }
    return tn_region_call(&f->region, f->args, f->acc);
}

static void fold_store(fold *f, tn_eval_value **out, int64_t at)
{
    for (int j = 0; j < f->n; j++)
        tn_number_store(out[j]->tensor.dtype, tn_eval_data(out[j]), at, f->acc[j]);
}

static tn_status fold_results(tn_evaluator *e, const tn_op *op, fold *f, tn_eval_value **out)
{
    for (int j = 0; j < f->n; j++) {
        TN_TRY(tn_eval_result(e, op, j, &out[j]));
        if (out[j]->tensor.dtype != f->region.result_type[j])
            return tn_eval_expect(e, op, "element type of a result (as the region's)", f->region.result_type[j],
                                  out[j]->tensor.dtype);
        if (tn_count_of(&out[j]->tensor) != tn_count_of(&out[0]->tensor))
            return tn_eval_expect(e, op, "elements of a result", tn_count_of(&out[0]->tensor),
                                  tn_count_of(&out[j]->tensor));
    }
    return TN_OK;
}

EVAL(reduce)
{
    fold f;
    int naxes = 0, nkept = 0, nreduced = 0;
    const int64_t *axes = tn_attr_ints(op, TN_A_dimensions, &naxes);
    int64_t strides[TN_MAX_RANK], kept[TN_MAX_RANK], kept_stride[TN_MAX_RANK], reduced[TN_MAX_RANK],
        reduced_stride[TN_MAX_RANK];
    TN_TRY(fold_prepare(e, op, in, &f));
    TN_TRY(fold_results(e, op, &f, out));
    const tn_tensor *x = &in[0]->tensor;
    tn_strides_of(x->rank, x->dim, strides);
    int64_t results = 1, each = 1;
    for (int d = 0; d < x->rank; d++) {
        if (tn_among(d, axes, naxes))
            reduced[nreduced] = x->dim[d], reduced_stride[nreduced++] = strides[d], each *= x->dim[d];
        else
            kept[nkept] = x->dim[d], kept_stride[nkept++] = strides[d], results *= x->dim[d];
    }
    if (tn_count_of(&out[0]->tensor) != results)
        return tn_eval_expect(e, op, "elements of the result", results, tn_count_of(&out[0]->tensor));
    TN_TRY(tn_eval_work(e, op->loc, results, 1 + each));
    int64_t outer[TN_MAX_RANK] = {0};
    for (int64_t i = 0; i < results; i++, tn_next_index(nkept, kept, outer)) {
        int64_t base = 0, inner[TN_MAX_RANK] = {0};
        for (int d = 0; d < nkept; d++)
            base += outer[d] * kept_stride[d];
        fold_start(&f);
        for (int64_t k = 0; k < each; k++, tn_next_index(nreduced, reduced, inner)) {
            int64_t at = base;
            for (int d = 0; d < nreduced; d++)
                at += inner[d] * reduced_stride[d];
            TN_TRY(fold_step(&f, at));
        }
        fold_store(&f, out, i);
    }
    return TN_OK;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* A window that slides over an operand: position o of the result and k of the window meet operand index
 * (o * stride + k * dilation - low) / base_dilation where that is whole and in range, else padding. */
typedef struct sliding {
    int rank;
    int64_t size[TN_MAX_RANK], window[TN_MAX_RANK], stride[TN_MAX_RANK], dilation[TN_MAX_RANK], base[TN_MAX_RANK],
        low[TN_MAX_RANK];
    int64_t step[TN_MAX_RANK]; /* of the operand, in elements */
    int64_t count;             /* of window positions */
} sliding;

static tn_status read_ints(tn_evaluator *e, const tn_op *op, tn_attr_name name, int rank, int64_t least, int64_t *to)
{
    int n = 0;
    const int64_t *from = tn_attr_ints(op, name, &n);
    for (int i = 0; i < rank; i++) {
        if (from && i < n && (from[i] < least || from[i] > INT32_MAX))
            return tn_eval_expect(e, op, tn_attr_text(name), least, from[i]);
        to[i] = from && i < n ? from[i] : 1;
    }
    return from && n != rank ? tn_eval_expect(e, op, tn_attr_text(name), rank, n) : TN_OK;
}

static tn_status read_window(tn_evaluator *e, const tn_op *op, const tn_tensor *x, sliding *w)
{
    w->rank = x->rank;
    w->count = 1;
    TN_TRY(tn_eval_dims(e, op, TN_A_window, w->rank, w->window));
    TN_TRY(tn_eval_dims(e, op, TN_A_padding_low, w->rank, w->low));
    TN_TRY(read_ints(e, op, TN_A_window_strides, w->rank, 1, w->stride));
    TN_TRY(read_ints(e, op, TN_A_window_dilation, w->rank, 1, w->dilation));
    TN_TRY(read_ints(e, op, TN_A_base_dilation, w->rank, 1, w->base));
    tn_strides_of(x->rank, x->dim, w->step);
    for (int d = 0; d < w->rank; d++) {
        w->size[d] = x->dim[d];
        if (w->window[d] < 1 || w->window[d] > INT32_MAX || !tn_mul(w->count, w->window[d], &w->count))
            return tn_eval_expect(e, op, "size of a window dimension at least", 1, w->window[d]);
        if (w->low[d] < -INT32_MAX || w->low[d] > INT32_MAX)
            return tn_eval_expect(e, op, "padding in 32 bits", 0, w->low[d]);
    }
    return TN_OK;
}

/* Position in the operand, or -1 for padding and for the holes of a dilated operand. */
static int64_t window_at(const sliding *w, const int64_t *o, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < w->rank; d++) {
        int64_t p = o[d] * w->stride[d] + k[d] * w->dilation[d] - w->low[d];
        if (p < 0 || p % w->base[d] || p / w->base[d] >= w->size[d])
            return -1;
        at += p / w->base[d] * w->step[d];
    }
    return at;
}

/* Padding takes part as if the operand had been padded with the initial value first: StableHLO's meaning. */
EVAL(reduce_window)
{
    fold f;
    sliding w;
    TN_TRY(fold_prepare(e, op, in, &f));
    TN_TRY(fold_results(e, op, &f, out));
    TN_TRY(read_window(e, op, &in[0]->tensor, &w));
    const tn_tensor *y = &out[0]->tensor;
    if (y->rank != w.rank)
        return tn_eval_expect(e, op, "rank of the result", w.rank, y->rank);
    int64_t n = tn_count_of(y), o[TN_MAX_RANK] = {0};
    TN_TRY(tn_eval_work(e, op->loc, n, w.count));
    for (int64_t i = 0; i < n; i++, tn_next_index(w.rank, y->dim, o)) {
        int64_t k[TN_MAX_RANK] = {0};
        fold_start(&f);
        do
            TN_TRY(fold_step(&f, window_at(&w, o, k)));
        while (tn_next_index(w.rank, w.window, k));
        fold_store(&f, out, i);
    }
    return TN_OK;
}

/* The element of a window that the select region keeps: select(kept, next) false gives way to next. -1: only padding.
 */
static tn_status select_in_window(tn_region *select, const tn_tensor *x, const sliding *w, const int64_t *o,
                                  int64_t *kept)
{
    int64_t k[TN_MAX_RANK] = {0};
    *kept = -1;
    do {
        int64_t at = window_at(w, o, k);
        tn_number keep = {.u = *kept >= 0};
        if (at < 0)
            continue;
        if (*kept >= 0) {
            tn_number args[2] = {tn_at(x, *kept), tn_at(x, at)};
            TN_TRY(tn_region_call(select, args, &keep));
        }
        *kept = keep.u ? *kept : at;
    } while (tn_next_index(w->rank, w->window, k));
    return TN_OK;
}

EVAL(select_and_scatter)
{
    const tn_tensor *x = &in[0]->tensor, *source = &in[1]->tensor;
    tn_region select, scatter;
    sliding w;
    tn_number *acc;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    TN_TRY(tn_region_prepare(e, op, 0, 2, 1, &select));
    TN_TRY(tn_region_prepare(e, op, 1, 2, 1, &scatter));
    TN_TRY(read_window(e, op, x, &w));
    tn_region_widen(&scatter);
    int64_t n = tn_count_of(x), o[TN_MAX_RANK] = {0}, at;
    if (source->rank != x->rank || tn_count_of(&out[0]->tensor) != n)
        return tn_eval_expect(e, op, "rank of the source", x->rank, source->rank);
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *acc, &acc));
    for (int64_t i = 0; i < n; i++)
        acc[i] = tn_at(&in[2]->tensor, 0);
    TN_TRY(tn_eval_work(e, op->loc, tn_count_of(source), w.count));
    for (int64_t i = 0; i < tn_count_of(source); i++, tn_next_index(source->rank, source->dim, o)) {
        TN_TRY(select_in_window(&select, x, &w, o, &at));
        if (at < 0)
            continue;
        tn_number args[2] = {acc[at], tn_at(source, i)};
        TN_TRY(tn_region_call(&scatter, args, &acc[at]));
    }
    for (int64_t i = 0; i < n; i++)
        tn_number_store(out[0]->tensor.dtype, tn_eval_data(out[0]), i, acc[i]);
    return TN_OK;
}

/* ---- sort -------------------------------------------------------------------------------------------------------- */

/* One line along the sorted dimension: n tensors' elements, side by side. */
typedef struct sort_line {
    tn_region comparator; /* (a0, b0, a1, b1, …) -> a before b */
    int n;
    int64_t length;
    tn_number *value; /* [length][n] */
    tn_number *args;
    int64_t *order, *spare;
} sort_line;

static tn_status before(sort_line *s, int64_t a, int64_t b, bool *yes)
{
    tn_number result;
    for (int j = 0; j < s->n; j++) {
        s->args[2 * j] = s->value[a * s->n + j];
        s->args[2 * j + 1] = s->value[b * s->n + j];
    }
    TN_TRY(tn_region_call(&s->comparator, s->args, &result));
    *yes = result.u != 0;
    return TN_OK;
}

/* Merges order[lo, mid) and order[mid, hi) into spare; equal elements keep their order. */
static tn_status merge(sort_line *s, int64_t lo, int64_t mid, int64_t hi)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool second = i == mid;
        if (i < mid && j < hi)
            TN_TRY(before(s, s->order[j], s->order[i], &second));
        s->spare[k] = s->order[second ? j++ : i++];
    }
    return TN_OK;
}

/* A bottom-up merge sort: stable, and in bounds whatever the comparator says. */
static tn_status sort_one(sort_line *s)
{
    for (int64_t i = 0; i < s->length; i++)
        s->order[i] = i;
    for (int64_t width = 1; width < s->length; width *= 2) {
        for (int64_t lo = 0; lo < s->length; lo += 2 * width)
            TN_TRY(merge(s, lo, tn_min(lo + width, s->length), tn_min(lo + 2 * width, s->length)));
        int64_t *swap = s->order;
        s->order = s->spare, s->spare = swap;
    }
    return TN_OK;
}

EVAL(sort)
{
    const tn_tensor *x = &in[0]->tensor;
    const int axis = (int)tn_attr_int(op, TN_A_dimension, 0);
    sort_line s = {.n = op->nresults};
    if (axis < 0 || axis >= x->rank || op->noperands != op->nresults)
        return tn_eval_expect(e, op, "dimension below the rank", x->rank - 1, axis);
    for (int j = 0; j < s.n; j++) {
        TN_TRY(tn_eval_result(e, op, j, &out[j]));
        if (tn_count_of(&in[j]->tensor) != tn_count_of(x) || tn_count_of(&out[j]->tensor) != tn_count_of(x))
            return tn_eval_expect(e, op, "elements of an operand", tn_count_of(x), tn_count_of(&in[j]->tensor));
    }
    s.length = x->dim[axis];
    TN_TRY(tn_region_prepare(e, op, 0, 2 * s.n, 1, &s.comparator));
    TN_TRY(tn_eval_alloc(e, op->loc, s.length, (size_t)s.n * sizeof *s.value, &s.value));
    TN_TRY(tn_eval_alloc(e, op->loc, 2 * s.n, sizeof *s.args, &s.args));
    TN_TRY(tn_eval_alloc(e, op->loc, s.length, sizeof *s.order, &s.order));
    TN_TRY(tn_eval_alloc(e, op->loc, s.length, sizeof *s.spare, &s.spare));
    int64_t strides[TN_MAX_RANK], index[TN_MAX_RANK] = {0}, lines[TN_MAX_RANK];
    tn_strides_of(x->rank, x->dim, strides);
    for (int d = 0; d < x->rank; d++)
        lines[d] = d == axis ? 1 : x->dim[d];
    if (tn_count_of(x) == 0)
        return TN_OK;
    do {
        int64_t base = 0;
        for (int d = 0; d < x->rank; d++)
            base += index[d] * strides[d];
        for (int64_t i = 0; i < s.length; i++)
            for (int j = 0; j < s.n; j++)
                s.value[i * s.n + j] = tn_at(&in[j]->tensor, base + i * strides[axis]);
        TN_TRY(sort_one(&s));
        for (int64_t i = 0; i < s.length; i++)
            for (int j = 0; j < s.n; j++)
                tn_number_store(out[j]->tensor.dtype, tn_eval_data(out[j]), base + i * strides[axis],
                                s.value[s.order[i] * s.n + j]);
    } while (tn_next_index(x->rank, lines, index));
    return TN_OK;
}
