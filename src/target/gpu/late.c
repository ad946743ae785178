/* Products of a `for` that run on while threads compute: each is issued where it stands, and awaited where what it gives is wanted first.
 *
 *     loop:  S = …            known by the loop's index: issued first, one after another
 *            D = …
 *            wait for what the turn before left under way
 *            wait for S; P of S                   while D runs
 *            sums += P …                          under way
 *            wait for D; …
 *
 * Groups of wgmma end in their order: who is waited for has ended with all that are older. Sums that nothing but the next turn adds to are awaited there, behind its
 * first product, so that there is always one under way. What a ring holds is given back when the last product that reads it has ended. The interpreter, where
 * products are done at once, finds no wait that is missing.
 *
 * Two warpgroups issue the products that come first in turns, unless they meet in each turn anyway: else both would compute at once, and nobody multiply.
 *
 * The assembler moves a wait up over arithmetic that does not need it, but not over products, nor into another basic block: where no product stands before a wait,
 * the loop of an mbarrier's wait does, for what has arrived long since. */
#include "target/gpu/dot.h"

/* ---- order ------------------------------------------------------------------------------------------------------------------- */

enum { MOST_WORDS = 192 /* registers of a thread: sums that the loop carries and products that are issued first */ };

static bool is_in_order(const tn_top *op) { return op->code == TN_T_dot || lower_is_expression(op); }

static void mark(tn_map *marked, const tn_tvalue *v)
{
    if (v->def)
        *tn_map_at(marked, TN_KEY(v->def)) = (void *)(uintptr_t)v->def;
}

/* The dot `op`, what it is made of and what its sums start at go to before `at`, which stands before it in the same block. */
static void move_up(lower *L, const tn_top *loop, tn_top *op, tn_top *at)
{
    tn_map needed = {.arena = &L->arena};
    int budget = LOWER_BUDGET;
    const tn_tvalue *start = gpu_added_to(L, op);
    tn_top *last = op;
    mark(&needed, op->result);
    if (start && gpu_is_free(start, loop, &budget)) {
        mark(&needed, start);
        for (tn_top *in = op; in; in = in->next)
            last = in->result == start ? in : last;
    }
    for (const tn_top *in = last; in != at->prev; in = in->prev) {
        for (int i = 0; tn_map_get(&needed, TN_KEY(in)) && i < in->noperands; i++)
            mark(&needed, in->operand[i]);
        for (int d = 0; tn_map_get(&needed, TN_KEY(in)) && in->view && d < in->view->rank; d++)
            mark(&needed, in->subscript[d].value);
    }
    for (tn_top *in = at, *end = last->next, *next; in != end; in = next) {
        next = in->next;
        if (!tn_map_get(&needed, TN_KEY(in)) || in == op)
            continue;
        if (in == at)
            at = next;
        else
            tn_top_move_before(in, at);
    }
    if (op != at)
        tn_top_move_before(op, at);
}

static bool is_free(const tn_top *loop, const tn_top *dot)
{
    int budget = LOWER_BUDGET;
    return gpu_is_free(dot->operand[0], loop, &budget) && gpu_is_free(dot->operand[1], loop, &budget);
}

void gpu_issue_early(void *context, tn_top *loop)
{
    lower *L = context;
    TN_VEC(tn_top *) early = {0};
    int64_t words = 0;
    if (loop->code != TN_T_for)
        return;
    for (int i = 0; i < loop->nresults; i++)
        words += gpu_words(L, &loop->result[i].type);
    for (tn_top *op = loop->region[0]->first; op && is_in_order(op); op = op->next) {
        if (op->code != TN_T_dot || !gpu_dot_is_by_groups(L, op) || !is_free(loop, op))
            continue;
        words += gpu_words(L, &op->result->type);
        if (words > MOST_WORDS)
            break;
        TN_PUSH(&L->arena, &early, op);
    }
    for (size_t i = 1; i < early.len; i++)
        move_up(L, loop, early.at[i], early.at[i - 1]->next);
}

/* ---- what is under way --------------------------------------------------------------------------------------------------------- */

enum { LEFT = 8 /* products that a turn leaves under way, at most */ };

typedef struct under_way {
    const tn_top *dot;
    const gpu_product *product;
    const tn_tvalue *sum; /* of what adds the dot to something; NULL: nothing does */
    bool stored;          /* it reads what threads have stored */
} under_way;

