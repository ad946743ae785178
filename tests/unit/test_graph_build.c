/* The builder against what callers get wrong, recorded facts, changes of a graph, and graphs that do not verify. */
#include "graph/graph.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

struct fixture {
    tn_session *session;
    tn_graph *graph;
    tn_builder b;
};

static struct fixture setup(void)
{
    struct fixture f = {.session = calloc(1, sizeof *f.session)};
    assert_non_null(f.session);
    f.session->strings.arena = f.session->options.arena = &f.session->arena;
    f.graph = tn_graph_new(f.session, "g");
    f.b = tn_builder_at_end(f.graph->body, (tn_loc){.node = "node"});
    return f;
}

static void finish(struct fixture *f)
{
    tn_arena_free(&f->session->arena);
    free(f->session);
}

static tn_dim dim(struct fixture *f, const char *text)
{
    tn_dim d;
    assert_true(tn_dim_parse(f->session, text, &d) > 0);
    return d;
}

static tn_value *input(struct fixture *f, const char *name, tn_dtype dtype, int rank, const char *const *sizes)
{
    tn_dim dims[TN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = dim(f, sizes[i]);
    tn_type type = tn_type_make(dtype, rank, dims);
    return tn_graph_input(f->graph, name, &type);
}
#define INPUT(f, name, dtype, ...)                                                                                     \
    input(f, name, dtype, (int)TN_COUNT(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

static const char *type_text(struct fixture *f, const tn_value *value)
{
    tn_text text = {.arena = &f->session->arena};
    assert_non_null(value);
    tn_text_type(&text, &value->type);
    return text.at;
}

static const char *graph_text(struct fixture *f)
{
    tn_text text = {.arena = &f->session->arena};
    tn_text_graph(&text, f->graph);
    return text.at;
}

static void verifies(struct fixture *f)
{
    if (tn_graph_verify(f->graph) != TN_OK) {
        tn_print_diags(f->session, stderr);
        fail_msg("%s", graph_text(f));
    }
}

/* One test at the end of a chain: NULL goes through without a second report. */
static void test_null_goes_through(void **state)
{
    (void)state;
    struct fixture f = setup();
    tn_value *x = INPUT(&f, "x", TN_F32, "4"), *y = INPUT(&f, "y", TN_F32, "5");
    tn_value *bad = tn_binary(&f.b, TN_OP_add, x, y);
    assert_null(bad);
    assert_true(f.b.failed);
    assert_int_equal(f.session->errors, 1);
    assert_string_equal(f.session->diags.at[0].loc.node, "node");
    int64_t zero = 0;
    tn_dim d = tn_dim_const(f.session, 1);
    assert_null(tn_unary(&f.b, TN_OP_negate, bad));
    assert_null(tn_binary_b(&f.b, TN_OP_add, x, bad));
    assert_null(tn_broadcast_to(&f.b, bad, &d, 1));
    assert_null(tn_compare(&f.b, "LT", bad, x));
    assert_null(tn_select(&f.b, bad, x, x));
    assert_null(tn_convert(&f.b, bad, TN_F64));
    assert_null(tn_constant(&f.b, NULL));
    assert_null(tn_full_like(&f.b, bad, 1));
    assert_null(tn_reshape(&f.b, bad, &d, 1));
    assert_null(tn_transpose(&f.b, bad, &zero));
    assert_null(tn_slice(&f.b, bad, &d, &d, &zero));
    assert_null(tn_pad(&f.b, bad, x, &d, &d, &zero));
    assert_null(tn_concatenate(&f.b, (tn_value *[]){x, bad}, 2, 0));
    assert_null(tn_reverse(&f.b, bad, &zero, 1));
    assert_null(tn_reduce(&f.b, TN_OP_add, bad, &zero, 1));
    assert_null(tn_dot_general(&f.b, x, bad, NULL, NULL, 0, &zero, &zero, 1));
    tn_return(&f.b, &bad, 1);
    assert_int_equal(f.session->errors, 1);
    finish(&f);
}

static void test_broadcast(void **state)
{
    (void)state;
    struct fixture f = setup();
    tn_value *x = INPUT(&f, "x", TN_F32, "b", "1", "s"), *y = INPUT(&f, "y", TN_F32, "7", "s"), *z = INPUT(&f, "z", TN_F32, "t", "1");
    assert_string_equal(type_text(&f, tn_binary_b(&f.b, TN_OP_add, x, y)), "f32[b, 7, s]");
    assert_int_equal(f.graph->equal.len, 0);
    assert_string_equal(type_text(&f, tn_binary_b(&f.b, TN_OP_add, y, z)), "f32[7, s]");
    assert_int_equal(f.graph->equal.len, 1); /* t = 7, found out at run time */
    assert_ptr_equal(f.graph->equal.at[0].a, dim(&f, "7"));
    assert_ptr_equal(f.graph->equal.at[0].b, dim(&f, "t"));
    tn_binary_b(&f.b, TN_OP_multiply, y, z);
    assert_int_equal(f.graph->equal.len, 1); /* once is enough */
    tn_value *w = INPUT(&f, "w", TN_F32, "8", "s");
    assert_null(tn_binary_b(&f.b, TN_OP_add, y, w));
    assert_string_equal(last_message(f.session), "shapes [7, s] and [8, s] do not broadcast: sizes, aligned at the end, must be equal or 1");
    finish(&f);
}

/* Sizes of windows, of which a kernel may find none. */
static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        int64_t low, high, window, stride, base, dilation;
        const char *count;
    } row[] = {
        {"7", 0, 0, 3, 2, 1, 1, "3"},
        {"2", 0, 0, 3, 1, 1, 1, "0"},
        {"0", 0, 0, 1, 1, 1, 1, "0"},
        {"0", 1, 1, 2, 1, 3, 1, "1"},
        {"h", 1, 1, 3, 1, 1, 1, "h"},
        {"h", 1, 1, 3, 2, 1, 1, "ceildiv(h, 2)"},
        {"h", 0, 1, 2, 2, 1, 1, "ceildiv(h, 2)"},
        {"h", 0, 0, 3, 1, 1, 1, "max(h - 2, 0)"},
        {"h + 1", 0, 0, 1, 1, 3, 1, "3*h + 1"},
        {"h", 0, 0, 3, 1, 1, 2, "max(h - 4, 0)"},
    };
    for (size_t i = 0; i < TN_COUNT(row); i++) {
        struct fixture f = setup();
        tn_value *x = input(&f, "x", TN_F32, 1, &row[i].size), *init = tn_scalar_constant(&f.b, TN_F32, 0);
        tn_dim window = tn_dim_const(f.session, row[i].window), low = tn_dim_const(f.session, row[i].low),
               high = tn_dim_const(f.session, row[i].high);
        tn_attr attr[] = {{.name = TN_A_window, .n = 1, .dims = &window},         {.name = TN_A_window_strides, .n = 1, .ints = &row[i].stride},
                          {.name = TN_A_base_dilation, .n = 1, .ints = &row[i].base}, {.name = TN_A_window_dilation, .n = 1, .ints = &row[i].dilation},
                          {.name = TN_A_padding_low, .n = 1, .dims = &low},       {.name = TN_A_padding_high, .n = 1, .dims = &high}};
        tn_block *block = tn_combine_block(f.graph, TN_OP_add, TN_F32);
        tn_op *op = tn_build(&f.b, TN_OP_reduce_window, (tn_value *[]){x, init}, 2, attr, 6, &block, 1);
        assert_non_null(op);
        assert_ptr_equal(op->result[0].type.dim[0], dim(&f, row[i].count));
        finish(&f);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct fixture f = setup();
    assert_null(INPUT(&f, "x", TN_F32, "4294967296", "65536"));
    assert_string_equal(last_message(f.session), "input 'x': f32[4294967296, 65536] needs more than 2^47 bytes");
    assert_null(INPUT(&f, "x", TN_F32, "9223372036854775807", "9223372036854775807", "0"));
    assert_null(INPUT(&f, "x", TN_F32, "-1"));
    assert_string_equal(last_message(f.session), "input 'x': size 0 of f32[-1] is negative");
    tn_value *x = INPUT(&f, "x", TN_F32, "9");
    int64_t far[] = {INT64_MAX};
    assert_null(tn_reverse(&f.b, x, far, 1));
    far[0] = INT64_MIN;
    assert_null(tn_transpose(&f.b, x, far));
    tn_dim big = tn_dim_const(f.session, INT64_MAX), small = tn_dim_const(f.session, 0);
    int64_t one = 1;
    assert_null(tn_slice(&f.b, x, &small, &big, &one));
    assert_null(tn_pad(&f.b, x, tn_scalar_constant(&f.b, TN_F32, 0), &big, &big, &one));
    assert_int_equal(f.graph->body->last->code, TN_OP_constant);
    finish(&f);
}

/* A slice whose end is known at run time only: what must hold is recorded. */
static void test_recorded(void **state)
{
    (void)state;
    struct fixture f = setup();
    tn_value *x = INPUT(&f, "x", TN_F32, "b", "64");
    tn_dim start[] = {dim(&f, "0"), dim(&f, "0")}, limit[] = {dim(&f, "n"), dim(&f, "64")};
    int64_t strides[] = {1, 1};
    assert_string_equal(type_text(&f, tn_slice(&f.b, x, start, limit, strides)), "f32[n, 64]");
    assert_int_equal(f.graph->equal.len, 1);
    assert_ptr_equal(f.graph->equal.at[0].a, dim(&f, "min(n, b)"));
    assert_ptr_equal(f.graph->equal.at[0].b, dim(&f, "n"));
    tn_dim shape[] = {dim(&f, "b"), dim(&f, "8"), dim(&f, "k")};
    assert_string_equal(type_text(&f, tn_reshape(&f.b, x, shape, 3)), "f32[b, 8, k]");
    assert_ptr_equal(f.graph->equal.at[1].a, dim(&f, "64*b"));
    assert_ptr_equal(f.graph->equal.at[1].b, dim(&f, "8*b*k"));
    finish(&f);
}

static void test_identities(void **state)
{
    (void)state;
    struct fixture f = setup();
    tn_value *x = INPUT(&f, "x", TN_F32, "b", "4"), *p = INPUT(&f, "p", TN_BOOL, "b", "4"), *c = INPUT(&f, "c", TN_C64, "b", "4");
    tn_dim same[] = {dim(&f, "b"), dim(&f, "4")};
    int64_t axis = 1;
    assert_ptr_equal(tn_convert(&f.b, x, TN_F32), x);
    assert_ptr_equal(tn_reshape(&f.b, x, same, 2), x);
    assert_ptr_equal(tn_broadcast_to(&f.b, x, same, 2), x);
    assert_non_null(tn_constant_of(tn_dimension(&f.b, dim(&f, "7"))));
    assert_true(tn_is_op(tn_dimension(&f.b, dim(&f, "b")), TN_OP_dimension));
    assert_string_equal(type_text(&f, tn_reduce(&f.b, TN_OP_maximum, x, &axis, 1)), "f32[b]");
    tn_value *all = tn_reduce(&f.b, TN_OP_and, p, &axis, 1);
    assert_int_equal(tn_tensor_at(tn_constant_of(tn_operand(all->def, 1)), 0).u, 1);
    assert_null(tn_reduce(&f.b, TN_OP_maximum, c, &axis, 1));
    assert_null(tn_reduce(&f.b, TN_OP_add, p, (int64_t[]){2}, 1));
    finish(&f);
}

static void test_changes(void **state)
{
    (void)state;
    struct fixture f = setup();
    tn_value *x = INPUT(&f, "x", TN_F32, "b", "4");
    int64_t axis = 0;
    tn_value *twice = tn_binary(&f.b, TN_OP_add, x, x), *sum = tn_reduce(&f.b, TN_OP_add, twice, &axis, 1);
    tn_value *root = tn_unary(&f.b, TN_OP_sqrt, sum);
    tn_return(&f.b, (tn_value *[]){root, sum}, 2);
    verifies(&f);
    tn_builder before = tn_builder_before(f.graph->body->last);
    tn_value *negative = tn_unary(&before, TN_OP_negate, sum);
    tn_replace_uses(root, negative);
    assert_null(root->uses);
    tn_erase(root->def);
    verifies(&f);
    tn_map values = {.arena = &f.session->arena};
    tn_op *copy = tn_clone(&before, sum->def, &values);
    assert_ptr_equal(copy->prev, negative->def);
    tn_set_operand(f.graph->body->last, 1, &copy->result[0]);
    verifies(&f);
    assert_true(tn_has_one_use(&copy->result[0]));
    tn_move_before(copy, negative->def);
    tn_set_operand(negative->def, 0, &copy->result[0]);
    tn_erase(sum->def);
    verifies(&f);
    assert_string_equal(graph_text(&f), "graph @g(%x: f32[b, 4]) {\n"
                                        "  %0 = add %x, %x : f32[b, 4]\n"
                                        "  %1 = constant dense<0> : f32[]\n"
                                        "  %2 = reduce %0, %1, dimensions = [0] : f32[4] {\n"
                                        "  ^(%3: f32[], %4: f32[]):\n"
                                        "    %5 = add %3, %4 : f32[]\n"
                                        "    return %5\n"
                                        "  }\n"
                                        "  %6 = negate %2 : f32[4]\n"
                                        "  return %6, %2\n"
                                        "}\n");
    finish(&f);
}

static void refused(struct fixture *f, const char *part)
{
    assert_int_equal(tn_graph_verify(f->graph), TN_INVALID);
    if (!strstr(last_message(f->session), part))
        fail_msg("expected '%s' in '%s'", part, last_message(f->session));
}

static void test_verifier(void **state)
{
    (void)state;
    struct fixture f = setup();
    refused(&f, "must end with `return`");
    tn_value *x = INPUT(&f, "x", TN_F32, "4");
    tn_value *a = tn_unary(&f.b, TN_OP_negate, x), *b = tn_unary(&f.b, TN_OP_abs, a);
    refused(&f, "must end with `return`");
    tn_return(&f.b, &b, 1);
    verifies(&f);
    tn_move_before(b->def, a->def);
    refused(&f, "operand 0 is not defined before it");
    tn_move_before(a->def, b->def);
    verifies(&f);
    b->type.dtype = TN_F64;
    refused(&f, "result 0 has type f64[4], expected f32[4]");
    b->type.dtype = TN_F32;
    tn_use *uses = a->uses;
    a->uses = NULL;
    refused(&f, "list of uses");
    a->uses = uses;
    tn_op *end = f.graph->body->last;
    tn_move_before(end, b->def);
    refused(&f, "it must be the last operation of its block");
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_goes_through), cmocka_unit_test(test_broadcast),  cmocka_unit_test(test_windows),
        cmocka_unit_test(test_limits),            cmocka_unit_test(test_recorded),   cmocka_unit_test(test_identities),
        cmocka_unit_test(test_changes),           cmocka_unit_test(test_verifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
