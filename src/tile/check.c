/* The checked mode: runs a kernel by the interpreter and watches what its programs touch.
 *
 * Memory is watched in granules: the smallest element that the kernel accesses, bytes if it casts pointers. Each granule remembers who wrote it last, and the
 * last two programs that read it, and that changed it by atomics. Programs run one after another, so an access finds those of earlier programs there. It is a race if
 * one of the two writes without an atomic and nothing orders them. What orders them is an atomic on one element (a lock, a counter): a release there
 * leaves the programs that it knows of, an acquire takes them over. A program that is known counts with all that it did, also with what it did after its
 * release: a race with that is missed. Buffers that share memory share granules. Of buffers without a known size only pointers to no memory are told. */
#include "tile/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SHADOW ((size_t)4 << 30)   /* bytes for what granules remember */
#define MAX_SETS ((size_t)512 << 20)   /* bytes for what releases leave */
enum { MAX_SEARCH = 64 };              /* values that are searched for where absent lanes come from */

typedef struct granule {
    uint32_t writer, reader[2], atomic[2]; /* program number + 1; 0: none */
} granule;

/* Memory of buffers that overlap, or of one. */
typedef struct stretch {
    uintptr_t start, end;
    granule *granules;
} stretch;

/* Programs, as intervals [from, to) in ascending order that do not touch. */
typedef struct interval {
    uint32_t from, to;
} interval;
typedef struct program_set {
    interval *at;
    size_t n, cap;
} program_set;

struct tn_checker {
    const tn_kernel *kernel;
    tn_session *session;
    const tn_tile_check_options *options;
    tn_arena arena;
    int64_t *programs; /* of each coordinate */
    uint32_t program;  /* + 1 */
    size_t unit;       /* bytes of a granule */
    stretch *stretches;
    size_t nstretches;
    int *stretch_of;   /* by buffer; -1: not watched */
    bool *fresh;       /* by buffer */
    const tn_tile_arg *buffers; /* the interpreter's */
    program_set known; /* programs whose work the running one may rely on */
    tn_map released;   /* address -> program_set */
    size_t set_bytes;
    tn_map told_op, told_line; /* what was said already, of operations and of "file:line: what" */
    tn_status status;
};

/* ---- reports --------------------------------------------------------------------------------------------------------- */

static const char *program_text(const tn_checker *c, tn_arena *arena, int64_t number)
{
    tn_text text = {.arena = arena};
    size_t n = c->kernel->grid.len;
    for (size_t i = 0; i < n || i < 3; i++) {
        int64_t programs = i < n ? c->programs[n - 1 - i] : 1;
        tn_text_add(&text, "%s%lld", i ? ", " : "(", (long long)(number % programs));
        number /= programs;
    }
    tn_text_add(&text, ")");
    return text.at;
}

const char *tn_check_program_text(const tn_checker *c, tn_arena *arena) { return program_text(c, arena, (int64_t)c->program - 1); }

/* Was this said of the operation's line before? `what` is a literal. */
static bool told(tn_checker *c, const tn_top *op, const char *what)
{
    const uint64_t pair[2] = {TN_KEY(op), TN_KEY(what)};
    void **cell = tn_map_at(&c->told_op, tn_hash(pair, sizeof pair, 0));
    if (*cell)
        return true;
    *cell = c;
    if (!op->loc.line)
        return false;
    cell = tn_map_at_str(&c->told_line, tn_format(&c->arena, "%s:%d: %s", op->loc.file ? op->loc.file : "", op->loc.line, what));
    bool was = *cell != NULL;
    *cell = c;
    return was;
}

/* Operations by the names that their authors know. */
const char *tn_check_name(const tn_top *op)
{
    switch (op->code) {
    case TN_T_load_ptr:
    case TN_T_atomic_load:
        return "load";
    case TN_T_store_ptr:
        return "store";
    case TN_T_atomic_ptr:
        return "atomic";
    case TN_T_cas_ptr:
        return "atomic_cas";
    case TN_T_map:
        return tn_scalar_name(op->fn);
    default:
        return tn_top_name(op->code);
    }
}

