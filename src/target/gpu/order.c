/* In which order persistent CTAs walk programs that have more or less to do.
 *
 * Causal attention's programs have as many turns as their block of rows has keys before it: with 32 blocks of each of 16 heads on 132 processors, in order, some
 * CTAs take 1.6 times the average. Longest first, all heads' longest blocks before the next ones, and every second round the other way round (`grid turned`), no
 * CTA takes more than 1.03 times the average, where programs are four for each and more. */
#include "target/gpu/dot.h"

enum { LESS = 1, MORE = 2 }; /* how a number may change where the coordinate grows: bits */

static int turned(int ways) { return (ways & LESS ? MORE : 0) | (ways & MORE ? LESS : 0); }

/* By what v is made of; both: who knows. */
static int ways_of(const tn_tvalue *v, const tn_tvalue *coordinate, int *budget)
{
    const tn_top *op = v->def;
    int ways[3] = {0}, all = 0;
    if (v == coordinate)
        return MORE;
    if (!op || op->noperands > (int)TN_COUNT(ways))
        return 0;
    if (--*budget < 0)
        return LESS | MORE;
    for (int i = 0; i < op->noperands; i++)
        all |= ways[i] = ways_of(op->operand[i], coordinate, budget);
    if (!all || op->code == TN_T_cast || op->code == TN_T_assume)
        return all;
    if (op->code != TN_T_map)
        return LESS | MORE;
    const tn_top *by = op->noperands == 2 ? op->operand[1]->def : NULL;
    bool scales = by && by->code == TN_T_const && tn_is_integer(op->result->type.dtype) && by->number.i > 0;
    switch (op->fn) {
    case TN_S_add:
    case TN_S_min:
    case TN_S_max:
        return all;
    case TN_S_sub:
        return ways[0] | turned(ways[1]);
    case TN_S_neg:
        return turned(all);
    case TN_S_select:
        return ways[0] ? LESS | MORE : all;
    case TN_S_mul:
    case TN_S_div:
        return scales ? all : LESS | MORE;
    default:
        return LESS | MORE;
    }
}

/* Of a loop's turns. */
static int ways_of_turns(const tn_top *loop, const tn_tvalue *coordinate)
{
    int budget = LOWER_BUDGET;
    return ways_of(loop->operand[1], coordinate, &budget) | turned(ways_of(loop->operand[0], coordinate, &budget));
}

typedef struct search {
    const tn_tvalue *coordinate;
    int ways;
} search;

/* A loop of which that is not known (it ends where a block does, say) is not what most turns are in. */
static void find_turns(void *context, tn_top *op)
{
    search *s = context;
    int ways = op->code == TN_T_for ? ways_of_turns(op, s->coordinate) : 0;
    s->ways |= ways == (LESS | MORE) ? 0 : ways;
}

static void find_wait(void *context, tn_top *op) { *(bool *)context |= lower_synchronises(op); }

void gpu_choose_order(lower *L)
{
    const tn_kernel *k = L->kernel;
    bool waits = false;
    tn_tile_walk(k->body, find_wait, &waits); /* for programs with lower numbers, it may be */
    if (waits || GPU(L)->instances > 1 || !tn_schedule_get(&k->schedule, "", "longest", 1))
        return;
    for (size_t i = 0; i < k->grid.len && !L->longest.coordinate; i++) {
        search s = {.coordinate = k->grid.at[i].value};
        tn_tile_walk(k->body, find_turns, &s);
        if (s.ways == LESS || s.ways == MORE)
            L->longest = (lower_longest){k->grid.at[i].value, s.ways == MORE};
    }
    if (L->longest.coordinate)
        tn_text_add(&GPU(L)->remarks, "\nprograms of the %s coordinates first", L->longest.last ? "largest" : "smallest");
}
