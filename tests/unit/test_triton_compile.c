/* Statements, expressions and functions of kernels: what they compute, and what is said of kernels that are wrong. */
#include "triton_test.h"

/* ---- kernels that compute integers ----------------------------------------------------------------------------------- */

enum { OUT = 16 };

/* k(out, n, m): 16 integers, 0 at the start; n = 5, m = -3. head: text before the kernel. */
static void expect_ints_of(const char *head, const char *body, const int32_t *expected, int count)
{
    int32_t out[OUT] = {0};
    tn_session *session = new_test_session();
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "import triton\nimport triton.language as tl\n%s@triton.jit\ndef k(out, n, m):\n%s", head, body);
    const given arguments[] = {ARRAY("*i32", out), {"i32", NULL, 0, 5}, {"i32", NULL, 0, -3}};
    if (run_triton(session, text.at, (const int64_t[3]){1, 1, 1}, arguments, 3) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text.at);
    }
    for (int i = 0; i < OUT; i++)
        if (out[i] != (i < count ? expected[i] : 0))
            fail_msg("%s\nelement %d is %d, expected %d", text.at, i, out[i], i < count ? expected[i] : 0);
    free_test_session(session);
}
#define INTS(head, body, ...) expect_ints_of((head), (body), (const int32_t[]){__VA_ARGS__}, (int)TN_COUNT(((const int32_t[]){__VA_ARGS__})))

/* ---- constants ------------------------------------------------------------------------------------------------------- */

static void python_arithmetic(void **state)
{
    (void)state;
    static const char *const truths[] = {
        "7 // -2 == -4", "-7 // 2 == -4", "-7 // -2 == 3", "7 % -3 == -2", "-7 % 3 == 2", "6 % -3 == 0", "7 / 2 == 3.5", "2 ** 10 == 1024", "2 ** -1 == 0.5",
        "2 ** 0 == 1", "(-2) ** 3 == -8", "1 << 100 == 2 ** 100", "(1 << 100) >> 98 == 4", "-1 >> 200 == -1", "-5 >> 1 == -3", "~5 == -6", "~True == -2",
        "(5 & 3, 5 | 3, 5 ^ 3) == (1, 7, 6)", "True & False is False", "(True | 2) == 3", "7.5 // 2 == 3.0", "-7.5 // 2 == -4.0", "-7.5 % 2 == 0.5", "7.5 % -2 == -0.5",
        "1 == 1.0", "1 is not True", "True == 1", "not 0", "not ''", "not ()", "not None", "bool((0,))", "1 < 2 < 3", "not (1 < 3 < 2)", "'a' < 'b'", "'ab' > 'a'",
        "(1, 2) < (1, 3)", "(1,) < (1, 2)", "'a' + 'b' == 'ab'", "'ab' * 2 == 'abab'", "(1, 2) + (3,) == (1, 2, 3)", "(0,) * 3 == (0, 0, 0)", "2 * (1, 2) == (1, 2, 1, 2)",
        "(1, 2) * -1 == ()", "2 in (1, 2)", "3 not in (1, 2)", "'b' in 'abc'", "'a' in {'a': 1}", "None is None", "None == None", "1 != None", "'x' != 1", "None is not 0",
        "tl.float32 == tl.float32", "tl.float32 != tl.float16", "tl.float32 in (tl.float16, tl.float32)", "min(3, 1, 2) == 1", "max((3, 1, 2)) == 3", "max(1, 2.5) == 2.5",
        "abs(-3) == 3", "abs(-2.5) == 2.5", "int(3.9) == 3", "int(-3.9) == -3", "int('12') == 12", "float('inf') > 1e308", "float('-inf') < -1e308",
        "float('nan') != float('nan')", "float(' 2.5 ') == 2.5", "float(2) == 2.0", "str(1.0) == '1.0'", "str(True) == 'True'", "str(2 ** 100) == '1267650600228229401496703205376'",
        "str(('a', 1, None)) == \"('a', 1, None)\"", "str((1,)) == '(1,)'", "str(1e30) == '1e+30'", "len((1, 2)) == 2", "len('abc') == 3", "len(range(0, 10, 3)) == 4",
        "tuple(range(3)) == (0, 1, 2)", "tuple(range(5, 0, -2)) == (5, 3, 1)", "list('ab') == ('a', 'b')", "(1, 2, 3)[-1] == 3", "(1, 2, 3, 4)[1:3] == (2, 3)",
        "(1, 2, 3, 4)[::-1] == (4, 3, 2, 1)", "(1, 2, 3)[5:] == ()", "(1, 2, 3)[:-1] == (1, 2)", "'abc'[1] == 'b'", "'abcd'[::2] == 'ac'", "{'a': 1, 'b': 2}['b'] == 2",
        "(1 if 0 else 2) == 2", "(0 or 5) == 5", "(3 and 4) == 4", "(0 and 1 // 0) == 0", "(1 or 1 // 0) == 1", "f'{1 + 1}x{True}' == '2xTrue'", "[i * i for i in range(4) if i % 2 == 1] == (1, 9)",
        "[(i, j) for i in (1, 2) for j in (3, 4)] == ((1, 3), (1, 4), (2, 3), (2, 4))", "[*(1, 2), 3] == (1, 2, 3)", "triton.cdiv(7, 2) == 4", "triton.next_power_of_2(17) == 32",
        "triton.next_power_of_2(1) == 1", "isinstance(1, int)", "isinstance(True, int)", "not isinstance(1, (float, str))", "isinstance((1,), tuple)", "isinstance(1, tl.constexpr)",
        "tl.constexpr(3).value == 3", "str(tl.float32) == 'fp32'", "(5).value == 5", "tl.float16.primitive_bitwidth == 16", "tl.cdiv(7, 2) == 4", "hasattr(tl.float32, 'name')", "not hasattr(tl.float32, 'nothing')",
        "getattr(tl.float32, 'primitive_bitwidth') == 32", "getattr(tl.float32, 'nothing', 7) == 7", "tl.constexpr is not None", "-2 ** 2 == -4", "0x10 == 16", "1_000 == 1000",
        "9223372036854775807 + 1 == 9223372036854775808",
    };
    for (size_t i = 0; i < TN_COUNT(truths); i++) {
        tn_session *session = new_test_session();
        tn_triton_kernel kernel;
        char *text = tn_format(&session->arena, KERNEL("") "    tl.static_assert(%s)\n", truths[i]);
        if (compile_triton(session, text, NULL, 0, false, &kernel) != TN_OK) {
            tn_print_diags(session, stderr);
            fail_msg("%s", truths[i]);
        }
        free_test_session(session);
    }
}

