#include "loop/races.h"

void tn_races_begin(tn_races *races, tn_arena *arena, size_t shared_bytes, int cluster_threads)
{
    *races = (tn_races){.arena = arena, .epoch = 1, .bytes = shared_bytes, .cluster_threads = cluster_threads, .global = {.arena = arena}};
    if (shared_bytes)
        races->shared = TN_NEW_ARRAY(arena, tn_touched, shared_bytes);
}

void tn_races_barrier(tn_races *races)
{
    races->epoch++;
}

void tn_races_new_cta(tn_races *races)
{
    races->epoch++;
    races->cta++;
}

void tn_races_forget(tn_races *races, size_t byte, size_t n)
{
    for (size_t i = byte; i < byte + n; i++)
        races->shared[i].written = 0;
}

bool tn_races_written(const tn_races *races, size_t byte, size_t n)
{
    for (size_t i = byte; i < byte + n; i++)
        if (races->shared[i].written != races->cta)
            return false;
    return true;
}

/* Another thread that touched it this way in this epoch, or -1. */
static int another(const tn_races *races, const tn_toucher *by, int thread)
{
    if (by->epoch != races->epoch)
        return -1;
    return by->thread != thread ? by->thread : by->other;
}

static const bool races_with[3][3] = {
    [TN_TOUCH_READ] = {[TN_TOUCH_WRITE] = true, [TN_TOUCH_ATOMIC] = true},
    [TN_TOUCH_WRITE] = {true, true, true},
    [TN_TOUCH_ATOMIC] = {[TN_TOUCH_READ] = true, [TN_TOUCH_WRITE] = true},
};

static int touch(const tn_races *races, tn_touched *t, int thread, tn_touch how)
{
    for (int k = 0; k < 3; k++) {
        int other = races_with[how][k] ? another(races, &t->by[k], thread) : -1;
        if (other >= 0)
            return other;
    }
    tn_toucher *mine = &t->by[how];
    if (mine->epoch != races->epoch)
        *mine = (tn_toucher){races->epoch, (int16_t)thread, -1};
    else if (mine->thread != thread)
        mine->other = mine->thread, mine->thread = (int16_t)thread;
    if (how != TN_TOUCH_READ)
        t->written = races->cta;
    return -1;
}

int tn_races_shared(tn_races *races, size_t byte, size_t n, int thread, tn_touch how)
{
    int other = -1;
    for (size_t i = byte; i < byte + n && other < 0; i++)
        other = touch(races, &races->shared[i], thread, how);
    return other;
}

/* The first thread of another CTA of the cluster that touched it in this program, or -1. */
static int another_cta(const tn_races *races, tn_touched *t, int thread, tn_touch how)
{
    unsigned cta = (unsigned)(thread / races->cluster_threads), others = 0;
    if (t->program != races->cta)
        *t = (tn_touched){.program = races->cta};
    for (int k = 0; k < 3; k++)
        others |= races_with[how][k] ? t->ctas[k] & ~(1u << cta) : 0;
    t->ctas[how] |= (uint8_t)(1u << cta);
    return others ? __builtin_ctz(others) * races->cluster_threads : -1;
}

int tn_races_global(tn_races *races, uintptr_t address, int thread, tn_touch how)
{
    void **cell = tn_map_at(&races->global, (uint64_t)address);
    if (!*cell)
        *cell = TN_NEW(races->arena, tn_touched);
    int other = races->cluster_threads ? another_cta(races, *cell, thread, how) : -1;
    return other >= 0 ? other : touch(races, *cell, thread, how);
}
