/* Text to Graph IR: the form that print.c writes, with free white space and `//` comments. The grammar stands over the
 * functions. Recursive descent; the first error ends the parse, since what follows it would mostly be its echo. */
#include "graph/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REGION_DEPTH = 64 };

struct parser {
    tn_session *session;
    const char *file;
    const char *at, *end, *line_start;
    int line;
    tn_graph *graph;
    tn_map values;               /* name -> tn_value *; NULL after its region ended */
    TN_VEC(const char *) scoped; /* names in order of definition: a region's are dropped at its end */
    int depth;
};

/* A list that grows; the arena holds it. */
typedef TN_VEC(tn_value *) value_list;
typedef TN_VEC(tn_type) type_list;
typedef TN_VEC(tn_attr) attr_list;
typedef TN_VEC(tn_block *) block_list;
typedef TN_VEC(const char *) name_list;

/* ---- characters -------------------------------------------------------------------------------------------------------------- */

static tn_loc here(const struct parser *p)
{
    return (tn_loc){.file = p->file, .line = p->line, .column = (int)(p->at - p->line_start) + 1};
}

__attribute__((format(printf, 2, 3))) static bool fail(struct parser *p, const char *format, ...)
{
    va_list args;
    tn_text text = {.arena = &p->session->arena};
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    tn_error(p->session, TN_INVALID, here(p), "%s", text.at);
    return false;
}

static void skip_space(struct parser *p)
{
    for (;;) {
        if (*p->at == '\n') {
            p->at++;
            p->line++;
            p->line_start = p->at;
        } else if (isspace((unsigned char)*p->at)) {
            p->at++;
        } else if (p->at[0] == '/' && p->at[1] == '/') {
            while (*p->at && *p->at != '\n')
                p->at++;
        } else {
            return;
        }
    }
}

static const char *found(struct parser *p)
{
    int n = 0;
    while (n < 20 && (isalnum((unsigned char)p->at[n]) || p->at[n] == '_'))
        n++;
    return *p->at == '\0' ? "the end of the text" : tn_format(&p->session->arena, "'%.*s'", n ? n : 1, p->at);
}

static bool peek(struct parser *p, char c)
{
    skip_space(p);
    return *p->at == c;
}

static bool eat(struct parser *p, char c)
{
    if (!peek(p, c))
        return false;
    p->at++;
    return true;
}

static bool expect(struct parser *p, char c) { return eat(p, c) || fail(p, "expected '%c', found %s", c, found(p)); }

static bool is_word_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static bool eat_word(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    skip_space(p);
    if (strncmp(p->at, word, n) != 0 || is_word_char(p->at[n]))
        return false;
    p->at += n;
    return true;
}

/* identifier or "quoted" */
static bool read_name(struct parser *p, const char *what, const char **out)
{
    skip_space(p);
    size_t used = tn_symbol_parse(p->session, p->at, out);
    p->at += used;
    return used || fail(p, "expected %s, found %s", what, found(p));
}

/* letters, digits, '_' and '.', or "quoted" */
static bool read_string(struct parser *p, const char **out)
{
    skip_space(p);
    size_t n = 0;
    if (*p->at == '"')
        return read_name(p, "a string", out);
    while (is_word_char(p->at[n]))
        n++;
    if (n == 0)
        return fail(p, "expected a string, found %s", found(p));
    *out = tn_intern(p->session, p->at, n);
    p->at += n;
    return true;
}

static bool read_int(struct parser *p, int64_t *out)
{
    skip_space(p);
    char *stop;
    errno = 0;
    long long value = strtoll(p->at, &stop, 10);
    if (stop == p->at || errno)
        return fail(p, "expected an integer of 64 bits, found %s", found(p));
    p->at = stop;
    *out = value;
    return true;
}

static bool read_double(struct parser *p, double *out)
{
    skip_space(p);
    tn_number number;
    size_t used = tn_number_parse(TN_F64, p->at, &number);
    p->at += used;
    *out = number.f;
    return used || fail(p, "expected a number, found %s", found(p));
}

static bool read_bool(struct parser *p, int64_t *out)
{
    *out = eat_word(p, "true");
    return *out || eat_word(p, "false") || fail(p, "expected true or false, found %s", found(p));
}

