/* shapes: what is computed of sizes becomes dimension expressions, and symbols that must be equal become one.
 *
 *     %0 = dimension dim = s : i64[]
 *     %1 = constant dense<2> : i64[]
 *     %2 = multiply %0, %1 : i64[]             ->   %2 = dimension dim = 2*s : i64[]
 *     define_dimension %2, dim = n                  (gone; n is 2*s everywhere)
 *
 * Facts of graph->equal: "a equals 8" and "a equals b" put 8 or b in a's place everywhere, so that types which were
 * only known to fit are the same. Inputs then state it themselves, and binding them checks it. A symbol is kept if
 * its declared range would be lost. */
#include "opt/internal.h"

#include <string.h>

typedef struct shaper {
    tn_session *session;
    tn_graph *graph;
    tn_map dims; /* value -> tn_dim it is known to be */
    tn_map to;   /* symbol -> tn_dim in its place */
    tn_map born; /* symbols of define_dimension */
    tn_status status;
    bool changed;
} shaper;

/* ---- sizes as values ------------------------------------------------------------------------------------------- */

static tn_dim known(const shaper *s, const tn_value *v)
{
    const tn_tensor *constant = tn_constant_of(v);
    int64_t count;
    if (constant && tn_is_integer(constant->dtype) && tn_tensor_count(constant, &count) && count == 1)
        return tn_dim_const(s->session, tn_number_to_int(constant->dtype, tn_tensor_at(constant, 0)));
    return tn_map_get(&s->dims, TN_KEY(v));
}

/* d if every value that it may have is one of `dtype` (sizes beyond 64 bits stop a run anyway). */
static tn_dim within(tn_dim d, tn_dtype dtype)
{
    if (!d || dtype == TN_I64)
        return d;
    tn_number lo = tn_number_lowest(dtype), hi = tn_number_highest(dtype);
    bool is_signed = tn_dtype_class(dtype) == TN_CLASS_INT;
    if (dtype == TN_U64)
        return d->lo >= 0 ? d : NULL;
    return d->lo >= (is_signed ? lo.i : 0) && d->hi <= (is_signed ? hi.i : (int64_t)hi.u) ? d : NULL;
}

static tn_dim dim_of_binary(shaper *s, const tn_op *op, tn_dim x, tn_dim y)
{
    switch (op->code) {
    case TN_OP_add:
        return tn_dim_add(s->session, x, y);
    case TN_OP_subtract:
        return tn_dim_sub(s->session, x, y);
    case TN_OP_multiply:
        return tn_dim_mul(s->session, x, y);
    case TN_OP_minimum:
        return tn_dim_min(s->session, x, y);
    case TN_OP_maximum:
        return tn_dim_max(s->session, x, y);
    case TN_OP_divide: /* rounds to zero: the floor when nothing is negative */
        return x->lo >= 0 && y->lo >= 1 ? tn_dim_floordiv(s->session, x, y) : NULL;
    case TN_OP_remainder:
        return x->lo >= 0 && y->lo >= 1 ? tn_dim_mod(s->session, x, y) : NULL;
    default:
        return NULL;
    }
}

/* The dimension that op's result is, if it is one integer made of sizes. */
static tn_dim dim_of(shaper *s, const tn_op *op)
{
    if (op->code == TN_OP_dimension)
        return tn_find_attr(op, TN_A_dim)->dim;
    tn_dim x = op->noperands > 0 ? known(s, tn_operand(op, 0)) : NULL,
           y = op->noperands > 1 ? known(s, tn_operand(op, 1)) : NULL;
    if (!x)
        return NULL;
    if (op->code == TN_OP_reshape || op->code == TN_OP_convert || op->code == TN_OP_transpose ||
        op->code == TN_OP_broadcast_in_dim)
        return x;
    if (op->code == TN_OP_negate)
        return tn_dim_sub(s->session, tn_dim_const(s->session, 0), x);
    return y ? dim_of_binary(s, op, x, y) : NULL;
}

static bool is_one_integer(const tn_type *type)
{
    bool one = tn_is_integer(type->dtype);
    for (int i = 0; i < type->rank; i++)
        one = one && tn_dim_is(type->dim[i], 1);
    return one;
}

static void replace_scalar(shaper *s, tn_op *op, tn_value *to)
{
    if (!to)
        return;
    tn_replace_uses(&op->result[0], to);
    tn_erase(op);
    s->changed = true;
}

/* 1: holds, 0: does not, -1: not known */
static int decide(shaper *s, const char *direction, tn_dim x, tn_dim y)
{
    tn_session *session = s->session;
    tn_dim one = tn_dim_const(session, 1);
    bool negate = !strcmp(direction, "NE") || !strcmp(direction, "GT") || !strcmp(direction, "LT");
    int yes = -1;
    if (!strcmp(direction, "EQ") || !strcmp(direction, "NE")) {
        yes = tn_dim_eq(session, x, y) ? 1 : tn_dim_ne(session, x, y) ? 0 : -1;
    } else {
        bool at_most = !strcmp(direction, "LE") || !strcmp(direction, "GT"); /* GT is not LE, LT is not GE */
        tn_dim a = at_most ? x : y, b = at_most ? y : x;
        yes = tn_dim_le(session, a, b) ? 1 : tn_dim_le(session, tn_dim_add(session, b, one), a) ? 0 : -1;
    }
    return yes < 0 ? yes : negate ? !yes : yes;
}

