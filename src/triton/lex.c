#include "triton/lex.h"

#include <ctype.h>
#include <string.h>

enum { MAX_TOKEN = 1000, MAX_FORMATS = 8, TAB = 8 };

typedef struct indentation {
    int column, alternative; /* with tabs to the next multiple of 8, and with tabs of 1: both must tell the same order */
} indentation;

typedef struct lexer {
    tn_session *session;
    const char *source;
    size_t size;  /* up to the first byte that is not text */
    size_t whole;
    tn_place place;
    tn_tokens *out;
    tn_place bracket[TN_TRITON_MAX_NESTING]; /* the open ones */
    char bracket_kind[TN_TRITON_MAX_NESTING];
    int nbrackets;
    indentation indent[TN_TRITON_MAX_INDENTS];
    int nindents;
    bool begun;      /* the first line gives the indentation of the whole text */
    bool in_field, in_format;
    bool failed;
} lexer;

static const struct {
    const char *text;
    uint16_t kind;
} keywords[] = {
#define TOKEN(kind, text) {text, TN_TOK_##kind},
    TN_TRITON_KEYWORDS
}, operators[] = {
    TN_TRITON_OPERATORS
#undef TOKEN
};

const char *tn_token_text(tn_token_kind kind)
{
    for (size_t i = 0; i < TN_COUNT(keywords); i++)
        if (keywords[i].kind == kind)
            return keywords[i].text;
    for (size_t i = 0; i < TN_COUNT(operators); i++)
        if (operators[i].kind == kind)
            return operators[i].text;
    return NULL;
}

/* ---- characters ------------------------------------------------------------------------------------------------------ */

/* Bytes of the character at `at`; 0: not UTF-8 (too long, a surrogate, above U+10FFFF, cut off). */
static size_t utf8(const char *at, const char *end, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)*at;
    size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (n == 0 || (size_t)(end - at) < n)
        return 0;
    uint32_t code = n == 1 ? c : c & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    *out = code;
    return code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

static size_t text_prefix(const char *source, size_t size)
{
    uint32_t code;
    size_t at = 0, n;
    while (at < size && source[at] && (n = utf8(source + at, source + size, &code)))
        at += n;
    return at;
}

static bool is_line_end(char c) { return c == '\n' || c == '\r'; }
bool tn_is_name_start(char c) { return isalpha((unsigned char)c) || c == '_' || (c & 0x80); }
bool tn_is_name(char c) { return tn_is_name_start(c) || isdigit((unsigned char)c); }

static char char_at(const lexer *l, size_t at) { return at < l->size ? l->source[at] : '\0'; }

/* One character, or a line end of one or two. */
static void step(tn_place *p, const char *source, size_t size)
{
    char c = source[p->at++];
    if (c == '\n' || (c == '\r' && !(p->at < size && source[p->at] == '\n'))) {
        p->line++;
        p->column = 1;
        return;
    }
    if (c != '\r' && (p->at >= size || (source[p->at] & 0xc0) != 0x80)) /* the last byte of a character */
        p->column++;
}

void tn_place_advance(tn_place *place, const char *source, size_t size, size_t to)
{
    while (place->at < to && place->at < size)
        step(place, source, size);
}

static void advance(lexer *l, size_t to) { tn_place_advance(&l->place, l->source, l->size, to); }

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

static void push(lexer *l, tn_token_kind kind, tn_place at, size_t size)
{
    TN_PUSH(&l->session->arena, &l->out->list,
            (tn_token){.kind = (uint16_t)kind, .at = (uint32_t)at.at, .size = (uint32_t)size, .line = at.line, .column = at.column});
}

static bool fail(lexer *l, tn_place at, const char *message)
{
    if (l->failed)
        return false;
    l->failed = true;
    l->out->message = message;
    l->out->where = at;
    push(l, TN_TOK_ERROR, l->place, 0);
    return false;
}

