/* Tenon: a deep-learning compiler. The public C API.
 *
 *     tn_session *session = tn_session_new();
 *     tn_network *network;
 *     tn_executable *executable;
 *     tn_context *context;
 *     if (tn_load_onnx(session, "model.onnx", NULL, &network) || tn_compile(session, network, NULL, &executable) ||
 *         tn_context_new(executable, &context))
 *         …                                             // tn_diagnostic_at says what is wrong and where
 *     int64_t shape[] = {1, 2048};
 *     DLTensor input = {.data = bytes, .device = {1, 0}, .ndim = 2, .dtype = {1, 8, 1}, .shape = shape};
 *     DLTensor output = {0};                            // no data: Tenon allocates it
 *     if (tn_run(context, &input, 1, &output, 1))
 *         … tn_context_error(context) …
 *     tn_tensor_free(&output);
 *     tn_context_free(context), tn_executable_free(executable), tn_network_free(network), tn_session_free(session);
 *
 * Who owns what: a session owns diagnostics and all that is compiled in it; it must be freed last. An executable needs its network (its weights
 * stay where the file is mapped). A context needs its executable. Strings that a function returns belong to the handle they came from.
 *
 * GPUs: `machine = "cuda"` in the options compiles for NVIDIA's. CUDA's driver is loaded when it is first asked for; nothing else of CUDA is needed.
 *
 * Threads: a session and what is called with it are for one thread at a time; several sessions are independent. An executable may be
 * used from any number of threads, each with a context of its own.
 *
 * Errors: functions return TN_OK (0) or say what kind of failure it was; the diagnostics say what, where, and how to go on. An output argument
 * is only written on success. Malformed input never ends the process. */
#ifndef TENON_H
#define TENON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------------------------------- */

typedef enum tn_status {
    TN_OK = 0,
    TN_INVALID,     /* the input is at fault; a diagnostic says where */
    TN_UNSUPPORTED, /* the input is legal, Tenon can't do it; a diagnostic names what */
    TN_NO_MEMORY,
    TN_IO,          /* a file could not be read or written */
    TN_MISMATCH,    /* check: results differ */
    TN_USAGE        /* the call itself is wrong (a NULL handle, a name that does not exist) */
} tn_status;

/* ---- DLPack (the layout of DLPack 1.x, declared anew; compatible with dlpack.h) ------------------------------------ */

#ifndef DLPACK_VERSION
#ifndef DLPACK_DLPACK_H_
typedef struct {
    int32_t device_type; /* 1: CPU, 2: CUDA */
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 10 float8_e4m3fn, 12 float8_e5m2 */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} DLTensor;
#endif
#endif

/* ---- sessions, diagnostics --------------------------------------------------------------------------------------------- */

typedef struct tn_session tn_session;       /* compiles; owns diagnostics and memory of what it compiles */
typedef struct tn_network tn_network;       /* a model as loaded */
typedef struct tn_executable tn_executable; /* a model compiled for this machine */
typedef struct tn_context tn_context;       /* memory and state of one run at a time */

const char *tn_version(void);

/* A new session, NULL if there is no memory. */
tn_session *tn_session_new(void);
/* Frees the session and everything made in it that has no tn_…_free of its own. NULL is allowed. Networks, executables and contexts go first. */
void tn_session_free(tn_session *session);
/* Sets a named option; both strings are copied. TN_USAGE if a pointer is NULL or no option has the name; values are looked at where they are used.
 *   numerics          parity, strict or fast (docs/numerics.md)
 *   matmul-precision  ieee, tf32x3 or tf32: of products of f32
 *   memory-limit      bytes that a run may take in all (tn_memory_info.peak): 1000000, 512K, 64M, 2G. To keep it cheap results are computed again before a later use. What
 *                     can't be kept is refused (TN_NO_MEMORY) with the peak, its parts and where it is: by tn_compile, or with symbolic sizes by the run, before it allocates
 *   tune              seconds that tn_compile may spend on measuring schedules of kernels on the machine; what it finds is kept in a database in the cache's folder, which
 *                     every later compile uses. "0", as without the option: no measuring; "off": the database is not used either (docs/tuning.md)
 *   tune-sizes        NAME=N, comma separated: sizes of symbolic dimensions to measure at; else their upper bounds
 *   variants          NAME=N,NAME=N;…: sizes of symbolic dimensions, one list a variant. tn_compile makes code for these sizes alone too, and a run takes the first variant that its
 *                     inputs fit, else the code for all sizes (docs/executable.md)
 *   schedule          a file that pins schedules: as TN_STAGE_SCHEDULE prints it */
