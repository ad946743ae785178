/* Einsum: a chain of dot_generals. Labels of an operand that occur nowhere else are summed first, a label twice in one
 * operand keeps the diagonal, `...` stands for labels of its own that broadcast. */
#include <string.h>

#include "import/onnx/emit.h"

enum {
    MAX_OPERANDS = 16,
    FIRST_ELLIPSIS = 128
}; /* labels: letters, and 128 … 139 for the dimensions of an ellipsis from the left */

typedef struct term {
    tn_value *value;
    int rank;
    unsigned char label[TN_MAX_RANK];
} term;

typedef struct equation {
    const onnx_node *n;
    term in[MAX_OPERANDS], out;
    int count, ellipsis; /* operands; dimensions that `...` stands for */
} equation;

static int find(const term *t, unsigned char label)
{
    for (int i = 0; i < t->rank; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static bool letter(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

/* Reads one term up to ',' or '-' or the end; an ellipsis takes `wide` dimensions. */
static bool read_term(onnx_ctx *c, const onnx_node *n, const char **at, int wide, int ellipsis, term *t)
{
    t->rank = 0;
    for (; **at && **at != ',' && **at != '-'; ++*at) {
        bool dots = !strncmp(*at, "...", 3);
        int take = dots ? wide : letter(**at) ? 1 : **at == ' ' ? 0 : -1;
        if (take < 0 || t->rank + take > TN_MAX_RANK)
            return onnx_error(c, n, "cannot read the equation at '%.20s'", *at);
        for (int i = 0; i < take; i++)
            t->label[t->rank++] = dots ? (unsigned char)(FIRST_ELLIPSIS + ellipsis - wide + i) : (unsigned char)**at;
        *at += dots ? 2 : 0;
    }
    return true;
}

/* How many dimensions the term's ellipsis stands for: the rank without its letters. */
static int ellipsis_width(const char *at, int rank)
{
    bool dots = false;
    for (; *at && *at != ',' && *at != '-'; at++) {
        rank -= letter(*at);
        dots |= *at == '.';
    }
    return dots ? rank : 0;
}

static void next_term(const char **at)
{
    while (**at && **at != ',' && **at != '-')
        ++*at;
    if (**at == ',')
        ++*at;
}

/* Without `->`: the ellipsis, then every letter that occurs once, in alphabetic order. */
static void implicit_output(equation *e)
{
    int seen[256] = {0};
    for (int i = 0; i < e->count; i++)
        for (int j = 0; j < e->in[i].rank; j++)
            seen[e->in[i].label[j]]++;
    for (int i = 0; i < e->ellipsis; i++)
        e->out.label[e->out.rank++] = (unsigned char)(FIRST_ELLIPSIS + i);
    for (int label = 'A'; label <= 'z' && e->out.rank < TN_MAX_RANK; label++)
        if (seen[label] == 1)
            e->out.label[e->out.rank++] = (unsigned char)label;
}

static bool read_equation(onnx_ctx *c, const onnx_node *n, const char *text, equation *e)
{
    const char *at = text;
    for (int i = 0; i < n->ninputs; i++, next_term(&at)) {
        int wide = ellipsis_width(at, n->input[i]->type.rank);
        e->ellipsis = wide > e->ellipsis ? wide : e->ellipsis;
    }
    at = text;
    for (int i = 0; i < n->ninputs; i++) {
        int wide = ellipsis_width(at, n->input[i]->type.rank);
        if (wide < 0 || !read_term(c, n, &at, wide, e->ellipsis, &e->in[i]))
            return onnx_error(c, n, "operand %d does not fit the equation '%s'", i, text);
        if (e->in[i].rank != n->input[i]->type.rank || (i + 1 < n->ninputs) != (*at == ','))
            return onnx_error(c, n, "the equation '%s' does not fit the number or the ranks of the operands", text);
        e->in[i].value = n->input[i];
        at += *at == ',';
    }
    if (*at == '-' && at[1] == '>') {
        at += 2;
        return read_term(c, n, &at, e->ellipsis, e->ellipsis, &e->out) &&
               (!*at || onnx_error(c, n, "cannot read the equation '%s'", text));
    }
    implicit_output(e);
    return !*at || onnx_error(c, n, "cannot read the equation '%s'", text);
}

static void drop_label(term *t, int i)
{
    memmove(&t->label[i], &t->label[i + 1], (size_t)(t->rank - i - 1));
    t->rank--;
}

static bool sum_label(onnx_ctx *c, term *t, int i)
{
    const int64_t axis = i;
    t->value = emit_reduce(c, TN_OP_add, t->value, &axis, 1);
    drop_label(t, i);
    return t->value != NULL;
}

/* A label twice in one term: elements off the diagonal become 0, and one of the two dimensions is summed. */
static bool take_diagonals(onnx_ctx *c, term *t)
{
    for (int i = 0; i < t->rank; i++)
        for (int j = t->rank - 1; j > i; j--) {
            if (t->label[i] != t->label[j])
                continue;
            tn_value *on = emit_compare(c, "EQ", emit_iota_like(c, TN_I64, &t->value->type, i),
                                        emit_iota_like(c, TN_I64, &t->value->type, j));
            t->value = emit_select(c, on, t->value, emit_number(c, t->value->type.dtype, 0));
            if (!t->value || !sum_label(c, t, j))
                return false;
        }
    return true;
}

/* Whether another operand has the label with a size that is not 1. */
static bool wider_elsewhere(const equation *e, int self, unsigned char label)
{
    for (int i = 0; i < e->count; i++) {
        int at = i == self ? -1 : find(&e->in[i], label);
        if (at >= 0 && !tn_dim_is(e->in[i].value->type.dim[at], 1))
            return true;
    }
    return false;
}

/* Dimensions of size 1 that broadcast against a larger one vanish: the product spreads them. */
static bool squeeze_ones(onnx_ctx *c, equation *e, int self)
{
    term *t = &e->in[self];
    for (int i = t->rank - 1; i >= 0; i--)
        if (tn_dim_is(t->value->type.dim[i], 1) && wider_elsewhere(e, self, t->label[i]) && !sum_label(c, t, i))
            return false;
    return true;
}

static bool needed_later(const equation *e, int from, unsigned char label)
{
    if (find(&e->out, label) >= 0)
        return true;
    for (int i = from; i < e->count; i++)
        if (find(&e->in[i], label) >= 0)
            return true;
    return false;
}

/* Sums what neither the other term, nor the result, nor a later operand has. */
static bool sum_private(onnx_ctx *c, const equation *e, term *t, const term *other, int from)
{
    for (int i = t->rank - 1; i >= 0; i--)
        if (!(other && find(other, t->label[i]) >= 0) && !needed_later(e, from, t->label[i]) && !sum_label(c, t, i))
            return false;
    return true;
}

/* left <- left * right, operands from `from` on still to come. */
static bool multiply(onnx_ctx *c, const equation *e, term *left, term *right, int from)
{
    int64_t lb[TN_MAX_RANK], rb[TN_MAX_RANK], lc[TN_MAX_RANK], rc[TN_MAX_RANK];
    int nb = 0, nc = 0;
    term out = {0};
    unsigned char free_labels[2 * TN_MAX_RANK];
    int nfree = 0;
    if (!sum_private(c, e, left, right, from) || !sum_private(c, e, right, left, from))
        return false;
    for (int i = 0; i < left->rank; i++) {
        int j = find(right, left->label[i]);
        if (j < 0)
            free_labels[nfree++] = left->label[i];
        else if (needed_later(e, from, left->label[i]))
            lb[nb] = i, rb[nb++] = j, out.label[out.rank++] = left->label[i];
        else
            lc[nc] = i, rc[nc++] = j;
    }
    for (int j = 0; j < right->rank; j++)
        if (find(left, right->label[j]) < 0)
            free_labels[nfree++] = right->label[j];
    if (out.rank + nfree > TN_MAX_RANK)
        return onnx_unsupported(c, e->n, "an intermediate result has more than %d dimensions", TN_MAX_RANK);
    memcpy(out.label + out.rank, free_labels, (size_t)nfree);
    out.rank += nfree;
    out.value = tn_dot_general(&c->b, left->value, right->value, lb, rb, nb, lc, rc, nc);
    *left = out;
    return out.value != NULL;
}

/* The result's labels in order; one that no operand has left (all of size 1) comes back as a 1. */
static tn_value *arrange(onnx_ctx *c, const equation *e, term *t)
{
    int64_t perm[TN_MAX_RANK];
    for (int i = 0; i < e->out.rank; i++) {
        int at = find(t, e->out.label[i]);
        if (at < 0 || t->rank != e->out.rank) {
            onnx_error(c, e->n, "the result's labels are not those of the operands");
            return NULL;
        }
        perm[i] = at;
    }
    return tn_transpose(&c->b, t->value, perm);
}

bool onnx_Einsum(onnx_ctx *c, const onnx_node *n)
{
    equation *e = TN_NEW(&c->session->arena, equation);
    *e = (equation){.n = n, .count = n->ninputs};
    const char *text = onnx_attr_string(c, n, "equation", NULL);
    if (n->ninputs > MAX_OPERANDS || !text)
        return onnx_unsupported(c, n, "%d operands, at most %d are supported; 'equation' must be given", n->ninputs,
                                MAX_OPERANDS);
    for (int i = 0; i < n->ninputs; i++)
        if (!n->input[i])
            return onnx_error(c, n, "operand %d is missing", i);
    if (!read_equation(c, n, text, e))
        return false;
    for (int i = 0; i < e->out.rank; i++)
        for (int j = 0; j < i; j++)
            if (e->out.label[i] == e->out.label[j])
                return onnx_error(c, n, "the equation '%s' names a label of the result twice", text);
    for (int i = 0; i < e->count; i++)
        if (!take_diagonals(c, &e->in[i]))
            return false;
    for (int i = 0; i < e->count; i++)
        if (!squeeze_ones(c, e, i))
            return false;
    term *acc = &e->in[0];
    for (int i = 1; i < e->count; i++)
        if (!multiply(c, e, acc, &e->in[i], i + 1))
            return false;
    return sum_private(c, e, acc, NULL, e->count) && onnx_set_output(c, n, 0, arrange(c, e, acc));
}
