/* recover: making operations. A scalar that several accesses need (where a block starts, which bound holds) must be one value for all of them, in a
 * loop or outside, so that a lowering sees that they are equal: it is made once, at the first place where its operands are known. */
#include "tile/recover.h"

#include <assert.h>

enum { MAX_DEPTH = 500 };

/* ---- places ------------------------------------------------------------------------------------------------------------ */

static void number_operation(void *context, tn_top *op)
{
    recover *R = context;
    *tn_map_at(&R->order, TN_KEY(op)) = (void *)(uintptr_t)((uint64_t)(R->order.len + 1) << 32);
}

void recover_number_operations(recover *R) { tn_tile_walk(R->kernel->body, number_operation, R); }

static int depth_of(const tn_tblock *block)
{
    int depth = 0;
    for (; block->parent; block = block->parent->block)
        depth++;
    return depth;
}

spot recover_start(const recover *R) { return (spot){R->kernel->body, NULL, 0}; }

spot recover_spot(const recover *R, const tn_tvalue *v)
{
    if (!v->block) /* a coordinate or a parameter */
        return recover_start(R);
    return (spot){v->block, v->def, v->def ? (uint64_t)(uintptr_t)tn_map_get(&R->order, TN_KEY(v->def)) : 0};
}

spot recover_later(spot a, spot b)
{
    if (a.block == b.block)
        return a.order >= b.order ? a : b;
    return depth_of(a.block) > depth_of(b.block) ? a : b;
}

/* Behind everything that was put at this spot before. */
static void insert(recover *R, tn_top *op, spot at)
{
    void *anchor = at.after ? tn_map_get(&R->anchor, TN_KEY(at.after)) : NULL;
    anchor = anchor ? anchor : at.after ? (void *)at.after : (void *)at.block;
    void **tail = tn_map_at(&R->tail, TN_KEY(anchor));
    tn_top *prev = *tail ? *tail : at.after, *next = prev ? prev->next : at.block->first;
    *tail = op;
    op->block = at.block;
    for (int i = 0; i < op->nresults; i++)
        op->result[i].block = at.block;
    op->prev = prev;
    op->next = next;
    *(prev ? &prev->next : &at.block->first) = op;
    *(next ? &next->prev : &at.block->last) = op;
    *tn_map_at(&R->anchor, TN_KEY(op)) = anchor;
    *tn_map_at(&R->order, TN_KEY(op)) = (void *)(uintptr_t)((at.order >> 32 << 32) + ++R->nmade);
}

void recover_splice(recover *R, tn_tblock *from, spot at)
{
    for (tn_top *op = from->first, *next; op; op = next) {
        next = op->next;
        insert(R, op, at);
    }
}

void recover_insert_before(tn_tblock *from, tn_top *before)
{
    tn_tblock *block = before->block;
    for (tn_top *op = from->first, *next; op; op = next) {
        next = op->next;
        op->block = block;
        for (int i = 0; i < op->nresults; i++)
            op->result[i].block = block;
        op->prev = before->prev;
        op->next = before;
        *(op->prev ? &op->prev->next : &block->first) = op;
        before->prev = op;
    }
}

/* ---- operations --------------------------------------------------------------------------------------------------------- */

static tn_tbuilder builder(recover *R, tn_tblock *block)
{
    *block = (tn_tblock){.arg = NULL};
    return tn_tbuilder_at(R->kernel, block, TN_NO_LOC);
}

tn_tvalue *recover_dim(recover *R, tn_dim dim)
{
    void **cell = tn_map_at_str(&R->made, tn_format(&R->arena, "size %p", (const void *)dim));
    if (!*cell) {
        tn_tblock block;
        tn_tbuilder b = builder(R, &block);
        *cell = tn_t_size(&b, dim);
        recover_splice(R, &block, recover_start(R));
    }
    return *cell;
}

tn_tvalue *recover_index(recover *R, int64_t value) { return recover_dim(R, tn_dim_const(R->session, value)); }

tn_tvalue *recover_cast(recover *R, tn_tvalue *v, tn_dtype dtype)
{
    if (v->type.dtype == dtype)
        return v;
    void **cell = tn_map_at_str(&R->made, tn_format(&R->arena, "cast %p %d", (void *)v, (int)dtype));
    if (!*cell) {
        tn_tblock block;
        tn_tbuilder b = builder(R, &block);
        *cell = tn_t_cast(&b, v, dtype);
        recover_splice(R, &block, recover_spot(R, v));
    }
    return *cell;
}

tn_tvalue *recover_map1(recover *R, tn_scalar fn, tn_tvalue *x)
{
    void **cell = tn_map_at_str(&R->made, tn_format(&R->arena, "map %d %p", (int)fn, (void *)x));
    if (!*cell) {
        tn_tblock block;
        tn_tbuilder b = builder(R, &block);
        *cell = tn_t_map1(&b, fn, x);
        recover_splice(R, &block, recover_spot(R, x));
    }
    return *cell;
}