tn_status tn_session_option(tn_session *session, const char *name, const char *value);
/* Calls `progress` while long work goes on: the stage's name, how much of how much is done. From the thread that called Tenon. NULL: none. */
void tn_session_progress(tn_session *session, void (*progress)(void *context, const char *stage, size_t done, size_t total), void *context);

/* One message. Pointers are valid until the session's diagnostics are cleared. */
typedef struct tn_diagnostic {
    int severity;     /* 0 note, 1 warning, 2 error, 3 what a kernel prints while it is compiled (tl.static_print) */
    tn_status status; /* of an error */
    const char *file; /* NULL: none */
    int line, column; /* 0: none */
    const char *node; /* name of the model's node; NULL: none */
    const char *message;
} tn_diagnostic;
size_t tn_diagnostic_count(const tn_session *session);
/* TN_USAGE if there is no i-th diagnostic. */
tn_status tn_diagnostic_at(const tn_session *session, size_t i, tn_diagnostic *out);
void tn_diagnostics_clear(tn_session *session);

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

typedef struct tn_load_options {
    const char *const *dim_names; /* symbolic dimensions that get a fixed size */
    const int64_t *dim_sizes;
    size_t ndims;
} tn_load_options;

/* Loads an ONNX file (opsets 7 to 28). The file is mapped and stays so while the network lives; external data is read from its folder only.
 * options: NULL for none. TN_IO: the file can't be read; TN_INVALID: it is malformed; TN_UNSUPPORTED: operators that Tenon lacks, all named. */
tn_status tn_load_onnx(tn_session *session, const char *path, const tn_load_options *options, tn_network **out);
/* The same from memory, which must stay as it is while the network lives. `name` stands for the file in diagnostics; external data is refused. */
tn_status tn_load_onnx_bytes(tn_session *session, const char *name, const void *data, size_t size, const tn_load_options *options, tn_network **out);
/* A graph in the text form that `tenon compile --emit=graph` prints: the first of the file. */
tn_status tn_load_text(tn_session *session, const char *path, tn_network **out);
void tn_network_free(tn_network *network); /* NULL is allowed */

/* An input or output. Sizes that are symbolic have dim[i] == -1 and a text like "batch" or "2*s + 1"; else the text is the number. */
typedef struct tn_value_info {
    const char *name;
    DLDataType dtype;
    const char *dtype_name; /* f32, i64, bool, … */
    int rank;
    const int64_t *dim;
    const char *const *dim_text;
} tn_value_info;
size_t tn_input_count(const tn_network *network);
size_t tn_output_count(const tn_network *network);
tn_status tn_input_info(const tn_network *network, size_t i, tn_value_info *out);  /* TN_USAGE: no such input */
tn_status tn_output_info(const tn_network *network, size_t i, tn_value_info *out); /* TN_USAGE: no such output */
/* Operators of the file, by name, with how often they occur; in the order in which the file first uses them. */
size_t tn_operator_count(const tn_network *network);
tn_status tn_operator_info(const tn_network *network, size_t i, const char **name, int64_t *uses);

/* ---- compiling --------------------------------------------------------------------------------------------------------- */

typedef struct tn_compile_options {
    const char *machine;     /* name of a machine (`tenon info` lists them); NULL or "host": the best that this CPU can run; "cuda" or "cuda:N": the best
                              * for GPU N (0), or, to compile where there is none, for the newest; a GPU's machine may end in ":N" too */
    int threads;             /* for running (on a CPU) and for compiling; 0: as many CPUs as this process may use */
    const char *passes;      /* graph passes, comma separated; NULL: the default list. "-fuse" in the list: one kernel an operation */
    const char *print_after; /* prints the IR to stderr after this pass, or after every one: "all"; NULL: none */
    int verify;              /* checks the IR after every pass: slower, for finding faults of Tenon */
} tn_compile_options;

/* Compiles the network for this machine: graph passes, fusion, code, memory plan; weights are packed, and for a GPU put there. options: NULL for the
 * defaults. TN_UNSUPPORTED: an operation has no lowering, this CPU lacks what the machine needs, there is no such GPU (all that is missing is named);
 * TN_NO_MEMORY. */
tn_status tn_compile(tn_session *session, const tn_network *network, const tn_compile_options *options, tn_executable **out);
void tn_executable_free(tn_executable *executable); /* NULL is allowed */

