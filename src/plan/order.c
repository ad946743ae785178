/* The order of a program's steps, and steps that run twice so that their results need not be kept.
 *
 * Finding the order with the least memory is NP-hard. A few are made, each in time near-linear: the program's own, the cheapest step next (of those whose operands
 * are there, the one that leaves least alive), the same from the end backwards, and what became ready last first. The one with the lowest peak counts; of equal ones
 * the program's own. Steps with blocks and `define` steps stay where they are, and nothing passes them.
 *
 * Sizes that the inputs tell are those that the caller names, else a symbol's upper bound if it is small, else a usual one: an order is right for all sizes, it is only
 * chosen for these. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

enum { SMALL_BOUND = 1 << 16, USUAL_SIZE = 128 };

typedef struct touch {
    int step, buffer;
    bool reads, writes;
} touch;

typedef struct list {
    int *from; /* of each: where its part of `at` begins; one more at the end */
    int *at;
} list;

typedef struct pair {
    int step, out, in; /* buffers: the step may write `out` over `in` */
} pair;

/* The steps of the main block that run every time, and which buffers each reads and writes, those of its blocks too. */
typedef struct flow {
    tn_arena *arena;
    const tn_program *program;
    tn_step **step;
    int n;
    TN_VEC(touch) touches; /* by step */
    int *touch_from;       /* of each step: its first; one more at the end */
    list uses;             /* by buffer: touches, in order */
    int64_t *size;         /* by buffer, rounded */
    int64_t *planned;      /* the same; 0: what is not in a segment, and what one step alone has in its blocks */
    TN_VEC(pair) pairs;    /* by step */
    int *pair_from;
    bool *fixed;           /* by step: nothing passes it */
} flow;

/* ---- sizes ------------------------------------------------------------------------------------------------------------------ */

typedef struct looking {
    const tn_plan_sizes *sizes;
    tn_session *session;
} looking;

static bool look_up(void *context, const char *symbol, int64_t *value)
{
    const looking *l = context;
    if (l->sizes->size && l->sizes->size(l->sizes->context, symbol, value))
        return true;
    tn_dim dim = tn_dim_known(l->session, symbol);
    *value = dim && dim->hi <= SMALL_BOUND ? dim->hi : USUAL_SIZE;
    return true;
}

static int64_t size_of(const flow *f, const tn_plan_sizes *sizes, const tn_pbuffer *buffer)
{
    enum { MOST = 1 << 20 }; /* buffers: no sum overflows */
    looking l = {sizes, f->program->session};
    int64_t n;
    size_t bytes;
    if (!tn_dim_eval(buffer->elements, look_up, &l, &n) || !tn_dtype_bytes(buffer->type.dtype, n, &bytes) || bytes > (size_t)(INT64_MAX / 4 / MOST))
        return INT64_MAX / 4 / MOST;
    return tn_layout_rounded((int64_t)bytes);
}

/* ---- what steps touch --------------------------------------------------------------------------------------------------------- */

static void add_touch(flow *f, int *seen, int step, int buffer, bool reads, bool writes)
{
    if (seen[buffer] < f->touch_from[step]) {
        seen[buffer] = (int)f->touches.len;
        TN_PUSH(f->arena, &f->touches, ((touch){step, buffer, false, false}));
    }
    f->touches.at[seen[buffer]].reads |= reads;
    f->touches.at[seen[buffer]].writes |= writes;
}

static void add_touches(flow *f, int *seen, int index, const tn_step *step)
{
    for (int a = 0; a < step->nargs; a++) {
        bool writes = step->kind == TN_STEP_COPY && a == 0, reads = !writes;
        if (step->kind == TN_STEP_KERNEL) {
            tn_buffer_mode mode = tn_plan_parameter(step->kernel, a)->mode;
            writes = mode != TN_READ, reads = mode != TN_WRITE;
        }
        add_touch(f, seen, index, step->args[a], reads, writes);
    }
    for (int b = 0; b < step->nblocks; b++)
        for (size_t i = 0; i < step->blocks[b].list.len; i++)
            add_touches(f, seen, index, step->blocks[b].list.at[i]);
}

