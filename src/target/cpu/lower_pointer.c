/* Pointers on CPUs, and what comes with user kernels: numbers as parameters, atomics, print, assert.
 *
 * A pointer is a number of elements. Where every way to a value starts at one buffer (its root) it counts from that buffer's start, and an
 * access is one of the buffer: `x + (pid * 128 + arange)` is a load of %x at an offset that the vectoriser sees through. Where it is not known,
 * or not one buffer, it counts from address 0, and the access is one of the Loop IR's `memory`; addresses are taken to be aligned to the element.
 *
 * Offsets are computed in 64 bits: additions and products of signed 32-bit integers that feed a pointer are taken not to wrap (docs/tile-ir.md), so that
 * the offset of lane i + 1 is that of lane i and one more.
 *
 * A store whose mask says `i < limit` along an axis is cut there, as stores to views are: the comparison is known inside the nest, and a load
 * under the same mask needs none. */
#include "target/cpu/lower.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a pointer counts from ---------------------------------------------------------------------------------------------- */

/* L->roots holds root + 2; nothing is known: 0. Values only fall: unknown, a buffer, memory. */
static bool root_falls(lower *L, const tn_tvalue *v, intptr_t root)
{
    void **cell = tn_map_at(&L->roots, TN_KEY(v));
    intptr_t old = (intptr_t)*cell, now = !old || old == root + 2 ? root + 2 : LOWER_MEMORY + 2;
    *cell = (void *)now;
    return now != old;
}

static bool root_from(lower *L, const tn_tvalue *v, const tn_tvalue *from)
{
    intptr_t known = (intptr_t)tn_map_get(&L->roots, TN_KEY(from));
    return v->type.pointer && known && root_falls(L, v, known - 2);
}

static bool roots_of_block(lower *L, const tn_tblock *block);

static bool roots_of_loop(lower *L, const tn_top *op)
{
    int first = op->code == TN_T_for ? 3 : 0, body = op->code == TN_T_for ? 0 : 1, skip = op->code == TN_T_for;
    const tn_tblock *block = op->region[body];
    bool changed = false;
    for (int i = 0; i < op->nresults; i++) {
        const tn_tvalue *sources[2] = {op->operand[first + i], block->last->operand[i]};
        for (int k = 0; k < 2; k++) {
            changed |= root_from(L, &block->arg[skip + i], sources[k]) | root_from(L, &op->result[i], sources[k]);
            if (body)
                changed |= root_from(L, &op->region[0]->arg[i], sources[k]);
        }
    }
    return changed;
}

static bool roots_of_op(lower *L, const tn_top *op)
{
    bool changed = false;
    for (int r = 0; r < op->nregions; r++)
        changed |= roots_of_block(L, op->region[r]);
    switch (op->code) {
    case TN_T_for:
    case TN_T_while:
        return roots_of_loop(L, op) | changed;
    case TN_T_if:
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < op->nresults; i++)
                changed |= root_from(L, &op->result[i], op->region[r]->last->operand[i]);
        return changed;
    case TN_T_addptr:
    case TN_T_assume:
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_reshape:
    case TN_T_slice:
    case TN_T_split:
    case TN_T_gather:
        for (int i = 0; i < op->nresults; i++)
            changed |= root_from(L, &op->result[i], op->operand[0]);
        return changed;
    case TN_T_join:
    case TN_T_cat:
        return root_from(L, op->result, op->operand[0]) | root_from(L, op->result, op->operand[1]) | changed;
    case TN_T_map:
        return op->fn == TN_S_select && (root_from(L, op->result, op->operand[1]) | root_from(L, op->result, op->operand[2]));
    case TN_T_bitcast:
        if (op->operand[0]->type.pointer && op->operand[0]->type.dtype == op->result->type.dtype)
            return root_from(L, op->result, op->operand[0]);
        break;
    default:
        break;
    }
    for (int i = 0; i < op->nresults; i++)
        changed |= op->result[i].type.pointer && root_falls(L, &op->result[i], LOWER_MEMORY);
    return changed;
}

static bool roots_of_block(lower *L, const tn_tblock *block)
{
    bool changed = false;
    for (const tn_top *op = block->first; op; op = op->next)
        changed |= roots_of_op(L, op);
    return changed;
}

static int buffer_named(const lower *L, const char *name)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < k->buffers.len; i++)
        if (k->buffers.at[i].mode != TN_LOCAL && strcmp(k->buffers.at[i].name, name) == 0)
            return (int)i;
    return LOWER_NOTHING;
}

