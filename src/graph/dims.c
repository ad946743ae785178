/* Symbolic dimensions. An expression is kept as a polynomial: a sum of terms coefficient * monomial, a monomial being a
 * sorted product of atoms. Atoms are symbols and the nodes that don't expand: floordiv, mod, min, max. Every node is
 * interned, so equal polynomials are one pointer.
 *
 * Canonical forms. ceildiv(x, c) is floordiv(x + c - 1, c), printed back as ceildiv. floordiv by a constant c moves what
 * c divides out of it: floordiv(c*x + r, c) = x + floordiv(r, c), a common factor cancels, floordiv(floordiv(x, a), b) is
 * floordiv(x, a*b); the remaining constant lies in [0, c). So floordiv(s - 1, 2) + 1 and ceildiv(s, 2) are one node.
 *
 * Proofs look at the bounds of a - b. The bound of a sum is interval arithmetic, sharpened by replacing one floordiv, mod,
 * min or max at a time by the linear expressions that bound it (lower_bound below).
 *
 * Limits: a polynomial has at most MAX_TERMS terms, an expression at most MAX_WEIGHT nodes written out as a tree. What goes
 * beyond, or beyond 64 bits, is reported as an error and stands as the symbol `invalid`, so that callers need no test each. */
#include "graph/internal.h"

#include <ctype.h>
#include <string.h>

enum { MAX_TERMS = 128, MAX_DEGREE = 16, MAX_WEIGHT = 4000, MAX_PARSE_DEPTH = 100 };
#define UNBOUNDED ((int64_t)1 << 62) /* |bound| >= this: none proven */
#define DEFAULT_HIGH ((int64_t)1 << 40)
#define MAX_MULTIPLE ((int64_t)1 << 40)

struct node {
    struct tn_dim_node dim; /* first: a tn_dim is a node */
    uint64_t hash;
    struct node *next; /* in its bucket */
    int weight;        /* nodes of the expression written out */
};

struct tn_dim_table {
    struct node **bucket;
    size_t nbuckets, len;
    tn_map fresh; /* hint -> how many were made of it */
};

struct term {
    int64_t coefficient;
    tn_dim mono; /* an atom, or a MUL of atoms */
};
/* Terms are sorted by compare_mono, coefficients non-zero. */
struct poly {
    int64_t constant;
    int n;
    struct term term[MAX_TERMS];
};

/* ---- small helpers ---------------------------------------------------------------------------------------------------- */

static int64_t clamp_bound(__int128 x)
{
    return x >= UNBOUNDED ? UNBOUNDED : x <= -UNBOUNDED ? -UNBOUNDED : (int64_t)x;
}

static int64_t gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? -(uint64_t)a : (uint64_t)a, y = b < 0 ? -(uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t r = x % y;
        x = y, y = r;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

static int64_t multiply_multiples(int64_t a, int64_t b)
{
    int64_t product;
    if (a == 0 || b == 0)
        return 0;
    if (!tn_mul(a, b, &product) || product > MAX_MULTIPLE)
        return a > b ? a : b;
    return product;
}

static int weight_of(tn_dim d) { return ((const struct node *)d)->weight; }

static const tn_dim *atoms_of(const tn_dim *mono, int *n)
{
    if ((*mono)->kind == TN_DIM_MUL) {
        *n = (*mono)->noperands;
        return (*mono)->operand;
    }
    *n = 1;
    return mono;
}

/* Structural order, the same in every session: what is printed does not depend on creation order. */
static int compare(tn_dim a, tn_dim b)
{
    if (a == b)
        return 0;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == TN_DIM_CONST)
        return a->value < b->value ? -1 : 1;
    if (a->kind == TN_DIM_SYMBOL)
        return strcmp(a->name, b->name);
    for (int i = 0; i < a->noperands && i < b->noperands; i++) {
        int c = compare(a->operand[i], b->operand[i]);
        if (c)
            return c;
    }
    return a->noperands < b->noperands ? -1 : 1;
}

/* Order of monomials: higher degree first, then by the first atom that differs (an admissible order: division needs it). */
static int compare_mono(tn_dim a, tn_dim b)
{
    int na, nb;
    const tn_dim *x = atoms_of(&a, &na), *y = atoms_of(&b, &nb);
    if (na != nb)
        return na > nb ? -1 : 1;
    for (int i = 0; i < na; i++) {
        int c = compare(x[i], y[i]);
        if (c)
            return c;
    }
    return 0;
}

/* ---- interning ---------------------------------------------------------------------------------------------------------- */

static struct tn_dim_table *table_of(tn_session *session)
{
    if (!session->dims) {
        struct tn_dim_table *table = TN_NEW(&session->arena, struct tn_dim_table);
        table->nbuckets = 256;
        table->bucket = TN_NEW_ARRAY(&session->arena, struct node *, table->nbuckets);
        table->fresh.arena = &session->arena;
        session->dims = table;
    }
    return session->dims;
}

static uint64_t hash_node(const struct tn_dim_node *d)
{
    uint64_t h = tn_hash_u64((uint64_t)d->kind * 31 + (uint64_t)d->value) ^ TN_KEY(d->name);
    for (int i = 0; i < d->noperands; i++)
        h = tn_hash_u64(h ^ TN_KEY(d->operand[i]));
    return h;
}

static bool same_node(const struct tn_dim_node *a, const struct tn_dim_node *b)
{
    return a->kind == b->kind && a->value == b->value && a->name == b->name && a->noperands == b->noperands &&
           (a->noperands == 0 || memcmp(a->operand, b->operand, (size_t)a->noperands * sizeof(tn_dim)) == 0);
}

static struct node *find_node(struct tn_dim_table *table, const struct tn_dim_node *key, uint64_t hash)
{
    for (struct node *n = table->bucket[hash % table->nbuckets]; n; n = n->next)
        if (n->hash == hash && same_node(&n->dim, key))
            return n;
    return NULL;
}

static void grow_table(tn_session *session, struct tn_dim_table *table)
{
    size_t nbuckets = table->nbuckets * 4;
    struct node **bucket = TN_NEW_ARRAY(&session->arena, struct node *, nbuckets);
    for (size_t i = 0; i < table->nbuckets; i++)
        for (struct node *n = table->bucket[i], *next; n; n = next) {
            next = n->next;
            n->next = bucket[n->hash % nbuckets];
            bucket[n->hash % nbuckets] = n;
        }
    table->bucket = bucket;
    table->nbuckets = nbuckets;
}

static struct node *insert_node(tn_session *session, const struct tn_dim_node *key, uint64_t hash)
{
    struct tn_dim_table *table = table_of(session);
    if (table->len > table->nbuckets)
        grow_table(session, table);
    struct node *n = TN_NEW(&session->arena, struct node);
    n->dim = *key;
    if (key->noperands)
        n->dim.operand = tn_memdup(&session->arena, key->operand, (size_t)key->noperands * sizeof(tn_dim));
    n->dim.id = (uint32_t)table->len++;
    n->hash = hash;
    n->next = table->bucket[hash % table->nbuckets];
    table->bucket[hash % table->nbuckets] = n;
    n->weight = 1;
    for (int i = 0; i < key->noperands; i++)
        n->weight += weight_of(key->operand[i]);
    return n;
}

