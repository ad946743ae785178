/* Launches of users' kernels. A launcher is not changed by a launch but for what many launches may share: the last estimate, and scratch memory that
 * nobody uses. A launch that needs no scratch takes no lock. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

/* Below this much work a second thread costs more than it brings. */
static const double share_ns = 6000;

/* ---- pools ---------------------------------------------------------------------------------------------------------------- */

typedef struct pool_entry {
    struct pool_entry *next;
    int wanted;
    tn_pool *pool;
} pool_entry;

struct tn_pools {
    pthread_mutex_t lock;
    pool_entry *first;
    int cpus;
};

tn_pools *tn_pools_new(void)
{
    tn_pools *pools = calloc(1, sizeof *pools);
    if (!pools)
        return NULL;
    pthread_mutex_init(&pools->lock, NULL);
    pools->cpus = tn_cpu_count();
    return pools;
}

void tn_pools_free(tn_pools *pools)
{
    if (!pools)
        return;
    for (pool_entry *e = pools->first, *next; e; e = next) {
        next = e->next;
        tn_pool_free(e->pool);
        free(e);
    }
    pthread_mutex_destroy(&pools->lock);
    free(pools);
}

int tn_pools_cpus(const tn_pools *pools) { return pools->cpus; }

/* NULL: no memory. */
static tn_pool *pool_of(tn_pools *pools, int threads)
{
    pthread_mutex_lock(&pools->lock);
    pool_entry *e = pools->first;
    while (e && e->wanted != threads)
        e = e->next;
    if (!e && (e = calloc(1, sizeof *e)) && !(e->pool = tn_pool_new(threads))) {
        free(e);
        e = NULL;
    } else if (e && !e->wanted) {
        e->wanted = threads;
        e->next = pools->first;
        pools->first = e;
    }
    pthread_mutex_unlock(&pools->lock);
    return e ? e->pool : NULL;
}

/* ---- launchers -------------------------------------------------------------------------------------------------------------- */

/* Memory for the workers of one launch: of `bytes` each, NULL where none was needed yet. */
typedef struct scratch_set {
    struct scratch_set *next;
    int64_t bytes;
    void *at[];
} scratch_set;

enum { MOST_FEW = 32 };

struct tn_launcher {
    tn_launch_map map;
    const tn_code *code;
    const tn_kernel *kernel;
    tn_pools *pools;
    int threads;
    _Atomic(tn_pool *) pool;
    _Atomic uint64_t work; /* the last estimate: of which numbers (their hash) in the upper half, nanoseconds as a float in the lower */
    _Atomic int64_t most_scratch;
    pthread_mutex_t lock;
    scratch_set *unused;
};

/* A number that is always 1 is no parameter of the code, though its name may be one. */
static int find_value(const tn_launch_map *m, const char *name, bool pointer)
{
    for (size_t i = 0; i < m->nvalues; i++)
        if (!m->value[i].one && m->value[i].pointer == pointer && !strcmp(m->value[i].name, name))
            return (int)i;
    return -1;
}

static const char *const grid_names[GRID_AXES] = {"grid_x", "grid_y", "grid_z"};

static bool find_size(const tn_launch_map *m, const char *name, int *out)
{
    *out = find_value(m, name, false);
    for (int axis = 0; *out < 0 && axis < GRID_AXES; axis++)
        if (!strcmp(grid_names[axis], name)) {
            *out = ~axis;
            return true;
        }
    return *out >= 0;
}

static tn_status connect(tn_session *session, tn_launch_map *m)
{
    for (int i = 0; i < m->code->nbuffers; i++)
        if ((m->buffer[i] = find_value(m, m->code->buffer[i], true)) < 0)
            return tn_error(session, TN_INVALID, TN_NO_LOC, "kernel @%s: no pointer is called %s", m->code->symbol, m->code->buffer[i]);
    for (int i = 0; i < m->code->nsizes; i++)
        if (!find_size(m, m->code->size[i], &m->size[i]))
            return tn_error(session, TN_INVALID, TN_NO_LOC, "kernel @%s: no number is called %s", m->code->symbol, m->code->size[i]);
    for (size_t i = 0; i < m->nvalues; i++)
        if (m->value[i].divisor > 1 || m->value[i].one || (!m->value[i].pointer && tn_dtype_bits(m->value[i].dtype) < 64))
            m->promise[m->npromises++] = i;
    return TN_OK;
}

