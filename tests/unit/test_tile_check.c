/* The checked mode of user kernels: what it reports, where, how often, and what it must not report. */
#include "tile_test.h"

typedef struct checked {
    tn_session *session;
    tn_status status;
    size_t lines;
    char line[8][128];
} checked;

static void take_line(void *context, const char *line)
{
    checked *c = context;
    if (c->lines < TN_COUNT(c->line))
        snprintf(c->line[c->lines], sizeof c->line[0], "%s", line);
    c->lines++;
}

static checked check_text(const char *text, const tn_tile_arg *buffers, const bool *fresh)
{
    static const variant v = {.size = {{"n", 5}, {"grid_x", 4}, {"grid_y", 2}}};
    checked c = {.session = new_test_session()};
    tn_kernel *kernel = parse_tile(c.session, text);
    tn_tile_check_options options = {.fresh = fresh, .print = take_line, .context = &c};
    c.status = tn_tile_check(kernel, buffers, test_lookup, (void *)&v, &options);
    assert_int_equal(c.status == TN_OK, c.session->errors == 0);
    return c;
}

static void expect_clean(const char *text, const tn_tile_arg *buffers, const bool *fresh)
{
    checked c = check_text(text, buffers, fresh);
    if (c.session->diags.len)
        fail_msg("%s", c.session->diags.at[0].message);
    free_test_session(c.session);
}

/* One diagnostic, on a line (0: none), that has this text. */
static void expect_one(const char *text, const tn_tile_arg *buffers, const bool *fresh, tn_severity severity, int line, const char *message)
{
    checked c = check_text(text, buffers, fresh);
    if (c.session->diags.len != 1)
        tn_print_diags(c.session, stderr);
    assert_int_equal(c.session->diags.len, 1);
    const tn_diag *d = &c.session->diags.at[0];
    if (d->severity != severity || (line && d->loc.line != line) || !strstr(d->message, message))
        fail_msg("expected '%s' on line %d, found '%s' on line %d", message, line, d->message, d->loc.line);
    free_test_session(c.session);
}

/* pid is program_id(0) of a grid z, y, x. */
#define GRID "grid(%z : 1 by 1, %y : grid_y by 1, %pid : grid_x by 1)"
#define HEAD(mode) "kernel @k(%x: i32 " mode ", %x: ptr<i32>) " GRID " {\n"

static void test_bounds(void **state)
{
    (void)state;
    int32_t x[7] = {0};
    tn_tile_arg args[] = {{x, 7}};
    expect_one(HEAD("read")
               "  %two = const 2 : i64\n"
               "  %start = mul %pid, %two : i64\n"
               "  %i = range %start : 2 x i64\n"
               "  %b = broadcast %x axes [] : 2 x ptr<i32>\n"
               "  %p = addptr %b, %i : 2 x ptr<i32>\n"
               "  %v = load_ptr %p : 2 x i32\n"
               "}\n",
               args, NULL, TN_ERROR, 7, "kernel @k, program (3, 0, 0): load: element 7 lies outside buffer %x of 7 elements, lane [1]");
    /* Below the start, and through a cast to bytes past the end. */
    expect_one(HEAD("read") "  %m = const -1 : i64\n  %p = addptr %x, %m : ptr<i32>\n  %v = load_ptr %p : i32\n}\n", args, NULL, TN_ERROR, 4, "element -1 lies");
    expect_one(HEAD("read") "  %p = bitcast %x : ptr<i64>\n  %m = const 3 : i64\n  %q = addptr %p, %m : ptr<i64>\n  %v = load_ptr %q : i64\n}\n", args, NULL, TN_ERROR,
               5, "element 3 lies outside buffer %x of 3 elements");
    expect_one(HEAD("read") "  %n = const 0 : i64\n  %p = bitcast %n : ptr<i32>\n  %v = load_ptr %p : i32\n}\n", args, NULL, TN_ERROR, 4, "address of no memory");
    /* What a mask leaves out is not looked at; nor is anything known of a buffer without size. */
    expect_clean(HEAD("read") "  %m = const -1 : i64\n  %no = const false : bool\n  %p = addptr %x, %m : ptr<i32>\n  %v = load_ptr %p, %no : i32\n}\n", args, NULL);
    expect_clean(HEAD("read") "  %m = const 1 : i64\n  %p = addptr %x, %m : ptr<i32>\n  %v = load_ptr %p : i32\n}\n", (tn_tile_arg[]){{x, -1}}, NULL);
}

