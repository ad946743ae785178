/* The executable: what a program of kernels and steps becomes. Machine code, the shape program, constants, and the memory plan.
 *
 *   shape program  every symbol has a slot. Inputs bind symbols (solved from their sizes), `define` steps give the rest while a run is under way.
 *                  Grid sizes, buffer sizes and kernel arguments are dimensions evaluated on the slots, once for each set of values.
 *   groups         a buffer belongs to the step after which its size is known: group 0 is known before the run starts, group d after the
 *                  d-th `define` step. Each group has a segment of memory of its own, planned on concrete sizes.
 *   order          steps are put in the order of several that keeps least alive (order.c).
 *   memory plan    a buffer lives from its first to its last use in step order; inside control flow, see lifetimes.c. Buffers of a group are
 *                  placed in several orders, at the lowest or the smallest gap that fits; the best counts (layout.c).
 *
 * An executable is never changed after tn_exec_new: any number of threads may run it, each with its own state (src/run). It points into the
 * session that made it, which must outlive it. */
#ifndef TN_PLAN_H
#define TN_PLAN_H

#include "eval/eval.h"
#include "fuse/fuse.h"
#include "target/target.h"

enum { TN_ALIGN = 64 }; /* of every buffer in an arena: a cache line, the widest vector */

/* A map of a kernel for who launches it (tn_lmap). */
typedef struct tn_code_map {
    int buffer;  /* number of the parameter */
    tn_dtype dtype;
    int how;     /* TN_PART_R, TN_PART_W: what its instructions do */
    tn_lmap view; /* `value` and `buffer` are NULL; symbols go by the names of the kernel's size parameters */
} tn_code_map;

/* A kernel once compiled; equal kernels share one. */
typedef struct tn_exec_kernel {
    const tn_kernel *tile;  /* as the first of its equals; its schedule is bound */
    const tn_lfunc *loop;   /* after the passes */
    const char *symbol;     /* of the machine code */
    tn_kernel_fn fn;
    int nsizes;
    int *size;              /* symbol slot of each size parameter */
    int64_t scratch;        /* bytes a worker; -1: depends on the sizes */
    bool traps;             /* scratch begins with the line of a failed check */
    int threads;            /* of a CTA, on a GPU */
    int64_t shared;         /* bytes of its shared memory */
    int cluster;            /* CTAs for each program; 0: one */
    int persistent;         /* CTAs for each processor; 0: one for each program */
    int nmaps;
    const tn_code_map *map; /* parameters behind all others */
    int image;              /* of exec->images, that has it */
} tn_exec_kernel;

/* Code of a batch of kernels for a GPU: PTX with a NUL behind it, and what ptxas makes of it where there is one, else no data. */
typedef struct tn_exec_image {
    tn_blob ptx, cubin;
} tn_exec_image;

typedef struct tn_exec_step {
    const tn_step *step;
    int kernel;         /* KERNEL: index, else -1 */
    const char *name;   /* KERNEL: of the program's kernel, for reports */
    const char *nodes;  /* the model's nodes it computes, comma separated */
    int slot;           /* DEFINE: the symbol's slot */
    int group;          /* what it needs to know before it starts; DEFINE gives group `defines` */
    int defines;
    int block;          /* where it stands */
    int nblocks, *blocks;
    int first, last;    /* positions in the run's order; control steps span their blocks */
} tn_exec_step;

typedef struct tn_exec_block {
    int *step;
    int n;
    int parent; /* step, -1 */
    int depth;
} tn_exec_block;

typedef struct tn_exec_buffer {
    int group;
    bool planned;       /* has a place in its group's segment */
    int same_as;        /* shares the memory of this buffer (in place), -1 */
    int first, last;    /* lifetime, positions */
    const void *fixed;  /* constants (at any byte) and persistent buffers: where they lie; NULL else. For a GPU constants alone, until they are loaded */
    size_t fixed_bytes; /* of a constant or persistent buffer */
    bool owned;         /* `fixed` is ours to free */
} tn_exec_buffer;

typedef struct tn_exec_symbol {
    tn_dim dim;
    int group; /* 0: an input gives it; else the `define` step that does */
} tn_exec_symbol;

/* ---- before there is an executable (order.c) ----------------------------------------------------------------------------- */

