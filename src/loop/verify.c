/* The rules of the Loop IR: L1 scoping, L2 operand counts, L3 types, L4 control, L5 stages. Messages name the kernel,
 * the operation and the rule. */
#include "loop/internal.h"
#include "loop/machine.h"

typedef struct verifier {
    const tn_lfunc *func;
    int max_bits;
    int first, threads; /* of the threads that run the operation: those of an instance of a block of roles, else all */
    const tn_lop *op;
    tn_status status;
} verifier;

#define BAD(v, ...) bad((v), tn_format(tn_l_arena((v)->func), __VA_ARGS__))
static bool bad(verifier *v, const char *message)
{
    const tn_lop *op = v->op;
    const char *name = op->code == TN_L_fn ? tn_scalar_name(op->fn) : tn_lop_name(op->code);
    v->status = tn_error(v->func->session, TN_INVALID, (tn_loc){.line = op->line}, "kernel @%s: %s: %s", v->func->name,
                         name, message);
    return false;
}

static const char *type_text(verifier *v, tn_ltype type)
{
    return tn_ltype_text(tn_l_arena(v->func), type);
}

/* ---- L3 types ---- */

static bool is_index(const tn_lvalue *x)
{
    return !x->type.buffer && x->type.dtype == TN_I64 && x->type.lanes == 1;
}

static bool is_bool(const tn_lvalue *x, int lanes)
{
    return !x->type.buffer && x->type.dtype == TN_BOOL && x->type.lanes == lanes;
}

static bool check_index(verifier *v, int i, const char *what)
{
    const tn_lvalue *x = v->op->operand[i];
    return is_index(x) || BAD(v, "L3: the %s must be an index, found %s", what, type_text(v, x->type));
}

static bool check_result(verifier *v, tn_ltype want)
{
    tn_ltype type = v->op->result->type;
    return tn_l_same_type(type, want) ||
           BAD(v, "L3: the result is %s, declared %s", type_text(v, want), type_text(v, type));
}

static bool check_fn(verifier *v)
{
    const tn_lop *op = v->op;
    if (op->noperands != tn_scalar_arity(op->fn))
        return BAD(v, "L2: takes %d operands, found %d", tn_scalar_arity(op->fn), op->noperands);
    tn_ltype last = op->operand[op->noperands - 1]->type;
    for (int i = 0; i < op->noperands; i++) {
        bool condition = op->fn == TN_S_select && i == 0;
        tn_ltype want = condition ? tn_lvector(TN_BOOL, last.lanes) : last;
        if (!tn_l_same_type(op->operand[i]->type, want) || want.buffer)
            return BAD(v, "L3: operand %d must be %s, found %s", i, type_text(v, want),
                       type_text(v, op->operand[i]->type));
    }
    if (!tn_scalar_accepts(op->fn, last.dtype))
        return BAD(v, "L3: not defined for %s", tn_dtype_text(last.dtype));
    if (op->contract && !tn_l_contracts(op->fn, last.dtype))
        return BAD(v, "L3: sums and products of f32 and f64 contract, and exp2 of f32, not %s of %s", tn_scalar_name(op->fn), tn_dtype_text(last.dtype));
    return check_result(v, tn_lvector(tn_scalar_result(op->fn, last.dtype), last.lanes));
}

static bool check_conversion(verifier *v)
{
    tn_ltype from = v->op->operand[0]->type, to = v->op->result->type;
    if (from.buffer || to.buffer)
        return BAD(v, "L3: takes and gives a scalar or vector");
    if (v->op->code == TN_L_cast)
        return from.lanes == to.lanes || BAD(v, "L3: %d lanes become %d", from.lanes, to.lanes);
    int64_t have = (int64_t)tn_dtype_bits(from.dtype) * from.lanes, want = (int64_t)tn_dtype_bits(to.dtype) * to.lanes;
    return have == want || BAD(v, "L3: %lld bits become %lld", (long long)have, (long long)want);
}

