/* What the files of the ONNX importer share. graph.c walks a model's nodes in order; each node is handed to the
 * function of its row in operators.def, which emits operations at c->b and names the results with onnx_set_output.
 *
 * An operator function returns false after it reported a diagnostic (onnx_error: the file is at fault;
 * onnx_unsupported: legal, but not possible here). It need not check what the core checks after it: attribute accessors
 * that met a wrong type, builder functions that returned NULL (c->b.failed), a missing output. The core has checked
 * before it: the row's required inputs are present (n->input[0 … required-1] != NULL), the opset is within the row.
 *
 * Shape arithmetic. The importer knows the integer contents of small tensors of shape arithmetic as dimensions:
 * constants, `Shape`, and what integer operators make of them (shape_fold.c does those before the operator's function
 * is asked). Such a value has its operations too (dimension, concatenate); those that nobody uses as data are swept at
 * the end. An operator that needs a shape, axes, pads or the like asks, from best to last: onnx_static_ints (numbers),
 * onnx_known_dims (expressions), onnx_runtime_dims (new symbols that are born from the value when the graph runs). */
#ifndef TN_IMPORT_ONNX_INTERNAL_H
#define TN_IMPORT_ONNX_INTERNAL_H

#include "graph/graph.h"
#include "import/import.h"
#include "import/onnx/proto.h"

enum { ONNX_MAX_KNOWN = 64 }; /* elements of a tensor whose contents are tracked as dimensions */

/* The blocks being filled: of the graph, and of each region around the current node. */
typedef struct onnx_region {
    tn_block *block;
    struct onnx_region *outer;
} onnx_region;

typedef struct onnx_ctx {
    tn_session *session;
    tn_builder b;  /* where the next operation goes; location set to the node */
    int64_t opset; /* version of ai.onnx that the current node is read by */
    const tn_import_options *options;
    tn_model *model;
    const onnx_model *proto;
    const char *path;
    struct onnx_scope *scope;           /* names: of the graph, subgraph or function body being read */
    onnx_region *region;                /* innermost first */
    tn_map symbols;                     /* the file's dimension names -> tn_dim */
    tn_map known;                       /* tn_value * -> its integer contents */
    tn_map sequences;                   /* tn_value * that stands for a sequence -> its tensors (ops_sequence.c) */
    tn_map operators;                   /* op type -> first row of operators.def + 1 */
    tn_map functions;                   /* "domain:name" -> const onnx_function * */
    tn_map files;                       /* external data: location -> tn_file * */
    bool bad;                           /* the current node met a diagnostic */
    bool stopped;                       /* a limit was hit: nothing more is read */
    size_t folded;                      /* bytes of constants made so far */
    uint64_t drawn;                     /* bytes of random numbers drawn so far */
    size_t nodes;                       /* nodes read so far, inlined and repeated ones too */
    int depth;                          /* nesting of functions and subgraphs */
    size_t errors_before, diags_before; /* of the session, when the import began */
} onnx_ctx;

typedef struct onnx_node {
    const char *op_type, *domain, *name;
    int64_t version; /* of the node's domain; for ai.onnx the same as c->opset */
    int ninputs, noutputs;
    const char **input_name, **output_name; /* "" if omitted */
    tn_value **input;                       /* NULL: omitted */
    tn_value **output;                      /* filled by onnx_set_output */
    const onnx_attribute **attribute;       /* references to a function's attributes are resolved */
    int nattributes;
    tn_loc loc;
} onnx_node;

typedef bool onnx_lower(onnx_ctx *c, const onnx_node *n);
#define OPERATOR(name, domain, since_min, since_max, required, function) onnx_lower function;
#include "import/onnx/operators.def"
#undef OPERATOR

/* ---- diagnostics: at the node, prefixed with its operator; both return false
 * ---------------------------------------------- */
