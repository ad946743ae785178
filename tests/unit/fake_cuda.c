/* Stands in for CUDA's driver where there is none: one GPU whose memory is the host's and whose kernels are functions of the test, or do nothing but to be written
 * down. Streams do at once what is put into them, unless they are being captured. A call that the test names fails. Contexts are counted, so that a push without a
 * pop is seen. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

fake_state fake_cuda = {.devices = 1};

#define FAILS(name) (fake_cuda.failing && !strcmp(fake_cuda.failing, #name) && fake_cuda.after-- <= 0)
#define FAIL(name)                                                                                                     \
    if (FAILS(name))                                                                                                   \
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

/* ---- what a stream is given --------------------------------------------------------------------------------------------- */

typedef struct work {
    struct work *next;
    const fake_kernel *kernel; /* NULL: a copy, or with `from` 0 a fill */
    unsigned grid, threads;
    uint64_t *params;
    void *to;
    const void *from;
    unsigned char value;
    size_t bytes;
} work;

typedef struct stream {
    int capturing;
    work *first, **last;
} stream;

static stream *stream_of(void *handle) { return (uintptr_t)handle <= 2 ? NULL : handle; } /* 0 to 2 stand for default streams */

static void do_work(const work *w)
{
    if (w->kernel)
        w->kernel->run(w->kernel->context, w->grid, w->threads, w->params);
    else if (w->from)
        memmove(w->to, w->from, w->bytes);
    else
        memset(w->to, w->value, w->bytes);
}

static void free_work(work *w)
{
    for (work *next; w; w = next) {
        next = w->next;
        free(w->params);
        free(w);
    }
}

static void give(void *handle, const work *w)
{
    stream *s = stream_of(handle);
    if (!s || !s->capturing) {
        do_work(w);
        return;
    }
    work *copy = malloc(sizeof *copy);
    *copy = *w;
    copy->next = NULL;
    if (w->kernel) {
        copy->params = malloc(sizeof *w->params * ((size_t)w->kernel->nparams + 1));
        memcpy(copy->params, w->params, sizeof *w->params * (size_t)w->kernel->nparams);
    }
    *s->last = copy;
    s->last = &copy->next;
}

static int launch(void *function, unsigned grid, unsigned threads, void *handle, void **params)
{
    const fake_kernel *kernel = function;
    if (kernel < fake_cuda.kernel || kernel >= fake_cuda.kernel + FAKE_KERNELS)
        return 0; /* does nothing */
    uint64_t values[256];
    for (int i = 0; i < kernel->nparams; i++)
        memcpy(&values[i], params[i], sizeof values[i]);
    for (int i = 0; i < kernel->nmaps; i++) {
        if ((uintptr_t)params[kernel->nparams + i] % 64)
            return 1;
        memcpy(&fake_cuda.map[i], params[kernel->nparams + i], sizeof fake_cuda.map[i]);
    }
    give(handle, &(work){.kernel = kernel, .grid = grid, .threads = threads, .params = values});
    return 0;
}

struct launch_config {
    unsigned number[7]; /* blocks, threads, shared memory */
    void *stream;
    const int (*attribute)[18]; /* the kind first, from the third number on the value */
    unsigned nattributes;
};

/* Clusters of blocks, which divide the grid; a kernel that may begin early. */
static int note_attributes(const struct launch_config *l)
{
    fake_cuda.cluster = 0;
    for (unsigned i = 0; i < l->nattributes; i++) {
        const int *a = l->attribute[i];
        if (a[0] == 6 && a[2] == 1)
            fake_cuda.early++;
        else if (a[0] == 4 && a[2] > 0 && a[3] == 1 && a[4] == 1 && l->number[0] % (unsigned)a[2] == 0)
            fake_cuda.cluster = (unsigned)a[2];
        else
            return 0;
    }
    return l->nattributes > 0;
}

