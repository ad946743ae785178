/* Runs a kernel by the definitions of tile.h, an element at a time: what passes and lowerings are tested against, and the checked
 * mode of user kernels. Slow and plain on purpose.
 *
 * A tile is its elements in row-major order, each with a value and whether it exists. An absent element's value is 0. What passes
 * through a region's boundary (carried values, results of `if`) and the source of `gather` is frozen: absent becomes an existing 0.
 * A pointer is a buffer parameter and an offset in elements; a pointer parameter starts at the buffer that has its name. */
#include "tile/internal.h"

#include <stdlib.h>
#include <string.h>

enum { TREE_LEVELS = 40 };
#define MAX_ELEMENTS ((int64_t)1 << 24) /* of one tile */
#define MAX_STEPS ((int64_t)1 << 31)    /* elements computed: a kernel that does not end is told from one that does */

typedef struct tile {
    int64_t n;
    tn_number *at;
    bool *present;
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
} machine;

#define FAIL(m, op, status, ...) fail((m), (op), (status), tn_format(&(m)->arena, __VA_ARGS__))
static bool fail(machine *m, const tn_top *op, tn_status status, const char *message)
{
    tn_text where = {.arena = &m->arena};
    tn_text_add(&where, "kernel @%s", m->kernel->name);
    for (size_t i = 0; i < m->kernel->grid.len; i++) {
        const tn_tvalue *v = m->kernel->grid.at[i].value;
        const tile *t = tn_map_get(&m->tiles, TN_KEY(v));
        if (t)
            tn_text_add(&where, "%s%%%s = %lld", i ? ", " : ", program ", v->name ? v->name : "p", (long long)t->at->i);
    }
    const char *what = !op ? NULL : op->code == TN_T_map ? tn_scalar_name(op->fn) : tn_top_name(op->code);
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
    return *cell;
}

static const tile *tile_of(const machine *m, const tn_tvalue *v) { return tn_map_get(&m->tiles, TN_KEY(v)); }

static void set(tile *t, int64_t i, tn_number number, bool present)
{
    t->at[i] = present ? number : (tn_number){0};
    t->present[i] = present;
}

static bool set_scalar(machine *m, const tn_tvalue *v, tn_number number)
{
    tile *t = tile_for(m, NULL, v);
    if (t)
        set(t, 0, number, true);
    return t != NULL;
}