/* Sizes of symbols to choose for. */
typedef struct tn_plan_sizes {
    bool (*size)(void *context, const char *symbol, int64_t *size); /* false: not known; NULL: none is */
    void *context;
} tn_plan_sizes;
/* Puts the steps of the program into the order of least memory among a few. Near-linear in steps and their arguments. */
void tn_plan_order(tn_program *program, const tn_plan_sizes *sizes);
/* Computes results again before a later use where that keeps less alive, until no more than `most` bytes of intermediates are alive at any step: kernels
 * without products, the fewest bytes moved again first. False: that was not reached; what was found stays. */
bool tn_plan_recompute(tn_program *program, const tn_plan_sizes *sizes, int64_t most);

/* Parameter i of a kernel in the order of the step's args: the kernel's i-th buffer that is no local. */
const tn_tbuffer *tn_plan_parameter(const tn_kernel *kernel, int i);

typedef struct tn_exec_options {
    const tn_machine *machine; /* NULL: this CPU's */
    int threads;               /* that compile; 0: tn_cpu_count */
    const char *loop_passes;   /* NULL: tn_loop_pipeline */
    const char *print_after;
    int level;                 /* LLVM code generation 0-3 */
    bool verify;               /* Tile IR before lowering, Loop IR after every pass */
    bool no_reuse;             /* every buffer has memory of its own: a plan at fault shows by comparison */
    const char *architecture;  /* of a GPU: what ptxas assembles for; NULL: the machine's */
    int device;                /* the GPU that it runs on */
    const char *cache;         /* folder of compiled code, which keeps an executable's for a GPU; NULL: none */
    int64_t memory_limit;      /* bytes that a run may take (tn_run_memory.peak); 0: no limit */
    const struct tn_exec *shared; /* loaded, for the same machine, and outlives the new one: what its `init` steps made of the same constants by the same code is used
                                   * again (on a CPU). NULL: none */
} tn_exec_options;

typedef struct tn_exec {
    tn_session *session;
    const tn_program *program;
    const tn_machine *machine;
    tn_jit *jit;
    tn_exec_image *images;     /* for a GPU */
    size_t nimages;
    int device;
    struct tn_exec_gpu *gpu;   /* src/run: loaded on the GPU; NULL: not yet, or for a CPU */
    TN_VEC(tn_exec_symbol) symbols; /* by slot */
    tn_map slots;              /* symbol name (interned pointer) -> slot + 1 */
    TN_VEC(tn_exec_kernel) kernels;
    TN_VEC(tn_exec_step) steps;
    TN_VEC(tn_exec_block) blocks;
    int main_block, init_block; /* what runs every time, what runs once at load */
    tn_exec_buffer *buffers;   /* one for each of program->buffers */
    int ngroups;
    bool no_reuse;
    int64_t memory_limit;      /* bytes; 0: none */
    struct tn_exec **variant;  /* of the same network with some sizes fixed; a run takes the first that its inputs fit (src/run). Owned by who made them */
    int nvariants;
    bool bare;                 /* tn_exec_plan made it: no code, and no memory for constants */
    int positions;             /* of the run's order: one past the last */
    int ninputs, noutputs;
    int *input, *output;       /* buffer of each graph input (-1: unused), output */
    size_t constant_bytes;     /* that runs read where they lie */
    size_t owned_bytes;        /* constants copied, packed or computed at load */
    size_t kernel_steps;
    size_t code_bytes;         /* of the objects, before linking */
    double lower_seconds, emit_seconds, link_seconds, load_seconds;
} tn_exec;

/* Compiles every distinct kernel of `program`, links it into this process, plans what does not depend on sizes, and leaves constants ready but
 * for what `init` steps write (src/run runs those). `program` and `session` must outlive the executable.
 * For a GPU's machine the code is kept as PTX and cubins, which src/run loads, whether there is a GPU or not.
 * TN_UNSUPPORTED: an operation has no lowering, or this CPU can't run the machine; TN_NO_MEMORY. Freed with tn_exec_free. */
tn_status tn_exec_new(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_exec **out);
/* The same as far as the memory plan needs it: kernels are lowered, but no code is made and no constant is copied. For any machine; it can't be run. */
tn_status tn_exec_plan(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_exec **out);
void tn_exec_free(tn_exec *exec); /* NULL is allowed. What src/run loaded of it is unloaded before */
/* Gives back the host's copies of constants that the executable owns: they are on a GPU now. */
void tn_exec_drop_constants(tn_exec *exec);

/* Lowers and compiles the distinct kernels into one text or object, in program order. For `tenon compile`. */
tn_status tn_exec_emit(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_emit what, tn_blob *out);
/* The same up to the Loop IR, as text. */
tn_status tn_exec_loop_text(tn_session *session, const tn_program *program, const tn_exec_options *options, tn_text *out);

