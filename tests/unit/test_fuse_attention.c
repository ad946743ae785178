/* Attention in its parts: how it is spelled, what it gives on a CPU, and what its kernel gives by a GPU's threads in lockstep. */
#include <math.h>

#include "tile_test.h"

#include "eval/eval.h"
#include "fuse/fuse.h"
#include "opt/opt.h"
#include "run/run.h"

/* How scores become what the softmax takes, and how the parts are spelled. */
enum {
    SCALED = 1,         /* q * 0.5 and k * 0.25 */
    DIVIDED = 2,        /* scores / 3 */
    CAPPED = 4,         /* tanh of scores */
    MASK = 8,           /* + a row of keys, an input */
    BIAS = 16,          /* + queries x keys for each head, an input */
    ALIBI = 32,         /* + slope of the head * (key - query) */
    CAUSAL = 64,        /* key <= query + (keys - queries), by comparison */
    WINDOW = 128,       /* and key > query - 5 */
    TRIANGLE = 256,     /* a constant's key <= query + 1 */
    LOWEST = 512,       /* hidden scores are the type's lowest number, not -inf */
    TURNED = 1024,      /* q, k, v and the result have heads inside: [batch, row, head, column]; k is turned before */
    REPEATED = 2048,    /* grouped heads by broadcast; else by reshape of q */
    WIDE = 4096,        /* softmax in f32 */
    FLIPPED = 8192,     /* k times q, v times weights */
    SYMBOLS = 16384,    /* queries and keys are symbols */
    SPECIAL = 1 << 15,  /* NaN and infinities among queries */
    DEAD = 1 << 16,     /* a mask that hides all keys of a batch by -inf */
    ADDED = 1 << 17,    /* hidden by what is added: 0, or that number */
    COUNTED = 1 << 18,  /* places of queries and keys are constants, as a Range of known bounds leaves them */
};

typedef struct shape {
    int64_t b, h, g, s, t, d, c;
} shape;

typedef struct spelling {
    tn_session *session;
    tn_text text;
    const shape *n;
    unsigned how;
    const char *type;
    const char *score; /* type of scores */
    int next;
} spelling;

static const char *format(spelling *w, const char *text, ...)
{
    char out[512];
    va_list args;
    va_start(args, text);
    vsnprintf(out, sizeof out, text, args);
    va_end(args);
    return tn_format(&w->session->arena, "%s", out);
}

static const char *size_of(spelling *w, char letter)
{
    const shape *n = w->n;
    if ((w->how & SYMBOLS) && (letter == 's' || letter == 't'))
        return letter == 's' ? "s" : "t";
    int64_t v = letter == 'b' ? n->b : letter == 'h' ? n->h : letter == 'g' ? n->g : letter == 's' ? n->s : letter == 't' ? n->t : letter == 'd' ? n->d : letter == 'c' ? n->c : letter == 'r' ? n->h / n->g : 1;
    return format(w, "%lld", (long long)v);
}

/* "[2, 3, 5]" of "bhs". */
static const char *dims(spelling *w, const char *letters)
{
    tn_text out = {.arena = &w->session->arena};
    tn_text_add(&out, "[");
    for (const char *at = letters; *at; at++)
        tn_text_add(&out, "%s%s", at == letters ? "" : ", ", size_of(w, *at));
    tn_text_add(&out, "]");
    return out.at;
}

/* One line; the name of its value. */
static const char *line(spelling *w, const char *type, const char *shape, const char *text, ...)
{
    char out[768];
    va_list args;
    va_start(args, text);
    vsnprintf(out, sizeof out, text, args);
    va_end(args);
    const char *name = format(w, "%%n%d", w->next++);
    tn_text_add(&w->text, "  %s = %s : %s%s\n", name, out, type, dims(w, shape));
    return name;
}

static const char *number(spelling *w, const char *type, const char *value, const char *shape)
{
    const char *scalar = line(w, type, "", "constant dense<%s>", value);
    return line(w, type, shape, "broadcast_in_dim %s, shape = %s, broadcast_dimensions = []", scalar, dims(w, shape));
}

