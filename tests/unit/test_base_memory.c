/* base: arenas, vectors, text, maps, diagnostics. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static void arena_is_zeroed_and_aligned(void **state)
{
    (void)state;
    tn_arena arena = {0};
    for (size_t size = 0; size < 3000; size += 7) {
        char *block = tn_alloc(&arena, size);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(block[i], 0);
        memset(block, 0xff, size);
        assert_int_equal((uintptr_t)tn_alloc_aligned(&arena, size, 64) % 64, 0);
    }
    char *large = tn_alloc(&arena, 9 << 20);
    large[(9 << 20) - 1] = 1;
    assert_true(arena.bytes > 9 << 20);
    tn_arena_free(&arena);
    assert_int_equal(arena.bytes, 0);
    assert_non_null(tn_alloc(&arena, 1));
    tn_arena_free(&arena);
}

/* Sizes whose product or sum does not fit take the way of memory that ran out: the jump, not a short block. */
static void arena_reports_out_of_memory(void **state)
{
    (void)state;
    jmp_buf on_oom;
    tn_arena arena = {.on_oom = &on_oom};
    volatile int caught = 0;
    const size_t sizes[][2] = {{SIZE_MAX, 2}, {SIZE_MAX / 2, 1}, {SIZE_MAX, 1}, {SIZE_MAX / 8, 8}, {(size_t)1 << 60, 1}};
    for (volatile size_t i = 0; i < TN_COUNT(sizes); i++) {
        if (setjmp(on_oom) == 0) {
            tn_alloc_array(&arena, sizes[i][0], sizes[i][1]);
            fail_msg("%zu * %zu was allocated", sizes[i][0], sizes[i][1]);
        }
        caught++;
    }
    assert_int_equal(caught, TN_COUNT(sizes));
    assert_non_null(tn_alloc(&arena, 10));
    tn_arena_free(&arena);
}

static void vectors_grow(void **state)
{
    (void)state;
    tn_arena arena = {0};
    TN_VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        TN_PUSH(&arena, &v, i);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.at[i], i);
    tn_arena_free(&arena);
}

static void text_grows_and_ends(void **state)
{
    (void)state;
    tn_arena arena = {0};
    tn_text text = {.arena = &arena};
    for (int i = 0; i < 500; i++)
        tn_text_add(&text, "%d,", i);
    assert_int_equal(strlen(text.at), text.len);
    assert_string_equal(text.at + text.len - 4, "499,");
    assert_string_equal(tn_format(&arena, "%s", ""), "");
    assert_string_equal(tn_strndup(&arena, "abcdef", 3), "abc");
    assert_string_equal(tn_strndup(&arena, "ab", 9), "ab");
    tn_arena_free(&arena);
}

static void doubles_print_shortest(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},         {1, "1"},          {-0.0, "-0"},     {1.0 / 3, "0.3333333333333333"},
                 {5e-324, "5e-324"},   {1e23, "1e+23"},   {0.1f, "0.10000000149011612"},
                 {0x1.fffffffffffffp+1023, "1.7976931348623157e+308"}, {-1.0 / 0.0, "-inf"}, {0.0 / 0.0, "nan"}};
    tn_arena arena = {0};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_text text = {.arena = &arena};
        tn_text_double(&text, cases[i].value);
        assert_string_equal(text.at, cases[i].text);
    }
    uint64_t bits = 12345;
    for (int i = 0; i < 20000; i++) {
        double value;
        bits = tn_hash_u64(bits + 1);
        memcpy(&value, &bits, sizeof value);
        tn_text text = {.arena = &arena};
        tn_text_double(&text, value);
        double read = strtod(text.at, NULL);
        assert_true(value != value || !memcmp(&read, &value, sizeof value));
    }
    tn_arena_free(&arena);
}

static void maps_keep_insertion_order(void **state)
{
    (void)state;
    tn_arena arena = {0};
    tn_map map = {.arena = &arena};
    assert_null(tn_map_get(&map, 7));
    assert_null(tn_map_get_str(&map, "seven"));
    for (uint64_t i = 1; i <= 5000; i++)
        *tn_map_at(&map, i * i << 20) = (void *)(uintptr_t)i;
    assert_int_equal(map.len, 5000);
    for (uint64_t i = 1; i <= 5000; i++) {
        assert_int_equal(TN_KEY(tn_map_get(&map, i * i << 20)), i);
        assert_int_equal(tn_map_key(&map, i - 1), i * i << 20);
        assert_int_equal(TN_KEY(tn_map_value(&map, i - 1)), i);
    }
    assert_null(tn_map_get(&map, 3));
    *tn_map_at(&map, 1 << 20) = &map;
    assert_int_equal(map.len, 5000);
    assert_ptr_equal(tn_map_get(&map, 1 << 20), &map);
    tn_arena_free(&arena);
}

