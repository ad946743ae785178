/* libFuzzer target: any bytes as an ONNX file. Nothing may crash, hang, or use more memory than a small multiple of the
 * input; what is accepted must verify. `make fuzz` builds it with clang and starts it from the seeds of seeds.py. */
#include <stdlib.h>

#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_session session = {0};
    tn_model model = {0};
    jmp_buf out_of_memory;
    session.arena.on_oom = &out_of_memory;
    if (!setjmp(out_of_memory)) {
        tn_status status = tn_import_onnx_bytes(&session, NULL, data, size, NULL, &model);
        if (status == TN_OK && tn_graph_verify(model.module->graphs.at[0]) != TN_OK) {
            tn_print_diags(&session, stderr);
            abort();
        }
        if (status != TN_OK && session.errors == 0)
            abort(); /* a refusal says why */
    }
    tn_model_free(&model);
    tn_arena_free(&session.arena);
    return 0;
}
