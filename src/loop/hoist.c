/* Loop-invariant code motion.
 *
 *     for %i … {                                  for %i … {
 *       for %k … {                                  %1 = mul %i, %lda
 *         %1 = add %i, %k                  =>       for %k … {
 *         %2 = mul %1, %lda                           %2 = mul %k, %lda
 *         %3 = load %a[%2] : f32                      %3 = add %1, %2
 *       }                                             %4 = load %a[%3] : f32
 *     }                                             }
 *                                                 }
 *
 * The level of a value is the number of loops around its definition. A pure operation depends on its loop only through
 * its operands, so it moves in front of the outermost loop that is deeper than all of them; scalar functions are total,
 * so running one that the program would have skipped is safe. A load moves likewise if its buffer is readonly, nothing
 * but the loops themselves guards it, and each loop it leaves surely runs. Before that, integer sums are regrouped so
 * that terms of outer levels meet first, and products over sums of mixed levels are distributed: the offset of a
 * product's operand is then computed once a level. Integers wrap: both are exact. Needs nothing, keeps every stage's
 * rules. Linear in operations times nesting depth. */
#include "loop/internal.h"

#include <assert.h>

enum { MAX_LEVEL = 64 };

typedef struct hoister {
    tn_lfunc *func;
    tn_lop *loop[MAX_LEVEL]; /* loop[l]: the loop that makes level l + 1 */
    int level;
    tn_map ranges;
} hoister;

static bool is_loop(const tn_lop *op) { return op->code == TN_L_for || op->code == TN_L_while; }

static int level_of(const tn_lvalue *v)
{
    return (int)(intptr_t)v->scratch;
}

static void set_level(tn_lvalue *v, int level)
{
    v->scratch = (void *)(intptr_t)level;
}

static int operands_level(const tn_lop *op)
{
    int level = 0;
    for (int i = 0; i < op->noperands; i++)
        level = level_of(op->operand[i]) > level ? level_of(op->operand[i]) : level;
    return level;
}

/* ---- regrouping ---- */

static bool is_sum(const tn_lvalue *v)
{
    return v->def && v->def->code == TN_L_fn && v->def->fn == TN_S_add && !tn_l_number(v->def->operand[1]);
}

static tn_lvalue *leveled(tn_lvalue *v)
{
    if (v->def && !v->scratch)
        set_level(v, operands_level(v->def));
    return v;
}

/* a + b with what is of a lower level added first; sums under a and b are in that form. */
static tn_lvalue *add_by_level(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y)
{
    if (level_of(x) < level_of(y)) {
        tn_lvalue *swap = x;
        x = y;
        y = swap;
    }
    if (is_sum(x) && level_of(y) < level_of(x) && level_of(x->def->operand[0]) < level_of(x)) {
        tn_lvalue *low = add_by_level(b, x->def->operand[0], y);
        return leveled(tn_l_fn2(b, TN_S_add, low, x->def->operand[1]));
    }
    return leveled(level_of(x) == level_of(y) ? tn_l_fn2(b, TN_S_add, x, y) : tn_l_fn2(b, TN_S_add, y, x));
}

static tn_lvalue *distribute(tn_lbuilder *b, tn_lvalue *sum, tn_lvalue *factor)
{
    tn_lvalue *low = leveled(tn_l_fn2(b, TN_S_mul, sum->def->operand[0], factor));
    tn_lvalue *high = leveled(tn_l_fn2(b, TN_S_mul, sum->def->operand[1], factor));
    return add_by_level(b, low, high);
}

static bool mixed_levels(const tn_lvalue *sum)
{
    return is_sum(sum) && level_of(sum->def->operand[0]) != level_of(sum->def->operand[1]);
}