/* ---- kernels of users (kernel.c, cache.c) ------------------------------------------------------------------------------- */

/* What a kernel takes of a GPU, as ptxas says: of a thread. */
typedef struct tn_ptxas_report {
    int registers, spill_bytes;
} tn_ptxas_report;

/* One kernel as machine code. What it is called with goes by names: a buffer's; a size is the number parameter of its name, else grid_x, grid_y or
 * grid_z. Strings and arrays are the session's. */
typedef struct tn_code {
    const char *symbol;
    const char **buffer, **size;
    int nbuffers, nsizes;
    int64_t scratch;         /* bytes a worker; -1: depends on the sizes, ask tn_kernel_scratch about `loop` */
    bool traps;              /* scratch begins with the number of the assertion that failed, counted from 1: tn_code_assertion */
    const tn_lfunc *loop;    /* NULL: the code was read from a file */
    size_t pointer_accesses; /* that are no accesses of views */
    const tn_diag *note;     /* what was missing for them */
    size_t nnotes;
    tn_blob object;          /* on a CPU until it is linked; for a GPU a cubin, if it has one, and PTX behind it, with a NUL at the end */
    size_t code_bytes;
    tn_jit *jit;
    tn_kernel_fn fn;
    int threads;             /* of a CTA, for a GPU; 0: for a CPU */
    int64_t shared;          /* bytes of a CTA's shared memory */
    int cluster, persistent, nmaps; /* as in tn_exec_kernel */
    const tn_code_map *map;
    size_t cubin_bytes;
    const tn_machine *machine;
    tn_ptxas_report report;  /* with a cubin */
    double lower_seconds, emit_seconds, link_seconds;
} tn_code;

/* PTX of the code of a GPU kernel, and the cubin (NULL: none). */
const char *tn_code_ptx(const tn_code *code);
const void *tn_code_cubin(const tn_code *code);
/* ptxas.c: assembles PTX for an architecture ("sm_90a") by $TENON_PTXAS (empty: none), or the ptxas of the PATH. cubin: no data if there is none, or (with a note) if it refuses; one that was
 * named and refuses is an error. */
tn_status tn_ptxas(tn_session *session, const char *architecture, const tn_blob *ptx, tn_blob *cubin, tn_ptxas_report *report);
bool tn_ptxas_is_there(tn_arena *arena);

/* Makes an object of a verified kernel: the passes of user kernels, lowering, LLVM. options: machine (not NULL), level, loop_passes, print_after ("tile":
 * after the passes on the Tile IR), verify. `kernel` stays as it is. Notes about accesses by pointers go to the session too. */
tn_status tn_code_compile(const tn_kernel *kernel, const tn_exec_options *options, tn_code *out);
/* Links the object into this process. What is for a GPU stays as it is. */
tn_status tn_code_link(tn_session *session, tn_code *code);
void tn_code_free(tn_code *code); /* NULL is allowed; the struct is the caller's */
/* Assertion number `number` of the kernel as tn_code_compile got it; NULL: no such. */
const tn_top *tn_code_assertion(const tn_kernel *kernel, int64_t number);
/* The same work as text: up to the Tile IR after the passes with the notes as comments before it, up to the Loop IR, or by LLVM. */
tn_status tn_code_tile_text(const tn_kernel *kernel, const tn_exec_options *options, tn_text *out);
tn_status tn_code_loop_text(const tn_kernel *kernel, const tn_exec_options *options, tn_text *out);
tn_status tn_code_emit(const tn_kernel *kernel, const tn_exec_options *options, tn_emit what, tn_blob *out);

/* The folder of compiled kernels. wanted: NULL: $TENON_CACHE, else $XDG_CACHE_HOME/tenon, else ~/.cache/tenon. NULL: none; so too if `wanted` or what the
 * environment says first is empty. */
const char *tn_cache_folder(tn_arena *arena, const char *wanted);
void tn_cache_make_folder(tn_arena *arena, const char *folder); /* as deep as it is, for this user alone; what can't be made shows when it is used */
/* All that the code of a kernel depends on, as text: this build of Tenon, the options, the kernel. NULL: this build can't be told from others. */
const char *tn_cache_key(const tn_kernel *kernel, const tn_exec_options *options);
/* What tn_code_compile made of that key before, unlinked, its notes given to the session again. A file that is damaged, or not this user's own, counts as none. */
bool tn_cache_get(const char *folder, const char *key, const tn_kernel *kernel, tn_code *out);
/* Keeps code that has an object. What can't be written is not kept. Files used longest ago go when all take more than $TENON_CACHE_BYTES (256 MiB). */
void tn_cache_put(const char *folder, const char *key, const tn_kernel *kernel, const tn_code *code);

