/* The table of machines, and what this CPU is. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "target/internal.h"

static const tn_machine machines[] = {
#define MACHINE(name, triple, cpu, features, needs, bits, registers, fma, mask_min_bits, gather, scale, dot_rows, dot_vectors, l1, l2) \
    {name, triple, cpu, features, needs, {bits, registers, fma, mask_min_bits, gather, false, false, 0, scale}, dot_rows, dot_vectors, false, false, 0, NULL, l1, l2},
#include "target/cpu/machines.def"
#undef MACHINE
/* A thread loads 16 bytes at once. What is the caches' of a core is here shared memory of a CTA, and registers. */
#define GPU(name, features, f8, groups, processors, shared, ...) {name, "nvptx64-nvidia-cuda", name, features, "", {128, 255, true, 0, false, true, f8, 16, false}, 0, 0, true, groups, processors, &(const tn_machine_limits){__VA_ARGS__}, shared, 256 << 10},
#include "target/gpu/machines.def"
#undef GPU
};

/* ---- this CPU's features ------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
static const char host_architecture[] = "x86_64";

/* What the operating system must save on a context switch for a feature to work: bits of XCR0. */
enum { NO_STATE = 0, AVX_STATE = 0x06, AVX512_STATE = 0xe6 };

typedef struct cpu_feature {
    const char *name;
    uint32_t leaf, subleaf;
    char reg; /* 'b', 'c', 'd': the register of cpuid's answer; 'a' too */
    int bit;
    uint32_t state;
} cpu_feature;

/* Intel SDM volume 2, CPUID; lzcnt from AMD's leaf. */
static const cpu_feature cpu_features[] = {
    {"sse2", 1, 0, 'd', 26, NO_STATE},
    {"sse3", 1, 0, 'c', 0, NO_STATE},
    {"ssse3", 1, 0, 'c', 9, NO_STATE},
    {"fma", 1, 0, 'c', 12, AVX_STATE},
    {"cx16", 1, 0, 'c', 13, NO_STATE},
    {"sse4.1", 1, 0, 'c', 19, NO_STATE},
    {"sse4.2", 1, 0, 'c', 20, NO_STATE},
    {"movbe", 1, 0, 'c', 22, NO_STATE},
    {"popcnt", 1, 0, 'c', 23, NO_STATE},
    {"avx", 1, 0, 'c', 28, AVX_STATE},
    {"f16c", 1, 0, 'c', 29, AVX_STATE},
    {"bmi", 7, 0, 'b', 3, NO_STATE},
    {"avx2", 7, 0, 'b', 5, AVX_STATE},
    {"bmi2", 7, 0, 'b', 8, NO_STATE},
    {"avx512f", 7, 0, 'b', 16, AVX512_STATE},
    {"avx512dq", 7, 0, 'b', 17, AVX512_STATE},
    {"avx512cd", 7, 0, 'b', 28, AVX512_STATE},
    {"avx512bw", 7, 0, 'b', 30, AVX512_STATE},
    {"avx512vl", 7, 0, 'b', 31, AVX512_STATE},
    {"avx512vnni", 7, 0, 'c', 11, AVX512_STATE},
    {"avx512bf16", 7, 1, 'a', 5, AVX512_STATE},
    {"lzcnt", 0x80000001u, 0, 'c', 5, NO_STATE},
};

/* The states that the operating system saves; 0 if it doesn't say. */
static uint32_t saved_states(void)
{
    uint32_t a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) /* OSXSAVE */
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool ask_cpu(const cpu_feature *f)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(f->leaf, f->subleaf, &a, &b, &c, &d))
        return false;
    uint32_t word = f->reg == 'a' ? a : f->reg == 'b' ? b : f->reg == 'c' ? c : d;
    return (word >> f->bit & 1) && (saved_states() & f->state) == f->state;
}

/* A question to the CPU traps inside a virtual machine, and costs as much there as lowering a kernel: each is asked once a process. */
static bool answers[TN_COUNT(cpu_features)];

static void ask_all(void)
{
    for (size_t i = 0; i < TN_COUNT(cpu_features); i++)
        answers[i] = ask_cpu(&cpu_features[i]);
}

static bool cpu_has(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_all);
    for (size_t i = 0; i < TN_COUNT(cpu_features); i++)
        if (!strcmp(cpu_features[i].name, name))
            return answers[i];
    return false;
}
#elif defined(__aarch64__)
static const char host_architecture[] = "aarch64";

static bool cpu_has(const char *name) { return !strcmp(name, "neon"); } /* part of the architecture */
#else
static const char host_architecture[] = "this architecture";

static bool cpu_has(const char *name)
{
    (void)name;
    return false;
}
#endif

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

/* Copies the next word of *list; false at the end. */
static bool next_word(const char **list, char word[32])
{
    *list += strspn(*list, " ");
    size_t len = strcspn(*list, " ");
    if (len == 0 || len >= 32)
        return false;
    memcpy(word, *list, len);
    word[len] = 0;
    *list += len;
    return true;
}

