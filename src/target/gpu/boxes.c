/* Operands of wgmma that a warp of its own has the machine copy, whole boxes at a time (TMA), while the others compute.
 *
 *     the others                                    the producer, one thread
 *     each turn: wait until `full`                  each turn: wait until `empty`
 *                products                                     box copies, which fill `full` when they arrive
 *                `empty`, once nobody reads it
 *
 * A ring of buffers with two mbarriers each lies between them. Both walk the same programs and loops; the producer's are made of the scalars that boxes start at alone.
 * It runs ahead as far as the ring goes, into the next program too, so that kernels are persistent: a CTA walks many programs, and stores the results of one while
 * the first operands of the next arrive.
 *
 * Instances: the others may be several warpgroups or more that work on a program each (schedule: `instances`). One producer fills one ring for all, program after
 * program, so that an instance skips the turns of what the others work on; and they take turns at the products, by an mbarrier each, which says that the instance
 * before is through with its products:
 *
 *     instance 0   products 0 | results 0            | products 2 | results 2
 *     instance 1              | products 1 | results 1            | products 3 …
 *
 * Without turns one would wait for a phase of `full` while the other is two phases ahead, which parities do not tell apart.
 *
 * A ring turns with a fold, with a `for` whose body loads its operands, or once a program: for a product outside loops, and for what is there for all of one. It is for loads whose every axis walks one dimension of a view of
 * which the machine can have a map: strides of 16 bytes, no guards but an axis's end, nothing read from memory on the way. What lies before a dimension's start or
 * beyond what a map reaches is zeros in a box, but memory to a load from a dimension without bounds: boxes that may start there are looked at before they are copied,
 * and filled by the thread element by element if they do. */
#include "target/gpu/dot.h"

#include <assert.h>

struct gpu_boxes {
    const tn_top *dot, *last; /* the first and the last in a turn that read it */
    const tn_tblock *block; /* whose turns are its: where its loads stand */
    const gpu_boxes *earlier; /* of a loop before, of alike operands: memory, mbarriers and stages are that one's, which this one goes on with. NULL: none */
    gpu_operand *operand[2];
    int n, stages;
    int first;              /* number of its first mbarrier: one a stage for `full`, then one for `empty` */
    gpu_ring turns;         /* of a fold */
    tn_lvalue *stage, *parity; /* of the role that is lowered: where it is */
    tn_lvalue *skip, *skip_parity; /* with instances: stages, and whether rounds are odd, that the programs of the others take */
    int first_turn;            /* number of the first instance's mbarrier of turns */
    tn_lvalue *turn;           /* parity of the instance's next turn */
};

enum { FULL, EMPTY };
enum { BOX_ROWS = 256, LINE = 128, UNBOUNDED = INT32_MAX };
enum { GROUP = 128 /* threads of a warpgroup */, EIGHT = 8 /* registers are given out in eights */ };

/* ---- which loads ----------------------------------------------------------------------------------------------------------- */

/* Computed from coordinates of the grid, indices of loops and numbers that the kernel is called with. */
static bool is_fixed(const lower *L, const tn_tvalue *v, int *budget)
{
    const tn_top *op = v->def, *loop = v->block ? v->block->parent : NULL;
    if (--*budget < 0 || v->type.rank)
        return false;
    if (!op && loop)
        return loop->code == TN_T_fold ? v->block == loop->region[0] : loop->code == TN_T_for && v == &loop->region[0]->arg[0];
    if (!op)
        return !v->type.pointer;
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_const && op->code != TN_T_size && op->code != TN_T_assume)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!is_fixed(L, op->operand[i], budget))
            return false;
    return true;
}

static bool all_fixed(const lower *L, tn_tvalue *const *v, int n)
{
    int budget = LOWER_BUDGET;
    for (int i = 0; i < n; i++)
        if (!is_fixed(L, v[i], &budget))
            return false;
    return true;
}

/* A check `max(start + c, 0) + i < limit` of an axis, beside the dimension that it walks from `start` on, is start + i < limit - c: where the one is cut off at 0 it
 * holds for all i < extent <= limit, as does the other. */
static tn_dim limit_from_check(lower *L, const tn_tvalue *check, const tn_tvalue *start, tn_dim limit, int64_t extent)
{
    const tn_top *op = check->def;
    if (op && op->code == TN_T_map && op->fn == TN_S_max && op->operand[1]->def && op->operand[1]->def->code == TN_T_const && op->operand[1]->def->number.i == 0) {
        if (extent > limit->lo)
            return NULL;
        op = op->operand[0]->def;
    }
    if (!op || op->code != TN_T_map || op->fn != TN_S_add || op->operand[0] != start)
        return NULL;
    tn_dim c = lower_value_dim(L, op->operand[1]);
    return c ? tn_dim_sub(L->session, limit, c) : NULL;
}

static bool is_multiple_of_16(int64_t elements, int bytes) { return elements * bytes % 16 == 0; }

typedef struct walked {
    int dim[TN_TILE_RANK];  /* of the view, that an axis walks; -1: none yet */
    int check[TN_TILE_RANK]; /* of no stride, that an axis walks too: it only says where the axis ends */
} walked;

/* Sorts the dimensions of the view: false if one is no business of a map. */
static bool find_dims(const lower *L, const tn_top *load, walked *w)
{
    const tn_view *view = load->view;
    const tn_ttype *type = &lower_accessed_tile(load)->type;
    for (int d = 0; d < view->rank; d++) {
        const tn_subscript *s = &load->subscript[d];
        bool still = tn_dim_is(view->stride[d], 0), moves = s->naxes == 1 && type->extent[s->axis[0]].size > 1;
        if (s->naxes > 1 || (s->naxes && !s->block) || !all_fixed(L, &s->value, 1))
            return false;
        if (!moves && still && !s->inside)
            return false;
        if (!moves)
            continue;
        int *place = still ? &w->check[s->axis[0]] : &w->dim[s->axis[0]];
        if (*place >= 0)
            return false;
        *place = d;
    }
    return w->dim[0] >= 0 && w->dim[1] >= 0;
}

