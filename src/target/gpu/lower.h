/* Shared by the files of the GPU lowering. lower.c's head says how it works; ../lower/lower.h has what it shares with other targets. */
#ifndef TN_TARGET_GPU_LOWER_H
#define TN_TARGET_GPU_LOWER_H

#include "target/gpu/layout.h"
#include "target/lower/lower.h"

/* A tile in registers: register i of the layout is element i of `regs`. */
typedef struct gpu_held {
    tn_layout layout;
    tn_lvalue *regs;
    bool once, used; /* once: for the first nest that reads them; later ones read the buffer, so that the registers are free */
    int64_t waiting; /* but those from this one on, which the buffer has no room for; 0: it has all */
    bool parted;     /* the first nest is over */
    tn_lvalue *own;  /* where each thread of a cluster has left its registers for itself (cluster.c); NULL: they are there */
} gpu_held;

/* Register bits of a layout that walk one axis in steps that double, as one loop. Repeats of an axis are such a loop too. */
typedef struct walk {
    int axis;
    int64_t stride;    /* of the axis's index */
    int64_t registers; /* that one step skips */
    int64_t count;
    tn_lvalue *index;
} walk;

/* The loops over the registers of a layout. */
typedef struct nest {
    tn_layout layout;
    tn_lvalue *idx[TN_TILE_RANK]; /* coordinates of the element */
    tn_lvalue *reg;               /* number of its register */
    walk walk[TN_LAYOUT_REG_BITS + TN_TILE_RANK];
    int nwalks;
    scope scope;
} nest;

/* Memory that was touched since the last barrier. */
typedef struct touch {
    int buffer;        /* of the kernel, LOWER_MEMORY; GPU_SHARED */
    int64_t at, bytes; /* shared */
    bool write;
    bool adds;         /* by the memory itself, in whatever order */
    const tn_top *op;  /* global: by what */
    const tn_layout *layout; /* which threads touch what; NULL: not known */
} touch;
typedef TN_VEC(touch) touches;
enum { GPU_SHARED = -3, GPU_ALL = -4 /* all that other programs may look at */ };

typedef struct region {
    size_t log, shares, made;
    const touch *before; /* what was touched before it */
    size_t nbefore;
    bool runs;     /* a loop that surely has a turn */
    bool programs; /* turns are programs: what they do to the kernel's buffers has no order */
} region;

/* Where a value is wanted first: the tile that a sink's nest walks, and which of its axes are the value's. */
typedef struct demand {
    tn_ttype nest;
    axes of;
    bool known;      /* all axes are */
    int sinks;       /* that compute it */
    bool from_loop;  /* one of them stands in a loop that the value is not computed in */
    bool elsewhere;  /* one of them may want elements in other threads: no store, no reduction */
    const tn_top *last; /* sink that was counted */
} demand;

