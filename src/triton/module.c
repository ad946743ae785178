/* Units and what their global names stand for; members of modules; decorators. Host code is evaluated only as far as kernels need it: constants, names of
 * functions and types, lists of configurations. */
#include "triton/internal.h"
#include "triton/lex.h"

#include <string.h>

/* An assignment, evaluated when it is first needed. */
typedef struct global {
    enum { IDLE, RUNNING, KNOWN } state;
    tn_py value;
} global;
typedef struct unit {
    tn_ast_unit *ast;
    int number;
    tn_function place;  /* of host code */
    tn_map bound;       /* name -> tn_py that tn_triton_bind gave, literal or function */
    tn_map globals;     /* ANNOTATED or ASSIGN node -> global */
    tn_map functions;   /* FUNCTION node -> tn_function; of the prelude: name -> tn_function, found or not */
    tn_map host;        /* FUNCTION node of the host -> tn_function that was read in whole */
} unit;
struct tn_triton_module {
    tn_session *session;
    TN_VEC(unit *) units;
    unit *prelude; /* NULL until something of it is needed */
};

/* ---- units ----------------------------------------------------------------------------------------------------------- */

tn_triton_module *tn_triton_module_new(tn_session *session)
{
    tn_triton_module *module = TN_NEW(&session->arena, tn_triton_module);
    module->session = session;
    return module;
}

tn_session *tn_triton_session(const tn_triton_module *module) { return module->session; }

static unit *new_unit(tn_triton_module *module, tn_ast_unit *ast, int number)
{
    tn_arena *arena = &module->session->arena;
    unit *u = TN_NEW(arena, unit);
    *u = (unit){.ast = ast, .number = number};
    u->place = (tn_function){.unit = ast, .unit_number = number, .name = ast->file};
    u->bound.arena = u->globals.arena = u->functions.arena = u->host.arena = arena;
    return u;
}

tn_status tn_triton_add(tn_triton_module *module, const char *file, int first_line, const char *text, size_t size, int *number)
{
    tn_ast_unit *ast;
    char *copy = tn_alloc(&module->session->arena, size + 1); /* a zero byte in it is an error that shows its line, so all of it is copied */
    memcpy(copy, text, size);
    TN_TRY(tn_ast_parse(module->session, tn_intern_z(module->session, file), first_line, copy, size, &ast));
    *number = (int)module->units.len;
    TN_PUSH(&module->session->arena, &module->units, new_unit(module, ast, *number));
    return TN_OK;
}

/* Its functions are read one by one, when they are needed: a kernel uses few of them. */
static unit *prelude_of(tn_triton_module *module)
{
    if (!module->prelude) {
        tn_ast_unit *ast = TN_NEW(&module->session->arena, tn_ast_unit);
        *ast = (tn_ast_unit){.file = tn_intern_z(module->session, "triton/prelude.tl"), .source = tn_triton_prelude, .size = tn_triton_prelude_size, .first_line = 1};
        module->prelude = new_unit(module, ast, TN_T_PRELUDE);
    }
    return module->prelude;
}

/* NULL: a literal, which has none, or there is no such. */
static unit *unit_of(const tn_triton_module *module, int number)
{
    if (number == TN_T_PRELUDE)
        return module->prelude;
    return number >= 0 && (size_t)number < module->units.len ? module->units.at[number] : NULL;
}

const tn_ast_unit *tn_triton_unit(const tn_triton_module *module, int number)
{
    const unit *u = unit_of(module, number);
    return u ? u->ast : NULL;
}

static const tn_function *new_function(tn_triton_module *module, const unit *u, const tn_ast_unit *ast, const tn_ast *node)
{
    tn_function *function = TN_NEW(&module->session->arena, tn_function);
    *function = (tn_function){.node = node, .unit = ast, .unit_number = u->number, .name = node->text};
    return function;
}

/* From its decorator to the next one. NULL: the prelude has no such function. */
static const tn_function *parse_prelude_function(tn_triton_module *module, const unit *u, const char *name)
{
    static const char decorator[] = "\n@jit\n";
    tn_session *session = module->session;
    const char *head = tn_format(&session->arena, "%sdef %s(", decorator, name), *text = u->ast->source, *start = strstr(text, head);
    if (!start)
        return NULL;
    const char *next = strstr(++start, decorator);
    size_t size = next ? (size_t)(next - start) : strlen(start);
    int line = 1;
    for (const char *at = text; at < start; at++)
        line += *at == '\n';
    tn_ast_unit *ast;
    if (tn_ast_parse(session, u->ast->file, line, start, size, &ast) != TN_OK)
        return NULL;
    return new_function(module, u, ast, ast->functions.at[0]);
}

