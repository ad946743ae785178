/* tenon bench: how long a run takes. Compilation is timed once; then runs for --seconds after a warm-up of a tenth of it. On a GPU inputs and outputs lie there,
 * and a run takes what events before and after it say. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "run/run.h"

enum { MOST_RUNS = 1 << 20 };

typedef struct measurement {
    double median, least, compile;
    size_t runs;
    tn_memory_info memory;
    tn_executable_info info;
} measurement;

static tn_status run_for(tn_context *context, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs, double seconds, double *times, size_t *runs)
{
    double end = tn_seconds() + seconds;
    for (*runs = 0; *runs < MOST_RUNS && (*runs == 0 || tn_seconds() < end); (*runs)++) {
        double start = tn_seconds();
        TN_TRY(tn_run(context, inputs, ninputs, outputs, noutputs));
        times[*runs] = tn_state_seconds(context) >= 0 ? tn_state_seconds(context) : tn_seconds() - start;
    }
    return TN_OK;
}

/* The first run allocates the outputs; the timed ones write into them. */
static tn_status measure(cli *c, tn_context *context, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs, measurement *m)
{
    double *times = malloc(sizeof *times * MOST_RUNS);
    if (!times)
        return TN_NO_MEMORY;
    tn_status status = run_for(context, inputs, ninputs, outputs, noutputs, c->seconds / 10, times, &m->runs);
    if (status == TN_OK && c->profile)
        tn_profile_start(context, 1);
    if (status == TN_OK)
        status = run_for(context, inputs, ninputs, outputs, noutputs, c->seconds, times, &m->runs);
    qsort(times, m->runs, sizeof *times, tn_by_value);
    m->least = times[0];
    m->median = times[m->runs / 2];
    free(times);
    return status == TN_OK ? tn_memory_needed(context, inputs, ninputs, &m->memory) : status;
}

/* Copies of the inputs on the GPU, and outputs that are to be allocated there. */
static tn_status move_to_gpu(tn_context *context, int device, const DLTensor *inputs, size_t ninputs, DLTensor *moved, DLTensor *outputs, size_t noutputs)
{
    for (size_t i = 0; i < ninputs; i++)
        TN_TRY(tn_tensor_upload(context, &inputs[i], &moved[i]));
    for (size_t i = 0; i < noutputs; i++)
        outputs[i].device = (DLDevice){TN_DEVICE_CUDA, device};
    tn_state_time_runs(context, true);
    return TN_OK;
}

static tn_status measure_there(cli *c, tn_context *context, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs, measurement *m)
{
    if (m->info.device < 0)
        return measure(c, context, inputs, ninputs, outputs, noutputs, m);
    DLTensor *moved = TN_NEW_ARRAY(&c->session->arena, DLTensor, ninputs + 1);
    tn_status status = move_to_gpu(context, m->info.device, inputs, ninputs, moved, outputs, noutputs);
    if (status == TN_OK)
        status = measure(c, context, moved, ninputs, outputs, noutputs, m);
    for (size_t i = 0; i < ninputs; i++)
        tn_tensor_free(&moved[i]);
    return status;
}

static double row_ms(const tn_profile_row *row)
{
    return row->runs ? row->seconds / (double)row->runs * 1e3 : 0;
}

static void print_json(const cli *c, const tn_context *context, const measurement *m)
{
    printf("{\"model\": ");
    cli_print_json_text(c->file);
    printf(", \"median_ms\": %.6f, \"min_ms\": %.6f, \"compile_ms\": %.3f, \"peak_bytes\": %zu, \"arena_bytes\": %zu, \"arena_lower_bound\": %zu, "
           "\"runs\": %zu, \"threads\": %d, \"machine\": \"%s\", \"device\": %d, \"kernels\": [",
           m->median * 1e3, m->least * 1e3, m->compile * 1e3, m->memory.peak, m->memory.arena, m->memory.lower_bound, m->runs, m->info.threads, m->info.machine, m->info.device);
    tn_profile_row row;
    for (size_t i = 0; tn_profile_at(context, i, &row) == TN_OK; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        cli_print_json_text(row.kernel);
        printf(", \"nodes\": ");
        cli_print_json_text(row.nodes);
        if (c->profile)
            printf(", \"mean_ms\": %.6f, \"min_ms\": %.6f", row_ms(&row), row.least_seconds * 1e3);
        printf(", \"bytes\": %lld, \"programs\": %lld, \"threads\": %d}", (long long)row.bytes, (long long)row.programs, row.threads);
    }
    printf("]}\n");
}