typedef struct gpu_lower {
    lower base;
    int warps;                  /* of a CTA */
    tn_lvalue *thread;          /* number of this one among those of the CTA or instance */
    int ctas;                   /* that work on a program together, as a cluster; 1: no cluster */
    tn_lvalue *cta;             /* number of this one among them */
    tn_lbuilder start;          /* of a cluster: what a CTA's first thread does before the program */
    bool met;                   /* the CTAs of the cluster have all begun here */
    const char *apart;          /* why one CTA had better do a program; NULL: nothing speaks against the cluster */
    int instances;              /* programs that a CTA works on at once, in turns at the products (boxes.c) */
    tn_lvalue *instance;        /* whose program this thread works on, if there are several */
    tn_map votes;               /* hash of extents -> how memory lies under tiles of that shape */
    tn_map classes;             /* the same -> tn_layout */
    tn_map demands;             /* tn_tvalue -> demand */
    tn_map remarked;            /* name and layout: stands in the remarks */
    tn_map own_sums;            /* reductions of which each thread adds up its own elements alone for now (tn_top -> itself) */
    tn_map parts;               /* what threads add to an axis: key of columns -> tn_lvalue */
    const nest *nest;           /* that is open */
    int64_t shared;             /* bytes of the CTA's shared memory that are in use now: from 0 on */
    int64_t most_at_once;       /* that ever were */
    touches touched;      /* since the last barrier */
    touches log;          /* all, for loops */
    touches next;         /* what the nest that is being prepared will touch */
    TN_VEC(place *) once;       /* whose registers are for one nest */
    TN_VEC(place *) shares;     /* that got a buffer, in order */
    TN_VEC(const tn_tvalue *) made; /* that got a place, though they are expressions */
    tn_map prepared;            /* value and axes: seen for the nest that is being prepared */
    int64_t kept_words;         /* registers of a thread that hold kept values */
    bool waits;                 /* a tile waits in shared memory */
    bool multiplies;            /* there are products, whose accumulators take registers */
    bool rings;                 /* loops have rings of copies: with fewer stages they need less of it */
    tn_text remarks;            /* layouts of tiles in registers */
    int conversions;            /* through shared memory */
    int64_t converted_bytes;
    tn_map ready;               /* what is loaded (tn_tvalue), and operands of dots (their place in the dot) -> gpu_operand that a loop copies ahead */
    TN_VEC(const tn_top *) products; /* that read boxes */
    TN_VEC(struct gpu_boxes *) boxes; /* rings that a producer fills (boxes.c) */
    TN_VEC(struct gpu_result *) results; /* stores that leave by boxes (results.c) */
    TN_VEC(struct gpu_arrival *) arrivals; /* tiles that come by boxes, to be turned */
    tn_lvalue *mbarriers;
    bool crowded;               /* with those rings it needs more shared memory than there is */
    bool own_memory;            /* instances would want memory besides the ring, each its own */
    int most_stages;            /* of such a ring; 0: there shall be none */
    bool alone;                 /* there shall be one instance */
    TN_VEC(struct gpu_overlap *) overlaps; /* loops whose turns run into each other (overlap.c) */
    const tn_top *product;      /* the dot that the fold around it computes */
    struct gpu_late *late;      /* of the `for` that is lowered: products under way (late.c); NULL: it waits for each */
} gpu_lower;

#define GPU(L) ((gpu_lower *)(uintptr_t)(L))

/* ---- small pieces ---------------------------------------------------------------------------------------------------------- */
static inline tn_lvalue *gpu_plus(tn_lbuilder *b, tn_lvalue *x, tn_lvalue *y) { return tn_l_fn2(b, TN_S_add, x, y); }
static inline tn_lvalue *gpu_times(tn_lbuilder *b, tn_lvalue *x, int64_t by) { return tn_l_fn2(b, TN_S_mul, x, tn_l_index(b, by)); }
static inline tn_dtype gpu_held_dtype(const tn_ttype *type) { return type->pointer ? TN_I64 : type->dtype; }
static inline int64_t gpu_elements(const tn_ttype *type)
{
    int64_t n = 1;
    for (int a = 0; a < type->rank; a++)
        n *= type->extent[a].size;
    return n;
}

/* Of a processor, by the machine's row. */
static inline int64_t gpu_most_shared(const lower *L) { return L->machine->l1_bytes; }             /* bytes, which one CTA can have */
static inline int64_t gpu_processor_registers(const lower *L) { return L->machine->l2_bytes / 4; } /* of 32 bits */

/* ---- lower.c --------------------------------------------------------------------------------------------------------------- */
void gpu_block(lower *L, tn_lbuilder *b, const tn_tblock *block);
/* First index, limit and step of a `for`, in 64 bits; one whose step does not go up has no turn. */
void gpu_loop_bounds(lower *L, tn_lbuilder *b, const tn_top *op, tn_lvalue **lo, tn_lvalue **hi, tn_lvalue **step);
/* Refuses an operation by name. */
void gpu_refuse(lower *L, const tn_top *op, const char *what);
/* The layout in which a sink walks v; of a scalar: the first thread's. */
bool gpu_sink_layout(lower *L, const tn_tvalue *v, tn_layout *out);

void gpu_op(lower *L, tn_lbuilder *b, const tn_top *op);
void gpu_keep(lower *L, tn_lbuilder *b, const tn_tvalue *v); /* in registers */
/* state := values, what the loop's body yields, of those that are chosen (NULL: all). All are computed before the first is stored, where one is computed from
 * another's old value. */
void gpu_carry(lower *L, tn_lbuilder *b, const tn_tvalue *args, tn_tvalue *const *values, place *const *state, int n, const bool *chosen);

