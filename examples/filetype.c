/* Names the type of files, with the network of the Python package `magika` (a model of about 3 MB, trained on file contents).
 *
 *     filetype MODEL_FOLDER FILE…
 *
 * MODEL_FOLDER holds model.onnx and config.min.json, which says how a file becomes the input: its first and last bytes, white space stripped,
 * as integers, padded with a token that is no byte. The output is a probability for each label. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <json.h>
#include <tenon/tenon.h>

typedef struct config {
    struct json_object *json;
    int64_t begin_size, end_size, block_size, least_size, padding;
    double threshold; /* of labels that have none of their own */
    struct json_object *labels, *thresholds, *renamed;
} config;

static int64_t number(const struct json_object *json, const char *name)
{
    struct json_object *value = NULL;
    return json_object_object_get_ex(json, name, &value) ? json_object_get_int64(value) : -1;
}

static int read_config(const char *folder, config *c)
{
    char path[4096];
    struct json_object *threshold = NULL;
    snprintf(path, sizeof path, "%s/config.min.json", folder);
    c->json = json_object_from_file(path);
    if (!c->json) {
        fprintf(stderr, "%s: not a JSON file that can be read\n", path);
        return 0;
    }
    c->begin_size = number(c->json, "beg_size"), c->end_size = number(c->json, "end_size"), c->block_size = number(c->json, "block_size");
    c->least_size = number(c->json, "min_file_size_for_dl"), c->padding = number(c->json, "padding_token");
    json_object_object_get_ex(c->json, "target_labels_space", &c->labels);
    json_object_object_get_ex(c->json, "thresholds", &c->thresholds);
    json_object_object_get_ex(c->json, "overwrite_map", &c->renamed);
    c->threshold = json_object_object_get_ex(c->json, "medium_confidence_threshold", &threshold) ? json_object_get_double(threshold) : 0.5;
    int sizes_fit = c->begin_size > 0 && c->end_size > 0 && c->block_size >= c->begin_size && c->block_size >= c->end_size && c->block_size < 1 << 24;
    if (!sizes_fit || !json_object_is_type(c->labels, json_type_array)) {
        fprintf(stderr, "%s: expected beg_size, end_size, block_size and target_labels_space\n", path);
        return 0;
    }
    return 1;
}

/* ---- a file becomes the input ---------------------------------------------------------------------------------------------- */

/* What Python's bytes.strip takes for white space is what isspace does in the C locale. */
static void take_begin(const config *c, const uint8_t *block, int64_t n, int32_t *out)
{
    int64_t from = 0;
    while (from < n && isspace(block[from]))
        from++;
    for (int64_t i = 0; i < c->begin_size; i++)
        out[i] = from + i < n ? block[from + i] : (int32_t)c->padding;
}

static void take_end(const config *c, const uint8_t *block, int64_t n, int32_t *out)
{
    while (n > 0 && isspace(block[n - 1]))
        n--;
    for (int64_t i = 0; i < c->end_size; i++) {
        int64_t at = n - c->end_size + i;
        out[i] = at >= 0 ? block[at] : (int32_t)c->padding;
    }
}

/* Bytes of the file, -1 if it can't be read. */
static int64_t read_features(const config *c, const char *path, int32_t *out)
{
    int64_t size = -1;
    FILE *file = fopen(path, "rb");
    uint8_t *block = malloc((size_t)c->block_size);
    if (file && block && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        int64_t n = size < c->block_size ? size : c->block_size;
        rewind(file);
        int read = fread(block, 1, (size_t)n, file) == (size_t)n;
        take_begin(c, block, n, out);
        read = read && fseek(file, (long)(size - n), SEEK_SET) == 0 && fread(block, 1, (size_t)n, file) == (size_t)n;
        take_end(c, block, n, out + c->begin_size);
        size = read ? size : -1;
    }
    if (file)
        fclose(file);
    free(block);
    return size;
}

