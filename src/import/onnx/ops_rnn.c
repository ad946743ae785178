/* RNN, GRU, LSTM. The input's product with all time steps comes first, in one dot; then one step at a time: unrolled
 * when the length is a small constant, else a `while`. A sequence that has ended keeps its state and gives zeros; so a
 * reverse pass begins where it ends. */
#include "import/onnx/emit.h"

#include <string.h>

enum { MAX_UNROLLED = 24, MAX_STATES = 2 };

typedef struct activation {
    const char *name;
    double alpha, beta;
} activation;

typedef struct cell {
    const onnx_node *node;
    int gates, states; /* LSTM: h and c */
    tn_dim time, batch, hidden;
    tn_dtype dtype;
    bool reverse;
    activation act[3];
    double clip; /* 0: none */
    bool linear_before_reset, input_forget;
    tn_value *lengths;    /* i64[batch], NULL: all `time` */
    tn_value *x;          /* [time, batch, gates * hidden]: input part of all gates, biases added */
    tn_value *recurrent;  /* [gates * hidden, hidden] */
    tn_value *reset_bias; /* GRU with linear_before_reset: [hidden] */
    tn_value *peephole;   /* LSTM: [3 * hidden]: i, o, f */
} cell;

/* ---- activations
 * ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int parameters;
    double alpha, beta;
} known_activations[] = {
    {"Relu", 0, 0, 0},         {"Tanh", 0, 0, 0},
    {"Sigmoid", 0, 0, 0},      {"Affine", 2, 1, 0},
    {"LeakyRelu", 1, 0.01, 0}, {"ThresholdedRelu", 1, 1, 0},
    {"ScaledTanh", 2, 1, 1},   {"HardSigmoid", 2, 0.2, 0.5},
    {"Elu", 1, 1, 0},          {"Softsign", 0, 0, 0},
    {"Softplus", 0, 0, 0},
};

static bool same_text(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a | 32) != (*b | 32))
            return false;
    return *a == *b;
}

/* Names of all directions' activations; alpha and beta are consumed, in order, by those that have them. */
static bool read_activations(onnx_ctx *c, const onnx_node *n, int per_direction, int directions,
                             const char *const *defaults, activation *out)
{
    int count, nalpha, nbeta, alpha_at = 0, beta_at = 0, total = per_direction * directions;
    const char *const *names = onnx_attr_strings(c, n, "activations", &count);
    const float *alpha = onnx_attr_floats(c, n, "activation_alpha", &nalpha);
    const float *beta = onnx_attr_floats(c, n, "activation_beta", &nbeta);
    if (names && count != total)
        return onnx_error(c, n, "`activations` must have %d entries, found %d", total, count);
    for (int i = 0; i < total; i++) {
        const char *name = names ? names[i] : defaults[i % per_direction];
        size_t row = 0;
        while (row < TN_COUNT(known_activations) && !same_text(known_activations[row].name, name))
            row++;
        if (row == TN_COUNT(known_activations))
            return onnx_unsupported(c, n, "activation '%s'", name);
        out[i] = (activation){known_activations[row].name, known_activations[row].alpha, known_activations[row].beta};
        if (known_activations[row].parameters > 0 && alpha_at < nalpha)
            out[i].alpha = alpha[alpha_at++];
        if (known_activations[row].parameters > 1 && beta_at < nbeta)
            out[i].beta = beta[beta_at++];
    }
    return true;
}

