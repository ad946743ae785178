/* Runs a kernel by the definitions of tile.h, an element at a time: what passes and lowerings are tested against, and the checked
 * mode of user kernels. Slow and plain on purpose.
 *
 * A tile is its elements in row-major order, each with a value and whether it exists. An absent element's value is 0. What passes
 * through a region's boundary (carried values, results of `if`) and the source of `gather` is frozen: absent becomes an existing 0.
 * A pointer is an address of this process (u), and the number of the buffer that it was made from, plus one (im); 0 after a trip through an
 * integer, then the address says whose it is. A pointer parameter starts at the buffer that has its name. */
#include "tile/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_LEVELS = 40, FIRST_ADDRESS = 4096 /* below it lies nothing that a pointer could mean */ };
#define MAX_ELEMENTS ((int64_t)1 << 24) /* of one tile */
#define MAX_STEPS ((int64_t)1 << 31)    /* elements computed: a kernel that does not end is told from one that does */

/* Where an element's value wrapped: op, of these operands. op: NULL: nowhere. */
typedef struct wrap {
    const tn_top *op;
    int64_t x, y;
} wrap;

typedef struct tile {
    int64_t n;
    tn_number *at;
    bool *present;
    bool wrapped; /* checked mode: wraps holds something */
    wrap *wraps;  /* one an element; NULL until there is one */
} tile;

typedef struct view_sizes {
    int64_t shape[TN_MAX_RANK], stride[TN_MAX_RANK], offset;
    int64_t (*coef)[TN_MAX_RANK], *base, *limit; /* one a guard */
} view_sizes;

typedef struct machine {
    const tn_kernel *kernel;
    tn_session *session;
    tn_arena arena;    /* of this run alone */
    tn_map tiles;      /* value -> tile */
    tn_map views;      /* view -> view_sizes */
    tn_tile_arg *buffer; /* by kernel buffer; locals are made here */
    bool (*lookup)(void *context, const char *symbol, int64_t *value);
    void *context;
    int64_t steps;
    tn_status status;
    tn_checker *check; /* NULL: not the checked mode */
    int64_t program;   /* number in grid order, -1 before the first */
    uint64_t changes;  /* checked mode: stores that changed a byte */
} machine;

#define FAIL(m, op, status, ...) fail((m), (op), (status), tn_format(&(m)->arena, __VA_ARGS__))
static bool fail(machine *m, const tn_top *op, tn_status status, const char *message)
{
    tn_text where = {.arena = &m->arena};
    tn_text_add(&where, "kernel @%s", m->kernel->name);
    if (m->check && m->program >= 0)
        tn_text_add(&where, ", program %s", tn_check_program_text(m->check, &m->arena));
    for (size_t i = 0; !m->check && i < m->kernel->grid.len; i++) {
        const tn_tvalue *v = m->kernel->grid.at[i].value;
        const tile *t = tn_map_get(&m->tiles, TN_KEY(v));
        if (t)
            tn_text_add(&where, "%s%%%s = %lld", i ? ", " : ", program ", v->name ? v->name : "p", (long long)t->at->i);
    }
    const char *what = !op ? NULL : m->check ? tn_check_name(op) : op->code == TN_T_map ? tn_scalar_name(op->fn) : tn_top_name(op->code);
    if (m->status == TN_OK)
        m->status = tn_error(m->session, status, op ? op->loc : TN_NO_LOC, "%s: %s%s%s", where.at, what ? what : "", what ? ": " : "", message);
    return false;
}

/* ---- tiles ----------------------------------------------------------------------------------------------------------- */

static bool step(machine *m, const tn_top *op, int64_t n)
{
    m->steps += n;
    return m->steps <= MAX_STEPS || FAIL(m, op, TN_UNSUPPORTED, "the run was given up after %lld elements", (long long)MAX_STEPS);
}

static bool count_elements(machine *m, const tn_top *op, const tn_ttype *type, int64_t *n)
{
    *n = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->extent[i].param)
            return FAIL(m, op, TN_INVALID, "%s is not bound", type->extent[i].param);
        if (!tn_mul(*n, type->extent[i].size, n) || *n > MAX_ELEMENTS)
            return FAIL(m, op, TN_UNSUPPORTED, "a tile of %s is larger than this interpreter holds", tn_ttype_text(&m->arena, type));
    }
    return step(m, op, *n);
}

/* The tile of a value, made at its first computation and overwritten by later ones; NULL: too large. */
static tile *tile_for(machine *m, const tn_top *op, const tn_tvalue *v)
{
    int64_t n;
    if (!count_elements(m, op, &v->type, &n))
        return NULL;
    void **cell = tn_map_at(&m->tiles, TN_KEY(v));
    if (!*cell) {
        tile *t = TN_NEW(&m->arena, tile);
        t->n = n;
        t->at = TN_NEW_ARRAY(&m->arena, tn_number, (size_t)n);
        t->present = TN_NEW_ARRAY(&m->arena, bool, (size_t)n);
        *cell = t;
    }
    ((tile *)*cell)->wrapped = false;
    return *cell;
}

static const tile *tile_of(const machine *m, const tn_tvalue *v) { return tn_map_get(&m->tiles, TN_KEY(v)); }

static void set(tile *t, int64_t i, tn_number number, bool present)
{
    t->at[i] = present ? number : (tn_number){0};
    t->present[i] = present;
}

/* Element i of t, which is there, wrapped. */
static void set_wrap(machine *m, tile *t, int64_t i, wrap w)
{
    if (!w.op || !t->present[i])
        return;
    if (!t->wraps)
        t->wraps = TN_NEW_ARRAY(&m->arena, wrap, (size_t)t->n);
    if (!t->wrapped)
        memset(t->wraps, 0, sizeof *t->wraps * (size_t)t->n);
    t->wrapped = true;
    t->wraps[i] = w;
}

static wrap wrap_of(const tile *t, int64_t i) { return t->wrapped ? t->wraps[i] : (wrap){.op = NULL}; }

static bool set_scalar(machine *m, const tn_tvalue *v, tn_number number)
{
    tile *t = tile_for(m, NULL, v);
    if (t)
        set(t, 0, number, true);
    return t != NULL;
}

/* Elements of v that do not exist count as 0 from here on. */
static void see_zeros(machine *m, const tn_top *op, const tn_tvalue *v, const char *how)
{
    const tile *t = m->check ? tile_of(m, v) : NULL;
    for (int64_t i = 0; t && i < t->n; i++)
        if (!t->present[i]) {
            tn_check_absent(m->check, op, v, how);
            return;
        }
}

static bool freeze_into(machine *m, const tn_top *op, const tn_tvalue *to, const tile *from)
{
    tile *t = tile_for(m, op, to);
    for (int64_t i = 0; t && i < t->n; i++)
        set(t, i, from->at[i], true);
    for (int64_t i = 0; t && from->wrapped && i < t->n; i++)
        set_wrap(m, t, i, from->wraps[i]);
    return t != NULL;
}

static int64_t scalar_int(const machine *m, const tn_tvalue *v)
{
    return tn_number_to_int(v->type.dtype, tile_of(m, v)->at[0]);
}

static void unravel(const tn_ttype *type, int64_t linear, int64_t *idx)
{
    for (int i = type->rank; i-- > 0; linear /= type->extent[i].size)
        idx[i] = linear % type->extent[i].size;
}

static int64_t ravel(const tn_ttype *type, const int64_t *idx)
{
    int64_t linear = 0;
    for (int i = 0; i < type->rank; i++)
        linear = linear * type->extent[i].size + idx[i];
    return linear;
}

static bool no_symbol(void *context, const char *symbol, int64_t *value)
{
    (void)context, (void)symbol, (void)value;
    return false;
}

/* A symbol is the integer parameter of its name, if there is one. */
static bool symbol_value(void *context, const char *symbol, int64_t *value)
{
    machine *m = context;
    for (size_t i = 0; i < m->kernel->scalars.len; i++) {
        const tn_tvalue *v = m->kernel->scalars.at[i];
        const tile *t = strcmp(v->name, symbol) == 0 && !v->type.pointer && tn_is_integer(v->type.dtype) ? tile_of(m, v) : NULL;
        if (t) {
            *value = tn_number_to_int(v->type.dtype, t->at[0]);
            return true;
        }
    }
    return m->lookup(m->context, symbol, value);
}

