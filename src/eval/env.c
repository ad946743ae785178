/* Values of symbols: setting, evaluating, and solving them from the sizes of inputs. */
#include "eval/internal.h"

bool tn_env_set(tn_dim_env *env, const char *symbol, int64_t value)
{
    if (!env->values.arena)
        env->values.arena = env->arena;
    void **cell = tn_map_at_str(&env->values, symbol);
    if (*cell)
        return *(int64_t *)*cell == value;
    *cell = tn_memdup(env->arena, &value, sizeof value);
    return true;
}

static bool look_up(void *context, const char *symbol, int64_t *value)
{
    const tn_dim_env *env = context;
    const int64_t *cell = env->values.len ? tn_map_get_str(&env->values, symbol) : NULL;
    if (cell)
        *value = *cell;
    return cell != NULL;
}

bool tn_env_eval(const tn_dim_env *env, tn_dim dim, int64_t *out)
{
    if (tn_dim_is_const(dim))
        return *out = dim->value, true;
    return env && tn_dim_eval(dim, look_up, (void *)(uintptr_t)env, out);
}

/* The unknown of a dimension: its first symbol without a value, and whether there are others. */
typedef struct unknown {
    const tn_dim_env *env;
    tn_dim symbol;
    bool several;
    int64_t trial; /* value tried for it */
} unknown;

static void find_unknown(void *context, tn_dim symbol)
{
    unknown *u = context;
    int64_t value = 0;
    if (tn_env_eval(u->env, symbol, &value) || symbol == u->symbol)
        return;
    u->several |= u->symbol != NULL;
    u->symbol = symbol;
}

static bool look_up_trial(void *context, const char *symbol, int64_t *value)
{
    const unknown *u = context;
    if (u->symbol->name == symbol || !look_up((void *)(uintptr_t)u->env, symbol, value))
        *value = u->trial;
    return true;
}

/* Degree of the unknown in d: 0, 1, or 2 for anything that is not linear in it. */
static int degree(const unknown *u, tn_dim d)
{
    if (d->kind == TN_DIM_CONST || d->kind == TN_DIM_SYMBOL)
        return d == u->symbol;
    int sum = 0, most = 0;
    for (int i = 0; i < d->noperands; i++) {
        int one = degree(u, d->operand[i]);
        sum += one, most = one > most ? one : most;
    }
    if (d->kind == TN_DIM_ADD)
        return most;
    if (d->kind == TN_DIM_MUL)
        return sum > 2 ? 2 : sum;
    return sum ? 2 : 0;
}

/* Finds the unknown x of `dim` = size from dim(0) and dim(1); false if there is no whole solution. */
static bool solve(unknown *u, tn_dim dim, int64_t size, int64_t *x)
{
    int64_t at0, at1, slope, rest;
    u->trial = 0;
    if (!tn_dim_eval(dim, look_up_trial, u, &at0))
        return false;
    u->trial = 1;
    if (!tn_dim_eval(dim, look_up_trial, u, &at1) || !tn_sub(at1, at0, &slope) || !tn_sub(size, at0, &rest))
        return false;
    if (slope == 0 || (slope == -1 && rest == INT64_MIN) || rest % slope)
        return false;
    *x = rest / slope;
    return true;
}

static const char *dim_text(tn_session *session, tn_dim dim)
{
    tn_text text = {.arena = &session->arena};
    tn_text_dim(&text, dim);
    return text.at;
}

static bool within_facts(tn_dim symbol, int64_t value)
{
    return value >= symbol->lo && value <= symbol->hi && (symbol->multiple <= 1 || value % symbol->multiple == 0);
}

static tn_status bind_one(tn_session *session, tn_dim_env *env, tn_loc loc, const char *what, int axis, tn_dim dim,
                          int64_t size)
{
    unknown u = {.env = env};
    int64_t value = 0;
    tn_dim_symbols(dim, find_unknown, &u);
    if (!u.symbol) {
        if (tn_env_eval(env, dim, &value) && value == size)
            return TN_OK;
        const char *hint = !tn_dim_is_const(dim) && (size == 1 || value == 1)
                               ? "; a size of 1 that broadcasts is told when the network is loaded (--dim NAME=1)"
                               : "";
        return tn_error(session, TN_INVALID, loc, "%s: dimension %d is %s%s, found %lld%s", what, axis, dim_text(session, dim),
                        tn_dim_is_const(dim) ? "" : tn_format(&session->arena, " = %lld", (long long)value), (long long)size, hint);
    }
    if (u.several || degree(&u, dim) != 1)
        return TN_OK; /* another dimension may tell */
    if (!solve(&u, dim, size, &value))
        return tn_error(session, TN_INVALID, loc, "%s: dimension %d is %s, which no whole %s makes %lld", what, axis,
                        dim_text(session, dim), u.symbol->name, (long long)size);
    if (!within_facts(u.symbol, value))
        return tn_error(session, TN_INVALID, loc,
                        "%s: dimension %d gives %s = %lld, declared to be in [%lld, %lld] and a multiple of %lld", what,
                        axis, u.symbol->name, (long long)value, (long long)u.symbol->lo, (long long)u.symbol->hi,
                        (long long)u.symbol->multiple);
    tn_env_set(env, u.symbol->name, value);
    return TN_OK;
}

/* Symbols alone first, so that what depends on them is then a check, in whichever order the dimensions stand. A
 * dimension with two unknowns, or one that is not linear, is left to later calls. */
tn_status tn_env_bind(tn_session *session, tn_dim_env *env, tn_loc loc, const char *what, const tn_type *type, int rank,
                      const int64_t *dims)
{
    if (rank != type->rank)
        return tn_error(session, TN_INVALID, loc, "%s: rank is %d, found %d", what, type->rank, rank);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return tn_error(session, TN_INVALID, loc, "%s: dimension %d is negative, found %lld", what, i,
                            (long long)dims[i]);
    for (int i = 0; i < rank; i++)
        if (type->dim[i]->kind == TN_DIM_SYMBOL)
            TN_TRY(bind_one(session, env, loc, what, i, type->dim[i], dims[i]));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < rank; i++)
            TN_TRY(bind_one(session, env, loc, what, i, type->dim[i], dims[i]));
    return TN_OK;
}
