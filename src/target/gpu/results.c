/* Results of products that leave by boxes of shared memory (TMA): fragments are stored there by `stmatrix`, a box of 128 bytes by so many rows at a time, and one
 * thread has the machine copy the box. No lane exchanges anything with another, no thread computes addresses of memory, and what lies beyond a view's end is clipped.
 *
 *     box i   its elements are computed; stmatrix into buffer i mod n; fence; the box that was there n - 1 before has been read; barrier; store, commit
 *
 * So what a store reads is written again behind the barrier of the box that follows it, in the next program too, and one barrier a box is enough. With one buffer alone
 * another barrier says that it has been read.
 *
 * It is for stores at the top of a kernel with rings of boxes, of tiles of 2-byte elements in fragments, to a view of which the machine can have a map; the kernel touches
 * that memory nowhere else, and what is stored exists wherever the view does. */
#include "target/gpu/dot.h"

struct gpu_result {
    const tn_top *store;
    bool once;             /* a CTA has one program, and a buffer for each box */
    tn_layout layout;
    gpu_operand box;       /* rows of one, 64 columns; where it lies in the buffers */
    tn_lmap map;
    int in[TN_LAYOUT_REG_BITS], nin;     /* register bits that walk matrices of a box, four at a time */
    int boxes[TN_LAYOUT_REG_BITS], nboxes; /* register bits that walk boxes; repeats along the axis walk them too, outermost */
    int buffers;           /* of an instance */
};

enum { LINE = 128, MATRIX = 8 /* rows, and 2-byte elements of one */, FOUR_BITS = 3 /* registers of a thread that are four matrices: 8 */, LANE_ROWS = 2 /* first lane bit of rows */ };

/* ---- which stores ---------------------------------------------------------------------------------------------------------- */

/* The axis' part of a place bit that walks nothing else. False: it walks the other one too, or nothing. */
static bool walks_one(const tn_layout *l, int bit, int inner, uint32_t *along, uint32_t *across)
{
    *along = tn_layout_column(l, bit, inner);
    *across = tn_layout_column(l, bit, 1 - inner);
    return !*along != !*across;
}

/* Fragments of 8 x 8 elements as stmatrix takes them: which registers make up boxes, and how many rows those have. */
static bool find_boxes(gpu_result *r, int inner)
{
    enum { COLUMNS = LINE / 2, MOST_ROWS = 256 };
    const tn_layout *l = &r->layout;
    uint32_t along, across, rows = MATRIX;
    if (l->rank != 2 || l->repeats[1 - inner] != 1 || l->reg_bits < FOUR_BITS || l->bits[inner] < __builtin_ctz(COLUMNS) || tn_layout_column(l, 0, inner) != 1)
        return false;
    for (int i = 0; i < TN_LAYOUT_LANE_BITS; i++) {
        uint32_t wanted = i < LANE_ROWS ? 2u << i : 1u << (i - LANE_ROWS);
        if (!walks_one(l, TN_LAYOUT_LANE + i, inner, &along, &across) || (i < LANE_ROWS ? along : across) != wanted)
            return false;
    }
    for (int i = 1; i < TN_LAYOUT_LANE; i++) { /* those of four matrices; then warps' */
        int bit = i < FOUR_BITS ? i : TN_LAYOUT_WARP + i - FOUR_BITS;
        if (bit >= TN_LAYOUT_WARP + l->warp_bits)
            break;
        if (!walks_one(l, bit, inner, &along, &across) || along >= COLUMNS)
            return false;
        rows = tn_max(rows, 2 * across);
    }
    for (int i = FOUR_BITS; i < l->reg_bits; i++) {
        if (!walks_one(l, i, inner, &along, &across))
            return false;
        if (along >= COLUMNS || across >= rows)
            r->boxes[r->nboxes++] = i;
        else
            r->in[r->nin++] = i;
    }
    r->box = (gpu_operand){.inner = inner, .lies = inner, .rows = rows, .columns = COLUMNS, .box = COLUMNS, .piece_bits = 3, .piece_count = LINE / 16, .bytes = 2};
    return rows <= MOST_ROWS;
}

