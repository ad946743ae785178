/* The Tile IR's text: what is printed reads back and prints the same; faults are found where they stand; nothing crashes the parser. The
 * verifier: a kernel for each rule. */
#include "tile_test.h"

#define ALL                                                                                                                                          \
    "symbols r in [2, 64] multiple 2\n"                                                                                                              \
    "kernel @all(%x: f32[768*r] read, %g: f32 read_write, %y: f32 write, %n: i64, %q: ptr<f32>) grid(%p : r by $R, %z : floordiv(r, 2) by 64) {\n"    \
    "  local %t: f32[768]\n"                                                                                                                         \
    "  view %X = %x : [r, 768] strides [768, 1] guard([1, -1] base -1 limit r + 1) guard([0, 1] base 0 limit 6) pad 0\n"                             \
    "  view %Y = %y : [r, 768] strides [768, 1] offset r\n"                                                                                          \
    "  view %W = %g : [r, 768] strides [768, 1] panel 64\n"                                                                                          \
    "  %lim = size 768 : i64\n"                                                                                                                      \
    "  %zero = const 0 : i64\n"                                                                                                                      \
    "  %step = const 32 : i64\n"                                                                                                                     \
    "  %i = range %zero : $C x i64\n"                                                                                                                \
    "  %s = fold @row (%j : %lim by $C) axes [1] order any identity [0] : $R x f32 {\n"                                                              \
    "    %0 = load %X[%p + @0, in(%j + @1)] : $R x $C x f32\n"                                                                                       \
    "    %w = load %X[%p, %i(@0)] : $C x f32\n"                                                                                                      \
    "    yield %0\n"                                                                                                                                 \
    "  } combine (%a: f32, %c: f32) {\n"                                                                                                             \
    "    %1 = add %a, %c : f32\n"                                                                                                                    \
    "    yield %1\n"                                                                                                                                 \
    "  }\n"                                                                                                                                          \
    "  for (%k = %zero to %lim by %step) {\n"                                                                                                        \
    "    %2 = load %X[%p + @0, %k + @1] : $R x 32 x f32\n"                                                                                           \
    "    %b = broadcast %s axes [0] : $R x 32 x f32\n"                                                                                               \
    "    %d = sub %2, %b : $R x 32 x f32\n"                                                                                                          \
    "    store %Y[%p + @0, %k + @1], %d\n"                                                                                                           \
    "    yield\n"                                                                                                                                    \
    "  }\n"                                                                                                                                          \
    "  %r1, %r2 = for (%h = %zero to %lim by %step) carry (%c1 = %zero: i64, %c2 = %s: $R x f32) : i64, $R x f32 {\n"                                \
    "    yield %c1, %c2\n"                                                                                                                           \
    "  }\n"                                                                                                                                          \
    "  %cond = const true : bool\n"                                                                                                                  \
    "  %if = if %cond : i64 {\n"                                                                                                                     \
    "    yield %zero\n"                                                                                                                              \
    "  } else {\n"                                                                                                                                   \
    "    yield %step\n"                                                                                                                              \
    "  }\n"                                                                                                                                          \
    "  %wh = while (%v = %zero: i64) : i64 {\n"                                                                                                      \
    "    %lt = lt %v, %step : bool\n"                                                                                                                \
    "    yield %lt\n"                                                                                                                                \
    "  } do (%v2: i64) {\n"                                                                                                                          \
    "    yield %v2\n"                                                                                                                                \
    "  }\n"                                                                                                                                          \
    "  assert \"bad \\\"x\\\" \\x0a\", %cond\n"                                                                                                      \
    "  print \"here\"\n"                                                                                                                             \
    "  %so = sort %i axes [0] : $C x i64 before (%a1: i64, %b1: i64) {\n"                                                                            \
    "    %lt1 = lt %a1, %b1 : bool\n"                                                                                                                \
    "    yield %lt1\n"                                                                                                                               \
    "  }\n"                                                                                                                                          \
    "  %cs = scan %i axes [0] reverse identity [0] : $C x i64 combine (%a2: i64, %b2: i64) {\n"                                                      \
    "    %lt2 = add %a2, %b2 : i64\n"                                                                                                                \
    "    yield %lt2\n"                                                                                                                               \
    "  }\n"                                                                                                                                          \
    "  %re = reduce %i axes [0] order tree identity [-9223372036854775808] : i64 combine (%a3: i64, %b3: i64) {\n"                                   \
    "    %lt3 = max %a3, %b3 : i64\n"                                                                                                                \
    "    yield %lt3\n"                                                                                                                               \
    "  }\n"                                                                                                                                          \
    "  %sl = slice %i axes [0] start 8 : 4 x i64\n"                                                                                                  \
    "  %cf = const (1, -2) : 4 x c64\n"                                                                                                              \
    "  %pt = addptr %q, %n : ptr<f32>\n"                                                                                                             \
    "  %ld = load_ptr %pt, %cond : f32\n"                                                                                                            \
    "  store_ptr %pt, %ld\n"                                                                                                                         \
    "  %at = atomic max %W[%zero, %zero], %ld : f32\n"                                                                                               \
    "  %as = assume %at, %cond : f32\n"                                                                                                              \
    "  %hi = histogram %sl : 8 x i32\n"                                                                                                              \
    "  %j1 = join %sl, %sl : 4 x 2 x i64\n"                                                                                                          \
    "  %j2, %j3 = split %j1 : 4 x i64, 4 x i64\n"                                                                                                    \
    "  %pe = permute %j1 axes [1, 0] : 2 x 4 x i64\n"                                                                                                \
    "  %rs = reshape %pe : 8 x i64\n"                                                                                                                \
    "  %ca = cat %sl, %rs axes [0] : 12 x i64\n"                                                                                                     \
    "  %ga = gather %ca, %sl axes [0] : 4 x i64\n"                                                                                                   \
    "  %do = dot %j1, %pe : 4 x 4 x i64\n"                                                                                                           \
    "  %bc = bitcast %do : 4 x 4 x u64\n"                                                                                                            \
    "  %d0 = const 1 : 4 x 4 x f32\n"                                                                                                                    \
    "  %d1 = dot %d0, %d0 precision tf32 : 4 x 4 x f32\n"                                                                                                \
    "  %d2 = dot %d1, %d0 precision tf32x3 : 4 x 4 x f32\n"                                                                                              \
    "  %d3 = dot %d2, %d0 : 4 x 4 x f32\n"                                                                                                               \
    "  %d4 = cast %d3 : 4 x 4 x f8e4m3fn\n"                                                                                                              \
    "  %d5 = cast %d3 : 4 x 4 x f8e5m2\n"                                                                                                                \
    "  %d6 = dot %d4, %d5 : 4 x 4 x f32\n"                                                                                                               \
    "  fence\n"                                                                                                                                      \
    "} schedule { bind $R = 4; bind $C = 32; set row lanes = 16; set threads-grain = 4 }\n"

