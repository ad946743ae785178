/* Random graphs whose results can be compared between two ways of computing them.
 *
 * Every value knows how far two right computations of it may lie apart. Integers, bool, and floats that hold small whole numbers (or NaN,
 * infinities) are exact: sums in any order give the same. Other floats carry a bound of their magnitude and of their error, by interval
 * arithmetic on what each operation may add. What jumps (floor, comparisons, conversion to integers, sorting) is applied to exact values only;
 * what grows is brought back before it would drown in its own error.
 *
 * Sizes come from a short list with 0, 1, primes and one more or less than a vector; half of the graphs have symbols, which take several values. */
#ifndef GRAPH_RANDOM_H
#define GRAPH_RANDOM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

enum { R_VALUES = 160, R_INPUTS = 24, R_RUNS = 3, R_SYMBOLS = 3 };

typedef struct rvalue {
    tn_value *v;
    bool exact;
    double bound, error; /* of floats; bound: of those that are finite */
} rvalue;

typedef struct maker {
    uint64_t state;
    tn_session *session;
    tn_graph *graph;
    tn_builder b;
    rvalue value[R_VALUES];
    int nvalues;
    int nsymbols, nruns;
    tn_dim symbol[R_SYMBOLS];
    int64_t size[R_RUNS][R_SYMBOLS]; /* of the symbols, by run */
    tn_dim extent[6];                /* sizes that the graph's shapes are made of */
    int nextents;
    bool special;                    /* NaN and infinities may occur */
    int64_t most_elements;           /* of one value */
    tn_tensor *input[R_RUNS][R_INPUTS];
} maker;

/* ---- chance -------------------------------------------------------------------------------------------------------------------- */

static uint64_t chance(maker *k)
{
    k->state += 0x9e3779b97f4a7c15u;
    return tn_hash_u64(k->state);
}
static int64_t below(maker *k, int64_t n) { return (int64_t)((chance(k) >> 11) % (uint64_t)n); }
static bool one_in(maker *k, int64_t n) { return below(k, n) == 0; }

/* ---- sizes --------------------------------------------------------------------------------------------------------------------- */

typedef struct run_sizes {
    const maker *k;
    int run;
} run_sizes;

static bool size_of_symbol(void *context, const char *name, int64_t *out)
{
    const run_sizes *r = context;
    for (int i = 0; i < r->k->nsymbols; i++)
        if (!strcmp(r->k->symbol[i]->name, name)) {
            *out = r->k->size[r->run][i];
            return true;
        }
    return false;
}

static bool dim_in_run(const maker *k, int run, tn_dim d, int64_t *out)
{
    run_sizes r = {k, run};
    return tn_dim_eval(d, size_of_symbol, &r, out);
}

/* The largest value of d in any run; -1 if it is negative or unknown in one. */
static int64_t most(const maker *k, tn_dim d)
{
    int64_t largest = -1, n;
    for (int r = 0; r < k->nruns; r++) {
        if (!dim_in_run(k, r, d, &n) || n < 0)
            return -1;
        largest = n > largest ? n : largest;
    }
    return largest;
}

static int64_t most_elements(const maker *k, const tn_dim *dims, int rank)
{
    int64_t largest = 0;
    for (int r = 0; r < k->nruns; r++) {
        int64_t n = 1, d;
        for (int i = 0; i < rank; i++) {
            if (!dim_in_run(k, r, dims[i], &d) || d < 0)
                return -1;
            n *= d;
        }
        largest = n > largest ? n : largest;
    }
    return largest;
}

static bool fits(const maker *k, const tn_dim *dims, int rank)
{
    int64_t n = most_elements(k, dims, rank);
    return n >= 0 && n <= k->most_elements && rank <= 6;
}

static tn_dim number(maker *k, int64_t n) { return tn_dim_const(k->session, n); }

static int64_t some_size(maker *k)
{
    static const int64_t common[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 67, 100, 128, 129};
    static const int64_t large[] = {200, 256, 257, 300, 511, 513, 1000, 1024, 2049, 4097, 8191, 10000};
    if (k->most_elements > 10000 && one_in(k, 3))
        return large[below(k, (int64_t)TN_COUNT(large))];
    return one_in(k, 25) ? 0 : one_in(k, 40) ? 257 : common[below(k, (int64_t)TN_COUNT(common))];
}

static void choose_sizes(maker *k)
{
    static const char *const names[R_SYMBOLS] = {"a", "b", "c"};
    k->nsymbols = one_in(k, 2) ? (int)below(k, R_SYMBOLS) + 1 : 0;
    k->nruns = k->nsymbols ? R_RUNS : 1;
    for (int i = 0; i < k->nsymbols; i++) {
        k->symbol[i] = tn_dim_symbol(k->session, names[i]);
        for (int r = 0; r < k->nruns; r++)
            k->size[r][i] = some_size(k);
        k->extent[k->nextents++] = k->symbol[i];
    }
    while (k->nextents < 5)
        k->extent[k->nextents++] = number(k, some_size(k));
}

static tn_dim some_extent(maker *k) { return k->extent[below(k, k->nextents)]; }

static bool some_shape(maker *k, int rank, tn_dim *dims)
{
    for (int tries = 0; tries < 8; tries++) {
        for (int i = 0; i < rank; i++)
            dims[i] = one_in(k, 8) ? number(k, 1) : some_extent(k);
        if (fits(k, dims, rank))
            return true;
    }
    return false;
}

/* ---- errors ---------------------------------------------------------------------------------------------------------------------- */

/* Half a unit in the last place of 1. */
static double rounding(tn_dtype dtype)
{
    switch (dtype) {
    case TN_F64: return 0x1p-53;
    case TN_F32: return 0x1p-24;
    case TN_F16: return 0x1p-11;
    case TN_BF16: return 0x1p-8;
    case TN_F8E4M3: return 0x1p-4;
    default: return 0x1p-3;
    }
}
/* What a function of vector mathematics may be off, relative. */
static double function_error(tn_dtype dtype) { return dtype == TN_F64 ? 0x1p-46 : dtype == TN_F32 ? 0x1p-20 : 4 * rounding(dtype); }
static double most_whole(tn_dtype dtype) { return 1 / rounding(dtype); }
static double largest_bound(tn_dtype dtype) { return tn_dtype_bits(dtype) == 8 ? 64 : dtype == TN_F16 ? 512 : 1e4; }

static rvalue *keep(maker *k, tn_value *v, bool exact, double bound, double error)
{
    if (!v) {
        k->b.failed = false;
        return NULL;
    }
    if (k->nvalues == R_VALUES)
        return NULL;
    if (!tn_is_float(v->type.dtype))
        exact = true;
    if (!exact)
        error += rounding(v->type.dtype) * bound;
    k->value[k->nvalues] = (rvalue){v, exact, bound, exact ? 0 : error};
    return &k->value[k->nvalues++];
}

/* The result is whole if it stays below what the type holds exactly; else it was rounded, as often as `steps`. */
static rvalue *keep_whole(maker *k, tn_value *v, bool exact, double bound, double error, double steps)
{
    if (v && tn_is_float(v->type.dtype) && (!exact || bound > most_whole(v->type.dtype))) {
        exact = false;
        error += steps * rounding(v->type.dtype) * bound;
    }
    return keep(k, v, exact, bound, error);
}

static rvalue *same_kind(maker *k, tn_value *v, const rvalue *x) { return keep(k, v, x->exact, x->bound, x->error); }

/* Brings a value that grew large, or lost too much, back into a small range. */
static rvalue *settle(maker *k, rvalue *x)
{
    if (!x || !tn_is_float(x->v->type.dtype) || k->nvalues == R_VALUES)
        return x;
    tn_dtype dtype = x->v->type.dtype;
    if (x->bound <= largest_bound(dtype) && (x->exact || x->error <= 0.02 * fmax(x->bound, 1)))
        return x;
    double limit = 8;
    tn_value *low = tn_scalar_constant(&k->b, dtype, -limit), *high = tn_scalar_constant(&k->b, dtype, limit);
    if (!x->exact && x->error > 0.02 * limit) { /* not worth keeping: forget it */
        k->nvalues--;
        return NULL;
    }
    tn_op *op = tn_build(&k->b, TN_OP_clamp, (tn_value *[]){low, x->v, high}, 3, NULL, 0, NULL, 0);
    return op ? keep(k, op->result, x->exact, limit, x->error) : NULL;
}

/* ---- choosing operands --------------------------------------------------------------------------------------------------------- */

typedef bool wanted(const rvalue *x);
static bool any_value(const rvalue *x) { return x->v != NULL; }
static bool any_float(const rvalue *x) { return tn_is_float(x->v->type.dtype); }
static bool exact_value(const rvalue *x) { return x->exact; }
static bool any_bool(const rvalue *x) { return x->v->type.dtype == TN_BOOL; }
static bool any_int(const rvalue *x) { return tn_is_integer(x->v->type.dtype); }
static bool any_number(const rvalue *x) { return x->v->type.dtype != TN_BOOL; }
static bool with_dims(const rvalue *x) { return x->v->type.rank > 0; }

/* Recent values are likelier: chains grow long. */
static rvalue *choose(maker *k, wanted *want)
{
    for (int tries = 0; tries < 12 && k->nvalues; tries++) {
        int64_t back = one_in(k, 3) ? below(k, k->nvalues) : below(k, tn_min(k->nvalues, 6));
        rvalue *x = &k->value[k->nvalues - 1 - back];
        if (want(x))
            return x;
    }
    return NULL;
}

