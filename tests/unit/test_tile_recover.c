/* recover changes no meaning. Each file of tests/unit/recover is a kernel as a front end writes it, with lines that say what to run it with:
 *     //! n=17 grid_x=2 x_ptr=17 y_ptr=17       numbers, and how many elements the buffers have
 *     //! … ix_ptr.lo=0 ix_ptr.hi=3             what the integers of a buffer lie between
 *     //! pointers=2                            accesses that stay pointers (else none)
 * It runs by the definitions before and after the pass, and as loops after it. Then the same with random accesses: signed numbers, strides of any sign, masks
 * of all kinds, arithmetic that wraps where that is defined, loops that advance pointers. RECOVER_RUNS and RECOVER_SEED make them longer. */
#include "tile_test.h"

#include <dirent.h>

/* ---- kernels ---- */

static const setting *find_setting(const variant *v, const char *name)
{
    for (const setting *s = v->size; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

static tn_kernel *kernel_of(tn_session *session, const char *text, const variant *v)
{
    tn_kernel *kernel = parse_tile(session, text);
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        const setting *s = find_setting(v, kernel->buffers.at[i].name);
        if (s)
            kernel->buffers.at[i].elements = tn_dim_const(session, s->value);
    }
    return kernel;
}

static void limit_integers(const tn_kernel *kernel, const variant *v, test_data *data, uint64_t seed)
{
    for (int b = 0; b < data->n; b++) {
        char name[80];
        snprintf(name, sizeof name, "%s.lo", kernel->buffers.at[b].name);
        const setting *lo = find_setting(v, name);
        snprintf(name, sizeof name, "%s.hi", kernel->buffers.at[b].name);
        const setting *hi = find_setting(v, name);
        for (int64_t i = 0; lo && hi && i < data->elements[b]; i++)
            tn_number_store(data->dtype[b], data->at[b], i,
                            tn_number_from_int(data->dtype[b], lo->value + (int64_t)(test_random(&seed) % (uint64_t)(hi->value - lo->value + 1))));
    }
}

static bool interpret(const tn_kernel *kernel, const variant *v, test_data *data, const char *what, bool may_fail)
{
    tn_tile_arg args[TEST_BUFFERS];
    for (int i = 0; i < data->n; i++)
        args[i] = (tn_tile_arg){data->at[i], data->elements[i]};
    if (tn_tile_interpret(kernel, args, test_lookup, (void *)v) == TN_OK)
        return true;
    if (!may_fail) {
        report(kernel, NULL, v, what);
        fail_msg("a kernel does not run");
    }
    return false;
}

static void expect_equal(const tn_kernel *before, const tn_kernel *after, const variant *v, const test_data *want, const test_data *got, bool exact)
{
    for (int b = 0; b < want->n; b++)
        for (int64_t i = 0; i < want->elements[b]; i++) {
            tn_dtype dtype = want->dtype[b];
            tn_number x = tn_number_load(dtype, want->at[b], i), y = tn_number_load(dtype, got->at[b], i);
            if (exact ? tn_number_same(dtype, x, y) : close_enough(dtype, x, y, 0))
                continue;
            fprintf(stderr, "%s at %lld: expected %g, found %g\n", before->buffers.at[b].name, (long long)i, tn_number_to_double(dtype, x),
                    tn_number_to_double(dtype, y));
            report(before, NULL, v, "before");
            report(after, NULL, v, "after");
            fail_msg("recover changed what the kernel does");
        }
}

static void check_lowered(tn_kernel *kernel, const variant *v, const char *name, const test_data *start, const test_data *want)
{
    const tn_machine *machine = tn_machine_find(name);
    const tn_pass_options options = {.vector = machine->vector};
    tn_lfunc *func = NULL;
    if (tn_cpu_lower(kernel->session, kernel, machine, &func) != TN_OK || tn_loop_verify(func, 0) != TN_OK) {
        report(kernel, func, v, name);
        fail_msg("a recovered kernel does not lower");
    }
    if (tn_loop_run_passes(func, tn_loop_pipeline, &options, true, NULL) != TN_OK) {
        report(kernel, func, v, name);
        fail_msg("a pass of the pipeline failed");
    }
    compare(kernel, func, v, name, start, want);
}

/* The kernel before the pass and after it. Returns how many accesses stayed pointers; FAILS: it leaves its buffers. */
enum { FAILS = 1000 };
static size_t check_recover(const char *text, const variant *v, uint64_t seed, bool exact, bool lower, bool may_fail)
{
    tn_session *session = new_test_session();
    tn_kernel *kernel = kernel_of(session, text, v);
    if (tn_tile_verify(kernel) != TN_OK) {
        report(kernel, NULL, v, "verify");
        fail_msg("a test's kernel is wrong");
    }
    test_data start = random_data(kernel, v, seed);
    limit_integers(kernel, v, &start, seed);
    test_data want = copy_data(&start), got = copy_data(&start);
    if (!interpret(kernel, v, &want, "before", may_fail)) {
        free_data(&start);
        free_data(&want);
        free_data(&got);
        free_test_session(session);
        return FAILS;
    }
    tn_session *apart = new_test_session();
    tn_kernel *after = kernel_of(apart, text, v);
    if (tn_tile_optimize(after) != TN_OK || tn_tile_verify(after) != TN_OK) {
        report(after, NULL, v, "recover");
        fail_msg("recover made a kernel that is wrong");
    }
    assert_int_equal(apart->errors, 0);
    tn_session *third = new_test_session();
    assert_string_equal(tile_text(after), tile_text(parse_tile(third, tile_text(after))));
    interpret(after, v, &got, "after", false);
    expect_equal(kernel, after, v, &want, &got, exact);
    size_t pointers = tn_tile_pointer_accesses(after);
    if (lower) {
        check_lowered(after, v, "avx512", &start, &want);
        tn_kernel *scalar = kernel_of(third, text, v);
        assert_int_equal(tn_tile_optimize(scalar), TN_OK);
        check_lowered(scalar, v, "baseline", &start, &want);
    }
    free_data(&start);
    free_data(&want);
    free_data(&got);
    free_test_session(session);
    free_test_session(apart);
    free_test_session(third);
    return pointers;
}

/* ---- files ---- */

/* The settings of a line; the names stay in `line`. */
static void read_settings(char *line, variant *v)
{
    int n = 0;
    *v = (variant){.size = {{NULL, 0}}};
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *equals = strchr(word, '=');
        assert_true(equals && n + 1 < TEST_SYMBOLS);
        *equals = 0;
        v->size[n++] = (setting){word, strtoll(equals + 1, NULL, 10)};
    }
}