static void test_round_trip(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, ALL);
    assert_string_equal(tile_text(kernel), ALL);
    if (tn_tile_verify(kernel) != TN_OK)
        tn_print_diags(session, stderr);
    assert_int_equal(session->errors, 0);
    assert_int_equal(tn_tile_size(kernel), 61);
    assert_int_equal(tn_tile_bind(kernel), TN_OK);
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    const char *bound = tile_text(kernel);
    assert_null(strstr(bound, "$R x"));
    assert_int_equal(tn_tile_bind(kernel), TN_OK);
    assert_string_equal(bound, tile_text(kernel));
    assert_string_equal(bound, tile_text(parse_tile(session, bound)));
    free_test_session(session);
}

/* Any prefix, and any byte changed, is read or refused, with a diagnostic. */
static void test_damaged(void **state)
{
    (void)state;
    size_t len = strlen(ALL);
    for (size_t i = 0; i < 2 * len; i += 3) {
        tn_session *session = new_test_session();
        char *text = tn_strdup(&session->arena, ALL);
        size_t at = i % len, n = i < len ? at : len;
        uint64_t seed = i;
        if (i >= len)
            text[at] = "%@()[]{}:,x0123-9\" \n"[test_random(&seed) % 20];
        tn_kernels kernels = {0};
        tn_status status = tn_tile_parse(session, "damaged", text, n, &kernels);
        assert_int_equal(status != TN_OK, session->errors > 0);
        for (size_t k = 0; status == TN_OK && k < kernels.len; k++)
            if (tn_tile_verify(kernels.at[k]) == TN_OK)
                tn_tile_bind(kernels.at[k]);
        free_test_session(session);
    }
}

