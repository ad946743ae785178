/* PTX to a cubin by NVIDIA's assembler, where it is installed: the driver has less to do then, and what a kernel takes of a GPU is known without one. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/internal.h"

extern char **environ;

enum { MOST_SAID = 1 << 16 };

/* $TENON_PTXAS, else `ptxas` of the PATH; NULL: none. Empty: none is wanted. */
static const char *find_assembler(tn_arena *arena, bool *named)
{
    const char *path = secure_getenv("TENON_PTXAS"), *folders = secure_getenv("PATH");
    *named = path != NULL;
    if (path)
        return *path ? path : NULL;
    while (folders && *folders) {
        size_t len = strcspn(folders, ":");
        const char *file = tn_format(arena, "%.*s/ptxas", (int)len, folders);
        if (*folders == '/' && access(file, X_OK) == 0) /* a folder of the present one could hold anything */
            return file;
        folders += len + (folders[len] == ':');
    }
    return NULL;
}

bool tn_ptxas_is_there(tn_arena *arena)
{
    bool named;
    return find_assembler(arena, &named) != NULL;
}

/* ---- the process ------------------------------------------------------------------------------------------------------------- */

/* A file without a name in the file system but /proc/self/fd; the child has it under the same number. */
static int open_nameless(const char *name)
{
    int fd = memfd_create(name, 0);
    if (fd >= 0)
        fcntl(fd, F_SETFD, 0);
    return fd;
}

/* All that a file holds, with a NUL behind it; malloc'ed. */
static bool read_back(int fd, size_t most, tn_blob *out)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return false;
    size_t size = (size_t)end < most ? (size_t)end : most, at = 0;
    char *data = malloc(size + 1);
    while (data && at < size) {
        ssize_t n = pread(fd, data + at, size - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (!data)
        return false;
    data[at] = 0;
    *out = (tn_blob){data, at};
    return true;
}

/* The exit status; -1: it could not run. What it says goes into `said`. */
static int run(const char *path, const char *architecture, int in, int out, int said)
{
    char arch[64], from[64], to[64];
    snprintf(arch, sizeof arch, "-arch=%s", architecture);
    snprintf(from, sizeof from, "/proc/self/fd/%d", in);
    snprintf(to, sizeof to, "/proc/self/fd/%d", out);
    char *const arguments[] = {"ptxas", "-v", arch, from, "-o", to, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, said, 1);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
    int failed = posix_spawn(&child, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- what it says --------------------------------------------------------------------------------------------------------------- */

/* The number before `what`; 0: there is none. Of several functions the largest. */
static int number_before(const char *text, const char *what)
{
    int most = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) {
        const char *digits = at;
        while (digits > text && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        int n = digits < at ? atoi(digits) : 0;
        most = n > most ? n : most;
    }
    return most;
}

static void read_report(const char *said, tn_ptxas_report *out)
{
    *out = (tn_ptxas_report){.registers = number_before(said, " registers"), .spill_bytes = number_before(said, " bytes spill stores")};
}

static tn_status fail(tn_session *session, bool named, const char *path, const char *what)
{
    while (*what == '\n' || *what == ' ')
        what++;
    const char *text = tn_strndup(&session->arena, what, strcspn(what, "\n"));
    if (named)
        return tn_error(session, TN_UNSUPPORTED, TN_NO_LOC, "%s ($TENON_PTXAS): %s", path, text);
    tn_note(session, TN_NO_LOC, "%s: %s; the GPU's driver takes the PTX", path, text);
    return TN_OK;
}

tn_status tn_ptxas(tn_session *session, const char *architecture, const tn_blob *ptx, tn_blob *cubin, tn_ptxas_report *report)
{
    bool named;
    const char *path = find_assembler(&session->arena, &named);
    *cubin = (tn_blob){NULL, 0};
    if (!path)
        return TN_OK;
    tn_blob text = {NULL, 0};
    int in = open_nameless("kernel.ptx"), out = open_nameless("kernel.cubin"), said = open_nameless("said");
    bool ready = in >= 0 && out >= 0 && said >= 0 && tn_write_all(in, ptx->data, ptx->size);
    int status = ready ? run(path, architecture, in, out, said) : -1;
    bool told = ready && read_back(said, MOST_SAID, &text), made = status == 0 && told && read_back(out, INT32_MAX, cubin) && cubin->size > 0;
    close(in), close(out), close(said);
    if (made)
        read_report(text.data, report);
    else
        free(cubin->data), *cubin = (tn_blob){NULL, 0};
    tn_status result = made ? TN_OK : fail(session, named, path, status < 0 || !told ? "it can't be run" : text.data);
    free(text.data);
    return result;
}
