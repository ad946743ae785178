/* Loops that wait: what a `while` loads from one place in each turn, and what its end depends on, is loaded anew each time, as if the kernel said volatile=True.
 * Another program is to change it; a load that was made once, or by each thread of a CTA at a moment of its own, would not see it, or not everywhere at once. */
#include "triton/builtin.h"

typedef struct search {
    tn_tcompiler *c;
    const tn_top *loop;
    TN_VEC(const tn_tvalue *) wanted; /* what the loop's end depends on, and is still to be looked at */
    tn_map seen;
    tn_map moves;                     /* value -> MOVES, STAYS: while the loop runs */
} search;

enum { STAYS = 1, MOVES };

static const tn_tblock *home(const tn_tvalue *v) { return v->def ? v->def->block : v->block; }

/* Made anew in each turn. */
static bool is_inside(const search *s, const tn_tvalue *v)
{
    for (const tn_tblock *block = home(v); block; block = block->parent ? block->parent->block : NULL)
        if (block->parent == s->loop)
            return true;
    return false;
}

static bool moves(search *s, const tn_tvalue *v, int depth)
{
    enum { DEPTH = 200 };
    uintptr_t known = (uintptr_t)tn_map_get(&s->moves, TN_KEY(v));
    if (known)
        return known == MOVES;
    bool moving = is_inside(s, v);
    if (moving && v->def && !v->def->nregions && (tn_top_traits(v->def->code) & TN_T_PURE) && depth < DEPTH) {
        moving = false;
        for (int i = 0; i < v->def->noperands && !moving; i++)
            moving = moves(s, v->def->operand[i], depth + 1);
    }
    *tn_map_at(&s->moves, TN_KEY(v)) = (void *)(uintptr_t)(moving ? MOVES : STAYS);
    return moving;
}

static void want(search *s, const tn_tvalue *v)
{
    void **cell = tn_map_at(&s->seen, TN_KEY(v));
    if (*cell || !is_inside(s, v))
        return;
    *cell = s;
    TN_PUSH(&s->c->session->arena, &s->wanted, v);
}

static void want_operands(search *s, const tn_top *op)
{
    for (int i = 0; i < op->noperands; i++)
        want(s, op->operand[i]);
}

/* All that an operation with regions may give, or hand to its regions. */
static void want_regions(search *s, const tn_top *op)
{
    want_operands(s, op);
    for (int r = 0; r < op->nregions; r++)
        if (op->region[r]->last)
            want_operands(s, op->region[r]->last);
}

static void load_anew(search *s, tn_top *load)
{
    for (int i = 0; i < load->noperands; i++)
        if (moves(s, load->operand[i], 0))
            return;
    tn_tblock *block = load->block;
    tn_tvalue *mask = load->noperands > 1 ? load->operand[1] : NULL, *other = load->noperands > 2 ? load->operand[2] : NULL;
    tn_tbuilder b = tn_tbuilder_at(s->c->b.kernel, block, load->loc);
    tn_top *last = block->last;
    tn_tvalue *x = tn_t_atomic_load(&b, load->operand[0], mask, tn_t_volatile_order);
    tn_top *made = x->def; /* at the block's end: it goes before the load */
    last->next = NULL;
    block->last = last;
    made->prev = load->prev;
    made->next = load;
    *(load->prev ? &load->prev->next : &block->first) = made;
    load->prev = made;
    load->code = TN_T_map;
    if (other) {
        load->fn = TN_S_select;
        load->operand[1] = x;
        load->operand[0] = mask;
        load->operand[2] = other;
    } else {
        load->code = TN_T_reshape; /* to its own shape: no name for a copy is shorter, and tile-simplify drops it */
        load->operand[0] = x;
        load->noperands = 1;
    }
}

void tn_t_load_anew(tn_tcompiler *c, const tn_top *loop)
{
    tn_arena *arena = &c->session->arena;
    search s = {.c = c, .loop = loop, .seen = {.arena = arena}, .moves = {.arena = arena}};
    want_operands(&s, loop->region[0]->last);
    while (s.wanted.len) {
        const tn_tvalue *v = s.wanted.at[--s.wanted.len];
        tn_top *op = v->def;
        if (!op && v->block->parent == loop) { /* carried: what the body yields */
            want(&s, loop->region[1]->last->operand[v - v->block->arg]);
        } else if (!op) {
            want_regions(&s, v->block->parent);
        } else if (op->nregions) {
            want_regions(&s, op);
        } else {
            want_operands(&s, op);
            if (op->code == TN_T_load_ptr)
                load_anew(&s, op);
        }
    }
}
