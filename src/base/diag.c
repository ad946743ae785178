#include "base/internal.h"

#include <ctype.h>
#include <string.h>

enum { DEFAULT_ERROR_LIMIT = 100 };

const char *tn_intern(tn_session *session, const char *text, size_t len)
{
    const char *interned;
    session->strings.arena = &session->arena;
    tn_map_at_bytes(&session->strings, text ? text : "", len, &interned);
    return interned;
}

const char *tn_intern_z(tn_session *session, const char *text)
{
    return tn_intern(session, text, strlen(text));
}

static size_t error_limit(const tn_session *session)
{
    return session->error_limit ? session->error_limit : DEFAULT_ERROR_LIMIT;
}

/* The location's strings are copied: a diagnostic outlives the text of the file it speaks of. */
static void record(tn_session *session, tn_severity severity, tn_status status, tn_loc loc, const char *format,
                   va_list args)
{
    tn_text message = {.arena = &session->arena};
    tn_text_addv(&message, format, args);
    loc.file = loc.file ? tn_intern_z(session, loc.file) : NULL;
    loc.node = loc.node ? tn_intern_z(session, loc.node) : NULL;
    TN_PUSH(&session->arena, &session->diags, (tn_diag){severity, status, loc, message.at});
}

tn_status tn_error(tn_session *session, tn_status status, tn_loc loc, const char *format, ...)
{
    if (session->errors++ < error_limit(session)) {
        va_list args;
        va_start(args, format);
        record(session, TN_ERROR, status, loc, format, args);
        va_end(args);
    }
    return status;
}

/* Notes and warnings have a bound too, or a hostile file could fill the memory with them. */
static bool has_room(const tn_session *session)
{
    return session->diags.len < 10 * error_limit(session);
}

void tn_warning(tn_session *session, tn_loc loc, const char *format, ...)
{
    if (!has_room(session))
        return;
    va_list args;
    va_start(args, format);
    record(session, TN_WARNING, TN_OK, loc, format, args);
    va_end(args);
}

void tn_note(tn_session *session, tn_loc loc, const char *format, ...)
{
    if (!has_room(session))
        return;
    va_list args;
    va_start(args, format);
    record(session, TN_NOTE, TN_OK, loc, format, args);
    va_end(args);
}

void tn_said(tn_session *session, tn_loc loc, const char *text)
{
    if (has_room(session))
        TN_PUSH(&session->arena, &session->diags, (tn_diag){TN_PRINT, TN_OK, loc, tn_strdup(&session->arena, text)});
}

/* Names come from files that may be hostile: no control character reaches a terminal. */
static void print_safely(FILE *to, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t' || !iscntrl(c))
            fputc(c, to);
        else
            fprintf(to, "\\x%02x", c);
    }
}

static void print_diag(const tn_diag *diag, FILE *to)
{
    static const char *const severities[] = {"note", "warning", "error"};
    if (diag->severity == TN_PRINT) {
        print_safely(to, diag->message);
        fputc('\n', to);
        return;
    }
    if (diag->loc.file) {
        print_safely(to, diag->loc.file);
        if (diag->loc.line > 0)
            fprintf(to, ":%d", diag->loc.line);
        if (diag->loc.line > 0 && diag->loc.column > 0)
            fprintf(to, ":%d", diag->loc.column);
        fputs(": ", to);
    }
    fprintf(to, "%s: ", severities[diag->severity]);
    if (diag->loc.node) {
        fputs("node '", to);
        print_safely(to, diag->loc.node);
        fputs("': ", to);
    }
    print_safely(to, diag->message);
    fputc('\n', to);
}

void tn_print_diags(const tn_session *session, FILE *to)
{
    for (size_t i = 0; i < session->diags.len; i++)
        print_diag(&session->diags.at[i], to);
    if (session->errors > error_limit(session))
        fprintf(to, "note: %zu more errors\n", session->errors - error_limit(session));
}
