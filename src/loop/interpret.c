/* The meaning of the Loop IR, slowly: every lane through tn_scalar_eval, every offset checked. Fresh buffers hold NaN
 * (all ones), so that reading what was never written shows.
 *
 * The threads of a CTA run in lockstep: an operation for all that are active, then the next one. A branch runs each side for those that take it, a loop as
 * long as one of them has an iteration left. CTAs run one after another: each turn of the grid's loop is one. What only a GPU shows now and then is an error
 * here each time: a barrier that some threads miss, a lane that is not there, shared memory read before it is written, and threads that
 * touch the same memory without a barrier between them (races.h).
 *
 * The CTAs of a cluster run in lockstep too, as one crowd, each with shared memory of its own. A barrier is for the threads of one; what two of them touch of global memory
 * has no order at all. What they send each other is there when somebody waits for it, as what copies bring (boxes.h).
 *
 * The blocks of `roles` run each in lockstep, an instance of the first one by itself, and take turns: the second block goes as far as it can, to a wait for an
 * mbarrier that can't end, then the first one, and so on until all are through or none can go on. A kernel with roles, and a persistent one, is one CTA that walks all
 * programs, so that what one program leaves in shared memory meets the next. A wait for an mbarrier counts as a barrier for all threads: what races across one is not found. */
#include "loop/boxes.h"
#include "loop/internal.h"
#include "loop/races.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t max_steps = UINT64_C(1) << 36;

typedef struct place {
    uint8_t *data;
    int64_t elements; /* -1: unknown */
    size_t capacity;  /* bytes of data, of an alloc */
} place;

typedef struct cell {
    tn_number *lanes; /* of a scalar or vector: each thread's, one after another */
    place *places;    /* of a buffer: one, or one a thread */
    bool own;         /* each thread has its own */
} cell;

typedef struct machine {
    const tn_lfunc *func;
    tn_arena *arena;
    cell *cells; /* by value id */
    const tn_lop *op;
    uint64_t steps;
    int threads, thread; /* how many, of all CTAs of a cluster one after another; the one whose turn it is */
    int cta_threads;     /* of one CTA */
    int together;        /* how many a barrier is for, in each CTA */
    size_t shared_bytes; /* from one CTA's shared memory to the next one's */
    uint8_t *shared;
    tn_races *races;
    tn_lcopies *copies; /* by thread */
    tn_lboxes *boxes;
    struct role *role; /* NULL: outside of roles */
    bool one_cta;      /* that walks all programs */
    tn_status status;
} machine;

enum { MOST_THREADS = TN_MOST_THREADS * TN_MOST_CLUSTER };

/* The threads that are active, in order. */
typedef struct crowd {
    int n;
    uint16_t thread[MOST_THREADS];
} crowd;

#define STOP(m, status, ...) stop((m), (status), tn_format(tn_l_arena((m)->func), __VA_ARGS__))
static bool stop(machine *m, tn_status status, const char *message)
{
    m->status = tn_error(m->func->session, status, (tn_loc){.line = m->op->line}, "kernel @%s: %s: %s", m->func->name,
                         m->op->code == TN_L_fn ? tn_scalar_name(m->op->fn) : tn_lop_name(m->op->code), message);
    return false;
}

static const tn_number *lanes_of(machine *m, const tn_lvalue *v)
{
    return m->cells[v->id].lanes + (size_t)v->type.lanes * (size_t)m->thread;
}

static int64_t index_of(machine *m, const tn_lvalue *v)
{
    return lanes_of(m, v)->i;
}

static tn_number *result_lanes(machine *m, const tn_lvalue *v)
{
    cell *c = &m->cells[v->id];
    if (!c->lanes)
        c->lanes = TN_NEW_ARRAY(m->arena, tn_number, (size_t)v->type.lanes * (size_t)m->threads);
    return c->lanes + (size_t)v->type.lanes * (size_t)m->thread;
}

static place *place_of(machine *m, const tn_lvalue *buffer)
{
    cell *c = &m->cells[buffer->id];
    return c->places + (c->own ? m->thread : buffer->type.space == TN_SPACE_SHARED ? m->thread / m->cta_threads : 0);
}

/* ---- values ---- */

static void run_fn(machine *m, tn_number *out)
{
    const tn_lop *op = m->op;
    tn_dtype dtype = op->operand[op->noperands - 1]->type.dtype;
    for (int l = 0; l < op->result->type.lanes; l++) {
        tn_number operands[3];
        for (int i = 0; i < op->noperands; i++)
            operands[i] = lanes_of(m, op->operand[i])[l];
        out[l] = tn_scalar_eval(op->fn, dtype, operands);
    }
}

