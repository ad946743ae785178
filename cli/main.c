/* tenon: compiles and runs networks. The command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- commands and options ------------------------------------------------------------------------------------------------ */

enum { RUN = 1, BENCH = 2, COMPILE = 4, OPT = 8, CHECK = 16, INFO = 32, KERNEL = 64, EXPLAIN = 128, RUNS = RUN | BENCH | CHECK | EXPLAIN, MODELS = RUNS | COMPILE, ALL = 255 };

typedef struct command {
    const char *name, *argument;
    int bit;
    bool optional;
    int (*run)(cli *c);
    const char *help;
} command;

static const command commands[] = {
    {"run", "MODEL", RUN, false, cli_run, "runs a network once and prints its outputs"},
    {"bench", "MODEL", BENCH, false, cli_bench, "times a network: median and minimum, compile time, memory"},
    {"compile", "MODEL", COMPILE, false, cli_compile, "prints what the compiler makes of a network at one stage"},
    {"explain", "MODEL", EXPLAIN, false, cli_explain, "says what became of a network: its kernels, what did not fuse and why, bytes, times and their limits, memory"},
    {"opt", "FILE", OPT, false, cli_opt, "reads IR text (graph, tile or loop), runs passes, prints the result"},
    {"check", "MODEL", CHECK, false, cli_check, "compares compiled code with the reference interpreter, node by node"},
    {"kernel", "FILE:NAME", KERNEL, false, cli_kernel, "runs a kernel in Triton's language, or prints what the compiler makes of it"},
    {"info", "MODEL", INFO, true, cli_info, "shows a network's inputs, outputs, operators and memory; without one, this machine"},
};

typedef enum kind { FLAG, TEXT, NUMBER, REAL, PAIR, DIM, SESSION, VARIANT, MAYBE } kind; /* MAYBE: its value may be left out */
typedef struct option {
    const char *name, *argument;
    int commands;
    kind kind;
    size_t field; /* offset in cli */
    const char *help;
} option;
#define AT(field) offsetof(cli, field)
#define TUNE_SECONDS "10" /* of --tune alone */