static bool eval_dim(machine *m, const tn_top *op, tn_dim d, int64_t *out)
{
    if (tn_dim_eval(d, symbol_value, m, out))
        return true;
    tn_text text = {.arena = &m->arena};
    tn_text_dim(&text, d);
    return FAIL(m, op, TN_INVALID, "the size %s has no value", text.at);
}

/* ---- accesses -------------------------------------------------------------------------------------------------------- */

static bool prepare_view(machine *m, const tn_view *view)
{
    view_sizes *s = TN_NEW(&m->arena, view_sizes);
    size_t n = (size_t)view->nguards;
    s->coef = (int64_t(*)[TN_MAX_RANK])tn_alloc_array(&m->arena, n + 1, sizeof *s->coef);
    s->base = TN_NEW_ARRAY(&m->arena, int64_t, n + 1);
    s->limit = TN_NEW_ARRAY(&m->arena, int64_t, n + 1);
    bool ok = eval_dim(m, NULL, view->offset, &s->offset);
    for (int d = 0; ok && d < view->rank; d++)
        ok = eval_dim(m, NULL, view->shape[d], &s->shape[d]) && eval_dim(m, NULL, view->stride[d], &s->stride[d]);
    for (int g = 0; ok && g < view->nguards; g++) {
        ok = eval_dim(m, NULL, view->guard[g].base, &s->base[g]) && eval_dim(m, NULL, view->guard[g].limit, &s->limit[g]);
        for (int d = 0; ok && d < view->rank; d++)
            ok = eval_dim(m, NULL, view->guard[g].coef[d], &s->coef[g][d]);
    }
    *tn_map_at(&m->views, TN_KEY(view)) = s;
    return ok;
}

/* base + sum of coef * index, checked. */
static bool affine(int64_t base, int n, const int64_t *coef, const int64_t *index, int64_t *out)
{
    bool ok = true;
    *out = base;
    for (int d = 0; d < n; d++) {
        int64_t term;
        ok = ok && tn_mul(coef[d], index[d], &term) && tn_add(*out, term, out);
    }
    return ok;
}

/* Index in one view dimension of the tile's element idx; false: an absent index. */
static bool subscript_index(const machine *m, const tn_subscript *s, const int64_t *idx, int64_t *out)
{
    const tile *t = tile_of(m, s->value);
    int64_t at[TN_TILE_RANK], linear = 0;
    if (!s->block) {
        for (int i = 0; i < s->naxes; i++)
            at[i] = idx[s->axis[i]];
        linear = ravel(&s->value->type, at);
    }
    *out = tn_number_to_int(s->value->type.dtype, t->at[linear]);
    return t->present[linear] && (!s->block || tn_add(*out, idx[s->axis[0]], out));
}

static bool element_offset(const tn_view *view, const view_sizes *s, const int64_t *index, int64_t *out)
{
    int r = view->rank;
    if (!view->panel)
        return affine(s->offset, r, s->stride, index, out);
    int64_t k = index[r - 2], n = index[r - 1], row;
    return affine(s->offset, r - 2, s->stride, index, out) && tn_mul(n / view->panel, s->shape[r - 2], &row) && tn_add(row, k, &row) &&
           tn_mul(row, view->panel, &row) && tn_add(row, n % view->panel, &row) && tn_add(*out, row, out);
}

static const char *index_text(machine *m, int n, const int64_t *index)
{
    tn_text text = {.arena = &m->arena};
    tn_text_add(&text, "[");
    for (int d = 0; d < n; d++)
        tn_text_add(&text, d ? ", %lld" : "%lld", (long long)index[d]);
    tn_text_add(&text, "]");
    return text.at;
}

/* Where the tile's element idx lies; *exists: whether the view has it. False: an error was reported. */
static bool locate(machine *m, const tn_top *op, const int64_t *idx, bool *exists, int64_t *offset)
{
    const tn_view *view = op->view;
    const view_sizes *s = tn_map_get(&m->views, TN_KEY(view));
    int64_t index[TN_MAX_RANK], at;
    *exists = true;
    for (int d = 0; d < view->rank; d++) {
        *exists &= subscript_index(m, &op->subscript[d], idx, &index[d]);
        *exists &= s->shape[d] == TN_TILE_ANY || (index[d] >= 0 && index[d] < s->shape[d]); /* `in` too: a tile's rim that nothing needs may stick out */
    }
    for (int g = 0; *exists && g < view->nguards; g++) {
        if (!affine(s->base[g], view->rank, s->coef[g], index, &at))
            return FAIL(m, op, TN_INVALID, "a guard of view %%%s overflows at %s", view->name, index_text(m, view->rank, index));
        *exists &= at >= 0 && at < s->limit[g];
    }
    if (!*exists)
        return true;
    int64_t elements = m->buffer[view->buffer].elements;
    if (!element_offset(view, s, index, offset) || *offset < 0 || (elements >= 0 && *offset >= elements))
        return FAIL(m, op, TN_INVALID, "element %s of view %%%s lies outside buffer %%%s of %lld elements",
                    index_text(m, view->rank, index), view->name, m->kernel->buffers.at[view->buffer].name, (long long)elements);
    return true;
}

/* The bytes that hold an element of a buffer; false: too far. */
static bool element_bytes(tn_dtype dtype, int64_t offset, size_t *start, size_t *bytes)
{
    size_t end;
    if (!tn_dtype_bytes(dtype, offset, start) || !tn_dtype_bytes(dtype, offset + 1, &end))
        return false;
    *start -= *start == end; /* half a byte */
    *bytes = end - *start;
    return true;
}

/* Tells the checked mode of an access to element `offset` of a view's buffer. */
static bool touch_view(machine *m, const tn_top *op, int64_t offset, tn_touch_kind kind)
{
    const tn_tbuffer *t = &m->kernel->buffers.at[op->view->buffer];
    size_t start, bytes;
    if (!m->check || t->mode == TN_LOCAL)
        return true;
    return element_bytes(t->dtype, offset, &start, &bytes) &&
           tn_check_touch(m->check, op, op->view->buffer, (const char *)m->buffer[op->view->buffer].data + start, bytes, kind);
}

/* tn_number_store, which counts in the checked mode what it changes: bytes, because numbers that are not equal to themselves count too. */
static void put(machine *m, tn_dtype dtype, void *data, int64_t offset, tn_number number)
{
    size_t start, bytes;
    char before[16]; /* the widest element */
    if (!m->check || !element_bytes(dtype, offset, &start, &bytes)) {
        tn_number_store(dtype, data, offset, number);
        return;
    }
    memcpy(before, (char *)data + start, bytes);
    tn_number_store(dtype, data, offset, number);
    m->changes += memcmp(before, (char *)data + start, bytes) != 0;
}

static bool run_load(machine *m, const tn_top *op)
{
    tile *to = tile_for(m, op, op->result);
    const tn_ttype *type = &op->result->type;
    int64_t idx[TN_TILE_RANK], offset;
    for (int64_t i = 0; to && i < to->n; i++) {
        bool exists;
        unravel(type, i, idx);
        if (!locate(m, op, idx, &exists, &offset) || (exists && !touch_view(m, op, offset, TN_TOUCH_READ)))
            return false;
        if (exists)
            set(to, i, tn_number_load(type->dtype, m->buffer[op->view->buffer].data, offset), true);
        else
            set(to, i, op->view->padding, op->view->padded);
    }
    return to != NULL;
}

static bool run_store(machine *m, const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    const tile *from = tile_of(m, op->operand[0]);
    int64_t idx[TN_TILE_RANK], offset;
    for (int64_t i = 0; i < from->n; i++) {
        bool exists;
        unravel(type, i, idx);
        if (!from->present[i])
            continue;
        if (!locate(m, op, idx, &exists, &offset) || (exists && !touch_view(m, op, offset, TN_TOUCH_WRITE)))
            return false;
        if (exists)
            put(m, type->dtype, m->buffer[op->view->buffer].data, offset, from->at[i]);
    }
    return true;
}

