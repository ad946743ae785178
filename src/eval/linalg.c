/* batch_norm_inference, fft, cholesky, triangular_solve: in double (pairs of doubles), rounded once at the end. */
#include "eval/internal.h"

#include <assert.h>
#include <complex.h>
#include <math.h>
#include <string.h>

typedef double complex complex128;

static complex128 make(double re, double im) /* re + im * I would turn an infinite im into a NaN re */
{
    double parts[2] = {re, im};
    complex128 v;
    memcpy(&v, parts, sizeof v);
    return v;
}

static complex128 load(const tn_tensor *x, int64_t at)
{
    tn_number v = tn_number_convert(tn_at(x, at), x->dtype, TN_C128);
    return make(v.f, v.im);
}

static void store(tn_eval_value *y, int64_t at, complex128 v)
{
    tn_number n = {.f = creal(v), .im = cimag(v)};
    tn_number_store(y->tensor.dtype, tn_eval_data(y), at, n);
}

/* (x - mean) / sqrt(variance + epsilon) * scale + offset, the four vectors indexed by the feature. */
EVAL(batch_norm_inference)
{
    const tn_tensor *x = &in[0]->tensor;
    const int feature = (int)tn_attr_int(op, TN_A_feature_index, 0);
    const double epsilon = tn_find_attr(op, TN_A_epsilon)->f;
    int64_t strides[TN_MAX_RANK];
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    if (feature < 0 || feature >= x->rank)
        return tn_eval_expect(e, op, "feature_index below the rank", x->rank - 1, feature);
    for (int j = 1; j < 5; j++)
        if (in[j]->tensor.rank != 1 || in[j]->tensor.dim[0] != x->dim[feature])
            return tn_eval_expect(e, op, "elements of scale, offset, mean and variance", x->dim[feature],
                                  tn_count_of(&in[j]->tensor));
    tn_strides_of(x->rank, x->dim, strides);
    const int64_t n = tn_count_of(x);
    TN_TRY(tn_eval_work(e, op->loc, n, 4));
    for (int64_t i = 0; i < n; i++) {
        int64_t f = i / strides[feature] % x->dim[feature];
        double p[5];
        for (int j = 0; j < 5; j++)
            p[j] = tn_at(&in[j]->tensor, j ? f : i).f;
        store(out[0], i, (p[0] - p[3]) / sqrt(p[4] + epsilon) * p[1] + p[2]);
    }
    return TN_OK;
}

/* ---- fft --------------------------------------------------------------------------------------------------------- */

static int64_t smallest_factor(int64_t n)
{
    for (int64_t p = 2; p * p <= n; p++)
        if (n % p == 0)
            return p;
    return n;
}

/* Products that one element of a transform of length n takes: the sum of n's prime factors. */
static int64_t products_each(int64_t n)
{
    int64_t sum = 0;
    for (; n > 1; n /= smallest_factor(n))
        sum += smallest_factor(n);
    return sum;
}

/* y[k] = sum_j x[j * step] * root[j * k * (length / n) mod length], by Cooley-Tukey on the smallest factor p of n: p
 * transforms of the elements j = r mod p, then their sums. root[i] = exp(-+2 pi i / length). y and spare hold n
 * elements. */
static void transform(const complex128 *x, int64_t step, complex128 *y, complex128 *spare, int64_t n,
                      const complex128 *root, int64_t length)
{
    if (n == 1) {
        y[0] = x[0];
        return;
    }
    const int64_t p = smallest_factor(n), m = n / p, unit = length / n;
    for (int64_t r = 0; r < p; r++)
        transform(x + r * step, step * p, spare + r * m, y + r * m, m, root, length);
    for (int64_t k = 0; k < n; k++) {
        complex128 sum = 0;
        for (int64_t r = 0; r < p; r++)
            sum += spare[r * m + k % m] * root[r * k % n * unit];
        y[k] = sum;
    }
}

typedef struct fft_axis {
    int64_t n;
    bool inverse;
    complex128 *root, *line, *result, *spare;
} fft_axis;

static tn_status fft_prepare(tn_evaluator *e, const tn_op *op, int64_t n, bool inverse, fft_axis *f)
{
    *f = (fft_axis){.n = n, .inverse = inverse};
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *f->root, &f->root));
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *f->line, &f->line));
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *f->result, &f->result));
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *f->spare, &f->spare));
    for (int64_t i = 0; i < n; i++) {
        double angle = 2 * acos(-1) * (double)i / (double)n;
        f->root[i] = make(cos(angle), inverse ? sin(angle) : -sin(angle));
    }
    return TN_OK;
}

