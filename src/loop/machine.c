/* Instructions of GPUs: what they take, and what they mean, thread by thread. */
#include "loop/boxes.h"

#include <math.h>
#include <string.h>

/* ---- meanings ----------------------------------------------------------------------------------------------------------- */

enum { ROWS = 16, COLUMNS = 8, DEEPEST = 32 };

/* m16n8: a thread's elements i of a factor lie k bytes 4 (lane mod 4) … + 3 of 16, in words: rows 8 apart first, then 16 bytes of k apart. */
static void place_of_factor(int lane, int i, int per_word, bool left, int *row, int *k)
{
    int word = i / per_word;
    *row = lane / 4 + (left ? word % 2 * 8 : 0);
    *k = lane % 4 * per_word + i % per_word + (left ? word / 2 : word) * 4 * per_word;
}

static float f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* What a product takes of a factor in memory or registers. */
static tn_number factor_from(tn_dtype dtype, const uint8_t *data, int64_t i)
{
    enum { CUT = 0x1fff };
    tn_number x = tn_number_load(dtype, data, i);
    if (dtype == TN_F32 && !isnan(x.f))
        x.f = f32_of_bits(bits_of_f32((float)x.f) & ~(uint32_t)CUT);
    return x;
}

/* The sum and depth products of factors of a row and a column. */
static tn_number sum_of(tn_dtype dtype, tn_number sum, const tn_number *a, const tn_number *b, int depth)
{
    for (int k = 0; k < depth; k++)
        if (dtype == TN_F32)
            sum.f += a[k].f * b[k].f;
        else
            sum.i += a[k].i * b[k].i;
    return dtype == TN_F32 ? sum : tn_number_from_int(TN_I32, (int32_t)sum.i);
}

static bool gather_factor(const tn_lrun *run, int p, int n, tn_number (*out)[DEEPEST])
{
    const tn_lpart *part = &run->instruction->part[p];
    int per_word = 4 / (tn_dtype_bits(part->dtype) / 8);
    for (int lane = 0; lane < TN_WARP; lane++) {
        const uint8_t *data = run->part(run->context, run->first + lane, 2 * p, 0, tn_l_part_bytes(part), TN_TOUCH_READ);
        for (int i = 0; data && i < n; i++) {
            int row, k;
            place_of_factor(lane, i, per_word, p == 1, &row, &k);
            out[row][k] = factor_from(part->dtype, data, i);
        }
        if (!data)
            return false;
    }
    return true;
}

static bool mma(const tn_lrun *run)
{
    const tn_lpart *part = run->instruction->part;
    tn_number a[ROWS][DEEPEST], b[COLUMNS][DEEPEST];
    int depth = part[1].size * TN_WARP / ROWS;
    if (!gather_factor(run, 1, part[1].size, a) || !gather_factor(run, 2, part[2].size, b))
        return false;
    for (int lane = 0; lane < TN_WARP; lane++) {
        uint8_t *data = run->part(run->context, run->first + lane, 0, 0, tn_l_part_bytes(&part[0]), TN_TOUCH_WRITE);
        for (int i = 0; data && i < 4; i++) {
            int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            tn_number_store(part[0].dtype, data, i, sum_of(part[0].dtype, tn_number_load(part[0].dtype, data, i), a[row], b[column], depth));
        }
        if (!data)
            return false;
    }
    return true;
}

static bool load_matrices(const tn_lrun *run, bool turned)
{
    uint8_t rows[TN_WARP][16];
    for (int lane = 0; lane < TN_WARP; lane++) {
        const uint8_t *row = run->part(run->context, run->first + lane, 2, 0, 16, TN_TOUCH_READ);
        if (!row)
            return false;
        memcpy(rows[lane], row, 16);
    }
    for (int lane = 0; lane < TN_WARP; lane++) {
        uint8_t *out = run->part(run->context, run->first + lane, 0, 0, 16, TN_TOUCH_WRITE);
        for (int q = 0; out && q < 4; q++)
            for (int half = 0; half < 2; half++) {
                const uint8_t *from = turned ? &rows[8 * q + lane % 4 * 2 + half][lane / 4 * 2] : &rows[8 * q + lane / 4][lane % 4 * 4 + half * 2];
                memcpy(out + 4 * q + 2 * half, from, 2);
            }
        if (!out)
            return false;
    }
    return true;
}

static bool ldmatrix(const tn_lrun *run) { return load_matrices(run, false); }
static bool ldmatrix_turned(const tn_lrun *run) { return load_matrices(run, true); }

static bool stmatrix(const tn_lrun *run)
{
    uint8_t rows[TN_WARP][16];
    for (int lane = 0; lane < TN_WARP; lane++) {
        const uint8_t *words = run->part(run->context, run->first + lane, 2, 0, 16, TN_TOUCH_READ);
        for (int q = 0; words && q < 4; q++)
            memcpy(&rows[8 * q + lane / 4][lane % 4 * 4], words + 4 * q, 4);
        if (!words)
            return false;
    }
    for (int lane = 0; lane < TN_WARP; lane++) {
        uint8_t *row = run->part(run->context, run->first + lane, 0, 0, 16, TN_TOUCH_WRITE);
        if (!row)
            return false;
        memcpy(row, rows[lane], 16);
    }
    return true;
}

