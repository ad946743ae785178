/* Graph IR to text. What it prints, parse.c reads back to the same graph and prints the same again. */
#include "graph/internal.h"

#include <string.h>

enum { LISTED_ELEMENTS = 64 }; /* larger constants print as raw bytes */

struct printer {
    tn_text *text;
    const tn_graph *graph;
    int64_t max_elements; /* < 0: print all */
    tn_map taken;         /* name -> the value in scope that has it */
    tn_map named;         /* values that print with their names */
    tn_map number;        /* value -> its number + 1 */
    uint64_t numbered;
};

/* ---- values ---------------------------------------------------------------------------------------------------------------- */

/* A name is taken while a value of this block or one around it has it; side by side, regions may use it again. */
static void take_name(struct printer *p, const tn_value *value)
{
    if (!value->name || !*value->name)
        return;
    void **cell = tn_map_at_str(&p->taken, value->name);
    if (*cell)
        return;
    *cell = (void *)value;
    *tn_map_at(&p->named, TN_KEY(value)) = (void *)value;
}

static void release_name(struct printer *p, const tn_value *value)
{
    if (tn_map_get(&p->named, TN_KEY(value)))
        *tn_map_at_str(&p->taken, value->name) = NULL;
}

/* Results are known only after their operation's regions, as in the text. */
static void take_names(struct printer *p, const tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        take_name(p, block->arg[i]);
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nregions; i++)
            take_names(p, op->region[i]);
        for (int i = 0; i < op->nresults; i++)
            take_name(p, &op->result[i]);
    }
    for (int i = 0; i < block->nargs; i++)
        release_name(p, block->arg[i]);
    for (const tn_op *op = block->first; op; op = op->next)
        for (int i = 0; i < op->nresults; i++)
            release_name(p, &op->result[i]);
}

static void number_value(struct printer *p, const tn_value *value)
{
    if (!tn_map_get(&p->named, TN_KEY(value)))
        *tn_map_at(&p->number, TN_KEY(value)) = (void *)(uintptr_t)++p->numbered;
}

static void number_values(struct printer *p, const tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        number_value(p, block->arg[i]);
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nresults; i++)
            number_value(p, &op->result[i]);
        for (int i = 0; i < op->nregions; i++)
            number_values(p, op->region[i]);
    }
}

static void print_value(struct printer *p, const tn_value *value)
{
    tn_text_add(p->text, "%%");
    uintptr_t number = (uintptr_t)tn_map_get(&p->number, TN_KEY(value));
    if (number)
        tn_text_add(p->text, "%zu", (size_t)number - 1);
    else
        tn_text_symbol(p->text, value->name);
}

static void print_typed(struct printer *p, const tn_value *value)
{
    print_value(p, value);
    tn_text_add(p->text, ": ");
    tn_text_type(p->text, &value->type);
}

/* ---- constants --------------------------------------------------------------------------------------------------------------- */

/* Reading the text of the element back must give its bits: not so for NaNs other than the usual one. */
static bool element_reads_back(const tn_tensor *tensor, int64_t i, tn_arena *arena)
{
    tn_number value = tn_tensor_at(tensor, i), again;
    char bits[16] = {0}, bits_again[16] = {0};
    int size = tn_dtype_bits(tensor->dtype) / 8;
    tn_text text = {.arena = arena};
    if (!tn_is_float(tensor->dtype) && !tn_is_complex(tensor->dtype))
        return true;
    memcpy(bits, (const char *)tensor->data + (tensor->splat ? 0 : i * size), (size_t)size);
    tn_text_number(&text, tensor->dtype, value);
    if (!tn_number_parse(tensor->dtype, text.at, &again))
        return false;
    tn_number_store(tensor->dtype, bits_again, 0, again);
    return memcmp(bits, bits_again, sizeof bits) == 0;
}

static bool reads_back(const tn_tensor *tensor, int64_t stored, tn_arena *arena)
{
    for (int64_t i = 0; i < stored; i++)
        if (!element_reads_back(tensor, i, arena))
            return false;
    return true;
}

static void print_bytes(tn_text *text, const tn_tensor *tensor, int64_t stored)
{
    size_t bytes = 0;
    const unsigned char *data = tensor->data;
    tn_dtype_bytes(tensor->dtype, stored, &bytes);
    tn_text_add(text, "\"0x");
    for (size_t i = 0; i < bytes; i++) {
        char hex[2] = {"0123456789abcdef"[data[i] >> 4], "0123456789abcdef"[data[i] & 15]};
        tn_text_put(text, hex, 2);
    }
    tn_text_add(text, "\"");
}

