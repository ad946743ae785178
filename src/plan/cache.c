/* Compiled kernels on the disk, by content: one file a kernel, named by a hash of its key. The key itself, the whole text of what the code depends on, is in
 * the file and compared, so that a collision is a miss and never a wrong kernel.
 *
 *   file     "TNKERNEL", sum of the rest (2 x 8 bytes), sizes of key, record and object (3 x 8 bytes), key, record, object
 *   record   numbers of 8 bytes; texts as their length and their bytes
 *
 * A file is read only if it is this user's and nobody else may write it. Its lengths must add up to its size, its sum must fit; then the record is read by a
 * reader that knows where it ends. Whatever does not fit counts as absent, and the next compile replaces it. Files come by renaming, so nobody sees half of one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "plan/internal.h"

static const char magic[8] = "TNKERNEL", suffix[] = ".tnk", unfinished[] = ".tmp";
enum { MAX_TEXT = 1 << 24, MAX_PARAMETERS = 1 << 16, MAX_NOTES = 1 << 16, TRIMS = 16, ABANDONED_SECONDS = 3600 };
static const int64_t most_bytes = 256 << 20; /* unless $TENON_CACHE_BYTES says otherwise */

typedef struct header {
    char magic[8];
    uint64_t sum[2];
    uint64_t key, record, object; /* bytes */
} header;

/* ---- this build ------------------------------------------------------------------------------------------------------------- */

typedef struct build {
    const uint8_t *id;
    size_t size;
} build;

static bool holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
            return true;
    }
    return false;
}

static void read_notes(const uint8_t *at, size_t size, build *out)
{
    ElfW(Nhdr) note;
    while (size >= sizeof note) {
        memcpy(&note, at, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3, desc = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name + desc > size - sizeof note)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(at + sizeof note, "GNU", 4))
            *out = (build){at + sizeof note + name, note.n_descsz};
        at += sizeof note + name + desc;
        size -= sizeof note + name + desc;
    }
}

static int find_build(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    if (!holds(info, (uintptr_t)find_build))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            read_notes((const uint8_t *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), info->dlpi_phdr[i].p_memsz, context);
    return 1;
}

/* ---- the key ------------------------------------------------------------------------------------------------------------------ */

/* Where a kernel begins: places in its file count from here, so that a kernel that only moved is the same. */
static tn_loc first_place(const tn_tblock *block)
{
    for (const tn_top *op = block->first; op; op = op->next)
        if (op->loc.file)
            return op->loc;
    return TN_NO_LOC;
}

static bool same_file(tn_loc a, tn_loc b) { return a.file && b.file && !strcmp(a.file, b.file); }

static void text_places(tn_text *text, const tn_tblock *block, tn_loc base)
{
    for (const tn_top *op = block->first; op; op = op->next) {
        if (same_file(op->loc, base))
            tn_text_add(text, "+%d:%d ", op->loc.line - base.line, op->loc.column);
        else if (op->loc.file)
            tn_text_add(text, "%s:%d:%d ", op->loc.file, op->loc.line, op->loc.column);
        for (int r = 0; r < op->nregions; r++)
            text_places(text, op->region[r], base);
    }
}

const char *tn_cache_key(const tn_kernel *kernel, const tn_exec_options *options)
{
    tn_arena *arena = &kernel->session->arena;
    const tn_machine *m = options->machine;
    tn_text text = {.arena = arena}, places = {.arena = arena};
    build b = {NULL, 0};
    dl_iterate_phdr(find_build, &b);
    if (!b.id)
        return NULL;
    tn_text_add(&text, "tenon %s build ", TENON_VERSION);
    for (size_t i = 0; i < b.size; i++)
        tn_text_add(&text, "%02x", b.id[i]);
    tn_text_add(&text, "\nmachine %s %s %s %s level %d passes %s architecture %s\n", m->name, m->triple, m->cpu, m->features, options->level,
                options->loop_passes ? options->loop_passes : "", options->architecture ? options->architecture : "");
    tn_text_put(&places, "", 0);
    text_places(&places, kernel->body, first_place(kernel->body));
    tn_text_add(&text, "places %016llx%016llx\n", (unsigned long long)tn_hash(places.at, places.len, 1), (unsigned long long)tn_hash(places.at, places.len, 2));
    tn_text_kernel(&text, kernel);
    return text.at;
}

/* ---- the folder --------------------------------------------------------------------------------------------------------------- */

