/* dot_general and convolution: sums of products. Operands are first laid out so that what is summed is contiguous, in a
 * wide type: integers wrap in 64 bits, floats are double, complex a pair of doubles; each result is rounded once. */
#include "eval/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- wide arithmetic --------------------------------------------------------------------------------------------- */

static tn_dtype wide_type(const tn_tensor *a, const tn_tensor *b)
{
    if (tn_is_complex(a->dtype) || tn_is_complex(b->dtype))
        return TN_C128;
    return tn_is_float(a->dtype) || tn_is_float(b->dtype) ? TN_F64 : TN_I64;
}

static size_t wide_size(tn_dtype wide)
{
    return wide == TN_C128 ? 16 : 8;
}

/* x with its dimensions in the order `axes` (rank of them), row-major, each element in the wide type. */
static tn_status lay_out(tn_evaluator *e, const tn_op *op, const tn_tensor *x, const int64_t *axes, tn_dtype wide,
                         void **out)
{
    int64_t strides[TN_MAX_RANK], dims[TN_MAX_RANK], index[TN_MAX_RANK] = {0}, n = tn_count_of(x);
    tn_strides_of(x->rank, x->dim, strides);
    for (int i = 0; i < x->rank; i++)
        dims[i] = x->dim[axes[i]];
    TN_TRY(tn_eval_alloc(e, op->loc, n, wide_size(wide), out));
    for (int64_t i = 0; i < n; i++, tn_next_index(x->rank, dims, index)) {
        int64_t at = 0;
        for (int d = 0; d < x->rank; d++)
            at += index[d] * strides[axes[d]];
        if (x->dtype == TN_F32 && wide == TN_F64)
            ((double *)*out)[i] = ((const tn_loose_f32 *)x->data)[x->splat ? 0 : at];
        else
            tn_number_store(wide, *out, i, tn_number_convert(tn_at(x, at), x->dtype, wide));
    }
    return TN_OK;
}

static tn_number sum_real(tn_number sum, const double *a, const double *b, int64_t n)
{
    double s[4] = {0}; /* four chains, so that one addition need not wait for the last */
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            s[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    sum.f += (s[0] + s[1]) + (s[2] + s[3]);
    return sum;
}

static tn_number sum_complex(tn_number sum, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < 2 * n; i += 2) {
        sum.f += a[i] * b[i] - a[i + 1] * b[i + 1];
        sum.im += a[i] * b[i + 1] + a[i + 1] * b[i];
    }
    return sum;
}

static tn_number sum_integers(tn_number sum, const uint64_t *a, const uint64_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum.u += a[i] * b[i];
    return sum;
}

/* sum + a[a_at + i] * b[b_at + i] for i in [0, n). */
static tn_number add_products(tn_dtype wide, tn_number sum, const void *a, int64_t a_at, const void *b, int64_t b_at,
                              int64_t n)
{
    if (wide == TN_F64)
        return sum_real(sum, (const double *)a + a_at, (const double *)b + b_at, n);
    if (wide == TN_C128)
        return sum_complex(sum, (const double *)a + 2 * a_at, (const double *)b + 2 * b_at, n);
    return sum_integers(sum, (const uint64_t *)a + a_at, (const uint64_t *)b + b_at, n);
}

static void store_wide(tn_eval_value *y, int64_t at, tn_number sum, tn_dtype wide)
{
    tn_number_store(y->tensor.dtype, tn_eval_data(y), at, tn_number_convert(sum, wide, y->tensor.dtype));
}

/* ---- dot_general ------------------------------------------------------------------------------------------------- */

/* Dimensions of one operand in the order batch, free, contracted, and their sizes. */
typedef struct dot_side {
    int64_t axes[TN_MAX_RANK], batch, free, contracted;
} dot_side;