static void print_elements(tn_text *text, const tn_tensor *tensor, int axis, int64_t *next)
{
    if (axis == tensor->rank) {
        tn_text_number(text, tensor->dtype, tn_tensor_at(tensor, (*next)++));
        return;
    }
    tn_text_add(text, "[");
    for (int64_t i = 0; i < tensor->dim[axis]; i++) {
        tn_text_add(text, i ? ", " : "");
        print_elements(text, tensor, axis + 1, next);
    }
    tn_text_add(text, "]");
}

static void print_tensor(struct printer *p, const tn_tensor *tensor)
{
    int64_t count = 0, next = 0;
    tn_tensor_count(tensor, &count);
    int64_t stored = tensor->splat && count > 0 ? 1 : count;
    tn_text_add(p->text, "dense<");
    if (count == 0)
        tn_text_add(p->text, "[]");
    else if (p->max_elements >= 0 && stored > p->max_elements)
        tn_text_add(p->text, "...");
    else if (stored > LISTED_ELEMENTS || !reads_back(tensor, stored, p->text->arena))
        print_bytes(p->text, tensor, stored);
    else if (tensor->splat)
        tn_text_number(p->text, tensor->dtype, tn_tensor_at(tensor, 0));
    else
        print_elements(p->text, tensor, 0, &next);
    tn_text_add(p->text, ">");
}

/* ---- operations --------------------------------------------------------------------------------------------------------------- */

static void print_ints(tn_text *text, const int64_t *list, int n)
{
    tn_text_add(text, "[");
    for (int i = 0; i < n; i++)
        tn_text_add(text, "%s%lld", i ? ", " : "", (long long)list[i]);
    tn_text_add(text, "]");
}

static void print_attr(struct printer *p, const tn_attr *attr)
{
    switch (tn_attr_kind_of(attr->name)) {
    case TN_ATTR_INT:
        tn_text_add(p->text, "%lld", (long long)attr->i);
        break;
    case TN_ATTR_INTS:
        print_ints(p->text, attr->ints, attr->n);
        break;
    case TN_ATTR_DIM:
        tn_text_dim(p->text, attr->dim);
        break;
    case TN_ATTR_DIMS:
        tn_text_dims(p->text, attr->dims, attr->n);
        break;
    case TN_ATTR_BOOL:
        tn_text_add(p->text, attr->i ? "true" : "false");
        break;
    case TN_ATTR_FLOAT:
        tn_text_double(p->text, attr->f);
        break;
    case TN_ATTR_STRING:
        tn_text_symbol(p->text, attr->s);
        break;
    case TN_ATTR_DTYPE:
        tn_text_add(p->text, "%s", tn_dtype_text((tn_dtype)attr->i));
        break;
    case TN_ATTR_TENSOR:
        print_tensor(p, attr->tensor);
        break;
    }
}

/* Operands and attributes, separated by commas; a constant's value stands like an operand. */
static void print_arguments(struct printer *p, const tn_op *op)
{
    const struct tn_op_row *row = tn_op_row_of(op->code);
    const char *separator = " ";
    for (int i = 0; i < op->noperands; i++, separator = ", ") {
        tn_text_add(p->text, "%s", separator);
        print_value(p, tn_operand(op, i));
    }
    for (int i = 0; row->attr[i].name != TN_ATTR_COUNT; i++) {
        const tn_attr *attr = tn_find_attr(op, row->attr[i].name);
        if (!attr)
            continue;
        tn_text_add(p->text, "%s", separator);
        separator = ", ";
        if (attr->name != TN_A_value)
            tn_text_add(p->text, "%s = ", tn_attr_text(attr->name));
        print_attr(p, attr);
        if (attr->name == TN_A_value && attr->tensor->name) {
            tn_text_add(p->text, ", name = ");
            tn_text_symbol(p->text, attr->tensor->name);
        }
    }
}

static void indent(struct printer *p, int depth) { tn_text_add(p->text, "%*s", 2 * depth, ""); }

static void print_block(struct printer *p, const tn_block *block, int depth);

static void print_region(struct printer *p, const tn_block *block, int depth)
{
    tn_text_add(p->text, " {\n");
    if (block->nargs > 0) {
        indent(p, depth);
        tn_text_add(p->text, "^(");
        for (int i = 0; i < block->nargs; i++) {
            tn_text_add(p->text, i ? ", " : "");
            print_typed(p, block->arg[i]);
        }
        tn_text_add(p->text, "):\n");
    }
    print_block(p, block, depth + 1);
    indent(p, depth);
    tn_text_add(p->text, "}");
}

