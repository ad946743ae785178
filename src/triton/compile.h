/* What the files of the front end share after parsing: the values that names stand for, the compiler's state, and who offers what.
 *
 *   module.c    units, global names, imports, decorators
 *   kernel.c    what triton.h promises: arguments, configurations, the kernel's frame
 *   compile.c   functions and statements; how names flow through branches and loops
 *   flow.c      values that come from two places: branches, loops
 *   python.c    Python's functions, and those of triton for host code
 *   expr.c      expressions; dispatch of operators, attributes, subscripts and calls
 *   constant.c  Python's own arithmetic, on constants: floor division, unbounded enough integers, strings, tuples
 *   type.c      Triton's arithmetic, on tensors: promotion, broadcasting, conversions, operators
 *   builtins.def, builtin*.c   the functions of triton.language that are not written in it
 *   prelude.tl  those that are; a unit of its own, compiled like a user's
 *
 * Functions that may fail return false after reporting; the caller returns at once. Nothing is undone: the kernel is thrown away. */
#ifndef TN_TRITON_COMPILE_H
#define TN_TRITON_COMPILE_H

#include "triton/ast.h"
#include "triton/triton.h"

typedef enum tn_py_kind {
    /* constants */
    TN_PY_NONE,
    TN_PY_BOOL,      /* integer 0 or 1 */
    TN_PY_INT,       /* integer */
    TN_PY_FLOAT,     /* number */
    TN_PY_STRING,    /* text, length */
    TN_PY_DTYPE,     /* type: an element type (rank 0), a pointer type, or a block type (rank > 0) */
    TN_PY_TUPLE,     /* at, n; lists too. Elements of any kind */
    TN_PY_DICT,      /* at: key, value in turn; n: pairs */
    TN_PY_SLICE,     /* at[0 … 2] */
    TN_PY_RANGE,     /* of a for statement: at[0 … 2] = start, stop, step; `unrolled` for static_range; keyword options are schedule hints */
    TN_PY_FUNCTION,  /* function */
    TN_PY_LAMBDA,    /* function (a LAMBDA node) */
    TN_PY_BUILTIN,   /* builtin; self: what it was taken from (x.sum), NULL: nothing */
    TN_PY_MODULE,    /* text: dotted name, "triton.language.math" */
    TN_PY_CONFIG,    /* triton.Config: at[0] dict of constants, at[1] num_warps, at[2] num_stages (NONE: not given) */
    /* values of the kernel */
    TN_PY_TENSOR,    /* tensor: a scalar or tile of the Tile IR; pointers too */
    TN_PY_BLOCK_POINTER, /* block */
    TN_PY_DESCRIPTOR     /* block; offsets NULL */
} tn_py_kind;

typedef struct tn_py tn_py;
typedef struct tn_function tn_function;
typedef struct tn_builtin tn_builtin;

/* make_block_ptr and make_tensor_descriptor: scalars of the kernel, 64 bits wide, and constants. */
typedef struct tn_py_block {
    tn_tvalue *base; /* scalar pointer */
    int rank;
    tn_tvalue *shape[TN_TILE_RANK], *stride[TN_TILE_RANK], *offset[TN_TILE_RANK];
    int64_t extent[TN_TILE_RANK];
    bool nan_padding;
} tn_py_block;

struct tn_py {
    tn_py_kind kind;
    bool from_constexpr; /* an annotated constexpr or a literal: never becomes a carried value */
    __int128 integer;
    double number;
    const char *text;
    size_t length;
    tn_ttype type;
    const tn_py *at;
    int n;
    bool unrolled;
    const tn_function *function;
    const tn_builtin *builtin;
    const tn_py *self;
    tn_tvalue *tensor;
    const tn_py_block *block;
};
static inline bool tn_py_is_constant(const tn_py *v) { return v->kind < TN_PY_TENSOR; }
static inline bool tn_py_is_number(const tn_py *v) { return v->kind == TN_PY_BOOL || v->kind == TN_PY_INT || v->kind == TN_PY_FLOAT; }
static inline tn_py tn_py_none(void) { return (tn_py){.kind = TN_PY_NONE}; }
static inline tn_py tn_py_bool(bool b) { return (tn_py){.kind = TN_PY_BOOL, .integer = b}; }
static inline tn_py tn_py_int(__int128 i) { return (tn_py){.kind = TN_PY_INT, .integer = i}; }
static inline tn_py tn_py_float(double f) { return (tn_py){.kind = TN_PY_FLOAT, .number = f}; }
static inline tn_py tn_py_dtype(tn_dtype d) { return (tn_py){.kind = TN_PY_DTYPE, .type = {.dtype = d}}; }
static inline tn_py tn_py_tensor(tn_tvalue *v) { return (tn_py){.kind = TN_PY_TENSOR, .tensor = v}; }

