/* The Graph IR: whole tensors, what is computed. SSA values of tensor type; StableHLO's operations (ops.def).
 *
 *     graph @layer(%x: f32[b, 768], %w: f32[768, 64]) {
 *       %0 = dot_general %x, %w, lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0] : f32[b, 64]
 *       %1 = constant dense<0.0> : f32[]
 *       %2 = reduce %0, %1, dimensions = [1] : f32[b] {
 *       ^(%a: f32[], %c: f32[]):
 *         %3 = add %a, %c : f32[]
 *         return %3
 *       }
 *       return %2
 *     }
 *
 * Every operation prints as  %results = name operands, attribute = value, … : result types { regions }  and reads back to
 * the same graph (comments `//`). Constants: dense<scalar> (splat), dense<[[..], ..]>, or dense<"0x…"> raw little-endian bytes
 * (of all elements, or of one); `, name = w` after it keeps the name of a model's initializer. Strings and names are bare where they
 * read as words, else "quoted" (%"onnx::Add_1"). `graph @f(…) -> (y, _) {` names outputs. Two regions: `{ … } { … }`.
 * Symbols: `symbols b in [1, 64] multiple 8` lines before the first graph declare facts; an undeclared name has range [0, 2^40].
 * Labels of the type constraints (`reshape C1`, …) are StableHLO's, in infer.c, in the messages, in tests/lit/graph. */
#ifndef TN_GRAPH_H
#define TN_GRAPH_H

#include "base/base.h"

/* ---- dimensions ----------------------------------------------------------------------------------------------------
 * An integer expression over named symbols, interned in the session: equal expressions (after normalisation to a sum of
 * products over symbols and opaque floordiv/mod/min/max nodes) are the same pointer. */
typedef const struct tn_dim_node *tn_dim;
enum { TN_MAX_RANK = 12 };

typedef enum tn_dim_kind { TN_DIM_CONST, TN_DIM_SYMBOL, TN_DIM_ADD, TN_DIM_MUL, TN_DIM_FLOORDIV, TN_DIM_CEILDIV, TN_DIM_MOD, TN_DIM_MIN, TN_DIM_MAX } tn_dim_kind;
struct tn_dim_node {
    tn_dim_kind kind;
    int64_t value;         /* CONST */
    const char *name;      /* SYMBOL, interned */
    const tn_dim *operand; /* ADD, MUL: noperands sorted, constants folded, nested ones flattened; others: 2 */
    int noperands;
    int64_t lo, hi;        /* proven bounds, saturated */
    int64_t multiple;      /* a proven divisor of the value, >= 1 (0 for the constant 0) */
    uint32_t id;           /* creation order: a stable sort key */
};
tn_dim tn_dim_const(tn_session *session, int64_t value);
tn_dim tn_dim_symbol(tn_session *session, const char *name);                    /* facts: those declared, else [0, 2^40], 1 */
tn_dim tn_dim_declare(tn_session *session, const char *name, int64_t lo, int64_t hi, int64_t multiple); /* before first use */
tn_dim tn_dim_fresh(tn_session *session, const char *hint, int64_t lo, int64_t hi); /* a new unused symbol: hint, hint_1, … */
tn_dim tn_dim_known(tn_session *session, const char *name);                     /* NULL: no such symbol was used or declared yet */
tn_dim tn_dim_add(tn_session *session, tn_dim a, tn_dim b);
tn_dim tn_dim_sub(tn_session *session, tn_dim a, tn_dim b);
tn_dim tn_dim_mul(tn_session *session, tn_dim a, tn_dim b);
tn_dim tn_dim_floordiv(tn_session *session, tn_dim a, tn_dim b); /* b must be proven > 0; (c*x + r)/c simplifies when exact */
tn_dim tn_dim_ceildiv(tn_session *session, tn_dim a, tn_dim b);
tn_dim tn_dim_mod(tn_session *session, tn_dim a, tn_dim b);      /* floor modulo */
tn_dim tn_dim_min(tn_session *session, tn_dim a, tn_dim b);
tn_dim tn_dim_max(tn_session *session, tn_dim a, tn_dim b);
static inline bool tn_dim_is(tn_dim d, int64_t value) { return d->kind == TN_DIM_CONST && d->value == value; }
static inline bool tn_dim_is_const(tn_dim d) { return d->kind == TN_DIM_CONST; }
bool tn_dim_le(tn_session *session, tn_dim a, tn_dim b);        /* proven a <= b */
bool tn_dim_eq(tn_session *session, tn_dim a, tn_dim b);        /* proven equal */
bool tn_dim_ne(tn_session *session, tn_dim a, tn_dim b);        /* proven different */
/* Value under `lookup` (symbol name -> value, false if unknown). False on an unknown symbol, overflow or division by 0. */
bool tn_dim_eval(tn_dim d, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context, int64_t *out);
/* Rebuilds d with every symbol replaced by what `subst` returns (the same dim to keep it). */
tn_dim tn_dim_subst(tn_session *session, tn_dim d, tn_dim (*subst)(void *context, tn_dim symbol), void *context);
/* Calls visit on each symbol below d. */
void tn_dim_symbols(tn_dim d, void (*visit)(void *context, tn_dim symbol), void *context);
bool tn_dim_mentions(tn_dim d, const char *name);                /* some symbol below d is called that */
void tn_text_dim(tn_text *text, tn_dim d);                       /* 2*s + 1, ceildiv(s, 4), min(a, b) … */
size_t tn_dim_parse(tn_session *session, const char *text, tn_dim *out); /* characters used; 0: malformed */
tn_dim tn_dim_product(tn_session *session, const tn_dim *dims, int n); /* 1 if n == 0 */

