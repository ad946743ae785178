/* What stands round a kernel: text and objects, names, the JIT, threads, traps, machine instructions, the register tile in registers. */
#include "llvm_test.h"

#include <math.h>
#include <pthread.h>

#include "loop/internal.h"

/* y[i] = exp(x[i]) + i over [begin, end) */
static tn_lfunc *exp_kernel(tn_session *session, const char *name)
{
    tn_lfunc *func = tn_lfunc_new(session, name);
    tn_lvalue *x = tn_lfunc_buffer(func, "x", TN_F64, true, 64), *y = tn_lfunc_buffer(func, "y", TN_F64, false, 64);
    tn_lvalue *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lop *loop = tn_l_for(&b, "i", begin, end, tn_l_index(&b, 1), TN_FOR_GRID);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg, *e = tn_l_fn1(&in, TN_S_exp, tn_l_load(&in, x, i, 1, NULL, NULL));
    tn_l_store(&in, y, i, tn_l_fn2(&in, TN_S_add, e, tn_l_cast(&in, i, TN_F64)), NULL);
    return func;
}

static void several_libraries(void **state)
{
    (void)state;
    tn_session session = {0};
    double x[4] = {0, 1, 2, 3}, y[4] = {0};
    tn_lfunc *first = exp_kernel(&session, "first"), *second = exp_kernel(&session, "second");
    tn_jit *a = compile_and_link(&session, &first, 1, tn_machine_find("baseline"), 2);
    tn_jit *b = compile_and_link(&session, &first, 1, tn_machine_find("host"), 2); /* the same name in another library */
    tn_blob more;
    assert_int_equal(tn_llvm_emit(&session, &second, 1, tn_machine_find("host"), TN_EMIT_OBJECT, 2, &more), TN_OK);
    assert_int_equal(tn_jit_add_object(&session, a, more.data, more.size), TN_OK);
    free(more.data);
    assert_null(tn_jit_symbol(a, "third"));
    kernel_named(a, "second")((void *[]){x, y}, NULL, 1, 3, NULL);
    assert_true(y[0] == 0 && y[1] == exp(1) + 1 && y[2] == exp(2) + 2 && y[3] == 0); /* only its range */
    tn_jit_free(a);
    kernel_named(b, "first")((void *[]){x, y}, NULL, 3, 4, NULL);
    assert_true(y[3] == exp(3) + 3);
    tn_jit_free(b);
    tn_jit_free(NULL);
    free_session(&session);
}

static void bad_objects(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_jit *jit;
    tn_lfunc *func = exp_kernel(&session, "k");
    tn_blob blob;
    assert_int_equal(tn_jit_new(&session, &jit), TN_OK);
    assert_int_equal(tn_jit_add_object(&session, jit, "no object at all", 16), TN_INVALID);
    assert_int_equal(session.errors, 1);
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("baseline"), TN_EMIT_OBJECT, 2, &blob), TN_OK);
    assert_int_equal(tn_jit_add_object(&session, jit, blob.data, blob.size), TN_OK);
    assert_int_equal(tn_jit_add_object(&session, jit, blob.data, blob.size), TN_INVALID); /* its names are taken */
    assert_non_null(tn_jit_symbol(jit, "k"));
    free(blob.data);
    tn_jit_free(jit);
    tn_lfunc *twice[2] = {func, func};
    assert_int_equal(tn_llvm_emit(&session, twice, 2, tn_machine_find("baseline"), TN_EMIT_OBJECT, 2, &blob), TN_INVALID);
    func = exp_kernel(&session, "exp"); /* would call itself */
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("baseline"), TN_EMIT_OBJECT, 2, &blob), TN_INVALID);
    tn_arena_free(&session.arena);
}

/* ---- text ------------------------------------------------------------------------------------------------------------------ */

static char *emit_text(tn_session *session, tn_lfunc *func, const char *machine, tn_emit what)
{
    tn_blob blob;
    assert_int_equal(tn_llvm_emit(session, &func, 1, tn_machine_find(machine), what, 2, &blob), TN_OK);
    assert_int_equal(strlen(blob.data), blob.size);
    return blob.data;
}

