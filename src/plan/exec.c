/* Making and freeing an executable. */
#include <stdlib.h>

#include "plan/internal.h"

static tn_status make(tn_exec *exec, const tn_exec_options *options)
{
    const char *refusal = exec->machine->gpu || exec->bare ? NULL : tn_machine_refusal(&exec->session->arena, exec->machine);
    if (refusal)
        return tn_error(exec->session, TN_UNSUPPORTED, TN_NO_LOC, "%s", refusal);
    TN_TRY(tn_plan_steps(exec));
    TN_TRY(tn_plan_lower(exec, options));
    tn_plan_lifetimes(exec);
    if (exec->bare)
        return tn_plan_constants(exec);
    if (!exec->machine->gpu) /* there constants lie where they are copied to */
        tn_plan_mark_misaligned(exec);
    TN_TRY(tn_plan_link(exec, options));
    if (options->shared && !exec->machine->gpu)
        tn_plan_share_packed(exec, options->shared);
    return tn_plan_constants(exec);
}

static tn_status new_exec(tn_session *session, const tn_program *program, const tn_exec_options *options, bool bare, tn_exec **out)
{
    tn_exec *exec = TN_NEW(&session->arena, tn_exec);
    *exec = (tn_exec){.session = session, .program = program, .no_reuse = options->no_reuse, .memory_limit = options->memory_limit, .bare = bare, .device = options->device,
                      .machine = options->machine ? options->machine : tn_machine_find(NULL)};
    exec->slots.arena = &session->arena;
    tn_status status = make(exec, options);
    if (status != TN_OK) {
        tn_exec_free(exec);
        return status;
    }
    *out = exec;
    return TN_OK;
}

tn_status tn_exec_new(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_exec **out)
{
    return new_exec(session, program, options, false, out);
}

tn_status tn_exec_plan(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_exec **out)
{
    return new_exec(session, program, options, true, out);
}

void tn_exec_free(tn_exec *exec)
{
    if (!exec)
        return;
    tn_exec_drop_constants(exec);
    for (size_t i = 0; i < exec->nimages; i++) {
        free(exec->images[i].ptx.data);
        free(exec->images[i].cubin.data);
    }
    exec->nimages = 0;
    if (exec->jit)
        tn_jit_free(exec->jit);
    exec->jit = NULL;
}