/* ---- overlap.c ------------------------------------------------------------------------------------------------------------- */
/* A loop of two products, the first one's operands known by its index, the second one's left operand made of the first one's result: the first one of a turn runs
 * with the second one of the turn before. */
typedef struct gpu_overlap gpu_overlap;
struct gpu_overlap {
    const tn_top *loop, *first, *second;
    tn_map late;                       /* what comes of the second dot: tn_top -> itself */
    bool late_state[TN_TILE_CARRIED];  /* what the loop carries of that */
    const tn_tvalue *cross[8];         /* what it reads besides: the dot's left operand, then others */
    int ncross;
    const tn_tvalue *source;           /* of f32, from which the left operand is packed */
    tn_layout fragments;               /* of the left operand */
    int64_t words;                     /* registers of what crosses */
};
void gpu_start_turns(lower *L, tn_lbuilder *b); /* before all programs */
/* Around what one of two warpgroups issues in its turn. */
enum { GPU_TAKERS = 2, GPU_TURNS = 8 /* barriers of whose turn it is: this one and the next */ };
void gpu_take_group_turn(lower *L, tn_lbuilder *b);
void gpu_pass_group_turn(lower *L, tn_lbuilder *b);
void gpu_find_overlap(void *context, tn_top *loop); /* context: the lowering */
const gpu_overlap *gpu_overlap_of(lower *L, const tn_top *loop); /* NULL: none */
void gpu_lower_overlapped(lower *L, tn_lbuilder *b, const gpu_overlap *x, tn_lvalue *lo, tn_lvalue *hi, tn_lvalue *step, place *const *state);

/* ---- reduce.c -------------------------------------------------------------------------------------------------------------- */
/* Sums that each turn of a loop adds to what it carries, in this layout, may be those of each thread's own elements until the loop is over: whether op gives such; before
 * the loop, what one of the threads that hold a sum has is all of it; behind it all have the whole. */
bool gpu_sums_by_threads(lower *L, const tn_top *op, const tn_layout *sums);
void gpu_start_own_sums(lower *L, tn_lbuilder *b, const tn_top *op, place *sums);
void gpu_end_own_sums(lower *L, tn_lbuilder *b, const tn_top *op, place *sums);

/* Known by the loop's index and what is there before the loop. */
bool gpu_is_free(const tn_tvalue *v, const tn_top *loop, int *budget);

/* ---- late.c ---------------------------------------------------------------------------------------------------------------- */
/* In a `for`, products by warpgroups that are known by its index go to behind the first of them, as far as registers hold what they give. context: the lowering */
void gpu_issue_early(void *context, tn_top *loop);
/* Around a loop whose products run late; NULL: they do not. from, to: its range. */
typedef struct gpu_late gpu_late;
gpu_late *gpu_enter_late(lower *L, tn_lbuilder *b, const tn_top *loop, tn_lvalue *from, tn_lvalue *to);
void gpu_leave_late(lower *L, tn_lbuilder *b, const gpu_late *x);
bool gpu_late_takes_turns(lower *L, const tn_top *loop); /* warpgroups do, at the products that are issued first */
/* Around a turn of it, before the state becomes what the turn gives. */
void gpu_start_late_turn(lower *L, tn_lvalue *index);
void gpu_end_late_turn(lower *L, tn_lbuilder *b, place *const *state);
/* Waits for the products whose results the operation reads; those that read what threads have stored, before others may store there. */
void gpu_await_products(lower *L, tn_lbuilder *b, const tn_top *op);
void gpu_await_stored(lower *L, tn_lbuilder *b);