static const tn_function *function_of_prelude(tn_triton_module *module, unit *u, const char *name)
{
    static const tn_function none;
    const tn_function *found = tn_map_get_str(&u->functions, name);
    if (!found) {
        found = parse_prelude_function(module, u, name);
        *tn_map_at_str(&u->functions, name) = (void *)(found ? found : &none);
    }
    return found == &none ? NULL : found;
}

static const tn_function *function_of(tn_triton_module *module, unit *u, const char *name)
{
    if (u->number == TN_T_PRELUDE)
        return function_of_prelude(module, u, name);
    for (size_t i = u->ast->functions.len; i-- > 0;) { /* the last definition is the one that holds */
        const tn_ast *node = u->ast->functions.at[i];
        if (strcmp(node->text, name) != 0)
            continue;
        void **cell = tn_map_at(&u->functions, TN_KEY(node));
        if (!*cell)
            *cell = (void *)new_function(module, u, u->ast, node);
        return *cell;
    }
    return NULL;
}

const tn_function *tn_t_unit_function(tn_triton_module *module, int number, const char *name)
{
    unit *u = unit_of(module, number);
    return u ? function_of(module, u, name) : NULL;
}

static const tn_function *prelude_function(tn_triton_module *module, const char *name)
{
    unit *u = prelude_of(module);
    return u ? function_of(module, u, name) : NULL;
}

const tn_function *tn_t_host_function(tn_tcompiler *c, const tn_function *function)
{
    unit *u = unit_of(c->module, function->unit_number);
    const tn_ast *node = function->node;
    tn_ast_unit *ast;
    void **cell = u ? tn_map_at(&u->host, TN_KEY(node)) : NULL;
    if (!cell)
        return NULL;
    if (*cell)
        return *cell;
    if (tn_ast_parse(c->session, u->ast->file, node->line, u->ast->source + (size_t)node->integer, node->length, &ast) != TN_OK)
        return NULL;
    tn_function *found = TN_NEW(&c->session->arena, tn_function);
    *found = *function;
    found->unit = ast;
    found->host = true;
    for (size_t i = 0; i < ast->functions.len; i++)
        if (ast->functions.at[i]->child[1]) {
            found->node = ast->functions.at[i];
            *cell = found;
        }
    return *cell;
}

bool tn_t_is_jit(const tn_function *function) { return function->node->child[1] != NULL; }

/* ---- bindings -------------------------------------------------------------------------------------------------------- */

static tn_status bad_unit(tn_triton_module *module, int number)
{
    return tn_error(module->session, TN_USAGE, TN_NO_LOC, "the module has no text number %d", number);
}

/* NAME, or names with dots between them. */
static bool is_dotted_name(const char *name)
{
    while (tn_is_name_start(*name)) {
        while (tn_is_name(*name))
            name++;
        if (*name != '.')
            return !*name;
        name++;
    }
    return false;
}

tn_status tn_triton_bind(tn_triton_module *module, int number, const char *name, const char *literal)
{
    unit *u = unit_of(module, number);
    tn_tcompiler c = {.session = module->session, .module = module, .constants_only = true};
    tn_py *value = TN_NEW(&module->session->arena, tn_py);
    if (!u)
        return bad_unit(module, number);
    if (!is_dotted_name(name))
        return tn_error(module->session, TN_USAGE, TN_NO_LOC, "'%s' is no name that a text could use; expected NAME or MODULE.NAME", name);
    if (!tn_t_literal(&c, tn_format(&module->session->arena, "constant %s", name), literal, value))
        return TN_INVALID;
    value->from_constexpr = true;
    *tn_map_at_str(&u->bound, name) = value;
    return TN_OK;
}

const tn_py *tn_t_bound(const tn_triton_module *module, int number, const char *name)
{
    const unit *u = unit_of(module, number);
    return u ? tn_map_get_str(&u->bound, name) : NULL;
}

