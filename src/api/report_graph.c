/* The report's graphs: the model's nodes, with the kernels that hold them; and the edges between kernels, each with the reason why it did not fuse. */
#include <math.h>
#include <string.h>

#include "api/report.h"

/* ---- edges between kernels -------------------------------------------------------------------------------------------------------- */

typedef struct edges {
    tn_report *r;
    const report_source *s;
    const int *kernel_of;
    tn_map owner;    /* operation -> step that stores its result, + 1 */
    tn_map copies;   /* operation -> map: value -> step that copies it for the operation, + 1 */
    tn_map refusal;  /* operation -> why it is not in its user's kernel */
    tn_map known;    /* edges of the kernel at hand, by producer */
    tn_map pairs;    /* (from, to) of kernels -> 1 */
    tn_map held;     /* operations of the kernel at hand */
    tn_map looked_through; /* operations that the kernel at hand reads through */
    int kernel;      /* at hand */
    struct step_list { TN_VEC(int) list; } *writers; /* by buffer: steps of a run that write it */
    int *read_from;  /* by step: the last kernel that reads a buffer which it writes, + 1 */
    int *explained;  /* by step: the last kernel that has an edge from it, + 1 */
    TN_VEC(report_pair) sources; /* of the kernel at hand: steps, and the buffers */
} edges;

static void add_copy(edges *e, const tn_step *step, size_t index)
{
    void **values = tn_map_at(&e->copies, TN_KEY(step->ops.at[0]));
    if (!*values) {
        *values = TN_NEW(&e->r->arena, tn_map);
        ((tn_map *)*values)->arena = &e->r->arena;
    }
    *tn_map_at(*values, TN_KEY(step->copied)) = (void *)(index + 1);
}

static void find_owners(edges *e)
{
    const tn_exec *exec = e->s->exec;
    for (size_t i = 0; i < exec->steps.len; i++) {
        const tn_step *step = exec->steps.at[i].step;
        if (step->copied && step->ops.len) {
            add_copy(e, step, i);
            continue;
        }
        for (size_t o = 0; o < step->ops.len; o++) {
            void **cell = tn_map_at(&e->owner, TN_KEY(step->ops.at[o]));
            /* The first operation of a step is its root, whose result it stores; of a product in parts the last step does. What runs at load comes last, and only
             * has what nothing else has. */
            if (!*cell || (o == 0 && !step->init))
                *cell = (void *)(i + 1);
        }
    }
    for (size_t i = 0; i < exec->program->refusals.len; i++) {
        void **cell = tn_map_at(&e->refusal, TN_KEY(exec->program->refusals.at[i].producer));
        if (!*cell)
            *cell = (void *)(uintptr_t)exec->program->refusals.at[i].reason;
    }
}

static const char *reason_of(edges *e, const tn_op *producer)
{
    const char *known = tn_map_get(&e->refusal, TN_KEY(producer));
    return known ? known : tn_format(&e->r->arena, "%s is a step of its own, which takes in nothing else", tn_op_name(producer->code));
}

static double bytes_of(edges *e, const tn_value *v)
{
    double n = 1;
    int64_t size;
    for (int i = 0; i < v->type.rank; i++)
        n *= tn_values_eval(e->s->values, v->type.dim[i], &size) ? (double)size : NAN;
    return n * tn_dtype_bits(v->type.dtype) / 8;
}

static void put_edge(edges *e, int step, const tn_op *producer, const tn_op *consumer, double bytes, const char *reason)
{
    tn_report *r = e->r;
    int from = e->kernel_of[step];
    report_end start = {from, report_node_name(&r->arena, producer), tn_op_name(producer->code)};
    report_end user = {e->kernel, report_node_name(&r->arena, consumer), tn_op_name(consumer->code)};
    TN_PUSH(&r->arena, &r->unfused, ((report_edge){start, user, bytes, reason}));
    e->explained[step] = e->kernel + 1;
    void **pair = from >= 0 ? tn_map_at(&e->pairs, (uint64_t)from << 32 | (uint32_t)e->kernel) : NULL;
    if (pair && !*pair) {
        *pair = (void *)1;
        TN_PUSH(&r->arena, &r->kernel_edges, ((report_pair){from, e->kernel}));
    }
}