struct range {
    int64_t lo, hi;
};

static void set_facts(struct node *n);
static struct range poly_bounds(tn_session *session, const struct poly *p);

static tn_dim intern(tn_session *session, const struct tn_dim_node *key)
{
    uint64_t hash = hash_node(key);
    struct node *n = find_node(table_of(session), key, hash);
    if (!n) {
        n = insert_node(session, key, hash);
        set_facts(n);
    }
    return &n->dim;
}

tn_dim tn_dim_const(tn_session *session, int64_t value)
{
    return intern(session, &(struct tn_dim_node){.kind = TN_DIM_CONST, .value = value});
}

/* Rounds the range inward to multiples. */
static void declare_range(struct node *n, int64_t lo, int64_t hi, int64_t multiple)
{
    n->dim.multiple = multiple;
    n->dim.lo = clamp_bound(multiple > 1 ? (__int128)tn_ceildiv(lo, multiple) * multiple : lo);
    n->dim.hi = clamp_bound(multiple > 1 ? (__int128)tn_floordiv(hi, multiple) * multiple : hi);
}

static struct node *find_symbol(tn_session *session, const char *interned_name)
{
    struct tn_dim_node key = {.kind = TN_DIM_SYMBOL, .name = interned_name};
    return find_node(table_of(session), &key, hash_node(&key));
}

static tn_dim new_symbol(tn_session *session, const char *interned_name, int64_t lo, int64_t hi, int64_t multiple)
{
    struct tn_dim_node key = {.kind = TN_DIM_SYMBOL, .name = interned_name};
    struct node *n = insert_node(session, &key, hash_node(&key));
    declare_range(n, lo, hi, multiple);
    return &n->dim;
}

tn_dim tn_dim_symbol(tn_session *session, const char *name)
{
    const char *interned = tn_intern_z(session, name);
    struct node *n = find_symbol(session, interned);
    return n ? &n->dim : new_symbol(session, interned, 0, DEFAULT_HIGH, 1);
}

tn_dim tn_dim_declare(tn_session *session, const char *name, int64_t lo, int64_t hi, int64_t multiple)
{
    const char *interned = tn_intern_z(session, name);
    struct node *n = find_symbol(session, interned), wanted = {0};
    if (multiple < 1)
        multiple = 1;
    declare_range(&wanted, lo, hi, multiple);
    if (wanted.dim.lo > wanted.dim.hi) {
        tn_error(session, TN_INVALID, TN_NO_LOC, "symbol '%s': the range [%lld, %lld] holds no multiple of %lld", name,
                 (long long)lo, (long long)hi, (long long)multiple);
        return tn_dim_symbol(session, name);
    }
    if (!n)
        return new_symbol(session, interned, lo, hi, multiple);
    if (n->dim.lo != wanted.dim.lo || n->dim.hi != wanted.dim.hi || n->dim.multiple != wanted.dim.multiple)
        tn_error(session, TN_INVALID, TN_NO_LOC,
                 "symbol '%s' is declared with range [%lld, %lld] multiple %lld after it was used with [%lld, %lld] "
                 "multiple %lld; declare it once, before its first use",
                 name, (long long)lo, (long long)hi, (long long)multiple, (long long)n->dim.lo, (long long)n->dim.hi,
                 (long long)n->dim.multiple);
    return &n->dim;
}

tn_dim tn_dim_fresh(tn_session *session, const char *hint, int64_t lo, int64_t hi)
{
    const char *name = tn_intern_z(session, hint);
    void **made = tn_map_at_str(&table_of(session)->fresh, hint);
    for (uintptr_t i = (uintptr_t)*made; find_symbol(session, name); *made = (void *)i)
        name = tn_intern_z(session, tn_format(&session->arena, "%s_%zu", hint, (size_t)++i));
    return new_symbol(session, name, lo, hi < lo ? lo : hi, 1);
}

tn_dim tn_dim_known(tn_session *session, const char *name)
{
    struct node *n = find_symbol(session, tn_intern_z(session, name));
    return n ? &n->dim : NULL;
}

/* The caller that knows the location sees that session->errors grew. */
static tn_dim fail(tn_session *session, tn_status status, const char *why)
{
    tn_error(session, status, TN_NO_LOC, "the size of a dimension cannot be computed: %s", why);
    return tn_dim_symbol(session, "invalid");
}

static tn_dim fail_size(tn_session *session)
{
    return fail(session, TN_UNSUPPORTED,
                "its expression has too many terms or its constants exceed 64 bits; give some symbols a fixed size");
}

/* ---- polynomials -------------------------------------------------------------------------------------------------------- */

static bool poly_add_term(struct poly *p, int64_t coefficient, tn_dim mono)
{
    int at = 0;
    while (at < p->n && compare_mono(p->term[at].mono, mono) < 0)
        at++;
    if (at < p->n && p->term[at].mono == mono) {
        if (!tn_add(p->term[at].coefficient, coefficient, &p->term[at].coefficient))
            return false;
        if (p->term[at].coefficient == 0) {
            memmove(&p->term[at], &p->term[at + 1], (size_t)(p->n - at - 1) * sizeof *p->term);
            p->n--;
        }
        return true;
    }
    if (coefficient == 0)
        return true;
    if (p->n == MAX_TERMS)
        return false;
    memmove(&p->term[at + 1], &p->term[at], (size_t)(p->n - at) * sizeof *p->term);
    p->term[at] = (struct term){coefficient, mono};
    p->n++;
    return true;
}

/* p += scale * q */
static bool poly_add(struct poly *p, const struct poly *q, int64_t scale)
{
    int64_t c;
    if (!tn_mul(q->constant, scale, &c) || !tn_add(p->constant, c, &p->constant))
        return false;
    for (int i = 0; i < q->n; i++)
        if (!tn_mul(q->term[i].coefficient, scale, &c) || !poly_add_term(p, c, q->term[i].mono))
            return false;
    return true;
}

static tn_dim intern_product(tn_session *session, const tn_dim *operand, int n)
{
    if (n == 1)
        return operand[0];
    return intern(session, &(struct tn_dim_node){.kind = TN_DIM_MUL, .operand = operand, .noperands = n});
}

/* Splits a summand into coefficient and monomial. Monomials of interned products exist already. */
static struct term term_of(tn_session *session, tn_dim d)
{
    if (d->kind == TN_DIM_MUL && d->operand[0]->kind == TN_DIM_CONST)
        return (struct term){d->operand[0]->value, intern_product(session, d->operand + 1, d->noperands - 1)};
    return (struct term){1, d};
}

/* A node's operands are sorted as the polynomial's terms are: no search is needed. */
static void poly_of(tn_session *session, tn_dim d, struct poly *p)
{
    p->constant = 0;
    p->n = 0;
    if (d->kind == TN_DIM_CONST) {
        p->constant = d->value;
    } else if (d->kind == TN_DIM_ADD) {
        for (int i = 0; i < d->noperands; i++) {
            if (d->operand[i]->kind == TN_DIM_CONST)
                p->constant = d->operand[i]->value;
            else
                p->term[p->n++] = term_of(session, d->operand[i]);
        }
    } else {
        p->term[p->n++] = term_of(session, d);
    }
}

