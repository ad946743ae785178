/* Orders of steps: what depends on what stays, the peak is never higher than the program's own, and for few steps it is near the best of all orders. */
#include "plan_test.h"

static uint64_t random_state = 1;
static int draw(int n)
{
    random_state = tn_hash_u64(random_state + 0x9e3779b97f4a7c15u);
    return (int)(random_state % (uint64_t)n);
}

enum { FEW = 9, MOST = 60 };

/* Step i copies source[i] (-1: the input) into a buffer of its own, or into the output if nobody reads that. */
typedef struct copies {
    fixture f;
    int n, source[MOST], buffer[MOST];
    int64_t bytes[MOST]; /* 0: an output */
    tn_step *step[MOST];
} copies;

static const tn_plan_sizes no_sizes;

static void make_copies(copies *c, int n)
{
    bool read[MOST] = {false};
    int noutputs = 0;
    fixture_start(&c->f);
    int input = add_input(&c->f, TN_I8, tn_dim_const(c->f.session, 64));
    c->n = n;
    for (int i = 0; i < n; i++) {
        c->source[i] = draw(i + 1) - 1;
        if (c->source[i] >= 0)
            read[c->source[i]] = true;
    }
    for (int i = 0; i < n; i++) {
        int64_t size = 64 * (1 + draw(50));
        c->bytes[i] = read[i] ? size : 0;
        c->buffer[i] = read[i] ? add_temp(&c->f, TN_I8, tn_dim_const(c->f.session, size)) : add_buffer(&c->f, TN_B_OUTPUT, TN_I8, noutputs++, tn_dim_const(c->f.session, size));
        add_copy(&c->f, &c->f.program.steps, c->buffer[i], c->source[i] < 0 ? input : c->buffer[c->source[i]]);
        c->step[i] = c->f.program.steps.list.at[i];
    }
}

static int users_left(const copies *c, int value, unsigned long long done)
{
    int left = 0;
    for (int i = 0; i < c->n; i++)
        left += c->source[i] == value && !(done >> i & 1);
    return left;
}

/* Bytes alive while step i runs behind those that are done. */
static int64_t live_at(const copies *c, unsigned long long done, int i)
{
    int64_t live = c->bytes[i];
    for (int k = 0; k < c->n; k++)
        live += done >> k & 1 && users_left(c, k, done) ? c->bytes[k] : 0;
    return live;
}

static int64_t peak_of(const copies *c, tn_step *const *order)
{
    unsigned long long done = 0;
    int64_t peak = 0;
    for (int k = 0; k < c->n; k++) {
        int i = 0;
        while (c->step[i] != order[k])
            i++;
        assert_true(!(done >> i & 1) && (c->source[i] < 0 || done >> c->source[i] & 1));
        peak = tn_max(peak, live_at(c, done, i));
        done |= 1ull << i;
    }
    return peak;
}

static int64_t best_of_all(const copies *c, unsigned long long done, int64_t peak, int64_t best)
{
    if (peak >= best || done == (1ull << c->n) - 1)
        return tn_min(peak, best);
    for (int i = 0; i < c->n; i++)
        if (!(done >> i & 1) && (c->source[i] < 0 || done >> c->source[i] & 1))
            best = best_of_all(c, done | 1ull << i, tn_max(peak, live_at(c, done, i)), best);
    return best;
}

static void orders_are_near_the_best(void **state)
{
    (void)state;
    double sum_own = 0, sum_chosen = 0, sum_best = 0;
    for (int round = 0; round < 500; round++) {
        copies c;
        make_copies(&c, 3 + draw(FEW - 2));
        int64_t own = peak_of(&c, c.step), best = best_of_all(&c, 0, 0, INT64_MAX);
        tn_plan_order(&c.f.program, &no_sizes);
        int64_t chosen = peak_of(&c, c.f.program.steps.list.at);
        assert_true(best <= chosen && chosen <= own);
        sum_own += (double)own, sum_chosen += (double)chosen, sum_best += (double)best;
        fixture_end(&c.f);
    }
    printf("own %.3f, chosen %.3f of the best\n", sum_own / sum_best, sum_chosen / sum_best);
    assert_true(sum_chosen < 1.03 * sum_best && sum_own > 1.1 * sum_best);
}

