/* Names in the text form: bare where they read as identifiers, quoted otherwise. */
#include "graph/internal.h"

#include <ctype.h>
#include <string.h>

static bool is_name_start(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static size_t bare_length(const char *text)
{
    size_t n = 0;
    if (!is_name_start(text[0]))
        return 0;
    while (is_name_char(text[n]))
        n++;
    return n;
}

void tn_text_quoted(tn_text *text, const char *string)
{
    tn_text_add(text, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\')
            tn_text_add(text, "\\%c", *c);
        else if ((unsigned char)*c < 0x20 || *c == 0x7f)
            tn_text_add(text, "\\x%02x", (unsigned char)*c);
        else
            tn_text_add(text, "%c", *c);
    }
    tn_text_add(text, "\"");
}

void tn_text_symbol(tn_text *text, const char *name)
{
    size_t n = bare_length(name);
    if (n > 0 && name[n] == '\0')
        tn_text_add(text, "%s", name);
    else
        tn_text_quoted(text, name);
}

size_t tn_quoted_parse(tn_session *session, const char *text, const char **out)
{
    const char *at = text + 1;
    if (*text != '"')
        return 0;
    tn_text name = {.arena = &session->arena};
    tn_text_put(&name, "", 0);
    for (; *at != '"'; at++) {
        char c = *at;
        if (c == '\0' || c == '\n')
            return 0;
        if (c == '\\') {
            c = *++at;
            if (c == 'x') {
                int high = tn_hex_digit(at[1]), low = high < 0 ? -1 : tn_hex_digit(at[2]);
                if (low < 0 || high * 16 + low == 0)
                    return 0;
                c = (char)(high * 16 + low);
                at += 2;
            } else if (c != '"' && c != '\\') {
                return 0;
            }
        }
        tn_text_put(&name, &c, 1);
    }
    *out = tn_intern(session, name.at, name.len);
    return (size_t)(at + 1 - text);
}

size_t tn_symbol_parse(tn_session *session, const char *text, const char **out)
{
    size_t n = bare_length(text);
    if (n == 0)
        return tn_quoted_parse(session, text, out);
    *out = tn_intern(session, text, n);
    return n;
}
