/* Products and convolutions: a group whose root's elements need a sum of products.
 *
 * Dims of the group are those of the product's result (batch, rows, columns), then the contracted ones. Rows and columns become the axes of an
 * accumulator tile; everything else a grid coordinate or a range of the fold. A right operand that is constant is packed once, at load, into
 * panels of the register tile's width (performance.md A3); a convolution is the same product with the taps among the contracted dims, and
 * rows found by an index tile where the pixels of the result are not evenly spaced in the operand (reference/tile.md section 6).
 * Convolutions come here without padding, dilation of the operand or reversal, with features last: canonicalize makes them so. */
#include "fuse/product.h"

#include <assert.h>
#include <string.h>

/* ---- which dims contract ------------------------------------------------------------------------------------------------- */

static int contract_dim(fuser *F, group *g, tn_dim extent)
{
    if (g->ndims == FUSE_DIMS)
        return -1;
    (void)F;
    g->dim[g->ndims] = (gdim){.extent = extent, .fold = true};
    g->order[g->ndims] = g->ndims;
    return g->ndims++;
}

bool product_contract(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    int nb, nc, q;
    const int64_t *lb = tn_attr_ints(op, TN_A_lhs_batch, &nb), *rb = tn_attr_ints(op, TN_A_rhs_batch, &q);
    const int64_t *lc = tn_attr_ints(op, TN_A_lhs_contract, &nc), *rc = tn_attr_ints(op, TN_A_rhs_contract, &q);
    const tn_type *lt = &tn_operand(op, 0)->type, *rt = &tn_operand(op, 1)->type;
    if (g->ndims + nc > FUSE_DIMS)
        return false;
    fmap *l = map_new(F, g, lt->rank), *r = map_new(F, g, rt->rank);
    bool lused[TN_MAX_RANK] = {false}, rused[TN_MAX_RANK] = {false};
    int next = 0;
    for (int i = 0; i < nb; i++) {
        l->c[lb[i]] = r->c[rb[i]] = d->map->c[next++];
        lused[lb[i]] = rused[rb[i]] = true;
    }
    for (int i = 0; i < nc; i++) {
        int k = contract_dim(F, g, lt->dim[lc[i]]);
        l->c[lc[i]].a.coef[k] = r->c[rc[i]].a.coef[k] = tn_dim_const(F->session, 1);
        lused[lc[i]] = rused[rc[i]] = true;
    }
    for (int i = 0; i < lt->rank; i++)
        if (!lused[i])
            l->c[i] = d->map->c[next++];
    for (int i = 0; i < rt->rank; i++)
        if (!rused[i])
            r->c[i] = d->map->c[next++];
    if (nc == 0) /* an outer product: one trip */
        contract_dim(F, g, tn_dim_const(F->session, 1));
    l->movement_only = r->movement_only = true;
    d->argmap[0] = l;
    d->argmap[1] = r;
    return true;
}

static int layout_at(const tn_op *op, tn_attr_name name, char c) { return (int)(strchr(tn_find_attr(op, name)->s, c) - tn_find_attr(op, name)->s); }

bool conv_is_depthwise(const tn_op *op)
{
    const tn_type *rhs = &tn_operand(op, 1)->type;
    int64_t groups = tn_attr_int(op, TN_A_feature_group_count, 1);
    return groups > 1 && tn_dim_is(rhs->dim[layout_at(op, TN_A_rhs_layout, 'o')], groups) && tn_dim_is(rhs->dim[layout_at(op, TN_A_rhs_layout, 'i')], 1);
}

static bool conv_is_plain(const fuser *F, const tn_op *op)
{
    int n, q;
    const tn_dim *low = tn_attr_dims(op, TN_A_padding_low, &n), *high = tn_attr_dims(op, TN_A_padding_high, &q);
    const int64_t *base = tn_attr_ints(op, TN_A_base_dilation, &q), *reversal = tn_attr_ints(op, TN_A_window_reversal, &q);
    for (int i = 0; i < n; i++)
        if ((!fuse_for_gpu(F) && (!tn_dim_is(low[i], 0) || !tn_dim_is(high[i], 0))) || base[i] != 1 || reversal[i])
            return false;
    int rank = n + 2;
    return tn_attr_int(op, TN_A_batch_group_count, 1) == 1 && layout_at(op, TN_A_lhs_layout, 'f') == rank - 1 && layout_at(op, TN_A_out_layout, 'f') == rank - 1;
}

static bool conv_demand(fuser *F, group *g, demand *d)
{
    const tn_op *op = d->op;
    int n, q;
    const int64_t *stride = tn_attr_ints(op, TN_A_window_strides, &n), *dilation = tn_attr_ints(op, TN_A_window_dilation, &q);
    const tn_dim *low = tn_attr_dims(op, TN_A_padding_low, &q), *high = tn_attr_dims(op, TN_A_padding_high, &q);
    int64_t groups = tn_attr_int(op, TN_A_feature_group_count, 1);
    const tn_type *rt = &tn_operand(op, 1)->type;
    tn_session *s = F->session;
    if (!conv_is_plain(F, op) || g->ndims + n + 2 > FUSE_DIMS)
        return false;
    fmap *l = map_new(F, g, n + 2), *r = map_new(F, g, n + 2);
    int lf = n + 1, of = n + 1, ro = layout_at(op, TN_A_rhs_layout, 'o'), ri = layout_at(op, TN_A_rhs_layout, 'i');
    r->c[ro] = d->map->c[of];
    l->c[layout_at(op, TN_A_lhs_layout, 'b')] = d->map->c[layout_at(op, TN_A_out_layout, 'b')];
    int group_dim = -1;
    if (groups > 1) { /* the result's feature is group * size + feature in the group */
        int dim;
        tn_dim features = op->result[0].type.dim[of];
        if (!affine_is_dim(&d->map->c[of].a, g->ndims, &dim) || g->dim[dim].extent != features)
            return false; /* some of the features: another number in each group */
        tn_dim size = tn_dim_floordiv(s, features, tn_dim_const(s, groups));
        fuse_split_dim(F, g, dim, tn_dim_const(s, groups), size);
        r->c[ro] = d->map->c[of];
        group_dim = dim;
    }
    for (int i = 0; i < n; i++) {
        int li = layout_at(op, TN_A_lhs_layout, (char)('0' + i)), ti = layout_at(op, TN_A_rhs_layout, (char)('0' + i));
        int oi = layout_at(op, TN_A_out_layout, (char)('0' + i));
        int k = contract_dim(F, g, rt->dim[ti]);
        for (int j = 0; j < FUSE_DIMS; j++)
            if (d->map->c[oi].a.coef[j])
                l->c[li].a.coef[j] = tn_dim_mul(s, d->map->c[oi].a.coef[j], tn_dim_const(s, stride[i]));
        l->c[li].a.coef[k] = tn_dim_const(s, dilation[i]);
        r->c[ti].a.coef[k] = tn_dim_const(s, 1);
        if (tn_dim_is(low[i], 0) && tn_dim_is(high[i], 0))
            continue;
        l->c[li].a.base = tn_dim_sub(s, tn_dim_const(s, 0), low[i]);
        fuse_guard_coord(F, l, li, tn_operand(op, 0)->type.dim[li]);
    }
    int k = contract_dim(F, g, rt->dim[ri]);
    l->c[lf].a.coef[k] = r->c[ri].a.coef[k] = tn_dim_const(s, 1);
    if (group_dim >= 0)
        l->c[lf].a.coef[group_dim] = rt->dim[ri];
    l->movement_only = r->movement_only = true;
    d->argmap[0] = l;
    d->argmap[1] = r;
    return true;
}

