/* Targets. A machine is a row of a table (machines.def); the generic row `baseline` covers every operation. */
#ifndef TN_TARGET_H
#define TN_TARGET_H

#include "loop/loop.h"
#include "tile/tile.h"

/* Operations (a multiply-add is two) and bytes a second, at most. Products: of factors of so many bits; product32: in full precision. */
typedef struct tn_machine_limits {
    double memory, f32, f64, product64, product32, product_tf32, product16, product8;
} tn_machine_limits;

typedef struct tn_machine {
    const char *name;         /* baseline, avx2, avx512, neon … */
    const char *triple;       /* LLVM target triple */
    const char *cpu;          /* LLVM cpu name */
    const char *features;     /* LLVM feature string */
    const char *needs;        /* cpuid feature names that must be present to run, space separated ("avx2 fma f16c bmi2") */
    tn_vector_spec vector;
    int dot_rows, dot_vectors; /* register tile of the f32 product: rows x vectors (6 x 4 of AVX-512, 6 x 2 of AVX2) */
    bool gpu;                 /* code is PTX, which a driver takes; Loop IR has `threads` */
    bool groups;              /* of a GPU: products of four warps (wgmma) */
    int processors;           /* of the GPU that the row is made for */
    const tn_machine_limits *limits; /* of that GPU; NULL: a CPU's row, whose rates are measured */
    int64_t l1_bytes, l2_bytes; /* for code that is made elsewhere; tn_machine_tile_target takes this CPU's where it can run the row */
} tn_machine;

const tn_machine *tn_machine_find(const char *name);       /* NULL: unknown; "host" or NULL: best row this CPU can run */
const tn_machine *tn_machine_list(size_t *n);
/* NULL if this CPU has all that `machine` needs, else a sentence that names what is missing (arena-owned). */
const char *tn_machine_refusal(tn_arena *arena, const tn_machine *machine);
bool tn_machine_has(const tn_machine *machine, const char *feature); /* one of `needs` */
void tn_machine_caches(int64_t *l1, int64_t *l2, int64_t *l3); /* of this CPU, bytes a core; 0: unknown */

/* What schedules may know of a machine; threads: of the run. */
tn_tile_target tn_machine_tile_target(const tn_machine *machine, int threads);

/* ---- lowering (src/target/lower, src/target/cpu, src/target/gpu) ------------------------------------------------------------ */
/* Lowers a verified kernel to scalar Loop IR with `vector` and `unroll` loops; the loop pipeline makes vectors of it.
 * Parameters: the kernel's buffers but the locals; one index for each symbol that occurs, named by it; %begin, %end: programs,
 * counted with the last grid coordinate fastest. Binds the schedule. TN_UNSUPPORTED names an operation that has no lowering. */
tn_status tn_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out); /* by the kind of machine: one of these */
tn_status tn_cpu_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out);
/* There are threads (func->threads) that run a program together, and fewer than 2^32 programs. */
tn_status tn_gpu_lower(tn_session *session, tn_kernel *kernel, const tn_machine *machine, tn_lfunc **out);

/* How many CTAs had better share each program of a kernel, whose tiles have their sizes, as a cluster: it keeps rows of which a processor had one under way else. */
int tn_gpu_cluster(tn_session *session, const tn_kernel *kernel, const tn_machine *machine);

/* ---- LLVM (src/target/llvm) -------------------------------------------------------------------------------------------- */
/* What a compiled kernel looks like in C. buffers: one pointer a buffer parameter; sizes: one a size parameter; [begin, end): the part of
 * the flattened grid; scratch: tn_kernel_scratch bytes, aligned 64, private to the caller. */
typedef void (*tn_kernel_fn)(void *const *buffers, const int64_t *sizes, int64_t begin, int64_t end, void *scratch);

typedef enum tn_emit { TN_EMIT_LLVM, TN_EMIT_ASM, TN_EMIT_OBJECT } tn_emit;
typedef struct tn_blob { char *data; size_t size; } tn_blob; /* malloc'ed */
/* Compiles functions (after the loop pipeline) into one module. Thread-safe: an own LLVM context each call. level: 0-3 codegen optimisation.
 * Errors: TN_UNSUPPORTED (an op the target can't do: named), TN_NO_MEMORY. */
tn_status tn_llvm_emit(tn_session *session, tn_lfunc *const *funcs, size_t n, const tn_machine *machine, tn_emit what, int level, tn_blob *out);
bool tn_llvm_is_library_name(const char *name); /* of a function that emitted code may call: no kernel can be called so */
/* Does a kernel hold checks (`trap`)? Then the first int64 of scratch is theirs: the caller sets it to 0, and a check that fails leaves its line there and
 * ends the kernel. On a GPU it is the module's global TN_TRAPPED instead, which holds 0 when the module is loaded; the first check that fails leaves its line there,
 * each ends its thread, and who reads the number sets it to 0 again. */
#define TN_TRAPPED "tn_trapped"
/* In PTX whose kernels may be started before the one before them in the stream has ended: they begin with it. */
#define TN_GPU_WAIT "griddepcontrol.wait"
/* A module with kernels that have maps has this global: 16 bytes of zeros, where a view without elements is read, and 16 where it is written. */
#define TN_NOWHERE "tn_nowhere"
enum { TN_NOWHERE_BYTES = 32 };
bool tn_kernel_traps(const tn_lfunc *func);
/* Bytes of scratch a kernel needs for its local buffers, given its sizes (constant part + sized allocs evaluated). */
bool tn_kernel_scratch(const tn_lfunc *func, const int64_t *sizes, int64_t *bytes);

/* Objects linked into this process. */
typedef struct tn_jit tn_jit;
tn_status tn_jit_new(tn_session *session, tn_jit **out);
tn_status tn_jit_add_object(tn_session *session, tn_jit *jit, const void *object, size_t size); /* copied */
void *tn_jit_symbol(tn_jit *jit, const char *name); /* NULL: unknown */
void tn_jit_free(tn_jit *jit);

#endif
