/* mbarriers and boxes of maps, as unkindly as the hardware may be: what a load brings is there when somebody waits for it and all have arrived, not before, and until
 * then its place holds nothing that may be read. What a store reads must not change until its thread has waited for it. */
#include "loop/boxes.h"

#include "loop/internal.h"

#include <string.h>

enum { BOX_ALIGN = 128, PIECE = 16, BARRIER_BYTES = 8 };
static const int64_t most_arrivals = (1 << 20) - 1;

#define STOP(run, ...) (run)->stop((run)->context, tn_format((run)->arena, __VA_ARGS__))

/* ---- maps with numbers ---- */

typedef struct lookup {
    const tn_lfunc *func;
    const int64_t *indices;
} lookup;

static bool find_symbol(void *context, const char *symbol, int64_t *value)
{
    const lookup *l = context;
    for (size_t i = (size_t)l->func->nbuffers; i < l->func->params.len; i++)
        if (l->func->params.at[i]->name && !strcmp(l->func->params.at[i]->name, symbol)) {
            *value = l->indices[i - (size_t)l->func->nbuffers];
            return true;
        }
    return false;
}

static const char *make_view(tn_lboxes *boxes, const tn_lmap *map, const int64_t *indices, tn_lview *out)
{
    lookup l = {boxes->func, indices};
    int64_t bytes = tn_dtype_bits(map->buffer->type.dtype) / 8, stride_bytes;
    out->map = map;
    bool known = tn_dim_eval(map->offset, find_symbol, &l, &out->offset);
    for (int i = 0; i < map->rank; i++)
        known = known && tn_dim_eval(map->size[i], find_symbol, &l, &out->size[i]) && tn_dim_eval(map->stride[i], find_symbol, &l, &out->stride[i]);
    if (!known)
        return tn_format(boxes->arena, "map %%%s: its sizes are not known", map->value->name);
    if (out->offset * bytes % PIECE)
        return tn_format(boxes->arena, "map %%%s: it starts at element %lld, which is no multiple of %d bytes", map->value->name, (long long)out->offset, PIECE);
    for (int i = 1; i < map->rank; i++)
        if (out->size[i] > 1 && (!tn_mul(out->stride[i], bytes, &stride_bytes) || stride_bytes % PIECE))
            return tn_format(boxes->arena, "map %%%s: a stride of %lld elements, which is no multiple of %d bytes", map->value->name, (long long)out->stride[i], PIECE);
    return NULL;
}

const char *tn_lboxes_begin(tn_lboxes *boxes, tn_arena *arena, const tn_lfunc *func, uint8_t *shared, const int64_t *indices)
{
    *boxes = (tn_lboxes){.arena = arena, .func = func, .shared = shared, .threads = tn_max(func->threads, 1) * tn_max(func->cluster, 1)};
    boxes->meeting = TN_NEW_ARRAY(arena, uint8_t, (size_t)boxes->threads);
    boxes->view = TN_NEW_ARRAY(arena, tn_lview, func->maps.len + 1);
    boxes->group = TN_NEW_ARRAY(arena, int64_t, (size_t)boxes->threads);
    const char *fault = NULL;
    for (size_t i = 0; i < func->maps.len && !fault; i++)
        fault = make_view(boxes, &func->maps.at[i], indices, &boxes->view[i]);
    return fault;
}

enum { MEETING_AWAY, MEETING_ARRIVED, MEETING_MET };

void tn_lboxes_begin_cta(tn_lboxes *boxes)
{
    boxes->arrived = 0;
    memset(boxes->meeting, MEETING_AWAY, (size_t)boxes->threads);
}

