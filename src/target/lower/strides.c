/* How the elements of a pointer tile lie: what one step along an axis adds. */
#include <stdlib.h>

#include "target/lower/lower.h"

/* The operand that is moved, and its axes; NULL: another operation. */
const tn_tvalue *lower_moved_axes(const tn_top *op, const axes *of, axes *out)
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

bool lower_constant_of(const tn_tvalue *v, int64_t *value)
{
    while (v->def && (v->def->code == TN_T_broadcast || v->def->code == TN_T_reshape || v->def->code == TN_T_assume))
        v = v->def->operand[0];
    if (!v->def || v->def->code != TN_T_const || !tn_is_integer(v->type.dtype))
        return false;
    *value = v->def->number.i;
    return true;
}

strides lower_strides_of(const lower *L, const tn_tvalue *v, const axes *of, int *budget);

static bool is_zero(const strides *s)
{
    for (int a = 0; a < TN_TILE_RANK; a++)
        if (s->along[a])
            return false;
    return true;
}

static strides strides_of_sum(const lower *L, const tn_top *op, const axes *of, int *budget)
{
    strides x = lower_strides_of(L, op->operand[0], of, budget), y = {{0}}, r;
    bool product = op->code == TN_T_map && op->fn == TN_S_mul, minus = op->code == TN_T_map && op->fn == TN_S_sub;
    int64_t factor = 0;
    if (op->noperands > 1)
        y = lower_strides_of(L, op->operand[1], of, budget);
    else
        y = x, x = (strides){{0}}, minus = true;
    bool scaled = product && lower_constant_of(op->operand[1], &factor);
    if (product && !scaled && lower_constant_of(op->operand[0], &factor))
        scaled = true, x = y;
    bool linear = !product || scaled || is_zero(&x) || is_zero(&y);
    for (int a = 0; a < TN_TILE_RANK; a++) {
        int64_t p = x.along[a], q = scaled ? 0 : y.along[a];
        bool moves = p || q, constant = p != LOWER_UNIFORM && q != LOWER_UNIFORM && (!product || scaled);
        r.along[a] = 0;
        if (moves && (p == LOWER_UNKNOWN || q == LOWER_UNKNOWN || !linear))
            r.along[a] = LOWER_UNKNOWN;
        else if (moves && !constant)
            r.along[a] = LOWER_UNIFORM;
        else if (moves && !(scaled ? tn_mul(p, factor, &r.along[a]) : minus ? tn_sub(p, q, &r.along[a]) : tn_add(p, q, &r.along[a])))
            r.along[a] = LOWER_UNKNOWN;
    }
    return r;
}

strides lower_strides_of(const lower *L, const tn_tvalue *v, const axes *of, int *budget)
{
    const tn_top *op = v->def;
    strides s = {{0}};
    axes inner;
    if (v->type.rank == 0)
        return s;
    if (op && --*budget > 0 && !tn_map_get(&L->places, TN_KEY(v))) {
        const tn_tvalue *from = lower_moved_axes(op, of, &inner);
        if (from)
            return lower_strides_of(L, from, &inner, budget);
        if (op->code == TN_T_const)
            return s;
        if (op->code == TN_T_addptr || lower_is_sum_or_product(op))
            return strides_of_sum(L, op, of, budget);
        if (lower_keeps_wide_value(L, op))
            return lower_strides_of(L, op->operand[0], of, budget);
        if (op->code == TN_T_range) {
            if (of->axis[0] >= 0)
                s.along[of->axis[0]] = 1;
            return s;
        }
    }
    for (int k = 0; k < v->type.rank; k++)
        if (of->axis[k] >= 0 && v->type.extent[k].size > 1)
            s.along[of->axis[k]] = LOWER_UNKNOWN;
    return s;
}

axes lower_own_axes(void)
{
    axes a;
    for (int i = 0; i < TN_TILE_RANK; i++)
        a.axis[i] = i;
    return a;
}

strides lower_own_strides(const lower *L, const tn_tvalue *v)
{
    axes a = lower_own_axes();
    int budget = LOWER_BUDGET;
    return lower_strides_of(L, v, &a, &budget);
}

/* No two elements of the pointer tile are the same: with strides in order, each one is more than what those before it reach. */
bool lower_is_injective(const lower *L, const tn_tvalue *p)
{
    strides s = lower_own_strides(L, p);
    bool done[TN_TILE_RANK] = {false};
    int64_t reach = 0;
    for (int i = 0; i < p->type.rank; i++) {
        if (s.along[i] == LOWER_UNKNOWN || s.along[i] == LOWER_UNIFORM)
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
