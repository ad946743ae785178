/* The report of tn_explain: kernels with what they move and compute, and the memory plan. */
#include <math.h>
#include <string.h>

#include "api/report.h"

/* ---- sizes ------------------------------------------------------------------------------------------------------------------- */

static double value_of(const report_source *s, tn_dim dim)
{
    int64_t n;
    return tn_values_eval(s->values, dim, &n) ? (double)n : NAN;
}

static double count_of(const report_source *s, const tn_type *type)
{
    double n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= value_of(s, type->dim[i]);
    return n;
}

/* ---- operations ---------------------------------------------------------------------------------------------------------------- */

/* A multiply-add is two operations; a function like exp is one. `product` ones may have a faster unit of their own. */
typedef struct work {
    double product[4], plain, plain64; /* products: of factors of 8, 16, 32, 64 bits */
} work;

static int factor_class(tn_dtype a, tn_dtype b)
{
    int bits = (int)tn_max(tn_dtype_bits(tn_dtype_real(a)), tn_dtype_bits(tn_dtype_real(b)));
    return bits <= 8 ? 0 : bits <= 16 ? 1 : bits <= 32 ? 2 : 3;
}

/* Multiply-adds for one element of a product's or convolution's result. */
static double depth_of(const report_source *s, const tn_op *op)
{
    const tn_type *rhs = &tn_operand(op, 1)->type;
    const tn_attr *layout = tn_find_attr(op, TN_A_rhs_layout); /* of a convolution */
    if (layout)
        return count_of(s, rhs) / value_of(s, rhs->dim[strchr(layout->s, 'o') - layout->s]);
    int n;
    double depth = 1;
    const int64_t *contract = tn_attr_ints(op, TN_A_rhs_contract, &n);
    for (int i = 0; i < n; i++)
        depth *= value_of(s, rhs->dim[contract[i]]);
    return depth;
}

static void add_plain(work *w, tn_dtype dtype, double n)
{
    *(tn_dtype_bits(tn_dtype_real(dtype)) > 32 ? &w->plain64 : &w->plain) += n;
}

static void add_op(const report_source *s, const tn_op *op, work *w)
{
    if (!op->nresults)
        return;
    const tn_type *result = &op->result[0].type;
    unsigned traits = tn_op_traits(op->code);
    if (traits & TN_CONTRACTS) {
        w->product[factor_class(tn_operand(op, 0)->type.dtype, tn_operand(op, 1)->type.dtype)] += 2 * count_of(s, result) * depth_of(s, op);
    } else if (op->code == TN_OP_scatter) {
        const tn_type *updates = &tn_operand(op, op->noperands - 1)->type;
        add_plain(w, updates->dtype, count_of(s, updates));
    } else if (traits & TN_REDUCES && !tn_find_attr(op, TN_A_window)) {
        const tn_type *from = &tn_operand(op, 0)->type;
        add_plain(w, from->dtype, count_of(s, from));
    } else if (traits & TN_REDUCES) {
        int n;
        double taps = 1;
        const tn_dim *window = tn_attr_dims(op, TN_A_window, &n);
        for (int i = 0; i < n; i++)
            taps *= value_of(s, window[i]);
        add_plain(w, result->dtype, taps * count_of(s, result));
    } else if (tn_op_scalar(op) != TN_SCALAR_NONE) {
        add_plain(w, result->dtype, count_of(s, result));
    }
}

static double all_of(const work *w)
{
    return w->product[0] + w->product[1] + w->product[2] + w->product[3] + w->plain + w->plain64;
}