void lower_find_roots(lower *L)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < k->scalars.len; i++) {
        const tn_tvalue *v = k->scalars.at[i];
        int buffer = v->type.pointer ? buffer_named(L, v->name) : LOWER_NOTHING;
        if (v->type.pointer)
            root_falls(L, v, buffer >= 0 && k->buffers.at[buffer].dtype == v->type.dtype ? buffer : LOWER_MEMORY);
    }
    while (roots_of_block(L, k->body))
        ;
}

int lower_root(const lower *L, const tn_tvalue *v)
{
    intptr_t known = (intptr_t)tn_map_get(&L->roots, TN_KEY(v));
    const place *p = known ? NULL : tn_map_get(&L->places, TN_KEY(v));
    return known ? (int)known - 2 : p ? p->root : LOWER_MEMORY;
}

static int log2_bytes(tn_dtype dtype)
{
    int bits = tn_dtype_bits(dtype), log = 0;
    for (; 8 << log < bits; log++)
        ;
    return log;
}

static tn_lvalue *address_of(lower *L, int buffer)
{
    void **cell = tn_map_at(&L->memory, TN_KEY(L->buffer[buffer]));
    if (!*cell)
        *cell = tn_l_address(&L->entry, L->buffer[buffer]);
    return *cell;
}

/* The number of the buffer's first element, were memory an array of them. */
static tn_lvalue *start_of(lower *L, int root, tn_dtype dtype)
{
    return tn_l_fn2(&L->entry, TN_S_shr_arith, address_of(L, root), tn_l_index(&L->entry, log2_bytes(dtype)));
}

tn_lvalue *lower_rebase(lower *L, tn_lbuilder *b, tn_lvalue *at, int from, int to, tn_dtype dtype)
{
    if (from == to)
        return at;
    if (from >= 0)
        at = tn_l_fn2(b, TN_S_add, start_of(L, from, dtype), at);
    return to >= 0 ? tn_l_fn2(b, TN_S_sub, at, start_of(L, to, dtype)) : at;
}

static tn_lvalue *memory_of(lower *L, int root, tn_dtype dtype)
{
    if (root >= 0)
        return L->buffer[root];
    void **cell = tn_map_at(&L->memory, (uint64_t)dtype + 1);
    if (!*cell)
        *cell = tn_l_memory(&L->entry, dtype);
    return *cell;
}

/* ---- scalar parameters -------------------------------------------------------------------------------------------------------- */

static tn_lvalue *number_of(tn_lbuilder *b, tn_lvalue *bits, tn_dtype dtype)
{
    static const tn_dtype integer[] = {TN_U8, TN_U16, TN_U32, TN_I64};
    if (!tn_is_float(dtype))
        return tn_l_cast(b, bits, dtype);
    return tn_l_bitcast(b, tn_l_cast(b, bits, integer[log2_bytes(dtype)]), tn_lscalar(dtype));
}

static tn_lvalue *index_named(const lower *L, const char *name)
{
    for (size_t i = (size_t)L->func->nbuffers; i < L->func->params.len; i++)
        if (strcmp(L->func->params.at[i]->name, name) == 0)
            return L->func->params.at[i];
    assert(!"the parameter was not collected");
    return NULL;
}

void lower_scalar_parameters(lower *L)
{
    const tn_kernel *k = L->kernel;
    tn_lbuilder *b = &L->entry;
    for (size_t i = 0; i < k->scalars.len; i++) {
        const tn_tvalue *v = k->scalars.at[i];
        tn_lvalue *value;
        if (!v->type.pointer)
            value = number_of(b, index_named(L, v->name), v->type.dtype);
        else if (lower_root(L, v) >= 0)
            value = tn_l_index(b, 0);
        else if (buffer_named(L, v->name) >= 0)
            value = start_of(L, buffer_named(L, v->name), v->type.dtype);
        else {
            L->status = tn_error(L->session, TN_INVALID, TN_NO_LOC, "kernel %s: no buffer has the name of the pointer %%%s", k->name, v->name);
            return;
        }
        *tn_map_at(&L->scalars, TN_KEY(v)) = value;
    }
}

/* ---- offsets in 64 bits ---------------------------------------------------------------------------------------------------------- */

