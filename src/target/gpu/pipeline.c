/* Operands of products that are copied to shared memory some turns of a loop before they are needed: a ring of buffers for each.
 *
 *     copies for turns 0 … ahead - 1
 *     loop: wait until this turn's are there; barrier; copies for the turn `ahead` later, to where nobody reads any more; the products
 *
 * A turn's copies are one group for the hardware, whether there is anything left to copy or not. Where products of a turn may still run in the next one (wgmma),
 * the ring has one buffer more than that, and the copies come behind the products. */
#include "target/gpu/dot.h"


void gpu_fit_ring(lower *L, gpu_ring *r, const char *label, int64_t other, int kept)
{
    enum { STAGES = 3, MOST = 8, SLACK = 2048 /* for alignment */ };
    const tn_schedule *schedule = &L->kernel->schedule;
    int64_t wanted = tn_schedule_get(schedule, label ? label : "", "stages", tn_schedule_get(schedule, "", "stages", STAGES));
    int64_t bytes = 0, room = gpu_most_shared(L) - GPU(L)->shared - SLACK - other;
    for (int i = 0; i < r->n; i++)
        bytes += gpu_operand_elements(r->operand[i]) * r->operand[i]->bytes;
    r->stages = bytes && room > 0 ? (int)tn_min(tn_min(tn_min(wanted, MOST), GPU(L)->most_stages) + kept - 1, room / bytes) : 0;
    r->ahead = r->stages - kept;
    for (int i = 0; r->ahead < 1 && i < r->n; i++)
        r->operand[i]->width = 0;
    if (r->ahead < 1)
        r->n = r->stages = 0;
    GPU(L)->rings |= r->n > 0;
}

void gpu_bind_turn(lower *L, tn_lbuilder *b, const gpu_ring *r, tn_lvalue *at)
{
    if (r->nranges < 2) {
        lower_memo(L, r->index, NULL, (element){at, NULL});
        return;
    }
    for (int i = r->nranges - 1; i >= 0; i--) { /* the last range is the innermost */
        tn_lvalue *mine = i ? tn_l_fn2(b, TN_S_rem, at, r->count[i]) : at;
        lower_memo(L, &r->index[i], NULL, (element){gpu_times(b, mine, r->strip[i]), NULL});
        at = i ? tn_l_fn2(b, TN_S_div, at, r->count[i]) : at;
    }
}

static void copy_turn(lower *L, tn_lbuilder *b, const gpu_ring *r, tn_lvalue *index, tn_lvalue *stage)
{
    tn_lbuilder in = tn_l_in(b, tn_l_if(b, tn_l_fn2(b, TN_S_lt, index, r->limit))->region[0]);
    scope s = lower_open(L);
    region made = gpu_enter(L);
    gpu_bind_turn(L, &in, r, index);
    for (int i = 0; i < r->n; i++)
        gpu_copy_operand(L, &in, r->operand[i], gpu_times(&in, stage, gpu_operand_elements(r->operand[i])));
    gpu_leave(L, NULL, made);
    lower_close(L, s);
    tn_l_machine(b, "copy_commit", NULL, 0);
}

/* Its bytes are touched, in ways that barriers of its own keep apart while the loop runs. */
static void touch_ring(lower *L, tn_lbuilder *b, const gpu_ring *r)
{
    for (int i = 0; i < r->n; i++) {
        const tn_top *load = r->operand[i]->value->def;
        gpu_touch_shared(L, b, r->operand[i]->buffer, true);
        gpu_touch_global(L, b, load->view->buffer, load, NULL, false);
    }
}

void gpu_start_ring(lower *L, tn_lbuilder *b, gpu_ring *r)
{
    tn_lvalue *zero = tn_l_index(b, 0);
    for (int i = 0; i < r->n; i++)
        gpu_give_buffer(L, r->operand[i], r->stages);
    touch_ring(L, b, r);
    r->reads = tn_l_alloc(b, "reads", TN_I64, TN_SPACE_REG, 1);
    r->writes = tn_l_alloc(b, "writes", TN_I64, TN_SPACE_REG, 1);
    tn_l_store(b, r->reads, zero, zero, NULL);
    tn_l_store(b, r->writes, zero, tn_l_index(b, r->ahead), NULL);
    for (int i = 0; i < r->ahead; i++)
        copy_turn(L, b, r, gpu_plus(b, r->first, gpu_times(b, r->step, i)), tn_l_index(b, i));
}

