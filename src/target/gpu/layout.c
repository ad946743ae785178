#include "target/gpu/layout.h"

#include <assert.h>
#include <string.h>

enum { ALL_BITS = TN_LAYOUT_BITS };

static int log2_of(int64_t x) { return x > 0 && !(x & (x - 1)) ? __builtin_ctzll((uint64_t)x) : -1; }

static int total_bits(const tn_layout *l)
{
    int sum = 0;
    for (int a = 0; a < l->rank; a++)
        sum += l->bits[a];
    return sum;
}

static int64_t total_repeats(const tn_layout *l)
{
    int64_t product = 1;
    for (int a = 0; a < l->rank; a++)
        product *= l->repeats[a];
    return product;
}

/* Where an axis's bits start in the packed element. */
static int axis_shift(const tn_layout *l, int axis)
{
    int shift = 0;
    for (int a = axis + 1; a < l->rank; a++)
        shift += l->bits[a];
    return shift;
}

static uint32_t element_bit(const tn_layout *l, int axis, int bit) { return UINT32_C(1) << (axis_shift(l, axis) + bit); }

static uint32_t axis_part(const tn_layout *l, int axis, uint32_t element)
{
    return element >> axis_shift(l, axis) & ((UINT32_C(1) << l->bits[axis]) - 1);
}

/* Shape alone; columns are 0. */
static bool shape_of(const tn_ttype *type, tn_layout *out)
{
    *out = (tn_layout){.rank = (uint8_t)type->rank};
    int bits = 0;
    for (int a = 0; a < type->rank; a++) {
        int64_t size = type->extent[a].size;
        if (size < 1)
            return false;
        int k = __builtin_ctzll((uint64_t)size);
        bits += k;
        if (size >> k > TN_LAYOUT_ODD || bits > ALL_BITS)
            return false;
        out->bits[a] = (uint8_t)k;
        out->repeats[a] = (uint8_t)(size >> k);
    }
    return true;
}

/* Bits that a constructor has not yet placed: from used[axis] up. */
typedef struct placing {
    tn_layout *l;
    int used[TN_TILE_RANK];
    bool full;
} placing;

static bool any_left(const placing *p, int axis) { return p->used[axis] < p->l->bits[axis]; }
static uint32_t take(placing *p, int axis) { return any_left(p, axis) ? element_bit(p->l, axis, p->used[axis]++) : 0; }

static void take_reg(placing *p, int axis)
{
    if (p->l->reg_bits == TN_LAYOUT_REG_BITS)
        p->full = true;
    else
        p->l->col[p->l->reg_bits++] = take(p, axis);
}

static void take_regs(placing *p, int axis)
{
    while (any_left(p, axis) && !p->full)
        take_reg(p, axis);
}

/* `count` warp bits along an axis, replicas where it ends. */
static void take_warps(placing *p, int axis, int count)
{
    while (count--)
        p->l->col[TN_LAYOUT_WARP + p->l->warp_bits++] = take(p, axis);
}

bool tn_layout_blocked(const tn_ttype *type, const int *order, int vector, int warps, tn_layout *out)
{
    placing p = {.l = out};
    int warp_bits = log2_of(warps), vector_bits = log2_of(vector), rank = type->rank;
    if (!shape_of(type, out) || vector_bits < 0 || warp_bits < 0 || warp_bits > TN_LAYOUT_WARP_BITS)
        return false;
    while (rank && vector_bits-- && any_left(&p, order[0]) && !p.full)
        take_reg(&p, order[0]);
    for (int i = 0, lane = 0; i < rank; i++)
        while (lane < TN_LAYOUT_LANE_BITS && any_left(&p, order[i]))
            out->col[TN_LAYOUT_LANE + lane++] = take(&p, order[i]);
    for (int i = rank - 1; i >= 0; i--)
        while (out->warp_bits < warp_bits && any_left(&p, order[i]))
            take_warps(&p, order[i], 1);
    out->warp_bits = (uint8_t)warp_bits;
    for (int i = 0; i < rank; i++)
        take_regs(&p, order[i]);
    return !p.full;
}

/* A matrix instruction's fragment: for each register and lane bit, the bit of the row (R) or column (C). */
enum { R = 0, C = 16 };
typedef struct fragment {
    int nregs, rows, columns; /* bits */
    uint8_t reg[3], lane[TN_LAYOUT_LANE_BITS];
} fragment;
static const fragment accumulator = {2, 4, 3, {C + 0, R + 3}, {C + 1, C + 2, R + 0, R + 1, R + 2}};
static const fragment left = {3, 4, 4, {C + 0, R + 3, C + 3}, {C + 1, C + 2, R + 0, R + 1, R + 2}};
static const fragment right = {2, 4, 3, {R + 0, R + 3}, {R + 1, R + 2, C + 0, C + 1, C + 2}};