typedef enum tn_stage { TN_STAGE_GRAPH, TN_STAGE_TILE, TN_STAGE_LOOP, TN_STAGE_LLVM, TN_STAGE_ASM, TN_STAGE_OBJECT, TN_STAGE_SCHEDULE } tn_stage;
/* The compiler's work up to a stage, as text (an ELF object for TN_STAGE_OBJECT; a file of pins for TN_STAGE_SCHEDULE) of *size bytes with a 0 behind it. Any machine
 * may be named, not only what this CPU can run. Freed with tn_free. */
tn_status tn_emit_stage(tn_session *session, const tn_network *network, const tn_compile_options *options, tn_stage stage, char **out, size_t *size);
void tn_free(void *memory); /* NULL is allowed */

/* What an executable needs beyond its contexts, and how long it took to make. Bytes and seconds. */
typedef struct tn_executable_info {
    size_t kernels;           /* distinct kernels */
    size_t kernel_steps;      /* kernels that a run starts */
    size_t constant_bytes;    /* weights used where the file is mapped */
    size_t packed_bytes;      /* weights copied, packed or computed at load */
    size_t code_bytes;        /* object code before linking */
    double graph_seconds, fuse_seconds, lower_seconds, emit_seconds, link_seconds, load_seconds;
    int threads;              /* of its worker pool */
    const char *machine;
    int device;               /* number of the GPU that it runs on; -1: the CPU */
} tn_executable_info;
tn_status tn_executable_describe(const tn_executable *executable, tn_executable_info *out);

/* ---- running ----------------------------------------------------------------------------------------------------------- */

/* A context for one run at a time. Memory comes with the first run and is kept for the next. TN_NO_MEMORY. */
tn_status tn_context_new(const tn_executable *executable, tn_context **out);
void tn_context_free(tn_context *context); /* NULL is allowed */

/* A context on a GPU puts its work into this stream from now on: a CUstream of the driver's (a cudaStream_t), 1 for CUDA's default stream, 2 for that of the
 * thread; NULL: a stream of its own again, as at first. The stream must last until another is set, and until the context and the outputs that it allocated are freed.
 * Waits for what is under way. TN_USAGE: the context runs on a CPU. */
tn_status tn_context_set_stream(tn_context *context, void *stream);

/* Runs once.
 *   inputs   in the network's order, device CPU, exact element types. Any strides; dense and aligned data is used where it is, anything else is
 *            copied. Sizes must fit the declared shapes; symbols are solved from them. Not changed; must not overlap the outputs.
 *   outputs  in the network's order. With data: exact element type and shape, any strides. Without (data == NULL): Tenon allocates data and
 *            shape and fills the rest; free each with tn_tensor_free. After a failure nothing is allocated.
 *   on a GPU tensors may also lie on the executable's GPU (device 2 or 13, its number): dense; used where they lie if they are aligned to 64 bytes, else copied there.
 *            An output without data is allocated there if its device_type is 2, else (0, 1) on the CPU. Tensors of the CPU are copied there and back. If the
 *            caller set a stream and all tensors are on the GPU, the call starts the work and does not wait; else it returns when all is done, and work on
 *            its inputs must be done before. What goes wrong in the GPU is told by whoever waits.
 * TN_INVALID: sizes or values that the network can't take; TN_USAGE: counts, types, devices; TN_NO_MEMORY. tn_context_error says more.
 * The first run with new sizes plans memory; later ones with the same sizes allocate nothing (outputs without data apart). */
tn_status tn_run(tn_context *context, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs);
/* Copies a dense tensor of the CPU to the context's GPU: *to is to be freed with tn_tensor_free. TN_USAGE: the context runs on a CPU; TN_NO_MEMORY. */
tn_status tn_tensor_upload(tn_context *context, const DLTensor *from, DLTensor *to);
/* Frees what Tenon allocated for an output and clears the tensor. Not for other tensors. One on a GPU: work on it must be done, or be in the stream that the
 * context was given; it may be freed after the context and the executable. */
void tn_tensor_free(DLTensor *tensor);
/* What went wrong in the last call on this context: one line for each message, "" after success. Valid until the next call. */
const char *tn_context_error(const tn_context *context);

/* Shape of output i for inputs of these shapes (data is not looked at): *rank sizes into shape[0 … 11], -1 where only a run can tell. */
tn_status tn_output_shape(tn_context *context, const DLTensor *inputs, size_t ninputs, size_t i, int *rank, int64_t *shape);