static tn_value *activate(onnx_ctx *c, const activation *a, tn_value *x)
{
    if (!x)
        return NULL;
    tn_value *zero = emit_number(c, x->type.dtype, 0);
    if (!strcmp(a->name, "Relu"))
        return emit_max(c, x, zero);
    if (!strcmp(a->name, "Tanh"))
        return emit_unary(c, TN_OP_tanh, x);
    if (!strcmp(a->name, "Sigmoid"))
        return emit_unary(c, TN_OP_logistic, x);
    if (!strcmp(a->name, "Affine"))
        return emit_add_number(c, emit_mul_number(c, x, a->alpha), a->beta);
    if (!strcmp(a->name, "LeakyRelu"))
        return emit_select(c, emit_compare(c, "LT", x, zero), emit_mul_number(c, x, a->alpha), x);
    if (!strcmp(a->name, "ThresholdedRelu"))
        return emit_select(c, emit_compare_number(c, "GE", x, a->alpha), x, zero);
    if (!strcmp(a->name, "ScaledTanh"))
        return emit_mul_number(c, emit_unary(c, TN_OP_tanh, emit_mul_number(c, x, a->beta)), a->alpha);
    if (!strcmp(a->name, "HardSigmoid"))
        return emit_clamp(c, emit_add_number(c, emit_mul_number(c, x, a->alpha), a->beta), 0, 1);
    if (!strcmp(a->name, "Elu"))
        return emit_select(c, emit_compare(c, "LT", x, zero),
                           emit_mul_number(c, emit_unary(c, TN_OP_exponential_minus_one, x), a->alpha), x);
    if (!strcmp(a->name, "Softsign"))
        return emit_div(c, x, emit_add_number(c, emit_unary(c, TN_OP_abs, x), 1));
    return emit_softplus(c, x);
}

static tn_value *clipped(onnx_ctx *c, const cell *u, tn_value *x)
{
    return u->clip > 0 ? emit_clamp(c, x, -u->clip, u->clip) : x;
}

/* ---- one step
 * ------------------------------------------------------------------------------------------------------------------ */

/* Entry k of `hidden` elements along the last axis. */
static tn_value *part(onnx_ctx *c, const cell *u, tn_value *x, int k, int count)
{
    tn_dim start = tn_dim_mul(c->session, emit_dim(c, k), u->hidden);
    return !x ? NULL
              : emit_slice_axis(c, x, x->type.rank - 1, start,
                                tn_dim_add(c->session, start, tn_dim_mul(c->session, emit_dim(c, count), u->hidden)),
                                1);
}

static tn_value *times_transposed(onnx_ctx *c, tn_value *x, tn_value *weight)
{
    return !x ? NULL
              : tn_dot_general(&c->b, x, weight, NULL, NULL, 0, (int64_t[]){x->type.rank - 1}, (int64_t[]){1}, 1);
}

static void rnn_step(onnx_ctx *c, const cell *u, tn_value *x, tn_value *const *state, tn_value **next)
{
    tn_value *sum = emit_add(c, x, times_transposed(c, state[0], u->recurrent));
    next[0] = activate(c, &u->act[0], clipped(c, u, sum));
}

/* Gates z, r, h: h' = g(x_h + r * (h R + b)) or g(x_h + (r * h) R); result (1 - z) h' + z h. */
static void gru_step(onnx_ctx *c, const cell *u, tn_value *x, tn_value *const *state, tn_value **next)
{
    tn_dim two = tn_dim_mul(c->session, emit_dim(c, 2), u->hidden),
           three = tn_dim_mul(c->session, emit_dim(c, 3), u->hidden);
    tn_value *h = state[0], *inner;
    tn_value *gate_weight = emit_slice_axis(c, u->recurrent, 0, emit_dim(c, 0), two, 1);
    tn_value *new_weight = emit_slice_axis(c, u->recurrent, 0, two, three, 1);
    tn_value *gates = clipped(c, u, emit_add(c, part(c, u, x, 0, 2), times_transposed(c, h, gate_weight)));
    gates = activate(c, &u->act[0], gates);
    tn_value *z = part(c, u, gates, 0, 1), *r = part(c, u, gates, 1, 1);
    if (u->linear_before_reset) {
        inner = times_transposed(c, h, new_weight);
        if (u->reset_bias)
            inner = emit_add(c, inner, u->reset_bias);
        inner = emit_mul(c, r, inner);
    } else {
        inner = times_transposed(c, emit_mul(c, r, h), new_weight);
    }
    tn_value *fresh = activate(c, &u->act[1], clipped(c, u, emit_add(c, part(c, u, x, 2, 1), inner)));
    next[0] = emit_add(c, fresh, emit_mul(c, z, emit_sub(c, h, fresh)));
}

