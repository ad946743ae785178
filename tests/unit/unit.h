/* What cmocka.h asks to be included before it, and base. */
#ifndef TN_UNIT_H
#define TN_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"

/* A session without the API round it, for one test. */
static inline tn_session *new_test_session(void)
{
    tn_session *session = calloc(1, sizeof *session);
    assert_non_null(session);
    session->strings.arena = session->options.arena = &session->arena;
    return session;
}

static inline const char *last_message(const tn_session *session)
{
    assert_true(session->diags.len > 0);
    return session->diags.at[session->diags.len - 1].message;
}

static inline void free_test_session(tn_session *session)
{
    tn_arena_free(&session->arena);
    free(session);
}

#endif
