/* The sizes of tiles on a GPU, and how many warps work on one: all numbers of schedules are here. A program is a CTA, whose threads hold its tiles in registers.
 *
 * Measured where a number says so (docs/gpu.md); else deduced from what a processor holds: 65536 registers, 2048 threads, and the latency of memory, which
 * takes some 32 KiB in flight a processor to cover: 16 bytes of each of its threads, or 64 bytes of a quarter of them.
 *
 * Reductions that leave processors idle are split before (split.c), where sizes are known and the outermost dim has a power of two as a divisor; else such a
 * program has as many warps and as long strips as there are. */
#include "fuse/internal.h"

#include <math.h>

enum {
    WARP = 32,
    THREAD_BYTES = 64,        /* of an operand a thread, at once: four 16-byte loads in flight, which hide latency at a quarter of all threads */
    VECTOR_BYTES = 16,        /* of one access */
    POINT_ELEMENTS = 4096,    /* of an elementwise tile at most: 32 a thread; more takes registers without need */
    POINT_LEAST = 512,        /* at least: a CTA's start costs about as much as 4 elements a thread */
    POINT_WARPS = 4,          /* 16 CTAs fill a processor, and end one by one */
    SIDE = 64,                /* columns of a tile that is turned, for elements of 2 bytes: stored in whole lines of 128 bytes, loaded in twice that (0.89 of a copy; squares 0.87) */
    TURN_BOX = 128,           /* rows and columns of one that the machine can copy in boxes: 0.92 to 0.965 of a copy, 64 x 128 0.91 to 0.96, 64 x 64 0.77 to 0.95 */
    TURN_WARPS = 8,           /* of such a tile at most, 16 elements a thread at least (4 warps: 0.87 to 0.92 of a copy, 8 0.89 to 0.95) */
    SHORT_ROW = 1024,         /* columns that one warp takes: 32 values a thread, and no barrier */
    SHORT_ELEMENTS = 1024,    /* of several short rows together, at least */
    SHORT_ROWS = 2,           /* of them at least: 0.98 and 1.00 of a copy (softmax, LayerNorm), 4 rows 0.97 and 0.98 */
    ROW_WARPS = 4,            /* of a row that is not short, at least */
    ROW_SPREAD_WARPS = 8,     /* up to so many have 32 bytes of it a thread, which stay in registers (4096 of bf16: 0.96 to 0.98 of a copy, 64 bytes 0.95 to 0.96) */
    ROW_MOST_WARPS = 32,      /* at most; half where nothing else is loaded, so that two programs share a processor (softmax of 65536: 0.89 of a copy, 32 warps 0.81) */
    STRIP_BYTES = 16 << 10,   /* of a row that does not fit, a step: 8 warps of 64 bytes a thread */
    LONG_STRIP_BYTES = 64 << 10, /* where programs are fewer than processors: all threads that one can have */
    PART_BYTES = 128 << 10,   /* of a part of a reduction, at least: two such strips, which cost more than the kernel that the parts need */
    PARTS_EACH = 16,          /* programs a processor that parts make, of 4 warps: half of the least GPU's is enough (2 gave 0.46 of a copy, 4 0.75, 8 1.02) */
    LINE_BYTES = 128,         /* columns of a tile that is reduced along its rows: one line of memory, at least 32 of them (half a line: 0.92 of a copy, one 1.02) */
    COLUMN_BYTES = 8 << 10,   /* of such a tile: 4 warps of 64 bytes a thread */
    ROW_PART = 2,             /* of a processor's registers are for the rows that a program keeps: 32 of 64 of each of 1024 threads */
    ROW_BYTES = 128 << 10,    /* of rows that wait in shared memory where registers don't hold them: 0.81 to 0.91 of a copy at 65536 columns of bf16, strips 0.53 to 0.67 */
    CLUSTER_SWEEPS = 3,       /* of rows that clusters share though one CTA holds them: with one reduction it is as fast (RMSNorm of 65536 columns 0.95 of a copy) */
    CLUSTER_MOST = 96 << 10,  /* of a row in each CTA of a cluster at most: there is room for two of them */
    COLUMN_VALUES = 16384,    /* of whole columns that several sweeps need: 16 a thread of 1024 */
    WINDOW_ELEMENTS = 1024,   /* of a tile that sums up taps: each tap is a load more in flight */
    LARGE = 4096,             /* stands for a size that is not known */
    ROWS_COUNTED = 4,         /* rows of inputs that a program keeps are told apart up to so many */
    PRODUCT_LEAST = 32,       /* rows and columns of a product's tile are not halved below */
    PRODUCT_FULL = 128,       /* rows and columns: 64 flops a byte of operands in shared memory, which is what the tensor cores need */
                              /* more columns of 2 bytes, up to twice as many, where that is faster: 85 flops a byte */
    UNEVEN = 32,              /* columns by which widths between differ */
    ALONE_COST = 120,         /* percent of a strip's time among two instances that one takes where a CTA has one program, */
    WIDE_COST = 204,          /* and one of twice as many columns (3072 deep: 37.5 us for 22); of others as many as they have, and half of what boxes of 64 copy besides */
    RESULTS_COST = 4,         /* such strips that results take, which nothing hides where a CTA has one program: 1.6 us */
    PRODUCT_BYTES = 128,      /* of k: a row of the swizzled shared memory */
    FRAGMENT = 16,            /* rows of the smallest matrix instruction */
    VECTOR_WARPS = 4,         /* of a matrix times a vector: a row each. 8 are as fast; 2 rows a warp or 4 warps a row are slower where rows are few */
    PARTS_MOST = 32,          /* of a sum: one warp's loads, in the kernel that adds them up */
    VECTOR_EACH = 4,          /* programs a processor that parts make of those with lines of columns: of half as many none */
    TOTAL_COLUMNS = 128,      /* results of a program there, at least: 16 bytes of each part a thread. More warps, or parts by warps, are slower */
    TOTAL_MOST = 512,         /* at most, where there are so many that programs' starts count: */
    TOTAL_EACH = 4,           /* programs a processor */
    ATTENTION_SUMS = 128,     /* accumulators a thread of both products of an attention */
    ATTENTION_SHARED = 56 << 10, /* bytes of shared memory besides its keys, values and queries: what the lowering leaves to the rest of such a loop */
    PRODUCT_INSTANCES = 2,    /* programs of a CTA, one of which multiplies while the other makes its results, instead of one of twice as many columns: bare products of bf16 */
    PRODUCT_WARPS = 4,        /* 0.99 to 1.08 of cuBLAS, one of 128 x 256 0.997 to 1.03; with bias and GELU 0.91 to 1.03, 0.80 to 0.996 */
    PRODUCT_STAGES = 6,       /* of their ring: all there is room for, with the buffer that wgmma has besides; 5: up to 0.02 less with epilogues */
    PRODUCT_GROUP = 8,        /* rows of tiles that run side by side: operands of 8 x 16 tiles are read from the L2 */
};