const char *tn_lboxes_end(tn_lboxes *boxes)
{
    if (boxes->arrived && boxes->arrived < boxes->threads)
        return tn_format(boxes->arena, "%d of %d threads of the cluster have come to cluster_arrive", boxes->arrived, boxes->threads);
    for (size_t i = 0; i < boxes->box.len; i++) {
        const tn_lbox *box = &boxes->box.at[i];
        if (box->kind == TN_BOX_LOAD)
            return tn_format(boxes->arena, "the box that thread %d loads to byte %lld of shared memory is still under way: nobody has waited for it", box->thread, (long long)box->at);
        if (box->kind == TN_BOX_SEND)
            return tn_format(boxes->arena, "what thread %d sends to byte %lld of shared memory is still under way: nobody has waited for it", box->thread, (long long)box->at);
        if (box->kind == TN_BOX_STORE)
            return tn_format(boxes->arena, "the box that thread %d stores from byte %lld of shared memory is still read: the thread has not waited for it", box->thread, (long long)box->at);
    }
    boxes->barrier.len = 0;
    return NULL;
}

static const tn_lview *view_of(const tn_lrun *run, int operand)
{
    const tn_lboxes *boxes = run->boxes;
    size_t i = 0;
    while (boxes->func->maps.at[i].value != run->op->operand[operand])
        i++;
    return &boxes->view[i];
}

/* ---- mbarriers ---- */

/* What an mbarrier's bytes hold, so that one that something was written over is found. */
static uint64_t mark_of(int64_t at) { return tn_hash_u64((uint64_t)at + 1); }

/* The mbarrier there; SIZE_MAX after a diagnostic. */
static size_t barrier_at(const tn_lrun *run, const uint8_t *data)
{
    if (!data)
        return SIZE_MAX;
    int64_t at = data - run->boxes->shared;
    uint64_t bits;
    memcpy(&bits, data, sizeof bits);
    for (size_t i = 0; bits == mark_of(at) && i < run->boxes->barrier.len; i++)
        if (run->boxes->barrier.at[i].at == at)
            return i;
    STOP(run, "thread %d: no mbarrier is at byte %lld of shared memory", run->first, (long long)at);
    return SIZE_MAX;
}

static size_t barrier_of(const tn_lrun *run, int operand) { return barrier_at(run, run->part(run->context, run->first, operand, 0, BARRIER_BYTES, TN_TOUCH_ATOMIC)); }

bool tn_l_mbarrier_init(const tn_lrun *run)
{
    tn_lboxes *boxes = run->boxes;
    uint8_t *data = run->part(run->context, run->first, 0, 0, BARRIER_BYTES, TN_TOUCH_WRITE);
    if (!data)
        return false;
    int64_t at = data - boxes->shared, count = run->number(run->context, run->first, 2);
    if (at % BARRIER_BYTES || count < 1 || count > most_arrivals)
        return STOP(run, "an mbarrier for %lld arrivals at byte %lld of shared memory", (long long)count, (long long)at);
    uint64_t mark = mark_of(at);
    memcpy(data, &mark, sizeof mark);
    size_t i = 0;
    while (i < boxes->barrier.len && boxes->barrier.at[i].at != at)
        i++;
    tn_lmbarrier fresh = {.at = at, .count = count, .missing = count};
    if (i < boxes->barrier.len)
        boxes->barrier.at[i] = fresh;
    else
        TN_PUSH(boxes->arena, &boxes->barrier, fresh);
    return true;
}

static bool is_awaited(const tn_lbox *box, size_t barrier) { return (box->kind == TN_BOX_LOAD || box->kind == TN_BOX_SEND) && box->barrier == barrier; }

static bool loads_to(const tn_lboxes *boxes, size_t barrier)
{
    for (size_t i = 0; i < boxes->box.len; i++)
        if (is_awaited(&boxes->box.at[i], barrier))
            return true;
    return false;
}

static void end_phase(tn_lboxes *boxes, size_t barrier)
{
    tn_lmbarrier *b = &boxes->barrier.at[barrier];
    if (b->missing || b->bytes || loads_to(boxes, barrier))
        return;
    b->phase++;
    b->missing = b->count;
}

static bool arrive(const tn_lrun *run, int64_t bytes)
{
    size_t barrier = barrier_of(run, 0);
    if (barrier == SIZE_MAX)
        return false;
    tn_lmbarrier *b = &run->boxes->barrier.at[barrier];
    if (!b->missing)
        return STOP(run, "thread %d arrives at the mbarrier at byte %lld, where all %lld have arrived in phase %lld, whose bytes nobody has waited for", run->first,
                    (long long)b->at, (long long)b->count, (long long)b->phase);
    b->missing--;
    b->bytes += bytes;
    end_phase(run->boxes, barrier);
    return true;
}