/* The driver's limits, as its documentation has them. */
static int encode(unsigned char *out, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                  const int rest[4])
{
    fake_map map = {.address = (uintptr_t)address, .type = (uint8_t)type, .rank = (uint8_t)rank, .swizzle = (uint8_t)rest[1], .promotion = (uint8_t)rest[2]};
    if ((uintptr_t)out % 64 || !address || map.address % 16 || rank < 1 || rank > 5 || rest[0] || rest[3] || rest[1] < 0 || rest[1] > 3)
        return 1;
    for (unsigned i = 0; i < rank; i++) {
        if (!sizes[i] || sizes[i] > UINT32_MAX || !box[i] || box[i] > 256 || steps[i] != 1)
            return 1;
        if (i && (strides[i - 1] % 16 || strides[i - 1] >> 40))
            return 1;
        map.size[i] = (uint32_t)sizes[i];
        map.box[i] = box[i];
        if (i)
            map.stride[i - 1] = strides[i - 1];
    }
    memset(out, 0, 128);
    memcpy(out, &map, sizeof map);
    fake_cuda.encodes++;
    return 0;
}

static int find_function(void **function, void *module, const char *name)
{
    for (int i = 0; i < fake_cuda.nkernels; i++)
        if (!strcmp(fake_cuda.kernel[i].name, name)) {
            *function = &fake_cuda.kernel[i];
            return 0;
        }
    *function = module;
    return strcmp(name, "f") ? 500 : 0;
}

static int allocate(unsigned long long *memory, size_t bytes)
{
    if (!bytes)
        return 1;
    if (fake_cuda.most_bytes && fake_cuda.bytes + (int64_t)bytes > fake_cuda.most_bytes)
        return 2;
    char *block = aligned_alloc(256, ((bytes + 255) / 256 + 1) * 256);
    memcpy(block, &bytes, sizeof bytes);
    memset(block + 256, 0xa5, bytes); /* nobody may count on zeros */
    *memory = (uintptr_t)block + 256;
    fake_cuda.bytes += (int64_t)bytes;
    fake_cuda.memory++;
    return 0;
}

static void release(unsigned long long memory)
{
    size_t bytes;
    char *block = (char *)(uintptr_t)memory - 256;
    memcpy(&bytes, block, sizeof bytes);
    fake_cuda.bytes -= (int64_t)bytes;
    fake_cuda.memory--;
    free(block);
}

static int begin_capture(stream *s, int mode)
{
    if (!s || s->capturing || mode != 1)
        return 901;
    s->capturing = 1;
    s->first = NULL;
    s->last = &s->first;
    fake_cuda.captures++;
    return 0;
}

static int end_capture(stream *s, void **graph)
{
    if (!s || !s->capturing)
        return 901;
    work **g = malloc(sizeof *g);
    *g = s->first;
    *graph = g;
    s->capturing = 0;
    s->first = NULL;
    fake_cuda.graphs++;
    return 0;
}

/* The graph's work goes over, as the test's graphs are used once. */
static int instantiate(void **exec, work **graph)
{
    work **e = malloc(sizeof *e);
    *e = *graph;
    *graph = NULL;
    *exec = e;
    fake_cuda.execs++;
    fake_cuda.instances++;
    return 0;
}

static int update(work **exec, work **graph)
{
    const work *a = *exec, *b = *graph;
    for (; a && b && !a->kernel == !b->kernel; a = a->next)
        b = b->next;
    if (a || b)
        return 910;
    free_work(*exec);
    *exec = *graph;
    *graph = NULL;
    fake_cuda.updates++;
    return 0;
}

static void replay(work **exec)
{
    for (const work *w = *exec; w; w = w->next)
        do_work(w);
    fake_cuda.replays++;
}

/* A capture that can't be ended well is over as well. */
static void drop_capture(void *handle)
{
    stream *s = stream_of(handle);
    free_work(s->first);
    s->first = NULL;
    s->capturing = 0;
}