static void report(tn_checker *c, const tn_top *op, const char *message)
{
    tn_error(c->session, TN_INVALID, op->loc, "kernel @%s, program %s: %s: %s", c->kernel->name, tn_check_program_text(c, &c->arena), tn_check_name(op), message);
    c->status = TN_INVALID;
}

static bool no_memory(tn_checker *c, const char *message)
{
    c->status = tn_error(c->session, TN_NO_MEMORY, TN_NO_LOC, "kernel @%s: the checked mode has no memory for %s", c->kernel->name, message);
    return false;
}

/* ---- sets of programs ------------------------------------------------------------------------------------------------ */

static bool set_has(const program_set *set, uint32_t program)
{
    size_t lo = 0, hi = set->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (set->at[middle].to <= program)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < set->n && set->at[lo].from <= program;
}

static bool set_reserve(tn_checker *c, program_set *set, size_t n)
{
    if (n <= set->cap)
        return true;
    size_t cap = n + n / 2, more = (cap - set->cap) * sizeof *set->at;
    interval *at = c->set_bytes + more <= MAX_SETS ? realloc(set->at, cap * sizeof *at) : NULL;
    if (!at)
        return no_memory(c, "what its atomics order");
    c->set_bytes += more;
    set->at = at;
    set->cap = cap;
    return true;
}