/* A load's index along dimension d is one that the store has bounds for. */
static bool is_bounded_by(const tn_top *load, int d, const axes *of, const tn_top *store)
{
    const tn_subscript *s = &load->subscript[d];
    for (int k = 0; s->block && s->naxes == 1 && k < store->view->rank; k++) {
        const tn_subscript *mine = &store->subscript[k];
        if (mine->block && mine->naxes == 1 && mine->value == s->value && mine->axis[0] == of->axis[s->axis[0]] && !mine->inside && store->view->shape[k] == load->view->shape[d])
            return true;
    }
    return false;
}

/* Wherever the store's view has elements, v does. */
static bool exists_in(const lower *L, const tn_tvalue *v, const axes *of, const tn_top *store, int *budget)
{
    const tn_top *op = v->def;
    axes inner;
    if (--*budget < 0)
        return false;
    if (v->type.rank == 0 || !op || op->code == TN_T_const || op->code == TN_T_range || op->code == TN_T_dot || op->code == TN_T_for || (op->code == TN_T_fold && gpu_is_dot_fold(op)))
        return op || v->type.rank == 0;
    if (op->code == TN_T_load) {
        bool there = op->view->nguards == 0;
        for (int d = 0; d < op->view->rank && !op->view->padded; d++)
            there &= op->subscript[d].inside || tn_dim_is(op->view->shape[d], TN_TILE_ANY) || is_bounded_by(op, d, of, store);
        return there;
    }
    const tn_tvalue *from = lower_moved_axes(op, of, &inner);
    if (from)
        return exists_in(L, from, &inner, store, budget);
    if (op->code != TN_T_map && op->code != TN_T_cast && op->code != TN_T_bitcast)
        return false;
    for (int i = 0; i < op->noperands; i++) {
        inner = gpu_operand_axes(op, i, of);
        if (!exists_in(L, op->operand[i], &inner, store, budget))
            return false;
    }
    return true;
}

typedef struct others {
    const lower *L;
    const tn_top *store;
    bool touch;
} others;

static void find_others(void *context, tn_top *op)
{
    others *o = context;
    int buffer = lower_accessed(o->L, op);
    o->touch |= op != o->store && (lower_synchronises(op) || (buffer != LOWER_NOTHING && lower_may_alias(o->L, buffer, o->store->view->buffer)));
}

/* No dimension without bounds, whose indices a map might not reach. */
static bool ends_are_known(const tn_view *view, const gpu_operand *o, const tn_lmap *map)
{
    for (int i = 0; i < map->rank; i++)
        if (tn_dim_is(view->shape[o->map_dim[i]], TN_TILE_ANY) && tn_dim_is_const(map->size[i]))
            return false;
    return true;
}

/* Why the store's boxes can't be the machine's; NULL: they can. The layout is the tile's own, unless there is one already. */
static const char *why_not(lower *L, gpu_result *r)
{
    const tn_top *store = r->store;
    const tn_tvalue *v = lower_accessed_tile(store);
    others o = {.L = L, .store = store};
    axes own = lower_own_axes();
    int axis, budget = LOWER_BUDGET;
    int64_t multiple;
    if ((!r->layout.rank && !gpu_sink_layout(L, v, &r->layout)) || !gpu_neighbours(L, store, &axis, &multiple) || !find_boxes(r, axis))
        return "it does not lie in fragments along rows";
    tn_tile_walk(L->kernel->body, find_others, &o);
    if (o.touch)
        return "the kernel may touch its memory elsewhere";
    const char *why = gpu_find_map(L, store, &r->box, &r->map);
    if (!why && !ends_are_known(store->view, &r->box, &r->map))
        why = "where it ends is not known";
    return why ? why : exists_in(L, v, &own, store, &budget) ? NULL : "elements of it may not exist";
}

/* ---- shared memory --------------------------------------------------------------------------------------------------------- */

/* Boxes of a tile. */
static int box_count(const gpu_result *r) { return r->layout.repeats[r->box.inner] << r->nboxes; }

static int64_t box_elements(const gpu_result *r) { return gpu_operand_elements(&r->box); }
static int64_t bytes_of(const gpu_result *r) { return box_elements(r) * r->box.bytes * r->buffers; }

