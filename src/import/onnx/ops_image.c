/* Sampling at computed places, crops, columns to images. */
#include "import/onnx/window.h"

#include <math.h>
#include <string.h>

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- sampling
 * ---------------------------------------------------------------------------------------------------------------- */

/* x [batch…, C, D1, …] at indices [batch…, P, n] into D1 … Dn: [batch…, C, P]. */
static tn_value *take_batched(onnx_ctx *c, tn_value *x, tn_value *indices, int nbatch)
{
    if (!x || !indices)
        return NULL;
    int n = x->type.rank - nbatch - 1;
    int64_t batch[TN_MAX_RANK], space[TN_MAX_RANK], offset[] = {nbatch};
    tn_dim sizes[TN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        sizes[i] = i == nbatch ? x->type.dim[i] : emit_dim(c, 1);
    for (int i = 0; i < nbatch; i++)
        batch[i] = i;
    for (int i = 0; i < n; i++)
        space[i] = nbatch + 1 + i;
    tn_attr attrs[] = {
        {.name = TN_A_offset_dims, .n = 1, .ints = offset},
        {.name = TN_A_collapsed_slice_dims, .n = n, .ints = space},
        {.name = TN_A_operand_batching_dims, .n = nbatch, .ints = batch},
        {.name = TN_A_indices_batching_dims, .n = nbatch, .ints = batch},
        {.name = TN_A_start_index_map, .n = n, .ints = space},
        {.name = TN_A_index_vector_dim, .i = nbatch + 1},
        {.name = TN_A_sizes, .n = x->type.rank, .dims = sizes},
    };
    tn_op *op = tn_build(&c->b, TN_OP_gather, (tn_value *[]){x, indices}, 2, attrs, TN_COUNT(attrs), NULL, 0);
    return op ? &op->result[0] : NULL;
}

typedef enum outside { ZEROS, BORDER, REFLECTION } outside;

typedef struct sampler {
    tn_value *x; /* [batch…, C, D1, …, Dn] */
    int nbatch, n;
    tn_dim size[TN_MAX_RANK];
    outside padding;
    bool align_corners; /* of reflection: about the outer pixels' centres, else their edges */
} sampler;

/* Folds v back into [low, high] by reflecting at both ends. */
static tn_value *reflected(onnx_ctx *c, const sampler *s, int i, tn_value *v)
{
    if (!v)
        return NULL;
    tn_dtype dtype = v->type.dtype;
    double low = s->align_corners ? 0 : -0.5;
    tn_value *range =
        emit_size(c, s->align_corners ? tn_dim_sub(c->session, s->size[i], emit_dim(c, 1)) : s->size[i], dtype);
    tn_value *from = emit_unary(c, TN_OP_abs, emit_add_number(c, v, -low));
    tn_value *double_range = emit_mul_number(c, range, 2),
             *rest = tn_binary_b(&c->b, TN_OP_remainder, from, double_range);
    tn_value *folded = emit_select(c, emit_compare(c, "LE", rest, range), rest, emit_sub(c, double_range, rest));
    tn_value *outside_range =
        emit_or(c, emit_compare_number(c, "LT", v, low), emit_compare(c, "GT", v, emit_add_number(c, range, low)));
    outside_range = emit_and(c, outside_range, emit_compare_number(c, "GT", range, 0));
    return emit_select(c, outside_range, emit_add_number(c, folded, low), v);
}

static tn_value *clamped(onnx_ctx *c, const sampler *s, int i, tn_value *v)
{
    if (!v)
        return NULL;
    tn_value *last = emit_add_number(c, emit_size(c, s->size[i], v->type.dtype), -1);
    return emit_min(c, emit_max(c, v, emit_number(c, v->type.dtype, 0)), last);
}

/* The pixels at whole positions at[i] [batch…, P] (floats): [batch…, C, P]; outside ones as the padding says. */
static tn_value *pixels(onnx_ctx *c, const sampler *s, tn_value *const *at)
{
    tn_value *parts[TN_MAX_RANK], *inside = NULL;
    tn_dim dims[TN_MAX_RANK];
    for (int i = 0; i < s->n; i++) {
        tn_value *v = s->padding == REFLECTION ? reflected(c, s, i, at[i]) : at[i];
        if (!v)
            return NULL;
        if (s->padding == ZEROS) {
            tn_value *end = emit_size(c, s->size[i], v->type.dtype);
            tn_value *in = emit_and(c, emit_compare_number(c, "GE", v, 0), emit_compare(c, "LT", v, end));
            inside = inside ? emit_and(c, inside, in) : in;
        }
        int rank = v->type.rank;
        memcpy(dims, v->type.dim, sizeof dims);
        dims[rank] = emit_dim(c, 1);
        v = tn_convert(&c->b, clamped(c, s, i, v), TN_I32);
        parts[i] = v ? tn_reshape(&c->b, v, dims, rank + 1) : NULL;
        if (!parts[i])
            return NULL;
    }
    tn_value *indices = s->n == 1 ? parts[0] : tn_concatenate(&c->b, parts, s->n, s->nbatch + 1);
    tn_value *y = take_batched(c, s->x, indices, s->nbatch);
    if (!y || !inside)
        return y;
    int64_t axes[TN_MAX_RANK];
    for (int i = 0; i <= s->nbatch; i++)
        axes[i] = i < s->nbatch ? i : i + 1;
    inside = tn_broadcast_in_dim(&c->b, inside, y->type.dim, y->type.rank, axes);
    return emit_select(c, inside, y, emit_number(c, y->type.dtype, 0));
}

/* Keys' cubic convolution with a = -0.75 at distance d in [0, 2]. */
static tn_value *cubic(onnx_ctx *c, tn_value *d, bool far)
{
    const double a = -0.75;
    if (!far)
        return emit_add_number(
            c, emit_mul(c, emit_mul(c, emit_add_number(c, emit_mul_number(c, d, a + 2), -(a + 3)), d), d), 1);
    tn_value *sum = emit_add_number(c, emit_mul_number(c, d, a), -5 * a);
    sum = emit_add_number(c, emit_mul(c, sum, d), 8 * a);
    return emit_add_number(c, emit_mul(c, sum, d), -4 * a);
}

/* Weight of tap k (position floor + k - first) for the fraction f: linear has taps 0, 1; cubic -1 … 2. */
static tn_value *tap_weight(onnx_ctx *c, tn_value *f, int taps, int k)
{
    if (!f)
        return NULL;
    tn_value *one = emit_number(c, f->type.dtype, 1);
    if (taps == 2)
        return k == 0 ? emit_sub(c, one, f) : f;
    int offset = k - 1;
    tn_value *d = offset <= 0 ? emit_add_number(c, f, -offset) : emit_sub(c, emit_number(c, f->type.dtype, offset), f);
    return cubic(c, d, offset < 0 || offset > 1);
}

/* Weighted sum over the taps^n pixels around coordinates at[i] [batch…, P]; taps 1: the nearest (coordinates are
 * whole). */
static tn_value *sampled(onnx_ctx *c, const sampler *s, tn_value *const *at, int taps)
{
    tn_value *base[TN_MAX_RANK], *fraction[TN_MAX_RANK], *place[TN_MAX_RANK], *sum = NULL;
    if (taps == 1)
        return pixels(c, s, at);
    int total = 1, first = taps == 4 ? -1 : 0;
    for (int i = 0; i < s->n; i++) {
        base[i] = emit_unary(c, TN_OP_floor, at[i]);
        fraction[i] = emit_sub(c, at[i], base[i]);
        total *= taps;
    }
    for (int k = 0; k < total; k++) {
        tn_value *weight = NULL;
        for (int i = s->n - 1, rest = k; i >= 0; i--, rest /= taps) {
            place[i] = emit_add_number(c, base[i], first + rest % taps);
            tn_value *w = tap_weight(c, fraction[i], taps, rest % taps);
            weight = weight ? emit_mul(c, weight, w) : w;
        }
        tn_value *y = pixels(c, s, place);
        if (!y || !weight)
            return NULL;
        int64_t axes[TN_MAX_RANK];
        for (int i = 0; i <= s->nbatch; i++)
            axes[i] = i < s->nbatch ? i : i + 1;
        weight = tn_broadcast_in_dim(&c->b, tn_convert(&c->b, weight, y->type.dtype), y->type.dim, y->type.rank, axes);
        y = emit_mul(c, y, weight);
        sum = sum ? emit_add(c, sum, y) : y;
    }
    return sum;
}

bool onnx_op_grid_sample(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *grid = n->input[1], *at[TN_MAX_RANK];
    const char *mode = onnx_attr_string(c, n, "mode", c->opset < 20 ? "bilinear" : "linear");
    const char *padding = onnx_attr_string(c, n, "padding_mode", "zeros");
    sampler s = {.x = x, .nbatch = 1, .n = x->type.rank - 2, .align_corners = onnx_attr_int(c, n, "align_corners", 0)};
    if (s.n < 1 || grid->type.rank != x->type.rank || !tn_dim_is(grid->type.dim[s.n + 1], s.n))
        return onnx_error(c, n, "the grid must have the input's rank and %d coordinates in its last dimension", s.n);
    s.padding = is(padding, "border") ? BORDER : is(padding, "reflection") ? REFLECTION : ZEROS;
    int taps = is(mode, "nearest") ? 1 : is(mode, "cubic") || is(mode, "bicubic") ? 4 : 2;
    tn_dim flat[] = {grid->type.dim[0], tn_dim_product(c->session, grid->type.dim + 1, s.n)};
    for (int i = 0; i < s.n; i++) {
        s.size[i] = x->type.dim[i + 2];
        tn_value *v = emit_slice_axis(c, grid, s.n + 1, emit_dim(c, s.n - 1 - i), emit_dim(c, s.n - i), 1);
        v = v ? tn_reshape(&c->b, v, flat, 2) : NULL;
        tn_value *length = emit_size(c, s.size[i], grid->type.dtype);
        v = emit_add_number(c, v, 1);
        if (s.align_corners)
            v = emit_mul(c, emit_mul_number(c, v, 0.5), emit_add_number(c, length, -1));
        else
            v = emit_mul_number(c, emit_add_number(c, emit_mul(c, v, length), -1), 0.5);
        if (taps == 1)
            v = emit_unary(c, TN_OP_round_nearest_even, v);
        at[i] = s.padding == BORDER && taps < 4 ? clamped(c, &s, i, v)
                : s.padding == REFLECTION       ? reflected(c, &s, i, v)
                                                : v;
    }
    tn_value *y = sampled(c, &s, at, taps);
    tn_dim dims[TN_MAX_RANK] = {x->type.dim[0], x->type.dim[1]};
    memcpy(dims + 2, grid->type.dim + 1, sizeof(tn_dim) * (size_t)s.n);
    return onnx_set_output(c, n, 0, y ? tn_reshape(&c->b, y, dims, x->type.rank) : NULL);
}

/* theta [N, n, n + 1] applied to the homogeneous coordinates of an output of size [N, C, D1, …, Dn]. */
bool onnx_op_affine_grid(onnx_ctx *c, const onnx_node *n)
{
    tn_value *theta = n->input[0];
    tn_dim size[TN_MAX_RANK], dims[TN_MAX_RANK];
    bool align = onnx_attr_int(c, n, "align_corners", 0);
    tn_dtype dtype = theta->type.dtype;
    if (theta->type.rank != 3 || !tn_dim_is_const(theta->type.dim[1]))
        return onnx_error(c, n, "theta must have shape [N, 2, 3] or [N, 3, 4]");
    int space = (int)theta->type.dim[1]->value;
    if (space < 2 || space > 3 || !tn_dim_is(theta->type.dim[2], space + 1))
        return onnx_error(c, n, "theta must have shape [N, 2, 3] or [N, 3, 4]");
    if (!onnx_runtime_dims(c, n, n->input[1], space + 2, NULL, size))
        return false;
    dims[0] = theta->type.dim[0];
    memcpy(dims + 1, size + 2, sizeof(tn_dim) * (size_t)space);
    dims[space + 1] = theta->type.dim[1];
    tn_value *sum = NULL;
    for (int j = 0; j <= space; j++) {
        tn_value *column = emit_slice_axis(c, theta, 2, emit_dim(c, j), emit_dim(c, j + 1), 1);
        column = column ? tn_reshape(&c->b, column, theta->type.dim, 2) : NULL;
        column = column ? emit_broadcast(c, column, dims, space + 2, EMIT_AXES(0, space + 1)) : NULL;
        if (j < space) { /* coordinate j runs along the j-th dimension from the end */
            tn_dim length = size[2 + space - 1 - j];
            tn_value *i = emit_mul_number(c, tn_iota(&c->b, dtype, &length, 1, 0), 2),
                     *count = emit_size(c, length, dtype);
            if (align)
                i = emit_div(c, i, emit_max(c, emit_add_number(c, count, -1), emit_number(c, dtype, 1)));
            else
                i = emit_div(c, emit_add_number(c, i, 1), count);
            i = emit_add_number(c, i, -1);
            i = i ? emit_broadcast(c, i, dims, space + 2, EMIT_AXES(space - j)) : NULL;
            column = emit_mul(c, column, i);
        }
        sum = sum ? emit_add(c, sum, column) : column;
    }
    return onnx_set_output(c, n, 0, sum);
}

/* ---- regions
 * ------------------------------------------------------------------------------------------------------------------ */

typedef struct roi_axis {
    tn_value *at;     /* [R, bins * samples]: coordinates, clipped into the map */
    tn_value *inside; /* the same shape: the sample counts */
    tn_value *count;  /* [R]: samples of a bin, where each region has its own number; NULL: all of them */
    tn_dim samples;   /* of a bin: the most that a region has */
} roi_axis;

/* How many samples a bin of each region has, one a pixel of the bin, and the most of all regions. */
static bool roi_samples(onnx_ctx *c, const onnx_node *n, tn_value *bin, roi_axis *out)
{
    const int64_t regions[] = {0};
    out->count = emit_max(c, emit_unary(c, TN_OP_ceil, bin), bin ? emit_number(c, bin->type.dtype, 0) : NULL);
    tn_value *most = out->count ? emit_reduce(c, TN_OP_maximum, out->count, regions, 1) : NULL;
    most = most ? emit_max(c, tn_convert(&c->b, most, TN_I64), emit_number(c, TN_I64, 1)) : NULL;
    return most && onnx_runtime_dims(c, n, most, 1, NULL, &out->samples);
}

/* Sample coordinates along one axis: start + (bin + (sample + 0.5) / samples) * bin size. which: 0 for x, 1 for y. samples: 0 for as many as
 * the region's size asks for. */
static bool roi_coordinates(onnx_ctx *c, const onnx_node *n, int which, int64_t bins, int64_t samples, tn_dim size, bool half, roi_axis *out)
{
    tn_value *rois = n->input[1], *edge[2];
    tn_dtype dtype = rois->type.dtype;
    tn_dim regions = rois->type.dim[0];
    double scale = onnx_attr_float(c, n, "spatial_scale", 1);
    for (int i = 0; i < 2; i++) {
        tn_value *v = emit_slice_axis(c, rois, 1, emit_dim(c, 2 * i + which), emit_dim(c, 2 * i + which + 1), 1);
        v = v ? tn_reshape(&c->b, v, &regions, 1) : NULL;
        edge[i] = emit_add_number(c, emit_mul_number(c, v, scale), half ? -0.5 : 0);
    }
    tn_value *extent = emit_sub(c, edge[1], edge[0]);
    if (!half)
        extent = emit_max(c, extent, emit_number(c, dtype, 1));
    tn_value *bin = emit_mul_number(c, extent, 1 / (double)bins), *step = emit_mul_number(c, extent, 1 / (double)(bins * tn_max(samples, 1)));
    *out = (roi_axis){.samples = emit_dim(c, samples)};
    if (samples == 0) {
        if (!roi_samples(c, n, bin, out))
            return false;
        step = emit_div(c, bin, emit_max(c, out->count, emit_number(c, dtype, 1)));
    }
    tn_dim dims[] = {regions, emit_dim(c, bins), out->samples}, flat[] = {regions, tn_dim_mul(c->session, dims[1], dims[2])};
    if (!step || !edge[0])
        return false;
    tn_value *sample = tn_iota(&c->b, dtype, dims, 3, 2);
    tn_value *v = emit_mul(c, emit_add_number(c, sample, 0.5), emit_broadcast(c, step, dims, 3, EMIT_AXES(0)));
    v = emit_add(c, v, emit_mul(c, tn_iota(&c->b, dtype, dims, 3, 1), emit_broadcast(c, bin, dims, 3, EMIT_AXES(0))));
    v = emit_add(c, v, emit_broadcast(c, edge[0], dims, 3, EMIT_AXES(0)));
    tn_value *length = emit_size(c, size, dtype), *last = emit_add_number(c, length, -1);
    tn_value *inside = emit_and(c, emit_compare_number(c, "GE", v, -1), emit_compare(c, "LE", v, length));
    if (out->count)
        inside = emit_and(c, inside, emit_compare(c, "LT", sample, emit_broadcast(c, out->count, dims, 3, EMIT_AXES(0))));
    v = emit_min(c, emit_max(c, v, emit_number(c, dtype, 0)), last);
    out->at = v ? tn_reshape(&c->b, v, flat, 2) : NULL;
    out->inside = inside ? tn_reshape(&c->b, inside, flat, 2) : NULL;
    return out->at && out->inside;
}

typedef struct roi_map {
    tn_value *x, *batch; /* [N, H, W, C]; i32[R] */
    tn_dim dims[3];      /* R, rows of samples, columns of samples */
    tn_dim size[2];      /* H, W */
} roi_map;

/* One of the four pixels around each sample, weighted: [R, rows, columns, C]. high[i]: the next pixel, not past the
 * last. */
static tn_value *roi_corner(onnx_ctx *c, const roi_map *m, const roi_axis *axes, const bool *high)
{
    tn_value *part[3], *weight = NULL;
    tn_dim count = tn_dim_product(c->session, m->dims, 3), column[] = {count, emit_dim(c, 1)};
    part[0] = m->batch ? emit_broadcast(c, m->batch, m->dims, 3, EMIT_AXES(0)) : NULL;
    for (int i = 0; i < 2; i++) {
        tn_value *v = axes[i].at, *low = emit_unary(c, TN_OP_floor, v);
        if (!low)
            return NULL;
        tn_value *fraction = emit_sub(c, v, low),
                 *last = emit_add_number(c, emit_size(c, m->size[i], v->type.dtype), -1);
        tn_value *w = high[i] ? fraction : emit_sub(c, emit_number(c, v->type.dtype, 1), fraction);
        w = emit_select(c, axes[i].inside, w, emit_number(c, v->type.dtype, 0));
        tn_value *place = tn_convert(&c->b, high[i] ? emit_min(c, emit_add_number(c, low, 1), last) : low, TN_I32);
        if (!w || !place)
            return NULL;
        int64_t to[] = {0, i + 1};
        part[i + 1] = tn_broadcast_in_dim(&c->b, place, m->dims, 3, to);
        w = tn_broadcast_in_dim(&c->b, w, m->dims, 3, to);
        weight = weight ? emit_mul(c, weight, w) : w;
    }
    for (int i = 0; i < 3; i++)
        if (!(part[i] = part[i] ? tn_reshape(&c->b, part[i], column, 2) : NULL))
            return NULL;
    tn_value *y = emit_take_nd(c, m->x, tn_concatenate(&c->b, part, 3, 1));
    if (!y || !weight)
        return NULL;
    tn_dim wide[] = {m->dims[0], m->dims[1], m->dims[2], y->type.dim[1]};
    y = tn_reshape(&c->b, y, wide, 4);
    return emit_mul(c, y, emit_broadcast(c, tn_convert(&c->b, weight, y->type.dtype), wide, 4, EMIT_AXES(0, 1, 2)));
}

bool onnx_op_roi_align(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *rois = n->input[1];
    int64_t height = onnx_attr_int(c, n, "output_height", 1), width = onnx_attr_int(c, n, "output_width", 1);
    int64_t samples = onnx_attr_int(c, n, "sampling_ratio", 0);
    bool half =
        is(onnx_attr_string(c, n, "coordinate_transformation_mode", c->opset < 16 ? "output_half_pixel" : "half_pixel"),
           "half_pixel");
    bool average = is(onnx_attr_string(c, n, "mode", "avg"), "avg");
    if (height < 1 || width < 1 || height > INT16_MAX || width > INT16_MAX)
        return onnx_error(c, n, "the output's sizes must be positive");
    if (samples < 0 || samples > INT16_MAX)
        return onnx_error(c, n, "`sampling_ratio` must lie in [0, %d], found %lld", INT16_MAX, (long long)samples);
    if (samples == 0 && !average)
        return onnx_unsupported(c, n, "`sampling_ratio` 0, samples by the region's size, for the largest of them");
    roi_axis axes[2];
    if (!roi_coordinates(c, n, 1, height, samples, x->type.dim[2], half, &axes[0]) || !roi_coordinates(c, n, 0, width, samples, x->type.dim[3], half, &axes[1]))
        return false;
    roi_map m = {.x = emit_transpose(c, x, EMIT_AXES(0, 2, 3, 1)), .batch = tn_convert(&c->b, n->input[2], TN_I32)};
    m.dims[0] = rois->type.dim[0];
    m.dims[1] = axes[0].at->type.dim[1];
    m.dims[2] = axes[1].at->type.dim[1];
    m.size[0] = x->type.dim[2];
    m.size[1] = x->type.dim[3];
    tn_value *sum = NULL;
    for (int k = 0; k < 4; k++) {
        tn_value *corner = roi_corner(c, &m, axes, (bool[]){k & 2, k & 1});
        sum = !sum ? corner : average ? emit_add(c, sum, corner) : emit_max(c, sum, corner);
    }
    if (!sum)
        return false;
    tn_dim split[] = {m.dims[0], emit_dim(c, height), axes[0].samples, emit_dim(c, width), axes[1].samples, sum->type.dim[3]};
    sum = tn_reshape(&c->b, sum, split, 6);
    tn_value *y;
    if (samples == 0) {
        tn_dtype dtype = x->type.dtype;
        tn_value *count = emit_max(c, emit_mul(c, axes[0].count, axes[1].count), emit_number(c, axes[0].count->type.dtype, 1));
        y = emit_reduce(c, TN_OP_add, sum, (int64_t[]){2, 4}, 2);
        y = y && count ? emit_div(c, y, emit_broadcast(c, tn_convert(&c->b, count, dtype), y->type.dim, 4, EMIT_AXES(0))) : NULL;
    } else {
        y = average ? emit_mean(c, sum, (int64_t[]){2, 4}, 2) : emit_reduce(c, TN_OP_maximum, sum, (int64_t[]){2, 4}, 2);
    }
    return onnx_set_output(c, n, 0, y ? emit_transpose(c, y, EMIT_AXES(0, 3, 1, 2)) : NULL);
}

/* [R, bins, size]: does position i of the axis lie in the bin? Bins of a region are its pixels' range cut into equal
 * parts, rounded outwards. which: 0 for x, 1 for y. */
static tn_value *roi_bins(onnx_ctx *c, const onnx_node *n, int which, int64_t bins, tn_dim size)
{
    tn_value *rois = n->input[1], *edge[2];
    tn_dtype dtype = rois->type.dtype;
    tn_dim regions = rois->type.dim[0], dims[] = {regions, emit_dim(c, bins), size};
    for (int i = 0; i < 2; i++) {
        int at = 1 + 2 * i + which;
        tn_value *v = emit_slice_axis(c, rois, 1, emit_dim(c, at), emit_dim(c, at + 1), 1);
        v = emit_mul_number(c, v ? tn_reshape(&c->b, v, &regions, 1) : NULL, onnx_attr_float(c, n, "spatial_scale", 1));
        edge[i] = emit_broadcast(c, emit_unary(c, TN_OP_round_nearest_afz, v), dims, 3, EMIT_AXES(0));
    }
    tn_value *extent = emit_max(c, emit_add_number(c, emit_sub(c, edge[1], edge[0]), 1), emit_number(c, dtype, 1));
    tn_value *step = emit_div(c, extent, emit_number(c, dtype, (double)bins)), *bin = tn_iota(&c->b, dtype, dims, 3, 1);
    tn_value *low = emit_add(c, emit_unary(c, TN_OP_floor, emit_mul(c, bin, step)), edge[0]);
    tn_value *high = emit_add(c, emit_unary(c, TN_OP_ceil, emit_mul(c, emit_add_number(c, bin, 1), step)), edge[0]);
    tn_value *place = tn_iota(&c->b, dtype, dims, 3, 2);
    return emit_and(c, emit_compare(c, "GE", place, low), emit_compare(c, "LT", place, high));
}

/* Largest element of each bin of each region (batch, x1, y1, x2, y2): first along rows, then along columns; 0 for an
 * empty bin. */
bool onnx_op_max_roi_pool(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *rois = n->input[1];
    int count;
    const int64_t *shape = onnx_attr_ints(c, n, "pooled_shape", &count);
    if (count != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > INT16_MAX || shape[1] > INT16_MAX)
        return onnx_error(c, n, "`pooled_shape` must be two positive numbers");
    tn_dtype dtype = x->type.dtype;
    tn_dim regions = rois->type.dim[0], *d = x->type.dim;
    tn_value *batch = emit_slice_axis(c, rois, 1, emit_dim(c, 0), emit_dim(c, 1), 1);
    batch = tn_convert(&c->b, batch ? tn_reshape(&c->b, batch, &regions, 1) : NULL, TN_I32);
    tn_value *each = emit_take(c, x, batch, 0), *none = emit_lowest(c, dtype);
    tn_dim columns[] = {regions, d[1], d[2], emit_dim(c, shape[1]), d[3]};
    tn_dim rows[] = {regions, d[1], emit_dim(c, shape[0]), emit_dim(c, shape[1]), d[2]};
    tn_value *in = emit_broadcast(c, roi_bins(c, n, 0, shape[1], d[3]), columns, 5, EMIT_AXES(0, 3, 4));
    tn_value *y = emit_select(c, in, emit_broadcast(c, each, columns, 5, EMIT_AXES(0, 1, 2, 4)), none);
    y = emit_reduce(c, TN_OP_maximum, y, EMIT_AXES(4));
    in = emit_broadcast(c, roi_bins(c, n, 1, shape[0], d[2]), rows, 5, EMIT_AXES(0, 2, 4));
    y = emit_select(
        c, in, emit_broadcast(c, emit_transpose(c, y, EMIT_AXES(0, 1, 3, 2)), rows, 5, EMIT_AXES(0, 1, 3, 4)), none);
    y = emit_reduce(c, TN_OP_maximum, y, EMIT_AXES(4));
    return onnx_set_output(c, n, 0, emit_select(c, emit_compare(c, "EQ", y, none), emit_number(c, dtype, 0), y));
}

/* ---- deformable convolution
 * ------------------------------------------------------------------------------------------------------ */

typedef struct deform {
    onnx_window w;
    int64_t groups, offset_groups, taps;
    tn_dim batch, out[2], places; /* places: taps * out[0] * out[1] */
} deform;

/* Coordinates along axis i of all taps and positions: [N, G, places] f32. */
static tn_value *deform_coordinates(onnx_ctx *c, const deform *d, tn_value *offsets, int i)
{
    tn_dim wide[] = {d->batch, emit_dim(c, d->offset_groups), d->w.kernel[0], d->w.kernel[1], d->out[0], d->out[1]};
    tn_dim flat[] = {wide[0], wide[1], d->places};
    tn_value *v = emit_slice_axis(c, offsets, 3, emit_dim(c, i), emit_dim(c, i + 1), 1);
    v = v ? tn_reshape(&c->b, v, wide, 6) : NULL;
    if (!v)
        return NULL;
    tn_dtype dtype = v->type.dtype;
    tn_value *tap = emit_mul_number(c, tn_iota(&c->b, dtype, wide, 6, 2 + i), (double)d->w.dilations[i]);
    tn_value *place = emit_mul_number(c, tn_iota(&c->b, dtype, wide, 6, 4 + i), (double)d->w.strides[i]);
    v = emit_sub(c, emit_add(c, v, emit_add(c, tap, place)), emit_size(c, d->w.low[i], dtype));
    return v ? tn_reshape(&c->b, v, flat, 3) : NULL;
}

/* columns [N, C, taps * positions] by weight [M, C / g, kh, kw] in groups: [N, M, oh, ow]. */
static tn_value *deform_product(onnx_ctx *c, const deform *d, tn_value *columns, tn_value *weight)
{
    tn_session *s = c->session;
    tn_dim g = emit_dim(c, d->groups), positions = tn_dim_mul(s, d->out[0], d->out[1]), m = weight->type.dim[0];
    tn_dim depth = tn_dim_mul(s, weight->type.dim[1], emit_dim(c, d->taps)), each = tn_dim_floordiv(s, m, g);
    tn_dim left[] = {g, each, depth}, right[] = {d->batch, g, depth, positions},
           out[] = {d->batch, m, d->out[0], d->out[1]};
    weight = tn_reshape(&c->b, weight, left, 3);
    columns = tn_reshape(&c->b, columns, right, 4);
    tn_value *y =
        tn_dot_general(&c->b, weight, columns, (int64_t[]){0}, (int64_t[]){1}, 1, (int64_t[]){2}, (int64_t[]){2}, 1);
    y = y ? emit_transpose(c, y, EMIT_AXES(2, 0, 1, 3)) : NULL; /* [g, M / g, N, P] to [N, g, M / g, P] */
    return y ? tn_reshape(&c->b, y, out, 4) : NULL;
}

bool onnx_op_deform_conv(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0], *weight = n->input[1], *bias = onnx_in(n, 3), *mask = onnx_in(n, 4);
    deform d = {.groups = onnx_attr_int(c, n, "group", 1), .offset_groups = onnx_attr_int(c, n, "offset_group", 1)};
    if (!onnx_read_window(c, n, &x->type, &weight->type, &d.w))
        return false;
    if (d.w.n != 2)
        return onnx_unsupported(c, n, "%d spatial dimensions, only 2", d.w.n);
    if (!tn_dim_is_const(d.w.kernel[0]) || !tn_dim_is_const(d.w.kernel[1]) || d.groups < 1 || d.offset_groups < 1)
        return onnx_error(c, n, "the kernel's size must be known and groups positive");
    tn_session *s = c->session;
    tn_dim g = emit_dim(c, d.offset_groups);
    d.taps = d.w.kernel[0]->value * d.w.kernel[1]->value;
    d.batch = x->type.dim[0];
    memcpy(d.out, d.w.out, sizeof d.out);
    d.places = tn_dim_mul(s, emit_dim(c, d.taps), tn_dim_mul(s, d.out[0], d.out[1]));
    tn_dim offset_dims[] = {d.batch, g, emit_dim(c, d.taps), emit_dim(c, 2), d.out[0], d.out[1]};
    tn_dim x_dims[] = {d.batch, g, tn_dim_floordiv(s, x->type.dim[1], g), x->type.dim[2], x->type.dim[3]};
    tn_value *offsets = tn_reshape(&c->b, n->input[2], offset_dims, 6);
    sampler sample = {.x = tn_reshape(&c->b, x, x_dims, 5),
                      .nbatch = 2,
                      .n = 2,
                      .size = {x->type.dim[2], x->type.dim[3]},
                      .padding = ZEROS};
    tn_value *at[] = {deform_coordinates(c, &d, offsets, 0), deform_coordinates(c, &d, offsets, 1)};
    tn_value *columns = !at[0] || !at[1] ? NULL : sampled(c, &sample, at, 2); /* [N, G, C / G, places] */
    if (columns && mask) {
        tn_dim flat[] = {d.batch, g, d.places};
        mask = tn_reshape(&c->b, mask, flat, 3);
        mask = mask ? emit_broadcast(c, mask, columns->type.dim, 4, EMIT_AXES(0, 1, 3)) : NULL;
        columns = emit_mul(c, columns, mask);
    }
    tn_value *y = columns ? deform_product(c, &d, columns, weight) : NULL;
    if (y && bias)
        y = emit_add(c, y, emit_along(c, bias, &y->type, 1));
    return onnx_set_output(c, n, 0, y);
}

