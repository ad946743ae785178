/* Shared inside src/opt: the rewriter, and questions that several passes ask. */
#ifndef TN_OPT_INTERNAL_H
#define TN_OPT_INTERNAL_H

#include "opt/opt.h"

tn_status opt_shapes(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_canonicalize(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_fold(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_simplify(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_layout(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_cse(tn_graph *graph, const tn_opt_options *options, bool *changed);
tn_status opt_dce(tn_graph *graph, const tn_opt_options *options, bool *changed);

/* ---- rules (rewrite.c) --------------------------------------------------------------------------------------------
 *
 * A rule looks at one operation, its root, and either builds what replaces it (with rw->b, which inserts before the
 * root) and ends in rw_replace, or declines. When it declines, whatever it built, recorded or reported is taken back,
 * so a rule may try. The driver keeps a queue: all operations first, then those that a change touches. Dead operations
 * go as they are met. */
typedef enum exactness {
    EXACT,       /* the same bits for all operands: NaN (any NaN is as good as another), infinities, -0, denormals */
    EXACT_INT,   /* for integers and bool only: not tried on others */
    REASSOCIATES /* only with TN_NUMERICS_FAST */
} exactness;

typedef struct rewriter rewriter;
typedef struct rule {
    tn_opcode root; /* TN_OP_COUNT: every operation that has one of `traits` (0: every one) */
    unsigned traits;
    const char *name;
    exactness exact;
    bool (*apply)(rewriter *rw, tn_op *op);
} rule;
#define RULE(root, function, exact) {TN_OP_##root, 0, #function, exact, function}
#define RULE_FOR(traits, function, exact) {TN_OP_COUNT, traits, #function, exact, function}

struct rewriter {
    tn_session *session;
    tn_graph *graph;
    const tn_opt_options *options;
    const char *pass;
    void *context;                     /* of the pass */
    tn_builder b;                      /* before the root, with its location */
    const rule *rule;                  /* being tried */
    const rule **by_code[TN_OP_COUNT]; /* ends with NULL */
    tn_arena scratch;                  /* of the queue and the indexes, while rules run */
    TN_VEC(tn_op *) queue;
    size_t head;
    tn_map state;  /* operation -> queued, gone */
    size_t errors; /* of the session, before the rule */
    bool changed;
};

/* Applies the rules until none applies. */
tn_status rw_run(tn_graph *graph, const tn_opt_options *options, const char *pass, const rule *const *sets, int nsets,
                 void *context, bool *changed);
/* The root's one result becomes `to` (NULL: something could not be built, which declines). Types must agree. */
bool rw_replace(rewriter *rw, tn_op *op, tn_value *to);
bool rw_replace_all(rewriter *rw, tn_op *op, tn_value *const *to);
bool rw_decline(rewriter *rw, const tn_op *op, const char *reason); /* false */
void rw_touch(rewriter *rw, tn_op *op); /* look at op again: something about it changed in place */

/* A copy of the region's operations, its arguments replaced by `args`, stands for op (control.c). */
bool replace_by_region(rewriter *rw, tn_op *op, const tn_block *region, tn_value *const *args);

/* Each ends with a rule without function. */
extern const rule opt_algebra_rules[], opt_movement_rules[], opt_product_rules[], opt_control_rules[];

/* The convolutions (and what stands between them) that work on features last, at the least cost (assign.c): operation -> itself. */
void opt_assign_features_last(tn_graph *graph, tn_arena *arena, tn_map *last);
/* Of a convolution (canonicalize.c): each group is one feature; operand and result have features last; the dimension of the result that is features. */
bool conv_is_depthwise_op(const tn_op *op);
bool conv_is_turned(const tn_op *op);
int conv_feature(const tn_op *op);

/* ---- questions (query.c) --------------------------------------------------------------------------------------- */

/* No use, no effect in it or its regions. */
bool op_is_removable(const tn_op *op);
bool op_is_unused(const tn_op *op);
bool op_has_captures(const tn_op *op); /* a region uses values from outside it */
/* All elements of v are one number known now: splat constants, broadcasts of them. */
bool value_splat(const tn_value *v, tn_number *out);
/* A value of this type with all elements `number`: a splat constant, or a broadcast of one if the type is symbolic. */
tn_value *build_splat(tn_builder *b, const tn_type *type, tn_number number);
/* A reshape; of a constant another constant that shares its data. */
tn_value *build_reshaped(tn_builder *b, tn_value *v, const tn_dim *dims, int rank);
bool value_is_constant(const tn_value *v); /* made of constants alone, so computed once, at load */
bool types_agree(tn_session *session, const tn_type *a, const tn_type *b); /* dtype, rank, sizes proven equal */
bool dims_agree(tn_session *session, const tn_dim *a, const tn_dim *b, int n);
bool ints_contain(const int64_t *list, int n, int64_t x);
bool permutation_is_identity(const int64_t *p, int n);
/* The single operation that a two-argument region returns, `return code(a, b)` or (b, a) if it commutes; TN_OP_COUNT:
 * another form. */
tn_opcode region_combine(const tn_block *region);
/* The attributes of op with those of `changes` in place of its own. n: how many there are; TN_NEW_ARRAY. */
const tn_attr *attrs_with(tn_session *session, const tn_op *op, const tn_attr *changes, int nchanges, int *n);
/* An operation like op on other operands, attributes changed. Regions are copied. NULL: it does not fit. */
tn_op *build_like(tn_builder *b, const tn_op *op, tn_value *const *operands, const tn_attr *changes, int nchanges);
static inline const int64_t *ints_of(const tn_op *op, tn_attr_name name)
{
    int n;
    return tn_attr_ints(op, name, &n);
}
static inline const tn_dim *dims_of(const tn_op *op, tn_attr_name name)
{
    int n;
    return tn_attr_dims(op, name, &n);
}
static inline tn_attr attr_ints(tn_attr_name name, const int64_t *list, int n)
{
    return (tn_attr){.name = name, .n = n, .ints = list};
}
static inline tn_attr attr_dims(tn_attr_name name, const tn_dim *list, int n)
{
    return (tn_attr){.name = name, .n = n, .dims = list};
}

#endif
