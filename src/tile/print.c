/* The text form of the Tile IR. What it prints, parse.c reads back to an equal kernel, which prints the same again. */
#include "tile/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct printer {
    tn_text *text;
    const tn_kernel *kernel;
    tn_map names; /* value, buffer or view -> its printed name */
    tn_map taken; /* printed name of a value -> itself; buffers' and views' with a mark before */
    uint32_t next;
    int depth;
} printer;

#define ADD(p, ...) tn_text_add((p)->text, __VA_ARGS__)

/* ---- types ----------------------------------------------------------------------------------------------------------- */

void tn_text_textent(tn_text *text, const tn_extent *extent)
{
    if (extent->param)
        tn_text_add(text, "%s", extent->param);
    else
        tn_text_add(text, "%lld", (long long)extent->size);
}

void tn_text_ttype(tn_text *text, const tn_ttype *type)
{
    for (int i = 0; i < type->rank; i++) {
        tn_text_textent(text, &type->extent[i]);
        tn_text_add(text, " x ");
    }
    tn_text_add(text, type->pointer ? "ptr<%s>" : "%s", tn_dtype_text(type->dtype));
}

const char *tn_ttype_text(tn_arena *arena, const tn_ttype *type)
{
    tn_text text = {.arena = arena};
    tn_text_ttype(&text, type);
    return text.at;
}

const char *tn_buffer_mode_text(tn_buffer_mode mode)
{
    static const char *const texts[] = {"read", "write", "read_write", "local"};
    return texts[mode];
}