/* ---- types and tensors --------------------------------------------------------------------------------------------- */
typedef struct tn_type {
    tn_dtype dtype;
    int rank;
    tn_dim dim[TN_MAX_RANK];
} tn_type;
tn_type tn_type_make(tn_dtype dtype, int rank, const tn_dim *dims);
tn_type tn_type_scalar(tn_dtype dtype);
bool tn_type_same(const tn_type *a, const tn_type *b);
bool tn_type_is_static(const tn_type *type);
bool tn_type_count(const tn_type *type, int64_t *out); /* elements of a static type; false on overflow or if symbolic */
tn_dim tn_type_elements(tn_session *session, const tn_type *type);
void tn_text_type(tn_text *text, const tn_type *type); /* f32[b, 768] */

/* Constant data: row-major, little-endian. Borrowed from a mapped file (then at any address, aligned to nothing) or
 * owned by an arena; never changed. */
typedef struct tn_tensor {
    tn_dtype dtype;
    int rank;
    int64_t dim[TN_MAX_RANK];
    const void *data; /* one element if splat */
    bool splat;       /* all elements equal data[0] */
    const char *name; /* of the model's initializer: constants are replaceable by name; NULL: none */
} tn_tensor;
bool tn_tensor_count(const tn_tensor *tensor, int64_t *out);
tn_number tn_tensor_at(const tn_tensor *tensor, int64_t index);
const tn_tensor *tn_tensor_splat(tn_session *session, tn_dtype dtype, int rank, const int64_t *dims, tn_number value);
const tn_tensor *tn_tensor_from_i64(tn_session *session, int rank, const int64_t *dims, const int64_t *values); /* copies */
/* The tensor; a splat if it is of floats and all have the same bits, which says more to who reads it. */
const tn_tensor *tn_tensor_as_splat(tn_session *session, const tn_tensor *tensor);
bool tn_tensor_same(const tn_tensor *a, const tn_tensor *b);

/* ---- operations ---------------------------------------------------------------------------------------------------- */
typedef enum tn_opcode {
#define OP(name, ...) TN_OP_##name,
#include "graph/ops.def"
#undef OP
    TN_OP_COUNT
} tn_opcode;
typedef enum tn_attr_name {
#define ATTR(name, kind) TN_A_##name,
#include "graph/attrs.def"
#undef ATTR
    TN_ATTR_COUNT
} tn_attr_name;
typedef enum tn_attr_kind { TN_ATTR_INT, TN_ATTR_INTS, TN_ATTR_DIM, TN_ATTR_DIMS, TN_ATTR_BOOL, TN_ATTR_FLOAT, TN_ATTR_STRING, TN_ATTR_DTYPE, TN_ATTR_TENSOR } tn_attr_kind;
enum { TN_ELEMENTWISE = 1, TN_MOVES_DATA = 2, TN_REDUCES = 4, TN_CONTRACTS = 8, TN_EFFECT = 16, TN_TERMINATOR = 32, TN_CONTROL = 64 };
enum { TN_VARIADIC = -1 };

typedef struct tn_attr {
    tn_attr_name name;
    int n; /* INTS, DIMS */
    union {
        int64_t i; /* INT, BOOL, DTYPE */
        double f;
        const char *s;
        tn_dim dim;
        const int64_t *ints;
        const tn_dim *dims;
        const tn_tensor *tensor;
    };
} tn_attr;

typedef struct tn_value tn_value;
typedef struct tn_op tn_op;
typedef struct tn_block tn_block;
typedef struct tn_graph tn_graph;

