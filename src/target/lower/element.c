/* Elements of tiles: lower_element computes one at indices that are Loop IR values. */
#include <assert.h>

#include "target/lower/lower.h"

static int depth_of(const tn_lvalue *v)
{
    int depth = 0;
    for (const tn_lblock *block = v->block; block && block->parent; block = block->parent->block)
        depth++;
    return depth;
}

void lower_sum_add(sum *s, tn_lvalue *term)
{
    int at = s->n++, depth = depth_of(term);
    assert(s->n <= (int)TN_COUNT(s->term));
    for (; at > 0 && depth_of(s->term[at - 1]) > depth; at--)
        s->term[at] = s->term[at - 1];
    s->term[at] = term;
}

tn_lvalue *lower_sum_value(tn_lbuilder *b, const sum *s)
{
    tn_lvalue *v = s->n ? s->term[0] : tn_l_index(b, 0);
    for (int i = 1; i < s->n; i++)
        v = tn_l_fn2(b, TN_S_add, v, s->term[i]);
    return v;
}

tn_lvalue *lower_and(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    return !x ? y : !y ? x : tn_l_fn2(b, TN_S_and, x, y);
}

static tn_lvalue *times_dim(lower *L, tn_lbuilder *b, tn_lvalue *x, tn_dim d)
{
    return tn_l_fn2(b, TN_S_mul, x, lower_dim(L, d));
}

static tn_lvalue *subscript_index(lower *L, tn_lbuilder *b, const tn_subscript *s, tn_lvalue *const *idx, tn_lvalue **exists)
{
    if (s->block) {
        element start = lower_element(L, b, s->value, NULL);
        *exists = lower_and(b, *exists, start.present);
        return tn_l_fn2(b, TN_S_add, start.value, idx[s->axis[0]]);
    }
    tn_lvalue *at[TN_TILE_RANK];
    for (int i = 0; i < s->naxes; i++)
        at[i] = idx[s->axis[i]];
    element e = lower_element(L, b, s->value, at);
    *exists = lower_and(b, *exists, e.present);
    return tn_l_cast(b, e.value, TN_I64);
}

static tn_lvalue *check_subscript(lower *L, tn_lbuilder *b, const tn_top *op, int d, tn_lvalue *const *idx, tn_lvalue *index)
{
    const tn_subscript *s = &op->subscript[d];
    tn_dim shape = op->view->shape[d];
    if (s->inside)
        return NULL;
    int64_t constant;
    tn_lvalue *ok = NULL;
    bool is_const = tn_l_is_const(index, &constant);
    const tn_ttype *type = &lower_accessed_tile(op)->type;
    bool below = s->block && (lower_known_below(L, s->value, idx[s->axis[0]], shape) || lower_block_fits(L, s->value, shape, type->extent[s->axis[0]].size));
    if (!s->block && s->naxes == 0) { /* a range variable of step 1 is below its limit */
        int64_t step;
        tn_dim range = lower_range_of(L, s->value, &step);
        below = range && step >= 1 && tn_dim_le(L->session, range, shape);
    }
    if (is_const && tn_dim_is_const(shape))
        below = constant < shape->value;
    if (!below)
        ok = tn_l_fn2(b, TN_S_lt, index, lower_dim(L, shape));
    if (!(is_const && constant >= 0) && !lower_not_negative(L, s->value))
        ok = lower_and(b, ok, tn_l_fn2(b, TN_S_ge, index, tn_l_index(b, 0)));
    return ok;
}

static tn_lvalue *check_guard(lower *L, tn_lbuilder *b, const tn_view *view, const tn_guard *g, tn_lvalue *const *index)
{
    sum s = {.n = 0};
    for (size_t i = 0; i < L->granted.len; i++)
        if (L->granted.at[i] == g)
            return NULL;
    if (!tn_dim_is(g->base, 0))
        lower_sum_add(&s, lower_dim(L, g->base));
    for (int d = 0; d < view->rank; d++)
        if (!tn_dim_is(g->coef[d], 0))
            lower_sum_add(&s, times_dim(L, b, index[d], g->coef[d]));
    tn_lvalue *at = lower_sum_value(b, &s);
    return lower_and(b, tn_l_fn2(b, TN_S_ge, at, tn_l_index(b, 0)), tn_l_fn2(b, TN_S_lt, at, lower_dim(L, g->limit)));
}

