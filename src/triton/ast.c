#include "triton/lex.h"

#include <ctype.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

enum { WINDOW = 160, BEFORE = 100 }; /* of a long line, what is shown around the fault */

static size_t line_end(const char *source, size_t size, size_t at)
{
    while (at < size && source[at] != '\n' && source[at] != '\r')
        at++;
    return at;
}

/* Start of the line, counted from 1; size: there is none. */
static size_t line_start(const char *source, size_t size, int line)
{
    size_t at = 0;
    for (; line > 1 && at < size; line--) {
        at = line_end(source, size, at);
        at += at + 1 < size && source[at] == '\r' && source[at + 1] == '\n' ? 2 : 1;
    }
    return at < size ? at : size;
}

static bool continues(char c) { return (c & 0xc0) == 0x80; }

/* Bytes of n characters from `at`. */
static size_t characters(const char *source, size_t at, size_t end, size_t n)
{
    size_t start = at;
    for (; n > 0 && at < end; n--)
        for (at++; at < end && continues(source[at]); at++)
            ;
    return at - start;
}

static void put_line(tn_text *text, const char *source, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        char c = source[i];
        tn_text_put(text, iscntrl((unsigned char)c) && c != '\t' ? " " : &c, 1);
    }
}

/* The line, and below it a caret and tildes under the node's characters. */
static void add_source_line(tn_text *text, const tn_ast_unit *unit, const tn_ast *at)
{
    size_t start = line_start(unit->source, unit->size, at->line - unit->first_line + 1), end = line_end(unit->source, unit->size, start);
    size_t column = at->column > 1 ? (size_t)at->column - 1 : 0, skipped = column > BEFORE ? column - BEFORE : 0;
    bool one_line = at->end_line == at->line && at->end_column > at->column;
    size_t width = one_line ? (size_t)(at->end_column - at->column) : 1;
    size_t from = start + characters(unit->source, start, end, skipped), mark = from + characters(unit->source, from, end, column - skipped);
    size_t to = from + characters(unit->source, from, end, WINDOW), last = mark + characters(unit->source, mark, to, width);
    const char *dots = skipped ? "..." : "";
    tn_text_add(text, "\n    %s", dots);
    put_line(text, unit->source, from, to);
    tn_text_add(text, "%s\n    %*s", to < end ? "..." : "", (int)strlen(dots), "");
    for (size_t i = from; i < mark; i++)
        if (!continues(unit->source[i]))
            tn_text_put(text, unit->source[i] == '\t' ? "\t" : " ", 1);
    tn_text_put(text, "^", 1);
    for (size_t i = mark + characters(unit->source, mark, to, 1); i < last; i++)
        if (!continues(unit->source[i]))
            tn_text_put(text, "~", 1);
}

tn_status tn_ast_error(tn_session *session, const tn_ast_unit *unit, const tn_ast *at, tn_status status, const char *format, ...)
{
    tn_text text = {.arena = &session->arena};
    va_list args;
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    if (!at)
        return tn_error(session, status, (tn_loc){.file = unit->file}, "%s", text.at);
    add_source_line(&text, unit, at);
    return tn_error(session, status, (tn_loc){.file = unit->file, .line = at->line, .column = at->column}, "%s", text.at);
}

/* ---- printing -------------------------------------------------------------------------------------------------------- */

static const char *const operator_text[] = {
    [TN_AST_ADD] = "+",       [TN_AST_SUB] = "-",       [TN_AST_MUL] = "*",      [TN_AST_DIV] = "/",     [TN_AST_FLOORDIV] = "//",
    [TN_AST_MOD] = "%",       [TN_AST_POW] = "**",      [TN_AST_MATMUL] = "@",   [TN_AST_LSHIFT] = "<<", [TN_AST_RSHIFT] = ">>",
    [TN_AST_BITAND] = "&",    [TN_AST_BITOR] = "|",     [TN_AST_BITXOR] = "^",   [TN_AST_POSITIVE] = "+", [TN_AST_NEGATIVE] = "-",
    [TN_AST_INVERT] = "~",    [TN_AST_NOT] = "not",     [TN_AST_EQ] = "==",      [TN_AST_NE] = "!=",     [TN_AST_LT] = "<",
    [TN_AST_LE] = "<=",       [TN_AST_GT] = ">",        [TN_AST_GE] = ">=",      [TN_AST_IS] = "is",     [TN_AST_IS_NOT] = "is-not",
    [TN_AST_IN] = "in",       [TN_AST_NOT_IN] = "not-in",
};

