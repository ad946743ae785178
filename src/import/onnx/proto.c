/* Decoder of messages.def over nanopb's stream functions. One loop reads any message by its table, so there is no
 * generated code, and nothing is copied but numbers: text and bytes stay where the file is. */
#include "import/onnx/proto.h"

#include <pb_decode.h>
#include <string.h>

typedef enum kind { INT, FLOAT, TEXT, INTS, FLOATS, DOUBLES, UINTS, TEXTS, SUB, SUBS } kind;

typedef struct message message;
typedef struct field {
    uint32_t number;
    kind kind;
    uint32_t offset;
    const message *sub;
} field;
struct message {
    const char *name;
    size_t size;
    int nfields;
    const field *fields;
};

#define MESSAGE(name) static const message message_##name;
#define FIELD(message, number, kind, name, sub)
#define END(name)
#include "import/onnx/messages.def"
#undef MESSAGE
#undef FIELD
#undef END

/* The last row of each table ends it: numbers of fields start at 1. */
#define MESSAGE(name) static const field fields_##name[] = {
#define FIELD(message, number, kind, name, sub) {number, kind, offsetof(onnx_##message, name), &message_##sub},
#define END(name)                                                                                                      \
    {                                                                                                                  \
        0, INT, 0, NULL                                                                                                \
    }                                                                                                                  \
    }                                                                                                                  \
    ;                                                                                                                  \
    static const message message_##name = {#name, sizeof(onnx_##name), TN_COUNT(fields_##name) - 1, fields_##name};
#include "import/onnx/messages.def"
#undef MESSAGE
#undef FIELD
#undef END

enum { MAX_DEPTH = 128 };

typedef struct decoder {
    tn_session *session;
    const char *file;
    const uint8_t *data;
    size_t budget; /* bytes that structs and arrays may still take */
} decoder;

/* The layout that every TN_VEC shares; read and written with memcpy, whatever the element type. */
typedef struct vector {
    void *at;
    size_t len, cap;
} vector;

static bool fault(decoder *d, const pb_istream_t *at, const message *m, const char *what)
{
    size_t offset = (size_t)((const uint8_t *)at->state - d->data);
    tn_error(d->session, TN_INVALID, (tn_loc){.file = d->file},
             "not a readable ONNX file: %s at byte %zu, in a %s message", what, offset, m->name);
    return false;
}

static bool spend(decoder *d, const pb_istream_t *s, const message *m, size_t bytes)
{
    if (bytes > d->budget)
        return fault(d, s, m, "far more items than a file of this size can mean");
    d->budget -= bytes;
    return true;
}

static bool append(decoder *d, pb_istream_t *s, const message *m, void *vec, const void *item, size_t size)
{
    vector v;
    memcpy(&v, vec, sizeof v);
    if (v.len == v.cap) {
        if (!spend(d, s, m, (v.cap + 4) * size))
            return false;
        tn_vec_grow(&d->session->arena, &v.at, &v.cap, size);
    }
    memcpy((char *)v.at + v.len++ * size, item, size);
    memcpy(vec, &v, sizeof v);
    return true;
}

static pb_wire_type_t wire_type(kind kind)
{
    switch (kind) {
    case INT:
    case INTS:
    case UINTS:
        return PB_WT_VARINT;
    case FLOAT:
    case FLOATS:
        return PB_WT_32BIT;
    case DOUBLES:
        return PB_WT_64BIT;
    default:
        return PB_WT_STRING;
    }
}

static bool read_slice(pb_istream_t *s, onnx_slice *out)
{
    pb_istream_t sub;
    if (!pb_make_string_substream(s, &sub))
        return false;
    *out = (onnx_slice){.at = sub.state, .len = sub.bytes_left};
    return pb_close_string_substream(s, &sub);
}

/* One number of a repeated field, packed or not. */
static bool read_item(decoder *d, pb_istream_t *s, const message *m, kind kind, void *at)
{
    union {
        uint64_t u;
        float f;
        double d;
    } x;
    bool ok = kind == FLOATS    ? pb_decode_fixed32(s, &x.f)
              : kind == DOUBLES ? pb_decode_fixed64(s, &x.d)
                                : pb_decode_varint(s, &x.u);
    if (!ok)
        return fault(d, s, m, "a cut number");
    return append(d, s, m, at, &x, kind == FLOATS ? 4 : 8);
}

static bool read_packed(decoder *d, pb_istream_t *s, const message *m, kind kind, void *at)
{
    pb_istream_t sub;
    if (!pb_make_string_substream(s, &sub))
        return fault(d, s, m, "a field longer than its message");
    while (sub.bytes_left)
        if (!read_item(d, &sub, m, kind, at))
            return false;
    return pb_close_string_substream(s, &sub) || fault(d, s, m, "a cut field");
}

static bool read_message(decoder *d, pb_istream_t *s, const message *m, void *out, int depth);

static bool read_sub(decoder *d, pb_istream_t *s, const message *m, const field *f, void *at, int depth)
{
    pb_istream_t sub;
    void *child = NULL;
    if (depth >= MAX_DEPTH)
        return fault(d, s, m, "messages nested too deeply");
    if (!pb_make_string_substream(s, &sub))
        return fault(d, s, m, "a field longer than its message");
    if (f->kind == SUB)
        memcpy(&child, at, sizeof child); /* a second occurrence is merged into the first: the format's rule */
    if (!child) {
        if (!spend(d, s, m, f->sub->size))
            return false;
        child = tn_alloc(&d->session->arena, f->sub->size);
        if (f->kind == SUB)
            memcpy(at, &child, sizeof child);
        else if (!append(d, s, m, at, &child, sizeof child))
            return false;
    }
    return read_message(d, &sub, f->sub, child, depth + 1) &&
           (pb_close_string_substream(s, &sub) || fault(d, s, m, "a cut field"));
}

