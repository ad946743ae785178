/* Launches of users' kernels on a GPU. All that can be found out before is found out when the launcher is made: a launch checks what its values promise, puts them
 * into one array as the code takes them, and gives that to the driver. */
#include <stdlib.h>
#include <string.h>

#include "run/arguments.h"
#include "run/internal.h"

enum { MOST_FEW = 64, POINTER_DEVICE_ADDRESS = 3 };

struct tn_gpu_launcher {
    tn_launch_map map;
    const tn_code *code;
    const tn_kernel *kernel;
    const char *missing; /* why it can't run; else all below is there */
    int device;
    tn_gpu gpu;
    CUmodule module;
    tn_gpu_kernel function;
    CUdeviceptr trapped; /* number of the assertion that failed, an i64; 0: the kernel has none */
    tn_gpu_entry entry;
    tn_gpu_encoded *encoded;
};

/* ---- making ------------------------------------------------------------------------------------------------------------------ */

static tn_status prepare(tn_session *session, tn_gpu_launcher *l)
{
    int64_t bytes;
    TN_TRY(tn_gpu_open(session, l->device, &l->gpu));
    TN_TRY(tn_gpu_load_either(session, &l->gpu, tn_code_cubin(l->code), tn_code_ptx(l->code), &l->module));
    TN_TRY(tn_gpu_function(session, &l->gpu, l->module, l->code->symbol, (unsigned)l->code->shared, &l->function));
    l->function.cluster = (unsigned)l->code->cluster;
    if (l->code->threads > l->function.most_threads)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel %s: %d threads of %d registers are more than a block of %s can have (%d); fewer warps may do", l->code->symbol,
                        l->code->threads, l->function.registers, l->gpu.info.name, l->function.most_threads);
    TN_TRY(tn_gpu_entry_prepare(session, l->module, &l->entry));
    return l->code->traps ? tn_gpu_global(session, &l->gpu, l->module, TN_TRAPPED, &l->trapped, &bytes) : TN_OK;
}

tn_status tn_gpu_launcher_new(tn_session *session, const tn_code *code, const tn_kernel *kernel, int device, const char *missing, const tn_launch_value *values, size_t nvalues,
                              tn_gpu_launcher **out)
{
    tn_gpu_launcher *l = TN_NEW(&session->arena, tn_gpu_launcher);
    *l = (tn_gpu_launcher){.code = code, .kernel = kernel, .missing = missing, .device = device};
    l->entry = (tn_gpu_entry){&l->gpu, code->symbol, code->buffer, code->size, code->nbuffers, code->nsizes, code->nmaps, code->cluster, code->persistent, code->map, 0};
    l->encoded = tn_gpu_encoded_new(&session->arena, &l->entry);
    TN_TRY(tn_launch_map_new(session, code, values, nvalues, &l->map));
    tn_status status = missing ? TN_OK : prepare(session, l);
    if (status == TN_OK)
        *out = l;
    else
        tn_gpu_launcher_free(l);
    return status;
}

/* Where the driver can't, there is nothing that a caller could do. */
void tn_gpu_launcher_free(tn_gpu_launcher *l)
{
    tn_cuda_visit v;
    if (!l || !l->gpu.context)
        return;
    if (tn_cuda_enter(&v, &l->gpu) && l->module)
        tn_cuda.cuModuleUnload(l->module);
    tn_cuda_leave_quietly(&v);
    tn_cuda.cuDevicePrimaryCtxRelease_v2(l->gpu.device);
    l->gpu.context = NULL;
}

const tn_gpu *tn_gpu_launcher_gpu(const tn_gpu_launcher *l) { return l->missing ? NULL : &l->gpu; }

bool tn_gpu_launcher_registers(const tn_gpu_launcher *l, int *registers, int *spill_bytes)
{
    *registers = l->missing ? l->code->report.registers : l->function.registers;
    *spill_bytes = l->missing ? l->code->report.spill_bytes : l->function.local_bytes;
    return *registers > 0;
}

/* ---- launching ---------------------------------------------------------------------------------------------------------------- */

static tn_status tell(const tn_cuda_visit *v, char *error, size_t size)
{
    char words[256];
    if (v->result == CUDA_SUCCESS)
        return TN_OK;
    tn_cuda_words(v->result, words, sizeof words);
    return tn_launch_refuse(error, size, v->result == CUDA_ERROR_OUT_OF_MEMORY ? TN_NO_MEMORY : TN_INVALID, "%s failed: %s", v->call, words);
}