/* A value of x's type that broadcasts with x; a new constant if there is none. */
static rvalue *choose_partner(maker *k, const rvalue *x)
{
    for (int tries = 0; tries < 24; tries++) {
        rvalue *y = &k->value[below(k, k->nvalues)];
        bool good = y->v->type.dtype == x->v->type.dtype && y != x;
        int rank = x->v->type.rank, other = y->v->type.rank;
        for (int i = 1; good && i <= rank && i <= other; i++) {
            tn_dim a = x->v->type.dim[rank - i], b = y->v->type.dim[other - i];
            good = a == b || tn_dim_is(a, 1) || tn_dim_is(b, 1);
        }
        if (good)
            return y;
    }
    double value = (double)below(k, 7) - 3;
    return keep(k, tn_scalar_constant(&k->b, x->v->type.dtype, tn_dtype_class(x->v->type.dtype) == TN_CLASS_UINT || x->v->type.dtype == TN_BOOL ? fabs(value) > 1 : value),
                true, fabs(value), 0);
}

/* ---- inputs -------------------------------------------------------------------------------------------------------------------- */

static double some_number(maker *k, tn_dtype dtype, bool whole)
{
    if (k->special && tn_is_float(dtype) && one_in(k, 24))
        return (const double[]){NAN, INFINITY, -INFINITY, -0.0}[below(k, 4)];
    return whole ? (double)below(k, 9) - 4 : (double)below(k, 8001) / 2000 - 2;
}

static tn_tensor *some_tensor(maker *k, tn_dtype dtype, int rank, const int64_t *dims, bool whole, int64_t indices_below)
{
    tn_tensor *t = TN_NEW(&k->session->arena, tn_tensor);
    *t = (tn_tensor){.dtype = dtype, .rank = rank};
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= t->dim[i] = dims[i];
    char *data = tn_alloc_aligned(&k->session->arena, (size_t)n * 16 + 64, 64);
    for (int64_t i = 0; i < n; i++) {
        double x = some_number(k, dtype, whole);
        tn_number e = tn_is_float(dtype)   ? tn_number_from_double(dtype, x)
                      : indices_below > 0  ? tn_number_from_int(dtype, one_in(k, 16) ? below(k, 3 * indices_below) - indices_below : below(k, indices_below))
                      : dtype == TN_BOOL   ? tn_number_from_int(dtype, below(k, 2))
                      : one_in(k, 10)      ? tn_number_from_int(dtype, (int64_t)chance(k))
                                           : tn_number_from_int(dtype, below(k, 21) - 10);
        tn_number_store(dtype, data, i, e);
    }
    t->data = data;
    return t;
}

/* A new graph input. indices_below > 0: whole numbers, most of them in [0, indices_below). */
static rvalue *new_input(maker *k, tn_dtype dtype, int rank, const tn_dim *dims, int64_t indices_below)
{
    int at = k->graph->body->nargs;
    bool whole = one_in(k, 2);
    if (at == R_INPUTS || !fits(k, dims, rank))
        return NULL;
    tn_type type = tn_type_make(dtype, rank, dims);
    tn_value *v = tn_graph_input(k->graph, tn_format(&k->session->arena, "x%d", at), &type);
    for (int r = 0; r < k->nruns; r++) {
        int64_t size[TN_MAX_RANK];
        for (int i = 0; i < rank; i++)
            dim_in_run(k, r, dims[i], &size[i]);
        k->input[r][at] = some_tensor(k, dtype, rank, size, whole, indices_below);
    }
    rvalue *x = keep(k, v, whole, whole ? 4 : 2, 0);
    if (x)
        x->error = 0; /* both computations read the same bits */
    return x;
}

static rvalue *new_constant(maker *k, tn_dtype dtype, int rank, const tn_dim *dims)
{
    int64_t size[TN_MAX_RANK];
    bool whole = one_in(k, 2), special = k->special;
    if (!fits(k, dims, rank))
        return NULL;
    for (int i = 0; i < rank; i++) {
        if (!tn_dim_is_const(dims[i]))
            return new_input(k, dtype, rank, dims, 0);
        size[i] = dims[i]->value;
    }
    k->special = false;
    tn_tensor *t = some_tensor(k, dtype, rank, size, whole, 0);
    k->special = special;
    rvalue *x = keep(k, tn_constant(&k->b, t), whole, whole ? 4 : 2, 0);
    if (x)
        x->error = 0;
    return x;
}

static rvalue *input_or_constant(maker *k, tn_dtype dtype, int rank, const tn_dim *dims)
{
    return one_in(k, 2) ? new_input(k, dtype, rank, dims, 0) : new_constant(k, dtype, rank, dims);
}

static tn_dtype some_dtype(maker *k)
{
    static const tn_dtype rare[] = {TN_F8E4M3, TN_F8E5M2, TN_I4, TN_U4, TN_U16, TN_U64};
    if (one_in(k, 16))
        return rare[below(k, (int64_t)TN_COUNT(rare))];
    static const tn_dtype list[] = {TN_F32, TN_F32, TN_F32, TN_F32, TN_F32, TN_F16, TN_BF16, TN_F64, TN_I32, TN_I32, TN_I64, TN_I8, TN_U8, TN_I16, TN_BOOL, TN_U32};
    return list[below(k, (int64_t)TN_COUNT(list))];
}

static rvalue *make_input(maker *k)
{
    tn_dim dims[TN_MAX_RANK];
    int rank = (int)below(k, 5);
    return some_shape(k, rank, dims) ? new_input(k, some_dtype(k), rank, dims, 0) : NULL;
}

/* ---- elementwise ------------------------------------------------------------------------------------------------------------- */

static rvalue *make_smooth(maker *k)
{
    static const struct { tn_opcode code; double bound; } fns[] = {
        {TN_OP_tanh, 1}, {TN_OP_logistic, 1}, {TN_OP_sine, 1}, {TN_OP_cosine, 1}, {TN_OP_erf, 1.2}, {TN_OP_atan, 1.6},
    };
    rvalue *x = choose(k, any_float);
    if (!x || x->bound > 100)
        return NULL;
    int64_t i = below(k, (int64_t)TN_COUNT(fns));
    double error = 1.2 * x->error + function_error(x->v->type.dtype) * fns[i].bound;
    return keep(k, tn_unary(&k->b, fns[i].code, x->v), false, fns[i].bound, error);
}

static tn_value *one_plus_abs(maker *k, tn_value *x)
{
    return tn_binary_b(&k->b, TN_OP_add, tn_unary(&k->b, TN_OP_abs, x), tn_scalar_constant(&k->b, x->type.dtype, 1));
}

/* Functions that are smooth only where their argument is kept. */
static rvalue *make_guarded(maker *k)
{
    rvalue *x = choose(k, any_float);
    if (!x)
        return NULL;
    tn_dtype dtype = x->v->type.dtype;
    double f = function_error(dtype), e = x->error + rounding(dtype) * (x->bound + 1);
    switch (below(k, 6)) {
    case 0: return x->bound <= 6 ? keep(k, tn_unary(&k->b, TN_OP_exponential, x->v), false, exp(x->bound), exp(x->bound) * (2 * e + f)) : NULL;
    case 1: return keep(k, tn_unary(&k->b, TN_OP_log, one_plus_abs(k, x->v)), false, log(x->bound + 1) + 0.1, e + f * (log(x->bound + 1) + 1));
    case 2: return keep(k, tn_unary(&k->b, TN_OP_sqrt, one_plus_abs(k, x->v)), false, sqrt(x->bound + 1), e + f * sqrt(x->bound + 1));
    case 3: return keep(k, tn_unary(&k->b, TN_OP_rsqrt, one_plus_abs(k, x->v)), false, 1, e + f);
    case 4: return x->bound <= 6 ? keep(k, tn_unary(&k->b, TN_OP_exponential_minus_one, x->v), false, exp(x->bound), exp(x->bound) * (2 * e + f)) : NULL;
    default: return keep(k, tn_unary(&k->b, TN_OP_log_plus_one, tn_unary(&k->b, TN_OP_abs, x->v)), false, log(x->bound + 1) + 0.1, e + f * (log(x->bound + 1) + 1));
    }
}

static rvalue *make_plain_unary(maker *k)
{
    rvalue *x = choose(k, any_number);
    if (!x)
        return NULL;
    tn_opcode code = one_in(k, 2) && tn_dtype_class(x->v->type.dtype) != TN_CLASS_UINT ? TN_OP_negate : TN_OP_abs;
    return same_kind(k, tn_unary(&k->b, code, x->v), x);
}

static rvalue *make_jump(maker *k)
{
    static const tn_opcode codes[] = {TN_OP_floor, TN_OP_ceil, TN_OP_round_nearest_even, TN_OP_round_nearest_afz, TN_OP_sign};
    rvalue *x = choose(k, exact_value);
    if (!x)
        return NULL;
    if (any_int(x))
        return keep(k, tn_unary(&k->b, (const tn_opcode[]){TN_OP_not, TN_OP_popcnt, TN_OP_count_leading_zeros, TN_OP_sign}[below(k, 4)], x->v), true, 0, 0);
    if (any_bool(x))
        return keep(k, tn_unary(&k->b, TN_OP_not, x->v), true, 0, 0);
    tn_opcode code = codes[below(k, (int64_t)TN_COUNT(codes))];
    return keep(k, tn_unary(&k->b, code, x->v), true, x->bound, 0);
}