static tn_lvalue *take_stage(tn_lbuilder *b, tn_lvalue *counter, int stages)
{
    tn_lvalue *zero = tn_l_index(b, 0), *stage = tn_l_load(b, counter, zero, 1, NULL, NULL), *next = gpu_plus(b, stage, tn_l_index(b, 1));
    tn_l_store(b, counter, zero, tn_l_fn3(b, TN_S_select, tn_l_fn2(b, TN_S_eq, next, tn_l_index(b, stages)), zero, next), NULL);
    return stage;
}

void gpu_wait_for_turn(lower *L, tn_lbuilder *b, gpu_ring *r)
{
    tn_l_machine(b, "copy_wait", (tn_lvalue *[]){tn_l_index(b, r->ahead - 1)}, 1);
    if (r->groups)
        tn_l_machine(b, "fence_async", NULL, 0);
    gpu_barrier(L, b);
    tn_lvalue *stage = take_stage(b, r->reads, r->stages);
    for (int i = 0; i < r->n; i++)
        r->operand[i]->stage = gpu_times(b, stage, gpu_operand_elements(r->operand[i]));
}

void gpu_copy_ahead(lower *L, tn_lbuilder *b, gpu_ring *r, tn_lvalue *index)
{
    copy_turn(L, b, r, gpu_plus(b, index, gpu_times(b, r->step, r->ahead)), take_stage(b, r->writes, r->stages));
}

void gpu_set_loop(gpu_ring *r, tn_lvalue *first, tn_lvalue *limit, tn_lvalue *step)
{
    r->first = first;
    r->limit = limit;
    r->step = step;
}

void gpu_run_ring(lower *L, tn_lbuilder *b, gpu_ring *r, tn_lvalue *index)
{
    gpu_wait_for_turn(L, b, r);
    gpu_copy_ahead(L, b, r, index);
}

void gpu_end_ring(lower *L, tn_lbuilder *b, const gpu_ring *r)
{
    tn_l_machine(b, "copy_wait", (tn_lvalue *[]){tn_l_index(b, 0)}, 1);
    touch_ring(L, b, r); /* nobody may use its bytes before all have met */
}

/* ---- loops of users ------------------------------------------------------------------------------------------------------- */

/* Computed from the loop's index and what is known before the loop. */
static bool follows_index(const tn_tvalue *v, const tn_top *loop, int *budget)
{
    const tn_top *op = v->def;
    if (--*budget < 0)
        return false;
    if (!op)
        return v->block != loop->region[0] || v == loop->region[0]->arg;
    if (op->block != loop->region[0])
        return true;
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_const && op->code != TN_T_size && op->code != TN_T_assume)
        return false;
    for (int i = 0; i < op->noperands; i++)
        if (!follows_index(op->operand[i], loop, budget))
            return false;
    return true;
}

static bool may_copy(const tn_top *load, const tn_top *loop)
{
    if (load->block != loop->region[0])
        return false;
    for (int d = 0; d < load->view->rank; d++) {
        int budget = LOWER_BUDGET;
        if (!follows_index(load->subscript[d].value, loop, &budget))
            return false;
    }
    return true;
}


/* The copy of what the operand loads: an earlier product's, if it lies so that this one can read it, or one more in the ring. NULL: it can't be copied. */
static gpu_operand *copy_of(lower *L, gpu_ring *r, const tn_top *loop, const tn_top *dot, int number)
{
    gpu_operand o;
    if (!gpu_operand_of(L, dot, number, &o))
        return NULL;
    gpu_unturn_operand(&o);
    void **known = tn_map_at(&GPU(L)->ready, TN_KEY(o.value));
    if (*known)
        return ((gpu_operand *)*known)->inner == o.inner ? *known : NULL;
    if (r->n < GPU_RING)
        gpu_plan_copies(L, loop, &o);
    if (o.width)
        *known = r->operand[r->n++] = tn_memdup(&L->arena, &o, sizeof o);
    return *known;
}

