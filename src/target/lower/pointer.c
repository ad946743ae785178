/* Pointers, and what comes with user kernels: numbers as parameters, print.
 *
 * A pointer is a number of elements. Where every way to a value starts at one buffer (its root) it counts from that buffer's start, and an
 * access is one of the buffer: `x + (pid * 128 + arange)` is a load of %x at an offset that the vectoriser sees through. Where it is not known,
 * or not one buffer, it counts from address 0, and the access is one of the Loop IR's `memory`; addresses are taken to be aligned to the element.
 *
 * Offsets are computed in 64 bits: additions and products of signed 32-bit integers that feed a pointer are taken not to wrap (docs/tile-ir.md), so that
 * the offset of lane i + 1 is that of lane i and one more. */
#include <assert.h>
#include <string.h>

#include "target/lower/lower.h"

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
            changed |= root_from(L, &block->arg[skip + i], sources[k]);
            changed |= root_from(L, &op->result[i], sources[k]);
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
        changed |= root_from(L, op->result, op->operand[0]);
        changed |= root_from(L, op->result, op->operand[1]);
        return changed;
    case TN_T_map:
        for (int i = 1; op->fn == TN_S_select && i <= 2; i++)
            changed |= root_from(L, op->result, op->operand[i]);
        return changed;
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

int lower_log2_bytes(tn_dtype dtype)
{
    int bits = tn_dtype_bits(dtype), log = 0;
    for (; 8 << log < bits; log++)
        ;
    return log;
}

tn_lvalue *lower_address_of(lower *L, int buffer)
{
    void **cell = tn_map_at(&L->memory, TN_KEY(L->buffer[buffer]));
    if (!*cell)
        *cell = tn_l_address(&L->entry, L->buffer[buffer]);
    return *cell;
}

/* The number of the buffer's first element, were memory an array of them. */
static tn_lvalue *start_of(lower *L, int root, tn_dtype dtype)
{
    return tn_l_fn2(&L->entry, TN_S_shr_arith, lower_address_of(L, root), tn_l_index(&L->entry, lower_log2_bytes(dtype)));
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
    return tn_l_bitcast(b, tn_l_cast(b, bits, integer[lower_log2_bytes(dtype)]), tn_lscalar(dtype));
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
bool lower_is_small(const lower *L, const tn_tvalue *v)
{
    if (v->def)
        return v->def->code == TN_T_range                              ? lower_is_small(L, v->def->operand[0])
               : v->def->code == TN_T_const && v->type.dtype == TN_I64 ? v->def->number.i >= INT32_MIN && v->def->number.i <= INT32_MAX
                                                                       : false;
    for (size_t i = 0; i < L->kernel->grid.len; i++)
        if (L->kernel->grid.at[i].value == v)
            return true;
    const tn_top *parent = v->block ? v->block->parent : NULL;
    return parent && v->block == parent->region[0] && (parent->code == TN_T_fold || (parent->code == TN_T_for && v == v->block->arg));
}

/* The value of this cast in 64 bits is that of its operand. */
bool lower_keeps_wide_value(const lower *L, const tn_top *op)
{
    if (op->code != TN_T_cast)
        return false;
    tn_dtype from = op->operand[0]->type.dtype, to = op->result->type.dtype;
    return (from == TN_I32 && (to == TN_I64 || to == TN_I32)) || (from == TN_I64 && to == TN_I64) ||
           (from == TN_I64 && to == TN_I32 && lower_is_small(L, op->operand[0]));
}

bool lower_is_sum_or_product(const tn_top *op)
{
    bool wide = op->result->type.dtype == TN_I32 || op->result->type.dtype == TN_I64;
    return op->code == TN_T_map && wide && (op->fn == TN_S_add || op->fn == TN_S_sub || op->fn == TN_S_mul || op->fn == TN_S_neg);
}

element lower_wide_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx);

