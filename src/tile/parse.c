/* Reads the text form of the Tile IR back (print.c writes it).
 *
 *     file      = {facts | kernel}
 *     facts     = "symbols" name "in" "[" integer "," integer "]" ["multiple" integer]
 *     kernel    = "kernel" "@" name "(" [parameter {"," parameter}] ")" ["overlap"] ["contract"] "grid" "(" [range {"," range}] ")"
 *                 "{" {local | view} {operation} "}" [schedule]
 *     parameter = "%" name ":" dtype ["[" dim "]"] ("read" | "write" | "read_write") ["align" integer]
 *               | "%" name ":" type ["multiple" integer]
 *     range     = "%" name ":" dim "by" extent
 *     local     = "local" "%" name ":" dtype "[" dim "]"
 *     view      = "view" "%" name "=" "%" buffer ":" "[" shape {"," shape} "]" "strides" "[" dims "]" ["offset" dim]
 *                 {"guard" "(" "[" dims "]" "base" dim "limit" dim ")"} ["pad" number] ["panel" integer]
 *     shape     = dim | "*"
 *     operation = ["%" name {"," "%" name} "="] opcode ["@" label] details [":" type {"," type}] regions
 *     type      = {extent "x"} (dtype | "ptr" "<" dtype ">")          extent: integer or $name
 *     access    = "%" view "[" [subscript {"," subscript}] "]"
 *     subscript = plain | "in" "(" plain ")"    plain = "%" name ["+" "@" axis | "(" "@" axis {"," "@" axis} ")"]
 *     schedule  = "schedule" "{" [entry {";" entry}] "}"
 *     entry     = "bind" $name "=" integer  |  "set" [label] key "=" integer
 *
 * Values, buffers and views have names of their own. A value must be defined before it is used, in an enclosing block.
 * Comments: // to the end of the line. Only the form is checked here; verify.c says whether the kernel makes sense. */
#include "tile/internal.h"

#include <ctype.h>
#include <string.h>

enum { MAX_NESTING = 64, MAX_OPERANDS = TN_T_MAX_VALUES + 3, MAX_ARGUMENTS = TN_T_MAX_VALUES + 1 };

typedef struct parser {
    tn_session *session;
    const char *file, *at, *end, *token_at, *line_start;
    int line;
    tn_kernel *kernel;
    tn_map values, buffers, views; /* name -> value; -> index + 1; -> view */
    TN_VEC(const char *) scope;    /* names of values, to leave a block */
    int nesting;
    bool failed;
} parser;

/* ---- characters and words -------------------------------------------------------------------------------------------- */

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

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static const char *found(parser *p)
{
    skip_space(p);
    if (p->at >= p->end)
        return "the end of the file";
    const char *stop = p->at;
    while (stop < p->end && is_word(*stop))
        stop++;
    size_t n = stop > p->at ? (size_t)(stop - p->at) : 1;
    if (n == 1 && !isprint((unsigned char)*p->at))
        return tn_format(&p->session->arena, "the byte 0x%02x", (unsigned char)*p->at);
    return tn_format(&p->session->arena, "`%.*s`", (int)(n < 60 ? n : 60), p->at);
}