tn_status tn_launch_map_new(tn_session *session, const tn_code *code, const tn_launch_value *values, size_t nvalues, tn_launch_map *out)
{
    tn_arena *arena = &session->arena;
    *out = (tn_launch_map){.code = code, .nvalues = nvalues};
    out->value = TN_NEW_ARRAY(arena, tn_launch_value, nvalues + 1);
    if (nvalues)
        memcpy(out->value, values, sizeof *values * nvalues);
    out->buffer = TN_NEW_ARRAY(arena, int, (size_t)code->nbuffers + 1);
    out->size = TN_NEW_ARRAY(arena, int, (size_t)code->nsizes + 1);
    out->promise = TN_NEW_ARRAY(arena, size_t, nvalues + 1);
    return connect(session, out);
}

tn_status tn_launcher_new(tn_session *session, const tn_code *code, const tn_kernel *kernel, tn_pools *pools, int threads, const tn_launch_value *values, size_t nvalues,
                          tn_launcher **out)
{
    tn_arena *arena = &session->arena;
    tn_launcher *l = TN_NEW(arena, tn_launcher);
    *l = (tn_launcher){.code = code, .kernel = kernel, .pools = pools, .threads = threads};
    TN_TRY(tn_launch_map_new(session, code, values, nvalues, &l->map));
    l->most_scratch = tn_max(code->scratch, 0);
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return TN_OK;
}

static void free_set(const tn_launcher *l, scratch_set *set)
{
    for (int w = 0; w < l->threads; w++)
        free(set->at[w]);
    free(set);
}

void tn_launcher_free(tn_launcher *l)
{
    if (!l)
        return;
    for (scratch_set *set = l->unused, *next; set; set = next) {
        next = set->next;
        free_set(l, set);
    }
    pthread_mutex_destroy(&l->lock);
}

int64_t tn_launcher_scratch(const tn_launcher *l) { return atomic_load_explicit(&l->most_scratch, memory_order_relaxed); }

/* ---- what a launch brings ------------------------------------------------------------------------------------------------------ */

int64_t tn_launch_bits(tn_dtype dtype, tn_kernel_value value)
{
    union {
        float f;
        uint32_t bits;
    } narrow;
    int64_t bits[2] = {0, 0};
    switch (dtype) {
    case TN_F64:
    case TN_I64:
    case TN_U64: return value.integer;
    case TN_I32: return (int32_t)value.integer;
    case TN_U32: return (uint32_t)value.integer;
    case TN_BOOL: return value.integer != 0;
    case TN_F32:
        narrow.f = (float)value.real;
        return narrow.bits;
    default: break;
    }
    if (tn_is_float(dtype)) {
        tn_number_store(dtype, bits, 0, (tn_number){.f = value.real});
        return bits[0];
    }
    tn_number_store(dtype, bits, 0, (tn_number){.i = value.integer});
    return tn_number_load(dtype, bits, 0).i;
}

tn_status tn_launch_refuse(char *error, size_t size, tn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, size, format, args);
    va_end(args);
    return status;
}

static tn_status broken_promise(const tn_launch_value *v, tn_kernel_value value, char *error, size_t size)
{
    if (v->pointer)
        return tn_launch_refuse(error, size, TN_USAGE, "%s: the kernel was compiled for an address that %lld divides, found %p", v->name, (long long)v->divisor, value.pointer);
    if (v->one)
        return tn_launch_refuse(error, size, TN_USAGE, "%s: the kernel was compiled for 1, found %lld", v->name, (long long)value.integer);
    if (tn_is_integer(v->dtype) && tn_launch_bits(v->dtype, value) != value.integer)
        return tn_launch_refuse(error, size, TN_USAGE, "%s: %lld does not fit %s", v->name, (long long)value.integer, tn_dtype_text(v->dtype));
    return tn_launch_refuse(error, size, TN_USAGE, "%s: the kernel was compiled for a number that %lld divides, found %lld", v->name, (long long)v->divisor, (long long)value.integer);
}

static bool keeps(const tn_launch_value *v, tn_kernel_value value)
{
    if (v->pointer)
        return v->divisor <= 1 || (uintptr_t)value.pointer % (uintptr_t)v->divisor == 0;
    if (tn_is_float(v->dtype) || v->dtype == TN_BOOL)
        return true;
    return tn_launch_bits(v->dtype, value) == value.integer && (!v->one || value.integer == 1) && (v->divisor <= 1 || value.integer % v->divisor == 0);
}

static tn_status check_grid(const int64_t grid[3], char *error, size_t size)
{
    int64_t programs;
    for (int axis = 0; axis < GRID_AXES; axis++)
        if (grid[axis] < 0)
            return tn_launch_refuse(error, size, TN_USAGE, "the grid's size %d is %lld; sizes are not negative", axis, (long long)grid[axis]);
    if (!tn_mul(grid[0], grid[1], &programs) || !tn_mul(programs, grid[2], &programs))
        return tn_launch_refuse(error, size, TN_USAGE, "the grid %lld x %lld x %lld has too many programs", (long long)grid[0], (long long)grid[1], (long long)grid[2]);
    return TN_OK;
}