/* Exact memory of a run with inputs of these shapes, before it runs: bytes. */
typedef struct tn_memory_info {
    size_t arena;       /* intermediate tensors, as planned */
    size_t lower_bound; /* most bytes of them alive at once: no plan can need less */
    size_t total;       /* their sum, had each memory of its own */
    size_t scratch;     /* of all workers */
    size_t inputs, outputs;
    int complete;       /* 0: some sizes are known only during the run; what depends on them is not counted */
    size_t weights;     /* read where the file is mapped */
    size_t packed;      /* weights copied, packed or computed at load; on a GPU all of them */
    size_t peak;        /* all of it but lower_bound and total: arena, scratch, inputs, outputs, weights, packed */
    const char *step;   /* the kernel or operation during which most is alive, as long as what it was compiled in lives; "": nothing is planned */
    const char *nodes;  /* the model's nodes that it computes, comma separated */
    double graph_seconds, fuse_seconds, lower_seconds, plan_seconds; /* of tn_network_memory: where its time went */
} tn_memory_info;
tn_status tn_memory_needed(tn_context *context, const DLTensor *inputs, size_t ninputs, tn_memory_info *out);
/* The same of a network that is not compiled: fuses, lowers and plans, but makes no code. For any machine; options and errors as for tn_compile. `threads` of options:
 * workers that have scratch memory. Texts of *out last as long as the session. */
tn_status tn_network_memory(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs,
                            tn_memory_info *out);

/* Times every kernel from now on (1) or no longer (0); a change forgets earlier times. */
void tn_profile_start(tn_context *context, int on);
typedef struct tn_profile_row {
    const char *kernel;   /* name */
    const char *nodes;    /* the model's nodes it computes, comma separated */
    int64_t runs, programs;
    double seconds, least_seconds; /* of all runs, of the fastest */
    int64_t bytes;        /* of its arguments: read or written at least */
    int threads;
} tn_profile_row;
size_t tn_profile_count(const tn_context *context);
tn_status tn_profile_at(const tn_context *context, size_t i, tn_profile_row *out); /* in run order; TN_USAGE: no such row */

/* Runs the reference interpreter instead: slow, plain, the meaning of the network. Types and shapes as for tn_run; all outputs are allocated. */
tn_status tn_run_reference(tn_session *session, const tn_network *network, const DLTensor *inputs, size_t ninputs, DLTensor *outputs, size_t noutputs);

/* Compares compiled code with the reference on these inputs: first every operation by itself, on the reference's operands, in order; then, if
 * all agree, the network's outputs as tn_compile makes them. TN_MISMATCH: a diagnostic names the first node whose result differs, an element, what
 * was expected and found. Integers and bool must be equal; floats within r * (|expected| + mean |expected| of the tensor), r = 1e-9 (f64), 1e-4 (f32),
 * 4e-3 (f16), 3e-2 (bf16), 0.25 (f8); 30 r for the outputs of the whole; NaN where NaN is expected. */
tn_status tn_check(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs);

/* ---- explaining ------------------------------------------------------------------------------------------------------------ */

/* What became of a network: every kernel with its nodes, bytes, operations, time and limit; each edge between two kernels with the reason why it did not fuse; the
 * memory plan; the graph before and after. */
typedef struct tn_report tn_report;
/* Compiles, runs and describes. inputs: in the network's order, as for tn_run; only their shapes matter if seconds is 0. seconds: how long to run it for the times
 * (the first run does not count); 0: it is not run, and compiled only as far as the report needs. Where this CPU, or the GPU that options name, can't run the
 * code, it is not run either, and the report says why. TN_INVALID, TN_UNSUPPORTED, TN_NO_MEMORY as tn_compile and tn_run; TN_USAGE too if seconds is negative.
 * Freed with tn_report_free, before the session; the network may go first. */
tn_status tn_explain(tn_session *session, const tn_network *network, const tn_compile_options *options, const DLTensor *inputs, size_t ninputs, double seconds, tn_report **out);
void tn_report_free(tn_report *report); /* NULL is allowed */

typedef enum tn_report_form {
    TN_REPORT_TEXT, /* in short, for a terminal */
    TN_REPORT_JSON, /* one object; docs/explain.md */
    TN_REPORT_HTML  /* a page that needs nothing else */
} tn_report_form;
/* The report as UTF-8 text of *size bytes with a 0 behind it. Freed with tn_free. TN_NO_MEMORY. */
tn_status tn_report_text(const tn_report *report, tn_report_form form, char **out, size_t *size);