/* How long a product takes, by which its tile and its parts are chosen where large tiles leave processors idle. Fitted to 700 kernels of 20 products and
 * convolutions on an H200 (bf16, operands not in the L2): 11 % off (RMS), and what is chosen takes 2 % longer than the best. */
enum {
    GROUP_RATE = 3600,        /* multiply-adds a ns on a processor, by wgmma; half of it for 4 bytes, twice for 1; */
    BOXES_GROUPS_RATE = 2900, /* waits included, where a producer copies, */
    BOXES_GROUP_RATE = 2300,  /* if one warpgroup multiplies alone */
    WARP_RATE = 188,          /* of one warp, by mma */
    SCALAR_RATE = 120,        /* by none */
    WARPS_OF_GROUP = 4,
    GROUP_SIDE = 64,          /* rows and columns that wgmma takes at least */
    GROUP_NS = 85,            /* of a strip: barrier, waits, addresses of copies, */
    WARP_NS = 105,            /* and loads of fragments */
    LATENCY_NS = 1120,        /* until a copy is there, with as much under way as there is room for */
    L2_RATE = 100,            /* bytes a ns that a processor gets out of the L2, */
    BOXES_RATE = 110,         /* by boxes, */
    MEMORY_RATE = 34,         /* out of memory, when all ask; */
    ALONE_RATE = 56,          /* when few do */
    START_NS = 150,           /* of programs that begin when others have ended */
    BOXES_NS = 80,            /* of a kernel with a producer: its tensor maps and mbarriers */
    TOTAL_NS = 1350,          /* a second kernel */
    PARTS_RATE = 22,          /* bytes a ns of parts that a processor stores, or loads */
    RING_LEAST = 3,           /* strips of programs that share a processor */
    RING_MOST = 8,
    RING_BYTES = 124 << 10,   /* of a ring without wgmma: what memory's latency takes; more is slower (16 x 8192 x 8192 with 8 strips 34.9 us, with 4 to 7 34.3) */
    RING_SLACK = 4 << 10,     /* bytes a program has besides */
    MOST_RESIDENT = 4,        /* programs on a processor, by registers */
};

bool fuse_for_gpu(const fuser *F) { return F->options->target.gpu; }

static int64_t pow2_floor(int64_t n) { return pow2_ceil(n + 1) / 2; }
static int64_t within(int64_t n, int64_t least, int64_t most) { return tn_max(least, tn_min(n, most)); }

/* The size, if it is constant, or surely small; else 0. */
static int64_t known(tn_dim d)
{
    return tn_dim_is_const(d) ? tn_max(d->value, 1) : d->hi <= SHORT_ROW ? tn_max(d->hi, 1) : 0;
}

/* The smallest multiple of unit, a power of two, that holds n; r * 2^k with odd r up to 7. */
static int64_t cover(int64_t n, int64_t unit)
{
    while (unit * 8 < n)
        unit *= 2;
    return tn_ceildiv(n, unit) * unit;
}

/* As whole vectors of `threads` threads, if that does not waste more than an eighth; else of half as wide ones. */
static int64_t cover_row(int64_t n, int64_t threads, int64_t vector)
{
    int64_t unit = threads * vector, whole = cover(n, unit);
    return (whole - n) * 8 > n ? cover(n, tn_max(unit / 2, 1)) : whole;
}

/* What other dims than these two give: grid coordinates that are walked one by one. */
static int64_t other_programs(const group *g, int a, int b)
{
    int64_t n = 1, product;
    for (int j = 0; j < g->ndims; j++)
        if (!g->dim[j].fold && !g->dim[j].absorbed && j != a && j != b)
            n = tn_mul(n, tn_dim_is_const(g->dim[j].extent) ? tn_max(g->dim[j].extent->value, 1) : 1, &product) ? product : INT64_MAX;
    return n;
}

static bool few(const fuser *F, int64_t programs, int64_t others, int64_t each)
{
    int64_t n;
    return tn_mul(programs, others, &n) && n < F->options->target.processors * each;
}

static int warps_for(int64_t elements, int64_t each, int64_t most) { return (int)within(pow2_floor(tn_max(elements / (each * WARP), 1)), 1, most); }

/* ---- the widest element ---------------------------------------------------------------------------------------------- */

typedef struct survey {
    group *g;
    int64_t bytes; /* of the widest element that is loaded or stored over all dims that are walked */
    int64_t loaded; /* of the widest that is loaded over what is reduced */
    bool shared;   /* something is loaded that all rows need: weights */
    int rows;      /* buffers whose loads move with the folded dims and with others: a program keeps as many rows, if several sweeps need them */
    int buffer[ROWS_COUNTED];
} survey;

static void see(void *context, fuser *F, const location *l, const fmap *m, bool store)
{
    survey *s = context;
    bool fold = false, kept = false, any_kept = false;
    for (int j = 0; j < s->g->ndims; j++) {
        if (tn_dim_is(s->g->dim[j].extent, 1))
            continue;
        bool moves = !tn_dim_is(fuse_total_stride(F, l, m, j), 0);
        fold |= moves && s->g->dim[j].fold;
        kept |= moves && !s->g->dim[j].fold;
        any_kept |= !s->g->dim[j].fold;
    }
    int64_t bytes = tn_max(tn_dtype_bits(F->program->buffers.at[l->buffer].type.dtype) / 8, 1);
    if (fold || kept)
        s->bytes = tn_max(s->bytes, bytes);
    if (fold && !store)
        s->loaded = tn_max(s->loaded, bytes);
    s->shared |= !store && fold && !kept && any_kept;
    bool row = !store && fold && (kept || !any_kept) && s->rows < ROWS_COUNTED;
    for (int i = 0; row && i < s->rows; i++)
        row = s->buffer[i] != l->buffer;
    if (row)
        s->buffer[s->rows++] = l->buffer;
}

static survey look(fuser *F, group *g)
{
    survey s = {.g = g, .bytes = 1, .loaded = 1};
    if (g->demands.len)
        fuse_visit_accesses(F, g, see, &s);
    else
        s.bytes = s.loaded = tn_max(tn_dtype_bits(g->root->nresults ? g->root->result->type.dtype : TN_F32) / 8, 1);
    return s;
}

/* What memory takes for all elements of the group, roughly: kernels that take longest are tuned first. */
static double memory_ns(fuser *F, group *g)
{
    double elements = 1;
    for (int j = 0; j < g->ndims; j++)
        elements *= tn_dim_is_const(g->dim[j].extent) ? (double)tn_max(g->dim[j].extent->value, 1) : SHORT_ROW;
    return START_NS + elements * (double)look(F, g).bytes / (double)(MEMORY_RATE * tn_max(F->options->target.wave, 1));
}