static void test_assertions(void **state)
{
    (void)state;
    int32_t x[1] = {0};
    expect_one(HEAD("read")
               "  %two = const 2 : i64\n"
               "  %c = lt %pid, %two : bool\n"
               "  assert \"small\", %c\n"
               "}\n",
               (tn_tile_arg[]){{x, 1}}, NULL, TN_ERROR, 4, "program (2, 0, 0): assert: does not hold: small");
    expect_one(HEAD("read")
               "  %two = const 2 : 4 x i64\n  %o = const 0 : i64\n  %i = range %o : 4 x i64\n  %c = lt %i, %two : 4 x bool\n  assert \"lanes\", %c\n"
               "}\n",
               (tn_tile_arg[]){{x, 1}}, NULL, TN_ERROR, 6, "does not hold: lanes, lane [2]");
}

static void test_fresh(void **state)
{
    (void)state;
    int32_t x[8] = {0};
    const bool fresh[] = {true};
    const char *load = HEAD("read_write")
        "  %p = addptr %x, %pid : ptr<i32>\n"
        "  %v = load_ptr %p : i32\n"
        "  %w = load_ptr %p : i32\n"
        "}\n";
    checked c = check_text(load, (tn_tile_arg[]){{x, 8}}, fresh);
    assert_int_equal(c.status, TN_INVALID);
    assert_int_equal(c.session->diags.len, 2); /* once a line, though eight programs do it */
    assert_non_null(strstr(c.session->diags.at[0].message, "program (0, 0, 0): load: element 0 of %x is loaded, but nothing has stored it"));
    assert_int_equal(c.session->diags.at[1].loc.line, 4);
    free_test_session(c.session);
    expect_clean(load, (tn_tile_arg[]){{x, 8}}, NULL);
    expect_clean("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid(%pid : 8 by 1) {\n  %one = const 1 : i32\n  %p = addptr %x, %pid : ptr<i32>\n"
                 "  store_ptr %p, %one\n  %v = load_ptr %p : i32\n}\n",
                 (tn_tile_arg[]){{x, 8}}, fresh);
    /* An atomic looks at what it changes; an exchange does not mean it. */
    expect_one("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid() {\n  %one = const 1 : i32\n  %v = atomic_ptr add %x, %one : i32\n}\n", (tn_tile_arg[]){{x, 8}}, fresh,
               TN_ERROR, 3, "atomic: element 0 of %x is loaded");
    expect_clean("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid() {\n  %one = const 1 : i32\n  %v = atomic_ptr exchange %x, %one : i32\n  %w = load_ptr %x : i32\n}\n",
                 (tn_tile_arg[]){{x, 8}}, fresh);
}

static void test_races(void **state)
{
    (void)state;
    int32_t x[8] = {0};
    tn_tile_arg args[] = {{x, 8}};
    expect_one(HEAD("read_write") "  %one = const 1 : i32\n  store_ptr %x, %one\n}\n", args, NULL, TN_ERROR, 3,
               "program (1, 0, 0): store: a race: program (0, 0, 0) stores element 0 of %x too");
    /* Reader and writer, in both orders. */
    expect_one("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid(%p : 2 by 1) {\n  %zero = const 0 : i64\n  %c = eq %p, %zero : bool\n  %v = const 1 : i32\n"
               "  if %c {\n    %w = load_ptr %x : i32\n    print \"w\", %w\n    yield\n  } else {\n    store_ptr %x, %v\n    yield\n  }\n}\n",
               args, NULL, TN_ERROR, 10, "program (1, 0, 0): store: a race: program (0, 0, 0) loads element 0 of %x too");
    expect_one(HEAD("read_write") "  %q = addptr %x, %y : ptr<i32>\n  %zero = const 0 : i64\n  %c = eq %pid, %zero : bool\n  %v = const 1 : i32\n"
                                  "  if %c {\n    store_ptr %q, %v\n    yield\n  } else {\n    %w = load_ptr %q : i32\n    print \"w\", %w\n    yield\n  }\n}\n",
               args, NULL, TN_ERROR, 10, "program (1, 0, 0): load: a race: program (0, 0, 0) stores element 0");
    /* All read; each writes its own; all add by atomics, and look at it. */
    expect_clean(HEAD("read") "  %v = load_ptr %x : i32\n}\n", args, NULL);
    expect_clean("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid(%p : 8 by 1) {\n  %q = addptr %x, %p : ptr<i32>\n  %v = load_ptr %q : i32\n  store_ptr %q, %v\n}\n", args, NULL);
    expect_clean(HEAD("read_write") "  %one = const 1 : 4 x i32\n  %b = broadcast %x axes [] : 4 x ptr<i32>\n  %v = atomic_ptr add %b, %one : 4 x i32\n}\n", args, NULL);
    /* A plain store to what others change by atomics. */
    checked c = check_text(HEAD("read_write") "  %one = const 1 : i32\n  %v = atomic_ptr add %x, %one order relaxed.gpu : i32\n  store_ptr %x, %one\n}\n", args, NULL);
    assert_int_equal(c.session->diags.len, 2); /* both lines */
    assert_non_null(strstr(c.session->diags.at[0].message, "program (1, 0, 0): atomic: a race: program (0, 0, 0) stores element 0 of %x too"));
    free_test_session(c.session);
}

