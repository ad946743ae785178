/* Kernels and copies that follow each other become a CUDA graph when they are the same for a second time: same grids, sizes and addresses. Starting a graph costs
 * the CPU about as much as starting one kernel.
 *
 * A section of a block remembers the last few keys it ran with. A key that is new is run plainly and remembered; when it comes again it is recorded, into
 * the graph of the key that it replaced where their shapes agree, which is much cheaper than a new one; from then on it is replayed. So addresses that change with
 * every run cost nothing, and those that take turns, or sizes that do, have a graph each. Host memory is no part of a section: copies from and to it stand
 * outside. A caller who captures the stream that it gave gets the steps, since no graph can be started into a capture. */
#include <string.h>

#include "run/device.h"

enum { FEWEST = 2 }; /* steps that are worth a graph */

static bool in_section(const tn_exec *exec, int step)
{
    tn_step_kind kind = exec->steps.at[step].step->kind;
    return kind == TN_STEP_KERNEL || kind == TN_STEP_COPY;
}

static size_t words_of(const tn_exec *exec, int step)
{
    const tn_exec_step *at = &exec->steps.at[step];
    return (size_t)at->step->nargs + (at->kernel >= 0 ? (size_t)exec->kernels.at[at->kernel].nsizes : 0) + 1;
}

static void prepare(struct tn_context *s, const tn_exec_block *block, int first)
{
    section *at = &s->gpu->section[block->step[first]];
    for (; first + at->n < block->n && in_section(s->exec, block->step[first + at->n]); at->n++)
        at->words += words_of(s->exec, block->step[first + at->n]);
    if (at->n < FEWEST)
        return;
    at->key = TN_NEW_ARRAY(&s->arena, uint64_t, at->words);
    for (int i = 0; i < REPLAYS; i++)
        at->replay[i].key = TN_NEW_ARRAY(&s->arena, uint64_t, at->words);
}

void tn_replay_prepare(struct tn_context *s)
{
    const tn_exec *exec = s->exec;
    s->gpu->section = TN_NEW_ARRAY(&s->arena, section, exec->steps.len + 1);
    for (size_t b = 0; b < exec->blocks.len; b++) {
        const tn_exec_block *block = &exec->blocks.at[b];
        for (int i = 0; i < block->n; i++)
            if (in_section(exec, block->step[i]) && (i == 0 || !in_section(exec, block->step[i - 1])))
                prepare(s, block, i);
    }
}

void tn_replay_free(struct tn_context *s)
{
    tn_session quiet = {.errors = 0};
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    for (size_t i = 0; s->gpu->section && i < s->exec->steps.len; i++)
        for (int k = 0; k < REPLAYS; k++)
            tn_gpu_graph_free(&quiet, s->gpu->exec->gpu, s->gpu->section[i].replay[k].graph);
    tn_arena_free(&quiet.arena);
}

static void write_key(const struct tn_context *s, const int *steps, const section *at)
{
    uint64_t *word = at->key;
    for (int i = 0; i < at->n; i++) {
        const tn_exec_step *step = &s->exec->steps.at[steps[i]];
        const tn_launch *l = &s->launch[steps[i]];
        for (int a = 0; a < step->step->nargs; a++)
            *word++ = (uintptr_t)tn_state_argument(s, steps[i], a);
        for (int k = 0; step->kernel >= 0 && k < s->exec->kernels.at[step->kernel].nsizes; k++)
            *word++ = (uint64_t)l->sizes[k];
        *word++ = step->kernel >= 0 ? (uint64_t)l->programs : (uint64_t)s->layout.bytes[step->step->args[0]];
    }
}

static tn_status run_plainly(struct tn_context *s, const int *steps, int n)
{
    tn_status status = TN_OK;
    s->gpu->in_section = true;
    s->gpu->behind_kernel = false;
    for (int i = 0; i < n && status == TN_OK; i++)
        status = tn_device_step(s, steps[i]);
    s->gpu->in_section = s->gpu->behind_kernel = false;
    return status;
}

static void stop_recording(struct tn_context *s)
{
    if (s->gpu->recording)
        tn_gpu_capture_drop(s->gpu->exec->gpu, s->gpu->recorder);
    s->gpu->recording = false;
}

void tn_state_stop_recording(struct tn_context *s)
{
    if (!s->gpu)
        return;
    stop_recording(s);
    s->gpu->in_section = s->gpu->behind_kernel = false;
}

static tn_status record(struct tn_context *s, const int *steps, int n, replay *r)
{
    const tn_gpu *gpu = s->gpu->exec->gpu;
    TN_TRY(tn_gpu_capture(&s->session, gpu, s->gpu->recorder));
    s->gpu->recording = true;
    tn_status status = run_plainly(s, steps, n);
    if (status == TN_OK)
        status = tn_gpu_capture_end(&s->session, gpu, s->gpu->recorder, &r->graph);
    if (status != TN_OK)
        stop_recording(s);
    s->gpu->recording = false;
    r->ready = status == TN_OK;
    return status;
}

/* The entry of the key; if there is none, the one that was not used for longest, as the key's now. */
static replay *find(section *at, bool *known)
{
    replay *oldest = &at->replay[0];
    for (int i = 0; i < REPLAYS; i++) {
        replay *r = &at->replay[i];
        *known = r->used && !memcmp(r->key, at->key, sizeof *at->key * at->words);
        if (*known)
            return r;
        oldest = r->used < oldest->used ? r : oldest;
    }
    memcpy(oldest->key, at->key, sizeof *at->key * at->words);
    oldest->ready = false;
    return oldest;
}

tn_status tn_replay_section(struct tn_context *s, const int *steps, const section *at)
{
    bool known;
    if (at->n < FEWEST || (s->gpu->stream != s->gpu->own && tn_gpu_is_captured(s->gpu->exec->gpu, s->gpu->stream)))
        return run_plainly(s, steps, at->n);
    write_key(s, steps, at);
    replay *r = find(&s->gpu->section[steps[0]], &known);
    r->used = ++s->gpu->clock;
    if (!known)
        return run_plainly(s, steps, at->n);
    if (!r->ready)
        TN_TRY(record(s, steps, at->n, r));
    return tn_gpu_graph_launch(&s->session, s->gpu->exec->gpu, r->graph, s->gpu->stream);
}