/* A use links one operand slot into its value's list of users. */
typedef struct tn_use {
    tn_value *value;
    tn_op *user;
    struct tn_use *prev, *next;
} tn_use;
struct tn_value {
    tn_type type;
    tn_op *def;       /* NULL: a block argument */
    tn_block *block;  /* of an argument */
    int index;        /* result or argument number */
    const char *name; /* printed as %name if set and unique, else %number */
    tn_use *uses;
    uint32_t id;      /* unique in the graph, in creation order */
};
struct tn_op {
    tn_opcode code;
    int noperands, nresults, nattrs, nregions;
    tn_use *operand;
    tn_value *result; /* array */
    tn_attr *attr;    /* sorted by name */
    tn_block **region;
    tn_block *block;  /* that holds it */
    tn_op *prev, *next;
    tn_loc loc;       /* of the model's node: diagnostics and reports name it */
};
struct tn_block {
    tn_value **arg;
    int nargs;
    tn_op *first, *last; /* last is `return` when complete */
    tn_op *parent;       /* NULL: a graph's body */
    tn_graph *graph;
};
struct tn_graph {
    tn_session *session;
    const char *name;
    tn_block *body;             /* arguments: inputs; return: outputs */
    const char **output_names;  /* as many as return has operands; NULL entries allowed */
    uint32_t next_id;
    /* Facts that a run checks before it starts: pairs of dimensions that must be equal, with the node that needs it; why: what to
     * say to whom they are not (NULL: just that). Facts with a `why` follow from no operation, and are not in the text form. */
    TN_VEC(struct tn_dim_equal { tn_dim a; tn_dim b; tn_loc loc; const char *why; }) equal;
};
typedef struct tn_graph_module {
    tn_session *session;
    TN_VEC(tn_graph *) graphs;
} tn_graph_module;

const char *tn_op_name(tn_opcode code);
tn_opcode tn_op_from_name(const char *name);  /* TN_OP_COUNT: unknown */
unsigned tn_op_traits(tn_opcode code);
tn_scalar tn_op_scalar(const tn_op *op);      /* of an elementwise op (compare: by direction); TN_SCALAR_NONE else */
const char *tn_attr_text(tn_attr_name name);
tn_attr_kind tn_attr_kind_of(tn_attr_name name);
const tn_attr *tn_find_attr(const tn_op *op, tn_attr_name name); /* NULL: absent */
int64_t tn_attr_int(const tn_op *op, tn_attr_name name, int64_t otherwise); /* INT, BOOL, DTYPE */
const int64_t *tn_attr_ints(const tn_op *op, tn_attr_name name, int *n);
const tn_dim *tn_attr_dims(const tn_op *op, tn_attr_name name, int *n);
static inline tn_value *tn_operand(const tn_op *op, int i) { return op->operand[i].value; }
static inline bool tn_is_op(const tn_value *v, tn_opcode code) { return v->def && v->def->code == code; }
/* The constant behind v (through `constant` only), else NULL. */
const tn_tensor *tn_constant_of(const tn_value *v);

/* ---- building ------------------------------------------------------------------------------------------------------
 * A builder inserts before `before` (NULL: at the end of `block`) with location `loc`. Every function computes the result type;
 * when the operands do not fit it reports a diagnostic at `loc` (operation, constraint label, expected, found) and returns
 * NULL; a NULL operand gives NULL without a second report, so that a chain needs one test at its end. */
typedef struct tn_builder {
    tn_graph *graph;
    tn_block *block;
    tn_op *before;
    tn_loc loc;
    bool failed; /* some call returned NULL */
} tn_builder;

tn_graph *tn_graph_new(tn_session *session, const char *name);
tn_value *tn_graph_input(tn_graph *graph, const char *name, const tn_type *type);
tn_block *tn_block_new(tn_graph *graph, tn_op *parent);
tn_value *tn_block_arg(tn_block *block, const tn_type *type, const char *name);
tn_builder tn_builder_at_end(tn_block *block, tn_loc loc);
tn_builder tn_builder_before(tn_op *op); /* takes the op's location */

/* The general form. attrs need not be sorted; arrays are copied. Regions are taken over. Result types come from the type rule. */
tn_op *tn_build(tn_builder *b, tn_opcode code, tn_value *const *operands, int noperands, const tn_attr *attrs, int nattrs,
                tn_block *const *regions, int nregions);
