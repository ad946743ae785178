/* Construction of Loop IR: the operation table, functions, the builder, cloning and erasing. */
#include "loop/internal.h"

#include <assert.h>
#include <string.h>

/* ---- the table ---- */

enum { PURE = TN_L_PURE, READS = TN_L_READS, WRITES = TN_L_WRITES, REGION = TN_L_REGION, LANES = TN_L_LANES };

static const struct {
    const char *name;
    unsigned traits;
} ops[] = {
#define LOP(name, operands, results, regions, traits) {#name, traits},
#include "loop/ops.def"
#undef LOP
};

const char *tn_lop_name(tn_lopcode code)
{
    assert(code < TN_LOP_COUNT);
    return ops[code].name;
}

tn_lopcode tn_lop_from_name(const char *name)
{
    int code = 0;
    while (code < TN_LOP_COUNT && strcmp(ops[code].name, name) != 0)
        code++;
    return (tn_lopcode)code;
}

unsigned tn_lop_traits(tn_lopcode code)
{
    assert(code < TN_LOP_COUNT);
    return ops[code].traits;
}

int tn_lop_mask_index(const tn_lop *op)
{
    switch (op->code) {
    case TN_L_load:
    case TN_L_gather:
    case TN_L_atomic_load:
        return 2;
    case TN_L_store:
    case TN_L_scatter:
    case TN_L_atomic:
        return 3;
    case TN_L_cas:
        return 4;
    default:
        return -1;
    }
}

/* ---- functions ---- */

static tn_lvalue *new_value(tn_lfunc *func, tn_ltype type, const char *name)
{
    tn_lvalue *v = TN_NEW(tn_l_arena(func), tn_lvalue);
    v->type = type;
    v->name = name ? tn_intern_z(func->session, name) : NULL;
    v->id = func->next_id++;
    return v;
}

tn_lblock *tn_lblock_new(tn_lfunc *func, tn_lop *parent)
{
    tn_lblock *block = TN_NEW(tn_l_arena(func), tn_lblock);
    block->parent = parent;
    return block;
}

tn_lfunc *tn_lfunc_new(tn_session *session, const char *name)
{
    tn_lfunc *func = TN_NEW(&session->arena, tn_lfunc);
    func->session = session;
    func->name = tn_intern_z(session, name);
    func->body = tn_lblock_new(func, NULL);
    return func;
}

static tn_lvalue *add_parameter(tn_lfunc *func, tn_ltype type, const char *name)
{
    tn_lvalue *v = new_value(func, type, name);
    v->block = func->body;
    TN_PUSH(tn_l_arena(func), &func->params, v);
    return v;
}

tn_lvalue *tn_lfunc_buffer(tn_lfunc *func, const char *name, tn_dtype dtype, bool readonly, int64_t align)
{
    assert(func->nbuffers == (int)func->params.len); /* buffers come first */
    tn_lvalue *v = add_parameter(func, (tn_ltype){dtype, 1, true, TN_SPACE_GLOBAL}, name);
    v->readonly = readonly;
    v->align = align;
    func->nbuffers++;
    return v;
}

tn_lvalue *tn_lfunc_index(tn_lfunc *func, const char *name)
{
    return add_parameter(func, tn_lscalar(TN_I64), name);
}

static bool same_map(const tn_lmap *a, const tn_lmap *b)
{
    bool same = a->buffer == b->buffer && a->rank == b->rank && a->offset == b->offset && a->swizzle == b->swizzle;
    for (int i = 0; same && i < a->rank; i++)
        same = a->size[i] == b->size[i] && a->stride[i] == b->stride[i] && a->box[i] == b->box[i];
    return same;
}