static tn_lvalue *packed_offset(lower *L, tn_lbuilder *b, const tn_view *view, tn_lvalue *const *index)
{
    int r = view->rank;
    tn_lvalue *panel = tn_l_index(b, view->panel), *n = index[r - 1];
    tn_lvalue *row = tn_l_fn2(b, TN_S_add, times_dim(L, b, tn_l_fn2(b, TN_S_div, n, panel), view->shape[r - 2]), index[r - 2]);
    sum s = {.n = 0};
    lower_sum_add(&s, lower_dim(L, view->offset));
    for (int d = 0; d < r - 2; d++)
        lower_sum_add(&s, times_dim(L, b, index[d], view->stride[d]));
    lower_sum_add(&s, tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, row, panel), tn_l_fn2(b, TN_S_rem, n, panel)));
    return lower_sum_value(b, &s);
}

access lower_resolve(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    const tn_view *view = op->view;
    tn_lvalue *index[TN_MAX_RANK];
    access a = {NULL, NULL};
    sum s = {.n = 0};
    if (!tn_dim_is(view->offset, 0))
        lower_sum_add(&s, lower_dim(L, view->offset));
    for (int d = 0; d < view->rank; d++) {
        const tn_subscript *sub = &op->subscript[d];
        index[d] = subscript_index(L, b, sub, idx, &a.exists);
        a.exists = lower_and(b, a.exists, check_subscript(L, b, op, d, idx, index[d]));
        if (tn_dim_is(view->stride[d], 0))
            continue;
        if (sub->block) { /* start and index apart: the start's part leaves the loops */
            lower_sum_add(&s, times_dim(L, b, lower_scalar(L, b, sub->value), view->stride[d]));
            lower_sum_add(&s, times_dim(L, b, idx[sub->axis[0]], view->stride[d]));
        } else {
            lower_sum_add(&s, times_dim(L, b, index[d], view->stride[d]));
        }
    }
    for (int g = 0; g < view->nguards; g++)
        a.exists = lower_and(b, a.exists, check_guard(L, b, view, &view->guard[g], index));
    a.offset = view->panel ? packed_offset(L, b, view, index) : lower_sum_value(b, &s);
    return a;
}

static element load_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    access a = lower_resolve(L, b, op, idx);
    const tn_view *view = op->view;
    if (L->target->before_load)
        L->target->before_load(L, b, op, L->buffer[view->buffer], a.offset);
    tn_dtype dtype = op->result->type.dtype;
    tn_lvalue *other = a.exists && view->padded ? tn_l_const(b, tn_lscalar(dtype), view->padding) : NULL;
    tn_lvalue *v = tn_l_load(b, L->buffer[view->buffer], a.offset, 1, a.exists, other);
    return (element){v, view->padded ? NULL : a.exists};
}

/* An operand of an operation that chooses among its operands: pointers count from where the result's do. */
static element operand_element(lower *L, tn_lbuilder *b, const tn_top *op, int i, tn_lvalue *const *idx)
{
    const tn_tvalue *x = op->operand[i];
    element e = lower_element(L, b, x, idx);
    if (x->type.pointer)
        e.value = lower_rebase(L, b, e.value, lower_root(L, x), lower_root(L, op->result), x->type.dtype);
    return e;
}

/* v at idx as an element of what it is moved from; at: room for the indices. */
static const tn_tvalue *origin(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, tn_lvalue **at)
{
    tn_lvalue *next[TN_TILE_RANK];
    for (int k = 0; k < v->type.rank; k++)
        at[k] = idx[k];
    for (const tn_tvalue *from; v->def && (from = lower_moved(L, b, v, at, next)); v = from)
        for (int k = 0; k < from->type.rank; k++)
            at[k] = next[k];
    return v;
}