static void string_maps_copy_their_keys(void **state)
{
    (void)state;
    tn_arena arena = {0};
    tn_map map = {.arena = &arena};
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        *tn_map_at_str(&map, key) = (void *)(uintptr_t)(i + 1);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(TN_KEY(tn_map_get_str(&map, key)), i + 1);
        assert_string_equal(tn_map_key_str(&map, (size_t)i), key);
    }
    assert_null(tn_map_get_str(&map, ""));
    assert_non_null(tn_map_at_str(&map, ""));
    tn_arena_free(&arena);
}

static void equal_text_interns_to_one_pointer(void **state)
{
    (void)state;
    tn_session session = {0};
    const char *a = tn_intern(&session, "weight.0", 6), *b = tn_intern_z(&session, "weight");
    assert_ptr_equal(a, b);
    assert_string_equal(a, "weight");
    /* A NUL inside is part of the name: "x" and "x\0y" are two names. */
    assert_ptr_not_equal(tn_intern(&session, "x\0y", 3), tn_intern_z(&session, "x"));
    assert_string_equal(tn_intern(&session, NULL, 0), "");
    tn_arena_free(&session.arena);
}

static char *printed(tn_session *session)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    tn_print_diags(session, to);
    fclose(to);
    return text;
}

static void diagnostics_print_what_is_known(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_error(&session, TN_INVALID, (tn_loc){"m.tn", 5, 8, NULL}, "reverse C2: found [%d, %d]", 0, 0);
    tn_warning(&session, (tn_loc){"m.onnx", 0, 0, "conv\x1b[31m1"}, "slow");
    tn_note(&session, TN_NO_LOC, "go on");
    assert_int_equal(session.errors, 1);
    char *text = printed(&session);
    assert_string_equal(text, "m.tn:5:8: error: reverse C2: found [0, 0]\n"
                              "m.onnx: warning: node 'conv\\x1b[31m1': slow\n"
                              "note: go on\n");
    free(text);
    tn_arena_free(&session.arena);
}

static void errors_beyond_the_limit_are_counted(void **state)
{
    (void)state;
    tn_session session = {.error_limit = 3};
    for (int i = 0; i < 10; i++)
        assert_int_equal(tn_error(&session, TN_UNSUPPORTED, TN_NO_LOC, "no. %d", i), TN_UNSUPPORTED);
    for (int i = 0; i < 1000; i++)
        tn_warning(&session, TN_NO_LOC, "again");
    assert_int_equal(session.errors, 10);
    assert_true(session.diags.len <= 30);
    char *text = printed(&session);
    assert_non_null(strstr(text, "error: no. 2\n"));
    assert_null(strstr(text, "no. 3"));
    assert_non_null(strstr(text, "note: 7 more errors\n"));
    free(text);
    tn_arena_free(&session.arena);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    int64_t out;
    size_t bytes;
    assert_false(tn_mul(INT64_MAX, 2, &out));
    assert_false(tn_add(INT64_MAX, 1, &out));
    assert_false(tn_sub(INT64_MIN, 1, &out));
    assert_true(tn_mul(-3, 4, &out) && out == -12);
    assert_int_equal(tn_floordiv(-7, 2), -4);
    assert_int_equal(tn_floordiv(7, -2), -4);
    assert_int_equal(tn_ceildiv(-7, 2), -3);
    assert_int_equal(tn_ceildiv(7, 2), 4);
    assert_int_equal(tn_ceildiv(0, 5), 0);
    assert_true(tn_dtype_bytes(TN_I4, 3, &bytes) && bytes == 2);
    assert_true(tn_dtype_bytes(TN_C128, 3, &bytes) && bytes == 48);
    assert_true(tn_dtype_bytes(TN_F32, 0, &bytes) && bytes == 0);
    assert_true(tn_dtype_bytes(TN_I8, INT64_MAX, &bytes) && bytes == INT64_MAX);
    assert_false(tn_dtype_bytes(TN_F32, INT64_MAX / 4 + 1, &bytes));
    assert_false(tn_dtype_bytes(TN_I4, INT64_MAX / 2, &bytes));
    assert_false(tn_dtype_bytes(TN_F32, -1, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_is_zeroed_and_aligned),
        cmocka_unit_test(arena_reports_out_of_memory),
        cmocka_unit_test(vectors_grow),
        cmocka_unit_test(text_grows_and_ends),
        cmocka_unit_test(doubles_print_shortest),
        cmocka_unit_test(maps_keep_insertion_order),
        cmocka_unit_test(string_maps_copy_their_keys),
        cmocka_unit_test(equal_text_interns_to_one_pointer),
        cmocka_unit_test(diagnostics_print_what_is_known),
        cmocka_unit_test(errors_beyond_the_limit_are_counted),
        cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