bool product_demand(fuser *F, group *g, demand *d)
{
    if (!(d->op->code == TN_OP_dot_general ? product_contract(F, g, d) : conv_demand(F, g, d)))
        return false;
    g->kind = GROUP_PRODUCT;
    g->product[g->nproducts++] = d;
    return true;
}

bool product_joins_sibling(fuser *F, group *g, demand *d)
{
    if (g->kind != GROUP_PRODUCT || g->nproducts == FUSE_PRODUCTS || d->op->code != TN_OP_dot_general)
        return false;
    demand *first = g->product[0];
    const tn_type *a = &tn_operand(d->op, 1)->type, *b = &tn_operand(first->op, 1)->type;
    bool alike = first->op->code == d->op->code && tn_operand(d->op, 0) == tn_operand(first->op, 0) && tn_opt_same_attrs(d->op, first->op) && a->dtype == b->dtype && a->rank == b->rank &&
                 d->op->result->type.dtype == first->op->result->type.dtype && map_same(d->map, first->map, g->ndims);
    for (int i = 0; alike && i < a->rank; i++)
        alike = tn_dim_eq(F->session, a->dim[i], b->dim[i]);
    if (!alike || (fuse_for_gpu(F) && !fuse_gpu_takes_siblings(F, d->op)))
        return false;
    d->argmap[0] = first->argmap[0];
    d->argmap[1] = first->argmap[1];
    g->product[g->nproducts++] = d;
    return true;
}

/* ---- accesses of the operands ------------------------------------------------------------------------------------------------- */

/* Number of the operand that is converted from 8 bits; -1: none is. */
static int narrow_operand(const tn_op *multiply)
{
    for (int i = 0; i < 2; i++) {
        const tn_value *x = tn_operand(multiply, i);
        if (tn_is_op(x, TN_OP_convert) && !tn_find_attr(x->def, TN_A_saturate) && tn_is_f8(tn_operand(x->def, 0)->type.dtype))
            return i;
    }
    return -1;
}

/* Each element of the operand, at least once: in another order, or repeated. NULL: v is not that of another value. */
static const tn_value *moved_from(const tn_value *v, bool repeated)
{
    int64_t from, to;
    if (!v->def || !op_is_view(v->def) || !tn_type_count(&tn_operand(v->def, 0)->type, &from) || !tn_type_count(&v->type, &to))
        return NULL;
    return from == to || (repeated && from < to) ? tn_operand(v->def, 0) : NULL;
}

/* Numbers for many elements of a tensor of so many: scales, zero points. */
static bool is_few(const tn_value *v, int64_t elements)
{
    enum { EACH = 8 };
    int64_t n;
    for (const tn_value *from = v; from; from = tn_is_op(v, TN_OP_convert) ? tn_operand(v->def, 0) : moved_from(v, true))
        v = from;
    return tn_constant_of(v) && tn_type_count(&v->type, &n) && n <= elements / EACH;
}

/* The constant of fewer bits that v is made of, element by element, with few numbers besides: a weight that is dequantised. NULL: it is something else. */
static const tn_value *dequantised_from(const tn_value *v, int depth)
{
    const tn_op *op = v->def;
    int64_t elements;
    if (!op || depth == 0 || !tn_type_count(&v->type, &elements))
        return NULL;
    if (moved_from(v, false))
        return dequantised_from(moved_from(v, false), depth - 1);
    if (op->code == TN_OP_convert && !tn_find_attr(op, TN_A_saturate)) {
        const tn_value *x = tn_operand(op, 0);
        for (const tn_value *from = x; from; from = moved_from(x, false))
            x = from;
        bool narrow = tn_constant_of(x) && !fuse_single_constant(x) && !tn_is_f8(x->type.dtype) && x->type.dtype != TN_BOOL && tn_dtype_bits(x->type.dtype) < tn_dtype_bits(v->type.dtype);
        return narrow ? x : dequantised_from(tn_operand(op, 0), depth - 1);
    }
    tn_scalar fn = tn_op_scalar(op);
    for (int i = 0; i < 2 && (fn == TN_S_mul || fn == TN_S_sub || fn == TN_S_add); i++) {
        const tn_value *from = is_few(tn_operand(op, 1 - i), elements) ? dequantised_from(tn_operand(op, i), depth - 1) : NULL;
        if (from)
            return from;
    }
    return NULL;
}

enum { DEQUANTISED_DEPTH = 8 }; /* operations between a product and what its weight is stored as */

/* The product that v, and nothing else, is computed for as its right operand; NULL: there is no such. */
static const tn_op *right_of(const tn_value *v)
{
    for (int depth = 0; depth < 2 * DEQUANTISED_DEPTH && tn_has_one_use(v); depth++) {
        const tn_use *use = v->uses;
        if (use->user->code == TN_OP_dot_general)
            return use == &use->user->operand[1] ? use->user : NULL;
        if (!(tn_op_traits(use->user->code) & (TN_ELEMENTWISE | TN_MOVES_DATA)))
            return NULL;
        v = use->user->result;
    }
    return NULL;
}

/* The operand that a chain to what a product reads goes on with. */
static int next_operand(const tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    for (int i = 0; i < 2 && (fn == TN_S_mul || fn == TN_S_sub || fn == TN_S_add); i++)
        if (dequantised_from(tn_operand(op, i), DEQUANTISED_DEPTH))
            return i;
    return fn == TN_S_mul ? narrow_operand(op) : 0;
}

bool product_dequantises(const fuser *F, const tn_op *op)
{
    const tn_op *dot = right_of(op->result);
    const tn_value *from = dot && !fuse_for_gpu(F) && dot->result->type.dtype == TN_F32 ? dequantised_from(op->result, DEQUANTISED_DEPTH) : NULL;
    int operations = 0;
    for (const tn_value *v = op->result; from && v != from; v = tn_operand(v->def, next_operand(v->def)))
        operations += !op_is_view(v->def);
    return from && fuse_dequantises_for_less(F, dot, from, operations);
}

static source operand_source(fuser *F, demand *d, int i)
{
    source s = {.views_only = true};
    while (d->arg[i]) {
        d = d->arg[i];
        i = next_operand(d->op);
        s.views_only &= d->op->code != TN_OP_convert;
    }
    s.value = tn_operand(d->op, i);
    s.l = fuse_location(F, s.value);
    s.m = d->argmap[i];
    if (!s.m) { /* a reshape of a stored operand */
        location *as = fuse_dense(F, s.l->buffer, &d->op->result->type);
        as->offset = s.l->offset;
        s.l = as;
        s.m = d->map;
    }
    return s;
}

