/* Symbolic dimensions: normal forms, proofs, text; and a comparison of random expressions with their values. */
#include "graph/graph.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static const char *show(tn_session *session, tn_dim d)
{
    tn_text text = {.arena = &session->arena};
    tn_text_dim(&text, d);
    return text.at;
}

static tn_dim read(tn_session *session, const char *text)
{
    tn_dim d;
    size_t used = tn_dim_parse(session, text, &d);
    assert_int_equal(used, strlen(text));
    return d;
}

/* Input text and its normal form. */
static void test_normal_forms(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        {"s + s", "2*s"},
        {"s - s", "0"},
        {"(s + 1)*(s - 1)", "s*s - 1"},
        {"b*s + s*b", "2*b*s"},
        {"2*(s + 3) - 6", "2*s"},
        {"floordiv(4*s, 4)", "s"},
        {"floordiv(4*s + 3, 4)", "s"},
        {"floordiv(4*s + 6, 4)", "s + 1"},
        {"floordiv(4*s + 6, 8)", "ceildiv(s, 2)"}, /* floordiv(2*s + 3, 4) = floordiv(s + 1, 2) */
        {"floordiv(s - 1, 2) + 1", "ceildiv(s, 2)"},
        {"floordiv(floordiv(s, 2), 3)", "floordiv(s, 6)"},
        {"floordiv(floordiv(s - 1, 2) + 1 - 1, 2) + 1", "ceildiv(s, 4)"},
        {"ceildiv(s, 4)", "ceildiv(s, 4)"},
        {"ceildiv(s, 1)", "s"},
        {"floordiv(e, 8)*8", "e"},
        {"floordiv(e, 8)*4", "floordiv(e, 2)"},
        {"floordiv(e + 5, 8)*8", "e"},
        {"floordiv(e + s, 8)", "floordiv(e, 8) + floordiv(s, 8)"},
        {"floordiv(b*s, s)", "b"},
        {"floordiv(b*s*7 + b*7, s + 1)", "7*b"},
        {"floordiv(b*s + 1, s)", "b + floordiv(1, s)"},
        {"mod(4*s + 6, 4)", "2"},
        {"mod(6*s + 1, 4)", "2*mod(s, 2) + 1"},
        {"mod(e, 8)", "0"},
        {"mod(b*s, s)", "0"},
        {"mod(mod(s, 8), 4)", "mod(s, 4)"},
        {"mod(t, 16)", "t"},
        {"floordiv(t, 16)", "0"},
        {"min(t, 10)", "t"},
        {"max(t, 10)", "10"},
        {"min(s, s + 1)", "s"},
        {"max(max(s - 2, 0) - 2, 0)", "max(s - 4, 0)"},
        {"max(s + 1, 0)", "s + 1"},
        {"min(s, 7)", "min(s, 7)"},
        {"-s + 3", "-s + 3"},
        {"3 - 2*s", "-2*s + 3"},
        {"\"batch size\" + 1", "\"batch size\" + 1"},
        {"-9223372036854775808", "-9223372036854775808"},
    };
    tn_session *s = new_test_session();
    tn_dim_declare(s, "e", 0, 4096, 8);
    tn_dim_declare(s, "t", 1, 10, 1);
    for (size_t i = 0; i < TN_COUNT(pair); i++) {
        tn_dim d = read(s, pair[i][0]);
        assert_string_equal(show(s, d), pair[i][1]);
        assert_ptr_equal(read(s, pair[i][1]), d);
    }
    assert_int_equal(s->errors, 0);
    free_test_session(s);
}

static void test_proofs(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool le, eq, ne;
    } row[] = {
        {"s", "s", true, true, false},
        {"s", "s + 1", true, false, true},
        {"s + 1", "s", false, false, true},
        {"s", "b", false, false, false},
        {"floordiv(s, 2)", "s", true, false, false},
        {"ceildiv(s, 2)", "s", true, false, false}, /* 0 -> 0, 1 -> 1 */
        {"4*floordiv(s, 4) + mod(s, 4)", "s", true, true, false},
        {"mod(s, 4)", "s", true, false, false},
        {"mod(s, 4)", "3", true, false, false},
        {"min(s, b)", "b", true, false, false},
        {"min(s, b)", "max(s, b)", true, false, false},
        {"min(s, b) - 1", "max(s, b)", true, false, true},
        {"2*s", "2*b + 1", false, false, true}, /* even, odd */
        {"e", "s*8 + 4", false, false, true},
        {"s*s + 2*s + 1", "(s + 1)*(s + 1)", true, true, false},
        {"12*b*s", "s*3*b*4", true, true, false},
        {"t", "11", true, false, true},
    };
    tn_session *s = new_test_session();
    tn_dim_declare(s, "e", 0, 4096, 8);
    tn_dim_declare(s, "t", 1, 10, 1);
    for (size_t i = 0; i < TN_COUNT(row); i++) {
        tn_dim a = read(s, row[i].a), b = read(s, row[i].b);
        if (tn_dim_le(s, a, b) != row[i].le || tn_dim_eq(s, a, b) != row[i].eq || tn_dim_ne(s, a, b) != row[i].ne)
            fail_msg("%s against %s: le %d, eq %d, ne %d", row[i].a, row[i].b, tn_dim_le(s, a, b), tn_dim_eq(s, a, b), tn_dim_ne(s, a, b));
    }
    free_test_session(s);
}

