/* Products on CPUs: `dot`, and the fold over it, as a register-tiled micro-kernel.
 *
 *   for each panel of C columns of the right operand
 *     the panel's rows contiguous: as the view has it packed, or packed here into a local buffer
 *     for each block of R rows of the left operand (the last may have fewer: a kernel for each number of rows, or one that computes its last row again)
 *       R x C accumulators in registers; for every k: C / W vector loads, R broadcasts, R * C / W multiply-adds
 *       accumulators to a small buffer, from which the epilogue (the expression of the store that waits) reads
 *
 * A long sum is cut into strips: a panel of all of it would not stay in the cache between one block of rows and the next. Then the
 * strips are outside the blocks, and the accumulators of all rows wait in a local buffer from one strip to the next.
 *
 * Where the store's neighbours lie along the rows (a result whose features come first), the accumulators of all rows of a panel are turned in registers, and the epilogue
 * walks them as it is stored.
 *
 * R and C are the machine's row (dot_rows x dot_vectors): R * C / W accumulators, C / W vectors of the right operand and one broadcast
 * must fit the registers with one to spare. The left operand is read where it lies, row by row; it needs no packing, but
 * a copy where reading an element is more than a load. */
#include "target/cpu/lower.h"

#include <assert.h>

enum { MOST = 64 }; /* accumulators */
enum { DIRECT = 2 }; /* rows for which it does not pay to make a panel */

typedef struct product {
    const tn_top *op;           /* the fold, or the dot itself */
    const tn_tvalue *a, *b;     /* [batch,] M x K and [batch,] K x N */
    int batch;                  /* leading axes: 0 or 1 */
    axis_bound m, n, k;
    int64_t M, N, K;            /* extents */
    tn_dtype type;              /* of the accumulators */
    int64_t width, rows, columns, unroll;
    int64_t ahead;              /* rows of the panel that are asked for before they are used; 0: none */
    int64_t strip;              /* values of k a strip; 0: the whole sum at once */
    tn_lvalue *from, *to;       /* the strip's k */
    int64_t window;             /* turns of the first range whose panel is packed at once; 0: all */
    tn_lvalue *first, *end;     /* the window's values of the first range; NULL: there are no windows */
    int64_t direct;             /* where there are at most so many rows, the right operand is computed as it is multiplied */
    bool turned;                /* the epilogue walks rows innermost */
    tn_lvalue *panel;           /* local packed panel; NULL: b is read where it lies */
    bool packed;                /* b's view is packed in panels of `columns` */
    const tn_top *store;        /* epilogue: this store; NULL: into `out` */
    place *out;
    const tn_tvalue *value;     /* what goes there; NULL: the product itself */
    const place *left;          /* a's copy; NULL: a is read where it lies */
    bool one_kernel;            /* the last block computes its last row again in place of rows that are not there: one kernel instead of one a remainder */
    tn_lvalue *last;            /* that row */
} product;

const tn_top *lower_dot_of(const tn_top *op) { return op->code == TN_T_dot ? op : op->region[0]->last->operand[0]->def; }

bool lower_is_dot_fold(const tn_top *op)
{
    if (op->naxes || op->nresults != 1 || tn_combine_fn(op->region[1]) != TN_S_add)
        return false;
    const tn_top *dot = lower_dot_of(op);
    if (!dot || dot->code != TN_T_dot || dot->block != op->region[0])
        return false;
    for (const tn_top *in = op->region[0]->first; in; in = in->next) {
        bool quiet = lower_is_load(in) || in->code == TN_T_yield || (!in->nregions && in->code != TN_T_histogram && (tn_top_traits(in->code) & TN_T_PURE));
        if (!quiet || (in->code == TN_T_dot && in != dot))
            return false;
    }
    return true;
}

/* ---- the right operand ---------------------------------------------------------------------------------------------------- */

/* Row of the panel for the ranges' starts and kk: mixed radix over the ranges, k innermost. */
static tn_lvalue *panel_row(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *kk)
{
    tn_lvalue *row = tn_l_index(b, 0);
    bool k_is_last_range = false;
    for (int i = 0; i < p->op->nranges; i++) {
        const tn_tvalue *start = &p->op->region[0]->arg[i];
        row = tn_l_fn2(b, TN_S_mul, row, lower_scalar(L, b, p->op->operand[i]));
        row = tn_l_fn2(b, TN_S_add, row, i == 0 && p->first ? tn_l_fn2(b, TN_S_sub, lower_scalar(L, b, start), p->first) : lower_scalar(L, b, start));
        k_is_last_range = i == p->op->nranges - 1 && p->k.start == start;
    }
    if (!k_is_last_range)
        row = tn_l_fn2(b, TN_S_mul, row, tn_l_index(b, p->K));
    return tn_l_fn2(b, TN_S_add, row, kk);
}

/* b may be where the kernel begins, before any number of its body. */
static tn_lvalue *panel_rows(lower *L, tn_lbuilder *b, const product *p)
{
    tn_lvalue *rows = tn_l_index(b, 1);
    int n = p->op->nranges;
    for (int i = 0; i < n; i++) {
        tn_dim limit = i == 0 && p->window ? tn_dim_const(L->session, p->window * p->op->step[0].size) : lower_value_dim(L, p->op->operand[i]);
        rows = tn_l_fn2(b, TN_S_mul, rows, limit && tn_dim_is_const(limit) ? tn_l_index(b, limit->value) : lower_scalar(L, b, p->op->operand[i]));
    }
    return n && p->k.start == &p->op->region[0]->arg[n - 1] ? rows : tn_l_fn2(b, TN_S_mul, rows, tn_l_index(b, p->K));
}

static tn_lvalue *or_zero(tn_lbuilder *b, element e, tn_dtype dtype)
{
    return e.present ? tn_l_fn3(b, TN_S_select, e.present, e.value, tn_l_const(b, tn_lscalar(dtype), tn_number_from_int(dtype, 0))) : e.value;
}

/* The axis of v along which neighbours are neighbours in memory; -1: not known. */
static int fast_axis(const lower *L, const tn_tvalue *v, int depth)
{
    const tn_top *op = v->def;
    const place *in = tn_map_get(&L->places, TN_KEY(v));
    if (in)
        return v->type.rank - 1;
    if (!op || depth == 0)
        return -1;
    if (op->code == TN_T_load) {
        for (int d = 0; d < op->view->rank; d++)
            if (op->subscript[d].block && tn_dim_is(op->view->stride[d], 1))
                return op->subscript[d].axis[0];
        return -1;
    }
    for (int i = 0; i < op->noperands; i++) {
        int from = op->code == TN_T_permute || lower_is_elementwise(op) ? fast_axis(L, op->operand[i], depth - 1) : -1;
        for (int k = 0; from >= 0 && k < v->type.rank; k++)
            if (op->code == TN_T_permute ? op->axis[k] == from : k == from)
                return k;
    }
    return -1;
}