static void what_is_no_better_is_left_alone(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        copies c;
        make_copies(&c, MOST);
        int64_t own = peak_of(&c, c.step);
        tn_plan_order(&c.f.program, &no_sizes);
        int64_t chosen = peak_of(&c, c.f.program.steps.list.at);
        assert_true(chosen <= own);
        assert_true(chosen < own || !memcmp(c.step, c.f.program.steps.list.at, sizeof *c.step * MOST));
        fixture_end(&c.f);
    }
}

static bool is_large(void *context, const char *symbol, int64_t *size)
{
    (void)symbol;
    *size = *(const int64_t *)context;
    return true;
}

/* x -> a (n bytes) -> first output, x -> b (1000 bytes) -> second output: which of two orders is better is a matter of n, if a third value makes them differ. */
static void sizes_decide(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        fixture f;
        fixture_start(&f);
        tn_dim n = tn_dim_symbol(f.session, "n"), thousand = tn_dim_const(f.session, 1000), one = tn_dim_const(f.session, 1);
        int x = add_input(&f, TN_I8, n), a = add_temp(&f, TN_I8, n), b = add_temp(&f, TN_I8, thousand), c = add_temp(&f, TN_I8, one), d = add_temp(&f, TN_I8, one);
        add_copy(&f, &f.program.steps, a, x);
        add_copy(&f, &f.program.steps, b, x);
        add_copy(&f, &f.program.steps, c, a);
        add_copy(&f, &f.program.steps, d, b);
        add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_I8, 0, one), c);
        add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_I8, 1, one), d);
        int64_t size = large ? 100000 : 0;
        tn_plan_order(&f.program, &(tn_plan_sizes){is_large, &size});
        const tn_steps *steps = &f.program.steps;
        bool apart = true; /* the two are never alive together, whichever is first */
        for (size_t i = 0, alive = 0; i < steps->list.len; i++) {
            alive += steps->list.at[i]->args[0] == a || steps->list.at[i]->args[0] == b;
            apart &= alive < 2;
            alive -= steps->list.at[i]->args[1] == a || steps->list.at[i]->args[1] == b;
        }
        assert_true(apart);
        fixture_end(&f);
    }
}

/* A loop stays where it is, and what stands before and behind it on its side. */
static void nothing_passes_a_loop(void **state)
{
    (void)state;
    fixture f;
    fixture_start(&f);
    tn_dim one = tn_dim_const(f.session, 1), n = tn_dim_const(f.session, 5000);
    int on = add_input(&f, TN_BOOL, one), x = add_input(&f, TN_I8, n), cond = add_temp(&f, TN_BOOL, one), early = add_temp(&f, TN_I8, n), late = add_temp(&f, TN_I8, n);
    add_copy(&f, &f.program.steps, cond, on);
    add_copy(&f, &f.program.steps, early, x); /* cheaper behind the loop */
    tn_step *loop = add_step(&f, &f.program.steps, TN_STEP_WHILE, 1, &cond);
    loop->nblocks = 2;
    loop->blocks = TN_NEW_ARRAY(&f.session->arena, tn_steps, 2);
    add_copy(&f, &loop->blocks[0], cond, on);
    add_copy(&f, &loop->blocks[1], late, x);
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_I8, 0, n), early);
    add_copy(&f, &f.program.steps, add_buffer(&f, TN_B_OUTPUT, TN_I8, 1, n), late);
    tn_plan_order(&f.program, &no_sizes);
    assert_ptr_equal(f.program.steps.list.at[2], loop);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_near_the_best),
        cmocka_unit_test(what_is_no_better_is_left_alone),
        cmocka_unit_test(sizes_decide),
        cmocka_unit_test(nothing_passes_a_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