void gpu_find_results(lower *L)
{
    gpu_lower *g = GPU(L);
    for (const tn_top *op = L->kernel->body->first; op; op = op->next) {
        gpu_result r = {.store = op};
        if (op->code != TN_T_store || lower_accessed_tile(op)->type.rank != 2 || tn_dtype_bits(lower_accessed_tile(op)->type.dtype) != 16)
            continue;
        const char *why = why_not(L, &r);
        if (why)
            tn_text_add(&g->remarks, "\nresult, no boxes: %s", why);
        else
            TN_PUSH(&L->arena, &g->results, tn_memdup(&L->arena, &r, sizeof r));
    }
}

int64_t gpu_bound_results(lower *L, int64_t most)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < GPU(L)->results.len; i++) {
        gpu_result *r = GPU(L)->results.at[i];
        for (r->buffers = (int)tn_min(most, box_count(r)); box_count(r) % r->buffers;)
            r->buffers--;
        bytes += bytes_of(r);
    }
    return bytes;
}

void gpu_give_results(lower *L)
{
    enum { ALIGN = 1024 };
    gpu_lower *g = GPU(L);
    for (size_t i = 0; i < g->results.len; i++) {
        gpu_result *r = g->results.at[i];
        r->box.map = tn_lfunc_map(L->func, &r->map);
        g->shared = (g->shared + ALIGN - 1) / ALIGN * ALIGN;
        r->box.buffer = gpu_shared(L, "result", lower_accessed_tile(r->store)->type.dtype, box_elements(r) * r->buffers * g->instances);
    }
}

/* ---- the store --------------------------------------------------------------------------------------------------------------- */

static tn_lvalue *bit_of(tn_lbuilder *b, tn_lvalue *x, int bit)
{
    return tn_l_fn2(b, TN_S_and, bit ? tn_l_fn2(b, TN_S_shr_logical, x, tn_l_index(b, bit)) : x, tn_l_index(b, 1));
}

/* Along the axis, of a number whose bits are these register bits. */
static tn_lvalue *walked(tn_lbuilder *b, const tn_layout *l, int axis, const int *bits, int n, tn_lvalue *number)
{
    tn_lvalue *sum = tn_l_index(b, 0);
    for (int i = 0; i < n; i++)
        if (tn_layout_column(l, bits[i], axis))
            sum = gpu_plus(b, sum, gpu_times(b, bit_of(b, number, i), tn_layout_column(l, bits[i], axis)));
    return sum;
}

static void add_walks(tn_lbuilder *b, nest *n, const int *bits, int count, tn_lvalue *number)
{
    for (int i = 0; i < count; i++) {
        int axis = tn_layout_column(&n->layout, bits[i], 0) ? 0 : 1;
        tn_lvalue *index = bit_of(b, number, i);
        n->walk[n->nwalks++] = (walk){axis, tn_layout_column(&n->layout, bits[i], axis), INT64_C(1) << bits[i], 2, index};
        n->idx[axis] = gpu_plus(b, n->idx[axis], gpu_times(b, index, n->walk[n->nwalks - 1].stride));
        n->reg = gpu_plus(b, n->reg, tn_l_fn2(b, TN_S_shl, index, tn_l_index(b, bits[i])));
    }
}

/* Which repeat a box is of. */
static tn_lvalue *repeat_of(tn_lbuilder *b, const gpu_result *r, tn_lvalue *box) { return tn_l_fn2(b, TN_S_shr_logical, box, tn_l_index(b, r->nboxes)); }

/* The box of a tile by number. */
static void add_box(tn_lbuilder *b, nest *n, const gpu_result *r, tn_lvalue *box)
{
    int axis = r->box.inner, repeats = r->layout.repeats[axis];
    add_walks(b, n, r->boxes, r->nboxes, box);
    if (repeats == 1)
        return;
    tn_lvalue *index = repeat_of(b, r, box);
    n->walk[n->nwalks++] = (walk){axis, INT64_C(1) << r->layout.bits[axis], INT64_C(1) << r->layout.reg_bits, repeats, index};
    n->idx[axis] = gpu_plus(b, n->idx[axis], gpu_times(b, index, INT64_C(1) << r->layout.bits[axis]));
    n->reg = gpu_plus(b, n->reg, gpu_times(b, index, INT64_C(1) << r->layout.reg_bits));
}