/* The first fragment; the rest is left to place. False: the tile has less. */
static bool place_fragment(const tn_ttype *type, const fragment *f, placing *p, tn_layout *out)
{
    *p = (placing){.l = out};
    if (!shape_of(type, out) || type->rank < 2 || out->bits[type->rank - 2] < f->rows || out->bits[type->rank - 1] < f->columns)
        return false;
    int rows = type->rank - 2, columns = type->rank - 1;
    for (int i = 0; i < f->nregs; i++)
        out->col[i] = element_bit(out, f->reg[i] & C ? columns : rows, f->reg[i] % C);
    for (int i = 0; i < TN_LAYOUT_LANE_BITS; i++)
        out->col[TN_LAYOUT_LANE + i] = element_bit(out, f->lane[i] & C ? columns : rows, f->lane[i] % C);
    out->reg_bits = (uint8_t)f->nregs;
    p->used[rows] = f->rows;
    p->used[columns] = f->columns;
    return true;
}

static bool place_rest(placing *p, int first, int second)
{
    take_regs(p, first);
    take_regs(p, second);
    for (int a = p->l->rank - 3; a >= 0; a--)
        take_regs(p, a);
    return !p->full;
}

/* along_m, along_n: whether the tile has the dimension that these warps share out. */
static bool mma(const tn_ttype *type, const fragment *f, int warps_m, int warps_n, bool along_m, bool along_n, tn_layout *out)
{
    placing p;
    int m = log2_of(warps_m), n = log2_of(warps_n);
    if (m < 0 || n < 0 || m + n > TN_LAYOUT_WARP_BITS || !place_fragment(type, f, &p, out))
        return false;
    int rows = type->rank - 2, columns = type->rank - 1;
    if (along_m)
        take_warps(&p, rows, m);
    out->warp_bits = (uint8_t)m;
    if (along_n)
        take_warps(&p, columns, n);
    out->warp_bits = (uint8_t)(m + n);
    bool rows_first = !along_m; /* the right operand's k */
    return place_rest(&p, rows_first ? rows : columns, rows_first ? columns : rows);
}

bool tn_layout_mma_acc(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out)
{
    return mma(type, &accumulator, warps_m, warps_n, true, true, out);
}

bool tn_layout_mma_a(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out)
{
    return mma(type, &left, warps_m, warps_n, true, false, out);
}

bool tn_layout_mma_b(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out)
{
    return mma(type, &right, warps_m, warps_n, false, true, out);
}

bool tn_layout_wgmma_acc(const tn_ttype *type, int warps, int n, tn_layout *out)
{
    placing p;
    int warp_bits = log2_of(warps);
    if (warp_bits < 2 || warp_bits > TN_LAYOUT_WARP_BITS || n < 8 || n > 256 || n % 8 || !place_fragment(type, &accumulator, &p, out))
        return false;
    int rows = type->rank - 2, columns = type->rank - 1;
    if (out->bits[rows] < 6 || type->extent[columns].size % n)
        return false;
    take_warps(&p, rows, warp_bits);
    while (p.used[columns] < __builtin_ctz((unsigned)n) && !p.full)
        take_reg(&p, columns);
    return place_rest(&p, rows, columns);
}

/* Linear algebra. A basis in echelon form, and of which columns each of its vectors is the sum. */
typedef struct basis {
    int count;
    uint32_t vector[ALL_BITS * 3], places[ALL_BITS * 3];
} basis;

/* What is left of x; the columns that were used are added to *places. */
static uint32_t reduce_by(const basis *b, uint32_t x, uint32_t *places)
{
    for (int i = 0; i < b->count; i++) {
        if (x & UINT32_C(1) << (31 - __builtin_clz(b->vector[i]))) {
            x ^= b->vector[i];
            *places ^= b->places[i];
        }
    }
    return x;
}

/* False: x is a sum of what is there. */
static bool basis_add(basis *b, uint32_t x, uint32_t place)
{
    uint32_t places = place;
    x = reduce_by(b, x, &places);
    if (!x)
        return false;
    b->vector[b->count] = x;
    b->places[b->count++] = places;
    return true;
}

static void basis_add_columns(basis *b, const tn_layout *l, int from, int to)
{
    for (int i = from; i < to; i++)
        basis_add(b, l->col[i], UINT32_C(1) << i);
}