/* Milliseconds of the arithmetic alone, each unit at its full rate. */
static double arithmetic_ms(const tn_report *r, const report_source *s, const work *w)
{
    const tn_machine_limits *l = &r->rates.limit;
    double of_f32 = s->precision == TN_IEEE ? l->product32 : s->precision == TN_TF32X3 ? l->product_tf32 / 3 : l->product_tf32;
    double seconds = w->product[0] / l->product8 + w->product[1] / l->product16 + w->product[2] / of_f32 + w->product[3] / l->product64 + w->plain / l->f32 + w->plain64 / l->f64;
    return seconds * 1e3;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------- */

void report_add_name(tn_arena *arena, report_names *names, tn_map *seen, const char *name)
{
    void **cell = tn_map_at_str(seen, name);
    if (!*cell)
        TN_PUSH(arena, &names->list, name);
    *cell = (void *)1;
}

const char *report_node_name(tn_arena *arena, const tn_op *op)
{
    if (op->loc.node && *op->loc.node)
        return op->loc.node;
    for (int i = 0; i < op->nresults; i++)
        if (op->result[i].name)
            return op->result[i].name;
    return op->nresults ? tn_format(arena, "%s_%u", tn_op_name(op->code), op->result[0].id) : tn_op_name(op->code);
}

/* Producers are found after what uses them: last to first is the graph's order. */
static void add_names(tn_report *r, const report_source *s, const tn_step *step, report_kernel *k)
{
    tn_map nodes = {.arena = &r->arena}, ops = {.arena = &r->arena};
    for (size_t i = step->ops.len; i-- > 0;) {
        const tn_op *op = step->ops.at[i];
        if (tn_op_traits(op->code) & TN_TERMINATOR)
            continue;
        report_add_name(&r->arena, &k->nodes, &nodes, report_node_name(&r->arena, op));
        const tn_nodes *more = tn_map_get(&s->exec->program->stands_for, TN_KEY(op));
        for (size_t n = 0; more && n < more->list.len; n++)
            report_add_name(&r->arena, &k->nodes, &nodes, more->list.at[n]);
        report_add_name(&r->arena, &k->ops, &ops, tn_op_name(op->code));
    }
}

/* A buffer is moved once at most, whatever the caches do; of one that is read in parts, the parts. */
static void add_bytes(const report_source *s, const tn_exec_step *step, report_kernel *k)
{
    const tn_kernel *tile = s->exec->kernels.at[step->kernel].tile;
    tn_arena scratch = {.on_oom = s->exec->session->arena.on_oom};
    double *named = TN_NEW_ARRAY(&scratch, double, tile->buffers.len + 1);
    tn_kernel_accesses(tile, s->values, named);
    size_t at = 0;
    for (int a = 0; a < step->step->nargs; a++, at++) {
        while (tile->buffers.at[at].mode == TN_LOCAL)
            at++;
        int buffer = step->step->args[a];
        const tn_pbuffer *p = &s->exec->program->buffers.at[buffer];
        if (!s->valid[s->exec->buffers[buffer].group]) {
            k->read = NAN;
            continue;
        }
        double bytes = (double)s->layout->bytes[buffer], part = ceil(named[at] * tn_dtype_bits(p->type.dtype) / 8);
        bytes = part < bytes ? part : bytes;
        tn_buffer_mode mode = tile->buffers.at[at].mode;
        double moved = bytes * ((mode != TN_WRITE) + (mode != TN_READ));
        k->read += mode != TN_WRITE ? bytes : 0;
        k->written += mode != TN_READ ? bytes : 0;
        k->between += p->kind == TN_B_TEMP && !p->persistent ? moved : 0;
    }
    tn_arena_free(&scratch);
}

/* Work that is done in one place alone counts where it is met first: a product in parts is two kernels. */
static work work_of(const report_source *s, const tn_step *step, tn_map *done)
{
    work w = {.plain = 0};
    for (size_t i = 0; i < step->ops.len; i++) {
        const tn_op *op = step->ops.at[i];
        void **cell = tn_op_traits(op->code) & (TN_CONTRACTS | TN_REDUCES) ? tn_map_at(done, TN_KEY(op)) : NULL;
        if (!cell || !*cell)
            add_op(s, op, &w);
        if (cell)
            *cell = (void *)1;
    }
    return w;
}

static void find_limit(tn_report *r, const report_source *s, const work *w, report_kernel *k)
{
    double bytes = k->read + k->written, memory = r->has_rates ? bytes / tn_rates_bandwidth(&r->rates, bytes) * 1e3 : NAN;
    double arithmetic = r->has_rates ? arithmetic_ms(r, s, w) : NAN;
    k->of_memory = !(arithmetic > memory);
    k->limit_ms = isnan(memory) || isnan(arithmetic) ? NAN : fmax(memory, arithmetic);
}

static bool in_control(const tn_exec *exec, const tn_exec_step *step)
{
    return exec->blocks.at[step->block].depth > 0;
}

static double count_programs(const report_source *s, const tn_kernel *kernel)
{
    double n = 1;
    for (size_t i = 0; i < kernel->grid.len; i++)
        n *= ceil(value_of(s, kernel->grid.at[i].limit) / (double)tn_max(kernel->grid.at[i].step.size, 1));
    return n;
}

static report_kernel kernel_of_step(tn_report *r, const report_source *s, size_t index, tn_map *done)
{
    const tn_exec_step *step = &s->exec->steps.at[index];
    report_kernel k = {.name = step->name, .position = step->first, .launches = in_control(s->exec, step) ? NAN : 1, .ms = NAN, .limit_ms = NAN};
    add_names(r, s, step->step, &k);
    add_bytes(s, step, &k);
    work w = work_of(s, step->step, done);
    k.flops = all_of(&w);
    k.programs = count_programs(s, s->exec->kernels.at[step->kernel].tile);
    find_limit(r, s, &w, &k);
    if (s->context) {
        const tn_step_time *time = &s->context->time[index];
        k.launches = (double)time->runs / (double)r->runs;
        k.ms = time->runs ? time->least * 1e3 : NAN;
    }
    return k;
}

static report_kernel other_step(tn_report *r, const report_source *s, const tn_exec_step *step)
{
    static const char *const names[] = {"kernel", "copy", "define", "if", "case", "while"};
    report_kernel k = {.name = names[step->step->kind], .position = step->first, .launches = NAN, .ms = NAN, .limit_ms = NAN, .programs = NAN};
    add_names(r, s, step->step, &k);
    return k;
}

/* NAN counts as nothing: a total says what is known. */
static void add_known(double *sum, double x, double times)
{
    if (!isnan(x) && !isnan(times))
        *sum += x * times;
}

static void add_totals(tn_report *r, const report_kernel *k)
{
    double launches = isnan(k->launches) ? 1 : k->launches;
    add_known(&r->read, k->read, launches);
    add_known(&r->written, k->written, launches);
    add_known(&r->between, k->between, launches);
    add_known(&r->flops, k->flops, launches);
    add_known(&r->ms, k->ms, launches);
    add_known(&r->limit_ms, k->limit_ms, launches);
}

static void collect_kernels(tn_report *r, const report_source *s, int *kernel_of)
{
    tn_map done = {.arena = &r->arena};
    for (size_t i = 0; i < s->exec->steps.len; i++) {
        const tn_exec_step *step = &s->exec->steps.at[i];
        kernel_of[i] = -1;
        if (step->kernel < 0) {
            TN_PUSH(&r->arena, &r->others, other_step(r, s, step));
        } else if (step->step->init) {
            report_kernel k = {.name = step->name, .position = step->first, .launches = NAN, .ms = NAN, .limit_ms = NAN, .programs = NAN};
            add_names(r, s, step->step, &k);
            TN_PUSH(&r->arena, &r->load, k);
        } else {
            kernel_of[i] = (int)r->kernels.len;
            TN_PUSH(&r->arena, &r->kernels, kernel_of_step(r, s, i, &done));
            add_totals(r, &r->kernels.at[r->kernels.len - 1]);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------- */

/* The kernel that writes each buffer first. */
static void find_writers(const report_source *s, const int *kernel_of, int *writer)
{
    for (size_t i = 0; i < s->exec->steps.len; i++) {
        const tn_exec_step *step = &s->exec->steps.at[i];
        for (int a = 0; kernel_of[i] >= 0 && a < step->step->nargs; a++)
            if (writer[step->step->args[a]] < 0 && tn_plan_parameter(step->step->kernel, a)->mode != TN_READ)
                writer[step->step->args[a]] = kernel_of[i];
    }
}

static void sum_up(tn_report *r, const report_source *s)
{
    tn_run_memory m;
    int64_t scratch = s->context ? s->context->scratch_size * tn_pool_threads(s->context->pool) : 0;
    tn_layout_sum(&r->arena, s->exec, s->layout, s->valid, scratch, &m);
    r->peak = (double)m.arena;
    r->bound = (double)m.bound;
    r->scratch = s->context ? (double)scratch : NAN;
    r->inputs = (double)m.inputs;
    r->outputs = (double)m.outputs;
    r->mapped = (double)m.weights;
    r->packed = (double)m.packed;
    r->complete = m.complete;
}

static void collect_memory(tn_report *r, const report_source *s, const int *kernel_of)
{
    const tn_exec *exec = s->exec;
    size_t n = exec->program->buffers.len;
    int *writer = TN_NEW_ARRAY(&r->arena, int, n + 1), *number = TN_NEW_ARRAY(&r->arena, int, n + 1);
    double *start = TN_NEW_ARRAY(&r->arena, double, (size_t)exec->ngroups + 1);
    for (size_t b = 0; b < n; b++)
        writer[b] = number[b] = -1;
    find_writers(s, kernel_of, writer);
    for (int g = 0; g + 1 < exec->ngroups; g++) /* each group has a segment: they are shown one behind the other */
        start[g + 1] = start[g] + (s->valid[g] ? (double)s->layout->segment[g] : 0);
    sum_up(r, s);
    for (size_t b = 0; b < n; b++) {
        const tn_exec_buffer *e = &exec->buffers[b];
        const tn_pbuffer *p = &exec->program->buffers.at[b];
        if (!s->valid[e->group] || !e->planned)
            continue;
        number[b] = (int)r->buffers.len;
        TN_PUSH(&r->arena, &r->buffers, ((report_buffer){p->name ? p->name : tn_format(&r->arena, "#%zu", b), writer[b], e->first, e->last, (double)s->layout->bytes[b],
                                                         start[e->group] + (double)s->layout->offset[b], e->same_as}));
    }
    for (size_t i = 0; i < r->buffers.len; i++)
        if (r->buffers.at[i].same_as >= 0)
            r->buffers.at[i].same_as = number[r->buffers.at[i].same_as];
    for (size_t i = 0; i < exec->steps.len; i++) /* what runs at load stands behind them */
        if (!exec->steps.at[i].step->init && exec->steps.at[i].last >= r->positions)
            r->positions = exec->steps.at[i].last + 1;
}

void report_collect(tn_report *report, const report_source *source)
{
    const tn_exec *exec = source->exec;
    int *kernel_of = TN_NEW_ARRAY(&report->arena, int, exec->steps.len + 1);
    for (size_t i = 0; i < exec->symbols.len; i++)
        if (source->values->known[i])
            TN_PUSH(&report->arena, &report->sizes, ((struct report_size){exec->symbols.at[i].dim->name, source->values->value[i]}));
    collect_kernels(report, source, kernel_of);
    collect_memory(report, source, kernel_of);
    report_graphs(report, source, kernel_of);
}