static tn_dim dim_of_term(tn_session *session, const struct term *t)
{
    if (t->coefficient == 1)
        return t->mono;
    tn_dim operand[MAX_DEGREE + 1] = {tn_dim_const(session, t->coefficient)};
    int n;
    const tn_dim *atoms = atoms_of(&t->mono, &n);
    memcpy(operand + 1, atoms, (size_t)n * sizeof *atoms);
    return intern_product(session, operand, n + 1);
}

static tn_dim dim_of_poly(tn_session *session, const struct poly *p)
{
    tn_dim operand[MAX_TERMS + 1];
    int n = 0, weight = 1;
    for (int i = 0; i < p->n; i++, n++) {
        operand[n] = dim_of_term(session, &p->term[i]);
        weight += weight_of(operand[n]);
    }
    if (n == 0 || p->constant != 0)
        operand[n++] = tn_dim_const(session, p->constant);
    if (n == 1)
        return operand[0];
    if (weight > MAX_WEIGHT)
        return fail_size(session);
    struct tn_dim_node key = {.kind = TN_DIM_ADD, .operand = operand, .noperands = n};
    uint64_t hash = hash_node(&key);
    struct node *sum = find_node(table_of(session), &key, hash);
    if (!sum) {
        sum = insert_node(session, &key, hash);
        set_facts(sum);
        struct range r = poly_bounds(session, p);
        sum->dim.lo = tn_max(sum->dim.lo, r.lo);
        sum->dim.hi = tn_min(sum->dim.hi, r.hi);
    }
    return &sum->dim;
}

static bool multiply_poly(tn_session *session, const struct poly *a, const struct poly *b, struct poly *out);

/* Exact division undone: c * floordiv(x, c) is x when c divides x, and g * floordiv(x, g * c) is floordiv(x, c). */
static bool add_product_with_exact_division(tn_session *session, struct poly *p, int64_t coefficient, const tn_dim *atom,
                                            int n, bool *done)
{
    for (int i = 0; i < n; i++) {
        tn_dim d = atom[i];
        if (d->kind != TN_DIM_FLOORDIV || !tn_dim_is_const(d->operand[1]))
            continue;
        int64_t c = d->operand[1]->value, g = gcd(coefficient, c);
        if (g == 1 || d->operand[0]->multiple % c != 0)
            continue;
        struct poly x, rest = {.constant = coefficient / g}, product;
        poly_of(session, tn_dim_floordiv(session, d->operand[0], tn_dim_const(session, c / g)), &x);
        if (n > 1) {
            tn_dim others[MAX_DEGREE];
            memcpy(others, atom, (size_t)i * sizeof *atom);
            memcpy(others + i, atom + i + 1, (size_t)(n - i - 1) * sizeof *atom);
            rest = (struct poly){.n = 1, .term = {{coefficient / g, intern_product(session, others, n - 1)}}};
        }
        *done = true;
        return multiply_poly(session, &x, &rest, &product) && poly_add(p, &product, 1);
    }
    return true;
}

static bool add_product(tn_session *session, struct poly *p, int64_t coefficient, const tn_dim *atom, int n)
{
    bool done = false;
    if (!add_product_with_exact_division(session, p, coefficient, atom, n, &done) || done)
        return done;
    return poly_add_term(p, coefficient, intern_product(session, atom, n));
}

static int merge_atoms(tn_dim a, tn_dim b, tn_dim *out)
{
    int na, nb, i = 0, j = 0, n = 0;
    const tn_dim *x = atoms_of(&a, &na), *y = atoms_of(&b, &nb);
    if (na + nb > MAX_DEGREE)
        return 0;
    while (i < na || j < nb)
        out[n++] = j == nb || (i < na && compare(x[i], y[j]) <= 0) ? x[i++] : y[j++];
    return n;
}

/* out += factor * p, through add_product: a scaled coefficient can become divisible. */
static bool add_scaled(tn_session *session, const struct poly *p, int64_t factor, struct poly *out)
{
    int64_t c;
    if (!tn_mul(p->constant, factor, &c) || !tn_add(out->constant, c, &out->constant))
        return false;
    for (int i = 0; i < p->n && factor != 0; i++) {
        int n;
        const tn_dim *atoms = atoms_of(&p->term[i].mono, &n);
        if (!tn_mul(p->term[i].coefficient, factor, &c) || !add_product(session, out, c, atoms, n))
            return false;
    }
    return true;
}

static bool multiply_poly(tn_session *session, const struct poly *a, const struct poly *b, struct poly *out)
{
    struct poly b_terms = *b;
    b_terms.constant = 0;
    *out = (struct poly){.constant = 0};
    if (!add_scaled(session, a, b->constant, out) || !add_scaled(session, &b_terms, a->constant, out))
        return false;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            int64_t c;
            tn_dim product[MAX_DEGREE];
            int n = merge_atoms(a->term[i].mono, b->term[j].mono, product);
            if (n == 0 || !tn_mul(a->term[i].coefficient, b->term[j].coefficient, &c) ||
                !add_product(session, out, c, product, n))
                return false;
        }
    return true;
}

tn_dim tn_dim_add(tn_session *session, tn_dim a, tn_dim b)
{
    struct poly p, q;
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    if (q.n == 0)
        return tn_add(p.constant, q.constant, &p.constant) ? dim_of_poly(session, &p) : fail_size(session);
    struct poly sum = {.constant = 0};
    if (!poly_add(&p, &q, 1) || !add_scaled(session, &p, 1, &sum))
        return fail_size(session);
    return dim_of_poly(session, &sum);
}

static tn_dim scale(tn_session *session, tn_dim a, int64_t factor)
{
    struct poly p, k = {.constant = factor}, product;
    poly_of(session, a, &p);
    return multiply_poly(session, &k, &p, &product) ? dim_of_poly(session, &product) : fail_size(session);
}

tn_dim tn_dim_sub(tn_session *session, tn_dim a, tn_dim b) { return tn_dim_add(session, a, scale(session, b, -1)); }

tn_dim tn_dim_mul(tn_session *session, tn_dim a, tn_dim b)
{
    struct poly p, q, product;
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    return multiply_poly(session, &p, &q, &product) ? dim_of_poly(session, &product) : fail_size(session);
}

tn_dim tn_dim_product(tn_session *session, const tn_dim *dims, int n)
{
    tn_dim product = tn_dim_const(session, 1);
    for (int i = 0; i < n; i++)
        product = tn_dim_mul(session, product, dims[i]);
    return product;
}

/* ---- facts: bounds and multiples ------------------------------------------------------------------------------------------ */

static struct range range_scale(struct range r, int64_t c)
{
    int64_t a = clamp_bound((__int128)r.lo * c), b = clamp_bound((__int128)r.hi * c);
    return c >= 0 ? (struct range){a, b} : (struct range){b, a};
}

static struct range range_add(struct range a, struct range b)
{
    bool no_lo = a.lo == -UNBOUNDED || b.lo == -UNBOUNDED, no_hi = a.hi == UNBOUNDED || b.hi == UNBOUNDED;
    return (struct range){no_lo ? -UNBOUNDED : clamp_bound((__int128)a.lo + b.lo),
                          no_hi ? UNBOUNDED : clamp_bound((__int128)a.hi + b.hi)};
}

