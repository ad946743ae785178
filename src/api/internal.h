/* What only the files of api share: what stands behind the public handles. */
#ifndef TN_API_INTERNAL_H
#define TN_API_INTERNAL_H

#include "import/import.h"
#include "tune/tune.h"

struct tn_network {
    tn_session *session;
    tn_model model;
    const tn_graph *graph;
    const char *file;
    tn_value_info *inputs, *outputs;
};

struct tn_executable {
    tn_session *session;
    tn_exec *exec;       /* its variants are the executable's too */
    tn_pool *pool;
    double graph_seconds, fuse_seconds;
    int threads;
    tn_precision precision; /* of products of f32 */
};

/* Runs fn(argument) with the arena's way out of memory leading here: TN_NO_MEMORY and a diagnostic. Calls may nest. */
tn_status tn_api_guard(tn_session *session, tn_status (*fn)(void *argument), void *argument);

enum { TN_API_CODE_LEVEL = 2 }; /* LLVM's effort */
/* The loop pass of `--print-after`: "loop-NAME" and "all" concern the Loop IR. */
const char *tn_api_loop_print(const char *print_after);
/* TN_USAGE if nothing is called so after which the IR could be printed: for a user's kernel, else for a network. NULL is allowed. */
tn_status tn_api_check_print(tn_session *session, const char *print_after, bool users);
/* Text that outlives the session. */
tn_status tn_api_keep_text(const tn_text *text, tn_blob *out);

/* kernel.c: the GPU that a kernel was loaded into; NULL: none. */
const struct tn_gpu *tn_api_kernel_gpu(const tn_compiled_kernel *kernel);

/* compile.c. The option "numerics" by its text; NULL: parity. */
tn_status tn_api_numerics(tn_session *session, const char *wanted, tn_numerics *out);
tn_status tn_api_compile(tn_session *session, tn_graph *graph, const tn_compile_options *options, tn_executable **out);
/* As tn_compile. declined: takes what the rules of the graph passes declined; NULL: nobody asks. plan_only: by tn_exec_plan; it can't be run. */
typedef struct tn_compile_how {
    tn_declined_list *declined;
    bool plan_only;
} tn_compile_how;
tn_status tn_api_compile_network(tn_session *session, const tn_network *network, const tn_compile_options *options, const tn_compile_how *how, tn_executable **out);
/* NULL if code for what the options name can be run here; else a sentence that says what is missing, the session's. TN_USAGE: nothing is called so. */
tn_status tn_api_refusal(tn_session *session, const tn_compile_options *options, const char **out);

tn_memory_info tn_api_memory_info(const tn_exec *exec, const tn_run_memory *memory);

/* Tensors of the caller as the interpreter takes them: dense, borrowed where possible. */
tn_status tn_api_tensor(tn_session *session, tn_arena *arena, const DLTensor *from, const char *what, tn_tensor *to);

#endif