static tn_status no_function(tn_triton_module *module, const unit *u, const char *name)
{
    tn_text text = {.arena = &module->session->arena};
    for (size_t i = 0; i < u->ast->functions.len; i++)
        if (u->ast->functions.at[i]->child[1])
            tn_text_add(&text, "%s%s", text.len ? ", " : "", u->ast->functions.at[i]->text);
    return tn_error(module->session, TN_USAGE, (tn_loc){.file = u->ast->file}, "there is no @triton.jit function '%s'; there %s", name,
                    text.len ? tn_format(&module->session->arena, "are %s", text.at) : "is none");
}

/* The function that is wanted, or NULL and a diagnostic. */
static const tn_function *wanted_function(tn_triton_module *module, int number, const char *name)
{
    unit *u = unit_of(module, number);
    const tn_function *function = u ? function_of(module, u, name) : NULL;
    if (u && function && tn_t_is_jit(function))
        return function;
    u ? no_function(module, u, name) : bad_unit(module, number);
    return NULL;
}

tn_status tn_triton_bind_function(tn_triton_module *module, int number, const char *name, int other, const char *function)
{
    unit *u = unit_of(module, number);
    const tn_function *found = wanted_function(module, other, function);
    if (!u)
        return bad_unit(module, number);
    if (!found)
        return TN_USAGE;
    tn_py *value = TN_NEW(&module->session->arena, tn_py);
    *value = (tn_py){.kind = TN_PY_FUNCTION, .function = found};
    *tn_map_at_str(&u->bound, name) = value;
    return TN_OK;
}

/* ---- host code ------------------------------------------------------------------------------------------------------- */

bool tn_t_host_expression(tn_tcompiler *c, const tn_function *place, const tn_ast *node, tn_py *out)
{
    tn_function here = *place;
    here.node = NULL;
    tn_frame frame = {.function = tn_memdup(&c->session->arena, &here, sizeof here), .caller = c->frame, .call = node};
    bool constants_only = c->constants_only;
    if (c->frame) /* errors name the place that needed it: the statement that is compiled */
        frame.call = tn_memdup(&c->session->arena, &(tn_ast){.line = c->b.loc.line, .column = c->b.loc.column}, sizeof(tn_ast));
    c->frame = &frame;
    c->constants_only = true;
    bool ok = tn_t_expression(c, node, out);
    c->frame = frame.caller;
    c->constants_only = constants_only;
    return ok;
}

bool tn_t_literal(tn_tcompiler *c, const char *what, const char *text, tn_py *out)
{
    tn_ast *node;
    tn_ast_unit *ast = TN_NEW(&c->session->arena, tn_ast_unit);
    const char *copy = tn_strdup(&c->session->arena, text);
    *ast = (tn_ast_unit){.file = tn_intern_z(c->session, what), .source = copy, .size = strlen(copy), .first_line = 1};
    tn_function place = {.unit = ast, .unit_number = TN_T_LITERAL, .name = what};
    return tn_ast_parse_expression(c->session, ast->file, copy, ast->size, &node) == TN_OK && tn_t_host_expression(c, &place, node, out);
}

/* ---- modules --------------------------------------------------------------------------------------------------------- */

static tn_py module_value(tn_tcompiler *c, const char *name)
{
    return (tn_py){.kind = TN_PY_MODULE, .text = tn_intern_z(c->session, name)};
}

/* tenon.triton is triton; libdevice has several addresses. */
static const char *canonical(const char *module)
{
    static const char *const libdevices[] = {"triton.language.libdevice", "triton.language.math.libdevice", "triton.language.extra.cuda.libdevice",
                                             "triton.language.extra.hip.libdevice", "triton.language.extra.intel.libdevice"};
    if (strncmp(module, "tenon.triton", 12) == 0 && (module[12] == '.' || module[12] == 0))
        module += 6;
    for (size_t i = 0; i < TN_COUNT(libdevices); i++)
        if (strcmp(module, libdevices[i]) == 0)
            return TN_TRITON_LIBDEVICE;
    return module;
}

/* Modules and classes that hold names but no builtins of their own. */
static bool is_module(const char *name)
{
    static const char *const modules[] = {
        "tenon", "triton", TN_TRITON_LANGUAGE, TN_TRITON_LIBDEVICE, "triton.language.extra", TN_TRITON_CUDA, "triton.language.extra.hip",
        "triton.language.extra.intel", "triton.language.math", "triton.language.core", "triton.language.standard", "triton.language.random", "triton.runtime",
        "triton.runtime.driver", "triton.runtime.driver.active", TN_TRITON_TARGET, "itertools",
        /* classes, which isinstance and annotations name */
        "triton.language.tensor", "triton.language.tuple", "triton.language.block_pointer", "triton.language.tensor_descriptor",
    };
    for (size_t i = 0; i < TN_COUNT(modules); i++)
        if (strcmp(modules[i], name) == 0)
            return true;
    return tn_t_is_module(name);
}

