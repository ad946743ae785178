/* Parameters of a launch on a GPU. A map is made from a view whose place and sizes the launch says, and costs about a microsecond: so the last ones are kept with the
 * addresses and sizes they are for.
 *
 * CUDA has no map of a view without elements. Such a one gets one element of the module's own memory, which is 0 where it is read and nobody's where it is written,
 * so that what lies outside of the view still reads as 0. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "run/arguments.h"
#include "run/internal.h"

/* Numbers of the driver's binary interface. */
enum { MAP_U8 = 0, MAP_U16 = 1, MAP_U32 = 2, MAP_U64 = 4, MAP_F16 = 6, MAP_F32 = 7, MAP_BF16 = 9 };
enum { NO_INTERLEAVE = 0, PROMOTE_256 = 3, OUTSIDE_ZERO = 0 };
enum { PIECE = 16 /* bytes that starts and strides are multiples of */ };
static const int64_t most_size = UINT32_MAX, most_stride = INT64_C(1) << 40; /* elements, bytes */

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------- */

tn_status tn_gpu_entry_prepare(tn_session *session, CUmodule module, tn_gpu_entry *entry)
{
    int64_t bytes;
    if (!entry->nmaps)
        return TN_OK;
    if (!tn_cuda.cuTensorMapEncodeTiled)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel %s takes tensor maps, and the driver lacks cuTensorMapEncodeTiled: it is too old", entry->symbol);
    return tn_gpu_global(session, entry->gpu, module, TN_NOWHERE, &entry->nowhere, &bytes);
}

/* ---- one map -------------------------------------------------------------------------------------------------------------------- */

/* As cuTensorMapEncodeTiled takes it. */
typedef struct tiled {
    CUdeviceptr address;
    uint64_t size[TN_MAP_RANK], stride[TN_MAP_RANK]; /* bytes, from the second dimension's on */
} tiled;

typedef struct launch {
    const tn_gpu_entry *entry;
    const uint64_t *values;
    char *error;
    size_t error_size;
} launch;

static bool size_by_name(void *context, const char *name, int64_t *out)
{
    const launch *l = context;
    for (int i = 0; i < l->entry->nsizes; i++)
        if (l->entry->size[i] && !strcmp(l->entry->size[i], name)) {
            *out = (int64_t)l->values[l->entry->nbuffers + i];
            return true;
        }
    return false;
}

static tn_status refuse(const launch *l, tn_status status, const tn_code_map *map, const char *format, ...) __attribute__((format(printf, 4, 5)));
static tn_status refuse(const launch *l, tn_status status, const tn_code_map *map, const char *format, ...)
{
    const char *buffer = l->entry->buffer[map->buffer];
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tn_launch_refuse(l->error, l->error_size, status, "kernel %s: %s: %s", l->entry->symbol, buffer ? buffer : "a buffer", what);
}

/* Of one element that is nowhere. */
static tn_status place_nowhere(const launch *l, const tn_code_map *map, tiled *out)
{
    if (map->how == (TN_PART_R | TN_PART_W))
        return refuse(l, TN_UNSUPPORTED, map, "a view without elements is read and written by one tensor map");
    out->address = l->entry->nowhere + (map->how & TN_PART_W ? TN_NOWHERE_BYTES / 2 : 0);
    for (int i = 0; i < map->view.rank; i++)
        out->size[i] = 1, out->stride[i] = PIECE;
    return TN_OK;
}

/* Where there is one element, it does not matter how far the next one is: behind all others is as good as any. */
static int64_t behind(const tiled *t, int i, int64_t bytes)
{
    int64_t all;
    if (i == 0)
        return PIECE;
    int64_t before = i == 1 ? bytes : (int64_t)t->stride[i - 1];
    return tn_mul((int64_t)t->size[i - 1], before, &all) && all < most_stride - PIECE ? (all + PIECE - 1) / PIECE * PIECE : PIECE;
}

