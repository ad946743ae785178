/* What works along the lines of a tile, on CPUs: scan, sort, reduce in a fixed order; and histogram.
 *
 * scan       along the last axis a vector of neighbours at a time: log2 steps of shifted combination inside the vector, then the carry from the one before;
 *            along another axis the vectors walk the last one, and every lane runs along its own line.
 * sort       a line at a time: what exists to the front, merged bottom-up without branches, merges of one level side by side while there are many.
 * reduce     with `order tree`: halved by neighbours until one is left.
 * histogram  bins of all elements by vectors, what is to be left out in one bin more; four tables where there are many elements a bin, so that one
 *            addition need not wait for the one before. */
#include "target/cpu/lower.h"

#include <string.h>

/* ---- combining ------------------------------------------------------------------------------------------------------------ */

/* Regions of these operations can be computed on vectors as they are. */
static bool is_vector_region(const tn_tblock *region)
{
    for (const tn_top *op = region->first; op; op = op->next)
        if (op->code != TN_T_const && op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_bitcast && op->code != TN_T_yield)
            return false;
    return true;
}

static tn_lvalue *vector_value(lower *L, tn_lbuilder *b, tn_map *known, const tn_tvalue *v, int lanes)
{
    tn_lvalue *made = tn_map_get(known, TN_KEY(v)), *x[3];
    const tn_top *op = v->def;
    if (made)
        return made;
    if (!op || op->code == TN_T_yield || op->block == NULL) {
        made = tn_l_splat(b, lower_scalar(L, b, v), lanes);
    } else if (op->code == TN_T_const) {
        made = tn_l_const(b, tn_lvector(v->type.dtype, lanes), op->number);
    } else if (op->code == TN_T_map || op->code == TN_T_cast || op->code == TN_T_bitcast) {
        for (int i = 0; i < op->noperands; i++)
            x[i] = vector_value(L, b, known, op->operand[i], lanes);
        made = op->code == TN_T_map    ? tn_l_fn(b, op->fn, x, op->noperands)
               : op->code == TN_T_cast ? tn_l_cast(b, x[0], v->type.dtype)
                                       : tn_l_bitcast(b, x[0], tn_lvector(v->type.dtype, lanes));
    } else { /* a scalar of outside */
        made = tn_l_splat(b, lower_scalar(L, b, v), lanes);
    }
    *tn_map_at(known, TN_KEY(v)) = made;
    return made;
}

