/* Construction of Tile IR. Misuse is our own bug: asserts. */
#include "tile/internal.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned traits;
} top_table[] = {
#define PURE TN_T_PURE
#define READS TN_T_READS
#define WRITES TN_T_WRITES
#define REGION TN_T_REGION
#define TOP(name, operands, results, regions, traits) {#name, traits},
#include "tile/ops.def"
#undef TOP
#undef PURE
#undef READS
#undef WRITES
#undef REGION
};

const char *tn_top_name(tn_topcode code) { return top_table[code].name; }
unsigned tn_top_traits(tn_topcode code) { return top_table[code].traits; }

tn_topcode tn_top_from_name(const char *name)
{
    for (int i = 0; i < TN_TOP_COUNT; i++)
        if (strcmp(top_table[i].name, name) == 0)
            return (tn_topcode)i;
    return TN_TOP_COUNT;
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

tn_kernel *tn_kernel_new(tn_session *session, const char *name)
{
    tn_kernel *kernel = TN_NEW(&session->arena, tn_kernel);
    kernel->session = session;
    kernel->name = tn_intern_z(session, name);
    kernel->body = TN_NEW(&session->arena, tn_tblock);
    return kernel;
}

int tn_kernel_buffer(tn_kernel *kernel, const char *name, tn_dtype dtype, tn_buffer_mode mode, tn_dim elements)
{
    tn_session *s = kernel->session;
    TN_PUSH(&s->arena, &kernel->buffers, ((tn_tbuffer){tn_intern_z(s, name), dtype, mode, elements, 0}));
    return (int)kernel->buffers.len - 1;
}

tn_view *tn_kernel_view(tn_kernel *kernel, const char *name, int buffer, int rank, const tn_dim *shape, const tn_dim *stride,
                        tn_dim offset)
{
    tn_session *s = kernel->session;
    assert(rank <= TN_MAX_RANK && buffer >= 0 && (size_t)buffer < kernel->buffers.len);
    tn_view *view = TN_NEW(&s->arena, tn_view);
    view->name = tn_intern_z(s, name);
    view->buffer = buffer;
    view->rank = rank;
    for (int i = 0; i < rank; i++)
        view->shape[i] = shape[i], view->stride[i] = stride[i];
    view->offset = offset;
    TN_PUSH(&s->arena, &kernel->views, view);
    return view;
}

void tn_view_guard(tn_kernel *kernel, tn_view *view, const tn_dim *coef, tn_dim base, tn_dim limit)
{
    tn_arena *arena = &kernel->session->arena;
    tn_guard *guards = TN_NEW_ARRAY(arena, tn_guard, (size_t)view->nguards + 1);
    if (view->nguards)
        memcpy(guards, view->guard, sizeof *guards * (size_t)view->nguards);
    tn_guard *g = &guards[view->nguards];
    for (int i = 0; i < view->rank; i++)
        g->coef[i] = coef[i];
    g->base = base;
    g->limit = limit;
    view->guard = guards;
    view->nguards++;
}

static tn_tvalue *new_value(tn_kernel *kernel, tn_ttype type)
{
    tn_tvalue *v = TN_NEW(&kernel->session->arena, tn_tvalue);
    v->type = type;
    v->id = kernel->next_id++;
    return v;
}

tn_tvalue *tn_kernel_scalar(tn_kernel *kernel, const char *name, tn_ttype type)
{
    assert(type.rank == 0);
    tn_tvalue *v = new_value(kernel, type);
    v->name = tn_intern_z(kernel->session, name);
    TN_PUSH(&kernel->session->arena, &kernel->scalars, v);
    return v;
}

tn_tvalue *tn_kernel_grid(tn_kernel *kernel, const char *name, tn_dim limit, tn_extent step)
{
    tn_tvalue *v = new_value(kernel, tn_tscalar(TN_I64));
    v->name = tn_intern_z(kernel->session, name);
    TN_PUSH(&kernel->session->arena, &kernel->grid, ((tn_trange){v, limit, step}));
    return v;
}

void tn_schedule_bind(tn_kernel *kernel, const char *param, int64_t value)
{
    param = tn_intern_z(kernel->session, param);
    for (size_t i = 0; i < kernel->schedule.bind.len; i++)
        if (kernel->schedule.bind.at[i].param == param) {
            kernel->schedule.bind.at[i].value = value;
            return;
        }
    TN_PUSH(&kernel->session->arena, &kernel->schedule.bind, ((tn_binding){param, value}));
}

void tn_schedule_set(tn_kernel *kernel, const char *label, const char *key, int64_t value)
{
    tn_session *s = kernel->session;
    TN_PUSH(&s->arena, &kernel->schedule.entry, ((tn_schedule_entry){tn_intern_z(s, label), tn_intern_z(s, key), value}));
}

bool tn_extent_is_good(int64_t size)
{
    if (size < 1)
        return false;
    while (size % 2 == 0)
        size /= 2;
    return size <= TN_TILE_ODD;
}

/* More rows than this are more addresses than there are registers for. */
enum { MOST_DOT_ROWS = 12 };

int tn_dot_rows(int rows, int vectors, int used)
{
    return used >= vectors ? rows : tn_max(rows, tn_min(rows * vectors / tn_max(used, 1), MOST_DOT_ROWS));
}

/* A row of a panel takes `used` multiply-adds a k, or the loads if these are more: its own, and its part of the panel's. Lanes past the columns are computed too. A
 * narrower tile loads more, so it must be some hundredths better. */
int tn_dot_vectors(int rows, int vectors, int64_t width, int64_t columns)
{
    int best = vectors;
    double least = 0;
    for (int used = vectors; used > 0 && columns > 0; used--) {
        int high = tn_dot_rows(rows, vectors, used);
        double loads = 1 + (double)used / high, cost = (double)tn_ceildiv(columns, used * width) * (used > loads ? used : loads);
        if (least == 0 || cost < 0.95 * least) {
            least = cost;
            best = used;
        }
    }
    return best;
}

int64_t tn_schedule_get(const tn_schedule *schedule, const char *label, const char *key, int64_t otherwise)
{
    for (size_t i = schedule->entry.len; i-- > 0;) {
        const tn_schedule_entry *e = &schedule->entry.at[i];
        if (strcmp(e->label, label ? label : "") == 0 && strcmp(e->key, key) == 0)
            return e->value;
    }
    return otherwise;
}

tn_extent tn_extent_const(int64_t size) { return (tn_extent){size, NULL}; }

tn_extent tn_extent_param(tn_kernel *kernel, const char *param)
{
    return (tn_extent){0, tn_intern_z(kernel->session, param)};
}

tn_ttype tn_tile_type(tn_dtype dtype, int rank, const tn_extent *extents)
{
    assert(rank <= TN_TILE_RANK);
    tn_ttype type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.extent[i] = extents[i];
    return type;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

tn_tbuilder tn_tbuilder_at(tn_kernel *kernel, tn_tblock *block, tn_loc loc)
{
    return (tn_tbuilder){kernel, block, loc};
}

tn_tvalue *tn_tblock_arg(tn_kernel *kernel, tn_tblock *block, tn_ttype type, const char *name)
{
    tn_arena *arena = &kernel->session->arena;
    tn_tvalue *args = TN_NEW_ARRAY(arena, tn_tvalue, (size_t)block->nargs + 1);
    assert(block->first == NULL && "arguments are added before operations: they move");
    if (block->nargs)
        memcpy(args, block->arg, sizeof *args * (size_t)block->nargs);
    block->arg = args;
    tn_tvalue *v = &args[block->nargs++];
    v->type = type;
    v->block = block;
    v->id = kernel->next_id++;
    v->name = name ? tn_intern_z(kernel->session, name) : NULL;
    return v;
}

/* Arguments in one go, so that their addresses stay. */
void tn_tblock_args(tn_kernel *kernel, tn_tblock *block, const tn_ttype *types, int n)
{
    block->arg = TN_NEW_ARRAY(&kernel->session->arena, tn_tvalue, (size_t)(n ? n : 1));
    block->nargs = n;
    for (int i = 0; i < n; i++)
        block->arg[i] = (tn_tvalue){.type = types[i], .block = block, .id = kernel->next_id++};
}

tn_top *tn_top_new(tn_tbuilder *b, tn_topcode code, tn_tvalue *const *operands, int noperands, int nregions)
{
    tn_arena *arena = &b->kernel->session->arena;
    tn_top *op = TN_NEW(arena, tn_top);
    op->code = code;
    op->noperands = noperands;
    op->operand = TN_NEW_ARRAY(arena, tn_tvalue *, (size_t)(noperands ? noperands : 1));
    for (int i = 0; i < noperands; i++) {
        assert(operands[i]);
        op->operand[i] = operands[i];
    }
    op->nregions = nregions;
    for (int i = 0; i < nregions; i++) {
        op->region[i] = TN_NEW(arena, tn_tblock);
        op->region[i]->parent = op;
    }
    op->loc = b->loc;
    op->block = b->block;
    op->prev = b->block->last;
    if (op->prev)
        op->prev->next = op;
    else
        b->block->first = op;
    b->block->last = op;
    return op;
}

void tn_top_unlink(tn_top *op)
{
    *(op->prev ? &op->prev->next : &op->block->first) = op->next;
    *(op->next ? &op->next->prev : &op->block->last) = op->prev;
    op->prev = op->next = NULL;
}

void tn_top_move_before(tn_top *op, tn_top *at)
{
    tn_top_unlink(op);
    op->block = at->block;
    for (int i = 0; i < op->nresults; i++)
        op->result[i].block = at->block;
    op->prev = at->prev;
    op->next = at;
    *(at->prev ? &at->prev->next : &at->block->first) = op;
    at->prev = op;
}

tn_tvalue *tn_top_results(tn_tbuilder *b, tn_top *op, const tn_ttype *types, int n)
{
    op->nresults = n;
    op->result = TN_NEW_ARRAY(&b->kernel->session->arena, tn_tvalue, (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++)
        op->result[i] = (tn_tvalue){.type = types[i], .def = op, .block = b->block, .id = b->kernel->next_id++};
    return op->result;
}

static void set_axes(tn_top *op, int n, const int *axes)
{
    assert(n <= TN_TILE_RANK);
    op->naxes = n;
    for (int i = 0; i < n; i++)
        op->axis[i] = axes[i];
}

tn_tvalue *tn_t_const(tn_tbuilder *b, tn_ttype type, tn_number number)
{
    tn_top *op = tn_top_new(b, TN_T_const, NULL, 0, 0);
    op->number = number;
    return tn_top_results(b, op, &type, 1);
}

tn_tvalue *tn_t_index(tn_tbuilder *b, int64_t value)
{
    return tn_t_const(b, tn_tscalar(TN_I64), tn_number_from_int(TN_I64, value));
}

tn_tvalue *tn_t_size(tn_tbuilder *b, tn_dim dim)
{
    if (tn_dim_is_const(dim))
        return tn_t_index(b, dim->value);
    tn_top *op = tn_top_new(b, TN_T_size, NULL, 0, 0);
    op->dim = dim;
    tn_ttype type = tn_tscalar(TN_I64);
    return tn_top_results(b, op, &type, 1);
}

tn_tvalue *tn_t_range(tn_tbuilder *b, tn_tvalue *start, tn_extent extent)
{
    tn_top *op = tn_top_new(b, TN_T_range, &start, 1, 0);
    tn_ttype type = tn_tile_type(TN_I64, 1, &extent);
    return tn_top_results(b, op, &type, 1);
}

tn_subscript tn_sub_block(tn_tvalue *start, int axis)
{
    return (tn_subscript){.value = start, .block = true, .naxes = 1, .axis = {axis}};
}

tn_subscript tn_sub_point(tn_tvalue *index) { return (tn_subscript){.value = index}; }

tn_subscript tn_sub_index(tn_tvalue *index, int naxes, const int *axes)
{
    tn_subscript sub = {.value = index, .naxes = naxes};
    assert(index->type.rank == naxes);
    for (int i = 0; i < naxes; i++)
        sub.axis[i] = axes[i];
    return sub;
}

static void set_access(tn_tbuilder *b, tn_top *op, const tn_view *view, const tn_subscript *subscripts)
{
    op->view = view;
    op->subscript = tn_memdup(&b->kernel->session->arena, subscripts, sizeof *subscripts * (size_t)(view->rank ? view->rank : 1));
}

tn_tvalue *tn_t_load(tn_tbuilder *b, const tn_view *view, const tn_subscript *subscripts, tn_ttype type)
{
    assert(type.dtype == b->kernel->buffers.at[view->buffer].dtype);
    tn_top *op = tn_top_new(b, TN_T_load, NULL, 0, 0);
    set_access(b, op, view, subscripts);
    return tn_top_results(b, op, &type, 1);
}

void tn_t_store(tn_tbuilder *b, const tn_view *view, const tn_subscript *subscripts, tn_tvalue *value)
{
    assert(value->type.dtype == b->kernel->buffers.at[view->buffer].dtype);
    set_access(b, tn_top_new(b, TN_T_store, &value, 1, 0), view, subscripts);
}

static bool scalar_constant(const tn_tvalue *v, tn_number *out)
{
    if (!v->def || v->def->code != TN_T_const || v->type.rank)
        return false;
    *out = v->def->number;
    return true;
}

/* Index arithmetic on constants and identities, so that producers may write it plainly. */
static tn_tvalue *fold_index(tn_tbuilder *b, tn_scalar fn, tn_tvalue *const *x, int n)
{
    tn_number c[3];
    bool known[3] = {false, false, false};
    for (int i = 0; i < n; i++) {
        if (x[i]->type.rank)
            return NULL;
        known[i] = scalar_constant(x[i], &c[i]);
    }
    tn_dtype dtype = x[n - 1]->type.dtype;
    if (!tn_is_integer(dtype) || fn == TN_S_select)
        return NULL;
    if (known[0] && (n < 2 || known[1]) && (n < 3 || known[2]))
        return tn_t_const(b, tn_tscalar(tn_scalar_result(fn, dtype)), tn_scalar_eval(fn, dtype, c));
    if (n != 2)
        return NULL;
    if (fn == TN_S_add && known[0] && c[0].i == 0)
        return x[1];
    if ((fn == TN_S_add || fn == TN_S_sub) && known[1] && c[1].i == 0)
        return x[0];
    if (fn == TN_S_mul && known[0] && c[0].i == 1)
        return x[1];
    if ((fn == TN_S_mul || fn == TN_S_div) && known[1] && c[1].i == 1)
        return x[0];
    return NULL;
}

static tn_tvalue *stretch(tn_tbuilder *b, tn_tvalue *x, const tn_ttype *shape)
{
    if (x->type.rank == shape->rank)
        return x;
    assert(x->type.rank == 0 && "map: operands of one shape, or scalars");
    tn_ttype type = *shape;
    type.dtype = x->type.dtype;
    type.pointer = x->type.pointer;
    return tn_t_broadcast(b, x, type, NULL);
}

tn_tvalue *tn_t_map(tn_tbuilder *b, tn_scalar fn, tn_tvalue *const *operands, int n)
{
    assert(n == tn_scalar_arity(fn) && n <= 3);
    tn_tvalue *folded = fold_index(b, fn, operands, n);
    if (folded)
        return folded;
    const tn_ttype *shape = &operands[0]->type;
    for (int i = 1; i < n; i++)
        if (operands[i]->type.rank > shape->rank)
            shape = &operands[i]->type;
    tn_tvalue *x[3];
    for (int i = 0; i < n; i++)
        x[i] = stretch(b, operands[i], shape);
    tn_ttype type = *shape;
    type.dtype = tn_scalar_result(fn, x[n - 1]->type.dtype);
    type.pointer = x[n - 1]->type.pointer; /* select goes with pointers too */
    tn_top *op = tn_top_new(b, TN_T_map, x, n, 0);
    op->fn = fn;
    return tn_top_results(b, op, &type, 1);
}

tn_tvalue *tn_t_map1(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x) { return tn_t_map(b, fn, &x, 1); }

tn_tvalue *tn_t_map2(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x, tn_tvalue *y)
{
    return tn_t_map(b, fn, (tn_tvalue *[]){x, y}, 2);
}

tn_tvalue *tn_t_map3(tn_tbuilder *b, tn_scalar fn, tn_tvalue *x, tn_tvalue *y, tn_tvalue *z)
{
    return tn_t_map(b, fn, (tn_tvalue *[]){x, y, z}, 3);
}

static tn_tvalue *unary_as(tn_tbuilder *b, tn_topcode code, tn_tvalue *x, tn_ttype type)
{
    return tn_top_results(b, tn_top_new(b, code, &x, 1, 0), &type, 1);
}

tn_tvalue *tn_t_cast(tn_tbuilder *b, tn_tvalue *x, tn_dtype dtype)
{
    tn_ttype type = x->type;
    if (type.dtype == dtype)
        return x;
    type.dtype = dtype;
    return unary_as(b, TN_T_cast, x, type);
}

tn_tvalue *tn_t_bitcast(tn_tbuilder *b, tn_tvalue *x, tn_dtype dtype)
{
    tn_ttype type = x->type;
    assert(tn_dtype_bits(dtype) == tn_dtype_bits(type.dtype));
    type.dtype = dtype;
    return unary_as(b, TN_T_bitcast, x, type);
}

static bool holds_address(const tn_ttype *type)
{
    return type->pointer || type->dtype == TN_I64 || type->dtype == TN_U64;
}

tn_tvalue *tn_t_bitcast_type(tn_tbuilder *b, tn_tvalue *x, tn_ttype element)
{
    tn_ttype type = x->type;
    if (!element.pointer && !type.pointer)
        return tn_t_bitcast(b, x, element.dtype);
    assert(holds_address(&element) && holds_address(&type));
    type.dtype = element.dtype;
    type.pointer = element.pointer;
    return unary_as(b, TN_T_bitcast, x, type);
}

tn_tvalue *tn_t_broadcast(tn_tbuilder *b, tn_tvalue *x, tn_ttype type, const int *axes)
{
    tn_tvalue *r = unary_as(b, TN_T_broadcast, x, type);
    set_axes(r->def, x->type.rank, axes);
    return r;
}

tn_tvalue *tn_t_permute(tn_tbuilder *b, tn_tvalue *x, const int *axes)
{
    tn_ttype type = x->type;
    for (int i = 0; i < type.rank; i++)
        type.extent[i] = x->type.extent[axes[i]];
    tn_tvalue *r = unary_as(b, TN_T_permute, x, type);
    set_axes(r->def, type.rank, axes);
    return r;
}

tn_tvalue *tn_t_reshape(tn_tbuilder *b, tn_tvalue *x, tn_ttype type) { return unary_as(b, TN_T_reshape, x, type); }

static const char *const precisions[] = {[TN_IEEE] = "ieee", [TN_TF32] = "tf32", [TN_TF32X3] = "tf32x3"};

const char *tn_precision_text(tn_precision precision) { return precisions[precision]; }

bool tn_precision_from_text(const char *text, tn_precision *out)
{
    for (size_t i = 0; i < TN_COUNT(precisions); i++)
        if (strcmp(text, precisions[i]) == 0) {
            *out = (tn_precision)i;
            return true;
        }
    return false;
}

bool tn_t_dot_takes(tn_dtype x, tn_dtype y)
{
    bool numbers = (tn_is_float(x) && tn_is_float(y)) || (tn_is_integer(x) && tn_is_integer(y));
    return x == y || (numbers && tn_dtype_bits(x) == 8 && tn_dtype_bits(y) == 8);
}

tn_tvalue *tn_t_dot(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y, tn_dtype dtype, tn_precision precision)
{
    int r = x->type.rank;
    assert((r == 2 || r == 3) && y->type.rank == r && tn_t_dot_takes(x->type.dtype, y->type.dtype));
    tn_ttype type = x->type;
    type.dtype = dtype;
    type.extent[r - 1] = y->type.extent[r - 1];
    tn_top *op = tn_top_new(b, TN_T_dot, (tn_tvalue *[]){x, y}, 2, 0);
    op->precision = precision;
    return tn_top_results(b, op, &type, 1);
}

tn_tvalue *tn_t_slice(tn_tbuilder *b, tn_tvalue *x, int axis, int64_t start, int64_t extent)
{
    tn_ttype type = x->type;
    assert(axis < type.rank && start % extent == 0 && start + extent <= type.extent[axis].size);
    type.extent[axis] = tn_extent_const(extent);
    tn_tvalue *r = unary_as(b, TN_T_slice, x, type);
    set_axes(r->def, 1, &axis);
    r->def->number = tn_number_from_int(TN_I64, start);
    return r;
}

tn_tvalue *tn_t_join(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y)
{
    tn_ttype type = x->type;
    assert(type.rank < TN_TILE_RANK && tn_ttype_same(&x->type, &y->type));
    type.extent[type.rank++] = tn_extent_const(2);
    return tn_top_results(b, tn_top_new(b, TN_T_join, (tn_tvalue *[]){x, y}, 2, 0), &type, 1);
}

void tn_t_split(tn_tbuilder *b, tn_tvalue *x, tn_tvalue **first, tn_tvalue **second)
{
    tn_ttype type = x->type;
    assert(type.rank > 0 && type.extent[type.rank - 1].size == 2);
    type.rank--;
    type.extent[type.rank] = (tn_extent){0, NULL};
    tn_tvalue *r = tn_top_results(b, tn_top_new(b, TN_T_split, &x, 1, 0), (tn_ttype[]){type, type}, 2);
    *first = &r[0];
    *second = &r[1];
}

tn_tvalue *tn_t_cat(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *y, int axis)
{
    tn_ttype type = x->type;
    assert(axis < type.rank && y->type.rank == type.rank && !type.extent[axis].param && !y->type.extent[axis].param);
    type.extent[axis].size += y->type.extent[axis].size;
    tn_tvalue *r = tn_top_results(b, tn_top_new(b, TN_T_cat, (tn_tvalue *[]){x, y}, 2, 0), &type, 1);
    set_axes(r->def, 1, &axis);
    return r;
}

tn_tvalue *tn_t_gather(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *index, int axis)
{
    tn_ttype type = index->type;
    assert(axis < x->type.rank && type.rank == x->type.rank);
    type.dtype = x->type.dtype;
    type.pointer = x->type.pointer;
    tn_tvalue *r = tn_top_results(b, tn_top_new(b, TN_T_gather, (tn_tvalue *[]){x, index}, 2, 0), &type, 1);
    set_axes(r->def, 1, &axis);
    return r;
}

tn_tvalue *tn_t_histogram(tn_tbuilder *b, tn_tvalue *x, int64_t bins, tn_dtype dtype)
{
    tn_extent extent = tn_extent_const(bins);
    return unary_as(b, TN_T_histogram, x, tn_tile_type(dtype, 1, &extent));
}

tn_tvalue *tn_t_assume(tn_tbuilder *b, tn_tvalue *x, tn_tvalue *fact)
{
    assert(fact->type.dtype == TN_BOOL && !fact->type.pointer);
    return tn_top_results(b, tn_top_new(b, TN_T_assume, (tn_tvalue *[]){x, fact}, 2, 0), &x->type, 1);
}

void tn_t_assert(tn_tbuilder *b, tn_tvalue *condition, const char *text)
{
    tn_top_new(b, TN_T_assert, &condition, 1, 0)->text = tn_intern_z(b->kernel->session, text);
}

void tn_t_print(tn_tbuilder *b, const char *text, bool hex, tn_tvalue *const *values, int n)
{
    tn_top *op = tn_top_new(b, TN_T_print, values, n, 0);
    op->text = tn_intern_z(b->kernel->session, text);
    op->hex = hex;
}

void tn_t_fence(tn_tbuilder *b) { tn_top_new(b, TN_T_fence, NULL, 0, 0); }

tn_tvalue *tn_t_asm(tn_tbuilder *b, const char *text, tn_tvalue *const *operands, int n, tn_ttype result)
{
    tn_top *op = tn_top_new(b, TN_T_asm, operands, n, 0);
    op->text = tn_intern_z(b->kernel->session, text);
    return tn_top_results(b, op, &result, 1);
}

/* ---- pointers -------------------------------------------------------------------------------------------------------- */

static tn_ttype pointed_type(const tn_tvalue *pointer)
{
    tn_ttype type = pointer->type;
    assert(type.pointer);
    type.pointer = false;
    return type;
}

tn_tvalue *tn_t_addptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *offset)
{
    assert(pointer->type.pointer && pointer->type.rank == offset->type.rank);
    return tn_top_results(b, tn_top_new(b, TN_T_addptr, (tn_tvalue *[]){pointer, offset}, 2, 0), &pointer->type, 1);
}

/* Without a mask no lane is `other`. */
tn_tvalue *tn_t_load_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *mask, tn_tvalue *other)
{
    tn_ttype type = pointed_type(pointer);
    int n = !mask ? 1 : !other ? 2 : 3;
    return tn_top_results(b, tn_top_new(b, TN_T_load_ptr, (tn_tvalue *[]){pointer, mask, other}, n, 0), &type, 1);
}

void tn_t_store_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *value, tn_tvalue *mask)
{
    tn_top_new(b, TN_T_store_ptr, (tn_tvalue *[]){pointer, value, mask}, mask ? 3 : 2, 0);
}

