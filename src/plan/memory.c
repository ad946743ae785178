/* What a run needs, and the least that any placement could do with. */
#include <string.h>

#include "plan/internal.h"

void tn_layout_new(tn_arena *arena, const tn_exec *exec, tn_layout *out)
{
    size_t nbuffers = exec->program->buffers.len + 1, ngroups = (size_t)exec->ngroups;
    *out = (tn_layout){TN_NEW_ARRAY(arena, int64_t, nbuffers), TN_NEW_ARRAY(arena, int64_t, nbuffers), TN_NEW_ARRAY(arena, int64_t, nbuffers),
                       TN_NEW_ARRAY(arena, int64_t, ngroups), TN_NEW_ARRAY(arena, int64_t, ngroups)};
    for (size_t b = 0; b < nbuffers; b++)
        out->offset[b] = -1;
}

bool tn_plan_in_segment(const tn_exec *exec, size_t buffer)
{
    return exec->buffers[buffer].planned && exec->buffers[buffer].same_as < 0;
}

int64_t tn_layout_bound(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, int group, const bool *known, int *position)
{
    int64_t *change = TN_NEW_ARRAY(scratch, int64_t, (size_t)exec->positions + 2), alive = 0, most = 0;
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        const tn_exec_buffer *buffer = &exec->buffers[b];
        if (!tn_plan_in_segment(exec, b) || (group >= 0 ? buffer->group != group : !known[buffer->group]))
            continue;
        change[buffer->first] += tn_layout_rounded(layout->bytes[b]);
        change[buffer->last + 1] -= tn_layout_rounded(layout->bytes[b]);
    }
    if (position)
        *position = -1;
    for (int at = 0; at < exec->positions; at++) {
        alive += change[at];
        if (alive > most) {
            most = alive;
            if (position)
                *position = at;
        }
    }
    return most;
}

/* The step that stands at a position, the innermost one. */
static int step_at(const tn_exec *exec, int position)
{
    int low = 0, high = (int)exec->steps.len - 1; /* steps are in order of their first positions */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (exec->steps.at[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void tn_layout_sum(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, const bool *known, int64_t scratch_bytes, tn_run_memory *out)
{
    int position;
    *out = (tn_run_memory){.complete = true, .scratch = scratch_bytes, .weights = exec->machine->gpu ? 0 : (int64_t)exec->constant_bytes,
                           .packed = (int64_t)exec->owned_bytes + (exec->machine->gpu ? (int64_t)exec->constant_bytes : 0), .step = -1};
    for (int g = 0; g < exec->ngroups; g++) {
        out->complete &= known[g];
        out->arena += known[g] ? layout->segment[g] : 0;
    }
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        tn_pbuffer_kind kind = tn_plan_buffer(exec, (int)b)->kind;
        int64_t bytes = known[exec->buffers[b].group] ? layout->bytes[b] : 0;
        out->total += exec->buffers[b].planned ? bytes : 0;
        out->inputs += kind == TN_B_INPUT ? bytes : 0;
        out->outputs += kind == TN_B_OUTPUT ? bytes : 0;
    }
    out->bound = tn_layout_bound(scratch, exec, layout, -1, known, &position);
    if (position >= 0)
        out->step = step_at(exec, position);
    out->peak = out->arena + out->scratch + out->inputs + out->outputs + out->weights + out->packed;
}

/* Bytes of one worker's scratch, as far as sizes are known. */
static tn_status find_scratch(tn_session *session, tn_arena *arena, const tn_values *values, int64_t *most)
{
    const tn_exec *exec = values->exec;
    bool *seen = TN_NEW_ARRAY(arena, bool, exec->kernels.len + 1);
    *most = 0;
    for (size_t s = 0; s < exec->steps.len; s++) {
        int k = exec->steps.at[s].kernel;
        if (k < 0 || exec->steps.at[s].step->init || seen[k])
            continue;
        const tn_exec_kernel *kernel = &exec->kernels.at[k];
        int64_t *sizes = TN_NEW_ARRAY(arena, int64_t, (size_t)kernel->nsizes + 1), bytes = kernel->scratch;
        bool known = seen[k] = true;
        for (int i = 0; i < kernel->nsizes; i++) {
            known &= values->known[kernel->size[i]];
            sizes[i] = values->value[kernel->size[i]];
        }
        if (bytes < 0 && known && !tn_kernel_scratch(kernel->loop, sizes, &bytes))
            return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "kernel @%s: its scratch memory overflows for these sizes", exec->steps.at[s].name);
        *most = tn_max(*most, bytes);
    }
    *most = *most > 0 ? tn_layout_rounded(*most) : 0;
    return TN_OK;
}

static tn_status sum_up(tn_session *session, tn_arena *arena, const tn_values *values, int threads, tn_run_memory *out)
{
    const tn_exec *exec = values->exec;
    tn_layout layout;
    int64_t worker = 0;
    bool *known = TN_NEW_ARRAY(arena, bool, (size_t)exec->ngroups);
    tn_layout_new(arena, exec, &layout);
    TN_TRY(tn_layout_group(session, arena, values, 0, &layout)); /* what comes after a `define` step only a run tells */
    known[0] = true;
    if (!exec->machine->gpu)
        TN_TRY(find_scratch(session, arena, values, &worker));
    if (!tn_mul(worker, threads, &worker))
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "the workers' scratch memory overflows for these sizes");
    tn_layout_sum(arena, exec, &layout, known, worker, out);
    return TN_OK;
}