static tn_value *with_peephole(onnx_ctx *c, const cell *u, tn_value *gate, int which, tn_value *state)
{
    return u->peephole ? emit_add(c, gate, emit_mul(c, part(c, u, u->peephole, which, 1), state)) : gate;
}

/* Gates i, o, f, c. */
static void lstm_step(onnx_ctx *c, const cell *u, tn_value *x, tn_value *const *state, tn_value **next)
{
    tn_value *sum = emit_add(c, x, times_transposed(c, state[0], u->recurrent)), *memory = state[1];
    tn_value *i = activate(c, &u->act[0], clipped(c, u, with_peephole(c, u, part(c, u, sum, 0, 1), 0, memory)));
    tn_value *f;
    if (u->input_forget)
        f = emit_sub(c, emit_number(c, u->dtype, 1), i);
    else
        f = activate(c, &u->act[0], clipped(c, u, with_peephole(c, u, part(c, u, sum, 2, 1), 2, memory)));
    tn_value *fresh = activate(c, &u->act[1], clipped(c, u, part(c, u, sum, 3, 1)));
    next[1] = emit_add(c, emit_mul(c, f, memory), emit_mul(c, i, fresh));
    tn_value *o = activate(c, &u->act[0], clipped(c, u, with_peephole(c, u, part(c, u, sum, 1, 1), 1, next[1])));
    next[0] = emit_mul(c, o, activate(c, &u->act[2], next[1]));
}

/* One step at time t (a value, i64): new states and the output row [batch, hidden]. */
static tn_value *step(onnx_ctx *c, const cell *u, tn_value *x, tn_value *t, tn_value *const *state, tn_value **next)
{
    if (u->states == 2)
        lstm_step(c, u, x, state, next);
    else if (u->gates == 3)
        gru_step(c, u, x, state, next);
    else
        rnn_step(c, u, x, state, next);
    if (!u->lengths || !next[0])
        return next[0];
    tn_value *running = emit_compare(c, "LT", t, u->lengths);
    running = !running ? NULL : emit_broadcast(c, running, next[0]->type.dim, 2, EMIT_AXES(0));
    tn_value *row = emit_select(c, running, next[0], emit_number(c, u->dtype, 0));
    for (int i = 0; i < u->states; i++)
        next[i] = emit_select(c, running, next[i], state[i]);
    return row;
}

/* ---- all steps
 * ------------------------------------------------------------------------------------------------------------------ */

static tn_value *unrolled(onnx_ctx *c, const cell *u, tn_value **state)
{
    tn_value *rows[MAX_UNROLLED];
    int64_t length = u->time->value;
    tn_dim row_dims[] = {u->batch, tn_dim_mul(c->session, emit_dim(c, u->gates), u->hidden)};
    tn_dim out_dims[] = {emit_dim(c, 1), u->batch, u->hidden};
    for (int64_t i = 0; i < length; i++) {
        int64_t t = u->reverse ? length - 1 - i : i;
        tn_value *next[MAX_STATES], *x = emit_slice_axis(c, u->x, 0, emit_dim(c, t), emit_dim(c, t + 1), 1);
        x = x ? tn_reshape(&c->b, x, row_dims, 2) : NULL;
        tn_value *row = step(c, u, x, u->lengths ? tn_int_constant(&c->b, TN_I64, t) : NULL, state, next);
        if (!row)
            return NULL;
        rows[t] = tn_reshape(&c->b, row, out_dims, 3);
        memcpy(state, next, sizeof(tn_value *) * (size_t)u->states);
    }
    return tn_concatenate(&c->b, rows, (int)length, 0);
}