static struct range range_mul(struct range a, struct range b)
{
    int64_t p[4] = {clamp_bound((__int128)a.lo * b.lo), clamp_bound((__int128)a.lo * b.hi),
                    clamp_bound((__int128)a.hi * b.lo), clamp_bound((__int128)a.hi * b.hi)};
    struct range r = {p[0], p[0]};
    for (int i = 1; i < 4; i++)
        r = (struct range){tn_min(r.lo, p[i]), tn_max(r.hi, p[i])};
    return r;
}

static struct range range_of(tn_dim d) { return (struct range){d->lo, d->hi}; }

/* Quotients of the four corners; the divisor is at least 1 (other values make the division undefined). */
static struct range range_floordiv(struct range a, struct range b)
{
    int64_t lo_div = tn_max(b.lo, 1), hi_div = tn_max(b.hi, 1);
    struct range r;
    r.lo = a.lo == -UNBOUNDED ? a.lo : tn_min(tn_floordiv(a.lo, lo_div), tn_floordiv(a.lo, hi_div));
    r.hi = a.hi == UNBOUNDED ? a.hi : tn_max(tn_floordiv(a.hi, lo_div), tn_floordiv(a.hi, hi_div));
    return r;
}

static struct range poly_range(const struct poly *p)
{
    struct range r = {clamp_bound(p->constant), clamp_bound(p->constant)};
    for (int i = 0; i < p->n; i++)
        r = range_add(r, range_scale(range_of(p->term[i].mono), p->term[i].coefficient));
    return r;
}

/* p with term `at` taken out and `value`, scaled by that term's coefficient, put in; everything else times `times`. */
static bool replace_term(const struct poly *p, int at, const struct poly *value, int64_t times, struct poly *out)
{
    struct poly rest = *p;
    int64_t coefficient = p->term[at].coefficient;
    memmove(&rest.term[at], &rest.term[at + 1], (size_t)(p->n - at - 1) * sizeof *p->term);
    rest.n--;
    *out = (struct poly){0};
    return poly_add(out, &rest, times) && poly_add(out, value, coefficient);
}

static int64_t lower_bound(tn_session *session, const struct poly *p, int depth);

static int64_t lower_bound_with(tn_session *session, const struct poly *p, int at, const struct poly *value, int64_t times,
                                int depth)
{
    struct poly q;
    if (!replace_term(p, at, value, times, &q))
        return -UNBOUNDED;
    int64_t lo = lower_bound(session, &q, depth - 1);
    return lo <= -UNBOUNDED || lo >= UNBOUNDED ? lo : tn_ceildiv(lo, times);
}

/* Lower bound of p with the atom of term `at` replaced by what bounds it:
 *   c * floordiv(x, c) lies in [x - c + 1, x];  mod(x, c) <= x if x >= 0;
 *   min(x, y) <= x, y and is one of them; max likewise. */
static int64_t sharpen(tn_session *session, const struct poly *p, int at, int depth)
{
    tn_dim d = p->term[at].mono;
    bool positive = p->term[at].coefficient > 0;
    struct poly x, y;
    if (d->kind == TN_DIM_FLOORDIV && tn_dim_is_const(d->operand[1])) {
        int64_t c = d->operand[1]->value;
        poly_of(session, d->operand[0], &x);
        if (positive && !tn_sub(x.constant, c - 1, &x.constant))
            return -UNBOUNDED;
        return lower_bound_with(session, p, at, &x, c, depth);
    }
    if (d->kind == TN_DIM_MOD && !positive && d->operand[0]->lo >= 0) {
        poly_of(session, d->operand[0], &x);
        return lower_bound_with(session, p, at, &x, 1, depth);
    }
    if (d->kind != TN_DIM_MIN && d->kind != TN_DIM_MAX)
        return -UNBOUNDED;
    poly_of(session, d->operand[0], &x);
    poly_of(session, d->operand[1], &y);
    int64_t a = lower_bound_with(session, p, at, &x, 1, depth), b = lower_bound_with(session, p, at, &y, 1, depth);
    return (d->kind == TN_DIM_MIN) == positive ? tn_min(a, b) : tn_max(a, b);
}

static int64_t lower_bound(tn_session *session, const struct poly *p, int depth)
{
    int64_t best = poly_range(p).lo;
    for (int i = 0; i < p->n && depth > 0 && p->n > 1; i++)
        best = tn_max(best, sharpen(session, p, i, depth));
    return best;
}

/* Greatest number known to divide every term of p (its constant apart); 0: p is a constant. */
static int64_t terms_multiple(const struct poly *p)
{
    int64_t m = 0;
    for (int i = 0; i < p->n; i++)
        m = gcd(m, multiply_multiples(gcd(p->term[i].coefficient, 0), p->term[i].mono->multiple));
    return m;
}

static struct range poly_bounds(tn_session *session, const struct poly *p)
{
    int depth = p->n <= 4 ? 3 : p->n <= 8 ? 2 : 1; /* the work is a power of it */
    struct poly minus = {0};
    struct range r = {lower_bound(session, p, depth), UNBOUNDED};
    if (poly_add(&minus, p, -1))
        r.hi = clamp_bound(-(__int128)lower_bound(session, &minus, depth));
    return r;
}

/* Facts of a node from those of its operands; dim_of_poly sharpens those of sums. */
static void set_facts(struct node *n)
{
    struct tn_dim_node *d = &n->dim;
    struct range r = {-UNBOUNDED, UNBOUNDED}, a = {0, 0}, b = {0, 0};
    d->multiple = 1;
    if (d->noperands >= 2)
        a = range_of(d->operand[0]), b = range_of(d->operand[1]);
    switch (d->kind) {
    case TN_DIM_CONST:
        r = (struct range){clamp_bound(d->value), clamp_bound(d->value)};
        d->multiple = d->value == 0 ? 0 : gcd(d->value, 0);
        break;
    case TN_DIM_SYMBOL:
        break; /* declared */
    case TN_DIM_ADD:
        r = range_of(d->operand[0]);
        d->multiple = d->operand[0]->multiple;
        for (int i = 1; i < d->noperands; i++) {
            r = range_add(r, range_of(d->operand[i]));
            d->multiple = gcd(d->multiple, d->operand[i]->multiple);
        }
        break;
    case TN_DIM_MUL:
        r = a;
        d->multiple = d->operand[0]->multiple;
        for (int i = 1; i < d->noperands; i++) {
            r = range_mul(r, range_of(d->operand[i]));
            d->multiple = multiply_multiples(d->multiple, d->operand[i]->multiple);
        }
        break;
    case TN_DIM_FLOORDIV:
    case TN_DIM_CEILDIV:
        r = range_floordiv(a, b);
        if (tn_dim_is_const(d->operand[1]) && d->operand[0]->multiple % d->operand[1]->value == 0)
            d->multiple = d->operand[0]->multiple / d->operand[1]->value;
        break;
    case TN_DIM_MOD:
        r = (struct range){0, b.hi == UNBOUNDED ? UNBOUNDED : tn_max(b.hi - 1, 0)};
        if (a.lo >= 0)
            r.hi = tn_min(r.hi, a.hi);
        d->multiple = tn_max(1, gcd(d->operand[0]->multiple, d->operand[1]->multiple));
        break;
    case TN_DIM_MIN:
        r = (struct range){tn_min(a.lo, b.lo), tn_min(a.hi, b.hi)};
        d->multiple = gcd(d->operand[0]->multiple, d->operand[1]->multiple);
        break;
    case TN_DIM_MAX:
        r = (struct range){tn_max(a.lo, b.lo), tn_max(a.hi, b.hi)};
        d->multiple = gcd(d->operand[0]->multiple, d->operand[1]->multiple);
        break;
    }
    d->lo = r.lo;
    d->hi = r.hi;
}