static rvalue *make_arithmetic(maker *k)
{
    rvalue *x = choose(k, any_number), *y = x ? choose_partner(k, x) : NULL;
    if (!y || most_elements(k, x->v->type.dim, x->v->type.rank) < 0)
        return NULL;
    tn_type type;
    if (!tn_broadcast_types(&k->b, (tn_value *[]){x->v, y->v}, 2, &type) || !fits(k, type.dim, type.rank))
        return NULL;
    tn_dtype dtype = type.dtype;
    bool exact = x->exact && y->exact, integer = !tn_is_float(dtype);
    double a = x->bound, b = y->bound, e = x->error, d = y->error;
    switch (below(k, integer ? 10 : 7)) {
    case 0: return settle(k, keep_whole(k, tn_binary_b(&k->b, TN_OP_add, x->v, y->v), exact, a + b, e + d, 1));
    case 1: return settle(k, keep_whole(k, tn_binary_b(&k->b, TN_OP_subtract, x->v, y->v), exact, a + b, e + d, 1));
    case 2: return settle(k, keep_whole(k, tn_binary_b(&k->b, TN_OP_multiply, x->v, y->v), exact, a * b, e * b + d * a + e * d, 1));
    case 3: return keep(k, tn_binary_b(&k->b, TN_OP_maximum, x->v, y->v), exact, fmax(a, b), e + d);
    case 4: return keep(k, tn_binary_b(&k->b, TN_OP_minimum, x->v, y->v), exact, fmax(a, b), e + d);
    case 5:
        if (integer)
            return keep(k, tn_binary_b(&k->b, one_in(k, 2) ? TN_OP_divide : TN_OP_remainder, x->v, y->v), true, 0, 0);
        return keep(k, tn_binary_b(&k->b, TN_OP_divide, x->v, one_plus_abs(k, y->v)), false, a, e + a * d + 4 * rounding(dtype) * (a + 1));
    case 6:
        if (integer || !exact)
            return integer ? keep(k, tn_binary_b(&k->b, TN_OP_xor, x->v, y->v), true, 0, 0) : NULL;
        if (b + 1 > most_whole(dtype))
            return NULL;
        return keep(k, tn_binary_b(&k->b, TN_OP_remainder, x->v, one_plus_abs(k, y->v)), true, a, 0); /* by 0 it would be NaN */
    case 7: return keep(k, tn_binary_b(&k->b, one_in(k, 2) ? TN_OP_and : TN_OP_or, x->v, y->v), true, 0, 0);
    case 8: return keep(k, tn_binary_b(&k->b, (const tn_opcode[]){TN_OP_shift_left, TN_OP_shift_right_arithmetic, TN_OP_shift_right_logical}[below(k, 3)], x->v, y->v), true, 0, 0);
    default: return keep(k, tn_binary_b(&k->b, TN_OP_power, x->v, y->v), true, 0, 0);
    }
}

static rvalue *make_logic(maker *k)
{
    rvalue *x = choose(k, any_bool), *y = x ? choose_partner(k, x) : NULL;
    tn_type type;
    if (!y || !tn_broadcast_types(&k->b, (tn_value *[]){x->v, y->v}, 2, &type) || !fits(k, type.dim, type.rank))
        return NULL;
    return keep(k, tn_binary_b(&k->b, (const tn_opcode[]){TN_OP_and, TN_OP_or, TN_OP_xor}[below(k, 3)], x->v, y->v), true, 0, 0);
}

static tn_value *like(maker *k, tn_value *y, tn_value *x) { return tn_broadcast_to(&k->b, y, x->type.dim, x->type.rank); }

static rvalue *make_compare(maker *k)
{
    static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    rvalue *x = choose(k, exact_value), *y = x ? choose_partner(k, x) : NULL;
    if (!y || !y->exact || y->v->type.rank > x->v->type.rank)
        return NULL;
    for (int i = 1; i <= y->v->type.rank; i++)
        if (tn_dim_is(x->v->type.dim[x->v->type.rank - i], 1) && !tn_dim_is(y->v->type.dim[y->v->type.rank - i], 1))
            return NULL;
    return keep(k, tn_compare(&k->b, directions[below(k, 6)], x->v, like(k, y->v, x->v)), true, 0, 0);
}

static rvalue *make_select(maker *k)
{
    rvalue *x = choose(k, any_value), *y = x ? choose_partner(k, x) : NULL;
    if (!y || y->v->type.rank > x->v->type.rank)
        return NULL;
    for (int i = 1; i <= y->v->type.rank; i++)
        if (tn_dim_is(x->v->type.dim[x->v->type.rank - i], 1) && !tn_dim_is(y->v->type.dim[y->v->type.rank - i], 1))
            return NULL;
    for (int tries = 0; tries < 20; tries++) {
        rvalue *p = &k->value[below(k, k->nvalues)];
        if (p->v->type.dtype != TN_BOOL || p->v->type.rank != x->v->type.rank)
            continue;
        bool same = true;
        for (int i = 0; i < p->v->type.rank; i++)
            same &= p->v->type.dim[i] == x->v->type.dim[i];
        if (same)
            return keep(k, tn_select(&k->b, p->v, x->v, like(k, y->v, x->v)), x->exact && y->exact, fmax(x->bound, y->bound), fmax(x->error, y->error));
    }
    return NULL;
}

static rvalue *make_clamp(maker *k)
{
    rvalue *x = choose(k, any_number);
    if (!x)
        return NULL;
    tn_value *low = tn_scalar_constant(&k->b, x->v->type.dtype, tn_dtype_class(x->v->type.dtype) == TN_CLASS_UINT ? 0 : -3), *high = tn_scalar_constant(&k->b, x->v->type.dtype, 5);
    tn_op *op = tn_build(&k->b, TN_OP_clamp, (tn_value *[]){low, x->v, high}, 3, NULL, 0, NULL, 0);
    return keep(k, op ? op->result : NULL, x->exact, 5, x->error);
}

static rvalue *make_convert(maker *k)
{
    rvalue *x = choose(k, any_value);
    tn_dtype to = some_dtype(k);
    if (!x || x->v->type.dtype == to)
        return NULL;
    if (!tn_is_float(to))
        return x->exact ? keep(k, tn_convert(&k->b, x->v, to), true, 0, 0) : NULL;
    if (tn_is_float(x->v->type.dtype))
        return settle(k, keep_whole(k, tn_convert(&k->b, x->v, to), x->exact, x->bound, x->error, 1));
    /* any integer may be large: only small ones make whole floats */
    tn_value *small = tn_convert(&k->b, x->v, TN_I32);
    if (x->v->type.dtype != TN_BOOL)
        small = tn_binary_b(&k->b, TN_OP_remainder, small, tn_int_constant(&k->b, TN_I32, 9));
    return keep(k, tn_convert(&k->b, small, to), true, 8, 0);
}

static rvalue *make_bitcast(maker *k)
{
    rvalue *x = choose(k, exact_value);
    if (!x)
        return NULL;
    tn_dtype from = x->v->type.dtype, to = from == TN_F64 ? TN_I64 : from == TN_F32 ? TN_I32 : from == TN_I32 ? TN_U32 : from == TN_F16 || from == TN_BF16 ? TN_I16 : from == TN_I64 ? TN_U64 : from == TN_I8 ? TN_U8 : TN_NO_DTYPE;
    if (to == TN_NO_DTYPE || (tn_is_float(from) && k->special))
        return NULL;
    tn_value *v = x->v;
    if (tn_is_float(from)) /* which zero it is may differ */
        v = tn_select(&k->b, tn_compare(&k->b, "EQ", v, tn_full_like(&k->b, v, 0)), tn_full_like(&k->b, v, 0), v);
    tn_op *op = v ? tn_build(&k->b, TN_OP_bitcast_convert, &v, 1, &(tn_attr){.name = TN_A_dtype, .i = to}, 1, NULL, 0) : NULL;
    return keep(k, op ? op->result : NULL, true, 0, 0);
}

/* ---- movement -------------------------------------------------------------------------------------------------------------------- */

static rvalue *make_reshape(maker *k)
{
    rvalue *x = choose(k, any_value);
    if (!x)
        return NULL;
    tn_dim dims[TN_MAX_RANK];
    int rank = 0, from = x->v->type.rank;
    int64_t at = from ? below(k, from) : 0, kind = below(k, 4);
    for (int i = 0; i < from; i++) {
        tn_dim d = x->v->type.dim[i];
        if (kind == 0 && i == at && i + 1 < from) {
            dims[rank++] = tn_dim_mul(k->session, d, x->v->type.dim[i + 1]);
            i++;
        } else if (kind == 1 && i == at && tn_dim_is_const(d) && d->value > 3) {
            int64_t f = d->value % 2 == 0 ? 2 : d->value % 3 == 0 ? 3 : d->value % 5 == 0 ? 5 : 1;
            dims[rank++] = number(k, one_in(k, 2) ? f : d->value / f);
            dims[rank] = number(k, d->value / dims[rank - 1]->value);
            rank++;
        } else if (kind == 2 && tn_dim_is(d, 1) && one_in(k, 2)) {
            continue;
        } else {
            dims[rank++] = d;
        }
        if (kind == 3 && i == at)
            dims[rank++] = number(k, 1);
    }
    if (one_in(k, 10)) {
        dims[0] = tn_dim_product(k->session, x->v->type.dim, from);
        rank = 1;
    }
    return rank <= 6 ? same_kind(k, tn_reshape(&k->b, x->v, dims, rank), x) : NULL;
}

static rvalue *make_transpose(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x || x->v->type.rank < 2)
        return NULL;
    int64_t p[TN_MAX_RANK];
    for (int i = 0; i < x->v->type.rank; i++) {
        int64_t j = below(k, i + 1);
        p[i] = p[j];
        p[j] = i;
    }
    return same_kind(k, tn_transpose(&k->b, x->v, p), x);
}

