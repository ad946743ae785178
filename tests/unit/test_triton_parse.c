/* The parser of the front end: trees by their text, faults where they stand, host code skipped, hostile text. */
#include "unit.h"

#include "triton/ast.h"

#include <stdlib.h>
#include <string.h>

static tn_ast_unit *parse_n(tn_session *session, const char *source, size_t size)
{
    tn_ast_unit *unit = NULL;
    tn_status status = tn_ast_parse(session, "k.py", 1, source, size, &unit);
    if (status != TN_OK) {
        assert_int_equal(status, TN_INVALID);
        assert_int_equal(session->errors, 1);
        return NULL;
    }
    assert_int_equal(session->errors, 0);
    return unit;
}

static tn_ast_unit *parse(tn_session *session, const char *source)
{
    tn_ast_unit *unit = parse_n(session, source, strlen(source));
    if (!unit) {
        tn_print_diags(session, stderr);
        fail_msg("does not parse: %s", source);
    }
    return unit;
}

static const char *text_of(tn_session *session, const tn_ast *node)
{
    tn_text text = {.arena = &session->arena};
    tn_text_ast(&text, node);
    return text.at;
}

/* ---- expressions ------------------------------------------------------------------------------------------------------- */

static void test_expressions(void **state)
{
    (void)state;
    static const struct {
        const char *source, *tree;
    } cases[] = {
        {"a", "a"},
        {"a + b * c - d", "(- (+ a (* b c)) d)"},
        {"a - b - c", "(- (- a b) c)"},
        {"a ** b ** c", "(** a (** b c))"},
        {"-a ** -b", "(- (** a (- b)))"},
        {"-a * b", "(* (- a) b)"},
        {"~a & b | c ^ d << 2", "(| (& (~ a) b) (^ c (<< d 2)))"},
        {"a << b + c", "(<< a (+ b c))"},
        {"a // b % c @ d / e", "(/ (@ (% (// a b) c) d) e)"},
        {"not a == b", "(not (== a b))"},
        {"not not a", "(not (not a))"},
        {"a and b and not c or d or e", "(or (and a b (not c)) d e)"},
        {"(a and b) and c", "(and (and a b) c)"},
        {"a | b < c & d", "(< (| a b) (& c d))"},
        {"a < b <= c", "(and (< a b) (<= b c))"},
        {"a is not None", "(is-not a None)"},
        {"a is None", "(is a None)"},
        {"a not in b", "(not-in a b)"},
        {"a in (b, c)", "(in a (tuple b c))"},
        {"a != b", "(!= a b)"},
        {"a if b else c if d else e", "(? b a (? d c e))"},
        {"lambda: 0", "(lambda (parameters) 0)"},
        {"lambda a, b=1, *c, d, **e: a if b else c",
         "(lambda (parameters (parameter a _ _) (parameter b _ 1) (*parameter c _ _) (keyword-only d _ _) (**parameter e _ _)) (? b a c))"},
        {"lambda a, /, b, *, c: 1", "(lambda (parameters (parameter a _ _) (parameter b _ _) (keyword-only c _ _)) 1)"},
        {"f(lambda args: args['N'] % args[\"B\"] == 0)",
         "(call f (lambda (parameters (parameter args _ _)) (== (% ([] args \"N\") ([] args \"B\")) 0)))"},
        {"()", "(tuple)"},
        {"(a)", "a"},
        {"(a,)", "(tuple a)"},
        {"a,", "(tuple a)"},
        {"a, *b", "(tuple a (* b))"},
        {"[a, *b, c,]", "(list a (* b) c)"},
        {"[]", "(list)"},
        {"{}", "(dict)"},
        {"{'a': 1, 'b': x + y,}", "(dict \"a\" 1 \"b\" (+ x y))"},
        {"[a for a in b]", "(each a a b)"},
        {"(a for a, c in b if c if a)", "(each a (tuple a c) b (and c a))"},
        {"[f(a, b) for a in [1, 2] if a for b in range(3)]", "(each-flat (each (call f a b) b (call range 3)) a (list 1 2) a)"},
        {"any(a for a in b)", "(call any (each a a b))"},
        {"a.b.c", "(.c (.b a))"},
        {"f()(x)[y].z", "(.z ([] (call (call f) x) y))"},
        {"f(a, *b, c=1, **d)", "(call f a (* b) (= c 1) (** d))"},
        {"f(a=1, *b)", "(call f (= a 1) (* b))"},
        {"f(a == 1)", "(call f (== a 1))"},
        {"a[b]", "([] a b)"},
        {"a[:, None]", "([] a (tuple (: _ _ _) None))"},
        {"a[None, :]", "([] a (tuple None (: _ _ _)))"},
        {"a[1:2:3, ::-1, b:]", "([] a (tuple (: 1 2 3) (: _ _ (- 1)) (: b _ _)))"},
        {"a[...]", "([] a ...)"},
        {"a[b,]", "([] a (tuple b))"},
        {"True, False, None", "(tuple True False None)"},
        {"-1", "(- 1)"},
        {"+1", "(+ 1)"},
        {"0x_ff", "255"},
        {"0b1010", "10"},
        {"0O17", "15"},
        {"1_000_000", "1000000"},
        {"00", "0"},
        {"0xffffffffffffffff", "18446744073709551615"},
        {"170141183460469231731687303715884105727", "170141183460469231731687303715884105727"},
        {"1.5", "1.5"},
        {"1.", "1.0"},
        {".5", "0.5"},
        {"1e3", "1000.0"},
        {"1_0.2_5e-1", "1.025"},
        {"1e400", "inf"},
        {"0777.5", "777.5"},
        {"4.6566127342e-10", "4.6566127342e-10"},
        {"1if a else 2", "(? a 1 2)"},
        {"'a' \"b\" r'\\n'", "\"ab\\\\n\""},
        {"'\\x41\\101\\u0041\\U00000041\\t\\q\\\\'", "\"AAAA\\x09\\\\q\\\\\""},
        {"'\\u00e9'", "\"\xc3\xa9\""},
        {"'a\\\nb'", "\"ab\""},
        {"'''a\r\n'b\"\n'''", "\"a\\x0a'b\\\"\\x0a\""},
        {"\"\"\"\"x\\\"\"\"\"", "\"\\\"x\\\"\""},
        {"u'x' ''", "\"x\""},
        {"f'a{b}c{{d}}'", "(format \"a\" b \"c{d}\")"},
        {"f'{a}{b + 1}' 'c'", "(format a (+ b 1) \"c\")"},
        {"f'{a[\"k\"]!s}{f(\":}\")}'", "(format ([] a \"k\") (call f \":}\"))"},
        {"f'{a != b}{a == b}'", "(format (!= a b) (== a b))"},
        {"f'{f'{x}'}'", "(format (format x))"},
        {"f'{x,}'", "(format (tuple x))"},
        {"rf'\\{x}'", "(format \"\\\\\" x)"},
        {"f''", "\"\""},
        {"f'''\n{\n x\n}'''", "(format \"\\x0a\" x)"},
        {"  (a\n # b\n + \\\n c)  ", "(+ a c)"},
        {"x\xc3\xa9", "x\xc3\xa9"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        tn_ast *node;
        if (tn_ast_parse_expression(session, "argument", cases[i].source, strlen(cases[i].source), &node) != TN_OK) {
            tn_print_diags(session, stderr);
            fail_msg("%s", cases[i].source);
        }
        assert_string_equal(text_of(session, node), cases[i].tree);
        free_test_session(session);
    }
}

/* ---- statements -------------------------------------------------------------------------------------------------------- */

static void test_statements(void **state)
{
    (void)state;
    static const struct {
        const char *source, *tree;
    } cases[] = {
        {"x = 1", "(assign 1 x)"},
        {"x = y = 1, 2", "(assign (tuple 1 2) x y)"},
        {"a, (b, *c) = d", "(assign d (tuple a (tuple b (* c))))"},
        {"a[0].b = c", "(assign c (.b ([] a 0)))"},
        {"x: tl.constexpr = 4", "(annotated x (.constexpr tl) 4)"},
        {"x: int", "(annotated x int _)"},
        {"x += 1; y **= 2", "(+= x 1)\n    (**= y 2)"},
        {"x @= y; x <<= 1; x //= 2; x |= 3;", "(@= x y)\n    (<<= x 1)\n    (//= x 2)\n    (|= x 3)"},
        {"f(x)", "(expression (call f x))"},
        {"return", "(return _)"},
        {"return a, b", "(return (tuple a b))"},
        {"pass; break; continue", "(pass)\n    (break)\n    (continue)"},
        {"assert x", "(assert x _)"},
        {"assert x, 'm'", "(assert x \"m\")"},
        {"if a: b", "(if a\n      (block\n        (expression b)) _)"},
        {"if a:\n    b\n  elif c:\n    d\n  else:\n    e",
         "(if a\n      (block\n        (expression b))\n      (if c\n        (block\n          (expression d))\n        (block\n          (expression e))))"},
        {"for i, j in a, b:\n    pass\n  else: pass",
         "(for (tuple i j) (tuple a b)\n      (block\n        (pass))\n      (block\n        (pass)))"},
        {"for i in tl.range(0, n, 2, num_stages=3): x += i", "(for i (call (.range tl) 0 n 2 (= num_stages 3))\n      (block\n        (+= x i)) _)"},
        {"while x < 3: x += 1", "(while (< x 3)\n      (block\n        (+= x 1)) _)"},
        {"try:\n    x = 1\n  except E as e:\n    pass\n  finally:\n    pass\n  y", "(unsupported try)\n    (expression y)"},
        {"with a as b:\n    c\n  y", "(unsupported with)\n    (expression y)"},
        {"def g(x):\n    return x\n  y", "(unsupported def)\n    (expression y)"},
        {"@a.b(1)\n  @c\n  def g(x):\n    return x\n  y", "(unsupported decorators)\n    (expression y)"},
        {"match x:\n    case [1, *_]:\n      pass\n  y", "(unsupported match)\n    (expression y)"},
        {"match = 1; match[x:y]", "(assign 1 match)\n    (expression ([] match (: x y _)))"},
        {"import a; x", "(unsupported import)\n    (expression x)"},
        {"global a", "(unsupported global)"},
        {"raise E(';'); yield x", "(unsupported raise)\n    (unsupported yield)"},
        {"del x", "(unsupported del)"},
        {"class C: pass", "(unsupported class)"},
        {"async def f():\n    pass", "(unsupported async)"},
        {"type X = int", "(unsupported type)"},
        {"type = 3", "(assign 3 type)"},
        {"'doc'", "(expression \"doc\")"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        char *source = tn_format(&session->arena, "@triton.jit\ndef k():\n  %s\n", cases[i].source);
        tn_ast_unit *unit = parse(session, source);
        assert_int_equal(unit->functions.len, 1);
        char *tree = tn_format(&session->arena, "(function k (parameters)\n  (block\n    %s) _ (.jit triton))\n", cases[i].tree);
        assert_string_equal(text_of(session, unit->functions.at[0]), tree);
        free_test_session(session);
    }
}

static void test_function(void **state)
{
    (void)state;
    static const char source[] = "@triton.autotune(configs=[triton.Config({'B': b}, num_warps=4) for b in (32, 64)], key=['n'])\n"
                                 "@triton.jit(do_not_specialize=[\"n\"])\n"
                                 "def k(x_ptr: tl.pointer_type, n, *args, B: tl.constexpr = 64, **rest) -> int:\n"
                                 "    \"\"\"doc\"\"\"\n"
                                 "    return n # comment\n";
    tn_session *session = new_test_session();
    tn_ast_unit *unit = parse(session, source);
    const tn_ast *f = unit->functions.at[0];
    assert_string_equal(text_of(session, f),
                        "(function k (parameters (parameter x_ptr (.pointer_type tl) _) (parameter n _ _) (*parameter args _ _) "
                        "(keyword-only B (.constexpr tl) 64) (**parameter rest _ _))\n"
                        "  (block\n"
                        "    (expression \"doc\")\n"
                        "    (return n)) int "
                        "(call (.autotune triton) (= configs (each (call (.Config triton) (dict \"B\" b) (= num_warps 4)) b (tuple 32 64))) "
                        "(= key (list \"n\"))) (call (.jit triton) (= do_not_specialize (list \"n\"))))\n");
    assert_string_equal(f->text, "k");
    assert_int_equal(f->line, 1);
    assert_int_equal(f->column, 1);
    assert_int_equal(f->end_line, 5);
    assert_int_equal(f->end_column, 13);
    const tn_ast *result = f->child[1]->child[1];
    assert_int_equal(result->line, 5);
    assert_int_equal(result->column, 5);
    assert_int_equal(result->child[0]->column, 12);
    assert_int_equal(result->child[0]->end_column, 13);
    free_test_session(session);
}

static void test_positions(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_ast_unit *unit;
    static const char source[] = "  def k():\r\n\t  x = '\xc3\xa9' + (a +\r     b)\n\t  y = '''\n'''.z";
    assert_int_equal(tn_ast_parse(session, "k.py", 40, source, strlen(source), &unit), TN_OK);
    const tn_ast *block = unit->functions.at[0]->child[1], *sum = block->child[0]->child[0], *y = block->child[1]->child[0];
    assert_int_equal(sum->line, 41);
    assert_int_equal(sum->column, 8);
    assert_int_equal(sum->child[0]->end_column, 11); /* characters, not bytes */
    assert_int_equal(sum->child[1]->child[1]->line, 42);
    assert_int_equal(sum->child[1]->child[1]->column, 6);
    assert_int_equal(sum->end_line, 42);
    assert_int_equal(sum->end_column, 8);
    assert_int_equal(y->line, 43);
    assert_int_equal(y->end_line, 44);
    assert_int_equal(y->end_column, 6);
    free_test_session(session);
}

/* ---- host code ----------------------------------------------------------------------------------------------------------- */

static void test_host_code(void **state)
{
    (void)state;
    static const char source[] = "#!/usr/bin/env python\n"
                                 "'''module'''\n"
                                 "from __future__ import annotations\n"
                                 "import os, torch.nn as nn\n"
                                 "import triton.language\n"
                                 "from . import here\n"
                                 "from ..up.mod import (one as uno,\n"
                                 "                      two, )\n"
                                 "from star import *\n"
                                 "try:\n"
                                 "    import triton\n"
                                 "    import triton.language as tl; X = 1\n"
                                 "except (ImportError, E) as e:\n"
                                 "    triton = None\n"
                                 "A = 1\n"
                                 "B: tl.constexpr = tl.constexpr(64)\n"
                                 "C = D = 'x'\n"
                                 "E, F = 1, 2\n"
                                 "G = [x := 1, {*y}, await z, 3j]\n"
                                 "H.x = 1\n"
                                 "I: int\n"
                                 "J = lambda: (yield)\n"
                                 "K = 5; L = A + B\n"
                                 "async def main():\n"
                                 "    async with a as b: pass\n"
                                 "class M(nn.Module):\n"
                                 "    @triton.jit\n"
                                 "    def inner(x):\n"
                                 "        if (n := 3): return {1, 2, **{}}\n"
                                 "    z = 1\n"
                                 "\n"
                                 "def host(x: int = (y := 4)) -> None:\n"
                                 "    @triton.jit\n"
                                 "    def nested(): pass\n"
                                 "    match x:\n"
                                 "        case {'a': 1, **rest}: print(f\"{x!r:>{width}} {'a' 'b'}\")\n"
                                 "@functools.cache\n"
                                 "def cached(): return 1\n"
                                 "if os.environ.get('X'):\n"
                                 "    @triton.jit\n"
                                 "    def conditional(x):\n"
                                 "        return x\n"
                                 "else:\n"
                                 "    N = 1\n"
                                 "@decorator\n"
                                 "@jit\n"
                                 "def kernel(x, N):\n"
                                 "    pass\n"
                                 "for i in range(3):\n"
                                 "    print(i)\n"
                                 "else:\n"
                                 "    pass\n"
                                 "if __name__ == '__main__': main()\n"
                                 "print >> 1, `x`[0:0]\n";
    static const char end[] = "print >> 1, `x`[0:0]\n";
    tn_session *session = new_test_session();
    size_t size = strlen(source) - strlen(end); /* backquotes are no Python */
    tn_ast_unit *unit = parse_n(session, source, size);
    tn_print_diags(session, stderr);
    assert_non_null(unit);
    tn_text text = {.arena = &session->arena};
    for (size_t i = 0; i < unit->functions.len; i++)
        tn_text_add(&text, "%s%s ", unit->functions.at[i]->text, unit->functions.at[i]->child[1] ? "+" : "");
    assert_string_equal(text.at, "host cached conditional+ kernel+ ");
    text = (tn_text){.arena = &session->arena};
    for (size_t i = 0; i < unit->assignments.len; i++)
        tn_text_ast(&text, unit->assignments.at[i]);
    assert_string_equal(text.at, "(assign 1 A)\n(annotated B (.constexpr tl) (call (.constexpr tl) 64))\n(assign \"x\" C D)\n(assign 5 K)\n(assign (+ A B) L)\n");
    text = (tn_text){.arena = &session->arena};
    for (size_t i = 0; i < unit->imports.len; i++)
        tn_text_add(&text, "%s=%s:%s ", unit->imports.at[i].name, unit->imports.at[i].module, unit->imports.at[i].member ? unit->imports.at[i].member : "");
    assert_string_equal(text.at, "annotations=__future__:annotations os=os: nn=torch.nn: triton=triton: here=.:here uno=..up.mod:one two=..up.mod:two "
                                 "triton=triton: tl=triton.language: ");
    free_test_session(session);

    session = new_test_session();
    assert_null(parse_n(session, source, strlen(source)));
    assert_non_null(strstr(session->diags.at[0].message, "the character ``` cannot stand here"));
    free_test_session(session);
}

static void test_layouts(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "def k(x):\n    return x",                                    /* the decorators cut off, no line end */
        "    @other\n    def k(x):\n        return x\n",              /* indented as a whole */
        "\tdef k(x):\n\t\treturn x\n",
        "\tdef k(x):\n\t        return x\n",                          /* a tab, then blanks */
        "@triton.jit\r\ndef k(x):\r\n    return x\r\n",
        "@triton.jit\rdef k(x):\r    return x",
        "\xef\xbb\xbf@triton.jit\ndef k(x):\n    return x\n",
        "\n\n  # c\n@triton.jit # d\n\n# e\ndef k(x): # f\n\n  # g\n      # h\n    return x\n\t\n",
        "\f@triton.jit\n\fdef k(x):\n  \f    return x\n",            /* a form feed begins the line anew */
        "@triton.jit\ndef k(\nx\n  ,\n):\n    return \\\nx\n",
        "@triton.jit\ndef k(x): return x;\n",
        "if y:\n @triton.jit\n def k(x):\n  return x\nz = 1",
        "@triton.jit\ndef k(x):\n    return x\n    # end",
        "x = '''\n  @triton.jit\n def z'''\n@triton . jit\ndef k(x):\n    return x\n",
    };
    for (size_t i = 0; i < TN_COUNT(sources); i++) {
        tn_session *session = new_test_session();
        tn_ast_unit *unit = parse(session, sources[i]);
        if (unit->functions.len != 1 || !unit->functions.at[0]->child[1])
            fail_msg("case %zu: no function", i);
        const tn_ast *function = unit->functions.at[0];
        assert_string_equal(function->text, "k");
        assert_string_equal(text_of(session, function->child[1]), "(block\n  (return x))\n");
        free_test_session(session);
    }
}

static void test_empty(void **state)
{
    (void)state;
    static const char *const sources[] = {"", "\n", "# c", "  \n\t\n", "\xef\xbb\xbf", "'''\n'''"};
    for (size_t i = 0; i < TN_COUNT(sources); i++) {
        tn_session *session = new_test_session();
        assert_int_equal(parse(session, sources[i])->functions.len, 0);
        free_test_session(session);
    }
}

/* ---- faults -------------------------------------------------------------------------------------------------------------- */

typedef struct fault {
    const char *source; /* of the kernel's body, unless it begins with `@` or `^`: then the whole text */
    int line, column;
    const char *message;
} fault;

static const fault faults[] = {
    {"x = ", 3, 7, "expected an expression, found the end of the line"},
    {"x = 1 +", 3, 10, "expected an expression, found the end of the line"},
    {"x = 1 2", 3, 9, "expected the end of the statement, found `2`"},
    {"x = a b", 3, 9, "expected the end of the statement, found `b`"},
    {"x = a ? b", 3, 9, "the character `?` cannot stand here"},
    {"x = $a", 3, 7, "the character `$` cannot stand here"},
    {"x := 1", 3, 5, "`:=` is not supported"},
    {"f(y := 1)", 3, 7, "`:=` is not supported"},
    {"x = yield", 3, 7, "`yield` is not supported in kernels"},
    {"x = await y", 3, 7, "`await` is not supported in kernels"},
    {"x = 3j", 3, 7, "imaginary numbers are not supported"},
    {"x = 1.5J", 3, 7, "imaginary numbers are not supported"},
    {"x = 0777", 3, 7, "may not begin with 0"},
    {"x = 1__0", 3, 7, "an underscore in a number"},
    {"x = 1_", 3, 7, "an underscore in a number"},
    {"x = 0x", 3, 7, "ends after its base"},
    {"x = 0b12", 3, 7, "`0b12` is no number of base 2"},
    {"x = 12ab", 3, 7, "`12ab` is no number"},
    {"x = 1.5ab", 3, 7, "`1.5ab` is no number"},
    {"x = 1e", 3, 7, "`1e` is no number"},
    {"x = 170141183460469231731687303715884105728", 3, 7, "more than 128 bits"},
    {"x = b'a'", 3, 7, "bytes are not supported"},
    {"x = 'abc", 3, 7, "this string is not closed on its line"},
    {"x = '''abc", 3, 7, "this string is never closed"},
    {"x = 'a\\x4'", 3, 9, "`\\x` needs 2 hexadecimal digits"},
    {"x = '\xc3\xa9\\ud800'", 3, 9, "names no character"},
    {"x = '\\N{DASH}'", 3, 8, "characters by name"},
    {"x = f'{a:>3}'", 3, 11, "formats after `:` are not supported"},
    {"x = f'{a!r}'", 3, 11, "formats after `:` are not supported"},
    {"x = f'{a=}'", 3, 11, "formats after `:` are not supported"},
    {"x = f'{}'", 3, 10, "expected an expression, found the end of the field"},
    {"x = f'{a b}'", 3, 12, "expected `}` after the expression, found `b`"},
    {"x = f'}'", 3, 9, "a single `}`"},
    {"x = f'{a'", 3, 7, "this string is not closed"},
    {"x = f'{(a}'", 3, 7, "this string is not closed"},
    {"x = {1, 2}", 3, 8, "sets are not supported"},
    {"x = {a for a in b}", 3, 8, "sets are not supported"},
    {"x = {**a}", 3, 8, "`**` in a dict"},
    {"x = {a: b for a in b}", 3, 8, "dict comprehensions are not supported"},
    {"x = *a", 3, 7, "`*` cannot stand here"},
    {"x = (*a)", 3, 7, "`*` cannot stand in brackets alone"},
    {"x = (a", 3, 7, "this `(` is never closed"},
    {"x = f(a,\n  y = 2\n  z = 3", 3, 8, "this `(` is never closed"},
    {"x = a)", 3, 8, "`)` closes nothing"},
    {"x = (a]", 3, 9, "`]` does not close `(` on line 3"},
    {"x = a[]", 3, 9, "expected an expression, found `]`"},
    {"x = a.1", 3, 8, "expected the end of the statement, found `.1`"},
    {"x = a.", 3, 9, "expected the name of an attribute after `.`, found the end of the line"},
    {"x = a.if", 3, 9, "found `if`, which is a word of the language"},
    {"x = a if b", 3, 13, "expected `else` of the conditional expression, found the end of the line"},
    {"x = not", 3, 10, "expected an expression"},
    {"x = a not b", 3, 9, "expected the end of the statement, found `not`"},
    {"f(a=1, 2)", 3, 10, "an argument without a name follows one with a name"},
    {"f(a=1, a=2)", 3, 10, "the argument `a` is given twice"},
    {"f(a.b=1)", 3, 5, "an argument's name must stand before `=`"},
    {"f(a b)", 3, 7, "expected `)`, found `b`"},
    {"f() = 1", 3, 3, "cannot assign to a call"},
    {"1 = x", 3, 3, "cannot assign to a literal"},
    {"a + b = x", 3, 3, "cannot assign to an expression"},
    {"a = None = x", 3, 7, "cannot assign to None"},
    {"(a, f(b)) = x", 3, 7, "cannot assign to a call"},
    {"a, b += 1", 3, 3, "cannot change several names at once"},
    {"f() += 1", 3, 3, "cannot change a call"},
    {"a, b: int = 1", 3, 3, "cannot annotate several names at once"},
    {"for 1 in x: pass", 3, 7, "cannot assign to a literal"},
    {"for a of x: pass", 3, 9, "expected `in` after the names of `for`, found `of`"},
    {"if a\n    b", 3, 7, "expected `:`, found the end of the line"},
    {"if a = b: pass", 3, 8, "expected `:`, found `=`"},
    {"if a:\n  b", 4, 3, "expected an indented block after `if` on line 3"},
    {"while a:", 4, 1, "expected an indented block after `while` on line 3"},
    {"if a: for b in c: d", 3, 9, "`for` cannot stand on the line of `if`"},
    {"else: a", 3, 3, "`else` belongs to no statement before it"},
    {"x = 1\n    y = 2", 4, 5, "this line is indented deeper than its block"},
    {"x = 1\n y = 2", 4, 2, "that of no block around it"},
    {"if a:\n\tb", 4, 2, "tabs and blanks are mixed"},
    {"if a:\n  \tb\n        c\n", 5, 9, "tabs and blanks are mixed"},
    {"if a:\n        b\n\tc", 5, 2, "tabs and blanks are mixed"},
    {"x = a \\ + b", 3, 9, "`\\` joins lines"},
    {"x = a \\", 3, 9, "the text ends after `\\`"},
    {"x = \xe2\x80\x9c" "a", 3, 7, "the character U+201C cannot stand here"},
    {"x\xc2\xa0= a", 3, 4, "the character U+00A0 cannot stand here"},
    {"x = '\xff'", 3, 8, "the text is not UTF-8: byte 0xff"},
    {"# \xc0\x80", 3, 5, "the text is not UTF-8: byte 0xc0"},
    {"x = (\xed\xa0\x80", 3, 8, "the text is not UTF-8: byte 0xed"},
    {"lambda a, a: 1", 3, 13, "there are two parameters `a`"},
    {"lambda a=1, b: 1", 3, 15, "the parameter `b` has no default and follows one that has"},
    {"@jit\ndef k(a, *, b, *c): pass", 2, 16, "there are two `*`"},
    {"@jit\ndef k(**a, b): pass", 2, 12, "nothing can follow the parameter with `**`"},
    {"@jit\ndef k(*a=1): pass", 2, 9, "`*a` cannot have a default"},
    {"@jit\ndef k[T](a): pass", 2, 6, "parameters for types are not supported"},
    {"@jit\ndef k(a: pass", 2, 6, "this `(` is never closed"},
    {"@jit\ndef k(1): pass", 2, 7, "expected the name of a parameter, found `1`"},
    {"@jit\ndef if(): pass", 2, 5, "expected the name of the function, found `if`"},
    {"@jit\ndef k(): pass\n  x = 1", 3, 3, "this line is indented, and the one before begins no block"},
    {"@jit(\ndef k(): pass", 1, 5, "this `(` is never closed"},
    {"@jit x\ndef k(): pass", 1, 6, "expected the end of the line after the decorator"},
    {"^  x = 1\ny = 2", 2, 1, "this line is indented less than the first one"},
    {"^x = 1\ny = 'a\nz", 2, 5, "this string is not closed on its line"},
    {"^def host(:\n", 1, 9, "this `(` is never closed"},
    {"^class A:\n    x = (1\n", 2, 9, "this `(` is never closed"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < TN_COUNT(faults); i++) {
        const fault *f = &faults[i];
        tn_session *session = new_test_session();
        bool whole = f->source[0] == '@' || f->source[0] == '^';
        const char *source = whole ? f->source + (f->source[0] == '^') : tn_format(&session->arena, "@triton.jit\ndef k():\n  %s\n", f->source);
        if (parse_n(session, source, strlen(source)))
            fail_msg("accepted: %s", source);
        const tn_diag *d = &session->diags.at[0];
        if (d->loc.line != f->line || d->loc.column != f->column || !strstr(d->message, f->message))
            fail_msg("%s: expected %d:%d '%s', found %d:%d '%s'", source, f->line, f->column, f->message, d->loc.line, d->loc.column, d->message);
        assert_string_equal(d->loc.file, "k.py");
        free_test_session(session);
    }
}

static void test_carets(void **state)
{
    (void)state;
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"@jit\ndef k():\n\tx = a + f(b) = c\n", "cannot assign to an expression\n    \tx = a + f(b) = c\n    \t    ^~~~~~~~"},
        {"@jit\ndef k():\r\n  '\xc3\xa9' = c\r\n", "cannot assign to a literal\n      '\xc3\xa9' = c\n      ^~~"},
        {"@jit\ndef k():\n  x =", "expected an expression, found the end of the line\n      x =\n         ^"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        assert_null(parse_n(session, cases[i].source, strlen(cases[i].source)));
        assert_string_equal(session->diags.at[0].message, cases[i].message);
        free_test_session(session);
    }
    tn_session *session = new_test_session(); /* of a long line a part */
    char source[1200] = "@jit\ndef k():\n x = ";
    for (size_t i = strlen(source); i < 1000; i += 4)
        memcpy(source + i, "a + ", 5);
    strcat(source, ") + bbbbb");
    assert_null(parse_n(session, source, strlen(source)));
    const char *message = session->diags.at[0].message, *line = strstr(message, "\n    ..."), *mark = strchr(message, '^');
    assert_non_null(line);
    assert_non_null(mark);
    assert_true(strlen(message) < 500);
    const char *second = strchr(line + 1, '\n');
    assert_int_equal(line[mark - second], ')');
    free_test_session(session);
}