/* A kernel of a product in parts holds operations whose operands its other kernel reads: only what is read counts. */
static void add_edge(edges *e, const tn_value *v, const tn_op *consumer, int step)
{
    if (e->kernel_of[step] >= 0 && e->read_from[step] != e->kernel + 1)
        return;
    void **known = tn_map_at(&e->known, TN_KEY(v->def));
    if (*known)
        return;
    *known = (void *)1;
    put_edge(e, step, v->def, consumer, bytes_of(e, v), reason_of(e, v->def));
}

/* An operation that no step holds is a place where others put their results (a concatenation) or a name for one (a barrier): what lies behind it counts. */
static void look_at(edges *e, const tn_value *v, const tn_op *consumer)
{
    if (!v->def || tn_constant_of(v) || tn_map_get(&e->held, TN_KEY(v->def)))
        return;
    int step = (int)(uintptr_t)tn_map_get(&e->owner, TN_KEY(v->def)) - 1;
    if (step >= 0) {
        if (!e->s->exec->steps.at[step].step->init)
            add_edge(e, v, consumer, step);
        return;
    }
    void **looked = tn_map_at(&e->looked_through, TN_KEY(v->def));
    if (*looked)
        return;
    *looked = (void *)1;
    const tn_map *copies = tn_map_get(&e->copies, TN_KEY(v->def));
    for (int i = 0; i < v->def->noperands; i++) {
        const tn_value *part = tn_operand(v->def, i);
        int copy = copies ? (int)(uintptr_t)tn_map_get(copies, TN_KEY(part)) - 1 : -1;
        if (copy >= 0 && part->def && !e->s->exec->steps.at[copy].step->init)
            add_edge(e, part, consumer, copy);
        else
            look_at(e, part, consumer);
    }
}

static void find_writers(edges *e)
{
    const tn_exec *exec = e->s->exec;
    tn_arena *arena = &e->r->arena;
    e->read_from = TN_NEW_ARRAY(arena, int, exec->steps.len + 1);
    e->explained = TN_NEW_ARRAY(arena, int, exec->steps.len + 1);
    e->writers = TN_NEW_ARRAY(arena, struct step_list, exec->program->buffers.len + 1);
    for (size_t i = 0; i < exec->steps.len; i++) {
        const tn_step *step = exec->steps.at[i].step;
        for (int a = 0; e->kernel_of[i] >= 0 && a < step->nargs; a++)
            if (tn_plan_parameter(step->kernel, a)->mode != TN_READ)
                TN_PUSH(arena, &e->writers[step->args[a]].list, (int)i);
    }
}

static void find_sources(edges *e, size_t index)
{
    const tn_step *step = e->s->exec->steps.at[index].step;
    e->sources.len = 0;
    for (int a = 0; a < step->nargs; a++)
        for (size_t w = 0; tn_plan_parameter(step->kernel, a)->mode != TN_WRITE && w < e->writers[step->args[a]].list.len; w++) {
            int writer = e->writers[step->args[a]].list.at[w];
            if (writer == (int)index || e->read_from[writer] == e->kernel + 1)
                continue;
            e->read_from[writer] = e->kernel + 1;
            TN_PUSH(&e->r->arena, &e->sources, ((report_pair){writer, step->args[a]}));
        }
}

/* Operations belong to the last step that computes them. */
static bool is_repeated(const edges *e, const tn_step *source)
{
    int owner = (int)(uintptr_t)tn_map_get(&e->owner, TN_KEY(source->ops.at[0])) - 1;
    return owner >= 0 && e->s->exec->steps.at[owner].step->again;
}

/* Kernels that the kernel at hand reads from though no operation's operand says so. */
static void explain_the_rest(edges *e, const tn_step *step)
{
    for (size_t i = 0; i < e->sources.len; i++) {
        int from = e->sources.at[i].from;
        const tn_step *source = e->s->exec->steps.at[from].step;
        if (e->explained[from] == e->kernel + 1 || !source->ops.len || !step->ops.len)
            continue;
        const char *reason = source->ops.at[0] == step->ops.at[0] ? "the sum is computed in parts, by more programs at once; this kernel adds up the parts"
                             : source->copied                     ? "it is copied to where its user expects it"
                             : is_repeated(e, source)             ? "it is computed again before a later use, to keep the limit of memory"
                                                                  : "several steps write this memory";
        const tn_exec *exec = e->s->exec;
        int buffer = e->sources.at[i].to;
        put_edge(e, from, source->ops.at[0], step->ops.at[0], e->s->valid[exec->buffers[buffer].group] ? (double)e->s->layout->bytes[buffer] : NAN, reason);
    }
}

