/* Builtins that touch memory. All of them end in pointer tiles and masks: a block pointer or a descriptor is a base, sizes and strides, and an access
 * by it is base + sum of (offset_d + i_d) * stride_d where every checked offset_d + i_d lies in [0, shape_d), in 64 bits. */
#include "triton/builtin.h"

#include <math.h>
#include <string.h>

static bool done(tn_py *out, tn_tvalue *v)
{
    *out = tn_py_tensor(v);
    return true;
}

static bool nothing(tn_py *out)
{
    *out = tn_py_none();
    return true;
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

/* A hint that Triton does not know is an error as there. */
static bool one_of(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, const char *const *names, int n, const char **out)
{
    tn_text list = {.arena = &c->session->arena};
    if (!tn_t_string(c, at, v, what, out))
        return false;
    if (!*out || !**out)
        return true;
    for (int i = 0; i < n; i++) {
        if (strcmp(*out, names[i]) == 0)
            return true;
        tn_text_add(&list, "%s'%s'", i ? ", " : "", names[i]);
    }
    return tn_t_error(c, at, "%s is one of %s, found '%s'", what, list.at, *out);
}

/* What has an effect is `.cv`, don't cache and fetch again: such a load is volatile. *fresh: NULL for stores. The rest says how long a line is wanted in which
 * cache, which changes no value. */
static bool cache_options(tn_tcompiler *c, const tn_ast *at, const tn_py *modifier, const tn_py *eviction, bool *fresh)
{
    bool store = !fresh;
    static const char *const load_names[] = {".ca", ".cg", ".cv"}, *const store_names[] = {".wb", ".cg", ".cs", ".wt"};
    static const char *const evictions[] = {"evict_first", "evict_last"};
    const char *how, *unused;
    if (!one_of(c, at, modifier, "cache_modifier", store ? store_names : load_names, store ? 4 : 3, &how))
        return false;
    if (fresh)
        *fresh = how && strcmp(how, ".cv") == 0;
    return one_of(c, at, eviction, "eviction_policy", evictions, 2, &unused);
}

static bool padding_option(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype dtype, const char **out)
{
    static const char *const names[] = {"zero", "nan"};
    if (!one_of(c, at, v, "padding_option", names, 2, out))
        return false;
    if (*out && strcmp(*out, "nan") == 0 && !tn_is_float(dtype))
        return tn_t_error(c, at, "padding_option 'nan' is for floats, the elements are %s", tn_t_dtype_name(dtype));
    return true;
}

/* "acq_rel.gpu" */
static bool memory_order(tn_tcompiler *c, const tn_call *call, int sem, int scope, const char **out)
{
    static const char *const orders[] = {"acquire", "release", "acq_rel", "relaxed"}, *const scopes[] = {"gpu", "cta", "sys"};
    const char *order, *where;
    if (!one_of(c, call->node, &call->argument[sem], "sem", orders, 4, &order) || !one_of(c, call->node, &call->argument[scope], "scope", scopes, 3, &where))
        return false;
    *out = tn_format(&c->session->arena, "%s.%s", order && *order ? order : "acq_rel", where && *where ? where : "gpu");
    return true;
}

/* ---- masks and values ------------------------------------------------------------------------------------------------ */

static bool pointer_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_tvalue **out)
{
    if (v->kind != TN_PY_TENSOR || !v->tensor->type.pointer)
        return tn_t_error(c, at, "%s must be a pointer, found %s", what, tn_t_describe(c, v));
    *out = v->tensor;
    return true;
}

static bool no_block_for_scalar(tn_tcompiler *c, const tn_ast *at, const char *what, const tn_tvalue *v, const tn_tvalue *pointer)
{
    return pointer->type.rank || !v->type.rank ||
           tn_t_error(c, at, "%s has shape %s, pointer is a scalar; add an offset tensor to it, as tl.arange", what, tn_t_shape_text(c, &v->type));
}