static void constants_that_fail(void **state)
{
    (void)state;
    static const struct {
        const char *expression, *message;
    } wrong[] = {
        {"1 // 0", "division of constexpr 1 by zero"},
        {"1 % 0", "division of constexpr 1 by zero"},
        {"1.0 / 0", "division of constexpr 1.0 by zero"},
        {"1 << 200", "constexpr 1 << constexpr 200 is an integer of more than 128 bits"},
        {"2 ** 127", "more than 128 bits"},
        {"1 << -1", "<< by a negative number"},
        {"0 ** -1", "0 to a negative power"},
        {"1.5 & 2", "& takes integers"},
        {"1.0 << 1", "<< takes integers, found constexpr 1.0 and constexpr 1"},
        {"0 + 'a'", "+ does not work on constexpr 0 and constexpr 'a'"},
        {"'a' < 1", "< does not order constexpr 'a' and constexpr 1"},
        {"None + 1", "+ does not work on None and constexpr 1"},
        {"-'a'", "unary - does not work on constexpr 'a'"},
        {"~1.5", "unary ~ does not work on constexpr 1.5"},
        {"1 in 2", "`in` looks into tuples"},
        {"(1, 2)[2]", "index 2 of a tuple of 2"},
        {"(1, 2)['a']", "the index of a tuple must be an integer, found constexpr 'a'"},
        {"{'a': 1}['b']", "there is no 'b' in this dict"},
        {"int('x')", "int(…) of constexpr 'x'"},
        {"float('0x10')", "float(…) of constexpr '0x10'"},
        {"'a' * 100000", "more than 65536 elements"},
        {"len(5)", "len(…) is of tuples and strings"},
        {"min(1)", "min needs two values"},
        {"(1)(2)", "constexpr 1 is not a function"},
        {"(1).nothing", "has no attribute 'nothing'"},
        {"None.x", "None has no attribute 'x'"},
        {"f'{n}'", "a string is made when the kernel is compiled, and int32 is known only when it runs"},
        {"int(n)", "int(…) of int32, which is known only when the kernel runs; x.to(tl.int32) converts it"},
        {"...", "`...` is not part of the kernel language"},
        {"tl.float32(n, n)", "the type fp32 converts one value"},
        {"isinstance(n, 5)", "isinstance knows int"},
    };
    for (size_t i = 0; i < TN_COUNT(wrong); i++) {
        tn_session *session = new_test_session();
        char *text = tn_format(&session->arena, KERNEL("n") "    x: tl.constexpr = %s\n", wrong[i].expression);
        must_fail(text, (const given[]){{"i32", NULL, 0, 0}}, 1, wrong[i].message);
        free_test_session(session);
    }
}

/* ---- names and branches ---------------------------------------------------------------------------------------------- */

static void assignments(void **state)
{
    (void)state;
    INTS("", "    a, (b, c) = n, (m, 7)\n"
             "    x = y = a + b\n"
             "    x += 10\n"
             "    y *= 2\n"
             "    a, b = b, a\n"
             "    t = (1, 2, 3)\n"
             "    t[1] = n\n"
             "    t[-1] += 40\n"
             "    K: tl.constexpr = 4\n"
             "    z: tl.float32 = n // 2\n" /* the annotation says nothing, as in Triton */
             "    tl.static_assert(z.dtype == tl.int32)\n"
             "    h = 3\n"
             "    tl.static_assert(h.dtype == tl.int32)\n"
             "    tl.store(out + tl.arange(0, K), K)\n"
             "    tl.store(out, x)\n    tl.store(out + 1, y)\n    tl.store(out + 2, a)\n    tl.store(out + 3, b)\n    tl.store(out + 4, c)\n"
             "    tl.store(out + 5, t[0])\n    tl.store(out + 6, t[1])\n    tl.store(out + 7, t[2])\n    tl.store(out + 8, z)\n    'a comment'; pass\n",
         12, 4, -3, 5, 7, 1, 5, 43, 2);
}

static void branches(void **state)
{
    (void)state;
    INTS("", "    if n > 3:\n        a = 1\n    else:\n        a = 2\n"
             "    b = 10\n    if m > 0:\n        b = 20\n"
             "    if n == 4:\n        c = 1\n    elif n == 5:\n        c = 2\n    else:\n        c = 3\n"
             "    d = n\n    e = m\n    if n:\n        d, e = e, d\n"
             "    if True:\n        f = 8\n    if None:\n        f = 'never'\n"
             "    tl.store(out, a)\n    tl.store(out + 1, b)\n    tl.store(out + 2, c)\n    tl.store(out + 3, d)\n    tl.store(out + 4, e)\n    tl.store(out + 5, f)\n"
             "    if n > 100:\n        tl.store(out + 6, 1)\n    else:\n        if m < 0:\n            tl.store(out + 7, 1)\n",
         1, 10, 2, -3, 5, 8, 0, 1);
}

static void choices(void **state)
{
    (void)state;
    INTS("", "    tl.store(out, n if n > m else m)\n"
             "    tl.store(out + 1, tl.load(out + 100000000) if n < 0 else 3)\n" /* the other side is not run */
             "    tl.store(out + 2, (n > 0) and (m > 0))\n"
             "    tl.store(out + 3, (n > 0) or (m > 0))\n"
             "    tl.store(out + 4, not n)\n"
             "    tl.store(out + 5, False or n)\n"
             "    tl.store(out + 6, n < 6 < 7)\n"
             "    x = tl.arange(0, 4)\n"
             "    tl.store(out + 8 + x, (x > 0) and (x < 3))\n"
             "    tl.store(out + 7, m is None)\n"
             "    tl.store(out + 12 + x, x if m < 0 else x * 2)\n",
         5, 3, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 2, 3);
}

/* ---- loops ----------------------------------------------------------------------------------------------------------- */

static void loops(void **state)
{
    (void)state;
    INTS("", "    s = 0\n    for i in range(n):\n        s += i\n"
             "    t = 0\n    for i in range(10, 0, -3):\n        t = t * 10 + i\n"           /* 10 7 4 1 */
             "    u = 1\n    while u < 100:\n        u *= 3\n"
             "    v = 0\n    for i in tl.range(1, n, 2, num_stages=2):\n        for j in range(i):\n            v += j + i\n"
             "    w = 0\n    for i in range(n, m, -2):\n        w += 1\n"
             "    p = 0\n    q = 1\n    for i in range(7):\n        p, q = q, p + q\n"     /* Fibonacci */
             "    r = 0\n    for i in range(5, 5):\n        r = 1\n"
             "    x = n\n    y = n\n    for i in range(3):\n        x = y\n        y = y + 1\n" /* the same value at the start, not in the loop */
             "    tl.store(out, s)\n    tl.store(out + 1, t)\n    tl.store(out + 2, u)\n    tl.store(out + 3, v)\n    tl.store(out + 4, w)\n    tl.store(out + 5, p)\n"
             "    tl.store(out + 6, q)\n    tl.store(out + 7, r)\n    tl.store(out + 8, x)\n    tl.store(out + 9, y)\n",
         10, 10741, 243, 13, 4, 13, 21, 0, 7, 8);
}

static void loops_of_wide_and_unsigned_indices(void **state)
{
    (void)state;
    INTS("", "    for i in range(n):\n        tl.static_assert(i.dtype == tl.int32)\n"
             "    for i in range(n.to(tl.int64)):\n        tl.static_assert(i.dtype == tl.int64)\n"
             "    for i in range(0, n.to(tl.uint32)):\n        tl.static_assert(i.dtype == tl.uint32)\n"
             "    for i in range(0, 5000000000, 2500000000):\n        tl.static_assert(i.dtype == tl.int64)\n        tl.store(out + (i // 2500000000), 1)\n"
             "    big = (n.to(tl.uint32) * 0) - 2\n"                       /* 4294967294, which a signed index would not reach */
             "    for i in range(big - 1, big):\n        tl.store(out + 2, (i >> 1).to(tl.int32))\n"
             "    for i in range(3, -1, -1):\n        tl.store(out + 4 + i, i)\n",
         1, 1, 2147483646, 0, 0, 1, 2, 3);
}