static void test_deep(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_text text = {.arena = &session->arena};
    tn_text_add(&text, "kernel @k() grid() {\n%%c = const true : bool\n");
    for (int i = 0; i < 100000; i++)
        tn_text_add(&text, "if %%c {");
    tn_kernels kernels = {0};
    assert_int_equal(tn_tile_parse(session, "deep", text.at, text.len, &kernels), TN_INVALID);
    text.len = 0;
    tn_text_add(&text, "kernel @k() grid(%%p : ");
    for (int i = 0; i < 100000; i++)
        tn_text_add(&text, "(");
    assert_int_equal(tn_tile_parse(session, "deep", text.at, text.len, &kernels), TN_INVALID);
    assert_int_equal(tn_tile_parse(session, "nul", "kernel\0", 7, &kernels), TN_INVALID);
    free_test_session(session);
}

/* A kernel with one fault, and what the message must say. */
typedef struct fault {
    const char *body, *message;
} fault;

#define HEAD                                                                                                                                         \
    "kernel @k(%x: f32[n] read, %y: f32[n] write, %z: f32[n] read_write) grid(%p : n by 4) {\n"                                                      \
    "view %X = %x : [n] strides [1]\nview %Y = %y : [n] strides [1]\nview %Z = %z : [n] strides [1]\nview %M = %z : [n, n] strides [n, 1]\n"          \
    "%zero = const 0 : i64\n%n = size n : i64\n%a = load %X[%p + @0] : 4 x f32\n%t = const true : bool\n%i = range %zero : 4 x i64\n"

static const char *first_message(tn_session *session, const char *text)
{
    tn_kernels kernels = {0};
    if (tn_tile_parse(session, "t", text, strlen(text), &kernels) == TN_OK)
        tn_tile_verify(kernels.at[0]);
    return session->diags.len ? tn_format(&session->arena, "%d:%d: %s", session->diags.at[0].loc.line, session->diags.at[0].loc.column,
                                          session->diags.at[0].message)
                              : "no message";
}

