/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the cases of the store suite: the kind of store under test,
 * and short calls. */
#ifndef DISTLITE_TESTS_STORE_SUITE_BASE_H
#define DISTLITE_TESTS_STORE_SUITE_BASE_H

#include <pthread.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "check.h"
#include "ranks.h"
#include "store/store.h"
#include "store_calls.h"

typedef struct suite_kind {
    dl_store *(*make)(void);   /* a new, empty store */
    void (*finish)(void);      /* ends what else make() started; may be NULL */
    bool has_queues;           /* otherwise they must fail with DL_UNSUPPORTED */
    bool close_leaves_blocked; /* close() does not end blocked calls (views) */
    int64_t hidden_keys;       /* that num_keys counts besides those of a case */
} suite_kind;

DL_CHECK_UNUSED static const suite_kind *suite_now;

#define A DL_LITERAL("a")
#define B DL_LITERAL("b")
#define C DL_LITERAL("c")

#define SUITE_SET(store, key, literal) \
    CHECK_OK(dl_store_set(store, key, DL_LITERAL(literal), SOON))

#define SUITE_HOLDS(store, key, literal)                  \
    do {                                                  \
        dl_buffer held_ = {0};                            \
        CHECK_OK(dl_store_get(store, key, &held_, SOON)); \
        CHECK_BYTES(dl_buffer_bytes(&held_), literal);    \
        dl_buffer_fini(&held_);                           \
    } while (0)

DL_CHECK_UNUSED static bool
suite_exists(dl_store *store, dl_bytes key)
{
    bool exists = false;

    CHECK_OK(dl_store_check(store, &key, 1, &exists, SOON));
    return exists;
}

DL_CHECK_UNUSED static bool
suite_delete(dl_store *store, dl_bytes key)
{
    bool existed = false;

    CHECK_OK(dl_store_delete_key(store, key, &existed, SOON));
    return existed;
}

DL_CHECK_UNUSED static int64_t
suite_add(dl_store *store, dl_bytes key, int64_t delta)
{
    int64_t sum = -1;

    CHECK_OK(dl_store_add(store, key, delta, &sum, SOON));
    return sum;
}

DL_CHECK_UNUSED static int64_t
suite_num_keys(dl_store *store)
{
    int64_t count = -1;

    CHECK_OK(dl_store_num_keys(store, &count, SOON));
    return suite_now == NULL ? count : count - suite_now->hidden_keys;
}

/* A blocking call on a thread of its own. */
typedef struct suite_call {
    pthread_t thread;
    dl_store *store;
    dl_status (*run)(struct suite_call *);
    const dl_bytes *keys;
    size_t count;
    int64_t limit; /* nanoseconds */
    dl_buffer value;
    dl_error error;
    int64_t ended; /* when */
} suite_call;

DL_CHECK_UNUSED static void *
suite_call_main(void *argument)
{
    suite_call *call = argument;
    dl_status status = call->run(call);

    if (status != DL_OK) {
        call->error = *dl_last_error();
    }
    call->error.status = status;
    call->ended = dl_now();
    return NULL;
}

DL_CHECK_UNUSED static dl_status
suite_run_get(suite_call *call)
{
    return dl_store_get(call->store, call->keys[0], &call->value,
                        dl_deadline_after(call->limit));
}

DL_CHECK_UNUSED static dl_status
suite_run_wait(suite_call *call)
{
    return dl_store_wait(call->store, call->keys, call->count,
                         dl_deadline_after(call->limit));
}

DL_CHECK_UNUSED static dl_status
suite_run_pop(suite_call *call)
{
    return dl_store_queue_pop(call->store, call->keys[0], true, &call->value,
                              dl_deadline_after(call->limit));
}

DL_CHECK_UNUSED static void
suite_start(suite_call *call, dl_status (*run)(suite_call *))
{
    call->run = run;
    CHECK(pthread_create(&call->thread, NULL, suite_call_main, call) == 0);
}

DL_CHECK_UNUSED static void
suite_join(suite_call *call)
{
    CHECK(pthread_join(call->thread, NULL) == 0);
}

#define SUITE_JOIN(call, expected)                                       \
    do {                                                                 \
        suite_join(call);                                                \
        if ((call)->error.status != (expected)) {                        \
            DL_CHECK_FAIL("%s instead of %s (%s)",                       \
                          dl_status_name((call)->error.status),          \
                          dl_status_name(expected), (call)->error.text); \
        }                                                                \
    } while (0)

#endif