static const char *map2(spelling *w, const char *op, const char *type, const char *shape, const char *x, const char *y) { return line(w, type, shape, "%s %s, %s", op, x, y); }

static const char *reduced(spelling *w, const char *x, const char *op, const char *from, const char *scores)
{
    const char *start = line(w, w->score, "", "constant dense<%s>", from), *name = format(w, "%%n%d", w->next++), *type = w->score;
    char kept[8] = "";
    snprintf(kept, sizeof kept, "%.*s", (int)strlen(scores) - 1, scores);
    tn_text_add(&w->text, "  %s = reduce %s, %s, dimensions = [%d] : %s%s {\n  ^(%%x: %s[], %%y: %s[]):\n    %%z = %s %%x, %%y : %s[]\n    return %%z\n  }\n", name, x, start, (int)strlen(kept), type,
                dims(w, kept), type, type, op, type);
    return line(w, type, scores, "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [0, 1, 2]", name, dims(w, scores));
}

/* 0, 1, … along s or t, of both. */
static const char *places(spelling *w, int axis)
{
    int64_t n = axis ? w->n->t : w->n->s;
    if (!(w->how & COUNTED))
        return line(w, "i64", "st", "iota shape = %s, dtype = i64, iota_dimension = %d", dims(w, "st"), axis);
    tn_text numbers = {.arena = &w->session->arena};
    for (int64_t i = 0; i < n; i++)
        tn_text_add(&numbers, i ? ", %lld" : "%lld", (long long)i);
    const char *name = format(w, "%%n%d", w->next++);
    tn_text_add(&w->text, "  %s = constant dense<[%s]> : i64%s\n", name, numbers.at, dims(w, axis ? "t" : "s"));
    return line(w, "i64", "st", "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [%d]", name, dims(w, "st"), axis);
}

static const char *masks(spelling *w, const char *s)
{
    const char *type = w->type, *far = w->how & LOWEST ? (strcmp(type, "f16") ? "-3.3e38" : "-65504") : "-inf";
    if (w->how & MASK) {
        const char *m = line(w, type, "bhst", "broadcast_in_dim %%mask, shape = %s, broadcast_dimensions = [0, 1, 2, 3]", dims(w, "bhst"));
        s = map2(w, "add", type, "bhst", s, m);
    }
    if (w->how & BIAS)
        s = map2(w, "add", type, "bhst", line(w, type, "bhst", "broadcast_in_dim %%bias, shape = %s, broadcast_dimensions = [1, 2, 3]", dims(w, "bhst")), s);
    const char *query = places(w, 0);
    const char *key = places(w, 1);
    if (w->how & ALIBI) {
        const char *apart = line(w, type, "st", "convert %s, dtype = %s", map2(w, "subtract", "i64", "st", key, query), type);
        const char *slope = line(w, type, "hst", "broadcast_in_dim %%slope, shape = %s, broadcast_dimensions = [0]", dims(w, "hst"));
        apart = line(w, type, "hst", "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [1, 2]", apart, dims(w, "hst"));
        apart = map2(w, "multiply", type, "hst", apart, slope);
        s = map2(w, "add", type, "bhst", s, line(w, type, "bhst", "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [1, 2, 3]", apart, dims(w, "bhst")));
    }
    const char *ok = NULL;
    if (w->how & CAUSAL) {
        const char *past = line(w, "i64", "", "dimension dim = %s", w->how & SYMBOLS ? "t - s" : format(w, "%lld", (long long)(w->n->t - w->n->s)));
        past = line(w, "i64", "st", "broadcast_in_dim %s, shape = %s, broadcast_dimensions = []", past, dims(w, "st"));
        ok = line(w, "bool", "st", "compare %s, %s, direction = LE", key, map2(w, "add", "i64", "st", query, past));
    }
    if (w->how & WINDOW) {
        const char *near = line(w, "bool", "st", "compare %s, %s, direction = GT", key, map2(w, "subtract", "i64", "st", query, number(w, "i64", "5", "st")));
        ok = ok ? map2(w, "and", "bool", "st", ok, near) : near;
    }
    if (w->how & TRIANGLE) {
        tn_text bits = {.arena = &w->session->arena};
        for (int64_t i = 0; i < w->n->s; i++) {
            tn_text_add(&bits, i ? ", [" : "[");
            for (int64_t j = 0; j < w->n->t; j++)
                tn_text_add(&bits, "%s%s", j ? ", " : "", j <= i + 1 ? "true" : "false");
            tn_text_add(&bits, "]");
        }
        const char *name = format(w, "%%n%d", w->next++);
        tn_text_add(&w->text, "  %s = constant dense<[%s]> : bool%s\n", name, bits.at, dims(w, "st"));
        ok = ok ? map2(w, "and", "bool", "st", ok, name) : name;
    }
    if (!ok)
        return s;
    ok = line(w, "bool", "bhst", "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [2, 3]", ok, dims(w, "bhst"));
    if (w->how & ADDED)
        return map2(w, "add", type, "bhst", s, line(w, type, "bhst", "select %s, %s, %s", ok, number(w, type, "0", "bhst"), number(w, type, far, "bhst")));
    return line(w, type, "bhst", "select %s, %s, %s", ok, s, number(w, type, far, "bhst"));
}

