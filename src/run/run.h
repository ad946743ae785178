/* Running an executable on this CPU or a GPU: the worker pool, and the state of one run. */
#ifndef TN_RUN_H
#define TN_RUN_H

#include "plan/plan.h"

/* ---- worker pool --------------------------------------------------------------------------------------------------------
 * A fixed number of threads, the caller being one of them. Work is split statically, so which worker does what is the same each time. Between
 * two kernels workers spin for about 50 microseconds, then sleep; waking one costs tens of microseconds, seeing a flag while spinning a fraction of one. */
typedef struct tn_pool tn_pool;
typedef void (*tn_pool_fn)(void *context, int64_t begin, int64_t end, int worker);
tn_pool *tn_pool_new(int threads); /* 0: tn_cpu_count. Fewer if threads can't be had. NULL: no memory */
void tn_pool_free(tn_pool *pool);  /* NULL is allowed; nobody may be using it */
int tn_pool_threads(const tn_pool *pool);
/* Calls fn on disjoint parts that cover [0, n), at most one a worker, and returns when all are done. `threads`: how many of the workers at
 * most. If another thread is using the pool, the caller does all of it, as worker 0. Returns how many took part. */
int tn_pool_run(tn_pool *pool, int64_t n, int threads, tn_pool_fn fn, void *context);

/* ---- running ------------------------------------------------------------------------------------------------------------ */

/* Puts code and constants on the GPU, if the executable is for one, and runs the `init` steps: once, after tn_exec_new and before any context.
 * TN_UNSUPPORTED: there is no such GPU; TN_NO_MEMORY. */
tn_status tn_exec_load(tn_session *session, tn_exec *exec, tn_pool *pool);
void tn_exec_unload(tn_exec *exec); /* before tn_exec_free, also after a failure; NULL is allowed */

/* Device types of DLPack. */
enum { TN_DEVICE_CPU = 1, TN_DEVICE_CUDA = 2, TN_DEVICE_CUDA_HOST = 3, TN_DEVICE_CUDA_MANAGED = 13 };

/* Everything that one run needs of its own; one thread at a time. Several contexts of one executable may run at once; they share the pool. */
typedef struct tn_launch {
    int64_t programs;
    int64_t *sizes;
    int64_t *offset;   /* by argument: bytes from its buffer's start; NULL: none */
    int64_t scratch;   /* bytes a worker */
    int64_t traffic;   /* bytes of all arguments: what the kernel reads and writes at least */
    double work;       /* estimated nanoseconds on one core */
} tn_launch;

typedef struct tn_step_time {
    double seconds, least;
    int64_t runs;
    int threads;
} tn_step_time;

struct tn_context {
    const tn_exec *exec;
    tn_pool *pool;
    tn_arena arena;      /* arrays that last as long as the context */
    tn_session session;  /* diagnostics of the last run */
    tn_arena work;       /* of the planning in progress */
    tn_values values;
    tn_layout layout;
    bool bound;          /* values and layout stand for `shape` */
    int64_t (*shape)[TN_MAX_RANK]; /* of the inputs of the last run */
    bool *valid;         /* by group: laid out for the current values */
    int64_t *defined;    /* by group: the value laid out for */
    void **pointer;      /* by buffer */
    void **staging;      /* by buffer: copies of inputs and outputs that the caller's memory can't serve */
    int64_t *staging_size;
    void **segment;      /* by group */
    int64_t *segment_size;
    tn_launch *launch;   /* by step */
    int64_t *kernel_scratch; /* by kernel, for the current values; -1: not asked for yet */
    void **scratch;      /* by worker */
    int64_t scratch_size;
    bool profiling;
    tn_step_time *time;  /* by step */
    DLTensor *outputs;   /* of the run in progress */
    bool *ours;          /* by output: allocated by this run */
    const char *error_text;
    struct tn_context **variant; /* of the executable's variants, in their order */
    struct tn_context *last; /* itself or a variant: whose the last call was */
    struct tn_gpu_run *gpu; /* device.h: of an executable for a GPU, where pointers are its addresses; NULL: of one for the CPU */
};