typedef struct twice {
    const tn_tvalue *const *operand; /* its place in the dot */
    tn_lvalue *buffer;
} twice;

struct gpu_late {
    const tn_top *loop;
    TN_VEC(under_way) products; /* in the order they were issued in */
    bool issued;                /* one since the last wait */
    bool turns, mine;           /* warpgroups take turns; it is this one's */
    tn_map ended;               /* values of this turn's that have ended */
    tn_lvalue *index, *from, *to; /* the turn's index, the loop's range */
    tn_lbuilder behind;         /* where the turn's first product is issued */
    const tn_lop *issue;        /* the last operation of that; NULL: there is none yet */
    const tn_top *first;        /* that product */
    TN_VEC(twice) stored;       /* operands that threads store, each into one of two buffers in turns */
    tn_lvalue *side;            /* which one it is */
    int nleft;                  /* what a turn leaves under way: the product, the registers that the loop carries its sums in */
    const tn_top *left[LEFT];
    const place *sums[LEFT];
};

/* Computed in each turn, and no left factor in registers. */
static bool is_stored(lower *L, const tn_top *loop, const tn_top *dot, int number)
{
    bool turned;
    tn_layout ignored;
    const tn_tvalue *from = gpu_unturned(dot->operand[number], &turned);
    return from->def && from->def->block == loop->region[0] && !tn_map_get(&GPU(L)->ready, TN_KEY(&dot->operand[number])) &&
           !(number == 0 && gpu_fragments_of_dot(L, dot, &ignored));
}

/* Of an operand that threads store in each turn: room for two, so that a turn's is stored while somebody still reads the one before. Who stores the next but one has
 * met those who read it, at the barrier behind the next one. */
static void store_twice(lower *L, tn_lbuilder *b, gpu_late *x, const tn_top *dot, int number)
{
    enum { OTHER = 4 << 10 }; /* bytes for what else the loop shares */
    gpu_operand o;
    if (!is_stored(L, x->loop, dot, number) || !gpu_operand_of(L, dot, number, &o) ||
        GPU(L)->shared + 2 * gpu_operand_elements(&o) * o.bytes + OTHER > gpu_most_shared(L))
        return;
    gpu_give_buffer(L, &o, 2);
    gpu_touch_shared(L, b, o.buffer, true);
    twice t = {(const tn_tvalue *const *)&dot->operand[number], o.buffer};
    TN_PUSH(&L->arena, &x->stored, t);
}

static bool may_run_late(lower *L, const tn_top *loop)
{
    int dots = 0;
    for (const tn_top *op = loop->region[0]->first; op; op = op->next) {
        if (op->code == TN_T_dot && (!gpu_dot_is_by_groups(L, op) || op->result->type.dtype != TN_F32))
            return false;
        dots += op->code == TN_T_dot;
    }
    return dots && gpu_loop_has_boxes(L, loop);
}

bool gpu_late_takes_turns(lower *L, const tn_top *loop)
{
    /* An H200, bf16, 16 heads of 128, 4096 words, without turns and with them, TFLOP/s: three products by rows 758 and 767 (with a mask 606 and 722), four by keys 609 and 696; with a
     * barrier between products (five at once) 434 and 415. */
    bool stores = false;
    for (const tn_top *op = loop->region[0]->first; op; op = op->next)
        for (int i = 0; op->code == TN_T_dot && i < 2; i++)
            stores |= is_stored(L, loop, op, i);
    return GPU(L)->warps == 4 * GPU_TAKERS && !stores && may_run_late(L, loop);
}

gpu_late *gpu_enter_late(lower *L, tn_lbuilder *b, const tn_top *loop, tn_lvalue *from, tn_lvalue *to)
{
    if (!may_run_late(L, loop))
        return NULL;
    gpu_late *x = TN_NEW(&L->arena, gpu_late);
    *x = (gpu_late){.loop = loop, .ended = {.arena = &L->arena}, .from = from, .to = to, .turns = gpu_late_takes_turns(L, loop)};
    for (const tn_top *op = loop->region[0]->first; op; op = op->next)
        for (int i = 0; op->code == TN_T_dot && i < 2; i++)
            store_twice(L, b, x, op, i);
    if (x->stored.len)
        x->side = tn_l_alloc(b, "side", TN_I64, TN_SPACE_REG, 1);
    if (x->stored.len)
        tn_l_store(b, x->side, tn_l_index(b, 0), tn_l_index(b, 0), NULL);
    return x;
}