static const option options[] = {
    {"--input", "NAME=FILE", RUNS, PAIR, AT(inputs), "an input from a .npy file (or .pb, a serialised TensorProto); NAME may be its number"},
    {"--inputs", "DIR", RUNS, TEXT, AT(inputs_dir), "inputs from DIR/input_0.pb, input_1.pb, … (or .npy)"},
    {"--seed", "N", RUNS, NUMBER, AT(seed), "inputs not given are random; the same N gives the same values (default 0)"},
    {"--dim", "NAME=N", MODELS | INFO, DIM, AT(dim_names), "fixes a symbolic dimension; the network is compiled for this size"},
    {"--size", "NAME=N", MODELS | INFO, PAIR, AT(sizes), "size of a symbolic dimension for random inputs only (default 1; of info: no default), and for --tune"},
    {"--arg", "NAME=VALUE", KERNEL, PAIR, AT(arguments), "a kernel's argument: FILE.npy, TYPE:FILE.npy, TYPE[SIZES] (zeros) or a number"},
    {"--const", "NAME=VALUE", KERNEL, PAIR, AT(constants), "a constant in Python's words: 64, 'relu', tl.float16"},
    {"--grid", "X[,Y[,Z]]", KERNEL, TEXT, AT(grid), "programs to run (default 1)"},
    {"--config", "N", KERNEL, NUMBER, AT(config), "which of autotune's configurations, from 0"},
    {"--target", "cpu|cuda", MODELS | KERNEL | INFO, TEXT, AT(target), "where it runs (default cpu, or as --machine says); cuda: an NVIDIA GPU; cuda:N: that one"},
    {"--num-warps", "N", KERNEL, NUMBER, AT(warps), "warps of 32 threads a program has on a GPU (default: the kernel's own, else 4)"},
    {"--check", NULL, KERNEL, FLAG, AT(check), "checks every access first, then compares the results"},
    {"--bench", NULL, KERNEL, FLAG, AT(bench), "times launches: median and minimum, bytes a second"},
    {"--threads", "N", MODELS | OPT | KERNEL | INFO, NUMBER, AT(threads), "threads that run and compile (default: all this process may use)"},
    {"--machine", "NAME", MODELS | OPT | KERNEL | INFO, TEXT, AT(machine), "what code is made for; `tenon info` lists them (default: the best that the target can run)"},
    {"--save", "DIR", RUN | KERNEL, TEXT, AT(save), "writes output_0.npy, … in the network's order; of a kernel NAME.npy for each buffer"},
    {"--format", "npy|pb", RUN, TEXT, AT(format), "of saved outputs; pb: TensorProtos, for types that NumPy lacks"},
    {"--reference", NULL, RUN, FLAG, AT(reference), "runs the reference interpreter instead of compiled code"},
    {"--seconds", "S", BENCH | KERNEL | EXPLAIN, REAL, AT(seconds), "how long to measure (default 2)"},
    {"--no-run", NULL, EXPLAIN, FLAG, AT(no_run), "without times: the network is not run"},
    {"--profile", NULL, BENCH, FLAG, AT(profile), "a row for each kernel"},
    {"--json", NULL, BENCH | KERNEL | INFO | EXPLAIN, FLAG, AT(json), "one JSON object instead of text"},
    {"--emit", "STAGE", COMPILE | KERNEL, TEXT, AT(emit), "graph, schedule, tile, loop, llvm, asm or obj; of a kernel no graph or schedule; ptx: asm for a GPU; cubin: obj for one, by ptxas"},
    {"-o", "FILE", COMPILE | OPT | KERNEL | EXPLAIN, TEXT, AT(output), "writes to FILE instead of standard output; explain: beside it, FILE.html a page, FILE.json"},
    {"--output", "FILE", COMPILE | OPT | KERNEL | EXPLAIN, TEXT, AT(output), "the same"},
    {"--lower", "STAGE", OPT, TEXT, AT(lower), "goes on to tile, loop, llvm or asm"},
    {"--passes", "LIST", MODELS | OPT | INFO, TEXT, AT(passes), "passes to run, comma separated; `-fuse`: one kernel an operation"},
    {"--print-after", "PASS", MODELS | OPT | KERNEL, TEXT, AT(print_after), "prints the IR after this pass, or after `all`, to standard error"},
    {"--verify", NULL, MODELS | KERNEL, FLAG, AT(verify), "checks the IR after every pass"},
    {"--tune", "SECONDS|off]", MODELS | INFO, MAYBE, 0, "measures schedules of kernels on this machine (default 10 s; info: none) and keeps the best; off: uses none measured before"},
    {"--schedule", "FILE", MODELS | INFO, SESSION, 0, "takes these schedules: a file as `tenon compile --emit=schedule` prints it"},
    {"--variant", "NAME=N[,NAME=N]", RUN | BENCH | EXPLAIN, VARIANT, 0, "makes code for these sizes alone too, which a run takes where they are its inputs'; may be given more than once"},
    {"--memory-limit", "BYTES[K|M|G]", RUN | BENCH | EXPLAIN | COMPILE | INFO, SESSION, 0, "what a run may take in all: results are computed again to keep it, else it is refused before it starts"},
    {"--option", "NAME=VALUE", ALL, PAIR, SIZE_MAX, "sets an option of the compiler"},
    {"--help", NULL, ALL, FLAG, AT(help), "this text"},
};

static void print_options(FILE *to, int bit)
{
    for (size_t i = 0; i < TN_COUNT(options); i++) {
        const option *o = &options[i];
        if (!(o->commands & bit))
            continue;
        const char *sign = !o->argument ? "" : o->kind == MAYBE ? "[=" : o->name[1] == '-' ? "=" : " ";
        int n = fprintf(to, "  %s%s%s", o->name, sign, o->argument ? o->argument : "");
        fprintf(to, "%*s%s\n", n < 26 ? 26 - n : 1, "", o->help);
    }
}