/* A value of 64 bits that fits 32, as far as index arithmetic may assume: a coordinate, the index of a loop, a range from one. */
static bool is_small(const lower *L, const tn_tvalue *v)
{
    if (v->def)
        return v->def->code == TN_T_range                              ? is_small(L, v->def->operand[0])
               : v->def->code == TN_T_const && v->type.dtype == TN_I64 ? v->def->number.i >= INT32_MIN && v->def->number.i <= INT32_MAX
                                                                       : false;
    for (size_t i = 0; i < L->kernel->grid.len; i++)
        if (L->kernel->grid.at[i].value == v)
            return true;
    const tn_top *parent = v->block ? v->block->parent : NULL;
    return parent && v->block == parent->region[0] && (parent->code == TN_T_fold || (parent->code == TN_T_for && v == v->block->arg));
}

/* The value of this cast in 64 bits is that of its operand. */
static bool keeps_wide_value(const lower *L, const tn_top *op)
{
    if (op->code != TN_T_cast)
        return false;
    tn_dtype from = op->operand[0]->type.dtype, to = op->result->type.dtype;
    return (from == TN_I32 && (to == TN_I64 || to == TN_I32)) || (from == TN_I64 && to == TN_I64) ||
           (from == TN_I64 && to == TN_I32 && is_small(L, op->operand[0]));
}

static bool is_sum_or_product(const tn_top *op)
{
    bool wide = op->result->type.dtype == TN_I32 || op->result->type.dtype == TN_I64;
    return op->code == TN_T_map && wide && (op->fn == TN_S_add || op->fn == TN_S_sub || op->fn == TN_S_mul || op->fn == TN_S_neg);
}

static element wide_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);

static element compute_wide(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    bool held = !op || tn_map_get(&L->scalars, TN_KEY(v)) || tn_map_get(&L->places, TN_KEY(v));
    tn_lvalue *at[TN_TILE_RANK];
    if (!held && is_sum_or_product(op)) {
        element x = wide_element(L, b, op->operand[0], idx);
        if (op->noperands == 1)
            return (element){tn_l_fn1(b, op->fn, x.value), x.present};
        element y = wide_element(L, b, op->operand[1], idx);
        return (element){tn_l_fn2(b, op->fn, x.value, y.value), lower_and(b, x.present, y.present)};
    }
    if (!held && keeps_wide_value(L, op))
        return wide_element(L, b, op->operand[0], idx);
    const tn_tvalue *from = held ? NULL : lower_moved(L, b, v, idx, at);
    if (from)
        return wide_element(L, b, from, at);
    element e = lower_element(L, b, v, idx);
    return (element){tn_l_cast(b, e.value, TN_I64), e.present};
}

/* An integer's element in 64 bits, by the rule of this file's head. */
static element wide_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    void **key = tn_map_at(&L->wide, TN_KEY(v));
    if (!*key) {
        tn_tvalue *made = TN_NEW(&L->arena, tn_tvalue);
        made->type = v->type;
        *key = made;
    }
    const tn_tvalue *mine = *key;
    element e;
    if (!lower_recall(L, mine, idx, &e)) {
        e = compute_wide(L, b, v, idx);
        lower_memo(L, mine, idx, e);
    }
    return e;
}

/* ---- elements ---------------------------------------------------------------------------------------------------------------------- */

static element pointer_from(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, int root)
{
    element e = lower_element(L, b, v, idx);
    e.value = lower_rebase(L, b, e.value, lower_root(L, v), root, v->type.dtype);
    return e;
}

/* Between pointers and 64-bit types, and from one element type to another: by the address in bytes. */
static element cast_pointer(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_tvalue *x = v->def->operand[0];
    element e;
    if (x->type.pointer) {
        e = pointer_from(L, b, x, idx, v->type.pointer && v->type.dtype == x->type.dtype ? lower_root(L, v) : LOWER_MEMORY);
        if (v->type.pointer && log2_bytes(v->type.dtype) == log2_bytes(x->type.dtype))
            return e;
        e.value = tn_l_fn2(b, TN_S_shl, e.value, tn_l_index(b, log2_bytes(x->type.dtype)));
    } else {
        e = lower_element(L, b, x, idx);
        e.value = tn_l_bitcast(b, e.value, tn_lscalar(TN_I64));
    }
    e.value = v->type.pointer ? tn_l_fn2(b, TN_S_shr_arith, e.value, tn_l_index(b, log2_bytes(v->type.dtype)))
                              : tn_l_bitcast(b, e.value, tn_lscalar(v->type.dtype));
    return e;
}

element lower_pointer_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    if (op->code == TN_T_bitcast)
        return cast_pointer(L, b, v, idx);
    element p = pointer_from(L, b, op->operand[0], idx, lower_root(L, v)), by = wide_element(L, b, op->operand[1], idx);
    return (element){tn_l_fn2(b, TN_S_add, p.value, by.value), lower_and(b, p.present, by.present)};
}

