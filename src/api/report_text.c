/* The report in short, for a terminal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/report.h"

/* ---- names ------------------------------------------------------------------------------------------------------------------------ */

/* Bytes of the character at p if it is well-formed UTF-8 that prints, else 0 (RFC 3629, section 4; control characters are C0, DEL and C1). */
static size_t character(const unsigned char *p)
{
    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != 0x7f;
    int more = p[0] >= 0xc2 && p[0] <= 0xdf ? 1 : p[0] >= 0xe0 && p[0] <= 0xef ? 2 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 3 : 0;
    for (int i = 1; i <= more; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90), surrogate = p[0] == 0xed && p[1] > 0x9f, beyond = p[0] == 0xf4 && p[1] > 0x8f;
    bool control = p[0] == 0xc2 && p[1] < 0xa0;
    return more && !overlong && !surrogate && !beyond && !control ? (size_t)more + 1 : 0;
}

const char *report_clean(tn_arena *arena, const char *name)
{
    const unsigned char *p = (const unsigned char *)name;
    size_t n;
    while ((n = character(p)))
        p += n;
    if (!*p)
        return name;
    tn_text text = {.arena = arena};
    tn_text_put(&text, name, (size_t)(p - (const unsigned char *)name));
    while (*p) {
        n = character(p);
        tn_text_put(&text, n ? (const char *)p : "\xef\xbf\xbd", n ? n : 3);
        p += n ? n : 1;
    }
    return text.at;
}

/* Where a name of at most `most` bytes ends: not inside a character. */
static int cut(const char *name, size_t most)
{
    size_t n = strlen(name);
    if (n <= most)
        return (int)n;
    for (n = most; n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80;)
        n--;
    return (int)n;
}

static const char *joined(tn_arena *arena, const report_names *names, size_t most)
{
    tn_text text = {.arena = arena};
    tn_text_put(&text, "", 0);
    for (size_t i = 0; i < names->list.len; i++) {
        const char *name = report_clean(arena, names->list.at[i]);
        if (text.len + strlen(name) + 2 > most && i > 0) {
            tn_text_add(&text, ", … (%zu more)", names->list.len - i);
            break;
        }
        tn_text_add(&text, "%s%.*s", i ? ", " : "", cut(name, most), name);
    }
    return text.at ? text.at : "";
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------------------- */

static const char *scaled(tn_arena *arena, double x, double step, const char *const *units, size_t n)
{
    size_t i = 0;
    if (isnan(x))
        return "?";
    for (; i + 1 < n && x >= step; i++)
        x /= step;
    return tn_format(arena, "%.*f %s", i == 0 || x >= 100 ? 0 : x >= 10 ? 1 : 2, x, units[i]);
}

static const char *bytes_text(tn_arena *arena, double x)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(arena, x, 1024, units, TN_COUNT(units));
}

static const char *flops_text(tn_arena *arena, double x)
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    return scaled(arena, x, 1000, units, TN_COUNT(units));
}

static const char *ms_text(tn_arena *arena, double x) { return isnan(x) ? "-" : tn_format(arena, "%.4f", x); }

static const char *percent_text(tn_arena *arena, double part, double whole)
{
    return isnan(part) || isnan(whole) || whole <= 0 ? "-" : tn_format(arena, "%.0f", part / whole * 100);
}

/* ---- parts ------------------------------------------------------------------------------------------------------------------------- */

enum { SHOWN_KERNELS = 30, SHOWN_EDGES = 20 };

/* What a kernel weighs: its time, else its limit, else its bytes. */
static double weight(const tn_report *r, const report_kernel *k)
{
    double launches = isnan(k->launches) ? 1 : k->launches;
    double one = !r->no_times ? k->ms : r->has_rates ? k->limit_ms : k->read + k->written;
    return isnan(one) ? 0 : one * launches;
}

typedef struct ranked { double weight; size_t index; } ranked;

static int heaviest_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight) : (x->index > y->index) - (x->index < y->index);
}

/* Marks the `most` heaviest. */
static bool *pick(tn_arena *arena, ranked *all, size_t n, size_t most)
{
    bool *shown = TN_NEW_ARRAY(arena, bool, n + 1);
    qsort(all, n, sizeof *all, heaviest_first);
    for (size_t i = 0; i < n && i < most; i++)
        shown[all[i].index] = true;
    return shown;
}