/* A condition that is true wherever the sink's element is stored, since it says what a bound of its view says: start + i < size. */
static bool holds_in_sink(lower *L, tn_lbuilder *b, const tn_tvalue *condition, tn_lvalue *const *idx)
{
    tn_lvalue *at[TN_TILE_RANK], *place[TN_TILE_RANK], *none[TN_TILE_RANK];
    condition = L->sink ? origin(L, b, condition, idx, at) : NULL;
    if (!condition || !condition->def || condition->def->code != TN_T_map || condition->def->fn != TN_S_lt)
        return false;
    const tn_tvalue *x = origin(L, b, condition->def->operand[0], at, place), *y = origin(L, b, condition->def->operand[1], at, none);
    if (x->def && x->def->code == TN_T_cast) /* of a range whose numbers it keeps */
        x = x->def->operand[0];
    int64_t most = INT64_C(1) << (tn_dtype_bits(y->type.dtype) - 1);
    if (!x->def || x->def->code != TN_T_range || y->type.rank || !tn_is_integer(y->type.dtype) || tn_is_unsigned(y->type.dtype))
        return false;
    const tn_top *start = x->def->operand[0]->def;
    if (!start || start->code != TN_T_const || start->number.i < 0 || start->number.i >= most - x->type.extent[0].size)
        return false;
    tn_lvalue *limit = lower_scalar(L, b, y);
    if (limit->def && limit->def->code == TN_L_cast && limit->def->operand[0]->holds == y->type.dtype)
        limit = limit->def->operand[0];
    for (int d = 0; d < L->sink->view->rank; d++) {
        const tn_subscript *s = &L->sink->subscript[d];
        const tn_top *first = s->block && !s->inside ? s->value->def : NULL;
        if (first && first->code == TN_T_const && first->number.i == start->number.i && L->sink_index[s->axis[0]] == place[0] && lower_dim(L, L->sink->view->shape[d]) == limit)
            return true;
    }
    return false;
}

static element map_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    tn_lvalue *x[3], *present = NULL;
    element e[3];
    if (op->fn == TN_S_select && holds_in_sink(L, b, op->operand[0], idx))
        return operand_element(L, b, op, 1, idx);
    for (int i = 0; i < op->noperands; i++) {
        e[i] = operand_element(L, b, op, i, idx);
        x[i] = e[i].value;
    }
    if (op->fn == TN_S_select) {
        if (e[1].present || e[2].present) {
            tn_lvalue *yes = tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1));
            present = tn_l_fn3(b, TN_S_select, x[0], e[1].present ? e[1].present : yes, e[2].present ? e[2].present : yes);
        }
        present = lower_and(b, present, e[0].present);
    } else {
        for (int i = 0; i < op->noperands; i++)
            present = lower_and(b, present, e[i].present);
    }
    tn_lvalue *v = tn_l_fn(b, op->fn, x, op->noperands);
    v->def->contract = L->kernel->contract && tn_l_contracts(op->fn, x[0]->type.dtype);
    return (element){v, present};
}

/* Element i of `op`'s operand at the operand's indices `at`, from a linear index over its extents. */
static void delinearise(tn_lbuilder *b, const tn_ttype *type, tn_lvalue *linear, tn_lvalue **at)
{
    for (int i = type->rank; i-- > 0;) {
        tn_lvalue *extent = tn_l_index(b, type->extent[i].size);
        at[i] = i ? tn_l_fn2(b, TN_S_rem, linear, extent) : linear;
        linear = tn_l_fn2(b, TN_S_div, linear, extent);
    }
}

static void reshape_index(tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, tn_lvalue **at)
{
    const tn_ttype *from = &op->operand[0]->type, *to = &op->result->type;
    tn_lvalue *zero = tn_l_index(b, 0);
    int i = 0, j = 0;
    while (i < from->rank || j < to->rank) { /* only unit axes come and go */
        if (j < to->rank && to->extent[j].size == 1)
            j++;
        else if (i < from->rank && from->extent[i].size == 1)
            at[i++] = zero;
        else if (i < from->rank && j < to->rank && from->extent[i].size == to->extent[j].size)
            at[i++] = idx[j++];
        else
            break;
    }
    if (i < from->rank || j < to->rank) {
        tn_lvalue *linear = zero;
        for (int k = 0; k < to->rank; k++)
            linear = tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, linear, tn_l_index(b, to->extent[k].size)), idx[k]);
        delinearise(b, from, linear, at);
    }
}

