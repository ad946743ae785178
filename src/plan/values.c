/* The shape program: values of symbols, checked. */
#include "plan/internal.h"

static bool look_up(void *context, const char *symbol, int64_t *value)
{
    const tn_values *values = context;
    uintptr_t slot = (uintptr_t)tn_map_get(&values->exec->slots, TN_KEY(symbol));
    if (!slot || !values->known[slot - 1])
        return false;
    *value = values->value[slot - 1];
    return true;
}

bool tn_values_eval(const tn_values *values, tn_dim dim, int64_t *out)
{
    if (tn_dim_is_const(dim))
        return *out = dim->value, true;
    return tn_dim_eval(dim, look_up, (void *)(uintptr_t)values, out);
}

static const char *dim_text(tn_session *session, tn_dim dim)
{
    tn_text text = {.arena = &session->arena};
    tn_text_dim(&text, dim);
    return text.at;
}

static tn_status check_equal(tn_session *session, const tn_values *values)
{
    const tn_graph *graph = values->exec->program->graph;
    for (size_t i = 0; i < graph->equal.len; i++) {
        int64_t a, b;
        if (!tn_values_eval(values, graph->equal.at[i].a, &a) || !tn_values_eval(values, graph->equal.at[i].b, &b) || a == b)
            continue; /* what a run gives later is checked by the define step's range */
        if (graph->equal.at[i].why)
            return tn_error(session, TN_INVALID, graph->equal.at[i].loc, "%s", graph->equal.at[i].why);
        return tn_error(session, TN_INVALID, graph->equal.at[i].loc, "expected %s = %s, found %lld and %lld for these inputs",
                        dim_text(session, graph->equal.at[i].a), dim_text(session, graph->equal.at[i].b), (long long)a, (long long)b);
    }
    return TN_OK;
}

tn_status tn_values_bind(tn_session *session, tn_arena *scratch, tn_values *values, const tn_shape *inputs)
{
    const tn_exec *exec = values->exec;
    const tn_block *body = exec->program->graph->body;
    tn_dim_env env = {.arena = scratch};
    for (int pass = 0; pass < 2; pass++) /* a later input may tell what an earlier one needs */
        for (int i = 0; i < body->nargs; i++) {
            const char *name = tn_format(&session->arena, "input %d '%s'", i, body->arg[i]->name ? body->arg[i]->name : "");
            TN_TRY(tn_env_bind(session, &env, TN_NO_LOC, name, &body->arg[i]->type, inputs[i].rank, inputs[i].dim));
        }
    for (size_t s = 0; s < exec->symbols.len; s++)
        values->known[s] = tn_env_eval(&env, exec->symbols.at[s].dim, &values->value[s]);
    for (size_t s = 0; s < exec->symbols.len; s++)
        if (!values->known[s] && exec->symbols.at[s].group == 0)
            return tn_error(session, TN_INVALID, TN_NO_LOC, "the inputs' sizes do not determine dimension %s", exec->symbols.at[s].dim->name);
    return check_equal(session, values);
}

tn_status tn_values_define(tn_session *session, tn_values *values, const tn_exec_step *step, int64_t value)
{
    tn_dim dim = step->step->dim;
    int64_t most = dim->hi, limit;
    if (step->step->upper && tn_values_eval(values, step->step->upper, &limit))
        most = tn_min(most, limit);
    if (value < tn_max(0, dim->lo) || value > most)
        return tn_error(session, TN_INVALID, TN_NO_LOC, "dimension %s: expected a value in [%lld, %lld], found %lld", dim->name,
                        (long long)tn_max(0, dim->lo), (long long)most, (long long)value);
    values->value[step->slot] = value;
    values->known[step->slot] = true;
    return check_equal(session, values);
}
