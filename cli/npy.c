/* NumPy's file format: "\x93NUMPY", version, header length, a Python dictionary as text, then the elements.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAGIC = 6, RANK = 12 };

typedef struct row {
    const char *descr;
    DLDataType dtype;
} row;
static const row rows[] = {
    {"|b1", {6, 8, 1}},  {"|i1", {0, 8, 1}},  {"|u1", {1, 8, 1}},  {"<i2", {0, 16, 1}}, {"<u2", {1, 16, 1}}, {"<i4", {0, 32, 1}},  {"<u4", {1, 32, 1}},
    {"<i8", {0, 64, 1}}, {"<u8", {1, 64, 1}}, {"<f2", {2, 16, 1}}, {"<f4", {2, 32, 1}}, {"<f8", {2, 64, 1}}, {"<c8", {5, 64, 1}}, {"<c16", {5, 128, 1}},
};

typedef struct reader {
    tn_session *session;
    const char *path;
    const char *at, *end; /* of the header */
    char descr[16];
    bool fortran;
    int rank;
    int64_t shape[RANK];
} reader;

static tn_status bad(reader *r, const char *what)
{
    return tn_error(r->session, TN_INVALID, (tn_loc){.file = r->path}, "not a .npy file that can be read: %s", what);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (isspace((unsigned char)*r->at) || *r->at == ','))
        r->at++;
}

static bool take(reader *r, const char *text)
{
    size_t len = strlen(text);
    skip_space(r);
    if ((size_t)(r->end - r->at) < len || strncmp(r->at, text, len) != 0)
        return false;
    r->at += len;
    return true;
}

static tn_status read_descr(reader *r)
{
    if (!take(r, "'"))
        return bad(r, "structured element types are not supported");
    size_t n = 0;
    while (r->at < r->end && *r->at != '\'' && n + 1 < sizeof r->descr)
        r->descr[n++] = *r->at++;
    return take(r, "'") ? TN_OK : bad(r, "the element type is malformed");
}

static tn_status read_shape(reader *r)
{
    if (!take(r, "("))
        return bad(r, "the shape is malformed");
    for (r->rank = 0; !take(r, ")"); r->rank++) {
        int64_t n = 0;
        const char *start = r->at;
        if (r->rank == RANK)
            return bad(r, "more than 12 dimensions");
        for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++)
            if (!tn_mul(n, 10, &n) || !tn_add(n, *r->at - '0', &n))
                return bad(r, "a size overflows");
        if (r->at == start)
            return bad(r, "the shape is malformed");
        r->shape[r->rank] = n;
    }
    return TN_OK;
}

static tn_status read_header(reader *r)
{
    unsigned seen = 0;
    if (!take(r, "{"))
        return bad(r, "the header is no dictionary");
    while (!take(r, "}")) {
        if (take(r, "'descr':")) {
            TN_TRY(read_descr(r));
            seen |= 1;
        } else if (take(r, "'fortran_order':")) {
            r->fortran = take(r, "True");
            if (!r->fortran && !take(r, "False"))
                return bad(r, "fortran_order is neither True nor False");
            seen |= 2;
        } else if (take(r, "'shape':")) {
            TN_TRY(read_shape(r));
            seen |= 4;
        } else {
            return bad(r, "the header has an unknown entry");
        }
    }
    return seen == 7 ? TN_OK : bad(r, "the header lacks an entry");
}

static bool find_dtype(const reader *r, DLDataType wanted, DLDataType *out)
{
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (!strcmp(rows[i].descr, r->descr) || (rows[i].descr[0] == '|' && !strcmp(rows[i].descr + 1, r->descr + 1))) {
            *out = rows[i].dtype;
            return true;
        }
    bool bytes = (r->descr[0] == '|' || r->descr[0] == '<') && r->descr[1] == 'V';
    *out = wanted;
    return bytes && wanted.bits >= 8 && atoi(r->descr + 2) == wanted.bits / 8;
}

static void set_strides(const reader *r, cli_tensor *out)
{
    int64_t step = 1;
    for (int k = 0; k < r->rank; k++) {
        int d = r->fortran ? k : r->rank - 1 - k;
        out->strides[d] = step;
        if (!tn_mul(step, tn_max(r->shape[d], 1), &step))
            step = 1; /* the elements were counted before: then one size is 0 */
    }
}