static void add_pairs(flow *f, int index, const tn_step *step)
{
    for (size_t i = 0; step->kind == TN_STEP_KERNEL && i < step->inplace.len; i++) {
        const tn_inplace *p = &step->inplace.at[i];
        if (tn_plan_same_place(step->kernel, p->out, p->in))
            TN_PUSH(f->arena, &f->pairs, ((pair){index, step->args[p->out], step->args[p->in]}));
    }
}

/* Of each key below m: the numbers, of n, that have it. */
static list by_key(tn_arena *arena, int m, size_t n, int (*key)(const void *context, size_t i), const void *context)
{
    list out = {TN_NEW_ARRAY(arena, int, (size_t)m + 2), TN_NEW_ARRAY(arena, int, n + 1)};
    for (size_t i = 0; i < n; i++)
        out.from[key(context, i) + 2]++;
    for (int k = 2; k <= m + 1; k++)
        out.from[k] += out.from[k - 1];
    for (size_t i = 0; i < n; i++)
        out.at[out.from[key(context, i) + 1]++] = (int)i;
    return out;
}

static int buffer_of_touch(const void *context, size_t i) { return ((const flow *)context)->touches.at[i].buffer; }

static const touch *use_at(const flow *f, int k) { return &f->touches.at[f->uses.at[k]]; }

static void make_flow(flow *f, tn_arena *arena, tn_program *program, const tn_plan_sizes *sizes)
{
    size_t nbuffers = program->buffers.len, nsteps = program->steps.list.len;
    *f = (flow){.arena = arena, .program = program, .step = TN_NEW_ARRAY(arena, tn_step *, nsteps + 1), .touch_from = TN_NEW_ARRAY(arena, int, nsteps + 2),
                .pair_from = TN_NEW_ARRAY(arena, int, nsteps + 2), .fixed = TN_NEW_ARRAY(arena, bool, nsteps + 1), .size = TN_NEW_ARRAY(arena, int64_t, nbuffers + 1),
                .planned = TN_NEW_ARRAY(arena, int64_t, nbuffers + 1)};
    int *seen = TN_NEW_ARRAY(arena, int, nbuffers + 1);
    memset(seen, -1, sizeof *seen * (nbuffers + 1));
    for (size_t i = 0; i < nsteps; i++) {
        tn_step *step = program->steps.list.at[i];
        if (step->init)
            continue;
        f->step[f->n] = step;
        f->fixed[f->n] = step->nblocks || step->kind == TN_STEP_DEFINE;
        add_touches(f, seen, f->n, step);
        add_pairs(f, f->n, step);
        f->n++;
        f->touch_from[f->n] = (int)f->touches.len;
        f->pair_from[f->n] = (int)f->pairs.len;
    }
    f->uses = by_key(arena, (int)nbuffers, f->touches.len, buffer_of_touch, f);
    for (size_t b = 0; b < nbuffers; b++) {
        const tn_pbuffer *buffer = &program->buffers.at[b];
        int uses = f->uses.from[b + 1] - f->uses.from[b];
        bool inside = uses == 1 && f->step[use_at(f, f->uses.from[b])->step]->nblocks;
        f->size[b] = size_of(f, sizes, buffer);
        f->planned[b] = buffer->kind == TN_B_TEMP && !buffer->persistent && uses && !inside ? f->size[b] : 0;
    }
}

/* ---- what an order takes ------------------------------------------------------------------------------------------------------- */

typedef struct extent {
    int first, last, root; /* root: in whose memory it lies, its own number if in its own */
} extent;

typedef struct profile {
    extent *of;    /* by buffer */
    int64_t *live; /* by position */
    int64_t peak;
    int at;        /* the first position that reaches it */
} profile;

/* As share_in_place decides when it knows groups of sizes too. */
static void share(const flow *f, extent *of, int step, int position)
{
    for (int i = f->pair_from[step]; i < f->pair_from[step + 1]; i++) {
        int out = f->pairs.at[i].out, in = f->pairs.at[i].in;
        if (out == in || !f->planned[out] || !f->planned[in] || of[out].root != out || of[out].first != position || of[in].last != position || of[of[in].root].last != position)
            continue;
        of[out].root = of[in].root;
        of[of[in].root].last = of[out].last;
        return;
    }
}

