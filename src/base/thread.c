#include "base/internal.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SPACE = 4352, LINE_SPACE = 4096 };

/* ---- how many CPUs ------------------------------------------------------------------------------------------------- */

/* The kernel refuses a set that is smaller than its own, so the set grows until it is accepted. */
static int affinity_count(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        int count = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static bool read_line(const char *path, char *line)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool read = fgets(line, LINE_SPACE, file) != NULL;
    fclose(file);
    return read;
}

/* CPUs that `group` (a path below the mount point) may use; INFINITY without a limit. Version 2 has "quota period" or
 * "max period" in one file, version 1 two files, -1 for none. */
static double group_quota(const char *mount, const char *group, bool version2)
{
    char path[PATH_SPACE], line[LINE_SPACE];
    double quota, period = 0;
    snprintf(path, sizeof path, "%s%s/%s", mount, group, version2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_line(path, line))
        return INFINITY;
    char *end;
    quota = strtod(line, &end);
    if (end == line || quota <= 0)
        return INFINITY;
    if (!version2) {
        snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", mount, group);
        if (!read_line(path, line))
            return INFINITY;
        end = line;
    }
    period = strtod(end, NULL);
    return period > 0 ? quota / period : INFINITY;
}

/* The least quota of the group and all that contain it. In a container the group's path may be the host's, so the mount
 * point itself is always asked. */
static double chain_quota(const char *mount, char *group, bool version2)
{
    double least = group_quota(mount, "", version2);
    group[strcspn(group, "\n")] = 0;
    for (char *slash; *group && (slash = strrchr(group, '/')); *slash = 0)
        least = fmin(least, group_quota(mount, group, version2));
    return least;
}

/* Whether "cpu" stands in a comma-separated list. */
static bool lists_cpu(const char *controllers)
{
    for (size_t len; (len = strcspn(controllers, ",")) > 0; controllers += len + (controllers[len] == ','))
        if (len == 3 && !strncmp(controllers, "cpu", 3))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2) and "4:cpu,cpuacct:/path" (version 1). */
static double cgroup_quota(void)
{
    double least = INFINITY;
    char line[LINE_SPACE];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        if (!*controllers)
            least = fmin(least, chain_quota("/sys/fs/cgroup", group, true));
        else if (lists_cpu(controllers))
            least = fmin(least, chain_quota("/sys/fs/cgroup/cpu", group, false));
    }
    if (file)
        fclose(file);
    return least;
}

int tn_cpu_count(void)
{
    double quota = ceil(cgroup_quota());
    int count = affinity_count();
    if (quota < count)
        count = (int)quota;
    return count > 0 ? count : 1;
}

/* ---- time and memory ----------------------------------------------------------------------------------------------- */

double tn_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int tn_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From /proc first: getrusage keeps the peak of the program that was replaced by exec. */
size_t tn_peak_rss(void)
{
    char line[LINE_SPACE];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && kilobytes == 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmHWM:", 6))
            kilobytes = strtoull(line + 6, NULL, 10);
    if (file)
        fclose(file);
    struct rusage usage;
    if (kilobytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        kilobytes = (unsigned long long)usage.ru_maxrss;
    return (size_t)kilobytes * 1024;
}

/* ---- parallel loop ------------------------------------------------------------------------------------------------- */

typedef struct parallel_loop {
    atomic_size_t next;
    size_t n;
    void (*fn)(void *context, size_t i);
    void *context;
} parallel_loop;

static void *work(void *argument)
{
    parallel_loop *loop = argument;
    for (size_t i; (i = atomic_fetch_add(&loop->next, 1)) < loop->n;)
        loop->fn(loop->context, i);
    return NULL;
}

void tn_parallel_for(int threads, size_t n, void (*fn)(void *context, size_t i), void *context)
{
    enum { MOST_THREADS = 1024 };
    parallel_loop loop = {0, n, fn, context};
    pthread_t helpers[MOST_THREADS];
    int started = 0;
    size_t wanted = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : (size_t)threads;
    if (wanted > n)
        wanted = n;
    /* A thread that cannot be had leaves its share to the others. */
    while ((size_t)started + 1 < wanted && pthread_create(&helpers[started], NULL, work, &loop) == 0)
        started++;
    work(&loop);
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
}
