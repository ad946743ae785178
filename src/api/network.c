/* Loading and describing networks. */
#include <stdlib.h>

#include "api/internal.h"

static const char *name_or_empty(const char *name) { return name ? name : ""; }

static void describe(tn_session *session, const char *name, const tn_type *type, tn_value_info *out)
{
    int64_t *dim = TN_NEW_ARRAY(&session->arena, int64_t, (size_t)type->rank + 1);
    const char **text = TN_NEW_ARRAY(&session->arena, const char *, (size_t)type->rank + 1);
    for (int d = 0; d < type->rank; d++) {
        tn_text t = {.arena = &session->arena};
        tn_text_dim(&t, type->dim[d]);
        text[d] = t.at;
        dim[d] = tn_dim_is_const(type->dim[d]) ? type->dim[d]->value : -1;
    }
    *out = (tn_value_info){name_or_empty(name), tn_dtype_to_dlpack(type->dtype), tn_dtype_text(type->dtype), type->rank, dim, text};
}

static void describe_all(tn_network *network)
{
    tn_session *session = network->session;
    const tn_block *body = network->graph->body;
    int outputs = body->last->noperands;
    network->inputs = TN_NEW_ARRAY(&session->arena, tn_value_info, (size_t)body->nargs + 1);
    network->outputs = TN_NEW_ARRAY(&session->arena, tn_value_info, (size_t)outputs + 1);
    for (int i = 0; i < body->nargs; i++)
        describe(session, body->arg[i]->name, &body->arg[i]->type, &network->inputs[i]);
    for (int i = 0; i < outputs; i++) {
        const tn_value *value = tn_operand(body->last, i);
        const char *name = network->graph->output_names ? network->graph->output_names[i] : NULL;
        describe(session, name ? name : value->name, &value->type, &network->outputs[i]);
    }
}

typedef struct load_call {
    tn_session *session;
    const char *path;
    bool text;
    const void *data;
    size_t size;
    tn_import_options options;
    tn_network *network;
    bool imported;
} load_call;

static tn_status parse_text(load_call *c)
{
    tn_model *model = &c->network->model;
    tn_file file;
    TN_TRY(tn_file_map(c->session, c->path, &file));
    TN_PUSH(&c->session->arena, &model->files, file);
    c->imported = true;
    const char *source = tn_strndup(&c->session->arena, file.data ? (const char *)file.data : "", file.size);
    TN_TRY(tn_graph_parse(c->session, c->path, source, file.size, &model->module));
    if (model->module->graphs.len == 0)
        return tn_error(c->session, TN_INVALID, (tn_loc){.file = c->path}, "expected a graph, found none");
    model->operators.arena = &c->session->arena;
    for (const tn_op *op = model->module->graphs.at[0]->body->first; op; op = op->next)
        if (!(tn_op_traits(op->code) & TN_TERMINATOR)) {
            void **uses = tn_map_at_str(&model->operators, tn_op_name(op->code));
            *uses = (char *)*uses + 1;
        }
    return tn_graph_verify(model->module->graphs.at[0]);
}

static tn_status load(void *argument)
{
    load_call *c = argument;
    tn_network *n = c->network;
    TN_TRY(c->text   ? parse_text(c)
           : c->data ? tn_import_onnx_bytes(c->session, c->path, c->data, c->size, &c->options, &n->model)
                     : tn_import_onnx(c->session, c->path, &c->options, &n->model));
    c->imported = true;
    n->graph = n->model.module->graphs.at[0];
    n->file = tn_strdup(&c->session->arena, c->path ? c->path : "");
    describe_all(n);
    return TN_OK;
}

static tn_status start_load(load_call *c, const tn_load_options *options, tn_network **out)
{
    c->network = calloc(1, sizeof *c->network);
    if (!c->network)
        return TN_NO_MEMORY;
    c->network->session = c->session;
    if (options)
        c->options = (tn_import_options){.dim_name = options->dim_names, .dim_value = options->dim_sizes, .ndims = (int)options->ndims};
    tn_status status = tn_api_guard(c->session, load, c);
    if (status == TN_OK) {
        *out = c->network;
        return TN_OK;
    }
    if (c->imported)
        tn_model_free(&c->network->model);
    free(c->network);
    return status;
}

tn_status tn_load_onnx(tn_session *session, const char *path, const tn_load_options *options, tn_network **out)
{
    load_call c = {.session = session, .path = path};
    return session && path && out ? start_load(&c, options, out) : TN_USAGE;
}

tn_status tn_load_onnx_bytes(tn_session *session, const char *name, const void *data, size_t size, const tn_load_options *options, tn_network **out)
{
    load_call c = {.session = session, .path = name, .data = data ? data : "", .size = size};
    return session && out && (data || size == 0) ? start_load(&c, options, out) : TN_USAGE;
}

tn_status tn_load_text(tn_session *session, const char *path, tn_network **out)
{
    load_call c = {.session = session, .path = path, .text = true};
    return session && path && out ? start_load(&c, NULL, out) : TN_USAGE;
}

void tn_network_free(tn_network *network)
{
    if (!network)
        return;
    tn_model_free(&network->model);
    free(network);
}

size_t tn_input_count(const tn_network *network)
{
    return network ? (size_t)network->graph->body->nargs : 0;
}

size_t tn_output_count(const tn_network *network)
{
    return network ? (size_t)network->graph->body->last->noperands : 0;
}

tn_status tn_input_info(const tn_network *network, size_t i, tn_value_info *out)
{
    if (!out || i >= tn_input_count(network))
        return TN_USAGE;
    *out = network->inputs[i];
    return TN_OK;
}

tn_status tn_output_info(const tn_network *network, size_t i, tn_value_info *out)
{
    if (!out || i >= tn_output_count(network))
        return TN_USAGE;
    *out = network->outputs[i];
    return TN_OK;
}

size_t tn_operator_count(const tn_network *network)
{
    return network ? network->model.operators.len : 0;
}

tn_status tn_operator_info(const tn_network *network, size_t i, const char **name, int64_t *uses)
{
    if (!name || !uses || i >= tn_operator_count(network))
        return TN_USAGE;
    *name = tn_map_key_str(&network->model.operators, i);
    *uses = (int64_t)(intptr_t)tn_map_value(&network->model.operators, i);
    return TN_OK;
}
