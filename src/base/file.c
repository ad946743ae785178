#include "base/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* O_NONBLOCK: opening a named pipe must not wait for a writer. It means nothing to regular files. */
enum { READ_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* Maps what `fd` is open on and closes it. `one_link`: refuses a file that has a second name, which could lie anywhere. */
static tn_status map_and_close(tn_session *session, tn_loc loc, int fd, const char *path, bool one_link, tn_file *out)
{
    struct stat info;
    tn_status status = TN_OK;
    void *data = NULL;
    if (fstat(fd, &info) != 0)
        status = tn_error(session, TN_IO, loc, "cannot read '%s': %m", path);
    else if (!S_ISREG(info.st_mode))
        status = tn_error(session, TN_IO, loc, "cannot read '%s': not a regular file", path);
    else if (one_link && info.st_nlink != 1)
        status = tn_error(session, TN_INVALID, loc, "refused '%s': the file has %llu hard links, expected 1; copy it", path,
                          (unsigned long long)info.st_nlink);
    else if (info.st_size > 0 &&
             (data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status = tn_error(session, TN_IO, loc, "cannot map '%s': %m", path);
    close(fd);
    if (status == TN_OK)
        *out = (tn_file){data, (size_t)info.st_size, tn_intern_z(session, path)};
    return status;
}

tn_status tn_file_map(tn_session *session, const char *path, tn_file *out)
{
    int fd = open(path, READ_FLAGS);
    if (fd < 0)
        return tn_error(session, TN_IO, TN_NO_LOC, "cannot open '%s': %m", path);
    return map_and_close(session, TN_NO_LOC, fd, path, false, out);
}

/* Why `name` may not name a file below a folder, or NULL. */
static const char *bad_name(const char *name)
{
    if (!*name)
        return "an empty name";
    if (*name == '/')
        return "an absolute path";
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!strncmp(part, "..", 2) && (part[2] == '/' || !part[2]))
            return "a path with '..'";
    return NULL;
}

int tn_open_step_by_step(tn_arena *arena, int dir, const char *name)
{
    int at = dup(dir);
    const char *part = name, *slash;
    while (at >= 0 && (slash = strchr(part, '/'))) {
        const char *step = slash > part ? tn_strndup(arena, part, (size_t)(slash - part)) : ".";
        int next = openat(at, step, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(at);
        errno = error;
        at = next;
        part = slash + 1;
    }
    if (at < 0)
        return -1;
    int fd = openat(at, *part ? part : ".", READ_FLAGS | O_NOFOLLOW);
    int error = errno;
    close(at);
    errno = error;
    return fd;
}

static int open_below(tn_arena *arena, int dir, const char *name)
{
    struct open_how how = {.flags = READ_FLAGS,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, dir, name, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return tn_open_step_by_step(arena, dir, name);
    return (int)fd;
}

tn_status tn_file_map_below(tn_session *session, tn_loc loc, const char *dir, const char *name, tn_file *out)
{
    const char *bad = bad_name(name);
    if (bad)
        return tn_error(session, TN_INVALID, loc, "refused file '%s': expected a name below '%s', found %s", name, dir, bad);
    int folder = open(*dir ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return tn_error(session, TN_IO, loc, "cannot open folder '%s': %m", dir);
    int fd = open_below(&session->arena, folder, name);
    int error = errno;
    close(folder);
    errno = error;
    if (fd < 0 && (errno == ELOOP || errno == EXDEV))
        return tn_error(session, TN_INVALID, loc, "refused file '%s' below '%s': it goes through a symbolic link", name, dir);
    if (fd < 0)
        return tn_error(session, TN_IO, loc, "cannot open '%s' below '%s': %m", name, dir);
    return map_and_close(session, loc, fd, tn_format(&session->arena, "%s/%s", *dir ? dir : ".", name), true, out);
}

void tn_file_unmap(tn_file *file)
{
    if (file->data)
        munmap((void *)(uintptr_t)file->data, file->size);
    file->data = NULL;
    file->size = 0;
}

bool tn_write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* Creates a file beside `path` under a name that nobody has; *name is that name. */
static int create_beside(tn_arena *arena, const char *path, mode_t mode, const char **name)
{
    int fd = -1;
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        *name = tn_format(arena, "%s.%d.%u.tmp", path, (int)gettid(), attempt);
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    return fd;
}

/* A terminal, a pipe or /dev/null is written to, not replaced. */
static tn_status write_special(tn_session *session, const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    bool written = fd >= 0 && tn_write_all(fd, data, size);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return written ? TN_OK : tn_error(session, TN_IO, TN_NO_LOC, "cannot write '%s': %m", path);
}

static tn_status write_file(tn_session *session, const char *path, mode_t mode, const void *data, size_t size)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return write_special(session, path, data, size);
    const char *name;
    int fd = create_beside(&session->arena, path, mode, &name);
    if (fd < 0)
        return tn_error(session, TN_IO, TN_NO_LOC, "cannot create '%s': %m", path);
    bool written = tn_write_all(fd, data, size);
    written = close(fd) == 0 && written;
    if (!written || rename(name, path) != 0) {
        tn_status status = tn_error(session, TN_IO, TN_NO_LOC, "cannot write '%s': %m", path);
        unlink(name);
        return status;
    }
    return TN_OK;
}

tn_status tn_file_write(tn_session *session, const char *path, const void *data, size_t size)
{
    return write_file(session, path, 0666, data, size);
}

tn_status tn_file_write_private(tn_session *session, const char *path, const void *data, size_t size)
{
    return write_file(session, path, 0600, data, size);
}
