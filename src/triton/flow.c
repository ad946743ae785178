/* Values that come from two places. A value is its constants and its tensors; where two meet, the constants must be equal, and tensors that are not the same
 * become results of the branch or loop. */
#include "triton/internal.h"

#include <string.h>

bool tn_t_same_type(const tn_ttype *x, const tn_ttype *y)
{
    return x->dtype == y->dtype && x->pointer == y->pointer && tn_t_same_shape(x, y);
}

static bool is_block(const tn_py *v) { return v->kind == TN_PY_BLOCK_POINTER || v->kind == TN_PY_DESCRIPTOR; }

/* ---- parts ----------------------------------------------------------------------------------------------------------- */

static bool same_block(const tn_py_block *x, const tn_py_block *y)
{
    bool same = x->base == y->base && x->rank == y->rank && x->nan_padding == y->nan_padding;
    for (int i = 0; same && i < x->rank; i++)
        same = x->shape[i] == y->shape[i] && x->stride[i] == y->stride[i] && x->offset[i] == y->offset[i] && x->extent[i] == y->extent[i];
    return same;
}

bool tn_t_identical(const tn_py *x, const tn_py *y)
{
    if (x->kind != y->kind)
        return false;
    if (x->kind == TN_PY_TENSOR)
        return x->tensor == y->tensor;
    if (is_block(x))
        return x->block == y->block || same_block(x->block, y->block);
    if (x->kind == TN_PY_FLOAT)
        return memcmp(&x->number, &y->number, sizeof x->number) == 0; /* -0 is not 0, NaN is NaN */
    if (x->kind != TN_PY_TUPLE)
        return tn_t_equal(x, y);
    bool same = x->n == y->n;
    for (int i = 0; same && i < x->n; i++)
        same = tn_t_identical(&x->at[i], &y->at[i]);
    return same;
}

tn_py tn_t_clone(tn_tcompiler *c, const tn_py *v)
{
    tn_py copy = *v;
    if (is_block(v))
        copy.block = tn_memdup(&c->session->arena, v->block, sizeof *v->block);
    if (v->kind == TN_PY_TUPLE) {
        tn_py *at = TN_NEW_ARRAY(&c->session->arena, tn_py, (size_t)v->n + 1);
        for (int i = 0; i < v->n; i++)
            at[i] = tn_t_clone(c, &v->at[i]);
        copy.at = at;
    }
    return copy;
}

void tn_t_slots(tn_tcompiler *c, tn_py *v, tn_slots *out)
{
    tn_arena *arena = &c->session->arena;
    if (v->kind == TN_PY_TENSOR)
        TN_PUSH(arena, out, &v->tensor);
    for (int i = 0; v->kind == TN_PY_TUPLE && i < v->n; i++)
        tn_t_slots(c, (tn_py *)&v->at[i], out);
    if (!is_block(v))
        return;
    tn_py_block *block = (tn_py_block *)v->block; /* a clone's own */
    TN_PUSH(arena, out, &block->base);
    for (int i = 0; i < block->rank; i++) {
        TN_PUSH(arena, out, &block->shape[i]);
        TN_PUSH(arena, out, &block->stride[i]);
        if (block->offset[i])
            TN_PUSH(arena, out, &block->offset[i]);
    }
}

/* ---- branches -------------------------------------------------------------------------------------------------------- */

typedef struct choice {
    tn_tcompiler *c;
    const tn_ast *at;
    const char *name;
    tn_tvalue *condition;
    tn_tblock *block[2];
} choice;

static bool differ(const choice *k, const tn_py *x, const tn_py *y)
{
    return tn_t_error(k->c, k->at, "%s is %s where the condition holds, and %s where it does not; a branch on a value needs one type of both", k->name,
                      tn_t_describe(k->c, x), tn_t_describe(k->c, y));
}

static bool to_tensor(const choice *k, int side, tn_py *v)
{
    tn_tbuilder before = k->c->b;
    tn_tvalue *tensor;
    k->c->b.block = k->block[side];
    bool ok = tn_t_to_tensor(k->c, k->at, v, &tensor);
    k->c->b = before;
    if (ok)
        *v = tn_py_tensor(tensor);
    return ok;
}

/* By elements: a scalar becomes a tile where the condition or the other side is one. */
static void widen(const choice *k, tn_py *v[2])
{
    tn_tbuilder before = k->c->b;
    const tn_ttype *to = &k->condition->type;
    for (int i = 0; i < 2 && k->c->by_elements; i++)
        to = to->rank ? to : &v[i]->tensor->type;
    for (int i = 0; i < 2 && k->c->by_elements; i++) {
        k->c->b.block = k->block[i];
        if (to->rank && !v[i]->tensor->type.rank)
            *v[i] = tn_py_tensor(tn_t_stretch(k->c, v[i]->tensor, to));
    }
    k->c->b = before;
}

static bool level_block(const choice *k, tn_py *x, tn_py *y)
{
    const tn_py_block *a = x->block, *b = y->block;
    bool same = a->rank == b->rank && a->nan_padding == b->nan_padding && tn_t_same_type(&a->base->type, &b->base->type);
    for (int i = 0; same && i < a->rank; i++)
        same = a->extent[i] == b->extent[i];
    return same || differ(k, x, y);
}