/* Heads of the forms; those of operators are the operator. */
static const char *const heads[] = {
    [TN_AST_FORMAT] = "format", [TN_AST_SUBSCRIPT] = "[]", [TN_AST_SLICE] = ":", [TN_AST_CALL] = "call", [TN_AST_STARRED] = "*", [TN_AST_AND] = "and",
    [TN_AST_OR] = "or", [TN_AST_TERNARY] = "?", [TN_AST_TUPLE] = "tuple", [TN_AST_LIST] = "list", [TN_AST_DICT] = "dict", [TN_AST_LAMBDA] = "lambda",
    [TN_AST_COMPREHENSION] = "each", [TN_AST_BLOCK] = "block", [TN_AST_ASSIGN] = "assign", [TN_AST_AUGMENTED] = "augmented",
    [TN_AST_ANNOTATED] = "annotated", [TN_AST_EXPRESSION] = "expression", [TN_AST_RETURN] = "return", [TN_AST_IF] = "if", [TN_AST_FOR] = "for",
    [TN_AST_WHILE] = "while", [TN_AST_PASS] = "pass", [TN_AST_BREAK] = "break", [TN_AST_CONTINUE] = "continue", [TN_AST_ASSERT] = "assert",
    [TN_AST_UNSUPPORTED] = "unsupported", [TN_AST_PARAMETERS] = "parameters", [TN_AST_FUNCTION] = "function",
};
static const char *const words[] = {[TN_AST_TRUE] = "True", [TN_AST_FALSE] = "False", [TN_AST_NONE] = "None", [TN_AST_ELLIPSIS] = "..."};

static void put_integer(tn_text *text, __int128 value)
{
    char digits[48];
    size_t n = sizeof digits;
    unsigned __int128 left = (unsigned __int128)value; /* the parser makes none below zero */
    do
        digits[--n] = (char)('0' + (int)(left % 10));
    while (left /= 10);
    tn_text_put(text, digits + n, sizeof digits - n);
}

static void put_string(tn_text *text, const char *string, size_t length)
{
    tn_text_put(text, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)string[i];
        if (c == '"' || c == '\\')
            tn_text_add(text, "\\%c", c);
        else if (iscntrl(c))
            tn_text_add(text, "\\x%02x", c);
        else
            tn_text_put(text, &string[i], 1);
    }
    tn_text_put(text, "\"", 1);
}

static void put_float(tn_text *text, double number)
{
    size_t before = text->len;
    tn_text_double(text, number);
    if (!strpbrk(text->at + before, ".einf"))
        tn_text_put(text, ".0", 2);
}

static void put_node(tn_text *text, const tn_ast *node, int depth);

static bool put_leaf(tn_text *text, const tn_ast *node)
{
    switch (node->kind) {
    case TN_AST_NAME: tn_text_put(text, node->text, node->length); return true;
    case TN_AST_INT: put_integer(text, node->integer); return true;
    case TN_AST_FLOAT: put_float(text, node->number); return true;
    case TN_AST_STRING: put_string(text, node->text, node->length); return true;
    case TN_AST_TRUE:
    case TN_AST_FALSE:
    case TN_AST_NONE:
    case TN_AST_ELLIPSIS: tn_text_add(text, "%s", words[node->kind]); return true;
    default: return false;
    }
}

static void put_head(tn_text *text, const tn_ast *node)
{
    static const char *const parameter[] = {"parameter", "*parameter", "**parameter", "keyword-only"};
    switch (node->kind) {
    case TN_AST_ATTRIBUTE: tn_text_add(text, ".%s", node->text); break;
    case TN_AST_KEYWORD: tn_text_add(text, "%s", node->text ? "=" : "**"); break;
    case TN_AST_UNARY:
    case TN_AST_BINARY:
    case TN_AST_COMPARE: tn_text_add(text, "%s", operator_text[node->op]); break;
    case TN_AST_AUGMENTED: tn_text_add(text, "%s=", operator_text[node->op]); break;
    case TN_AST_PARAMETER: tn_text_add(text, "%s", parameter[node->integer]); break;
    case TN_AST_COMPREHENSION: tn_text_add(text, "%s", node->integer ? "each-flat" : "each"); break;
    default: tn_text_add(text, "%s", heads[node->kind]);
    }
    bool named = node->kind == TN_AST_KEYWORD || node->kind == TN_AST_PARAMETER || node->kind == TN_AST_FUNCTION || node->kind == TN_AST_UNSUPPORTED;
    if (named && node->text)
        tn_text_add(text, " %s", node->text);
}

static bool is_statement(const tn_ast *node) { return node->kind >= TN_AST_BLOCK && node->kind <= TN_AST_UNSUPPORTED; }

static void put_child(tn_text *text, const tn_ast *child, int depth)
{
    if (child && is_statement(child))
        tn_text_add(text, "\n%*s", 2 * (depth + 1), "");
    else
        tn_text_put(text, " ", 1);
    if (child)
        put_node(text, child, depth + 1);
    else
        tn_text_put(text, "_", 1);
}

/* Statements of a block, and blocks, begin a line; a child that is left out is `_`. */
static void put_node(tn_text *text, const tn_ast *node, int depth)
{
    if (put_leaf(text, node))
        return;
    tn_text_put(text, "(", 1);
    put_head(text, node);
    for (int i = 0; i < node->nchildren; i++)
        put_child(text, node->child[i], depth);
    tn_text_put(text, ")", 1);
}

void tn_text_ast(tn_text *text, const tn_ast *node)
{
    put_node(text, node, 0);
    if (is_statement(node) || node->kind == TN_AST_FUNCTION)
        tn_text_put(text, "\n", 1);
}
