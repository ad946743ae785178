/* The syntax tree of the part of Python that kernels are written in (lex.c and parse.c make it, compile.c and expr.c walk it). Nodes live in
 * the session's arena and are never changed after parsing. */
#ifndef TN_TRITON_AST_H
#define TN_TRITON_AST_H

#include "base/base.h"

typedef enum tn_ast_kind {
    /* Expressions. child[] in the order given. */
    TN_AST_NAME,      /* text */
    TN_AST_INT,       /* integer: value in `integer` (up to 128 bits; more is an error of the parser) */
    TN_AST_FLOAT,     /* number */
    TN_AST_STRING,    /* text (adjacent literals joined, escapes resolved); size in `length` */
    TN_AST_FORMAT,    /* f-string: child: STRING pieces and expressions in turn */
    TN_AST_TRUE,
    TN_AST_FALSE,
    TN_AST_NONE,
    TN_AST_ELLIPSIS,
    TN_AST_ATTRIBUTE, /* value; text: the name */
    TN_AST_SUBSCRIPT, /* value, index (a TUPLE for a[x, y]) */
    TN_AST_SLICE,     /* lower, upper, step; each may be NULL */
    TN_AST_CALL,      /* callee, then arguments: expressions, STARRED, KEYWORD */
    TN_AST_KEYWORD,   /* value; text: the name, NULL for **value */
    TN_AST_STARRED,   /* value */
    TN_AST_UNARY,     /* operand; op */
    TN_AST_BINARY,    /* left, right; op */
    TN_AST_COMPARE,   /* left, right; op. `a < b < c` is an AND of two (b is written twice: it has no effects in kernels) */
    TN_AST_AND,       /* two or more */
    TN_AST_OR,
    TN_AST_TERNARY,   /* condition, then, else */
    TN_AST_TUPLE,
    TN_AST_LIST,
    TN_AST_DICT,      /* key, value, key, value … */
    TN_AST_LAMBDA,    /* PARAMETERS, body: decorators only */
    TN_AST_COMPREHENSION, /* element, target, iterable[, condition] of one `for`; nested ones nest in `element` (flattened: `integer` = 1): decorators only */
    /* Statements. */
    TN_AST_BLOCK,     /* statements */
    TN_AST_ASSIGN,    /* value, then one target or more (a = b = value) */
    TN_AST_AUGMENTED, /* target, value; op */
    TN_AST_ANNOTATED, /* target, annotation, value or NULL */
    TN_AST_EXPRESSION,/* value */
    TN_AST_RETURN,    /* value or NULL */
    TN_AST_IF,        /* condition, BLOCK, BLOCK or IF (elif) or NULL */
    TN_AST_FOR,       /* target, iterable, BLOCK, else BLOCK or NULL */
    TN_AST_WHILE,     /* condition, BLOCK, else BLOCK or NULL */
    TN_AST_PASS,
    TN_AST_BREAK,
    TN_AST_CONTINUE,
    TN_AST_ASSERT,    /* condition, message or NULL */
    TN_AST_UNSUPPORTED, /* a statement that kernels may not hold (try, with, global, import, def, class, del, raise …): text names it */
    TN_AST_PARAMETERS,/* PARAMETER … */
    TN_AST_PARAMETER, /* annotation or NULL, default or NULL; text: the name; integer: 0 plain, 1 *args, 2 **kwargs, 3 keyword only */
    TN_AST_FUNCTION   /* PARAMETERS, BLOCK, returns or NULL, then decorators (expressions), outermost first; text: the name */
} tn_ast_kind;

typedef enum tn_ast_op {
    TN_AST_ADD, TN_AST_SUB, TN_AST_MUL, TN_AST_DIV, TN_AST_FLOORDIV, TN_AST_MOD, TN_AST_POW, TN_AST_MATMUL,
    TN_AST_LSHIFT, TN_AST_RSHIFT, TN_AST_BITAND, TN_AST_BITOR, TN_AST_BITXOR,
    TN_AST_POSITIVE, TN_AST_NEGATIVE, TN_AST_INVERT, TN_AST_NOT,
    TN_AST_EQ, TN_AST_NE, TN_AST_LT, TN_AST_LE, TN_AST_GT, TN_AST_GE, TN_AST_IS, TN_AST_IS_NOT, TN_AST_IN, TN_AST_NOT_IN
} tn_ast_op;

typedef struct tn_ast tn_ast;
struct tn_ast {
    tn_ast_kind kind;
    tn_ast_op op;
    int line, column; /* 1-based, in the file: the unit's first line is counted in; columns count characters */
    int end_line, end_column; /* one past its last character */
    const char *text; /* interned */
    size_t length;
    __int128 integer;
    double number;
    int nchildren;
    tn_ast **child;
};

/* Top level of a unit: its functions, its assignments of names to expressions, its imports. All other host code is skipped: a file that holds
 * kernels usually holds much more. What is skipped is only tokenised; a bracket or string that does not end is an error all the same. */
typedef struct tn_ast_import {
    const char *name;   /* as bound here: tl */
    const char *module; /* triton.language; of `from m import n as name`: m */
    const char *member; /* n; NULL: the module itself */
} tn_ast_import;
typedef struct tn_ast_unit {
    const char *file;
    const char *source; /* for carets */
    size_t size;
    int first_line;
    /* Every `def` at top level, also inside if:, try: and with: there. Without a decorator that ends in `jit` it is its name alone: PARAMETERS empty, BLOCK
     * NULL, no decorators, its text by `integer` (the first byte in the source) and `length`, for whoever needs it; but if the text is one function and nothing else, it is a kernel whatever decorators say. */
    TN_VEC(tn_ast *) functions;
    TN_VEC(tn_ast *) assignments; /* top-level NAME = expression, NAME: annotation = expression; those that do not parse are skipped */
    TN_VEC(tn_ast_import) imports;/* also from inside try: and if: blocks at top level */
} tn_ast_unit;

/* Parses one file or one function's text, of at most 4 MiB. Brackets may nest 200 deep, blocks 99, trees have at most 500 levels. The text need not end in a newline; it may be indented as a whole (a method's or nested function's source).
 * first_line: number of its first line in `file`. Errors are diagnostics at the place, TN_INVALID. source must outlive the unit. */
tn_status tn_ast_parse(tn_session *session, const char *file, int first_line, const char *source, size_t size, tn_ast_unit **out);
/* One expression, whole text: literals of arguments and constants. */
tn_status tn_ast_parse_expression(tn_session *session, const char *what, const char *source, size_t size, tn_ast **out);
/* S-expressions, one statement a line: for tests. */
void tn_text_ast(tn_text *text, const tn_ast *node);
/* Reports an error at a node: the message, then the source line and a caret under the node (in the diagnostic's message, after a newline). */
tn_status tn_ast_error(tn_session *session, const tn_ast_unit *unit, const tn_ast *at, tn_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
