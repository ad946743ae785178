/* What only the files of base share. */
#ifndef TN_BASE_INTERNAL_H
#define TN_BASE_INTERNAL_H

#include <locale.h>

#include "base/base.h"

/* The "C" locale: numbers read and print alike whatever locale the host program chose. The C library hands out one
 * constant object for it, so this neither allocates nor needs a freelocale. */
static inline locale_t tn_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The value cell of a string of `len` bytes, which may hold NULs; *key: the map's own NUL-terminated copy. */
void **tn_map_at_bytes(tn_map *map, const char *text, size_t len, const char **key);

/* The low `bits` bits of `value`, sign- or zero-extended as `dtype` (an integer or bool type) says. */
int64_t tn_wrap(tn_dtype dtype, uint64_t value);

/* Opens `name` below the open folder `dir`, one component after the other, none of them a symbolic link: what openat2
 * does in one call, for kernels and sandboxes that lack it. -1 and errno if it cannot; the name holds no "..". */
int tn_open_step_by_step(tn_arena *arena, int dir, const char *name);

#endif
