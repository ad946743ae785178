/* Reads the text form of the Loop IR back (print.c writes it).
 *
 *     function  = "kernel" "@" name "(" [parameter {"," parameter}] ")" ["overlap"] ["threads" number ["cluster" number] ["persistent" number] ["resident" number]] "{" {map} {operation} "}"
 *     parameter = "%" name ":" type ["readonly"] ["align" integer] | "%" name ":" "index" ["of" dtype] ["multiple" integer]
 *     map       = "map" "%" name ":" dtype "of" "%" name "at" dim "sizes" "(" dim {"," dim} ")" ["strides" "(" dim {"," dim} ")"]
 *                 "box" "(" integer {"," integer} ")" ["swizzle" integer]        dim: as the graph IR writes them, on a line
 *     block     = "{" {operation} "}"
 *     operation = ["%" name "="] opcode operands [":" type]        one form an opcode, below
 *     type      = ["global" | "local" | "reg" | "shared"] element ["x" lanes]      element: dtype, or index (i64)
 *
 * Wherever an index scalar is expected (offsets, lanes, bounds of loops) a literal integer may stand for a constant.
 * Names must be defined before use in an enclosing block. Comments: // to the end of the line. */
#include "loop/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 200, MAX_OPERANDS = 64 };

typedef struct parser {
    tn_session *session;
    const char *file, *at, *end, *token_at;
    int line;
    const char *line_start;
    tn_lfunc *func;
    tn_lbuilder b;
    tn_map names;               /* name -> value visible here */
    TN_VEC(const char *) scope; /* names defined, to leave a block */
    int nesting;
    bool failed;
} parser;

/* ---- characters and words ---- */

static void skip_space(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (p->end - p->at >= 2 && p->at[0] == '/' && p->at[1] == '/') {
            while (p->at + 1 < p->end && p->at[1] != '\n')
                p->at++;
        } else if (!isspace((unsigned char)*p->at)) {
            break;
        }
    }
    p->token_at = p->at;
}

static tn_loc here(const parser *p)
{
    return (tn_loc){.file = p->file, .line = p->line, .column = (int)(p->token_at - p->line_start) + 1};
}

#define FAIL(p, ...) fail((p), tn_format(&(p)->session->arena, __VA_ARGS__))
static bool fail(parser *p, const char *message)
{
    if (!p->failed)
        tn_error(p->session, TN_INVALID, here(p), "%s", message);
    p->failed = true;
    return false;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$';
}

static const char *found(parser *p)
{
    const char *stop = p->at;
    while (stop < p->end && is_word(*stop))
        stop++;
    if (p->at >= p->end)
        return "the end of the file";
    size_t n = stop > p->at ? (size_t)(stop - p->at) : 1;
    return tn_format(&p->session->arena, "`%.*s`", (int)(n < 60 ? n : 60), p->at);
}

