/* Stores by pointers on CPUs, and what comes with user kernels: atomics, print, assert.
 *
 * A store whose mask says `i < limit` along an axis is cut there, as stores to views are: the comparison is known inside the nest, and a load
 * under the same mask needs none. */
#include "target/cpu/lower.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- nests over pointers ---------------------------------------------------------------------------------------------------------------- */

/* A comparison of a mask that says index < limit (or <=) along one axis of the nest. */
typedef struct cut {
    const tn_tvalue *compare, *index, *limit;
    bool equal;
    int along;
    axes of; /* the comparison's axes */
} cut;

typedef struct cuts {
    cut at[8];
    int n;
} cuts;

/* Is `part` among what v is computed from? */
static bool feeds(const tn_tvalue *part, const tn_tvalue *v, int *budget)
{
    if (part == v)
        return true;
    for (int i = 0; v->def && i < v->def->noperands && --*budget > 0; i++)
        if (feeds(part, v->def->operand[i], budget))
            return true;
    return false;
}

/* Computed without arithmetic that might wrap. */
static bool is_plain_range(const lower *L, const tn_tvalue *v)
{
    axes ignored, of = lower_own_axes();
    for (const tn_tvalue *from; v->def; v = from) {
        from = lower_keeps_wide_value(L, v->def) ? v->def->operand[0] : lower_moved_axes(v->def, &of, &ignored);
        if (!from)
            return v->def->code == TN_T_range && lower_is_small(L, v->def->operand[0]);
    }
    return false;
}

static void add_cut(const lower *L, const tn_tvalue *pointer, const tn_tvalue *v, const axes *of, cuts *found)
{
    const tn_top *op = v->def;
    bool turned = op->fn == TN_S_gt || op->fn == TN_S_ge;
    cut c = {v, op->operand[turned], op->operand[!turned], op->fn == TN_S_le || op->fn == TN_S_ge, -1, *of};
    int budget = LOWER_BUDGET;
    int64_t known;
    tn_dtype dtype = c.index->type.dtype;
    if ((dtype != TN_I32 && dtype != TN_I64) || found->n == (int)TN_COUNT(found->at))
        return;
    strides s = lower_strides_of(L, c.index, of, &budget), t = lower_strides_of(L, c.limit, of, &budget);
    for (int a = 0; a < TN_TILE_RANK; a++) {
        if (t.along[a] || (s.along[a] && (s.along[a] != 1 || c.along >= 0)))
            return;
        if (s.along[a])
            c.along = a;
    }
    bool far = lower_constant_of(c.limit, &known) && (known > INT64_MAX / 2 || known < INT64_MIN / 2);
    budget = LOWER_BUDGET;
    if (c.along >= 0 && !far && (is_plain_range(L, c.index) || feeds(c.index, pointer, &budget)))
        found->at[found->n++] = c;
}

static void find_cuts(const lower *L, const tn_tvalue *pointer, const tn_tvalue *v, const axes *of, cuts *found)
{
    const tn_top *op = v->def;
    axes inner;
    if (!op || tn_map_get(&L->places, TN_KEY(v)))
        return;
    const tn_tvalue *from = lower_moved_axes(op, of, &inner);
    if (from) {
        find_cuts(L, pointer, from, &inner, found);
    } else if (op->code == TN_T_map && op->fn == TN_S_and) {
        find_cuts(L, pointer, op->operand[0], of, found);
        find_cuts(L, pointer, op->operand[1], of, found);
    } else if (op->code == TN_T_map && (op->fn == TN_S_lt || op->fn == TN_S_le || op->fn == TN_S_gt || op->fn == TN_S_ge)) {
        add_cut(L, pointer, v, of, found);
    }
}

/* How many elements from 0 on satisfy the comparison; NULL: it may be absent. */
static tn_lvalue *cut_count(lower *L, tn_lbuilder *b, const cut *c)
{
    tn_lvalue *zeros[TN_TILE_RANK];
    for (int i = 0; i < TN_TILE_RANK; i++)
        zeros[i] = tn_l_index(b, 0);
    element first = lower_wide_element(L, b, c->index, zeros), limit = lower_element(L, b, c->limit, zeros);
    if (first.present || limit.present)
        return NULL;
    tn_lvalue *left = tn_l_fn2(b, TN_S_sub, tn_l_cast(b, limit.value, TN_I64), first.value);
    return c->equal ? tn_l_fn2(b, TN_S_add, left, tn_l_index(b, 1)) : left;
}

