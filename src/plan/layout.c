/* Places of buffers in a segment, on concrete sizes.
 *
 * Finding the smallest segment is dynamic storage allocation, NP-hard; greedy placement in a good order comes within a few per cent of
 * the lower bound on real networks (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020: "greedy by
 * size"). A few orders are tried, and each is improved by placing earlier what reaches the
 * peak, until a segment meets the lower bound or the budget is spent; the smallest segment is kept. The budget counts steps, not time, so the
 * plan is the same on every machine. */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

typedef struct item {
    int buffer, first, last;
    int64_t bytes, offset;
} item;

typedef struct placement {
    item *item;        /* in the order in which they are placed */
    int n;
    int *by_offset;    /* items placed so far, by offset */
} placement;

typedef int (*order)(const void *, const void *);

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_size(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int size = compare(y->bytes, x->bytes), length = compare(y->last - y->first, x->last - x->first);
    return size ? size : length ? length : compare(x->buffer, y->buffer);
}

static int by_area(const void *a, const void *b)
{
    const item *x = a, *y = b;
    double p = (double)x->bytes * (x->last - x->first + 1), q = (double)y->bytes * (y->last - y->first + 1);
    return p != q ? (p < q) - (p > q) : by_size(a, b);
}

static int by_length(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int length = compare(y->last - y->first, x->last - x->first);
    return length ? length : by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->first != y->first ? compare(x->first, y->first) : by_size(a, b);
}

/* The lowest gap that fits between those already placed that live at the same time; the smallest such gap. */
static int64_t find_gap(const placement *p, const item *it, int placed)
{
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (int k = 0; k < placed; k++) {
        const item *other = &p->item[p->by_offset[k]];
        if (other->last < it->first || it->last < other->first)
            continue;
        int64_t gap = other->offset - end;
        if (gap >= it->bytes && gap < best_gap)
            best = end, best_gap = gap;
        end = tn_max(end, other->offset + other->bytes);
    }
    return best >= 0 ? best : end;
}

static int64_t place_all(placement *p)
{
    int64_t peak = 0;
    for (int i = 0; i < p->n; i++) {
        item *it = &p->item[i];
        it->offset = find_gap(p, it, i);
        int k = i;
        for (; k > 0 && p->item[p->by_offset[k - 1]].offset > it->offset; k--)
            p->by_offset[k] = p->by_offset[k - 1];
        p->by_offset[k] = i;
        peak = tn_max(peak, it->offset + it->bytes);
    }
    return peak;
}

static void keep_offsets(const placement *p, tn_layout *layout)
{
    for (int i = 0; i < p->n; i++)
        layout->offset[p->item[i].buffer] = p->item[i].offset;
}

/* The first item placed that reaches the peak goes half way to the front: what is placed earlier lies lower. False if it is there. */
static bool move_peak_forward(placement *p, int64_t peak)
{
    int at = 0;
    while (p->item[at].offset + p->item[at].bytes < peak)
        at++;
    item moved = p->item[at];
    memmove(&p->item[at / 2 + 1], &p->item[at / 2], sizeof *p->item * (size_t)(at - at / 2));
    p->item[at / 2] = moved;
    return at > 0;
}

/* Placing is quadratic: beyond a few thousand buffers one order must do, and the search has a budget. */
enum { FEW = 3000, SEARCH_WORK = 4 << 20 };

static int64_t best_of_orders(placement *p, tn_layout *layout, int64_t bound)
{
    static const order orders[] = {by_size, by_area, by_length, by_start};
    int64_t best = INT64_MAX, work = SEARCH_WORK;
    for (size_t o = 0; o < TN_COUNT(orders) && best > bound && (o == 0 || p->n <= FEW); o++) {
        qsort(p->item, (size_t)p->n, sizeof *p->item, orders[o]);
        bool improvable = p->n > 0;
        for (int64_t tries = 0; improvable && best > bound && (tries == 0 || work > 0); tries++) {
            int64_t peak = place_all(p);
            if (peak < best) {
                best = peak;
                keep_offsets(p, layout);
            }
            work -= (int64_t)p->n * p->n / 2;
            improvable = move_peak_forward(p, peak);
        }
    }
    return p->n ? best : 0;
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
    placement p = {.item = TN_NEW_ARRAY(scratch, item, nbuffers + 1), .by_offset = TN_NEW_ARRAY(scratch, int, nbuffers + 1)};
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