/* ---- the driver's calls ---------------------------------------------------------------------------------------------------- */

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
CALL(cuModuleGetFunction, (void **function, void *module, const char *name), NEEDS_CONTEXT; return find_function(function, module, name))
CALL(cuModuleGetGlobal_v2, (unsigned long long *at, size_t *bytes, void *module, const char *name), NEEDS_CONTEXT; (void)module; 
     if (!strcmp(name, "tn_trapped")) { *at = (uintptr_t)&fake_cuda.trapped; *bytes = sizeof fake_cuda.trapped; return 0; }
     if (!strcmp(name, "tn_nowhere")) { *at = (uintptr_t)fake_cuda.nowhere; *bytes = sizeof fake_cuda.nowhere; return 0; }
     if (strcmp(name, "v")) return 500;
     *at = (uintptr_t)&fake_cuda; *bytes = 12)
CALL(cuFuncSetAttribute, (void *function, int attribute, int value), NEEDS_CONTEXT; (void)function; if (attribute != 8) return 1; fake_cuda.limit = value)
CALL(cuFuncGetAttribute, (int *value, int attribute, void *function), NEEDS_CONTEXT; (void)function; *value = attribute == 8 ? fake_cuda.limit : attribute || !fake_cuda.most_threads ? 100 + attribute : fake_cuda.most_threads)
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, void *function, int threads, size_t dynamic), NEEDS_CONTEXT; (void)function; (void)dynamic;
     *blocks = 2048 / threads)
CALL(cuMemAlloc_v2, (unsigned long long *memory, size_t bytes), NEEDS_CONTEXT; return allocate(memory, bytes))
CALL(cuMemFree_v2, (unsigned long long memory), NEEDS_CONTEXT; release(memory))
CALL(cuMemcpyHtoDAsync_v2, (unsigned long long to, const void *from, size_t n, void *s), NEEDS_CONTEXT; if (!n) return 1; fake_cuda.copies++;
     give(s, &(work){.to = (void *)(uintptr_t)to, .from = from, .bytes = n}))
CALL(cuMemcpyDtoHAsync_v2, (void *to, unsigned long long from, size_t n, void *s), NEEDS_CONTEXT; if (!n) return 1; fake_cuda.copies++;
     give(s, &(work){.to = to, .from = (void *)(uintptr_t)from, .bytes = n}))
CALL(cuMemcpyDtoDAsync_v2, (unsigned long long to, unsigned long long from, size_t n, void *s), NEEDS_CONTEXT; if (!n) return 1; fake_cuda.copies++;
     give(s, &(work){.to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .bytes = n}))
CALL(cuMemsetD8Async, (unsigned long long to, unsigned char value, size_t n, void *s), NEEDS_CONTEXT; if (!n) return 1;
     give(s, &(work){.to = (void *)(uintptr_t)to, .value = value, .bytes = n}))