/* The thread's 8 elements of four matrices into registers. */
static void compute_matrices(lower *L, tn_lbuilder *b, const gpu_result *r, tn_lvalue *box, tn_lvalue *four, tn_lvalue *regs)
{
    static const int words[] = {1, 2};
    nest n = {.layout = r->layout, .scope = lower_open(L)};
    tn_lvalue *word;
    tn_lbuilder in = gpu_unrolled(b, "w", 1 << TN_COUNT(words), &word);
    tn_lop *pair = tn_l_for(&in, "p", tn_l_index(&in, 0), tn_l_index(&in, 2), tn_l_index(&in, 1), TN_FOR_VECTOR);
    in = tn_l_in(&in, pair->region[0]);
    n.reg = pair->region[0]->arg;
    for (int a = 0; a < n.layout.rank; a++)
        n.idx[a] = gpu_thread_index(L, &n.layout, a);
    n.walk[n.nwalks++] = (walk){r->box.inner, 1, 1, 2, n.reg};
    n.idx[r->box.inner] = gpu_plus(&in, n.idx[r->box.inner], n.reg);
    add_walks(&in, &n, words, TN_COUNT(words), word);
    add_walks(&in, &n, r->in, r->nin, four);
    add_box(&in, &n, r, box);
    GPU(L)->nest = &n;
    L->sink = r->store;
    L->sink_index = n.idx;
    element e = lower_element(L, &in, lower_accessed_tile(r->store), n.idx);
    L->sink = NULL;
    tn_l_store(&in, regs, gpu_plus(&in, gpu_times(&in, word, 2), pair->region[0]->arg), e.value, NULL);
    gpu_close(L, &n);
}

/* Where this lane's row of four matrices of a tile in this layout lies: lane 8 q + i has row i of matrix q. The register bits, those of `number`, walk the others. */
static tn_lvalue *row_at(lower *L, tn_lbuilder *b, const tn_layout *layout, const gpu_operand *o, const int *bits, int n, tn_lvalue *number)
{
    tn_layout lanes = *layout;
    tn_lbuilder *e = &L->entry;
    int rows = 1 - o->inner;
    for (int i = 0; i < TN_LAYOUT_LANE_BITS; i++)
        lanes.col[TN_LAYOUT_LANE + i] = layout->col[1 + i - FOUR_BITS < 0 ? 0 : 1 + i - FOUR_BITS];
    for (int i = 0; i < FOUR_BITS; i++) /* 8 neighbours along the axis of rows: its bits of the lanes and of register 0 */
        for (int bit = 0; bit < TN_LAYOUT_WARP; bit++)
            if (tn_layout_column(layout, bit, rows) == 1u << i)
                lanes.col[TN_LAYOUT_LANE + i] = layout->col[bit];
    gpu_split row = {gpu_thread_index(L, &lanes, rows), walked(b, layout, rows, bits, n, number)};
    gpu_split piece = {tn_l_fn2(e, TN_S_shr_logical, gpu_thread_index(L, &lanes, o->inner), tn_l_index(e, o->piece_bits)),
                       tn_l_fn2(b, TN_S_shr_logical, walked(b, layout, o->inner, bits, n, number), tn_l_index(b, o->piece_bits))};
    return gpu_piece_at(b, o, row, piece, true);
}

static tn_lbuilder first_thread(lower *L, tn_lbuilder *b) { return tn_l_in(b, tn_l_if(b, gpu_is_first_thread(L))->region[0]); }

static void wait_for_boxes(lower *L, tn_lbuilder *b, int others)
{
    tn_lbuilder one = first_thread(L, b);
    tn_l_machine(&one, "box_store_wait", (tn_lvalue *[]){tn_l_index(&one, others)}, 1);
}

