/* Sessions and diagnostics. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

const char *tn_version(void)
{
    return TENON_VERSION;
}

tn_session *tn_session_new(void)
{
    tn_session *session = calloc(1, sizeof *session);
    if (session)
        session->strings.arena = session->options.arena = &session->arena;
    return session;
}

void tn_session_free(tn_session *session)
{
    if (!session)
        return;
    tn_pools_free(session->pools);
    tn_arena_free(&session->arena);
    free(session);
}

static tn_status report_no_memory(void *argument)
{
    return tn_error(argument, TN_NO_MEMORY, TN_NO_LOC, "out of memory");
}

static tn_status call(tn_session *session, tn_status (*fn)(void *argument), void *argument)
{
    jmp_buf oom, *outer = session->arena.on_oom;
    session->arena.on_oom = &oom;
    tn_status status = TN_NO_MEMORY;
    if (!setjmp(oom))
        status = fn(argument);
    session->arena.on_oom = outer;
    return status;
}

tn_status tn_api_guard(tn_session *session, tn_status (*fn)(void *argument), void *argument)
{
    size_t errors = session->errors;
    tn_status status = call(session, fn, argument);
    if (status == TN_NO_MEMORY && session->errors == errors)
        call(session, report_no_memory, session);
    return status;
}

typedef struct option_call {
    tn_session *session;
    const char *name, *value;
} option_call;

/* Their values are looked at by what uses them (compile.c). */
static const char *const option_names[] = {"matmul-precision", "memory-limit", "numerics", "schedule", "tune", "tune-sizes", "variants"};

static tn_status set_option(void *argument)
{
    option_call *c = argument;
    size_t known = 0;
    while (known < TN_COUNT(option_names) && strcmp(option_names[known], c->name))
        known++;
    if (known == TN_COUNT(option_names)) {
        tn_text names = {.arena = &c->session->arena};
        for (size_t i = 0; i < TN_COUNT(option_names); i++)
            tn_text_add(&names, "%s%s", i ? ", " : "", option_names[i]);
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "no option is called '%s'; there are %s", c->name, names.at);
    }
    const char *value = tn_intern_z(c->session, c->value);
    *tn_map_at_str(&c->session->options, c->name) = (void *)(uintptr_t)value;
    return TN_OK;
}

tn_status tn_session_option(tn_session *session, const char *name, const char *value)
{
    option_call c = {session, name, value};
    return session && name && value ? tn_api_guard(session, set_option, &c) : TN_USAGE;
}

void tn_session_progress(tn_session *session, void (*progress)(void *context, const char *stage, size_t done, size_t total), void *context)
{
    if (!session)
        return;
    session->progress = progress;
    session->progress_context = context;
}

size_t tn_diagnostic_count(const tn_session *session)
{
    return session ? session->diags.len : 0;
}

tn_status tn_diagnostic_at(const tn_session *session, size_t i, tn_diagnostic *out)
{
    if (!session || !out || i >= session->diags.len)
        return TN_USAGE;
    const tn_diag *d = &session->diags.at[i];
    *out = (tn_diagnostic){(int)d->severity, d->status, d->loc.file, d->loc.line, d->loc.column, d->loc.node, d->message};
    return TN_OK;
}

void tn_diagnostics_clear(tn_session *session)
{
    if (session)
        session->diags.len = session->errors = 0;
}