/* ---- choose.c: which layout ------------------------------------------------------------------------------------------------ */
/* Looks at the kernel before anything is lowered: what is used where, how memory lies. */
void gpu_survey(lower *L);
/* The layout of all tiles of one shape. False: refused (too large a tile), with a diagnostic. */
bool gpu_class_layout(lower *L, const tn_ttype *type, tn_layout *out);
/* The layout in which v had better be made: of what it is computed from, else of who wants it, else its shape's. */
bool gpu_natural_layout(lower *L, const tn_tvalue *v, tn_layout *out);
/* A load (by view or pointer) in the layout would touch memory with a stride from lane to lane; *better: one that does not. */
bool gpu_is_scattered(lower *L, const tn_top *load, const tn_layout *layout, tn_layout *better);
/* The same of a store: what a warp's instruction stores is less than memory moves. A layout that is better, if there is room for the tile in shared memory. */
bool gpu_store_is_scattered(lower *L, const tn_top *store, const tn_layout *layout);
bool gpu_store_whole_rows(lower *L, const tn_top *store, const tn_layout *layout, tn_layout *better);
/* The axis along which an access has neighbours in memory, and what their vectors' starts and ends are multiples of, in elements. False: none, or not known. */
bool gpu_neighbours(const lower *L, const tn_top *access, int *axis, int64_t *multiple);
/* In which a tile is computed that goes to shared memory: where it is already, or as the memory lies that it is loaded from; *inner: its fastest axis. */
bool gpu_operand_layout(lower *L, const tn_tvalue *v, int *inner, tn_layout *out);
void gpu_set_class_layout(lower *L, const tn_ttype *type, const tn_layout *layout);
int64_t gpu_words(const lower *L, const tn_ttype *type); /* registers of a thread that a tile takes */
int64_t gpu_thread_room(const lower *L);                 /* those that it has for values */
int gpu_resident(const lower *L);                        /* CTAs of a row that waits that a processor has registers and shared memory for */
/* A load that several nests want, and that would leave too few registers for two CTAs on a processor: it had better wait in shared memory. *registers: those of a
 * thread that wait, where two CTAs have no room for all; 0: all. */
bool gpu_had_better_wait(lower *L, const tn_tvalue *v, const tn_layout *layout, int64_t *registers);
/* Worth having in registers rather than computing once more; if so, the registers count as taken. */
bool gpu_is_worth_keeping(lower *L, const tn_tvalue *v);

/* ---- nest.c: registers, nests, shared memory, barriers --------------------------------------------------------------------- */
/* The axes in a nest of operand i of an operation that is no plain move, `of` being the result's; those whose index is computed are below -1. */
axes gpu_operand_axes(const tn_top *op, int i, const axes *of);
/* Makes all that v's elements are computed from readable in a nest of this layout, whose axes v has: converts what lies in other registers. Before the nest is
 * opened; any number of values. */
