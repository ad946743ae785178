/* Graph -> program: checks, buffers, the walk over a block, and where each stored value lies. group.c says what is fused, emit.c and
 * product.c make the kernels, special.c the rest. */
#include "fuse/internal.h"

#include <assert.h>
#include <string.h>

/* ---- what can be lowered --------------------------------------------------------------------------------------------------- */

static bool region_is_scalar_map(const tn_block *region)
{
    for (const tn_op *op = region->first; op != region->last; op = op->next) {
        bool view = op->code == TN_OP_reshape || op->code == TN_OP_broadcast_in_dim;
        const tn_tensor *constant = op->code == TN_OP_constant ? tn_find_attr(op, TN_A_value)->tensor : NULL;
        if (op->nresults != 1 || op->result->type.rank || !(tn_op_scalar(op) != TN_SCALAR_NONE || op->code == TN_OP_convert || constant || view))
            return false;
        for (int i = 0; i < op->noperands; i++)
            if (tn_operand(op, i)->def ? tn_operand(op, i)->def->block != region : tn_operand(op, i)->block != region)
                return false;
    }
    return true;
}

static const char *reduce_unsupported(const tn_op *op)
{
    const tn_block *region = op->region[0];
    if (op->nresults > 8)
        return "more than 8 values are reduced together";
    if (!region_is_scalar_map(region))
        return "its region is more than elementwise operations on its arguments";
    bool single = op->nresults == 1 && region->first->next == region->last && tn_op_scalar(region->first) != TN_SCALAR_NONE &&
                  (tn_scalar_traits(tn_op_scalar(region->first)) & TN_SCALAR_ASSOCIATES);
    for (int i = 0; !single && i < op->nresults; i++)
        if (!fuse_single_constant(tn_operand(op, op->nresults + i)))
            return "its initial values are not constants and its region is not one known operation";
    int n;
    const int64_t *base = op->code == TN_OP_reduce_window ? tn_attr_ints(op, TN_A_base_dilation, &n) : NULL;
    for (int i = 0; base && i < n; i++)
        if (base[i] != 1)
            return "base dilation (canonicalize removes it)";
    return NULL;
}

static const char *conv_unsupported(const tn_op *op)
{
    int n;
    const int64_t *base = tn_attr_ints(op, TN_A_base_dilation, &n), *reversal = tn_attr_ints(op, TN_A_window_reversal, &n);
    for (int i = 0; i < n; i++)
        if (base[i] != 1 || reversal[i])
            return "dilation of its operand or reversal (canonicalize removes them)";
    return NULL;
}

static bool known_precision(const tn_op *op)
{
    int64_t e = tn_attr_int(op, TN_A_exponent_bits, 0), m = tn_attr_int(op, TN_A_mantissa_bits, 0);
    return (e == 8 && m == 7) || (e == 5 && m == 10);
}

const char *op_unsupported(const tn_op *op)
{
    for (int i = 0; i < op->noperands + op->nresults; i++) {
        const tn_type *type = i < op->noperands ? &tn_operand(op, i)->type : &op->result[i - op->noperands].type;
        if (tn_is_complex(type->dtype))
            return "complex numbers";
    }
    switch (op->code) {
    case TN_OP_reduce:
    case TN_OP_reduce_window:
        return reduce_unsupported(op);
    case TN_OP_convolution:
        return conv_unsupported(op);
    case TN_OP_reduce_precision:
        return known_precision(op) ? NULL : "only e8m7 and e5m10 have a lowering";
    case TN_OP_bitcast_convert:
        return tn_dtype_bits(tn_operand(op, 0)->type.dtype) == tn_dtype_bits(op->result->type.dtype) ? NULL : "a change of width";
    case TN_OP_scatter:
        return region_is_scalar_map(op->region[0]) ? NULL : "its region is more than elementwise operations on its arguments";
    case TN_OP_sort:
        return region_is_scalar_map(op->region[0]) ? NULL : "its comparator is more than elementwise operations on its arguments";
    case TN_OP_composite:
    case TN_OP_batch_norm_inference:
        return "canonicalize has not decomposed it";
    case TN_OP_select_and_scatter:
    case TN_OP_fft:
    case TN_OP_cholesky:
    case TN_OP_triangular_solve:
    case TN_OP_rng_bit_generator:
    case TN_OP_custom_call:
        return "the operation has no lowering";
    default:
        return NULL;
    }
}

static void check_block(const tn_block *block, size_t *count)
{
    for (const tn_op *op = block->first; op; op = op->next) {
        const char *why = op_unsupported(op);
        if (why) {
            tn_error(block->graph->session, TN_UNSUPPORTED, op->loc, "%s can't be compiled: %s", tn_op_name(op->code), why);
            ++*count;
        }
        if (tn_op_traits(op->code) & TN_CONTROL)
            for (int r = 0; r < op->nregions; r++)
                check_block(op->region[r], count);
    }
}

