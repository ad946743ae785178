/* recover: accesses by pointers become loads and stores of views, where that is proven, and loops of products become folds.
 *
 * A pointer tile is a buffer and a form (recover_form.c): base + sum of size * (position along an axis | scalar | index tile). Of it and of the mask:
 *   - a position along an axis is a dimension of the view, with its coefficient as stride;
 *   - a scalar, and an index tile, is a dimension that has every index (shape `*`), with its coefficient as stride; sums of more than LEADING
 *     scalars are computed in the kernel;
 *   - a part of the mask that says `start + i < limit` of one axis bounds that axis: start is a scalar, limit a size. If the start's part of the
 *     offset cancels, it is the axis's own dimension that is bounded; else another of stride 0;
 *   - a bound that is no size, or whose start may be negative (a dimension also ends at 0): i < n is max(0, E - n) + i < E, for an axis of E;
 *   - what else the mask says is a dimension of one element and stride 0, with the index 0 where it is true and 1 where not;
 *   - a load with `other` has a padded view if that is one number, else `other` is selected by the mask.
 * What stays a pointer access has a note that says why. docs/tile-ir.md has the rule for arithmetic that wraps. */
#include "tile/recover.h"

#include <ctype.h>
#include <string.h>

enum { LEADING = 3 };

static bool refuse(access *a, const char *why)
{
    a->why = why;
    return false;
}

/* ---- masks ------------------------------------------------------------------------------------------------------------------ */

static bool add_part(access *a, tn_tvalue *v, const int *map)
{
    if (a->nparts == MAX_PARTS)
        return refuse(a, "the mask has too many parts");
    part *p = &a->part[a->nparts++];
    p->value = v;
    for (int i = 0; i < v->type.rank; i++)
        p->map[i] = map[i];
    return true;
}

/* value >= 0 for signed integers: what a comparison says. */
static bool comparison_form(recover *R, tn_tvalue *v, form *f)
{
    const tn_top *op = v->def;
    bool inverted = op && op->code == TN_T_map && op->fn == TN_S_not;
    if (inverted)
        op = op->operand[0]->def;
    if (!op || op->code != TN_T_map || op->noperands != 2)
        return false;
    tn_scalar fn = op->fn;
    const tn_ttype *type = &op->operand[0]->type;
    if (type->pointer || !tn_is_integer(type->dtype) || type->dtype == TN_U64 || (fn != TN_S_lt && fn != TN_S_le && fn != TN_S_gt && fn != TN_S_ge))
        return false;
    if (inverted)
        fn = fn == TN_S_lt ? TN_S_ge : fn == TN_S_le ? TN_S_gt : fn == TN_S_gt ? TN_S_le : TN_S_lt;
    bool less = fn == TN_S_lt || fn == TN_S_le, strict = fn == TN_S_lt || fn == TN_S_gt;
    tn_dim one = tn_dim_const(R->session, 1), minus = tn_dim_const(R->session, -1);
    *f = recover_constant(R, -(int64_t)strict);
    return recover_add(R, f, recover_form(R, op->operand[less]), one) && recover_add(R, f, recover_form(R, op->operand[!less]), minus);
}

/* The whole part of f / by. */
static bool divide_form(recover *R, form *f, int64_t by)
{
    tn_dim d = tn_dim_const(R->session, by);
    for (int i = 0; i < f->n; i++)
        if (!recover_divide(R, f->term[i].coef, d, &f->term[i].coef))
            return false;
    f->base = tn_dim_floordiv(R->session, f->base, d);
    return true;
}

static void negate(recover *R, form *f)
{
    tn_dim zero = tn_dim_const(R->session, 0);
    f->base = tn_dim_sub(R->session, zero, f->base);
    for (int i = 0; i < f->n; i++)
        f->term[i].coef = tn_dim_sub(R->session, zero, f->term[i].coef);
}

static bool add_one(recover *R, form *f)
{
    form one = recover_constant(R, 1);
    return recover_add(R, f, &one, one.base);
}

