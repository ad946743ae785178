/* tenon kernel: one kernel in Triton's language, run once, checked, timed, or printed at a stage. What the arguments are says for what it is compiled. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/internal.h"
#include "cli.h"
#include "run/cuda.h"

enum { MOST_SAMPLES = 1 << 18, MOST_GPU_SAMPLES = 1 << 10 };

typedef struct argument {
    tn_kernel_parameter parameter;
    const char *value, *constant; /* --arg, --const; NULL: not given */
    const char *text;             /* as tn_kernel_compile takes it */
    bool buffer, fresh;
    tn_dtype dtype;
    cli_tensor tensor;            /* dense, ours */
    void *copy;                   /* of the tensor, for the checked run */
    tn_kernel_value number;
} argument;

typedef struct kernel_run {
    cli *c;
    const char *file, *name;
    tn_module *module;
    int unit;
    tn_compiled_kernel *kernel;
    const tn_gpu *gpu; /* NULL: it runs on the CPU */
    argument *argument;
    size_t n, nvalues;
    tn_kernel_value *values;
    cli_block *blocks;        /* of the buffers among them */
    size_t nblocks;
    int64_t grid[3];
    double compile_seconds;
} kernel_run;

static tn_status usage(const kernel_run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static tn_status usage(const kernel_run *r, const char *format, ...)
{
    tn_text text = {.arena = &r->c->session->arena};
    va_list args;
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    return tn_error(r->c->session, TN_USAGE, TN_NO_LOC, "%s", text.at);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------------- */

/* Element types under the names that tn_kernel_compile takes. */
static const struct {
    const char *name;
    tn_dtype dtype;
} types[] = {{"i1", TN_BOOL}, {"i8", TN_I8},   {"i16", TN_I16}, {"i32", TN_I32},   {"i64", TN_I64}, {"u8", TN_U8},   {"u16", TN_U16},       {"u32", TN_U32},
             {"u64", TN_U64}, {"f16", TN_F16}, {"bf16", TN_BF16}, {"f32", TN_F32}, {"f64", TN_F64}, {"f8e4m3", TN_F8E4M3}, {"f8e5m2", TN_F8E5M2}};

static tn_dtype type_named(const char *text, size_t len)
{
    for (size_t i = 0; i < TN_COUNT(types); i++)
        if (strlen(types[i].name) == len && !strncmp(types[i].name, text, len))
            return types[i].dtype;
    return TN_NO_DTYPE;
}

static const char *type_name(tn_dtype dtype)
{
    for (size_t i = 0; i < TN_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return NULL;
}

/* TYPE[SIZES] */
static tn_status make_fresh(kernel_run *r, argument *a, const char *bracket)
{
    int64_t shape[TN_MAX_RANK];
    int rank = 0;
    const char *at = bracket + 1;
    a->dtype = type_named(a->value, (size_t)(bracket - a->value));
    if (a->dtype == TN_NO_DTYPE)
        return usage(r, "--arg %s=%s: there is no type '%.*s'; there are i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2", a->parameter.name, a->value,
                     (int)(bracket - a->value), a->value);
    while (*at != ']') {
        char *end;
        errno = 0;
        int64_t size = strtoll(at, &end, 10);
        bool more = *end == ',' && end[1] != ']';
        if (!isdigit((unsigned char)*at) || errno || rank == TN_MAX_RANK || (!more && *end != ']'))
            return usage(r, "--arg %s=%s: sizes are numbers between commas, 12 at most", a->parameter.name, a->value);
        shape[rank++] = size;
        at = more ? end + 1 : end;
    }
    if (at[1])
        return usage(r, "--arg %s=%s: nothing follows the ]", a->parameter.name, a->value);
    a->buffer = a->fresh = true;
    TN_TRY(cli_tensor_new(r->c->session, tn_dtype_to_dlpack(a->dtype), rank, shape, &a->tensor));
    a->tensor.dl.shape = a->tensor.shape;
    return TN_OK;
}

/* Copies elements of any strides in row-major order. */
static void copy_dense(const DLTensor *from, size_t bytes, char *to)
{
    int64_t index[TN_MAX_RANK] = {0}, n = cli_elements(from);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < from->ndim; d++)
            at += index[d] * from->strides[d];
        memcpy(to + (size_t)i * bytes, (const char *)from->data + (size_t)at * bytes, bytes);
        for (int d = from->ndim - 1; d >= 0 && ++index[d] == from->shape[d]; d--)
            index[d] = 0;
    }
}

/* `wanted` TN_NO_DTYPE: the file says. Else the file holds its bits: the type itself, integers or plain bytes of its width. */
static tn_status read_file(kernel_run *r, argument *a, const char *path, tn_dtype wanted)
{
    tn_session *session = r->c->session;
    cli_tensor file;
    tn_status status = cli_npy_read(session, path, tn_dtype_to_dlpack(wanted != TN_NO_DTYPE ? wanted : TN_U8), &file);
    tn_dtype found = status == TN_OK ? tn_dtype_from_dlpack(file.dl.dtype) : TN_NO_DTYPE;
    a->dtype = wanted == TN_NO_DTYPE ? found : wanted;
    a->buffer = true;
    file.dl.shape = file.shape;
    file.dl.strides = file.strides;
    if (status == TN_OK && !type_name(a->dtype))
        status = tn_error(session, TN_UNSUPPORTED, (tn_loc){.file = path}, "kernels have no elements of type %s", tn_dtype_text(a->dtype));
    if (status == TN_OK && found != a->dtype && !(tn_is_integer(found) && tn_dtype_bits(found) == tn_dtype_bits(wanted)))
        status = tn_error(session, TN_INVALID, (tn_loc){.file = path}, "expected elements of type %s or integers of its width, found %s", type_name(wanted),
                          tn_dtype_text(found));
    if (status == TN_OK)
        status = cli_tensor_new(session, tn_dtype_to_dlpack(a->dtype), file.dl.ndim, file.shape, &a->tensor);
    if (status == TN_OK) {
        a->tensor.dl.shape = a->tensor.shape;
        copy_dense(&file.dl, (size_t)tn_dtype_bits(a->dtype) / 8, a->tensor.owned);
    }
    cli_tensor_free(&file);
    return status;
}

static tn_status read_real(kernel_run *r, argument *a)
{
    char *end;
    a->dtype = a->parameter.type ? type_named(a->parameter.type, strlen(a->parameter.type)) : TN_F32;
    a->number.real = strtod(a->value, &end);
    if (end == a->value || *end)
        return usage(r, "--arg %s=%s: expected FILE.npy, TYPE:FILE.npy, TYPE[SIZES] or a number", a->parameter.name, a->value);
    if (!tn_is_float(a->dtype))
        return usage(r, "--arg %s=%s: the parameter is annotated %s; give an integer", a->parameter.name, a->value, a->parameter.type);
    a->text = type_name(a->dtype);
    return TN_OK;
}

/* Integers are compiled for as Triton does: 1 is a constant, and it is known whether 16 divides. */
static tn_status read_number(kernel_run *r, argument *a)
{
    char *end;
    tn_dtype annotated = a->parameter.type ? type_named(a->parameter.type, strlen(a->parameter.type)) : TN_NO_DTYPE;
    errno = 0;
    int64_t n = strtoll(a->value, &end, 10);
    if (end == a->value || *end || annotated == TN_F16 || annotated == TN_BF16 || annotated == TN_F32 || annotated == TN_F64)
        return read_real(r, a);
    if (errno)
        return usage(r, "--arg %s=%s: the number does not fit 64 bits", a->parameter.name, a->value);
    a->dtype = annotated != TN_NO_DTYPE ? annotated : n >= INT32_MIN && n <= INT32_MAX ? TN_I32 : TN_I64;
    a->number.integer = n;
    bool plain = a->parameter.do_not_specialize || annotated == TN_BOOL;
    int64_t multiple = n % 16 ? n & -n : 16; /* as launches from Python have it */
    const char *of = n == 1 ? "=1" : multiple > 1 ? tn_format(&r->c->session->arena, ":%d", (int)multiple) : "";
    a->text = tn_format(&r->c->session->arena, "%s%s", type_name(a->dtype), plain ? "" : of);
    return TN_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static tn_status read_value(kernel_run *r, argument *a)
{
    const char *bracket = strchr(a->value, '['), *colon = strchr(a->value, ':');
    tn_dtype named = colon ? type_named(a->value, (size_t)(colon - a->value)) : TN_NO_DTYPE;
    if (ends_with(a->value, ".npy"))
        TN_TRY(read_file(r, a, named != TN_NO_DTYPE ? colon + 1 : a->value, named));
    else if (bracket && bracket > a->value && isalnum((unsigned char)bracket[-1]) && ends_with(a->value, "]"))
        TN_TRY(make_fresh(r, a, bracket));
    else
        return read_number(r, a);
    a->text = tn_format(&r->c->session->arena, "*%s:16", type_name(a->dtype));
    return TN_OK;
}

static argument *find_argument(const kernel_run *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->argument[i].parameter.name, name))
            return &r->argument[i];
    return NULL;
}