static void check_file(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    size_t expected = 0, runs = 0;
    bool exact = true;
    for (const char *at = strstr(text, "//! "); at; at = strstr(at + 1, "//! ")) {
        char line[512];
        variant v;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 4, "\n"), at + 4);
        read_settings(line, &v);
        if (find_setting(&v, "pointers") || find_setting(&v, "close")) {
            expected = find_setting(&v, "pointers") ? (size_t)find_setting(&v, "pointers")->value : expected;
            exact = !find_setting(&v, "close");
            continue;
        }
        size_t pointers = check_recover(text, &v, 7 + runs++, exact, true, false);
        if (pointers != expected)
            fail_msg("%s: %zu accesses stay pointers, expected %zu", path, pointers, expected);
    }
    if (!runs)
        fail_msg("%s says nothing to run it with", path);
}

static int is_kernel(const struct dirent *entry) { return strstr(entry->d_name, ".tn") != NULL; }

static void test_files(void **state)
{
    (void)state;
    const char *folder = TENON_SOURCE_DIR "/tests/unit/recover";
    struct dirent **list;
    int n = scandir(folder, &list, is_kernel, alphasort);
    assert_true(n > 10);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        check_file(path);
        free(list[i]);
    }
    free(list);
}

/* ---- random accesses ---- */

enum { AXES = 3, MIDDLE = 1 << 14 };