static void print_help(FILE *to)
{
    fprintf(to, "Tenon %s compiles neural networks (ONNX) and kernels in Triton's language to native code and runs them.\n\nUsage: tenon COMMAND [FILE] [OPTIONS]\n\nCommands:\n", tn_version());
    for (size_t i = 0; i < TN_COUNT(commands); i++)
        fprintf(to, "  %-8s %-9s %s\n", commands[i].name, commands[i].argument, commands[i].help);
    fprintf(to, "\nOptions:\n");
    print_options(to, ALL);
    fprintf(to, "\nExamples:\n"
                "  tenon info model.onnx                      what goes in and out\n"
                "  tenon run model.onnx --input x=x.npy       one run on a real input\n"
                "  tenon run model.onnx --size batch=4        one run on random inputs\n"
                "  tenon bench model.onnx --profile           where the time goes\n"
                "  tenon explain model.onnx -o report.html    what fused and why not, how far from the machine's limit\n"
                "  tenon check model.onnx                     is the compiled code right?\n"
                "  tenon compile model.onnx --emit=tile       the kernels, as text\n"
                "  tenon compile model.onnx --target=cuda --emit=ptx\n"
                "  tenon kernel k.py:scale --arg x=x.npy --arg n=100 --const BLOCK=64 --grid 2\n"
                "\nA MODEL is an ONNX file, or a graph in Tenon's text form (FILE.tn).\n`tenon COMMAND --help` shows what one command takes. Exit codes: 0 right; 1 the input is at fault, a message says\n"
                "where; 2 wrong usage; 3 results differ (check).\n");
}

static void print_command_help(const command *cmd)
{
    printf("Usage: tenon %s %s%s%s [OPTIONS]\n\nThis command %s.\n\nOptions:\n", cmd->name, cmd->optional ? "[" : "", cmd->argument, cmd->optional ? "]" : "",
           cmd->help);
    print_options(stdout, cmd->bit);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "tenon: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "; see `tenon --help`\n");
    va_end(args);
    return EXIT_USAGE;
}

static bool read_number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0;
}

static int store_dim(cli *c, const option *o, const char *value, const cli_pair *pair)
{
    int64_t n;
    if (!read_number(pair->value, &n) || n < 0)
        return usage("%s=%s: expected a size after '='", o->name, value);
    for (size_t i = 0; i < c->dim_names.len; i++)
        if (!strcmp(c->dim_names.at[i], pair->name))
            return usage("%s=%s: '%s' has a size already, %lld", o->name, value, pair->name, (long long)c->dim_sizes.at[i]);
    TN_PUSH(&c->session->arena, &c->dim_names, pair->name);
    TN_PUSH(&c->session->arena, &c->dim_sizes, n);
    return 0;
}

static int store_pair(cli *c, const option *o, const char *value)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return usage("%s=%s: expected %s", o->name, value, o->argument);
    cli_pair pair = {tn_strndup(&c->session->arena, value, (size_t)(equals - value)), equals + 1};
    if (o->kind == DIM)
        return store_dim(c, o, value, &pair);
    if (o->field == SIZE_MAX) {
        tn_status status = tn_session_option(c->session, pair.name, pair.value);
        return status == TN_OK ? 0 : cli_fail(c, status);
    }
    int64_t size;
    if (o->field == AT(sizes) && (!read_number(pair.value, &size) || size < 0))
        return usage("%s=%s: expected a size after '='", o->name, value);
    cli_pairs *pairs = (cli_pairs *)((char *)c + o->field);
    TN_PUSH(&c->session->arena, pairs, pair);
    return 0;
}

/* One more of a list. */
static int store_variant(cli *c, const char *value)
{
    const char *before = tn_map_get_str(&c->session->options, "variants");
    return tn_session_option(c->session, "variants", before ? tn_format(&c->session->arena, "%s;%s", before, value) : value) == TN_OK ? 0 : EXIT_USAGE;
}

