/* The table of machines and what is read of this CPU. */
#include "unit.h"

#include <string.h>

#include "target/internal.h"

static void rows(void **state)
{
    (void)state;
    size_t n;
    const tn_machine *all = tn_machine_list(&n);
    for (size_t i = 0; i < n; i++) {
        const tn_machine *m = &all[i];
        assert_ptr_equal(tn_machine_find(m->name), m);
        assert_true(m->dot_rows * m->dot_vectors + m->dot_vectors + 1 <= m->vector.registers);
        assert_true(m->l1_bytes > 0 && m->l2_bytes >= m->l1_bytes);
    }
    assert_null(tn_machine_find("abacus"));
    assert_true(tn_machine_has(tn_machine_find("avx512"), "avx512f"));
    assert_false(tn_machine_has(tn_machine_find("avx512"), "avx512")); /* whole words */
    assert_false(tn_machine_has(tn_machine_find("avx2"), "avx512f"));
}

static void host(void **state)
{
    (void)state;
    tn_arena arena = {0};
    size_t n;
    const tn_machine *best = tn_machine_find(NULL), *all = tn_machine_list(&n);
    assert_non_null(best);
    assert_ptr_equal(tn_machine_find("host"), best);
    assert_null(tn_machine_refusal(&arena, best));
    for (const tn_machine *m = best + 1; m < all + n; m++)
        assert_non_null(tn_machine_refusal(&arena, m)); /* it is the best one */
#ifdef __x86_64__
    assert_non_null(strstr(tn_machine_refusal(&arena, tn_machine_find("sm_80")), "machine 'sm_80' can't run here: "));
    assert_string_equal(tn_machine_refusal(&arena, tn_machine_find("neon")), "machine 'neon' can't run here: it is aarch64, this CPU is x86_64");
    assert_int_equal(!tn_machine_refusal(&arena, tn_machine_find("avx2")),
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"));
    tn_machine wanting = *tn_machine_find("baseline");
    wanting.needs = "sse2 time_travel levitation";
    assert_string_equal(tn_machine_refusal(&arena, &wanting), "machine 'baseline' can't run here: this CPU or its operating system lacks time_travel, levitation");
#endif
    tn_arena_free(&arena);
}

static void caches(void **state)
{
    (void)state;
    int64_t l1, l2, l3;
    tn_machine_caches(&l1, &l2, &l3);
    assert_true(l1 >= 0 && (l2 == 0 || l2 >= l1) && l3 >= 0);
    tn_tile_target here = tn_machine_tile_target(tn_machine_find(NULL), 3);
    assert_true(here.threads == 3 && here.l1_bytes > 0 && (l1 == 0 || here.l1_bytes == l1));
    const tn_machine *elsewhere = tn_machine_find("neon");
#ifndef __aarch64__
    assert_int_equal(tn_machine_tile_target(elsewhere, 1).l2_bytes, elsewhere->l2_bytes);
#endif
    assert_int_equal(tn_machine_tile_target(elsewhere, 1).vector_bits, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(host), cmocka_unit_test(caches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
