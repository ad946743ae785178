/* Before anything is imported: which operators does the file have, and which of them have no lowering? All in one
 * diagnostic. */
#include <string.h>

#include "import/onnx/internal.h"

typedef struct missing {
    int count;
    tn_text nodes;
} missing;

typedef struct checker {
    onnx_ctx *c;
    tn_map seen;    /* functions that were visited */
    tn_map missing; /* "op type (domain, version)" -> struct missing * */
    const onnx_opset *const *opsets;
    size_t nopsets;
} checker;

static void check_nodes(checker *k, onnx_node_proto *const *nodes, size_t count);

static void count_operator(onnx_ctx *c, const char *op_type, const char *domain)
{
    const char *key = domain[0] ? tn_format(&c->session->arena, "%s.%s", domain, op_type) : op_type;
    void **cell = tn_map_at_str(&c->model->operators, key);
    *cell = (void *)((uintptr_t)*cell + 1);
}

static void add_missing(checker *k, const char *op_type, const char *domain, int64_t version, onnx_slice name,
                        onnx_slice output)
{
    enum { NAMED = 8 };
    tn_arena *arena = &k->c->session->arena;
    const char *key =
        tn_format(arena, "%s (%s, version %lld)", op_type, domain[0] ? domain : "ai.onnx", (long long)version);
    void **cell = tn_map_at_str(&k->missing, key);
    if (!*cell) {
        missing *m = TN_NEW(arena, missing);
        m->nodes.arena = arena;
        *cell = m;
    }
    missing *m = *cell;
    if (m->count++ < NAMED) {
        onnx_slice s = name.len ? name : output;
        tn_text_add(&m->nodes, "%snode '%.*s'", m->count > 1 ? ", " : "", (int)tn_min((int64_t)s.len, 200),
                    s.at ? s.at : "");
    }
}

static void check_function(checker *k, const onnx_function *f)
{
    void **cell = tn_map_at(&k->seen, TN_KEY(f));
    if (*cell)
        return;
    *cell = k;
    checker inner = *k;
    if (f->opset_import.len) {
        inner.opsets = (const onnx_opset *const *)f->opset_import.at;
        inner.nopsets = f->opset_import.len;
    }
    check_nodes(&inner, f->node.at, f->node.len);
    k->seen = inner.seen;
    k->missing = inner.missing;
}

static void check_node(checker *k, const onnx_node_proto *p)
{
    const char *op_type = onnx_text(k->c, p->op_type), *domain = onnx_domain(k->c, p->domain);
    int64_t version = onnx_version(k->opsets, k->nopsets, domain);
    const onnx_function *f = onnx_find_function(k->c, op_type, domain, p->overload);
    count_operator(k->c, op_type, domain);
    if (f)
        check_function(k, f);
    else if (!onnx_find_row(k->c, op_type, domain, version))
        add_missing(k, op_type, domain, version, p->name, p->output.len ? p->output.at[0] : (onnx_slice){0});
    for (size_t i = 0; i < p->attribute.len; i++) {
        const onnx_attribute *a = p->attribute.at[i];
        if (a->g)
            check_nodes(k, a->g->node.at, a->g->node.len);
        for (size_t j = 0; j < a->graphs.len; j++)
            check_nodes(k, a->graphs.at[j]->node.at, a->graphs.at[j]->node.len);
    }
}

static void check_nodes(checker *k, onnx_node_proto *const *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_node(k, nodes[i]);
}

static tn_status report(checker *k)
{
    onnx_ctx *c = k->c;
    tn_text text = {.arena = &c->session->arena};
    for (size_t i = 0; i < k->missing.len; i++) {
        missing *m = tn_map_value(&k->missing, i);
        if (m->count > 8)
            tn_text_add(&m->nodes, ", and %d more", m->count - 8);
        const char *line = tn_format(&c->session->arena, "%s: %s", tn_map_key_str(&k->missing, i), m->nodes.at);
        TN_PUSH(&c->session->arena, &c->model->unsupported, line);
        tn_text_add(&text, "\n  %s", line);
    }
    return tn_error(c->session, TN_UNSUPPORTED, (tn_loc){.file = c->path}, "%zu operator%s not supported:%s",
                    k->missing.len, k->missing.len == 1 ? " is" : "s are", text.at);
}

tn_status onnx_check_operators(onnx_ctx *c)
{
    checker k = {
        .c = c, .opsets = (const onnx_opset *const *)c->proto->opset_import.at, .nopsets = c->proto->opset_import.len};
    k.seen.arena = k.missing.arena = &c->session->arena;
    check_nodes(&k, c->proto->graph->node.at, c->proto->graph->node.len);
    return k.missing.len ? report(&k) : TN_OK;
}