static void send_box(lower *L, tn_lbuilder *b, const gpu_result *r, tn_lvalue *const *start, tn_lvalue *box, tn_lvalue *buffer)
{
    tn_lvalue *operand[TN_MAP_RANK + 3] = {r->box.map};
    tn_lbuilder one = first_thread(L, b);
    for (int i = 0; i < r->map.rank; i++) {
        int axis = i == 0 ? r->box.inner : 1 - r->box.inner;
        operand[1 + i] = i < 2 ? gpu_plus(&one, start[i], walked(&one, &r->layout, axis, r->boxes, r->nboxes, box)) : start[i];
        if (i == 0 && r->layout.repeats[axis] > 1)
            operand[1 + i] = gpu_plus(&one, operand[1 + i], gpu_times(&one, repeat_of(&one, r, box), INT64_C(1) << r->layout.bits[axis]));
    }
    operand[1 + r->map.rank] = r->box.buffer;
    operand[2 + r->map.rank] = buffer;
    tn_l_machine(&one, tn_format(&L->session->arena, "box_store_%d", r->map.rank), operand, r->map.rank + 3);
    tn_l_machine(&one, "box_store_commit", NULL, 0);
}

/* ---- tiles that are turned -------------------------------------------------------------------------------------------------- */

/* A tile that comes in boxes, and goes to registers as fragments. */
struct gpu_arrival {
    gpu_operand box;
    tn_lmap map;
    tn_layout layout;
};

static gpu_arrival *arrival_of(lower *L, const tn_top *load)
{
    for (size_t i = 0; i < GPU(L)->arrivals.len; i++)
        if (GPU(L)->arrivals.at[i]->box.value == load->result)
            return GPU(L)->arrivals.at[i];
    return NULL;
}

static bool add_arrival(lower *L, const gpu_result *r, const tn_top *load, const axes *of)
{
    enum { COLUMNS = LINE / 2, MOST_ROWS = 256 };
    const tn_tvalue *v = load->result;
    gpu_arrival a = {.layout = tn_layout_restrict(&r->layout, 2, of->axis)}, *known = arrival_of(L, load);
    int64_t multiple;
    int inner;
    if (known)
        return tn_layout_same(&known->layout, &a.layout);
    if (load->code != TN_T_load || tn_dtype_bits(v->type.dtype) != 16 || !gpu_neighbours(L, load, &inner, &multiple) || v->type.extent[inner].size < COLUMNS)
        return false;
    a.box = (gpu_operand){.value = v, .inner = inner, .lies = inner, .rows = v->type.extent[1 - inner].size, .columns = v->type.extent[inner].size, .box = COLUMNS,
                          .piece_bits = 3, .piece_count = LINE / 16, .bytes = 2, .left = of->axis[inner] == r->box.inner};
    if (gpu_find_map(L, load, &a.box, &a.map) || !ends_are_known(load->view, &a.box, &a.map))
        return false;
    TN_PUSH(&L->arena, &GPU(L)->arrivals, tn_memdup(&L->arena, &a, sizeof a));
    return true;
}

/* All tiles of the result's shape that v is computed from can come in boxes. */
static bool find_arrivals(lower *L, const gpu_result *r, const tn_tvalue *v, const axes *of, int *budget)
{
    const tn_top *op = v->def;
    axes inner;
    if (!op || --*budget < 0)
        return false;
    if (lower_is_load(op))
        return v->type.rank < 2 || (v->type.rank == 2 && of->axis[0] >= 0 && of->axis[1] >= 0 && add_arrival(L, r, op, of));
    const tn_tvalue *from = lower_moved_axes(op, of, &inner);
    if (from)
        return find_arrivals(L, r, from, &inner, budget);
    for (int i = 0; i < op->noperands && v->type.rank; i++) {
        inner = gpu_operand_axes(op, i, of);
        if (!find_arrivals(L, r, op->operand[i], &inner, budget))
            return false;
    }
    return true;
}