static bool check_lane_op(verifier *v)
{
    const tn_lop *op = v->op;
    tn_ltype x = op->operand[0]->type, scalar = tn_lscalar(x.dtype);
    if (x.buffer)
        return BAD(v, "L3: takes a vector, found %s", type_text(v, x));
    switch (op->code) {
    case TN_L_splat:
        return (x.lanes == 1 || BAD(v, "L3: takes a scalar")) &&
               check_result(v, tn_lvector(x.dtype, op->result->type.lanes));
    case TN_L_extract:
        return check_index(v, 1, "lane") && check_result(v, scalar);
    case TN_L_insert:
        return (tn_l_same_type(op->operand[1]->type, scalar) || BAD(v, "L3: inserts a %s", type_text(v, scalar))) &&
               check_index(v, 2, "lane") && check_result(v, x);
    case TN_L_hreduce:
        if (tn_scalar_arity(op->fn) != 2 || !tn_scalar_accepts(op->fn, x.dtype) ||
            tn_scalar_result(op->fn, x.dtype) != x.dtype)
            return BAD(v, "L3: %s does not combine %s", tn_scalar_name(op->fn), tn_dtype_text(x.dtype));
        return ((x.lanes & (x.lanes - 1)) == 0 || BAD(v, "L3: needs a power of two of lanes, found %d", x.lanes)) &&
               check_result(v, scalar);
    default:
        return true;
    }
}

static bool check_shuffle(verifier *v)
{
    const tn_lop *op = v->op;
    tn_ltype x = op->operand[0]->type;
    if (x.buffer || !tn_l_same_type(x, op->operand[1]->type))
        return BAD(v, "L3: takes two vectors of one type");
    for (int i = 0; i < op->result->type.lanes; i++)
        if (op->lanes[i] < -1 || op->lanes[i] >= 2 * x.lanes)
            return BAD(v, "L3: lane %d of two vectors of %d", op->lanes[i], x.lanes);
    return check_result(v, tn_lvector(x.dtype, op->result->type.lanes));
}

static bool check_shared(verifier *v)
{
    const tn_lop *op = v->op;
    tn_ltype type = op->result->type;
    int64_t end, bytes = tn_dtype_bits(type.dtype) / 8;
    if (!v->func->threads)
        return BAD(v, "L3: a shared buffer is for a kernel with `threads`");
    if (op->noperands)
        return BAD(v, "L3: a shared buffer has a constant size");
    if (type.lanes != 1 || bytes < 1)
        return BAD(v, "L3: a shared buffer has elements of whole bytes, declared %s", type_text(v, type));
    if (op->at < 0 || op->at % bytes)
        return BAD(v, "L3: a shared buffer of %s lies at a multiple of %lld bytes, found %lld", tn_dtype_text(type.dtype), (long long)bytes, (long long)op->at);
    return (op->size >= 0 && tn_l_shared_end(op, &end)) || BAD(v, "L3: no shared memory has %lld elements at %lld", (long long)op->size, (long long)op->at);
}

static bool check_alloc(verifier *v)
{
    const tn_lop *op = v->op;
    tn_ltype type = op->result->type;
    if (!type.buffer || type.space == TN_SPACE_GLOBAL || type.space == TN_SPACE_MAP)
        return BAD(v, "L3: gives a local, reg or shared buffer, declared %s", type_text(v, type));
    if (type.space == TN_SPACE_SHARED)
        return check_shared(v);
    if (op->at)
        return BAD(v, "L3: `at` is for a shared buffer, declared %s", type_text(v, type));
    if (op->noperands == 0)
        return op->size >= 0 || BAD(v, "L3: the size must not be negative");
    return check_index(v, 0, "size") &&
           (type.space == TN_SPACE_LOCAL || BAD(v, "L3: a reg buffer has a constant size"));
}

static bool check_memory(verifier *v)
{
    tn_ltype type = v->op->result->type;
    return (type.buffer && type.space == TN_SPACE_GLOBAL && type.lanes == 1 && tn_dtype_bits(type.dtype) >= 8) ||
           BAD(v, "L3: gives a global buffer of whole bytes, declared %s", type_text(v, type));
}

static bool check_address(verifier *v)
{
    tn_ltype x = v->op->operand[0]->type;
    return (x.buffer || BAD(v, "L3: takes a buffer, found %s", type_text(v, x))) && check_result(v, tn_lscalar(TN_I64));
}

static bool check_thread(verifier *v)
{
    return (v->func->threads || BAD(v, "L3: is for a kernel with `threads`")) && check_result(v, tn_lscalar(TN_I64));
}

static bool check_cta(verifier *v)
{
    return (v->func->cluster || BAD(v, "L3: is for a kernel with `cluster`")) && check_result(v, tn_lscalar(TN_I64));
}

static bool check_barrier(verifier *v)
{
    return v->func->threads || BAD(v, "L3: is for a kernel with `threads`");
}

