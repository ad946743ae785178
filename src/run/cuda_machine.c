/* Which machine's code a GPU runs. A row's name says its architecture: sm_80 is compute capability 8.0, whose code every later GPU runs once the driver or ptxas
 * has made machine code of it; a letter behind it binds to that capability alone. */
#include <stdlib.h>
#include <string.h>

#include "run/cuda.h"

typedef struct capability {
    int number; /* 10 * major + minor */
    bool only;
} capability;

static capability of_machine(const tn_machine *machine)
{
    char *end;
    long n = strtol(machine->name + strcspn(machine->name, "0123456789"), &end, 10);
    return (capability){(int)n, *end != 0};
}

int tn_gpu_capability(const tn_machine *machine) { return machine->gpu ? of_machine(machine).number : 0; }

static bool runs(const tn_gpu_info *info, const tn_machine *machine)
{
    capability wanted = of_machine(machine);
    int there = 10 * info->major + info->minor;
    return machine->gpu && (wanted.only ? there == wanted.number : there >= wanted.number);
}

/* Rows stand from the plainest to the richest. Without a description: the last. */
static const tn_machine *best(const tn_gpu_info *info)
{
    size_t n;
    const tn_machine *list = tn_machine_list(&n), *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (list[i].gpu && (!info || runs(info, &list[i])))
            found = &list[i];
    return found;
}

static tn_status describe_best(tn_session *session, int device, const tn_machine **out)
{
    tn_gpu_info info;
    bool there = tn_gpu_count(NULL) > 0;
    if (there)
        TN_TRY(tn_gpu_describe(session, device, &info));
    *out = best(there ? &info : NULL);
    return *out ? TN_OK : tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "%s has compute capability %d.%d; Tenon's code needs 8.0", info.name, info.major, info.minor);
}

tn_status tn_gpu_machine(tn_session *session, const char *name, const tn_machine **out, int *device)
{
    const char *colon = name ? strchr(name, ':') : NULL;
    char *end = NULL;
    long number = colon ? strtol(colon + 1, &end, 10) : 0;
    const char *row = colon ? tn_strndup(&session->arena, name, (size_t)(colon - name)) : name;
    bool wrong = colon && (end == colon + 1 || *end || number < 0 || number > 1 << 10);
    *device = (int)number;
    *out = NULL;
    if (!wrong && row && !strcmp(row, "cuda"))
        return describe_best(session, *device, out);
    if (!wrong)
        *out = tn_machine_find(row);
    if (*out && colon && !(*out)->gpu)
        *out = NULL;
    return *out ? TN_OK : tn_error(session, TN_USAGE, TN_NO_LOC, "unknown machine '%s'; `tenon info` lists those there are", name ? name : "host");
}

const char *tn_gpu_refusal(tn_session *session, const tn_machine *machine, int device)
{
    const char *why;
    tn_gpu_info info;
    capability wanted = of_machine(machine);
    int n = tn_gpu_count(&why);
    if (!n)
        return tn_format(&session->arena, "machine '%s' can't run here: there is no GPU: %s", machine->name, why);
    if (device < 0 || device >= n)
        return tn_format(&session->arena, "machine '%s' can't run here: there is no GPU %d: CUDA's driver shows %d, counted from 0", machine->name, device, n);
    if (tn_gpu_describe(session, device, &info) != TN_OK)
        return tn_format(&session->arena, "machine '%s' can't run here: GPU %d does not answer", machine->name, device);
    if (runs(&info, machine))
        return NULL;
    return tn_format(&session->arena, "machine '%s' can't run here: it needs compute capability %d.%d%s, %s has %d.%d", machine->name, wanted.number / 10, wanted.number % 10,
                     wanted.only ? " exactly" : "", info.name, info.major, info.minor);
}

const char *tn_gpu_architecture(tn_arena *arena, const tn_machine *machine, int device)
{
    tn_session quiet = {.arena.on_oom = arena->on_oom};
    tn_gpu_info info;
    capability wanted = of_machine(machine);
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    bool known = tn_gpu_count(NULL) > 0 && tn_gpu_describe(&quiet, device, &info) == TN_OK;
    tn_arena_free(&quiet.arena);
    return known && !wanted.only && runs(&info, machine) ? tn_format(arena, "sm_%d%d", info.major, info.minor) : machine->name;
}
