/* Products of one left operand with several weights, as one: the weights lie side by side (a copy, made now), and what each gave is a slice of the result.
 * Three products that read the same rows are three launches, each with the tail of its own tiles. Only where what comes behind each is a movement of elements, which
 * slices join for free; what is computed from a product stays the epilogue of its kernel (a gate of a feed-forward block). A bias of each goes along. */
#include "fuse/internal.h"

#include <string.h>

enum { MOST = 8 };

typedef struct part {
    tn_op *dot, *last;     /* the product, and the sum with a bias behind it; else the product again */
    const tn_tensor *w;
    const tn_tensor *bias; /* NULL: none */
    int64_t columns;
} part;

static bool is_dense(const tn_tensor *t, int rank) { return t && t->rank == rank && !t->splat; }

static bool moves_only(const tn_value *v)
{
    for (const tn_use *use = v->uses; use; use = use->next)
        if (!(tn_op_traits(use->user->code) & TN_MOVES_DATA) || use->user->code == TN_OP_gather || use->user->code == TN_OP_concatenate)
            return false;
    return v->uses != NULL;
}

/* The dimension of the weight that is no sum. */
static int kept_of(const tn_op *dot)
{
    int n;
    return 1 - (int)tn_attr_ints(dot, TN_A_rhs_contract, &n)[0];
}

/* The vector that `add` adds along the last dim; NULL: it is no such sum of v. */
static const tn_tensor *bias_of(const tn_op *add, const tn_value *v)
{
    int n, rank = v->type.rank;
    const tn_value *other = tn_operand(add, tn_operand(add, 0) == v);
    if (!tn_is_op(other, TN_OP_broadcast_in_dim))
        return NULL;
    const int64_t *dims = tn_attr_ints(other->def, TN_A_broadcast_dimensions, &n);
    const tn_tensor *t = tn_constant_of(tn_operand(other->def, 0));
    return n == 1 && dims[0] == rank - 1 && is_dense(t, 1) && t->dtype == v->type.dtype ? t : NULL;
}

static bool part_of(const tn_use *use, part *out)
{
    tn_op *dot = use->user;
    int batch, contract;
    if (dot->code != TN_OP_dot_general || use != &dot->operand[0] || !tn_attr_ints(dot, TN_A_lhs_contract, &contract) || contract != 1)
        return false;
    tn_attr_ints(dot, TN_A_lhs_batch, &batch);
    const tn_tensor *w = tn_constant_of(tn_operand(dot, 1));
    if (batch != 0 || !is_dense(w, 2) || tn_dtype_bits(w->dtype) < 8)
        return false;
    *out = (part){dot, dot, w, NULL, w->dim[kept_of(dot)]};
    if (tn_has_one_use(dot->result) && dot->result->uses->user->code == TN_OP_add && dot->result->uses->user->block == dot->block) {
        out->bias = bias_of(dot->result->uses->user, dot->result);
        out->last = out->bias ? dot->result->uses->user : dot;
    }
    return moves_only(out->last->result);
}

static bool fit(const part *a, const part *b)
{
    return a->dot->block == b->dot->block && a->w->dtype == b->w->dtype && !a->bias == !b->bias && a->dot->result->type.dtype == b->dot->result->type.dtype && tn_opt_same_attrs(a->dot, b->dot);
}

/* Tensors of rows that differ in their last size, side by side; by their first one: one behind the other. */
static const tn_tensor *side_by_side(tn_session *session, const tn_tensor *const *t, int n, int axis)
{
    tn_tensor *out = TN_NEW(&session->arena, tn_tensor);
    size_t row = 0, each[MOST], bytes = (size_t)tn_dtype_bits(t[0]->dtype) / 8;
    *out = *t[0];
    out->name = NULL;
    out->dim[axis] = 0;
    int64_t rows = axis ? t[0]->dim[0] : 1;
    for (int i = 0; i < n; i++) {
        out->dim[axis] += t[i]->dim[axis];
        int64_t count;
        each[i] = tn_tensor_count(t[i], &count) && rows ? (size_t)(count / rows) * bytes : 0;
        row += each[i];
    }
    char *to = tn_alloc_aligned(&session->arena, row * (size_t)rows + 1, 64);
    out->data = to;
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < n; to += each[i++])
            memcpy(to, (const char *)t[i]->data + (size_t)r * each[i], each[i]);
    return out;
}

