/* What type.c and the files of the builtins share. */
#ifndef TN_TRITON_BUILTIN_H
#define TN_TRITON_BUILTIN_H

#include "triton/compile.h"

/* ---- type.c ---- */
const char *tn_t_type_name(tn_tcompiler *c, const tn_ttype *type);   /* of an element: "fp32", "pointer<fp32>" */
const char *tn_t_shape_text(tn_tcompiler *c, const tn_ttype *type);  /* "[32, 64]"; a scalar: "[]" */
tn_number tn_t_number(const tn_py *v, tn_dtype dtype);               /* a constant number as one of the type: wraps, rounds, f8 saturates */
tn_tvalue *tn_t_scalar_const(tn_tcompiler *c, tn_dtype dtype, tn_number number);
tn_tvalue *tn_t_scalar_int(tn_tcompiler *c, tn_dtype dtype, int64_t value);
tn_tvalue *tn_t_pointer_bits(tn_tcompiler *c, tn_tvalue *x);         /* as i64 */
tn_tvalue *tn_t_stretch(tn_tcompiler *c, tn_tvalue *x, const tn_ttype *shape); /* to the shape: of equal rank or a scalar, fitting */
bool tn_t_same_shape(const tn_ttype *a, const tn_ttype *b);
/* The operators of Python on tensors, where both may be constants too. */
bool tn_t_apply(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_tvalue **out);

/* ---- arguments ---- */
static inline bool tn_t_is_none(const tn_py *v) { return v->kind == TN_PY_NONE; }
static inline int64_t tn_t_elements(const tn_ttype *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++)
        n *= type->extent[i].size;
    return n;
}
/* A tuple's elements, or the one value. */
static inline const tn_py *tn_t_elements_of(const tn_py *v, int *n)
{
    *n = v->kind == TN_PY_TUPLE ? v->n : 1;
    return v->kind == TN_PY_TUPLE ? v->at : v;
}
tn_py tn_t_tuple(tn_tcompiler *c, const tn_py *at, int n);  /* copies */
tn_py tn_t_shape_tuple(tn_tcompiler *c, int rank, const int64_t *extents);
bool tn_t_tensor_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_tvalue **out); /* a tensor or number, no block pointer */
bool tn_t_axis(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int rank, int *out);         /* negative ones count from the end */
bool tn_t_ints(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int most, int *n, int64_t *out);
bool tn_t_string(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, const char **out); /* NULL for None */
bool tn_t_dtype_argument(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, tn_ttype *out);
bool tn_t_propagate_nan(tn_tcompiler *c, const tn_ast *at, const tn_py *v, bool *all);
bool tn_t_is_static(const tn_py *v, int64_t value); /* a constant integer of this value */

/* ---- builtin_memory.c ---- */
extern const char tn_t_volatile_order[]; /* of volatile loads: what others stored before what is found is seen after it */

/* ---- poll.c ---- */
void tn_t_load_anew(tn_tcompiler *c, const tn_top *loop); /* loads by which a finished `while` waits for other programs become volatile */

/* ---- builtin_math.c ---- */
/* The function on tensors of one type and shape: promotes and broadcasts; select: the first one bool. what: for messages. */
bool tn_t_map_values(tn_tcompiler *c, const tn_ast *at, const char *what, tn_scalar fn, const tn_py *x, int n, tn_tvalue **out);

#define BUILTIN(module, name, signature, flags, function) bool function(tn_tcompiler *c, const tn_call *call, tn_py *out);
#include "triton/builtins.def"
#undef BUILTIN

#endif
