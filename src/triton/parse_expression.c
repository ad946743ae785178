#include "triton/lex.h"

#include <string.h>

/* Every function gives NULL after a failure, which has been reported unless the parser is quiet. */

static tn_ast *lambda(tn_parser *p);

static bool starts_expression(const tn_parser *p)
{
    switch (p->t->kind) {
    case TN_TOK_NAME:
    case TN_TOK_NUMBER:
    case TN_TOK_STRING:
    case TN_TOK_FALSE:
    case TN_TOK_NONE:
    case TN_TOK_TRUE:
    case TN_TOK_AWAIT:
    case TN_TOK_LAMBDA:
    case TN_TOK_NOT:
    case TN_TOK_YIELD:
    case TN_TOK_ELLIPSIS:
    case TN_TOK_PAREN:
    case TN_TOK_BRACKET:
    case TN_TOK_BRACE:
    case TN_TOK_ADD:
    case TN_TOK_SUB:
    case TN_TOK_INVERT:
    case TN_TOK_MUL: return true;
    default: return false;
    }
}

/* ---- strings --------------------------------------------------------------------------------------------------------- */

typedef struct piece {
    tn_text text;
    const tn_token *start;
} piece;

/* Puts the text gathered so far before an expression of an f-string. */
static bool flush(tn_parser *p, piece *piece)
{
    tn_ast *node = tn_parse_node(p, TN_AST_STRING, piece->start, NULL, 0);
    if (!node)
        return false;
    node->text = tn_intern(p->session, piece->text.at, piece->text.len);
    node->length = piece->text.len;
    TN_PUSH(&p->session->arena, &p->pending, node);
    piece->text = (tn_text){.arena = &p->session->arena};
    return true;
}

static bool add_text(tn_parser *p, piece *piece, tn_place from, size_t to, bool raw)
{
    const char *source = p->unit->source, *message = NULL;
    size_t wrong = 0;
    if (tn_literal_string(p->session, source + from.at, to - from.at, raw, &piece->text, &wrong, &message))
        return true;
    tn_place place = from;
    tn_place_advance(&place, source, to, from.at + wrong);
    tn_token at = {.kind = TN_TOK_STRING, .at = (uint32_t)place.at, .size = 1, .line = place.line, .column = place.column};
    return tn_parse_fail(p, &at, "%s", message);
}

/* The expression of a replacement field; *place: after `{`, then after `}`. */
static bool add_field(tn_parser *p, piece *piece, tn_place *place, size_t end)
{
    tn_tokens field;
    const tn_tokens *tokens = p->tokens;
    const tn_token *next = p->t;
    if (p->formats >= 8)
        return tn_parse_fail(p, piece->start, "f-strings are nested more than 8 deep");
    if (piece->text.len && !flush(p, piece))
        return false;
    tn_lex_field(p->session, p->unit->source, end, *place, true, &field);
    p->formats++;
    p->tokens = &field, p->t = field.list.at;
    tn_ast *value = tn_parse_expressions(p);
    if (value && !tn_parse_at(p, TN_TOK_END))
        value = tn_parse_fail(p, p->t, "expected `}` after the expression, found %s", tn_parse_found(p, p->t));
    p->formats--;
    p->tokens = tokens, p->t = next;
    if (!value)
        return false;
    TN_PUSH(&p->session->arena, &p->pending, value);
    tn_place_advance(place, p->unit->source, end, field.stop);
    tn_token at = {.kind = TN_TOK_STRING, .at = (uint32_t)place->at, .size = 1, .line = place->line, .column = place->column};
    const char *stop = p->unit->source + place->at;
    if (end - place->at >= 3 && memcmp(stop, "!s}", 3) == 0) /* what an f-string does by itself */
        stop += 2;
    if (stop >= p->unit->source + end || *stop != '}')
        return tn_parse_fail(p, &at, "an expression in an f-string ends with `}`: its `=`, `!r` and formats after `:` are not supported in kernels");
    tn_place_advance(place, p->unit->source, end, (size_t)(stop - p->unit->source) + 1);
    return true;
}