/* ---- random expressions -------------------------------------------------------------------------------------------------- */

enum { SYMBOLS = 3 };
static const char *const symbol_name[SYMBOLS] = {"x", "y", "z"};
static const int64_t symbol_lo[SYMBOLS] = {0, 1, 0}, symbol_hi[SYMBOLS] = {6, 5, 12}, symbol_multiple[SYMBOLS] = {1, 1, 4};

struct random {
    uint64_t state;
};
static int pick(struct random *r, int n)
{
    r->state = tn_hash_u64(r->state + 0x9e3779b97f4a7c15u);
    return (int)(r->state % (uint64_t)n);
}

/* An expression as text and, at one point, its value; the divisors are positive. */
static void random_text(struct random *r, tn_text *text, int depth)
{
    static const char *const call[] = {"floordiv", "ceildiv", "mod", "min", "max"};
    if (depth == 0 || pick(r, 6) == 0) {
        if (pick(r, 2))
            tn_text_add(text, "%s", symbol_name[pick(r, SYMBOLS)]);
        else
            tn_text_add(text, "%d", pick(r, 9) - 3);
        return;
    }
    int kind = pick(r, 9);
    if (kind < 4) {
        tn_text_add(text, "(");
        random_text(r, text, depth - 1);
        tn_text_add(text, kind < 2 ? " + " : kind == 2 ? " - " : " * ");
        random_text(r, text, depth - 1);
        tn_text_add(text, ")");
        return;
    }
    tn_text_add(text, "%s(", call[kind - 4]);
    random_text(r, text, depth - 1);
    tn_text_add(text, ", ");
    if (kind >= 7)
        random_text(r, text, depth - 1);
    else if (pick(r, 4) == 0)
        tn_text_add(text, "y");
    else
        tn_text_add(text, "%d", 1 + pick(r, 8));
    tn_text_add(text, ")");
}

/* Evaluates the text itself, independently of src/graph. */
struct evaluator {
    const char *at;
    const int64_t *value;
};

static int64_t eval_text(struct evaluator *e)
{
    if (*e->at == '(') {
        e->at++;
        int64_t a = eval_text(e);
        char op = e->at[1];
        e->at += 3;
        int64_t b = eval_text(e);
        e->at++;
        return op == '+' ? a + b : op == '-' ? a - b : a * b;
    }
    if (*e->at == '-' || (*e->at >= '0' && *e->at <= '9')) {
        char *stop;
        int64_t v = strtoll(e->at, &stop, 10);
        e->at = stop;
        return v;
    }
    char kind = e->at[0], second = e->at[1];
    if (second != 'l' && second != 'e' && second != 'o' && second != 'i' && second != 'a') {
        e->at++;
        return e->value[kind - 'x'];
    }
    while (*e->at++ != '(')
        ;
    int64_t a = eval_text(e);
    e->at += 2;
    int64_t b = eval_text(e);
    e->at++;
    if (kind == 'f')
        return tn_floordiv(a, b);
    if (kind == 'c')
        return tn_ceildiv(a, b);
    if (second == 'o')
        return a - tn_floordiv(a, b) * b;
    return second == 'i' ? tn_min(a, b) : tn_max(a, b);
}

static bool look_up(void *context, const char *symbol, int64_t *value)
{
    *value = ((const int64_t *)context)[symbol[0] - 'x'];
    return true;
}

static void check_point(tn_session *s, const char *text, tn_dim d, int64_t *value)
{
    int64_t got, want = eval_text(&(struct evaluator){text, value});
    if (!tn_dim_eval(d, look_up, value, &got) || got != want)
        fail_msg("%s: normal form %s gives %lld, expected %lld at x=%lld y=%lld z=%lld", text, show(s, d), (long long)got,
                 (long long)want, (long long)value[0], (long long)value[1], (long long)value[2]);
    if (want < d->lo || want > d->hi || (d->multiple == 0 ? want != 0 : want % d->multiple != 0))
        fail_msg("%s: value %lld outside [%lld, %lld] multiple %lld", text, (long long)want, (long long)d->lo, (long long)d->hi,
                 (long long)d->multiple);
}

static void each_point(void (*visit)(void *context, int64_t *value), void *context)
{
    int64_t v[SYMBOLS];
    for (v[0] = symbol_lo[0]; v[0] <= symbol_hi[0]; v[0] += symbol_multiple[0])
        for (v[1] = symbol_lo[1]; v[1] <= symbol_hi[1]; v[1] += symbol_multiple[1])
            for (v[2] = symbol_lo[2]; v[2] <= symbol_hi[2]; v[2] += symbol_multiple[2])
                visit(context, v);
}

