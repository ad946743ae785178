/* The register tile of the f32 product, as the emitter compiles it, against the machine's own rate of fused multiply-adds.
 *
 *     dot_micro [machine] [asm]
 *
 * Prints the rate of independent multiply-adds on registers (the peak), of the tile over a packed panel that lies in L1 and one that lies in
 * L2, with its loop over k unrolled by 1, 2 and 4, and the time to compile it. With `asm`, prints the assembly of the plain tile instead.
 * Where 512-bit operations share their ports with scalar ones (Intel), unrolling is what hides the address arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "target/target.h"

enum { REPEATS = 400 };

typedef struct tile {
    tn_lvalue *acc;
    int rows, vectors, lanes;
} tile;

static tn_lvalue *load_acc(tn_lbuilder *b, const tile *t, int i)
{
    return tn_l_load(b, t->acc, tn_l_index(b, (int64_t)i * t->lanes), t->lanes, NULL, NULL);
}

static void store_acc(tn_lbuilder *b, const tile *t, int i, tn_lvalue *value)
{
    tn_l_store(b, t->acc, tn_l_index(b, (int64_t)i * t->lanes), value, NULL);
}

static tn_lvalue *multiply_add(tn_lbuilder *b, const tn_machine *machine, tn_lvalue *x, tn_lvalue *y, tn_lvalue *z)
{
    if (machine->vector.fma)
        return tn_l_fn3(b, TN_S_fma, x, y, z);
    return tn_l_fn2(b, TN_S_add, tn_l_fn2(b, TN_S_mul, x, y), z);
}

static tile new_tile(tn_lbuilder *b, const tn_machine *machine)
{
    tile t = {.rows = machine->dot_rows, .vectors = machine->dot_vectors, .lanes = machine->vector.bits / 32};
    int n = t.rows * t.vectors;
    t.acc = tn_l_alloc(b, "acc", TN_F32, TN_SPACE_REG, (int64_t)n * t.lanes);
    tn_lvalue *zero = tn_l_const(b, tn_lvector(TN_F32, t.lanes), (tn_number){.f = 0});
    for (int i = 0; i < n; i++)
        store_acc(b, &t, i, zero);
    return t;
}

/* One step of k: a column of a times a row of the panel. */
static void dot_step(tn_lbuilder *b, const tn_machine *machine, const tile *t, tn_lvalue *const *buffers, tn_lvalue *p, tn_lvalue *lda)
{
    tn_lvalue *panel[8], *row = tn_l_fn2(b, TN_S_mul, p, tn_l_index(b, (int64_t)t->vectors * t->lanes));
    for (int v = 0; v < t->vectors; v++)
        panel[v] = tn_l_load(b, buffers[1], tn_l_fn2(b, TN_S_add, row, tn_l_index(b, (int64_t)v * t->lanes)), t->lanes, NULL, NULL);
    for (int r = 0; r < t->rows; r++) {
        tn_lvalue *at = tn_l_fn2(b, TN_S_add, p, tn_l_fn2(b, TN_S_mul, lda, tn_l_index(b, r)));
        tn_lvalue *x = tn_l_splat(b, tn_l_load(b, buffers[0], at, 1, NULL, NULL), t->lanes);
        for (int v = 0, i = r * t->vectors; v < t->vectors; v++, i++)
            store_acc(b, t, i, multiply_add(b, machine, x, panel[v], load_acc(b, t, i)));
    }
}

