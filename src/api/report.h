/* What `tn_explain` found out, before it is text. Everything is on the report's arena, or strings of the session. Numbers that nobody knows are NAN. */
#ifndef TN_API_REPORT_H
#define TN_API_REPORT_H

#include "api/internal.h"

typedef struct report_names { TN_VEC(const char *) list; } report_names;

/* A kernel, or (launches NAN) a step that starts none. */
typedef struct report_kernel {
    const char *name;
    report_names nodes, ops; /* each once, in the graph's order */
    int position;            /* in the run's order: the memory plan's time */
    double programs;         /* of its grid */
    double launches;         /* in one run */
    double read, written;    /* bytes of one launch, each buffer once */
    double between;          /* of them, bytes of intermediate tensors */
    double flops;            /* of one launch */
    double ms, limit_ms;     /* of one launch: the fastest seen; what the machine can't go below */
    bool of_memory;          /* the limit is the memory's, not the arithmetic's */
} report_kernel;

typedef struct report_end {
    int kernel; /* of report->kernels, -1: a step of another kind */
    const char *node, *op;
} report_end;

typedef struct report_edge {
    report_end from, to;
    double bytes;
    const char *reason;
} report_edge;

typedef struct report_buffer {
    const char *name;
    int kernel;         /* that writes it first; -1: none */
    int first, last;    /* positions */
    double bytes, offset;
    int same_as;        /* shares the memory of this one of report->buffers; -1 */
} report_buffer;

/* A node of the model, and the kernels that hold it. */
typedef struct report_node {
    const char *name;
    report_names ops;
    TN_VEC(int) kernels;
} report_node;

typedef struct report_pair { int from, to; } report_pair;

struct tn_report {
    tn_session *session;
    tn_arena arena;
    const char *model, *machine, *no_times; /* no_times: why there are none; NULL: there are */
    int threads, device;
    int64_t runs;
    double run_ms;      /* the fastest run */
    bool has_rates;
    tn_rates rates;
    TN_VEC(struct report_size { const char *name; int64_t value; }) sizes;
    TN_VEC(struct report_variant { const char *sizes; bool chosen; }) variants; /* chosen: the report is of it */
    TN_VEC(report_kernel) kernels; /* that every run may start, in order */
    TN_VEC(report_kernel) load;    /* that run once, at load */
    TN_VEC(report_kernel) others;  /* copies, branches, loops: their `name` says which */
    TN_VEC(report_edge) unfused;
    TN_VEC(report_pair) kernel_edges;
    TN_VEC(report_node) nodes;
    TN_VEC(report_pair) node_edges;
    tn_declined_list declined;
    TN_VEC(report_buffer) buffers;
    int positions;
    bool complete;      /* no sizes are left to be known during a run */
    double peak, bound, scratch, inputs, outputs, mapped, packed;
    double read, written, between, flops, ms, limit_ms; /* of all kernels of a run, as far as known */
};

/* What a report is made of. */
typedef struct report_source {
    const tn_graph *before; /* as it was imported */
    const tn_exec *exec;
    const tn_values *values;
    const tn_layout *layout;
    const bool *valid;      /* by group: its buffers are laid out */
    const tn_context *context; /* that was profiled; NULL: none */
    tn_precision precision;
} report_source;

/* report.c: fills in all but what is known before: model, machine, rates, times of the whole. */
void report_collect(tn_report *report, const report_source *source);
/* report_graph.c: nodes, edges and their reasons. kernel_of: by step of the executable, its number in report->kernels, -1: none. */
void report_graphs(tn_report *report, const report_source *source, const int *kernel_of);
/* The name of the model's node that an operation is of, else one for the operation itself. */
const char *report_node_name(tn_arena *arena, const tn_op *op);
void report_add_name(tn_arena *arena, report_names *names, tn_map *seen, const char *name);

/* Texts in the three forms. False: no memory. */
void report_as_text(const tn_report *report, tn_text *out);
bool report_as_json(const tn_report *report, tn_text *out);
bool report_as_page(const tn_report *report, tn_text *out);
/* The name with what is no UTF-8, or would move a terminal's cursor, as U+FFFD. */
const char *report_clean(tn_arena *arena, const char *name);

#endif