static bool add_format(tn_parser *p, piece *piece, tn_place place, size_t end, bool raw)
{
    const char *source = p->unit->source;
    tn_place from = place;
    while (place.at < end) {
        char c = source[place.at];
        bool twice = place.at + 1 < end && source[place.at + 1] == c;
        if (c == '\\' && !raw && place.at + 2 <= end) {
            tn_place_advance(&place, source, end, place.at + 2);
            continue;
        }
        if (c != '{' && c != '}') {
            tn_place_advance(&place, source, end, place.at + 1);
            continue;
        }
        if (!add_text(p, piece, from, place.at, raw))
            return false;
        if (!twice && c == '}') {
            tn_token at = {.kind = TN_TOK_STRING, .at = (uint32_t)place.at, .size = 1, .line = place.line, .column = place.column};
            return tn_parse_fail(p, &at, "a single `}` in an f-string: write `}}`");
        }
        tn_place_advance(&place, source, end, place.at + 1 + twice);
        if (twice)
            tn_text_put(&piece->text, &c, 1);
        else if (!add_field(p, piece, &place, end))
            return false;
        from = place;
    }
    return add_text(p, piece, from, end, raw);
}

/* Literals that follow each other are one. */
static tn_ast *string(tn_parser *p)
{
    piece piece = {.text = {.arena = &p->session->arena}, .start = p->t};
    size_t mark = p->pending.len;
    while (tn_parse_at(p, TN_TOK_STRING)) {
        const tn_token *t = p->t;
        tn_string_form form = tn_string_form_of(p->unit->source + t->at, t->size);
        if (form.bytes)
            return tn_parse_fail(p, t, "bytes are not supported in kernels");
        tn_place place = {t->at, t->line, t->column};
        size_t end = t->at + t->size - form.quotes;
        tn_place_advance(&place, p->unit->source, end, t->at + form.prefix + form.quotes);
        p->t++;
        if (!(form.format ? add_format : add_text)(p, &piece, place, end, form.raw))
            return NULL;
    }
    if (p->pending.len == mark) {
        tn_ast *node = tn_parse_node(p, TN_AST_STRING, piece.start, NULL, 0);
        if (node) {
            node->text = tn_intern(p->session, piece.text.at, piece.text.len);
            node->length = piece.text.len;
        }
        return node;
    }
    if (piece.text.len && !flush(p, &piece))
        return NULL;
    return tn_parse_node_pending(p, TN_AST_FORMAT, piece.start, mark);
}

/* ---- displays ---------------------------------------------------------------------------------------------------------- */

static tn_ast *or_test(tn_parser *p);

static tn_ast *starred_or(tn_parser *p)
{
    const tn_token *start = p->t;
    if (!tn_parse_accept(p, TN_TOK_MUL))
        return tn_parse_expression(p);
    tn_ast *value = or_test(p);
    return value ? TN_PARSE_NODE(p, TN_AST_STARRED, start, value) : NULL;
}

/* `for` target `in` iterable [`if` condition …] [`for` …], after the element. */
static tn_ast *comprehension(tn_parser *p, const tn_token *start, tn_ast *element)
{
    if (tn_parse_at(p, TN_TOK_ASYNC))
        return tn_parse_fail(p, p->t, "`async` is not supported in kernels");
    if (!tn_parse_enter(p) || !tn_parse_expect(p, TN_TOK_FOR, ""))
        return NULL;
    tn_ast *target = tn_parse_targets(p), *iterable = NULL, *condition = NULL;
    if (!target || !tn_parse_expect(p, TN_TOK_IN, " after the names of `for`") || !(iterable = or_test(p)))
        return NULL;
    while (tn_parse_at(p, TN_TOK_IF)) {
        const tn_token *at = p->t++;
        tn_ast *also = or_test(p);
        if (also)
            condition = condition ? TN_PARSE_NODE(p, TN_AST_AND, at, condition, also) : also;
        if (!also || !condition)
            return NULL;
    }
    bool nested = tn_parse_at(p, TN_TOK_FOR) || tn_parse_at(p, TN_TOK_ASYNC);
    if (nested && !(element = comprehension(p, start, element)))
        return NULL;
    tn_parse_leave(p);
    tn_ast *node = condition ? TN_PARSE_NODE(p, TN_AST_COMPREHENSION, start, element, target, iterable, condition)
                             : TN_PARSE_NODE(p, TN_AST_COMPREHENSION, start, element, target, iterable);
    if (node)
        node->integer = nested;
    return node;
}