/* False: nothing says what it means. */
static bool run_intrinsic(machine *m, tn_number *out)
{
    const tn_lop *op = m->op;
    for (int l = 0; l < op->result->type.lanes; l++) {
        tn_number operands[3];
        for (int i = 0; i < op->noperands && i < 3; i++)
            operands[i] = lanes_of(m, op->operand[i])[l];
        if (!tn_l_gpu_eval(op->name, operands, op->noperands, &out[l]) && !tn_l_cpu_eval(op->name, operands, op->noperands, &out[l]))
            return false;
    }
    return true;
}

static void run_bitcast(machine *m, tn_number *out)
{
    tn_ltype from = m->op->operand[0]->type, to = m->op->result->type;
    size_t bytes = (size_t)tn_dtype_bits(from.dtype) * (size_t)from.lanes / 8 + 1;
    void *bits = tn_alloc(m->arena, bytes);
    for (int l = 0; l < from.lanes; l++)
        tn_number_store(from.dtype, bits, l, lanes_of(m, m->op->operand[0])[l]);
    for (int l = 0; l < to.lanes; l++)
        out[l] = tn_number_load(to.dtype, bits, l);
}

static void run_hreduce(machine *m, tn_number *out)
{
    const tn_lvalue *x = m->op->operand[0];
    tn_number *work = tn_memdup(m->arena, lanes_of(m, x), (size_t)x->type.lanes * sizeof *work);
    for (int n = x->type.lanes / 2; n; n /= 2)
        for (int l = 0; l < n; l++)
            work[l] = tn_scalar_eval(m->op->fn, x->type.dtype, (tn_number[]){work[l], work[l + n]});
    *out = work[0];
}

static bool lane_index(machine *m, const tn_lvalue *v, int lanes, int64_t *lane)
{
    *lane = index_of(m, v);
    return (*lane >= 0 && *lane < lanes) || STOP(m, TN_INVALID, "lane %lld of %d", (long long)*lane, lanes);
}

static bool run_lane_op(machine *m, tn_number *out)
{
    const tn_lop *op = m->op;
    int64_t lane, n = op->operand[0]->type.lanes;
    const tn_number *x = lanes_of(m, op->operand[0]);
    if (!lane_index(m, op->operand[op->noperands - 1], (int)n, &lane))
        return false;
    if (op->code == TN_L_extract) {
        *out = x[lane];
        return true;
    }
    memcpy(out, x, (size_t)n * sizeof *out);
    out[lane] = *lanes_of(m, op->operand[1]);
    return true;
}

static void run_shuffle(machine *m, tn_number *out)
{
    int n = m->op->operand[0]->type.lanes;
    for (int l = 0; l < m->op->result->type.lanes; l++) {
        int from = m->op->lanes[l];
        out[l] = from < 0 ? (tn_number){0} : lanes_of(m, m->op->operand[from >= n])[from % n];
    }
}

/* ---- memory ---- */

static bool is_memory(const tn_lvalue *buffer) { return buffer->def && buffer->def->code == TN_L_memory; }

/* Where an element of an access lies, for index 0 of a load or store of it; *at: its index there. */
static void *data_of(machine *m, int64_t element, int64_t *at)
{
    const tn_lvalue *buffer = m->op->operand[0];
    *at = is_memory(buffer) ? 0 : element;
    if (!is_memory(buffer))
        return place_of(m, buffer)->data;
    return (void *)((uintptr_t)element * (uintptr_t)(tn_dtype_bits(buffer->type.dtype) / 8));
}

/* Whether this thread may touch the element: no other thread has since the last barrier, or neither writes, or both are atomic. */
static bool may_touch(machine *m, int64_t element, tn_touch how)
{
    const tn_lvalue *buffer = m->op->operand[0];
    tn_space space = buffer->type.space;
    if (m->threads == 1 || buffer->readonly || (space != TN_SPACE_SHARED && space != TN_SPACE_GLOBAL))
        return true;
    int64_t at, bits = tn_dtype_bits(buffer->type.dtype);
    const uint8_t *data = data_of(m, element, &at);
    const uint8_t *first = data + (bits >= 8 ? at * (bits / 8) : at * bits / 8); /* two elements of half a byte are one for the machine */
    int other = -1;
    if (space == TN_SPACE_GLOBAL) {
        other = tn_races_global(m->races, (uintptr_t)first, m->thread, how);
    } else {
        size_t byte = (size_t)(first - m->shared), n = (size_t)(bits / 8);
        if (how != TN_TOUCH_WRITE && !tn_races_written(m->races, byte, n))
            return STOP(m, TN_INVALID, "thread %d reads element %lld of %%%s in shared memory, which nothing has written", m->thread, (long long)element,
                        buffer->name ? buffer->name : "");
        other = tn_races_shared(m->races, byte, n, m->thread, how);
    }
    return other < 0 || STOP(m, TN_INVALID, "threads %d and %d touch element %lld of %%%s in %s memory without a barrier between them, and one of them writes",
                             other < m->thread ? other : m->thread, other < m->thread ? m->thread : other, (long long)element, buffer->name ? buffer->name : "", tn_space_text(space));
}

