/* base: files, what a hostile model may try with external data, threads. */
#include "base/internal.h"
#include "unit.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    tn_session session;
    char root[64];
} fixture;

static const char *path(fixture *f, const char *name)
{
    return tn_format(&f->session.arena, "%s/%s", f->root, name);
}

static void put(fixture *f, const char *name, const char *text)
{
    assert_int_equal(tn_file_write(&f->session, path(f, name), text, strlen(text)), TN_OK);
}

/* root/secret is outside root/model, which is the folder that a model may read. */
static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    strcpy(f->root, "tenon-test-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    mkdir(path(f, "model"), 0777);
    mkdir(path(f, "model/sub"), 0777);
    put(f, "secret", "secret");
    put(f, "model/a.bin", "abc");
    put(f, "model/sub/b.bin", "b");
    put(f, "model/..c", "dots");
    put(f, "model/empty", "");
    put(f, "model/twice", "x");
    assert_int_equal(link(path(f, "model/twice"), path(f, "other-name")), 0);
    assert_int_equal(symlink("../secret", path(f, "model/link")), 0);
    assert_int_equal(symlink("a.bin", path(f, "model/inner-link")), 0);
    assert_int_equal(symlink("..", path(f, "model/up")), 0);
    assert_int_equal(mkfifo(path(f, "model/pipe"), 0666), 0);
    assert_int_equal(symlink("model", path(f, "model-link")), 0);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"model/a.bin", "model/sub/b.bin", "model/..c", "model/empty", "model/twice",
                                        "model/link", "model/inner-link", "model/up", "model/pipe", "model/sub", "model",
                                        "model-link", "other-name", "secret", "new"};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        remove(path(f, names[i]));
    assert_int_equal(rmdir(f->root), 0);
    tn_arena_free(&f->session.arena);
    free(f);
    return 0;
}

static void expect_content(fixture *f, const char *dir, const char *name, const char *text)
{
    tn_file file = {0};
    assert_int_equal(tn_file_map_below(&f->session, TN_NO_LOC, path(f, dir), name, &file), TN_OK);
    assert_int_equal(file.size, strlen(text));
    assert_memory_equal(file.data, text, file.size);
    tn_file_unmap(&file);
}

static void files_below_a_folder_are_mapped(void **state)
{
    fixture *f = *state;
    expect_content(f, "model", "a.bin", "abc");
    expect_content(f, "model", "./a.bin", "abc");
    expect_content(f, "model", "sub//b.bin", "b");
    expect_content(f, "model", "..c", "dots");
    expect_content(f, "model-link", "a.bin", "abc"); /* the folder is the user's choice, link or not */
    tn_file file;
    assert_int_equal(tn_file_map_below(&f->session, TN_NO_LOC, path(f, "model"), "empty", &file), TN_OK);
    assert_true(file.data == NULL && file.size == 0);
    tn_file_unmap(&file);
    assert_int_equal(f->session.errors, 0);
}

static void nothing_outside_the_folder_is_read(void **state)
{
    fixture *f = *state;
    const char *absolute = realpath(path(f, "secret"), NULL);
    const char *const names[] = {"../secret", "sub/../../secret", "sub/../a.bin", "..", "link", "inner-link",
                                 "up/secret", "twice", "pipe",    "sub",          "",   "missing", "/etc/passwd",
                                 absolute,    "a.bin/x"};
    for (size_t i = 0; i < TN_COUNT(names); i++) {
        tn_file file = {0};
        size_t before = f->session.errors;
        tn_status status = tn_file_map_below(&f->session, TN_NO_LOC, path(f, "model"), names[i], &file);
        if (status == TN_OK || f->session.errors != before + 1 || file.data)
            fail_msg("'%s' was not refused with one error", names[i]);
    }
    free((char *)absolute);
}

/* The way for kernels without openat2 refuses the same links. */
static void stepwise_opening_follows_no_link(void **state)
{
    fixture *f = *state;
    int dir = open(path(f, "model"), O_PATH | O_DIRECTORY);
    const char *const good[] = {"a.bin", "./a.bin", "sub//b.bin", "..c"};
    const char *const bad[] = {"link", "inner-link", "up/secret", "up/model/a.bin", "missing", "missing/a", "a.bin/x"};
    for (size_t i = 0; i < TN_COUNT(good); i++) {
        int fd = tn_open_step_by_step(&f->session.arena, dir, good[i]);
        assert_true(fd >= 0);
        close(fd);
    }
    for (size_t i = 0; i < TN_COUNT(bad); i++)
        assert_int_equal(tn_open_step_by_step(&f->session.arena, dir, bad[i]), -1);
    close(dir);
}

static void mapping_needs_a_regular_file(void **state)
{
    fixture *f = *state;
    tn_file file;
    assert_int_equal(tn_file_map(&f->session, path(f, "model"), &file), TN_IO);
    assert_int_equal(tn_file_map(&f->session, path(f, "model/pipe"), &file), TN_IO);
    assert_int_equal(tn_file_map(&f->session, path(f, "missing"), &file), TN_IO);
    assert_non_null(strstr(f->session.diags.at[2].message, "No such file"));
    assert_int_equal(tn_file_map(&f->session, path(f, "model/link"), &file), TN_OK);
    assert_int_equal(file.size, 6);
    tn_file_unmap(&file);
}

static void writing_replaces_whole_files(void **state)
{
    fixture *f = *state;
    put(f, "new", "first");
    tn_file old, now;
    assert_int_equal(tn_file_map(&f->session, path(f, "new"), &old), TN_OK);
    put(f, "new", "second one");
    assert_int_equal(tn_file_map(&f->session, path(f, "new"), &now), TN_OK);
    assert_memory_equal(old.data, "first", 5); /* a reader keeps what it opened */
    assert_int_equal(now.size, 10);
    tn_file_unmap(&old);
    tn_file_unmap(&now);
    assert_int_equal(tn_file_write(&f->session, path(f, "missing/x"), "", 0), TN_IO);
    assert_int_equal(tn_file_write(&f->session, "/dev/null", "x", 1), TN_OK);
    struct stat info;
    assert_true(stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode));
}

typedef struct counters {
    atomic_int each[1000];
} counters;

static void count(void *context, size_t i)
{
    atomic_fetch_add(&((counters *)context)->each[i], 1);
}

static void parallel_for_runs_each_once(void **state)
{
    (void)state;
    for (int threads = -1; threads < 9; threads += 2) {
        counters c = {0};
        tn_parallel_for(threads, 1000, count, &c);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(c.each[i], 1);
    }
    tn_parallel_for(4, 0, count, NULL);
}

static void machine_limits_are_sensible(void **state)
{
    (void)state;
    assert_true(tn_cpu_count() >= 1 && tn_cpu_count() <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(tn_peak_rss() > 100 << 10);
    double start = tn_seconds();
    assert_true(start > 0 && tn_seconds() >= start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_below_a_folder_are_mapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_outside_the_folder_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stepwise_opening_follows_no_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mapping_needs_a_regular_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writing_replaces_whole_files, set_up, tear_down),
        cmocka_unit_test(parallel_for_runs_each_once),
        cmocka_unit_test(machine_limits_are_sensible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
