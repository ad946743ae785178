/* Resize and Upsample: separable, one axis after the other. Each output position has a coordinate in the input (f32),
 * from which follow neighbours and weights; they are vectors as long as the axis, constants when the sizes are. */
#include "import/onnx/emit.h"

#include <math.h>
#include <string.h>

typedef struct axis_plan {
    int axis;
    tn_dim in, out;
    double scale;                  /* 0: only known when the graph runs */
    tn_value *scale_value;         /* f32, rank 0 */
    tn_value *roi_start, *roi_end; /* f32, rank 0; tf_crop_and_resize only */
} axis_plan;

typedef struct resize {
    const char *mode, *transform, *nearest, *policy;
    double cubic_a, extrapolation;
    bool exclude_outside, antialias;
    axis_plan plan[TN_MAX_RANK];
    int n, rank;
} resize;

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- what the node says
 * ---------------------------------------------------------------------------------------------------- */

static bool read_modes(onnx_ctx *c, const onnx_node *n, resize *r)
{
    bool old = c->opset < 11;
    *r = (resize){.mode = onnx_attr_string(c, n, "mode", "nearest"),
                  .cubic_a = onnx_attr_float(c, n, "cubic_coeff_a", -0.75f)};
    r->transform = onnx_attr_string(c, n, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    r->nearest = onnx_attr_string(c, n, "nearest_mode", old ? "simple" : "round_prefer_floor");
    r->policy = onnx_attr_string(c, n, "keep_aspect_ratio_policy", "stretch");
    r->extrapolation = onnx_attr_float(c, n, "extrapolation_value", 0);
    r->exclude_outside = onnx_attr_int(c, n, "exclude_outside", 0);
    r->antialias = onnx_attr_int(c, n, "antialias", 0);
    if (is(r->mode, "bilinear"))
        r->mode = "linear";
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const transforms[] = {"half_pixel",          "half_pixel_symmetric", "pytorch_half_pixel",
                                             "align_corners",       "asymmetric",           "tf_crop_and_resize",
                                             "tf_half_pixel_for_nn"};
    bool good = false;
    for (size_t i = 0; i < TN_COUNT(modes); i++)
        good |= is(r->mode, modes[i]);
    if (!good)
        return onnx_error(c, n, "`mode` must be nearest, linear or cubic, found '%s'", r->mode);
    good = false;
    for (size_t i = 0; i < TN_COUNT(transforms); i++)
        good |= is(r->transform, transforms[i]);
    return good || onnx_error(c, n, "unknown `coordinate_transformation_mode` '%s'", r->transform);
}

static bool read_plan_axes(onnx_ctx *c, const onnx_node *n, resize *r)
{
    const tn_type *type = &n->input[0]->type;
    int64_t axes[TN_MAX_RANK];
    int count;
    const int64_t *given = onnx_attr_ints(c, n, "axes", &count);
    r->rank = type->rank;
    r->n = given ? count : type->rank;
    if (r->n > TN_MAX_RANK || r->n < 1)
        return onnx_error(c, n, "from 1 to %d axes are expected, found %d", TN_MAX_RANK, r->n);
    if (given && !onnx_axes(c, n, given, count, type->rank, axes))
        return false;
    for (int i = 0; i < r->n; i++) {
        int axis = given ? (int)axes[i] : i;
        r->plan[i] = (axis_plan){.axis = axis, .in = type->dim[axis], .out = type->dim[axis], .scale = 1};
    }
    return true;
}

/* floor(size * scale), exactly: a float is an integer over a power of two. */
static tn_dim scaled_size(onnx_ctx *c, tn_dim size, double scale)
{
    if (tn_dim_is_const(size))
        return emit_dim(c, (int64_t)floor((double)size->value * scale));
    int64_t divisor = 1;
    while (scale != floor(scale) && divisor < (1 << 30)) {
        scale *= 2;
        divisor *= 2;
    }
    return tn_dim_floordiv(c->session, tn_dim_mul(c->session, size, emit_dim(c, (int64_t)scale)), emit_dim(c, divisor));
}

static tn_value *element(onnx_ctx *c, tn_value *list, int i)
{
    tn_value *one = emit_slice_axis(c, list, 0, emit_dim(c, i), emit_dim(c, i + 1), 1);
    return one ? tn_convert(&c->b, tn_reshape(&c->b, one, NULL, 0), TN_F32) : NULL;
}

static bool known_scales(onnx_ctx *c, const onnx_node *n, resize *r, const float *scales, int count)
{
    if (count != r->n)
        return onnx_error(c, n, "`scales` must have %d entries, found %d", r->n, count);
    for (int i = 0; i < r->n; i++) {
        axis_plan *p = &r->plan[i];
        if (!(scales[i] > 0) || scales[i] > 1e6f)
            return onnx_error(c, n, "`scales` must be positive, found %g", (double)scales[i]);
        p->scale = scales[i];
        p->scale_value = emit_number(c, TN_F32, p->scale);
        p->out = scaled_size(c, p->in, p->scale);
    }
    return true;
}

static bool runtime_sizes(onnx_ctx *c, const onnx_node *n, resize *r, tn_value **sizes)
{
    tn_dim out[TN_MAX_RANK], one[] = {emit_dim(c, 1)};
    tn_value *parts[TN_MAX_RANK];
    for (int i = 0; i < r->n; i++) {
        parts[i] = sizes[i] ? tn_reshape(&c->b, tn_convert(&c->b, sizes[i], TN_I64), one, 1) : NULL;
        if (!parts[i])
            return false;
    }
    tn_value *all = r->n == 1 ? parts[0] : tn_concatenate(&c->b, parts, r->n, 0);
    if (!all || !onnx_runtime_dims(c, n, all, r->n, NULL, out))
        return false;
    for (int i = 0; i < r->n; i++)
        r->plan[i].out = out[i];
    return true;
}

static bool scales_from_input(onnx_ctx *c, const onnx_node *n, resize *r, tn_value *scales)
{
    const tn_tensor *tensor = onnx_constant_tensor(c, scales);
    int64_t count;
    float known[TN_MAX_RANK];
    if (tensor && tn_tensor_count(tensor, &count) && count <= TN_MAX_RANK) {
        for (int i = 0; i < count; i++)
            known[i] = (float)tn_number_to_double(tensor->dtype, tn_tensor_at(tensor, i));
        return known_scales(c, n, r, known, (int)count);
    }
    if (scales->type.rank != 1 || !tn_dim_is(scales->type.dim[0], r->n))
        return onnx_error(c, n, "`scales` must have %d entries", r->n);
    tn_value *sizes[TN_MAX_RANK];
    for (int i = 0; i < r->n; i++) {
        axis_plan *p = &r->plan[i];
        p->scale = 0;
        p->scale_value = element(c, scales, i);
        sizes[i] = emit_unary(c, TN_OP_floor, emit_mul(c, emit_size(c, p->in, TN_F32), p->scale_value));
    }
    return runtime_sizes(c, n, r, sizes);
}

/* not_larger, not_smaller: the smallest (largest) of the axes' scales for all, and sizes rounded half up. */
static bool keep_aspect(onnx_ctx *c, const onnx_node *n, resize *r)
{
    bool smallest = is(r->policy, "not_larger"), known = true;
    double scale = r->plan[0].scale;
    tn_value *value = r->plan[0].scale_value, *sizes[TN_MAX_RANK];
    for (int i = 0; i < r->n; i++) {
        known = known && r->plan[i].scale > 0 && tn_dim_is_const(r->plan[i].in);
        scale = smallest ? fmin(scale, r->plan[i].scale) : fmax(scale, r->plan[i].scale);
        value = smallest ? emit_min(c, value, r->plan[i].scale_value) : emit_max(c, value, r->plan[i].scale_value);
    }
    for (int i = 0; i < r->n; i++) {
        axis_plan *p = &r->plan[i];
        p->scale = known ? scale : 0;
        p->scale_value = known ? emit_number(c, TN_F32, scale) : value;
        if (known)
            p->out = emit_dim(c, (int64_t)floor((double)p->in->value * scale + 0.5));
        else
            sizes[i] =
                emit_unary(c, TN_OP_floor, emit_add_number(c, emit_mul(c, emit_size(c, p->in, TN_F32), value), 0.5));
    }
    return known || runtime_sizes(c, n, r, sizes);
}

static bool sizes_from_input(onnx_ctx *c, const onnx_node *n, resize *r, tn_value *sizes)
{
    tn_dim out[ONNX_MAX_KNOWN];
    if (sizes->type.rank != 1 || !tn_dim_is(sizes->type.dim[0], r->n))
        return onnx_error(c, n, "`sizes` must have %d entries", r->n);
    if (!onnx_runtime_dims(c, n, sizes, r->n, NULL, out))
        return false;
    for (int i = 0; i < r->n; i++) {
        axis_plan *p = &r->plan[i];
        bool known = tn_dim_is_const(out[i]) && tn_dim_is_const(p->in) && p->in->value > 0;
        p->out = out[i];
        if (tn_dim_eq(c->session, p->in, p->out))
            p->scale = 1;
        else
            p->scale = known ? (double)out[i]->value / (double)p->in->value : 0;
        p->scale_value = p->scale > 0 ? emit_number(c, TN_F32, p->scale)
                                      : emit_div(c, emit_size(c, p->out, TN_F32), emit_size(c, p->in, TN_F32));
    }
    return is(r->policy, "stretch") || keep_aspect(c, n, r);
}

static bool read_roi(onnx_ctx *c, const onnx_node *n, resize *r)
{
    tn_value *roi = onnx_in(n, 1);
    if (!is(r->transform, "tf_crop_and_resize"))
        return true;
    if (!roi || roi->type.rank != 1 || !tn_dim_is(roi->type.dim[0], 2 * r->n))
        return onnx_error(c, n, "tf_crop_and_resize needs `roi` with %d entries", 2 * r->n);
    for (int i = 0; i < r->n; i++) {
        r->plan[i].roi_start = element(c, roi, i);
        r->plan[i].roi_end = element(c, roi, r->n + i);
    }
    return true;
}

/* ---- coordinates
 * -------------------------------------------------------------------------------------------------------------- */

static tn_value *crop_coordinate(onnx_ctx *c, const axis_plan *p, tn_value *i, tn_value *width)
{
    tn_value *last = emit_add_number(c, emit_size(c, p->in, TN_F32), -1);
    tn_value *extent = emit_mul(c, emit_sub(c, p->roi_end, p->roi_start), last);
    tn_value *many = emit_div(c, emit_mul(c, i, extent), emit_add_number(c, width, -1));
    tn_value *x = emit_select(c, emit_compare_number(c, "EQ", width, 1), emit_mul_number(c, extent, 0.5), many);
    return emit_add(c, x, emit_mul(c, p->roi_start, last));
}

/* Input coordinate of every output position: f32[out]. `width` is the output's size before it was rounded down. */
static tn_value *coordinates(onnx_ctx *c, const resize *r, const axis_plan *p)
{
    tn_value *i = tn_iota(&c->b, TN_F32, &p->out, 1, 0), *in = emit_size(c, p->in, TN_F32);
    tn_value *width = emit_mul(c, in, p->scale_value), *zero = emit_number(c, TN_F32, 0);
    tn_value *half = emit_add_number(c, emit_div(c, emit_add_number(c, i, 0.5), p->scale_value), -0.5);
    if (is(r->transform, "half_pixel"))
        return half;
    if (is(r->transform, "asymmetric"))
        return emit_div(c, i, p->scale_value);
    if (is(r->transform, "tf_half_pixel_for_nn"))
        return emit_add_number(c, half, 0.5);
    if (is(r->transform, "pytorch_half_pixel"))
        return emit_select(c, emit_compare_number(c, "EQ", width, 1), zero, half);
    if (is(r->transform, "align_corners")) {
        tn_value *x = emit_div(c, emit_mul(c, i, emit_add_number(c, in, -1)), emit_add_number(c, width, -1));
        return emit_select(c, emit_compare_number(c, "EQ", width, 1), zero, x);
    }
    if (is(r->transform, "half_pixel_symmetric")) {
        tn_value *adjustment = emit_div(c, emit_size(c, p->out, TN_F32), width);
        tn_value *shift = emit_mul(c, emit_mul_number(c, in, 0.5), emit_sub(c, emit_number(c, TN_F32, 1), adjustment));
        return emit_add(c, shift, half);
    }
    return crop_coordinate(c, p, i, width);
}

/* ---- one axis
 * -------------------------------------------------------------------------------------------------------------------
 */

static tn_value *taken(onnx_ctx *c, tn_value *x, const axis_plan *p, tn_value *position)
{
    tn_value *last = emit_add_number(c, emit_size(c, p->in, TN_F32), -1);
    position = emit_min(c, emit_max(c, position, emit_number(c, TN_F32, 0)), last);
    tn_dtype index = p->in->hi <= INT32_MAX ? TN_I32 : TN_I64;
    return emit_take(c, x, tn_convert(&c->b, position, index), p->axis);
}

static tn_value *nearest_position(onnx_ctx *c, const resize *r, const axis_plan *p, tn_value *x)
{
    if (is(r->nearest, "round_prefer_floor"))
        return emit_unary(c, TN_OP_ceil, emit_add_number(c, x, -0.5));
    if (is(r->nearest, "round_prefer_ceil"))
        return emit_unary(c, TN_OP_floor, emit_add_number(c, x, 0.5));
    bool up = is(r->nearest, "ceil") || (is(r->nearest, "simple") && p->scale > 0 && p->scale < 1);
    return emit_unary(c, up ? TN_OP_ceil : TN_OP_floor, x);
}

/* True when output position i takes input position floor(i / times), for a whole number of times. */
static bool repeats(onnx_ctx *c, const resize *r, const axis_plan *p, int64_t *times)
{
    if (r->rank == TN_MAX_RANK || !is(r->mode, "nearest") || p->scale < 1 || p->scale > 1024 ||
        p->scale != floor(p->scale))
        return false;
    *times = (int64_t)p->scale;
    if (!tn_dim_eq(c->session, p->out, tn_dim_mul(c->session, p->in, emit_dim(c, *times))))
        return false;
    bool floors = is(r->nearest, "floor") || is(r->nearest, "simple"), rounds = strncmp(r->nearest, "round", 5) == 0;
    if (is(r->transform, "asymmetric"))
        return floors || (*times == 2 && is(r->nearest, "round_prefer_floor"));
    return rounds && (is(r->transform, "half_pixel") || is(r->transform, "half_pixel_symmetric"));
}

static tn_value *repeated(onnx_ctx *c, tn_value *x, const axis_plan *p, int64_t times)
{
    tn_dim wide[TN_MAX_RANK + 1], joined[TN_MAX_RANK];
    int64_t axes[TN_MAX_RANK];
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++) {
        axes[i] = i <= p->axis ? i : i + 1;
        wide[axes[i]] = joined[i] = x->type.dim[i];
    }
    wide[p->axis + 1] = emit_dim(c, times);
    joined[p->axis] = p->out;
    x = tn_broadcast_in_dim(&c->b, x, wide, rank + 1, axes);
    return x ? tn_reshape(&c->b, x, joined, rank) : NULL;
}

