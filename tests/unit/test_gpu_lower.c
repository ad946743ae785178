/* The GPU lowering against the definitions, without a GPU: the interpreter of the Loop IR runs a CTA's threads in lockstep and reports what they must not do.
 * The kernels are those of the CPU's test (test_tile_lower.c), with 1, 2, 4 and 8 warps and clusters of as many CTAs, and those of tests/unit/gpu, which are made for what only a GPU has.
 *
 * TILE_RUNS, TILE_SEED as there. */
#include "tile_files.h"

static void check(const char *text, const variant *v, uint64_t seed)
{
    variant clustered = *v;
    clustered.cluster = 1 << (seed >> 17) % 4;
    if (!stores_meet(text, v))
        check_gpu_kernel(text, &clustered, 1 << (seed >> 13) % 4, seed);
}

static void run_file(void **state) { run_tile_file(*state, 5, check); }

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    int failed = run_tile_tests("tile kernels on a GPU", "tile", only, run_file, NULL, 0);
    return failed + run_tile_tests("kernels for GPUs", "gpu", only, run_file, NULL, 0);
}
