/* What only the files of run share. */
#ifndef TN_RUN_INTERNAL_H
#define TN_RUN_INTERNAL_H

#include "run/run.h"

/* Aligned memory, freed with free; NULL after a diagnostic. */
void *tn_state_memory(struct tn_context *s, int64_t bytes);
/* Checks inputs, solves their shapes, and lays out group 0, unless all is as in the last run. */
tn_status tn_state_bind(struct tn_context *s, const DLTensor *inputs, size_t ninputs);
tn_status tn_state_plan_group(struct tn_context *s, int group);
/* Sizes, grid and scratch of one kernel step. */
tn_status tn_state_plan_step(struct tn_context *s, int step);
/* Runs the steps of a block in order. */
tn_status tn_state_run_block(struct tn_context *s, int block);

/* tensors.c: memory of inputs and outputs. */
tn_status tn_state_take_inputs(struct tn_context *s, const DLTensor *inputs);
/* Outputs whose size is known with `group`: the caller's memory, ours, or a copy's. */
tn_status tn_state_take_outputs(struct tn_context *s, int group);
void tn_state_give_outputs(struct tn_context *s); /* copies what was computed elsewhere into the caller's memory */
void tn_state_drop_outputs(struct tn_context *s); /* after a failure: frees what this run allocated */

#endif