gpu_tile fuse_gpu_choose_tile(fuser *F, group *g, const emitter *E, gpu_tile t, int64_t most_rows, int64_t most_columns)
{
    static const char *const fields[] = {"rows", "columns", "warps", "cluster"};
    int n = t.cluster > 1 ? 4 : 3;
    fuse_candidates c = {.field = fields, .nfields = n, .tile = n};
    if (!fuse_is_asked(F))
        return t;
    fuse_add_neighbours(F, &c, (int64_t[]){t.rows, t.columns, t.warps, t.cluster}, (int64_t[]){1, 1, 1, 1},
                        (int64_t[]){most_rows, most_columns, ROW_MOST_WARPS, F->options->target.cluster}, memory_ns(F, g));
    const int64_t *v = fuse_choose(F, g, tn_op_name(g->root->code), E, &c)->value;
    return (gpu_tile){v[0], v[1], (int)v[2], n > 3 ? (int)v[3] : 0};
}

/* ---- elementwise ----------------------------------------------------------------------------------------------------- */

/* Rows x columns of a tile of so many elements (of so many bytes) over dims `row` (-1: none) and `vector`. */
static gpu_tile point_tile(fuser *F, const group *g, int vector, int row, int64_t elements, int64_t bytes)
{
    int64_t n = vector >= 0 ? known(fuse_whole_extent(F, g, vector)) : 1, m = row >= 0 ? known(fuse_whole_extent(F, g, row)) : 1;
    int64_t others = other_programs(g, vector, row), rows = m ? m : LARGE, columns = n ? n : LARGE, whole;
    while (elements > POINT_LEAST && tn_mul(rows, columns, &whole) && few(F, tn_ceildiv(whole, elements), others, 2))
        elements /= 2;
    gpu_tile t = {1, elements, 1, 0};
    if (n) { /* tiles of one size, as whole vectors of a warp */
        int64_t part = tn_ceildiv(n, tn_ceildiv(n, elements));
        t.columns = cover(part, tn_min(pow2_ceil(part), WARP * tn_max(VECTOR_BYTES / bytes, 1)));
    }
    if (row >= 0)
        t.rows = within(pow2_floor(elements / tn_min(t.columns, elements)), 1, pow2_ceil(rows));
    t.warps = warps_for(t.rows * t.columns, 4, POINT_WARPS);
    return t;
}

typedef struct boxes {
    const group *g;
    int row, vector;
    bool may;
} boxes;

static void see_boxes(void *context, fuser *F, const location *l, const fmap *map, bool store)
{
    boxes *x = context;
    int64_t bytes = tn_dtype_bits(F->program->buffers.at[l->buffer].type.dtype) / 8;
    bool even = l->offset->multiple * bytes % VECTOR_BYTES == 0, row = false, vector = false;
    (void)store;
    for (int j = 0; j < x->g->ndims; j++) {
        tn_dim stride = fuse_total_stride(F, l, map, j);
        if (tn_dim_is(stride, 0) || tn_dim_is(x->g->dim[j].extent, 1))
            continue;
        even &= tn_dim_is(stride, 1) || stride->multiple * bytes % VECTOR_BYTES == 0;
        row |= j == x->row;
        vector |= j == x->vector;
    }
    x->may &= !(row && vector) || (bytes == 2 && even);
}

/* All that lies along both dims can be copied in boxes, and there are enough tiles of them. */
static bool turns_by_boxes(fuser *F, group *g, int vector, int row, int64_t n, int64_t m)
{
    enum { EACH = 2 /* programs a processor */ };
    boxes x = {g, row, vector, F->options->target.groups && (!n || n >= TURN_BOX) && (!m || m >= TURN_BOX)};
    if (x.may)
        fuse_visit_accesses(F, g, see_boxes, &x);
    return x.may && !few(F, tn_ceildiv(n ? n : LARGE, TURN_BOX) * tn_ceildiv(m ? m : LARGE, TURN_BOX), other_programs(g, row, vector), EACH);
}

gpu_tile fuse_gpu_point(fuser *F, group *g, int vector, int row, bool turned)
{
    int64_t bytes = look(F, g).bytes;
    if (!turned || vector < 0)
        return point_tile(F, g, vector, row, within((int64_t)POINT_WARPS * WARP * THREAD_BYTES / bytes, POINT_LEAST, POINT_ELEMENTS), bytes);
    int64_t n = known(fuse_whole_extent(F, g, vector)), m = known(fuse_whole_extent(F, g, row));
    if (turns_by_boxes(F, g, vector, row, n, m))
        return (gpu_tile){TURN_BOX, TURN_BOX, TURN_WARPS, 0};
    gpu_tile t = {bytes > 4 ? SIDE / 2 : bytes > 2 ? SIDE : 2 * SIDE, bytes > 2 ? SIDE / 2 : SIDE, POINT_WARPS, 0};
    t.rows = m ? tn_min(t.rows, pow2_ceil(m)) : t.rows;
    t.columns = n ? tn_min(t.columns, pow2_ceil(n)) : t.columns;
    t.warps = warps_for(t.rows * t.columns, 16, TURN_WARPS);
    return t;
}

gpu_tile fuse_gpu_window(fuser *F, group *g, int vector, int row) { return point_tile(F, g, vector, row, WINDOW_ELEMENTS, look(F, g).bytes); }