static void shape_compare(shaper *s, tn_op *op)
{
    tn_dim x = known(s, tn_operand(op, 0)), y = known(s, tn_operand(op, 1));
    int answer = x && y ? decide(s, tn_find_attr(op, TN_A_direction)->s, x, y) : -1;
    tn_builder b = tn_builder_before(op);
    if (answer >= 0)
        replace_scalar(s, op, build_splat(&b, &op->result[0].type, (tn_number){.u = (uint64_t)answer}));
}

/* A `dimension` and what only reads one say it already. */
static bool is_plain(const tn_op *op)
{
    if (op->code == TN_OP_dimension)
        return !tn_dim_is_const(tn_find_attr(op, TN_A_dim)->dim);
    return (op->code == TN_OP_convert || op->code == TN_OP_reshape) && tn_is_op(tn_operand(op, 0), TN_OP_dimension);
}

static void shape_op(shaper *s, tn_op *op)
{
    size_t errors = s->session->errors, ndiags = s->session->diags.len;
    if (op->nresults != 1 || op->code == TN_OP_constant)
        return;
    if (op->code == TN_OP_compare && is_one_integer(&tn_operand(op, 0)->type)) {
        shape_compare(s, op);
        return;
    }
    tn_dim d = is_one_integer(&op->result[0].type) ? within(dim_of(s, op), op->result[0].type.dtype) : NULL;
    if (s->session->errors != errors) { /* too large an expression: it stays a value */
        s->session->errors = errors;
        s->session->diags.len = ndiags;
        return;
    }
    if (!d)
        return;
    if (op->result[0].type.rank > 0 || is_plain(op)) {
        *tn_map_at(&s->dims, TN_KEY(&op->result[0])) = (void *)d;
        return;
    }
    tn_builder b = tn_builder_before(op);
    tn_value *to = tn_dim_is_const(d) ? tn_int_constant(&b, op->result[0].type.dtype, d->value)
                                      : tn_convert(&b, tn_dimension(&b, d), op->result[0].type.dtype);
    *tn_map_at(&s->dims, TN_KEY(to)) = (void *)d;
    replace_scalar(s, op, to);
}

/* ---- symbols ------------------------------------------------------------------------------------------------------
 */

static tn_dim replacement(void *context, tn_dim symbol)
{
    tn_dim to = tn_map_get(&((shaper *)context)->to, TN_KEY(symbol));
    return to ? to : symbol;
}

static tn_dim substituted(shaper *s, tn_dim d)
{
    return s->to.len ? tn_dim_subst(s->session, d, replacement, s) : d;
}

typedef struct symbol_search {
    tn_dim wanted;
    bool found;
} symbol_search;

static void mark_found(void *context, tn_dim symbol)
{
    symbol_search *search = context;
    search->found |= search->wanted == symbol;
}

static bool mentions(tn_dim d, tn_dim symbol)
{
    symbol_search search = {symbol, false};
    tn_dim_symbols(d, mark_found, &search);
    return search.found;
}

/* All that is declared of `symbol` holds for d by itself. */
static bool implies_facts(tn_dim d, tn_dim symbol)
{
    return d->lo >= symbol->lo && d->hi <= symbol->hi && (symbol->multiple <= 1 || d->multiple % symbol->multiple == 0);
}

static void put_in_place(shaper *s, tn_dim symbol, tn_dim d)
{
    *tn_map_at(&s->to, TN_KEY(symbol)) = (void *)d;
    for (size_t i = 0; i < s->to.len; i++) {
        uint64_t key = tn_map_key(&s->to, i);
        *tn_map_at(&s->to, key) = (void *)substituted(s, tn_map_value(&s->to, i));
    }
    s->changed = true;
}

static bool may_replace(shaper *s, tn_dim symbol, tn_dim d)
{
    return symbol->kind == TN_DIM_SYMBOL && !tn_map_get(&s->born, TN_KEY(symbol)) &&
           (tn_dim_is_const(d) || d->kind == TN_DIM_SYMBOL) && !tn_map_get(&s->born, TN_KEY(d)) &&
           implies_facts(d, symbol);
}

/* Of two symbols the later one goes, if it may. */
static void use_fact(shaper *s, tn_dim a, tn_dim b)
{
    tn_dim later = a->id > b->id ? a : b, earlier = later == a ? b : a;
    if (may_replace(s, later, earlier))
        put_in_place(s, later, earlier);
    else if (may_replace(s, earlier, later))
        put_in_place(s, earlier, later);
}