const char *tn_cache_folder(tn_arena *arena, const char *wanted)
{
    const char *named = wanted ? wanted : secure_getenv("TENON_CACHE"), *home;
    if (named)
        return *named ? named : NULL;
    home = secure_getenv("XDG_CACHE_HOME");
    if (home && *home == '/')
        return tn_format(arena, "%s/tenon", home);
    home = secure_getenv("HOME");
    return home && *home == '/' ? tn_format(arena, "%s/.cache/tenon", home) : NULL;
}

void tn_cache_make_folder(tn_arena *arena, const char *folder)
{
    char *path = tn_strdup(arena, folder);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0700);
    }
    mkdir(path, 0700);
}

static int64_t byte_limit(void)
{
    const char *text = secure_getenv("TENON_CACHE_BYTES");
    char *end;
    errno = 0;
    long long n = text ? strtoll(text, &end, 10) : 0;
    return text && end != text && !*end && errno == 0 && n >= 0 ? n : most_bytes;
}

static const char *path_of(tn_arena *arena, const char *folder, const char *key)
{
    size_t len = strlen(key);
    return tn_format(arena, "%s/%016llx%016llx%s", folder, (unsigned long long)tn_hash(key, len, 3), (unsigned long long)tn_hash(key, len, 4), suffix);
}

/* ---- too much of it ------------------------------------------------------------------------------------------------------------- */

