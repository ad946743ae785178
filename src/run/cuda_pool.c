/* Memory of a GPU that is kept for the next who asks. Plain allocations of the driver: its own pools are per device and shared with the whole process, and what
 * they keep nobody sees. Nothing here jumps while the lock is held: diagnostics come after it. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "run/cuda_driver.h"

enum { SMALLEST = 512, BUCKETS = 64 };

typedef struct block {
    struct block *next;
    CUdeviceptr at;
    int64_t bytes;   /* of its class */
    CUstream stream; /* unused: where it was used last */
    CUevent event;   /* unused: the end of that use; made when it is first needed */
    bool idle;       /* unused, and nothing on any stream has it still before it */
} block;

struct tn_gpu_pool {
    tn_gpu gpu;
    _Atomic int holders;
    pthread_mutex_t lock;
    block *used[BUCKETS];
    block *unused[BUCKETS]; /* by class */
    tn_gpu_pool_info info;
};

/* ---- classes --------------------------------------------------------------------------------------------------------------- */

/* Rounds up to a multiple of an eighth of the power of two below; -1: too large. */
static int64_t class_of(int64_t bytes)
{
    if (bytes <= SMALLEST)
        return SMALLEST;
    if (bytes > INT64_MAX / 2)
        return -1;
    int64_t step = tn_max(((int64_t)1 << (63 - __builtin_clzll((unsigned long long)bytes - 1))) / 8, SMALLEST);
    return (bytes + step - 1) / step * step;
}

static block **bucket_of_class(tn_gpu_pool *pool, int64_t class) { return &pool->unused[tn_hash_u64((uint64_t)class) % BUCKETS]; }
static block **bucket_of_address(tn_gpu_pool *pool, CUdeviceptr at) { return &pool->used[tn_hash_u64(at) % BUCKETS]; }

static void put(block **list, block *b)
{
    b->next = *list;
    *list = b;
}

/* ---- the pool ----------------------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_pool_new(tn_session *session, int device, tn_gpu_pool **out)
{
    tn_gpu gpu;
    TN_TRY(tn_gpu_open(session, device, &gpu));
    tn_gpu_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        tn_gpu_close(session, &gpu);
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for a pool of a GPU's memory");
    }
    pool->gpu = gpu;
    pool->holders = 1;
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return TN_OK;
}

const tn_gpu *tn_gpu_pool_gpu(const tn_gpu_pool *pool) { return &pool->gpu; }

void tn_gpu_pool_hold(tn_gpu_pool *pool) { atomic_fetch_add(&pool->holders, 1); }

/* Within the context. The driver waits for work on the memory before it takes it back. */
static void free_block(block *b)
{
    if (b->event)
        tn_cuda.cuEventDestroy_v2(b->event);
    tn_cuda.cuMemFree_v2(b->at);
    free(b);
}

static void free_list(block **list)
{
    for (block *b = *list, *next; b; b = next) {
        next = b->next;
        free_block(b);
    }
    *list = NULL;
}

void tn_gpu_pool_drop(tn_gpu_pool *pool)
{
    tn_cuda_visit v;
    if (!pool || atomic_fetch_sub(&pool->holders, 1) != 1)
        return;
    tn_cuda_enter(&v, &pool->gpu);
    for (int i = 0; i < BUCKETS; i++) {
        free_list(&pool->unused[i]);
        free_list(&pool->used[i]);
    }
    tn_cuda_leave_quietly(&v);
    tn_cuda.cuDevicePrimaryCtxRelease_v2(pool->gpu.device);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void tn_gpu_pool_trim(tn_gpu_pool *pool)
{
    block *all = NULL;
    tn_cuda_visit v;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; i < BUCKETS; i++)
        for (block *b = pool->unused[i], *next; b; b = next) {
            next = b->next;
            put(&all, b);
            pool->unused[i] = NULL;
        }
    pool->info.unused = 0;
    pthread_mutex_unlock(&pool->lock);
    tn_cuda_enter(&v, &pool->gpu);
    free_list(&all);
    tn_cuda_leave_quietly(&v);
}

