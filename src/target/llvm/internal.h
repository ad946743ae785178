/* What the files of the LLVM emitter share.
 *
 * How a Loop IR value looks in LLVM IR (one lane; a vector is a fixed LLVM vector of it):
 *   bool            i1; in memory i8, 0 or 1
 *   i4, u4          i4; in memory two to a byte, low nibble first
 *   other integers  iN; signedness is in the operation
 *   f16, bf16, f8   their bits as i16 or i8: arithmetic widens to f32 and rounds back, so that no target's idea of
 *                   half-precision legalisation (and no run-time library of its own) is ever asked for
 *   f32, f64        float, double, with no fast-math flag
 *   c64, c128       a vector of the two parts; one lane only
 *   buffer          ptr; offsets become getelementptr. Shared memory of a GPU: ptr addrspace(3) */
#ifndef TN_TARGET_LLVM_INTERNAL_H
#define TN_TARGET_LLVM_INTERNAL_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "target/target.h"

typedef struct tn_emitter {
    tn_session *session;
    const tn_machine *machine;
    const tn_lfunc *func;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMBuilderRef allocas; /* at the end of the entry block */
    LLVMValueRef function;
    LLVMValueRef *values;    /* by tn_lvalue.id */
    LLVMValueRef scratch;    /* the kernel's scratch pointer */
    LLVMValueRef scratch_at; /* bytes of it in use here: i64, a multiple of 64 */
    unsigned invariant_load; /* metadata kind */
    LLVMValueRef shared;     /* the module's shared memory, on a GPU; NULL until an alloc needs it */
    LLVMValueRef zeros;      /* a constant of the module, that loads which are off read; NULL until one does */
    bool streams;            /* the function holds stores past the caches, which only a fence puts before what its caller does next */
    const tn_lop *loop;      /* the innermost `for` round what is being emitted; NULL: none */
    LLVMBasicBlockRef before; /* where that one is entered from: still open at its end */
    const tn_lop *role;      /* the `roles` that a block is being emitted of; NULL: outside of one */
    int role_block;          /* which */
    LLVMValueRef instance;   /* i32, number of this thread's instance of it; NULL: there is one */
    int line;                /* source line of the operation being emitted */
    tn_status status;        /* first error; what is emitted after it is thrown away */
} tn_emitter;

/* Records that this target can't do something; the first one wins. Returns poison of `type` (NULL for none), so that the caller can go on. */
LLVMValueRef tn_emit_refuse(tn_emitter *e, LLVMTypeRef type, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- types and small pieces (types.c) ---------------------------------------------------------------------------------- */

LLVMTypeRef tn_emit_type(tn_emitter *e, tn_dtype dtype, int lanes);        /* of a value */
LLVMTypeRef tn_emit_memory_type(tn_emitter *e, tn_dtype dtype, int lanes); /* of what is loaded; not for sub-byte types */
LLVMTypeRef tn_emit_int_type(tn_emitter *e, int bits, int lanes);
LLVMTypeRef tn_emit_float_type(tn_emitter *e, int lanes);
LLVMTypeRef tn_emit_double_type(tn_emitter *e, int lanes);
int tn_emit_lanes(LLVMTypeRef type); /* 1: scalar */
LLVMValueRef tn_emit_number(tn_emitter *e, tn_dtype dtype, int lanes, tn_number number);
LLVMValueRef tn_emit_int(LLVMTypeRef type, int64_t value); /* of an integer type or vector of one, all lanes */
LLVMValueRef tn_emit_real(LLVMTypeRef type, double value);
LLVMValueRef tn_emit_splat(tn_emitter *e, LLVMValueRef scalar, int lanes);
LLVMValueRef tn_emit_lane(tn_emitter *e, LLVMValueRef vector, int lane); /* a scalar is its own lane 0 */
LLVMValueRef tn_emit_with_lane(tn_emitter *e, LLVMValueRef vector, LLVMValueRef value, int lane);
/* Lanes [first, first + n) as a vector (n = 1: a scalar). */
LLVMValueRef tn_emit_slice(tn_emitter *e, LLVMValueRef vector, int first, int n);
/* Calls an LLVM intrinsic by its name without the type suffix; `overload` are the types that the suffix stands for. */
LLVMValueRef tn_emit_intrinsic(tn_emitter *e, const char *name, const LLVMTypeRef *overload, size_t noverload,
                               LLVMValueRef *args, unsigned nargs);
/* Attributes of a function: one that LLVM knows, of the function itself or of parameter 1, 2, …; one that is a text. */
void tn_emit_attribute(tn_emitter *e, LLVMValueRef function, LLVMAttributeIndex at, const char *name);
void tn_emit_text_attribute(tn_emitter *e, LLVMValueRef function, const char *name, const char *value);
LLVMValueRef tn_emit_intrinsic_same(tn_emitter *e, const char *name, LLVMValueRef *args, unsigned nargs); /* overload: args[0] */
static inline LLVMValueRef tn_emit_value(const tn_emitter *e, const tn_lvalue *value) { return e->values[value->id]; }
bool tn_is_narrow_float(tn_dtype dtype); /* held as its bits */

/* ---- subjects ------------------------------------------------------------------------------------------------------------ */

/* fn.c: a row of base/scalars.def on values of `dtype` (select: args[0] is the mask). */
LLVMValueRef tn_emit_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args);
/* A function of the C library, declared in the module. */
LLVMValueRef tn_emit_library_function(tn_emitter *e, const char *name, LLVMTypeRef type);
/* complex.c: the same for complex numbers of one lane; a cast from or to one. */
LLVMValueRef tn_emit_complex_fn(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args);
LLVMValueRef tn_emit_complex_cast(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to);
/* casts.c: tn_number_convert on values. */
LLVMValueRef tn_emit_cast(tn_emitter *e, LLVMValueRef value, tn_dtype from, tn_dtype to);
/* memory.c: alloc, load, gather, store, scatter, atomic, cas, prefetch. */
void tn_emit_memory_op(tn_emitter *e, const tn_lop *op);
/* machine_ops.c: a row of cpu/intrinsics.def by name. */
LLVMValueRef tn_emit_machine_op(tn_emitter *e, const tn_lop *op);
/* gpu.c: a function of a GPU's module, its parameters one by one: buffers, sizes, begin and end (numbers of programs, where the function has them). */
void tn_emit_gpu_function(tn_emitter *e);
/* The module's PTX, its kernels ready to be started before the one before them ends. */
tn_text tn_emit_gpu_waits(tn_emitter *e, const char *ptx);
LLVMValueRef tn_emit_thread(tn_emitter *e); /* number of the thread in its CTA, i64 */
LLVMValueRef tn_emit_cta(tn_emitter *e);    /* of the CTA in its cluster */
/* Byte `at` of the CTA's shared memory, whose size the launch gives. */
LLVMValueRef tn_emit_shared(tn_emitter *e, int64_t at);
LLVMValueRef tn_emit_asm(tn_emitter *e, const tn_lop *op);
void tn_emit_barrier(tn_emitter *e);
LLVMValueRef tn_emit_instance(tn_emitter *e); /* i32: number of this thread's instance of the first block of the roles that are being emitted */
void tn_emit_gpu_fence(tn_emitter *e, tn_lscope scope);
/* The operand of a lane_xor or lane_at as another lane has it. */
LLVMValueRef tn_emit_other_lane(tn_emitter *e, const tn_lop *op);
/* gpu_memory.c: memory that a thread touches only under a condition, an i1, without a branch. */
typedef struct tn_guarded {
    LLVMValueRef address, condition; /* condition: NULL: of a store, always */
    int64_t at;            /* bytes behind the address */
    int64_t align;         /* of what is touched: a power of two */
    bool shared, readonly; /* neither: global memory that may change */
} tn_guarded;
LLVMValueRef tn_emit_guarded_load(tn_emitter *e, const tn_guarded *guarded, LLVMValueRef other); /* of the type of `other`, which is its value otherwise */
void tn_emit_guarded_store(tn_emitter *e, const tn_guarded *guarded, LLVMValueRef value);
/* A relaxed atomic of global memory that has a scope in its name, of 16, 32 or 64 bits: `what` is the end of the instruction, "cas.b32"; args: the address, then
 * values of `type`, which it gives too. */
