/* Which convolutions work on features last, decided for all of a block at once, at the least cost: canonicalize turns these, and `layout` takes away the transposes
 * that meet.
 *
 * An operation that reads and writes images has one of two labels: LAST, features last, or FIRST, as the model has it. What it takes by its label is in a table for each
 * kind: a convolution over features is a product, which wants them last; a depthwise one and a pool are as fast as their vectors are full, of features or of pixels;
 * elementwise operations don't mind. An edge between two labels is a copy, and so is one from LAST to what has no label: arguments, results, reshapes. This is a
 * minimum cut. It is approached from two sides, all LAST and all that can be FIRST, by changing single labels while that costs less; each connected part takes the
 * cheaper end. That is exact where labels change nowhere inside a part, and never dearer than all LAST. Linear in operations times the few rounds of changes. */
#include "opt/internal.h"

#include <string.h>

enum { FIRST, LAST, LABELS };

/* Vector operations of 16 elements, roughly. */
enum { LANES = 16, UNKNOWN = 64 /* of a size that is symbolic */ };
static const double COPY = 0.25;    /* an element that is turned: loaded, shuffled, stored */
static const double MASKED = 1.25;  /* rows of pixels have edges, of which lanes are switched off; features have none */
static const double NEVER = 1e30;   /* no kernel */

typedef struct edge {
    int to;
    double cost; /* where the labels differ */
} edge;
typedef struct node {
    tn_op *op;
    double own[LABELS];
    TN_VEC(edge) edges;
    int part; /* parent in the forest of connected parts */
} node;
typedef struct assignment {
    tn_arena *arena;
    tn_map number; /* operation -> its node, + 1 */
    TN_VEC(node) nodes;
    char *label[LABELS]; /* by node: where the descent from all FIRST, from all LAST ended */
    double *cost[LABELS]; /* by part */
} assignment;

static double size_of(tn_dim dim) { return tn_dim_is_const(dim) ? (double)dim->value : UNKNOWN; }

static double elements_of(const tn_type *type)
{
    double n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= size_of(type->dim[i]);
    return n;
}

/* Vectors that n neighbours fill, in elements an operation. */
static double lanes_of(double n)
{
    double vectors = (double)(((int64_t)n + LANES - 1) / LANES);
    return n < 1 ? 1 : n / vectors;
}

static double windows_cost(const tn_type *type, double taps, bool first, int feature)
{
    int innermost = feature == type->rank - 1 ? type->rank - 2 : type->rank - 1;
    double n = size_of(type->dim[first ? innermost : feature]);
    return elements_of(type) * taps / lanes_of(n) * (first ? MASKED : 1);
}

static bool has_label(const tn_op *op)
{
    bool moves = op->code == TN_OP_convolution || op->code == TN_OP_reduce_window || op->code == TN_OP_pad || op->code == TN_OP_concatenate;
    return op->nresults == 1 && op->result->type.rank >= 3 && (moves || (tn_op_traits(op->code) & TN_ELEMENTWISE));
}

static void own_cost(const tn_op *op, double *own)
{
    const tn_type *type = &op->result->type;
    double taps = 1;
    own[FIRST] = own[LAST] = 0;
    if (op->code == TN_OP_convolution && conv_is_turned(op)) {
        own[LAST] = NEVER; /* it has features last already: so has what FIRST means here */
    } else if (op->code == TN_OP_convolution && !conv_is_depthwise_op(op)) {
        own[FIRST] = NEVER;
    } else if (op->code == TN_OP_convolution) {
        const tn_type *weights = &tn_operand(op, 1)->type;
        for (int i = 0; i < weights->rank; i++)
            taps *= size_of(weights->dim[i]);
        taps /= size_of(type->dim[conv_feature(op)]);
        for (int label = 0; label < LABELS; label++)
            own[label] = windows_cost(type, taps, label == FIRST, conv_feature(op));
    } else if (op->code == TN_OP_reduce_window) { /* features are the second of four, as models with FIRST have them */
        for (int i = 0; i < type->rank; i++)
            taps *= size_of(dims_of(op, TN_A_window)[i]);
        for (int label = 0; label < LABELS; label++)
            own[label] = windows_cost(type, taps, label == FIRST, 1);
    }
}

/* How many of the operands are images. */
static int images_of(const tn_op *op) { return op->code == TN_OP_convolution || op->code == TN_OP_pad || op->code == TN_OP_reduce_window ? 1 : op->noperands; }

static int node_of(const assignment *a, const tn_op *op) { return op ? (int)(intptr_t)tn_map_get(&a->number, TN_KEY(op)) - 1 : -1; }

static int part_of(assignment *a, int n)
{
    while (a->nodes.at[n].part != n)
        n = a->nodes.at[n].part = a->nodes.at[a->nodes.at[n].part].part;
    return n;
}