/* A context of an executable has one for each of its variants. */
tn_status tn_state_new(const tn_exec *exec, tn_pool *pool, struct tn_context **out);
void tn_state_free(struct tn_context *state);
/* The context for inputs of these shapes: of the first variant that they fit, else the context itself; it is then `last`. */
struct tn_context *tn_state_choose(struct tn_context *state, const DLTensor *inputs, size_t ninputs);
/* The executable likewise. */
const tn_exec *tn_exec_choose(const tn_exec *exec, const DLTensor *inputs, size_t ninputs);
/* See tn_run and tn_allocate in tenon.h. Diagnostics go to state->session, which is emptied first. */
tn_status tn_state_run(struct tn_context *state, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs);
/* After a run that was left by a jump (out of memory): frees what it allocated for the caller. */
void tn_state_abandon(struct tn_context *state);
/* Binds and plans for these inputs' shapes without running. Types are checked too; data is not looked at. */
tn_status tn_state_prepare(struct tn_context *state, const DLTensor *inputs, size_t ninputs);
/* Shape of an output as far as it is known: -1 where only a run tells. */
void tn_state_output_shape(const struct tn_context *state, int output, int64_t *dims);
void tn_state_release(DLTensor *tensor);
void tn_state_clear(struct tn_context *state); /* diagnostics of the call before */
/* See tn_context_set_stream, tn_tensor_upload; *to is cleared, and to be released after a failure too. */
tn_status tn_state_set_stream(struct tn_context *state, void *stream);
tn_status tn_state_upload(struct tn_context *state, const DLTensor *from, DLTensor *to);
/* The elements of a dense tensor on the context's GPU, when what its stream has to do is done; of a tensor of the host those. */
tn_status tn_state_download(struct tn_context *state, const DLTensor *from, void *to, int64_t bytes);
/* Pushes out, in the context's stream, what its GPU's L2 cache holds, so that a run begins as one between others. On a CPU nothing is done. */
tn_status tn_state_flush(struct tn_context *state);
/* From now on each run's time on the GPU is measured, which waits for its end. Negative: not measured, or a CPU. */
void tn_state_time_runs(struct tn_context *state, bool on);
double tn_state_seconds(const struct tn_context *state);

/* ---- kernels of users (launch.c) ------------------------------------------------------------------------------------------- */

/* Worker pools of a session's kernels, one for each number of threads that they ask for, made when it is first used. Any thread may ask. */
typedef struct tn_pools tn_pools;
tn_pools *tn_pools_new(void);        /* NULL: no memory */
void tn_pools_free(tn_pools *pools); /* NULL is allowed; nobody may be using them */
int tn_pools_cpus(const tn_pools *pools); /* tn_cpu_count, when they were made */

/* A value that a launch gives, and what its type promises. */
typedef struct tn_launch_value {
    const char *name;
    tn_dtype dtype;  /* of a number; of what a pointer points to */
    bool pointer;
    int64_t divisor; /* of the number or address; 0: not promised */
    bool one;        /* it is 1 */
} tn_launch_value;

/* A linked kernel, ready to be launched by any number of threads. */
typedef struct tn_launcher tn_launcher;
/* kernel: as its author wrote it. values: of a launch, in order; copied, names are not. All must outlive the launcher. TN_INVALID: the code wants a name
 * that no value has. */
tn_status tn_launcher_new(tn_session *session, const tn_code *code, const tn_kernel *kernel, tn_pools *pools, int threads, const tn_launch_value *values, size_t nvalues,
                          tn_launcher **out);
void tn_launcher_free(tn_launcher *launcher); /* NULL is allowed */
/* See tn_kernel_launch. What is wrong goes as text into `error`. */
tn_status tn_launcher_run(const tn_launcher *launcher, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t error_size);
/* A number as the bits of its type, extended to 64. */
int64_t tn_launch_bits(tn_dtype dtype, tn_kernel_value value);
/* Does the launch keep what the values' types promise? */
tn_status tn_launch_check(const tn_launch_value *described, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t error_size);
int64_t tn_launcher_scratch(const tn_launcher *launcher); /* bytes that a worker had at most so far, or will have */

/* launch_gpu.c: a kernel on a GPU, ready to be launched by any number of threads. */
typedef struct tn_gpu_launcher tn_gpu_launcher;
struct tn_gpu;
/* As tn_launcher_new; loads the code. `missing`: why GPU `device` can't run it (arena-owned; launches say so), NULL: it can. */
tn_status tn_gpu_launcher_new(tn_session *session, const tn_code *code, const tn_kernel *kernel, int device, const char *missing, const tn_launch_value *values, size_t nvalues,
                              tn_gpu_launcher **out);