/* What stands in ( ) or [ ] after its opening. */
static tn_ast *display(tn_parser *p, const tn_token *start, tn_token_kind end, tn_ast_kind kind)
{
    size_t mark = p->pending.len;
    bool comma = false;
    while (!tn_parse_at(p, end)) {
        const tn_token *at = p->t;
        tn_ast *item = starred_or(p);
        if (!item)
            return NULL;
        if (p->pending.len == mark && !comma && (tn_parse_at(p, TN_TOK_FOR) || tn_parse_at(p, TN_TOK_ASYNC))) {
            item = comprehension(p, at, item);
            return item && tn_parse_expect(p, end, " after the comprehension") ? item : NULL;
        }
        TN_PUSH(&p->session->arena, &p->pending, item);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
        comma = true;
    }
    if (!tn_parse_expect(p, end, ""))
        return NULL;
    if (kind == TN_AST_TUPLE && !comma && p->pending.len == mark + 1) {
        tn_ast *item = p->pending.at[--p->pending.len];
        return item->kind == TN_AST_STARRED ? tn_parse_fail(p, start, "`*` cannot stand in brackets alone") : item;
    }
    return tn_parse_node_pending(p, kind, start, mark);
}

static tn_ast *dict(tn_parser *p, const tn_token *start)
{
    size_t mark = p->pending.len;
    while (!tn_parse_at(p, TN_TOK_BRACE_END)) {
        if (tn_parse_at(p, TN_TOK_POW))
            return tn_parse_fail(p, p->t, "`**` in a dict is not supported");
        const tn_token *at = p->t;
        tn_ast *key = starred_or(p), *value = NULL;
        if (!key)
            return NULL;
        bool is_set = tn_parse_at(p, TN_TOK_COMMA) || tn_parse_at(p, TN_TOK_BRACE_END) || tn_parse_at(p, TN_TOK_FOR);
        if (is_set)
            return tn_parse_fail(p, at, "sets are not supported in kernels; use a tuple");
        if (!tn_parse_expect(p, TN_TOK_COLON, " after the key") || !(value = tn_parse_expression(p)))
            return NULL;
        if (tn_parse_at(p, TN_TOK_FOR) || tn_parse_at(p, TN_TOK_ASYNC))
            return tn_parse_fail(p, at, "dict comprehensions are not supported");
        TN_PUSH(&p->session->arena, &p->pending, key);
        TN_PUSH(&p->session->arena, &p->pending, value);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
    }
    return tn_parse_expect(p, TN_TOK_BRACE_END, "") ? tn_parse_node_pending(p, TN_AST_DICT, start, mark) : NULL;
}

/* ---- primaries --------------------------------------------------------------------------------------------------------- */

static tn_ast *name(tn_parser *p)
{
    const tn_token *start = p->t;
    const char *text = tn_parse_name(p, "a name");
    tn_ast *node = text ? tn_parse_node(p, TN_AST_NAME, start, NULL, 0) : NULL;
    if (node) {
        node->text = text;
        node->length = start->size;
    }
    return node;
}

static tn_ast *number(tn_parser *p)
{
    const tn_token *t = p->t;
    const char *message;
    tn_ast value;
    if (!tn_literal_number(p->session, p->unit->source + t->at, t->size, &value, &message))
        return tn_parse_fail(p, t, "%s", message);
    p->t++;
    tn_ast *node = tn_parse_node(p, value.kind, t, NULL, 0);
    if (node && value.kind == TN_AST_INT)
        node->integer = value.integer;
    else if (node)
        node->number = value.number;
    return node;
}

/* Brackets may hold anything: one level deeper. */
static tn_ast *bracketed(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *node = NULL;
    if (!tn_parse_enter(p))
        return NULL;
    switch (start->kind) {
    case TN_TOK_PAREN: node = display(p, start, TN_TOK_PAREN_END, TN_AST_TUPLE); break;
    case TN_TOK_BRACKET: node = display(p, start, TN_TOK_BRACKET_END, TN_AST_LIST); break;
    default: node = dict(p, start);
    }
    tn_parse_leave(p);
    return node;
}

