/* The layout algebra of the GPU lowering, against enumeration of every place of small layouts. */
#include <string.h>

#include "target/gpu/layout.h"
#include "unit.h"

static tn_ttype tile(int rank, const int64_t *size)
{
    tn_ttype type = {.dtype = TN_F32, .rank = rank};
    for (int a = 0; a < rank; a++)
        type.extent[a].size = size[a];
    return type;
}
#define TILE(...) ((tn_ttype[]){tile((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})})

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

static int64_t flat(const tn_layout *l, const int64_t *index)
{
    int64_t x = 0;
    for (int a = 0; a < l->rank; a++)
        x = x * ((int64_t)l->repeats[a] << l->bits[a]) + index[a];
    return x;
}

static int64_t flat_at(const tn_layout *l, int reg, int lane, int warp)
{
    int64_t index[TN_TILE_RANK];
    tn_layout_element(l, (tn_place){(uint32_t)reg, (uint32_t)lane, (uint32_t)warp}, index);
    return flat(l, index);
}

#define EACH_PLACE(l, reg, lane, warp)                      \
    for (int warp = 0; warp < 1 << (l)->warp_bits; warp++)  \
        for (int lane = 0; lane < 32; lane++)               \
            for (int reg = 0; reg < tn_layout_regs(l); reg++)

