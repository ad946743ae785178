/* The ONNX importer's core: names, symbolic dimensions, functions, control flow, and what it says about faulty files.
 * Operators are tested with the ONNX backend suite. */
#include "onnx_build.h"

#include "eval/eval.h"

#include <sys/stat.h>
#include <unistd.h>

static void expect_type(const tn_value *v, const char *want)
{
    tn_arena arena = {0};
    tn_text text = {.arena = &arena};
    tn_text_type(&text, &v->type);
    assert_string_equal(text.at, want);
    tn_arena_free(&arena);
}

static const tn_value *output(const import_run *r, int i)
{
    return tn_operand(r->graph->body->last, i);
}

static int count_ops(const tn_graph *graph, tn_opcode code)
{
    int n = 0;
    for (const tn_op *op = graph->body->first; op; op = op->next)
        n += op->code == code;
    return n;
}

static void import_ok(import_run *r, const bytes *graph, const tn_import_options *options)
{
    bytes model = new_model(graph, 17);
    import_bytes(r, &model, options);
    if (r->status != TN_OK) {
        tn_print_diags(&r->session, stderr);
        fail_msg("not imported");
    }
}

static void import_fails(const bytes *graph, tn_status status, const char *said)
{
    import_run r;
    bytes model = new_model(graph, 17);
    import_bytes(&r, &model, NULL);
    if (r.status != status || !import_said(&r, said)) {
        tn_print_diags(&r.session, stderr);
        fail_msg("expected status %d and the words '%s', found status %d", status, said, r.status);
    }
    import_end(&r);
}

static void add_one_input(bytes *g)
{
    put_value(g, 11, "x", ONNX_FLOAT, "batch 4 8");
    put_value(g, 12, "y", ONNX_FLOAT, "batch 32");
}

/* x: [batch, 4, 8] reshaped to (Shape(x)[0], -1). */
static bytes flatten_graph(void)
{
    static const int64_t zero = 0, minus_one = -1;
    bytes g = {.len = 0}, concat = new_node("Concat", "b1 rest", "to");
    put_int_attr(&concat, "axis", 0);
    add_one_input(&g);
    put_list(&g, "zero", &zero, -1);
    put_list(&g, "rest", &minus_one, 1);
    put_list(&g, "axes", &zero, 1);
    put_node(&g, "Shape", "x", "shape");
    put_node(&g, "Gather", "shape zero", "b");
    put_node(&g, "Unsqueeze", "b axes", "b1");
    put_message(&g, 1, &concat);
    put_node(&g, "Reshape", "x to", "y");
    return g;
}

/* Shape arithmetic must leave one reshape and no run-time work. */
static void test_shape_arithmetic(void **state)
{
    (void)state;
    bytes g = flatten_graph();
    import_run r;
    import_ok(&r, &g, NULL);
    expect_type(output(&r, 0), "f32[batch, 32]");
    assert_int_equal(count_ops(r.graph, TN_OP_reshape), 1);
    assert_int_equal(count_ops(r.graph, TN_OP_concatenate), 0);
    assert_int_equal(count_ops(r.graph, TN_OP_dimension), 0);
    assert_string_equal(r.graph->output_names[0], "y");
    import_end(&r);
}

static void test_dim_options(void **state)
{
    (void)state;
    const char *name = "batch", *wrong = "bach";
    const int64_t size = 3;
    tn_import_options options = {.dim_name = &name, .dim_value = &size, .ndims = 1};
    bytes g = {.len = 0};
    add_one_input(&g);
    put_node(&g, "Flatten", "x", "y");
    import_run r;
    import_ok(&r, &g, &options);
    expect_type(output(&r, 0), "f32[3, 32]");
    import_end(&r);
    options.dim_name = &wrong;
    bytes model = new_model(&g, 17);
    import_bytes(&r, &model, &options);
    assert_int_equal(r.status, TN_USAGE);
    assert_true(import_said(&r, "named dimensions: batch"));
    import_end(&r);
}