static tn_values new_values(tn_arena *arena, const tn_exec *exec)
{
    return (tn_values){exec, TN_NEW_ARRAY(arena, int64_t, exec->symbols.len + 1), TN_NEW_ARRAY(arena, bool, exec->symbols.len + 1)};
}

tn_status tn_plan_memory(tn_session *session, const tn_exec *exec, const tn_shape *inputs, int threads, tn_run_memory *out)
{
    tn_arena arena = {.on_oom = session->arena.on_oom};
    tn_values values = new_values(&arena, exec);
    tn_status status = tn_values_bind(session, &arena, &values, inputs);
    if (status == TN_OK)
        status = sum_up(session, &arena, &values, threads, out);
    tn_arena_free(&arena);
    return status;
}

tn_status tn_plan_memory_at(tn_session *session, const tn_exec *exec, const tn_plan_sizes *sizes, int threads, bool *known, tn_run_memory *out)
{
    tn_arena arena = {.on_oom = session->arena.on_oom};
    tn_values values = new_values(&arena, exec);
    *known = true;
    for (size_t i = 0; i < exec->symbols.len; i++)
        if (exec->symbols.at[i].group == 0)
            *known &= values.known[i] = sizes->size && sizes->size(sizes->context, exec->symbols.at[i].dim->name, &values.value[i]);
    tn_status status = *known ? sum_up(session, &arena, &values, threads, out) : TN_OK;
    tn_arena_free(&arena);
    return status;
}

/* ---- the limit --------------------------------------------------------------------------------------------------------------- */

const char *tn_plan_step_text(tn_arena *arena, const tn_exec *exec, int step)
{
    if (step < 0)
        return "";
    const tn_exec_step *s = &exec->steps.at[step];
    const char *name = s->name ? s->name : s->step->ops.len ? tn_op_name(s->step->ops.at[0]->code) : "copy";
    return s->nodes && *s->nodes ? tn_format(arena, "@%s (%.200s%s)", name, s->nodes, strlen(s->nodes) > 200 ? ", …" : "") : tn_format(arena, "@%s", name);
}

int tn_layout_fullest(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, int group)
{
    int position;
    tn_layout_bound(scratch, exec, layout, group, NULL, &position);
    return position < 0 ? -1 : step_at(exec, position);
}

static const char *bytes_text(tn_arena *arena, int64_t bytes)
{
    return bytes < 1 << 20 ? tn_format(arena, "%lld bytes", (long long)bytes) : tn_format(arena, "%.2f MiB", (double)bytes / (1 << 20));
}

tn_status tn_plan_check_limit(tn_session *session, const tn_exec *exec, const tn_run_memory *m)
{
    if (!exec->memory_limit || m->peak <= exec->memory_limit)
        return TN_OK;
    tn_arena *arena = &session->arena;
    const char *where = tn_plan_step_text(arena, exec, m->step);
    return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "a run needs %lld bytes (%s%s), the memory limit is %lld: intermediates %s (no placement needs less than %s), scratch %s, inputs %s, "
                    "outputs %s, weights %s%s%s", (long long)m->peak, bytes_text(arena, m->peak), m->complete ? "" : ", and what only a run tells", (long long)exec->memory_limit,
                    bytes_text(arena, m->arena), bytes_text(arena, m->bound), bytes_text(arena, m->scratch), bytes_text(arena, m->inputs), bytes_text(arena, m->outputs),
                    bytes_text(arena, m->weights + m->packed), *where ? "; most is alive in " : "", where);
}