bool gpu_is_stored_twice(lower *L, tn_lbuilder *b, const tn_top *dot, int number, gpu_operand *o)
{
    const gpu_late *x = GPU(L)->late;
    for (size_t i = 0; x && i < x->stored.len; i++)
        if (x->stored.at[i].operand == (const tn_tvalue *const *)&dot->operand[number]) {
            o->buffer = x->stored.at[i].buffer;
            o->stage = gpu_times(b, tn_l_load(b, x->side, tn_l_index(b, 0), 1, NULL, NULL), gpu_operand_elements(o));
            o->apart = true;
            return true;
        }
    return false;
}

bool gpu_runs_late(const lower *L, const tn_top *dot)
{
    const gpu_late *x = ((const gpu_lower *)L)->late;
    return x && dot->block == x->loop->region[0];
}

void gpu_before_late(lower *L, tn_lbuilder *b, const tn_top *dot)
{
    gpu_late *x = GPU(L)->late;
    if (!gpu_runs_late(L, dot) || !x->turns || x->issue)
        return;
    gpu_take_group_turn(L, b);
    x->mine = true;
}

static void pass_turn(lower *L, tn_lbuilder *b, gpu_late *x)
{
    if (x->mine)
        gpu_pass_group_turn(L, b);
    x->mine = false;
}

void gpu_run_late(lower *L, tn_lbuilder *b, const tn_top *dot, const gpu_product *p, const tn_tvalue *sum, bool stored)
{
    gpu_late *x = GPU(L)->late;
    under_way now = {.dot = dot, .product = p, .sum = sum, .stored = stored};
    TN_PUSH(&L->arena, &x->products, now);
    x->issued = true;
    if (x->issue)
        return;
    x->behind = *b;
    x->issue = b->block->last;
    x->first = dot;
}

static void await_oldest(lower *L, tn_lbuilder *b, size_t n)
{
    gpu_late *x = GPU(L)->late;
    if (!n) /* so it is where there are none, and no list */
        return;
    size_t left = x->products.len - n;
    pass_turn(L, b, x);
    if (!x->issued)
        gpu_await_again(L, b, x->products.at[n - 1].dot);
    for (size_t i = 0; i < n; i++) {
        const tn_top *dot = x->products.at[i].dot;
        gpu_end_dot(L, b, x->products.at[i].product, (int)left);
        gpu_release_dot(L, b, dot);
        *tn_map_at(&x->ended, TN_KEY(dot->result)) = (void *)(uintptr_t)dot;
    }
    for (size_t i = 0; i < left; i++)
        x->products.at[i] = x->products.at[n + i];
    x->products.len = left;
    x->issued = false;
}

void gpu_await_stored(lower *L, tn_lbuilder *b)
{
    const gpu_late *x = GPU(L)->late;
    size_t n = 0;
    for (size_t i = 0; x && i < x->products.len; i++)
        n = x->products.at[i].stored ? i + 1 : n;
    if (n)
        await_oldest(L, b, n);
}

static bool is_used_from(const tn_top *op, const tn_tvalue *v)
{
    for (; op; op = op->next)
        for (int i = 0; i < op->noperands; i++)
            if (op->operand[i] == v)
                return true;
    return false;
}

/* What comes of products that have ended is computed before others are awaited, though it is wanted only with what those give. */
static void compute_before(lower *L, tn_lbuilder *b, const tn_top *op)
{
    tn_map of = {.arena = &L->arena};
    if (op->block != GPU(L)->late->loop->region[0])
        return;
    for (const tn_top *in = op->block->first; in != op && L->status == TN_OK; in = in->next) {
        if (!lower_is_expression(in) || in->nresults != 1 || in->result->type.rank == 0 || tn_map_get(&L->places, TN_KEY(in->result)))
            continue;
        if (!lower_depends_on(in, &GPU(L)->late->ended) && !lower_depends_on(in, &of))
            continue;
        *tn_map_at(&of, TN_KEY(in->result)) = (void *)(uintptr_t)in;
        if (is_used_from(op, in->result))
            gpu_keep(L, b, in->result);
    }
}