static void test_faults(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"%b = add %a, %c : 4 x f32\n}", "11:14: %c is not defined here"},
        {"%b = frob %a : 4 x f32\n}", "11:6: unknown operation `frob`"},
        {"%b = neg %a 4 x f32\n}", "1 results are named, but 0 types given"},
        {"%b = neg %a : 4 x f99\n}", "unknown element type `f99`"},
        {"%a = neg %a : 4 x f32\n}", "%a is already defined"},
        {"%b = load %Q[%p + @0] : 4 x f32\n}", "no view is called %Q"},
        {"%b = load %X[%p + @0, %p] : 4 x f32\n}", "here is a subscript more"},
        {"%b = load %M[%p + @0] : 4 x f32\n}", "has 2 dimensions, found 1"},
        {"%b = load %X[%p + @7] : 4 x f32\n}", "an axis is a number from 0 to 5"},
        {"%b = const 1.5 : i32\n}", "expected"},
        {"store %Y[%p + @0], %a\n", "found the end of the file"},
        {"} schedule { bind R = 4 }", "expected `$`"},
        {"yield\n}", "a kernel's body has no yield"},
        {"if %t {\n} else {\nyield\n}\n}", "a region ends in a yield"},
        {"%b = add %a, %zero : 4 x f32\n}", "add: an operand must be of type i64, found 4 x f32"},
        {"%b = exp %zero : i64\n}", "exp: is not defined on i64"},
        {"%b = neg %a : 8 x f32\n}", "the result must be of type 4 x f32, found 8 x f32"},
        {"%b = neg %a, %a : 4 x f32\n}", "takes 1 operands, found 2"},
        {"%b = const 0 : 17 x f32\n}", "an extent is r * 2^k"},
        {"%b = const 0 : 0 x f32\n}", "an extent is r * 2^k"},
        {"%b = load %X[%a(@0)] : 4 x f32\n}", "a subscript must be an integer"},
        {"%b = load %X[%i(@0)] : 8 x f32\n}", "does not fit axis @0"},
        {"%b = load %X[%i] : 4 x f32\n}", "an index tile of 1 axes is indexed by 0"},
        {"%b = load %X[%p + @1] : 4 x f32\n}", "subscript axis @1 of a tile with 1 axes"},
        {"%b = load %X[%p + @0] : 4 x f16\n}", "buffer %x holds f32, found 4 x f16"},
        {"store %X[%p + @0], %a\n}", "buffer %x is declared `read`"},
        {"%b = load %Y[%p + @0] : 4 x f32\n}", "buffer %y is declared `write`"},
        {"store %Y[%p], %a\n}", "no subscript names axis @0"},
        {"%b = cast %a : 8 x f16\n}", "keeps the shape"},
        {"%b = bitcast %a : 4 x f16\n}", "needs elements of one size"},
        {"%b = broadcast %a axes [1] : 4 x 8 x f32\n}", "axis 0 of 4 x f32 does not fit axis 1"},
        {"%b = broadcast %a axes [] : 4 x 8 x f32\n}", "needs 1 axes, found 0"},
        {"%b = reshape %a : 8 x f32\n}", "does not hold the elements"},
        {"%b = permute %a axes [1] : 4 x f32\n}", "axis 1 of a tile with 1 axes"},
        {"%b = join %a, %i : 4 x 2 x f32\n}", "join: an operand must be of type"},
        {"%b, %c = split %a : f32, f32\n}", "the last axis must have 2 elements"},
        {"%b = cat %a, %a axes [0] : 16 x f32\n}", "4 and 4 elements do not make 16"},
        {"%b = slice %a axes [0] start 1 : 2 x f32\n}", "is no whole part"},
        {"%b = dot %a, %a : 4 x f32\n}", "dot: expected [B x] M x K"},
        {"%m = const 0 : 4 x 4 x f16\n%b = dot %m, %m precision tf32 : 4 x 4 x f32\n}", "tf32 is a precision of factors of f32, found 4 x 4 x f16"},
        {"%m = const 0 : 4 x 4 x f16\n%o = const 0 : 4 x 4 x f8e4m3fn\n%b = dot %m, %o : 4 x 4 x f32\n}", "of one element type (or of two of 8 bits)"},
        {"%m = const 0 : 4 x 4 x f32\n%b = dot %m, %m precision half : 4 x 4 x f32\n}", "a precision is ieee, tf32 or tf32x3, found `half`"},
        {"%b = gather %a, %a axes [0] : 4 x f32\n}", "the index must be integers"},
        {"%b = atomic exp %Z[%p + @0], %a : 4 x f32\n}", "needs a function of two"},
        {"%b = reduce %a axes [1] order any identity [0] : f32 combine (%u: f32, %v: f32) {\nyield %u\n}\n}", "axis 1 of a tile with 1 axes"},
        {"%b = reduce %a axes [0] order any identity [0] : f32 combine (%u: f32) {\nyield %u\n}\n}", "takes 2 arguments here, found 1"},
        {"%b = reduce %a axes [0] order any identity [0] : f32 combine (%u: f32, %v: f32) {\n%w = load %X[%p] : f32\nyield %w\n}\n}",
         "holds only pure operations"},
        {"%b = reduce %a axes [0] order any identity [0] : f32 combine (%u: f32, %v: f32) {\nyield %u, %v\n}\n}", "needs 1 values here, found 2"},
        {"%b = scan %a axes [0] identity [0] : 8 x f32 combine (%u: f32, %v: f32) {\nyield %u\n}\n}", "a result must be of type 4 x f32"},
        {"%b = sort %a axes [0] : 4 x f32 before (%u: f32, %v: f32) {\nyield %u\n}\n}", "must be of type bool, found f32"},
        {"%b = fold (%j : %n by 4) axes [0] order any identity [0, 1] : f32 {\n%c = load %X[%j + @0] : 4 x f32\nyield %c\n} combine (%u: f32, %v: f32) {\nyield %u\n}\n}",
         "expected `]`"},
        {"%b = fold (%j : %n by 4) axes [] order any identity [0] : f32 {\n%c = load %X[%j + @0] : 4 x f32\nyield %c\n} combine (%u: f32, %v: f32) {\nyield %u\n}\n}",
         "a result must be of type 4 x f32, found f32"},
        {"%b = fold (%j : %n by 4) axes [0] order any identity [0] : f32 {\n%c = load %Z[%j + @0] : 4 x f32\nstore %Z[%zero + @0], %c\nyield %c\n} combine (%u: f32, %v: f32) {\nyield %u\n}\n}",
         "a fold's body loads buffer %z elsewhere than it stores it"},
        {"%b = for (%j = %zero to %n by %zero) carry (%c = %a: 4 x f32) : 4 x f32 {\nyield %j\n}\n}", "must be of type 4 x f32, found i64"},
        {"%b = while (%c = %a: 4 x f32) : 4 x f32 {\nyield %c\n} do (%d: 4 x f32) {\nyield %d\n}\n}", "must be of type bool"},
        {"if %a {\nyield\n} else {\nyield\n}\n}", "the condition must be of type bool"},
        {"%b = load_ptr %a : 4 x f32\n}", "expected pointers"},
        {"} schedule { bind $R = 17 }", "schedule: $R must be"},
        {"} schedule { set rows = 3 }", "the key `rows` does not belong here"},
        {"} schedule { set nobody rows = 3 }", "no operation has the label @nobody"},
        {"store @s %Y[%p + @0], %a\n} schedule { set s frob = 1 }", "no key is called `frob`"},
        {"store @s %Y[%p + @0], %a\n} schedule { set s vector-axis = 1 }", "`vector-axis` 1 of 4 x f32"},
        {"%b = neg @s %a : 4 x f32\n%c = neg @s %a : 4 x f32\n}", "the label @s names another operation"},
        {"%b = reduce @s %a axes [0] order any identity [0] : f32 combine (%u: f32, %v: f32) {\nyield %u\n}\n} schedule { set s lanes = 12 }",
         "`lanes` cannot be 12"},
    };
    for (size_t i = 0; i < TN_COUNT(faults); i++) {
        tn_session *session = new_test_session();
        const char *message = first_message(session, tn_format(&session->arena, "%s%s", HEAD, faults[i].body));
        if (!strstr(message, faults[i].message)) {
            fprintf(stderr, "%s\n", faults[i].body);
            fail_msg("expected '%s', found '%s'", faults[i].message, message);
        }
        free_test_session(session);
    }
}