const tn_tvalue *lower_moved(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, tn_lvalue **at)
{
    const tn_top *op = v->def;
    int rank = v->type.rank;
    switch (op->code) {
    case TN_T_assume:
        for (int i = 0; i < rank; i++)
            at[i] = idx[i];
        break;
    case TN_T_broadcast:
        for (int i = 0; i < op->naxes; i++)
            at[i] = op->operand[0]->type.extent[i].size == 1 && v->type.extent[op->axis[i]].size != 1 ? tn_l_index(b, 0) : idx[op->axis[i]];
        break;
    case TN_T_permute:
        for (int i = 0; i < rank; i++)
            at[op->axis[i]] = idx[i];
        break;
    case TN_T_reshape:
        reshape_index(b, op, idx, at);
        break;
    case TN_T_split:
        for (int i = 0; i < rank; i++)
            at[i] = idx[i];
        at[rank] = tn_l_index(b, v - op->result);
        break;
    case TN_T_slice:
        for (int i = 0; i < rank; i++)
            at[i] = i == op->axis[0] ? tn_l_fn2(b, TN_S_add, idx[i], tn_l_index(b, op->number.i)) : idx[i];
        break;
    default:
        (void)L;
        return NULL;
    }
    return op->operand[0];
}

/* first ? x : y, each with its own state. */
static element choose(tn_lbuilder *b, tn_lvalue *first, element x, element y)
{
    element e = {tn_l_fn3(b, TN_S_select, first, x.value, y.value), NULL};
    if (x.present || y.present) {
        tn_lvalue *yes = tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1));
        e.present = tn_l_fn3(b, TN_S_select, first, x.present ? x.present : yes, y.present ? y.present : yes);
    }
    return e;
}

static element join_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element x = operand_element(L, b, op, 0, idx), y = operand_element(L, b, op, 1, idx);
    tn_lvalue *first = tn_l_fn2(b, TN_S_eq, idx[op->result->type.rank - 1], tn_l_index(b, 0));
    return choose(b, first, x, y);
}

static element cat_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    int axis = op->axis[0], rank = op->result->type.rank;
    tn_lvalue *size = tn_l_index(b, op->operand[0]->type.extent[axis].size), *one = tn_l_index(b, 1), *zero = tn_l_index(b, 0);
    tn_lvalue *first = tn_l_fn2(b, TN_S_lt, idx[axis], size);
    tn_lvalue *at[2][TN_TILE_RANK];
    for (int i = 0; i < rank; i++)
        at[0][i] = at[1][i] = idx[i];
    /* Both sides are computed; each at an index inside it. */
    at[0][axis] = tn_l_fn2(b, TN_S_min, idx[axis], tn_l_fn2(b, TN_S_sub, size, one));
    at[1][axis] = tn_l_fn2(b, TN_S_max, tn_l_fn2(b, TN_S_sub, idx[axis], size), zero);
    element x = operand_element(L, b, op, 0, at[0]), y = operand_element(L, b, op, 1, at[1]);
    return choose(b, first, x, y);
}

tn_lvalue *lower_frozen(tn_lbuilder *b, element e)
{
    if (!e.present)
        return e.value;
    tn_dtype dtype = e.value->type.dtype;
    return tn_l_fn3(b, TN_S_select, e.present, e.value, tn_l_const(b, tn_lscalar(dtype), tn_number_from_int(dtype, 0)));
}

/* The source is read like memory: absent elements of it are 0. */
static element gather_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element index = lower_element(L, b, op->operand[1], idx);
    tn_lvalue *j = tn_l_cast(b, lower_frozen(b, index), TN_I64), *at[TN_TILE_RANK];
    int rank = op->operand[0]->type.rank;
    int64_t extent = op->operand[0]->type.extent[op->axis[0]].size;
    if (L->kernel->overlap) { /* a user's index may be any: some element, never memory that is not the tile's */
        bool power = (extent & (extent - 1)) == 0;
        tn_lvalue *last = tn_l_index(b, extent - 1);
        j = power ? tn_l_fn2(b, TN_S_and, j, last) : tn_l_fn2(b, TN_S_max, tn_l_fn2(b, TN_S_min, j, last), tn_l_index(b, 0));
    }
    for (int i = 0; i < rank; i++)
        at[i] = i == op->axis[0] ? j : idx[i];
    const place *p = tn_map_get(&L->gathered, TN_KEY(op));
    if (p)
        return (element){tn_l_cast(b, tn_l_load(b, p->buffer, lower_place_offset(b, p, rank, at), 1, NULL, NULL), op->result->type.pointer ? TN_I64 : op->result->type.dtype), index.present};
    return (element){lower_frozen(b, lower_element(L, b, op->operand[0], at)), index.present};
}