/* The term of f that has axes, if it is one; f without it. */
static bool split_axes(form *f, form_term *t)
{
    int at = -1;
    for (int i = 0; i < f->n; i++) {
        if (f->term[i].atom.naxes && at >= 0)
            return false;
        at = f->term[i].atom.naxes ? i : at;
    }
    if (at < 0)
        return false;
    *t = f->term[at];
    memmove(&f->term[at], &f->term[at + 1], sizeof f->term[0] * (size_t)(f->n - at - 1));
    f->n--;
    return true;
}

static int index_of(const access *a, const atom *atom)
{
    for (int i = 0; i < a->nindex; i++)
        if (a->index[i].atom.value == atom->value && !memcmp(a->index[i].atom.axis, atom->axis, sizeof atom->axis[0] * (size_t)atom->naxes))
            return i;
    return -1;
}

/* coef * i + rest >= 0 */
static bool bound_axis(access *a, const form_term *t, form *rest)
{
    int64_t c = t->coef->value;
    bounds *b = &a->bound[t->atom.axis[0]];
    if (!divide_form(a->R, rest, c < 0 ? -c : c))
        return false;
    if (c < 0) {
        if (b->nupper == MAX_BOUNDS || !add_one(a->R, rest))
            return false;
        b->upper[b->nupper] = *rest;
        b->nupper += rest->n > 0 || rest->base->lo < a->type->extent[t->atom.axis[0]].size; /* else always */
    } else if (!recover_not_negative(a->R, rest) || !recover_form_there(a->R, rest)) {
        if (b->nlower == MAX_BOUNDS)
            return false;
        negate(a->R, rest);
        b->lower[b->nlower++] = *rest;
    }
    return true;
}

static bool bound_index(access *a, const form_term *t, form *rest, tn_tvalue *v, const int *map)
{
    int i = index_of(a, &t->atom);
    bool upper = t->coef->value < 0;
    if (i < 0 || rest->n || (t->coef->value != 1 && t->coef->value != -1))
        return false;
    index_bound *b = &a->indexed[i];
    if ((upper ? b->upper : b->lower) || (!upper && !tn_dim_is(rest->base, 0)) || (upper && !add_one(a->R, rest)))
        return false;
    *(upper ? &b->upper : &b->lower) = true;
    b->limit = upper ? rest->base : b->limit;
    b->part[upper] = v;
    for (int k = 0; k < v->type.rank; k++)
        b->map[upper][k] = map[k];
    return true;
}

/* A comparison that bounds an axis or an index; false: it does not. */
static bool take_comparison(access *a, tn_tvalue *v, const int *map)
{
    form f;
    form_term t;
    if (!comparison_form(a->R, v, &f))
        return false;
    f = recover_remap(&f, map);
    if (f.n == 0 && f.base->lo >= 0)
        return true; /* always */
    if (!split_axes(&f, &t) || !tn_dim_is_const(t.coef) || t.coef->value < -INT32_MAX || t.coef->value > INT32_MAX)
        return false;
    return t.atom.value ? bound_index(a, &t, &f, v, map) : bound_axis(a, &t, &f);
}

static bool take_mask(access *a, tn_tvalue *v, const int *map, int depth)
{
    const tn_top *op = v->def;
    int at[TN_TILE_RANK];
    tn_topcode code = op && depth ? op->code : TN_TOP_COUNT;
    if (op && op->code == TN_T_const && op->number.u)
        return true;
    if (code == TN_T_map && op->noperands == 2 && op->operand[0]->type.dtype == TN_BOOL && (op->fn == TN_S_and || op->fn == TN_S_mul || op->fn == TN_S_min))
        return take_mask(a, op->operand[0], map, depth - 1) && take_mask(a, op->operand[1], map, depth - 1);
    if (code == TN_T_assume)
        return take_mask(a, op->operand[0], map, depth - 1);
    if (code == TN_T_broadcast || code == TN_T_permute) {
        const tn_ttype *from = &op->operand[0]->type;
        for (int i = 0; i < from->rank; i++)
            at[code == TN_T_permute ? op->axis[i] : i] = code == TN_T_permute ? map[i] : recover_is_unit(from->extent[i]) ? -1 : map[op->axis[i]];
        return take_mask(a, op->operand[0], at, depth - 1);
    }
    if (code == TN_T_reshape && recover_unit_map(&op->operand[0]->type, &v->type, at)) {
        for (int i = 0; i < op->operand[0]->type.rank; i++)
            at[i] = at[i] < 0 ? -1 : map[at[i]];
        return take_mask(a, op->operand[0], at, depth - 1);
    }
    return take_comparison(a, v, map) || add_part(a, v, map);
}