static bool at_char(parser *p, char c)
{
    skip_space(p);
    return p->at < p->end && *p->at == c;
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

static const char *word_of(parser *p, const char *what, const char *also)
{
    skip_space(p);
    const char *start = p->at;
    while (p->at < p->end && *p->at && (is_word(*p->at) || strchr(also, *p->at)))
        p->at++;
    if (p->at == start) {
        FAIL(p, "expected %s, found %s", what, found(p));
        return NULL;
    }
    return tn_intern(p->session, start, (size_t)(p->at - start));
}

static const char *word(parser *p, const char *what) { return word_of(p, what, ""); }

/* A marked name (%x, @k, $R). Messages about it point at the mark. */
static const char *name(parser *p, const char *mark, const char *what)
{
    if (!expect(p, mark))
        return NULL;
    const char *start = p->token_at, *text = word(p, what);
    if (text && start >= p->line_start)
        p->token_at = start;
    return text;
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

static bool dim(parser *p, tn_dim *out)
{
    skip_space(p);
    size_t errors = p->session->errors, n = tn_dim_parse(p->session, p->at, out);
    if (p->session->errors != errors)
        p->failed = true;
    if (n == 0 || p->failed)
        return FAIL(p, "expected a dimension, found %s", found(p));
    for (size_t i = 0; i < n; i++)
        if (p->at[i] == '\n')
            p->line++, p->line_start = p->at + i + 1;
    p->at += n;
    return true;
}

/* "[" dims "]": n of them, or (n < 0) any number; returns the number, -1 on failure. */
static int dims(parser *p, int n, tn_dim *out, bool shape)
{
    int count = 0;
    if (!expect(p, "["))
        return -1;
    if (!accept(p, "]")) {
        do {
            if (count == TN_MAX_RANK) {
                FAIL(p, "more than %d dimensions", TN_MAX_RANK);
                return -1;
            }
            bool any = shape && accept(p, "*");
            if (any)
                out[count] = tn_dim_const(p->session, TN_TILE_ANY);
            else if (!dim(p, &out[count]))
                return -1;
            count++;
        } while (accept(p, ","));
        if (!expect(p, "]"))
            return -1;
    }
    if (n >= 0 && count != n) {
        FAIL(p, "expected %d dimensions, as many as the view's shape has, found %d", n, count);
        return -1;
    }
    return count;
}

static bool number(parser *p, tn_dtype dtype, tn_number *out)
{
    skip_space(p);
    size_t n = tn_number_parse(dtype, p->at, out);
    if (n == 0 || n > (size_t)(p->end - p->at))
        return FAIL(p, "expected a number of type %s, found %s", tn_dtype_text(dtype), found(p));
    *out = tn_number_convert(*out, dtype, dtype);
    p->at += n;
    return true;
}

static const char *quoted(parser *p)
{
    if (!expect(p, "\""))
        return NULL;
    tn_text text = {.arena = &p->session->arena};
    tn_text_put(&text, "", 0);
    for (; p->at < p->end && *p->at != '"' && *p->at != '\n'; p->at++) {
        char c = *p->at;
        if (c == '\\' && p->end - p->at > 3 && p->at[1] == 'x' && isxdigit((unsigned char)p->at[2]) && isxdigit((unsigned char)p->at[3])) {
            unsigned code = 0;
            sscanf(p->at + 2, "%2x", &code);
            c = (char)code;
            p->at += 3;
        } else if (c == '\\' && p->end - p->at > 1) {
            c = *++p->at;
        }
        tn_text_put(&text, &c, 1);
    }
    return expect(p, "\"") ? text.at : NULL;
}

/* ---- types ----------------------------------------------------------------------------------------------------------- */

static bool dtype(parser *p, tn_dtype *out)
{
    const char *text = word(p, "an element type");
    *out = !text ? TN_NO_DTYPE : strcmp(text, "index") == 0 ? TN_I64 : tn_dtype_from_text(text, strlen(text));
    return *out != TN_NO_DTYPE || (text && FAIL(p, "unknown element type `%s`", text));
}

static const char *param(parser *p)
{
    const char *text = name(p, "$", "a parameter's name");
    return text ? tn_intern_z(p->session, tn_format(&p->session->arena, "$%s", text)) : NULL;
}

static bool extent(parser *p, tn_extent *out)
{
    *out = (tn_extent){0, NULL};
    if (at_char(p, '$'))
        return (out->param = param(p)) != NULL;
    return integer(p, &out->size);
}

static bool parse_type(parser *p, tn_ttype *type)
{
    *type = (tn_ttype){0};
    while (at_char(p, '$') || (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '-'))) {
        if (type->rank == TN_TILE_RANK)
            return FAIL(p, "a tile has at most %d axes", TN_TILE_RANK);
        if (!extent(p, &type->extent[type->rank++]) || !expect(p, "x"))
            return false;
    }
    if (!accept(p, "ptr"))
        return dtype(p, &type->dtype);
    type->pointer = true;
    return expect(p, "<") && dtype(p, &type->dtype) && expect(p, ">");
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

static bool define(parser *p, const char *text, tn_tvalue *v)
{
    void **cell = tn_map_at_str(&p->values, text);
    if (*cell)
        return FAIL(p, "%%%s is already defined in an enclosing block; rename one", text);
    *cell = v;
    TN_PUSH(&p->session->arena, &p->scope, text);
    v->name = isdigit((unsigned char)text[0]) ? NULL : text;
    return true;
}

static void leave_scope(parser *p, size_t mark)
{
    while (p->scope.len > mark)
        *tn_map_at_str(&p->values, p->scope.at[--p->scope.len]) = NULL;
}

static tn_tvalue *value(parser *p)
{
    const char *text = name(p, "%", "a value's name");
    tn_tvalue *v = text ? tn_map_get_str(&p->values, text) : NULL;
    if (text && !v)
        FAIL(p, "%%%s is not defined here", text);
    return v;
}

typedef struct values {
    tn_tvalue *at[MAX_OPERANDS];
    int n;
} values;

static bool add_value(parser *p, values *list)
{
    if (list->n == MAX_OPERANDS)
        return FAIL(p, "more than %d operands", MAX_OPERANDS);
    return (list->at[list->n++] = value(p)) != NULL;
}

static bool value_list(parser *p, values *list)
{
    if (!at_char(p, '%'))
        return true;
    do {
        if (!add_value(p, list))
            return false;
    } while (accept(p, ","));
    return true;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

/* Arguments of a region, to be defined once the block is entered. */
typedef struct arguments {
    const char *name[MAX_ARGUMENTS];
    tn_ttype type[MAX_ARGUMENTS];
    int n;
} arguments;

/* What the text says of an operation before it is made. */
typedef struct draft {
    tn_top op; /* attributes */
    values operands;
    tn_subscript subscript[TN_MAX_RANK];
    arguments first; /* arguments of the first region that stand before the types */
    const char *identities; /* where "[" of the identities stood, and its line */
    tn_ttype type[TN_T_MAX_VALUES];
    int ntypes;
} draft;

static bool add_argument(parser *p, arguments *a, const char *text)
{
    if (a->n == MAX_ARGUMENTS)
        return FAIL(p, "more than %d names", MAX_ARGUMENTS);
    a->name[a->n++] = text;
    return text != NULL;
}

/* (%a: type, …) */
static bool argument_list(parser *p, arguments *a)
{
    a->n = 0;
    if (!expect(p, "("))
        return false;
    if (accept(p, ")"))
        return true;
    do {
        if (!add_argument(p, a, name(p, "%", "an argument's name")) || !expect(p, ":") || !parse_type(p, &a->type[a->n - 1]))
            return false;
    } while (accept(p, ","));
    return expect(p, ")");
}

/* (%a = %start: type, …) */
static bool carried_list(parser *p, draft *d)
{
    if (!expect(p, "("))
        return false;
    if (accept(p, ")"))
        return true;
    do {
        if (!add_argument(p, &d->first, name(p, "%", "a carried value's name")) || !expect(p, "=") || !add_value(p, &d->operands) ||
            !expect(p, ":") || !parse_type(p, &d->first.type[d->first.n - 1]))
            return false;
    } while (accept(p, ","));
    return expect(p, ")");
}

static bool axis_number(parser *p, int *out)
{
    int64_t n;
    if (!integer(p, &n))
        return false;
    *out = (int)n;
    return (n >= 0 && n < TN_TILE_RANK) || FAIL(p, "an axis is a number from 0 to %d, found %lld", TN_TILE_RANK - 1, (long long)n);
}

static bool axes(parser *p, tn_top *op)
{
    if (!expect(p, "axes") || !expect(p, "["))
        return false;
    if (accept(p, "]"))
        return true;
    do {
        if (op->naxes == TN_TILE_RANK)
            return FAIL(p, "more than %d axes", TN_TILE_RANK);
        if (!axis_number(p, &op->axis[op->naxes++]))
            return false;
    } while (accept(p, ","));
    return expect(p, "]");
}

static bool subscript_axes(parser *p, tn_subscript *s)
{
    if (accept(p, "+")) {
        s->block = true;
        s->naxes = 1;
        return expect(p, "@") && axis_number(p, &s->axis[0]);
    }
    if (!accept(p, "("))
        return true;
    do {
        if (s->naxes == TN_TILE_RANK)
            return FAIL(p, "more than %d axes", TN_TILE_RANK);
        if (!expect(p, "@") || !axis_number(p, &s->axis[s->naxes++]))
            return false;
    } while (accept(p, ","));
    return expect(p, ")");
}

static bool subscript(parser *p, tn_subscript *s)
{
    *s = (tn_subscript){0};
    s->inside = accept(p, "in");
    if (s->inside && !expect(p, "("))
        return false;
    return (s->value = value(p)) && subscript_axes(p, s) && (!s->inside || expect(p, ")"));
}

static bool access(parser *p, draft *d)
{
    const char *text = name(p, "%", "a view's name");
    const tn_view *view = text ? tn_map_get_str(&p->views, text) : NULL;
    if (!view)
        return text && FAIL(p, "no view is called %%%s", text);
    d->op.view = view;
    if (!expect(p, "["))
        return false;
    int n = 0;
    if (!at_char(p, ']'))
        do {
            if (n == view->rank)
                return FAIL(p, "view %%%s has %d dimensions; here is a subscript more", text, view->rank);
            if (!subscript(p, &d->subscript[n++]))
                return false;
        } while (accept(p, ","));
    return n == view->rank ? expect(p, "]") : FAIL(p, "view %%%s has %d dimensions, found %d subscripts", text, view->rank, n);
}

/* The numbers' form depends on types that follow: remembers where they stand. */
static bool skip_identities(parser *p, draft *d)
{
    if (d->op.code != TN_T_fold && !accept(p, "identity"))
        return true;
    if (d->op.code == TN_T_fold && !expect(p, "identity"))
        return false;
    if (!expect(p, "["))
        return false;
    d->identities = p->at;
    while (p->at < p->end && *p->at != ']' && *p->at != '\n')
        p->at++;
    return expect(p, "]");
}

static bool order(parser *p, draft *d)
{
    if (!axes(p, &d->op) || !expect(p, "order"))
        return false;
    d->op.ordered = accept(p, "tree");
    return (d->op.ordered || accept(p, "any") || FAIL(p, "expected `any` or `tree`, found %s", found(p))) && skip_identities(p, d);
}

static bool fold_ranges(parser *p, draft *d)
{
    if (!expect(p, "("))
        return false;
    do {
        int i = d->operands.n;
        if (i == TN_TILE_RANK)
            return FAIL(p, "a fold has at most %d ranges", TN_TILE_RANK);
        if (!add_argument(p, &d->first, name(p, "%", "the range's name")) || !expect(p, ":") || !add_value(p, &d->operands) ||
            !expect(p, "by") || !extent(p, &d->op.step[i]))
            return false;
        d->first.type[i] = tn_tscalar(TN_I64);
    } while (accept(p, ","));
    d->op.nranges = d->operands.n;
    return expect(p, ")");
}

static bool for_range(parser *p, draft *d)
{
    if (!expect(p, "(") || !add_argument(p, &d->first, name(p, "%", "the index's name")) || !expect(p, "=") ||
        !add_value(p, &d->operands) || !expect(p, "to") || !add_value(p, &d->operands) || !expect(p, "by") ||
        !add_value(p, &d->operands) || !expect(p, ")"))
        return false;
    d->first.type[0] = tn_tscalar(TN_I64);
    return !accept(p, "carry") || carried_list(p, d);
}

static bool constant(parser *p, draft *d)
{
    skip_space(p);
    d->identities = p->at;
    while (p->at < p->end && *p->at != ':' && *p->at != '\n')
        p->at++;
    return true;
}

static bool scalar_function(parser *p, tn_scalar *fn)
{
    const char *text = word(p, "a scalar function");
    *fn = text ? tn_scalar_from_name(text) : TN_SCALAR_NONE;
    return *fn != TN_SCALAR_NONE || (text && FAIL(p, "unknown scalar function `%s`", text));
}

/* atomic_ptr: its function; atomic_ptr, atomic_load, cas_ptr: operands, and the memory order. */
static bool atomic_details(parser *p, draft *d)
{
    if (d->op.code == TN_T_atomic_ptr && !accept(p, "exchange") && !scalar_function(p, &d->op.fn))
        return false;
    return value_list(p, &d->operands) && (!accept(p, "order") || (d->op.text = word(p, "a memory order")));
}

static bool dot_details(parser *p, draft *d)
{
    if (!value_list(p, &d->operands))
        return false;
    if (accept(p, "imprecise"))
        return integer(p, &d->op.imprecise);
    if (!accept(p, "precision"))
        return !p->failed;
    const char *text = word(p, "a precision");
    return text && (tn_precision_from_text(text, &d->op.precision) || FAIL(p, "a precision is ieee, tf32 or tf32x3, found `%s`", text));
}

/* What stands between the opcode and the types. */
static bool details(parser *p, draft *d)
{
    switch (d->op.code) {
    case TN_T_const:
        return constant(p, d);
    case TN_T_size:
        return dim(p, &d->op.dim);
    case TN_T_fence: /* a name that follows begins the next operation */
        return true;
    case TN_T_load:
        return access(p, d);
    case TN_T_atomic:
        if (!scalar_function(p, &d->op.fn))
            return false;
        return access(p, d) && expect(p, ",") && value_list(p, &d->operands);
    case TN_T_store:
        return access(p, d) && expect(p, ",") && add_value(p, &d->operands);
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_cat:
    case TN_T_gather:
    case TN_T_sort:
        return value_list(p, &d->operands) && axes(p, &d->op);
    case TN_T_slice:
        return value_list(p, &d->operands) && axes(p, &d->op) && expect(p, "start") && integer(p, &d->op.number.i);
    case TN_T_dot:
        return dot_details(p, d);
    case TN_T_reduce:
        return value_list(p, &d->operands) && order(p, d);
    case TN_T_scan:
        if (!value_list(p, &d->operands) || !axes(p, &d->op))
            return false;
        d->op.reverse = accept(p, "reverse");
        return skip_identities(p, d);
    case TN_T_fold:
        return fold_ranges(p, d) && order(p, d);
    case TN_T_for:
        return for_range(p, d);
    case TN_T_while:
        return carried_list(p, d);
    case TN_T_atomic_ptr:
    case TN_T_atomic_load:
    case TN_T_cas_ptr:
        return atomic_details(p, d);
    case TN_T_print:
    case TN_T_assert:
    case TN_T_asm:
        d->op.hex = d->op.code == TN_T_print && accept(p, "hex");
        return (d->op.text = quoted(p)) && (!accept(p, ",") || value_list(p, &d->operands));
    default:
        return value_list(p, &d->operands);
    }
}

static bool types(parser *p, draft *d)
{
    if (!accept(p, ":"))
        return true;
    do {
        if (d->ntypes == TN_T_MAX_VALUES)
            return FAIL(p, "an operation has at most %d results", TN_T_MAX_VALUES);
        if (!parse_type(p, &d->type[d->ntypes++]))
            return false;
    } while (accept(p, ","));
    return true;
}

/* Reads the numbers that were skipped, now that their types are known. */
static bool skipped_numbers(parser *p, const draft *d, tn_top *op)
{
    if (!d->identities)
        return true;
    parser back = *p;
    back.at = d->identities;
    bool ok = true;
    op->identity = TN_NEW_ARRAY(&p->session->arena, tn_number, (size_t)(d->ntypes ? d->ntypes : 1));
    bool is_const = op->code == TN_T_const;
    for (int i = 0; ok && i < (is_const ? tn_min(d->ntypes, 1) : d->ntypes); i++)
        ok = (i == 0 || expect(&back, ",")) && number(&back, d->type[i].dtype, is_const ? &op->number : &op->identity[i]);
    ok = ok && expect(&back, is_const ? ":" : "]");
    p->failed |= back.failed;
    return ok;
}

static bool block(parser *p, tn_tblock *into, const arguments *a);

static bool regions(parser *p, draft *d, tn_top *op)
{
    arguments second;
    switch (op->code) {
    case TN_T_fold:
        return block(p, op->region[0], &d->first) && expect(p, "combine") && argument_list(p, &second) && block(p, op->region[1], &second);
    case TN_T_reduce:
    case TN_T_scan:
    case TN_T_sort:
        return expect(p, op->code == TN_T_sort ? "before" : "combine") && argument_list(p, &second) && block(p, op->region[0], &second);
    case TN_T_while:
        return block(p, op->region[0], &d->first) && expect(p, "do") && argument_list(p, &second) && block(p, op->region[1], &second);
    case TN_T_if:
        return block(p, op->region[0], &d->first) && expect(p, "else") && block(p, op->region[1], &d->first);
    case TN_T_for:
        return block(p, op->region[0], &d->first);
    default:
        return true;
    }
}

static int region_count(tn_topcode code)
{
    static const int counts[] = {
#define TOP(name, operands, results, regions, traits) regions,
#include "tile/ops.def"
#undef TOP
    };
    return counts[code];
}

static bool opcode(parser *p, tn_top *op)
{
    const char *text = word(p, "an operation");
    if (!text)
        return false;
    op->fn = tn_scalar_from_name(text);
    op->code = op->fn != TN_SCALAR_NONE ? TN_T_map : tn_top_from_name(text);
    return (op->code != TN_TOP_COUNT && (op->code != TN_T_map || op->fn != TN_SCALAR_NONE)) || FAIL(p, "unknown operation `%s`", text);
}

static tn_top *make_op(tn_tbuilder *b, const draft *d)
{
    tn_top *op = tn_top_new(b, d->op.code, d->operands.at, d->operands.n, region_count(d->op.code));
    op->fn = d->op.fn;
    op->view = d->op.view;
    if (op->view)
        op->subscript = tn_memdup(&b->kernel->session->arena, d->subscript, sizeof d->subscript);
    op->dim = d->op.dim;
    op->number = d->op.number;
    op->naxes = d->op.naxes;
    memcpy(op->axis, d->op.axis, sizeof op->axis);
    op->nranges = d->op.nranges;
    memcpy(op->step, d->op.step, sizeof op->step);
    op->ordered = d->op.ordered;
    op->reverse = d->op.reverse;
    op->hex = d->op.hex;
    op->precision = d->op.precision;
    op->imprecise = d->op.imprecise;
    op->text = d->op.text;
    op->label = d->op.label;
    return op;
}

static bool operation(parser *p, tn_tblock *into)
{
    draft space = {.operands.n = 0}, *d = &space;
    arguments results = {.n = 0};
    skip_space(p);
    tn_tbuilder b = tn_tbuilder_at(p->kernel, into, here(p));
    if (at_char(p, '%')) {
        do {
            if (!add_argument(p, &results, name(p, "%", "a result's name")))
                return false;
        } while (accept(p, ","));
        if (!expect(p, "="))
            return false;
        skip_space(p);
        b.loc = here(p);
    }
    if (!opcode(p, &d->op) || (accept(p, "@") && !(d->op.label = word(p, "a label"))) || !details(p, d) || !types(p, d))
        return false;
    if (d->ntypes != results.n)
        return FAIL(p, "%d results are named, but %d types given", results.n, d->ntypes);
    tn_top *op = make_op(&b, d);
    tn_top_results(&b, op, d->type, d->ntypes);
    if (!skipped_numbers(p, d, op) || !regions(p, d, op))
        return false;
    for (int i = 0; i < results.n; i++)
        if (!define(p, results.name[i], &op->result[i]))
            return false;
    return true;
}

static bool operations(parser *p, tn_tblock *into)
{
    while (!accept(p, "}"))
        if (!operation(p, into))
            return false;
    return true;
}

static bool block(parser *p, tn_tblock *into, const arguments *a)
{
    size_t mark = p->scope.len;
    if (!expect(p, "{"))
        return false;
    if (++p->nesting > MAX_NESTING)
        return FAIL(p, "regions nest deeper than %d", MAX_NESTING);
    tn_tblock_args(p->kernel, into, a->type, a->n);
    for (int i = 0; i < a->n; i++)
        if (!define(p, a->name[i], &into->arg[i]))
            return false;
    bool ok = operations(p, into);
    leave_scope(p, mark);
    p->nesting--;
    return ok;
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

static bool define_buffer(parser *p, const char *text, tn_dtype type, tn_buffer_mode mode, tn_dim elements)
{
    void **cell = tn_map_at_str(&p->buffers, text);
    if (*cell)
        return FAIL(p, "a buffer %%%s exists already", text);
    *cell = (void *)(uintptr_t)(1 + tn_kernel_buffer(p->kernel, text, type, mode, elements));
    return true;
}

static bool optional_elements(parser *p, tn_dim *out)
{
    return !at_char(p, '[') || dims(p, 1, out, false) == 1;
}

/* A number that is written is 1 at least. */
static bool promise(parser *p, const char *what, int64_t *out)
{
    if (!accept(p, what))
        return true;
    return integer(p, out) && (*out >= 1 || FAIL(p, "`%s` of a parameter is 1 at least, found %lld", what, (long long)*out));
}

static bool parameter(parser *p)
{
    const char *text = name(p, "%", "a parameter's name");
    tn_ttype type;
    tn_dim elements = NULL;
    if (!text || !expect(p, ":") || !parse_type(p, &type))
        return false;
    if (!type.rank && !type.pointer) {
        if (!optional_elements(p, &elements))
            return false;
        for (int mode = TN_READ; mode <= TN_READ_WRITE; mode++)
            if (accept(p, tn_buffer_mode_text((tn_buffer_mode)mode)))
                return define_buffer(p, text, type.dtype, (tn_buffer_mode)mode, elements) && promise(p, "align", &p->kernel->buffers.at[p->kernel->buffers.len - 1].align);
    }
    if (type.rank || elements)
        return FAIL(p, "expected `read`, `write` or `read_write` of a buffer, or a scalar's type");
    tn_tvalue *v = TN_NEW(&p->session->arena, tn_tvalue);
    v->type = type;
    v->id = p->kernel->next_id++;
    TN_PUSH(&p->session->arena, &p->kernel->scalars, v);
    return promise(p, "multiple", &v->divisor) && define(p, text, v);
}

static bool grid_range(parser *p)
{
    const char *text = name(p, "%", "a coordinate's name");
    tn_dim limit;
    tn_extent step;
    if (!text || !expect(p, ":") || !dim(p, &limit) || !expect(p, "by") || !extent(p, &step))
        return false;
    return define(p, text, tn_kernel_grid(p->kernel, text, limit, step));
}

static bool list_of(parser *p, bool (*item)(parser *p))
{
    if (!expect(p, "("))
        return false;
    if (accept(p, ")"))
        return true;
    do {
        if (!item(p))
            return false;
    } while (accept(p, ","));
    return expect(p, ")");
}

static bool local(parser *p)
{
    tn_dtype type;
    tn_dim elements;
    const char *text = name(p, "%", "the buffer's name");
    return text && expect(p, ":") && dtype(p, &type) && dims(p, 1, &elements, false) == 1 && define_buffer(p, text, type, TN_LOCAL, elements);
}

static bool guard(parser *p, tn_view *view)
{
    tn_dim coef[TN_MAX_RANK], base, limit;
    if (!expect(p, "(") || dims(p, view->rank, coef, false) < 0 || !expect(p, "base") || !dim(p, &base) || !expect(p, "limit") ||
        !dim(p, &limit) || !expect(p, ")"))
        return false;
    tn_view_guard(p->kernel, view, coef, base, limit);
    return true;
}

static bool view_rest(parser *p, tn_view *view)
{
    if (accept(p, "offset") && !dim(p, &view->offset))
        return false;
    while (accept(p, "guard"))
        if (!guard(p, view))
            return false;
    if (accept(p, "pad")) {
        view->padded = true;
        if (!number(p, p->kernel->buffers.at[view->buffer].dtype, &view->padding))
            return false;
    }
    return !accept(p, "panel") || integer(p, &view->panel);
}

static bool view(parser *p)
{
    tn_dim shape[TN_MAX_RANK], stride[TN_MAX_RANK];
    const char *text = name(p, "%", "the view's name");
    if (!text || !expect(p, "="))
        return false;
    const char *of = name(p, "%", "a buffer's name");
    size_t buffer = of ? (size_t)(uintptr_t)tn_map_get_str(&p->buffers, of) : 0;
    if (!buffer)
        return of && FAIL(p, "no buffer is called %%%s", of);
    if (tn_map_get_str(&p->views, text))
        return FAIL(p, "a view %%%s exists already", text);
    int rank;
    if (!expect(p, ":") || (rank = dims(p, -1, shape, true)) < 0 || !expect(p, "strides") || dims(p, rank, stride, false) < 0)
        return false;
    tn_view *made = tn_kernel_view(p->kernel, text, (int)buffer - 1, rank, shape, stride, tn_dim_const(p->session, 0));
    *tn_map_at_str(&p->views, text) = made;
    return view_rest(p, made);
}

static bool schedule_set(parser *p)
{
    const char *label = word_of(p, "a label or a key", "-"), *key = label;
    int64_t n;
    if (!label)
        return false;
    if (at_char(p, '='))
        label = "";
    else if (!(key = word_of(p, "a key", "-")))
        return false;
    if (!expect(p, "=") || !integer(p, &n))
        return false;
    tn_schedule_set(p->kernel, label, key, n);
    return true;
}

static bool schedule(parser *p)
{
    if (!expect(p, "{"))
        return false;
    while (!accept(p, "}")) {
        const char *text;
        int64_t n;
        if (accept(p, "bind")) {
            if (!(text = param(p)) || !expect(p, "=") || !integer(p, &n))
                return false;
            tn_schedule_bind(p->kernel, text, n);
        } else if (accept(p, "set")) {
            if (!schedule_set(p))
                return false;
        } else {
            return FAIL(p, "expected `bind`, `set` or `}`, found %s", found(p));
        }
        if (!accept(p, ";") && !at_char(p, '}'))
            return FAIL(p, "expected `;` or `}`, found %s", found(p));
    }
    return true;
}

static bool kernel(parser *p)
{
    const char *text = name(p, "@", "the kernel's name");
    if (!text)
        return false;
    p->kernel = tn_kernel_new(p->session, text);
    tn_arena *arena = &p->session->arena;
    p->values = (tn_map){.arena = arena};
    p->buffers = (tn_map){.arena = arena};
    p->views = (tn_map){.arena = arena};
    p->scope.len = 0;
    if (!list_of(p, parameter))
        return false;
    p->kernel->overlap = accept(p, "overlap");
    p->kernel->contract = accept(p, "contract");
    if (!expect(p, "grid") || !list_of(p, grid_range) || !expect(p, "{"))
        return false;
    for (;;) {
        if (accept(p, "local")) {
            if (!local(p))
                return false;
        } else if (!accept(p, "view")) {
            break;
        } else if (!view(p)) {
            return false;
        }
    }
    return operations(p, p->kernel->body) && (!accept(p, "schedule") || schedule(p));
}

static bool facts(parser *p)
{
    int64_t lo, hi, multiple = 1;
    const char *text = at_char(p, '"') ? quoted(p) : word(p, "a symbol's name");
    if (!text || !expect(p, "in") || !expect(p, "[") || !integer(p, &lo) || !expect(p, ",") || !integer(p, &hi) || !expect(p, "]") ||
        (accept(p, "multiple") && !integer(p, &multiple)))
        return false;
    if (multiple < 1)
        return FAIL(p, "a multiple must be at least 1, found %lld", (long long)multiple);
    size_t errors = p->session->errors;
    tn_dim_declare(p->session, text, lo, hi, multiple);
    return p->session->errors == errors || FAIL(p, "in this declaration");
}

tn_status tn_tile_parse(tn_session *session, const char *file, const char *source, size_t len, tn_kernels *out)
{
    if (memchr(source, 0, len))
        return tn_error(session, TN_INVALID, (tn_loc){.file = file}, "the text has a NUL character");
    const char *text = tn_strndup(&session->arena, source, len);
    parser p = {.session = session, .file = file ? tn_intern_z(session, file) : NULL, .at = text, .end = text + len, .token_at = text,
                .line_start = text, .line = 1};
    for (skip_space(&p); p.at < p.end && !p.failed; skip_space(&p)) {
        bool ok = accept(&p, "symbols") ? facts(&p)
                  : accept(&p, "kernel") ? kernel(&p)
                                         : FAIL(&p, "expected `kernel` or `symbols`, found %s", found(&p));
        if (ok && p.kernel)
            TN_PUSH(&session->arena, out, p.kernel);
        p.kernel = NULL;
        if (!ok)
            return TN_INVALID;
    }
    return p.failed ? TN_INVALID : TN_OK;
}