/* ---- sizes ------------------------------------------------------------------------------------------------------------- */

/* Values of the symbols of one run. */
typedef struct tn_values {
    const tn_exec *exec;
    int64_t *value; /* by slot */
    bool *known;
} tn_values;
bool tn_values_eval(const tn_values *values, tn_dim dim, int64_t *out);
/* Sets the symbols from the inputs' shapes and checks all facts (declared ranges, dimensions that must be equal).
 * Diagnostics go to `session`, which may be a run's own. */
typedef struct tn_shape {
    int rank;
    const int64_t *dim;
} tn_shape;
tn_status tn_values_bind(tn_session *session, tn_arena *scratch, tn_values *values, const tn_shape *inputs);
/* The value of `symbol` given by a `define` step, checked against its declared range. */
tn_status tn_values_define(tn_session *session, tn_values *values, const tn_exec_step *step, int64_t value);

/* Bytes of every buffer of `group`, their offsets in its segment, and the segment's size. */
typedef struct tn_layout {
    int64_t *elements, *bytes, *offset; /* by buffer; offset -1: not in a segment */
    int64_t *segment;                   /* by group: bytes */
    int64_t *live;                      /* by group: the most bytes that are alive at once: no plan can be smaller */
} tn_layout;
tn_status tn_layout_group(tn_session *session, tn_arena *scratch, const tn_values *values, int group, tn_layout *layout);

/* ---- what a run needs (memory.c) ---------------------------------------------------------------------------------------- */

void tn_layout_new(tn_arena *arena, const tn_exec *exec, tn_layout *out); /* nothing laid out yet */
/* What a buffer of so many bytes takes in a segment. */
static inline int64_t tn_layout_rounded(int64_t bytes) { return ((bytes > 1 ? bytes : 1) + TN_ALIGN - 1) & -(int64_t)TN_ALIGN; }
/* The lower bound: the most bytes of planned buffers that are alive at one position, in place and rounded as in a segment. No placement needs less.
 * group: of that one; -1: of all that `known` (by group) has. *position, if not NULL: the first where it is so; -1: nothing is planned. Linear in buffers and steps. */
int64_t tn_layout_bound(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, int group, const bool *known, int *position);

/* One run's memory in bytes. */
typedef struct tn_run_memory {
    int64_t arena;    /* segments of intermediates, as placed */
    int64_t bound;    /* the lower bound of them */
    int64_t total;    /* their sum, had each memory of its own */
    int64_t scratch;  /* of all workers */
    int64_t inputs, outputs;
    int64_t weights;  /* constants read where they are mapped; for a GPU 0: they are copied there */
    int64_t packed;   /* constants copied, packed or computed at load */
    int64_t peak;     /* all of it but `total` */
    int step;         /* of exec->steps: where most is alive; -1: nothing is planned */
    bool complete;    /* else some sizes are known only during the run, and what depends on them is not counted */
} tn_run_memory;
/* Sums up groups that are laid out (known, by group). scratch_bytes: of all workers. */
void tn_layout_sum(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, const bool *known, int64_t scratch_bytes, tn_run_memory *out);
/* Lays out all that the inputs' shapes tell (exec: also one of tn_exec_plan) and sums it up, without a run. threads: workers that have scratch; nothing on a GPU. */
tn_status tn_plan_memory(tn_session *session, const tn_exec *exec, const tn_shape *inputs, int threads, tn_run_memory *out);
/* The same for sizes of the symbols. *known: they tell all sizes that are known before a run; else nothing is laid out. */
tn_status tn_plan_memory_at(tn_session *session, const tn_exec *exec, const tn_plan_sizes *sizes, int threads, bool *known, tn_run_memory *out);
/* TN_NO_MEMORY if a run takes more than the executable's limit: the diagnostic names the peak and its parts, the bound, the limit, and where most is alive. */
tn_status tn_plan_check_limit(tn_session *session, const tn_exec *exec, const tn_run_memory *memory);
/* "@kernel (nodes)" of a step for a message; "": -1. */
const char *tn_plan_step_text(tn_arena *arena, const tn_exec *exec, int step);
/* The step at which most of the group's buffers are alive; -1: it has none. */
int tn_layout_fullest(tn_arena *scratch, const tn_exec *exec, const tn_layout *layout, int group);

#endif
