/* The Loop IR's text: what is printed reads back, what is wrong is refused with a message that says where and why. */
#include "loop_test.h"

#include "loop/internal.h"

static const char *const everything =
    "kernel @everything(%x: global f32 readonly align 64, %y: global f32, %z: global i4, %q: global c64, %n: index, %f: index of f32) {\n"
    "  %0 = const 0 : index\n"
    "  %1 = const 1 : index\n"
    "  %2 = const -0.5 : f32x4\n"
    "  %3 = const nan : f32\n"
    "  %4 = const true : bool\n"
    "  %big = const 18446744073709551615 : u64\n"
    "  %c = const (1, -2) : c64\n"
    "  store %q[%0], %c\n"
    "  %acc = alloc 4 : reg f32\n"
    "  %tmp = alloc %n : local f32x4\n"
    "  %5 = iota : i64x4\n"
    "  %6 = splat %4 : boolx4\n"
    "  %7 = load %x[%0] : f32x4\n"
    "  %8 = load %x[%1], mask %6 : f32x4\n"
    "  %9 = load %x[%1], mask %6, other %2 : f32x4\n"
    "  %10 = gather %x[%5], mask %6, other %7 : f32x4\n"
    "  store %tmp[%1], %10\n"
    "  scatter %y[%5], %9, mask %6\n"
    "  %11 = shuffle %8, %9, [0, 7, -1, 3, 4, 5, 6, 1] : f32x8\n"
    "  %12 = hreduce add %11 : f32\n"
    "  %13 = extract %7[%1] : f32\n"
    "  %14 = insert %7[%1], %12 : f32x4\n"
    "  %15 = fma %7, %14, %2 : f32x4\n"
    "  %16 = lt %15, %7 : boolx4\n"
    "  %17 = select %16, %15, %7 : f32x4\n"
    "  %18 = bitcast %17 : i32x4\n"
    "  %19 = cast %18 : u8x4\n"
    "  %20 = bitcast %19 : u32\n"
    "  %21 = intrinsic @x86.dot %17, %15 : f32x4\n"
    "  %22 = atomic add %y[%1], %13, mask %4 : f32\n"
    "  %old = atomic %y[%1], %13 : f32\n"
    "  %seen = cas %y[%1], %13, %old, mask %4 : f32\n"
    "  %all = memory : global f32\n"
    "  %at = address %y : index\n"
    "  %far = load %all[%at] : f32\n"
    "  print \"a \\\"{}\\\" \\\\ {x}, {{}\\x0a\", %far, %at\n"
    "  print \"\"\n"
    "  prefetch %x[%n]\n"
    "  for %i = %0 to %n step %1 grid {\n"
    "    for %j = %0 to %i step %1 {\n"
    "      for %i.1 = %0 to %j step %1 vector {\n"
    "        if %4 {\n"
    "          store %y[%i.1], %22\n"
    "        } else {\n"
    "          for %23 = %0 to %1 step %1 unroll {\n"
    "          }\n"
    "        }\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "  while {\n"
    "    %24 = load %y[%0] : f32\n"
    "    %25 = lt %24, %13 : bool\n"
    "    yield %25\n"
    "  } do {\n"
    "    trap %4, line 12\n"
    "  }\n"
    "}\n";

static const char *const threaded =
    "kernel @threaded(%x: global f32, %n: index multiple 16) threads 64 {\n"
    "  %t = thread : index\n"
    "  %s = alloc 64 at 512 : shared f32\n"
    "  %u = alloc 3 at 2 : shared f16\n"
    "  %0 = load %x[%t] : f32\n"
    "  store %s[%t], %0\n"
    "  barrier\n"
    "  fence\n"
    "  %1 = load %s[%t] : f32\n"
    "  %2 = lane_xor %1, 16 : f32\n"
    "  %3 = lane_at %2, %t : f32\n"
    "  %4 = asm \"=f,f\\x0aneg.f32 $0, $1;\", %3 : f32\n"
    "  store %x[%t], %4\n"
    "}\n";

static const char *const roles =
    "kernel @roles(%x: global i64, %begin: index, %end: index) threads 96 {\n"
    "  %t = thread : index\n"
    "  %one = const 1 : index\n"
    "  roles 64 {\n"
    "    for %p = %begin to %end step %one grid {\n"
    "      barrier\n"
    "      store %x[%t], %p\n"
    "    }\n"
    "  } else {\n"
    "    for %p.1 = %begin to %end step %one grid {\n"
    "      store %x[%t], %p.1\n"
    "    }\n"
    "  }\n"
    "  store %x[%t], %t\n"
    "  roles 64 instances 2 {\n"
    "  } else {\n"
    "  }\n"
    "}\n";

static void test_round_trip(void **state)
{
    (void)state;
    tn_session session = {0};
    assert_string_equal(kernel_text(parse_kernel(&session, everything)), everything);
    tn_lfunc *func = parse_kernel(&session, threaded);
    assert_string_equal(kernel_text(func), threaded);
    assert_string_equal(kernel_text(parse_kernel(&session, roles)), roles);
    assert_int_equal(tn_loop_shared_bytes(func), 768);
    const tn_lop *s = func->body->first->next;
    assert_int_equal(s->result->align, 512);
    assert_int_equal(s->next->result->align, 2);
    tn_arena_free(&session.arena);
}

static void test_build_roles(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = tn_lfunc_new(&session, "roles");
    func->threads = 96;
    tn_lvalue *x = tn_lfunc_buffer(func, "x", TN_I64, false, 0), *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *t = tn_l_thread(&b), *one = tn_l_index(&b, 1);
    t->name = tn_intern_z(&session, "t");
    one->name = tn_intern_z(&session, "one");
    tn_lop *op = tn_l_roles(&b, 64, 1);
    for (int i = 0; i < 2; i++) {
        tn_lbuilder in = tn_l_in(&b, op->region[i]);
        tn_lop *loop = tn_l_for(&in, i ? "p.1" : "p", begin, end, one, TN_FOR_GRID);
        in = tn_l_in(&in, loop->region[0]);
        if (i == 0)
            tn_l_barrier(&in);
        tn_l_store(&in, x, t, loop->region[0]->arg, NULL);
    }
    tn_l_store(&b, x, t, t, NULL);
    tn_l_roles(&b, 64, 2);
    assert_int_equal(tn_loop_verify(func, 0), TN_OK);
    assert_string_equal(kernel_text(func), roles);
    tn_arena_free(&session.arena);
}

/* What the builders make is what the text says. */
static void test_build_threaded(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = tn_lfunc_new(&session, "threaded");
    func->threads = 64;
    tn_lvalue *x = tn_lfunc_buffer(func, "x", TN_F32, false, 0);
    tn_lfunc_index(func, "n")->multiple = 16;
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *t = tn_l_thread(&b), *s = tn_l_alloc_shared(&b, "s", TN_F32, 64, 512);
    t->name = tn_intern_z(&session, "t");
    tn_l_alloc_shared(&b, "u", TN_F16, 3, 2);
    tn_l_store(&b, s, t, tn_l_load(&b, x, t, 1, NULL, NULL), NULL);
    tn_l_barrier(&b);
    tn_l_fence(&b, TN_SCOPE_GPU);
    tn_lvalue *y = tn_l_load(&b, s, t, 1, NULL, NULL);
    assert_ptr_equal(tn_l_lane_xor(&b, y, 0), y);
    y = tn_l_lane_at(&b, tn_l_lane_xor(&b, y, 16), t);
    tn_l_store(&b, x, t, tn_l_asm(&b, "=f,f\nneg.f32 $0, $1;", &y, 1, TN_F32), NULL);
    assert_int_equal(tn_loop_verify(func, 0), TN_OK);
    assert_string_equal(kernel_text(func), threaded);
    tn_arena_free(&session.arena);
}

/* Maps come first, equal ones are one; a size that is printed under another name is so in them too. */
static void test_maps(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = tn_lfunc_new(&session, "k");
    func->threads = 128;
    func->persistent = 3;
    tn_lvalue *x = tn_lfunc_buffer(func, "n", TN_BF16, true, 16);
    tn_lfunc_index(func, "n");
    tn_lfunc_index(func, "k");
    tn_dim zero = tn_dim_const(&session, 0), n = tn_dim_symbol(&session, "n"), k = tn_dim_symbol(&session, "k");
    tn_lmap map = {.buffer = x, .rank = 2, .offset = zero, .size = {k, n}, .stride = {NULL, k}, .box = {64, 8}, .swizzle = 128};
    tn_lvalue *a = tn_lfunc_map(func, &map), *b = tn_lfunc_map(func, &map);
    assert_ptr_equal(a, b);
    map.swizzle = 0;
    assert_ptr_not_equal(tn_lfunc_map(func, &map), a);
    map = (tn_lmap){.buffer = x, .rank = 1, .offset = k, .size = {tn_dim_ceildiv(&session, n, tn_dim_const(&session, 8))}, .box = {8}};
    tn_lfunc_map(func, &map);
    assert_int_equal(func->maps.len, 3);
    assert_int_equal(tn_loop_verify(func, 0), TN_OK);
    const char *text = kernel_text(func);
    assert_string_equal(text, "kernel @k(%n: global bf16 readonly align 16, %n.1: index, %k: index) threads 128 persistent 3 {\n"
                              "  map %n.map: bf16 of %n at 0 sizes (k, n.1) strides (k) box (64, 8) swizzle 128\n"
                              "  map %n.map.1: bf16 of %n at 0 sizes (k, n.1) strides (k) box (64, 8)\n"
                              "  map %n.map.2: bf16 of %n at k sizes (ceildiv(n.1, 8)) box (8)\n}\n");
    tn_lfunc *again = parse_kernel(&session, text);
    assert_true(again->persistent == 3 && again->maps.len == 3 && again->maps.at[1].swizzle == 0 && again->maps.at[2].rank == 1);
    assert_string_equal(kernel_text(again), text);
    for (int i = 0; i < TN_MOST_MAPS; i++) {
        map.offset = tn_dim_const(&session, 8 * i);
        tn_lfunc_map(func, &map);
    }
    assert_int_equal(tn_loop_verify(func, 0), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "kernel @k: a kernel has at most 16 maps, found 19"));
    tn_arena_free(&session.arena);
}