static bool read_field(decoder *d, pb_istream_t *s, const message *m, const field *f, void *at, int depth)
{
    uint64_t u;
    onnx_slice text;
    switch (f->kind) {
    case INT:
        if (!pb_decode_varint(s, &u))
            return fault(d, s, m, "a cut number");
        memcpy(at, &u, sizeof u);
        return true;
    case FLOAT:
        return pb_decode_fixed32(s, at) || fault(d, s, m, "a cut number");
    case TEXT:
    case TEXTS:
        if (!read_slice(s, &text))
            return fault(d, s, m, "a field longer than its message");
        if (f->kind == TEXTS)
            return append(d, s, m, at, &text, sizeof text);
        memcpy(at, &text, sizeof text);
        return true;
    case SUB:
    case SUBS:
        return read_sub(d, s, m, f, at, depth);
    default:
        return read_item(d, s, m, f->kind, at);
    }
}

static bool read_message(decoder *d, pb_istream_t *s, const message *m, void *out, int depth)
{
    uint32_t number;
    pb_wire_type_t wire;
    bool eof = false;
    while (s->bytes_left) {
        if (!pb_decode_tag(s, &wire, &number, &eof))
            return eof || fault(d, s, m, "a cut field tag");
        int i = 0;
        while (i < m->nfields && m->fields[i].number != number)
            i++;
        if (i == m->nfields) {
            if (!pb_skip_field(s, wire))
                return fault(d, s, m, "a field that cannot be skipped");
            continue;
        }
        const field *f = &m->fields[i];
        void *at = (char *)out + f->offset;
        bool packed =
            wire == PB_WT_STRING && (f->kind == INTS || f->kind == UINTS || f->kind == FLOATS || f->kind == DOUBLES);
        if (!packed && wire != wire_type(f->kind))
            return fault(d, s, m, "a field of the wrong wire type");
        if (!(packed ? read_packed(d, s, m, f->kind, at) : read_field(d, s, m, f, at, depth)))
            return false;
        uint32_t has;
        memcpy(&has, out, sizeof has);
        has |= 1u << i;
        memcpy(out, &has, sizeof has);
    }
    return true;
}

static tn_status decode(tn_session *session, const char *file, const uint8_t *data, size_t size, const message *m,
                        void **out)
{
    enum { FIXED_BUDGET = 64 << 20, BYTES_A_BYTE = 32 };
    decoder d = {session, file, data,
                 size > (SIZE_MAX - FIXED_BUDGET) / BYTES_A_BYTE ? SIZE_MAX : FIXED_BUDGET + size * BYTES_A_BYTE};
    if (size == 0)
        return tn_error(session, TN_INVALID, (tn_loc){.file = file}, "not a readable ONNX file: it is empty");
    pb_istream_t stream = pb_istream_from_buffer(data, size);
    *out = tn_alloc(&session->arena, m->size);
    return read_message(&d, &stream, m, *out, 0) ? TN_OK : TN_INVALID;
}

tn_status onnx_decode_model(tn_session *session, const char *file, const uint8_t *data, size_t size, onnx_model **out)
{
    return decode(session, file, data, size, &message_model, (void **)out);
}

tn_status onnx_decode_tensor(tn_session *session, const char *file, const uint8_t *data, size_t size, onnx_tensor **out)
{
    return decode(session, file, data, size, &message_tensor, (void **)out);
}

/* TensorProto.DataType: its numbers in order from 0. */
static const struct data_type {
    const char *name;
    tn_dtype dtype;
} data_types[] = {
    {"undefined", TN_NO_DTYPE},
    {"float", TN_F32},
    {"uint8", TN_U8},
    {"int8", TN_I8},
    {"uint16", TN_U16},
    {"int16", TN_I16},
    {"int32", TN_I32},
    {"int64", TN_I64},
    {"string", TN_NO_DTYPE},
    {"bool", TN_BOOL},
    {"float16", TN_F16},
    {"double", TN_F64},
    {"uint32", TN_U32},
    {"uint64", TN_U64},
    {"complex64", TN_C64},
    {"complex128", TN_C128},
    {"bfloat16", TN_BF16},
    {"float8e4m3fn", TN_F8E4M3},
    {"float8e4m3fnuz", TN_NO_DTYPE},
    {"float8e5m2", TN_F8E5M2},
    {"float8e5m2fnuz", TN_NO_DTYPE},
    {"uint4", TN_U4},
    {"int4", TN_I4},
    {"float4e2m1", TN_NO_DTYPE},
    {"float8e8m0", TN_NO_DTYPE},
    {"uint2", TN_NO_DTYPE},
    {"int2", TN_NO_DTYPE},
};

tn_dtype onnx_dtype(int64_t data_type)
{
    return data_type > 0 && data_type < (int64_t)TN_COUNT(data_types) ? data_types[data_type].dtype : TN_NO_DTYPE;
}

int64_t onnx_data_type(tn_dtype dtype)
{
    for (size_t i = 1; i < TN_COUNT(data_types); i++)
        if (data_types[i].dtype == dtype && dtype != TN_NO_DTYPE)
            return (int64_t)i;
    return 0;
}

const char *onnx_data_type_name(int64_t data_type)
{
    return data_type >= 0 && data_type < (int64_t)TN_COUNT(data_types) ? data_types[data_type].name : "unknown";
}
