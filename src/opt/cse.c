/* cse: of operations that compute the same, the first stays.
 *
 *     %0 = add %x, %y : f32[4]           %0 = add %x, %y : f32[4]
 *     %1 = add %y, %x : f32[4]      ->   %2 = multiply %0, %0 : f32[4]
 *     %2 = multiply %0, %1 : f32[4]
 *
 * Equal: the same operation, operands (in either order if it commutes), attributes, and regions of one structure.
 * Regions of control flow see what is known around them; scalar regions (of reduce, sort, …) stay closed. Constants
 * of more than SMALL bytes are equal only if their data lies at one place: comparing weights would read the whole
 * file. */
#include "opt/internal.h"

#include <string.h>

enum { SMALL = 4096 };

typedef struct scope {
    tn_map first; /* hash -> entry list */
    const struct scope *outer;
} scope;

typedef struct entry {
    tn_op *op;
    struct entry *next;
} entry;

static uint64_t mix(uint64_t h, uint64_t x)
{
    return tn_hash_u64(h * 31 + x);
}

/* ---- hashing --------------------------------------------------------------------------------------------------- */

static bool small_bytes(const tn_tensor *t, size_t *bytes)
{
    int64_t count;
    return tn_tensor_count(t, &count) && tn_dtype_bytes(t->dtype, t->splat ? count > 0 : count, bytes) &&
           *bytes <= SMALL;
}

static uint64_t hash_tensor(uint64_t h, const tn_tensor *t)
{
    size_t bytes;
    h = mix(h, (uint64_t)t->dtype * 2 + t->splat);
    for (int i = 0; i < t->rank; i++)
        h = mix(h, (uint64_t)t->dim[i]);
    return small_bytes(t, &bytes) ? tn_hash(t->data, bytes, h) : mix(h, TN_KEY(t->data));
}

static uint64_t hash_attr(uint64_t h, const tn_attr *attr)
{
    h = mix(h, attr->name);
    switch (tn_attr_kind_of(attr->name)) {
    case TN_ATTR_INTS:
        return attr->n ? tn_hash(attr->ints, (size_t)attr->n * sizeof *attr->ints, h) : h;
    case TN_ATTR_DIMS:
        return attr->n ? tn_hash(attr->dims, (size_t)attr->n * sizeof *attr->dims, h) : h;
    case TN_ATTR_TENSOR:
        return hash_tensor(h, attr->tensor);
    case TN_ATTR_STRING:
        return mix(h, TN_KEY(attr->s));
    case TN_ATTR_DIM:
        return mix(h, TN_KEY(attr->dim));
    default:
        return mix(h, (uint64_t)attr->i);
    }
}

static bool commutes(const tn_op *op)
{
    tn_scalar fn = tn_op_scalar(op);
    return op->noperands == 2 && fn != TN_SCALAR_NONE && (tn_scalar_traits(fn) & TN_SCALAR_COMMUTES);
}