static bool check_warp_op(verifier *v)
{
    const tn_lop *op = v->op;
    tn_ltype x = op->operand[0]->type;
    if (v->func->threads == 0 || v->func->threads % TN_WARP)
        return BAD(v, "L3: is for a kernel whose `threads` are a multiple of %d", TN_WARP);
    if (x.buffer || x.lanes != 1 || tn_is_complex(x.dtype))
        return BAD(v, "L3: takes a real scalar, found %s", type_text(v, x));
    if (op->code == TN_L_lane_xor && (op->number.i < 0 || op->number.i >= TN_WARP))
        return BAD(v, "L3: a lane's number is below %d, found %lld", TN_WARP, (long long)op->number.i);
    return (op->code == TN_L_lane_xor || check_index(v, 1, "lane")) && check_result(v, x);
}

static bool check_readonly(verifier *v, const tn_lvalue *buffer);

static bool check_map_part(verifier *v, const tn_lpart *part, int at)
{
    const tn_lvalue *x = v->op->operand[at];
    if (!x->type.buffer || x->type.space != TN_SPACE_MAP)
        return BAD(v, "L3: operand %d is a map, found %s", at, type_text(v, x->type));
    for (size_t i = 0; part->how & TN_PART_W && i < v->func->maps.len; i++)
        if (v->func->maps.at[i].value == x)
            return check_readonly(v, v->func->maps.at[i].buffer);
    return true;
}

static bool check_part(verifier *v, const tn_lpart *part, int at)
{
    static const tn_space spaces[] = {[TN_PART_REG] = TN_SPACE_REG, [TN_PART_SHARED] = TN_SPACE_SHARED, [TN_PART_TILE] = TN_SPACE_SHARED, [TN_PART_GLOBAL] = TN_SPACE_GLOBAL};
    int64_t ignored;
    if (part->kind == TN_PART_CONSTANT)
        return tn_l_is_const(v->op->operand[at], &ignored) || BAD(v, "L3: operand %d is a constant", at);
    if (part->kind == TN_PART_NUMBER)
        return check_index(v, at, "number");
    tn_ltype x = v->op->operand[at]->type;
    if (part->kind == TN_PART_MAP)
        return check_map_part(v, part, at);
    if (!x.buffer || x.space != spaces[part->kind] || x.lanes != 1 || (part->dtype && x.dtype != part->dtype))
        return BAD(v, "L3: operand %d is a %s buffer%s%s, found %s", at, tn_space_text(spaces[part->kind]), part->dtype ? " of " : "",
                   part->dtype ? tn_dtype_text(part->dtype) : "", type_text(v, x));
    return check_index(v, at + 1, "offset");
}

/* A box has as many coordinates as its map has dimensions. */
static bool check_coordinates(verifier *v, const tn_linstruction *row)
{
    const tn_lvalue *map = NULL;
    int coordinates = 0;
    for (int i = 0; i < tn_l_instruction_parts(row); i++) {
        map = row->part[i].kind == TN_PART_MAP ? v->op->operand[tn_l_part_operand(row, i)] : map;
        coordinates += map && row->part[i].kind == TN_PART_NUMBER;
    }
    for (size_t i = 0; coordinates && i < v->func->maps.len; i++)
        if (v->func->maps.at[i].value == map)
            return v->func->maps.at[i].rank == coordinates ||
                   BAD(v, "L3: @%s is for a map of %d dimensions, found %d", v->op->name, coordinates, v->func->maps.at[i].rank);
    return true;
}

static bool check_machine(verifier *v)
{
    const tn_lop *op = v->op;
    const tn_linstruction *row = tn_l_instruction(op->name);
    if (!row)
        return BAD(v, "L2: no instruction is called `%s`", op->name);
    if (v->threads == 0 || v->threads % row->threads || v->first % row->threads)
        return BAD(v, "L3: @%s is for a kernel, or a block of roles, whose `threads` are a multiple of %d", op->name, row->threads);
    int parts = tn_l_instruction_parts(row), operands = tn_l_part_operand(row, parts);
    if (op->noperands != operands)
        return BAD(v, "L2: @%s takes %d operands, found %d", op->name, operands, op->noperands);
    for (int i = 0; i < parts; i++)
        if (!check_part(v, &row->part[i], tn_l_part_operand(row, i)))
            return false;
    return check_coordinates(v, row);
}

