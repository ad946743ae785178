/* canonicalize: the forms that src/fuse lowers. It must run before fusion.
 *
 *   batch_norm_inference   elementwise operations; what concerns one feature is computed on vectors, from constants
 *                          once
 *   composite              its decomposition
 *   optimization_barrier   its operands
 *   convolution            operand and result channels-last ("b01f"), by transposes that `layout` then cancels, but
 *                          for depthwise ones that are faster without (assign.c); no
 *                          batch groups, no reversal, no dilation of the operand, no padding: those become
 *                          reshapes, `reverse` of the weights, `pad` of the operand. Depthwise ones keep padding
 *                          that is not negative: their kernels skip taps instead of reading a padded copy. On a CPU
 *                          their weights become "01io": vectors hold features
 *                          For a GPU they keep padding too, which is where a row of the operand does not exist, and
 *                          weights whose innermost dimension are taps become "o01i": then what is summed up are
 *                          neighbours in memory. One with so few
 *                          features that pixels are no whole pieces of 16 bytes (the first of a network) has its
 *                          operand padded with features and pixels of zeros until they are
 *   reduce_window          no dilation of the operand: `pad` between the elements, with the initial value
 *
 *     %0 = convolution %x, %w, lhs_layout = bf01, …, padding_low = [1, 1], padding_high = [1, 1], …
 * becomes
 *     %1 = transpose %x, permutation = [0, 2, 3, 1]
 *     %2 = pad %1, %zero, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0]
 *     %3 = convolution %2, %w, lhs_layout = b01f, …, padding_low = [0, 0], padding_high = [0, 0], …
 *     %0 = transpose %3, permutation = [0, 3, 1, 2] */
#include "opt/internal.h"

#include <string.h>

/* ---- batch norm ---------------------------------------------------------------------------------------------------
 */

/* The type that intermediate results have: narrow floats would lose too much. */
static tn_dtype wide_type(tn_dtype dtype)
{
    return tn_dtype_bits(dtype) < 32 ? TN_F32 : dtype;
}

static tn_value *along_feature(rewriter *rw, tn_value *vector, const tn_type *like, int64_t feature)
{
    return tn_broadcast_in_dim(&rw->b, vector, like->dim, like->rank, &feature);
}

/* sqrt(variance + epsilon) */
static tn_value *deviation(rewriter *rw, tn_value *variance, double epsilon)
{
    tn_value *e = build_splat(&rw->b, &variance->type, tn_number_from_double(variance->type.dtype, epsilon));
    return tn_unary(&rw->b, TN_OP_sqrt, tn_binary(&rw->b, TN_OP_add, variance, e));
}

/* x * s + t with s = scale / deviation, t = offset - mean * s; step by step under TN_NUMERICS_STRICT:
 * (x - mean) / deviation * scale + offset */
static bool batch_norm(rewriter *rw, tn_op *op)
{
    tn_builder *b = &rw->b;
    tn_value *v[5];
    tn_dtype narrow = op->result[0].type.dtype, wide = wide_type(narrow);
    int64_t feature = tn_attr_int(op, TN_A_feature_index, 0);
    for (int i = 0; i < 5; i++)
        v[i] = tn_convert(b, tn_operand(op, i), wide);
    const tn_type *type = &v[0]->type;
    tn_value *x = v[0], *scale = v[1], *offset = v[2], *mean = v[3],
             *d = deviation(rw, v[4], tn_find_attr(op, TN_A_epsilon)->f), *y;
    if (rw->options->numerics == TN_NUMERICS_STRICT) {
        y = tn_binary(b, TN_OP_subtract, x, along_feature(rw, mean, type, feature));
        y = tn_binary(b, TN_OP_divide, y, along_feature(rw, d, type, feature));
        y = tn_binary(b, TN_OP_multiply, y, along_feature(rw, scale, type, feature));
        y = tn_binary(b, TN_OP_add, y, along_feature(rw, offset, type, feature));
    } else {
        tn_value *s = tn_binary(b, TN_OP_divide, scale, d);
        tn_value *t = tn_binary(b, TN_OP_subtract, offset, tn_binary(b, TN_OP_multiply, mean, s));
        y = tn_binary(b, TN_OP_multiply, x, along_feature(rw, s, type, feature));
        y = tn_binary(b, TN_OP_add, y, along_feature(rw, t, type, feature));
    }
    return rw_replace(rw, op, tn_convert(b, y, narrow));
}

/* ---- wrappers -----------------------------------------------------------------------------------------------------
 */