tn_gpu_pool_info tn_gpu_pool_state(tn_gpu_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    tn_gpu_pool_info info = pool->info;
    pthread_mutex_unlock(&pool->lock);
    return info;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------- */

/* One of this class that is unused: best of the same stream, else one that nothing uses any more, else the one that was given back first. */
static block *find_unused(tn_gpu_pool *pool, int64_t class, CUstream stream)
{
    block **best = NULL;
    for (block **at = bucket_of_class(pool, class); *at; at = &(*at)->next) {
        if ((*at)->bytes != class)
            continue;
        bool same = !(*at)->idle && (*at)->stream == stream;
        if (same || !best || (*at)->idle || !(*best)->idle)
            best = at;
        if (same)
            break;
    }
    block *found = best ? *best : NULL;
    if (found)
        *best = found->next;
    return found;
}

static void keep_used(tn_gpu_pool *pool, block *b)
{
    put(bucket_of_address(pool, b->at), b);
    pool->info.used += b->bytes;
}

static block *take_unused(tn_gpu_pool *pool, int64_t class, CUstream stream)
{
    pthread_mutex_lock(&pool->lock);
    block *b = find_unused(pool, class, stream);
    if (b) {
        pool->info.unused -= b->bytes;
        keep_used(pool, b);
    }
    pthread_mutex_unlock(&pool->lock);
    return b;
}

static tn_status allocate(tn_session *session, tn_gpu_pool *pool, int64_t class, CUdeviceptr *out)
{
    tn_cuda_visit v;
    block *b = malloc(sizeof *b);
    if (!b)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for a block's description");
    *b = (block){.bytes = class};
    if (tn_cuda_enter(&v, &pool->gpu) && tn_cuda.cuMemAlloc_v2(&b->at, (size_t)class) != CUDA_SUCCESS) {
        tn_gpu_pool_trim(pool);
        TN_CUDA(&v, cuMemAlloc_v2, &b->at, (size_t)class);
    }
    if (v.result != CUDA_SUCCESS) {
        free(b);
        return tn_cuda_leave(session, &v);
    }
    pthread_mutex_lock(&pool->lock);
    keep_used(pool, b);
    pool->info.allocations++;
    pthread_mutex_unlock(&pool->lock);
    *out = b->at; /* the pool has the block, whatever comes now */
    return tn_cuda_leave(session, &v);
}

tn_status tn_gpu_pool_take(tn_session *session, tn_gpu_pool *pool, int64_t bytes, CUstream stream, CUdeviceptr *out)
{
    int64_t class = class_of(bytes);
    *out = 0;
    if (class < 0)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %lld bytes on %s", (long long)bytes, pool->gpu.info.name);
    block *b = take_unused(pool, class, stream);
    if (!b)
        return allocate(session, pool, class, out);
    *out = b->at;
    return b->idle || b->stream == stream ? TN_OK : tn_gpu_stream_wait(session, &pool->gpu, stream, b->event);
}

/* Marks the end of its use. False: it can't be marked, so nobody else may have it. */
static bool mark(tn_gpu_pool *pool, block *b, CUstream stream)
{
    tn_cuda_visit v;
    if (tn_cuda_enter(&v, &pool->gpu) && (b->event || TN_CUDA(&v, cuEventCreate, &b->event, EVENT_DISABLE_TIMING)))
        TN_CUDA(&v, cuEventRecord, b->event, stream);
    if (v.result != CUDA_SUCCESS && v.inside)
        free_block(b);
    tn_cuda_leave_quietly(&v);
    return v.result == CUDA_SUCCESS;
}

static block *take_used(tn_gpu_pool *pool, CUdeviceptr memory)
{
    pthread_mutex_lock(&pool->lock);
    block **at = bucket_of_address(pool, memory), *b;
    while (*at && (*at)->at != memory)
        at = &(*at)->next;
    assert(*at);
    b = *at;
    *at = b->next;
    pool->info.used -= b->bytes;
    pthread_mutex_unlock(&pool->lock);
    return b;
}

static void keep_unused(tn_gpu_pool *pool, block *b, CUstream stream, bool idle)
{
    pthread_mutex_lock(&pool->lock);
    b->stream = stream;
    b->idle = idle;
    put(bucket_of_class(pool, b->bytes), b);
    pool->info.unused += b->bytes;
    pthread_mutex_unlock(&pool->lock);
}

void tn_gpu_pool_give(tn_gpu_pool *pool, CUdeviceptr memory, CUstream stream)
{
    block *b = memory ? take_used(pool, memory) : NULL;
    if (b && mark(pool, b, stream))
        keep_unused(pool, b, stream, false);
}

void tn_gpu_pool_give_idle(tn_gpu_pool *pool, CUdeviceptr memory)
{
    if (memory)
        keep_unused(pool, take_used(pool, memory), NULL, true);
}

void tn_gpu_pool_forget(tn_gpu_pool *pool, CUstream stream)
{
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; i < BUCKETS; i++)
        for (block *b = pool->unused[i]; b; b = b->next)
            b->idle = b->idle || b->stream == stream;
    pthread_mutex_unlock(&pool->lock);
}