typedef struct maker {
    tn_text text;
    uint64_t state;
    int next, rank, extent[AXES], depth;
    bool has_loop, apart; /* apart: no two elements of a store have one address, so that lanes may go in any order */
} maker;

static uint64_t pick(maker *m, uint64_t n) { return test_random(&m->state) % n; }
static bool chance(maker *m, int percent) { return (int)pick(m, 100) < percent; }
#define LINE(m, ...) (tn_text_add(&(m)->text, "%*s", 2 + 2 * (m)->depth, ""), tn_text_add(&(m)->text, __VA_ARGS__), tn_text_add(&(m)->text, "\n"))

/* A value in the text: its name's number; shape as text. */
typedef struct named {
    int id;
    char type[80]; /* without the element type: "4 x 8 x " */
} named;

static named fresh(maker *m, const char *shape)
{
    named v = {.id = m->next++};
    snprintf(v.type, sizeof v.type, "%s", shape);
    return v;
}

static named splat(maker *m, int scalar, const char *shape, const char *dtype)
{
    if (!shape[0])
        return (named){.id = scalar};
    named v = fresh(m, shape);
    LINE(m, "%%v%d = broadcast %%v%d axes [] : %s%s", v.id, scalar, shape, dtype);
    return v;
}

static int constant(maker *m, int64_t value, const char *dtype)
{
    int id = m->next++;
    LINE(m, "%%v%d = const %lld : %s", id, (long long)value, dtype);
    return id;
}

/* An i32 scalar, small: a parameter, a coordinate, the loop's index, a constant, or an expression of such. */
static int scalar(maker *m, int depth)
{
    int id, a, b;
    switch (pick(m, depth ? 10 : 6)) {
    case 0:
    case 1:
        return constant(m, (int64_t)pick(m, 13) - 4, "i32");
    case 2:
    case 3:
        id = m->next++;
        LINE(m, "%%v%d = assume %%%c, %%yes : i32", id, "abc"[pick(m, 3)]);
        return id;
    case 4:
        id = m->next++;
        LINE(m, "%%v%d = cast %s : i32", id, m->has_loop && chance(m, 60) ? "%k" : "%p");
        return id;
    case 5:
        id = m->next++;
        LINE(m, "%%v%d = cast %%d : i32", id);
        return id;
    default:
        a = scalar(m, depth - 1);
        b = scalar(m, depth - 1);
        id = m->next++;
        static const char *const fns[] = {"add", "sub", "mul", "mul", "min", "max", "rem", "rem", "div"};
        LINE(m, "%%v%d = %s %%v%d, %%v%d : i32", id, fns[pick(m, TN_COUNT(fns))], a, b);
        return id;
    }
}

static void shape_text(const maker *m, unsigned axes, bool units, char *out)
{
    out[0] = 0;
    for (int i = 0; i < m->rank; i++)
        if (axes >> i & 1)
            sprintf(out + strlen(out), "%d x ", m->extent[i]);
        else if (units)
            strcat(out, "1 x ");
}

static named binary(maker *m, const char *fn, named x, named y, const char *shape, const char *dtype)
{
    named z = fresh(m, shape);
    LINE(m, "%%v%d = %s %%v%d, %%v%d : %s%s", z.id, fn, x.id, y.id, shape, dtype);
    return z;
}