/* Literals stand for constants where an index is expected; comments are skipped. */
static void test_short_forms(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func = parse_kernel(
        &session, "// one store\nkernel @k(%y: global f32) {\n  %v = const 1 : f32\n  store %y[3], %v // here\n}\n");
    assert_string_equal(
        kernel_text(func),
        "kernel @k(%y: global f32) {\n  %v = const 1 : f32\n  %0 = const 3 : index\n  store %y[%0], %v\n}\n");
    tn_arena_free(&session.arena);
}

typedef struct refusal {
    const char *body, *message;
} refusal;

static const refusal refusals[] = {
    {"%a = add %x, %x : f32", "L3: operand 0 must be"},
    {"%a = const 1 : f32\n%b = add %a : f32", "L2: takes 2 operands, found 1"},
    {"%a = const 1 : f32\n%b = add %a, %n : f32", "L3: operand 0 must be index, found f32"},
    {"%a = const true : bool\n%b = sub %a, %a : bool", "L3: not defined for bool"},
    {"%a = add %n, %n contract : index", "L3: sums and products of f32 and f64 contract, and exp2 of f32, not add of i64"},
    {"%a = const 1 : f32\n%b = max %a, %a contract : f32", "L3: sums and products of f32 and f64 contract, and exp2 of f32, not max of f32"},
    {"%a = add %n, %n : f32", "L3: the result is index, declared f32"},
    {"%a = load %x[%n] : f64", "L3: a f64 in a buffer of f32"},
    {"%a = const 1 : f32\n%b = load %x[%a] : f32", "L3: the offset must be an index, found f32"},
    {"%a = load %x[%n] : f32\nstore %x[%n], %a", "L3: the buffer is readonly"},
    {"%a = const true : boolx2\n%b = load %x[%n], mask %a : f32", "L3: the mask must be bool, found boolx2"},
    {"%a = load %n[%n] : f32", "L3: operand 0 must be a buffer"},
    {"%a = iota : f32x4", "L3: gives integers"},
    {"%a = thread : index", "L3: is for a kernel with `threads`"},
    {"barrier", "L3: is for a kernel with `threads`"},
    {"%a = alloc 4 : shared f32", "L3: a shared buffer is for a kernel with `threads`"},
    {"%a = cast %n : f32x4", "L3: 1 lanes become 4"},
    {"%a = bitcast %n : f32", "L3: 64 bits become 32"},
    {"%a = const 1 : f32x3\n%b = hreduce add %a : f32", "needs a power of two of lanes"},
    {"%a = const 1 : f32x4\n%b = shuffle %a, %a, [0, 8] : f32x2", "L3: lane 8 of two vectors of 4"},
    {"%a = const 1 : f32x4\n%b = shuffle %a, %a, [0] : f32x2", "shuffle lists 1 lanes for a result of 2"},
    {"%a = alloc 4 : global f32", "L3: gives a local, reg or shared buffer"},
    {"%a = alloc %n : reg f32", "L3: a reg buffer has a constant size"},
    {"for %i = 0 to %n step 0 {\n}", "L4: the step must be positive, found 0"},
    {"if %n {\n}", "L3: takes a bool scalar, found index"},
    {"%c = const true : bool\nyield %c", "L4: stands only at the end of the first block of while"},
    {"while {\n} do {\n}", "L4: the first block must end in yield"},
    {"%a = frobnicate %n : index", "unknown operation `frobnicate`"},
    {"%a = const 1 : f33", "unknown element type `f33`"},
    {"%a = const 1 : f32x1000", "a vector has 1 to 256 lanes, found 1000"},
    {"%a = const one : f32", "`one` is no f32"},
    {"%a = add %n, %q : index", "%q is not defined here"},
    {"%n = const 1 : index", "%n is already defined"},
    {"const 1 : index", "the result of const needs a name"},
    {"%a = prefetch %x[%n]", "prefetch has no result"},
    {"for %i = 0 to %n {\n}", "expected `step`, found `{`"},
    {"for %i = 0 to %n step 1 {\n%a = add %i, %i : index\n}\n%b = add %a, %a : index", "%a is not defined here"},
    {"%a = alloc -1 : reg f32", "an alloc of -1 elements"},
    {"%a = memory : local f32", "L3: gives a global buffer of whole bytes, declared local f32"},
    {"%a = memory : global i4", "L3: gives a global buffer of whole bytes"},
    {"%a = memory : f32", "L3: gives a global buffer"},
    {"%a = address %n : index", "L3: takes a buffer, found index"},
    {"%a = address %x : f32", "L3: the result is index, declared f32"},
    {"%a = memory : global i64\nstore %a[%n], %n", "L3: may write %x, which is readonly"},
    {"%a = alloc 4 : local i64\n%b = const 1 : f32\n%c = cas %a[%n], %n, %b : index", "L3: expects a index, stores a f32"},
    {"%a = alloc 4 : local i64\n%c = cas %a[%n], %n : index", "expected `,`, found `:`"},
    {"%a = alloc 4 : local f32\n%b = load %a[%n] : f32\n%c = atomic eq %a[%n], %b : f32", "L3: takes a scalar and a function of two operands"},
    {"%a = alloc 4 : local f32\n%b = load %a[%n] : f32\n%c = atomic and %a[%n], %b : f32", "L3: takes a scalar and a function of two operands"},
    {"print \"{}\"", "L2: the text has 1 places for 0 values"},
    {"print \"{y}\", %n", "L2: a `{` in the text is `{}`, `{x}` or `{{`"},
    {"print \"a\\x00\"", "expected two hexadecimal digits that are not 00"},
    {"print \"a", "expected `\"`"},
    {"print \"{}\", %x", "L3: prints real scalars, found global f32"},
    {"%a = alloc 99999999999999999999 : reg f32", "expected an integer"},
};