static rvalue *make_broadcast(maker *k)
{
    rvalue *x = choose(k, any_value);
    if (!x || x->v->type.rank > 4)
        return NULL;
    tn_dim dims[TN_MAX_RANK];
    int64_t map[TN_MAX_RANK];
    int n = 0, rank = x->v->type.rank;
    for (int i = 0; i <= rank; i++) {
        if (one_in(k, 3))
            dims[n++] = some_extent(k);
        if (i < rank) {
            map[i] = n;
            dims[n++] = tn_dim_is(x->v->type.dim[i], 1) && one_in(k, 2) ? some_extent(k) : x->v->type.dim[i];
        }
    }
    return fits(k, dims, n) ? same_kind(k, tn_broadcast_in_dim(&k->b, x->v, dims, n, map), x) : NULL;
}

static rvalue *make_slice(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x)
        return NULL;
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK];
    for (int i = 0; i < x->v->type.rank; i++) {
        tn_dim d = x->v->type.dim[i];
        start[i] = number(k, 0);
        limit[i] = d;
        strides[i] = one_in(k, 4) ? below(k, 3) + 1 : 1;
        if (one_in(k, 2))
            continue;
        if (tn_dim_is_const(d)) {
            int64_t a = below(k, d->value + 1), b = below(k, d->value + 1);
            start[i] = number(k, a < b ? a : b);
            limit[i] = number(k, a < b ? b : a);
        } else { /* from min(1, n), or up to max(n - 1, 0) */
            if (one_in(k, 2))
                start[i] = tn_dim_min(k->session, number(k, 1), d);
            else
                limit[i] = tn_dim_max(k->session, tn_dim_sub(k->session, d, number(k, 1)), number(k, 0));
        }
    }
    return same_kind(k, tn_slice(&k->b, x->v, start, limit, strides), x);
}

static rvalue *make_pad(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x)
        return NULL;
    tn_dim low[TN_MAX_RANK], high[TN_MAX_RANK], dims[TN_MAX_RANK];
    int64_t interior[TN_MAX_RANK];
    for (int i = 0; i < x->v->type.rank; i++) {
        tn_dim d = x->v->type.dim[i];
        int64_t l = one_in(k, 2) ? 0 : below(k, 4), h = one_in(k, 2) ? 0 : below(k, 4);
        if (tn_dim_is_const(d) && d->value > 4 && one_in(k, 4))
            l = -below(k, 3), h = -below(k, 2);
        low[i] = number(k, l);
        high[i] = number(k, h);
        interior[i] = one_in(k, 12) ? below(k, 3) : 0;
        dims[i] = tn_dim_add(k->session, tn_dim_mul(k->session, d, number(k, interior[i] + 1)), number(k, l + h));
    }
    if (!fits(k, dims, x->v->type.rank))
        return NULL;
    tn_value *value = tn_scalar_constant(&k->b, x->v->type.dtype, (double)below(k, 2));
    tn_value *v = tn_pad(&k->b, x->v, value, low, high, interior);
    return keep(k, v, x->exact, fmax(x->bound, 1), x->error);
}

static rvalue *make_concatenate(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x)
        return NULL;
    int axis = (int)below(k, x->v->type.rank), n = 1;
    tn_value *list[4] = {x->v};
    bool exact = x->exact;
    double bound = x->bound, error = x->error;
    tn_dim dims[TN_MAX_RANK];
    memcpy(dims, x->v->type.dim, sizeof dims);
    for (int tries = 0; tries < 30 && n < 4; tries++) {
        rvalue *y = &k->value[below(k, k->nvalues)];
        bool good = y->v->type.dtype == x->v->type.dtype && y->v->type.rank == x->v->type.rank;
        for (int i = 0; good && i < y->v->type.rank; i++)
            good = i == axis || y->v->type.dim[i] == x->v->type.dim[i];
        if (!good)
            continue;
        list[n++] = y->v;
        exact &= y->exact;
        bound = fmax(bound, y->bound);
        error = fmax(error, y->error);
        dims[axis] = tn_dim_add(k->session, dims[axis], y->v->type.dim[axis]);
        if (one_in(k, 2))
            break;
    }
    return fits(k, dims, x->v->type.rank) ? keep(k, tn_concatenate(&k->b, list, n, axis), exact, bound, error) : NULL;
}

static int some_axes(maker *k, int rank, int64_t *axes)
{
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (one_in(k, 2))
            axes[n++] = i;
    if (n == 0)
        axes[n++] = below(k, rank);
    return n;
}

static rvalue *make_reverse(maker *k)
{
    int64_t axes[TN_MAX_RANK];
    rvalue *x = choose(k, with_dims);
    return x ? same_kind(k, tn_reverse(&k->b, x->v, axes, some_axes(k, x->v->type.rank, axes)), x) : NULL;
}

static rvalue *make_iota(maker *k)
{
    tn_dim dims[TN_MAX_RANK];
    int rank = (int)below(k, 3) + 1;
    tn_dtype dtype = some_dtype(k);
    if (dtype == TN_BOOL || !some_shape(k, rank, dims))
        return NULL;
    int axis = (int)below(k, rank);
    return settle(k, keep_whole(k, tn_iota(&k->b, dtype, dims, rank, axis), true, (double)most(k, dims[axis]), 0, 1));
}

/* x[:, indices, :] along one axis */
static rvalue *make_gather(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x)
        return NULL;
    int axis = (int)below(k, x->v->type.rank), rank = x->v->type.rank, n = (int)below(k, 3), offset = 0;
    int64_t largest = most(k, x->v->type.dim[axis]), offsets[TN_MAX_RANK], a = axis;
    tn_dim dims[TN_MAX_RANK], sizes[TN_MAX_RANK], shape[TN_MAX_RANK];
    for (int r = 0; r < k->nruns; r++) {
        int64_t d;
        if (!dim_in_run(k, r, x->v->type.dim[axis], &d) || d < 1)
            return NULL;
    }
    if (!some_shape(k, n, dims))
        return NULL;
    for (int i = 0, o = 0; i < rank + n - 1; i++) {
        bool index = i >= axis && i < axis + n;
        shape[i] = index ? dims[i - axis] : x->v->type.dim[o + (o >= axis)];
        if (!index)
            offsets[offset++] = i, o++;
    }
    if (!fits(k, shape, rank + n - 1))
        return NULL;
    rvalue *indices = NULL;
    for (int tries = 0; tries < 10 && !indices; tries++) { /* computed ones, if there are some of this shape */
        rvalue *z = &k->value[below(k, k->nvalues)];
        bool good = (z->v->type.dtype == TN_I32 || z->v->type.dtype == TN_I64) && z->v->type.rank == n;
        for (int i = 0; good && i < n; i++)
            good = z->v->type.dim[i] == dims[i];
        indices = good ? z : NULL;
    }
    if (!indices)
        indices = new_input(k, one_in(k, 2) ? TN_I32 : TN_I64, n, dims, largest);
    if (!indices)
        return NULL;
    for (int i = 0; i < rank; i++)
        sizes[i] = i == axis ? number(k, 1) : x->v->type.dim[i];
    tn_attr attrs[] = {{.name = TN_A_offset_dims, .n = offset, .ints = offsets},
                       {.name = TN_A_collapsed_slice_dims, .n = 1, .ints = &a},
                       {.name = TN_A_operand_batching_dims},
                       {.name = TN_A_indices_batching_dims},
                       {.name = TN_A_start_index_map, .n = 1, .ints = &a},
                       {.name = TN_A_index_vector_dim, .i = n},
                       {.name = TN_A_sizes, .n = rank, .dims = sizes}};
    tn_op *op = tn_build(&k->b, TN_OP_gather, (tn_value *[]){x->v, indices->v}, 2, attrs, (int)TN_COUNT(attrs), NULL, 0);
    return same_kind(k, op ? op->result : NULL, x);
}

/* Slices of some size at positions that an index vector gives, for each of a list of vectors. */
static rvalue *make_slices(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x || x->v->type.rank > 3)
        return NULL;
    int rank = x->v->type.rank, nindexed = (int)below(k, rank) + 1, noffset = 0, ncollapsed = 0;
    int64_t map[TN_MAX_RANK], offsets[TN_MAX_RANK], collapsed[TN_MAX_RANK];
    tn_dim sizes[TN_MAX_RANK], shape[TN_MAX_RANK], indices_shape[2] = {some_extent(k), number(k, nindexed)};
    for (int i = 0; i < rank; i++) {
        int64_t j = below(k, i + 1);
        map[i] = map[j];
        map[j] = i;
    }
    bool first = one_in(k, 2); /* the list's dim: before the slices' dims, or after */
    for (int i = 0; i < rank; i++) {
        tn_dim d = x->v->type.dim[i];
        int64_t least = most(k, d);
        for (int r = 0; r < k->nruns; r++) {
            int64_t n = 0;
            dim_in_run(k, r, d, &n);
            least = tn_min(least, n);
        }
        bool drop = one_in(k, 2) && least > 0;
        sizes[i] = drop ? number(k, 1) : tn_dim_is_const(d) && one_in(k, 2) ? number(k, below(k, d->value + 1)) : d;
        if (drop) {
            collapsed[ncollapsed++] = i;
        } else {
            shape[noffset + first] = sizes[i];
            offsets[noffset] = noffset + first;
            noffset++;
        }
    }
    shape[first ? 0 : noffset] = indices_shape[0];
    if (!fits(k, shape, noffset + 1) || k->nvalues + 2 > R_VALUES)
        return NULL;
    rvalue *indices = new_input(k, one_in(k, 2) ? TN_I32 : TN_I64, 2, indices_shape, 4);
    if (!indices)
        return NULL;
    tn_attr attrs[] = {{.name = TN_A_offset_dims, .n = noffset, .ints = offsets},
                       {.name = TN_A_collapsed_slice_dims, .n = ncollapsed, .ints = collapsed},
                       {.name = TN_A_operand_batching_dims},
                       {.name = TN_A_indices_batching_dims},
                       {.name = TN_A_start_index_map, .n = nindexed, .ints = map},
                       {.name = TN_A_index_vector_dim, .i = 1},
                       {.name = TN_A_sizes, .n = rank, .dims = sizes}};
    tn_op *op = tn_build(&k->b, TN_OP_gather, (tn_value *[]){x->v, indices->v}, 2, attrs, (int)TN_COUNT(attrs), NULL, 0);
    return same_kind(k, op ? op->result : NULL, x);
}

