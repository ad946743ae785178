/* What the files of products share: dot.c (which instruction, loops, accumulators), operand.c (operands in shared memory, fragments out of it). */
#ifndef TN_TARGET_GPU_DOT_H
#define TN_TARGET_GPU_DOT_H

#include "target/gpu/lower.h"

/* A matrix instruction m16n8 that warps run on registers, and that of warpgroups. */
typedef struct gpu_mma {
    tn_dtype left, right, sum; /* element types */
    const char *name;
    const char *group; /* what wgmma's name ends in */
} gpu_mma;
enum { GPU_MMA_M = 16, GPU_MMA_N = 8, GPU_MMA_DEPTH = 32 /* bytes of k */ };

/* How warps share out the result: warp = n * m_warps + m. */
typedef struct gpu_warps {
    int m, n;
} gpu_warps;

/* One operand of a product by instructions: [rows, columns] as it lies in shared memory, columns neighbours. Boxes of `box` columns follow each other, 128 bytes
 * a row or less; in a box the 16-byte pieces of a row are permuted by the row's number, so that 8 rows of one piece lie in different banks, and so do the
 * pieces of one row. */
typedef struct gpu_operand {
    const tn_tvalue *value;
    bool left;
    int inner;             /* axis of the value whose elements are neighbours */
    int lies;              /* that of where it comes from */
    int64_t rows, columns; /* the other axis' extent, the inner one's in whole boxes */
    int64_t box;           /* columns of one */
    int piece_bits;        /* log2 of the elements of 16 bytes */
    int piece_count;       /* pieces of a box's row: 1, 2, 4, 8 */
    int bytes;             /* of an element */
    bool rounds;           /* to tf32, where it goes through registers */
    bool settled;          /* it lies in its buffer since before the loop */
    bool apart;            /* barriers of its own keep its bytes apart from others' */
    tn_layout layout;      /* in which it is computed, if it goes through registers */
    int64_t width;         /* elements of one asynchronous copy; 0: it goes through registers */
    tn_layout copies;      /* of the tile whose elements are copies */
    tn_lvalue *map;         /* of what the machine copies whole boxes of (boxes.c); NULL: it does not */
    int map_dim[TN_MAP_RANK]; /* dimensions of the view that are the map's */
    int map_rows;           /* rows of a box */
    const place *fragments; /* it lies in registers as the instruction wants it; NULL: it does not */
    tn_lvalue *buffer, *stage; /* shared memory; where in it the tile starts that is read now, NULL: at 0 */
} gpu_operand;

/* The operand of a product, before anything is made for it. False: refused. */
bool gpu_operand_of(lower *L, const tn_top *dot, int number, gpu_operand *out);
static inline int64_t gpu_operand_elements(const gpu_operand *o) { return o->rows * o->columns; }
static inline int gpu_k_axis(const gpu_operand *o) { return o->left ? 1 : 0; }
/* What an operand is, turned perhaps, which as it lies in shared memory makes no difference: several products have operands of it. */
const tn_tvalue *gpu_unturned(const tn_tvalue *v, bool *turned);
/* That as the operand: what is copied, or stored. */
void gpu_unturn_operand(gpu_operand *o);
/* The operand as it lies where it comes from, to be copied so and then turned. */
void gpu_operand_to_turn(const gpu_operand *o, gpu_operand *out);
/* Turns what lies in the buffer of `from` into that of the other, for which all threads must have met. */
void gpu_turn_operand(lower *L, tn_lbuilder *b, const gpu_operand *from, const gpu_operand *to);
/* Finds out whether it can be copied without registers while `loop` walks. */
void gpu_plan_copies(lower *L, const tn_top *loop, gpu_operand *o);
/* Copies for the values that the memo gives to what the operand is loaded at, into `stage`. */
void gpu_copy_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *stage);
/* Computes it, and stores it into its buffer. */
void gpu_fill_operand(lower *L, tn_lbuilder *b, const gpu_operand *o);
/* A coordinate: what the thread gives, and what unrolled loops give, whose bits are others than the thread's. */
typedef struct gpu_split {
    tn_lvalue *thread, *rest;
} gpu_split;
/* Where the tile's elements lie: the first of 16 bytes, any one. by_thread: the row's rest is a multiple of 8, which permutes nothing. */
tn_lvalue *gpu_piece_at(tn_lbuilder *b, const gpu_operand *o, gpu_split row, gpu_split piece, bool by_thread);
tn_lvalue *gpu_element_at(tn_lbuilder *b, const gpu_operand *o, tn_lvalue *row, tn_lvalue *column);
/* Fragments along m (left) or n for 32 bytes of k, number `k`, into registers `to`: `count` fragments of 16 rows or 8 columns. k: may be an unrolled index. */
/* The same for wgmma: where in the buffer the 64 rows number `group` along m (n: from 0 on) start that belong to 32 bytes of k; how many bytes boxes are apart;
 * whether rows lie along m or n (elements of 2 bytes). */
