/* Values that are kept, on CPUs.
 *
 * A tile is an expression, computed wherever a nest needs it. A user's kernel uses one in several: softmax reads its row, takes the maximum, sums
 * exp(x - max), stores exp(x - max) / sum. What is dearer to compute again than to read (a function of many instructions, a division, a gathered load) and used
 * by more than one nest, or in a loop from outside of it, is written to a place by the first nest that computes all of it, or by a nest of its own before
 * that, and read by the later ones. The key `keep` of a schedule forces or forbids it.
 *
 * Which elements exist is asked of the expression again: comparisons of bounds are cheap, and the bounds of a nest answer most of them. So elements that a
 * nest's bounds left out need no value. */
#include "target/cpu/lower.h"

enum {
    DEAR = 12,             /* what is worth keeping, in instructions or so */
    DEAR_IN_LOOP = 6,      /* the same, where a loop from outside would compute it each time */
    DEAR_FOR_PRODUCT = 2,  /* the same, of a product's operand, which is copied each time if it is any expression at all */
    VERY_DEAR = 20,        /* what may spill out of the cache */
    BUDGET = 256,          /* values that a search looks at */
};

/* ---- what one costs ------------------------------------------------------------------------------------------------------------------ */

static int cost_of_map(const tn_top *op)
{
    tn_dtype dtype = op->operand[op->noperands - 1]->type.dtype;
    int cost = tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP ? 1 : 20;
    if (op->fn == TN_S_div)
        cost = tn_is_float(dtype) ? DEAR : 20;
    return tn_dtype_bits(dtype) > 32 ? 2 * cost : cost;
}

/* Neighbours along the last axis that is longer than 1 are neighbours in memory, or one element. */
static int cost_of_load(const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    int last = type->rank - 1, cost = 1;
    while (last > 0 && type->extent[last].size == 1)
        last--;
    for (int d = 0; d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        for (int i = 0; i < (s->block ? 1 : s->naxes); i++)
            if (s->axis[i] == last && !(s->block && (tn_dim_is(op->view->stride[d], 1) || tn_dim_is(op->view->stride[d], 0))))
                cost = DEAR;
    }
    return cost + op->view->nguards;
}

static int own_cost(const tn_top *op)
{
    switch (op->code) {
    case TN_T_map:
        return cost_of_map(op);
    case TN_T_cast:
        return tn_is_f8(op->operand[0]->type.dtype) || tn_is_f8(op->result->type.dtype) ? 10 : 1;
    case TN_T_load:
        return cost_of_load(op);
    case TN_T_load_ptr:
        return 2;
    case TN_T_gather:
        return 8;
    case TN_T_join:
    case TN_T_cat:
        return 3;
    case TN_T_asm:
        return 20;
    default:
        return 0;
    }
}

static int cost_of(const lower *L, const tn_tvalue *v, tn_axis_search *search)
{
    const tn_top *op = v->def;
    if (v->type.rank == 0 || !op || !lower_is_expression(op) || tn_map_get(&L->places, TN_KEY(v)))
        return v->type.rank > 0 && op && !lower_is_expression(op);
    if (!tn_axis_search_enter(search, v, 0))
        return 0;
    int cost = own_cost(op);
    for (int i = 0; i < op->noperands; i++)
        cost += cost_of(L, op->operand[i], search);
    for (int d = 0; op->view && d < op->view->rank; d++)
        cost += cost_of(L, op->subscript[d].value, search);
    return cost;
}

bool lower_is_dear(const lower *L, const tn_tvalue *v)
{
    tn_axis_search search;
    search.n = 0;
    return cost_of(L, v, &search) >= VERY_DEAR;
}

/* ---- who uses what ---------------------------------------------------------------------------------------------------------------------- */

typedef struct usage {
    uint64_t sinks; /* a bit an operation that makes a nest of it, in order; the last one stands for all from there on */
    bool many;      /* one of them is a loop, and the value comes from outside */
    bool product;   /* of a product in that loop */
} usage;

typedef struct survey {
    lower *L;
    tn_map usage;
    const tn_top *sink[64];
    int n;
} survey;

static usage *usage_of(survey *s, const tn_tvalue *v)
{
    void **cell = tn_map_at(&s->usage, TN_KEY(v));
    if (!*cell)
        *cell = TN_NEW(&s->L->arena, usage);
    return *cell;
}

static void use(survey *s, const tn_tvalue *v, usage by)
{
    usage *u = usage_of(s, v);
    u->sinks |= by.sinks;
    u->many |= by.many;
    u->product |= by.product;
}

static void use_operands(survey *s, const tn_top *op, usage by)
{
    for (int i = 0; i < op->noperands; i++)
        use(s, op->operand[i], by);
    for (int d = 0; op->view && d < op->view->rank; d++)
        use(s, op->subscript[d].value, by);
}

