/* base: what every other folder stands on. Memory, text, containers, diagnostics, checked sizes, element types, the
 * scalar functions, files, threads. Includes nothing of Tenon but the public header (status codes).
 *
 * Memory: everything a compile makes lives in arenas that its session owns; nothing is freed node by node.
 * There is no global mutable state: two sessions may work in two threads at once. */
#ifndef TN_BASE_H
#define TN_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tenon/tenon.h"

/* ---- arena ------------------------------------------------------------------------------------------------------- */

/* Bump allocator over malloc'ed chunks. Allocation is zeroed, aligned to 16 bytes (64 with tn_alloc_aligned), and never
 * returns NULL: out of memory calls longjmp(*on_oom) if set (the API's entry points set it and return
 * TN_NO_MEMORY), else aborts. What an input file can make large (weights, run-time buffers) is not allocated here but
 * with malloc, checked. */
typedef struct tn_arena {
    struct tn_chunk *chunks;
    char *at, *end;
    size_t bytes; /* total taken from malloc */
    jmp_buf *on_oom;
} tn_arena;

void *tn_alloc(tn_arena *arena, size_t size);
void *tn_alloc_aligned(tn_arena *arena, size_t size, size_t align);
void *tn_memdup(tn_arena *arena, const void *data, size_t size);
void tn_arena_free(tn_arena *arena); /* gives back everything; the arena may be used again */
#define TN_NEW(arena, T) ((T *)tn_alloc((arena), sizeof(T)))
#define TN_NEW_ARRAY(arena, T, n) ((T *)tn_alloc_array((arena), (n), sizeof(T)))
void *tn_alloc_array(tn_arena *arena, size_t n, size_t size); /* n * size checked: overflow counts as out of memory */

/* Memory for tensors: at least 1 byte, aligned to 64; large blocks to a huge page, and the kernel is asked to back them with such (a product walks
 * thousands of small pages, and each miss costs two walks inside a virtual machine). NULL: none. Given back with free(). */
void *tn_alloc_tensor(size_t size);

/* ---- growable arrays, on an arena ---------------------------------------------------------------------------------- */

#define TN_VEC(T)                                                                                                      \
    struct {                                                                                                           \
        T *at;                                                                                                         \
        size_t len, cap;                                                                                               \
    }
/* Appends x. Growth copies into new arena memory (the old block is left), so pointers to elements do not last. */
#define TN_PUSH(arena, v, ...)                                                                                         \
    (((v)->len == (v)->cap ? tn_vec_grow((arena), (void **)&(v)->at, &(v)->cap, sizeof *(v)->at) : (void)0),            \
     (void)((v)->at[(v)->len++] = (__VA_ARGS__)))
void tn_vec_grow(tn_arena *arena, void **at, size_t *cap, size_t elem_size);
#define TN_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- text ---------------------------------------------------------------------------------------------------------- */