tn_lvalue *tn_lfunc_map(tn_lfunc *func, const tn_lmap *map)
{
    tn_lmap own = *map;
    own.stride[0] = tn_dim_const(func->session, 1);
    for (size_t i = 0; i < func->maps.len; i++)
        if (same_map(&func->maps.at[i], &own))
            return func->maps.at[i].value;
    const char *name = tn_format(tn_l_arena(func), "%s.map", map->buffer->name ? map->buffer->name : "buffer");
    own.value = new_value(func, (tn_ltype){map->buffer->type.dtype, 1, true, TN_SPACE_MAP}, name);
    own.value->block = func->body;
    TN_PUSH(tn_l_arena(func), &func->maps, own);
    return own.value;
}

/* ---- operations ---- */

tn_lbuilder tn_lbuilder_at_end(tn_lfunc *func, tn_lblock *block)
{
    return (tn_lbuilder){func, block, NULL, 0};
}

tn_lbuilder tn_lbuilder_before(tn_lfunc *func, tn_lop *op)
{
    return (tn_lbuilder){func, op->block, op, op->line};
}

void tn_lop_insert(tn_lbuilder *b, tn_lop *op)
{
    assert(!op->block);
    tn_lop *next = b->before, *prev = next ? next->prev : b->block->last;
    op->block = b->block;
    op->prev = prev;
    op->next = next;
    *(prev ? &prev->next : &b->block->first) = op;
    *(next ? &next->prev : &b->block->last) = op;
    if (op->result)
        op->result->block = b->block;
}

void tn_lop_unlink(tn_lop *op)
{
    tn_lblock *block = op->block;
    *(op->prev ? &op->prev->next : &block->first) = op->next;
    *(op->next ? &op->next->prev : &block->last) = op->prev;
    op->prev = op->next = NULL;
    op->block = NULL;
}

void tn_lop_erase(tn_lop *op)
{
    tn_lop_unlink(op);
}

tn_lop *tn_lop_new(tn_lfunc *func, tn_lopcode code, tn_lvalue *const *operands, int n)
{
    tn_lop *op = TN_NEW(tn_l_arena(func), tn_lop);
    op->code = code;
    op->noperands = n;
    if (n)
        op->operand = tn_memdup(tn_l_arena(func), operands, (size_t)n * sizeof *operands);
    return op;
}

void tn_lop_result(tn_lfunc *func, tn_lop *op, tn_ltype type)
{
    op->result = new_value(func, type, NULL);
    op->result->def = op;
    op->result->block = op->block;
}

static tn_lop *append(tn_lbuilder *b, tn_lopcode code, tn_lvalue *const *operands, int n)
{
    tn_lop *op = tn_lop_new(b->func, code, operands, n);
    op->line = b->line;
    tn_lop_insert(b, op);
    return op;
}

static tn_lvalue *append_value(tn_lbuilder *b, tn_lopcode code, tn_lvalue *const *operands, int n, tn_ltype type)
{
    tn_lop *op = append(b, code, operands, n);
    tn_lop_result(b->func, op, type);
    return op->result;
}

tn_lvalue *tn_l_const(tn_lbuilder *b, tn_ltype type, tn_number number)
{
    tn_lvalue *v = append_value(b, TN_L_const, NULL, 0, type);
    v->def->number = number;
    return v;
}

tn_lvalue *tn_l_index(tn_lbuilder *b, int64_t value)
{
    return tn_l_const(b, tn_lscalar(TN_I64), (tn_number){.i = value});
}

tn_lvalue *tn_l_fn(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n)
{
    assert(n == tn_scalar_arity(fn));
    tn_ltype last = operands[n - 1]->type;
    assert(!last.buffer && tn_scalar_accepts(fn, last.dtype));
    tn_lvalue *v = append_value(b, TN_L_fn, operands, n, tn_lvector(tn_scalar_result(fn, last.dtype), last.lanes));
    v->def->fn = fn;
    return v;
}

bool tn_l_contracts(tn_scalar fn, tn_dtype dtype)
{
    bool rounds_once = fn == TN_S_add || fn == TN_S_sub || fn == TN_S_mul;
    return (rounds_once && (dtype == TN_F32 || dtype == TN_F64)) || (fn == TN_S_exp2 && dtype == TN_F32);
}