static tn_status place_dimension(const launch *l, const tn_code_map *map, int i, int64_t size, int64_t stride, tiled *out)
{
    int64_t bytes = tn_dtype_bits(map->dtype) / 8, apart = behind(out, i, bytes);
    if (size > most_size)
        return refuse(l, TN_USAGE, map, "a tensor map has fewer than 2^32 elements along a dimension, found %lld", (long long)size);
    if (i > 0 && size > 1 && (!tn_mul(stride, bytes, &apart) || apart % PIECE || apart < 0 || apart >= most_stride))
        return refuse(l, TN_USAGE, map, "a tensor map takes strides that are multiples of %d bytes below 2^40, found %lld elements of %lld bytes", PIECE, (long long)stride,
                      (long long)bytes);
    out->size[i] = (uint64_t)size;
    out->stride[i] = (uint64_t)apart;
    return TN_OK;
}

static tn_status place(const launch *l, const tn_code_map *map, tiled *out)
{
    int64_t offset, size[TN_MAP_RANK], stride[TN_MAP_RANK], bytes = tn_dtype_bits(map->dtype) / 8;
    bool known = tn_dim_eval(map->view.offset, size_by_name, (void *)(uintptr_t)l, &offset) && tn_mul(offset, bytes, &offset), empty = false;
    for (int i = 0; known && i < map->view.rank; i++) {
        known = tn_dim_eval(map->view.size[i], size_by_name, (void *)(uintptr_t)l, &size[i]) && tn_dim_eval(map->view.stride[i], size_by_name, (void *)(uintptr_t)l, &stride[i]);
        empty = empty || (known && size[i] <= 0);
    }
    if (!known)
        return refuse(l, TN_USAGE, map, "the sizes of a tensor map overflow");
    if (empty)
        return place_nowhere(l, map, out);
    out->address = l->values[map->buffer] + (CUdeviceptr)offset;
    if (out->address % PIECE)
        return refuse(l, TN_USAGE, map, "a tensor map starts at an address that %d divides, found %#llx", PIECE, out->address);
    for (int i = 0; i < map->view.rank; i++)
        TN_TRY(place_dimension(l, map, i, size[i], stride[i], out));
    return TN_OK;
}

static int type_of(tn_dtype dtype)
{
    static const int floats[TN_DTYPE_COUNT] = {[TN_F16] = MAP_F16, [TN_BF16] = MAP_BF16, [TN_F32] = MAP_F32};
    int bytes = tn_dtype_bits(dtype) / 8;
    return floats[dtype] ? floats[dtype] : bytes == 1 ? MAP_U8 : bytes == 2 ? MAP_U16 : bytes == 4 ? MAP_U32 : MAP_U64;
}

static bool encode(tn_cuda_visit *v, const tn_code_map *map, const tiled *t, tn_tensor_map *out)
{
    static const uint32_t steps[TN_MAP_RANK] = {1, 1, 1, 1, 1};
    uint32_t box[TN_MAP_RANK];
    int swizzle = map->view.swizzle == 128 ? 3 : map->view.swizzle / 32;
    for (int i = 0; i < map->view.rank; i++)
        box[i] = (uint32_t)map->view.box[i];
    return TN_CUDA(v, cuTensorMapEncodeTiled, out, type_of(map->dtype), (unsigned)map->view.rank, (void *)(uintptr_t)t->address, t->size, t->stride + 1, box, steps, NO_INTERLEAVE,
                   swizzle, PROMOTE_256, OUTSIDE_ZERO);
}