/* ---- division ------------------------------------------------------------------------------------------------------------- */

static tn_dim intern_binary(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b)
{
    tn_dim operand[2] = {a, b};
    if (weight_of(a) + weight_of(b) > MAX_WEIGHT)
        return fail_size(session);
    return intern(session, &(struct tn_dim_node){.kind = kind, .operand = operand, .noperands = 2});
}

static bool divides(int64_t c, int64_t coefficient, int64_t multiple)
{
    return (__int128)(coefficient % c) * (multiple % c) % c == 0;
}

/* mono / c, c dividing it: inside the one factor that c divides, if there is one. */
static tn_dim exact_quotient(tn_session *session, tn_dim mono, int64_t c)
{
    int n, at = -1;
    const tn_dim *atom = atoms_of(&mono, &n);
    tn_dim divisor = tn_dim_const(session, c), rest[MAX_DEGREE];
    for (int i = 0; i < n && at < 0; i++)
        if (atom[i]->multiple % c == 0)
            at = i;
    if (at < 0)
        return intern_binary(session, TN_DIM_FLOORDIV, mono, divisor);
    int64_t c2;
    tn_dim a = atom[at], quotient;
    if (a->kind == TN_DIM_FLOORDIV && tn_dim_is_const(a->operand[1]) && tn_mul(a->operand[1]->value, c, &c2))
        quotient = tn_dim_floordiv(session, a->operand[0], tn_dim_const(session, c2));
    else
        quotient = intern_binary(session, TN_DIM_FLOORDIV, a, divisor);
    if (n == 1)
        return quotient;
    memcpy(rest, atom, (size_t)at * sizeof *atom);
    memcpy(rest + at, atom + at + 1, (size_t)(n - at - 1) * sizeof *atom);
    return tn_dim_mul(session, quotient, intern_product(session, rest, n - 1));
}

/* Adds the part of p that c divides, over c, to `whole`, the remainder to `rest`. */
static bool split_terms(tn_session *session, const struct poly *p, int64_t c, struct poly *whole, struct poly *rest)
{
    int64_t constant = tn_floordiv(p->constant, c), sum;
    if (!tn_add(whole->constant, constant, &whole->constant) || !tn_add(rest->constant, p->constant - constant * c, &sum))
        return false;
    rest->constant = sum;
    for (int i = 0; i < p->n; i++) {
        int64_t k = p->term[i].coefficient;
        tn_dim mono = p->term[i].mono;
        if (divides(c, k, mono->multiple) && k % c != 0) {
            int64_t g = gcd(k, c);
            struct poly q;
            poly_of(session, exact_quotient(session, mono, c / g), &q);
            if (!poly_add(whole, &q, k / g))
                return false;
        } else if (!poly_add_term(whole, k / c, mono) || !poly_add_term(rest, k % c, mono)) {
            return false;
        }
    }
    return true;
}

/* p = c * whole + rest with the rest's coefficients below c in magnitude, its constant in [0, c). The smaller coefficients
 * of the rest can undo exact divisions in it; then it is split again. */
static bool split_by_constant(tn_session *session, const struct poly *p, int64_t c, struct poly *whole, struct poly *rest)
{
    struct poly left = *p, sum = {0};
    *whole = (struct poly){0};
    for (;;) {
        *rest = (struct poly){0};
        struct poly normal = {0};
        if (!split_terms(session, &left, c, whole, rest) || !add_scaled(session, rest, 1, &normal))
            return false;
        bool same = normal.n == rest->n && normal.constant == rest->constant;
        for (int i = 0; same && i < rest->n; i++)
            same = normal.term[i].coefficient == rest->term[i].coefficient && normal.term[i].mono == rest->term[i].mono;
        if (same)
            break;
        left = normal;
    }
    if (!add_scaled(session, whole, 1, &sum))
        return false;
    *whole = sum;
    return true;
}

static int64_t coefficients_gcd(const struct poly *p, int64_t with)
{
    for (int i = 0; i < p->n; i++)
        with = gcd(with, p->term[i].coefficient);
    return with;
}

static tn_dim floordiv_constant(tn_session *session, tn_dim a, int64_t c);
static tn_dim combine(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b);

/* floor(p / c), p having no part that c divides. */
static tn_dim floordiv_rest(tn_session *session, struct poly *p, int64_t c)
{
    int64_t g = coefficients_gcd(p, c);
    for (int i = 0; i < p->n; i++)
        p->term[i].coefficient /= g;
    p->constant = tn_floordiv(p->constant, g);
    c /= g;
    int64_t m = gcd(c, terms_multiple(p)); /* the terms are multiples of m: so may the constant be */
    p->constant = tn_floordiv(p->constant, m) * m;
    struct range r = poly_bounds(session, p);
    if (r.lo > -UNBOUNDED && r.hi < UNBOUNDED && tn_floordiv(r.lo, c) == tn_floordiv(r.hi, c))
        return tn_dim_const(session, tn_floordiv(r.lo, c));
    tn_dim d = p->n == 1 && p->term[0].coefficient == 1 ? p->term[0].mono : NULL;
    if (d && d->kind == TN_DIM_FLOORDIV && tn_dim_is_const(d->operand[1])) {
        int64_t a = d->operand[1]->value, ac, ka;
        if (tn_mul(a, c, &ac) && tn_mul(a, p->constant, &ka))
            return tn_dim_floordiv(session, tn_dim_add(session, d->operand[0], tn_dim_const(session, ka)),
                                   tn_dim_const(session, ac));
    }
    if (d && (d->kind == TN_DIM_MIN || d->kind == TN_DIM_MAX) &&
        (tn_dim_is_const(d->operand[0]) || tn_dim_is_const(d->operand[1]))) { /* division is monotone */
        tn_dim k = tn_dim_const(session, p->constant);
        return combine(session, d->kind, floordiv_constant(session, tn_dim_add(session, d->operand[0], k), c),
                       floordiv_constant(session, tn_dim_add(session, d->operand[1], k), c));
    }
    return intern_binary(session, TN_DIM_FLOORDIV, dim_of_poly(session, p), tn_dim_const(session, c));
}

static tn_dim floordiv_constant(tn_session *session, tn_dim a, int64_t c)
{
    struct poly p, whole, rest;
    if (c == 1)
        return a;
    poly_of(session, a, &p);
    if (!split_by_constant(session, &p, c, &whole, &rest))
        return fail_size(session);
    tn_dim quotient = dim_of_poly(session, &whole);
    return rest.n == 0 ? quotient : tn_dim_add(session, quotient, floordiv_rest(session, &rest, c));
}

