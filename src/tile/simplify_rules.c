/* tile-simplify, one operation at a time: constants, identities of scalar functions, chains of shapes and casts, operations on splats. */
#include "tile/simplify.h"

#include <math.h>
#include <string.h>

bool tn_same_constant(const tn_tvalue *a, const tn_tvalue *b)
{
    const tn_number *x = tn_tile_constant(a), *y = tn_tile_constant(b);
    return x && y && tn_ttype_same(&a->type, &b->type) && memcmp(x, y, sizeof *x) == 0;
}

/* ---- constants ------------------------------------------------------------------------------------------------------- */

static void become(tn_top *op, tn_topcode code, int noperands)
{
    op->code = code;
    op->fn = TN_SCALAR_NONE;
    op->noperands = noperands;
    op->naxes = 0;
}

static void become_constant(tn_top *op, tn_number number)
{
    become(op, TN_T_const, 0);
    op->number = number;
}

static void fold_map(tn_top *op)
{
    tn_number x[3];
    for (int i = 0; i < op->noperands; i++) {
        const tn_number *c = tn_tile_constant(op->operand[i]);
        if (!c)
            return;
        x[i] = *c;
    }
    become_constant(op, tn_scalar_eval(op->fn, op->operand[op->noperands - 1]->type.dtype, x));
}

static bool moves_elements(const tn_top *op)
{
    return op->code == TN_T_broadcast || op->code == TN_T_permute || op->code == TN_T_reshape || op->code == TN_T_slice;
}

static void fold_constant(tn_top *op)
{
    const tn_number *x = op->noperands == 1 ? tn_tile_constant(op->operand[0]) : NULL;
    if (op->code == TN_T_map)
        fold_map(op);
    else if (op->code == TN_T_size && tn_dim_is_const(op->dim))
        become_constant(op, tn_number_from_int(TN_I64, op->dim->value));
    else if (op->code == TN_T_cast && x)
        become_constant(op, tn_number_convert(*x, op->operand[0]->type.dtype, op->result->type.dtype));
    else if (moves_elements(op) && x)
        become_constant(op, *x);
}

/* ---- scalar functions ------------------------------------------------------------------------------------------------ */

enum { LEFT = 1, RIGHT = 2, EITHER = LEFT | RIGHT };
typedef enum neutral { NEUTRAL_ZERO, NEUTRAL_ONE, NEUTRAL_ONES /* all bits */ } neutral;

/* fn(x, number) = x: which operand may be the number. */
static const struct {
    tn_scalar fn;
    neutral number;
    unsigned side;
} neutrals[] = {
    {TN_S_add, NEUTRAL_ZERO, EITHER}, {TN_S_sub, NEUTRAL_ZERO, RIGHT}, {TN_S_mul, NEUTRAL_ONE, EITHER}, {TN_S_div, NEUTRAL_ONE, RIGHT},
    {TN_S_or, NEUTRAL_ZERO, EITHER},  {TN_S_xor, NEUTRAL_ZERO, EITHER}, {TN_S_and, NEUTRAL_ONES, EITHER}, {TN_S_shl, NEUTRAL_ZERO, RIGHT},
    {TN_S_shr_arith, NEUTRAL_ZERO, RIGHT}, {TN_S_shr_logical, NEUTRAL_ZERO, RIGHT},
};
/* fn(x, number) = number, on integers and bool. */
static const struct {
    tn_scalar fn;
    neutral number;
} absorbers[] = {{TN_S_mul, NEUTRAL_ZERO}, {TN_S_and, NEUTRAL_ZERO}, {TN_S_or, NEUTRAL_ONES}};

static bool is_number(const tn_tvalue *v, neutral number, tn_scalar fn)
{
    const tn_number *c = tn_tile_constant(v);
    tn_dtype dtype = v->type.dtype;
    if (!c || tn_is_complex(dtype))
        return false;
    if (tn_is_float(dtype)) /* -0 + 0 is 0: what leaves a sum alone is -0 */
        return number == NEUTRAL_ZERO ? c->f == 0 && (signbit(c->f) != 0) == (fn == TN_S_add) : number == NEUTRAL_ONE && c->f == 1;
    tn_number want = tn_number_from_int(dtype, number == NEUTRAL_ZERO ? 0 : 1);
    if (number == NEUTRAL_ONES && dtype != TN_BOOL)
        want = tn_scalar_eval(TN_S_not, dtype, (tn_number[]){tn_number_from_int(dtype, 0)});
    return tn_number_same(dtype, *c, want);
}