void tn_return(tn_builder *b, tn_value *const *values, int n);
tn_value *tn_unary(tn_builder *b, tn_opcode code, tn_value *x);
/* A fact that the operations do not imply: x and y are equal, or a run ends with the sentence `why` (which must live as long as the session). */
void tn_require_equal(tn_builder *b, tn_dim x, tn_dim y, const char *why);
/* Operands of one shape; tn_binary_b broadcasts NumPy's way first (dims not provably equal are recorded in graph->equal). */
tn_value *tn_binary(tn_builder *b, tn_opcode code, tn_value *x, tn_value *y);
tn_value *tn_binary_b(tn_builder *b, tn_opcode code, tn_value *x, tn_value *y);
bool tn_broadcast_types(tn_builder *b, tn_value *const *values, int n, tn_type *out); /* the common shape; dtype of the first */
tn_value *tn_broadcast_to(tn_builder *b, tn_value *x, const tn_dim *dims, int rank);  /* NumPy's rule, x rank <= rank */
tn_value *tn_compare(tn_builder *b, const char *direction, tn_value *x, tn_value *y);
tn_value *tn_select(tn_builder *b, tn_value *pred, tn_value *x, tn_value *y);
tn_value *tn_convert(tn_builder *b, tn_value *x, tn_dtype dtype); /* x itself if it has the type */
tn_value *tn_constant(tn_builder *b, const tn_tensor *tensor);
tn_value *tn_scalar_constant(tn_builder *b, tn_dtype dtype, double value);
tn_value *tn_int_constant(tn_builder *b, tn_dtype dtype, int64_t value);
tn_value *tn_full_like(tn_builder *b, tn_value *x, double value); /* x's shape and type */
tn_value *tn_dimension(tn_builder *b, tn_dim dim);                /* i64[] ; a constant if dim is */
tn_value *tn_iota(tn_builder *b, tn_dtype dtype, const tn_dim *dims, int rank, int axis);
tn_value *tn_series(tn_builder *b, tn_dtype dtype, const tn_dim *dims, int rank, int axis, int64_t first, int64_t step); /* first + step * iota */
tn_value *tn_reshape(tn_builder *b, tn_value *x, const tn_dim *dims, int rank); /* x itself if nothing changes */
tn_value *tn_transpose(tn_builder *b, tn_value *x, const int64_t *permutation);
tn_value *tn_broadcast_in_dim(tn_builder *b, tn_value *x, const tn_dim *dims, int rank, const int64_t *broadcast_dimensions);
tn_value *tn_slice(tn_builder *b, tn_value *x, const tn_dim *start, const tn_dim *limit, const int64_t *strides);
tn_value *tn_pad(tn_builder *b, tn_value *x, tn_value *value, const tn_dim *low, const tn_dim *high, const int64_t *interior);
tn_value *tn_concatenate(tn_builder *b, tn_value *const *xs, int n, int axis);
tn_value *tn_reverse(tn_builder *b, tn_value *x, const int64_t *axes, int n);
/* Reduction by one binary elementwise op (add, maximum, …) with its identity as initial value, keeping no dims. */
tn_value *tn_reduce(tn_builder *b, tn_opcode combine, tn_value *x, const int64_t *axes, int n);
tn_value *tn_dot_general(tn_builder *b, tn_value *x, tn_value *y, const int64_t *lhs_batch, const int64_t *rhs_batch, int nbatch,
                         const int64_t *lhs_contract, const int64_t *rhs_contract, int ncontract);
/* A block of n scalar args of `dtype` for reduce/scatter/window regions: (a, b) -> code(a, b). */
tn_block *tn_combine_block(tn_graph *graph, tn_opcode combine, tn_dtype dtype);

/* ---- changing ------------------------------------------------------------------------------------------------------ */
void tn_replace_uses(tn_value *from, tn_value *to);          /* every use of from becomes a use of to */
void tn_set_operand(tn_op *op, int i, tn_value *value);
void tn_erase(tn_op *op);                                    /* its results must have no uses */
void tn_move_before(tn_op *op, tn_op *before);
tn_op *tn_clone(tn_builder *b, const tn_op *op, tn_map *values); /* regions too; values: old -> new, filled */
/* The same graph once more, for passes to change; constants are shared. */
tn_graph *tn_graph_clone(tn_session *session, const tn_graph *graph);
static inline bool tn_has_one_use(const tn_value *v) { return v->uses && !v->uses->next; }

/* ---- text, checking ------------------------------------------------------------------------------------------------ */
void tn_text_graph(tn_text *text, const tn_graph *graph);    /* with the `symbols` lines that it needs before it */
/* Constants that store more than max_elements as dense<...>, which does not read back; max_elements < 0: none. */
void tn_text_graph_elided(tn_text *text, const tn_graph *graph, int64_t max_elements);
tn_status tn_graph_parse(tn_session *session, const char *file, const char *source, size_t len, tn_graph_module **out);
/* Dominance, types re-inferred and compared, terminators, region signatures, use lists. A failure is TN_INVALID with a
 * diagnostic when the graph came from text, and our bug when it came from a pass. */
tn_status tn_graph_verify(const tn_graph *graph);

#endif