/* The same on vectors. x may be out. */
static void combine_vectors(lower *L, tn_lbuilder *b, const tn_tblock *region, int n, tn_lvalue *const *a, tn_lvalue *const *x, int lanes, tn_lvalue **out)
{
    tn_map known = {.arena = &L->arena};
    for (int i = 0; i < n; i++) {
        *tn_map_at(&known, TN_KEY(&region->arg[i])) = a[i];
        *tn_map_at(&known, TN_KEY(&region->arg[n + i])) = x[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = vector_value(L, b, &known, region->last->operand[i], lanes);
}

static const axis_bound everywhere = {NULL, NULL};

/* Opens serial loops over all axes but one. */
static void open_lines(lower *L, tn_lbuilder *b, const tn_ttype *type, int axis, tn_lvalue **idx)
{
    for (int a = 0; a < type->rank; a++)
        if (a != axis)
            idx[a] = lower_open_axis(L, b, a, type->extent[a].size, &everywhere, TN_FOR_SERIAL);
}

/* ---- scan ---------------------------------------------------------------------------------------------------------------------- */

/* Lanes that a scan along the last axis takes at once: a power of two that divides its extent. Less than four do not pay. */
static int64_t scan_lanes(const lower *L, const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    int64_t extent = type->extent[op->axis[0]].size;
    int bits = 8;
    if (op->axis[0] != type->rank - 1 || !is_vector_region(op->region[0]))
        return 1;
    for (int i = 0; i < op->nresults; i++) {
        tn_dtype dtype = op->operand[i]->type.dtype;
        if (tn_is_complex(dtype) || (dtype != TN_BOOL && tn_dtype_bits(dtype) < 8) || op->operand[i]->type.pointer)
            return 1;
        if (dtype != TN_BOOL)
            bits = (int)tn_max(bits, tn_is_float(dtype) ? tn_max(tn_dtype_bits(dtype), 32) : tn_dtype_bits(dtype));
    }
    return tn_min(tn_min(L->machine->vector.bits / bits, 64), extent & -extent);
}

static void scan_vectors(lower *L, tn_lbuilder *b, const tn_top *op, place *const *out, int lanes)
{
    enum { MOST = 64 };
    const tn_ttype *type = &op->operand[0]->type;
    int axis = op->axis[0], n = op->nresults, order[MOST];
    int64_t extent = type->extent[axis].size;
    tn_lvalue *idx[TN_TILE_RANK], *carry[TN_TILE_COMBINED], *part[TN_TILE_COMBINED], *start[TN_TILE_COMBINED], *v[TN_TILE_COMBINED] = {NULL}, *w[TN_TILE_COMBINED] = {NULL};
    tn_lbuilder in = *b, lane;
    scope s = lower_open(L);
    open_lines(L, &in, type, axis, idx);
    for (int i = 0; i < n; i++) {
        tn_dtype dtype = op->operand[i]->type.dtype;
        carry[i] = tn_l_alloc(&in, "carry", dtype, TN_SPACE_REG, 1);
        part[i] = tn_l_alloc(&in, "part", dtype, TN_SPACE_REG, lanes);
        start[i] = tn_l_const(&in, tn_lvector(dtype, lanes), op->identity[i]);
        tn_l_store(&in, carry[i], tn_l_index(&in, 0), tn_l_const(&in, tn_lscalar(dtype), op->identity[i]), NULL);
    }
    tn_lop *loop = tn_l_for(&in, "i", tn_l_index(&in, 0), tn_l_index(&in, extent), tn_l_index(&in, lanes), TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *base = loop->region[0]->arg, *zero = tn_l_index(&in, 0);
    if (op->reverse)
        base = tn_l_fn2(&in, TN_S_sub, tn_l_index(&in, extent - lanes), base);
    tn_lvalue *l = lower_vector_loop(&in, lanes, &lane);
    scope inner = lower_open(L);
    idx[axis] = tn_l_fn2(&lane, TN_S_add, base, l);
    element x[TN_TILE_COMBINED];
    for (int i = 0; i < n; i++)
        x[i] = lower_element(L, &lane, op->operand[i], idx);
    tn_lvalue *present = lower_all_present(&lane, x, n);
    for (int i = 0; i < n; i++) {
        tn_lvalue *none = tn_l_const(&lane, tn_lscalar(op->operand[i]->type.dtype), op->identity[i]);
        tn_l_store(&lane, part[i], l, present ? tn_l_fn3(&lane, TN_S_select, present, x[i].value, none) : x[i].value, NULL);
    }
    lower_close(L, inner);
    for (int i = 0; i < n; i++)
        v[i] = tn_l_load(&in, part[i], zero, lanes, NULL, NULL);
    for (int by = 1; by < lanes; by *= 2) {
        for (int k = 0; k < lanes; k++) {
            int from = op->reverse ? k + by : k - by;
            order[k] = from >= 0 && from < lanes ? lanes + from : k;
        }
        for (int i = 0; i < n; i++)
            w[i] = tn_l_shuffle(&in, start[i], v[i], order, lanes);
        combine_vectors(L, &in, op->region[0], n, w, v, lanes, v);
    }
    for (int i = 0; i < n; i++)
        w[i] = tn_l_splat(&in, tn_l_load(&in, carry[i], zero, 1, NULL, NULL), lanes);
    combine_vectors(L, &in, op->region[0], n, w, v, lanes, v);
    idx[axis] = base;
    for (int i = 0; i < n; i++) {
        tn_l_store(&in, out[i]->buffer, lower_place_offset(&in, out[i], type->rank, idx), v[i], NULL);
        tn_l_store(&in, carry[i], zero, tn_l_extract(&in, v[i], tn_l_index(&in, op->reverse ? 0 : lanes - 1)), NULL);
    }
    lower_close(L, s);
}

/* An element at a time along the axis; lanes of another axis are independent. */
static void scan_serial(lower *L, tn_lbuilder *b, const tn_top *op, place *const *out)
{
    const tn_ttype *type = &op->operand[0]->type;
    int axis = op->axis[0], n = op->nresults;
    tn_lvalue *idx[TN_TILE_RANK], *acc[TN_TILE_COMBINED];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    int vector = type->rank > 1 ? (axis == type->rank - 1 ? type->rank - 2 : type->rank - 1) : -1;
    for (int i = 0; i <= type->rank; i++) {
        int a = i < type->rank ? i : vector;
        if (a == axis || a < 0 || (i < type->rank && i == vector))
            continue;
        idx[a] = lower_open_axis(L, &in, a, type->extent[a].size, &everywhere, i == type->rank ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    }
    for (int i = 0; i < n; i++) {
        acc[i] = tn_l_alloc(&in, "acc", op->operand[i]->type.dtype, TN_SPACE_REG, 1);
        tn_l_store(&in, acc[i], tn_l_index(&in, 0), tn_l_const(&in, tn_lscalar(op->operand[i]->type.dtype), op->identity[i]), NULL);
    }
    int64_t extent = type->extent[axis].size;
    tn_lop *loop = tn_l_for(&in, "i", tn_l_index(&in, 0), tn_l_index(&in, extent), tn_l_index(&in, 1), TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    idx[axis] = loop->region[0]->arg;
    if (op->reverse)
        idx[axis] = tn_l_fn2(&in, TN_S_sub, tn_l_index(&in, extent - 1), idx[axis]);
    element x[TN_TILE_COMBINED] = {{NULL, NULL}};
    for (int i = 0; i < n; i++)
        x[i] = lower_element(L, &in, op->operand[i], idx);
    lower_accumulate(L, &in, op->region[0], n, acc, tn_l_index(&in, 0), x);
    for (int i = 0; i < n; i++)
        tn_l_store(&in, out[i]->buffer, lower_place_offset(&in, out[i], type->rank, idx), tn_l_load(&in, acc[i], tn_l_index(&in, 0), 1, NULL, NULL), NULL);
    lower_close(L, s);
}

void lower_scan(lower *L, tn_lbuilder *b, const tn_top *op)
{
    place *out[TN_TILE_COMBINED];
    int64_t lanes = scan_lanes(L, op);
    for (int i = 0; i < op->nresults; i++)
        out[i] = lower_new_place(L, b, &op->result[i].type, "scan");
    if (lanes >= 4)
        scan_vectors(L, b, op, out, (int)lanes);
    else
        scan_serial(L, b, op, out);
    for (int i = 0; i < op->nresults; i++)
        lower_set_place(L, &op->result[i], out[i]);
}

/* ---- sort ----------------------------------------------------------------------------------------------------------------------- */

/* A line under way. `line[k]` holds two halves of `extent` elements, read and written in turns; one more so that reading past the end is harmless. */
typedef struct sorting {
    const tn_top *op;
    int n, axis;
    int64_t extent;
    tn_dtype holds[TN_TILE_COMBINED];
    tn_lvalue *line[TN_TILE_COMBINED], *raw[TN_TILE_COMBINED], *exists[TN_TILE_COMBINED];
    tn_lvalue *count; /* of what is sorted */
} sorting;

/* line := the elements in their order; of tuples that may be absent also which parts exist. Returns whether any may. */
static bool read_line(lower *L, tn_lbuilder *b, sorting *t, tn_lvalue **idx)
{
    element x[TN_TILE_COMBINED];
    tn_lbuilder lane = *b;
    scope s = lower_open(L);
    idx[t->axis] = lower_open_axis(L, &lane, t->axis, t->extent, &everywhere, TN_FOR_VECTOR);
    bool absent = false;
    for (int k = 0; k < t->n; k++) {
        x[k] = lower_element(L, &lane, t->op->operand[k], idx);
        absent |= x[k].present != NULL;
    }
    for (int k = 0; k < t->n; k++) {
        tn_l_store(&lane, absent ? t->raw[k] : t->line[k], idx[t->axis], lower_frozen(&lane, x[k]), NULL);
        if (absent)
            tn_l_store(&lane, t->exists[k], idx[t->axis], lower_yes_or(&lane, x[k].present), NULL);
    }
    lower_close(L, s);
    return absent;
}

/* line[at++] := raw[i] for all i whose tuple exists, or for the others. `there`: by result, which parts exist. */
static void take(tn_lbuilder *b, const sorting *t, tn_lvalue *at, bool those_that_exist, place *const *there, tn_lvalue **idx)
{
    tn_lvalue *zero = tn_l_index(b, 0);
    tn_lop *loop = tn_l_for(b, "i", zero, tn_l_index(b, t->extent), tn_l_index(b, 1), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg, *exists[TN_TILE_COMBINED], *all = NULL;
    for (int k = 0; k < t->n; k++) {
        exists[k] = tn_l_load(&in, t->exists[k], i, 1, NULL, NULL);
        all = lower_and(&in, all, exists[k]);
    }
    tn_lop *branch = tn_l_if(&in, those_that_exist ? all : tn_l_fn1(&in, TN_S_not, all));
    tn_lbuilder then = tn_l_in(&in, branch->region[0]);
    tn_lvalue *to = tn_l_load(&then, at, zero, 1, NULL, NULL);
    idx[t->axis] = to;
    for (int k = 0; k < t->n; k++) {
        tn_l_store(&then, t->line[k], to, tn_l_load(&then, t->raw[k], i, 1, NULL, NULL), NULL);
        tn_l_store(&then, there[k]->buffer, lower_place_offset(&then, there[k], t->op->operand[k]->type.rank, idx), exists[k], NULL);
    }
    tn_l_store(&then, at, zero, tn_l_fn2(&then, TN_S_add, to, tn_l_index(&then, 1)), NULL);
}

/* Merges [lo, mid) and [mid, hi) of the half at `from` into the half at `to`, all of 2 * width steps where `guarded`: then only those below hi count. */
static void merge(lower *L, tn_lbuilder *b, const sorting *t, tn_lvalue *lo, tn_lvalue *width, tn_lvalue *from, tn_lvalue *to, bool guarded)
{
    tn_lvalue *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1);
    tn_lvalue *mid = tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_add, lo, width), t->count), *twice = tn_l_fn2(b, TN_S_add, width, width);
    tn_lvalue *hi = tn_l_fn2(b, TN_S_min, tn_l_fn2(b, TN_S_add, lo, twice), t->count);
    tn_lvalue *at[2] = {tn_l_alloc(b, "left", TN_I64, TN_SPACE_REG, 1), tn_l_alloc(b, "right", TN_I64, TN_SPACE_REG, 1)};
    tn_l_store(b, at[0], zero, lo, NULL);
    tn_l_store(b, at[1], zero, mid, NULL);
    tn_lop *loop = tn_l_for(b, "k", zero, guarded ? twice : tn_l_fn2(b, TN_S_sub, hi, lo), one, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *i = tn_l_load(&in, at[0], zero, 1, NULL, NULL), *j = tn_l_load(&in, at[1], zero, 1, NULL, NULL), *x[TN_TILE_COMBINED], *y[TN_TILE_COMBINED], *right;
    for (int k = 0; k < t->n; k++) {
        x[k] = tn_l_load(&in, t->line[k], tn_l_fn2(&in, TN_S_add, from, i), 1, NULL, NULL);
        y[k] = tn_l_load(&in, t->line[k], tn_l_fn2(&in, TN_S_add, from, j), 1, NULL, NULL);
    }
    lower_combine(L, &in, t->op->region[0], t->n, y, x, &right);
    right = tn_l_fn2(&in, TN_S_and, right, tn_l_fn2(&in, TN_S_lt, j, hi));
    right = tn_l_fn2(&in, TN_S_or, right, tn_l_fn2(&in, TN_S_eq, i, mid));
    tn_lvalue *k0 = tn_l_fn2(&in, TN_S_add, lo, loop->region[0]->arg), *more = tn_l_cast(&in, right, TN_I64);
    tn_lvalue *below = guarded ? tn_l_fn2(&in, TN_S_lt, k0, hi) : NULL;
    for (int k = 0; k < t->n; k++)
        tn_l_store(&in, t->line[k], tn_l_fn2(&in, TN_S_add, to, k0), tn_l_fn3(&in, TN_S_select, right, y[k], x[k]), below);
    tn_lvalue *next[2] = {tn_l_fn2(&in, TN_S_add, i, tn_l_fn2(&in, TN_S_sub, one, more)), tn_l_fn2(&in, TN_S_add, j, more)}, *end[2] = {mid, hi};
    for (int k = 0; k < 2; k++)
        tn_l_store(&in, at[k], zero, guarded ? tn_l_fn2(&in, TN_S_min, next[k], end[k]) : next[k], NULL);
}

/* Runs of one element become one of all. Returns where in the lines it lies. */
static int64_t merge_runs(lower *L, tn_lbuilder *b, const sorting *t)
{
    enum { MANY = 8 }; /* merges of a level that are worth being done side by side */
    int levels = 0;
    while (INT64_C(1) << levels < t->extent)
        levels++;
    tn_lvalue *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1), *half = tn_l_index(b, t->extent);
    tn_lop *loop = tn_l_for(b, "level", zero, tn_l_index(b, levels), one, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]), at;
    tn_lvalue *level = loop->region[0]->arg, *width = tn_l_fn2(&in, TN_S_shl, one, level), *twice = tn_l_fn2(&in, TN_S_add, width, width);
    tn_lvalue *from = tn_l_fn2(&in, TN_S_mul, tn_l_fn2(&in, TN_S_and, level, one), half), *to = tn_l_fn2(&in, TN_S_sub, half, from);
    tn_lvalue *merges = tn_l_fn2(&in, TN_S_div, tn_l_fn2(&in, TN_S_add, t->count, tn_l_fn2(&in, TN_S_sub, twice, one)), twice);
    tn_lbuilder few = in;
    if (L->machine->vector.gather && t->extent >= 2 * MANY) {
        tn_lop *branch = tn_l_if(&in, tn_l_fn2(&in, TN_S_ge, merges, tn_l_index(&in, MANY)));
        at = tn_l_in(&in, branch->region[0]);
        few = tn_l_in(&in, branch->region[1]);
        loop = tn_l_for(&at, "run", zero, merges, one, TN_FOR_VECTOR);
        at = tn_l_in(&at, loop->region[0]);
        merge(L, &at, t, tn_l_fn2(&at, TN_S_mul, loop->region[0]->arg, twice), width, from, to, true);
    }
    loop = tn_l_for(&few, "run", zero, merges, one, TN_FOR_SERIAL);
    at = tn_l_in(&few, loop->region[0]);
    merge(L, &at, t, tn_l_fn2(&at, TN_S_mul, loop->region[0]->arg, twice), width, from, to, false);
    return levels % 2 * t->extent;
}

void lower_sort(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    sorting t = {.op = op, .n = op->nresults, .axis = op->axis[0], .extent = type->extent[op->axis[0]].size};
    place *out[TN_TILE_COMBINED], *there[TN_TILE_COMBINED];
    tn_lvalue *idx[TN_TILE_RANK], *zero = tn_l_index(b, 0);
    for (int k = 0; k < t.n; k++) {
        const tn_tvalue *x = op->operand[k];
        tn_ttype flags = x->type;
        flags.dtype = TN_BOOL;
        flags.pointer = false;
        t.holds[k] = x->type.pointer ? TN_I64 : x->type.dtype;
        out[k] = lower_new_place(L, b, &x->type, "sorted");
        out[k]->root = lower_root(L, x);
        there[k] = lower_new_place(L, b, &flags, "there");
        t.line[k] = tn_l_alloc(b, "line", t.holds[k], TN_SPACE_LOCAL, 2 * t.extent + 1);
        t.raw[k] = tn_l_alloc(b, "raw", t.holds[k], TN_SPACE_LOCAL, t.extent);
        t.exists[k] = tn_l_alloc(b, "exists", TN_BOOL, TN_SPACE_LOCAL, t.extent);
    }
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    open_lines(L, &in, type, t.axis, idx);
    t.count = tn_l_index(&in, t.extent);
    bool absent = read_line(L, &in, &t, idx);
    if (absent) {
        tn_lvalue *at = tn_l_alloc(&in, "at", TN_I64, TN_SPACE_REG, 1);
        tn_l_store(&in, at, zero, zero, NULL);
        take(&in, &t, at, true, there, idx);
        t.count = tn_l_load(&in, at, zero, 1, NULL, NULL);
        take(&in, &t, at, false, there, idx);
    }
    int64_t from = merge_runs(L, &in, &t);
    /* What is not sorted stayed in the first half. */
    idx[t.axis] = lower_open_axis(L, &in, t.axis, t.extent, &everywhere, TN_FOR_VECTOR);
    tn_lvalue *half = tn_l_index(&in, from);
    if (absent)
        half = tn_l_fn3(&in, TN_S_select, tn_l_fn2(&in, TN_S_lt, idx[t.axis], t.count), half, zero);
    for (int k = 0; k < t.n; k++)
        tn_l_store(&in, out[k]->buffer, lower_place_offset(&in, out[k], type->rank, idx),
                   tn_l_load(&in, t.line[k], tn_l_fn2(&in, TN_S_add, half, idx[t.axis]), 1, NULL, NULL), NULL);
    lower_close(L, s);
    for (int k = 0; k < t.n; k++) {
        out[k]->present = absent ? there[k] : NULL;
        lower_set_place(L, &op->result[k], out[k]);
    }
}

/* ---- reduce, in the order of a tree ------------------------------------------------------------------------------------------------ */

/* The elements of one kept place, in row-major order, and which of them exist (NULL: all). */
typedef struct leaves {
    tn_lvalue *at[TN_TILE_COMBINED], *exists;
} leaves;

static void read_leaves(lower *L, tn_lbuilder *b, const tn_top *op, const bool *folded, tn_lvalue **idx, int64_t n, leaves *to)
{
    const tn_ttype *type = &op->operand[0]->type;
    int last = -1;
    tn_lvalue *linear = tn_l_index(b, 0);
    for (int k = 0; k < op->nresults; k++)
        to->at[k] = tn_l_alloc(b, "leaves", op->operand[k]->type.dtype, TN_SPACE_LOCAL, n);
    tn_lvalue *exists = tn_l_alloc(b, "exists", TN_BOOL, TN_SPACE_LOCAL, n);
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    for (int a = 0; a < type->rank; a++)
        last = folded[a] ? a : last;
    for (int a = 0; a < type->rank; a++)
        if (folded[a]) {
            idx[a] = lower_open_axis(L, &in, a, type->extent[a].size, &everywhere, a == last ? TN_FOR_VECTOR : TN_FOR_SERIAL);
            linear = tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, linear, tn_l_index(&in, type->extent[a].size)), idx[a]);
        }
    element x[TN_TILE_COMBINED];
    for (int k = 0; k < op->nresults; k++)
        x[k] = lower_element(L, &in, op->operand[k], idx);
    tn_lvalue *present = lower_all_present(&in, x, op->nresults);
    for (int k = 0; k < op->nresults; k++)
        tn_l_store(&in, to->at[k], linear, x[k].value, NULL);
    to->exists = present ? exists : NULL;
    if (present)
        tn_l_store(&in, to->exists, linear, present, NULL);
    lower_close(L, s);
}