static void measure(const flow *f, const int *order, profile *p)
{
    size_t nbuffers = f->program->buffers.len;
    *p = (profile){.of = TN_NEW_ARRAY(f->arena, extent, nbuffers + 1), .live = TN_NEW_ARRAY(f->arena, int64_t, (size_t)f->n + 1)};
    for (size_t b = 0; b < nbuffers; b++)
        p->of[b] = (extent){-1, -1, (int)b};
    for (int at = 0; at < f->n; at++)
        for (int t = f->touch_from[order[at]]; t < f->touch_from[order[at] + 1]; t++) {
            extent *e = &p->of[f->touches.at[t].buffer];
            e->first = e->first < 0 ? at : e->first;
            e->last = at;
        }
    for (int at = 0; at < f->n; at++)
        share(f, p->of, order[at], at);
    for (size_t b = 0; b < nbuffers; b++)
        if (f->planned[b] && p->of[b].root == (int)b) {
            p->live[p->of[b].first] += f->planned[b];
            p->live[p->of[b].last + 1] -= f->planned[b];
        }
    int64_t live = 0;
    for (int at = 0; at < f->n; at++) {
        p->live[at] = live += p->live[at];
        if (live > p->peak)
            p->peak = live, p->at = at;
    }
}

/* ---- orders ------------------------------------------------------------------------------------------------------------------------ */

typedef struct edge {
    int from, to; /* steps */
} edge;

typedef struct edges {
    TN_VEC(edge) list;
    list after, before; /* by step: edges */
} edges;

static void add_edge(const flow *f, edges *e, int from, int to)
{
    if (from >= 0 && from != to)
        TN_PUSH(f->arena, &e->list, ((edge){from, to}));
}

static int edge_from(const void *context, size_t i) { return ((const edges *)context)->list.at[i].from; }
static int edge_to(const void *context, size_t i) { return ((const edges *)context)->list.at[i].to; }

/* What is written is read later, what was read may be written later, two writers stay as they are. */
static void find_edges(const flow *f, edges *e)
{
    for (size_t b = 0; b < f->program->buffers.len; b++) {
        int writer = -1, reads_from = f->uses.from[b];
        for (int k = f->uses.from[b]; k < f->uses.from[b + 1]; k++) {
            const touch *t = use_at(f, k);
            add_edge(f, e, writer, t->step);
            if (!t->writes)
                continue;
            for (; reads_from < k; reads_from++)
                add_edge(f, e, use_at(f, reads_from)->step, t->step);
            writer = t->step;
            reads_from = k + 1;
        }
    }
    for (int i = 0, wall = -1; i < f->n; i++) {
        add_edge(f, e, wall, i);
        for (int k = wall + 1; f->fixed[i] && k < i; k++)
            add_edge(f, e, k, i);
        wall = f->fixed[i] ? i : wall;
    }
    e->after = by_key(f->arena, f->n, e->list.len, edge_from, e);
    e->before = by_key(f->arena, f->n, e->list.len, edge_to, e);
}

typedef struct ready {
    int64_t adds; /* bytes that are alive behind it and not before */
    int step;
} ready;

/* Steps that can come next: a heap, the one that adds least on top. A step whose `adds` fell is in it again. */
typedef struct search {
    const flow *f;
    const edges *edges;
    bool backwards;           /* from the end */
    TN_VEC(ready) heap;
    int64_t *adds;            /* by step */
    int *missing;             /* by step: of what it needs */
    int *left;                /* by buffer: touches to come */
    bool *done, *alive;
} search;

static bool sooner(const search *s, const ready *a, const ready *b)
{
    return a->adds != b->adds ? a->adds < b->adds : s->backwards ? a->step > b->step : a->step < b->step;
}

static void heap_push(search *s, int step)
{
    TN_PUSH(s->f->arena, &s->heap, ((ready){s->adds[step], step}));
    ready *h = s->heap.at;
    for (size_t i = s->heap.len - 1; i > 0 && sooner(s, &h[i], &h[(i - 1) / 2]); i = (i - 1) / 2) {
        ready x = h[i];
        h[i] = h[(i - 1) / 2];
        h[(i - 1) / 2] = x;
    }
}