/* A tile of one axis, i32 or i64, in its own shape. */
static named along(maker *m, int axis, const char **dtype)
{
    char shape[80];
    shape_text(m, 1u << axis, false, shape);
    *dtype = "i32";
    int zero = constant(m, chance(m, 80) ? 0 : (int64_t)pick(m, 5), "i64");
    named r = fresh(m, shape), x;
    LINE(m, "%%v%d = range %%v%d : %si64", r.id, zero, shape);
    x = fresh(m, shape);
    LINE(m, "%%v%d = cast %%v%d : %si32", x.id, r.id, shape);
    if (chance(m, 75)) {
        named s = splat(m, scalar(m, 1), shape, "i32");
        bool first = chance(m, 50);
        x = binary(m, chance(m, 80) ? "add" : "sub", first ? s : x, first ? x : s, shape, "i32");
    }
    if (chance(m, 15))
        x = binary(m, "add", x, x, shape, "i32");
    if (chance(m, 12)) { /* wraps in 8 bits, as written */
        named narrow = fresh(m, shape), product = fresh(m, shape), wide = fresh(m, shape);
        const char *type = chance(m, 50) ? "i8" : "u8";
        LINE(m, "%%v%d = cast %%v%d : %s%s", narrow.id, x.id, shape, type);
        named by = splat(m, constant(m, 37, type), shape, type);
        LINE(m, "%%v%d = mul %%v%d, %%v%d : %s%s", product.id, narrow.id, by.id, shape, type);
        LINE(m, "%%v%d = cast %%v%d : %si32", wide.id, product.id, shape);
        x = wide;
    }
    if (chance(m, 10)) { /* and in 32 without a sign */
        named u = fresh(m, shape), less = fresh(m, shape), rest = fresh(m, shape), wide = fresh(m, shape);
        named by = splat(m, constant(m, 5, "u32"), shape, "u32"), mod = splat(m, constant(m, 50, "u32"), shape, "u32");
        LINE(m, "%%v%d = cast %%v%d : %su32", u.id, x.id, shape);
        LINE(m, "%%v%d = sub %%v%d, %%v%d : %su32", less.id, u.id, by.id, shape);
        LINE(m, "%%v%d = rem %%v%d, %%v%d : %su32", rest.id, less.id, mod.id, shape);
        LINE(m, "%%v%d = cast %%v%d : %si32", wide.id, rest.id, shape);
        x = wide;
    }
    if (chance(m, 15)) {
        named n = splat(m, constant(m, 1 + (int64_t)pick(m, 9), "i32"), shape, "i32"), y = fresh(m, shape);
        LINE(m, "%%v%d = %s %%v%d, %%v%d : %si32", y.id, chance(m, 70) ? "rem" : "div", x.id, n.id, shape);
        x = y;
    }
    if (chance(m, 12)) { /* by index */
        named n = splat(m, constant(m, 32, "i32"), shape, "i32"), y = fresh(m, shape), at = fresh(m, shape), z;
        LINE(m, "%%v%d = rem %%v%d, %%v%d : %si32", y.id, x.id, n.id, shape);
        named base = fresh(m, shape);
        LINE(m, "%%v%d = broadcast %%ix axes [] : %sptr<i64>", base.id, shape);
        LINE(m, "%%v%d = addptr %%v%d, %%v%d : %sptr<i64>", at.id, base.id, y.id, shape);
        named middle = splat(m, constant(m, 32, "i32"), shape, "i32"), moved = fresh(m, shape);
        LINE(m, "%%v%d = addptr %%v%d, %%v%d : %sptr<i64>", moved.id, at.id, middle.id, shape);
        z = fresh(m, shape);
        LINE(m, "%%v%d = load_ptr %%v%d : %si64", z.id, moved.id, shape);
        x = fresh(m, shape);
        LINE(m, "%%v%d = cast %%v%d : %si32", x.id, z.id, shape);
    }
    if (chance(m, 25)) {
        named y = fresh(m, shape);
        LINE(m, "%%v%d = cast %%v%d : %si64", y.id, x.id, shape);
        *dtype = "i64";
        x = y;
    }
    return x;
}