static tn_nodes *nodes_of(tn_session *session, const part *p, int n)
{
    tn_nodes *nodes = TN_NEW(&session->arena, tn_nodes);
    for (int i = 0; i < n; i++)
        for (int last = 0; last <= (p[i].last != p[i].dot); last++) {
            const char *name = (last ? p[i].last : p[i].dot)->loc.node;
            if (name)
                TN_PUSH(&session->arena, &nodes->list, name);
        }
    return nodes;
}

static void merge(tn_session *session, part *p, int n, tn_program *program)
{
    const tn_tensor *w[MOST], *bias[MOST];
    tn_builder b = tn_builder_before(p[0].dot);
    tn_value *x = tn_operand(p[0].dot, 0);
    tn_dim start[TN_MAX_RANK], limit[TN_MAX_RANK];
    int64_t strides[TN_MAX_RANK], at = 0;
    for (int i = 0; i < n; i++)
        w[i] = p[i].w, bias[i] = p[i].bias;
    tn_value *operands[] = {x, tn_constant(&b, side_by_side(session, w, n, kept_of(p[0].dot)))};
    tn_value *y = tn_build(&b, TN_OP_dot_general, operands, 2, p[0].dot->attr, p[0].dot->nattrs, NULL, 0)->result;
    int64_t last = y->type.rank - 1;
    *tn_map_at(&program->stands_for, TN_KEY(y->def)) = nodes_of(session, p, n);
    if (bias[0])
        y = tn_binary(&b, TN_OP_add, y, tn_broadcast_in_dim(&b, tn_constant(&b, side_by_side(session, bias, n, 0)), y->type.dim, y->type.rank, &last));
    for (int i = 0; i < y->type.rank; i++) {
        start[i] = tn_dim_const(session, 0);
        limit[i] = y->type.dim[i];
        strides[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        start[last] = tn_dim_const(session, at);
        limit[last] = tn_dim_const(session, at += p[i].columns);
        tn_replace_uses(p[i].last->result, tn_slice(&b, y, start, limit, strides));
    }
    for (int i = 0; i < n; i++) { /* the builder stands before the first of them */
        if (p[i].last != p[i].dot)
            tn_erase(p[i].last);
        tn_erase(p[i].dot);
    }
}

/* Parts in the order of the block: the merged product stands before the first, whose operand is there already. */
static int parts_of(const tn_op *first, part *out)
{
    int n = 0;
    if (first->code != TN_OP_dot_general)
        return 0;
    for (const tn_use *use = tn_operand(first, 0)->uses; use; use = use->next) {
        part p;
        if (n == MOST || !part_of(use, &p))
            continue;
        if (p.dot == first && n) { /* the first leads */
            out[n++] = out[0];
            out[0] = p;
        } else {
            out[n++] = p;
        }
    }
    if (!n || out[0].dot != first)
        return 0;
    int kept = 1;
    for (int i = 1; i < n; i++)
        if (fit(&out[0], &out[i]))
            out[kept++] = out[i];
    return kept;
}

/* The operation before which nothing of the parts stands: erasing them must not take the walk's place. */
static tn_op *past(tn_op *op, const part *p, int n)
{
    for (bool again = true; op && again; op = again ? op->next : op) {
        again = false;
        for (int i = 0; i < n; i++)
            again |= op == p[i].dot || op == p[i].last;
    }
    return op;
}

void fuse_merge_products(tn_session *session, tn_block *block, tn_program *program)
{
    for (tn_op *op = block->first, *next; op; op = next) {
        part p[MOST];
        int n = parts_of(op, p);
        next = n > 1 ? past(op->next, p, n) : op->next;
        if (n > 1)
            merge(session, p, n, program);
    }
}