static bool round_tf32(const tn_lrun *run)
{
    enum { HALF = 0x1000, CUT = 0x1fff };
    uint8_t *data = run->part(run->context, run->first, 0, 0, 4, TN_TOUCH_WRITE);
    float x = data ? (float)tn_number_load(TN_F32, data, 0).f : 0;
    if (data && !isnan(x))
        tn_number_store(TN_F32, data, 0, (tn_number){.f = f32_of_bits((bits_of_f32(x) + HALF) & ~(uint32_t)CUT)});
    return data != NULL;
}

/* An element of a factor in shared memory: row of 64 or more along m or n, k of 32 bytes. The two constants say how boxes lie. */
static bool tile_element(const tn_lrun *run, int p, int apart_at, int turned_at, int row, int k, tn_number *out)
{
    tn_dtype dtype = run->instruction->part[p].dtype;
    int operand = tn_l_part_operand(run->instruction, p), bytes = tn_dtype_bits(dtype) / 8;
    int64_t start = run->number(run->context, run->first, operand + 1) * bytes, apart = run->number(run->context, run->first, apart_at), at;
    bool turned = run->number(run->context, run->first, turned_at) != 0;
    at = start + (turned ? row / 64 * apart + k / 8 * 1024 + k % 8 * 128 + row % 64 * bytes : row / 8 * 1024 + row % 8 * 128 + k * bytes);
    at ^= (at >> 7 & 7) << 4;
    const uint8_t *data = run->part(run->context, run->first + row % 128, operand, at - start, bytes, TN_TOUCH_READ);
    if (data)
        *out = factor_from(dtype, data, 0);
    return data != NULL;
}

enum { GROUP_M = 64, GROUP_N = 256, GROUP_DEPTH = 32 /* bytes of k, so elements at most */ };

static int depth_of(const tn_lrun *run) { return GROUP_DEPTH * 8 / tn_dtype_bits(run->instruction->part[1].dtype); }

static bool gather_rows(const tn_lrun *run, int p, int apart_at, int turned_at, int rows, tn_number (*out)[GROUP_DEPTH])
{
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < depth_of(run); k++)
            if (!tile_element(run, p, apart_at, turned_at, i, k, &out[i][k]))
                return false;
    return true;
}

static bool add_products(const tn_lrun *run, const tn_number (*a)[GROUP_DEPTH], const tn_number (*b)[GROUP_DEPTH])
{
    const tn_lpart *sums = &run->instruction->part[0];
    for (int t = 0; t < 4 * TN_WARP; t++) {
        uint8_t *data = run->part(run->context, run->first + t, 0, 0, sums->size * 4, TN_TOUCH_WRITE);
        if (data && !run->number(run->context, run->first + t, run->op->noperands - 1))
            memset(data, 0, (size_t)sums->size * 4);
        for (int r = 0; data && r < sums->size; r++) {
            int row = t / TN_WARP * 16 + t % TN_WARP / 4 + r / 2 % 2 * 8, column = r / 4 * 8 + t % 4 * 2 + r % 2;
            tn_number_store(sums->dtype, data, r, sum_of(sums->dtype, tn_number_load(sums->dtype, data, r), a[row], b[column], depth_of(run)));
        }
        if (!data)
            return false;
    }
    return true;
}

static bool wgmma(const tn_lrun *run)
{
    tn_number(*a)[GROUP_DEPTH] = tn_alloc(run->arena, sizeof *a * GROUP_M), (*b)[GROUP_DEPTH] = tn_alloc(run->arena, sizeof *b * GROUP_N);
    return gather_rows(run, 1, 6, 8, GROUP_M, a) && gather_rows(run, 2, 7, 9, run->instruction->part[0].size * 2, b) && add_products(run, a, b);
}

static bool wgmma_held(const tn_lrun *run)
{
    tn_number(*a)[GROUP_DEPTH] = tn_alloc(run->arena, sizeof *a * GROUP_M), (*b)[GROUP_DEPTH] = tn_alloc(run->arena, sizeof *b * GROUP_N);
    const tn_lpart *part = &run->instruction->part[1];
    for (int t = 0; t < 4 * TN_WARP; t++) {
        const uint8_t *data = run->part(run->context, run->first + t, 2, 0, tn_l_part_bytes(part), TN_TOUCH_READ);
        for (int i = 0, row, k; data && i < part->size; i++) {
            place_of_factor(t % TN_WARP, i, 32 / tn_dtype_bits(part->dtype), true, &row, &k);
            a[t / TN_WARP * 16 + row][k] = factor_from(part->dtype, data, i);
        }
        if (!data)
            return false;
    }
    return gather_rows(run, 2, 6, 7, run->instruction->part[0].size * 2, b) && add_products(run, a, b);
}

