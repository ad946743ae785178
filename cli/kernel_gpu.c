/* What `tenon kernel` does with a GPU: arguments in its memory, and times by its own clock. All is put into the default stream. */
#include <stdlib.h>

#include "cli.h"
#include "run/cuda.h"

enum { LEAST_SAMPLES = 3, TRIAL = 5 };
static const int64_t flush_bytes = 256 << 20; /* more than any L2 cache */

tn_status cli_gpu_upload(tn_session *session, const tn_gpu *gpu, cli_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TN_TRY(tn_gpu_alloc(session, gpu, (int64_t)blocks[i].bytes, &blocks[i].device));
        TN_TRY(tn_gpu_copy_in(session, gpu, blocks[i].device, blocks[i].host, (int64_t)blocks[i].bytes, NULL));
    }
    return tn_gpu_wait(session, gpu, NULL);
}

tn_status cli_gpu_download(tn_session *session, const tn_gpu *gpu, const cli_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TN_TRY(tn_gpu_copy_out(session, gpu, blocks[i].host, blocks[i].device, (int64_t)blocks[i].bytes, NULL));
    return tn_gpu_wait(session, gpu, NULL);
}

void cli_gpu_free(tn_session *session, const tn_gpu *gpu, cli_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tn_gpu_free(session, gpu, blocks[i].device);
        blocks[i].device = 0;
    }
}

/* ---- timing --------------------------------------------------------------------------------------------------------------------- */

typedef struct timing {
    tn_session *session;
    const tn_gpu *gpu;
    cli_launch launch;
    void *context;
    CUdeviceptr flush;
    CUevent *event; /* before and after each sample */
} timing;

/* Launches n times, each into an L2 cache that holds nothing of its arguments. */
static tn_status launch_all(const timing *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TN_TRY(tn_gpu_fill(t->session, t->gpu, t->flush, 0, flush_bytes, NULL));
        TN_TRY(tn_gpu_event_record(t->session, t->gpu, t->event[2 * i], NULL));
        TN_TRY(t->launch(t->context));
        TN_TRY(tn_gpu_event_record(t->session, t->gpu, t->event[2 * i + 1], NULL));
    }
    return tn_gpu_wait(t->session, t->gpu, NULL);
}

static tn_status measure(const timing *t, double seconds, double *samples, size_t most, size_t *out)
{
    double one, start = tn_seconds(), warm = seconds / 10;
    for (size_t i = 0; i < 2 * most; i++)
        TN_TRY(tn_gpu_event_new(t->session, t->gpu, true, &t->event[i]));
    do {
        TN_TRY(launch_all(t, TRIAL));
        TN_TRY(tn_gpu_event_seconds(t->session, t->gpu, t->event[0], t->event[2 * TRIAL - 1], &one));
    } while (tn_seconds() - start < warm);
    double wanted = one > 0 ? seconds / (one / TRIAL) : (double)most;
    size_t n = wanted < LEAST_SAMPLES ? LEAST_SAMPLES : wanted > (double)most ? most : (size_t)wanted;
    TN_TRY(launch_all(t, n));
    for (size_t i = 0; i < n; i++)
        TN_TRY(tn_gpu_event_seconds(t->session, t->gpu, t->event[2 * i], t->event[2 * i + 1], &samples[i]));
    *out = n;
    return TN_OK;
}

tn_status cli_gpu_measure(tn_session *session, const tn_gpu *gpu, cli_launch launch, void *context, double seconds, double *samples, size_t most, size_t *n)
{
    timing t = {.session = session, .gpu = gpu, .launch = launch, .context = context};
    TN_TRY(tn_gpu_alloc(session, gpu, flush_bytes, &t.flush));
    t.event = calloc(2 * most, sizeof *t.event);
    tn_status status = t.event ? measure(&t, seconds, samples, most, n) : TN_NO_MEMORY;
    for (size_t i = 0; t.event && i < 2 * most && t.event[i]; i++)
        tn_gpu_event_free(session, gpu, t.event[i]);
    free(t.event);
    tn_gpu_free(session, gpu, t.flush);
    return status;
}
