/* The driver of rules. */
#include "opt/internal.h"

#include <assert.h>
#include <string.h>

enum { QUEUED = 1, GONE = 2 };

/* ---- the queue ------------------------------------------------------------------------------------------------- */

void rw_touch(rewriter *rw, tn_op *op)
{
    void **state = tn_map_at(&rw->state, TN_KEY(op));
    if (*state)
        return;
    *state = (void *)(uintptr_t)QUEUED;
    TN_PUSH(&rw->scratch, &rw->queue, op);
}

static void touch_block(rewriter *rw, const tn_block *block)
{
    for (tn_op *op = block->first; op; op = op->next) {
        rw_touch(rw, op);
        for (int i = 0; i < op->nregions; i++)
            touch_block(rw, op->region[i]);
    }
}

static void touch_users(rewriter *rw, const tn_value *value)
{
    for (const tn_use *use = value->uses; use; use = use->next)
        rw_touch(rw, use->user);
}

/* Rules look at an operand's operands too. */
static void touch_users_twice(rewriter *rw, const tn_value *value)
{
    for (const tn_use *use = value->uses; use; use = use->next) {
        rw_touch(rw, use->user);
        for (int i = 0; i < use->user->nresults; i++)
            touch_users(rw, &use->user->result[i]);
    }
}

static bool has_few_uses(const tn_value *value)
{
    enum { FEW = 4 };
    int n = 0;
    for (const tn_use *use = value->uses; use && n <= FEW; use = use->next)
        n++;
    return n <= FEW;
}

/* op is about to go: the operands have a user less, and a rule may wait for one to be the only one. */
static void touch_operands(rewriter *rw, const tn_op *op)
{
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *v = tn_operand(op, i);
        if (v->def)
            rw_touch(rw, v->def);
        if (has_few_uses(v))
            touch_users(rw, v);
    }
    for (int r = 0; r < op->nregions; r++)
        for (const tn_op *inner = op->region[r]->first; inner; inner = inner->next)
            touch_operands(rw, inner);
}

static void mark_gone(rewriter *rw, const tn_op *op)
{
    *tn_map_at(&rw->state, TN_KEY(op)) = (void *)(uintptr_t)GONE;
    for (int r = 0; r < op->nregions; r++)
        for (const tn_op *inner = op->region[r]->first; inner; inner = inner->next)
            mark_gone(rw, inner);
}

static void erase(rewriter *rw, tn_op *op)
{
    touch_operands(rw, op);
    mark_gone(rw, op);
    tn_erase(op);
}

/* ---- what rules call ------------------------------------------------------------------------------------------- */

bool rw_decline(rewriter *rw, const tn_op *op, const char *reason)
{
    tn_declined_list *to = rw->options->declined;
    if (to)
        TN_PUSH(&rw->session->arena, &to->list, (tn_declined){rw->pass, rw->rule->name, op->code, op->loc, reason});
    return false;
}

bool rw_replace_all(rewriter *rw, tn_op *op, tn_value *const *to)
{
    if (rw->b.failed || rw->session->errors != rw->errors)
        return rw_decline(rw, op, "the replacement could not be built");
    for (int i = 0; i < op->nresults; i++)
        if (!to[i] || to[i] == &op->result[i] || !types_agree(rw->session, &to[i]->type, &op->result[i].type))
            return rw_decline(rw, op, "the replacement has another type");
    for (int i = 0; i < op->nresults; i++) {
        touch_users_twice(rw, &op->result[i]);
        if (to[i]->def && !to[i]->name)
            to[i]->name = op->result[i].name;
        tn_replace_uses(&op->result[i], to[i]);
    }
    return true;
}

bool rw_replace(rewriter *rw, tn_op *op, tn_value *to)
{
    assert(op->nresults == 1);
    return rw_replace_all(rw, op, &to);
}

/* ---- one rule on one operation --------------------------------------------------------------------------------- */

static bool rule_may_run(const rewriter *rw, const rule *r, const tn_op *op)
{
    if (r->exact == REASSOCIATES)
        return rw->options->numerics == TN_NUMERICS_FAST;
    if (r->exact != EXACT_INT)
        return true;
    tn_dtype dtype = op->noperands ? tn_operand(op, op->noperands - 1)->type.dtype : op->result[0].type.dtype;
    return !tn_is_float(dtype) && !tn_is_complex(dtype);
}

