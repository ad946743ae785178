/* A kernel from a function: what each parameter is, where constants come from that the caller did not give, the kernel's parameters and grid. */
#include "triton/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct argument {
    enum { MISSING, CONSTANT, NUMBER, POINTER, DESCRIPTOR } kind;
    tn_dtype dtype;
    int divisor;    /* 16, and of numbers 8, 4 or 2; 0: not known */
    int rank;
    int64_t extent[TN_TILE_RANK];
    tn_py value;
} argument;

typedef struct builder {
    tn_tcompiler *c;
    const tn_function *function;
    const tn_ast *parameters;
    argument *argument;
    TN_VEC(tn_triton_value) values;
} builder;

static bool fail(builder *b, int i, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool fail(builder *b, int i, const char *format, ...)
{
    tn_text text = {.arena = &b->c->session->arena};
    va_list args;
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    tn_ast_error(b->c->session, b->function->unit, b->parameters->child[i], TN_USAGE, "argument '%s': %s", b->parameters->child[i]->text, text.at);
    return false;
}

static bool is_constexpr(const builder *b, int i)
{
    const tn_ast *p = b->parameters->child[i];
    return p->nchildren && tn_t_is_constexpr(p->child[0]);
}

/* ---- texts of arguments ---------------------------------------------------------------------------------------------- */

static bool read_type(builder *b, int i, const char *text, size_t length, tn_dtype *out)
{
    const char *name = tn_strndup(&b->c->session->arena, text, length);
    *out = tn_t_dtype_named(name);
    return *out != TN_NO_DTYPE ||
           fail(b, i, "there is no type '%s'; there are i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2", name);
}

/* desc<f16[64x32]> */
static bool read_descriptor(builder *b, int i, const char *text, argument *a)
{
    const char *inner = text + 5, *bracket = strchr(inner, '[');
    a->kind = DESCRIPTOR;
    if (!bracket)
        return fail(b, i, "a descriptor is desc<f16[64x32]>, found '%s'", text);
    if (!read_type(b, i, inner, (size_t)(bracket - inner), &a->dtype))
        return false;
    char *end = (char *)bracket;
    do {
        const char *number = end + 1;
        int64_t extent = strtoll(number, &end, 10);
        if (end == number || extent < 1 || (extent & (extent - 1)) || extent > 1 << 20)
            return fail(b, i, "the sizes of a descriptor's block are powers of two, found '%s'", text);
        if (a->rank == TN_TILE_RANK)
            return fail(b, i, "a descriptor has at most %d axes, found '%s'", TN_TILE_RANK, text);
        a->extent[a->rank++] = extent;
    } while (*end == 'x');
    return strcmp(end, "]>") == 0 || fail(b, i, "a descriptor is desc<f16[64x32]>, found '%s'", text);
}

static bool read_literal(builder *b, int i, const char *text, argument *a)
{
    const tn_py *bound = tn_t_bound(b->c->module, b->function->unit_number, text);
    a->kind = CONSTANT;
    if (bound) {
        a->value = *bound;
        return true;
    }
    return tn_t_literal(b->c, tn_format(&b->c->session->arena, "argument %s", b->parameters->child[i]->text), text, &a->value);
}

static bool read_argument(builder *b, int i, const char *text, argument *a)
{
    *a = (argument){.kind = MISSING};
    if (!text)
        return true;
    if (text[0] == '=')
        return read_literal(b, i, text + 1, a);
    const char *equal = strchr(text, '='), *colon = strchr(text, ':');
    if (is_constexpr(b, i) && !equal)
        return fail(b, i, "it is a tl.constexpr and needs a value, '=VALUE', found the type '%s'", text);
    if (strncmp(text, "desc<", 5) == 0)
        return read_descriptor(b, i, text, a);
    a->kind = text[0] == '*' ? POINTER : NUMBER;
    text += a->kind == POINTER;
    size_t length = strcspn(text, ":=");
    if (!read_type(b, i, text, length, &a->dtype))
        return false;
    for (int divisor = 16; colon && divisor > (a->kind == POINTER ? 8 : 1); divisor /= 2) /* what launches look for in numbers, and in addresses */
        if (strcmp(colon, tn_format(&b->c->session->arena, ":%d", divisor)) == 0)
            a->divisor = divisor;
    if ((colon && !a->divisor) || (equal && a->kind == POINTER) || (a->divisor && a->kind == NUMBER && !tn_is_integer(a->dtype)))
        return fail(b, i, "an argument is a type as f32, *f32, i32:16, *f32:16, i32=1, or a value as =64, found '%s'", text);
    return !equal || read_literal(b, i, equal + 1, a);
}

/* ---- constants that the caller did not give -------------------------------------------------------------------------- */

static const tn_py *dict_value(const tn_py *dict, const char *name)
{
    for (int i = 0; i < dict->n; i++)
        if (dict->at[2 * i].kind == TN_PY_STRING && strcmp(dict->at[2 * i].text, name) == 0)
            return &dict->at[2 * i + 1];
    return NULL;
}

/* The chosen configuration: constants, num_warps and num_stages; NULL: the function has none. */
static bool chosen_config(builder *b, const tn_py **out)
{
    tn_py configs;
    int config = b->c->options->config;
    *out = NULL;
    if (!tn_t_autotune(b->c, b->function, &configs))
        return false;
    if (configs.n == 0 && config == 0)
        return true;
    if (config < 0 || config >= configs.n) {
        tn_ast_error(b->c->session, b->function->unit, b->function->node, TN_USAGE, "configuration %d of %s: it has %d", config, b->function->name, configs.n);
        return false;
    }
    *out = &configs.at[config];
    return true;
}

static void take(argument *a, const tn_py *value)
{
    if (a->kind == MISSING && value)
        *a = (argument){.kind = CONSTANT, .value = *value};
}

static bool is_option(const char *name, const char *option) { return strcmp(name, option) == 0; }

/* num_warps and num_stages, which a constant of that name sees. */
static void take_options(builder *b, const tn_py *config)
{
    tn_tcompiler *c = b->c;
    static const int otherwise[2] = {4, 3};
    const int given[2] = {c->options->num_warps, c->options->num_stages};
    int *option[2] = {&c->num_warps, &c->num_stages};
    for (int k = 0; k < 2; k++) {
        const tn_py *tuned = config ? &config->at[1 + k] : NULL;
        *option[k] = given[k] ? given[k] : tuned && tuned->kind == TN_PY_INT ? (int)tuned->integer : otherwise[k];
    }
    for (int i = 0; i < b->parameters->nchildren; i++) {
        const char *name = b->parameters->child[i]->text;
        tn_py value = tn_py_int(is_option(name, "num_warps") ? c->num_warps : is_option(name, "num_stages") ? c->num_stages : 1);
        if (is_constexpr(b, i) && (is_option(name, "num_warps") || is_option(name, "num_stages") || is_option(name, "num_ctas")))
            take(&b->argument[i], &value);
    }
}

/* What a heuristic sees of the arguments: constants, and marks in place of what is known only at launch. */
static tn_py argument_dict(builder *b)
{
    int n = b->parameters->nchildren;
    tn_py *at = TN_NEW_ARRAY(&b->c->session->arena, tn_py, 2 * (size_t)n + 1);
    tn_py dict = {.kind = TN_PY_DICT, .at = at};
    for (int i = 0; i < n; i++) {
        if (b->argument[i].kind == MISSING)
            continue;
        const char *name = b->parameters->child[i]->text;
        at[2 * dict.n] = tn_t_string_value(b->c, name, strlen(name));
        at[2 * dict.n++ + 1] = b->argument[i].kind == CONSTANT ? b->argument[i].value : tn_py_tensor(NULL);
    }
    return dict;
}

static bool take_heuristics(builder *b)
{
    tn_py heuristics;
    if (!tn_t_heuristics(b->c, b->function, &heuristics))
        return false;
    for (int i = 0; i < b->parameters->nchildren; i++) {
        const tn_py *rule = dict_value(&heuristics, b->parameters->child[i]->text);
        tn_py arguments, value;
        if (b->argument[i].kind != MISSING || !rule)
            continue;
        arguments = argument_dict(b);
        tn_function here = *b->function;
        here.node = NULL;
        tn_frame frame = {.function = &here};
        b->c->frame = &frame;
        b->c->constants_only = true;
        bool ok = tn_t_apply_call(b->c, b->parameters->child[i], rule, &arguments, 1, NULL, NULL, 0, &value);
        b->c->constants_only = false;
        b->c->frame = NULL;
        if (!ok)
            return false;
        take(&b->argument[i], &value);
    }
    return true;
}

static bool take_default(builder *b, int i)
{
    const tn_ast *p = b->parameters->child[i], *otherwise = p->nchildren > 1 ? p->child[1] : NULL;
    tn_py value;
    if (b->argument[i].kind != MISSING)
        return true;
    if (!otherwise)
        return is_constexpr(b, i) ? fail(b, i, "it is a tl.constexpr and has no value: give one, or a default, a configuration or a heuristic")
                                  : fail(b, i, "it is not given and has no default");
    if (!tn_t_host_expression(b->c, b->function, otherwise, &value))
        return false;
    take(&b->argument[i], &value);
    return true;
}

static bool complete_arguments(builder *b)
{
    const tn_py *config = NULL;
    bool missing = b->c->options->config != 0;
    for (int i = 0; i < b->parameters->nchildren; i++) {
        const tn_ast *p = b->parameters->child[i];
        if (p->integer == 1 || p->integer == 2)
            return fail(b, i, "a kernel names all of its parameters: it takes no * or **");
        missing |= b->argument[i].kind == MISSING;
    }
    if (missing && !chosen_config(b, &config))
        return false;
    for (int i = 0; config && i < b->parameters->nchildren; i++)
        take(&b->argument[i], dict_value(&config->at[0], b->parameters->child[i]->text));
    take_options(b, config);
    if (missing && !take_heuristics(b))
        return false;
    for (int i = 0; i < b->parameters->nchildren; i++)
        if (!take_default(b, i))
            return false;
    return true;
}

/* ---- parameters of the kernel ---------------------------------------------------------------------------------------- */

static tn_tvalue *add_scalar(builder *b, const char *name, tn_ttype type)
{
    tn_kernel *kernel = b->c->kernel;
    tn_tvalue *v = tn_kernel_scalar(kernel, name, type);
    TN_PUSH(&b->c->session->arena, &b->values,
            ((tn_triton_value){.name = v->name, .buffer = -1, .scalar = (int)kernel->scalars.len - 1, .type = type}));
    return v;
}

static tn_tvalue *add_pointer(builder *b, const char *name, tn_dtype dtype)
{
    tn_kernel *kernel = b->c->kernel;
    int buffer = tn_kernel_buffer(kernel, name, dtype, TN_READ, NULL);
    tn_tvalue *v = add_scalar(b, name, (tn_ttype){.dtype = dtype, .pointer = true});
    b->values.at[b->values.len - 1].buffer = buffer;
    return v;
}

static tn_py descriptor_value(builder *b, const char *name, const argument *a)
{
    tn_tcompiler *c = b->c;
    tn_arena *arena = &c->session->arena;
    tn_py_block *block = TN_NEW(arena, tn_py_block);
    block->rank = a->rank;
    block->base = add_pointer(b, name, a->dtype);
    for (int i = 0; i < a->rank; i++) {
        block->extent[i] = a->extent[i];
        block->shape[i] = add_scalar(b, tn_format(arena, "%s.shape%d", name, i), tn_tscalar(TN_I64));
    }
    for (int i = 0; i < a->rank; i++)
        block->stride[i] = add_scalar(b, tn_format(arena, "%s.stride%d", name, i), tn_tscalar(TN_I64));
    block->stride[a->rank - 1] = tn_t_index(&c->b, 1);
    return (tn_py){.kind = TN_PY_DESCRIPTOR, .block = block};
}

/* A default of a parameter that is no constexpr has its own type, as any argument; a 1 is a constant. */
static bool default_value(builder *b, int i, bool given, tn_py *value)
{
    tn_tvalue *tensor;
    if (given || is_constexpr(b, i) || !tn_py_is_number(value) || (value->kind == TN_PY_INT && value->integer == 1))
        return true;
    if (!tn_t_to_tensor(b->c, b->parameters->child[i], value, &tensor))
        return false;
    *value = tn_py_tensor(tensor);
    return true;
}

static bool bind_parameter(builder *b, int i, bool given)
{
    const char *name = b->parameters->child[i]->text;
    const argument *a = &b->argument[i];
    tn_kernel *kernel = b->c->kernel;
    tn_py value = a->value;
    tn_tvalue *v;
    switch (a->kind) {
    case POINTER:
        value = tn_py_tensor(add_pointer(b, name, a->dtype));
        kernel->buffers.at[kernel->buffers.len - 1].align = a->divisor;
        break;
    case NUMBER:
        v = add_scalar(b, name, tn_tscalar(a->dtype));
        v->divisor = a->divisor;
        value = tn_py_tensor(v);
        break;
    case DESCRIPTOR:
        value = descriptor_value(b, name, a);
        break;
    default:
        if (!default_value(b, i, given, &value))
            return false;
    }
    value.from_constexpr = is_constexpr(b, i);
    tn_t_set(b->c, name, value);
    return true;
}

/* ---- which buffers are written --------------------------------------------------------------------------------------- */

/* Buffers that a value may point into: a bit each, in the value's scratch. Kernels with more buffers than bits: all are written. */
typedef struct roots {
    const tn_kernel *kernel;
    uint64_t written;
    bool changed;
} roots;

static uint64_t roots_of(const tn_tvalue *v) { return (uint64_t)(uintptr_t)v->scratch; }

static void add_roots(roots *r, tn_tvalue *v, uint64_t more)
{
    if ((roots_of(v) | more) == roots_of(v))
        return;
    v->scratch = (void *)(uintptr_t)(roots_of(v) | more);
    r->changed = true;
}

static void follow(roots *r, const tn_tblock *block);

static void follow_region(roots *r, tn_top *op, int region, tn_tvalue *args, int nargs, int first)
{
    tn_tblock *body = op->region[region];
    for (int i = 0; i < nargs; i++)
        add_roots(r, &args[i], roots_of(op->operand[first + i]));
    follow(r, body);
}

static void follow_op(roots *r, tn_top *op)
{
    bool loads = op->code == TN_T_load_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_atomic_load || op->code == TN_T_cas_ptr;
    bool writes = op->code == TN_T_store_ptr || op->code == TN_T_atomic_ptr || op->code == TN_T_cas_ptr;
    int n = op->nresults;
    uint64_t all = 0;
    if (writes)
        r->written |= roots_of(op->operand[0]);
    if (op->code == TN_T_for) {
        follow_region(r, op, 0, op->region[0]->arg + 1, n, 3);
    } else if (op->code == TN_T_while) {
        follow_region(r, op, 0, op->region[0]->arg, n, 0);
        follow_region(r, op, 1, op->region[1]->arg, n, 0);
    } else {
        for (int i = 0; i < op->nregions; i++)
            follow(r, op->region[i]);
    }
    for (int i = 0; i < op->noperands && !loads && op->nregions == 0; i++)
        all |= roots_of(op->operand[i]);
    for (int i = 0; i < n; i++)
        add_roots(r, &op->result[i], all);
    bool carries = op->code == TN_T_for || op->code == TN_T_while;
    for (int k = 0; (carries || op->code == TN_T_if) && k < op->nregions; k++) {
        const tn_top *yield = op->region[k]->last;
        if (yield->noperands != n || (op->code == TN_T_while && k == 0))
            continue;
        for (int i = 0; i < n; i++) {
            add_roots(r, &op->result[i], roots_of(yield->operand[i]));
            if (op->code == TN_T_for)
                add_roots(r, &op->region[0]->arg[1 + i], roots_of(yield->operand[i]));
            if (op->code == TN_T_while)
                add_roots(r, &op->region[0]->arg[i], roots_of(yield->operand[i])), add_roots(r, &op->region[1]->arg[i], roots_of(yield->operand[i]));
        }
    }
    for (int i = 0; carries && i < n; i++)
        add_roots(r, &op->result[i], roots_of(op->operand[i + (op->code == TN_T_for ? 3 : 0)]));
}

static void follow(roots *r, const tn_tblock *block)
{
    for (tn_top *op = block->first; op; op = op->next)
        follow_op(r, op);
}

static void clear_block(tn_tblock *block)
{
    for (int i = 0; i < block->nargs; i++)
        block->arg[i].scratch = NULL;
    for (tn_top *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nresults; i++)
            op->result[i].scratch = NULL;
        for (int i = 0; i < op->nregions; i++)
            clear_block(op->region[i]);
    }
}