static bool read_dim(struct parser *p, tn_dim *out)
{
    skip_space(p);
    size_t errors = p->session->errors, used = tn_dim_parse(p->session, p->at, out);
    if (p->session->errors != errors)
        return fail(p, "in this dimension");
    p->at += used;
    return used || fail(p, "expected a dimension, found %s", found(p));
}

static bool read_dtype(struct parser *p, tn_dtype *out)
{
    size_t n = 0;
    skip_space(p);
    while (isalnum((unsigned char)p->at[n]))
        n++;
    *out = tn_dtype_from_text(p->at, n);
    if (*out == TN_NO_DTYPE)
        return fail(p, "expected an element type (f32, i64, bool, …), found %s", found(p));
    p->at += n;
    return true;
}

/* "[" [item {"," item}] "]": calls read for each item. */
static bool read_list(struct parser *p, bool (*read)(struct parser *p, void *list), void *list)
{
    if (!expect(p, '['))
        return false;
    if (eat(p, ']'))
        return true;
    do
        if (!read(p, list))
            return false;
    while (eat(p, ','));
    return expect(p, ']');
}

typedef TN_VEC(int64_t) int_list;
typedef TN_VEC(tn_dim) dim_list;

static bool read_int_item(struct parser *p, void *list)
{
    int64_t value;
    if (!read_int(p, &value))
        return false;
    TN_PUSH(&p->session->arena, (int_list *)list, value);
    return true;
}

static bool read_dim_item(struct parser *p, void *list)
{
    tn_dim dim;
    if (!read_dim(p, &dim))
        return false;
    TN_PUSH(&p->session->arena, (dim_list *)list, dim);
    return true;
}

/* type = dtype "[" dims "]" */
static bool read_type(struct parser *p, tn_type *out)
{
    dim_list dims = {0};
    tn_dtype dtype;
    if (!read_dtype(p, &dtype) || !read_list(p, read_dim_item, &dims))
        return false;
    if (dims.len > TN_MAX_RANK)
        return fail(p, "the type has %zu dimensions; the most is %d", dims.len, TN_MAX_RANK);
    *out = tn_type_make(dtype, (int)dims.len, dims.at);
    return true;
}

/* ---- constants ------------------------------------------------------------------------------------------------------------------ */

/* dense<…>: the text between the angle brackets, read once the type is known. */
struct dense {
    const char *start, *line_start;
    int line;
    const char *name;
};

static bool skip_dense(struct parser *p, struct dense *out)
{
    if (!expect(p, '<'))
        return false;
    skip_space(p);
    *out = (struct dense){.start = p->at, .line_start = p->line_start, .line = p->line};
    while (!peek(p, '>')) {
        if (*p->at == '\0')
            return fail(p, "dense< is not closed");
        p->at++;
    }
    p->at++;
    return true;
}

struct elements {
    struct parser *p;
    tn_dtype dtype;
    int rank;
    const int64_t *dim;
    char *data;
    int64_t next;
};

static bool read_element(struct elements *e)
{
    tn_number value;
    skip_space(e->p);
    size_t used = tn_number_parse(e->dtype, e->p->at, &value);
    if (!used)
        return fail(e->p, "expected an element of type %s, found %s", tn_dtype_text(e->dtype), found(e->p));
    e->p->at += used;
    tn_number_store(e->dtype, e->data, e->next++, value);
    return true;
}

static bool read_nested(struct elements *e, int axis)
{
    if (axis == e->rank)
        return read_element(e);
    if (!expect(e->p, '['))
        return false;
    for (int64_t i = 0; i < e->dim[axis]; i++) {
        if (peek(e->p, ']') || (i > 0 && !peek(e->p, ',')))
            return fail(e->p, "expected %lld entries in dimension %d, found %lld", (long long)e->dim[axis], axis, (long long)i);
        if (i > 0)
            eat(e->p, ',');
        if (!read_nested(e, axis + 1))
            return false;
    }
    return eat(e->p, ']') || fail(e->p, "expected %lld entries in dimension %d, found more", (long long)e->dim[axis], axis);
}

