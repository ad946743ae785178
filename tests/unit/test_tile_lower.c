/* The CPU lowering against the definitions. Each file of tests/unit/tile is a kernel with the sizes, extents and knobs that it is tried with:
 *
 *     // size NAME values …        a symbol
 *     // bind $NAME values …       a parameter; #NAME in the text stands for its value
 *     // set [LABEL] KEY values …  an entry of the schedule; 0: none
 *     // alias Y X values …        buffer Y starts at that element of X; -1: it has its own memory
 *
 * TILE_RUNS in the environment: how many combinations of a kernel (default 24), TILE_SEED: where they start. */
#include "tile_test.h"

#include <dirent.h>

static int64_t from_environment(const char *name, int64_t otherwise) { return getenv(name) ? atoll(getenv(name)) : otherwise; }

/* One of the values on the rest of a directive's line. */
static int64_t pick(const char *values, uint64_t *seed)
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
static const char *take_name(tn_arena *arena, const char **at)
{
    const char *start = *at, *end = start;
    for (const char *word = start; *word && *word != '-' && !(*word >= '0' && *word <= '9'); word += strspn(word, " ")) {
        word += strcspn(word, " ");
        end = word;
    }
    *at = end;
    return tn_strndup(arena, start, (size_t)(end - start));
}

static variant random_variant(tn_arena *arena, const char *text, uint64_t seed)
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

/* #NAME becomes the value of $NAME. */
static const char *substitute(tn_arena *arena, const char *text, const variant *v)
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

static void run_file(void **state)
{
    tn_arena arena = {0};
    tn_session *session = new_test_session();
    tn_file file;
    assert_int_equal(tn_file_map(session, *state, &file), TN_OK);
    const char *text = tn_strndup(&arena, (const char *)file.data, file.size);
    int64_t runs = from_environment("TILE_RUNS", 24);
    for (int64_t i = 0; i < runs; i++) {
        uint64_t seed = tn_hash_u64((uint64_t)(i + from_environment("TILE_SEED", 0)) + 1);
        variant v = random_variant(&arena, text, seed);
        check_kernel(substitute(&arena, text, &v), &v, seed);
    }
    tn_file_unmap(&file);
    free_test_session(session);
    tn_arena_free(&arena);
}

/* What has no CPU lowering is refused by name. */
static void refuse(const char *text, const char *message)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = parse_tile(session, text);
    tn_lfunc *func = NULL;
    assert_int_equal(tn_tile_verify(kernel), TN_OK);
    assert_int_equal(tn_cpu_lower(session, kernel, tn_machine_find("avx2"), &func), TN_UNSUPPORTED);
    assert_non_null(strstr(session->diags.at[0].message, message));
    free_test_session(session);
}

#define Z "kernel @k(%x: i32[8] read_write) grid() {\nview %X = %x : [8] strides [1]\n%z = const 0 : i64\n%a = load %X[%z + @0] : 8 x i32\n"

static void test_refusals(void **state)
{
    (void)state;
    refuse(Z "%n = const 8 : i64\n%b = fold (%j : %n by 4) axes [0] order tree identity [0] : i32 {\n%c = load %X[%j + @0] : 4 x i32\nyield %c\n} "
             "combine (%u: i32, %v: i32) {\n%w = add %u, %v : i32\nyield %w\n}\nstore %X[%z], %b\n}", "order tree");
    refuse(Z "%b = asm \"\", %a : 8 x i32\nstore %X[%z + @0], %b\n}", "'asm'");
}

static int is_kernel(const struct dirent *entry) { return strstr(entry->d_name, ".tn") != NULL; }

int main(int argc, char **argv)
{
    const char *folder = TENON_SOURCE_DIR "/tests/unit/tile";
    struct dirent **entries;
    int n = scandir(folder, &entries, is_kernel, alphasort), count = 0;
    if (n <= 0)
        return 1;
    struct CMUnitTest *tests = calloc((size_t)n + 1, sizeof *tests);
    char(*paths)[512] = calloc((size_t)n, sizeof *paths);
    for (int i = 0; i < n; i++) {
        snprintf(paths[count], sizeof paths[count], "%s/%s", folder, entries[i]->d_name);
        if (argc < 2 || strstr(entries[i]->d_name, argv[1])) {
            tests[count] = (struct CMUnitTest){paths[count] + strlen(folder) + 1, run_file, NULL, NULL, paths[count]};
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_refusals);
    int failed = _cmocka_run_group_tests("tile kernels", tests, (size_t)count, NULL, NULL);
    free(paths);
    free(tests);
    return failed;
}