/* to[i] := from[left] with from[right], or the one of them that exists. */
static void join_leaves(lower *L, tn_lbuilder *b, const tn_top *op, const leaves *from, tn_lvalue *left, tn_lvalue *right, const leaves *to, tn_lvalue *i)
{
    tn_lvalue *x[TN_TILE_COMBINED], *y[TN_TILE_COMBINED], *out[TN_TILE_COMBINED], *first = NULL, *second = NULL;
    int n = op->nresults;
    for (int k = 0; k < n; k++) {
        x[k] = tn_l_load(b, from->at[k], left, 1, NULL, NULL);
        y[k] = tn_l_load(b, from->at[k], right, 1, NULL, NULL);
    }
    lower_combine(L, b, op->region[0], n, x, y, out);
    if (from->exists) {
        first = tn_l_load(b, from->exists, left, 1, NULL, NULL);
        second = tn_l_load(b, from->exists, right, 1, NULL, NULL);
        tn_l_store(b, to->exists, i, tn_l_fn2(b, TN_S_or, first, second), NULL);
    }
    for (int k = 0; k < n; k++) {
        if (first)
            out[k] = tn_l_fn3(b, TN_S_select, first, tn_l_fn3(b, TN_S_select, second, out[k], x[k]), y[k]);
        tn_l_store(b, to->at[k], i, out[k], NULL);
    }
}