bool product_takes_scale(const fuser *F, const tn_op *op)
{
    int i = tn_op_scalar(op) == TN_S_mul ? narrow_operand(op) : -1;
    const tn_value *scale = i < 0 ? NULL : tn_operand(op, 1 - i);
    return scale && fuse_for_gpu(F) && F->options->target.groups && F->options->numerics == TN_NUMERICS_FAST && op->result->type.dtype == TN_F32 &&
           scale->def && op_is_view(scale->def) && tn_operand(scale->def, 0)->def && op_is_view(tn_operand(scale->def, 0)->def); /* repeated for each block, and put in a row */
}

/* The operand's multiplication, if what it multiplies by is the same for all of the innermost contracted dim. */
static demand *scaled_operand(fuser *F, const group *g, demand *d, int i)
{
    demand *multiply = d->arg[i];
    int k = -1, factor;
    if (!multiply || !product_takes_scale(F, multiply->op))
        return NULL;
    for (int at = 0; at < g->ndims; at++)
        k = g->dim[g->order[at]].fold ? g->order[at] : k;
    factor = narrow_operand(multiply->op);
    return map_uses(operand_source(F, multiply, 1 - factor).m, k) ? NULL : multiply;
}

static bool is_fixed(const fuser *F, const location *l)
{
    const tn_pbuffer *p = &F->program->buffers.at[l->buffer];
    return p->kind == TN_B_CONSTANT || p->persistent;
}

bool map_uses(const fmap *m, int j)
{
    for (int i = 0; i < m->rank; i++)
        if (m->c[i].a.coef[j])
            return true;
    return false;
}

/* Where the right operand's chain converts what a weight is stored as; NULL: the operand is no weight that is dequantised here. */
static demand *dequantiser(fuser *F, demand *d, const source *right)
{
    demand *reader = NULL;
    int i = 1;
    if (fuse_for_gpu(F) || d->op->code != TN_OP_dot_general || !dequantised_from(tn_operand(d->op, 1), DEQUANTISED_DEPTH) || !is_fixed(F, right->l) || !tn_constant_of(right->value))
        return NULL;
    while (d->arg[i]) {
        d = d->arg[i];
        i = next_operand(d->op);
        reader = d->op->code == TN_OP_convert ? d : reader;
    }
    return reader;
}

/* ---- packing ---------------------------------------------------------------------------------------------------------------------- */

typedef struct packing {
    int buffer;
    tn_dtype dtype;
    tn_dim rows; /* of a panel */
    int lead[FUSE_DIMS], nlead; /* group dims outside the matrix: groups, batches, taps that are ranges */
    tn_dim lead_stride[FUSE_DIMS];
    int64_t panel;
} packing;

int fuse_parts_of(const group *g, int j, int *parts)
{
    int at = 0, n = 0, from;
    if (j < 0)
        return 0;
    while (g->order[at] != j)
        at++;
    for (from = at; from > 0 && g->dim[g->order[from - 1]].absorbed; from--)
        ;
    for (; from <= at; from++)
        parts[n++] = g->order[from];
    return n;
}

typedef struct pack_dim {
    tn_dim extent, from, to; /* strides in the source and in the packed form */
} pack_dim;

/* to[lead][panel][k][c] := from[...], 0 past the last column. */
static void emit_pack(fuser *F, tn_steps *steps, group *g, const source *src, int buffer, const pack_dim *dim, int ndims, tn_dim column_stride,
                      tn_dim columns, int64_t panel)
{
    tn_session *s = F->session;
    tn_dim one = tn_dim_const(s, 1), width = tn_dim_const(s, panel), zero = tn_dim_const(s, 0);
    emitter *E = emitter_new(F, NULL, "pack");
    E->b.loc = g->root->loc;
    int from = emitter_arg(E, src->l->buffer, TN_READ), to = emitter_arg(E, buffer, TN_WRITE);
    tn_dim shape[TN_MAX_RANK], a[TN_MAX_RANK], b[TN_MAX_RANK], coef[TN_MAX_RANK], offset = src->l->offset;
    for (int i = 0; i < src->m->rank; i++)
        offset = tn_dim_add(s, offset, tn_dim_mul(s, src->l->stride[i], src->m->c[i].a.base));
    tn_subscript subs[TN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < ndims; i++, n++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        bool last = i == ndims - 1;
        tn_extent step = tn_extent_const(1);
        if (last) {
            step = tn_extent_param(E->kernel, "$R");
            int64_t rows = tn_dim_is_const(dim[i].extent) ? tn_min(64, pow2_ceil(dim[i].extent->value)) : 64;
            tn_schedule_bind(E->kernel, "$R", rows);
            step.size = rows;
            E->extent[0] = step;
        }
        tn_tvalue *start = tn_kernel_grid(E->kernel, name, dim[i].extent, step);
        shape[n] = dim[i].extent;
        a[n] = dim[i].from;
        b[n] = dim[i].to;
        coef[n] = zero;
        subs[n] = last ? tn_sub_block(start, 0) : tn_sub_point(start);
    }
    tn_dim panels = tn_dim_ceildiv(s, columns, width);
    shape[n] = panels, a[n] = tn_dim_mul(s, column_stride, width), coef[n] = width;
    b[n] = tn_dim_mul(s, width, dim[ndims].extent); /* rows of a whole panel, from the caller */
    subs[n++] = tn_sub_point(tn_kernel_grid(E->kernel, "panel", panels, tn_extent_const(1)));
    shape[n] = width, a[n] = column_stride, b[n] = one, coef[n] = one;
    subs[n] = tn_sub_block(tn_t_index(&E->b, 0), 1);
    subs[n++].inside = true;
    E->extent[1] = tn_extent_const(panel);
    E->rank = 2;
    tn_view *x = tn_kernel_view(E->kernel, "from", from, n, shape, a, offset), *y = tn_kernel_view(E->kernel, "to", to, n, shape, b, zero);
    tn_view_guard(E->kernel, x, coef, zero, columns);
    x->padded = true;
    x->padding = tn_number_from_int(src->value->type.dtype, 0);
    tn_tvalue *v = tn_t_load(&E->b, x, subs, emitter_type(E, src->value->type.dtype));
    tn_t_store(&E->b, y, subs, tn_t_cast(&E->b, v, F->program->buffers.at[buffer].type.dtype));
    emitter_finish(E, steps);
}

static bool any_part_used(const group *g, const source *src, int j)
{
    int parts[FUSE_DIMS], n = fuse_parts_of(g, j, parts);
    bool used = false;
    for (int i = 0; i < n; i++)
        used |= map_uses(src->m, parts[i]);
    return used;
}

/* Appends dim j, part by part from the outermost: its elements lie `stride` apart in the packed form. */
static int add_parts(fuser *F, const group *g, const source *src, int j, tn_dim stride, pack_dim *dim, int n)
{
    int parts[FUSE_DIMS], count = fuse_parts_of(g, j, parts);
    for (int i = count; i-- > 0;) {
        dim[n + i] = (pack_dim){g->dim[parts[i]].extent, fuse_total_stride(F, src->l, src->m, parts[i]), stride};
        stride = tn_dim_mul(F->session, stride, g->dim[parts[i]].extent);
    }
    return n + count;
}

