/* Lists of passes, options, and what text can't show: numerics modes, recorded reasons, budgets, facts. */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "opt/opt.h"

static tn_graph *parse(tn_session *session, const char *text)
{
    tn_graph_module *module = NULL;
    tn_status status = tn_graph_parse(session, "test", text, strlen(text), &module);
    if (status != TN_OK)
        tn_print_diags(session, stdout);
    assert_int_equal(status, TN_OK);
    return module->graphs.at[0];
}

static size_t count(const tn_block *block, tn_opcode code)
{
    size_t n = 0;
    for (const tn_op *op = block->first; op; op = op->next) {
        n += op->code == code;
        for (int i = 0; i < op->nregions; i++)
            n += count(op->region[i], code);
    }
    return n;
}

static void run(tn_session *session, tn_graph *graph, const char *passes, tn_opt_options options)
{
    options.verify = true;
    tn_status status = tn_opt_run(session, graph, passes, &options);
    if (status != TN_OK)
        tn_print_diags(session, stdout);
    assert_int_equal(status, TN_OK);
    assert_int_equal(session->diags.len, 0);
}

/* ---- lists ----------------------------------------------------------------------------------------------------- */

typedef struct log_entry {
    char text[400];
} log_entry;

static void note_pass(void *context, const char *pass, double seconds, bool changed)
{
    log_entry *log = context;
    assert_true(seconds >= 0);
    (void)changed;
    strcat(strcat(log->text, pass), " ");
}

static const char *ran(const char *list, log_entry *log)
{
    tn_session session = {0};
    tn_graph *graph = parse(&session, "graph @f(%x: f32[4]) {\n  return %x\n}\n");
    *log = (log_entry){{0}};
    run(&session, graph, list, (tn_opt_options){.timing = note_pass, .context = log});
    tn_arena_free(&session.arena);
    return log->text;
}

static void test_lists(void **state)
{
    (void)state;
    log_entry log;
    assert_string_equal(ran(NULL, &log),
                        "shapes canonicalize fold simplify cse dce shapes layout fold simplify cse dce ");
    assert_string_equal(ran("-layout,-cse", &log), "shapes canonicalize fold simplify dce shapes fold simplify dce ");
    assert_string_equal(ran("-fuse", &log),
                        "shapes canonicalize fold simplify cse dce shapes layout fold simplify cse dce ");
    assert_string_equal(ran("-cleanup", &log), "shapes canonicalize shapes layout ");
    assert_string_equal(ran(" dce , cse,dce", &log), "dce cse dce ");
    assert_string_equal(ran("canonicalize,default,-shapes,-simplify", &log),
                        "canonicalize canonicalize fold cse dce layout fold cse dce ");
    assert_string_equal(ran("", &log), "");
    assert_string_equal(ran("none", &log), "");
    assert_true(tn_opt_list_has("cse, -fuse", "-fuse"));
    assert_false(tn_opt_list_has("cse,-fused", "-fuse"));
    assert_false(tn_opt_list_has(NULL, "-fuse"));
}

static void test_unknown_pass(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_graph *graph = parse(&session, "graph @f(%x: f32[4]) {\n  return %x\n}\n");
    assert_int_equal(tn_opt_run(&session, graph, "cse,simplfy", NULL), TN_USAGE);
    assert_string_equal(
        session.diags.at[0].message,
        "there is no pass 'simplfy' on graphs; there are: shapes, canonicalize, fold, simplify, layout, cse, dce");
    assert_int_equal(tn_opt_run(&session, graph, "-nothing", NULL), TN_USAGE);
    tn_arena_free(&session.arena);
}

static void print_nothing(void *context, const char *pass, const tn_graph *graph)
{
    (void)graph;
    strcat(strcat(((log_entry *)context)->text, pass), " ");
}

