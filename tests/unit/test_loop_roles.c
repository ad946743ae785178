/* Roles, mbarriers and boxes of maps in the interpreter: what a ring between a producer and its consumers computes, and each mistake that it reports. */
#include "loop_test.h"

enum { COLUMNS = 8, ROWS = 4, TILE = COLUMNS * ROWS, MOST_TILES = 9 };

static int32_t x[MOST_TILES * TILE], y[MOST_TILES * TILE], z[MOST_TILES * TILE];

/* What of the ring a test leaves out or changes; NULL: as it should be. */
typedef struct ring {
    const char *empty_wait, *full_wait, *expect, *arrive, *store_wait, *last_wait, *init;
} ring;

/* One warp loads boxes into a ring of two; two warps double and triple what comes: one by a box of shared memory, one element by element. */
static const char *ring_text(tn_session *session, const ring *r)
{
#define PART(name, usual) (r->name ? r->name : (usual))
    return tn_format(&session->arena,
                     "kernel @ring(%%x: global i32 readonly align 16, %%y: global i32 align 16, %%z: global i32, %%m: index, %%begin: index, %%end: index) threads 96 persistent 1 {\n"
                     "map %%a: i32 of %%x at 0 sizes (8, m) strides (8) box (8, 4)\nmap %%b: i32 of %%y at 0 sizes (8, m) strides (8) box (8, 4)\n"
                     "%%t = thread : index\n%%s = alloc 64 at 0 : shared i32\n%%o = alloc 32 at 256 : shared i32\n%%full = alloc 2 at 384 : shared i64\n"
                     "%%empty = alloc 2 at 400 : shared i64\n%%c0 = const 0 : index\n%%one = const 1 : index\n%%two = const 2 : index\n%%four = const 4 : index\n"
                     "%%c32 = const 32 : index\n%%bytes = const 128 : index\n%%c64 = const 64 : index\n"
                     "%%start = eq %%t, %%c0 : bool\nif %%start {\n%smachine @mbarrier_fence\n}\nbarrier\n"
                     "%%lane = rem %%t, %%c32 : index\n%%warp = div %%t, %%c32 : index\n%%leads = eq %%lane, %%c0 : bool\n"
                     "roles 64 {\nfor %%p = %%begin to %%end step 1 grid {\n%%n = sub %%p, %%begin : index\n%%slot = rem %%n, %%two : index\n%%turn = div %%n, %%two : index\n"
                     "%%parity = rem %%turn, %%two : index\n%s\n%%first = mul %%slot, %%c32 : index\n%%e = add %%first, %%lane : index\n%%v = load %%s[%%e] : i32\n"
                     "if %%leads {\n%s\n}\n%%doubles = eq %%warp, %%c0 : bool\n%%w = add %%v, %%v : i32\nif %%doubles {\nstore %%o[%%lane], %%w\nmachine @fence_async\n}\nbarrier\n"
                     "if %%start {\n%%row = mul %%p, %%four : index\nmachine @box_store_2 %%b, %%c0, %%row, %%o[0]\nmachine @box_store_commit\n%s\n}\nbarrier\n"
                     "if %%doubles {\n} else {\n%%u = add %%w, %%v : i32\n%%f = mul %%p, %%c32 : index\n%%g = add %%f, %%lane : index\nstore %%z[%%g], %%u\n}\n}\n"
                     "if %%start {\n%s\n}\nbarrier\n"
                     "} else {\n%%leader = eq %%t, %%c64 : bool\nif %%leader {\nmachine @box_prefetch %%a\nfor %%p = %%begin to %%end step 1 grid {\n%%n = sub %%p, %%begin : index\n"
                     "%%slot = rem %%n, %%two : index\n%%turn = div %%n, %%two : index\n%%later = add %%turn, %%one : index\n%%parity = rem %%later, %%two : index\n"
                     "%s\n%s\n%%row = mul %%p, %%four : index\n%%first = mul %%slot, %%c32 : index\n"
                     "machine @box_load_2 %%s[%%first], %%a, %%c0, %%row, %%full[%%slot]\n}\n}\n}\n}\n",
                     PART(init, "machine @mbarrier_init %full[0], 1\nmachine @mbarrier_init %full[1], 1\nmachine @mbarrier_init %empty[0], 2\nmachine @mbarrier_init %empty[1], 2\n"),
                     PART(full_wait, "machine @mbarrier_wait %full[%slot], %parity"), PART(arrive, "machine @mbarrier_arrive %empty[%slot]"),
                     PART(store_wait, "machine @box_store_wait 0"), PART(last_wait, "machine @box_store_wait 0"), PART(empty_wait, "machine @mbarrier_wait %empty[%slot], %parity"),
                     PART(expect, "machine @mbarrier_expect %full[%slot], %bytes"));
#undef PART
}