/* What goes with the pointers, made their shape; the pointers may stretch to its shape (loads only). */
static bool fit_to_pointer(tn_tcompiler *c, const tn_ast *at, const char *what, tn_tvalue **v, tn_tvalue **pointer, bool pointers_stretch)
{
    const tn_ttype t = (*v)->type, p = (*pointer)->type;
    if (!no_block_for_scalar(c, at, what, *v, *pointer))
        return false;
    bool fits = true, grows = t.rank > p.rank;
    for (int i = 1; fits && i <= t.rank && i <= p.rank; i++) {
        int64_t n = t.extent[t.rank - i].size, m = p.extent[p.rank - i].size;
        fits = n == m || n == 1 || m == 1;
        grows |= m == 1 && n != 1;
    }
    if (!fits || (grows && !pointers_stretch))
        return tn_t_error(c, at, "%s has shape %s, pointer has shape %s", what, tn_t_shape_text(c, &t), tn_t_shape_text(c, &p));
    return tn_t_broadcast_pair(c, at, v, pointer);
}

/* NULL: none. */
static bool mask_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_tvalue **out)
{
    *out = NULL;
    if (v->kind == TN_PY_NONE)
        return true;
    if (tn_py_is_number(v))
        return tn_t_to_dtype(c, at, v, TN_BOOL, out);
    if (!tn_t_tensor_argument(c, at, v, "the mask", out))
        return false;
    return ((*out)->type.dtype == TN_BOOL && !(*out)->type.pointer) || tn_t_error(c, at, "the mask must be of int1, found %s", tn_t_describe(c, v));
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

static bool scalar_i64(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_tvalue **out)
{
    if (v->kind == TN_PY_TENSOR) {
        const tn_ttype *t = &v->tensor->type;
        if (t->pointer || tn_is_float(t->dtype) || tn_t_elements(t) != 1)
            return tn_t_error(c, at, "%s are integers, found %s", what, tn_t_describe(c, v));
        tn_tvalue *x = t->rank ? tn_t_reshape(&c->b, v->tensor, tn_tscalar(t->dtype)) : v->tensor;
        *out = tn_t_cast(&c->b, x, TN_I64);
        return true;
    }
    int64_t value;
    if (!tn_t_constant_int(c, at, v, what, &value))
        return false;
    *out = tn_t_index(&c->b, value);
    return true;
}

static bool scalars_i64(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int rank, tn_tvalue **out)
{
    int n;
    const tn_py *item = tn_t_elements_of(v, &n);
    if (n != rank)
        return tn_t_error(c, at, "%s are %d, for %d axes", what, n, rank);
    for (int i = 0; i < n; i++)
        if (!scalar_i64(c, at, &item[i], what, &out[i]))
            return false;
    return true;
}

/* axis of a tile from a tile of that axis alone */
static tn_tvalue *along(tn_tcompiler *c, tn_tvalue *x, const tn_ttype *shape, int axis)
{
    tn_ttype type = *shape;
    type.dtype = x->type.dtype;
    type.pointer = false;
    return shape->rank == 1 ? x : tn_t_broadcast(&c->b, x, type, &axis);
}

/* The tile of addresses, and where they may be used. index[d]: i64 along axis d, of shape->extent[d]. *mask: NULL: everywhere. */
static void block_addresses(tn_tcompiler *c, const tn_py_block *block, tn_tvalue *const *index, const bool *checked, const tn_ttype *shape, tn_tvalue **pointer,
                            tn_tvalue **mask)
{
    tn_tbuilder *b = &c->b;
    tn_tvalue *offset = NULL;
    *mask = NULL;
    for (int d = 0; d < block->rank; d++) {
        tn_tvalue *part = along(c, tn_t_map2(b, TN_S_mul, index[d], block->stride[d]), shape, d);
        offset = offset ? tn_t_map2(b, TN_S_add, offset, part) : part;
        if (!checked[d])
            continue;
        tn_tvalue *inside = tn_t_map2(b, TN_S_and, tn_t_map2(b, TN_S_ge, index[d], tn_t_index(b, 0)), tn_t_map2(b, TN_S_lt, index[d], block->shape[d]));
        inside = along(c, inside, shape, d);
        *mask = *mask ? tn_t_map2(b, TN_S_and, *mask, inside) : inside;
    }
    *pointer = tn_t_addptr(b, tn_t_stretch(c, block->base, shape), offset);
}

static tn_ttype block_tile(const tn_py_block *block)
{
    tn_ttype type = {.dtype = block->base->type.dtype, .rank = block->rank};
    for (int d = 0; d < block->rank; d++)
        type.extent[d] = tn_extent_const(block->extent[d]);
    return type;
}

static void block_indices(tn_tcompiler *c, const tn_py_block *block, tn_tvalue *const *offset, tn_tvalue **index)
{
    for (int d = 0; d < block->rank; d++)
        index[d] = tn_t_range(&c->b, offset[d], tn_extent_const(block->extent[d]));
}

static tn_tvalue *padding_tile(tn_tcompiler *c, const tn_ttype *type, bool nan_padding)
{
    return tn_t_const(&c->b, *type, nan_padding ? tn_number_from_double(type->dtype, NAN) : tn_number_from_int(type->dtype, 0));
}

static bool boundary_check(tn_tcompiler *c, const tn_ast *at, const tn_py *v, int rank, bool *checked)
{
    int64_t axes[TN_TILE_RANK];
    int n;
    if (v->kind == TN_PY_NONE)
        return true;
    if (!tn_t_ints(c, at, v, "boundary_check", TN_TILE_RANK, &n, axes))
        return false;
    for (int i = 0; i < n; i++) {
        if (axes[i] < 0 || axes[i] >= rank || checked[axes[i]])
            return tn_t_error(c, at, "boundary_check names axes of a block with %d of them, each once; found %lld", rank, (long long)axes[i]);
        checked[axes[i]] = true;
    }
    return true;
}

/* ---- load ------------------------------------------------------------------------------------------------------------ */

const char tn_t_volatile_order[] = "acquire.sys";

static tn_tvalue *load_lanes(tn_tcompiler *c, tn_tvalue *pointer, tn_tvalue *mask, tn_tvalue *other, bool is_volatile)
{
    if (!is_volatile)
        return tn_t_load_ptr(&c->b, pointer, mask, other);
    tn_tvalue *x = tn_t_atomic_load(&c->b, pointer, mask, tn_t_volatile_order);
    return mask && other ? tn_t_map3(&c->b, TN_S_select, mask, x, other) : x;
}

static bool load_block(tn_tcompiler *c, const tn_call *call, bool is_volatile, tn_py *out)
{
    const tn_py_block *block = call->argument[0].block;
    tn_ttype type = block_tile(block);
    tn_tvalue *index[TN_TILE_RANK], *pointer, *mask;
    bool checked[TN_TILE_RANK] = {false};
    const char *padding;
    if (!tn_t_is_none(&call->argument[1]) || !tn_t_is_none(&call->argument[2]))
        return tn_t_error(c, call->node, "a load by a block pointer takes boundary_check and padding_option, not mask and other");
    if (!boundary_check(c, call->node, &call->argument[3], block->rank, checked) ||
        !padding_option(c, call->node, &call->argument[4], type.dtype, &padding))
        return false;
    block_indices(c, block, block->offset, index);
    block_addresses(c, block, index, checked, &type, &pointer, &mask);
    bool padded = mask && padding && *padding;
    return done(out, load_lanes(c, pointer, mask, padded ? padding_tile(c, &type, strcmp(padding, "nan") == 0) : NULL, is_volatile));
}

/* The value of masked lanes, of the pointers' shape. */
static bool other_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_tvalue **pointer, tn_tvalue **out)
{
    *out = NULL;
    if (v->kind == TN_PY_NONE)
        return true;
    tn_dtype dtype = (*pointer)->type.dtype;
    if (tn_py_is_number(v)) {
        /* `other=0.5` of integers truncates, as the conversion of a tensor does */
        if (v->kind == TN_PY_FLOAT && !tn_is_float(dtype)) {
            if (!tn_t_to_tensor(c, at, v, out))
                return false;
            *out = tn_t_cast_value(c, *out, dtype, TN_T_ROUND_DEFAULT);
        } else {
            *out = tn_t_scalar_const(c, dtype, tn_t_number(v, dtype));
        }
    } else if (!tn_t_tensor_argument(c, at, v, "other", out)) {
        return false;
    }
    if ((*out)->type.pointer)
        return tn_t_error(c, at, "other must be numbers, found %s", tn_t_describe(c, v));
    *out = tn_t_cast_value(c, *out, dtype, TN_T_ROUND_DEFAULT);
    return fit_to_pointer(c, at, "other", out, pointer, true);
}