static element compute_wide(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    bool held = !op || tn_map_get(&L->scalars, TN_KEY(v)) || tn_map_get(&L->places, TN_KEY(v));
    tn_lvalue *at[TN_TILE_RANK];
    if (!held && lower_is_sum_or_product(op)) {
        element x = lower_wide_element(L, b, op->operand[0], idx);
        if (op->noperands == 1)
            return (element){tn_l_fn1(b, op->fn, x.value), x.present};
        element y = lower_wide_element(L, b, op->operand[1], idx);
        return (element){tn_l_fn2(b, op->fn, x.value, y.value), lower_and(b, x.present, y.present)};
    }
    if (!held && lower_keeps_wide_value(L, op))
        return lower_wide_element(L, b, op->operand[0], idx);
    const tn_tvalue *from = held ? NULL : lower_moved(L, b, v, idx, at);
    if (from)
        return lower_wide_element(L, b, from, at);
    element e = lower_element(L, b, v, idx);
    return (element){tn_l_cast(b, e.value, TN_I64), e.present};
}

/* An integer's element in 64 bits, by the rule of this file's head. */
element lower_wide_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
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

element lower_pointer_from(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx, int root)
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
        e = lower_pointer_from(L, b, x, idx, v->type.pointer && v->type.dtype == x->type.dtype ? lower_root(L, v) : LOWER_MEMORY);
        if (v->type.pointer && lower_log2_bytes(v->type.dtype) == lower_log2_bytes(x->type.dtype))
            return e;
        e.value = tn_l_fn2(b, TN_S_shl, e.value, tn_l_index(b, lower_log2_bytes(x->type.dtype)));
    } else {
        e = lower_element(L, b, x, idx);
        e.value = tn_l_bitcast(b, e.value, tn_lscalar(TN_I64));
    }
    e.value = v->type.pointer ? tn_l_fn2(b, TN_S_shr_arith, e.value, tn_l_index(b, lower_log2_bytes(v->type.dtype)))
                              : tn_l_bitcast(b, e.value, tn_lscalar(v->type.dtype));
    return e;
}

element lower_pointer_element(lower *L, tn_lbuilder *b, const tn_tvalue *v, tn_lvalue *const *idx)
{
    const tn_top *op = v->def;
    if (op->code == TN_T_bitcast)
        return cast_pointer(L, b, v, idx);
    element p = lower_pointer_from(L, b, op->operand[0], idx, lower_root(L, v)), by = lower_wide_element(L, b, op->operand[1], idx);
    return (element){tn_l_fn2(b, TN_S_add, p.value, by.value), lower_and(b, p.present, by.present)};
}

/* x, or NULL where it is the constant true. */
static tn_lvalue *unless_true(tn_lvalue *x)
{
    int64_t known;
    return x && tn_l_is_const(x, &known) && known ? NULL : x;
}

int lower_mask_operand(const tn_top *op)
{
    int i = op->code == TN_T_load_ptr || op->code == TN_T_atomic_load ? 1 : op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr ? 2 : op->noperands;
    return i < op->noperands ? i : -1;
}

/* The pointer exists, and the mask does and is true. */
static tn_lvalue *under_mask(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, tn_lvalue *present)
{
    int i = lower_mask_operand(op);
    if (i < 0)
        return present;
    element mask = lower_element(L, b, op->operand[i], idx);
    return lower_and(b, present, lower_and(b, mask.present, unless_true(mask.value)));
}

access lower_pointed(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element p = lower_element(L, b, op->operand[0], idx);
    return (access){p.value, under_mask(L, b, op, idx, p.present)};
}

tn_lvalue *lower_pointed_memory(lower *L, const tn_top *op)
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
    access a = lower_pointed(L, b, op, idx);
    element other;
    bool has_other = op->noperands > 2 && a.exists;
    if (has_other)
        other = lower_element(L, b, op->operand[2], idx);
    if (L->target->before_load)
        L->target->before_load(L, b, op, lower_pointed_memory(L, op), a.offset);
    tn_lvalue *v = tn_l_load(b, lower_pointed_memory(L, op), a.offset, 1, a.exists, has_other ? other.value : NULL);
    return (element){v, load_ptr_present(b, &a, has_other ? &other : NULL)};
}

/* Of an atomic: where it is done. */
access lower_atomic_access(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx, element *x)
{
    bool view = op->code == TN_T_atomic;
    access a = view ? lower_resolve(L, b, op, idx) : lower_pointed(L, b, op, idx);
    int n = op->code == TN_T_cas_ptr ? 2 : op->code == TN_T_atomic_load ? 0 : 1;
    for (int i = 0; i < n; i++) {
        x[i] = lower_element(L, b, op->operand[!view + i], idx);
        a.exists = lower_and(b, a.exists, x[i].present);
    }
    return a;
}