static void text_kernels(const tn_report *r, tn_text *out)
{
    tn_arena *arena = out->arena;
    ranked *all = TN_NEW_ARRAY(arena, ranked, r->kernels.len + 1);
    for (size_t i = 0; i < r->kernels.len; i++)
        all[i] = (ranked){weight(r, &r->kernels.at[i]), i};
    bool *shown = pick(arena, all, r->kernels.len, SHOWN_KERNELS);
    tn_text_add(out, "\n%4s %-18s %10s %12s %9s %9s %4s  %s\n", "#", "kernel", "bytes", "operations", "ms", "limit ms", "%", "nodes");
    for (size_t i = 0; i < r->kernels.len; i++) {
        const report_kernel *k = &r->kernels.at[i];
        if (shown[i])
            tn_text_add(out, "%4zu %-18s %10s %12s %9s %9s %4s  %s\n", i, k->name, bytes_text(arena, k->read + k->written), flops_text(arena, k->flops), ms_text(arena, k->ms),
                        ms_text(arena, k->limit_ms), percent_text(arena, k->limit_ms, k->ms), joined(arena, &k->nodes, 72));
    }
    if (r->kernels.len > SHOWN_KERNELS)
        tn_text_add(out, "     and %zu kernels that weigh less\n", r->kernels.len - SHOWN_KERNELS);
    if (r->load.len)
        tn_text_add(out, "at load, once: %zu kernel%s\n", r->load.len, r->load.len == 1 ? "" : "s");
}

static void text_memory(const tn_report *r, tn_text *out)
{
    tn_arena *arena = out->arena;
    tn_text_add(out, "\nmemory: peak %s of intermediates in %zu buffers, no plan can need less than %s%s\n", bytes_text(arena, r->peak), r->buffers.len, bytes_text(arena, r->bound),
                r->complete ? "" : "; sizes that only a run tells are not counted");
    tn_text_add(out, "        inputs %s, outputs %s, weights mapped %s, packed %s\n", bytes_text(arena, r->inputs), bytes_text(arena, r->outputs), bytes_text(arena, r->mapped),
                bytes_text(arena, r->packed));
}

static void text_unfused(const tn_report *r, tn_text *out)
{
    tn_arena *arena = out->arena;
    ranked *all = TN_NEW_ARRAY(arena, ranked, r->unfused.len + 1);
    for (size_t i = 0; i < r->unfused.len; i++)
        all[i] = (ranked){isnan(r->unfused.at[i].bytes) ? 0 : r->unfused.at[i].bytes, i};
    bool *shown = pick(arena, all, r->unfused.len, SHOWN_EDGES);
    tn_text_add(out, "\nnot fused: %zu edge%s\n", r->unfused.len, r->unfused.len == 1 ? "" : "s");
    for (size_t i = 0; i < r->unfused.len; i++) {
        const report_edge *e = &r->unfused.at[i];
        const char *from = report_clean(arena, e->from.node), *to = report_clean(arena, e->to.node);
        if (shown[i])
            tn_text_add(out, "  %.*s (%s) -> %.*s (%s), %s: %s\n", cut(from, 60), from, e->from.op, cut(to, 60), to, e->to.op, bytes_text(arena, e->bytes), e->reason);
    }
    if (r->unfused.len > SHOWN_EDGES)
        tn_text_add(out, "  and %zu edges of fewer bytes\n", r->unfused.len - SHOWN_EDGES);
}

void report_as_text(const tn_report *r, tn_text *out)
{
    tn_arena *arena = out->arena;
    tn_text_add(out, "%s on %s", report_clean(arena, r->model), r->machine);
    if (r->device < 0)
        tn_text_add(out, ", %d thread%s", r->threads, r->threads == 1 ? "" : "s");
    for (size_t i = 0; i < r->sizes.len; i++)
        tn_text_add(out, "%s%s = %lld", i ? ", " : "; ", report_clean(arena, r->sizes.at[i].name), (long long)r->sizes.at[i].value);
    for (size_t i = 0; i < r->variants.len; i++)
        tn_text_add(out, "%s%s%s", i ? "; " : "\nvariants: ", report_clean(arena, r->variants.at[i].sizes), r->variants.at[i].chosen ? " (this one)" : "");
    tn_text_add(out, "\n%zu kernel%s: %s moved (%s of intermediates), %s", r->kernels.len, r->kernels.len == 1 ? "" : "s", bytes_text(arena, r->read + r->written),
                bytes_text(arena, r->between), flops_text(arena, r->flops));
    if (!r->no_times)
        tn_text_add(out, "; %.4f ms in kernels, a run %.4f ms", r->ms, r->run_ms);
    if (r->has_rates)
        tn_text_add(out, "; limit %.4f ms (%s)", r->limit_ms, r->rates.measured ? "rates measured" : "rates of the data sheet");
    tn_text_add(out, "\n%s%s%s", r->no_times ? "no times: " : "", r->no_times ? r->no_times : "", r->no_times ? "\n" : "");
    text_kernels(r, out);
    text_memory(r, out);
    text_unfused(r, out);
}