static void test_run_time_shape(void **state)
{
    (void)state;
    bytes g = {.len = 0};
    put_value(&g, 11, "x", ONNX_FLOAT, "6");
    put_value(&g, 11, "to", ONNX_INT64, "2");
    put_value(&g, 12, "y", ONNX_FLOAT, "a b");
    put_node(&g, "Reshape", "x to", "y");
    import_run r;
    import_ok(&r, &g, NULL);
    assert_int_equal(count_ops(r.graph, TN_OP_define_dimension), 2);
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t to[2] = {3, -1};
    const tn_tensor x = {.dtype = TN_F32, .rank = 1, .dim = {6}, .data = data},
                    shape = {.dtype = TN_I64, .rank = 1, .dim = {2}, .data = to};
    const tn_tensor *inputs[2] = {&x, &shape};
    tn_tensor *y;
    assert_int_equal(tn_eval_graph(&r.session, &r.session.arena, r.graph, inputs, &y, NULL), TN_OK);
    assert_int_equal(y->dim[0], 3);
    assert_int_equal(y->dim[1], 2);
    import_end(&r);
}

static void test_order_and_names(void **state)
{
    (void)state;
    bytes g = {.len = 0};
    add_one_input(&g);
    put_node(&g, "Relu", "z", "y");
    put_node(&g, "Relu", "x", "z");
    import_fails(&g, TN_INVALID, "topological order");
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "Relu", "y", "y");
    import_fails(&g, TN_INVALID, "topological order");
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "Relu", "nowhere", "y");
    import_fails(&g, TN_INVALID, "defined nowhere");
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "Relu", "x", "y");
    put_node(&g, "Relu", "x", "y");
    import_fails(&g, TN_INVALID, "defined twice");
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "Relu", "x", "z");
    import_fails(&g, TN_INVALID, "computed nowhere");
}

static void test_unsupported_in_one_list(void **state)
{
    (void)state;
    bytes g = {.len = 0}, model;
    add_one_input(&g);
    put_node(&g, "Frobnicate", "x", "a");
    put_node(&g, "Frobnicate", "a", "b");
    put_node(&g, "Relu", "b", "c");
    put_node(&g, "Grind", "c", "y");
    import_run r;
    model = new_model(&g, 17);
    import_bytes(&r, &model, NULL);
    assert_int_equal(r.status, TN_UNSUPPORTED);
    assert_int_equal(r.session.errors, 1);
    assert_int_equal(r.model.unsupported.len, 2);
    assert_true(import_said(&r, "Frobnicate (ai.onnx, version 17): node 'a', node 'b'"));
    assert_true(import_said(&r, "Grind (ai.onnx, version 17): node 'y'"));
    assert_int_equal((int64_t)(intptr_t)tn_map_get_str(&r.model.operators, "Frobnicate"), 2);
    import_end(&r);
}

static void test_attribute_types(void **state)
{
    (void)state;
    static const int64_t one = 1;
    bytes g = {.len = 0}, n = new_node("Flatten", "x", "y");
    put_ints_attr(&n, "axis", &one, 1);
    add_one_input(&g);
    put_message(&g, 1, &n);
    import_fails(&g, TN_INVALID, "must be of type int, found ints");
}

static void test_other_types(void **state)
{
    (void)state;
    bytes g = {.len = 0};
    put_value(&g, 11, "x", ONNX_STRING, "2");
    put_value(&g, 12, "x", ONNX_STRING, "2");
    import_fails(&g, TN_UNSUPPORTED, "element type string");
}

/* A dimension that an operator's text fixes is checked before the operator looks at it. */
static void test_ranks(void **state)
{
    (void)state;
    bytes g = {.len = 0}, n = new_node("DepthToSpace", "x", "y");
    put_int_attr(&n, "blocksize", 2);
    add_one_input(&g);
    put_message(&g, 1, &n);
    import_fails(&g, TN_INVALID, "input 0 ('x') must have rank 4, found 3");
}

/* Sequences of known length exist only while importing; as an output they are refused by name. */
static void test_sequences(void **state)
{
    (void)state;
    static const int64_t last = -1;
    bytes g = {.len = 0};
    add_one_input(&g);
    put_list(&g, "last", &last, -1);
    put_node(&g, "Relu", "x", "r");
    put_node(&g, "SequenceConstruct", "x r", "s");
    put_node(&g, "SequenceAt", "s last", "a");
    put_node(&g, "Flatten", "a", "y");
    import_run r;
    import_ok(&r, &g, NULL);
    expect_type(output(&r, 0), "f32[batch, 32]");
    assert_int_equal(count_ops(r.graph, TN_OP_maximum), 1);
    import_end(&r);
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "SequenceConstruct", "x x", "y");
    import_fails(&g, TN_UNSUPPORTED, "'y' is a sequence");
    g.len = 0;
    add_one_input(&g);
    put_node(&g, "SequenceConstruct", "x x", "s");
    put_node(&g, "Relu", "s", "y");
    import_fails(&g, TN_UNSUPPORTED, "input 's' is a sequence");
}