static bool nothing(const tn_lrun *run)
{
    (void)run;
    return true;
}

/* NaN, of which nothing may come. */
static bool undefined(const tn_lrun *run)
{
    int bytes = tn_l_part_bytes(&run->instruction->part[0]);
    uint8_t *data = run->part(run->context, run->first, 0, 0, bytes, TN_TOUCH_WRITE);
    if (data)
        memset(data, 0xff, (size_t)bytes);
    return data != NULL;
}

static bool copy_async(const tn_lrun *run)
{
    tn_lcopies *mine = &run->copies[run->first];
    tn_lcopy c = {.bytes = run->instruction->part[0].size, .group = mine->group};
    int64_t there = run->number(run->context, run->first, 4);
    there = tn_max(0, tn_min(there, c.bytes));
    c.to = run->part(run->context, run->first, 0, 0, c.bytes, TN_TOUCH_WRITE);
    const uint8_t *from = there ? run->part(run->context, run->first, 2, 0, there, TN_TOUCH_READ) : NULL;
    if (!c.to || (there && !from))
        return false;
    memset(c.to, 0xff, (size_t)c.bytes); /* nobody may count on what was there before */
    if (there)
        memcpy(c.data, from, (size_t)there);
    TN_PUSH(run->arena, &mine->copy, c);
    return true;
}

static bool add_f32(const tn_lrun *run)
{
    int n = run->instruction->part[0].size / 4;
    if (!run->number(run->context, run->first, 4))
        return true;
    uint8_t *sum = run->part(run->context, run->first, 0, 0, 4 * n, TN_TOUCH_ATOMIC);
    const uint8_t *x = run->part(run->context, run->first, 2, 0, 4 * n, TN_TOUCH_READ);
    for (int i = 0; sum && x && i < n; i++)
        tn_number_store(TN_F32, sum, i, (tn_number){.f = tn_number_load(TN_F32, sum, i).f + tn_number_load(TN_F32, x, i).f});
    return sum && x;
}

static bool copy_commit(const tn_lrun *run)
{
    run->copies[run->first].group++;
    return true;
}

static bool copy_wait(const tn_lrun *run)
{
    tn_lcopies *mine = &run->copies[run->first];
    int64_t youngest = mine->group - run->number(run->context, run->first, 0);
    size_t left = 0;
    bool ok = true;
    for (size_t i = 0; i < mine->copy.len; i++) {
        const tn_lcopy *c = &mine->copy.at[i];
        if (c->group >= youngest) {
            mine->copy.at[left++] = *c;
            continue;
        }
        memcpy(c->to, c->data, (size_t)c->bytes);
        ok = ok && run->settle(run->context, run->first, c->to, c->bytes);
    }
    mine->copy.len = left;
    return ok;
}

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

enum { R = TN_PART_R, W = TN_PART_W, RW = R | W };
#define TN_BYTES TN_NO_DTYPE
#define REG(how, dtype, n) {TN_PART_REG, how, TN_##dtype, n}
#define SHARED(how, n) {TN_PART_SHARED, how, TN_NO_DTYPE, n}
#define TILE(dtype) {TN_PART_TILE, R, TN_##dtype, 0}
#define GLOBAL(how, n) {TN_PART_GLOBAL, how, TN_NO_DTYPE, n}
#define MAP(how) {TN_PART_MAP, how, TN_NO_DTYPE, 0}
#define NUMBER {TN_PART_NUMBER, R, TN_NO_DTYPE, 0}
#define CONSTANT {TN_PART_CONSTANT, R, TN_NO_DTYPE, 0}
static const tn_linstruction instructions[] = {
#define INSTRUCTION(name, threads, meaning, ...) {#name, threads, {__VA_ARGS__}},
#include "loop/machine.def"
#undef INSTRUCTION
};
static bool (*const meanings[])(const tn_lrun *run) = {
#define INSTRUCTION(name, threads, meaning, ...) meaning,
#include "loop/machine.def"
#undef INSTRUCTION
};

const tn_linstruction *tn_l_instruction(const char *name)
{
    for (size_t i = 0; i < TN_COUNT(instructions); i++)
        if (strcmp(instructions[i].name, name) == 0)
            return &instructions[i];
    return NULL;
}

int tn_l_instruction_parts(const tn_linstruction *instruction)
{
    int n = 0;
    while (n < TN_L_PARTS && instruction->part[n].kind != TN_PART_NONE)
        n++;
    return n;
}

int tn_l_part_operand(const tn_linstruction *instruction, int part)
{
    int at = 0;
    for (int i = 0; i < part; i++)
        at += instruction->part[i].kind < TN_PART_MAP ? 2 : 1; /* a map has no offset */
    return at;
}

int tn_l_part_bytes(const tn_lpart *part)
{
    return part->kind == TN_PART_REG && part->dtype != TN_NO_DTYPE ? part->size * tn_dtype_bits(part->dtype) / 8 : part->size;
}

bool tn_l_run_instruction(const tn_lrun *run) { return meanings[run->instruction - instructions](run); }
