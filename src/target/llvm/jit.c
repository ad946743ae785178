/* Objects linked into this process, by LLVM's ORC. A tn_jit is one JIT library; several may exist, in several threads. */
#include <complex.h>
#undef I /* the name that complex.h takes */
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/internal.h"
#include "target/llvm/internal.h"

struct tn_jit {
    LLVMOrcLLJITRef orc;
    LLVMOrcJITDylibRef library;
};

static tn_status llvm_error(tn_session *session, LLVMErrorRef error, const char *what)
{
    char *text = LLVMGetErrorMessage(error);
    tn_status status = tn_error(session, TN_INVALID, TN_NO_LOC, "%s: LLVM: %s", what, text);
    LLVMDisposeErrorMessage(text);
    return status;
}

/* ---- what code may call ---------------------------------------------------------------------------------------------------- */

typedef struct symbol {
    const char *name;
    void *address;
} symbol;

/* From this program's own link rather than by a search of the process, which would miss a library that was loaded privately and could find
 * someone else's function of that name. */
static const symbol symbols[] = {
#define UNARY(name) {#name, (void *)(double (*)(double))name}, {#name "f", (void *)(float (*)(float))name##f},
#define BINARY(name) {#name, (void *)(double (*)(double, double))name}, {#name "f", (void *)(float (*)(float, float))name##f},
#define TERNARY(name)                                                                                                  \
    {#name, (void *)(double (*)(double, double, double))name}, {#name "f", (void *)(float (*)(float, float, float))name##f},
#define COMPLEX(name) {#name, (void *)(double complex (*)(double complex))name},
    TN_LIBM_FUNCTIONS(UNARY, BINARY, TERNARY, COMPLEX)
#undef UNARY
#undef BINARY
#undef TERNARY
#undef COMPLEX
    {"cpow", (void *)(double complex (*)(double complex, double complex))cpow},
    {"memcpy", (void *)memcpy},
    {"memmove", (void *)memmove},
    {"memset", (void *)memset},
    {"printf", (void *)printf},
};

static LLVMErrorRef define_symbols(tn_jit *jit)
{
    LLVMOrcCSymbolMapPair pairs[TN_COUNT(symbols)];
    LLVMJITSymbolFlags flags = {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};
    for (size_t i = 0; i < TN_COUNT(symbols); i++)
        pairs[i] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(jit->orc, symbols[i].name),
                                           {(LLVMOrcExecutorAddress)(uintptr_t)symbols[i].address, flags}};
    return LLVMOrcJITDylibDefine(jit->library, LLVMOrcAbsoluteSymbols(pairs, TN_COUNT(pairs)));
}

/* ---- the library ------------------------------------------------------------------------------------------------------------- */

/* ORC's default prints to stderr; a lookup that fails says so by returning NULL. */
static void drop_report(void *context, LLVMErrorRef error)
{
    (void)context;
    LLVMConsumeError(error);
}

tn_status tn_jit_new(tn_session *session, tn_jit **out)
{
    tn_llvm_initialize();
    tn_jit *jit = calloc(1, sizeof *jit);
    if (!jit)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for a JIT library");
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&jit->orc, NULL);
    if (error) {
        free(jit);
        return llvm_error(session, error, "a JIT library");
    }
    LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(jit->orc), drop_report, NULL);
    jit->library = LLVMOrcLLJITGetMainJITDylib(jit->orc);
    error = define_symbols(jit);
    if (error) {
        tn_jit_free(jit);
        return llvm_error(session, error, "a JIT library");
    }
    *out = jit;
    return TN_OK;
}

tn_status tn_jit_add_object(tn_session *session, tn_jit *jit, const void *object, size_t size)
{
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, size, "kernels");
    LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(jit->orc, jit->library, buffer); /* takes the buffer */
    return error ? llvm_error(session, error, "an object file of kernels") : TN_OK;
}

void *tn_jit_symbol(tn_jit *jit, const char *name)
{
    LLVMOrcExecutorAddress address = 0;
    LLVMErrorRef error = LLVMOrcLLJITLookup(jit->orc, &address, name);
    if (error) {
        LLVMConsumeError(error);
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void tn_jit_free(tn_jit *jit)
{
    if (!jit)
        return;
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(jit->orc);
    if (error)
        LLVMConsumeError(error);
    free(jit);
}