static rvalue *make_dynamic(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x || x->v->type.rank > 5)
        return NULL;
    tn_value *operands[TN_MAX_RANK + 2] = {x->v};
    tn_dim sizes[TN_MAX_RANK];
    int rank = x->v->type.rank, n = 1;
    bool update = one_in(k, 2);
    tn_dtype dtype = one_in(k, 2) ? TN_I32 : TN_I64;
    for (int i = 0; i < rank; i++) {
        tn_dim d = x->v->type.dim[i];
        sizes[i] = tn_dim_is_const(d) && one_in(k, 2) ? number(k, below(k, d->value + 1)) : d;
    }
    double bound = x->bound, error = x->error;
    bool exact = x->exact;
    if (update) {
        rvalue *u = input_or_constant(k, x->v->type.dtype, rank, sizes);
        if (!u)
            return NULL;
        operands[n++] = u->v;
        bound = fmax(bound, u->bound);
        exact &= u->exact;
    }
    for (int i = 0; i < rank; i++) {
        rvalue *start = one_in(k, 3) ? new_input(k, dtype, 0, NULL, 5) : keep(k, tn_int_constant(&k->b, dtype, below(k, 6) - 1), true, 0, 0);
        if (!start)
            return NULL;
        operands[n++] = start->v;
    }
    tn_attr attr = {.name = TN_A_sizes, .n = rank, .dims = sizes};
    tn_op *op = tn_build(&k->b, update ? TN_OP_dynamic_update_slice : TN_OP_dynamic_slice, operands, n, &attr, update ? 0 : 1, NULL, 0);
    return keep(k, op ? op->result : NULL, exact, bound, error);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------------------- */

static double reduced_count(const maker *k, const tn_type *type, const int64_t *axes, int n)
{
    double count = 1;
    for (int i = 0; i < n; i++)
        count *= fmax((double)most(k, type->dim[axes[i]]), 1);
    return count;
}

static rvalue *make_reduce(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x)
        return NULL;
    int64_t axes[TN_MAX_RANK];
    int n = some_axes(k, x->v->type.rank, axes);
    double count = reduced_count(k, &x->v->type, axes, n);
    if (any_bool(x))
        return keep(k, tn_reduce(&k->b, one_in(k, 2) ? TN_OP_and : TN_OP_or, x->v, axes, n), true, 0, 0);
    if (any_int(x))
        return keep(k, tn_reduce(&k->b, (const tn_opcode[]){TN_OP_add, TN_OP_multiply, TN_OP_maximum, TN_OP_minimum, TN_OP_xor}[below(k, 5)], x->v, axes, n), true, 0, 0);
    for (int r = 0; r < k->nruns; r++) /* an empty maximum is infinite */
        for (int i = 0; i < n; i++) {
            int64_t size = 0;
            k->special |= dim_in_run(k, r, x->v->type.dim[axes[i]], &size) && size == 0;
        }
    if (one_in(k, 2))
        return same_kind(k, tn_reduce(&k->b, one_in(k, 2) ? TN_OP_maximum : TN_OP_minimum, x->v, axes, n), x);
    return settle(k, keep_whole(k, tn_reduce(&k->b, TN_OP_add, x->v, axes, n), x->exact, x->bound * count, x->error * count, count));
}

/* A reduced value put back beside what it came from: rows of one kernel. */
static tn_value *spread(maker *k, tn_value *reduced, const tn_type *type, const int64_t *axes, int n)
{
    int64_t map[TN_MAX_RANK];
    int at = 0;
    for (int i = 0; i < type->rank; i++) {
        bool folded = false;
        for (int a = 0; a < n; a++)
            folded |= axes[a] == i;
        if (!folded)
            map[at++] = i;
    }
    return tn_broadcast_in_dim(&k->b, reduced, type->dim, type->rank, map);
}

static rvalue *make_softmax(maker *k)
{
    rvalue *x = choose(k, any_float);
    if (!x || x->v->type.rank == 0 || x->bound > 40 || x->error > 1e-2)
        return NULL;
    int64_t axes[TN_MAX_RANK];
    tn_type type = x->v->type;
    int n = one_in(k, 2) ? some_axes(k, type.rank, axes) : (axes[0] = type.rank - 1, 1);
    double count = reduced_count(k, &type, axes, n), e = x->error, r = rounding(type.dtype);
    tn_value *largest = tn_reduce(&k->b, TN_OP_maximum, x->v, axes, n);
    tn_value *shifted = largest ? tn_binary(&k->b, TN_OP_subtract, x->v, spread(k, largest, &type, axes, n)) : NULL;
    tn_value *power = shifted ? tn_unary(&k->b, TN_OP_exponential, shifted) : NULL;
    tn_value *sum = power ? tn_reduce(&k->b, TN_OP_add, power, axes, n) : NULL;
    if (!sum)
        return keep(k, NULL, false, 0, 0);
    if (one_in(k, 4)) /* the row's logarithm of sums, beside it */
        keep(k, tn_unary(&k->b, TN_OP_log, sum), false, log(count) + 1, 4 * e + (count + 8) * r + 4 * function_error(type.dtype) * (log(count) + 1));
    return keep(k, tn_binary(&k->b, TN_OP_divide, power, spread(k, sum, &type, axes, n)), false, 1, 4 * e + (count + 100) * r + 4 * function_error(type.dtype));
}

static rvalue *normalise(maker *k, rvalue *x, const int64_t *axes, int n)
{
    tn_type type = x->v->type;
    double count = reduced_count(k, &type, axes, n), r = rounding(type.dtype), B = x->bound, e = x->error + (count + 2) * r * B;
    double scale = 1 / count;
    tn_value *sum = tn_reduce(&k->b, TN_OP_add, x->v, axes, n);
    tn_value *mean = sum ? tn_binary_b(&k->b, TN_OP_multiply, sum, tn_scalar_constant(&k->b, type.dtype, scale)) : NULL;
    tn_value *centred = mean ? tn_binary(&k->b, TN_OP_subtract, x->v, spread(k, mean, &type, axes, n)) : NULL;
    tn_value *square = centred ? tn_binary(&k->b, TN_OP_multiply, centred, centred) : NULL;
    tn_value *total = square ? tn_reduce(&k->b, TN_OP_add, square, axes, n) : NULL;
    tn_value *variance = total ? tn_binary_b(&k->b, TN_OP_multiply, total, tn_scalar_constant(&k->b, type.dtype, scale)) : NULL;
    tn_value *inverse = variance ? tn_unary(&k->b, TN_OP_rsqrt, tn_binary_b(&k->b, TN_OP_add, variance, tn_scalar_constant(&k->b, type.dtype, 1))) : NULL;
    if (!inverse || count * B * B > largest_bound(type.dtype) * 50)
        return keep(k, NULL, false, 0, 0);
    tn_value *y = tn_binary(&k->b, TN_OP_multiply, centred, spread(k, inverse, &type, axes, n));
    double var_error = 4 * B * 2 * e + (count + 4) * r * 4 * B * B;
    return settle(k, keep(k, y, false, 2 * B, 2 * e + 2 * B * (var_error + function_error(type.dtype))));
}

static rvalue *make_layer_norm(maker *k)
{
    rvalue *x = choose(k, any_float);
    if (!x || x->v->type.rank == 0 || x->bound > 20)
        return NULL;
    int64_t axes[TN_MAX_RANK];
    int n = one_in(k, 2) ? some_axes(k, x->v->type.rank, axes) : (axes[0] = x->v->type.rank - 1, 1);
    return normalise(k, x, axes, n);
}