static int heap_pop(search *s)
{
    ready *h = s->heap.at, top = h[0];
    h[0] = h[--s->heap.len];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < s->heap.len; child++)
            least = sooner(s, &h[child], &h[least]) ? child : least;
        if (least == i)
            return top.step;
        ready x = h[i];
        h[i] = h[least];
        h[least] = x;
        i = least;
    }
}

/* What a step adds falls when a buffer that it touches is alive already, and when nobody else will touch it. */
static void lower(search *s, int step, int64_t bytes)
{
    s->adds[step] -= bytes;
    if (!s->done[step] && s->missing[step] == 0)
        heap_push(s, step);
}

static void take_step(search *s, int step)
{
    const flow *f = s->f;
    s->done[step] = true;
    for (int t = f->touch_from[step]; t < f->touch_from[step + 1]; t++) {
        int b = f->touches.at[t].buffer;
        if (!f->planned[b])
            continue;
        bool first = !s->alive[b], last = --s->left[b] == 1;
        s->alive[b] = true;
        for (int k = f->uses.from[b]; (first || last) && k < f->uses.from[b + 1]; k++)
            if (!s->done[use_at(f, k)->step])
                lower(s, use_at(f, k)->step, first && last ? 2 * f->planned[b] : f->planned[b]);
    }
    const list *behind = s->backwards ? &s->edges->before : &s->edges->after;
    for (int k = behind->from[step]; k < behind->from[step + 1]; k++) {
        const edge *e = &s->edges->list.at[behind->at[k]];
        int next = s->backwards ? e->from : e->to;
        if (--s->missing[next] == 0)
            heap_push(s, next);
    }
}

static void cheapest_next(const flow *f, const edges *e, bool backwards, int *order)
{
    size_t n = (size_t)f->n + 1, nbuffers = f->program->buffers.len + 1;
    search s = {.f = f, .edges = e, .backwards = backwards, .adds = TN_NEW_ARRAY(f->arena, int64_t, n), .missing = TN_NEW_ARRAY(f->arena, int, n),
                .done = TN_NEW_ARRAY(f->arena, bool, n), .left = TN_NEW_ARRAY(f->arena, int, nbuffers), .alive = TN_NEW_ARRAY(f->arena, bool, nbuffers)};
    for (size_t b = 0; b + 1 < nbuffers; b++)
        s.left[b] = f->uses.from[b + 1] - f->uses.from[b];
    for (size_t t = 0; t < f->touches.len; t++)
        s.adds[f->touches.at[t].step] += s.left[f->touches.at[t].buffer] > 1 ? f->planned[f->touches.at[t].buffer] : 0;
    for (size_t i = 0; i < e->list.len; i++)
        s.missing[backwards ? e->list.at[i].from : e->list.at[i].to]++;
    for (int i = 0; i < f->n; i++)
        if (s.missing[i] == 0)
            heap_push(&s, i);
    for (int n_done = 0; s.heap.len;) {
        int step = heap_pop(&s);
        if (s.done[step])
            continue;
        order[backwards ? f->n - 1 - n_done : n_done] = step;
        n_done++;
        take_step(&s, step);
    }
}

/* What became ready last is next: a result is used while it is new. */
static void newest_next(const flow *f, const edges *e, int *order)
{
    int *missing = TN_NEW_ARRAY(f->arena, int, (size_t)f->n + 1), *stack = TN_NEW_ARRAY(f->arena, int, (size_t)f->n + 1), top = 0, n = 0;
    for (int i = f->n; i-- > 0;) {
        missing[i] = e->before.from[i + 1] - e->before.from[i];
        if (missing[i] == 0)
            stack[top++] = i;
    }
    while (top) {
        int step = order[n++] = stack[--top];
        for (int k = e->after.from[step + 1]; k-- > e->after.from[step];) {
            int next = e->list.at[e->after.at[k]].to;
            if (--missing[next] == 0)
                stack[top++] = next;
        }
    }
}

static int *own_order(const flow *f)
{
    int *order = TN_NEW_ARRAY(f->arena, int, (size_t)f->n + 1);
    for (int i = 0; i < f->n; i++)
        order[i] = i;
    return order;
}

