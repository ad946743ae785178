/* Builtins that combine elements: reductions, scans, sorting.
 *
 * Triton's combine functions come without an identity, and lowerings are better with one. So the region that a function compiles to is looked at: each
 * part by a known function of its own (add, mul, max, min, maxnum, minnum, and, or, xor), or the choice that argmax and argmin make. Anything else goes
 * without identities: the first element that is there starts. */
#include "triton/builtin.h"

#include <math.h>
#include <string.h>

/* ---- identities ------------------------------------------------------------------------------------------------------ */

/* false: the function has none. Of NaN alone maxnum and minnum make NaN, so that, and nothing else, is theirs. */
static bool identity_of(tn_scalar fn, tn_dtype dtype, tn_number *out)
{
    if (fn != TN_S_maxnum && fn != TN_S_minnum)
        return tn_scalar_identity(fn, dtype, out);
    *out = (tn_number){.f = NAN};
    return tn_is_float(dtype);
}

/* fn(a_k, b_k), in this order or the other if that is the same. */
static tn_scalar fn_of_part(const tn_tblock *region, int n, int k, const tn_tvalue *v)
{
    const tn_top *op = v->def;
    if (!op || op->code != TN_T_map || op->noperands != 2)
        return TN_SCALAR_NONE;
    const tn_tvalue *a = &region->arg[k], *b = &region->arg[n + k];
    bool straight = op->operand[0] == a && op->operand[1] == b, swapped = op->operand[0] == b && op->operand[1] == a;
    return straight || (swapped && (tn_scalar_traits(op->fn) & TN_SCALAR_COMMUTES)) ? op->fn : TN_SCALAR_NONE;
}

static bool identities_of_parts(const tn_tblock *region, int n, tn_number *out)
{
    bool all = true;
    for (int k = 0; all && k < n; k++)
        all = identity_of(fn_of_part(region, n, k, region->last->operand[k]), region->arg[k].type.dtype, &out[k]);
    return all;
}

static bool is_map(const tn_tvalue *v, tn_scalar fn) { return v->def && v->def->code == TN_T_map && v->def->fn == fn; }

/* v is fn(x, y), or what a comparison is the other way round. */
static bool compares(const tn_tvalue *v, tn_scalar fn, const tn_tvalue *x, const tn_tvalue *y)
{
    tn_scalar other = fn == TN_S_gt ? TN_S_lt : fn == TN_S_lt ? TN_S_gt : fn;
    tn_tvalue *const *at = v->def ? v->def->operand : NULL;
    return (is_map(v, fn) && at[0] == x && at[1] == y) || (is_map(v, other) && at[0] == y && at[1] == x);
}

/* a_0 > b_0, or a_0 == b_0 and a_1 < b_1: the greater value, of equal ones the lower index. `better`: gt for argmax, lt for argmin. */
static bool picks_lower_index(const tn_tvalue *v, const tn_tblock *region, int n, tn_scalar better)
{
    const tn_tvalue *a = region->arg, *b = region->arg + n;
    if (!is_map(v, TN_S_or))
        return false;
    for (int i = 0; i < 2; i++) {
        const tn_tvalue *greater = v->def->operand[i], *tie = v->def->operand[1 - i];
        if (!compares(greater, better, &a[0], &b[0]) || !is_map(tie, TN_S_and))
            continue;
        for (int k = 0; k < 2; k++)
            if (compares(tie->def->operand[k], TN_S_eq, &a[0], &b[0]) && compares(tie->def->operand[1 - k], TN_S_lt, &a[1], &b[1]))
                return true;
    }
    return false;
}

/* The identity of argmax is the lowest value with the highest index. It is one from both sides but for a NaN: NaN is not greater, so that a lane that saw
 * no element would win over it, and give an index that is nowhere. The region is changed to prefer a to just this b. */
static void prefer_element(tn_tcompiler *c, tn_tblock *region, int n, tn_top *yield, tn_tvalue *condition, const tn_number *identity)
{
    yield->prev->next = NULL; /* a new one ends the region */
    region->last = yield->prev;
    tn_tbuilder b = tn_tbuilder_at(c->kernel, region, c->b.loc);
    tn_tvalue *value = tn_t_const(&b, tn_tscalar(region->arg[n].type.dtype), identity[0]);
    tn_tvalue *index = tn_t_const(&b, tn_tscalar(region->arg[n + 1].type.dtype), identity[1]);
    tn_tvalue *empty = tn_t_map2(&b, TN_S_and, tn_t_map2(&b, TN_S_eq, &region->arg[n], value), tn_t_map2(&b, TN_S_eq, &region->arg[n + 1], index));
    tn_tvalue *choice = tn_t_map2(&b, TN_S_or, condition, empty), *chosen[TN_TILE_COMBINED];
    for (int k = 0; k < n; k++)
        chosen[k] = tn_t_map3(&b, TN_S_select, choice, &region->arg[k], &region->arg[n + k]);
    tn_t_yield(&b, chosen, n);
}