/* ---- crops and columns
 * --------------------------------------------------------------------------------------------------------------- */

/* Each axis cropped or padded with zeros about its centre; the odd element goes off (or on) at the end. */
bool onnx_op_center_crop_pad(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_session *s = c->session;
    int rank = x->type.rank, count;
    int64_t axes[TN_MAX_RANK], step[TN_MAX_RANK];
    tn_dim want[TN_MAX_RANK], start[TN_MAX_RANK], limit[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK],
        none = emit_dim(c, 0);
    const int64_t *given = onnx_attr_ints(c, n, "axes", &count);
    if (given && !onnx_axes(c, n, given, count, rank, axes))
        return false;
    if (!given)
        count = rank;
    if (!onnx_runtime_dims(c, n, n->input[1], count, NULL, want))
        return false;
    for (int i = 0; i < rank; i++) {
        start[i] = low[i] = high[i] = none;
        limit[i] = x->type.dim[i];
        step[i] = 1;
    }
    for (int i = 0; i < count; i++) {
        int at = given ? (int)axes[i] : i;
        tn_dim size = x->type.dim[at], two = emit_dim(c, 2);
        tn_dim cut = tn_dim_max(s, tn_dim_sub(s, size, want[i]), none),
               extra = tn_dim_max(s, tn_dim_sub(s, want[i], size), none);
        start[at] = tn_dim_floordiv(s, cut, two);
        limit[at] = tn_dim_add(s, start[at], tn_dim_min(s, size, want[i]));
        low[at] = tn_dim_floordiv(s, extra, two);
        high[at] = tn_dim_sub(s, extra, low[at]);
    }
    x = tn_slice(&c->b, x, start, limit, step);
    return onnx_set_output(c, n, 0, emit_pad_zero(c, x, low, high, emit_number(c, n->input[0]->type.dtype, 0)));
}

