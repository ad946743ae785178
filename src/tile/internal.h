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

void tn_top_unlink(tn_top *op);
/* Calls visit on every value that op reads: operands, then subscripts. The callback may replace it. */
void tn_top_uses(tn_top *op, void (*visit)(void *context, tn_tvalue **use), void *context);

/* ---- passes ---- */
tn_status tn_tile_simplify(tn_kernel *kernel);
tn_status tn_tile_recover(tn_kernel *kernel);
tn_status tn_tile_fold_scaled(tn_kernel *kernel);
tn_status tn_tile_inline(tn_kernel *kernel);

/* ---- check.c: what the interpreter tells the checked mode ---- */
typedef struct tn_checker tn_checker;
typedef enum tn_touch_kind { TN_TOUCH_READ, TN_TOUCH_WRITE, TN_TOUCH_ATOMIC } tn_touch_kind;
/* Before the first program: the buffers by their number, locals too, and how many programs each coordinate has. False: no memory; reported. */
bool tn_check_begin(tn_checker *check, const tn_tile_arg *buffers, const int64_t *programs);
void tn_check_program(tn_checker *check, int64_t number); /* in grid order, from 0 */
const char *tn_check_program_text(const tn_checker *check, tn_arena *arena); /* "(x, y, z)" of the program that runs */
/* A factor or term of the sum, difference or product op so large that its type soon wraps: a hash or a random number, not an address or a bound. */
bool tn_is_hash_constant(const tn_top *op, int64_t constant);
const char *tn_check_name(const tn_top *op); /* an operation's name for the authors of kernels */
/* An access inside buffer `buffer` (-1: none of the kernel's). False: no memory left; reported. */
bool tn_check_touch(tn_checker *check, const tn_top *op, int buffer, const void *at, size_t bytes, tn_touch_kind kind);
/* An absent element of v is seen as 0 by op; `how` says by what of it. */
void tn_check_absent(tn_checker *check, const tn_top *op, const tn_tvalue *v, const char *how);
/* An address or a mask is made of the sum, difference or product op of x and y, which wraps in its type. */
void tn_check_wrap(tn_checker *check, const tn_top *op, int64_t x, int64_t y);
void tn_check_print(tn_checker *check, const tn_top *op, int operand, const int64_t *idx, tn_number number, bool present);
/* tn_tile_interpret; check: NULL: unchecked. */
tn_status tn_tile_run(const tn_kernel *kernel, const tn_tile_arg *buffers, bool (*lookup)(void *context, const char *symbol, int64_t *value), void *context,
                      tn_checker *check);

#endif
