/* Values that a loop carries, on CPUs: each has a place for as long as the loop runs.
 *
 * The next value is written straight into the place where nothing that is still to be computed reads the old one elsewhere: element by element its own old
 * element may be read. Values are taken in an order in which that holds; where they read each other in a circle, one waits in a second place. A product
 * that ends in a carried value is summed in registers and combined with the old element there (lower_dot.c). */
#include "target/cpu/lower.h"

enum { READS_NOT, READS_SAME, READS_ELSEWHERE };

static int reads(const lower *L, const tn_tvalue *v, const tn_tvalue *arg, bool same, int *budget);

static int reads_of_operands(const lower *L, const tn_top *op, const tn_tvalue *arg, bool same, int *budget)
{
    int worst = READS_NOT;
    for (int i = 0; i < op->noperands; i++)
        worst = (int)tn_max(worst, reads(L, op->operand[i], arg, same, budget));
    for (int d = 0; op->view && d < op->view->rank; d++)
        worst = (int)tn_max(worst, reads(L, op->subscript[d].value, arg, false, budget));
    return worst;
}

/* How v, computed now, reads a carried value: not, at its own index (while `same` holds), or anywhere. */
static int reads(const lower *L, const tn_tvalue *v, const tn_tvalue *arg, bool same, int *budget)
{
    const tn_top *op = v->def;
    const place *p = tn_map_get(&L->places, TN_KEY(v));
    element known;
    if (v == arg)
        return same ? READS_SAME : READS_ELSEWHERE;
    if (!op || (p && !p->kept) || (v->type.rank == 0 && lower_recall(L, v, NULL, &known)))
        return READS_NOT;
    if (--*budget <= 0)
        return READS_ELSEWHERE;
    const tn_top *dot = tn_map_get(&CPU(L)->pending, TN_KEY(v));
    if (dot)
        return reads_of_operands(L, lower_dot_of(dot), arg, false, budget);
    return reads_of_operands(L, op, arg, same && lower_is_elementwise(op), budget);
}

static int reads_arg(const lower *L, const tn_tvalue *v, const tn_tvalue *arg)
{
    int budget = 256;
    return reads(L, v, arg, true, &budget);
}

static void write_value(lower *L, tn_lbuilder *b, const tn_tvalue *v, place *p)
{
    if (!lower_pending_value(L, b, v, p))
        lower_materialise(L, b, v, p);
}

/* Nothing that is still to come reads the old value but values[j] itself, at its own index. */
static bool can_replace(const lower *L, const tn_tvalue *args, tn_tvalue *const *values, const bool *done, int n, int j)
{
    if (reads_arg(L, values[j], &args[j]) == READS_ELSEWHERE)
        return false;
    for (int k = 0; k < n; k++)
        if (k != j && !done[k] && reads_arg(L, values[k], &args[j]) != READS_NOT)
            return false;
    return true;
}

void lower_carry(lower *L, tn_lbuilder *b, const tn_tvalue *args, tn_tvalue *const *values, place *const *state, int n)
{
    bool done[TN_TILE_CARRIED] = {false};
    place *second[TN_TILE_CARRIED] = {NULL};
    for (int left = n; left > 0;) {
        int before = left;
        for (int j = 0; j < n; j++)
            if (!done[j] && (values[j] == &args[j] || can_replace(L, args, values, done, n, j))) {
                if (values[j] != &args[j])
                    write_value(L, b, values[j], state[j]);
                done[j] = true;
                left--;
            }
        for (int j = 0; j < n && left == before; j++)
            if (!done[j]) { /* a circle */
                second[j] = lower_new_place(L, b, &values[j]->type, "next");
                second[j]->root = state[j]->root;
                write_value(L, b, values[j], second[j]);
                done[j] = true;
                left--;
            }
    }
    for (int j = 0; j < n; j++) {
        if (!second[j])
            continue;
        tn_tvalue copy = {.type = values[j]->type, .id = values[j]->id};
        lower_set_place(L, &copy, second[j]);
        scope s = lower_open(L);
        lower_materialise(L, b, &copy, state[j]);
        lower_close(L, s);
        lower_set_place(L, &copy, NULL);
    }
}

/* ---- left operands of products in loops --------------------------------------------------------------------------------------------------- */

static bool is_inside(const tn_tblock *block, const tn_tvalue *v)
{
    const tn_tblock *at = v->def ? v->def->block : v->block;
    for (; at; at = at->parent ? at->parent->block : NULL)
        if (at == block)
            return true;
    return false;
}

/* What products in the loop read row by row, and which comes from outside, is copied once, before. */
static void copy_operands(lower *L, tn_lbuilder *b, const tn_tblock *body, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->code == TN_T_dot && !is_inside(body, op->operand[0]))
            lower_copy_operand(L, b, op);
        for (int r = 0; r < op->nregions && op->code != TN_T_fold; r++)
            copy_operands(L, b, body, op->region[r]);
    }
}

void lower_copy_operands(lower *L, tn_lbuilder *b, const tn_tblock *body) { copy_operands(L, b, body, body); }