/* Positions along spatial axis i of kernel tap b and block l: b * dilation + l * stride - pad, [N, C, b1.., l1..]
 * flattened. */
static tn_value *column_place(onnx_ctx *c, const tn_dim *wide, int space, int i, const int64_t *strides,
                              const int64_t *dilations, int64_t pad)
{
    tn_value *tap = emit_mul_number(c, tn_iota(&c->b, TN_I64, wide, 2 + 2 * space, 2 + i), (double)dilations[i]);
    tn_value *block =
        emit_mul_number(c, tn_iota(&c->b, TN_I64, wide, 2 + 2 * space, 2 + space + i), (double)strides[i]);
    return emit_add_number(c, emit_add(c, tap, block), -(double)pad);
}

/* Sums columns [N, C * prod(block), L] back into images [N, C, image…]; places in the padding are dropped. */
bool onnx_op_col2im(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_session *s = c->session;
    if (x->type.rank != 3 || n->input[1]->type.rank != 1 || !tn_dim_is_const(n->input[1]->type.dim[0]))
        return onnx_error(c, n, "input must have rank 3 and image_shape a known length");
    int space = (int)tn_min(n->input[1]->type.dim[0]->value, (TN_MAX_RANK - 2) / 2);
    tn_dim image[TN_MAX_RANK], block[TN_MAX_RANK], wide[TN_MAX_RANK], out[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], dilations[TN_MAX_RANK], pads[2 * TN_MAX_RANK];
    if (space < 1 || !onnx_runtime_dims(c, n, n->input[1], space, NULL, image) ||
        !onnx_runtime_dims(c, n, n->input[2], space, NULL, block) ||
        !onnx_read_ints(c, n, "strides", space, 1, 1, strides) ||
        !onnx_read_ints(c, n, "dilations", space, 1, 1, dilations) ||
        !onnx_read_ints(c, n, "pads", 2 * space, 0, 0, pads))
        return false;
    tn_dim per_channel = tn_dim_product(s, block, space);
    wide[0] = out[0] = x->type.dim[0];
    wide[1] = out[1] = onnx_dim_div(c, x->type.dim[1], per_channel);
    for (int i = 0; i < space; i++) {
        tn_dim extent = tn_dim_mul(s, tn_dim_sub(s, block[i], emit_dim(c, 1)), emit_dim(c, dilations[i]));
        tn_dim room = tn_dim_sub(s, tn_dim_add(s, image[i], emit_dim(c, pads[i] + pads[space + i] - 1)), extent);
        wide[2 + i] = block[i];
        wide[2 + space + i] = tn_dim_add(s, tn_dim_floordiv(s, room, emit_dim(c, strides[i])), emit_dim(c, 1));
        out[2 + i] = image[i];
    }
    int rank = 2 + 2 * space;
    tn_dim count = tn_dim_product(s, wide, rank), column[] = {count, emit_dim(c, 1)};
    tn_value *parts[TN_MAX_RANK];
    for (int i = 0; i < 2 + space; i++) {
        tn_value *at = i < 2 ? tn_iota(&c->b, TN_I64, wide, rank, i)
                             : column_place(c, wide, space, i - 2, strides, dilations, pads[i - 2]);
        parts[i] = at ? tn_reshape(&c->b, at, column, 2) : NULL;
        if (!parts[i])
            return false;
    }
    tn_value *indices = tn_concatenate(&c->b, parts, 2 + space, 1), *zero = emit_number(c, x->type.dtype, 0);
    tn_value *updates = tn_reshape(&c->b, x, &count, 1);
    return onnx_set_output(c, n, 0, emit_put_nd(c, emit_fill(c, zero, out, 2 + space), indices, updates, TN_OP_add));
}
