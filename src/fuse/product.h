/* What the files of products share: product.c (operands, tiles, the kernel), skinny.c (sums in parts, and a matrix times a vector, on a GPU). */
#ifndef TN_FUSE_PRODUCT_H
#define TN_FUSE_PRODUCT_H

#include "fuse/internal.h"

/* What an operand reads in the end: a stored value at a map, through views only. */
typedef struct source {
    const location *l;
    const fmap *m;
    const tn_value *value;
    bool views_only; /* else something (a convert) is computed on the way */
} source;

/* Row, column and contracted dims that become tile axes: the innermost of each class; the rest are grid coordinates or ranges. */
typedef struct axes {
    int m, n, k; /* -1: none */
    int64_t M, N, K;
} axes;

typedef struct factors {
    tn_dtype left, right;
} factors;

typedef struct product {
    group *g;
    demand *d; /* of the product or convolution */
    source left, right;
    demand *scaled[2];    /* operands that are stored numbers of 8 bits times scales by blocks, which multiply the blocks' sums instead; NULL: it is no such operand */
    demand *dequantiser;  /* of the right operand, which is a constant of fewer bits: what converts it, as it is loaded from its packed form; NULL: it is none */
    factors types;        /* that they are brought to */
    tn_dtype acc, result; /* of the sums, of the elements */
    axes x;
} product;

/* Into how many parts the sums go, and in which the kernel's programs are. */
typedef struct sum_parts {
    int64_t total; /* 1: whole sums */
    int64_t chunk; /* of k, that a part adds up; 0: all */
    bool taps;     /* what other dims are contracted are coordinates of the grid */
    tn_tvalue *number, *of_k; /* scalars: the part's, and which chunk of k it has (NULL: 0) */
    int buffer;    /* what they give, of type `acc`: [total, dims of the result] */
} sum_parts;

/* The fold over the contracted dims, by steps of x.K of k; E stands in it until it is closed with the element that it adds up. */
tn_top *product_open_sum(emitter *E, const product *p, const sum_parts *parts, int naxes, const int *axes);
void product_close_sum(emitter *E, const product *p, tn_top *fold, tn_tvalue *element, tn_tblock *outer);
/* Elements of the operand in the phase in scope. */
tn_tvalue *product_operand(emitter *E, const product *p, int i);

/* skinny.c */
/* Grid coordinates for the parts that the tiles ask for, before all others. */
sum_parts product_open_parts(emitter *E, const product *p, const gpu_product *tiles);
/* The kernel's end: sums of the phase in scope become the root's elements, here or in a kernel that adds up what the parts stored. */
void product_finish(emitter *E, tn_steps *steps, const product *p, const sum_parts *parts, tn_tvalue *sums);
/* One of both sides has one element, and sums along lines of the other one, the matrix, are the fastest form. */
bool product_is_vector(fuser *F, const product *p);
void product_emit_vector(fuser *F, tn_steps *steps, product *p);

#endif
