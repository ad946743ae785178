/* Random kernels around one vector loop: affine, reversed, strided, uniform and indirect accesses, branches, masks,
 * inner loops with buffers of their own, f32, i32, bf16, and in every third kernel f64 and divided indices. Iterations
 * write only elements of their own. */
#ifndef TN_LOOP_RANDOM_H
#define TN_LOOP_RANDOM_H

#include "loop_test.h"

typedef struct pool {
    tn_lvalue *at[64];
    int n;
} pool;

typedef struct maker {
    uint64_t random;
    tn_lfunc *func;
    tn_lvalue *in_f, *in_i, *in_h, *in_d, *out_f, *out_i, *out_h, *n, *m;
    tn_lvalue *index; /* of the vector loop */
    pool f32, i32, f16, f64, index_values, conds;
    int budget;
    bool wide; /* f64 and i64 data occur */
} maker;

static uint64_t pick(maker *k, uint64_t n)
{
    return next_random(&k->random) % n;
}

static tn_lvalue *from(maker *k, const pool *p)
{
    return p->at[pick(k, (uint64_t)p->n)];
}

static void put(maker *k, pool *p, tn_lvalue *v)
{
    p->at[p->n < 64 ? p->n++ : (int)pick(k, 64)] = v;
}

static tn_lvalue *small(maker *k, tn_lbuilder *b)
{
    return tn_l_index(b, (int64_t)pick(k, 7));
}

/* An offset inside every buffer: affine with several strides, uniform, or read from memory. */
static tn_lvalue *offset(maker *k, tn_lbuilder *b)
{
    tn_lvalue *i = k->index, *one = tn_l_index(b, 1);
    switch (pick(k, 7)) {
    case 0:
        return small(k, b);
    case 1: /* n - 1 - i, not below 0 */
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_sub, tn_l_fn2(b, TN_S_sub, k->n, one), i), tn_l_index(b, 200));
    case 2:
        return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, i, tn_l_index(b, (int64_t)pick(k, 4) + 1)), small(k, b));
    case 3: {
        tn_lvalue *at = tn_l_load(b, k->in_i, i, 1, NULL, NULL);
        return tn_l_cast(b, tn_l_fn2(b, TN_S_and, at, tn_l_const(b, tn_lscalar(TN_I32), (tn_number){.i = 255})),
                         TN_I64);
    }
    case 4:
        return tn_l_fn2(b, TN_S_add, i, tn_l_fn2(b, TN_S_and, from(k, &k->index_values), tn_l_index(b, 127)));
    default:
        return i;
    }
}

static void make_float_op(maker *k, tn_lbuilder *b, pool *p)
{
    static const tn_scalar unary[] = {TN_S_neg, TN_S_abs, TN_S_sqrt, TN_S_floor, TN_S_round_even};
    static const tn_scalar binary[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_div, TN_S_max, TN_S_min};
    static const tn_scalar compare[] = {TN_S_lt, TN_S_ge, TN_S_ne};
    tn_lvalue *x = from(k, p), *y = from(k, p);
    switch (pick(k, 5)) {
    case 0:
        put(k, p, tn_l_fn1(b, unary[pick(k, 5)], x));
        break;
    case 1:
        put(k, &k->conds, tn_l_fn2(b, compare[pick(k, 3)], x, y));
        break;
    case 2:
        put(k, p, tn_l_fn3(b, TN_S_select, from(k, &k->conds), x, y));
        break;
    default:
        put(k, p, tn_l_fn2(b, binary[pick(k, 6)], x, y));
    }
}

static void make_integer_op(maker *k, tn_lbuilder *b)
{
    static const tn_scalar fns[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_div, TN_S_rem,
                                    TN_S_max, TN_S_and, TN_S_xor, TN_S_shl, TN_S_shr_arith};
    if (pick(k, 3) == 0)
        put(k, &k->i32, tn_l_cast(b, from(k, &k->index_values), TN_I32));
    else
        put(k, &k->i32, tn_l_fn2(b, fns[pick(k, 10)], from(k, &k->i32), from(k, &k->i32)));
}

static void make_index_op(maker *k, tn_lbuilder *b)
{
    static const tn_scalar fns[] = {TN_S_add, TN_S_sub, TN_S_mul, TN_S_div, TN_S_rem, TN_S_min, TN_S_max};
    static const tn_scalar compare[] = {TN_S_lt, TN_S_le, TN_S_gt, TN_S_ge, TN_S_eq, TN_S_ne};
    tn_lvalue *x = from(k, &k->index_values), *y = pick(k, 2) ? small(k, b) : from(k, &k->index_values);
    if (pick(k, 2))
        put(k, &k->conds, tn_l_fn2(b, compare[pick(k, 6)], x, y));
    else
        put(k, &k->index_values, tn_l_fn2(b, fns[pick(k, k->wide ? 7 : 3)], x, y));
}

