/* Shared inside src/fuse.
 *
 * A group is one kernel. It has an iteration space (dims), a root operation whose result is stored, and operations computed inside it. An
 * operation inside is *demanded* at a map: the coordinates of its result as affine functions of the group's dims (plus, for
 * gather and its kin, index values computed at run time). Grouping walks the block backwards and derives operands' maps from their
 * users' (map.c says how for each operation); what cannot be written so is stored in a buffer of its own. So a reshape, transpose, slice,
 * broadcast or pad inside a group costs nothing but a different view. */
#ifndef TN_FUSE_INTERNAL_H
#define TN_FUSE_INTERNAL_H

#include "fuse/fuse.h"

enum { FUSE_DIMS = 16, FUSE_ARGS = 96, FUSE_OPS = 400, FUSE_PRODUCTS = 2, FUSE_RESULTS = 9 /* values that a kernel stores */ };

/* base + sum coef[j] * dim j; coef NULL: 0. */
typedef struct affine {
    tn_dim coef[FUSE_DIMS];
    tn_dim base;
} affine;

typedef struct fmap fmap;
typedef struct demand demand;
typedef struct group group;

/* An index read at run time: clamp(index value at `at`, 0, limit) */
typedef struct dynamic_index {
    int operand;         /* of the op that demands it */
    const tn_value *value;
    fmap *at;
    demand *from;        /* computed in the group; NULL: stored */
    tn_dim limit;
} dynamic_index;

typedef struct coord {
    affine a;
    dynamic_index *dyn; /* added, if not NULL */
} coord;

typedef struct fguard {
    affine at; /* 0 <= at < limit */
    tn_dim limit;
    struct fguard *next;
} fguard;

struct fmap {
    int rank;
    coord *c;
    fguard *guards;
    bool movement_only; /* read by a product: nothing may be computed on the way */
    bool repeated;      /* read several times (window taps): only cheap work on the way */
};

enum { DEMAND_ARGS = 64 };
struct demand {
    const tn_op *op;
    group *group;
    fmap *map;
    int nargs;
    fmap **argmap; /* NULL entry: cannot be derived */
    demand **arg;  /* NULL: the operand is stored (or constant) */
    int phase;     /* of `tile` */
    tn_tvalue *tile;
    bool wide;       /* of an attention's scores: narrow floats are kept in the accumulators' type */
    bool bounded;    /* the same: hides keys by bounds alone (visible.c) */
    int passes;      /* operand + 1 that it passes on as it is: a scale that the scores get in its place */
    int phases;      /* how many different phases asked for it */
    int last_phase;
    int walk;        /* the last of the emitter's that came here */
    int local;       /* kernel buffer that keeps it between phases, or one of these: */
#define NOT_KEPT (-1)
#define KEPT_IN_RESULT (-2) /* in the row of the result that is not written yet */
    demand *next;    /* of the same op */
};

typedef struct gdim {
    tn_dim extent;
    bool fold;     /* reduced over */
    bool absorbed; /* merged into the dim after it in order */
    bool whole;    /* an axis of an attention's tiles: never split or merged */
} gdim;

typedef enum group_kind { GROUP_POINT, GROUP_FOLD, GROUP_PRODUCT, GROUP_ATTENTION } group_kind;

/* softmax(scores(Q K^T)) V: what attention.c found. Values in order of the graph. */
typedef struct attention {
    const tn_op *keys;   /* the product of Q and K; operand `query` of it is Q */
    const tn_op *values; /* the product of weights and V; operand `weights` of it are the weights */
    int query, weights;
    demand *keys_demand, *values_demand, *scores; /* scores: what the softmax takes */
    int key, depth, column; /* dims of the group: keys, what Q K^T contracts, V's columns (-1: one) */
    double scale;           /* of Q and K, which the scores get */
} attention;