/* For what the end of the text leaves open: a byte that is no text is the better reason. */
static bool fail_at_end(lexer *l, tn_place at, const char *message)
{
    if (l->size == l->whole)
        return fail(l, at, message);
    advance(l, l->size);
    unsigned char byte = (unsigned char)l->source[l->size];
    return fail(l, l->place, byte ? tn_format(&l->session->arena, "the text is not UTF-8: byte 0x%02x", byte) : "the text holds a zero byte");
}

/* ---- strings --------------------------------------------------------------------------------------------------------- */

static bool prefix_letters(const char *text, size_t n, tn_string_form *form)
{
    for (size_t i = 0; i < n; i++) {
        char c = (char)(text[i] | 32);
        bool *seen = c == 'r' ? &form->raw : c == 'b' ? &form->bytes : c == 'f' ? &form->format : NULL;
        if (c == 'u' && n == 1)
            continue;
        if (!seen || *seen)
            return false;
        *seen = true;
    }
    return !(form->bytes && form->format);
}

/* quotes 0: no string starts here. */
tn_string_form tn_string_form_of(const char *text, size_t size)
{
    tn_string_form form = {0};
    while (form.prefix < size && form.prefix < 3 && isalpha((unsigned char)text[form.prefix]))
        form.prefix++;
    const char *q = text + form.prefix;
    size_t left = size - form.prefix;
    if (left == 0 || (*q != '"' && *q != '\'') || !prefix_letters(text, form.prefix, &form))
        return form;
    form.quotes = left >= 3 && q[1] == *q && q[2] == *q ? 3 : 1;
    return form;
}

static bool at_quotes(const lexer *l, size_t at, char quote, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at + i >= l->size || l->source[at + i] != quote)
            return false;
    return true;
}

/* These find ends: *at moves past what they name; false: it does not end. */
static bool skip_string(const lexer *l, size_t *at, int depth);

/* A replacement field, from after its `{` to after its `}`. */
static bool skip_field(const lexer *l, size_t *at, char quote, size_t quotes, int depth)
{
    int brackets = 0;
    while (*at < l->size) {
        char c = l->source[*at];
        tn_string_form form = tn_string_form_of(l->source + *at, l->size - *at);
        if (form.quotes) {
            if (!skip_string(l, at, depth + 1))
                return false;
            continue;
        }
        if (tn_is_name_start(c)) {
            while (*at < l->size && tn_is_name(l->source[*at]))
                ++*at;
            continue;
        }
        ++*at;
        if (c == '#') {
            while (*at < l->size && !is_line_end(l->source[*at]))
                ++*at;
        } else if (c == '(' || c == '[' || c == '{') {
            brackets++;
        } else if (brackets && (c == ')' || c == ']' || c == '}')) {
            brackets--;
        } else if (c == '}') {
            return true;
        } else if (c == ':' && brackets == 0) { /* the format's specification: text with fields */
            while (*at < l->size && l->source[*at] != '}') {
                if (at_quotes(l, *at, quote, quotes) || (quotes == 1 && is_line_end(l->source[*at])))
                    return false;
                if (l->source[(*at)++] == '{' && (depth >= MAX_FORMATS || !skip_field(l, at, quote, quotes, depth + 1)))
                    return false;
            }
        }
    }
    return false;
}

static bool skip_string(const lexer *l, size_t *at, int depth)
{
    if (depth > MAX_FORMATS)
        return false;
    tn_string_form form = tn_string_form_of(l->source + *at, l->size - *at);
    char quote = l->source[*at + form.prefix];
    *at += form.prefix + form.quotes;
    while (*at < l->size) {
        char c = l->source[*at];
        if (at_quotes(l, *at, quote, form.quotes)) {
            *at += form.quotes;
            return true;
        }
        if (form.quotes == 1 && is_line_end(c))
            return false;
        if (c == '\\' && *at + 1 < l->size && !(form.raw && form.format && (l->source[*at + 1] == '{' || l->source[*at + 1] == '}'))) {
            *at += l->source[*at + 1] == '\r' && char_at(l, *at + 2) == '\n' ? 3 : 2;
            continue;
        }
        ++*at;
        if (c != '{' || !form.format)
            continue;
        if (char_at(l, *at) == '{')
            ++*at;
        else if (!skip_field(l, at, quote, form.quotes, depth))
            return false;
    }
    return false;
}

