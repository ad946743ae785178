/* Importers: a model file becomes a graph of ops.def's operations and nothing else. */
#ifndef TN_IMPORT_H
#define TN_IMPORT_H

#include "graph/graph.h"

typedef struct tn_import_options {
    /* Sizes given by the user for named dimensions (--dim NAME=N); they become constants. */
    const char *const *dim_name;
    const int64_t *dim_value;
    int ndims;
    size_t fold_bytes; /* budget of constants made while importing (shape arithmetic, ConstantOfShape); 0: 256 MiB */
} tn_import_options;

/* What an imported model keeps alive: mapped files. Weights point into them. */
typedef struct tn_model {
    tn_graph_module *module;  /* graphs.at[0] is the model */
    const char *format; /* "onnx" */
    int64_t opset;      /* of the default domain */
    const char *producer;
    TN_VEC(tn_file) files;
    /* Operators of the file, name -> count (int64_t stored as pointer), for `tenon info`. */
    tn_map operators;
    TN_VEC(const char *) unsupported; /* "op type (domain, version): node 'x', node 'y'" */
} tn_model;
void tn_model_free(tn_model *model); /* unmaps files; the rest lives in the session */

/* ONNX, IR versions 3-14, opsets 7-28 of ai.onnx. All that has no lowering is reported in one go, with node names
 * (TN_UNSUPPORTED); malformed files give TN_INVALID. data: the whole file, kept mapped while the model is used. `path` names it in
 * diagnostics and locates external data (NULL: external data is refused). */
tn_status tn_import_onnx(tn_session *session, const char *path, const tn_import_options *options, tn_model *out);
tn_status tn_import_onnx_bytes(tn_session *session, const char *path, const uint8_t *data, size_t size, const tn_import_options *options, tn_model *out);
/* A serialised TensorProto (input_0.pb of the ONNX suite): read and write. The tensor borrows or copies into the arena. */
tn_status tn_read_tensor_proto(tn_session *session, const char *path, tn_tensor *out);
tn_status tn_write_tensor_proto(tn_session *session, const char *path, const tn_tensor *tensor, const char *name);

#endif