void gpu_prepare_own(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_layout *layout);
/* The same of what an access (load, store, atomic; by view or pointer) is addressed by. */
void gpu_prepare_access(lower *L, tn_lbuilder *b, const tn_top *op, const tn_layout *layout);
/* Opens the loops; *b becomes a builder of the innermost body. The barrier that what was prepared needs comes before them. */
void gpu_open(lower *L, tn_lbuilder *b, const tn_layout *layout, nest *out);
/* The same of one of equal parts of the registers, neighbours in their order. */
void gpu_open_part(lower *L, tn_lbuilder *b, const tn_layout *layout, int part, int parts, nest *out);
/* The barrier alone, for who makes loops of his own. */
void gpu_meet(lower *L, tn_lbuilder *b);
void gpu_close(lower *L, nest *n);
void gpu_find_walks(const tn_layout *layout, nest *out); /* what loops it would open, innermost first: the part of out that says so */
tn_layout gpu_scalar_layout(const lower *L); /* one element, which all threads have */
/* This thread's copy of the element counts (of several in other lanes or warps only one does); NULL: there are no others. */
tn_lvalue *gpu_owns(lower *L, const tn_layout *layout);
tn_lvalue *gpu_is_first_thread(lower *L); /* of the CTA or instance */
/* Coordinate of `axis` that the thread gives: register 0's. */
tn_lvalue *gpu_thread_index(lower *L, const tn_layout *layout, int axis);
/* Number of the register of `to` that holds the element of the open nest; `of`: axes of the tile of `to` in the nest. */
tn_lvalue *gpu_register(tn_lbuilder *b, const nest *n, const axes *of, const tn_layout *to);
/* The same, those from the bit `from` on times `by`. */
tn_lvalue *gpu_spread_register(tn_lbuilder *b, const nest *n, const axes *of, const tn_layout *to, int from, int64_t by);
/* Registers for a tile, undefined. */
place *gpu_new_place(lower *L, tn_lbuilder *b, const tn_ttype *type, const tn_layout *layout, const char *name);
/* Computes v into registers. */
place *gpu_materialise(lower *L, tn_lbuilder *b, const tn_tvalue *v, const tn_layout *layout);
void gpu_materialise_into(lower *L, tn_lbuilder *b, const tn_tvalue *v, place *p);
tn_lvalue *gpu_registers(const place *p);
tn_ttype gpu_flags(const tn_ttype *type); /* bools of that shape */
/* The copies in other threads of what only owners have in their registers. */
void gpu_spread(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p);
/* Gives the place a buffer in shared memory, from which any thread reads any element. reader: who will read most; NULL: not known. */
void gpu_share(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, const tn_layout *reader);
/* The same for the first nest that reads the place's registers, which are free behind it: those below `registers`, if it is not 0. */
void gpu_let_wait(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, int64_t registers);
/* From this byte on shared memory is free again; whoever takes it waits until all threads have done with what was there. */
void gpu_give_back(lower *L, int64_t from);
/* A buffer of the CTA. */
tn_lvalue *gpu_shared(lower *L, const char *name, tn_dtype dtype, int64_t elements);
/* An element of it, which holds 4-bit integers as whole bytes. */
tn_lvalue *gpu_get(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *at, tn_dtype dtype);
void gpu_put(tn_lbuilder *b, tn_lvalue *buffer, tn_lvalue *at, tn_lvalue *x, tn_lvalue *mask);
/* Before this thread touches a buffer of the CTA, or of the kernel: a barrier if that is needed. */
void gpu_touch_shared(lower *L, tn_lbuilder *b, const tn_lvalue *buffer, bool write);
void gpu_touch_global(lower *L, tn_lbuilder *b, int buffer, const tn_top *op, const tn_layout *layout, bool write); /* layout: of its tile; NULL: not known */
void gpu_touch_sums(lower *L, tn_lbuilder *b, int buffer, const tn_top *op, const tn_layout *layout); /* the same of what the memory adds to, whoever else does */
/* What is passed on to other programs, or was by them: a barrier after all that threads have touched before it, and before what they touch after it. */
void gpu_order(lower *L, tn_lbuilder *b, bool before, bool after);
/* What the nest that is being prepared loads may be what another thread stores in it, by `op` in this layout. */
bool gpu_next_meets(lower *L, const tn_top *op, const tn_layout *layout);
bool gpu_store_waits(lower *L, const tn_top *op, const tn_layout *layout); /* for what other threads touched: a barrier comes before it */
void gpu_barrier(lower *L, tn_lbuilder *b);
/* Around what may run not at all or several times: copies and kept values that are made inside are not there behind it. b: a loop's body, at whose end a
 * barrier comes if one turn touches what the next one does too; NULL: no loop. */
region gpu_enter(lower *L);
void gpu_leave(lower *L, tn_lbuilder *b, region r);
element gpu_place_element(lower *L, tn_lbuilder *b, const place *p, const tn_tvalue *v, tn_lvalue *const *idx);

/* ---- cluster.c ------------------------------------------------------------------------------------------------------------- */
static inline int gpu_all_warps(const lower *L) { return GPU(L)->warps * GPU(L)->ctas; } /* of a program */
/* What in the kernel no cluster can do; NULL: nothing that is known before it is lowered. */
const char *gpu_cluster_obstacle(const tn_kernel *kernel);
void gpu_give_up_cluster(lower *L, const char *why); /* lowering ends, and is tried again without */
/* Around a program. */
void gpu_start_cluster(lower *L, tn_lbuilder *b);
void gpu_end_cluster(lower *L);
/* So many bytes that all CTAs send to each: an mbarrier that is through when they are there. Nobody sends before this stands. */
tn_lvalue *gpu_new_delivery(lower *L, tn_lbuilder *b, int64_t bytes);
/* x, of 32 or 64 bits, to element `at` of that buffer in CTA number `cta` (NULL: in each), if `mask` (NULL: always). */
void gpu_send(lower *L, tn_lbuilder *b, tn_lvalue *x, tn_lvalue *buffer, tn_lvalue *at, tn_lvalue *cta, tn_lvalue *delivery, tn_lvalue *mask);
void gpu_await_delivery(tn_lbuilder *b, tn_lvalue *delivery);
/* ((number of the thread >> from) & (2^n - 1)), the number going on from CTA to CTA; bits of the thread in its CTA, or of the CTA. */
tn_lvalue *gpu_thread_bits(lower *L, tn_lbuilder *b, int from, int n);
bool gpu_is_cta_bit(const lower *L, int bit); /* of that number */
/* Registers of a place into the thread's own part of shared memory, for the nests behind the first one that reads them. */
void gpu_leave_registers(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p);
tn_lvalue *gpu_read_left(lower *L, tn_lbuilder *b, const nest *n, const axes *of, const tn_ttype *type, const place *p);