/* How many of dimension d there are for the map; NULL: can't be told. */
static tn_dim size_of(lower *L, const tn_top *load, int d, int check)
{
    const tn_view *view = load->view;
    const tn_subscript *s = &load->subscript[d];
    bool any = tn_dim_is(view->shape[d], TN_TILE_ANY);
    tn_dim size = any ? tn_dim_const(L->session, UNBOUNDED) : view->shape[d];
    if (check < 0 || load->subscript[check].inside)
        return size;
    tn_dim limit = limit_from_check(L, load->subscript[check].value, s->value, view->shape[check], lower_accessed_tile(load)->type.extent[s->axis[0]].size);
    return !limit ? NULL : any ? limit : tn_dim_min(L->session, size, limit);
}

const char *gpu_find_map(lower *L, const tn_top *load, gpu_operand *o, tn_lmap *m)
{
    const tn_view *view = load->view;
    walked w = {{-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1}};
    if (view->panel || view->nguards)
        return view->panel ? "its view is in panels" : "its view has guards";
    if (view->padded && (view->padding.f != 0 || view->padding.u != 0))
        return "it is padded with other than 0";
    if (o->box * o->bytes != LINE)
        return "its rows are shorter than 128 bytes";
    if (o->lies != o->inner)
        return "it is turned on the way";
    if (!find_dims(L, load, &w))
        return "its axes do not walk one dimension each, from starts that are known without memory";
    if (!is_multiple_of_16(view->offset->multiple, o->bytes) || L->buffer[view->buffer]->align % 16)
        return "its buffer is not aligned to 16 bytes";
    if (!tn_dim_is(view->stride[w.dim[o->inner]], 1))
        return "it has no neighbours along a row";
    *m = (tn_lmap){.buffer = L->buffer[view->buffer], .offset = view->offset, .swizzle = LINE};
    o->map_rows = (int)tn_min(o->rows, BOX_ROWS);
    int order[TN_MAX_RANK], n = 0;
    for (int i = 0; i < TN_MAP_RANK; i++)
        o->map_dim[i] = -1;
    order[n++] = w.dim[o->inner];
    order[n++] = w.dim[1 - o->inner];
    for (int d = 0; d < view->rank; d++)
        if (d != order[0] && d != order[1] && !tn_dim_is(view->stride[d], 0))
            order[n++] = d;
    if (n > TN_MAP_RANK)
        return "its view has more dimensions than a map";
    for (int i = 0; i < n; i++) {
        int d = order[i];
        m->size[i] = size_of(L, load, d, i < 2 ? w.check[i ? 1 - o->inner : o->inner] : -1);
        m->stride[i] = view->stride[d];
        m->box[i] = i == 0 ? (int)o->box : i == 1 ? o->map_rows : 1;
        o->map_dim[i] = d;
        if (!m->size[i])
            return "where it ends is not known";
        if (i && !is_multiple_of_16(m->stride[i]->multiple, o->bytes))
            return "a stride is not a multiple of 16 bytes";
    }
    m->rank = n;
    return NULL;
}

/* Nothing in the kernel that could change what is loaded stands before the end of the operation at its top that holds the load. */
static bool is_safe_ahead(lower *L, const tn_top *load)
{
    const tn_top *top = load;
    while (top->block->parent)
        top = top->block->parent;
    for (const tn_top *op = L->kernel->body->first; op; op = op->next) {
        if (lower_writes(L, op, load->view->buffer) || lower_acquires(L, op))
            return false;
        if (op == top)
            return true;
    }
    return false;
}

static void remark(lower *L, bool left, const char *why) { tn_text_add(&GPU(L)->remarks, "\n%s factor, no boxes: %s", left ? "left" : "right", why); }

static bool may_load(lower *L, gpu_operand *o, tn_lmap *m)
{
    const tn_top *load = o->value->def;
    const char *why = !load || load->code != TN_T_load ? "it is computed, or loaded by pointers"
                      : !is_safe_ahead(L, load)        ? "the kernel may change its buffer before"
                                                       : gpu_find_map(L, load, o, m);
    if (why)
        remark(L, o->left, why);
    return !why;
}

/* ---- rings ------------------------------------------------------------------------------------------------------------------ */

/* The loops around a product are ones that the producer can walk alone. */
static bool has_fixed_loops(const lower *L, const tn_tblock *block)
{
    for (const tn_top *loop = block->parent; loop; loop = loop->block->parent) {
        int bounds = loop->code == TN_T_fold ? loop->nranges : loop->code == TN_T_for ? 3 : 0;
        if (!bounds || !all_fixed(L, loop->operand, bounds))
            return false;
    }
    return true;
}

static gpu_boxes *new_ring(lower *L, const tn_top *dot, const tn_tblock *block)
{
    gpu_boxes *x = TN_NEW(&L->arena, gpu_boxes);
    *x = (gpu_boxes){.dot = dot, .last = dot, .block = block};
    if (block->parent && block->parent->code == TN_T_fold)
        x->turns.index = &block->arg[0];
    TN_PUSH(&L->arena, &GPU(L)->boxes, x);
    return x;
}

static void add_operand(lower *L, gpu_boxes *x, const gpu_operand *o, const tn_lmap *m)
{
    gpu_operand *mine = tn_memdup(&L->arena, o, sizeof *o);
    mine->map = tn_lfunc_map(L->func, m);
    mine->width = 16 / o->bytes;
    x->operand[x->n++] = mine;
    *tn_map_at(&GPU(L)->ready, TN_KEY(o->value)) = mine;
}

/* An operand that an earlier product has for its own already. */
static gpu_operand *known_operand(lower *L, const tn_tvalue *v, gpu_boxes **ring)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        for (int k = 0; k < GPU(L)->boxes.at[i]->n; k++)
            if (GPU(L)->boxes.at[i]->operand[k]->value == v) {
                *ring = GPU(L)->boxes.at[i];
                return (*ring)->operand[k];
            }
    return NULL;
}

/* An operand of the dot that a ring has: read along rows, or turned if its elements are such that both can be. */
static bool is_known(lower *L, const tn_top *dot, const gpu_operand *o)
{
    gpu_boxes *ring = NULL;
    const gpu_operand *known = known_operand(L, o->value, &ring);
    return known && known->inner == o->inner && (ring->block == dot->block || ring->block == L->kernel->body);
}

static bool turns_with(const tn_top *dot, const gpu_operand *o) { return o->value->def && o->value->def->block == dot->block; }

