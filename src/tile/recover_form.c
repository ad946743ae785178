/* recover: what integers and pointers add up from. An integer tile is a form, a sum of positions along axes, scalars and index tiles with sizes as
 * coefficients; a pointer is a buffer and a form. The arithmetic is exact: a signed type of at least 32 bits is taken not to wrap (docs/tile-ir.md),
 * of the others what may wrap stands for itself. */
#include "tile/recover.h"

#include <string.h>

#define LARGE ((int64_t)1 << 62) /* |bound| >= this: none */
enum { DEPTH = 64, MAX_DIM_NODES = 64, MAX_DEPTH = 500 /* of what is looked through */ };

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* Sizes that grow too large are errors of the session; long before, a form gives up. */
static int measure(tn_dim d, int64_t *largest)
{
    int nodes = 1;
    if (tn_dim_is_const(d))
        *largest = tn_max(*largest, d->value < 0 ? -(d->value + 1) : d->value);
    for (int i = 0; i < d->noperands && nodes <= MAX_DIM_NODES; i++)
        nodes += measure(d->operand[i], largest);
    return nodes;
}

bool recover_multiply(recover *R, tn_dim a, tn_dim b, tn_dim *out)
{
    int64_t x = 0, y = 0;
    int n = measure(a, &x), m = measure(b, &y);
    if (n * m > MAX_DIM_NODES || (x >= (int64_t)1 << 31 && y > 1) || (y >= (int64_t)1 << 31 && x > 1))
        return false;
    *out = tn_dim_mul(R->session, a, b);
    return true;
}

static bool add_dims(recover *R, tn_dim a, tn_dim b, tn_dim *out)
{
    int64_t x = 0;
    int n = measure(a, &x) + measure(b, &x);
    if (n > 2 * MAX_DIM_NODES || x >= (int64_t)1 << 60)
        return false;
    *out = tn_dim_add(R->session, a, b);
    return true;
}

static bool divide_product(recover *R, tn_dim d, tn_dim by, tn_dim *out)
{
    tn_session *s = R->session;
    const tn_dim *have = d->kind == TN_DIM_MUL ? d->operand : &d, *need = by->kind == TN_DIM_MUL ? by->operand : &by;
    int n = d->kind == TN_DIM_MUL ? d->noperands : 1, m = by->kind == TN_DIM_MUL ? by->noperands : 1;
    bool used[MAX_DIM_NODES] = {false};
    int64_t coefficient = 1, divisor = 1;
    if (n > MAX_DIM_NODES)
        return false;
    for (int k = 0; k < m; k++) {
        int i = 0;
        if (tn_dim_is_const(need[k])) {
            divisor = need[k]->value;
            continue;
        }
        while (i < n && (used[i] || have[i] != need[k]))
            i++;
        if (i == n)
            return false;
        used[i] = true;
    }
    *out = tn_dim_const(s, 1);
    for (int i = 0; i < n; i++)
        if (tn_dim_is_const(have[i]))
            coefficient = have[i]->value;
        else if (!used[i])
            *out = tn_dim_mul(s, *out, have[i]);
    if (divisor == 0 || coefficient == INT64_MIN || coefficient % divisor != 0)
        return false;
    *out = tn_dim_mul(s, *out, tn_dim_const(s, coefficient / divisor));
    return true;
}

bool recover_divide(recover *R, tn_dim d, tn_dim by, tn_dim *out)
{
    if (d->kind != TN_DIM_ADD)
        return divide_product(R, d, by, out);
    *out = tn_dim_const(R->session, 0);
    for (int i = 0; i < d->noperands; i++) {
        tn_dim part;
        if (!divide_product(R, d->operand[i], by, &part) || !add_dims(R, *out, part, out))
            return false;
    }
    return true;
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------------- */

form recover_constant(recover *R, int64_t value) { return (form){.base = tn_dim_const(R->session, value)}; }

static form form_of_dim(tn_dim d) { return (form){.base = d}; }

static bool same_atom(const atom *a, const atom *b)
{
    return a->value == b->value && a->naxes == b->naxes && memcmp(a->axis, b->axis, sizeof a->axis[0] * (size_t)a->naxes) == 0;
}

/* What enters a region is frozen. */
static bool compute_there(recover *R, const tn_tvalue *v)
{
    const tn_top *op = v->def;
    if (!op)
        return true;
    if (op->code == TN_T_load) {
        bool all = op->view->nguards == 0;
        for (int d = 0; d < op->view->rank && all && !op->view->padded; d++)
            all = tn_dim_is(op->view->shape[d], TN_TILE_ANY) && recover_there(R, op->subscript[d].value);
        return op->view->padded || all;
    }
    if (op->code == TN_T_atomic_ptr || op->code == TN_T_atomic || op->code == TN_T_atomic_load || (op->code == TN_T_load_ptr && op->noperands == 2))
        return false;
    if (op->nregions)
        return op->code != TN_T_scan && op->code != TN_T_sort;
    for (int i = 0; i < op->noperands; i++)
        if (!recover_there(R, op->operand[i]))
            return false;
    return true;
}

bool recover_there(recover *R, const tn_tvalue *v)
{
    enum { YES = 1, NO };
    uintptr_t known = (uintptr_t)tn_map_get(&R->there, TN_KEY(v));
    if (known)
        return known == YES;
    R->depth++;
    bool there = R->depth < MAX_DEPTH && compute_there(R, v);
    R->depth--;
    *tn_map_at(&R->there, TN_KEY(v)) = (void *)(uintptr_t)(there ? YES : NO);
    return there;
}

bool recover_form_there(recover *R, const form *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->term[i].atom.value && !recover_there(R, f->term[i].atom.value))
            return false;
    return true;
}