/* ---- functions
 * ----------------------------------------------------------------------------------------------------------------- */

static bytes function(const char *name, const char *calls)
{
    bytes f = {.len = 0}, n = new_node(calls, "a", "b"), o = {.len = 0};
    if (strcmp(calls, "Relu"))
        put_text(&n, 7, "my");
    put_text(&f, 1, name);
    put_text(&f, 10, "my");
    put_text(&f, 4, "a");
    put_text(&f, 5, "b");
    put_message(&f, 7, &n);
    put_text(&o, 1, "");
    put_int(&o, 2, 17);
    put_message(&f, 9, &o);
    return f;
}

static bytes calling_model(const bytes *functions, int n)
{
    bytes g = {.len = 0}, call = new_node("first", "x", "y"), o = {.len = 0};
    put_text(&call, 7, "my");
    add_one_input(&g);
    put_message(&g, 1, &call);
    bytes m = new_model(&g, 17);
    put_text(&o, 1, "my");
    put_int(&o, 2, 1);
    put_message(&m, 8, &o);
    for (int i = 0; i < n; i++)
        put_message(&m, 25, &functions[i]);
    return m;
}

static void test_functions(void **state)
{
    (void)state;
    import_run r;
    bytes two[2] = {function("first", "second"), function("second", "Relu")};
    bytes m = calling_model(two, 2);
    import_bytes(&r, &m, NULL);
    assert_int_equal(r.status, TN_OK);
    assert_int_equal(count_ops(r.graph, TN_OP_maximum), 1);
    import_end(&r);
    bytes loop[2] = {function("first", "second"), function("second", "first")};
    m = calling_model(loop, 2);
    import_bytes(&r, &m, NULL);
    assert_int_equal(r.status, TN_INVALID);
    assert_true(import_said(&r, "calls itself"));
    import_end(&r);
}

/* ---- control flow
 * ---------------------------------------------------------------------------------------------------------------- */

/* Loop of M trips: s = s + 1, scan output s. */
static bytes loop_graph(int64_t trips)
{
    bytes g = {.len = 0}, body = {.len = 0}, n;
    static const int64_t one = 1;
    put_value(&body, 11, "i", ONNX_INT64, "");
    put_value(&body, 11, "go", ONNX_BOOL, "");
    put_value(&body, 11, "s", ONNX_INT64, "");
    put_list(&body, "one", &one, -1);
    put_node(&body, "Identity", "go", "again");
    put_node(&body, "Add", "s one", "t");
    put_node(&body, "Identity", "t", "u");
    put_value(&body, 12, "again", ONNX_BOOL, "");
    put_value(&body, 12, "t", ONNX_INT64, "");
    put_value(&body, 12, "u", ONNX_INT64, "");
    if (trips >= 0)
        put_list(&g, "m", &trips, -1);
    else
        put_value(&g, 11, "m", ONNX_INT64, "");
    put_value(&g, 11, "start", ONNX_INT64, "");
    put_value(&g, 12, "last", ONNX_INT64, "");
    put_value(&g, 12, "all", ONNX_INT64, "n");
    n = new_node("Loop", "m - start", "last all");
    put_graph_attr(&n, "body", &body);
    put_message(&g, 1, &n);
    return g;
}

static void expect_loop(import_run *r, const tn_tensor *const *inputs, int64_t last, int64_t trips)
{
    tn_tensor *out[2];
    tn_status status = tn_eval_graph(&r->session, &r->session.arena, r->graph, inputs, out, NULL);
    tn_print_diags(&r->session, stderr);
    assert_int_equal(status, TN_OK);
    assert_int_equal(tn_tensor_at(out[0], 0).i, last);
    assert_int_equal(out[1]->dim[0], trips);
    assert_int_equal(tn_tensor_at(out[1], trips - 1).i, last);
}

static void test_loop(void **state)
{
    (void)state;
    static const int64_t start = 10, trips = 5;
    const tn_tensor s = {.dtype = TN_I64, .data = &start}, m = {.dtype = TN_I64, .data = &trips};
    import_run r;
    bytes unrolled = loop_graph(3), counted = loop_graph(1000), run_time = loop_graph(-1);
    import_ok(&r, &unrolled, NULL);
    assert_int_equal(count_ops(r.graph, TN_OP_while), 0);
    expect_loop(&r, (const tn_tensor *[]){&s}, 13, 3);
    import_end(&r);
    import_ok(&r, &counted, NULL);
    assert_int_equal(count_ops(r.graph, TN_OP_while), 1);
    expect_loop(&r, (const tn_tensor *[]){&s}, 1010, 1000);
    import_end(&r);
    import_ok(&r, &run_time, NULL);
    expect_loop(&r, (const tn_tensor *[]){&m, &s}, 15, 5);
    import_end(&r);
}