static bool run_atomic(machine *m, const tn_top *op)
{
    tn_dtype dtype = op->result->type.dtype;
    const tile *from = tile_of(m, op->operand[0]);
    tile *to = tile_for(m, op, op->result);
    int64_t idx[TN_TILE_RANK], offset;
    for (int64_t i = 0; to && i < to->n; i++) {
        bool exists;
        unravel(&op->result->type, i, idx);
        if (!locate(m, op, idx, &exists, &offset))
            return false;
        if (!exists || !from->present[i]) {
            set(to, i, (tn_number){0}, false);
            continue;
        }
        if (!touch_view(m, op, offset, TN_TOUCH_ATOMIC))
            return false;
        void *data = m->buffer[op->view->buffer].data;
        tn_number x[2] = {tn_number_load(dtype, data, offset), from->at[i]};
        set(to, i, x[0], true);
        put(m, dtype, data, offset, tn_scalar_eval(op->fn, dtype, x));
    }
    return to != NULL;
}

static size_t pointed_bytes(const tn_ttype *type) { return (size_t)tn_dtype_bits(type->dtype) / 8; }

/* The buffer, of those whose size is known, that holds the bytes at an address; -1: none. */
static int buffer_at(const machine *m, uint64_t address, size_t bytes)
{
    for (size_t i = 0; i < m->kernel->buffers.len; i++) {
        uint64_t offset = address - (uintptr_t)m->buffer[i].data;
        size_t size = 0;
        if (tn_dtype_bytes(m->kernel->buffers.at[i].dtype, m->buffer[i].elements, &size) && offset < size && bytes <= size - offset)
            return (int)i;
    }
    return -1;
}

static bool check_bounds(machine *m, const tn_top *op, int buffer, int64_t lane, uint64_t address)
{
    const tn_ttype *type = &op->operand[0]->type;
    const tn_tbuffer *t = &m->kernel->buffers.at[buffer];
    size_t size = 0, bytes = pointed_bytes(type);
    int64_t offset = (int64_t)(address - (uintptr_t)m->buffer[buffer].data), idx[TN_TILE_RANK], unit = (int64_t)bytes;
    bool known = tn_dtype_bytes(t->dtype, m->buffer[buffer].elements, &size);
    if (!known || (offset >= 0 && (size_t)offset <= size && bytes <= size - (size_t)offset))
        return true;
    unravel(type, lane, idx);
    return FAIL(m, op, TN_INVALID, "element %lld lies outside buffer %%%s of %lld elements%s%s", (long long)tn_floordiv(offset, unit), t->name,
                (long long)((int64_t)size / unit), type->rank ? ", lane " : "", type->rank ? index_text(m, type->rank, idx) : "");
}

/* The memory behind a lane's pointer; NULL: an error was reported. */
static void *pointed(machine *m, const tn_top *op, int64_t lane, tn_touch_kind kind)
{
    const tn_ttype *type = &op->operand[0]->type;
    tn_number pointer = tile_of(m, op->operand[0])->at[lane];
    int buffer = (int)pointer.im - 1;
    size_t bytes = pointed_bytes(type);
    void *at = (void *)(uintptr_t)pointer.u;
    if (buffer >= 0) {
        const tn_tbuffer *t = &m->kernel->buffers.at[buffer];
        if (!check_bounds(m, op, buffer, lane, pointer.u))
            return NULL;
        if (kind != TN_TOUCH_READ && op->code != TN_T_atomic_load && t->mode == TN_READ) {
            FAIL(m, op, TN_INVALID, "buffer %%%s is declared `read`", t->name);
            return NULL;
        }
    } else if (pointer.u < FIRST_ADDRESS) {
        FAIL(m, op, TN_INVALID, "0x%" PRIx64 " is the address of no memory", pointer.u);
        return NULL;
    } else {
        buffer = buffer_at(m, pointer.u, bytes);
    }
    bool ours = buffer >= 0 && m->kernel->buffers.at[buffer].mode != TN_LOCAL;
    return !m->check || !ours || tn_check_touch(m->check, op, buffer, at, bytes, kind) ? at : NULL;
}

static void tell_wrap(const machine *m, const tile *t, int64_t lane)
{
    wrap w = wrap_of(t, lane);
    if (w.op)
        tn_check_wrap(m->check, w.op, w.x, w.y);
}

/* Does the lane take part? Its pointer and its mask (operand number `mask`, if there is one) exist, and the mask says so. The checked mode is told of
 * what wrapped in a mask, and in the address of a lane that takes part. */
static bool active(const machine *m, const tn_top *op, int mask, int64_t lane)
{
    const tile *p = tile_of(m, op->operand[0]), *t = mask < op->noperands ? tile_of(m, op->operand[mask]) : NULL;
    bool part = p->present[lane] && (!t || (t->present[lane] && t->at[lane].u));
    if (t && p->present[lane])
        tell_wrap(m, t, lane);
    if (part)
        tell_wrap(m, p, lane);
    return part;
}

static bool run_load_ptr(machine *m, const tn_top *op)
{
    const tile *other = op->noperands > 2 ? tile_of(m, op->operand[2]) : NULL;
    tile *to = tile_for(m, op, op->result);
    for (int64_t i = 0; to && i < to->n; i++) {
        if (active(m, op, 1, i)) {
            const void *data = pointed(m, op, i, TN_TOUCH_READ);
            if (!data)
                return false;
            set(to, i, tn_number_load(op->result->type.dtype, data, 0), true);
        } else {
            set(to, i, other ? other->at[i] : (tn_number){0}, other && other->present[i]);
        }
    }
    return to != NULL;
}

static bool run_store_ptr(machine *m, const tn_top *op)
{
    const tile *x = tile_of(m, op->operand[1]);
    for (int64_t i = 0; i < x->n; i++) {
        if (!x->present[i] || !active(m, op, 2, i))
            continue;
        void *data = pointed(m, op, i, TN_TOUCH_WRITE);
        if (!data)
            return false;
        put(m, op->operand[1]->type.dtype, data, 0, x->at[i]);
    }
    return true;
}

/* What an atomic leaves in memory where `old` was. A compare and swap compares bits. */
static tn_number atomic_value(const machine *m, const tn_top *op, int64_t lane, tn_number old)
{
    tn_dtype dtype = op->result->type.dtype;
    tn_number x = tile_of(m, op->operand[1])->at[lane];
    if (op->code == TN_T_cas_ptr) {
        uint64_t bits[2][2] = {{0}};
        tn_number_store(dtype, bits[0], 0, old);
        tn_number_store(dtype, bits[1], 0, x);
        return memcmp(bits[0], bits[1], sizeof bits[0]) == 0 ? tile_of(m, op->operand[2])->at[lane] : old;
    }
    return op->fn == TN_SCALAR_NONE ? x : tn_scalar_eval(op->fn, dtype, (tn_number[]){old, x});
}

/* atomic_ptr and cas_ptr: lanes in order. */
static bool run_atomic_ptr(machine *m, const tn_top *op)
{
    bool swap = op->code == TN_T_cas_ptr;
    const tile *x = tile_of(m, op->operand[1]), *y = tile_of(m, op->operand[swap ? 2 : 1]);
    tile *to = tile_for(m, op, op->result);
    tn_dtype dtype = op->result->type.dtype;
    for (int64_t i = 0; to && i < to->n; i++) {
        if (!x->present[i] || !y->present[i] || !active(m, op, swap ? 3 : 2, i)) {
            set(to, i, (tn_number){0}, false);
            continue;
        }
        void *data = pointed(m, op, i, TN_TOUCH_ATOMIC);
        if (!data)
            return false;
        tn_number old = tn_number_load(dtype, data, 0);
        put(m, dtype, data, 0, atomic_value(m, op, i, old));
        set(to, i, old, true);
    }
    return to != NULL;
}

static bool run_atomic_load(machine *m, const tn_top *op)
{
    tile *to = tile_for(m, op, op->result);
    for (int64_t i = 0; to && i < to->n; i++) {
        bool part = active(m, op, 1, i);
        void *data = part ? pointed(m, op, i, TN_TOUCH_ATOMIC) : NULL;
        if (part && !data)
            return false;
        set(to, i, part ? tn_number_load(op->result->type.dtype, data, 0) : (tn_number){0}, part);
    }
    return to != NULL;
}