static bool load_element(machine *m, int64_t element, tn_touch how, tn_number *out)
{
    int64_t at;
    if (!may_touch(m, element, how))
        return false;
    const void *data = data_of(m, element, &at);
    *out = tn_number_load(m->op->operand[0]->type.dtype, data, at);
    return true;
}

static bool store_element(machine *m, int64_t element, tn_touch how, tn_number value)
{
    int64_t at;
    if (!may_touch(m, element, how))
        return false;
    void *data = data_of(m, element, &at);
    tn_number_store(m->op->operand[0]->type.dtype, data, at, value);
    return true;
}

/* The element of the buffer that lane l of an access touches; false after a diagnostic. Buffers of vectors hold each
 * vector's lanes side by side. */
static bool element_of(machine *m, int l, int64_t *element)
{
    const tn_lop *op = m->op;
    const tn_lvalue *buffer = op->operand[0];
    bool by_lane = op->code == TN_L_gather || op->code == TN_L_scatter;
    int64_t offset = lanes_of(m, op->operand[1])[by_lane ? l : 0].i, elements = is_memory(buffer) ? -1 : place_of(m, buffer)->elements;
    *element = buffer->type.lanes == 1 ? offset + (by_lane ? 0 : l) : offset * buffer->type.lanes + l;
    if (is_memory(buffer))
        return *element > 0 || STOP(m, TN_INVALID, "address %lld", (long long)*element);
    return (*element >= 0 && (elements < 0 || *element < elements)) ||
           STOP(m, TN_INVALID, "offset %lld (lane %d) of a buffer of %lld elements", (long long)*element, l,
                (long long)elements);
}

static bool active(machine *m, int l)
{
    const tn_lvalue *mask = tn_lop_mask(m->op);
    return !mask || lanes_of(m, mask)[l].u;
}

static bool run_load(machine *m, tn_number *out)
{
    const tn_lop *op = m->op;
    const tn_lvalue *other = tn_lop_other(op);
    int64_t element;
    for (int l = 0; l < op->result->type.lanes; l++) {
        if (!active(m, l)) {
            out[l] = other ? lanes_of(m, other)[l] : (tn_number){0};
            continue;
        }
        if (!element_of(m, l, &element) || !load_element(m, element, m->op->code == TN_L_atomic_load ? TN_TOUCH_ATOMIC : TN_TOUCH_READ, &out[l]))
            return false;
    }
    return true;
}

static bool run_store(machine *m)
{
    const tn_lvalue *value = m->op->operand[2];
    int64_t element;
    for (int l = 0; l < value->type.lanes; l++) {
        if (!active(m, l))
            continue;
        if (!element_of(m, l, &element) || !store_element(m, element, TN_TOUCH_WRITE, lanes_of(m, value)[l]))
            return false;
    }
    return true;
}

static bool same_bits(tn_dtype dtype, tn_number a, tn_number b)
{
    uint64_t x[4] = {0}, y[4] = {0};
    tn_number_store(dtype, x, 0, a);
    tn_number_store(dtype, y, 0, b);
    return memcmp(x, y, sizeof x) == 0;
}

static bool run_atomic(machine *m, tn_number *out)
{
    const tn_lvalue *buffer = m->op->operand[0];
    tn_dtype dtype = buffer->type.dtype;
    int64_t element;
    if (!active(m, 0)) {
        *out = (tn_number){0};
        return true;
    }
    if (!element_of(m, 0, &element) || !load_element(m, element, TN_TOUCH_ATOMIC, out))
        return false;
    tn_number operands[] = {*out, *lanes_of(m, m->op->operand[2])};
    if (m->op->code == TN_L_cas)
        return !same_bits(dtype, operands[0], operands[1]) || store_element(m, element, TN_TOUCH_ATOMIC, *lanes_of(m, m->op->operand[3]));
    tn_number value = m->op->fn == TN_SCALAR_NONE ? operands[1] : tn_scalar_eval(m->op->fn, dtype, operands);
    return store_element(m, element, TN_TOUCH_ATOMIC, value);
}

static void run_address(machine *m, tn_number *out)
{
    const tn_lvalue *buffer = m->op->operand[0];
    out->i = is_memory(buffer) ? 0 : (int64_t)(uintptr_t)place_of(m, buffer)->data;
}