static bool looped_body(onnx_ctx *c, void *context, tn_value *i, tn_value *const *carried, tn_value **next)
{
    const cell *u = context;
    tn_value *t = i, *zero = tn_int_constant(&c->b, TN_I64, 0);
    if (u->reverse)
        t = emit_sub(c, emit_add_number(c, emit_size(c, u->time, TN_I64), -1), i);
    tn_dim width = tn_dim_mul(c->session, emit_dim(c, u->gates), u->hidden),
           sizes[] = {emit_dim(c, 1), u->batch, width};
    tn_attr attr = {.name = TN_A_sizes, .n = 3, .dims = sizes};
    tn_op *slice = tn_build(&c->b, TN_OP_dynamic_slice, (tn_value *[]){u->x, t, zero, zero}, 4, &attr, 1, NULL, 0);
    tn_value *x = slice ? tn_reshape(&c->b, &slice->result[0], sizes + 1, 2) : NULL;
    tn_value *row = step(c, u, x, t, carried + 1, next + 1);
    tn_dim out_dims[] = {emit_dim(c, 1), u->batch, u->hidden};
    row = row ? tn_reshape(&c->b, row, out_dims, 3) : NULL;
    if (!row)
        return false;
    tn_op *update = tn_build(&c->b, TN_OP_dynamic_update_slice, (tn_value *[]){carried[0], row, t, zero, zero}, 5, NULL,
                             0, NULL, 0);
    next[0] = update ? &update->result[0] : NULL;
    return update != NULL;
}

static tn_value *looped(onnx_ctx *c, cell *u, tn_value **state)
{
    tn_dim dims[] = {u->time, u->batch, u->hidden};
    tn_value *init[1 + MAX_STATES] = {emit_fill(c, emit_number(c, u->dtype, 0), dims, 3)}, *final[1 + MAX_STATES];
    memcpy(init + 1, state, sizeof(tn_value *) * (size_t)u->states);
    if (!emit_counted_loop(c, emit_size(c, u->time, TN_I64), init, 1 + u->states, looped_body, u, final))
        return NULL;
    memcpy(state, final + 1, sizeof(tn_value *) * (size_t)u->states);
    return final[0];
}

/* ---- the operator
 * ------------------------------------------------------------------------------------------------------------------ */

/* Entry d of the leading axis, which vanishes. NULL stays NULL. */
static tn_value *direction_of(onnx_ctx *c, tn_value *x, int d)
{
    if (!x)
        return NULL;
    tn_value *one = emit_slice_axis(c, x, 0, emit_dim(c, d), emit_dim(c, d + 1), 1);
    return one ? tn_reshape(&c->b, one, x->type.dim + 1, x->type.rank - 1) : NULL;
}

static tn_value *swap_leading(onnx_ctx *c, tn_value *x)
{
    static const int64_t swapped[TN_MAX_RANK] = {1, 0, 2, 3};
    return x ? tn_transpose(&c->b, x, swapped) : NULL;
}

/* x W' + biases; GRU with linear_before_reset keeps the new gate's recurrent bias apart. */
static void bind_weights(onnx_ctx *c, cell *u, tn_value *x, tn_value *weight, tn_value *bias)
{
    u->x = times_transposed(c, x, weight);
    u->reset_bias = NULL;
    if (!bias || !u->x)
        return;
    tn_value *input = part(c, u, bias, 0, u->gates), *recurrent = part(c, u, bias, u->gates, u->gates);
    if (u->gates == 3 && u->linear_before_reset) {
        u->reset_bias = part(c, u, recurrent, 2, 1);
        tn_dim none = emit_dim(c, 0);
        recurrent = emit_pad_zero(c, part(c, u, recurrent, 0, 2), &none, &u->hidden, emit_number(c, u->dtype, 0));
    }
    u->x = emit_add(c, u->x, emit_add(c, input, recurrent));
}

