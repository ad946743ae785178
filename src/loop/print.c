/* The text form of the Loop IR. What it prints, parse.c reads back to an equal function, which prints the same again.
 */
#include <string.h>

#include "loop/internal.h"

#include <assert.h>

typedef struct printer {
    tn_text *text;
    tn_map names; /* value -> its printed name */
    tn_map taken; /* printed name -> itself */
    uint32_t next;
    int depth;
} printer;

const char *tn_loop_kind_text(tn_loop_kind kind)
{
    static const char *const texts[] = {"serial", "grid", "vector", "unroll"};
    return texts[kind];
}

const char *tn_space_text(tn_space space)
{
    static const char *const texts[] = {"global", "local", "reg", "shared", "map"};
    return texts[space];
}

void tn_text_ltype(tn_text *text, tn_ltype type)
{
    if (type.buffer)
        tn_text_add(text, "%s ", tn_space_text(type.space));
    bool is_index = type.dtype == TN_I64 && type.lanes == 1 && !type.buffer;
    tn_text_add(text, "%s", is_index ? "index" : tn_dtype_text(type.dtype));
    if (type.lanes != 1)
        tn_text_add(text, "x%d", type.lanes);
}

const char *tn_ltype_text(tn_arena *arena, tn_ltype type)
{
    tn_text text = {.arena = arena};
    tn_text_ltype(&text, type);
    return text.at;
}

/* Values keep their name if it is still free, else get .1, .2 …; unnamed ones are numbered in the order of the text. */
static const char *name_value(printer *p, const tn_lvalue *v)
{
    tn_arena *arena = p->text->arena;
    const char *name = v->name ? v->name : tn_format(arena, "%u", p->next++);
    for (int i = 1; tn_map_get_str(&p->taken, name); i++)
        name = tn_format(arena, "%s.%d", v->name ? v->name : "v", i);
    *tn_map_at_str(&p->taken, name) = (void *)name;
    *tn_map_at(&p->names, TN_KEY(v)) = (void *)name;
    return name;
}

static const char *name_of(printer *p, const tn_lvalue *v)
{
    const char *name = tn_map_get(&p->names, TN_KEY(v));
    return name ? name : tn_format(p->text->arena, "<undefined:%u>", v->id);
}

static void print_operand(printer *p, const tn_lvalue *v)
{
    tn_text_add(p->text, "%%%s", name_of(p, v));
}

static void print_operands(printer *p, const tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++) {
        tn_text_add(p->text, i ? ", " : " ");
        print_operand(p, op->operand[i]);
    }
}

static void print_type(printer *p, tn_ltype type)
{
    tn_text_add(p->text, " : ");
    tn_text_ltype(p->text, type);
}

static void print_indexed(printer *p, const tn_lop *op)
{
    tn_text_add(p->text, " %%%s[%%%s]", name_of(p, op->operand[0]), name_of(p, op->operand[1]));
}

static void print_access(printer *p, const tn_lop *op)
{
    if (op->code == TN_L_atomic && op->fn != TN_SCALAR_NONE)
        tn_text_add(p->text, " %s", tn_scalar_name(op->fn));
    print_indexed(p, op);
    int at = 2;
    while (at < tn_lop_mask_index(op)) { /* values */
        tn_text_add(p->text, ", ");
        print_operand(p, op->operand[at++]);
    }
    if (tn_lop_mask(op))
        tn_text_add(p->text, ", mask %%%s", name_of(p, op->operand[at]));
    if (tn_lop_other(op))
        tn_text_add(p->text, ", other %%%s", name_of(p, op->operand[at + 1]));
}

static void print_shuffle_lanes(printer *p, const tn_lop *op)
{
    tn_text_add(p->text, ", [");
    for (int i = 0; i < op->result->type.lanes; i++)
        tn_text_add(p->text, i ? ", %d" : "%d", op->lanes[i]);
    tn_text_add(p->text, "]");
}

static void print_quoted(printer *p, const char *string)
{
    tn_text_add(p->text, " \"");
    for (const char *c = string; *c; c++)
        if (*c == '"' || *c == '\\')
            tn_text_add(p->text, "\\%c", *c);
        else if ((unsigned char)*c < 32)
            tn_text_add(p->text, "\\x%02x", (unsigned char)*c);
        else
            tn_text_add(p->text, "%c", *c);
    tn_text_add(p->text, "\"");
}

/* Parts of buffers, each with its offset, maps, and numbers. */
static void print_parts(printer *p, const tn_lop *op)
{
    for (int i = 0; i < op->noperands; i++) {
        tn_text_add(p->text, i ? ", " : " ");
        print_operand(p, op->operand[i]);
        if (op->operand[i]->type.buffer && op->operand[i]->type.space != TN_SPACE_MAP && i + 1 < op->noperands)
            tn_text_add(p->text, "[%%%s]", name_of(p, op->operand[++i]));
    }
}