/* Opens loops over a tile of pointers, in row-major order but for `fast` (-1: none), which is innermost and may become vectors. */
static void open_nest(lower *L, tn_lbuilder *b, const tn_tvalue *pointer, const tn_tvalue *mask, int fast, tn_lvalue **idx)
{
    static const char *const names[TN_TILE_RANK] = {"i0", "i1", "i2", "i3", "i4", "i5"};
    int rank = pointer->type.rank;
    tn_lvalue *count[TN_TILE_RANK];
    cuts found = {.n = 0};
    axes all = lower_own_axes();
    if (mask)
        find_cuts(L, pointer, mask, &all, &found);
    for (int i = 0; i < rank; i++)
        count[i] = tn_l_index(b, pointer->type.extent[i].size);
    int kept = 0;
    for (int i = 0; i < found.n; i++) {
        cut *c = &found.at[i];
        tn_lvalue *left = cut_count(L, b, c);
        if (!left)
            continue;
        count[c->along] = tn_l_fn2(b, TN_S_min, count[c->along], left);
        found.at[kept++] = *c;
    }
    for (int i = 0; i <= rank; i++) {
        int axis = i < rank ? i : fast;
        int64_t known;
        if (axis < 0 || (i < rank && i == fast))
            continue;
        if (tn_l_is_const(count[axis], &known) && known == 1) {
            idx[axis] = tn_l_index(b, 0);
            continue;
        }
        tn_lop *loop = tn_l_for(b, names[axis], tn_l_index(b, 0), count[axis], tn_l_index(b, 1), axis == fast ? TN_FOR_VECTOR : TN_FOR_SERIAL);
        *b = tn_l_in(b, loop->region[0]);
        idx[axis] = loop->region[0]->arg;
    }
    for (int i = 0; i < kept; i++) { /* what the bounds say need not be asked again */
        const cut *c = &found.at[i];
        tn_lvalue *at[TN_TILE_RANK];
        for (int k = 0; k < c->compare->type.rank; k++)
            at[k] = c->of.axis[k] >= 0 ? idx[c->of.axis[k]] : tn_l_index(b, 0);
        lower_memo(L, c->compare, at, (element){tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1)), NULL});
    }
}

/* The axis along which elements are neighbours, else the last. Of elements that meet the last one counts, in row-major order: where some are known
 * to meet, or nothing is known, the last axis stays the innermost. */
static int fast_axis(const lower *L, const tn_tvalue *pointer)
{
    strides s = lower_own_strides(L, pointer);
    int last = pointer->type.rank - 1, found = -1;
    bool constant = true;
    for (int i = 0; i <= last; i++) {
        if (s.along[i] == LOWER_UNKNOWN)
            return last;
        constant &= s.along[i] != LOWER_UNIFORM;
        if (s.along[i] == 1 && pointer->type.extent[i].size > 1)
            found = i;
    }
    return found < 0 || (constant && !lower_is_injective(L, pointer)) ? last : found;
}

void lower_store_ptr(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    open_nest(L, &in, op->operand[0], op->noperands > 2 ? op->operand[2] : NULL, fast_axis(L, op->operand[0]), idx);
    element e = lower_copies(L, op) ? (element){NULL, NULL} : lower_element(L, &in, op->operand[1], idx);
    access a = lower_pointed(L, &in, op, idx);
    lower_write(L, &in, op, idx, lower_pointed_memory(L, op), &a, e, NULL);
    lower_close(L, s);
}

/* ---- atomics ------------------------------------------------------------------------------------------------------------------------------ */

/* One after another, in row-major order; the old values into a place: nothing may do them a second time. */
void lower_atomic(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    place *old = lower_is_used(L, op) ? lower_new_place(L, b, type, "old") : NULL;
    tn_lvalue *idx[TN_TILE_RANK], *memory = op->code == TN_T_atomic ? L->buffer[op->view->buffer] : lower_pointed_memory(L, op), *was;
    int mask = lower_mask_operand(op);
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    element x[2];
    /* Without cuts where the old values are wanted: those that are not there are 0. */
    open_nest(L, &in, op->code == TN_T_atomic ? op->result : op->operand[0], !old && op->code != TN_T_atomic && mask >= 0 ? op->operand[mask] : NULL, -1, idx);
    access a = lower_atomic_access(L, &in, op, idx, x);
    was = lower_do_atomic(&in, op, memory, a.offset, x, a.exists);
    if (old)
        tn_l_store(&in, old->buffer, lower_place_offset(&in, old, type->rank, idx), was, NULL);
    lower_close(L, s);
    if (!old)
        return;
    lower_set_place(L, op->result, old);
    if (type->rank == 0)
        lower_scalar(L, b, op->result); /* read once */
}