static void test_zero_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        size_t size;
        int column;
    } cases[] = {{"x = 1\0", 6, 6}, {"\0", 1, 1}, {"x = 'a\0b'", 9, 7}, {"x = (\0)", 7, 6}, {"# \0", 3, 3}, {"x\0y = 1", 7, 2}};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        assert_null(parse_n(session, cases[i].source, cases[i].size));
        assert_non_null(strstr(session->diags.at[0].message, "the text holds a zero byte"));
        assert_int_equal(session->diags.at[0].loc.column, cases[i].column);
        free_test_session(session);
    }
}

/* ---- hostile text ---------------------------------------------------------------------------------------------------------- */

static char *repeat(tn_session *session, const char *head, const char *part, int n, const char *tail)
{
    tn_text text = {.arena = &session->arena};
    tn_text_put(&text, head, strlen(head));
    for (int i = 0; i < n; i++)
        tn_text_put(&text, part, strlen(part));
    tn_text_put(&text, tail, strlen(tail));
    return text.at;
}

static void test_deep(void **state)
{
    (void)state;
    static const struct {
        const char *part, *after, *message;
    } cases[] = {
        {"(", "1", "brackets are nested more than 200 deep"},
        {"[", "", "brackets are nested more than 200 deep"},
        {"f(", "", "nested more than 200 deep"},
        {"-", "1", "nested more than"},
        {"not ", "1", "nested more than"},
        {"2 ** ", "1", "nested more than"},
        {"1 if 2 else ", "3", "nested more than"},
        {"lambda: ", "1", "nested more than"},
        {"1 + ", "1", "a chain of more operators"},
        {"a.", "b", "a chain of more operators"},
        {"f''f'{", "", "this f-string is not closed, or is nested too deep"},
    };
    static const char head[] = "@jit\ndef k():\n  x = ";
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        char *source = repeat(session, head, cases[i].part, 100000, cases[i].after);
        if (parse_n(session, source, strlen(source)))
            fail_msg("accepted: %s", cases[i].part);
        if (!strstr(session->diags.at[0].message, cases[i].message))
            fail_msg("%s: %s", cases[i].part, session->diags.at[0].message);
        free_test_session(session);
    }
    tn_session *session = new_test_session(); /* what is allowed is read */
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "%s%s1", head, repeat(session, "", "(", 190, ""));
    tn_text_add(&text, "%s\n  y = %s1\n", repeat(session, "", ")", 190, ""), repeat(session, "", "1 + ", 400, ""));
    assert_non_null(text_of(session, parse(session, text.at)->functions.at[0]));
    free_test_session(session);
}