static tn_tvalue *atomic_result(tn_tbuilder *b, tn_top *op, const char *order)
{
    tn_ttype type = pointed_type(op->operand[0]);
    op->text = order ? tn_intern_z(b->kernel->session, order) : NULL;
    return tn_top_results(b, op, &type, 1);
}

tn_tvalue *tn_t_atomic_ptr(tn_tbuilder *b, tn_scalar fn, tn_tvalue *pointer, tn_tvalue *value, tn_tvalue *mask, const char *order)
{
    tn_top *op = tn_top_new(b, TN_T_atomic_ptr, (tn_tvalue *[]){pointer, value, mask}, mask ? 3 : 2, 0);
    op->fn = fn;
    return atomic_result(b, op, order);
}

tn_tvalue *tn_t_atomic_load(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *mask, const char *order)
{
    return atomic_result(b, tn_top_new(b, TN_T_atomic_load, (tn_tvalue *[]){pointer, mask}, mask ? 2 : 1, 0), order);
}

tn_tvalue *tn_t_cas_ptr(tn_tbuilder *b, tn_tvalue *pointer, tn_tvalue *expected, tn_tvalue *value, const char *order)
{
    return atomic_result(b, tn_top_new(b, TN_T_cas_ptr, (tn_tvalue *[]){pointer, expected, value}, 3, 0), order);
}