/* The same through views, in halves of bytes, and of two parameters that are one memory. */
static void test_shared_memory(void **state)
{
    (void)state;
    int32_t x[8] = {0};
    uint8_t nibbles[2] = {0};
    expect_one("kernel @k(%x: i32 read, %y: i32 write) overlap grid(%p : 4 by 1) {\n  view %X = %x : [4] strides [1]\n  view %Y = %y : [4] strides [1]\n"
               "  %v = load %X[%p] : i32\n  store %Y[%p], %v\n}\n",
               (tn_tile_arg[]){{x, 4}, {x + 1, 4}}, NULL, TN_ERROR, 4, "program (1, 0, 0): load: a race: program (0, 0, 0) stores element 1 of %x");
    expect_clean("kernel @k(%x: i32 read, %y: i32 write) overlap grid(%p : 4 by 1) {\n  view %X = %x : [4] strides [1]\n  view %Y = %y : [4] strides [1]\n"
                 "  %v = load %X[%p] : i32\n  store %Y[%p], %v\n}\n",
                 (tn_tile_arg[]){{x, 4}, {x, 4}}, NULL);
    expect_one("kernel @k(%x: i4 write) grid(%p : 3 by 1) {\n  view %X = %x : [3] strides [1]\n  %v = const 1 : i4\n  store %X[%p], %v\n}\n", (tn_tile_arg[]){{nibbles, 3}},
               NULL, TN_ERROR, 4, "program (1, 0, 0): store: a race");
}

/* A lock that each program takes in turn orders what they do under it; without it, or relaxed, it is a race. */
static void test_locks(void **state)
{
    (void)state;
    int32_t x[2] = {0, 0};
    const char *text = "kernel @k(%%x: i32 read_write, %%x: ptr<i32>) grid(%%p : 4 by 1) {\n"
                       "  %%zero = const 0 : i32\n  %%one = const 1 : i32\n  %%next = const 1 : i64\n"
                       "  %%sum = addptr %%x, %%next : ptr<i32>\n"
                       "  while () {\n    %%old = cas_ptr %%x, %%zero, %%one order %s.gpu : i32\n    %%busy = eq %%old, %%one : bool\n    yield %%busy\n  } do () {\n    yield\n  }\n"
                       "  %%v = load_ptr %%sum : i32\n  %%w = add %%v, %%one : i32\n  store_ptr %%sum, %%w\n"
                       "  %%free = atomic_ptr exchange %%x, %%zero order %s.gpu : i32\n"
                       "}\n";
    char good[1024], bad[1024];
    snprintf(good, sizeof good, text, "acquire", "release");
    expect_clean(good, (tn_tile_arg[]){{x, 2}}, NULL);
    assert_int_equal(x[1], 4);
    snprintf(bad, sizeof bad, text, "relaxed", "relaxed");
    checked c = check_text(bad, (tn_tile_arg[]){{x, 2}}, NULL);
    assert_int_equal(c.session->diags.len, 2); /* the load, and the store */
    free_test_session(c.session);
}