static const char *parameter_list(const kernel_run *r)
{
    tn_text text = {.arena = &r->c->session->arena};
    tn_text_put(&text, "", 0);
    for (size_t i = 0; i < r->n; i++)
        tn_text_add(&text, "%s%s", i ? ", " : "", r->argument[i].parameter.name);
    return text.at;
}

static tn_status match_pairs(kernel_run *r, const cli_pairs *pairs, bool constants)
{
    const char *option = constants ? "--const" : "--arg";
    for (size_t i = 0; i < pairs->len; i++) {
        const cli_pair *p = &pairs->at[i];
        argument *a = find_argument(r, p->name);
        if (!a)
            return usage(r, "%s %s: %s has no such parameter; it has %s", option, p->name, r->name, parameter_list(r));
        if (a->value || a->constant)
            return usage(r, "%s %s: it is given twice", option, p->name);
        if (!constants && a->parameter.constexpr_)
            return usage(r, "--arg %s: it is a tl.constexpr; give it by --const %s=%s", p->name, p->name, p->value);
        *(constants ? &a->constant : &a->value) = p->value;
    }
    return TN_OK;
}

static tn_status complete(kernel_run *r, argument *a)
{
    if (a->constant)
        a->text = tn_format(&r->c->session->arena, "=%s", a->constant);
    else if (a->value)
        return read_value(r, a);
    else if (!a->parameter.optional)
        return a->parameter.constexpr_ ? usage(r, "%s needs the constant '%s': give it by --const %s=VALUE", r->name, a->parameter.name, a->parameter.name)
                                       : usage(r, "%s needs the argument '%s': give it by --arg %s=VALUE", r->name, a->parameter.name, a->parameter.name);
    return TN_OK;
}

