/* The text form: every file of tests/lit/graph is read; what is read verifies, prints, reads back and prints the same.
 * Damaged copies of these files end in a diagnostic. */
#include "graph/graph.h"
#include "unit.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct source {
    char *text;
    size_t len;
};

static struct source read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct source source = {malloc(1 << 20), 0};
    assert_non_null(file);
    assert_non_null(source.text);
    source.len = fread(source.text, 1, 1 << 20, file);
    fclose(file);
    return source;
}

static void for_each_file(void (*visit)(const char *name, struct source source))
{
    const char *folder = TENON_SOURCE_DIR "/tests/lit/graph";
    DIR *dir = opendir(folder);
    int files = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[1024];
        size_t n = strlen(entry->d_name);
        if (n < 4 || strcmp(entry->d_name + n - 3, ".tn") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        struct source source = read_file(path);
        visit(entry->d_name, source);
        free(source.text);
        files++;
    }
    closedir(dir);
    assert_true(files > 10);
}

static const char *print(tn_session *session, const tn_graph_module *module)
{
    tn_text text = {.arena = &session->arena};
    for (size_t i = 0; i < module->graphs.len; i++)
        tn_text_graph(&text, module->graphs.at[i]);
    return text.at;
}

static void verify(tn_session *session, const char *name, const tn_graph_module *module)
{
    for (size_t i = 0; i < module->graphs.len; i++)
        if (tn_graph_verify(module->graphs.at[i]) != TN_OK) {
            tn_print_diags(session, stderr);
            fail_msg("%s does not verify", name);
        }
}

static void check_fixpoint(const char *name, struct source source)
{
    tn_session *first = new_test_session(), *second = new_test_session();
    tn_graph_module *module, *again;
    bool expects_error = strstr(source.text, "RUN: not ") != NULL;
    tn_status status = tn_graph_parse(first, name, source.text, source.len, &module);
    if ((status != TN_OK) != expects_error) {
        tn_print_diags(first, stderr);
        fail_msg("%s: status %d", name, status);
    }
    if (status == TN_OK) {
        verify(first, name, module);
        const char *text = print(first, module);
        if (tn_graph_parse(second, "printed", text, strlen(text), &again) != TN_OK) {
            tn_print_diags(second, stderr);
            fail_msg("%s does not read back:\n%s", name, text);
        }
        verify(second, name, again);
        assert_string_equal(print(second, again), text);
    }
    free_test_session(first);
    free_test_session(second);
}

static void test_fixpoint(void **state)
{
    (void)state;
    for_each_file(check_fixpoint);
}

/* Any change of the text gives a graph or a diagnostic. */
static void check_damaged(const char *name, struct source source)
{
    static const char bytes[] = "%{}[]()<>,:=\"-^@x0. \n";
    uint64_t random = 1;
    for (int i = 0; i < 200; i++) {
        tn_session *session = new_test_session();
        tn_graph_module *module = NULL;
        char *copy = malloc(source.len + 1);
        memcpy(copy, source.text, source.len);
        size_t len = source.len;
        for (int k = 0; k < 1 + i % 3; k++) {
            random = tn_hash_u64(random + 0x9e3779b97f4a7c15u);
            copy[random % len] = bytes[(random >> 32) % (sizeof bytes - 1)];
        }
        if (i % 10 == 0)
            len = random % len;
        tn_status status = tn_graph_parse(session, name, copy, len, &module);
        assert_true(status == TN_OK ? session->errors == 0 : session->errors > 0);
        if (status == TN_OK)
            verify(session, name, module);
        free(copy);
        free_test_session(session);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    for_each_file(check_damaged);
}

static void test_elided(void **state)
{
    (void)state;
    tn_session *session = new_test_session();
    const char *source = "graph @f() {\n  %0 = constant dense<[1, 2, 3]> : i32[3]\n  return %0\n}\n";
    tn_graph_module *module;
    assert_int_equal(tn_graph_parse(session, "f", source, strlen(source), &module), TN_OK);
    tn_text text = {.arena = &session->arena};
    tn_text_graph_elided(&text, module->graphs.at[0], 2);
    assert_string_equal(text.at, "graph @f() {\n  %0 = constant dense<...> : i32[3]\n  return %0\n}\n");
    assert_int_equal(tn_graph_parse(session, "f", text.at, text.len, &module), TN_INVALID);
    assert_non_null(strstr(session->diags.at[0].message, "left out"));
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixpoint), cmocka_unit_test(test_damaged), cmocka_unit_test(test_elided)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