bool tn_bi_load(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_ast *at = call->node;
    const tn_py *a = call->argument;
    tn_tvalue *pointer, *mask, *other;
    bool is_volatile, fresh;
    if (!cache_options(c, at, &a[5], &a[6], &fresh) || !tn_t_constant_bool(c, at, &a[7], "volatile", &is_volatile))
        return false;
    is_volatile |= fresh;
    if (a[0].kind == TN_PY_BLOCK_POINTER)
        return load_block(c, call, is_volatile, out);
    if (a[0].kind == TN_PY_DESCRIPTOR)
        return tn_t_error(c, at, "a tensor descriptor is loaded by descriptor.load([offsets])");
    if (!pointer_argument(c, at, &a[0], "what is loaded from", &pointer))
        return false;
    bool checks = a[3].kind != TN_PY_NONE && !(a[3].kind == TN_PY_TUPLE && a[3].n == 0), pads = a[4].kind == TN_PY_STRING && a[4].length;
    if (checks || pads)
        return tn_t_error(c, at, "boundary_check and padding_option are for block pointers, whose bounds are known; here use mask and other");
    if (tn_t_is_none(&a[1]) && !tn_t_is_none(&a[2]))
        return tn_t_error(c, at, "other needs a mask");
    if (!mask_argument(c, at, &a[1], &mask) || (mask && !fit_to_pointer(c, at, "mask", &mask, &pointer, true)) ||
        !other_argument(c, at, &a[2], &pointer, &other))
        return false;
    if (mask)
        mask = tn_t_stretch(c, mask, &pointer->type);
    return done(out, load_lanes(c, pointer, mask, other, is_volatile));
}