static int64_t place_bits(const tn_layout *l) { return l->reg_bits + TN_LAYOUT_LANE_BITS + l->warp_bits; }

static uint32_t apply(const tn_layout *l, uint32_t place)
{
    uint32_t x = 0;
    for (; place; place &= place - 1)
        x ^= l->col[__builtin_ctz(place)];
    return x;
}

static uint32_t pack_place(const tn_layout *l, tn_place place)
{
    return (place.reg & ((UINT32_C(1) << l->reg_bits) - 1)) | place.lane << TN_LAYOUT_LANE | place.warp << TN_LAYOUT_WARP;
}

static tn_place unpack_place(uint32_t place)
{
    return (tn_place){place & ((1 << TN_LAYOUT_REG_BITS) - 1), place >> TN_LAYOUT_LANE & ((1 << TN_LAYOUT_LANE_BITS) - 1), place >> TN_LAYOUT_WARP};
}

bool tn_layout_covers(const tn_layout *layout)
{
    basis b = {0};
    basis_add_columns(&b, layout, 0, ALL_BITS);
    return b.count == total_bits(layout);
}

int tn_layout_regs(const tn_layout *layout) { return (int)(total_repeats(layout) << layout->reg_bits); }
int64_t tn_layout_elements(const tn_layout *layout) { return total_repeats(layout) << total_bits(layout); }

void tn_layout_element(const tn_layout *layout, tn_place place, int64_t *index)
{
    uint32_t element = apply(layout, pack_place(layout, place));
    int64_t repeat = place.reg >> layout->reg_bits;
    for (int a = layout->rank - 1; a >= 0; a--) {
        index[a] = repeat % layout->repeats[a] << layout->bits[a] | axis_part(layout, a, element);
        repeat /= layout->repeats[a];
    }
}

tn_place tn_layout_owner(const tn_layout *layout, const int64_t *index)
{
    uint32_t element = 0, places = 0, repeat = 0;
    for (int a = 0; a < layout->rank; a++) {
        repeat = repeat * layout->repeats[a] + (uint32_t)(index[a] >> layout->bits[a]);
        element |= ((uint32_t)index[a] & ((UINT32_C(1) << layout->bits[a]) - 1)) << axis_shift(layout, a);
    }
    basis b = {0};
    basis_add_columns(&b, layout, 0, ALL_BITS);
    reduce_by(&b, element, &places);
    tn_place place = unpack_place(places);
    place.reg |= repeat << layout->reg_bits;
    return place;
}

bool tn_layout_is_replica(const tn_layout *layout, tn_place place)
{
    int64_t index[TN_TILE_RANK];
    tn_layout_element(layout, place, index);
    tn_place owner = tn_layout_owner(layout, index);
    return owner.reg != place.reg || owner.lane != place.lane || owner.warp != place.warp;
}

tn_place tn_layout_replicas(const tn_layout *layout)
{
    uint32_t mask = 0;
    for (int i = 0; i < ALL_BITS; i++) {
        bool there = i < layout->reg_bits || (i >= TN_LAYOUT_LANE && i < TN_LAYOUT_WARP + layout->warp_bits);
        mask |= (uint32_t)(there && !layout->col[i]) << i;
    }
    return unpack_place(mask);
}

/* Bits of an element of `from` where `to` has them: axis a goes to axis_to[a], or is dropped (-1). */
static uint32_t move_bits(const tn_layout *from, const tn_layout *to, const int *axis_to, uint32_t element)
{
    uint32_t x = 0;
    for (int a = 0; a < from->rank; a++)
        if (axis_to[a] >= 0)
            x |= axis_part(from, a, element) << axis_shift(to, axis_to[a]);
    return x;
}

tn_layout tn_layout_restrict(const tn_layout *from, int rank, const int *axes)
{
    tn_layout to = {.rank = (uint8_t)rank, .warp_bits = from->warp_bits};
    int axis_to[TN_TILE_RANK] = {-1, -1, -1, -1, -1, -1};
    for (int i = 0; i < rank; i++) {
        to.repeats[i] = 1;
        if (axes[i] < 0)
            continue;
        axis_to[axes[i]] = i;
        to.bits[i] = from->bits[axes[i]];
        to.repeats[i] = from->repeats[axes[i]];
    }
    basis b = {0};
    for (int i = 0; i < from->reg_bits; i++) {
        uint32_t col = move_bits(from, &to, axis_to, from->col[i]);
        if (basis_add(&b, col, 0))
            to.col[to.reg_bits++] = col;
    }
    for (int i = TN_LAYOUT_LANE; i < ALL_BITS; i++)
        to.col[i] = move_bits(from, &to, axis_to, from->col[i]);
    return to;
}