struct group {
    group_kind kind;
    const tn_op *root;
    int ndims;
    gdim dim[FUSE_DIMS];
    int order[FUSE_DIMS]; /* dims from outermost to innermost */
    bool windowed;        /* fold dims are window taps */
    bool full_root;       /* the root runs over the fold dims too */
    demand *product[FUSE_PRODUCTS]; /* of one left operand: sums one after the other, elements computed from all of them */
    int nproducts;
    bool scaled;          /* a product's operands are scaled by blocks: its dims may be split for that */
    attention *attention;
    TN_VEC(fmap *) maps;
    TN_VEC(demand *) demands; /* in order of discovery: users before producers */
    TN_VEC(demand *) stored;  /* those whose elements the kernel stores: the root's first, then what others want too */
    size_t nops;
    int inputs; /* at most so many stored operands are read */
};

/* Where a stored value lies: strides of a row-major tensor, or a part of one (concatenation in place). */
typedef struct location {
    int buffer;
    tn_dim stride[TN_MAX_RANK];
    tn_dim offset;
} location;

/* Part of a concatenation: it begins at `at` along the axis. */
typedef struct concat_part {
    const tn_op *concat;
    tn_dim at;
    int depth; /* of parts in parts: 1 */
} concat_part;

typedef struct fuser {
    tn_session *session;
    tn_program *program;
    const tn_fuse_options *options;
    tn_arena *arena;
    tn_map demands;   /* op -> demand list (all groups) */
    tn_map roots;     /* op -> group */
    tn_map locations; /* value -> location */
    tn_map packed;    /* constant packings by key text -> buffer + 1 */
    tn_map wanted;    /* value -> the part of a concatenation that it is computed in */
    tn_map declined;  /* op -> why it is not in its user's kernel, found out before the walk came to it */
    tn_map places;    /* op -> its number in its block, from 1 */
    int next_kernel;
    int choice, choices; /* that the kernel being made came by, 0: none; so far */
    const tn_op *current; /* whose steps are being made */
    tn_status status;
} fuser;

/* affine arithmetic (map.c) */
static inline tn_dim affine_coef(fuser *F, const affine *a, int j) { return a->coef[j] ? a->coef[j] : tn_dim_const(F->session, 0); }
affine affine_scale(fuser *F, const affine *a, tn_dim by);
affine affine_add(fuser *F, const affine *a, const affine *b);
bool affine_is_dim(const affine *a, int ndims, int *dim); /* exactly one dim, coefficient 1, base 0 */
fmap *map_new(fuser *F, group *g, int rank);
bool map_same(const fmap *a, const fmap *b, int ndims);
fmap *map_identity(fuser *F, group *g, int rank, const int *dims);
/* The map at which `op`, demanded at d->map, reads operand i; NULL: not affine. May split dims of the group. */
fmap *derive_operand(fuser *F, group *g, demand *d, int i);

/* group.c */
void fuse_guard_coord(fuser *F, fmap *m, int i, tn_dim extent); /* coordinate i must be in [0, extent) */
bool fuse_group_block(fuser *F, const tn_block *block);
int64_t fuse_place(const fuser *F, const tn_op *op); /* its number in its block, from 1: steps run in this order of their operations, kernels in that of their roots */
bool fuse_leaves_block(const tn_op *op, const tn_op *user); /* a body uses it, or gives it */
bool fuse_is_position(const tn_op *op, int i);              /* operand i (or one of those behind it) is where, not what */
bool op_is_point(const tn_op *op);
bool op_is_reduce(const tn_op *op);
bool op_is_special(const tn_op *op);
const char *op_unsupported(const tn_op *op); /* why, or NULL */
bool op_is_view(const tn_op *op); /* its elements are its operand's, elsewhere */
/* The demand of op at map m: the same one again if it exists. */
demand *group_demand(fuser *F, group *g, const tn_op *op, fmap *m);
void group_derive(fuser *F, group *g, demand *d);         /* the maps of its operands */
fmap *group_only_reading(fuser *F, const tn_op *op, const group *g); /* the one map at which group g alone reads it, else NULL */
void group_link(fuser *F, const tn_op *op);               /* demands of its users to its own */
void group_drop(fuser *F, const tn_op *op);               /* its demands */
/* The group's dim that each coordinate is, -1 for a unit dim; false if it is anything else. */
bool map_picks_dims(fuser *F, const group *g, const fmap *m, const tn_type *type, int *dims);
/* The same of each dim that is more than one, -1 for the others too: the map names every place of the group's space once. */
bool map_walks_all(fuser *F, const group *g, const fmap *m, const tn_type *type, int *dims);
static inline bool group_dim_is_one(const group *g, int j) { return tn_dim_is(g->dim[j].extent, 1); }
bool group_has_in_order(const group *g, const int *dims, int n); /* dims of it (-1: none), outermost first */
/* Programs that take a row each, with these dims inside, are enough for all threads, and a row's elements lie together: what is computed for all elements may as well be
 * computed where rows are reduced. */