/* Operands count by identity, in regions only how many there are. */
static uint64_t hash_op(const tn_op *op, bool inside)
{
    uint64_t h = mix((uint64_t)op->code, (uint64_t)op->noperands), sum = 0;
    for (int i = 0; i < op->nattrs; i++)
        h = hash_attr(h, &op->attr[i]);
    for (int i = 0; !inside && i < op->noperands; i++)
        sum += commutes(op) ? tn_hash_u64(tn_operand(op, i)->id) : mix((uint64_t)i, tn_operand(op, i)->id);
    h = mix(h, sum);
    for (int r = 0; r < op->nregions; r++)
        for (const tn_op *inner = op->region[r]->first; inner; inner = inner->next)
            h = mix(h, hash_op(inner, true));
    return h;
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

static bool same_tensor(const tn_tensor *a, const tn_tensor *b)
{
    size_t bytes;
    if (small_bytes(a, &bytes) && small_bytes(b, &bytes))
        return tn_tensor_same(a, b);
    return a->data == b->data && a->dtype == b->dtype && a->splat == b->splat && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

static bool same_attr(const tn_attr *a, const tn_attr *b)
{
    if (a->name != b->name || a->n != b->n)
        return false;
    switch (tn_attr_kind_of(a->name)) {
    case TN_ATTR_INTS:
        return a->n == 0 || memcmp(a->ints, b->ints, (size_t)a->n * sizeof *a->ints) == 0;
    case TN_ATTR_DIMS:
        return a->n == 0 || memcmp(a->dims, b->dims, (size_t)a->n * sizeof *a->dims) == 0;
    case TN_ATTR_TENSOR:
        return same_tensor(a->tensor, b->tensor);
    case TN_ATTR_STRING:
        return a->s == b->s;
    case TN_ATTR_DIM:
        return a->dim == b->dim;
    default:
        return a->i == b->i; /* of a FLOAT: its bits */
    }
}

bool tn_opt_same_attrs(const tn_op *a, const tn_op *b)
{
    bool same = a->nattrs == b->nattrs;
    for (int i = 0; same && i < a->nattrs; i++)
        same = same_attr(&a->attr[i], &b->attr[i]);
    return same;
}

/* inner: values of a's regions -> their twins in b's. */
static bool same_value(const tn_map *inner, const tn_value *a, const tn_value *b)
{
    const tn_value *twin = tn_map_get(inner, TN_KEY(a));
    return twin ? twin == b : a == b;
}

static bool same_operands(const tn_map *inner, const tn_op *a, const tn_op *b)
{
    bool same = true;
    for (int i = 0; i < a->noperands; i++)
        same = same && same_value(inner, tn_operand(a, i), tn_operand(b, i));
    return same || (commutes(a) && same_value(inner, tn_operand(a, 0), tn_operand(b, 1)) &&
                    same_value(inner, tn_operand(a, 1), tn_operand(b, 0)));
}

static bool same_block(tn_map *inner, const tn_block *a, const tn_block *b);

static bool same_op(tn_map *inner, const tn_op *a, const tn_op *b)
{
    if (a->code != b->code || a->noperands != b->noperands || a->nresults != b->nresults || !tn_opt_same_attrs(a, b) ||
        a->nregions != b->nregions || !same_operands(inner, a, b))
        return false;
    for (int i = 0; i < a->nresults; i++)
        if (!tn_type_same(&a->result[i].type, &b->result[i].type))
            return false;
    for (int i = 0; i < a->nregions; i++)
        if (!same_block(inner, a->region[i], b->region[i]))
            return false;
    return true;
}

static bool same_block(tn_map *inner, const tn_block *a, const tn_block *b)
{
    if (a->nargs != b->nargs)
        return false;
    for (int i = 0; i < a->nargs; i++) {
        if (!tn_type_same(&a->arg[i]->type, &b->arg[i]->type))
            return false;
        *tn_map_at(inner, TN_KEY(a->arg[i])) = b->arg[i];
    }
    const tn_op *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next) {
        if (!same_op(inner, x, y))
            return false;
        for (int i = 0; i < x->nresults; i++)
            *tn_map_at(inner, TN_KEY(&x->result[i])) = &y->result[i];
    }
    return !x && !y;
}

/* ---- the walk -------------------------------------------------------------------------------------------------- */

static tn_op *find_equal(tn_graph *graph, const scope *known, tn_op *op, uint64_t hash)
{
    for (; known; known = known->outer)
        for (entry *e = tn_map_get(&known->first, hash); e; e = e->next) {
            tn_map inner = {.arena = &graph->session->arena};
            if (same_op(&inner, e->op, op))
                return e->op;
        }
    return NULL;
}

static bool merge(tn_graph *graph, scope *known, tn_op *op)
{
    if (op->nresults == 0 || (tn_op_traits(op->code) & TN_EFFECT) || !op_is_removable(op))
        return false;
    uint64_t hash = hash_op(op, false);
    const tn_op *first = find_equal(graph, known, op, hash);
    if (!first) {
        void **cell = tn_map_at(&known->first, hash);
        entry *e = TN_NEW(&graph->session->arena, entry);
        *e = (entry){op, *cell};
        *cell = e;
        return false;
    }
    for (int i = 0; i < op->nresults; i++)
        tn_replace_uses(&op->result[i], &first->result[i]);
    tn_erase(op);
    return true;
}

static bool merge_block(tn_graph *graph, tn_block *block, const scope *outer)
{
    bool any = false;
    scope known = {.first = {.arena = &graph->session->arena}, .outer = outer};
    for (tn_op *op = block->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->nregions; i++)
            any |= merge_block(graph, op->region[i], tn_op_traits(op->code) & TN_CONTROL ? &known : NULL);
        any |= merge(graph, &known, op);
    }
    return any;
}

tn_status opt_cse(tn_graph *graph, const tn_opt_options *options, bool *changed)
{
    (void)options;
    *changed |= merge_block(graph, graph->body, NULL);
    return TN_OK;
}