/* The packed form of the right operand, made when first wanted. whole: a panel has all that is contracted, one strip after the other, in bytes at least; else a strip of each is a
 * matrix of its own. */
static packing pack_right(fuser *F, tn_steps *steps, group *g, const source *src, int kdim, int ndim, int64_t panel, bool whole)
{
    tn_session *s = F->session;
    tn_dtype stored = src->value->type.dtype, dtype = tn_dtype_bits(stored) >= 8 ? stored : stored == TN_U4 ? TN_U8 : TN_I8;
    packing p = {.panel = panel, .dtype = dtype};
    tn_dim columns = ndim >= 0 ? fuse_whole_extent(F, g, ndim) : tn_dim_const(s, 1), width = tn_dim_const(s, panel), size = NULL;
    pack_dim dim[FUSE_DIMS + 1];
    int n = 0;
    p.rows = fuse_whole_extent(F, g, kdim);
    for (int pass = !whole; pass < 2; pass++) { /* what lies in a panel, what has panels of its own; innermost dim first: strides grow outwards */
        for (int at = g->ndims; at-- > 0;) {
            int j = g->order[at];
            if (g->dim[j].absorbed || j == kdim || j == ndim || (whole && g->dim[j].fold == (pass == 1)) || !any_part_used(g, src, j))
                continue;
            p.lead[p.nlead] = j;
            p.lead_stride[p.nlead++] = pass == 0 ? tn_dim_mul(s, p.rows, width) : size ? size : tn_dim_mul(s, p.rows, tn_dim_mul(s, tn_dim_ceildiv(s, columns, width), width));
            if (pass == 0)
                p.rows = tn_dim_mul(s, p.rows, fuse_whole_extent(F, g, j));
            else
                size = tn_dim_mul(s, p.lead_stride[p.nlead - 1], fuse_whole_extent(F, g, j));
        }
    }
    if (!size)
        size = tn_dim_mul(s, p.rows, tn_dim_mul(s, tn_dim_ceildiv(s, columns, width), width));
    for (int i = p.nlead; i-- > 0;) /* merged dims lie together in the packed form, wherever they come from */
        n = add_parts(F, g, src, p.lead[i], p.lead_stride[i], dim, n);
    n = add_parts(F, g, src, kdim, width, dim, n);
    dim[n] = (pack_dim){p.rows, NULL, NULL};
    tn_dim column_stride = ndim >= 0 ? fuse_total_stride(F, src->l, src->m, ndim) : tn_dim_const(s, 0);

    tn_text key = {.arena = F->arena};
    tn_text_add(&key, "%d panel %lld%s columns ", src->l->buffer, (long long)panel, whole ? " whole" : "");
    tn_text_dim(&key, columns);
    for (int i = 0; i < n; i++) {
        tn_text_add(&key, ";");
        tn_text_dim(&key, dim[i].extent), tn_text_add(&key, "*"), tn_text_dim(&key, dim[i].from);
    }
    tn_text_add(&key, "+");
    tn_text_dim(&key, column_stride);
    for (int i = 0; i < src->m->rank; i++)
        tn_text_add(&key, "@"), tn_text_dim(&key, src->m->c[i].a.base);
    void **known = tn_map_at_str(&F->packed, key.at);
    if (*known) {
        p.buffer = (int)(intptr_t)*known - 1;
        return p;
    }
    tn_type type = tn_type_make(dtype, 1, &size);
    p.buffer = fuse_buffer(F, TN_B_TEMP, &type, "packed");
    *known = (void *)(intptr_t)(p.buffer + 1);
    emit_pack(F, steps, g, src, p.buffer, dim, n, column_stride, columns, panel);
    return p;
}

static tn_tvalue *load_packed(emitter *E, const char *name, const packing *p, int kdim, int ndim, tn_dtype dtype)
{
    fuser *F = E->F;
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK], one = tn_dim_const(F->session, 1);
    tn_subscript subs[TN_MAX_RANK];
    int n = 0;
    for (int i = p->nlead; i-- > 0; n++) {
        int j = p->lead[i];
        shape[n] = fuse_whole_extent(F, E->g, j);
        stride[n] = p->lead_stride[i];
        subs[n] = tn_sub_point(E->start[j]);
    }
    shape[n] = fuse_whole_extent(F, E->g, kdim), stride[n] = tn_dim_const(F->session, p->panel);
    subs[n++] = tn_sub_block(E->start[kdim], 0);
    shape[n] = ndim >= 0 ? fuse_whole_extent(F, E->g, ndim) : one, stride[n] = one;
    subs[n++] = ndim >= 0 ? tn_sub_block(E->start[ndim], 1) : tn_sub_block(tn_t_index(&E->b, 0), 1);
    tn_view *view = tn_kernel_view(E->kernel, name, emitter_arg(E, p->buffer, TN_READ), n, shape, stride, tn_dim_const(F->session, 0));
    view->panel = p->panel;
    return tn_t_load(&E->b, view, subs, emitter_type(E, dtype));
}

/* The same of whole panels, one of which the tile's columns are: its rows are evenly spaced wherever they are read. */
static tn_tvalue *load_panel(emitter *E, const char *name, const packing *p, int kdim, int ndim)
{
    fuser *F = E->F;
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK], width = tn_dim_const(F->session, p->panel);
    tn_subscript subs[TN_MAX_RANK];
    int n = 0;
    for (int i = p->nlead; i-- > 0; n++) {
        shape[n] = fuse_whole_extent(F, E->g, p->lead[i]);
        stride[n] = p->lead_stride[i];
        subs[n] = tn_sub_point(E->start[p->lead[i]]);
    }
    if (ndim >= 0) {
        shape[n] = fuse_whole_extent(F, E->g, ndim), stride[n] = p->rows; /* of each of a panel's columns */
        subs[n++] = tn_sub_point(E->start[ndim]);
    }
    shape[n] = fuse_whole_extent(F, E->g, kdim), stride[n] = width;
    subs[n++] = tn_sub_block(E->start[kdim], 0);
    shape[n] = width, stride[n] = tn_dim_const(F->session, 1);
    subs[n] = tn_sub_block(tn_t_index(&E->b, 0), 1);
    subs[n++].inside = true;
    tn_view *view = tn_kernel_view(E->kernel, name, emitter_arg(E, p->buffer, TN_READ), n, shape, stride, tn_dim_const(F->session, 0));
    return tn_t_load(&E->b, view, subs, emitter_type(E, p->dtype));
}

/* ---- the left operand of a convolution ---------------------------------------------------------------------------------------------- */

static bool parts_merge(fuser *F, const group *g, const source *src, const int *parts, int n)
{
    for (int i = 0; i + 1 < n; i++)
        if (!tn_dim_eq(F->session, fuse_total_stride(F, src->l, src->m, parts[i]),
                       tn_dim_mul(F->session, fuse_total_stride(F, src->l, src->m, parts[i + 1]), g->dim[parts[i + 1]].extent)))
            return false;
    return true;
}

bool map_is_guarded(const fmap *m, const int *dims, int n)
{
    for (const fguard *q = m->guards; q; q = q->next)
        for (int i = 0; i < n; i++)
            if (q->at.coef[dims[i]])
                return true;
    return false;
}