static bool accept(parser *p, const char *text)
{
    size_t n = strlen(text);
    skip_space(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return false;
    if (is_word(text[n - 1]) && p->at + n < p->end && is_word(p->at[n]))
        return false;
    p->at += n;
    return true;
}

static bool expect(parser *p, const char *text)
{
    return accept(p, text) || FAIL(p, "expected `%s`, found %s", text, found(p));
}

/* A word, interned; NULL (and a diagnostic) if none stands here. */
static const char *word(parser *p, const char *what)
{
    skip_space(p);
    const char *start = p->at;
    while (p->at < p->end && is_word(*p->at))
        p->at++;
    if (p->at == start) {
        FAIL(p, "expected %s, found %s", what, found(p));
        return NULL;
    }
    return tn_intern(p->session, start, (size_t)(p->at - start));
}

static bool integer(parser *p, int64_t *out)
{
    skip_space(p);
    char digits[32];
    size_t n = 0;
    const char *at = p->at;
    if (at < p->end && *at == '-')
        digits[n++] = *at++;
    while (at < p->end && isdigit((unsigned char)*at) && n < sizeof digits - 1)
        digits[n++] = *at++;
    digits[n] = 0;
    tn_number number;
    if (n == 0 || !isdigit((unsigned char)digits[n - 1]) || tn_number_parse(TN_I64, digits, &number) != n)
        return FAIL(p, "expected an integer, found %s", found(p));
    *out = number.i;
    p->at = at;
    return true;
}

/* ---- types ---- */

static bool lanes_suffix(const char *text, size_t len, size_t *element, int *lanes)
{
    size_t x = len;
    while (x > 0 && isdigit((unsigned char)text[x - 1]))
        x--;
    if (x < 2 || x == len || text[x - 1] != 'x' || len - x > 4)
        return false;
    *lanes = atoi(text + x);
    *element = x - 1;
    return true;
}

static bool element_type(parser *p, tn_ltype *type)
{
    const char *text = word(p, "an element type");
    if (!text)
        return false;
    size_t len = strlen(text), element = len;
    int lanes = 1;
    if (lanes_suffix(text, len, &element, &lanes) && (lanes < 1 || lanes > TN_L_MAX_LANES))
        return FAIL(p, "a vector has 1 to %d lanes, found %d", TN_L_MAX_LANES, lanes);
    bool is_index = element == 5 && memcmp(text, "index", 5) == 0;
    type->dtype = is_index ? TN_I64 : tn_dtype_from_text(text, element);
    type->lanes = lanes;
    return type->dtype != TN_NO_DTYPE || FAIL(p, "unknown element type `%s`", text);
}

static bool parse_type(parser *p, tn_ltype *type)
{
    *type = (tn_ltype){0};
    for (int space = TN_SPACE_GLOBAL; space <= TN_SPACE_SHARED && !type->buffer; space++)
        if (accept(p, tn_space_text((tn_space)space))) {
            type->buffer = true;
            type->space = (tn_space)space;
        }
    return element_type(p, type);
}

static bool result_type(parser *p, tn_ltype *type)
{
    return expect(p, ":") && parse_type(p, type);
}

static bool scope(parser *p, tn_lop *op) /* of the GPU, where none is named */
{
    op->scope = accept(p, "sys") ? TN_SCOPE_SYS : accept(p, "cta") ? TN_SCOPE_CTA : TN_SCOPE_GPU;
    return true;
}

/* ---- names ---- */

static bool define(parser *p, const char *name, tn_lvalue *v)
{
    void **cell = tn_map_at_str(&p->names, name);
    if (*cell)
        return FAIL(p, "%%%s is already defined in an enclosing block; rename one", name);
    *cell = v;
    TN_PUSH(&p->session->arena, &p->scope, name);
    bool numbered = strspn(name, "0123456789") == strlen(name);
    v->name = numbered ? NULL : name;
    return true;
}

static void leave_scope(parser *p, size_t mark)
{
    while (p->scope.len > mark)
        *tn_map_at_str(&p->names, p->scope.at[--p->scope.len]) = NULL;
}

static tn_lvalue *operand(parser *p)
{
    if (!expect(p, "%"))
        return NULL;
    const char *name = word(p, "a value's name");
    tn_lvalue *v = name ? tn_map_get_str(&p->names, name) : NULL;
    if (name && !v)
        FAIL(p, "%%%s is not defined here", name);
    return v;
}

/* An index: a value or a literal. */
static tn_lvalue *index_operand(parser *p)
{
    skip_space(p);
    int64_t value;
    if (p->at < p->end && (*p->at == '-' || isdigit((unsigned char)*p->at)))
        return integer(p, &value) ? tn_l_index(&p->b, value) : NULL;
    return operand(p);
}

/* ---- operations ---- */

typedef struct operands {
    tn_lvalue *at[MAX_OPERANDS];
    int n;
} operands;

static bool add_operand(parser *p, operands *list, tn_lvalue *v)
{
    if (list->n == MAX_OPERANDS)
        return FAIL(p, "more than %d operands", MAX_OPERANDS);
    list->at[list->n++] = v;
    return v != NULL;
}

static bool operand_list(parser *p, operands *list)
{
    skip_space(p);
    if (p->at >= p->end || *p->at != '%')
        return true;
    do {
        if (!add_operand(p, list, operand(p)))
            return false;
    } while (accept(p, ","));
    return true;
}

/* %buffer[index] */
static bool indexed(parser *p, operands *list)
{
    return add_operand(p, list, operand(p)) && expect(p, "[") && add_operand(p, list, index_operand(p)) &&
           expect(p, "]");
}

/* %buffer[index], a map or a number, any number of them */
static bool parts(parser *p, operands *list)
{
    int line = p->line;
    skip_space(p);
    if (p->line != line) /* without operands: what follows is a statement, whose result's name could be one */
        return true;
    if (p->at >= p->end || (*p->at != '%' && *p->at != '-' && !isdigit((unsigned char)*p->at)))
        return true;
    do {
        if (!add_operand(p, list, index_operand(p)) || (accept(p, "[") && !(add_operand(p, list, index_operand(p)) && expect(p, "]"))))
            return false;
    } while (accept(p, ","));
    return true;
}

static bool optional_operands(parser *p, operands *list)
{
    if (!accept(p, ","))
        return true;
    if (!expect(p, "mask") || !add_operand(p, list, operand(p)))
        return false;
    return !accept(p, ",") || (expect(p, "other") && add_operand(p, list, operand(p)));
}

static bool parse_scalar_name(parser *p, tn_scalar *fn)
{
    const char *name = word(p, "a scalar function");
    *fn = name ? tn_scalar_from_name(name) : TN_SCALAR_NONE;
    return *fn != TN_SCALAR_NONE || (name && FAIL(p, "unknown scalar function `%s`", name));
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "text" with \" \\ and \xHH. */
static bool quoted(parser *p, const char **out)
{
    tn_text text = {.arena = &p->session->arena};
    if (!expect(p, "\""))
        return false;
    for (; p->at < p->end && *p->at != '"' && *p->at != '\n'; p->at++) {
        char c = *p->at;
        bool escape = c == '\\' && p->end - p->at >= 2, hex = escape && p->at[1] == 'x' && p->end - p->at >= 4;
        if (hex) {
            int high = hex_digit(p->at[2]), low = hex_digit(p->at[3]);
            if (high < 0 || low < 0 || high + low == 0)
                return FAIL(p, "expected two hexadecimal digits that are not 00 behind \\x");
            c = (char)(high * 16 + low);
            p->at += 3;
        } else if (escape) {
            c = *++p->at;
        }
        tn_text_put(&text, &c, 1);
    }
    *out = tn_intern(p->session, text.at ? text.at : "", text.len);
    return expect(p, "\"");
}

static bool shuffle_lanes(parser *p, tn_lop *op, int *count)
{
    int lanes[TN_L_MAX_LANES];
    *count = 0;
    if (!expect(p, ",") || !expect(p, "["))
        return false;
    do {
        int64_t lane;
        if (*count == TN_L_MAX_LANES)
            return FAIL(p, "a vector has 1 to %d lanes", TN_L_MAX_LANES);
        if (!integer(p, &lane))
            return false;
        if (lane < -1 || lane >= 2 * TN_L_MAX_LANES)
            return FAIL(p, "no vector has a lane %lld", (long long)lane);
        lanes[(*count)++] = (int)lane;
    } while (accept(p, ","));
    op->lanes = tn_memdup(&p->session->arena, lanes, (size_t)*count * sizeof *lanes);
    return expect(p, "]");
}

static bool parse_shuffle(parser *p, tn_lop *op, operands *list, tn_ltype *type)
{
    int n;
    if (!add_operand(p, list, operand(p)) || !expect(p, ",") || !add_operand(p, list, operand(p)) ||
        !shuffle_lanes(p, op, &n) || !result_type(p, type))
        return false;
    return n == type->lanes || FAIL(p, "shuffle lists %d lanes for a result of %d", n, type->lanes);
}

static bool parse_const(parser *p, tn_lop *op, tn_ltype *type)
{
    /* The number's form depends on the type behind it: find that first. */
    skip_space(p);
    const char *number = p->at;
    while (p->at < p->end && *p->at != ':' && *p->at != '\n')
        p->at++;
    size_t len = (size_t)(p->at - number);
    while (len && isspace((unsigned char)number[len - 1]))
        len--;
    if (!result_type(p, type))
        return false;
    const char *text = tn_strndup(&p->session->arena, number, len);
    if (len == 0 || tn_number_parse(type->dtype, text, &op->number) != len)
        return FAIL(p, "`%s` is no %s", text, tn_dtype_text(type->dtype));
    op->number = tn_number_convert(op->number, type->dtype, type->dtype);
    return true;
}

static bool parse_insert(parser *p, operands *list)
{
    tn_lvalue *vector = operand(p), *lane;
    if (!vector || !expect(p, "[") || !(lane = index_operand(p)) || !expect(p, "]") || !expect(p, ","))
        return false;
    return add_operand(p, list, vector) && add_operand(p, list, operand(p)) && add_operand(p, list, lane);
}

static bool parse_alloc(parser *p, tn_lop *op, operands *list)
{
    skip_space(p);
    op->size = -1;
    if (p->at < p->end && *p->at == '%')
        return add_operand(p, list, operand(p));
    if (!integer(p, &op->size) || (op->size < 0 && !FAIL(p, "an alloc of %lld elements", (long long)op->size)))
        return false;
    return !accept(p, "at") || integer(p, &op->at);
}

static bool parse_loop_kind(parser *p, tn_lop *op)
{
    op->kind = TN_FOR_SERIAL;
    for (int kind = TN_FOR_SERIAL; kind <= TN_FOR_UNROLL; kind++)
        if (accept(p, tn_loop_kind_text((tn_loop_kind)kind)))
            op->kind = (tn_loop_kind)kind;
    op->turned = op->kind == TN_FOR_GRID && accept(p, "turned");
    return true;
}

static bool parse_for(parser *p, tn_lop *op, operands *list, const char **index)
{
    return expect(p, "%") && (*index = word(p, "the index's name")) && expect(p, "=") &&
           add_operand(p, list, index_operand(p)) && expect(p, "to") && add_operand(p, list, index_operand(p)) &&
           expect(p, "step") && add_operand(p, list, index_operand(p)) && parse_loop_kind(p, op);
}

static bool parse_roles(parser *p, tn_lop *op)
{
    int64_t instances = 1;
    if (!integer(p, &op->number.i) || (accept(p, "instances") && !integer(p, &instances)))
        return false;
    op->instances = (int)tn_max(0, tn_min(instances, TN_MOST_INSTANCES + 1)); /* wrong ones stay wrong */
    return true;
}

/* Operands, attributes and result type of one operation; *has_result: a type was given. */
static bool parse_details(parser *p, tn_lop *op, operands *list, tn_ltype *type, bool *has_result, const char **index)
{
    *has_result = true;
    switch (op->code) {
    case TN_L_const:
        return parse_const(p, op, type);
    case TN_L_extract:
        return indexed(p, list) && result_type(p, type);
    case TN_L_insert:
        return parse_insert(p, list) && result_type(p, type);
    case TN_L_shuffle:
        return parse_shuffle(p, op, list, type);
    case TN_L_hreduce:
        return parse_scalar_name(p, &op->fn) && operand_list(p, list) && result_type(p, type);
    case TN_L_intrinsic:
        return expect(p, "@") && (op->name = word(p, "an intrinsic's name")) && operand_list(p, list) &&
               result_type(p, type);
    case TN_L_asm:
        return quoted(p, &op->name) && (!accept(p, ",") || operand_list(p, list)) && result_type(p, type);
    case TN_L_alloc:
        return parse_alloc(p, op, list) && result_type(p, type);
    case TN_L_lane_xor:
        return add_operand(p, list, operand(p)) && expect(p, ",") && integer(p, &op->number.i) && result_type(p, type);
    case TN_L_lane_at:
        return add_operand(p, list, operand(p)) && expect(p, ",") && add_operand(p, list, index_operand(p)) && result_type(p, type);
    case TN_L_load:
    case TN_L_gather:
        return indexed(p, list) && optional_operands(p, list) && result_type(p, type);
    case TN_L_atomic_load:
        return indexed(p, list) && optional_operands(p, list) && scope(p, op) && result_type(p, type);
    case TN_L_atomic:
        skip_space(p);
        if (p->at < p->end && *p->at != '%' && !parse_scalar_name(p, &op->fn))
            return false;
        return indexed(p, list) && expect(p, ",") && add_operand(p, list, operand(p)) && optional_operands(p, list) && scope(p, op) &&
               result_type(p, type);
    case TN_L_cas:
        return indexed(p, list) && expect(p, ",") && add_operand(p, list, operand(p)) && expect(p, ",") &&
               add_operand(p, list, operand(p)) && optional_operands(p, list) && scope(p, op) && result_type(p, type);
    default:
        break;
    }
    *has_result = false;
    switch (op->code) {
    case TN_L_store:
    case TN_L_scatter:
        if (!indexed(p, list) || !expect(p, ",") || !add_operand(p, list, operand(p)) || !optional_operands(p, list))
            return false;
        op->stream = op->code == TN_L_store && accept(p, "stream");
        return true;
    case TN_L_prefetch:
        if (!indexed(p, list))
            return false;
        op->number.i = accept(p, "l1") ? 1 : 2;
        return true;
    case TN_L_machine:
        return expect(p, "@") && (op->name = word(p, "an instruction's name")) && parts(p, list);
    case TN_L_for:
        return parse_for(p, op, list, index);
    case TN_L_roles:
        return parse_roles(p, op);
    case TN_L_while:
    case TN_L_barrier:
        return true;
    case TN_L_fence:
        return scope(p, op);
    case TN_L_if:
    case TN_L_yield:
        return add_operand(p, list, operand(p));
    case TN_L_print:
        return quoted(p, &op->name) && (!accept(p, ",") || operand_list(p, list));
    case TN_L_trap:
        return add_operand(p, list, operand(p)) && expect(p, ",") && expect(p, "line") && integer(p, &op->number.i);
    default:
        *has_result = true;
        if (!operand_list(p, list))
            return false;
        op->contract = op->code == TN_L_fn && accept(p, "contract");
        return result_type(p, type);
    }
}

static bool parse_block(parser *p, tn_lblock *block, const char *index);

static bool parse_regions(parser *p, tn_lop *op, const char *index)
{
    op->nregions = op->code == TN_L_for ? 1 : 2;
    for (int i = 0; i < op->nregions; i++)
        op->region[i] = tn_lblock_new(p->func, op);
    if (!parse_block(p, op->region[0], index))
        return false;
    if (op->code == TN_L_while)
        return expect(p, "do") && parse_block(p, op->region[1], NULL);
    if (op->code == TN_L_roles)
        return expect(p, "else") && parse_block(p, op->region[1], NULL);
    return op->code != TN_L_if || !accept(p, "else") || parse_block(p, op->region[1], NULL);
}

static bool parse_opcode(parser *p, tn_lop *op)
{
    const char *name = word(p, "an operation");
    if (!name)
        return false;
    op->code = tn_lop_from_name(name);
    if (op->code != TN_LOP_COUNT && op->code != TN_L_fn)
        return true;
    op->code = TN_L_fn;
    op->fn = tn_scalar_from_name(name);
    return op->fn != TN_SCALAR_NONE || FAIL(p, "unknown operation `%s`", name);
}

static bool parse_op(parser *p)
{
    const char *name = NULL, *index = NULL;
    bool has_result;
    tn_ltype type;
    operands list = {.n = 0};
    if (accept(p, "%") && (!(name = word(p, "a value's name")) || !expect(p, "=")))
        return false;
    tn_lop *op = tn_lop_new(p->func, TN_L_const, NULL, 0);
    if (!parse_opcode(p, op) || !parse_details(p, op, &list, &type, &has_result, &index))
        return false;
    if (has_result != (name != NULL))
        return FAIL(p,
                    has_result ? "the result of %s needs a name: %%name = %s …"
                               : "%s has no result; remove the name before %s",
                    tn_lop_name(op->code), tn_lop_name(op->code));
    op->noperands = list.n;
    op->operand = tn_memdup(&p->session->arena, list.at, (size_t)list.n * sizeof *list.at);
    tn_lop_insert(&p->b, op);
    if (has_result) {
        tn_lop_result(p->func, op, type);
        op->result->align = !type.buffer                      ? 0
                            : op->code == TN_L_memory         ? tn_dtype_bits(tn_dtype_real(type.dtype)) / 8
                            : type.space == TN_SPACE_SHARED   ? tn_l_shared_align(op->at)
                                                              : 64;
        return define(p, name, op->result);
    }
    return !(tn_lop_traits(op->code) & TN_L_REGION) || parse_regions(p, op, index);
}

static tn_lvalue *block_argument(parser *p, tn_lblock *block)
{
    tn_lvalue *v = TN_NEW(&p->session->arena, tn_lvalue);
    *v = (tn_lvalue){.type = tn_lscalar(TN_I64), .block = block, .id = p->func->next_id++};
    return v;
}

/* ---- maps ---- */

static bool map_dim(parser *p, tn_dim *out)
{
    skip_space(p);
    const char *end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *line = tn_strndup(&p->session->arena, p->at, (size_t)((end ? end : p->end) - p->at));
    size_t used = tn_dim_parse(p->session, line, out);
    p->at += used;
    return used || FAIL(p, "expected a size, found %s", found(p));
}

/* As many as there are, if *n is 0. */
static bool map_dims(parser *p, tn_dim *out, int *n)
{
    int count = 0, most = *n ? *n : TN_MAP_RANK;
    if (!expect(p, "("))
        return false;
    do {
        if (count == most)
            return *n ? FAIL(p, "expected %d sizes or strides, found more", most) : FAIL(p, "a map has 1 to %d dimensions", most);
        if (!map_dim(p, &out[count++]))
            return false;
    } while (accept(p, ","));
    *n = *n ? *n : count;
    return (count == *n || FAIL(p, "expected %d sizes or strides, found %d", *n, count)) && expect(p, ")");
}

static bool map_box(parser *p, tn_lmap *map)
{
    for (int i = 0; i < map->rank; i++) {
        int64_t n;
        if (!expect(p, i ? "," : "(") || !integer(p, &n))
            return false;
        if (n < 1 || n > TN_MAP_BOX)
            return FAIL(p, "a box has 1 to %d elements along a dimension, found %lld", TN_MAP_BOX, (long long)n);
        map->box[i] = (int)n;
    }
    return expect(p, ")");
}

static bool parse_map(parser *p)
{
    tn_lmap map = {.rank = 0};
    tn_ltype type;
    int64_t swizzle = 0;
    const char *name = expect(p, "%") ? word(p, "a map's name") : NULL;
    if (!name || !expect(p, ":") || !element_type(p, &type) || !expect(p, "of") || !(map.buffer = operand(p)))
        return false;
    if (!map.buffer->type.buffer || !tn_l_same_type(map.buffer->type, (tn_ltype){type.dtype, type.lanes, true, TN_SPACE_GLOBAL}))
        return FAIL(p, "a map of %s is of a global buffer of that type, found %s", tn_dtype_text(type.dtype), tn_ltype_text(&p->session->arena, map.buffer->type));
    if (!expect(p, "at") || !map_dim(p, &map.offset) || !expect(p, "sizes") || !map_dims(p, map.size, &map.rank))
        return false;
    int strides = map.rank - 1;
    if (strides && (!expect(p, "strides") || !map_dims(p, map.stride + 1, &strides)))
        return false;
    if (!expect(p, "box") || !map_box(p, &map) || (accept(p, "swizzle") && !integer(p, &swizzle)))
        return false;
    map.swizzle = swizzle < 0 || swizzle > INT32_MAX ? -1 : (int)swizzle;
    return define(p, name, tn_lfunc_map(p->func, &map));
}

static bool parse_block(parser *p, tn_lblock *block, const char *index)
{
    size_t mark = p->scope.len;
    tn_lbuilder outer = p->b;
    p->b = tn_lbuilder_at_end(p->func, block);
    if (++p->nesting > MAX_NESTING)
        return FAIL(p, "blocks nest more than %d deep", MAX_NESTING);
    if (index && !define(p, index, block->arg = block_argument(p, block)))
        return false;
    if (!expect(p, "{"))
        return false;
    while (block == p->func->body && accept(p, "map"))
        if (!parse_map(p))
            return false;
    while (!accept(p, "}"))
        if (!parse_op(p))
            return false;
    p->nesting--;
    p->b = outer;
    leave_scope(p, mark);
    return true;
}

/* ---- functions ---- */

static bool parse_parameter(parser *p)
{
    tn_ltype type;
    if (!expect(p, "%"))
        return false;
    const char *name = word(p, "a parameter's name");
    if (!name || !expect(p, ":") || !parse_type(p, &type))
        return false;
    bool readonly = accept(p, "readonly");
    int64_t align = 0;
    if (accept(p, "align") && !integer(p, &align))
        return false;
    if (type.lanes != 1 || (type.buffer ? type.space != TN_SPACE_GLOBAL : type.dtype != TN_I64))
        return FAIL(p, "a parameter is `global` of an element type, or `index`");
    if (align < 0 || (align & (align - 1)) != 0)
        return FAIL(p, "an alignment is a power of two, found %lld", (long long)align);
    if (type.buffer && p->func->nbuffers != (int)p->func->params.len)
        return FAIL(p, "buffers stand before indices in the list of parameters");
    tn_ltype holds = {0};
    if (!type.buffer && accept(p, "of") && !element_type(p, &holds))
        return false;
    if (holds.lanes > 1 || tn_is_complex(holds.dtype))
        return FAIL(p, "an index holds a real scalar");
    int64_t multiple = 0;
    if (!type.buffer && accept(p, "multiple") && !integer(p, &multiple))
        return false;
    if (multiple < 0 || (multiple && tn_is_float(holds.dtype)))
        return FAIL(p, "only an integer is a `multiple`, and of a number that is not negative");
    tn_lvalue *v = type.buffer ? tn_lfunc_buffer(p->func, name, type.dtype, readonly, align) : tn_lfunc_index(p->func, name);
    v->holds = holds.dtype;
    v->multiple = multiple;
    return define(p, name, v);
}

static bool parse_function(parser *p)
{
    if (!expect(p, "kernel") || !expect(p, "@"))
        return false;
    const char *name = word(p, "the kernel's name");
    if (!name || !expect(p, "("))
        return false;
    p->func = tn_lfunc_new(p->session, name);
    p->names = (tn_map){.arena = &p->session->arena};
    p->scope.len = 0;
    if (!accept(p, ")")) {
        do {
            if (!parse_parameter(p))
                return false;
        } while (accept(p, ","));
        if (!expect(p, ")"))
            return false;
    }
    p->func->overlap = accept(p, "overlap");
    int64_t threads = 0;
    if (accept(p, "threads") && (!integer(p, &threads) || threads < 1 || threads > TN_MOST_THREADS))
        return FAIL(p, "a kernel has 1 to %d threads, found %lld", TN_MOST_THREADS, (long long)threads);
    p->func->threads = (int)threads;
    int64_t cluster = 0;
    if (threads && accept(p, "cluster") && (!integer(p, &cluster) || cluster < 2 || cluster > TN_MOST_CLUSTER || cluster & (cluster - 1)))
        return FAIL(p, "a cluster has 2, 4 or %d blocks, found %lld", TN_MOST_CLUSTER, (long long)cluster);
    p->func->cluster = (int)cluster;
    int64_t persistent = 0;
    if (threads && accept(p, "persistent") && (!integer(p, &persistent) || persistent < 1 || persistent > TN_MOST_PERSISTENT))
        return FAIL(p, "a persistent kernel has 1 to %d blocks for each processor, found %lld", TN_MOST_PERSISTENT, (long long)persistent);
    p->func->persistent = (int)persistent;
    int64_t resident = 0;
    if (threads && accept(p, "resident") && (!integer(p, &resident) || resident < 1 || resident > TN_MOST_RESIDENT))
        return FAIL(p, "a processor holds 1 to %d blocks, found %lld", TN_MOST_RESIDENT, (long long)resident);
    p->func->resident = (int)resident;
    return parse_block(p, p->func->body, NULL);
}

tn_status tn_loop_parse(tn_session *session, const char *file, const char *source, size_t len, tn_lfuncs *out)
{
    parser p = {.session = session, .file = file, .at = source, .end = source + len, .line = 1, .line_start = source};
    for (skip_space(&p); p.at < p.end; skip_space(&p)) {
        if (!parse_function(&p))
            return TN_INVALID;
        TN_TRY(tn_loop_verify(p.func, 0));
        TN_PUSH(&session->arena, out, p.func);
    }
    return TN_OK;
}