/* Transforms the line data[0], data[step], …, data[(n-1) * step] in place; an inverse is divided by n. */
static void fft_line(const fft_axis *f, complex128 *data, int64_t step)
{
    for (int64_t i = 0; i < f->n; i++)
        f->line[i] = data[i * step];
    transform(f->line, 1, f->result, f->spare, f->n, f->root, f->n);
    for (int64_t i = 0; i < f->n; i++)
        data[i * step] = f->inverse ? f->result[i] / (double)f->n : f->result[i];
}

/* All lines along `axis` of a row-major complex tensor. */
static tn_status fft_along(tn_evaluator *e, const tn_op *op, complex128 *data, int rank, const int64_t *dims, int axis,
                           bool inverse)
{
    int64_t strides[TN_MAX_RANK], lines[TN_MAX_RANK], index[TN_MAX_RANK] = {0};
    fft_axis f;
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    TN_TRY(tn_eval_work(e, op->loc, n, products_each(dims[axis])));
    TN_TRY(fft_prepare(e, op, dims[axis], inverse, &f));
    tn_strides_of(rank, dims, strides);
    for (int d = 0; d < rank; d++)
        lines[d] = d == axis ? 1 : dims[d];
    do {
        int64_t at = 0;
        for (int d = 0; d < rank; d++)
            at += index[d] * strides[d];
        fft_line(&f, data + at, strides[axis]);
    } while (tn_next_index(rank, lines, index));
    return TN_OK;
}

/* Reads x into full complex lines: dims are x's, but for IRFFT, whose last dimension is filled up by symmetry:
 * element n - k is the conjugate of element k (of what remains to be transformed along the last dimension only). */
static void fill_lines(const tn_tensor *x, complex128 *data, int64_t last)
{
    const int64_t have = x->dim[x->rank - 1], rows = tn_count_of(x) / have;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < last; k++)
            data[r * last + k] = k < have ? load(x, r * have + k) : 0;
}

static void mirror_lines(complex128 *data, int64_t rows, int64_t last)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = last / 2 + 1; k < last; k++)
            data[r * last + k] = conj(data[r * last + last - k]);
}

EVAL(fft)
{
    const tn_tensor *x = &in[0]->tensor;
    const char *type = tn_find_attr(op, TN_A_fft_type)->s;
    const bool inverse = !strcmp(type, "IFFT") || !strcmp(type, "IRFFT"), from_half = !strcmp(type, "IRFFT"),
               to_half = !strcmp(type, "RFFT");
    int n = 0;
    const int64_t *length = tn_attr_ints(op, TN_A_fft_length, &n);
    complex128 *data;
    int64_t dims[TN_MAX_RANK], full = 1;
    if (!inverse && !to_half && strcmp(type, "FFT"))
        return tn_error(e->session, TN_INVALID, op->loc, "fft: fft_type is FFT, IFFT, RFFT or IRFFT, found %s", type);
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    if (n < 1 || n > x->rank)
        return tn_eval_expect(e, op, "lengths in fft_length at least 1, at most", x->rank, n);
    for (int d = 0; d < x->rank; d++) {
        bool last = d == x->rank - 1;
        dims[d] = d < x->rank - n ? x->dim[d] : length[d - x->rank + n];
        int64_t expected = last && from_half ? dims[d] / 2 + 1 : dims[d],
                produced = last && to_half ? dims[d] / 2 + 1 : dims[d];
        if (dims[d] < 0 || x->dim[d] != expected || out[0]->tensor.dim[d] != produced)
            return tn_eval_expect(e, op, "size of an operand's dimension", expected, x->dim[d]);
        if (!tn_mul(full, dims[d], &full))
            return tn_eval_expect(e, op, "length in range", 0, dims[d]);
    }
    if (tn_count_of(&out[0]->tensor) == 0 || full == 0)
        return TN_OK;
    const int64_t last = dims[x->rank - 1], rows = full / last, kept = out[0]->tensor.dim[x->rank - 1];
    TN_TRY(tn_eval_alloc(e, op->loc, full, sizeof *data, &data));
    fill_lines(x, data, last);
    for (int d = x->rank - n; d < x->rank - 1; d++)
        TN_TRY(fft_along(e, op, data, x->rank, dims, d, inverse));
    if (from_half)
        mirror_lines(data, rows, last);
    TN_TRY(fft_along(e, op, data, x->rank, dims, x->rank - 1, inverse));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < kept; k++)
            store(out[0], r * kept + k, data[r * last + k]);
    return TN_OK;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* Row-column-wise l with l * conj(l)^T = a, from the lower triangle of a; a matrix that is not positive definite gives
 * NaN. */