static void test_deep_blocks(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_text text = {.arena = &session->arena};
    for (int i = 0; i < 200; i++)
        tn_text_add(&text, "%*s%s:\n", i, "", i ? "if a" : "def k()");
    assert_null(parse_n(session, text.at, text.len));
    assert_non_null(strstr(session->diags.at[0].message, "blocks are nested more than 99 deep"));
    free_test_session(session);
    session = new_test_session();
    char *source = repeat(session, "@jit\ndef k():\n  if a: b\n", "  elif a: b\n", 5000, "");
    assert_null(parse_n(session, source, strlen(source)));
    assert_non_null(strstr(session->diags.at[0].message, "nested more than"));
    free_test_session(session);
}

/* Chains of comparisons hold their middle twice: trees may not double and double again. */
static void test_doubling(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "%s1%s", repeat(session, "@jit\ndef k():\n  x = ", "(a < ", 60, ""), repeat(session, "", " < b)", 60, ""));
    assert_null(parse_n(session, text.at, text.len));
    assert_non_null(strstr(session->diags.at[0].message, "too long to be compared on both sides"));
    free_test_session(session);
}

/* Hundreds of thousands of tokens: what takes time by their square does not end. */
static void test_large(void **state)
{
    (void)state;
    static const char *const parts[] = {"x = f(a, b)[1:2] + 'c' # d\n", "x = f'{a}{b[\"c\"]}'\n", "class A:\n    def f(self): return {1: [2]}\n", "\n",
                                        "@a\n@b\n", "import a.b as c; y = 1;", "f'{f'{1}'}';", "'a' "};
    for (size_t i = 0; i < TN_COUNT(parts); i++) {
        tn_session *session = new_test_session();
        int n = 1000000 / (int)strlen(parts[i]);
        char *source = repeat(session, "", parts[i], n, "\n");
        parse(session, source);
        source = repeat(session, "@jit\ndef k():\n", i == 0 ? "  x = f(a, b)[1:2] + 'c' # d\n" : "  x = f'{a}{b[\"c\"]}'\n", 20000, "\n");
        parse(session, source);
        free_test_session(session);
    }
    tn_session *session = new_test_session();
    char *source = repeat(session, "", "aaaaaaaa", 200, " = 1");
    assert_null(parse_n(session, source, strlen(source)));
    assert_non_null(strstr(session->diags.at[0].message, "a name of 1600 characters"));
    free_test_session(session);
    session = new_test_session();
    source = repeat(session, "", "        ", (4 << 20) / 8 + 1, "");
    assert_null(parse_n(session, source, strlen(source)));
    assert_non_null(strstr(session->diags.at[0].message, "4 MiB is the most"));
    free_test_session(session);
}