static const char *factor(spelling *w, const char *name, const char *letters, const char *by)
{
    return w->how & SCALED ? map2(w, "multiply", w->type, letters, name, number(w, w->type, by, letters)) : name;
}

/* [batch, heads of K, …] as [batch, heads, …], each several times. */
static const char *repeated(spelling *w, const char *x, char row, char column)
{
    char five[] = {'b', 'g', 'r', row, column, 0}, four[] = {'b', 'h', row, column, 0};
    x = line(w, w->type, five, "broadcast_in_dim %s, shape = %s, broadcast_dimensions = [0, 1, 3, 4]", x, dims(w, five));
    return line(w, w->type, four, "reshape %s, shape = %s", x, dims(w, four));
}

static const char *product(spelling *w, const char *x, const char *y, int batch, int contract_x, int contract_y, const char *out)
{
    const char *dims_of = batch == 3 ? "[0, 2]" : "[0, 1]";
    return line(w, w->type, out, "dot_general %s, %s, lhs_batch = [0, 1], rhs_batch = %s, lhs_contract = [%d], rhs_contract = [%d]", x, y, dims_of, contract_x, contract_y);
}

static void spell(spelling *w)
{
    bool turned = w->how & TURNED, grouped = w->n->g != w->n->h, repeat = grouped && (w->how & REPEATED);
    tn_text_add(&w->text, "graph @f(%%q: %s%s, %%k: %s%s, %%v: %s%s", w->type, dims(w, turned ? "bshd" : "bhsd"), w->type, dims(w, turned ? "btgd" : "bgtd"), w->type, dims(w, turned ? "btgc" : "bgtc"));
    if (w->how & MASK)
        tn_text_add(&w->text, ", %%mask: %s%s", w->type, dims(w, "b11t"));
    if (w->how & BIAS)
        tn_text_add(&w->text, ", %%bias: %s%s", w->type, dims(w, "hst"));
    if (w->how & ALIBI)
        tn_text_add(&w->text, ", %%slope: %s%s", w->type, dims(w, "h"));
    tn_text_add(&w->text, ") {\n");
    const char *q = "%q", *k = "%k", *v = "%v", *s, *y;
    if (turned) {
        q = line(w, w->type, "bhsd", "transpose %%q, permutation = [0, 2, 1, 3]");
        k = line(w, w->type, "bgtd", "transpose %%k, permutation = [0, 2, 1, 3]");
        v = line(w, w->type, "bgtc", "transpose %%v, permutation = [0, 2, 1, 3]");
    }
    q = factor(w, q, "bhsd", "0.5");
    k = factor(w, k, "bgtd", "0.25");
    if (repeat)
        k = repeated(w, k, 't', 'd'), v = repeated(w, v, 't', 'c');
    if (grouped && !repeat) {
        q = line(w, w->type, "bgrsd", "reshape %s, shape = %s", q, dims(w, "bgrsd"));
        s = line(w, w->type, "bgrst", "dot_general %s, %s, lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [4], rhs_contract = [3]", q, k);
        s = line(w, w->type, "bhst", "reshape %s, shape = %s", s, dims(w, "bhst"));
    } else if (w->how & FLIPPED) {
        s = product(w, k, q, 2, 3, 3, "bhts");
        s = line(w, w->type, "bhst", "transpose %s, permutation = [0, 1, 3, 2]", s);
    } else if (turned) {
        k = line(w, w->type, "bhdt", "transpose %s, permutation = [0, 1, 3, 2]", k);
        s = product(w, q, k, 2, 3, 2, "bhst");
    } else {
        s = product(w, q, k, 2, 3, 3, "bhst");
    }
    if (w->how & DIVIDED)
        s = map2(w, "divide", w->type, "bhst", s, number(w, w->type, "3", "bhst"));
    if (w->how & CAPPED)
        s = line(w, w->type, "bhst", "tanh %s", s);
    s = masks(w, s);
    if (w->how & WIDE)
        s = line(w, "f32", "bhst", "convert %s, dtype = f32", s);
    w->score = w->how & WIDE ? "f32" : w->type;
    const char *e = line(w, w->score, "bhst", "exponential %s", map2(w, "subtract", w->score, "bhst", s, reduced(w, s, "maximum", "-inf", "bhst")));
    const char *p = map2(w, "divide", w->score, "bhst", e, reduced(w, e, "add", "0", "bhst"));
    if (w->how & WIDE)
        p = line(w, w->type, "bhst", "convert %s, dtype = %s", p, w->type);
    if (grouped && !repeat) {
        p = line(w, w->type, "bgrst", "reshape %s, shape = %s", p, dims(w, "bgrst"));
        y = line(w, w->type, "bgrsc", "dot_general %s, %s, lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract = [4], rhs_contract = [2]", p, v);
        y = line(w, w->type, "bhsc", "reshape %s, shape = %s", y, dims(w, "bhsc"));
    } else if (w->how & FLIPPED) {
        y = line(w, w->type, "bhsc", "transpose %s, permutation = [0, 1, 3, 2]", product(w, v, p, 2, 2, 3, "bhcs"));
    } else {
        y = product(w, p, v, 2, 3, 2, "bhsc");
    }
    if (turned)
        y = line(w, w->type, "bshc", "transpose %s, permutation = [0, 2, 1, 3]", y);
    tn_text_add(&w->text, "  return %s\n}\n", y);
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

typedef struct values {
    const tn_tensor *in[8];
    int nin;
    tn_tensor *want;
} values;

static int64_t size_at(tn_session *session, const shape *n, tn_dim d) { return tn_dim_is_const(d) ? d->value : d == tn_dim_symbol(session, "s") ? n->s : n->t; }

static const tn_tensor *random_tensor(tn_session *session, const shape *n, const tn_value *v, unsigned how, uint64_t *seed)
{
    tn_tensor *t = TN_NEW(&session->arena, tn_tensor);
    int64_t count = 1;
    *t = (tn_tensor){.dtype = v->type.dtype, .rank = v->type.rank};
    for (int i = 0; i < t->rank; i++)
        count *= t->dim[i] = size_at(session, n, v->type.dim[i]);
    char *data = tn_alloc_aligned(&session->arena, (size_t)count * 8 + 64, 64);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)(int64_t)(test_random(seed) % 4001) / 1000 - 2;
        if (!strcmp(v->name, "mask"))
            x = (how & DEAD) && i < t->dim[3] ? -INFINITY : test_random(seed) % 3 ? 0 : -INFINITY;
        if (!strcmp(v->name, "slope"))
            x = -0.25 * (double)(i + 1);
        if (!strcmp(v->name, "q") && (how & SPECIAL) && test_random(seed) % 40 == 0)
            x = test_random(seed) % 2 ? NAN : INFINITY;
        tn_number_store(t->dtype, data, i, tn_number_from_double(t->dtype, x));
    }
    t->data = data;
    return t;
}