/* Rows of the operand that lie along k: blocks of as many rows as a vector has lanes are read along k and turned in registers. */
static bool packs_turned(const lower *L, const product *p)
{
    int bits = tn_dtype_bits(p->b->type.dtype);
    return p->width >= 4 && p->width <= 16 && p->K >= p->width && p->columns % p->width == 0 && bits >= 8 && !tn_is_complex(p->b->type.dtype) &&
           fast_axis(L, p->b, 8) == p->b->type.rank - 2;
}

/* v[i][l] becomes v[l][i], n vectors of n lanes, a power of two. */
static void turn(tn_lbuilder *b, tn_lvalue **v, int n)
{
    int first[MOST], second[MOST];
    for (int by = n / 2; by >= 1; by /= 2) {
        for (int l = 0; l < n; l++) {
            first[l] = l & by ? n + l - by : l;
            second[l] = l & by ? n + l : l + by;
        }
        for (int i = 0; i < n; i++) {
            if (i & by)
                continue;
            tn_lvalue *x = v[i], *y = v[i | by];
            v[i] = tn_l_shuffle(b, x, y, first, n);
            v[i | by] = tn_l_shuffle(b, x, y, second, n);
        }
    }
}

static tn_lvalue *panel_element(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *k, tn_lvalue *n)
{
    return or_zero(b, lower_element(L, b, p->b, p->batch ? (tn_lvalue *[]){batch, k, n} : (tn_lvalue *[]){k, n}), p->b->type.dtype);
}

/* The part of the panel whose k fill whole vectors. Returns where they end. */
static tn_lvalue *pack_turned(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *columns, tn_lvalue *count)
{
    int width = (int)p->width;
    tn_dtype dtype = p->b->type.dtype;
    tn_lvalue *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1), *step = tn_l_index(b, width), *v[16], *l;
    tn_lvalue *whole = tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, tn_l_fn2(b, TN_S_max, count, zero), step), step);
    tn_lvalue *block = tn_l_alloc(b, "block", dtype, TN_SPACE_LOCAL, width * width);
    tn_lop *loop = tn_l_for(b, "j0", zero, tn_l_index(b, p->columns), step, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]), lane;
    tn_lvalue *j0 = loop->region[0]->arg, *rows = tn_l_fn2(&in, TN_S_max, tn_l_fn2(&in, TN_S_min, tn_l_fn2(&in, TN_S_sub, columns, j0), step), zero);
    int64_t full;
    if (!tn_l_is_const(columns, &full) || full < p->columns) {
        lower_vector_loop(&in, width * width, &lane);
        tn_l_store(&lane, block, lane.block->arg, tn_l_const(&lane, tn_lscalar(dtype), tn_number_from_int(dtype, 0)), NULL);
    } else {
        rows = step;
    }
    loop = tn_l_for(&in, "k0", zero, whole, step, TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *k0 = loop->region[0]->arg;
    loop = tn_l_for(&in, "r", zero, rows, one, TN_FOR_SERIAL);
    tn_lbuilder at = tn_l_in(&in, loop->region[0]);
    tn_lvalue *r = loop->region[0]->arg, *n = tn_l_fn2(&at, TN_S_add, tn_l_fn2(&at, TN_S_add, n0, j0), r);
    scope s = lower_open(L);
    lower_fact(L, &p->n, n);
    l = lower_vector_loop(&at, width, &lane);
    tn_lvalue *k = tn_l_fn2(&lane, TN_S_add, k0, l);
    lower_fact(L, &p->k, k);
    tn_l_store(&lane, block, tn_l_fn2(&lane, TN_S_add, tn_l_fn2(&lane, TN_S_mul, r, step), l), panel_element(L, &lane, p, batch, k, n), NULL);
    lower_close(L, s);
    for (int i = 0; i < width; i++)
        v[i] = tn_l_load(&in, block, tn_l_index(&in, i * width), width, NULL, NULL);
    turn(&in, v, width);
    for (int i = 0; i < width; i++) {
        tn_lvalue *row = panel_row(L, &in, p, tn_l_fn2(&in, TN_S_add, k0, tn_l_index(&in, i)));
        tn_l_store(&in, p->panel, tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, row, tn_l_index(&in, p->columns)), j0), v[i], NULL);
    }
    return whole;
}

/* panel[row][j] := b[.., k, n0 + j], 0 past the last column. */
static void pack_panel(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *columns)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    tn_dtype dtype = p->b->type.dtype;
    int64_t full, known;
    lower_open_ranges_between(L, &in, p->op, p->first, p->end);
    tn_lvalue *count = lower_axis_count(L, &in, p->K, &p->k), *from = tn_l_index(&in, 0);
    if (packs_turned(L, p))
        from = pack_turned(L, &in, p, batch, n0, columns, count);
    if (tn_l_is_const(from, &full) && tn_l_is_const(count, &known) && full == known && full) {
        lower_close(L, s);
        return;
    }
    tn_lop *loop = tn_l_for(&in, "k", from, count, tn_l_index(&in, 1), TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *k = loop->region[0]->arg;
    lower_fact(L, &p->k, k);
    tn_lvalue *row = tn_l_fn2(&in, TN_S_mul, panel_row(L, &in, p, k), tn_l_index(&in, p->columns));
    loop = tn_l_for(&in, "j", tn_l_index(&in, 0), columns, tn_l_index(&in, 1), TN_FOR_VECTOR);
    tn_lbuilder at = tn_l_in(&in, loop->region[0]);
    tn_lvalue *j = loop->region[0]->arg, *n = tn_l_fn2(&at, TN_S_add, n0, j);
    lower_fact(L, &p->n, n);
    tn_l_store(&at, p->panel, tn_l_fn2(&at, TN_S_add, row, j), panel_element(L, &at, p, batch, k, n), NULL);
    if (!tn_l_is_const(columns, &full) || full < p->columns) {
        loop = tn_l_for(&in, "j", columns, tn_l_index(&in, p->columns), tn_l_index(&in, 1), TN_FOR_VECTOR);
        at = tn_l_in(&in, loop->region[0]);
        tn_l_store(&at, p->panel, tn_l_fn2(&at, TN_S_add, row, loop->region[0]->arg),
                   tn_l_const(&at, tn_lscalar(dtype), tn_number_from_int(dtype, 0)), NULL);
    }
    lower_close(L, s);
}