/* ---- print and assert ------------------------------------------------------------------------------------------------------------------------ */

void lower_print(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    if (op->noperands == 0)
        lower_print_text(L, b, op);
    for (int i = 0; i < op->noperands; i++) {
        tn_lbuilder in = *b;
        scope s = lower_open(L);
        open_nest(L, &in, op->operand[i], NULL, -1, idx);
        lower_print_element(L, &in, op, i, idx);
        lower_close(L, s);
    }
}

void lower_assert(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    open_nest(L, &in, op->operand[0], NULL, -1, idx);
    tn_l_trap(&in, lower_assertion(L, &in, op, idx), tn_max(op->loc.line, 1));
    lower_close(L, s);
}

/* ---- stores that may overlap what they store from -------------------------------------------------------------------------------------------- */

/* A kernel may be called with any parameters, but hardly ever is with ones that overlap in part. A load whose only trouble is that the one store
 * which uses it might write what later lanes still load is therefore left for the store, which asks first: if the two tiles have no byte in
 * common, or are the same elements, it loads and stores lane by lane; else it takes the loads first. Both do the same arithmetic. */

/* The access's offset is linear in the tile's indices. */
static bool is_linear(const lower *L, const tn_top *op)
{
    int budget = LOWER_BUDGET;
    if (!op->view) {
        strides s = lower_own_strides(L, op->operand[0]);
        for (int a = 0; a < TN_TILE_RANK; a++)
            if (s.along[a] == LOWER_UNKNOWN)
                return false;
        return true;
    }
    for (int d = 0; d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        axes of = {.axis = {-1, -1, -1, -1, -1, -1}};
        for (int i = 0; !s->block && i < s->naxes; i++)
            of.axis[i] = s->axis[i];
        strides t = lower_strides_of(L, s->value, &of, &budget);
        for (int a = 0; a < TN_TILE_RANK; a++)
            if (t.along[a] == LOWER_UNKNOWN)
                return false;
    }
    return op->view->panel == 0;
}

static tn_lvalue *byte_offset(lower *L, tn_lbuilder *b, const tn_top *op, tn_dtype dtype, tn_lvalue *const *idx)
{
    tn_lvalue *at = op->view ? lower_resolve(L, b, op, idx).offset : lower_element(L, b, op->operand[0], idx).value;
    return tn_l_fn2(b, TN_S_mul, at, tn_l_index(b, tn_dtype_bits(dtype) / 8));
}

/* The bytes that a linear access of a tile lies in, from the first to behind the last, and how far it goes along each axis. */
typedef struct span {
    tn_lvalue *first, *low, *high, *along[TN_TILE_RANK];
} span;

static span span_of(lower *L, tn_lbuilder *b, const tn_top *op, const tn_ttype *type)
{
    int root = lower_accessed(L, op);
    tn_lvalue *idx[TN_TILE_RANK], *zero = tn_l_index(b, 0);
    span s;
    for (int i = 0; i < type->rank; i++)
        idx[i] = zero;
    tn_lvalue *start = byte_offset(L, b, op, type->dtype, idx);
    s.first = root >= 0 ? tn_l_fn2(b, TN_S_add, lower_address_of(L, root), start) : start;
    s.low = s.first;
    s.high = tn_l_fn2(b, TN_S_add, s.first, tn_l_index(b, tn_dtype_bits(type->dtype) / 8));
    for (int i = 0; i < type->rank; i++) {
        idx[i] = tn_l_index(b, type->extent[i].size - 1);
        s.along[i] = tn_l_fn2(b, TN_S_sub, byte_offset(L, b, op, type->dtype, idx), start);
        s.low = tn_l_fn2(b, TN_S_add, s.low, tn_l_fn2(b, TN_S_min, s.along[i], zero));
        s.high = tn_l_fn2(b, TN_S_add, s.high, tn_l_fn2(b, TN_S_max, s.along[i], zero));
        idx[i] = zero;
    }
    return s;
}