static bytes if_graph(bool constant)
{
    bytes g = {.len = 0}, branch[2] = {{.len = 0}, {.len = 0}}, n = new_node("If", "c", "y");
    static const char *const names[2] = {"then_branch", "else_branch"}, *const ops[2] = {"Relu", "Neg"};
    for (int i = 0; i < 2; i++) {
        put_node(&branch[i], ops[i], "x", "r");
        put_value(&branch[i], 12, "r", ONNX_FLOAT, "batch 4");
        put_graph_attr(&n, names[i], &branch[i]);
    }
    put_value(&g, 11, "x", ONNX_FLOAT, "batch 4");
    if (constant) {
        bytes t = {.len = 0};
        put_int(&t, 2, ONNX_BOOL);
        put_text(&t, 8, "c");
        put_data(&t, 9, "\1", 1);
        put_message(&g, 5, &t);
    } else {
        put_value(&g, 11, "c", ONNX_BOOL, "");
    }
    put_message(&g, 1, &n);
    put_value(&g, 12, "y", ONNX_FLOAT, "batch 4");
    return g;
}

static void test_if(void **state)
{
    (void)state;
    import_run r;
    bytes folded = if_graph(true), run_time = if_graph(false);
    import_ok(&r, &folded, NULL);
    assert_int_equal(count_ops(r.graph, TN_OP_if), 0);
    assert_int_equal(count_ops(r.graph, TN_OP_maximum), 1);
    import_end(&r);
    import_ok(&r, &run_time, NULL);
    assert_int_equal(count_ops(r.graph, TN_OP_if), 1);
    expect_type(output(&r, 0), "f32[batch, 4]");
    import_end(&r);
}

/* ---- external data
 * ---------------------------------------------------------------------------------------------------------------- */

static void put_entry(bytes *tensor, const char *key, const char *value)
{
    bytes e = {.len = 0};
    put_text(&e, 1, key);
    put_text(&e, 2, value);
    put_message(tensor, 13, &e);
}