/* c[rows][vectors * lanes] = a[rows][lda] * b[k][vectors * lanes] over [0, k); k a multiple of `unroll` */
static tn_lfunc *dot_kernel(tn_session *session, const tn_machine *machine, int unroll)
{
    tn_lfunc *func = tn_lfunc_new(session, "dot");
    tn_lvalue *pa = tn_lfunc_buffer(func, "a", TN_F32, true, 64), *pb = tn_lfunc_buffer(func, "b", TN_F32, true, 64);
    tn_lvalue *pc = tn_lfunc_buffer(func, "c", TN_F32, false, 64);
    tn_lvalue *k = tn_lfunc_index(func, "k"), *lda = tn_lfunc_index(func, "lda");
    tn_lvalue *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder top = tn_lbuilder_at_end(func, func->body);
    tn_lop *grid = tn_l_for(&top, "i", begin, end, tn_l_index(&top, 1), TN_FOR_GRID);
    tn_lbuilder outer = tn_l_in(&top, grid->region[0]);
    tile t = new_tile(&outer, machine);
    tn_lop *loop = tn_l_for(&outer, "p", tn_l_index(&outer, 0), k, tn_l_index(&outer, unroll), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&outer, loop->region[0]);
    for (int u = 0; u < unroll; u++)
        dot_step(&in, machine, &t, (tn_lvalue *[]){pa, pb}, tn_l_fn2(&in, TN_S_add, loop->region[0]->arg, tn_l_index(&in, u)), lda);
    for (int i = 0; i < t.rows * t.vectors; i++)
        tn_l_store(&outer, pc, tn_l_index(&outer, (int64_t)i * t.lanes), load_acc(&outer, &t, i), NULL);
    return func;
}

/* The same number of multiply-adds, on registers alone. */
static tn_lfunc *peak_kernel(tn_session *session, const tn_machine *machine)
{
    tn_lfunc *func = tn_lfunc_new(session, "peak");
    tn_lvalue *pa = tn_lfunc_buffer(func, "a", TN_F32, true, 64), *pc = tn_lfunc_buffer(func, "c", TN_F32, false, 64);
    tn_lvalue *k = tn_lfunc_index(func, "k"), *begin = tn_lfunc_index(func, "begin"), *end = tn_lfunc_index(func, "end");
    tn_lbuilder top = tn_lbuilder_at_end(func, func->body);
    tn_lop *grid = tn_l_for(&top, "i", begin, end, tn_l_index(&top, 1), TN_FOR_GRID);
    tn_lbuilder outer = tn_l_in(&top, grid->region[0]);
    tile t = new_tile(&outer, machine);
    tn_lvalue *x = tn_l_load(&outer, pa, tn_l_index(&outer, 0), t.lanes, NULL, NULL);
    tn_lvalue *y = tn_l_load(&outer, pa, tn_l_index(&outer, t.lanes), t.lanes, NULL, NULL);
    tn_lop *loop = tn_l_for(&outer, "p", tn_l_index(&outer, 0), k, tn_l_index(&outer, 1), TN_FOR_SERIAL);
    tn_lbuilder in = tn_l_in(&outer, loop->region[0]);
    for (int i = 0; i < t.rows * t.vectors; i++)
        store_acc(&in, &t, i, multiply_add(&in, machine, load_acc(&in, &t, i), x, y));
    for (int i = 0; i < t.rows * t.vectors; i++)
        tn_l_store(&outer, pc, tn_l_index(&outer, (int64_t)i * t.lanes), load_acc(&outer, &t, i), NULL);
    return func;
}

