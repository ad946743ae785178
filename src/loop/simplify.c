/* Simplification: one walk that folds, merges and inlines, then one that deletes what nothing uses.
 *
 *     %1 = const 1 : f32                         for %i = %0 to %n step %s {
 *     for %i = %0 to %n step %s {                  %2 = load %x[%i] : f32
 *       %2 = load %x[%i] : f32            =>       %4 = add %2, %2 : f32
 *       %3 = mul %2, %1 : f32                      store %y[%i], %4
 *       %4 = add %3, %2 : f32                    }
 *       store %y[%i], %4
 *     }
 *
 * Folds: fold.c's rules; integer division and remainder by constants from proven ranges (range.c); comparisons and
 * min/max that ranges decide. Merges: equal pure operations, and equal loads of readonly buffers, when the first one's
 * block encloses the second. Inlines: `if` with a constant condition, loops of one iteration; drops loops of none.
 * Needs nothing, keeps every stage's rules. Linear in operations, up to hashing. */
#include "loop/internal.h"

#include <string.h>

typedef struct candidate {
    tn_lop *op;
    struct candidate *next;
} candidate;

typedef struct simplifier {
    tn_lfunc *func;
    tn_map table;         /* hash of an operation -> candidates visible here, newest first */
    TN_VEC(uint64_t) log; /* hashes entered, to leave a scope */
    tn_map ranges;
} simplifier;

/* ---- division by ranges ---- */

