/* Are two results the same but for rounding? */
#include <math.h>

#include "eval/eval.h"

static double tolerance(tn_dtype dtype)
{
    switch (dtype) {
    case TN_F64:
    case TN_C128: return 1e-9;
    case TN_F32:
    case TN_C64: return 1e-4;
    case TN_F16: return 4e-3;
    case TN_BF16: return 3e-2;
    default: return 0.25;
    }
}

static double mean_magnitude(tn_dtype dtype, const void *data, int64_t n)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(tn_number_to_double(dtype, tn_number_load(dtype, data, i)));
        if (isfinite(x))
            sum += x, finite++;
    }
    return finite ? sum / (double)finite : 0;
}

static bool close_enough(double expected, double found, double r, double mean)
{
    if (isnan(expected) || isnan(found))
        return isnan(expected) && isnan(found);
    if (isinf(expected) || isinf(found))
        return expected == found;
    return fabs(expected - found) <= r * (fabs(expected) + mean);
}

static bool same_number(tn_dtype dtype, tn_number expected, tn_number found, double r, double mean)
{
    if (tn_is_complex(dtype))
        return close_enough(expected.f, found.f, r, mean) && close_enough(expected.im, found.im, r, mean);
    if (tn_is_float(dtype))
        return close_enough(expected.f, found.f, r, mean);
    return tn_number_same(dtype, expected, found);
}

int64_t tn_differences(tn_dtype dtype, const void *expected, const void *found, int64_t n, double slack, int64_t *first)
{
    double r = slack * tolerance(dtype), mean = tn_is_integer(dtype) || dtype == TN_BOOL ? 0 : mean_magnitude(dtype, expected, n);
    int64_t wrong = 0;
    *first = -1;
    for (int64_t i = 0; i < n; i++)
        if (!same_number(dtype, tn_number_load(dtype, expected, i), tn_number_load(dtype, found, i), r, mean)) {
            *first = wrong == 0 ? i : *first;
            wrong++;
        }
    return wrong;
}