/* Every beginning, every byte changed: no crash, and a refusal says why (the sanitizers look on). */
static void test_damaged(void **state)
{
    (void)state;
    static const char source[] = "import a as b\nX = 1\n@triton.jit\ndef k(x, *, y: t = 1):\n  if x[1:2, None] < 1.5e3 <= f(a=1, *c):\n"
                                 "    z = f'q{x + 1}{{' 'w' r\"\\\"; return lambda v: [v for v in (1, 0x1f)]\n  else:\n\tw: int = {'''m\n''': -1}\n"
                                 "  for i in range(3): pass\n  while not y: i **= 2 if a else b; break\n";
    static const char bytes[] = "\0\n\t ()[]{}'\"\\f:=@#,\xff\xc3x1";
    size_t size = strlen(source);
    char *copy = malloc(size);
    for (size_t i = 0; i <= size * TN_COUNT(bytes); i++) {
        tn_session *session = new_test_session();
        memcpy(copy, source, size);
        size_t at = i / TN_COUNT(bytes), end = i % TN_COUNT(bytes) ? size : at;
        if (at < size)
            copy[at] = bytes[i % TN_COUNT(bytes)];
        char *exact = malloc(end + !end); /* a read past the end is seen */
        memcpy(exact, copy, end);
        parse_n(session, exact, end);
        free(exact);
        free_test_session(session);
    }
    free(copy);
}

