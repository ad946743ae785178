/* The report as JSON (docs/explain.md says what each member means), and as the page that shows it. */
#include <json.h>
#include <math.h>
#include <string.h>

#include "api/report.h"

extern const char tn_report_page[]; /* report.html, embedded by the build */

enum { REPORT_VERSION = 1 };

/* What the library had no memory for is missing: then there is no text. */
typedef struct writer {
    tn_arena *arena;
    bool failed;
} writer;

static json_object *made(writer *w, json_object *value)
{
    w->failed |= !value;
    return value;
}

static json_object *new_object(writer *w) { return made(w, json_object_new_object()); }
static json_object *new_array(writer *w, size_t n) { return made(w, json_object_new_array_ext((int)tn_min((int64_t)n, INT32_MAX))); }

/* Takes the value over; NULL is null. */
static void put(writer *w, json_object *object, const char *name, json_object *value)
{
    if (!object || json_object_object_add_ex(object, name, value, JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_ADD_CONSTANT_KEY)) {
        json_object_put(value);
        w->failed = true;
    }
}

static void push(writer *w, json_object *array, json_object *value)
{
    if (!array || json_object_array_add(array, value)) {
        json_object_put(value);
        w->failed = true;
    }
}

static json_object *text(writer *w, const char *value)
{
    return value ? made(w, json_object_new_string(report_clean(w->arena, value))) : NULL;
}

static json_object *number(writer *w, double value)
{
    char digits[32];
    enum { EXACT = 1 << 30 };
    if (isnan(value) || isinf(value))
        return NULL;
    if (value == floor(value) && fabs(value) < (double)EXACT * EXACT / 128) /* 2^53 */
        return made(w, json_object_new_int64((int64_t)value));
    snprintf(digits, sizeof digits, "%.6g", value);
    return made(w, json_object_new_double_s(value, digits));
}

static json_object *names(writer *w, const report_names *n)
{
    json_object *array = new_array(w, n->list.len);
    for (size_t i = 0; i < n->list.len; i++)
        push(w, array, text(w, n->list.at[i]));
    return array;
}