static bool is_language(const char *module)
{
    static const char *const names[] = {TN_TRITON_LANGUAGE, "triton.language.core", "triton.language.standard", "triton.language.random", "triton.language.math"};
    for (size_t i = 0; i < TN_COUNT(names); i++)
        if (strcmp(names[i], module) == 0)
            return true;
    return false;
}

static bool member(tn_tcompiler *c, const char *module, const char *name, tn_py *out, const char **refused)
{
    tn_arena *arena = &c->session->arena;
    const tn_builtin *builtin = tn_t_builtin_find(module, name);
    const tn_function *function = NULL;
    *refused = NULL;
    if (!builtin)
        builtin = tn_t_python_find(is_language(module) ? TN_TRITON_LANGUAGE : module, name);
    if (builtin) {
        *out = (tn_py){.kind = TN_PY_BUILTIN, .builtin = builtin};
        return true;
    }
    if (tn_t_constant_member(module, name, out, refused))
        return true;
    if (strcmp(module, TN_TRITON_TARGET) == 0 && strcmp(name, "backend") == 0) { /* what configurations are written for, if not for AMD's GPUs */
        *out = tn_t_string_value(c, "cuda", 4);
        return true;
    }
    if (strcmp(module, TN_TRITON_LIBDEVICE) == 0)
        function = name[0] == '_' ? NULL : tn_t_libdevice(c, name);
    else if (strcmp(module, TN_TRITON_CUDA) == 0)
        function = prelude_function(c->module, tn_format(arena, "cuda_%s", name));
    else if (is_language(module) && (name[0] != '_' || tn_t_in_prelude(c)) && strncmp(name, "libdevice_", 10) != 0 && strncmp(name, "cuda_", 5) != 0)
        function = prelude_function(c->module, name);
    if (function) {
        *out = (tn_py){.kind = TN_PY_FUNCTION, .function = function};
        return true;
    }
    const char *inner = canonical(tn_format(arena, "%s.%s", module, name));
    *out = module_value(c, inner);
    return is_module(inner);
}

const tn_function *tn_t_libdevice(tn_tcompiler *c, const char *name)
{
    return prelude_function(c->module, tn_format(&c->session->arena, "libdevice_%s", name));
}

bool tn_t_member(tn_tcompiler *c, const tn_ast *at, const char *module, const char *name, tn_py *out)
{
    const char *refused;
    module = canonical(module);
    if (member(c, module, name, out, &refused))
        return true;
    if (refused)
        return tn_t_refuse(c, at, "%s.%s: %s", module, name, refused);
    const tn_py *bound = c->frame && !is_module(module) ? tn_t_bound(c->module, c->frame->function->unit_number, tn_format(&c->session->arena, "%s.%s", module, name)) : NULL;
    if (bound) {
        *out = *bound;
        return true;
    }
    if (!is_module(module))
        return tn_t_error(c, at, "%s is a module of the host program; a kernel knows triton's modules only, and what is computed from others comes in as an argument or a "
                                 "tl.constexpr", module);
    return tn_t_error(c, at, "%s has no '%s'", module, name);
}

const tn_function *tn_t_method(tn_tcompiler *c, const char *name)
{
    static const char *const methods[] = {"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce_or", "cumsum", "cumprod", "flip", "sort", "topk", "sigmoid", "softmax",
                                          "ravel", "cdiv", "swizzle2d"};
    for (size_t i = 0; i < TN_COUNT(methods); i++)
        if (strcmp(methods[i], name) == 0)
            return prelude_function(c->module, name);
    return NULL;
}

/* ---- global names ---------------------------------------------------------------------------------------------------- */

static const char *last_name(const tn_ast *node)
{
    if (node && node->kind == TN_AST_CALL)
        node = node->child[0];
    if (!node)
        return "";
    if (node->kind == TN_AST_STRING) { /* annotations may be quoted */
        const char *dot = strrchr(node->text, '.');
        return dot ? dot + 1 : node->text;
    }
    return node->kind == TN_AST_NAME || node->kind == TN_AST_ATTRIBUTE ? node->text : "";
}