static element asm_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    tn_lvalue **x = TN_NEW_ARRAY(&L->arena, tn_lvalue *, (size_t)op->noperands + 1), *present = NULL;
    tn_dtype dtype = op->result->type.dtype;
    if (!L->machine->gpu || op->result->type.pointer) {
        L->status = tn_error(L->session, TN_UNSUPPORTED, op->loc, "kernel %s: 'asm' has no %s lowering", L->kernel->name, L->target->name);
        return (element){tn_l_const(b, tn_lscalar(dtype), tn_number_from_int(dtype, 0)), NULL};
    }
    for (int i = 0; i < op->noperands; i++) {
        const tn_tvalue *v = op->operand[i];
        element e = v->type.pointer ? lower_pointer_from(L, b, v, idx, LOWER_MEMORY) : lower_element(L, b, v, idx);
        x[i] = v->type.pointer ? tn_l_fn2(b, TN_S_shl, e.value, tn_l_index(b, lower_log2_bytes(v->type.dtype))) : e.value; /* its address */
        present = lower_and(b, present, e.present);
    }
    return (element){tn_l_asm(b, op->text ? op->text : "", x, op->noperands, dtype), present};
}

static element compute_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    switch (op->code) {
    case TN_T_const:
        return (element){tn_l_const(b, tn_lscalar(v->type.dtype), op->number), NULL};
    case TN_T_size:
        return (element){lower_dim(L, op->dim), NULL};
    case TN_T_range:
        return (element){tn_l_fn2(b, TN_S_add, lower_scalar(L, b, op->operand[0]), idx[0]), NULL};
    case TN_T_load:
        return load_element(L, b, op, idx);
    case TN_T_map:
        return map_element(L, b, op, idx);
    case TN_T_cast: {
        element e = lower_element(L, b, op->operand[0], idx);
        return (element){tn_l_cast(b, e.value, v->type.dtype), e.present};
    }
    case TN_T_addptr:
        return lower_pointer_element(L, b, v, idx);
    case TN_T_load_ptr:
        return lower_load_ptr_element(L, b, op, idx);
    case TN_T_bitcast: {
        if (v->type.pointer || op->operand[0]->type.pointer)
            return lower_pointer_element(L, b, v, idx);
        element e = lower_element(L, b, op->operand[0], idx);
        return (element){tn_l_bitcast(b, e.value, tn_lscalar(v->type.dtype)), e.present};
    }
    case TN_T_asm:
        return asm_element(L, b, op, idx);
    case TN_T_join:
        return join_element(L, b, op, idx);
    case TN_T_cat:
        return cat_element(L, b, op, idx);
    case TN_T_gather:
        return gather_element(L, b, op, idx);
    default:
        L->status = tn_error(L->session, TN_UNSUPPORTED, op->loc, "kernel %s: '%s' has no %s lowering", L->kernel->name, tn_top_name(op->code), L->target->name);
        return (element){tn_l_const(b, tn_lscalar(v->type.dtype), tn_number_from_int(v->type.dtype, 0)), NULL};
    }
}

element lower_compute_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *sink = L->sink;
    tn_lvalue *at[TN_TILE_RANK];
    if (v->def->code != TN_T_map && v->def->code != TN_T_cast) /* what it takes may be an address, or go there */
        L->sink = NULL;
    const tn_tvalue *from = lower_moved(L, b, v, idx, at);
    if (from)
        L->sink = sink;
    element e = from ? lower_element(L, b, from, at) : compute_element(L, b, v, idx);
    L->sink = sink;
    return e;
}

/* A memo entry lives until the nest that made it closes. */
static const memo_entry *memo_find(const lower *L, const tn_tvalue *v, tn_lvalue *const *idx)
{
    size_t *head = tn_map_get(&L->memo_head, TN_KEY(v));
    for (size_t at = head ? *head : 0; at; at = L->memo.at[at - 1].prev) {
        const memo_entry *e = &L->memo.at[at - 1];
        bool same = true;
        for (int i = 0; i < v->type.rank; i++)
            same &= e->index[i] == idx[i] || v->type.extent[i].size == 1;
        if (same && (L->sink || !e->loose))
            return e;
    }
    return NULL;
}

bool lower_recall(const lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element *out)
{
    const memo_entry *e = memo_find(L, v, idx);
    if (e)
        *out = e->element;
    return e != NULL;
}