/* x, or NULL where it is the constant true. */
static tn_lvalue *unless_true(tn_lvalue *x)
{
    int64_t known;
    return x && tn_l_is_const(x, &known) && known ? NULL : x;
}

static int mask_operand(const tn_top *op)
{
    int i = op->code == TN_T_load_ptr ? 1 : op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr ? 2 : op->noperands;
    return i < op->noperands ? i : -1;
}

static access pointed(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element p = lower_element(L, b, op->operand[0], idx);
    access a = {p.value, p.present};
    int i = mask_operand(op);
    if (i >= 0) {
        element mask = lower_element(L, b, op->operand[i], idx);
        a.exists = lower_and(b, a.exists, lower_and(b, mask.present, unless_true(mask.value)));
    }
    return a;
}

static tn_lvalue *pointed_memory(lower *L, const tn_top *op)
{
    const tn_tvalue *p = op->operand[0];
    return memory_of(L, lower_root(L, p), p->type.dtype);
}

/* Under `other`: where the mask is off its own state counts. */
static tn_lvalue *load_ptr_present(tn_lbuilder *b, const access *a, const element *other)
{
    if (!other || !a->exists)
        return a->exists;
    tn_lvalue *yes = tn_l_const(b, tn_lscalar(TN_BOOL), tn_number_from_int(TN_BOOL, 1));
    return other->present ? tn_l_fn3(b, TN_S_select, a->exists, yes, other->present) : NULL;
}

element lower_load_ptr_element(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    access a = pointed(L, b, op, idx);
    element other;
    bool has_other = op->noperands > 2 && a.exists;
    if (has_other)
        other = lower_element(L, b, op->operand[2], idx);
    lower_prefetch_ahead(L, b, op, pointed_memory(L, op), a.offset);
    tn_lvalue *v = tn_l_load(b, pointed_memory(L, op), a.offset, 1, a.exists, has_other ? other.value : NULL);
    return (element){v, load_ptr_present(b, &a, has_other ? &other : NULL)};
}

/* Of an atomic: where it is done. */
static access atomic_access(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, element *x)
{
    bool view = op->code == TN_T_atomic;
    access a = view ? lower_resolve(L, b, op, idx) : pointed(L, b, op, idx);
    int n = op->code == TN_T_cas_ptr ? 2 : 1;
    for (int i = 0; i < n; i++) {
        x[i] = lower_element(L, b, op->operand[!view + i], idx);
        a.exists = lower_and(b, a.exists, x[i].present);
    }
    return a;
}

tn_lvalue *lower_place_present(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element x[2];
    if (op->code == TN_T_load)
        return op->view->padded ? NULL : lower_resolve(L, b, op, idx).exists;
    if (op->code == TN_T_atomic || op->code == TN_T_atomic_ptr || op->code == TN_T_cas_ptr)
        return atomic_access(L, b, op, idx, x).exists;
    if (op->code != TN_T_load_ptr)
        return NULL;
    access a = pointed(L, b, op, idx);
    bool has_other = op->noperands > 2 && a.exists;
    if (has_other)
        x[0] = lower_element(L, b, op->operand[2], idx);
    return load_ptr_present(b, &a, has_other ? x : NULL);
}

/* ---- strides ------------------------------------------------------------------------------------------------------------------------ */

enum { BUDGET = 512 }; /* values that a search looks at */
#define UNKNOWN INT64_MIN       /* not the same for each step */
#define UNIFORM (INT64_MIN + 1) /* the same for each step, but no constant */

/* How the elements of a value lie along the axes of a nest: axis[k] is the nest's axis that its axis k is, -1: none. */
typedef struct axes {
    int axis[TN_TILE_RANK];
} axes;

typedef struct strides {
    int64_t along[TN_TILE_RANK]; /* by the nest's axis: what one step adds; UNKNOWN, UNIFORM */
} strides;