/* ---- store ----------------------------------------------------------------------------------------------------------- */

/* A value as one of what the pointers point to: floats stored to integers truncate. */
static bool value_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype dtype, tn_tvalue **out)
{
    tn_py tensor = *v;
    if (v->kind == TN_PY_FLOAT && !tn_is_float(dtype)) {
        if (!tn_t_to_tensor(c, at, v, out))
            return false;
        tensor = tn_py_tensor(*out);
    }
    return tn_t_to_dtype(c, at, &tensor, dtype, out);
}

static bool store_block(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py_block *block = call->argument[0].block;
    tn_ttype type = block_tile(block);
    tn_tvalue *index[TN_TILE_RANK], *pointer, *mask, *value;
    bool checked[TN_TILE_RANK] = {false};
    if (!tn_t_is_none(&call->argument[2]))
        return tn_t_error(c, call->node, "a store by a block pointer takes boundary_check, not a mask");
    if (!boundary_check(c, call->node, &call->argument[3], block->rank, checked) ||
        !value_argument(c, call->node, &call->argument[1], type.dtype, &value))
        return false;
    if (value->type.rank && !tn_t_same_shape(&value->type, &type))
        return tn_t_error(c, call->node, "value has shape %s, the block has shape %s", tn_t_shape_text(c, &value->type), tn_t_shape_text(c, &type));
    block_indices(c, block, block->offset, index);
    block_addresses(c, block, index, checked, &type, &pointer, &mask);
    tn_t_store_ptr(&c->b, pointer, tn_t_stretch(c, value, &type), mask);
    return nothing(out);
}