/* Every element has one owner, as many copies as any other, and owner and element are inverse; returns the number of copies. */
static int64_t check_layout(const tn_layout *l)
{
    int64_t n = tn_layout_elements(l), places = 0, owners = 0;
    int64_t *copies = calloc((size_t)n, sizeof *copies);
    assert_true(tn_layout_covers(l));
    EACH_PLACE(l, reg, lane, warp)
    {
        tn_place place = {(uint32_t)reg, (uint32_t)lane, (uint32_t)warp};
        int64_t index[TN_TILE_RANK], again[TN_TILE_RANK];
        tn_layout_element(l, place, index);
        int64_t x = flat(l, index);
        assert_in_range(x, 0, n - 1);
        copies[x]++;
        places++;
        tn_place owner = tn_layout_owner(l, index);
        assert_true((int)owner.reg < tn_layout_regs(l) && owner.lane < 32 && owner.warp < 1u << l->warp_bits);
        tn_layout_element(l, owner, again);
        assert_int_equal(flat(l, again), x);
        bool is_owner = owner.reg == place.reg && owner.lane == place.lane && owner.warp == place.warp;
        assert_int_equal(tn_layout_is_replica(l, place), !is_owner);
        owners += is_owner;
        tn_place mask = tn_layout_replicas(l);
        assert_int_equal(flat_at(l, (int)(place.reg & ~mask.reg), (int)(place.lane & ~mask.lane), (int)(place.warp & ~mask.warp)), x);
    }
    assert_int_equal(owners, n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(copies[i] * n, places);
    free(copies);
    return places / n;
}

/* Every place bit goes to an element bit at random, some to several, some to none. */
static tn_layout random_layout(int rank, const int64_t *size, int warp_bits)
{
    tn_ttype type = tile(rank, size);
    tn_layout l;
    assert_true(tn_layout_blocked(&type, (int[]){0, 1, 2, 3, 4, 5}, 1, 1 << warp_bits, &l));
    l.reg_bits = (uint8_t)(l.reg_bits < 9 ? l.reg_bits + random_below(2) : l.reg_bits);
    for (int turn = 0; turn < 40; turn++) {
        int at[2];
        for (int i = 0; i < 2; i++) {
            int bit = (int)random_below((uint32_t)(l.reg_bits + 5 + l.warp_bits));
            at[i] = bit < l.reg_bits ? bit : bit - l.reg_bits + TN_LAYOUT_LANE;
        }
        if (at[0] == at[1])
            continue;
        uint32_t x = l.col[at[0]];
        if (random_below(3)) {
            l.col[at[0]] = l.col[at[1]];
            l.col[at[1]] = x;
        } else if (random_below(3) == 0) {
            l.col[at[1]] ^= x; /* still covers */
        }
    }
    return l;
}

static int vector_by_force(const tn_layout *l, int axis)
{
    for (int v = 1 << l->bits[axis]; v > 1; v /= 2) {
        bool good = v <= 1 << l->reg_bits;
        EACH_PLACE(l, reg, lane, warp)
        {
            int64_t first[TN_TILE_RANK], here[TN_TILE_RANK];
            if (!good)
                break;
            tn_layout_element(l, (tn_place){(uint32_t)(reg - reg % v), (uint32_t)lane, (uint32_t)warp}, first);
            tn_layout_element(l, (tn_place){(uint32_t)reg, (uint32_t)lane, (uint32_t)warp}, here);
            good = first[axis] % v == 0;
            first[axis] += reg % v;
            good = good && !memcmp(first, here, sizeof *here * l->rank);
        }
        if (good)
            return v;
    }
    return 1;
}

static tn_conversion convert_by_force(const tn_layout *from, const tn_layout *to, int64_t *bytes)
{
    bool nothing = tn_layout_regs(from) == tn_layout_regs(to), registers = true, shuffle = true;
    int64_t missing = 0, places = 0, n = tn_layout_elements(to);
    uint8_t *threads = calloc((size_t)n * 32 << to->warp_bits, 1), *warps = calloc((size_t)n << to->warp_bits, 1);
    EACH_PLACE(from, reg, lane, warp)
    {
        int64_t x = flat_at(from, reg, lane, warp);
        threads[(warp * 32 + lane) * n + x] = 1;
        warps[warp * n + x] = 1;
    }
    EACH_PLACE(to, reg, lane, warp)
    {
        int64_t x = flat_at(to, reg, lane, warp);
        nothing = nothing && flat_at(from, reg, lane, warp) == x;
        bool own = threads[(warp * 32 + lane) * n + x];
        registers &= own;
        shuffle &= warps[warp * n + x];
        missing += !own;
        places++;
    }
    free(threads);
    free(warps);
    *bytes = registers ? 0 : shuffle ? missing * 2 : (n + places) * 2;
    return nothing ? TN_CONVERT_NOTHING : registers ? TN_CONVERT_REGISTERS : shuffle ? TN_CONVERT_SHUFFLE : TN_CONVERT_SHARED;
}

static int conflicts_by_force(const tn_layout *l, tn_swizzle s, int bytes, int vector)
{
    int k = 0, most = 0, access = bytes * vector;
    for (int a = 0; a < l->rank; a++)
        k += l->bits[a];
    int group = access == 16 ? 8 : access == 8 ? 16 : 32;
    for (int warp = 0; warp < 1 << l->warp_bits; warp++)
        for (int reg = 0; reg < 1 << l->reg_bits; reg += vector)
            for (int start = 0; start < 32; start += group) {
                uint8_t hit[4096] = {0};
                for (int lane = start; lane < start + group; lane++) {
                    int64_t x = flat_at(l, reg, lane, warp);
                    x ^= (x >> (s.base + s.shift) & ((1 << s.bits) - 1)) << s.base;
                    assert_true((x + vector) * bytes <= (int64_t)sizeof hit * 4);
                    for (int64_t byte = x * bytes; byte < (x + vector) * bytes; byte++)
                        hit[byte / 4] = 1;
                }
                for (int bank = 0; bank < 32; bank++) {
                    int count = 0;
                    for (size_t word = (size_t)bank; word < sizeof hit; word += 32)
                        count += hit[word];
                    most = count > most ? count : most;
                }
            }
    return most;
}

static void blocked(void **state)
{
    (void)state;
    static const struct { int rank; int64_t size[4]; } shapes[] = {
        {0, {0}}, {1, {1}}, {1, {2}}, {1, {3}}, {1, {1024}}, {1, {768}}, {2, {4, 768}}, {2, {16, 16}}, {2, {1, 64}}, {2, {12, 40}}, {3, {2, 6, 16}}, {4, {2, 1, 4, 8}}};
    for (size_t i = 0; i < TN_COUNT(shapes); i++) {
        for (int vector = 1; vector <= 8; vector *= 2) {
            for (int warps = 1; warps <= 8; warps *= 4 - 2 * (warps == 4)) {
                int order[4], rank = shapes[i].rank;
                for (int a = 0; a < rank; a++)
                    order[a] = rank - 1 - a;
                tn_ttype type = tile(rank, shapes[i].size);
                tn_layout l;
                assert_true(tn_layout_blocked(&type, order, vector, warps, &l));
                int64_t n = tn_layout_elements(&l), copies = check_layout(&l);
                assert_int_equal(copies * n, (int64_t)tn_layout_regs(&l) * 32 * warps);
                for (int a = 0; a < rank; a++)
                    assert_int_equal(tn_layout_vector(&l, a), vector_by_force(&l, a));
                if (rank)
                    assert_true(tn_layout_vector(&l, rank - 1) >= (vector < 1 << l.bits[rank - 1] ? vector : 1 << l.bits[rank - 1]));
            }
        }
    }
    tn_layout l;
    int order[] = {1, 0};
    assert_false(tn_layout_blocked(TILE(17, 4), order, 1, 4, &l)); /* r > 15 */
    assert_false(tn_layout_blocked(TILE(0, 4), order, 1, 4, &l));
    assert_false(tn_layout_blocked(TILE(4, 4), order, 3, 4, &l));
    assert_false(tn_layout_blocked(TILE(4, 4), order, 4, 512, &l));
    assert_false(tn_layout_blocked(TILE(1024, 1024), order, 4, 4, &l));
    assert_true(tn_layout_blocked(TILE(1024, 1024), order, 4, 32, &l));
    assert_int_equal(tn_layout_regs(&l), 1024);
}

static void text(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    static const struct { int64_t size[2]; int vector; const char *text; } cases[] = {
        {{4, 768}, 4, "reg [1:1 1:2 1:128 | 1:3x] lane [1:4 1:8 1:16 1:32 1:64] warp [0:1 0:2]"},
        {{1, 1}, 4, "reg [] lane [0 0 0 0 0] warp [0 0]"},
        {{6, 3}, 1, "reg [| 0:3x 1:3x] lane [0:1 0 0 0 0] warp [0 0]"},
    };
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_ttype type = tile(2, cases[i].size);
        tn_layout l;
        tn_text out = {.arena = &session->arena};
        assert_true(tn_layout_blocked(&type, (int[]){1, 0}, cases[i].vector, 4, &l));
        tn_text_layout(&out, &l);
        assert_string_equal(out.at, cases[i].text);
    }
    tn_layout l;
    tn_text out = {.arena = &session->arena};
    assert_true(tn_layout_blocked(TILE(4, 8), (int[]){1, 0}, 1, 1, &l));
    l.col[TN_LAYOUT_LANE] |= 8;
    tn_text_layout(&out, &l);
    assert_string_equal(out.at, "reg [] lane [0:1^1:1 1:2 1:4 0:1 0:2] warp []");
    free_test_session(session);
}