void lower_memo(lower *L, const tn_tvalue *v, tn_lvalue *const *idx, element value)
{
    void **cell = tn_map_at(&L->memo_head, TN_KEY(v));
    if (!*cell)
        *cell = TN_NEW(&L->arena, size_t);
    size_t *head = *cell;
    memo_entry e = {.value = v, .element = value, .loose = L->sink != NULL, .prev = *head};
    for (int i = 0; i < v->type.rank; i++)
        e.index[i] = idx[i];
    TN_PUSH(&L->arena, &L->memo, e);
    *head = L->memo.len;
}

scope lower_open(const lower *L) { return (scope){L->memo.len, L->facts.len, L->granted.len}; }

void lower_close(lower *L, scope s)
{
    while (L->memo.len > s.memo) {
        const memo_entry *e = &L->memo.at[--L->memo.len];
        *(size_t *)tn_map_get(&L->memo_head, TN_KEY(e->value)) = e->prev;
    }
    L->facts.len = s.facts;
    L->granted.len = s.granted;
}

void lower_set_place(lower *L, const tn_tvalue *v, place *p) { *tn_map_at(&L->places, TN_KEY(v)) = p; }

/* No element's place in the tile has a part in it. */
static bool guard_is_of_tile(const tn_top *load, const tn_guard *g)
{
    for (int d = 0; d < load->view->rank; d++)
        if (!tn_dim_is(g->coef[d], 0) && (load->subscript[d].block || load->subscript[d].naxes))
            return false;
    return true;
}

static tn_lvalue *grant_load(lower *L, tn_lbuilder *b, const tn_top *load)
{
    tn_lvalue *index[TN_MAX_RANK], *all = NULL;
    for (int g = 0; g < load->view->nguards && !load->view->padded; g++) {
        const tn_guard *guard = &load->view->guard[g];
        if (!guard_is_of_tile(load, guard))
            continue;
        for (int d = 0; d < load->view->rank; d++)
            if (!tn_dim_is(guard->coef[d], 0))
                index[d] = lower_scalar(L, b, load->subscript[d].value);
        all = lower_and(b, all, check_guard(L, b, load->view, guard, index));
        TN_PUSH(&L->arena, &L->granted, guard);
    }
    return all;
}

tn_lvalue *lower_grant_guards(lower *L, tn_lbuilder *b, const tn_tvalue *v)
{
    const tn_top *op = v->def;
    tn_lvalue *all = NULL;
    if (!op || tn_map_get(&L->places, TN_KEY(v)) || tn_map_get(&L->scalars, TN_KEY(v)))
        return NULL;
    if (op->code == TN_T_load)
        return grant_load(L, b, op);
    if ((op->code == TN_T_map && op->fn != TN_S_select) || op->code == TN_T_cast || op->code == TN_T_bitcast)
        for (int i = 0; i < op->noperands; i++)
            all = lower_and(b, all, lower_grant_guards(L, b, op->operand[i]));
    return all;
}

void lower_open_ranges(lower *L, tn_lbuilder *b, const tn_top *op) { lower_open_ranges_between(L, b, op, NULL, NULL); }

void lower_open_ranges_between(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *from, tn_lvalue *to)
{
    static const char *const names[TN_TILE_RANK] = {"j0", "j1", "j2", "j3", "j4", "j5"};
    for (int i = 0; i < op->nranges; i++) {
        bool part = i == 0 && from;
        tn_lvalue *limit = part ? to : lower_scalar(L, b, op->operand[i]);
        int64_t n, step = op->step[i].size;
        tn_lvalue *start;
        if (!part && tn_l_is_const(limit, &n) && n > 0 && n <= step) {
            start = tn_l_index(b, 0);
        } else {
            tn_lop *loop = tn_l_for(b, names[i], part ? from : tn_l_index(b, 0), limit, tn_l_index(b, step), TN_FOR_SERIAL);
            *b = tn_l_in(b, loop->region[0]);
            start = loop->region[0]->arg;
        }
        lower_memo(L, &op->region[0]->arg[i], NULL, (element){start, NULL});
    }
}

tn_lvalue *lower_place_offset(tn_lbuilder *b, const place *p, int rank, tn_lvalue *const *idx)
{
    sum s = {.n = 0};
    for (int i = 0; i < rank; i++)
        if (p->stride[i])
            lower_sum_add(&s, tn_l_fn2(b, TN_S_mul, idx[i], tn_l_index(b, p->stride[i])));
    return lower_sum_value(b, &s);
}