tn_status tn_fuse_check(const tn_graph *graph)
{
    size_t count = 0;
    check_block(graph->body, &count);
    return count ? TN_UNSUPPORTED : TN_OK;
}

/* ---- buffers and locations ------------------------------------------------------------------------------------------------------ */

int fuse_buffer(fuser *F, tn_pbuffer_kind kind, const tn_type *type, const char *name)
{
    tn_pbuffer p = {.kind = kind, .type = *type, .elements = tn_type_elements(F->session, type), .name = name};
    TN_PUSH(&F->session->arena, &F->program->buffers, p);
    return (int)F->program->buffers.len - 1;
}

location *fuse_dense(fuser *F, int buffer, const tn_type *type)
{
    location *l = TN_NEW(F->arena, location);
    l->buffer = buffer;
    l->offset = tn_dim_const(F->session, 0);
    tn_dim stride = tn_dim_const(F->session, 1);
    for (int i = type->rank; i-- > 0;) {
        l->stride[i] = stride;
        stride = tn_dim_mul(F->session, stride, type->dim[i]);
    }
    return l;
}

static int output_index(const fuser *F, const tn_value *v)
{
    const tn_op *ret = F->program->graph->body->last;
    if (v->def && v->def->block == F->program->graph->body && v->def->code != TN_OP_constant)
        for (int i = 0; i < ret->noperands; i++)
            if (tn_operand(ret, i) == v)
                return i;
    return -1;
}

/* A part of a concatenation: its place inside the whole. */
static location *part_location(fuser *F, const concat_part *p)
{
    location *l = tn_memdup(F->arena, fuse_location(F, p->concat->result), sizeof *l);
    F->program->buffers.at[l->buffer].shared = true; /* no part alone makes it ready */
    int axis = (int)tn_attr_int(p->concat, TN_A_dimension, 0);
    l->offset = tn_dim_add(F->session, l->offset, tn_dim_mul(F->session, l->stride[axis], p->at));
    return l;
}

static location *constant_location(fuser *F, const tn_value *v, const tn_tensor *t)
{
    int buffer = fuse_buffer(F, TN_B_CONSTANT, &v->type, t->name);
    F->program->buffers.at[buffer].constant = t;
    location *l = fuse_dense(F, buffer, &v->type);
    if (t->splat) { /* one element serves all */
        for (int i = 0; i < v->type.rank; i++)
            l->stride[i] = tn_dim_const(F->session, 0);
        F->program->buffers.at[buffer].elements = tn_dim_const(F->session, 1);
    }
    return l;
}

location *fuse_location(fuser *F, const tn_value *v)
{
    location *l = tn_map_get(&F->locations, TN_KEY(v));
    if (l)
        return l;
    const tn_tensor *constant = tn_constant_of(v);
    const concat_part *wanted = tn_map_get(&F->wanted, TN_KEY(v));
    if (constant) {
        l = constant_location(F, v, constant);
    } else if (wanted) {
        l = part_location(F, wanted);
    } else {
        int out = output_index(F, v);
        int buffer = fuse_buffer(F, out >= 0 ? TN_B_OUTPUT : TN_B_TEMP, &v->type, v->name);
        F->program->buffers.at[buffer].index = out;
        l = fuse_dense(F, buffer, &v->type);
    }
    *tn_map_at(&F->locations, TN_KEY(v)) = l;
    return l;
}

tn_step *fuse_step(fuser *F, tn_steps *steps, tn_step_kind kind, const tn_op *op)
{
    tn_step *step = TN_NEW(&F->session->arena, tn_step);
    step->kind = kind;
    step->choice = kind == TN_STEP_KERNEL ? F->choice : 0;
    if (op)
        TN_PUSH(&F->session->arena, &step->ops, op);
    TN_PUSH(&F->session->arena, &steps->list, step);
    return step;
}

static int64_t extent_or(tn_dim d, int64_t otherwise) { return tn_dim_is_const(d) ? d->value : otherwise; }

void fuse_emit_copy(fuser *F, tn_steps *steps, const tn_value *v, const location *to, const tn_op *op)
{
    group *g = fuse_group_new(F, op, &v->type);
    emitter *E = emitter_new(F, g, "copy");
    fmap *m = map_identity(F, g, v->type.rank, NULL);
    int last = g->ndims - 1, row = fuse_for_gpu(F) ? last - 1 : -1;
    gpu_tile t = {1, last >= 0 ? tn_min(pow2_ceil(extent_or(g->dim[last].extent, 1024)), 8192) : 1, 0, 0};
    if (fuse_for_gpu(F)) {
        t = fuse_gpu_point(F, g, last, row, false);
        tn_schedule_set(E->kernel, "", "warps", t.warps);
    }
    for (int j = 0; j < g->ndims; j++)
        emit_grid_dim(E, j, j == last ? t.columns : j == row ? t.rows : 1, j == last ? t.rows > 1 : j == row && t.rows > 1 ? 0 : -1);
    emit_store(E, to, m, emit_load(E, v, m, NULL));
    emitter_finish(E, steps)->copied = v;
}