/* term / by, if it divides: the coefficient and every factor. n of the quotient's atoms; -1: it doesn't divide. */
static int divide_term(const struct term *term, const struct term *by, int64_t *coefficient, tn_dim *atom)
{
    int na, nb, n = 0, j = 0;
    const tn_dim *a = atoms_of(&term->mono, &na), *b = atoms_of(&by->mono, &nb);
    if (term->coefficient % by->coefficient != 0 || (by->coefficient == -1 && term->coefficient == INT64_MIN))
        return -1;
    for (int i = 0; i < na; i++) {
        if (j < nb && a[i] == b[j])
            j++;
        else
            atom[n++] = a[i];
    }
    *coefficient = term->coefficient / by->coefficient;
    return j == nb ? n : -1;
}

/* p / b without rest, by long division on the leading terms; b has a symbol. */
static bool divide_exactly(tn_session *session, const struct poly *p, const struct poly *b, struct poly *quotient)
{
    struct poly rest = *p;
    *quotient = (struct poly){0};
    for (int step = 0; rest.n > 0 && step < MAX_TERMS; step++) {
        int64_t c;
        tn_dim atom[MAX_DEGREE];
        int n = divide_term(&rest.term[0], &b->term[0], &c, atom);
        struct poly t = {.constant = n == 0 ? c : 0}, product;
        if (n < 0)
            return false;
        if (n > 0)
            t = (struct poly){.n = 1, .term = {{c, intern_product(session, atom, n)}}};
        if (!poly_add(quotient, &t, 1) || !multiply_poly(session, &t, b, &product) || !poly_add(&rest, &product, -1))
            return false;
    }
    return rest.n == 0 && rest.constant == 0;
}

/* Moves the terms that the one-term divisor b divides out of p. */
static bool split_by_term(tn_session *session, const struct poly *p, const struct term *b, struct poly *whole, struct poly *rest)
{
    *whole = (struct poly){0};
    *rest = (struct poly){.constant = p->constant};
    for (int i = 0; i < p->n; i++) {
        int64_t c;
        tn_dim atom[MAX_DEGREE];
        int n = divide_term(&p->term[i], b, &c, atom);
        if (n < 0 ? !poly_add_term(rest, p->term[i].coefficient, p->term[i].mono)
            : n > 0 ? !poly_add_term(whole, c, intern_product(session, atom, n))
                    : !tn_add(whole->constant, c, &whole->constant))
            return false;
    }
    return true;
}

/* Proven 0 <= p < b. */
static bool below(tn_session *session, const struct poly *p, const struct poly *b)
{
    struct poly room = *b;
    return poly_bounds(session, p).lo >= 0 && poly_add(&room, p, -1) && poly_bounds(session, &room).lo >= 1;
}

/* p = b * whole + rest as far as the forms show. */
static bool split_by_symbolic(tn_session *session, const struct poly *p, const struct poly *b, struct poly *whole, struct poly *rest)
{
    *rest = (struct poly){0};
    if (divide_exactly(session, p, b, whole))
        return true;
    *whole = (struct poly){0};
    *rest = *p;
    return b->n > 1 || b->constant != 0 || split_by_term(session, p, &b->term[0], whole, rest);
}

tn_dim tn_dim_floordiv(tn_session *session, tn_dim a, tn_dim b)
{
    if (b->hi <= 0)
        return fail(session, TN_INVALID, "a division by zero or by a negative size");
    if (tn_dim_is_const(b))
        return floordiv_constant(session, a, b->value);
    struct poly p, q, whole, rest;
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    if (!split_by_symbolic(session, &p, &q, &whole, &rest))
        return fail_size(session);
    tn_dim quotient = dim_of_poly(session, &whole);
    if ((rest.n == 0 && rest.constant == 0) || below(session, &rest, &q))
        return quotient;
    return tn_dim_add(session, quotient, intern_binary(session, TN_DIM_FLOORDIV, dim_of_poly(session, &rest), b));
}

tn_dim tn_dim_ceildiv(tn_session *session, tn_dim a, tn_dim b)
{
    tn_dim up = tn_dim_sub(session, b, tn_dim_const(session, 1));
    return tn_dim_floordiv(session, tn_dim_add(session, a, up), b);
}

/* p mod c, p's coefficients and constant reduced. */
static tn_dim mod_rest(tn_session *session, struct poly *p, int64_t c)
{
    struct range r = poly_bounds(session, p);
    if (r.lo > -UNBOUNDED && r.hi < UNBOUNDED && tn_floordiv(r.lo, c) == tn_floordiv(r.hi, c)) {
        p->constant -= tn_floordiv(r.lo, c) * c;
        return dim_of_poly(session, p);
    }
    int64_t g = coefficients_gcd(p, c);
    if (g > 1) { /* mod(g*x + g*k + r, g*c) = g * mod(x + k, c) + r */
        int64_t k = tn_floordiv(p->constant, g), left = p->constant - k * g;
        for (int i = 0; i < p->n; i++)
            p->term[i].coefficient /= g;
        p->constant = k;
        tn_dim inner = mod_rest(session, p, c / g);
        return tn_dim_add(session, scale(session, inner, g), tn_dim_const(session, left));
    }
    tn_dim d = p->n == 1 && p->term[0].coefficient == 1 ? p->term[0].mono : NULL;
    if (d && d->kind == TN_DIM_MOD && tn_dim_is_const(d->operand[1]) && d->operand[1]->value % c == 0)
        return tn_dim_mod(session, tn_dim_add(session, d->operand[0], tn_dim_const(session, p->constant)),
                          tn_dim_const(session, c));
    return intern_binary(session, TN_DIM_MOD, dim_of_poly(session, p), tn_dim_const(session, c));
}

tn_dim tn_dim_mod(tn_session *session, tn_dim a, tn_dim b)
{
    struct poly p, q, whole, rest;
    if (b->hi <= 0)
        return fail(session, TN_INVALID, "a remainder of a division by zero or by a negative size");
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    bool constant = tn_dim_is_const(b);
    if (!(constant ? split_by_constant(session, &p, b->value, &whole, &rest)
                   : split_by_symbolic(session, &p, &q, &whole, &rest)))
        return fail_size(session);
    if (constant && rest.n > 0)
        return mod_rest(session, &rest, b->value);
    if (rest.n == 0 && (constant || rest.constant == 0))
        return tn_dim_const(session, rest.constant);
    if (below(session, &rest, &q))
        return dim_of_poly(session, &rest);
    return intern_binary(session, TN_DIM_MOD, dim_of_poly(session, &rest), b);
}

static tn_dim extremum(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b);

/* max(max(x, y) + k, b) is max(x + k, b) when y + k <= b; min likewise. NULL: a is not of that form. */
static tn_dim absorb(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b)
{
    struct poly p;
    poly_of(session, a, &p);
    if (p.n != 1 || p.term[0].coefficient != 1 || p.term[0].mono->kind != kind)
        return NULL;
    for (int i = 0; i < 2; i++) {
        tn_dim k = tn_dim_const(session, p.constant);
        tn_dim y = tn_dim_add(session, p.term[0].mono->operand[i], k);
        if (kind == TN_DIM_MAX ? tn_dim_le(session, y, b) : tn_dim_le(session, b, y))
            return extremum(session, kind, tn_dim_add(session, p.term[0].mono->operand[1 - i], k), b);
    }
    return NULL;
}