static tn_status find_arguments(kernel_run *r)
{
    tn_arena *arena = &r->c->session->arena;
    tn_kernel_parameter first;
    tn_status status = tn_module_parameter(r->module, r->unit, r->name, 0, &first);
    if (status != TN_OK && r->c->session->errors) /* there is no such function, the diagnostic says */
        return status;
    r->n = tn_module_parameter_count(r->module, r->unit, r->name);
    r->argument = TN_NEW_ARRAY(arena, argument, r->n + 1);
    for (size_t i = 0; i < r->n; i++)
        TN_TRY(tn_module_parameter(r->module, r->unit, r->name, i, &r->argument[i].parameter));
    TN_TRY(match_pairs(r, &r->c->arguments, false));
    TN_TRY(match_pairs(r, &r->c->constants, true));
    for (size_t i = 0; i < r->n; i++)
        TN_TRY(complete(r, &r->argument[i]));
    r->values = TN_NEW_ARRAY(arena, tn_kernel_value, r->n + 1);
    for (size_t i = 0; i < r->n; i++)
        if (r->argument[i].value)
            r->values[r->nvalues++] = r->argument[i].buffer ? (tn_kernel_value){.pointer = r->argument[i].tensor.owned} : r->argument[i].number;
    return TN_OK;
}

/* ---- the kernel ----------------------------------------------------------------------------------------------------------------- */

static tn_status read_grid(kernel_run *r)
{
    const char *at = r->c->grid;
    r->grid[0] = r->grid[1] = r->grid[2] = 1;
    for (int i = 0; at; i++) {
        char *end;
        errno = 0;
        r->grid[i < 3 ? i : 0] = strtoll(at, &end, 10);
        if (i >= 3 || !isdigit((unsigned char)*at) || errno || (*end && *end != ','))
            return usage(r, "--grid=%s: expected one to three sizes with commas between them", r->c->grid);
        at = *end ? end + 1 : NULL;
    }
    return TN_OK;
}