/* ---- what wrapped ---------------------------------------------------------------------------------------------------- */

/* Sums and products of signed 32 and 64 bits are exact in compiled addresses and masks (docs/tile-ir.md). The checked mode lets each element remember
 * where it wrapped for as long as it is index arithmetic; what changes bits (rem, xor, a narrower type) makes it an ordinary number. */
static bool is_wide(const tn_ttype *type) { return !type->pointer && (type->dtype == TN_I32 || type->dtype == TN_I64); }

static wrap wrap_of_sum(const tn_top *op, int64_t x, int64_t y)
{
    int64_t r;
    bool fits = op->fn == TN_S_add ? tn_add(x, y, &r) : op->fn == TN_S_sub ? tn_sub(x, y, &r) : tn_mul(x, y, &r);
    fits = fits && (op->result->type.dtype == TN_I64 || r == (int32_t)r);
    return (wrap){fits ? NULL : op, x, y};
}

/* Has it a constant that recover takes for a hash's? In a mask it counts as written. */
static bool is_hash(const tn_top *op)
{
    for (int k = 0; k < op->noperands; k++) {
        const tn_top *c = op->operand[k]->def;
        while (c && (c->code == TN_T_broadcast || c->code == TN_T_reshape || c->code == TN_T_permute || c->code == TN_T_assume))
            c = c->operand[0]->def;
        if (c && c->code == TN_T_const && tn_is_hash_constant(op, c->number.i))
            return true;
    }
    return false;
}

/* What element i of a map has from its operands. */
static wrap inherited_wrap(const tn_top *op, const tile *const *x, int64_t i)
{
    if (op->fn == TN_S_select)
        return wrap_of(x[x[0]->at[i].u ? 1 : 2], i);
    wrap w = {.op = NULL};
    for (int k = 0; k < op->noperands && !w.op; k++)
        w = wrap_of(x[k], i);
    bool compares = op->fn >= TN_S_eq && op->fn <= TN_S_ge && is_wide(&op->operand[0]->type);
    return w.op && compares && is_hash(w.op) ? (wrap){.op = NULL} : w;
}

static bool passes_wraps(const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    switch (op->fn) {
    case TN_S_add:
    case TN_S_sub:
    case TN_S_mul:
    case TN_S_neg:
    case TN_S_min:
    case TN_S_max:
    case TN_S_clamp:
        return is_wide(type) || (type->dtype == TN_BOOL && !type->pointer); /* sums of bool are `or`, products `and` */
    case TN_S_select:
        return is_wide(type) || type->pointer || type->dtype == TN_BOOL;
    case TN_S_and:
    case TN_S_or:
    case TN_S_not:
        return type->dtype == TN_BOOL;
    default:
        return op->fn >= TN_S_eq && op->fn <= TN_S_ge;
    }
}

static void note_map_wraps(machine *m, const tn_top *op, const tile *const *x, tile *to)
{
    bool sums = is_wide(&op->result->type) && (op->fn == TN_S_add || op->fn == TN_S_sub || op->fn == TN_S_mul), any = false;
    for (int k = 0; k < op->noperands; k++)
        any |= x[k]->wrapped;
    any = any && passes_wraps(op);
    for (int64_t i = 0; (sums || any) && i < to->n; i++) {
        wrap w = any ? inherited_wrap(op, x, i) : (wrap){.op = NULL};
        set_wrap(m, to, i, w.op || !sums ? w : wrap_of_sum(op, x[0]->at[i].i, x[1]->at[i].i));
    }
}

/* Of operations whose element is that of an operand, moved or converted; y: NULL, or an addptr's offset. */
static void note_pointwise_wraps(machine *m, const tn_top *op, const tile *x, const tile *y, tile *to)
{
    const tn_ttype *from = &op->operand[0]->type, *type = &op->result->type;
    bool keeps = op->code == TN_T_range || op->code == TN_T_addptr || op->code == TN_T_assume || (op->code == TN_T_bitcast && from->pointer && type->pointer) ||
                 (op->code == TN_T_cast && is_wide(from) && is_wide(type) && tn_dtype_bits(type->dtype) >= tn_dtype_bits(from->dtype));
    bool offsets = op->code == TN_T_addptr && y->wrapped;
    for (int64_t i = 0; keeps && (x->wrapped || offsets) && i < to->n; i++) {
        wrap w = wrap_of(x, op->code == TN_T_range ? 0 : i);
        set_wrap(m, to, i, w.op || !offsets ? w : wrap_of(y, i));
    }
}

/* ---- elementwise and shape ------------------------------------------------------------------------------------------- */

static void map_element(const tn_top *op, const tile *const *x, tile *to, int64_t i)
{
    if (op->fn == TN_S_select) {
        const tile *side = x[0]->at[i].u ? x[1] : x[2];
        set(to, i, side->at[i], x[0]->present[i] && side->present[i]);
        return;
    }
    tn_number in[3];
    bool present = true;
    for (int k = 0; k < op->noperands; k++) {
        in[k] = x[k]->at[i];
        present &= x[k]->present[i];
    }
    set(to, i, tn_scalar_eval(op->fn, op->operand[op->noperands - 1]->type.dtype, in), present);
}

static bool run_map(machine *m, const tn_top *op)
{
    const tile *x[3];
    for (int k = 0; k < op->noperands; k++)
        x[k] = tile_of(m, op->operand[k]);
    tile *to = tile_for(m, op, op->result);
    for (int64_t i = 0; to && i < to->n; i++)
        map_element(op, x, to, i);
    if (m->check && to)
        note_map_wraps(m, op, x, to);
    return to != NULL;
}

static tn_number bitcast_number(const tn_ttype *from_type, const tn_ttype *to_type, tn_number x)
{
    tn_dtype from = from_type->dtype, to = to_type->dtype;
    if (from_type->pointer && to_type->pointer)
        return x;
    if (from_type->pointer || to_type->pointer) /* i64 or u64 on the other side: an address of no known buffer */
        return (tn_number){.u = x.u};
    uint64_t bits[2] = {0, 0};
    tn_number_store(from, bits, 0, x);
    return tn_number_load(to, bits, 0);
}

/* Operations whose element depends on the operand's element of the same place, or on a number. */
static bool run_pointwise(machine *m, const tn_top *op)
{
    const tile *x = op->noperands ? tile_of(m, op->operand[0]) : NULL, *y = op->noperands > 1 ? tile_of(m, op->operand[1]) : NULL;
    tile *to = tile_for(m, op, op->result);
    tn_dtype dtype = op->result->type.dtype;
    int64_t size = 0;
    if (!to || (op->code == TN_T_size && !eval_dim(m, op, op->dim, &size)))
        return false;
    for (int64_t i = 0; i < to->n; i++) {
        tn_number n = op->number;
        tn_dtype from = x ? op->operand[0]->type.dtype : dtype;
        bool present = !x || x->present[op->code == TN_T_range ? 0 : i];
        if (op->code == TN_T_size)
            n = tn_number_from_int(TN_I64, size);
        else if (op->code == TN_T_range)
            n.i = (int64_t)((uint64_t)tn_number_to_int(from, x->at[0]) + (uint64_t)i);
        else if (op->code == TN_T_cast)
            n = tn_number_convert(x->at[i], from, dtype);
        else if (op->code == TN_T_bitcast)
            n = bitcast_number(&op->operand[0]->type, &op->result->type, x->at[i]);
        else if (x)
            n = x->at[i];
        if (op->code == TN_T_addptr) {
            n.u += (uint64_t)tn_number_to_int(op->operand[1]->type.dtype, y->at[i]) * pointed_bytes(&op->result->type);
            present &= y->present[i];
        }
        set(to, i, n, present);
    }
    if (m->check && x)
        note_pointwise_wraps(m, op, x, y, to);
    return true;
}