static void unrolled_loops(void **state)
{
    (void)state;
    INTS("", "    s = 0\n"
             "    for i in tl.static_range(4):\n        K: tl.constexpr = i * 2\n        s += tl.sum(tl.full((2 ** i,), K, tl.int32), 0)\n"  /* 0 4 16 48 */
             "    for i in tl.static_range(3, 0, -1):\n        tl.store(out + 1 + i, i)\n"
             "    for name, value in (('a', 7), ('b', 8)):\n        if name == 'b':\n            tl.store(out + 5, value)\n"
             "    for i in tl.static_range(0):\n        nothing\n"
             "    tl.store(out, s)\n",
         68, 0, 1, 2, 3, 8);
}

static void loops_in_loops(void **state)
{
    (void)state;
    /* sixteen loops within each other, each carrying what all others do: must take no time */
    tn_session *session = new_test_session();
    tn_text body = {.arena = &session->arena};
    tn_text_add(&body, "    s = 0\n    t = n\n");
    for (int i = 0; i < 16; i++)
        tn_text_add(&body, "%*sfor i%d in range(%d):\n%*ss += 1\n%*sif s > 3:\n%*st = s\n", 4 * (i + 1), "", i, i < 3 ? 2 : 1, 4 * (i + 2), "", 4 * (i + 2), "", 4 * (i + 3), "");
    tn_text_add(&body, "    tl.store(out, s)\n    tl.store(out + 1, t)\n");
    INTS("", body.at, 118, 118);
    free_test_session(session);
}