static tn_status run_ring(tn_session *session, const ring *r, int64_t rows, int64_t tiles)
{
    for (int i = 0; i < MOST_TILES * TILE; i++)
        x[i] = 7 * i + 3, y[i] = z[i] = -1;
    tn_lfunc *func = parse_kernel(session, ring_text(session, r));
    return tn_loop_interpret(func, (tn_loop_arg[]){{x, rows * COLUMNS}, {y, rows * COLUMNS}, {z, MOST_TILES * TILE}}, (int64_t[]){rows, 0, tiles});
}

/* Rows that are not there: zeros where they are loaded, nothing where they are stored. */
static void test_ring(void **state)
{
    (void)state;
    for (int64_t tiles = 0; tiles <= MOST_TILES; tiles++)
        for (int64_t missing = 0; missing < ROWS && missing <= tiles * ROWS; missing++) {
            tn_session session = {0};
            int64_t rows = tiles * ROWS - missing;
            if (run_ring(&session, &(ring){0}, rows, tiles) != TN_OK) {
                tn_print_diags(&session, stderr);
                fail_msg("a ring over %d tiles", (int)tiles);
            }
            for (int i = 0; i < MOST_TILES * TILE; i++) {
                assert_int_equal(y[i], i < rows * COLUMNS ? 2 * x[i] : -1);
                assert_int_equal(z[i], i < rows * COLUMNS ? 3 * x[i] : i < tiles * TILE ? 0 : -1);
            }
            tn_arena_free(&session.arena);
        }
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        ring ring;
        const char *message;
    } cases[] = {
        {{.empty_wait = ""}, "thread 64 arrives at the mbarrier at byte 384, where all 1 have arrived in phase 0"},
        {{.full_wait = ""}, "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
        {{.full_wait = "machine @mbarrier_wait %full[%slot], %one"}, "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
        {{.expect = "machine @mbarrier_expect %full[%slot], %c64"},
         "no thread can go on: thread 0 waits for parity 0 of the mbarrier at byte 384, in whose phase 0 0 of 1 arrivals and -64 bytes are missing, and thread 64 waits for parity 0 "
         "of the mbarrier at byte 400, in whose phase 0 2 of 2 arrivals and 0 bytes are missing"},
        {{.expect = "%much = const 256 : index\nmachine @mbarrier_expect %full[%slot], %much"}, "in whose phase 0 0 of 1 arrivals and 128 bytes are missing"},
        {{.expect = "machine @mbarrier_arrive %full[%slot]"}, "load: thread 0 reads element 0 of %s in shared memory, which nothing has written"},
        {{.expect = ""}, "in whose phase 0 1 of 1 arrivals and 0 bytes are missing"},
        {{.arrive = ""}, "thread 64 waits for parity 0 of the mbarrier at byte 400, in whose phase 0 2 of 2 arrivals and 0 bytes are missing"},
        {{.arrive = "if %start {\nmachine @mbarrier_arrive %empty[%slot]\n}"}, "1 of 2 arrivals and 0 bytes are missing"},
        {{.store_wait = ""}, "was written before thread 0 had waited for the box that it stores from there"},
        {{.store_wait = "machine @box_store_wait 1"}, "was written before thread 0 had waited for the box that it stores from there"},
        {{.init = "machine @mbarrier_init %full[0], 1\nmachine @mbarrier_init %empty[0], 2\nmachine @mbarrier_init %empty[1], 2\n"},
         "machine: thread 64 reads element 1 of %full in shared memory, which nothing has written"},
        {{.init = "machine @mbarrier_init %full[0], 1\nstore %full[1], %one\nmachine @mbarrier_init %empty[0], 2\nmachine @mbarrier_init %empty[1], 2\n"},
         "machine: thread 64: no mbarrier is at byte 392 of shared memory"},
        {{.init = "machine @mbarrier_init %full[0], 0\n"}, "an mbarrier for 0 arrivals at byte 384"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        assert_refused(&session, run_ring(&session, &cases[i].ring, MOST_TILES * ROWS, MOST_TILES), cases[i].message, i);
        tn_arena_free(&session.arena);
    }
}

/* ---- boxes of every shape ---- */

static uint16_t image[5 * 6 * 7 * 128], out[64 * 64];

/* Where a byte of a box lies, from what the hardware says: bits 4 to 6 of the address by bits 7 to 9, fewer of them for narrower rows. */
static int lies_at(int byte, int swizzle)
{
    int bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
    return byte ^ ((byte / 128 & bits) * 16);
}

/* A box of 3 dimensions, that sticks out at any side, is read from shared memory as it lies there. */
static void test_boxes(void **state)
{
    (void)state;
    static const int swizzles[] = {0, 32, 64, 128};
    static const int places[][3] = {{0, 0, 0}, {-3, -1, -2}, {100, 3, 4}, {5, -7, 0}, {200, 0, 0}, {-70, 1, 1}, {61, 5, 5}, {1, 0, 2}};
    enum { W = 126, H = 6, D = 7, ROW = 128, PLANE = ROW * H };
    for (int i = 0; i < (int)TN_COUNT(image); i++)
        image[i] = (uint16_t)(i + 1);
    for (size_t s = 0; s < TN_COUNT(swizzles); s++)
        for (size_t p = 0; p < TN_COUNT(places); p++) {
            tn_session session = {0};
            int columns = swizzles[s] ? swizzles[s] / 2 : 24, n = columns * 3 * 4, at = 1024 * (p % 2) + (swizzles[s] ? 0 : 128);
            const char *text = tn_format(&session.arena,
                                         "kernel @box(%%x: global u16 readonly align 16, %%y: global u16, %%i: index, %%j: index, %%k: index) threads 32 {\n"
                                         "map %%m: u16 of %%x at 0 sizes (%d, %d, %d) strides (%d, %d) box (%d, 3, 4)%s\n%%t = thread : index\n%%s = alloc %d at %d : shared u16\n"
                                         "%%bar = alloc 1 at 8192 : shared i64\n%%c0 = const 0 : index\n%%start = eq %%t, %%c0 : bool\n%%bytes = const %d : index\n"
                                         "if %%start {\nmachine @mbarrier_init %%bar[0], 1\nmachine @mbarrier_fence\nmachine @mbarrier_expect %%bar[0], %%bytes\n"
                                         "machine @box_load_3 %%s[0], %%m, %%i, %%j, %%k, %%bar[0]\n}\nbarrier\nmachine @mbarrier_wait %%bar[0], %%c0\n"
                                         "for %%e = %%t to %d step 32 {\n%%v = load %%s[%%e] : u16\nstore %%y[%%e], %%v\n}\n}\n",
                                         W, H, D, ROW, PLANE, columns, swizzles[s] ? tn_format(&session.arena, " swizzle %d", swizzles[s]) : "", n, at, 2 * n, n);
            tn_lfunc *func = parse_kernel(&session, text);
            if (tn_loop_interpret(func, (tn_loop_arg[]){{image, (D - 1) * PLANE + (H - 1) * ROW + W}, {out, n}}, (int64_t[]){places[p][0], places[p][1], places[p][2]}) != TN_OK) {
                tn_print_diags(&session, stderr);
                fail_msg("%s", text);
            }
            for (int e = 0; e < n; e++) {
                int c = places[p][0] + e % columns, r = places[p][1] + e / columns % 3, d = places[p][2] + e / columns / 3;
                bool there = c >= 0 && c < W && r >= 0 && r < H && d >= 0 && d < D;
                assert_int_equal(out[(lies_at(at + 2 * e, swizzles[s]) - at) / 2], there ? image[d * PLANE + r * ROW + c] : 0);
            }
            tn_arena_free(&session.arena);
        }
}

/* One warp alone, and what it may not do. */
static void test_wrong_boxes(void **state)
{
    (void)state;
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"machine @box_load_1 %s[8], %m, %c0, %bar[0]", "thread 0: a box at byte 16 of shared memory, which is no multiple of 128"},
        {"machine @box_load_1 %s[0], %m, %c0, %bar[0]", "the box that thread 0 loads to byte 0 of shared memory is still under way: nobody has waited for it"},
        {"machine @box_load_1 %s[65], %m, %c0, %bar[0]", "thread 0: elements 65 to 129 of a buffer of 128"},
        {"machine @box_load_1 %s[0], %m, %c0, %bar[1]", "reads element 1 of %bar in shared memory, which nothing has written"},
        {"machine @box_load_1 %s[0], %far, %c0, %bar[0]", "elements 9000 to 9064 of a buffer of 64"},
        {"machine @box_store_1 %m, %c0, %s[0]", "reads element 0 of %s in shared memory, which nothing has written"},
        {"machine @mbarrier_wait %bar[0], %c0", "no thread can go on: thread 0 waits for parity 0 of the mbarrier at byte 256, in whose phase 0 1 of 1 arrivals and 0 bytes are missing"},
        {"machine @mbarrier_arrive %bar[0]\nmachine @mbarrier_arrive %bar[0]\nmachine @mbarrier_wait %bar[0], %c0", "thread 0 waits for parity 0 of the mbarrier at byte 256, in whose phase 2"},
        {"for %i = 0 to 64 step 1 {\n%v = load %x[%i] : u16\nstore %s[%i], %v\n}\nmachine @box_store_1 %m, %c0, %s[0]\nmachine @box_store_commit\nmachine @box_store_wait 1",
         "the box that thread 0 stores from byte 0 of shared memory is still read: the thread has not waited for it"},
        {"for %i = 0 to 64 step 1 {\n%v = load %x[%i] : u16\nstore %s[%i], %v\n}\nmachine @box_store_1 %m, %c0, %s[0]\nmachine @box_store_wait 0",
         "the box that thread 0 stores from byte 0 of shared memory is still read: the thread has not waited for it"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        const char *text = tn_format(&session.arena,
                                     "kernel @box(%%x: global u16 align 16, %%n: index) threads 32 {\nmap %%m: u16 of %%x at 0 sizes (64) box (64)\n"
                                     "map %%far: u16 of %%x at 8*n sizes (64) box (64)\n%%t = thread : index\n"
                                     "%%s = alloc 128 : shared u16\n%%bar = alloc 2 at 256 : shared i64\n%%c0 = const 0 : index\n%%start = eq %%t, %%c0 : bool\n"
                                     "if %%start {\nmachine @mbarrier_init %%bar[0], 1\n%s\n}\n}\n", cases[i].body);
        assert_int_equal(tn_loop_interpret(parse_kernel(&session, text), (tn_loop_arg[]){{image, 64}}, (int64_t[]){1125}), TN_INVALID);
        if (!strstr(session.diags.at[0].message, cases[i].message))
            fail_msg("%s\nexpected: %s\nfound: %s", cases[i].body, cases[i].message, session.diags.at[0].message);
        tn_arena_free(&session.arena);
    }
    tn_session session = {0};
    const char *text = "kernel @box(%x: global u16 align 16, %n: index) threads 32 {\n  map %m: u16 of %x at 0 sizes (8, 8) strides (n) box (8, 8)\n}\n";
    assert_int_equal(tn_loop_interpret(parse_kernel(&session, text), (tn_loop_arg[]){{image, 64}}, (int64_t[]){8}), TN_OK);
    assert_int_equal(tn_loop_interpret(parse_kernel(&session, text), (tn_loop_arg[]){{image, 64}}, (int64_t[]){12}), TN_INVALID);
    assert_non_null(strstr(session.diags.at[0].message, "a stride of 12 elements, which is no multiple of 16 bytes"));
    tn_arena_free(&session.arena);
}

/* ---- roles ---- */

static int64_t data[96];

static void test_roles(void **state)
{
    (void)state;
    tn_session session = {0};
    /* Barriers of each block are its own, and behind both all have met: what one block wrote, the others read. */
    const char *text = "kernel @k(%x: global i64, %n: index) threads 96 {\n%t = thread : index\n%s = alloc 96 : shared i64\n%one = const 1 : index\n%last = const 95 : index\n"
                       "roles 32 {\nfor %i = 0 to 3 step 1 {\nbarrier\n}\nstore %s[%t], %t\nbarrier\n} else {\n%u = add %t, %t : index\nstore %s[%t], %u\nbarrier\n}\n"
                       "%r = sub %last, %t : index\n%v = load %s[%r] : i64\nroles 64 {\nstore %x[%t], %v\n} else {\nstore %x[%t], %one\n}\n}\n";
    if (tn_loop_interpret(parse_kernel(&session, text), (tn_loop_arg[]){{data, 96}}, (int64_t[]){1}) != TN_OK) {
        tn_print_diags(&session, stderr);
        fail();
    }
    for (int t = 0; t < 96; t++)
        assert_int_equal(data[t], t >= 64 ? 1 : 2 * (95 - t));
    static const struct {
        const char *body, *message;
    } wrong[] = {
        {"roles 32 {\nif %few {\nbarrier\n}\n} else {\n}\n", "barrier: 5 of 32 threads reach it"},
        {"roles 32 {\n} else {\n%d = sub %t, %n : index\n%c = lt %d, %c32 : bool\nif %c {\nbarrier\n}\n}\n", "barrier: 5 of 64 threads reach it"},
        {"roles 64 instances 2 {\nif %few {\nbarrier\n}\n} else {\n}\n", "barrier: 5 of 32 threads reach it"},
        {"roles 64 instances 2 {\nstore %x[7], %n\n} else {\n}\n", "threads 0 and 1 touch element 7 of %x in global memory without a barrier between them"},
        {"roles 32 {\nstore %x[7], %n\n} else {\nstore %x[7], %n\n}\n", "touch element 7 of %x in global memory without a barrier between them"},
        {"roles 32 {\nstore %x[%t], %t\n} else {\nstore %x[200], %t\n}\n", "offset 200 (lane 0) of a buffer of 96 elements"},
        {"roles 32 {\nstore %x[200], %t\n} else {\nstore %x[%t], %t\n}\n", "offset 200 (lane 0) of a buffer of 96 elements"},
    };
    for (size_t i = 0; i < TN_COUNT(wrong); i++) {
        tn_session broken = {0};
        text = tn_format(&broken.arena, "kernel @k(%%x: global i64, %%n: index) threads 96 {\n%%t = thread : index\n%%few = lt %%t, %%n : bool\n%%c32 = const 32 : index\n%s}\n", wrong[i].body);
        assert_int_equal(tn_loop_interpret(parse_kernel(&broken, text), (tn_loop_arg[]){{data, 96}}, (int64_t[]){5}), TN_INVALID);
        assert_int_equal(broken.diags.len, 1);
        if (!strstr(broken.diags.at[0].message, wrong[i].message))
            fail_msg("%s\nexpected: %s\nfound: %s", wrong[i].body, wrong[i].message, broken.diags.at[0].message);
        tn_arena_free(&broken.arena);
    }
    tn_arena_free(&session.arena);
}

/* ---- instances ---- */

enum { LANES = 32, MOST_STRIPS = 7, MOST_PROGRAMS = 5 };
static int32_t strips[MOST_PROGRAMS * MOST_STRIPS * LANES], sums[MOST_PROGRAMS * LANES];

/* What a test leaves out or changes; NULL: as it should be. */
typedef struct turns {
    const char *wait, *pass, *skip, *parity;
} turns;

/* Two warps, a program each, add up strips that a third one loads into a ring of three; one adds while the other stores. */
static const char *turns_text(tn_session *session, const turns *r)
{
#define PART(name, usual) (r->name ? r->name : (usual))
    return tn_format(&session->arena,
                     "kernel @turns(%%x: global i32 readonly align 16, %%y: global i32, %%m: index, %%k: index, %%begin: index, %%end: index) threads 96 persistent 1 {\n"
                     "map %%a: i32 of %%x at 0 sizes (32, m) strides (32) box (32, 1)\n%%t = thread : index\n%%s = alloc 96 at 0 : shared i32\n%%bar = alloc 8 at 384 : shared i64\n"
                     "%%c0 = const 0 : index\n%%one = const 1 : index\n%%two = const 2 : index\n%%three = const 3 : index\n%%six = const 6 : index\n%%c32 = const 32 : index\n"
                     "%%c64 = const 64 : index\n%%bytes = const 128 : index\n%%start = eq %%t, %%c0 : bool\n"
                     "if %%start {\nfor %%i = 0 to 8 step 1 unroll {\nmachine @mbarrier_init %%bar[%%i], 1\n}\nmachine @mbarrier_fence\n}\nbarrier\n"
                     "%%lane = rem %%t, %%c32 : index\n%%leads = eq %%lane, %%c0 : bool\n"
                     "roles 64 instances 2 {\n%%mine = div %%t, %%c32 : index\n%%other = sub %%one, %%mine : index\n%%myturn = add %%six, %%mine : index\n%%theirs = add %%six, %%other : index\n"
                     "%%at = alloc 1 : reg i64\n%%turn = alloc 1 : reg i64\n%%acc = alloc 1 : reg i32\n%%first = mul %%mine, %%k : index\nstore %%at[0], %%first\n%s\n"
                     "for %%p = %%begin to %%end step 1 grid {\n%%zero = const 0 : i32\nstore %%acc[0], %%zero\n%%phase = load %%turn[0] : i64\n%s\n"
                     "for %%l = 0 to %%k step 1 {\n%%now = load %%at[0] : i64\n%%slot = rem %%now, %%three : index\n%%round = div %%now, %%three : index\n%%parity = rem %%round, %%two : index\n"
                     "machine @mbarrier_wait %%bar[%%slot], %%parity\n%%o = mul %%slot, %%c32 : index\n%%e = add %%o, %%lane : index\n%%v = load %%s[%%e] : i32\n"
                     "%%sum = load %%acc[0] : i32\n%%sum2 = add %%sum, %%v : i32\nstore %%acc[0], %%sum2\n%%empty = add %%slot, %%three : index\n"
                     "if %%leads {\nmachine @mbarrier_arrive %%bar[%%empty]\n}\n%%next = add %%now, %%one : index\nstore %%at[0], %%next\n}\n"
                     "if %%leads {\n%s\n}\n%%after = sub %%one, %%phase : index\nstore %%turn[0], %%after\n%%here = load %%at[0] : i64\n%%there = add %%here, %%k : index\n%s\n"
                     "barrier\n%%row = mul %%p, %%c32 : index\n%%f = add %%row, %%lane : index\n%%total = load %%acc[0] : i32\nstore %%y[%%f], %%total\n}\n"
                     "} else {\nif %%leads {\n%%at = alloc 1 : reg i64\nstore %%at[0], %%c0\nfor %%p = %%begin to %%end step 1 grid {\n"
                     "for %%l = 0 to %%k step 1 {\n%%now = load %%at[0] : i64\n%%slot = rem %%now, %%three : index\n%%round = div %%now, %%three : index\n%%later = add %%round, %%one : index\n"
                     "%%parity = rem %%later, %%two : index\n%%empty = add %%slot, %%three : index\nmachine @mbarrier_wait %%bar[%%empty], %%parity\n"
                     "machine @mbarrier_expect %%bar[%%slot], %%bytes\n%%o = mul %%slot, %%c32 : index\n%%r0 = mul %%p, %%k : index\n%%r = add %%r0, %%l : index\n"
                     "machine @box_load_2 %%s[%%o], %%a, %%c0, %%r, %%bar[%%slot]\n%%next = add %%now, %%one : index\nstore %%at[0], %%next\n}\n}\n}\n}\n}\n",
                     PART(parity, "store %turn[0], %other"), PART(wait, "machine @mbarrier_wait %bar[%myturn], %phase"), PART(pass, "machine @mbarrier_arrive %bar[%theirs]"),
                     PART(skip, "store %at[0], %there"));
#undef PART
}

static tn_status run_turns(tn_session *session, const turns *r, int64_t k, int64_t first, int64_t end)
{
    for (int i = 0; i < MOST_PROGRAMS * MOST_STRIPS * LANES; i++)
        strips[i] = 5 * i + 1;
    memset(sums, 0xff, sizeof sums);
    return tn_loop_interpret(parse_kernel(session, turns_text(session, r)), (tn_loop_arg[]){{strips, MOST_PROGRAMS * MOST_STRIPS * LANES}, {sums, MOST_PROGRAMS * LANES}},
                             (int64_t[]){MOST_PROGRAMS * MOST_STRIPS, k, first, end});
}

static void test_instances(void **state)
{
    (void)state;
    for (int64_t k = 0; k <= MOST_STRIPS; k++)
        for (int64_t n = 0; n <= MOST_PROGRAMS; n++) {
            tn_session session = {0};
            int64_t first = n && k % 2;
            if (run_turns(&session, &(turns){0}, k, first, n) != TN_OK) {
                tn_print_diags(&session, stderr);
                fail_msg("%d programs of %d strips", (int)n, (int)k);
            }
            for (int64_t i = 0; i < MOST_PROGRAMS * LANES; i++) {
                int64_t sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += strips[(i / LANES * k + l) * LANES + i % LANES];
                assert_int_equal(sums[i], i < first * LANES || i >= n * LANES ? -1 : sum);
            }
            tn_arena_free(&session.arena);
        }
}

static void test_wrong_turns(void **state)
{
    (void)state;
    static const struct {
        turns turns;
        const char *message;
    } cases[] = {
        {{.wait = ""}, "thread 0 waits for parity 1 of the mbarrier at byte 392, in whose phase 1 1 of 1 arrivals and 0 bytes are missing, and thread 32 waits for parity 1 of"}, /* both took one strip */
        {{.pass = ""}, "thread 32 waits for parity 0 of the mbarrier at byte 440, in whose phase 0 1 of 1 arrivals and 0 bytes are missing, and thread 64 waits for"},
        {{.pass = "machine @mbarrier_arrive %bar[%myturn]"}, "load: thread 0 reads element 32 of %s in shared memory, which nothing has written"},
        {{.skip = ""}, "shared memory, which nothing has written"},
        {{.parity = "store %turn[0], %c0"}, "thread 0 waits for parity 0 of the mbarrier at byte 432, in whose phase 0 1 of 1 arrivals and 0 bytes are missing, and thread 32 waits for parity 0 "
                                            "of the mbarrier at byte 440, in whose phase 0 1 of 1 arrivals and 0 bytes are missing, and thread 64 waits for parity 0 of the mbarrier at byte 408"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session session = {0};
        assert_int_equal(run_turns(&session, &cases[i].turns, MOST_STRIPS, 0, MOST_PROGRAMS), TN_INVALID);
        assert_int_equal(session.diags.len, 1);
        if (!strstr(session.diags.at[0].message, cases[i].message))
            fail_msg("%d: expected: %s\nfound: %s", (int)i, cases[i].message, session.diags.at[0].message);
        tn_arena_free(&session.arena);
    }
}

/* ---- a product ---- */

/* The kernel of tests/lit/gpu/roles.tn, as it stands and behind the passes: sizes that are no multiples of its tiles, a part of the grid. */
static void test_product(void **state)
{
    (void)state;
    enum { M = 130, N = 136, K = 136 };
    static uint16_t a[M * K], b[N * K], c[M * N];
    tn_session session = {0};
    tn_file file;
    tn_lfuncs funcs = {0};
    assert_int_equal(tn_file_map(&session, TENON_SOURCE_DIR "/tests/lit/gpu/roles.tn", &file), TN_OK);
    assert_int_equal(tn_loop_parse(&session, "roles.tn", (const char *)file.data, file.size, &funcs), TN_OK);
    tn_file_unmap(&file);
    for (int i = 0; i < M * K; i++)
        tn_number_store(TN_BF16, a, i, (tn_number){.f = (i * 7 + i / K) % 5 - 2});
    for (int i = 0; i < N * K; i++)
        tn_number_store(TN_BF16, b, i, (tn_number){.f = (i * 3 + i / K) % 7 - 3});
    for (int optimised = 0; optimised < 2; optimised++) {
        memset(c, 0xff, sizeof c);
        if (optimised)
            run_passes(funcs.at[0], tn_loop_pipeline, &(tn_pass_options){.vector = {.bits = 128, .registers = 255, .fma = true, .most_lanes = 16}});
        if (tn_loop_interpret(funcs.at[0], (tn_loop_arg[]){{a, M * K}, {b, N * K}, {c, M * N}}, (int64_t[]){M, N, K, 1 - optimised, 3}) != TN_OK) {
            tn_print_diags(&session, stderr);
            fail();
        }
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int k = 0; k < K; k++)
                    sum += tn_number_load(TN_BF16, a, i * K + k).f * tn_number_load(TN_BF16, b, j * K + k).f;
                int tile = i / 128 * 2 + j / 128;
                uint16_t want = 0xffff;
                if (tile >= 1 - optimised && tile < 3)
                    tn_number_store(TN_BF16, &want, 0, tn_number_from_double(TN_BF16, sum));
                assert_int_equal(c[i * N + j], want);
            }
    }
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring), cmocka_unit_test(test_mistakes), cmocka_unit_test(test_boxes), cmocka_unit_test(test_wrong_boxes), cmocka_unit_test(test_roles),
        cmocka_unit_test(test_instances), cmocka_unit_test(test_wrong_turns), cmocka_unit_test(test_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