/* ---- regions --------------------------------------------------------------------------------------------------------- */

static void combine_args(tn_tbuilder *b, tn_tblock *combine, const tn_ttype *types, int n)
{
    tn_ttype args[2 * TN_TILE_COMBINED];
    assert(n <= TN_TILE_COMBINED);
    for (int i = 0; i < n; i++)
        args[i] = args[n + i] = tn_tscalar(types[i].dtype);
    tn_tblock_args(b->kernel, combine, args, 2 * n);
}

static tn_ttype without_axes(const tn_ttype *type, int naxes, const int *axes)
{
    tn_ttype r = {.dtype = type->dtype};
    for (int i = 0; i < type->rank; i++) {
        bool dropped = false;
        for (int a = 0; a < naxes; a++)
            dropped |= axes[a] == i;
        if (!dropped)
            r.extent[r.rank++] = type->extent[i];
    }
    return r;
}

tn_top *tn_t_fold(tn_tbuilder *b, int nranges, tn_tvalue *const *limits, const tn_extent *steps, int naxes, const int *axes)
{
    assert(nranges > 0 && nranges <= TN_TILE_RANK);
    tn_top *op = tn_top_new(b, TN_T_fold, limits, nranges, 2);
    op->nranges = nranges;
    tn_ttype args[TN_TILE_RANK];
    for (int i = 0; i < nranges; i++) {
        op->step[i] = steps[i];
        args[i] = tn_tscalar(TN_I64);
    }
    set_axes(op, naxes, axes);
    tn_tblock_args(b->kernel, op->region[0], args, nranges);
    return op;
}