/* The kernel at distance d >= 0 (f32). */
static tn_value *kernel(onnx_ctx *c, const resize *r, tn_value *d)
{
    if (is(r->mode, "linear"))
        return emit_max(c, emit_sub(c, emit_number(c, TN_F32, 1), d), emit_number(c, TN_F32, 0));
    double a = r->cubic_a; /* Keys' cubic convolution */
    tn_value *square = emit_mul(c, d, d);
    tn_value *near =
        emit_add_number(c, emit_mul(c, square, emit_add_number(c, emit_mul_number(c, d, a + 2), -(a + 3))), 1);
    tn_value *far = emit_add_number(c, emit_mul_number(c, d, a), -5 * a);
    far = emit_add_number(c, emit_mul(c, emit_add_number(c, emit_mul(c, far, d), 8 * a), d), -4 * a);
    tn_value *zero = emit_number(c, TN_F32, 0);
    return emit_select(c, emit_compare_number(c, "LE", d, 1), near,
                       emit_select(c, emit_compare_number(c, "LT", d, 2), far, zero));
}

enum { MAX_TAPS = 32 };

/* Many or unknown taps: every output position weighs the whole axis, extended at both ends by the kernel's reach of at
 * most twice the axis (antialiasing stretches it by in / out): one product with a matrix [out, 5 in]. */
