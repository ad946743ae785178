/* tenon info: a network, or this machine. */
#include <string.h>

#include "cli.h"
#include "import/import.h"
#include "run/cuda.h"
#include "run/run.h"
#include "target/target.h"

static void print_value(const char *what, size_t i, const tn_value_info *info)
{
    printf("%s %zu '%s': %s[", what, i, info->name, info->dtype_name);
    for (int d = 0; d < info->rank; d++)
        printf("%s%s", d ? ", " : "", info->dim_text[d]);
    printf("]\n");
}

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

typedef struct memory {
    tn_memory_info info;
    const char *machine, *unknown; /* unknown: a dimension that has no size; NULL: none */
    int threads;
    bool failed;
    double import_seconds;
} memory;

/* Sizes of the inputs from --dim and --size; what a run would take with them. */
static tn_status find_memory(cli *c, const tn_network *network, memory *out)
{
    size_t n = tn_input_count(network);
    DLTensor *inputs = TN_NEW_ARRAY(&c->session->arena, DLTensor, n + 1);
    tn_compile_options options = cli_compile_options(c);
    const tn_machine *machine;
    int device;
    c->only_shapes = true;
    for (size_t i = 0; i < n; i++) {
        tn_value_info info;
        tn_input_info(network, i, &info);
        int64_t *shape = TN_NEW_ARRAY(&c->session->arena, int64_t, (size_t)info.rank + 1);
        if (!cli_input_shape(c, &info, shape, &out->unknown))
            return TN_OK;
        inputs[i] = (DLTensor){.ndim = info.rank, .dtype = info.dtype, .shape = shape};
    }
    out->unknown = NULL;
    TN_TRY(tn_gpu_machine(c->session, options.machine, &machine, &device));
    out->machine = machine->name;
    out->threads = machine->gpu ? 0 : options.threads ? options.threads : tn_cpu_count();
    return tn_network_memory(c->session, network, &options, inputs, n, &out->info);
}

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

static void print_memory(const memory *m)
{
    const tn_memory_info *i = &m->info;
    if (m->failed) {
        printf("memory: no plan\n");
        return;
    }
    if (m->unknown) {
        printf("memory: no size for %s; give --size NAME=N or --dim NAME=N\n", m->unknown);
        return;
    }
    printf("memory on %s", m->machine);
    if (m->threads)
        printf(", %d threads", m->threads);
    printf(": peak %.3f MiB%s\n", mib(i->peak), i->complete ? "" : ", and what only a run tells");
    printf("  intermediates %12.3f MiB, lower bound %.3f MiB", mib(i->arena), mib(i->lower_bound));
    if (i->lower_bound)
        printf(" (%.3f of it)", (double)i->arena / (double)i->lower_bound);
    printf(", %.3f MiB without sharing\n", mib(i->total));
    if (*i->step)
        printf("  most is alive in @%s%s%.100s%s\n", i->step, *i->nodes ? " (" : "", i->nodes, *i->nodes ? ")" : "");
    printf("  scratch       %12.3f MiB\n  inputs        %12.3f MiB\n  outputs       %12.3f MiB\n", mib(i->scratch), mib(i->inputs), mib(i->outputs));
    printf("  weights       %12.3f MiB mapped, %.3f MiB copied or packed\n", mib(i->weights), mib(i->packed));
}

static void print_memory_json(const memory *m)
{
    const tn_memory_info *i = &m->info;
    if (m->unknown || m->failed) {
        printf(", \"memory\": null");
        return;
    }
    printf(", \"memory\": {\"machine\": \"%s\", \"threads\": %d, \"peak_bytes\": %zu, \"arena_bytes\": %zu, \"arena_lower_bound\": %zu, \"arena_unshared\": %zu, "
           "\"scratch_bytes\": %zu, \"input_bytes\": %zu, \"output_bytes\": %zu, \"weight_bytes\": %zu, \"packed_bytes\": %zu, \"complete\": %s, \"step\": ",
           m->machine, m->threads, i->peak, i->arena, i->lower_bound, i->total, i->scratch, i->inputs, i->outputs, i->weights, i->packed, i->complete ? "true" : "false");
    cli_print_json_text(i->step);
    printf(", \"nodes\": ");
    cli_print_json_text(i->nodes);
    printf("}");
}

/* ---- networks -------------------------------------------------------------------------------------------------------------- */

static void print_network(const tn_network *network, const memory *m)
{
    tn_value_info info;
    for (size_t i = 0; tn_input_info(network, i, &info) == TN_OK; i++)
        print_value("input", i, &info);
    for (size_t i = 0; tn_output_info(network, i, &info) == TN_OK; i++)
        print_value("output", i, &info);
    const char *name;
    int64_t uses;
    printf("operators:\n");
    for (size_t i = 0; tn_operator_info(network, i, &name, &uses) == TN_OK; i++)
        printf("  %-28s %lld\n", name, (long long)uses);
    printf("unsupported: none\n");
    print_memory(m);
}