/* ---- the network ------------------------------------------------------------------------------------------------------------- */

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void print_answer(const config *c, const char *path, const float *probability, size_t n, double ms)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = probability[i] > probability[best] ? i : best;
    const char *label = json_object_get_string(json_object_array_get_idx(c->labels, best));
    struct json_object *own = NULL, *name = NULL;
    double threshold = c->threshold;
    if (c->thresholds && json_object_object_get_ex(c->thresholds, label, &own))
        threshold = json_object_get_double(own);
    if (c->renamed && json_object_object_get_ex(c->renamed, label, &name))
        label = json_object_get_string(name);
    printf("%s: %s%s  %.1f %%  %.2f ms\n", path, label, probability[best] < threshold ? " (uncertain)" : "", 100.0 * (double)probability[best], ms);
}

static int classify(const config *c, tn_context *context, const char *path, int32_t *features)
{
    int64_t size = read_features(c, path, features);
    if (size < 0) {
        fprintf(stderr, "%s: can't be read\n", path);
        return 0;
    }
    if (size < c->least_size) {
        printf("%s: %s\n", path, size == 0 ? "empty" : "too small to tell");
        return 1;
    }
    int64_t shape[2] = {1, c->begin_size + c->end_size};
    DLTensor input = {.data = features, .device = {1, 0}, .ndim = 2, .dtype = {0, 32, 1}, .shape = shape};
    DLTensor output = {.data = NULL}; /* Tenon allocates it */
    double start = milliseconds();
    if (tn_run(context, &input, 1, &output, 1) != TN_OK) {
        fprintf(stderr, "%s: %s\n", path, tn_context_error(context));
        return 0;
    }
    double ms = milliseconds() - start;
    size_t labels = json_object_array_length(c->labels);
    int fits = output.ndim == 2 && output.shape[1] == (int64_t)labels;
    if (fits)
        print_answer(c, path, output.data, labels, ms);
    else
        fprintf(stderr, "%s: the network gives no probability for each label\n", path);
    tn_tensor_free(&output);
    return fits;
}

static void print_diagnostics(const tn_session *session)
{
    tn_diagnostic d;
    for (size_t i = 0; tn_diagnostic_at(session, i, &d) == TN_OK; i++)
        fprintf(stderr, "%s%s%s%s%s\n", d.file ? d.file : "", d.file ? ": " : "", d.node ? d.node : "", d.node ? ": " : "", d.message);
}

static int classify_all(const config *c, const tn_executable *executable, char **paths, int n)
{
    tn_context *context = NULL;
    int32_t *features = malloc(sizeof *features * (size_t)(c->begin_size + c->end_size));
    int good = features && tn_context_new(executable, &context) == TN_OK;
    for (int i = 0; context && i < n; i++)
        good &= classify(c, context, paths[i], features);
    tn_context_free(context);
    free(features);
    return good;
}

static int run(const config *c, const char *folder, char **paths, int n)
{
    char path[4096];
    tn_session *session = tn_session_new();
    tn_network *network = NULL;
    tn_executable *executable = NULL;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    double start = milliseconds();
    int good = session && tn_load_onnx(session, path, NULL, &network) == TN_OK && tn_compile(session, network, NULL, &executable) == TN_OK;
    if (good) {
        printf("compiled in %.0f ms\n", milliseconds() - start);
        good = classify_all(c, executable, paths, n);
    } else {
        print_diagnostics(session);
    }
    tn_executable_free(executable);
    tn_network_free(network);
    tn_session_free(session);
    return good;
}

int main(int argc, char **argv)
{
    config c = {.json = NULL};
    if (argc < 3) {
        fprintf(stderr, "usage: filetype MODEL_FOLDER FILE...\n");
        return 2;
    }
    int good = read_config(argv[1], &c) && run(&c, argv[1], argv + 2, argc - 2);
    json_object_put(c.json);
    return good ? 0 : 1;
}