static bool read_cell(onnx_ctx *c, const onnx_node *n, cell *u, activation *acts, int *directions)
{
    static const char *const defaults[3][3] = {{"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    int kind = strcmp(n->op_type, "LSTM") == 0 ? 2 : strcmp(n->op_type, "GRU") == 0;
    const char *direction = onnx_attr_string(c, n, "direction", "forward");
    *directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    *u = (cell){.node = n, .gates = kind == 2 ? 4 : kind == 1 ? 3 : 1, .states = kind == 2 ? 2 : 1};
    u->reverse = strcmp(direction, "reverse") == 0;
    u->clip = onnx_attr_float(c, n, "clip", 0);
    u->linear_before_reset = onnx_attr_int(c, n, "linear_before_reset", 0);
    u->input_forget = onnx_attr_int(c, n, "input_forget", 0);
    if (!tn_dim_is(n->input[2]->type.dim[0], *directions))
        return onnx_error(c, n, "direction '%s' needs weights with a leading dimension of %d", direction, *directions);
    u->hidden = n->input[2]->type.dim[2];
    u->dtype = n->input[0]->type.dtype;
    return read_activations(c, n, kind + 1, *directions, defaults[kind], acts);
}

static tn_value *initial_state(onnx_ctx *c, const cell *u, tn_value *given, int d, bool batch_first)
{
    tn_dim dims[] = {u->batch, u->hidden};
    if (!given)
        return emit_fill(c, emit_number(c, u->dtype, 0), dims, 2);
    return direction_of(c, batch_first ? swap_leading(c, given) : given, d);
}

/* Stacks [A, …] of each direction to [A, D, …] (Y) or [D, …] (final states). */
static tn_value *stack(onnx_ctx *c, tn_value **parts, int directions, int axis)
{
    tn_value *wide[2];
    for (int d = 0; d < directions; d++) {
        if (!parts[d])
            return NULL;
        tn_dim dims[TN_MAX_RANK];
        int rank = parts[d]->type.rank;
        for (int i = 0; i <= rank; i++)
            dims[i] = i == axis ? emit_dim(c, 1) : parts[d]->type.dim[i < axis ? i : i - 1];
        wide[d] = tn_reshape(&c->b, parts[d], dims, rank + 1);
    }
    return directions == 1 ? wide[0] : tn_concatenate(&c->b, wide, directions, axis);
}

bool onnx_op_recurrent(onnx_ctx *c, const onnx_node *n)
{
    cell u;
    activation acts[6];
    int directions;
    if (!read_cell(c, n, &u, acts, &directions))
        return false;
    bool batch_first = onnx_attr_int(c, n, "layout", 0);
    tn_value *x = batch_first ? swap_leading(c, n->input[0]) : n->input[0], *ys[2], *finals[MAX_STATES][2];
    if (!x)
        return false;
    u.time = x->type.dim[0];
    u.batch = x->type.dim[1];
    u.lengths = onnx_in(n, 4) ? tn_convert(&c->b, n->input[4], TN_I64) : NULL;
    bool short_enough = tn_dim_is_const(u.time) && u.time->value > 0 && u.time->value <= MAX_UNROLLED;
    int per_direction = u.states == 2 ? 3 : u.gates == 3 ? 2 : 1;
    for (int d = 0; d < directions; d++) {
        tn_value *state[MAX_STATES] = {initial_state(c, &u, onnx_in(n, 5), d, batch_first)};
        if (u.states == 2) {
            state[1] = initial_state(c, &u, onnx_in(n, 6), d, batch_first);
            u.peephole = direction_of(c, onnx_in(n, 7), d);
        }
        u.reverse |= d == 1;
        u.recurrent = direction_of(c, n->input[2], d);
        memcpy(u.act, acts + d * per_direction, sizeof(activation) * (size_t)per_direction);
        bind_weights(c, &u, x, direction_of(c, n->input[1], d), direction_of(c, onnx_in(n, 3), d));
        ys[d] = short_enough ? unrolled(c, &u, state) : looped(c, &u, state);
        for (int i = 0; i < u.states; i++)
            finals[i][d] = state[i];
    }
    tn_value *y = stack(c, ys, directions, 1); /* [T, D, B, H]; batch first: [B, T, D, H] */
    if (y && batch_first)
        y = emit_transpose(c, y, EMIT_AXES(2, 0, 1, 3));
    if (!onnx_set_output(c, n, 0, y))
        return false;
    for (int i = 0; i < u.states; i++) {
        tn_value *final = stack(c, finals[i], directions, 0);
        if (!onnx_set_output(c, n, 1 + i, batch_first ? swap_leading(c, final) : final))
            return false;
    }
    return true;
}

/* ---- linear attention
 * -------------------------------------------------------------------------------------------------------------- */

typedef struct linear_attention {
    int64_t heads, kv_heads;
    tn_dim batch, time, key_size, value_size;
    tn_value *scale;                    /* rank 0 */
    tn_value *q, *k, *v, *decay, *beta; /* [time, batch, heads, size] f32; decay, beta NULL when the rule has none */
} linear_attention;

/* [B, T, H * D] to f32 [T, B, H, D]. */
static tn_value *unpack_heads(onnx_ctx *c, tn_value *x, int64_t heads)
{
    if (!x)
        return NULL;
    if (x->type.rank != 3) {
        c->b.failed = true; /* the core names the node */
        return NULL;
    }
    tn_dim dims[] = {x->type.dim[0], x->type.dim[1], emit_dim(c, heads),
                     tn_dim_floordiv(c->session, x->type.dim[2], emit_dim(c, heads))};
    x = tn_reshape(&c->b, tn_convert(&c->b, x, TN_F32), dims, 4);
    return x ? emit_transpose(c, x, EMIT_AXES(1, 0, 2, 3)) : NULL;
}

static tn_value *row_at(onnx_ctx *c, tn_value *x, tn_value *t)
{
    tn_value *zero = tn_int_constant(&c->b, TN_I64, 0);
    tn_dim sizes[4];
    memcpy(sizes, x->type.dim, sizeof sizes);
    sizes[0] = emit_dim(c, 1);
    tn_attr attr = {.name = TN_A_sizes, .n = 4, .dims = sizes};
    tn_op *op = tn_build(&c->b, TN_OP_dynamic_slice, (tn_value *[]){x, t, zero, zero, zero}, 5, &attr, 1, NULL, 0);
    return op ? tn_reshape(&c->b, &op->result[0], sizes + 1, 3) : NULL;
}

/* [B, H, D] to [B, H, D, 1] (axis 3) or [B, H, 1, D] (axis 2). */
static tn_value *widen(onnx_ctx *c, tn_value *x, int axis)
{
    if (!x)
        return NULL;
    tn_dim dims[4] = {x->type.dim[0], x->type.dim[1], axis == 3 ? x->type.dim[2] : emit_dim(c, 1),
                      axis == 3 ? emit_dim(c, 1) : x->type.dim[2]};
    return tn_reshape(&c->b, x, dims, 4);
}

/* Sum over the key dimension of state [B, H, K, V] weighted by k [B, H, K]: [B, H, V]. */
static tn_value *read_state(onnx_ctx *c, tn_value *state, tn_value *k)
{
    static const int64_t batch[] = {0, 1};
    return tn_dot_general(&c->b, k, state, batch, batch, 2, (int64_t[]){2}, (int64_t[]){2}, 1);
}

static bool linear_attention_body(onnx_ctx *c, void *context, tn_value *t, tn_value *const *carried, tn_value **next)
{
    const linear_attention *a = context;
    tn_value *state = carried[1], *k = row_at(c, a->k, t), *v = row_at(c, a->v, t), *q = row_at(c, a->q, t);
    if (a->decay)
        state = emit_mul(c, state, widen(c, emit_unary(c, TN_OP_exponential, row_at(c, a->decay, t)), 3));
    if (a->beta)
        v = emit_mul(c, row_at(c, a->beta, t), emit_sub(c, v, read_state(c, state, k)));
    state = emit_add(c, state, emit_mul(c, widen(c, k, 3), widen(c, v, 2)));
    int64_t group = a->heads / a->kv_heads;
    tn_dim split[] = {a->batch, emit_dim(c, a->kv_heads), emit_dim(c, group), a->key_size};
    tn_dim row[] = {emit_dim(c, 1), a->batch, emit_dim(c, a->heads), a->value_size};
    q = q ? tn_reshape(&c->b, q, split, 4) : NULL;
    static const int64_t batch[] = {0, 1};
    tn_value *y =
        tn_dot_general(&c->b, q, state, batch, batch, 2, (int64_t[]){3}, (int64_t[]){2}, 1); /* [B, KV, group, V] */
    y = emit_mul(c, y, a->scale);
    y = y ? tn_reshape(&c->b, y, row, 4) : NULL;
    tn_value *zero = tn_int_constant(&c->b, TN_I64, 0);
    tn_op *update = y ? tn_build(&c->b, TN_OP_dynamic_update_slice, (tn_value *[]){carried[0], y, t, zero, zero, zero},
                                 6, NULL, 0, NULL, 0)
                      : NULL;
    next[0] = update ? &update->result[0] : NULL;
    next[1] = state;
    return update && state;
}

bool onnx_op_linear_attention(onnx_ctx *c, const onnx_node *n)
{
    tn_value *q = n->input[0], *v = n->input[2], *past = onnx_in(n, 3), *decay = onnx_in(n, 4), *beta = onnx_in(n, 5);
    linear_attention a = {.heads = onnx_attr_int(c, n, "q_num_heads", 0),
                          .kv_heads = onnx_attr_int(c, n, "kv_num_heads", 0)};
    if (a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads)
        return onnx_error(c, n, "`q_num_heads` must be a positive multiple of `kv_num_heads`, found %lld and %lld",
                          (long long)a.heads, (long long)a.kv_heads);
    const char *rule = onnx_attr_string(c, n, "update_rule", "gated_delta");
    bool gated = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    if (gated != (decay != NULL) || delta != (beta != NULL))
        return onnx_error(c, n, "update rule '%s' does not go with the inputs: decay %s, beta %s", rule,
                          decay ? "given" : "missing", beta ? "given" : "missing");
    a.q = unpack_heads(c, q, a.heads);
    a.k = unpack_heads(c, n->input[1], a.kv_heads);
    a.v = unpack_heads(c, v, a.kv_heads);
    a.decay = unpack_heads(c, decay, a.kv_heads);
    if (beta)
        a.beta = unpack_heads(c, beta, beta->type.rank == 3 && tn_dim_is(beta->type.dim[2], 1) ? 1 : a.kv_heads);
    if (!a.q || !a.k || !a.v || (decay && !a.decay) || (beta && !a.beta))
        return false;
    a.time = a.q->type.dim[0];
    a.batch = a.q->type.dim[1];
    a.key_size = a.q->type.dim[3];
    a.value_size = a.v->type.dim[3];
    double scale = onnx_attr_float(c, n, "scale", 0);
    a.scale = scale != 0 ? emit_number(c, TN_F32, scale) : emit_unary(c, TN_OP_rsqrt, emit_size(c, a.key_size, TN_F32));
    tn_dim out[] = {a.time, a.batch, emit_dim(c, a.heads), a.value_size};
    tn_dim kept[] = {a.batch, emit_dim(c, a.kv_heads), a.key_size, a.value_size};
    tn_value *zero = emit_number(c, TN_F32, 0), *final[2];
    tn_value *init[] = {emit_fill(c, zero, out, 4),
                        past ? tn_convert(&c->b, past, TN_F32) : emit_fill(c, zero, kept, 4)};
    if (!emit_counted_loop(c, emit_size(c, a.time, TN_I64), init, 2, linear_attention_body, &a, final))
        return false;
    tn_dim packed[] = {a.batch, a.time, tn_dim_mul(c->session, out[2], a.value_size)};
    tn_value *y = emit_transpose(c, tn_convert(&c->b, final[0], q->type.dtype), EMIT_AXES(1, 0, 2, 3));
    return onnx_set_output(c, n, 0, y ? tn_reshape(&c->b, y, packed, 3) : NULL) &&
           onnx_set_output(c, n, 1, tn_convert(&c->b, final[1], past ? past->type.dtype : q->type.dtype));
}