static tn_value *interpolated_densely(onnx_ctx *c, const resize *r, tn_value *data, const axis_plan *p, tn_value *x)
{
    tn_dim dims[] = {p->out, tn_dim_mul(c->session, p->in, emit_dim(c, 5))};
    tn_value *size = emit_size(c, p->in, TN_F32), *one = emit_number(c, TN_F32, 1);
    tn_value *position = emit_sub(c, tn_iota(&c->b, TN_F32, dims + 1, 1, 0), emit_mul_number(c, size, 2));
    tn_value *shrink = r->antialias ? emit_min(c, p->scale_value, one) : one, *rows = taken(c, data, p, position);
    tn_value *center = x ? emit_broadcast(c, x, dims, 2, EMIT_AXES(0)) : NULL;
    tn_value *place = position ? emit_broadcast(c, position, dims, 2, EMIT_AXES(1)) : NULL;
    tn_value *weight = kernel(c, r, emit_mul(c, emit_unary(c, TN_OP_abs, emit_sub(c, place, center)), shrink));
    if (r->exclude_outside) {
        tn_value *inside = emit_and(c, emit_compare_number(c, "GE", place, 0), emit_compare(c, "LT", place, size));
        weight = emit_select(c, inside, weight, emit_number(c, TN_F32, 0));
    }
    int64_t axis = 1;
    tn_value *sum = emit_sum_axis(c, weight, 1);
    weight = !sum ? NULL : emit_div(c, weight, emit_spread(c, sum, &weight->type, &axis, 1));
    if (!weight || !rows)
        return NULL;
    tn_value *y = tn_dot_general(&c->b, rows, tn_convert(&c->b, weight, rows->type.dtype), NULL, NULL, 0,
                                 (int64_t[]){p->axis}, &axis, 1);
    return emit_axis_from_last(c, y, p->axis);
}