/* Pointers: what they point to, what an atomic computes and in which order, what a fold may do. */
static void test_pointer_faults(void **state)
{
    (void)state;
#define POINTERS "kernel @k(%x: f32 read, %y: f32 write, %x: ptr<f32>, %y: ptr<f32>, %n: i64, %f: f32)"
#define GRID " grid(%p : 4 by 1) {\nview %Y = %y : [4] strides [1]\n%z = const 0 : i64\n%t = const true : bool\n"
#define FOLD "%s = fold (%j : %n by 4) axes [0] order any identity [0] : f32 {\n%r = range %j : 4 x i64\n%b = broadcast %x axes [] : 4 x ptr<f32>\n%q = addptr %b, %r : 4 x ptr<f32>\n"
#define ENDS "yield %c\n} combine (%u: f32, %v: f32) {\nyield %u\n}\n}"
    static const struct {
        const char *body, *message;
        bool overlap;
    } faults[] = {
        {.body = "%b = atomic_ptr add %x, %n : f32\n}", .message = "the value must be of type f32, found i64"},
        {.body = "%b = atomic_ptr exp %x, %f : f32\n}", .message = "needs a function of two f32"},
        {.body = "%b = atomic_ptr and %x, %f : f32\n}", .message = "needs a function of two f32"},
        {.body = "%b = atomic_ptr lt %x, %f : bool\n}", .message = "atomic_ptr: "},
        {.body = "%b = atomic_ptr add %n, %f : f32\n}", .message = "expected pointers, found i64"},
        {.body = "%b = atomic_ptr add %x, %f, %f : f32\n}", .message = "the mask must be of type bool"},
        {.body = "%b = atomic_ptr add %x, %f order sometimes.gpu : f32\n}", .message = "an order is relaxed, acquire, release or acq_rel"},
        {.body = "%b = atomic_ptr add %x, %f order acquire : f32\n}", .message = "found acquire"},
        {.body = "%b = atomic_ptr exchange %x, %f, %t order release.sys : f32\n}"},
        {.body = "%b = cas_ptr %x, %f, %n : f32\n}", .message = "the new value must be of type f32, found i64"},
        {.body = "%b = cas_ptr %x, %f : f32\n}", .message = "takes 3 operands"},
        {.body = "%b = bitcast %x : i32\n}", .message = "needs elements of one size, found ptr<f32> and i32"},
        {.body = "%b = cast %x : i64\n}", .message = "no conversion between ptr<f32> and i64"},
        {.body = "%b = bitcast %n : ptr<i8>\n%c = bitcast %b : ptr<f32>\n%d = bitcast %c : u64\n}"},
        {.body = FOLD "%c = load_ptr %q : 4 x f32\nstore_ptr %q, %c\n" ENDS, .message = "a fold's body writes through views alone"},
        {.body = FOLD "%c = load_ptr %q : 4 x f32\nstore %Y[%j + @0], %c\n" ENDS},
        {.body = FOLD "%c = load_ptr %q : 4 x f32\nstore %Y[%j + @0], %c\n" ENDS, .message = "loads what may overlap buffer %y, which it stores", .overlap = true},
        {.body = FOLD "%i = bitcast %q : 4 x i64\n%w = bitcast %i : 4 x ptr<f32>\n%c = load_ptr %w : 4 x f32\nstore %Y[%j + @0], %c\n" ENDS,
         .message = "loads what may overlap buffer %y"},
    };
    for (size_t i = 0; i < TN_COUNT(faults); i++) {
        tn_session *session = new_test_session();
        const char *text = tn_format(&session->arena, "%s%s%s", POINTERS, faults[i].overlap ? " overlap" GRID : GRID, faults[i].body);
        const char *message = first_message(session, text), *wanted = faults[i].message ? faults[i].message : "no message";
        if (!strstr(message, wanted))
            fail_msg("%s: expected '%s', found '%s'", faults[i].body, wanted, message);
        free_test_session(session);
    }
}