static bool add_term(recover *R, form *f, const atom *a, tn_dim coef)
{
    int i = 0;
    while (i < f->n && !same_atom(&f->term[i].atom, a))
        i++;
    if (i == FORM_TERMS)
        return false;
    if (i == f->n)
        f->term[f->n++] = (form_term){*a, tn_dim_const(R->session, 0)};
    if (!add_dims(R, f->term[i].coef, coef, &f->term[i].coef))
        return false;
    if (tn_dim_is(f->term[i].coef, 0)) {
        if (a->value && !recover_there(R, a->value))
            return false;
        memmove(&f->term[i], &f->term[i + 1], sizeof f->term[0] * (size_t)(f->n - i - 1));
        f->n--;
    }
    return true;
}

bool recover_add(recover *R, form *f, const form *g, tn_dim scale)
{
    tn_dim d;
    if (!recover_multiply(R, g->base, scale, &d) || !add_dims(R, f->base, d, &f->base))
        return false;
    for (int i = 0; i < g->n; i++)
        if (!recover_multiply(R, g->term[i].coef, scale, &d) || !add_term(R, f, &g->term[i].atom, d))
            return false;
    return true;
}

static bool add_number(recover *R, form *f, const form *g, int64_t scale) { return recover_add(R, f, g, tn_dim_const(R->session, scale)); }

form recover_remap(const form *f, const int *map)
{
    form to = {.base = f->base};
    for (int i = 0; i < f->n; i++) {
        form_term t = f->term[i];
        bool there = true;
        for (int k = 0; k < t.atom.naxes; k++) {
            t.atom.axis[k] = map[t.atom.axis[k]];
            there &= t.atom.axis[k] >= 0;
        }
        if (there) /* the only position along an axis is 0, and a tile's axes have more */
            to.term[to.n++] = t;
    }
    return to;
}

static bool is_uniform(const form *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->term[i].atom.naxes)
            return false;
    return true;
}

/* ---- what is known of values ---------------------------------------------------------------------------------------------- */

static bool is_argument(const tn_tvalue *v, tn_topcode code) { return !v->def && v->block && v->block->parent && v->block->parent->code == code; }

/* The index of a loop, or where a fold's range starts. */
static bool is_loop_index(const tn_tvalue *v)
{
    return (is_argument(v, TN_T_for) && v == v->block->arg) || (is_argument(v, TN_T_fold) && v->block == v->block->parent->region[0]);
}

static const tn_trange *grid_range(const recover *R, const tn_tvalue *v)
{
    for (size_t i = 0; i < R->kernel->grid.len; i++)
        if (R->kernel->grid.at[i].value == v)
            return &R->kernel->grid.at[i];
    return NULL;
}

static bool is_scalar_parameter(const recover *R, const tn_tvalue *v)
{
    for (size_t i = 0; i < R->kernel->scalars.len && !v->def && !v->block; i++)
        if (R->kernel->scalars.at[i] == v)
            return true;
    return false;
}

static bool is_integer(const tn_ttype *type) { return !type->pointer && tn_is_integer(type->dtype); }
static bool is_signed(tn_dtype dtype) { return tn_dtype_class(dtype) == TN_CLASS_INT; }

/* Arithmetic in it is taken not to wrap. */
static bool is_wide(const tn_ttype *type) { return is_integer(type) && is_signed(type->dtype) && tn_dtype_bits(type->dtype) >= 32; }