static const refusal threaded_refusals[] = {
    {"%a = alloc %n : shared f32", "L3: a shared buffer has a constant size"},
    {"%a = alloc 4 : shared f32x2", "L3: a shared buffer has elements of whole bytes"},
    {"%a = alloc 4 : shared i4", "L3: a shared buffer has elements of whole bytes"},
    {"%a = alloc 4 at 2 : shared f32", "L3: a shared buffer of f32 lies at a multiple of 4 bytes, found 2"},
    {"%a = alloc 4 at -4 : shared f32", "L3: a shared buffer of f32 lies at a multiple of 4 bytes, found -4"},
    {"%a = alloc 9223372036854775807 at 4 : shared f32", "L3: no shared memory has 9223372036854775807 elements at 4"},
    {"%a = alloc 4 at 9223372036854775804 : shared f32", "L3: no shared memory has 4 elements"},
    {"%a = alloc 4 at 4 : local f32", "L3: `at` is for a shared buffer, declared local f32"},
    {"%a = alloc %n at 4 : reg f32", "expected `:`"},
    {"%a = lane_xor %n, 32 : index", "L3: a lane's number is below 32, found 32"},
    {"%a = lane_xor %n, -1 : index", "L3: a lane's number is below 32, found -1"},
    {"%a = lane_xor %n, 1 : f32", "L3: the result is index, declared f32"},
    {"%a = lane_xor %x, 1 : f32", "L3: takes a real scalar, found global f32"},
    {"%a = iota : i32x4\n%b = lane_xor %a, 1 : i32x4", "L3: takes a real scalar, found i32x4"},
    {"%a = const (1, 2) : c64\n%b = lane_at %a, 1 : c64", "L3: takes a real scalar, found c64"},
    {"%a = const 1 : f32\n%b = lane_at %n, %a : index", "L3: the lane must be an index, found f32"},
    {"%a = barrier", "barrier has no result"},
    {"roles 32 {\n} ", "expected `else`"},
    {"roles {\n} else {\n}", "expected an integer"},
    {"roles 16 {\n} else {\n}", "L4: the second block's first thread is a multiple of 32 below 64, found 16"},
    {"roles 64 {\n} else {\n}", "L4: the second block's first thread is a multiple of 32 below 64, found 64"},
    {"roles 32 instances 2 {\n} else {\n}", "L4: the second block's first thread is a multiple of 64 below 64, found 32"},
    {"roles 32 instances 0 {\n} else {\n}", "L4: the first block has 1 to 8 instances"},
    {"roles 32 instances 4000000000 {\n} else {\n}", "L4: the first block has 1 to 8 instances"},
    {"roles 32 instances {\n} else {\n}", "expected an integer"},
    {"roles 0 {\n} else {\n}", "L4: the second block's first thread is a multiple of 32 below 64, found 0"},
    {"roles 32 {\nroles 32 {\n} else {\n}\n} else {\n}", "L4: stands only at the top of a kernel"},
    {"for %i = 0 to %n step 1 {\nroles 32 {\n} else {\n}\n}", "L4: stands only at the top of a kernel"},
    {"%c = lt %n, %n : bool\nif %c {\nroles 32 {\n} else {\n}\n}", "L4: stands only at the top of a kernel"},
    {"roles 32 {\nmachine @fence_async\nmachine @wgmma_fence\n} else {\n}", "L3: @wgmma_fence is for a kernel, or a block of roles, whose `threads` are a multiple of 128"},
    {"roles 32 {\n%a = add %n, %n : index\n} else {\n%b = add %a, %n : index\n}", "%a is not defined here"},
};

