/* TensorProto <-> tn_tensor: initializers, attributes, and the input and output files of the ONNX suite. */
#include <pb_encode.h>
#include <stdlib.h>
#include <string.h>

#include "import/onnx/internal.h"

static tn_status bad(tn_session *session, tn_loc loc, const onnx_tensor *p, const char *what)
{
    return tn_error(session, TN_INVALID, loc, "tensor '%.*s': %s", (int)tn_min((int64_t)p->name.len, 200),
                    p->name.at ? p->name.at : "", what);
}

static tn_status read_dims(tn_session *session, tn_loc loc, const onnx_tensor *p, tn_tensor *out, int64_t *count)
{
    out->dtype = onnx_dtype(p->data_type);
    if (out->dtype == TN_NO_DTYPE)
        return tn_error(session, TN_UNSUPPORTED, loc, "tensor '%.*s': element type %s (%lld) is not supported",
                        (int)tn_min((int64_t)p->name.len, 200), p->name.at ? p->name.at : "",
                        onnx_data_type_name(p->data_type), (long long)p->data_type);
    if (p->dims.len > TN_MAX_RANK)
        return bad(session, loc, p, "more than 12 dimensions");
    out->rank = (int)p->dims.len;
    for (int i = 0; i < out->rank; i++) {
        out->dim[i] = p->dims.at[i];
        if (out->dim[i] < 0)
            return bad(session, loc, p, "a negative dimension");
    }
    size_t bytes;
    if (!tn_tensor_count(out, count) || !tn_dtype_bytes(out->dtype, *count, &bytes) || bytes > PTRDIFF_MAX)
        return bad(session, loc, p, "the number of elements overflows");
    return TN_OK;
}

/* ---- data outside the file
 * -------------------------------------------------------------------------------------------------- */

static bool parse_size(onnx_slice s, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9' || __builtin_mul_overflow(*out, 10u, out) ||
            __builtin_add_overflow(*out, (uint64_t)(s.at[i] - '0'), out))
            return false;
    }
    return s.len > 0;
}

/* The folder that holds the model: external data may lie only there. */
static const char *folder_of(tn_session *session, const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? "." : slash == path ? "/" : tn_strndup(&session->arena, path, (size_t)(slash - path));
}

static tn_status map_external(onnx_ctx *c, tn_loc loc, const char *name, const tn_file **out)
{
    void **cell = tn_map_at_str(&c->files, name);
    if (!*cell) {
        tn_file *file = TN_NEW(&c->session->arena, tn_file);
        TN_TRY(tn_file_map_below(c->session, loc, folder_of(c->session, c->path), name, file));
        TN_PUSH(&c->session->arena, &c->model->files, *file);
        *cell = file;
    }
    *out = *cell;
    return TN_OK;
}

static tn_status external(tn_session *session, onnx_ctx *c, tn_loc loc, const onnx_tensor *p, size_t bytes,
                          tn_tensor *out)
{
    onnx_slice location = {0};
    uint64_t offset = 0, length = bytes;
    if (!c || !c->path)
        return bad(session, loc, p, "its data is in another file, and here is no folder to look in");
    for (size_t i = 0; i < p->external_data.len; i++) {
        const onnx_entry *e = p->external_data.at[i];
        if (onnx_is(e->key, "location"))
            location = e->value;
        else if (onnx_is(e->key, "offset") && !parse_size(e->value, &offset))
            return bad(session, loc, p, "the offset of its external data is not a number");
        else if (onnx_is(e->key, "length") && !parse_size(e->value, &length))
            return bad(session, loc, p, "the length of its external data is not a number");
    }
    if (!location.len || memchr(location.at, 0, location.len))
        return bad(session, loc, p, "its external data names no file");
    if (length != bytes)
        return bad(session, loc, p, "the length of its external data is not what its shape and type need");
    const tn_file *file;
    TN_TRY(map_external(c, loc, onnx_text(c, location), &file));
    if (offset > file->size || bytes > file->size - offset)
        return bad(session, loc, p, "its external data reaches past the end of the file");
    out->data = file->data ? (const void *)(file->data + offset) : "";
    return TN_OK;
}

/* ---- data in the file
 * ------------------------------------------------------------------------------------------------------- */

/* Which repeated field holds a type, as in onnx.proto's comments; *each: entries for n elements. */
static const void *typed_field(const onnx_tensor *p, tn_dtype dtype, int64_t n, size_t *have, uint64_t *need)
{
    *need = (uint64_t)n;
    switch (dtype) {
    case TN_C64:
        *need *= 2; /* fall through */
    case TN_F32:
        *have = p->float_data.len;
        return p->float_data.at;
    case TN_C128:
        *need *= 2; /* fall through */
    case TN_F64:
        *have = p->double_data.len;
        return p->double_data.at;
    case TN_I64:
        *have = p->int64_data.len;
        return p->int64_data.at;
    case TN_U32:
    case TN_U64:
        *have = p->uint64_data.len;
        return p->uint64_data.at;
    case TN_I4:
    case TN_U4:
        *need = (*need + 1) / 2; /* fall through */
    default:
        *have = p->int32_data.len;
        return p->int32_data.at;
    }
}

/* Keeps the low `size` bytes of each entry: integers as they are, narrow floats as their bits. */
static void *narrow(tn_arena *arena, const void *from, size_t n, size_t size)
{
    char *to = tn_alloc_array(arena, n, size);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * size, (const char *)from + i * 8, size);
    return to;
}