static tn_dim extremum(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b)
{
    if (tn_dim_le(session, a, b))
        return kind == TN_DIM_MIN ? a : b;
    if (tn_dim_le(session, b, a))
        return kind == TN_DIM_MIN ? b : a;
    tn_dim absorbed = absorb(session, kind, a, b);
    if (!absorbed)
        absorbed = absorb(session, kind, b, a);
    if (absorbed)
        return absorbed;
    bool in_order = tn_dim_is_const(b) || (!tn_dim_is_const(a) && compare(a, b) < 0); /* a constant reads better last */
    return in_order ? intern_binary(session, kind, a, b) : intern_binary(session, kind, b, a);
}

tn_dim tn_dim_min(tn_session *session, tn_dim a, tn_dim b) { return extremum(session, TN_DIM_MIN, a, b); }
tn_dim tn_dim_max(tn_session *session, tn_dim a, tn_dim b) { return extremum(session, TN_DIM_MAX, a, b); }

/* ---- proofs ----------------------------------------------------------------------------------------------------------------- */

/* a - b, with mod(x, c) written as x - c * floordiv(x, c). */
static bool difference(tn_session *session, tn_dim a, tn_dim b, struct poly *out)
{
    struct poly p, q;
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    if (!poly_add(&p, &q, -1))
        return false;
    *out = (struct poly){.constant = p.constant};
    for (int i = 0; i < p.n; i++) {
        tn_dim d = p.term[i].mono;
        int64_t k = p.term[i].coefficient, kc;
        if (d->kind == TN_DIM_MOD && tn_dim_is_const(d->operand[1]) && tn_mul(-k, d->operand[1]->value, &kc)) {
            struct poly x, quotient;
            poly_of(session, d->operand[0], &x);
            poly_of(session, tn_dim_floordiv(session, d->operand[0], d->operand[1]), &quotient);
            if (!poly_add(out, &x, k) || !poly_add(out, &quotient, kc))
                return false;
        } else if (!poly_add_term(out, k, d)) {
            return false;
        }
    }
    return true;
}

/* Bounds of a - b, with mod both as it is and expanded. */
static bool difference_bounds(tn_session *session, tn_dim a, tn_dim b, struct range *out)
{
    struct poly p, q;
    poly_of(session, a, &p);
    poly_of(session, b, &q);
    if (!poly_add(&p, &q, -1) || !difference(session, a, b, &q))
        return false;
    struct range plain = poly_bounds(session, &p), expanded = poly_bounds(session, &q);
    *out = (struct range){tn_max(plain.lo, expanded.lo), tn_min(plain.hi, expanded.hi)};
    return true;
}

bool tn_dim_le(tn_session *session, tn_dim a, tn_dim b)
{
    struct range r;
    if (a == b || (a->hi < UNBOUNDED && b->lo > -UNBOUNDED && a->hi <= b->lo))
        return true;
    return difference_bounds(session, a, b, &r) && r.hi <= 0;
}

bool tn_dim_eq(tn_session *session, tn_dim a, tn_dim b)
{
    struct poly p;
    if (a == b)
        return true;
    if (tn_dim_is_const(a) && tn_dim_is_const(b))
        return false;
    if (difference(session, a, b, &p) && p.n == 0)
        return p.constant == 0;
    struct range r;
    return difference_bounds(session, a, b, &r) && r.lo == 0 && r.hi == 0;
}

bool tn_dim_ne(tn_session *session, tn_dim a, tn_dim b)
{
    struct poly p;
    struct range r;
    if (a == b)
        return false;
    if (tn_dim_is_const(a) && tn_dim_is_const(b))
        return true;
    if (difference_bounds(session, a, b, &r) && (r.lo > 0 || r.hi < 0))
        return true;
    if (!difference(session, a, b, &p))
        return false;
    int64_t m = terms_multiple(&p);
    return m == 0 ? p.constant != 0 : p.constant % m != 0;
}

/* ---- evaluation, substitution ------------------------------------------------------------------------------------------------ */

static bool eval_binary(tn_dim_kind kind, int64_t a, int64_t b, int64_t *out)
{
    switch (kind) {
    case TN_DIM_ADD:
        return tn_add(a, b, out);
    case TN_DIM_MUL:
        return tn_mul(a, b, out);
    case TN_DIM_MIN:
        *out = tn_min(a, b);
        return true;
    case TN_DIM_MAX:
        *out = tn_max(a, b);
        return true;
    default:
        break;
    }
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    int64_t floor = tn_floordiv(a, b);
    *out = kind == TN_DIM_MOD ? a - floor * b : kind == TN_DIM_CEILDIV && floor * b != a ? floor + 1 : floor;
    return true;
}

bool tn_dim_eval(tn_dim d, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context, int64_t *out)
{
    if (d->kind == TN_DIM_CONST) {
        *out = d->value;
        return true;
    }
    if (d->kind == TN_DIM_SYMBOL)
        return lookup(context, d->name, out);
    int64_t value, next;
    if (!tn_dim_eval(d->operand[0], lookup, context, &value))
        return false;
    for (int i = 1; i < d->noperands; i++)
        if (!tn_dim_eval(d->operand[i], lookup, context, &next) || !eval_binary(d->kind, value, next, &value))
            return false;
    *out = value;
    return true;
}

static tn_dim combine(tn_session *session, tn_dim_kind kind, tn_dim a, tn_dim b)
{
    switch (kind) {
    case TN_DIM_ADD:
        return tn_dim_add(session, a, b);
    case TN_DIM_MUL:
        return tn_dim_mul(session, a, b);
    case TN_DIM_FLOORDIV:
        return tn_dim_floordiv(session, a, b);
    case TN_DIM_CEILDIV:
        return tn_dim_ceildiv(session, a, b);
    case TN_DIM_MOD:
        return tn_dim_mod(session, a, b);
    case TN_DIM_MIN:
        return tn_dim_min(session, a, b);
    default:
        return tn_dim_max(session, a, b);
    }
}

tn_dim tn_dim_subst(tn_session *session, tn_dim d, tn_dim (*subst)(void *context, tn_dim symbol), void *context)
{
    if (d->kind == TN_DIM_CONST)
        return d;
    if (d->kind == TN_DIM_SYMBOL)
        return subst(context, d);
    tn_dim value = tn_dim_subst(session, d->operand[0], subst, context);
    for (int i = 1; i < d->noperands; i++)
        value = combine(session, d->kind, value, tn_dim_subst(session, d->operand[i], subst, context));
    return value;
}

void tn_dim_symbols(tn_dim d, void (*visit)(void *context, tn_dim symbol), void *context)
{
    if (d->kind == TN_DIM_SYMBOL)
        visit(context, d);
    for (int i = 0; i < d->noperands; i++)
        tn_dim_symbols(d->operand[i], visit, context);
}

bool tn_dim_mentions(tn_dim d, const char *name)
{
    bool found = d->kind == TN_DIM_SYMBOL && !strcmp(d->name, name);
    for (int i = 0; !found && i < d->noperands; i++)
        found = tn_dim_mentions(d->operand[i], name);
    return found;
}