/* Printed only where something changed. */
static void test_print_after(void **state)
{
    (void)state;
    static const char text[] =
        "graph @f(%x: f32[4]) {\n  %0 = negate %x : f32[4]\n  %1 = negate %0 : f32[4]\n  return %1\n}\n";
    tn_session session = {0};
    log_entry log = {{0}};
    run(&session, parse(&session, text), NULL,
        (tn_opt_options){.print_after = "all", .print = print_nothing, .context = &log});
    assert_string_equal(log.text, "simplify ");
    log = (log_entry){{0}};
    run(&session, parse(&session, text), NULL,
        (tn_opt_options){.print_after = "cse", .print = print_nothing, .context = &log});
    assert_string_equal(log.text, "");
    tn_arena_free(&session.arena);
}

/* ---- numerics -------------------------------------------------------------------------------------------------- */

static const char batch_norm[] =
    "graph @f(%x: f32[8, 2], %s: f32[2], %o: f32[2], %m: f32[2], %v: f32[2]) {\n"
    "  %0 = batch_norm_inference %x, %s, %o, %m, %v, epsilon = 0.001, feature_index = 1 : f32[8, 2]\n"
    "  return %0\n}\n";

static void test_batch_norm_modes(void **state)
{
    (void)state;
    static const float x[16] = {1, -2, 3.5f, 0, 1e3f, -7, 0.1f, 2, 5, 6, -1, 1e-3f, 8, 9, 10, 11},
                       s[2] = {1.5f, -0.25f}, o[2] = {0.1f, 3}, m[2] = {0.7f, -3}, v[2] = {2, 0.01f};
    const tn_tensor in[] = {{TN_F32, 2, {8, 2}, x, false, NULL},
                            {TN_F32, 1, {2}, s, false, NULL},
                            {TN_F32, 1, {2}, o, false, NULL},
                            {TN_F32, 1, {2}, m, false, NULL},
                            {TN_F32, 1, {2}, v, false, NULL}};
    const tn_tensor *inputs[] = {&in[0], &in[1], &in[2], &in[3], &in[4]};
    tn_session session = {0};
    tn_tensor *wanted, *found;
    assert_int_equal(tn_eval_graph(&session, &session.arena, parse(&session, batch_norm), inputs, &wanted, NULL),
                     TN_OK);
    for (int mode = TN_NUMERICS_PARITY; mode <= TN_NUMERICS_FAST; mode++) {
        tn_graph *graph = parse(&session, batch_norm);
        run(&session, graph, "canonicalize", (tn_opt_options){.numerics = (tn_numerics)mode});
        assert_int_equal(count(graph->body, TN_OP_batch_norm_inference), 0);
        assert_int_equal(count(graph->body, TN_OP_subtract), 1);
        assert_int_equal(count(graph->body, TN_OP_multiply), mode == TN_NUMERICS_STRICT ? 1 : 2);
        assert_int_equal(tn_eval_graph(&session, &session.arena, graph, inputs, &found, NULL), TN_OK);
        for (int64_t i = 0; i < 16; i++) {
            double a = tn_tensor_at(wanted, i).f, b = tn_tensor_at(found, i).f;
            assert_true(fabs(a - b) <= 4e-6 * (fabs(a) + 1));
        }
    }
    tn_arena_free(&session.arena);
}