static tn_tensor *converted(tn_session *session, const tn_tensor *t, tn_dtype dtype)
{
    tn_tensor *out = tn_memdup(&session->arena, t, sizeof *t);
    int64_t n;
    assert_true(tn_tensor_count(t, &n));
    char *data = tn_alloc_aligned(&session->arena, (size_t)n * 8 + 64, 64);
    for (int64_t i = 0; i < n; i++)
        tn_number_store(dtype, data, i, tn_number_convert(tn_tensor_at(t, i), t->dtype, dtype));
    out->dtype = dtype;
    out->data = data;
    out->splat = false;
    return out;
}

/* wide: the same graph in f32, where this one is of narrow floats: in it each step rounds, and an attention does not. */
static values make_values(tn_session *session, const tn_graph *graph, const tn_graph *wide, const shape *n, unsigned how)
{
    values v = {.nin = graph->body->nargs};
    uint64_t seed = how * 77 + (uint64_t)n->t;
    const tn_tensor *in[8];
    for (int i = 0; i < v.nin; i++) {
        v.in[i] = random_tensor(session, n, graph->body->arg[i], how, &seed);
        in[i] = converted(session, v.in[i], wide->body->arg[i]->type.dtype);
    }
    assert_int_equal(tn_eval_graph(session, &session->arena, wide, in, &v.want, NULL), TN_OK);
    v.want = converted(session, v.want, graph->body->last->operand[0].value->type.dtype);
    return v;
}

