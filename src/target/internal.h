/* What only src/target shares. */
#ifndef TN_TARGET_INTERNAL_H
#define TN_TARGET_INTERNAL_H

#include "target/target.h"

/* The C library's functions that emitted code may call; the JIT binds exactly these. */
#define TN_LIBM_FUNCTIONS(UNARY, BINARY, TERNARY, COMPLEX)                                                             \
    UNARY(cbrt) UNARY(exp) UNARY(exp2) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log1p) UNARY(sin) UNARY(cos)           \
    UNARY(tan) UNARY(tanh) UNARY(erf) UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(asinh)          \
    UNARY(acosh) UNARY(atanh) UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(round) UNARY(roundeven) BINARY(pow)           \
    BINARY(atan2) BINARY(fmod) BINARY(hypot) TERNARY(fma) COMPLEX(csqrt) COMPLEX(cexp) COMPLEX(clog) COMPLEX(csin)     \
    COMPLEX(ccos) COMPLEX(ctan) COMPLEX(ctanh)

#endif