/* Of each row of the tile, its place along each part of the row dim, from the outermost. */
static void row_places(emitter *E, int mdim, const int *parts, int n, tn_tvalue **place)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *at = tn_t_range(b, E->start[mdim], E->extent[0]);
    if (fuse_for_gpu(E->F)) { /* a CPU's rows end with the result's; threads load whole tiles */
        tn_dim last = tn_dim_sub(E->F->session, fuse_whole_extent(E->F, E->g, mdim), tn_dim_const(E->F->session, 1));
        at = tn_t_map2(b, TN_S_min, at, tn_t_size(b, last));
    }
    for (int i = n; i-- > 0;) {
        tn_tvalue *extent = tn_t_size(b, E->g->dim[parts[i]].extent);
        place[i] = i ? tn_t_map2(b, TN_S_rem, at, extent) : at;
        at = i ? tn_t_map2(b, TN_S_div, at, extent) : at;
    }
}

/* Offset of each row of the tile, from the parts of the row dim: they are not evenly spaced. */
static tn_tvalue *row_offsets(emitter *E, const source *src, const int *parts, int n, tn_tvalue *const *place)
{
    tn_tvalue *sum = NULL;
    for (int i = n; i-- > 0;) {
        tn_tvalue *part = tn_t_map2(&E->b, TN_S_mul, place[i], tn_t_size(&E->b, fuse_total_stride(E->F, src->l, src->m, parts[i])));
        sum = sum ? tn_t_map2(&E->b, TN_S_add, part, sum) : part;
    }
    return sum;
}

/* The view that load_rows makes. */
typedef struct row_view {
    int rank, dim_of[FUSE_DIMS]; /* the view's dim of a group's; -1: none */
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK];
    tn_subscript subs[TN_MAX_RANK];
} row_view;

/* Rows that are not evenly spaced: on a GPU each part is a dim of the view, so that guards can look at it and copies know what divides an address; else one offset a row.
 * Past the last row one is read again but never stored. */
static void add_rows(emitter *E, const source *src, int mdim, const int *parts, int n, row_view *v)
{
    fuser *F = E->F;
    tn_tvalue *place[FUSE_DIMS];
    int axis0 = 0;
    row_places(E, mdim, parts, n, place);
    if (!fuse_for_gpu(F)) {
        v->shape[v->rank] = F->program->buffers.at[src->l->buffer].elements;
        v->stride[v->rank] = tn_dim_const(F->session, 1);
        v->subs[v->rank] = tn_sub_index(row_offsets(E, src, parts, n, place), 1, &axis0);
        v->subs[v->rank++].inside = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        v->dim_of[parts[i]] = v->rank;
        v->shape[v->rank] = E->g->dim[parts[i]].extent;
        v->stride[v->rank] = fuse_total_stride(F, src->l, src->m, parts[i]);
        v->subs[v->rank] = tn_sub_index(place[i], 1, &axis0);
        v->subs[v->rank++].inside = true;
    }
}

/* The parts of a dim of which a program has one place, where they are not evenly spaced: a dim of the view each. */
static void add_places(emitter *E, const source *src, int j, const int *parts, int n, row_view *v)
{
    tn_tbuilder *b = &E->b;
    tn_tvalue *at = E->start[j];
    for (int i = n; i-- > 0;) {
        tn_tvalue *extent = tn_t_size(b, E->g->dim[parts[i]].extent);
        v->dim_of[parts[i]] = v->rank;
        v->shape[v->rank] = E->g->dim[parts[i]].extent;
        v->stride[v->rank] = fuse_total_stride(E->F, src->l, src->m, parts[i]);
        v->subs[v->rank++] = tn_sub_point(i ? tn_t_map2(b, TN_S_rem, at, extent) : at);
        at = i ? tn_t_map2(b, TN_S_div, at, extent) : at;
    }
}

static void guard_rows(emitter *E, tn_view *view, const row_view *v, const fmap *m)
{
    for (const fguard *q = m->guards; q; q = q->next) {
        tn_dim coef[TN_MAX_RANK];
        for (int k = 0; k < v->rank; k++)
            coef[k] = tn_dim_const(E->F->session, 0);
        for (int j = 0; j < E->g->ndims; j++)
            if (q->at.coef[j] && v->dim_of[j] >= 0)
                coef[v->dim_of[j]] = q->at.coef[j];
        tn_view_guard(E->kernel, view, coef, q->at.base, q->limit);
    }
}

static tn_tvalue *load_rows(emitter *E, const source *src, int mdim)
{
    fuser *F = E->F;
    const group *g = E->g;
    tn_session *s = F->session;
    int parts[FUSE_DIMS], n = fuse_parts_of(g, mdim, parts);
    bool even = parts_merge(F, g, src, parts, n) && (n == 1 || !map_is_guarded(src->m, parts, n));
    tn_dim offset = src->l->offset;
    for (int i = 0; i < src->m->rank; i++)
        offset = tn_dim_add(s, offset, tn_dim_mul(s, src->l->stride[i], src->m->c[i].a.base));
    row_view v = {.rank = 0};
    for (int j = 0; j < FUSE_DIMS; j++)
        v.dim_of[j] = -1;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (g->dim[j].absorbed || !map_uses(src->m, j))
            continue;
        if (j == mdim && !even) {
            add_rows(E, src, mdim, parts, n, &v);
            continue;
        }
        int of[FUSE_DIMS], count = fuse_parts_of(g, j, of);
        if (E->axis[j] < 0 && !parts_merge(F, g, src, of, count)) {
            add_places(E, src, j, of, count, &v);
            continue;
        }
        v.dim_of[j] = v.rank;
        v.shape[v.rank] = fuse_whole_extent(F, g, j);
        v.stride[v.rank] = fuse_total_stride(F, src->l, src->m, j);
        v.subs[v.rank++] = E->axis[j] >= 0 ? tn_sub_block(E->start[j], E->axis[j]) : tn_sub_point(E->start[j]);
    }
    tn_view *view = tn_kernel_view(E->kernel, "A", emitter_arg(E, src->l->buffer, TN_READ), v.rank, v.shape, v.stride, offset);
    guard_rows(E, view, &v, src->m);
    return tn_t_load(&E->b, view, v.subs, emitter_type(E, src->value->type.dtype));
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------------------------ */

static void classify(fuser *F, const group *g, const source *a, const source *b, axes *x)
{
    x->m = x->n = x->k = -1;
    for (int at = 0; at < g->ndims; at++) {
        int j = g->order[at];
        if (g->dim[j].absorbed)
            continue;
        bool in_a = map_uses(a->m, j), in_b = map_uses(b->m, j), unit = fuse_for_gpu(F) && tn_dim_is(fuse_whole_extent(F, g, j), 1);
        if (g->dim[j].fold)
            x->k = j;
        else if (in_a && !in_b && (x->m < 0 || !unit))
            x->m = j;
        else if (in_b && !in_a && (x->n < 0 || !unit))
            x->n = j;
    }
}

/* Of a product on a CPU. */
typedef struct cpu_sizes {
    int64_t rows, columns, others, depth, bytes;
    int64_t panel, least_rows, most_rows, most_columns; /* of tiles */
} cpu_sizes;

