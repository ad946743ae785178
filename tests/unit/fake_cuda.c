/* Stands in for CUDA's driver where there is none: one GPU whose memory is the host's and whose kernels do nothing but to be written down. A call that the
 * test names fails. Contexts are counted, so that a push without a pop is seen. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

fake_state fake_cuda = {.devices = 1};

#define FAIL(name)                                                                                                     \
    if (fake_cuda.failing && !strcmp(fake_cuda.failing, #name))                                                        \
    return fake_cuda.result
#define NEEDS_CONTEXT                                                                                                  \
    if (!fake_cuda.pushed)                                                                                             \
    return 201
#define CALL(name, params, ...)                                                                                        \
    int name params;                                                                                                   \
    int name params                                                                                                    \
    {                                                                                                                  \
        FAIL(name);                                                                                                    \
        __VA_ARGS__;                                                                                                   \
        return 0;                                                                                                      \
    }

CALL(cuInit, (unsigned flags), (void)flags)
CALL(cuDriverGetVersion, (int *version), *version = 12040)
CALL(cuDeviceGetCount, (int *count), *count = fake_cuda.devices)
CALL(cuDeviceGet, (int *device, int ordinal), *device = 40 + ordinal)
CALL(cuDeviceGetName, (char *name, int size, int device), snprintf(name, size, "Fake %d", device))
CALL(cuDeviceTotalMem_v2, (size_t *bytes, int device), (void)device; *bytes = (size_t)6 << 30)
CALL(cuDevicePrimaryCtxRetain, (void **context, int device), (void)device; *context = &fake_cuda; fake_cuda.retained++)
CALL(cuDevicePrimaryCtxRelease_v2, (int device), (void)device; fake_cuda.retained--)
CALL(cuCtxPushCurrent_v2, (void *context), (void)context; fake_cuda.pushed++)
CALL(cuCtxPopCurrent_v2, (void **context), NEEDS_CONTEXT; *context = &fake_cuda; fake_cuda.pushed--)
CALL(cuModuleUnload, (void *module), NEEDS_CONTEXT; (void)module; fake_cuda.modules--)
CALL(cuModuleGetFunction, (void **function, void *module, const char *name), NEEDS_CONTEXT; if (strcmp(name, "f")) return 500; *function = module)
CALL(cuFuncSetAttribute, (void *function, int attribute, int value), NEEDS_CONTEXT; (void)function; if (attribute != 8) return 1; fake_cuda.limit = value)
CALL(cuFuncGetAttribute, (int *value, int attribute, void *function), NEEDS_CONTEXT; (void)function; *value = attribute == 8 ? fake_cuda.limit : 100 + attribute)
CALL(cuMemAlloc_v2, (unsigned long long *memory, size_t bytes), NEEDS_CONTEXT; if (!bytes) return 1; *memory = (uintptr_t)malloc(bytes); fake_cuda.memory++)
CALL(cuMemFree_v2, (unsigned long long memory), NEEDS_CONTEXT; free((void *)(uintptr_t)memory); fake_cuda.memory--)
CALL(cuMemcpyHtoDAsync_v2, (unsigned long long to, const void *from, size_t n, void *stream), NEEDS_CONTEXT; (void)stream; memcpy((void *)(uintptr_t)to, from, n))
CALL(cuMemcpyDtoHAsync_v2, (void *to, unsigned long long from, size_t n, void *stream), NEEDS_CONTEXT; (void)stream; memcpy(to, (void *)(uintptr_t)from, n))
CALL(cuStreamCreate, (void **stream, unsigned flags), NEEDS_CONTEXT; if (flags != 1) return 1; *stream = &fake_cuda; fake_cuda.streams++)
CALL(cuStreamDestroy_v2, (void *stream), NEEDS_CONTEXT; (void)stream; fake_cuda.streams--)
CALL(cuStreamSynchronize, (void *stream), NEEDS_CONTEXT; (void)stream)
CALL(cuGetErrorName, (int result, const char **name), if (result == 12345) return 1; *name = result == 2 ? "FAKE_OUT_OF_MEMORY" : "FAKE_ERROR")
CALL(cuGetErrorString, (int result, const char **text), if (result == 12345) return 1; *text = result == 2 ? "all is taken" : "went wrong")
CALL(cuDeviceGetAttribute, (int *value, int attribute, int device), (void)device;
     switch (attribute) { case 16: *value = 80; break; case 38: *value = 6 << 20; break; case 75: *value = 9; break; case 76: *value = 0; break;
                          case 97: *value = 232448; break; default: return 1; })
CALL(cuModuleLoadDataEx, (void **module, const void *image, unsigned n, int *options, void **values), NEEDS_CONTEXT; if (!strncmp(image, "bad", 3)) {
    if (n == 2 && options[0] == 5 && options[1] == 6)
        snprintf(values[0], (uintptr_t)values[1], "line 1: no such thing as bad\n");
    return 218; } *module = &fake_cuda; fake_cuda.modules++)
CALL(cuLaunchKernel, (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra),
     NEEDS_CONTEXT; (void)function; (void)stream; (void)params; if (extra) return 1;
     memcpy(fake_cuda.launch, (unsigned[]){gx, gy, gz, bx, by, bz, shared}, sizeof fake_cuda.launch))
