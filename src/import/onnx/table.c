/* The operator table, and look-up of operators, functions and versions. */
#include <string.h>

#include "import/onnx/internal.h"

static const onnx_row rows[] = {
#define OPERATOR(name, domain, ...) {#name, domain, __VA_ARGS__},
#include "import/onnx/operators.def"
#undef OPERATOR
    {"", "", 0, 0, 0, NULL},
};
enum { NROWS = TN_COUNT(rows) - 1 };

/* Rows of one operator need not be neighbours; the map remembers where to begin. */
static size_t first_row(onnx_ctx *c, const char *op_type)
{
    void **cell = tn_map_at_str(&c->operators, op_type);
    if (!*cell) {
        size_t i = 0;
        while (i < NROWS && strcmp(rows[i].name, op_type))
            i++;
        *cell = (void *)(uintptr_t)(i + 1);
    }
    return (size_t)(uintptr_t)*cell - 1;
}

const onnx_row *onnx_find_row(onnx_ctx *c, const char *op_type, const char *domain, int64_t version)
{
    for (size_t i = first_row(c, op_type); i < NROWS; i++)
        if (!strcmp(rows[i].name, op_type) && !strcmp(rows[i].domain, domain) && version >= rows[i].since_min &&
            version <= rows[i].since_max)
            return &rows[i];
    return NULL;
}

static const struct rank_rule {
    const char *name;
    int input, lowest, highest;
} rank_rules[] = {
#define RANK(name, input, lowest, highest) {#name, input, lowest, highest},
#include "import/onnx/ranks.def"
#undef RANK
};

bool onnx_check_ranks(onnx_ctx *c, const onnx_node *n)
{
    for (size_t i = 0; i < TN_COUNT(rank_rules); i++) {
        const struct rank_rule *r = &rank_rules[i];
        const tn_value *v = onnx_in(n, r->input);
        if (v && !n->domain[0] && (v->type.rank < r->lowest || v->type.rank > r->highest) &&
            !strcmp(r->name, n->op_type))
            return onnx_error(
                c, n, "input %d ('%s') must have rank %d%s, found %d", r->input, n->input_name[r->input], r->lowest,
                r->lowest == r->highest ? "" : tn_format(&c->session->arena, " to %d", r->highest), v->type.rank);
    }
    return true;
}

static const char *function_key(onnx_ctx *c, const char *domain, const char *name, onnx_slice overload)
{
    return tn_format(&c->session->arena, "%s:%s:%s", domain, name, onnx_text(c, overload));
}

const onnx_function *onnx_find_function(onnx_ctx *c, const char *op_type, const char *domain, onnx_slice overload)
{
    if (!c->proto->functions.len)
        return NULL;
    if (!c->functions.len)
        for (size_t i = 0; i < c->proto->functions.len; i++) {
            onnx_function *f = c->proto->functions.at[i];
            *tn_map_at_str(&c->functions,
                           function_key(c, onnx_domain(c, f->domain), onnx_text(c, f->name), f->overload)) = f;
        }
    return tn_map_get_str(&c->functions, function_key(c, domain, op_type, overload));
}

int64_t onnx_version(const onnx_opset *const *opsets, size_t count, const char *domain)
{
    for (size_t i = 0; i < count; i++) {
        onnx_slice s = opsets[i]->domain;
        if (onnx_is(s, domain) || (!domain[0] && onnx_is(s, "ai.onnx")))
            return opsets[i]->version;
    }
    return 0;
}

const char *onnx_domain(onnx_ctx *c, onnx_slice domain)
{
    return onnx_is(domain, "ai.onnx") ? "" : onnx_text(c, domain);
}