static void print_profile(const tn_context *context)
{
    tn_profile_row row;
    printf("\n%10s %10s %9s %8s %3s  %s\n", "mean ms", "min ms", "GB/s", "programs", "thr", "kernel (nodes)");
    for (size_t i = 0; tn_profile_at(context, i, &row) == TN_OK; i++)
        printf("%10.4f %10.4f %9.1f %8lld %3d  %s (%.60s)\n", row_ms(&row), row.least_seconds * 1e3,
               row.least_seconds > 0 ? (double)row.bytes / row.least_seconds * 1e-9 : 0, (long long)row.programs, row.threads, row.kernel, row.nodes);
}

static void print_table(cli *c, const tn_context *context, const measurement *m)
{
    double mib = 1.0 / (1 << 20);
    const char *where = m->info.device < 0 ? tn_format(&c->session->arena, "%d threads", m->info.threads) : tn_format(&c->session->arena, "GPU %d", m->info.device);
    printf("median %.4f ms, minimum %.4f ms over %zu runs on %s (%s)\n", m->median * 1e3, m->least * 1e3, m->runs, where, m->info.machine);
    printf("compile %.1f ms (fuse %.1f, lower %.1f, machine code %.1f, link %.1f, weights %.1f): %zu kernels, %zu distinct\n", m->compile * 1e3,
           m->info.fuse_seconds * 1e3, m->info.lower_seconds * 1e3, m->info.emit_seconds * 1e3, m->info.link_seconds * 1e3, m->info.load_seconds * 1e3,
           m->info.kernel_steps, m->info.kernels);
    printf("memory %.2f MiB: intermediates %.2f (lower bound %.2f), scratch %.2f, inputs and outputs %.2f, weights mapped %.2f, packed %.2f\n",
           (double)m->memory.peak * mib, (double)m->memory.arena * mib, (double)m->memory.lower_bound * mib, (double)m->memory.scratch * mib,
           (double)(m->memory.inputs + m->memory.outputs) * mib, (double)m->info.constant_bytes * mib, (double)m->info.packed_bytes * mib);
    if (c->profile)
        print_profile(context);
}

static tn_status bench(cli *c, const tn_network *network, double start, cli_tensor **inputs)
{
    tn_executable *executable;
    tn_context *context = NULL;
    measurement m = {0};
    tn_compile_options options = cli_compile_options(c);
    size_t ninputs = tn_input_count(network), noutputs = tn_output_count(network);
    DLTensor *outputs = TN_NEW_ARRAY(&c->session->arena, DLTensor, noutputs + 1);
    TN_TRY(tn_compile(c->session, network, &options, &executable));
    m.compile = tn_seconds() - start;
    cli_progress_end(c);
    tn_executable_describe(executable, &m.info);
    tn_status status = cli_inputs(c, network, inputs);
    if (status == TN_OK)
        status = tn_context_new(executable, &context);
    if (status == TN_OK) {
        status = measure_there(c, context, cli_dl_tensors(c, *inputs, ninputs), ninputs, outputs, noutputs, &m);
        if (status != TN_OK)
            tn_error(c->session, status, TN_NO_LOC, "%s", tn_context_error(context));
        else if (c->json)
            print_json(c, context, &m);
        else
            print_table(c, context, &m);
    }
    for (size_t i = 0; i < noutputs; i++)
        tn_tensor_free(&outputs[i]);
    tn_context_free(context);
    tn_executable_free(executable);
    return status;
}

int cli_bench(cli *c)
{
    tn_network *network = NULL;
    cli_tensor *inputs = NULL;
    double start = tn_seconds();
    tn_status status = cli_load(c, &network);
    if (status == TN_OK)
        status = bench(c, network, start, &inputs);
    int code = cli_fail(c, status);
    cli_tensors_free(inputs, tn_input_count(network));
    tn_network_free(network);
    return code;
}