LLVMValueRef tn_emit_scoped_atomic(tn_emitter *e, tn_lscope scope, const char *what, LLVMTypeRef type, LLVMValueRef *args, unsigned nargs);
/* gpu_machine.c: an instruction by name. */
void tn_emit_gpu_machine(tn_emitter *e, const tn_lop *op);
/* Makes the programs of the grid [*lo, hi) by *step those of this CTA. */
LLVMValueRef tn_emit_gpu_grid(tn_emitter *e, const tn_lop *op, LLVMValueRef *lo, LLVMValueRef *step); /* what two steps of a loop that is `turned` are together; NULL: of others */
/* gpu_report.c: prints a line, its values i64 or f64; ends the thread of a failed assertion, leaving its number. */
void tn_emit_gpu_print(tn_emitter *e, LLVMValueRef format, LLVMValueRef *values, int n);
void tn_emit_gpu_trap(tn_emitter *e, int64_t number);
/* gpu_scalar.c: one PTX instruction (or more) without an effect on anything but its result, on one lane of each argument. */
LLVMValueRef tn_emit_ptx(tn_emitter *e, LLVMTypeRef type, const char *text, const char *constraints, LLVMValueRef *args, unsigned nargs);
/* A row of loop/gpu_functions.def; NULL: there is none of that name. */
LLVMValueRef tn_emit_gpu_fn(tn_emitter *e, const char *name, LLVMValueRef *args, unsigned nargs);
/* Between f32 and the narrow floats, by the instructions that the machine has. */
LLVMValueRef tn_emit_gpu_widen(tn_emitter *e, LLVMValueRef value, tn_dtype from);
LLVMValueRef tn_emit_gpu_narrow(tn_emitter *e, LLVMValueRef value, tn_dtype to);
/* A function of two vectors of f16 or bf16 by instructions that compute two lanes each; NULL: there is none, or the lanes are odd. */
LLVMValueRef tn_emit_gpu_paired(tn_emitter *e, tn_scalar fn, tn_dtype dtype, LLVMValueRef *args);
/* emit.c: LLVM's targets and error handler, once a process. */
void tn_llvm_initialize(void);
/* kernel.c: a function of the module. */
void tn_emit_kernel(tn_emitter *e, const tn_lfunc *func);
/* A new block after the current one. */
LLVMBasicBlockRef tn_emit_block_after(tn_emitter *e, const char *name);

/* scratch.c: where a buffer lives. Bytes that hold n elements of a buffer's type; false on overflow. */
bool tn_buffer_bytes(tn_ltype type, int64_t n, int64_t *bytes);
/* Index parameters of a kernel that are sizes: all but a closing %begin, %end. */
size_t tn_size_count(const tn_lfunc *func);
bool tn_alloc_on_stack(const tn_lop *alloc);
/* Cache line and widest vector: every scratch buffer starts at a multiple. A kernel with traps keeps its record in the first one. */
enum { TN_SCRATCH_ALIGN = 64 };

#endif