static bool run_assume(machine *m, const tn_top *op)
{
    const tile *fact = tile_of(m, op->operand[op->code == TN_T_assume]);
    for (int64_t i = 0; i < fact->n; i++)
        if (fact->present[i] && !fact->at[i].u) {
            const tn_ttype *type = &op->operand[op->code == TN_T_assume]->type;
            int64_t idx[TN_TILE_RANK];
            unravel(type, i, idx);
            return FAIL(m, op, TN_INVALID, "does not hold%s%s%s%s", op->text ? ": " : "", op->text ? op->text : "", type->rank ? ", lane " : "",
                        type->rank ? index_text(m, type->rank, idx) : "");
        }
    return op->code == TN_T_assert || run_pointwise(m, op);
}

/* Which element of which operand the result's element idx is. */
static int source_of(const tn_top *op, int result, const int64_t *idx, int64_t *linear)
{
    const tn_ttype *to = &op->result->type, *from = &op->operand[0]->type;
    int64_t at[TN_TILE_RANK + 1] = {0};
    int which = 0;
    for (int i = 0; i < to->rank; i++)
        at[i] = idx[i];
    switch (op->code) {
    case TN_T_broadcast:
        for (int i = 0; i < from->rank; i++)
            at[i] = from->extent[i].size == 1 ? 0 : idx[op->axis[i]];
        break;
    case TN_T_permute:
        for (int i = 0; i < to->rank; i++)
            at[op->axis[i]] = idx[i];
        break;
    case TN_T_reshape:
        *linear = ravel(to, idx);
        return 0;
    case TN_T_join:
        which = (int)idx[to->rank - 1];
        break;
    case TN_T_split:
        at[to->rank] = result;
        break;
    case TN_T_cat:
        which = idx[op->axis[0]] >= from->extent[op->axis[0]].size;
        at[op->axis[0]] -= which ? from->extent[op->axis[0]].size : 0;
        break;
    default: /* slice */
        at[op->axis[0]] += op->number.i;
    }
    *linear = ravel(&op->operand[which]->type, at);
    return which;
}

static bool run_shape(machine *m, const tn_top *op)
{
    for (int r = 0; r < op->nresults; r++) {
        tile *to = tile_for(m, op, &op->result[r]);
        int64_t idx[TN_TILE_RANK], linear;
        for (int64_t i = 0; to && i < to->n; i++) {
            unravel(&op->result[r].type, i, idx);
            const tile *from = tile_of(m, op->operand[source_of(op, r, idx, &linear)]);
            set(to, i, from->at[linear], from->present[linear]);
            if (from->wrapped)
                set_wrap(m, to, i, from->wraps[linear]);
        }
        if (!to)
            return false;
    }
    return true;
}

/* ---- across elements ------------------------------------------------------------------------------------------------- */

/* Sum of products: floats in double, rounded once, at any precision; the rest in the accumulator's type. */
static bool run_dot(machine *m, const tn_top *op)
{
    const tile *x = tile_of(m, op->operand[0]), *y = tile_of(m, op->operand[1]);
    tn_dtype left = op->operand[0]->type.dtype, right = op->operand[1]->type.dtype, to_type = op->result->type.dtype;
    tile *to = tile_for(m, op, op->result);
    see_zeros(m, op, op->operand[0], "the product");
    see_zeros(m, op, op->operand[1], "the product");
    int r = op->result->type.rank;
    int64_t K = op->operand[0]->type.extent[r - 1].size, M = op->result->type.extent[r - 2].size, N = op->result->type.extent[r - 1].size;
    for (int64_t e = 0; to && e < to->n; e++) {
        int64_t j = e % N, row = e / N, batch = row / M;
        double sum = 0;
        tn_number total = tn_number_from_int(to_type, 0);
        for (int64_t k = 0; k < K; k++) {
            tn_number a = x->at[row * K + k], b = y->at[(batch * K + k) * N + j]; /* absent: 0 */
            if (tn_is_float(to_type)) {
                sum += a.f * b.f;
                continue;
            }
            tn_number p[2] = {tn_number_convert(a, left, to_type), tn_number_convert(b, right, to_type)};
            p[1] = tn_scalar_eval(TN_S_mul, to_type, p);
            p[0] = total;
            total = tn_scalar_eval(TN_S_add, to_type, p);
        }
        if (!step(m, op, K))
            return false;
        set(to, e, tn_is_float(to_type) ? tn_number_from_double(to_type, sum) : total, true);
    }
    return to != NULL;
}

static bool run_gather(machine *m, const tn_top *op)
{
    const tile *from = tile_of(m, op->operand[0]), *index = tile_of(m, op->operand[1]);
    tile *to = tile_for(m, op, op->result);
    int axis = op->axis[0];
    int64_t idx[TN_TILE_RANK], extent = op->operand[0]->type.extent[axis].size;
    for (int64_t i = 0; to && i < to->n; i++) {
        if (!index->present[i]) {
            set(to, i, (tn_number){0}, false);
            continue;
        }
        unravel(&op->result->type, i, idx);
        idx[axis] = tn_number_to_int(op->operand[1]->type.dtype, index->at[i]);
        if (idx[axis] < 0 || idx[axis] >= extent)
            return FAIL(m, op, TN_INVALID, "index %lld of %lld elements", (long long)idx[axis], (long long)extent);
        int64_t source = ravel(&op->operand[0]->type, idx);
        if (m->check && !from->present[source])
            tn_check_absent(m->check, op, op->operand[0], "what is gathered");
        set(to, i, from->at[source], true);
    }
    return to != NULL;
}

static bool run_histogram(machine *m, const tn_top *op)
{
    const tile *from = tile_of(m, op->operand[0]);
    tile *to = tile_for(m, op, op->result);
    tn_dtype dtype = op->result->type.dtype;
    for (int64_t i = 0; to && i < to->n; i++)
        set(to, i, tn_number_from_int(dtype, 0), true);
    for (int64_t i = 0; to && i < from->n; i++) {
        int64_t bin = tn_number_to_int(op->operand[0]->type.dtype, from->at[i]);
        if (from->present[i] && bin >= 0 && bin < to->n)
            to->at[bin] = tn_number_convert(tn_number_from_int(TN_I64, to->at[bin].i + 1), TN_I64, dtype);
    }
    return to != NULL;
}

/* ---- combining ------------------------------------------------------------------------------------------------------- */

static bool run_block(machine *m, const tn_tblock *block);

/* a[i] := combine(a, b)[i], n values. */
static bool combine(machine *m, const tn_tblock *region, int n, tn_number *a, const tn_number *b)
{
    tn_scalar fn = n == 1 ? tn_combine_fn(region) : TN_SCALAR_NONE;
    if (fn != TN_SCALAR_NONE) {
        a[0] = tn_scalar_eval(fn, region->arg[0].type.dtype, (tn_number[]){a[0], b[0]});
        return true;
    }
    for (int i = 0; i < n; i++)
        if (!set_scalar(m, &region->arg[i], a[i]) || !set_scalar(m, &region->arg[n + i], b[i]))
            return false;
    if (!run_block(m, region))
        return false;
    for (int i = 0; i < n; i++)
        a[i] = tile_of(m, region->last->operand[i])->at[0];
    return true;
}

/* Partial results of one kept element, in the tree of adjacent elements: level l holds 2^l of them. */
typedef struct tree {
    bool full[TREE_LEVELS], present[TREE_LEVELS];
    tn_number at[TREE_LEVELS][TN_TILE_COMBINED];
} tree;

static bool tree_merge(machine *m, const tn_tblock *region, int n, bool *present, tn_number *left, bool right_present, const tn_number *right)
{
    if (*present && right_present)
        return combine(m, region, n, left, right);
    if (right_present)
        memcpy(left, right, sizeof *left * (size_t)n);
    *present |= right_present;
    return true;
}

static bool tree_add(machine *m, const tn_tblock *region, int n, tree *t, bool present, tn_number *x)
{
    int l = 0;
    for (; l < TREE_LEVELS - 1 && t->full[l]; l++) {
        if (!tree_merge(m, region, n, &t->present[l], t->at[l], present, x))
            return false;
        present = t->present[l];
        memcpy(x, t->at[l], sizeof *x * (size_t)n);
        t->full[l] = false;
    }
    t->full[l] = true;
    t->present[l] = present;
    memcpy(t->at[l], x, sizeof *x * (size_t)n);
    return true;
}

