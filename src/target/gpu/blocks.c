/* Products by multiply-adds where no matrix instruction takes the type: every thread has a block of rows x columns of the result in registers.
 *
 * A warp's lanes stand 4 x 8, each with 16 bytes of columns; that is repeated down and across. For 16 bytes of k at a time a thread loads its rows of the left
 * operand and its columns of the right one out of shared memory, whole pieces where they lie so, and multiplies all with all: of 8 rows and 8 columns of f32
 * 16 loads make 256 multiply-adds. */
#include "target/gpu/dot.h"

enum { ROWS = 4, COLUMNS = 8 /* of lanes */, PIECE = 16 /* bytes */ };

static int log2_of(int64_t x) { return __builtin_ctzll((uint64_t)x); }

static gpu_warps share_out(int warps, int64_t m, int64_t n, int64_t vector)
{
    gpu_warps best = {0, 0};
    int64_t least = INT64_MAX;
    for (int along_m = 1; along_m <= warps; along_m *= 2) {
        int along_n = warps / along_m;
        int64_t reads = m / (ROWS * along_m) + n / (COLUMNS * along_n); /* pieces a thread loads for a piece of k */
        if (along_m * ROWS <= m && along_n * COLUMNS * vector <= n && reads < least) {
            least = reads;
            best = (gpu_warps){along_m, along_n};
        }
    }
    return best;
}

bool gpu_block_layout(lower *L, const tn_top *dot, gpu_warps *warps, tn_layout *out)
{
    const tn_ttype *x = &dot->operand[0]->type, *type = &dot->result->type;
    int64_t m = type->extent[0].size, n = type->extent[1].size, vector = PIECE * 8 / tn_dtype_bits(type->dtype);
    if (x->rank != 2 || x->dtype != type->dtype || tn_dtype_bits(type->dtype) < 32 || tn_is_complex(type->dtype) || x->extent[1].size < vector)
        return false;
    *warps = share_out(GPU(L)->warps, m, n, vector);
    int row = 0, column = 0, rows = log2_of(m), columns = log2_of(n);
    if (!warps->m || rows + columns - TN_LAYOUT_LANE_BITS - log2_of(GPU(L)->warps) > TN_LAYOUT_REG_BITS)
        return false;
    *out = (tn_layout){.rank = 2, .bits = {(uint8_t)rows, (uint8_t)columns}, .repeats = {1, 1}};
    uint32_t *lane = out->col + TN_LAYOUT_LANE, *warp = out->col + TN_LAYOUT_WARP;
    while (column < log2_of(vector))
        out->col[out->reg_bits++] = UINT32_C(1) << column++;
    for (int i = 0; i < log2_of(COLUMNS); i++)
        *lane++ = UINT32_C(1) << column++;
    for (int i = 0; i < log2_of(ROWS); i++)
        *lane++ = UINT32_C(1) << (columns + row++);
    for (int i = 0; i < log2_of(warps->m); i++, out->warp_bits++)
        *warp++ = UINT32_C(1) << (columns + row++);
    for (int i = 0; i < log2_of(warps->n); i++, out->warp_bits++)
        *warp++ = UINT32_C(1) << column++;
    while (column < columns)
        out->col[out->reg_bits++] = UINT32_C(1) << column++;
    while (row < rows)
        out->col[out->reg_bits++] = UINT32_C(1) << (columns + row++);
    return true;
}


static tn_lbuilder looped(tn_lbuilder *b, const char *name, int64_t count, tn_loop_kind kind, tn_lvalue **index)
{
    tn_lop *loop = tn_l_for(b, name, tn_l_index(b, 0), tn_l_index(b, count), tn_l_index(b, 1), kind);
    *index = loop->region[0]->arg;
    return tn_l_in(b, loop->region[0]);
}

static tn_lvalue *thread_bits(lower *L, int from, int64_t count, int64_t by)
{
    tn_lbuilder *e = &L->entry;
    tn_lvalue *t = from ? tn_l_fn2(e, TN_S_shr_logical, GPU(L)->thread, tn_l_index(e, from)) : GPU(L)->thread;
    return gpu_times(e, tn_l_fn2(e, TN_S_and, t, tn_l_index(e, count - 1)), by);
}

/* One operand's part of a block: `count` lines (rows of the left, vectors of columns of the right one) that are `apart`, from `start` on, for a piece of k. In
 * `to`, with the operand's neighbours side by side: along k, element (line, k); else element (k, line). */
typedef struct lines {
    const gpu_operand *o;
    tn_lvalue *to, *start;
    int64_t count, apart, vector; /* vector: neighbours that a line is, if it is not along k */
    bool along_k;
} lines;

static tn_lvalue *in_stage(tn_lbuilder *b, const lines *l, tn_lvalue *at) { return l->o->stage ? gpu_plus(b, l->o->stage, at) : at; }

