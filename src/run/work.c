/* How long a kernel takes, roughly: enough to tell two microseconds from twenty. And what it reads and writes. */
#include <math.h>

#include "run/run.h"

/* Nanoseconds for one element, on a core of about 3 GHz with vectors of eight floats. */
static const double element_ns = 0.05, function_ns = 0.3, product_ns = 0.02, indexed_ns = 0.5, atomic_ns = 5;

typedef struct estimate {
    const tn_values *values; /* of a run of an executable; NULL: a user's kernel */
    const tn_kernel *kernel;
    bool (*bits)(void *context, const char *name, int64_t *out);
    void *context;
    double ns;
} estimate;

static double elements(const tn_ttype *type)
{
    double n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= (double)tn_max(type->extent[i].size, 1);
    return n;
}

/* ---- numbers of a user's kernel, as far as a launch gives them ---------------------------------------------------------------- */

static bool eval_dim(const estimate *e, tn_dim dim, int64_t *out)
{
    return e->values ? tn_values_eval(e->values, dim, out) : tn_dim_eval(dim, e->bits, e->context, out);
}

static bool eval_parameter(const estimate *e, const tn_tvalue *v, tn_number *out)
{
    int64_t n[2] = {0, 0};
    for (size_t i = 0; i < e->kernel->grid.len; i++)
        if (e->kernel->grid.at[i].value == v) { /* a program in the middle stands for all */
            bool known = eval_dim(e, e->kernel->grid.at[i].limit, &n[0]);
            *out = tn_number_from_int(TN_I64, n[0] / 2);
            return known;
        }
    if (v->block || v->type.pointer || !e->bits(e->context, v->name, n))
        return false;
    *out = tn_number_load(v->type.dtype, n, 0);
    return true;
}

static bool eval_scalar(const estimate *e, const tn_tvalue *v, int depth, tn_number *out)
{
    const tn_top *op = v->def;
    tn_number x[3];
    int64_t size;
    if (!op)
        return eval_parameter(e, v, out);
    if (v->type.rank || v->type.pointer || depth == 0)
        return false;
    if (op->code == TN_T_const)
        return *out = op->number, true;
    if (op->code == TN_T_size)
        return eval_dim(e, op->dim, &size) && (*out = tn_number_from_int(TN_I64, size), true);
    if ((op->code != TN_T_map && op->code != TN_T_cast) || op->noperands > 3)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!eval_scalar(e, op->operand[i], depth - 1, &x[i]))
            return false;
    tn_dtype dtype = op->operand[op->noperands - 1]->type.dtype;
    *out = op->code == TN_T_cast ? tn_number_convert(x[0], dtype, v->type.dtype) : tn_scalar_eval(op->fn, dtype, x);
    return true;
}

/* ---- operations ------------------------------------------------------------------------------------------------------------------ */

static double scalar_value(const estimate *e, const tn_tvalue *v, double otherwise)
{
    enum { DEPTH = 12 };
    int64_t value;
    tn_number number;
    if (v->def && v->def->code == TN_T_const && v->type.rank == 0)
        return (double)v->def->number.i;
    if (!e->values)
        return eval_scalar(e, v, DEPTH, &number) ? tn_number_to_double(v->type.dtype, number) : otherwise;
    return v->def && v->def->code == TN_T_size && tn_values_eval(e->values, v->def->dim, &value) ? (double)value : otherwise;
}

/* A count of trips may be a fraction: half a tile is half the work. */
static double trips(const estimate *e, const tn_top *op)
{
    enum { UNKNOWN_TRIPS = 8 };
    if (op->code == TN_T_while)
        return UNKNOWN_TRIPS;
    if (op->code == TN_T_for && !e->values) {
        double lo = scalar_value(e, op->operand[0], 0), step = scalar_value(e, op->operand[2], 1), hi = scalar_value(e, op->operand[1], lo + UNKNOWN_TRIPS * step);
        return step != 0 && (hi - lo) / step > 0 ? (hi - lo) / step : 0;
    }
    if (op->code == TN_T_for) {
        double span = scalar_value(e, op->operand[1], 1) - scalar_value(e, op->operand[0], 0), step = scalar_value(e, op->operand[2], 1);
        return step > 0 && span > 0 ? span / step : 1;
    }
    double n = 1;
    for (int i = 0; i < op->nranges; i++)
        n *= scalar_value(e, op->operand[i], 1) / (double)tn_max(op->step[i].size, 1);
    return n;
}