/* The operand is there for the dot from its ring's first one on. */
static void read_ring(lower *L, const tn_top *dot, int number, const tn_tvalue *loaded)
{
    gpu_boxes *ring = NULL;
    gpu_operand *o = known_operand(L, loaded, &ring);
    *tn_map_at(&GPU(L)->ready, TN_KEY(&dot->operand[number])) = o;
    if (ring && ring->dot)
        ring->last = dot;
}

/* Both operands of a product that a fold adds up; of another one those that its loop loads, and a left one that is the same for the whole program. What several
 * products of a loop load is there once. */
static void plan_dot(void *context, tn_top *dot)
{
    lower *L = context;
    gpu_operand o[2];
    tn_lmap m[2];
    bool boxes[2] = {false, false};
    if (dot->code != TN_T_dot || !gpu_dot_is_by_groups(L, dot))
        return;
    if (!has_fixed_loops(L, dot->block)) {
        tn_text_add(&GPU(L)->remarks, "\nno boxes: a loop around a product has bounds that are not known without memory");
        return;
    }
    const tn_top *loop = dot->block->parent;
    bool known[2], fold = loop && loop->code == TN_T_fold;
    for (int i = 0; i < 2; i++) {
        if (!gpu_operand_of(L, dot, i, &o[i]))
            return;
        gpu_unturn_operand(&o[i]);
        known[i] = !fold && is_known(L, dot, &o[i]);
        boxes[i] = !tn_map_get(&GPU(L)->ready, TN_KEY(o[i].value)) && may_load(L, &o[i], &m[i]);
    }
    bool right = boxes[1] && turns_with(dot, &o[1]), left = boxes[0] && turns_with(dot, &o[0]);
    if (fold && !(left && right))
        return;
    gpu_boxes *x = right ? new_ring(L, dot, dot->block) : NULL;
    if (right)
        add_operand(L, x, &o[1], &m[1]);
    if (left && (right || known[1]))
        add_operand(L, right ? x : new_ring(L, dot, dot->block), &o[0], &m[0]);
    else if (boxes[0] && o[0].value->def->block == L->kernel->body && (right || known[1]))
        add_operand(L, new_ring(L, NULL, L->kernel->body), &o[0], &m[0]);
    for (int i = 0; i < 2; i++)
        if (is_known(L, dot, &o[i]))
            read_ring(L, dot, i, o[i].value);
    TN_PUSH(&L->arena, &GPU(L)->products, dot);
}

static void find_assertion(void *context, tn_top *op) { *(bool *)context |= op->code == TN_T_assert; }

static int64_t ring_bytes(const gpu_boxes *x)
{
    int64_t bytes = 0;
    for (int i = 0; i < x->n; i++)
        bytes += gpu_operand_elements(x->operand[i]) * x->operand[i]->bytes;
    return bytes;
}

/* The same in every program. */
static bool is_uniform(const lower *L, const tn_tvalue *v, int *budget)
{
    int64_t step;
    if (--*budget < 0 || lower_range_of(L, v, &step) || (!v->def && (v->block || v->type.pointer)))
        return false;
    if (v->def && v->def->code != TN_T_map && v->def->code != TN_T_cast && v->def->code != TN_T_const && v->def->code != TN_T_size && v->def->code != TN_T_assume)
        return false;
    for (int i = 0; v->def && i < v->def->noperands; i++)
        if (!is_uniform(L, v->def->operand[i], budget))
            return false;
    return true;
}

static void find_synchronisation(void *context, tn_top *op) { *(bool *)context |= lower_synchronises(op); }

/* Why there can't be several instances, NULL: nothing is known yet that speaks against them. */
static const char *why_alone(lower *L)
{
    const gpu_lower *g = GPU(L);
    const tn_top *loop = g->boxes.at[0]->block->parent;
    bool synchronises = false;
    int budget = LOWER_BUDGET;
    tn_tile_walk(L->kernel->body, find_synchronisation, &synchronises);
    if (g->alone)
        return "what comes behind the products takes shared memory";
    if (g->boxes.len > 1 || !loop || loop->code != TN_T_fold || loop->block != L->kernel->body)
        return "there is more than one fold's product";
    for (int i = 0; i < loop->nranges; i++)
        if (!is_uniform(L, loop->operand[i], &budget))
            return "programs differ in their turns";
    return g->shared ? "it has local buffers" : synchronises ? "programs wait for each other" : NULL;
}

/* How many programs a CTA works on at once. */
static int instances_of(lower *L)
{
    int wanted = (int)tn_schedule_get(&L->kernel->schedule, "", "instances", 1);
    const char *why = wanted > 1 ? why_alone(L) : NULL;
    if (why)
        tn_text_add(&GPU(L)->remarks, "\nno instances: %s", why);
    return why || L->func->threads * wanted + GROUP > TN_MOST_THREADS ? 1 : wanted;
}

/* Stages of the ring, at most so many; `whole` of one that turns with programs: two let the next program's operands come while this one computes. */
static int stages_of(const lower *L, const gpu_boxes *x, int most, int whole)
{
    enum { STAGES = 3 };
    const tn_schedule *schedule = &L->kernel->schedule;
    const tn_top *loop = x->block->parent;
    if (!loop)
        return whole;
    int64_t wanted = tn_schedule_get(schedule, loop->label ? loop->label : "", "stages", tn_schedule_get(schedule, "", "stages", STAGES));
    return (int)tn_max(2, tn_min(most, wanted + (loop->code == TN_T_fold))); /* of a fold's the products of one more are under way */
}

static bool lie_alike(const gpu_operand *x, const gpu_operand *y)
{
    return x->left == y->left && x->inner == y->inner && x->rows == y->rows && x->columns == y->columns && x->box == y->box && x->bytes == y->bytes && x->map_rows == y->map_rows;
}

static bool is_inside(const tn_tblock *block, const tn_tblock *outer)
{
    while (block && block != outer)
        block = block->parent ? block->parent->block : NULL;
    return block != NULL;
}

static bool is_apart(const tn_tblock *x, const tn_tblock *y) { return !is_inside(x, y) && !is_inside(y, x); }

static bool may_go_on_with(const gpu_boxes *x, const gpu_boxes *earlier)
{
    const tn_top *loop = x->block->parent, *before = earlier->block->parent;
    if (earlier->earlier || !loop || !before || loop->code != TN_T_for || before->code != TN_T_for || x->n != earlier->n || !is_apart(x->block, earlier->block))
        return false;
    for (int k = 0; k < x->n; k++)
        if (!lie_alike(x->operand[k], earlier->operand[k]))
            return false;
    return true;
}