static void print_values_json(const tn_network *network, const char *what, tn_status (*get)(const tn_network *, size_t, tn_value_info *))
{
    tn_value_info info;
    printf("\"%s\": [", what);
    for (size_t i = 0; get(network, i, &info) == TN_OK; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        cli_print_json_text(info.name);
        printf(", \"type\": \"%s\", \"shape\": [", info.dtype_name);
        for (int d = 0; d < info.rank; d++) {
            printf("%s", d ? ", " : "");
            if (info.dim[d] >= 0)
                printf("%lld", (long long)info.dim[d]);
            else
                cli_print_json_text(info.dim_text[d]);
        }
        printf("]}");
    }
    printf("]");
}

static void print_json(const tn_network *network, const memory *m)
{
    const char *name;
    int64_t uses;
    printf("{");
    print_values_json(network, "inputs", tn_input_info);
    printf(", ");
    print_values_json(network, "outputs", tn_output_info);
    printf(", \"operators\": {");
    for (size_t i = 0; tn_operator_info(network, i, &name, &uses) == TN_OK; i++) {
        printf("%s", i ? ", " : "");
        cli_print_json_text(name);
        printf(": %lld", (long long)uses);
    }
    printf("}");
    print_memory_json(m);
    printf(", \"seconds\": {\"import\": %.6f, \"passes\": %.6f, \"fuse\": %.6f, \"lower\": %.6f, \"plan\": %.6f}}\n", m->import_seconds, m->info.graph_seconds,
           m->info.fuse_seconds, m->info.lower_seconds, m->info.plan_seconds);
}

/* ---- this machine ----------------------------------------------------------------------------------------------------------- */

static void print_gpus(cli *c)
{
    const char *why;
    int n = tn_gpu_count(&why);
    if (!n)
        printf("GPU: none (%s)\n", why);
    for (int i = 0; i < n; i++) {
        tn_gpu_info gpu;
        if (tn_gpu_describe(c->session, i, &gpu) != TN_OK) /* a sick GPU is no reason to say nothing of the others */
            printf("GPU %d: %s\n", i, c->session->diags.len ? c->session->diags.at[c->session->diags.len - 1].message : "no description");
        else
            printf("GPU %d: %s, sm_%d%d, %d multiprocessors, %lld MiB, L2 %lld KiB, shared memory %lld KiB a block, driver for CUDA %d.%d\n", i, gpu.name, gpu.major,
                   gpu.minor, gpu.processors, (long long)gpu.bytes >> 20, (long long)gpu.l2_bytes >> 10, (long long)gpu.shared_bytes >> 10, gpu.driver / 1000,
                   gpu.driver % 1000 / 10);
    }
}

static void print_machine(cli *c)
{
    size_t n;
    int64_t l1, l2, l3;
    const tn_machine *list = tn_machine_list(&n), *host = tn_machine_find(NULL);
    tn_machine_caches(&l1, &l2, &l3);
    printf("tenon %s\nthreads: %d\ncaches a core: L1 %lld KiB, L2 %lld KiB, L3 %lld KiB\nmachines:\n", tn_version(), tn_cpu_count(), (long long)l1 / 1024,
           (long long)l2 / 1024, (long long)l3 / 1024);
    for (size_t i = 0; i < n; i++) {
        const char *refusal = list[i].gpu ? tn_gpu_refusal(c->session, &list[i], 0) : tn_machine_refusal(&c->session->arena, &list[i]);
        printf("%s %-10s %3d-bit vectors", &list[i] == host ? "*" : " ", list[i].name, list[i].vector.bits);
        if (!list[i].gpu)
            printf(", product tile %d x %d vectors", list[i].dot_rows, list[i].dot_vectors);
        printf("%s%s\n", refusal ? "; " : "", refusal ? refusal : "");
    }
    print_gpus(c);
}

/* Of a network that Tenon can't take: what it is made of, as far as the file was read, and what is missing. */
static void print_unsupported(cli *c)
{
    tn_session *session = tn_session_new();
    tn_model model;
    jmp_buf oom;
    if (!session)
        return;
    session->arena.on_oom = &oom;
    if (!setjmp(oom) && tn_import_onnx(session, c->file, &(tn_import_options){.fold_bytes = 0}, &model) == TN_UNSUPPORTED) {
        printf("operators:\n");
        for (size_t i = 0; i < model.operators.len; i++)
            printf("  %-28s %lld\n", tn_map_key_str(&model.operators, i), (long long)(intptr_t)tn_map_value(&model.operators, i));
        printf("unsupported:\n");
        for (size_t i = 0; i < model.unsupported.len; i++)
            printf("  %s\n", model.unsupported.at[i]);
    }
    tn_session_free(session);
}

int cli_info(cli *c)
{
    tn_network *network = NULL;
    if (!c->file) {
        print_machine(c);
        return EXIT_RIGHT;
    }
    memory m = {.unknown = NULL};
    double start = tn_seconds();
    tn_status loaded = cli_load(c, &network);
    m.import_seconds = tn_seconds() - start;
    tn_status status = loaded == TN_OK ? find_memory(c, network, &m) : loaded;
    cli_progress_end(c);
    if (status != TN_OK)
        m.failed = true;
    if (loaded == TN_OK && c->json)
        print_json(network, &m);
    else if (loaded == TN_OK)
        print_network(network, &m);
    else if (loaded == TN_UNSUPPORTED)
        print_unsupported(c);
    int code = cli_fail(c, status);
    tn_network_free(network);
    return code;
}