struct tn_function {
    const tn_ast *node;      /* FUNCTION or LAMBDA */
    const tn_ast_unit *unit;
    int unit_number;
    const char *name;
    bool host;               /* without @triton.jit: decorators may call it, kernels may not */
};

typedef struct tn_tcompiler {
    tn_session *session;
    tn_triton_module *module;
    tn_kernel *kernel;
    tn_tbuilder b;              /* where operations go; b.loc follows the statement and expression being compiled */
    struct tn_frame *frame;     /* of the function being compiled (compile.c): its names; frame->function->unit is what errors point into */
    const tn_triton_options *options;
    int num_warps, num_stages;
    int depth;                  /* of calls: recursion is refused */
    bool constants_only;        /* decorators and defaults: nothing may be built */
    bool scalars_only;          /* in a combine function: only pure scalar operations may be built */
    bool by_elements;           /* in a function that map_elementwise calls: a condition may be a tile; both sides are computed then, and elements chosen */
    size_t nodes;               /* of the syntax tree compiled so far, each as often as it was unrolled or inlined */
    int regions;                /* branches and loops around the statement */
    tn_map carried, partial;    /* loop -> what it carried last; `if` -> it returns on some ways only (compile.c) */
} tn_tcompiler;

/* ---- module.c ---------------------------------------------------------------------------------------------------------- */
/* A global name as seen from a unit: bindings, functions, assignments (evaluated once, constants only), imports, then Python's own (range, min, max, len, print, int,
 * float, bool, isinstance …). false without a report: unknown. A global that is not constexpr is refused with the reason. */
bool tn_t_global(tn_tcompiler *c, const tn_ast *at, int unit, const char *name, tn_py *out, bool *found);
/* A member of a module: triton.language.X is a builtin of builtins.def, else a function of prelude.tl, else a type or a constant. */
bool tn_t_member(tn_tcompiler *c, const tn_ast *at, const char *module, const char *name, tn_py *out);
const tn_ast_unit *tn_triton_unit(const tn_triton_module *module, int unit);
extern const char tn_triton_prelude[];       /* the text of prelude.tl, embedded by the build */
extern const size_t tn_triton_prelude_size;

/* ---- compile.c ----------------------------------------------------------------------------------------------------------- */
bool tn_t_error(tn_tcompiler *c, const tn_ast *at, const char *format, ...) __attribute__((format(printf, 3, 4)));   /* TN_INVALID; returns false */
bool tn_t_refuse(tn_tcompiler *c, const tn_ast *at, const char *format, ...) __attribute__((format(printf, 3, 4)));  /* TN_UNSUPPORTED; returns false */
/* Calls a jit function or lambda with values: binds parameters (positional, then keywords), inlines its body, gives what it returns. */
bool tn_t_call(tn_tcompiler *c, const tn_ast *at, const tn_function *function, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values,
               int nkeywords, tn_py *out);
/* Fills a combine region (2n scalar arguments of these types, yields n) from a function of 2n scalars. */
bool tn_t_combine(tn_tcompiler *c, const tn_ast *at, const tn_py *function, tn_tblock *region, const tn_ttype *types, int n);
/* Is `name` a variable of the function being compiled? */
bool tn_t_lookup(tn_tcompiler *c, const char *name, tn_py *out);

/* ---- expr.c -------------------------------------------------------------------------------------------------------------- */
bool tn_t_expression(tn_tcompiler *c, const tn_ast *node, tn_py *out);
/* A constant of the wanted kind, or an error that says what came; `what` names it: "the axis of sum". */
bool tn_t_constant_int(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int64_t *out);
bool tn_t_constant_bool(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, bool *out);
const char *tn_t_describe(tn_tcompiler *c, const tn_py *v); /* for messages: "int32[64, 32]", "constexpr 3", "a tuple of 2" */

/* ---- constant.c ---------------------------------------------------------------------------------------------------------- */
bool tn_t_constant_binary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out);
bool tn_t_constant_unary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, tn_py *out);
bool tn_t_truth(tn_tcompiler *c, const tn_ast *at, const tn_py *v, bool *out); /* Python's truth of a constant */
bool tn_t_equal(const tn_py *x, const tn_py *y);

/* ---- type.c --------------------------------------------------------------------------------------------------------------- */
/* Triton's rules: bool < integers < floats, then width; of integers of one width unsigned wins; f16 with bf16 gives f32 where Triton says so; a constant
 * takes the tensor's type if its kind (bool, int, float) is not above it, and fits. Division `/` of integers is in f32 (f64 for 64 bits). */