static void print_block(printer *p, const tn_lblock *block);

static void print_for(printer *p, const tn_lop *op)
{
    const char *lo = name_of(p, op->operand[0]), *hi = name_of(p, op->operand[1]), *step = name_of(p, op->operand[2]);
    tn_text_add(p->text, " %%%s = %%%s to %%%s step %%%s", name_value(p, op->region[0]->arg), lo, hi, step);
    if (op->kind != TN_FOR_SERIAL)
        tn_text_add(p->text, " %s%s", tn_loop_kind_text(op->kind), op->turned ? " turned" : "");
    print_block(p, op->region[0]);
}

static void print_if(printer *p, const tn_lop *op)
{
    print_operands(p, op);
    print_block(p, op->region[0]);
    if (!op->region[1]->first)
        return;
    tn_text_add(p->text, " else");
    print_block(p, op->region[1]);
}

static void print_while(printer *p, const tn_lop *op)
{
    print_block(p, op->region[0]);
    tn_text_add(p->text, " do");
    print_block(p, op->region[1]);
}

static void print_roles(printer *p, const tn_lop *op)
{
    tn_text_add(p->text, " %lld", (long long)op->number.i);
    if (op->instances > 1)
        tn_text_add(p->text, " instances %d", op->instances);
    print_block(p, op->region[0]);
    tn_text_add(p->text, " else");
    print_block(p, op->region[1]);
}

/* What follows the operation's name, up to the type. */
static void print_scope(printer *p, const tn_lop *op)
{
    if (op->scope != TN_SCOPE_GPU)
        tn_text_add(p->text, op->scope == TN_SCOPE_SYS ? " sys" : " cta");
}

static void print_details(printer *p, const tn_lop *op)
{
    switch (op->code) {
    case TN_L_const:
        tn_text_add(p->text, " ");
        tn_text_number(p->text, op->result->type.dtype, op->number);
        break;
    case TN_L_extract:
    case TN_L_insert:
        tn_text_add(p->text, " %%%s[%%%s]", name_of(p, op->operand[0]), name_of(p, op->operand[op->noperands - 1]));
        if (op->code == TN_L_insert)
            tn_text_add(p->text, ", %%%s", name_of(p, op->operand[1]));
        break;
    case TN_L_shuffle:
        print_operands(p, op);
        print_shuffle_lanes(p, op);
        break;
    case TN_L_hreduce:
        tn_text_add(p->text, " %s", tn_scalar_name(op->fn));
        print_operands(p, op);
        break;
    case TN_L_intrinsic:
        tn_text_add(p->text, " @%s", op->name);
        print_operands(p, op);
        break;
    case TN_L_machine:
        tn_text_add(p->text, " @%s", op->name);
        print_parts(p, op);
        break;
    case TN_L_alloc:
        if (op->noperands)
            print_operands(p, op);
        else
            tn_text_add(p->text, " %lld", (long long)op->size);
        if (op->result->type.space == TN_SPACE_SHARED)
            tn_text_add(p->text, " at %lld", (long long)op->at);
        break;
    case TN_L_lane_xor:
        print_operands(p, op);
        tn_text_add(p->text, ", %lld", (long long)op->number.i);
        break;
    case TN_L_load:
    case TN_L_gather:
    case TN_L_store:
    case TN_L_scatter:
    case TN_L_atomic:
    case TN_L_atomic_load:
    case TN_L_cas:
        print_access(p, op);
        print_scope(p, op);
        if (op->stream)
            tn_text_add(p->text, " stream");
        break;
    case TN_L_fence:
        print_scope(p, op);
        break;
    case TN_L_prefetch:
        print_indexed(p, op);
        if (op->number.i == 1)
            tn_text_add(p->text, " l1");
        break;
    case TN_L_for:
        print_for(p, op);
        break;
    case TN_L_if:
        print_if(p, op);
        break;
    case TN_L_while:
        print_while(p, op);
        break;
    case TN_L_roles:
        print_roles(p, op);
        break;
    case TN_L_asm:
    case TN_L_print:
        print_quoted(p, op->name);
        tn_text_add(p->text, op->noperands ? "," : "");
        print_operands(p, op);
        break;
    case TN_L_trap:
        print_operands(p, op);
        tn_text_add(p->text, ", line %lld", (long long)op->number.i);
        break;
    default:
        print_operands(p, op);
        tn_text_add(p->text, op->contract ? " contract" : "");
    }
}

