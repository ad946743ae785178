/* The ONNX file as it stands: one struct a message of messages.def, text and raw data pointing into the file's bytes. */
#ifndef TN_IMPORT_ONNX_PROTO_H
#define TN_IMPORT_ONNX_PROTO_H

#include "base/base.h"

typedef struct onnx_slice {
    const char *at; /* not NUL-terminated; NULL: the field is absent */
    size_t len;
} onnx_slice;

/* A sub-message that only counts as present. */
typedef struct onnx_empty {
    uint32_t has;
} onnx_empty;

#define MESSAGE(name) typedef struct onnx_##name onnx_##name;
#define INT(number, name)
#define FLOAT(number, name)
#define TEXT(number, name)
#define BYTES(number, name)
#define INTS(number, name)
#define FLOATS(number, name)
#define DOUBLES(number, name)
#define UINTS(number, name)
#define TEXTS(number, name)
#define SUB(number, name, message)
#define SUBS(number, name, message)
#define END(name)
#include "import/onnx/messages.def"
#undef MESSAGE
#undef INT
#undef FLOAT
#undef TEXT
#undef BYTES
#undef INTS
#undef FLOATS
#undef DOUBLES
#undef UINTS
#undef TEXTS
#undef SUB
#undef SUBS
#undef END

/* `has`: bit i is set when the message's i-th field of messages.def occurred. */
#define MESSAGE(name) struct onnx_##name { uint32_t has;
#define INT(number, name) int64_t name;
#define FLOAT(number, name) float name;
#define TEXT(number, name) onnx_slice name;
#define BYTES(number, name) onnx_slice name;
#define INTS(number, name) TN_VEC(int64_t) name;
#define FLOATS(number, name) TN_VEC(float) name;
#define DOUBLES(number, name) TN_VEC(double) name;
#define UINTS(number, name) TN_VEC(uint64_t) name;
#define TEXTS(number, name) TN_VEC(onnx_slice) name;
#define SUB(number, name, message) onnx_##message *name;
#define SUBS(number, name, message) TN_VEC(onnx_##message *) name;
#define END(name) };
#include "import/onnx/messages.def"
#undef MESSAGE
#undef INT
#undef FLOAT
#undef TEXT
#undef BYTES
#undef INTS
#undef FLOATS
#undef DOUBLES
#undef UINTS
#undef TEXTS
#undef SUB
#undef SUBS
#undef END

/* Decodes one message; the result lives in the session's arena and points into `data`, which must outlive it.
 * TN_INVALID with the byte offset when the bytes are no such message, nest too deeply, or expand beyond the budget
 * (repeated fields may take at most a fixed multiple of the file's size). `file` names it in the diagnostic. */
tn_status onnx_decode_model(tn_session *session, const char *file, const uint8_t *data, size_t size, onnx_model **out);
tn_status onnx_decode_tensor(tn_session *session, const char *file, const uint8_t *data, size_t size, onnx_tensor **out);

/* TensorProto.DataType <-> element type; TN_NO_DTYPE / 0 when the other side has none. */
tn_dtype onnx_dtype(int64_t data_type);
int64_t onnx_data_type(tn_dtype dtype);
const char *onnx_data_type_name(int64_t data_type); /* "float8e4m3fnuz", "string", … for messages */

#endif