/* The formulas of PTX. */
static void fragments(void **state)
{
    (void)state;
    for (int m = 1; m <= 4; m *= 2) {
        for (int n = 1; n <= 2; n++) {
            tn_ttype acc_type = *TILE(16 * m * 3, 8 * n * 2), a_type = *TILE(16 * m, 32), b_type = *TILE(32, 16 * n);
            tn_layout acc, a, b;
            assert_true(tn_layout_mma_acc(&acc_type, m, n, &acc) && tn_layout_mma_a(&a_type, m, n, &a) && tn_layout_mma_b(&b_type, m, n, &b));
            assert_int_equal(check_layout(&acc), 1);
            assert_int_equal(check_layout(&a), n);
            assert_int_equal(check_layout(&b), m);
            assert_int_equal(tn_layout_regs(&acc), 24);
            for (int warp = 0; warp < m * n; warp++)
                for (int lane = 0; lane < 32; lane++) {
                    int group = lane >> 2, in = lane % 4, row0 = warp % m * 16, column0 = warp / m * 8;
                    for (int i = 0; i < 4; i++) {
                        int row = row0 + group + (i >= 2 ? 8 : 0), column = column0 + in * 2 + (i & 1);
                        assert_int_equal(flat_at(&acc, i, lane, warp), row * 16 * n + column);
                    }
                    for (int i = 0; i < 16; i++) { /* two fragments along k */
                        int j = i % 8, row = row0 + group + (j < 2 || (j >= 4 && j < 6) ? 0 : 8), k = i / 8 * 16 + in * 2 + (j & 1) + (j >= 4 ? 8 : 0);
                        assert_int_equal(flat_at(&a, i, lane, warp), row * 32 + k);
                    }
                    for (int i = 0; i < 8; i++) {
                        int j = i % 4, k = i / 4 * 16 + in * 2 + (j & 1) + (j >= 2 ? 8 : 0);
                        assert_int_equal(flat_at(&b, i, lane, warp), k * 16 * n + column0 + group);
                    }
                }
        }
    }
    tn_layout l;
    assert_false(tn_layout_mma_acc(TILE(8, 8), 1, 1, &l));
    assert_false(tn_layout_mma_acc(TILE(16), 1, 1, &l));
    assert_false(tn_layout_mma_acc(TILE(16, 8), 16, 32, &l));
    assert_true(tn_layout_mma_acc(TILE(16, 8), 4, 1, &l));
    assert_int_equal(check_layout(&l), 4);
    assert_int_equal(tn_layout_replicas(&l).warp, 3);
    assert_true(tn_layout_mma_acc(TILE(3, 2, 16, 8), 1, 1, &l));
    assert_int_equal(check_layout(&l), 1);
    assert_int_equal(tn_layout_regs(&l), 24);
}