/* An index that is bounded on one side only is not: a dimension has two. */
static bool settle_indices(access *a)
{
    for (int i = 0; i < a->nindex; i++) {
        index_bound *b = &a->indexed[i];
        b->lower |= b->upper && recover_span(a->R, a->index[i].atom.value).lo >= 0;
        if (b->upper && b->lower)
            continue;
        for (int k = 0; k < 2; k++)
            if (b->part[k] && !add_part(a, b->part[k], b->map[k]))
                return false;
        b->upper = b->lower = false;
    }
    return true;
}

/* ---- dimensions ---------------------------------------------------------------------------------------------------------------- */

static tn_dim number(const access *a, int64_t value) { return tn_dim_const(a->R->session, value); }

static bool add_dimension(access *a, tn_dim shape, tn_dim stride, tn_subscript subscript)
{
    if (a->ndims == TN_MAX_RANK)
        return refuse(a, "the access has too many parts");
    if (tn_dim_is_const(shape) && shape->value < 0) /* no element is there */
        shape = number(a, 0);
    a->dim[a->ndims++] = (dimension){shape, stride, subscript};
    return true;
}

static tn_subscript inside(tn_subscript s)
{
    s.inside = true;
    return s;
}

tn_tvalue *recover_clamped_start(recover *R, tn_dim extent, const form *u)
{
    form start = {.base = extent};
    return recover_add(R, &start, u, tn_dim_const(R->session, -1)) ? recover_map2(R, TN_S_max, recover_sum(R, &start), recover_index(R, 0)) : NULL;
}

static bool add_clamped_upper(access *a, int axis, const form *u)
{
    tn_dim extent = number(a, a->type->extent[axis].size);
    tn_tvalue *start = recover_clamped_start(a->R, extent, u);
    return start ? add_dimension(a, extent, number(a, 0), tn_sub_block(start, axis)) : refuse(a, "the mask has too many parts");
}

/* i >= l: min(0, -l) + i >= 0, and below E as it is */
static bool add_clamped_lower(access *a, int axis, const form *l)
{
    recover *R = a->R;
    form start = *l;
    negate(R, &start);
    tn_tvalue *s = recover_map2(R, TN_S_min, recover_sum(R, &start), recover_index(R, 0));
    return add_dimension(a, number(a, a->type->extent[axis].size), number(a, 0), tn_sub_block(s, axis));
}

static bool same_terms(const access *a, const form *f, const form *g, tn_dim *difference)
{
    form d = *f;
    if (!recover_add(a->R, &d, g, number(a, -1)) || d.n)
        return false;
    *difference = d.base;
    return true;
}

/* The upper bound `at`, with a lower one that differs by a size, as start + i in [0, shape). False: it cannot be one. */
static bool plain_bound(access *a, bounds *b, int at, form *start, tn_dim *shape, bool *proven)
{
    const form *u = &b->upper[at];
    *proven = false;
    for (int i = 0; i < b->nlower; i++)
        if (same_terms(a, u, &b->lower[i], shape)) {
            *start = b->lower[i];
            negate(a->R, start);
            b->lower[i] = b->lower[--b->nlower];
            return true;
        }
    *start = *u;
    start->base = number(a, 0);
    negate(a->R, start);
    *shape = u->base;
    return *proven = recover_not_negative(a->R, start);
}

