#include "target/lower/lower.h"

tn_status tn_gpu_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out)
{
    (void)out;
    return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "kernel @%s: machine '%s' is a GPU, for which the Tile IR has no lowering yet; Loop IR with `threads` compiles", kernel->name,
                    machine->name);
}