bool tn_l_mbarrier_arrive(const tn_lrun *run) { return arrive(run, 0); }
bool tn_l_mbarrier_expect(const tn_lrun *run) { return arrive(run, run->number(run->context, run->first, 2)); }

/* ---- boxes ---- */

static int64_t box_bytes(const tn_lmap *map)
{
    int64_t n = tn_dtype_bits(map->buffer->type.dtype) / 8;
    for (int i = 0; i < map->rank; i++)
        n *= map->box[i];
    return n;
}

/* Where byte `at` of shared memory lies if it is part of a box: the row's number within 8, 4 or 2 rows permutes its 16-byte pieces. */
static int64_t swizzled(const tn_lmap *map, int64_t at) { return map->swizzle ? at ^ ((at >> 7 & (map->swizzle / PIECE - 1)) * PIECE) : at; }

/* Between a box in shared memory, as it lies there, and one row after the other. */
static void permute(const tn_lbox *box, uint8_t *shared, uint8_t *rows, bool to_shared)
{
    const tn_lmap *map = box->view->map;
    for (int64_t i = 0; i < box_bytes(map); i += PIECE) {
        uint8_t *there = shared + swizzled(map, box->at + i);
        memcpy(to_shared ? there : rows + i, to_shared ? rows + i : there, PIECE);
    }
}

/* Elements [*lo, *hi) of row `row` of a box that the map has, and where the first one is in the map's buffer; false: too far off for any buffer. None: lo = hi. */
static bool row_of(const tn_lbox *box, int64_t row, int64_t *lo, int64_t *hi, int64_t *element)
{
    const tn_lview *view = box->view;
    const tn_lmap *map = view->map;
    *lo = tn_min(tn_max(0, -box->origin[0]), map->box[0]);
    *hi = tn_max(*lo, tn_min(map->box[0], view->size[0] - box->origin[0]));
    *element = view->offset + box->origin[0] + *lo;
    for (int i = 1; i < map->rank; i++) {
        int64_t at = box->origin[i] + row % map->box[i], moved;
        row /= map->box[i];
        if (at < 0 || at >= view->size[i])
            *hi = *lo;
        else if (!tn_mul(at, view->stride[i], &moved) || !tn_add(*element, moved, element))
            return false;
    }
    return true;
}

/* Rows one after another from or to the map's buffer; what is not there is 0. */
static bool copy_rows(const tn_lrun *run, const tn_lbox *box, uint8_t *rows, bool store)
{
    const tn_lmap *map = box->view->map;
    int64_t size = tn_dtype_bits(map->buffer->type.dtype) / 8, row_bytes = map->box[0] * size, lo, hi, element;
    for (int64_t row = 0; row < box_bytes(map) / row_bytes; row++) {
        uint8_t *at = rows + row * row_bytes;
        if (!row_of(box, row, &lo, &hi, &element))
            return STOP(run, "thread %d: no buffer has what a box of map %%%s is of", box->thread, map->value->name);
        if (!store)
            memset(at, 0, (size_t)row_bytes);
        if (lo == hi)
            continue;
        uint8_t *there = run->global(run->context, box->thread, map->buffer, element, hi - lo, store ? TN_TOUCH_WRITE : TN_TOUCH_READ);
        if (!there)
            return false;
        memcpy(store ? there : at + lo * size, store ? at + lo * size : there, (size_t)((hi - lo) * size));
    }
    return true;
}

static tn_lbox *new_box(tn_lboxes *boxes, size_t bytes)
{
    size_t i = 0;
    while (i < boxes->box.len && (boxes->box.at[i].kind != TN_BOX_NONE || boxes->box.at[i].capacity < bytes))
        i++;
    if (i == boxes->box.len) {
        tn_lbox fresh = {.data = tn_alloc(boxes->arena, bytes), .capacity = bytes};
        TN_PUSH(boxes->arena, &boxes->box, fresh);
    }
    boxes->box.at[i].bytes = (int64_t)bytes;
    return &boxes->box.at[i];
}