static void print_op(printer *p, const tn_lop *op)
{
    tn_text_add(p->text, "%*s", 2 * p->depth, "");
    if (op->result)
        tn_text_add(p->text, "%%%s = ", name_value(p, op->result));
    tn_text_add(p->text, "%s", op->code == TN_L_fn ? tn_scalar_name(op->fn) : tn_lop_name(op->code));
    print_details(p, op);
    if (op->result)
        print_type(p, op->result->type);
    tn_text_add(p->text, "\n");
}

/* ---- maps ---- */

typedef struct renaming {
    printer *p;
    const tn_lfunc *func;
} renaming;

/* A size goes by the name that its parameter is printed with. */
static tn_dim printed_symbol(void *context, tn_dim symbol)
{
    const renaming *r = context;
    const tn_lvalue *size = tn_l_map_symbol(r->func, symbol->name);
    return size ? tn_dim_symbol(r->func->session, name_of(r->p, size)) : symbol;
}

static void print_map_dim(printer *p, const tn_lfunc *func, tn_dim d)
{
    tn_text_dim(p->text, tn_dim_subst(func->session, d, printed_symbol, &(renaming){p, func}));
}

static void print_map_dims(printer *p, const tn_lfunc *func, const char *what, const tn_dim *dims, int n)
{
    tn_text_add(p->text, " %s (", what);
    for (int i = 0; i < n; i++) {
        tn_text_add(p->text, i ? ", " : "");
        print_map_dim(p, func, dims[i]);
    }
    tn_text_add(p->text, ")");
}

static void print_map(printer *p, const tn_lfunc *func, const tn_lmap *map)
{
    tn_text_add(p->text, "%*smap %%%s: %s of ", 2 * p->depth, "", name_value(p, map->value), tn_dtype_text(map->value->type.dtype));
    print_operand(p, map->buffer);
    tn_text_add(p->text, " at ");
    print_map_dim(p, func, map->offset);
    print_map_dims(p, func, "sizes", map->size, map->rank);
    if (map->rank > 1)
        print_map_dims(p, func, "strides", map->stride + 1, map->rank - 1);
    for (int i = 0; i < map->rank; i++)
        tn_text_add(p->text, i ? ", %d" : " box (%d", map->box[i]);
    tn_text_add(p->text, map->swizzle ? ") swizzle %d\n" : ")\n", map->swizzle);
}

/* ---- blocks ---- */

static void print_block_after(printer *p, const tn_lblock *block, const tn_lfunc *maps)
{
    tn_text_add(p->text, " {\n");
    p->depth++;
    for (size_t i = 0; maps && i < maps->maps.len; i++)
        print_map(p, maps, &maps->maps.at[i]);
    for (const tn_lop *op = block->first; op; op = op->next)
        print_op(p, op);
    p->depth--;
    tn_text_add(p->text, "%*s}", 2 * p->depth, "");
}

static void print_block(printer *p, const tn_lblock *block) { print_block_after(p, block, NULL); }

static void print_parameter(printer *p, const tn_lvalue *v)
{
    tn_text_add(p->text, "%%%s: ", name_value(p, v));
    tn_text_ltype(p->text, v->type);
    if (v->readonly)
        tn_text_add(p->text, " readonly");
    if (v->holds)
        tn_text_add(p->text, " of %s", tn_dtype_text(v->holds));
    if (v->multiple > 1)
        tn_text_add(p->text, " multiple %lld", (long long)v->multiple);
    if (v->align)
        tn_text_add(p->text, " align %lld", (long long)v->align);
}

void tn_text_lfunc(tn_text *text, const tn_lfunc *func)
{
    printer p = {.text = text, .names = {.arena = text->arena}, .taken = {.arena = text->arena}};
    for (const char *at = func->remarks, *end; at && *at; at = end + (*end != 0)) {
        end = strchr(at, '\n') ? strchr(at, '\n') : at + strlen(at);
        tn_text_add(text, "// %.*s\n", (int)(end - at), at);
    }
    tn_text_add(text, "kernel @%s(", func->name);
    for (size_t i = 0; i < func->params.len; i++) {
        tn_text_add(text, i ? ", " : "");
        print_parameter(&p, func->params.at[i]);
    }
    tn_text_add(text, func->overlap ? ") overlap" : ")");
    if (func->threads)
        tn_text_add(text, " threads %d", func->threads);
    if (func->cluster)
        tn_text_add(text, " cluster %d", func->cluster);
    if (func->persistent)
        tn_text_add(text, " persistent %d", func->persistent);
    if (func->resident)
        tn_text_add(text, " resident %d", func->resident);
    print_block_after(&p, func->body, func);
    tn_text_add(text, "\n");
}