static json_object *pairs(writer *w, const report_pair *pair, size_t n)
{
    json_object *array = new_array(w, n);
    for (size_t i = 0; i < n; i++) {
        json_object *two = new_array(w, 2);
        push(w, two, number(w, pair[i].from));
        push(w, two, number(w, pair[i].to));
        push(w, array, two);
    }
    return array;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------- */

static json_object *step(writer *w, const report_kernel *k)
{
    json_object *o = new_object(w);
    put(w, o, "name", text(w, k->name));
    put(w, o, "nodes", names(w, &k->nodes));
    put(w, o, "ops", names(w, &k->ops));
    put(w, o, "position", number(w, k->position));
    return o;
}

static json_object *kernel(writer *w, const report_kernel *k)
{
    json_object *o = step(w, k);
    put(w, o, "launches", number(w, k->launches));
    put(w, o, "programs", number(w, k->programs));
    put(w, o, "bytes", number(w, k->read + k->written));
    put(w, o, "bytes_read", number(w, k->read));
    put(w, o, "bytes_written", number(w, k->written));
    put(w, o, "bytes_between", number(w, k->between));
    put(w, o, "flops", number(w, k->flops));
    put(w, o, "ms", number(w, k->ms));
    put(w, o, "limit_ms", number(w, k->limit_ms));
    put(w, o, "limited_by", isnan(k->limit_ms) ? NULL : text(w, k->of_memory ? "memory" : "arithmetic"));
    return o;
}

static json_object *kernels(writer *w, const report_kernel *list, size_t n, json_object *(*one)(writer *, const report_kernel *))
{
    json_object *array = new_array(w, n);
    for (size_t i = 0; i < n; i++)
        push(w, array, one(w, &list[i]));
    return array;
}

static json_object *totals(writer *w, const tn_report *r)
{
    json_object *o = new_object(w);
    put(w, o, "kernels", number(w, (double)r->kernels.len));
    put(w, o, "bytes", number(w, r->read + r->written));
    put(w, o, "bytes_between", number(w, r->between));
    put(w, o, "flops", number(w, r->flops));
    put(w, o, "ms", r->no_times ? NULL : number(w, r->ms));
    put(w, o, "limit_ms", r->has_rates ? number(w, r->limit_ms) : NULL);
    put(w, o, "run_ms", number(w, r->run_ms));
    put(w, o, "runs", number(w, (double)r->runs));
    return o;
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------------ */

static json_object *machine(writer *w, const tn_report *r)
{
    static const struct { const char *name; size_t at; } rates[] = {
        {"f32", offsetof(tn_machine_limits, f32)}, {"f64", offsetof(tn_machine_limits, f64)}, {"product_8", offsetof(tn_machine_limits, product8)},
        {"product_16", offsetof(tn_machine_limits, product16)}, {"product_32", offsetof(tn_machine_limits, product32)},
        {"product_tf32", offsetof(tn_machine_limits, product_tf32)}, {"product_64", offsetof(tn_machine_limits, product64)}};
    json_object *o = new_object(w);
    put(w, o, "name", text(w, r->machine));
    put(w, o, "threads", r->device < 0 ? number(w, r->threads) : NULL);
    put(w, o, "device", r->device < 0 ? NULL : number(w, r->device));
    put(w, o, "rates", text(w, !r->has_rates ? NULL : r->rates.measured ? "measured" : "data sheet"));
    json_object *flops = new_object(w), *memory = new_array(w, TN_RATE_SIZES);
    for (size_t i = 0; r->has_rates && i < TN_COUNT(rates); i++)
        put(w, flops, rates[i].name, number(w, *(const double *)((const char *)&r->rates.limit + rates[i].at)));
    for (int i = 0; r->has_rates && i < TN_RATE_SIZES && r->rates.bandwidth[i] > 0; i++) {
        json_object *two = new_array(w, 2);
        push(w, two, r->rates.bytes[i] == INT64_MAX ? NULL : number(w, (double)r->rates.bytes[i]));
        push(w, two, number(w, floor(r->rates.bandwidth[i])));
        push(w, memory, two);
    }
    put(w, o, "flops_per_s", flops);
    put(w, o, "bytes_per_s", memory);
    return o;
}

static json_object *end(writer *w, const report_end *e)
{
    json_object *o = new_object(w);
    put(w, o, "kernel", e->kernel < 0 ? NULL : number(w, e->kernel));
    put(w, o, "node", text(w, e->node));
    put(w, o, "op", text(w, e->op));
    return o;
}

static json_object *unfused(writer *w, const tn_report *r)
{
    json_object *array = new_array(w, r->unfused.len);
    for (size_t i = 0; i < r->unfused.len; i++) {
        const report_edge *e = &r->unfused.at[i];
        json_object *o = new_object(w);
        put(w, o, "from", end(w, &e->from));
        put(w, o, "to", end(w, &e->to));
        put(w, o, "bytes", number(w, e->bytes));
        put(w, o, "reason", text(w, e->reason));
        push(w, array, o);
    }
    return array;
}

/* Passes run again and again: what a rule said of a node counts once. */
static json_object *declined(writer *w, const tn_report *r)
{
    json_object *array = new_array(w, 16);
    tn_map seen = {.arena = w->arena};
    for (size_t i = 0; i < r->declined.list.len; i++) {
        const tn_declined *d = &r->declined.list.at[i];
        const char *op = tn_op_name(d->code), *node = d->loc.node ? d->loc.node : "";
        void **cell = tn_map_at_str(&seen, tn_format(w->arena, "%s\n%s\n%s\n%s", d->rule, op, node, d->reason));
        if (*cell)
            continue;
        *cell = (void *)1;
        json_object *o = new_object(w);
        put(w, o, "pass", text(w, d->pass));
        put(w, o, "rule", text(w, d->rule));
        put(w, o, "op", text(w, op));
        put(w, o, "node", d->loc.node ? text(w, node) : NULL);
        put(w, o, "reason", text(w, d->reason));
        push(w, array, o);
    }
    return array;
}

static json_object *memory(writer *w, const tn_report *r)
{
    json_object *o = new_object(w), *buffers = new_array(w, r->buffers.len);
    put(w, o, "peak", number(w, r->peak));
    put(w, o, "bound", number(w, r->bound));
    put(w, o, "complete", made(w, json_object_new_boolean(r->complete)));
    put(w, o, "inputs", number(w, r->inputs));
    put(w, o, "outputs", number(w, r->outputs));
    put(w, o, "weights_mapped", number(w, r->mapped));
    put(w, o, "weights_packed", number(w, r->packed));
    put(w, o, "scratch", number(w, r->scratch));
    put(w, o, "positions", number(w, r->positions));
    for (size_t i = 0; i < r->buffers.len; i++) {
        const report_buffer *b = &r->buffers.at[i];
        json_object *one = new_object(w);
        put(w, one, "name", text(w, b->name));
        put(w, one, "kernel", b->kernel < 0 ? NULL : number(w, b->kernel));
        put(w, one, "first", number(w, b->first));
        put(w, one, "last", number(w, b->last));
        put(w, one, "offset", number(w, b->offset));
        put(w, one, "bytes", number(w, b->bytes));
        put(w, one, "same_as", b->same_as < 0 ? NULL : number(w, b->same_as));
        push(w, buffers, one);
    }
    put(w, o, "buffers", buffers);
    return o;
}

static json_object *graph(writer *w, const tn_report *r)
{
    json_object *o = new_object(w), *nodes = new_array(w, r->nodes.len);
    for (size_t i = 0; i < r->nodes.len; i++) {
        const report_node *n = &r->nodes.at[i];
        json_object *one = new_object(w), *held = new_array(w, n->kernels.len);
        put(w, one, "name", text(w, n->name));
        put(w, one, "ops", names(w, &n->ops));
        for (size_t k = 0; k < n->kernels.len; k++)
            push(w, held, number(w, n->kernels.at[k]));
        put(w, one, "kernels", held);
        push(w, nodes, one);
    }
    put(w, o, "nodes", nodes);
    put(w, o, "edges", pairs(w, r->node_edges.at, r->node_edges.len));
    put(w, o, "kernel_edges", pairs(w, r->kernel_edges.at, r->kernel_edges.len));
    return o;
}

static json_object *sizes(writer *w, const tn_report *r)
{
    json_object *array = new_array(w, r->sizes.len);
    for (size_t i = 0; i < r->sizes.len; i++) {
        json_object *o = new_object(w);
        put(w, o, "name", text(w, r->sizes.at[i].name));
        put(w, o, "size", number(w, (double)r->sizes.at[i].value));
        push(w, array, o);
    }
    return array;
}

static json_object *variants(writer *w, const tn_report *r)
{
    json_object *array = new_array(w, r->variants.len);
    for (size_t i = 0; i < r->variants.len; i++) {
        json_object *o = new_object(w);
        put(w, o, "sizes", text(w, r->variants.at[i].sizes));
        put(w, o, "chosen", json_object_new_boolean(r->variants.at[i].chosen));
        push(w, array, o);
    }
    return array;
}

bool report_as_json(const tn_report *r, tn_text *out)
{
    writer w = {.arena = out->arena};
    json_object *root = new_object(&w);
    put(&w, root, "version", number(&w, REPORT_VERSION));
    put(&w, root, "tenon", text(&w, tn_version()));
    put(&w, root, "model", text(&w, r->model));
    put(&w, root, "machine", machine(&w, r));
    put(&w, root, "sizes", sizes(&w, r));
    put(&w, root, "variants", variants(&w, r));
    put(&w, root, "no_times", text(&w, r->no_times));
    put(&w, root, "totals", totals(&w, r));
    put(&w, root, "kernels", kernels(&w, r->kernels.at, r->kernels.len, kernel));
    put(&w, root, "load", kernels(&w, r->load.at, r->load.len, step));
    put(&w, root, "other_steps", kernels(&w, r->others.at, r->others.len, step));
    put(&w, root, "unfused", unfused(&w, r));
    put(&w, root, "declined", declined(&w, r));
    put(&w, root, "memory", memory(&w, r));
    put(&w, root, "graph", graph(&w, r));
    size_t len;
    const char *json = w.failed ? NULL : json_object_to_json_string_length(root, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);
    if (json) {
        tn_text_put(out, json, len);
        tn_text_put(out, "\n", 1);
    }
    json_object_put(root);
    return json != NULL;
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------ */

/* The report stands in the page as text that is no script's end and no comment's start, whatever nodes are called: < is a number in it. */
bool report_as_page(const tn_report *r, tn_text *out)
{
    static const char mark[] = "@REPORT@";
    tn_text json = {.arena = out->arena};
    const char *at = strstr(tn_report_page, mark);
    if (!report_as_json(r, &json))
        return false;
    tn_text_put(out, tn_report_page, (size_t)(at - tn_report_page));
    for (const char *p = json.at; *p;) {
        size_t n = strcspn(p, "<");
        tn_text_put(out, p, n);
        if (p[n] == '<')
            tn_text_put(out, "\\u003c", 6), n++;
        p += n;
    }
    tn_text_add(out, "%s", at + sizeof mark - 1);
    return true;
}
