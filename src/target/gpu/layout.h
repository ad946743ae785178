/* Layouts: which registers of which lanes of which warps hold the elements of a tile. Types carry none; the lowering keeps a side table from values to
 * layouts.
 *
 * An axis has r * 2^k elements, r odd. Element i of it is (i >> k, i mod 2^k): a repeat and k bits. The bits of all axes, packed row-major (the last
 * axis in the lowest bits), are the element's `bits`; its repeats, row-major as well, are its repeat number.
 *
 * A place in the hardware is (register, lane, warp). Repeats are registers, outermost: register = repeat << register bits | rest. What is left of a
 * place is up to 23 bits, and a layout is a linear map over F2 from them to the element's bits: every place bit has a column, the element bits that it
 * flips. A column of one bit is the usual case; of several is a swizzle; of none says that the bit does not matter: places that differ in it hold
 * copies (replicas). In general two places are copies of each other if they differ by something that the map takes to 0.
 *
 * So all questions are small systems of equations. Who owns an element: solve for the place, with the columns that depend on earlier ones
 * (registers, then lanes, then warps) left out, which gives the first of the copies, the same always. May a value go from one layout to another inside
 * threads, or inside warps: whether what a thread wants of itself differs from what it has by a combination of the columns of the registers (and
 * lanes), which is asked of each column alone, since the map is linear; no element is enumerated, and the answer is exact.
 *
 * CTAs of a cluster share a tile as warps do, whose numbers go on from CTA to CTA; but only lanes and warps of one CTA get at what others hold by shared memory.
 *
 * A thread holds (repeats << register bits) elements; a CTA always has whole warps, so small tiles have replicas. A layout is a plain value without pointers. */
#ifndef TN_TARGET_GPU_LAYOUT_H
#define TN_TARGET_GPU_LAYOUT_H

#include "tile/tile.h"

enum {
    TN_LAYOUT_REG_BITS = 10,
    TN_LAYOUT_LANE_BITS = 5,
    TN_LAYOUT_WARP_BITS = 8, /* of a CTA 5 at most; above them the number of the CTA in its cluster */
    TN_LAYOUT_LANE = TN_LAYOUT_REG_BITS,                    /* number of the first lane bit among the place bits */
    TN_LAYOUT_WARP = TN_LAYOUT_LANE + TN_LAYOUT_LANE_BITS,  /* … warp bit */
    TN_LAYOUT_BITS = TN_LAYOUT_WARP + TN_LAYOUT_WARP_BITS,
    TN_LAYOUT_ODD = 15, /* r at most */
};

typedef struct tn_layout {
    uint8_t rank;
    uint8_t bits[TN_TILE_RANK];    /* k of an axis */
    uint8_t repeats[TN_TILE_RANK]; /* r of an axis */
    uint8_t reg_bits, warp_bits;   /* lanes have 5 always */
    uint32_t col[TN_LAYOUT_BITS];  /* of place bits: registers from 0, lanes from TN_LAYOUT_LANE, warps from TN_LAYOUT_WARP; those not there are 0 */
} tn_layout;

typedef struct tn_place {
    uint32_t reg, lane, warp;
} tn_place;

/* Constructors. They write *out and return true, or return false: an extent is not known or not r * 2^k, the tile has less than a fragment, warps are not
 * a power of two <= 256, or a thread would hold more than 2^10 registers a repeat. Extents smaller than the hardware give replicas. */

/* For wide coalesced accesses. order: the type's axes, fastest first. Registers walk the fastest axis up to `vector` (a power of two), lanes go on from
 * there through the axes, warps take bits from the slowest axis first (reductions of rows stay inside warps), registers take what is left. */
bool tn_layout_blocked(const tn_ttype *type, const int *order, int vector, int warps, tn_layout *out);

/* Fragments of matrix instructions over the last two axes, (rows, columns); leading axes are registers. warp = n * warps_m + m.
 * mma: m16n8k16 of 16-bit elements: accumulator (m, n), left operand (m, k; replicas over the warps along n), right (k, n; replicas along m).
 * Registers of a fragment come first, in the order of PTX; then, for accumulators, further columns, then rows; for operands k first. */