static bool freeze_into(machine *m, const tn_top *op, const tn_tvalue *to, const tile *from)
{
    tile *t = tile_for(m, op, to);
    for (int64_t i = 0; t && i < t->n; i++)
        set(t, i, from->at[i], true);
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

static bool eval_dim(machine *m, const tn_top *op, tn_dim d, int64_t *out)
{
    if (tn_dim_eval(d, m->lookup, m->context, out))
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
        *exists &= index[d] >= 0 && index[d] < s->shape[d]; /* `in` too: a tile's rim that nothing needs may stick out */
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

static bool run_load(machine *m, const tn_top *op)
{
    tile *to = tile_for(m, op, op->result);
    const tn_ttype *type = &op->result->type;
    int64_t idx[TN_TILE_RANK], offset;
    for (int64_t i = 0; to && i < to->n; i++) {
        bool exists;
        unravel(type, i, idx);
        if (!locate(m, op, idx, &exists, &offset))
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
        if (!locate(m, op, idx, &exists, &offset))
            return false;
        if (exists)
            tn_number_store(type->dtype, m->buffer[op->view->buffer].data, offset, from->at[i]);
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
        void *data = m->buffer[op->view->buffer].data;
        tn_number x[2] = {tn_number_load(dtype, data, offset), from->at[i]};
        set(to, i, x[0], true);
        tn_number_store(dtype, data, offset, tn_scalar_eval(op->fn, dtype, x));
    }
    return to != NULL;
}

/* The buffer's memory behind a pointer; NULL: an error was reported. */
static void *pointed(machine *m, const tn_top *op, const tn_ttype *type, tn_number pointer)
{
    int buffer = (int)pointer.im;
    int64_t elements = m->buffer[buffer].elements;
    const tn_tbuffer *t = &m->kernel->buffers.at[buffer];
    if (t->dtype != type->dtype)
        FAIL(m, op, TN_INVALID, "buffer %%%s holds %s, not %s", t->name, tn_dtype_text(t->dtype), tn_dtype_text(type->dtype));
    else if (pointer.i < 0 || (elements >= 0 && pointer.i >= elements))
        FAIL(m, op, TN_INVALID, "element %lld lies outside buffer %%%s of %lld elements", (long long)pointer.i, t->name, (long long)elements);
    else if (op->code == TN_T_store_ptr && t->mode == TN_READ)
        FAIL(m, op, TN_INVALID, "buffer %%%s is declared `read`", t->name);
    else
        return m->buffer[buffer].data;
    return NULL;
}

static bool run_load_ptr(machine *m, const tn_top *op)
{
    const tile *p = tile_of(m, op->operand[0]), *mask = op->noperands > 1 ? tile_of(m, op->operand[1]) : NULL;
    const tile *other = op->noperands > 2 ? tile_of(m, op->operand[2]) : NULL;
    tile *to = tile_for(m, op, op->result);
    for (int64_t i = 0; to && i < to->n; i++) {
        if (p->present[i] && (!mask || (mask->present[i] && mask->at[i].u))) {
            const void *data = pointed(m, op, &op->operand[0]->type, p->at[i]);
            if (!data)
                return false;
            set(to, i, tn_number_load(op->result->type.dtype, data, p->at[i].i), true);
        } else {
            set(to, i, other ? other->at[i] : (tn_number){0}, other && other->present[i]);
        }
    }
    return to != NULL;
}

static bool run_store_ptr(machine *m, const tn_top *op)
{
    const tile *p = tile_of(m, op->operand[0]), *x = tile_of(m, op->operand[1]), *mask = op->noperands > 2 ? tile_of(m, op->operand[2]) : NULL;
    for (int64_t i = 0; i < p->n; i++) {
        if (!p->present[i] || !x->present[i] || (mask && !(mask->present[i] && mask->at[i].u)))
            continue;
        void *data = pointed(m, op, &op->operand[0]->type, p->at[i]);
        if (!data)
            return false;
        tn_number_store(op->operand[1]->type.dtype, data, p->at[i].i, x->at[i]);
    }
    return true;
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
    return to != NULL;
}

static tn_number bitcast_number(tn_dtype from, tn_dtype to, tn_number x)
{
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
        else if (op->code == TN_T_bitcast && !op->result->type.pointer)
            n = bitcast_number(from, dtype, x->at[i]);
        else if (x)
            n = x->at[i];
        if (op->code == TN_T_addptr) {
            n.i = (int64_t)((uint64_t)n.i + (uint64_t)tn_number_to_int(op->operand[1]->type.dtype, y->at[i]));
            present &= y->present[i];
        }
        set(to, i, n, present);
    }
    return true;
}

static bool run_assume(machine *m, const tn_top *op)
{
    const tile *fact = tile_of(m, op->operand[op->code == TN_T_assume]);
    for (int64_t i = 0; i < fact->n; i++)
        if (fact->present[i] && !fact->at[i].u)
            return FAIL(m, op, TN_INVALID, "does not hold%s%s", op->text ? ": " : "", op->text ? op->text : "");
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
        }
        if (!to)
            return false;
    }
    return true;
}

/* ---- across elements ------------------------------------------------------------------------------------------------- */

