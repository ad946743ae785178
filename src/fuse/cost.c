/* What a group takes, and what a kernel for each of its operations would, in one model: each stored element that is read or written once at memory's rate, each element of
 * an operation, as often as it is computed, at its own, and a start for each kernel. Memory and arithmetic are added up: the sum orders forms of one computation even where
 * they overlap. Sizes that are not known stand for ordinary ones. Only ratios matter, so a machine is a few round numbers. */
#include "fuse/internal.h"

enum { SIZE = 256, COSTLY = 12, DIVISION = 4 };

typedef struct rates {
    double bytes, lanes, start; /* bytes a ns, cheap operations of 4 bytes a ns; ns */
} rates;

static rates rates_of(const fuser *F)
{
    const tn_tile_target *t = &F->options->target;
    if (t->gpu)
        return (rates){25.0 * tn_max(t->wave, 1), 200.0 * tn_max(t->wave, 1), 2000};
    return (rates){8.0 + 4.0 * tn_max(t->threads, 1), 2.5 * tn_max(t->vector_bits / 32, 1) * tn_max(t->threads, 1), 1000};
}

static bool ordinary(void *context, const char *symbol, int64_t *value)
{
    (void)context, (void)symbol;
    *value = SIZE;
    return true;
}

static double size_of(tn_dim d)
{
    int64_t n;
    return tn_dim_eval(d, ordinary, NULL, &n) ? (double)tn_max(n, 0) : SIZE;
}

static double elements_of(const tn_type *type)
{
    double n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= size_of(type->dim[i]);
    return n;
}

static double bytes_of(const tn_type *type) { return (double)tn_max(tn_dtype_bits(type->dtype), 8) / 8; }

/* A view, or what follows from where an element lies: a kernel of its own only where its result is stored. */
static bool costs_nothing(const tn_op *op) { return op_is_view(op) || op->noperands == 0; }

/* Of an element, in cheap operations of 4 bytes. */
static double work_of(const tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    if (costs_nothing(op))
        return 0;
    double units = fn == TN_SCALAR_NONE || (tn_scalar_traits(fn) & TN_SCALAR_CHEAP) ? 1 : fn == TN_S_div || fn == TN_S_rem ? DIVISION : COSTLY;
    return units * tn_max(bytes_of(&op->result->type), 4) / 4;
}

static bool contracts(const tn_op *op) { return (tn_op_traits(op->code) & TN_CONTRACTS) && op->nresults == 1; }

/* Multiply-adds of an element of the result: a vector's in one operation. */
static double depth_of(const tn_op *op)
{
    const tn_type *right = &tn_operand(op, 1)->type;
    double depth = 1;
    const tn_attr *layout = tn_find_attr(op, TN_A_rhs_layout);
    if (layout) { /* a convolution: all of a weight but the features that it gives */
        for (int i = 0; i < right->rank; i++)
            depth *= layout->s[i] == 'o' ? 1 : size_of(right->dim[i]);
        return depth;
    }
    int n;
    const int64_t *contract = tn_attr_ints(op, TN_A_rhs_contract, &n);
    for (int i = 0; i < n; i++)
        depth *= size_of(right->dim[contract[i]]);
    return depth;
}

/* How many places the map names: those of the dims that move it. */
static double places_of(const group *g, const fmap *m)
{
    double n = 1;
    for (int j = 0; j < g->ndims; j++) {
        double size = size_of(g->dim[j].extent);
        n *= map_uses(m, j) || size == 0 ? size : 1;
    }
    return n;
}

/* Elements of what is stored at l that are read at the map. */
static double read_at(fuser *F, const group *g, const location *l, const fmap *m)
{
    return tn_min(places_of(g, m), elements_of(&F->program->buffers.at[l->buffer].type));
}

/* ---- apart --------------------------------------------------------------------------------------------------------------- */

/* Elements of operand i that a kernel for d's operation alone reads: what this one reads, if it is stored; through the group's views, the fewest on the way. */
static double read_apart(fuser *F, const demand *d, int i)
{
    const tn_value *v = tn_operand(d->op, i);
    double least = elements_of(&v->type);
    for (;;) {
        if (fuse_single_constant(v))
            return 0;
        if (!d->arg[i])
            return (d->argmap[i] ? read_at(F, d->group, fuse_location(F, v), d->argmap[i]) : least) * bytes_of(&v->type);
        d = d->arg[i];
        if (!costs_nothing(d->op))
            return least * bytes_of(&v->type);
        if (!op_is_view(d->op))
            return 0;
        i = 0;
        v = tn_operand(d->op, 0);
        least = tn_min(least, elements_of(&v->type));
    }
}