static void buffer_modes(tn_kernel *kernel)
{
    roots r = {.kernel = kernel, .written = UINT64_MAX};
    size_t n = kernel->buffers.len;
    if (n <= 64) {
        r.written = 0;
        clear_block(kernel->body);
        for (size_t i = 0, b = 0; i < kernel->scalars.len; i++) {
            bool pointer = kernel->scalars.at[i]->type.pointer;
            kernel->scalars.at[i]->scratch = pointer ? (void *)(uintptr_t)((uint64_t)1 << b) : NULL;
            b += pointer;
        }
        do {
            r.changed = false;
            follow(&r, kernel->body);
        } while (r.changed);
    }
    for (size_t i = 0; i < n; i++)
        kernel->buffers.at[i].mode = i >= 64 || (r.written >> i & 1) ? TN_READ_WRITE : TN_READ;
}

typedef struct acquirer {
    tn_map used; /* tn_tvalue */
    bool found;
} acquirer;

static void mark_used(void *context, tn_top *op)
{
    acquirer *a = context;
    for (int i = 0; i < op->noperands; i++)
        *tn_map_at(&a->used, TN_KEY(op->operand[i])) = op;
    for (int d = 0; op->view && d < op->view->rank; d++)
        if (op->subscript[d].value)
            *tn_map_at(&a->used, TN_KEY(op->subscript[d].value)) = op;
}

