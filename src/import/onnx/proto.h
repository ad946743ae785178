/* The ONNX file as it stands: one struct a message of messages.def, text and raw data pointing into the file's bytes.
 */
#ifndef TN_IMPORT_ONNX_PROTO_H
#define TN_IMPORT_ONNX_PROTO_H

#include "base/base.h"

typedef struct onnx_slice {
    const char *at; /* not NUL-terminated; NULL: the field is absent */
    size_t len;
} onnx_slice;

/* The struct of each message; `has`: bit i is set when the i-th field of messages.def occurred. */
#define MESSAGE(name) typedef struct onnx_##name onnx_##name;
#define FIELD(message, number, kind, name, sub)
#define END(name)
#include "import/onnx/messages.def"
#undef MESSAGE
#undef FIELD
#undef END
#define ONNX_TYPE_INT(sub) int64_t
#define ONNX_TYPE_FLOAT(sub) float
#define ONNX_TYPE_TEXT(sub) onnx_slice
#define ONNX_TYPE_INTS(sub) TN_VEC(int64_t)
#define ONNX_TYPE_FLOATS(sub) TN_VEC(float)
#define ONNX_TYPE_DOUBLES(sub) TN_VEC(double)
#define ONNX_TYPE_UINTS(sub) TN_VEC(uint64_t)
#define ONNX_TYPE_TEXTS(sub) TN_VEC(onnx_slice)
#define ONNX_TYPE_SUB(sub) onnx_##sub *
#define ONNX_TYPE_SUBS(sub) TN_VEC(onnx_##sub *)
#define MESSAGE(name)                                                                                                  \
    struct onnx_##name {                                                                                               \
        uint32_t has;
#define FIELD(message, number, kind, name, sub) ONNX_TYPE_##kind(sub) name;
#define END(name)                                                                                                      \
    }                                                                                                                  \
    ;
#include "import/onnx/messages.def"
#undef MESSAGE
#undef FIELD
#undef END

/* Decodes one message; the result lives in the session's arena and points into `data`, which must outlive it.
 * TN_INVALID with the byte offset when the bytes are no such message, nest too deeply, or expand beyond the budget
 * (repeated fields may take at most a fixed multiple of the file's size). `file` names it in the diagnostic. */
tn_status onnx_decode_model(tn_session *session, const char *file, const uint8_t *data, size_t size, onnx_model **out);
tn_status onnx_decode_tensor(tn_session *session, const char *file, const uint8_t *data, size_t size,
                             onnx_tensor **out);

/* TensorProto.DataType <-> element type; TN_NO_DTYPE / 0 when the other side has none. */
tn_dtype onnx_dtype(int64_t data_type);
int64_t onnx_data_type(tn_dtype dtype);
const char *onnx_data_type_name(int64_t data_type); /* "float8e4m3fnuz", "string", … for messages */

#endif
