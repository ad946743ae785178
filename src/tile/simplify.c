/* tile-simplify: constants and identities (simplify_rules.c), operations and loads that were computed already, values that loops carry unchanged, branches
 * that are decided, loops of no trip and of one, and what nobody needs (dead.c).
 *
 * A visit goes through the kernel in order: operands are replaced by what they have become, then the operation is simplified, so each is looked at once. What
 * a loop's or branch's end shows of its beginning is used by the next round; there are few. Time is linear in the kernel's size.
 *
 * What passes a region's boundary is frozen: absent elements become zeros. So a value may take the place of one that a region gave only if all its
 * elements are known to be there. In a fold nor may it if a range of the fold walks it: what a region gave counts past the limit too. And a fold that was
 * walked by its range, and is not any more (the value of a decided select is a constant), is told where to end. */
#include "tile/simplify.h"

#include <string.h>

enum { MAX_ROUNDS = 4, MAX_CHAIN = 64 };

typedef struct entry {
    uint64_t key;
    void *before;
} entry;

typedef struct simplifier {
    tn_kernel *kernel;
    tn_arena arena;
    tn_map became;         /* value -> the one that takes its place */
    tn_map computed;       /* hash of an operation -> the last such one in sight */
    TN_VEC(entry) scope;   /* what `computed` held before, to leave a block */
    int64_t writes, *written; /* how many there were; by buffer: the last that may have changed it */
    const tn_top *fold;    /* the innermost whose body is visited */
    bool combining;        /* in a region that combines: it uses nothing from outside that it did not use before */
    bool changed;          /* another round may find more */
    tn_rules rules;
} simplifier;

static void visit_block(simplifier *s, tn_tblock *block);

/* ---- replacement ----------------------------------------------------------------------------------------------------- */

static void resolve(void *context, tn_tvalue **use)
{
    for (tn_tvalue *to; (to = tn_map_get(context, TN_KEY(*use)));)
        *use = to;
}

static void resolve_op(void *context, tn_top *op) { tn_top_uses(op, resolve, context); }

static void replace(simplifier *s, const tn_tvalue *v, tn_tvalue *by)
{
    resolve(&s->became, &by);
    if (v != by)
        *tn_map_at(&s->became, TN_KEY(v)) = by;
}

/* ---- what is known of values ----------------------------------------------------------------------------------------- */

static bool all_present(const tn_top *op, int first, int end)
{
    for (int i = first; i < end; i++)
        if (!tn_fact_present(op->operand[i]))
            return false;
    return true;
}

/* Does the load's view have every element that it could name? */
static bool has_all_elements(const tn_top *load)
{
    for (int d = 0; d < load->view->rank; d++)
        if (!tn_dim_is(load->view->shape[d], TN_TILE_ANY) || !tn_fact_present(load->subscript[d].value))
            return false;
    return load->view->nguards == 0;
}

static bool gives_present(const tn_top *op)
{
    switch (op->code) {
    case TN_T_load:
        return op->view->padded || has_all_elements(op);
    case TN_T_load_ptr: /* a lane that is not loaded is `other` */
        return op->noperands == 3 ? tn_fact_present(op->operand[2]) : op->noperands == 1 && tn_fact_present(op->operand[0]);
    case TN_T_atomic:
        return false;
    case TN_T_atomic_ptr:
        return op->noperands == 2 && all_present(op, 0, 2);
    case TN_T_atomic_load:
        return op->noperands == 1 && tn_fact_present(op->operand[0]);
    case TN_T_assume:
        return tn_fact_present(op->operand[0]);
    case TN_T_gather:
        return tn_fact_present(op->operand[1]);
    case TN_T_dot:
    case TN_T_histogram:
    case TN_T_reduce:
    case TN_T_scan:
    case TN_T_fold:
    case TN_T_for:
    case TN_T_while:
    case TN_T_if:
        return true;
    default:
        return all_present(op, 0, op->noperands);
    }
}