static void add_value(tn_text *line, tn_dtype dtype, tn_number x, bool hex)
{
    uint64_t bits[2] = {0, 0};
    tn_number_store(dtype, bits, 0, x);
    if (hex)
        tn_text_add(line, "0x%0*llx", (int)tn_max(1, tn_dtype_bits(dtype) / 4), (unsigned long long)bits[0]);
    else if (tn_is_float(dtype))
        tn_text_add(line, "%f", x.f);
    else if (tn_dtype_class(dtype) == TN_CLASS_INT)
        tn_text_add(line, "%lld", (long long)x.i);
    else
        tn_text_add(line, "%llu", (unsigned long long)x.u);
}

static void run_print(machine *m)
{
    tn_text line = {.arena = m->arena};
    const char *at = m->op->name, *text;
    size_t len;
    int value = 0;
    for (tn_lpiece piece; (piece = tn_l_print_piece(&at, &text, &len)) != TN_L_PIECE_END;) {
        if (piece == TN_L_PIECE_TEXT) {
            tn_text_put(&line, text, len);
            continue;
        }
        const tn_lvalue *x = m->op->operand[value++];
        add_value(&line, x->type.dtype, *lanes_of(m, x), piece == TN_L_PIECE_HEX);
    }
    puts(line.len ? line.at : "");
}

static void run_alloc_shared(machine *m)
{
    const tn_lop *op = m->op;
    cell *c = &m->cells[op->result->id];
    int ctas = m->threads / m->cta_threads;
    if (!c->places) {
        c->places = TN_NEW_ARRAY(m->arena, place, (size_t)ctas);
        for (int cta = 0; cta < ctas; cta++)
            c->places[cta] = (place){.data = m->shared + (size_t)cta * m->shared_bytes + op->at, .elements = op->size};
    }
}

static bool run_alloc(machine *m)
{
    const tn_lop *op = m->op;
    tn_ltype type = op->result->type;
    cell *c = &m->cells[op->result->id];
    if (type.space == TN_SPACE_SHARED) {
        run_alloc_shared(m);
        return true;
    }
    if (!c->places) {
        c->places = TN_NEW_ARRAY(m->arena, place, (size_t)m->threads);
        c->own = true;
    }
    place *p = place_of(m, op->result);
    int64_t size = op->noperands ? index_of(m, op->operand[0]) : op->size;
    size_t bytes;
    if (size < 0 || !tn_mul(size, type.lanes, &size) || !tn_dtype_bytes(type.dtype, size, &bytes) ||
        bytes > (size_t)1 << 32)
        return STOP(m, TN_INVALID, "a size of %lld elements", (long long)size);
    if (bytes > p->capacity || !p->data) {
        p->data = tn_alloc(m->arena, bytes + 1);
        p->capacity = bytes;
    }
    memset(p->data, type.dtype == TN_BOOL ? 1 : 0xff, bytes);
    p->elements = size;
    return true;
}

/* ---- threads together ---- */

static bool run_barrier(machine *m, const crowd *active)
{
    for (int i = 0, n; i < active->n; i += n) {
        int cta = active->thread[i] / m->cta_threads;
        for (n = 0; i + n < active->n && active->thread[i + n] / m->cta_threads == cta; n++)
            ;
        if (n < m->together)
            return STOP(m, TN_INVALID, "%d of %d threads reach it", n, m->together);
    }
    tn_races_barrier(m->races);
    return true;
}

/* All that are active have the operand already, so that the order of threads does not matter. */
static bool run_warp_op(machine *m, const crowd *active)
{
    const tn_lop *op = m->op;
    bool on[MOST_THREADS] = {false};
    for (int i = 0; i < active->n; i++)
        on[active->thread[i]] = true;
    for (int i = 0; i < active->n; i++) {
        m->thread = active->thread[i];
        int warp = m->thread / TN_WARP * TN_WARP;
        for (int lane = 0; lane < TN_WARP; lane++)
            if (!on[warp + lane])
                return STOP(m, TN_INVALID, "thread %d runs it, thread %d of its warp does not", m->thread, warp + lane);
        int64_t lane = op->code == TN_L_lane_xor ? (m->thread % TN_WARP) ^ op->number.i : index_of(m, op->operand[1]);
        tn_number *out = result_lanes(m, op->result);
        m->thread = warp + (int)(lane & (TN_WARP - 1));
        *out = *lanes_of(m, op->operand[0]);
    }
    return true;
}

/* n elements of a buffer, as an access of its own. */
static uint8_t *elements_of(machine *m, int thread, tn_lvalue **buffer, int64_t offset, int64_t n, tn_touch how)
{
    const tn_lop *op = m->op;
    tn_lop access = *op;
    access.operand = buffer;
    int64_t bits = tn_dtype_bits((*buffer)->type.dtype), at;
    m->thread = thread;
    int64_t elements = is_memory(*buffer) ? -1 : place_of(m, *buffer)->elements;
    if (offset < 0 || (elements >= 0 && offset + n > elements)) {
        STOP(m, TN_INVALID, "thread %d: elements %lld to %lld of a buffer of %lld", thread, (long long)offset, (long long)(offset + n), (long long)elements);
        return NULL;
    }
    m->op = &access;
    bool ok = true;
    for (int64_t i = 0; i < n && ok; i++)
        ok = may_touch(m, offset + i, how);
    uint8_t *data = ok ? data_of(m, offset, &at) : NULL;
    m->op = op;
    return data ? data + at * (bits / 8) : NULL;
}

