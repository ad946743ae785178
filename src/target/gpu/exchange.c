/* Tiles that go from one layout to another by lanes alone: a bit of the lane's number and one of the register's change places, by one exchange of half the
 * registers with the lane that differs in that bit. No shared memory, no barrier.
 *
 * That is what fragments of 2-byte elements want on their way to memory: a thread of theirs has two neighbours of a row, a lane the next two, four lanes the 16
 * bytes that one could store. (Of 4-byte elements those are 32 bytes already, which is what memory moves.) */
#include "target/gpu/lower.h"

enum { WORD = 4, PAIR = 2, WIDEST = 16 }; /* bytes: of what lanes exchange; its elements; bytes of an access */

typedef struct swap {
    int lane, reg; /* place bits */
} swap;

static int bit_of(const tn_layout *l, int from, int n, int axis, uint32_t part)
{
    for (int i = from; i < from + n; i++)
        if (l->col[i] && tn_layout_column(l, i, axis) == part)
            return i;
    return -1;
}

static void swap_columns(tn_layout *l, swap s)
{
    uint32_t col = l->col[s.lane];
    l->col[s.lane] = l->col[s.reg];
    l->col[s.reg] = col;
}

/* The swaps that give every thread `bytes` of neighbours along the axis, its lanes the next ones. False: other threads have them, or there is nothing to give. */
static bool find_swaps(const tn_layout *from, int axis, int64_t vector, swap *out, int *n, tn_layout *to)
{
    uint32_t next = (uint32_t)vector;
    *to = *from;
    *n = 0;
    for (uint32_t part = 1; part < vector; part *= 2) {
        if (bit_of(to, 0, to->reg_bits, axis, part) >= 0)
            continue;
        swap s = {bit_of(to, TN_LAYOUT_LANE, TN_LAYOUT_LANE_BITS, axis, part), -1};
        for (; s.reg < 0 && next < 1u << from->bits[axis]; next *= 2)
            s.reg = bit_of(to, 0, to->reg_bits, axis, next);
        for (int i = to->reg_bits - 1; s.reg < 0 && i > 0; i--)
            if (to->col[i] && tn_layout_column(to, i, axis) == 0)
                s.reg = i;
        if (s.lane < 0 || s.reg < 0)
            return false;
        swap_columns(to, s);
        out[(*n)++] = s;
    }
    return from->reg_bits && tn_layout_column(from, 0, axis) == 1; /* words stay whole */
}

static tn_lvalue *get_word(tn_lbuilder *b, tn_lvalue *regs, tn_lvalue *at)
{
    return tn_l_bitcast(b, tn_l_load(b, regs, at, PAIR, NULL, NULL), tn_lscalar(TN_U32));
}

static void put_word(tn_lbuilder *b, tn_lvalue *regs, tn_lvalue *at, tn_lvalue *word)
{
    tn_l_store(b, regs, at, tn_l_bitcast(b, word, tn_lvector(regs->type.dtype, PAIR)), NULL);
}

static void exchange(lower *L, tn_lbuilder *b, const place *p, swap s)
{
    int64_t low = INT64_C(1) << s.reg, high = tn_layout_regs(&p->held->layout) / (2 * low), mask = INT64_C(1) << (s.lane - TN_LAYOUT_LANE);
    tn_lbuilder *e = &L->entry;
    tn_lvalue *is_high = tn_l_fn2(e, TN_S_ne, tn_l_fn2(e, TN_S_and, GPU(L)->thread, tn_l_index(e, mask)), tn_l_index(e, 0)), *regs = p->held->regs;
    tn_lop *outer = tn_l_for(b, "h", tn_l_index(b, 0), tn_l_index(b, high), tn_l_index(b, 1), TN_FOR_UNROLL);
    tn_lbuilder in = tn_l_in(b, outer->region[0]);
    tn_lvalue *first = tn_l_fn2(&in, TN_S_mul, outer->region[0]->arg, tn_l_index(&in, 2 * low));
    tn_lop *inner = tn_l_for(&in, "l", tn_l_index(&in, 0), tn_l_index(&in, low), tn_l_index(&in, PAIR), TN_FOR_UNROLL);
    in = tn_l_in(&in, inner->region[0]);
    first = gpu_plus(&in, first, inner->region[0]->arg);
    tn_lvalue *second = gpu_plus(&in, first, tn_l_index(&in, low));
    tn_lvalue *x = get_word(&in, regs, first), *y = get_word(&in, regs, second);
    tn_lvalue *theirs = tn_l_lane_xor(&in, tn_l_fn3(&in, TN_S_select, is_high, x, y), mask);
    put_word(&in, regs, first, tn_l_fn3(&in, TN_S_select, is_high, theirs, x));
    put_word(&in, regs, second, tn_l_fn3(&in, TN_S_select, is_high, y, theirs));
}

/* Registers in the order that accesses along the axis want; from[i]: which bit of the old order bit i is. */
static tn_layout sort_registers(const tn_layout *old, int axis, int *from)
{
    tn_layout l = *old;
    for (int i = 0; i < l.reg_bits; i++)
        from[i] = i;
    for (int i = 0, at; i < l.reg_bits && (at = bit_of(&l, i, l.reg_bits - i, axis, 1u << i)) >= 0; i++) {
        uint32_t col = l.col[at];
        int bit = from[at];
        for (; at > i; at--) {
            l.col[at] = l.col[at - 1];
            from[at] = from[at - 1];
        }
        l.col[i] = col;
        from[i] = bit;
    }
    return l;
}

/* Only names change: registers are values in the end. */
static void reorder(tn_lbuilder *b, place *p, const tn_layout *to, const int *from)
{
    int registers = tn_layout_regs(to);
    tn_lvalue *old = p->held->regs, *regs = tn_l_alloc(b, "turned", old->type.dtype, TN_SPACE_REG, registers);
    for (int i = 0; i < registers; i += PAIR) {
        int at = i >> to->reg_bits << to->reg_bits;
        for (int k = 0; k < to->reg_bits; k++)
            at |= (i >> k & 1) << from[k];
        put_word(b, regs, tn_l_index(b, i), get_word(b, old, tn_l_index(b, at)));
    }
    *p->held = (gpu_held){.layout = *to, .regs = regs};
}

bool gpu_gather_neighbours(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, int axis, int64_t multiple, tn_layout *out)
{
    swap swaps[TN_LAYOUT_LANE_BITS];
    int n, from[TN_LAYOUT_REG_BITS];
    int64_t vector = WIDEST / (WORD / PAIR);
    tn_layout to;
    while (vector > 1 && multiple % vector)
        vector /= 2;
    tn_place copies = tn_layout_replicas(&p->held->layout);
    if (tn_dtype_bits(gpu_held_dtype(type)) != 8 * WORD / PAIR || p->present || copies.lane || !find_swaps(&p->held->layout, axis, vector, swaps, &n, &to) || !n)
        return false;
    for (int i = 0; i < n; i++)
        exchange(L, b, p, swaps[i]);
    *out = sort_registers(&to, axis, from);
    reorder(b, p, out, from);
    return true;
}