static void compare_result(const tn_tensor *want, const void *got, const char *text)
{
    int64_t n;
    double mean = 0, bound = tn_dtype_bits(want->dtype) >= 32 ? 1e-4 : want->dtype == TN_F16 ? 8e-3 : 6e-2;
    assert_true(tn_tensor_count(want, &n));
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = tn_number_to_double(want->dtype, tn_tensor_at(want, i));
        mean += isfinite(x) ? fabs(x) : 0;
        finite += isfinite(x);
    }
    mean /= (double)tn_max(finite, 1);
    for (int64_t i = 0; i < n; i++) {
        double x = tn_number_to_double(want->dtype, tn_tensor_at(want, i)), y = tn_number_to_double(want->dtype, tn_number_load(want->dtype, got, i));
        if (isnan(x) ? !isnan(y) : isinf(x) ? x != y : !(fabs(x - y) <= bound * (fabs(x) + mean)))
            fail_msg("element %lld: %g, expected %g\n%s", (long long)i, y, x, text);
    }
}

static DLTensor to_dlpack(const tn_tensor *t, void *data)
{
    return (DLTensor){.data = data, .device = {1, 0}, .ndim = t->rank, .dtype = tn_dtype_to_dlpack(t->dtype), .shape = (int64_t *)t->dim};
}