static void load_lines(tn_lbuilder *b, const lines *l, tn_lvalue *k)
{
    int64_t piece = INT64_C(1) << l->o->piece_bits;
    tn_lvalue *zero = tn_l_index(b, 0), *i, *j, *v;
    if (l->along_k) { /* a line after the other, a piece of each */
        tn_lbuilder in = looped(b, "i", l->count, TN_FOR_UNROLL, &i);
        in = looped(&in, "j", l->vector, TN_FOR_UNROLL, &j);
        gpu_split row = {l->start, gpu_plus(&in, gpu_times(&in, i, l->apart), j)};
        tn_lvalue *at = in_stage(&in, l, gpu_piece_at(&in, l->o, row, (gpu_split){k, zero}, false));
        in = looped(&in, "v", piece, TN_FOR_VECTOR, &v);
        tn_lvalue *x = tn_l_load(&in, l->o->buffer, gpu_plus(&in, at, v), 1, NULL, NULL);
        tn_l_store(&in, l->to, gpu_plus(&in, gpu_times(&in, gpu_plus(&in, gpu_times(&in, i, l->vector), j), piece), v), x, NULL);
        return;
    }
    tn_lbuilder in = looped(b, "j", piece, TN_FOR_UNROLL, &j);
    gpu_split row = {gpu_times(&in, k, piece), j};
    in = looped(&in, "i", l->count, TN_FOR_UNROLL, &i);
    tn_lvalue *at;
    if (l->vector > 1) { /* the columns of a thread are a piece */
        tn_lvalue *start = tn_l_fn2(&in, TN_S_shr_logical, l->start, tn_l_index(&in, l->o->piece_bits));
        at = gpu_piece_at(&in, l->o, row, (gpu_split){start, gpu_times(&in, i, l->apart / piece)}, false);
    } else {
        at = gpu_element_at(&in, l->o, gpu_plus(&in, row.thread, row.rest), gpu_plus(&in, l->start, gpu_times(&in, i, l->apart)));
    }
    at = in_stage(&in, l, at);
    tn_lvalue *to = gpu_times(&in, gpu_plus(&in, gpu_times(&in, j, l->count), i), l->vector);
    v = zero;
    if (l->vector > 1)
        in = looped(&in, "v", l->vector, TN_FOR_VECTOR, &v);
    tn_l_store(&in, l->to, gpu_plus(&in, to, v), tn_l_load(&in, l->o->buffer, gpu_plus(&in, at, v), 1, NULL, NULL), NULL);
}

/* Where element (line, v, k) is. */
static tn_lvalue *line_at(tn_lbuilder *b, const lines *l, tn_lvalue *line, tn_lvalue *v, tn_lvalue *k)
{
    int64_t piece = INT64_C(1) << l->o->piece_bits;
    tn_lvalue *element = gpu_plus(b, gpu_times(b, line, l->vector), v);
    return l->along_k ? gpu_plus(b, gpu_times(b, element, piece), k) : gpu_plus(b, gpu_times(b, k, l->count * l->vector), element);
}

void gpu_multiply_blocks(lower *L, tn_lbuilder *b, const tn_top *dot, gpu_warps warps, const gpu_operand *operands, tn_lvalue *acc)
{
    const tn_ttype *type = &dot->result->type;
    gpu_operand staged[2] = {operands[0], operands[1]};
    int64_t vector = INT64_C(1) << operands[0].piece_bits, m = type->extent[0].size / (ROWS * warps.m), n = type->extent[1].size / (COLUMNS * vector * warps.n);
    tn_lbuilder *e = &L->entry;
    tn_dtype dtype = type->dtype;
    lines x = {.o = &staged[0], .count = m, .apart = (int64_t)ROWS * warps.m, .vector = 1, .along_k = operands[0].inner == 1};
    lines y = {.o = &staged[1], .count = n, .apart = COLUMNS * vector * warps.n, .vector = vector, .along_k = operands[1].inner == 0};
    x.start = gpu_plus(e, thread_bits(L, log2_of(COLUMNS), ROWS, 1), thread_bits(L, TN_LAYOUT_LANE_BITS, warps.m, ROWS));
    y.start = gpu_plus(e, thread_bits(L, 0, COLUMNS, vector), thread_bits(L, TN_LAYOUT_LANE_BITS + log2_of(warps.m), warps.n, COLUMNS * vector));
    x.to = tn_l_alloc(b, "a", dtype, TN_SPACE_REG, m * vector);
    y.to = tn_l_alloc(b, "b", dtype, TN_SPACE_REG, n * vector * vector);
    tn_lvalue *piece, *k, *i, *j, *v;
    tn_lbuilder in = looped(b, "k", dot->operand[0]->type.extent[1].size / vector, TN_FOR_SERIAL, &piece);
    load_lines(&in, &x, piece);
    load_lines(&in, &y, piece);
    in = looped(&in, "kk", vector, TN_FOR_UNROLL, &k);
    in = looped(&in, "m", m, TN_FOR_UNROLL, &i);
    in = looped(&in, "n", n, TN_FOR_UNROLL, &j);
    in = looped(&in, "v", vector, TN_FOR_UNROLL, &v);
    tn_lvalue *at = gpu_plus(&in, gpu_times(&in, gpu_plus(&in, gpu_times(&in, i, n), j), vector), v);
    tn_lvalue *factor[3] = {tn_l_load(&in, x.to, line_at(&in, &x, i, tn_l_index(&in, 0), k), 1, NULL, NULL),
                            tn_l_load(&in, y.to, line_at(&in, &y, j, v, k), 1, NULL, NULL), tn_l_load(&in, acc, at, 1, NULL, NULL)};
    tn_l_store(&in, acc, at, tn_is_float(dtype) ? tn_l_fn(&in, TN_S_fma, factor, 3) : gpu_plus(&in, tn_l_fn2(&in, TN_S_mul, factor[0], factor[1]), factor[2]), NULL);
}