void tn_t_fold_finish(tn_tbuilder *b, tn_top *fold, const tn_number *identities, int n)
{
    const tn_top *yield = fold->region[0]->last;
    assert(yield && yield->code == TN_T_yield && yield->noperands == n && n <= TN_TILE_COMBINED);
    fold->identity = tn_memdup(&b->kernel->session->arena, identities, sizeof *identities * (size_t)n);
    tn_ttype types[TN_TILE_COMBINED];
    for (int i = 0; i < n; i++)
        types[i] = without_axes(&yield->operand[i]->type, fold->naxes, fold->axis);
    tn_top_results(b, fold, types, n);
    if (fold->region[1]->nargs == 0)
        combine_args(b, fold->region[1], types, n);
}

tn_top *tn_t_reduce(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int naxes, const int *axes, const tn_number *identities)
{
    tn_top *op = tn_top_new(b, TN_T_reduce, tiles, n, 1);
    set_axes(op, naxes, axes);
    op->identity = identities ? tn_memdup(&b->kernel->session->arena, identities, sizeof *identities * (size_t)n) : NULL;
    tn_ttype types[TN_TILE_COMBINED];
    assert(n <= TN_TILE_COMBINED);
    for (int i = 0; i < n; i++)
        types[i] = without_axes(&tiles[i]->type, naxes, axes);
    tn_top_results(b, op, types, n);
    combine_args(b, op->region[0], types, n);
    return op;
}