static void use_region(survey *s, const tn_tblock *block, usage by)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        by.product = by.many && op->code == TN_T_dot;
        use_operands(s, op, by);
        for (int r = 0; r < op->nregions; r++)
            use_region(s, op->region[r], by);
    }
}

static int64_t bytes_of(const tn_ttype *type)
{
    int64_t bytes = tn_max(tn_dtype_bits(type->dtype) / 8, 1);
    for (int i = 0; i < type->rank; i++)
        if (!tn_mul(bytes, type->extent[i].size, &bytes))
            return INT64_MAX;
    return bytes;
}

/* v is made element by element of a product, which may wait for the one nest that uses v. */
static bool ends_product(const tn_tvalue *v, int *budget)
{
    if (!v->def || !lower_is_elementwise(v->def))
        return v->def && (v->def->code == TN_T_dot || v->def->code == TN_T_fold);
    for (int i = 0; i < v->def->noperands; i++)
        if (--*budget <= 0 || ends_product(v->def->operand[i], budget))
            return true;
    return false;
}

static bool is_worth_keeping(const lower *L, const tn_tvalue *v, const usage *u)
{
    tn_axis_search search;
    search.n = 0;
    int64_t forced = v->def->label ? tn_schedule_get(&L->kernel->schedule, v->def->label, "keep", -1) : -1;
    bool again = u->many || (u->sinks & (u->sinks - 1));
    int budget = BUDGET;
    if (forced >= 0)
        return forced && u->sinks && (again || !ends_product(v, &budget));
    if (v->type.rank == 0 || !again || v->type.pointer || tn_dtype_bits(v->type.dtype) < 8)
        return false;
    int cost = cost_of(L, v, &search), least = !u->many ? DEAR : u->product ? DEAR_FOR_PRODUCT : DEAR_IN_LOOP;
    return cost >= least && bytes_of(&v->type) <= L->machine->l2_bytes * (cost >= VERY_DEAR ? 8 : 1);
}

static const tn_tvalue *only_moved(const tn_top *op) /* moving is free: what is moved is kept */
{
    switch (op->code) {
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_reshape:
    case TN_T_slice:
    case TN_T_assume:
    case TN_T_split:
        return op->operand[0];
    default:
        return NULL;
    }
}

static void add_sink(survey *s, const tn_top *op)
{
    usage by = {.sinks = UINT64_C(1) << (s->n < 63 ? s->n : 63)};
    if (s->n < 64)
        s->sink[s->n++] = op;
    if (op->code == TN_T_yield) { /* each value that is carried has its nest */
        for (int i = 0; i < op->noperands; i++) {
            use(s, op->operand[i], by);
            by.sinks = UINT64_C(1) << (s->n < 63 ? s->n : 63);
            if (s->n < 64)
                s->sink[s->n++] = op;
        }
        return;
    }
    use_operands(s, op, by);
    by.many = op->code == TN_T_for || op->code == TN_T_while;
    for (int r = 0; r < op->nregions; r++)
        if (op->code != TN_T_reduce && op->code != TN_T_scan && op->code != TN_T_sort)
            use_region(s, op->region[r], by);
}

void lower_survey(lower *L, const tn_tblock *block)
{
    survey s = {.L = L, .usage = {.arena = &L->arena}};
    for (const tn_top *op = block->first; op; op = op->next)
        if (!lower_is_expression(op) || op->code == TN_T_gather) /* the source of a gather is put into memory */
            add_sink(&s, op);
    for (const tn_top *op = block->last; op; op = op->prev) {
        if (!lower_is_expression(op))
            continue;
        usage by = {0, false, false};
        for (int i = 0; i < op->nresults; i++) {
            const usage *u = usage_of(&s, &op->result[i]);
            by.sinks |= u->sinks;
            by.many |= u->many;
            by.product |= u->product;
        }
        if (op->nresults == 1 && by.sinks && !only_moved(op) && is_worth_keeping(L, op->result, &by)) {
            int first = 0;
            while (!(by.sinks >> first & 1))
                first++;
            TN_PUSH(&L->arena, &CPU(L)->kept, ((kept){op->result, s.sink[first], NULL}));
            by = (usage){UINT64_C(1) << first, false, false};
        }
        if (by.sinks)
            use_operands(&s, op, by);
    }
}

/* ---- filling ------------------------------------------------------------------------------------------------------------------------------- */

/* v is computed at the nest's own index wherever `from` is. */
static bool reaches(const tn_tvalue *from, const tn_tvalue *v, int *budget)
{
    if (from == v)
        return true;
    if (!from->def || !lower_is_elementwise(from->def))
        return false;
    for (int i = 0; i < from->def->noperands; i++)
        if (--*budget > 0 && reaches(from->def->operand[i], v, budget))
            return true;
    return false;
}