static tn_ast *atom(tn_parser *p)
{
    static const struct {
        uint16_t token;
        tn_ast_kind kind;
    } constants[] = {{TN_TOK_TRUE, TN_AST_TRUE}, {TN_TOK_FALSE, TN_AST_FALSE}, {TN_TOK_NONE, TN_AST_NONE}, {TN_TOK_ELLIPSIS, TN_AST_ELLIPSIS}};
    const tn_token *start = p->t;
    for (size_t i = 0; i < TN_COUNT(constants); i++)
        if (tn_parse_accept(p, constants[i].token))
            return tn_parse_node(p, constants[i].kind, start, NULL, 0);
    switch (start->kind) {
    case TN_TOK_NAME: return name(p);
    case TN_TOK_NUMBER: return number(p);
    case TN_TOK_STRING: return string(p);
    case TN_TOK_PAREN:
    case TN_TOK_BRACKET:
    case TN_TOK_BRACE: return bracketed(p);
    case TN_TOK_YIELD:
    case TN_TOK_AWAIT: return tn_parse_fail(p, start, "`%s` is not supported in kernels", tn_token_text(start->kind));
    default: return tn_parse_fail(p, start, "expected an expression, found %s", tn_parse_found(p, start));
    }
}

static tn_ast *keyword_argument(tn_parser *p, const tn_token *start, size_t mark)
{
    const char *text = tn_parse_name(p, "the name of an argument");
    p->t++; /* = */
    for (size_t i = mark; text && i < p->pending.len; i++)
        if (p->pending.at[i]->kind == TN_AST_KEYWORD && p->pending.at[i]->text == text)
            return tn_parse_fail(p, start, "the argument `%s` is given twice", text);
    tn_ast *value = text ? tn_parse_expression(p) : NULL;
    tn_ast *node = value ? TN_PARSE_NODE(p, TN_AST_KEYWORD, start, value) : NULL;
    if (node) {
        node->text = text;
        node->length = start->size;
    }
    return node;
}

/* keywords: some have been given. */
static tn_ast *argument(tn_parser *p, size_t mark, bool *keywords)
{
    const tn_token *start = p->t;
    tn_ast *value;
    if (start->kind == TN_TOK_NAME && start[1].kind == TN_TOK_SET) {
        *keywords = true;
        return keyword_argument(p, start, mark);
    }
    if (tn_parse_accept(p, TN_TOK_POW)) {
        *keywords = true;
        value = tn_parse_expression(p);
        return value ? TN_PARSE_NODE(p, TN_AST_KEYWORD, start, value) : NULL;
    }
    value = starred_or(p);
    if (value && tn_parse_at(p, TN_TOK_SET))
        return tn_parse_fail(p, start, "an argument's name must stand before `=`; to compare, write `==`");
    if (value && *keywords && value->kind != TN_AST_STARRED)
        return tn_parse_fail(p, start, "an argument without a name follows one with a name");
    if (value && (tn_parse_at(p, TN_TOK_FOR) || tn_parse_at(p, TN_TOK_ASYNC)))
        return comprehension(p, start, value);
    return value;
}

static tn_ast *call(tn_parser *p, const tn_token *start, tn_ast *callee)
{
    size_t mark = p->pending.len;
    bool keywords = false;
    TN_PUSH(&p->session->arena, &p->pending, callee);
    p->t++;
    while (!tn_parse_at(p, TN_TOK_PAREN_END)) {
        tn_ast *value = argument(p, mark + 1, &keywords);
        if (!value)
            return NULL;
        TN_PUSH(&p->session->arena, &p->pending, value);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
    }
    return tn_parse_expect(p, TN_TOK_PAREN_END, "") ? tn_parse_node_pending(p, TN_AST_CALL, start, mark) : NULL;
}

static bool optional_part(tn_parser *p, tn_ast **out)
{
    *out = NULL;
    return !starts_expression(p) || (*out = tn_parse_expression(p));
}

static tn_ast *slice(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast *part[3] = {NULL};
    if (tn_parse_at(p, TN_TOK_MUL))
        return starred_or(p);
    if (!tn_parse_at(p, TN_TOK_COLON) && (!(part[0] = tn_parse_expression(p)) || !tn_parse_at(p, TN_TOK_COLON)))
        return part[0];
    p->t++;
    if (!optional_part(p, &part[1]) || (tn_parse_accept(p, TN_TOK_COLON) && !optional_part(p, &part[2])))
        return NULL;
    return tn_parse_node(p, TN_AST_SLICE, start, part, 3);
}

