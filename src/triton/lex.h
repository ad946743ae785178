/* Tokens of Python 3.12. What the files of the parser share.
 *
 *   lex.c       text -> tokens, with indentation
 *   literal.c   numbers and strings: what a token's text stands for
 *   parse.c     statements, the top level      parse_expression.c   expressions
 *   ast.c       errors with their source line, the printer */
#ifndef TN_TRITON_LEX_H
#define TN_TRITON_LEX_H

#include "triton/ast.h"

/* TOKEN(kind, text): keywords and operators. */
#define TN_TRITON_KEYWORDS                                                                                                                           \
    TOKEN(FALSE, "False") TOKEN(NONE, "None") TOKEN(TRUE, "True") TOKEN(AND, "and") TOKEN(AS, "as") TOKEN(ASSERT, "assert")                          \
    TOKEN(ASYNC, "async") TOKEN(AWAIT, "await") TOKEN(BREAK, "break") TOKEN(CLASS, "class") TOKEN(CONTINUE, "continue") TOKEN(DEF, "def")            \
    TOKEN(DEL, "del") TOKEN(ELIF, "elif") TOKEN(ELSE, "else") TOKEN(EXCEPT, "except") TOKEN(FINALLY, "finally") TOKEN(FOR, "for")                    \
    TOKEN(FROM, "from") TOKEN(GLOBAL, "global") TOKEN(IF, "if") TOKEN(IMPORT, "import") TOKEN(IN, "in") TOKEN(IS, "is") TOKEN(LAMBDA, "lambda")      \
    TOKEN(NONLOCAL, "nonlocal") TOKEN(NOT, "not") TOKEN(OR, "or") TOKEN(PASS, "pass") TOKEN(RAISE, "raise") TOKEN(RETURN, "return")                  \
    TOKEN(TRY, "try") TOKEN(WHILE, "while") TOKEN(WITH, "with") TOKEN(YIELD, "yield")
/* Longer ones first: the first that fits is taken. */
#define TN_TRITON_OPERATORS                                                                                                                          \
    TOKEN(POW_SET, "**=") TOKEN(FLOORDIV_SET, "//=") TOKEN(LSHIFT_SET, "<<=") TOKEN(RSHIFT_SET, ">>=") TOKEN(ELLIPSIS, "...")                        \
    TOKEN(POW, "**") TOKEN(FLOORDIV, "//") TOKEN(LSHIFT, "<<") TOKEN(RSHIFT, ">>") TOKEN(EQ, "==") TOKEN(NE, "!=") TOKEN(LE, "<=") TOKEN(GE, ">=")   \
    TOKEN(ARROW, "->") TOKEN(WALRUS, ":=") TOKEN(ADD_SET, "+=") TOKEN(SUB_SET, "-=") TOKEN(MUL_SET, "*=") TOKEN(DIV_SET, "/=") TOKEN(MOD_SET, "%=")  \
    TOKEN(MATMUL_SET, "@=") TOKEN(AND_SET, "&=") TOKEN(OR_SET, "|=") TOKEN(XOR_SET, "^=")                                                            \
    TOKEN(PAREN, "(") TOKEN(PAREN_END, ")") TOKEN(BRACKET, "[") TOKEN(BRACKET_END, "]") TOKEN(BRACE, "{") TOKEN(BRACE_END, "}")                      \
    TOKEN(COMMA, ",") TOKEN(COLON, ":") TOKEN(SEMICOLON, ";") TOKEN(DOT, ".") TOKEN(SET, "=") TOKEN(AT, "@") TOKEN(ADD, "+") TOKEN(SUB, "-")         \
    TOKEN(MUL, "*") TOKEN(DIV, "/") TOKEN(MOD, "%") TOKEN(BITAND, "&") TOKEN(BITOR, "|") TOKEN(BITXOR, "^") TOKEN(INVERT, "~")                       \
    TOKEN(LT, "<") TOKEN(GT, ">")

typedef enum tn_token_kind {
    TN_TOK_END,
    TN_TOK_ERROR, /* the text cannot be read from here on: tn_tokens.message */
    TN_TOK_NEWLINE,
    TN_TOK_INDENT,
    TN_TOK_DEDENT,
    TN_TOK_NAME,
    TN_TOK_NUMBER,
    TN_TOK_STRING,
#define TOKEN(kind, text) TN_TOK_##kind,
    TN_TRITON_KEYWORDS TN_TRITON_OPERATORS
#undef TOKEN
    TN_TOK_COUNT
} tn_token_kind;

typedef struct tn_token {
    uint16_t kind;
    uint32_t at, size; /* in the source */
    int line, column;
} tn_token;

