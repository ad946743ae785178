/* recover: once accesses count from their buffer, loops carry no pointers any more; what is left of a loop over a product's strips is a sum, a fold. */
#include "tile/recover.h"

#include <string.h>

static void resolve(void *context, tn_tvalue **use)
{
    tn_tvalue *to = tn_map_get(context, TN_KEY(*use));
    if (to)
        *use = to;
}

static void resolve_op(void *context, tn_top *op) { tn_top_uses(op, resolve, context); }

/* ---- operands of products ----------------------------------------------------------------------------------------------------- */

static void count_uses(void *context, tn_tvalue **use)
{
    void **cell = tn_map_at(context, TN_KEY(*use));
    *cell = (void *)((uintptr_t)*cell + 1);
}

static void count_uses_of(void *context, tn_top *op) { tn_top_uses(op, count_uses, context); }

typedef struct padding_search {
    recover *R;
    tn_map uses;
} padding_search;

/* A product sees 0 where an element is absent. So a load that nothing but a product sees needs no padding of 0, and a lowering may stop where it ends. */
static void drop_padding(void *context, tn_top *dot)
{
    padding_search *s = context;
    for (int side = 0; dot->code == TN_T_dot && side < 2; side++) {
        const tn_tvalue *v = dot->operand[side];
        while (v->def && (v->def->code == TN_T_cast || v->def->code == TN_T_permute) && (uintptr_t)tn_map_get(&s->uses, TN_KEY(v)) == 1)
            v = v->def->operand[0];
        tn_top *load = v->def && v->def->code == TN_T_load && (uintptr_t)tn_map_get(&s->uses, TN_KEY(v)) == 1 ? v->def : NULL;
        const tn_view *view = load ? load->view : NULL;
        tn_number zero = tn_number_from_int(v->type.dtype, 0);
        if (view && view->padded && !view->nguards && !view->panel && tn_number_same(v->type.dtype, view->padding, zero))
            load->view = recover_view(s->R, view->buffer, view->rank, view->shape, view->stride, view->offset, false, zero);
    }
}

void recover_operands(recover *R)
{
    padding_search s = {.R = R, .uses = {.arena = &R->arena}};
    tn_tile_walk(R->kernel->body, count_uses_of, &s.uses);
    tn_tile_walk(R->kernel->body, drop_padding, &s);
}

enum { TERMS = 64 /* operations that are looked at */ };

/* ---- loops of products ----------------------------------------------------------------------------------------------------------- */

typedef struct product_loop {
    tn_top *loop, *dot, *sum;
    tn_tvalue *addend;   /* what is added in a turn: the dot's result, or what is computed from that alone of the turn's products */
    int64_t step, strip; /* of the loop; of the product's k */
    tn_tvalue *start;    /* where the strip starts: the index, or strip * index; NULL: nothing asks */
    tn_dim whole;        /* turns * strip; NULL: no size says */
} product_loop;

typedef struct uses {
    const tn_tvalue *of;
    int n;
} uses;

static void count_use(void *context, tn_tvalue **use)
{
    uses *u = context;
    u->n += *use == u->of;
}

static int uses_in(const tn_tblock *block, const tn_tvalue *v)
{
    uses u = {v, 0};
    for (tn_top *op = block->first; op; op = op->next)
        tn_top_uses(op, count_use, &u);
    return u.n;
}

static bool is_quiet(const tn_top *op)
{
    return op->code == TN_T_load || op->code == TN_T_yield || (!op->nregions && (tn_top_traits(op->code) & TN_T_PURE) && op->code != TN_T_asm);
}

/* The one dot of the block that v is computed from element by element (times scales, cast), by operations that nothing else uses; NULL: there is none. */
static tn_top *dot_behind(const tn_tblock *block, tn_tvalue *v)
{
    tn_top *op = v->def, *dot = NULL;
    if (!op || op->block != block || (op->code != TN_T_dot && op->code != TN_T_map && op->code != TN_T_cast) || uses_in(block, v) != 1)
        return NULL;
    if (op->code == TN_T_dot)
        return op;
    for (int i = 0; i < op->noperands && !dot; i++)
        dot = dot_behind(block, op->operand[i]);
    return dot;
}