bool tn_bi_store(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_ast *at = call->node;
    const tn_py *a = call->argument;
    tn_tvalue *pointer, *value, *mask;
    if (!cache_options(c, at, &a[4], &a[5], NULL))
        return false;
    if (a[0].kind == TN_PY_BLOCK_POINTER)
        return store_block(c, call, out);
    if (a[0].kind == TN_PY_DESCRIPTOR)
        return tn_t_error(c, at, "a tensor descriptor is stored to by descriptor.store([offsets], value)");
    if (!pointer_argument(c, at, &a[0], "what is stored to", &pointer))
        return false;
    if (a[3].kind != TN_PY_NONE && !(a[3].kind == TN_PY_TUPLE && a[3].n == 0))
        return tn_t_error(c, at, "boundary_check is for block pointers, whose bounds are known; here use a mask");
    if (!value_argument(c, at, &a[1], pointer->type.dtype, &value) || !mask_argument(c, at, &a[2], &mask) ||
        !fit_to_pointer(c, at, "value", &value, &pointer, false) || (mask && !fit_to_pointer(c, at, "mask", &mask, &pointer, false)))
        return false;
    tn_t_store_ptr(&c->b, pointer, value, mask);
    return nothing(out);
}

/* ---- block pointers, descriptors ------------------------------------------------------------------------------------- */

static bool new_block(tn_tcompiler *c, const tn_call *call, const tn_py *base, const tn_py *shape, const tn_py *strides, const tn_py *extents, tn_py_block **out)
{
    tn_py_block *block = TN_NEW(&c->session->arena, tn_py_block);
    if (!pointer_argument(c, call->node, base, "the base", &block->base))
        return false;
    if (block->base->type.rank)
        return tn_t_error(c, call->node, "the base must be one pointer, found %s", tn_t_describe(c, base));
    if (!tn_t_shape(c, call->node, extents, "block_shape", &block->rank, block->extent))
        return false;
    *out = block;
    return scalars_i64(c, call->node, shape, "the sizes in shape", block->rank, block->shape) &&
           scalars_i64(c, call->node, strides, "the strides", block->rank, block->stride);
}

static bool check_order(tn_tcompiler *c, const tn_ast *at, const tn_py *v, int rank)
{
    int64_t order[TN_TILE_RANK];
    bool seen[TN_TILE_RANK] = {false};
    int n;
    if (!tn_t_ints(c, at, v, "order", TN_TILE_RANK, &n, order))
        return false;
    for (int i = 0; i < n; i++) {
        if (n != rank || order[i] < 0 || order[i] >= n || seen[order[i]])
            return tn_t_error(c, at, "order must name the axes 0 to %d in some order", rank - 1);
        seen[order[i]] = true;
    }
    return n == rank || tn_t_error(c, at, "order must name the axes 0 to %d in some order", rank - 1);
}

bool tn_bi_make_block_ptr(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *a = call->argument;
    tn_py_block *block = NULL;
    if (!new_block(c, call, &a[0], &a[1], &a[2], &a[4], &block) || !scalars_i64(c, call->node, &a[3], "the offsets", block->rank, block->offset) ||
        !check_order(c, call->node, &a[5], block->rank))
        return false;
    *out = (tn_py){.kind = TN_PY_BLOCK_POINTER, .block = block};
    return true;
}

