/* The operation table, expanded from ops.def and attrs.def. */
#include "graph/internal.h"

#include <string.h>

/* Applies m to each argument: up to 12 of them. */
#define MAP_1(m, x) m(x)
#define MAP_2(m, x, ...) m(x) MAP_1(m, __VA_ARGS__)
#define MAP_3(m, x, ...) m(x) MAP_2(m, __VA_ARGS__)
#define MAP_4(m, x, ...) m(x) MAP_3(m, __VA_ARGS__)
#define MAP_5(m, x, ...) m(x) MAP_4(m, __VA_ARGS__)
#define MAP_6(m, x, ...) m(x) MAP_5(m, __VA_ARGS__)
#define MAP_7(m, x, ...) m(x) MAP_6(m, __VA_ARGS__)
#define MAP_8(m, x, ...) m(x) MAP_7(m, __VA_ARGS__)
#define MAP_9(m, x, ...) m(x) MAP_8(m, __VA_ARGS__)
#define MAP_10(m, x, ...) m(x) MAP_9(m, __VA_ARGS__)
#define MAP_11(m, x, ...) m(x) MAP_10(m, __VA_ARGS__)
#define MAP_12(m, x, ...) m(x) MAP_11(m, __VA_ARGS__)
#define MAP_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, NAME, ...) NAME
#define MAP(m, ...)                                                                                                    \
    __VA_OPT__(MAP_PICK(__VA_ARGS__, MAP_12, MAP_11, MAP_10, MAP_9, MAP_8, MAP_7, MAP_6, MAP_5, MAP_4, MAP_3, MAP_2,     \
                        MAP_1)(m, __VA_ARGS__))

#define REQUIRED(attribute) {TN_A_##attribute, true},
#define OPTIONAL(attribute) {TN_A_##attribute, false},
#define A(...) MAP(REQUIRED, __VA_ARGS__)
#define OPT(...) MAP(OPTIONAL, __VA_ARGS__)
#define VARIADIC TN_VARIADIC
#define TN_S_NONE TN_SCALAR_NONE
#define ELEMENTWISE TN_ELEMENTWISE
#define MOVES_DATA TN_MOVES_DATA
#define REDUCES TN_REDUCES
#define CONTRACTS TN_CONTRACTS
#define EFFECT TN_EFFECT
#define TERMINATOR TN_TERMINATOR
#define CONTROL TN_CONTROL

static const struct tn_op_row row[TN_OP_COUNT] = {
#define OP(name, operands, results, attributes, regions, rule, scalar, traits)                                        \
    {#name, operands, results, regions, TN_S_##scalar, traits, {attributes{TN_ATTR_COUNT, false}}},
#include "graph/ops.def"
#undef OP
};

static const struct {
    const char *name;
    tn_attr_kind kind;
} attribute[TN_ATTR_COUNT] = {
#define ATTR(name, kind) {#name, TN_ATTR_##kind},
#include "graph/attrs.def"
#undef ATTR
};

const struct tn_op_row *tn_op_row_of(tn_opcode code) { return &row[code]; }
const char *tn_op_name(tn_opcode code) { return row[code].name; }
unsigned tn_op_traits(tn_opcode code) { return row[code].traits; }
const char *tn_attr_text(tn_attr_name name) { return attribute[name].name; }
tn_attr_kind tn_attr_kind_of(tn_attr_name name) { return attribute[name].kind; }

tn_opcode tn_op_from_name(const char *name)
{
    int code = 0;
    while (code < TN_OP_COUNT && strcmp(row[code].name, name) != 0)
        code++;
    return (tn_opcode)code;
}

tn_attr_name tn_attr_from_text(const char *name)
{
    int i = 0;
    while (i < TN_ATTR_COUNT && strcmp(attribute[i].name, name) != 0)
        i++;
    return (tn_attr_name)i;
}

bool tn_compare_scalar(const char *direction, tn_scalar *out)
{
    static const struct {
        const char *direction;
        tn_scalar scalar;
    } comparison[] = {{"EQ", TN_S_eq}, {"NE", TN_S_ne}, {"GE", TN_S_ge}, {"GT", TN_S_gt}, {"LE", TN_S_le}, {"LT", TN_S_lt}};
    for (size_t i = 0; i < TN_COUNT(comparison); i++)
        if (strcmp(direction, comparison[i].direction) == 0) {
            *out = comparison[i].scalar;
            return true;
        }
    return false;
}

tn_scalar tn_op_scalar(const tn_op *op)
{
    tn_scalar scalar = row[op->code].scalar;
    if (op->code == TN_OP_compare)
        tn_compare_scalar(tn_find_attr(op, TN_A_direction)->s, &scalar);
    return scalar;
}

const tn_attr *tn_find_attr(const tn_op *op, tn_attr_name name)
{
    for (int i = 0; i < op->nattrs; i++)
        if (op->attr[i].name == name)
            return &op->attr[i];
    return NULL;
}

int64_t tn_attr_int(const tn_op *op, tn_attr_name name, int64_t otherwise)
{
    const tn_attr *attr = tn_find_attr(op, name);
    return attr ? attr->i : otherwise;
}

const int64_t *tn_attr_ints(const tn_op *op, tn_attr_name name, int *n)
{
    const tn_attr *attr = tn_find_attr(op, name);
    *n = attr ? attr->n : 0;
    return attr ? attr->ints : NULL;
}

const tn_dim *tn_attr_dims(const tn_op *op, tn_attr_name name, int *n)
{
    const tn_attr *attr = tn_find_attr(op, name);
    *n = attr ? attr->n : 0;
    return attr ? attr->dims : NULL;
}

const tn_tensor *tn_constant_of(const tn_value *v)
{
    return tn_is_op(v, TN_OP_constant) ? tn_find_attr(v->def, TN_A_value)->tensor : NULL;
}