/* Groups of channels: what is normalised has other dims than what comes before and behind it, and a scale for each channel follows. */
static rvalue *make_group_norm(maker *k)
{
    rvalue *x = choose(k, any_float);
    if (!x || x->v->type.rank < 2 || x->bound > 20)
        return NULL;
    tn_type type = x->v->type;
    int channel = (int)below(k, type.rank - 1), rank = channel;
    tn_dim dims[TN_MAX_RANK], c = type.dim[channel], rest = tn_dim_product(k->session, &type.dim[channel + 1], type.rank - channel - 1);
    int64_t groups = !tn_dim_is_const(c) ? 1 : c->value % 2 == 0 ? 2 : c->value % 3 == 0 ? 3 : 1, axis;
    memcpy(dims, type.dim, sizeof(tn_dim) * (size_t)channel);
    if (one_in(k, 4)) /* each channel by itself, with those before it */
        dims[0] = tn_dim_product(k->session, type.dim, channel + 1), rank = 1;
    else
        dims[rank++] = number(k, groups), rest = tn_dim_mul(k->session, tn_dim_floordiv(k->session, c, number(k, groups)), rest);
    dims[rank++] = rest;
    rvalue *grouped = same_kind(k, tn_reshape(&k->b, x->v, dims, rank), x), *y = grouped ? normalise(k, grouped, (axis = rank - 1, &axis), 1) : NULL;
    y = y ? same_kind(k, tn_reshape(&k->b, y->v, type.dim, type.rank), y) : NULL;
    rvalue *scale = y ? new_constant(k, type.dtype, 1, &c) : NULL;
    if (!scale)
        return y;
    tn_value *wide = tn_broadcast_in_dim(&k->b, scale->v, type.dim, type.rank, (int64_t[]){channel});
    double error = y->error * scale->bound + y->bound * scale->error + rounding(type.dtype) * y->bound * scale->bound;
    return settle(k, keep(k, tn_binary(&k->b, TN_OP_multiply, y->v, wide), false, y->bound * scale->bound, error));
}

/* The largest element and where it is. */
static rvalue *make_arg_max(maker *k)
{
    rvalue *x = choose(k, exact_value);
    if (!x || x->v->type.rank == 0 || !any_number(x) || k->special)
        return NULL;
    tn_type type = x->v->type, element = tn_type_scalar(type.dtype), index = tn_type_scalar(TN_I32);
    int64_t axis = below(k, type.rank);
    tn_block *block = tn_block_new(k->graph, NULL);
    tn_value *a = tn_block_arg(block, &element, NULL), *i = tn_block_arg(block, &index, NULL), *b = tn_block_arg(block, &element, NULL), *j = tn_block_arg(block, &index, NULL);
    tn_builder in = tn_builder_at_end(block, TN_NO_LOC);
    tn_value *greater = tn_compare(&in, "GT", a, b), *equal = tn_compare(&in, "EQ", a, b), *first = tn_compare(&in, "LT", i, j);
    tn_value *take = tn_binary(&in, TN_OP_or, greater, tn_binary(&in, TN_OP_and, equal, first));
    tn_value *results[] = {tn_select(&in, take, a, b), tn_select(&in, take, i, j)};
    tn_return(&in, results, 2);
    tn_value *where = tn_iota(&k->b, TN_I32, type.dim, type.rank, (int)axis);
    tn_number lowest = tn_number_lowest(type.dtype);
    tn_value *low = tn_constant(&k->b, tn_tensor_splat(k->session, type.dtype, 0, NULL, lowest)), *none = tn_int_constant(&k->b, TN_I32, INT32_MAX);
    if (!where)
        return keep(k, NULL, true, 0, 0);
    tn_op *op = tn_build(&k->b, TN_OP_reduce, (tn_value *[]){x->v, where, low, none}, 4, &(tn_attr){.name = TN_A_dimensions, .n = 1, .ints = &axis}, 1, &block, 1);
    if (!op)
        return keep(k, NULL, true, 0, 0);
    keep(k, &op->result[1], true, 0, 0);
    return keep(k, &op->result[0], true, x->bound, 0);
}

static rvalue *make_window(maker *k)
{
    rvalue *x = choose(k, with_dims);
    if (!x || any_bool(x) || x->v->type.rank > 4)
        return NULL;
    int rank = x->v->type.rank;
    tn_dim window[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], base[TN_MAX_RANK], dilation[TN_MAX_RANK];
    double count = 1;
    for (int i = 0; i < rank; i++) {
        int64_t w = one_in(k, 2) ? 1 : below(k, 3) + 1;
        dilation[i] = one_in(k, 5) ? 2 : 1;
        strides[i] = one_in(k, 3) ? 2 : 1;
        base[i] = one_in(k, 30) ? 2 : 1;
        low[i] = number(k, w > 1 ? below(k, w) : 0);
        high[i] = number(k, w > 1 ? below(k, w) : 0);
        window[i] = number(k, w);
        count *= (double)w;
    }
    if (one_in(k, 6)) { /* running sums along one axis */
        int axis = (int)below(k, rank);
        tn_dim d = x->v->type.dim[axis];
        for (int i = 0; i < rank; i++)
            window[i] = number(k, 1), low[i] = high[i] = number(k, 0), strides[i] = dilation[i] = base[i] = 1;
        if (!tn_dim_is_const(d) || d->value < 1)
            return NULL;
        window[axis] = d;
        low[axis] = number(k, d->value - 1);
        count = (double)d->value;
    }
    bool sum = one_in(k, 2);
    tn_opcode combine = sum ? TN_OP_add : TN_OP_maximum;
    tn_dtype dtype = x->v->type.dtype;
    tn_block *block = tn_combine_block(k->graph, combine, dtype);
    tn_number init = sum ? tn_number_from_int(TN_I64, 0) : tn_number_lowest(dtype);
    if (sum && tn_is_float(dtype))
        init = (tn_number){.f = 0};
    tn_value *operands[] = {x->v, tn_constant(&k->b, tn_tensor_splat(k->session, dtype, 0, NULL, init))};
    tn_attr attrs[] = {{.name = TN_A_window, .n = rank, .dims = window},          {.name = TN_A_window_strides, .n = rank, .ints = strides},
                       {.name = TN_A_base_dilation, .n = rank, .ints = base},     {.name = TN_A_window_dilation, .n = rank, .ints = dilation},
                       {.name = TN_A_padding_low, .n = rank, .dims = low},        {.name = TN_A_padding_high, .n = rank, .dims = high}};
    tn_op *op = tn_build(&k->b, TN_OP_reduce_window, operands, 2, attrs, 6, &block, 1);
    if (!op || !fits(k, op->result->type.dim, rank))
        return keep(k, NULL, true, 0, 0);
    return sum ? settle(k, keep_whole(k, op->result, x->exact, x->bound * count, x->error * count, count)) : same_kind(k, op->result, x);
}

/* ---- products -------------------------------------------------------------------------------------------------------------------- */

static bool product_type(const rvalue *x) { return any_float(x) && x->v->type.rank >= 1; }

static rvalue *product_result(maker *k, tn_value *v, const rvalue *x, const rvalue *y, double count)
{
    double bound = x->bound * y->bound * count, error = count * (x->error * y->bound + y->error * x->bound + x->error * y->error);
    return settle(k, keep_whole(k, v, x->exact && y->exact, bound, error, count + 1));
}

/* A weight of few bits, less a zero point, times scales of some of its dims, by blocks along one of them. */
static rvalue *dequantised(maker *k, tn_dtype dtype, int rank, const tn_dim *dims)
{
    static const tn_dtype stored[] = {TN_I8, TN_U8, TN_I4, TN_U4, TN_I8, TN_F16};
    enum { BITS = 256 };
    tn_dim few[TN_MAX_RANK], wide[TN_MAX_RANK];
    int64_t map[TN_MAX_RANK], block = below(k, rank + 1);
    int n = 0, at = 0;
    for (int i = 0; i < rank; i++, at++) {
        int64_t by = !tn_dim_is_const(dims[i]) ? 1 : dims[i]->value % 8 == 0 ? 8 : dims[i]->value % 3 == 0 ? 3 : 1;
        if (!tn_dim_is_const(dims[i]))
            return NULL;
        wide[at] = dims[i];
        if (i == block && by > 1)
            wide[at] = number(k, dims[i]->value / by), map[n] = at, few[n++] = wide[at], wide[++at] = number(k, by);
        else if (one_in(k, 2))
            map[n] = at, few[n++] = dims[i];
    }
    rvalue *w = at <= 6 ? new_constant(k, stored[below(k, (int64_t)TN_COUNT(stored))], rank, dims) : NULL, *scale = w ? new_constant(k, dtype, n, few) : NULL;
    if (!scale)
        return NULL;
    tn_value *y = tn_convert(&k->b, w->v, dtype), *s = tn_broadcast_in_dim(&k->b, scale->v, wide, at, map);
    if (one_in(k, 2))
        y = tn_binary_b(&k->b, TN_OP_subtract, y, tn_scalar_constant(&k->b, dtype, 3));
    y = tn_binary(&k->b, TN_OP_multiply, y, at > rank ? tn_reshape(&k->b, s, dims, rank) : s);
    return keep(k, y, false, 2 * BITS * scale->bound, rounding(dtype) * 4 * BITS * scale->bound);
}