static bool check_print(verifier *v)
{
    const tn_lop *op = v->op;
    const char *at = op->name, *text;
    size_t len;
    int places = 0;
    for (tn_lpiece piece; (piece = tn_l_print_piece(&at, &text, &len)) != TN_L_PIECE_END;) {
        if (piece == TN_L_PIECE_BAD)
            return BAD(v, "L2: a `{` in the text is `{}`, `{x}` or `{{`");
        places += piece != TN_L_PIECE_TEXT;
    }
    if (places != op->noperands)
        return BAD(v, "L2: the text has %d places for %d values", places, op->noperands);
    for (int i = 0; i < op->noperands; i++) {
        tn_ltype x = op->operand[i]->type;
        if (x.buffer || x.lanes != 1 || tn_is_complex(x.dtype))
            return BAD(v, "L3: prints real scalars, found %s", type_text(v, x));
    }
    return true;
}

static bool check_atomic(verifier *v, tn_ltype value)
{
    const tn_lop *op = v->op;
    bool two = op->fn == TN_SCALAR_NONE || (tn_scalar_arity(op->fn) == 2 && tn_scalar_accepts(op->fn, value.dtype) &&
                                            tn_scalar_result(op->fn, value.dtype) == value.dtype);
    if (op->code == TN_L_cas && !tn_l_same_type(op->operand[3]->type, value))
        return BAD(v, "L3: expects a %s, stores a %s", type_text(v, value), type_text(v, op->operand[3]->type));
    return (value.lanes == 1 && two && tn_l_same_type(op->result->type, value)) ||
           BAD(v, "L3: takes a scalar and a function of two operands, gives the old scalar");
}

static bool check_offset(verifier *v, int lanes)
{
    tn_ltype offset = v->op->operand[1]->type;
    if (v->op->code != TN_L_gather && v->op->code != TN_L_scatter)
        return check_index(v, 1, "offset");
    if (offset.buffer || (offset.dtype != TN_I64 && offset.dtype != TN_I32) || offset.lanes != lanes)
        return BAD(v, "L3: the offsets must be i64x%d or i32x%d, found %s", lanes, lanes, type_text(v, offset));
    return true;
}

static bool check_mask(verifier *v, tn_ltype value)
{
    const tn_lvalue *mask = tn_lop_mask(v->op), *other = tn_lop_other(v->op);
    if (mask && !is_bool(mask, value.lanes))
        return BAD(v, "L3: the mask must be %s, found %s", type_text(v, tn_lvector(TN_BOOL, value.lanes)),
                   type_text(v, mask->type));
    if (other && !tn_l_same_type(other->type, value))
        return BAD(v, "L3: `other` must be %s, found %s", type_text(v, value), type_text(v, other->type));
    return true;
}

/* What is written may be any buffer: by its address, or because buffers overlap. */
static bool check_readonly(verifier *v, const tn_lvalue *buffer)
{
    bool anywhere = (buffer->def && buffer->def->code == TN_L_memory) ||
                    (v->func->overlap && buffer->type.space == TN_SPACE_GLOBAL);
    if (buffer->readonly)
        return BAD(v, "L3: the buffer is readonly");
    for (int i = 0; anywhere && i < v->func->nbuffers; i++)
        if (v->func->params.at[i]->readonly)
            return BAD(v, "L3: may write %%%s, which is readonly", v->func->params.at[i]->name);
    return true;
}

static bool check_access(verifier *v)
{
    const tn_lop *op = v->op;
    const tn_lvalue *buffer = op->operand[0];
    if (!buffer->type.buffer)
        return BAD(v, "L3: operand 0 must be a buffer, found %s", type_text(v, buffer->type));
    if (buffer->type.space == TN_SPACE_MAP)
        return BAD(v, "L3: a map is no memory, only `machine` takes it");
    if (op->code == TN_L_prefetch)
        return check_index(v, 1, "offset");
    bool loads = op->code == TN_L_load || op->code == TN_L_gather || op->code == TN_L_atomic_load;
    tn_ltype value = loads ? op->result->type : op->operand[2]->type;
    if (value.buffer || value.dtype != buffer->type.dtype)
        return BAD(v, "L3: a %s in a buffer of %s", type_text(v, value), tn_dtype_text(buffer->type.dtype));
    if (buffer->type.lanes != 1 && value.lanes != buffer->type.lanes)
        return BAD(v, "L3: %d lanes in a buffer of vectors of %d", value.lanes, buffer->type.lanes);
    if (!loads && !check_readonly(v, buffer))
        return false;
    if ((op->code == TN_L_atomic || op->code == TN_L_cas) && !check_atomic(v, value))
        return false;
    if (op->code == TN_L_atomic_load && value.lanes != 1)
        return BAD(v, "L3: gives a scalar");
    return check_offset(v, value.lanes) && check_mask(v, value);
}