/* "0x…": the bytes of all elements, or of one. */
static bool read_bytes(struct parser *p, tn_tensor *tensor, int64_t count)
{
    const char *digits = p->at + 3;
    size_t n = 0, whole = 0, one = 0;
    if (strncmp(p->at, "\"0x", 3) != 0)
        return fail(p, "expected \"0x…\"");
    while (tn_hex_digit(digits[n]) >= 0)
        n++;
    if (digits[n] != '"' || n % 2 != 0)
        return fail(p, "expected pairs of hexadecimal digits up to '\"'");
    tn_dtype_bytes(tensor->dtype, 1, &one);
    bool known = tn_dtype_bytes(tensor->dtype, count, &whole);
    if (n / 2 != one && !(known && n / 2 == whole))
        return fail(p, "expected %zu bytes (or those of one element), found %zu", whole, n / 2);
    unsigned char *data = tn_alloc(&p->session->arena, n / 2 + 16);
    for (size_t i = 0; i < n / 2; i++)
        data[i] = (unsigned char)(tn_hex_digit(digits[2 * i]) * 16 + tn_hex_digit(digits[2 * i + 1]));
    tensor->data = data;
    tensor->splat = !(known && n / 2 == whole);
    p->at = digits + n + 1;
    return true;
}

/* value = number (all elements) | "[" … "]" nested once a dimension | "0x…" */
static bool read_dense_value(struct parser *p, tn_tensor *tensor, int64_t count)
{
    struct elements e = {.p = p, .dtype = tensor->dtype, .rank = tensor->rank, .dim = tensor->dim};
    tn_arena *arena = &p->session->arena;
    size_t bytes;
    if (strncmp(p->at, "...", 3) == 0)
        return fail(p, "the constant was left out when this text was printed; print it whole to read it back");
    if (*p->at == '"')
        return read_bytes(p, tensor, count);
    tensor->splat = *p->at != '[';
    int64_t stored = tensor->splat ? 1 : count;
    if (!tn_dtype_bytes(tensor->dtype, stored, &bytes) || stored > p->end - p->at)
        return fail(p, "expected %lld elements; the text is too short to hold them", (long long)stored);
    tensor->data = e.data = tn_alloc(arena, bytes + 16);
    if (tensor->splat)
        return read_element(&e);
    if (count == 0 && p->at[1] == ']')
        return eat(p, '[') && eat(p, ']');
    return read_nested(&e, 0);
}