bool group_rows_are_many(const group *g, const bool *fold);

/* locations and buffers (fuse.c) */
int fuse_buffer(fuser *F, tn_pbuffer_kind kind, const tn_type *type, const char *name);
location *fuse_location(fuser *F, const tn_value *v); /* of a stored value; makes the buffer when new */
location *fuse_dense(fuser *F, int buffer, const tn_type *type);
tn_step *fuse_step(fuser *F, tn_steps *steps, tn_step_kind kind, const tn_op *op);
/* Writes v's elements to a location of its shape. */
void fuse_emit_copy(fuser *F, tn_steps *steps, const tn_value *v, const location *to, const tn_op *op);
/* The buffer in which v lies alone, row-major (steps take buffers, not views): a copy if it does not lie so. */
int fuse_dense_buffer(fuser *F, tn_steps *steps, const tn_value *v, const tn_op *op);
group *fuse_group_new(fuser *F, const tn_op *root, const tn_type *type);
void fuse_block(fuser *F, const tn_block *block, tn_steps *steps);

/* emit.c: kernels of groups */
void fuse_emit_group(fuser *F, tn_steps *steps, group *g);
/* share.c: groups of the block that walk all of the same value become one. */
void fuse_share_reads(fuser *F, const tn_block *block);
/* special.c */
void fuse_emit_special(fuser *F, tn_steps *steps, const tn_op *op);