/* The axis's dimension starts at `start` if this takes terms from the offset. */
static bool take_start(access *a, const form *start, tn_dim stride)
{
    form left = a->lead;
    tn_dim minus;
    if (!recover_multiply(a->R, stride, number(a, -1), &minus) || !recover_add(a->R, &left, start, minus) || (start->n && left.n >= a->lead.n))
        return false;
    a->lead = left;
    return true;
}

/* An axis without a bound of its own: terms of the offset that its stride divides become its start. */
static bool add_free_axis(access *a, int axis, tn_dim stride)
{
    form start = recover_constant(a->R, 0);
    for (int i = 0; i < a->lead.n; i++) {
        tn_dim q;
        const form_term *t = &a->lead.term[i];
        bool alike = !tn_dim_is_const(stride) || tn_dim_is_const(t->coef);
        if (alike && recover_divide(a->R, t->coef, stride, &q))
            start.term[start.n++] = (form_term){t->atom, q};
    }
    bool took = start.n && take_start(a, &start, stride);
    tn_dim shape = took ? number(a, TN_TILE_ANY) : number(a, a->type->extent[axis].size);
    return add_dimension(a, shape, stride, inside(tn_sub_block(took ? recover_sum(a->R, &start) : recover_index(a->R, 0), axis)));
}

/* A coordinate, or an index that counts from 0: every lowering sees that they are not negative. */
static bool counts_from_zero(const tn_tvalue *v)
{
    const tn_top *parent = v->block ? v->block->parent : NULL;
    if (v->def || !parent)
        return !v->def;
    const tn_number *lo = parent->code == TN_T_for ? recover_constant_of(parent->operand[0]) : NULL;
    return parent->code == TN_T_fold || (lo && lo->i == 0);
}

/* The start of a bounded axis. That it is not negative was proven here; max says it to who cannot. */
tn_tvalue *recover_block_start(recover *R, const form *start, bool proven)
{
    bool plain = true;
    for (int i = 0; i < start->n; i++)
        plain &= counts_from_zero(start->term[i].atom.value);
    tn_tvalue *v = recover_sum(R, start);
    return plain || !proven ? v : recover_map2(R, TN_S_max, v, recover_index(R, 0));
}

static bool add_axis(access *a, int axis)
{
    bounds *b = &a->bound[axis];
    tn_dim stride = a->stride[axis];
    for (int i = 0; i < b->nupper; i++) {
        form start;
        tn_dim shape;
        bool proven;
        if (!plain_bound(a, b, i, &start, &shape, &proven)) {
            if (!add_clamped_upper(a, axis, &b->upper[i]))
                return false;
            continue;
        }
        bool own = stride && take_start(a, &start, stride);
        if (!add_dimension(a, shape, own ? stride : number(a, 0), tn_sub_block(recover_block_start(a->R, &start, proven), axis)))
            return false;
        stride = own ? NULL : stride;
    }
    for (int i = 0; i < b->nlower; i++)
        if (!add_clamped_lower(a, axis, &b->lower[i]))
            return false;
    a->stride[axis] = stride;
    return true;
}

static bool add_indices(access *a)
{
    for (int i = 0; i < a->nindex; i++) {
        const form_term *t = &a->index[i];
        tn_subscript s = tn_sub_index(t->atom.value, t->atom.naxes, t->atom.axis);
        bool bounded = a->indexed[i].upper;
        if (!add_dimension(a, bounded ? a->indexed[i].limit : number(a, TN_TILE_ANY), t->coef, bounded ? s : inside(s)))
            return false;
    }
    return true;
}

/* Index 0 where the part is true, 1 where not, of one element. */
static bool add_parts(access *a)
{
    recover *R = a->R;
    for (int i = 0; i < a->nparts; i++) {
        const part *p = &a->part[i];
        unsigned keep = recover_varies(R, p->value);
        int axes[TN_TILE_RANK], n = 0;
        for (int k = 0; k < p->value->type.rank; k++)
            if (keep >> k & 1)
                axes[n++] = p->map[k];
        tn_tvalue *off = recover_cast(R, recover_map1(R, TN_S_not, recover_project(R, p->value, keep)), TN_I32);
        if (!add_dimension(a, number(a, 1), number(a, 0), tn_sub_index(off, n, axes)))
            return false;
    }
    return true;
}