static void wgmma(void **state)
{
    (void)state;
    static const int columns[] = {8, 24, 64, 176, 256};
    for (size_t c = 0; c < TN_COUNT(columns); c++) {
        int n = columns[c];
        tn_layout l;
        assert_true(tn_layout_wgmma_acc(TILE(64, n), 4, n, &l));
        assert_int_equal(check_layout(&l), 1);
        for (int warp = 0; warp < 4; warp++)
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < n / 2; i++) {
                    int row = warp * 16 + lane / 4 + (i & 2 ? 8 : 0), column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
                    assert_int_equal(flat_at(&l, i, lane, warp), row * n + column);
                }
    }
    tn_layout l;
    assert_true(tn_layout_wgmma_acc(TILE(256, 128), 8, 64, &l)); /* an instruction's 32 registers, rows, columns */
    for (int i = 0; i < 128; i++)
        assert_int_equal(flat_at(&l, i, 0, 5), (64 + 16 + i / 32 % 2 * 128 + (i & 2 ? 8 : 0)) * 128 + i / 64 * 64 + i % 32 / 4 * 8 + (i & 1));
    assert_false(tn_layout_wgmma_acc(TILE(64, 64), 2, 64, &l));
    assert_false(tn_layout_wgmma_acc(TILE(32, 64), 4, 64, &l));
    assert_false(tn_layout_wgmma_acc(TILE(64, 64), 4, 24, &l));
    assert_false(tn_layout_wgmma_acc(TILE(64, 64), 4, 20, &l));
}