static void collect_edges(tn_report *r, const report_source *s, const int *kernel_of)
{
    edges e = {.r = r, .s = s, .kernel_of = kernel_of};
    e.owner.arena = e.copies.arena = e.refusal.arena = e.pairs.arena = &r->arena;
    find_owners(&e);
    find_writers(&e);
    for (size_t i = 0; i < s->exec->steps.len; i++) {
        const tn_step *step = s->exec->steps.at[i].step;
        if (kernel_of[i] < 0)
            continue;
        tn_arena scratch = {.on_oom = s->exec->session->arena.on_oom};
        e.known = e.held = e.looked_through = (tn_map){.arena = &scratch};
        e.kernel = kernel_of[i];
        find_sources(&e, i);
        for (size_t o = 0; o < step->ops.len; o++)
            *tn_map_at(&e.held, TN_KEY(step->ops.at[o])) = (void *)1;
        if (step->copied)
            look_at(&e, step->copied, step->ops.at[0]);
        for (size_t o = step->copied ? 0 : step->ops.len; o-- > 0;)
            for (int a = 0; a < step->ops.at[o]->noperands; a++)
                look_at(&e, tn_operand(step->ops.at[o], a), step->ops.at[o]);
        explain_the_rest(&e, step);
        tn_arena_free(&scratch);
    }
}

/* ---- the model's nodes -------------------------------------------------------------------------------------------------------------- */

typedef struct nodes {
    tn_report *r;
    tn_map number; /* name -> node + 1 */
    tn_map of_op;  /* operation -> node + 1 */
    tn_map pairs;  /* (from, to) -> 1 */
} nodes;

static int node_of(nodes *n, const tn_op *op)
{
    void **cell = tn_map_at_str(&n->number, report_node_name(&n->r->arena, op));
    if (!*cell) {
        TN_PUSH(&n->r->arena, &n->r->nodes, ((report_node){.name = report_node_name(&n->r->arena, op)}));
        *cell = (void *)n->r->nodes.len;
    }
    return (int)(uintptr_t)*cell - 1;
}

static void add_node_op(nodes *n, int node, const char *name)
{
    report_names *ops = &n->r->nodes.at[node].ops;
    for (size_t i = 0; i < ops->list.len; i++)
        if (!strcmp(ops->list.at[i], name))
            return;
    TN_PUSH(&n->r->arena, &ops->list, name);
}

static void add_block(nodes *n, const tn_block *block)
{
    for (const tn_op *op = block->first; op; op = op->next) {
        if ((op->nresults && tn_constant_of(&op->result[0])) || tn_op_traits(op->code) & TN_TERMINATOR)
            continue;
        int node = node_of(n, op);
        *tn_map_at(&n->of_op, TN_KEY(op)) = (void *)(uintptr_t)(node + 1);
        add_node_op(n, node, tn_op_name(op->code));
        for (int i = 0; i < op->noperands; i++) {
            int from = tn_operand(op, i)->def ? (int)(uintptr_t)tn_map_get(&n->of_op, TN_KEY(tn_operand(op, i)->def)) - 1 : -1;
            void **pair = from >= 0 && from != node ? tn_map_at(&n->pairs, (uint64_t)from << 32 | (uint32_t)node) : NULL;
            if (pair && !*pair) {
                *pair = (void *)1;
                TN_PUSH(&n->r->arena, &n->r->node_edges, ((report_pair){from, node}));
            }
        }
        if (tn_op_traits(op->code) & TN_CONTROL)
            for (int i = 0; i < op->nregions; i++)
                add_block(n, op->region[i]);
    }
}

static void collect_nodes(tn_report *r, const report_source *s)
{
    nodes n = {.r = r};
    n.number.arena = n.of_op.arena = n.pairs.arena = &r->arena;
    add_block(&n, s->before->body);
    for (size_t k = 0; k < r->kernels.len; k++)
        for (size_t i = 0; i < r->kernels.at[k].nodes.list.len; i++) {
            int node = (int)(uintptr_t)tn_map_get_str(&n.number, r->kernels.at[k].nodes.list.at[i]) - 1;
            if (node >= 0)
                TN_PUSH(&r->arena, &r->nodes.at[node].kernels, (int)k);
        }
}

void report_graphs(tn_report *report, const report_source *source, const int *kernel_of)
{
    collect_edges(report, source, kernel_of);
    collect_nodes(report, source);
}