/* Fragments of a whole tile: warps one below the other, as many rows as they have. */
static bool fragments_of(lower *L, const tn_top *store, tn_layout *out)
{
    tn_ttype type = lower_accessed_tile(store)->type;
    int64_t multiple;
    int inner;
    if (!gpu_neighbours(L, store, &inner, &multiple))
        return false;
    if (inner == 0) {
        type.extent[0] = lower_accessed_tile(store)->type.extent[1];
        type.extent[1] = lower_accessed_tile(store)->type.extent[0];
    }
    if (type.extent[0].size < 16 * GPU(L)->warps || !tn_layout_mma_acc(&type, GPU(L)->warps, 1, out))
        return false;
    if (inner == 0)
        *out = tn_layout_permute(out, (int[]){1, 0});
    return true;
}

/* The kernel's one store is of a tile that lies across what it is computed from. */
static const tn_top *turned_store(lower *L)
{
    const tn_top *store = NULL;
    for (const tn_top *op = L->kernel->body->first; op; op = op->next) {
        if (op->code == TN_T_yield || (op->code != TN_T_store && lower_is_expression(op)))
            continue;
        if (store || op->code != TN_T_store || lower_accessed_tile(op)->type.rank != 2 || tn_dtype_bits(lower_accessed_tile(op)->type.dtype) != 16)
            return NULL;
        store = op;
    }
    return store;
}

static bool plan_turned(lower *L, gpu_result *r)
{
    enum { MOST = 96 << 10 /* bytes: two programs a processor at least */ };
    gpu_lower *g = GPU(L);
    axes own = lower_own_axes();
    const tn_tvalue *v = lower_accessed_tile(r->store);
    int64_t bytes = 0;
    int budget = LOWER_BUDGET;
    bool across = false;
    if (why_not(L, r) || box_count(r) != 1 << r->nboxes || !find_arrivals(L, r, v, &own, &budget))
        return false;
    r->once = true;
    r->buffers = box_count(r);
    for (size_t i = 0; i < g->arrivals.len; i++) {
        const gpu_operand *o = &g->arrivals.at[i]->box;
        bytes += gpu_operand_elements(o) * o->bytes;
        across |= !o->left;
    }
    return across && bytes + bytes_of(r) + g->shared <= MOST;
}

void gpu_plan_turned(lower *L)
{
    gpu_lower *g = GPU(L);
    gpu_result r = {.store = turned_store(L)};
    tn_layout before;
    if (!L->machine->groups || !r.store || !gpu_class_layout(L, &lower_accessed_tile(r.store)->type, &before) || !fragments_of(L, r.store, &r.layout))
        return;
    gpu_set_class_layout(L, &lower_accessed_tile(r.store)->type, &r.layout);
    if (!plan_turned(L, &r)) {
        gpu_set_class_layout(L, &lower_accessed_tile(r.store)->type, &before);
        g->arrivals.len = 0;
        return;
    }
    TN_PUSH(&L->arena, &g->results, tn_memdup(&L->arena, &r, sizeof r));
    for (size_t i = 0; i < g->arrivals.len; i++) {
        g->arrivals.at[i]->box.map = tn_lfunc_map(L->func, &g->arrivals.at[i]->map);
        gpu_give_buffer(L, &g->arrivals.at[i]->box, 1);
    }
    gpu_give_results(L);
    g->mbarriers = gpu_shared(L, "mbarriers", TN_I64, 1);
}

void gpu_fetch_arrivals(lower *L, tn_lbuilder *b)
{
    gpu_lower *g = GPU(L);
    tn_lvalue *zero = tn_l_index(b, 0);
    int64_t bytes = 0;
    if (!g->arrivals.len)
        return;
    scope s = lower_open(L);
    tn_lbuilder one = first_thread(L, b);
    for (size_t i = 0; i < g->arrivals.len; i++)
        bytes += gpu_operand_elements(&g->arrivals.at[i]->box) * g->arrivals.at[i]->box.bytes;
    tn_l_machine(&one, "mbarrier_init", (tn_lvalue *[]){g->mbarriers, zero, tn_l_index(&one, 1)}, 3);
    tn_l_machine(&one, "mbarrier_fence", NULL, 0);
    tn_l_machine(&one, "mbarrier_expect", (tn_lvalue *[]){g->mbarriers, zero, tn_l_index(&one, bytes)}, 3);
    for (size_t i = 0; i < g->arrivals.len; i++)
        gpu_fetch_operand(L, &one, &g->arrivals.at[i]->box, zero, zero);
    lower_close(L, s);
    tn_l_barrier(b);
    tn_l_machine(b, "mbarrier_wait", (tn_lvalue *[]){g->mbarriers, zero, zero}, 3);
}