/* ---- kernels in Triton's language ---------------------------------------------------------------------------------------------
 *
 *     tn_module *module;
 *     tn_compiled_kernel *kernel;
 *     int unit;
 *     const char *arguments[] = {"*f32", "*f32", "*f32", "i32", "=1024"};
 *     if (tn_module_new(session, &module) || tn_module_add(module, "add.py", 1, text, strlen(text), &unit) ||
 *         tn_kernel_compile(session, module, unit, "add_kernel", arguments, 5, NULL, &kernel))
 *         …                                             // tn_diagnostic_at
 *     tn_kernel_value values[] = {{.pointer = x}, {.pointer = y}, {.pointer = out}, {.integer = n}};
 *     tn_kernel_launch(kernel, (int64_t[3]){(n + 1023) / 1024, 1, 1}, values, 4);
 */

typedef struct tn_module tn_module;                   /* texts that hold kernels */
typedef struct tn_compiled_kernel tn_compiled_kernel; /* one kernel for given types and constants, as machine code */

/* A new, empty module. It lives in the session; free it before. */
tn_status tn_module_new(tn_session *session, tn_module **out);
void tn_module_free(tn_module *module); /* NULL is allowed; kernels compiled from it stay */
/* Adds a text: a Python file (host code in it is skipped) or the source of one function. `file` and `first_line` are for diagnostics; it may be
 * below 1, where lines go before the file's own. The text is copied. *unit is its number. TN_INVALID: syntax. */
tn_status tn_module_add(tn_module *module, const char *file, int first_line, const char *text, size_t size, int *unit);
/* Makes a global name of a unit a constant, by its text in Python: 64, 'relu', None, tl.float16, (1, 2). As NAME = tl.constexpr(…) in the text does.
 * A name may be that of a module that the unit imports, a dot, and a member of it; also in tn_module_bind_function. */
tn_status tn_module_bind(tn_module *module, int unit, const char *name, const char *literal);
/* Makes a global name of a unit stand for a function of another unit. */
tn_status tn_module_bind_function(tn_module *module, int unit, const char *name, int other, const char *function);

typedef struct tn_kernel_parameter {
    const char *name;
    int constexpr_;   /* annotated tl.constexpr */
    int optional;     /* a default, autotune's configurations or heuristics give it */
    int do_not_specialize;
    const char *type; /* of an annotation that names one: "f32"; NULL: none */
} tn_kernel_parameter;
/* Parameter i of a @triton.jit function. TN_USAGE: no such function, no such parameter. */
tn_status tn_module_parameter(tn_module *module, int unit, const char *function, size_t i, tn_kernel_parameter *out);
size_t tn_module_parameter_count(tn_module *module, int unit, const char *function); /* 0: no such function too */
/* Configurations that @triton.autotune names: how many, and one as text ("BLOCK=128 num_warps=8"; NULL: no such). */
size_t tn_module_config_count(tn_module *module, int unit, const char *function);
const char *tn_module_config(tn_module *module, int unit, const char *function, size_t i);

typedef struct tn_kernel_options {
    const char *machine;     /* as tn_compile_options; "cuda", "cuda:1": for that GPU. A GPU's row compiles where there is no GPU too */
    int threads;             /* for running; 0: as many CPUs as this process may use; a GPU takes none */
    int num_warps, num_stages; /* 0: the configuration's, else 4 and 3; on a CPU only what the kernel reads of them matters. A GPU's block has 32 threads a warp */
    int config;              /* which of autotune's configurations */
    int debug;               /* tl.device_assert is checked */
    const char *cache;       /* folder of compiled kernels; NULL: $TENON_CACHE, else $XDG_CACHE_HOME/tenon, else ~/.cache/tenon; "": none */
    const char *print_after; /* as tn_compile_options */
    int verify;
    int apart;               /* nonzero promises that no byte is reached by way of two of a launch's pointers. On a GPU threads need not wait for each other then where
                                loads and stores could meet; a CPU's kernel asks when it runs. Not checked */
    int strict;              /* a GPU's kernel rounds every product and sum by itself, as a CPU's does; else f32 and f64 multiply and add as one operation where they can, as
                                Triton's do. So does the session's option numerics=strict */
} tn_kernel_options;