/* Elements of v exist, whatever masks say: a fold would skip what a loop that carries a sum counts as 0. */
static bool is_there(const tn_tvalue *v, int *budget)
{
    const tn_top *op = v->def;
    if (--*budget < 0 || !op || op->code == TN_T_dot || op->code == TN_T_const || op->code == TN_T_size || op->code == TN_T_range)
        return *budget >= 0;
    if (op->code == TN_T_load || op->code == TN_T_load_ptr)
        return op->code == TN_T_load ? tn_top_loads_all(op) : op->noperands != 2;
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_broadcast && op->code != TN_T_reshape && op->code != TN_T_permute)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!is_there(op->operand[i], budget))
            return false;
    return true;
}

/* The loop only adds one product a turn to what it carries, or what is computed from it. */
static bool find_product(const recover *R, tn_top *loop, product_loop *p)
{
    tn_tblock *body = loop->region[0];
    if (loop->nresults != 1)
        return false;
    tn_top *sum = body->last->operand[0]->def;
    if (!sum || sum->block != body || sum->code != TN_T_map || sum->fn != TN_S_add)
        return false;
    bool second = sum->operand[0] == &body->arg[1];
    int budget = TERMS;
    tn_tvalue *addend = sum->operand[second];
    tn_top *dot = dot_behind(body, addend);
    if (!dot || (dot->result != addend && !R->scaled) || sum->operand[!second] != &body->arg[1] || uses_in(body, &body->arg[1]) != 1 || uses_in(body, sum->result) != 1 || !is_there(addend, &budget))
        return false;
    for (const tn_top *op = body->first; op; op = op->next)
        if (!is_quiet(op) || (op->code == TN_T_dot && op != dot))
            return false;
    *p = (product_loop){.loop = loop, .dot = dot, .sum = sum, .addend = addend};
    return true;
}

static tn_tvalue *find_start(const product_loop *p)
{
    const tn_tblock *body = p->loop->region[0];
    if (p->step == p->strip)
        return body->arg;
    for (const tn_top *op = body->first; op; op = op->next)
        if (op->code == TN_T_map && op->fn == TN_S_mul && op->operand[0] == body->arg && op->operand[1]->def && op->operand[1]->def->code == TN_T_const &&
            op->operand[1]->def->number.i == p->strip)
            return op->result;
    return NULL;
}

/* Index 0, step, … with one strip of k a turn. */
static bool walks_strips(recover *R, product_loop *p)
{
    const tn_top *lo = p->loop->operand[0]->def, *step = p->loop->operand[2]->def;
    const tn_ttype *left = &p->dot->operand[0]->type;
    tn_extent k = left->extent[left->rank - 1];
    if (!lo || lo->code != TN_T_const || lo->number.i != 0 || !step || step->code != TN_T_const || k.param)
        return false;
    p->step = step->number.i;
    p->strip = k.size;
    if (p->step != 1 && p->step != p->strip)
        return false;
    p->start = find_start(p);
    tn_dim limit = recover_bound_dim(R, p->loop->operand[1]), strip = tn_dim_const(R->session, p->strip);
    tn_dim turns = limit && p->step != 1 ? tn_dim_ceildiv(R->session, limit, strip) : limit;
    p->whole = turns && recover_multiply(R, turns, strip, &turns) ? turns : NULL;
    return true;
}

/* The k axis of operand `side` is a dimension of its load that the strips walk; -1: none. */
static int walked_dimension(const product_loop *p, int side)
{
    const tn_tvalue *v = p->dot->operand[side];
    int axis = v->type.rank - 1 - side;
    while (v->def && (v->def->code == TN_T_map || v->def->code == TN_T_cast || v->def->code == TN_T_bitcast || v->def->code == TN_T_permute)) {
        axis = v->def->code == TN_T_permute ? v->def->axis[axis] : axis;
        v = v->def->operand[0];
    }
    const tn_top *load = v->def && v->def->code == TN_T_load && v->def->block == p->dot->block ? v->def : NULL;
    for (int d = 0; load && p->start && d < load->view->rank; d++)
        if (load->subscript[d].block && load->subscript[d].axis[0] == axis && load->subscript[d].value == p->start)
            return d;
    return -1;
}

static tn_top *load_of(const product_loop *p, int side)
{
    const tn_tvalue *v = p->dot->operand[side];
    while (v->def->code != TN_T_load)
        v = v->def->operand[0];
    return v->def;
}

/* What the loads do not bound along k, the turns do: so the lowering finds which k there are. */
static void bound_by_turns(recover *R, const product_loop *p)
{
    for (int side = 0; side < 2 && p->whole; side++) {
        int d = walked_dimension(p, side);
        tn_top *load = d < 0 ? NULL : load_of(p, side);
        if (!load || !load->subscript[d].inside || load->view->nguards || load->view->panel)
            continue;
        tn_dim shape[TN_MAX_RANK];
        memcpy(shape, load->view->shape, sizeof shape);
        shape[d] = p->whole;
        load->view = recover_view(R, load->view->buffer, load->view->rank, shape, load->view->stride, load->view->offset, load->view->padded, load->view->padding);
        load->subscript[d].inside = false;
    }
}