static tn_graph *parse(tn_session *session, const char *text)
{
    tn_graph_module *module;
    if (tn_graph_parse(session, "test", text, strlen(text), &module) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    return module->graphs.at[0];
}

static size_t kernels_of(const tn_program *program)
{
    size_t n = 0;
    for (size_t i = 0; i < program->steps.list.len; i++)
        n += !program->steps.list.at[i]->init;
    return n;
}

static tn_program fused(tn_session *session, const char *text, const char *tiles, tn_numerics numerics)
{
    tn_graph *graph = parse(session, text);
    tn_opt_options opt = {.verify = true, .numerics = numerics};
    tn_program program = {0};
    tn_fuse_options fuse = {.target = tn_machine_tile_target(tn_machine_find(tiles), 2), .numerics = numerics};
    if (tn_opt_run(session, graph, NULL, &opt) != TN_OK || tn_fuse(session, graph, &fuse, &program) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    return program;
}

static void run(tn_session *session, tn_program *program, const char *machine, const values *v, const char *text)
{
    tn_exec_options options = {.machine = tn_machine_find(machine), .threads = 2, .level = 1, .verify = true};
    tn_exec *exec;
    tn_context *context;
    tn_pool *pool = tn_pool_new(2);
    DLTensor in[8], out;
    int64_t n;
    if (tn_exec_new(session, program, &options, &exec) != TN_OK || tn_exec_load(session, exec, pool) != TN_OK) {
        tn_print_diags(session, stderr);
        fail_msg("%s", text);
    }
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);
    for (int i = 0; i < v->nin; i++)
        in[i] = to_dlpack(v->in[i], (void *)(uintptr_t)v->in[i]->data);
    assert_true(tn_tensor_count(v->want, &n));
    void *got = calloc((size_t)n + 1, 8);
    out = to_dlpack(v->want, got);
    if (tn_run(context, in, (size_t)v->nin, &out, 1) != TN_OK)
        fail_msg("%s\n%s", tn_context_error(context), text);
    compare_result(v->want, got, text);
    free(got);
    tn_context_free(context);
    tn_exec_free(exec);
    tn_pool_free(pool);
}

static const char *text_of(tn_session *session, const shape *n, unsigned how, const char *type)
{
    spelling w = {.session = session, .text = {.arena = &session->arena}, .n = n, .how = how, .type = type, .score = type};
    spell(&w);
    return w.text.at;
}

/* One kernel, that gives what the graph does. tiles: for whom kernels are made; machine: where they run. */
static void check(const shape *n, unsigned how, const char *type, const char *tiles, const char *machine, size_t kernels)
{
    tn_session *session = new_test_session();
    const char *text = text_of(session, n, how, type);
    tn_graph *graph = parse(session, text);
    bool narrow = tn_dtype_bits(graph->body->arg[0]->type.dtype) < 32;
    values v = make_values(session, graph, narrow ? parse(session, text_of(session, n, how, "f32")) : graph, n, how);
    tn_program program = fused(session, text, tiles, TN_NUMERICS_PARITY);
    if (kernels_of(&program) != kernels)
        fail_msg("%zu kernels, not %zu, how %u:\n%s", kernels_of(&program), kernels, how, text);
    run(session, &program, machine, &v, text);
    free_test_session(session);
}

/* ---- tests --------------------------------------------------------------------------------------------------------------- */

static const shape plain = {1, 2, 2, 5, 7, 3, 6}, grouped = {2, 6, 2, 9, 9, 8, 8}, long_one = {1, 1, 1, 150, 300, 24, 17}, one_query = {2, 4, 4, 1, 40, 16, 16};
static const unsigned forms[] = {
    0,
    SCALED,
    DIVIDED | MASK,
    MASK | CAPPED,
    BIAS | SCALED,
    ALIBI,
    CAUSAL,
    CAUSAL | WINDOW | DIVIDED,
    CAUSAL | LOWEST,
    TRIANGLE,
    TRIANGLE | LOWEST | MASK,
    TURNED,
    TURNED | MASK | SCALED,
    TURNED | CAUSAL | ALIBI | BIAS,
    WIDE,
    WIDE | MASK | TURNED,
    FLIPPED,
    FLIPPED | MASK | CAUSAL,
    SYMBOLS,
    SYMBOLS | CAUSAL | MASK,
    SYMBOLS | TURNED | SCALED | DIVIDED,
    SPECIAL,
    SPECIAL | CAUSAL | SCALED,
    DEAD | MASK,
    DEAD | MASK | CAUSAL | WINDOW | SYMBOLS,
    CAUSAL | ADDED,
    CAUSAL | ADDED | LOWEST | COUNTED,
    CAUSAL | ADDED | LOWEST | MASK,
    TURNED | TRIANGLE | ADDED | LOWEST | SCALED,
};

static void forms_are_one_kernel(void **state)
{
    static const shape *const shapes[] = {&plain, &grouped, &long_one, &one_query};
    (void)state;
    for (size_t f = 0; f < TN_COUNT(forms); f++)
        for (size_t s = 0; s < TN_COUNT(shapes); s++) {
            if ((forms[f] & FLIPPED) && shapes[s]->g != shapes[s]->h)
                continue;
            check(shapes[s], forms[f], "f32", "avx512", (f + s) % 2 ? "baseline" : "avx2", 1);
            if (shapes[s]->g != shapes[s]->h)
                check(shapes[s], forms[f] | REPEATED, "f32", "avx2", "baseline", 1);
        }
}

static void narrow_types(void **state)
{
    (void)state;
    for (size_t f = 0; f < TN_COUNT(forms); f++) {
        check(f % 2 ? &plain : &grouped, forms[f] & (unsigned)~FLIPPED, f % 3 ? "bf16" : "f16", "avx2", "avx2", 1);
        check(&long_one, forms[f], f % 3 ? "f16" : "bf16", "avx2", "avx2", 1);
    }
    check(&grouped, MASK | CAUSAL, "f64", "avx2", "baseline", 1);
}

/* A GPU's tiles, on a CPU. */
static void large_tiles(void **state)
{
    (void)state;
    for (size_t f = 0; f < TN_COUNT(forms); f++)
        check(f % 3 ? &long_one : &plain, forms[f], f % 2 ? "bf16" : "f32", f % 4 ? "sm_90a" : "sm_80", "avx2", 1);
}

/* The kernels themselves, by a GPU's threads in lockstep. */
static void threads_in_lockstep(void **state)
{
    static const struct {
        shape n;
        unsigned how;
        const char *type, *gpu;
    } cases[] = {
        {{1, 1, 1, 40, 72, 64, 64}, 0, "bf16", "sm_80"},
        {{1, 2, 1, 30, 50, 32, 32}, MASK | CAUSAL | SCALED, "f16", "sm_80"},
        {{1, 1, 1, 80, 150, 64, 64}, CAUSAL | DIVIDED, "bf16", "sm_90a"},
        {{1, 2, 2, 20, 36, 24, 16}, CAUSAL | WINDOW, "f32", "sm_90a"},
        {{1, 2, 1, 1, 70, 16, 16}, MASK, "bf16", "sm_90a"},
        {{1, 2, 1, 70, 200, 64, 64}, CAUSAL | ADDED | LOWEST | COUNTED, "bf16", "sm_90a"},
        {{1, 1, 1, 70, 128, 64, 64}, MASK | DIVIDED, "bf16", "sm_90a"},
    };
    (void)state;
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        tn_session *session = new_test_session();
        tn_program program = fused(session, text_of(session, &cases[i].n, cases[i].how, cases[i].type), cases[i].gpu, TN_NUMERICS_PARITY);
        assert_int_equal(kernels_of(&program), 1);
        tn_kernel *kernel = program.steps.list.at[program.steps.list.len - 1]->kernel;
        variant v = {.gpu = cases[i].gpu};
        int warps = (int)tn_schedule_get(&kernel->schedule, "", "warps", 4);
        assert_int_equal(check_gpu_kernel(tile_text(kernel), &v, warps, i), TN_OK);
        free_test_session(session);
    }
}

