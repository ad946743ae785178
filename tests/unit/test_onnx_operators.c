/* What the ONNX backend suite does not show of the operators: symbolic sizes, versions that no case of the suite uses,
 * forms that the fusion relies on, agreement of two lowerings of one operator, and messages. */
#include "onnx_build.h"

#include "eval/eval.h"

#include <math.h>

static void import_ok(import_run *r, const bytes *graph, int64_t opset)
{
    bytes model = new_model(graph, opset);
    import_bytes(r, &model, NULL);
    if (r->status != TN_OK) {
        tn_print_diags(&r->session, stderr);
        fail_msg("not imported");
    }
}

static void import_fails(const bytes *graph, int64_t opset, tn_status status, const char *said)
{
    import_run r;
    bytes model = new_model(graph, opset);
    import_bytes(&r, &model, NULL);
    if (r.status != status || !import_said(&r, said)) {
        tn_print_diags(&r.session, stderr);
        fail_msg("expected status %d and the words '%s', found status %d", status, said, r.status);
    }
    import_end(&r);
}

static void expect_output(const import_run *r, int i, const char *want)
{
    tn_text text = {.arena = (tn_arena *)&r->session.arena};
    tn_text_type(&text, &tn_operand(r->graph->body->last, i)->type);
    assert_string_equal(text.at, want);
}

/* Operations of the body but constants, `dimension` and the terminator, in order, separated by spaces. */
static const char *operations(import_run *r)
{
    tn_text text = {.arena = &r->session.arena};
    tn_text_add(&text, "%s", "");
    for (const tn_op *op = r->graph->body->first; op; op = op->next)
        if (op->code != TN_OP_constant && op->code != TN_OP_dimension && op->code != TN_OP_return)
            tn_text_add(&text, "%s%s", text.len ? " " : "", tn_op_name(op->code));
    return text.at;
}

/* 0.1, 0.2, … of alternating sign. */
static tn_tensor ramp(import_run *r, int rank, const int64_t *dims)
{
    tn_tensor t = {.dtype = TN_F32, .rank = rank};
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= t.dim[i] = dims[i];
    float *data = tn_alloc(&r->session.arena, 4 * (size_t)count + 4);
    for (int64_t i = 0; i < count; i++)
        data[i] = (i % 2 ? -0.1f : 0.1f) * (float)(i % 17 + 1);
    t.data = data;
    return t;
}

static tn_tensor *run_one(import_run *r, const tn_tensor *x)
{
    tn_tensor *results[8] = {NULL};
    if (tn_eval_graph(&r->session, &r->session.arena, r->graph, &x, results, NULL) != TN_OK) {
        tn_print_diags(&r->session, stderr);
        fail_msg("not evaluated");
    }
    return results[0];
}

static double at(const tn_tensor *t, int64_t i)
{
    return tn_number_to_double(t->dtype, tn_tensor_at(t, i));
}

static void put_text_attr(bytes *node, const char *name, const char *value)
{
    bytes a = {.len = 0};
    put_text(&a, 1, name);
    put_text(&a, 4, value);
    put_int(&a, 20, 3);
    put_message(node, 5, &a);
}

static void put_floats(bytes *graph, const char *name, const float *values, const int64_t *dims, int rank)
{
    bytes t = {.len = 0};
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        put_int(&t, 1, dims[i]);
        count *= dims[i];
    }
    put_int(&t, 2, ONNX_FLOAT);
    put_text(&t, 8, name);
    put_data(&t, 9, values, 4 * (size_t)count);
    put_message(graph, 5, &t);
}

/* Softmax written out is what the fusion looks for: nothing but these operations. */
static void test_softmax_form(void **state)
{
    (void)state;
    import_run r;
    bytes g = {.len = 0}, node = new_node("Softmax", "x", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "b s");
    put_value(&g, 12, "y", ONNX_FLOAT, "b s");
    put_int_attr(&node, "axis", -1);
    put_message(&g, 1, &node);
    import_ok(&r, &g, 13);
    expect_output(&r, 0, "f32[b, s]");
    assert_string_equal(operations(&r), "reduce broadcast_in_dim subtract exponential reduce broadcast_in_dim divide");
    import_end(&r);
}

/* Before opset 13 all axes from `axis` on are one: [2, 3, 4] from axis 1 sums to 1 over 12 elements, not over 3. */
static void test_softmax_before_13(void **state)
{
    (void)state;
    import_run r;
    bytes g = {.len = 0}, node = new_node("Softmax", "x", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "b 3 4");
    put_value(&g, 12, "y", ONNX_FLOAT, "b 3 4");
    put_int_attr(&node, "axis", 1);
    put_message(&g, 1, &node);
    import_ok(&r, &g, 12);
    tn_tensor x = ramp(&r, 3, (int64_t[]){2, 3, 4}), *y = run_one(&r, &x);
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += at(y, i);
    assert_true(fabs(sum - 1) < 1e-6);
    import_end(&r);
}