bool tn_dim_has_default_facts(tn_dim symbol)
{
    return symbol->lo == 0 && symbol->hi == DEFAULT_HIGH && symbol->multiple == 1;
}

/* ---- text ---------------------------------------------------------------------------------------------------------------------- */

static void text_product(tn_text *text, tn_dim d, bool negate)
{
    int64_t c = d->operand[0]->kind == TN_DIM_CONST ? d->operand[0]->value : 1;
    bool first = true;
    if (c != 1 && !(negate && c == -1)) {
        if (c == -1)
            tn_text_add(text, "-");
        else if (negate)
            tn_text_add(text, "%llu*", (unsigned long long)-(uint64_t)c);
        else
            tn_text_add(text, "%lld*", (long long)c);
    }
    for (int i = d->operand[0]->kind == TN_DIM_CONST; i < d->noperands; i++, first = false) {
        if (!first)
            tn_text_add(text, "*");
        tn_text_dim(text, d->operand[i]);
    }
}

static bool is_negative(tn_dim d)
{
    return (d->kind == TN_DIM_CONST && d->value < 0) ||
           (d->kind == TN_DIM_MUL && d->operand[0]->kind == TN_DIM_CONST && d->operand[0]->value < 0);
}

static void text_sum(tn_text *text, const tn_dim *operand, int n)
{
    tn_text_dim(text, operand[0]);
    for (int i = 1; i < n; i++) {
        tn_dim d = operand[i];
        tn_text_add(text, is_negative(d) ? " - " : " + ");
        if (!is_negative(d))
            tn_text_dim(text, d);
        else if (d->kind == TN_DIM_CONST)
            tn_text_add(text, "%llu", (unsigned long long)-(uint64_t)d->value);
        else
            text_product(text, d, true);
    }
}

/* floordiv(x + c - 1, c) is written ceildiv(x, c). */
static bool text_ceildiv(tn_text *text, tn_dim d)
{
    tn_dim x = d->operand[0], c = d->operand[1];
    if (!tn_dim_is_const(c) || x->kind != TN_DIM_ADD || !tn_dim_is(x->operand[x->noperands - 1], c->value - 1))
        return false;
    tn_text_add(text, "ceildiv(");
    text_sum(text, x->operand, x->noperands - 1);
    tn_text_add(text, ", %lld)", (long long)c->value);
    return true;
}

static void text_call(tn_text *text, const char *name, tn_dim d)
{
    tn_text_add(text, "%s(", name);
    tn_text_dim(text, d->operand[0]);
    tn_text_add(text, ", ");
    tn_text_dim(text, d->operand[1]);
    tn_text_add(text, ")");
}

void tn_text_dim(tn_text *text, tn_dim d)
{
    switch (d->kind) {
    case TN_DIM_CONST:
        tn_text_add(text, "%lld", (long long)d->value);
        break;
    case TN_DIM_SYMBOL:
        tn_text_symbol(text, d->name);
        break;
    case TN_DIM_ADD:
        text_sum(text, d->operand, d->noperands);
        break;
    case TN_DIM_MUL:
        text_product(text, d, false);
        break;
    case TN_DIM_FLOORDIV:
        if (!text_ceildiv(text, d))
            text_call(text, "floordiv", d);
        break;
    case TN_DIM_CEILDIV:
        text_call(text, "ceildiv", d);
        break;
    case TN_DIM_MOD:
        text_call(text, "mod", d);
        break;
    case TN_DIM_MIN:
        text_call(text, "min", d);
        break;
    case TN_DIM_MAX:
        text_call(text, "max", d);
        break;
    }
}

/* Recursive descent: sum = product {("+" | "-") product}; product = factor {"*" factor};
 * factor = integer | "-" factor | "(" sum ")" | function "(" sum "," sum ")" | symbol. NULL: malformed. */
struct reader {
    tn_session *session;
    const char *at;
    int depth;
};

static bool eat(struct reader *r, char c)
{
    while (*r->at == ' ')
        r->at++;
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

static tn_dim read_sum(struct reader *r);

static tn_dim read_integer(struct reader *r, bool negative)
{
    int64_t value = 0;
    for (; isdigit((unsigned char)*r->at); r->at++) {
        int64_t digit = *r->at - '0';
        if (!tn_mul(value, 10, &value) || !tn_add(value, negative ? -digit : digit, &value))
            return NULL;
    }
    return tn_dim_const(r->session, value);
}

static tn_dim read_call(struct reader *r, tn_dim_kind kind)
{
    tn_dim a = eat(r, '(') ? read_sum(r) : NULL;
    tn_dim b = a && eat(r, ',') ? read_sum(r) : NULL;
    if (!b || !eat(r, ')'))
        return NULL;
    bool division = kind != TN_DIM_MIN && kind != TN_DIM_MAX;
    return division && b->hi <= 0 ? NULL : combine(r->session, kind, a, b);
}

static tn_dim read_name(struct reader *r)
{
    static const struct {
        const char *name;
        tn_dim_kind kind;
    } function[] = {{"floordiv", TN_DIM_FLOORDIV}, {"ceildiv", TN_DIM_CEILDIV}, {"mod", TN_DIM_MOD}, {"min", TN_DIM_MIN}, {"max", TN_DIM_MAX}};
    const char *name;
    size_t used = tn_symbol_parse(r->session, r->at, &name);
    if (!used)
        return NULL;
    bool quoted = *r->at == '"';
    r->at += used;
    for (size_t i = 0; !quoted && *r->at == '(' && i < TN_COUNT(function); i++)
        if (strcmp(name, function[i].name) == 0)
            return read_call(r, function[i].kind);
    return tn_dim_symbol(r->session, name);
}

static tn_dim read_factor(struct reader *r)
{
    if (eat(r, '(')) {
        tn_dim d = read_sum(r);
        return d && eat(r, ')') ? d : NULL;
    }
    if (eat(r, '-')) {
        if (isdigit((unsigned char)*r->at))
            return read_integer(r, true);
        tn_dim d = r->depth++ < MAX_PARSE_DEPTH ? read_factor(r) : NULL;
        r->depth--;
        return d ? scale(r->session, d, -1) : NULL;
    }
    return isdigit((unsigned char)*r->at) ? read_integer(r, false) : read_name(r);
}

static tn_dim read_product(struct reader *r)
{
    tn_dim d = read_factor(r);
    while (d && eat(r, '*')) {
        tn_dim next = read_factor(r);
        d = next ? tn_dim_mul(r->session, d, next) : NULL;
    }
    return d;
}

static tn_dim read_sum(struct reader *r)
{
    if (r->depth++ >= MAX_PARSE_DEPTH)
        return NULL;
    tn_dim d = read_product(r);
    while (d) {
        bool minus = eat(r, '-');
        if (!minus && !eat(r, '+'))
            break;
        tn_dim next = read_product(r);
        d = !next ? NULL : minus ? tn_dim_sub(r->session, d, next) : tn_dim_add(r->session, d, next);
    }
    r->depth--;
    return d;
}

size_t tn_dim_parse(tn_session *session, const char *text, tn_dim *out)
{
    struct reader r = {.session = session, .at = text};
    *out = read_sum(&r);
    while (*out && r.at > text && r.at[-1] == ' ')
        r.at--;
    return *out ? (size_t)(r.at - text) : 0;
}