/* Of %x: global f32 and %n, %h: index of f32; the kernel has %y: global i4 too. */
static const refusal map_refusals[] = {
    {"map %t: f32 of %x at 0 sizes (%n) box (4)", "expected a size, found `%`"},
    {"map %t: f32 of %x at 0 sizes () box (4)", "expected a size, found `)`"},
    {"map %t: f32 of %x at 0 sizes (floordiv(n, -1)) box (4)", "expected a size, found `floordiv`"},
    {"map %t: f32 of %x at 0 sizes (n, n, n, n, n, n) strides (n, n, n, n, n) box (4, 4, 4, 4, 4, 4)", "a map has 1 to 5 dimensions"},
    {"map %t: f32 of %x at 0 sizes (n, n) box (4)", "expected `strides`"},
    {"map %t: f32 of %x at 0 sizes (n) strides () box (4)", "expected `box`"},
    {"map %t: f32 of %x at 0 sizes (n, n) strides (n, n) box (4, 4)", "expected 1 sizes or strides, found more"},
    {"map %t: f32 of %x at 0 sizes (n, n, n) strides (n) box (4, 4)", "expected 2 sizes or strides, found 1"},
    {"map %t: f32 of %x at 0 sizes (n, n) strides (n) box (4)", "expected `,`"},
    {"map %t: f32 of %x at 0 sizes (n, n) strides (n) box (4, 257)", "a box has 1 to 256 elements along a dimension, found 257"},
    {"map %t: f32 of %x at 0 sizes (n) box (0)", "a box has 1 to 256 elements along a dimension, found 0"},
    {"map %t: bf16 of %x at 0 sizes (n) box (8)", "a map of bf16 is of a global buffer of that type, found global f32"},
    {"map %t: index of %n at 0 sizes (n) box (8)", "a map of i64 is of a global buffer of that type, found index"},
    {"map %t: f32x4 of %x at 0 sizes (n) box (8)", "is of a global buffer of that type"},
    {"map %n: f32 of %x at 0 sizes (n) box (4)", "%n is already defined"},
    {"map %t: f32 of %q at 0 sizes (n) box (4)", "%q is not defined"},
    {"%a = thread : index\nmap %t: f32 of %x at 0 sizes (n) box (4)", "unknown operation `map`"},
    {"map %t: i4 of %y at 0 sizes (n) box (4)", "map %t: its elements have 1, 2, 4 or 8 bytes, found i4"},
    {"map %t: f32 of %x at 0 sizes (m) box (4)", "map %t: `m` is no size that the kernel is called with"},
    {"map %t: f32 of %x at end sizes (n) box (4)", "map %t: `end` is no size that the kernel is called with"},
    {"map %t: f32 of %x at 0 sizes (n, n) strides (h) box (4, 1)", "map %t: %h holds no integer"},
    {"map %t: f32 of %x at 0 sizes (n) box (6)", "a row of a box is a multiple of 16 bytes, found 24"},
    {"map %t: f32 of %x at 0 sizes (n) box (8) swizzle 16", "the swizzle is 0, 32, 64 or 128 bytes"},
    {"map %t: f32 of %x at 0 sizes (n) box (8) swizzle -1", "the swizzle is 0, 32, 64 or 128 bytes"},
    {"map %t: f32 of %x at 0 sizes (n) box (8) swizzle 128", "a row of a box is the swizzle's 128 bytes, found 32"},
    {"map %t: f32 of %x at 0 sizes (n) box (64) swizzle 128", "a row of a box is the swizzle's 128 bytes, found 256"},
    {"map %t: f32 of %x at 2 sizes (n) box (8)", "it starts at a multiple of 16 bytes, found 2 elements"},
    {"map %t: f32 of %x at -4 sizes (n) box (8)", "it starts at a multiple of 16 bytes, found -4 elements"},
    {"map %t: f32 of %x at 0 sizes (n, 4) strides (6) box (4, 1)", "a stride is a multiple of 16 bytes below 2^40, found 6 elements"},
    {"map %t: f32 of %x at 0 sizes (n, 4) strides (-4) box (4, 1)", "a stride is a multiple of 16 bytes below 2^40, found -4 elements"},
    {"map %t: f32 of %x at 0 sizes (n, 4) strides (1099511627776) box (4, 1)", "a stride is a multiple of 16 bytes below 2^40"},
    {"map %t: f32 of %x at 0 sizes (4294967296) box (4)", "a size is below 2^32, found 4294967296"},
    {"map %t: f32 of %x at 0 sizes (-1) box (4)", "a size is below 2^32, found -1"},
    {"map %t: f32 of %x at 0 sizes (n) box (4)\n%a = load %t[%n] : f32", "L3: a map is no memory"},
    {"map %t: f32 of %x at 0 sizes (n) box (4)\nprefetch %t[%n]", "L3: a map is no memory"},
    {"map %t: f32 of %x at 0 sizes (n) box (4)\n%a = alloc 1 : map f32", "unknown element type `map`"},
    {"map %t: f32 of %x at 0 sizes (n) box (4)\n%s = alloc 4 at 0 : shared f32\nmachine @box_store_1 %t, %n, %s[0]", "L3: the buffer is readonly"},
    {"map %t: f32 of %x at 0 sizes (n) box (4)\nmachine @copy_commit %t", "L2: @copy_commit takes 0 operands, found 1"},
};