/* Makes both the same but for their tensors, whose types agree. */
static bool level(const choice *k, tn_py *x, tn_py *y)
{
    if (tn_t_identical(x, y))
        return true;
    tn_py *both[2] = {x, y};
    bool numbers = true;
    for (int i = 0; i < 2; i++)
        numbers &= both[i]->kind == TN_PY_TENSOR || tn_py_is_number(both[i]);
    if (!numbers) {
        if (x->kind != y->kind || (x->kind == TN_PY_TUPLE && x->n != y->n) || (x->kind != TN_PY_TUPLE && !is_block(x)))
            return differ(k, x, y);
        if (is_block(x))
            return level_block(k, x, y);
        for (int i = 0; i < x->n; i++)
            if (!level(k, (tn_py *)&x->at[i], (tn_py *)&y->at[i]))
                return false;
        return true;
    }
    for (int i = 0; i < 2; i++)
        if (tn_py_is_number(both[i]) && both[i]->from_constexpr)
            return tn_t_error(k->c, k->at, "%s is a constant (tl.constexpr): a branch on a value cannot make it %s here and %s there", k->name,
                              tn_t_describe(k->c, x), tn_t_describe(k->c, y));
    for (int i = 0; i < 2; i++)
        if (tn_py_is_number(both[i]) && !to_tensor(k, i, both[i]))
            return false;
    widen(k, both);
    return tn_t_same_type(&x->tensor->type, &y->tensor->type) || differ(k, x, y);
}

static bool only_constants(const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next)
        if (op->code != TN_T_const)
            return false;
    return true;
}

static bool only_computes(const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next)
        if (!(tn_top_traits(op->code) & TN_T_PURE))
            return false;
    return true;
}

/* Moves the block's operations to the end of where the builder is. */
static void splice(tn_tbuilder *b, tn_tblock *block)
{
    if (!block->first)
        return;
    for (tn_top *op = block->first; op; op = op->next) {
        op->block = b->block;
        for (int i = 0; i < op->nresults; i++)
            op->result[i].block = b->block;
    }
    block->first->prev = b->block->last;
    if (b->block->last)
        b->block->last->next = block->first;
    else
        b->block->first = block->first;
    b->block->last = block->last;
    block->first = block->last = NULL;
}

static void select_all(tn_tcompiler *c, tn_tvalue *condition, tn_side *x, tn_side *y, tn_tvalue ***slot, tn_tvalue **other, size_t n)
{
    splice(&c->b, x->block);
    splice(&c->b, y->block);
    for (size_t i = 0; i < n; i++)
        *slot[i] = tn_t_map3(&c->b, TN_S_select, condition, *slot[i], other[i]);
}

static void finish_side(tn_tcompiler *c, tn_top *op, int region, tn_tblock *block, tn_tvalue *const *values, size_t n)
{
    tn_tbuilder in = tn_tbuilder_at(c->kernel, block, c->b.loc);
    tn_t_yield(&in, values, (int)n);
    block->parent = op;
    op->region[region] = block;
}

bool tn_t_choose(tn_tcompiler *c, const tn_ast *at, tn_tvalue *condition, tn_side *x, tn_side *y, const char *const *names, int n, tn_py *out)
{
    tn_arena *arena = &c->session->arena;
    tn_slots left = {0}, right = {0}, differing = {0};
    TN_VEC(tn_tvalue *) other = {0}, mine = {0};
    TN_VEC(tn_ttype) types = {0};
    tn_py *partner = TN_NEW_ARRAY(arena, tn_py, (size_t)n + 1); /* slots point into it */
    for (int i = 0; i < n; i++) {
        choice k = {.c = c, .at = at, .name = names[i], .condition = condition, .block = {x->block, y->block}};
        partner[i] = tn_t_clone(c, &y->value[i]);
        out[i] = tn_t_clone(c, &x->value[i]);
        if (!level(&k, &out[i], &partner[i]))
            return false;
        tn_t_slots(c, &out[i], &left);
        tn_t_slots(c, &partner[i], &right);
    }
    for (size_t i = 0; i < left.len; i++) {
        if (*left.at[i] == *right.at[i])
            continue;
        TN_PUSH(arena, &differing, left.at[i]);
        TN_PUSH(arena, &mine, *left.at[i]);
        TN_PUSH(arena, &other, *right.at[i]);
        TN_PUSH(arena, &types, (*left.at[i])->type);
    }
    if (condition->type.rank && !(only_computes(x->block) && only_computes(y->block)))
        return tn_t_refuse(c, at, "a branch by elements, in a function that map_elementwise calls, that does more than compute: it can't load, store or loop, because both sides run");
    if (condition->type.rank || c->scalars_only || (only_constants(x->block) && only_constants(y->block))) {
        select_all(c, condition, x, y, differing.at, other.at, differing.len);
        return true;
    }
    if (differing.len > TN_TILE_CARRIED)
        return tn_t_refuse(c, at, "this branch gives %zu values, %d is the most", differing.len, TN_TILE_CARRIED);
    tn_top *op = tn_t_if(&c->b, condition, (int)types.len, types.at);
    finish_side(c, op, 0, x->block, mine.at, mine.len);
    finish_side(c, op, 1, y->block, other.at, other.len);
    for (size_t i = 0; i < differing.len; i++)
        *differing.at[i] = &op->result[i];
    return true;
}