tn_tvalue *recover_map2(recover *R, tn_scalar fn, tn_tvalue *x, tn_tvalue *y)
{
    void **cell = tn_map_at_str(&R->made, tn_format(&R->arena, "map %d %p %p", (int)fn, (void *)x, (void *)y));
    if (!*cell) {
        tn_tblock block;
        tn_tbuilder b = builder(R, &block);
        *cell = tn_t_map2(&b, fn, x, y);
        recover_splice(R, &block, recover_later(recover_spot(R, x), recover_spot(R, y)));
    }
    return *cell;
}

static bool is_less(const form_term *t) { return tn_dim_is_const(t->coef) && t->coef->value < 0; }

/* The next term in the order of the values, so that equal sums are made alike; those that are taken away come last. */
static const form_term *next_term(const form *f, const form_term *after)
{
    const form_term *next = NULL;
    for (int i = 0; i < f->n; i++) {
        const form_term *t = &f->term[i];
        uint64_t key = (uint64_t)is_less(t) << 32 | t->atom.value->id;
        if ((!after || key > ((uint64_t)is_less(after) << 32 | after->atom.value->id)) && (!next || key < ((uint64_t)is_less(next) << 32 | next->atom.value->id)))
            next = t;
    }
    return next;
}

tn_tvalue *recover_sum(recover *R, const form *f)
{
    tn_tvalue *sum = NULL;
    const form_term *t = NULL;
    if (!f->n)
        return recover_dim(R, f->base);
    bool base_first = is_less(next_term(f, NULL));
    for (int i = 0; i < f->n; i++) {
        t = next_term(f, t);
        assert(t->atom.naxes == 0);
        tn_dim coef = is_less(t) ? tn_dim_const(R->session, -t->coef->value) : t->coef;
        tn_tvalue *term = recover_cast(R, t->atom.value, TN_I64);
        term = tn_dim_is(coef, 1) ? term : recover_map2(R, TN_S_mul, term, recover_dim(R, coef));
        if (!sum && base_first)
            sum = recover_dim(R, f->base);
        sum = sum ? recover_map2(R, is_less(t) ? TN_S_sub : TN_S_add, sum, term) : term;
    }
    return base_first || tn_dim_is(f->base, 0) ? sum : recover_map2(R, TN_S_add, sum, recover_dim(R, f->base));
}

/* ---- along fewer axes ------------------------------------------------------------------------------------------------------ */

bool recover_unit_map(const tn_ttype *from, const tn_ttype *to, int *map)
{
    int j = 0;
    for (int i = 0; i < from->rank; i++) {
        map[i] = -1;
        if (recover_is_unit(from->extent[i]))
            continue;
        while (j < to->rank && recover_is_unit(to->extent[j]))
            j++;
        if (j == to->rank || !tn_extent_same(from->extent[i], to->extent[j]))
            return false;
        map[i] = j++;
    }
    while (j < to->rank && recover_is_unit(to->extent[j]))
        j++;
    return j == to->rank;
}

static unsigned all_axes(const tn_ttype *type)
{
    unsigned axes = 0;
    for (int i = 0; i < type->rank; i++)
        axes |= recover_is_unit(type->extent[i]) ? 0 : 1u << i;
    return axes;
}

static unsigned compute_varies(recover *R, const tn_tvalue *v)
{
    const tn_top *op = v->def;
    unsigned all = all_axes(&v->type), axes = 0, from;
    int map[TN_TILE_RANK];
    if (!all || (op && op->code == TN_T_const))
        return 0;
    if (!op)
        return all;
    switch (op->code) {
    case TN_T_broadcast:
        from = recover_varies(R, op->operand[0]);
        for (int i = 0; i < op->naxes; i++)
            axes |= from >> i & 1 ? 1u << op->axis[i] : 0;
        return axes;
    case TN_T_permute:
        from = recover_varies(R, op->operand[0]);
        for (int i = 0; i < v->type.rank; i++)
            axes |= from >> op->axis[i] & 1 ? 1u << i : 0;
        return axes;
    case TN_T_reshape:
        from = recover_varies(R, op->operand[0]);
        if (!from || !recover_unit_map(&op->operand[0]->type, &v->type, map))
            return from ? all : 0;
        for (int i = 0; i < op->operand[0]->type.rank; i++)
            axes |= from >> i & 1 ? 1u << map[i] : 0;
        return axes;
    case TN_T_assume:
        return recover_varies(R, op->operand[0]);
    case TN_T_map:
    case TN_T_cast:
    case TN_T_bitcast:
        for (int i = 0; i < op->noperands; i++)
            axes |= recover_varies(R, op->operand[i]);
        return axes;
    default:
        return all;
    }
}

unsigned recover_varies(recover *R, const tn_tvalue *v)
{
    uintptr_t known = (uintptr_t)tn_map_get(&R->varies, TN_KEY(v));
    if (known)
        return (unsigned)known - 1;
    R->depth++;
    unsigned axes = R->depth > MAX_DEPTH ? all_axes(&v->type) : compute_varies(R, v);
    R->depth--;
    *tn_map_at(&R->varies, TN_KEY(v)) = (void *)(uintptr_t)(axes + 1);
    return axes;
}