static bool inline_composite(rewriter *rw, tn_op *op)
{
    tn_value **args = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands + 1);
    for (int i = 0; i < op->noperands; i++)
        args[i] = tn_operand(op, i);
    return replace_by_region(rw, op, op->region[0], args);
}

/* It only keeps operations apart, which no later pass needs. Without users it goes. */
static bool drop_barrier(rewriter *rw, tn_op *op)
{
    tn_value **to = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)op->noperands + 1);
    for (int i = 0; i < op->noperands; i++)
        to[i] = tn_operand(op, i);
    return !op_is_unused(op) && rw_replace_all(rw, op, to);
}

/* ---- convolutions -------------------------------------------------------------------------------------------------
 */

static int place_in(const tn_op *op, tn_attr_name layout, char what)
{
    const char *text = tn_find_attr(op, layout)->s;
    return (int)(strchr(text, what) - text);
}

static int spatial_rank(const tn_op *op)
{
    return op->result[0].type.rank - 2;
}

/* The layout that has the spatial dimensions in order between the two others. */
static const char *layout_around(rewriter *rw, char first, int spatial, char last)
{
    char text[TN_MAX_RANK + 1];
    text[0] = first;
    for (int i = 0; i < spatial; i++)
        text[1 + i] = (char)('0' + i);
    text[1 + spatial] = last;
    return tn_intern(rw->session, text, (size_t)spatial + 2);
}

static const char *channels_last(rewriter *rw, int spatial) { return layout_around(rw, 'b', spatial, 'f'); } /* "b01f", "b0f", … */

/* p[i] is where to[i] stands in `from`. */
static void layout_permutation(const char *from, const char *to, int64_t *p)
{
    for (int i = 0; to[i]; i++)
        p[i] = strchr(from, to[i]) - from;
}

int conv_feature(const tn_op *op) { return place_in(op, TN_A_out_layout, 'f'); }

bool conv_is_turned(const tn_op *op)
{
    int last = spatial_rank(op) + 1;
    bool turned = place_in(op, TN_A_lhs_layout, 'b') == 0 && place_in(op, TN_A_lhs_layout, 'f') == last && place_in(op, TN_A_out_layout, 'b') == 0 && conv_feature(op) == last;
    for (int i = 0; i < last - 1; i++)
        turned &= place_in(op, TN_A_lhs_layout, (char)('0' + i)) == i + 1 && place_in(op, TN_A_out_layout, (char)('0' + i)) == i + 1;
    return turned;
}

/* First of the rules on convolutions: which are to be turned is known by the operations that there are. */
static bool convolution_layout(rewriter *rw, tn_op *op)
{
    const char *lhs = tn_find_attr(op, TN_A_lhs_layout)->s, *out = tn_find_attr(op, TN_A_out_layout)->s;
    const char *last = channels_last(rw, spatial_rank(op));
    int64_t before[TN_MAX_RANK], after[TN_MAX_RANK];
    if ((lhs == last && out == last) || (rw->context && !tn_map_get(rw->context, TN_KEY(op))))
        return false;
    layout_permutation(lhs, last, before);
    layout_permutation(last, out, after);
    tn_value *operands[] = {tn_transpose(&rw->b, tn_operand(op, 0), before), tn_operand(op, 1)};
    tn_attr changes[] = {{.name = TN_A_lhs_layout, .s = last}, {.name = TN_A_out_layout, .s = last}};
    tn_op *made = build_like(&rw->b, op, operands, changes, 2);
    return made && rw_replace(rw, op, tn_transpose(&rw->b, &made->result[0], after));
}

static bool convolution_reversal(rewriter *rw, tn_op *op)
{
    int n = spatial_rank(op), count = 0;
    int64_t axes[TN_MAX_RANK], none[TN_MAX_RANK] = {0};
    for (int i = 0; i < n; i++)
        if (ints_of(op, TN_A_window_reversal)[i])
            axes[count++] = place_in(op, TN_A_rhs_layout, (char)('0' + i));
    if (count == 0)
        return false;
    tn_value *operands[] = {tn_operand(op, 0), tn_reverse(&rw->b, tn_operand(op, 1), axes, count)};
    tn_attr change = attr_ints(TN_A_window_reversal, none, n);
    tn_op *made = build_like(&rw->b, op, operands, &change, 1);
    return made && rw_replace(rw, op, &made->result[0]);
}

/* Batch group g of the operand meets the g-th part of the kernel's outputs. With the groups put side by side among the
 * features, that is what feature groups do: [G * b, …, f] -> [G, b, …, f] -> [b, …, G, f] -> [b, …, G * f]. The operand
 * is channels-last already. */