tn_layout tn_layout_reduce(const tn_layout *from, int axis)
{
    int kept[TN_TILE_RANK];
    for (int a = 0, n = 0; a < from->rank; a++)
        if (a != axis)
            kept[n++] = a;
    return tn_layout_restrict(from, from->rank - 1, kept);
}

uint32_t tn_layout_column(const tn_layout *layout, int place_bit, int axis) { return axis_part(layout, axis, layout->col[place_bit]); }

bool tn_layout_broadcast(const tn_layout *from, const tn_ttype *type, const int *axes, tn_layout *out)
{
    tn_layout to;
    if (!shape_of(type, &to))
        return false;
    bool old[TN_TILE_RANK] = {false};
    for (int a = 0; a < from->rank; a++) {
        old[axes[a]] = true;
        if (to.bits[axes[a]] != from->bits[a] || to.repeats[axes[a]] != from->repeats[a])
            return false;
    }
    to.reg_bits = from->reg_bits;
    to.warp_bits = from->warp_bits;
    for (int i = 0; i < ALL_BITS; i++)
        to.col[i] = move_bits(from, &to, axes, from->col[i]);
    int next = TN_LAYOUT_LANE, end = TN_LAYOUT_WARP + to.warp_bits;
    for (int a = to.rank - 1; a >= 0; a--) {
        for (int k = 0; k < to.bits[a] && !old[a]; k++) {
            while (next < end && to.col[next])
                next++;
            if (next == end && to.reg_bits == TN_LAYOUT_REG_BITS)
                return false;
            to.col[next < end ? next : to.reg_bits++] = element_bit(&to, a, k);
        }
    }
    *out = to;
    return true;
}

tn_layout tn_layout_permute(const tn_layout *from, const int *axes)
{
    tn_layout to = {.rank = from->rank, .reg_bits = from->reg_bits, .warp_bits = from->warp_bits};
    int axis_to[TN_TILE_RANK];
    for (int a = 0; a < from->rank; a++) {
        to.bits[a] = from->bits[axes[a]];
        to.repeats[a] = from->repeats[axes[a]];
        axis_to[axes[a]] = a;
    }
    for (int i = 0; i < ALL_BITS; i++)
        to.col[i] = move_bits(from, &to, axis_to, from->col[i]);
    return to;
}

/* The next axis of more than one element. */
static int next_axis(const tn_layout *l, int axis)
{
    while (axis < l->rank && !l->bits[axis] && l->repeats[axis] == 1)
        axis++;
    return axis;
}

bool tn_layout_reshape(const tn_layout *from, const tn_ttype *type, tn_layout *out)
{
    tn_layout to;
    if (!shape_of(type, &to) || tn_layout_elements(&to) != tn_layout_elements(from))
        return false;
    if (total_repeats(from) != 1 || total_repeats(&to) != 1) {
        int a = next_axis(from, 0), b = next_axis(&to, 0);
        while (a < from->rank && b < to.rank && from->bits[a] == to.bits[b] && from->repeats[a] == to.repeats[b]) {
            a = next_axis(from, a + 1);
            b = next_axis(&to, b + 1);
        }
        if (a < from->rank || b < to.rank)
            return false;
    }
    /* packed row-major: the columns are the same */
    to.reg_bits = from->reg_bits;
    to.warp_bits = from->warp_bits;
    memcpy(to.col, from->col, sizeof to.col);
    *out = to;
    return true;
}

static bool same_shape(const tn_layout *a, const tn_layout *b)
{
    return a->rank == b->rank && !memcmp(a->bits, b->bits, sizeof a->bits) && !memcmp(a->repeats, b->repeats, sizeof a->repeats);
}

bool tn_layout_same(const tn_layout *a, const tn_layout *b)
{
    return same_shape(a, b) && a->reg_bits == b->reg_bits && a->warp_bits == b->warp_bits && !memcmp(a->col, b->col, sizeof a->col);
}