static bool order_axes(const tn_tensor *x, const int64_t *batch, int nbatch, const int64_t *contract, int ncontract,
                       dot_side *out)
{
    int n = 0;
    *out = (dot_side){.batch = 1, .free = 1, .contracted = 1};
    if (nbatch + ncontract > x->rank)
        return false;
    for (int i = 0; i < nbatch + ncontract; i++) {
        int64_t axis = i < nbatch ? batch[i] : contract[i - nbatch];
        if (axis < 0 || axis >= x->rank)
            return false;
    }
    for (int i = 0; i < nbatch; i++)
        out->axes[n++] = batch[i], out->batch *= x->dim[batch[i]];
    for (int d = 0; d < x->rank; d++)
        if (!tn_among(d, batch, nbatch) && !tn_among(d, contract, ncontract)) {
            out->axes[n++] = d;
            out->free *= x->dim[d];
        }
    if (n + ncontract != x->rank)
        return false;
    for (int i = 0; i < ncontract; i++)
        out->axes[n++] = contract[i], out->contracted *= x->dim[contract[i]];
    return true;
}

static tn_status check_pairs(tn_evaluator *e, const tn_op *op, const tn_tensor *x, const int64_t *xs,
                             const tn_tensor *y, const int64_t *ys, int n)
{
    for (int i = 0; i < n; i++)
        if (x->dim[xs[i]] != y->dim[ys[i]])
            return tn_eval_expect(e, op, "size of a batch or contracting dimension of rhs", x->dim[xs[i]],
                                  y->dim[ys[i]]);
    return TN_OK;
}