static double alone_ns(fuser *F, const demand *d)
{
    const tn_op *op = d->op;
    rates r = rates_of(F);
    double bytes = 0, work = 0;
    for (int i = 0; i < op->noperands; i++)
        bytes += read_apart(F, d, i);
    for (int i = 0; i < op->nresults; i++) {
        bytes += elements_of(&op->result[i].type) * bytes_of(&op->result[i].type);
        work += elements_of(&op->result[i].type) * (contracts(op) ? depth_of(op) : work_of(op));
    }
    if (op_is_reduce(op))
        work += elements_of(&tn_operand(op, 0)->type) * tn_max(bytes_of(&tn_operand(op, 0)->type), 4) / 4;
    return r.start + bytes / r.bytes + work / r.lanes;
}

double fuse_apart_ns(fuser *F, const group *g)
{
    double ns = 0;
    for (size_t i = 0; i < g->demands.len; i++) {
        bool known = false;
        for (size_t k = 0; k < i && !known; k++)
            known = g->demands.at[k]->op == g->demands.at[i]->op;
        ns += known || (i && costs_nothing(g->demands.at[i]->op)) ? 0 : alone_ns(F, g->demands.at[i]);
    }
    return ns;
}

/* ---- together ------------------------------------------------------------------------------------------------------------- */

typedef struct traffic {
    const group *g;
    double bytes;
    const location *seen[FUSE_ARGS];
    int n;
} traffic;

/* Each stored value once, however often the kernel comes back to it: then it is in a cache. */
static void see(void *context, fuser *F, const location *l, const fmap *m, bool store)
{
    traffic *t = context;
    (void)store;
    for (int i = 0; i < t->n; i++)
        if (t->seen[i]->buffer == l->buffer && t->seen[i]->offset == l->offset)
            return;
    if (t->n < FUSE_ARGS)
        t->seen[t->n++] = l;
    t->bytes += read_at(F, t->g, l, m) * bytes_of(&F->program->buffers.at[l->buffer].type);
}

static bool computes_row(const group *g, const demand *d)
{
    for (int j = 0; j < g->ndims; j++)
        if (g->dim[j].fold && map_uses(d->map, j))
            return false;
    return true;
}

double fuse_together_ns(fuser *F, group *g)
{
    rates r = rates_of(F);
    traffic t = {.g = g};
    double work = 0, sweeps = g->full_root;
    fuse_visit_accesses(F, g, see, &t);
    for (size_t i = 0; i < g->demands.len; i++)
        sweeps += g->kind == GROUP_FOLD && op_is_reduce(g->demands.at[i]->op);
    for (size_t i = 0; i < g->demands.len; i++) {
        const demand *d = g->demands.at[i];
        double n = places_of(g, d->map), again = g->kind == GROUP_FOLD && !computes_row(g, d) && work_of(d->op) < COSTLY ? tn_max(sweeps, 1) : 1;
        work += contracts(d->op) ? n * depth_of(d->op) : n * again * work_of(d->op);
        if (op_is_reduce(d->op))
            work += elements_of(&tn_operand(d->op, 0)->type) * tn_max(bytes_of(&tn_operand(d->op, 0)->type), 4) / 4;
    }
    return r.start + t.bytes / r.bytes + work / r.lanes;
}

bool fuse_repeats_for_less(const fuser *F, const group *g, const tn_op *op)
{
    rates r = rates_of(F);
    double taps = 1, work = work_of(op), n = elements_of(&op->result->type);
    for (int j = 0; j < g->ndims; j++)
        taps *= size_of(g->dim[j].extent);
    for (size_t i = 0; i < g->demands.len; i++)
        work += g->demands.at[i]->map->repeated ? work_of(g->demands.at[i]->op) : 0;
    return taps * work / r.lanes <= r.start + n * (2 * bytes_of(&op->result->type) / r.bytes + work / r.lanes);
}

bool fuse_dequantises_for_less(const fuser *F, const tn_op *dot, const tn_value *from, int operations)
{
    rates r = rates_of(F);
    double elements = elements_of(&from->type), narrow = (double)tn_max(tn_dtype_bits(from->type.dtype), 8) / 8;
    double rows = elements_of(&dot->result->type) * depth_of(dot) / tn_max(elements, 1);
    if (tn_type_is_static(&dot->result->type) && rows > F->options->target.dot_rows) /* a panel of them would be written and read again, which takes as long as memory that nobody waits for */
        return false;
    return operations / r.lanes <= (bytes_of(&dot->result->type) - narrow) / r.bytes;
}