/* acc := combine(acc, what the tree holds); *started: acc holds something. */
static bool tree_finish(machine *m, const tn_tblock *region, int n, tree *t, bool *started, tn_number *acc)
{
    bool present = false;
    tn_number right[TN_TILE_COMBINED];
    for (int l = 0; l < TREE_LEVELS; l++) {
        if (!t->full[l])
            continue;
        if (!tree_merge(m, region, n, &t->present[l], t->at[l], present, right))
            return false;
        present = t->present[l];
        memcpy(right, t->at[l], sizeof right);
    }
    return tree_merge(m, region, n, started, acc, present, right);
}

/* A fold or a reduction under way. An accumulator that is not present waits for its first element. */
typedef struct folding {
    const tn_top *op;
    const tn_tblock *region; /* combine */
    int n;
    tile *acc[TN_TILE_COMBINED];
    tree *trees; /* one a kept element; NULL: any order */
} folding;

static bool start_folding(machine *m, folding *f)
{
    for (int i = 0; i < f->n; i++) {
        f->acc[i] = tile_for(m, f->op, &f->op->result[i]);
        if (!f->acc[i])
            return false;
        for (int64_t k = 0; k < f->acc[i]->n; k++)
            set(f->acc[i], k, f->op->identity ? f->op->identity[i] : (tn_number){0}, f->op->identity != NULL);
    }
    if (f->op->ordered && !(f->trees = calloc((size_t)f->acc[0]->n, sizeof *f->trees)))
        return FAIL(m, f->op, TN_NO_MEMORY, "out of memory");
    return true;
}

static int64_t kept_element(const tn_top *op, const tn_ttype *type, const int64_t *idx)
{
    int64_t at[TN_TILE_RANK];
    int rank = 0;
    for (int i = 0; i < type->rank; i++) {
        bool folded = false;
        for (int a = 0; a < op->naxes; a++)
            folded |= op->axis[a] == i;
        if (!folded)
            at[rank++] = idx[i];
    }
    return ravel(&op->result->type, at);
}

/* How many positions along each axis lie below the limit of the range that walks it. */
static void strip_extents(const machine *m, const folding *f, tn_tvalue *const *tiles, int64_t *most)
{
    const tn_ttype *type = &tiles[0]->type;
    for (int a = 0; a < type->rank; a++) {
        most[a] = type->extent[a].size;
        for (int k = 0; k < f->n; k++) {
            int range = tn_fold_range_of(f->op, tiles[k], a);
            if (range >= 0)
                most[a] = tn_min(most[a], scalar_int(m, f->op->operand[range]) - scalar_int(m, &f->op->region[0]->arg[range]));
        }
    }
}

/* Combines every element of the tiles into its kept element, in row-major order. */
static bool fold_tiles(machine *m, folding *f, tn_tvalue *const *tiles)
{
    const tn_ttype *type = &tiles[0]->type;
    const tile *x[TN_TILE_COMBINED];
    int64_t idx[TN_TILE_RANK], most[TN_TILE_RANK];
    strip_extents(m, f, tiles, most);
    for (int k = 0; k < f->n; k++)
        x[k] = tile_of(m, tiles[k]);
    for (int64_t i = 0; i < x[0]->n; i++) {
        tn_number a[TN_TILE_COMBINED] = {{{0}, 0}}, b[TN_TILE_COMBINED];
        bool present = true;
        unravel(type, i, idx);
        int64_t kept = kept_element(f->op, type, idx);
        for (int d = 0; d < type->rank; d++)
            present &= idx[d] < most[d];
        for (int k = 0; k < f->n; k++) {
            present &= x[k]->present[i];
            a[k] = f->acc[k]->at[kept];
            b[k] = x[k]->at[i];
        }
        bool started = f->acc[0]->present[kept];
        if (f->trees ? !tree_add(m, f->region, f->n, &f->trees[kept], present, b) : !tree_merge(m, f->region, f->n, &started, a, present, b))
            return false;
        for (int k = 0; !f->trees && present && k < f->n; k++)
            set(f->acc[k], kept, a[k], true);
    }
    return true;
}

static bool finish_folding(machine *m, folding *f)
{
    bool ok = true;
    for (int64_t e = 0; ok && e < f->acc[0]->n; e++) {
        tn_number a[TN_TILE_COMBINED];
        bool started = f->acc[0]->present[e];
        for (int k = 0; k < f->n; k++)
            a[k] = f->acc[k]->at[e];
        ok = !f->trees || tree_finish(m, f->region, f->n, &f->trees[e], &started, a);
        for (int k = 0; k < f->n; k++)
            set(f->acc[k], e, a[k], true);
    }
    return ok;
}

static bool run_strips(machine *m, folding *f, int range)
{
    const tn_top *op = f->op;
    if (range == op->nranges)
        return run_block(m, op->region[0]) && fold_tiles(m, f, op->region[0]->last->operand);
    int64_t limit = scalar_int(m, op->operand[range]);
    for (int64_t at = 0, more = true; more && at < limit; more = tn_add(at, op->step[range].size, &at))
        if (!set_scalar(m, &op->region[0]->arg[range], tn_number_from_int(TN_I64, at)) || !run_strips(m, f, range + 1))
            return false;
    return true;
}

static bool run_fold(machine *m, const tn_top *op)
{
    folding f = {.op = op, .region = op->region[op->code == TN_T_fold], .n = op->nresults};
    bool ok = start_folding(m, &f);
    ok = ok && (op->code == TN_T_fold ? run_strips(m, &f, 0) : fold_tiles(m, &f, op->operand));
    ok = ok && finish_folding(m, &f);
    free(f.trees);
    return ok;
}

/* Lines along axis[0]: the element i of line l. */
typedef struct lines {
    int64_t count, length, stride;
} lines;

static lines lines_of(const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    lines l = {1, type->extent[op->axis[0]].size, 1};
    for (int i = 0; i < type->rank; i++) {
        l.count *= i == op->axis[0] ? 1 : type->extent[i].size;
        l.stride *= i > op->axis[0] ? type->extent[i].size : 1;
    }
    return l;
}

static int64_t line_element(const lines *l, int64_t line, int64_t i)
{
    return (line / l->stride * l->length + i) * l->stride + line % l->stride;
}

static bool scan_line(machine *m, const tn_top *op, const lines *l, int64_t line, tile *const *to)
{
    tn_number acc[TN_TILE_COMBINED], x[TN_TILE_COMBINED];
    bool started = op->identity != NULL;
    for (int k = 0; k < op->nresults; k++)
        acc[k] = started ? op->identity[k] : (tn_number){0};
    for (int64_t i = 0; i < l->length; i++) {
        int64_t at = line_element(l, line, op->reverse ? l->length - 1 - i : i);
        bool present = true;
        for (int k = 0; k < op->nresults; k++) {
            const tile *from = tile_of(m, op->operand[k]);
            x[k] = from->at[at];
            present &= from->present[at];
        }
        if (!tree_merge(m, op->region[0], op->nresults, &started, acc, present, x))
            return false;
        for (int k = 0; k < op->nresults; k++)
            set(to[k], at, acc[k], true);
    }
    return true;
}

/* Does element i of the line come before element j? Absent ones come last. */
static bool comes_before(machine *m, const tn_top *op, int64_t i, int64_t j, bool *before)
{
    bool first = true, second = true;
    for (int k = 0; k < op->noperands; k++) {
        const tile *x = tile_of(m, op->operand[k]);
        first &= x->present[i];
        second &= x->present[j];
    }
    *before = first && !second;
    if (!first || !second)
        return true;
    for (int k = 0; k < op->noperands; k++) {
        const tile *x = tile_of(m, op->operand[k]);
        if (!set_scalar(m, &op->region[0]->arg[k], x->at[i]) || !set_scalar(m, &op->region[0]->arg[op->noperands + k], x->at[j]))
            return false;
    }
    if (!run_block(m, op->region[0]))
        return false;
    *before = tile_of(m, op->region[0]->last->operand[0])->at[0].u != 0;
    return true;
}