bool tn_t_binary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out); /* comparisons too; at least one is a tensor */
bool tn_t_unary(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, tn_py *out);
/* The two as tensors of one type and shape (ternary select, where, minimum …): promotes and broadcasts. */
bool tn_t_unify(tn_tcompiler *c, const tn_ast *at, tn_py *x, tn_py *y);
bool tn_t_to_tensor(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_tvalue **out); /* bool -> i1; int -> i32, u32, i64, u64, the first that holds it; float -> f32 */
bool tn_t_to_dtype(tn_tcompiler *c, const tn_ast *at, const tn_py *v, tn_dtype dtype, tn_tvalue **out); /* a constant becomes one of the type; a tensor is cast */
typedef enum tn_t_rounding { TN_T_ROUND_DEFAULT, TN_T_ROUND_EVEN, TN_T_ROUND_ZERO } tn_t_rounding;
tn_tvalue *tn_t_cast_value(tn_tcompiler *c, tn_tvalue *x, tn_dtype dtype, tn_t_rounding rounding); /* Triton's conversion: f8 saturates, to bool is != 0 */
bool tn_t_bitcast_value(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, tn_ttype element, tn_tvalue **out); /* pointers and 64-bit integers too */
/* Broadcasting as NumPy's: ranks are made equal with leading 1s, extents of 1 stretch. */
bool tn_t_broadcast_pair(tn_tcompiler *c, const tn_ast *at, tn_tvalue **x, tn_tvalue **y);
bool tn_t_broadcast_to(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, int rank, const int64_t *extents, tn_tvalue **out);
bool tn_t_expand_dims(tn_tcompiler *c, const tn_ast *at, tn_tvalue *x, int axis, tn_tvalue **out);
bool tn_t_shape(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const char *what, int *rank, int64_t *extents); /* a tuple of constants; powers of two, product <= 1,048,576 */
tn_dtype tn_t_dtype_named(const char *name); /* Triton's names: float16, fp16, int1, fp8e4nv …; TN_NO_DTYPE: unknown */
const char *tn_t_dtype_name(tn_dtype dtype); /* as Triton prints it: fp32, int32, uint8, bf16, fp8e4nv, int1 */

/* ---- builtins ------------------------------------------------------------------------------------------------------------- */
typedef struct tn_call {
    const tn_ast *node;
    const tn_py *argument; /* one a parameter of the signature, in order; a starred one is a tuple */
    const bool *given;     /* was it given, or is it the default? */
    int n;
} tn_call;
/* A row of builtins.def: BUILTIN(module, name, "signature as Python writes it", flags, function). Modules: those of the language, and for methods, with
 * self first, "tensor" (of tensors, block pointers, and numbers, which become tensors), "descriptor", "dtype". */
enum { TN_T_CONSTANT = 1 /* may run where nothing may be built */, TN_T_SCALAR = 2 /* pure and scalar on scalars: combine functions may call it */ };
struct tn_builtin {
    const char *module, *name, *signature;
    unsigned flags;
    bool (*run)(tn_tcompiler *c, const tn_call *call, tn_py *out);
};
const tn_builtin *tn_t_builtin_find(const char *module, const char *name); /* NULL: none */
/* Types and constants of a module: triton.language.float16, .TRITON_MAX_TENSOR_NUMEL, triton.language.PropagateNan.ALL … false: there is none;
 * *refused, if not NULL then: it exists in Triton, and why Tenon has it not. PropagateNan and other classes: see tn_t_is_module. */
bool tn_t_constant_member(const char *module, const char *name, tn_py *out, const char **refused);
bool tn_t_is_module(const char *module); /* has builtins or constants: "triton.language.math", "triton.language.PropagateNan" */
/* Binds by the signature (same rules and messages as a call of a function), then runs. self: NULL, or the first argument. */
bool tn_t_builtin_call(tn_tcompiler *c, const tn_ast *at, const tn_builtin *builtin, const tn_py *self, const tn_py *arguments, int n, const char *const *keywords,
                       const tn_py *values, int nkeywords, tn_py *out);
/* Attributes that are no methods, of a tensor (shape, dtype, type, T, numel), a block pointer, a descriptor (shape, strides, block_shape, dtype …) or a
 * type (element_ty, scalar, shape, primitive_bitwidth, name …). What is neither is an error that lists what there is. */
bool tn_t_tensor_attribute(tn_tcompiler *c, const tn_ast *at, const tn_py *self, const char *name, tn_py *out);
bool tn_t_tensor_subscript(tn_tcompiler *c, const tn_ast *at, const tn_py *self, const tn_py *index, tn_py *out); /* x[:, None] */

#endif