static tn_tvalue *binary_value(const tn_top *op)
{
    tn_tvalue *x = op->operand[0], *y = op->operand[1];
    if (x == y && (tn_scalar_traits(op->fn) & TN_SCALAR_IDEMPOTENT))
        return x;
    for (size_t i = 0; i < TN_COUNT(neutrals); i++) {
        if (neutrals[i].fn != op->fn)
            continue;
        if ((neutrals[i].side & RIGHT) && is_number(y, neutrals[i].number, op->fn))
            return x;
        if ((neutrals[i].side & LEFT) && is_number(x, neutrals[i].number, op->fn))
            return y;
    }
    for (size_t i = 0; i < TN_COUNT(absorbers) && !tn_is_float(x->type.dtype); i++) {
        if (absorbers[i].fn != op->fn)
            continue;
        if (is_number(y, absorbers[i].number, op->fn) && tn_fact_present(x))
            return y;
        if (is_number(x, absorbers[i].number, op->fn) && tn_fact_present(y))
            return x;
    }
    return NULL;
}

static tn_tvalue *select_value(const tn_top *op)
{
    tn_tvalue *c = op->operand[0], *x = op->operand[1], *y = op->operand[2];
    const tn_number *known = tn_tile_constant(c);
    if (known)
        return known->u ? x : y;
    if (x == y && tn_fact_present(c))
        return x;
    const tn_number *a = tn_tile_constant(x), *b = tn_tile_constant(y);
    return x->type.dtype == TN_BOOL && a && b && a->u && !b->u ? c : NULL;
}

/* ---- casts ----------------------------------------------------------------------------------------------------------- */

/* Does `to` hold every value of `from`? */
static bool holds_all(tn_dtype from, tn_dtype to)
{
    static const int digits[TN_DTYPE_COUNT] = {[TN_F8E4M3] = 4, [TN_F8E5M2] = 3, [TN_F16] = 11, [TN_BF16] = 8, [TN_F32] = 24, [TN_F64] = 53};
    static const int range[TN_DTYPE_COUNT] = /* greatest exponent */
        {[TN_F8E4M3] = 8, [TN_F8E5M2] = 15, [TN_F16] = 15, [TN_BF16] = 127, [TN_F32] = 127, [TN_F64] = 1023};
    if (from == to)
        return true;
    if (tn_is_complex(from) || tn_is_complex(to) || to == TN_BOOL)
        return false;
    bool is_signed = tn_dtype_class(from) == TN_CLASS_INT;
    int bits = from == TN_BOOL ? 1 : tn_dtype_bits(from) - is_signed;
    if (tn_is_float(to)) {
        if (tn_is_float(from))
            return digits[to] >= digits[from] && range[to] >= range[from] && tn_dtype_bits(to) > tn_dtype_bits(from);
        return digits[to] >= bits && range[to] >= bits;
    }
    if (tn_is_float(from) || (is_signed && tn_dtype_class(to) != TN_CLASS_INT))
        return false;
    return tn_dtype_bits(to) - (tn_dtype_class(to) == TN_CLASS_INT) >= bits;
}

