/* How long a kernel takes, roughly: enough to tell two microseconds from twenty. */
#include "run/run.h"

/* Nanoseconds for one element, on a core of about 3 GHz with vectors of eight floats. */
static const double element_ns = 0.05, function_ns = 0.3, product_ns = 0.02, indexed_ns = 0.5;

typedef struct estimate {
    const tn_values *values;
    double ns;
} estimate;

static double elements(const tn_ttype *type)
{
    double n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= (double)tn_max(type->extent[i].size, 1);
    return n;
}

static double scalar_value(const estimate *e, const tn_tvalue *v, double otherwise)
{
    int64_t value;
    if (v->def && v->def->code == TN_T_const && v->type.rank == 0)
        return (double)v->def->number.i;
    return v->def && v->def->code == TN_T_size && tn_values_eval(e->values, v->def->dim, &value) ? (double)value : otherwise;
}

/* A count of trips may be a fraction: half a tile is half the work. */
static double trips(const estimate *e, const tn_top *op)
{
    if (op->code == TN_T_for) {
        double span = scalar_value(e, op->operand[1], 1) - scalar_value(e, op->operand[0], 0), step = scalar_value(e, op->operand[2], 1);
        return step > 0 && span > 0 ? span / step : 1;
    }
    double n = 1;
    for (int i = 0; i < op->nranges; i++)
        n *= scalar_value(e, op->operand[i], 1) / (double)tn_max(op->step[i].size, 1);
    return n;
}

static double op_ns(const tn_top *op)
{
    double n = op->nresults ? elements(&op->result[0].type) : 0;
    if (op->code == TN_T_dot)
        return n * (double)tn_max(op->operand[0]->type.extent[op->operand[0]->type.rank - 1].size, 1) * product_ns;
    if (op->code == TN_T_store)
        return elements(&op->operand[0]->type) * element_ns;
    if (op->code == TN_T_map)
        return n * (tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP ? element_ns : function_ns);
    if (op->code == TN_T_load)
        for (int d = 0; d < op->view->rank; d++)
            if (!op->subscript[d].block && op->subscript[d].naxes)
                return n * indexed_ns;
    return op->code == TN_T_load || op->code == TN_T_reduce || op->code == TN_T_scan || op->code == TN_T_sort ? n * element_ns : 0;
}

static void add_block(estimate *e, const tn_tblock *block, double times)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        e->ns += op_ns(op) * times;
        if (op->code == TN_T_reduce || op->code == TN_T_scan || op->code == TN_T_sort)
            continue; /* their regions combine single elements */
        for (int r = 0; r < op->nregions && !(op->code == TN_T_fold && r == 1); r++)
            add_block(e, op->region[r], op->code == TN_T_fold || op->code == TN_T_for ? times * trips(e, op) : times);
    }
}

double tn_kernel_work(const tn_kernel *kernel, const tn_values *values)
{
    estimate e = {.values = values};
    double programs = 1;
    for (size_t i = 0; i < kernel->grid.len; i++) {
        int64_t limit = 1;
        tn_values_eval(values, kernel->grid.at[i].limit, &limit);
        programs *= (double)limit / (double)tn_max(kernel->grid.at[i].step.size, 1);
    }
    add_block(&e, kernel->body, programs);
    return e.ns;
}