bool tn_t_is_constexpr(const tn_ast *annotation)
{
    return annotation && annotation->kind != TN_AST_CALL && strcmp(last_name(annotation), "constexpr") == 0;
}

static const tn_ast *assignment_of(const unit *u, const char *name)
{
    for (size_t i = u->ast->assignments.len; i-- > 0;) {
        const tn_ast *node = u->ast->assignments.at[i];
        int first = node->kind == TN_AST_ASSIGN ? 1 : 0, end = node->kind == TN_AST_ASSIGN ? node->nchildren : 1;
        for (int k = first; k < end; k++)
            if (node->child[k]->kind == TN_AST_NAME && strcmp(node->child[k]->text, name) == 0)
                return node;
    }
    return NULL;
}

static const tn_ast *value_of(const tn_ast *assignment)
{
    return assignment->kind == TN_AST_ASSIGN ? assignment->child[0] : assignment->nchildren > 2 ? assignment->child[2] : NULL;
}

/* x = tl.constexpr(…), or annotated so. */
static bool is_constant_definition(const tn_ast *assignment)
{
    const tn_ast *value = value_of(assignment);
    return (assignment->kind == TN_AST_ANNOTATED && tn_t_is_constexpr(assignment->child[1])) || (value->kind == TN_AST_CALL && strcmp(last_name(value), "constexpr") == 0);
}

/* What a kernel may see of a global that is no constexpr: another name of something it may see. */
static bool is_alias(const tn_ast *value)
{
    while (value->kind == TN_AST_ATTRIBUTE)
        value = value->child[0];
    return value->kind == TN_AST_NAME;
}

static bool is_visible(const tn_py *v)
{
    return v->kind == TN_PY_FUNCTION || v->kind == TN_PY_BUILTIN || v->kind == TN_PY_MODULE || v->kind == TN_PY_DTYPE || v->from_constexpr;
}

static bool refuse_global(tn_tcompiler *c, const tn_ast *at, const char *name, const tn_ast *assignment)
{
    return tn_t_error(c, at, "'%s' is a global variable (line %d), and a kernel sees only those that are constants: write %s = tl.constexpr(…), or %s: tl.constexpr = …, or "
                             "make it an argument", name, assignment->line, name, name);
}

static bool assigned_global(tn_tcompiler *c, const tn_ast *at, unit *u, const char *name, const tn_ast *assignment, tn_py *out)
{
    const tn_ast *value = value_of(assignment);
    bool constant = value && is_constant_definition(assignment);
    if (!value)
        return tn_t_error(c, at, "'%s' is declared at line %d and has no value", name, assignment->line);
    if (!constant && !c->constants_only && !is_alias(value))
        return refuse_global(c, at, name, assignment);
    void **cell = tn_map_at(&u->globals, TN_KEY(assignment));
    if (!*cell)
        *cell = TN_NEW(&c->session->arena, global);
    global *g = *cell;
    if (g->state == RUNNING)
        return tn_t_error(c, at, "the value of '%s' needs itself", name);
    if (g->state == IDLE) {
        g->state = RUNNING;
        bool ok = tn_t_host_expression(c, &u->place, value, &g->value);
        g->state = ok ? KNOWN : IDLE;
        if (!ok)
            return false;
        g->value.from_constexpr |= constant;
    }
    *out = g->value;
    return c->constants_only || is_visible(out) || refuse_global(c, at, name, assignment);
}

static bool imported(tn_tcompiler *c, const tn_ast *at, const tn_ast_import *import, tn_py *out)
{
    const char *module = canonical(import->module), *dot = strchr(module, '.');
    const char *refused;
    if (!import->member) {
        bool binds_first = dot && strlen(import->name) == (size_t)(dot - module) && strncmp(import->name, module, strlen(import->name)) == 0;
        *out = module_value(c, binds_first ? import->name : module);
        return true;
    }
    if (is_module(module) && member(c, module, import->member, out, &refused))
        return true;
    if (is_module(module))
        return tn_t_member(c, at, module, import->member, out);
    return tn_t_error(c, at, "'%s' comes from %s, whose text is not here; constants and functions of other files are bound to the module (in Python the decorator does it)",
                      import->name, module);
}

static bool usual_module(tn_tcompiler *c, const char *name, tn_py *out)
{
    static const char *const usual[][2] = {{"triton", "triton"}, {"tl", TN_TRITON_LANGUAGE}, {"libdevice", TN_TRITON_LIBDEVICE}};
    for (size_t i = 0; i < TN_COUNT(usual); i++)
        if (strcmp(usual[i][0], name) == 0) {
            *out = module_value(c, usual[i][1]);
            return true;
        }
    return false;
}