static tn_status typed(tn_session *session, tn_loc loc, const onnx_tensor *p, int64_t count, size_t bytes,
                       tn_tensor *out)
{
    size_t have;
    uint64_t need;
    const void *from = typed_field(p, out->dtype, count, &have, &need);
    if (have != need)
        return tn_error(
            session, TN_INVALID, loc, "tensor '%.*s': expected %llu values for its shape and type, found %zu",
            (int)tn_min((int64_t)p->name.len, 200), p->name.at ? p->name.at : "", (unsigned long long)need, have);
    if (need == 0)
        out->data = "";
    else if (tn_is_complex(out->dtype) || bytes / need >= 8 || out->dtype == TN_F32)
        out->data = from;
    else
        out->data = narrow(&session->arena, from, have, tn_dtype_bits(out->dtype) < 8 ? 1 : bytes / need);
    return TN_OK;
}

tn_status onnx_tensor_data(tn_session *session, onnx_ctx *c, tn_loc loc, const onnx_tensor *p, tn_tensor *out)
{
    enum { SMALL = 4096 };
    int64_t count;
    size_t bytes;
    *out = (tn_tensor){0};
    TN_TRY(read_dims(session, loc, p, out, &count));
    tn_dtype_bytes(out->dtype, count, &bytes);
    if (p->segment)
        return bad(session, loc, p, "tensors in segments are not supported");
    if (p->name.len)
        out->name = tn_intern(session, p->name.at, p->name.len);
    if (p->data_location == 1)
        return external(session, c, loc, p, bytes, out);
    if (!p->raw_data.at)
        return typed(session, loc, p, count, bytes, out);
    if (p->raw_data.len != bytes)
        return tn_error(session, TN_INVALID, loc, "tensor '%s': expected %zu bytes for its shape and type, found %zu",
                        out->name ? out->name : "", bytes, p->raw_data.len);
    /* Small ones are aligned once, so that compile-time work on them need not care. */
    out->data = bytes <= SMALL ? tn_memdup(&session->arena, p->raw_data.at, bytes) : p->raw_data.at;
    return TN_OK;
}

/* ---- files of one tensor
 * ------------------------------------------------------------------------------------------------------ */

tn_status tn_read_tensor_proto(tn_session *session, const char *path, tn_tensor *out)
{
    tn_file file;
    onnx_tensor *proto;
    TN_TRY(tn_file_map(session, path, &file));
    tn_loc loc = {.file = tn_strdup(&session->arena, path)};
    tn_status status = onnx_decode_tensor(session, loc.file, file.data, file.size, &proto);
    if (status == TN_OK)
        status = onnx_tensor_data(session, NULL, loc, proto, out);
    if (status == TN_OK && (const uint8_t *)out->data >= file.data &&
        (const uint8_t *)out->data < file.data + file.size)
        out->data = tn_memdup(&session->arena, out->data, proto->raw_data.len);
    tn_file_unmap(&file);
    return status;
}

/* The elements as they stand in raw_data; *owned must be freed when it is not NULL. */
static const void *flat_data(const tn_tensor *t, int64_t count, size_t bytes, void **owned)
{
    *owned = NULL;
    if (!t->splat)
        return t->data;
    *owned = calloc(1, bytes + 1);
    for (int64_t i = 0; *owned && i < count; i++)
        tn_number_store(t->dtype, *owned, i, tn_number_load(t->dtype, t->data, 0));
    return *owned;
}

static bool put_varint(pb_ostream_t *s, uint32_t number, uint64_t value)
{
    return pb_encode_tag(s, PB_WT_VARINT, number) && pb_encode_varint(s, value);
}

static bool put_bytes(pb_ostream_t *s, uint32_t number, const void *data, size_t size)
{
    return pb_encode_tag(s, PB_WT_STRING, number) && pb_encode_string(s, data, size);
}

static bool put_tensor(pb_ostream_t *s, const tn_tensor *t, const char *name, const void *data, size_t bytes)
{
    for (int i = 0; i < t->rank; i++)
        if (!put_varint(s, 1, (uint64_t)t->dim[i]))
            return false;
    return put_varint(s, 2, (uint64_t)onnx_data_type(t->dtype)) && (!name || put_bytes(s, 8, name, strlen(name))) &&
           put_bytes(s, 9, data, bytes);
}

tn_status tn_write_tensor_proto(tn_session *session, const char *path, const tn_tensor *t, const char *name)
{
    int64_t count;
    size_t bytes, room;
    tn_loc loc = {.file = path};
    if (!tn_tensor_count(t, &count) || !tn_dtype_bytes(t->dtype, count, &bytes) ||
        __builtin_add_overflow(bytes, 512 + (name ? strlen(name) : 0), &room))
        return tn_error(session, TN_INVALID, loc, "the number of elements overflows");
    void *owned, *buffer = malloc(room);
    const void *data = flat_data(t, count, bytes, &owned);
    tn_status status = TN_NO_MEMORY;
    if (buffer && (data || !bytes)) {
        pb_ostream_t stream = pb_ostream_from_buffer(buffer, room);
        status = put_tensor(&stream, t, name, data ? data : "", bytes)
                     ? tn_file_write(session, path, buffer, stream.bytes_written)
                     : tn_error(session, TN_INVALID, loc, "a tensor too large for a TensorProto");
    } else {
        tn_error(session, status, loc, "no memory for a tensor of %zu bytes", bytes);
    }
    free(owned);
    free(buffer);
    return status;
}