/* The box that the instruction is about, not begun yet: its map, indices, and place in shared memory. NULL after a diagnostic. */
static tn_lbox *asked_for(const tn_lrun *run, int shared, int map, tn_touch how)
{
    const tn_lview *view = view_of(run, map);
    uint8_t *data = run->part(run->context, run->first, shared, 0, box_bytes(view->map), how);
    if (!data)
        return NULL;
    tn_lbox *box = new_box(run->boxes, (size_t)box_bytes(view->map));
    box->view = view;
    box->thread = run->first;
    box->at = data - run->boxes->shared;
    for (int i = 0; i < view->map->rank; i++)
        box->origin[i] = (int32_t)run->number(run->context, run->first, map + 1 + i);
    if (box->at % BOX_ALIGN == 0)
        return box;
    STOP(run, "thread %d: a box at byte %lld of shared memory, which is no multiple of %d", run->first, (long long)box->at, BOX_ALIGN);
    return NULL;
}

bool tn_l_box_load(const tn_lrun *run)
{
    enum { SHARED = 0, MAP = 2 };
    size_t barrier = barrier_of(run, run->op->noperands - 2);
    tn_lbox *box = barrier == SIZE_MAX ? NULL : asked_for(run, SHARED, MAP, TN_TOUCH_WRITE);
    if (!box || !copy_rows(run, box, box->data, false))
        return false;
    box->kind = TN_BOX_LOAD;
    box->barrier = barrier;
    run->forget(run->context, box->at, box_bytes(box->view->map));
    return true;
}

/* All have arrived, so that who waits must find what was loaded. */
static bool land(const tn_lrun *run, size_t barrier)
{
    tn_lboxes *boxes = run->boxes;
    for (size_t i = 0; i < boxes->box.len; i++) {
        tn_lbox *box = &boxes->box.at[i];
        if (!is_awaited(box, barrier))
            continue;
        if (box->kind == TN_BOX_LOAD)
            permute(box, boxes->shared, box->data, true);
        else
            memcpy(boxes->shared + box->at, box->data, (size_t)box->bytes);
        box->kind = TN_BOX_NONE;
        boxes->barrier.at[barrier].bytes -= box->bytes;
        if (!run->settle(run->context, box->thread, boxes->shared + box->at, box->bytes))
            return false;
    }
    end_phase(boxes, barrier);
    return true;
}

static const char *waiting_text(const tn_lboxes *boxes, const tn_lwaiting *w)
{
    const tn_lmbarrier *b = &boxes->barrier.at[w->barrier];
    return tn_format(boxes->arena, "thread %d waits for parity %lld of the mbarrier at byte %lld, in whose phase %lld %lld of %lld arrivals and %lld bytes are missing", w->thread,
                     (long long)w->parity, (long long)b->at, (long long)b->phase, (long long)b->missing, (long long)b->count, (long long)b->bytes);
}

static bool stuck(const tn_lrun *run)
{
    const tn_lboxes *boxes = run->boxes;
    tn_text all = {.arena = run->arena};
    for (size_t i = 0; i < TN_COUNT(boxes->waiting); i++)
        if (boxes->waiting[i].waits)
            tn_text_add(&all, "%s%s", all.len ? ", and " : "", waiting_text(boxes, &boxes->waiting[i]));
    return STOP(run, "no thread can go on: %s", all.at);
}

/* Whether the phase of that parity is over; *ok: false after a diagnostic. */
static bool is_over(const tn_lrun *run, size_t barrier, int64_t parity, bool *ok)
{
    tn_lmbarrier *b = &run->boxes->barrier.at[barrier];
    if ((b->phase & 1) == parity && b->missing == 0)
        *ok = land(run, barrier);
    return (run->boxes->barrier.at[barrier].phase & 1) != parity;
}

bool tn_l_mbarrier_wait(const tn_lrun *run)
{
    tn_lboxes *boxes = run->boxes;
    size_t barrier = barrier_of(run, 0);
    int64_t parity = run->number(run->context, run->first, 2) & 1;
    bool ok = barrier != SIZE_MAX;
    while (ok && !is_over(run, barrier, parity, &ok) && ok) {
        boxes->waiting[run->role] = (tn_lwaiting){true, run->first, barrier, parity};
        tn_lturn turn = run->yield(run->context);
        if (turn == TN_TURN_NOBODY)
            return stuck(run);
        ok = turn == TN_TURN_BACK;
    }
    boxes->waiting[run->role].waits = false;
    if (ok)
        run->met(run->context);
    return ok;
}

