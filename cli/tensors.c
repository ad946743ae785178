/* Inputs from files or at random, outputs to files and in short on the screen. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "graph/graph.h"
#include "import/import.h"

int64_t cli_elements(const DLTensor *tensor)
{
    int64_t n = 1;
    for (int d = 0; d < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

void cli_tensor_free(cli_tensor *tensor)
{
    free(tensor->owned);
    if (tensor->file.data)
        tn_file_unmap(&tensor->file);
    *tensor = (cli_tensor){.owned = NULL};
}

void cli_tensors_free(cli_tensor *tensors, size_t n)
{
    for (size_t i = 0; tensors && i < n; i++)
        cli_tensor_free(&tensors[i]);
}

tn_status cli_tensor_new(tn_session *session, DLDataType dtype, int rank, const int64_t *shape, cli_tensor *out)
{
    int64_t n = 1;
    size_t bytes;
    *out = (cli_tensor){.owned = NULL};
    for (int d = 0; d < rank; d++) {
        out->shape[d] = shape[d];
        if (!tn_mul(n, shape[d], &n))
            return tn_error(session, TN_INVALID, TN_NO_LOC, "a tensor's size overflows");
    }
    if (!tn_dtype_bytes(tn_dtype_from_dlpack(dtype), n, &bytes) || bytes > SIZE_MAX / 2)
        return tn_error(session, TN_INVALID, TN_NO_LOC, "a tensor's size overflows");
    out->owned = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    if (!out->owned)
        return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for %zu bytes", bytes);
    memset(out->owned, 0, (bytes + 64) & ~(size_t)63);
    out->dl = (DLTensor){.data = out->owned, .device = {1, 0}, .ndim = rank, .dtype = dtype};
    return TN_OK;
}

DLTensor *cli_dl_tensors(cli *c, const cli_tensor *tensors, size_t n)
{
    DLTensor *dl = TN_NEW_ARRAY(&c->session->arena, DLTensor, n + 1);
    for (size_t i = 0; i < n; i++) {
        dl[i] = tensors[i].dl;
        dl[i].shape = (int64_t *)(uintptr_t)tensors[i].shape;
        if (dl[i].strides)
            dl[i].strides = (int64_t *)(uintptr_t)tensors[i].strides;
    }
    return dl;
}

/* ---- TensorProtos ---------------------------------------------------------------------------------------------------------- */

tn_status cli_pb_read(tn_session *session, const char *path, cli_tensor *out)
{
    tn_tensor tensor;
    TN_TRY(tn_read_tensor_proto(session, path, &tensor));
    TN_TRY(cli_tensor_new(session, tn_dtype_to_dlpack(tensor.dtype), tensor.rank, tensor.dim, out));
    out->dl.shape = out->shape;
    int64_t n = cli_elements(&out->dl);
    size_t bytes;
    if (tensor.splat)
        for (int64_t i = 0; i < n; i++)
            tn_number_store(tensor.dtype, out->owned, i, tn_tensor_at(&tensor, 0));
    else if (tn_dtype_bytes(tensor.dtype, n, &bytes) && bytes)
        memcpy(out->owned, tensor.data, bytes);
    return TN_OK;
}