void tn_gpu_launcher_free(tn_gpu_launcher *launcher); /* NULL is allowed */
/* See tn_kernel_launch_on, tn_kernel_wait. What is wrong goes as text into `error`. */
tn_status tn_gpu_launcher_run(const tn_gpu_launcher *launcher, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, void *stream, char *error, size_t error_size);
tn_status tn_gpu_launcher_wait(const tn_gpu_launcher *launcher, void *stream, char *error, size_t error_size);
/* NULL: it can't run. */
const struct tn_gpu *tn_gpu_launcher_gpu(const tn_gpu_launcher *launcher);
/* Registers of a thread and bytes that did not fit into them, as the driver says, else ptxas; false: nobody says. */
bool tn_gpu_launcher_registers(const tn_gpu_launcher *launcher, int *registers, int *spill_bytes);

/* Estimated nanoseconds of a user's kernel on one core. bits: of a number parameter by name, or the size of the grid; false: unknown. */
double tn_user_kernel_work(const tn_kernel *kernel, bool (*bits)(void *context, const char *name, int64_t *out), void *context);

/* Estimated nanoseconds of one kernel on one core, for these sizes: decides how many threads are worth waking. */
double tn_kernel_work(const tn_kernel *kernel, const tn_values *values);
/* Roughly how many elements of each buffer of the kernel its accesses name, one that is named again counted again. elements_of: as many as it has buffers. */
void tn_kernel_accesses(const tn_kernel *kernel, const tn_values *values, double *elements_of);

/* ---- what the machine can do (limits.c) -------------------------------------------------------------------------------------- */

/* One burst of independent f32 multiply-adds on registers, by vectors of at most `bits`; about 0.3 ms. How many operations it was, a multiply-add being two. */
double tn_multiply_add_burst(int bits);
/* A loop of vector loads and stores. Addresses are multiples of 32, bytes of 128. */
void tn_copy_loop(void *to, const void *from, size_t bytes);

enum { TN_RATE_SIZES = 5 };
typedef struct tn_rates {
    bool measured;           /* here and now; else as the machine's row has it */
    tn_machine_limits limit; /* `memory` only of a row */
    int64_t bytes[TN_RATE_SIZES];    /* a copy that reads and writes so many bytes in all … */
    double bandwidth[TN_RATE_SIZES]; /* … moves so many a second; 0: no such size */
} tn_rates;
/* This CPU's rates with all threads of the pool, by bursts of about 40 ms in all; a GPU's from its row. False: this CPU can't run the machine, or no memory. */
bool tn_rates_find(tn_session *session, const tn_machine *machine, tn_pool *pool, tn_rates *out);
/* Bytes a second for what moves so many bytes: the caches' rate where they hold them. */
double tn_rates_bandwidth(const tn_rates *rates, double bytes);

/* ---- GPUs (cuda.c) --------------------------------------------------------------------------------------------------------- */

typedef struct tn_gpu_info {
    char name[128];
    int major, minor;    /* compute capability */
    int processors;      /* streaming multiprocessors */
    int64_t bytes;       /* of its memory */
    int64_t l2_bytes;
    int64_t shared_bytes; /* that a block may have at most, when a kernel asks for it */
    int driver;          /* newest CUDA that the driver knows: 1000 * major + 10 * minor */
} tn_gpu_info;

/* GPUs that CUDA's driver shows. The driver is loaded by the first call of a process; any thread may ask. 0: *why (may be NULL) says why there is none,
 * in words that last as long as the process. */
int tn_gpu_count(const char **why);
/* GPU i, counted from 0. TN_UNSUPPORTED: there is no such GPU. */
tn_status tn_gpu_describe(tn_session *session, int i, tn_gpu_info *out);

/* The machine that a name stands for: "cuda" or "cuda:N", the best row for GPU N (0), or, where there is no GPU, for the newest; else as tn_machine_find, where
 * the name of a GPU's row may end in ":N" too. *device: N. TN_USAGE: nothing is called so. */
int tn_gpu_capability(const tn_machine *machine); /* which compute capability a row's code needs: 80, 90; 0: it is a CPU's */
tn_status tn_gpu_machine(tn_session *session, const char *name, const tn_machine **out, int *device);
/* NULL if GPU `device` runs code for `machine`, a GPU's row; else a sentence that says what is missing (arena-owned). */
const char *tn_gpu_refusal(tn_session *session, const tn_machine *machine, int device);
/* The architecture that ptxas makes code for, so that GPU `device` runs it: the machine's own, or for a newer GPU that GPU's. */
const char *tn_gpu_architecture(tn_arena *arena, const tn_machine *machine, int device);

#endif