static bool lex_string(lexer *l)
{
    tn_place start = l->place;
    size_t end = start.at;
    if (!skip_string(l, &end, 0)) {
        if (end >= l->size)
            return fail_at_end(l, start, "this string is never closed");
        return fail(l, start, is_line_end(l->source[end]) ? "this string is not closed on its line" : "this f-string is not closed, or is nested too deep");
    }
    push(l, TN_TOK_STRING, start, end - start.at);
    advance(l, end);
    return true;
}

/* ---- numbers, names, operators ------------------------------------------------------------------------------------------ */

static size_t digits_end(const lexer *l, size_t at)
{
    while (isdigit((unsigned char)char_at(l, at)) || char_at(l, at) == '_')
        at++;
    return at;
}

/* `1if x else y` is Python's, with a warning. */
static bool at_operator_word(const lexer *l, size_t at)
{
    static const char *const words[] = {"and", "else", "for", "if", "in", "is", "not", "or"};
    for (size_t i = 0; i < TN_COUNT(words); i++) {
        size_t n = strlen(words[i]);
        if (l->size - at >= n && memcmp(l->source + at, words[i], n) == 0 && !tn_is_name(char_at(l, at + n)))
            return true;
    }
    return false;
}

/* Takes what is meant to be one number; whether it is one, literal.c says: host code is not judged. */
static bool lex_number(lexer *l)
{
    tn_place start = l->place;
    size_t at = start.at;
    bool based = l->source[at] == '0' && strchr("xXoObB", char_at(l, at + 1)) && char_at(l, at + 1);
    if (!based) {
        at = digits_end(l, at);
        if (char_at(l, at) == '.')
            at = digits_end(l, at + 1);
        char sign = char_at(l, at + 1);
        bool signed_exponent = sign == '+' || sign == '-';
        if ((char_at(l, at) | 32) == 'e' && isdigit((unsigned char)char_at(l, at + 1 + signed_exponent)))
            at = digits_end(l, at + 1 + signed_exponent);
    }
    if (based || !at_operator_word(l, at))
        while (at < l->size && tn_is_name(l->source[at]))
            at++;
    if (at - start.at > MAX_TOKEN)
        return fail(l, start, tn_format(&l->session->arena, "a number of %zu characters; %d is the most", at - start.at, MAX_TOKEN));
    push(l, TN_TOK_NUMBER, start, at - start.at);
    advance(l, at);
    return true;
}

/* Characters beyond ASCII that text editors and web pages put where an operator, a quote or a blank was meant. */
static bool is_typography(uint32_t code)
{
    return code < 0xaa || code == 0xd7 || code == 0xf7 || (code >= 0x2000 && code <= 0x206f) || (code >= 0x2190 && code <= 0x2bff) ||
           (code >= 0x3000 && code <= 0x3004) || (code >= 0x3008 && code <= 0x301f) || (code >= 0xff00 && code <= 0xff0f) || code == 0xfeff;
}

static bool lex_name(lexer *l)
{
    tn_place start = l->place;
    size_t end = start.at;
    while (end < l->size && tn_is_name(l->source[end])) {
        uint32_t code;
        size_t n = utf8(l->source + end, l->source + l->size, &code);
        if (n > 1 && is_typography(code)) {
            advance(l, end);
            return fail(l, l->place, tn_format(&l->session->arena, "the character U+%04X cannot stand here", code));
        }
        end += n;
    }
    size_t size = end - start.at;
    if (size > MAX_TOKEN)
        return fail(l, start, tn_format(&l->session->arena, "a name of %zu characters; %d is the most", size, MAX_TOKEN));
    tn_token_kind kind = TN_TOK_NAME;
    for (size_t i = 0; i < TN_COUNT(keywords) && kind == TN_TOK_NAME; i++)
        if (keywords[i].text[0] == l->source[start.at] && strlen(keywords[i].text) == size && memcmp(keywords[i].text, l->source + start.at, size) == 0)
            kind = keywords[i].kind;
    push(l, kind, start, size);
    advance(l, end);
    return true;
}