/* The operand that is moved, and its axes; NULL: another operation. */
static const tn_tvalue *moved_axes(const tn_top *op, const axes *of, axes *out)
{
    const tn_ttype *from = op->noperands ? &op->operand[0]->type : NULL, *to = &op->result->type;
    for (int i = 0; i < TN_TILE_RANK; i++)
        out->axis[i] = -1;
    switch (op->code) {
    case TN_T_assume:
        *out = *of;
        return op->operand[0];
    case TN_T_broadcast:
        for (int i = 0; i < from->rank; i++)
            out->axis[i] = from->extent[i].size == 1 ? -1 : of->axis[op->axis[i]];
        return op->operand[0];
    case TN_T_permute:
        for (int i = 0; i < to->rank; i++)
            out->axis[op->axis[i]] = of->axis[i];
        return op->operand[0];
    case TN_T_reshape: {
        int i = 0, j = 0;
        while (i < from->rank || j < to->rank) {
            if (j < to->rank && to->extent[j].size == 1)
                j++;
            else if (i < from->rank && from->extent[i].size == 1)
                i++;
            else if (i < from->rank && j < to->rank && from->extent[i].size == to->extent[j].size)
                out->axis[i++] = of->axis[j++];
            else
                return NULL;
        }
        return op->operand[0];
    }
    default:
        return NULL;
    }
}

static bool constant_of(const tn_tvalue *v, int64_t *value)
{
    while (v->def && (v->def->code == TN_T_broadcast || v->def->code == TN_T_reshape || v->def->code == TN_T_assume))
        v = v->def->operand[0];
    if (!v->def || v->def->code != TN_T_const || !tn_is_integer(v->type.dtype))
        return false;
    *value = v->def->number.i;
    return true;
}

static strides strides_of(const lower *L, const tn_tvalue *v, const axes *of, int *budget);

static bool is_zero(const strides *s)
{
    for (int a = 0; a < TN_TILE_RANK; a++)
        if (s->along[a])
            return false;
    return true;
}

static strides strides_of_sum(const lower *L, const tn_top *op, const axes *of, int *budget)
{
    strides x = strides_of(L, op->operand[0], of, budget), y = {{0}}, r;
    bool product = op->code == TN_T_map && op->fn == TN_S_mul, minus = op->code == TN_T_map && op->fn == TN_S_sub;
    int64_t factor = 0;
    if (op->noperands > 1)
        y = strides_of(L, op->operand[1], of, budget);
    else
        y = x, x = (strides){{0}}, minus = true;
    bool scaled = product && constant_of(op->operand[1], &factor);
    if (product && !scaled && constant_of(op->operand[0], &factor))
        scaled = true, x = y;
    bool linear = !product || scaled || is_zero(&x) || is_zero(&y);
    for (int a = 0; a < TN_TILE_RANK; a++) {
        int64_t p = x.along[a], q = scaled ? 0 : y.along[a];
        bool moves = p || q, constant = p != UNIFORM && q != UNIFORM && (!product || scaled);
        r.along[a] = 0;
        if (moves && (p == UNKNOWN || q == UNKNOWN || !linear))
            r.along[a] = UNKNOWN;
        else if (moves && !constant)
            r.along[a] = UNIFORM;
        else if (moves && !(scaled ? tn_mul(p, factor, &r.along[a]) : minus ? tn_sub(p, q, &r.along[a]) : tn_add(p, q, &r.along[a])))
            r.along[a] = UNKNOWN;
    }
    return r;
}

static strides strides_of(const lower *L, const tn_tvalue *v, const axes *of, int *budget)
{
    const tn_top *op = v->def;
    strides s = {{0}};
    axes inner;
    if (v->type.rank == 0)
        return s;
    if (op && --*budget > 0 && !tn_map_get(&L->places, TN_KEY(v))) {
        const tn_tvalue *from = moved_axes(op, of, &inner);
        if (from)
            return strides_of(L, from, &inner, budget);
        if (op->code == TN_T_const)
            return s;
        if (op->code == TN_T_addptr || is_sum_or_product(op))
            return strides_of_sum(L, op, of, budget);
        if (keeps_wide_value(L, op))
            return strides_of(L, op->operand[0], of, budget);
        if (op->code == TN_T_range) {
            if (of->axis[0] >= 0)
                s.along[of->axis[0]] = 1;
            return s;
        }
    }
    for (int k = 0; k < v->type.rank; k++)
        if (of->axis[k] >= 0 && v->type.extent[k].size > 1)
            s.along[of->axis[k]] = UNKNOWN;
    return s;
}

static axes own_axes(void)
{
    axes a;
    for (int i = 0; i < TN_TILE_RANK; i++)
        a.axis[i] = i;
    return a;
}

static strides own_strides(const lower *L, const tn_tvalue *v)
{
    axes a = own_axes();
    int budget = BUDGET;
    return strides_of(L, v, &a, &budget);
}