/* Results of the tiles' types, a region of 2n scalars. */
static tn_top *along_axis(tn_tbuilder *b, tn_topcode code, tn_tvalue *const *tiles, int n, int axis)
{
    tn_ttype types[TN_TILE_COMBINED];
    assert(n > 0 && n <= TN_TILE_COMBINED && axis < tiles[0]->type.rank);
    tn_top *op = tn_top_new(b, code, tiles, n, 1);
    set_axes(op, 1, &axis);
    for (int i = 0; i < n; i++)
        types[i] = tiles[i]->type;
    tn_top_results(b, op, types, n);
    combine_args(b, op->region[0], types, n);
    return op;
}

tn_top *tn_t_scan(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int axis, bool reverse, const tn_number *identities)
{
    tn_top *op = along_axis(b, TN_T_scan, tiles, n, axis);
    op->reverse = reverse;
    op->identity = identities ? tn_memdup(&b->kernel->session->arena, identities, sizeof *identities * (size_t)n) : NULL;
    return op;
}

tn_top *tn_t_sort(tn_tbuilder *b, tn_tvalue *const *tiles, int n, int axis) { return along_axis(b, TN_T_sort, tiles, n, axis); }

void tn_t_combine_fn(tn_tbuilder *b, tn_tblock *combine, tn_scalar fn, tn_dtype dtype)
{
    if (combine->nargs == 0)
        combine_args(b, combine, (tn_ttype[]){tn_tscalar(dtype)}, 1);
    tn_tbuilder in = tn_tbuilder_at(b->kernel, combine, b->loc);
    tn_tvalue *r = tn_t_map2(&in, fn, &combine->arg[0], &combine->arg[1]);
    tn_t_yield(&in, &r, 1);
}