static void aggregates_in_loops(void **state)
{
    (void)state;
    /* what a block pointer does not change is not carried */
    static const char text[] = KERNEL("x, out, n")
        "    p = tl.make_block_ptr(x, (n,), (1,), (0,), (4,), (0,))\n"
        "    pair = (tl.zeros((4,), tl.int32), 'add', n)\n"
        "    for i in range(0, n, 4):\n"
        "        v = tl.load(p, boundary_check=(0,), padding_option='zero')\n"
        "        pair = (pair[0] + v, pair[1], pair[2] + 1)\n"
        "        p = tl.advance(p, (4,))\n"
        "    tl.store(out + tl.arange(0, 4), pair[0])\n"
        "    tl.store(out + 4, pair[2])\n";
    int32_t x[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, out[5] = {0};
    const given arguments[] = {ARRAY("*i32", x), ARRAY("*i32", out), {"i32", NULL, 0, 10}};
    must_run(text, (const int64_t[3]){1, 1, 1}, arguments, 3);
    assert_memory_equal(out, ((const int32_t[]){15, 18, 10, 12, 13}), sizeof out);
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    assert_int_equal(compile_triton(session, text, arguments, 3, false, &kernel), TN_OK);
    const tn_top *op = kernel.kernel->body->first;
    while (op->code != TN_T_for)
        op = op->next;
    assert_int_equal(op->nresults, 3); /* the sum, the count, the offset */
    free_test_session(session);
}

static void constants_in_loops(void **state)
{
    (void)state;
    /* a function called with numbers: what its loop changes becomes a tensor, what it does not stays a constant */
    INTS("@triton.jit\ndef f(count, start, step):\n"
         "    s = start\n    while count > 0:\n        s += tl.sum(tl.full((step,), 1, tl.int32), 0)\n        count -= 1\n    return s\n",
         "    tl.store(out, f(3, 0, 4))\n    tl.store(out + 1, f(n, 1, 2))\n    tl.store(out + 2, f(0, 7, 1))\n", 12, 11, 7);
}

static void aggregates_in_branches(void **state)
{
    (void)state;
    int32_t x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out[8] = {0};
    must_run(KERNEL("x, out, n")
        "    p = tl.make_block_ptr(x, (12,), (1,), (0,), (4,), (0,))\n"
        "    d = tl.make_tensor_descriptor(x, (12,), (1,), (4,))\n"
        "    q = x\n    t = (n, 'a')\n"
        "    if n > 3:\n        p = tl.advance(p, (4,))\n        d = tl.make_tensor_descriptor(x + 8, (3,), (1,), (4,))\n        q += 7\n        t = (n + 1, 'a')\n"
        "    tl.store(out + tl.arange(0, 4), tl.load(p) + d.load([0]))\n"
        "    tl.store(out + 4, tl.load(q))\n    tl.store(out + 5, t[0])\n    tl.static_assert(t[1] == 'a')\n"
        "    while tl.load(q) < 11:\n        q += 1\n"
        "    tl.store(out + 6, tl.load(q))\n    tl.store(out + 7, tl.load(q + 1 if n < 3 else x))\n",
        (const int64_t[3]){1, 1, 1}, (const given[]){ARRAY("*i32", x), ARRAY("*i32", out), {"i32", NULL, 0, 5}}, 3);
    assert_memory_equal(out, ((const int32_t[]){14, 16, 18, 8, 8, 6, 11, 1}), sizeof out);
}

/* What is printed while a kernel is compiled is printed once, though loops and branches are compiled until they fit. */
static void static_prints(void **state)
{
    (void)state;
    static const char text[] = KERNEL("n")
        "    s = 0\n    for i in range(n):\n        for j in range(i):\n            s += j\n            tl.static_print('loop', s.dtype)\n"
        "    if n > 0:\n        tl.static_print('branch')\n        if n > 3:\n            return\n        s = 1\n    tl.device_print('s', s)\n";
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    assert_int_equal(compile_triton(session, text, (const given[]){{"i32", NULL, 0, 0}}, 1, false, &kernel), TN_OK);
    assert_int_equal(session->diags.len, 2);
    assert_string_equal(session->diags.at[0].message, "loop int32");
    assert_string_equal(session->diags.at[1].message, "branch");
    free_test_session(session);
}

static void limits(void **state)
{
    (void)state;
    const given arguments[] = {{"i32", NULL, 0, 0}};
    for (int way = 0; way < 2; way++) {
        tn_session *session = new_test_session();
        tn_text text = {.arena = &session->arena};
        tn_text_add(&text, KERNEL("n") "    x = (");
        for (int i = 0; i < 65; i++)
            tn_text_add(&text, "%d, ", i);
        tn_text_add(&text, way ? ")\n    for i in range(n):\n        x = (" : ")\n    if n > 0:\n        tl.device_print('n', n)\n        x = (");
        for (int i = 0; i < 65; i++)
            tn_text_add(&text, "x[%d] + 1, ", i);
        tn_text_add(&text, ")\n");
        must_fail(text.at, arguments, 1, way ? "this loop carries 65 values from one iteration to the next, 64 is the most" : "this branch gives 65 values, 64 is the most");
        free_test_session(session);
    }
    must_fail(KERNEL("n") "    for i in tl.static_range(300):\n        if n == i:\n            return\n", arguments, 1, "more than 200 branches and loops within each other");
}

/* ---- functions ------------------------------------------------------------------------------------------------------- */

static void calls(void **state)
{
    (void)state;
    INTS("@triton.jit\ndef add(a, b=2, *rest, scale: tl.constexpr = 1):\n"
         "    s = a + b\n    for r in rest:\n        s += r\n    return s * scale, len(rest)\n"
         "@triton.jit\ndef apply(f, x):\n    return f(x)\n"
         "@triton.jit\ndef double(x):\n    return x * 2\n"
         "@triton.jit\ndef nothing(x):\n    tl.store(x, 9)\n"
         "twice = double\nBIG = tl.constexpr(100)\nOTHER: tl.constexpr = BIG.value + 1\nELEMENT = tl.int32\n",
         "    a, k = add(n)\n    b, _ = add(n, 1, 2, 3, scale=10)\n    c, d = add(b=n, a=m)\n    e, g = add(*(n, 1), **{'scale': 3})\n"
         "    tl.store(out, a)\n    tl.store(out + 1, b)\n    tl.store(out + 2, c)\n    tl.store(out + 3, e)\n    tl.store(out + 4, apply(double, n))\n"
         "    tl.store(out + 5, apply(twice, m))\n    tl.store(out + 6, BIG + OTHER)\n    nothing(out + 7)\n    tl.static_assert(nothing(out + 7) is None)\n"
         "    tl.store(out + 8, tl.full((1,), 3, ELEMENT).sum(0))\n    tl.store(out + 9, n.to(tl.float32).to(tl.int32))\n    tl.store(out + 10, tl.int32(2.0))\n",
         7, 110, 2, 18, 10, -6, 201, 9, 3, 5, 2);
}

static void early_returns(void **state)
{
    (void)state;
    static const char head[] = "@triton.jit\ndef sign(x):\n    if x > 0:\n        return 1\n    if x < 0:\n        return -1\n    return 0\n"
                               "@triton.jit\ndef nested(x, y):\n    r = 100\n    if x > 0:\n        if y > 0:\n            return 1\n        r = 200\n    r += 5\n    return r\n"
                               "@triton.jit\ndef unrolled(x):\n    for i in tl.static_range(4):\n        if x == i:\n            return i * 10\n    return -1\n"
                               "@triton.jit\ndef known(K: tl.constexpr):\n    if K:\n        return tl.arange(0, 4)\n    return tl.arange(0, 8)\n"
                               "@triton.jit\ndef pair(x):\n    if x > 0:\n        return x, 1\n    else:\n        return -x, 2\n"
                               "@triton.jit\ndef stores(x, p):\n    if x < 0:\n        return\n    tl.store(p, x)\n";
    INTS(head, "    tl.store(out, sign(n))\n    tl.store(out + 1, sign(m))\n    tl.store(out + 2, sign(n - 5))\n    tl.store(out + 3, nested(n, n))\n"
               "    tl.store(out + 4, nested(n, m))\n    tl.store(out + 5, nested(m, n))\n    tl.store(out + 6, unrolled(n - 3))\n    tl.store(out + 7, unrolled(n))\n"
               "    tl.static_assert(known(True).shape[0] == 4 and known(False).shape[0] == 8)\n    a, b = pair(m)\n    tl.store(out + 8, a)\n    tl.store(out + 9, b)\n"
               "    for i in range(2):\n        tl.store(out + 10 + i, sign(m) * i)\n    stores(n, out + 12)\n    stores(m, out + 13)\n"
               "    if n > 100:\n        return\n    tl.store(out + 14, 1)\n    if n > 3:\n        return\n    tl.store(out + 15, 1)\n",
         1, -1, 0, 1, 205, 105, 20, -1, 3, 2, 0, -1, 5, 0, 1, 0);
}

static void combine_functions(void **state)
{
    (void)state;
    INTS("@triton.jit\ndef larger(a, b):\n    if a > b:\n        r = a\n    else:\n        r = b\n    return r\n"
         "@triton.jit\ndef nearer(a, i, b, j):\n    if a < b:\n        return a, i\n    return b, j\n"
         "@triton.jit\ndef clipped(a, b):\n    return a + b if a + b < 5 else 5\n",
         "    x = tl.arange(0, 8)\n    y = (x - 3) * (x - 3)\n    tl.store(out, tl.reduce(y, 0, larger))\n    v, i = tl.reduce((y, x), 0, nearer)\n"
         "    tl.store(out + 1, v)\n    tl.store(out + 2, i)\n    tl.store(out + 4 + x, tl.associative_scan(x, 0, clipped))\n",
         16, 0, 3, 0, 0, 1, 3, 5, 5, 5, 5, 5);
}

/* ---- what is around kernels ------------------------------------------------------------------------------------------ */

static const char tuned[] = "import triton\nimport triton.language as tl\nSIZES = [16, 32]\n"
                            "def host():\n    return 1\n"
                            "@triton.autotune(configs=[triton.Config({'BLOCK': b, 'MODE': 'a'}, num_warps=w) for b in SIZES for w in (2, 4)] + [triton.Config(kwargs=dict_of)], key=['n'])\n"
                            "@triton.heuristics({'EVEN': lambda args: args['n'] % args['BLOCK'] == 0, 'HALF': lambda args: args['BLOCK'] // 2})\n"
                            "@triton.jit(do_not_specialize=['m'])\n"
                            "def k(x, n, m, o: tl.float16, BLOCK: tl.constexpr, MODE: tl.constexpr, EVEN: tl.constexpr, HALF: tl.constexpr, num_warps: tl.constexpr, LAST: tl.constexpr = 7):\n"
                            "    tl.store(x, BLOCK)\n    tl.store(x + 1, HALF)\n    tl.store(x + 2, num_warps)\n    tl.store(x + 3, LAST)\n    tl.store(x + 4, MODE == 'a')\n    tl.store(x + 5, EVEN)\n"
                            "dict_of = {'BLOCK': 8, 'MODE': 'b'}\n";

static void configurations(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_triton_module *module = tn_triton_module_new(session);
    int unit;
    size_t n;
    const tn_triton_parameter *p;
    assert_int_equal(tn_triton_add(module, "t.py", 1, tuned, strlen(tuned), &unit), TN_OK);
    assert_int_equal(tn_triton_configs(module, unit, "k", &n), TN_OK);
    assert_int_equal(n, 5);
    assert_string_equal(tn_triton_config(module, unit, "k", 1), "BLOCK=16 MODE='a' num_warps=4");
    assert_string_equal(tn_triton_config(module, unit, "k", 4), "BLOCK=8 MODE='b'");
    assert_null(tn_triton_config(module, unit, "k", 5));
    assert_int_equal(tn_triton_parameters(module, unit, "k", &p, &n), TN_OK);
    assert_int_equal(n, 10);
    assert_true(!p[0].constexpr && !p[0].optional && !p[1].do_not_specialize && p[2].do_not_specialize);
    assert_string_equal(p[3].type, "f16");
    assert_true(p[4].constexpr && p[4].optional && p[5].optional && p[6].optional && p[7].optional && p[9].optional && !p[4].type);
    const char *arguments[10] = {"*i32", "=64", "i32", "f16"};
    for (int config = 1; config <= 2; config++) {
        tn_triton_kernel kernel;
        const tn_triton_options options = {.config = config, .num_warps = config == 2 ? 16 : 0};
        int32_t out[6] = {0};
        assert_int_equal(tn_triton_compile(module, unit, "k", arguments, 10, &options, &kernel), TN_OK);
        assert_int_equal(kernel.num_warps, config == 2 ? 16 : 4);
        assert_int_equal(kernel.num_stages, 3);
        assert_int_equal(kernel.nvalues, 3);
        assert_string_equal(kernel.value[1].name, "m");
        assert_true(kernel.value[0].buffer == 0 && kernel.value[1].buffer == -1 && kernel.value[1].scalar == 1 && kernel.value[2].type.dtype == TN_F16);
        const given run[] = {ARRAY("*i32", out), {"i32", NULL, 0, 0}, {"f16", NULL, 0, 0}};
        launch l = {&kernel, run, (const int64_t[3]){1, 1, 1}};
        assert_int_equal(tn_tile_interpret(kernel.kernel, (tn_tile_arg[]){{out, 6}}, launch_value, &l), TN_OK);
        assert_memory_equal(out, ((const int32_t[]){config == 2 ? 32 : 16, config == 2 ? 16 : 8, config == 2 ? 16 : 4, 7, 1, 1}), sizeof out);
    }
    arguments[1] = "i32:16"; /* the heuristic needs its value */
    tn_triton_kernel kernel;
    assert_int_equal(tn_triton_compile(module, unit, "k", arguments, 10, NULL, &kernel), TN_INVALID);
    const tn_diag *d = session->diags.at;
    while (d->severity != TN_ERROR)
        d++;
    assert_non_null(strstr(d->message, "argument 'n' is known only when the kernel runs"));
    assert_non_null(strstr(d->message, "--const n="));
    assert_true(d->loc.line == 7 && d->loc.column == 42);
    arguments[6] = "=True"; /* but not if what it gives is given */
    assert_int_equal(tn_triton_compile(module, unit, "k", arguments, 10, NULL, &kernel), TN_OK);
    free_test_session(session);
}

static void bindings(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_triton_module *module = tn_triton_module_new(session);
    static const char main_text[] = "    @triton.jit\n    def k(out):\n        tl.store(out, helper(SIZE))\n        tl.store(out + 1, tl.full((1,), 2, KIND).sum(0))\n";
    static const char other_text[] = "@jit\ndef work(x):\n    return x + OFFSET\n";
    int a, b;
    int32_t out[2] = {0};
    tn_triton_kernel kernel;
    assert_int_equal(tn_triton_add(module, "a.py", 10, main_text, strlen(main_text), &a), TN_OK); /* a method's text: no imports */
    assert_int_equal(tn_triton_add(module, "b.py", 1, other_text, strlen(other_text), &b), TN_OK);
    assert_int_equal(tn_triton_bind(module, a, "SIZE", "2 ** 5"), TN_OK);
    assert_int_equal(tn_triton_bind(module, a, "KIND", "tl.int32"), TN_OK);
    assert_int_equal(tn_triton_bind_function(module, a, "helper", b, "work"), TN_OK);
    assert_int_equal(tn_triton_bind_function(module, a, "helper", b, "nothing"), TN_USAGE);
    assert_int_equal(tn_triton_bind(module, a, "BAD", "1 +"), TN_INVALID);
    assert_int_equal(tn_triton_bind(module, 7, "SIZE", "1"), TN_USAGE);
    const char *argument = "*i32";
    assert_int_equal(tn_triton_compile(module, a, "k", &argument, 1, NULL, &kernel), TN_INVALID);
    const tn_diag *d = &session->diags.at[session->diags.len - 2];
    assert_string_equal(d->loc.file, "b.py");
    assert_int_equal(d->loc.line, 3);
    assert_non_null(strstr(d->message, "the name 'OFFSET' is not defined"));
    assert_non_null(strstr(d[1].message, "in work, called from a.py:12:23"));
    assert_int_equal(tn_triton_bind(module, b, "OFFSET", "100"), TN_OK);
    assert_int_equal(tn_triton_compile(module, a, "k", &argument, 1, NULL, &kernel), TN_OK);
    launch l = {&kernel, NULL, (const int64_t[3]){1, 1, 1}};
    assert_int_equal(tn_tile_interpret(kernel.kernel, (tn_tile_arg[]){{out, 2}}, launch_value, &l), TN_OK);
    assert_true(out[0] == 132 && out[1] == 2);
    free_test_session(session);
}

static void imports(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "import triton\nimport triton.language as tl\n",
        "import tenon.triton as triton\nimport tenon.triton.language as tl\n",
        "from tenon import triton\nfrom triton import language as tl\n",
        "import triton.language as tl, triton\n",
        "import triton\ntl = triton.language\n",
        "",
    };
    for (size_t i = 0; i < TN_COUNT(heads); i++) {
        tn_session *session = new_test_session();
        int32_t out[1] = {0};
        char *text = tn_format(&session->arena, "%s@triton.jit\ndef k(out):\n    tl.store(out, tl.math.abs(tl.program_id(0) - 4))\n", heads[i]);
        must_run(text, (const int64_t[3]){1, 1, 1}, (const given[]){ARRAY("*i32", out)}, 1);
        assert_int_equal(out[0], 4);
        free_test_session(session);
    }
    int32_t out[2] = {0};
    must_run("from triton import jit\nfrom triton.language import store, program_id as pid, int32\nfrom triton.language.math import abs as magnitude\n"
             "from triton.language.extra.cuda import libdevice as ld\n@jit\ndef k(out):\n    store(out, magnitude(pid(axis=0) - 3).to(int32))\n    store(out + 1, ld.abs(pid(0) - 2))\n",
             (const int64_t[3]){1, 1, 1}, (const given[]){ARRAY("*i32", out)}, 1);
    assert_true(out[0] == 3 && out[1] == 2);
}