static cpu_sizes cpu_sizes_of(fuser *F, const group *g, const axes *x, int64_t panel, int64_t rows, bool packed, tn_dtype type)
{
    tn_dim one = tn_dim_const(F->session, 1), m = x->m >= 0 ? fuse_whole_extent(F, g, x->m) : one, n = x->n >= 0 ? fuse_whole_extent(F, g, x->n) : one;
    tn_dim k = fuse_whole_extent(F, g, x->k);
    cpu_sizes s = {.rows = tn_dim_is_const(m) ? m->value : 256, .columns = tn_dim_is_const(n) ? n->value : 256, .others = 1, .depth = tn_dim_is_const(k) ? tn_max(k->value, 1) : 65536,
                   .bytes = tn_max(tn_dtype_bits(type) / 8, 1), .panel = panel, .least_rows = rows, .most_rows = F->options->target.dot_rows * (packed ? 16 : 64), .most_columns = panel * (g->nproducts > 1 ? 4 : 16) /* the first one's sums wait in the cache for the second one's */};
    if (s.rows < rows)
        s.least_rows = pow2_ceil(tn_max(s.rows, 1));
    for (int j = 0; j < g->ndims; j++)
        if (!g->dim[j].fold && !g->dim[j].absorbed && j != x->m && j != x->n)
            s.others *= tn_dim_is_const(g->dim[j].extent) ? g->dim[j].extent->value : 4;
    return s;
}

/* Of the register tile. A few rows are as long in memory whatever the tile: the widest reads the weights in order. */
static int register_vectors(fuser *F, const group *g, const axes *x, int64_t width)
{
    const tn_tile_target *t = &F->options->target;
    tn_dim one = tn_dim_const(F->session, 1), m = x->m >= 0 ? fuse_whole_extent(F, g, x->m) : one, n = x->n >= 0 ? fuse_whole_extent(F, g, x->n) : one;
    bool few = tn_dim_is_const(m) && m->value < t->dot_rows;
    return tn_dot_vectors(t->dot_rows, t->dot_vectors, width, tn_dim_is_const(n) && !few ? n->value : 0);
}

static void choose_tiles(fuser *F, const cpu_sizes *s, axes *x)
{
    const tn_tile_target *t = &F->options->target;
    x->M = s->least_rows;
    while (x->M < s->rows && x->M < s->most_rows)
        x->M *= 2;
    x->N = s->panel;
    while (x->N < s->columns && x->N < s->most_columns)
        x->N *= 2;
    x->K = pow2_ceil(s->depth);
    /* Enough tasks for the threads: narrower first, then shorter. */
    while (t->threads > 1 && s->others * tn_ceildiv(s->rows, x->M) * tn_ceildiv(s->columns, x->N) < 4 * t->threads) {
        if (x->N > s->panel)
            x->N /= 2;
        else if (x->M > 4 * s->least_rows && x->M % 2 == 0)
            x->M /= 2;
        else
            break;
    }
}

/* Turns of the outermost range of k whose rows of a panel, of so many bytes each, fill a part of L2: that much is dequantised at once. A long k is cut into turns first. */
static int64_t choose_window(const fuser *F, const group *g, axes *x, int64_t row_bytes)
{
    enum { PART = 8, LEAST = 64 };
    int64_t rows = tn_max(F->options->target.l2_bytes / PART / row_bytes, LEAST);
    while (x->K > rows)
        x->K /= 2;
    for (int at = 0; at < g->ndims; at++)
        if (g->dim[g->order[at]].fold && !g->dim[g->order[at]].absorbed) /* each turn of another dim has all of k */
            return g->order[at] == x->k ? 1 : tn_max(rows / x->K, 1);
    return 1;
}

/* What tiles of M x N take, roughly: it puts candidates in order, the tuner measures. Two multiply-adds a vector and cycle at 2.5 GHz, operands of a tile from the last
 * cache at 16 bytes a ns, and what a program takes besides; threads in step. */
static double cpu_product_ns(const fuser *F, const cpu_sizes *s, int64_t M, int64_t N)
{
    enum { CACHE_RATE = 16, PROGRAM_NS = 200, VECTORS_NS = 5 };
    const tn_tile_target *t = &F->options->target;
    double rate = tn_max(t->vector_bits / 32, 1) * (double)VECTORS_NS, depth = (double)s->depth;
    double one = (double)(M * N) * depth / rate + (double)((M + N) * s->bytes) * depth / CACHE_RATE + PROGRAM_NS;
    return one * (double)tn_ceildiv(s->others * tn_ceildiv(s->rows, M) * tn_ceildiv(s->columns, N), tn_max(t->threads, 1));
}

/* The choice of choose_tiles, or what the tuner takes instead. */
static void ask_for_tiles(fuser *F, group *g, const char *stem, const cpu_sizes *s, axes *x)
{
    static const char *const fields[] = {"M", "N"};
    fuse_candidates c = {.field = fields, .nfields = TN_COUNT(fields), .tile = TN_COUNT(fields)};
    fuse_add_candidate(F, &c, (int64_t[]){x->M, x->N}, cpu_product_ns(F, s, x->M, x->N));
    for (int64_t M = s->least_rows; M < 2 * tn_min(s->rows, s->most_rows); M *= 2)
        for (int64_t N = s->panel; N < 2 * tn_min(tn_max(s->columns, s->panel), s->most_columns); N *= 2)
            fuse_add_candidate(F, &c, (int64_t[]){M, N}, cpu_product_ns(F, s, M, N));
    const tn_candidate *taken = fuse_choose(F, g, stem, NULL, &c);
    x->M = taken->value[0], x->N = taken->value[1];
}

tn_tvalue *product_factor(emitter *E, tn_tvalue *v, tn_dtype type)
{
    return emit_full_tile(E, v->type.dtype == type ? v : tn_t_cast(&E->b, v, type));
}

void product_axes(emitter *E, int n, const int *dims, const int64_t *extents)
{
    for (int j = 0; j < FUSE_DIMS; j++)
        E->axis[j] = -1;
    for (int i = 0; i < n; i++) {
        if (dims[i] >= 0)
            E->axis[dims[i]] = i;
        E->extent[i] = tn_extent_const(extents[i]);
    }
    E->rank = n;
    E->phase = ++E->phases;
}

void product_matrix_axes(emitter *E, int j0, int64_t e0, int j1, int64_t e1) { product_axes(E, 2, (int[]){j0, j1}, (int64_t[]){e0, e1}); }

tn_dtype product_type(tn_dtype a, tn_dtype b, tn_dtype result)
{
    return a == b ? a : tn_is_float(result) ? TN_F32 : result;
}

/* The kernel stores floats of 16 bits at most, which hide what sums of few products of f8 have lost. */
static bool stores_narrow(const fuser *F, const group *g)
{
    bool narrow = F->options->numerics != TN_NUMERICS_STRICT;
    for (size_t i = 0; i < g->stored.len; i++) {
        tn_dtype dtype = g->stored.at[i]->op->result->type.dtype;
        narrow &= tn_is_float(dtype) && tn_dtype_bits(dtype) <= 16;
    }
    return narrow;
}