/* The scalars that are left. */
static bool add_lead(access *a)
{
    recover *R = a->R;
    form lead = a->lead;
    lead.base = number(a, 0);
    bool sum = lead.n > LEADING;
    tn_dim any = number(a, TN_TILE_ANY);
    for (int i = 0; i < (sum ? 1 : lead.n); i++)
        if (!add_dimension(a, any, sum ? number(a, 1) : lead.term[i].coef, inside(tn_sub_point(sum ? recover_sum(R, &lead) : lead.term[i].atom.value))))
            return false;
    return true;
}

/* Scalars, then the axes in order; of one axis those that move the address come last. */
static int rank_of(const dimension *d)
{
    return d->subscript.naxes ? 2 * d->subscript.axis[0] + 2 + !tn_dim_is(d->stride, 0) : !tn_dim_is(d->stride, 0);
}

static void sort_dimensions(access *a)
{
    for (int i = 1; i < a->ndims; i++) {
        dimension d = a->dim[i];
        int at = i;
        for (; at > 0 && rank_of(&a->dim[at - 1]) > rank_of(&d); at--)
            a->dim[at] = a->dim[at - 1];
        a->dim[at] = d;
    }
}

/* ---- views ----------------------------------------------------------------------------------------------------------------------- */

static const char *view_name(recover *R, int buffer)
{
    char *name = tn_strdup(&R->arena, R->kernel->buffers.at[buffer].name);
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, "_ptr") == 0)
        name[n - 4] = 0;
    for (char *c = name; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    void **made = tn_map_at(&R->names, (uint64_t)buffer + 1);
    uintptr_t n_made = (uintptr_t)*made;
    *made = (void *)(n_made + 1);
    return n_made ? tn_format(&R->arena, "%s.%zu", name, (size_t)n_made) : name;
}

tn_view *recover_view(recover *R, int buffer, int rank, const tn_dim *shape, const tn_dim *stride, tn_dim offset, bool padded, tn_number padding)
{
    tn_text key = {.arena = &R->arena};
    tn_text_add(&key, "%d %p", buffer, (const void *)offset);
    for (int d = 0; d < rank; d++)
        tn_text_add(&key, " %p*%p", (const void *)shape[d], (const void *)stride[d]);
    if (padded)
        tn_text_add(&key, " pad %llx", (unsigned long long)padding.u);
    void **cell = tn_map_at_str(&R->views, key.at);
    if (!*cell) {
        tn_view *view = tn_kernel_view(R->kernel, view_name(R, buffer), buffer, rank, shape, stride, offset);
        view->padded = padded;
        view->padding = padding;
        *cell = view;
    }
    return *cell;
}

static const tn_view *view_of(access *a, bool padded, tn_number padding)
{
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK];
    for (int d = 0; d < a->ndims; d++) {
        shape[d] = a->dim[d].shape;
        stride[d] = a->dim[d].stride;
    }
    return recover_view(a->R, a->buffer, a->ndims, shape, stride, a->lead.base, padded, padding);
}

/* ---- accesses ----------------------------------------------------------------------------------------------------------------------- */

static void take_offset(access *a, const form *offset)
{
    a->lead = (form){.base = offset->base};
    for (int i = 0; i < offset->n; i++) {
        const form_term *t = &offset->term[i];
        if (t->atom.naxes == 0)
            a->lead.term[a->lead.n++] = *t;
        else if (t->atom.value)
            a->index[a->nindex++] = *t;
        else
            a->stride[t->atom.axis[0]] = t->coef;
    }
}

