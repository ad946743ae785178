/* The table of the passes, the default order, and the driver. */
#include "loop/internal.h"

#include <string.h>

const tn_loop_pass tn_loop_passes[] = {
    {"simplify", tn_loop_simplify}, {"hoist", tn_loop_hoist},   {"vectorize", tn_loop_vectorize},
    {"unroll", tn_loop_unroll},     {"expand", tn_loop_expand}, {NULL, NULL},
};

/* The first simplify makes strides and trip counts visible to vectorize; unroll makes offsets constants, which the
 * second one folds and merges; expand comes late, because what precedes it is small and its rows are still
 * recognisable; hoist runs once everything that may move (splats, offsets, constants' arithmetic) exists. */
const char *const tn_loop_pipeline = "simplify,vectorize,unroll,simplify,expand,hoist,simplify";

static const tn_loop_pass *find_pass(const char *name, size_t len)
{
    for (const tn_loop_pass *pass = tn_loop_passes; pass->name; pass++)
        if (strlen(pass->name) == len && memcmp(pass->name, name, len) == 0)
            return pass;
    return NULL;
}

static tn_status unknown_pass(tn_session *session, const char *name, size_t len)
{
    tn_text text = {.arena = &session->arena};
    for (const tn_loop_pass *pass = tn_loop_passes; pass->name; pass++)
        tn_text_add(&text, "%s%s", text.len ? ", " : "", pass->name);
    return tn_error(session, TN_USAGE, TN_NO_LOC, "there is no pass '%.*s' on loops; there are: %s", (int)len, name, text.at);
}

static void print_after_pass(const tn_lfunc *func, const char *pass)
{
    tn_text text = {.arena = tn_l_arena(func)};
    tn_text_lfunc(&text, func);
    fprintf(stderr, "// after loop-%s\n%s", pass, text.at);
}

/* Bits of the widest vector that vectorize makes. */
static int widest_vector(const tn_vector_spec *spec)
{
    enum { MOST_BITS = 64 }; /* of an element that has lanes */
    return spec->most_lanes ? spec->most_lanes * MOST_BITS : spec->bits;
}

/* Rule L5 holds from vectorize on. */
static tn_status run_pass(tn_lfunc *func, const tn_loop_pass *pass, const tn_pass_options *options, bool verify,
                          bool *vectorized)
{
    TN_TRY(pass->run(func, options));
    *vectorized |= pass->run == tn_loop_vectorize;
    return verify ? tn_loop_verify(func, *vectorized ? widest_vector(&options->vector) : 0) : TN_OK;
}

tn_status tn_loop_run_passes(tn_lfunc *func, const char *list, const tn_pass_options *options, bool verify,
                             const char *print_after)
{
    bool vectorized = false;
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        const tn_loop_pass *pass = find_pass(at, len);
        if (!pass)
            return unknown_pass(func->session, at, len);
        TN_TRY(run_pass(func, pass, options, verify, &vectorized));
        if (print_after && (strcmp(print_after, "all") == 0 || strcmp(print_after, pass->name) == 0))
            print_after_pass(func, pass->name);
        at += len + (at[len] == ',');
    }
    return TN_OK;
}