static bool power_of_two(int64_t x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

static bool is_fn(const tn_lvalue *v, tn_scalar fn)
{
    return v->def && v->def->code == TN_L_fn && v->def->fn == fn;
}

/* A term of the sum x that is a product, >= 0, by a constant that `divisor` divides. */
static tn_lvalue *multiple_term(simplifier *s, tn_lvalue *x, int64_t divisor, int depth)
{
    int64_t factor;
    if (is_fn(x, TN_S_mul) && tn_l_is_const(x->def->operand[1], &factor) && factor % divisor == 0)
        return tn_l_range(&s->ranges, x).lo >= 0 ? x : NULL;
    for (int i = 0; is_fn(x, TN_S_add) && i < 2 && depth < 6; i++) {
        tn_lvalue *term = multiple_term(s, x->def->operand[i], divisor, depth + 1);
        if (term)
            return term;
    }
    return NULL;
}

/* The sum x without one occurrence of the term; NULL if it does not occur. x itself is not the term. */
static tn_lvalue *without_term(tn_lbuilder *b, tn_lvalue *x, const tn_lvalue *term, int depth)
{
    for (int i = 0; is_fn(x, TN_S_add) && i < 2 && depth < 6; i++) {
        tn_lvalue *part = x->def->operand[i], *other = x->def->operand[1 - i];
        if (part == term)
            return other;
        tn_lvalue *rest = without_term(b, part, term, depth + 1);
        if (rest)
            return tn_l_fn2(b, TN_S_add, rest, other);
    }
    return NULL;
}

/* x = product + rest, both >= 0, with `divisor` dividing the product's constant factor. */
static bool split_multiple(simplifier *s, tn_lbuilder *b, tn_lvalue *x, int64_t divisor, tn_lvalue **product,
                           tn_lvalue **rest)
{
    *product = is_fn(x, TN_S_add) ? multiple_term(s, x, divisor, 0) : NULL;
    *rest = *product ? without_term(b, x, *product, 0) : NULL;
    return *rest && tn_l_range(&s->ranges, *rest).lo >= 0;
}

/* p = q * factor that did not wrap (its range is known): p / divisor = q * (factor / divisor). */
static tn_lvalue *divide_product(tn_lbuilder *b, tn_lvalue *p, int64_t divisor)
{
    int64_t factor;
    tn_l_is_const(p->def->operand[1], &factor);
    return tn_l_fn2(b, TN_S_mul, p->def->operand[0], tn_l_index(b, factor / divisor));
}

static bool unwrapped(tn_lrange r)
{
    return r.lo >= 0 && r.hi < INT64_MAX;
}

static tn_lvalue *divide(simplifier *s, tn_lbuilder *b, const tn_lop *op, int64_t divisor)
{
    tn_lvalue *x = op->operand[0], *product, *rest;
    bool remainder = op->fn == TN_S_rem;
    tn_lrange r = tn_l_range(&s->ranges, x);
    if (!unwrapped(r) || divisor <= 0)
        return NULL;
    if (r.hi < divisor)
        return remainder ? x : tn_l_index(b, 0);
    const tn_lop *mul = x->def;
    int64_t factor;
    if (mul && mul->code == TN_L_fn && mul->fn == TN_S_mul && tn_l_is_const(mul->operand[1], &factor) &&
        factor % divisor == 0)
        return remainder ? tn_l_index(b, 0) : divide_product(b, x, divisor);
    if (split_multiple(s, b, x, divisor, &product, &rest)) {
        tn_lvalue *part = tn_l_fn2(b, op->fn, rest, op->operand[1]);
        return remainder ? part : tn_l_fn2(b, TN_S_add, divide_product(b, product, divisor), part);
    }
    if (!power_of_two(divisor))
        return NULL;
    return remainder ? tn_l_fn2(b, TN_S_and, x, tn_l_index(b, divisor - 1))
                     : tn_l_fn2(b, TN_S_shr_logical, x, tn_l_index(b, __builtin_ctzll((uint64_t)divisor)));
}

/* 1: surely x < y; 0: surely x >= y; -1: unknown. */
static int decide_less(tn_lrange x, tn_lrange y)
{
    return x.hi < y.lo ? 1 : x.lo >= y.hi ? 0 : -1;
}

static int decide(tn_scalar fn, tn_lrange x, tn_lrange y)
{
    int less = decide_less(x, y), greater = decide_less(y, x);
    switch (fn) {
    case TN_S_lt:
        return less;
    case TN_S_ge:
        return less < 0 ? -1 : !less;
    case TN_S_gt:
        return greater;
    case TN_S_le:
        return greater < 0 ? -1 : !greater;
    case TN_S_eq:
        return less == 1 || greater == 1 ? 0 : -1;
    case TN_S_ne:
        return less == 1 || greater == 1 ? 1 : -1;
    default:
        return -1;
    }
}

static tn_lvalue *by_range(simplifier *s, tn_lbuilder *b, const tn_lop *op)
{
    if (op->noperands != 2 || op->result->type.lanes != 1 || op->operand[0]->type.dtype != TN_I64)
        return NULL;
    int64_t divisor;
    if (op->fn == TN_S_div || op->fn == TN_S_rem)
        return tn_l_is_const(op->operand[1], &divisor) ? divide(s, b, op, divisor) : NULL;
    bool extremum = op->fn == TN_S_max || op->fn == TN_S_min;
    if (!extremum && op->result->type.dtype != TN_BOOL)
        return NULL;
    tn_lrange x = tn_l_range(&s->ranges, op->operand[0]), y = tn_l_range(&s->ranges, op->operand[1]);
    if (extremum) {
        int first = decide(op->fn == TN_S_max ? TN_S_ge : TN_S_le, x, y);
        int second = decide(op->fn == TN_S_max ? TN_S_le : TN_S_ge, x, y);
        return first == 1 ? op->operand[0] : second == 1 ? op->operand[1] : NULL;
    }
    int holds = decide(op->fn, x, y);
    return holds < 0 ? NULL : tn_l_const(b, tn_lscalar(TN_BOOL), (tn_number){.u = (uint64_t)holds});
}

/* ---- merging equal operations ---- */

static bool mergeable(const tn_lop *op)
{
    if (!op->result || op->nregions)
        return false;
    return (tn_lop_traits(op->code) & (TN_L_PURE | TN_L_LANES)) ||
           ((op->code == TN_L_load || op->code == TN_L_gather) && op->operand[0]->readonly);
}

static uint64_t hash_op(const tn_lop *op)
{
    const uint64_t head[] = {op->code, op->fn, op->result->type.dtype, (uint64_t)op->result->type.lanes, op->number.u, op->contract};
    uint64_t h = tn_hash(head, sizeof head, 0);
    for (int i = 0; i < op->noperands; i++)
        h = tn_hash_u64(h ^ op->operand[i]->id) + (uint64_t)i;
    return h;
}

static bool equal_ops(const tn_lop *a, const tn_lop *b)
{
    if (a->code != b->code || a->fn != b->fn || a->name != b->name || a->contract != b->contract || a->noperands != b->noperands ||
        !tn_l_same_type(a->result->type, b->result->type))
        return false;
    if (a->noperands && memcmp(a->operand, b->operand, (size_t)a->noperands * sizeof *a->operand) != 0)
        return false;
    if (a->code == TN_L_shuffle)
        return memcmp(a->lanes, b->lanes, (size_t)a->result->type.lanes * sizeof *a->lanes) == 0;
    return memcmp(&a->number, &b->number, sizeof a->number) == 0;
}

/* An equal operation seen earlier in an enclosing block; else enters `op` for those that follow. */
static tn_lvalue *merge(simplifier *s, tn_lop *op)
{
    tn_arena *arena = tn_l_arena(s->func);
    uint64_t hash = hash_op(op);
    candidate *known = tn_map_get(&s->table, hash);
    for (candidate *c = known; c; c = c->next)
        if (equal_ops(c->op, op))
            return c->op->result;
    candidate *mine = TN_NEW(arena, candidate);
    *mine = (candidate){op, known};
    *tn_map_at(&s->table, hash) = mine;
    TN_PUSH(arena, &s->log, hash);
    return NULL;
}

static void leave_scope(simplifier *s, size_t mark)
{
    while (s->log.len > mark) {
        void **cell = tn_map_at(&s->table, s->log.at[--s->log.len]);
        *cell = ((candidate *)*cell)->next;
    }
}

/* ---- one operation ---- */

static tn_lvalue *fold_splat(tn_lbuilder *b, const tn_lop *op)
{
    return tn_l_number(op->operand[0]) ? tn_l_splat(b, op->operand[0], op->result->type.lanes) : NULL;
}

static tn_lvalue *fold_extract(const tn_lop *op)
{
    const tn_lop *vector = op->operand[0]->def;
    return vector && vector->code == TN_L_splat ? vector->operand[0] : NULL;
}

/* What all lanes have alike. */
static tn_lvalue *fold_lane(const tn_lop *op)
{
    bool own = op->code == TN_L_lane_xor && op->number.i == 0;
    return own || tn_l_number(op->operand[0]) ? op->operand[0] : NULL;
}

static tn_lvalue *fold_op(simplifier *s, tn_lop *op)
{
    tn_lbuilder b = tn_lbuilder_before(s->func, op);
    tn_lvalue *v = NULL;
    switch (op->code) {
    case TN_L_fn:
        v = tn_l_fold(&b, op->fn, op->operand, op->noperands);
        return v ? v : by_range(s, &b, op);
    case TN_L_cast:
        return tn_l_fold_cast(&b, op->operand[0], op->result->type.dtype);
    case TN_L_bitcast:
        return tn_l_same_type(op->operand[0]->type, op->result->type) ? op->operand[0] : NULL;
    case TN_L_splat:
        return fold_splat(&b, op);
    case TN_L_extract:
        return fold_extract(op);
    case TN_L_lane_xor:
    case TN_L_lane_at:
        return fold_lane(op);
    default:
        return NULL;
    }
}

/* ---- control ---- */

static void splice_before(tn_lop *place, tn_lblock *block)
{
    tn_lbuilder b = {.block = place->block, .before = place};
    for (tn_lop *op = block->first, *next; op; op = next) {
        next = op->next;
        tn_lop_unlink(op);
        tn_lop_insert(&b, op);
    }
}

/* Iterations of a loop with constant bounds: 0, 1 or 2 for "more"; -1 unknown. */
static int few_iterations(simplifier *s, const tn_lop *loop)
{
    tn_lrange lo = tn_l_range(&s->ranges, loop->operand[0]), hi = tn_l_range(&s->ranges, loop->operand[1]);
    int64_t step, trip;
    if (lo.lo >= hi.hi)
        return 0;
    if (lo.lo != lo.hi || hi.lo != hi.hi || !tn_l_is_const(loop->operand[2], &step) || step <= 0)
        return -1;
    return tn_sub(hi.lo, lo.lo, &trip) && trip <= step ? 1 : 2;
}

/* Replaces `if` and `for` that surely run one way by their block. True if `op` is gone. */
static bool inline_control(simplifier *s, tn_lop *op)
{
    int64_t value;
    if (op->code == TN_L_if && tn_l_is_const(op->operand[0], &value)) {
        splice_before(op, op->region[value ? 0 : 1]);
    } else if (op->code == TN_L_for) {
        int n = few_iterations(s, op);
        if (n < 0 || n > 1 || op->kind == TN_FOR_GRID)
            return false;
        op->region[0]->arg->scratch = op->operand[0];
        if (n == 1)
            splice_before(op, op->region[0]);
    } else {
        return false;
    }
    tn_lop_erase(op);
    return true;
}

/* A store under a mask that is known: without it, or not at all. True if `op` is gone. */
static bool known_mask(tn_lop *op)
{
    int mask = tn_lop_mask_index(op);
    const tn_number *number = op->code == TN_L_store && mask < op->noperands ? tn_l_number(op->operand[mask]) : NULL;
    if (!number)
        return false;
    if (number->u)
        op->noperands = mask; /* it stands last */
    else
        tn_lop_erase(op);
    return !number->u;
}

static void simplify_block(simplifier *s, tn_lblock *block)
{
    size_t mark = s->log.len;
    for (tn_lop *op = block->first, *next; op; op = next) {
        tn_lop *prev = op->prev;
        tn_l_resolve_operands(op);
        bool gone = op->nregions ? inline_control(s, op) : known_mask(op);
        tn_lvalue *v = gone || !op->result ? NULL : fold_op(s, op);
        if (!v && !gone && mergeable(op))
            v = merge(s, op);
        if (v) {
            op->result->scratch = v;
            tn_lop_erase(op);
            gone = true;
        }
        for (int i = 0; !gone && i < op->nregions; i++)
            simplify_block(s, op->region[i]);
        /* What a rule has put in front of a replaced operation is visited in turn. */
        next = !gone ? op->next : prev ? prev->next : block->first;
    }
    leave_scope(s, mark);
}

/* ---- what nothing uses ---- */

static void mark_operands(const tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++)
        op->operand[i]->scratch = op->operand[i];
}

static bool has_effect(const tn_lop *op)
{
    if (op->nregions)
        return op->code == TN_L_while || op->code == TN_L_roles || op->region[0]->first || (op->nregions > 1 && op->region[1]->first);
    return op->code != TN_L_alloc && (tn_lop_traits(op->code) & TN_L_WRITES);
}

/* Backwards, so that every use is seen before its definition. */
static void delete_dead(tn_lblock *block)
{
    for (tn_lop *op = block->last, *prev; op; op = prev) {
        prev = op->prev;
        for (int i = op->nregions - 1; i >= 0; i--)
            delete_dead(op->region[i]);
        if (has_effect(op) || (op->result && op->result->scratch))
            mark_operands(op);
        else
            tn_lop_erase(op);
    }
}

tn_status tn_loop_simplify(tn_lfunc *func, const tn_pass_options *options)
{
    (void)options;
    tn_arena *arena = tn_l_arena(func);
    simplifier s = {.func = func, .table = {.arena = arena}, .ranges = {.arena = arena}};
    tn_l_clear_scratch(func);
    simplify_block(&s, func->body);
    tn_l_clear_scratch(func);
    delete_dead(func->body);
    return TN_OK;
}