/* A loop that waits for what no program will do. What changes memory or a carried value goes on, also if it changes it back later. */
static void test_loops_that_cannot_end(void **state)
{
    (void)state;
    int32_t x[2] = {0, 0};
    tn_tile_arg args[] = {{x, 2}};
    const char *lock = "kernel @k(%x: i32 read_write, %x: ptr<i32>) grid(%p : 4 by 1) {\n"
                       "  %zero = const 0 : i32\n  %one = const 1 : i32\n"
                       "  while () {\n    %old = cas_ptr %x, %zero, %one order acq_rel.gpu : i32\n    %busy = eq %old, %one : bool\n    yield %busy\n  } do () {\n    yield\n  }\n"
                       "}\n";
    expect_one(lock, args, NULL, TN_ERROR, 4, "kernel @k, program (1, 0, 0): while: this loop can't end: a turn changed nothing, and no other program runs in the checked mode");
    assert_int_equal(x[0], 1);
    expect_one(lock, args, NULL, TN_ERROR, 4, "program (0, 0, 0): while: this loop can't end"); /* held from the start */
    /* An exchange and a plain store write what is there already: no change either. */
    expect_one("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid() {\n  %one = const 1 : i32\n"
               "  while () {\n    %old = atomic_ptr exchange %x, %one : i32\n    %busy = eq %old, %one : bool\n    yield %busy\n  } do () {\n    store_ptr %x, %one\n    yield\n  }\n}\n",
               args, NULL, TN_ERROR, 3, "this loop can't end");
    /* A carried value that stays, though it is computed anew; NaN is what it was. */
    expect_one("kernel @k(%x: i32 read, %x: ptr<i32>) grid() {\n  %nan = const nan : f32\n  %one = const 1 : f32\n  %yes = const true : bool\n"
               "  %r = while (%a = %nan: f32) : f32 {\n    yield %yes\n  } do (%b: f32) {\n    %c = add %b, %one : f32\n    yield %c\n  }\n}\n",
               args, NULL, TN_ERROR, 5, "this loop can't end");
    /* Ends: by what it carries alone, by what memory counts alone, half a byte at a time, and with a turn that ends as it began but for one bit. */
    expect_clean("kernel @k(%x: i32 read, %x: ptr<i32>) grid() {\n  %z = const 0 : i32\n  %one = const 1 : i32\n  %most = const 5 : i32\n"
                 "  %r = while (%a = %z: i32) : i32 {\n    %go = lt %a, %most : bool\n    yield %go\n  } do (%b: i32) {\n    %c = add %b, %one : i32\n    yield %c\n  }\n}\n",
                 args, NULL);
    x[0] = 0;
    expect_clean("kernel @k(%x: i32 read_write, %x: ptr<i32>) grid() {\n  %one = const 1 : i32\n  %most = const 5 : i32\n"
                 "  while () {\n    %old = atomic_ptr add %x, %one : i32\n    %go = lt %old, %most : bool\n    yield %go\n  } do () {\n    yield\n  }\n}\n",
                 args, NULL);
    assert_int_equal(x[0], 6);
    uint8_t nibbles[2] = {0};
    expect_clean("kernel @k(%x: i4 read_write) grid() {\n  view %X = %x : [4] strides [1]\n  %i = const 3 : i64\n  %one = const 1 : i4\n  %most = const 5 : i4\n"
                 "  while () {\n    %v = load %X[%i] : i4\n    %go = lt %v, %most : bool\n    yield %go\n  } do () {\n"
                 "    %v = load %X[%i] : i4\n    %w = add %v, %one : i4\n    store %X[%i], %w\n    yield\n  }\n}\n",
                 (tn_tile_arg[]){{nibbles, 4}}, NULL);
    assert_int_equal(nibbles[1], 0x50);
    float zeros[1] = {0};
    expect_clean("kernel @k(%x: f32 read_write, %x: ptr<f32>) grid() {\n  %minus = const -0.0 : f32\n  %one = const 1 : i32\n  %none = const 0 : i32\n"
                 "  while () {\n    %v = load_ptr %x : f32\n    %bits = bitcast %v : i32\n    %go = eq %bits, %none : bool\n    yield %go\n  } do () {\n"
                 "    store_ptr %x, %minus\n    yield\n  }\n}\n",
                 (tn_tile_arg[]){{zeros, 1}}, NULL);
}