/* x of one axis in the full shape: at once, by unit axes, or by a permuted tile. */
static named widen(maker *m, named x, int axis, const char *dtype)
{
    char full[80], unit[80];
    shape_text(m, ~0u, false, full);
    shape_text(m, 1u << axis, true, unit);
    named y = fresh(m, full);
    if (m->rank == 1)
        return x;
    if (chance(m, 40)) {
        LINE(m, "%%v%d = broadcast %%v%d axes [%d] : %s%s", y.id, x.id, axis, full, dtype);
        return y;
    }
    named u = fresh(m, unit);
    LINE(m, "%%v%d = reshape %%v%d : %s%s", u.id, x.id, unit, dtype);
    if (m->rank == 2 && chance(m, 40)) {
        char back[80];
        sprintf(back, axis ? "%d x 1 x " : "1 x %d x ", m->extent[axis]);
        named v = fresh(m, back), w = fresh(m, unit);
        LINE(m, "%%v%d = permute %%v%d axes [1, 0] : %s%s", v.id, u.id, back, dtype);
        LINE(m, "%%v%d = permute %%v%d axes [1, 0] : %s%s", w.id, v.id, unit, dtype);
        u = w;
    }
    LINE(m, "%%v%d = broadcast %%v%d axes [%s] : %s%s", y.id, u.id, m->rank == 2 ? "0, 1" : "0, 1, 2", full, dtype);
    return y;
}

static named times(maker *m, named x, const char *dtype)
{
    int by = scalar(m, 0);
    if (strcmp(dtype, "i64") == 0) {
        LINE(m, "%%v%d = cast %%v%d : i64", m->next, by);
        by = m->next++;
    }
    return binary(m, "mul", x, splat(m, by, x.type, dtype), x.type, dtype);
}

/* The positions along an axis times a stride, the first axis fastest. */
static named positions(maker *m, int axis, int *stride, const char **dtype)
{
    char shape[80];
    shape_text(m, 1u << axis, false, shape);
    int zero = constant(m, 0, "i64");
    named r = fresh(m, shape), s = splat(m, constant(m, *stride, "i64"), shape, "i64");
    LINE(m, "%%v%d = range %%v%d : %si64", r.id, zero, shape);
    *stride *= m->extent[axis];
    *dtype = "i64";
    return binary(m, "mul", r, s, shape, "i64");
}

/* The full tile of pointers into %x or %y, all of it inside the buffer. */
static named pointers(maker *m, const char *buffer)
{
    char full[80];
    shape_text(m, ~0u, false, full);
    int start = m->next++, middle = constant(m, MIDDLE, "i32");
    LINE(m, "%%v%d = addptr %%%s, %%v%d : ptr<f32>", start, buffer, middle);
    if (chance(m, 40)) {
        int by = scalar(m, 1);
        LINE(m, "%%v%d = addptr %%v%d, %%v%d : ptr<f32>", m->next, start, by);
        start = m->next++;
    }
    named p = fresh(m, full);
    LINE(m, "%%v%d = broadcast %%v%d axes [] : %sptr<f32>", p.id, start, full);
    for (int axis = 0, stride = 1; axis < m->rank; axis++) {
        const char *dtype;
        named x = m->apart && buffer[0] == 'y' ? positions(m, axis, &stride, &dtype) : along(m, axis, &dtype), q = fresh(m, full);
        if (m->apart && buffer[0] == 'y') {
            x = widen(m, x, axis, dtype);
            LINE(m, "%%v%d = addptr %%v%d, %%v%d : %sptr<f32>", q.id, p.id, x.id, full);
            p = q;
            continue;
        }
        bool early = chance(m, 50);
        x = early && chance(m, 80) ? times(m, x, dtype) : x;
        x = widen(m, x, axis, dtype);
        snprintf(x.type, sizeof x.type, "%s", full);
        x = !early && chance(m, 40) ? times(m, x, dtype) : x;
        LINE(m, "%%v%d = addptr %%v%d, %%v%d : %sptr<f32>", q.id, p.id, x.id, full);
        p = q;
    }
    return p;
}