bool tn_ttype_same(const tn_ttype *a, const tn_ttype *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->pointer == b->pointer;
    for (int i = 0; same && i < a->rank; i++)
        same = tn_extent_same(a->extent[i], b->extent[i]);
    return same;
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

/* As the text may hold it: other characters become _. */
static const char *clean(tn_arena *arena, const char *name)
{
    char *copy = tn_strdup(arena, name);
    for (char *c = copy; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.')
            *c = '_';
    return copy;
}

/* Names stay if they are free in their space, else get .1, .2 …; unnamed values are numbered in the order of the text. */
static const char *give_name(printer *p, const void *thing, const char *wanted, const char *space)
{
    tn_arena *arena = p->text->arena;
    bool numbered = !wanted || !wanted[0] || isdigit((unsigned char)wanted[0]);
    const char *stem = numbered ? "v" : clean(arena, wanted), *name = numbered ? tn_format(arena, "%u", p->next++) : stem;
    for (int i = 1; tn_map_get_str(&p->taken, tn_format(arena, "%s%s", space, name)); i++)
        name = tn_format(arena, "%s.%d", stem, i);
    *tn_map_at_str(&p->taken, tn_format(arena, "%s%s", space, name)) = (void *)name;
    *tn_map_at(&p->names, TN_KEY(thing)) = (void *)name;
    return name;
}

static const char *name_of(printer *p, const void *thing)
{
    const char *name = tn_map_get(&p->names, TN_KEY(thing));
    return name ? name : "<undefined>";
}

static void print_values(printer *p, tn_tvalue *const *values, int n)
{
    for (int i = 0; i < n; i++)
        ADD(p, "%s%%%s", i ? ", " : " ", name_of(p, values[i]));
}

static void print_dims(printer *p, const tn_dim *dims, int n)
{
    ADD(p, "[");
    for (int i = 0; i < n; i++) {
        ADD(p, i ? ", " : "");
        if (tn_dim_is(dims[i], TN_TILE_ANY))
            ADD(p, "*");
        else
            tn_text_dim(p->text, dims[i]);
    }
    ADD(p, "]");
}

static void print_quoted(printer *p, const char *string)
{
    ADD(p, "\"");
    for (const char *c = string; *c; c++)
        if (*c == '"' || *c == '\\')
            ADD(p, "\\%c", *c);
        else if ((unsigned char)*c < 32)
            ADD(p, "\\x%02x", (unsigned char)*c);
        else
            ADD(p, "%c", *c);
    ADD(p, "\"");
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

static void print_block(printer *p, const tn_tblock *block);

static void print_axes(printer *p, const tn_top *op)
{
    ADD(p, " axes [");
    for (int i = 0; i < op->naxes; i++)
        ADD(p, i ? ", %d" : "%d", op->axis[i]);
    ADD(p, "]");
}

static void print_access(printer *p, const tn_top *op)
{
    ADD(p, " %%%s[", name_of(p, op->view));
    for (int d = 0; d < op->view->rank; d++) {
        const tn_subscript *s = &op->subscript[d];
        ADD(p, "%s%s%%%s", d ? ", " : "", s->inside ? "in(" : "", name_of(p, s->value));
        if (s->block)
            ADD(p, " + @%d", s->axis[0]);
        for (int i = 0; !s->block && i < s->naxes; i++)
            ADD(p, "%s@%d", i ? ", " : "(", s->axis[i]);
        ADD(p, "%s%s", !s->block && s->naxes ? ")" : "", s->inside ? ")" : "");
    }
    ADD(p, "]");
}

static void print_arguments(printer *p, const tn_tblock *block)
{
    ADD(p, " (");
    for (int i = 0; i < block->nargs; i++) {
        ADD(p, "%s%%%s: ", i ? ", " : "", give_name(p, &block->arg[i], block->arg[i].name, ""));
        tn_text_ttype(p->text, &block->arg[i].type);
    }
    ADD(p, ")");
}

/* (%a = %start: type, …): the values that a loop carries */
static void print_carried(printer *p, const tn_tblock *block, int first, tn_tvalue *const *values)
{
    ADD(p, " (");
    for (int i = first; i < block->nargs; i++) {
        const char *start = name_of(p, values[i - first]);
        ADD(p, "%s%%%s = %%%s: ", i > first ? ", " : "", give_name(p, &block->arg[i], block->arg[i].name, ""), start);
        tn_text_ttype(p->text, &block->arg[i].type);
    }
    ADD(p, ")");
}

static void print_identities(printer *p, const tn_top *op)
{
    if (!op->identity)
        return;
    ADD(p, " identity [");
    for (int i = 0; i < op->nresults; i++) {
        ADD(p, i ? ", " : "");
        tn_text_number(p->text, op->result[i].type.dtype, op->identity[i]);
    }
    ADD(p, "]");
}

static void print_order(printer *p, const tn_top *op)
{
    print_axes(p, op);
    ADD(p, " order %s", op->ordered ? "tree" : "any");
    print_identities(p, op);
}

static void print_fold(printer *p, const tn_top *op)
{
    ADD(p, " (");
    for (int i = 0; i < op->nranges; i++) {
        const tn_tvalue *start = &op->region[0]->arg[i];
        ADD(p, "%s%%%s : %%%s by ", i ? ", " : "", give_name(p, start, start->name, ""), name_of(p, op->operand[i]));
        tn_text_textent(p->text, &op->step[i]);
    }
    ADD(p, ")");
    print_order(p, op);
}

static void print_for(printer *p, const tn_top *op)
{
    const tn_tblock *body = op->region[0];
    ADD(p, " (%%%s = %%%s to %%%s by %%%s)", give_name(p, &body->arg[0], body->arg[0].name, ""), name_of(p, op->operand[0]),
        name_of(p, op->operand[1]), name_of(p, op->operand[2]));
    if (op->nresults) {
        ADD(p, " carry");
        print_carried(p, body, 1, op->operand + 3);
    }
}

/* What follows the operation's name, up to the types. */
static void print_details(printer *p, const tn_top *op)
{
    switch (op->code) {
    case TN_T_const:
        ADD(p, " ");
        tn_text_number(p->text, op->result->type.dtype, op->number);
        return;
    case TN_T_size:
        ADD(p, " ");
        tn_text_dim(p->text, op->dim);
        return;
    case TN_T_load:
        print_access(p, op);
        return;
    case TN_T_store:
    case TN_T_atomic:
        if (op->code == TN_T_atomic)
            ADD(p, " %s", tn_scalar_name(op->fn));
        print_access(p, op);
        ADD(p, ",");
        print_values(p, op->operand, op->noperands);
        return;
    case TN_T_atomic_ptr:
    case TN_T_atomic_load:
    case TN_T_cas_ptr:
        if (op->code == TN_T_atomic_ptr)
            ADD(p, " %s", op->fn == TN_SCALAR_NONE ? "exchange" : tn_scalar_name(op->fn));
        print_values(p, op->operand, op->noperands);
        if (op->text)
            ADD(p, " order %s", op->text);
        return;
    case TN_T_broadcast:
    case TN_T_permute:
    case TN_T_cat:
    case TN_T_gather:
    case TN_T_sort:
        print_values(p, op->operand, op->noperands);
        print_axes(p, op);
        return;
    case TN_T_slice:
        print_values(p, op->operand, op->noperands);
        print_axes(p, op);
        ADD(p, " start %lld", (long long)op->number.i);
        return;
    case TN_T_dot:
        print_values(p, op->operand, op->noperands);
        if (op->precision != TN_IEEE)
            ADD(p, " precision %s", tn_precision_text(op->precision));
        if (op->imprecise)
            ADD(p, " imprecise %lld", (long long)op->imprecise);
        return;
    case TN_T_reduce:
        print_values(p, op->operand, op->noperands);
        print_order(p, op);
        return;
    case TN_T_scan:
        print_values(p, op->operand, op->noperands);
        print_axes(p, op);
        ADD(p, op->reverse ? " reverse" : "");
        print_identities(p, op);
        return;
    case TN_T_fold:
        print_fold(p, op);
        return;
    case TN_T_for:
        print_for(p, op);
        return;
    case TN_T_while:
        print_carried(p, op->region[0], 0, op->operand);
        return;
    case TN_T_print:
    case TN_T_assert:
    case TN_T_asm:
        ADD(p, op->hex ? " hex " : " ");
        print_quoted(p, op->text ? op->text : "");
        ADD(p, op->noperands ? "," : "");
        print_values(p, op->operand, op->noperands);
        return;
    default:
        print_values(p, op->operand, op->noperands);
    }
}

/* Regions after their keywords; the first region of `fold`, `for`, `while`, `if` has none. */
static void print_regions(printer *p, const tn_top *op)
{
    switch (op->code) {
    case TN_T_fold:
        print_block(p, op->region[0]);
        ADD(p, " combine");
        print_arguments(p, op->region[1]);
        print_block(p, op->region[1]);
        return;
    case TN_T_reduce:
    case TN_T_scan:
    case TN_T_sort:
        ADD(p, op->code == TN_T_sort ? " before" : " combine");
        print_arguments(p, op->region[0]);
        print_block(p, op->region[0]);
        return;
    case TN_T_while:
        print_block(p, op->region[0]);
        ADD(p, " do");
        print_arguments(p, op->region[1]);
        print_block(p, op->region[1]);
        return;
    case TN_T_if:
        print_block(p, op->region[0]);
        ADD(p, " else");
        print_block(p, op->region[1]);
        return;
    default:
        for (int r = 0; r < op->nregions; r++)
            print_block(p, op->region[r]);
    }
}

static void print_op(printer *p, const tn_top *op)
{
    ADD(p, "%*s", 2 * p->depth, "");
    for (int i = 0; i < op->nresults; i++)
        ADD(p, "%s%%%s", i ? ", " : "", give_name(p, &op->result[i], op->result[i].name, ""));
    ADD(p, "%s%s", op->nresults ? " = " : "", op->code == TN_T_map ? tn_scalar_name(op->fn) : tn_top_name(op->code));
    if (op->label)
        ADD(p, " @%s", op->label);
    print_details(p, op);
    for (int i = 0; i < op->nresults; i++) {
        ADD(p, i ? ", " : " : ");
        tn_text_ttype(p->text, &op->result[i].type);
    }
    print_regions(p, op);
    ADD(p, "\n");
}

static void print_block(printer *p, const tn_tblock *block)
{
    ADD(p, " {\n");
    p->depth++;
    for (const tn_top *op = block->first; op; op = op->next)
        print_op(p, op);
    p->depth--;
    ADD(p, "%*s}", 2 * p->depth, "");
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

static void note_symbol(void *context, tn_dim symbol) { *tn_map_at_str(context, symbol->name) = (void *)symbol; }

static void note_dim(tn_map *symbols, tn_dim d)
{
    if (d)
        tn_dim_symbols(d, note_symbol, symbols);
}

static void note_op(void *context, tn_top *op) { note_dim(context, op->dim); }

static void note_view(tn_map *symbols, const tn_view *v)
{
    note_dim(symbols, v->offset);
    for (int d = 0; d < v->rank; d++)
        note_dim(symbols, v->shape[d]), note_dim(symbols, v->stride[d]);
    for (int g = 0; g < v->nguards; g++) {
        note_dim(symbols, v->guard[g].base), note_dim(symbols, v->guard[g].limit);
        for (int d = 0; d < v->rank; d++)
            note_dim(symbols, v->guard[g].coef[d]);
    }
}

static void print_symbols(printer *p)
{
    const tn_kernel *k = p->kernel;
    tn_map symbols = {.arena = p->text->arena};
    for (size_t i = 0; i < k->grid.len; i++)
        note_dim(&symbols, k->grid.at[i].limit);
    for (size_t i = 0; i < k->buffers.len; i++)
        note_dim(&symbols, k->buffers.at[i].elements);
    for (size_t i = 0; i < k->views.len; i++)
        note_view(&symbols, k->views.at[i]);
    tn_tile_walk(k->body, note_op, &symbols);
    for (size_t i = 0; i < symbols.len; i++) {
        tn_dim s = tn_map_value(&symbols, i);
        if (s->lo == 0 && s->hi == (int64_t)1 << 40 && s->multiple <= 1)
            continue; /* what an undeclared symbol has */
        ADD(p, "symbols ");
        tn_text_dim(p->text, s);
        ADD(p, " in [%lld, %lld]", (long long)s->lo, (long long)s->hi);
        if (s->multiple > 1)
            ADD(p, " multiple %lld", (long long)s->multiple);
        ADD(p, "\n");
    }
}

static void print_buffer(printer *p, const tn_tbuffer *t)
{
    ADD(p, "%%%s: %s", give_name(p, t, t->name, "buffer "), tn_dtype_text(t->dtype));
    if (t->elements)
        print_dims(p, &t->elements, 1);
    if (t->mode != TN_LOCAL)
        ADD(p, " %s", tn_buffer_mode_text(t->mode));
    if (t->align)
        ADD(p, " align %lld", (long long)t->align);
}

static void print_header(printer *p)
{
    const tn_kernel *k = p->kernel;
    bool any = false;
    ADD(p, "kernel @%s(", k->name);
    for (size_t i = 0; i < k->buffers.len; i++)
        if (k->buffers.at[i].mode != TN_LOCAL) {
            ADD(p, any ? ", " : "");
            print_buffer(p, &k->buffers.at[i]);
            any = true;
        }
    for (size_t i = 0; i < k->scalars.len; i++, any = true) {
        const tn_tvalue *v = k->scalars.at[i];
        ADD(p, "%s%%%s: ", any ? ", " : "", give_name(p, v, v->name, ""));
        tn_text_ttype(p->text, &v->type);
        if (v->divisor)
            ADD(p, " multiple %lld", (long long)v->divisor);
    }
    ADD(p, ")%s%s grid(", k->overlap ? " overlap" : "", k->contract ? " contract" : "");
    for (size_t i = 0; i < k->grid.len; i++) {
        const tn_trange *g = &k->grid.at[i];
        ADD(p, "%s%%%s : ", i ? ", " : "", give_name(p, g->value, g->value->name, ""));
        tn_text_dim(p->text, g->limit);
        ADD(p, " by ");
        tn_text_textent(p->text, &g->step);
    }
    ADD(p, ") {\n");
}

static void print_view(printer *p, const tn_view *v)
{
    const tn_tbuffer *t = &p->kernel->buffers.at[v->buffer];
    ADD(p, "  view %%%s = %%%s : ", give_name(p, v, v->name, "view "), name_of(p, t));
    print_dims(p, v->shape, v->rank);
    ADD(p, " strides ");
    print_dims(p, v->stride, v->rank);
    if (!tn_dim_is(v->offset, 0)) {
        ADD(p, " offset ");
        tn_text_dim(p->text, v->offset);
    }
    for (int i = 0; i < v->nguards; i++) {
        ADD(p, " guard(");
        print_dims(p, v->guard[i].coef, v->rank);
        ADD(p, " base ");
        tn_text_dim(p->text, v->guard[i].base);
        ADD(p, " limit ");
        tn_text_dim(p->text, v->guard[i].limit);
        ADD(p, ")");
    }
    if (v->padded) {
        ADD(p, " pad ");
        tn_text_number(p->text, t->dtype, v->padding);
    }
    if (v->panel)
        ADD(p, " panel %lld", (long long)v->panel);
    ADD(p, "\n");
}

static void print_schedule(printer *p, const tn_schedule *s)
{
    if (!s->bind.len && !s->entry.len)
        return;
    ADD(p, " schedule {");
    const char *separator = " ";
    for (size_t i = 0; i < s->bind.len; i++, separator = "; ")
        ADD(p, "%sbind %s = %lld", separator, s->bind.at[i].param, (long long)s->bind.at[i].value);
    for (size_t i = 0; i < s->entry.len; i++, separator = "; ") {
        const tn_schedule_entry *e = &s->entry.at[i];
        ADD(p, "%sset %s%s%s = %lld", separator, e->label, e->label[0] ? " " : "", e->key, (long long)e->value);
    }
    ADD(p, " }");
}

void tn_text_kernel(tn_text *text, const tn_kernel *kernel)
{
    printer p = {.text = text, .kernel = kernel, .names = {.arena = text->arena}, .taken = {.arena = text->arena}, .depth = 1};
    print_symbols(&p);
    print_header(&p);
    for (size_t i = 0; i < kernel->buffers.len; i++)
        if (kernel->buffers.at[i].mode == TN_LOCAL) {
            ADD(&p, "  local ");
            print_buffer(&p, &kernel->buffers.at[i]);
            ADD(&p, "\n");
        }
    for (size_t i = 0; i < kernel->views.len; i++)
        print_view(&p, kernel->views.at[i]);
    for (const tn_top *op = kernel->body->first; op; op = op->next)
        print_op(&p, op);
    ADD(&p, "}");
    print_schedule(&p, &kernel->schedule);
    ADD(&p, "\n");
}