/* Neighbours floor(x) + first … floor(x) + first + taps - 1, weighted by the kernel, stretched when antialiasing
 * shrinks. */
static tn_value *interpolated(onnx_ctx *c, const resize *r, tn_value *data, const axis_plan *p, tn_value *x)
{
    double shrink = r->antialias && p->scale > 0 ? fmin(p->scale, 1) : 1, radius = is(r->mode, "linear") ? 1 : 2;
    int first = (int)floor(-radius / shrink) + 1, taps = 2 - 2 * first;
    if ((r->antialias && p->scale == 0) || taps > MAX_TAPS)
        return interpolated_densely(c, r, data, p, x);
    tn_value *base = emit_unary(c, TN_OP_floor, x), *position[MAX_TAPS], *weight[MAX_TAPS], *sum = NULL, *result = NULL;
    tn_value *size = emit_size(c, p->in, TN_F32);
    for (int i = 0; i < taps; i++) {
        position[i] = emit_add_number(c, base, first + i);
        weight[i] = kernel(c, r, emit_mul_number(c, emit_unary(c, TN_OP_abs, emit_sub(c, position[i], x)), shrink));
        if (r->exclude_outside) {
            tn_value *inside =
                emit_and(c, emit_compare_number(c, "GE", position[i], 0), emit_compare(c, "LT", position[i], size));
            weight[i] = emit_select(c, inside, weight[i], emit_number(c, TN_F32, 0));
        }
        sum = sum ? emit_add(c, sum, weight[i]) : weight[i];
    }
    bool normalise = r->exclude_outside || r->antialias;
    for (int i = 0; i < taps; i++) {
        tn_value *w = normalise ? emit_div(c, weight[i], sum) : weight[i], *row = taken(c, data, p, position[i]);
        if (!row || !w)
            return NULL;
        tn_value *term = emit_mul(c, row, emit_along(c, tn_convert(&c->b, w, row->type.dtype), &row->type, p->axis));
        result = result ? emit_add(c, result, term) : term;
    }
    return result;
}