bool tn_layout_mma_acc(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out);
bool tn_layout_mma_a(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out);
bool tn_layout_mma_b(const tn_ttype *type, int warps_m, int warps_n, tn_layout *out);
/* wgmma m64nN: four warps a group, one below the other by 16 rows; groups follow each other along the rows. n: columns of an instruction, a multiple of 8
 * up to 256 that divides the columns. An instruction's registers are consecutive if n is a power of two or a group has 64 rows. */
bool tn_layout_wgmma_acc(const tn_ttype *type, int warps, int n, tn_layout *out);

/* Derived layouts: no element moves to another thread. */
/* Of a tile whose axis i is axis axes[i] of `from`, or one element (-1); registers that would be copies are dropped, lanes and warps stay as replicas. */
tn_layout tn_layout_restrict(const tn_layout *from, int rank, const int *axes);
tn_layout tn_layout_reduce(const tn_layout *from, int axis); /* without the axis; registers that would be copies are dropped, lanes and warps stay as replicas */
/* to `type`; axis i of `from` becomes axis axes[i]. The new axes' bits take replica lanes, then warps, then new registers. False: more than 2^10 of them, or
 * an axis of another extent. */
bool tn_layout_broadcast(const tn_layout *from, const tn_ttype *type, const int *axes, tn_layout *out);
tn_layout tn_layout_permute(const tn_layout *from, const int *axes); /* axis i of the result is axes[i]; renumbers repeats if two axes have some */
/* Row-major order kept, elements stay where they are. False: an odd factor, where not only axes of one element come or go. */
bool tn_layout_reshape(const tn_layout *from, const tn_ttype *type, tn_layout *out);

uint32_t tn_layout_column(const tn_layout *layout, int place_bit, int axis); /* the bits of the axis's index that a place bit flips */
bool tn_layout_covers(const tn_layout *layout); /* every element has a place: true of all that constructors give */
int tn_layout_regs(const tn_layout *layout);    /* registers a thread, replicas among them */
int64_t tn_layout_elements(const tn_layout *layout);
void tn_layout_element(const tn_layout *layout, tn_place place, int64_t *index); /* index[rank] */
tn_place tn_layout_owner(const tn_layout *layout, const int64_t *index);         /* the first of the copies; the layout covers its tile */
bool tn_layout_is_replica(const tn_layout *layout, tn_place place);              /* not the owner of its element */
tn_place tn_layout_replicas(const tn_layout *layout);                            /* masks: bits of registers (inside a repeat), lanes, warps that do not matter */

bool tn_layout_same(const tn_layout *a, const tn_layout *b);         /* every place holds the same element */
bool tn_layout_same_threads(const tn_layout *a, const tn_layout *b); /* every thread holds the same elements, in whichever registers */

typedef enum tn_conversion { TN_CONVERT_NOTHING, TN_CONVERT_REGISTERS, TN_CONVERT_SHUFFLE, TN_CONVERT_SHARED } tn_conversion;
/* The least that brings a tile from one layout to another of the same extents and warps. *bytes, of a CTA: what threads receive that they did not
 * have (shuffle), or stores of every element once and loads of every place (shared); else 0. */
tn_conversion tn_layout_conversion(const tn_layout *from, const tn_layout *to, int element_bytes, int64_t *bytes);

/* Shared memory holds a tile's element at repeat << all bits | s(bits), s(x) = x ^ ((x >> (base + shift)) & (2^bits - 1)) << base, in elements. */
typedef struct tn_swizzle {
    uint8_t bits, base, shift;
} tn_swizzle;
/* The largest number of different words of one bank (32 of 4 bytes) that lanes ask for at once; 1: none waits. An access is `vector` elements a lane, up to
 * 16 bytes; of 8 bytes half a warp is served at once, of 16 a quarter. 2^base >= vector, if there is a swizzle. */
int tn_layout_bank_conflicts(const tn_layout *layout, tn_swizzle swizzle, int element_bytes, int vector);

/* Elements, adjacent along the axis and aligned, that consecutive registers hold in every thread: a power of two; repeats do not count. */
int tn_layout_vector(const tn_layout *layout, int axis);

/* `reg [1:1 1:2 | 1:3x] lane [0 0 0:1^1:4 …] warp [0:1 0:2]`: axis:stride of each bit, lowest first; `0`: a replica; after the bar, the repeats. */
void tn_text_layout(tn_text *text, const tn_layout *layout);

#endif