static tn_status open_file(kernel_run *r)
{
    tn_file file;
    TN_TRY(tn_file_map(r->c->session, r->file, &file));
    tn_status status = tn_module_new(r->c->session, &r->module);
    if (status == TN_OK)
        status = tn_module_add(r->module, r->file, 1, (const char *)file.data, file.size, &r->unit);
    tn_file_unmap(&file);
    return status;
}

static tn_kernel_options kernel_options(cli *c)
{
    return (tn_kernel_options){.machine = cli_compile_options(c).machine, .threads = (int)tn_min(c->threads, 1 << 16),
                               .num_warps = (int)tn_min(c->warps, INT32_MAX), .config = (int)tn_min(c->config, INT32_MAX), .debug = c->check, .print_after = c->print_after,
                               .verify = c->verify, .apart = 1}; /* each --arg is a buffer of its own */
}

static const char **argument_texts(const kernel_run *r)
{
    const char **texts = TN_NEW_ARRAY(&r->c->session->arena, const char *, r->n + 1);
    for (size_t i = 0; i < r->n; i++)
        texts[i] = r->argument[i].text;
    return texts;
}

static tn_status emit(kernel_run *r)
{
    cli *c = r->c;
    tn_stage stage;
    size_t size;
    char *text;
    if (!cli_stage(c->emit, &stage) || stage == TN_STAGE_GRAPH) /* a kernel has no graph */
        return usage(r, "--emit=%s: expected tile, loop, llvm, asm, obj, ptx or cubin", c->emit);
    tn_kernel_options options = kernel_options(c);
    TN_TRY(tn_kernel_emit(c->session, r->module, r->unit, r->name, argument_texts(r), r->n, &options, stage, &text, &size));
    return cli_put(c, text, size);
}

/* ---- running -------------------------------------------------------------------------------------------------------------------- */

static size_t buffer_bytes(const argument *a)
{
    return (size_t)cli_elements(&a->tensor.dl) * (size_t)tn_dtype_bits(a->dtype) / 8;
}

static tn_status told(const kernel_run *r, tn_status status)
{
    return status == TN_OK ? TN_OK : tn_error(r->c->session, status, TN_NO_LOC, "%s", tn_kernel_error());
}

static tn_status launch(void *context)
{
    const kernel_run *r = context;
    return told(r, tn_kernel_launch(r->kernel, r->grid, r->values, r->nvalues));
}

/* From here on the buffers' values are addresses on the GPU. */
static tn_status move_to_gpu(kernel_run *r)
{
    r->blocks = TN_NEW_ARRAY(&r->c->session->arena, cli_block, r->n + 1);
    for (size_t i = 0; i < r->n; i++)
        if (r->argument[i].buffer)
            r->blocks[r->nblocks++] = (cli_block){.host = r->argument[i].tensor.owned, .bytes = buffer_bytes(&r->argument[i])};
    TN_TRY(cli_gpu_upload(r->c->session, r->gpu, r->blocks, r->nblocks));
    for (size_t i = 0, v = 0, b = 0; i < r->n; v += r->argument[i++].value != NULL)
        if (r->argument[i].buffer)
            r->values[v].pointer = (void *)(uintptr_t)r->blocks[b++].device;
    return TN_OK;
}

static tn_status run_on_gpu(kernel_run *r)
{
    TN_TRY(move_to_gpu(r));
    TN_TRY(launch(r));
    TN_TRY(told(r, tn_kernel_wait(r->kernel, NULL)));
    return cli_gpu_download(r->c->session, r->gpu, r->blocks, r->nblocks);
}

/* What the kernel takes of a GPU, which is known without one if ptxas is there. */
static void print_footprint(const kernel_run *r)
{
    tn_kernel_info info;
    tn_kernel_describe(r->kernel, &info);
    printf("%s for %s: %d threads a block, %zu bytes of shared memory", r->name, info.machine, info.threads, info.shared_bytes);
    if (info.registers >= 0)
        printf(", %d registers a thread, %d bytes of them spilled\n", info.registers, info.spill_bytes);
    else
        printf("; registers are known with a GPU, or where ptxas is\n");
}