static bool identities_of_choice(tn_tcompiler *c, tn_tblock *region, int n, tn_number *out)
{
    tn_top *yield = region->last;
    tn_tvalue *condition = NULL;
    for (int k = 0; k < n; k++) {
        const tn_tvalue *v = yield->operand[k];
        if (!is_map(v, TN_S_select) || v->def->operand[1] != &region->arg[k] || v->def->operand[2] != &region->arg[n + k] ||
            (condition && v->def->operand[0] != condition))
            return false;
        condition = v->def->operand[0];
    }
    tn_dtype value = region->arg[0].type.dtype, index = n > 1 ? region->arg[1].type.dtype : TN_BOOL;
    bool greatest = n > 1 && picks_lower_index(condition, region, n, TN_S_gt), least = n > 1 && picks_lower_index(condition, region, n, TN_S_lt);
    if ((!greatest && !least) || !tn_is_integer(index))
        return false;
    for (int k = 2; k < n; k++)
        out[k] = (tn_number){0};
    out[0] = greatest ? tn_number_lowest(value) : tn_number_highest(value);
    out[1] = tn_number_highest(index);
    if (tn_is_float(value))
        prefer_element(c, region, n, yield, condition, out);
    return true;
}

/* ---- regions --------------------------------------------------------------------------------------------------------- */

/* The function as a region of 2n scalars; *known: its identities. */
static bool combine_region(tn_tcompiler *c, const tn_ast *at, const tn_py *fn, tn_tvalue *const *tiles, int n, tn_tblock **out, tn_number *identities, bool *known)
{
    tn_ttype types[TN_TILE_COMBINED];
    tn_tblock *region = TN_NEW(&c->session->arena, tn_tblock);
    if (fn->kind != TN_PY_FUNCTION && fn->kind != TN_PY_LAMBDA)
        return tn_t_error(c, at, "the combine function must be a @triton.jit function, found %s", tn_t_describe(c, fn));
    for (int i = 0; i < 2 * n; i++) {
        types[i % n] = tn_tscalar(tiles[i % n]->type.dtype);
        tn_tblock_arg(c->kernel, region, types[i % n], NULL);
    }
    if (!tn_t_combine(c, at, fn, region, types, n))
        return false;
    *known = identities_of_parts(region, n, identities) || identities_of_choice(c, region, n, identities);
    *out = region;
    return true;
}

static void set_region(tn_top *op, tn_tblock *region)
{
    op->region[0] = region;
    region->parent = op;
}

/* fn(a, b) on one tile; the type accepts it. */
static bool named_region(tn_tcompiler *c, const tn_ast *at, const tn_py *name, tn_dtype dtype, tn_scalar *out, tn_number *identity)
{
    const char *text;
    if (!tn_t_string(c, at, name, "the name of a function", &text))
        return false;
    tn_scalar fn = text ? tn_scalar_from_name(text) : TN_SCALAR_NONE;
    if (dtype == TN_BOOL && fn == TN_S_add)
        fn = TN_S_xor;
    if ((fn == TN_S_maxnum || fn == TN_S_minnum) && !tn_is_float(dtype))
        fn = fn == TN_S_maxnum ? TN_S_max : TN_S_min;
    *out = fn;
    bool fits = fn != TN_SCALAR_NONE && tn_scalar_arity(fn) == 2 && tn_scalar_accepts(fn, dtype) && identity_of(fn, dtype, identity);
    return fits || tn_t_error(c, at, "no combining of %s by '%s'", tn_t_dtype_name(dtype), text ? text : "None");
}