/* No two elements of the pointer tile are the same: with strides in order, each one is more than what those before it reach. */
static bool is_injective(const lower *L, const tn_tvalue *p)
{
    strides s = own_strides(L, p);
    bool done[TN_TILE_RANK] = {false};
    int64_t reach = 0;
    for (int i = 0; i < p->type.rank; i++) {
        if (s.along[i] == UNKNOWN || s.along[i] == UNIFORM)
            return false;
        done[i] = p->type.extent[i].size == 1;
    }
    for (;;) {
        int least = -1;
        for (int i = 0; i < p->type.rank; i++)
            if (!done[i] && (least < 0 || llabs(s.along[i]) < llabs(s.along[least])))
                least = i;
        if (least < 0)
            return true;
        done[least] = true;
        int64_t by = llabs(s.along[least]), more;
        if (by <= reach || !tn_mul(by, p->type.extent[least].size - 1, &more) || !tn_add(reach, more, &reach))
            return false;
    }
}

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
    axes ignored, of = own_axes();
    for (const tn_tvalue *from; v->def; v = from) {
        from = keeps_wide_value(L, v->def) ? v->def->operand[0] : moved_axes(v->def, &of, &ignored);
        if (!from)
            return v->def->code == TN_T_range && is_small(L, v->def->operand[0]);
    }
    return false;
}

static void add_cut(const lower *L, const tn_tvalue *pointer, const tn_tvalue *v, const axes *of, cuts *found)
{
    const tn_top *op = v->def;
    bool turned = op->fn == TN_S_gt || op->fn == TN_S_ge;
    cut c = {v, op->operand[turned], op->operand[!turned], op->fn == TN_S_le || op->fn == TN_S_ge, -1, *of};
    int budget = BUDGET;
    int64_t known;
    tn_dtype dtype = c.index->type.dtype;
    if ((dtype != TN_I32 && dtype != TN_I64) || found->n == (int)TN_COUNT(found->at))
        return;
    strides s = strides_of(L, c.index, of, &budget), t = strides_of(L, c.limit, of, &budget);
    for (int a = 0; a < TN_TILE_RANK; a++) {
        if (t.along[a] || (s.along[a] && (s.along[a] != 1 || c.along >= 0)))
            return;
        if (s.along[a])
            c.along = a;
    }
    bool far = constant_of(c.limit, &known) && (known > INT64_MAX / 2 || known < INT64_MIN / 2);
    budget = BUDGET;
    if (c.along >= 0 && !far && (is_plain_range(L, c.index) || feeds(c.index, pointer, &budget)))
        found->at[found->n++] = c;
}

static void find_cuts(const lower *L, const tn_tvalue *pointer, const tn_tvalue *v, const axes *of, cuts *found)
{
    const tn_top *op = v->def;
    axes inner;
    if (!op || tn_map_get(&L->places, TN_KEY(v)))
        return;
    const tn_tvalue *from = moved_axes(op, of, &inner);
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
    element first = wide_element(L, b, c->index, zeros), limit = lower_element(L, b, c->limit, zeros);
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
    axes all = own_axes();
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
    strides s = own_strides(L, pointer);
    int last = pointer->type.rank - 1, found = -1;
    bool constant = true;
    for (int i = 0; i <= last; i++) {
        if (s.along[i] == UNKNOWN)
            return last;
        constant &= s.along[i] != UNIFORM;
        if (s.along[i] == 1 && pointer->type.extent[i].size > 1)
            found = i;
    }
    return found < 0 || (constant && !is_injective(L, pointer)) ? last : found;
}

void lower_store_ptr(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    open_nest(L, &in, op->operand[0], op->noperands > 2 ? op->operand[2] : NULL, fast_axis(L, op->operand[0]), idx);
    element e = lower_copies(L, op) ? (element){NULL, NULL} : lower_element(L, &in, op->operand[1], idx);
    access a = pointed(L, &in, op, idx);
    lower_write(L, &in, op, idx, pointed_memory(L, op), &a, e, NULL);
    lower_close(L, s);
}

/* ---- atomics ------------------------------------------------------------------------------------------------------------------------------ */

static bool is_used(lower *L, const tn_top *op)
{
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(op->result)) = (void *)op;
    for (const tn_top *next = op->next; next; next = next->next)
        if (lower_depends_on(next, &marked))
            return true;
    return false;
}