static int store(cli *c, const option *o, const char *value)
{
    void *field = (char *)c + o->field;
    char *end;
    switch (o->kind) {
    case FLAG: *(bool *)field = true; return 0;
    case TEXT: *(const char **)field = value; return 0;
    case NUMBER:
        if (!read_number(value, field) || *(int64_t *)field < 0)
            return usage("%s=%s: expected a number", o->name, value);
        return 0;
    case REAL:
        *(double *)field = strtod(value, &end);
        if (end == value || *end || !(*(double *)field >= 0))
            return usage("%s=%s: expected a number", o->name, value);
        return 0;
    case PAIR:
    case DIM: return store_pair(c, o, value);
    case VARIANT: return store_variant(c, value);
    case SESSION:
    case MAYBE: return tn_session_option(c->session, o->name + 2, value) == TN_OK ? 0 : EXIT_USAGE;
    }
    return 0;
}

static const option *find_option(const char *text, size_t len)
{
    for (size_t i = 0; i < TN_COUNT(options); i++)
        if (strlen(options[i].name) == len && !strncmp(options[i].name, text, len))
            return &options[i];
    return NULL;
}

/* One option at argv[*i]: --name=value or --name value. */
static int read_option(cli *c, const command *cmd, int argc, char **argv, int *i)
{
    const char *text = argv[*i];
    size_t len = strcspn(text, "=");
    const option *o = find_option(text, len);
    if (!o || !(o->commands & cmd->bit))
        return usage("'%.*s' is no option of `tenon %s`", (int)len, text, cmd->name);
    if (o->kind == FLAG)
        return text[len] ? usage("%s takes no value", o->name) : store(c, o, NULL);
    if (text[len])
        return store(c, o, text + len + 1);
    if (o->kind == MAYBE)
        return store(c, o, TUNE_SECONDS);
    if (*i + 1 >= argc)
        return usage("%s needs %s", o->name, o->argument);
    return store(c, o, argv[++*i]);
}

static int read_arguments(cli *c, const command *cmd, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        int wrong = 0;
        if (argv[i][0] == '-' && argv[i][1])
            wrong = read_option(c, cmd, argc, argv, &i);
        else if (c->file)
            wrong = usage("'%s' is one argument too many", argv[i]);
        else
            c->file = argv[i];
        if (wrong)
            return wrong;
    }
    if (!c->file && !cmd->optional && !c->help)
        return usage("`tenon %s` needs %s", cmd->name, cmd->argument);
    return 0;
}

/* What could not be printed is not done, whatever the command made of it. */
static int printed(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "tenon: cannot write to standard output\n");
    return code == EXIT_RIGHT ? EXIT_INPUT : code;
}

static int run_command(const command *cmd, int argc, char **argv)
{
    cli c = {.command = cmd->name, .seconds = 2};
    c.session = tn_session_new();
    if (!c.session) {
        fprintf(stderr, "tenon: out of memory\n");
        return EXIT_INPUT;
    }
    jmp_buf oom;
    int code = EXIT_INPUT;
    c.session->arena.on_oom = &oom;
    if (setjmp(oom)) {
        fprintf(stderr, "tenon: out of memory\n");
        code = EXIT_INPUT;
    } else {
        code = read_arguments(&c, cmd, argc, argv);
        if (!code && c.help)
            print_command_help(cmd);
        else if (!code)
            code = cmd->run(&c);
    }
    tn_session_free(c.session);
    return printed(code);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return printed(EXIT_RIGHT);
    }
    if (!strcmp(name, "--version")) {
        printf("tenon %s\n", tn_version());
        return printed(EXIT_RIGHT);
    }
    for (size_t i = 0; i < TN_COUNT(commands); i++)
        if (!strcmp(commands[i].name, name))
            return run_command(&commands[i], argc, argv);
    if (argc > 1)
        return usage("there is no command '%s'", name);
    print_help(stderr);
    return EXIT_USAGE;
}
