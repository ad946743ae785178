#include "base/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and the final NUL. */
static void reserve(tn_text *text, size_t more)
{
    if (text->cap - text->len > more)
        return;
    size_t wanted = text->cap ? text->cap : 64;
    while (wanted - text->len <= more)
        wanted *= 2;
    char *grown = tn_alloc(text->arena, wanted);
    if (text->len)
        memcpy(grown, text->at, text->len);
    text->at = grown;
    text->cap = wanted;
}

void tn_text_put(tn_text *text, const char *data, size_t len)
{
    reserve(text, len);
    if (len)
        memcpy(text->at + text->len, data, len);
    text->len += len;
    text->at[text->len] = 0;
}

void tn_text_addv(tn_text *text, const char *format, va_list args)
{
    locale_t before = uselocale(tn_c_locale());
    va_list again;
    va_copy(again, args);
    reserve(text, 1);
    int len = vsnprintf(text->at + text->len, text->cap - text->len, format, args);
    if (len > 0 && (size_t)len >= text->cap - text->len) {
        reserve(text, (size_t)len);
        vsnprintf(text->at + text->len, text->cap - text->len, format, again);
    }
    va_end(again);
    uselocale(before);
    if (len > 0)
        text->len += (size_t)len;
    text->at[text->len] = 0;
}

void tn_text_add(tn_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tn_text_addv(text, format, args);
    va_end(args);
}

char *tn_format(tn_arena *arena, const char *format, ...)
{
    tn_text text = {.arena = arena};
    va_list args;
    va_start(args, format);
    tn_text_addv(&text, format, args);
    va_end(args);
    return text.at;
}

char *tn_strndup(tn_arena *arena, const char *string, size_t n)
{
    size_t len = strnlen(string, n);
    char *copy = tn_alloc(arena, len + 1);
    memcpy(copy, string, len);
    return copy;
}

char *tn_strdup(tn_arena *arena, const char *string)
{
    return tn_strndup(arena, string, SIZE_MAX / 8);
}

/* The least number of significant digits that strtod reads back to `value`. Up to 15 digits survive text -> double ->
 * text, and %g drops their trailing zeros, so only denormals, which are less precise, need fewer tried. */
static int shortest_digits(double value, locale_t c)
{
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    for (; digits < 17; digits++) {
        char buffer[40];
        snprintf(buffer, sizeof buffer, "%.*g", digits, value);
        if (strtod_l(buffer, NULL, c) == value)
            break;
    }
    return digits;
}

void tn_text_double(tn_text *text, double value)
{
    if (isnan(value)) {
        tn_text_put(text, "nan", 3);
        return;
    }
    locale_t c = tn_c_locale(), before = uselocale(c);
    tn_text_add(text, "%.*g", shortest_digits(value, c), value);
    uselocale(before);
}