/* One after another, in row-major order; the old values into a place: nothing may do them a second time. */
void lower_atomic(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    place *old = is_used(L, op) ? lower_new_place(L, b, type, "old") : NULL;
    tn_lvalue *idx[TN_TILE_RANK], *memory = op->code == TN_T_atomic ? L->buffer[op->view->buffer] : pointed_memory(L, op), *was;
    int mask = mask_operand(op);
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    element x[2];
    /* Without cuts where the old values are wanted: those that are not there are 0. */
    open_nest(L, &in, op->code == TN_T_atomic ? op->result : op->operand[0], !old && op->code != TN_T_atomic && mask >= 0 ? op->operand[mask] : NULL, -1, idx);
    access a = atomic_access(L, &in, op, idx, x);
    if (op->code == TN_T_cas_ptr)
        was = tn_l_cas(&in, memory, a.offset, x[0].value, x[1].value, a.exists);
    else
        was = tn_l_atomic(&in, op->fn, memory, a.offset, x[0].value, a.exists);
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

/* The grid's sizes are counted z, y, x in a kernel, and printed x, y, z. */
static void program_numbers(lower *L, tn_lbuilder *b, tn_lvalue **out)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < 3; i++) {
        const tn_trange *g = i < k->grid.len ? &k->grid.at[k->grid.len - 1 - i] : NULL;
        out[i] = g ? tn_l_fn2(b, TN_S_div, lower_scalar(L, b, g->value), tn_l_index(b, g->step.size)) : tn_l_index(b, 0);
    }
}

/* The lines are those of the checked mode (tile/check.c). In a text for tn_l_print braces are doubled; what names a value may have come with its
 * colon and spaces. */
static void add_print_text(tn_text *out, const char *text, bool names_value)
{
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n && (text[n - 1] == ' ' || (text[n - 1] == ':' && names_value)))
        n--;
    tn_text_add(out, " ");
    for (size_t i = 0; i < n; i++)
        tn_text_add(out, text[i] == '{' ? "{{" : "%c", text[i]);
    tn_text_add(out, n && names_value ? ": " : "");
}

static void print_element(lower *L, tn_lbuilder *b, const tn_top *op, int operand, tn_lvalue *const *idx)
{
    const tn_tvalue *v = op->operand[operand];
    tn_text line = {.arena = &L->arena};
    tn_lvalue *values[3 + TN_TILE_RANK + 1];
    int n = 3;
    tn_text_add(&line, "pid ({}, {}, {}) idx (");
    program_numbers(L, b, values);
    for (int i = 0; i < v->type.rank; i++, n++) {
        tn_text_add(&line, i ? ", {}" : "{}");
        values[n] = idx[i];
    }
    tn_text_add(&line, ")");
    add_print_text(&line, op->text ? op->text : "", true);
    if (op->noperands > 1)
        tn_text_add(&line, "(operand %d) ", operand);
    element e = v->type.pointer ? pointer_from(L, b, v, idx, LOWER_MEMORY) : lower_element(L, b, v, idx);
    if (v->type.pointer)
        e.value = tn_l_fn2(b, TN_S_shl, e.value, tn_l_index(b, log2_bytes(v->type.dtype)));
    bool hex = v->type.pointer || op->hex;
    tn_lbuilder then = *b, otherwise;
    if (e.present) {
        tn_lop *branch = tn_l_if(b, e.present);
        then = tn_l_in(b, branch->region[0]);
        otherwise = tn_l_in(b, branch->region[1]);
        tn_l_print(&otherwise, tn_format(&L->arena, "%smasked", line.at), values, n);
    }
    values[n++] = e.value;
    tn_l_print(&then, tn_format(&L->arena, hex ? "%s{x}" : "%s{}", line.at), values, n);
}

void lower_print(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    if (op->noperands == 0) {
        tn_text line = {.arena = &L->arena};
        program_numbers(L, b, idx);
        tn_text_add(&line, "pid ({}, {}, {})");
        add_print_text(&line, op->text ? op->text : "", false);
        tn_l_print(b, line.at, idx, 3);
    }
    for (int i = 0; i < op->noperands; i++) {
        tn_lbuilder in = *b;
        scope s = lower_open(L);
        open_nest(L, &in, op->operand[i], NULL, -1, idx);
        print_element(L, &in, op, i, idx);
        lower_close(L, s);
    }
}

/* Absent elements claim nothing. */
void lower_assert(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    open_nest(L, &in, op->operand[0], NULL, -1, idx);
    element e = lower_element(L, &in, op->operand[0], idx);
    tn_lvalue *holds = e.present ? tn_l_fn2(&in, TN_S_or, e.value, tn_l_fn1(&in, TN_S_not, e.present)) : e.value;
    tn_l_trap(&in, holds, tn_max(op->loc.line, 1));
    lower_close(L, s);
}

/* ---- who disturbs whom ------------------------------------------------------------------------------------------------------------------------- */