/* NumPy has no types for some elements: their bits are saved as unsigned integers. */
static DLDataType saved_type(tn_dtype dtype)
{
    bool bits_only = dtype == TN_BF16 || dtype == TN_F8E4M3 || dtype == TN_F8E5M2;
    return bits_only ? (DLDataType){.code = 1, .bits = (uint8_t)tn_dtype_bits(dtype), .lanes = 1} : tn_dtype_to_dlpack(dtype);
}

static tn_status save(const kernel_run *r)
{
    const cli *c = r->c;
    if (mkdir(c->save, 0777) != 0 && errno != EEXIST)
        return tn_error(c->session, TN_IO, TN_NO_LOC, "cannot make folder '%s': %m", c->save);
    for (size_t i = 0; i < r->n; i++) {
        DLTensor tensor = r->argument[i].tensor.dl;
        tensor.dtype = saved_type(r->argument[i].dtype);
        if (r->argument[i].buffer)
            TN_TRY(cli_npy_write(c->session, tn_format(&c->session->arena, "%s/%s.npy", c->save, r->argument[i].parameter.name), &tensor));
    }
    return TN_OK;
}

static tn_status run_once(kernel_run *r)
{
    TN_TRY(r->gpu ? run_on_gpu(r) : launch(r));
    for (size_t i = 0; i < r->n; i++)
        if (r->argument[i].buffer)
            cli_print_tensor("argument", i, r->argument[i].parameter.name, &r->argument[i].tensor.dl);
    return r->c->save ? save(r) : TN_OK;
}

/* ---- checking ------------------------------------------------------------------------------------------------------------------- */

static tn_status check_copies(kernel_run *r)
{
    tn_session *session = r->c->session;
    tn_kernel_value *values = TN_NEW_ARRAY(&session->arena, tn_kernel_value, r->nvalues + 1);
    int64_t *elements = TN_NEW_ARRAY(&session->arena, int64_t, r->nvalues + 1);
    int *fresh = TN_NEW_ARRAY(&session->arena, int, r->nvalues + 1);
    for (size_t i = 0, v = 0; i < r->n; i++) {
        argument *a = &r->argument[i];
        if (!a->value)
            continue;
        values[v] = r->values[v];
        elements[v] = -1;
        if (a->buffer) {
            a->copy = tn_alloc_tensor(buffer_bytes(a));
            if (!a->copy)
                return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "no memory for a copy of '%s'", a->parameter.name);
            memcpy(a->copy, a->tensor.owned, buffer_bytes(a));
            values[v].pointer = a->copy;
            elements[v] = cli_elements(&a->tensor.dl);
            fresh[v] = a->fresh;
        }
        v++;
    }
    return tn_kernel_check(session, r->kernel, r->grid, values, r->nvalues, elements, fresh);
}

static const char *element_text(tn_arena *arena, tn_dtype dtype, const void *data, int64_t i)
{
    tn_text text = {.arena = arena};
    tn_text_number(&text, dtype, tn_number_load(dtype, data, i));
    return text.at;
}

static tn_status compare(const kernel_run *r)
{
    tn_session *session = r->c->session;
    tn_status status = TN_OK;
    for (size_t i = 0; i < r->n; i++) {
        const argument *a = &r->argument[i];
        int64_t n = a->buffer ? cli_elements(&a->tensor.dl) : 0, first, wrong = tn_differences(a->dtype, a->copy, a->tensor.owned, n, TN_WHOLE, &first);
        if (wrong)
            status = tn_error(session, TN_MISMATCH, (tn_loc){.file = r->file}, "%s: element %lld of '%s': the interpreter gives %s, compiled code %s; %lld of %lld elements differ",
                              r->name, (long long)first, a->parameter.name, element_text(&session->arena, a->dtype, a->copy, first),
                              element_text(&session->arena, a->dtype, a->tensor.owned, first), (long long)wrong, (long long)n);
    }
    return status;
}

static tn_status check(kernel_run *r)
{
    size_t errors = r->c->session->errors;
    TN_TRY(check_copies(r));
    if (r->c->session->errors != errors)
        return TN_INVALID;
    TN_TRY(run_once(r));
    TN_TRY(compare(r));
    printf("no access is at fault, and compiled code agrees with the interpreter\n");
    return TN_OK;
}