element lower_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    tn_lvalue *scalar = tn_map_get(&L->scalars, TN_KEY(v));
    if (scalar)
        return (element){scalar, NULL};
    const memo_entry *found = memo_find(L, v, idx);
    if (found)
        return found->element;
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    element e = p ? L->target->place_element(L, b, p, v, idx) : lower_compute_element(L, b, v, idx);
    if (L->status == TN_OK)
        lower_memo(L, v, idx, e);
    return e;
}

tn_lvalue *lower_scalar(lower *L, tn_lbuilder *b, const tn_tvalue *v) { return lower_frozen(b, lower_element(L, b, v, NULL)); }

void lower_combine(lower *L, tn_lbuilder *b, const tn_tblock *region, int n, tn_lvalue *const *a, tn_lvalue *const *x, tn_lvalue **out)
{
    scope s = lower_open(L);
    for (int i = 0; i < n; i++) {
        lower_memo(L, &region->arg[i], NULL, (element){a[i], NULL});
        lower_memo(L, &region->arg[n + i], NULL, (element){x[i], NULL});
    }
    for (int i = 0; i < region->last->noperands; i++)
        out[i] = lower_scalar(L, b, region->last->operand[i]);
    lower_close(L, s);
}

tn_lvalue *lower_all_present(tn_lbuilder *b, const element *x, int n)
{
    tn_lvalue *present = NULL;
    for (int i = 0; i < n; i++)
        present = lower_and(b, present, x[i].present);
    return present;
}

tn_lvalue *lower_yes_or(tn_lbuilder *b, tn_lvalue *present)
{
    return present ? present : tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1));
}

void lower_accumulate(lower *L, tn_lbuilder *b, const tn_tblock *combine, int n, tn_lvalue *const *acc, tn_lvalue *offset, const element *x)
{
    scope s = lower_open(L);
    tn_lvalue *old[16];
    for (int i = 0; i < n; i++) {
        old[i] = tn_l_load(b, acc[i], offset, 1, NULL, NULL);
        lower_memo(L, &combine->arg[i], NULL, (element){old[i], NULL});
        lower_memo(L, &combine->arg[n + i], NULL, (element){x[i].value, NULL});
    }
    tn_lvalue *result[16], *present = NULL;
    for (int i = 0; i < n; i++)
        present = lower_and(b, present, x[i].present); /* a tuple exists if all of it does */
    for (int i = 0; i < n; i++) {
        result[i] = lower_scalar(L, b, combine->last->operand[i]);
        if (present)
            result[i] = tn_l_fn3(b, TN_S_select, present, result[i], old[i]);
    }
    for (int i = 0; i < n; i++)
        tn_l_store(b, acc[i], offset, result[i], NULL);
    lower_close(L, s);
}

static tn_lvalue *select_present(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    tn_lvalue *x = lower_present(L, b, op->operand[1], idx), *y = lower_present(L, b, op->operand[2], idx), *side = NULL;
    if (x || y) {
        tn_lvalue *yes = tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1));
        side = tn_l_fn3(b, TN_S_select, lower_element(L, b, op->operand[0], idx).value, x ? x : yes, y ? y : yes);
    }
    return lower_and(b, side, lower_present(L, b, op->operand[0], idx));
}

tn_lvalue *lower_present(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    tn_lvalue *at[TN_TILE_RANK], *present = NULL;
    element known;
    if (p && !p->kept && !p->present && (p->held || (op && (op->code == TN_T_dot || op->nregions))))
        return NULL; /* all of what a product or loop gives, or of registers without flags; the value may not be readable here */
    if (v->type.rank == 0 || !op || (p && !p->kept) || lower_recall(L, v, idx, &known))
        return lower_element(L, b, v, idx).present;
    const tn_tvalue *from = lower_moved(L, b, v, idx, at);
    if (from)
        return lower_present(L, b, from, at);
    switch (op->code) {
    case TN_T_load:
    case TN_T_load_ptr:
        return lower_place_present(L, b, op, idx);
    case TN_T_gather:
        return lower_present(L, b, op->operand[1], idx);
    case TN_T_map:
        if (op->fn == TN_S_select)
            return select_present(L, b, op, idx);
        break;
    case TN_T_cast:
    case TN_T_bitcast:
    case TN_T_asm:
    case TN_T_addptr:
        break;
    default:
        return lower_compute_element(L, b, v, idx).present;
    }
    for (int i = 0; i < op->noperands; i++)
        present = lower_and(b, present, lower_present(L, b, op->operand[i], idx));
    return present;
}
