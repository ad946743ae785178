/* Rules for a kernel's maps: what of CUDA's limits can be known before sizes are. Whoever launches the kernel checks the rest. */
#include <string.h>

#include "loop/internal.h"

enum { PIECE = 16 /* bytes that starts and strides are multiples of */ };
static const int64_t most_size = UINT32_MAX, most_stride = (INT64_C(1) << 40) - 1; /* elements, bytes */

tn_lvalue *tn_l_map_symbol(const tn_lfunc *func, const char *name)
{
    for (size_t i = (size_t)func->nbuffers; i < func->params.len; i++)
        if (func->params.at[i]->name && !strcmp(func->params.at[i]->name, name))
            return func->params.at[i];
    return NULL;
}

typedef struct symbol_check {
    const tn_lfunc *func;
    const char *fault;
} symbol_check;

/* The programs that one worker runs are no size. */
static void check_symbol(void *context, tn_dim symbol)
{
    symbol_check *c = context;
    const tn_lvalue *size = tn_l_map_symbol(c->func, symbol->name);
    if (!size || !strcmp(symbol->name, "begin") || !strcmp(symbol->name, "end"))
        c->fault = tn_format(tn_l_arena(c->func), "`%s` is no size that the kernel is called with", symbol->name);
    else if (size->holds != TN_NO_DTYPE && !tn_is_integer(size->holds))
        c->fault = tn_format(tn_l_arena(c->func), "%%%s holds no integer", symbol->name);
}

static const char *check_view(const tn_lfunc *func, const tn_lmap *map, int64_t bytes)
{
    tn_arena *arena = tn_l_arena(func);
    symbol_check symbols = {func, NULL};
    tn_dim_symbols(map->offset, check_symbol, &symbols);
    for (int i = 0; i < map->rank; i++) {
        tn_dim size = map->size[i], stride = map->stride[i];
        tn_dim_symbols(size, check_symbol, &symbols);
        tn_dim_symbols(stride, check_symbol, &symbols);
        if (tn_dim_is_const(size) && (size->value < 0 || size->value > most_size))
            return tn_format(arena, "a size is below 2^32, found %lld", (long long)size->value);
        if (i > 0 && !tn_dim_is(size, 1) && tn_dim_is_const(stride) && (stride->value < 0 || stride->value > most_stride / bytes || stride->value * bytes % PIECE))
            return tn_format(arena, "a stride is a multiple of %d bytes below 2^40, found %lld elements", PIECE, (long long)stride->value);
    }
    if (!tn_dim_is(map->stride[0], 1))
        return "the first dimension's elements are neighbours";
    if (tn_dim_is_const(map->offset) && (map->offset->value < 0 || map->offset->value % (PIECE / bytes)))
        return tn_format(arena, "it starts at a multiple of %d bytes, found %lld elements", PIECE, (long long)map->offset->value);
    return symbols.fault;
}

static const char *check_box(const tn_lfunc *func, const tn_lmap *map, int64_t bytes)
{
    tn_arena *arena = tn_l_arena(func);
    int64_t row = map->box[0] * bytes;
    for (int i = 0; i < map->rank; i++)
        if (map->box[i] < 1 || map->box[i] > TN_MAP_BOX)
            return tn_format(arena, "a box has 1 to %d elements along a dimension, found %d", TN_MAP_BOX, map->box[i]);
    if (row % PIECE)
        return tn_format(arena, "a row of a box is a multiple of %d bytes, found %lld", PIECE, (long long)row);
    if (map->swizzle != 0 && map->swizzle != 32 && map->swizzle != 64 && map->swizzle != 128)
        return "the swizzle is 0, 32, 64 or 128 bytes";
    return !map->swizzle || row == map->swizzle ? NULL : tn_format(arena, "a row of a box is the swizzle's %d bytes, found %lld", map->swizzle, (long long)row);
}

const char *tn_l_map_fault(const tn_lfunc *func, const tn_lmap *map)
{
    tn_ltype type = map->buffer->type;
    int bits = tn_dtype_bits(type.dtype);
    bool parameter = false;
    for (int i = 0; i < func->nbuffers; i++)
        parameter = parameter || func->params.at[i] == map->buffer;
    if (!func->threads)
        return "it is for a kernel with `threads`";
    if (!parameter || !tn_l_same_type(map->value->type, (tn_ltype){type.dtype, 1, true, TN_SPACE_MAP}))
        return "it is of a buffer that the kernel is called with, and of its type";
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        return tn_format(tn_l_arena(func), "its elements have 1, 2, 4 or 8 bytes, found %s", tn_dtype_text(type.dtype));
    if (map->rank < 1 || map->rank > TN_MAP_RANK)
        return tn_format(tn_l_arena(func), "it has 1 to %d dimensions, found %d", TN_MAP_RANK, map->rank);
    const char *fault = check_box(func, map, bits / 8);
    return fault ? fault : check_view(func, map, bits / 8);
}
