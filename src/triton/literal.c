#include "triton/lex.h"

#include <ctype.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static int digit_value(char c) { return isdigit((unsigned char)c) ? c - '0' : isalpha((unsigned char)c) ? (c | 32) - 'a' + 10 : 99; }

static int base_of(const char *text, size_t size)
{
    if (size < 2 || text[0] != '0')
        return 10;
    switch (text[1] | 32) {
    case 'x': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 10;
    }
}

/* An underscore stands between two digits, or between the base's letter and a digit. */
static bool underscores_fit(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] == '_' && (i == 0 || i + 1 == size || !isalnum((unsigned char)text[i - 1]) || !isalnum((unsigned char)text[i + 1])))
            return false;
    return true;
}

static bool read_integer(tn_session *session, const char *text, size_t n, int base, tn_ast *node, const char **message)
{
    const unsigned __int128 most = ~(unsigned __int128)0 >> 1;
    unsigned __int128 value = 0;
    size_t i = base == 10 ? 0 : 2;
    bool any = false;
    for (; i < n; i++) {
        int digit = digit_value(text[i]);
        if (digit >= base) {
            *message = tn_format(&session->arena, "`%.*s` is no number of base %d", (int)n, text, base);
            return false;
        }
        if (value > (most - (unsigned)digit) / (unsigned)base) {
            *message = tn_format(&session->arena, "the integer `%.*s` needs more than 128 bits", (int)n, text);
            return false;
        }
        value = value * (unsigned)base + (unsigned)digit;
        any = true;
    }
    if (!any || (base == 10 && text[0] == '0' && value != 0)) {
        *message = any ? "an integer may not begin with 0; an octal one begins with 0o" : "a number ends after its base";
        return false;
    }
    node->kind = TN_AST_INT;
    node->integer = (__int128)value;
    return true;
}

bool tn_literal_number(tn_session *session, const char *text, size_t size, tn_ast *node, const char **message)
{
    char *clean = tn_alloc(&session->arena, size + 1);
    size_t n = 0;
    int base = base_of(text, size);
    if (!underscores_fit(text, size)) {
        *message = "an underscore in a number stands between two digits";
        return false;
    }
    for (size_t i = 0; i < size; i++)
        if (text[i] != '_')
            clean[n++] = text[i];
    bool is_float = base == 10 && (memchr(clean, '.', n) || strpbrk(clean, "eE"));
    if (base == 10 && (clean[n - 1] | 32) == 'j') {
        *message = "imaginary numbers are not supported in kernels";
        return false;
    }
    if (!is_float)
        return read_integer(session, clean, n, base, node, message);
    tn_number number;
    if (tn_number_parse(TN_F64, clean, &number) != n) {
        *message = tn_format(&session->arena, "`%.*s` is no number", (int)size, text);
        return false;
    }
    node->kind = TN_AST_FLOAT;
    node->number = number.f;
    return true;
}

/* ---- strings --------------------------------------------------------------------------------------------------------- */

static void put_utf8(tn_text *out, uint32_t code)
{
    char bytes[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char)(first[n] | code);
    tn_text_put(out, bytes, n);
}

/* Up to `most` digits of the base from `at`; how many. */
static size_t read_digits(const char *at, const char *end, int base, size_t most, uint32_t *out)
{
    size_t n = 0;
    for (*out = 0; n < most && at + n < end && digit_value(at[n]) < base; n++)
        *out = *out * (uint32_t)base + (uint32_t)digit_value(at[n]);
    return n;
}

/* What follows a backslash. Gives the characters used; 0: a fault. */
static size_t put_escape(tn_session *session, const char *at, const char *end, tn_text *out, const char **message)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *name = *at ? strchr(names, *at) : NULL;
    uint32_t code;
    if (name) {
        tn_text_put(out, &values[name - names], 1);
        return 1;
    }
    if (*at == '\n')
        return 1;
    if (*at == '\r')
        return at + 1 < end && at[1] == '\n' ? 2 : 1;
    size_t octal = read_digits(at, end, 8, 3, &code);
    if (octal) {
        put_utf8(out, code);
        return octal;
    }
    size_t digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (digits) {
        if (read_digits(at + 1, end, 16, digits, &code) != digits) {
            *message = tn_format(&session->arena, "`\\%c` needs %zu hexadecimal digits", *at, digits);
            return 0;
        }
        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
            *message = "this escape names no character";
            return 0;
        }
        put_utf8(out, code);
        return digits + 1;
    }
    if (*at == 'N') {
        *message = "characters by name (`\\N{...}`) are not supported in kernels";
        return 0;
    }
    tn_text_put(out, "\\", 1); /* an unknown escape stands for itself */
    return tn_text_put(out, at, 1), 1;
}

bool tn_literal_string(tn_session *session, const char *text, size_t size, bool raw, tn_text *out, size_t *wrong, const char **message)
{
    const char *end = text + size;
    for (const char *at = text; at < end;) {
        size_t plain = 0;
        while (at + plain < end && at[plain] != '\r' && (raw || at[plain] != '\\'))
            plain++;
        tn_text_put(out, at, plain);
        at += plain;
        if (at == end)
            break;
        if (*at == '\r') { /* line ends are one character */
            tn_text_put(out, "\n", 1);
            at += at + 1 < end && at[1] == '\n' ? 2 : 1;
            continue;
        }
        size_t used = at + 1 < end ? put_escape(session, at + 1, end, out, message) : 0;
        if (used == 0) {
            *wrong = (size_t)(at - text);
            return false;
        }
        at += used + 1;
    }
    return true;
}