static tn_ttype projected_type(const tn_ttype *type, unsigned keep)
{
    tn_ttype to = {.dtype = type->dtype, .pointer = type->pointer};
    for (int i = 0; i < type->rank; i++)
        if (keep >> i & 1)
            to.extent[to.rank++] = type->extent[i];
    return to;
}

/* Number of kept axes before this one. */
static int place_in(unsigned keep, int axis) { return __builtin_popcount(keep & ((1u << axis) - 1)); }

static tn_tvalue *project_broadcast(recover *R, tn_tvalue *v, unsigned keep, tn_tbuilder *b)
{
    const tn_top *op = v->def;
    unsigned from = 0;
    int axes[TN_TILE_RANK], n = 0;
    for (int i = 0; i < op->naxes; i++)
        if (keep >> op->axis[i] & 1 && !recover_is_unit(op->operand[0]->type.extent[i])) {
            from |= 1u << i;
            axes[n++] = place_in(keep, op->axis[i]);
        }
    tn_tvalue *x = recover_project(R, op->operand[0], from);
    bool same = n == __builtin_popcount(keep);
    for (int i = 0; i < n; i++)
        same &= axes[i] == i;
    return same ? x : tn_t_broadcast(b, x, projected_type(&v->type, keep), axes);
}

static tn_tvalue *project_permute(recover *R, tn_tvalue *v, unsigned keep, tn_tbuilder *b)
{
    const tn_top *op = v->def;
    unsigned from = 0;
    int axes[TN_TILE_RANK], n = 0;
    bool same = true;
    for (int i = 0; i < v->type.rank; i++)
        from |= keep >> i & 1 ? 1u << op->axis[i] : 0;
    for (int i = 0; i < v->type.rank; i++)
        if (keep >> i & 1) {
            axes[n] = place_in(from, op->axis[i]);
            same &= axes[n] == n;
            n++;
        }
    tn_tvalue *x = recover_project(R, op->operand[0], from);
    return same ? x : tn_t_permute(b, x, axes);
}

/* The first element of each other axis: all of it are equal. */
static tn_tvalue *project_slice(tn_tvalue *v, unsigned keep, tn_tbuilder *b)
{
    tn_ttype type = projected_type(&v->type, keep);
    for (int i = 0; i < v->type.rank; i++)
        if (!(keep >> i & 1) && !recover_is_unit(v->type.extent[i]))
            v = tn_t_slice(b, v, i, 0, 1);
    return tn_ttype_same(&v->type, &type) ? v : tn_t_reshape(b, v, type);
}

static tn_tvalue *project(recover *R, tn_tvalue *v, unsigned keep, tn_tbuilder *b)
{
    tn_top *op = v->def;
    tn_tvalue *x[3];
    int map[TN_TILE_RANK];
    tn_ttype type = projected_type(&v->type, keep);
    switch (op ? op->code : TN_TOP_COUNT) {
    case TN_T_const:
        return tn_t_const(b, type, op->number);
    case TN_T_broadcast:
        return project_broadcast(R, v, keep, b);
    case TN_T_permute:
        return project_permute(R, v, keep, b);
    case TN_T_assume:
        return recover_project(R, op->operand[0], keep);
    case TN_T_map:
    case TN_T_cast:
    case TN_T_bitcast:
        for (int i = 0; i < op->noperands; i++)
            x[i] = recover_project(R, op->operand[i], keep);
        tn_top *made = tn_top_new(b, op->code, x, op->noperands, 0);
        made->fn = op->fn;
        return tn_top_results(b, made, &type, 1);
    case TN_T_reshape:
        if (recover_unit_map(&op->operand[0]->type, &v->type, map)) {
            unsigned from = 0;
            for (int i = 0; i < op->operand[0]->type.rank; i++)
                from |= map[i] >= 0 && keep >> map[i] & 1 ? 1u << i : 0;
            return recover_project(R, op->operand[0], from);
        }
        if (recover_varies(R, op->operand[0]) == 0) {
            tn_tvalue *one = recover_project(R, op->operand[0], 0);
            return keep ? tn_t_broadcast(b, one, type, NULL) : one;
        }
        return project_slice(v, keep, b);
    default:
        return project_slice(v, keep, b);
    }
}

tn_tvalue *recover_project(recover *R, tn_tvalue *v, unsigned keep)
{
    if (__builtin_popcount(keep) == v->type.rank)
        return v;
    uint64_t key = TN_KEY(v) << TN_TILE_RANK | keep; /* addresses have room above */
    tn_tvalue *known = tn_map_get(&R->projected, key);
    if (known)
        return known;
    tn_tblock block;
    tn_tbuilder b = builder(R, &block);
    R->depth++;
    tn_tvalue *made = R->depth > MAX_DEPTH ? project_slice(v, keep, &b) : project(R, v, keep, &b);
    R->depth--;
    spot at = recover_start(R);
    for (tn_top *op = block.first; op; op = op->next)
        for (int i = 0; i < op->noperands; i++)
            if (op->operand[i]->block != &block)
                at = recover_later(at, recover_spot(R, op->operand[i]));
    recover_splice(R, &block, at);
    *tn_map_at(&R->projected, key) = made;
    return made;
}