/* The buffer that the result's pointers point into: that of all pointers it is made from. */
static int root_of(const tn_top *op)
{
    int root = TN_ROOT_UNKNOWN;
    bool any = false;
    if (op->nregions || op->code == TN_T_load_ptr)
        return TN_ROOT_UNKNOWN;
    for (int i = 0; i < op->noperands; i++) {
        if (!op->operand[i]->type.pointer)
            continue;
        int r = tn_fact_root(op->operand[i]);
        root = any && r != root ? TN_ROOT_UNKNOWN : r;
        any = true;
    }
    return root;
}

void tn_learn(tn_top *op)
{
    bool present = gives_present(op);
    for (int i = 0; i < op->nresults; i++)
        tn_fact_set(&op->result[i], present, op->result[i].type.pointer ? root_of(op) : TN_ROOT_UNKNOWN);
}

void tn_learn_parameters(const tn_kernel *kernel)
{
    for (size_t i = 0; i < kernel->grid.len; i++)
        tn_fact_set(kernel->grid.at[i].value, true, TN_ROOT_UNKNOWN);
    for (size_t i = 0; i < kernel->scalars.len; i++) {
        tn_tvalue *v = kernel->scalars.at[i];
        int root = TN_ROOT_UNKNOWN;
        for (size_t b = kernel->buffers.len; v->type.pointer && b-- > 0;)
            if (strcmp(kernel->buffers.at[b].name, v->name) == 0)
                root = (int)b;
        tn_fact_set(v, true, root);
    }
}

/* ---- writes ---------------------------------------------------------------------------------------------------------- */

static bool is_local(const simplifier *s, int buffer) { return s->kernel->buffers.at[buffer].mode == TN_LOCAL; }

/* A write to a buffer, or (unknown) to any memory. Parameters that may overlap are one memory. */
static void note_write(simplifier *s, int buffer)
{
    s->writes++;
    for (int b = 0; b < (int)s->kernel->buffers.len; b++)
        if (buffer == TN_ROOT_UNKNOWN || b == buffer || (s->kernel->overlap && !is_local(s, b) && !is_local(s, buffer)))
            s->written[b] = s->writes;
}

static void note_writes(simplifier *s, const tn_top *op)
{
    if (op->code == TN_T_store)
        note_write(s, op->view->buffer);
    else if (op->code == TN_T_store_ptr)
        note_write(s, tn_fact_root(op->operand[0]));
    else if (tn_top_is_atomic(op->code) || op->code == TN_T_fence || op->code == TN_T_asm)
        note_write(s, TN_ROOT_UNKNOWN); /* what other programs wrote is seen after these */
}

static int64_t last_write(const simplifier *s, const tn_top *load)
{
    int buffer = load->code == TN_T_load ? load->view->buffer : tn_fact_root(load->operand[0]);
    return buffer == TN_ROOT_UNKNOWN ? s->writes : s->written[buffer];
}

/* ---- equal operations ------------------------------------------------------------------------------------------------ */

static bool same_view(const tn_view *a, const tn_view *b)
{
    if (a == b)
        return true;
    if (a->buffer != b->buffer || a->rank != b->rank || a->offset != b->offset || a->nguards != b->nguards || a->panel != b->panel ||
        a->padded != b->padded || (a->padded && memcmp(&a->padding, &b->padding, sizeof a->padding)))
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d] || a->stride[d] != b->stride[d])
            return false;
    for (int g = 0; g < a->nguards; g++) {
        const tn_guard *x = &a->guard[g], *y = &b->guard[g];
        if (x->base != y->base || x->limit != y->limit || memcmp(x->coef, y->coef, sizeof x->coef[0] * (size_t)a->rank))
            return false;
    }
    return true;
}

static bool same_subscripts(const tn_top *a, const tn_top *b)
{
    for (int d = 0; d < a->view->rank; d++) {
        const tn_subscript *x = &a->subscript[d], *y = &b->subscript[d];
        if (x->value != y->value || x->block != y->block || x->inside != y->inside || x->naxes != y->naxes ||
            memcmp(x->axis, y->axis, sizeof x->axis[0] * (size_t)x->naxes))
            return false;
    }
    return true;
}