/* Another ring of the same loop, or of one around it or in it, goes on with that one. */
static bool is_taken(const gpu_lower *g, const gpu_boxes *x, const gpu_boxes *earlier)
{
    for (size_t i = 0; i < g->boxes.len; i++)
        if (g->boxes.at[i]->earlier == earlier && !is_apart(g->boxes.at[i]->block, x->block))
            return true;
    return false;
}

/* Loops that follow each other, of which one walks keys that all rows see and the other one the rest, say, have rings in common. */
static void share_rings(lower *L)
{
    gpu_lower *g = GPU(L);
    for (size_t i = 0; i < g->boxes.len; i++)
        for (size_t j = 0; j < i && !g->boxes.at[i]->earlier; j++)
            if (may_go_on_with(g->boxes.at[i], g->boxes.at[j]) && !is_taken(g, g->boxes.at[i], g->boxes.at[j]))
                g->boxes.at[i]->earlier = g->boxes.at[j];
}

/* Buffers for each ring, as many as are wanted and fit, `other` bytes left. */
static bool fit(lower *L, int64_t other)
{
    enum { SLACK = 2048 };
    gpu_lower *g = GPU(L);
    for (int most = g->most_stages; most >= 2; most--)
        for (int whole = 2; whole > 0; whole--) {
            int64_t bytes = SLACK;
            for (size_t i = 0; i < g->boxes.len; i++) {
                gpu_boxes *x = g->boxes.at[i];
                x->stages = x->earlier ? x->earlier->stages : stages_of(L, x, most, whole);
                bytes += x->earlier ? 0 : x->stages * ring_bytes(x);
            }
            if (bytes <= gpu_most_shared(L) - g->shared - other)
                return true;
        }
    return false;
}

/* Buffers of results that a store asks for: four where all products are a fold's, which results cost about as much as (16384x3072x768 with GELU: 1.064 of cuBLAS's bare
 * product, with two 1.029, with none 1.041). */
static int64_t wanted_results(const lower *L)
{
    enum { USUAL = 4 };
    bool folds = true;
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        folds &= GPU(L)->boxes.at[i]->block->parent && GPU(L)->boxes.at[i]->block->parent->code == TN_T_fold;
    return tn_schedule_get(&L->kernel->schedule, "", "result-boxes", folds ? USUAL : 0);
}

/* Stages that hide latencies while products run: 5 of 512 cycles (128 x 128 x 64 of 2 bytes). Of longer ones fewer, which was measured of f8 alone: 3 of 1024 (128 x 256 x 128) and four
 * buffers of results 1.08, 1.017 of cuBLAS, 4 and two 1.045, 1.00. */
static int64_t enough_stages(const gpu_boxes *x)
{
    enum { ENOUGH = 5, EACH = 512, BYTES_RATE = 4096 /* multiply-adds a cycle, by bytes of a factor */ };
    if (!x->dot || x->operand[0]->bytes > 1)
        return ENOUGH;
    const tn_ttype *sums = &x->dot->result->type;
    int64_t cycles = sums->extent[0].size * sums->extent[1].size * x->dot->operand[0]->type.extent[1].size / BYTES_RATE;
    return tn_min(ENOUGH, tn_ceildiv(ENOUGH * EACH, tn_max(cycles, 1)));
}

/* The rings, and as many buffers of results as leave them what they need to hide latencies, or all that they could have. */
static bool fit_with_results(lower *L)
{
    gpu_lower *g = GPU(L);
    if (!fit(L, 0))
        return false;
    int *stages = TN_NEW_ARRAY(&L->arena, int, g->boxes.len);
    for (size_t i = 0; i < g->boxes.len; i++)
        stages[i] = g->boxes.at[i]->stages;
    int64_t most = wanted_results(L), instances = tn_schedule_get(&L->kernel->schedule, "", "instances", 1);
    if (most)
        gpu_find_results(L);
    most = most == 3 ? 2 : most; /* a power of two */
    for (; most && g->results.len; most /= 2) {
        bool enough = fit(L, gpu_bound_results(L, most) * instances);
        for (size_t i = 0; i < g->boxes.len; i++)
            enough &= g->boxes.at[i]->stages >= tn_min(stages[i], enough_stages(g->boxes.at[i]));
        if (enough)
            return true;
    }
    g->results.len = 0;
    return fit(L, 0);
}

void gpu_plan_boxes(lower *L)
{
    gpu_lower *g = GPU(L);
    bool asserts = false; /* a thread that ends early leaves the producer waiting */
    tn_tile_walk(L->kernel->body, find_assertion, &asserts);
    if (asserts)
        tn_text_add(&g->remarks, "\nno boxes: it asserts");
    if (asserts || !g->most_stages)
        return;
    tn_tile_walk(L->kernel->body, plan_dot, L);
    if (!g->boxes.len)
        return;
    share_rings(L);
    if (!fit_with_results(L)) {
        tn_text_add(&g->remarks, "\nno boxes: two stages do not fit in shared memory");
        g->boxes.len = 0;
        g->ready = (tn_map){.arena = &L->arena};
        L->func->maps.len = 0;
        return;
    }
    int n = 0;
    g->instances = instances_of(L);
    for (size_t i = 0; i < g->boxes.len; i++) {
        gpu_boxes *x = g->boxes.at[i];
        for (int k = 0; k < x->n && x->earlier; k++)
            x->operand[k]->buffer = x->earlier->operand[k]->buffer;
        x->first = x->earlier ? x->earlier->first : n;
        if (x->earlier)
            continue;
        for (int k = 0; k < x->n; k++)
            gpu_give_buffer(L, x->operand[k], x->stages);
        x->first_turn = n + 2 * x->stages;
        n = x->first_turn + (g->instances > 1 ? g->instances : 0);
    }
    gpu_give_results(L);
    g->mbarriers = gpu_shared(L, "mbarriers", TN_I64, n);
    tn_tile_walk(L->kernel->body, gpu_find_overlap, L);
}

gpu_boxes *gpu_boxes_of_fold(lower *L, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->dot == dot)
            return GPU(L)->boxes.at[i];
    return NULL;
}