EVAL(dot_general)
{
    const tn_tensor *x = &in[0]->tensor, *y = &in[1]->tensor;
    const tn_dtype wide = wide_type(x, y);
    int nbatch = 0, nbatch_y = 0, n = 0, n_y = 0;
    const int64_t *x_batch = tn_attr_ints(op, TN_A_lhs_batch, &nbatch),
                  *y_batch = tn_attr_ints(op, TN_A_rhs_batch, &nbatch_y);
    const int64_t *x_contract = tn_attr_ints(op, TN_A_lhs_contract, &n),
                  *y_contract = tn_attr_ints(op, TN_A_rhs_contract, &n_y);
    dot_side lhs, rhs;
    void *a, *b;
    if (nbatch != nbatch_y || n != n_y || !order_axes(x, x_batch, nbatch, x_contract, n, &lhs) ||
        !order_axes(y, y_batch, nbatch, y_contract, n, &rhs))
        return tn_error(
            e->session, TN_INVALID, op->loc,
            "dot_general: batch and contracting dimensions must be distinct dimensions of the operands, in pairs");
    TN_TRY(check_pairs(e, op, x, x_batch, y, y_batch, nbatch));
    TN_TRY(check_pairs(e, op, x, x_contract, y, y_contract, n));
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const int64_t m = lhs.free, columns = rhs.free, k = lhs.contracted, results = tn_count_of(&out[0]->tensor);
    if (results != lhs.batch * m * columns)
        return tn_eval_expect(e, op, "elements of the result", lhs.batch * m * columns, results);
    TN_TRY(tn_eval_work(e, op->loc, results, 1 + k));
    TN_TRY(lay_out(e, op, x, lhs.axes, wide, &a));
    TN_TRY(lay_out(e, op, y, rhs.axes, wide, &b));
    for (int64_t i = 0; i < results; i++) {
        int64_t row = i / columns, column = i / (m * columns) * columns + i % columns;
        store_wide(out[0], i, add_products(wide, (tn_number){0}, a, row * k, b, column * k, k), wide);
    }
    return TN_OK;
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

enum { MAX_SPATIAL = TN_MAX_RANK - 2 };

/* Where a layout such as "bf01" puts its two named dimensions and each spatial one. */
typedef struct layout {
    int64_t first, second, spatial[MAX_SPATIAL];
} layout;

static bool read_layout(const tn_op *op, tn_attr_name name, int rank, char first, char second, layout *out)
{
    const tn_attr *attr = tn_find_attr(op, name);
    unsigned seen = 0;
    if (!attr || rank < 2 || strlen(attr->s) != (size_t)rank)
        return false;
    for (int i = 0; i < rank; i++) {
        char c = attr->s[i];
        int digit = c - '0', bit = c == first ? 30 : c == second ? 31 : digit;
        if (bit < 0 || (bit < 30 && bit >= rank - 2) || (seen >> bit & 1))
            return false;
        seen |= 1u << bit;
        *(c == first ? &out->first : c == second ? &out->second : &out->spatial[digit]) = i;
    }
    return true;
}

typedef struct conv {
    int nspatial;
    layout lhs, rhs, out;
    int64_t in[MAX_SPATIAL], kernel[MAX_SPATIAL], size[MAX_SPATIAL]; /* spatial sizes of lhs, rhs, result */
    int64_t stride[MAX_SPATIAL], low[MAX_SPATIAL], base[MAX_SPATIAL], dilation[MAX_SPATIAL], reversed[MAX_SPATIAL];
    int64_t batch, features, groups, batch_groups, channels; /* of the result; channels: input features of one group */
    int64_t taps;
} conv;

static tn_status conv_numbers(tn_evaluator *e, const tn_op *op, tn_attr_name name, int n, int64_t least, int64_t *to)
{
    int found = 0;
    const int64_t *from = tn_attr_ints(op, name, &found);
    if (found != n)
        return tn_eval_expect(e, op, tn_attr_text(name), n, found);
    for (int i = 0; i < n; i++) {
        if (from[i] < least || from[i] > INT32_MAX)
            return tn_eval_expect(e, op, tn_attr_text(name), least, from[i]);
        to[i] = from[i];
    }
    return TN_OK;
}

static tn_status read_conv(tn_evaluator *e, const tn_op *op, const tn_tensor *x, const tn_tensor *w, const tn_tensor *y,
                           conv *c)
{
    const int n = c->nspatial = x->rank - 2;
    c->groups = tn_attr_int(op, TN_A_feature_group_count, 1);
    c->batch_groups = tn_attr_int(op, TN_A_batch_group_count, 1);
    if (w->rank != x->rank || y->rank != x->rank || !read_layout(op, TN_A_lhs_layout, x->rank, 'b', 'f', &c->lhs) ||
        !read_layout(op, TN_A_rhs_layout, x->rank, 'o', 'i', &c->rhs) ||
        !read_layout(op, TN_A_out_layout, x->rank, 'b', 'f', &c->out))
        return tn_error(
            e->session, TN_INVALID, op->loc,
            "convolution: layouts must name b, f (o, i) and the spatial dimensions 0.. of rank %d once each", x->rank);
    TN_TRY(conv_numbers(e, op, TN_A_window_strides, n, 1, c->stride));
    TN_TRY(conv_numbers(e, op, TN_A_base_dilation, n, 1, c->base));
    TN_TRY(conv_numbers(e, op, TN_A_window_dilation, n, 1, c->dilation));
    TN_TRY(conv_numbers(e, op, TN_A_window_reversal, n, 0, c->reversed));
    TN_TRY(tn_eval_dims(e, op, TN_A_padding_low, n, c->low));
    c->taps = 1;
    for (int i = 0; i < n; i++) {
        c->in[i] = x->dim[c->lhs.spatial[i]], c->kernel[i] = w->dim[c->rhs.spatial[i]],
        c->size[i] = y->dim[c->out.spatial[i]];
        c->taps *= c->kernel[i];
        if (c->low[i] < -INT32_MAX || c->low[i] > INT32_MAX)
            return tn_eval_expect(e, op, "padding in 32 bits", 0, c->low[i]);
    }
    c->batch = y->dim[c->out.first], c->features = y->dim[c->out.second], c->channels = w->dim[c->rhs.second];
    return TN_OK;
}

static tn_status check_conv(tn_evaluator *e, const tn_op *op, const tn_tensor *x, const tn_tensor *w, const conv *c)
{
    if (c->groups < 1 || c->batch_groups < 1 || (c->groups > 1 && c->batch_groups > 1))
        return tn_error(e->session, TN_INVALID, op->loc,
                        "convolution: group counts must be >= 1, one of them 1, found %" PRId64 " and %" PRId64,
                        c->groups, c->batch_groups);
    int64_t channels, batch;
    if (!tn_mul(c->channels, c->groups, &channels) || channels != x->dim[c->lhs.second])
        return tn_eval_expect(e, op, "input features", x->dim[c->lhs.second], channels);
    if (!tn_mul(c->batch, c->batch_groups, &batch) || batch != x->dim[c->lhs.first])
        return tn_eval_expect(e, op, "input batch", x->dim[c->lhs.first], batch);
    if (c->features != w->dim[c->rhs.first] || c->features % c->groups || c->features % c->batch_groups)
        return tn_eval_expect(e, op, "output features, a multiple of the group counts", w->dim[c->rhs.first],
                              c->features);
    return TN_OK;
}

/* One tap of the kernel that meets the input: spatial positions in the laid-out operands. */
typedef struct tap {
    int64_t lhs, rhs;
} tap;

static int64_t find_taps(const conv *c, const int64_t *o, tap *taps)
{
    int64_t n = 0, k[MAX_SPATIAL] = {0};
    if (c->taps == 0)
        return 0;
    do {
        tap t = {0, 0};
        bool meets = true;
        for (int d = 0; d < c->nspatial && meets; d++) {
            int64_t p = o[d] * c->stride[d] + k[d] * c->dilation[d] - c->low[d];
            meets = p >= 0 && p % c->base[d] == 0 && p / c->base[d] < c->in[d];
            t.lhs = t.lhs * c->in[d] + p / c->base[d];
            t.rhs = t.rhs * c->kernel[d] + (c->reversed[d] ? c->kernel[d] - 1 - k[d] : k[d]);
        }
        if (meets)
            taps[n++] = t;
    } while (tn_next_index(c->nspatial, c->kernel, k));
    return n;
}

/* All results at one spatial position. a: [batch][spatial][input feature], b: [output feature][kernel][channel]. */
static void conv_at(const conv *c, const int64_t *o, const tap *taps, int64_t ntaps, tn_dtype wide, const void *a,
                    const void *b, tn_eval_value *y)
{
    int64_t strides[TN_MAX_RANK], place = 0, area = 1;
    tn_strides_of(y->tensor.rank, y->tensor.dim, strides);
    for (int d = 0; d < c->nspatial; d++)
        place += o[d] * strides[c->out.spatial[d]], area *= c->in[d];
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t f = 0; f < c->features; f++) {
            int64_t group = f / (c->features / c->groups), batch_group = f / (c->features / c->batch_groups);
            int64_t image = (batch_group * c->batch + n) * area;
            tn_number sum = {0};
            for (int64_t t = 0; t < ntaps; t++)
                sum = add_products(wide, sum, a, (image + taps[t].lhs) * c->channels * c->groups + group * c->channels,
                                   b, (f * c->taps + taps[t].rhs) * c->channels, c->channels);
            store_wide(y, place + n * strides[c->out.first] + f * strides[c->out.second], sum, wide);
        }
}