/* Sum of products: floats in double, rounded once; the rest in the accumulator's type. */
static bool run_dot(machine *m, const tn_top *op)
{
    const tile *x = tile_of(m, op->operand[0]), *y = tile_of(m, op->operand[1]);
    tn_dtype from = op->operand[0]->type.dtype, to_type = op->result->type.dtype;
    tile *to = tile_for(m, op, op->result);
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
            tn_number p[2] = {tn_number_convert(a, from, to_type), tn_number_convert(b, from, to_type)};
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
        set(to, i, from->at[ravel(&op->operand[0]->type, idx)], true);
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
    tn_number at[TREE_LEVELS][TN_T_MAX_VALUES];
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

/* acc := combine(acc, what the tree holds). */
static bool tree_finish(machine *m, const tn_tblock *region, int n, tree *t, tn_number *acc)
{
    bool present = false;
    tn_number right[TN_T_MAX_VALUES];
    for (int l = 0; l < TREE_LEVELS; l++) {
        if (!t->full[l])
            continue;
        if (!tree_merge(m, region, n, &t->present[l], t->at[l], present, right))
            return false;
        present = t->present[l];
        memcpy(right, t->at[l], sizeof right);
    }
    return !present || combine(m, region, n, acc, right);
}

/* A fold or a reduction under way. */
typedef struct folding {
    const tn_top *op;
    const tn_tblock *region; /* combine */
    int n;
    tile *acc[TN_T_MAX_VALUES];
    tree *trees; /* one a kept element; NULL: any order */
} folding;

static bool start_folding(machine *m, folding *f)
{
    for (int i = 0; i < f->n; i++) {
        f->acc[i] = tile_for(m, f->op, &f->op->result[i]);
        if (!f->acc[i])
            return false;
        for (int64_t k = 0; k < f->acc[i]->n; k++)
            set(f->acc[i], k, f->op->identity[i], true);
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
    const tile *x[TN_T_MAX_VALUES];
    int64_t idx[TN_TILE_RANK], most[TN_TILE_RANK];
    strip_extents(m, f, tiles, most);
    for (int k = 0; k < f->n; k++)
        x[k] = tile_of(m, tiles[k]);
    for (int64_t i = 0; i < x[0]->n; i++) {
        tn_number a[TN_T_MAX_VALUES] = {{{0}, 0}}, b[TN_T_MAX_VALUES];
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
        if (f->trees ? !tree_add(m, f->region, f->n, &f->trees[kept], present, b) : present && !combine(m, f->region, f->n, a, b))
            return false;
        for (int k = 0; !f->trees && present && k < f->n; k++)
            f->acc[k]->at[kept] = a[k];
    }
    return true;
}

static bool finish_folding(machine *m, folding *f)
{
    bool ok = true;
    for (int64_t e = 0; ok && f->trees && e < f->acc[0]->n; e++) {
        tn_number a[TN_T_MAX_VALUES];
        for (int k = 0; k < f->n; k++)
            a[k] = f->acc[k]->at[e];
        ok = tree_finish(m, f->region, f->n, &f->trees[e], a);
        for (int k = 0; k < f->n; k++)
            f->acc[k]->at[e] = a[k];
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
    tn_number acc[TN_T_MAX_VALUES], x[TN_T_MAX_VALUES];
    for (int k = 0; k < op->nresults; k++)
        acc[k] = op->identity[k];
    for (int64_t i = 0; i < l->length; i++) {
        int64_t at = line_element(l, line, op->reverse ? l->length - 1 - i : i);
        bool present = true;
        for (int k = 0; k < op->nresults; k++) {
            const tile *from = tile_of(m, op->operand[k]);
            x[k] = from->at[at];
            present &= from->present[at];
        }
        if (present && !combine(m, op->region[0], op->nresults, acc, x))
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
    tile *to[TN_T_MAX_VALUES];
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
        const tile *from = tile_of(m, values[i]);
        next[i] = malloc(sizeof *next[i] + sizeof(tn_number) * (size_t)from->n);
        if (!next[i]) {
            while (i-- > 0)
                free(next[i]);
            return FAIL(m, op, TN_NO_MEMORY, "out of memory");
        }
        next[i]->at = (tn_number *)(next[i] + 1);
        memcpy(next[i]->at, from->at, sizeof(tn_number) * (size_t)from->n);
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

static bool run_while(machine *m, const tn_top *op)
{
    const tn_tblock *cond = op->region[0], *body = op->region[1];
    tn_tvalue *now[TN_T_MAX_VALUES];
    for (int i = 0; i < op->nresults; i++)
        now[i] = &cond->arg[i];
    if (!carry(m, op, cond->arg, op->operand, op->nresults))
        return false;
    for (;;) {
        if (!run_block(m, cond))
            return false;
        if (!tile_of(m, cond->last->operand[0])->at[0].u)
            return give_results(m, op, cond->arg);
        if (!carry(m, op, body->arg, now, op->nresults) || !run_block(m, body) || !carry(m, op, cond->arg, body->last->operand, op->nresults))
            return false;
    }
}

static bool run_if(machine *m, const tn_top *op)
{
    const tn_tblock *taken = op->region[tile_of(m, op->operand[0])->at[0].u ? 0 : 1];
    if (!run_block(m, taken))
        return false;
    for (int i = 0; i < op->nresults; i++)
        if (!freeze_into(m, op, &op->result[i], tile_of(m, taken->last->operand[i])))
            return false;
    return true;
}

static bool run_print(machine *m, const tn_top *op)
{
    tn_text text = {.arena = &m->session->arena};
    tn_text_add(&text, "%s", op->text ? op->text : "");
    for (int k = 0; k < op->noperands; k++) {
        const tile *t = tile_of(m, op->operand[k]);
        for (int64_t i = 0; i < t->n && i < 16; i++) {
            tn_text_add(&text, i ? ", " : " ");
            if (t->present[i])
                tn_text_number(&text, op->operand[k]->type.dtype, t->at[i]);
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

/* A scalar's value comes from lookup, as the bits of its type; a pointer's is the start of the buffer that has its name. */
static bool prepare_scalars(machine *m)
{
    const tn_kernel *k = m->kernel;
    for (size_t i = 0; i < k->scalars.len; i++) {
        const tn_tvalue *v = k->scalars.at[i];
        tn_number number = {0};
        int64_t bits[2] = {0, 0};
        size_t b = 0;
        if (v->type.pointer) {
            while (b < k->buffers.len && strcmp(k->buffers.at[b].name, v->name) != 0)
                b++;
            if (b == k->buffers.len)
                return FAIL(m, NULL, TN_INVALID, "no buffer has the name of the pointer %%%s", v->name);
            number.im = (double)b;
        } else if (!m->lookup(m->context, v->name, bits)) {
            return FAIL(m, NULL, TN_INVALID, "parameter %%%s has no value", v->name);
        } else {
            number = tn_number_load(v->type.dtype, bits, 0);
        }
        if (!set_scalar(m, v, number))
            return false;
    }
    return true;
}

tn_status tn_tile_interpret(const tn_kernel *kernel, const tn_tile_arg *buffers,
                            bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context)
{
    TN_TRY(tn_tile_verify(kernel));
    machine m = {.kernel = kernel, .session = kernel->session, .lookup = lookup ? lookup : no_symbol, .context = context};
    m.arena.on_oom = kernel->session->arena.on_oom;
    m.tiles.arena = m.views.arena = &m.arena;
    bool ok = prepare_buffers(&m, buffers) && prepare_scalars(&m);
    for (size_t i = 0; ok && i < kernel->views.len; i++)
        ok = prepare_view(&m, kernel->views.at[i]);
    if (ok)
        run_programs(&m, 0);
    for (size_t i = 0; m.buffer && i < kernel->buffers.len; i++)
        if (kernel->buffers.at[i].mode == TN_LOCAL)
            free(m.buffer[i].data);
    tn_arena_free(&m.arena);
    return m.status;
}