/* Offset of column 0 of panel n0 in row k of a packed view. */
static tn_lvalue *packed_row(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *k)
{
    const tn_top *load = p->b->def;
    const tn_view *view = load->view;
    int r = view->rank;
    const tn_subscript *ks = &load->subscript[r - 2], *ns = &load->subscript[r - 1];
    tn_lvalue *start = lower_scalar(L, b, ns->value), *panel = tn_l_index(b, p->columns);
    tn_lvalue *base = tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, tn_l_fn2(b, TN_S_add, start, n0), panel), lower_dim(L, view->shape[r - 2]));
    base = tn_l_fn2(b, TN_S_mul, base, panel);
    base = tn_l_fn2(b, TN_S_add, base, lower_dim(L, view->offset));
    for (int d = 0; d < r - 2; d++) {
        const tn_subscript *s = &load->subscript[d];
        tn_lvalue *index = lower_scalar(L, b, s->value);
        if (s->block)
            index = tn_l_fn2(b, TN_S_add, index, batch);
        base = tn_l_fn2(b, TN_S_add, base, tn_l_fn2(b, TN_S_mul, index, lower_dim(L, view->stride[d])));
    }
    base = tn_l_fn2(b, TN_S_add, base, tn_l_fn2(b, TN_S_mul, lower_scalar(L, b, ks->value), panel));
    return tn_l_fn2(b, TN_S_add, base, tn_l_fn2(b, TN_S_mul, k, panel));
}

/* `value` is a grid coordinate, or a number, that `by` divides. */
static bool starts_at_multiple(const lower *L, const tn_tvalue *value, int64_t by)
{
    for (size_t i = 0; i < L->kernel->grid.len; i++)
        if (L->kernel->grid.at[i].value == value)
            return L->kernel->grid.at[i].step.size % by == 0;
    return value->def && value->def->code == TN_T_const && value->def->number.i % by == 0;
}

/* b is read straight from a view that is packed in panels of our width, at starts that are whole panels. */
static bool is_packed(const lower *L, const tn_tvalue *b, int64_t columns)
{
    const tn_top *load = b->def;
    if (!load || load->code != TN_T_load || tn_map_get(&L->places, TN_KEY(b)) || load->view->panel != columns || load->view->nguards)
        return false;
    int r = load->view->rank, axis = b->type.rank - 2;
    const tn_subscript *ks = &load->subscript[r - 2], *ns = &load->subscript[r - 1];
    if (!ks->block || !ns->block || ks->axis[0] != axis || ns->axis[0] != axis + 1)
        return false;
    for (int d = 0; d < r - 2; d++)
        if (load->subscript[d].block ? load->subscript[d].axis[0] >= axis : load->subscript[d].naxes)
            return false;
    return starts_at_multiple(L, ns->value, columns);
}

/* ---- the micro-kernel -------------------------------------------------------------------------------------------------------- */

static tn_lvalue *multiply_add(lower *L, tn_lbuilder *b, tn_dtype type, tn_lvalue *x, tn_lvalue *y, tn_lvalue *acc)
{
    if (tn_is_float(type) && L->machine->vector.fma)
        return tn_l_fn3(b, TN_S_fma, x, y, acc);
    return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, x, y), acc);
}

/* What a micro-kernel holds while it walks k. */
typedef struct block {
    int64_t rows, vectors;
    tn_lvalue *batch, *n0;
    tn_lvalue **row; /* m0 + i */
    tn_lvalue **acc; /* rows x vectors register buffers */
    tn_lvalue **right; /* vectors of b's row: loaded before the rows use them, so that one broadcast at a time is live */
} block;

static tn_lvalue *left_element(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *const *idx)
{
    if (p->left)
        return tn_l_load(b, p->left->buffer, lower_place_offset(b, p->left, p->batch + 2, idx), 1, NULL, NULL);
    return tn_l_cast(b, or_zero(b, lower_element(L, b, p->a, idx), p->a->type.dtype), p->type);
}

/* acc[i][v] += a[m0 + i, k] * b[k, n0 + ...]: one value of k. */
static void multiply_row(lower *L, tn_lbuilder *b, const product *p, const block *t, tn_lvalue *k)
{
    tn_lvalue *l;
    tn_lbuilder lane;
    scope s = lower_open(L);
    lower_fact(L, &p->k, k);
    tn_lvalue *base = p->packed  ? packed_row(L, b, p, t->batch, t->n0, k)
                      : p->panel ? tn_l_fn2(b, TN_S_mul, panel_row(L, b, p, k), tn_l_index(b, p->columns))
                                 : NULL;
    tn_lvalue *from = p->panel ? p->panel : base ? L->buffer[p->b->def->view->buffer] : NULL;
    for (int64_t v = 0; v < t->vectors && base && p->ahead; v++)
        tn_l_prefetch(b, from, tn_l_fn2(b, TN_S_add, base, tn_l_index(b, p->ahead * p->columns + v * p->width)), 1);
    for (int64_t v = 0; v < t->vectors; v++) {
        scope inner = lower_open(L);
        l = lower_vector_loop(b, p->width, &lane);
        tn_lvalue *j = tn_l_fn2(&lane, TN_S_add, l, tn_l_index(&lane, v * p->width)), *y;
        if (base) {
            y = tn_l_load(&lane, from, tn_l_fn2(&lane, TN_S_add, base, j), 1, NULL, NULL);
        } else {
            tn_lvalue *n = tn_l_fn2(&lane, TN_S_add, t->n0, j);
            element e = lower_element(L, &lane, p->b, p->batch ? (tn_lvalue *[]){t->batch, k, n} : (tn_lvalue *[]){k, n});
            y = or_zero(&lane, e, p->b->type.dtype);
        }
        tn_l_store(&lane, t->right[v], l, tn_l_cast(&lane, y, p->type), NULL);
        lower_close(L, inner);
    }
    for (int64_t i = 0; i < t->rows; i++) {
        tn_lvalue *x = left_element(L, b, p, p->batch ? (tn_lvalue *[]){t->batch, t->row[i], k} : (tn_lvalue *[]){t->row[i], k});
        for (int64_t v = 0; v < t->vectors; v++) {
            tn_lvalue *acc = t->acc[i * t->vectors + v];
            l = lower_vector_loop(b, p->width, &lane);
            tn_lvalue *y = tn_l_load(&lane, t->right[v], l, 1, NULL, NULL);
            tn_l_store(&lane, acc, l, multiply_add(L, &lane, p->type, x, y, tn_l_load(&lane, acc, l, 1, NULL, NULL)), NULL);
        }
    }
    lower_close(L, s);
}