/* ---- L4 control ---- */

static bool check_for(verifier *v)
{
    int64_t step;
    if (!check_index(v, 0, "lower bound") || !check_index(v, 1, "upper bound") || !check_index(v, 2, "step"))
        return false;
    return !tn_l_is_const(v->op->operand[2], &step) || step > 0 ||
           BAD(v, "L4: the step must be positive, found %lld", (long long)step);
}

static bool check_condition(verifier *v)
{
    return is_bool(v->op->operand[0], 1) ||
           BAD(v, "L3: takes a bool scalar, found %s", type_text(v, v->op->operand[0]->type));
}

static bool check_while(verifier *v)
{
    const tn_lop *last = v->op->region[0]->last;
    return (last && last->code == TN_L_yield) || BAD(v, "L4: the first block must end in yield");
}

static bool check_yield(verifier *v)
{
    const tn_lop *parent = v->op->block->parent;
    if (!parent || parent->code != TN_L_while || v->op->block != parent->region[0] || v->op->next)
        return BAD(v, "L4: stands only at the end of the first block of while");
    return check_condition(v);
}

static bool check_roles(verifier *v)
{
    const tn_lop *op = v->op;
    int threads = v->func->threads;
    if (op->block != v->func->body)
        return BAD(v, "L4: stands only at the top of a kernel");
    if (threads == 0 || threads % TN_WARP)
        return BAD(v, "L4: is for a kernel whose `threads` are a multiple of %d", TN_WARP);
    if (op->instances < 1 || op->instances > TN_MOST_INSTANCES)
        return BAD(v, "L4: the first block has 1 to %d instances", TN_MOST_INSTANCES);
    return (op->number.i > 0 && op->number.i < threads && op->number.i % (TN_WARP * op->instances) == 0) ||
           BAD(v, "L4: the second block's first thread is a multiple of %d below %d, found %lld", TN_WARP * op->instances, threads, (long long)op->number.i);
}

static bool check_kind(verifier *v)
{
    switch (v->op->code) {
    case TN_L_const:
        return !v->op->result->type.buffer || BAD(v, "L3: a buffer is no constant");
    case TN_L_iota:
        return tn_is_integer(v->op->result->type.dtype) ||
               BAD(v, "L3: gives integers, declared %s", type_text(v, v->op->result->type));
    case TN_L_fn:
        return check_fn(v);
    case TN_L_cast:
    case TN_L_bitcast:
        return check_conversion(v);
    case TN_L_splat:
    case TN_L_extract:
    case TN_L_insert:
    case TN_L_hreduce:
        return check_lane_op(v);
    case TN_L_shuffle:
        return check_shuffle(v);
    case TN_L_alloc:
        return check_alloc(v);
    case TN_L_load:
    case TN_L_gather:
    case TN_L_store:
    case TN_L_scatter:
    case TN_L_atomic:
    case TN_L_atomic_load:
    case TN_L_cas:
    case TN_L_prefetch:
        return check_access(v);
    case TN_L_memory:
        return check_memory(v);
    case TN_L_thread:
        return check_thread(v);
    case TN_L_cta:
        return check_cta(v);
    case TN_L_barrier:
    case TN_L_fence:
        return check_barrier(v);
    case TN_L_lane_xor:
    case TN_L_lane_at:
        return check_warp_op(v);
    case TN_L_machine:
        return check_machine(v);
    case TN_L_address:
        return check_address(v);
    case TN_L_print:
        return check_print(v);
    case TN_L_for:
        return check_for(v);
    case TN_L_while:
        return check_while(v);
    case TN_L_yield:
        return check_yield(v);
    case TN_L_roles:
        return check_roles(v);
    case TN_L_if:
    case TN_L_trap:
        return check_condition(v);
    default:
        return true;
    }
}

/* ---- L2 operand counts ---- */