bool tn_top_loads_all(const tn_top *load)
{
    bool inside = !load->view->nguards;
    for (int d = 0; d < load->view->rank; d++)
        inside &= load->subscript[d].inside;
    return load->view->padded || inside;
}

tn_scalar tn_combine_fn(const tn_tblock *combine)
{
    const tn_top *op = combine->first;
    if (combine->nargs != 2 || !op || op->code != TN_T_map || op->noperands != 2 || !op->next || op->next->code != TN_T_yield ||
        op->next->operand[0] != op->result)
        return TN_SCALAR_NONE;
    bool straight = op->operand[0] == &combine->arg[0] && op->operand[1] == &combine->arg[1];
    bool swapped = op->operand[0] == &combine->arg[1] && op->operand[1] == &combine->arg[0];
    bool commutes = (tn_scalar_traits(op->fn) & TN_SCALAR_COMMUTES) != 0;
    return straight || (swapped && commutes) ? op->fn : TN_SCALAR_NONE;
}

static void carried_types(tn_tvalue *const *carried, int n, tn_ttype *types)
{
    assert(n <= TN_TILE_CARRIED);
    for (int i = 0; i < n; i++)
        types[i] = carried[i]->type;
}

tn_top *tn_t_for(tn_tbuilder *b, tn_tvalue *lo, tn_tvalue *hi, tn_tvalue *step, tn_tvalue *const *carried, int n)
{
    tn_tvalue *operands[3 + TN_TILE_CARRIED] = {lo, hi, step};
    tn_ttype types[1 + TN_TILE_CARRIED] = {tn_tscalar(TN_I64)};
    carried_types(carried, n, types + 1);
    for (int i = 0; i < n; i++)
        operands[3 + i] = carried[i];
    tn_top *op = tn_top_new(b, TN_T_for, operands, 3 + n, 1);
    tn_tblock_args(b->kernel, op->region[0], types, 1 + n);
    tn_top_results(b, op, types + 1, n);
    return op;
}