gpu_boxes *gpu_boxes_of_load(lower *L, const tn_top *load)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++) {
        gpu_boxes *x = GPU(L)->boxes.at[i];
        if (!x->dot && x->operand[0]->value->def == load)
            return x;
    }
    return NULL;
}

gpu_ring *gpu_box_turns(gpu_boxes *x) { return &x->turns; }
bool gpu_box_is_ahead(const gpu_boxes *x) { return x->stages > 1; }

/* ---- turns -------------------------------------------------------------------------------------------------------------------- */

/* Counters have 64 bits: of a product from 32 to 64 bits (a stage) and the sum with a descriptor ptxas 13.0 makes one instruction that drops the descriptor's upper word. */
static tn_lvalue *get(tn_lbuilder *b, tn_lvalue *counter) { return tn_l_load(b, counter, tn_l_index(b, 0), 1, NULL, NULL); }
static void set(tn_lbuilder *b, tn_lvalue *counter, tn_lvalue *x) { tn_l_store(b, counter, tn_l_index(b, 0), x, NULL); }

static tn_lvalue *new_counter(tn_lbuilder *b, const char *name, tn_lvalue *first)
{
    tn_lvalue *counter = tn_l_alloc(b, name, TN_I64, TN_SPACE_REG, 1);
    set(b, counter, first);
    return counter;
}

/* At the first program's first turn. */
static void start(tn_lbuilder *b, gpu_boxes *x)
{
    if (x->earlier) {
        x->stage = x->earlier->stage;
        x->parity = x->earlier->parity;
        return;
    }
    x->stage = new_counter(b, "stage", tn_l_index(b, 0));
    x->parity = new_counter(b, "parity", tn_l_index(b, 0));
}

static tn_lvalue *in_ring(tn_lbuilder *b, const gpu_boxes *x, tn_lvalue *turns, tn_lvalue **parity)
{
    tn_lvalue *stages = tn_l_index(b, x->stages);
    *parity = tn_l_fn2(b, TN_S_and, tn_l_fn2(b, TN_S_div, turns, stages), tn_l_index(b, 1));
    return tn_l_fn2(b, TN_S_rem, turns, stages);
}

/* At the first turn of the program that the instance has first. */
static void start_instance(lower *L, tn_lbuilder *b, gpu_boxes *x)
{
    gpu_lower *g = GPU(L);
    gpu_ring ring = x->turns;
    gpu_count_turns(L, b, x->block->parent, &ring);
    tn_lvalue *zero = tn_l_index(b, 0), *step, *turns = tn_l_fn2(b, TN_S_max, ring.limit, zero), *parity;
    int64_t by = 1;
    tn_l_is_const(ring.step, &by);
    step = tn_l_index(b, by);
    turns = tn_l_fn2(b, TN_S_div, gpu_plus(b, turns, tn_l_index(b, by - 1)), step);
    tn_lvalue *stage = in_ring(b, x, tn_l_fn2(b, TN_S_mul, turns, g->instance), &parity);
    x->stage = new_counter(b, "stage", stage);
    x->parity = new_counter(b, "parity", parity);
    x->skip = in_ring(b, x, gpu_times(b, turns, g->instances - 1), &x->skip_parity);
    x->turn = new_counter(b, "turn", tn_l_cast(b, tn_l_fn2(b, TN_S_eq, g->instance, zero), TN_I64)); /* the first one's first turn is now: the phase before the first is over */
}

static tn_lvalue *stage_of(tn_lbuilder *b, const gpu_boxes *x) { return x->stages == 1 ? tn_l_index(b, 0) : get(b, x->stage); }

/* Its mbarrier of the stage. */
static tn_lvalue *mbarrier(tn_lbuilder *b, const gpu_boxes *x, int which, tn_lvalue *stage) { return gpu_plus(b, stage, tn_l_index(b, x->first + which * x->stages)); }

tn_lvalue *gpu_box_is_none(tn_lbuilder *b, const gpu_boxes *x) { return tn_l_fn2(b, TN_S_ge, stage_of(b, x), tn_l_index(b, x->stages)); }

void gpu_next_boxes(tn_lbuilder *b, const gpu_boxes *x)
{
    tn_lvalue *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1), *parity = get(b, x->parity), *other = tn_l_fn2(b, TN_S_xor, parity, one);
    if (x->stages == 1) {
        set(b, x->parity, other);
        return;
    }
    tn_lvalue *next = gpu_plus(b, get(b, x->stage), one), *round = tn_l_fn2(b, TN_S_eq, next, tn_l_index(b, x->stages));
    set(b, x->stage, tn_l_fn3(b, TN_S_select, round, zero, next));
    set(b, x->parity, tn_l_fn3(b, TN_S_select, round, other, parity));
}

/* To the turn behind those of the programs that the others work on. */
static void skip_others(tn_lbuilder *b, const gpu_boxes *x)
{
    tn_lvalue *stage = gpu_plus(b, get(b, x->stage), x->skip), *over = tn_l_fn2(b, TN_S_ge, stage, tn_l_index(b, x->stages));
    tn_lvalue *parity = tn_l_fn2(b, TN_S_xor, get(b, x->parity), tn_l_fn2(b, TN_S_xor, x->skip_parity, tn_l_cast(b, over, TN_I64)));
    set(b, x->stage, tn_l_fn3(b, TN_S_select, over, gpu_plus(b, stage, tn_l_index(b, -x->stages)), stage));
    set(b, x->parity, parity);
}

static tn_lvalue *leads_group(lower *L)
{
    tn_lbuilder *e = &L->entry;
    return tn_l_fn2(e, TN_S_eq, tn_l_fn2(e, TN_S_and, GPU(L)->thread, tn_l_index(e, GROUP - 1)), tn_l_index(e, 0));
}

void gpu_take_turn(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    if (g->instances < 2)
        return;
    const gpu_boxes *x = g->boxes.at[0];
    tn_l_machine(b, "mbarrier_wait", (tn_lvalue *[]){g->mbarriers, gpu_plus(b, g->instance, tn_l_index(b, x->first_turn)), get(b, x->turn)}, 3);
}