/* Merges from[lo, mid) and from[mid, hi), stable. */
static bool merge(machine *m, const tn_top *op, const int64_t *from, int64_t *to, int64_t lo, int64_t mid, int64_t hi)
{
    int64_t i = lo, j = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool right = i == mid;
        if (!right && j < hi && !comes_before(m, op, from[j], from[i], &right))
            return false;
        to[k] = right ? from[j++] : from[i++];
    }
    return true;
}

static bool sort_line(machine *m, const tn_top *op, const lines *l, int64_t line, tile *const *to, int64_t *order)
{
    int64_t *from = order, *into = order + l->length;
    for (int64_t i = 0; i < l->length; i++)
        from[i] = line_element(l, line, i);
    for (int64_t width = 1; width < l->length; width *= 2) {
        for (int64_t lo = 0; lo < l->length; lo += 2 * width)
            if (!merge(m, op, from, into, lo, tn_min(lo + width, l->length), tn_min(lo + 2 * width, l->length)))
                return false;
        int64_t *swap = from;
        from = into;
        into = swap;
    }
    for (int64_t i = 0; i < l->length; i++)
        for (int k = 0; k < op->nresults; k++) {
            const tile *x = tile_of(m, op->operand[k]);
            set(to[k], line_element(l, line, i), x->at[from[i]], x->present[from[i]]);
        }
    return true;
}

static bool run_lines(machine *m, const tn_top *op)
{
    lines l = lines_of(op);
    tile *to[TN_TILE_COMBINED];
    for (int k = 0; k < op->nresults; k++)
        if (!(to[k] = tile_for(m, op, &op->result[k])))
            return false;
    int64_t *order = malloc(sizeof *order * 2 * (size_t)l.length);
    bool ok = order || FAIL(m, op, TN_NO_MEMORY, "out of memory");
    for (int64_t line = 0; ok && line < l.count; line++)
        ok = op->code == TN_T_scan ? scan_line(m, op, &l, line, to) : sort_line(m, op, &l, line, to, order);
    free(order);
    return ok;
}

/* ---- control --------------------------------------------------------------------------------------------------------- */

/* args := what the region yields, all at once. */
static bool carry(machine *m, const tn_top *op, const tn_tvalue *args, tn_tvalue *const *values, int n)
{
    tile *next[TN_T_MAX_VALUES];
    for (int i = 0; i < n; i++) {
        see_zeros(m, op, values[i], "the value that the loop carries");
        const tile *from = tile_of(m, values[i]);
        next[i] = malloc(sizeof *next[i] + (sizeof(tn_number) + (from->wrapped ? sizeof(wrap) : 0)) * (size_t)from->n);
        if (!next[i]) {
            while (i-- > 0)
                free(next[i]);
            return FAIL(m, op, TN_NO_MEMORY, "out of memory");
        }
        next[i]->at = (tn_number *)(next[i] + 1);
        memcpy(next[i]->at, from->at, sizeof(tn_number) * (size_t)from->n);
        next[i]->wrapped = from->wrapped;
        next[i]->wraps = (wrap *)(next[i]->at + from->n);
        if (from->wrapped)
            memcpy(next[i]->wraps, from->wraps, sizeof(wrap) * (size_t)from->n);
    }
    bool ok = true;
    for (int i = 0; i < n; i++) {
        ok = ok && freeze_into(m, op, &args[i], next[i]);
        free(next[i]);
    }
    return ok;
}

static bool give_results(machine *m, const tn_top *op, const tn_tvalue *from)
{
    for (int i = 0; i < op->nresults; i++)
        if (!freeze_into(m, op, &op->result[i], tile_of(m, &from[i])))
            return false;
    return true;
}

static bool run_for(machine *m, const tn_top *op)
{
    const tn_tblock *body = op->region[0];
    for (int i = 0; i < 3; i++)
        see_zeros(m, op, op->operand[i], "a bound");
    int64_t at = scalar_int(m, op->operand[0]), hi = scalar_int(m, op->operand[1]), step = scalar_int(m, op->operand[2]);
    if (step <= 0)
        return FAIL(m, op, TN_INVALID, "the step must be positive, found %lld", (long long)step);
    if (!carry(m, op, body->arg + 1, op->operand + 3, op->nresults))
        return false;
    for (bool more = true; more && at < hi; more = tn_add(at, step, &at))
        if (!set_scalar(m, &body->arg[0], tn_number_from_int(TN_I64, at)) || !run_block(m, body) ||
            !carry(m, op, body->arg + 1, body->last->operand, op->nresults))
            return false;
    return give_results(m, op, body->arg + 1);
}

/* Do values have the elements that the arguments of a region have now? By bits. */
static bool same_carried(const machine *m, const tn_tvalue *args, tn_tvalue *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        const tile *a = tile_of(m, &args[i]), *b = tile_of(m, values[i]);
        if (memcmp(a->at, b->at, sizeof *a->at * (size_t)a->n) != 0)
            return false;
    }
    return true;
}

static bool run_while(machine *m, const tn_top *op)
{
    const tn_tblock *cond = op->region[0], *body = op->region[1];
    tn_tvalue *now[TN_T_MAX_VALUES];
    for (int i = 0; i < op->nresults; i++)
        now[i] = &cond->arg[i];
    if (!carry(m, op, cond->arg, op->operand, op->nresults))
        return false;
    for (;;) {
        uint64_t changes = m->changes;
        if (!run_block(m, cond))
            return false;
        see_zeros(m, op, cond->last->operand[0], "the condition");
        if (!tile_of(m, cond->last->operand[0])->at[0].u)
            return give_results(m, op, cond->arg);
        if (!carry(m, op, body->arg, now, op->nresults) || !run_block(m, body))
            return false;
        if (m->check && m->changes == changes && same_carried(m, cond->arg, body->last->operand, op->nresults))
            return FAIL(m, op, TN_INVALID, "this loop can't end: a turn changed nothing, and no other program runs in the checked mode");
        if (!carry(m, op, cond->arg, body->last->operand, op->nresults))
            return false;
    }
}

static bool run_if(machine *m, const tn_top *op)
{
    const tn_tblock *taken = op->region[tile_of(m, op->operand[0])->at[0].u ? 0 : 1];
    see_zeros(m, op, op->operand[0], "the condition");
    if (!run_block(m, taken))
        return false;
    for (int i = 0; i < op->nresults; i++)
        see_zeros(m, op, taken->last->operand[i], "the branch's result");
    for (int i = 0; i < op->nresults; i++)
        if (!freeze_into(m, op, &op->result[i], tile_of(m, taken->last->operand[i])))
            return false;
    return true;
}

/* A line an element, for the checked mode. */
static bool print_elements(machine *m, const tn_top *op)
{
    if (!op->noperands)
        tn_check_print(m->check, op, -1, NULL, (tn_number){0}, true);
    for (int k = 0; k < op->noperands; k++) {
        const tile *t = tile_of(m, op->operand[k]);
        int64_t idx[TN_TILE_RANK];
        for (int64_t i = 0; i < t->n; i++) {
            unravel(&op->operand[k]->type, i, idx);
            tn_check_print(m->check, op, k, idx, t->at[i], t->present[i]);
        }
        if (!step(m, op, t->n))
            return false;
    }
    return true;
}

static void text_element(tn_text *text, const tn_top *op, const tn_ttype *type, tn_number number)
{
    if (type->pointer)
        tn_text_add(text, "0x%" PRIx64, number.u);
    else if (op->hex && tn_is_integer(type->dtype))
        tn_text_add(text, "0x%" PRIx64, number.u & (UINT64_MAX >> (64 - tn_dtype_bits(type->dtype))));
    else
        tn_text_number(text, type->dtype, number);
}

static bool run_print(machine *m, const tn_top *op)
{
    if (m->check)
        return print_elements(m, op);
    tn_text text = {.arena = &m->session->arena};
    tn_text_add(&text, "%s", op->text ? op->text : "");
    for (int k = 0; k < op->noperands; k++) {
        const tile *t = tile_of(m, op->operand[k]);
        for (int64_t i = 0; i < t->n && i < 16; i++) {
            tn_text_add(&text, i ? ", " : " ");
            if (t->present[i])
                text_element(&text, op, &op->operand[k]->type, t->at[i]);
            else
                tn_text_add(&text, "_");
        }
        tn_text_add(&text, t->n > 16 ? ", …" : "");
    }
    tn_note(m->session, op->loc, "%s", text.at);
    return true;
}