/* As which types factors are multiplied. f8 is dear to convert: a CPU does it once, before it multiplies. A GPU adds up products of f8 with fewer bits than f32 has: where
 * the result would show it, they are halves, which is exact, unless an option allows as little. */
static factors factors_of(fuser *F, const group *g, const tn_op *op, tn_dtype left, tn_dtype right)
{
    tn_dtype result = op->result->type.dtype, both = product_type(left, right, result);
    if (left != right && tn_t_dot_takes(left, right) && result == TN_I32)
        return (factors){left, right};
    if (tn_is_f8(both) && !fuse_for_gpu(F))
        both = fuse_accumulator(result);
    else if (tn_is_f8(both) && !stores_narrow(F, g) && F->options->precision != TN_TF32)
        both = TN_F16;
    return (factors){both, both};
}

/* Merging the contracted dims asks only the left operand when the right one is packed: packing orders them anew. */
static void merge_contracted(fuser *F, group *g, const source *a, const source *b, bool packed, bool dequantised)
{
    for (int at = 0; at + 1 < g->ndims; at++) {
        int i = g->order[at], j = g->order[at + 1], pair[2] = {i, j};
        if (g->dim[i].fold && g->dim[j].fold && (g->dim[i].absorbed || !dequantised)) /* scales, which are not packed, have a say too */
            g->dim[i].absorbed = parts_merge(F, g, a, pair, 2) && !map_is_guarded(a->m, pair, 2) && (packed || parts_merge(F, g, b, pair, 2));
    }
}

static void unmerge_across(fuser *F, group *g, const source *a, const source *b)
{
    for (int at = 0; at + 1 < g->ndims; at++) {
        int i = g->order[at], j = g->order[at + 1];
        if (!g->dim[i].absorbed)
            continue;
        bool ia = map_uses(a->m, i), ja = map_uses(a->m, j), ib = map_uses(b->m, i), jb = map_uses(b->m, j);
        int pair[2] = {i, j};
        if (ia != ja || ib != jb || (ib && !parts_merge(F, g, b, pair, 2)))
            g->dim[i].absorbed = false;
    }
}

tn_top *product_open_sum(emitter *E, const product *p, const sum_parts *parts, int naxes, const int *axes)
{
    const group *g = p->g;
    tn_tvalue *limit[FUSE_DIMS];
    tn_extent step[FUSE_DIMS];
    int range[FUSE_DIMS], n = 0, k = p->x.k;
    for (int at = 0; at < g->ndims && !parts->taps; at++)
        if (g->dim[g->order[at]].fold && !g->dim[g->order[at]].absorbed && g->order[at] != k)
            range[n++] = g->order[at];
    range[n++] = k;
    for (int i = 0; i < n; i++) {
        limit[i] = range[i] == k && parts->chunk ? tn_t_index(&E->b, parts->chunk) : tn_t_size(&E->b, fuse_whole_extent(E->F, g, range[i]));
        step[i] = tn_extent_const(range[i] == k ? p->x.K : 1);
    }
    tn_top *fold = tn_t_fold(&E->b, n, limit, step, naxes, axes);
    fold->label = tn_intern_z(E->F->session, "dot");
    E->b.block = fold->region[0];
    for (int i = 0; i < n; i++)
        E->start[range[i]] = &fold->region[0]->arg[i];
    if (parts->of_k)
        E->start[k] = tn_t_map2(&E->b, TN_S_add, tn_t_map2(&E->b, TN_S_mul, parts->of_k, tn_t_index(&E->b, parts->chunk)), E->start[k]);
    return fold;
}

void product_close_sum(emitter *E, const product *p, tn_top *fold, tn_tvalue *element, tn_tblock *outer)
{
    tn_t_yield(&E->b, &element, 1);
    E->b.block = outer;
    for (int j = 0; j < p->g->ndims; j++)
        if (p->g->dim[j].fold)
            E->start[j] = NULL;
    tn_number zero = tn_number_from_int(p->acc, 0);
    tn_t_fold_finish(&E->b, fold, &zero, 1);
    tn_t_combine_fn(&E->b, fold->region[1], TN_S_add, p->acc);
}

tn_tvalue *product_operand(emitter *E, const product *p, int i)
{
    if (p->scaled[i])
        return emit_operand(E, p->scaled[i], narrow_operand(p->scaled[i]->op));
    return i == 0 && p->d->op->code == TN_OP_convolution ? load_rows(E, &p->left, p->x.m) : emit_operand(E, p->d, i);
}

/* Right operands that are fixed and lie alike. */
static bool is_packed(fuser *F, const product *p)
{
    const source *b = &p->right;
    return !fuse_for_gpu(F) && is_fixed(F, b->l) && b->views_only && !tn_is_f8(b->value->type.dtype); /* a GPU's shared memory is where operands are turned */
}

static product product_of(fuser *F, group *g, demand *d)
{
    product p = {.g = g, .d = d, .left = operand_source(F, d, 0), .right = operand_source(F, d, 1), .result = d->op->result->type.dtype};
    p.acc = fuse_accumulator(p.result);
    p.dequantiser = dequantiser(F, d, &p.right);
    tn_dtype types[2];
    for (int i = 0; i < 2; i++) {
        p.scaled[i] = d->op->code == TN_OP_dot_general ? scaled_operand(F, g, d, i) : NULL;
        types[i] = tn_operand(d->op, i)->type.dtype;
    }
    for (int i = 0; i < 2 && (p.scaled[0] || p.scaled[1]); i++) /* the other one may be converted */
        types[i] = (i ? p.right : p.left).value->type.dtype;
    p.types = factors_of(F, g, d->op, types[0], types[1]);
    return p;
}

/* Dims that every access walks as one become one; contracted ones where both operands of each product do. */
static void merge_product_dims(fuser *F, group *g, const product *p, const bool *packed)
{
    demand *d = g->product[0];
    bool conv = d->op->code == TN_OP_convolution, all_packed = true, dequantised = false;
    fmap *left = d->argmap[0], *right = d->argmap[1];
    if (conv) /* rows may be merged where the left operand's are not evenly spaced: an index tile finds them */
        d->argmap[0] = d->argmap[1] = NULL;
    fuse_merge_dims(F, g);
    d->argmap[0] = left, d->argmap[1] = right;
    for (int i = 0; i < g->nproducts; i++) {
        unmerge_across(F, g, &p[i].left, &p[i].right);
        all_packed &= packed[i];
        dequantised |= p[i].dequantiser != NULL;
    }
    merge_contracted(F, g, &p[0].left, &p[0].right, all_packed, dequantised);
    for (int i = 1; i < g->nproducts && !all_packed; i++)
        unmerge_across(F, g, &p[i].left, &p[i].right);
    for (int i = 0; i < 2; i++)
        if (p->scaled[i]) {
            source scale = operand_source(F, p->scaled[i], 1 - narrow_operand(p->scaled[i]->op));
            unmerge_across(F, g, &scale, &scale);
        }
}