/* The operations between `mark` and op are new. Kept: to be looked at. Not kept: nobody uses them, last one first. */
static void settle_new(rewriter *rw, const tn_op *mark, tn_op *op, bool keep)
{
    if (keep) {
        for (tn_op *made = mark ? mark->next : op->block->first; made != op; made = made->next) {
            rw_touch(rw, made);
            for (int i = 0; i < made->nregions; i++)
                touch_block(rw, made->region[i]);
        }
        return;
    }
    for (tn_op *made = op->prev, *prev; made != mark; made = prev) {
        prev = made->prev;
        assert(op_is_unused(made));
        mark_gone(rw, made);
        tn_erase(made);
    }
}

static bool try_rule(rewriter *rw, const rule *r, tn_op *op)
{
    tn_session *session = rw->session;
    const tn_op *mark = op->prev;
    size_t ndiags = session->diags.len, nequal = rw->graph->equal.len;
    rw->errors = session->errors;
    rw->rule = r;
    rw->b = tn_builder_before(op);
    bool applied = r->apply(rw, op);
    settle_new(rw, mark, op, applied);
    if (applied) {
        rw->changed = true;
        rw_touch(rw, op);
    } else {
        session->diags.len = ndiags;
        session->errors = rw->errors;
        rw->graph->equal.len = nequal;
    }
    return applied;
}

static void visit(rewriter *rw, tn_op *op)
{
    if (op_is_unused(op) && op_is_removable(op)) {
        erase(rw, op);
        rw->changed = true;
        return;
    }
    for (const rule *const *r = rw->by_code[op->code]; *r; r++)
        if (rule_may_run(rw, *r, op) && try_rule(rw, *r, op))
            return;
}

/* ---- the run ------------------------------------------------------------------------------------------------------
 */

static bool rule_is_for(const rule *r, tn_opcode code)
{
    return r->root == code || (r->root == TN_OP_COUNT && (!r->traits || (tn_op_traits(code) & r->traits)));
}

static void index_rules(rewriter *rw, const rule *const *sets, int nsets)
{
    for (int code = 0; code < TN_OP_COUNT; code++) {
        size_t n = 0;
        for (int pass = 0; pass < 2; pass++) {
            n = pass ? 0 : n;
            for (int i = 0; i < nsets; i++)
                for (const rule *r = sets[i]; r->apply; r++)
                    if (rule_is_for(r, (tn_opcode)code)) {
                        if (pass)
                            rw->by_code[code][n] = r;
                        n++;
                    }
            if (!pass)
                rw->by_code[code] = TN_NEW_ARRAY(&rw->scratch, const rule *, n + 1);
        }
    }
}

static size_t count_ops(const tn_block *block)
{
    size_t n = 0;
    for (const tn_op *op = block->first; op; op = op->next) {
        n++;
        for (int i = 0; i < op->nregions; i++)
            n += count_ops(op->region[i]);
    }
    return n;
}

/* Every rule makes the graph smaller or moves it towards one form, so the queue empties. The limit keeps the time near
 * linear for graphs made to defeat that (thousands of transposes that sink one after another and never cancel): the
 * graph is right after every rule, so the run may stop after any. */
tn_status rw_run(tn_graph *graph, const tn_opt_options *options, const char *pass, const rule *const *sets, int nsets,
                 void *context, bool *changed)
{
    enum { VISITS_EACH = 200, VISITS_MORE = 10000 };
    rewriter *rw = TN_NEW(&graph->session->arena, rewriter);
    *rw = (rewriter){.session = graph->session, .graph = graph, .options = options, .pass = pass, .context = context};
    rw->state.arena = &rw->scratch;
    rw->scratch.on_oom = graph->session->arena.on_oom;
    index_rules(rw, sets, nsets);
    touch_block(rw, graph->body);
    size_t limit = count_ops(graph->body) * VISITS_EACH + VISITS_MORE;
    while (rw->head < rw->queue.len && rw->head < limit) {
        tn_op *op = rw->queue.at[rw->head++];
        void **state = tn_map_at(&rw->state, TN_KEY(op));
        if (*state == (void *)(uintptr_t)GONE)
            continue;
        *state = NULL;
        visit(rw, op);
    }
    *changed |= rw->changed;
    tn_arena_free(&rw->scratch);
    return TN_OK;
}