static tn_status no_gpu(const tn_gpu_launcher *l, char *error, size_t size)
{
    return tn_launch_refuse(error, size, TN_UNSUPPORTED, "kernel %s: %s", l->code->symbol, l->missing);
}

/* Number of the first buffer whose address the GPU can't use, -1: none. A host's address would end the context with an error that names nothing. An empty
 * tensor may have none. */
static int foreign_buffer(const tn_gpu_launcher *l, const uint64_t *packed)
{
    CUdeviceptr own;
    for (int i = 0; i < l->code->nbuffers; i++)
        if (packed[i] && tn_cuda.cuPointerGetAttribute(&own, POINTER_DEVICE_ADDRESS, packed[i]) != CUDA_SUCCESS)
            return i;
    return -1;
}

static void pack(const tn_gpu_launcher *l, const int64_t grid[3], const tn_kernel_value *values, uint64_t *packed)
{
    for (int i = 0; i < l->code->nbuffers; i++)
        *packed++ = (uint64_t)(uintptr_t)values[l->map.buffer[i]].pointer;
    for (int i = 0; i < l->code->nsizes; i++)
        *packed++ = (uint64_t)tn_launch_map_size(&l->map, i, grid, values);
}

static tn_status start(const tn_gpu_launcher *l, uint64_t *packed, int64_t programs, void **params, CUstream stream, char *error, size_t size)
{
    tn_tensor_map maps[TN_MOST_MAPS];
    tn_cuda_visit v;
    unsigned blocks;
    int foreign = -1;
    TN_TRY(tn_gpu_arguments(&l->entry, l->encoded, packed, programs, maps, params, &blocks, error, size));
    if (tn_cuda_enter(&v, &l->gpu) && (foreign = foreign_buffer(l, packed)) < 0)
        tn_cuda_launch(&v, &l->function, (unsigned[]){blocks, 1, 1}, (unsigned[]){(unsigned)l->code->threads, 1, 1}, stream, false, params);
    tn_cuda_leave_quietly(&v);
    if (foreign >= 0)
        return tn_launch_refuse(error, size, TN_USAGE, "%s: expected an address in memory of GPU %d, found %#llx, which it can't use", l->code->buffer[foreign], l->device,
                                (unsigned long long)packed[foreign]);
    return tell(&v, error, size);
}

tn_status tn_gpu_launcher_run(const tn_gpu_launcher *l, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, void *stream, char *error, size_t error_size)
{
    uint64_t few[MOST_FEW], *packed = few;
    void *few_params[MOST_FEW], **params = few_params, *many = NULL;
    TN_TRY(tn_launch_map_check(&l->map, grid, values, nvalues, error, error_size));
    if (l->missing)
        return no_gpu(l, error, error_size);
    if (grid[0] * grid[1] * grid[2] == 0)
        return TN_OK;
    size_t nparams = tn_gpu_entry_params(&l->entry);
    if (nparams > MOST_FEW) {
        many = malloc((sizeof *packed + sizeof *params) * nparams);
        if (!many)
            return tn_launch_refuse(error, error_size, TN_NO_MEMORY, "kernel %s: no memory for its arguments", l->code->symbol);
        packed = many;
        params = (void **)(packed + nparams);
    }
    pack(l, grid, values, packed);
    tn_status status = start(l, packed, grid[0] * grid[1] * grid[2], params, stream, error, error_size);
    free(many);
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_launcher_wait(const tn_gpu_launcher *l, void *stream, char *error, size_t error_size)
{
    tn_cuda_visit v;
    int64_t trapped = 0;
    if (l->missing)
        return no_gpu(l, error, error_size);
    bool done = tn_cuda_enter(&v, &l->gpu) && TN_CUDA(&v, cuStreamSynchronize, stream);
    if (done && l->trapped && TN_CUDA(&v, cuMemcpyDtoHAsync_v2, &trapped, l->trapped, sizeof trapped, stream) && TN_CUDA(&v, cuStreamSynchronize, stream) && trapped)
        TN_CUDA(&v, cuMemsetD8Async, l->trapped, 0, sizeof trapped, stream);
    tn_cuda_leave_quietly(&v);
    TN_TRY(tell(&v, error, error_size));
    return trapped ? tn_launch_failed_assertion(l->code, l->kernel, trapped, error, error_size) : TN_OK;
}