typedef struct tn_place { /* counts characters, not bytes */
    size_t at;
    int line, column;
} tn_place;

typedef struct tn_tokens {
    TN_VEC(tn_token) list; /* the last is END or ERROR */
    const char *message;   /* of ERROR, which may stand far before where it was noticed: a bracket that is never closed */
    tn_place where;
    size_t stop;           /* of tn_lex_field: where it ended */
} tn_tokens;

enum { TN_TRITON_MAX_SOURCE = 4 << 20, TN_TRITON_MAX_NESTING = 200, TN_TRITON_MAX_INDENTS = 100 };

/* Reads the whole text. source: at most TN_TRITON_MAX_SOURCE bytes. */
void tn_lex(tn_session *session, const char *source, size_t size, int first_line, tn_tokens *out);
/* Reads one expression, line ends being blanks: to the end of the text; in_format: of the replacement field of an f-string, to what ends it there. */
void tn_lex_field(tn_session *session, const char *source, size_t size, tn_place start, bool in_format, tn_tokens *out);
/* Moves a place over the source up to `to`. */
void tn_place_advance(tn_place *place, const char *source, size_t size, size_t to);
const char *tn_token_text(tn_token_kind kind); /* of keywords and operators */

typedef struct tn_string_form {
    bool raw, bytes, format;
    size_t prefix, quotes; /* characters before the text: letters, and quotation marks (1 or 3) */
} tn_string_form;
tn_string_form tn_string_form_of(const char *text, size_t size);

/* literal.c: false: `*message` says what is wrong. */
bool tn_literal_number(tn_session *session, const char *text, size_t size, tn_ast *node, const char **message);
/* Appends what the characters of a string stand for. On failure *wrong is the offset of the fault. */
bool tn_literal_string(tn_session *session, const char *text, size_t size, bool raw, tn_text *out, size_t *wrong, const char **message);

/* ---- the parser's own ---- */

typedef struct tn_parser {
    tn_session *session;
    tn_ast_unit *unit;
    const tn_tokens *tokens;
    const tn_token *t; /* the next one */
    TN_VEC(tn_ast *) pending; /* children of nodes that are being read */
    int nesting, formats;
    bool quiet;  /* failures are not reported: host code is looked at, not judged */
    bool failed;
} tn_parser;

/* Reports and gives NULL. */
tn_ast *tn_parse_fail(tn_parser *p, const tn_token *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
tn_ast *tn_parse_fail_at(tn_parser *p, const tn_ast *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *tn_parse_found(tn_parser *p, const tn_token *t); /* for messages */
static inline bool tn_parse_at(const tn_parser *p, tn_token_kind kind) { return p->t->kind == kind; }
bool tn_parse_accept(tn_parser *p, tn_token_kind kind);
bool tn_parse_expect(tn_parser *p, tn_token_kind kind, const char *where); /* where: " after the condition"; "" */
bool tn_parse_enter(tn_parser *p); /* one level deeper; leave on success only */
static inline void tn_parse_leave(tn_parser *p) { p->nesting--; }
const char *tn_parse_name(tn_parser *p, const char *what); /* NULL: failed */
/* A node from `start` to the token before the next, NULL if a needed child is NULL because it failed (p->failed). */
tn_ast *tn_parse_node(tn_parser *p, tn_ast_kind kind, const tn_token *start, tn_ast *const *child, size_t n);
int tn_parse_weight(const tn_ast *node); /* nodes below and at it, each as often as it is reached */
tn_ast *tn_parse_node_pending(tn_parser *p, tn_ast_kind kind, const tn_token *start, size_t mark); /* its children: pending from mark on */
#define TN_PARSE_NODE(p, kind, start, ...) \
    tn_parse_node((p), (kind), (start), (tn_ast *const[]){__VA_ARGS__}, sizeof((tn_ast *const[]){__VA_ARGS__}) / sizeof(tn_ast *))

/* May a name begin with the byte, go on with it? What is beyond ASCII may. */
bool tn_is_name_start(char c);
bool tn_is_name(char c);

tn_ast *tn_parse_expression(tn_parser *p);       /* one, no commas */
tn_ast *tn_parse_expressions(tn_parser *p);      /* a, *b, c: a TUPLE if there is a comma */
tn_ast *tn_parse_targets(tn_parser *p);          /* of for: stops before `in` */
bool tn_parse_is_target(tn_parser *p, const tn_ast *node, const char *what); /* may it be assigned to? reports */
tn_ast *tn_parse_parameters(tn_parser *p, tn_token_kind end);

#endif