/* cast of cast, the first of which changes no value. Back to integers floats saturate where integers wrap. */
static void merge_casts(tn_top *op)
{
    const tn_top *first = op->operand[0]->def;
    if (!first || first->code != TN_T_cast)
        return;
    tn_dtype from = first->operand[0]->type.dtype, middle = op->operand[0]->type.dtype, to = op->result->type.dtype;
    if (!holds_all(from, middle) || (!tn_is_float(from) && tn_is_float(middle) && !tn_is_float(to) && !holds_all(from, to)))
        return;
    op->operand[0] = first->operand[0];
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

/* The scalar that is every element of v; NULL: not known to be one. Constants are not meant. */
static tn_tvalue *splat_of(const tn_tvalue *v)
{
    const tn_top *op = v->def;
    return op && op->code == TN_T_broadcast && op->operand[0]->type.rank == 0 ? op->operand[0] : NULL;
}

/* reshape that only puts in axes of one element: the axis of the result that each of the operand's becomes. */
static bool inserts_axes(const tn_top *reshape, int *axes)
{
    const tn_ttype *from = &reshape->operand[0]->type, *to = &reshape->result->type;
    int n = 0;
    for (int i = 0; i < to->rank; i++)
        if (n < from->rank && tn_extent_same(from->extent[n], to->extent[i]))
            axes[n++] = i;
        else if (to->extent[i].size != 1)
            return false;
    return n == from->rank;
}

/* broadcast of what was broadcast, or given unit axes, before. */
static bool merge_broadcast(tn_top *op)
{
    const tn_top *first = op->operand[0]->def;
    int through[TN_TILE_RANK], n = 0;
    if (!first || (first->code != TN_T_broadcast && first->code != TN_T_reshape))
        return false;
    n = first->operand[0]->type.rank;
    if (first->code == TN_T_broadcast)
        memcpy(through, first->axis, sizeof through);
    else if (!inserts_axes(first, through))
        return false;
    for (int i = 0; i < n; i++)
        through[i] = op->axis[through[i]];
    memcpy(op->axis, through, sizeof op->axis[0] * (size_t)n);
    op->naxes = n;
    op->operand[0] = first->operand[0];
    return true;
}

static void merge_shapes(tn_top *op)
{
    tn_tvalue *scalar = moves_elements(op) ? splat_of(op->operand[0]) : NULL;
    if (scalar) {
        become(op, TN_T_broadcast, 1);
        op->operand[0] = scalar;
        op->number = (tn_number){0};
    } else if (op->code == TN_T_broadcast) {
        while (merge_broadcast(op))
            continue;
    } else if (op->code == TN_T_reshape && op->operand[0]->def && op->operand[0]->def->code == TN_T_reshape) {
        op->operand[0] = op->operand[0]->def->operand[0];
    }
}

/* ---- splats ---------------------------------------------------------------------------------------------------------- */

static bool is_elementwise(const tn_top *op)
{
    return op->code == TN_T_map || op->code == TN_T_cast || op->code == TN_T_bitcast || op->code == TN_T_addptr;
}

static tn_ttype element_of(const tn_ttype *type) { return (tn_ttype){.dtype = type->dtype, .pointer = type->pointer}; }

static tn_tvalue *insert(const tn_rules *rules, tn_top *at, tn_top *op)
{
    tn_top_move_before(op, at);
    return rules->visit(rules->context, op);
}

/* Elementwise on splats: on their scalars, and a splat of that. */
static void work_on_scalars(const tn_rules *rules, tn_top *op)
{
    tn_tvalue *x[3];
    bool any = false;
    for (int i = 0; i < op->noperands; i++) {
        x[i] = splat_of(op->operand[i]);
        any |= x[i] != NULL;
        if (!x[i] && !tn_tile_constant(op->operand[i]))
            return;
    }
    if (!any || !op->result->type.rank)
        return;
    tn_tblock aside = {.first = NULL};
    tn_tbuilder b = tn_tbuilder_at(rules->kernel, &aside, op->loc);
    for (int i = 0; i < op->noperands; i++)
        if (!x[i])
            x[i] = insert(rules, op, tn_t_const(&b, element_of(&op->operand[i]->type), *tn_tile_constant(op->operand[i]))->def);
    tn_top *scalar = tn_top_new(&b, op->code, x, op->noperands, 0);
    scalar->fn = op->fn;
    tn_ttype type = element_of(&op->result->type);
    tn_top_results(&b, scalar, &type, 1);
    op->operand[0] = insert(rules, op, scalar);
    become(op, TN_T_broadcast, 1);
    fold_constant(op);
}

/* ---- masks ----------------------------------------------------------------------------------------------------------- */

/* A mask that is true everywhere goes; `other` goes along if no pointer is absent. */
static void drop_mask(tn_top *op)
{
    int mask = op->code == TN_T_load_ptr || op->code == TN_T_atomic_load ? 1 : 2;
    const tn_number *c = op->noperands > mask ? tn_tile_constant(op->operand[mask]) : NULL;
    bool other = op->code == TN_T_load_ptr && op->noperands == 3;
    if (c && c->u && (!other || tn_fact_present(op->operand[0])))
        op->noperands = mask;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

static tn_tvalue *same_value(const tn_top *op)
{
    if (op->code == TN_T_map)
        return op->fn == TN_S_select ? select_value(op) : op->noperands == 2 ? binary_value(op) : NULL;
    if ((op->code == TN_T_cast || op->code == TN_T_bitcast || moves_elements(op)) && tn_ttype_same(&op->operand[0]->type, &op->result->type)) {
        for (int i = 0; i < op->naxes; i++)
            if (op->axis[i] != i && op->code != TN_T_slice)
                return NULL;
        return op->operand[0];
    }
    return NULL;
}

tn_tvalue *tn_simplify_op(const tn_rules *rules, tn_top *op)
{
    fold_constant(op);
    if (op->code == TN_T_cast)
        merge_casts(op);
    if (is_elementwise(op) && op->result->type.rank)
        work_on_scalars(rules, op);
    merge_shapes(op);
    if (op->code == TN_T_load_ptr || op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_atomic_load)
        drop_mask(op);
    return same_value(op);
}