/* A kernel being made (emit.c, product.c, special.c). */
typedef struct emitter {
    fuser *F;
    group *g;
    tn_kernel *kernel;
    tn_tbuilder b;
    int phase, phases;               /* the one in scope (0: rows), the number there have been */
    int walk;                        /* walks over demands so far */
    int rank;                        /* tile axes of this phase */
    tn_extent extent[TN_TILE_RANK];
    tn_tvalue *start[FUSE_DIMS];     /* by group dim; NULL: not in scope in this phase */
    int axis[FUSE_DIMS];             /* tile axis of a dim, -1: a point */
    int arg_buffer[FUSE_ARGS];       /* program buffer of kernel parameter i */
    int nargs;
    tn_map folds;                    /* reduce op -> tn_tvalue * array of its results (row tiles) */
    struct attend *attend;           /* in an attention's scores (attend.c); else NULL */
    int row_axes;                    /* leading tile axes that row values have */
    tn_map views;                    /* cache */
    TN_VEC(const tn_op *) ops;
    /* by parameter: how many phases loaded from it, the last of them, and the loads of the first two (prefetch_rows) */
    int sweeps[FUSE_ARGS], last_sweep[FUSE_ARGS];
    tn_top *row_load[FUSE_ARGS][2];
} emitter;
emitter *emitter_new(fuser *F, group *g, const char *stem);
/* kernel parameter for a program buffer */
int emitter_arg(emitter *E, int buffer, tn_buffer_mode mode);
tn_tvalue *emit_demand(emitter *E, demand *d);
tn_tvalue *emit_operand(emitter *E, demand *d, int i);
void emit_store(emitter *E, const location *to, const fmap *map, tn_tvalue *value);
/* Stores what the group gives in the phase in scope; full: tiles of all axes, and of a group that reduces what runs over the folded dims (else what its rows have). */
const tn_top *emit_results(emitter *E, bool full); /* the store of the root's, if it is one of them */
/* A load of a stored value at a map. padding: what guarded-off elements give (NULL: 0 when guarded). */
tn_tvalue *emit_load(emitter *E, const tn_value *v, const fmap *map, const tn_number *padding);
tn_tvalue *emit_affine(emitter *E, const affine *a); /* as an i64 tile or scalar of this phase */
tn_tvalue *emit_scalar_region(emitter *E, tn_tbuilder *b, const tn_block *region, tn_tvalue *const *args, int which);
tn_step *emitter_finish(emitter *E, tn_steps *steps);
tn_ttype emitter_type(const emitter *E, tn_dtype dtype);
/* emit.c, for product.c */
typedef void access_visit(void *context, fuser *F, const location *l, const fmap *m, bool store);
void fuse_visit_accesses(fuser *F, group *g, access_visit *visit, void *context);
void fuse_merge_dims(fuser *F, group *g);
tn_dim fuse_total_stride(fuser *F, const location *l, const fmap *m, int j);
tn_dim fuse_whole_extent(fuser *F, const group *g, int j);
void emit_grid_dim(emitter *E, int j, int64_t step, int axis);
void emit_other_grid_dims(emitter *E, int j0, int j1); /* one of each dim that is kept, but of these two (-1: none) */
void emit_set_result(emitter *E, const demand *d, tn_tvalue *v); /* what d's operation gives, for those who read it */
/* Stores at a view that is there; of a tile's axis that nothing walks the first element. */
void emit_store_at(emitter *E, tn_view *view, tn_subscript *subs, tn_tvalue *value);
/* Leaves out, as the identity, what a tile that is the same all along the folded dim has past its end. */
tn_tvalue *emit_end(emitter *E, tn_tvalue *x, int j, tn_number identity);
tn_tvalue *emit_full_tile(emitter *E, tn_tvalue *v);
const tn_tensor *fuse_single_constant(const tn_value *v);
tn_dtype fuse_accumulator(tn_dtype dtype);
tn_precision fuse_precision(const fuser *F, tn_dtype factors); /* of a product of such factors */
tn_scalar fuse_region_fn(const tn_block *region); /* the one function of a reduction's region that commutes and associates, or TN_SCALAR_NONE */
/* map.c: splits dim j into j (outer) and a new dim (inner), in all maps. */
int fuse_split_dim(fuser *F, group *g, int j, tn_dim outer, tn_dim inner);
/* product.c */
void fuse_emit_product(fuser *F, tn_steps *steps, group *g);
/* derives the two operands' maps of a product or convolution; appends the contracted dims to the group. False: no lowering in this form. */
bool product_demand(fuser *F, group *g, demand *d);
/* d is a product of what the group's products multiply with weights of the same form, at the same place: it joins them. False: it is not, or two kernels are faster. */
bool product_joins_sibling(fuser *F, group *g, demand *d);
/* The maps of a dot_general's operands, with a dim of the group for each that is contracted. False: the group has no room for it. */
bool product_contract(fuser *F, group *g, demand *d);
bool conv_is_depthwise(const tn_op *op);
/* A phase whose tiles have these dims as axes (-1: one that no dim walks); a matrix' two. */
void product_axes(emitter *E, int n, const int *dims, const int64_t *extents);
void product_matrix_axes(emitter *E, int j0, int64_t e0, int j1, int64_t e1);
tn_tvalue *product_factor(emitter *E, tn_tvalue *v, tn_dtype type); /* a full tile of that type */
/* Group dims that dim j stands for: those absorbed into it, then itself. */
int fuse_parts_of(const group *g, int j, int *parts);
/* The operand is read at different places for different values of dim j (a constant of one value has strides 0 all the same). */
bool map_uses(const fmap *m, int j);
bool map_is_guarded(const fmap *m, const int *dims, int n); /* a guard looks at one of the dims */
tn_dtype product_type(tn_dtype a, tn_dtype b, tn_dtype result); /* of the factors */
bool product_takes_scale(const fuser *F, const tn_op *op);      /* 8-bit factors times scales by blocks: those may multiply blocks' sums instead */
bool product_dequantises(const fuser *F, const tn_op *op);      /* on the way from a constant of few bits to the right operand of a product, which it is cheaper to compute there than to read */
int64_t product_imprecise(const fuser *F, tn_dtype factors);    /* of so many products the machine may make sums by itself, with fewer bits; 0: of any number */