void gpu_pass_turn(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    if (g->instances < 2)
        return;
    const gpu_boxes *x = g->boxes.at[0];
    tn_lvalue *one = tn_l_index(b, 1), *next = gpu_plus(b, g->instance, one), *zero = tn_l_index(b, 0);
    next = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_eq, next, tn_l_index(b, g->instances)), zero, next);
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, leads_group(L))->region[0]);
    tn_l_machine(&in, "mbarrier_arrive", (tn_lvalue *[]){g->mbarriers, gpu_plus(&in, next, tn_l_index(&in, x->first_turn))}, 2);
    set(b, x->turn, tn_l_fn2(b, TN_S_xor, get(b, x->turn), one));
}

/* Where the operands of its turn lie. */
static void locate(tn_lbuilder *b, gpu_boxes *x)
{
    tn_lvalue *stage = stage_of(b, x);
    for (int i = 0; i < x->n; i++)
        x->operand[i]->stage = gpu_times(b, stage, gpu_operand_elements(x->operand[i]));
}

static void await(lower *L, tn_lbuilder *b, const gpu_boxes *x)
{
    tn_l_machine(b, "mbarrier_wait", (tn_lvalue *[]){GPU(L)->mbarriers, mbarrier(b, x, FULL, stage_of(b, x)), get(b, x->parity)}, 3);
}

void gpu_await_boxes(lower *L, tn_lbuilder *b, gpu_boxes *x)
{
    await(L, b, x);
    locate(b, x);
}

void gpu_release_boxes(lower *L, tn_lbuilder *b, gpu_boxes *x, bool before, tn_lvalue *also)
{
    tn_lvalue *stage = stage_of(b, x);
    if (before && x->stages > 1)
        stage = tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_eq, stage, tn_l_index(b, 0)), tn_l_index(b, x->stages - 1), gpu_plus(b, stage, tn_l_index(b, -1)));
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, lower_and(b, leads_group(L), also))->region[0]); /* one of a warpgroup, whose products end together */
    tn_l_machine(&in, "mbarrier_arrive", (tn_lvalue *[]){GPU(L)->mbarriers, mbarrier(&in, x, EMPTY, stage)}, 2);
}

void gpu_await_dot(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->dot == dot)
            gpu_await_boxes(L, b, GPU(L)->boxes.at[i]);
}

void gpu_release_dot(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++) {
        gpu_boxes *x = GPU(L)->boxes.at[i];
        if (x->last != dot)
            continue;
        gpu_release_boxes(L, b, x, false, NULL);
        gpu_next_boxes(b, x);
    }
}

bool gpu_reads_own_rings(lower *L, const tn_top *dot)
{
    bool any = false;
    for (size_t i = 0; i < GPU(L)->boxes.len; i++) {
        const gpu_boxes *x = GPU(L)->boxes.at[i];
        if ((x->dot == dot) != (x->last == dot))
            return false;
        any |= x->dot == dot;
    }
    return any;
}

void gpu_locate_dot(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->dot == dot)
            locate(b, GPU(L)->boxes.at[i]);
}

void gpu_await_next_dot(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->dot == dot) {
            gpu_next_boxes(b, GPU(L)->boxes.at[i]);
            gpu_await_boxes(L, b, GPU(L)->boxes.at[i]);
        }
}

void gpu_release_dot_before(lower *L, tn_lbuilder *b, const tn_top *dot, tn_lvalue *also)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->last == dot)
            gpu_release_boxes(L, b, GPU(L)->boxes.at[i], true, also);
}

void gpu_next_of_dot(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->last == dot)
            gpu_next_boxes(b, GPU(L)->boxes.at[i]);
}

void gpu_await_again(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->dot == dot) {
            await(L, b, GPU(L)->boxes.at[i]);
            return;
        }
}

void gpu_release_program(lower *L, tn_lbuilder *b)
{
    for (size_t i = 0; i < GPU(L)->boxes.len && L->status == TN_OK; i++) {
        gpu_boxes *x = GPU(L)->boxes.at[i];
        if (x->dot || x->block != L->kernel->body)
            continue;
        gpu_release_boxes(L, b, x, false, NULL);
        gpu_next_boxes(b, x);
    }
    if (GPU(L)->instances > 1 && L->status == TN_OK)
        skip_others(b, GPU(L)->boxes.at[0]);
}

/* ---- the producer ---------------------------------------------------------------------------------------------------------------- */

enum { FAR_BITS = 30 /* starts below 2^30 are in reach of a map: it counts in 31 bits, and tiles are smaller than the rest */ };

/* Some bit from FAR_BITS on is set where one of the operand's boxes starts out of reach; more: of earlier operands. NULL: none ever does. */
static tn_lvalue *far_starts(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *more)
{
    const tn_top *load = o->value->def;
    for (int i = 0; i < TN_MAP_RANK && o->map_dim[i] >= 0; i++) {
        int d = o->map_dim[i];
        const tn_tvalue *start = load->subscript[d].value;
        if (!tn_dim_is(load->view->shape[d], TN_TILE_ANY) || lower_not_negative(L, start))
            continue;
        tn_lvalue *at = tn_l_cast(b, lower_scalar(L, b, start), TN_I64);
        more = more ? tn_l_fn2(b, TN_S_or, more, at) : at;
    }
    return more;
}

/* Element by element, by what the load means. */
static void fill_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *stage)
{
    const tn_tvalue *v = o->value;
    tn_lbuilder in = *b;
    tn_lvalue *idx[2], *one = tn_l_index(b, 1);
    for (int a = 0; a < 2; a++) {
        tn_lop *loop = tn_l_for(&in, a ? "j" : "i", tn_l_index(&in, 0), tn_l_index(&in, v->type.extent[a].size), one, TN_FOR_SERIAL);
        in = tn_l_in(&in, loop->region[0]);
        idx[a] = loop->region[0]->arg;
    }
    scope s = lower_open(L);
    access a = lower_resolve(L, &in, v->def, idx);
    tn_lvalue *zero = tn_l_const(&in, tn_lscalar(v->type.dtype), (tn_number){0}), *at = gpu_element_at(&in, o, idx[1 - o->inner], idx[o->inner]);
    tn_lvalue *x = tn_l_load(&in, L->buffer[v->def->view->buffer], a.offset, 1, a.exists, a.exists ? zero : NULL);
    tn_l_store(&in, o->buffer, gpu_plus(&in, gpu_times(&in, stage, gpu_operand_elements(o)), at), x, NULL);
    lower_close(L, s);
}