static void set_schedule(emitter *E, const gpu_product *tiles)
{
    tn_schedule_set(E->kernel, "", "warps", tiles->warps);
    if (tiles->group)
        tn_schedule_set(E->kernel, "", "group", tiles->group);
    if (tiles->stages)
        tn_schedule_set(E->kernel, "", "stages", tiles->stages);
    if (tiles->instances)
        tn_schedule_set(E->kernel, "", "instances", tiles->instances);
}

int64_t product_imprecise(const fuser *F, tn_dtype factors)
{
    enum { IMPRECISE = 128 }; /* as many as lose no more than a result of 16 bits hides, and make a strip */
    return fuse_for_gpu(F) && tn_is_f8(factors) && F->options->precision != TN_TF32 ? IMPRECISE : 0;
}

/* A strip's sums times the scales of its block: of rows, of columns, or one. The scales are multiplied first, since a thread has many sums of a row. */
static tn_tvalue *scale_sums(emitter *E, const product *p, tn_tvalue *sums)
{
    tn_tvalue *scales = NULL;
    for (int i = 0; i < 2; i++) {
        demand *d = p->scaled[i];
        int kept = i ? p->x.n : p->x.m;
        if (!d)
            continue;
        int scale = 1 - narrow_operand(d->op), by_kept = kept >= 0 && map_uses(operand_source(E->F, d, scale).m, kept);
        product_axes(E, by_kept, &kept, (int64_t[]){i ? p->x.N : p->x.M});
        tn_tvalue *by = tn_t_broadcast(&E->b, emit_operand(E, d, scale), sums->type, &i);
        scales = scales ? tn_t_map2(&E->b, TN_S_mul, scales, by) : by;
    }
    return scales ? tn_t_map2(&E->b, TN_S_mul, sums, scales) : sums;
}

/* The right factor, from its packed form if it has one. */
static tn_tvalue *right_factor(emitter *E, const product *p, const packing *pack, const char *name)
{
    demand *d = p->dequantiser;
    if (!pack)
        return product_operand(E, p, 1);
    if (!d)
        return load_packed(E, name, pack, p->x.k, p->x.n, p->right.value->type.dtype);
    d->tile = tn_t_cast(&E->b, load_panel(E, name, pack, p->x.k, p->x.n), d->op->result->type.dtype);
    d->phase = E->phase;
    return product_operand(E, p, 1);
}

static tn_tvalue *emit_sums(emitter *E, const product *p, const sum_parts *parts, const packing *pack, const char *name)
{
    const axes *x = &p->x;
    tn_tblock *outer = E->b.block;
    tn_top *fold = product_open_sum(E, p, parts, 0, NULL);
    product_matrix_axes(E, x->m, x->M, x->k, x->K);
    tn_tvalue *ta = product_factor(E, product_operand(E, p, 0), p->types.left);
    product_matrix_axes(E, x->k, x->K, x->n, x->N);
    tn_tvalue *tb = product_factor(E, right_factor(E, p, pack, name), p->types.right);
    tn_tvalue *dot = tn_t_dot(&E->b, ta, tb, p->acc, fuse_precision(E->F, p->types.left));
    dot->def->imprecise = product_imprecise(E->F, p->types.left);
    product_close_sum(E, p, fold, scale_sums(E, p, dot), outer);
    return fold->result;
}

void fuse_emit_product(fuser *F, tn_steps *steps, group *g)
{
    static const char *const weights[FUSE_PRODUCTS] = {"W", "V"};
    const tn_op *op = g->product[0]->op;
    bool conv = op->code == TN_OP_convolution, gpu = fuse_for_gpu(F), dequantised = false, packed[FUSE_PRODUCTS];
    int n = g->nproducts;
    int64_t window = 0;
    product p[FUSE_PRODUCTS];
    for (int i = 0; i < n; i++) {
        p[i] = product_of(F, g, g->product[i]);
        packed[i] = is_packed(F, &p[i]) || p[i].dequantiser;
        dequantised |= p[i].dequantiser != NULL;
    }
    merge_product_dims(F, g, p, packed);
    axes *x = &p[0].x;
    const source *a = &p[0].left, *b = &p[0].right;
    classify(F, g, a, b, x);
    if (gpu && n == 1 && product_is_vector(F, p)) {
        product_emit_vector(F, steps, p);
        return;
    }
    int64_t width = tn_max(1, F->options->target.vector_bits / tn_dtype_bits(p->acc));
    int vectors = gpu ? 0 : register_vectors(F, g, x, width);
    int64_t panel = vectors * width;
    packing pack[FUSE_PRODUCTS];
    for (int i = 0; i < n; i++)
        if (packed[i])
            pack[i] = pack_right(F, steps, g, &p[i].right, x->k, x->n, panel, p[i].dequantiser);
    const char *stem = conv ? "convolution" : "dot";
    gpu_product tiles = {.parts = 1};
    if (gpu) {
        bool loaded = !conv && a->views_only && b->views_only;
        tiles = n > 1 ? fuse_gpu_product(F, g, x->m, x->n, x->k, p->types.left, loaded) : fuse_gpu_choose_product(F, g, stem, x->m, x->n, x->k, p->types.left, loaded);
        x->M = tiles.M, x->N = tiles.N, x->K = tiles.K;
    } else {
        cpu_sizes s = cpu_sizes_of(F, g, x, panel, tn_dot_rows(F->options->target.dot_rows, F->options->target.dot_vectors, vectors), packed[0] && !dequantised, p->types.left);
        if (dequantised) /* rows of one panel are dequantised for all rows of the tile */
            s.most_columns = panel;
        choose_tiles(F, &s, x);
        if (fuse_is_asked(F))
            ask_for_tiles(F, g, stem, &s, x);
        if (dequantised)
            window = choose_window(F, g, x, panel * tn_dtype_bits(p->acc) / 8);
    }
    emitter *E = emitter_new(F, g, stem);
    if (gpu)
        set_schedule(E, &tiles);
    if (dequantised) {
        tn_schedule_set(E->kernel, "dot", "columns", panel);
        tn_schedule_set(E->kernel, "dot", "direct", F->options->target.dot_rows);
        tn_schedule_set(E->kernel, "dot", "window", window);
    }
    sum_parts parts = product_open_parts(E, p, &tiles);
    emit_other_grid_dims(E, x->m, x->n);
    if (x->n >= 0)
        E->start[x->n] = tn_kernel_grid(E->kernel, "n", fuse_whole_extent(F, g, x->n), tn_extent_const(x->N));
    if (x->m >= 0)
        E->start[x->m] = tn_kernel_grid(E->kernel, "m", fuse_whole_extent(F, g, x->m), tn_extent_const(x->M));
    if (x->m < 0 && !gpu)
        x->M = 1;
    tn_tvalue *sums[FUSE_PRODUCTS];
    for (int i = 0; i < n; i++) {
        p[i].x = *x;
        sums[i] = emit_sums(E, &p[i], &parts, packed[i] ? &pack[i] : NULL, weights[i]);
    }
    product_matrix_axes(E, x->m, x->M, x->n, x->N);
    for (int i = 1; i < n; i++)
        emit_set_result(E, p[i].d, tn_t_cast(&E->b, sums[i], p[i].result));
    product_finish(E, steps, p, &parts, sums[0]);
}