static tn_status contradiction(shaper *s, const struct tn_dim_equal *fact, tn_dim a, tn_dim b)
{
    tn_text text = {.arena = &s->session->arena};
    tn_text_add(&text, "sizes ");
    tn_text_dim(&text, fact->a);
    tn_text_add(&text, " and ");
    tn_text_dim(&text, fact->b);
    tn_text_add(&text, " must be equal, but other operations make them ");
    tn_text_dim(&text, a);
    tn_text_add(&text, " and ");
    tn_text_dim(&text, b);
    return tn_error(s->session, TN_INVALID, fact->loc, "%s", text.at);
}

static tn_status use_facts(shaper *s)
{
    for (size_t i = 0; i < s->graph->equal.len; i++) {
        const struct tn_dim_equal *fact = &s->graph->equal.at[i];
        tn_dim a = substituted(s, fact->a), b = substituted(s, fact->b);
        if (tn_dim_ne(s->session, a, b))
            return contradiction(s, fact, a, b);
        if (!tn_dim_eq(s->session, a, b))
            use_fact(s, a, b);
    }
    return TN_OK;
}

/* ---- births -------------------------------------------------------------------------------------------------------
 */

static void collect_born(shaper *s, const tn_block *block)
{
    for (const tn_op *op = block->first; op; op = op->next) {
        if (op->code == TN_OP_define_dimension)
            *tn_map_at(&s->born, TN_KEY(tn_find_attr(op, TN_A_dim)->dim)) = (void *)op;
        for (int i = 0; i < op->nregions; i++)
            collect_born(s, op->region[i]);
    }
}

/* The symbol's value is a size known without running: then it needs no birth. */
static void shape_birth(shaper *s, tn_op *op)
{
    tn_dim symbol = tn_find_attr(op, TN_A_dim)->dim, d = known(s, tn_operand(op, 0));
    const tn_attr *upper = tn_find_attr(op, TN_A_upper);
    d = d ? substituted(s, d) : NULL;
    if (!d || mentions(d, symbol) || !implies_facts(d, symbol) ||
        (upper && !tn_dim_le(s->session, d, substituted(s, upper->dim))))
        return;
    put_in_place(s, symbol, d);
    tn_erase(op);
}

static void shape_block(shaper *s, tn_block *block)
{
    for (tn_op *op = block->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->nregions; i++)
            if (tn_op_traits(op->code) & TN_CONTROL)
                shape_block(s, op->region[i]);
        if (op->code == TN_OP_define_dimension)
            shape_birth(s, op);
        else
            shape_op(s, op);
    }
}

/* ---- the new sizes everywhere ---------------------------------------------------------------------------------- */

static void rewrite_type(shaper *s, tn_type *type)
{
    for (int i = 0; i < type->rank; i++)
        type->dim[i] = substituted(s, type->dim[i]);
}

static void rewrite_attr(shaper *s, tn_attr *attr)
{
    tn_attr_kind kind = tn_attr_kind_of(attr->name);
    if (kind == TN_ATTR_DIM)
        attr->dim = substituted(s, attr->dim);
    if (kind != TN_ATTR_DIMS || attr->n == 0)
        return;
    tn_dim *dims = tn_memdup(&s->session->arena, attr->dims, (size_t)attr->n * sizeof *dims);
    for (int i = 0; i < attr->n; i++)
        dims[i] = substituted(s, dims[i]);
    attr->dims = dims;
}

static void rewrite_block(shaper *s, tn_block *block)
{
    for (int i = 0; i < block->nargs; i++)
        rewrite_type(s, &block->arg[i]->type);
    for (tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nresults; i++)
            rewrite_type(s, &op->result[i].type);
        for (int i = 0; i < op->nattrs; i++)
            rewrite_attr(s, &op->attr[i]);
        for (int i = 0; i < op->nregions; i++)
            rewrite_block(s, op->region[i]);
    }
}

/* Facts that now hold by themselves go. */
static void rewrite_facts(shaper *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->graph->equal.len; i++) {
        struct tn_dim_equal fact = s->graph->equal.at[i];
        fact.a = substituted(s, fact.a);
        fact.b = substituted(s, fact.b);
        if (!tn_dim_eq(s->session, fact.a, fact.b))
            s->graph->equal.at[kept++] = fact;
    }
    s->graph->equal.len = kept;
}

/* A size that became known may make a `dimension` a constant, and comparisons known: once more, until nothing moves. */
tn_status opt_shapes(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    enum { ROUNDS = 8 };
    (void)options;
    for (int round = 0; round < ROUNDS; round++) {
        tn_arena *arena = &graph->session->arena;
        shaper s = {.session = graph->session, .graph = graph};
        s.dims.arena = s.to.arena = s.born.arena = arena;
        collect_born(&s, graph->body);
        shape_block(&s, graph->body);
        TN_TRY(use_facts(&s));
        if (s.to.len)
            rewrite_block(&s, graph->body);
        rewrite_facts(&s);
        if (!s.changed)
            break;
        *changed = true;
    }
    return TN_OK;
}