void gpu_fetch_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *stage, tn_lvalue *full)
{
    const tn_top *load = o->value->def;
    tn_lvalue *at[TN_MAP_RANK];
    int rank = 0;
    for (; rank < TN_MAP_RANK && o->map_dim[rank] >= 0; rank++)
        at[rank] = tn_l_cast(b, lower_scalar(L, b, load->subscript[o->map_dim[rank]].value), TN_I64);
    const char *name = tn_format(&L->session->arena, "box_load_%d", rank);
    for (int64_t column = 0; column < o->columns; column += o->box)
        for (int64_t row = 0; row < o->rows; row += o->map_rows) {
            tn_lvalue *operand[TN_MAP_RANK + 5] = {o->buffer, gpu_plus(b, gpu_times(b, stage, gpu_operand_elements(o)), tn_l_index(b, column * o->rows + row * o->box)), o->map};
            for (int i = 0; i < rank; i++)
                operand[3 + i] = gpu_plus(b, at[i], tn_l_index(b, i == 0 ? column : i == 1 ? row : 0));
            operand[3 + rank] = GPU(L)->mbarriers;
            operand[4 + rank] = full;
            tn_l_machine(b, name, operand, rank + 5);
        }
}

static void fetch(lower *L, tn_lbuilder *b, gpu_boxes *x)
{
    scope s = lower_open(L);
    tn_lvalue *stage = stage_of(b, x), *full = mbarrier(b, x, FULL, stage), *bars = GPU(L)->mbarriers;
    tn_l_machine(b, "mbarrier_wait", (tn_lvalue *[]){bars, mbarrier(b, x, EMPTY, stage), tn_l_fn2(b, TN_S_xor, get(b, x->parity), tn_l_index(b, 1))}, 3);
    tn_lbuilder in = *b;
    tn_lvalue *far = NULL;
    for (int i = 0; i < x->n; i++)
        far = far_starts(L, b, x->operand[i], far);
    if (far) {
        tn_lop *either = tn_l_if(b, tn_l_fn2(b, TN_S_eq, tn_l_fn2(b, TN_S_shr_logical, far, tn_l_index(b, FAR_BITS)), tn_l_index(b, 0)));
        tn_lbuilder by_hand = tn_l_in(b, either->region[1]);
        scope hand = lower_open(L);
        for (int i = 0; i < x->n; i++)
            fill_operand(L, &by_hand, x->operand[i], stage);
        tn_l_machine(&by_hand, "fence_async", NULL, 0);
        tn_l_machine(&by_hand, "mbarrier_arrive", (tn_lvalue *[]){bars, full}, 2);
        lower_close(L, hand);
        in = tn_l_in(b, either->region[0]);
    }
    scope boxes = lower_open(L);
    tn_l_machine(&in, "mbarrier_expect", (tn_lvalue *[]){bars, full, tn_l_index(&in, ring_bytes(x))}, 3);
    for (int i = 0; i < x->n; i++)
        gpu_fetch_operand(L, &in, x->operand[i], stage, full);
    lower_close(L, boxes);
    gpu_next_boxes(b, x);
    lower_close(L, s);
}

static gpu_boxes *ring_of_block(lower *L, const tn_tblock *block)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (GPU(L)->boxes.at[i]->block == block)
            return GPU(L)->boxes.at[i];
    return NULL;
}

static bool has_rings(lower *L, const tn_top *loop)
{
    for (size_t i = 0; i < GPU(L)->boxes.len; i++)
        if (is_inside(GPU(L)->boxes.at[i]->block, loop->region[0]))
            return true;
    return false;
}

bool gpu_loop_has_boxes(lower *L, const tn_top *loop) { return ring_of_block(L, loop->region[0]) != NULL; }

bool gpu_is_fed_by_boxes(lower *L, const tn_top *op)
{
    return op->code == TN_T_fold ? gpu_loop_has_boxes(L, op) : op->code == TN_T_for && has_rings(L, op);
}

static void fetch_fold(lower *L, tn_lbuilder *b, const tn_top *fold, gpu_boxes *x)
{
    gpu_count_turns(L, b, fold, &x->turns);
    tn_lop *loop = tn_l_for(b, "k0", x->turns.first, x->turns.limit, x->turns.step, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    scope s = lower_open(L);
    gpu_bind_turn(L, &in, &x->turns, loop->region[0]->arg);
    fetch(L, &in, x);
    lower_close(L, s);
}

static void fetch_block(lower *L, tn_lbuilder *b, const tn_tblock *block);

static void fetch_for(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_lvalue *lo, *hi, *step;
    gpu_loop_bounds(L, b, op, &lo, &hi, &step);
    tn_lop *loop = tn_l_for(b, "i", lo, hi, step, TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    scope s = lower_open(L);
    lower_memo(L, &op->region[0]->arg[0], NULL, (element){loop->region[0]->arg, NULL});
    fetch_block(L, &in, op->region[0]);
    lower_close(L, s);
}

static void fetch_block(lower *L, tn_lbuilder *b, const tn_tblock *block)
{
    for (const tn_top *op = block->first; op && L->status == TN_OK; op = op->next) {
        gpu_boxes *x = op->code == TN_T_load ? gpu_boxes_of_load(L, op) : op->code == TN_T_fold ? ring_of_block(L, op->region[0]) : NULL;
        b->line = op->loc.line;
        for (size_t i = 0; op->code == TN_T_dot && i < GPU(L)->boxes.len; i++)
            if (GPU(L)->boxes.at[i]->dot == op)
                fetch(L, b, GPU(L)->boxes.at[i]);
        if (x && op->code == TN_T_fold)
            fetch_fold(L, b, op, x);
        else if (x)
            fetch(L, b, x);
        else if (op->code == TN_T_for && has_rings(L, op))
            fetch_for(L, b, op);
    }
}

static void fetch_program(lower *L, tn_lbuilder *b) { fetch_block(L, b, L->kernel->body); }

/* ---- both --------------------------------------------------------------------------------------------------------------------------- */

static void init_mbarriers(lower *L, tn_lbuilder *b, tn_lvalue *thread)
{
    gpu_lower *g = GPU(L);
    int turns = g->instances > 1 ? g->instances : 0, groups = g->warps / 4;
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, tn_l_fn2(b, TN_S_eq, thread, tn_l_index(b, 0)))->region[0]);
    for (size_t i = 0; i < g->boxes.len; i++) {
        const gpu_boxes *x = g->boxes.at[i];
        for (int k = 0; k < 2 * x->stages + turns && !x->earlier; k++)
            tn_l_machine(&in, "mbarrier_init", (tn_lvalue *[]){g->mbarriers, tn_l_index(&in, x->first + k), tn_l_index(&in, k < x->stages ? 1 : groups)}, 3);
    }
    tn_l_machine(&in, "mbarrier_fence", NULL, 0);
    tn_l_barrier(b);
}