tn_lvalue *tn_l_fn_like(tn_lbuilder *b, const tn_lop *op, tn_lvalue *const *operands)
{
    tn_lvalue *v = tn_l_fn(b, op->fn, operands, op->noperands);
    v->def->contract = op->contract;
    return v;
}

static tn_lvalue *fold_or_build(tn_lbuilder *b, tn_scalar fn, tn_lvalue *const *operands, int n)
{
    tn_lvalue *folded = tn_l_fold(b, fn, operands, n);
    return folded ? folded : tn_l_fn(b, fn, operands, n);
}

tn_lvalue *tn_l_fn1(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x)
{
    return fold_or_build(b, fn, &x, 1);
}

tn_lvalue *tn_l_fn2(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y)
{
    return fold_or_build(b, fn, (tn_lvalue *[]){x, y}, 2);
}

tn_lvalue *tn_l_fn3(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z)
{
    return fold_or_build(b, fn, (tn_lvalue *[]){x, y, z}, 3);
}

tn_lvalue *tn_l_cast(tn_lbuilder *b, tn_lvalue *x, tn_dtype dtype)
{
    tn_lvalue *folded = tn_l_fold_cast(b, x, dtype);
    return folded ? folded : append_value(b, TN_L_cast, &x, 1, tn_lvector(dtype, x->type.lanes));
}

tn_lvalue *tn_l_bitcast(tn_lbuilder *b, tn_lvalue *x, tn_ltype type)
{
    assert(tn_dtype_bits(x->type.dtype) * x->type.lanes == tn_dtype_bits(type.dtype) * type.lanes);
    return tn_l_same_type(x->type, type) ? x : append_value(b, TN_L_bitcast, &x, 1, type);
}

tn_lvalue *tn_l_splat(tn_lbuilder *b, tn_lvalue *x, int lanes)
{
    assert(x->type.lanes == 1 && !x->type.buffer);
    if (lanes == 1)
        return x;
    tn_ltype type = tn_lvector(x->type.dtype, lanes);
    const tn_number *number = tn_l_number(x);
    return number ? tn_l_const(b, type, *number) : append_value(b, TN_L_splat, &x, 1, type);
}

tn_lvalue *tn_l_iota(tn_lbuilder *b, tn_dtype dtype, int lanes)
{
    return append_value(b, TN_L_iota, NULL, 0, tn_lvector(dtype, lanes));
}

tn_lvalue *tn_l_extract(tn_lbuilder *b, tn_lvalue *vector, tn_lvalue *lane)
{
    return append_value(b, TN_L_extract, (tn_lvalue *[]){vector, lane}, 2, tn_lscalar(vector->type.dtype));
}

tn_lvalue *tn_l_insert(tn_lbuilder *b, tn_lvalue *vector, tn_lvalue *scalar, tn_lvalue *lane)
{
    return append_value(b, TN_L_insert, (tn_lvalue *[]){vector, scalar, lane}, 3, vector->type);
}

tn_lvalue *tn_l_shuffle(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y, const int *lanes, int n)
{
    assert(tn_l_same_type(x->type, y->type));
    tn_lvalue *v = append_value(b, TN_L_shuffle, (tn_lvalue *[]){x, y}, 2, tn_lvector(x->type.dtype, n));
    v->def->lanes = tn_memdup(tn_l_arena(b->func), lanes, (size_t)n * sizeof *lanes);
    return v;
}

tn_lvalue *tn_l_hreduce(tn_lbuilder *b, tn_scalar fn, tn_lvalue *x)
{
    if (x->type.lanes == 1)
        return x;
    tn_lvalue *v = append_value(b, TN_L_hreduce, &x, 1, tn_lscalar(x->type.dtype));
    v->def->fn = fn;
    return v;
}