static tn_status take_elements(reader *r, DLDataType dtype, cli_tensor *out)
{
    int64_t n = 1;
    size_t bytes;
    bool empty = false, fits = true;
    for (int d = 0; d < r->rank; d++) {
        empty |= r->shape[d] == 0;
        fits = fits && tn_mul(n, r->shape[d], &n);
    }
    if (empty)
        n = 0;
    else if (!fits)
        return bad(r, "the number of elements overflows");
    if (!tn_dtype_bytes(tn_dtype_from_dlpack(dtype), n, &bytes))
        return bad(r, "the number of elements overflows");
    size_t left = out->file.size - (size_t)((const uint8_t *)r->end - out->file.data);
    if (bytes > left)
        return tn_error(r->session, TN_INVALID, (tn_loc){.file = r->path}, "expected %zu bytes of elements, found %zu", bytes, left);
    memcpy(out->shape, r->shape, sizeof *r->shape * (size_t)r->rank);
    set_strides(r, out);
    out->dl = (DLTensor){.data = (void *)(uintptr_t)r->end, .device = {1, 0}, .ndim = r->rank, .dtype = dtype, .shape = out->shape, .strides = out->strides};
    return TN_OK;
}

static tn_status find_header(reader *r, const tn_file *file)
{
    const uint8_t *d = file->data;
    if (file->size < MAGIC + 4 || memcmp(d, "\x93NUMPY", MAGIC) != 0)
        return bad(r, "it does not begin like one");
    size_t start = d[6] == 1 ? 10 : 12, len;
    if (d[6] < 1 || d[6] > 3 || file->size < start)
        return bad(r, "its version is unknown");
    len = d[8] | (size_t)d[9] << 8;
    if (d[6] > 1)
        len |= (size_t)d[10] << 16 | (size_t)d[11] << 24;
    if (len > file->size - start)
        return bad(r, "it ends inside the header");
    r->at = (const char *)d + start;
    r->end = r->at + len;
    return TN_OK;
}

tn_status cli_npy_read(tn_session *session, const char *path, DLDataType wanted, cli_tensor *out)
{
    reader r = {.session = session, .path = path};
    DLDataType dtype;
    *out = (cli_tensor){.owned = NULL};
    TN_TRY(tn_file_map(session, path, &out->file));
    TN_TRY(find_header(&r, &out->file));
    TN_TRY(read_header(&r));
    if (!find_dtype(&r, wanted, &dtype))
        return tn_error(session, TN_UNSUPPORTED, (tn_loc){.file = path}, "element type '%s' is not supported (expected little-endian numbers)", r.descr);
    return take_elements(&r, dtype, out);
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static const char *descr_of(DLDataType dtype)
{
    for (size_t i = 0; i < TN_COUNT(rows); i++)
        if (rows[i].dtype.code == dtype.code && rows[i].dtype.bits == dtype.bits)
            return rows[i].descr;
    return NULL;
}

tn_status cli_npy_write(tn_session *session, const char *path, const DLTensor *tensor)
{
    const char *descr = descr_of(tensor->dtype);
    size_t bytes;
    if (!descr)
        return tn_error(session, TN_UNSUPPORTED, (tn_loc){.file = path}, "NumPy has no type for %s; use --format=pb", tn_dtype_text(tn_dtype_from_dlpack(tensor->dtype)));
    tn_text text = {.arena = &session->arena};
    tn_text_put(&text, "\x93NUMPY\x01\x00\x00\x00", 10);
    tn_text_add(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int d = 0; d < tensor->ndim; d++)
        tn_text_add(&text, "%lld%s", (long long)tensor->shape[d], d + 1 < tensor->ndim ? ", " : tensor->ndim == 1 ? "," : "");
    tn_text_add(&text, "), }");
    while ((text.len + 1) % 64 != 0)
        tn_text_put(&text, " ", 1);
    tn_text_put(&text, "\n", 1);
    text.at[8] = (char)((text.len - 10) & 0xff);
    text.at[9] = (char)((text.len - 10) >> 8);
    tn_dtype_bytes(tn_dtype_from_dlpack(tensor->dtype), cli_elements(tensor), &bytes);
    char *whole = malloc(text.len + bytes);
    if (!whole)
        return tn_error(session, TN_NO_MEMORY, (tn_loc){.file = path}, "no memory to write %zu bytes", bytes);
    memcpy(whole, text.at, text.len);
    if (bytes)
        memcpy(whole + text.len, tensor->data, bytes);
    tn_status status = tn_file_write(session, path, whole, text.len + bytes);
    free(whole);
    return status;
}