/* An atomic whose old value nobody looks at, or that is relaxed, knows of nobody. A volatile load may be what a program waits by, whatever its order. */
static void find_acquirer(void *context, tn_top *op)
{
    acquirer *a = context;
    bool looks = tn_top_is_atomic(op->code) && tn_map_get(&a->used, TN_KEY(op->result)) && !(op->text && strncmp(op->text, "relaxed", 7) == 0);
    a->found |= looks || op->code == TN_T_atomic_load || op->code == TN_T_fence;
}

/* Atomics and fences order what is loaded after what other programs, of other kernels too, have stored: nothing is constant then, whoever stores it. */
static bool orders_memory(tn_kernel *kernel)
{
    acquirer a = {.used = {.arena = &kernel->session->arena}};
    tn_tile_walk(kernel->body, mark_used, &a);
    tn_tile_walk(kernel->body, find_acquirer, &a);
    return a.found;
}

/* ---- compiling ------------------------------------------------------------------------------------------------------- */

/* The status of the first error after these. */
static tn_status first_status(const tn_session *session, size_t before)
{
    for (size_t i = before; i < session->diags.len; i++)
        if (session->diags.at[i].severity == TN_ERROR)
            return session->diags.at[i].status;
    return TN_INVALID;
}

static void new_kernel(tn_tcompiler *c, const tn_function *function)
{
    static const char *const names[][2] = {{"program_z", "grid_z"}, {"program_y", "grid_y"}, {"program_x", "grid_x"}};
    c->kernel = tn_kernel_new(c->session, function->name);
    c->kernel->overlap = true;
    for (size_t i = 0; i < TN_COUNT(names); i++)
        tn_kernel_grid(c->kernel, names[i][0], tn_dim_symbol(c->session, names[i][1]), tn_extent_const(1));
    c->b = tn_tbuilder_at(c->kernel, c->kernel->body, TN_NO_LOC);
}