static void text(void **state)
{
    (void)state;
    tn_session session = {0};
    char *ir = emit_text(&session, exp_kernel(&session, "k"), "avx2", TN_EMIT_LLVM);
    assert_non_null(strstr(ir, "define void @k("));
    assert_non_null(strstr(ir, "declare double @exp(double)"));
    free(ir);
    char *assembly = emit_text(&session, exp_kernel(&session, "k"), "neon", TN_EMIT_ASM); /* for another architecture */
    assert_non_null(strstr(assembly, "scvtf"));
    free(assembly);
    free_session(&session);
}

/* rows x vectors accumulators in a `reg` buffer, updated in a loop */
static tn_lfunc *tile_kernel(tn_session *session, const tn_machine *machine)
{
    int n = machine->dot_rows * machine->dot_vectors, lanes = machine->vector.bits / 32;
    tn_lfunc *func = tn_lfunc_new(session, "tile");
    tn_lvalue *x = tn_lfunc_buffer(func, "x", TN_F32, true, 64), *w = tn_lfunc_buffer(func, "w", TN_F32, true, 64);
    tn_lvalue *y = tn_lfunc_buffer(func, "y", TN_F32, false, 64), *depth = tn_lfunc_index(func, "depth"), *v[8];
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *acc = tn_l_alloc(&b, "acc", TN_F32, TN_SPACE_REG, (int64_t)n * lanes);
    for (int i = 0; i < n; i++)
        tn_l_store(&b, acc, tn_l_index(&b, (int64_t)i * lanes), tn_l_const(&b, tn_lvector(TN_F32, lanes), (tn_number){.f = 0}), NULL);
    tn_lop *loop = tn_l_for(&b, "k", tn_l_index(&b, 0), depth, tn_l_index(&b, 1), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    tn_lvalue *k = loop->region[0]->arg, *row = tn_l_fn2(&in, TN_S_mul, k, tn_l_index(&in, (int64_t)machine->dot_vectors * lanes));
    for (int j = 0; j < machine->dot_vectors; j++)
        v[j] = tn_l_load(&in, w, tn_l_fn2(&in, TN_S_add, row, tn_l_index(&in, (int64_t)j * lanes)), lanes, NULL, NULL);
    for (int r = 0; r < machine->dot_rows; r++) {
        tn_lvalue *from = tn_l_fn2(&in, TN_S_add, k, tn_l_fn2(&in, TN_S_mul, depth, tn_l_index(&in, r)));
        tn_lvalue *s = tn_l_splat(&in, tn_l_load(&in, x, from, 1, NULL, NULL), lanes);
        for (int j = 0; j < machine->dot_vectors; j++) {
            tn_lvalue *at = tn_l_index(&in, (int64_t)(r * machine->dot_vectors + j) * lanes);
            tn_l_store(&in, acc, at, tn_l_fn3(&in, TN_S_fma, s, v[j], tn_l_load(&in, acc, at, lanes, NULL, NULL)), NULL);
        }
    }
    for (int i = 0; i < n; i++)
        tn_l_store(&b, y, tn_l_index(&b, (int64_t)i * lanes), tn_l_load(&b, acc, tn_l_index(&b, (int64_t)i * lanes), lanes, NULL, NULL), NULL);
    return func;
}

static size_t occurrences(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* The accumulators of the f32 product live in registers: no access to the stack beside saved registers, one multiply-add each. */
static void register_tile(void **state)
{
    (void)state;
    static const char *const machines[] = {"avx2", "avx512", "neon"};
    for (size_t i = 0; i < TN_COUNT(machines); i++) {
        tn_session session = {0};
        const tn_machine *machine = tn_machine_find(machines[i]);
        bool arm = !strcmp(machines[i], "neon");
        char *assembly = emit_text(&session, tile_kernel(&session, machine), machines[i], TN_EMIT_ASM);
        assert_int_equal(occurrences(assembly, arm ? "fmla" : "vfmadd"), machine->dot_rows * machine->dot_vectors);
        if (!arm) /* on AArch64 the callee saves the lower halves of eight registers */
            assert_int_equal(occurrences(assembly, "(%rsp"), 0);
        free(assembly);
        free_session(&session);
    }
}

/* What LLVM can't do comes back as a diagnostic; the process goes on. */
static void llvm_errors(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_blob blob;
    tn_lfunc *func = exp_kernel(&session, "k");
    tn_machine broken = *tn_machine_find("baseline");
    broken.triple = "pdp11-unknown-none";
    assert_int_equal(tn_llvm_emit(&session, &func, 1, &broken, TN_EMIT_OBJECT, 2, &blob), TN_UNSUPPORTED);
#ifndef __SANITIZE_ADDRESS__ /* LLVM leaves by a jump, and loses what it held */
    broken = *tn_machine_find("baseline");
    broken.cpu = "i386"; /* has no 64-bit mode, for which LLVM ends the program */
    assert_int_equal(tn_llvm_emit(&session, &func, 1, &broken, TN_EMIT_OBJECT, 2, &blob), TN_UNSUPPORTED);
    assert_non_null(strstr(session.diags.at[1].message, "LLVM gave up"));
#endif
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("baseline"), TN_EMIT_OBJECT, 2, &blob), TN_OK);
    free(blob.data);
    tn_arena_free(&session.arena);
}