void gpu_await_products(lower *L, tn_lbuilder *b, const tn_top *op)
{
    const gpu_late *x = GPU(L)->late;
    size_t n = 0;
    if (!x || !x->products.len || op->code == TN_T_yield)
        return;
    for (size_t i = 0; i < x->products.len; i++) {
        const under_way *p = &x->products.at[i];
        tn_map marked = {.arena = &L->arena};
        *tn_map_at(&marked, TN_KEY(p->dot->result)) = (void *)(uintptr_t)p->dot;
        if (p->sum)
            *tn_map_at(&marked, TN_KEY(p->sum)) = (void *)(uintptr_t)p->dot;
        if ((!p->sum || p->sum->def != op) && lower_depends_on(op, &marked))
            n = i + 1;
    }
    if (n)
        compute_before(L, b, op);
    await_oldest(L, b, op->code == TN_T_for || op->code == TN_T_while || op->code == TN_T_if ? x->products.len : n);
}

/* ---- from turn to turn ------------------------------------------------------------------------------------------------------------ */

/* Number of the state that the product adds to, which nothing else in the loop looks at; -1: none. */
static int state_of(lower *L, const gpu_late *x, const under_way *p)
{
    const tn_tblock *body = x->loop->region[0];
    for (int i = 0; p->sum && !p->stored && p->dot != x->first && i < x->loop->nresults; i++) {
        const tn_top *add = p->sum->def;
        tn_map marked = {.arena = &L->arena};
        bool others = false;
        if (body->last->operand[i] != p->sum || add->code != TN_T_map || add->fn != TN_S_add || (add->operand[0] != &body->arg[1 + i] && add->operand[1] != &body->arg[1 + i]))
            continue;
        *tn_map_at(&marked, TN_KEY(p->sum)) = *tn_map_at(&marked, TN_KEY(&body->arg[1 + i])) = (void *)(uintptr_t)add;
        for (const tn_top *op = body->first; op != body->last; op = op->next)
            others |= op != add && lower_depends_on(op, &marked);
        for (int k = 0; k < x->loop->nresults; k++)
            others |= k != i && tn_map_get(&marked, TN_KEY(body->last->operand[k])) != NULL;
        if (!others)
            return i;
    }
    return -1;
}

/* In the turn that comes, or behind the loop: what the turn before left. `some`: there was one. */
static void await_left(lower *L, tn_lbuilder *b, const gpu_late *x, int others, tn_lvalue *some)
{
    for (int i = 0; i < x->nleft; i++)
        gpu_end_sums(L, b, x->sums[i], others);
    for (int i = 0; i < x->nleft; i++)
        gpu_release_dot_before(L, b, x->left[i], some);
}

void gpu_start_late_turn(lower *L, tn_lvalue *index)
{
    gpu_late *x = GPU(L)->late;
    if (!x)
        return;
    x->index = index;
    x->ended = (tn_map){.arena = &L->arena};
}

void gpu_end_late_turn(lower *L, tn_lbuilder *b, place *const *state)
{
    gpu_late *x = GPU(L)->late;
    if (!x || L->status != TN_OK)
        return;
    size_t n = x->products.len;
    while (n && x->products.len - n < LEFT && state_of(L, x, &x->products.at[n - 1]) >= 0)
        n--;
    await_oldest(L, b, n);
    pass_turn(L, b, x);
    for (size_t i = 0; i < x->products.len && L->status == TN_OK; i++) {
        const under_way *p = &x->products.at[i];
        gpu_close_dot(L, b, p->product);
        gpu_next_of_dot(L, b, p->dot);
        x->left[x->nleft] = p->dot;
        x->sums[x->nleft++] = state[state_of(L, x, p)];
    }
    x->products.len = 0;
    if (x->side)
        tn_l_store(b, x->side, tn_l_index(b, 0), tn_l_fn2(b, TN_S_sub, tn_l_index(b, 1), tn_l_load(b, x->side, tn_l_index(b, 0), 1, NULL, NULL)), NULL);
    if (!x->nleft)
        return;
    tn_lbuilder behind = x->behind;
    behind.before = x->issue->next;
    await_left(L, &behind, x, 1, tn_l_fn2(&behind, TN_S_ne, x->index, x->from));
}

void gpu_leave_late(lower *L, tn_lbuilder *b, const gpu_late *x)
{
    if (!x || L->status != TN_OK)
        return;
    if (x->nleft)
        await_left(L, b, x, 0, tn_l_fn2(b, TN_S_lt, x->from, x->to));
    for (size_t i = 0; i < x->stored.len; i++)
        gpu_touch_shared(L, b, x->stored.at[i].buffer, true);
}