/* The panel (or strip of this one) that comes next travels to L2 while this one is used: each block of rows asks for its share of the lines, a few
 * each time k has moved by `step`. */
static void prefetch_next(lower *L, tn_lbuilder *b, const product *p, const block *t, tn_lvalue *m0, tn_lvalue *k, int64_t step)
{
    if (!p->packed || (!p->strip && p->N <= p->columns))
        return;
    int64_t lines = step * t->vectors, blocks = tn_ceildiv(p->M, p->rows), share = tn_min(4, tn_ceildiv(lines, blocks));
    tn_lvalue *panel = tn_l_fn2(b, TN_S_add, t->n0, tn_l_index(b, p->strip ? 0 : p->columns));
    tn_lvalue *next = packed_row(L, b, p, t->batch, panel, p->strip ? p->to : tn_l_index(b, 0));
    /* lines already asked for: k / step * share of this block, K / step * share of each one before it */
    int64_t line = p->width, length = p->strip ? p->strip : p->K;
    tn_lvalue *before = tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, m0, tn_l_index(b, p->rows)), tn_l_index(b, length / step * share * line));
    tn_lvalue *here = tn_l_fn2(b, TN_S_mul, tn_l_fn2(b, TN_S_div, k, tn_l_index(b, step)), tn_l_index(b, share * line));
    tn_lvalue *at = tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_add, next, before), here);
    for (int64_t i = 0; i < share; i++)
        tn_l_prefetch(b, L->buffer[p->b->def->view->buffer], tn_l_fn2(b, TN_S_add, at, tn_l_index(b, i * line)), 2);
}

/* The tile has all rows' accumulators, not those of a block alone. */
static bool holds_all_rows(const product *p) { return p->strip || p->turned || p->window; }

/* Where lane l of vector v of row i of the block lies in the tile. */
static tn_lvalue *tile_offset(tn_lbuilder *b, const product *p, tn_lvalue *m0, int64_t i, int64_t v, tn_lvalue *l)
{
    tn_lvalue *at = tn_l_fn2(b, TN_S_add, l, tn_l_index(b, i * p->columns + v * p->width));
    return holds_all_rows(p) ? tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, m0, tn_l_index(b, p->columns)), at) : at;
}

/* tile[i][j] := sum over k of a[m0 + i, k] * b[k, n0 + j], i < rows. Several k an iteration: the loop's own work would cost ports that the
 * multiply-adds need. */
static void micro_kernel(lower *L, tn_lbuilder *b, const product *p, int64_t rows, tn_lvalue *batch, tn_lvalue *m0, tn_lvalue *n0, tn_lvalue *tile)
{
    tn_lvalue *acc[MOST], *row[MOST], *right[MOST], *l;
    block t = {rows, p->columns / p->width, batch, n0, row, acc, right};
    assert(rows * t.vectors <= MOST);
    tn_lbuilder lane, in = *b;
    scope s = lower_open(L);
    tn_lvalue *zero = tn_l_const(b, tn_lscalar(p->type), tn_number_from_int(p->type, 0));
    for (int64_t i = 0; i < rows * t.vectors; i++) {
        acc[i] = tn_l_alloc(b, "acc", p->type, TN_SPACE_REG, p->width);
        l = lower_vector_loop(b, p->width, &lane);
        tn_lvalue *start = p->strip || p->first ? tn_l_load(&lane, tile, tile_offset(&lane, p, m0, i / t.vectors, i % t.vectors, l), 1, NULL, NULL) : zero;
        tn_l_store(&lane, acc[i], l, start, NULL);
    }
    for (int64_t v = 0; v < t.vectors; v++)
        right[v] = tn_l_alloc(b, "right", p->type, TN_SPACE_REG, p->width);
    for (int64_t i = 0; i < rows; i++) {
        row[i] = tn_l_fn2(b, TN_S_add, m0, tn_l_index(b, i));
        if (p->one_kernel && i)
            row[i] = tn_l_fn2(b, TN_S_min, row[i], p->last);
        lower_fact(L, &p->m, row[i]);
    }
    in = *b;
    if (!p->strip)
        lower_open_ranges_between(L, &in, p->op, p->first, p->end);
    tn_lvalue *first = p->strip ? p->from : tn_l_index(&in, 0), *count = p->strip ? p->to : lower_axis_count(L, &in, p->K, &p->k);
    int64_t unroll = rows == p->rows ? p->unroll : 1, known;
    if (unroll > 1) {
        tn_lvalue *step = tn_l_index(&in, unroll), *length = tn_l_fn2(&in, TN_S_max, tn_l_fn2(&in, TN_S_sub, count, first), tn_l_index(&in, 0));
        tn_lvalue *whole = tn_l_fn2(&in, TN_S_add, first, tn_l_fn2(&in, TN_S_mul, tn_l_fn2(&in, TN_S_div, length, step), step));
        tn_lop *loop = tn_l_for(&in, "k", first, whole, step, TN_FOR_SERIAL);
        tn_lbuilder at = tn_l_in(&in, loop->region[0]);
        prefetch_next(L, &at, p, &t, m0, tn_l_fn2(&at, TN_S_sub, loop->region[0]->arg, first), unroll);
        for (int64_t u = 0; u < unroll; u++)
            multiply_row(L, &at, p, &t, tn_l_fn2(&at, TN_S_add, loop->region[0]->arg, tn_l_index(&at, u)));
        first = whole;
    }
    if (unroll == 1 || p->strip || !tn_l_is_const(count, &known) || known % unroll) {
        tn_lop *loop = tn_l_for(&in, "k", first, count, tn_l_index(&in, 1), TN_FOR_SERIAL);
        tn_lbuilder at = tn_l_in(&in, loop->region[0]);
        multiply_row(L, &at, p, &t, loop->region[0]->arg);
    }
    lower_close(L, s);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < t.vectors; v++) {
            l = lower_vector_loop(b, p->width, &lane);
            tn_l_store(&lane, tile, tile_offset(&lane, p, m0, i, v, l), tn_l_load(&lane, acc[i * t.vectors + v], l, 1, NULL, NULL), NULL);
        }
}