static void test_expression_faults(void **state)
{
    (void)state;
    static const fault cases[] = {
        {"", 1, 1, "expected an expression, found the end of the text"},
        {"1 2", 1, 3, "expected the end, found `2`"},
        {"(1,\n'a", 2, 1, "this string is never closed"},
        {"x = 1", 1, 3, "expected the end, found `=`"},
        {"1)", 1, 2, "`)` closes nothing"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        tn_ast *node;
        assert_int_equal(tn_ast_parse_expression(session, "argument", cases[i].source, strlen(cases[i].source), &node), TN_INVALID);
        const tn_diag *d = &session->diags.at[0];
        if (d->loc.line != cases[i].line || d->loc.column != cases[i].column || !strstr(d->message, cases[i].message))
            fail_msg("%s: found %d:%d '%s'", cases[i].source, d->loc.line, d->loc.column, d->message);
        free_test_session(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions), cmocka_unit_test(test_statements), cmocka_unit_test(test_function),    cmocka_unit_test(test_positions),
        cmocka_unit_test(test_host_code),   cmocka_unit_test(test_layouts),    cmocka_unit_test(test_empty),       cmocka_unit_test(test_faults),
        cmocka_unit_test(test_carets),      cmocka_unit_test(test_zero_bytes), cmocka_unit_test(test_deep),        cmocka_unit_test(test_deep_blocks),
        cmocka_unit_test(test_doubling),    cmocka_unit_test(test_large),      cmocka_unit_test(test_damaged),     cmocka_unit_test(test_expression_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