gpu_tile fuse_gpu_scatter(fuser *F, group *g, int vector)
{
    gpu_tile t = fuse_gpu_point(F, g, vector, -1, false);
    int64_t n = known(fuse_whole_extent(F, g, vector));
    while (t.columns >= 2 * WARP && few(F, tn_ceildiv(n ? n : LARGE, t.columns), other_programs(g, vector, -1), 1))
        t.columns /= 2;
    t.warps = warps_for(t.columns, 4, POINT_WARPS);
    return t;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

/* A row that the CTAs of a cluster share. */
static gpu_tile cluster_row(const fuser *F, int64_t n, int64_t bytes, int64_t keeps)
{
    gpu_tile t = {1, 1, TN_CLUSTER_WARPS, (int)within(pow2_ceil(tn_ceildiv(n * bytes * keeps, TN_CLUSTER_PART)), 2, F->options->target.cluster)};
    t.columns = cover_row(n, (int64_t)t.cluster * t.warps * WARP, tn_max(VECTOR_BYTES / bytes, 1));
    return t;
}

/* A row of n values in registers, several together if it is short. */
static gpu_tile whole_row(fuser *F, int64_t n, int64_t rows, int64_t others, int64_t bytes, bool shared)
{
    gpu_tile t = {1, 1, 1, 0};
    int64_t vector = tn_max(VECTOR_BYTES / bytes, 1);
    if (n > SHORT_ROW) {
        int64_t warps = pow2_ceil(tn_ceildiv(n * bytes, THREAD_BYTES * WARP));
        t.warps = (int)within(tn_max(warps, tn_min(2 * warps, ROW_SPREAD_WARPS)), ROW_WARPS, shared ? ROW_MOST_WARPS : ROW_MOST_WARPS / 2);
        t.columns = cover_row(n, t.warps * WARP, vector);
        return t;
    }
    t.columns = n < WARP * vector ? pow2_ceil(n) : cover_row(n, WARP, vector);
    t.rows = within(pow2_floor(tn_max(SHORT_ELEMENTS / t.columns, 1)), SHORT_ROWS, pow2_ceil(rows));
    while (t.rows > 1 && few(F, tn_ceildiv(rows, t.rows), others, 2))
        t.rows /= 2;
    t.warps = warps_for(t.rows * t.columns, 8, POINT_WARPS);
    if (t.rows > 1)
        t.warps = tn_min(t.warps, (int)t.rows); /* no row on two warps, which would have to meet */
    return t;
}

gpu_tile fuse_gpu_rows(fuser *F, group *g, int vector, int row, int outer, int sweeps, int64_t *outer_step)
{
    bool again = sweeps > 1;
    survey s = look(F, g);
    int64_t n = known(fuse_whole_extent(F, g, vector)), keeps = again ? tn_max(s.rows, 1) : 1;
    tn_dim kept = row >= 0 ? fuse_whole_extent(F, g, row) : tn_dim_const(F->session, 1);
    int64_t rows = known(kept) ? known(kept) : LARGE, others = other_programs(g, vector, row), m = outer >= 0 ? known(fuse_whole_extent(F, g, outer)) : 1;
    bool alone = few(F, rows, others, 1);
    int64_t strip = (alone ? LONG_STRIP_BYTES : STRIP_BYTES) / s.bytes;
    *outer_step = 1;
    bool fits = n <= F->options->target.registers / ROW_PART / keeps || (again && n * s.bytes * keeps <= ROW_BYTES);
    int64_t bytes = n * s.bytes * keeps;
    bool shares = again && F->options->target.cluster > 1 && bytes <= CLUSTER_MOST * F->options->target.cluster;
    if (outer < 0 && n && shares && bytes > (sweeps < CLUSTER_SWEEPS ? ROW_BYTES : TN_CLUSTER_ROW))
        return cluster_row(F, n, s.bytes, keeps);
    if (outer < 0 && n && fits)
        return whole_row(F, n, rows, others, s.bytes, s.shared || !again);
    gpu_tile t = {1, strip, alone ? 32 : 8, 0};
    if (outer < 0 || !n || n > strip)
        return t;
    /* Two folded dims: the inner one whole, of the outer one as much as makes a strip. */
    t.columns = cover(n, 1);
    *outer_step = within(pow2_floor(strip / t.columns), 1, m ? pow2_ceil(m) : strip);
    t.warps = warps_for(t.columns * *outer_step, 8, t.warps);
    return t;
}

/* ---- columns --------------------------------------------------------------------------------------------------------- */

gpu_tile fuse_gpu_columns(fuser *F, group *g, int vector, int fold, bool again)
{
    survey s = look(F, g);
    int64_t n = known(fuse_whole_extent(F, g, vector)), m = known(fuse_whole_extent(F, g, fold)), keeps = again ? tn_max(s.rows, 1) : 1;
    gpu_tile t = {1, tn_max(LINE_BYTES / s.loaded, WARP), POINT_WARPS, 0};
    if (n && n < t.columns)
        t.columns = pow2_ceil(n);
    bool alone = few(F, tn_ceildiv(n ? n : LARGE, t.columns), other_programs(g, vector, -1), 1);
    t.rows = pow2_floor(tn_max((alone ? LONG_STRIP_BYTES : COLUMN_BYTES) / s.loaded / t.columns, 1));
    if (m && m <= t.rows)
        t.rows = pow2_ceil(m);
    else if (m && again && m * t.columns <= COLUMN_VALUES / keeps)
        t.rows = cover(m, 1);
    t.warps = warps_for(t.rows * t.columns, tn_max(THREAD_BYTES / s.loaded, 1), 32);
    return t;
}

int64_t fuse_gpu_parts(const tn_tile_target *target, int64_t kept, int64_t folded, bool last, int64_t bytes)
{
    int64_t columns = tn_min(kept, tn_max(LINE_BYTES / tn_max(bytes, 1), WARP)), programs = last ? kept : tn_ceildiv(kept, columns);
    int64_t elements = PART_BYTES / tn_max(bytes, 1), most = folded / tn_max(last ? elements : elements / columns, 1);
    if (2 * programs >= PARTS_EACH * target->processors || most < 2)
        return 1;
    return pow2_floor(tn_min(most, tn_ceildiv(PARTS_EACH * target->processors, programs)));
}

/* ---- sorts ----------------------------------------------------------------------------------------------------------- */

/* Shared memory has the elements, whether each exists, and its number. Lines that it holds twice over are sorted whole; longer ones in runs so that two programs share a processor. */
gpu_tile fuse_gpu_sort(const fuser *F, tn_dim n, tn_dim lines, int64_t bytes, int operands)
{
    enum { NUMBER_BYTES = 4, SLACK = 8 << 10, PAIRS = 2 /* a thread, at least */ };
    int64_t each = bytes + operands + NUMBER_BYTES, most = pow2_floor(tn_max((F->options->target.shared - SLACK) / each, 2));
    gpu_tile t = {1, n->hi <= most ? cover(tn_max(n->hi, 1), pow2_ceil(tn_max(n->hi, 1))) : most / 2, 1, 0};
    while (lines && 2 * t.rows * t.columns <= SHORT_ELEMENTS && (!tn_dim_is_const(lines) || t.rows < lines->value))
        t.rows *= 2;
    t.warps = warps_for(t.rows * t.columns, 2 * PAIRS, ROW_MOST_WARPS);
    return t;
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* How many values the other contracted dims have; 0: not known. */
static int64_t taps_of(fuser *F, const group *g, int k)
{
    int64_t taps = 1;
    for (int j = 0; j < g->ndims; j++) {
        tn_dim extent = g->dim[j].fold && !g->dim[j].absorbed && j != k ? fuse_whole_extent(F, g, j) : NULL;
        if (extent && (!tn_dim_is_const(extent) || !tn_mul(taps, extent->value, &taps)))
            return 0;
    }
    return taps;
}

static int64_t product_side(tn_dim d, bool there, bool instruction)
{
    int64_t n = tn_dim_is_const(d) ? d->value : tn_min(d->hi, LARGE);
    return there && n > 1 ? within(pow2_ceil(n), FRAGMENT, PRODUCT_FULL) : instruction ? FRAGMENT : 1;
}

/* Of the operands of matrix instructions, as the lowering has them. */
static bool has_instruction(const fuser *F, tn_dtype type)
{
    bool plain = type == TN_BF16 || type == TN_F16 || type == TN_I8 || type == TN_U8 || type == TN_F8E4M3 || type == TN_F8E5M2;
    return plain || (type == TN_F32 && fuse_precision(F, type) != TN_IEEE);
}

static int product_warps(int64_t M, int64_t N, bool instruction)
{
    if (M * N >= PRODUCT_FULL * PRODUCT_FULL)
        return 8;
    if (instruction) /* 16 x 16 of the result each, at least */
        return (int)within(M * N / (FRAGMENT * FRAGMENT), 1, 4);
    return M * N >= 2 * PRODUCT_LEAST * PRODUCT_LEAST || M == 1 || N == 1 ? 4 : 2;
}

/* A product of constant sizes: depth of k, times the values that other contracted dims have; and the machine. */
typedef struct sizes {
    int64_t rows, columns, others, depth, taps, bytes;
    bool instruction, groups, blocks, boxes; /* blocks: columns may be split in blocks of scales, which the others count then; boxes: where warpgroups multiply, a producer copies both factors */
    int64_t wave, shared; /* processors, bytes of shared memory of one */
} sizes;

static int64_t all_parts(const sizes *s, const gpu_product *p) { return p->parts * (p->taps ? s->taps : 1); }

static int64_t all_programs(const sizes *s, const gpu_product *p)
{
    return tn_ceildiv(s->rows, p->M) * tn_ceildiv(s->columns, p->N) * s->others * all_parts(s, p);
}

static int64_t strip_bytes(const sizes *s, const gpu_product *p) { return (p->M + p->N) * p->K * s->bytes; }
static bool by_groups(const sizes *s, const gpu_product *p) { return s->instruction && s->groups && p->M >= GROUP_SIDE && p->N >= GROUP_SIDE; }

/* Programs that a processor can hold. */
static int64_t most_resident(const sizes *s, const gpu_product *p) { return within(s->shared / (strip_bytes(s, p) * RING_LEAST + RING_SLACK), 1, MOST_RESIDENT); }

/* Stages of the ring of a program that shares a processor with others: as many as there is room for. wgmma's buffer comes on top. */
static int64_t ring_stages(const sizes *s, const gpu_product *p, int64_t resident)
{
    return within((s->shared / resident - RING_SLACK) / strip_bytes(s, p) - by_groups(s, p), 2, RING_MOST);
}

static bool by_boxes(const sizes *s, const gpu_product *p) { return s->boxes && by_groups(s, p); }

/* Two things at once: the shorter one is hidden but for a tenth, and altogether where a producer copies. */
static double overlapped(double a, double b, bool boxes) { return tn_max(a, b) + (boxes ? 0 : tn_min(a, b) / 10); }

/* A strip of each of so many programs that are on a processor together. */
static double strip_ns(const sizes *s, const gpu_product *p, int64_t resident)
{
    bool groups = by_groups(s, p), boxes = by_boxes(s, p);
    double all = !s->instruction ? SCALAR_RATE : (boxes ? BOXES_GROUPS_RATE : groups ? GROUP_RATE : WARP_RATE * product_warps(p->M, p->N, true)) * 2.0 / (double)s->bytes;
    double one = boxes && product_warps(p->M, p->N, true) == WARPS_OF_GROUP ? all * BOXES_GROUP_RATE / BOXES_GROUPS_RATE : all, n = (double)resident;
    double elements = (double)(p->M * p->N * p->K), bytes = (double)strip_bytes(s, p) / (boxes ? BOXES_RATE : L2_RATE);
    double alone = tn_max((boxes ? 0 : groups ? GROUP_NS : WARP_NS) + elements / one, LATENCY_NS / (double)(ring_stages(s, p, resident) - !boxes));
    return overlapped(alone, n * tn_max(elements / all, bytes), boxes);
}

/* Bytes a ns that programs get out of memory: what all can ask for, up to what there is; by boxes with a rounded corner between. */
static double memory_rate(double asked, double there, bool boxes)
{
    double lower = tn_min(asked, there), part = lower / tn_max(asked, there);
    return boxes ? lower / sqrt(sqrt(1 + part * part * part * part)) : lower;
}

/* What the product takes with these tiles and parts. */
static double product_ns(const sizes *s, const gpu_product *p)
{
    int64_t programs = all_programs(s, p), strips = tn_ceildiv(tn_ceildiv(s->depth, p->K), p->parts) * (p->taps ? 1 : s->taps), most = most_resident(s, p);
    double operands = (double)(s->rows + s->columns * s->taps) * (double)(s->depth * s->others * s->bytes), ns = by_boxes(s, p) ? BOXES_NS : 0;
    for (int64_t left = tn_ceildiv(programs, s->wave); left > 0; left -= most)
        ns += (double)strips * strip_ns(s, p, tn_min(left, most)) + START_NS;
    ns = overlapped(ns, operands / memory_rate((double)programs * ALONE_RATE, (double)s->wave * MEMORY_RATE, by_boxes(s, p)), by_boxes(s, p));
    double stored = (double)(4 * s->rows * s->columns * s->others * all_parts(s, p)); /* and loaded again */
    return all_parts(s, p) == 1 ? ns : ns + TOTAL_NS + 2 * stored / (double)(s->wave * PARTS_RATE);
}

static int64_t stages_of(const sizes *s, const gpu_product *p)
{
    int64_t stages = ring_stages(s, p, within(tn_ceildiv(all_programs(s, p), s->wave), 1, most_resident(s, p)));
    return by_groups(s, p) ? stages : within(RING_BYTES / strip_bytes(s, p), 2, stages);
}

/* The parts of this tile that take least time, into *best, if that is a hundredth less than *least. */
static void try_parts(const sizes *s, gpu_product p, double *least, gpu_product *best)
{
    int64_t strips = tn_ceildiv(s->depth, p.K);
    for (p.parts = 1; p.parts <= tn_min(strips, PARTS_MOST); p.parts++)
        for (int taps = 0; taps <= (s->taps > 1); taps++) {
            p.taps = taps;
            double ns = product_ns(s, &p);
            bool as_before = tn_ceildiv(strips, tn_ceildiv(strips, p.parts)) != p.parts;
            if (as_before || all_parts(s, &p) > PARTS_MOST || ns >= *least * 0.99)
                continue;
            *least = ns;
            *best = p;
        }
}

/* The tile and the parts that take least time; *best has the largest tile and the least strip of k. Of nearly equals what was measured to be faster: wgmma, wide tiles,
 * few rows, and for wgmma deep strips, if the ring has more than the least of them. */
static void choose_parts(const sizes *s, gpu_product *best)
{
    const gpu_product largest = *best;
    gpu_product p = largest;
    int64_t deepest = s->instruction && s->depth > p.K ? 2 * p.K : p.K;
    double least = INFINITY;
    for (int groups = s->groups; groups >= 0; groups--)
        for (p.N = largest.N; p.N >= tn_min(largest.N, PRODUCT_LEAST); p.N /= 2)
            for (p.M = FRAGMENT; p.M <= largest.M; p.M *= 2) {
                if (by_groups(s, &p) != groups)
                    continue;
                p.K = deepest;
                bool deep = groups && ring_stages(s, &p, 1) > RING_LEAST;
                for (int i = 0; i < 2; i++) {
                    p.K = (i == 0) == deep ? deepest : largest.K;
                    try_parts(s, p, &least, best);
                }
            }
    best->stages = stages_of(s, best);
}

/* Rounds of programs, one a processor at a time: so many of them. */
static int64_t rounds(const fuser *F, int64_t programs, int64_t others)
{
    int64_t n;
    return tn_mul(programs, others, &n) ? tn_ceildiv(n, F->options->target.wave) : INT64_MAX / 100;
}

/* What a product is made of; sizes that are not known stand for large ones. *counted: all are known. */
static sizes sizes_of(fuser *F, const group *g, int m, int n, int k, tn_dtype type, bool loaded, bool *counted)
{
    const tn_tile_target *target = &F->options->target;
    tn_dim one = tn_dim_const(F->session, 1), em = m >= 0 ? fuse_whole_extent(F, g, m) : one, en = n >= 0 ? fuse_whole_extent(F, g, n) : one;
    tn_dim ek = fuse_whole_extent(F, g, k);
    int64_t taps = taps_of(F, g, k);
    *counted = known(em) && known(en) && taps && tn_dim_is_const(ek) && ek->value > 0;
    return (sizes){.rows = known(em) ? known(em) : LARGE, .columns = known(en) ? known(en) : LARGE, .others = other_programs(g, m, n), .depth = known(ek) ? known(ek) : LARGE,
                   .taps = tn_max(taps, 1), .bytes = tn_max(tn_dtype_bits(type) / 8, 1), .instruction = has_instruction(F, type), .groups = target->groups,
                   .blocks = g->scaled, .boxes = loaded, .wave = target->wave, .shared = target->shared};
}

static void finish_tile(const sizes *s, gpu_product *p)
{
    p->warps = product_warps(p->M, p->N, s->instruction);
    bool across = tn_ceildiv(s->columns, p->N) > 1 || (s->blocks && s->others > 1);
    p->group = tn_ceildiv(s->rows, p->M) > 1 && across ? PRODUCT_GROUP : 0;
}

typedef struct turns {
    const group *g;
    int m, n;
    bool may; /* what is stored has 2 bytes, which lanes exchange among each other; what is loaded for it is the same along m or n; boxes of the factors can be copied */
} turns;

static void see_turns(void *context, fuser *F, const location *l, const fmap *map, bool store)
{
    turns *t = context;
    int64_t bytes = tn_dtype_bits(F->program->buffers.at[l->buffer].type.dtype) / 8;
    bool factor = false, even = l->offset->multiple * bytes % VECTOR_BYTES == 0, row = false, column = false;
    for (int j = 0; j < t->g->ndims; j++) {
        tn_dim stride = fuse_total_stride(F, l, map, j);
        if (tn_dim_is(stride, 0) || tn_dim_is(t->g->dim[j].extent, 1))
            continue;
        even &= tn_dim_is(stride, 1) || stride->multiple * bytes % VECTOR_BYTES == 0;
        factor |= t->g->dim[j].fold;
        row |= j == t->m;
        column |= j == t->n;
    }
    t->may &= store ? bytes == 2 : factor ? even : !(row && column);
}

/* The lowering can have instances: it copies boxes of the factors, and what comes behind the product goes through no shared memory, of which each would want some. */
static bool may_take_turns(fuser *F, group *g, int m, int n)
{
    turns t = {g, m, n, true};
    fuse_visit_accesses(F, g, see_turns, &t);
    return t.may;
}

/* What all rounds of programs of so many columns take, in hundredths of a strip's time of two instances in turns. */
static double rounds_cost(const fuser *F, const sizes *s, const gpu_product *p, int64_t columns, bool turns)
{
    enum { BOX = 64 };
    double strips = (double)tn_ceildiv(s->depth, p->K) * (double)s->taps, n = (double)rounds(F, tn_ceildiv(s->rows, p->M) * tn_ceildiv(s->columns, columns), s->others);
    if (turns)
        return n * strips * 100 + RESULTS_COST * 100;
    int64_t each = columns == PRODUCT_FULL ? ALONE_COST : columns == 2 * PRODUCT_FULL ? WIDE_COST : (columns + tn_ceildiv(columns, BOX) * BOX) * 50 / PRODUCT_FULL;
    return n * (strips * (double)each + RESULTS_COST * 100);
}

/* Two programs in turns where there is more than one a processor and the lowering can; else, or where the last of their rounds leaves too many processors idle, one of more
 * columns: twice as many, or of halves by warpgroups a number between. Of f8, strips' sums are added up while another warpgroup multiplies, which in turns none does: 0.61 of
 * cuBLAS for 0.93. Scales of more columns would leave no registers. */
static void widen_tile(fuser *F, group *g, int m, int n, bool loaded, bool counted, tn_dtype type, const sizes *s, gpu_product *p)
{
    int64_t rows = tn_ceildiv(s->rows, p->M), narrow = p->N, most = 2 * narrow;
    if (p->stages || (s->bytes != 2 && !(s->groups && s->instruction)) || p->M != PRODUCT_FULL || p->N != PRODUCT_FULL)
        return;
    bool boxes = loaded && s->groups && !product_imprecise(F, type) && may_take_turns(F, g, m, n);
    bool turns = boxes && rounds(F, rows * tn_ceildiv(s->columns, narrow), s->others) > 1, uneven = counted && boxes && s->bytes == 2 && !g->scaled;
    double least = rounds_cost(F, s, p, narrow, turns);
    for (int64_t columns = uneven ? narrow + UNEVEN : most; !g->scaled && columns <= most; columns += UNEVEN) {
        double cost = rounds_cost(F, s, p, columns, false);
        if (cost > least || (columns == most && (turns || few(F, rows * tn_ceildiv(s->columns, most), s->others, 1))))
            continue;
        least = cost;
        p->N = columns;
    }
    if (p->N != narrow) {
        finish_tile(s, p);
        p->stages = p->N < most ? ring_stages(s, p, 1) : 0;
    } else if (turns) {
        p->warps = PRODUCT_WARPS;
        p->instances = PRODUCT_INSTANCES;
        p->stages = PRODUCT_STAGES;
    }
}

gpu_product fuse_gpu_product(fuser *F, group *g, int m, int n, int k, tn_dtype type, bool loaded)
{
    bool counted;
    tn_dim one = tn_dim_const(F->session, 1), em = m >= 0 ? fuse_whole_extent(F, g, m) : one, en = n >= 0 ? fuse_whole_extent(F, g, n) : one;
    sizes s = sizes_of(F, g, m, n, k, type, loaded, &counted);
    int64_t rows = s.rows, columns = s.columns, others = s.others, bytes = s.bytes;
    gpu_product p = {.M = product_side(em, m >= 0, s.instruction), .N = product_side(en, n >= 0, s.instruction), .parts = 1};
    p.K = within(pow2_ceil(s.depth), FRAGMENT, PRODUCT_BYTES / bytes);
    if (counted && p.M > 1 && p.N > 1 && few(F, tn_ceildiv(rows, p.M) * tn_ceildiv(columns, p.N), others, 1)) {
        if (s.groups && s.instruction && rows > FRAGMENT)
            p.M = tn_max(p.M, GROUP_SIDE);
        choose_parts(&s, &p);
    }
    while (!p.stages && few(F, tn_ceildiv(rows, p.M) * tn_ceildiv(columns, p.N), others, 1) && tn_max(p.M, p.N) > PRODUCT_LEAST)
        *(p.N >= p.M ? &p.N : &p.M) /= 2;
    finish_tile(&s, &p);
    widen_tile(F, g, m, n, loaded, counted, type, &s, &p);
    return p;
}

/* Warpgroups have a ring and programs that overlap; sums one after the other have a ring each, and nothing is hidden. By multiply-adds nothing is lost, unless few tiles want their sums
 * in parts. */
bool fuse_gpu_takes_siblings(const fuser *F, const tn_op *dot)
{
    int batch;
    bool counted = true;
    const tn_type *type = &dot->result->type;
    int64_t columns = known(type->dim[type->rank - 1]), rows = 1;
    tn_attr_ints(dot, TN_A_lhs_batch, &batch);
    for (int i = 0; i + 1 < type->rank; i++)
        counted &= known(type->dim[i]) && tn_mul(rows, type->dim[i]->value, &rows);
    tn_dtype factors = product_type(tn_operand(dot, 0)->type.dtype, tn_operand(dot, 1)->type.dtype, type->dtype);
    return !batch && columns > 1 && !has_instruction(F, factors) &&
           (!counted || (rows > 1 && !few(F, tn_ceildiv(rows, PRODUCT_FULL) * tn_ceildiv(columns, PRODUCT_FULL), 1, 1)));
}

static void add_product(fuser *F, fuse_candidates *c, const sizes *s, const gpu_product *p)
{
    fuse_add_candidate(F, c, (int64_t[]){p->M, p->N, p->K, p->warps, p->group, p->stages, p->parts, p->taps, p->instances}, product_ns(s, p));
}

/* Of each tile up to the largest that the lowering has: whole sums, and if they take less time by estimate the best parts. */
static void add_tiles(fuser *F, fuse_candidates *c, const sizes *s, bool counted, int64_t K)
{
    int64_t most_rows = within(pow2_ceil(s->rows), FRAGMENT, PRODUCT_FULL), most_columns = within(pow2_ceil(s->columns), FRAGMENT, 2 * PRODUCT_FULL);
    gpu_product p = {.K = K, .parts = 1};
    if (s->groups && s->instruction && s->rows > FRAGMENT)
        most_rows = tn_max(most_rows, GROUP_SIDE);
    for (p.M = FRAGMENT; p.M <= most_rows; p.M *= 2)
        for (p.N = tn_min(most_columns, PRODUCT_LEAST); p.N <= most_columns; p.N *= 2) {
            gpu_product whole = p, best = {.M = 0};
            if (p.N > PRODUCT_FULL && (p.M < PRODUCT_FULL || (s->bytes != 2 && !s->groups))) /* 64 x 256 takes 2.5 times as long as 128 x 256 */
                continue;
            finish_tile(s, &whole);
            whole.stages = all_programs(s, &whole) <= s->wave ? stages_of(s, &whole) : 0;
            double least = product_ns(s, &whole);
            add_product(F, c, s, &whole);
            if (counted)
                try_parts(s, p, &least, &best);
            if (!best.M)
                continue;
            finish_tile(s, &best);
            best.stages = stages_of(s, &best);
            add_product(F, c, s, &best);
        }
}

gpu_product fuse_gpu_choose_product(fuser *F, group *g, const char *stem, int m, int n, int k, tn_dtype type, bool loaded)
{
    static const char *const fields[] = {"M", "N", "K", "warps", "group", "stages", "parts", "taps", "instances"};
    gpu_product p = fuse_gpu_product(F, g, m, n, k, type, loaded);
    fuse_candidates c = {.field = fields, .nfields = TN_COUNT(fields), .tile = 3};
    bool counted;
    if (!fuse_is_asked(F) || p.M == 1 || p.N == 1)
        return p;
    sizes s = sizes_of(F, g, m, n, k, type, loaded, &counted);
    add_product(F, &c, &s, &p);
    for (int64_t depth = 1; depth <= 1 + (s.depth > PRODUCT_BYTES / s.bytes); depth++)
        add_tiles(F, &c, &s, counted, depth * within(pow2_ceil(s.depth), FRAGMENT, PRODUCT_BYTES / s.bytes));
    const int64_t *v = fuse_choose(F, g, stem, NULL, &c)->value;
    return (gpu_product){.M = v[0], .N = v[1], .K = v[2], .warps = (int)v[3], .group = v[4], .stages = v[5], .parts = v[6], .taps = v[7] != 0, .instances = (int)v[8]};
}

gpu_product fuse_gpu_vector(fuser *F, const group *g, int kept, int k, tn_dtype type, bool along_k)
{
    tn_dim en = kept >= 0 ? fuse_whole_extent(F, g, kept) : tn_dim_const(F->session, 1), ek = fuse_whole_extent(F, g, k);
    int64_t columns = known(en) ? known(en) : LARGE, depth = known(ek) ? known(ek) : LARGE, bytes = tn_max(tn_dtype_bits(type) / 8, 1);
    int64_t others = other_programs(g, kept, -1), elements = VECTOR_WARPS * WARP * THREAD_BYTES / bytes;
    gpu_product p = {.M = 1, .N = 1, .parts = 1};
    while (along_k && p.N < VECTOR_WARPS && !few(F, columns / (2 * p.N), others, 2))
        p.N *= 2;
    if (!along_k)
        p.N = within(pow2_ceil(columns), 1, tn_max(LINE_BYTES / bytes, WARP));
    p.K = within(pow2_ceil(depth), 1, elements / p.N);
    p.warps = warps_for(p.N * p.K, tn_max(THREAD_BYTES / bytes, 1), VECTOR_WARPS);
    int64_t programs = tn_ceildiv(columns, p.N), strips = tn_ceildiv(depth, p.K);
    if (known(en) && tn_dim_is_const(ek) && taps_of(F, g, k) && few(F, programs, others, VECTOR_EACH / 2)) {
        int64_t parts = within(tn_ceildiv(VECTOR_EACH * F->options->target.processors, programs * others), 1, tn_min(strips, PARTS_MOST));
        p.parts = tn_ceildiv(strips, tn_ceildiv(strips, parts));
    }
    return p;
}

gpu_product fuse_gpu_choose_vector(fuser *F, group *g, const char *stem, int kept, int k, tn_dtype type, bool along_k)
{
    static const char *const fields[] = {"N", "K", "warps"};
    gpu_product p = fuse_gpu_vector(F, g, kept, k, type, along_k);
    fuse_candidates c = {.field = fields, .nfields = TN_COUNT(fields), .tile = TN_COUNT(fields)};
    tn_dim en = kept >= 0 ? fuse_whole_extent(F, g, kept) : tn_dim_const(F->session, 1), ek = fuse_whole_extent(F, g, k);
    int64_t columns = known(en) ? known(en) : LARGE, depth = known(ek) ? known(ek) : LARGE;
    if (!fuse_is_asked(F))
        return p;
    fuse_add_neighbours(F, &c, (int64_t[]){p.N, p.K, p.warps}, (int64_t[]){1, 1, 1}, (int64_t[]){pow2_ceil(columns), pow2_ceil(depth), 2 * VECTOR_WARPS}, memory_ns(F, g));
    const int64_t *v = fuse_choose(F, g, stem, NULL, &c)->value;
    int64_t strips = tn_ceildiv(depth, v[1]);
    p.N = v[0], p.K = v[1], p.warps = (int)v[2];
    p.parts = tn_ceildiv(strips, tn_ceildiv(strips, tn_min(p.parts, strips)));
    return p;
}

gpu_tile fuse_gpu_total(fuser *F, const group *g, int vector, int64_t parts)
{
    tn_dim d = vector >= 0 ? fuse_whole_extent(F, g, vector) : tn_dim_const(F->session, 1);
    int64_t n = known(d) ? known(d) : LARGE, others = other_programs(g, vector, -1);
    gpu_tile t = {cover(parts, 1), tn_min(pow2_ceil(n), TOTAL_MOST), 1, 0};
    while (t.columns > TOTAL_COLUMNS && few(F, tn_ceildiv(n, t.columns), others, TOTAL_EACH))
        t.columns /= 2;
    return t;
}

/* ---- attention -------------------------------------------------------------------------------------------------------- */

static int64_t side_of(fuser *F, const group *g, int j, int64_t least, int64_t most)
{
    tn_dim d = j >= 0 ? fuse_whole_extent(F, g, j) : tn_dim_const(F->session, 1);
    return within(pow2_ceil(known(d) ? known(d) : LARGE), least, most);
}

/* Four warpgroups of 64 rows, with 64 keys a turn, which fit the 112 registers that they have then: where products take less time than exponentials, so that one warpgroup
 * more of a processor's quarter computes while the others wait for each other. Scores are only scaled: masks would want registers too. A program of twice the rows takes
 * 1.84 times as long (an H200), so rounds of programs may be longer by no more than that. */
static bool takes_four_groups(fuser *F, const attention *a, const fuse_attention_tile *t, int64_t rows, int64_t keys, int64_t others)
{
    enum { ONCE = 25, TWICE = 46, LEAST_KEYS = 512 };
    double by;
    int way;
    for (const demand *d = a->scores; d != a->keys_demand; d = d->arg[way]) {
        attention_step step = attention_step_of(F, d, &way, &by);
        if (step != STEP_SCALES && step != STEP_DIVIDES && step != STEP_MOVES)
            return false;
    }
    return F->options->target.groups && t->D == GROUP_SIDE && t->C == GROUP_SIDE && t->M == PRODUCT_FULL && rows && (!keys || keys >= LEAST_KEYS) &&
           TWICE * rounds(F, tn_ceildiv(rows, 2 * t->M), others) <= ONCE * rounds(F, tn_ceildiv(rows, t->M), others);
}

/* 128 rows by 128 keys, what wgmma and the lowering's registers hold; fewer keys where two turns' keys and values, the queries and what else the loop shares would
 * not fit shared memory, and where the accumulators of both products would not leave registers for the rest: by multiply-adds, factors take some too. Fewer rows
 * where that many leave processors idle. */
fuse_attention_tile fuse_gpu_attention(fuser *F, const group *g, int row)
{
    const attention *a = g->attention;
    int64_t bytes = tn_max(tn_dtype_bits(tn_operand(a->values, 0)->type.dtype) / 8, 1);
    bool matrix = bytes <= 2;
    int64_t rows = matrix ? PRODUCT_FULL : PRODUCT_FULL / 2, sums = matrix ? ATTENTION_SUMS : ATTENTION_SUMS / 2;
    int64_t count = row >= 0 ? known(fuse_whole_extent(F, g, row)) : 1;
    fuse_attention_tile t = {.M = side_of(F, g, row, FRAGMENT, rows), .N = side_of(F, g, a->key, FRAGMENT, rows)};
    t.D = side_of(F, g, a->depth, FRAGMENT, LARGE);
    t.C = side_of(F, g, a->column, FRAGMENT, LARGE);
    if (!matrix && t.C > rows)
        t.M = tn_min(t.M, PRODUCT_LEAST);
    while (matrix && t.M > GROUP_SIDE && few(F, count ? tn_ceildiv(count, t.M) : LARGE, other_programs(g, row, a->column), 1))
        t.M /= 2;
    t.warps = matrix ? (int)within(t.M / FRAGMENT, 1, 8) : 4;
    while (t.N > PRODUCT_LEAST && (t.M * t.D * bytes + 2 * t.N * (t.D + t.C) * bytes + ATTENTION_SHARED > F->options->target.shared ||
                                   t.M * (t.N + t.C) > sums * WARP * t.warps))
        t.N /= 2;
    if (matrix && takes_four_groups(F, a, &t, count, known(fuse_whole_extent(F, g, a->key)), other_programs(g, row, a->column)))
        t = (fuse_attention_tile){.M = 2 * t.M, .N = t.N / 2, .D = t.D, .C = t.C, .warps = 2 * t.warps};
    return t;
}

/* ---- kernels of every kind ------------------------------------------------------------------------------------------- */

static void largest_tile(void *context, tn_top *op)
{
    int64_t *most = context;
    for (int i = 0; i < op->nresults; i++) {
        int64_t n = 1;
        for (int a = 0; a < op->result[i].type.rank; a++)
            n *= tn_max(op->result[i].type.extent[a].size, 1);
        *most = tn_max(*most, n);
    }
}

/* A product and a sum may be one instruction where narrow results hide that they are rounded once. */
static bool hides_rounding(const emitter *E)
{
    bool hides = E->F->options->numerics != TN_NUMERICS_STRICT;
    for (size_t i = 0; i < E->kernel->buffers.len; i++) {
        const tn_tbuffer *b = &E->kernel->buffers.at[i];
        hides &= b->mode == TN_READ || !tn_is_float(b->dtype) || tn_dtype_bits(b->dtype) <= 16;
    }
    return hides;
}

void fuse_gpu_finish(emitter *E)
{
    int64_t elements = 1;
    E->kernel->contract = hides_rounding(E);
    tn_tile_straighten(E->kernel);
    tn_tile_walk(E->kernel->body, largest_tile, &elements);
    if (!tn_schedule_get(&E->kernel->schedule, "", "warps", 0))
        tn_schedule_set(E->kernel, "", "warps", warps_for(elements, 4, POINT_WARPS));
}