tn_lvalue *tn_l_intrinsic(tn_lbuilder *b, const char *name, tn_lvalue *const *operands, int n, tn_ltype type)
{
    tn_lvalue *v = append_value(b, TN_L_intrinsic, operands, n, type);
    v->def->name = tn_intern_z(b->func->session, name);
    return v;
}

/* ---- threads of a CTA ---- */

tn_lvalue *tn_l_thread(tn_lbuilder *b)
{
    assert(b->func->threads);
    return append_value(b, TN_L_thread, NULL, 0, tn_lscalar(TN_I64));
}

tn_lvalue *tn_l_cta(tn_lbuilder *b)
{
    assert(b->func->cluster);
    return append_value(b, TN_L_cta, NULL, 0, tn_lscalar(TN_I64));
}

void tn_l_barrier(tn_lbuilder *b)
{
    append(b, TN_L_barrier, NULL, 0);
}

tn_lvalue *tn_l_asm(tn_lbuilder *b, const char *text, tn_lvalue *const *operands, int n, tn_dtype result)
{
    tn_lvalue *v = append_value(b, TN_L_asm, operands, n, tn_lscalar(result));
    v->def->name = tn_intern_z(b->func->session, text);
    return v;
}

void tn_l_machine(tn_lbuilder *b, const char *name, tn_lvalue *const *operands, int n)
{
    append(b, TN_L_machine, operands, n)->name = tn_intern_z(b->func->session, name);
}

void tn_l_fence(tn_lbuilder *b, tn_lscope scope)
{
    append(b, TN_L_fence, NULL, 0)->scope = scope;
}

tn_lvalue *tn_l_lane_xor(tn_lbuilder *b, tn_lvalue *x, int64_t mask)
{
    assert(x->type.lanes == 1 && mask >= 0 && mask < TN_WARP);
    if (mask == 0)
        return x;
    tn_lvalue *v = append_value(b, TN_L_lane_xor, &x, 1, x->type);
    v->def->number.i = mask;
    return v;
}

tn_lvalue *tn_l_lane_at(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *lane)
{
    assert(x->type.lanes == 1);
    return append_value(b, TN_L_lane_at, (tn_lvalue *[]){x, lane}, 2, x->type);
}

/* ---- memory ---- */

enum { SHARED_ALIGN = 1024 /* of a CTA's shared memory */, MOST_SHARED = 1 << 30 /* bytes; every machine has less */ };

static tn_lvalue *alloc_buffer(tn_lbuilder *b, const char *name, tn_ltype type, int64_t size, tn_lvalue *sized)
{
    tn_lvalue *v = append_value(b, TN_L_alloc, &sized, sized != NULL, type);
    v->def->size = size;
    v->name = name ? tn_intern_z(b->func->session, name) : NULL;
    v->align = 64;
    return v;
}

tn_lvalue *tn_l_alloc(tn_lbuilder *b, const char *name, tn_dtype dtype, tn_space space, int64_t size)
{
    assert(size >= 0 && space != TN_SPACE_GLOBAL && space != TN_SPACE_SHARED);
    return alloc_buffer(b, name, (tn_ltype){dtype, 1, true, space}, size, NULL);
}

tn_lvalue *tn_l_alloc_sized(tn_lbuilder *b, const char *name, tn_dtype dtype, tn_lvalue *size)
{
    return alloc_buffer(b, name, (tn_ltype){dtype, 1, true, TN_SPACE_LOCAL}, -1, size);
}

int64_t tn_l_shared_align(int64_t at)
{
    return at ? tn_min(at & -at, SHARED_ALIGN) : SHARED_ALIGN;
}

tn_lvalue *tn_l_alloc_shared(tn_lbuilder *b, const char *name, tn_dtype dtype, int64_t elements, int64_t at)
{
    assert(elements >= 0 && at >= 0 && b->func->threads);
    tn_lvalue *v = alloc_buffer(b, name, (tn_ltype){dtype, 1, true, TN_SPACE_SHARED}, elements, NULL);
    v->def->at = at;
    v->align = tn_l_shared_align(at);
    return v;
}