/* Steps that run at load keep their places. */
static void put_in_order(tn_program *program, const flow *f, const int *order)
{
    for (size_t i = 0, k = 0; i < program->steps.list.len; i++)
        if (!program->steps.list.at[i]->init)
            program->steps.list.at[i] = f->step[order[k++]];
}

/* False: there is no better one than the program's own. */
static bool choose_order(tn_program *program, tn_arena *arena, const tn_plan_sizes *sizes)
{
    flow f;
    edges e = {.list = {.len = 0}};
    profile best, p;
    make_flow(&f, arena, program, sizes);
    int *order = own_order(&f), *chosen = NULL;
    measure(&f, order, &best);
    find_edges(&f, &e);
    for (int way = 0; way < 3; way++) {
        order = TN_NEW_ARRAY(arena, int, (size_t)f.n + 1);
        if (way < 2)
            cheapest_next(&f, &e, way == 1, order);
        else
            newest_next(&f, &e, order);
        measure(&f, order, &p);
        if (p.peak < best.peak)
            best = p, chosen = order;
    }
    if (chosen)
        put_in_order(program, &f, chosen);
    return chosen != NULL;
}

void tn_plan_order(tn_program *program, const tn_plan_sizes *sizes)
{
    enum { ROUNDS = 4 };
    bool better = true;
    for (int round = 0; better && round < ROUNDS; round++) { /* of equal steps the earlier one is next: another order has others */
        tn_arena arena = {.on_oom = program->session->arena.on_oom};
        better = choose_order(program, &arena, sizes);
        tn_arena_free(&arena);
    }
}

/* ---- computed twice ------------------------------------------------------------------------------------------------------------------ */

static void find_product(void *context, tn_top *op) { *(bool *)context |= op->code == TN_T_dot; }

static bool has_product(const tn_kernel *kernel)
{
    bool found = false;
    tn_tile_walk(kernel->body, find_product, &found);
    return found;
}

/* A result that nobody looks at where most is alive, and the step that could compute it again before its next use. */
typedef struct candidate {
    int buffer, maker, before; /* positions of the steps */
    double worth;              /* bytes that it frees for each byte that is moved again */
} candidate;

/* Its operands are there still when it is wanted again, or keeping those takes less. */
static bool can_repeat(const flow *f, const profile *p, int buffer, int maker, int before, int last_early)
{
    int64_t kept = 0;
    for (int t = f->touch_from[maker]; t < f->touch_from[maker + 1]; t++) {
        int b = f->touches.at[t].buffer;
        if (b == buffer)
            continue;
        if (f->touches.at[t].writes)
            return false;
        for (int k = f->uses.from[b]; k < f->uses.from[b + 1]; k++)
            if (use_at(f, k)->writes && use_at(f, k)->step > maker)
                return false;
        if (!f->planned[b] || p->of[b].last >= before)
            continue;
        if (p->of[b].last < last_early)
            return false;
        kept += f->planned[b];
    }
    return kept < f->planned[buffer];
}

static bool look_at(const flow *f, const profile *p, int buffer, candidate *out)
{
    int maker = use_at(f, f->uses.from[buffer])->step, before = -1, last_early = -1;
    const tn_step *step = f->step[maker];
    if (step->kind != TN_STEP_KERNEL || f->program->buffers.at[buffer].shared || has_product(step->kernel))
        return false;
    for (int k = f->uses.from[buffer]; k < f->uses.from[buffer + 1]; k++) {
        int user = use_at(f, k)->step;
        if (user == p->at || f->step[user]->nblocks || use_at(f, k)->writes != (user == maker))
            return false;
        if (user < p->at)
            last_early = user;
        else if (before < 0)
            before = user;
    }
    if (before < 0 || last_early < 0 || !can_repeat(f, p, buffer, maker, before, last_early))
        return false;
    double moved = 0;
    for (int a = 0; a < step->nargs; a++)
        moved += (double)f->size[step->args[a]];
    *out = (candidate){buffer, maker, before, (double)f->planned[buffer] / moved};
    return true;
}