/* The inputs: a tensor, or a tuple of tensors of one shape. */
static bool inputs_of(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_tvalue **tiles, int *n)
{
    const tn_py *item = tn_t_elements_of(v, n);
    if (*n < 1 || *n > TN_TILE_COMBINED)
        return tn_t_error(c, at, "%s takes 1 to %d tensors, found %d", what, TN_TILE_COMBINED, *n);
    for (int i = 0; i < *n; i++) {
        if (!tn_t_tensor_argument(c, at, &item[i], what, &tiles[i]))
            return false;
        if (tiles[i]->type.pointer)
            return tn_t_error(c, at, "%s of pointers", what);
        if (!tn_t_same_shape(&tiles[i]->type, &tiles[0]->type))
            return tn_t_error(c, at, "%s takes tensors of one shape, found %s and %s", what, tn_t_shape_text(c, &tiles[0]->type), tn_t_shape_text(c, &tiles[i]->type));
    }
    return true;
}

static tn_py values_of(tn_tcompiler *c, const tn_py *input, tn_tvalue *const *v, int n)
{
    tn_py items[TN_TILE_COMBINED];
    for (int i = 0; i < n; i++)
        items[i] = tn_py_tensor(v[i]);
    return input->kind == TN_PY_TUPLE ? tn_t_tuple(c, items, n) : items[0];
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

typedef struct reduction {
    tn_tvalue *tiles[TN_TILE_COMBINED];
    int n;
    int naxes, axis[TN_TILE_RANK];
    bool keep_dims;
} reduction;

/* axis None: all. */
static bool prepare(tn_tcompiler *c, const tn_call *call, reduction *r)
{
    if (!inputs_of(c, call->node, &call->argument[0], "a reduction", r->tiles, &r->n) || !tn_t_constant_bool(c, call->node, &call->argument[3], "keep_dims", &r->keep_dims))
        return false;
    int rank = r->tiles[0]->type.rank;
    if (tn_t_is_none(&call->argument[1])) {
        r->naxes = rank;
        for (int i = 0; i < rank; i++)
            r->axis[i] = i;
        return true;
    }
    if (rank == 0)
        return tn_t_error(c, call->node, "a reduction along an axis of a scalar");
    r->naxes = 1;
    return tn_t_axis(c, call->node, &call->argument[1], "the axis of a reduction", rank, &r->axis[0]);
}

static bool finish(tn_tcompiler *c, const tn_call *call, const reduction *r, tn_top *op, tn_py *out)
{
    tn_tvalue *results[TN_TILE_COMBINED];
    for (int i = 0; i < r->n; i++) {
        results[i] = op ? &op->result[i] : r->tiles[i];
        for (int a = 0; r->keep_dims && a < r->naxes; a++)
            if (!tn_t_expand_dims(c, call->node, results[i], r->axis[a], &results[i]))
                return false;
    }
    *out = values_of(c, &call->argument[0], results, r->n);
    return true;
}

bool tn_bi_reduce(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    reduction r;
    tn_tblock *region;
    tn_number identities[TN_TILE_COMBINED];
    bool known;
    if (!prepare(c, call, &r))
        return false;
    if (r.naxes == 0)
        return finish(c, call, &r, NULL, out);
    if (!combine_region(c, call->node, &call->argument[2], r.tiles, r.n, &region, identities, &known))
        return false;
    tn_top *op = tn_t_reduce(&c->b, r.tiles, r.n, r.naxes, r.axis, known ? identities : NULL);
    set_region(op, region);
    return finish(c, call, &r, op, out);
}

bool tn_bi_reduce_named(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    reduction r;
    tn_scalar fn;
    tn_number identity;
    if (!prepare(c, call, &r))
        return false;
    tn_dtype dtype = r.tiles[0]->type.dtype;
    if (r.n != 1)
        return tn_t_error(c, call->node, "a reduction by a named function takes one tensor");
    if (!named_region(c, call->node, &call->argument[2], dtype, &fn, &identity))
        return false;
    if (r.naxes == 0)
        return finish(c, call, &r, NULL, out);
    tn_top *op = tn_t_reduce(&c->b, r.tiles, 1, r.naxes, r.axis, &identity);
    tn_t_combine_fn(&c->b, op->region[0], fn, dtype);
    return finish(c, call, &r, op, out);
}

/* ---- scans ----------------------------------------------------------------------------------------------------------- */

static bool scan_arguments(tn_tcompiler *c, const tn_call *call, tn_tvalue **tiles, int *n, int *axis, bool *reverse)
{
    if (!inputs_of(c, call->node, &call->argument[0], "a scan", tiles, n) || !tn_t_constant_bool(c, call->node, &call->argument[3], "reverse", reverse))
        return false;
    if (tiles[0]->type.rank == 0)
        return tn_t_error(c, call->node, "a scan of a scalar");
    return tn_t_axis(c, call->node, &call->argument[1], "the axis of a scan", tiles[0]->type.rank, axis);
}

static bool scanned(tn_tcompiler *c, const tn_call *call, tn_top *op, int n, tn_py *out)
{
    tn_tvalue *results[TN_TILE_COMBINED];
    for (int i = 0; i < n; i++)
        results[i] = &op->result[i];
    *out = values_of(c, &call->argument[0], results, n);
    return true;
}

bool tn_bi_scan(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *tiles[TN_TILE_COMBINED];
    tn_tblock *region;
    tn_number identities[TN_TILE_COMBINED];
    int n, axis;
    bool reverse, known;
    if (!scan_arguments(c, call, tiles, &n, &axis, &reverse) ||
        !combine_region(c, call->node, &call->argument[2], tiles, n, &region, identities, &known))
        return false;
    tn_top *op = tn_t_scan(&c->b, tiles, n, axis, reverse, known ? identities : NULL);
    set_region(op, region);
    return scanned(c, call, op, n, out);
}

bool tn_bi_scan_named(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *tiles[TN_TILE_COMBINED];
    tn_number identity;
    tn_scalar fn;
    int n, axis;
    bool reverse;
    if (!scan_arguments(c, call, tiles, &n, &axis, &reverse))
        return false;
    tn_dtype dtype = tiles[0]->type.dtype;
    if (n != 1)
        return tn_t_error(c, call->node, "a scan by a named function takes one tensor");
    if (!named_region(c, call->node, &call->argument[2], dtype, &fn, &identity))
        return false;
    tn_top *op = tn_t_scan(&c->b, tiles, 1, axis, reverse, &identity);
    tn_t_combine_fn(&c->b, op->region[0], fn, dtype);
    return scanned(c, call, op, 1, out);
}

/* ---- order ----------------------------------------------------------------------------------------------------------- */

/* NaN counts as the greatest number, so that the order is total. */
static void fill_before(tn_tcompiler *c, tn_tblock *region, bool descending)
{
    tn_tbuilder b = tn_tbuilder_at(c->kernel, region, c->b.loc);
    tn_tvalue *x = &region->arg[0], *y = &region->arg[1];
    tn_tvalue *before = tn_t_map2(&b, descending ? TN_S_gt : TN_S_lt, x, y);
    if (tn_is_float(x->type.dtype)) {
        tn_tvalue *nan = descending ? x : y, *number = descending ? y : x;
        tn_tvalue *is_nan = tn_t_map2(&b, TN_S_ne, nan, nan), *is_number = tn_t_map2(&b, TN_S_eq, number, number);
        before = tn_t_map2(&b, TN_S_or, before, tn_t_map2(&b, TN_S_and, is_nan, is_number));
    }
    tn_t_yield(&b, &before, 1);
}

bool tn_bi_sort(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x;
    bool descending;
    int axis;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "what is sorted", &x) ||
        !tn_t_axis(c, call->node, &call->argument[1], "the axis of sort", x->type.rank, &axis) ||
        !tn_t_constant_bool(c, call->node, &call->argument[2], "descending", &descending))
        return false;
    if (x->type.pointer)
        return tn_t_error(c, call->node, "sort of pointers");
    tn_top *op = tn_t_sort(&c->b, &x, 1, axis);
    fill_before(c, op->region[0], descending);
    *out = tn_py_tensor(op->result);
    return true;
}

bool tn_bi_flip(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    tn_tvalue *x;
    int axis;
    if (!tn_t_tensor_argument(c, call->node, &call->argument[0], "what is flipped", &x) ||
        !tn_t_axis(c, call->node, &call->argument[1], "the axis of flip", x->type.rank, &axis))
        return false;
    int64_t n = x->type.extent[axis].size;
    tn_tvalue *back = tn_t_map2(&c->b, TN_S_sub, tn_t_index(&c->b, n - 1), tn_t_range(&c->b, tn_t_index(&c->b, 0), x->type.extent[axis]));
    tn_ttype type = x->type;
    type.dtype = TN_I64;
    type.pointer = false;
    *out = tn_py_tensor(tn_t_gather(&c->b, x, tn_t_broadcast(&c->b, back, type, &axis), axis));
    return true;
}