static bool convolution_batch_groups(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    int64_t groups = tn_attr_int(op, TN_A_batch_group_count, 1), p[TN_MAX_RANK];
    tn_value *x = tn_operand(op, 0);
    int rank = x->type.rank;
    tn_dim apart[TN_MAX_RANK], joined[TN_MAX_RANK];
    if (groups == 1 || rank == TN_MAX_RANK || tn_find_attr(op, TN_A_lhs_layout)->s != channels_last(rw, rank - 2))
        return false;
    tn_dim count = tn_dim_const(s, groups);
    apart[0] = count;
    apart[1] = tn_dim_floordiv(s, x->type.dim[0], count);
    for (int i = 1; i < rank; i++)
        apart[i + 1] = x->type.dim[i];
    for (int i = 0; i < rank - 1; i++) {
        p[i] = i + 1;
        joined[i] = apart[i + 1];
    }
    p[rank - 1] = 0;
    p[rank] = rank;
    joined[rank - 1] = tn_dim_mul(s, count, x->type.dim[rank - 1]);
    tn_value *moved = tn_transpose(&rw->b, tn_reshape(&rw->b, x, apart, rank + 1), p);
    tn_value *operands[] = {tn_reshape(&rw->b, moved, joined, rank), tn_operand(op, 1)};
    tn_attr changes[] = {{.name = TN_A_batch_group_count, .i = 1}, {.name = TN_A_feature_group_count, .i = groups}};
    tn_op *made = build_like(&rw->b, op, operands, changes, 2);
    return made && rw_replace(rw, op, &made->result[0]);
}

bool conv_is_depthwise_op(const tn_op *op)
{
    const tn_type *kernel = &tn_operand(op, 1)->type;
    int64_t groups = tn_attr_int(op, TN_A_feature_group_count, 1);
    return groups > 1 && tn_dim_is(kernel->dim[place_in(op, TN_A_rhs_layout, 'o')], groups) &&
           tn_dim_is(kernel->dim[place_in(op, TN_A_rhs_layout, 'i')], 1);
}

/* Must the operand be padded by an operation of its own? */
static bool needs_pad(const rewriter *rw, const tn_op *op, int n)
{
    bool pads = false, dilates = false, negative = false;
    for (int i = 0; i < n; i++) {
        tn_dim low = dims_of(op, TN_A_padding_low)[i], high = dims_of(op, TN_A_padding_high)[i];
        pads |= !tn_dim_is(low, 0) || !tn_dim_is(high, 0);
        negative |= low->lo < 0 || high->lo < 0;
        dilates |= ints_of(op, TN_A_base_dilation)[i] != 1;
    }
    return dilates || negative || (pads && !rw->options->gpu && !conv_is_depthwise_op(op));
}

static bool convolution_padding(rewriter *rw, tn_op *op)
{
    int n = spatial_rank(op);
    tn_dim zero = tn_dim_const(rw->session, 0), low[TN_MAX_RANK], high[TN_MAX_RANK], none[TN_MAX_RANK];
    int64_t interior[TN_MAX_RANK] = {0}, ones[TN_MAX_RANK];
    tn_value *x = tn_operand(op, 0);
    if (!needs_pad(rw, op, n))
        return false;
    for (int i = 0; i < x->type.rank; i++)
        low[i] = high[i] = zero;
    for (int i = 0; i < n; i++) {
        int at = place_in(op, TN_A_lhs_layout, (char)('0' + i));
        low[at] = dims_of(op, TN_A_padding_low)[i];
        high[at] = dims_of(op, TN_A_padding_high)[i];
        interior[at] = ints_of(op, TN_A_base_dilation)[i] - 1;
        none[i] = zero;
        ones[i] = 1;
    }
    tn_value *padded = tn_pad(&rw->b, x, tn_int_constant(&rw->b, x->type.dtype, 0), low, high, interior);
    tn_attr changes[] = {attr_dims(TN_A_padding_low, none, n), attr_dims(TN_A_padding_high, none, n),
                         attr_ints(TN_A_base_dilation, ones, n)};
    tn_op *made = build_like(&rw->b, op, (tn_value *[]){padded, tn_operand(op, 1)}, changes, 3);
    return made && rw_replace(rw, op, &made->result[0]);
}

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* "io01" without what stands around the spatial dimensions: "01io". */
static const char *taps_first(rewriter *rw, int spatial)
{
    char text[TN_MAX_RANK];
    for (int i = 0; i < spatial; i++)
        text[i] = (char)('0' + i);
    text[spatial] = 'i';
    text[spatial + 1] = 'o';
    return tn_intern(rw->session, text, (size_t)spatial + 2);
}