static bool check_counts(verifier *v)
{
    enum { VARIADIC = -1 };
    static const struct {
        int operands, results;
    } want[] = {
#define LOP(name, operands, results, regions, traits) {operands, results},
#include "loop/ops.def"
#undef LOP
    };
    static const struct {
        tn_lopcode code;
        int least, most;
    } variadic[] = {{TN_L_alloc, 0, 1}, {TN_L_load, 2, 4},    {TN_L_gather, 2, 4},
                    {TN_L_store, 3, 4}, {TN_L_scatter, 3, 4}, {TN_L_atomic, 3, 4},
                    {TN_L_cas, 4, 5},   {TN_L_atomic_load, 2, 3}};
    const tn_lop *op = v->op;
    int least = want[op->code].operands, most = least;
    if (least == VARIADIC) {
        least = 0, most = 64;
        for (size_t i = 0; i < TN_COUNT(variadic); i++)
            if (variadic[i].code == op->code)
                least = variadic[i].least, most = variadic[i].most;
    }
    if (op->noperands < least || op->noperands > most)
        return BAD(v, "L2: takes %d operands, found %d", least, op->noperands);
    return !op->result == !want[op->code].results || BAD(v, "L2: %s a result", op->result ? "has no" : "needs");
}

/* ---- L5 stages ---- */

static bool check_stage(verifier *v)
{
    const tn_lop *op = v->op;
    if (!v->max_bits)
        return true;
    if (op->code == TN_L_for && op->kind == TN_FOR_VECTOR)
        return BAD(v, "L5: no loop of kind vector is left after vectorize");
    if (!op->result || op->result->type.lanes == 1 || op->result->type.dtype == TN_BOOL)
        return true;
    int bits = tn_dtype_bits(op->result->type.dtype) * op->result->type.lanes;
    return bits <= v->max_bits ||
           BAD(v, "L5: %s has %d bits, the machine's vectors %d", type_text(v, op->result->type), bits, v->max_bits);
}

/* ---- L1 scoping: scratch is set while a value is visible ---- */

static bool check_scope(verifier *v)
{
    for (int i = 0; i < v->op->noperands; i++)
        if (!v->op->operand[i]->scratch)
            return BAD(v, "L1: operand %d is not defined before it in an enclosing block", i);
    return true;
}

static bool verify_block(verifier *v, const tn_lblock *block);

static bool verify_region(verifier *v, const tn_lop *op, int i)
{
    int first = v->first, threads = v->threads, second = (int)op->number.i;
    if (op->code == TN_L_roles) {
        v->first = i ? second : 0;
        v->threads = i ? threads - second : second / op->instances;
    }
    bool ok = verify_block(v, op->region[i]);
    v->first = first;
    v->threads = threads;
    return ok;
}

static bool verify_block(verifier *v, const tn_lblock *block)
{
    if (block->arg)
        block->arg->scratch = block->arg;
    bool ok = true;
    for (const tn_lop *op = block->first; ok && op; op = op->next) {
        v->op = op;
        ok = check_counts(v) && check_scope(v) && check_kind(v) && check_stage(v);
        for (int i = 0; ok && i < op->nregions; i++)
            ok = verify_region(v, op, i);
        if (op->result)
            op->result->scratch = op->result;
    }
    for (const tn_lop *op = block->first; op; op = op->next)
        if (op->result)
            op->result->scratch = NULL;
    if (block->arg)
        block->arg->scratch = NULL;
    return ok;
}

static tn_status check_maps(const tn_lfunc *func)
{
    if (func->maps.len > TN_MOST_MAPS)
        return tn_error(func->session, TN_INVALID, TN_NO_LOC, "kernel @%s: a kernel has at most %d maps, found %zu", func->name, TN_MOST_MAPS, func->maps.len);
    for (size_t i = 0; i < func->maps.len; i++) {
        const char *fault = tn_l_map_fault(func, &func->maps.at[i]);
        if (fault)
            return tn_error(func->session, TN_INVALID, TN_NO_LOC, "kernel @%s: map %%%s: %s", func->name, func->maps.at[i].value->name, fault);
    }
    return TN_OK;
}

tn_status tn_loop_verify(const tn_lfunc *func, int max_bits)
{
    verifier v = {.func = func, .max_bits = max_bits, .threads = func->threads};
    TN_TRY(check_maps(func));
    tn_l_clear_scratch((tn_lfunc *)func);
    for (size_t i = 0; i < func->params.len; i++)
        func->params.at[i]->scratch = func->params.at[i];
    for (size_t i = 0; i < func->maps.len; i++)
        func->maps.at[i].value->scratch = func->maps.at[i].value;
    verify_block(&v, func->body);
    return v.status;
}