/* A better grouped value equal to the sum or product `op`, or NULL. */
static tn_lvalue *regroup(hoister *h, tn_lop *op)
{
    if (op->code != TN_L_fn || !tn_is_integer(op->result->type.dtype) || op->result->type.lanes != 1)
        return NULL;
    tn_lvalue *x = op->operand[0], *y = op->operand[1];
    tn_lbuilder b = tn_lbuilder_before(h->func, op);
    if (op->fn == TN_S_add && !tn_l_number(y) && !tn_l_number(x)) {
        bool left = is_sum(x) && level_of(y) < level_of(x) && level_of(x->def->operand[0]) < level_of(x);
        bool right = is_sum(y) && level_of(x) < level_of(y) && level_of(y->def->operand[0]) < level_of(y);
        return left || right ? add_by_level(&b, x, y) : NULL;
    }
    if (op->fn != TN_S_mul)
        return NULL;
    if (mixed_levels(x) && level_of(y) < level_of(x))
        return distribute(&b, x, y);
    return mixed_levels(y) && level_of(x) < level_of(y) ? distribute(&b, y, x) : NULL;
}

/* ---- moving ---- */

static bool surely_runs(hoister *h, const tn_lop *loop)
{
    return loop->code == TN_L_for &&
           tn_l_range(&h->ranges, loop->operand[0]).hi < tn_l_range(&h->ranges, loop->operand[1]).lo;
}

/* The lowest level to which the load may move, not below `level`. */
static int load_level(hoister *h, const tn_lop *op, int level)
{
    int at = h->level;
    const tn_lblock *block = op->block;
    while (at > level && block == h->loop[at - 1]->region[0] && surely_runs(h, h->loop[at - 1])) {
        at--;
        block = h->loop[at]->block;
    }
    return at;
}

static void move_to_level(hoister *h, tn_lop *op, int level)
{
    if (level >= h->level)
        return;
    tn_lbuilder b = tn_lbuilder_before(h->func, h->loop[level]);
    tn_lop_unlink(op);
    tn_lop_insert(&b, op);
}

static void hoist_op(hoister *h, tn_lop *op)
{
    int level = h->level;
    if (tn_lop_traits(op->code) & TN_L_PURE)
        level = operands_level(op);
    else if ((op->code == TN_L_load || op->code == TN_L_gather) && op->operand[0]->readonly)
        level = load_level(h, op, operands_level(op));
    move_to_level(h, op, level);
    if (op->result)
        set_level(op->result, level);
}

static void hoist_block(hoister *h, tn_lblock *block);

static void hoist_regions(hoister *h, tn_lop *op)
{
    bool loop = is_loop(op) && h->level < MAX_LEVEL;
    if (loop)
        h->loop[h->level++] = op;
    for (int i = 0; i < op->nregions; i++) {
        if (op->region[i]->arg)
            set_level(op->region[i]->arg, h->level);
        hoist_block(h, op->region[i]);
    }
    h->level -= loop;
}

static void resolve_replaced(tn_map *replaced, tn_lop *op)
{
    for (int i = 0; replaced->len && i < op->noperands; i++) {
        tn_lvalue *to = tn_map_get(replaced, TN_KEY(op->operand[i]));
        if (to)
            op->operand[i] = to;
    }
}

static void hoist_block(hoister *h, tn_lblock *block)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        if (op->nregions)
            hoist_regions(h, op);
        else
            hoist_op(h, op);
    }
}

/* Regrouping is a walk of its own: it replaces values, and levels must be those of before any motion. */
static void regroup_block(hoister *h, tn_map *replaced, tn_lblock *block)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        resolve_replaced(replaced, op);
        if (op->result)
            set_level(op->result, (tn_lop_traits(op->code) & TN_L_PURE) ? operands_level(op) : h->level);
        tn_lvalue *better = op->result ? regroup(h, op) : NULL;
        if (better) {
            *tn_map_at(replaced, TN_KEY(op->result)) = better;
            tn_lop_erase(op);
        }
        bool loop = is_loop(op);
        h->level += loop;
        for (int i = 0; i < op->nregions; i++) {
            if (op->region[i]->arg)
                set_level(op->region[i]->arg, h->level);
            regroup_block(h, replaced, op->region[i]);
        }
        h->level -= loop;
    }
}

tn_status tn_loop_hoist(tn_lfunc *func, const tn_pass_options *options)
{
    (void)options;
    hoister h = {.func = func, .ranges = {.arena = tn_l_arena(func)}};
    tn_map replaced = {.arena = tn_l_arena(func)};
    tn_l_clear_scratch(func);
    regroup_block(&h, &replaced, func->body);
    assert(h.level == 0);
    tn_l_clear_scratch(func);
    hoist_block(&h, func->body);
    return TN_OK;
}