tn_status tn_launch_check(const tn_launch_value *described, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t error_size)
{
    for (size_t i = 0; i < nvalues; i++)
        if (!keeps(&described[i], values[i]))
            return broken_promise(&described[i], values[i], error, error_size);
    return check_grid(grid, error, error_size);
}

/* ---- how many threads ------------------------------------------------------------------------------------------------------------- */

typedef struct launch {
    const tn_launcher *l;
    const int64_t *grid;
    const tn_kernel_value *values;
    void *const *buffers;
    const int64_t *sizes;
    int64_t programs;
    scratch_set *scratch; /* NULL: none is needed */
} launch;

static bool bits_by_name(void *context, const char *name, int64_t *out)
{
    const launch *c = context;
    int i;
    if (!find_size(&c->l->map, name, &i))
        return false;
    *out = i < 0 ? c->grid[~i] : tn_launch_bits(c->l->map.value[i].dtype, c->values[i]);
    return true;
}

/* Walking a kernel takes longer than a small launch, so the last estimate is kept with a mark of the numbers that it is for. */
static double work_of(launch *c)
{
    tn_launcher *l = (tn_launcher *)(uintptr_t)c->l;
    uint64_t mark = tn_hash(c->grid, sizeof *c->grid * GRID_AXES, 0);
    for (size_t i = 0; i < l->map.nvalues; i++)
        if (!l->map.value[i].pointer)
            mark = tn_hash_u64(mark ^ (uint64_t)c->values[i].integer);
    mark = (mark >> 32) | 1; /* never the 0 of no estimate */
    uint64_t known = atomic_load_explicit(&l->work, memory_order_relaxed);
    uint32_t bits = (uint32_t)known;
    float ns;
    if (known >> 32 == mark) {
        memcpy(&ns, &bits, sizeof ns);
        return ns;
    }
    ns = (float)tn_user_kernel_work(l->kernel, bits_by_name, c);
    memcpy(&bits, &ns, sizeof bits);
    atomic_store_explicit(&l->work, mark << 32 | bits, memory_order_relaxed);
    return ns;
}

/* Threads worth waking; *pool stays NULL if it is one. */
static int choose_threads(launch *c, tn_pool **pool)
{
    tn_launcher *l = (tn_launcher *)(uintptr_t)c->l;
    if (l->threads < 2 || c->programs < 2)
        return 1;
    double wanted = work_of(c) / share_ns;
    if (wanted < 2)
        return 1;
    *pool = atomic_load_explicit(&l->pool, memory_order_acquire);
    if (!*pool) {
        *pool = pool_of(l->pools, l->threads);
        atomic_store_explicit(&l->pool, *pool, memory_order_release);
    }
    return !*pool ? 1 : (int)tn_min(c->programs, wanted < tn_pool_threads(*pool) ? (int64_t)wanted : tn_pool_threads(*pool));
}

/* ---- scratch ------------------------------------------------------------------------------------------------------------------------ */

static scratch_set *take_set(tn_launcher *l)
{
    pthread_mutex_lock(&l->lock);
    scratch_set *set = l->unused;
    if (set)
        l->unused = set->next;
    pthread_mutex_unlock(&l->lock);
    return set ? set : calloc(1, sizeof *set + sizeof *set->at * (size_t)l->threads);
}

static void give_set(tn_launcher *l, scratch_set *set)
{
    pthread_mutex_lock(&l->lock);
    set->next = l->unused;
    l->unused = set;
    pthread_mutex_unlock(&l->lock);
}

static void note_most(tn_launcher *l, int64_t bytes)
{
    int64_t most = atomic_load_explicit(&l->most_scratch, memory_order_relaxed);
    while (bytes > most && !atomic_compare_exchange_weak(&l->most_scratch, &most, bytes))
        ;
}

static bool fill_set(const tn_launcher *l, scratch_set *set, int64_t bytes, int threads)
{
    if (bytes > set->bytes) {
        for (int w = 0; w < l->threads; w++) {
            free(set->at[w]);
            set->at[w] = NULL;
        }
        set->bytes = bytes;
    }
    for (int w = 0; w < threads; w++)
        if (!set->at[w] && !(set->at[w] = tn_alloc_tensor((size_t)set->bytes)))
            return false;
    return true;
}