static uint8_t *part_of(void *context, int thread, int operand, int64_t skip, int64_t bytes, tn_touch how)
{
    machine *m = context;
    tn_lvalue **buffer = m->op->operand + operand;
    int64_t bits = tn_dtype_bits((*buffer)->type.dtype), n = bits ? (bytes * 8 + bits - 1) / bits : 0;
    m->thread = thread;
    return elements_of(m, thread, buffer, index_of(m, buffer[1]) + skip * 8 / tn_max(bits, 1), n, how);
}

static uint8_t *global_of(void *context, int thread, tn_lvalue *buffer, int64_t element, int64_t n, tn_touch how)
{
    return elements_of(context, thread, &buffer, element, n, how);
}

static int64_t number_of(void *context, int thread, int operand)
{
    machine *m = context;
    m->thread = thread;
    return index_of(m, m->op->operand[operand]);
}

/* The same part as the thread has of the memory of another CTA of the cluster; nobody touches it yet. */
static uint8_t *remote_of(void *context, int thread, int operand, int64_t cta, int64_t bytes)
{
    machine *m = context;
    const tn_lvalue *buffer = m->op->operand[operand];
    m->thread = thread;
    int64_t size = tn_dtype_bits(buffer->type.dtype) / 8, at = index_of(m, m->op->operand[operand + 1]), ctas = m->threads / m->cta_threads;
    const place *all = m->cells[buffer->id].places;
    if (cta >= 0 && cta < ctas && at >= 0 && at * size + bytes <= all->elements * size)
        return all[cta].data + at * size;
    STOP(m, TN_INVALID, "thread %d: element %lld of a buffer of %lld in the CTA of number %lld, of %lld", thread, (long long)at, (long long)all->elements, (long long)cta,
         (long long)ctas);
    return NULL;
}

static bool settle_copy(void *context, int thread, const uint8_t *to, int64_t bytes)
{
    machine *m = context;
    int other = tn_races_shared(m->races, (size_t)(to - m->shared), (size_t)bytes, thread, TN_TOUCH_WRITE);
    return other < 0 || STOP(m, TN_INVALID, "thread %d touches shared memory that a copy of thread %d writes", other, thread);
}

static void forget_bytes(void *context, int64_t at, int64_t bytes)
{
    machine *m = context;
    memset(m->shared + at, 0xff, (size_t)bytes);
    tn_races_forget(m->races, (size_t)at, (size_t)bytes);
}

static bool stop_machine(void *context, const char *message) { return stop(context, TN_INVALID, message); }

static int role_of(const machine *m);
static void has_met(void *context);
static tn_lturn yield_turn(void *context);

/* By groups of threads that run it together; all of a group have to be there. */
static bool run_machine(machine *m, const crowd *active)
{
    tn_lrun run = {.op = m->op, .instruction = tn_l_instruction(m->op->name), .arena = m->arena, .copies = m->copies, .boxes = m->boxes, .role = role_of(m), .context = m,
                   .part = part_of, .remote = remote_of, .number = number_of, .settle = settle_copy, .global = global_of, .forget = forget_bytes, .met = has_met, .yield = yield_turn,
                   .stop = stop_machine};
    int together = run.instruction->threads;
    for (int i = 0; i < active->n; i += together) {
        run.first = active->thread[i];
        if (run.first % together || i + together > active->n || active->thread[i + together - 1] != run.first + together - 1)
            return STOP(m, TN_INVALID, "@%s is for %d threads together, and some of those around thread %d are not there", m->op->name, together, run.first);
        if (!tn_l_run_instruction(&run))
            return false;
    }
    return true;
}

/* The CTA ends: no copy may be under way. */
static bool end_cta(machine *m)
{
    const char *fault = tn_lboxes_end(m->boxes);
    return !fault || STOP(m, TN_INVALID, "%s", fault);
}

/* The next CTA: nothing is in shared memory. */
static void begin_cta(machine *m)
{
    tn_races_new_cta(m->races);
    if (m->races->bytes)
        memset(m->shared, 0xff, m->races->bytes);
    tn_lboxes_begin_cta(m->boxes);
}

/* ---- control ---- */

static bool run_block(machine *m, const tn_lblock *block, const crowd *active);

static int instance_of(const machine *m, int *instances);

/* What the loop's index grows by in a turn: instances share out the turns of a grid's loop. */
static int64_t step_of(machine *m, const tn_lop *op)
{
    int instances = 1;
    if (op->kind == TN_FOR_GRID)
        instance_of(m, &instances);
    return index_of(m, op->operand[2]) * instances;
}