static bool read_dense(struct parser *p, const struct dense *dense, const tn_type *type, const tn_tensor **out)
{
    struct parser at = *p;
    at.at = dense->start;
    at.line = dense->line;
    at.line_start = dense->line_start;
    tn_tensor *tensor = TN_NEW(&p->session->arena, tn_tensor);
    int64_t count;
    tensor->dtype = type->dtype;
    tensor->rank = type->rank;
    tensor->name = dense->name;
    if (!tn_type_count(type, &count))
        return fail(&at, "a constant's type must have fixed sizes");
    for (int i = 0; i < type->rank; i++)
        tensor->dim[i] = type->dim[i]->value;
    if (!tn_check_type(p->graph, here(&at), "constant", type, false))
        return false;
    *out = tensor;
    return read_dense_value(&at, tensor, count) && (peek(&at, '>') || fail(&at, "expected '>', found %s", found(&at)));
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------- */

/* "%" (digits | name): *number is set for digits, which are no name to keep. */
static bool read_value_name(struct parser *p, const char **out, bool *number)
{
    if (!expect(p, '%'))
        return false;
    size_t n = 0;
    while (isdigit((unsigned char)p->at[n]))
        n++;
    *number = n > 0;
    if (n == 0)
        return read_name(p, "the name of a value", out);
    *out = tn_intern(p->session, p->at, n);
    p->at += n;
    return true;
}

/* The key of a value in the map: %12 and %"12" are two. */
static const char *value_key(struct parser *p, const char *name, bool number)
{
    return number ? name : tn_format(&p->session->arena, "%%%s", name);
}

static bool define(struct parser *p, const char *key, tn_value *value)
{
    void **cell = tn_map_at_str(&p->values, key);
    if (*cell)
        return fail(p, "%%%s is defined twice", key + (*key == '%'));
    *cell = value;
    TN_PUSH(&p->session->arena, &p->scoped, tn_intern_z(p->session, key));
    return true;
}

static void end_scope(struct parser *p, size_t from)
{
    while (p->scoped.len > from)
        *tn_map_at_str(&p->values, p->scoped.at[--p->scoped.len]) = NULL;
}

static bool read_operand(struct parser *p, value_list *list)
{
    const char *name;
    bool number;
    if (!read_value_name(p, &name, &number))
        return false;
    tn_value *value = tn_map_get_str(&p->values, value_key(p, name, number));
    if (!value)
        return fail(p, "%%%s is not defined here", name);
    TN_PUSH(&p->session->arena, list, value);
    return true;
}

/* arguments = "(" [value ":" type {"," value ":" type}] ")" */
static bool read_block_args(struct parser *p, tn_block *block, bool inputs)
{
    if (!expect(p, '('))
        return false;
    if (eat(p, ')'))
        return true;
    do {
        const char *name;
        bool number;
        tn_type type;
        if (!read_value_name(p, &name, &number) || !expect(p, ':') || !read_type(p, &type))
            return false;
        if (!tn_check_type(p->graph, here(p), inputs ? "input" : "argument", &type, false))
            return false;
        tn_value *value = tn_block_arg(block, &type, number ? NULL : name);
        if (!define(p, value_key(p, name, number), value))
            return false;
    } while (eat(p, ','));
    return expect(p, ')');
}

/* ---- operations ------------------------------------------------------------------------------------------------------------------------ */

struct op_text {
    tn_loc loc;
    tn_opcode code;
    name_list keys; /* of the results */
    value_list operands;
    attr_list attrs;
    type_list types;
    block_list regions;
    struct dense dense;
};

static bool read_attr_value(struct parser *p, tn_attr *attr)
{
    int_list ints = {0};
    dim_list dims = {0};
    tn_dtype dtype = TN_NO_DTYPE;
    bool ok = false;
    switch (tn_attr_kind_of(attr->name)) {
    case TN_ATTR_INT:
        return read_int(p, &attr->i);
    case TN_ATTR_INTS:
        ok = read_list(p, read_int_item, &ints);
        attr->ints = ints.at;
        attr->n = (int)ints.len;
        return ok;
    case TN_ATTR_DIM:
        return read_dim(p, &attr->dim);
    case TN_ATTR_DIMS:
        ok = read_list(p, read_dim_item, &dims);
        attr->dims = dims.at;
        attr->n = (int)dims.len;
        return ok;
    case TN_ATTR_BOOL:
        return read_bool(p, &attr->i);
    case TN_ATTR_FLOAT:
        return read_double(p, &attr->f);
    case TN_ATTR_STRING:
        return read_string(p, &attr->s);
    case TN_ATTR_DTYPE:
        ok = read_dtype(p, &dtype);
        attr->i = dtype;
        return ok;
    case TN_ATTR_TENSOR:
        return fail(p, "a tensor is written dense<…>, without a name before it");
    }
    return false;
}

/* argument = value | "dense" "<" … ">" | attribute "=" attribute value */
static bool read_argument(struct parser *p, struct op_text *op)
{
    const char *name;
    if (peek(p, '%'))
        return read_operand(p, &op->operands);
    if (op->code == TN_OP_constant && eat_word(p, "dense"))
        return skip_dense(p, &op->dense);
    if (!read_name(p, "an operand or an attribute", &name))
        return false;
    tn_attr attr = {.name = tn_attr_from_text(name)};
    if (attr.name == TN_ATTR_COUNT)
        return fail(p, "%s: there is no attribute '%s'", tn_op_name(op->code), name);
    if (!expect(p, '='))
        return false;
    if (op->code == TN_OP_constant && attr.name == TN_A_name)
        return read_string(p, &op->dense.name);
    if (!read_attr_value(p, &attr))
        return false;
    TN_PUSH(&p->session->arena, &op->attrs, attr);
    return true;
}

/* The first argument stands on the line of the operation's name: without any, the next line starts another operation. */
static bool starts_argument(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
    return *p->at == '%' || is_word_char(*p->at);
}

static bool read_region(struct parser *p, struct op_text *op);

static bool read_results(struct parser *p, struct op_text *op)
{
    do {
        const char *name;
        bool number;
        if (!read_value_name(p, &name, &number))
            return false;
        TN_PUSH(&p->session->arena, &op->keys, value_key(p, name, number));
    } while (eat(p, ','));
    return expect(p, '=');
}

static bool read_types(struct parser *p, struct op_text *op)
{
    if (!eat(p, ':'))
        return true;
    do {
        tn_type type;
        if (!read_type(p, &type))
            return false;
        TN_PUSH(&p->session->arena, &op->types, type);
    } while (eat(p, ','));
    return true;
}

/* operation = [value {"," value} "="] name [argument {"," argument}] [":" type {"," type}] {region} */
static bool read_op_text(struct parser *p, struct op_text *op)
{
    const char *name;
    skip_space(p);
    op->loc = here(p);
    if (*p->at == '%' && !read_results(p, op))
        return false;
    skip_space(p);
    op->loc = op->keys.len ? op->loc : here(p);
    if (!read_name(p, "an operation", &name))
        return false;
    op->code = tn_op_from_name(name);
    if (op->code == TN_OP_COUNT)
        return fail(p, "there is no operation '%s'", name);
    if (starts_argument(p))
        do
            if (!read_argument(p, op))
                return false;
        while (eat(p, ','));
    if (!read_types(p, op))
        return false;
    while (peek(p, '{'))
        if (!read_region(p, op))
            return false;
    return true;
}

/* The type in the text stands, as far as inference does not contradict it. */
static bool take_type(struct parser *p, tn_op *op, int i, const tn_type *written)
{
    tn_type *inferred = &op->result[i].type;
    bool fits = written->dtype == inferred->dtype && written->rank == inferred->rank;
    for (int d = 0; fits && d < written->rank; d++)
        fits = !tn_dim_ne(p->session, written->dim[d], inferred->dim[d]);
    if (!fits) {
        tn_text w = {.arena = &p->session->arena}, f = {.arena = &p->session->arena};
        tn_text_type(&w, written);
        tn_text_type(&f, inferred);
        tn_error(p->session, TN_INVALID, op->loc, "%s: result %d is %s, but the text says %s", tn_op_name(op->code), i, f.at, w.at);
        return false;
    }
    for (int d = 0; d < written->rank; d++)
        if (!tn_dim_eq(p->session, written->dim[d], inferred->dim[d]))
            tn_record_equal(p->graph, op->loc, written->dim[d], inferred->dim[d]);
    *inferred = *written;
    return true;
}

static bool take_results(struct parser *p, tn_op *op, struct op_text *text)
{
    if ((size_t)op->nresults != text->keys.len || (size_t)op->nresults != text->types.len) {
        tn_error(p->session, TN_INVALID, op->loc, "%s has %d results; the text names %zu and gives %zu types", tn_op_name(op->code),
                 op->nresults, text->keys.len, text->types.len);
        return false;
    }
    for (int i = 0; i < op->nresults; i++) {
        const char *key = text->keys.at[i];
        if (!take_type(p, op, i, &text->types.at[i]) || !define(p, key, &op->result[i]))
            return false;
        op->result[i].name = *key == '%' ? tn_intern_z(p->session, key + 1) : NULL;
    }
    return true;
}

static bool read_op(struct parser *p, tn_block *block)
{
    struct op_text text = {0};
    if (!read_op_text(p, &text))
        return false;
    if (text.code == TN_OP_constant && text.dense.start) {
        tn_attr value = {.name = TN_A_value};
        if (text.types.len != 1)
            return fail(p, "a constant has one type, found %zu", text.types.len);
        if (!read_dense(p, &text.dense, &text.types.at[0], &value.tensor))
            return false;
        TN_PUSH(&p->session->arena, &text.attrs, value);
    }
    tn_builder b = tn_builder_at_end(block, text.loc);
    tn_op *op = tn_build(&b, text.code, text.operands.at, (int)text.operands.len, text.attrs.at, (int)text.attrs.len,
                         text.regions.at, (int)text.regions.len);
    return op && take_results(p, op, &text);
}

static bool read_block(struct parser *p, tn_block *block)
{
    while (!eat(p, '}')) {
        if (tn_block_return(block))
            return fail(p, "expected '}' after return, found %s", found(p));
        if (!read_op(p, block))
            return false;
    }
    return tn_block_return(block) || fail(p, "a block must end with `return`");
}

/* region = "{" ["^" arguments ":"] {operation} "}" */
static bool read_region(struct parser *p, struct op_text *op)
{
    size_t scope = p->scoped.len;
    tn_block *block = tn_block_new(p->graph, NULL);
    if (++p->depth > MAX_REGION_DEPTH)
        return fail(p, "regions are nested more than %d deep", MAX_REGION_DEPTH);
    if (!expect(p, '{') || (eat(p, '^') && !(read_block_args(p, block, false) && expect(p, ':'))) || !read_block(p, block))
        return false;
    p->depth--;
    end_scope(p, scope);
    TN_PUSH(&p->session->arena, &op->regions, block);
    return true;
}

/* ---- the file ------------------------------------------------------------------------------------------------------------------------------ */

/* output names = "->" "(" (name | "_") {"," (name | "_")} ")" */
static bool read_output_names(struct parser *p, name_list *names)
{
    skip_space(p);
    if (p->at[0] != '-' || p->at[1] != '>')
        return true;
    p->at += 2;
    if (!expect(p, '('))
        return false;
    do {
        const char *name;
        skip_space(p);
        bool none = p->at[0] == '_' && !is_word_char(p->at[1]);
        if (!read_name(p, "the name of an output", &name))
            return false;
        TN_PUSH(&p->session->arena, names, none ? NULL : name);
    } while (eat(p, ','));
    return expect(p, ')');
}

/* graph = "graph" "@" name arguments [output names] "{" {operation} "}" */
static bool read_graph(struct parser *p, tn_graph_module *module)
{
    const char *name;
    name_list outputs = {0};
    if (!expect(p, '@') || !read_name(p, "the name of the graph", &name))
        return false;
    p->values = (tn_map){.arena = &p->session->arena};
    p->scoped.len = 0;
    p->graph = tn_graph_new(p->session, name);
    if (!read_block_args(p, p->graph->body, true) || !read_output_names(p, &outputs) || !expect(p, '{') ||
        !read_block(p, p->graph->body))
        return false;
    if (outputs.len > 0) {
        int n = tn_block_return(p->graph->body)->noperands;
        if (outputs.len != (size_t)n)
            return fail(p, "the graph returns %d values and names %zu", n, outputs.len);
        p->graph->output_names = outputs.at;
    }
    TN_PUSH(&p->session->arena, &module->graphs, p->graph);
    return true;
}

/* facts = "symbols" name "in" "[" integer "," integer "]" ["multiple" integer] */
static bool read_symbols(struct parser *p)
{
    const char *name;
    int64_t lo, hi, multiple = 1;
    if (!read_name(p, "the name of a symbol", &name))
        return false;
    if (!eat_word(p, "in"))
        return fail(p, "expected 'in', found %s", found(p));
    if (!expect(p, '[') || !read_int(p, &lo) || !expect(p, ',') || !read_int(p, &hi) || !expect(p, ']') ||
        (eat_word(p, "multiple") && !read_int(p, &multiple)))
        return false;
    if (multiple < 1)
        return fail(p, "a multiple must be at least 1, found %lld", (long long)multiple);
    size_t errors = p->session->errors;
    tn_dim_declare(p->session, name, lo, hi, multiple);
    return p->session->errors == errors || fail(p, "in this declaration");
}

tn_status tn_graph_parse(tn_session *session, const char *file, const char *source, size_t len, tn_graph_module **out)
{
    const char *text = tn_strndup(&session->arena, source, len);
    struct parser p = {.session = session, .file = file ? tn_intern_z(session, file) : NULL, .at = text, .end = text + len, .line_start = text, .line = 1};
    tn_graph_module *module = TN_NEW(&session->arena, tn_graph_module);
    size_t errors = session->errors;
    module->session = session;
    *out = NULL;
    while (session->errors == errors && !peek(&p, '\0')) {
        bool ok = eat_word(&p, "symbols") ? read_symbols(&p)
                  : eat_word(&p, "graph") ? read_graph(&p, module)
                                          : fail(&p, "expected 'graph' or 'symbols', found %s", found(&p));
        if (!ok)
            break;
    }
    if (session->errors == errors && p.at != p.end)
        fail(&p, "the text has a NUL character");
    if (session->errors != errors)
        return TN_INVALID;
    *out = module;
    return TN_OK;
}
