/* The `tenon` program: what its commands share. Each command is one function in a file of its name. */
#ifndef CLI_H
#define CLI_H

#include "base/base.h"

/* Exit codes. */
enum { EXIT_RIGHT = 0, EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_DIFFERS = 3 };

typedef struct cli_pair {
    const char *name, *value;
} cli_pair;

typedef TN_VEC(cli_pair) cli_pairs;

/* The command line, read. */
typedef struct cli {
    tn_session *session;
    const char *command;
    const char *file; /* MODEL or FILE; NULL: none */
    cli_pairs inputs;  /* --input */
    TN_VEC(const char *) dim_names; /* --dim */
    TN_VEC(int64_t) dim_sizes;
    cli_pairs sizes;   /* --size */
    cli_pairs arguments, constants; /* --arg, --const */
    const char *inputs_dir, *save, *format, *machine, *passes, *print_after, *emit, *output, *lower, *grid, *target;
    int64_t threads, seed, config, warps;
    double seconds;
    bool only_shapes; /* inputs have no values: a symbol that --size does not name has no size */
    bool json, no_run, profile, reference, verify, help, check, bench;
} cli;

int cli_run(cli *c);
int cli_bench(cli *c);
int cli_compile(cli *c);
int cli_opt(cli *c);
int cli_check(cli *c);
int cli_explain(cli *c);
int cli_info(cli *c);
int cli_kernel(cli *c);

/* Prints the session's diagnostics to stderr; the exit code that `status` stands for. */
int cli_fail(cli *c, tn_status status);
/* `text` as a JSON string to standard output. */
void cli_print_json_text(const char *text);
bool cli_ends_with(const char *text, const char *end);
/* Loads c->file, with --dim. */
tn_status cli_load(cli *c, tn_network **out);
tn_compile_options cli_compile_options(cli *c);
/* The stage that --emit names; false: none. Some names are of a GPU's code alone. */
bool cli_stage(const char *name, tn_stage *out);
bool cli_is_gpu_stage(const char *name);
/* --target is one that there is, and a machine that is named beside it is one of its kind. */
tn_status cli_check_target(cli *c);
/* Writes a stage's text to --output, else to stdout, and frees it. */
tn_status cli_put(cli *c, char *text, size_t size);
/* Progress of long work: on a terminal only. */
void cli_progress_start(cli *c);
void cli_progress_end(cli *c);

/* ---- tensors (tensors.c, npy.c) -------------------------------------------------------------------------------- */

typedef struct cli_tensor {
    DLTensor dl;
    int64_t shape[12], strides[12];
    void *owned;
    tn_file file;
} cli_tensor;
void cli_tensor_free(cli_tensor *tensor);
/* Memory for a dense tensor. */
tn_status cli_tensor_new(tn_session *session, DLDataType dtype, int rank, const int64_t *shape, cli_tensor *out);

/* Sizes of an input, --size for symbols; false: *unknown has none. */
bool cli_input_shape(cli *c, const tn_value_info *info, int64_t *shape, const char **unknown);
/* The inputs of the network: --input, --inputs, the rest random by --seed. An array of tn_input_count. */
tn_status cli_inputs(cli *c, const tn_network *network, cli_tensor **out);
void cli_tensors_free(cli_tensor *tensors, size_t n);
DLTensor *cli_dl_tensors(cli *c, const cli_tensor *tensors, size_t n);

/* NumPy's format, versions 1 to 3. `wanted`: the type that void bytes stand for (NumPy writes bfloat16 as V2). */
tn_status cli_npy_read(tn_session *session, const char *path, DLDataType wanted, cli_tensor *out);
tn_status cli_npy_write(tn_session *session, const char *path, const DLTensor *tensor);
tn_status cli_pb_read(tn_session *session, const char *path, cli_tensor *out);
tn_status cli_pb_write(tn_session *session, const char *path, const DLTensor *tensor, const char *name);

/* "name: f32[2, 3]  min … max … mean …" of a dense tensor. */
void cli_print_tensor(const char *what, size_t i, const char *name, const DLTensor *tensor);
int64_t cli_elements(const DLTensor *tensor);

/* ---- kernels on a GPU (kernel_gpu.c) --------------------------------------------------------------------------------------- */

struct tn_gpu;
/* A buffer of the host's, and its like in the GPU's memory. */
typedef struct cli_block {
    void *host;
    size_t bytes;
    unsigned long long device; /* address; 0: none yet */
} cli_block;
tn_status cli_gpu_upload(tn_session *session, const struct tn_gpu *gpu, cli_block *blocks, size_t n); /* into new memory */
tn_status cli_gpu_download(tn_session *session, const struct tn_gpu *gpu, const cli_block *blocks, size_t n);
void cli_gpu_free(tn_session *session, const struct tn_gpu *gpu, cli_block *blocks, size_t n);
/* Seconds of `launch`, which puts work into the default stream, as the GPU's events say: *n samples, `most` at most. */
typedef tn_status (*cli_launch)(void *context);
tn_status cli_gpu_measure(tn_session *session, const struct tn_gpu *gpu, cli_launch launch, void *context, double seconds, double *samples, size_t most, size_t *n);

#endif