static void copy_leaf(tn_lbuilder *b, const tn_top *op, const leaves *from, int64_t i, const leaves *to, int64_t j)
{
    for (int k = 0; k <= op->nresults; k++) {
        tn_lvalue *source = k < op->nresults ? from->at[k] : from->exists, *target = k < op->nresults ? to->at[k] : to->exists;
        if (source)
            tn_l_store(b, target, tn_l_index(b, j), tn_l_load(b, source, tn_l_index(b, i), 1, NULL, NULL), NULL);
    }
}

/* Halves the leaves until one is left, which is in the returned one. */
static const leaves *fold_tree(lower *L, tn_lbuilder *b, const tn_top *op, int64_t n, leaves *from)
{
    leaves *to = TN_NEW(&L->arena, leaves);
    for (int k = 0; k < op->nresults; k++)
        to->at[k] = tn_l_alloc(b, "leaves", op->operand[k]->type.dtype, TN_SPACE_LOCAL, (n + 1) / 2);
    to->exists = from->exists ? tn_l_alloc(b, "exists", TN_BOOL, TN_SPACE_LOCAL, (n + 1) / 2) : NULL;
    for (; n > 1; n = (n + 1) / 2) {
        tn_lbuilder in;
        tn_lvalue *i = lower_vector_loop(b, n / 2, &in), *left = tn_l_fn2(&in, TN_S_mul, i, tn_l_index(&in, 2));
        join_leaves(L, &in, op, from, left, tn_l_fn2(&in, TN_S_add, left, tn_l_index(&in, 1)), to, i);
        if (n % 2)
            copy_leaf(b, op, from, n - 1, to, n / 2);
        leaves *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

void lower_reduce_tree(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_ttype *type = &op->operand[0]->type;
    int n = op->nresults, nkept = 0;
    int64_t elements = 1;
    bool folded[TN_TILE_RANK] = {false};
    place *out[TN_TILE_COMBINED];
    tn_lvalue *idx[TN_TILE_RANK], *kept[TN_TILE_RANK], *x[TN_TILE_COMBINED] = {NULL}, *start[TN_TILE_COMBINED] = {NULL}, *sum[TN_TILE_COMBINED];
    for (int k = 0; k < n; k++)
        out[k] = lower_new_place(L, b, &op->result[k].type, "fold");
    for (int i = 0; i < op->naxes; i++)
        folded[op->axis[i]] = true;
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    for (int a = 0; a < type->rank; a++) {
        if (folded[a])
            elements *= type->extent[a].size;
        else
            kept[nkept++] = idx[a] = lower_open_axis(L, &in, a, type->extent[a].size, &everywhere, TN_FOR_SERIAL);
    }
    leaves *all = TN_NEW(&L->arena, leaves);
    read_leaves(L, &in, op, folded, idx, elements, all);
    const leaves *root = fold_tree(L, &in, op, elements, all);
    tn_lvalue *zero = tn_l_index(&in, 0);
    for (int k = 0; k < n; k++) {
        start[k] = tn_l_const(&in, tn_lscalar(op->operand[k]->type.dtype), op->identity[k]);
        x[k] = tn_l_load(&in, root->at[k], zero, 1, NULL, NULL);
    }
    lower_combine(L, &in, op->region[0], n, start, x, sum);
    tn_lvalue *exists = root->exists ? tn_l_load(&in, root->exists, zero, 1, NULL, NULL) : NULL;
    for (int k = 0; k < n; k++) {
        if (exists)
            sum[k] = tn_l_fn3(&in, TN_S_select, exists, sum[k], start[k]);
        tn_l_store(&in, out[k]->buffer, lower_place_offset(&in, out[k], nkept, kept), sum[k], NULL);
    }
    lower_close(L, s);
    for (int k = 0; k < n; k++) {
        lower_set_place(L, &op->result[k], out[k]);
        if (op->result->type.rank == 0)
            lower_scalar(L, b, &op->result[k]); /* read once, not in every nest that uses it */
    }
}

/* ---- histogram ------------------------------------------------------------------------------------------------------------------------ */

void lower_histogram(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const tn_tvalue *x = op->operand[0];
    int64_t n = x->type.extent[0].size, bins = op->result->type.extent[0].size, tables = n >= 4 * bins && n % 4 == 0 ? 4 : 1;
    tn_dtype from = x->type.dtype, type = op->result->type.dtype, wide = tn_dtype_bits(from) < 32 || from == TN_I32 ? TN_I32 : TN_I64;
    place *out = lower_new_place(L, b, &op->result->type, "histogram");
    tn_lvalue *bin = tn_l_alloc(b, "bin", wide, TN_SPACE_LOCAL, n), *table = tn_l_alloc(b, "table", type, TN_SPACE_LOCAL, tables * (bins + 1)), *idx[1];
    tn_lbuilder in;
    tn_lvalue *i = lower_vector_loop(b, tables * (bins + 1), &in);
    tn_l_store(&in, table, i, tn_l_const(&in, tn_lscalar(type), tn_number_from_int(type, 0)), NULL);

    scope s = lower_open(L);
    in = *b;
    idx[0] = lower_open_axis(L, &in, 0, n, &everywhere, TN_FOR_VECTOR);
    element e = lower_element(L, &in, x, idx);
    tn_lvalue *v = tn_l_cast(&in, e.value, wide), *past = tn_l_const(&in, tn_lscalar(wide), tn_number_from_int(wide, bins));
    tn_lvalue *inside = tn_l_fn2(&in, TN_S_ge, v, tn_l_const(&in, tn_lscalar(wide), tn_number_from_int(wide, 0)));
    inside = lower_and(&in, tn_l_fn2(&in, TN_S_and, inside, tn_l_fn2(&in, TN_S_lt, v, past)), e.present);
    tn_l_store(&in, bin, idx[0], tn_l_fn3(&in, TN_S_select, inside, v, past), NULL);
    lower_close(L, s);

    tn_lop *loop = tn_l_for(b, "i", tn_l_index(b, 0), tn_l_index(b, n), tn_l_index(b, tables), TN_FOR_SERIAL);
    in = tn_l_in(b, loop->region[0]);
    for (int64_t t = 0; t < tables; t++) {
        tn_lvalue *which = tn_l_load(&in, bin, tn_l_fn2(&in, TN_S_add, loop->region[0]->arg, tn_l_index(&in, t)), 1, NULL, NULL);
        tn_lvalue *at = tn_l_fn2(&in, TN_S_add, tn_l_cast(&in, which, TN_I64), tn_l_index(&in, t * (bins + 1)));
        tn_lvalue *one = tn_l_const(&in, tn_lscalar(type), tn_number_from_int(type, 1));
        tn_l_store(&in, table, at, tn_l_fn2(&in, TN_S_add, tn_l_load(&in, table, at, 1, NULL, NULL), one), NULL);
    }

    i = lower_vector_loop(b, bins, &in);
    tn_lvalue *total = tn_l_load(&in, table, i, 1, NULL, NULL);
    for (int64_t t = 1; t < tables; t++)
        total = tn_l_fn2(&in, TN_S_add, total, tn_l_load(&in, table, tn_l_fn2(&in, TN_S_add, i, tn_l_index(&in, t * (bins + 1))), 1, NULL, NULL));
    tn_l_store(&in, out->buffer, i, total, NULL);
    lower_set_place(L, op->result, out);
}