/* How many rows the last block has where it isn't full, 0: all are; -1: any number. */
static int64_t rows_over(const lower *L, const product *p, tn_lvalue *count)
{
    int64_t total;
    if (tn_l_is_const(count, &total))
        return total % p->rows;
    bool even = p->M % p->rows == 0 && p->m.start && tn_dim_is_const(p->m.limit) && starts_at_multiple(L, p->m.start, p->rows);
    return even ? p->m.limit->value % p->rows : -1;
}

/* A kernel for each number of rows that can be left: all of them, or what the bound leaves over. In users' kernels one kernel has to do. */
static void choose_rows(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *left, tn_lvalue *batch, tn_lvalue *m0, tn_lvalue *n0,
                        tn_lvalue *count, tn_lvalue *tile)
{
    int64_t total;
    bool known = tn_l_is_const(count, &total);
    if (p->one_kernel && !(known && total % p->rows == 0)) {
        micro_kernel(L, b, p, p->rows, batch, m0, n0, tile);
        return;
    }
    int64_t tail = rows_over(L, p, count);
    tn_lbuilder at = *b;
    if (!known || total >= p->rows) {
        if (tail == 0) {
            micro_kernel(L, &at, p, p->rows, batch, m0, n0, tile);
            return;
        }
        tn_lop *whole = tn_l_if(&at, tn_l_fn2(&at, TN_S_ge, left, tn_l_index(&at, p->rows)));
        tn_lbuilder then = tn_l_in(&at, whole->region[0]);
        micro_kernel(L, &then, p, p->rows, batch, m0, n0, tile);
        at = tn_l_in(&at, whole->region[1]);
    }
    if (tail >= 0) {
        if (tail)
            micro_kernel(L, &at, p, tail, batch, m0, n0, tile);
        return;
    }
    for (int64_t rows = p->rows - 1; rows >= 1; rows--) {
        tn_lop *some = tn_l_if(&at, tn_l_fn2(&at, TN_S_eq, left, tn_l_index(&at, rows)));
        tn_lbuilder then = tn_l_in(&at, some->region[0]);
        micro_kernel(L, &then, p, rows, batch, m0, n0, tile);
        at = tn_l_in(&at, some->region[1]);
    }
}

static void epilogue(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *m0, tn_lvalue *n0, tn_lvalue *rows,
                     tn_lvalue *columns, tn_lvalue *tile)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    tn_lop *loop = tn_l_for(&in, "i", tn_l_index(&in, 0), rows, tn_l_index(&in, 1), TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg, *m = tn_l_fn2(&in, TN_S_add, m0, i);
    lower_fact(L, &p->m, m);
    loop = tn_l_for(&in, "j", tn_l_index(&in, 0), columns, tn_l_index(&in, 1), TN_FOR_VECTOR);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *j = loop->region[0]->arg, *n = tn_l_fn2(&in, TN_S_add, n0, j);
    lower_fact(L, &p->n, n);
    tn_lvalue *at = tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, holds_all_rows(p) ? m : i, tn_l_index(&in, p->columns)), j);
    tn_lvalue *x = tn_l_load(&in, tile, at, 1, NULL, NULL);
    tn_lvalue *idx[3] = {batch, m, n}, **index = p->batch ? idx : idx + 1;
    if (p->store || p->value)
        lower_memo(L, p->op->result, index, (element){x, NULL});
    if (p->store) {
        lower_store_element(L, &in, p->store, index);
    } else {
        if (p->value)
            x = lower_frozen(&in, lower_element(L, &in, p->value, index));
        tn_l_store(&in, p->out->buffer, lower_place_offset(&in, p->out, p->batch + 2, index), x, NULL);
    }
    lower_close(L, s);
}

/* Rows of the tile, in whole blocks; turned ones are taken by whole vectors too. */
static int64_t tile_rows(const product *p)
{
    int64_t rows = tn_ceildiv(p->M, p->rows) * p->rows;
    return !holds_all_rows(p) ? p->rows : p->turned ? tn_ceildiv(rows, p->width) * p->width : rows;
}

/* The epilogue of all rows of a panel, a column after the other. What lies past the last row is turned too, but not stored. */
static void epilogue_turned(lower *L, tn_lbuilder *b, const product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *rows, tn_lvalue *columns, tn_lvalue *tile)
{
    int width = (int)p->width;
    int64_t height = tile_rows(p);
    tn_lvalue *across = tn_l_alloc(b, "across", p->type, TN_SPACE_LOCAL, height * p->columns), *v[16], *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1);
    tn_lop *loop = tn_l_for(b, "m0", zero, rows, tn_l_index(b, width), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *m0 = loop->region[0]->arg;
    loop = tn_l_for(&in, "j0", zero, columns, tn_l_index(&in, width), TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *j0 = loop->region[0]->arg;
    for (int i = 0; i < width; i++) {
        tn_lvalue *row = tn_l_fn2(&in, TN_S_add, m0, tn_l_index(&in, i));
        v[i] = tn_l_load(&in, tile, tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, row, tn_l_index(&in, p->columns)), j0), width, NULL, NULL);
    }
    turn(&in, v, width);
    for (int i = 0; i < width; i++) {
        tn_lvalue *column = tn_l_fn2(&in, TN_S_add, j0, tn_l_index(&in, i));
        tn_l_store(&in, across, tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, column, tn_l_index(&in, height)), m0), v[i], NULL);
    }
    scope s = lower_open(L);
    in = *b;
    loop = tn_l_for(&in, "j", zero, columns, one, TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *j = loop->region[0]->arg, *n = tn_l_fn2(&in, TN_S_add, n0, j);
    lower_fact(L, &p->n, n);
    loop = tn_l_for(&in, "i", zero, rows, one, TN_FOR_VECTOR);
    in = tn_l_in(&in, loop->region[0]);
    tn_lvalue *m = loop->region[0]->arg, *at = tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, j, tn_l_index(&in, height)), m);
    lower_fact(L, &p->m, m);
    tn_lvalue *idx[3] = {batch, m, n}, **index = p->batch ? idx : idx + 1;
    lower_memo(L, p->op->result, index, (element){tn_l_load(&in, across, at, 1, NULL, NULL), NULL});
    lower_store_element(L, &in, p->store, index);
    lower_close(L, s);
}