/* attention.c: a product whose left factor is a softmax of another product: all that lies between joins the group of d, which demands the product's
 * elements; false (and g as it was) if it is not one that can be computed without its scores; why is then recorded. */
bool attention_joins(fuser *F, group *g, demand *d);
bool attention_number(const tn_value *v, double *number); /* a float constant of one value */
/* visible.c: keys [first, limit) are all that rows start[row] … start[row] + M - 1 of the program see; first is a multiple of N. What hides keys by bounds alone is marked
 * (`bounded`): it hides none of [all_first, all_limit) from any of these rows, all_first NULL: 0. */
typedef struct attention_keys {
    tn_tvalue *first, *limit, *all_first, *all_limit;
} attention_keys;
attention_keys attention_visible(emitter *E, int row, int64_t M, int64_t N);
/* What an operation between scores' product and softmax does to what one operand (*way) has of the product: hides elements at -inf, scales them by *by (or divides),
 * moves or converts them; else, or of several operands, NULL. */
typedef enum attention_step { STEP_OTHER, STEP_HIDES, STEP_SCALES, STEP_DIVIDES, STEP_MOVES } attention_step;
attention_step attention_step_of(fuser *F, const demand *d, int *way, double *by);
/* The select by whose condition (operand 0) a step hides elements: where it does not hold, or where it does (*inverted). NULL: it is no such step. */
const demand *attention_hider(fuser *F, const demand *d, int way, bool *inverted);
/* Of an attention: rows of queries, keys a turn, the columns of Q and K, and of V, whole; warps: 0 on a CPU. */
typedef struct fuse_attention_tile {
    int64_t M, N, D, C;
    int warps;
} fuse_attention_tile;
/* attend.c */
fuse_attention_tile fuse_cpu_attention(fuser *F, const group *g, int row);
void fuse_emit_attention(fuser *F, tn_steps *steps, group *g);
tn_tvalue *attend_widen(emitter *E, tn_tvalue *v); /* narrow floats in their accumulators' type; what rows or keys share stays so */
tn_tvalue *attend_demand(emitter *E, demand *d); /* what need not be computed for all scores; NULL: d is computed as it stands */

/* cost.c: estimates, in ns. */
double fuse_apart_ns(fuser *F, const group *g);               /* a kernel for each of the group's operations */
double fuse_together_ns(fuser *F, group *g);                  /* the group as one kernel */
/* Of what a group of windows computes once a tap: with this operation too it takes less than to store what the operation gives and read it. */
bool fuse_repeats_for_less(const fuser *F, const group *g, const tn_op *op);

/* To make the product's right operand, as it is multiplied, of what it is stored as, `from`, by so many cheap operations an element takes less than to read it. */
bool fuse_dequantises_for_less(const fuser *F, const tn_op *dot, const tn_value *from, int operations);