gpu_ring *gpu_ring_of_loop(lower *L, const tn_top *loop)
{
    enum { OTHER = 4 << 10 }; /* bytes for what else the loop shares; where it takes more, stages are given up */
    gpu_ring *r = TN_NEW(&L->arena, gpu_ring);
    bool acquires = lower_acquires(L, loop);
    r->index = loop->region[0]->arg;
    for (const tn_top *dot = loop->region[0]->first; dot && !acquires; dot = dot->next)
        for (int i = 0; dot->code == TN_T_dot && gpu_dot_is_tiled(L, dot) && i < 2; i++) {
            bool turned;
            const tn_top *load = gpu_unturned(dot->operand[i], &turned)->def;
            if (!load || load->code != TN_T_load || !may_copy(load, loop) || tn_map_get(&GPU(L)->ready, TN_KEY(&dot->operand[i])))
                continue;
            gpu_operand *o = copy_of(L, r, loop, dot, i);
            r->groups |= o && gpu_dot_is_by_groups(L, dot);
            *tn_map_at(&GPU(L)->ready, TN_KEY(&dot->operand[i])) = o;
        }
    gpu_fit_ring(L, r, loop->label, OTHER, 1);
    return r->n ? r : NULL;
}

/* ---- operands that all turns have ----------------------------------------------------------------------------------------- */

static bool is_from_outside(const tn_tvalue *v, const tn_top *loop) { return (v->def ? v->def->block : v->block) != loop->region[0]; }

/* Registers of a thread for the loop's state, its products and the operand. */
static int64_t words_with(lower *L, const tn_top *loop, const tn_tvalue *operand)
{
    int64_t words = gpu_words(L, &operand->type);
    for (int i = 0; i < loop->nresults; i++)
        words += gpu_words(L, &loop->result[i].type);
    for (const tn_top *op = loop->region[0]->first; op; op = op->next) {
        const tn_tvalue *sum = op->code == TN_T_dot ? gpu_added_to(L, op) : NULL;
        words += op->code == TN_T_dot && !(sum && !sum->def && sum->block == loop->region[0]) ? gpu_words(L, &op->result->type) : 0;
    }
    return words;
}

static void settle(lower *L, tn_lbuilder *b, const tn_top *loop, const tn_top *dot, int number)
{
    enum { MOST_WORDS = 192 };
    bool turned;
    int lies;
    tn_layout ignored;
    gpu_operand o;
    void **mine = tn_map_at(&GPU(L)->ready, TN_KEY(&dot->operand[number]));
    const tn_tvalue *from = gpu_unturned(dot->operand[number], &turned);
    if (*mine || !is_from_outside(from, loop) || !gpu_operand_of(L, dot, number, &o) || (number == 0 && gpu_lies_as_fragments(L, dot, &o, &ignored) && words_with(L, loop, from) <= MOST_WORDS))
        return;
    gpu_unturn_operand(&o);
    void **known = tn_map_at(&GPU(L)->ready, TN_KEY(from));
    if (*known) {
        const gpu_operand *other = *known;
        *mine = other->settled && other->inner == o.inner && other->rounds == o.rounds ? *known : NULL;
        return;
    }
    if (turned && !gpu_operand_layout(L, from, &lies, &o.layout))
        return;
    gpu_give_buffer(L, &o, 1);
    gpu_fill_operand(L, b, &o);
    if (gpu_dot_is_by_groups(L, dot))
        tn_l_machine(b, "fence_async", NULL, 0);
    o.settled = true;
    *mine = *known = tn_memdup(&L->arena, &o, sizeof o);
}

void gpu_settle_operands(lower *L, tn_lbuilder *b, const tn_top *loop)
{
    for (const tn_top *dot = loop->region[0]->first; dot && L->status == TN_OK; dot = dot->next)
        for (int i = 0; dot->code == TN_T_dot && gpu_dot_is_tiled(L, dot) && i < 2; i++)
            settle(L, b, loop, dot, i);
    for (const tn_top *dot = loop->region[0]->first; dot && L->status == TN_OK; dot = dot->next)
        for (int i = 0; dot->code == TN_T_dot && i < 2; i++) {
            const gpu_operand *o = tn_map_get(&GPU(L)->ready, TN_KEY(&dot->operand[i]));
            if (o && o->settled) /* so that no turn has to wait for it */
                gpu_touch_shared(L, b, o->buffer, false);
        }
}

void gpu_forget_operands(lower *L, const tn_top *loop)
{
    for (const tn_top *dot = loop->region[0]->first; dot; dot = dot->next)
        for (int i = 0; dot->code == TN_T_dot && i < 2; i++) {
            bool turned;
            void **mine = tn_map_at(&GPU(L)->ready, TN_KEY(&dot->operand[i]));
            const gpu_operand *o = *mine;
            if (!o || o->map)
                continue;
            *mine = NULL;
            *tn_map_at(&GPU(L)->ready, TN_KEY(gpu_unturned(dot->operand[i], &turned))) = NULL;
        }
}