tn_lscope lower_scope_of(const tn_top *op)
{
    const char *scope = op->text ? strchr(op->text, '.') : NULL;
    return !scope ? TN_SCOPE_GPU : strcmp(scope, ".sys") == 0 ? TN_SCOPE_SYS : strcmp(scope, ".cta") == 0 ? TN_SCOPE_CTA : TN_SCOPE_GPU;
}

tn_lvalue *lower_do_atomic(tn_lbuilder *b, const tn_top *op, tn_lvalue *memory, tn_lvalue *offset, const element *x, tn_lvalue *mask)
{
    tn_lvalue *was;
    if (op->code == TN_T_cas_ptr)
        was = tn_l_cas(b, memory, offset, x[0].value, x[1].value, mask);
    else if (op->code == TN_T_atomic_load)
        was = tn_l_atomic_load(b, memory, offset, mask);
    else
        was = tn_l_atomic(b, op->fn, memory, offset, x[0].value, mask);
    was->def->scope = lower_scope_of(op);
    return was;
}

tn_lvalue *lower_place_present(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element x[2];
    if (op->code == TN_T_load)
        return op->view->padded ? NULL : lower_resolve(L, b, op, idx).exists;
    if (tn_top_is_atomic(op->code))
        return lower_atomic_access(L, b, op, idx, x).exists;
    if (op->code != TN_T_load_ptr)
        return NULL;
    access a = {NULL, under_mask(L, b, op, idx, lower_present(L, b, op->operand[0], idx))};
    bool has_other = op->noperands > 2 && a.exists;
    if (has_other)
        x[0] = (element){NULL, lower_present(L, b, op->operand[2], idx)};
    return load_ptr_present(b, &a, has_other ? x : NULL);
}

/* ---- print ------------------------------------------------------------------------------------------------------------------------- */

/* The grid's sizes are counted z, y, x in a kernel, and printed x, y, z. */
void lower_program_numbers(lower *L, tn_lbuilder *b, tn_lvalue **out)
{
    const tn_kernel *k = L->kernel;
    for (size_t i = 0; i < 3; i++) {
        const tn_trange *g = i < k->grid.len ? &k->grid.at[k->grid.len - 1 - i] : NULL;
        out[i] = g ? tn_l_fn2(b, TN_S_div, lower_scalar(L, b, g->value), tn_l_index(b, g->step.size)) : tn_l_index(b, 0);
    }
}

/* The lines are those of the checked mode (tile/check.c). In a text for tn_l_print braces are doubled; what names a value may have come with its
 * colon and spaces. */
void add_print_text(tn_text *out, const char *text, bool names_value)
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

void lower_print_element(lower *L, tn_lbuilder *b, const tn_top *op, int operand, tn_lvalue *const *idx)
{
    const tn_tvalue *v = op->operand[operand];
    tn_text line = {.arena = &L->arena};
    tn_lvalue *values[3 + TN_TILE_RANK + 1];
    int n = 3;
    tn_text_add(&line, "pid ({}, {}, {}) idx (");
    lower_program_numbers(L, b, values);
    for (int i = 0; i < v->type.rank; i++, n++) {
        tn_text_add(&line, i ? ", {}" : "{}");
        values[n] = idx[i];
    }
    tn_text_add(&line, ")");
    add_print_text(&line, op->text ? op->text : "", true);
    if (op->noperands > 1)
        tn_text_add(&line, "(operand %d) ", operand);
    element e = v->type.pointer ? lower_pointer_from(L, b, v, idx, LOWER_MEMORY) : lower_element(L, b, v, idx);
    if (v->type.pointer)
        e.value = tn_l_fn2(b, TN_S_shl, e.value, tn_l_index(b, lower_log2_bytes(v->type.dtype)));
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

void lower_print_text(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_text line = {.arena = &L->arena};
    tn_lvalue *number[3];
    lower_program_numbers(L, b, number);
    tn_text_add(&line, "pid ({}, {}, {})");
    add_print_text(&line, op->text ? op->text : "", false);
    tn_l_print(b, line.at, number, 3);
}

tn_lvalue *lower_assertion(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *const *idx)
{
    element e = lower_element(L, b, op->operand[0], idx);
    return e.present ? tn_l_fn2(b, TN_S_or, e.value, tn_l_fn1(b, TN_S_not, e.present)) : e.value;
}