static void derived(void **state)
{
    (void)state;
    for (int turn = 0; turn < 60; turn++) {
        static const int64_t sizes[][3] = {{4, 8, 16}, {6, 4, 8}, {4, 12, 5}, {1, 2, 64}, {1, 3, 1}};
        const int64_t *size = sizes[turn % 5];
        tn_layout l = random_layout(3, size, (int)random_below(3));
        check_layout(&l);
        for (int axis = 0; axis < 3; axis++)
            assert_int_equal(tn_layout_vector(&l, axis), vector_by_force(&l, axis));

        static const int axes[] = {2, 0, 1};
        tn_layout p = tn_layout_permute(&l, axes);
        check_layout(&p);
        for (int reg = 0; reg < 1 << l.reg_bits; reg++)
            for (int lane = 0; lane < 32; lane++) {
                int64_t x[TN_TILE_RANK], y[TN_TILE_RANK];
                tn_layout_element(&l, (tn_place){(uint32_t)reg, (uint32_t)lane, 0}, x);
                tn_layout_element(&p, (tn_place){(uint32_t)reg, (uint32_t)lane, 0}, y);
                for (int i = 0; i < 3; i++)
                    assert_int_equal(y[i], x[axes[i]]);
            }

        /* reduce: a thread still holds what it held, without the axis, in no more registers; broadcast back moves nothing to other threads */
        int axis = (int)random_below(3), kept[2] = {axis == 0, axis == 2 ? 1 : 2};
        tn_layout r = tn_layout_reduce(&l, axis);
        check_layout(&r);
        assert_true(r.reg_bits <= l.reg_bits);
        for (int i = 0; i < tn_layout_regs(&r); i++) /* no two registers of a thread are copies */
            for (int j = 0; j < i; j++)
                assert_int_not_equal(flat_at(&r, i, 0, 0), flat_at(&r, j, 0, 0));
        EACH_PLACE(&l, reg, lane, warp)
        {
            int64_t x[TN_TILE_RANK];
            tn_layout_element(&l, (tn_place){(uint32_t)reg, (uint32_t)lane, (uint32_t)warp}, x);
            int64_t want = x[kept[0]] * size[kept[1]] + x[kept[1]];
            bool found = false;
            for (int i = 0; i < tn_layout_regs(&r) && !found; i++)
                found = flat_at(&r, i, lane, warp) == want;
            assert_true(found);
        }
        tn_layout b;
        tn_ttype type = tile(3, size);
        assert_true(tn_layout_broadcast(&r, &type, kept, &b));
        check_layout(&b);
        tn_layout back = tn_layout_reduce(&b, axis);
        assert_true(tn_layout_same_threads(&back, &r));
    }
    tn_layout l, r;
    int order[] = {1, 0};
    assert_true(tn_layout_blocked(TILE(4, 32), order, 1, 4, &l));
    r = tn_layout_reduce(&l, 1);
    assert_int_equal(tn_layout_replicas(&r).lane, 31);
    assert_int_equal(tn_layout_replicas(&r).warp, 0);
    assert_false(tn_layout_broadcast(&r, TILE(8, 32), (int[]){0}, &l));

    /* reshape: the same place, the same row-major number */
    tn_layout from = random_layout(2, (int64_t[]){8, 32}, 2), to;
    assert_true(tn_layout_reshape(&from, TILE(2, 64, 2), &to));
    EACH_PLACE(&from, reg, lane, warp) assert_int_equal(flat_at(&from, reg, lane, warp), flat_at(&to, reg, lane, warp));
    from = random_layout(2, (int64_t[]){6, 20}, 1);
    assert_false(tn_layout_reshape(&from, TILE(120), &to));
    assert_false(tn_layout_reshape(&from, TILE(12, 10), &to));
    assert_false(tn_layout_reshape(&from, TILE(6, 10), &to));
    assert_true(tn_layout_reshape(&from, TILE(1, 6, 1, 20), &to));
    EACH_PLACE(&from, reg, lane, warp) assert_int_equal(flat_at(&from, reg, lane, warp), flat_at(&to, reg, lane, warp));
}