bool tn_machine_has(const tn_machine *machine, const char *feature)
{
    char word[32];
    for (const char *list = machine->needs; next_word(&list, word);)
        if (!strcmp(word, feature))
            return true;
    return false;
}

static bool same_architecture(const tn_machine *machine)
{
    size_t len = strlen(host_architecture);
    return !strncmp(machine->triple, host_architecture, len) && machine->triple[len] == '-';
}

static bool can_run(const tn_machine *machine)
{
    char word[32];
    if (!same_architecture(machine))
        return false;
    for (const char *list = machine->needs; next_word(&list, word);)
        if (!cpu_has(word))
            return false;
    return true;
}

const char *tn_machine_refusal(tn_arena *arena, const tn_machine *machine)
{
    char word[32];
    if (can_run(machine))
        return NULL;
    tn_text text = {.arena = arena};
    tn_text_add(&text, "machine '%s' can't run here: ", machine->name);
    if (machine->gpu) {
        tn_text_add(&text, "it is a GPU, this is a CPU");
        return text.at;
    }
    if (!same_architecture(machine)) {
        tn_text_add(&text, "it is %.*s, this CPU is %s", (int)strcspn(machine->triple, "-"), machine->triple, host_architecture);
        return text.at;
    }
    const char *separator = "this CPU or its operating system lacks ";
    for (const char *list = machine->needs; next_word(&list, word);)
        if (!cpu_has(word)) {
            tn_text_add(&text, "%s%s", separator, word);
            separator = ", ";
        }
    return text.at;
}

const tn_machine *tn_machine_list(size_t *n)
{
    *n = TN_COUNT(machines);
    return machines;
}

const tn_machine *tn_machine_find(const char *name)
{
    const tn_machine *found = NULL;
    bool host = !name || !strcmp(name, "host");
    for (size_t i = 0; i < TN_COUNT(machines); i++)
        if (host ? can_run(&machines[i]) : !strcmp(machines[i].name, name))
            found = &machines[i];
    return found;
}

/* ---- caches -------------------------------------------------------------------------------------------------------------------- */

static int64_t cache_size(int name)
{
    long size = sysconf(name);
    return size > 0 ? size : 0;
}

/* Linux tells what this CPU's last cache has and how many CPUs share it; the C library counts all of a machine's on some of AMD's. */
static int64_t shared_cache(void)
{
    static const char folder[] = "/sys/devices/system/cpu/cpu0/cache/index3/";
    char path[80], text[64];
    int64_t size = 0, cpus = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", folder, i ? "shared_cpu_map" : "size");
        FILE *file = fopen(path, "r");
        bool read = file && fgets(text, sizeof text, file);
        if (file)
            fclose(file);
        if (!read)
            return 0;
        if (i == 0)
            size = strtoll(text, NULL, 10) * (strchr(text, 'M') ? 1 << 20 : strchr(text, 'K') ? 1 << 10 : 1);
        for (const char *digit = text; i == 1 && *digit; digit++)
            cpus += __builtin_popcount((unsigned)strtol((char[]){*digit, 0}, NULL, 16));
    }
    return size > 0 && cpus > 0 ? size / cpus : 0;
}

void tn_machine_caches(int64_t *l1, int64_t *l2, int64_t *l3)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *l1 = cache_size(_SC_LEVEL1_DCACHE_SIZE);
    *l2 = cache_size(_SC_LEVEL2_CACHE_SIZE);
    *l3 = shared_cache(); /* a core's part */
    if (!*l3)
        *l3 = cache_size(_SC_LEVEL3_CACHE_SIZE) / (cpus > 0 ? cpus : 1);
}

/* Of the GPUs of the rows, the fewest (an A100 has 108 processors, an H200 132): 128 programs of a product are enough for either. */
enum { GPU_PROCESSORS = 108 };

tn_tile_target tn_machine_tile_target(const tn_machine *machine, int threads)
{
    int64_t l1 = 0, l2 = 0, l3;
    if (can_run(machine))
        tn_machine_caches(&l1, &l2, &l3);
    return (tn_tile_target){
        .vector_bits = machine->vector.bits,
        .dot_rows = machine->dot_rows,
        .dot_vectors = machine->dot_vectors,
        .l1_bytes = l1 ? l1 : machine->l1_bytes,
        .l2_bytes = l2 ? l2 : machine->l2_bytes,
        .threads = threads,
        .gpu = machine->gpu,
        .processors = machine->gpu ? GPU_PROCESSORS : 0,
        .wave = machine->processors,
        .groups = machine->groups,
        .cluster = machine->groups ? TN_MOST_CLUSTER : 1,
        .shared = machine->gpu ? machine->l1_bytes : 0,
        .registers = machine->gpu ? (int)(machine->l2_bytes / 4) : 0,
    };
}