static void zero_tile(tn_lbuilder *b, const product *p, tn_lvalue *tile)
{
    tn_lbuilder lane;
    tn_lvalue *l = lower_vector_loop(b, tn_ceildiv(p->M, p->rows) * p->rows * p->columns, &lane);
    tn_l_store(&lane, tile, l, tn_l_const(&lane, tn_lscalar(p->type), tn_number_from_int(p->type, 0)), NULL);
}

/* tile := 0, then += each strip's part, all blocks of rows for one strip before the next. */
static void sum_strips(lower *L, tn_lbuilder *b, product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *count, tn_lvalue *tile)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    zero_tile(&in, p, tile);
    lower_open_ranges(L, &in, p->op);
    tn_lvalue *total = lower_axis_count(L, &in, p->K, &p->k), *step = tn_l_index(&in, p->strip);
    tn_lop *loop = tn_l_for(&in, "strip", tn_l_index(&in, 0), total, step, TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    p->from = loop->region[0]->arg;
    p->to = tn_l_fn2(&in, TN_S_min, tn_l_fn2(&in, TN_S_add, p->from, step), total);
    tn_lvalue *m0 = lower_block_loop(&in, "m0", count, p->rows);
    choose_rows(L, &in, p, tn_l_fn2(&in, TN_S_sub, count, m0), batch, m0, n0, count, tile);
    lower_close(L, s);
}

/* The same, of windows of the first range: each one's panel is packed when all rows have used the one before. */
static void sum_windows(lower *L, tn_lbuilder *b, product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *columns, tn_lvalue *count, tn_lvalue *tile)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    zero_tile(&in, p, tile);
    tn_lvalue *limit = lower_scalar(L, &in, p->op->operand[0]), *step = tn_l_index(&in, p->window * p->op->step[0].size);
    tn_lop *loop = tn_l_for(&in, "window", tn_l_index(&in, 0), limit, step, TN_FOR_SERIAL);
    in = tn_l_in(&in, loop->region[0]);
    p->first = loop->region[0]->arg;
    p->end = tn_l_fn2(&in, TN_S_min, tn_l_fn2(&in, TN_S_add, p->first, step), limit);
    pack_panel(L, &in, p, batch, n0, columns);
    tn_lvalue *m0 = lower_block_loop(&in, "m0", count, p->rows);
    choose_rows(L, &in, p, tn_l_fn2(&in, TN_S_sub, count, m0), batch, m0, n0, count, tile);
    p->first = p->end = NULL;
    lower_close(L, s);
}

/* The columns of a panel, from the first to the last row. */
static void emit_columns(lower *L, tn_lbuilder *b, product *p, tn_lvalue *batch, tn_lvalue *n0, tn_lvalue *columns, tn_lvalue *mb, tn_lvalue *tile)
{
    tn_lbuilder in = *b;
    bool summed = p->strip || p->window;
    if (p->panel && !p->window)
        pack_panel(L, &in, p, batch, n0, columns);
    if (p->window)
        sum_windows(L, &in, p, batch, n0, columns, mb, tile);
    else if (p->strip)
        sum_strips(L, &in, p, batch, n0, mb, tile);
    tn_lbuilder blocks = in;
    if (!summed || !p->turned) {
        tn_lvalue *m0 = lower_block_loop(&blocks, "m0", mb, p->rows);
        if (!summed)
            choose_rows(L, &blocks, p, tn_l_fn2(&blocks, TN_S_sub, mb, m0), batch, m0, n0, mb, tile);
        if (!p->turned)
            epilogue(L, &blocks, p, batch, m0, n0, lower_block_count(&blocks, mb, m0, p->rows), columns, tile);
    }
    if (p->turned)
        epilogue_turned(L, &in, p, batch, n0, mb, columns, tile);
}

static void emit_product(lower *L, tn_lbuilder *b, product *p)
{
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    tn_lvalue *tile = tn_l_alloc(&in, "tile", p->type, TN_SPACE_LOCAL, tile_rows(p) * p->columns), *batch = NULL;
    if (p->batch) {
        axis_bound bound = p->store ? lower_store_bound(p->store, 0) : (axis_bound){NULL, NULL};
        batch = lower_open_axis(L, &in, 0, p->op->result->type.extent[0].size, &bound, TN_FOR_SERIAL);
    }
    tn_lvalue *mb = lower_axis_count(L, &in, p->M, &p->m), *nb = lower_axis_count(L, &in, p->N, &p->n);
    int64_t m_known, most = tn_l_is_const(mb, &m_known) ? m_known : p->M;
    bool whole = p->N % p->columns == 0; /* lanes must not pass the operand's end */
    p->last = tn_l_fn2(&in, TN_S_sub, mb, tn_l_index(&in, 1));
    p->packed = is_packed(L, p->b, p->columns);
    if (p->packed || (most <= p->direct && whole))
        p->window = 0;
    else
        p->panel = tn_l_alloc_sized(&in, "panel", p->b->type.dtype, tn_l_fn2(&L->entry, TN_S_mul, panel_rows(L, &L->entry, p), tn_l_index(&L->entry, p->columns)));
    tn_lvalue *n0 = lower_block_loop(&in, "n0", nb, p->columns);
    tn_lvalue *columns = lower_block_count(&in, nb, n0, p->columns);
    if (p->panel && p->direct > DIRECT && whole && !tn_l_is_const(mb, &m_known)) { /* as many rows as a run has */
        tn_lop *few = tn_l_if(&in, tn_l_fn2(&in, TN_S_le, mb, tn_l_index(&in, p->direct)));
        tn_lbuilder then = tn_l_in(&in, few->region[0]);
        product direct = *p;
        direct.panel = NULL;
        direct.window = direct.strip = 0;
        scope few_rows = lower_open(L);
        emit_columns(L, &then, &direct, batch, n0, columns, mb, tile);
        lower_close(L, few_rows);
        in = tn_l_in(&in, few->region[1]);
    }
    emit_columns(L, &in, p, batch, n0, columns, mb, tile);
    lower_close(L, s);
}

/* ---- which, and when -------------------------------------------------------------------------------------------------------- */

/* Whole sums while a panel of them takes a quarter of L2 at most, or where one block of rows uses it alone; else 512 at a time. */
static int64_t default_strip(const lower *L, const product *p)
{
    int64_t bytes = p->columns * tn_dtype_bits(p->b->type.dtype) / 8, length = 1;
    for (int i = 0; i < p->op->nranges; i++) {
        tn_dim limit = lower_value_dim(L, p->op->operand[i]);
        if (!limit || !tn_dim_is_const(limit) || !tn_mul(length, tn_max(limit->value, 1), &length) || length > (INT64_C(1) << 40))
            return 0;
    }
    if (p->op->nranges == 0 || p->k.start != &p->op->region[0]->arg[p->op->nranges - 1])
        length *= p->K;
    return p->M > p->rows && length * bytes > L->machine->l2_bytes / 4 ? 512 : 0;
}