/* SAME padding of an unknown size becomes an expression; the result is ceil(size / stride). */
static void test_conv_same_symbolic(void **state)
{
    (void)state;
    import_run r;
    static const float weight[2 * 1 * 3 * 3] = {1};
    bytes g = {.len = 0}, node = new_node("Conv", "x w", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "b 1 h 10");
    put_value(&g, 12, "y", ONNX_FLOAT, "b 2 oh 5");
    put_floats(&g, "w", weight, (int64_t[]){2, 1, 3, 3}, 4);
    put_text_attr(&node, "auto_pad", "SAME_UPPER");
    put_ints_attr(&node, "strides", (int64_t[]){2, 2}, 2);
    put_message(&g, 1, &node);
    import_ok(&r, &g, 11);
    tn_tensor x = ramp(&r, 4, (int64_t[]){3, 1, 7, 10}), *y = run_one(&r, &x);
    assert_int_equal(y->dim[0], 3);
    assert_int_equal(y->dim[2], 4);
    assert_int_equal(y->dim[3], 5);
    import_end(&r);
}

/* Nearest by a whole factor only repeats: no gather. Sizes stay expressions of the input's. */
static void test_resize_repeats(void **state)
{
    (void)state;
    import_run r;
    static const float scales[] = {1, 1, 2, 2};
    bytes g = {.len = 0}, node = new_node("Resize", "x - scales", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "b 3 h w");
    put_value(&g, 12, "y", ONNX_FLOAT, "b 3 oh ow");
    put_floats(&g, "scales", scales, (int64_t[]){4}, 1);
    put_text_attr(&node, "mode", "nearest");
    put_text_attr(&node, "coordinate_transformation_mode", "asymmetric");
    put_text_attr(&node, "nearest_mode", "floor");
    put_message(&g, 1, &node);
    import_ok(&r, &g, 13);
    expect_output(&r, 0, "f32[b, 3, 2*h, 2*w]");
    assert_string_equal(operations(&r), "broadcast_in_dim reshape broadcast_in_dim reshape");
    import_end(&r);
}

/* axes only known when the graph runs: [0] of [2, 3], not kept. */
static void test_reduce_runtime_axes(void **state)
{
    (void)state;
    import_run r;
    static const int64_t axis[] = {0};
    bytes g = {.len = 0}, node = new_node("ReduceSum", "x axes", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "n 3");
    put_value(&g, 11, "axes", ONNX_INT64, "1");
    put_value(&g, 12, "y", ONNX_FLOAT, "m");
    put_int_attr(&node, "keepdims", 0);
    put_message(&g, 1, &node);
    import_ok(&r, &g, 13);
    tn_tensor x = ramp(&r, 2, (int64_t[]){2, 3}), axes = {.dtype = TN_I64, .rank = 1, .dim = {1}, .data = axis},
              *results[1];
    assert_int_equal(
        tn_eval_graph(&r.session, &r.session.arena, r.graph, (const tn_tensor *[]){&x, &axes}, results, NULL), TN_OK);
    assert_int_equal(results[0]->rank, 1);
    assert_int_equal(results[0]->dim[0], 3);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(at(results[0], i) - (at(&x, i) + at(&x, i + 3))) < 1e-6);
    import_end(&r);
}

static void lstm_graph(bytes *g, const char *input)
{
    static float w[2 * 8 * 3], rec[2 * 8 * 2];
    for (size_t i = 0; i < TN_COUNT(w); i++)
        w[i] = 0.05f * (float)((int)(i * 7 % 13) - 6);
    for (size_t i = 0; i < TN_COUNT(rec); i++)
        rec[i] = 0.05f * (float)((int)(i * 5 % 11) - 5);
    bytes node = new_node("LSTM", "x w r", "y");
    put_value(g, 11, "x", ONNX_FLOAT, input);
    put_value(g, 12, "y", ONNX_FLOAT, "t 2 b 2");
    put_floats(g, "w", w, (int64_t[]){2, 8, 3}, 3);
    put_floats(g, "r", rec, (int64_t[]){2, 8, 2}, 3);
    put_int_attr(&node, "hidden_size", 2);
    put_text_attr(&node, "direction", "bidirectional");
    put_message(g, 1, &node);
}

/* A short constant length is unrolled, an unknown one becomes a loop: the same numbers. */
static void test_lstm_unrolled_and_looped(void **state)
{
    (void)state;
    import_run r[2];
    tn_tensor *y[2];
    const char *inputs[] = {"6 b 3", "t b 3"};
    for (int i = 0; i < 2; i++) {
        bytes g = {.len = 0};
        lstm_graph(&g, inputs[i]);
        import_ok(&r[i], &g, 14);
        tn_tensor x = ramp(&r[i], 3, (int64_t[]){6, 2, 3});
        y[i] = run_one(&r[i], &x);
    }
    assert_null(strstr(operations(&r[0]), "while"));
    assert_non_null(strstr(operations(&r[1]), "while"));
    for (int64_t i = 0; i < 6 * 2 * 2 * 2; i++)
        assert_true(fabs(at(y[0], i) - at(y[1], i)) < 1e-6);
    import_end(&r[0]);
    import_end(&r[1]);
}

