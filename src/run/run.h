/* Running an executable on this CPU: the worker pool, and the state of one run. */
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

/* Runs the `init` steps: once, after tn_exec_new and before any context. */
tn_status tn_exec_load(tn_session *session, tn_exec *exec, tn_pool *pool);

/* Everything that one run needs of its own; one thread at a time. Several contexts of one executable may run at once; they share the pool. */
typedef struct tn_launch {
    int64_t programs;
    int64_t *sizes;
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
};

tn_status tn_state_new(const tn_exec *exec, tn_pool *pool, struct tn_context **out);
void tn_state_free(struct tn_context *state);
/* See tn_run and tn_allocate in tenon.h. Diagnostics go to state->session, which is emptied first. */
tn_status tn_state_run(struct tn_context *state, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs);
/* After a run that was left by a jump (out of memory): frees what it allocated for the caller. */
void tn_state_abandon(struct tn_context *state);
/* Binds and plans for these inputs' shapes without running. Types are checked too; data is not looked at. */
tn_status tn_state_prepare(struct tn_context *state, const DLTensor *inputs, size_t ninputs);
/* Shape of an output as far as it is known: -1 where only a run tells. */
void tn_state_output_shape(const struct tn_context *state, int output, int64_t *dims);
void tn_state_release(DLTensor *tensor);

/* Estimated nanoseconds of one kernel on one core, for these sizes: decides how many threads are worth waking. */
double tn_kernel_work(const tn_kernel *kernel, const tn_values *values);

#endif