static void test_headers(void **state)
{
    (void)state;
    static const fault faults[] = {
        {"kernel @k(%x: f32 read, %x: f32 read) grid() {\n}", "a buffer %x exists already"},
        {"kernel @k(%x: 4 x f32) grid() {\n}", "or a scalar's type"},
        {"kernel @k(%x: f32 read) grid() {\nview %V = %y : [] strides []\n}", "no buffer is called %y"},
        {"kernel @k(%x: f32 read) grid() {\nview %V = %x : [2] strides [1] panel 8\n}", "need two dimensions at least"},
        {"kernel @k(%x: f32 read) grid() {\nview %V = %x : [2] strides []\n}", "expected 1 dimensions"},
        {"kernel @k(%x: f32 read) grid() {\nlocal %t : f32[-3]\n}", "has no size, or a negative one"},
        {"kernel @k(%x: f32 read) grid(%p : 5 by 0) {\n}", "an extent is r * 2^k"},
        {"symbols n in [5, 3]\n", "holds no multiple"},
        {"kernel @k(%x: ptr<i4>) grid() {\n}", "no pointer points to i4"},
        {"kernel @k(%x: f32 read align 24) grid() {\n}", "the alignment of a parameter is a power of two, found 24"},
        {"kernel @k(%x: f32 read align 0) grid() {\n}", "`align` of a parameter is 1 at least, found 0"},
        {"kernel @k(%n: f32 multiple 16) grid() {\n}", "only an integer is a `multiple`"},
        {"kernel @k(%n: i32 multiple -2) grid() {\n}", "`multiple` of a parameter is 1 at least, found -2"},
        {"kernel @k() grid() {\n} schedule { set warps = 3 }", "`warps` cannot be 3"},
        {"kernel @k() grid() {\n} schedule { set warps = 64 }", "`warps` cannot be 64"},
        {"graph @g", "expected `kernel` or `symbols`, found `graph`"},
    };
    for (size_t i = 0; i < TN_COUNT(faults); i++) {
        tn_session *session = new_test_session();
        const char *message = first_message(session, faults[i].body);
        if (!strstr(message, faults[i].message))
            fail_msg("%s: expected '%s', found '%s'", faults[i].body, faults[i].message, message);
        free_test_session(session);
    }
}

static void test_unbound(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, "kernel @k() grid(%p : 5 by $R) {\n}");
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    assert_int_equal(tn_tile_bind(kernel), TN_INVALID);
    assert_non_null(strstr(session->diags.at[0].message, "the schedule binds no $R"));
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_faults),     cmocka_unit_test(test_headers), cmocka_unit_test(test_pointer_faults), cmocka_unit_test(test_unbound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