static bool same_op(const tn_top *a, const tn_top *b)
{
    if (a->code != b->code || a->fn != b->fn || a->noperands != b->noperands || a->naxes != b->naxes || a->dim != b->dim ||
        a->nresults != b->nresults || a->precision != b->precision || a->imprecise != b->imprecise || memcmp(&a->number, &b->number, sizeof a->number) ||
        memcmp(a->axis, b->axis, sizeof a->axis[0] * (size_t)a->naxes))
        return false;
    for (int i = 0; i < a->noperands; i++)
        if (a->operand[i] != b->operand[i])
            return false;
    for (int i = 0; i < a->nresults; i++)
        if (!tn_ttype_same(&a->result[i].type, &b->result[i].type))
            return false;
    return !a->view || (same_view(a->view, b->view) && same_subscripts(a, b));
}

static bool is_load(const tn_top *op) { return op->code == TN_T_load || op->code == TN_T_load_ptr; }

/* A load counts with the last write to what it loads, and in its block alone. */
static uint64_t hash_of(const simplifier *s, const tn_top *op)
{
    struct {
        uint64_t code, fn, dim, dtype, rank, number[2], memory, block, buffer, operand[4];
    } h = {.code = op->code, .fn = op->fn, .dim = TN_KEY(op->dim), .dtype = op->result->type.dtype, .rank = (uint64_t)op->result->type.rank};
    memcpy(h.number, &op->number, sizeof h.number);
    if (is_load(op)) {
        h.memory = (uint64_t)last_write(s, op);
        h.block = TN_KEY(op->block);
        h.buffer = op->view ? (uint64_t)op->view->buffer : UINT64_MAX;
    }
    for (int i = 0; i < op->noperands; i++)
        h.operand[i % 4] = h.operand[i % 4] * 31 + TN_KEY(op->operand[i]);
    for (int d = 0; op->view && d < op->view->rank; d++)
        h.operand[d % 4] = h.operand[d % 4] * 31 + TN_KEY(op->subscript[d].value);
    return tn_hash(&h, sizeof h, (uint64_t)op->naxes);
}

/* The equal operation before this one; NULL: none, and this one is found from now on. */
static tn_top *equal_before(simplifier *s, tn_top *op)
{
    bool pure = tn_top_traits(op->code) == TN_T_PURE && op->code != TN_T_asm;
    if (op->nregions || op->label || !op->nresults || !(pure || is_load(op)))
        return NULL;
    uint64_t key = hash_of(s, op);
    void **cell = tn_map_at(&s->computed, key);
    tn_top *before = *cell;
    bool in_sight = before && (before->block == op->block || (!op->result->type.rank && !is_load(op) && !s->combining));
    if (in_sight && same_op(before, op))
        return before;
    TN_PUSH(&s->arena, &s->scope, ((entry){key, before}));
    *cell = op;
    return NULL;
}

static void leave_scope(simplifier *s, size_t mark)
{
    while (s->scope.len > mark) {
        entry e = s->scope.at[--s->scope.len];
        *tn_map_at(&s->computed, e.key) = e.before;
    }
}

/* ---- loops and branches ---------------------------------------------------------------------------------------------- */

/* The first operand that is carried, and the first argument that is. */
static int first_start(const tn_top *op) { return op->code == TN_T_for ? 3 : 0; }
static int first_argument(const tn_top *op) { return op->code == TN_T_for ? 1 : 0; }
static tn_tblock *body_of(const tn_top *op) { return op->region[op->code == TN_T_while]; }

static bool constant_int(const tn_tvalue *v, int64_t *out)
{
    const tn_number *c = tn_tile_constant(v);
    if (c)
        *out = tn_number_to_int(v->type.dtype, *c);
    return c != NULL;
}

/* How often the body of `for` runs: 0, 1, or 2 for more or unknown. */
static int trips_of(const tn_top *op)
{
    int64_t lo, hi, step, next;
    if (!constant_int(op->operand[0], &lo) || !constant_int(op->operand[1], &hi) || !constant_int(op->operand[2], &step) || step <= 0)
        return 2;
    return lo >= hi ? 0 : !tn_add(lo, step, &next) || next >= hi ? 1 : 2;
}