static bool writes_memory(const tn_top *op)
{
    return op->code == TN_T_store || op->code == TN_T_atomic || op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_cas_ptr;
}

int lower_accessed(const lower *L, const tn_top *op)
{
    if (op->view)
        return op->view->buffer;
    return op->code == TN_T_load_ptr || writes_memory(op) ? lower_root(L, op->operand[0]) : LOWER_NOTHING;
}

static bool is_local(const lower *L, int buffer) { return buffer >= 0 && L->kernel->buffers.at[buffer].mode == TN_LOCAL; }

bool lower_may_alias(const lower *L, int a, int b)
{
    if (a == b)
        return true;
    return !is_local(L, a) && !is_local(L, b) && (a == LOWER_MEMORY || b == LOWER_MEMORY || L->kernel->overlap);
}

bool lower_writes(const lower *L, const tn_top *op, int buffer)
{
    if (writes_memory(op) && lower_may_alias(L, lower_accessed(L, op), buffer))
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_writes(L, in, buffer))
                return true;
    return false;
}

bool lower_synchronises(const tn_top *op)
{
    if (op->code == TN_T_atomic || op->code == TN_T_atomic_ptr || op->code == TN_T_cas_ptr || op->code == TN_T_fence)
        return true;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_top *in = op->region[r]->first; in; in = in->next)
            if (lower_synchronises(in))
                return true;
    return false;
}

bool lower_writes_unknown(const lower *L, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (writes_memory(op) && lower_accessed(L, op) == LOWER_MEMORY)
            return true;
        for (int r = 0; r < op->nregions; r++)
            if (lower_writes_unknown(L, op->region[r]))
                return true;
    }
    return false;
}

/* Every axis of the tile walks a dimension of the view that moves in memory. */
static bool walks_all_axes(const tn_top *access, const tn_ttype *type)
{
    for (int axis = 0; axis < type->rank; axis++) {
        bool walked = type->extent[axis].size == 1;
        for (int d = 0; d < access->view->rank; d++)
            walked |= access->subscript[d].block && access->subscript[d].axis[0] == axis && !tn_dim_is(access->view->stride[d], 0);
        if (!walked)
            return false;
    }
    return true;
}

bool lower_same_element(const lower *L, const tn_top *load, const tn_top *store)
{
    if (load->code == TN_T_load_ptr && store->code == TN_T_store_ptr)
        return load->operand[0] == store->operand[0] && is_injective(L, load->operand[0]);
    if (load->code != TN_T_load || store->code != TN_T_store || load->view->buffer != store->view->buffer || !lower_same_access(load, store))
        return false;
    return !L->kernel->overlap || walks_all_axes(store, &store->operand[0]->type);
}

/* ---- stores that may overlap what they store from -------------------------------------------------------------------------------------------- */

/* A kernel may be called with any parameters, but hardly ever is with ones that overlap in part. A load whose only trouble is that the one store
 * which uses it might write what later lanes still load is therefore left for the store, which asks first: if the two tiles have no byte in
 * common, or are the same elements, it loads and stores lane by lane; else it takes the loads first. Both do the same arithmetic. */

/* The access's offset is linear in the tile's indices. */
static bool is_linear(const lower *L, const tn_top *op)
{
    int budget = BUDGET;
    if (!op->view) {
        strides s = own_strides(L, op->operand[0]);
        for (int a = 0; a < TN_TILE_RANK; a++)
            if (s.along[a] == UNKNOWN)
                return false;
        return true;
    }
    for (int d = 0; d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        axes of = {.axis = {-1, -1, -1, -1, -1, -1}};
        for (int i = 0; !s->block && i < s->naxes; i++)
            of.axis[i] = s->axis[i];
        strides t = strides_of(L, s->value, &of, &budget);
        for (int a = 0; a < TN_TILE_RANK; a++)
            if (t.along[a] == UNKNOWN)
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
    s.first = root >= 0 ? tn_l_fn2(b, TN_S_add, address_of(L, root), start) : start;
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
    void **cell = tn_map_at(&L->guarded, TN_KEY(store));
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
    const guarded_loads *loads = tn_map_get(&L->guarded, TN_KEY(store));
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
    L->aside = (aside){.store = store, .apart = apart, .value = lower_new_place(L, b, type, "aside"), .stored = new_marks(L, b, type)};
    s = lower_open(L);
    now(L, b, store);
    lower_close(L, s);
    L->aside.copying = true;
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, apart)->region[1]);
    s = lower_open(L);
    now(L, &in, store);
    lower_close(L, s);
    L->aside.store = NULL;
    return true;
}