static bool run_op(machine *m, const tn_top *op)
{
    switch (op->code) {
    case TN_T_const:
    case TN_T_size:
    case TN_T_range:
    case TN_T_cast:
    case TN_T_bitcast:
    case TN_T_addptr:
        return run_pointwise(m, op);
    case TN_T_assume:
    case TN_T_assert:
        return run_assume(m, op);
    case TN_T_load:
        return run_load(m, op);
    case TN_T_store:
        return run_store(m, op);
    case TN_T_load_ptr:
        return run_load_ptr(m, op);
    case TN_T_store_ptr:
        return run_store_ptr(m, op);
    case TN_T_atomic:
        return run_atomic(m, op);
    case TN_T_atomic_ptr:
    case TN_T_cas_ptr:
        return run_atomic_ptr(m, op);
    case TN_T_atomic_load:
        return run_atomic_load(m, op);
    case TN_T_map:
        return run_map(m, op);
    case TN_T_broadcast:
    case TN_T_reshape:
    case TN_T_permute:
    case TN_T_join:
    case TN_T_split:
    case TN_T_cat:
    case TN_T_slice:
        return run_shape(m, op);
    case TN_T_dot:
        return run_dot(m, op);
    case TN_T_gather:
        return run_gather(m, op);
    case TN_T_histogram:
        return run_histogram(m, op);
    case TN_T_reduce:
    case TN_T_fold:
        return run_fold(m, op);
    case TN_T_scan:
    case TN_T_sort:
        return run_lines(m, op);
    case TN_T_for:
        return run_for(m, op);
    case TN_T_while:
        return run_while(m, op);
    case TN_T_if:
        return run_if(m, op);
    case TN_T_print:
        return run_print(m, op);
    case TN_T_fence: /* programs run one after another */
    case TN_T_yield:
        return true;
    default:
        return FAIL(m, op, TN_UNSUPPORTED, "the interpreter does not run this operation");
    }
}

static bool run_block(machine *m, const tn_tblock *block)
{
    bool ok = step(m, block->parent, 1);
    for (const tn_top *op = block->first; ok && op; op = op->next)
        ok = run_op(m, op);
    return ok;
}

/* ---- programs -------------------------------------------------------------------------------------------------------- */

static bool run_programs(machine *m, size_t coordinate)
{
    const tn_kernel *k = m->kernel;
    if (coordinate == k->grid.len) {
        for (size_t i = 0; i < k->buffers.len; i++) { /* a program must not see what another left: all ones are NaN, -1 */
            size_t bytes = 0;
            if (k->buffers.at[i].mode == TN_LOCAL && tn_dtype_bytes(k->buffers.at[i].dtype, m->buffer[i].elements, &bytes) && bytes)
                memset(m->buffer[i].data, 0xff, bytes);
        }
        m->program++;
        if (m->check)
            tn_check_program(m->check, m->program);
        return run_block(m, k->body);
    }
    const tn_trange *g = &k->grid.at[coordinate];
    int64_t limit;
    if (g->step.param)
        return FAIL(m, NULL, TN_INVALID, "%s is not bound", g->step.param);
    if (!eval_dim(m, NULL, g->limit, &limit))
        return false;
    for (int64_t at = 0, more = true; more && at < limit; more = tn_add(at, g->step.size, &at))
        if (!set_scalar(m, g->value, tn_number_from_int(TN_I64, at)) || !run_programs(m, coordinate + 1))
            return false;
    return true;
}

static bool prepare_buffers(machine *m, const tn_tile_arg *buffers)
{
    const tn_kernel *k = m->kernel;
    m->buffer = TN_NEW_ARRAY(&m->arena, tn_tile_arg, k->buffers.len + 1);
    for (size_t i = 0, parameter = 0; i < k->buffers.len; i++) {
        const tn_tbuffer *t = &k->buffers.at[i];
        if (t->mode != TN_LOCAL) {
            m->buffer[i] = buffers[parameter++];
            continue;
        }
        size_t bytes = 0;
        if (!eval_dim(m, NULL, t->elements, &m->buffer[i].elements))
            return false;
        if (tn_dtype_bytes(t->dtype, m->buffer[i].elements, &bytes) && bytes <= (size_t)1 << 32)
            m->buffer[i].data = malloc(bytes ? bytes : 1);
        if (!m->buffer[i].data)
            return FAIL(m, NULL, TN_NO_MEMORY, "no memory for local buffer %%%s of %lld elements", t->name, (long long)m->buffer[i].elements);
    }
    return true;
}

/* A number's value comes from lookup, as the bits of its type. */
static bool prepare_numbers(machine *m)
{
    for (size_t i = 0; i < m->kernel->scalars.len; i++) {
        const tn_tvalue *v = m->kernel->scalars.at[i];
        int64_t bits[2] = {0, 0};
        if (v->type.pointer)
            continue;
        if (!m->lookup(m->context, v->name, bits))
            return FAIL(m, NULL, TN_INVALID, "parameter %%%s has no value", v->name);
        if (!set_scalar(m, v, tn_number_load(v->type.dtype, bits, 0)))
            return false;
    }
    return true;
}

/* A pointer is the start of the buffer that has its name. */
static bool prepare_pointers(machine *m)
{
    const tn_kernel *k = m->kernel;
    for (size_t i = 0; i < k->scalars.len; i++) {
        const tn_tvalue *v = k->scalars.at[i];
        size_t b = 0;
        if (!v->type.pointer)
            continue;
        while (b < k->buffers.len && strcmp(k->buffers.at[b].name, v->name) != 0)
            b++;
        if (b == k->buffers.len)
            return FAIL(m, NULL, TN_INVALID, "no buffer has the name of the pointer %%%s", v->name);
        if (!set_scalar(m, v, (tn_number){.u = (uintptr_t)m->buffer[b].data, .im = (double)(b + 1)}))
            return false;
    }
    return true;
}

/* The checked mode learns of the grid and the buffers. */
static bool begin_check(machine *m)
{
    int64_t *programs = TN_NEW_ARRAY(&m->arena, int64_t, m->kernel->grid.len + 1), total = 1;
    for (size_t i = 0; i < m->kernel->grid.len; i++) {
        const tn_trange *g = &m->kernel->grid.at[i];
        if (g->step.param)
            return FAIL(m, NULL, TN_INVALID, "%s is not bound", g->step.param);
        if (!eval_dim(m, NULL, g->limit, &programs[i]))
            return false;
        programs[i] = tn_ceildiv(tn_max(programs[i], 0), g->step.size);
        if (!tn_mul(total, programs[i], &total) || total > MAX_STEPS)
            return FAIL(m, NULL, TN_UNSUPPORTED, "the grid has more programs than the checked mode counts");
    }
    return tn_check_begin(m->check, m->buffer, programs);
}

tn_status tn_tile_interpret(const tn_kernel *kernel, const tn_tile_arg *buffers,
                            bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context)
{
    return tn_tile_run(kernel, buffers, lookup, context, NULL);
}

tn_status tn_tile_run(const tn_kernel *kernel, const tn_tile_arg *buffers, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context,
                      tn_checker *check)
{
    TN_TRY(tn_tile_verify(kernel));
    machine m = {.kernel = kernel, .session = kernel->session, .lookup = lookup ? lookup : no_symbol, .context = context, .check = check, .program = -1};
    m.arena.on_oom = kernel->session->arena.on_oom;
    m.tiles.arena = m.views.arena = &m.arena;
    bool ok = prepare_numbers(&m) && prepare_buffers(&m, buffers) && prepare_pointers(&m);
    for (size_t i = 0; ok && i < kernel->views.len; i++)
        ok = prepare_view(&m, kernel->views.at[i]);
    if (ok && (!check || begin_check(&m)))
        run_programs(&m, 0);
    for (size_t i = 0; m.buffer && i < kernel->buffers.len; i++)
        if (kernel->buffers.at[i].mode == TN_LOCAL)
            free(m.buffer[i].data);
    tn_arena_free(&m.arena);
    return m.status;
}
