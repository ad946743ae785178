/* Full unrolling of the loops of kind `unroll`, innermost first.
 *
 *     for %i = 0 to 2 step 1 unroll {          store %y[0], %a
 *       store %y[%i], %a                =>     store %y[1], %a
 *     }
 *
 * A loop whose trip count is no constant, or whose copies would pass `max_ops` operations, becomes serial: the meaning
 * is the same. Needs: vectorize before it (the copies of a `vector` loop would each be widened). Keeps all stage rules.
 */
#include "loop/internal.h"

static const int64_t max_ops = 16384; /* after unrolling one loop; a 12 x 64 register tile takes some hundreds */

static bool trip_count(const tn_lop *loop, int64_t *lo, int64_t *step, int64_t *trips)
{
    int64_t hi, extent;
    if (!tn_l_is_const(loop->operand[0], lo) || !tn_l_is_const(loop->operand[1], &hi) ||
        !tn_l_is_const(loop->operand[2], step) || *step <= 0 || !tn_sub(hi, *lo, &extent))
        return false;
    *trips = extent <= 0 ? 0 : (extent - 1) / *step + 1;
    return true;
}

static int64_t block_size(const tn_lblock *block)
{
    int64_t n = 0;
    for (const tn_lop *op = block->first; op; op = op->next) {
        n++;
        for (int i = 0; i < op->nregions; i++)
            n += block_size(op->region[i]);
    }
    return n;
}

/* Copies of pure scalar arithmetic fold as they are made, so that offsets are constants at once. */
static void copy_op(tn_lbuilder *b, const tn_lop *op, tn_map *values)
{
    if (op->code != TN_L_fn) {
        tn_lop_clone(b, op, values);
        return;
    }
    tn_lvalue *operands[3], *v;
    for (int i = 0; i < op->noperands; i++) {
        tn_lvalue *to = tn_map_get(values, TN_KEY(op->operand[i]));
        operands[i] = to ? to : op->operand[i];
    }
    v = tn_l_fold(b, op->fn, operands, op->noperands);
    *tn_map_at(values, TN_KEY(op->result)) = v ? v : tn_l_fn_like(b, op, operands);
}

static void unroll_loop(tn_lfunc *func, tn_lop *loop)
{
    int64_t lo, step, trips;
    loop->kind = TN_FOR_SERIAL;
    if (!trip_count(loop, &lo, &step, &trips) || trips > max_ops / (1 + block_size(loop->region[0])))
        return;
    tn_lbuilder b = tn_lbuilder_before(func, loop);
    for (int64_t i = 0; i < trips; i++) {
        tn_map values = {.arena = tn_l_arena(func)};
        *tn_map_at(&values, TN_KEY(loop->region[0]->arg)) = tn_l_index(&b, lo + i * step);
        for (const tn_lop *op = loop->region[0]->first; op; op = op->next) {
            b.line = op->line;
            copy_op(&b, op, &values);
        }
    }
    tn_lop_erase(loop);
}

static void unroll_block(tn_lfunc *func, tn_lblock *block)
{
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->nregions; i++)
            unroll_block(func, op->region[i]);
        if (op->code == TN_L_for && op->kind == TN_FOR_UNROLL)
            unroll_loop(func, op);
    }
}

tn_status tn_loop_unroll(tn_lfunc *func, const tn_pass_options *options)
{
    (void)options;
    unroll_block(func, func->body);
    return TN_OK;
}
