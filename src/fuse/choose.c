/* Candidates of a kernel's schedule: what the tuner is told of them. */
#include <stdlib.h>
#include <string.h>

#include "fuse/internal.h"

bool fuse_is_asked(const fuser *F) { return F->options->chooser.choose != NULL; }

static bool same_values(const tn_candidate *a, const int64_t *values, int n) { return memcmp(a->value, values, sizeof *values * (size_t)n) == 0; }

void fuse_add_candidate(fuser *F, fuse_candidates *c, const int64_t *values, double ns)
{
    tn_candidate one = {.ns = ns};
    for (size_t i = 0; i < c->list.len; i++)
        if (same_values(&c->list.at[i], values, c->nfields))
            return;
    memcpy(one.value, values, sizeof *values * (size_t)c->nfields);
    TN_PUSH(F->arena, &c->list, one);
}

void fuse_add_neighbours(fuser *F, fuse_candidates *c, const int64_t *values, const int64_t *least, const int64_t *most, double ns)
{
    int64_t at[TN_CHOICE_FIELDS];
    int all = 1;
    for (int f = 0; f < c->nfields; f++)
        all *= 3;
    for (int number = 0; number < all; number++) {
        int steps = 0, rest = number;
        bool there = true;
        for (int f = 0; f < c->nfields; f++, rest /= 3) {
            steps += rest % 3 > 0;
            at[f] = rest % 3 == 0 ? values[f] : rest % 3 == 1 ? values[f] / 2 : values[f] * 2;
            there &= rest % 3 == 0 || (rest % 3 == 1 ? values[f] % 2 == 0 && at[f] >= least[f] : at[f] <= most[f]);
        }
        if (there)
            fuse_add_candidate(F, c, at, ns * (1 + steps / 10.0));
    }
}

/* ---- the order ---------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    tn_candidate candidate;
    bool again; /* a better one has its tile */
    size_t at;
} ranked;

static int by_estimate(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->again != y->again)
        return x->again - y->again;
    if (x->candidate.ns != y->candidate.ns)
        return x->candidate.ns < y->candidate.ns ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* All but the first; twice: what is `again` shows when they are in order. */
static void sort(fuser *F, fuse_candidates *c)
{
    size_t n = c->list.len;
    ranked *all = TN_NEW_ARRAY(F->arena, ranked, n);
    for (size_t i = 0; i < n; i++)
        all[i] = (ranked){c->list.at[i], false, i};
    qsort(all + 1, n - 1, sizeof *all, by_estimate);
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i && !all[i].again; k++)
            all[i].again = same_values(&all[k].candidate, all[i].candidate.value, c->tile);
    qsort(all + 1, n - 1, sizeof *all, by_estimate);
    for (size_t i = 0; i < n; i++)
        c->list.at[i] = all[i].candidate;
}

/* ---- the key ------------------------------------------------------------------------------------------------------------ */

/* Of a stored value: its type, where neighbours along each dim lie, whether it is fixed, and how much of it is guarded. */
static void text_stored(tn_text *text, fuser *F, const group *g, const location *l, const fmap *m)
{
    const tn_pbuffer *buffer = &F->program->buffers.at[l->buffer];
    tn_text_add(text, "%s%s [", buffer->kind == TN_B_CONSTANT || buffer->persistent ? "fixed " : "", tn_dtype_text(buffer->type.dtype));
    for (int at = 0; at < g->ndims; at++) {
        tn_text_add(text, at ? ", " : "");
        tn_text_dim(text, fuse_total_stride(F, l, m, g->order[at]));
    }
    tn_text_add(text, "]");
    if (!tn_dim_is(l->offset, 0)) {
        tn_text_add(text, " at ");
        tn_text_dim(text, l->offset);
    }
    for (int i = 0; i < m->rank; i++)
        if (m->c[i].dyn)
            tn_text_add(text, " by index");
    for (const fguard *q = m->guards; q; q = q->next)
        tn_text_add(text, " guarded");
}

static size_t number_of(const group *g, const demand *d)
{
    size_t i = 0;
    while (g->demands.at[i] != d)
        i++;
    return i;
}

static void text_operand(tn_text *text, fuser *F, group *g, demand *d, int i)
{
    const tn_value *x = tn_operand(d->op, i);
    if (d->arg[i])
        tn_text_add(text, "%%%zu", number_of(g, d->arg[i]));
    else if (fuse_single_constant(x))
        tn_text_add(text, "constant %s", tn_dtype_text(x->type.dtype));
    else if (d->argmap[i])
        text_stored(text, F, g, fuse_location(F, x), d->argmap[i]);
    else
        tn_text_add(text, "stored %s", tn_dtype_text(x->type.dtype));
}

static const char *group_key(fuser *F, group *g, const char *stem)
{
    tn_text text = {.arena = F->arena};
    tn_text_add(&text, "%s numerics %d precision %d\n", stem, (int)F->options->numerics, (int)F->options->precision);
    for (int at = 0; at < g->ndims; at++) {
        const gdim *dim = &g->dim[g->order[at]];
        tn_text_add(&text, "%sdim ", at ? ", " : "");
        tn_text_dim(&text, dim->extent);
        tn_text_add(&text, "%s%s", dim->fold ? " folded" : "", dim->absorbed ? " merged" : "");
    }
    tn_text_add(&text, "\n");
    for (size_t k = 0; k < g->demands.len; k++) {
        demand *d = g->demands.at[k];
        tn_text_add(&text, "%%%zu = %s", k, tn_op_name(d->op->code));
        for (int i = 0; i < d->nargs; i++) {
            tn_text_add(&text, i ? ", " : " ");
            text_operand(&text, F, g, d, i);
        }
        for (int i = 0; i < d->op->nresults; i++)
            tn_text_add(&text, "%s%s", i ? ", " : " : ", tn_dtype_text(d->op->result[i].type.dtype));
        tn_text_add(&text, "\n");
    }
    tn_text_add(&text, "store ");
    for (size_t k = 0; k < g->stored.len; k++) {
        if (k)
            tn_text_add(&text, ", %%%zu ", number_of(g, g->stored.at[k]));
        text_stored(&text, F, g, fuse_location(F, g->stored.at[k]->op->result), g->stored.at[k]->map);
    }
    return text.at;
}

/* ---- the question ------------------------------------------------------------------------------------------------------- */

const tn_candidate *fuse_choose(fuser *F, group *g, const char *stem, const emitter *E, fuse_candidates *c)
{
    if (c->list.len < 2)
        return &c->list.at[0];
    sort(F, c);
    F->choice = ++F->choices;
    tn_choice choice = {.number = F->choice, .kernel = E ? E->kernel->name : tn_format(F->arena, "k%d_%s", F->next_kernel, stem), .stem = stem, .key = group_key(F, g, stem), .root = g->root,
                        .nfields = c->nfields, .field = c->field, .candidate = c->list.at, .n = c->list.len};
    size_t taken = F->options->chooser.choose(F->options->chooser.context, &choice);
    return &c->list.at[taken < c->list.len ? taken : 0];
}