/* Compiles a function for one specialisation. arguments: one text a parameter of the function:
 *   "*f32", "*f32:16"  a pointer (to addresses that 16 divides); "i32", "i64:16", "f32" a number (that 16, or 8, 4, 2, divides)
 *   "i32=1"            an integer that is always 1     "=LITERAL"  a constant, in Python's words, or a name that tn_module_bind… gave the unit
 *   NULL               left out: default, configuration, heuristic
 *   "desc<f16[64x32]>" a tensor descriptor of blocks of that shape: at launch the pointer, the sizes, the strides in elements
 * Types: i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2, or Triton's names. A pointer's alignment and a number's divisibility are promises:
 * tn_kernel_launch refuses what breaks them. options: NULL for the defaults. TN_INVALID: the kernel is at fault; TN_UNSUPPORTED names what Tenon lacks. */
tn_status tn_kernel_compile(tn_session *session, tn_module *module, int unit, const char *function, const char *const *arguments, size_t narguments,
                            const tn_kernel_options *options, tn_compiled_kernel **out);
void tn_compiled_kernel_free(tn_compiled_kernel *kernel); /* NULL is allowed. Before its session */
/* The compiler's work up to a stage, as tn_emit_stage: TN_STAGE_TILE, _LOOP, _LLVM, _ASM, _OBJECT. */
tn_status tn_kernel_emit(tn_session *session, tn_module *module, int unit, const char *function, const char *const *arguments, size_t narguments,
                         const tn_kernel_options *options, tn_stage stage, char **out, size_t *size);

typedef union tn_kernel_value {
    void *pointer;
    int64_t integer; /* any integer type, bool */
    double real;     /* any float type */
} tn_kernel_value;
/* Runs the kernel's programs, grid[0] * grid[1] * grid[2] of them (0 of them: nothing is done), over the threads; returns when all are done. values: what is no
 * constant, in the parameters' order. Any number of threads may launch one kernel at a time. TN_USAGE: the count is wrong, a promise of a type is broken, a size is
 * negative; TN_INVALID: tl.device_assert failed; TN_NO_MEMORY. tn_kernel_error says more. */
tn_status tn_kernel_launch(const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues);
/* The same for a kernel that was compiled for a GPU, behind what is in `stream` already: a CUstream of the driver's (a cudaStream_t), NULL: the default stream, where
 * tn_kernel_launch puts it too. Starts it, and does not wait; pointers name memory that this GPU can use, and stay so until it is done. TN_USAGE: a stream for a kernel
 * on a CPU, a pointer to other memory; TN_UNSUPPORTED: there is no such GPU. */
tn_status tn_kernel_launch_on(const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, void *stream);
/* Until all that is in the stream is done: what went wrong in it is told here, or by a later launch. TN_INVALID: tl.device_assert failed, or an access of any kernel. On
 * a CPU nothing is left to wait for. tn_kernel_error says more. */
tn_status tn_kernel_wait(const tn_compiled_kernel *kernel, void *stream);
/* What went wrong in this thread's last launch of any kernel; "" after success. */
const char *tn_kernel_error(void);
/* The same run, slowly, on the host, with every access checked; pointers name host memory. elements: of each value that is a pointer, how many elements it has from there on (-1: not known, not checked);
 * others are not looked at; NULL: none is known. fresh: nonzero where a pointer's memory holds nothing defined yet; NULL: none. Reports as diagnostics, with file and line and
 * program: accesses outside, loads of what nothing has stored, elements that two programs touch of which one writes, failed assertions (TN_INVALID); warns where a
 * masked lane's undefined value is seen. */
tn_status tn_kernel_check(tn_session *session, const tn_compiled_kernel *kernel, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues,
                          const int64_t *elements, const int *fresh);

typedef struct tn_kernel_info {
    size_t nvalues;        /* at launch */
    size_t code_bytes, scratch_bytes; /* machine code; memory a worker needs */
    double front_seconds, lower_seconds, emit_seconds, link_seconds;
    int cached;            /* the machine code came from the disk */
    int num_warps, num_stages, threads;
    const char *machine;
    size_t pointer_accesses; /* accesses that were not recovered into views; notes of the session say why */
    int device;              /* number of the GPU; -1: for a CPU, and what follows is 0. `threads` is of a block then */
    size_t shared_bytes;     /* of a block */
    int registers, spill_bytes; /* of a thread, as the driver says, else ptxas; -1: nobody says */
    uint64_t written;        /* bit i: the kernel may store to where value i of a launch points; values from 64 on are not in it */
} tn_kernel_info;
tn_status tn_kernel_describe(const tn_compiled_kernel *kernel, tn_kernel_info *out);

#ifdef __cplusplus
}
#endif
#endif