/* Registers that threads have by themselves: a quarter of a processor's for the warps of each quarter. */
static int64_t registers_of(const lower *L, int64_t threads)
{
    enum { QUARTERS = 4, MOST = 255 };
    return tn_min(gpu_processor_registers(L) / QUARTERS / (tn_ceildiv(threads, GROUP) * TN_WARP) / EIGHT * EIGHT, MOST / EIGHT * EIGHT);
}

/* Registers that products want of a thread, addresses and what comes behind them included: where most of it is under way at once. */
static int64_t wanted_registers(lower *L)
{
    enum { REST = 64 };
    const gpu_lower *g = (const gpu_lower *)L;
    int64_t most = 0;
    for (size_t i = 0; i < g->products.len; i++) {
        const tn_tblock *block = g->products.at[i]->block;
        int64_t words = 0;
        for (size_t k = 0; k < g->products.len; k++)
            words += is_apart(g->products.at[k]->block, block) ? 0 : gpu_sum_words(L, g->products.at[k]);
        for (size_t k = 0; k < g->overlaps.len; k++)
            words += is_apart(g->overlaps.at[k]->loop->region[0], block) ? 0 : g->overlaps.at[k]->words;
        most = tn_max(most, words);
    }
    return REST + most;
}

/* Those that each of so many others has where a whole warpgroup hands over what it does not keep. */
static int64_t given_registers(const lower *L, int64_t computing, int64_t kept)
{
    enum { MOST = 240 };
    int64_t all = registers_of(L, computing + GROUP) * ((computing + GROUP) / GROUP);
    return tn_min((all - kept) / (computing / GROUP) / EIGHT * EIGHT, MOST);
}

/* Registers that a thread that copies keeps then: the fewest only where the others need all there are. */
static int64_t producer_registers(lower *L, int64_t computing)
{
    enum { USUAL = 40, FEWEST = 24 };
    return wanted_registers(L) > given_registers(L, computing, USUAL) ? FEWEST : USUAL;
}

/* CTAs of which a processor has the memory, threads and registers, of a kernel that is lowered. */
static int resident(lower *L)
{
    enum { THREADS = 2048, SYSTEM = 1024 /* bytes of shared memory a CTA */ };
    const gpu_lower *g = (const gpu_lower *)L;
    int64_t threads = L->func->threads, each = tn_min(tn_ceildiv(wanted_registers(L) + g->kept_words, EIGHT) * EIGHT, registers_of(L, threads));
    int64_t by_registers = gpu_processor_registers(L) / (threads * each), by_memory = (gpu_most_shared(L) + SYSTEM) / (g->most_at_once + SYSTEM);
    return (int)tn_max(1, tn_min(THREADS / threads, tn_min(by_registers, by_memory)));
}

/* Threads are told apart in their instance; thread: among all. By way of a lane, as in dot.c. */
static void tell_apart(lower *L, tn_lvalue *thread)
{
    gpu_lower *g = GPU(L);
    tn_lbuilder *e = &L->entry;
    int64_t each = g->warps * TN_WARP;
    g->thread = tn_l_fn2(e, TN_S_and, thread, tn_l_index(e, each - 1));
    g->instance = tn_l_lane_at(e, tn_l_fn2(e, TN_S_div, thread, tn_l_index(e, each)), tn_l_index(e, 0));
}

static void compute(lower *L, tn_lbuilder *b, void (*body)(lower *L, tn_lbuilder *b))
{
    gpu_lower *g = GPU(L);
    if (g->instances > 1)
        start_instance(L, b, g->boxes.at[0]);
    for (size_t i = 0; i < g->boxes.len && g->instances == 1; i++)
        start(b, g->boxes.at[i]);
    gpu_start_turns(L, b);
    int64_t given = tn_loop_shared_bytes(L->func);
    lower_programs(L, b, body);
    gpu_end_results(L, b);
    g->own_memory = g->instances > 1 && tn_loop_shared_bytes(L->func) > given;
}

void gpu_programs_by_roles(lower *L, tn_lbuilder *b, void (*body)(lower *L, tn_lbuilder *b))
{
    gpu_lower *g = GPU(L);
    int64_t computing = L->func->threads * g->instances;
    tn_lvalue *thread = g->thread;
    /* A warp more costs each thread a third of its registers, or so: then a whole warpgroup copies, and gives up most of its own. */
    int64_t alone = registers_of(L, computing + TN_WARP), kept = producer_registers(L, computing), given = given_registers(L, computing, kept);
    bool hand_over = wanted_registers(L) > alone && given > alone;
    L->func->threads = (int)computing + (hand_over ? GROUP : TN_WARP);
    init_mbarriers(L, b, thread);
    if (g->instances > 1)
        tell_apart(L, thread);
    tn_lop *roles = tn_l_roles(b, computing, g->instances);
    L->entry.before = roles;
    tn_lbuilder in = tn_l_in(b, roles->region[0]);
    if (hand_over)
        tn_l_machine(&in, "setmaxnreg_inc", (tn_lvalue *[]){tn_l_index(&in, given)}, 1);
    scope computed = lower_open(L); /* what one role has computed the other does not see */
    compute(L, &in, body);
    lower_close(L, computed);
    if (L->status != TN_OK)
        return;
    in = tn_l_in(b, roles->region[1]);
    if (hand_over)
        tn_l_machine(&in, "setmaxnreg_dec", (tn_lvalue *[]){tn_l_index(&in, kept)}, 1);
    in = tn_l_in(&in, tn_l_if(&in, tn_l_fn2(&in, TN_S_eq, thread, tn_l_index(&in, computing)))->region[0]);
    for (size_t i = 0; i < g->boxes.len; i++)
        start(&in, g->boxes.at[i]);
    lower_programs(L, &in, fetch_program);
    L->func->persistent = resident(L);
}