bool gpu_take_arrival(lower *L, tn_lbuilder *b, const tn_top *load)
{
    const gpu_arrival *a = arrival_of(L, load);
    int bits[TN_LAYOUT_REG_BITS], n = 0;
    tn_lvalue *four;
    if (!a)
        return false;
    place *p = gpu_new_place(L, b, &load->result->type, &a->layout, "arrival");
    for (int i = FOUR_BITS; i < a->layout.reg_bits; i++)
        bits[n++] = i;
    tn_lbuilder in = gpu_unrolled(b, "m", INT64_C(1) << n, &four);
    tn_lvalue *at = row_at(L, &in, &a->layout, &a->box, bits, n, four);
    tn_l_machine(&in, a->box.left ? "ldmatrix_x4" : "ldmatrix_x4_turned", (tn_lvalue *[]){p->held->regs, gpu_times(&in, four, 1 << FOUR_BITS), a->box.buffer, at}, 4);
    lower_set_place(L, load->result, p);
    TN_PUSH(&L->arena, &GPU(L)->made, load->result);
    return true;
}

/* ---- the store: which result ---------------------------------------------------------------------------------------------------- */

static const gpu_result *result_of(lower *L, const tn_top *store)
{
    for (size_t i = 0; i < GPU(L)->results.len; i++)
        if (GPU(L)->results.at[i]->store == store)
            return GPU(L)->results.at[i];
    return NULL;
}

bool gpu_store_result(lower *L, tn_lbuilder *b, const tn_top *store)
{
    const gpu_result *r = result_of(L, store);
    tn_layout layout;
    tn_lvalue *box, *four, *start[TN_MAP_RANK], *instance = GPU(L)->instances > 1 ? GPU(L)->instance : NULL;
    if (!r || !gpu_sink_layout(L, lower_accessed_tile(store), &layout) || !tn_layout_same(&layout, &r->layout))
        return false;
    gpu_prepare_access(L, b, store, &layout);
    gpu_meet(L, b);
    for (int i = 0; i < r->map.rank; i++)
        start[i] = tn_l_cast(b, lower_scalar(L, b, store->subscript[r->box.map_dim[i]].value), TN_I64);
    tn_lbuilder in = gpu_unrolled(b, "box", box_count(r), &box);
    tn_lvalue *buffer = gpu_times(&in, tn_l_fn2(&in, TN_S_rem, box, tn_l_index(&in, r->buffers)), box_elements(r));
    if (instance)
        buffer = gpu_plus(&in, buffer, gpu_times(&in, instance, box_elements(r) * r->buffers));
    if (r->buffers == 1 && !r->once) {
        wait_for_boxes(L, &in, 0);
        tn_l_barrier(&in);
    }
    tn_lbuilder each = gpu_unrolled(&in, "m", INT64_C(1) << r->nin, &four);
    tn_lvalue *regs = tn_l_alloc(&each, "fragment", r->box.buffer->type.dtype, TN_SPACE_REG, 1 << FOUR_BITS);
    compute_matrices(L, &each, r, box, four, regs);
    tn_l_machine(&each, "stmatrix_x4", (tn_lvalue *[]){r->box.buffer, gpu_plus(&each, buffer, row_at(L, &each, &r->layout, &r->box, r->in, r->nin, four)), regs, tn_l_index(&each, 0)}, 4);
    tn_l_machine(&in, "fence_async", NULL, 0);
    if (r->buffers > 1 && !r->once)
        wait_for_boxes(L, &in, r->buffers - 2);
    tn_l_barrier(&in);
    send_box(L, &in, r, start, box, buffer);
    return true;
}

void gpu_end_results(lower *L, tn_lbuilder *b)
{
    if (GPU(L)->results.len)
        wait_for_boxes(L, b, 0);
}
