/* Random elements, reproducible anywhere.
 *
 * Element i of tensor k under seed s comes from the 64-bit words of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", 2014) started at s * 0x9e3779b97f4a7c15 + k * 0xbf58476d1ce4e5b9, in row-major order:
 *   floats   standard normal by Box and Muller: u = (w1 >> 11) + 1 over 2^53, v = (w2 >> 11) over 2^53, sqrt(-2 ln u) cos(2 pi v); complex: twice
 *   integers the word modulo 8, so that they serve as indices of small axes; bool: modulo 2 */
#include <math.h>

#include "base/base.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double normal(uint64_t *state)
{
    double u = (double)((next(state) >> 11) + 1) * 0x1p-53, v = (double)(next(state) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

void tn_fill_random(tn_dtype dtype, void *data, int64_t n, uint64_t seed, uint64_t number)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + number * 0xbf58476d1ce4e5b9u;
    for (int64_t i = 0; i < n; i++) {
        tn_number value = {.f = 0};
        if (tn_is_float(dtype) || tn_is_complex(dtype)) {
            value.f = normal(&state);
            value.im = tn_is_complex(dtype) ? normal(&state) : 0;
        } else {
            value.i = (int64_t)(next(&state) % (dtype == TN_BOOL ? 2 : 8));
        }
        tn_number_store(dtype, data, i, value);
    }
}