static void kernels(void **state)
{
    (void)state;
    /* which buffers are written; axes of the grid; descriptors; what is divisible */
    static const char text[] = KERNEL("a, b, c, d, table, n, K")
        "    p = b\n    for i in range(n):\n        p += 1\n"
        "    if n > 3:\n        q = c\n    else:\n        q = c + 1\n"
        "    tl.store(p, tl.load(a + tl.program_id(1)))\n    tl.atomic_add(q, 1)\n    x = table.load([0, 4])\n    tl.store(d + tl.arange(0, 4)[None, :], x)\n"
        "    tl.store(tl.load(d).to(tl.int64).to(tl.pointer_type(tl.int32)), K)\n";
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    static const char *const types[] = {"*f32", "*f32:16", "*i32", "*f16", "desc<f16[1x4]>", "i32:16", "i32=1"};
    given arguments[7];
    for (int i = 0; i < 7; i++)
        arguments[i] = (given){types[i], NULL, 0, 0};
    if (compile_triton(session, text, arguments, 7, false, &kernel) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("a kernel with a descriptor");
    }
    static const char *const names[] = {"a", "b", "c", "d", "table", "table.shape0", "table.shape1", "table.stride0", "table.stride1", "n"};
    static const int buffers[] = {0, 1, 2, 3, 4, -1, -1, -1, -1, -1};
    static const tn_buffer_mode modes[] = {TN_READ, TN_READ_WRITE, TN_READ_WRITE, TN_READ_WRITE, TN_READ};
    assert_int_equal(kernel.nvalues, TN_COUNT(names));
    for (size_t i = 0; i < TN_COUNT(names); i++) {
        assert_string_equal(kernel.value[i].name, names[i]);
        assert_int_equal(kernel.value[i].buffer, buffers[i]);
        assert_int_equal(kernel.value[i].scalar, i);
    }
    for (size_t i = 0; i < TN_COUNT(modes); i++)
        assert_int_equal(kernel.kernel->buffers.at[i].mode, modes[i]);
    assert_true(kernel.kernel->overlap);
    assert_int_equal(kernel.kernel->grid.len, 3);
    assert_string_equal(kernel.kernel->grid.at[2].limit->name, "grid_x");
    static const int64_t aligns[] = {0, 16, 0, 0, 0};
    for (size_t i = 0; i < TN_COUNT(aligns); i++)
        assert_int_equal(kernel.kernel->buffers.at[i].align, aligns[i]);
    for (size_t i = 0; i < kernel.kernel->scalars.len; i++)
        assert_int_equal(kernel.kernel->scalars.at[i]->divisor, i == 9 ? 16 : 0);
    free_test_session(session);
}