/* Of a tile whose rows are known, a few rows less a block may leave none over, and need no second kernel; enough sums must be in flight. */
static int64_t even_rows(const product *p, const tn_machine *machine)
{
    enum { IN_FLIGHT = 14 };
    int64_t panel = p->K * p->columns * tn_dtype_bits(p->b->type.dtype) / 8;
    for (int64_t rows = p->rows; panel <= machine->l1_bytes / 2 && rows * (p->columns / p->width) >= IN_FLIGHT; rows--)
        if (p->M % rows == 0)
            return rows;
    return tn_min(p->rows, machine->dot_rows);
}

static product product_of(lower *L, const tn_top *op, const tn_top *store)
{
    const tn_top *dot = lower_dot_of(op);
    product p = {.op = op, .a = dot->operand[0], .b = dot->operand[1], .store = store, .type = op->result->type.dtype};
    int r = p.a->type.rank;
    p.batch = r - 2;
    p.M = p.a->type.extent[r - 2].size;
    p.K = p.a->type.extent[r - 1].size;
    p.N = p.b->type.extent[r - 1].size;
    p.m = store ? lower_store_bound(store, r - 2) : lower_bound_outside(op, lower_value_bound(L, p.a, r - 2));
    p.n = store ? lower_store_bound(store, r - 1) : lower_bound_outside(op, lower_value_bound(L, p.b, r - 1));
    p.k = lower_value_bound(L, p.a, r - 1);
    if (!p.k.start)
        p.k = lower_value_bound(L, p.b, r - 2);
    const tn_machine *machine = L->machine;
    const tn_schedule *schedule = &L->kernel->schedule;
    p.width = tn_max(1, machine->vector.bits / tn_dtype_bits(p.type));
    p.one_kernel = op->code == TN_T_dot || L->kernel->scalars.len || L->kernel->overlap;
    p.unroll = tn_schedule_get(schedule, op->label, "unroll", machine->vector.bits < 512 || p.one_kernel ? 1 : 4); /* more code for a user to wait for */
    p.ahead = tn_schedule_get(schedule, op->label, "ahead", 0);
    int64_t most = p.n.start && tn_dim_is_const(p.n.limit) ? tn_min(p.N, p.n.limit->value) : p.N;
    int64_t panel = p.b->def && p.b->def->code == TN_T_load ? p.b->def->view->panel : 0;
    int64_t vectors = tn_schedule_get(schedule, op->label, "columns", tn_dot_vectors(machine->dot_rows, machine->dot_vectors, p.width, most) * p.width) / p.width;
    if (!panel) /* no wider than the result */
        vectors = tn_min(vectors, tn_ceildiv(most, p.width));
    else if (panel % p.width == 0)
        vectors = panel / p.width;
    vectors = tn_max(1, tn_min(vectors, MOST));
    p.columns = vectors * p.width;
    p.rows = tn_schedule_get(schedule, op->label, "rows", tn_dot_rows(machine->dot_rows, machine->dot_vectors, (int)vectors));
    p.rows = tn_max(1, tn_min(tn_min(p.rows, p.M), MOST / (p.columns / p.width)));
    if (op->code == TN_T_dot && tn_schedule_get(schedule, op->label, "rows", 0) == 0)
        p.rows = even_rows(&p, machine);
    p.strip = tn_schedule_get(schedule, op->label, "strip", default_strip(L, &p));
    p.direct = tn_min(tn_schedule_get(schedule, op->label, "direct", DIRECT), tn_max(p.rows, DIRECT));
    p.window = op->code == TN_T_dot || !op->nranges ? 0 : tn_schedule_get(schedule, op->label, "window", 0);
    p.strip = p.window ? 0 : p.strip;
    p.left = tn_map_get(&CPU(L)->operands, TN_KEY(p.a));
    p.turned = store && p.M > 1 && p.width >= 4 && p.width <= 16 && lower_store_vector_axis(L, store) == p.batch;
    return p;
}

/* ---- the left operand's copy ------------------------------------------------------------------------------------------------- */

/* Reading an element of it is a load and nothing else: tried out in a block that comes to nothing. */
static bool is_plain(lower *L, const product *p)
{
    const tn_tvalue *v = p->a;
    while (v->def && !tn_map_get(&L->places, TN_KEY(v)) && (v->def->code == TN_T_permute || v->def->code == TN_T_broadcast || v->def->code == TN_T_reshape))
        v = v->def->operand[0];
    bool in_memory = tn_map_get(&L->places, TN_KEY(v)) || (v->def && v->def->code == TN_T_load);
    if (p->a->type.dtype != p->type || !in_memory)
        return false;
    tn_lvalue *idx[3];
    tn_lblock aside = {.arg = NULL};
    tn_lbuilder b = {L->func, &aside, NULL, 0};
    const axis_bound none = {NULL, NULL}, *bound[3] = {&none, &p->m, &p->k};
    scope s = lower_open(L);
    for (int i = 0; i < p->batch + 2; i++) {
        tn_lop *loop = tn_l_for(&b, "i", tn_l_index(&b, 0), tn_l_index(&b, 2), tn_l_index(&b, 1), TN_FOR_SERIAL);
        b = tn_l_in(&b, loop->region[0]);
        idx[i] = loop->region[0]->arg;
        lower_fact(L, bound[i + 1 - p->batch], idx[i]);
    }
    bool plain = !lower_element(L, &b, p->a, idx).present;
    lower_close(L, s);
    return plain;
}