static void factor(complex128 *a, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            complex128 sum = i == j ? creal(a[i * n + j]) : a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                sum -= a[i * n + k] * conj(a[j * n + k]);
            if (i == j)
                a[j * n + j] = creal(sum) > 0 ? sqrt(creal(sum)) : (double)NAN;
            else
                a[i * n + j] = sum / creal(a[j * n + j]);
        }
        for (int64_t i = 0; i < j; i++)
            a[i * n + j] = 0;
    }
}

EVAL(cholesky)
{
    const tn_tensor *x = &in[0]->tensor;
    const bool lower = tn_attr_int(op, TN_A_lower, 0);
    complex128 *a;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const int64_t n = x->rank < 2 ? 0 : x->dim[x->rank - 1], count = tn_count_of(x);
    if (x->rank < 2 || x->dim[x->rank - 2] != n)
        return tn_eval_expect(e, op, "rows of the matrices", n, x->rank < 2 ? 0 : x->dim[x->rank - 2]);
    TN_TRY(tn_eval_work(e, op->loc, count, 1 + n));
    TN_TRY(tn_eval_alloc(e, op->loc, count ? n * n : 0, sizeof *a, &a));
    for (int64_t base = 0; base < count; base += n * n) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                a[i * n + j] = j > i ? 0 : lower ? load(x, base + i * n + j) : conj(load(x, base + j * n + i));
        factor(a, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                store(out[0], base + i * n + j, lower ? a[i * n + j] : conj(a[j * n + i]));
    }
    return TN_OK;
}

/* The triangular matrix after transposition, seen as the matrix of left_side: m(i, j), lower or upper. */
typedef struct triangle {
    const tn_tensor *a;
    int64_t base, n;
    bool swap, conjugate, unit, lower;
} triangle;

static complex128 entry(const triangle *t, int64_t i, int64_t j)
{
    if (t->unit && i == j)
        return 1;
    complex128 v = load(t->a, t->base + (t->swap ? j * t->n + i : i * t->n + j));
    return t->conjugate ? conj(v) : v;
}

/* Solves m * x = b in place for one right-hand side, whose elements stand `step` apart. */
static void substitute(const triangle *t, complex128 *x)
{
    for (int64_t s = 0; s < t->n; s++) {
        int64_t i = t->lower ? s : t->n - 1 - s;
        complex128 sum = x[i];
        for (int64_t k = 0; k < s; k++) {
            int64_t j = t->lower ? k : t->n - 1 - k;
            sum -= entry(t, i, j) * x[j];
        }
        x[i] = t->unit ? sum : sum / entry(t, i, i);
    }
}

EVAL(triangular_solve)
{
    const tn_tensor *a = &in[0]->tensor, *b = &in[1]->tensor;
    const char *transpose = tn_find_attr(op, TN_A_transpose_a)->s;
    const bool left = tn_attr_int(op, TN_A_left_side, 0), transposed = strcmp(transpose, "NO_TRANSPOSE") != 0;
    complex128 *line;
    TN_TRY(tn_eval_result(e, op, 0, &out[0]));
    const int r = a->rank;
    if (r < 2 || b->rank != r || a->dim[r - 1] != a->dim[r - 2] || b->dim[left ? r - 2 : r - 1] != a->dim[r - 1])
        return tn_eval_expect(e, op, "rows (columns on the right side) of b", r < 2 ? 0 : a->dim[r - 1],
                              b->rank == r && r >= 2 ? b->dim[left ? r - 2 : r - 1] : 0);
    for (int d = 0; d < r - 2; d++)
        if (a->dim[d] != b->dim[d])
            return tn_eval_expect(e, op, "size of a batch dimension of b", a->dim[d], b->dim[d]);
    /* x * m = b is m^T * x^T = b^T: on the right side, rows of b are solved with the matrix transposed once more. */
    triangle t = {.a = a,
                  .n = a->dim[r - 1],
                  .unit = tn_attr_int(op, TN_A_unit_diagonal, 0),
                  .conjugate = !strcmp(transpose, "ADJOINT")};
    t.swap = transposed == left;
    t.lower = (tn_attr_int(op, TN_A_lower, 0) != 0) != t.swap;
    const int64_t n = t.n, lines = b->dim[left ? r - 1 : r - 2], count = tn_count_of(b), each = n * lines;
    TN_TRY(tn_eval_work(e, op->loc, count, 1 + n));
    TN_TRY(tn_eval_alloc(e, op->loc, n, sizeof *line, &line));
    for (int64_t base = 0; base < count; base += each, t.base += n * n)
        for (int64_t c = 0; c < lines; c++) {
            for (int64_t i = 0; i < n; i++)
                line[i] = load(b, base + (left ? i * lines + c : c * n + i));
            substitute(&t, line);
            for (int64_t i = 0; i < n; i++)
                store(out[0], base + (left ? i * lines + c : c * n + i), line[i]);
        }
    return TN_OK;
}