static void locations(void **state)
{
    (void)state;
    /* operations come from the user's line, those that the prelude makes too */
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    static const char text[] = KERNEL("x, y")
        "    v = tl.load(x + tl.arange(0, 8))\n"
        "    tl.store(y,\n"
        "             tl.sum(v, 0))\n";
    assert_int_equal(compile_triton(session, text, (const given[]){{"*f32", NULL, 0, 0}, {"*f32", NULL, 0, 0}}, 2, false, &kernel), TN_OK);
    int reductions = 0;
    for (const tn_top *op = kernel.kernel->body->first; op; op = op->next) {
        assert_string_equal(op->loc.file, "test.py");
        if (op->code == TN_T_reduce) {
            reductions++;
            assert_int_equal(op->loc.line, 7);
            assert_int_equal(op->loc.column, 14);
        }
    }
    assert_int_equal(reductions, 1);
    free_test_session(session);
}

/* ---- what is wrong --------------------------------------------------------------------------------------------------- */

/* Kernels k(p: pointer to f32, n: i32, C: tl.constexpr = 8) whose body starts at line 5. place: "line:column" of the first diagnostic. */
typedef struct fault {
    const char *body, *place, *message;
} fault;

static void check_fault(const char *head, const fault *f, const char *note)
{
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    char *text = tn_format(&session->arena, "import triton\nimport triton.language as tl\n%s@triton.jit\ndef k(p, n, C: tl.constexpr):\n%s", head, f->body);
    const given arguments[] = {{"*f32", NULL, 0, 0}, {"i32", NULL, 0, 0}, {"=8", NULL, 0, 0}};
    tn_status status = compile_triton(session, text, arguments, 3, true, &kernel);
    const tn_diag *d = session->diags.len ? session->diags.at : NULL;
    char *place = d ? tn_format(&session->arena, "%d:%d", d->loc.line, d->loc.column) : "";
    bool ok = status != TN_OK && d && d->severity == TN_ERROR && strstr(d->message, f->message) && strstr(d->message, "\n") && strcmp(place, f->place) == 0;
    ok = ok && session->errors == 1 && (!note || (session->diags.len > 1 && strstr(session->diags.at[1].message, note)));
    if (!ok) {
        tn_print_diags(session, stderr);
        fail_msg("%s\nexpected at %s: %s\nfound at %s: %s", text, f->place, f->message, place, d ? d->message : "no error");
    }
    free_test_session(session);
}

static void faults(void **state)
{
    (void)state;
    static const fault list[] = {
        /* names */
        {"    x = y + 1\n", "5:9", "the name 'y' is not defined"},
        {"    x += 1\n", "5:5", "the name 'x' is not defined"},
        {"    if n > 0:\n        x = 1\n    tl.store(p, x)\n", "7:17", "'x' has no value here: it is assigned in only one branch of the `if` at line 5"},
        {"    for i in range(n):\n        x = i\n    tl.store(p, x)\n", "7:17", "'x' has no value here: it is assigned first inside the loop at line 5"},
        {"    for i in range(n):\n        pass\n    tl.store(p, i)\n", "7:17", "it is the variable of the loop at line 5"},
        {"    i = 0\n    for j in range(n):\n        tl.store(p, i)\n        for i in range(2):\n            pass\n", "7:21", "'i' has no value here: the loop at line 6 leaves it without a value"},
        {"    C: tl.constexpr = 4\n", "5:5", "C is defined already; a tl.constexpr is defined once"},
        {"    x: tl.constexpr = n\n", "5:23", "x is annotated tl.constexpr, but its value, int32, is known only when the kernel runs"},
        {"    x = tl.constexpr(n)\n", "5:9", "tl.constexpr of what is only known when the kernel runs, int32"},
        /* types of variables */
        {"    x = 1\n    if n > 0:\n        x = 2.0\n", "6:5", "'x' is fp32 where the condition holds, and int32 where it does not"},
        {"    if n > 0:\n        x = tl.arange(0, 4)\n    else:\n        x = tl.arange(0, 8)\n", "5:5", "'x' is int32[4] where the condition holds, and int32[8] where it does not"},
        {"    if n > 0:\n        x = None\n    else:\n        x = 1\n    tl.store(p, 1)\n", "5:5", "'x' is None where the condition holds, and int32 where it does not"},
        {"    if n > 0:\n        x = (1, 2)\n    else:\n        x = (1, 2, 3)\n", "5:5", "'x' is a tuple of 2 where the condition holds, and a tuple of 3"},
        {"    if n > 0:\n        C = 4\n", "5:5", "'C' is a constant (tl.constexpr): a branch on a value cannot make it"},
        {"    if n > 0:\n        K: tl.constexpr = 1\n    else:\n        K: tl.constexpr = 2\n", "5:5", "'K' is a constant (tl.constexpr)"},
        {"    x = 0\n    for i in range(n):\n        x += 1.5\n", "6:5", "'x' is int32 before the loop, and fp32 after its body; a variable of a loop keeps its type"},
        {"    x = tl.zeros((4,), tl.float16)\n    for i in range(n):\n        x = x.to(tl.float32)\n", "6:5", "'x' is fp16[4] before the loop, and fp32[4] after its body"},
        {"    x = n\n    while x > 0:\n        x = x - 0.5\n", "6:5", "'x' is int32 before the loop, and fp32 after its body"},
        {"    x = None\n    for i in range(n):\n        x = i\n", "6:5", "'x' is None before the loop, and int32 after its body"},
        {"    for i in range(n):\n        C += 1\n", "5:5", "'C' is a constant (tl.constexpr), and the loop assigns to it"},
        {"    x = 'a'\n    for i in range(n):\n        x = 'b'\n", "6:5", "'x' is constexpr 'a' before the loop, and constexpr 'b' after its body"},
        {"    x = n if n > 0 else 0.5\n", "5:9", "this choice is int32 where the condition holds, and fp32 where it does not"},
        /* conditions */
        {"    if tl.arange(0, 4) > 0:\n        pass\n", "5:8", "the condition of `if` must be one value, found int1[4]; tl.where chooses element by element"},
        {"    x = 1 if tl.arange(0, 4) > 0 else 2\n", "5:14", "the condition of `if` must be one value"},
        {"    while tl.arange(0, 4) > 0:\n        pass\n", "5:11", "the condition of `while` must be one value"},
        {"    while True:\n        tl.store(p, 1)\n", "5:11", "this loop never ends: its condition is always true"},
        {"    if tl:\n        pass\n", "5:8", "expected a constant that is true or false, found the module triton.language"},
        /* loops */
        {"    for i in range(1.5):\n        pass\n", "5:14", "range takes integers, found constexpr 1.5"},
        {"    for i in range(0, tl.arange(0, 4)):\n        pass\n", "5:14", "range takes integers that are scalars, found int32[4]"},
        {"    for i in range(0, p):\n        pass\n", "5:14", "range takes integers that are scalars, found pointer<fp32>"},
        {"    for i in range(0, n, 0):\n        pass\n", "5:14", "the step of range is 0"},
        {"    for i in tl.static_range(n):\n        pass\n", "5:14", "an argument of static_range must be an integer that is known when the kernel is compiled, found int32"},
        {"    for i in tl.arange(0, 4):\n        pass\n", "5:14", "a for statement runs over range, tl.range, tl.static_range or a tuple, found int32[4]"},
        {"    for i in 5:\n        pass\n", "5:14", "constexpr 5 has no elements to go through"},
        {"    for i, j in range(n):\n        pass\n", "5:9", "a range gives one number at a time"},
        {"    for i in range(n):\n        return\n", "6:9", "`return` inside a for or while loop is not part of the kernel language"},
        {"    for i in range(n):\n        break\n", "6:9", "`break` is not part of the kernel language; use `while`"},
        {"    for i in range(n):\n        if i > 2:\n            continue\n", "7:13", "`continue` is not part of the kernel language; put the rest of the body under an `if`"},
        {"    for i in range(n):\n        pass\n    else:\n        tl.store(p, 1)\n", "8:9", "`else` of a loop is not part of the kernel language"},
        {"    for i in tl.static_range(1000000):\n        for j in tl.static_range(1000000):\n            pass\n", "6:9", "the kernel has more than 1000000 expressions and statements"},
        {"    for i in tl.static_range(10000000):\n        pass\n", "5:14", "a range of more than 1048576 elements is unrolled here"},
        /* statements */
        {"    with n:\n        pass\n", "5:5", "`with` is not part of the kernel language"},
        {"    try:\n        pass\n    except E:\n        pass\n", "5:5", "`try` is not part of the kernel language"},
        {"    import os\n", "5:5", "`import` is not part of the kernel language"},
        {"    global x\n", "5:5", "`global` is not part of the kernel language"},
        {"    del n\n", "5:5", "`del` is not part of the kernel language"},
        {"    raise n\n", "5:5", "`raise` is not part of the kernel language"},
        {"    def f():\n        pass\n", "5:5", "`def` is not part of the kernel language"},
        {"    class A:\n        pass\n", "5:5", "`class` is not part of the kernel language"},
        {"    return n\n", "5:5", "a kernel returns nothing: it stores its results"},
        {"    a, *b = (1, 2, 3)\n", "5:8", "a starred name on the left of = is not part of the kernel language"},
        {"    a, b = (1, 2, 3)\n", "5:5", "3 values for 2 names"},
        {"    a, b = n\n", "5:5", "int32 cannot be taken apart into 2 names"},
        {"    a = tl.arange(0, 4)\n    a[0] = 1\n", "6:5", "elements of int32[4] cannot be assigned: tensors never change"},
        {"    t = (1, 2)\n    t[2] = 1\n", "6:5", "index 2 of a tuple of 2"},
        {"    n.x = 1\n", "5:5", "this cannot be assigned to"},
        {"    x = 5\n    y = tl.arange(0, x)\n", "6:9", "the end of arange must be an integer that is known when the kernel is compiled, found int32; a variable is such a constant if it is annotated"},
        {"    tl.static_assert(C == 4, 'C is four')\n", "5:5", "static assertion failed: C is four"},
        /* expressions */
        {"    x = p.nothing\n", "5:9", "pointer<fp32> has no attribute 'nothing'"},
        {"    x = tl.nothing(n)\n", "5:9", "triton.language has no 'nothing'"},
        {"    x = n(1)\n", "5:9", "int32 is not a function"},
        {"    x = n[0]\n", "5:9", "a tensor is subscripted by None and `:` only"},
        {"    x = tl.float8e4b15\n", "5:9", "fp8e4b15 is a format of old GPUs"},
        {"    x = n ** 2\n", "5:9", "** of tensors is not part of Triton's language"},
        {"    x = lambda a: n\n", "5:9", "`lambda` is not part of the kernel language"},
        {"    x = tl.sum(n, axis=3)\n", "5:9", "sum: "},
    };
    for (size_t i = 0; i < TN_COUNT(list); i++)
        check_fault("", &list[i], NULL);
}

