/* Compiles Loop IR for the machines that this CPU can run, for the tests of src/target. */
#ifndef TN_LLVM_TEST_H
#define TN_LLVM_TEST_H

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "target/target.h"

static inline void free_session(tn_session *session)
{
    tn_print_diags(session, stderr);
    tn_arena_free(&session->arena);
}

/* Rows of the table that run here; the names of the others are printed. */
static inline size_t runnable_machines(const tn_machine *out[8])
{
    size_t n, kept = 0;
    tn_arena arena = {0};
    const tn_machine *all = tn_machine_list(&n);
    for (size_t i = 0; i < n; i++) {
        const char *refusal = tn_machine_refusal(&arena, &all[i]);
        if (refusal)
            print_message("skipped: %s\n", refusal);
        else
            out[kept++] = &all[i];
    }
    tn_arena_free(&arena);
    return kept;
}

/* An object of `funcs`, linked. */
static inline tn_jit *compile_and_link(tn_session *session, tn_lfunc *const *funcs, size_t n, const tn_machine *machine, int level)
{
    tn_jit *jit;
    tn_blob object;
    tn_status status = tn_llvm_emit(session, funcs, n, machine, TN_EMIT_OBJECT, level, &object);
    if (status != TN_OK)
        tn_print_diags(session, stderr);
    assert_int_equal(status, TN_OK);
    assert_int_equal(tn_jit_new(session, &jit), TN_OK);
    assert_int_equal(tn_jit_add_object(session, jit, object.data, object.size), TN_OK);
    free(object.data);
    return jit;
}

static inline tn_kernel_fn kernel_named(tn_jit *jit, const char *name)
{
    tn_kernel_fn kernel = (tn_kernel_fn)(uintptr_t)tn_jit_symbol(jit, name);
    assert_non_null(kernel);
    return kernel;
}

static inline uint64_t next_random(uint64_t *state) /* xorshift64 */
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Units in the last place between two values of a float type, both finite; a difference of sign counts through zero. */
static inline double ulps_apart(tn_dtype dtype, double a, double b)
{
    uint64_t bits[2] = {0, 0};
    int64_t ordered[2];
    int width = tn_dtype_bits(dtype);
    tn_number_store(dtype, &bits[0], 0, (tn_number){.f = a});
    tn_number_store(dtype, &bits[1], 0, (tn_number){.f = b});
    for (int i = 0; i < 2; i++) {
        uint64_t magnitude = bits[i] & (~UINT64_C(0) >> (65 - width));
        ordered[i] = bits[i] == magnitude ? (int64_t)magnitude : -(int64_t)magnitude;
    }
    double distance = (double)ordered[0] - (double)ordered[1];
    return distance < 0 ? -distance : distance;
}

#endif