/* Random numbers: the same in every run, different between nodes, with the moments asked for. */
static void test_random_is_reproducible(void **state)
{
    (void)state;
    import_run r[2];
    tn_tensor *y[2][2];
    for (int i = 0; i < 2; i++) {
        bytes g = {.len = 0};
        for (int k = 0; k < 2; k++) {
            bytes node = new_node("RandomNormal", "", k ? "b" : "a");
            put_ints_attr(&node, "shape", (int64_t[]){64, 64}, 2);
            put_message(&g, 1, &node);
            put_value(&g, 12, k ? "b" : "a", ONNX_FLOAT, "64 64");
        }
        import_ok(&r[i], &g, 22);
        assert_int_equal(tn_eval_graph(&r[i].session, &r[i].session.arena, r[i].graph, NULL, y[i], NULL), TN_OK);
    }
    assert_true(tn_tensor_same(y[0][0], y[1][0]));
    assert_false(tn_tensor_same(y[0][0], y[0][1]));
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 4096; i++) {
        sum += at(y[0][0], i);
        squares += at(y[0][0], i) * at(y[0][0], i);
    }
    assert_true(fabs(sum / 4096) < 0.05 && fabs(squares / 4096 - 1) < 0.1);
    import_end(&r[0]);
    import_end(&r[1]);
}

/* What is drawn while importing are the numbers that the operations describe, in every type; a shape that is an input's is left to them. */
static void test_random_is_drawn(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *like;
        int type; /* a TensorProto's: 1 f32, 10 f16, 16 bf16 */
        double error;
    } cases[] = {{"RandomNormal", "RandomNormalLike", 1, 1e-5}, {"RandomUniform", "RandomUniformLike", 1, 1e-6}, {"RandomNormal", "RandomNormalLike", 16, 0.02},
                 {"RandomNormal", "RandomNormalLike", 10, 0.002}};
    for (size_t i = 0; i < TN_COUNT(cases); i++) {
        bytes g = {.len = 0};
        put_value(&g, 11, "x", ONNX_FLOAT, "3 67");
        for (int like = 0; like < 2; like++) {
            bytes node = new_node(like ? cases[i].like : cases[i].kind, like ? "x" : "", like ? "b" : "a");
            if (!like)
                put_ints_attr(&node, "shape", (int64_t[]){3, 67}, 2);
            put_int_attr(&node, "dtype", cases[i].type);
            put_float_attr(&node, "seed", 7);
            put_message(&g, 1, &node);
            put_value(&g, 12, like ? "b" : "a", cases[i].type, "3 67");
        }
        import_run r;
        tn_tensor *y[2];
        import_ok(&r, &g, 22);
        tn_tensor x = ramp(&r, 2, (int64_t[]){3, 67});
        const tn_tensor *in[] = {&x};
        assert_int_equal(tn_eval_graph(&r.session, &r.session.arena, r.graph, in, y, NULL), TN_OK);
        for (int64_t k = 0; k < 3 * 67; k++)
            assert_true(fabs(at(y[0], k) - at(y[1], k)) <= cases[i].error);
        import_end(&r);
    }
}

static void test_messages(void **state)
{
    (void)state;
    bytes g = {.len = 0}, node = new_node("MaxPool", "x", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "1 1 8 8");
    put_value(&g, 12, "y", ONNX_FLOAT, "");
    put_ints_attr(&node, "kernel_shape", (int64_t[]){3}, 1);
    put_message(&g, 1, &node);
    import_fails(&g, 12, TN_INVALID, "`kernel_shape` must have 2 entries, found 1");

    g = (bytes){.len = 0};
    node = new_node("Gemm", "x x", "y");
    put_value(&g, 11, "x", ONNX_FLOAT, "2 2 2");
    put_value(&g, 12, "y", ONNX_FLOAT, "");
    put_message(&g, 1, &node);
    import_fails(&g, 13, TN_INVALID, "must have rank 2, found 3");

    g = (bytes){.len = 0};
    node = new_node("RoiAlign", "x rois batch", "y");
    put_text_attr(&node, "mode", "max");
    put_value(&g, 11, "x", ONNX_FLOAT, "1 1 8 8");
    put_value(&g, 11, "rois", ONNX_FLOAT, "2 4");
    put_value(&g, 11, "batch", ONNX_INT64, "2");
    put_value(&g, 12, "y", ONNX_FLOAT, "");
    put_message(&g, 1, &node);
    import_fails(&g, 16, TN_UNSUPPORTED, "`sampling_ratio` 0, samples by the region's size, for the largest of them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_form),           cmocka_unit_test(test_softmax_before_13),
        cmocka_unit_test(test_conv_same_symbolic),     cmocka_unit_test(test_resize_repeats),
        cmocka_unit_test(test_reduce_runtime_axes),    cmocka_unit_test(test_lstm_unrolled_and_looped),
        cmocka_unit_test(test_random_is_reproducible), cmocka_unit_test(test_random_is_drawn), cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
