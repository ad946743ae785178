/* Random kernels through the whole pipeline and the LLVM emitter do on this CPU what the interpreter says of the kernel
 * as it was written. */
#include "loop_random.h"

#include "target/target.h"

static tn_kernel_fn compile(tn_session *session, tn_lfunc *func, const tn_machine *machine, tn_jit **jit)
{
    tn_blob object;
    if (tn_llvm_emit(session, &func, 1, machine, TN_EMIT_OBJECT, 1, &object) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("emission failed");
    }
    assert_int_equal(tn_jit_new(session, jit), TN_OK);
    assert_int_equal(tn_jit_add_object(session, *jit, object.data, object.size), TN_OK);
    free(object.data);
    return (tn_kernel_fn)(uintptr_t)tn_jit_symbol(*jit, func->name);
}

static void run_native(tn_session *session, tn_lfunc *func, const tn_machine *machine, test_data *data,
                       const int64_t *indices)
{
    tn_jit *jit;
    int64_t bytes;
    tn_kernel_fn kernel = compile(session, func, machine, &jit);
    assert_non_null(kernel);
    assert_true(tn_kernel_scratch(func, indices, &bytes));
    void *scratch = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    kernel(data->at, indices, indices[2], indices[3], scratch);
    free(scratch);
    tn_jit_free(jit);
}

static void check_seed(uint64_t seed, const tn_machine *machine)
{
    tn_session session = {0};
    tn_lfunc *func = make_kernel(&session, seed), *after = copy_kernel(func);
    tn_pass_options options = {.vector = machine->vector};
    run_passes(after, tn_loop_pipeline, &options);
    uint64_t r = seed;
    int64_t indices[] = {(int64_t)(next_random(&r) % 120), (int64_t)(next_random(&r) % 9), 0, 1};
    test_data want = make_data(func, seed), got = make_data(func, seed);
    assert_int_equal(run_kernel(func, &want, indices), TN_OK);
    run_native(&session, after, machine, &got, indices);
    for (int i = 0; i < want.n; i++)
        for (int64_t k = 0; k < ELEMENTS; k++) {
            tn_dtype dtype = func->params.at[i]->type.dtype;
            if (!tn_number_same(dtype, tn_number_load(dtype, want.at[i], k), tn_number_load(dtype, got.at[i], k))) {
                fprintf(stderr, "---- before\n%s---- after\n%s", kernel_text(func), kernel_text(after));
                fail_msg("seed %d, machine %s: buffer %d differs at %d", (int)seed, machine->name, i, (int)k);
            }
        }
    free_data(&want);
    free_data(&got);
    tn_arena_free(&session.arena);
}

static void test_native(void **state)
{
    (void)state;
    size_t n;
    tn_arena arena = {0};
    const tn_machine *all = tn_machine_list(&n);
    for (size_t i = 0; i < n; i++) {
        const char *refusal = tn_machine_refusal(&arena, &all[i]);
        if (refusal)
            print_message("skipped: %s\n", refusal);
        for (uint64_t seed = 1000; !refusal && seed < 1060; seed++)
            check_seed(seed, &all[i]);
    }
    tn_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_native)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