/* Sums and products that wrap: told where they reach an address that is used or a mask, and nowhere else. */
static void test_offsets_that_wrap(void **state)
{
    (void)state;
    int32_t x[8] = {0};
    tn_tile_arg args[] = {{x, 8}};
    /* %big * %big and %many * %many are 0 in 32 and 64 bits, so that the bounds say nothing; all eight programs do it, one is told. Lines 2 … 8 are the head. */
    const char *head = "kernel @k(%x: i32 read_write, %x: ptr<i32>) " GRID " {\n"
                       "  %big = const 65536 : i32\n  %many = const 4294967296 : i64\n  %most = const 2147483647 : i32\n  %one = const 1 : i32\n  %two = const 2 : i32\n"
                       "  %zero = const 0 : i64\n  %lanes = range %zero : 2 x i64\n";
    const char *load = "  %p = addptr %x, %o : ptr<i32>\n  %v = load_ptr %p : i32\n";
    const struct {
        const char *body;
        bool loads; /* from x + %o */
        int line;   /* 0: clean */
        const char *message;
    } cases[] = {
        {"  %o = mul %big, %big : i32\n", true, 9, "kernel @k, program (0, 0, 0): mul: an offset wraps in 32 bits (65536 * 65536 = 4294967296); cast to tl.int64 first"},
        {"  %o = mul %many, %many : i64\n", true, 9, "mul: an offset wraps in 64 bits (4294967296 * 4294967296)"},
        /* Of two that wrap the first is told; a difference; what is widened too late. */
        {"  %a = add %most, %most : i32\n  %o = add %a, %two : i32\n", true, 9, "(2147483647 + 2147483647 = 4294967294)"},
        {"  %m = neg %most : i32\n  %a = sub %m, %two : i32\n  %b = sub %a, %most : i32\n  %c = cast %b : i64\n  %o = max %c, %zero : i64\n", true, 10,
         "sub: an offset wraps in 32 bits (-2147483647 - 2 = -2147483649)"},
        {"  %m = neg %big : i32\n  %o = mul %big, %m : i32\n", true, 10, "(65536 * (-65536) = -4294967296)"},
        /* Through shapes, a choice, a loop that carries the offset, and one that carries the pointer. */
        {"  %a = mul %big, %big : i32\n  %b = broadcast %a axes [] : 2 x 2 x i32\n  %c = permute %b axes [1, 0] : 2 x 2 x i32\n  %d = reshape %c : 4 x i32\n"
         "  %q = broadcast %x axes [] : 4 x ptr<i32>\n  %p = addptr %q, %d : 4 x ptr<i32>\n  %v = load_ptr %p : 4 x i32\n",
         false, 9, "an offset wraps"},
        {"  %a = mul %big, %big : i32\n  %c = eq %one, %one : bool\n  %o = select %c, %a, %one : i32\n", true, 9, "an offset wraps"},
        {"  %a = mul %big, %big : i32\n  %c = eq %one, %two : bool\n  %o = select %c, %a, %one : i32\n", true, 0, NULL},
        {"  %step = const 1 : i64\n  %hi = const 3 : i64\n  %o = for (%j = %zero to %hi by %step) carry (%s = %big: i32) : i32 {\n    %t = mul %s, %big : i32\n    yield %t\n  }\n", true,
         12, "(65536 * 65536 = 4294967296)"},
        {"  %a = mul %big, %big : i32\n  %q = addptr %x, %a : ptr<i32>\n  %step = const 1 : i64\n  %hi = const 3 : i64\n"
         "  %r = for (%j = %zero to %hi by %step) carry (%s = %q: ptr<i32>) : ptr<i32> {\n    %v = load_ptr %s : i32\n    %t = addptr %s, %step : ptr<i32>\n    yield %t\n  }\n",
         false, 9, "an offset wraps"},
        /* A loop whose turns come anew: what wrapped in the turn before is forgotten. */
        {"  %step = const 1 : i64\n  %hi = const 3 : i64\n  %k = for (%j = %zero to %hi by %step) carry (%s = %big: i32) : i32 {\n    %u = mul %s, %big : i32\n    yield %one\n  }\n"
         "  %o = add %k, %one : i32\n",
         true, 0, NULL},
        /* A mask, also where it is false; an atomic's address. */
        {"  %a = mul %big, %big : i32\n  %m = lt %one, %a : bool\n  %v = load_ptr %x, %m : i32\n", false, 9, "mul: an offset wraps in 32 bits (65536 * 65536 = 4294967296)"},
        {"  %a = mul %big, %big : i32\n  %m = lt %one, %a : bool\n  %n = eq %one, %one : bool\n  %both = and %n, %m : bool\n  store_ptr %x, %one, %both\n", false, 9, "an offset wraps"},
        {"  %a = mul %big, %big : i32\n  %q = addptr %x, %a : ptr<i32>\n  %v = atomic_ptr add %q, %one : i32\n", false, 9, "an offset wraps"},
        /* One lane wraps: told if it takes part. Lane 1 is at 65536 * 65536. */
        {"  %i = cast %lanes : 2 x i32\n  %b = broadcast %big axes [] : 2 x i32\n  %r = mul %i, %b : 2 x i32\n  %a = mul %r, %b : 2 x i32\n"
         "  %q = broadcast %x axes [] : 2 x ptr<i32>\n  %p = addptr %q, %a : 2 x ptr<i32>\n  %v = load_ptr %p : 2 x i32\n",
         false, 12, "(65536 * 65536 = 4294967296)"},
        {"  %i = cast %lanes : 2 x i32\n  %b = broadcast %big axes [] : 2 x i32\n  %r = mul %i, %b : 2 x i32\n  %a = mul %r, %b : 2 x i32\n"
         "  %q = broadcast %x axes [] : 2 x ptr<i32>\n  %p = addptr %q, %a : 2 x ptr<i32>\n  %zs = broadcast %zero axes [] : 2 x i64\n  %m = eq %lanes, %zs : 2 x bool\n"
         "  %v = load_ptr %p, %m : 2 x i32\n",
         false, 0, NULL},
        /* Defined: wide from the start, the largest that fits, unsigned and narrow types, bits, and numbers that are no offsets. */
        {"  %a = cast %big : i64\n  %b = mul %a, %a : i64\n  %c = sub %b, %many : i64\n  %o = add %c, %zero : i64\n", true, 0, NULL},
        {"  %m = neg %most : i32\n  %a = sub %m, %one : i32\n  %b = add %a, %most : i32\n  %o = add %b, %two : i32\n", true, 0, NULL},
        {"  %a = cast %big : u32\n  %o = mul %a, %a : u32\n", true, 0, NULL},
        {"  %h = const 256 : i16\n  %o = mul %h, %h : i16\n", true, 0, NULL},
        {"  %a = mul %big, %big : i32\n  %o = and %a, %one : i32\n", true, 0, NULL},
        {"  %a = mul %big, %big : i32\n  %o = rem %a, %two : i32\n", true, 0, NULL},
        {"  %a = mul %big, %big : i32\n  %m = eq %y, %zero : bool\n  %f = eq %pid, %zero : bool\n  %first = and %m, %f : bool\n  store_ptr %x, %a, %first\n", false, 0, NULL},
        {"  %c = const 1103515245 : i32\n  %h = mul %big, %c : i32\n  %m = lt %h, %one : bool\n  %v = load_ptr %x, %m : i32\n", false, 0, NULL},
    };
    char text[2048];
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        snprintf(text, sizeof text, "%s%s%s}\n", head, cases[i].body, cases[i].loads ? load : "");
        memset(x, 0, sizeof x);
        if (cases[i].line)
            expect_one(text, args, NULL, TN_ERROR, cases[i].line, cases[i].message);
        else
            expect_clean(text, args, NULL);
    }
    /* Then the access is looked at as ever: it is out of bounds too. */
    snprintf(text, sizeof text, "%s  %%o = add %%most, %%two : i32\n%s}\n", head, load);
    checked c = check_text(text, args, NULL);
    assert_int_equal(c.session->diags.len, 2);
    assert_non_null(strstr(c.session->diags.at[0].message, "an offset wraps in 32 bits (2147483647 + 2 = 2147483649)"));
    assert_non_null(strstr(c.session->diags.at[1].message, "lies outside buffer %x"));
    free_test_session(c.session);
}

