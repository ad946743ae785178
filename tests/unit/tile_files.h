/* The kernels of tests/unit/tile: each file is one, with the sizes, extents and knobs that it is tried with. test_tile_lower.c says what its head looks like. */
#ifndef TN_TILE_FILES_H
#define TN_TILE_FILES_H

#include "tile_test.h"

#include <dirent.h>

static inline int64_t from_environment(const char *name, int64_t otherwise) { return getenv(name) ? atoll(getenv(name)) : otherwise; }

/* One of the values on the rest of a directive's line. */
static inline int64_t pick(const char *values, uint64_t *seed)
{
    int64_t all[32];
    int n = 0;
    for (char *end; n < 32; values = end, n++) {
        all[n] = strtoll(values, &end, 10);
        if (end == values)
            break;
    }
    assert_true(n > 0);
    return all[test_random(seed) % (uint64_t)n];
}

/* The name that a directive gives: all words before the first number. */
static inline const char *take_name(tn_arena *arena, const char **at)
{
    const char *start = *at, *end = start;
    for (const char *word = start; *word && *word != '-' && !(*word >= '0' && *word <= '9'); word += strspn(word, " ")) {
        word += strcspn(word, " ");
        end = word;
    }
    *at = end;
    return tn_strndup(arena, start, (size_t)(end - start));
}

static inline variant random_variant(tn_arena *arena, const char *text, uint64_t seed)
{
    variant v = {.size = {{NULL, 0}}};
    int sizes = 0, binds = 0, sets = 0, aliases = 0;
    for (const char *line = text; strncmp(line, "//", 2) == 0; line = strchr(line, '\n') + 1) {
        const char *at = strchr(line + 3, ' ') + 1, *rest = tn_strndup(arena, at, (size_t)(strchr(at, '\n') - at)), *values = rest;
        bool size = strncmp(line, "// size ", 8) == 0, bind = strncmp(line, "// bind ", 8) == 0, set = strncmp(line, "// set ", 7) == 0;
        bool alias = strncmp(line, "// alias ", 9) == 0;
        if (!size && !bind && !set && !alias)
            continue;
        setting s = {.name = take_name(arena, &values)};
        s.value = pick(values, &seed);
        if (size && sizes < TEST_SYMBOLS - 1)
            v.size[sizes++] = s;
        else if (bind && binds < TEST_KNOBS - 1)
            v.bind[binds++] = s;
        else if (set && sets < TEST_KNOBS - 1 && s.value)
            v.set[sets++] = s;
        else if (alias && aliases < TEST_KNOBS - 1 && s.value >= 0)
            v.alias[aliases++] = s;
    }
    return v;
}

/* Elements of one store meet, so that threads would race to be the last. */
static inline bool stores_meet(const char *text, const variant *v)
{
    for (const char *line = text; strncmp(line, "//", 2) == 0; line = strchr(line, '\n') + 1)
        for (const setting *s = v->size; strncmp(line, "// meets ", 9) == 0 && s->name; s++) {
            size_t len = strlen(s->name);
            if (strncmp(line + 9, s->name, len) == 0 && line[9 + len] == ' ' && atoll(line + 9 + len) == s->value)
                return true;
        }
    return false;
}

/* #NAME becomes the value of $NAME. */
static inline const char *substitute(tn_arena *arena, const char *text, const variant *v)
{
    tn_text out = {.arena = arena};
    while (*text) {
        size_t plain = strcspn(text, "#");
        tn_text_put(&out, text, plain);
        text += plain;
        for (const setting *s = v->bind; *text && s->name; s++) {
            size_t len = strlen(s->name);
            if (strncmp(text + 1, s->name + 1, len - 1) == 0) {
                tn_text_add(&out, "%lld", (long long)s->value);
                text += len;
                break;
            }
        }
    }
    return out.at;
}

typedef void (*tile_check)(const char *text, const variant *v, uint64_t seed);

/* Variants of the kernel, `runs` of them (TILE_RUNS), from TILE_SEED on. */
static inline void run_tile_file(const char *path, int64_t runs, tile_check check)
{
    tn_arena arena = {0};
    tn_session *session = new_test_session();
    tn_file file;
    assert_int_equal(tn_file_map(session, path, &file), TN_OK);
    const char *text = tn_strndup(&arena, (const char *)file.data, file.size);
    runs = from_environment("TILE_RUNS", runs);
    for (int64_t i = 0; i < runs; i++) {
        uint64_t seed = tn_hash_u64((uint64_t)(i + from_environment("TILE_SEED", 0)) + 1);
        variant v = random_variant(&arena, text, seed);
        check(substitute(&arena, text, &v), &v, seed);
    }
    tn_file_unmap(&file);
    free_test_session(session);
    tn_arena_free(&arena);
}

static inline int is_tile_file(const struct dirent *entry) { return strstr(entry->d_name, ".tn") != NULL; }

/* A test for each file of a folder of tests/unit whose name contains `only` (NULL: all), with its path as state, and `more`. */
static inline int run_tile_tests(const char *group, const char *where, const char *only, CMUnitTestFunction run_file, const struct CMUnitTest *more, size_t nmore)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s/tests/unit/%s", TENON_SOURCE_DIR, where);
    struct dirent **entries;
    int n = scandir(folder, &entries, is_tile_file, alphasort), count = 0;
    if (n <= 0)
        return 1;
    struct CMUnitTest *tests = calloc((size_t)n + nmore, sizeof *tests);
    char(*paths)[512] = calloc((size_t)n, sizeof *paths);
    for (int i = 0; i < n; i++) {
        snprintf(paths[count], sizeof paths[count], "%s/%s", folder, entries[i]->d_name);
        if (!only || strstr(entries[i]->d_name, only)) {
            tests[count] = (struct CMUnitTest){paths[count] + strlen(folder) + 1, run_file, NULL, NULL, paths[count]};
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    for (size_t i = 0; i < nmore; i++)
        if (!only || strstr(more[i].name, only))
            tests[count++] = more[i];
    int failed = _cmocka_run_group_tests(group, tests, (size_t)count, NULL, NULL);
    free(paths);
    free(tests);
    return failed;
}

#endif
