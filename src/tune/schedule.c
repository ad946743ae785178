/* Schedules as text.
 *
 *     file  = { line }
 *     line  = [ NAME { FIELD "=" INTEGER } ] [ "#" comment ]
 *
 * NAME is a kernel's name in its network (k3_dot), or the name that it has in all (dot-0123456789abcdef). */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tune/internal.h"

const char *tune_name(tn_arena *arena, const tn_choice *choice)
{
    return tn_format(arena, "%s-%016llx", choice->stem, (unsigned long long)tn_hash(choice->key, strlen(choice->key), TN_SCHEDULE_VOCABULARY));
}

void tune_text_values(tn_text *text, const tn_choice *choice, const tn_candidate *candidate)
{
    for (int f = 0; f < choice->nfields; f++)
        tn_text_add(text, "%s%s=%lld", f ? " " : "", choice->field[f], (long long)candidate->value[f]);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------- */

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *word_end(const char *at, const char *end)
{
    while (at < end && !isspace((unsigned char)*at))
        at++;
    return at;
}

bool tune_parse_values(tn_arena *arena, const char *text, size_t size, tune_pin *out, const char **what)
{
    const char *end = text + size;
    for (const char *at = skip_space(text, end), *stop; at < end; at = skip_space(stop, end)) {
        stop = word_end(at, end);
        char *word = tn_strndup(arena, at, (size_t)(stop - at)), *equals = strchr(word, '='), *last = NULL;
        errno = 0;
        long long value = equals && equals != word ? strtoll(equals + 1, &last, 10) : 0;
        if (!last || last == equals + 1 || *last || errno) {
            *what = word;
            return false;
        }
        *equals = 0;
        TN_PUSH(arena, &out->entries, ((tune_entry){word, value}));
    }
    return true;
}

static tn_status read_line(tn_session *session, tn_loc loc, const char *at, const char *end, tune_pins *out)
{
    const char *hash = memchr(at, '#', (size_t)(end - at)), *what;
    end = hash ? hash : end;
    at = skip_space(at, end);
    if (at == end)
        return TN_OK;
    const char *stop = word_end(at, end);
    tune_pin pin = {.name = tn_strndup(&session->arena, at, (size_t)(stop - at)), .loc = loc};
    if (strchr(pin.name, '='))
        return tn_error(session, TN_INVALID, loc, "'%s': a line begins with a kernel's name; `tenon compile --emit=schedule` prints them", pin.name);
    for (size_t i = 0; i < out->len; i++)
        if (!strcmp(out->at[i].name, pin.name))
            return tn_error(session, TN_INVALID, loc, "'%s' is pinned in line %d already", pin.name, out->at[i].loc.line);
    if (!tune_parse_values(&session->arena, stop, (size_t)(end - stop), &pin, &what))
        return tn_error(session, TN_INVALID, loc, "'%s' of %s: expected FIELD=NUMBER", what, pin.name);
    TN_PUSH(&session->arena, out, pin);
    return TN_OK;
}

tn_status tune_read_pins(tn_session *session, const char *path, tune_pins *out)
{
    tn_file file;
    TN_TRY(tn_file_map(session, path, &file));
    const char *at = (const char *)file.data, *end = at + file.size;
    tn_loc loc = {.file = tn_strdup(&session->arena, path)};
    tn_status status = TN_OK;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        loc.line++;
        tn_status one = read_line(session, loc, at, stop, out);
        status = status == TN_OK ? one : status;
        at = newline ? newline + 1 : end;
    }
    tn_file_unmap(&file);
    return status;
}

/* ---- finding ---------------------------------------------------------------------------------------------------------------- */

static int field_number(const tn_choice *choice, const char *name)
{
    for (int f = 0; f < choice->nfields; f++)
        if (!strcmp(choice->field[f], name))
            return f;
    return -1;
}

static bool has(const tn_choice *choice, const tn_candidate *c, const tune_entry *entries, size_t n)
{
    for (size_t e = 0; e < n; e++)
        if (c->value[field_number(choice, entries[e].field)] != entries[e].value)
            return false;
    return true;
}

static bool find(const tn_choice *choice, const tune_entry *entries, size_t n, size_t *index)
{
    for (*index = 0; *index < choice->n; ++*index)
        if (has(choice, &choice->candidate[*index], entries, n))
            return true;
    return false;
}

/* The values of a field that candidates with the entries before it have. */
static const char *text_allowed(tn_arena *arena, const tn_choice *choice, const tune_entry *entries, size_t n, int field)
{
    tn_text text = {.arena = arena};
    for (size_t c = 0; c < choice->n; c++) {
        bool told = !has(choice, &choice->candidate[c], entries, n);
        for (size_t k = 0; k < c && !told; k++)
            told = has(choice, &choice->candidate[k], entries, n) && choice->candidate[k].value[field] == choice->candidate[c].value[field];
        if (!told)
            tn_text_add(&text, "%s%lld", text.len ? ", " : "", (long long)choice->candidate[c].value[field]);
    }
    return text.at;
}

bool tune_find(tn_arena *arena, const tn_choice *choice, const tune_entry *entries, size_t n, size_t *index, const char **what)
{
    tn_text names = {.arena = arena};
    for (int f = 0; f < choice->nfields; f++)
        tn_text_add(&names, "%s%s", f ? ", " : "", choice->field[f]);
    *what = "";
    for (size_t e = 0; e < n; e++)
        if (field_number(choice, entries[e].field) < 0) {
            *what = tn_format(arena, "there is no field '%s'; there are %s", entries[e].field, names.at);
            return false;
        }
    for (size_t e = 1; e <= n; e++)
        if (!find(choice, entries, e, index)) {
            int field = field_number(choice, entries[e - 1].field);
            *what = tn_format(arena, "%s=%lld: expected one of %s%s", entries[e - 1].field, (long long)entries[e - 1].value, text_allowed(arena, choice, entries, e - 1, field),
                              e > 1 ? " with what stands before it" : "");
            return false;
        }
    return find(choice, entries, n, index);
}
