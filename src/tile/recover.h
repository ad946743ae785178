/* What the files of the pass `recover` share. recover.c's head says what the pass does. */
#ifndef TN_TILE_RECOVER_H
#define TN_TILE_RECOVER_H

#include "tile/simplify.h"

/* What a form adds up: the position along an axis (value NULL), a scalar (naxes 0), or an index tile, whose axes lie on axis[0 …]. */
typedef struct atom {
    tn_tvalue *value;
    int naxes;
    int axis[TN_TILE_RANK];
} atom;

typedef struct form_term {
    atom atom;
    tn_dim coef;
} form_term;

/* An integer tile as base + sum of coef * atom, in exact arithmetic: what wraps in its type is an atom, but for signed types of at least 32 bits. It is there where
 * all its atoms are: an atom that may be absent never cancels. */
enum { FORM_TERMS = 16 };
typedef struct form {
    tn_dim base;
    int n;
    form_term term[FORM_TERMS];
} form;

typedef struct pointer_form {
    int buffer;
    const char *why; /* not NULL: it is none, because */
    form offset;
} pointer_form;

/* Bounds of an integer, saturated. */
typedef struct span {
    int64_t lo, hi;
} span;

typedef struct recover {
    tn_session *session;
    tn_kernel *kernel;
    tn_arena arena;      /* of this run alone */
    bool scaled;         /* loops of what is computed from products become folds too */
    tn_map order;        /* operation -> its place in the program */
    tn_map anchor, tail; /* made operation -> what it stands behind; that (operation or block) -> the last made one behind it */
    uint64_t nmade;
    int depth; /* of the search */
    tn_map made;         /* text of an operation -> its value */
    tn_map projected;    /* value and axes -> value */
    tn_map forms, pointers, spans, varies, solutions, there;
    tn_map assumed;      /* values and symbols that a fact of the kernel says are not negative */
    tn_map views;        /* text of a view -> view */
    tn_map names;        /* buffer + 1 -> how many views of it were named */
    tn_map became;       /* values that others stand for, at the end */
    tn_map accesses;     /* operation -> access, of those that became views */
} recover;

/* ---- one access -------------------------------------------------------------------------------------------------- */
enum { MAX_PARTS = 16, MAX_BOUNDS = 4 };
/* A part of a mask: its axis i is the access's axis map[i], -1: none. */
typedef struct part {
    tn_tvalue *value;
    int map[TN_TILE_RANK];
} part;

/* i < upper, i >= lower; forms without axes. */
typedef struct bounds {
    int nupper, nlower;
    form upper[MAX_BOUNDS], lower[MAX_BOUNDS];
} bounds;

/* The same of an index tile. */
typedef struct index_bound {
    bool upper, lower;
    tn_dim limit;
    tn_tvalue *part[2]; /* the comparisons, should one of the two be missing */
    int map[2][TN_TILE_RANK];
} index_bound;

typedef struct dimension {
    tn_dim shape, stride;
    tn_subscript subscript;
} dimension;

typedef struct access {
    recover *R;
    tn_top *op;
    const tn_ttype *type; /* of the pointers */
    int buffer;
    form lead;                       /* what no dimension has yet of the offset */
    tn_dim stride[TN_TILE_RANK];     /* of positions; NULL: none */
    bounds bound[TN_TILE_RANK];
    form_term index[FORM_TERMS];     /* index tiles */
    index_bound indexed[FORM_TERMS];
    int nindex;
    part part[MAX_PARTS];            /* other parts of the mask */
    int nparts, ndims;
    dimension dim[TN_MAX_RANK];
    const char *why;
} access;

/* ---- recover_emit.c: operations at the first place where their operands are known; equal ones are made once ---- */
void recover_number_operations(recover *R);
/* Where a value is known: behind an operation of a block (NULL: at its start). */
typedef struct spot {
    tn_tblock *block;
    tn_top *after;
    uint64_t order;
} spot;
spot recover_spot(const recover *R, const tn_tvalue *v);
spot recover_later(spot a, spot b);
spot recover_start(const recover *R);
/* Moves the operations of `from` (made there with a builder) to a spot. */
void recover_splice(recover *R, tn_tblock *from, spot at);
void recover_insert_before(tn_tblock *from, tn_top *op);
tn_tvalue *recover_index(recover *R, int64_t value);
tn_tvalue *recover_dim(recover *R, tn_dim dim);
tn_tvalue *recover_cast(recover *R, tn_tvalue *v, tn_dtype dtype);
tn_tvalue *recover_map1(recover *R, tn_scalar fn, tn_tvalue *x);
tn_tvalue *recover_map2(recover *R, tn_scalar fn, tn_tvalue *x, tn_tvalue *y);
tn_tvalue *recover_sum(recover *R, const form *f); /* i64; no atom has axes */
/* The axes (bits) along which a tile may vary; those of one element never count. */
unsigned recover_varies(recover *R, const tn_tvalue *v);
/* v along the axes `keep` alone, in order; it must not vary along others. */
tn_tvalue *recover_project(recover *R, tn_tvalue *v, unsigned keep);
/* reshape that only adds or drops axes of one element: map[i] is the axis that operand axis i becomes, -1: dropped. */
bool recover_unit_map(const tn_ttype *from, const tn_ttype *to, int *map);

/* ---- recover_form.c ---- */
const form *recover_form(recover *R, tn_tvalue *v);
const pointer_form *recover_pointer(recover *R, tn_tvalue *v);
span recover_span(recover *R, const tn_tvalue *v);
bool recover_there(recover *R, const tn_tvalue *v); /* proven: no element of it is absent */
bool recover_form_there(recover *R, const form *f); /* the same of all that it adds up */
bool recover_not_negative(recover *R, const form *f); /* proven */
form recover_constant(recover *R, int64_t value);
bool recover_add(recover *R, form *f, const form *g, tn_dim scale); /* f += scale * g; false: too many terms, f is spoilt */
form recover_remap(const form *f, const int *map);                  /* axis a becomes map[a]; -1: there is one position */
bool recover_divide(recover *R, tn_dim d, tn_dim by, tn_dim *out);  /* d = by * out, as polynomials */
bool recover_multiply(recover *R, tn_dim a, tn_dim b, tn_dim *out); /* false: too large */
tn_dim recover_bound_dim(recover *R, tn_tvalue *v); /* a size that a loop may use for the limit v: both are at most 0, or equal; NULL: none */
void recover_collect_facts(recover *R);
static inline bool recover_is_unit(tn_extent e) { return !e.param && e.size == 1; }
const tn_number *recover_constant_of(const tn_tvalue *v); /* every element is this; NULL: not known */

/* ---- recover.c, recover_loop.c ---- */
tn_view *recover_view(recover *R, int buffer, int rank, const tn_dim *shape, const tn_dim *stride, tn_dim offset, bool padded, tn_number padding);
/* The value of a bounded axis's start; proven: it is not negative, because of what a lowering may not see. */
tn_tvalue *recover_block_start(recover *R, const form *start, bool proven);
/* For i < u along an axis of that extent: a dimension of the extent that starts at max(0, extent - u). NULL: too many terms. */
tn_tvalue *recover_clamped_start(recover *R, tn_dim extent, const form *u);
void recover_operands(recover *R); /* loads for products alone */
void recover_folds(recover *R);    /* loops of products */

/* ---- recover_demand.c ---- */
void recover_remainders(recover *R); /* indices modulo a size, where only those below it are needed */

#endif