static const char *reason(const tn_program *program, const char *wanted)
{
    for (size_t i = 0; i < program->refusals.len; i++)
        if (strstr(program->refusals.at[i].reason, wanted))
            return program->refusals.at[i].reason;
    return NULL;
}

static void what_is_declined_says_why(void **state)
{
    tn_session *session = new_test_session();
    (void)state;
    const char *text = text_of(session, &plain, MASK, "f32");
    tn_program program = fused(session, text, "avx2", TN_NUMERICS_STRICT);
    assert_true(kernels_of(&program) > 1);
    assert_non_null(reason(&program, "numerics=strict keeps"));

    const char *end = strstr(text, "\n  return ") + 1, *dot = strstr(text, " = dot_general"), *name = dot;
    while (name[-1] != ' ')
        name--;
    const char *used = tn_format(&session->arena, "%.*s  return %.*s, %s", (int)(end - text), text, (int)(dot - name), name, end + strlen("  return "));
    program = fused(session, used, "avx2", TN_NUMERICS_PARITY);
    assert_true(kernels_of(&program) > 1);
    assert_non_null(reason(&program, "used outside"));
    free_test_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms_are_one_kernel), cmocka_unit_test(narrow_types), cmocka_unit_test(large_tiles), cmocka_unit_test(threads_in_lockstep),
                                       cmocka_unit_test(what_is_declined_says_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