/* May v be seen where a loop or a branch gave it? Not where the fold that both stand in would leave out a part of it. */
static bool may_show(simplifier *s, tn_tvalue *v)
{
    resolve(&s->became, &v);
    for (int a = 0; s->fold && a < v->type.rank; a++)
        if (tn_fold_range_of(s->fold, v, a) >= 0)
            return false;
    return true;
}

/* Value number i keeps what it started with: the body yields it as it came, or the constant that it started as. */
static bool stays(const tn_top *op, int i)
{
    const tn_tblock *body = body_of(op);
    const tn_tvalue *next = body->last->operand[i];
    return next == &body->arg[first_argument(op) + i] || next == op->operand[first_start(op) + i] || tn_same_constant(next, op->operand[first_start(op) + i]);
}

static bool carry_stays(simplifier *s, tn_top *op, int i)
{
    tn_tvalue *start = op->operand[first_start(op) + i];
    if (!stays(op, i) || !tn_fact_present(start))
        return false;
    for (int r = 0; r < op->nregions; r++)
        replace(s, &op->region[r]->arg[first_argument(op) + i], start);
    if (may_show(s, start))
        replace(s, &op->result[i], start);
    return true;
}

/* Where a carried pointer points: as its start, if the body only moves it. */
static int carried_root(const tn_top *op, int i)
{
    const tn_tblock *body = body_of(op);
    int root = tn_fact_root(op->operand[first_start(op) + i]);
    const tn_tvalue *v = body->last->operand[i];
    for (int n = 0; n < MAX_CHAIN; n++) {
        if (v == &body->arg[first_argument(op) + i] || v == op->operand[first_start(op) + i])
            return root;
        bool moves = v->def && (v->def->code == TN_T_addptr || v->def->code == TN_T_assume);
        if (!moves)
            return TN_ROOT_UNKNOWN;
        v = v->def->operand[0];
    }
    return TN_ROOT_UNKNOWN;
}

/* Before the regions: what their arguments are. */
static void enter_regions(simplifier *s, tn_top *op)
{
    bool loop = op->code == TN_T_for || op->code == TN_T_while;
    for (int r = 0; r < op->nregions; r++)
        for (int i = 0; i < op->region[r]->nargs; i++) {
            tn_tvalue *arg = &op->region[r]->arg[i];
            int carried = i - first_argument(op);
            int root = loop && carried >= 0 && arg->type.pointer ? carried_root(op, carried) : TN_ROOT_UNKNOWN;
            tn_fact_set(arg, true, root);
            if (loop && carried >= 0)
                tn_fact_set(&op->result[carried], true, root);
        }
    bool once = op->code == TN_T_for && trips_of(op) == 1;
    for (int i = 0; loop && i < op->nresults; i++)
        if (!carry_stays(s, op, i) && once && tn_fact_present(op->operand[3 + i]))
            replace(s, &op->region[0]->arg[1 + i], op->operand[3 + i]);
    int64_t lo;
    if (once && constant_int(op->operand[0], &lo)) {
        tn_tblock aside = {.first = NULL};
        tn_tbuilder b = tn_tbuilder_at(s->kernel, &aside, op->loc);
        tn_tvalue *index = tn_t_index(&b, lo);
        tn_top_move_before(index->def, op);
        tn_fact_set(index, true, TN_ROOT_UNKNOWN);
        replace(s, &op->region[0]->arg[0], index);
    }
}

/* Moves a region's operations to before op, and gives op's results what the region yields. */
static void inline_region(simplifier *s, tn_top *op, tn_tblock *region)
{
    tn_top *yield = region->last;
    while (region->first != yield)
        tn_top_move_before(region->first, op);
    for (int i = 0; i < op->nresults; i++)
        replace(s, &op->result[i], yield->operand[i]);
    tn_top_unlink(op);
    s->changed = true;
}