tn_top *tn_t_while(tn_tbuilder *b, tn_tvalue *const *carried, int n)
{
    tn_ttype types[TN_TILE_CARRIED];
    carried_types(carried, n, types);
    tn_top *op = tn_top_new(b, TN_T_while, carried, n, 2);
    tn_tblock_args(b->kernel, op->region[0], types, n);
    tn_tblock_args(b->kernel, op->region[1], types, n);
    tn_top_results(b, op, types, n);
    return op;
}

tn_top *tn_t_if(tn_tbuilder *b, tn_tvalue *cond, int nresults, const tn_ttype *results)
{
    tn_top *op = tn_top_new(b, TN_T_if, &cond, 1, 2);
    tn_top_results(b, op, results, nresults);
    return op;
}

void tn_t_yield(tn_tbuilder *b, tn_tvalue *const *values, int n) { tn_top_new(b, TN_T_yield, values, n, 0); }

/* ---- what walks an axis ---------------------------------------------------------------------------------------------- */

bool tn_axis_search_enter(tn_axis_search *search, const tn_tvalue *v, int axis)
{
    for (int i = 0; i < search->n; i++)
        if (search->value[i] == v && search->axis[i] == axis)
            return false;
    if (search->n == (int)TN_COUNT(search->value))
        return false;
    search->value[search->n] = v;
    search->axis[search->n++] = axis;
    return true;
}

