/* The table of passes, lists of them, and running a list. */
#include "opt/internal.h"

#include <string.h>

const tn_opt_pass tn_opt_passes[] = {
    {"shapes", opt_shapes}, {"canonicalize", opt_canonicalize},
    {"fold", opt_fold},     {"simplify", opt_simplify},
    {"layout", opt_layout}, {"cse", opt_cse},
    {"dce", opt_dce},       {NULL, NULL},
};

static const char cleanup[] = "fold,simplify,cse,dce";
const char tn_opt_pipeline[] = "shapes,canonicalize,cleanup,shapes,layout,cleanup";

/* ---- lists ----------------------------------------------------------------------------------------------------- */

/* The next item of a list, spaces around it dropped; NULL at the end. */
static const char *next_item(const char **at, size_t *len)
{
    while (**at == ' ' || **at == ',')
        ++*at;
    const char *item = *at;
    *len = strcspn(item, ",");
    *at += *len;
    while (*len && item[*len - 1] == ' ')
        --*len;
    return *len ? item : NULL;
}

static bool item_is(const char *item, size_t len, const char *word)
{
    return strlen(word) == len && strncmp(item, word, len) == 0;
}

bool tn_opt_list_has(const char *list, const char *item)
{
    size_t len;
    for (const char *at = list ? list : "", *found; (found = next_item(&at, &len));)
        if (item_is(found, len, item))
            return true;
    return false;
}

static const tn_opt_pass *find_pass(const char *item, size_t len)
{
    for (const tn_opt_pass *pass = tn_opt_passes; pass->name; pass++)
        if (item_is(item, len, pass->name))
            return pass;
    return NULL;
}

static tn_status unknown_pass(tn_session *session, const char *item, size_t len)
{
    tn_text text = {.arena = &session->arena};
    for (const tn_opt_pass *pass = tn_opt_passes; pass->name; pass++)
        tn_text_add(&text, "%s%s", text.len ? ", " : "", pass->name);
    return tn_error(session, TN_USAGE, TN_NO_LOC, "there is no pass '%.*s' on graphs; there are: %s", (int)len, item,
                    text.at);
}

/* Does the list only take passes out? Words that are not ours do not count. */
static bool only_removes(const char *list)
{
    size_t len;
    for (const char *at = list, *item; (item = next_item(&at, &len));)
        if (item[0] != '-' && !item_is(item, len, "fuse"))
            return false;
    return true;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static void print_graph(const tn_opt_options *options, const char *pass, const tn_graph *graph)
{
    enum { MOST_ELEMENTS = 64 };
    if (options->print) {
        options->print(options->context, pass, graph);
        return;
    }
    tn_arena arena = {0};
    tn_text text = {.arena = &arena};
    tn_text_graph_elided(&text, graph, MOST_ELEMENTS);
    fprintf(stderr, "// after %s\n%s", pass, text.at);
    tn_arena_free(&arena);
}

static tn_status run_pass(tn_graph *graph, const tn_opt_pass *pass, const tn_opt_options *options, bool *any)
{
    bool changed = false;
    double start = tn_seconds();
    TN_TRY(pass->run(graph, options, &changed));
    *any |= changed;
    if (options->timing)
        options->timing(options->context, pass->name, tn_seconds() - start, changed);
    if (changed && options->print_after &&
        (!strcmp(options->print_after, "all") || !strcmp(options->print_after, pass->name)))
        print_graph(options, pass->name, graph);
    if (!options->verify)
        return TN_OK;
    tn_status status = tn_graph_verify(graph);
    if (status != TN_OK)
        tn_note(graph->session, TN_NO_LOC, "graph '%s' is wrong after pass '%s': this is a fault of Tenon", graph->name,
                pass->name);
    return status;
}

static tn_status run_list(tn_session *session, tn_graph *graph, const char *list, const char *removed,
                          const tn_opt_options *options, bool *any)
{
    enum { ROUNDS = 8 };
    size_t len;
    for (const char *at = list, *item; (item = next_item(&at, &len));) {
        const tn_opt_pass *pass = find_pass(item, len);
        if (item_is(item, len, "default")) {
            TN_TRY(run_list(session, graph, tn_opt_pipeline, removed, options, any));
        } else if (item_is(item, len, "cleanup") && !tn_opt_list_has(removed, "-cleanup")) {
            bool more = true;
            for (int round = 0; more && round < ROUNDS; round++) {
                more = false;
                TN_TRY(run_list(session, graph, cleanup, removed, options, &more));
                *any |= more;
            }
        } else if (pass && !tn_opt_list_has(removed, tn_format(&session->arena, "-%s", pass->name))) {
            TN_TRY(run_pass(graph, pass, options, any));
        }
    }
    return TN_OK;
}

static tn_status check_list(tn_session *session, const char *list)
{
    size_t len;
    const char *at = list, *item;
    for (bool more = *list; more; more = *at == ',', at += more) {
        const char *end = at + strcspn(at, ",");
        item = next_item(&at, &len); /* which passes over empty ones */
        if (!item || item >= end)
            return tn_error(session, TN_USAGE, TN_NO_LOC, "passes: '%s' has an empty item; expected names with commas between them", list);
        bool removes = item[0] == '-';
        bool special = item_is(item + removes, len - removes, "fuse") ||
                       item_is(item + removes, len - removes, "cleanup") ||
                       (!removes && (item_is(item, len, "default") || item_is(item, len, "none")));
        if (!special && !find_pass(item + removes, len - removes))
            return unknown_pass(session, item, len);
    }
    return TN_OK;
}

tn_status tn_opt_run(tn_session *session, tn_graph *graph, const char *list, const tn_opt_options *options)
{
    static const tn_opt_options defaults;
    const char *removed = list ? list : "";
    size_t len;
    if (!options)
        options = &defaults;
    TN_TRY(check_list(session, removed));
    const char *at = removed;
    if (!list || (next_item(&at, &len) && only_removes(list)))
        list = tn_opt_pipeline;
    bool any = false;
    return run_list(session, graph, list, removed, options, &any);
}