static bool open_bracket(lexer *l, char c)
{
    if (l->nbrackets == TN_TRITON_MAX_NESTING)
        return fail(l, l->place, tn_format(&l->session->arena, "brackets are nested more than %d deep", TN_TRITON_MAX_NESTING));
    l->bracket[l->nbrackets] = l->place;
    l->bracket_kind[l->nbrackets++] = c;
    return true;
}

static bool close_bracket(lexer *l, char c)
{
    char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (l->nbrackets == 0)
        return fail(l, l->place, tn_format(&l->session->arena, "`%c` closes nothing", c));
    char open = l->bracket_kind[--l->nbrackets];
    if (open == opening)
        return true;
    return fail(l, l->place, tn_format(&l->session->arena, "`%c` does not close `%c` on line %d", c, open, l->bracket[l->nbrackets].line));
}

static bool lex_operator(lexer *l)
{
    size_t left = l->size - l->place.at;
    const char *at = l->source + l->place.at;
    for (size_t i = 0; i < TN_COUNT(operators); i++) {
        size_t n = strlen(operators[i].text);
        if (n > left || memcmp(at, operators[i].text, n) != 0)
            continue;
        if ((strchr("([{", *at) && !open_bracket(l, *at)) || (strchr(")]}", *at) && !close_bracket(l, *at)))
            return false;
        push(l, operators[i].kind, l->place, n);
        advance(l, l->place.at + n);
        return true;
    }
    return fail(l, l->place,
                isprint((unsigned char)*at) ? tn_format(&l->session->arena, "the character `%c` cannot stand here", *at)
                                            : tn_format(&l->session->arena, "the byte 0x%02x cannot stand here", (unsigned char)*at));
}

/* ---- lines ----------------------------------------------------------------------------------------------------------- */

static void skip_line_end(lexer *l) { advance(l, l->place.at + (char_at(l, l->place.at) == '\r' && char_at(l, l->place.at + 1) == '\n' ? 2 : 1)); }

static void skip_comment(lexer *l)
{
    size_t at = l->place.at;
    while (at < l->size && !is_line_end(l->source[at]))
        at++;
    advance(l, at);
}

static bool set_indentation(lexer *l, indentation now)
{
    static const char mixed[] = "tabs and blanks are mixed so that the depth of this line depends on the width of a tab";
    if (!l->begun) {
        l->begun = true;
        l->indent[l->nindents++] = now;
        return true;
    }
    indentation *top = &l->indent[l->nindents - 1];
    if (now.column > top->column) {
        if (now.alternative <= top->alternative)
            return fail(l, l->place, mixed);
        if (l->nindents == TN_TRITON_MAX_INDENTS)
            return fail(l, l->place, tn_format(&l->session->arena, "blocks are nested more than %d deep", TN_TRITON_MAX_INDENTS - 1));
        l->indent[l->nindents++] = now;
        push(l, TN_TOK_INDENT, l->place, 0);
        return true;
    }
    while (l->nindents > 1 && now.column < l->indent[l->nindents - 1].column) {
        l->nindents--;
        push(l, TN_TOK_DEDENT, l->place, 0);
    }
    top = &l->indent[l->nindents - 1];
    if (now.column != top->column)
        return fail(l, l->place, l->nindents == 1 && now.column < top->column ? "this line is indented less than the first one"
                                                                              : "the indentation of this line is that of no block around it");
    return now.alternative == top->alternative || fail(l, l->place, mixed);
}

/* To the first character of the next line that is more than blanks and a comment. */
static bool start_line(lexer *l)
{
    indentation now = {0};
    for (;;) {
        char c = char_at(l, l->place.at);
        if (l->place.at >= l->size)
            return true;
        if (c == '#')
            skip_comment(l);
        if (c == ' ')
            now.column++, now.alternative++;
        else if (c == '\t')
            now.column = (now.column / TAB + 1) * TAB, now.alternative++;
        else if (c == '\f' || is_line_end(c))
            now = (indentation){0};
        else if (c != '#')
            return set_indentation(l, now);
        if (is_line_end(c))
            skip_line_end(l);
        else if (c != '#')
            advance(l, l->place.at + 1);
    }
}