static named comparison(maker *m)
{
    static const char *const fns[] = {"lt", "le", "gt", "ge", "lt", "lt", "eq", "ne"};
    char full[80];
    const char *dtype;
    const char *fn = fns[pick(m, TN_COUNT(fns))];
    shape_text(m, ~0u, false, full);
    if (chance(m, 12)) { /* of all elements */
        int a = scalar(m, 1), b = scalar(m, 1), c = m->next++;
        LINE(m, "%%v%d = %s %%v%d, %%v%d : bool", c, fn, a, b);
        return splat(m, c, full, "bool");
    }
    int axis = (int)pick(m, (uint64_t)m->rank);
    named x = along(m, axis, &dtype), y;
    x = chance(m, 20) ? times(m, x, dtype) : x;
    if (chance(m, 12)) { /* of two axes */
        const char *other;
        int second = (int)pick(m, (uint64_t)m->rank);
        x = widen(m, x, axis, dtype);
        y = along(m, second, &other);
        y = widen(m, y, second, other);
        snprintf(x.type, sizeof x.type, "%s", full);
        snprintf(y.type, sizeof y.type, "%s", full);
        named wide[2] = {x, y};
        for (int i = 0; i < 2; i++)
            if (strcmp(i ? other : dtype, "i32") == 0) {
                wide[i] = fresh(m, full);
                LINE(m, "%%v%d = cast %%v%d : %si64", wide[i].id, i ? y.id : x.id, full);
            }
        return binary(m, fn, wide[0], wide[1], full, "bool");
    }
    int limit = scalar(m, 1);
    if (strcmp(dtype, "i64") == 0) {
        LINE(m, "%%v%d = cast %%v%d : i64", m->next, limit);
        limit = m->next++;
    }
    y = splat(m, limit, x.type, dtype);
    named c = chance(m, 50) ? binary(m, fn, x, y, x.type, "bool") : binary(m, fn, y, x, x.type, "bool");
    if (chance(m, 15)) {
        named d = fresh(m, c.type);
        LINE(m, "%%v%d = not %%v%d : %sbool", d.id, c.id, c.type);
        d.id = m->next - 1;
        c = d;
    }
    return widen(m, c, axis, "bool");
}

static named mask_of(maker *m)
{
    char full[80];
    shape_text(m, ~0u, false, full);
    named mask = comparison(m);
    for (uint64_t n = pick(m, 4); n > 0; n--)
        mask = binary(m, chance(m, 95) ? "and" : "or", mask, comparison(m), full, "bool");
    return mask;
}

static named load(maker *m, named p)
{
    char full[80];
    shape_text(m, ~0u, false, full);
    named x = fresh(m, full), mask, other;
    if (chance(m, 25)) {
        LINE(m, "%%v%d = load_ptr %%v%d : %sf32", x.id, p.id, full);
        return x;
    }
    mask = mask_of(m);
    if (chance(m, 40)) {
        LINE(m, "%%v%d = load_ptr %%v%d, %%v%d : %sf32", x.id, p.id, mask.id, full);
        return x;
    }
    if (chance(m, 70)) {
        other = splat(m, constant(m, 9, "f32"), full, "f32");
    } else {
        const char *dtype;
        int axis = (int)pick(m, (uint64_t)m->rank);
        named i = along(m, axis, &dtype);
        i = widen(m, i, axis, dtype);
        other = fresh(m, full);
        LINE(m, "%%v%d = cast %%v%d : %sf32", other.id, i.id, full);
    }
    LINE(m, "%%v%d = load_ptr %%v%d, %%v%d, %%v%d : %sf32", x.id, p.id, mask.id, other.id, full);
    return x;
}

static void store(maker *m, named p, named x)
{
    if (chance(m, 30))
        LINE(m, "store_ptr %%v%d, %%v%d", p.id, x.id);
    else {
        named mask = mask_of(m);
        LINE(m, "store_ptr %%v%d, %%v%d, %%v%d", p.id, x.id, mask.id);
    }
}

