/* Random numbers whose shape is known: drawn while importing, by all threads, so that a weight that a seed stands for is as any other constant. The numbers
 * are those that emit_uniform and emit_normal describe as operations (Threefry-2x32 with 20 rounds of each element's position), to the last place of a float. */
#include <math.h>
#include <string.h>

#include "import/onnx/internal.h"

enum { TASK_ELEMENTS = 1 << 16 };
static const uint64_t DRAWN_BYTES = UINT64_C(8) << 30; /* of one network; what goes beyond is drawn at load, by a kernel */

typedef struct drawing_task {
    const onnx_drawing *drawing;
    tn_dtype dtype;
    int64_t count;
    void *to;
} drawing_task;

enum { LANES = 64 }; /* numbers at a time: loops of a length that is known become vectors */

typedef struct words {
    uint32_t a[LANES], b[LANES];
} words;

static inline void mix(words *x, int by)
{
    for (int i = 0; i < LANES; i++) {
        x->a[i] += x->b[i];
        x->b[i] = (x->b[i] << by | x->b[i] >> (32 - by)) ^ x->a[i];
    }
}

static inline void add_key(words *x, uint32_t a, uint32_t b)
{
    for (int i = 0; i < LANES; i++) {
        x->a[i] += a;
        x->b[i] += b;
    }
}

/* Two random words of each of LANES positions from `at` on, as multiples of 2^-24 in [0, 1). */
static void draw_words(uint64_t key, uint64_t at, float *restrict u, float *restrict v)
{
    const uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};
    words x;
    for (int i = 0; i < LANES; i++) {
        uint64_t position = at + (uint64_t)i;
        x.a[i] = (uint32_t)position;
        x.b[i] = (uint32_t)(position >> 32);
    }
    add_key(&x, k0, k1);
    for (uint32_t turn = 1; turn <= 5; turn++) {
        bool odd = turn % 2;
        mix(&x, odd ? 13 : 17), mix(&x, odd ? 15 : 29), mix(&x, odd ? 26 : 16), mix(&x, odd ? 6 : 24);
        add_key(&x, keys[turn % 3], keys[(turn + 1) % 3] + turn);
    }
    for (int i = 0; i < LANES; i++) {
        u[i] = (float)(int32_t)(x.a[i] >> 8) * 0x1p-24f;
        v[i] = (float)(int32_t)(x.b[i] >> 8) * 0x1p-24f;
    }
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static void store_drawn(const drawing_task *task, int64_t at, int n, const float *x)
{
    if (task->dtype == TN_F32) {
        memcpy((float *)task->to + at, x, sizeof *x * (size_t)n);
        return;
    }
    for (int i = 0; i < n; i++)
        if (task->dtype == TN_BF16)
            ((uint16_t *)task->to)[at + i] = bf16_of(x[i]);
        else
            tn_number_store(task->dtype, task->to, at + i, tn_number_from_double(task->dtype, (double)x[i]));
}

static void draw_part(void *context, size_t part)
{
    const drawing_task *task = context;
    const onnx_drawing *d = task->drawing;
    float u[LANES], v[LANES];
    int64_t end = tn_min(((int64_t)part + 1) * TASK_ELEMENTS, task->count);
    for (int64_t at = (int64_t)part * TASK_ELEMENTS; at < end; at += LANES) {
        int n = (int)tn_min(LANES, end - at);
        draw_words(d->key, (uint64_t)at, u, v);
        for (int i = 0; i < n; i++) {
            float x = d->normal ? sqrtf(-2 * logf(1 - u[i])) * cosf((float)(2 * M_PI) * v[i]) : u[i];
            x *= d->scale;
            u[i] = x + d->offset;
        }
        store_drawn(task, at, n, u);
    }
}

tn_value *onnx_draw(onnx_ctx *c, const onnx_drawing *drawing, tn_dtype dtype, const tn_dim *dims, int rank)
{
    tn_tensor *t = TN_NEW(&c->session->arena, tn_tensor);
    size_t bytes;
    int64_t count;
    bool wide = dtype == TN_F64; /* the mean and the scale are f32 all the same, and so are the numbers */
    t->dtype = dtype;
    t->rank = rank;
    for (int i = 0; i < rank; i++)
        t->dim[i] = dims[i]->value;
    if (wide || !tn_is_float(dtype) || tn_dtype_bits(dtype) < 8 || !tn_tensor_count(t, &count) || !tn_dtype_bytes(dtype, count, &bytes))
        return NULL;
    uint64_t most = c->options && c->options->fold_bytes ? c->options->fold_bytes : DRAWN_BYTES;
    if (bytes > most || c->drawn > most - bytes)
        return NULL;
    c->drawn += bytes;
    void *to = tn_alloc_aligned(&c->session->arena, bytes + 1, 64);
    drawing_task task = {drawing, dtype, count, to};
    tn_parallel_for(count > TASK_ELEMENTS ? tn_cpu_count() : 1, (size_t)tn_ceildiv(count, TASK_ELEMENTS), draw_part, &task);
    t->data = to;
    return tn_constant(&c->b, t);
}