/* What is read together lies together: the taps of neighbouring features on a CPU, whose vectors hold features; on a GPU what is summed up, unless nothing is. Other
 * weights of a CPU are packed in any case. */
static bool convolution_weights(rewriter *rw, tn_op *op)
{
    bool depthwise = conv_is_depthwise_op(op), gpu = rw->options->gpu;
    int n = spatial_rank(op);
    const char *rhs = tn_find_attr(op, TN_A_rhs_layout)->s, *last = depthwise ? taps_first(rw, n) : layout_around(rw, 'o', n, 'i');
    int64_t p[TN_MAX_RANK];
    char innermost = rhs[strlen(rhs) - 1];
    if (depthwise == gpu || innermost == 'i' || innermost == 'o' || (depthwise && !conv_is_turned(op)))
        return false;
    layout_permutation(rhs, last, p);
    tn_value *operands[] = {tn_operand(op, 0), tn_transpose(&rw->b, tn_operand(op, 1), p)};
    tn_attr change = {.name = TN_A_rhs_layout, .s = last};
    tn_op *made = build_like(&rw->b, op, operands, &change, 1);
    return made && rw_replace(rw, op, &made->result[0]);
}

/* ---- convolutions on a GPU ---------------------------------------------------------------------------------------- */

enum { PIECE_BITS = 128 };

static bool is_pieces(int64_t elements, int bits) { return elements * bits % PIECE_BITS == 0; }

/* How many features make a step along the innermost spatial dim whole pieces of 16 bytes, where one pixel is less than a piece; 0: it is so already, or can't be. */
static int64_t wanted_features(const tn_op *op, int n)
{
    const tn_type *x = &tn_operand(op, 0)->type;
    int bits = tn_dtype_bits(x->dtype);
    bool plain = n > 0 && tn_attr_int(op, TN_A_feature_group_count, 1) == 1 && tn_attr_int(op, TN_A_batch_group_count, 1) == 1;
    for (int i = 0; plain && i < n; i++)
        plain = ints_of(op, TN_A_base_dilation)[i] == 1 && !ints_of(op, TN_A_window_reversal)[i] && dims_of(op, TN_A_padding_low)[i]->lo >= 0 &&
                dims_of(op, TN_A_padding_high)[i]->lo >= 0;
    if (!plain || !tn_dim_is_const(x->dim[n + 1]) || bits < 8 || x->dim[n + 1]->value < 1 || x->dim[n + 1]->value * bits >= PIECE_BITS ||
        ints_of(op, TN_A_window_dilation)[n - 1] != 1)
        return 0;
    int64_t features = x->dim[n + 1]->value, step = ints_of(op, TN_A_window_strides)[n - 1], wanted = 1;
    while (wanted < features || (!is_pieces(wanted * step, bits) && wanted * bits < PIECE_BITS))
        wanted *= 2;
    return !is_pieces(features * step, bits) && is_pieces(wanted * step, bits) ? wanted : 0;
}

/* The operand's width, padding included: what the taps reach, in whole pieces unless the result would become wider. */
static int64_t wanted_width(int64_t results, int64_t step, int64_t taps, int64_t features, int bits)
{
    int64_t reach = (results - 1) * step + taps, width = reach;
    while (!is_pieces(width * features, bits))
        width++;
    return (width - taps) / step + 1 == results ? width : reach;
}

