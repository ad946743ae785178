/* What a kernel's maps are to who launches it. */
#include <string.h>

#include "plan/internal.h"

/* What instructions do with the map, of all that name it. */
static int uses(const tn_lblock *block, const tn_lvalue *map)
{
    int how = 0;
    for (const tn_lop *op = block->first; op; op = op->next) {
        const tn_linstruction *row = op->code == TN_L_machine ? tn_l_instruction(op->name) : NULL;
        for (int p = 0; row && p < tn_l_instruction_parts(row); p++)
            if (row->part[p].kind == TN_PART_MAP && op->operand[tn_l_part_operand(row, p)] == map)
                how |= row->part[p].how;
        for (int i = 0; i < op->nregions; i++)
            how |= uses(op->region[i], map);
    }
    return how;
}

const tn_code_map *tn_plan_maps(const tn_lfunc *loop)
{
    tn_code_map *out = TN_NEW_ARRAY(&loop->session->arena, tn_code_map, loop->maps.len + 1);
    for (size_t i = 0; i < loop->maps.len; i++) {
        const tn_lmap *map = &loop->maps.at[i];
        out[i] = (tn_code_map){.dtype = map->buffer->type.dtype, .how = uses(loop->body, map->value), .view = *map};
        while (loop->params.at[out[i].buffer] != map->buffer)
            out[i].buffer++;
        out[i].view.value = out[i].view.buffer = NULL;
    }
    return out;
}

typedef struct names {
    const char *const *name;
    int n;
    bool known;
} names;

static void look_up(void *context, tn_dim symbol)
{
    names *all = context;
    bool found = false;
    for (int i = 0; !found && i < all->n; i++)
        found = !strcmp(all->name[i], symbol->name);
    all->known = all->known && found;
}

const char *tn_plan_map_fault(const tn_code_map *map, int nbuffers, const char *const *size, int nsizes)
{
    const tn_lmap *view = &map->view;
    names all = {size, nsizes, true};
    int bits = tn_dtype_bits(map->dtype);
    tn_dim_symbols(view->offset, look_up, &all);
    for (int i = 0; i < view->rank; i++) {
        tn_dim_symbols(view->size[i], look_up, &all);
        tn_dim_symbols(view->stride[i], look_up, &all);
    }
    return map->buffer >= nbuffers                                     ? "no such buffer"
           : bits != 8 && bits != 16 && bits != 32 && bits != 64       ? "elements of no size that maps have"
           : !all.known                                                ? "no such size"
           : view->swizzle != 0 && view->box[0] * bits / 8 != view->swizzle ? "a row that is not the swizzle's"
                                                                       : NULL;
}