tn_conversion tn_layout_conversion(const tn_layout *from, const tn_layout *to, int element_bytes, int64_t *bytes)
{
    assert(same_shape(from, to) && from->warp_bits == to->warp_bits);
    *bytes = 0;
    if (tn_layout_same(from, to))
        return TN_CONVERT_NOTHING;
    /* thread: what a thread has; warp: what a warp has. In each, what it wants must lie, relative to the place itself. */
    basis thread = {0}, warp = {0};
    basis_add_columns(&thread, from, 0, TN_LAYOUT_LANE);
    basis_add_columns(&warp, from, 0, TN_LAYOUT_WARP);
    int own = thread.count, warps_own = warp.count;
    for (int i = 0; i < ALL_BITS; i++) {
        basis_add(&thread, i < TN_LAYOUT_LANE ? to->col[i] : to->col[i] ^ from->col[i], 0);
        basis_add(&warp, i < TN_LAYOUT_WARP ? to->col[i] : to->col[i] ^ from->col[i], 0);
    }
    if (thread.count == own)
        return TN_CONVERT_REGISTERS;
    int64_t places = INT64_C(1) << place_bits(to), repeats = total_repeats(to);
    if (warp.count == warps_own) {
        *bytes = (places - (places >> (thread.count - own))) * repeats * element_bytes;
        return TN_CONVERT_SHUFFLE;
    }
    *bytes = (tn_layout_elements(to) + places * repeats) * element_bytes;
    return TN_CONVERT_SHARED;
}

bool tn_layout_same_threads(const tn_layout *a, const tn_layout *b)
{
    int64_t bytes;
    return same_shape(a, b) && a->warp_bits == b->warp_bits && tn_layout_conversion(a, b, 1, &bytes) <= TN_CONVERT_REGISTERS &&
           tn_layout_conversion(b, a, 1, &bytes) <= TN_CONVERT_REGISTERS;
}

int tn_layout_bank_conflicts(const tn_layout *layout, tn_swizzle swizzle, int element_bytes, int vector)
{
    /* Other registers, warps and repeats move all lanes by an XOR or a sum that permutes banks: the first access stands for all. */
    int64_t access = (int64_t)element_bytes * vector;
    int at_once = access <= 4 ? 32 : access <= 8 ? 16 : 8, words = access <= 4 ? 1 : (int)(access / 4), most = 1;
    for (int first = 0; first < 32; first += at_once) {
        int64_t asked[32], count = 0;
        int bank[32] = {0};
        for (int lane = first; lane < first + at_once; lane++) {
            int64_t x = apply(layout, (uint32_t)lane << TN_LAYOUT_LANE);
            x ^= (x >> (swizzle.base + swizzle.shift) & ((1 << swizzle.bits) - 1)) << swizzle.base;
            for (int w = 0; w < words; w++) {
                int64_t word = x * element_bytes / 4 + w;
                bool seen = false;
                for (int i = 0; i < count; i++)
                    seen |= asked[i] == word;
                if (seen)
                    continue;
                asked[count++] = word;
                if (++bank[word % 32] > most)
                    most = bank[word % 32];
            }
        }
    }
    return most;
}

int tn_layout_vector(const tn_layout *layout, int axis)
{
    int n = 0;
    while (n < layout->reg_bits && n < layout->bits[axis] && layout->col[n] == element_bit(layout, axis, n))
        n++;
    for (int i = n; i < ALL_BITS; i++) {
        uint32_t part = axis_part(layout, axis, layout->col[i]);
        while (n && part & ((UINT32_C(1) << n) - 1))
            n--;
    }
    return 1 << n;
}

static void text_column(tn_text *text, const tn_layout *l, uint32_t col)
{
    if (!col)
        tn_text_add(text, "0");
    const char *between = "";
    for (int a = 0; a < l->rank; a++) {
        for (uint32_t part = axis_part(l, a, col); part; part &= part - 1) {
            tn_text_add(text, "%s%d:%u", between, a, 1u << __builtin_ctz(part));
            between = "^";
        }
    }
}

static void text_columns(tn_text *text, const tn_layout *l, const char *name, int from, int count)
{
    tn_text_add(text, "%s [", name);
    for (int i = 0; i < count; i++) {
        if (i)
            tn_text_add(text, " ");
        text_column(text, l, l->col[from + i]);
    }
}

void tn_text_layout(tn_text *text, const tn_layout *layout)
{
    text_columns(text, layout, "reg", 0, layout->reg_bits);
    const char *between = layout->reg_bits ? " |" : "|";
    for (int a = 0; a < layout->rank; a++) {
        if (layout->repeats[a] > 1) {
            tn_text_add(text, "%s %d:%dx", between, a, layout->repeats[a]);
            between = "";
        }
    }
    text_columns(text, layout, "] lane", TN_LAYOUT_LANE, TN_LAYOUT_LANE_BITS);
    text_columns(text, layout, "] warp", TN_LAYOUT_WARP, layout->warp_bits);
    tn_text_add(text, "]");
}