tn_status tn_triton_compile(tn_triton_module *module, int unit, const char *name, const char *const *arguments, size_t narguments, const tn_triton_options *options,
                            tn_triton_kernel *out)
{
    static const tn_triton_options none = {0};
    const tn_triton_parameter *unused;
    size_t n;
    tn_session *session = tn_triton_session(module);
    TN_TRY(tn_triton_parameters(module, unit, name, &unused, &n));
    const tn_function *function = tn_t_unit_function(module, unit, name);
    tn_tcompiler c = {.session = session, .module = module, .options = options ? options : &none, .carried.arena = &session->arena, .partial.arena = &session->arena};
    builder b = {.c = &c, .function = function, .parameters = function->node->child[0]};
    tn_frame frame = {.function = function};
    size_t before = session->diags.len;
    if (narguments != n)
        return tn_ast_error(session, function->unit, function->node, TN_USAGE, "%s has %zu parameters, and %zu arguments were given", name, n, narguments);
    b.argument = TN_NEW_ARRAY(&session->arena, argument, n + 1);
    for (size_t i = 0; i < n; i++)
        if (!read_argument(&b, (int)i, arguments[i], &b.argument[i]))
            return TN_USAGE;
    if (!complete_arguments(&b))
        return first_status(session, before);
    new_kernel(&c, function);
    c.frame = &frame;
    tn_t_at(&c, function->node);
    for (size_t i = 0; i < n; i++)
        if (!bind_parameter(&b, (int)i, arguments[i] != NULL))
            return first_status(session, before);
    if (!tn_t_run_kernel(&c))
        return first_status(session, before);
    buffer_modes(c.kernel);
    c.kernel->contract = c.options->contract;
    c.kernel->overlap = !c.options->apart || orders_memory(c.kernel);
    TN_TRY(tn_tile_verify(c.kernel));
    *out = (tn_triton_kernel){.kernel = c.kernel, .value = b.values.at, .nvalues = b.values.len, .num_warps = c.num_warps, .num_stages = c.num_stages};
    return TN_OK;
}
