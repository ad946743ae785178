#include "triton/lex.h"

#include <string.h>

enum {
    MAX_DEPTH = 2 * TN_TRITON_MAX_NESTING, /* a bracket takes two */
    MAX_HEIGHT = 500,                      /* of a tree: whoever walks it recurs */
};

/* What a node's readers need not see. */
typedef struct measured {
    tn_ast node;
    int height, weight;
} measured;

/* ---- errors, tokens, nodes ------------------------------------------------------------------------------------------------ */

static int characters(const char *text, size_t size)
{
    int n = 0;
    for (size_t i = 0; i < size; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

/* Where a token ends. Strings alone may go over lines. */
static void set_end(const tn_parser *p, const tn_token *t, tn_ast *node)
{
    tn_place place = {t->at, t->line, t->column};
    if (t->kind == TN_TOK_STRING)
        tn_place_advance(&place, p->unit->source, p->unit->size, t->at + t->size);
    else
        place.column += characters(p->unit->source + t->at, t->size);
    node->end_line = place.line;
    node->end_column = place.column;
}

static tn_ast *report(tn_parser *p, const tn_ast *at, const char *format, va_list args)
{
    const tn_tokens *tokens = p->tokens;
    bool unreadable = tokens->message && (tokens->where.line < at->line || (tokens->where.line == at->line && tokens->where.column <= at->column));
    if (p->failed || p->quiet) {
        p->failed = true;
        return NULL;
    }
    p->failed = true;
    if (unreadable) { /* what the tokens say explains what is wrong after it */
        tn_ast there = {.line = tokens->where.line, .column = tokens->where.column};
        tn_ast_error(p->session, p->unit, &there, TN_INVALID, "%s", tokens->message);
        return NULL;
    }
    tn_text message = {.arena = &p->session->arena};
    tn_text_addv(&message, format, args);
    tn_ast_error(p->session, p->unit, at, TN_INVALID, "%s", message.at);
    return NULL;
}

tn_ast *tn_parse_fail(tn_parser *p, const tn_token *at, const char *format, ...)
{
    tn_ast there = {.line = at->line, .column = at->column};
    set_end(p, at, &there);
    va_list args;
    va_start(args, format);
    report(p, &there, format, args);
    va_end(args);
    return NULL;
}

tn_ast *tn_parse_fail_at(tn_parser *p, const tn_ast *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(p, at, format, args);
    va_end(args);
    return NULL;
}

const char *tn_parse_found(tn_parser *p, const tn_token *t)
{
    switch (t->kind) {
    case TN_TOK_END:
    case TN_TOK_ERROR: return p->formats ? "the end of the field" : "the end of the text";
    case TN_TOK_NEWLINE: return "the end of the line";
    case TN_TOK_INDENT: return "a deeper indentation";
    case TN_TOK_DEDENT: return "the end of the block";
    case TN_TOK_STRING: return "a string";
    default: return tn_format(&p->session->arena, "`%.*s`", (int)(t->size < 60 ? t->size : 60), p->unit->source + t->at);
    }
}

bool tn_parse_accept(tn_parser *p, tn_token_kind kind)
{
    if (p->t->kind != kind)
        return false;
    p->t++;
    return true;
}

bool tn_parse_expect(tn_parser *p, tn_token_kind kind, const char *where)
{
    return tn_parse_accept(p, kind) || tn_parse_fail(p, p->t, "expected `%s`%s, found %s", tn_token_text(kind), where, tn_parse_found(p, p->t));
}

bool tn_parse_enter(tn_parser *p)
{
    return p->nesting++ < MAX_DEPTH || tn_parse_fail(p, p->t, "this is nested more than %d deep", TN_TRITON_MAX_NESTING);
}

const char *tn_parse_name(tn_parser *p, const char *what)
{
    const tn_token *t = p->t;
    if (t->kind == TN_TOK_NAME) {
        p->t++;
        return tn_intern(p->session, p->unit->source + t->at, t->size);
    }
    bool keyword = tn_token_text(t->kind) && t->kind <= TN_TOK_YIELD;
    tn_parse_fail(p, t, "expected %s, found %s%s", what, tn_parse_found(p, t), keyword ? ", which is a word of the language" : "");
    return NULL;
}

int tn_parse_weight(const tn_ast *node) { return ((const measured *)node)->weight; }

tn_ast *tn_parse_node(tn_parser *p, tn_ast_kind kind, const tn_token *start, tn_ast *const *child, size_t n)
{
    measured *made = TN_NEW(&p->session->arena, measured);
    tn_ast *node = &made->node;
    *node = (tn_ast){.kind = kind, .line = start->line, .column = start->column, .nchildren = (int)n};
    if (p->t > start)
        set_end(p, p->t - 1, node);
    else
        node->end_line = node->line, node->end_column = node->column;
    made->weight = 1;
    for (size_t i = 0; i < n; i++) {
        const measured *part = (const measured *)child[i];
        if (!part)
            continue;
        made->height = part->height >= made->height ? part->height + 1 : made->height;
        if (__builtin_add_overflow(made->weight, part->weight, &made->weight))
            made->weight = INT32_MAX;
    }
    if (made->height > MAX_HEIGHT)
        return tn_parse_fail(p, start, "this is nested more than %d deep, or a chain of more operators; give parts of it names", MAX_HEIGHT);
    node->child = n ? tn_memdup(&p->session->arena, child, n * sizeof(tn_ast *)) : NULL;
    return node;
}

tn_ast *tn_parse_node_pending(tn_parser *p, tn_ast_kind kind, const tn_token *start, size_t mark)
{
    size_t n = p->pending.len - mark;
    tn_ast *node = tn_parse_node(p, kind, start, n ? p->pending.at + mark : NULL, n);
    p->pending.len = mark;
    return node;
}

static void push(tn_parser *p, tn_ast *node) { TN_PUSH(&p->session->arena, &p->pending, node); }

static tn_ast *named(tn_ast *node, const char *text)
{
    if (node) {
        node->text = text;
        node->length = strlen(text);
    }
    return node;
}

/* ---- parameters ---------------------------------------------------------------------------------------------------------- */

static tn_ast *parameter(tn_parser *p, int form, bool annotations)
{
    const tn_token *start = p->t;
    const char *name = tn_parse_name(p, "the name of a parameter");
    tn_ast *part[2] = {NULL};
    if (!name)
        return NULL;
    if (annotations && tn_parse_accept(p, TN_TOK_COLON) && !(part[0] = tn_parse_expression(p)))
        return NULL;
    if (tn_parse_at(p, TN_TOK_SET) && (form == 1 || form == 2))
        return tn_parse_fail(p, p->t, "`%s%s` cannot have a default", form == 1 ? "*" : "**", name);
    if (tn_parse_accept(p, TN_TOK_SET) && !(part[1] = tn_parse_expression(p)))
        return NULL;
    tn_ast *node = named(tn_parse_node(p, TN_AST_PARAMETER, start, part, 2), name);
    if (node)
        node->integer = form;
    return node;
}

/* Names are few: each is looked for among those before. */
static bool parameter_fits(tn_parser *p, const tn_ast *node, size_t mark, bool *defaults)
{
    for (size_t i = mark; i < p->pending.len; i++)
        if (p->pending.at[i]->text == node->text)
            return tn_parse_fail_at(p, node, "there are two parameters `%s`", node->text);
    if (node->integer == 0 && *defaults && !node->child[1])
        return tn_parse_fail_at(p, node, "the parameter `%s` has no default and follows one that has", node->text);
    *defaults |= node->integer == 0 && node->child[1];
    return p->pending.len - mark < 1000 || tn_parse_fail_at(p, node, "more than 1000 parameters");
}

/* Up to and with the token `end`. */
tn_ast *tn_parse_parameters(tn_parser *p, tn_token_kind end)
{
    const tn_token *start = p->t;
    size_t mark = p->pending.len;
    bool keyword_only = false, defaults = false, last = false;
    while (!tn_parse_at(p, end)) {
        const tn_token *at = p->t;
        if (last)
            return tn_parse_fail(p, at, "nothing can follow the parameter with `**`");
        bool star = tn_parse_accept(p, TN_TOK_MUL);
        last = !star && tn_parse_accept(p, TN_TOK_POW);
        if (star && keyword_only)
            return tn_parse_fail(p, at, "there are two `*` among the parameters");
        bool bare = star && tn_parse_at(p, TN_TOK_COMMA), divider = !star && !last && p->t > start && tn_parse_accept(p, TN_TOK_DIV);
        if (!bare && !divider) {
            tn_ast *node = parameter(p, star ? 1 : last ? 2 : keyword_only ? 3 : 0, end == TN_TOK_PAREN_END);
            if (!node || !parameter_fits(p, node, mark, &defaults))
                return NULL;
            push(p, node);
        }
        keyword_only |= star;
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            break;
    }
    tn_ast *node = tn_parse_node_pending(p, TN_AST_PARAMETERS, start, mark);
    return tn_parse_expect(p, end, " after the parameters") ? node : NULL;
}

/* ---- statements that are skipped ------------------------------------------------------------------------------------------- */

/* To the end of the line; small: or to a `;`. */
static void skip_line(tn_parser *p, bool small)
{
    int brackets = 0;
    for (;; p->t++) {
        switch (p->t->kind) {
        case TN_TOK_END:
        case TN_TOK_ERROR:
        case TN_TOK_NEWLINE: return;
        case TN_TOK_PAREN:
        case TN_TOK_BRACKET:
        case TN_TOK_BRACE: brackets++; break;
        case TN_TOK_PAREN_END:
        case TN_TOK_BRACKET_END:
        case TN_TOK_BRACE_END: brackets--; break;
        case TN_TOK_SEMICOLON:
            if (small && brackets == 0)
                return;
            break;
        default: break;
        }
    }
}

/* The rest of a line, and the block below it if there is one. */
static void skip_compound(tn_parser *p)
{
    skip_line(p, false);
    if (!tn_parse_accept(p, TN_TOK_NEWLINE) || !tn_parse_at(p, TN_TOK_INDENT))
        return;
    int depth = 0;
    do {
        depth += tn_parse_at(p, TN_TOK_INDENT) - tn_parse_at(p, TN_TOK_DEDENT);
        p->t++;
    } while (depth > 0 && !tn_parse_at(p, TN_TOK_END) && !tn_parse_at(p, TN_TOK_ERROR));
}

/* The tokens cannot be read on: reports that. */
static bool readable(tn_parser *p) { return !tn_parse_at(p, TN_TOK_ERROR) || tn_parse_fail(p, p->t, "%s", p->tokens->message); }

static bool at_word(const tn_parser *p, const char *word)
{
    return tn_parse_at(p, TN_TOK_NAME) && p->t->size == strlen(word) && memcmp(p->unit->source + p->t->at, word, p->t->size) == 0;
}

/* `match x:` is a statement, `match = x` and `match(x)` are not; only the end of the line tells. */
static bool at_match(tn_parser *p)
{
    if (!at_word(p, "match"))
        return false;
    tn_parser ahead = *p;
    skip_line(&ahead, false);
    return ahead.t - p->t > 2 && ahead.t[-1].kind == TN_TOK_COLON && ahead.t[0].kind == TN_TOK_NEWLINE && ahead.t[1].kind == TN_TOK_INDENT;
}

static const struct {
    uint16_t token;
    bool block;
} refused[] = {
    {TN_TOK_DEF, true},    {TN_TOK_CLASS, true}, {TN_TOK_AT, true},     {TN_TOK_ASYNC, true},  {TN_TOK_TRY, true},       {TN_TOK_WITH, true},   {TN_TOK_DEL, false},
    {TN_TOK_RAISE, false}, {TN_TOK_GLOBAL, false}, {TN_TOK_NONLOCAL, false}, {TN_TOK_IMPORT, false}, {TN_TOK_FROM, false}, {TN_TOK_YIELD, false},
    {TN_TOK_AWAIT, false},
};

static void skip_refused(tn_parser *p, bool block)
{
    bool attempts = tn_parse_at(p, TN_TOK_TRY);
    if (!block) {
        skip_line(p, true);
        return;
    }
    while (tn_parse_at(p, TN_TOK_AT)) { /* decorators */
        skip_line(p, false);
        tn_parse_accept(p, TN_TOK_NEWLINE);
    }
    skip_compound(p);
    while (attempts && (tn_parse_at(p, TN_TOK_EXCEPT) || tn_parse_at(p, TN_TOK_FINALLY) || tn_parse_at(p, TN_TOK_ELSE)))
        skip_compound(p);
}

/* A statement that kernels may not hold; *out stays NULL if this is none. The node is its first word. */
static bool unsupported(tn_parser *p, bool blocks, tn_ast **out)
{
    const tn_token *start = p->t;
    bool found = false, block = false;
    const char *text = tn_token_text(start->kind);
    for (size_t i = 0; i < TN_COUNT(refused) && !found; i++)
        if (refused[i].token == start->kind && refused[i].block == blocks)
            found = true, block = refused[i].block;
    if (!found && blocks && at_match(p))
        found = block = true, text = "match";
    if (!found && !blocks && at_word(p, "type") && start[1].kind == TN_TOK_NAME)
        found = true, text = "type";
    if (!found)
        return true;
    p->t++;
    tn_ast *node = tn_parse_node(p, TN_AST_UNSUPPORTED, start, NULL, 0);
    p->t = start;
    skip_refused(p, block);
    *out = named(node, start->kind == TN_TOK_AT ? "decorators" : tn_intern_z(p->session, text));
    return *out && readable(p);
}

/* ---- statements ------------------------------------------------------------------------------------------------------------ */

static tn_ast *statement(tn_parser *p);

static bool augmented_operator(tn_parser *p, tn_ast_op *op)
{
    static const struct {
        uint16_t token;
        tn_ast_op op;
    } table[] = {
        {TN_TOK_ADD_SET, TN_AST_ADD},       {TN_TOK_SUB_SET, TN_AST_SUB},       {TN_TOK_MUL_SET, TN_AST_MUL},       {TN_TOK_DIV_SET, TN_AST_DIV},
        {TN_TOK_MOD_SET, TN_AST_MOD},       {TN_TOK_MATMUL_SET, TN_AST_MATMUL}, {TN_TOK_AND_SET, TN_AST_BITAND},    {TN_TOK_OR_SET, TN_AST_BITOR},
        {TN_TOK_XOR_SET, TN_AST_BITXOR},    {TN_TOK_POW_SET, TN_AST_POW},       {TN_TOK_FLOORDIV_SET, TN_AST_FLOORDIV}, {TN_TOK_LSHIFT_SET, TN_AST_LSHIFT},
        {TN_TOK_RSHIFT_SET, TN_AST_RSHIFT},
    };
    for (size_t i = 0; i < TN_COUNT(table); i++)
        if (tn_parse_accept(p, table[i].token)) {
            *op = table[i].op;
            return true;
        }
    return false;
}

static bool single_target(tn_parser *p, const tn_ast *node, const char *what)
{
    if (node->kind != TN_AST_TUPLE && node->kind != TN_AST_LIST)
        return tn_parse_is_target(p, node, what);
    return tn_parse_fail_at(p, node, "cannot %s several names at once", what);
}

static tn_ast *annotated(tn_parser *p, const tn_token *start, tn_ast *target)
{
    tn_ast *part[3] = {target};
    if (!single_target(p, target, "annotate") || !(part[1] = tn_parse_expression(p)))
        return NULL;
    if (tn_parse_accept(p, TN_TOK_SET) && !(part[2] = tn_parse_expressions(p)))
        return NULL;
    return tn_parse_node(p, TN_AST_ANNOTATED, start, part, 3);
}

/* a = b = value: the last is the value. */
static tn_ast *assignment(tn_parser *p, const tn_token *start, tn_ast *first)
{
    size_t mark = p->pending.len;
    tn_ast *last = first;
    push(p, NULL);
    while (tn_parse_accept(p, TN_TOK_SET)) {
        if (!tn_parse_is_target(p, last, "assign to"))
            return NULL;
        push(p, last);
        last = tn_parse_expressions(p);
        if (!last)
            return NULL;
    }
    p->pending.at[mark] = last;
    return tn_parse_node_pending(p, TN_AST_ASSIGN, start, mark);
}

static tn_ast *expression_statement(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast *first = tn_parse_expressions(p);
    tn_ast_op op;
    if (!first)
        return NULL;
    if (tn_parse_at(p, TN_TOK_SET))
        return assignment(p, start, first);
    if (tn_parse_accept(p, TN_TOK_COLON))
        return annotated(p, start, first);
    if (!augmented_operator(p, &op))
        return TN_PARSE_NODE(p, TN_AST_EXPRESSION, start, first);
    tn_ast *value = single_target(p, first, "change") ? tn_parse_expressions(p) : NULL;
    tn_ast *node = value ? TN_PARSE_NODE(p, TN_AST_AUGMENTED, start, first, value) : NULL;
    if (node)
        node->op = op;
    return node;
}

static tn_ast *return_statement(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *value = NULL;
    bool empty = tn_parse_at(p, TN_TOK_NEWLINE) || tn_parse_at(p, TN_TOK_SEMICOLON);
    if (!empty && !(value = tn_parse_expressions(p)))
        return NULL;
    return TN_PARSE_NODE(p, TN_AST_RETURN, start, value);
}

static tn_ast *assert_statement(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *condition = tn_parse_expression(p), *message = NULL;
    if (!condition || (tn_parse_accept(p, TN_TOK_COMMA) && !(message = tn_parse_expression(p))))
        return NULL;
    return TN_PARSE_NODE(p, TN_AST_ASSERT, start, condition, message);
}

static tn_ast *small_statement(tn_parser *p)
{
    const tn_token *start = p->t;
    tn_ast *node = NULL;
    if (!unsupported(p, false, &node))
        return NULL;
    if (node)
        return node;
    switch (start->kind) {
    case TN_TOK_PASS: return p->t++, tn_parse_node(p, TN_AST_PASS, start, NULL, 0);
    case TN_TOK_BREAK: return p->t++, tn_parse_node(p, TN_AST_BREAK, start, NULL, 0);
    case TN_TOK_CONTINUE: return p->t++, tn_parse_node(p, TN_AST_CONTINUE, start, NULL, 0);
    case TN_TOK_RETURN: return return_statement(p);
    case TN_TOK_ASSERT: return assert_statement(p);
    case TN_TOK_INDENT: return tn_parse_fail(p, start, "this line is indented deeper than its block");
    case TN_TOK_ELSE:
    case TN_TOK_ELIF:
    case TN_TOK_EXCEPT:
    case TN_TOK_FINALLY: return tn_parse_fail(p, start, "`%s` belongs to no statement before it", tn_token_text(start->kind));
    default: return expression_statement(p);
    }
}

/* Statements with `;` between them, to the end of the line; pushes them. */
static bool small_statements(tn_parser *p)
{
    do {
        tn_ast *node = small_statement(p);
        if (!node)
            return false;
        push(p, node);
    } while (tn_parse_accept(p, TN_TOK_SEMICOLON) && !tn_parse_at(p, TN_TOK_NEWLINE));
    return tn_parse_accept(p, TN_TOK_NEWLINE) || tn_parse_fail(p, p->t, "expected the end of the statement, found %s", tn_parse_found(p, p->t));
}

static bool is_compound(tn_parser *p)
{
    switch (p->t->kind) {
    case TN_TOK_IF:
    case TN_TOK_FOR:
    case TN_TOK_WHILE:
    case TN_TOK_DEF:
    case TN_TOK_CLASS:
    case TN_TOK_AT:
    case TN_TOK_ASYNC:
    case TN_TOK_TRY:
    case TN_TOK_WITH: return true;
    default: return at_match(p);
    }
}

static bool statements(tn_parser *p)
{
    while (!tn_parse_at(p, TN_TOK_DEDENT) && !tn_parse_at(p, TN_TOK_END)) {
        if (!is_compound(p)) {
            if (!small_statements(p))
                return false;
            continue;
        }
        tn_ast *node = statement(p);
        if (!node)
            return false;
        push(p, node);
    }
    return true;
}

/* `:` and what follows it. owner: the word that the block belongs to. */
static tn_ast *block(tn_parser *p, const tn_token *owner)
{
    size_t mark = p->pending.len;
    const char *word = tn_token_text(owner->kind);
    if (!tn_parse_expect(p, TN_TOK_COLON, "") || !tn_parse_enter(p))
        return NULL;
    const tn_token *start = p->t;
    if (tn_parse_accept(p, TN_TOK_NEWLINE)) {
        if (!tn_parse_accept(p, TN_TOK_INDENT))
            return tn_parse_fail(p, p->t, "expected an indented block after `%s` on line %d", word, owner->line);
        start = p->t;
        if (!statements(p))
            return NULL;
    } else if (is_compound(p)) {
        return tn_parse_fail(p, p->t, "`%s` cannot stand on the line of `%s`", tn_parse_at(p, TN_TOK_NAME) ? "match" : tn_token_text(p->t->kind), word);
    } else if (!small_statements(p)) {
        return NULL;
    }
    bool indented = tn_parse_at(p, TN_TOK_DEDENT) && start[-1].kind == TN_TOK_INDENT;
    tn_ast *node = tn_parse_node_pending(p, TN_AST_BLOCK, start, mark);
    if (node && node->nchildren) { /* not the line end after it */
        node->end_line = node->child[node->nchildren - 1]->end_line;
        node->end_column = node->child[node->nchildren - 1]->end_column;
    }
    p->t += indented;
    tn_parse_leave(p);
    return node;
}

/* The end of a compound statement is that of its last block. */
static tn_ast *compound(tn_parser *p, tn_ast_kind kind, const tn_token *start, tn_ast *const *part, size_t n)
{
    tn_ast *node = tn_parse_node(p, kind, start, part, n);
    for (size_t i = 0; node && i < n; i++)
        if (part[i] && (part[i]->kind == TN_AST_BLOCK || part[i]->kind == TN_AST_IF)) {
            node->end_line = part[i]->end_line;
            node->end_column = part[i]->end_column;
        }
    return node;
}

static bool else_block(tn_parser *p, tn_ast **out)
{
    const tn_token *word = p->t;
    return !tn_parse_accept(p, TN_TOK_ELSE) || (*out = block(p, word));
}

/* `if` or `elif`. */
static tn_ast *if_statement(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *part[3] = {NULL};
    if (!(part[0] = tn_parse_expression(p)) || !(part[1] = block(p, start)))
        return NULL;
    if (tn_parse_at(p, TN_TOK_ELIF)) {
        if (!tn_parse_enter(p) || !(part[2] = if_statement(p)))
            return NULL;
        tn_parse_leave(p);
    } else if (!else_block(p, &part[2])) {
        return NULL;
    }
    return compound(p, TN_AST_IF, start, part, 3);
}

static tn_ast *for_statement(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *part[4] = {NULL};
    if (!(part[0] = tn_parse_targets(p)) || !tn_parse_expect(p, TN_TOK_IN, " after the names of `for`") || !(part[1] = tn_parse_expressions(p)) ||
        !(part[2] = block(p, start)) || !else_block(p, &part[3]))
        return NULL;
    return compound(p, TN_AST_FOR, start, part, 4);
}

static tn_ast *while_statement(tn_parser *p)
{
    const tn_token *start = p->t++;
    tn_ast *part[3] = {NULL};
    if (!(part[0] = tn_parse_expression(p)) || !(part[1] = block(p, start)) || !else_block(p, &part[2]))
        return NULL;
    return compound(p, TN_AST_WHILE, start, part, 3);
}

static tn_ast *statement(tn_parser *p)
{
    switch (p->t->kind) {
    case TN_TOK_IF: return if_statement(p);
    case TN_TOK_FOR: return for_statement(p);
    case TN_TOK_WHILE: return while_statement(p);
    default: break;
    }
    tn_ast *node = NULL;
    unsupported(p, true, &node);
    return p->failed ? NULL : node;
}

/* ---- the top level ----------------------------------------------------------------------------------------------------------- */

/* From `def` on; the decorators are pending from mark on. */
static tn_ast *function(tn_parser *p, const tn_token *start, size_t mark)
{
    const tn_token *def = p->t++;
    size_t ndecorators = p->pending.len - mark;
    const char *name = tn_parse_name(p, "the name of the function");
    tn_ast *part[3] = {NULL};
    if (!name)
        return NULL;
    if (tn_parse_at(p, TN_TOK_BRACKET))
        return tn_parse_fail(p, p->t, "parameters for types are not supported");
    if (!tn_parse_expect(p, TN_TOK_PAREN, " after the function's name") || !(part[0] = tn_parse_parameters(p, TN_TOK_PAREN_END)))
        return NULL;
    if (tn_parse_accept(p, TN_TOK_ARROW) && !(part[2] = tn_parse_expression(p)))
        return NULL;
    if (!(part[1] = block(p, def)))
        return NULL;
    for (int i = 0; i < 3; i++)
        push(p, NULL);
    tn_ast **at = p->pending.at + mark;
    memmove(at + 3, at, ndecorators * sizeof *at);
    memcpy(at, part, sizeof part);
    tn_ast *node = named(tn_parse_node_pending(p, TN_AST_FUNCTION, start, mark), name);
    if (node) {
        node->end_line = part[1]->end_line;
        node->end_column = part[1]->end_column;
    }
    return node;
}

/* After `@`: do the names end in `jit`, as in triton.jit and triton.jit(…), or in `extern`, which functions of device libraries have? */
static bool names_jit(const tn_parser *p, const tn_token *t)
{
    while (t[0].kind == TN_TOK_NAME && t[1].kind == TN_TOK_DOT)
        t += 2;
    const char *name = p->unit->source + t->at;
    return t->kind == TN_TOK_NAME && ((t->size == 3 && memcmp(name, "jit", 3) == 0) || (t->size == 6 && memcmp(name, "extern", 6) == 0));
}

/* The line of a kernel's decorator, pushed. */
static bool decorator(tn_parser *p)
{
    p->t++;
    tn_ast *node = tn_parse_expression(p);
    if (!node)
        return false;
    if (!tn_parse_accept(p, TN_TOK_NEWLINE))
        return tn_parse_fail(p, p->t, "expected the end of the line after the decorator, found %s", tn_parse_found(p, p->t));
    push(p, node);
    return true;
}

/* What a function that is no kernel leaves: its name, and where its text stands, from the beginning of the line of its `def` on. */
static bool host_function(tn_parser *p, const tn_token *start)
{
    const tn_token *def = p->t;
    size_t first = def->at;
    while (first > 0 && (p->unit->source[first - 1] == ' ' || p->unit->source[first - 1] == '\t'))
        first--;
    p->t++;
    tn_parser name = *p;
    name.quiet = true;
    const char *text = tn_parse_name(&name, "");
    p->t += text != NULL;
    tn_ast *none[3] = {tn_parse_node(p, TN_AST_PARAMETERS, p->t, NULL, 0)};
    tn_ast *node = text ? named(tn_parse_node(p, TN_AST_FUNCTION, start, none, 3), text) : NULL;
    if (node)
        TN_PUSH(&p->session->arena, &p->unit->functions, node);
    skip_compound(p);
    if (node) {
        node->integer = first;
        node->length = p->t->at - first;
        node->line = def->line;
    }
    return readable(p);
}

/* A function or class with its decorators. */
static bool definition(tn_parser *p, bool sole)
{
    const tn_token *start = p->t;
    bool jit = sole;
    while (tn_parse_at(p, TN_TOK_AT)) {
        jit |= names_jit(p, p->t + 1);
        skip_line(p, false);
        tn_parse_accept(p, TN_TOK_NEWLINE);
    }
    if (!tn_parse_at(p, TN_TOK_DEF)) {
        skip_compound(p);
        return readable(p);
    }
    if (!jit)
        return host_function(p, start);
    p->t = start;
    size_t mark = p->pending.len;
    while (tn_parse_at(p, TN_TOK_AT))
        if (!decorator(p))
            return false;
    tn_ast *node = function(p, start, mark);
    if (node)
        TN_PUSH(&p->session->arena, &p->unit->functions, node);
    return node;
}

/* a.b.c; NULL: this is none. */
static const char *dotted_name(tn_parser *p)
{
    tn_text text = {.arena = &p->session->arena};
    while (tn_parse_at(p, TN_TOK_DOT) || tn_parse_at(p, TN_TOK_ELLIPSIS)) { /* of a package: from . import */
        tn_text_put(&text, p->unit->source + p->t->at, p->t->size);
        p->t++;
    }
    while (tn_parse_at(p, TN_TOK_NAME)) {
        tn_text_put(&text, p->unit->source + p->t->at, p->t->size);
        p->t++;
        if (!tn_parse_accept(p, TN_TOK_DOT))
            break;
        tn_text_put(&text, ".", 1);
    }
    return text.len ? tn_intern(p->session, text.at, text.len) : NULL;
}

static void add_import(tn_parser *p, const char *name, const char *module, const char *member)
{
    TN_PUSH(&p->session->arena, &p->unit->imports, (tn_ast_import){name, module, member});
}

/* import a.b as c, d  |  from m import n as o, p: as far as it is one; the rest of the line is skipped. `import a.b` binds a. */
static void import_statement(tn_parser *p)
{
    bool from = tn_parse_at(p, TN_TOK_FROM);
    p->t++;
    const char *module = from ? dotted_name(p) : NULL;
    if (from && (!module || !tn_parse_accept(p, TN_TOK_IMPORT)))
        return;
    if (from)
        tn_parse_accept(p, TN_TOK_PAREN);
    while (tn_parse_at(p, TN_TOK_NAME)) {
        const char *member = dotted_name(p), *name = member;
        if (tn_parse_accept(p, TN_TOK_AS)) {
            if (!tn_parse_at(p, TN_TOK_NAME))
                return;
            name = tn_intern(p->session, p->unit->source + p->t->at, p->t->size);
            p->t++;
        } else if (!from) {
            name = member = tn_intern(p->session, member, strcspn(member, "."));
        }
        add_import(p, name, from ? module : member, from ? member : NULL);
        if (!tn_parse_accept(p, TN_TOK_COMMA))
            return;
    }
}

static bool assigns_names(const tn_ast *node)
{
    if (node->kind == TN_AST_ANNOTATED)
        return node->child[0]->kind == TN_AST_NAME && node->child[2];
    if (node->kind != TN_AST_ASSIGN)
        return false;
    for (int i = 1; i < node->nchildren; i++)
        if (node->child[i]->kind != TN_AST_NAME)
            return false;
    return true;
}

/* Keeps it if it is an assignment of names that parses; what else it may be is no matter. */
static void host_statement(tn_parser *p)
{
    const tn_token *start = p->t;
    size_t mark = p->pending.len;
    int nesting = p->nesting;
    bool candidate = start->kind == TN_TOK_NAME && (start[1].kind == TN_TOK_SET || start[1].kind == TN_TOK_COLON);
    p->quiet = true;
    tn_ast *node = candidate ? expression_statement(p) : NULL;
    if (node && (tn_parse_at(p, TN_TOK_NEWLINE) || tn_parse_at(p, TN_TOK_SEMICOLON)) && assigns_names(node))
        TN_PUSH(&p->session->arena, &p->unit->assignments, node);
    p->quiet = p->failed = false;
    p->pending.len = mark;
    p->nesting = nesting;
    p->formats = 0;
    p->t = start;
}

/* Statements whose blocks are the top level too, as far as imports and functions go; which of them run is not known here. */
static bool opens_block(const tn_parser *p)
{
    switch (p->t->kind) {
    case TN_TOK_IF:
    case TN_TOK_ELIF:
    case TN_TOK_ELSE:
    case TN_TOK_TRY:
    case TN_TOK_EXCEPT:
    case TN_TOK_FINALLY:
    case TN_TOK_WITH: return true;
    default: return false;
    }
}

static bool top_level_line(tn_parser *p, int depth)
{
    if (opens_block(p)) {
        skip_line(p, false);
        tn_parse_accept(p, TN_TOK_NEWLINE);
        return readable(p);
    }
    if (is_compound(p)) {
        skip_compound(p);
        return readable(p);
    }
    for (;;) {
        if (tn_parse_at(p, TN_TOK_IMPORT) || tn_parse_at(p, TN_TOK_FROM))
            import_statement(p);
        else if (depth == 0)
            host_statement(p);
        skip_line(p, true);
        if (!tn_parse_accept(p, TN_TOK_SEMICOLON))
            break;
    }
    tn_parse_accept(p, TN_TOK_NEWLINE);
    return readable(p);
}

/* Is the text one function and nothing else? Then it is a kernel, whatever decorators say: `inspect` and Triton cut them off. */
static bool is_sole_function(const tn_parser *p)
{
    tn_parser ahead = *p;
    while (tn_parse_at(&ahead, TN_TOK_AT)) {
        skip_line(&ahead, false);
        tn_parse_accept(&ahead, TN_TOK_NEWLINE);
    }
    if (!tn_parse_at(&ahead, TN_TOK_DEF))
        return false;
    skip_compound(&ahead);
    return tn_parse_at(&ahead, TN_TOK_END) || tn_parse_at(&ahead, TN_TOK_ERROR);
}

static bool top_level(tn_parser *p)
{
    bool sole = is_sole_function(p);
    int depth = 0;
    while (!tn_parse_at(p, TN_TOK_END)) {
        bool done = true, follows_block = p->t > p->tokens->list.at && p->t[-1].kind == TN_TOK_NEWLINE;
        p->nesting = 0;
        p->pending.len = 0;
        if (tn_parse_at(p, TN_TOK_INDENT)) {
            if (!follows_block || p->t - p->tokens->list.at < 2 || p->t[-2].kind != TN_TOK_COLON)
                return tn_parse_fail(p, p->t, "this line is indented, and the one before begins no block");
            depth++, p->t++;
        } else if (tn_parse_at(p, TN_TOK_DEDENT)) {
            depth--, p->t++;
        } else if (tn_parse_at(p, TN_TOK_AT) || tn_parse_at(p, TN_TOK_DEF)) {
            done = definition(p, sole);
        } else {
            done = readable(p) && top_level_line(p, depth);
        }
        if (!done)
            return false;
    }
    return true;
}

enum { MOST_LINES = 1 << 30 }; /* so that counting on does not overflow */

static tn_ast_unit *new_unit(tn_session *session, const char *file, int first_line, const char *source, size_t size)
{
    tn_ast_unit *unit = TN_NEW(&session->arena, tn_ast_unit);
    *unit = (tn_ast_unit){.file = file ? tn_intern_z(session, file) : NULL, .source = source, .size = size};
    unit->first_line = (int)tn_max(-MOST_LINES, tn_min(first_line, MOST_LINES));
    return unit;
}

static tn_status check_size(tn_session *session, const tn_ast_unit *unit)
{
    if (unit->size <= TN_TRITON_MAX_SOURCE)
        return TN_OK;
    return tn_error(session, TN_INVALID, (tn_loc){.file = unit->file}, "a text of %zu bytes; %d MiB is the most", unit->size, TN_TRITON_MAX_SOURCE >> 20);
}

tn_status tn_ast_parse(tn_session *session, const char *file, int first_line, const char *source, size_t size, tn_ast_unit **out)
{
    tn_ast_unit *unit = new_unit(session, file, first_line, source, size);
    tn_tokens tokens;
    TN_TRY(check_size(session, unit));
    tn_lex(session, source, size, unit->first_line, &tokens);
    tn_parser p = {.session = session, .unit = unit, .tokens = &tokens, .t = tokens.list.at};
    *out = unit;
    return top_level(&p) ? TN_OK : TN_INVALID;
}

tn_status tn_ast_parse_expression(tn_session *session, const char *what, const char *source, size_t size, tn_ast **out)
{
    tn_ast_unit *unit = new_unit(session, what, 1, source, size);
    tn_tokens tokens;
    TN_TRY(check_size(session, unit));
    tn_lex_field(session, source, size, (tn_place){.line = 1, .column = 1}, false, &tokens);
    tn_parser p = {.session = session, .unit = unit, .tokens = &tokens, .t = tokens.list.at};
    *out = tn_parse_expressions(&p);
    if (*out && !tn_parse_at(&p, TN_TOK_END))
        *out = tn_parse_fail(&p, p.t, "expected the end, found %s", tn_parse_found(&p, p.t));
    return *out ? TN_OK : TN_INVALID;
}