bool tn_bi_advance(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *base = &call->argument[0];
    tn_tvalue *by[TN_TILE_RANK];
    if (base->kind != TN_PY_BLOCK_POINTER)
        return tn_t_error(c, call->node, "advance moves a block pointer, found %s", tn_t_describe(c, base));
    tn_py_block *block = tn_memdup(&c->session->arena, base->block, sizeof *block);
    if (!scalars_i64(c, call->node, &call->argument[1], "the offsets of advance", block->rank, by))
        return false;
    for (int d = 0; d < block->rank; d++)
        block->offset[d] = tn_t_map2(&c->b, TN_S_add, block->offset[d], by[d]);
    *out = (tn_py){.kind = TN_PY_BLOCK_POINTER, .block = block};
    return true;
}

bool tn_bi_make_descriptor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *a = call->argument;
    tn_py_block *block = NULL;
    const char *padding;
    int n;
    if (!new_block(c, call, &a[0], &a[1], &a[2], &a[3], &block) || !padding_option(c, call->node, &a[4], block->base->type.dtype, &padding))
        return false;
    if (block->rank < 1 || block->rank > 5)
        return tn_t_error(c, call->node, "a tensor descriptor has 1 to 5 axes, found %d", block->rank);
    const tn_py *stride = tn_t_elements_of(&a[2], &n);
    if (!tn_t_is_static(&stride[n - 1], 1))
        return tn_t_error(c, call->node, "the last stride of a tensor descriptor must be the constant 1, found %s", tn_t_describe(c, &stride[n - 1]));
    block->nan_padding = padding && strcmp(padding, "nan") == 0;
    *out = (tn_py){.kind = TN_PY_DESCRIPTOR, .block = block};
    return true;
}

static bool descriptor_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_py_block **out)
{
    *out = v->block;
    return v->kind == TN_PY_DESCRIPTOR || tn_t_error(c, at, "expected a tensor descriptor, found %s", tn_t_describe(c, v));
}

static const bool all_checked[TN_TILE_RANK] = {true, true, true, true, true, true};

static bool descriptor_addresses(tn_tcompiler *c, const tn_ast *at, const tn_py_block *block, const tn_py *offsets, tn_tvalue **pointer, tn_tvalue **mask)
{
    tn_ttype type = block_tile(block);
    tn_tvalue *offset[TN_TILE_RANK], *index[TN_TILE_RANK];
    if (!scalars_i64(c, at, offsets, "the offsets of a tensor descriptor", block->rank, offset))
        return false;
    block_indices(c, block, offset, index);
    block_addresses(c, block, index, all_checked, &type, pointer, mask);
    return true;
}

static bool descriptor_value(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_ttype *type, tn_tvalue **out)
{
    if (v->kind != TN_PY_TENSOR || !tn_t_same_shape(&v->tensor->type, type))
        return tn_t_error(c, at, "a tensor with the shape %s goes to this descriptor, found %s", tn_t_shape_text(c, type), tn_t_describe(c, v));
    return tn_t_to_dtype(c, at, v, type->dtype, out);
}

bool tn_bi_load_descriptor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py_block *block;
    tn_tvalue *pointer, *mask;
    bool fresh = false;
    if (!descriptor_argument(c, call->node, &call->argument[0], &block) ||
        (call->n > 2 && !cache_options(c, call->node, &call->argument[2], &call->argument[3], &fresh)) ||
        !descriptor_addresses(c, call->node, block, &call->argument[1], &pointer, &mask))
        return false;
    tn_ttype type = block_tile(block);
    return done(out, load_lanes(c, pointer, mask, padding_tile(c, &type, block->nan_padding), fresh));
}

bool tn_bi_store_descriptor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py_block *block;
    tn_tvalue *pointer, *mask, *value;
    if (!descriptor_argument(c, call->node, &call->argument[0], &block))
        return false;
    tn_ttype type = block_tile(block);
    if (!descriptor_value(c, call->node, &call->argument[2], &type, &value) ||
        !descriptor_addresses(c, call->node, block, &call->argument[1], &pointer, &mask))
        return false;
    tn_t_store_ptr(&c->b, pointer, value, mask);
    return nothing(out);
}