/* ---- threads --------------------------------------------------------------------------------------------------------------- */

static void *compile_in_thread(void *context)
{
    for (int i = 0; i < 5; i++) {
        tn_session session = {0};
        double x[2] = {0.5, 1.5}, y[2];
        tn_lfunc *func = exp_kernel(&session, "k");
        tn_jit *jit = compile_and_link(&session, &func, 1, tn_machine_find(NULL), 2);
        kernel_named(jit, "k")((void *[]){x, y}, NULL, 0, 2, NULL);
        if (y[0] == exp(0.5) && y[1] == exp(1.5) + 1)
            ++*(int *)context;
        tn_jit_free(jit);
        free_session(&session);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    pthread_t thread[4];
    int right[4] = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, compile_in_thread, &right[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(right[i], 5);
    }
}

/* ---- traps and machine instructions ------------------------------------------------------------------------------------------ */

static void traps(void **state)
{
    (void)state;
    tn_session session = {0};
    int32_t x[4] = {3, 2, -1, 5}, y[4] = {0};
    _Alignas(64) int64_t scratch[8] = {0};
    int64_t bytes;
    tn_lfunc *func = tn_lfunc_new(&session, "k");
    tn_lvalue *px = tn_lfunc_buffer(func, "x", TN_I32, true, 4), *py = tn_lfunc_buffer(func, "y", TN_I32, false, 4);
    tn_lvalue *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    tn_lop *loop = tn_l_for(&b, "i", begin, end, tn_l_index(&b, 1), TN_FOR_GRID);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    tn_lvalue *i = loop->region[0]->arg, *v = tn_l_load(&in, px, i, 1, NULL, NULL);
    tn_l_trap(&in, tn_l_fn2(&in, TN_S_ge, v, tn_l_const(&in, tn_lscalar(TN_I32), (tn_number){.i = 0})), 17);
    tn_l_store(&in, py, i, v, NULL);
    assert_true(tn_kernel_scratch(func, NULL, &bytes));
    assert_int_equal(bytes, 64);
    tn_jit *jit = compile_and_link(&session, &func, 1, tn_machine_find(NULL), 2);
    kernel_named(jit, "k")((void *[]){x, y}, NULL, 0, 2, scratch);
    assert_true(scratch[0] == 0 && y[1] == 2);
    kernel_named(jit, "k")((void *[]){x, y}, NULL, 0, 4, scratch);
    assert_true(scratch[0] == 17 && y[2] == 0 && y[3] == 0);
    tn_jit_free(jit);
    free_session(&session);
}

static tn_lfunc *dot_product_kernel(tn_session *session, const char *name)
{
    tn_lfunc *func = tn_lfunc_new(session, "k");
    tn_lvalue *a = tn_lfunc_buffer(func, "a", TN_U8, true, 64), *b = tn_lfunc_buffer(func, "b", TN_I8, true, 64);
    tn_lvalue *c = tn_lfunc_buffer(func, "c", TN_I32, false, 64), *args[3];
    tn_lbuilder at = tn_lbuilder_at_end(func, func->body);
    tn_lvalue *zero = tn_l_index(&at, 0);
    args[0] = tn_l_load(&at, c, zero, 16, NULL, NULL);
    args[1] = tn_l_load(&at, a, zero, 64, NULL, NULL);
    args[2] = tn_l_load(&at, b, zero, 64, NULL, NULL);
    tn_l_store(&at, c, zero, tn_l_intrinsic(&at, name, args, 3, tn_lvector(TN_I32, 16)), NULL);
    return func;
}

static void machine_instructions(void **state)
{
    (void)state;
    tn_session session = {0};
    const tn_machine *machine = tn_machine_find("avx512vnni");
    tn_lfunc *func = dot_product_kernel(&session, "vpdpbusd_512"), *wrong = dot_product_kernel(&session, "vpdpwssd_512");
    tn_blob blob;
    assert_int_equal(tn_llvm_emit(&session, &func, 1, tn_machine_find("avx512"), TN_EMIT_OBJECT, 2, &blob), TN_UNSUPPORTED);
    assert_int_equal(tn_llvm_emit(&session, &wrong, 1, machine, TN_EMIT_OBJECT, 2, &blob), TN_UNSUPPORTED);
    assert_string_equal(session.diags.at[1].message, "kernel @k: machine 'avx512vnni' can't do intrinsic 'vpdpwssd_512' on "
                                                     "i32x16(i32x16, u8x64, i8x64): its types are i32x16(i32x16, i16x32, i16x32)");
    if (!tn_machine_refusal(&session.arena, machine)) {
        uint8_t a[64];
        int8_t b[64];
        int32_t c[16], expected[16];
        for (int i = 0; i < 64; i++)
            a[i] = (uint8_t)(255 - 3 * i), b[i] = (int8_t)(i % 2 ? 127 : -128 + i);
        for (int i = 0; i < 16; i++) {
            c[i] = expected[i] = i * 1000;
            for (int j = 0; j < 4; j++)
                expected[i] += a[4 * i + j] * b[4 * i + j];
        }
        tn_jit *jit = compile_and_link(&session, &func, 1, machine, 2);
        kernel_named(jit, "k")((void *[]){a, b, c}, NULL, 0, 1, NULL);
        assert_memory_equal(c, expected, sizeof c);
        tn_jit_free(jit);
    }
    tn_arena_free(&session.arena);
}

/* Reads "u8x64" and moves past it. */
static tn_ltype parse_type(const char **text)
{
    size_t len = strcspn(*text, "x"), end = strcspn(*text, "(,)");
    tn_ltype type = tn_lvector(tn_dtype_from_text(*text, len), atoi(*text + len + 1));
    *text += end;
    *text += strspn(*text, "(, )");
    return type;
}

/* store(op(load, …)), of the types of a row */
static tn_lfunc *instruction_kernel(tn_session *session, const char *name, const char *types)
{
    tn_lfunc *func = tn_lfunc_new(session, "k");
    tn_ltype result = parse_type(&types), operand[4];
    tn_lvalue *buffer[5], *args[4];
    int n = 0;
    while (*types)
        operand[n++] = parse_type(&types);
    for (int i = 0; i < n; i++)
        buffer[i] = tn_lfunc_buffer(func, "x", operand[i].dtype, true, 64);
    buffer[n] = tn_lfunc_buffer(func, "y", result.dtype, false, 64);
    tn_lbuilder b = tn_lbuilder_at_end(func, func->body);
    for (int i = 0; i < n; i++)
        args[i] = tn_l_load(&b, buffer[i], tn_l_index(&b, 0), operand[i].lanes, NULL, NULL);
    tn_l_store(&b, buffer[n], tn_l_index(&b, 0), tn_l_intrinsic(&b, name, args, n, result), NULL);
    return func;
}

/* Each row compiles on a machine that has its feature, to an instruction of that name. */
static void every_machine_instruction(void **state)
{
    (void)state;
    static const struct {
        const char *name, *types;
    } rows[] = {
#define MACHINE_OP(name, feature, intrinsic, types) {#name, types},
#include "target/cpu/intrinsics.def"
#undef MACHINE_OP
    };
    for (size_t i = 0; i < TN_COUNT(rows); i++) {
        tn_session session = {0};
        char *assembly = emit_text(&session, instruction_kernel(&session, rows[i].name, rows[i].types), "avx512bf16", TN_EMIT_ASM);
        assert_non_null(strstr(assembly, tn_format(&session.arena, "%.*s", (int)strcspn(rows[i].name, "_"), rows[i].name)));
        free(assembly);
        free_session(&session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_libraries),    cmocka_unit_test(bad_objects), cmocka_unit_test(text),        cmocka_unit_test(llvm_errors),
        cmocka_unit_test(register_tile),        cmocka_unit_test(threads),     cmocka_unit_test(traps),
        cmocka_unit_test(machine_instructions), cmocka_unit_test(every_machine_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