static void test_absent(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4};
    tn_tile_arg args[] = {{x, 4}};
    const char *head = "kernel @k(%%x: f32 read_write, %%x: ptr<f32>) grid(%%p : 2 by 1) {\n"
                       "  %%z = const 0 : i64\n  %%one = const 1 : i64\n  %%three = const 3 : 4 x i64\n  %%i = range %%z : 4 x i64\n"
                       "  %%m = lt %%i, %%three : 4 x bool\n  %%b = broadcast %%x axes [] : 4 x ptr<f32>\n  %%q = addptr %%b, %%i : 4 x ptr<f32>\n"
                       "  %%zeros = const 0 : 4 x f32\n"
                       "  %%a = load_ptr %%q, %%m%s : 4 x f32\n%s}\n";
    const char *carries = "  %c = for (%j = %z to %one by %one) carry (%s = %zeros: 4 x f32) : 4 x f32 {\n    %t = add %s, %a : 4 x f32\n    yield %t\n  }\n";
    const char *branches = "  %h = lt %z, %one : bool\n  %c = if %h : 4 x f32 {\n    yield %a\n  } else {\n    yield %zeros\n  }\n";
    const char *gathers = "  %g = gather %a, %i axes [0] : 4 x f32\n";
    const char *products = "  %r = reshape %a : 1 x 4 x f32\n  %t = reshape %a : 4 x 1 x f32\n  %d = dot %r, %t : 1 x 1 x f32\n";
    const char *fine = "  %s = reduce %a axes [0] order any identity [0] : f32 combine (%u: f32, %w: f32) {\n    %v = add %u, %w : f32\n    yield %v\n  }\n"
                       "  %e = exp %a : 4 x f32\n";
    const struct {
        const char *body;
        int line;
        const char *message;
    } cases[] = {{carries, 11, "for: masked lanes without `other` (the load of line 10) count as 0 in the value that the loop carries"},
                 {branches, 12, "if: masked lanes without `other` (the load of line 10) count as 0 in the branch's result"},
                 {gathers, 11, "gather: masked lanes without `other` (the load of line 10) count as 0 in what is gathered"},
                 {products, 13, "program (0, 0, 0): dot: masked lanes without `other` (the load of line 10) count as 0 in the product"}};
    char text[2048];
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        snprintf(text, sizeof text, head, "", cases[i].body);
        expect_one(text, args, NULL, TN_WARNING, cases[i].line, cases[i].message);
        snprintf(text, sizeof text, head, ", %zeros", cases[i].body);
        expect_clean(text, args, NULL);
    }
    snprintf(text, sizeof text, head, "", fine);
    expect_clean(text, args, NULL);
}