/* ---- exchange.c ------------------------------------------------------------------------------------------------------------ */
/* Exchanges the place's registers among lanes so that each thread holds 16 bytes of neighbours along the axis, or as much as `multiple` elements are; *out: the
 * layout that it has then, its registers in the order that accesses want. False: lanes alone can't, or it is so already. */
bool gpu_gather_neighbours(lower *L, tn_lbuilder *b, const tn_ttype *type, place *p, int axis, int64_t multiple, tn_layout *out);

/* ---- results.c ------------------------------------------------------------------------------------------------------------- */
bool gpu_store_result(lower *L, tn_lbuilder *b, const tn_top *store); /* by boxes; false: not planned so */

/* First in a program; where a load stands: in registers, if it came by boxes. */
typedef struct gpu_arrival gpu_arrival;
void gpu_fetch_arrivals(lower *L, tn_lbuilder *b);
bool gpu_take_arrival(lower *L, tn_lbuilder *b, const tn_top *load);

/* ---- atomic.c -------------------------------------------------------------------------------------------------------------- */
void gpu_atomic(lower *L, tn_lbuilder *b, const tn_top *op); /* atomic, atomic_ptr, cas_ptr */
void gpu_fence(lower *L, tn_lbuilder *b, const tn_top *op);

/* ---- lines.c --------------------------------------------------------------------------------------------------------------- */
void gpu_scan(lower *L, tn_lbuilder *b, const tn_top *op);
void gpu_sort(lower *L, tn_lbuilder *b, const tn_top *op);
void gpu_reduce_tree(lower *L, tn_lbuilder *b, const tn_top *op); /* reduce with `order tree` */
void gpu_histogram(lower *L, tn_lbuilder *b, const tn_top *op);

/* ---- reduce.c -------------------------------------------------------------------------------------------------------------- */
void gpu_reduce(lower *L, tn_lbuilder *b, const tn_top *op); /* reduce, fold */

/* ---- dot.c ----------------------------------------------------------------------------------------------------------------- */
bool gpu_is_dot_fold(const tn_top *fold); /* adds up what one dot in it gives, and nothing else */
void gpu_dot(lower *L, tn_lbuilder *b, const tn_top *op); /* dot, or such a fold */
/* Operands of products in a `for` that can be copied ahead of its turns; NULL: none. Before the loop its first value, limit and step are filled in. */
typedef struct gpu_ring gpu_ring;
gpu_ring *gpu_ring_of_loop(lower *L, const tn_top *loop);
void gpu_start_ring(lower *L, tn_lbuilder *b, gpu_ring *r);                     /* before the loop */
void gpu_run_ring(lower *L, tn_lbuilder *b, gpu_ring *r, tn_lvalue *index);     /* first in its body */
void gpu_end_ring(lower *L, tn_lbuilder *b, const gpu_ring *r);                 /* behind it */
/* Before the loop: operands of its products that are the same in all turns lie in shared memory from here on, but for left ones that stay in registers. */
void gpu_settle_operands(lower *L, tn_lbuilder *b, const tn_top *loop);
void gpu_forget_operands(lower *L, const tn_top *loop);                         /* behind it: what products of its body read is not there any more */
void gpu_set_loop(gpu_ring *r, tn_lvalue *first, tn_lvalue *limit, tn_lvalue *step);
bool gpu_is_copied(lower *L, const tn_tvalue *v);         /* a loop's ring has what it loads or turns */
void gpu_survey_dot(lower *L, const tn_top *dot);         /* tiles of its result's shape get the layout of its accumulators */

#endif