static tn_ast *subscript(tn_parser *p, const tn_token *start, tn_ast *value)
{
    const tn_token *first = ++p->t;
    size_t mark = p->pending.len;
    bool comma = false;
    do {
        tn_ast *item = slice(p);
        if (!item)
            return NULL;
        TN_PUSH(&p->session->arena, &p->pending, item);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
        comma = true;
    } while (!tn_parse_at(p, TN_TOK_BRACKET_END));
    tn_ast *index = comma ? tn_parse_node_pending(p, TN_AST_TUPLE, first, mark) : p->pending.at[--p->pending.len];
    if (!index || !tn_parse_expect(p, TN_TOK_BRACKET_END, ""))
        return NULL;
    return TN_PARSE_NODE(p, TN_AST_SUBSCRIPT, start, value, index);
}

static tn_ast *attribute(tn_parser *p, const tn_token *start, tn_ast *value)
{
    p->t++;
    size_t size = p->t->size;
    const char *text = tn_parse_name(p, "the name of an attribute after `.`");
    tn_ast *node = text ? TN_PARSE_NODE(p, TN_AST_ATTRIBUTE, start, value) : NULL;
    if (node) {
        node->text = text;
        node->length = size;
    }
    return node;
}

static tn_ast *primary(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast *node = atom(p);
    for (;;) {
        tn_ast *(*rest)(tn_parser *, const tn_token *, tn_ast *) =
            tn_parse_at(p, TN_TOK_DOT) ? attribute : tn_parse_at(p, TN_TOK_PAREN) ? call : tn_parse_at(p, TN_TOK_BRACKET) ? subscript : NULL;
        if (!node || !rest)
            return node;
        if (!tn_parse_enter(p))
            return NULL;
        node = rest(p, start, node);
        tn_parse_leave(p);
    }
}

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

static tn_ast *operation(tn_parser *p, tn_ast_kind kind, tn_ast_op op, const tn_token *start, tn_ast *left, tn_ast *right)
{
    tn_ast *node = right ? TN_PARSE_NODE(p, kind, start, left, right) : left ? TN_PARSE_NODE(p, kind, start, left) : NULL;
    if (node)
        node->op = op;
    return node;
}

static tn_ast *unary(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast_op op = start->kind == TN_TOK_ADD ? TN_AST_POSITIVE : start->kind == TN_TOK_SUB ? TN_AST_NEGATIVE : TN_AST_INVERT;
    bool prefixed = start->kind == TN_TOK_ADD || start->kind == TN_TOK_SUB || start->kind == TN_TOK_INVERT;
    tn_ast *node = prefixed ? NULL : primary(p);
    if (!prefixed && (!node || !tn_parse_at(p, TN_TOK_POW)))
        return node;
    p->t++;
    if (!tn_parse_enter(p))
        return NULL;
    tn_ast *operand = unary(p); /* -2 ** 2 is -(2 ** 2), and 2 ** -1 and 2 ** 3 ** 2 need no brackets */
    tn_parse_leave(p);
    if (!operand)
        return NULL;
    return prefixed ? operation(p, TN_AST_UNARY, op, start, operand, NULL) : operation(p, TN_AST_BINARY, TN_AST_POW, start, node, operand);
}

static const struct {
    uint16_t token;
    int level; /* higher binds closer */
    tn_ast_op op;
} binary_operators[] = {
    {TN_TOK_BITOR, 1, TN_AST_BITOR},   {TN_TOK_BITXOR, 2, TN_AST_BITXOR}, {TN_TOK_BITAND, 3, TN_AST_BITAND}, {TN_TOK_LSHIFT, 4, TN_AST_LSHIFT},
    {TN_TOK_RSHIFT, 4, TN_AST_RSHIFT}, {TN_TOK_ADD, 5, TN_AST_ADD},       {TN_TOK_SUB, 5, TN_AST_SUB},       {TN_TOK_MUL, 6, TN_AST_MUL},
    {TN_TOK_DIV, 6, TN_AST_DIV},       {TN_TOK_FLOORDIV, 6, TN_AST_FLOORDIV}, {TN_TOK_MOD, 6, TN_AST_MOD},   {TN_TOK_AT, 6, TN_AST_MATMUL},
};