bool lower_fills(lower *L, const tn_tvalue *from, const tn_tvalue *v, const axis_bound *nest)
{
    int budget = BUDGET;
    if (from->type.rank != v->type.rank || !reaches(from, v, &budget))
        return false;
    for (int a = 0; a < v->type.rank; a++) { /* what the nest does not reach does not exist */
        axis_bound own = lower_value_bound(L, v, a);
        if (nest[a].start && !(own.start == nest[a].start && tn_dim_le(L->session, own.limit, nest[a].limit)))
            return false;
    }
    return true;
}

void lower_fill(lower *L, tn_lbuilder *b, tn_lvalue *const *idx)
{
    for (size_t i = 0; i < CPU(L)->filling.len; i++) {
        kept *k = CPU(L)->filling.at[i];
        element e = lower_element(L, b, k->value, idx);
        tn_l_store(b, k->place->buffer, lower_place_offset(b, k->place, k->value->type.rank, idx), e.value, NULL);
    }
}

static void fill_alone(lower *L, tn_lbuilder *b, kept *k)
{
    const tn_tvalue *v = k->value;
    tn_lvalue *idx[TN_TILE_RANK];
    tn_lbuilder in = *b;
    scope s = lower_open(L);
    for (int i = 0; i < v->type.rank; i++) {
        axis_bound bound = lower_value_bound(L, v, i);
        idx[i] = lower_open_axis(L, &in, i, v->type.extent[i].size, &bound, i == v->type.rank - 1 ? TN_FOR_VECTOR : TN_FOR_SERIAL);
    }
    element e = lower_element(L, &in, v, idx);
    tn_l_store(&in, k->place->buffer, lower_place_offset(&in, k->place, v->type.rank, idx), e.value, NULL);
    lower_close(L, s);
    lower_set_place(L, v, k->place);
}

void lower_keep_before(lower *L, tn_lbuilder *b, const tn_top *op)
{
    CPU(L)->filling.len = 0;
    for (size_t i = CPU(L)->kept.len; i-- > 0;) { /* the survey went backwards */
        kept *k = &CPU(L)->kept.at[i];
        if (k->first != op)
            continue;
        k->place = lower_new_place(L, b, &k->value->type, "kept");
        k->place->kept = true;
        if (lower_nest_fills(L, op, k->value))
            TN_PUSH(&L->arena, &CPU(L)->filling, k);
        else
            fill_alone(L, b, k);
    }
}

void lower_keep_after(lower *L)
{
    for (size_t i = 0; i < CPU(L)->filling.len; i++)
        lower_set_place(L, CPU(L)->filling.at[i]->value, CPU(L)->filling.at[i]->place);
    CPU(L)->filling.len = 0;
}

/* ---- what is read when ---------------------------------------------------------------------------------------------------------------------- */

bool lower_keeps_marked(const lower *L, const tn_top *op, const tn_map *marked)
{
    for (size_t i = 0; i < CPU(L)->kept.len; i++)
        if (CPU(L)->kept.at[i].first == op && lower_depends_on(CPU(L)->kept.at[i].value->def, marked))
            return true;
    return false;
}

static bool reads_memory(const tn_tvalue *v, int *budget)
{
    const tn_top *op = v->def;
    if (!op || v->type.rank == 0) /* scalars were read where they stand */
        return false;
    if (--*budget <= 0 || !lower_is_expression(op) || lower_is_load(op))
        return true;
    for (int i = 0; i < op->noperands; i++)
        if (reads_memory(op->operand[i], budget))
            return true;
    return false;
}

/* Telling which elements of v exist reads memory: an index or a mask from there, or a choice by what is there. */
static bool presence_reads(const tn_tvalue *v, int *budget)
{
    const tn_top *op = v->def;
    if (!op || v->type.rank == 0)
        return false;
    if (--*budget <= 0)
        return true;
    for (int d = 0; op->view && d < op->view->rank; d++)
        if (reads_memory(op->subscript[d].value, budget))
            return true;
    if (op->code == TN_T_load_ptr || (op->code == TN_T_map && op->fn == TN_S_select)) {
        for (int i = 0; i < op->noperands; i++)
            if ((op->code == TN_T_load_ptr || i == 0) && reads_memory(op->operand[i], budget))
                return true;
    } else if (!lower_is_expression(op) || op->code == TN_T_gather) {
        return false; /* in a place of its own */
    }
    for (int i = 0; i < op->noperands; i++)
        if (presence_reads(op->operand[i], budget))
            return true;
    return false;
}

bool lower_keeps_all_of(const lower *L, const tn_top *op)
{
    int budget = BUDGET;
    for (size_t i = 0; i < CPU(L)->kept.len; i++)
        if (CPU(L)->kept.at[i].value == op->result)
            return !presence_reads(op->result, &budget);
    return false;
}

/* ---- which elements exist ---------------------------------------------------------------------------------------------------------------------- */
