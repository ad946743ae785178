/* The walk over a model: inputs, initializers, nodes in order, function bodies inlined, subgraphs into regions. */
#include <string.h>

#include "import/onnx/internal.h"

/* What inlining and unrolling may come to: a fixed number of nodes, and a multiple of what the file has. */
enum { MAX_NESTING = 40, FREE_NODES = 1 << 17, NODES_A_NODE = 16 };

/* Names of one graph, subgraph or function body. */
typedef struct onnx_scope {
    struct onnx_scope *outer;        /* whose names are visible; NULL for the model's graph and a function's body */
    const struct onnx_scope *caller; /* of a function's body */
    const onnx_function *function;   /* whose body this is, or is inside of */
    const onnx_node *call;           /* that inlines it */
    const onnx_opset *const *opsets;
    size_t nopsets;
    onnx_node_proto *const *nodes;
    size_t nnodes;
    tn_map values; /* name -> tn_value *, or one of the two marks */
} onnx_scope;

/* Marks: a value whose node met a diagnostic (users are passed over in silence), an optional input that the caller left
 * out. */
static const char failed_mark, omitted_mark;
#define FAILED ((void *)&failed_mark)
#define OMITTED ((void *)&omitted_mark)

static bool fail(onnx_ctx *c, tn_status status, tn_loc loc, const char *what, const char *name)
{
    tn_error(c->session, status, loc, what, name);
    return false;
}

static tn_loc here(const onnx_ctx *c)
{
    return (tn_loc){.file = c->path};
}

/* ---- names
 * --------------------------------------------------------------------------------------------------------------------
 */

static void *lookup(const onnx_ctx *c, const char *name)
{
    for (const onnx_scope *s = c->scope; s; s = s->outer) {
        void *value = tn_map_get_str(&s->values, name);
        if (value)
            return value;
    }
    return NULL;
}

static bool define(onnx_ctx *c, tn_loc loc, const char *name, void *value)
{
    void **cell = tn_map_at_str(&c->scope->values, name);
    if (*cell)
        return fail(c, TN_INVALID, loc,
                    "the name '%s' is defined twice; every value of a graph needs a name of its own", name);
    *cell = value;
    return true;
}

/* Why a name is not there: defined later (unsorted, or a cycle), or nowhere. */
static void undefined(onnx_ctx *c, const onnx_node *n, const char *name)
{
    for (const onnx_scope *s = c->scope; s; s = s->outer)
        for (size_t i = 0; i < s->nnodes; i++)
            for (size_t j = 0; j < s->nodes[i]->output.len; j++)
                if (onnx_is(s->nodes[i]->output.at[j], name)) {
                    onnx_error(c, n,
                               "input '%s' is computed only by a later node: nodes must be in topological order, "
                               "without cycles",
                               name);
                    return;
                }
    onnx_error(c, n, "input '%s' is defined nowhere in the graph", name);
}

/* ---- types
 * --------------------------------------------------------------------------------------------------------------------
 */