static void print_op(struct printer *p, const tn_op *op, int depth)
{
    indent(p, depth);
    for (int i = 0; i < op->nresults; i++) {
        tn_text_add(p->text, i ? ", " : "");
        print_value(p, &op->result[i]);
    }
    tn_text_add(p->text, "%s%s", op->nresults ? " = " : "", tn_op_name(op->code));
    print_arguments(p, op);
    for (int i = 0; i < op->nresults; i++) {
        tn_text_add(p->text, i ? ", " : " : ");
        tn_text_type(p->text, &op->result[i].type);
    }
    for (int i = 0; i < op->nregions; i++)
        print_region(p, op->region[i], depth);
    tn_text_add(p->text, "\n");
}

static void print_block(struct printer *p, const tn_block *block, int depth)
{
    for (const tn_op *op = block->first; op; op = op->next)
        print_op(p, op, depth);
}

/* ---- symbols ---------------------------------------------------------------------------------------------------------------------- */

static void note_symbol(void *context, tn_dim symbol) { *tn_map_at_str(context, symbol->name) = (void *)symbol; }

static void note_type_symbols(tn_map *symbols, const tn_type *type)
{
    for (int i = 0; i < type->rank; i++)
        tn_dim_symbols(type->dim[i], note_symbol, symbols);
}

static void note_attr_symbols(tn_map *symbols, const tn_attr *attr)
{
    if (tn_attr_kind_of(attr->name) == TN_ATTR_DIM)
        tn_dim_symbols(attr->dim, note_symbol, symbols);
    for (int i = 0; tn_attr_kind_of(attr->name) == TN_ATTR_DIMS && i < attr->n; i++)
        tn_dim_symbols(attr->dims[i], note_symbol, symbols);
}

static void note_symbols(tn_map *symbols, const tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        note_type_symbols(symbols, &block->arg[i]->type);
    for (const tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nattrs; i++)
            note_attr_symbols(symbols, &op->attr[i]);
        for (int i = 0; i < op->nresults; i++)
            note_type_symbols(symbols, &op->result[i].type);
        for (int i = 0; i < op->nregions; i++)
            note_symbols(symbols, op->region[i]);
    }
}

static void print_symbols(struct printer *p)
{
    tn_map symbols = {.arena = p->text->arena};
    note_symbols(&symbols, p->graph->body);
    for (size_t i = 0; i < symbols.len; i++) {
        tn_dim symbol = tn_map_value(&symbols, i);
        if (tn_dim_has_default_facts(symbol))
            continue;
        tn_text_add(p->text, "symbols ");
        tn_text_symbol(p->text, symbol->name);
        tn_text_add(p->text, " in [%lld, %lld]", (long long)symbol->lo, (long long)symbol->hi);
        if (symbol->multiple > 1)
            tn_text_add(p->text, " multiple %lld", (long long)symbol->multiple);
        tn_text_add(p->text, "\n");
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------------------- */

static void print_output_names(struct printer *p)
{
    const tn_op *end = tn_block_return(p->graph->body);
    bool any = false;
    for (int i = 0; end && p->graph->output_names && i < end->noperands; i++)
        any = any || p->graph->output_names[i];
    if (!any)
        return;
    tn_text_add(p->text, " -> (");
    for (int i = 0; i < end->noperands; i++) {
        const char *name = p->graph->output_names[i];
        tn_text_add(p->text, i ? ", " : "");
        if (!name)
            tn_text_add(p->text, "_");
        else if (strcmp(name, "_") == 0)
            tn_text_quoted(p->text, name);
        else
            tn_text_symbol(p->text, name);
    }
    tn_text_add(p->text, ")");
}

void tn_text_graph_elided(tn_text *text, const tn_graph *graph, int64_t max_elements)
{
    struct printer p = {.text = text, .graph = graph, .max_elements = max_elements};
    p.taken.arena = p.named.arena = p.number.arena = text->arena;
    take_names(&p, graph->body);
    number_values(&p, graph->body);
    print_symbols(&p);
    tn_text_add(text, "graph @");
    tn_text_symbol(text, graph->name);
    tn_text_add(text, "(");
    for (int i = 0; i < graph->body->nargs; i++) {
        tn_text_add(text, i ? ", " : "");
        print_typed(&p, graph->body->arg[i]);
    }
    tn_text_add(text, ")");
    print_output_names(&p);
    tn_text_add(text, " {\n");
    print_block(&p, graph->body, 1);
    tn_text_add(text, "}\n");
}

void tn_text_graph(tn_text *text, const tn_graph *graph) { tn_text_graph_elided(text, graph, -1); }
