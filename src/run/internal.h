/* What only the files of run share. */
#ifndef TN_RUN_INTERNAL_H
#define TN_RUN_INTERNAL_H

#include "run/run.h"

/* Aligned memory of the host, freed with free; NULL after a diagnostic that says what it was for. */
void *tn_state_host_memory(struct tn_context *s, int64_t bytes, const char *what);
/* Memory where kernels run; NULL after a diagnostic. Given back with tn_state_give, which takes NULL. */
void *tn_state_memory(struct tn_context *s, int64_t bytes, const char *what);
const char *tn_state_buffer_text(struct tn_context *s, int buffer); /* "output 'y'" */
void tn_state_give(struct tn_context *s, void *memory);
/* Why there was none, as the diagnostic has it: a GPU may be out of order too. */
static inline tn_status tn_state_why(const struct tn_context *s)
{
    return s->session.diags.len ? s->session.diags.at[s->session.diags.len - 1].status : TN_NO_MEMORY;
}
/* Checks inputs, solves their shapes, and lays out group 0, unless all is as in the last run. */
tn_status tn_state_bind(struct tn_context *s, const DLTensor *inputs, size_t ninputs);
tn_status tn_state_plan_group(struct tn_context *s, int group);
/* Sizes, grid and scratch of one kernel step. */
tn_status tn_state_plan_step(struct tn_context *s, int step);
/* Where argument a of a step begins. */
static inline void *tn_state_argument(const struct tn_context *s, int step, int a)
{
    char *at = s->pointer[s->exec->steps.at[step].step->args[a]];
    return at && s->launch[step].offset ? at + s->launch[step].offset[a] : at;
}
/* Runs the steps of a block in order. */
tn_status tn_state_run_block(struct tn_context *s, int block);

/* tensors.c: memory of inputs and outputs. */
/* Can a run use a tensor that lies there? */
tn_status tn_state_check_device(struct tn_context *s, const char *what, int i, DLDevice device);
tn_status tn_state_take_inputs(struct tn_context *s, const DLTensor *inputs);
/* Outputs whose size is known with `group`: the caller's memory, ours, or a copy's. */
tn_status tn_state_take_outputs(struct tn_context *s, int group);
/* Copies what was computed elsewhere into the caller's memory. On a GPU it waits, if the run has tensors of the host or no stream of the caller's. */
tn_status tn_state_give_outputs(struct tn_context *s);
void tn_state_drop_outputs(struct tn_context *s); /* after a failure: frees what this run allocated */

/* launch.c: how the values of a launch become parameters of the code. */
enum { GRID_AXES = 3 };
typedef struct tn_launch_map {
    const tn_code *code;
    tn_launch_value *value;
    size_t nvalues;
    int *buffer; /* of the code: number of the value */
    int *size;   /* the same; below 0: ~axis of the grid */
    size_t *promise, npromises; /* values that promise anything */
} tn_launch_map;
tn_status tn_launch_map_new(tn_session *session, const tn_code *code, const tn_launch_value *values, size_t nvalues, tn_launch_map *out);
/* Their count, what their types promise, the grid. */
tn_status tn_launch_map_check(const tn_launch_map *map, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t size);
int64_t tn_launch_map_size(const tn_launch_map *map, int i, const int64_t grid[3], const tn_kernel_value *values); /* parameter i of the sizes */
tn_status tn_launch_failed_assertion(const tn_code *code, const tn_kernel *kernel, int64_t number, char *error, size_t size);
tn_status tn_launch_refuse(char *error, size_t size, tn_status status, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- GPUs (device.c, replay.c) ---- */

/* An output in the pool's memory, dense; freed by tn_device_tensor_free. */
tn_status tn_device_tensor_new(struct tn_context *s, int64_t bytes, const int64_t *dims, int rank, tn_dtype dtype, DLTensor *out);
void tn_device_tensor_free(DLTensor *tensor);
/* After a run that was left by a jump. */
void tn_state_stop_recording(struct tn_context *s);

#endif