/* Rows by index: the block has one row, the tile as many as indices. */
static bool row_addresses(tn_tcompiler *c, const tn_ast *at, const tn_py_block *block, const tn_py *rows, const tn_py *column, tn_ttype *type, tn_tvalue **pointer,
                          tn_tvalue **mask)
{
    tn_tvalue *index[2], *start = NULL;
    if (block->rank != 2 || block->extent[0] != 1)
        return tn_t_error(c, at, "gather and scatter need a descriptor with blocks of one row and two axes");
    if (rows->kind != TN_PY_TENSOR || rows->tensor->type.rank != 1 || rows->tensor->type.pointer || !tn_is_integer(rows->tensor->type.dtype))
        return tn_t_error(c, at, "x_offsets must be integers along one axis, found %s", tn_t_describe(c, rows));
    if (!scalar_i64(c, at, column, "y_offset", &start))
        return false;
    *type = block_tile(block);
    type->extent[0] = rows->tensor->type.extent[0];
    index[0] = tn_t_cast(&c->b, rows->tensor, TN_I64);
    index[1] = tn_t_range(&c->b, start, type->extent[1]);
    block_addresses(c, block, index, all_checked, type, pointer, mask);
    return true;
}

bool tn_bi_gather_descriptor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py_block *block;
    tn_tvalue *pointer, *mask;
    tn_ttype type;
    return descriptor_argument(c, call->node, &call->argument[0], &block) &&
           row_addresses(c, call->node, block, &call->argument[1], &call->argument[2], &type, &pointer, &mask) &&
           done(out, tn_t_load_ptr(&c->b, pointer, mask, padding_tile(c, &type, block->nan_padding)));
}

bool tn_bi_scatter_descriptor(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py_block *block;
    tn_tvalue *pointer, *mask, *value;
    tn_ttype type;
    if (!descriptor_argument(c, call->node, &call->argument[0], &block) ||
        !row_addresses(c, call->node, block, &call->argument[2], &call->argument[3], &type, &pointer, &mask) ||
        !descriptor_value(c, call->node, &call->argument[1], &type, &value))
        return false;
    tn_t_store_ptr(&c->b, pointer, value, mask);
    return nothing(out);
}

/* ---- atomics --------------------------------------------------------------------------------------------------------- */

typedef enum atomic_kind { ATOMIC_ADD, ATOMIC_MAX, ATOMIC_MIN, ATOMIC_AND, ATOMIC_OR, ATOMIC_XOR, ATOMIC_XCHG } atomic_kind;
static const struct {
    const char *name;
    tn_scalar fn;
    bool bitwise;
} atomics[] = {
    [ATOMIC_ADD] = {"atomic_add", TN_S_add, false}, [ATOMIC_MAX] = {"atomic_max", TN_S_max, false},         [ATOMIC_MIN] = {"atomic_min", TN_S_min, false},
    [ATOMIC_AND] = {"atomic_and", TN_S_and, true},  [ATOMIC_OR] = {"atomic_or", TN_S_or, true},             [ATOMIC_XOR] = {"atomic_xor", TN_S_xor, true},
    [ATOMIC_XCHG] = {"atomic_xchg", TN_SCALAR_NONE, false},
};

/* Triton's: 32 and 64 bits, and sums of halfs. */
static bool atomic_type(tn_tcompiler *c, const tn_ast *at, atomic_kind kind, tn_dtype dtype)
{
    bool half = dtype == TN_F16 || dtype == TN_BF16;
    if ((half && kind != ATOMIC_ADD) || (!half && tn_dtype_bits(dtype) < 32))
        return tn_t_error(c, at, "%s is of 32 and 64 bits%s, found %s", atomics[kind].name, kind == ATOMIC_ADD ? " and of half precision" : "",
                          tn_t_dtype_name(dtype));
    return !atomics[kind].bitwise || !tn_is_float(dtype) || tn_t_error(c, at, "%s is of integers, found %s", atomics[kind].name, tn_t_dtype_name(dtype));
}

