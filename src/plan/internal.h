/* What only the files of plan share. */
#ifndef TN_PLAN_INTERNAL_H
#define TN_PLAN_INTERNAL_H

#include "plan/plan.h"

/* compile.c: the distinct kernels of the program, lowered and through the loop passes, into exec->kernels; every step's `kernel` is set. */
tn_status tn_plan_lower(tn_exec *exec, const tn_exec_options *options);
/* compile.c: one kernel to loops, through the passes; all of *out but the code and where the sizes come from. Changes `tile`. */
tn_status tn_plan_lower_kernel(tn_session *session, const tn_exec_options *options, const tn_machine *machine, tn_kernel *tile, tn_exec_kernel *out);
/* maps.c: the maps of a kernel, as many as loop->maps. */
const tn_code_map *tn_plan_maps(const tn_lfunc *loop);
/* maps.c: what is wrong with a map that was read from a file, whose sizes go by these names; NULL: nothing that would not show at a launch. */
const char *tn_plan_map_fault(const tn_code_map *map, int nbuffers, const char *const *size, int nsizes);
/* compile.c: machine code of exec->kernels, linked; for a GPU exec->images. */
tn_status tn_plan_link(tn_exec *exec, const tn_exec_options *options);
/* steps.c: blocks, steps, positions, symbols, groups. */
tn_status tn_plan_steps(tn_exec *exec);
int tn_plan_slot(tn_exec *exec, tn_dim symbol);
/* lifetimes.c: first and last use of each buffer, in-place pairs. */
void tn_plan_lifetimes(tn_exec *exec);
/* memory.c: has it a place of its own in its group's segment? */
bool tn_plan_in_segment(const tn_exec *exec, size_t buffer);
/* inplace.c: the kernel may write parameter `out` over parameter `in`. */
bool tn_plan_same_place(const tn_kernel *kernel, int out, int in);
/* constants.c: constants where they lie or copied; memory of persistent buffers. */
tn_status tn_plan_constants(tn_exec *exec);
/* constants.c: what `from` packed of the same constants by the same code becomes the executable's; steps that would do it again go. */
void tn_plan_share_packed(tn_exec *exec, const tn_exec *from);
/* constants.c: kernels that read a constant which starts between elements get to know it; before code is made. */
void tn_plan_mark_misaligned(tn_exec *exec);

static inline const tn_pbuffer *tn_plan_buffer(const tn_exec *exec, int buffer) { return &exec->program->buffers.at[buffer]; }

#endif