static tn_value *outside_filled(onnx_ctx *c, const resize *r, tn_value *y, const axis_plan *p, tn_value *x)
{
    if (!y || !is(r->transform, "tf_crop_and_resize"))
        return y;
    tn_value *last = emit_add_number(c, emit_size(c, p->in, TN_F32), -1);
    tn_value *outside = emit_or(c, emit_compare_number(c, "LT", x, 0), emit_compare(c, "GT", x, last));
    return emit_select(c, emit_along(c, outside, &y->type, p->axis), emit_number(c, y->type.dtype, r->extrapolation),
                       y);
}

static tn_value *resize_axis(onnx_ctx *c, const resize *r, tn_value *data, const axis_plan *p)
{
    int64_t times;
    if (repeats(c, r, p, &times))
        return repeated(c, data, p, times);
    tn_value *x = coordinates(c, r, p), *y;
    if (is(r->mode, "nearest"))
        y = taken(c, data, p, nearest_position(c, r, p, x));
    else
        y = interpolated(c, r, data, p, x);
    return outside_filled(c, r, y, p, x);
}

/* Scales: attribute of Upsample 7; input 1 of Upsample 9 and Resize 10; input 2 since, or sizes in input 3. */
static bool read_scales(onnx_ctx *c, const onnx_node *n, resize *r)
{
    int count;
    const float *attribute = onnx_attr_floats(c, n, "scales", &count);
    if (attribute)
        return known_scales(c, n, r, attribute, count);
    tn_value *scales = onnx_in(n, n->ninputs == 2 || c->opset < 11 ? 1 : 2), *sizes = onnx_in(n, 3);
    if (sizes && !(sizes->type.rank == 1 && tn_dim_is(sizes->type.dim[0], 0)))
        return sizes_from_input(c, n, r, sizes);
    return scales ? scales_from_input(c, n, r, scales) : onnx_error(c, n, "one of `scales` and `sizes` must be given");
}

bool onnx_op_resize(onnx_ctx *c, const onnx_node *n)
{
    tn_value *x = n->input[0];
    tn_dtype type = x->type.dtype;
    resize r;
    if (!read_modes(c, n, &r) || !read_plan_axes(c, n, &r) || !read_scales(c, n, &r) || !read_roi(c, n, &r))
        return false;
    bool nearest = is(r.mode, "nearest"), crop = is(r.transform, "tf_crop_and_resize");
    if (!nearest && !tn_is_float(type))
        x = tn_convert(&c->b, x, TN_F32);
    for (int i = 0; x && i < r.n; i++) {
        const axis_plan *p = &r.plan[i];
        if (p->scale == 1 && tn_dim_eq(c->session, p->in, p->out) && !crop)
            continue;
        x = resize_axis(c, &r, x, p);
    }
    if (!nearest && !tn_is_float(type))
        x = emit_unary(c, TN_OP_round_nearest_even, x);
    return onnx_set_output(c, n, 0, tn_convert(&c->b, x, type));
}