/* Operands of an access, the optional ones at the end. */
static int gather_operands(tn_lvalue *out[5], tn_lvalue *const *fixed, int n, tn_lvalue *mask, tn_lvalue *other)
{
    assert(mask || !other);
    memcpy(out, fixed, (size_t)n * sizeof *out);
    if (mask)
        out[n++] = mask;
    if (other)
        out[n++] = other;
    return n;
}

static tn_lvalue *build_load(tn_lbuilder *b, tn_lopcode code, tn_lvalue *buffer, tn_lvalue *offset, int lanes,
                             tn_lvalue *mask, tn_lvalue *other)
{
    assert(buffer->type.buffer);
    tn_lvalue *operands[5];
    int n = gather_operands(operands, (tn_lvalue *[]){buffer, offset}, 2, mask, other);
    return append_value(b, code, operands, n, tn_lvector(buffer->type.dtype, lanes));
}

static tn_lop *build_store(tn_lbuilder *b, tn_lopcode code, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *value,
                        tn_lvalue *mask)
{
    assert(buffer->type.buffer && buffer->type.dtype == value->type.dtype);
    tn_lvalue *operands[5];
    int n = gather_operands(operands, (tn_lvalue *[]){buffer, offset, value}, 3, mask, NULL);
    return append(b, code, operands, n);
}

tn_lvalue *tn_l_load(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, int lanes, tn_lvalue *mask, tn_lvalue *other)
{
    return build_load(b, TN_L_load, buffer, offset, lanes, mask, other);
}

tn_lvalue *tn_l_gather(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offsets, tn_lvalue *mask, tn_lvalue *other)
{
    return build_load(b, TN_L_gather, buffer, offsets, offsets->type.lanes, mask, other);
}

tn_lop *tn_l_store(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *value, tn_lvalue *mask)
{
    return build_store(b, TN_L_store, buffer, offset, value, mask);
}

void tn_l_scatter(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offsets, tn_lvalue *value, tn_lvalue *mask)
{
    build_store(b, TN_L_scatter, buffer, offsets, value, mask);
}

tn_lvalue *tn_l_atomic(tn_lbuilder *b, tn_scalar fn, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *value,
                       tn_lvalue *mask)
{
    tn_lvalue *operands[5];
    int n = gather_operands(operands, (tn_lvalue *[]){buffer, offset, value}, 3, mask, NULL);
    tn_lvalue *v = append_value(b, TN_L_atomic, operands, n, value->type);
    v->def->fn = fn;
    return v;
}

tn_lvalue *tn_l_atomic_load(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *mask)
{
    return build_load(b, TN_L_atomic_load, buffer, offset, 1, mask, NULL);
}

tn_lvalue *tn_l_cas(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, tn_lvalue *expected, tn_lvalue *value,
                    tn_lvalue *mask)
{
    assert(buffer->type.buffer && buffer->type.dtype == value->type.dtype);
    tn_lvalue *operands[5];
    int n = gather_operands(operands, (tn_lvalue *[]){buffer, offset, expected, value}, 4, mask, NULL);
    return append_value(b, TN_L_cas, operands, n, value->type);
}

tn_lvalue *tn_l_memory(tn_lbuilder *b, tn_dtype dtype)
{
    tn_lvalue *v = append_value(b, TN_L_memory, NULL, 0, (tn_ltype){dtype, 1, true, TN_SPACE_GLOBAL});
    v->align = tn_dtype_bits(tn_dtype_real(dtype)) / 8;
    return v;
}

tn_lvalue *tn_l_address(tn_lbuilder *b, tn_lvalue *buffer)
{
    assert(buffer->type.buffer);
    return append_value(b, TN_L_address, &buffer, 1, tn_lscalar(TN_I64));
}

/* ---- control ---- */

static void add_regions(tn_lfunc *func, tn_lop *op, int n)
{
    op->nregions = n;
    for (int i = 0; i < n; i++)
        op->region[i] = tn_lblock_new(func, op);
}