bool tn_t_global(tn_tcompiler *c, const tn_ast *at, int number, const char *name, tn_py *out, bool *found)
{
    unit *u = unit_of(c->module, number);
    const tn_py *bound = u ? tn_map_get_str(&u->bound, name) : NULL;
    const tn_function *function = u && !bound ? function_of(c->module, u, name) : NULL;
    const tn_ast *assignment = u ? assignment_of(u, name) : NULL;
    const char *refused;
    *found = true;
    if (bound || function) {
        *out = bound ? *bound : (tn_py){.kind = TN_PY_FUNCTION, .function = function};
        return true;
    }
    if (assignment)
        return assigned_global(c, at, u, name, assignment, out);
    for (size_t i = u ? u->ast->imports.len : 0; i-- > 0;)
        if (strcmp(u->ast->imports.at[i].name, name) == 0)
            return imported(c, at, &u->ast->imports.at[i], out);
    if ((!u || u->ast->imports.len == 0) && usual_module(c, name, out))
        return true;
    const tn_builtin *builtin = tn_t_python_find("python", name);
    *out = (tn_py){.kind = TN_PY_BUILTIN, .builtin = builtin};
    *found = builtin || (number < 0 && member(c, TN_TRITON_LANGUAGE, name, out, &refused));
    return true;
}

/* ---- decorators ------------------------------------------------------------------------------------------------------ */

/* The function's decorator of this name, or NULL. */
static const tn_ast *decorator(const tn_function *function, const char *name)
{
    for (int i = 3; i < function->node->nchildren; i++)
        if (strcmp(last_name(function->node->child[i]), name) == 0)
            return function->node->child[i];
    return NULL;
}

/* An argument of a decorator, by its name or (place >= 0) place; NULL: not given. */
static const tn_ast *decorator_argument(const tn_ast *call, const char *name, int place)
{
    for (int i = 1; call && call->kind == TN_AST_CALL && i < call->nchildren; i++) {
        const tn_ast *a = call->child[i];
        if (a->kind == TN_AST_KEYWORD ? a->text && strcmp(a->text, name) == 0 : i == place + 1)
            return a->kind == TN_AST_KEYWORD ? a->child[0] : a;
    }
    return NULL;
}

bool tn_t_autotune(tn_tcompiler *c, const tn_function *function, tn_py *configs)
{
    const tn_ast *source = decorator_argument(decorator(function, "autotune"), "configs", 0);
    *configs = (tn_py){.kind = TN_PY_TUPLE};
    if (!source)
        return true;
    if (!tn_t_host_expression(c, function, source, configs))
        return false;
    bool right = configs->kind == TN_PY_TUPLE;
    for (int i = 0; right && i < configs->n; i++)
        right = configs->at[i].kind == TN_PY_CONFIG;
    if (right)
        return true;
    tn_ast_error(c->session, function->unit, source, TN_INVALID, "configs is a list of triton.Config, found %s", tn_t_describe(c, configs));
    return false;
}

bool tn_t_heuristics(tn_tcompiler *c, const tn_function *function, tn_py *heuristics)
{
    const tn_ast *source = decorator_argument(decorator(function, "heuristics"), "values", 0);
    *heuristics = (tn_py){.kind = TN_PY_DICT};
    if (!source)
        return true;
    if (!tn_t_host_expression(c, function, source, heuristics))
        return false;
    if (heuristics->kind == TN_PY_DICT)
        return true;
    tn_ast_error(c->session, function->unit, source, TN_INVALID, "heuristics takes a dict from names to functions, found %s", tn_t_describe(c, heuristics));
    return false;
}

/* Evaluates what may fail without a report: then it says nothing. */
static bool quietly(tn_tcompiler *c, const tn_function *function, bool (*evaluate)(tn_tcompiler *, const tn_function *, tn_py *), tn_py *out)
{
    size_t errors = c->session->errors, diags = c->session->diags.len;
    bool ok = evaluate(c, function, out);
    c->session->errors = errors;
    c->session->diags.len = diags;
    return ok;
}

static bool has_key(const tn_py *dict, const char *name)
{
    for (int i = 0; i < dict->n; i++)
        if (dict->at[2 * i].kind == TN_PY_STRING && strcmp(dict->at[2 * i].text, name) == 0)
            return true;
    return false;
}