/* ---- timing --------------------------------------------------------------------------------------------------------------------- */

typedef struct times {
    double median, least;
    size_t samples;
    int64_t launches; /* of a sample */
} times;

/* A sample is as many launches as take some microseconds, so that reading the clock does not count. */
static tn_status measure(kernel_run *r, double *samples, times *out)
{
    static const double sample_seconds = 20e-6;
    double start = tn_seconds(), warm = r->c->seconds / 10, end;
    int64_t n = 0;
    do {
        TN_TRY(launch(r));
        n++;
    } while (tn_seconds() - start < warm);
    double one = (tn_seconds() - start) / (double)n;
    out->launches = one < sample_seconds ? (int64_t)(sample_seconds / one) + 1 : 1;
    end = tn_seconds() + r->c->seconds;
    for (out->samples = 0; out->samples < MOST_SAMPLES && (out->samples == 0 || tn_seconds() < end); out->samples++) {
        start = tn_seconds();
        for (int64_t i = 0; i < out->launches; i++)
            TN_TRY(launch(r));
        samples[out->samples] = (tn_seconds() - start) / (double)out->launches;
    }
    qsort(samples, out->samples, sizeof *samples, tn_by_value);
    out->least = samples[0];
    out->median = samples[out->samples / 2];
    return TN_OK;
}

/* Median and minimum by the GPU's clock; launches apart, since the clock's events stand between them. */
static tn_status measure_gpu(kernel_run *r, double *samples, times *out)
{
    TN_TRY(move_to_gpu(r));
    TN_TRY(cli_gpu_measure(r->c->session, r->gpu, launch, r, r->c->seconds, samples, MOST_GPU_SAMPLES, &out->samples));
    out->launches = 1;
    qsort(samples, out->samples, sizeof *samples, tn_by_value);
    out->least = samples[0];
    out->median = samples[out->samples / 2];
    return TN_OK;
}

static void print_times(const kernel_run *r, const times *t)
{
    tn_kernel_info info;
    size_t bytes = 0;
    tn_kernel_describe(r->kernel, &info);
    for (size_t i = 0; i < r->n; i++)
        bytes += r->argument[i].buffer ? buffer_bytes(&r->argument[i]) : 0;
    double rate = t->median > 0 ? (double)bytes / t->median * 1e-9 : 0;
    if (r->c->json) {
        printf("{\"kernel\": ");
        cli_print_json_text(r->name);
        printf(", \"file\": ");
        cli_print_json_text(r->file);
        printf(", \"median_ms\": %.6f, \"min_ms\": %.6f, \"compile_ms\": %.3f, \"bytes\": %zu, \"gb_per_s\": %.3f, \"grid\": [%lld, %lld, %lld], \"launches\": %lld, "
               "\"threads\": %d, \"machine\": \"%s\", \"cached\": %s, \"code_bytes\": %zu, \"scratch_bytes\": %zu, \"pointer_accesses\": %zu, "
               "\"device\": %d, \"registers\": %d, \"spill_bytes\": %d, \"shared_bytes\": %zu}\n",
               t->median * 1e3, t->least * 1e3, r->compile_seconds * 1e3, bytes, rate, (long long)r->grid[0], (long long)r->grid[1], (long long)r->grid[2],
               (long long)t->samples * (long long)t->launches, info.threads, info.machine, info.cached ? "true" : "false", info.code_bytes, info.scratch_bytes,
               info.pointer_accesses, info.device, info.registers, info.spill_bytes, info.shared_bytes);
        return;
    }
    printf("median %.4f ms, minimum %.4f ms over %lld launches on %s%d threads (%s); %.1f GB/s of %zu bytes of arguments\n", t->median * 1e3, t->least * 1e3,
           (long long)t->samples * (long long)t->launches, r->gpu ? "blocks of " : "up to ", info.threads, info.machine, rate, bytes);
    printf("compile %.1f ms (front end %.1f, lower %.1f, machine code %.1f, link %.1f)%s; %zu bytes of code, %zu of scratch, %zu accesses by pointers\n",
           r->compile_seconds * 1e3, info.front_seconds * 1e3, info.lower_seconds * 1e3, info.emit_seconds * 1e3, info.link_seconds * 1e3,
           info.cached ? ", from the disk" : "", info.code_bytes, info.scratch_bytes, info.pointer_accesses);
}

