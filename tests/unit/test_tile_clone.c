/* A copy of a kernel prints as it does, and what passes do to one does not show in the other. Every kernel of tests/unit/tile is copied. */
#include "tile_test.h"

#include <ctype.h>
#include <dirent.h>

static char *read_text(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    assert_non_null(file);
    size_t n = fread(text, 1, (1 << 16) - 1, file);
    assert_true(n > 0);
    fclose(file);
    return text;
}

/* #NAME in the text stands for the value of $NAME, which is 4 here. */
static void put_values(char *text)
{
    for (char *at = text; (at = strchr(at, '#'));) {
        *at++ = '4';
        while (isalnum((unsigned char)*at))
            *at++ = ' ';
    }
}

static void bind_all(tn_kernel *kernel, const char *text)
{
    char name[16];
    for (const char *at = text; (at = strstr(at, "// bind ")); at++)
        if (sscanf(at, "// bind %15s", name) == 1)
            tn_schedule_bind(kernel, name, 4);
}

static void copy_kernel(tn_session *session, tn_kernel *kernel)
{
    const char *before = tile_text(kernel);
    tn_kernel *copy = tn_kernel_clone(kernel);
    assert_string_equal(tile_text(copy), before);
    assert_int_equal(tn_tile_verify(copy), TN_OK);
    assert_int_equal(tn_tile_size(copy), tn_tile_size(kernel));
    tn_lfunc *loop;
    if (tn_tile_optimize(copy) == TN_OK)
        tn_cpu_lower(session, copy, tn_machine_find("baseline"), &loop);
    assert_string_equal(tile_text(kernel), before);
    tn_kernel *again = tn_kernel_clone(kernel);
    before = tile_text(again);
    if (tn_tile_optimize(kernel) == TN_OK)
        tn_cpu_lower(session, kernel, tn_machine_find("baseline"), &loop);
    assert_string_equal(tile_text(again), before);
}

static void test_copies(void **state)
{
    const char *folder = TENON_SOURCE_DIR "/tests/unit/tile";
    DIR *dir = opendir(folder);
    int seen = 0;
    (void)state;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t n = strlen(entry->d_name);
        if (n < 4 || strcmp(entry->d_name + n - 3, ".tn") != 0)
            continue;
        tn_session *session = new_test_session();
        char *text = read_text(folder, entry->d_name);
        tn_kernels kernels = {0};
        put_values(text);
        assert_int_equal(tn_tile_parse(session, entry->d_name, text, strlen(text), &kernels), TN_OK);
        for (size_t i = 0; i < kernels.len; i++, seen++) {
            bind_all(kernels.at[i], text);
            copy_kernel(session, kernels.at[i]);
        }
        free(text);
        free_test_session(session);
    }
    closedir(dir);
    assert_true(seen >= 30);
}

/* Places in the source go along: the checked mode reports them. */
static void test_places_are_kept(void **state)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, "kernel @f(%x: f32 read_write) grid(%p : 1 by 1) {\n  view %X = %x : [4] strides [1]\n"
                                            "  %0 = load %X[%p + @0] : 4 x f32\n  %1 = add %0, %0 : 4 x f32\n  store %X[%p + @0], %1\n}\n");
    (void)state;
    kernel->body->first->loc = (tn_loc){.file = "k.py", .line = 7, .column = 3};
    tn_kernel *copy = tn_kernel_clone(kernel);
    assert_int_equal(copy->body->first->loc.line, 7);
    assert_string_equal(copy->body->first->loc.file, "k.py");
    assert_ptr_not_equal(copy->body->first, kernel->body->first);
    assert_ptr_not_equal(copy->body->first->view, kernel->body->first->view);
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies), cmocka_unit_test(test_places_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