static bool letter(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

/* A file's text as a name of the IR's text form: letters, digits and _ . */
static const char *identifier(onnx_ctx *c, const char *text)
{
    char *out = tn_format(&c->session->arena, "%s%s", letter(text[0]) ? "" : "d_", text);
    for (char *p = out; *p; p++)
        if (!letter(*p) && !(*p >= '0' && *p <= '9'))
            *p = '_';
    return out;
}

static tn_dim named_dim(onnx_ctx *c, const char *name)
{
    void **cell = tn_map_at_str(&c->symbols, name);
    if (*cell)
        return *cell;
    tn_dim dim = NULL;
    for (int i = 0; c->options && i < c->options->ndims; i++)
        if (!strcmp(c->options->dim_name[i], name))
            dim = tn_dim_const(c->session, c->options->dim_value[i]);
    const char *symbol = identifier(c, name);
    if (!dim)
        dim = strcmp(symbol, name) ? tn_dim_fresh(c->session, symbol, 0, (int64_t)1 << 40)
                                   : tn_dim_symbol(c->session, symbol);
    *cell = (void *)dim;
    return dim;
}

static bool info_dim(onnx_ctx *c, tn_loc loc, const onnx_dimension *d, const char *hint, int i, tn_dim *out)
{
    if (d->has & 1) {
        if (d->dim_value < 0)
            return fail(c, TN_INVALID, loc, "'%s' has a negative dimension", hint);
        *out = tn_dim_const(c->session, d->dim_value);
    } else if (d->dim_param.len) {
        *out = named_dim(c, onnx_text(c, d->dim_param));
    } else {
        *out = named_dim(c, tn_format(&c->session->arena, "%s_dim%d", hint, i));
    }
    return true;
}

bool onnx_info_type(onnx_ctx *c, tn_loc loc, const onnx_info *info, const char *hint, tn_type *out)
{
    const onnx_type *type = info->type;
    const char *name = onnx_text(c, info->name);
    *out = (tn_type){0};
    if (!type || !type->tensor) {
        const char *kind = !type                 ? "no type"
                           : type->sequence      ? "a sequence"
                           : type->optional      ? "an optional"
                           : type->map           ? "a map"
                           : type->sparse_tensor ? "a sparse tensor"
                                                 : "no tensor";
        return fail(c, TN_UNSUPPORTED, loc,
                    tn_format(&c->session->arena, "'%%s' is %s; only tensors are supported", kind), name);
    }
    out->dtype = onnx_dtype(type->tensor->elem_type);
    if (out->dtype == TN_NO_DTYPE)
        return fail(c, TN_UNSUPPORTED, loc,
                    tn_format(&c->session->arena, "'%%s': element type %s (%lld) is not supported",
                              onnx_data_type_name(type->tensor->elem_type), (long long)type->tensor->elem_type),
                    name);
    const onnx_shape *shape = type->tensor->shape;
    if (!shape)
        return fail(c, TN_UNSUPPORTED, loc, "'%s' has no shape; its rank must be known (sizes need not be)", name);
    if (shape->dim.len > TN_MAX_RANK)
        return fail(c, TN_UNSUPPORTED, loc, "'%s' has more than 12 dimensions", name);
    out->rank = (int)shape->dim.len;
    for (int i = 0; i < out->rank; i++)
        if (!info_dim(c, loc, shape->dim.at[i], hint, i, &out->dim[i]))
            return false;
    return true;
}

/* ---- one node
 * ------------------------------------------------------------------------------------------------------------------ */

static const onnx_attribute *function_attribute(onnx_ctx *c, const char *name)
{
    const onnx_scope *s = c->scope;
    for (int i = 0; s->call && i < s->call->nattributes; i++)
        if (onnx_is(s->call->attribute[i]->name, name))
            return s->call->attribute[i];
    for (size_t i = 0; s->function && i < s->function->attribute_proto.len; i++)
        if (onnx_is(s->function->attribute_proto.at[i]->name, name))
            return s->function->attribute_proto.at[i];
    return NULL;
}

/* The node's attributes; a reference to an attribute of the enclosing function is replaced by what the call gives, or
 * left out. */
static void read_attributes(onnx_ctx *c, const onnx_node_proto *p, onnx_node *n)
{
    n->attribute = TN_NEW_ARRAY(&c->session->arena, const onnx_attribute *, p->attribute.len + 1);
    for (size_t i = 0; i < p->attribute.len; i++) {
        const onnx_attribute *a = p->attribute.at[i];
        if (a->ref_attr_name.len) {
            const onnx_attribute *given = function_attribute(c, onnx_text(c, a->ref_attr_name));
            if (!given)
                continue;
            onnx_attribute *copy = tn_memdup(&c->session->arena, given, sizeof *given);
            copy->name = a->name;
            a = copy;
        }
        n->attribute[n->nattributes++] = a;
    }
}

/* False when an input is missing (reported) or failed before (silent). */
static bool read_inputs(onnx_ctx *c, const onnx_node_proto *p, onnx_node *n)
{
    bool ok = true;
    for (int i = 0; i < n->ninputs; i++) {
        n->input_name[i] = onnx_text(c, p->input.at[i]);
        if (!n->input_name[i][0])
            continue;
        void *value = lookup(c, n->input_name[i]);
        if (!value)
            undefined(c, n, n->input_name[i]);
        ok &= value && value != FAILED;
        n->input[i] = value == FAILED || value == OMITTED ? NULL : value;
    }
    while (ok && n->ninputs > 0 && !n->input[n->ninputs - 1])
        n->ninputs--;
    return ok;
}

static onnx_node *new_node(onnx_ctx *c, const onnx_node_proto *p)
{
    tn_arena *arena = &c->session->arena;
    onnx_node *n = TN_NEW(arena, onnx_node);
    n->op_type = onnx_text(c, p->op_type);
    n->domain = onnx_domain(c, p->domain);
    n->version = onnx_version(c->scope->opsets, c->scope->nopsets, n->domain);
    n->name = onnx_text(c, p->name.len || !p->output.len ? p->name : p->output.at[0]);
    n->loc = (tn_loc){.file = c->path, .node = n->name};
    n->ninputs = (int)tn_min((int64_t)p->input.len, INT32_MAX);
    n->noutputs = (int)tn_min((int64_t)p->output.len, INT32_MAX);
    n->input = TN_NEW_ARRAY(arena, tn_value *, p->input.len + 1);
    n->output = TN_NEW_ARRAY(arena, tn_value *, p->output.len + 1);
    n->input_name = TN_NEW_ARRAY(arena, const char *, p->input.len + 1);
    n->output_name = TN_NEW_ARRAY(arena, const char *, p->output.len + 1);
    for (int i = 0; i < n->noutputs; i++)
        n->output_name[i] = onnx_text(c, p->output.at[i]);
    return n;
}

static bool inline_function(onnx_ctx *c, const onnx_node *n, const onnx_function *f);

static bool required_inputs(onnx_ctx *c, const onnx_node *n, int required)
{
    for (int i = 0; i < required; i++)
        if (!onnx_in(n, i))
            return onnx_error(c, n, "needs %d input%s, number %d is missing", required, required == 1 ? "" : "s", i);
    return true;
}

/* Sequences exist only while importing; most operators cannot take one. */
static bool only_tensors(onnx_ctx *c, const onnx_node *n)
{
    if (!c->sequences.len || onnx_takes_sequences(n->op_type))
        return true;
    for (int i = 0; i < n->ninputs; i++)
        if (onnx_is_sequence(c, n->input[i]))
            return onnx_unsupported(c, n, "input '%s' is a sequence or an optional; only tensors are supported",
                                    n->input_name[i]);
    return true;
}

/* Known contents first: arithmetic on shapes needs no operations but those that give its result. */
static bool lower(onnx_ctx *c, const onnx_node *n, onnx_lower *function)
{
    onnx_contents k = {0};
    bool known = n->noutputs && onnx_shape_contents(c, n, &k), complete = known;
    for (int i = 0; known && i < k.count; i++)
        complete &= k.dim[i] != NULL;
    if (complete)
        return onnx_set_output(c, n, 0, onnx_dims_value(c, k.dtype, k.rank, k.dim, k.count));
    if (!function(c, n))
        return false;
    if (known && n->output[0] && tn_is_integer(k.dtype))
        onnx_set_known_dims(c, n->output[0], k.dim, k.count);
    return true;
}

static bool run_row(onnx_ctx *c, const onnx_node *n)
{
    const onnx_row *row = onnx_find_row(c, n->op_type, n->domain, n->version);
    if (!row)
        return onnx_unsupported(c, n, "the operator is not supported in version %lld of its domain",
                                (long long)n->version);
    if (!required_inputs(c, n, row->required) || !only_tensors(c, n) || !onnx_check_ranks(c, n))
        return false;
    tn_op *mark = c->b.block->last;
    if (!lower(c, n, row->function) || c->bad || c->b.failed)
        return false;
    onnx_fold_constants(c, n, mark);
    return !c->bad;
}

static bool define_outputs(onnx_ctx *c, const onnx_node *n, bool ok)
{
    for (int i = 0; i < n->noutputs; i++) {
        if (!onnx_wants(n, i))
            continue;
        if (ok && !n->output[i])
            ok = onnx_unsupported(c, n, "output %d ('%s') is not supported", i, n->output_name[i]);
        if (!define(c, n->loc, n->output_name[i], ok ? (void *)n->output[i] : FAILED))
            return false;
        if (ok && !n->output[i]->name)
            n->output[i]->name = n->output_name[i];
    }
    return true;
}

/* False only when it makes no sense to go on: a diagnostic about one node does not keep the others from being read. */
static bool read_node(onnx_ctx *c, const onnx_node_proto *p)
{
    if (c->stopped)
        return false;
    if (++c->nodes > FREE_NODES + NODES_A_NODE * c->proto->graph->node.len) {
        c->stopped = true;
        tn_error(c->session, TN_UNSUPPORTED, here(c),
                 "the model grows to more than %zu nodes when functions are inlined and loops unrolled", c->nodes - 1);
        return false;
    }
    onnx_node *n = new_node(c, p);
    c->opset = onnx_version(c->scope->opsets, c->scope->nopsets, "");
    c->b.loc = n->loc;
    c->b.failed = c->bad = false;
    bool ok = read_inputs(c, p, n);
    if (ok) {
        read_attributes(c, p, n);
        const onnx_function *f = onnx_find_function(c, n->op_type, n->domain, p->overload);
        ok = f ? inline_function(c, n, f) : run_row(c, n);
        if (!ok && c->session->errors == c->errors_before)
            onnx_unsupported(c, n, "this form of the operator is not supported");
    }
    return define_outputs(c, n, ok);
}

static bool read_nodes(onnx_ctx *c)
{
    for (size_t i = 0; i < c->scope->nnodes; i++) {
        if (c->session->progress && !c->scope->outer && !c->scope->function)
            c->session->progress(c->session->progress_context, "import", i, c->scope->nnodes);
        if (!read_node(c, c->scope->nodes[i]))
            return false;
    }
    return true;
}

/* ---- functions
 * ----------------------------------------------------------------------------------------------------------------- */

static bool recursive(const onnx_scope *scope, const onnx_function *f)
{
    for (const onnx_scope *s = scope; s; s = s->caller ? s->caller : s->outer)
        if (s->function == f)
            return true;
    return false;
}

static bool bind_function_inputs(onnx_ctx *c, const onnx_node *n, const onnx_function *f)
{
    for (size_t i = 0; i < f->input.len; i++) {
        tn_value *value = onnx_in(n, (int)i);
        if (!define(c, n->loc, onnx_text(c, f->input.at[i]), value ? (void *)value : OMITTED))
            return false;
    }
    return true;
}

static bool function_outputs(onnx_ctx *c, const onnx_node *n, const onnx_function *f)
{
    for (int i = 0; i < n->noutputs; i++) {
        if (!onnx_wants(n, i))
            continue;
        if ((size_t)i >= f->output.len)
            return onnx_error(c, n, "the function has %zu outputs, the node names more", f->output.len);
        void *value = lookup(c, onnx_text(c, f->output.at[i]));
        if (!value || value == OMITTED)
            return onnx_error(c, n, "the function does not compute its output '%s'", onnx_text(c, f->output.at[i]));
        if (value == FAILED)
            return false;
        n->output[i] = value;
    }
    return true;
}

static bool inline_function(onnx_ctx *c, const onnx_node *n, const onnx_function *f)
{
    onnx_scope *outer = c->scope;
    if (recursive(outer, f))
        return onnx_error(c, n, "the function calls itself");
    if (c->depth >= MAX_NESTING)
        return onnx_error(c, n, "functions and subgraphs are nested more than %d deep", MAX_NESTING);
    onnx_scope scope = {.caller = outer,
                        .function = f,
                        .call = n,
                        .nodes = f->node.at,
                        .nnodes = f->node.len,
                        .values.arena = &c->session->arena};
    scope.opsets = f->opset_import.len ? (const onnx_opset *const *)f->opset_import.at : outer->opsets;
    scope.nopsets = f->opset_import.len ? f->opset_import.len : outer->nopsets;
    c->scope = &scope;
    c->depth++;
    size_t errors = c->session->errors;
    bool ok =
        bind_function_inputs(c, n, f) && read_nodes(c) && c->session->errors == errors && function_outputs(c, n, f);
    c->depth--;
    c->scope = outer;
    return ok;
}

/* ---- graphs
 * --------------------------------------------------------------------------------------------------------------------
 */

/* n: the node whose subgraph this is; NULL: the model's own graph, read once. */
static bool read_initializers(onnx_ctx *c, const onnx_node *n, const onnx_graph *graph)
{
    if (graph->sparse_initializer.len)
        return fail(c, TN_UNSUPPORTED, here(c), "%s are not supported", "sparse initializers");
    for (size_t i = 0; i < graph->initializer.len; i++) {
        tn_tensor *t = TN_NEW(&c->session->arena, tn_tensor);
        tn_loc loc = {.file = c->path, .node = onnx_text(c, graph->initializer.at[i]->name)};
        c->b.loc = loc;
        void *value = FAILED;
        if (onnx_tensor_data(c->session, c, loc, graph->initializer.at[i], t) == TN_OK &&
            (!n || onnx_charge_copy(c, n, graph->initializer.at[i], t)))
            value = tn_constant(&c->b, t);
        if (!define(c, loc, loc.node, value ? value : FAILED))
            return false;
    }
    return true;
}

static bool graph_outputs(onnx_ctx *c, const onnx_graph *graph, tn_value **outputs)
{
    for (size_t i = 0; i < graph->output.len; i++) {
        const char *name = onnx_text(c, graph->output.at[i]->name);
        void *value = lookup(c, name);
        if (!value)
            return fail(c, TN_INVALID, here(c), "the graph's output '%s' is computed nowhere", name);
        if (value == FAILED)
            return false;
        outputs[i] = value;
    }
    return true;
}

bool onnx_subgraph(onnx_ctx *c, const onnx_node *n, const onnx_graph *graph, tn_block *block, tn_value *const *inputs,
                   int ninputs, tn_value **outputs)
{
    tn_builder b = c->b;
    onnx_scope *outer = c->scope;
    int64_t opset = c->opset;
    if ((int)graph->input.len != ninputs)
        return onnx_error(c, n, "the subgraph '%s' has %zu inputs, expected %d", onnx_text(c, graph->name),
                          graph->input.len, ninputs);
    if (c->depth >= MAX_NESTING)
        return onnx_error(c, n, "functions and subgraphs are nested more than %d deep", MAX_NESTING);
    onnx_scope scope = *outer;
    scope.outer = outer;
    scope.nodes = graph->node.at;
    scope.nnodes = graph->node.len;
    scope.values = (tn_map){.arena = &c->session->arena};
    onnx_region region = {block, c->region};
    c->scope = &scope;
    c->region = &region;
    c->depth++;
    if (block != b.block)
        c->b = tn_builder_at_end(block, n->loc);
    size_t errors = c->session->errors;
    bool ok = true;
    for (int i = 0; ok && i < ninputs; i++)
        ok = define(c, n->loc, onnx_text(c, graph->input.at[i]->name), inputs[i]);
    ok = ok && read_initializers(c, n, graph) && read_nodes(c) && c->session->errors == errors &&
         graph_outputs(c, graph, outputs);
    c->depth--;
    c->region = region.outer;
    c->scope = outer;
    c->opset = opset;
    c->b = b;
    c->b.failed = c->bad = !ok;
    return ok;
}

static bool is_initializer(const onnx_ctx *c, const char *name)
{
    return tn_map_get_str(&c->scope->values, name) != NULL;
}

static bool read_graph_inputs(onnx_ctx *c, const onnx_graph *graph, tn_graph *out)
{
    for (size_t i = 0; i < graph->input.len; i++) {
        const char *name = onnx_text(c, graph->input.at[i]->name);
        tn_loc loc = {.file = c->path, .node = name};
        tn_type type;
        if (is_initializer(c, name))
            continue;
        tn_value *input = onnx_info_type(c, loc, graph->input.at[i], name, &type) ? tn_graph_input(out, name, &type) : NULL;
        if (!input || !define(c, loc, name, input))
            return false;
    }
    return true;
}

/* Every --dim must name a dimension that the model has. */
static bool check_dim_options(onnx_ctx *c)
{
    for (int i = 0; c->options && i < c->options->ndims; i++) {
        if (tn_map_get_str(&c->symbols, c->options->dim_name[i]))
            continue;
        tn_text names = {.arena = &c->session->arena};
        for (size_t j = 0; j < c->symbols.len; j++)
            tn_text_add(&names, "%s%s", j ? ", " : "", tn_map_key_str(&c->symbols, j));
        tn_error(c->session, TN_USAGE, here(c), "no input has a dimension named '%s'; named dimensions: %s",
                 c->options->dim_name[i], names.len ? names.at : "none");
        return false;
    }
    return true;
}

static bool read_model_graph(onnx_ctx *c, tn_graph *out)
{
    const onnx_graph *graph = c->proto->graph;
    onnx_scope scope = {.opsets = (const onnx_opset *const *)c->proto->opset_import.at,
                        .nopsets = c->proto->opset_import.len,
                        .nodes = graph->node.at,
                        .nnodes = graph->node.len,
                        .values.arena = &c->session->arena};
    onnx_region region = {out->body, NULL};
    tn_value **outputs = TN_NEW_ARRAY(&c->session->arena, tn_value *, graph->output.len + 1);
    c->scope = &scope;
    c->region = &region;
    c->b = tn_builder_at_end(out->body, here(c));
    if (!read_initializers(c, NULL, graph) || !read_graph_inputs(c, graph, out) || !check_dim_options(c) ||
        !read_nodes(c) || c->session->errors != c->errors_before || !graph_outputs(c, graph, outputs))
        return false;
    for (size_t i = 0; i < graph->output.len; i++)
        if (onnx_is_sequence(c, outputs[i]))
            return fail(c, TN_UNSUPPORTED, here(c),
                        "the graph's output '%s' is a sequence or an optional; only tensors are supported",
                        onnx_text(c, graph->output.at[i]->name));
    out->output_names = TN_NEW_ARRAY(&c->session->arena, const char *, graph->output.len + 1);
    for (size_t i = 0; i < graph->output.len; i++)
        out->output_names[i] = onnx_text(c, graph->output.at[i]->name);
    c->b.loc = here(c);
    tn_return(&c->b, outputs, (int)graph->output.len);
    onnx_sweep(out->body);
    return true;
}

/* ---- the model
 * ----------------------------------------------------------------------------------------------------------------- */

static tn_status check_versions(onnx_ctx *c)
{
    enum { NEWEST_IR = 14, NEWEST_OPSET = 28 };
    const onnx_model *m = c->proto;
    if (!m->graph)
        return tn_error(c->session, TN_INVALID, here(c), "not an ONNX model: it has no graph");
    if (m->ir_version > NEWEST_IR)
        return tn_error(c->session, TN_UNSUPPORTED, here(c), "IR version %lld; the newest that is supported is %d",
                        (long long)m->ir_version, NEWEST_IR);
    c->model->opset = onnx_version((const onnx_opset *const *)m->opset_import.at, m->opset_import.len, "");
    if (c->model->opset > NEWEST_OPSET)
        return tn_error(c->session, TN_UNSUPPORTED, here(c),
                        "version %lld of the operator set ai.onnx; the newest that is supported is %d",
                        (long long)c->model->opset, NEWEST_OPSET);
    return TN_OK;
}

/* The status of the first error, which is what the caller should act on. */
static tn_status first_error(const onnx_ctx *c)
{
    for (size_t i = c->diags_before; i < c->session->diags.len; i++)
        if (c->session->diags.at[i].severity == TN_ERROR)
            return c->session->diags.at[i].status;
    return TN_INVALID;
}

static tn_status import(onnx_ctx *c, const uint8_t *data, size_t size)
{
    onnx_model *proto;
    tn_arena *arena = &c->session->arena;
    TN_TRY(onnx_decode_model(c->session, c->path, data, size, &proto));
    c->proto = proto;
    TN_TRY(check_versions(c));
    c->model->producer = onnx_text(c, proto->producer_name);
    TN_TRY(onnx_check_operators(c));
    tn_graph_module *module = TN_NEW(arena, tn_graph_module);
    module->session = c->session;
    const char *name = onnx_text(c, proto->graph->name);
    tn_graph *graph = tn_graph_new(c->session, name[0] ? identifier(c, name) : "main");
    TN_PUSH(arena, &module->graphs, graph);
    if (!read_model_graph(c, graph))
        return first_error(c);
    c->model->module = module;
    return TN_OK;
}

static tn_status import_file(tn_session *session, const char *path, const uint8_t *data, size_t size,
                             const tn_import_options *options, tn_model *out)
{
    tn_arena *arena = &session->arena;
    onnx_ctx c = {.session = session,
                  .options = options,
                  .model = out,
                  .path = path ? tn_strdup(arena, path) : NULL,
                  .errors_before = session->errors,
                  .diags_before = session->diags.len};
    c.known.arena = c.sequences.arena = c.operators.arena = c.functions.arena = c.files.arena = c.symbols.arena = arena;
    out->format = "onnx";
    out->operators.arena = arena;
    tn_status status = import(&c, data, size);
    if (status != TN_OK)
        tn_model_free(out);
    return status;
}

tn_status tn_import_onnx_bytes(tn_session *session, const char *path, const uint8_t *data, size_t size,
                               const tn_import_options *options, tn_model *out)
{
    *out = (tn_model){0};
    return import_file(session, path, data, size, options, out);
}

tn_status tn_import_onnx(tn_session *session, const char *path, const tn_import_options *options, tn_model *out)
{
    tn_file file;
    *out = (tn_model){0};
    TN_TRY(tn_file_map(session, path, &file));
    TN_PUSH(&session->arena, &out->files, file);
    return import_file(session, path, file.data, file.size, options, out);
}

void tn_model_free(tn_model *model)
{
    for (size_t i = 0; i < model->files.len; i++)
        tn_file_unmap(&model->files.at[i]);
    model->files.len = 0;
}
