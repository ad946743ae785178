/* Loop IR -> LLVM module -> text, assembly or object. Each call has its own context, so threads don't meet. */
#include <assert.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Support.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "target/internal.h"
#include "target/llvm/internal.h"

/* ---- LLVM's own errors ------------------------------------------------------------------------------------------------- */

/* LLVM ends the process after a fatal error, whatever its handler returns. The handler therefore leaves by a jump to the thread's call of
 * tn_llvm_emit; what LLVM held at that point is lost to the heap, which is better than the process. */
typedef struct fatal_exit {
    jmp_buf jump;
    char reason[256];
} fatal_exit;
static _Thread_local fatal_exit *fatal; /* the handler has no context argument */

static void on_fatal_error(const char *reason)
{
    if (!fatal)
        return;
    snprintf(fatal->reason, sizeof fatal->reason, "%s", reason);
    longjmp(fatal->jump, 1);
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *context)
{
    tn_emitter *e = context;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || e->status != TN_OK)
        return;
    char *text = LLVMGetDiagInfoDescription(info);
    e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': LLVM: %s", e->machine->name, text);
    LLVMDisposeMessage(text);
}

/* Two passes of LLVM's code generator gain nothing here and take time: one chooses other induction variables for each loop (a fifth to a third of what a
 * kernel takes to compile; our offsets are one sum already, whose constants become displacements), one moves work on integers to mask registers. A third,
 * CodeGenPrepare, goes over all of a function again after each division of 64 bits that it splits, unless it takes the function for a huge one: then over what changed
 * (of attention on a GPU, whose inline assembly it parses each time, 0.70 of the instructions, for the same code). Only LLVM's
 * command line says so, and makes addresses of shared memory on GPUs numbers of 32 bits, for the process; a second copy of this library in it finds the
 * mark, because LLVM ends a process that says the same twice. */
static void set_options(void)
{
    static const char *const options[] = {"tenon", "-disable-lsr", "-disable-x86-domain-reassignment", "-cgpp-huge-func=0", "-nvptx-short-ptr"}, mark[] = "tenon.options";
    if (LLVMGetTypeByName2(LLVMGetGlobalContext(), mark))
        return;
    LLVMStructCreateNamed(LLVMGetGlobalContext(), mark);
    LLVMParseCommandLineOptions(TN_COUNT(options), options, NULL);
}

static void initialize(void)
{
    set_options();
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInstallFatalErrorHandler(on_fatal_error);
}

void tn_llvm_initialize(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialize);
}

/* ---- machine and passes -------------------------------------------------------------------------------------------------- */

static LLVMTargetMachineRef new_target_machine(tn_emitter *e, int level)
{
    static const LLVMCodeGenOptLevel levels[] = {LLVMCodeGenLevelNone, LLVMCodeGenLevelLess, LLVMCodeGenLevelDefault,
                                                 LLVMCodeGenLevelAggressive};
    LLVMTargetRef target;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(e->machine->triple, &target, &message)) {
        e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': LLVM: %s", e->machine->name, message);
        LLVMDisposeMessage(message);
        return NULL;
    }
    return LLVMCreateTargetMachine(target, e->machine->triple, e->machine->cpu, e->machine->features, levels[level < 0 ? 0 : level > 3 ? 3 : level],
                                   LLVMRelocPIC, LLVMCodeModelDefault);
}

/* Loops are unrolled, widened and hoisted already. What is left for LLVM: buffers into registers, and the folding and sharing of what the
 * emitter wrote plainly. */
static const char pipeline[] = "sroa,early-cse,simplifycfg", gpu_pipeline[] = "dce,sroa,early-cse,simplifycfg"; /* there vectors of registers, of which lanes are used alone */

static void run_passes(tn_emitter *e, LLVMTargetMachineRef target_machine)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(e->module, e->machine->gpu ? gpu_pipeline : pipeline, target_machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (error) {
        char *text = LLVMGetErrorMessage(error);
        e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': LLVM: %s", e->machine->name, text);
        LLVMDisposeErrorMessage(text);
    }
}

/* ---- the module --------------------------------------------------------------------------------------------------------------- */

/* A kernel of such a name would stand in for the C library's function, here and in whatever program the object is linked into. */
bool tn_llvm_is_library_name(const char *name)
{
    static const char *const names[] = {
#define ONE(name) #name, #name "f",
        TN_LIBM_FUNCTIONS(ONE, ONE, ONE, ONE)
#undef ONE
        "cpow", "memcpy", "memmove", "memset", "printf", "vprintf", TN_TRAPPED, TN_NOWHERE,
    };
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static void emit_functions(tn_emitter *e, tn_lfunc *const *funcs, size_t n)
{
    for (size_t i = 0; i < n && e->status == TN_OK; i++) {
        if (LLVMGetNamedFunction(e->module, funcs[i]->name))
            e->status = tn_error(e->session, TN_INVALID, TN_NO_LOC, "kernel @%s: another function of this module has that name", funcs[i]->name);
        else if (tn_llvm_is_library_name(funcs[i]->name))
            e->status = tn_error(e->session, TN_INVALID, TN_NO_LOC, "kernel @%s: the C library has a function of that name; rename the kernel", funcs[i]->name);
        else if ((funcs[i]->threads != 0) != e->machine->gpu)
            e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC,
                                 e->machine->gpu ? "kernel @%s: machine '%s' is a GPU: the kernel must say how many `threads` run it"
                                                 : "kernel @%s has `threads`, and machine '%s' is no GPU", funcs[i]->name, e->machine->name);
        else
            tn_emit_kernel(e, funcs[i]);
    }
}