/* Are the region's values there, all of them, and may they take the place of the operation's? */
static bool yields_plainly(simplifier *s, const tn_tblock *region)
{
    for (int i = 0; i < region->last->noperands; i++)
        if (!may_show(s, region->last->operand[i]))
            return false;
    return all_present(region->last, 0, region->last->noperands);
}

static void end_loop(simplifier *s, tn_top *op)
{
    bool once = op->code == TN_T_for && trips_of(op) == 1;
    if (once && all_present(op, 3, op->noperands) && yields_plainly(s, op->region[0])) {
        inline_region(s, op, op->region[0]);
        return;
    }
    bool any = false;
    for (int i = 0; i < op->nresults; i++)
        if (!tn_map_get(&s->became, TN_KEY(&op->result[i])))
            any |= carry_stays(s, op, i);
    for (int r = 0; any && r < op->nregions; r++)
        tn_tile_walk(op->region[r], resolve_op, &s->became);
    s->changed |= any;
}

static void end_if(simplifier *s, tn_top *op)
{
    const tn_number *cond = tn_tile_constant(op->operand[0]);
    tn_tblock *taken = cond ? op->region[cond->u ? 0 : 1] : NULL;
    if (taken && yields_plainly(s, taken)) {
        inline_region(s, op, taken);
        return;
    }
    for (int i = 0; i < op->nresults; i++) {
        tn_tvalue *x = op->region[0]->last->operand[i], *y = op->region[1]->last->operand[i];
        if (x != y && tn_same_constant(x, y)) {
            tn_tblock aside = {.first = NULL};
            tn_tbuilder b = tn_tbuilder_at(s->kernel, &aside, op->loc);
            x = y = tn_t_const(&b, x->type, *tn_tile_constant(x));
            tn_top_move_before(x->def, op);
            tn_fact_set(x, true, TN_ROOT_UNKNOWN);
        }
        if (x == y && tn_fact_present(x) && may_show(s, x))
            replace(s, &op->result[i], x);
    }
}

/* True: op is gone. */
static bool never_runs(simplifier *s, tn_top *op)
{
    if (op->code != TN_T_for || trips_of(op) != 0 || !all_present(op, 3, op->noperands))
        return false;
    for (int i = 0; i < op->nresults; i++)
        if (!may_show(s, op->operand[3 + i]))
            return false;
    for (int i = 0; i < op->nresults; i++)
        replace(s, &op->result[i], op->operand[3 + i]);
    tn_top_unlink(op);
    return true;
}

/* The range that walks each axis of each tile that the fold combines; -1: none. */
typedef struct walks {
    int range[TN_TILE_COMBINED][TN_TILE_RANK];
} walks;

static walks walks_of(const tn_top *fold)
{
    walks w;
    const tn_top *yield = fold->region[0]->last;
    for (int k = 0; k < yield->noperands; k++)
        for (int a = 0; a < yield->operand[k]->type.rank; a++)
            w.range[k][a] = tn_fold_range_of(fold, yield->operand[k], a);
    return w;
}

/* Tile k becomes the identity past the limit of the range, which walks it so. */
static void end_with_range(simplifier *s, tn_top *fold, int k, int axis, int range)
{
    tn_top *yield = fold->region[0]->last;
    tn_tblock aside = {.first = NULL};
    tn_tbuilder b = tn_tbuilder_at(s->kernel, &aside, fold->loc);
    tn_tvalue *x = yield->operand[k];
    tn_ttype type = x->type;
    type.dtype = TN_BOOL;
    tn_tvalue *at = tn_t_range(&b, &fold->region[0]->arg[range], type.extent[axis]);
    tn_tvalue *inside = tn_t_broadcast(&b, tn_t_map2(&b, TN_S_lt, at, fold->operand[range]), type, &axis);
    yield->operand[k] = tn_t_map3(&b, TN_S_select, inside, x, tn_t_const(&b, tn_tscalar(x->type.dtype), fold->identity[k]));
    while (aside.first) {
        tn_top *op = aside.first;
        tn_top_move_before(op, yield);
        tn_learn(op);
    }
}

