/* Places of buffers in a segment, on concrete sizes.
 *
 * Finding the smallest segment is dynamic storage allocation, NP-hard; greedy placement in a good order comes within a few per cent of
 * the lower bound on real networks (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020: "greedy by
 * size"). First all are placed in the order of time, as an allocator would, which is linear. Unless that meets the bound, who lives with whom is written
 * down once, and some orders are tried, each with the lowest and with the smallest gap that fits; then the best of them is improved by moving
 * what reaches the peak to the front, as long as the segment is not near the bound and the budget lasts. The budget counts steps, not time, so the
 * plan is the same on every machine. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

typedef struct item {
    int buffer, first, last;
    int64_t bytes, offset;
} item;

typedef struct span {
    int64_t from, to;
} span;

typedef struct placement {
    tn_arena *arena;
    item *item;     /* by start */
    int n;
    int *order;     /* in which they are placed */
    int *turn;      /* of each: where it stands in `order` */
    int64_t *meets; /* of each: where those that live with it begin in `others`; one more at the end */
    int *others;
    span *taken;    /* of those that live with the one being placed */
    int64_t work;   /* steps that are left */
} placement;

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* ---- in the order of time -------------------------------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int start = compare(x->first, y->first), size = compare(y->bytes, x->bytes);
    return start ? start : size ? size : compare(x->buffer, y->buffer);
}

typedef struct ending {
    int last, item;
} ending;

static int by_end(const void *a, const void *b)
{
    const ending *x = a, *y = b;
    return x->last != y->last ? compare(x->last, y->last) : compare(x->item, y->item);
}

/* Free memory below `top`, by address; none touches another. */
typedef struct holes {
    span *at;
    int n;
    int64_t top;
} holes;