/* Best of many short runs: the machine may be shared. */
static double best_rate(tn_kernel_fn kernel, void *const *buffers, int64_t k, int64_t lda, double flops)
{
    double best = 0;
    int64_t runs = 1 + 2000000 / (k * 24);
    for (int i = 0; i < REPEATS; i++) {
        double start = tn_seconds();
        kernel(buffers, (int64_t[]){k, lda}, 0, runs, NULL);
        double rate = flops * (double)(k * runs) / (tn_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

static tn_status link_kernels(tn_session *session, const tn_machine *machine, tn_lfunc *const *funcs, size_t n, tn_jit **jit)
{
    tn_blob object;
    TN_TRY(tn_llvm_emit(session, funcs, n, machine, TN_EMIT_OBJECT, 2, &object));
    tn_status status = tn_jit_new(session, jit);
    if (status == TN_OK)
        status = tn_jit_add_object(session, *jit, object.data, object.size);
    free(object.data);
    return status;
}

static tn_status compile_time(tn_session *session, const tn_machine *machine, tn_lfunc *func, double *best)
{
    *best = 1e9;
    for (int i = 0; i < 10; i++) {
        tn_blob object;
        double start = tn_seconds(), elapsed;
        TN_TRY(tn_llvm_emit(session, &func, 1, machine, TN_EMIT_OBJECT, 2, &object));
        elapsed = tn_seconds() - start;
        *best = elapsed < *best ? elapsed : *best;
        free(object.data);
    }
    return TN_OK;
}

static tn_status measure_tile(tn_session *session, const tn_machine *machine, int unroll, const float *data, double flops, double top)
{
    tn_jit *jit;
    double compiled;
    tn_lfunc *func = dot_kernel(session, machine, unroll);
    static const int64_t depths[] = {144, 512};
    TN_TRY(compile_time(session, machine, func, &compiled));
    TN_TRY(link_kernels(session, machine, &func, 1, &jit));
    tn_kernel_fn dot = (tn_kernel_fn)(uintptr_t)tn_jit_symbol(jit, "dot");
    printf("  unroll %d, compiled in %.2f ms:", unroll, compiled * 1e3);
    for (size_t i = 0; i < TN_COUNT(depths); i++) {
        int64_t k = depths[i], kib = k * machine->dot_vectors * machine->vector.bits / 8 / 1024;
        double rate = best_rate(dot, (void *[]){(void *)data, (void *)(data + 8192), (void *)(data + (1 << 17))}, k, k + 16, flops);
        printf("  panel %lld KiB: %.1f GFLOP/s (%.1f %%)", (long long)kib, rate, 100 * rate / top);
    }
    printf("\n");
    tn_jit_free(jit);
    return TN_OK;
}

static tn_status measure(tn_session *session, const tn_machine *machine, float *data)
{
    tn_jit *jit;
    tn_lfunc *func = peak_kernel(session, machine);
    double flops = 2.0 * machine->dot_rows * machine->dot_vectors * (machine->vector.bits / 32.0);
    TN_TRY(link_kernels(session, machine, &func, 1, &jit));
    tn_kernel_fn peak = (tn_kernel_fn)(uintptr_t)tn_jit_symbol(jit, "peak");
    double top = best_rate(peak, (void *[]){data, data + 4096}, 96, 96, flops);
    tn_jit_free(jit);
    printf("%s: tile %dx%d, peak %.1f GFLOP/s\n", machine->name, machine->dot_rows, machine->dot_vectors * machine->vector.bits / 32, top);
    for (int unroll = 1; unroll <= 4; unroll *= 2)
        TN_TRY(measure_tile(session, machine, unroll, data, flops, top));
    return TN_OK;
}

static float *new_data(void)
{
    enum { floats = 1 << 18 };
    float *data = aligned_alloc(64, floats * sizeof *data);
    for (int i = 0; data && i < floats; i++)
        data[i] = 1.0f / (float)(i % 7 + 1);
    return data;
}

static tn_status print_assembly(tn_session *session, const tn_machine *machine)
{
    tn_blob text;
    tn_lfunc *func = dot_kernel(session, machine, 1);
    TN_TRY(tn_llvm_emit(session, &func, 1, machine, TN_EMIT_ASM, 2, &text));
    fputs(text.data, stdout);
    free(text.data);
    return TN_OK;
}

static tn_status run(tn_session *session, const tn_machine *machine, bool assembly)
{
    const char *refusal = tn_machine_refusal(&session->arena, machine);
    float *data;
    if (assembly)
        return print_assembly(session, machine);
    if (refusal)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "%s", refusal);
    data = new_data();
    tn_status status = data ? measure(session, machine, data) : TN_NO_MEMORY;
    free(data);
    return status;
}

int main(int argc, char **argv)
{
    tn_session session = {0};
    session.strings.arena = session.options.arena = &session.arena;
    const tn_machine *machine = tn_machine_find(argc > 1 ? argv[1] : NULL);
    if (!machine) {
        fprintf(stderr, "dot_micro: no machine '%s'\n", argc > 1 ? argv[1] : "host");
        return 1;
    }
    tn_status status = run(&session, machine, argc > 2 && !strcmp(argv[2], "asm"));
    tn_print_diags(&session, stderr);
    tn_arena_free(&session.arena);
    return status != TN_OK;
}
