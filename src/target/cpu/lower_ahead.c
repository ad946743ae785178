/* Rows asked for early, on CPUs.
 *
 * A kernel whose program reads a row, works on it in the cache, and writes a row leaves memory idle while it works: its next row is asked for only when the
 * next program starts. So the second nest that reads a row asks for the same elements of the row that the next program will read: the row's address as a
 * function of the innermost grid coordinate says how far that is. The same for the next iteration of a loop over rows. The schedule's `prefetch` of a load
 * says it outright. */
#include "target/cpu/lower.h"

enum { LEAST_BYTES = 1 << 10 };

/* What v grows by when coordinate g grows by one, for all its elements alike; NULL: not known. */
static tn_lvalue *growth(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_tvalue *g, int depth);

static bool is_zero(const tn_lvalue *v)
{
    int64_t value;
    return v && tn_l_is_const(v, &value) && value == 0;
}

static const tn_tvalue *scalar_of(const tn_tvalue *v)
{
    while (v->type.rank && v->def && v->def->code == TN_T_broadcast)
        v = v->def->operand[0];
    return v->type.rank ? NULL : v;
}

static tn_lvalue *growth_of_map(lower *L, tn_lbuilder *b, const tn_top *op, const tn_tvalue *g, int depth)
{
    tn_lvalue *x[3] = {NULL, NULL, NULL};
    bool zero = true, known = op->noperands > 0;
    for (int i = 0; i < op->noperands; i++) {
        x[i] = growth(L, b, op->operand[i], g, depth);
        known &= x[i] != NULL;
        zero &= is_zero(x[i]);
    }
    if (!known || zero)
        return known ? x[0] : NULL;
    if (op->code == TN_T_addptr || op->fn == TN_S_add || op->fn == TN_S_sub)
        return tn_l_fn2(b, op->code == TN_T_map && op->fn == TN_S_sub ? TN_S_sub : TN_S_add, x[0], x[1]);
    int constant = is_zero(x[0]) ? 0 : 1;
    const tn_tvalue *factor = op->fn == TN_S_mul && is_zero(x[constant]) ? scalar_of(op->operand[constant]) : NULL;
    return factor ? tn_l_fn2(b, TN_S_mul, x[1 - constant], tn_l_cast(b, lower_scalar(L, b, factor), TN_I64)) : NULL;
}

static tn_lvalue *growth(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_tvalue *g, int depth)
{
    const tn_top *op = v->def;
    if (v == g)
        return tn_l_index(b, 1);
    if (!op) { /* parameters, coordinates, positions of loops; not what loops carry */
        const tn_top *parent = v->block ? v->block->parent : NULL;
        return !parent || parent->code == TN_T_fold || (parent->code == TN_T_for && v == v->block->arg) ? tn_l_index(b, 0) : NULL;
    }
    if (depth == 0)
        return NULL;
    switch (op->code) {
    case TN_T_const:
    case TN_T_size:
        return tn_l_index(b, 0);
    case TN_T_range:
    case TN_T_broadcast:
    case TN_T_reshape:
    case TN_T_permute:
    case TN_T_assume:
        return growth(L, b, op->operand[0], g, depth - 1);
    case TN_T_cast:
        return tn_is_integer(v->type.dtype) && tn_is_integer(op->operand[0]->type.dtype) ? growth(L, b, op->operand[0], g, depth - 1) : NULL;
    case TN_T_addptr:
    case TN_T_map:
        return growth_of_map(L, b, op, g, depth - 1);
    default:
        return NULL;
    }
}

/* By how many elements of the buffer the load moves with the coordinate; NULL: not known, or not at all. */
static tn_lvalue *load_growth(lower *L, tn_lbuilder *b, const tn_top *op, const tn_tvalue *g)
{
    enum { DEPTH = 12 };
    tn_lvalue *sum = tn_l_index(b, 0);
    if (op->code == TN_T_load_ptr) {
        sum = growth(L, b, op->operand[0], g, DEPTH);
        return sum && !is_zero(sum) ? sum : NULL;
    }
    for (int d = 0; d < op->view->rank; d++) {
        tn_lvalue *by = growth(L, b, op->subscript[d].value, g, DEPTH);
        if (!by)
            return NULL;
        sum = tn_l_fn2(b, TN_S_add, sum, tn_l_fn2(b, TN_S_mul, by, lower_dim(L, op->view->stride[d])));
    }
    return is_zero(sum) ? NULL : sum;
}

/* Is this the second nest of the program that reads the load's tile, a row that waits in the cache? */
static bool is_read_again(lower *L, const tn_top *op)
{
    const tn_ttype *type = &op->result->type;
    int64_t bytes = tn_dtype_bits(type->dtype) / 8;
    for (int i = 0; i < type->rank; i++)
        bytes *= type->extent[i].size;
    if (bytes < LEAST_BYTES || bytes > L->machine->l2_bytes / 2 || (op->view && op->view->panel))
        return false;
    void **cell = tn_map_at(&CPU(L)->readers, TN_KEY(op));
    if (!*cell)
        *cell = TN_NEW(&L->arena, readers);
    readers *r = *cell;
    if (r->last != CPU(L)->nest) {
        r->last = CPU(L)->nest;
        r->n++;
    }
    return r->n == 2;
}

void lower_prefetch_ahead(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue *buffer, tn_lvalue *offset)
{
    const tn_trange *innermost = L->kernel->grid.len ? &L->kernel->grid.at[L->kernel->grid.len - 1] : NULL;
    const tn_top *loop = op->block->parent && op->block->parent->code == TN_T_for ? op->block->parent : NULL;
    int64_t ahead = op->label ? tn_schedule_get(&L->kernel->schedule, op->label, "prefetch", -1) : -1;
    int64_t named = op->label ? tn_schedule_get(&L->kernel->schedule, op->label, "prefetch-buffer", -1) : -1;
    const tn_tvalue *walks = innermost ? innermost->value : NULL;
    tn_lvalue *step = innermost ? tn_l_index(b, innermost->step.size) : NULL;
    if (ahead < 0 && is_read_again(L, op)) {
        ahead = 1;
        if (loop) {
            walks = &loop->region[0]->arg[0];
            step = tn_l_cast(b, lower_scalar(L, b, loop->operand[2]), TN_I64);
        } else if (op->block != L->kernel->body) {
            return;
        }
    }
    tn_lvalue *by = ahead < 0 || !walks ? NULL : load_growth(L, b, op, walks);
    if (by)
        tn_l_prefetch(b, named >= 0 ? L->buffer[named] : buffer,
                      tn_l_fn2(b, TN_S_add, offset, tn_l_fn2(b, TN_S_mul, by, tn_l_fn2(b, TN_S_mul, step, tn_l_index(b, ahead)))), 2);
}