static tn_status find_scratch(launch *c, int threads, char *error, size_t size)
{
    tn_launcher *l = (tn_launcher *)(uintptr_t)c->l;
    int64_t bytes = l->code->scratch;
    if (bytes < 0 && !tn_kernel_scratch(l->code->loop, c->sizes, &bytes))
        return tn_launch_refuse(error, size, TN_NO_MEMORY, "kernel %s: its scratch memory overflows for these sizes", l->code->symbol);
    if (bytes == 0)
        return TN_OK;
    note_most(l, bytes);
    c->scratch = take_set(l);
    if (!c->scratch || !fill_set(l, c->scratch, bytes, threads))
        return tn_launch_refuse(error, size, TN_NO_MEMORY, "kernel %s: no memory for %lld bytes of scratch", l->code->symbol, (long long)bytes);
    return TN_OK;
}

/* ---- the launch ----------------------------------------------------------------------------------------------------------------------- */

static void run_part(void *context, int64_t begin, int64_t end, int worker)
{
    const launch *c = context;
    c->l->code->fn(c->buffers, c->sizes, begin, end, c->scratch ? c->scratch->at[worker] : NULL);
}

tn_status tn_launch_failed_assertion(const tn_code *code, const tn_kernel *kernel, int64_t number, char *error, size_t size)
{
    const tn_top *op = tn_code_assertion(kernel, number);
    tn_loc loc = op ? op->loc : TN_NO_LOC;
    return tn_launch_refuse(error, size, TN_INVALID, "%s:%d: device_assert failed%s%s", loc.file ? loc.file : code->symbol, loc.line, op && op->text && *op->text ? ": " : "",
                            op && op->text ? op->text : "");
}

static tn_status run_all(launch *c, int threads, tn_pool *pool, char *error, size_t size)
{
    TN_TRY(find_scratch(c, threads, error, size));
    for (int w = 0; c->l->code->traps && w < threads; w++)
        *(int64_t *)c->scratch->at[w] = 0;
    if (threads == 1)
        run_part(c, 0, c->programs, 0);
    else
        threads = tn_pool_run(pool, c->programs, threads, run_part, c);
    for (int w = 0; c->l->code->traps && w < threads; w++)
        if (*(int64_t *)c->scratch->at[w])
            return tn_launch_failed_assertion(c->l->code, c->l->kernel, *(int64_t *)c->scratch->at[w], error, size);
    return TN_OK;
}

static void bind(launch *c, void **buffers, int64_t *sizes)
{
    const tn_launcher *l = c->l;
    for (int i = 0; i < l->code->nbuffers; i++)
        buffers[i] = c->values[l->map.buffer[i]].pointer;
    for (int i = 0; i < l->code->nsizes; i++)
        sizes[i] = tn_launch_map_size(&l->map, i, c->grid, c->values);
    c->buffers = buffers;
    c->sizes = sizes;
}

tn_status tn_launch_map_check(const tn_launch_map *m, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t size)
{
    if (nvalues != m->nvalues)
        return tn_launch_refuse(error, size, TN_USAGE, "kernel %s takes %zu values, found %zu", m->code->symbol, m->nvalues, nvalues);
    for (size_t i = 0; i < m->npromises; i++)
        if (!keeps(&m->value[m->promise[i]], values[m->promise[i]]))
            return broken_promise(&m->value[m->promise[i]], values[m->promise[i]], error, size);
    return check_grid(grid, error, size);
}

int64_t tn_launch_map_size(const tn_launch_map *m, int i, const int64_t grid[3], const tn_kernel_value *values)
{
    int from = m->size[i];
    return from < 0 ? grid[~from] : tn_launch_bits(m->value[from].dtype, values[from]);
}

tn_status tn_launcher_run(const tn_launcher *l, const int64_t grid[3], const tn_kernel_value *values, size_t nvalues, char *error, size_t error_size)
{
    void *few_buffers[MOST_FEW], **buffers = few_buffers, *many = NULL;
    int64_t few_sizes[MOST_FEW], *sizes = few_sizes;
    size_t nbuffers = (size_t)l->code->nbuffers, nsizes = (size_t)l->code->nsizes;
    tn_pool *pool = NULL;
    TN_TRY(tn_launch_map_check(&l->map, grid, values, nvalues, error, error_size));
    launch c = {.l = l, .grid = grid, .values = values, .programs = grid[0] * grid[1] * grid[2]};
    if (c.programs == 0)
        return TN_OK;
    if (nbuffers > MOST_FEW || nsizes > MOST_FEW) {
        many = malloc(sizeof *buffers * nbuffers + sizeof *sizes * nsizes);
        if (!many)
            return tn_launch_refuse(error, error_size, TN_NO_MEMORY, "kernel %s: no memory for its arguments", l->code->symbol);
        buffers = many;
        sizes = (int64_t *)(buffers + nbuffers);
    }
    bind(&c, buffers, sizes);
    int threads = choose_threads(&c, &pool);
    tn_status status = run_all(&c, threads, pool, error, error_size);
    if (c.scratch)
        give_set((tn_launcher *)(uintptr_t)l, c.scratch);
    free(many);
    return status;
}
