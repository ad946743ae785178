/* libFuzzer target: any bytes as a file of Python that may hold kernels. Nothing may crash, hang, or use more memory than a small multiple of the
 * input; a refusal says why. What is accepted is printed. */
#include <stdlib.h>

#include "triton/ast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_unit(tn_session *session, const tn_ast_unit *unit)
{
    tn_text text = {.arena = &session->arena};
    for (size_t i = 0; i < unit->functions.len; i++)
        tn_text_ast(&text, unit->functions.at[i]);
    for (size_t i = 0; i < unit->assignments.len; i++)
        tn_text_ast(&text, unit->assignments.at[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_session session = {0};
    tn_ast_unit *unit = NULL;
    jmp_buf out_of_memory;
    session.arena.on_oom = &out_of_memory;
    if (!setjmp(out_of_memory)) {
        tn_status status = tn_ast_parse(&session, "fuzz.py", 1, (const char *)data, size, &unit);
        if (status == TN_OK)
            print_unit(&session, unit);
        if ((status == TN_OK) != (session.errors == 0))
            abort();
    }
    tn_arena_free(&session.arena);
    return 0;
}