EVAL(convolution)
{
    const tn_tensor *x = &in[0]->tensor, *w = &in[1]->tensor;
    const tn_dtype wide = wide_type(x, w);
    conv c = {0};
    void *a, *b;
    tap *taps;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    TN_TRY(read_conv(e, op, x, w, &out[0]->tensor, &c));
    TN_TRY(check_conv(e, op, x, w, &c));
    int64_t lhs_axes[TN_MAX_RANK] = {c.lhs.first}, rhs_axes[TN_MAX_RANK] = {c.rhs.first}, o[MAX_SPATIAL] = {0};
    for (int i = 0; i < c.nspatial; i++)
        lhs_axes[i + 1] = c.lhs.spatial[i], rhs_axes[i + 1] = c.rhs.spatial[i];
    lhs_axes[c.nspatial + 1] = c.lhs.second, rhs_axes[c.nspatial + 1] = c.rhs.second;
    const int64_t results = tn_count_of(&out[0]->tensor);
    int64_t products = 0;
    TN_TRY(tn_eval_work(e, op->loc, results, tn_mul(c.taps, c.channels, &products) ? 1 + products : INT64_MAX));
    TN_TRY(lay_out(e, op, x, lhs_axes, wide, &a));
    TN_TRY(lay_out(e, op, w, rhs_axes, wide, &b));
    TN_TRY(tn_eval_alloc(e, op->loc, c.taps, sizeof *taps, &taps));
    if (results == 0)
        return TN_OK;
    do
        conv_at(&c, o, taps, find_taps(&c, o, taps), wide, a, b, out[0]);
    while (tn_next_index(c.nspatial, c.size, o));
    return TN_OK;
}