/* Gives each thread its first index, or its next one; those that have one stay. */
static bool enter_loop(machine *m, const tn_lop *op, const crowd *active, crowd *inside)
{
    int instances, instance = op->kind == TN_FOR_GRID ? instance_of(m, &instances) : 0;
    inside->n = 0;
    for (int k = 0; k < active->n; k++) {
        m->thread = active->thread[k];
        int64_t step = index_of(m, op->operand[2]), lo = index_of(m, op->operand[0]) + instance * step;
        if (step <= 0)
            return STOP(m, TN_INVALID, "a step of %lld", (long long)step);
        result_lanes(m, op->region[0]->arg)->i = lo;
        if (lo < index_of(m, op->operand[1]))
            inside->thread[inside->n++] = (uint16_t)m->thread;
    }
    return true;
}

static void next_turn(machine *m, const tn_lop *op, crowd *inside)
{
    int n = 0;
    for (int k = 0; k < inside->n; k++) {
        m->thread = inside->thread[k];
        tn_number *index = result_lanes(m, op->region[0]->arg);
        if (tn_add(index->i, step_of(m, op), &index->i) && index->i < index_of(m, op->operand[1]))
            inside->thread[n++] = (uint16_t)m->thread;
    }
    inside->n = n;
}

static bool run_for(machine *m, const crowd *active)
{
    const tn_lop *op = m->op;
    crowd inside;
    if (!enter_loop(m, op, active, &inside))
        return false;
    for (; inside.n; next_turn(m, op, &inside)) {
        bool cta = op->kind == TN_FOR_GRID && !m->one_cta;
        if (cta)
            begin_cta(m);
        if (!run_block(m, op->region[0], &inside) || (cta && !end_cta(m)))
            return false;
    }
    return true;
}

/* The threads for which the condition is as told. */
static void choose(machine *m, const tn_lvalue *condition, bool want, const crowd *from, crowd *to)
{
    int n = 0;
    for (int k = 0; k < from->n; k++) {
        m->thread = from->thread[k];
        if ((lanes_of(m, condition)->u != 0) == want)
            to->thread[n++] = (uint16_t)m->thread;
    }
    to->n = n;
}

static bool run_if(machine *m, const crowd *active)
{
    const tn_lop *op = m->op;
    crowd side;
    for (int i = 0; i < 2; i++) {
        choose(m, op->operand[0], i == 0, active, &side);
        if (side.n && !run_block(m, op->region[i], &side))
            return false;
    }
    return true;
}

static bool run_while(machine *m, const crowd *active)
{
    const tn_lop *op = m->op;
    crowd inside;
    inside.n = active->n;
    memcpy(inside.thread, active->thread, (size_t)active->n * sizeof *active->thread);
    for (;;) {
        if (!run_block(m, op->region[0], &inside))
            return false;
        choose(m, op->region[0]->last->operand[0], true, &inside, &inside);
        if (!inside.n)
            return true;
        if (!run_block(m, op->region[1], &inside))
            return false;
    }
}

/* ---- blocks at once ---- */

/* One block of roles, or an instance of it, run by an operating system's thread of its own, though never two at once: whose turn it is runs, until it can't go on. */
typedef struct role {
    machine m;
    const tn_lblock *block;
    crowd all;
    struct stage *stage;
    int number, instances; /* among all; of its block */
    bool ended;
    pthread_t worker;
    jmp_buf no_memory; /* where an allocation of this thread's leaves to */
    bool out_of_memory;
} role;

enum { MOST_ROLES = TN_MOST_INSTANCES + 1 };
typedef struct stage {
    pthread_mutex_t mutex;
    pthread_cond_t passed;
    int turn, roles;   /* instances of the first block by number, then the second block */
    int running, idle; /* roles that have not ended; turns of theirs, one after another, in which nobody went on */
    tn_status failed;  /* of the role that failed first */
    jmp_buf *on_oom;   /* who is told in the end; NULL: the process ends */
    role role[MOST_ROLES];
} stage;

static int role_of(const machine *m) { return m->role ? m->role->number : 0; }

static int instance_of(const machine *m, int *instances)
{
    *instances = m->role ? m->role->instances : 1;
    return *instances > 1 ? m->role->number : 0;
}

static void has_met(void *context)
{
    machine *m = context;
    tn_races_barrier(m->races);
    if (m->role)
        m->role->stage->idle = 0;
}