static void visit_fold_body(simplifier *s, tn_top *fold)
{
    const tn_top *outside = s->fold, *yield = fold->region[0]->last;
    walks before = walks_of(fold);
    s->fold = fold;
    visit_block(s, fold->region[0]);
    s->fold = outside;
    walks after = walks_of(fold);
    for (int k = 0; k < yield->noperands; k++)
        for (int a = 0; a < yield->operand[k]->type.rank; a++)
            if (before.range[k][a] >= 0 && before.range[k][a] != after.range[k][a])
                end_with_range(s, fold, k, a, before.range[k][a]);
}

static void visit_regions(simplifier *s, tn_top *op)
{
    if (never_runs(s, op))
        return;
    enter_regions(s, op);
    for (int r = 0; r < op->nregions; r++) {
        bool outside = s->combining;
        s->combining |= op->code == TN_T_reduce || op->code == TN_T_scan || op->code == TN_T_sort || (op->code == TN_T_fold && r == 1);
        if (op->code == TN_T_fold && r == 0)
            visit_fold_body(s, op);
        else
            visit_block(s, op->region[r]);
        s->combining = outside;
    }
    if (op->code == TN_T_for || op->code == TN_T_while)
        end_loop(s, op);
    else if (op->code == TN_T_if)
        end_if(s, op);
}

/* ---- the visit ------------------------------------------------------------------------------------------------------- */

static tn_tvalue *visit(void *context, tn_top *op)
{
    simplifier *s = context;
    tn_top_uses(op, resolve, &s->became);
    if (op->nregions) {
        tn_learn(op);
        visit_regions(s, op);
        return NULL;
    }
    tn_tvalue *same = tn_simplify_op(&s->rules, op);
    tn_top *equal = same ? NULL : equal_before(s, op);
    if (!same && !equal) {
        tn_learn(op);
        note_writes(s, op);
        return op->result;
    }
    for (int i = 0; i < op->nresults; i++)
        replace(s, &op->result[i], same ? same : &equal->result[i]);
    tn_top_unlink(op);
    return same ? same : equal->result;
}

static void visit_block(simplifier *s, tn_tblock *block)
{
    size_t mark = s->scope.len;
    for (tn_top *op = block->first, *next; op; op = next) {
        next = op->next;
        visit(s, op);
    }
    leave_scope(s, mark);
}

/* ---- the pass -------------------------------------------------------------------------------------------------------- */

static void note_label(void *context, tn_top *op)
{
    if (op->label)
        *tn_map_at_str(context, op->label) = op;
}

void tn_prune_schedule(tn_kernel *kernel)
{
    tn_arena arena = {.on_oom = kernel->session->arena.on_oom};
    tn_map labels = {.arena = &arena};
    tn_tile_walk(kernel->body, note_label, &labels);
    size_t kept = 0;
    for (size_t i = 0; i < kernel->schedule.entry.len; i++) {
        tn_schedule_entry e = kernel->schedule.entry.at[i];
        if (!e.label[0] || tn_map_get_str(&labels, e.label))
            kernel->schedule.entry.at[kept++] = e;
    }
    kernel->schedule.entry.len = kept;
    tn_arena_free(&arena);
}

static bool simplify_once(tn_kernel *kernel)
{
    simplifier s = {.kernel = kernel, .arena = {.on_oom = kernel->session->arena.on_oom}};
    s.became.arena = s.computed.arena = &s.arena;
    s.written = TN_NEW_ARRAY(&s.arena, int64_t, kernel->buffers.len + 1);
    s.rules = (tn_rules){kernel, visit, &s};
    tn_learn_parameters(kernel);
    visit_block(&s, kernel->body);
    tn_remove_dead(kernel);
    tn_arena_free(&s.arena);
    return s.changed;
}

tn_status tn_tile_simplify(tn_kernel *kernel)
{
    for (int round = 0; round < MAX_ROUNDS && simplify_once(kernel); round++)
        continue;
    tn_prune_schedule(kernel);
    return TN_OK;
}