/* Two pointer tiles that a loop advances by a scalar each turn. */
static void carried_loop(maker *m)
{
    char full[80];
    shape_text(m, ~0u, false, full);
    named x = pointers(m, "x"), y = pointers(m, "y");
    int by[2] = {scalar(m, 1), scalar(m, 1)}, bounds[3];
    int64_t numbers[3] = {(int64_t)pick(m, 4) - 1, (int64_t)pick(m, 6), 1 + (int64_t)pick(m, 3)};
    for (int i = 0; i < 3; i++)
        bounds[i] = constant(m, numbers[i], "i64");
    int r = m->next;
    m->next += 4;
    LINE(m, "%%v%d, %%v%d = for (%%k = %%v%d to %%v%d by %%v%d) carry (%%v%d = %%v%d: %sptr<f32>, %%v%d = %%v%d: %sptr<f32>) : %sptr<f32>, %sptr<f32> {", r,
         r + 1, bounds[0], bounds[1], bounds[2], r + 2, x.id, full, r + 3, y.id, full, full, full);
    m->depth++;
    m->has_loop = true;
    named p[2] = {{.id = r + 2}, {.id = r + 3}}, next[2];
    store(m, p[1], load(m, p[0]));
    m->has_loop = false;
    for (int i = 0; i < 2; i++) {
        int amount = chance(m, 80) ? by[i] : scalar(m, 1);
        named s = splat(m, amount, full, "i32");
        next[i] = fresh(m, full);
        LINE(m, "%%v%d = addptr %%v%d, %%v%d : %sptr<f32>", next[i].id, p[i].id, s.id, full);
    }
    LINE(m, "yield %%v%d, %%v%d", next[0].id, next[1].id);
    m->depth--;
    LINE(m, "}");
    store(m, (named){.id = r + 1}, load(m, (named){.id = r}));
}

static void random_kernel(maker *m)
{
    static const int extents[] = {1, 2, 4, 4, 8, 8};
    m->rank = 1 + (int)pick(m, AXES);
    for (int i = 0; i < m->rank; i++)
        m->extent[i] = extents[pick(m, TN_COUNT(extents))];
    tn_text_add(&m->text, "kernel @k(%%x: f32 read_write, %%y: f32 read_write, %%ix: i64 read, %%x: ptr<f32>, %%y: ptr<f32>, %%ix: ptr<i64>, %%a: i32, %%b: i32, %%c: i32, "
                          "%%d: i64) grid(%%p : g by 1) {\n");
    LINE(m, "%%yes = const true : bool");
    for (uint64_t n = 1 + pick(m, 2); n > 0; n--) {
        if (chance(m, 40)) {
            carried_loop(m);
        } else {
            named x = load(m, pointers(m, "x"));
            store(m, pointers(m, "y"), x);
        }
    }
    tn_text_add(&m->text, "}\n");
}