static void faults_of_functions(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        fault fault;
        const char *note;
    } list[] = {
        {"@triton.jit\ndef f(a, b):\n    return a + b\n", {"    f(1)\n", "8:5", "f misses its argument 'b'"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a + b\n", {"    f(1, 2, 3)\n", "8:5", "f takes 2 arguments, but 3 were given"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a + b\n", {"    f(1, 2, a=3)\n", "8:5", "f got the argument 'a' twice"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a + b\n", {"    f(1, c=3)\n", "8:5", "f has no parameter 'c'"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a + b\n", {"    f(p, p)\n", "5:12", "+ of pointer<fp32> and pointer<fp32>"}, "in f, called from test.py:8:5"},
        {"@triton.jit\ndef f(a):\n    return f(a)\n", {"    f(n)\n", "5:12", "recursion: f -> f; functions of kernels are inlined"}, "in f, called from test.py:8:5"},
        {"@triton.jit\ndef g(a):\n    return f(a)\n@triton.jit\ndef f(a):\n    return g(a)\n", {"    f(n)\n", "5:12", "recursion: f -> g -> f"}, "in g, called from test.py:8:12"},
        {"@triton.jit\ndef f(a):\n    if a > 0:\n        return 1\n    return 2.0\n", {"    x = f(n)\n", "5:5", "what the function returns is int32 where the condition holds, and fp32"},
         "in f, called from test.py:10:9"},
        {"@triton.jit\ndef f(a):\n    if a > 0:\n        return 1\n", {"    x = f(n)\n", "5:5", "what the function returns is int32 where the condition holds, and None"}, NULL},
        {"@triton.jit\ndef f(a):\n    while a > 0:\n        return 1\n", {"    x = f(n)\n", "6:9", "`return` inside a for or while loop"}, NULL},
        {"@triton.jit\ndef f(**kw):\n    return 1\n", {"    x = f()\n", "4:9", "a function of kernels names its parameters"}, NULL},
        {"def f(a):\n    return 1\n", {"    x = f(n)\n", "7:9", "f is no @triton.jit function: kernels call such alone"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a, b\n", {"    x = tl.reduce(tl.arange(0, 4), 0, f)\n", "8:9", "a combine function of 1 tensors returns 1 values, found a tuple of 2"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return a * 1.5\n", {"    x = tl.reduce(tl.arange(0, 4), 0, f)\n", "8:9", "a combine function returns what it takes: value 0 must be int32, found fp32"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    return tl.program_id(0)\n", {"    x = tl.reduce(tl.arange(0, 4), 0, f)\n", "5:12", "cannot be called in a combine function"}, NULL},
        {"@triton.jit\ndef f(a, b):\n    for i in range(a):\n        b += 1\n    return b\n", {"    x = tl.reduce(tl.arange(0, 4), 0, f)\n", "5:5", "it has no loops but tl.static_range"}, NULL},
        {"K = 4\n", {"    x = K\n", "6:9", "'K' is a global variable (line 3), and a kernel sees only those that are constants: write K = tl.constexpr(…)"}, NULL},
        {"K = [1, 2]\nL = K\n", {"    x = L\n", "7:9", "'L' is a global variable (line 4)"}, NULL},
        {"K = tl.constexpr(L)\nL = K\n", {"    x = K\n", "4:5", "the value of 'K' needs itself"}, "needed at test.py"},
        {"K: tl.constexpr = 1 // 0\n", {"    x = K\n", "3:19", "division of constexpr 1 by zero"}, "needed at test.py:6:5"},
        {"import numpy as np\n", {"    x = np.zeros(3)\n", "6:9", "numpy is a module of the host program"}, NULL},
        {"from helpers import g\n", {"    x = g(3)\n", "6:9", "'g' comes from helpers, whose text is not here"}, NULL},
        {"from triton.language import nothing\n", {"    x = nothing(3)\n", "6:9", "triton.language has no 'nothing'"}, NULL},
        {"@triton.jit\ndef f(a=tl.arange(0, 4)):\n    return a\n", {"    x = f()\n", "4:9", "arange() cannot be called here"}, NULL},
        {"@triton.jit\ndef f(a: tl.constexpr):\n    a += 1\n    for i in range(3):\n        a += 1.5\n    return a\n", {"    x = f(3)\n", "6:5", "'a' is int32 before the loop, and fp32"}, NULL},
    };
    for (size_t i = 0; i < TN_COUNT(list); i++)
        check_fault(list[i].head, &list[i].fault, list[i].note);
}

static void faults_of_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *argument[2], *message;
    } list[] = {
        {{"*f33", "=1"}, "argument 'p': there is no type 'f33'; there are i1 i8"},
        {{"*f32:8", "=1"}, "argument 'p': an argument is a type as f32, *f32, i32:16"},
        {{"f32:16", "=1"}, "argument 'p': an argument is a type as f32"},
        {{"*f32", "i32"}, "argument 'C': it is a tl.constexpr and needs a value, '=VALUE', found the type 'i32'"},
        {{"*f32", NULL}, "argument 'C': it is a tl.constexpr and has no value"},
        {{NULL, "=1"}, "argument 'p': it is not given and has no default"},
        {{"desc<f16>", "=1"}, "argument 'p': a descriptor is desc<f16[64x32]>, found 'desc<f16>'"},
        {{"desc<f16[3]>", "=1"}, "argument 'p': the sizes of a descriptor's block are powers of two"},
        {{"desc<f16[4", "=1"}, "argument 'p': a descriptor is desc<f16[64x32]>"},
        {{"*f32", "=1 +"}, "expected"},
        {{"*f32", "=nothing"}, "the name 'nothing' is not defined"},
        {{"i32=x", "=1"}, "the name 'x' is not defined"},
    };
    for (size_t i = 0; i < TN_COUNT(list); i++)
        must_fail("@triton.jit\ndef k(p, C: tl.constexpr):\n    pass\n", (const given[]){{list[i].argument[0], NULL, 0, 0}, {list[i].argument[1], NULL, 0, 0}}, 2, list[i].message);
    must_fail("@triton.jit\ndef k(p):\n    pass\n", (const given[]){{"i32", NULL, 0, 0}, {"i32", NULL, 0, 0}}, 2, "k has 1 parameters, and 2 arguments were given");
    must_fail("@triton.jit\ndef other(p):\n    pass\ndef host():\n    pass\n", NULL, 0, "there is no @triton.jit function 'k'; there are other");
    must_fail("x = 1\n", NULL, 0, "there is no @triton.jit function 'k'; there is none");
    must_fail("@triton.jit\ndef k(*p):\n    pass\n", (const given[]){{"i32", NULL, 0, 0}}, 1, "a kernel names all of its parameters");
    must_fail("def f():\n    return 1 + []\n@triton.autotune(configs=f(), key=[])\n@triton.jit\ndef k(A: tl.constexpr):\n    pass\n", (const given[]){{NULL, NULL, 0, 0}}, 1, "return 1 + []");
    must_fail("@triton.autotune(configs=[3], key=[])\n@triton.jit\ndef k(A: tl.constexpr):\n    pass\n", (const given[]){{NULL, NULL, 0, 0}}, 1, "configs is a list of triton.Config");
}

/* Messages show the line and where in it. */
static void carets(void **state)
{
    (void)state;
    must_fail(KERNEL("n") "    x = 1 +   wrong\n", (const given[]){{"i32", NULL, 0, 0}}, 1, "the name 'wrong' is not defined\n        x = 1 +   wrong\n                  ^");
}

/* Triton's own: plain numbers are weak, assigned ones are tensors with a type. */
static void weak_numbers(void **state)
{
    (void)state;
    INTS("@triton.jit\ndef half():\n    return 0.5\n",
         "    x = tl.full((2,), 1, tl.float16)\n    a = 0.5\n"
         "    tl.static_assert((x * 0.5).dtype == tl.float16)\n    tl.static_assert((x * a).dtype == tl.float32)\n    tl.static_assert((x * half()).dtype == tl.float32)\n"
         "    H: tl.constexpr = 0.5\n    tl.static_assert((x * H).dtype == tl.float16)\n    b = -7\n    tl.store(out, b // 2)\n    B: tl.constexpr = -7\n    tl.store(out + 1, B // 2)\n",
         -3, -4);
}

static void asserts(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_triton_kernel kernel;
    static const char text[] = KERNEL("n") "    assert n > 0, 'n is positive'\n    print('n is', n)\n";
    const given arguments[] = {{"i32", NULL, 0, 0}};
    for (int debug = 0; debug < 2; debug++) {
        int asserted = 0, printed = 0;
        assert_int_equal(compile_triton(session, text, arguments, 1, debug, &kernel), TN_OK);
        for (const tn_top *op = kernel.kernel->body->first; op; op = op->next) {
            asserted += op->code == TN_T_assert && strcmp(op->text, "n is positive") == 0;
            printed += op->code == TN_T_print;
        }
        assert_true(asserted == debug && printed == 1);
    }
    free_test_session(session);
}

/* The line that is shown goes on behind the zero byte: all of the text was copied, although a string would end there. */
static void zero_bytes(void **state)
{
    (void)state;
    static const char text[] = "a = 1\0 + 2 * 3\nb = 4\n";
    tn_session *session = new_test_session();
    tn_triton_module *module = tn_triton_module_new(session);
    int unit;
    assert_int_equal(tn_triton_add(module, "z.py", 1, text, sizeof text - 1, &unit), TN_INVALID);
    assert_int_equal(session->diags.at[0].loc.column, 6);
    assert_non_null(strstr(session->diags.at[0].message, "zero byte\n    a = 1  + 2 * 3\n         ^"));
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_arithmetic), cmocka_unit_test(constants_that_fail), cmocka_unit_test(assignments), cmocka_unit_test(branches),
        cmocka_unit_test(choices), cmocka_unit_test(loops), cmocka_unit_test(loops_of_wide_and_unsigned_indices), cmocka_unit_test(unrolled_loops),
        cmocka_unit_test(loops_in_loops), cmocka_unit_test(aggregates_in_loops), cmocka_unit_test(aggregates_in_branches), cmocka_unit_test(static_prints), cmocka_unit_test(limits),
        cmocka_unit_test(constants_in_loops), cmocka_unit_test(calls),
        cmocka_unit_test(early_returns), cmocka_unit_test(combine_functions), cmocka_unit_test(configurations), cmocka_unit_test(bindings), cmocka_unit_test(imports),
        cmocka_unit_test(kernels), cmocka_unit_test(locations), cmocka_unit_test(faults), cmocka_unit_test(faults_of_functions), cmocka_unit_test(faults_of_arguments),
        cmocka_unit_test(carets), cmocka_unit_test(weak_numbers), cmocka_unit_test(asserts), cmocka_unit_test(zero_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