static void check_refusals(const refusal *refusals, size_t n, const char *threads)
{
    for (size_t i = 0; i < n; i++) {
        tn_session session = {0};
        const char *text =
            tn_format(&session.arena, "kernel @k(%%x: global f32 readonly, %%y: global i4 readonly, %%n: index, %%h: index of f32, %%end: index) %s {\n%s\n}\n", threads, refusals[i].body);
        tn_lfuncs funcs = {0};
        if (tn_loop_parse(&session, "k.tn", text, strlen(text), &funcs) != TN_INVALID)
            fail_msg("%s\nwas not refused", refusals[i].body);
        assert_int_equal(session.diags.len, 1);
        if (!strstr(session.diags.at[0].message, refusals[i].message))
            fail_msg("%s\nexpected: %s\nfound: %s", refusals[i].body, refusals[i].message, session.diags.at[0].message);
        tn_arena_free(&session.arena);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const refusal lanes[] = {{"%a = lane_xor %n, 1 : index", "L3: is for a kernel whose `threads` are a multiple of 32"}};
    check_refusals(refusals, TN_COUNT(refusals), "");
    check_refusals(threaded_refusals, TN_COUNT(threaded_refusals), "threads 64");
    check_refusals(map_refusals, TN_COUNT(map_refusals), "threads 64");
    static const refusal unthreaded[] = {{"map %t: f32 of %x at 0 sizes (n) box (4)", "map %t: it is for a kernel with `threads`"}};
    check_refusals(unthreaded, 1, "");
    static const refusal persistent[] = {{"", "a persistent kernel has 1 to 64 blocks for each processor"}};
    check_refusals(persistent, 1, "threads 64 persistent 0");
    check_refusals(persistent, 1, "threads 64 persistent 65");
    static const refusal alone[] = {{"", "expected `{`, found `persistent`"}};
    check_refusals(alone, 1, "persistent 1");
    check_refusals(lanes, 1, "threads 48");
    static const refusal uneven[] = {{"roles 32 {\n} else {\n}", "L4: is for a kernel whose `threads` are a multiple of 32"}};
    check_refusals(uneven, 1, "threads 48");
    check_refusals(uneven, 1, "");
    check_refusals(lanes, 1, "");
}

static void test_position(void **state)
{
    (void)state;
    tn_session session = {0};
    const char *text = "kernel @k(%n: index) {\n  %a = add %n, %m : index\n}\n";
    tn_lfuncs funcs = {0};
    assert_int_equal(tn_loop_parse(&session, "k.tn", text, strlen(text), &funcs), TN_INVALID);
    assert_int_equal(session.diags.at[0].loc.line, 2);
    assert_int_equal(session.diags.at[0].loc.column, 17);
    tn_arena_free(&session.arena);
}

/* Damaged texts are refused or read, never worse. */
static void damage(const char *whole, int rounds)
{
    size_t len = strlen(whole);
    uint64_t random = 7;
    for (int i = 0; i < rounds; i++) {
        tn_session session = {0};
        char *text = tn_strdup(&session.arena, whole);
        size_t n = len;
        if (i % 3 == 0)
            n = next_random(&random) % len;
        for (int k = 0; k < 1 + i % 4; k++)
            text[next_random(&random) % len] =
                i % 2 ? (char)next_random(&random) : whole[next_random(&random) % len];
        char *exact = malloc(n + 1); /* its own block, so that reading past the end shows */
        memcpy(exact, text, n);
        tn_lfuncs funcs = {0};
        if (tn_loop_parse(&session, "k.tn", exact, n, &funcs) != TN_OK)
            assert_true(session.errors > 0);
        free(exact);
        tn_arena_free(&session.arena);
    }
}

static void test_damage(void **state)
{
    (void)state;
    damage(everything, 4000);
    damage("kernel @k(%x: global bf16 readonly align 16, %n: index, %k: index of i32, %end: index) threads 128 persistent 2 {\n"
           "  map %t: bf16 of %x at 8*n sizes (k, ceildiv(n, 4), min(n, 16), 3, mod(n, 7)) strides (k, 4*k, floordiv(k, 2), 16) box (64, 1, 8, 3, 1) swizzle 128\n"
           "  map %u: bf16 of %x at 0 sizes (n) box (8)\n  %a = address %u : index\n}\n", 4000);
}

static void test_deep_nesting(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_text text = {.arena = &session.arena};
    tn_text_add(&text, "kernel @k(%%n: index) {\n");
    for (int i = 0; i < 100000; i++)
        tn_text_add(&text, "for %%i%d = 0 to %%n step 1 {\n", i);
    tn_lfuncs funcs = {0};
    assert_int_equal(tn_loop_parse(&session, "k.tn", text.at, text.len, &funcs), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "blocks nest more than 200 deep"));
    tn_arena_free(&session.arena);
}