/* String builder; text is NUL-terminated after every call. */
typedef struct tn_text {
    tn_arena *arena;
    char *at;
    size_t len, cap;
} tn_text;
void tn_text_add(tn_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tn_text_addv(tn_text *text, const char *format, va_list args);
void tn_text_put(tn_text *text, const char *data, size_t len);
char *tn_format(tn_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *tn_strdup(tn_arena *arena, const char *string);
char *tn_strndup(tn_arena *arena, const char *string, size_t n);
/* Prints a finite double so that strtod reads the same bits back, shortest form; nan, inf, -inf as those words. */
void tn_text_double(tn_text *text, double value);

/* ---- maps ---------------------------------------------------------------------------------------------------------- */

uint64_t tn_hash(const void *data, size_t size, uint64_t seed); /* not for adversarial keys beyond a per-process seed */
static inline uint64_t tn_hash_u64(uint64_t x)
{
    x ^= x >> 32, x *= 0xd6e8feb86659fd93u, x ^= x >> 32, x *= 0xd6e8feb86659fd93u, x ^= x >> 32;
    return x;
}
/* Open-addressing maps on an arena. Keys: 64-bit integers or pointers; strings by content. Zero-initialise, set arena. */
typedef struct tn_map {
    tn_arena *arena;
    struct tn_map_slot *slots;
    size_t len, cap;
} tn_map;
void **tn_map_at(tn_map *map, uint64_t key);              /* value cell, NULL if new; lasts until the next insertion */
void *tn_map_get(const tn_map *map, uint64_t key);        /* value or NULL */
void **tn_map_at_str(tn_map *map, const char *key);       /* key copied on insertion */
void *tn_map_get_str(const tn_map *map, const char *key);
#define TN_KEY(pointer) ((uint64_t)(uintptr_t)(pointer))
/* Iteration in insertion order: for (size_t i = 0; i < map.len; i++) tn_map_key(&map, i) ... (deterministic output). */
uint64_t tn_map_key(const tn_map *map, size_t i);
const char *tn_map_key_str(const tn_map *map, size_t i);
void *tn_map_value(const tn_map *map, size_t i);

/* ---- sessions and diagnostics -------------------------------------------------------------------------------------- */

typedef struct tn_loc {
    const char *file; /* NULL: unknown */
    int line, column; /* 0: none */
    const char *node; /* name of a model's node; NULL: none */
} tn_loc;

typedef enum tn_severity { TN_NOTE, TN_WARNING, TN_ERROR, TN_PRINT /* what the user's text prints while it is compiled */ } tn_severity;

typedef struct tn_diag {
    tn_severity severity;
    tn_status status; /* of an error */
    tn_loc loc;
    const char *message;
} tn_diag;

/* A compile session: owns the arena, the interned strings and dimensions, the diagnostics. One thread at a time. */
struct tn_session {
    tn_arena arena;
    tn_map strings;
    struct tn_dim_table *dims; /* src/graph */
    TN_VEC(tn_diag) diags;
    size_t errors;
    size_t error_limit; /* further errors are counted, not kept; 0: 100 */
    tn_map options;     /* const char * by name: --option NAME=VALUE */
    void (*progress)(void *context, const char *stage, size_t done, size_t total);
    void *progress_context;
    struct tn_pools *pools; /* src/run: what kernels of users run on; NULL: none yet */
};

const char *tn_intern(tn_session *session, const char *text, size_t len); /* equal text, equal pointer; NUL-terminated */
const char *tn_intern_z(tn_session *session, const char *text);

/* Records a diagnostic: what was expected, what came, how to go on. Returns `status`, so that
 * `return tn_error(session, TN_INVALID, loc, "...")` reads well. For the user's errors only; ours are asserts. */
tn_status tn_error(tn_session *session, tn_status status, tn_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tn_warning(tn_session *session, tn_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
void tn_said(tn_session *session, tn_loc loc, const char *text); /* a TN_PRINT */
void tn_note(tn_session *session, tn_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "file:line:column: error: node 'x': message" (absent parts left out), one a line. */
void tn_print_diags(const tn_session *session, FILE *to);
#define TN_NO_LOC ((tn_loc){0})
#define TN_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        tn_status try_status_ = (expr);                                                                                \
        if (try_status_ != TN_OK)                                                                                      \
            return try_status_;                                                                                        \
    } while (0)

/* ---- checked sizes ------------------------------------------------------------------------------------------------- */

static inline bool tn_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool tn_add(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool tn_sub(int64_t a, int64_t b, int64_t *out) { return !__builtin_sub_overflow(a, b, out); }
static inline int64_t tn_floordiv(int64_t a, int64_t b) /* b != 0 */
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t tn_ceildiv(int64_t a, int64_t b) { return -tn_floordiv(-a, b); }
static inline int64_t tn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tn_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- element types ------------------------------------------------------------------------------------------------- */

typedef enum tn_dtype {
    TN_NO_DTYPE,
#define DTYPE(NAME, text, bits, class, code) TN_##NAME,
#include "base/dtypes.def"
#undef DTYPE
    TN_DTYPE_COUNT
} tn_dtype;

typedef enum tn_class { TN_CLASS_BOOL = 1, TN_CLASS_INT = 2, TN_CLASS_UINT = 4, TN_CLASS_FLOAT = 8, TN_CLASS_COMPLEX = 16 } tn_class;

const char *tn_dtype_text(tn_dtype dtype);
tn_dtype tn_dtype_from_text(const char *text, size_t len); /* TN_NO_DTYPE if unknown */
int tn_dtype_bits(tn_dtype dtype);
tn_class tn_dtype_class(tn_dtype dtype);
DLDataType tn_dtype_to_dlpack(tn_dtype dtype);
tn_dtype tn_dtype_from_dlpack(DLDataType type); /* TN_NO_DTYPE if Tenon has none */
tn_dtype tn_dtype_real(tn_dtype dtype);         /* c64 -> f32, c128 -> f64, else itself */
static inline bool tn_is_float(tn_dtype d) { return tn_dtype_class(d) == TN_CLASS_FLOAT; }
static inline bool tn_is_f8(tn_dtype d) { return d == TN_F8E4M3 || d == TN_F8E5M2; }
static inline bool tn_is_complex(tn_dtype d) { return tn_dtype_class(d) == TN_CLASS_COMPLEX; }
static inline bool tn_is_unsigned(tn_dtype d) { return (tn_dtype_class(d) & (TN_CLASS_UINT | TN_CLASS_BOOL)) != 0; } /* bool too */
static inline bool tn_is_integer(tn_dtype d) { return (tn_dtype_class(d) & (TN_CLASS_INT | TN_CLASS_UINT)) != 0; }
/* Bytes of n elements (sub-byte types packed, rounded up); false on overflow or n < 0. */
bool tn_dtype_bytes(tn_dtype dtype, int64_t n, size_t *out);

/* One element of any type, held wide: floats in f (complex: f and im), signed in i, unsigned and bool in u (the same
 * storage as i). A float of 32 bits or fewer is held exactly. */
typedef struct tn_number {
    union {
        double f;
        int64_t i;
        uint64_t u;
    };
    double im;
} tn_number;

tn_number tn_number_load(tn_dtype dtype, const void *data, int64_t index);
void tn_number_store(tn_dtype dtype, void *data, int64_t index, tn_number value); /* rounds to nearest even, wraps */
/* StableHLO `convert`: float -> integer truncates (saturates outside the range, NaN gives 0: reproducible), integer ->
 * bool is != 0, complex -> real takes the real part. The result is rounded to `to`'s precision. */
tn_number tn_number_convert(tn_number value, tn_dtype from, tn_dtype to);
tn_number tn_number_from_double(tn_dtype dtype, double value);
tn_number tn_number_from_int(tn_dtype dtype, int64_t value);
double tn_number_to_double(tn_dtype dtype, tn_number value);
int64_t tn_number_to_int(tn_dtype dtype, tn_number value); /* as convert to i64 */
bool tn_number_same(tn_dtype dtype, tn_number a, tn_number b); /* same bits; any NaN equals any NaN */
/* Text form in the IRs: integers decimal, bool true/false, floats as tn_text_double with `nan`, `inf`, complex (re, im). */
void tn_text_number(tn_text *text, tn_dtype dtype, tn_number value);
/* Reads it back; returns the characters used, 0 if malformed. */
size_t tn_number_parse(tn_dtype dtype, const char *text, tn_number *out);
/* Limits of a type: lowest()/highest() finite for integers and bool, -inf/+inf for floats (identities of max and min; f8e4m3fn, which
 * has no infinity: -448/448). */
tn_number tn_number_lowest(tn_dtype dtype);
tn_number tn_number_highest(tn_dtype dtype);

/* Fills n dense elements by seed and number of the tensor, the same on every machine: see random.c. */
void tn_fill_random(tn_dtype dtype, void *data, int64_t n, uint64_t seed, uint64_t number);

/* ---- scalar functions ---------------------------------------------------------------------------------------------- */

typedef enum tn_scalar {
    TN_SCALAR_NONE,
#define SCALAR(name, arity, accepts, result, traits) TN_S_##name,
#include "base/scalars.def"
#undef SCALAR
    TN_SCALAR_COUNT
} tn_scalar;

enum { TN_SCALAR_COMMUTES = 1, TN_SCALAR_ASSOCIATES = 2, TN_SCALAR_IDEMPOTENT = 4, TN_SCALAR_CHEAP = 8 };

const char *tn_scalar_name(tn_scalar fn);
tn_scalar tn_scalar_from_name(const char *name); /* TN_SCALAR_NONE if unknown */
int tn_scalar_arity(tn_scalar fn);
unsigned tn_scalar_traits(tn_scalar fn);
bool tn_scalar_accepts(tn_scalar fn, tn_dtype dtype);
tn_dtype tn_scalar_result(tn_scalar fn, tn_dtype dtype); /* dtype: of the last operand */
/* What fn combines with any x to x, for the functions that reductions use (add mul max min maxnum minnum and or xor); false: fn has none. Of maxnum and minnum
 * it is the neutral number: what is made of NaN alone is that, not NaN. */
bool tn_scalar_identity(tn_scalar fn, tn_dtype dtype, tn_number *out);
/* The meaning: computes fn in double (integers exactly) on operands of `dtype` and rounds to the result type once. */
tn_number tn_scalar_eval(tn_scalar fn, tn_dtype dtype, const tn_number *operands);

/* ---- files --------------------------------------------------------------------------------------------------------- */

/* A file mapped read-only. Regular files only; a file of size 0 gives data == NULL, size == 0. */
typedef struct tn_file {
    const uint8_t *data;
    size_t size;
    const char *path;
} tn_file;
tn_status tn_file_map(tn_session *session, const char *path, tn_file *out);
/* Opens `name` below folder `dir` without leaving it: no absolute path, no "..", no symbolic link, regular, one link. */
tn_status tn_file_map_below(tn_session *session, tn_loc loc, const char *dir, const char *name, tn_file *out);
void tn_file_unmap(tn_file *file);
/* Writes to a temporary file beside `path` and renames: a reader sees the old file or the whole new one. */
tn_status tn_file_write(tn_session *session, const char *path, const void *data, size_t size);
/* The same for a file that nobody else may read or write: mode 0600. */
tn_status tn_file_write_private(tn_session *session, const char *path, const void *data, size_t size);
bool tn_write_all(int fd, const char *data, size_t size); /* to an open file; false: errno says why */

/* ---- machine ------------------------------------------------------------------------------------------------------- */

int tn_cpu_count(void);      /* CPUs this process may use: affinity and cgroup quota, at least 1 */
double tn_seconds(void);     /* monotonic clock */
int tn_by_value(const void *a, const void *b); /* doubles, for qsort: the middle one is the median */
size_t tn_peak_rss(void);    /* bytes, peak resident set of this process */
/* Runs fn(context, i) for i in [0, n) on up to `threads` threads, in any order; returns when all are done. */
void tn_parallel_for(int threads, size_t n, void (*fn)(void *context, size_t i), void *context);

#endif