typedef struct gpu_matrix {
    tn_lvalue *at, *apart, *turned;
} gpu_matrix;
gpu_matrix gpu_matrix_of(tn_lbuilder *b, const gpu_operand *o, tn_lvalue *group, tn_lvalue *k);
void gpu_load_fragments(lower *L, tn_lbuilder *b, const gpu_operand *o, gpu_warps warps, tn_lvalue *to, int count, tn_lvalue *k);

void gpu_round(tn_lbuilder *b, tn_lvalue *regs, int64_t count); /* registers of f32 to tf32 */

bool gpu_loads_elements(const gpu_operand *o); /* for fragments: elements that ldmatrix can't turn */

/* A buffer of its own in shared memory for that many tiles. */
void gpu_give_buffer(lower *L, gpu_operand *o, int64_t stages);
bool gpu_dot_is_by_groups(lower *L, const tn_top *dot);
bool gpu_dot_is_tiled(lower *L, const tn_top *dot);
/* What is added to the dot, or taken from it, if its accumulators can start at that where it stands before the dot; NULL: nothing. */
const tn_tvalue *gpu_added_to(lower *L, const tn_top *dot);
tn_lbuilder gpu_unrolled(tn_lbuilder *b, const char *name, int64_t count, tn_lvalue **index); /* a builder inside a loop that is unrolled later */
int64_t gpu_sum_words(lower *L, const tn_top *dot); /* registers of a thread that its sums take, and what scales them */

/* A dot of a `for` by warpgroups, in parts. It has started: its products are under way, with the left factor from registers (fragments) or where rings have it. It has
 * ended, when at most `others` groups of products are under way: then its result, or what it is added to, is a place. */
typedef struct product gpu_product;
tn_lvalue *gpu_group_of(lower *L); /* number of the thread's warpgroup */
bool gpu_fragments_of_dot(lower *L, const tn_top *dot, tn_layout *out); /* how its left operand lies in registers; false: it can't */
gpu_product *gpu_start_dot(lower *L, tn_lbuilder *b, const tn_top *dot, const place *fragments);
void gpu_end_dot(lower *L, tn_lbuilder *b, const gpu_product *p, int others);
void gpu_end_sums(lower *L, tn_lbuilder *b, const place *sums, int others); /* the same of registers that hold sums */
void gpu_close_dot(lower *L, tn_lbuilder *b, const gpu_product *p);          /* the result is a place, though it has not ended */
/* late.c: the dot's products run on until somebody wants them; it has been issued. sum: of what adds it to something (NULL: nothing does); stored: it reads what
 * threads have stored. */
bool gpu_runs_late(const lower *L, const tn_top *dot);
void gpu_before_late(lower *L, tn_lbuilder *b, const tn_top *dot); /* before it is issued */
bool gpu_is_stored_twice(lower *L, tn_lbuilder *b, const tn_top *dot, int number, gpu_operand *o); /* where the turn's lies, for which there are two buffers */
void gpu_run_late(lower *L, tn_lbuilder *b, const tn_top *dot, const gpu_product *p, const tn_tvalue *sum, bool stored);

/* ---- blocks.c: by multiply-adds, a block of the result a thread ------------------------------------------------------------------ */
/* False: the types, or too few elements. The extents are powers of two. */
bool gpu_block_layout(lower *L, const tn_top *dot, gpu_warps *warps, tn_layout *out);
void gpu_multiply_blocks(lower *L, tn_lbuilder *b, const tn_top *dot, gpu_warps warps, const gpu_operand *operands, tn_lvalue *acc);