static tn_status bench(kernel_run *r)
{
    double *samples = malloc(sizeof *samples * MOST_SAMPLES);
    times t;
    if (!samples)
        return TN_NO_MEMORY;
    tn_status status = r->gpu ? measure_gpu(r, samples, &t) : measure(r, samples, &t);
    free(samples);
    if (status == TN_OK)
        print_times(r, &t);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------------ */

static tn_status check_options(kernel_run *r)
{
    const cli *c = r->c;
    const char *colon = strrchr(c->file, ':');
    if (!colon || colon == c->file || !colon[1])
        return usage(r, "'%s': expected FILE.py:NAME, the name of a @triton.jit function behind the file's", c->file);
    r->file = tn_strndup(&c->session->arena, c->file, (size_t)(colon - c->file));
    r->name = colon + 1;
    if ((c->emit != NULL) + c->check + c->bench > 1)
        return usage(r, "--emit, --check and --bench exclude each other");
    if (c->json && !c->bench)
        return usage(r, "--json goes with --bench");
    if (c->save && (c->emit || c->bench))
        return usage(r, "--save goes with a run or with --check");
    if (c->output && !c->emit)
        return usage(r, "--output goes with --emit");
    return read_grid(r);
}

static tn_status check_machine(const kernel_run *r)
{
    cli *c = r->c;
    const tn_machine *machine;
    int device;
    bool gpu_code = c->emit && cli_is_gpu_stage(c->emit);
    if (gpu_code && !c->target && !c->machine)
        c->target = "cuda";
    TN_TRY(cli_check_target(c));
    TN_TRY(tn_gpu_machine(c->session, cli_compile_options(c).machine, &machine, &device));
    return machine->gpu || !gpu_code ? TN_OK : usage(r, "--emit=%s: machine '%s' is no GPU", c->emit, machine->name);
}

/* The GPU that the kernel was loaded into; without one, why. */
static tn_status find_gpu(kernel_run *r)
{
    tn_kernel_info info;
    tn_kernel_describe(r->kernel, &info);
    if (info.device < 0)
        return TN_OK;
    if (!r->c->json)
        print_footprint(r);
    r->gpu = tn_api_kernel_gpu(r->kernel);
    return r->gpu ? TN_OK : launch(r);
}

static tn_status work(kernel_run *r)
{
    cli *c = r->c;
    TN_TRY(check_options(r));
    TN_TRY(check_machine(r));
    TN_TRY(open_file(r));
    TN_TRY(find_arguments(r));
    if (c->emit)
        return emit(r);
    tn_kernel_options options = kernel_options(c);
    double start = tn_seconds();
    TN_TRY(tn_kernel_compile(c->session, r->module, r->unit, r->name, argument_texts(r), r->n, &options, &r->kernel));
    r->compile_seconds = tn_seconds() - start;
    TN_TRY(find_gpu(r));
    return c->bench ? bench(r) : c->check ? check(r) : run_once(r);
}

/* What stays an access by pointers is shown where it matters: beside the Tile IR, and beside times. */
static void drop_notes(cli *c)
{
    if (c->session->errors == 0 && !c->bench)
        for (size_t i = c->session->diags.len; i-- > 0;)
            if (c->session->diags.at[i].severity == TN_NOTE) {
                memmove(&c->session->diags.at[i], &c->session->diags.at[i + 1], sizeof *c->session->diags.at * (c->session->diags.len - i - 1));
                c->session->diags.len--;
            }
}

int cli_kernel(cli *c)
{
    kernel_run r = {.c = c};
    tn_status status = work(&r);
    drop_notes(c);
    cli_gpu_free(c->session, r.gpu, r.blocks, r.nblocks);
    int code = cli_fail(c, status);
    for (size_t i = 0; i < r.n; i++) {
        cli_tensor_free(&r.argument[i].tensor);
        free(r.argument[i].copy);
    }
    tn_compiled_kernel_free(r.kernel);
    tn_module_free(r.module);
    return code;
}