static void take_turn(role *r)
{
    stage *s = r->stage;
    pthread_mutex_lock(&s->mutex);
    while (s->turn != r->number)
        pthread_cond_wait(&s->passed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    if (s->on_oom)
        r->m.arena->on_oom = r->m.func->session->arena.on_oom = &r->no_memory;
}

/* To the next role that has not ended. */
static void pass_turn(role *r)
{
    stage *s = r->stage;
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < s->roles && (i == 0 || s->role[s->turn].ended); i++)
        s->turn = (s->turn + 1) % s->roles;
    pthread_cond_broadcast(&s->passed);
    pthread_mutex_unlock(&s->mutex);
}

static tn_lturn yield_turn(void *context)
{
    machine *m = context;
    role *r = m->role;
    if (!r || ++r->stage->idle >= r->stage->running)
        return TN_TURN_NOBODY;
    pass_turn(r);
    take_turn(r);
    m->status = r->stage->failed;
    return m->status ? TN_TURN_FAILED : TN_TURN_BACK;
}

static void *run_role(void *context)
{
    role *r = context;
    stage *s = r->stage;
    take_turn(r);
    s->idle = 0;
    if (s->on_oom && setjmp(r->no_memory)) {
        r->out_of_memory = true;
        r->m.status = TN_NO_MEMORY;
    } else if (!s->failed) {
        run_block(&r->m, r->block, &r->all);
    }
    s->failed = s->failed ? s->failed : r->m.status;
    r->ended = true;
    s->running--;
    s->idle = 0;
    pass_turn(r);
    return NULL;
}

static void set_role(machine *m, stage *s, int number)
{
    role *r = &s->role[number];
    const tn_lop *op = m->op;
    int second = (int)op->number.i, each = second / op->instances, is_second = number == op->instances;
    int first = is_second ? second : number * each, end = is_second ? m->threads : first + each;
    *r = (role){.m = *m, .block = op->region[is_second], .stage = s, .number = number, .instances = is_second ? 1 : op->instances};
    r->all.n = r->m.together = end - first;
    r->m.role = r;
    for (int t = first; t < end; t++)
        r->all.thread[t - first] = (uint16_t)t;
}

/* The second block begins; the first one's first instance needs no thread of its own. */
static bool run_roles(machine *m)
{
    stage *s = TN_NEW(m->arena, stage);
    int instances = m->op->instances, started = 1;
    *s = (stage){.mutex = PTHREAD_MUTEX_INITIALIZER, .passed = PTHREAD_COND_INITIALIZER, .turn = instances, .roles = instances + 1, .running = instances + 1};
    s->on_oom = m->arena->on_oom;
    for (int i = 0; i < s->roles; i++)
        set_role(m, s, i);
    while (started < s->roles && !pthread_create(&s->role[started].worker, NULL, run_role, &s->role[started]))
        started++;
    if (started <= instances) { /* the second block, which comes last, was not: those that were started end in their turn */
        STOP(m, TN_NO_MEMORY, "no thread for one of its blocks");
        pthread_mutex_lock(&s->mutex);
        s->failed = m->status;
        s->roles = started;
        s->turn = 0;
        pthread_mutex_unlock(&s->mutex);
    }
    run_role(&s->role[0]);
    for (int i = 1; i < started; i++)
        pthread_join(s->role[i].worker, NULL);
    m->arena->on_oom = m->func->session->arena.on_oom = s->on_oom;
    m->status = s->failed;
    for (int i = 0; i < started; i++)
        if (s->role[i].out_of_memory)
            longjmp(*s->on_oom, 1);
    tn_races_barrier(m->races);
    return m->status == TN_OK;
}

static bool has_roles(const tn_lblock *block)
{
    for (const tn_lop *op = block->first; op; op = op->next)
        if (op->code == TN_L_roles)
            return true;
    return false;
}

/* ---- one operation ---- */