static void make_cast(maker *k, tn_lbuilder *b)
{
    switch (pick(k, k->wide ? 6 : 4)) {
    case 0:
        put(k, &k->f32, tn_l_cast(b, from(k, &k->f16), TN_F32));
        break;
    case 1:
        put(k, &k->f16, tn_l_cast(b, from(k, &k->f32), TN_BF16));
        break;
    case 2:
        put(k, &k->f32, tn_l_cast(b, from(k, &k->i32), TN_F32));
        break;
    case 3:
        put(k, &k->f32, tn_l_cast(b, from(k, &k->index_values), TN_F32));
        break;
    case 4:
        put(k, &k->f64, tn_l_cast(b, from(k, &k->f32), TN_F64));
        break;
    default:
        put(k, &k->f32, tn_l_cast(b, from(k, &k->f64), TN_F32));
    }
}

static void make_load(maker *k, tn_lbuilder *b)
{
    tn_lvalue *mask = pick(k, 4) ? NULL : from(k, &k->conds), *at = offset(k, b);
    switch (pick(k, k->wide ? 4 : 3)) {
    case 0:
        put(k, &k->f32, tn_l_load(b, k->in_f, at, 1, mask, mask && pick(k, 2) ? from(k, &k->f32) : NULL));
        break;
    case 1:
        put(k, &k->i32, tn_l_load(b, k->in_i, at, 1, mask, NULL));
        break;
    case 2:
        put(k, &k->f16, tn_l_load(b, k->in_h, at, 1, NULL, NULL));
        break;
    default:
        put(k, &k->f64, tn_l_load(b, k->in_d, at, 1, mask, NULL));
    }
}

/* Each iteration writes its own elements: out_f[i], out_i[n - i], out_h[3 * i + 1]. */
static void make_store(maker *k, tn_lbuilder *b)
{
    tn_lvalue *mask = pick(k, 4) ? NULL : from(k, &k->conds);
    switch (pick(k, 3)) {
    case 0:
        tn_l_store(b, k->out_f, k->index, from(k, &k->f32), mask);
        break;
    case 1:
        tn_l_store(b, k->out_i, tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_sub, k->n, k->index), tn_l_index(b, 160)),
                   from(k, &k->i32), mask);
        break;
    default:
        tn_l_store(b, k->out_h,
                   tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, k->index, tn_l_index(b, 3)), tn_l_index(b, 1)),
                   from(k, &k->f16), mask);
    }
}

static void make_ops(maker *k, tn_lbuilder *b, int depth);

/* What a block defines must not be used after it. */
static void make_nested(maker *k, tn_lblock *block, int depth)
{
    maker outer = *k;
    tn_lbuilder b = tn_lbuilder_at_end(k->func, block);
    make_ops(k, &b, depth + 1);
    outer.random = k->random;
    outer.budget = k->budget;
    *k = outer;
}

static void make_if(maker *k, tn_lbuilder *b, int depth)
{
    tn_lop *op = tn_l_if(b, from(k, &k->conds));
    make_nested(k, op->region[0], depth);
    if (pick(k, 2))
        make_nested(k, op->region[1], depth);
}