/* ---- clusters ---- */

bool tn_l_cluster_arrive(const tn_lrun *run)
{
    tn_lboxes *boxes = run->boxes;
    if (boxes->meeting[run->first] != MEETING_AWAY)
        return STOP(run, "thread %d comes there twice", run->first);
    boxes->meeting[run->first] = MEETING_ARRIVED;
    boxes->arrived++;
    return true;
}

bool tn_l_cluster_wait(const tn_lrun *run)
{
    tn_lboxes *boxes = run->boxes;
    if (boxes->arrived < boxes->threads)
        return STOP(run, "thread %d waits for all %d threads of the cluster, of which %d have come to cluster_arrive", run->first, boxes->threads, boxes->arrived);
    boxes->meeting[run->first] = MEETING_MET;
    return true;
}

bool tn_l_send(const tn_lrun *run)
{
    enum { SENT = 0, TO = 2, CTA = 4, BARRIER = 5, WANTED = 7 };
    int64_t bytes = tn_l_part_bytes(&run->instruction->part[0]), cta = run->number(run->context, run->first, CTA);
    if (!run->number(run->context, run->first, WANTED))
        return true;
    if (run->boxes->meeting[run->first] != MEETING_MET)
        return STOP(run, "thread %d sends to CTA %lld of the cluster, which may not have begun: it has not come to cluster_wait", run->first, (long long)cta);
    const uint8_t *sent = run->part(run->context, run->first, SENT, 0, bytes, TN_TOUCH_READ);
    uint8_t *to = sent ? run->remote(run->context, run->first, TO, cta, bytes) : NULL;
    size_t barrier = to ? barrier_at(run, run->remote(run->context, run->first, BARRIER, cta, BARRIER_BYTES)) : SIZE_MAX;
    if (barrier == SIZE_MAX)
        return false;
    tn_lbox *box = new_box(run->boxes, (size_t)bytes);
    memcpy(box->data, sent, (size_t)bytes);
    box->kind = TN_BOX_SEND;
    box->view = NULL;
    box->barrier = barrier;
    box->thread = run->first;
    box->at = to - run->boxes->shared;
    run->forget(run->context, box->at, bytes);
    return true;
}

/* ---- stores ---- */

bool tn_l_box_store(const tn_lrun *run)
{
    tn_lbox *box = asked_for(run, run->op->noperands - 2, 0, TN_TOUCH_READ);
    if (!box)
        return false;
    box->kind = TN_BOX_STORE;
    box->group = run->boxes->group[run->first];
    memcpy(box->data, run->boxes->shared + box->at, (size_t)box_bytes(box->view->map));
    return true;
}

bool tn_l_box_store_commit(const tn_lrun *run)
{
    run->boxes->group[run->first]++;
    return true;
}

static bool finish_store(const tn_lrun *run, tn_lbox *box)
{
    int64_t bytes = box_bytes(box->view->map);
    box->kind = TN_BOX_NONE;
    if (memcmp(box->data, run->boxes->shared + box->at, (size_t)bytes) != 0)
        return STOP(run, "byte %lld and what follows of shared memory was written before thread %d had waited for the box that it stores from there", (long long)box->at,
                    box->thread);
    permute(box, run->boxes->shared, box->data, false);
    return copy_rows(run, box, box->data, true);
}

bool tn_l_box_store_wait(const tn_lrun *run)
{
    tn_lboxes *boxes = run->boxes;
    int64_t youngest = boxes->group[run->first] - run->number(run->context, run->first, 0);
    bool ok = true;
    for (size_t i = 0; i < boxes->box.len && ok; i++) {
        tn_lbox *box = &boxes->box.at[i];
        if (box->kind == TN_BOX_STORE && box->thread == run->first && box->group < youngest)
            ok = finish_store(run, box);
    }
    return ok;
}