typedef struct kept {
    const char *name;
    int64_t bytes;
    struct timespec used;
} kept;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1) : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Removes the files used longest ago until what is left fits, and what writers that died left. */
static void trim(tn_arena *arena, const char *folder, int64_t limit)
{
    TN_VEC(kept) files = {0};
    int64_t total = 0, now = (int64_t)time(NULL);
    struct stat info;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        bool left = ends_with(e->d_name, unfinished) && strstr(e->d_name, suffix);
        if ((!left && !ends_with(e->d_name, suffix)) || fstatat(dirfd(dir), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
            continue;
        if (left && now - info.st_mtim.tv_sec > ABANDONED_SECONDS)
            unlinkat(dirfd(dir), e->d_name, 0);
        if (left)
            continue;
        TN_PUSH(arena, &files, ((kept){tn_strdup(arena, e->d_name), info.st_size, info.st_mtim}));
        total += info.st_size;
    }
    if (files.len)
        qsort(files.at, files.len, sizeof *files.at, by_use);
    for (size_t i = 0; i < files.len && total > limit; i++) {
        unlinkat(dirfd(dir), files.at[i].name, 0);
        total -= files.at[i].bytes;
    }
    if (dir)
        closedir(dir);
}

/* ---- records -------------------------------------------------------------------------------------------------------------------- */

static void put_number(tn_text *text, int64_t n) { tn_text_put(text, (const char *)&n, sizeof n); }

static void put_text(tn_text *text, const char *string)
{
    put_number(text, (int64_t)strlen(string));
    tn_text_put(text, string, strlen(string));
}

static void put_names(tn_text *text, const char *const *names, int n)
{
    put_number(text, n);
    for (int i = 0; i < n; i++)
        put_text(text, names[i]);
}

static void put_note(tn_text *text, const tn_diag *note, tn_loc base)
{
    bool here = same_file(note->loc, base);
    put_text(text, here || !note->loc.file ? "" : note->loc.file);
    put_number(text, here);
    put_number(text, here ? note->loc.line - base.line : note->loc.line);
    put_number(text, note->loc.column);
    put_text(text, note->message);
}

static void put_dim(tn_text *text, tn_dim d)
{
    tn_text one = {.arena = text->arena};
    tn_text_dim(&one, d);
    put_text(text, one.at);
}

static void put_map(tn_text *text, const tn_code_map *map)
{
    put_number(text, map->buffer);
    put_number(text, map->dtype);
    put_number(text, map->how);
    put_number(text, map->view.rank);
    put_number(text, map->view.swizzle);
    put_dim(text, map->view.offset);
    for (int i = 0; i < map->view.rank; i++) {
        put_number(text, map->view.box[i]);
        put_dim(text, map->view.size[i]);
        put_dim(text, map->view.stride[i]);
    }
}

static void put_record(tn_text *text, const tn_code *code, tn_loc base)
{
    put_text(text, code->symbol);
    put_names(text, code->buffer, code->nbuffers);
    put_names(text, code->size, code->nsizes);
    put_number(text, code->scratch);
    put_number(text, code->traps);
    put_number(text, code->threads);
    put_number(text, code->shared);
    put_number(text, code->cluster);
    put_number(text, code->persistent);
    put_number(text, code->nmaps);
    for (int i = 0; i < code->nmaps; i++)
        put_map(text, &code->map[i]);
    put_number(text, (int64_t)code->cubin_bytes);
    put_number(text, code->report.registers);
    put_number(text, code->report.spill_bytes);
    put_number(text, (int64_t)code->pointer_accesses);
    put_number(text, (int64_t)code->nnotes);
    for (size_t i = 0; i < code->nnotes; i++)
        put_note(text, &code->note[i], base);
}

typedef struct reader {
    tn_session *session;
    tn_arena *arena;
    const uint8_t *at;
    size_t left;
    bool ok;
} reader;

static int64_t get_number(reader *r, int64_t lo, int64_t hi)
{
    int64_t n;
    r->ok = r->ok && r->left >= sizeof n;
    if (!r->ok)
        return lo;
    memcpy(&n, r->at, sizeof n);
    r->at += sizeof n;
    r->left -= sizeof n;
    r->ok = n >= lo && n <= hi;
    return r->ok ? n : lo;
}

static const char *get_text(reader *r)
{
    size_t n = (size_t)get_number(r, 0, MAX_TEXT);
    r->ok = r->ok && n <= r->left && !memchr(r->at, 0, n);
    if (!r->ok)
        return "";
    const char *text = tn_strndup(r->arena, (const char *)r->at, n);
    r->at += n;
    r->left -= n;
    return text;
}

static const char **get_names(reader *r, int *n)
{
    *n = (int)get_number(r, 0, tn_min(MAX_PARAMETERS, (int64_t)(r->left / sizeof(int64_t))));
    const char **names = TN_NEW_ARRAY(r->arena, const char *, (size_t)*n + 1);
    for (int i = 0; i < *n; i++)
        names[i] = get_text(r);
    return names;
}

static tn_diag get_note(reader *r, tn_loc base)
{
    const char *file = get_text(r);
    bool here = get_number(r, 0, 1);
    tn_loc loc = {.file = here ? base.file : *file ? file : NULL};
    loc.line = (int)get_number(r, INT32_MIN / 2, INT32_MAX / 2) + (here ? base.line : 0);
    loc.column = (int)get_number(r, 0, INT32_MAX);
    return (tn_diag){.severity = TN_NOTE, .loc = loc, .message = get_text(r)};
}

static tn_dim get_dim(reader *r)
{
    const char *text = get_text(r);
    tn_dim d;
    r->ok = r->ok && tn_dim_parse(r->session, text, &d) == strlen(text) && *text;
    return r->ok ? d : tn_dim_const(r->session, 0);
}

static tn_code_map get_map(reader *r, const tn_code *code)
{
    tn_code_map map = {.buffer = (int)get_number(r, 0, MAX_PARAMETERS)};
    map.dtype = (tn_dtype)get_number(r, TN_NO_DTYPE + 1, TN_DTYPE_COUNT - 1);
    map.how = (int)get_number(r, 0, TN_PART_R | TN_PART_W);
    map.view.rank = (int)get_number(r, 1, TN_MAP_RANK);
    map.view.swizzle = (int)get_number(r, 0, 128);
    map.view.offset = get_dim(r);
    for (int i = 0; i < map.view.rank; i++) {
        map.view.box[i] = (int)get_number(r, 1, TN_MAP_BOX);
        map.view.size[i] = get_dim(r);
        map.view.stride[i] = get_dim(r);
    }
    r->ok = r->ok && !tn_plan_map_fault(&map, code->nbuffers, code->size, code->nsizes);
    return map;
}

static bool get_record(reader *r, tn_loc base, tn_code *code)
{
    code->symbol = get_text(r);
    code->buffer = get_names(r, &code->nbuffers);
    code->size = get_names(r, &code->nsizes);
    code->scratch = get_number(r, 0, INT64_MAX / 2);
    code->traps = get_number(r, 0, 1);
    code->threads = (int)get_number(r, 0, TN_MOST_THREADS);
    code->shared = get_number(r, 0, INT32_MAX);
    code->cluster = (int)get_number(r, 0, TN_MOST_CLUSTER);
    code->persistent = (int)get_number(r, 0, TN_MOST_PERSISTENT);
    code->nmaps = (int)get_number(r, 0, code->threads ? TN_MOST_MAPS : 0);
    tn_code_map *maps = TN_NEW_ARRAY(r->arena, tn_code_map, (size_t)code->nmaps + 1);
    for (int i = 0; i < code->nmaps; i++)
        maps[i] = get_map(r, code);
    code->map = maps;
    code->cubin_bytes = (size_t)get_number(r, 0, INT32_MAX);
    code->report.registers = (int)get_number(r, 0, INT32_MAX);
    code->report.spill_bytes = (int)get_number(r, 0, INT32_MAX);
    code->pointer_accesses = (size_t)get_number(r, 0, INT32_MAX);
    code->nnotes = (size_t)get_number(r, 0, tn_min(MAX_NOTES, (int64_t)(r->left / sizeof(int64_t))));
    tn_diag *notes = TN_NEW_ARRAY(r->arena, tn_diag, code->nnotes + 1);
    for (size_t i = 0; i < code->nnotes; i++)
        notes[i] = get_note(r, base);
    code->note = notes;
    return r->ok && r->left == 0;
}

/* ---- files ---------------------------------------------------------------------------------------------------------------------- */

static void set_sum(header *h, const uint8_t *rest, size_t size)
{
    const uint64_t sizes[3] = {h->key, h->record, h->object};
    for (int i = 0; i < 2; i++)
        h->sum[i] = tn_hash(rest, size, tn_hash(sizes, sizeof sizes, (uint64_t)i + 5));
}

/* Is the file whole, and is it of this key? *object: where the object starts. */
static bool read_file(const uint8_t *data, size_t size, const char *key, tn_session *session, tn_loc base, tn_code *out)
{
    header h, wanted;
    if (size < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    const uint8_t *rest = data + sizeof h;
    size_t left = size - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.key != strlen(key) || h.key > left || h.record > left - h.key || h.object != left - h.key - h.record)
        return false;
    wanted = h;
    set_sum(&wanted, rest, left);
    reader r = {session, &session->arena, rest + h.key, h.record, true};
    if (memcmp(wanted.sum, h.sum, sizeof h.sum) != 0 || memcmp(rest, key, h.key) != 0 || h.object == 0 || !get_record(&r, base, out))
        return false;
    if (out->threads && (out->cubin_bytes >= h.object || rest[left - 1] != 0)) /* PTX ends with a NUL */
        return false;
    out->object = (tn_blob){malloc(h.object), h.object};
    if (out->object.data)
        memcpy(out->object.data, rest + h.key + h.record, h.object);
    return out->object.data != NULL;
}

static bool is_ours(int fd, size_t *size)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
        return false;
    *size = (size_t)info.st_size;
    return info.st_size > 0 && info.st_size < INT32_MAX;
}