/* Rules that reassociate are only for TN_NUMERICS_FAST. */
static void test_fast_only(void **state)
{
    (void)state;
    static const char text[] =
        "graph @f(%x: f32[1, 4, 4, 3]) {\n"
        "  %w = constant dense<0.5> : f32[2, 3, 1, 1]\n"
        "  %0 = convolution %x, %w, lhs_layout = b01f, rhs_layout = oi01, out_layout = b01f, window_strides = [1, 1], "
        "padding_low = [0, 0], padding_high = [0, 0], "
        "base_dilation = [1, 1], window_dilation = [1, 1], window_reversal = [0, 0], feature_group_count = 1, "
        "batch_group_count = 1 : f32[1, 4, 4, 2]\n"
        "  %s = constant dense<[3, 5]> : f32[2]\n"
        "  %1 = broadcast_in_dim %s, shape = [1, 4, 4, 2], broadcast_dimensions = [3] : f32[1, 4, 4, 2]\n"
        "  %2 = multiply %0, %1 : f32[1, 4, 4, 2]\n"
        "  %3 = constant dense<0> : f32[1, 4, 4, 2]\n"
        "  %4 = add %2, %3 : f32[1, 4, 4, 2]\n"
        "  return %4\n}\n";
    tn_session session = {0};
    tn_graph *graph = parse(&session, text);
    run(&session, graph, NULL, (tn_opt_options){0});
    assert_int_equal(count(graph->body, TN_OP_multiply), 1);
    assert_int_equal(count(graph->body, TN_OP_add), 1);
    graph = parse(&session, text);
    run(&session, graph, NULL, (tn_opt_options){.numerics = TN_NUMERICS_FAST});
    assert_int_equal(count(graph->body, TN_OP_add), 0);
    assert_int_equal(count(graph->body, TN_OP_multiply),
                     0); /* the weights are a splat: what the scales make of it is folded */
    const tn_value *w = tn_operand(tn_operand(graph->body->last, 0)->def, 1);
    assert_true(tn_is_op(w, TN_OP_broadcast_in_dim));
    const tn_tensor *scaled = tn_constant_of(tn_operand(w->def, 0));
    assert_true(scaled && tn_tensor_at(scaled, 0).f == 1.5 && tn_tensor_at(scaled, 1).f == 2.5);
    tn_arena_free(&session.arena);
}

/* ---- reasons, locations, budgets ------------------------------------------------------------------------------- */

static void test_declined(void **state)
{
    (void)state;
    static const char text[] =
        "graph @f(%x: f32[4]) {\n  %0 = compare %x, %x, direction = EQ : bool[4]\n  return %0\n}\n";
    tn_session session = {0};
    tn_declined_list declined = {0};
    run(&session, parse(&session, text), "simplify", (tn_opt_options){.declined = &declined});
    assert_int_equal(declined.list.len, 1);
    assert_string_equal(declined.list.at[0].pass, "simplify");
    assert_string_equal(declined.list.at[0].rule, "compare_same");
    assert_string_equal(declined.list.at[0].reason, "NaN is not equal to itself");
    assert_int_equal(declined.list.at[0].loc.line, 2);
    tn_arena_free(&session.arena);
}

/* A new operation has the location of the one it stands for. */
static void test_locations(void **state)
{
    (void)state;
    static const char text[] =
        "graph @f(%x: f32[4]) {\n\n  %0 = constant dense<8> : f32[4]\n  %1 = divide %x, %0 : f32[4]\n  return %1\n}\n";
    tn_session session = {0};
    tn_graph *graph = parse(&session, text);
    run(&session, graph, NULL, (tn_opt_options){0});
    const tn_op *op = tn_operand(graph->body->last, 0)->def;
    assert_int_equal(op->code, TN_OP_multiply);
    assert_int_equal(op->loc.line, 4);
    tn_arena_free(&session.arena);
}

/* Splats of any size cost nothing; a budget of a few bytes stops the rest. */
static void test_budget(void **state)
{
    (void)state;
    static const char text[] = "graph @f() {\n"
                               "  %0 = constant dense<2> : f32[1000, 1000, 1000]\n"
                               "  %1 = transpose %0, permutation = [2, 0, 1] : f32[1000, 1000, 1000]\n"
                               "  %2 = multiply %1, %0 : f32[1000, 1000, 1000]\n"
                               "  %3 = constant dense<[1, 2, 3]> : f32[3]\n"
                               "  %4 = sqrt %3 : f32[3]\n"
                               "  return %2, %4\n}\n";
    tn_session session = {0};
    tn_graph *graph = parse(&session, text);
    run(&session, graph, "fold", (tn_opt_options){.fold_bytes = 8});
    const tn_tensor *splat = tn_constant_of(tn_operand(graph->body->last, 0));
    assert_true(splat && splat->splat && tn_tensor_at(splat, 0).f == 4);
    assert_int_equal(count(graph->body, TN_OP_sqrt), 1);
    assert_true(session.arena.bytes < 4 << 20);
    graph = parse(&session, text);
    run(&session, graph, "fold", (tn_opt_options){.fold_work = 1});
    assert_int_equal(count(graph->body, TN_OP_sqrt), 1);
    graph = parse(&session, text);
    run(&session, graph, "fold", (tn_opt_options){0});
    assert_int_equal(count(graph->body, TN_OP_sqrt), 0);
    tn_arena_free(&session.arena);
}