static bool is_dense(fuser *F, const location *l, const tn_value *v)
{
    const location *dense = fuse_dense(F, l->buffer, &v->type);
    for (int i = 0; i < v->type.rank; i++)
        if (l->stride[i] != dense->stride[i] && !tn_dim_is(v->type.dim[i], 1))
            return false;
    return tn_dim_is(l->offset, 0) && tn_dim_eq(F->session, F->program->buffers.at[l->buffer].elements, tn_type_elements(F->session, &v->type));
}

int fuse_dense_buffer(fuser *F, tn_steps *steps, const tn_value *v, const tn_op *op)
{
    location *l = fuse_location(F, v);
    if (is_dense(F, l, v))
        return l->buffer;
    int buffer = fuse_buffer(F, TN_B_TEMP, &v->type, NULL);
    fuse_emit_copy(F, steps, v, fuse_dense(F, buffer, &v->type), op);
    return buffer;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------------------------ */

/* Operands that are not computed in their part are copied there. */
static void emit_concatenation(fuser *F, tn_steps *steps, const tn_op *op)
{
    int axis = (int)tn_attr_int(op, TN_A_dimension, 0);
    concat_part p = {op, tn_dim_const(F->session, 0), 0};
    for (int i = 0; i < op->noperands; i++) {
        const tn_value *v = tn_operand(op, i);
        const concat_part *wanted = tn_map_get(&F->wanted, TN_KEY(v));
        if (!wanted || wanted->concat != op)
            fuse_emit_copy(F, steps, v, part_location(F, &p), op);
        p.at = tn_dim_add(F->session, p.at, v->type.dim[axis]);
    }
}

/* Result buffers whose memory may be an operand's: same size, read only where it is written. */
static void note_in_place(fuser *F, tn_step *step)
{
    const tn_kernel *k = step->kernel;
    if (step->init || k->body->last == NULL)
        return;
    for (int out = 0; out < step->nargs; out++) {
        if (k->buffers.at[out].mode != TN_WRITE)
            continue;
        const tn_view *store = NULL;
        int stores = 0;
        for (size_t v = 0; v < k->views.len; v++)
            if (k->views.at[v]->buffer == out) {
                store = k->views.at[v];
                stores++;
            }
        for (int in = 0; stores == 1 && in < step->nargs; in++) {
            const tn_pbuffer *a = &F->program->buffers.at[step->args[out]], *b = &F->program->buffers.at[step->args[in]];
            if (step->offset && step->offset[out] != step->offset[in])
                continue;
            if (k->buffers.at[in].mode != TN_READ || a->elements != b->elements || tn_dtype_bits(a->type.dtype) != tn_dtype_bits(b->type.dtype))
                continue;
            bool same = true;
            for (size_t v = 0; v < k->views.len; v++) {
                const tn_view *load = k->views.at[v];
                if (load->buffer != in)
                    continue;
                same &= load->rank == store->rank && load->offset == store->offset && !load->nguards && !load->panel;
                for (int d = 0; same && d < load->rank; d++)
                    same &= load->stride[d] == store->stride[d] && load->shape[d] == store->shape[d];
            }
            if (same)
                TN_PUSH(&F->session->arena, &step->inplace, ((tn_inplace){out, in}));
        }
    }
}

void fuse_block(fuser *F, const tn_block *block, tn_steps *steps)
{
    if (!fuse_group_block(F, block))
        return;
    const tn_op *outer = F->current;
    for (const tn_op *op = block->first; op && F->status == TN_OK; op = op->next) {
        group *g = tn_map_get(&F->roots, TN_KEY(op));
        bool used = op->nresults == 0;
        F->current = op;
        for (int i = 0; i < op->nresults; i++)
            used |= op->result[i].uses != NULL;
        if (g) {
            fuse_emit_group(F, steps, g);
            tn_step *step = steps->list.len ? steps->list.at[steps->list.len - 1] : NULL;
            if (step && step->kernel && g->kind == GROUP_POINT && g->stored.len == 1)
                note_in_place(F, step);
        } else if (used && op_is_special(op)) {
            fuse_emit_special(F, steps, op);
        } else if (used && op->code == TN_OP_concatenate && !tn_map_get(&F->demands, TN_KEY(op))) {
            emit_concatenation(F, steps, op);
        }
    }
    F->current = outer;
}

static void finish_outputs(fuser *F)
{
    const tn_op *ret = F->program->graph->body->last;
    F->current = ret;
    for (int i = 0; i < ret->noperands && F->status == TN_OK; i++) {
        const tn_value *v = tn_operand(ret, i);
        if (output_index(F, v) == i && F->program->buffers.at[fuse_location(F, v)->buffer].kind == TN_B_OUTPUT &&
            F->program->buffers.at[fuse_location(F, v)->buffer].index == i)
            continue;
        int buffer = fuse_buffer(F, TN_B_OUTPUT, &v->type, NULL);
        F->program->buffers.at[buffer].index = i;
        fuse_emit_copy(F, &F->program->steps, v, fuse_dense(F, buffer, &v->type), ret);
    }
}

tn_status tn_fuse(tn_session *session, tn_graph *graph, const tn_fuse_options *options, tn_program *out)
{
    TN_TRY(tn_fuse_check(graph));
    memset(out, 0, sizeof *out);
    out->stands_for.arena = &session->arena;
    if (!options->no_fusion) {
        fuse_count_constants(graph->body);
        fuse_merge_products(session, graph->body, out);
    }
    if (options->target.gpu)
        fuse_split_reductions(session, graph->body, &options->target);
    tn_arena arena = {.on_oom = session->arena.on_oom};
    out->session = session;
    out->graph = graph;
    fuser state = {.session = session, .program = out, .options = options, .arena = &arena}, *F = &state;
    F->demands.arena = F->roots.arena = F->locations.arena = F->packed.arena = F->wanted.arena = F->declined.arena = F->places.arena = &arena;
    for (int i = 0; i < graph->body->nargs; i++) {
        const tn_value *v = graph->body->arg[i];
        int buffer = fuse_buffer(F, TN_B_INPUT, &v->type, v->name);
        out->buffers.at[buffer].index = i;
        *tn_map_at(&F->locations, TN_KEY(v)) = fuse_dense(F, buffer, &v->type);
    }
    fuse_block(F, graph->body, &out->steps);
    if (F->status == TN_OK)
        finish_outputs(F);
    tn_arena_free(&arena);
    return F->status;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------------------- */

static void text_argument(tn_text *text, const tn_step *s, int a)
{
    tn_text_add(text, "%s #%d", a ? "," : "", s->args[a]);
    if (!s->offset || !s->offset[a])
        return;
    tn_text_add(text, " from ");
    tn_text_dim(text, s->offset[a]);
}

static void text_steps(tn_text *text, const tn_program *p, const tn_steps *steps, int indent)
{
    static const char *const names[] = {"kernel", "copy", "define", "if", "case", "while"};
    for (size_t i = 0; i < steps->list.len; i++) {
        const tn_step *s = steps->list.at[i];
        tn_text_add(text, "%*s%s%s", indent, "", s->init ? "init " : "", names[s->kind]);
        if (s->kernel)
            tn_text_add(text, " @%s", s->kernel->name);
        if (s->dim) {
            tn_text_add(text, " ");
            tn_text_dim(text, s->dim);
        }
        for (int a = 0; a < s->nargs; a++)
            text_argument(text, s, a);
        for (size_t o = 0; o < s->ops.len; o++)
            tn_text_add(text, "%s%s", o ? ", " : "  // ", tn_op_name(s->ops.at[o]->code));
        tn_text_add(text, "\n");
        for (int b = 0; b < s->nblocks; b++) {
            tn_text_add(text, "%*sblock %d\n", indent + 2, "", b);
            text_steps(text, p, &s->blocks[b], indent + 4);
        }
    }
}

static void text_kernels(tn_text *text, const tn_steps *steps)
{
    for (size_t i = 0; i < steps->list.len; i++) {
        const tn_step *s = steps->list.at[i];
        if (s->kernel)
            tn_text_kernel(text, s->kernel);
        for (int b = 0; b < s->nblocks; b++)
            text_kernels(text, &s->blocks[b]);
    }
}

void tn_text_program(tn_text *text, const tn_program *program)
{
    static const char *const kinds[] = {"input", "output", "constant", "temp"};
    for (size_t i = 0; i < program->buffers.len; i++) {
        const tn_pbuffer *b = &program->buffers.at[i];
        tn_text_add(text, "// #%zu %s%s ", i, b->persistent ? "persistent " : "", kinds[b->kind]);
        tn_text_type(text, &b->type);
        tn_text_add(text, "%s%s\n", b->name ? " " : "", b->name ? b->name : "");
    }
    tn_text step_text = {.arena = text->arena};
    text_steps(&step_text, program, &program->steps, 0);
    for (const char *line = step_text.at; line && *line;) {
        const char *end = strchr(line, '\n');
        tn_text_add(text, "// %.*s\n", (int)(end - line), line);
        line = end + 1;
    }
    text_kernels(text, &program->steps);
}