static tn_status encode_all(const launch *l, tn_tensor_map *out)
{
    tiled at[TN_MOST_MAPS];
    tn_cuda_visit v;
    int i;
    for (i = 0; i < l->entry->nmaps; i++)
        TN_TRY(place(l, &l->entry->map[i], &at[i]));
    i = 0;
    if (tn_cuda_enter(&v, l->entry->gpu))
        while (i < l->entry->nmaps && encode(&v, &l->entry->map[i], &at[i], &out[i]))
            i++;
    tn_cuda_leave_quietly(&v);
    if (v.result == CUDA_SUCCESS)
        return TN_OK;
    char words[128];
    tn_cuda_words(v.result, words, sizeof words);
    return refuse(l, TN_INVALID, &l->entry->map[tn_min(i, l->entry->nmaps - 1)], "%s failed: %s", v.call, words);
}

/* ---- those of the last launch ------------------------------------------------------------------------------------------------------ */

struct tn_gpu_encoded {
    atomic_flag busy;
    bool known;
    uint64_t *key; /* addresses and sizes */
    unsigned char (*map)[sizeof(tn_tensor_map)];
};

tn_gpu_encoded *tn_gpu_encoded_new(tn_arena *arena, const tn_gpu_entry *entry)
{
    if (!entry->nmaps)
        return NULL;
    tn_gpu_encoded *e = TN_NEW(arena, tn_gpu_encoded);
    atomic_flag_clear(&e->busy);
    e->key = TN_NEW_ARRAY(arena, uint64_t, tn_gpu_entry_values(entry));
    e->map = tn_alloc(arena, sizeof *e->map * (size_t)entry->nmaps);
    return e;
}

/* Whoever finds another thread here makes its own. */
static tn_status find_maps(const launch *l, tn_gpu_encoded *e, tn_tensor_map *out)
{
    size_t key = sizeof *e->key * (tn_gpu_entry_values(l->entry) - 2), all = sizeof *e->map * (size_t)l->entry->nmaps;
    bool ours = !atomic_flag_test_and_set_explicit(&e->busy, memory_order_acquire), known = ours && e->known && !memcmp(e->key, l->values, key);
    if (known)
        memcpy(out, e->map, all);
    tn_status status = known ? TN_OK : encode_all(l, out);
    if (ours && !known && status == TN_OK) {
        memcpy(e->key, l->values, key);
        memcpy(e->map, out, all);
        e->known = true;
    }
    if (ours)
        atomic_flag_clear_explicit(&e->busy, memory_order_release);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------------- */

/* Where there are more programs than blocks, each block walks on by the number of blocks; it counts in 32 bits. */
tn_status tn_gpu_arguments(const tn_gpu_entry *entry, tn_gpu_encoded *encoded, uint64_t *values, int64_t programs, tn_tensor_map *maps, void **params, unsigned *blocks, char *error,
                           size_t error_size)
{
    size_t n = tn_gpu_entry_values(entry);
    int64_t ctas = tn_max(entry->cluster, 1), most = entry->persistent ? (int64_t)entry->persistent * tn_max(entry->gpu->info.processors, 1) : INT32_MAX;
    if (programs > UINT32_MAX)
        return tn_launch_refuse(error, error_size, TN_USAGE, "kernel %s: a launch on a GPU has fewer than 2^32 programs, found %lld", entry->symbol, (long long)programs);
    if (entry->cluster && programs > INT32_MAX / ctas) /* what they pass each other is there for one program */
        return tn_launch_refuse(error, error_size, TN_USAGE, "kernel %s: a launch of clusters of %d has at most %lld programs, found %lld", entry->symbol, entry->cluster,
                                (long long)(INT32_MAX / ctas), (long long)programs);
    values[n - 2] = 0;
    values[n - 1] = (uint64_t)programs;
    for (size_t i = 0; i < n; i++)
        params[i] = &values[i];
    for (int i = 0; i < entry->nmaps; i++)
        params[n + (size_t)i] = &maps[i];
    *blocks = (unsigned)tn_min(programs * ctas, tn_min(most, INT32_MAX));
    return entry->nmaps ? find_maps(&(launch){entry, values, error, error_size}, encoded, maps) : TN_OK;
}