tn_status cli_pb_write(tn_session *session, const char *path, const DLTensor *tensor, const char *name)
{
    tn_tensor t = {.dtype = tn_dtype_from_dlpack(tensor->dtype), .rank = tensor->ndim, .data = tensor->data};
    memcpy(t.dim, tensor->shape, sizeof *tensor->shape * (size_t)tensor->ndim);
    return tn_write_tensor_proto(session, path, &t, name);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------------ */

static tn_status read_tensor(cli *c, const char *path, const tn_value_info *info, cli_tensor *out)
{
    return cli_ends_with(path, ".pb") ? cli_pb_read(c->session, path, out) : cli_npy_read(c->session, path, info->dtype, out);
}

/* An input by its name, or by its number if no name fits. */
static size_t find_input(const tn_network *network, const char *name)
{
    tn_value_info info;
    size_t n = tn_input_count(network);
    for (size_t i = 0; i < n; i++)
        if (tn_input_info(network, i, &info) == TN_OK && !strcmp(info.name, name))
            return i;
    char *end;
    unsigned long long number = strtoull(name, &end, 10);
    return *name && !*end && number < n ? (size_t)number : SIZE_MAX;
}

/* Of a run's random input 1, unless --size says otherwise; `tenon info` makes nothing up. */
static bool size_of_symbol(void *context, const char *symbol, int64_t *value)
{
    const cli *c = context;
    *value = c->only_shapes ? -1 : 1;
    for (size_t i = 0; i < c->sizes.len; i++)
        if (!strcmp(c->sizes.at[i].name, symbol))
            *value = strtoll(c->sizes.at[i].value, NULL, 10);
    return *value >= 0;
}

bool cli_input_shape(cli *c, const tn_value_info *info, int64_t *shape, const char **unknown)
{
    for (int d = 0; d < info->rank; d++) {
        tn_dim dim;
        shape[d] = info->dim[d];
        *unknown = info->dim_text[d];
        if (shape[d] < 0 && (tn_dim_parse(c->session, info->dim_text[d], &dim) == 0 || !tn_dim_eval(dim, size_of_symbol, c, &shape[d]) || shape[d] < 0))
            return false;
    }
    return true;
}

static tn_status random_input(cli *c, const tn_value_info *info, size_t i, cli_tensor *out)
{
    int64_t shape[TN_MAX_RANK];
    const char *unknown;
    if (!cli_input_shape(c, info, shape, &unknown))
        return tn_error(c->session, TN_USAGE, TN_NO_LOC, "input %zu '%s': no size for %s; give --size NAME=N", i, info->name, unknown);
    TN_TRY(cli_tensor_new(c->session, info->dtype, info->rank, shape, out));
    out->dl.shape = out->shape;
    tn_fill_random(tn_dtype_from_dlpack(out->dl.dtype), out->dl.data, cli_elements(&out->dl), (uint64_t)c->seed, i);
    return TN_OK;
}

static tn_status input_from_folder(cli *c, const tn_value_info *info, size_t i, cli_tensor *out, bool *found)
{
    const char *const ends[] = {"pb", "npy"};
    for (size_t k = 0; k < TN_COUNT(ends); k++) {
        const char *path = tn_format(&c->session->arena, "%s/input_%zu.%s", c->inputs_dir, i, ends[k]);
        if (access(path, F_OK) == 0) {
            *found = true;
            return read_tensor(c, path, info, out);
        }
    }
    return TN_OK;
}

static tn_status one_input(cli *c, const tn_network *network, size_t i, cli_tensor *out)
{
    tn_value_info info;
    bool found = false;
    tn_input_info(network, i, &info);
    for (size_t k = 0; k < c->inputs.len; k++)
        if (find_input(network, c->inputs.at[k].name) == i)
            return read_tensor(c, c->inputs.at[k].value, &info, out);
    if (c->inputs_dir) {
        TN_TRY(input_from_folder(c, &info, i, out, &found));
        if (found)
            return TN_OK;
        if (i == 0)
            return tn_error(c->session, TN_IO, TN_NO_LOC, "there is no %s/input_0.pb and no input_0.npy", c->inputs_dir);
    }
    return random_input(c, &info, i, out);
}

/* Every --size must name a dimension of an input. */
static tn_status check_sizes(cli *c, const tn_network *network)
{
    for (size_t k = 0; k < c->sizes.len; k++) {
        const char *name = c->sizes.at[k].name;
        bool found = false;
        for (size_t i = 0; i < tn_input_count(network); i++) {
            tn_value_info info;
            tn_dim dim;
            tn_input_info(network, i, &info);
            for (int d = 0; d < info.rank; d++)
                found |= info.dim[d] < 0 && tn_dim_parse(c->session, info.dim_text[d], &dim) && tn_dim_mentions(dim, name);
        }
        if (!found)
            return tn_error(c->session, TN_USAGE, TN_NO_LOC, "--size=%s: no input has a dimension of that name; `tenon info` lists them", name);
    }
    return TN_OK;
}

tn_status cli_inputs(cli *c, const tn_network *network, cli_tensor **out)
{
    size_t n = tn_input_count(network);
    TN_TRY(check_sizes(c, network));
    for (size_t k = 0; k < c->inputs.len; k++)
        if (find_input(network, c->inputs.at[k].name) == SIZE_MAX)
            return tn_error(c->session, TN_USAGE, TN_NO_LOC, "the network has no input '%s'; `tenon info` lists them", c->inputs.at[k].name);
    *out = TN_NEW_ARRAY(&c->session->arena, cli_tensor, n + 1);
    for (size_t i = 0; i < n; i++)
        TN_TRY(one_input(c, network, i, &(*out)[i]));
    return TN_OK;
}

/* ---- outputs in short -------------------------------------------------------------------------------------------------------- */

static void print_shape(const DLTensor *t)
{
    printf("%s[", tn_dtype_text(tn_dtype_from_dlpack(t->dtype)));
    for (int d = 0; d < t->ndim; d++)
        printf("%s%lld", d ? ", " : "", (long long)t->shape[d]);
    printf("]");
}

static void print_statistics(const DLTensor *t, tn_dtype dtype, int64_t n)
{
    double least = INFINITY, most = -INFINITY, sum = 0;
    int64_t nan = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = tn_number_to_double(dtype, tn_number_load(dtype, t->data, i));
        if (isnan(x)) {
            nan++;
            continue;
        }
        least = fmin(least, x), most = fmax(most, x), sum += x;
    }
    printf("  min %g  max %g  mean %g", least, most, sum / (double)(n - nan));
    if (nan)
        printf("  nan %lld", (long long)nan);
}

void cli_print_tensor(const char *what, size_t i, const char *name, const DLTensor *t)
{
    enum { SHOWN = 6 };
    tn_dtype dtype = tn_dtype_from_dlpack(t->dtype);
    int64_t n = cli_elements(t);
    tn_arena arena = {0};
    printf("%s %zu '%s': ", what, i, name);
    print_shape(t);
    if (n > 0 && !tn_is_complex(dtype))
        print_statistics(t, dtype, n);
    printf("  [");
    for (int64_t k = 0; k < n && k < SHOWN; k++) {
        double x = tn_number_to_double(dtype, tn_number_load(dtype, t->data, k));
        printf("%s%.6g", k ? ", " : "", x);
    }
    printf("%s]\n", n > SHOWN ? ", …" : "");
    tn_arena_free(&arena);
}