/* Loads modulo a size, or of 0 from a size on, of which what is stored may lie below it, or not. */
static void remainder_kernel(maker *m)
{
    const char *numbers[] = {"%a", "%c", "%pos"}, *shape = "8 x ";
    tn_text_add(&m->text, "kernel @k(%%x: f32 read_write, %%y: f32 read_write, %%ix: i64 read, %%x: ptr<f32>, %%y: ptr<f32>, %%ix: ptr<i64>, %%a: i32, %%b: i32, %%c: i32, "
                          "%%d: i64) grid(%%p : g by 1) {\n");
    LINE(m, "%%p32 = cast %%p : i32");
    LINE(m, "%%four = const %d : i32", chance(m, 70) ? 8 : 3);
    LINE(m, "%%pos = mul %%p32, %%four : i32");
    int zero = constant(m, 0, "i64"), none = constant(m, 0, "i32"), more = constant(m, (int64_t)pick(m, 3) - 1, "i32");
    named r = fresh(m, shape), i = fresh(m, shape), at[2], size[2];
    LINE(m, "%%v%d = range %%v%d : 8 x i64", r.id, zero);
    LINE(m, "%%v%d = cast %%v%d : 8 x i32", i.id, r.id);
    const char *start = numbers[chance(m, 70) ? 2 : pick(m, 3)], *limit = numbers[pick(m, 2)];
    for (int k = 0; k < 2; k++) { /* the load's, and the store's mask */
        int from = m->next++, to = m->next++;
        LINE(m, "%%v%d = add %s, %%v%d : i32", from, k && chance(m, 25) ? numbers[pick(m, 3)] : start, k && chance(m, 25) ? more : none);
        LINE(m, "%%v%d = add %s, %%v%d : i32", to, k && chance(m, 25) ? numbers[pick(m, 2)] : limit, k && chance(m, 30) ? more : none);
        at[k] = binary(m, "add", splat(m, from, shape, "i32"), i, shape, "i32");
        size[k] = splat(m, to, shape, "i32");
    }
    named rest, mask = binary(m, "lt", at[1], size[1], shape, "bool"), x = fresh(m, shape), y;
    if (chance(m, 50)) {
        rest = binary(m, "rem", at[0], size[0], shape, "i32");
    } else {
        named below = binary(m, "lt", at[0], size[0], shape, "bool"), other = splat(m, none, shape, "i32");
        rest = fresh(m, shape);
        LINE(m, "%%v%d = select %%v%d, %%v%d, %%v%d : 8 x i32", rest.id, below.id, (chance(m, 80) ? at[0] : at[1]).id, other.id);
    }
    int middle = constant(m, MIDDLE, "i32"), xs = m->next++, ys = m->next++;
    LINE(m, "%%v%d = addptr %%x, %%v%d : ptr<f32>", xs, middle);
    LINE(m, "%%v%d = addptr %%y, %%v%d : ptr<f32>", ys, middle);
    named xp = binary(m, "addptr", splat(m, xs, shape, "ptr<f32>"), rest, shape, "ptr<f32>"), yp;
    LINE(m, "%%v%d = load_ptr %%v%d : 8 x f32", x.id, xp.id);
    y = chance(m, 50) ? binary(m, "add", x, x, shape, "f32") : x;
    yp = binary(m, "addptr", splat(m, ys, shape, "ptr<f32>"), chance(m, 70) ? at[0] : i, shape, "ptr<f32>");
    LINE(m, "store_ptr %%v%d, %%v%d, %%v%d", yp.id, y.id, mask.id);
    if (chance(m, 20)) {
        named all = fresh(m, "");
        LINE(m, "%%v%d = reduce %%v%d axes [0] order any : f32 combine (%%s: f32, %%t: f32) {", all.id, y.id);
        LINE(m, "  %%u = add %%s, %%t : f32");
        LINE(m, "  yield %%u");
        LINE(m, "}");
        LINE(m, "store_ptr %%y, %%v%d", all.id);
    }
    tn_text_add(&m->text, "}\n");
}

static void test_accesses(void **state)
{
    (void)state;
    const char *runs = getenv("RECOVER_RUNS"), *seed = getenv("RECOVER_SEED");
    int n = runs ? atoi(runs) : 600;
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    size_t left = 0, fail = 0;
    for (uint64_t i = first; i < first + (uint64_t)n; i++) {
        tn_arena arena = {.chunks = NULL};
        bool lower = i % 8 == 0;
        maker m = {.text = {.arena = &arena}, .state = i * 977, .apart = lower};
        if (i % 6 == 5)
            remainder_kernel(&m);
        else
            random_kernel(&m);
        variant v = {.size = {{"a", (int64_t)pick(&m, 17) - 8},
                              {"b", (int64_t)pick(&m, 9) - 4},
                              {"c", (int64_t)pick(&m, 12)},
                              {"d", (int64_t)pick(&m, 9) - 2},
                              {"g", lower ? 1 : 1 + (int64_t)pick(&m, 3)}, /* programs store to the same elements, in any order */
                              {"x", 2 * MIDDLE},
                              {"y", 2 * MIDDLE},
                              {"ix", 65},
                              {"ix.lo", -3},
                              {"ix.hi", 9}}};
        if (getenv("RECOVER_SHOW"))
            fprintf(stderr, "seed %llu\n%s", (unsigned long long)i, m.text.at);
        size_t pointers = check_recover(m.text.at, &v, i, true, lower, true);
        left += pointers == FAILS ? 0 : pointers;
        fail += pointers == FAILS;
        tn_arena_free(&arena);
    }
    if (getenv("RECOVER_SHOW"))
        fprintf(stderr, "%zu accesses stay pointers, %zu kernels leave their buffers\n", left, fail);
    assert_true(fail * 10 <= (size_t)n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_accesses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