/* Elements of a store that lie along an axis must lie apart. */
static bool stores_apart(access *a)
{
    for (int axis = 0; axis < a->type->rank; axis++) {
        bool moves = recover_is_unit(a->type->extent[axis]) || a->stride[axis];
        for (int i = 0; i < a->nindex && !moves; i++)
            for (int k = 0; k < a->index[i].atom.naxes; k++)
                moves |= a->index[i].atom.axis[k] == axis;
        if (!moves)
            return refuse(a, "all elements along an axis are stored to one address");
    }
    return true;
}

static bool describe(access *a, tn_tvalue *mask)
{
    recover *R = a->R;
    static const int same[TN_TILE_RANK] = {0, 1, 2, 3, 4, 5};
    const pointer_form *p = recover_pointer(R, a->op->operand[0]);
    bool store = a->op->code == TN_T_store_ptr;
    if (p->why)
        return refuse(a, p->why);
    tn_buffer_mode mode = R->kernel->buffers.at[p->buffer].mode;
    if (mode == (store ? TN_READ : TN_WRITE))
        return refuse(a, store ? "the buffer is declared `read`" : "the buffer is declared `write`");
    a->buffer = p->buffer;
    take_offset(a, &p->offset);
    if ((store && !stores_apart(a)) || (mask && !take_mask(a, mask, same, 32)) || !settle_indices(a))
        return false;
    for (int axis = 0; axis < a->type->rank; axis++)
        if (!add_axis(a, axis))
            return false;
    for (int axis = 0; axis < a->type->rank; axis++)
        if (a->stride[axis] && !add_free_axis(a, axis, a->stride[axis]))
            return false;
    if (!add_lead(a) || !add_indices(a) || !add_parts(a))
        return false;
    sort_dimensions(a);
    return true;
}

static void set_view(recover *R, tn_top *op, const access *a, const tn_view *view)
{
    op->view = view;
    op->subscript = TN_NEW_ARRAY(&R->session->arena, tn_subscript, (size_t)a->ndims + 1);
    for (int d = 0; d < a->ndims; d++)
        op->subscript[d] = a->dim[d].subscript;
}

/* other, where it is more than a number: select(mask, the load, other). */
static void become_select(recover *R, const access *a, const tn_view *view)
{
    tn_top *op = a->op;
    tn_tblock block = {.arg = NULL};
    tn_tbuilder b = tn_tbuilder_at(R->kernel, &block, op->loc);
    tn_subscript subscript[TN_MAX_RANK];
    for (int d = 0; d < a->ndims; d++)
        subscript[d] = a->dim[d].subscript;
    tn_tvalue *loaded = tn_t_load(&b, view, subscript, op->result->type), *mask = op->operand[1], *other = op->operand[2];
    recover_insert_before(&block, op);
    op->code = TN_T_map;
    op->fn = TN_S_select;
    op->operand[0] = mask;
    op->operand[1] = loaded;
    op->operand[2] = other;
}

static bool rewrite_load(recover *R, access *a)
{
    tn_top *op = a->op;
    tn_tvalue *other = op->noperands > 2 ? op->operand[2] : NULL;
    const tn_number *padding = other ? recover_constant_of(other) : NULL;
    if (other && !padding && !(recover_there(R, op->operand[1]) && recover_there(R, op->operand[0])))
        return refuse(a, "`other` is no number, and the mask or the address may be absent");
    if (!describe(a, op->noperands > 1 ? op->operand[1] : NULL))
        return false;
    const tn_view *view = view_of(a, padding != NULL, padding ? *padding : (tn_number){.u = 0});
    if (other && !padding) {
        become_select(R, a, view);
        return true;
    }
    op->code = TN_T_load;
    op->noperands = 0;
    set_view(R, op, a, view);
    return true;
}

static bool rewrite_store(recover *R, access *a)
{
    tn_top *op = a->op;
    if (!describe(a, op->noperands > 2 ? op->operand[2] : NULL))
        return false;
    op->code = TN_T_store;
    op->operand[0] = op->operand[1];
    op->noperands = 1;
    set_view(R, op, a, view_of(a, false, (tn_number){.u = 0}));
    return true;
}