/* The copy has the accumulators' type, and 0 for what is absent. */
static const place *copy_left(lower *L, tn_lbuilder *b, const product *p)
{
    tn_ttype type = p->a->type;
    tn_lvalue *idx[3];
    type.dtype = p->type;
    place *to = lower_new_place(L, b, &type, "left");
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    axis_bound none = {NULL, NULL};
    for (int i = 0; i < type.rank; i++)
        idx[i] = lower_open_axis(L, &in, i, type.extent[i].size, &none, i == type.rank - 1 ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    element e = lower_element(L, &in, p->a, idx);
    tn_l_store(&in, to->buffer, lower_place_offset(&in, to, type.rank, idx), tn_l_cast(&in, or_zero(&in, e, p->a->type.dtype), p->type), NULL);
    lower_close(L, s);
    *tn_map_at(&CPU(L)->operands, TN_KEY(p->a)) = to;
    return to;
}

void lower_copy_operand(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    product p = product_of(L, dot, NULL);
    p.m = (axis_bound){NULL, NULL};
    if (p.left || is_plain(L, &p))
        return;
    copy_left(L, b, &p);
    TN_PUSH(&L->arena, &CPU(L)->copied, p.a);
}

void lower_forget_operands(lower *L, size_t from)
{
    while (CPU(L)->copied.len > from)
        *tn_map_at(&CPU(L)->operands, TN_KEY(CPU(L)->copied.at[--CPU(L)->copied.len])) = NULL;
}

static void zero_place(tn_lbuilder *b, const place *p, const tn_ttype *type)
{
    int64_t size = p->stride[0] * type->extent[0].size;
    tn_lbuilder in;
    tn_lvalue *l = lower_vector_loop(b, size, &in);
    tn_l_store(&in, p->buffer, l, tn_l_const(&in, tn_lscalar(type->dtype), tn_number_from_int(type->dtype, 0)), NULL);
}

/* The product with its epilogue. A row of the left operand is read once for each panel, an element at a time: what is more than a load is done before, by
 * vectors. */
static void compute_product(lower *L, tn_lbuilder *b, product *p)
{
    bool copies = p->op->code == TN_T_dot && !p->left && !is_plain(L, p);
    if (copies)
        p->left = copy_left(L, b, p);
    emit_product(L, b, p);
    if (copies)
        *tn_map_at(&CPU(L)->operands, TN_KEY(p->a)) = NULL;
}

static void product_into_place(lower *L, tn_lbuilder *b, const tn_top *op)
{
    product p = product_of(L, op, NULL);
    p.out = lower_new_place(L, b, &op->result->type, "product");
    if (p.m.start || p.n.start)
        zero_place(b, p.out, &op->result->type);
    compute_product(L, b, &p);
    lower_set_place(L, op->result, p.out);
}

bool lower_is_elementwise(const tn_top *op)
{
    return op->code == TN_T_map || op->code == TN_T_cast || op->code == TN_T_bitcast;
}

/* Nothing is written between the two. */
static bool is_quiet(const tn_top *from, const tn_top *to)
{
    for (const tn_top *op = from->next; op && op != to; op = op->next)
        if (op->nregions ? op->code != TN_T_reduce && op->code != TN_T_scan && op->code != TN_T_sort : op->code != TN_T_yield && (tn_top_traits(op->code) & TN_T_WRITES))
            return false;
    return true;
}

/* The one store, or the one value of a `yield`, that ends every use of the product, element by element. */
static bool has_one_end(lower *L, const tn_top *op)
{
    tn_map marked = {.arena = &L->arena};
    *tn_map_at(&marked, TN_KEY(op->result)) = (void *)op;
    const tn_top *end = NULL;
    for (const tn_top *next = op->next; next; next = next->next) {
        if (!lower_depends_on(next, &marked))
            continue;
        if (lower_is_elementwise(next)) {
            *tn_map_at(&marked, TN_KEY(next->result)) = (void *)next;
            continue;
        }
        int ends = 0;
        for (int i = 0; i < next->noperands; i++)
            if (tn_map_get(&marked, TN_KEY(next->operand[i])))
                ends += next->operand[i]->type.rank == op->result->type.rank ? 1 : 2;
        bool stored = next->code == TN_T_store && next->operand[0]->type.rank == op->result->type.rank && tn_map_get(&marked, TN_KEY(next->operand[0]));
        bool yielded = next->code == TN_T_yield && next->block->parent->code != TN_T_fold;
        if (end || ends != 1 || !(stored || yielded))
            return false;
        end = next;
    }
    /* Where parameters overlap, what is stored may be what is multiplied. */
    return end && (!L->func->overlap || (end->code == TN_T_yield && is_quiet(op, end)));
}

void lower_dot(lower *L, tn_lbuilder *b, const tn_top *op)
{
    if (has_one_end(L, op))
        *tn_map_at(&CPU(L)->pending, TN_KEY(op->result)) = (void *)op;
    else
        product_into_place(L, b, op);
}

static void find_pending(lower *L, const tn_tvalue *v, tn_map *seen, const tn_top **found, int *n)
{
    void **cell = tn_map_at(seen, TN_KEY(v));
    if (*cell)
        return;
    *cell = (void *)v;
    const tn_top *op = tn_map_get(&CPU(L)->pending, TN_KEY(v));
    if (op && *n < 8)
        found[(*n)++] = op;
    else if (v->def && lower_is_elementwise(v->def))
        for (int i = 0; i < v->def->noperands; i++)
            find_pending(L, v->def->operand[i], seen, found, n);
}

bool lower_waits_for_product(lower *L, const tn_tvalue *v)
{
    const tn_top *found[8];
    int n = 0;
    tn_map seen = {.arena = &L->arena};
    find_pending(L, v, &seen, found, &n);
    return n > 0;
}

/* The products that v waits for: all but the last into places. The last one; NULL: none. */
static const tn_top *last_pending(lower *L, tn_lbuilder *b, const tn_tvalue *v)
{
    const tn_top *found[8];
    int n = 0;
    tn_map seen = {.arena = &L->arena};
    find_pending(L, v, &seen, found, &n);
    for (int i = 0; i < n; i++)
        *tn_map_at(&CPU(L)->pending, TN_KEY(found[i]->result)) = NULL;
    for (int i = 0; i < n - 1; i++)
        product_into_place(L, b, found[i]);
    return n ? found[n - 1] : NULL;
}

bool lower_pending_dots(lower *L, tn_lbuilder *b, const tn_top *store)
{
    const tn_top *last = last_pending(L, b, store->operand[0]);
    if (!last)
        return false;
    product p = product_of(L, last, store);
    compute_product(L, b, &p);
    return true;
}

bool lower_pending_value(lower *L, tn_lbuilder *b, const tn_tvalue *v, place *out)
{
    const tn_top *last = last_pending(L, b, v);
    if (!last)
        return false;
    product p = product_of(L, last, NULL);
    p.m = p.n = (axis_bound){NULL, NULL}; /* all of the place gets its value */
    p.out = out;
    p.value = v;
    compute_product(L, b, &p);
    return true;
}