/* ---- boxes.c: operands that a warp of its own has the machine copy, boxes at a time ------------------------------------------------ */
typedef struct gpu_boxes gpu_boxes;
/* The map that boxes of an operand come from, or go to where the access is a store. NULL: found; else why there is none. */
const char *gpu_find_map(lower *L, const tn_top *access, gpu_operand *o, tn_lmap *m);
void gpu_fetch_operand(lower *L, tn_lbuilder *b, const gpu_operand *o, tn_lvalue *stage, tn_lvalue *full); /* its boxes, for the turn that the memo says */
/* Finds the products whose operands can be copied so; gives them shared memory, maps and mbarriers. */
void gpu_plan_boxes(lower *L);
void gpu_choose_order(lower *L); /* of the programs of a kernel that is persistent, in order.c: L->longest */
/* The ring that turns with a fold which adds up a dot, NULL: none; that of a load at the top of a program, which is there for all of it. */
gpu_boxes *gpu_boxes_of_fold(lower *L, const tn_top *dot);
gpu_boxes *gpu_boxes_of_load(lower *L, const tn_top *load);
bool gpu_is_fed_by_boxes(lower *L, const tn_top *op); /* a loop or fold whose operands come by boxes */
struct gpu_ring *gpu_box_turns(gpu_boxes *x);
tn_lvalue *gpu_box_is_none(tn_lbuilder *b, const gpu_boxes *x); /* the turn's stage is none of the ring's, which never holds */
bool gpu_box_is_ahead(const gpu_boxes *x);                      /* the next turn's operands may be there before this one's are given back */
void gpu_await_boxes(lower *L, tn_lbuilder *b, gpu_boxes *x);   /* the next turn's operands are there from here on */
/* Done with the turn that is awaited, or with the one before it, where `also` holds (NULL: it does); then the next one is the turn. */
void gpu_release_boxes(lower *L, tn_lbuilder *b, gpu_boxes *x, bool before, tn_lvalue *also);
void gpu_next_boxes(tn_lbuilder *b, const gpu_boxes *x);
/* The rings of a loop that a dot is the first to read in a turn, and those that it is the last to. */
void gpu_await_dot(lower *L, tn_lbuilder *b, const tn_top *dot);
void gpu_release_dot(lower *L, tn_lbuilder *b, const tn_top *dot);
/* The same of a dot that alone reads its rings, in parts (overlap.c): whether it does; where what was awaited lies; on to the next turn; done with the one before. */
bool gpu_reads_own_rings(lower *L, const tn_top *dot);
void gpu_locate_dot(lower *L, tn_lbuilder *b, const tn_top *dot);
void gpu_await_next_dot(lower *L, tn_lbuilder *b, const tn_top *dot);
void gpu_release_dot_before(lower *L, tn_lbuilder *b, const tn_top *dot, tn_lvalue *also);
void gpu_next_of_dot(lower *L, tn_lbuilder *b, const tn_top *dot); /* on to the next turn of what it is the last to read */
void gpu_await_again(lower *L, tn_lbuilder *b, const tn_top *dot);  /* what has arrived: for the loop that the wait is */
bool gpu_loop_has_boxes(lower *L, const tn_top *loop);             /* a ring turns with it */
void gpu_release_program(lower *L, tn_lbuilder *b);             /* behind a program: what was there for all of it */
/* Around a product's loop: of a CTA's instances one after another is in it. Nothing where there is one. */
void gpu_take_turn(lower *L, tn_lbuilder *b);
void gpu_pass_turn(lower *L, tn_lbuilder *b);
/* All programs: `body` for those who compute, and the copies for the warp that does nothing else. */
void gpu_programs_by_roles(lower *L, tn_lbuilder *b, void (*body)(lower *L, tn_lbuilder *b));
/* Turns of a fold as one loop: first, limit and step are set. */
void gpu_count_turns(lower *L, tn_lbuilder *b, const tn_top *fold, struct gpu_ring *r);

/* ---- results.c: stores by boxes of shared memory --------------------------------------------------------------------------------- */
typedef struct gpu_result gpu_result;
void gpu_find_results(lower *L);    /* the stores that may be */
int64_t gpu_bound_results(lower *L, int64_t most); /* so many buffers each, a power of two; bytes of shared memory that they take for an instance */
void gpu_give_results(lower *L);    /* maps, and that memory, of all instances */
/* A kernel without products whose tiles lie across what they are stored as: they come in boxes, too. */
void gpu_plan_turned(lower *L);
void gpu_end_results(lower *L, tn_lbuilder *b); /* behind all programs: what is on its way has left shared memory */

/* ---- pipeline.c: operands that are copied turns of a loop ahead -------------------------------------------------------------- */
enum { GPU_RING = 8 };
struct gpu_ring {
    gpu_operand *operand[GPU_RING];
    int n;
    const tn_tvalue *index;          /* of the loop in the Tile IR; of a fold of several ranges the first one's, and turns are counted */
    int nranges;
    int64_t strip[TN_TILE_RANK];     /* steps of the ranges */
    tn_lvalue *count[TN_TILE_RANK];  /* how many each has */
    tn_lvalue *first, *limit, *step; /* the loop's values */
    int stages, ahead;
    bool groups;                     /* wgmma reads it */
    tn_lvalue *reads, *writes;
};
/* As many stages as the schedule wants and there is room for, `other` bytes left; `kept` of them are not copied ahead, of which the schedule counts one. None: the
 * ring becomes empty. */
void gpu_fit_ring(lower *L, gpu_ring *r, const char *label, int64_t other, int kept);
/* First in a turn: its copies are there, for all threads. */
void gpu_wait_for_turn(lower *L, tn_lbuilder *b, gpu_ring *r);
/* Declares the values of the Tile IR's indices in the turn `at`. */
void gpu_bind_turn(lower *L, tn_lbuilder *b, const gpu_ring *r, tn_lvalue *at);
void gpu_copy_ahead(lower *L, tn_lbuilder *b, gpu_ring *r, tn_lvalue *index);
/* Where the left operand is in registers as the dot's instruction wants it: how it lies there. False: it is not. */
bool gpu_lies_as_fragments(lower *L, const tn_top *dot, const gpu_operand *o, tn_layout *out);
/* The operand of a dot, if it is there: copied for this turn by the loop around, or since before that; else false. */
bool gpu_ready_operand(lower *L, const tn_top *dot, int number, gpu_operand *out);

#endif