/* Disjoint, or element for element the same, which only a tile of one axis can surely tell from one that meets itself. */
static tn_lvalue *is_apart(tn_lbuilder *b, const span *load, const span *store, const tn_ttype *type, bool same_size)
{
    tn_lvalue *apart = tn_l_fn2(b, TN_S_or, tn_l_fn2(b, TN_S_le, load->high, store->low), tn_l_fn2(b, TN_S_le, store->high, load->low));
    int axis = -1, n = 0;
    for (int i = 0; i < type->rank; i++)
        if (type->extent[i].size > 1)
            axis = i, n++;
    if (n != 1 || !same_size)
        return apart;
    tn_lvalue *same = tn_l_fn2(b, TN_S_eq, load->first, store->first);
    same = tn_l_fn2(b, TN_S_and, same, tn_l_fn2(b, TN_S_eq, load->along[axis], store->along[axis]));
    same = tn_l_fn2(b, TN_S_and, same, tn_l_fn2(b, TN_S_ne, store->along[axis], tn_l_index(b, 0)));
    return tn_l_fn2(b, TN_S_or, apart, same);
}

static const tn_tvalue *stored_value(const tn_top *store) { return store->operand[store->code == TN_T_store_ptr]; }

bool lower_leave_to_store(lower *L, const tn_top *load, const tn_top *store)
{
    const tn_ttype *from = &load->result->type, *to = &stored_value(store)->type;
    if (lower_accessed(L, load) == lower_accessed(L, store) || from->rank != to->rank || !is_linear(L, load) || !is_linear(L, store) ||
        tn_dtype_bits(from->dtype) < 8 || tn_dtype_bits(to->dtype) < 8)
        return false;
    for (int i = 0; i < from->rank; i++)
        if (from->extent[i].size != to->extent[i].size)
            return false;
    void **cell = tn_map_at(&CPU(L)->guarded, TN_KEY(store));
    if (!*cell)
        *cell = TN_NEW(&L->arena, guarded_loads);
    TN_PUSH(&L->arena, (guarded_loads *)*cell, load);
    return true;
}

/* As wide as the values where they are vectors, so that one mask serves both. */
static place *new_marks(lower *L, tn_lbuilder *b, const tn_ttype *type)
{
    static const tn_dtype types[] = {TN_U64, TN_U32, TN_U16};
    tn_ttype marks = *type;
    marks.dtype = TN_U8;
    marks.pointer = false;
    for (size_t i = 0; i < TN_COUNT(types) && !tn_is_complex(type->dtype); i++)
        if (tn_dtype_bits(types[i]) == (type->pointer ? 64 : tn_dtype_bits(type->dtype)))
            marks.dtype = types[i];
    return lower_new_place(L, b, &marks, "stored");
}

bool lower_guarded_store(lower *L, tn_lbuilder *b, const tn_top *store, void (*now)(lower *L, tn_lbuilder *b, const tn_top *store))
{
    const guarded_loads *loads = tn_map_get(&CPU(L)->guarded, TN_KEY(store));
    const tn_ttype *type = &stored_value(store)->type;
    if (!loads)
        return false;
    scope s = lower_open(L);
    span to = span_of(L, b, store, type);
    tn_lvalue *apart = NULL;
    for (size_t i = 0; i < loads->len; i++) {
        const tn_ttype *loaded = &loads->at[i]->result->type;
        span from = span_of(L, b, loads->at[i], loaded);
        apart = lower_and(b, apart, is_apart(b, &from, &to, type, tn_dtype_bits(loaded->dtype) == tn_dtype_bits(type->dtype)));
    }
    lower_close(L, s);
    CPU(L)->aside = (aside){.store = store, .apart = apart, .value = lower_new_place(L, b, type, "aside"), .stored = new_marks(L, b, type)};
    s = lower_open(L);
    now(L, b, store);
    lower_close(L, s);
    CPU(L)->aside.copying = true;
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, apart)->region[1]);
    s = lower_open(L);
    now(L, &in, store);
    lower_close(L, s);
    CPU(L)->aside.store = NULL;
    return true;
}
