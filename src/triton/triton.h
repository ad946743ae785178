/* Kernels in Triton's language -> Tile IR. The front end reads the kernel's text, types it for given argument types and constants, inlines every
 * function that it calls, and builds one kernel of the Tile IR.
 *
 * A pointer parameter becomes a buffer and a pointer scalar, both of its name; a number becomes a scalar of its name. program_id(0) is the innermost grid
 * coordinate; the grid's sizes are the symbols grid_x, grid_y, grid_z. All accesses are load_ptr, store_ptr, atomic_ptr, cas_ptr: block pointers and
 * tensor descriptors too, as pointer tiles and masks; the pass `recover` (src/tile) finds the views in them. */
#ifndef TN_TRITON_H
#define TN_TRITON_H

#include "tile/tile.h"

typedef struct tn_triton_module tn_triton_module; /* texts and what their global names stand for; lives in the session */

tn_triton_module *tn_triton_module_new(tn_session *session);
/* Adds a text (a whole file, or one function's source); *unit is its number. Copies the text. */
tn_status tn_triton_add(tn_triton_module *module, const char *file, int first_line, const char *text, size_t size, int *unit);
/* A global name of the unit := a literal ("64", "'relu'", "None", "tl.float16", "(1, 2)"), as if by NAME = tl.constexpr(LITERAL). */
tn_status tn_triton_bind(tn_triton_module *module, int unit, const char *name, const char *literal);
/* A global name of the unit := a function of another. */
tn_status tn_triton_bind_function(tn_triton_module *module, int unit, const char *name, int other, const char *function);

typedef struct tn_triton_parameter {
    const char *name;
    bool constexpr;      /* annotated tl.constexpr */
    bool do_not_specialize;
    bool optional;       /* a default, autotune's configurations or heuristics give it */
    const char *type;    /* of a non-constexpr annotation that names one (tl.float32 …): "f32"; NULL: none */
} tn_triton_parameter;
/* The function's parameters, in order. TN_USAGE: there is no such @triton.jit function (the diagnostic lists those that are). */
tn_status tn_triton_parameters(tn_triton_module *module, int unit, const char *function, const tn_triton_parameter **out, size_t *n);

typedef struct tn_triton_options {
    int num_warps, num_stages; /* 0: the configuration's, else 4 and 3; constants of the same name see them */
    int config;                /* which of autotune's configurations; they are numbered from 0 */
    bool debug;                /* device_assert is checked */
    int gpu;                   /* compute capability of the GPU, times 10: inline assembly and the like are allowed; 0: a CPU */
    bool apart;                /* parameters do not overlap in memory */
    bool contract;             /* a product and a sum may be rounded once (tn_kernel.contract) */
} tn_triton_options;

/* What the kernel takes at launch, in the order of the function's parameters. */
typedef struct tn_triton_value {
    const char *name;
    int buffer;    /* index into kernel->buffers, or -1 */
    int scalar;    /* index into kernel->scalars, or -1 */
    tn_ttype type;
} tn_triton_value;
typedef struct tn_triton_kernel {
    tn_kernel *kernel;           /* verified */
    const tn_triton_value *value;
    size_t nvalues;
    int num_warps, num_stages;
} tn_triton_kernel;

/* Compiles a function for one specialisation. arguments: one text a parameter:
 *   "*f32"  "*f32:16"  a pointer (to an address that 16 divides);  "*i1" is a pointer to bool
 *   "i32"  "i64:16"  "f32"  "i1"   a number (that 16 divides)
 *   "i32=1"            a number that is this constant (Triton makes constants of integers that are 1)
 *   "desc<f16[64x32]>" a tensor descriptor: at launch a pointer, then `rank` sizes, then `rank` strides in elements (the last is 1)
 *   "=LITERAL"         a constant, of a constexpr parameter or any other; or a name that is bound in the unit
 *   NULL               left out: its default, configuration or heuristic gives it
 * Types: i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 and Triton's names of them (fp16, fp8e4nv, float16 …).
 * Errors are diagnostics at FILE:LINE:COLUMN with the source line and a caret, and a note for each call that led there. */
tn_status tn_triton_compile(tn_triton_module *module, int unit, const char *function, const char *const *arguments, size_t narguments,
                            const tn_triton_options *options, tn_triton_kernel *out);
/* How many configurations autotune names for the function (0: it has none), and configuration i as text: "BLOCK_M=128 num_warps=8". */
tn_status tn_triton_configs(tn_triton_module *module, int unit, const char *function, size_t *n);
const char *tn_triton_config(tn_triton_module *module, int unit, const char *function, size_t i);

#endif