static void conversions(void **state)
{
    (void)state;
    int seen[4] = {0};
    for (int turn = 0; turn < 400; turn++) {
        static const int64_t sizes[][2] = {{4, 32}, {6, 16}, {2, 4}, {1, 3}, {16, 32}};
        const int64_t *size = sizes[turn % 5];
        int warps = (int)random_below(3);
        tn_layout from = random_layout(2, size, warps), to = from;
        switch (turn / 5 % 4) {
        case 0: to = random_layout(2, size, warps); break;
        case 1: /* registers or lanes swapped or added */
        case 2:
            for (int i = 0; i < 3; i++) {
                int first = turn / 5 % 4 == 1 ? 0 : TN_LAYOUT_LANE, count = first ? 5 : from.reg_bits;
                int a = first + (int)random_below((uint32_t)count + !count), b = first + (int)random_below((uint32_t)count + !count);
                if (a != b && count)
                    to.col[a] ^= to.col[b];
            }
            break;
        }
        int64_t bytes, want_bytes;
        tn_conversion want = convert_by_force(&from, &to, &want_bytes);
        assert_int_equal(tn_layout_conversion(&from, &to, 2, &bytes), want);
        assert_int_equal(bytes, want_bytes);
        assert_int_equal(tn_layout_same(&from, &to), want == TN_CONVERT_NOTHING);
        int64_t ignored;
        assert_int_equal(tn_layout_same_threads(&from, &to), want <= TN_CONVERT_REGISTERS && convert_by_force(&to, &from, &ignored) <= TN_CONVERT_REGISTERS);
        seen[want]++;
    }
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] > 10);

    /* two products in a row: the accumulator is the next one's left operand, in the registers where it lies */
    tn_layout acc, a;
    int64_t bytes;
    assert_true(tn_layout_mma_acc(TILE(64, 32), 4, 1, &acc) && tn_layout_mma_a(TILE(64, 32), 4, 1, &a));
    assert_int_equal(tn_layout_conversion(&acc, &a, 2, &bytes), TN_CONVERT_NOTHING);
}

static void banks(void **state)
{
    (void)state;
    tn_layout l;
    int columns[] = {0, 1}, rows[] = {1, 0};
    assert_true(tn_layout_blocked(TILE(32, 32), columns, 1, 1, &l)); /* lanes down a column */
    assert_int_equal(tn_layout_bank_conflicts(&l, (tn_swizzle){0}, 4, 1), 32);
    assert_int_equal(tn_layout_bank_conflicts(&l, (tn_swizzle){5, 0, 5}, 4, 1), 1);
    assert_int_equal(tn_layout_bank_conflicts(&l, (tn_swizzle){3, 2, 3}, 4, 1), 4);
    assert_true(tn_layout_blocked(TILE(32, 32), rows, 4, 1, &l));
    assert_int_equal(tn_layout_bank_conflicts(&l, (tn_swizzle){0}, 4, 4), 1);
    for (int turn = 0; turn < 100; turn++) {
        static const int bytes[] = {1, 2, 4, 8};
        int size = bytes[random_below(4)], vector = 1 << random_below(3);
        if (size * vector > 16)
            vector = 1;
        assert_true(tn_layout_blocked(TILE(32, 32), random_below(2) ? rows : columns, 1, 2, &l));
        tn_layout random = random_layout(2, (int64_t[]){32, 32}, 1);
        /* the vector in the first registers, and no other column in its bits */
        for (int i = 0; i < TN_LAYOUT_BITS; i++)
            random.col[i] &= ~(uint32_t)(vector - 1);
        for (int i = 0; 1 << i < vector; i++)
            random.col[i] = 1u << i;
        tn_swizzle s = {(uint8_t)random_below(4), (uint8_t)(__builtin_ctz((unsigned)vector) + (int)random_below(2)), (uint8_t)(3 + random_below(3))};
        assert_int_equal(tn_layout_bank_conflicts(&random, s, size, vector), conflicts_by_force(&random, s, size, vector));
        assert_int_equal(tn_layout_bank_conflicts(&l, s, size, 1), conflicts_by_force(&l, s, size, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocked), cmocka_unit_test(text),        cmocka_unit_test(fragments), cmocka_unit_test(wgmma),
        cmocka_unit_test(derived), cmocka_unit_test(conversions), cmocka_unit_test(banks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