struct sample {
    tn_session *session;
    const char *text[2];
    tn_dim dim[2];
    bool le, eq, ne;
};

static void visit_point(void *context, int64_t *value)
{
    struct sample *p = context;
    int64_t v[2];
    for (int i = 0; i < 2; i++) {
        check_point(p->session, p->text[i], p->dim[i], value);
        assert_true(tn_dim_eval(p->dim[i], look_up, value, &v[i]));
    }
    if ((p->le && v[0] > v[1]) || (p->eq && v[0] != v[1]) || (p->ne && v[0] == v[1]))
        fail_msg("%s against %s: proved le %d eq %d ne %d, but values are %lld and %lld", p->text[0], p->text[1], p->le, p->eq, p->ne,
                 (long long)v[0], (long long)v[1]);
}

static tn_dim same_symbol(void *context, tn_dim symbol)
{
    (void)context;
    return symbol;
}

static void check_sample(struct sample *p)
{
    tn_session *s = p->session;
    for (int i = 0; i < 2; i++) {
        p->dim[i] = read(s, p->text[i]);
        const char *normal = show(s, p->dim[i]);
        if (read(s, normal) != p->dim[i])
            fail_msg("%s: %s reads back as %s", p->text[i], normal, show(s, read(s, normal)));
        tn_dim again = tn_dim_subst(s, p->dim[i], same_symbol, NULL);
        if (again != p->dim[i])
            fail_msg("%s: a second run turns %s into %s", p->text[i], normal, show(s, again));
    }
    p->le = tn_dim_le(s, p->dim[0], p->dim[1]);
    p->eq = tn_dim_eq(s, p->dim[0], p->dim[1]);
    p->ne = tn_dim_ne(s, p->dim[0], p->dim[1]);
    each_point(visit_point, p);
}

static void test_random(void **state)
{
    (void)state;
    struct random r = {1};
    for (int round = 0; round < 100; round++) {
        tn_session *s = new_test_session();
        for (int i = 0; i < SYMBOLS; i++)
            tn_dim_declare(s, symbol_name[i], symbol_lo[i], symbol_hi[i], symbol_multiple[i]);
        for (int i = 0; i < 50; i++) {
            struct sample p = {.session = s};
            for (int k = 0; k < 2; k++) {
                tn_text text = {.arena = &s->arena};
                random_text(&r, &text, 3);
                p.text[k] = text.at;
            }
            check_sample(&p);
        }
        assert_int_equal(s->errors, 0);
        free_test_session(s);
    }
}

/* Expressions that grow without bound end in an error, not in exhaustion. */
static void test_limits(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_dim d = tn_dim_symbol(s, "s");
    for (int i = 0; i < 200; i++)
        d = tn_dim_mul(s, tn_dim_add(s, d, tn_dim_symbol(s, "t")), tn_dim_add(s, d, tn_dim_const(s, 1)));
    assert_true(s->errors > 0);
    free_test_session(s);
    s = new_test_session();
    d = tn_dim_symbol(s, "s");
    for (int i = 0; i < 100000; i++)
        d = tn_dim_floordiv(s, tn_dim_add(s, tn_dim_mul(s, d, d), tn_dim_const(s, 1)), tn_dim_const(s, 3));
    assert_true(s->errors > 0);
    free_test_session(s);
    s = new_test_session();
    tn_dim_floordiv(s, tn_dim_symbol(s, "s"), tn_dim_const(s, 0));
    assert_int_equal(s->errors, 1);
    tn_dim unread;
    assert_int_equal(tn_dim_parse(s, "99999999999999999999", &unread), 0);
    assert_int_equal(tn_dim_parse(s, "floordiv(s, 0)", &unread), 0);
    assert_int_equal(tn_dim_parse(s, "s + ", &unread), 0);
    char deep[4000];
    memset(deep, '(', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(tn_dim_parse(s, deep, &unread), 0);
    memset(deep, '-', sizeof deep - 1);
    assert_int_equal(tn_dim_parse(s, deep, &unread), 0);
    free_test_session(s);
}

static void test_symbols(void **state)
{
    (void)state;
    tn_session *s = new_test_session();
    tn_dim d = tn_dim_declare(s, "b", 1, 60, 8);
    assert_int_equal(d->lo, 8);
    assert_int_equal(d->hi, 56);
    assert_ptr_equal(tn_dim_declare(s, "b", 1, 60, 8), d);
    assert_int_equal(s->errors, 0);
    tn_dim_declare(s, "b", 0, 60, 8);
    assert_int_equal(s->errors, 1);
    assert_string_equal(tn_dim_fresh(s, "n", 0, 4)->name, "n");
    assert_string_equal(tn_dim_fresh(s, "n", 0, 4)->name, "n_1");
    free_test_session(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_normal_forms), cmocka_unit_test(test_proofs),
                                       cmocka_unit_test(test_random), cmocka_unit_test(test_limits), cmocka_unit_test(test_symbols)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
