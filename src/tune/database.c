/* Tuning records, in SQLite. */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tune/tune.h"

enum { WAIT_MS = 1000, WRITE_WAIT_MS = 5000 }; /* for another process that is writing; for all that want to write */

struct tn_records {
    tn_session *session;
    const char *path;
    sqlite3 *db;
    bool broken; /* said so; not asked any more */
};

static bool give_up(tn_records *r, const char *what)
{
    if (!r->broken)
        tn_warning(r->session, TN_NO_LOC, "tuning records %s: %s: %s; going on without them", r->path, what, r->db ? sqlite3_errmsg(r->db) : "no memory");
    r->broken = true;
    return false;
}

/* ---- opening -------------------------------------------------------------------------------------------------------------- */

/* *there: there is something. What others may have written is not read. */
static bool may_use(tn_session *session, const char *path, bool *there)
{
    struct stat info;
    *there = lstat(path, &info) == 0;
    if (!*there)
        return true;
    if (S_ISREG(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return true;
    tn_warning(session, TN_NO_LOC, "tuning records %s: not a file that belongs to this user and that only this user may write; going on without them", path);
    return false;
}

static bool run(tn_records *r, const char *sql, const char *what) { return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK || give_up(r, what); }

static bool open_file(tn_records *r, bool write)
{
    static const char table[] = "CREATE TABLE IF NOT EXISTS records (machine TEXT NOT NULL, vocabulary INTEGER NOT NULL, kernel TEXT NOT NULL, schedule TEXT NOT NULL, "
                                "times TEXT NOT NULL, date TEXT NOT NULL, PRIMARY KEY (machine, vocabulary, kernel)) WITHOUT ROWID";
    int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    if (sqlite3_open_v2(r->path, &r->db, flags | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK)
        return give_up(r, "can't be opened");
    sqlite3_busy_timeout(r->db, write ? WRITE_WAIT_MS : WAIT_MS);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return !write || sqlite3_db_readonly(r->db, "main") > 0 || run(r, table, "can't be prepared");
}

tn_records *tn_records_open(tn_session *session, const char *folder, bool write)
{
    bool there;
    const char *path = tn_format(&session->arena, "%s/%s", folder, TN_RECORDS_FILE);
    if (write)
        tn_cache_make_folder(&session->arena, folder);
    if (!may_use(session, path, &there) || (!there && !write))
        return NULL;
    tn_records *r = TN_NEW(&session->arena, tn_records);
    *r = (tn_records){.session = session, .path = path};
    if (open_file(r, write))
        return r;
    tn_records_close(r);
    return NULL;
}

void tn_records_close(tn_records *records)
{
    if (!records)
        return;
    sqlite3_close(records->db);
    records->db = NULL;
}

/* ---- records ---------------------------------------------------------------------------------------------------------------- */

static sqlite3_stmt *prepare(tn_records *r, const char *sql, const char *machine, int vocabulary, const char *kernel)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_bind_text(s, 1, machine, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_int(s, 2, vocabulary) == SQLITE_OK && sqlite3_bind_text(s, 3, kernel, -1, SQLITE_STATIC) == SQLITE_OK)
        return s;
    sqlite3_finalize(s);
    return NULL;
}

static const char *column(sqlite3_stmt *s, int i, tn_arena *arena)
{
    const unsigned char *text = sqlite3_column_text(s, i);
    return tn_strdup(arena, text ? (const char *)text : "");
}

bool tn_records_get(tn_records *r, tn_arena *arena, const char *machine, int vocabulary, const char *kernel, tn_record *out)
{
    if (r->broken)
        return false;
    sqlite3_stmt *s = prepare(r, "SELECT schedule, times, date FROM records WHERE machine = ? AND vocabulary = ? AND kernel = ?", machine, vocabulary, kernel);
    if (!s)
        return give_up(r, "can't be read");
    int step = sqlite3_step(s);
    if (step == SQLITE_ROW)
        *out = (tn_record){column(s, 0, arena), column(s, 1, arena), column(s, 2, arena)};
    else if (step != SQLITE_DONE)
        give_up(r, "can't be read");
    sqlite3_finalize(s);
    return step == SQLITE_ROW;
}

bool tn_records_put(tn_records *r, const char *machine, int vocabulary, const char *kernel, const tn_record *record)
{
    if (r->broken)
        return false;
    sqlite3_stmt *s = prepare(r, "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", machine, vocabulary, kernel);
    bool kept = s && sqlite3_bind_text(s, 4, record->schedule, -1, SQLITE_STATIC) == SQLITE_OK && sqlite3_bind_text(s, 5, record->times, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_bind_text(s, 6, record->date, -1, SQLITE_STATIC) == SQLITE_OK && sqlite3_step(s) == SQLITE_DONE;
    if (!kept)
        give_up(r, "can't be written");
    sqlite3_finalize(s);
    return kept;
}