bool onnx_error(onnx_ctx *c, const onnx_node *n, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool onnx_unsupported(onnx_ctx *c, const onnx_node *n, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- inputs and outputs
 * --------------------------------------------------------------------------------------------------- */
/* Input i, or NULL if it is omitted or beyond the node's inputs. */
static inline tn_value *onnx_in(const onnx_node *n, int i)
{
    return i < n->ninputs ? n->input[i] : NULL;
}
static inline bool onnx_wants(const onnx_node *n, int i)
{
    return i < n->noutputs && n->output_name[i][0] != 0;
}
/* Names output i; ignored when the node does not have it. value == NULL (a builder's failure) is allowed. Returns value
 * != NULL, so that `return onnx_set_output(c, n, 0, x);` reads well. */
bool onnx_set_output(onnx_ctx *c, const onnx_node *n, int i, tn_value *value);

/* ---- attributes: `otherwise` when absent; a wrong type is reported, marks the node as bad and gives `otherwise`
 * ------------- */
bool onnx_has_attr(const onnx_node *n, const char *name);
int64_t onnx_attr_int(onnx_ctx *c, const onnx_node *n, const char *name, int64_t otherwise);
double onnx_attr_float(onnx_ctx *c, const onnx_node *n, const char *name, double otherwise);
const char *onnx_attr_string(onnx_ctx *c, const onnx_node *n, const char *name, const char *otherwise); /* interned */
/* Lists: NULL and *count = 0 when absent; an empty list that is present is not NULL. */
const int64_t *onnx_attr_ints(onnx_ctx *c, const onnx_node *n, const char *name, int *count);
const float *onnx_attr_floats(onnx_ctx *c, const onnx_node *n, const char *name, int *count);
const char *const *onnx_attr_strings(onnx_ctx *c, const onnx_node *n, const char *name, int *count);
const tn_tensor *onnx_attr_tensor(onnx_ctx *c, const onnx_node *n, const char *name); /* NULL: absent or bad */
const onnx_graph *onnx_attr_graph(onnx_ctx *c, const onnx_node *n, const char *name); /* NULL: absent or bad */
/* The element type that an attribute like Cast's `to` names; otherwise when absent; TN_NO_DTYPE and a diagnostic when
 * Tenon has none. */
tn_dtype onnx_attr_dtype(onnx_ctx *c, const onnx_node *n, const char *name, tn_dtype otherwise);

/* ---- axes
 * ------------------------------------------------------------------------------------------------------------------ */
/* Normalises axis in [-rank, rank) to [0, rank); a diagnostic outside. */
bool onnx_axis(onnx_ctx *c, const onnx_node *n, int64_t axis, int rank, int *out);
/* The same for a list, checked to be unique; out has room for TN_MAX_RANK; order kept. */
bool onnx_axes(onnx_ctx *c, const onnx_node *n, const int64_t *axes, int count, int rank, int64_t *out);
/* Axes of an operator that has them as attribute `name` in older opsets and as input `i` in newer ones: whichever the
 * node has. *count = -1 when neither is given. Contents that are not constant are refused. */
bool onnx_axes_of(onnx_ctx *c, const onnx_node *n, const char *name, int i, int rank, int64_t *out, int *count);

/* ---- contents of tensors
 * ---------------------------------------------------------------------------------------------------- */
const tn_tensor *onnx_constant_tensor(onnx_ctx *c, const tn_value *value); /* NULL: not a constant (or value is NULL) */
/* A constant with one element (any shape) as a number; false: not such a constant. */
bool onnx_constant_number(onnx_ctx *c, const tn_value *value, double *out);
/* Integers of a constant of rank 0 or 1; false (without a diagnostic) if not constant or more than `max`. */
bool onnx_static_ints(onnx_ctx *c, const tn_value *value, int64_t *out, int max, int *count);
/* The contents of a rank-0 or rank-1 integer tensor as dimensions; dims has room for ONNX_MAX_KNOWN. False: not known.
 */
bool onnx_known_dims(onnx_ctx *c, const tn_value *value, tn_dim *dims, int *count);
/* NULL elements are allowed and mean "not known"; such a value is known to onnx_runtime_dims and onnx_partial_dims
 * only. */
void onnx_set_known_dims(onnx_ctx *c, const tn_value *value, const tn_dim *dims, int count);
bool onnx_partial_dims(onnx_ctx *c, const tn_value *value, tn_dim *dims, int *count);
/* a / b as ONNX divides integers, for a, b >= 0; common factors cancel even where b may be 0 (then the division has no
 * meaning). */
tn_dim onnx_dim_div(onnx_ctx *c, tn_dim a, tn_dim b);
/* From here on dim counts as another number than `size`. A run where it is that number ends with: NAME: dimension … is SIZE in this run: `why`. */
void onnx_assume_not(onnx_ctx *c, const onnx_node *n, tn_dim dim, int64_t size, const char *why);
/* A tensor (rank 0: count == 1, or rank 1) of `dtype` with these contents, remembered as known. */
tn_value *onnx_dims_value(onnx_ctx *c, tn_dtype dtype, int rank, const tn_dim *dims, int count);
/* Contents of a rank-1 integer tensor with `count` elements (or of a rank-0 one, count 1): the known ones, else new
 * symbols in [0, upper] born from it when the graph runs. upper[i] == NULL or upper == NULL: no bound. A diagnostic
 * when the type does not fit. */
bool onnx_runtime_dims(onnx_ctx *c, const onnx_node *n, tn_value *value, int count, const tn_dim *upper, tn_dim *out);
tn_value *onnx_ints(onnx_ctx *c, tn_dtype dtype, const int64_t *values, int count); /* rank-1 constant */
tn_value *onnx_int(onnx_ctx *c, tn_dtype dtype, int64_t value);                     /* rank-0 constant */

/* ---- for control flow and functions (graph.c)
 * -------------------------------------------------------------------------------- */
/* Reads a subgraph's nodes into `block` (the builder is moved there and back): inputs[i] is bound to the subgraph's
 * i-th input; its outputs come back in outputs (room for graph->output.len). Names of the enclosing graphs are visible.
 */
bool onnx_subgraph(onnx_ctx *c, const onnx_node *n, const onnx_graph *graph, tn_block *block, tn_value *const *inputs,
                   int ninputs, tn_value **outputs);
bool onnx_is_sequence(onnx_ctx *c, const tn_value *value);
bool onnx_takes_sequences(const char *op_type); /* operators that may see one as input */
/* A ValueInfoProto's tensor type; dims that are unknown become new symbols named after `hint`. A diagnostic for other
 * types. */
bool onnx_info_type(onnx_ctx *c, tn_loc loc, const onnx_info *info, const char *hint, tn_type *out);
/* Initializer, attribute or test file: data borrowed from the file, from external data, or converted into the arena.
 * owner: name for diagnostics. */
tn_status onnx_tensor_data(tn_session *session, onnx_ctx *c, tn_loc loc, const onnx_tensor *proto, tn_tensor *out);
/* shape_fold.c: what an integer operator makes of known contents: its first output's, NULL where not known. False:
 * nothing is known. */
typedef struct onnx_contents {
    tn_dtype dtype; /* BOOL: dims are the constants 0 and 1 */
    int rank, count;
    tn_dim dim[ONNX_MAX_KNOWN];
} onnx_contents;
bool onnx_shape_contents(onnx_ctx *c, const onnx_node *n, onnx_contents *out);
/* fold.c: computes the operations after `mark` (NULL: from the block's first) whose operands are small constants;
 * results in n->output and the known contents are moved over to the constants. */
void onnx_fold_constants(onnx_ctx *c, const onnx_node *n, tn_op *mark);
/* Counts `bytes` made at compile time towards the folding budget; over it: a diagnostic and false. */
bool onnx_charge(onnx_ctx *c, const onnx_node *n, size_t bytes);
bool onnx_charge_copy(onnx_ctx *c, const onnx_node *n, const onnx_tensor *p, const tn_tensor *t); /* unless borrowed */
/* random.c: offset + scale * (N(0, 1) or U[0, 1)), drawn now as a constant of the node's static shape; NULL: too many, or of a type that is left to operations. */
typedef struct onnx_drawing {
    uint64_t key; /* emit_random_key */
    bool normal;
    float scale, offset;
} onnx_drawing;
tn_value *onnx_draw(onnx_ctx *c, const onnx_drawing *drawing, tn_dtype dtype, const tn_dim *dims, int rank);
void onnx_sweep(tn_block *block); /* erases operations whose results, and births of symbols, that nobody uses */

/* ---- the table (table.c) and the check before the import (check.c)
 * ------------------------------------------------------------ */
typedef struct onnx_row {
    const char *name, *domain;
    int64_t since_min, since_max;
    int required;
    onnx_lower *function;
} onnx_row;
const onnx_row *onnx_find_row(onnx_ctx *c, const char *op_type, const char *domain, int64_t version); /* NULL: none */
bool onnx_check_ranks(onnx_ctx *c, const onnx_node *n); /* against ranks.def */
const onnx_function *onnx_find_function(onnx_ctx *c, const char *op_type, const char *domain,
                                        onnx_slice overload); /* of the model; NULL: none */
/* Version of `domain` among `opsets`; 0 if it is not imported. "" and "ai.onnx" are one domain. */
int64_t onnx_version(const onnx_opset *const *opsets, size_t count, const char *domain);
const char *onnx_domain(onnx_ctx *c, onnx_slice domain); /* interned, "ai.onnx" as "" */
/* Counts operators and lists every one that has neither row nor function: TN_UNSUPPORTED with one diagnostic. */
tn_status onnx_check_operators(onnx_ctx *c);

static inline const char *onnx_text(onnx_ctx *c, onnx_slice s)
{
    return tn_intern(c->session, s.at ? s.at : "", s.len);
}
static inline bool onnx_is(onnx_slice s, const char *text)
{
    return s.len == __builtin_strlen(text) && (s.len == 0 || __builtin_memcmp(s.at, text, s.len) == 0);
}

#endif