/* What we wrote must be legal LLVM IR: anything else is a bug of this folder, which builds for tests look for (it takes a twentieth of a kernel's compile time). */
static void verify_module(LLVMModuleRef module)
{
#ifdef TENON_VERIFY_LLVM
    char *message = NULL;
    LLVMBool broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
    if (broken)
        fprintf(stderr, "%s\n", message);
    LLVMDisposeMessage(message);
    assert(!broken);
    (void)broken;
#else
    (void)module;
#endif
}

static tn_status take_blob(tn_emitter *e, const char *data, size_t size, tn_blob *out)
{
    char *copy = malloc(size + 1); /* a NUL behind text */
    if (!copy)
        return e->status = tn_error(e->session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %zu bytes of code", size);
    memcpy(copy, data, size);
    copy[size] = 0;
    *out = (tn_blob){copy, size};
    return TN_OK;
}

static void write_module(tn_emitter *e, LLVMTargetMachineRef target_machine, tn_emit what, tn_blob *out)
{
    if (e->machine->gpu && what == TN_EMIT_OBJECT) {
        e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s' has no object files: its code is PTX, which is its assembly", e->machine->name);
        return;
    }
    if (what == TN_EMIT_LLVM) {
        char *text = LLVMPrintModuleToString(e->module);
        take_blob(e, text, strlen(text), out);
        LLVMDisposeMessage(text);
        return;
    }
    char *message = NULL;
    LLVMMemoryBufferRef buffer;
    LLVMCodeGenFileType type = what == TN_EMIT_ASM ? LLVMAssemblyFile : LLVMObjectFile;
    if (LLVMTargetMachineEmitToMemoryBuffer(target_machine, e->module, type, &message, &buffer)) {
        e->status = tn_error(e->session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': LLVM: %s", e->machine->name, message);
        LLVMDisposeMessage(message);
        return;
    }
    if (e->status == TN_OK && e->machine->gpu) { /* else a diagnostic came while it ran */
        tn_text ptx = tn_emit_gpu_waits(e, LLVMGetBufferStart(buffer));
        take_blob(e, ptx.at, ptx.len, out);
    } else if (e->status == TN_OK) {
        take_blob(e, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer), out);
    }
    LLVMDisposeMemoryBuffer(buffer);
}

static void compile_module(tn_emitter *e, tn_lfunc *const *funcs, size_t n, tn_emit what, int level, tn_blob *out)
{
    LLVMTargetMachineRef target_machine = new_target_machine(e, level);
    if (!target_machine)
        return;
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(target_machine);
    LLVMSetModuleDataLayout(e->module, layout);
    LLVMDisposeTargetData(layout);
    LLVMSetTarget(e->module, e->machine->triple);
    emit_functions(e, funcs, n);
    if (e->status == TN_OK) {
        verify_module(e->module);
        if (level > 0)
            run_passes(e, target_machine);
    }
    if (e->status == TN_OK)
        write_module(e, target_machine, what, out);
    LLVMDisposeTargetMachine(target_machine);
}

tn_status tn_llvm_emit(tn_session *session, tn_lfunc *const *funcs, size_t n, const tn_machine *machine, tn_emit what, int level, tn_blob *out)
{
    fatal_exit escape;
    tn_llvm_initialize();
    if (setjmp(escape.jump)) {
        fatal = NULL;
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "machine '%s': LLVM gave up: %s", machine->name, escape.reason);
    }
    fatal = &escape;
    tn_emitter e = {.session = session, .machine = machine, .context = LLVMContextCreate()};
    LLVMContextSetDiagnosticHandler(e.context, on_diagnostic, &e);
    LLVMContextSetDiscardValueNames(e.context, what == TN_EMIT_OBJECT);
    e.module = LLVMModuleCreateWithNameInContext("tenon", e.context);
    e.builder = LLVMCreateBuilderInContext(e.context);
    e.allocas = LLVMCreateBuilderInContext(e.context);
    e.invariant_load = LLVMGetMDKindIDInContext(e.context, "invariant.load", 14);
    compile_module(&e, funcs, n, what, level, out);
    LLVMDisposeBuilder(e.builder);
    LLVMDisposeBuilder(e.allocas);
    LLVMDisposeModule(e.module);
    LLVMContextDispose(e.context);
    fatal = NULL;
    return e.status;
}
