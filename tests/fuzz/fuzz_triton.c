/* libFuzzer target: any bytes as a file of Python that may hold kernels. What parses is printed, and each function compiled for made-up arguments.
 * Nothing may crash, hang, or use more memory than a small multiple of the input; a refusal says why, and what is accepted must verify. */
#include <stdlib.h>
#include <string.h>

#include "triton/ast.h"
#include "triton/triton.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(const tn_session *session, bool holds)
{
    if (holds)
        return;
    tn_print_diags(session, stderr);
    abort();
}

static void print_unit(tn_session *session, const tn_ast_unit *unit)
{
    tn_text text = {.arena = &session->arena};
    for (size_t i = 0; i < unit->functions.len; i++)
        tn_text_ast(&text, unit->functions.at[i]);
    for (size_t i = 0; i < unit->assignments.len; i++)
        tn_text_ast(&text, unit->assignments.at[i]);
}

/* An argument that fits the parameter, as far as its name tells: first pointers, and integers where a size or stride is likely; then anything. */
static const char *made_up(const tn_triton_parameter *parameter, size_t i, int round)
{
    static const char *const types[] = {"*f32", "i32", "*i32:16", "f32", "*f16", "i64", "desc<f16[16x16]>", "*i1", "=None", "i32=1", "u8"};
    char first = parameter->name[0];
    if (parameter->optional && round == 1)
        return NULL;
    if (parameter->constexpr)
        return round ? "=16" : "=2";
    if (round == 0)
        return strchr("nsMNK", first) ? "i32" : "*f32";
    return types[((size_t)(unsigned char)first + i) % TN_COUNT(types)];
}

static void compile(tn_session *session, const tn_ast_unit *parsed, tn_triton_module *module, int unit, int round)
{
    for (size_t f = 0; f < parsed->functions.len && f < 8; f++) {
        const char *name = parsed->functions.at[f]->text;
        const tn_triton_parameter *parameter;
        size_t n, nconfigs, errors = session->errors;
        tn_triton_options options = {.debug = round == 1, .gpu = round == 1 ? 90 : 0};
        tn_triton_kernel kernel;
        if (tn_triton_parameters(module, unit, name, &parameter, &n) != TN_OK) {
            require(session, session->errors > errors);
            continue;
        }
        const char **argument = TN_NEW_ARRAY(&session->arena, const char *, n + 1);
        for (size_t i = 0; i < n; i++)
            argument[i] = made_up(&parameter[i], i, round);
        tn_status status = tn_triton_compile(module, unit, name, argument, n, &options, &kernel);
        require(session, (status == TN_OK) == (session->errors == errors));
        require(session, status != TN_OK || tn_tile_verify(kernel.kernel) == TN_OK);
        tn_triton_configs(module, unit, name, &nconfigs);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_session session = {.error_limit = 1000};
    tn_ast_unit *parsed = NULL;
    jmp_buf out_of_memory;
    session.arena.on_oom = &out_of_memory;
    session.strings.arena = session.options.arena = &session.arena;
    if (!setjmp(out_of_memory)) {
        int unit;
        tn_status status = tn_ast_parse(&session, "fuzz.py", 1, (const char *)data, size, &parsed);
        require(&session, (status == TN_OK) == (session.errors == 0));
        if (status == TN_OK) {
            print_unit(&session, parsed);
            tn_triton_module *module = tn_triton_module_new(&session);
            status = tn_triton_add(module, "fuzz.py", 1, (const char *)data, size, &unit);
            for (int round = 0; status == TN_OK && round < 2; round++)
                compile(&session, parsed, module, unit, round);
        }
    }
    tn_arena_free(&session.arena);
    return 0;
}