static bool run_op(machine *m)
{
    const tn_lop *op = m->op;
    tn_number *out = op->result && !op->result->type.buffer ? result_lanes(m, op->result) : NULL;
    int lanes = op->result ? op->result->type.lanes : 0;
    switch (op->code) {
    case TN_L_const:
        for (int l = 0; l < lanes; l++)
            out[l] = op->number;
        return true;
    case TN_L_fn:
        run_fn(m, out);
        return true;
    case TN_L_cast:
        for (int l = 0; l < lanes; l++)
            out[l] =
                tn_number_convert(lanes_of(m, op->operand[0])[l], op->operand[0]->type.dtype, op->result->type.dtype);
        return true;
    case TN_L_bitcast:
        run_bitcast(m, out);
        return true;
    case TN_L_splat:
        for (int l = 0; l < lanes; l++)
            out[l] = *lanes_of(m, op->operand[0]);
        return true;
    case TN_L_iota:
        for (int l = 0; l < lanes; l++)
            out[l] = tn_number_from_int(op->result->type.dtype, l);
        return true;
    case TN_L_extract:
    case TN_L_insert:
        return run_lane_op(m, out);
    case TN_L_shuffle:
        run_shuffle(m, out);
        return true;
    case TN_L_hreduce:
        run_hreduce(m, out);
        return true;
    case TN_L_alloc:
        return run_alloc(m);
    case TN_L_load:
    case TN_L_gather:
    case TN_L_atomic_load:
        return run_load(m, out);
    case TN_L_store:
    case TN_L_scatter:
        return run_store(m);
    case TN_L_atomic:
    case TN_L_cas:
        return run_atomic(m, out);
    case TN_L_thread:
        out->i = m->thread % m->cta_threads;
        return true;
    case TN_L_cta:
        out->i = m->thread / m->cta_threads;
        return true;
    case TN_L_address:
        run_address(m, out);
        return true;
    case TN_L_print:
        run_print(m);
        return true;
    case TN_L_trap:
        return lanes_of(m, op->operand[0])->u ||
               STOP(m, TN_INVALID, "the condition of line %lld does not hold", (long long)op->number.i);
    case TN_L_asm:
        return STOP(m, TN_UNSUPPORTED, "instructions of a machine have no meaning here");
    case TN_L_intrinsic:
        return run_intrinsic(m, out) || STOP(m, TN_UNSUPPORTED, "@%s has no meaning here; interpret its expansion", op->name);
    default: /* memory; prefetch; yield, which its while reads */
        return true;
    }
}

static bool run_for_all(machine *m, const crowd *active)
{
    switch (m->op->code) {
    case TN_L_for:
        return run_for(m, active);
    case TN_L_if:
        return run_if(m, active);
    case TN_L_while:
        return run_while(m, active);
    case TN_L_roles:
        return run_roles(m);
    case TN_L_barrier:
        return run_barrier(m, active);
    case TN_L_lane_xor:
    case TN_L_lane_at:
        return run_warp_op(m, active);
    case TN_L_machine:
        return run_machine(m, active);
    default:
        break;
    }
    for (int k = 0; k < active->n; k++) {
        m->thread = active->thread[k];
        if (!run_op(m))
            return false;
    }
    return true;
}

static bool run_block(machine *m, const tn_lblock *block, const crowd *active)
{
    for (const tn_lop *op = block->first; op; op = op->next) {
        m->op = op;
        m->steps += (uint64_t)active->n;
        if (m->steps > max_steps)
            return STOP(m, TN_UNSUPPORTED, "more than %llu operations", (unsigned long long)max_steps);
        if (!run_for_all(m, active))
            return false;
    }
    return true;
}

static void bind_parameter(machine *m, size_t i, const tn_loop_arg *buffers, const int64_t *indices)
{
    const tn_lvalue *param = m->func->params.at[i];
    if (param->type.buffer) {
        place *p = m->cells[param->id].places = TN_NEW(m->arena, place);
        *p = (place){.data = buffers[i].data, .elements = buffers[i].elements};
        return;
    }
    for (m->thread = 0; m->thread < m->threads; m->thread++)
        result_lanes(m, param)->i = indices[i - (size_t)m->func->nbuffers];
}

tn_status tn_loop_interpret(const tn_lfunc *func, const tn_loop_arg *buffers, const int64_t *indices)
{
    tn_arena arena = {.on_oom = func->session->arena.on_oom};
    tn_races races;
    tn_lboxes boxes;
    int threads = tn_max(func->threads, 1), ctas = tn_max(func->cluster, 1);
    machine m = {.func = func, .arena = &arena, .threads = threads * ctas, .cta_threads = threads, .together = threads, .races = &races, .boxes = &boxes, .op = func->body->first};
    m.one_cta = func->persistent || has_roles(func->body);
    m.cells = TN_NEW_ARRAY(&arena, cell, func->next_id);
    enum { APART = 1024 /* boxes lie at multiples of it */ };
    m.shared_bytes = ((size_t)tn_loop_shared_bytes(func) + APART - 1) / APART * APART;
    size_t bytes = m.shared_bytes * (size_t)ctas;
    m.shared = tn_alloc(&arena, bytes + 1);
    tn_races_begin(&races, &arena, bytes, func->cluster ? threads : 0);
    m.copies = TN_NEW_ARRAY(&arena, tn_lcopies, (size_t)m.threads);
    const char *fault = tn_lboxes_begin(&boxes, &arena, func, m.shared, indices);
    for (size_t i = 0; i < func->params.len; i++)
        bind_parameter(&m, i, buffers, indices);
    crowd all = {.n = m.threads};
    for (int t = 0; t < m.threads; t++)
        all.thread[t] = (uint16_t)t;
    begin_cta(&m);
    if (fault)
        m.status = tn_error(func->session, TN_INVALID, TN_NO_LOC, "kernel @%s: %s", func->name, fault);
    else if (run_block(&m, func->body, &all))
        end_cta(&m);
    tn_arena_free(&arena);
    return m.status;
}