static bool read_all(int fd, uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = read(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* Read rather than mapped: a mapped file that somebody cuts short ends the process. */
bool tn_cache_get(const char *folder, const char *key, const tn_kernel *kernel, tn_code *out)
{
    tn_session *session = kernel->session;
    int fd = open(path_of(&session->arena, folder, key), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    size_t size = 0;
    uint8_t *data = NULL;
    *out = (tn_code){.symbol = NULL};
    if (fd < 0)
        return false;
    bool found = is_ours(fd, &size) && (data = malloc(size)) && read_all(fd, data, size) &&
                 read_file(data, size, key, session, first_place(kernel->body), out);
    if (found)
        futimens(fd, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}});
    for (size_t i = 0; found && i < out->nnotes; i++)
        tn_note(session, out->note[i].loc, "%s", out->note[i].message);
    free(data);
    close(fd);
    return found;
}

/* What does not work is nobody's error: it is said to a session of its own, and forgotten. */
void tn_cache_put(const char *folder, const char *key, const tn_kernel *kernel, const tn_code *code)
{
    struct stat info;
    int64_t limit = byte_limit();
    tn_session quiet = {.arena.on_oom = kernel->session->arena.on_oom};
    quiet.strings.arena = quiet.options.arena = &quiet.arena;
    const char *path = path_of(&quiet.arena, folder, key);
    tn_text text = {.arena = &quiet.arena}, record = {.arena = &quiet.arena};
    put_record(&record, code, first_place(kernel->body));
    header h = {.key = strlen(key), .record = record.len, .object = code->object.size};
    memcpy(h.magic, magic, sizeof magic);
    tn_text_put(&text, (const char *)&h, sizeof h);
    tn_text_put(&text, key, h.key);
    tn_text_put(&text, record.at, record.len);
    tn_text_put(&text, code->object.data, h.object);
    set_sum(&h, (const uint8_t *)text.at + sizeof h, text.len - sizeof h);
    memcpy(text.at, &h, sizeof h);
    tn_cache_make_folder(&quiet.arena, folder);
    bool fits = code->scratch >= 0 && (int64_t)text.len <= limit && (lstat(path, &info) != 0 || S_ISREG(info.st_mode));
    if (fits && tn_file_write_private(&quiet, path, text.at, text.len) == TN_OK && (h.sum[0] % TRIMS == 0 || (int64_t)text.len > limit / TRIMS))
        trim(&quiet.arena, folder, limit); /* at times: reading a full folder takes as long as a compile */
    tn_arena_free(&quiet.arena);
}
