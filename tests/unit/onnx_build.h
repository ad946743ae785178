/* Writes ONNX files for tests, field by field (numbers of onnx.proto), so that a test states exactly the bytes it
 * means. */
#ifndef TN_ONNX_BUILD_H
#define TN_ONNX_BUILD_H

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "import/import.h"

typedef struct bytes {
    uint8_t at[1 << 14];
    size_t len;
} bytes;

static inline void put_byte(bytes *b, unsigned value)
{
    assert_true(b->len < sizeof b->at);
    b->at[b->len++] = (uint8_t)value;
}

static inline void put_varint(bytes *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_byte(b, (unsigned)(value & 127) | 128);
    put_byte(b, (unsigned)value);
}

static inline void put_int(bytes *b, unsigned field, int64_t value)
{
    put_varint(b, field << 3);
    put_varint(b, (uint64_t)value);
}

static inline void put_data(bytes *b, unsigned field, const void *data, size_t size)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, size);
    for (size_t i = 0; i < size; i++)
        put_byte(b, ((const uint8_t *)data)[i]);
}

static inline void put_text(bytes *b, unsigned field, const char *text)
{
    put_data(b, field, text, strlen(text));
}
static inline void put_message(bytes *b, unsigned field, const bytes *message)
{
    put_data(b, field, message->at, message->len);
}

/* Names separated by spaces; "-" is an omitted one. */
static inline void put_names(bytes *b, unsigned field, const char *names)
{
    while (*names) {
        size_t len = strcspn(names, " ");
        put_data(b, field, names, names[0] == '-' ? 0 : len);
        names += len + (names[len] == ' ');
    }
}

static inline void put_int_attr(bytes *node, const char *name, int64_t value)
{
    bytes a = {.len = 0};
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, 2);
    put_message(node, 5, &a);
}

static inline void put_float_attr(bytes *node, const char *name, float value)
{
    bytes a = {.len = 0};
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_text(&a, 1, name);
    put_byte(&a, 2 << 3 | 5);
    for (int i = 0; i < 4; i++)
        put_byte(&a, bits >> 8 * i & 0xff);
    put_int(&a, 20, 1);
    put_message(node, 5, &a);
}

static inline void put_ints_attr(bytes *node, const char *name, const int64_t *values, int n)
{
    bytes a = {.len = 0};
    put_text(&a, 1, name);
    for (int i = 0; i < n; i++)
        put_int(&a, 8, values[i]);
    put_int(&a, 20, 7);
    put_message(node, 5, &a);
}

static inline void put_graph_attr(bytes *node, const char *name, const bytes *graph)
{
    bytes a = {.len = 0};
    put_text(&a, 1, name);
    put_message(&a, 6, graph);
    put_int(&a, 20, 5);
    put_message(node, 5, &a);
}

/* A node without its attributes: add them, then put_message(graph, 1, &node). */
static inline bytes new_node(const char *op_type, const char *inputs, const char *outputs)
{
    bytes n = {.len = 0};
    put_names(&n, 1, inputs);
    put_names(&n, 2, outputs);
    put_text(&n, 3, outputs);
    put_text(&n, 4, op_type);
    return n;
}

static inline void put_node(bytes *graph, const char *op_type, const char *inputs, const char *outputs)
{
    bytes n = new_node(op_type, inputs, outputs);
    put_message(graph, 1, &n);
}

/* field 11: input, 12: output. dims: names or numbers separated by spaces. */
static inline void put_value(bytes *graph, unsigned field, const char *name, int data_type, const char *dims)
{
    bytes shape = {.len = 0}, tensor = {.len = 0}, type = {.len = 0}, info = {.len = 0};
    while (*dims) {
        bytes dim = {.len = 0};
        size_t len = strcspn(dims, " ");
        if (dims[0] >= '0' && dims[0] <= '9')
            put_int(&dim, 1, strtoll(dims, NULL, 10));
        else
            put_data(&dim, 2, dims, len);
        put_message(&shape, 1, &dim);
        dims += len + (dims[len] == ' ');
    }
    put_int(&tensor, 1, data_type);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9, ONNX_STRING = 8 };

/* An int64 initializer: rank 0 if n < 0, else a list of n. */
static inline void put_list(bytes *graph, const char *name, const int64_t *values, int n)
{
    bytes t = {.len = 0};
    if (n >= 0)
        put_int(&t, 1, n);
    put_int(&t, 2, ONNX_INT64);
    put_text(&t, 8, name);
    put_data(&t, 9, values, 8 * (size_t)(n < 0 ? 1 : n));
    put_message(graph, 5, &t);
}

static inline bytes new_model(const bytes *graph, int64_t opset)
{
    bytes m = {.len = 0}, o = {.len = 0};
    put_int(&m, 1, 8);
    put_text(&o, 1, "");
    put_int(&o, 2, opset);
    put_message(&m, 8, &o);
    put_message(&m, 7, graph);
    return m;
}

typedef struct import_run {
    tn_session session;
    tn_model model;
    tn_status status;
    const tn_graph *graph;
} import_run;

static inline void import_end(import_run *r)
{
    tn_model_free(&r->model);
    tn_arena_free(&r->session.arena);
}

static inline void import_bytes(import_run *r, const bytes *model, const tn_import_options *options)
{
    *r = (import_run){.graph = NULL};
    r->status = tn_import_onnx_bytes(&r->session, "model.onnx", model->at, model->len, options, &r->model);
    if (r->status == TN_OK)
        r->graph = r->model.module->graphs.at[0];
    if (r->status == TN_OK && tn_graph_verify(r->graph) != TN_OK) {
        tn_print_diags(&r->session, stderr);
        fail_msg("the imported graph does not verify");
    }
}

/* Some diagnostic's message or node holds `text`. */
static inline bool import_said(const import_run *r, const char *text)
{
    for (size_t i = 0; i < r->session.diags.len; i++)
        if (strstr(r->session.diags.at[i].message, text))
            return true;
    return false;
}

#endif