int tn_axis_of_operand(const tn_top *op, int i, int axis)
{
    switch (op->code) {
    case TN_T_map:
    case TN_T_cast:
    case TN_T_bitcast:
        return axis;
    case TN_T_permute:
        return op->axis[axis];
    case TN_T_broadcast:
        for (int k = 0; k < op->naxes; k++)
            if (op->axis[k] == axis && op->operand[i]->type.extent[k].size == op->result->type.extent[axis].size)
                return k;
        return -1;
    default:
        return -1;
    }
}

static int range_of_axis(const tn_top *fold, const tn_tvalue *v, int axis, tn_axis_search *search)
{
    const tn_top *op = v->def;
    const tn_tvalue *start = NULL;
    if (!op || !tn_axis_search_enter(search, v, axis))
        return -1;
    if (op->code == TN_T_range)
        start = op->operand[0];
    for (int d = 0; op->code == TN_T_load && d < op->view->rank; d++)
        if (op->subscript[d].block && op->subscript[d].axis[0] == axis)
            start = op->subscript[d].value;
    for (int i = 0; start && i < fold->nranges; i++)
        if (start == &fold->region[0]->arg[i])
            return i;
    for (int d = 0; op->code == TN_T_load && d < op->view->rank; d++) {
        const tn_subscript *index = &op->subscript[d];
        for (int k = 0; !index->block && k < index->naxes; k++) {
            int range = index->axis[k] == axis ? range_of_axis(fold, index->value, k, search) : -1;
            if (range >= 0)
                return range;
        }
    }
    for (int i = 0; i < op->noperands; i++) {
        int from = tn_axis_of_operand(op, i, axis), range = from < 0 ? -1 : range_of_axis(fold, op->operand[i], from, search);
        if (range >= 0)
            return range;
    }
    return -1;
}

int tn_fold_range_of(const tn_top *fold, const tn_tvalue *v, int axis)
{
    tn_axis_search search = {.n = 0};
    return fold->code == TN_T_fold ? range_of_axis(fold, v, axis, &search) : -1;
}