static bytes external_model(const char *location, const char *offset, const char *length)
{
    bytes t = {.len = 0}, g = {.len = 0};
    put_int(&t, 1, 2);
    put_int(&t, 2, ONNX_FLOAT);
    put_text(&t, 8, "w");
    put_entry(&t, "location", location);
    put_entry(&t, "offset", offset);
    put_entry(&t, "length", length);
    put_int(&t, 14, 1);
    put_message(&g, 5, &t);
    put_node(&g, "Neg", "w", "y");
    put_value(&g, 12, "y", ONNX_FLOAT, "2");
    return new_model(&g, 17);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static tn_status import_external(const char *folder, const bytes *model, const char *said)
{
    char path[256];
    tn_session session = {0};
    tn_model out;
    snprintf(path, sizeof path, "%s/m/model.onnx", folder);
    write_file(path, model->at, model->len);
    tn_status status = tn_import_onnx(&session, path, NULL, &out);
    import_run r = {.session = session};
    if (said && !import_said(&r, said)) {
        tn_print_diags(&session, stderr);
        fail_msg("no diagnostic says '%s'", said);
    }
    tn_model_free(&out);
    tn_arena_free(&session.arena);
    return status;
}

static void test_external_data(void **state)
{
    (void)state;
    char folder[] = "tn_onnx_XXXXXX", path[256], inner[256], outer[256];
    static const float weights[4] = {1, 2, 3, 4};
    assert_non_null(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/m", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    snprintf(path, sizeof path, "%s/m/w.bin", folder);
    write_file(path, weights, sizeof weights);
    snprintf(outer, sizeof outer, "%s/secret.bin", folder);
    write_file(outer, weights, sizeof weights);

    bytes good = external_model("w.bin", "8", "8"), up = external_model("../secret.bin", "0", "8"),
          far = external_model("w.bin", "12", "8"), size = external_model("w.bin", "0", "4"),
          number = external_model("w.bin", "-8", "8"), absolute = external_model("/etc/hostname", "0", "8");
    assert_int_equal(import_external(folder, &good, NULL), TN_OK);
    assert_int_not_equal(import_external(folder, &up, NULL), TN_OK);
    assert_int_not_equal(import_external(folder, &absolute, NULL), TN_OK);
    assert_int_equal(import_external(folder, &far, "past the end"), TN_INVALID);
    assert_int_equal(import_external(folder, &size, "length of its external data"), TN_INVALID);
    assert_int_equal(import_external(folder, &number, "not a number"), TN_INVALID);
    import_run r;
    import_bytes(&r, &good, NULL); /* "model.onnx" in the current folder: no w.bin there */
    assert_int_not_equal(r.status, TN_OK);
    import_end(&r);

    snprintf(path, sizeof path, "%s/m/model.onnx", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/m/w.bin", folder);
    unlink(path);
    unlink(outer);
    rmdir(inner);
    rmdir(folder);
}

/* ---- tensors in files
 * ------------------------------------------------------------------------------------------------------------- */

static void test_tensor_files(void **state)
{
    (void)state;
    char path[] = "tn_tensor_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tn_session session = {0};
    static const uint8_t nibbles[2] = {0x21, 0x03};
    static const tn_dtype dtypes[] = {TN_F32, TN_I64, TN_BOOL, TN_BF16, TN_C64};
    static const uint64_t data[6] = {1, 0, 1, 2, 3, 4};
    for (size_t i = 0; i < TN_COUNT(dtypes); i++) {
        tn_tensor t = {.dtype = dtypes[i], .rank = 2, .dim = {1, 3}, .data = data}, back;
        assert_int_equal(tn_write_tensor_proto(&session, path, &t, "t"), TN_OK);
        assert_int_equal(tn_read_tensor_proto(&session, path, &back), TN_OK);
        assert_true(tn_tensor_same(&t, &back));
        assert_string_equal(back.name, "t");
    }
    tn_tensor packed = {.dtype = TN_I4, .rank = 1, .dim = {3}, .data = nibbles}, back;
    assert_int_equal(tn_write_tensor_proto(&session, path, &packed, NULL), TN_OK);
    assert_int_equal(tn_read_tensor_proto(&session, path, &back), TN_OK);
    assert_int_equal(tn_tensor_at(&back, 2).i, 3);
    const tn_tensor *splat = tn_tensor_splat(&session, TN_F32, 1, (int64_t[]){5}, tn_number_from_double(TN_F32, 2.5));
    assert_int_equal(tn_write_tensor_proto(&session, path, splat, NULL), TN_OK);
    assert_int_equal(tn_read_tensor_proto(&session, path, &back), TN_OK);
    assert_true(tn_tensor_at(&back, 4).f == 2.5);
    unlink(path);
    tn_arena_free(&session.arena);
}

/* ---- hostile files
 * ----------------------------------------------------------------------------------------------------------------- */

/* Any status will do, but a refusal says why, and what is accepted verifies (import_bytes checks). */
static void import_any(const bytes *model)
{
    import_run r;
    import_bytes(&r, model, NULL);
    assert_true(r.status == TN_OK || r.session.errors > 0);
    import_end(&r);
}

static void test_truncated_and_flipped(void **state)
{
    (void)state;
    bytes graphs[] = {flatten_graph(), loop_graph(3), loop_graph(-1), if_graph(false)};
    for (size_t g = 0; g < TN_COUNT(graphs); g++) {
        bytes whole = new_model(&graphs[g], 17), hurt;
        for (size_t len = 0; len < whole.len; len++) {
            hurt = whole;
            hurt.len = len;
            import_any(&hurt);
        }
        for (size_t bit = 0; bit < 8 * whole.len; bit++) {
            hurt = whole;
            hurt.at[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            import_any(&hurt);
        }
    }
}

/* If inside If inside If …: refused by depth, not by a full stack. */
static void test_nesting(void **state)
{
    (void)state;
    static bytes g, n;
    g.len = 0;
    put_node(&g, "Relu", "x", "r");
    for (int i = 0; i < 300 && 4 * g.len < sizeof g.at; i++) {
        n = new_node("If", "c", "r");
        put_graph_attr(&n, "then_branch", &g);
        g.len = 0;
        put_message(&g, 1, &n);
    }
    bytes model = new_model(&g, 17);
    import_run r;
    import_bytes(&r, &model, NULL);
    assert_int_equal(r.status, TN_INVALID);
    import_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape_arithmetic),
        cmocka_unit_test(test_dim_options),
        cmocka_unit_test(test_run_time_shape),
        cmocka_unit_test(test_order_and_names),
        cmocka_unit_test(test_unsupported_in_one_list),
        cmocka_unit_test(test_attribute_types),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_external_data),
        cmocka_unit_test(test_tensor_files),
        cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_nesting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