static double map_ns(const estimate *e, const tn_top *op, double n)
{
    if (!(tn_scalar_traits(op->fn) & TN_SCALAR_CHEAP))
        return n * function_ns;
    bool of_pointers = !e->values && (!tn_is_float(op->result->type.dtype) || op->result->type.pointer); /* that becomes a few numbers, if not a view */
    return of_pointers ? 0 : n * element_ns;
}

static double op_ns(const estimate *e, const tn_top *op)
{
    double n = op->nresults ? elements(&op->result[0].type) : 0;
    switch (op->code) {
    case TN_T_dot:
        return n * (double)tn_max(op->operand[0]->type.extent[op->operand[0]->type.rank - 1].size, 1) * product_ns;
    case TN_T_store:
    case TN_T_store_ptr:
        return elements(&op->operand[0]->type) * element_ns;
    case TN_T_map:
        return map_ns(e, op, n);
    case TN_T_load:
        for (int d = 0; d < op->view->rank; d++)
            if (!op->subscript[d].block && op->subscript[d].naxes)
                return n * indexed_ns;
        return n * element_ns;
    case TN_T_load_ptr:
    case TN_T_reduce:
    case TN_T_scan:
    case TN_T_sort:
        return n * element_ns;
    case TN_T_atomic:
    case TN_T_atomic_ptr:
    case TN_T_atomic_load:
    case TN_T_cas_ptr:
        return n * atomic_ns;
    case TN_T_gather:
    case TN_T_histogram:
        return elements(&op->operand[0]->type) * indexed_ns;
    default:
        return 0;
    }
}

static void add_block(estimate *e, const tn_tblock *block, double times)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        e->ns += op_ns(e, op) * times;
        if (op->code == TN_T_reduce || op->code == TN_T_scan || op->code == TN_T_sort)
            continue; /* their regions combine single elements */
        for (int r = 0; r < op->nregions && !(op->code == TN_T_fold && r == 1); r++)
            add_block(e, op->region[r], op->code == TN_T_fold || op->code == TN_T_for || op->code == TN_T_while ? times * trips(e, op) : times);
    }
}

/* A fraction too: what is left out at an edge is no work. least: of an axis. */
static double count_programs(const estimate *e, double least)
{
    double programs = 1;
    for (size_t i = 0; i < e->kernel->grid.len; i++) {
        int64_t limit = 1;
        eval_dim(e, e->kernel->grid.at[i].limit, &limit);
        programs *= fmax((double)limit / (double)tn_max(e->kernel->grid.at[i].step.size, 1), least);
    }
    return programs;
}

static double whole_kernel(estimate *e)
{
    add_block(e, e->kernel->body, count_programs(e, 0));
    return e->ns;
}

double tn_kernel_work(const tn_kernel *kernel, const tn_values *values)
{
    estimate e = {.kernel = kernel, .values = values};
    return whole_kernel(&e);
}

/* ---- what is read and written ----------------------------------------------------------------------------------------------------- */

/* Elements that a view's accesses name, each as often as it is named. Half a tile may still need a whole one of another operand. */
static void add_accesses(const estimate *e, const tn_tblock *block, double times, double *elements_of)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (op->code == TN_T_load || op->code == TN_T_atomic)
            elements_of[op->view->buffer] += elements(&op->result[0].type) * times;
        else if (op->code == TN_T_store)
            elements_of[op->view->buffer] += elements(&op->operand[0]->type) * times;
        for (int r = 0; r < op->nregions && !(op->code == TN_T_fold && r == 1); r++)
            add_accesses(e, op->region[r], op->code == TN_T_fold || op->code == TN_T_for || op->code == TN_T_while ? times * fmax(trips(e, op), 1) : times, elements_of);
    }
}

void tn_kernel_accesses(const tn_kernel *kernel, const tn_values *values, double *elements_of)
{
    estimate e = {.kernel = kernel, .values = values};
    for (size_t b = 0; b < kernel->buffers.len; b++)
        elements_of[b] = 0;
    add_accesses(&e, kernel->body, count_programs(&e, 1), elements_of);
}

double tn_user_kernel_work(const tn_kernel *kernel, bool (*bits)(void *context, const char *name, int64_t *out), void *context)
{
    estimate e = {.kernel = kernel, .bits = bits, .context = context};
    return whole_kernel(&e);
}
