/* Which of a kernel's candidates (fuse.h) is taken: what a file pins, else what was found to be fastest on this machine before and stands in the database, else what
 * is measured now if the caller asked for it, else what the selector takes. */
#ifndef TN_TUNE_H
#define TN_TUNE_H

#include "run/run.h"

/* ---- the database (database.c) ------------------------------------------------------------------------------------------
 * One SQLite file in the cache's folder. Any number of processes may use it at once: a write is a transaction of its own, and waits for others, for 5 seconds at most; a read for one. What does
 * not work (a damaged file, one of another user, no right to write, a lock that stays) is one warning; then the database counts as empty, and keeps nothing. */
#define TN_RECORDS_FILE "tuning.db"

/* What was measured of one kernel. */
typedef struct tn_record {
    const char *schedule; /* fields and values of the best candidate: "M=64 N=128" */
    const char *times;    /* a line a candidate: nanoseconds, or why it has none, and its schedule */
    const char *date;     /* UTC, "2026-01-31T12:00:00Z" */
} tn_record;

typedef struct tn_records tn_records;
/* NULL: there is no file, and none is to be made (write: false); or, after a warning, it can't be used. */
tn_records *tn_records_open(tn_session *session, const char *folder, bool write);
void tn_records_close(tn_records *records); /* NULL is allowed */
/* The record of a kernel (tn_choice.key) on a machine, made with this vocabulary of schedules (TN_SCHEDULE_VOCABULARY). Strings are on the arena. */
bool tn_records_get(tn_records *records, tn_arena *arena, const char *machine, int vocabulary, const char *kernel, tn_record *out);
/* Replaces the record that there is. False, after a warning: it was not kept. */
bool tn_records_put(tn_records *records, const char *machine, int vocabulary, const char *kernel, const tn_record *record);

/* ---- measuring (measure.c) ---------------------------------------------------------------------------------------------- */

/* One candidate of a kernel: the kernel steps of a program that a choice made. */
typedef struct tn_trial {
    const tn_program *program;
    int number; /* tn_choice.number there */
} tn_trial;

typedef struct tn_measured {
    double ns;         /* median of the turns; 0: not measured, */
    const char *fault; /* and why, on the session's arena */
    bool differs;      /* its results are not those of the first candidate: a fault of Tenon's */
} tn_measured;

/* At which size kernels with symbolic dimensions are measured: of a dimension by name. False: not said. */
typedef bool tn_tune_size(void *context, const char *name, int64_t *size);

typedef struct tn_bench {
    tn_exec_options options; /* machine, GPU, threads that compile */
    tn_pool *pool;           /* of a CPU's runs */
    tn_tune_size *size;      /* else a symbol's upper bound, if that is small */
    void *size_context;
} tn_bench;

/* Compiles the candidates, runs each on the same random operands, compares what they give with what the first gives, and times them in turns until each has enough
 * samples or `seconds` are over. On a GPU the operands lie there, the L2 cache holds nothing of them, and events tell the time; on a CPU they are as warm as the caches
 * are large. *at: the symbols and sizes that it was measured with ("batch=64"), or "". TN_OK with out[0].ns == 0: the kernel can't be measured, out[0].fault says why. */
tn_status tn_tune_measure(tn_session *session, const tn_bench *bench, const tn_trial *trials, size_t n, double seconds, tn_measured *out, const char **at);

/* ---- tuning (tune.c, schedule.c) ---------------------------------------------------------------------------------------- */

typedef struct tn_tune_options {
    double seconds;       /* to be spent on measuring; 0: none */
    bool records;         /* the database is read, and what is measured kept there */
    const char *folder;   /* of the cache; NULL: there is no database */
    const char *schedule; /* file that pins candidates; NULL: none */
    bool listed;          /* tn_text_schedule will be asked for */
    tn_bench bench;       /* options: its machine must not be NULL */
    int threads;          /* of runs on a CPU */
    /* Instead of tn_tune_measure, for tests; NULL: that. */
    tn_status (*measure)(void *context, const tn_choice *choice, size_t n, tn_measured *out);
    void *measure_context;
} tn_tune_options;

typedef struct tn_tuner tn_tuner;
/* Reads the pins and opens the database. `options` is copied. TN_INVALID: an entry of the file is wrong; TN_IO. */
tn_status tn_tuner_new(tn_session *session, const tn_tune_options *options, tn_tuner **out);
void tn_tuner_free(tn_tuner *tuner); /* NULL is allowed */
/* Measures what has no record yet and is not pinned: of each distinct kernel of the graph, those first that take longest by estimate, the selector's choice and the best
 * others by estimate; the records are kept at once. A note says what each gained; what is at fault is a warning. `graph` stays as it is. Nothing is done without seconds,
 * or, with a warning, where the machine is not here. */
tn_status tn_tune(tn_tuner *tuner, const tn_graph *graph, const tn_fuse_options *options);
/* For tn_fuse: what is pinned, else recorded, else the selector's. Nobody where nothing can be either: kernels then need not say what they are. */
tn_chooser tn_tuner_chooser(tn_tuner *tuner);
/* After tn_fuse. TN_INVALID: a pin that no candidate has. A warning for each that no kernel asked for. */
tn_status tn_tuner_finish(tn_tuner *tuner);
/* What was chosen since the tuner was made, a line a distinct kernel, as a file of pins. */
void tn_text_schedule(tn_text *text, const tn_tuner *tuner);

/* Which of n candidates is taken: the fastest, but the first unless another is more than a hundredth faster; of equals the earlier. Those without a time are not. */
size_t tn_tune_best(const tn_measured *measured, size_t n);

#endif
