/* The passes on the Tile IR by name, and what user kernels go through. */
#include "tile/internal.h"

const tn_tile_pass tn_tile_passes[] = {{"tile-simplify", tn_tile_simplify}, {"recover", tn_tile_recover}, {"inline", tn_tile_inline}, {"fold-scaled", tn_tile_fold_scaled}, {NULL, NULL}};

tn_status tn_tile_optimize(tn_kernel *kernel)
{
    TN_TRY(tn_tile_simplify(kernel));
    TN_TRY(tn_tile_recover(kernel));
    return tn_tile_simplify(kernel);
}

tn_status tn_tile_straighten(tn_kernel *kernel)
{
    TN_TRY(tn_tile_inline(kernel));
    TN_TRY(tn_tile_fold_scaled(kernel));
    return tn_tile_simplify(kernel);
}
