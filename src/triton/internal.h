/* What the files of the compiler proper (module.c, kernel.c, compile.c, flow.c, expr.c, constant.c, python.c) share. */
#ifndef TN_TRITON_INTERNAL_H
#define TN_TRITON_INTERNAL_H

#include "triton/builtin.h"

#define TN_TRITON_LANGUAGE "triton.language"
#define TN_TRITON_LIBDEVICE "triton.language.extra.libdevice"
#define TN_TRITON_CUDA "triton.language.extra.cuda"
#define TN_TRITON_TARGET "triton.runtime.target" /* what driver.active.get_current_target() gives host code */
/* Numbers of units that no caller added: prelude.tl, and a literal that stands alone. In both a name means what it means with the usual imports. */
enum { TN_T_PRELUDE = -1, TN_T_LITERAL = -2 };

/* A name of a function. gone: why it has no value at this point (NULL: it has one): "it is assigned in one branch only" … */
typedef struct tn_variable {
    const char *name; /* interned */
    tn_py value;
    const char *gone;
    const tn_ast *declared; /* the statement that made it a constant, NAME: tl.constexpr = … */
} tn_variable;
typedef struct tn_scope {
    tn_variable *at; /* in the order of their first assignment; none is ever removed */
    int n, cap;
} tn_scope;

/* A function being compiled, or the place of a unit or literal that is evaluated (function->node NULL). */
typedef struct tn_frame {
    const tn_function *function;
    struct tn_frame *caller;
    const tn_ast *call; /* in the caller */
    tn_scope scope;
    int loops;          /* of the Tile IR around the statement: no return from there */
} tn_frame;

/* What a name is in the function being compiled; NULL: it is none of its variables. */
const tn_variable *tn_t_variable(const tn_tcompiler *c, const char *name);
static inline bool tn_t_in_prelude(const tn_tcompiler *c) { return c->frame && c->frame->function->unit_number == TN_T_PRELUDE; }
void tn_t_set(tn_tcompiler *c, const char *name, tn_py value);
/* Counts a node that is compiled; an error if kernels that unroll without end would fill the memory. */
bool tn_t_spend(tn_tcompiler *c, const tn_ast *at);
bool tn_t_run_kernel(tn_tcompiler *c); /* the body of the frame's function */
void tn_t_at(tn_tcompiler *c, const tn_ast *at); /* operations made from now on come from there */

/* ---- module.c ---- */
tn_session *tn_triton_session(const tn_triton_module *module);
const tn_function *tn_t_unit_function(tn_triton_module *module, int unit, const char *name); /* NULL: none; jit or not */
/* A function of the host, read in whole when it is first called: it may be what makes autotune's configurations. NULL after a report. */
const tn_function *tn_t_host_function(tn_tcompiler *c, const tn_function *function);
bool tn_t_is_jit(const tn_function *function);
bool tn_t_is_constexpr(const tn_ast *annotation); /* tl.constexpr */
const tn_function *tn_t_libdevice(tn_tcompiler *c, const char *name); /* a function of libdevice; NULL: none */
/* A prelude function that is a method of tensors; NULL: none. */
const tn_function *tn_t_method(tn_tcompiler *c, const char *name);
/* Evaluates a node as host code: in the scope of a unit, constants only. */
bool tn_t_host_expression(tn_tcompiler *c, const tn_function *scope, const tn_ast *node, tn_py *out);
bool tn_t_literal(tn_tcompiler *c, const char *what, const char *text, tn_py *out);
/* What tn_triton_bind or tn_triton_bind_function gave a unit under this name; NULL: nothing. */
const tn_py *tn_t_bound(const tn_triton_module *module, int unit, const char *name);
/* Autotune's configurations and heuristics of a function, as its decorators give them. *configs: a tuple of CONFIG; *heuristics: a dict of lambdas. */
bool tn_t_autotune(tn_tcompiler *c, const tn_function *function, tn_py *configs);
bool tn_t_heuristics(tn_tcompiler *c, const tn_function *function, tn_py *heuristics);

/* ---- expr.c ---- */
bool tn_t_attribute(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const char *name, tn_py *out);
bool tn_t_apply_call(tn_tcompiler *c, const tn_ast *at, const tn_py *callee, const tn_py *arguments, int n, const char *const *keywords, const tn_py *values,
                     int nkeywords, tn_py *out);
bool tn_t_operator(tn_tcompiler *c, const tn_ast *at, tn_ast_op op, const tn_py *x, const tn_py *y, tn_py *out);
/* A condition: a constant's truth (*known), else a scalar of int1. */
bool tn_t_condition(tn_tcompiler *c, const tn_ast *at, const char *where, bool *known, bool *truth, tn_tvalue **out);
bool tn_t_subscript(tn_tcompiler *c, const tn_ast *at, const tn_py *value, const tn_py *index, tn_py *out);
/* The elements of a tuple, range, dict (keys) or string. */
bool tn_t_iterate(tn_tcompiler *c, const tn_ast *at, const tn_py *v, const tn_py **items, int *n);

/* ---- flow.c: values that come from two places ---- */
/* Do both hold the same constants and the very same tensors? */
bool tn_t_identical(const tn_py *x, const tn_py *y);
/* A deep copy, and the tensors in it, where they stand: those of tuples, block pointers and descriptors, in a fixed order. */
typedef TN_VEC(tn_tvalue **) tn_slots;
tn_py tn_t_clone(tn_tcompiler *c, const tn_py *v);
void tn_t_slots(tn_tcompiler *c, tn_py *v, tn_slots *out);
bool tn_t_same_type(const tn_ttype *x, const tn_ttype *y);
/* What one side of a branch computes: operations in a block of its own, and n values. */
typedef struct tn_side {
    tn_tblock *block;
    tn_py *value;
} tn_side;
/* One value from two: a constant that differs becomes a tensor, types must agree, then an `if` of the two blocks gives what differs (selects, where there is
 * nothing to compute, or only scalars may be computed). names: for messages; out: n values. The builder is back in the block that it was in. */
bool tn_t_choose(tn_tcompiler *c, const tn_ast *at, tn_tvalue *condition, tn_side *x, tn_side *y, const char *const *names, int n, tn_py *out);

/* ---- constant.c ---- */
void tn_t_text_constant(tn_tcompiler *c, tn_text *text, const tn_py *v, bool quoted); /* Python's str; quoted: repr */
const char *tn_t_operator_text(tn_ast_op op);
tn_py tn_t_string_value(tn_tcompiler *c, const char *text, size_t length);

/* ---- python.c ---- */
/* Python's functions ("python"), and what triton offers to host code and loops: module "triton", "triton.language". NULL: none. */
const tn_builtin *tn_t_python_find(const char *module, const char *name);

#endif