/* acc[j & 3] is set up, then a loop folds into it, then it is read. */
static void make_inner_loop(maker *k, tn_lbuilder *b, int depth)
{
    tn_lvalue *zero = tn_l_index(b, 0), *one = tn_l_index(b, 1);
    tn_lvalue *acc = tn_l_alloc(b, "acc", TN_F32, pick(k, 2) ? TN_SPACE_REG : TN_SPACE_LOCAL, 4);
    for (int j = 0; j < 4; j++)
        tn_l_store(b, acc, tn_l_index(b, j), from(k, &k->f32), NULL);
    bool constant = pick(k, 2);
    tn_lop *loop = tn_l_for(b, "j", zero, constant ? tn_l_index(b, (int64_t)pick(k, 6)) : k->m, one,
                            pick(k, 2) ? TN_FOR_UNROLL : TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(b, loop->region[0]);
    tn_lvalue *j = loop->region[0]->arg;
    tn_lvalue *at = tn_l_fn2(&in, TN_S_and, j, tn_l_index(&in, 3));
    tn_lvalue *x =
        tn_l_load(&in, k->in_f, tn_l_fn2(&in, TN_S_add, tn_l_fn2(&in, TN_S_mul, j, tn_l_index(&in, 50)), k->index), 1,
                  NULL, NULL);
    tn_lvalue *mask = pick(k, 3) ? NULL : from(k, &k->conds);
    tn_l_store(&in, acc, at, tn_l_fn2(&in, TN_S_add, tn_l_load(&in, acc, at, 1, NULL, NULL), x), mask);
    maker outer = *k;
    put(k, &k->index_values, j);
    put(k, &k->f32, x);
    make_nested(k, loop->region[0], depth);
    outer.random = k->random;
    outer.budget = k->budget;
    *k = outer;
    for (int i = 0; i < 2; i++)
        put(k, &k->f32, tn_l_load(b, acc, tn_l_index(b, i), 1, NULL, NULL));
}

static void make_ops(maker *k, tn_lbuilder *b, int depth)
{
    for (int n = 2 + (int)pick(k, 12); n > 0 && k->budget > 0; n--, k->budget--) {
        uint64_t kind = pick(k, 16);
        if (kind < 4)
            make_float_op(k, b, pick(k, 4) ? &k->f32 : k->wide && pick(k, 2) ? &k->f64 : &k->f16);
        else if (kind < 6)
            make_integer_op(k, b);
        else if (kind < 8)
            make_index_op(k, b);
        else if (kind < 9)
            make_cast(k, b);
        else if (kind < 12)
            make_load(k, b);
        else if (kind < 14)
            make_store(k, b);
        else if (depth < 3)
            (kind == 14 ? make_if : make_inner_loop)(k, b, depth);
    }
}

static void make_start(maker *k, tn_lbuilder *b)
{
    put(k, &k->f32, tn_l_load(b, k->in_f, k->index, 1, NULL, NULL));
    put(k, &k->f32, tn_l_const(b, tn_lscalar(TN_F32), (tn_number){.f = 1.5}));
    put(k, &k->f16, tn_l_load(b, k->in_h, k->index, 1, NULL, NULL));
    put(k, &k->i32, tn_l_load(b, k->in_i, tn_l_index(b, 3), 1, NULL, NULL));
    put(k, &k->i32, tn_l_const(b, tn_lscalar(TN_I32), (tn_number){.i = 3}));
    put(k, &k->f64, tn_l_load(b, k->in_d, k->index, 1, NULL, NULL));
    put(k, &k->index_values, k->index);
    put(k, &k->index_values, k->m);
    put(k, &k->conds, tn_l_fn2(b, TN_S_lt, k->index, k->m));
}

static inline tn_lfunc *make_kernel(tn_session *session, uint64_t seed)
{
    maker k = {.random = seed, .budget = 60, .func = tn_lfunc_new(session, "random")};
    k.wide = pick(&k, 3) == 0;
    k.in_f = tn_lfunc_buffer(k.func, "in_f", TN_F32, true, 0);
    k.in_i = tn_lfunc_buffer(k.func, "in_i", TN_I32, true, 0);
    k.in_h = tn_lfunc_buffer(k.func, "in_h", TN_BF16, true, 0);
    k.in_d = tn_lfunc_buffer(k.func, "in_d", TN_F64, pick(&k, 2), 0);
    k.out_f = tn_lfunc_buffer(k.func, "out_f", TN_F32, false, 0);
    k.out_i = tn_lfunc_buffer(k.func, "out_i", TN_I32, false, 0);
    k.out_h = tn_lfunc_buffer(k.func, "out_h", TN_BF16, false, 0);
    k.n = tn_lfunc_index(k.func, "n");
    k.m = tn_lfunc_index(k.func, "m");
    tn_lfunc_index(k.func, "begin");
    tn_lfunc_index(k.func, "end");
    tn_lbuilder b = tn_lbuilder_at_end(k.func, k.func->body);
    int64_t lo = (int64_t)pick(&k, 3), step = pick(&k, 4) ? 1 : 3, few = lo + step * (INT64_C(2) << pick(&k, 4));
    tn_lvalue *hi = pick(&k, 3) ? k.n : tn_l_index(&b, pick(&k, 2) ? few : (int64_t)pick(&k, 150));
    tn_lop *loop = tn_l_for(&b, "i", tn_l_index(&b, lo), hi, tn_l_index(&b, step), TN_FOR_VECTOR);
    tn_lbuilder in = tn_l_in(&b, loop->region[0]);
    k.index = loop->region[0]->arg;
    make_start(&k, &in);
    make_ops(&k, &in, 0);
    make_store(&k, &in);
    return k.func;
}

#endif