/* A size that the k of a load ends at, if so many strips are the loop's turns; else all turns. */
static tn_tvalue *limit_of(recover *R, const product_loop *p, tn_tbuilder *b)
{
    tn_dim strip = tn_dim_const(R->session, p->strip);
    for (int side = 0; side < 2 && p->whole; side++) {
        int d = walked_dimension(p, side);
        tn_dim shape = d < 0 || load_of(p, side)->subscript[d].inside ? NULL : load_of(p, side)->view->shape[d], whole;
        if (shape && recover_multiply(R, tn_dim_ceildiv(R->session, shape, strip), strip, &whole) && tn_dim_eq(R->session, whole, p->whole))
            return tn_t_size(b, shape);
    }
    if (p->whole)
        return tn_t_size(b, p->whole);
    tn_tvalue *hi = tn_t_cast(b, p->loop->operand[1], TN_I64);
    return p->step == p->strip ? hi : tn_t_map2(b, TN_S_mul, hi, tn_t_index(b, p->strip));
}

/* The body's operations become those of the fold; the index is computed from the strip's start where it is still asked for. */
static void move_body(recover *R, const product_loop *p, tn_top *fold)
{
    tn_tblock *from = p->loop->region[0], *to = fold->region[0];
    tn_tvalue *start = &to->arg[0], *index = from->arg;
    bool apart = p->step != p->strip;
    start->name = index->name;
    tn_top_unlink(p->sum);
    tn_top_unlink(from->last);
    if (apart && p->start)
        tn_top_unlink(p->start->def);
    tn_tbuilder b = tn_tbuilder_at(R->kernel, to, p->loop->loc);
    if (p->start)
        *tn_map_at(&R->became, TN_KEY(p->start)) = start;
    if (apart && uses_in(from, index))
        *tn_map_at(&R->became, TN_KEY(index)) = tn_t_map2(&b, TN_S_div, start, tn_t_index(&b, p->strip));
    for (tn_top *op = from->first, *next; op; op = next) {
        next = op->next;
        op->block = to;
        for (int i = 0; i < op->nresults; i++)
            op->result[i].block = to;
        op->prev = to->last;
        op->next = NULL;
        *(op->prev ? &op->prev->next : &to->first) = op;
        to->last = op;
    }
    tn_t_yield(&b, &p->addend, 1);
}

static void become_fold(recover *R, product_loop *p)
{
    bound_by_turns(R, p);
    tn_extent strip = tn_extent_const(p->strip);
    tn_tblock block = {.arg = NULL};
    tn_tbuilder b = tn_tbuilder_at(R->kernel, &block, p->loop->loc);
    tn_tvalue *limit = limit_of(R, p, &b), *init = p->loop->operand[3];
    tn_top *fold = tn_t_fold(&b, 1, &limit, &strip, 0, NULL);
    fold->label = p->loop->label;
    move_body(R, p, fold);
    tn_dtype dtype = p->addend->type.dtype;
    tn_number zero = tn_number_from_int(dtype, 0);
    tn_t_fold_finish(&b, fold, &zero, 1);
    tn_t_combine_fn(&b, fold->region[1], TN_S_add, dtype);
    const tn_number *start = recover_constant_of(init);
    tn_tvalue *result = start && tn_number_same(dtype, *start, zero) ? fold->result : tn_t_map2(&b, TN_S_add, init, fold->result);
    result->name = p->loop->result->name;
    *tn_map_at(&R->became, TN_KEY(p->loop->result)) = result;
    recover_insert_before(&block, p->loop);
    tn_top_unlink(p->loop);
}

static void find_folds(recover *R, tn_tblock *block)
{
    product_loop p;
    for (tn_top *op = block->first, *next; op; op = next) {
        next = op->next;
        if (op->code == TN_T_for && find_product(R, op, &p) && walks_strips(R, &p)) {
            become_fold(R, &p);
            continue;
        }
        for (int r = 0; r < op->nregions; r++)
            find_folds(R, op->region[r]);
    }
}

void recover_folds(recover *R)
{
    find_folds(R, R->kernel->body);
    tn_tile_walk(R->kernel->body, resolve_op, &R->became);
}