static span type_span(tn_dtype dtype)
{
    int bits = dtype == TN_BOOL ? 1 : tn_dtype_bits(dtype);
    if (!tn_is_integer(dtype) && dtype != TN_BOOL)
        return (span){-LARGE, LARGE};
    if (!is_signed(dtype))
        return (span){0, bits >= 62 ? LARGE : ((int64_t)1 << bits) - 1};
    return bits >= 63 ? (span){-LARGE, LARGE} : (span){-((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1};
}

static int64_t saturate(__int128 x) { return x > LARGE ? LARGE : x < -LARGE ? -LARGE : (int64_t)x; }
static bool within(span a, span b) { return a.lo >= b.lo && a.hi <= b.hi; }
static span meet(span a, span b) { return (span){tn_max(a.lo, b.lo), tn_min(a.hi, b.hi)}; }
static span join(span a, span b) { return (span){tn_min(a.lo, b.lo), tn_max(a.hi, b.hi)}; }

static span product_span(span a, span b)
{
    __int128 x[4] = {(__int128)a.lo * b.lo, (__int128)a.lo * b.hi, (__int128)a.hi * b.lo, (__int128)a.hi * b.hi}, lo = x[0], hi = x[0];
    for (int i = 1; i < 4; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    return (span){saturate(lo), saturate(hi)};
}

static span remainder_span(span a, span b)
{
    if (a.lo >= 0)
        return (span){0, b.lo >= 1 ? tn_min(a.hi, b.hi - 1) : a.hi};
    if (b.lo >= 1)
        return (span){tn_max(a.lo, 1 - b.hi), tn_max(0, tn_min(a.hi, b.hi - 1))};
    return (span){-LARGE, LARGE};
}

/* Of the exact result, before it is made to fit the type. */
static span map_span(recover *R, const tn_top *op)
{
    span x[3] = {{0, 0}, {0, 0}, {0, 0}}, none = {-LARGE, LARGE};
    for (int i = 0; i < op->noperands && i < 3; i++)
        x[i] = recover_span(R, op->operand[i]);
    switch (op->fn) {
    case TN_S_add:
        return (span){saturate((__int128)x[0].lo + x[1].lo), saturate((__int128)x[0].hi + x[1].hi)};
    case TN_S_sub:
        return (span){saturate((__int128)x[0].lo - x[1].hi), saturate((__int128)x[0].hi - x[1].lo)};
    case TN_S_neg:
        return (span){-x[0].hi, -x[0].lo};
    case TN_S_mul:
        return product_span(x[0], x[1]);
    case TN_S_min:
        return (span){tn_min(x[0].lo, x[1].lo), tn_min(x[0].hi, x[1].hi)};
    case TN_S_max:
        return (span){tn_max(x[0].lo, x[1].lo), tn_max(x[0].hi, x[1].hi)};
    case TN_S_clamp:
        return (span){tn_min(x[0].lo, x[2].lo), x[2].hi};
    case TN_S_select:
        return join(x[1], x[2]);
    case TN_S_div:
        return x[0].lo >= 0 && x[1].lo >= 1 ? (span){x[0].lo / x[1].hi, x[0].hi / x[1].lo} : none;
    case TN_S_rem:
        return remainder_span(x[0], x[1]);
    case TN_S_and:
        return x[0].lo >= 0 && x[1].lo >= 0 ? (span){0, tn_min(x[0].hi, x[1].hi)} : x[0].lo >= 0 ? (span){0, x[0].hi} : x[1].lo >= 0 ? (span){0, x[1].hi} : none;
    case TN_S_shr_arith:
    case TN_S_shr_logical:
        return x[0].lo >= 0 ? (span){0, x[0].hi} : none;
    default:
        return none;
    }
}

/* A coordinate, a loop's index, a size, or positions from one: what index arithmetic may take to fit 32 bits. */
static bool is_small(const recover *R, const tn_tvalue *v)
{
    if (v->def)
        return v->def->code == TN_T_size || ((v->def->code == TN_T_range || v->def->code == TN_T_broadcast) && is_small(R, v->def->operand[0]));
    return grid_range(R, v) || is_loop_index(v);
}

static bool keeps_value(recover *R, const tn_top *cast)
{
    const tn_ttype *from = &cast->operand[0]->type, *to = &cast->result->type;
    if (!(is_integer(from) || from->dtype == TN_BOOL) || from->pointer || !is_integer(to))
        return false;
    return within(recover_span(R, cast->operand[0]), type_span(to->dtype)) ||
           (is_wide(from) && is_wide(to) && tn_dtype_bits(to->dtype) >= tn_dtype_bits(from->dtype)) || (is_wide(to) && is_small(R, cast->operand[0]));
}

static tn_dim scalar_dim(recover *R, const tn_tvalue *v);

static span argument_span(recover *R, const tn_tvalue *v)
{
    const tn_trange *g = grid_range(R, v);
    if (g)
        return (span){0, tn_max(g->limit->hi - 1, 0)};
    if (is_argument(v, TN_T_for) && v == v->block->arg)
        return (span){recover_span(R, v->block->parent->operand[0]).lo, tn_max(recover_span(R, v->block->parent->operand[1]).hi - 1, -LARGE)};
    if (is_loop_index(v))
        return (span){0, LARGE};
    tn_dim d = is_scalar_parameter(R, v) ? scalar_dim(R, v) : NULL;
    return d ? (span){d->lo, d->hi} : type_span(v->type.dtype);
}

static span compute_span(recover *R, const tn_tvalue *v)
{
    const tn_top *op = v->def;
    span type = type_span(v->type.dtype), x;
    if (!op)
        return argument_span(R, v);
    switch (op->code) {
    case TN_T_const:
        return (span){saturate(op->number.i), saturate(op->number.i)};
    case TN_T_size:
        return (span){op->dim->lo, op->dim->hi};
    case TN_T_range:
        x = recover_span(R, op->operand[0]);
        return (span){x.lo, saturate((__int128)x.hi + tn_max(v->type.extent[0].size, 1) - 1)};
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_reshape:
    case TN_T_slice:
    case TN_T_assume:
        return recover_span(R, op->operand[0]);
    case TN_T_cast:
        return keeps_value(R, op) ? meet(recover_span(R, op->operand[0]), type) : type;
    case TN_T_map:
        x = map_span(R, op);
        return within(x, type) || (is_wide(&v->type)) ? meet(x, type) : type;
    default:
        return type;
    }
}

span recover_span(recover *R, const tn_tvalue *v)
{
    span *known = tn_map_get(&R->spans, TN_KEY(v));
    if (known)
        return *known;
    R->depth++;
    span s = R->depth > MAX_DEPTH ? type_span(v->type.dtype) : compute_span(R, v);
    R->depth--;
    if (tn_map_get(&R->assumed, TN_KEY(v)))
        s.lo = tn_max(s.lo, 0);
    if (s.lo > s.hi) /* contradicting facts: the code is not reached */
        s = type_span(v->type.dtype);
    known = TN_NEW(&R->arena, span);
    *known = s;
    *tn_map_at(&R->spans, TN_KEY(v)) = known;
    return s;
}

static bool dim_not_negative(const recover *R, tn_dim d)
{
    if (d->lo >= 0 || tn_map_get(&R->assumed, TN_KEY(d)))
        return true;
    if (d->kind != TN_DIM_MUL)
        return false;
    for (int i = 0; i < d->noperands; i++)
        if (!dim_not_negative(R, d->operand[i]))
            return false;
    return true;
}

bool recover_not_negative(recover *R, const form *f)
{
    if (!dim_not_negative(R, f->base))
        return false;
    for (int i = 0; i < f->n; i++) {
        const form_term *t = &f->term[i];
        span s = t->atom.value ? recover_span(R, t->atom.value) : (span){0, LARGE};
        if (!(dim_not_negative(R, t->coef) && s.lo >= 0) && !(t->coef->hi <= 0 && s.hi <= 0))
            return false;
    }
    return true;
}

/* v >= 0, where the fact is true. */
static void collect_comparison(recover *R, const tn_top *op)
{
    bool swapped = op->fn == TN_S_le || op->fn == TN_S_lt;
    if (op->fn != TN_S_ge && op->fn != TN_S_gt && !swapped)
        return;
    tn_tvalue *v = op->operand[swapped], *limit = op->operand[!swapped];
    const tn_number *c = recover_constant_of(limit);
    bool strict = op->fn == TN_S_gt || op->fn == TN_S_lt;
    if (!c || v->type.rank || !is_integer(&v->type) || !is_signed(v->type.dtype) || c->i < 0 - strict || recover_span(R, v).lo >= 0)
        return;
    *tn_map_at(&R->assumed, TN_KEY(v)) = v;
    tn_dim d = is_scalar_parameter(R, v) ? scalar_dim(R, v) : NULL;
    if (d)
        *tn_map_at(&R->assumed, TN_KEY(d)) = v;
}

static void collect_fact(recover *R, const tn_tvalue *fact, int depth)
{
    const tn_top *op = fact->def;
    if (!op || op->code != TN_T_map || depth == 0)
        return;
    if (op->fn == TN_S_and || op->fn == TN_S_mul) {
        collect_fact(R, op->operand[0], depth - 1);
        collect_fact(R, op->operand[1], depth - 1);
    } else if (op->noperands == 2) {
        collect_comparison(R, op);
    }
}

/* Facts that every program meets: they hold wherever the kernel's behaviour is defined. */
void recover_collect_facts(recover *R)
{
    for (const tn_top *op = R->kernel->body->first; op; op = op->next)
        if (op->code == TN_T_assume)
            collect_fact(R, op->operand[1], 8);
    R->spans = (tn_map){.arena = &R->arena}; /* they did not know the facts yet */
}

const tn_number *recover_constant_of(const tn_tvalue *v)
{
    const tn_top *op = v->def;
    while (op && (op->code == TN_T_broadcast || op->code == TN_T_reshape || op->code == TN_T_permute || op->code == TN_T_assume))
        op = op->operand[0]->def;
    return op && op->code == TN_T_const ? &op->number : NULL;
}

/* ---- scalars -------------------------------------------------------------------------------------------------------------- */

/* Are the symbol's bounds what its type leaves? */
static bool has_bounds_of(tn_dim known, tn_dtype dtype)
{
    span all = type_span(dtype);
    int64_t multiple = tn_max(known->multiple, 1);
    return known->lo == tn_ceildiv(all.lo, multiple) * multiple && known->hi == tn_floordiv(all.hi, multiple) * multiple;
}

/* A number that the kernel is launched with is the symbol of its name. NULL: the symbol's facts are those of a narrower type, or of multiples, from another
 * kernel. */
static tn_dim scalar_dim(recover *R, const tn_tvalue *v)
{
    static const tn_dtype types[] = {TN_I8, TN_I16, TN_I32, TN_I64, TN_U8, TN_U16, TN_U32};
    if (!v->name || !is_integer(&v->type) || v->type.dtype == TN_U64)
        return NULL;
    span mine = type_span(v->type.dtype);
    tn_dim known = tn_dim_known(R->session, v->name);
    if (!known)
        return tn_dim_declare(R->session, v->name, mine.lo, mine.hi, tn_max(v->divisor, 1));
    bool multiple = tn_max(v->divisor, 1) % tn_max(known->multiple, 1) == 0;
    for (size_t i = 0; i < TN_COUNT(types); i++)
        if (has_bounds_of(known, types[i]) && !(multiple && within(mine, type_span(types[i]))))
            return NULL;
    return known;
}

static bool stands_for_itself(recover *R, tn_tvalue *v, form *f);

/* Not of what it is computed from: v alone, along the axes on which it varies. */
static form opaque(recover *R, tn_tvalue *v)
{
    unsigned keep = recover_varies(R, v);
    tn_tvalue *x = recover_project(R, v, keep);
    form f = recover_constant(R, 0);
    int map[TN_TILE_RANK], n = 0;
    for (int i = 0; i < v->type.rank; i++)
        if (keep >> i & 1)
            map[n++] = i;
    if (x != v) { /* along fewer axes more may be known of it */
        const form *g = recover_form(R, x);
        return recover_remap(g, map);
    }
    stands_for_itself(R, v, &f);
    return f;
}

static bool stands_for_itself(recover *R, tn_tvalue *v, form *f)
{
    atom a = {.value = v, .naxes = v->type.rank};
    for (int i = 0; i < a.naxes; i++)
        a.axis[i] = i;
    *f = recover_constant(R, 0);
    return add_term(R, f, &a, tn_dim_const(R->session, 1));
}

/* ---- loops ------------------------------------------------------------------------------------------------------------------ */

/* What one turn of a loop adds to a value that it carries. */
typedef struct solution {
    enum { SEARCHING, NONE, FOUND } state;
    form delta;
} solution;

static bool defined_inside(const tn_tvalue *v, const tn_tblock *block)
{
    for (const tn_tblock *at = v->block; at; at = at->parent ? at->parent->block : NULL)
        if (at == block)
            return true;
    return false;
}

static const solution *solve(recover *R, const tn_top *loop, int i);
static bool total_turns(recover *R, const tn_top *loop, form *f);
static bool scale_by_turns(recover *R, form *f, const form *delta, const form *turns);

/* v is the carried value plus *delta. */
static bool find_delta(recover *R, const tn_tvalue *carried, tn_tvalue *v, form *delta, int *left)
{
    const tn_top *op = v->def;
    if (v == carried)
        return true;
    if (!op || (*left)-- <= 0)
        return false;
    if (op->code == TN_T_assume)
        return find_delta(R, carried, op->operand[0], delta, left);
    if (op->code == TN_T_addptr)
        return find_delta(R, carried, op->operand[0], delta, left) && add_number(R, delta, recover_form(R, op->operand[1]), 1);
    if (op->code == TN_T_map && is_wide(&v->type) && (op->fn == TN_S_add || op->fn == TN_S_sub)) {
        if (find_delta(R, carried, op->operand[0], delta, left))
            return add_number(R, delta, recover_form(R, op->operand[1]), op->fn == TN_S_add ? 1 : -1);
        return op->fn == TN_S_add && find_delta(R, carried, op->operand[1], delta, left) && add_number(R, delta, recover_form(R, op->operand[0]), 1);
    }
    if (op->code == TN_T_for) {
        int i = (int)(v - op->result);
        const solution *inner = solve(R, op, i);
        form turns;
        return inner->state == FOUND && find_delta(R, carried, op->operand[3 + i], delta, left) && total_turns(R, op, &turns) &&
               scale_by_turns(R, delta, &inner->delta, &turns);
    }
    return false;
}

static const solution *solve(recover *R, const tn_top *loop, int i)
{
    tn_tvalue *carried = &loop->region[0]->arg[1 + i];
    solution *s = tn_map_get(&R->solutions, TN_KEY(carried));
    if (s)
        return s;
    s = TN_NEW(&R->arena, solution);
    *tn_map_at(&R->solutions, TN_KEY(carried)) = s;
    form delta = recover_constant(R, 0);
    int left = DEPTH;
    bool found = (carried->type.pointer || is_wide(&carried->type)) && find_delta(R, carried, loop->region[0]->last->operand[i], &delta, &left) &&
                 is_uniform(&delta);
    for (int k = 0; found && k < delta.n; k++)
        found = !defined_inside(delta.term[k].atom.value, loop->region[0]);
    s->delta = delta;
    s->state = found ? FOUND : NONE;
    return s;
}

/* f += delta * turns; both are uniform. */
static bool scale_by_turns(recover *R, form *f, const form *delta, const form *turns)
{
    if (!recover_add(R, f, turns, delta->base))
        return false;
    for (int i = 0; i < delta->n; i++) {
        const form_term *t = &delta->term[i];
        if (turns->n == 0) {
            tn_dim d;
            if (!recover_multiply(R, t->coef, turns->base, &d) || !add_term(R, f, &t->atom, d))
                return false;
            continue;
        }
        tn_tvalue *x = recover_map2(R, TN_S_mul, recover_cast(R, t->atom.value, TN_I64), recover_sum(R, turns));
        form product;
        if (!stands_for_itself(R, x, &product) || !recover_add(R, f, &product, t->coef))
            return false;
    }
    return true;
}

static tn_tvalue *wide_scalar(recover *R, tn_tvalue *v) { return recover_cast(R, v, TN_I64); }

/* Turns before this one: (index - lo) / step. *whole: the index counts them times this. */
static bool turns_so_far(recover *R, const tn_top *loop, form *f, int64_t *whole)
{
    const tn_number *step = recover_constant_of(loop->operand[2]);
    *whole = step && step->i > 0 ? step->i : 1;
    if (!stands_for_itself(R, loop->region[0]->arg, f) || !add_number(R, f, recover_form(R, loop->operand[0]), -1))
        return false;
    if (step && step->i > 0)
        return true;
    tn_tvalue *turns = recover_map2(R, TN_S_div, recover_sum(R, f), wide_scalar(R, loop->operand[2]));
    return stands_for_itself(R, turns, f);
}

static bool total_turns(recover *R, const tn_top *loop, form *f)
{
    tn_session *s = R->session;
    const tn_number *step = recover_constant_of(loop->operand[2]);
    const form *lo = recover_form(R, loop->operand[0]), *hi = recover_form(R, loop->operand[1]);
    tn_dim limit = recover_bound_dim(R, loop->operand[1]);
    if (step && step->i > 0 && step->i <= INT32_MAX && lo->n == 0 && (hi->n == 0 || (limit && tn_dim_is(lo->base, 0)))) {
        form length = form_of_dim(hi->n == 0 ? hi->base : limit);
        if (!add_number(R, &length, lo, -1))
            return false;
        *f = form_of_dim(tn_dim_max(s, tn_dim_ceildiv(s, length.base, tn_dim_const(s, step->i)), tn_dim_const(s, 0)));
        return true;
    }
    tn_tvalue *by = wide_scalar(R, loop->operand[2]), *length = recover_map2(R, TN_S_sub, wide_scalar(R, loop->operand[1]), wide_scalar(R, loop->operand[0]));
    tn_tvalue *up = recover_map2(R, TN_S_add, length, recover_map2(R, TN_S_sub, by, recover_index(R, 1)));
    return stands_for_itself(R, recover_map2(R, TN_S_max, recover_map2(R, TN_S_div, up, by), recover_index(R, 0)), f);
}

/* The value that a loop starts carrying, after some turns. */
static bool add_turns(recover *R, form *f, const tn_top *loop, const solution *s, bool after)
{
    form turns;
    int64_t whole = 1;
    if (after)
        return total_turns(R, loop, &turns) && scale_by_turns(R, f, &s->delta, &turns);
    if (!turns_so_far(R, loop, &turns, &whole))
        return false;
    form delta = s->delta;
    tn_dim by = tn_dim_const(R->session, whole);
    bool divides = recover_divide(R, delta.base, by, &delta.base);
    for (int i = 0; divides && i < delta.n; i++)
        divides = recover_divide(R, delta.term[i].coef, by, &delta.term[i].coef);
    if (divides)
        return scale_by_turns(R, f, &delta, &turns);
    tn_tvalue *count = recover_map2(R, TN_S_div, recover_sum(R, &turns), recover_index(R, whole));
    return stands_for_itself(R, count, &turns) && scale_by_turns(R, f, &s->delta, &turns);
}

/* v is carried or given by a `for`: which of its values; -1: no. */
static int carried_of(const tn_tvalue *v, const tn_top **loop, bool *after)
{
    *after = v->def != NULL;
    *loop = v->def ? v->def : v->block && v->block->parent ? v->block->parent : NULL;
    if (!*loop || (*loop)->code != TN_T_for)
        return -1;
    return v->def ? (int)(v - (*loop)->result) : (int)(v - (*loop)->region[0]->arg) - 1;
}

/* ---- integers --------------------------------------------------------------------------------------------------------------- */

static bool result_fits(recover *R, const tn_tvalue *v)
{
    return is_wide(&v->type) || within(map_span(R, v->def), type_span(v->type.dtype));
}

static bool form_of_division(recover *R, const tn_top *op, const form *x, const form *y, form *f)
{
    if (x->n || y->n || x->base->lo < 0 || y->base->lo < 1)
        return false;
    *f = form_of_dim(op->fn == TN_S_div ? tn_dim_floordiv(R->session, x->base, y->base) : tn_dim_mod(R->session, x->base, y->base));
    return true;
}

bool tn_is_hash_constant(const tn_top *op, int64_t constant)
{
    int bits = tn_dtype_bits(op->result->type.dtype);
    int64_t most = (int64_t)1 << (op->fn == TN_S_mul ? bits * 5 / 8 : bits - 3);
    return constant > most || constant < -most;
}

static bool is_hash(const tn_top *op, const form *x, const form *y)
{
    const form *operand[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        int64_t c = operand[i] && operand[i]->n == 0 && tn_dim_is_const(operand[i]->base) ? operand[i]->base->value : 0;
        if (tn_is_hash_constant(op, c))
            return true;
    }
    return false;
}

static bool form_of_map(recover *R, tn_tvalue *v, form *f)
{
    const tn_top *op = v->def;
    const form *x = recover_form(R, op->operand[0]), *y = op->noperands > 1 ? recover_form(R, op->operand[1]) : NULL;
    if (op->noperands > 2 || !result_fits(R, v))
        return false;
    bool sums = op->fn == TN_S_add || op->fn == TN_S_sub || op->fn == TN_S_mul;
    if (sums && is_hash(op, x, y) && !within(map_span(R, op), type_span(v->type.dtype)))
        return false;
    *f = recover_constant(R, 0);
    switch (op->fn) {
    case TN_S_add:
    case TN_S_sub:
        return add_number(R, f, x, 1) && add_number(R, f, y, op->fn == TN_S_add ? 1 : -1);
    case TN_S_neg:
        return add_number(R, f, x, -1);
    case TN_S_mul:
        return (x->n == 0 && recover_add(R, f, y, x->base)) || (y->n == 0 && recover_add(R, f, x, y->base));
    case TN_S_shl:
        return y->n == 0 && tn_dim_is_const(y->base) && y->base->value >= 0 && y->base->value < 31 && add_number(R, f, x, (int64_t)1 << y->base->value);
    case TN_S_div:
    case TN_S_rem:
        return form_of_division(R, op, x, y, f);
    case TN_S_min:
    case TN_S_max:
        if (x->n || y->n)
            return false;
        *f = form_of_dim(op->fn == TN_S_min ? tn_dim_min(R->session, x->base, y->base) : tn_dim_max(R->session, x->base, y->base));
        return true;
    default:
        return false;
    }
}

static bool form_of_moved(const tn_tvalue *v, const form *x, form *f)
{
    const tn_top *op = v->def;
    const tn_ttype *from = &op->operand[0]->type;
    int map[TN_TILE_RANK];
    if (op->code == TN_T_reshape && !recover_unit_map(from, &v->type, map)) {
        *f = *x;
        return is_uniform(x);
    }
    for (int i = 0; op->code != TN_T_reshape && i < from->rank; i++)
        map[op->code == TN_T_permute ? op->axis[i] : i] = op->code == TN_T_permute ? i : recover_is_unit(from->extent[i]) ? -1 : op->axis[i];
    *f = recover_remap(x, map);
    return true;
}

static bool form_of_carried(recover *R, tn_tvalue *v, form *f)
{
    const tn_top *loop;
    bool after;
    int i = carried_of(v, &loop, &after);
    if (i < 0)
        return false;
    const solution *s = solve(R, loop, i);
    if (s->state != FOUND)
        return false;
    *f = *recover_form(R, loop->operand[3 + i]);
    return recover_form_there(R, f) && recover_form_there(R, &s->delta) && add_turns(R, f, loop, s, after); /* the loop carries 0 for what is absent */
}

static bool compute_form(recover *R, tn_tvalue *v, form *f)
{
    const tn_top *op = v->def;
    tn_dim d;
    if (!op && is_scalar_parameter(R, v) && (d = scalar_dim(R, v))) {
        *f = form_of_dim(d);
        return true;
    }
    if (!is_integer(&v->type) || tn_map_get(&R->assumed, TN_KEY(v)))
        return false;
    if (!op || op->code == TN_T_for)
        return form_of_carried(R, v, f);
    switch (op->code) {
    case TN_T_const:
        *f = recover_constant(R, op->number.i);
        return v->type.dtype != TN_U64 || op->number.i >= 0;
    case TN_T_size:
        *f = form_of_dim(op->dim);
        return true;
    case TN_T_range: {
        atom position = {.naxes = 1};
        *f = *recover_form(R, op->operand[0]);
        return recover_is_unit(v->type.extent[0]) || add_term(R, f, &position, tn_dim_const(R->session, 1));
    }
    case TN_T_cast:
        if (!keeps_value(R, op) || !is_integer(&op->operand[0]->type))
            return false;
        *f = *recover_form(R, op->operand[0]);
        return true;
    case TN_T_assume:
        *f = *recover_form(R, op->operand[0]);
        return true;
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_reshape:
        return form_of_moved(v, recover_form(R, op->operand[0]), f);
    case TN_T_map:
        return form_of_map(R, v, f);
    default:
        return false;
    }
}

static bool compute_form_within(recover *R, tn_tvalue *v, form *f)
{
    R->depth++;
    bool found = compute_form(R, v, f);
    R->depth--;
    return found;
}

const form *recover_form(recover *R, tn_tvalue *v)
{
    form *known = tn_map_get(&R->forms, TN_KEY(v));
    if (known)
        return known;
    form f;
    if (R->depth >= MAX_DEPTH || !compute_form_within(R, v, &f))
        f = opaque(R, v);
    known = tn_memdup(&R->arena, &f, sizeof f);
    *tn_map_at(&R->forms, TN_KEY(v)) = known;
    return known;
}

/* (x + c - 1) / c truncates, the size's division rounds down: they differ below 0 alone, where a loop does not run. */
tn_dim recover_bound_dim(recover *R, tn_tvalue *v)
{
    const form *f = recover_form(R, v);
    if (f->n == 0)
        return f->base;
    const tn_top *op = f->n == 1 && tn_dim_is(f->base, 0) && tn_dim_is(f->term[0].coef, 1) ? f->term[0].atom.value->def : NULL;
    if (!op || op->code != TN_T_map || op->fn != TN_S_div || op->operand[0]->type.rank || !is_wide(&op->operand[0]->type))
        return NULL;
    const form *x = recover_form(R, op->operand[0]), *y = recover_form(R, op->operand[1]);
    if (x->n || y->n || !tn_dim_is_const(y->base) || y->base->value < 1)
        return NULL;
    return tn_dim_floordiv(R->session, x->base, y->base);
}

/* ---- pointers --------------------------------------------------------------------------------------------------------------- */

static pointer_form no_pointer(const char *why) { return (pointer_form){.buffer = -1, .why = why}; }

static pointer_form parameter_pointer(recover *R, const tn_tvalue *v)
{
    const tn_kernel *k = R->kernel;
    for (size_t i = 0; v->name && i < k->buffers.len; i++)
        if (k->buffers.at[i].mode != TN_LOCAL && strcmp(k->buffers.at[i].name, v->name) == 0)
            return k->buffers.at[i].dtype == v->type.dtype ? (pointer_form){.buffer = (int)i, .offset = recover_constant(R, 0)}
                                                           : no_pointer("the pointer's type is not its buffer's");
    return no_pointer("the pointer is no parameter of the kernel");
}

static pointer_form carried_pointer(recover *R, tn_tvalue *v)
{
    const tn_top *loop;
    bool after;
    int i = carried_of(v, &loop, &after);
    if (i < 0)
        return no_pointer(v->def ? "the pointer is one of two, by a condition" : "a `while` loop changes the pointer");
    const solution *s = solve(R, loop, i);
    if (s->state != FOUND)
        return no_pointer("the loop changes the pointer by an amount that it changes too, or that is not the same for all elements");
    pointer_form p = *recover_pointer(R, loop->operand[3 + i]);
    if (!p.why && !(recover_form_there(R, &p.offset) && recover_form_there(R, &s->delta)))
        return no_pointer("the loop carries a pointer whose offset may be absent");
    return p.why || add_turns(R, &p.offset, loop, s, after) ? p : no_pointer("the offset has too many parts");
}

static pointer_form compute_pointer(recover *R, tn_tvalue *v)
{
    const tn_top *op = v->def;
    if (!op)
        return is_scalar_parameter(R, v) ? parameter_pointer(R, v) : carried_pointer(R, v);
    pointer_form p;
    switch (op->code) {
    case TN_T_addptr:
        p = *recover_pointer(R, op->operand[0]);
        return p.why || add_number(R, &p.offset, recover_form(R, op->operand[1]), 1) ? p : no_pointer("the offset has too many parts");
    case TN_T_assume:
        return *recover_pointer(R, op->operand[0]);
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_reshape: {
        p = *recover_pointer(R, op->operand[0]);
        form f = p.offset;
        return p.why || form_of_moved(v, &f, &p.offset) ? p : no_pointer("a reshape mixes the axes of the pointers");
    }
    case TN_T_for:
    case TN_T_while:
    case TN_T_if:
        return op->code == TN_T_while ? no_pointer("a `while` loop changes the pointer") : carried_pointer(R, v);
    case TN_T_map:
        return no_pointer("the pointer is one of two, by a condition");
    case TN_T_bitcast:
        return no_pointer("the pointer is made of an integer, or of a pointer to another type");
    case TN_T_load:
    case TN_T_load_ptr:
        return no_pointer("the pointer is loaded from memory");
    default:
        return no_pointer("the pointers are moved between elements");
    }
}

const pointer_form *recover_pointer(recover *R, tn_tvalue *v)
{
    pointer_form *known = tn_map_get(&R->pointers, TN_KEY(v));
    if (known)
        return known;
    R->depth++;
    pointer_form p = R->depth > MAX_DEPTH ? no_pointer("it is made in too many steps") : compute_pointer(R, v);
    R->depth--;
    known = tn_memdup(&R->arena, &p, sizeof p);
    *tn_map_at(&R->pointers, TN_KEY(v)) = known;
    return known;
}