/* After vectorize: L5. */
static void test_stage(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *loop = parse_kernel(&session, "kernel @k(%n: index) {\n  for %i = 0 to %n step 1 vector {\n  }\n}\n");
    assert_int_equal(tn_loop_verify(loop, 0), TN_OK);
    assert_int_equal(tn_loop_verify(loop, 256), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "L5: no loop of kind vector is left"));
    tn_lfunc *wide = parse_kernel(&session, "kernel @k() {\n  %a = iota : i64x8\n  %b = iota : i8x32\n}\n");
    assert_int_equal(tn_loop_verify(wide, 512), TN_OK);
    assert_int_equal(tn_loop_verify(wide, 256), TN_INVALID);
    assert_non_null(strstr(session.diags.at[1].message, "L5: i64x8 has 512 bits, the machine's vectors 256"));
    tn_arena_free(&session.arena);
}

/* The interpreter refuses what a machine would do silently. */
static void test_bounds(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_lfunc *func =
        parse_kernel(&session, "kernel @k(%x: global f32, %n: index) {\n  %v = load %x[%n] : f32x4\n  store %x[0], %v\n"
                               "  %c = lt %n, %n : bool\n  trap %c, line 7\n}\n");
    float data[8] = {0};
    tn_loop_arg args[] = {{data, 8}};
    assert_int_equal(tn_loop_interpret(func, args, (int64_t[]){5}), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "offset 8 (lane 3) of a buffer of 8 elements"));
    assert_int_equal(tn_loop_interpret(func, args, (int64_t[]){4}), TN_INVALID);
    assert_non_null(strstr(session.diags.at[1].message, "the condition of line 7 does not hold"));
    tn_arena_free(&session.arena);
}

