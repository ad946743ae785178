/* What the files of src/graph share. */
#ifndef TN_GRAPH_INTERNAL_H
#define TN_GRAPH_INTERNAL_H

#include "graph/graph.h"

enum { TN_MAX_OP_ATTRS = 16 };
#define TN_MAX_TENSOR_BYTES ((int64_t)1 << 47) /* a machine's address space: larger tensors are refused */

/* ---- ops.c: rows of ops.def --------------------------------------------------------------------------------------- */
struct tn_op_row {
    const char *name;
    int operands, results, regions; /* TN_VARIADIC */
    tn_scalar scalar;
    unsigned traits;
    struct {
        tn_attr_name name; /* TN_ATTR_COUNT ends the list, which is in printing order */
        bool required;
    } attr[TN_MAX_OP_ATTRS];
};
const struct tn_op_row *tn_op_row_of(tn_opcode code);
tn_attr_name tn_attr_from_text(const char *name);                    /* TN_ATTR_COUNT: unknown */
bool tn_compare_scalar(const char *direction, tn_scalar *out);       /* false: no such direction */

/* ---- infer.c ---------------------------------------------------------------------------------------------------------- */
/* Checks op (operands, attributes and regions set) against its row and type rule and computes its result types, an array in
 * the session's arena. Violations are reported at op->loc; false then. record: dimensions that are neither proven equal nor
 * different are put into graph->equal; without it they pass. */
bool tn_infer_types(tn_graph *graph, const tn_op *op, bool record, tn_type **results, int *nresults);
/* A type that a program may have: rank, sizes not negative, bytes within TN_MAX_TENSOR_BYTES. */
bool tn_check_type(tn_graph *graph, tn_loc loc, const char *what, const tn_type *type, bool record);
void tn_record_equal(tn_graph *graph, tn_loc loc, tn_dim a, tn_dim b); /* unless it is there already */
tn_op *tn_block_return(const tn_block *block);                       /* NULL: not complete */

/* ---- build.c: an operation in steps --------------------------------------------------------------------------------- */
tn_op *tn_new_op(tn_session *session, tn_opcode code, tn_loc loc, int noperands, int nregions); /* operands, regions: to be set */
void tn_set_attrs(tn_session *session, tn_op *op, const tn_attr *attrs, int n);                 /* sorted, arrays copied */
void tn_set_results(tn_graph *graph, tn_op *op, const tn_type *types, int n);
void tn_attach(tn_builder *b, tn_op *op); /* links uses and regions, inserts */
void tn_link_use(tn_use *use);
void tn_insert_op(tn_builder *b, tn_op *op);

/* ---- dims.c, types.c, names.c -------------------------------------------------------------------------------------------- */
bool tn_dim_has_default_facts(tn_dim symbol); /* those of an undeclared symbol: no `symbols` line is needed */
void tn_text_dims(tn_text *text, const tn_dim *dims, int n); /* [b, 768] */

/* Names print as they are if they are letters, digits, '_', '.' not starting with a digit, else "quoted" with \" \\ \xHH. */
void tn_text_symbol(tn_text *text, const char *name);
void tn_text_quoted(tn_text *text, const char *string);
/* Reads either form; returns the characters used, 0 if malformed. *out: interned. */
size_t tn_symbol_parse(tn_session *session, const char *text, const char **out);
size_t tn_quoted_parse(tn_session *session, const char *text, const char **out);
static inline int tn_hex_digit(char c) /* -1: none */
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