/* A reshape of a constant shares its data. */
static void test_reshape_shares(void **state)
{
    (void)state;
    static const char text[] = "graph @f() {\n  %0 = constant dense<[1, 2, 3, 4]> : f32[4]\n  %1 = reshape %0, shape = "
                               "[2, 2] : f32[2, 2]\n  return %0, %1\n}\n";
    tn_session session = {0};
    tn_graph *graph = parse(&session, text);
    run(&session, graph, "fold", (tn_opt_options){0});
    const tn_tensor *a = tn_constant_of(tn_operand(graph->body->last, 0)),
                    *b = tn_constant_of(tn_operand(graph->body->last, 1));
    assert_true(a && b && a->data == b->data);
    tn_arena_free(&session.arena);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

/* A symbol with a declared range that the other lacks stays, so that the range is still checked. */
static void test_declared_range(void **state)
{
    (void)state;
    static const char text[] =
        "symbols a in [1, 64]\ngraph @f(%x: f32[a], %y: f32[c]) {\n  %0 = add %x, %y : f32[a]\n  return %0\n}\n";
    tn_session session = {0};
    tn_graph *graph = parse(&session, text);
    run(&session, graph, "shapes", (tn_opt_options){0});
    assert_string_equal(graph->body->arg[0]->type.dim[0]->name, "a");
    assert_string_equal(graph->body->arg[1]->type.dim[0]->name, "a");
    assert_int_equal(graph->equal.len, 0);
    tn_arena_free(&session.arena);
    session = (tn_session){0};
    graph = parse(&session, "symbols a in [1, 64]\nsymbols c in [8, 100]\ngraph @f(%x: f32[a], %y: f32[c]) {\n  %0 = "
                            "add %x, %y : f32[a]\n  return %0\n}\n");
    run(&session, graph, "shapes", (tn_opt_options){0});
    assert_string_equal(graph->body->arg[1]->type.dim[0]->name, "c");
    assert_int_equal(graph->equal.len, 1);
    tn_arena_free(&session.arena);
}

/* A symbol born of a value that only a run can tell stays; so does one that may leave its range. */
static void test_births(void **state)
{
    (void)state;
    tn_session session = {0};
    tn_graph *graph = parse(
        &session,
        "graph @f(%n: i64[]) {\n  define_dimension %n, dim = k\n  %0 = dimension dim = 2*k : i64[]\n  return %0\n}\n");
    run(&session, graph, NULL, (tn_opt_options){0});
    assert_int_equal(count(graph->body, TN_OP_define_dimension), 1);
    graph = parse(&session, "graph @g(%x: f32[s]) {\n  %0 = dimension dim = s - 3 : i64[]\n  define_dimension %0, dim "
                            "= m\n  %1 = dimension dim = m : i64[]\n  return %1\n}\n");
    run(&session, graph, NULL, (tn_opt_options){0});
    assert_int_equal(count(graph->body, TN_OP_define_dimension), 1);
    tn_arena_free(&session.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),          cmocka_unit_test(test_unknown_pass),
        cmocka_unit_test(test_print_after),    cmocka_unit_test(test_batch_norm_modes),
        cmocka_unit_test(test_fast_only),      cmocka_unit_test(test_declined),
        cmocka_unit_test(test_locations),      cmocka_unit_test(test_budget),
        cmocka_unit_test(test_births),         cmocka_unit_test(test_reshape_shares),
        cmocka_unit_test(test_declared_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