static tn_ast *binary(tn_parser *p, int least)
{
    const tn_token *start = p->t;
    tn_ast *node = unary(p);
    while (node) {
        size_t i = 0;
        while (i < TN_COUNT(binary_operators) && binary_operators[i].token != p->t->kind)
            i++;
        if (i == TN_COUNT(binary_operators) || binary_operators[i].level < least)
            return node;
        p->t++;
        tn_ast *right = binary(p, binary_operators[i].level + 1);
        node = right ? operation(p, TN_AST_BINARY, binary_operators[i].op, start, node, right) : NULL;
    }
    return NULL;
}

static bool comparison_operator(tn_parser *p, tn_ast_op *op)
{
    static const struct {
        uint16_t first, second; /* END: none */
        tn_ast_op op;
    } table[] = {
        {TN_TOK_EQ, TN_TOK_END, TN_AST_EQ}, {TN_TOK_NE, TN_TOK_END, TN_AST_NE},     {TN_TOK_LT, TN_TOK_END, TN_AST_LT}, {TN_TOK_LE, TN_TOK_END, TN_AST_LE},
        {TN_TOK_GT, TN_TOK_END, TN_AST_GT}, {TN_TOK_GE, TN_TOK_END, TN_AST_GE},     {TN_TOK_IS, TN_TOK_NOT, TN_AST_IS_NOT},
        {TN_TOK_IS, TN_TOK_END, TN_AST_IS}, {TN_TOK_NOT, TN_TOK_IN, TN_AST_NOT_IN}, {TN_TOK_IN, TN_TOK_END, TN_AST_IN},
    };
    for (size_t i = 0; i < TN_COUNT(table); i++) {
        if (p->t->kind != table[i].first || (table[i].second != TN_TOK_END && p->t[1].kind != table[i].second))
            continue;
        p->t += table[i].second == TN_TOK_END ? 1 : 2;
        *op = table[i].op;
        return true;
    }
    return false;
}

/* The middle of `a < b < c` is reached twice, so chains within chains would double and double again. */
enum { MOST_SHARED = 1000 };

static tn_ast *comparison(tn_parser *p)
{
    const tn_token *start = p->t;
    size_t mark = p->pending.len;
    tn_ast *left = binary(p, 1);
    tn_ast_op op;
    while (left && comparison_operator(p, &op)) {
        const tn_token *middle = p->t;
        if (p->pending.len > mark && tn_parse_weight(left) > MOST_SHARED)
            return tn_parse_fail_at(p, left, "this is too long to be compared on both sides; write two comparisons");
        tn_ast *right = binary(p, 1);
        tn_ast *node = right ? operation(p, TN_AST_COMPARE, op, start, left, right) : NULL;
        if (!node)
            return NULL;
        TN_PUSH(&p->session->arena, &p->pending, node);
        left = right;
        start = middle;
    }
    if (!left || p->pending.len == mark)
        return left;
    if (p->pending.len == mark + 1)
        return p->pending.at[--p->pending.len];
    return tn_parse_node_pending(p, TN_AST_AND, start, mark);
}

static tn_ast *not_test(tn_parser *p)
{
    const tn_token *start = p->t;
    if (!tn_parse_at(p, TN_TOK_NOT))
        return comparison(p);
    p->t++;
    if (!tn_parse_enter(p))
        return NULL;
    tn_ast *operand = not_test(p);
    tn_parse_leave(p);
    return operand ? operation(p, TN_AST_UNARY, TN_AST_NOT, start, operand, NULL) : NULL;
}

static tn_ast *chain(tn_parser *p, tn_token_kind word, tn_ast_kind kind, tn_ast *(*operand)(tn_parser *))
{
    const tn_token *start = p->t;
    size_t mark = p->pending.len;
    tn_ast *first = operand(p);
    if (!first || !tn_parse_at(p, word))
        return first;
    TN_PUSH(&p->session->arena, &p->pending, first);
    while (tn_parse_accept(p, word)) {
        tn_ast *next = operand(p);
        if (!next)
            return NULL;
        TN_PUSH(&p->session->arena, &p->pending, next);
    }
    return tn_parse_node_pending(p, kind, start, mark);
}

