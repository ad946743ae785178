/* What only the files of tune share. */
#ifndef TN_TUNE_INTERNAL_H
#define TN_TUNE_INTERNAL_H

#include "tune/tune.h"

/* schedule.c: schedules as text. */

/* "dot-0123456789abcdef": what a kernel is called in files of pins, whatever network it stands in. */
const char *tune_name(tn_arena *arena, const tn_choice *choice);
/* "M=64 N=128" */
void tune_text_values(tn_text *text, const tn_choice *choice, const tn_candidate *candidate);

typedef struct tune_entry {
    const char *field;
    int64_t value;
} tune_entry;

typedef struct tune_pin {
    const char *name; /* of a kernel */
    tn_loc loc;
    TN_VEC(tune_entry) entries;
    bool used;
} tune_pin;

typedef TN_VEC(tune_pin) tune_pins;
tn_status tune_read_pins(tn_session *session, const char *path, tune_pins *out);
/* The first candidate with all entries. False: there is none; *what says which entry no candidate before it has. */
bool tune_find(tn_arena *arena, const tn_choice *choice, const tune_entry *entries, size_t n, size_t *index, const char **what);
/* Reads "M=64 N=128"; false: it is no such text. */
bool tune_parse_values(tn_arena *arena, const char *text, size_t size, tune_pin *out, const char **what);

#endif
