/* The memory plan: no two buffers that live at once share memory, the plan is near its lower bound, and a run gives what separate memory gives. */
#include "plan_test.h"

static uint64_t random_state = 1;
static int draw(int n)
{
    random_state = tn_hash_u64(random_state + 0x9e3779b97f4a7c15u);
    return (int)(random_state % (uint64_t)n);
}

/* A chain x -> t0 -> t1 -> … needs two buffers at a time. */
static void a_chain_needs_two(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim n = tn_dim_const(f.session, 1000);
    int at = add_input(&f, TN_F32, n);
    for (int i = 0; i < 10; i++) {
        int t = add_temp(&f, TN_F32, n);
        add_copy(&f, &f.program.steps, t, at);
        at = t;
    }
    int out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n);
    add_copy(&f, &f.program.steps, out, at);
    set_outputs(&f, 1, (int[]){0});
    tn_exec *exec = make_exec(&f, false);
    tn_pool *pool = tn_pool_new(1);
    tn_context *context;
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);
    float x[1000], y[1000] = {0};
    int64_t size = 1000;
    for (int i = 0; i < 1000; i++)
        x[i] = (float)i;
    DLTensor in = vector(TN_F32, x, &size), result = vector(TN_F32, y, &size);
    assert_int_equal(tn_run(context, &in, 1, &result, 1), TN_OK);
    assert_memory_equal(x, y, sizeof x);
    tn_memory_info info;
    assert_int_equal(tn_memory_needed(context, &in, 1, &info), TN_OK);
    assert_int_equal(info.arena, 2 * 4032);
    assert_int_equal(info.lower_bound, 2 * 4032);
    assert_int_equal(info.total, 10 * 4000);
    tn_context_free(context);
    tn_pool_free(pool);
    tn_exec_free(exec);
    fixture_end(&f);
}

/* Random straight programs over buffers of three sizes; each result is an output. */
typedef struct random_program {
    fixture f;
    int noutputs;
    int source[64]; /* input that each output must equal */
} random_program;

enum { NINPUTS = 6, NTEMPS = 24, NSTEPS = 40 };

static void make_random(random_program *p)
{
    static const int64_t sizes[3] = {100, 1000, 37};
    int value[NINPUTS + NTEMPS], input_of[NINPUTS + NTEMPS], outputs[64];
    fixture_start(&p->f);
    for (int i = 0; i < NINPUTS; i++) {
        value[i] = add_input(&p->f, TN_F32, tn_dim_const(p->f.session, sizes[i % 3]));
        input_of[i] = i;
    }
    for (int i = NINPUTS; i < NINPUTS + NTEMPS; i++) {
        value[i] = add_temp(&p->f, TN_F32, tn_dim_const(p->f.session, sizes[i % 3]));
        input_of[i] = -1;
    }
    p->noutputs = 0;
    for (int s = 0; s < NSTEPS; s++) {
        int to = NINPUTS + draw(NTEMPS), from;
        do
            from = draw(NINPUTS + NTEMPS);
        while (from % 3 != to % 3 || input_of[from] < 0);
        if (draw(4)) {
            add_copy(&p->f, &p->f.program.steps, value[to], value[from]);
            input_of[to] = input_of[from];
            continue;
        }
        int out = add_buffer(&p->f, TN_B_OUTPUT, TN_F32, p->noutputs, p->f.program.buffers.at[value[from]].elements);
        add_copy(&p->f, &p->f.program.steps, out, value[from]);
        outputs[p->noutputs] = from % 3;
        p->source[p->noutputs++] = input_of[from];
    }
    set_outputs(&p->f, p->noutputs, outputs);
}