static void connect(assignment *a, int from, int to, double cost)
{
    TN_PUSH(a->arena, &a->nodes.at[from].edges, ((edge){to, cost}));
    TN_PUSH(a->arena, &a->nodes.at[to].edges, ((edge){from, cost}));
    a->nodes.at[part_of(a, from)].part = part_of(a, to);
}

static void add_operands(assignment *a, int n)
{
    const tn_op *op = a->nodes.at[n].op;
    for (int i = 0; i < images_of(op); i++) {
        const tn_value *x = tn_operand(op, i);
        int from = node_of(a, x->def);
        if (from >= 0)
            connect(a, from, n, COPY * elements_of(&x->type));
        else if (x->type.rank >= 3 && !value_is_constant(x) && !tn_is_op(x, TN_OP_broadcast_in_dim) && !tn_is_op(x, TN_OP_iota))
            a->nodes.at[n].own[LAST] += COPY * elements_of(&x->type);
    }
}

/* A result that leaves as the model has it. Reductions take it as it is. */
static void add_results(assignment *a, int n)
{
    const tn_value *y = a->nodes.at[n].op->result;
    for (const tn_use *use = y->uses; use; use = use->next)
        if (node_of(a, use->user) < 0 && use->user->code != TN_OP_reduce) {
            a->nodes.at[n].own[LAST] += COPY * elements_of(&y->type);
            return;
        }
}

static double cost_of(const assignment *a, const char *label, int n, int as)
{
    const node *v = &a->nodes.at[n];
    double cost = v->own[as];
    for (size_t i = 0; i < v->edges.len; i++)
        cost += label[v->edges.at[i].to] == as ? 0 : v->edges.at[i].cost;
    return cost;
}

/* From all nodes with label `from`, where that has a kernel: single labels change while that costs less. */
static void descend(assignment *a, int from)
{
    enum { ROUNDS = 16 };
    size_t n = a->nodes.len;
    char *label = a->label[from] = TN_NEW_ARRAY(a->arena, char, n);
    a->cost[from] = TN_NEW_ARRAY(a->arena, double, n);
    for (size_t i = 0; i < n; i++)
        label[i] = (char)(a->nodes.at[i].own[from] < NEVER ? from : 1 - from);
    bool changed = true;
    for (int round = 0; changed && round < ROUNDS; round++) {
        changed = false;
        for (size_t k = 0; k < n; k++) {
            int i = (int)(round % 2 ? n - 1 - k : k), other = 1 - label[i];
            if (cost_of(a, label, i, other) < cost_of(a, label, i, label[i])) {
                label[i] = (char)other;
                changed = true;
            }
        }
    }
    for (size_t i = 0; i < n; i++) { /* each edge is seen from both ends */
        double own = a->nodes.at[i].own[(int)label[i]];
        a->cost[from][part_of(a, (int)i)] += own + (cost_of(a, label, (int)i, label[i]) - own) / 2;
    }
}

static void assign_block(tn_block *block, tn_arena *arena, tn_map *last)
{
    assignment a = {.arena = arena, .number.arena = arena};
    bool chooses = false;
    for (tn_op *op = block->first; op; op = op->next) {
        for (int i = 0; i < op->nregions; i++)
            assign_block(op->region[i], arena, last);
        if (!has_label(op)) {
            if (op->code == TN_OP_convolution) /* over nothing but features */
                *tn_map_at(last, TN_KEY(op)) = op;
            continue;
        }
        chooses |= op->code == TN_OP_convolution && conv_is_depthwise_op(op) && !conv_is_turned(op);
        node v = {.op = op, .part = (int)a.nodes.len};
        own_cost(op, v.own);
        TN_PUSH(arena, &a.nodes, v);
        *tn_map_at(&a.number, TN_KEY(op)) = (void *)(intptr_t)a.nodes.len;
    }
    for (size_t i = 0; i < a.nodes.len && chooses; i++) {
        add_operands(&a, (int)i);
        add_results(&a, (int)i);
    }
    for (int from = 0; from < LABELS && chooses; from++)
        descend(&a, from);
    for (size_t i = 0; i < a.nodes.len; i++) {
        int part = chooses ? part_of(&a, (int)i) : 0, best = chooses && a.cost[FIRST][part] < a.cost[LAST][part] ? FIRST : LAST;
        if (!chooses || a.label[best][i] == LAST)
            *tn_map_at(last, TN_KEY(a.nodes.at[i].op)) = a.nodes.at[i].op;
    }
}

void opt_assign_features_last(tn_graph *graph, tn_arena *arena, tn_map *last) { assign_block(graph->body, arena, last); }