static void test_print(void **state)
{
    (void)state;
    float x[4] = {1.5f, 2, 3, 4};
    checked c = check_text("kernel @k(%x: f32 read, %x: ptr<f32>) grid(%z : 1 by 1, %y : 1 by 1, %p : 2 by 1) {\n"
                           "  %f = const 1.5 : 1 x 2 x f32\n  %i = const -1 : i16\n  %h = const true : bool\n"
                           "  print \" v: \", %f\n  print hex \"i\", %i\n  print \"two\", %i, %h\n  print \"here\"\n}\n",
                           (tn_tile_arg[]){{x, 4}}, NULL);
    assert_int_equal(c.status, TN_OK);
    const char *const want[] = {"pid (0, 0, 0) idx (0, 0) v: 1.500000", "pid (0, 0, 0) idx (0, 1) v: 1.500000", "pid (0, 0, 0) idx () i: 0xffff",
                                "pid (0, 0, 0) idx () two: (operand 0) -1", "pid (0, 0, 0) idx () two: (operand 1) 1", "pid (0, 0, 0) here",
                                "pid (1, 0, 0) idx (0, 0) v: 1.500000"};
    assert_int_equal(c.lines, 12);
    for (size_t i = 0; i < TN_COUNT(want); i++)
        assert_string_equal(c.line[i], want[i]);
    free_test_session(c.session);
}

static void test_limits(void **state)
{
    (void)state;
    char x;
    expect_one("kernel @k(%x: i8 read) grid() {\n}\n", (tn_tile_arg[]){{&x, (int64_t)1 << 40}}, NULL, TN_ERROR, 0, "the checked mode has no memory for buffers");
    expect_one("kernel @k() grid(%p : 4611686018427387904 by 1, %q : 4 by 1) {\n}\n", NULL, NULL, TN_ERROR, 0, "more programs than the checked mode counts");
    /* As in the unchecked run, what is not bound and what breaks a rule is told. */
    expect_one("kernel @k() grid(%p : 4 by $R) {\n}\n", NULL, NULL, TN_ERROR, 0, "$R is not bound");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_assertions), cmocka_unit_test(test_fresh),  cmocka_unit_test(test_races),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_locks),      cmocka_unit_test(test_absent), cmocka_unit_test(test_print),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_loops_that_cannot_end),
        cmocka_unit_test(test_offsets_that_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