/* The threads of a GPU's kernel. */
static void test_threads(void **state)
{
    (void)state;
    tn_session session = {0};
    const char *text = "kernel @k(%x: global i64, %n: index) threads 6 {\n  %t = thread : index\n  %all = const 6 : index\n  for %i = %t to %n step %all {\n    store %x[%i], %t\n  }\n}\n";
    tn_lfunc *func = parse_kernel(&session, text);
    assert_int_equal(func->threads, 6);
    tn_text again = {.arena = &session.arena};
    tn_text_lfunc(&again, func);
    assert_string_equal(again.at, text);
    int64_t data[20];
    memset(data, -1, sizeof data);
    assert_int_equal(tn_loop_interpret(func, (tn_loop_arg[]){{data, 20}}, (int64_t[]){19}), TN_OK);
    for (int64_t i = 0; i < 20; i++)
        assert_int_equal(data[i], i < 19 ? i % 6 : -1);
    tn_lfuncs none = {0};
    static const char *const wrong[] = {"kernel @k() threads 0 {\n}\n", "kernel @k() threads 1025 {\n}\n", "kernel @k() threads -1 {\n}\n", "kernel @k() threads {\n}\n"};
    for (size_t i = 0; i < TN_COUNT(wrong); i++)
        assert_int_equal(tn_loop_parse(&session, "t", wrong[i], strlen(wrong[i]), &none), TN_INVALID);
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_build_threaded), cmocka_unit_test(test_maps), cmocka_unit_test(test_short_forms), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_position),   cmocka_unit_test(test_damage),      cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_stage),      cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_build_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
