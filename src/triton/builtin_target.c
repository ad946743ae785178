/* What a kernel may ask about the machine and the launch that it is compiled for. All are constants. */
#include "triton/internal.h"

static bool done(tn_py *out, tn_py value)
{
    *out = value;
    return true;
}

static int capability(const tn_tcompiler *c) { return c->options ? c->options->gpu : 0; }

bool tn_bi_is_cuda(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)call;
    return done(out, tn_py_bool(capability(c) != 0));
}

bool tn_bi_is_hip(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)c, (void)call;
    return done(out, tn_py_bool(false));
}

bool tn_bi_cuda_capability_geq(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    int64_t major, minor;
    if (!tn_t_constant_int(c, call->node, &call->argument[0], "major", &major) || !tn_t_constant_int(c, call->node, &call->argument[1], "minor", &minor))
        return false;
    int there = capability(c);
    return done(out, tn_py_bool(there && (there / 10 > major || (there / 10 == major && there % 10 >= minor))));
}

/* On a CPU too they say what the launch, the configuration or the default gives. */
bool tn_bi_num_warps(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)call;
    return done(out, tn_py_int(c->num_warps));
}

bool tn_bi_num_threads(tn_tcompiler *c, const tn_call *call, tn_py *out)
{
    (void)call;
    return done(out, tn_py_int(32 * c->num_warps));
}