/* Does a list in the decorator name the parameter, by its name or number? */
static bool listed(const tn_function *function, const char *list, const char *name, int number)
{
    const tn_ast *source = decorator_argument(decorator(function, "jit"), list, -2);
    for (int i = 0; source && (source->kind == TN_AST_LIST || source->kind == TN_AST_TUPLE) && i < source->nchildren; i++) {
        const tn_ast *item = source->child[i];
        if (item->kind == TN_AST_STRING ? strcmp(item->text, name) == 0 : item->kind == TN_AST_INT && item->integer == number)
            return true;
    }
    return false;
}

/* "f32" of tl.float32; NULL of what names no type. */
static const char *annotated_type(const tn_ast *annotation)
{
    tn_dtype dtype = annotation && !tn_t_is_constexpr(annotation) && annotation->kind != TN_AST_NAME ? tn_t_dtype_named(last_name(annotation)) : TN_NO_DTYPE;
    return dtype == TN_BOOL ? "i1" : dtype == TN_F8E4M3 ? "f8e4m3" : dtype == TN_NO_DTYPE ? NULL : tn_dtype_text(dtype);
}

tn_status tn_triton_parameters(tn_triton_module *module, int number, const char *name, const tn_triton_parameter **out, size_t *n)
{
    const tn_function *function = wanted_function(module, number, name);
    tn_tcompiler c = {.session = module->session, .module = module, .constants_only = true};
    tn_py configs, heuristics;
    if (!function)
        return TN_USAGE;
    const tn_ast *parameters = function->node->child[0];
    bool tuned = quietly(&c, function, tn_t_autotune, &configs), guessed = quietly(&c, function, tn_t_heuristics, &heuristics);
    tn_triton_parameter *list = TN_NEW_ARRAY(&module->session->arena, tn_triton_parameter, (size_t)parameters->nchildren + 1);
    for (int i = 0; i < parameters->nchildren; i++) {
        const tn_ast *p = parameters->child[i], *annotation = p->nchildren ? p->child[0] : NULL;
        list[i] = (tn_triton_parameter){.name = p->text, .constexpr = tn_t_is_constexpr(annotation), .type = annotated_type(annotation)};
        list[i].do_not_specialize = listed(function, "do_not_specialize", p->text, i);
        list[i].optional = (p->nchildren > 1 && p->child[1]) || (!tuned && list[i].constexpr) /* compiling will say why */ || (guessed && has_key(&heuristics, p->text)) ||
                           (tuned && configs.n && has_key(&configs.at[0].at[0], p->text));
    }
    *out = list;
    *n = (size_t)parameters->nchildren;
    return TN_OK;
}

tn_status tn_triton_configs(tn_triton_module *module, int number, const char *name, size_t *n)
{
    const tn_function *function = wanted_function(module, number, name);
    tn_tcompiler c = {.session = module->session, .module = module, .constants_only = true};
    tn_py configs;
    if (!function)
        return TN_USAGE;
    if (!tn_t_autotune(&c, function, &configs))
        return TN_INVALID;
    *n = (size_t)configs.n;
    return TN_OK;
}

const char *tn_triton_config(tn_triton_module *module, int number, const char *name, size_t i)
{
    const tn_function *function = wanted_function(module, number, name);
    tn_tcompiler c = {.session = module->session, .module = module, .constants_only = true};
    tn_text text = {.arena = &module->session->arena};
    tn_py configs;
    if (!function || !tn_t_autotune(&c, function, &configs) || i >= (size_t)configs.n)
        return NULL;
    static const char *const options[] = {NULL, "num_warps", "num_stages"};
    const tn_py *config = &configs.at[i], *constants = &config->at[0];
    tn_text_put(&text, "", 0);
    for (int k = 0; k < constants->n; k++) {
        tn_text_add(&text, text.len ? " " : "");
        tn_t_text_constant(&c, &text, &constants->at[2 * k], false);
        tn_text_add(&text, "=");
        tn_t_text_constant(&c, &text, &constants->at[2 * k + 1], true);
    }
    for (int k = 1; k <= 2; k++)
        if (config->at[k].kind == TN_PY_INT)
            tn_text_add(&text, "%s%s=%lld", text.len ? " " : "", options[k], (long long)config->at[k].integer);
    return text.at;
}