static int first_hole_from(const holes *h, int64_t offset)
{
    int low = 0, high = h->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (h->at[middle].from < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_hole(holes *h, int i)
{
    memmove(&h->at[i], &h->at[i + 1], sizeof *h->at * (size_t)(h->n - i - 1));
    h->n--;
}

static void give_back(holes *h, int64_t from, int64_t to)
{
    int i = first_hole_from(h, from);
    if (i < h->n && h->at[i].from == to) {
        to = h->at[i].to;
        remove_hole(h, i);
    }
    if (i > 0 && h->at[i - 1].to == from) {
        from = h->at[i - 1].from;
        remove_hole(h, --i);
    }
    memmove(&h->at[i + 1], &h->at[i], sizeof *h->at * (size_t)(h->n - i));
    h->at[i] = (span){from, to};
    h->n++;
}

/* The smallest of the holes that fit, of some hundreds; else above all, or in the last hole and above it. */
static int64_t take(holes *h, int64_t bytes)
{
    enum { LOOKED_AT = 512 };
    int best = -1;
    for (int i = 0; i < h->n && i < LOOKED_AT; i++)
        if (h->at[i].to - h->at[i].from >= bytes && (best < 0 || h->at[i].to - h->at[i].from < h->at[best].to - h->at[best].from))
            best = i;
    if (best < 0 && h->n && h->at[h->n - 1].to == h->top) {
        int64_t from = h->at[--h->n].from;
        h->top = tn_max(h->top, from + bytes);
        if (h->top > from + bytes)
            h->at[h->n++] = (span){from + bytes, h->top};
        return from;
    }
    if (best < 0)
        return h->top += bytes, h->top - bytes;
    int64_t from = h->at[best].from;
    h->at[best].from += bytes;
    if (h->at[best].from == h->at[best].to)
        remove_hole(h, best);
    return from;
}

/* Items sorted by start. */
static int64_t place_in_time(placement *p)
{
    holes h = {.at = TN_NEW_ARRAY(p->arena, span, (size_t)p->n + 1)};
    ending *endings = TN_NEW_ARRAY(p->arena, ending, (size_t)p->n + 1);
    for (int i = 0; i < p->n; i++)
        endings[i] = (ending){p->item[i].last, i};
    qsort(endings, (size_t)p->n, sizeof *endings, by_end);
    for (int i = 0, over = 0; i < p->n; i++) {
        for (; endings[over].last < p->item[i].first; over++)
            give_back(&h, p->item[endings[over].item].offset, p->item[endings[over].item].offset + p->item[endings[over].item].bytes);
        p->item[i].offset = take(&h, p->item[i].bytes);
    }
    return h.top;
}

/* ---- in any order ------------------------------------------------------------------------------------------------------------ */

/* Who lives with whom, items sorted by start. False: too many to write down. */
static bool find_meetings(placement *p)
{
    enum { MOST = 4 << 20 };
    int *alive = TN_NEW_ARRAY(p->arena, int, (size_t)p->n + 1), nalive = 0;
    int64_t pairs = 0;
    p->meets = TN_NEW_ARRAY(p->arena, int64_t, (size_t)p->n + 2);
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills from the ends of the lists */
        nalive = 0;
        for (int i = 0; i < p->n; i++) {
            int kept = 0;
            for (int k = 0; k < nalive; k++)
                if (p->item[alive[k]].last >= p->item[i].first)
                    alive[kept++] = alive[k];
            nalive = kept;
            for (int k = 0; k < nalive; k++) {
                if (pass) {
                    p->others[--p->meets[i]] = alive[k];
                    p->others[--p->meets[alive[k]]] = i;
                } else {
                    p->meets[i]++;
                    p->meets[alive[k]]++;
                }
            }
            pairs += nalive;
            if (pairs > MOST)
                return false;
            alive[nalive++] = i;
        }
        if (pass)
            break;
        p->others = TN_NEW_ARRAY(p->arena, int, (size_t)pairs * 2 + 1);
        for (int i = 1; i <= p->n; i++)
            p->meets[i] += p->meets[i - 1];
        pairs = 0;
    }
    p->taken = TN_NEW_ARRAY(p->arena, span, (size_t)p->n + 1);
    return true;
}

static int by_offset(const void *a, const void *b) { return compare(((const span *)a)->from, ((const span *)b)->from); }

static void sort_spans(span *at, int n)
{
    enum { FEW = 24 };
    if (n > FEW) {
        qsort(at, (size_t)n, sizeof *at, by_offset);
        return;
    }
    for (int i = 1; i < n; i++) {
        span x = at[i];
        int k = i;
        for (; k > 0 && at[k - 1].from > x.from; k--)
            at[k] = at[k - 1];
        at[k] = x;
    }
}

/* The lowest gap that fits between those already placed that live at the same time, or the smallest such gap. */
static int64_t find_gap(placement *p, int i, bool lowest)
{
    int64_t bytes = p->item[i].bytes, end = 0, best = -1, best_gap = INT64_MAX;
    int n = 0;
    for (int64_t k = p->meets[i]; k < p->meets[i + 1]; k++) {
        const item *other = &p->item[p->others[k]];
        if (p->turn[p->others[k]] < p->turn[i])
            p->taken[n++] = (span){other->offset, other->offset + other->bytes};
    }
    sort_spans(p->taken, n);
    p->work -= p->meets[i + 1] - p->meets[i] + 4 * n + 1;
    for (int k = 0; k < n; k++) {
        int64_t gap = p->taken[k].from - end;
        if (gap >= bytes && gap < best_gap) {
            best = end, best_gap = gap;
            if (lowest)
                break;
        }
        end = tn_max(end, p->taken[k].to);
    }
    return best >= 0 ? best : end;
}

static int64_t place_all(placement *p, bool lowest)
{
    int64_t peak = 0;
    for (int k = 0; k < p->n; k++)
        p->turn[p->order[k]] = k;
    for (int k = 0; k < p->n; k++) {
        item *it = &p->item[p->order[k]];
        it->offset = find_gap(p, p->order[k], lowest);
        peak = tn_max(peak, it->offset + it->bytes);
    }
    return peak;
}

/* What is larger by one of these comes first; equal ones as in the order before. */
typedef double measure(const item *it);
static double size_of(const item *it) { return (double)it->bytes; }
static double length_of(const item *it) { return it->last - it->first; }
static double area_of(const item *it) { return (double)it->bytes * (it->last - it->first + 1); }
static double earliness_of(const item *it) { return -it->first; }
static double lateness_of(const item *it) { return it->last; }

typedef struct ranked {
    double by, then;
    int item;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->by != y->by ? (x->by < y->by) - (x->by > y->by) : x->then != y->then ? (x->then < y->then) - (x->then > y->then) : compare(x->item, y->item);
}

static void sort_by(placement *p, measure *first, measure *second)
{
    ranked *list = TN_NEW_ARRAY(p->arena, ranked, (size_t)p->n + 1);
    for (int i = 0; i < p->n; i++)
        list[i] = (ranked){first(&p->item[i]), second(&p->item[i]), i};
    qsort(list, (size_t)p->n, sizeof *list, by_rank);
    for (int i = 0; i < p->n; i++)
        p->order[i] = list[i].item;
}

typedef struct best {
    int64_t peak;
    int64_t *offset; /* by item */
    int *order;      /* NULL: in time */
    bool lowest;
} best;

static bool keep(const placement *p, int64_t peak, const int *order, bool lowest, best *out)
{
    if (peak >= out->peak)
        return false;
    out->peak = peak;
    out->lowest = lowest;
    for (int i = 0; i < p->n; i++)
        out->offset[i] = p->item[i].offset;
    if (order)
        memcpy(out->order, order, sizeof *order * (size_t)p->n);
    return true;
}

/* The first placed that reaches the peak goes forward, half way or to a place that is drawn: what is placed earlier lies lower. False if it stays. */
static bool move_peak_forward(placement *p, int64_t peak, uint64_t draw)
{
    int at = 0;
    while (p->item[p->order[at]].offset + p->item[p->order[at]].bytes < peak)
        at++;
    int moved = p->order[at], to = draw ? (int)(draw % (uint64_t)(at + 1)) : at / 2;
    memmove(&p->order[to + 1], &p->order[to], sizeof *p->order * (size_t)(at - to));
    p->order[to] = moved;
    return to < at;
}

/* Walks on from where it is, better or not. */
static void walk(placement *p, bool lowest, int64_t enough, best *out)
{
    enum { STEPS = 64 };
    for (int step = 0; step < STEPS && out->peak > enough && p->work > 0; step++) {
        int64_t peak = place_all(p, lowest);
        keep(p, peak, p->order, lowest, out);
        if (!move_peak_forward(p, peak, 0))
            return;
    }
}

/* From the best order: one that reaches the peak moves to a place that is drawn; what is no worse is the next start. */
static void climb(placement *p, int64_t enough, best *out)
{
    bool lowest = out->lowest;
    int *from = tn_memdup(p->arena, out->order, sizeof *from * (size_t)p->n);
    int64_t at = out->peak;
    for (uint64_t step = 1; out->peak > enough && p->work > 0; step++) {
        memcpy(p->order, from, sizeof *from * (size_t)p->n);
        int64_t peak = place_all(p, lowest);
        if (!move_peak_forward(p, peak, tn_hash_u64(step) | 1))
            move_peak_forward(p, peak, 0);
        peak = place_all(p, lowest);
        if (peak > at)
            continue;
        keep(p, peak, p->order, lowest, out);
        memcpy(from, p->order, sizeof *from * (size_t)p->n);
        at = peak;
    }
}

static int64_t best_of_orders(placement *p, tn_layout *layout, int64_t bound)
{
    static const struct { measure *first, *second; } orders[] = {
        {size_of, length_of}, {area_of, size_of}, {length_of, size_of}, {earliness_of, size_of}, {lateness_of, size_of}};
    enum { WORK = 32 << 20 };
    best b = {INT64_MAX, TN_NEW_ARRAY(p->arena, int64_t, (size_t)p->n + 1), TN_NEW_ARRAY(p->arena, int, (size_t)p->n + 1), false};
    int64_t enough = bound + bound / 100;
    p->work = WORK;
    qsort(p->item, (size_t)p->n, sizeof *p->item, by_start);
    keep(p, place_in_time(p), NULL, false, &b);
    if (b.peak > bound && find_meetings(p)) {
        p->order = TN_NEW_ARRAY(p->arena, int, (size_t)p->n + 1);
        p->turn = TN_NEW_ARRAY(p->arena, int, (size_t)p->n + 1);
        bool ordered = false;
        for (size_t o = 0; o < TN_COUNT(orders) * 2 && b.peak > bound && p->work > 0; o++) { /* the exact bound is often met */
            sort_by(p, orders[o / 2].first, orders[o / 2].second);
            ordered |= keep(p, place_all(p, o % 2), p->order, o % 2, &b);
        }
        for (size_t o = 0; o < TN_COUNT(orders) * 2 && b.peak > enough && p->work > 0; o++) {
            sort_by(p, orders[o / 2].first, orders[o / 2].second);
            int64_t before = b.peak;
            walk(p, o % 2, enough, &b);
            ordered |= b.peak < before;
        }
        if (ordered)
            climb(p, enough, &b);
    }
    for (int i = 0; i < p->n; i++)
        layout->offset[p->item[i].buffer] = b.offset[i];
    return p->n ? b.peak : 0;
}

static tn_status too_large(tn_session *session, const tn_exec *exec, int buffer)
{
    const char *name = tn_plan_buffer(exec, buffer)->name;
    return tn_error(session, TN_NO_MEMORY, TN_NO_LOC, "buffer %d '%s': its size overflows for these inputs", buffer, name ? name : "");
}

/* Sizes of every buffer of the group, planned or not. */
static tn_status find_sizes(tn_session *session, const tn_values *values, int group, tn_layout *layout)
{
    const tn_exec *exec = values->exec;
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        const tn_pbuffer *buffer = &exec->program->buffers.at[b];
        size_t bytes;
        if (exec->buffers[b].group != group)
            continue;
        if (!tn_values_eval(values, buffer->elements, &layout->elements[b]) || !tn_dtype_bytes(buffer->type.dtype, layout->elements[b], &bytes) ||
            bytes > INT64_MAX / 4)
            return too_large(session, exec, (int)b);
        layout->bytes[b] = (int64_t)bytes;
    }
    return TN_OK;
}