/* to := to and from. */
static bool set_unite(tn_checker *c, program_set *to, const interval *from, size_t n)
{
    size_t old = to->n, i = 0, j = 0, made = 0;
    if (n == 1 && from->to - from->from == 1 && set_has(to, from->from))
        return true;
    if (!set_reserve(c, to, old + n))
        return false;
    interval *was = malloc(sizeof *was * (old ? old : 1));
    if (!was)
        return no_memory(c, "what its atomics order");
    if (old)
        memcpy(was, to->at, sizeof *was * old);
    while (i < old || j < n) {
        interval next = j == n || (i < old && was[i].from <= from[j].from) ? was[i++] : from[j++];
        if (made && next.from <= to->at[made - 1].to)
            to->at[made - 1].to = next.to > to->at[made - 1].to ? next.to : to->at[made - 1].to;
        else
            to->at[made++] = next;
    }
    free(was);
    to->n = made;
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void note_cast(void *context, tn_top *op)
{
    if (op->code == TN_T_bitcast && (op->operand[0]->type.pointer || op->result->type.pointer))
        *(bool *)context = true;
}

static size_t granule_bytes(const tn_kernel *kernel)
{
    bool casts = false;
    size_t least = 16;
    tn_tile_walk(kernel->body, note_cast, &casts);
    for (size_t i = 0; i < kernel->buffers.len; i++) {
        size_t bytes = (size_t)tn_dtype_bits(kernel->buffers.at[i].dtype) / 8;
        least = bytes < least ? bytes : least;
    }
    return casts || least == 0 ? 1 : least;
}

static int by_start(const void *a, const void *b)
{
    const stretch *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Buffers of known size as stretches of memory, those that overlap as one. */
static void find_stretches(tn_checker *c, const tn_tile_arg *buffers)
{
    size_t n = c->kernel->buffers.len, made = 0;
    stretch *all = TN_NEW_ARRAY(&c->arena, stretch, n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const tn_tbuffer *t = &c->kernel->buffers.at[i];
        if (t->mode != TN_LOCAL && buffers[i].data && tn_dtype_bytes(t->dtype, buffers[i].elements, &bytes) && bytes)
            all[made++] = (stretch){(uintptr_t)buffers[i].data, (uintptr_t)buffers[i].data + bytes, NULL};
    }
    qsort(all, made, sizeof *all, by_start);
    for (size_t i = 0; i < made; i++) {
        stretch *last = c->nstretches ? &all[c->nstretches - 1] : NULL;
        if (last && all[i].start < last->end)
            last->end = all[i].end > last->end ? all[i].end : last->end;
        else
            all[c->nstretches++] = all[i];
    }
    c->stretches = all;
    for (size_t i = 0; i < n; i++) {
        uintptr_t start = (uintptr_t)buffers[i].data;
        c->stretch_of[i] = -1;
        for (size_t s = 0; s < c->nstretches && c->kernel->buffers.at[i].mode != TN_LOCAL && buffers[i].elements > 0; s++)
            if (start >= all[s].start && start < all[s].end)
                c->stretch_of[i] = (int)s;
    }
}

bool tn_check_begin(tn_checker *c, const tn_tile_arg *buffers, const int64_t *programs)
{
    size_t n = c->kernel->buffers.len, total = 0;
    c->programs = tn_memdup(&c->arena, programs, sizeof *programs * (c->kernel->grid.len + 1));
    c->unit = granule_bytes(c->kernel);
    c->buffers = buffers;
    c->stretch_of = TN_NEW_ARRAY(&c->arena, int, n + 1);
    c->fresh = TN_NEW_ARRAY(&c->arena, bool, n + 1);
    for (size_t i = 0, parameter = 0; i < n; i++)
        if (c->kernel->buffers.at[i].mode != TN_LOCAL)
            c->fresh[i] = c->options->fresh && c->options->fresh[parameter++];
    find_stretches(c, buffers);
    for (size_t s = 0; s < c->nstretches; s++) {
        stretch *t = &c->stretches[s];
        size_t granules = (t->end - t->start - 1) / c->unit + 1;
        bool fits = granules <= (MAX_SHADOW - total) / sizeof *t->granules;
        t->granules = fits ? calloc(granules, sizeof *t->granules) : NULL;
        if (!t->granules)
            return no_memory(c, tn_format(&c->arena, "buffers of %zu bytes, which it watches in units of %zu", (size_t)(t->end - t->start), c->unit));
        total += granules * sizeof *t->granules;
    }
    return true;
}

void tn_check_program(tn_checker *c, int64_t number)
{
    c->program = (uint32_t)number + 1;
    c->known.n = 0;
}

/* ---- accesses -------------------------------------------------------------------------------------------------------- */

/* A program (+ 1) other than the running one that nothing orders before it. */
static bool unordered(const tn_checker *c, uint32_t program) { return program && program != c->program && !set_has(&c->known, program); }

static void remember(uint32_t last[2], uint32_t program)
{
    if (last[0] == program)
        return;
    last[1] = last[0];
    last[0] = program;
}

/* The program whose access to the granule conflicts with this one; 0: none. *did: what that did. */
static uint32_t conflict(const tn_checker *c, const granule *g, tn_touch_kind kind, const char **did)
{
    *did = "stores";
    uint32_t other = unordered(c, g->writer) ? g->writer : 0;
    for (int i = 0; i < 2 && !other && kind == TN_TOUCH_WRITE; i++) {
        *did = unordered(c, g->reader[i]) ? "loads" : "changes by an atomic";
        other = unordered(c, g->reader[i]) ? g->reader[i] : unordered(c, g->atomic[i]) ? g->atomic[i] : 0;
    }
    return other;
}

static const char *element_text(tn_checker *c, int buffer, const void *at)
{
    const tn_tbuffer *t = &c->kernel->buffers.at[buffer];
    size_t offset = (size_t)((uintptr_t)at - (uintptr_t)c->buffers[buffer].data);
    return tn_format(&c->arena, "element %zu of %%%s", offset * 8 / (size_t)tn_dtype_bits(t->dtype), t->name);
}

static void touch_granule(tn_checker *c, const tn_top *op, granule *g, int buffer, const void *at, tn_touch_kind kind)
{
    const char *did;
    uint32_t other = conflict(c, g, kind, &did);
    if (other && !told(c, op, "race"))
        report(c, op, tn_format(&c->arena, "a race: program %s %s %s too, and nothing orders the two", program_text(c, &c->arena, (int64_t)other - 1), did,
                                element_text(c, buffer, at)));
    bool looks = kind == TN_TOUCH_READ || (kind == TN_TOUCH_ATOMIC && (op->code != TN_T_atomic_ptr || op->fn != TN_SCALAR_NONE));
    if (looks && c->fresh[buffer] && !g->writer && !g->atomic[0] && !told(c, op, "fresh"))
        report(c, op, tn_format(&c->arena, "%s is loaded, but nothing has stored it", element_text(c, buffer, at)));
    if (kind == TN_TOUCH_WRITE)
        g->writer = c->program;
    else
        remember(kind == TN_TOUCH_READ ? g->reader : g->atomic, c->program);
}

static bool one_element(const tn_ttype *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->extent[i].size != 1)
            return false;
    return true;
}

static bool has_order(const tn_top *op, const char *order)
{
    return !op->text || strncmp(op->text, "acq_rel", 7) == 0 || strncmp(op->text, order, strlen(order)) == 0;
}

/* An atomic on one element orders programs. */
static bool synchronise(tn_checker *c, const tn_top *op, const void *at)
{
    void **cell = tn_map_at(&c->released, TN_KEY(at));
    program_set *left = *cell = *cell ? *cell : TN_NEW(&c->arena, program_set);
    const interval self = {c->program, c->program + 1};
    if (has_order(op, "acquire") && !set_unite(c, &c->known, left->at, left->n))
        return false;
    return !has_order(op, "release") || (set_unite(c, left, c->known.at, c->known.n) && set_unite(c, left, &self, 1));
}

bool tn_check_touch(tn_checker *c, const tn_top *op, int buffer, const void *at, size_t bytes, tn_touch_kind kind)
{
    if (kind == TN_TOUCH_ATOMIC && one_element(&op->result->type) && !synchronise(c, op, at))
        return false;
    int which = buffer < 0 ? -1 : c->stretch_of[buffer];
    if (which < 0)
        return true;
    const stretch *t = &c->stretches[which];
    size_t offset = (size_t)((uintptr_t)at - t->start);
    for (size_t g = offset / c->unit; g <= (offset + bytes - 1) / c->unit; g++)
        touch_granule(c, op, &t->granules[g], buffer, at, kind);
    return true;
}

/* ---- absent lanes ---------------------------------------------------------------------------------------------------- */

typedef struct search {
    const tn_tvalue *seen[MAX_SEARCH];
    int n;
} search;

/* The load whose lanes are absent in v; NULL: not found. */
static const tn_top *source_of(const tn_tvalue *v, search *s)
{
    const tn_top *op = v->def;
    for (int i = 0; i < s->n; i++)
        if (s->seen[i] == v)
            return NULL;
    if (!op || s->n == MAX_SEARCH)
        return NULL;
    s->seen[s->n++] = v;
    if ((op->code == TN_T_load && !op->view->padded) || (op->code == TN_T_load_ptr && op->noperands == 2))
        return op;
    const tn_top *found = NULL;
    for (int i = 0; i < op->noperands && !found && !op->nregions; i++)
        found = source_of(op->operand[i], s);
    return found;
}

void tn_check_absent(tn_checker *c, const tn_top *op, const tn_tvalue *v, const char *how)
{
    if (told(c, op, how))
        return;
    search s = {.n = 0};
    const tn_top *load = source_of(v, &s);
    const char *where = load && load->loc.line ? tn_format(&c->arena, " (the load of line %d)", load->loc.line) : "";
    tn_warning(c->session, op->loc, "kernel @%s, program %s: %s: masked lanes without `other`%s count as 0 in %s; give the load an `other`", c->kernel->name,
               tn_check_program_text(c, &c->arena), tn_check_name(op), where, how);
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------------ */

void tn_check_wrap(tn_checker *c, const tn_top *op, int64_t x, int64_t y)
{
    if (told(c, op, "wrap"))
        return;
    char sign = op->fn == TN_S_add ? '+' : op->fn == TN_S_sub ? '-' : '*';
    const char *text = tn_format(&c->arena, y < 0 ? "%lld %c (%lld)" : "%lld %c %lld", (long long)x, sign, (long long)y);
    if (op->result->type.dtype == TN_I64) {
        report(c, op, tn_format(&c->arena, "an offset wraps in 64 bits (%s)", text));
        return;
    }
    int64_t exact = op->fn == TN_S_add ? x + y : op->fn == TN_S_sub ? x - y : x * y; /* of 32 bits each */
    report(c, op, tn_format(&c->arena, "an offset wraps in 32 bits (%s = %lld); cast to tl.int64 first", text, (long long)exact));
}

/* ---- print ----------------------------------------------------------------------------------------------------------- */

static void text_value(tn_text *text, const tn_top *op, const tn_ttype *type, tn_number x)
{
    int bits = type->pointer ? 64 : tn_dtype_bits(type->dtype);
    uint64_t raw[2] = {x.u, 0};
    if (!type->pointer)
        tn_number_store(type->dtype, memset(raw, 0, sizeof raw), 0, x);
    if (type->pointer || op->hex)
        tn_text_add(text, "0x%0*llx", bits < 8 ? 1 : bits / 4, (unsigned long long)raw[0]);
    else if (tn_is_float(type->dtype))
        tn_text_add(text, "%f", x.f);
    else if (tn_dtype_class(type->dtype) == TN_CLASS_INT)
        tn_text_add(text, "%lld", (long long)x.i);
    else if (tn_is_complex(type->dtype))
        tn_text_number(text, type->dtype, x);
    else
        tn_text_add(text, "%llu", (unsigned long long)x.u);
}

/* "pid (x, y, z) idx (i, j) prefix: value"; of several operands each line has its number. A prefix may have come with its colon and spaces. */
void tn_check_print(tn_checker *c, const tn_top *op, int operand, const int64_t *idx, tn_number number, bool present)
{
    tn_arena arena = {.on_oom = c->arena.on_oom};
    tn_text text = {.arena = &arena};
    const char *prefix = op->text ? op->text : "";
    prefix += strspn(prefix, " ");
    size_t n = strlen(prefix);
    while (n && (prefix[n - 1] == ' ' || (prefix[n - 1] == ':' && operand >= 0)))
        n--;
    tn_text_add(&text, "pid %s", tn_check_program_text(c, &arena));
    if (operand < 0) {
        tn_text_add(&text, " %.*s", (int)n, prefix);
    } else {
        const tn_ttype *type = &op->operand[operand]->type;
        tn_text_add(&text, " idx (");
        for (int d = 0; d < type->rank; d++)
            tn_text_add(&text, d ? ", %lld" : "%lld", (long long)idx[d]);
        tn_text_add(&text, n ? ") %.*s: " : ") ", (int)n, prefix);
        if (op->noperands > 1)
            tn_text_add(&text, "(operand %d) ", operand);
        if (present)
            text_value(&text, op, type, number);
        else
            tn_text_add(&text, "masked");
    }
    if (c->options->print)
        c->options->print(c->options->context, text.at);
    else
        puts(text.at);
    tn_arena_free(&arena);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

tn_status tn_tile_check(const tn_kernel *kernel, const tn_tile_arg *buffers, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context,
                        const tn_tile_check_options *options)
{
    static const tn_tile_check_options none = {.fresh = NULL};
    tn_checker c = {.kernel = kernel, .session = kernel->session, .options = options ? options : &none, .arena = {.on_oom = kernel->session->arena.on_oom}};
    c.released.arena = c.told_op.arena = c.told_line.arena = &c.arena;
    tn_status status = tn_tile_run(kernel, buffers, lookup, context, &c);
    for (size_t s = 0; s < c.nstretches; s++)
        free(c.stretches[s].granules);
    for (size_t i = 0; i < c.released.len; i++)
        free(((program_set *)tn_map_value(&c.released, i))->at);
    free(c.known.at);
    tn_arena_free(&c.arena);
    return status != TN_OK ? status : c.status;
}