static bool find_candidate(const flow *f, const profile *p, const tn_map *tried, candidate *out)
{
    bool found = false;
    for (size_t b = 0; b < f->program->buffers.len; b++) {
        candidate c;
        if (!f->planned[b] || p->of[b].first >= p->at || p->of[b].last <= p->at || tn_map_get(tried, (uint64_t)b + 1) || !look_at(f, p, (int)b, &c))
            continue;
        if (!found || c.worth > out->worth)
            *out = c, found = true;
    }
    return found;
}

static void rename_argument(tn_program *program, tn_step *step, int from, int to)
{
    step->args = tn_memdup(&program->session->arena, step->args, sizeof *step->args * (size_t)step->nargs); /* steps may have them together */
    for (int a = 0; a < step->nargs; a++)
        step->args[a] = step->args[a] == from ? to : step->args[a];
}

static void rename_users(tn_program *program, const flow *f, const candidate *c, int from, int to)
{
    for (int k = f->uses.from[c->buffer]; k < f->uses.from[c->buffer + 1]; k++)
        if (use_at(f, k)->step >= c->before)
            rename_argument(program, f->step[use_at(f, k)->step], from, to);
}

static size_t place_of(const tn_program *program, const tn_step *step)
{
    size_t i = 0;
    while (program->steps.list.at[i] != step)
        i++;
    return i;
}

/* The step once more, before `before`, into a buffer of its own that the users from there on take. */
static void repeat(tn_program *program, const flow *f, const candidate *c)
{
    tn_arena *arena = &program->session->arena;
    tn_step *step = tn_memdup(arena, f->step[c->maker], sizeof *step);
    step->again = true;
    tn_pbuffer buffer = program->buffers.at[c->buffer];
    int again = (int)program->buffers.len;
    TN_PUSH(arena, &program->buffers, buffer);
    rename_argument(program, step, c->buffer, again);
    rename_users(program, f, c, c->buffer, again);
    size_t at = place_of(program, f->step[c->before]);
    TN_PUSH(arena, &program->steps.list, NULL);
    tn_step **list = program->steps.list.at;
    memmove(&list[at + 1], &list[at], sizeof *list * (program->steps.list.len - 1 - at));
    list[at] = step;
}

static void take_back(tn_program *program, const flow *f, const candidate *c)
{
    size_t at = place_of(program, f->step[c->before]) - 1;
    tn_step **list = program->steps.list.at;
    memmove(&list[at], &list[at + 1], sizeof *list * (program->steps.list.len - 1 - at));
    program->steps.list.len--;
    program->buffers.len--;
    rename_users(program, f, c, (int)program->buffers.len, c->buffer);
}

static double excess(const flow *f, const profile *p, int64_t most)
{
    double sum = 0;
    for (int at = 0; at < f->n; at++)
        sum += (double)tn_max(p->live[at] - most, 0);
    return sum;
}

static bool fit(tn_program *program, tn_arena *arena, const tn_plan_sizes *sizes, int64_t most)
{
    tn_map tried = {.arena = &program->session->arena}; /* buffer + 1 */
    flow f, then;
    profile p, q;
    make_flow(&f, arena, program, sizes);
    measure(&f, own_order(&f), &p);
    for (int64_t work = INT64_C(1) << 24; p.peak > most && work > 0; work -= f.n + (int64_t)program->buffers.len) {
        candidate c;
        if (!find_candidate(&f, &p, &tried, &c))
            return false;
        *tn_map_at(&tried, (uint64_t)c.buffer + 1) = (void *)1;
        tn_arena next = {.on_oom = arena->on_oom};
        repeat(program, &f, &c);
        make_flow(&then, &next, program, sizes);
        measure(&then, own_order(&then), &q);
        if (excess(&then, &q, most) < excess(&f, &p, most)) {
            tn_arena_free(arena);
            *arena = next;
            f = then;
            f.arena = arena;
            p = q;
        } else {
            take_back(program, &f, &c);
            tn_arena_free(&next);
        }
    }
    return p.peak <= most;
}

bool tn_plan_recompute(tn_program *program, const tn_plan_sizes *sizes, int64_t most)
{
    tn_arena arena = {.on_oom = program->session->arena.on_oom};
    bool fits = fit(program, &arena, sizes, most);
    tn_arena_free(&arena);
    return fits;
}