CALL(cuStreamCreate, (void **s, unsigned flags), NEEDS_CONTEXT; if (flags != 1) return 1; *s = calloc(1, sizeof(stream)); fake_cuda.streams++)
CALL(cuStreamDestroy_v2, (void *s), NEEDS_CONTEXT; free_work(((stream *)s)->first); free(s); fake_cuda.streams--)
CALL(cuStreamSynchronize, (void *s), NEEDS_CONTEXT; (void)s)
CALL(cuStreamWaitEvent, (void *s, void *event, unsigned flags), NEEDS_CONTEXT; (void)s; if (!event || flags) return 1; fake_cuda.waits++)
CALL(cuEventCreate, (void **event, unsigned flags), NEEDS_CONTEXT; if (flags != 0 && flags != 2) return 1; *event = malloc(1); fake_cuda.events++)
CALL(cuEventDestroy_v2, (void *event), NEEDS_CONTEXT; free(event); fake_cuda.events--)
CALL(cuEventRecord, (void *event, void *s), NEEDS_CONTEXT; (void)s; if (!event) return 1)
CALL(cuEventSynchronize, (void *event), NEEDS_CONTEXT; if (!event) return 1)
CALL(cuEventElapsedTime, (float *milliseconds, void *start, void *end), NEEDS_CONTEXT; if (!start || !end) return 1; *milliseconds = 1.5f)
CALL(cuStreamBeginCapture_v2, (void *s, int mode), NEEDS_CONTEXT; return begin_capture(stream_of(s), mode))
int cuStreamEndCapture(void *s, void **graph);
int cuStreamEndCapture(void *s, void **graph)
{
    NEEDS_CONTEXT;
    if (!FAILS(cuStreamEndCapture))
        return end_capture(stream_of(s), graph);
    drop_capture(s);
    return fake_cuda.result;
}
CALL(cuGraphDestroy, (void *graph), NEEDS_CONTEXT; free_work(*(work **)graph); free(graph); fake_cuda.graphs--)
CALL(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags), NEEDS_CONTEXT; if (flags) return 1; return instantiate(exec, graph))
CALL(cuGraphExecUpdate_v2, (void *exec, void *graph, void *info), NEEDS_CONTEXT; if (!info) return 1; return update(exec, graph))
CALL(cuGraphExecDestroy, (void *exec), NEEDS_CONTEXT; free_work(*(work **)exec); free(exec); fake_cuda.execs--)
CALL(cuGraphLaunch, (void *exec, void *s), NEEDS_CONTEXT; if (stream_of(s) && stream_of(s)->capturing) return 900; replay(exec))
CALL(cuStreamIsCapturing, (void *s, int *status), NEEDS_CONTEXT; *status = stream_of(s) && stream_of(s)->capturing)
CALL(cuPointerGetAttribute, (void *value, int attribute, unsigned long long pointer), NEEDS_CONTEXT; if (attribute != 3 || pointer == fake_cuda.foreign) return 1;
     *(unsigned long long *)value = pointer)
CALL(cuTensorMapEncodeTiled, (unsigned char *out, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                              int interleave, int swizzle, int promotion, int outside), NEEDS_CONTEXT;
     return encode(out, type, rank, address, sizes, strides, box, steps, (int[]){interleave, swizzle, promotion, outside}))
CALL(cuGetErrorName, (int result, const char **name), fake_cuda.told_inside += fake_cuda.pushed != 0; if (result == 12345) return 1; *name = result == 2 ? "FAKE_OUT_OF_MEMORY" : "FAKE_ERROR")
CALL(cuGetErrorString, (int result, const char **text), if (result == 12345) return 1; *text = result == 2 ? "all is taken" : "went wrong")
CALL(cuDeviceGetAttribute, (int *value, int attribute, int device), (void)device;
     switch (attribute) { case 16: *value = 80; break; case 38: *value = 6 << 20; break; case 75: *value = 9; break; case 76: *value = 0; break; case 82: *value = 65536; break;
                          case 97: *value = 232448; break; default: return 1; })
CALL(cuModuleLoadDataEx, (void **module, const void *image, unsigned n, int *options, void **values), NEEDS_CONTEXT; if (!strncmp(image, "bad", 3)) {
    if (n == 2 && options[0] == 5 && options[1] == 6)
        snprintf(values[0], (uintptr_t)values[1], "line 1: no such thing as bad\n");
    return 218; } fake_cuda.image = image; *module = &fake_cuda; fake_cuda.modules++)
CALL(cuLaunchKernel, (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra),
     NEEDS_CONTEXT; if (extra) return 1; fake_cuda.launches++; fake_cuda.stream = s;
     fake_cuda.cluster = 0; memcpy(fake_cuda.launch, (unsigned[]){gx, gy, gz, bx, by, bz, shared}, sizeof fake_cuda.launch); return launch(function, gx, bx, s, params))
CALL(cuLaunchKernelEx, (const struct launch_config *l, void *function, void **params, void **extra), NEEDS_CONTEXT; if (extra || !note_attributes(l)) return 1;
     fake_cuda.launches++; fake_cuda.stream = l->stream; memcpy(fake_cuda.launch, l->number, sizeof fake_cuda.launch);
     return launch(function, l->number[0], l->number[3], l->stream, params))