static tn_status collect_items(tn_session *session, const tn_exec *exec, int group, const tn_layout *layout, placement *p)
{
    int64_t total = 0;
    for (size_t b = 0; b < exec->program->buffers.len; b++) {
        if (exec->buffers[b].group != group || !tn_plan_in_segment(exec, b))
            continue;
        int64_t bytes = tn_layout_rounded(layout->bytes[b]);
        if (!tn_add(total, bytes, &total))
            return too_large(session, exec, (int)b);
        p->item[p->n++] = (item){(int)b, exec->buffers[b].first, exec->buffers[b].last, bytes, 0};
    }
    return TN_OK;
}

static void place_apart(placement *p)
{
    for (int i = 0; i < p->n; i++) {
        p->item[i].first = 0;
        p->item[i].last = 1;
    }
}

tn_status tn_layout_group(tn_session *session, tn_arena *scratch, const tn_values *values, int group, tn_layout *layout)
{
    const tn_exec *exec = values->exec;
    size_t nbuffers = exec->program->buffers.len;
    TN_TRY(find_sizes(session, values, group, layout));
    placement p = {.arena = scratch, .item = TN_NEW_ARRAY(scratch, item, nbuffers + 1)};
    TN_TRY(collect_items(session, exec, group, layout, &p));
    layout->live[group] = tn_layout_bound(scratch, exec, layout, group, NULL, NULL);
    if (exec->no_reuse)
        place_apart(&p);
    layout->segment[group] = best_of_orders(&p, layout, layout->live[group]);
    for (size_t b = 0; b < nbuffers; b++) {
        int root = exec->buffers[b].same_as;
        if (exec->buffers[b].group == group && root >= 0)
            layout->offset[b] = layout->offset[root];
    }
    return TN_OK;
}
