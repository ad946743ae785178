/* tenon info: a network, or this machine. */
#include <string.h>

#include "cli.h"
#include "import/import.h"
#include "run/cuda.h"
#include "target/target.h"

static void print_value(const char *what, size_t i, const tn_value_info *info)
{
    printf("%s %zu '%s': %s[", what, i, info->name, info->dtype_name);
    for (int d = 0; d < info->rank; d++)
        printf("%s%s", d ? ", " : "", info->dim_text[d]);
    printf("]\n");
}

static void print_network(const tn_network *network)
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
}

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
    tn_status status = cli_load(c, &network);
    cli_progress_end(c);
    if (status == TN_OK)
        print_network(network);
    else if (status == TN_UNSUPPORTED)
        print_unsupported(c);
    int code = cli_fail(c, status);
    tn_network_free(network);
    return code;
}