static bool ends_field(const lexer *l)
{
    char c = char_at(l, l->place.at), next = char_at(l, l->place.at + 1);
    return l->nbrackets == 0 && (c == '}' || c == ':' || ((c == '!' || c == '=') && next != '='));
}

static bool lex_token(lexer *l, bool *line_ends)
{
    char c = l->source[l->place.at];
    bool joined = l->in_field || l->nbrackets > 0;
    if (c == ' ' || c == '\t' || c == '\f' || (is_line_end(c) && joined)) {
        if (is_line_end(c))
            skip_line_end(l);
        else
            advance(l, l->place.at + 1);
        return true;
    }
    if (is_line_end(c)) {
        push(l, TN_TOK_NEWLINE, l->place, 0);
        skip_line_end(l);
        *line_ends = true;
        return true;
    }
    if (c == '#') {
        skip_comment(l);
        return true;
    }
    if (c == '\\') {
        tn_place start = l->place;
        advance(l, l->place.at + 1);
        if (l->place.at < l->size && !is_line_end(l->source[l->place.at]))
            return fail(l, start, "`\\` joins lines and must be the last character of its line");
        if (l->place.at < l->size)
            skip_line_end(l);
        return l->place.at < l->size || fail_at_end(l, start, "the text ends after `\\`");
    }
    if (tn_string_form_of(l->source + l->place.at, l->size - l->place.at).quotes)
        return lex_string(l);
    if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)char_at(l, l->place.at + 1))))
        return lex_number(l);
    return tn_is_name_start(c) ? lex_name(l) : lex_operator(l);
}

static void finish(lexer *l)
{
    if (l->failed)
        return;
    if (l->nbrackets) {
        int open = l->nbrackets - 1;
        fail_at_end(l, l->bracket[open], tn_format(&l->session->arena, "this `%c` is never closed", l->bracket_kind[open]));
        return;
    }
    if (l->size != l->whole && !l->in_format) {
        fail_at_end(l, l->place, "");
        return;
    }
    size_t n = l->out->list.len;
    if (!l->in_field && n && l->out->list.at[n - 1].kind != TN_TOK_NEWLINE && l->out->list.at[n - 1].kind != TN_TOK_DEDENT)
        push(l, TN_TOK_NEWLINE, l->place, 0);
    for (; l->nindents > 1; l->nindents--)
        push(l, TN_TOK_DEDENT, l->place, 0);
    push(l, TN_TOK_END, l->place, 0);
}

void tn_lex(tn_session *session, const char *source, size_t size, int first_line, tn_tokens *out)
{
    static const char mark[] = "\xef\xbb\xbf";
    lexer l = {.session = session, .source = source, .size = text_prefix(source, size), .whole = size, .out = out};
    *out = (tn_tokens){0};
    l.place = (tn_place){.at = size >= 3 && memcmp(source, mark, 3) == 0 ? 3 : 0, .line = first_line, .column = 1};
    bool line_ends = true;
    while (!l.failed && l.place.at < l.size) {
        if (line_ends && !start_line(&l))
            break;
        line_ends = false;
        if (l.place.at < l.size && !lex_token(&l, &line_ends))
            break;
    }
    finish(&l);
}

void tn_lex_field(tn_session *session, const char *source, size_t size, tn_place start, bool in_format, tn_tokens *out)
{
    lexer l = {.session = session, .source = source, .whole = size, .out = out, .place = start, .in_field = true, .in_format = in_format};
    l.size = in_format ? size : start.at + text_prefix(source + start.at, size - start.at); /* a string's characters have been looked at */
    *out = (tn_tokens){0};
    bool line_ends;
    while (!l.failed && l.place.at < l.size && !(in_format && ends_field(&l)))
        if (!lex_token(&l, &line_ends))
            break;
    out->stop = l.place.at;
    finish(&l);
}