static rvalue *make_dot(maker *k)
{
    rvalue *x = choose(k, product_type);
    if (!x)
        return NULL;
    tn_type type = x->v->type;
    int rank = type.rank, nbatch = rank > 2 ? (int)below(k, rank - 1) : 0, ncontract = one_in(k, 6) && rank - nbatch > 1 ? 2 : 1, n = 0;
    int64_t order[TN_MAX_RANK], lhs_batch[TN_MAX_RANK], rhs_batch[TN_MAX_RANK], lhs_contract[TN_MAX_RANK], rhs_contract[TN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int64_t j = below(k, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    if (one_in(k, 2))
        for (int i = 0; i < rank; i++)
            order[i] = i < nbatch ? i : rank - 1 - (i - nbatch);
    tn_dim dims[TN_MAX_RANK], list[TN_MAX_RANK];
    double count = 1;
    for (int i = 0; i < nbatch; i++, n++)
        list[n] = type.dim[lhs_batch[i] = order[i]];
    for (int i = 0; i < ncontract; i++, n++) {
        list[n] = type.dim[lhs_contract[i] = order[nbatch + i]];
        count *= fmax((double)most(k, list[n]), 1);
    }
    int free = one_in(k, 8) ? 0 : one_in(k, 8) ? 2 : 1;
    for (int i = 0; i < free; i++)
        list[n++] = some_extent(k);
    /* the right operand's dims in some order */
    int64_t place[TN_MAX_RANK];
    bool natural = one_in(k, 2);
    for (int i = 0; i < n; i++) {
        int64_t j = natural ? i : below(k, i + 1);
        place[i] = place[j];
        place[j] = i;
    }
    for (int i = 0; i < n; i++)
        dims[place[i]] = list[i];
    for (int i = 0; i < nbatch; i++)
        rhs_batch[i] = place[i];
    for (int i = 0; i < ncontract; i++)
        rhs_contract[i] = place[nbatch + i];
    rvalue *y = NULL;
    for (int tries = 0; tries < 10 && !y; tries++) {
        rvalue *z = &k->value[below(k, k->nvalues)];
        bool good = z->v->type.dtype == type.dtype && z->v->type.rank == n;
        for (int i = 0; good && i < n; i++)
            good = z->v->type.dim[i] == dims[i];
        y = good ? z : NULL;
    }
    if (!y)
        y = type.dtype == TN_F32 && one_in(k, 4) ? dequantised(k, type.dtype, n, dims) : input_or_constant(k, type.dtype, n, dims);
    if (!y)
        return NULL;
    tn_dim out[TN_MAX_RANK] = {NULL};
    int nout = 0;
    for (int i = 0; i < rank; i++) {
        bool contracted = false;
        for (int c = 0; c < ncontract; c++)
            contracted |= lhs_contract[c] == i;
        if (!contracted)
            out[nout++] = type.dim[i];
    }
    for (int i = 0; i < free; i++)
        out[nout++] = list[nbatch + ncontract + i];
    double work = count * (double)most_elements(k, out, nout);
    if (nout > 6 || !fits(k, out, nout) || work > 400000)
        return NULL;
    return product_result(k, tn_dot_general(&k->b, x->v, y->v, lhs_batch, rhs_batch, nbatch, lhs_contract, rhs_contract, ncontract), x, y, count);
}

static rvalue *make_convolution(maker *k)
{
    static const char *const lhs_layouts[3][3] = {{"b0f", "bf0", "b0f"}, {"b01f", "bf01", "b01f"}, {"b012f", "bf012", "b012f"}};
    static const char *const rhs_layouts[3][3] = {{"0io", "oi0", "o0i"}, {"01io", "oi01", "o01i"}, {"012io", "oi012", "o012i"}};
    int n = one_in(k, 6) ? 3 : one_in(k, 3) ? 1 : 2, which = (int)below(k, 3), from = (int)below(k, 3);
    tn_dtype dtype = one_in(k, 4) ? TN_F16 : one_in(k, 8) ? TN_BF16 : TN_F32;
    int64_t groups = one_in(k, 3) ? below(k, 3) + 2 : 1, per = one_in(k, 2) ? 1 : below(k, 5) + 1, each = one_in(k, 2) ? 1 : below(k, 9) + 1;
    if (groups == 1)
        per = below(k, 9) + 1, each = below(k, 20) + 1;
    if (one_in(k, 4))
        groups = below(k, 40) + 1, per = 1, each = 1;
    const char *ll = lhs_layouts[n - 1][from], *rl = rhs_layouts[n - 1][which];
    tn_dim lhs[TN_MAX_RANK], rhs[TN_MAX_RANK], low[TN_MAX_RANK], high[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], base[TN_MAX_RANK], dilation[TN_MAX_RANK], reversal[TN_MAX_RANK];
    lhs[strchr(ll, 'b') - ll] = one_in(k, 2) ? some_extent(k) : number(k, below(k, 3) + 1);
    lhs[strchr(ll, 'f') - ll] = number(k, groups * per);
    rhs[strchr(rl, 'o') - rl] = number(k, groups * each);
    rhs[strchr(rl, 'i') - rl] = number(k, per);
    double count = (double)per;
    for (int i = 0; i < n; i++) {
        int64_t w = below(k, 4) + 1;
        lhs[strchr(ll, '0' + i) - ll] = one_in(k, 2) ? some_extent(k) : number(k, below(k, 12) + 1);
        rhs[strchr(rl, '0' + i) - rl] = number(k, w);
        strides[i] = one_in(k, 3) ? 2 : 1;
        base[i] = one_in(k, 12) ? 2 : 1;
        dilation[i] = one_in(k, 6) ? 2 : 1;
        reversal[i] = one_in(k, 12);
        low[i] = number(k, one_in(k, 2) ? 0 : below(k, w + 1));
        high[i] = number(k, one_in(k, 2) ? 0 : below(k, w + 1));
        count *= (double)w;
    }
    if (!fits(k, lhs, n + 2) || !fits(k, rhs, n + 2) || k->nvalues + 2 > R_VALUES)
        return NULL;
    rvalue *x = NULL;
    for (int tries = 0; tries < 10 && !x; tries++) {
        rvalue *z = &k->value[below(k, k->nvalues)];
        bool good = z->v->type.dtype == dtype && z->v->type.rank == n + 2;
        for (int i = 0; good && i < n + 2; i++)
            good = z->v->type.dim[i] == lhs[i];
        x = good ? z : NULL;
    }
    if (!x)
        x = new_input(k, dtype, n + 2, lhs, 0);
    bool special = k->special;
    k->special = false; /* a window's part outside the image may count as zeros or not at all: the same unless weights are infinite */
    rvalue *w = x ? input_or_constant(k, dtype, n + 2, rhs) : NULL;
    k->special = special;
    if (!w)
        return NULL;
    tn_attr attrs[] = {{.name = TN_A_lhs_layout, .s = ll}, {.name = TN_A_rhs_layout, .s = rl}, {.name = TN_A_out_layout, .s = ll},
                       {.name = TN_A_window_strides, .n = n, .ints = strides}, {.name = TN_A_padding_low, .n = n, .dims = low}, {.name = TN_A_padding_high, .n = n, .dims = high},
                       {.name = TN_A_base_dilation, .n = n, .ints = base}, {.name = TN_A_window_dilation, .n = n, .ints = dilation},
                       {.name = TN_A_window_reversal, .n = n, .ints = reversal}, {.name = TN_A_feature_group_count, .i = groups}, {.name = TN_A_batch_group_count, .i = 1}};
    tn_op *op = tn_build(&k->b, TN_OP_convolution, (tn_value *[]){x->v, w->v}, 2, attrs, (int)TN_COUNT(attrs), NULL, 0);
    if (!op || !fits(k, op->result->type.dim, n + 2) || count * (double)most_elements(k, op->result->type.dim, n + 2) > 400000)
        return keep(k, NULL, true, 0, 0);
    return product_result(k, op->result, x, w, count);
}

/* ---- what has a form of its own ---------------------------------------------------------------------------------------------------- */

static rvalue *make_sort(maker *k)
{
    rvalue *x = choose(k, exact_value);
    if (!x || x->v->type.rank == 0 || !any_number(x) || k->special || most_elements(k, x->v->type.dim, x->v->type.rank) > 600)
        return NULL;
    tn_type type = x->v->type, element = tn_type_scalar(type.dtype), index = tn_type_scalar(TN_I32);
    int64_t axis = below(k, type.rank);
    tn_block *block = tn_block_new(k->graph, NULL);
    tn_value *a = tn_block_arg(block, &element, NULL), *b = tn_block_arg(block, &element, NULL);
    tn_block_arg(block, &index, NULL), tn_block_arg(block, &index, NULL);
    tn_builder in = tn_builder_at_end(block, TN_NO_LOC);
    tn_value *before = tn_compare(&in, one_in(k, 2) ? "GT" : "LT", a, b), *where = tn_iota(&k->b, TN_I32, type.dim, type.rank, (int)axis);
    tn_return(&in, &before, 1);
    tn_attr attrs[] = {{.name = TN_A_dimension, .i = axis}, {.name = TN_A_stable, .i = 1}};
    tn_op *op = where ? tn_build(&k->b, TN_OP_sort, (tn_value *[]){x->v, where}, 2, attrs, 2, &block, 1) : NULL;
    if (!op)
        return keep(k, NULL, true, 0, 0);
    keep(k, &op->result[1], true, 0, 0);
    return keep(k, &op->result[0], true, x->bound, 0);
}

/* x.at[indices, …].add(updates) along the first dimension */
static rvalue *make_scatter(maker *k)
{
    rvalue *x = choose(k, exact_value);
    if (!x || x->v->type.rank == 0 || any_bool(x) || most_elements(k, x->v->type.dim, x->v->type.rank) > 1000)
        return NULL;
    int rank = x->v->type.rank, nwindow = 0;
    tn_dim n = number(k, below(k, 7)), dims[TN_MAX_RANK];
    int64_t window[TN_MAX_RANK], zero = 0;
    dims[0] = n;
    for (int i = 1; i < rank; i++) {
        dims[i] = x->v->type.dim[i];
        window[nwindow++] = i;
    }
    if (!fits(k, dims, rank) || k->nvalues + 3 > R_VALUES)
        return NULL;
    rvalue *indices = new_input(k, TN_I32, 1, &n, tn_max(most(k, x->v->type.dim[0]), 1));
    rvalue *updates = indices ? input_or_constant(k, x->v->type.dtype, rank, dims) : NULL;
    if (!updates)
        return NULL;
    bool add = one_in(k, 2);
    tn_dtype dtype = x->v->type.dtype;
    tn_block *block = add ? tn_combine_block(k->graph, TN_OP_add, dtype) : tn_combine_block(k->graph, TN_OP_maximum, dtype);
    tn_attr attrs[] = {{.name = TN_A_update_window_dims, .n = nwindow, .ints = window}, {.name = TN_A_inserted_window_dims, .n = 1, .ints = &zero},
                       {.name = TN_A_input_batching_dims}, {.name = TN_A_scatter_indices_batching_dims},
                       {.name = TN_A_scatter_dims_to_operand_dims, .n = 1, .ints = &zero}, {.name = TN_A_index_vector_dim, .i = 1}};
    tn_op *op = tn_build(&k->b, TN_OP_scatter, (tn_value *[]){x->v, indices->v, updates->v}, 3, attrs, (int)TN_COUNT(attrs), &block, 1);
    return settle(k, keep_whole(k, op ? op->result : NULL, x->exact && updates->exact, x->bound + 8 * updates->bound, 0, 8));
}

static rvalue *make_if(maker *k)
{
    rvalue *x = choose(k, any_value), *y = x ? choose_partner(k, x) : NULL, *p = NULL;
    if (!y || y->v->type.rank > x->v->type.rank)
        return NULL;
    for (int i = 1; i <= y->v->type.rank; i++)
        if (y->v->type.dim[y->v->type.rank - i] != x->v->type.dim[x->v->type.rank - i])
            return NULL;
    for (int tries = 0; tries < 20 && !p; tries++) {
        rvalue *z = &k->value[below(k, k->nvalues)];
        p = z->v->type.dtype == TN_BOOL && z->v->type.rank == 0 ? z : NULL;
    }
    if (!p || !any_number(x))
        return NULL;
    tn_block *blocks[2];
    for (int r = 0; r < 2; r++) {
        blocks[r] = tn_block_new(k->graph, NULL);
        tn_builder in = tn_builder_at_end(blocks[r], TN_NO_LOC);
        tn_value *v = r ? tn_broadcast_to(&in, y->v, x->v->type.dim, x->v->type.rank) : tn_unary(&in, TN_OP_abs, x->v);
        if (!v)
            return keep(k, NULL, true, 0, 0);
        tn_return(&in, &v, 1);
    }
    tn_op *op = tn_build(&k->b, TN_OP_if, &p->v, 1, NULL, 0, blocks, 2);
    return keep(k, op ? op->result : NULL, x->exact && y->exact, fmax(x->bound, y->bound), fmax(x->error, y->error));
}

/* x := min(x + 1, 5), a few times; how often is known only when it runs. */
static rvalue *make_while(maker *k)
{
    rvalue *x = choose(k, any_number);
    if (!x || tn_dtype_class(x->v->type.dtype) == TN_CLASS_UINT || k->nvalues + 2 > R_VALUES)
        return NULL;
    rvalue *times = new_input(k, TN_I32, 0, NULL, 4);
    if (!times)
        return NULL;
    tn_type counter = tn_type_scalar(TN_I32);
    tn_block *blocks[2];
    for (int r = 0; r < 2; r++) {
        blocks[r] = tn_block_new(k->graph, NULL);
        tn_value *i = tn_block_arg(blocks[r], &counter, NULL), *state = tn_block_arg(blocks[r], &x->v->type, NULL);
        tn_builder in = tn_builder_at_end(blocks[r], TN_NO_LOC);
        tn_value *next[2] = {tn_compare(&in, "GT", i, tn_int_constant(&in, TN_I32, 0)), NULL};
        if (r) {
            next[0] = tn_binary(&in, TN_OP_subtract, i, tn_int_constant(&in, TN_I32, 1));
            next[1] = tn_binary_b(&in, TN_OP_minimum, tn_binary_b(&in, TN_OP_add, state, tn_scalar_constant(&in, x->v->type.dtype, 1)),
                                  tn_scalar_constant(&in, x->v->type.dtype, 5));
        }
        if (!next[0] || (r && !next[1]))
            return keep(k, NULL, true, 0, 0);
        tn_return(&in, next, r + 1);
    }
    tn_op *op = tn_build(&k->b, TN_OP_while, (tn_value *[]){times->v, x->v}, 2, NULL, 0, blocks, 2);
    double bound = x->bound + 12; /* at most twelve rounds */
    return op ? settle(k, keep_whole(k, &op->result[1], x->exact, bound, x->error, 12)) : keep(k, NULL, true, 0, 0);
}

static rvalue *make_integer_dot(maker *k)
{
    tn_dim lhs[2], rhs[2];
    tn_dtype dtype = one_in(k, 2) ? TN_I8 : one_in(k, 2) ? TN_U8 : TN_I32;
    if (!some_shape(k, 2, lhs) || !some_shape(k, 2, rhs) || k->nvalues + 3 > R_VALUES)
        return NULL;
    rhs[0] = lhs[1];
    rvalue *x = new_input(k, dtype, 2, lhs, 0), *y = x ? input_or_constant(k, dtype, 2, rhs) : NULL;
    if (!y || !fits(k, (tn_dim[]){lhs[0], rhs[1]}, 2))
        return NULL;
    int64_t zero = 0, one = 1;
    tn_attr attrs[] = {{.name = TN_A_lhs_batch}, {.name = TN_A_rhs_batch}, {.name = TN_A_lhs_contract, .n = 1, .ints = &one},
                       {.name = TN_A_rhs_contract, .n = 1, .ints = &zero}, {.name = TN_A_dtype, .i = TN_I32}};
    tn_op *op = tn_build(&k->b, TN_OP_dot_general, (tn_value *[]){x->v, y->v}, 2, attrs, 5, NULL, 0);
    return keep(k, op ? op->result : NULL, true, 0, 0);
}

static rvalue *make_reduce_precision(maker *k)
{
    rvalue *x = choose(k, any_float);
    if (!x || x->v->type.dtype != TN_F32)
        return NULL;
    bool half = one_in(k, 2);
    tn_dtype like = half ? TN_F16 : TN_BF16;
    tn_attr attrs[] = {{.name = TN_A_exponent_bits, .i = half ? 5 : 8}, {.name = TN_A_mantissa_bits, .i = half ? 10 : 7}};
    tn_op *op = tn_build(&k->b, TN_OP_reduce_precision, &x->v, 1, attrs, 2, NULL, 0);
    bool exact = x->exact && x->bound <= most_whole(like);
    return settle(k, keep(k, op ? op->result : NULL, exact, x->bound, x->error + 2 * rounding(like) * x->bound));
}

/* ---- the graph ------------------------------------------------------------------------------------------------------------------- */

typedef rvalue *recipe(maker *k);
static recipe *const recipes[] = {
    make_input,      make_smooth,   make_smooth,    make_guarded,     make_plain_unary, make_jump,        make_arithmetic, make_arithmetic, make_arithmetic, make_arithmetic,
    make_logic,      make_compare,  make_select,    make_select,      make_clamp,       make_convert,     make_bitcast,    make_reshape,    make_reshape,    make_transpose,
    make_transpose,  make_broadcast, make_slice,    make_pad,         make_concatenate, make_reverse,     make_iota,       make_gather,     make_dynamic,    make_reduce,
    make_reduce,     make_reduce,   make_softmax,   make_layer_norm,  make_arg_max,     make_window,      make_dot,        make_dot,        make_convolution, make_convolution,
    make_sort,       make_scatter,  make_if,          make_while,       make_integer_dot, make_reduce_precision, make_slices,
    make_group_norm,
};

static inline int output_count(const maker *k) { return k->graph->body->last->noperands; }

/* Every value that nothing uses, and some that something does, up to eight. */
static void return_some(maker *k)
{
    tn_value *out[8] = {NULL};
    int n = 0;
    for (int i = k->nvalues; i-- > 0 && n < 8;) {
        tn_value *v = k->value[i].v;
        if (v->def && v->def->code != TN_OP_constant && (!v->uses || one_in(k, 12)))
            out[n++] = v;
    }
    tn_return(&k->b, out, n);
}

static void make_graph(maker *k, tn_session *session, uint64_t seed)
{
    *k = (maker){.state = seed * 0x2545f4914f6cdd1du + 99, .session = session};
    k->graph = tn_graph_new(session, "random");
    k->b = tn_builder_at_end(k->graph->body, TN_NO_LOC);
    k->special = one_in(k, 6);
    k->most_elements = one_in(k, 8) ? 40000 : 6000;
    choose_sizes(k);
    for (int i = 0; i < k->nsymbols; i++)
        new_input(k, TN_F32, 1, &k->symbol[i], 0); /* gives the symbol its value */
    for (int inputs = 0; inputs < 2 || k->nvalues == 0; inputs++)
        make_input(k);
    int64_t steps = one_in(k, 12) ? 40 + below(k, 40) : one_in(k, 3) ? 4 + below(k, 20) : 2 + below(k, 6);
    /* some graphs are of few kinds of operation, so that these meet often */
    int64_t few = one_in(k, 3) ? 3 + below(k, 5) : (int64_t)TN_COUNT(recipes), start = below(k, (int64_t)TN_COUNT(recipes));
    for (int64_t i = 0; i < steps && k->nvalues < R_VALUES - 12; i++)
        recipes[(start + below(k, few) * (few < (int64_t)TN_COUNT(recipes) ? 7 : 1)) % (int64_t)TN_COUNT(recipes)](k);
    session->diags.len = 0;
    session->errors = 0;
    return_some(k);
}

static inline const rvalue *rvalue_of(const maker *k, const tn_value *v)
{
    for (int i = 0; i < k->nvalues; i++)
        if (k->value[i].v == v)
            return &k->value[i];
    return NULL;
}

#endif