static tn_ast *and_test(tn_parser *p) { return chain(p, TN_TOK_AND, TN_AST_AND, not_test); }
static tn_ast *or_test(tn_parser *p) { return chain(p, TN_TOK_OR, TN_AST_OR, and_test); }

static tn_ast *lambda(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *parameters = tn_parse_parameters(p, TN_TOK_COLON);
    tn_ast *body = parameters ? tn_parse_expression(p) : NULL;
    return body ? TN_PARSE_NODE(p, TN_AST_LAMBDA, start, parameters, body) : NULL;
}

static tn_ast *ternary(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast *value = or_test(p);
    if (value && tn_parse_at(p, TN_TOK_WALRUS))
        return tn_parse_fail(p, p->t, "`:=` is not supported in kernels; assign on a line of its own");
    if (!value || !tn_parse_accept(p, TN_TOK_IF))
        return value;
    tn_ast *condition = or_test(p), *otherwise = NULL;
    if (!condition || !tn_parse_expect(p, TN_TOK_ELSE, " of the conditional expression") || !(otherwise = tn_parse_expression(p)))
        return NULL;
    return TN_PARSE_NODE(p, TN_AST_TERNARY, start, condition, value, otherwise);
}

tn_ast *tn_parse_expression(tn_parser *p)
{
    if (!tn_parse_enter(p))
        return NULL;
    tn_ast *node = tn_parse_at(p, TN_TOK_LAMBDA) ? lambda(p) : ternary(p);
    tn_parse_leave(p);
    return node;
}

static tn_ast *list_of(tn_parser *p, tn_ast *(*item)(tn_parser *))
{
    const tn_token *start = p->t;
    size_t mark = p->pending.len;
    bool comma = false;
    do {
        tn_ast *node = item(p);
        if (!node)
            return NULL;
        TN_PUSH(&p->session->arena, &p->pending, node);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
        comma = true;
    } while (starts_expression(p));
    if (comma)
        return tn_parse_node_pending(p, TN_AST_TUPLE, start, mark);
    tn_ast *node = p->pending.at[--p->pending.len];
    return node->kind == TN_AST_STARRED ? tn_parse_fail_at(p, node, "`*` cannot stand here: it needs a comma after it to make a tuple") : node;
}

tn_ast *tn_parse_expressions(tn_parser *p) { return list_of(p, starred_or); }

/* `in` ends it, so no comparison can be part of it. */
static tn_ast *target(tn_parser *p)
{
    const tn_token *start = p->t;
    if (!tn_parse_accept(p, TN_TOK_MUL))
        return primary(p);
    tn_ast *value = primary(p);
    return value ? TN_PARSE_NODE(p, TN_AST_STARRED, start, value) : NULL;
}

tn_ast *tn_parse_targets(tn_parser *p)
{
    tn_ast *node = list_of(p, target);
    return node && tn_parse_is_target(p, node, "assign to") ? node : NULL;
}

/* ---- what can be assigned to ------------------------------------------------------------------------------------------------ */

static const char *kind_name(tn_ast_kind kind)
{
    switch (kind) {
    case TN_AST_CALL: return "a call";
    case TN_AST_INT:
    case TN_AST_FLOAT:
    case TN_AST_STRING:
    case TN_AST_FORMAT: return "a literal";
    case TN_AST_TRUE: return "True";
    case TN_AST_FALSE: return "False";
    case TN_AST_NONE: return "None";
    case TN_AST_COMPARE: return "a comparison";
    case TN_AST_LAMBDA: return "a lambda";
    case TN_AST_COMPREHENSION: return "a comprehension";
    default: return "an expression";
    }
}

bool tn_parse_is_target(tn_parser *p, const tn_ast *node, const char *what)
{
    switch (node->kind) {
    case TN_AST_NAME:
    case TN_AST_ATTRIBUTE:
    case TN_AST_SUBSCRIPT: return true;
    case TN_AST_STARRED:
    case TN_AST_TUPLE:
    case TN_AST_LIST:
        for (int i = 0; i < node->nchildren; i++)
            if (!tn_parse_is_target(p, node->child[i], what))
                return false;
        return true;
    default: return tn_parse_fail_at(p, node, "cannot %s %s", what, kind_name(node->kind));
    }
}