static bool atomic(tn_tcompiler *c, const tn_call *call, atomic_kind kind, tn_py *out)
{
    const tn_py *a = call->argument;
    const tn_ast *at = call->node;
    tn_tvalue *pointer, *value, *mask;
    const char *order;
    if (!pointer_argument(c, at, &a[0], "what an atomic changes", &pointer) || !atomic_type(c, at, kind, pointer->type.dtype) ||
        !value_argument(c, at, &a[1], pointer->type.dtype, &value) || !mask_argument(c, at, &a[2], &mask) || !memory_order(c, call, 3, 4, &order) ||
        !fit_to_pointer(c, at, "value", &value, &pointer, false) || (mask && !fit_to_pointer(c, at, "mask", &mask, &pointer, false)))
        return false;
    return done(out, tn_t_atomic_ptr(&c->b, atomics[kind].fn, pointer, value, mask, order));
}

bool tn_bi_atomic_add(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_ADD, out); }
bool tn_bi_atomic_max(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_MAX, out); }
bool tn_bi_atomic_min(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_MIN, out); }
bool tn_bi_atomic_and(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_AND, out); }
bool tn_bi_atomic_or(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_OR, out); }
bool tn_bi_atomic_xor(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_XOR, out); }
bool tn_bi_atomic_xchg(tn_tcompiler *c, const tn_call *call, tn_py *out) { return atomic(c, call, ATOMIC_XCHG, out); }

bool tn_bi_atomic_cas(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    const tn_py *a = call->argument;
    const tn_ast *at = call->node;
    tn_tvalue *pointer, *expected, *value;
    const char *order;
    if (!pointer_argument(c, at, &a[0], "what atomic_cas changes", &pointer))
        return false;
    tn_dtype dtype = pointer->type.dtype;
    if (tn_dtype_bits(dtype) < 16)
        return tn_t_error(c, at, "atomic_cas is of 16, 32 and 64 bits, found %s", tn_t_dtype_name(dtype));
    if (!value_argument(c, at, &a[1], dtype, &expected) || !value_argument(c, at, &a[2], dtype, &value) || !memory_order(c, call, 3, 4, &order) ||
        !fit_to_pointer(c, at, "cmp", &expected, &pointer, false) || !fit_to_pointer(c, at, "val", &value, &pointer, false))
        return false;
    return done(out, tn_t_cas_ptr(&c->b, pointer, expected, value, order));
}

/* Of a descriptor: elements outside are left alone, there is no result. */
static bool descriptor_atomic(tn_tcompiler *c, const tn_call *call, atomic_kind kind, tn_py *out)
{
    const tn_py_block *block;
    tn_tvalue *pointer, *mask, *value;
    if (!descriptor_argument(c, call->node, &call->argument[0], &block))
        return false;
    tn_ttype type = block_tile(block);
    if (!atomic_type(c, call->node, kind, type.dtype) || !descriptor_value(c, call->node, &call->argument[2], &type, &value) ||
        !descriptor_addresses(c, call->node, block, &call->argument[1], &pointer, &mask))
        return false;
    tn_t_atomic_ptr(&c->b, atomics[kind].fn, pointer, value, mask, "relaxed.gpu");
    return nothing(out);
}

bool tn_bi_descriptor_add(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_ADD, out); }
bool tn_bi_descriptor_max(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_MAX, out); }
bool tn_bi_descriptor_min(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_MIN, out); }
bool tn_bi_descriptor_and(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_AND, out); }
bool tn_bi_descriptor_or(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_OR, out); }
bool tn_bi_descriptor_xor(tn_tcompiler *c, const tn_call *call, tn_py *out) { return descriptor_atomic(c, call, ATOMIC_XOR, out); }