/* gpu.c: sizes of tiles on a GPU. Dims are the group's; -1: none. */
typedef struct gpu_tile {
    int64_t rows, columns;
    int warps;   /* of a CTA */
    int cluster; /* CTAs of a program; 0 or 1: one */
} gpu_tile;
typedef struct gpu_product {
    int64_t M, N, K;
    int warps;
    int64_t group;  /* 0: in order */
    int64_t stages; /* of copies; 0: as many as the lowering takes */
    int instances;  /* programs that a CTA works on at once, in turns at the products; 0: one */
    int64_t parts;  /* into which k goes: programs of their own, whose sums a second kernel adds up; 1: none */
    bool taps;      /* what other dims are contracted are parts too, one for each of their values */
} gpu_product;
bool fuse_for_gpu(const fuser *F);
fuse_attention_tile fuse_gpu_attention(fuser *F, const group *g, int row);
gpu_tile fuse_gpu_point(fuser *F, group *g, int vector, int row, bool turned);
gpu_tile fuse_gpu_window(fuser *F, group *g, int vector, int row);
/* The tile t, or what the tuner takes instead; of rows and columns at most these. */
gpu_tile fuse_gpu_choose_tile(fuser *F, group *g, const emitter *E, gpu_tile t, int64_t most_rows, int64_t most_columns);
/* Folds along `vector`, and `outer` where two dims are folded, of which a step takes *outer_step; sweeps: how many need what is read. */
gpu_tile fuse_gpu_rows(fuser *F, group *g, int vector, int row, int outer, int sweeps, int64_t *outer_step);
/* Folds along dim `fold` (a step takes `rows` of it), of columns that lie along `vector`; again: what is read is needed by several sweeps. */
gpu_tile fuse_gpu_columns(fuser *F, group *g, int vector, int fold, bool again);
/* loaded: both factors are, as they are multiplied, from evenly spaced rows. */
gpu_product fuse_gpu_product(fuser *F, group *g, int m, int n, int k, tn_dtype type, bool loaded);
gpu_product fuse_gpu_choose_product(fuser *F, group *g, const char *stem, int m, int n, int k, tn_dtype type, bool loaded); /* the same, or what the tuner takes instead */
/* Two products of such an operand in one kernel, a sum after the other, are no slower than in two. */
bool fuse_gpu_takes_siblings(const fuser *F, const tn_op *dot);
/* A matrix times a vector: N of the `kept` dim (-1: none) by K of k; along_k: the matrix' neighbours lie along k. */
gpu_product fuse_gpu_vector(fuser *F, const group *g, int kept, int k, tn_dtype type, bool along_k);
gpu_product fuse_gpu_choose_vector(fuser *F, group *g, const char *stem, int kept, int k, tn_dtype type, bool along_k); /* the same, or what the tuner takes instead */
/* Elements (columns) of a run that a program sorts, of so many operands, `bytes` together, and how many lines (rows) if there are several. */
gpu_tile fuse_gpu_sort(const fuser *F, tn_dim n, tn_dim lines, int64_t bytes, int operands);
gpu_tile fuse_gpu_scatter(fuser *F, group *g, int vector); /* columns of updates along `vector` that a program applies, line after line */
/* What adds up the parts of a product: all of them (rows) by some of the results along `vector`. */
gpu_tile fuse_gpu_total(fuser *F, const group *g, int vector, int64_t parts);
/* Into how many parts a reduction of so many elements to each of `kept` results should go, a power of two. last: the innermost dim is reduced. */
int64_t fuse_gpu_parts(const tn_tile_target *target, int64_t kept, int64_t folded, bool last, int64_t bytes);
/* split.c: for a GPU, reductions of the block that are cut into parts. */
void fuse_split_reductions(tn_session *session, tn_block *block, const tn_tile_target *target);
/* series.c: integer constants that count are iotas where elements are computed from them: comparisons of places become bounds. */
void fuse_count_constants(tn_block *block);
/* merge.c: products of one operand with several constants become one. */
void fuse_merge_products(tn_session *session, tn_block *block, tn_program *program); /* says in program->stands_for which */
void fuse_gpu_finish(emitter *E); /* what every kernel goes through: its folds that run once become their bodies, and it has `warps` */

/* choose.c: candidates of a kernel's schedule. The caller adds them, its own choice first, and asks for the number of the one to take. */
typedef struct fuse_candidates {
    const char *const *field;
    int nfields;
    int tile; /* so many of the fields, the first, are the tile */
    TN_VEC(tn_candidate) list;
} fuse_candidates;
bool fuse_is_asked(const fuser *F);
void fuse_add_candidate(fuser *F, fuse_candidates *c, const int64_t *values, double ns); /* one that is there already is not added again */
/* `values`, which take about ns, and what is one step away in any of the fields, half or twice as much, from least to most. Nearer ones count as faster. */
void fuse_add_neighbours(fuser *F, fuse_candidates *c, const int64_t *values, const int64_t *least, const int64_t *most, double ns);
/* stem, and E if there is one already: of the kernel that is made next. */
const tn_candidate *fuse_choose(fuser *F, group *g, const char *stem, const emitter *E, fuse_candidates *c);

static inline int64_t pow2_ceil(int64_t n)
{
    int64_t p = 1;
    while (p < n && p < (INT64_C(1) << 40))
        p *= 2;
    return p;
}

#endif
