/* What a launch on a GPU gives to the driver, for users' kernels (launch_gpu.c) and executables (device.c) alike: parameters, among them maps, and how many blocks. */
#ifndef TN_RUN_ARGUMENTS_H
#define TN_RUN_ARGUMENTS_H

#include "run/cuda_driver.h"

/* A kernel of a module that is loaded. Names and maps are its code's. */
typedef struct tn_gpu_entry {
    const tn_gpu *gpu;
    const char *symbol;
    const char *const *buffer, *const *size; /* names; NULL among them: none */
    int nbuffers, nsizes, nmaps, cluster, persistent;
    const tn_code_map *map;
    CUdeviceptr nowhere; /* TN_NOWHERE; 0: there are no maps */
} tn_gpu_entry;

/* Maps as the last launch had them, which the next one mostly has too. Any number of threads may use it. */
typedef struct tn_gpu_encoded tn_gpu_encoded;
tn_gpu_encoded *tn_gpu_encoded_new(tn_arena *arena, const tn_gpu_entry *entry); /* NULL: the kernel has no maps */

/* Finds what maps need, in the module and in the driver. TN_UNSUPPORTED: the driver has no maps. */
tn_status tn_gpu_entry_prepare(tn_session *session, CUmodule module, tn_gpu_entry *entry);

/* How many parameters there are, and words of values that they are of but for the maps. */
static inline size_t tn_gpu_entry_values(const tn_gpu_entry *entry) { return (size_t)entry->nbuffers + (size_t)entry->nsizes + 2; }
static inline size_t tn_gpu_entry_params(const tn_gpu_entry *entry) { return tn_gpu_entry_values(entry) + (size_t)entry->nmaps; }

/* values: tn_gpu_entry_values of them, of which addresses and sizes are set; params: tn_gpu_entry_params; maps: TN_MOST_MAPS. All that must last until the driver was called.
 * *blocks: of the grid. programs > 0. What is wrong goes as text into `error`: TN_USAGE, a view that no map can be of or too many programs. */
tn_status tn_gpu_arguments(const tn_gpu_entry *entry, tn_gpu_encoded *encoded, uint64_t *values, int64_t programs, tn_tensor_map *maps, void **params, unsigned *blocks, char *error,
                           size_t error_size);

#endif
