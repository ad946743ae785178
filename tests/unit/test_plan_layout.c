/* Placement of buffers against all placements there are, for few of them; for many, that none lies where another lives. */
#include "plan_test.h"

static uint64_t random_state = 1;
static int64_t draw(int64_t n)
{
    random_state = tn_hash_u64(random_state + 0x9e3779b97f4a7c15u);
    return (int64_t)(random_state % (uint64_t)n);
}

enum { POSITIONS = 12, FEW = 7, MOST = 200 };

typedef struct instance {
    fixture f;
    tn_exec exec;
    tn_layout layout;
    tn_exec_buffer buffer[MOST];
    int n;
} instance;

/* No steps, but buffers whose lifetimes are drawn: all that placement looks at. */
static void make_instance(instance *x, int n, int positions, int64_t most_bytes)
{
    fixture_start(&x->f);
    x->n = n;
    for (int i = 0; i < n; i++) {
        int first = (int)draw(positions), last = first + (int)draw(positions - first);
        add_temp(&x->f, TN_I8, tn_dim_const(x->f.session, 1 + draw(most_bytes)));
        x->buffer[i] = (tn_exec_buffer){.planned = true, .same_as = -1, .first = first, .last = last};
    }
    x->exec = (tn_exec){.session = x->f.session, .program = &x->f.program, .buffers = x->buffer, .ngroups = 1, .positions = positions};
    tn_values values = {.exec = &x->exec};
    tn_layout_new(&x->f.session->arena, &x->exec, &x->layout);
    assert_int_equal(tn_layout_group(x->f.session, &x->f.session->arena, &values, 0, &x->layout), TN_OK);
}

static bool live_together(const instance *x, int a, int b)
{
    return x->buffer[a].first <= x->buffer[b].last && x->buffer[b].first <= x->buffer[a].last;
}

static int64_t bytes_of(const instance *x, int b) { return tn_layout_rounded(x->layout.bytes[b]); }

static void none_overlap(const instance *x)
{
    for (int a = 0; a < x->n; a++) {
        assert_true(x->layout.offset[a] >= 0 && x->layout.offset[a] % TN_ALIGN == 0 && x->layout.offset[a] + bytes_of(x, a) <= x->layout.segment[0]);
        for (int b = 0; b < a; b++)
            assert_true(!live_together(x, a, b) || x->layout.offset[a] + bytes_of(x, a) <= x->layout.offset[b] || x->layout.offset[b] + bytes_of(x, b) <= x->layout.offset[a]);
    }
}

/* The lowest place for `item` beside those that lie already. */
static int64_t lowest(const instance *x, const int64_t *offset, unsigned placed, int item)
{
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int b = 0; b < x->n; b++)
            if (placed >> b & 1 && live_together(x, item, b) && at < offset[b] + bytes_of(x, b) && offset[b] < at + bytes_of(x, item))
                at = offset[b] + bytes_of(x, b), moved = true;
    }
    return at;
}

/* Any placement can be pushed down, lowest buffers first, to one that an order with the lowest place for each gives: all orders give the best. */
static int64_t best_of_all(const instance *x, int64_t *offset, unsigned placed, int64_t peak, int64_t best)
{
    if (peak >= best || best == x->layout.live[0]) /* nothing is better than the bound */
        return best;
    if (placed == (1u << x->n) - 1)
        return peak;
    for (int i = 0; i < x->n; i++)
        if (!(placed >> i & 1)) {
            offset[i] = lowest(x, offset, placed, i);
            best = best_of_all(x, offset, placed | 1u << i, tn_max(peak, offset[i] + bytes_of(x, i)), best);
        }
    return best;
}

static void few_are_placed_as_well_as_can_be(void **state)
{
    (void)state;
    enum { ROUNDS = 2000 };
    int equal = 0;
    for (int round = 0; round < ROUNDS; round++) {
        static instance x;
        int64_t offset[FEW];
        make_instance(&x, 2 + (int)draw(FEW - 1), POSITIONS, round % 2 ? 1000 : 500000);
        int64_t best = best_of_all(&x, offset, 0, 0, INT64_MAX);
        none_overlap(&x);
        assert_true(x.layout.live[0] <= best && best <= x.layout.segment[0]);
        assert_true((double)x.layout.segment[0] <= 1.03 * (double)best);
        equal += x.layout.segment[0] == best;
        fixture_end(&x.f);
    }
    printf("%d of %d are placed as well as can be\n", equal, ROUNDS);
    assert_true(equal > ROUNDS * 98 / 100);
}

static void no_two_lie_in_one_place(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        static instance x;
        make_instance(&x, 1 + (int)draw(MOST), 1 + (int)draw(100), round % 2 ? 100000 : 300);
        none_overlap(&x);
        assert_true(x.layout.live[0] <= x.layout.segment[0]);
        fixture_end(&x.f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_placed_as_well_as_can_be),
        cmocka_unit_test(no_two_lie_in_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