static void run_random(random_program *p, bool no_reuse)
{
    tn_exec *exec = make_exec(&p->f, no_reuse);
    tn_pool *pool = tn_pool_new(1);
    tn_context *context;
    static float x[NINPUTS][1000];
    static const int64_t sizes[3] = {100, 1000, 37};
    DLTensor in[NINPUTS], out[64];
    memset(out, 0, sizeof out);
    for (int i = 0; i < NINPUTS; i++) {
        for (int k = 0; k < 1000; k++)
            x[i][k] = (float)(i * 1000 + k);
        in[i] = vector(TN_F32, x[i], (int64_t *)(uintptr_t)&sizes[i % 3]);
    }
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);
    assert_int_equal(tn_run(context, in, NINPUTS, out, (size_t)p->noutputs), TN_OK);
    for (int o = 0; o < p->noutputs; o++) {
        assert_memory_equal(out[o].data, x[p->source[o]], sizeof(float) * (size_t)out[o].shape[0]);
        tn_tensor_free(&out[o]);
    }
    tn_memory_info info;
    assert_int_equal(tn_memory_needed(context, in, NINPUTS, &info), TN_OK);
    assert_true(info.arena >= info.lower_bound || no_reuse);
    assert_true(no_reuse || info.arena <= info.lower_bound * 5 / 4);
    tn_context_free(context);
    tn_pool_free(pool);
    tn_exec_free(exec);
}

static void random_programs_keep_their_values(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        random_program p;
        make_random(&p);
        run_random(&p, false);
        run_random(&p, true);
        fixture_end(&p.f);
    }
}

/* while (c) { c := d; d := e; t := s; s := t' … }: what the loop carries keeps its memory, whatever else the body uses. */
static void a_loop_keeps_what_it_carries(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_const(f.session, 500);
    int yes = add_input(&f, TN_BOOL, one), no = add_input(&f, TN_BOOL, one), x = add_input(&f, TN_F32, n), y = add_input(&f, TN_F32, n);
    int cond = add_temp(&f, TN_BOOL, one), next = add_temp(&f, TN_BOOL, one), after = add_temp(&f, TN_BOOL, one);
    int carried = add_temp(&f, TN_F32, n), other = add_temp(&f, TN_F32, n), inner = add_temp(&f, TN_F32, n);
    int out = add_buffer(&f, TN_B_OUTPUT, TN_F32, 0, n), second = add_buffer(&f, TN_B_OUTPUT, TN_F32, 1, n);
    tn_steps *top = &f.program.steps;
    add_copy(&f, top, next, yes);
    add_copy(&f, top, after, yes);
    add_copy(&f, top, carried, x);
    add_copy(&f, top, other, y);
    tn_step *loop = add_step(&f, top, TN_STEP_WHILE, 1, &cond);
    loop->nblocks = 2;
    loop->blocks = TN_NEW_ARRAY(&f.session->arena, tn_steps, 2);
    add_copy(&f, &loop->blocks[0], cond, next);
    add_copy(&f, &loop->blocks[1], next, after);
    add_copy(&f, &loop->blocks[1], after, no);
    add_copy(&f, &loop->blocks[1], inner, carried); /* swap: two iterations give the old values */
    add_copy(&f, &loop->blocks[1], carried, other);
    add_copy(&f, &loop->blocks[1], other, inner);
    add_copy(&f, top, out, carried);
    add_copy(&f, top, second, other);
    set_outputs(&f, 2, (int[]){2, 3});
    tn_exec *exec = make_exec(&f, false);
    tn_pool *pool = tn_pool_new(1);
    tn_context *context;
    assert_int_equal(tn_state_new(exec, pool, &context), TN_OK);
    bool t = true, u = false;
    float a[500], b[500];
    for (int i = 0; i < 500; i++)
        a[i] = (float)i, b[i] = (float)-i;
    int64_t ones = 1, size = 500;
    DLTensor in[4] = {vector(TN_BOOL, &t, &ones), vector(TN_BOOL, &u, &ones), vector(TN_F32, a, &size), vector(TN_F32, b, &size)}, result[2] = {{0}};
    assert_int_equal(tn_run(context, in, 4, result, 2), TN_OK);
    assert_memory_equal(result[0].data, a, sizeof a);
    assert_memory_equal(result[1].data, b, sizeof b);
    tn_tensor_free(&result[0]);
    tn_tensor_free(&result[1]);
    tn_context_free(context);
    tn_pool_free(pool);
    tn_exec_free(exec);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_needs_two),
        cmocka_unit_test(random_programs_keep_their_values),
        cmocka_unit_test(a_loop_keeps_what_it_carries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