static bool convolution_thin(rewriter *rw, tn_op *op)
{
    tn_session *s = rw->session;
    int n = spatial_rank(op), rank = n + 2, bits = tn_dtype_bits(op->result[0].type.dtype);
    tn_value *x = tn_operand(op, 0), *w = tn_operand(op, 1);
    if (!rw->options->gpu || n < 1 || tn_find_attr(op, TN_A_lhs_layout)->s != channels_last(rw, n))
        return false;
    int across = place_in(op, TN_A_rhs_layout, (char)('0' + n - 1)), summed = place_in(op, TN_A_rhs_layout, 'i');
    int64_t features = wanted_features(op, n), interior[TN_MAX_RANK] = {0};
    tn_dim zero = tn_dim_const(s, 0), low[TN_MAX_RANK], high[TN_MAX_RANK], more[TN_MAX_RANK], none[TN_MAX_RANK], wide = x->type.dim[n], results = op->result[0].type.dim[n];
    if (!features || !tn_dim_is_const(wide) || !tn_dim_is_const(results) || !tn_dim_is_const(w->type.dim[across]) || !tn_dim_is_const(dims_of(op, TN_A_padding_low)[n - 1]) || results->value < 1)
        return false;
    int64_t own = x->type.dim[n + 1]->value, taps = w->type.dim[across]->value, all = taps, before = dims_of(op, TN_A_padding_low)[n - 1]->value;
    while (!is_pieces(all * features, bits))
        all++;
    int64_t width = wanted_width(results->value, ints_of(op, TN_A_window_strides)[n - 1], all, features, bits);
    for (int i = 0; i < rank; i++)
        low[i] = high[i] = more[i] = none[i] = zero;
    for (int i = 0; i < n; i++) {
        low[1 + i] = dims_of(op, TN_A_padding_low)[i];
        high[1 + i] = dims_of(op, TN_A_padding_high)[i];
    }
    high[n] = tn_dim_const(s, width - before - wide->value);
    high[n + 1] = more[summed] = tn_dim_const(s, features - own);
    more[across] = tn_dim_const(s, all - taps);
    tn_value *nothing = tn_int_constant(&rw->b, x->type.dtype, 0), *nought = tn_int_constant(&rw->b, w->type.dtype, 0);
    tn_value *operands[] = {tn_pad(&rw->b, x, nothing, low, high, interior), tn_pad(&rw->b, w, nought, none, more, interior)};
    tn_attr changes[] = {attr_dims(TN_A_padding_low, none, n), attr_dims(TN_A_padding_high, none, n)};
    tn_op *made = build_like(&rw->b, op, operands, changes, 2);
    return made && rw_replace(rw, op, &made->result[0]);
}

/* ---- windows ------------------------------------------------------------------------------------------------------
 */

static bool window_dilation_of_base(rewriter *rw, tn_op *op)
{
    int rank = tn_operand(op, 0)->type.rank, n = op->nresults;
    tn_dim none[TN_MAX_RANK];
    int64_t interior[TN_MAX_RANK], ones[TN_MAX_RANK];
    bool dilates = false;
    for (int i = 0; i < rank; i++) {
        interior[i] = ints_of(op, TN_A_base_dilation)[i] - 1;
        dilates |= interior[i] != 0;
        none[i] = tn_dim_const(rw->session, 0);
        ones[i] = 1;
    }
    if (!dilates)
        return false;
    tn_value **operands = TN_NEW_ARRAY(&rw->session->arena, tn_value *, 2 * (size_t)n);
    for (int i = 0; i < n; i++) {
        operands[n + i] = tn_operand(op, n + i);
        operands[i] = tn_pad(&rw->b, tn_operand(op, i), operands[n + i], none, none, interior);
    }
    tn_attr change = attr_ints(TN_A_base_dilation, ones, rank);
    tn_op *made = build_like(&rw->b, op, operands, &change, 1);
    tn_value **to = TN_NEW_ARRAY(&rw->session->arena, tn_value *, (size_t)n);
    for (int i = 0; made && i < n; i++)
        to[i] = &made->result[i];
    return made && rw_replace_all(rw, op, to);
}

/* ---- the pass -----------------------------------------------------------------------------------------------------
 */

tn_status opt_canonicalize(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    static const rule rules[] = {
        RULE(batch_norm_inference, batch_norm, EXACT),
        RULE(composite, inline_composite, EXACT),
        RULE(optimization_barrier, drop_barrier, EXACT),
        RULE(reduce_window, window_dilation_of_base, EXACT),
        {.apply = NULL},
    };
    static const rule convolutions[] = {
        RULE(convolution, convolution_layout, EXACT),
        RULE(convolution, convolution_reversal, EXACT),
        RULE(convolution, convolution_batch_groups, EXACT),
        RULE(convolution, convolution_padding, EXACT),
        RULE(convolution, convolution_weights, EXACT),
        RULE(convolution, convolution_thin, EXACT),
        {.apply = NULL},
    };
    static const rule *const sets[] = {rules}, *const last_sets[] = {convolutions};
    TN_TRY(rw_run(graph, options, "canonicalize", sets, TN_COUNT(sets), NULL, changed));
    tn_arena arena = {.on_oom = graph->session->arena.on_oom};
    tn_map last = {.arena = &arena};
    if (!options->gpu)
        opt_assign_features_last(graph, &arena, &last);
    tn_status status = rw_run(graph, options, "canonicalize", last_sets, TN_COUNT(last_sets), options->gpu ? NULL : &last, changed);
    tn_arena_free(&arena);
    return status;
}
