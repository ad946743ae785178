/* What the files of src/tile share. */
#ifndef TN_TILE_INTERNAL_H
#define TN_TILE_INTERNAL_H

#include "tile/tile.h"

enum { TN_T_MAX_VALUES = TN_TILE_CARRIED }; /* results, yielded or carried values of one operation */

/* Types in text: $R x $C x f32, f32, 8 x ptr<f32>. */
void tn_text_ttype(tn_text *text, const tn_ttype *type);
const char *tn_ttype_text(tn_arena *arena, const tn_ttype *type);
void tn_text_textent(tn_text *text, const tn_extent *extent);
const char *tn_buffer_mode_text(tn_buffer_mode mode);
bool tn_ttype_same(const tn_ttype *a, const tn_ttype *b);
static inline bool tn_extent_same(tn_extent a, tn_extent b) { return a.size == b.size && a.param == b.param; }

/* ---- build.c: an operation in steps, appended at the builder's place ---- */
tn_top *tn_top_new(tn_tbuilder *b, tn_topcode code, tn_tvalue *const *operands, int noperands, int nregions);
tn_tvalue *tn_top_results(tn_tbuilder *b, tn_top *op, const tn_ttype *types, int n);
void tn_tblock_args(tn_kernel *kernel, tn_tblock *block, const tn_ttype *types, int n);

/* Calls visit on every operation, an operation before its regions. */
void tn_tile_walk(const tn_tblock *block, void (*visit)(void *context, tn_top *op), void *context);
/* Calls visit on every value that op reads: operands, then subscripts. The callback may replace it. */
void tn_top_uses(tn_top *op, void (*visit)(void *context, tn_tvalue **use), void *context);

#endif