static void rewrite(void *context, tn_top *op)
{
    recover *R = context;
    if (op->code != TN_T_load_ptr && op->code != TN_T_store_ptr)
        return;
    const char *what = tn_top_name(op->code);
    access *a = TN_NEW(&R->arena, access);
    a->R = R;
    a->op = op;
    a->type = &op->operand[0]->type;
    if (op->code == TN_T_load_ptr ? rewrite_load(R, a) : rewrite_store(R, a))
        *tn_map_at(&R->accesses, TN_KEY(op)) = a;
    else
        tn_note(R->session, op->loc, "%s stays an access by pointers: %s", what, a->why);
}

static void find_parameter(void *context, tn_top *op)
{
    bool *found = context;
    for (int i = 0; i < op->nresults; i++)
        for (int a = 0; a < op->result[i].type.rank; a++)
            *found |= op->result[i].type.extent[a].param != NULL;
}

static void use_view(void *context, tn_top *op)
{
    if (op->view)
        *tn_map_at(context, TN_KEY(op->view)) = op;
}

/* Views that the kernel did not come with and no access has. */
static void drop_views(recover *R, size_t came)
{
    tn_kernel *k = R->kernel;
    tn_map used = {.arena = &R->arena};
    tn_tile_walk(k->body, use_view, &used);
    size_t kept = 0;
    for (size_t i = 0; i < k->views.len; i++)
        if (i < came || tn_map_get(&used, TN_KEY(k->views.at[i])))
            k->views.at[kept++] = k->views.at[i];
    k->views.len = kept;
}

/* Nothing is known about the program's values. */
static void forget(recover *R)
{
    tn_map empty = {.arena = &R->arena};
    R->made = R->projected = R->forms = R->pointers = R->spans = R->varies = R->solutions = R->there = R->assumed = empty;
}

static void begin(recover *R)
{
    tn_map empty = {.arena = &R->arena};
    forget(R);
    R->order = R->anchor = R->tail = R->views = R->names = R->became = R->accesses = empty;
    recover_number_operations(R);
    recover_collect_facts(R);
}

static void has_loop(void *context, tn_top *op) { *(bool *)context |= op->code == TN_T_for; }

tn_status tn_tile_fold_scaled(tn_kernel *kernel)
{
    recover R = {.session = kernel->session, .kernel = kernel, .arena = {.on_oom = kernel->session->arena.on_oom}, .scaled = true};
    bool any = false;
    tn_tile_walk(kernel->body, has_loop, &any);
    if (!any)
        return TN_OK;
    begin(&R);
    recover_folds(&R);
    tn_arena_free(&R.arena);
    return TN_OK;
}

tn_status tn_tile_recover(tn_kernel *kernel)
{
    recover R = {.session = kernel->session, .kernel = kernel, .arena = {.on_oom = kernel->session->arena.on_oom}};
    size_t errors = kernel->session->errors, views = kernel->views.len;
    bool unbound = false;
    tn_tile_walk(kernel->body, find_parameter, &unbound);
    if (unbound) /* of kernels whose extents a schedule gives: they come with views */
        return TN_OK;
    begin(&R);
    tn_tile_walk(kernel->body, rewrite, &R);
    recover_remainders(&R);
    tn_remove_dead(kernel); /* pointers that loops carry for nobody now: values move, so what is known by their addresses is forgotten */
    forget(&R);
    recover_operands(&R);
    recover_folds(&R);
    drop_views(&R, views);
    tn_arena_free(&R.arena);
    return kernel->session->errors == errors ? TN_OK : TN_UNSUPPORTED;
}

static void count_pointers(void *context, tn_top *op)
{
    size_t *n = context;
    *n += op->code == TN_T_load_ptr || op->code == TN_T_store_ptr;
}

size_t tn_tile_pointer_accesses(const tn_kernel *kernel)
{
    size_t n = 0;
    tn_tile_walk(kernel->body, count_pointers, &n);
    return n;
}
