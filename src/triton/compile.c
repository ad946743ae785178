/* Functions and statements. A function is compiled where it is called, for the values that it is called with.
 *
 * A branch on a value compiles both sides, each into a block of its own and with the names as they were; names that differ afterwards become results of the
 * `if` (flow.c). What stands after a branch of which a side returns moves into the other side, so that the Tile IR needs no jumps.
 *
 * A loop is compiled until what it carries is known: names that exist before it and are others after its body. The first time nothing is carried; what
 * turns out to change is carried the next time. That set is remembered for the loop, so that a loop within loops is not compiled a power of times. */
#include "triton/internal.h"

#include <string.h>

enum { MOST_NODES = 1000000, MOST_REGIONS = 200, MOST_CALLS = 64 };

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

static const char *display_name(const tn_function *function)
{
    static const char prefix[] = "libdevice_";
    const char *name = function->name;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

/* Functions of the prelude are a part of the language: what happens in one is shown where the user calls it. */
static const tn_frame *user_frame(const tn_frame *f, const tn_ast **at, const char **callee)
{
    while (f->function->unit_number == TN_T_PRELUDE && f->function->node && f->caller) {
        *callee = display_name(f->function);
        *at = f->call;
        f = f->caller;
    }
    return f;
}

static void note_calls(tn_tcompiler *c, const tn_frame *f)
{
    for (; f->caller; f = f->caller) {
        const tn_ast_unit *unit = f->caller->function->unit;
        if (f->function->node)
            tn_note(c->session, TN_NO_LOC, "in %s, called from %s:%d:%d", display_name(f->function), unit->file, f->call->line, f->call->column);
        else
            tn_note(c->session, TN_NO_LOC, "needed at %s:%d:%d", unit->file, f->call->line, f->call->column);
    }
}

static bool report(tn_tcompiler *c, const tn_ast *at, tn_status status, const char *format, va_list args)
{
    tn_text message = {.arena = &c->session->arena};
    const char *callee = NULL;
    const tn_frame *f = user_frame(c->frame, &at, &callee);
    if (callee)
        tn_text_add(&message, "%s: ", callee);
    tn_text_addv(&message, format, args);
    tn_ast_error(c->session, f->function->unit, at, status, "%s", message.at);
    note_calls(c, f);
    return false;
}

bool tn_t_error(tn_tcompiler *c, const tn_ast *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(c, at, TN_INVALID, format, args);
    va_end(args);
    return false;
}

bool tn_t_refuse(tn_tcompiler *c, const tn_ast *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(c, at, TN_UNSUPPORTED, format, args);
    va_end(args);
    return false;
}

void tn_t_at(tn_tcompiler *c, const tn_ast *at)
{
    const char *callee;
    const tn_frame *f = user_frame(c->frame, &at, &callee);
    c->b.loc = (tn_loc){.file = f->function->unit->file, .line = at->line, .column = at->column};
}

bool tn_t_spend(tn_tcompiler *c, const tn_ast *at)
{
    return ++c->nodes <= MOST_NODES || tn_t_refuse(c, at, "unrolled and inlined, the kernel has more than %d expressions and statements; "
                                                          "use tl.range instead of tl.static_range where a loop need not be unrolled", MOST_NODES);
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

static tn_variable *variable(const tn_scope *scope, const char *name)
{
    for (int i = 0; i < scope->n; i++)
        if (scope->at[i].name == name)
            return &scope->at[i];
    return NULL;
}

const tn_variable *tn_t_variable(const tn_tcompiler *c, const char *name)
{
    return c->frame ? variable(&c->frame->scope, tn_intern_z(c->session, name)) : NULL;
}

bool tn_t_lookup(tn_tcompiler *c, const char *name, tn_py *out)
{
    const tn_variable *v = tn_t_variable(c, name);
    if (!v || v->gone)
        return false;
    *out = v->value;
    return true;
}

static tn_variable *make_variable(tn_tcompiler *c, const char *name)
{
    tn_scope *scope = &c->frame->scope;
    name = tn_intern_z(c->session, name);
    tn_variable *found = variable(scope, name);
    if (found)
        return found;
    if (scope->n == scope->cap) {
        int cap = scope->cap ? 2 * scope->cap : 16;
        tn_variable *at = TN_NEW_ARRAY(&c->session->arena, tn_variable, (size_t)cap);
        if (scope->n)
            memcpy(at, scope->at, sizeof *at * (size_t)scope->n);
        *scope = (tn_scope){at, scope->n, cap};
    }
    scope->at[scope->n] = (tn_variable){.name = name};
    return &scope->at[scope->n++];
}

void tn_t_set(tn_tcompiler *c, const char *name, tn_py value)
{
    tn_variable *v = make_variable(c, name);
    *v = (tn_variable){.name = v->name, .value = value};
}

static tn_scope copy_scope(tn_tcompiler *c, const tn_scope *scope)
{
    tn_scope copy = {.n = scope->n, .cap = scope->n};
    copy.at = TN_NEW_ARRAY(&c->session->arena, tn_variable, (size_t)scope->n + 1);
    if (scope->n)
        memcpy(copy.at, scope->at, sizeof *copy.at * (size_t)scope->n);
    return copy;
}

/* ---- assignments ----------------------------------------------------------------------------------------------------- */

/* A number that is assigned becomes a tensor, as in Triton: only NAME: tl.constexpr = … keeps it a constant. The prelude keeps them. */
static bool decay(tn_tcompiler *c, const tn_ast *at, tn_py *v)
{
    if (tn_t_in_prelude(c) || c->constants_only)
        return true;
    if (tn_py_is_number(v)) {
        tn_tvalue *tensor;
        if (!tn_t_to_tensor(c, at, v, &tensor))
            return false;
        *v = tn_py_tensor(tensor);
    }
    if (v->kind != TN_PY_TUPLE)
        return true;
    *v = tn_t_clone(c, v);
    for (int i = 0; i < v->n; i++)
        if (!decay(c, at, (tn_py *)&v->at[i]))
            return false;
    return true;
}

static bool assign(tn_tcompiler *c, const tn_ast *target, const tn_py *value);

static bool unpack(tn_tcompiler *c, const tn_ast *target, const tn_py *value)
{
    const tn_py *items;
    int n;
    for (int i = 0; i < target->nchildren; i++)
        if (target->child[i]->kind == TN_AST_STARRED)
            return tn_t_refuse(c, target->child[i], "a starred name on the left of = is not part of the kernel language; name each element");
    if (value->kind != TN_PY_TUPLE && value->kind != TN_PY_RANGE)
        return tn_t_error(c, target, "%s cannot be taken apart into %d names; a tuple can", tn_t_describe(c, value), target->nchildren);
    if (!tn_t_iterate(c, target, value, &items, &n))
        return false;
    if (n != target->nchildren)
        return tn_t_error(c, target, "%d values for %d names", n, target->nchildren);
    for (int i = 0; i < n; i++)
        if (!assign(c, target->child[i], &items[i]))
            return false;
    return true;
}

/* d[key] = v makes a new dict for the name d. */
static bool assign_entry(tn_tcompiler *c, const char *name, const tn_py *dict, const tn_py *key, const tn_py *value)
{
    int at = 0;
    while (at < dict->n && !tn_t_equal(&dict->at[2 * at], key))
        at++;
    tn_py copy = *dict, *items = TN_NEW_ARRAY(&c->session->arena, tn_py, 2 * (size_t)dict->n + 2);
    if (dict->n)
        memcpy(items, dict->at, 2 * sizeof *items * (size_t)dict->n);
    items[2 * at] = *key;
    items[2 * at + 1] = *value;
    copy.at = items;
    copy.n += at == dict->n;
    tn_t_set(c, name, copy);
    return true;
}

/* t[i] = v makes a new tuple for the name t. */
static bool assign_element(tn_tcompiler *c, const tn_ast *target, const tn_py *value)
{
    tn_py tuple, index;
    int64_t i;
    if (target->child[0]->kind != TN_AST_NAME)
        return tn_t_refuse(c, target, "only an element of a named tuple can be assigned");
    if (!tn_t_expression(c, target->child[0], &tuple))
        return false;
    if (tuple.kind == TN_PY_DICT && c->constants_only)
        return tn_t_expression(c, target->child[1], &index) && assign_entry(c, target->child[0]->text, &tuple, &index, value);
    if (tuple.kind != TN_PY_TUPLE)
        return tn_t_refuse(c, target, "elements of %s cannot be assigned: tensors never change; make a new one with tl.where", tn_t_describe(c, &tuple));
    if (!tn_t_expression(c, target->child[1], &index) || !tn_t_constant_int(c, target->child[1], &index, "the index of a tuple", &i))
        return false;
    if (i < -tuple.n || i >= tuple.n)
        return tn_t_error(c, target, "index %lld of a tuple of %d", (long long)i, tuple.n);
    tn_py copy = tn_t_tuple(c, tuple.at, tuple.n);
    ((tn_py *)copy.at)[i < 0 ? i + tuple.n : i] = *value;
    tn_t_set(c, target->child[0]->text, copy);
    return true;
}

static bool assign(tn_tcompiler *c, const tn_ast *target, const tn_py *value)
{
    switch (target->kind) {
    case TN_AST_NAME:
        tn_t_set(c, target->text, *value);
        make_variable(c, target->text)->value.from_constexpr = false; /* the name's own annotation says so, not where the value came from */
        return true;
    case TN_AST_TUPLE:
    case TN_AST_LIST:
        return unpack(c, target, value);
    case TN_AST_SUBSCRIPT:
        return assign_element(c, target, value);
    default:
        return tn_t_refuse(c, target, "this cannot be assigned to: names and tuples of names can");
    }
}

static bool statement_assign(tn_tcompiler *c, const tn_ast *node)
{
    tn_py value;
    if (!tn_t_expression(c, node->child[0], &value))
        return false;
    tn_t_at(c, node);
    if (!decay(c, node->child[0], &value))
        return false;
    for (int i = 1; i < node->nchildren; i++)
        if (!assign(c, node->child[i], &value))
            return false;
    return true;
}

static bool statement_augmented(tn_tcompiler *c, const tn_ast *node)
{
    tn_py old, by, value;
    if (node->child[0]->kind != TN_AST_NAME && node->child[0]->kind != TN_AST_SUBSCRIPT)
        return tn_t_refuse(c, node->child[0], "this cannot be assigned to");
    if (!tn_t_expression(c, node->child[0], &old) || !tn_t_expression(c, node->child[1], &by))
        return false;
    tn_t_at(c, node);
    return tn_t_operator(c, node, node->op, &old, &by, &value) && decay(c, node, &value) && assign(c, node->child[0], &value);
}

static bool has_tensors(const tn_py *v)
{
    bool found = !tn_py_is_constant(v);
    for (int i = 0; !found && v->kind == TN_PY_TUPLE && i < v->n; i++)
        found = has_tensors(&v->at[i]);
    return found;
}

/* Of annotations only tl.constexpr has a meaning; others are ignored, as in Triton. */
static bool statement_annotated(tn_tcompiler *c, const tn_ast *node)
{
    const tn_ast *target = node->child[0], *source = node->nchildren > 2 ? node->child[2] : NULL;
    tn_py value;
    if (!source)
        return true;
    if (!tn_t_expression(c, source, &value))
        return false;
    tn_t_at(c, node);
    if (!tn_t_is_constexpr(node->child[1]))
        return decay(c, source, &value) && assign(c, target, &value);
    if (target->kind != TN_AST_NAME)
        return tn_t_error(c, target, "tl.constexpr annotates a name");
    const tn_variable *before = tn_t_variable(c, target->text);
    if (before && !before->gone && before->declared != node)
        return tn_t_error(c, target, "%s is defined already; a tl.constexpr is defined once", target->text);
    if (has_tensors(&value))
        return tn_t_error(c, source, "%s is annotated tl.constexpr, but its value, %s, is known only when the kernel runs", target->text, tn_t_describe(c, &value));
    value.from_constexpr = true;
    tn_variable *v = make_variable(c, target->text);
    *v = (tn_variable){.name = v->name, .value = value, .declared = node};
    return true;
}

/* ---- what runs next -------------------------------------------------------------------------------------------------- */

/* Statements that are to run, then those after them: of a block (or an elif, a block of one), or of the iterations that are left of an unrolled loop. */
typedef struct task {
    const tn_ast *node; /* BLOCK, IF; FOR: an unrolled loop */
    int at;
    bool unrolled;
    const tn_py *items; /* of an unrolled loop */
    int n;
    const struct task *then;
} task;

/* How a sequence of statements ends. It falls off its end; it returns; or it does both, on different ways, which only its caller can sort out, by
 * giving it what comes next. */
typedef enum ending { FALLS, RETURNS, PARTIAL } ending;
typedef struct outcome {
    ending ending;
    tn_py value; /* RETURNS */
} outcome;

/* open: after the last statement comes something else than the end of the function. */
static bool run(tn_tcompiler *c, const task *first, bool open, outcome *out);

static const tn_ast *statement_of(const task *t)
{
    bool block = t->node->kind == TN_AST_BLOCK;
    return t->at < (block ? t->node->nchildren : 1) ? block ? t->node->child[t->at] : t->node : NULL;
}

static const task *keep(tn_tcompiler *c, const task *t)
{
    return tn_memdup(&c->session->arena, t, sizeof *t);
}

static bool enter_region(tn_tcompiler *c, const tn_ast *at)
{
    return ++c->regions <= MOST_REGIONS || tn_t_refuse(c, at, "more than %d branches and loops within each other", MOST_REGIONS);
}

/* ---- branches -------------------------------------------------------------------------------------------------------- */

typedef struct branch {
    tn_tblock *block;
    tn_scope scope; /* at its end */
    outcome outcome;
} branch;

static bool run_branch(tn_tcompiler *c, const task *t, bool open, branch *out)
{
    tn_scope scope = c->frame->scope;
    tn_tblock *block = c->b.block;
    c->frame->scope = copy_scope(c, &scope);
    c->b.block = out->block;
    bool ok = run(c, t, open, &out->outcome);
    out->scope = c->frame->scope;
    c->frame->scope = scope;
    c->b.block = block;
    return ok;
}

static bool make_branch(tn_tcompiler *c, const tn_ast *body, const task *then, bool open, branch *out)
{
    *out = (branch){.block = TN_NEW(&c->session->arena, tn_tblock)};
    if (!body)
        return run_branch(c, then, open, out);
    return run_branch(c, &(task){.node = body, .then = then}, open, out);
}

/* Goes on in a branch after its end. */
static bool continue_branch(tn_tcompiler *c, const task *rest, bool open, branch *b)
{
    tn_scope scope = c->frame->scope;
    c->frame->scope = b->scope;
    bool ok = run_branch(c, rest, open, b);
    c->frame->scope = scope;
    return ok;
}

static const tn_variable *only_here(const tn_scope *a, const tn_scope *b, int first, int *next)
{
    for (int i = *next > first ? *next : first; i < a->n; i++)
        if (!variable(b, a->at[i].name)) {
            *next = i + 1;
            return &a->at[i];
        }
    return NULL;
}

static void forget(tn_tcompiler *c, const char *name, const char *why)
{
    tn_variable *v = make_variable(c, name);
    *v = (tn_variable){.name = v->name, .gone = why};
}

/* The names after a branch on a value, both sides of which go on. */
static bool merge_names(tn_tcompiler *c, const tn_ast *at, tn_tvalue *condition, branch *x, branch *y)
{
    tn_arena *arena = &c->session->arena;
    const char *why = tn_format(arena, "it is assigned in only one branch of the `if` at line %d", at->line);
    TN_VEC(tn_py) left = {0}, right = {0};
    TN_VEC(const char *) names = {0}, described = {0};
    int before = c->frame->scope.n;
    for (int i = 0; i < x->scope.n; i++) {
        const tn_variable *a = &x->scope.at[i], *b = variable(&y->scope, a->name);
        if (!b)
            continue;
        if (a->gone || b->gone) {
            forget(c, a->name, a->gone ? a->gone : b->gone);
        } else if (tn_t_identical(&a->value, &b->value)) {
            tn_variable *v = make_variable(c, a->name);
            *v = *a;
        } else {
            TN_PUSH(arena, &left, a->value);
            TN_PUSH(arena, &right, b->value);
            TN_PUSH(arena, &names, a->name);
            TN_PUSH(arena, &described, tn_format(arena, "'%s'", a->name));
        }
    }
    tn_side sides[2] = {{x->block, left.at}, {y->block, right.at}};
    tn_py *merged = TN_NEW_ARRAY(arena, tn_py, left.len + 1);
    tn_t_at(c, at);
    if ((left.len || x->block->first || y->block->first) && !tn_t_choose(c, at, condition, &sides[0], &sides[1], described.at, (int)left.len, merged))
        return false;
    for (size_t i = 0; i < left.len; i++)
        tn_t_set(c, names.at[i], merged[i]);
    const tn_variable *alone;
    for (int next = before; (alone = only_here(&x->scope, &y->scope, before, &next));)
        forget(c, alone->name, why);
    for (int next = before; (alone = only_here(&y->scope, &x->scope, before, &next));)
        forget(c, alone->name, why);
    return true;
}

/* Both sides return. */
static bool merge_returns(tn_tcompiler *c, const tn_ast *at, tn_tvalue *condition, branch *x, branch *y, outcome *out)
{
    const char *name = "what the function returns";
    tn_side sides[2] = {{x->block, &x->outcome.value}, {y->block, &y->outcome.value}};
    out->ending = RETURNS;
    tn_t_at(c, at);
    return tn_t_choose(c, at, condition, &sides[0], &sides[1], &name, 1, &out->value);
}

/* A branch on a value. *ends: it came to an outcome; else the statements after it are next. */
static bool run_branches(tn_tcompiler *c, const tn_ast *node, tn_tvalue *condition, const task *rest, bool open, bool *ends, outcome *out)
{
    const tn_ast *bodies[2] = {node->child[1], node->nchildren > 2 ? node->child[2] : NULL};
    void **partial = tn_map_at(&c->partial, TN_KEY(node));
    bool returns[2] = {false, false}, sorted = *partial == NULL;
    branch side[2] = {{0}, {0}};
    size_t diags = c->session->diags.len;
    *ends = true;
    for (int i = 0; sorted && i < 2; i++) {
        if (!make_branch(c, bodies[i], NULL, true, &side[i]))
            return false;
        sorted = side[i].outcome.ending != PARTIAL;
        returns[i] = side[i].outcome.ending == RETURNS;
    }
    if (sorted && !returns[0] && !returns[1]) {
        *ends = false;
        return merge_names(c, node, condition, &side[0], &side[1]);
    }
    for (int i = 0; sorted && i < 2; i++)
        if (!returns[i] && !continue_branch(c, rest, open, &side[i]))
            return false;
    if (!sorted) {
        *tn_map_at(&c->partial, TN_KEY(node)) = (void *)node;
        c->session->diags.len = diags; /* both sides are compiled anew, and print again what they print */
    }
    for (int i = 0; !sorted && i < 2; i++)
        if (!make_branch(c, bodies[i], rest, open, &side[i]))
            return false;
    if (side[0].outcome.ending == RETURNS && side[1].outcome.ending == RETURNS)
        return merge_returns(c, node, condition, &side[0], &side[1], out);
    out->ending = PARTIAL;
    return true;
}

/* *next: what runs next, unless *ends. */
static bool statement_if(tn_tcompiler *c, const tn_ast *node, const task *rest, bool open, const task **next, bool *ends, outcome *out)
{
    bool known, truth;
    tn_tvalue *condition;
    *ends = false;
    *next = rest;
    if (!tn_t_condition(c, node->child[0], "if", &known, &truth, &condition))
        return false;
    const tn_ast *taken = !known ? NULL : truth ? node->child[1] : node->nchildren > 2 ? node->child[2] : NULL;
    if (taken)
        *next = keep(c, &(task){.node = taken, .then = rest});
    if (known)
        return true;
    if (!enter_region(c, node) || !run_branches(c, node, condition, rest, open, ends, out))
        return false;
    c->regions--;
    return true;
}

/* ---- loops ----------------------------------------------------------------------------------------------------------- */

/* A name that a loop carries, or parts of it. */
typedef struct carried {
    const char *name;
    bool number;    /* a constant before the loop, carried as a tensor */
    bool forgotten; /* has no value at the end of the body, so none at its start */
    size_t nslots;
    bool *slot;     /* which of its tensors are carried */
    tn_py start;    /* clones: as it comes in … */
    tn_py value;    /* … and as the body (or the condition) sees it */
} carried;
typedef struct loop {
    const tn_ast *node;
    bool is_while;
    const char *target;           /* for: its variable */
    tn_dtype dtype;
    tn_tvalue *first, *last, *step;
    bool down;                    /* for: the variable is first - the loop's index */
    TN_VEC(carried) names;
    bool from_memory;             /* names was taken over from the last time */
    bool again;                   /* something more is carried: compile it once more */
    bool always;                  /* while: the condition is a constant, and true */
    tn_top *op;
} loop;

static carried *find_carried(loop *l, const char *name)
{
    for (size_t i = 0; i < l->names.len; i++)
        if (l->names.at[i].name == name)
            return &l->names.at[i];
    return NULL;
}

static carried *add_carried(tn_tcompiler *c, loop *l, const char *name)
{
    carried *found = find_carried(l, name);
    l->again = true;
    if (found)
        return found;
    TN_PUSH(&c->session->arena, &l->names, ((carried){.name = name}));
    return &l->names.at[l->names.len - 1];
}

static void set_slots(tn_tcompiler *c, carried *k, size_t n)
{
    if (k->slot && k->nslots == n)
        return;
    k->slot = TN_NEW_ARRAY(&c->session->arena, bool, n + 1);
    k->nslots = n;
    for (size_t i = 0; k->number && i < n; i++)
        k->slot[i] = true;
}

/* Numbers in it become tensors, here, before the loop. */
static bool numbers_to_tensors(tn_tcompiler *c, const tn_ast *at, tn_py *v)
{
    if (tn_py_is_number(v)) {
        tn_tvalue *tensor;
        if (!tn_t_to_tensor(c, at, v, &tensor))
            return false;
        *v = tn_py_tensor(tensor);
    }
    for (int i = 0; v->kind == TN_PY_TUPLE && i < v->n; i++)
        if (!numbers_to_tensors(c, at, (tn_py *)&v->at[i]))
            return false;
    return true;
}

typedef TN_VEC(tn_tvalue *) values;

/* The values that come in, in the order of the loop's arguments. */
static bool start_values(tn_tcompiler *c, loop *l, values *out)
{
    for (size_t i = 0; i < l->names.len; i++) {
        carried *k = &l->names.at[i];
        tn_slots slots = {0};
        tn_variable *v = variable(&c->frame->scope, k->name);
        if (k->forgotten)
            continue;
        k->start = tn_t_clone(c, &v->value);
        if (k->number && !numbers_to_tensors(c, l->node, &k->start))
            return false;
        tn_t_slots(c, &k->start, &slots);
        set_slots(c, k, slots.len);
        for (size_t s = 0; s < slots.len; s++)
            if (k->slot[s])
                TN_PUSH(&c->session->arena, out, *slots.at[s]);
    }
    return out->len <= TN_TILE_CARRIED ||
           tn_t_refuse(c, l->node, "this loop carries %zu values from one iteration to the next, %d is the most", out->len, TN_TILE_CARRIED);
}

/* The names inside the loop: what is carried is an argument of the block. */
static void bind_arguments(tn_tcompiler *c, loop *l, tn_tvalue *args)
{
    for (size_t i = 0; i < l->names.len; i++) {
        carried *k = &l->names.at[i];
        tn_slots slots = {0};
        if (k->forgotten) {
            forget(c, k->name, tn_format(&c->session->arena, "the loop at line %d leaves it without a value", l->node->line));
            continue;
        }
        k->value = tn_t_clone(c, &k->start);
        tn_t_slots(c, &k->value, &slots);
        for (size_t s = 0; s < slots.len; s++)
            if (k->slot[s])
                *slots.at[s] = args++;
        tn_t_set(c, k->name, k->value);
    }
}

static bool changes(tn_tcompiler *c, const loop *l, const char *name, const tn_py *before, const tn_py *after)
{
    return tn_t_error(c, l->node, "'%s' is %s before the loop, and %s after its body; a variable of a loop keeps its type", name, tn_t_describe(c, before),
                      tn_t_describe(c, after));
}

/* Compares what the body started with and what it ended with, a clone of that; makes numbers at the end tensors where the start is one. Sets *number if it
 * must be carried as a tensor, which it is not yet. */
static bool compare_ends(tn_tcompiler *c, const loop *l, const char *name, const tn_py *start, tn_py *end, bool *number)
{
    if (tn_t_identical(start, end))
        return true;
    bool start_number = tn_py_is_number(start), end_number = tn_py_is_number(end);
    bool numbers = (start_number || start->kind == TN_PY_TENSOR) && (end_number || end->kind == TN_PY_TENSOR);
    if (numbers && start_number) {
        *number = true;
        return !start->from_constexpr || tn_t_error(c, l->node, "'%s' is a constant (tl.constexpr), and the loop assigns to it; copy it to a variable before: x = %s",
                                                    name, name);
    }
    if (numbers && end_number && !numbers_to_tensors(c, l->node, end))
        return false;
    if (numbers)
        return tn_t_same_type(&start->tensor->type, &end->tensor->type) || changes(c, l, name, start, end);
    if (start->kind != end->kind || (start->kind == TN_PY_TUPLE ? start->n != end->n : tn_py_is_constant(start)))
        return changes(c, l, name, start, end);
    for (int i = 0; start->kind == TN_PY_TUPLE && i < start->n; i++)
        if (!compare_ends(c, l, name, &start->at[i], (tn_py *)&end->at[i], number))
            return false;
    if (start->kind == TN_PY_TUPLE)
        return true;
    const tn_py_block *a = start->block, *b = end->block;
    bool same = a->rank == b->rank && a->nan_padding == b->nan_padding && tn_t_same_type(&a->base->type, &b->base->type);
    for (int i = 0; same && i < a->rank; i++)
        same = a->extent[i] == b->extent[i];
    return same || changes(c, l, name, start, end);
}

/* A variable after the body. What was not carried and is another value now must be carried. */
static bool compare_variable(tn_tcompiler *c, loop *l, const tn_variable *start, tn_variable *end)
{
    bool number = false;
    if (end->gone && start->gone)
        return true;
    if (end->gone) {
        add_carried(c, l, start->name)->forgotten = true;
        return true;
    }
    if (start->gone || tn_t_identical(&start->value, &end->value))
        return true;
    end->value = tn_t_clone(c, &end->value);
    if (!compare_ends(c, l, start->name, &start->value, &end->value, &number))
        return false;
    if (number) {
        *add_carried(c, l, start->name) = (carried){.name = start->name, .number = true};
        return true;
    }
    tn_slots before = {0}, after = {0};
    tn_py clone = tn_t_clone(c, &start->value);
    tn_t_slots(c, &clone, &before);
    tn_t_slots(c, &end->value, &after);
    carried *k = find_carried(l, start->name);
    for (size_t s = 0; s < before.len; s++) {
        if (*before.at[s] == *after.at[s] || (k && k->slot && k->slot[s]))
            continue;
        k = add_carried(c, l, start->name);
        set_slots(c, k, before.len);
        k->slot[s] = true;
    }
    return true;
}

/* The carried values at the end of the body. *idle: one of them did not change. */
static void end_values(tn_tcompiler *c, loop *l, values *out, bool *idle)
{
    for (size_t i = 0; i < l->names.len; i++) {
        carried *k = &l->names.at[i];
        tn_slots before = {0}, after = {0};
        if (k->forgotten)
            continue;
        tn_py clone = tn_t_clone(c, &variable(&c->frame->scope, k->name)->value);
        tn_t_slots(c, &k->value, &before);
        tn_t_slots(c, &clone, &after);
        for (size_t s = 0; s < k->nslots; s++) {
            if (!k->slot[s])
                continue;
            *idle |= *before.at[s] == *after.at[s] && k->number;
            TN_PUSH(&c->session->arena, out, *after.at[s]);
        }
    }
}

static void bind_index(tn_tcompiler *c, loop *l, tn_tvalue *index)
{
    if (l->down)
        index = tn_t_map2(&c->b, TN_S_sub, l->first, index);
    if (l->dtype != TN_I64)
        index = tn_t_cast(&c->b, index, l->dtype);
    tn_t_set(c, l->target, tn_py_tensor(index));
}

/* The condition of a while, in its region. A constant one is an error, except false before the first time: *never. */
static bool loop_condition(tn_tcompiler *c, loop *l, bool *never)
{
    bool known, truth;
    tn_tvalue *condition;
    tn_scope scope = c->frame->scope;
    c->frame->scope = copy_scope(c, &scope);
    c->b.block = l->op->region[0];
    bind_arguments(c, l, l->op->region[0]->arg);
    if (!tn_t_condition(c, l->node->child[0], "while", &known, &truth, &condition))
        return false;
    *never = known && !truth;
    l->always = known && truth;
    if (known)
        condition = tn_t_scalar_const(c, TN_BOOL, (tn_number){.u = truth});
    tn_t_yield(&c->b, &condition, 1);
    c->frame->scope = scope;
    return true;
}

/* Compiles the loop with what is known to be carried. *never: it does not run. */
static bool attempt(tn_tcompiler *c, loop *l, bool *idle, bool *never)
{
    values starts = {0}, ends = {0};
    outcome how;
    tn_tblock *block = c->b.block;
    if (!start_values(c, l, &starts))
        return false;
    tn_t_at(c, l->node);
    l->op = l->is_while ? tn_t_while(&c->b, starts.at, (int)starts.len) : tn_t_for(&c->b, l->down ? tn_t_index(&c->b, 0) : l->first, l->last, l->step, starts.at, (int)starts.len);
    if (l->is_while && (!loop_condition(c, l, never) || *never))
        return *never;
    tn_tblock *body = l->op->region[l->is_while];
    c->b.block = body;
    c->frame->scope = copy_scope(c, &c->frame->scope);
    bind_arguments(c, l, l->is_while ? body->arg : body->arg + 1);
    if (!l->is_while)
        bind_index(c, l, &body->arg[0]);
    tn_scope start = copy_scope(c, &c->frame->scope);
    c->frame->loops++;
    if (!run(c, &(task){.node = l->node->child[l->is_while ? 1 : 2]}, true, &how))
        return false;
    c->frame->loops--;
    tn_t_at(c, l->node);
    for (int i = 0; i < start.n; i++)
        if (start.at[i].name != l->target && !compare_variable(c, l, &start.at[i], &c->frame->scope.at[i]))
            return false;
    if (!l->again) {
        end_values(c, l, &ends, idle);
        tn_t_yield(&c->b, ends.at, (int)ends.len);
    }
    c->b.block = block;
    return true;
}

static void cut(tn_tblock *block, tn_top *last)
{
    block->last = last;
    if (last)
        last->next = NULL;
    else
        block->first = NULL;
}

/* The names after the loop. `after`: those at the end of its body. */
static void loop_results(tn_tcompiler *c, loop *l, const tn_scope *after)
{
    tn_arena *arena = &c->session->arena;
    int before = c->frame->scope.n;
    tn_tvalue *result = l->op->result;
    for (size_t i = 0; i < l->names.len; i++) {
        carried *k = &l->names.at[i];
        tn_slots slots = {0};
        if (k->forgotten) {
            forget(c, k->name, tn_format(arena, "the loop at line %d leaves it without a value", l->node->line));
            continue;
        }
        tn_py value = tn_t_clone(c, &k->start);
        tn_t_slots(c, &value, &slots);
        for (size_t s = 0; s < slots.len; s++)
            if (k->slot[s])
                *slots.at[s] = result++;
        tn_t_set(c, k->name, value);
    }
    for (int i = before; i < after->n; i++)
        forget(c, after->at[i].name, tn_format(arena, "it is assigned first inside the loop at line %d, which may not run at all; give it a value before", l->node->line));
    if (l->target)
        forget(c, l->target, tn_format(arena, "it is the variable of the loop at line %d, and has no value after that", l->node->line));
}

/* What the loop carried last, if the names are still such. */
static void remember(tn_tcompiler *c, loop *l)
{
    const loop *last = tn_map_get(&c->carried, TN_KEY(l->node));
    for (size_t i = 0; last && i < last->names.len; i++) {
        const tn_variable *v = variable(&c->frame->scope, last->names.at[i].name);
        tn_slots slots = {0};
        if (!v || v->gone || last->names.at[i].forgotten)
            continue;
        tn_py value = tn_t_clone(c, &v->value);
        tn_t_slots(c, &value, &slots);
        bool number = tn_py_is_number(&value);
        if (number != last->names.at[i].number || (!number && slots.len != last->names.at[i].nslots) || value.from_constexpr)
            continue;
        TN_PUSH(&c->session->arena, &l->names, last->names.at[i]);
        carried *k = &l->names.at[l->names.len - 1];
        k->slot = tn_memdup(&c->session->arena, k->slot, sizeof *k->slot * k->nslots);
        l->from_memory = true;
    }
}

static bool run_loop(tn_tcompiler *c, loop *l)
{
    tn_scope scope = c->frame->scope;
    tn_top *last = c->b.block->last;
    bool idle, never;
    if (!enter_region(c, l->node))
        return false;
    remember(c, l);
    do {
        size_t diags = c->session->diags.len;
        idle = never = l->again = false;
        tn_tblock *block = c->b.block;
        if (!attempt(c, l, &idle, &never))
            return false;
        c->b.block = block;
        if (idle && l->from_memory) { /* a constant was made a tensor for nothing: other code may need it as a constant */
            l->names.len = 0;
            l->from_memory = false;
            l->again = true;
        }
        if (l->again || never) {
            cut(block, last);
            c->frame->scope = scope;
            c->session->diags.len = diags; /* what is printed while compiling is printed by the last attempt */
        }
    } while (l->again);
    c->regions--;
    if (never)
        return true;
    if (l->is_while)
        tn_t_load_anew(c, l->op);
    tn_scope after = c->frame->scope;
    c->frame->scope = copy_scope(c, &scope);
    loop_results(c, l, &after);
    *tn_map_at(&c->carried, TN_KEY(l->node)) = tn_memdup(&c->session->arena, l, sizeof *l);
    return true;
}

/* ---- for ------------------------------------------------------------------------------------------------------------- */

/* The type of a loop's variable: the integers' common one, as Triton promotes them; at least 32 bits. */
static tn_dtype common_integer(tn_dtype a, tn_dtype b)
{
    bool unsigned_a = tn_dtype_class(a) == TN_CLASS_UINT, unsigned_b = tn_dtype_class(b) == TN_CLASS_UINT;
    int n = tn_dtype_bits(a), m = tn_dtype_bits(b);
    if (unsigned_a == unsigned_b)
        return n >= m ? a : b;
    return unsigned_a ? (n >= m ? a : b) : (m >= n ? b : a);
}

static bool loop_bound(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype *dtype, tn_tvalue **out)
{
    tn_tvalue *x;
    if (v->kind != TN_PY_TENSOR && v->kind != TN_PY_INT && v->kind != TN_PY_BOOL)
        return tn_t_error(c, at, "range takes integers, found %s", tn_t_describe(c, v));
    if (!tn_t_to_tensor(c, at, v, &x))
        return false;
    const tn_ttype *t = &x->type;
    if (t->pointer || t->rank || !(t->dtype == TN_BOOL || tn_is_integer(t->dtype)))
        return tn_t_error(c, at, "range takes integers that are scalars, found %s", tn_t_describe(c, v));
    *dtype = common_integer(*dtype, t->dtype == TN_BOOL ? TN_I32 : t->dtype);
    *out = v->kind == TN_PY_TENSOR ? tn_t_cast(&c->b, x, TN_I64) : tn_t_index(&c->b, (int64_t)v->integer);
    return true;
}

static bool for_loop(tn_tcompiler *c, const tn_ast *node, const tn_py *range)
{
    loop l = {.node = node, .dtype = TN_I32};
    tn_tvalue *bound[3];
    if (node->child[0]->kind != TN_AST_NAME)
        return tn_t_error(c, node->child[0], "a range gives one number at a time, which one name takes");
    if (c->scalars_only)
        return tn_t_refuse(c, node, "a combine function computes with scalars alone: it has no loops but tl.static_range");
    tn_t_at(c, node->child[1]);
    for (int i = 0; i < 3; i++)
        if (!loop_bound(c, node->child[1], &range->at[i], &l.dtype, &bound[i]))
            return false;
    l.target = tn_intern_z(c->session, node->child[0]->text);
    l.first = bound[0], l.last = bound[1], l.step = bound[2];
    const tn_py *step = &range->at[2];
    if (tn_py_is_constant(step) && step->integer <= 0) {
        if (step->integer == 0)
            return tn_t_error(c, node->child[1], "the step of range is 0");
        l.down = true;
        l.step = tn_t_index(&c->b, -(int64_t)step->integer);
        l.last = tn_t_map2(&c->b, TN_S_sub, l.first, l.last);
    }
    return run_loop(c, &l);
}

static bool statement_for(tn_tcompiler *c, const tn_ast *node, const task *rest, const task **next)
{
    tn_py iterable;
    task unrolled = {.node = node, .unrolled = true, .then = rest};
    *next = rest;
    if (node->nchildren > 3 && node->child[3])
        return tn_t_refuse(c, node->child[3], "`else` of a loop is not part of the kernel language");
    if (!tn_t_expression(c, node->child[1], &iterable))
        return false;
    if (iterable.kind == TN_PY_RANGE && !iterable.unrolled && !c->constants_only)
        return for_loop(c, node, &iterable);
    if (iterable.kind == TN_PY_TENSOR)
        return tn_t_error(c, node->child[1], "a for statement runs over range, tl.range, tl.static_range or a tuple, found %s", tn_t_describe(c, &iterable));
    if (!tn_t_iterate(c, node->child[1], &iterable, &unrolled.items, &unrolled.n))
        return false;
    *next = keep(c, &unrolled);
    return true;
}

static bool statement_while(tn_tcompiler *c, const tn_ast *node)
{
    loop l = {.node = node, .is_while = true};
    if (node->nchildren > 2 && node->child[2])
        return tn_t_refuse(c, node->child[2], "`else` of a loop is not part of the kernel language");
    if (c->scalars_only)
        return tn_t_refuse(c, node, "a combine function computes with scalars alone: it has no loops but tl.static_range");
    return run_loop(c, &l) &&
           (!l.always || tn_t_error(c, node->child[0], "this loop never ends: its condition is always true, and kernels have no `break`"));
}

/* ---- other statements ------------------------------------------------------------------------------------------------ */

static bool statement_return(tn_tcompiler *c, const tn_ast *node, outcome *out)
{
    const tn_ast *source = node->nchildren ? node->child[0] : NULL;
    *out = (outcome){.ending = RETURNS, .value = tn_py_none()};
    if (c->frame->loops)
        return tn_t_refuse(c, node, "`return` inside a for or while loop is not part of the kernel language; put what follows under an `if`");
    if (source && !tn_t_expression(c, source, &out->value))
        return false;
    tn_t_at(c, node);
    if (!c->frame->caller && out->value.kind != TN_PY_NONE)
        return tn_t_error(c, node, "a kernel returns nothing: it stores its results");
    return decay(c, source ? source : node, &out->value);
}

static bool statement_assert(tn_tcompiler *c, const tn_ast *node)
{
    tn_py condition, message = tn_t_string_value(c, "", 0), callee, none;
    const char *text = "msg";
    if (!tn_t_expression(c, node->child[0], &condition) || (node->nchildren > 1 && node->child[1] && !tn_t_expression(c, node->child[1], &message)))
        return false;
    tn_t_at(c, node);
    callee = (tn_py){.kind = TN_PY_BUILTIN, .builtin = tn_t_builtin_find(TN_TRITON_LANGUAGE, "device_assert")};
    return tn_t_apply_call(c, node, &callee, &condition, 1, &text, &message, 1, &none);
}

static bool refused_statement(tn_tcompiler *c, const tn_ast *node)
{
    const char *name = node->kind == TN_AST_BREAK ? "break" : node->kind == TN_AST_CONTINUE ? "continue" : node->text;
    const char *hint = node->kind == TN_AST_BREAK      ? "; use `while` with a condition that says when to stop"
                       : node->kind == TN_AST_CONTINUE ? "; put the rest of the body under an `if`"
                                                       : "";
    return tn_t_refuse(c, node, "`%s` is not part of the kernel language%s", name, hint);
}

/* NAME.append(value), NAME.extend(values): of lists that host code makes. *is: it is such. */
static bool list_method(tn_tcompiler *c, const tn_ast *call, bool *is)
{
    const tn_ast *callee = call->kind == TN_AST_CALL ? call->child[0] : NULL;
    tn_py list, value, both;
    *is = c->constants_only && callee && callee->kind == TN_AST_ATTRIBUTE && callee->child[0]->kind == TN_AST_NAME && call->nchildren == 2 &&
          (strcmp(callee->text, "append") == 0 || strcmp(callee->text, "extend") == 0);
    if (!*is)
        return true;
    if (!tn_t_expression(c, callee->child[0], &list) || !tn_t_expression(c, call->child[1], &value))
        return false;
    if (list.kind != TN_PY_TUPLE)
        return tn_t_error(c, callee, "%s has no %s", tn_t_describe(c, &list), callee->text);
    if (strcmp(callee->text, "append") == 0)
        value = tn_t_tuple(c, &value, 1);
    if (!tn_t_operator(c, call, TN_AST_ADD, &list, &value, &both))
        return false;
    tn_t_set(c, callee->child[0]->text, both);
    return true;
}

static bool simple_statement(tn_tcompiler *c, const tn_ast *node)
{
    tn_py unused;
    bool done;
    switch (node->kind) {
    case TN_AST_ASSIGN:
        return statement_assign(c, node);
    case TN_AST_AUGMENTED:
        return statement_augmented(c, node);
    case TN_AST_ANNOTATED:
        return statement_annotated(c, node);
    case TN_AST_EXPRESSION: /* a string is a comment */
        return node->child[0]->kind == TN_AST_STRING || (list_method(c, node->child[0], &done) && (done || tn_t_expression(c, node->child[0], &unused)));
    case TN_AST_WHILE:
        return statement_while(c, node);
    case TN_AST_ASSERT:
        return statement_assert(c, node);
    case TN_AST_PASS:
        return true;
    default:
        return refused_statement(c, node);
    }
}

/* The next iteration of an unrolled loop; its items are used up: what comes after. */
static bool next_iteration(tn_tcompiler *c, const task *t, task *next)
{
    if (t->at == t->n) {
        *next = t->then ? *t->then : (task){0};
        return true;
    }
    if (!tn_t_spend(c, t->node) || !assign(c, t->node->child[0], &t->items[t->at]))
        return false;
    task rest = *t;
    rest.at++;
    *next = (task){.node = t->node->child[2], .then = keep(c, &rest)};
    return true;
}

/* A loop of host code, one iteration after the other; *next: what comes then. */
static bool host_while(tn_tcompiler *c, const tn_ast *node, const task *rest, task *next)
{
    tn_py condition;
    bool truth;
    if (!tn_t_expression(c, node->child[0], &condition) || !tn_t_truth(c, node->child[0], &condition, &truth))
        return false;
    *next = truth ? (task){.node = node->child[1], .then = keep(c, &(task){.node = node, .then = rest})} : *rest;
    return true;
}

/* `break` and `continue` of host code: what comes then. */
static bool leave(tn_tcompiler *c, const tn_ast *node, const task *rest, task *next)
{
    while (rest && !rest->unrolled && rest->node->kind != TN_AST_WHILE)
        rest = rest->then;
    if (!rest)
        return tn_t_error(c, node, "`%s` outside a loop", node->kind == TN_AST_BREAK ? "break" : "continue");
    *next = node->kind == TN_AST_CONTINUE ? *rest : rest->then ? *rest->then : (task){0};
    return true;
}

static bool run(tn_tcompiler *c, const task *first, bool open, outcome *out)
{
    task t = first ? *first : (task){0};
    *out = (outcome){.ending = open ? FALLS : RETURNS, .value = tn_py_none()};
    while (t.node) {
        if (t.unrolled) {
            if (!next_iteration(c, &t, &t))
                return false;
            continue;
        }
        const tn_ast *node = statement_of(&t);
        const task *next;
        bool ends;
        if (!node) {
            t = t.then ? *t.then : (task){0};
            continue;
        }
        t.at++;
        if (!tn_t_spend(c, node))
            return false;
        tn_t_at(c, node);
        switch (node->kind) {
        case TN_AST_RETURN:
            return statement_return(c, node, out);
        case TN_AST_IF:
            if (!statement_if(c, node, keep(c, &t), open, &next, &ends, out))
                return false;
            if (ends)
                return true;
            t = *next;
            break;
        case TN_AST_FOR:
            if (!statement_for(c, node, keep(c, &t), &next))
                return false;
            t = *next;
            break;
        case TN_AST_WHILE:
        case TN_AST_BREAK:
        case TN_AST_CONTINUE:
            if (c->constants_only) {
                if (!(node->kind == TN_AST_WHILE ? host_while : leave)(c, node, keep(c, &t), &t))
                    return false;
                break;
            }
            /* fall through */
        default:
            if (!simple_statement(c, node))
                return false;
        }
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

static const char *count_text(tn_tcompiler *c, int n) { return tn_format(&c->session->arena, "%d argument%s", n, n == 1 ? "" : "s"); }

typedef struct binding {
    tn_tcompiler *c;
    const tn_ast *at;
    const tn_function *function;
    const tn_ast *parameters;
    tn_py *value;
    bool *given;
} binding;

static bool bind_positional(binding *b, const tn_py *arguments, int n)
{
    int used = 0, most = 0;
    for (int i = 0; i < b->parameters->nchildren; i++) {
        int kind = (int)b->parameters->child[i]->integer;
        most += kind == 0;
        if (kind == 1) {
            b->value[i] = tn_t_tuple(b->c, arguments + used, n - used);
            b->given[i] = true;
            used = n > used ? n : used;
        } else if (kind == 0 && used < n) {
            b->value[i] = arguments[used++];
            b->given[i] = true;
        }
    }
    return used == n || tn_t_error(b->c, b->at, "%s takes %s, but %d were given", b->function->name, count_text(b->c, most), n);
}

static bool bind_keyword(binding *b, const char *name, const tn_py *value)
{
    for (int i = 0; i < b->parameters->nchildren; i++) {
        const tn_ast *p = b->parameters->child[i];
        if ((p->integer != 0 && p->integer != 3) || strcmp(p->text, name) != 0)
            continue;
        if (b->given[i])
            return tn_t_error(b->c, b->at, "%s got the argument '%s' twice", b->function->name, name);
        b->value[i] = *value;
        b->given[i] = true;
        return true;
    }
    return tn_t_error(b->c, b->at, "%s has no parameter '%s'", b->function->name, name);
}

static bool bind_default(binding *b, int i)
{
    const tn_ast *p = b->parameters->child[i], *otherwise = p->nchildren > 1 ? p->child[1] : NULL;
    if (b->given[i])
        return true;
    if (p->integer == 2)
        return tn_t_refuse(b->c, p, "**%s: a function of kernels names its parameters", p->text);
    if (!otherwise)
        return tn_t_error(b->c, b->at, "%s misses its argument '%s'", b->function->name, p->text);
    return tn_t_host_expression(b->c, b->function, otherwise, &b->value[i]);
}

static bool is_running(const tn_frame *f, const tn_function *function)
{
    for (; f; f = f->caller)
        if (f->function->node == function->node)
            return true;
    return false;
}

static void call_chain(tn_text *text, const tn_frame *f, const tn_function *function)
{
    if (f->function->node != function->node && f->caller) {
        call_chain(text, f->caller, function);
        tn_text_add(text, " -> %s", f->function->name);
    } else {
        tn_text_add(text, "%s", f->function->name);
    }
}

static bool check_call(tn_tcompiler *c, const tn_ast *at, const tn_function *function)
{
    const tn_ast *node = function->node;
    bool host = node->kind == TN_AST_FUNCTION && (function->host || !node->child[1]);
    if (host && !c->constants_only)
        return tn_t_error(c, at, "%s is no @triton.jit function: kernels call such alone", function->name);
    if (c->constants_only && node->kind == TN_AST_FUNCTION && !host)
        return tn_t_error(c, at, "%s is a @triton.jit function: it runs in kernels, not in decorators and default values", function->name);
    if (is_running(c->frame, function)) {
        tn_text chain = {.arena = &c->session->arena};
        call_chain(&chain, c->frame, function);
        return tn_t_refuse(c, at, "recursion: %s -> %s; functions of kernels are inlined, so none may call itself", chain.at, function->name);
    }
    return c->depth < MOST_CALLS || tn_t_refuse(c, at, "more than %d calls within each other", MOST_CALLS);
}

static bool bind_parameters(binding *b, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values, int nkeywords)
{
    if (!bind_positional(b, arguments, n))
        return false;
    for (int i = 0; i < nkeywords; i++)
        if (!bind_keyword(b, keywords[i], &values[i]))
            return false;
    for (int i = 0; i < b->parameters->nchildren; i++)
        if (!bind_default(b, i))
            return false;
    return true;
}

bool tn_t_call(tn_tcompiler *c, const tn_ast *at, const tn_function *function, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values,
               int nkeywords, tn_py *out)
{
    if (c->constants_only && function->node->kind == TN_AST_FUNCTION && !tn_t_is_jit(function) && !(function = tn_t_host_function(c, function)))
        return false;
    const tn_ast *node = function->node, *parameters = node->child[0];
    size_t count = (size_t)parameters->nchildren + 1;
    binding b = {.c = c, .at = at, .function = function, .parameters = parameters};
    tn_frame frame = {.function = function, .caller = c->frame, .call = at};
    outcome how = {.ending = RETURNS};
    bool ok;
    b.value = TN_NEW_ARRAY(&c->session->arena, tn_py, count);
    b.given = TN_NEW_ARRAY(&c->session->arena, bool, count);
    if (!check_call(c, at, function) || !bind_parameters(&b, arguments, n, keywords, values, nkeywords))
        return false;
    c->frame = &frame;
    c->depth++;
    for (int i = 0; i < parameters->nchildren; i++) {
        const tn_ast *p = parameters->child[i];
        tn_py value = b.value[i];
        value.from_constexpr = p->nchildren && p->child[0] && tn_t_is_constexpr(p->child[0]);
        tn_t_set(c, p->text, value);
    }
    if (node->kind == TN_AST_LAMBDA)
        ok = tn_t_expression(c, node->child[1], &how.value);
    else
        ok = run(c, &(task){.node = node->child[1]}, false, &how);
    if (!ok)
        return false;
    c->depth--;
    c->frame = frame.caller;
    tn_t_at(c, at);
    *out = how.value;
    return true;
}

/* ---- combine functions ----------------------------------------------------------------------------------------------- */

bool tn_t_combine(tn_tcompiler *c, const tn_ast *at, const tn_py *function, tn_tblock *region, const tn_ttype *types, int n)
{
    tn_tbuilder before = c->b;
    tn_py arguments[2 * TN_TILE_COMBINED], result;
    tn_tvalue *results[TN_TILE_COMBINED];
    bool scalars_only = c->scalars_only;
    for (int i = 0; i < 2 * n; i++)
        arguments[i] = tn_py_tensor(&region->arg[i]);
    c->b.block = region;
    c->scalars_only = true;
    if (!tn_t_apply_call(c, at, function, arguments, 2 * n, NULL, NULL, 0, &result))
        return false;
    int given;
    const tn_py *items = tn_t_elements_of(&result, &given);
    if (given != n)
        return tn_t_error(c, at, "a combine function of %d tensors returns %d values, found %s", n, n, tn_t_describe(c, &result));
    for (int i = 0; i < n; i++) {
        tn_ttype wanted = {.dtype = types[i].dtype};
        tn_py tensor = tn_py_tensor(&region->arg[i]);
        if (!tn_t_to_tensor(c, at, &items[i], &results[i]))
            return false;
        if (!tn_t_same_type(&results[i]->type, &wanted))
            return tn_t_error(c, at, "a combine function returns what it takes: value %d must be %s, found %s", i, tn_t_describe(c, &tensor),
                              tn_t_describe(c, &items[i]));
    }
    tn_t_yield(&c->b, results, n);
    c->scalars_only = scalars_only;
    c->b = before;
    return true;
}

bool tn_t_run_kernel(tn_tcompiler *c)
{
    outcome how;
    return run(c, &(task){.node = c->frame->function->node->child[1]}, false, &how);
}