tn_lop *tn_l_for(tn_lbuilder *b, const char *name, tn_lvalue *lo, tn_lvalue *hi, tn_lvalue *step, tn_loop_kind kind)
{
    tn_lop *op = append(b, TN_L_for, (tn_lvalue *[]){lo, hi, step}, 3);
    op->kind = kind;
    add_regions(b->func, op, 1);
    op->region[0]->arg = new_value(b->func, tn_lscalar(TN_I64), name);
    op->region[0]->arg->block = op->region[0];
    return op;
}

tn_lop *tn_l_if(tn_lbuilder *b, tn_lvalue *cond)
{
    tn_lop *op = append(b, TN_L_if, &cond, 1);
    add_regions(b->func, op, 2);
    return op;
}

tn_lop *tn_l_while(tn_lbuilder *b)
{
    tn_lop *op = append(b, TN_L_while, NULL, 0);
    add_regions(b->func, op, 2);
    return op;
}

tn_lop *tn_l_roles(tn_lbuilder *b, int64_t first, int instances)
{
    assert(b->block == b->func->body && first > 0 && first < b->func->threads && instances > 0 && instances <= TN_MOST_INSTANCES && first % (instances * TN_WARP) == 0);
    tn_lop *op = append(b, TN_L_roles, NULL, 0);
    op->number.i = first;
    op->instances = instances;
    add_regions(b->func, op, 2);
    return op;
}

void tn_l_yield(tn_lbuilder *b, tn_lvalue *cond)
{
    append(b, TN_L_yield, &cond, 1);
}

void tn_l_prefetch(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *offset, int level)
{
    append(b, TN_L_prefetch, (tn_lvalue *[]){buffer, offset}, 2)->number.i = level;
}

void tn_l_trap(tn_lbuilder *b, tn_lvalue *must_hold, int64_t line)
{
    append(b, TN_L_trap, &must_hold, 1)->number.i = line;
}

void tn_l_print(tn_lbuilder *b, const char *text, tn_lvalue *const *values, int n)
{
    append(b, TN_L_print, values, n)->name = tn_intern_z(b->func->session, text);
}

tn_lpiece tn_l_print_piece(const char **at, const char **text, size_t *len)
{
    const char *start = *at;
    *text = start;
    *len = strcspn(start, "{");
    if (start[0] == '{' && start[1] == '{')
        *len = 1, *at = start + 2;
    else
        *at = start + *len;
    if (*len)
        return TN_L_PIECE_TEXT;
    if (!*start)
        return TN_L_PIECE_END;
    bool hex = start[1] == 'x';
    *at = start + 2 + hex;
    return start[1 + hex] == '}' ? (hex ? TN_L_PIECE_HEX : TN_L_PIECE_VALUE) : TN_L_PIECE_BAD;
}

bool tn_l_is_const(const tn_lvalue *v, int64_t *value)
{
    const tn_number *number = tn_l_number(v);
    if (!number || v->type.lanes != 1 || !(tn_is_integer(v->type.dtype) || v->type.dtype == TN_BOOL))
        return false;
    *value = number->i;
    return true;
}

/* ---- cloning ---- */

static tn_lvalue *mapped(const tn_map *values, tn_lvalue *v)
{
    tn_lvalue *to = tn_map_get(values, TN_KEY(v));
    return to ? to : v;
}

static void copy_value_facts(tn_lvalue *to, const tn_lvalue *from)
{
    to->name = from->name;
    to->readonly = from->readonly;
    to->align = from->align;
}

static void clone_region(tn_lbuilder *b, tn_lop *to, const tn_lop *from, int i, tn_map *values)
{
    const tn_lblock *source = from->region[i];
    tn_lblock *block = to->region[i] = tn_lblock_new(b->func, to);
    if (source->arg) {
        block->arg = new_value(b->func, source->arg->type, NULL);
        block->arg->block = block;
        copy_value_facts(block->arg, source->arg);
        *tn_map_at(values, TN_KEY(source->arg)) = block->arg;
    }
    tn_lbuilder inner = tn_l_in(b, block);
    for (const tn_lop *op = source->first; op; op = op->next)
        tn_lop_clone(&inner, op, values);
}

tn_lop *tn_lop_clone(tn_lbuilder *b, const tn_lop *op, tn_map *values)
{
    tn_lop *to = tn_lop_new(b->func, op->code, op->operand, op->noperands);
    for (int i = 0; i < to->noperands; i++)
        to->operand[i] = mapped(values, to->operand[i]);
    to->fn = op->fn;
    to->kind = op->kind;
    to->turned = op->turned;
    to->number = op->number;
    to->size = op->size;
    to->at = op->at;
    to->instances = op->instances;
    to->lanes = op->lanes;
    to->name = op->name;
    to->stream = op->stream;
    to->contract = op->contract;
    to->scope = op->scope;
    to->line = op->line;
    to->nregions = op->nregions;
    tn_lop_insert(b, to);
    if (op->result) {
        tn_lop_result(b->func, to, op->result->type);
        copy_value_facts(to->result, op->result);
        *tn_map_at(values, TN_KEY(op->result)) = to->result;
    }
    for (int i = 0; i < op->nregions; i++)
        clone_region(b, to, op, i, values);
    return to;
}

/* ---- walks ---- */

void tn_l_walk(tn_lblock *block, void (*visit)(void *context, tn_lop *op), void *context)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        int nregions = op->nregions;
        tn_lblock *region[2] = {op->region[0], op->region[1]};
        visit(context, op);
        for (int i = 0; i < nregions; i++)
            tn_l_walk(region[i], visit, context);
    }
}

static void clear_op(void *context, tn_lop *op)
{
    (void)context;
    if (op->result)
        op->result->scratch = NULL;
    for (int i = 0; i < op->nregions; i++)
        if (op->region[i]->arg)
            op->region[i]->arg->scratch = NULL;
}

void tn_l_clear_scratch(tn_lfunc *func)
{
    for (size_t i = 0; i < func->params.len; i++)
        func->params.at[i]->scratch = NULL;
    for (size_t i = 0; i < func->maps.len; i++)
        func->maps.at[i].value->scratch = NULL;
    tn_l_walk(func->body, clear_op, NULL);
}

tn_lvalue *tn_l_resolve(tn_lvalue *v)
{
    tn_lvalue *to = v;
    while (to->scratch)
        to = to->scratch;
    for (tn_lvalue *next; v != to; v = next) { /* shorten the chain for the next asker */
        next = v->scratch;
        v->scratch = to;
    }
    return to;
}

void tn_l_resolve_operands(tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++)
        op->operand[i] = tn_l_resolve(op->operand[i]);
}

static void count_op(void *context, tn_lop *op)
{
    (void)op;
    ++*(size_t *)context;
}

size_t tn_loop_size(const tn_lfunc *func)
{
    size_t n = 0;
    tn_l_walk(func->body, count_op, &n);
    return n;
}

bool tn_l_shared_end(const tn_lop *alloc, int64_t *end)
{
    size_t bytes;
    return tn_dtype_bytes(alloc->result->type.dtype, alloc->size, &bytes) && bytes < (size_t)MOST_SHARED && tn_add(alloc->at, (int64_t)bytes, end) &&
           *end <= MOST_SHARED;
}

static void add_shared(void *context, tn_lop *op)
{
    int64_t *most = context, end;
    if (op->code == TN_L_alloc && op->result->type.space == TN_SPACE_SHARED && tn_l_shared_end(op, &end))
        *most = tn_max(*most, end);
}

int64_t tn_loop_shared_bytes(const tn_lfunc *func)
{
    int64_t most = 0;
    tn_l_walk(func->body, add_shared, &most);
    return most;
}
