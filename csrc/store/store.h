/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A key-value store that processes meet at.  The front door of this folder: a request
 * (store/request.h) is a value that every kind of store executes; the front door checks
 * it, counts references, refuses a forked child and makes some requests from others where
 * a kind does not know them.  Knows nothing of Python or of what is stored.
 *
 * Timeouts mean the same on every kind: a negative limit waits for ever, zero looks
 * once.  All functions may be called from any thread; no call delays another's. */
#ifndef DISTLITE_STORE_STORE_H
#define DISTLITE_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "store/request.h"

/* Limits of every kind of store, those of torch's server. */
#define DL_STORE_KEY_LIMIT 8191         /* the wire's 8192 less the leading slash */
#define DL_STORE_VALUE_LIMIT (8u << 20) /* of a call; append may grow a value on */
#define DL_STORE_KEYS_LIMIT 131072u     /* in one multi-key call */
#define DL_STORE_DEFAULT_TIMEOUT (300 * DL_SECOND)

typedef struct dl_store dl_store;
struct dl_address; /* net/address.h */

/* One kind of store. */
typedef struct dl_store_ops {
    const char *kind; /* "TCPStore", ...: for error texts */
    uint32_t
        requests; /* a mask of DL_REQUEST(); the front door does without the others */
    bool has_extended_api; /* append and multi_* are one round trip */

    /* Executes one of `requests`, whose keys and values are within the limits.  `deadline`
     * bounds waiting for keys (DL_TIMEOUT); a store that asks a server gives the answer
     * itself a grace of its own, so that zero means "look once". */
    dl_status (*execute)(dl_store *, const dl_store_request *, dl_store_reply *,
                         dl_deadline);
    /* A store of its own on the same data; HashStore gives itself.  May be NULL. */
    dl_status (*clone)(dl_store *, dl_store **clone, dl_deadline);
    /* Ends connections and threads, wakes blocked calls with DL_CLOSED.  Called once at
     * most, and never in a forked child.  May be NULL. */
    void (*close)(dl_store *);
    /* Frees the store itself.  Called with the last reference, after close; in a forked
     * child without it: whatever is shared with the parent stays untouched then. */
    void (*free)(dl_store *);
    /* Where the timeout is kept when not here (PrefixStore: the store below); or NULL. */
    dl_store *(*timeout_owner)(dl_store *);
    bool (*local_address)(dl_store *, struct dl_address *); /* may be NULL */
} dl_store_ops;

/* Embedded first in every kind of store. */
struct dl_store {
    const dl_store_ops *ops; /* fixed after init */
    atomic_uint references;
    uint32_t fork_generation; /* fixed after init */
    int creator;              /* process number, for error texts; fixed after init */
    atomic_bool is_closed;
    _Atomic int64_t timeout; /* nanoseconds; negative waits for ever */
};

/* One reference, the default timeout. */
void dl_store_init(dl_store *store, const dl_store_ops *ops);
dl_store *dl_store_ref(dl_store *store);
void dl_store_unref(dl_store *store); /* NULL does nothing */

/* Ends what the store holds; later calls fail with DL_CLOSED.  So does the last unref. */
void dl_store_close(dl_store *store);
/* Whether this is a child forked after the store was made: it must not touch it. */
bool dl_store_is_inherited(const dl_store *store);

/* DL_CLOSED when closed or inherited: what every call below begins with. */
dl_status dl_store_admit(const dl_store *store);
bool dl_store_has_extended_api(dl_store *store);
/* The local end of a connection to the server.  False: there is none. */
bool dl_store_local_address(dl_store *store, struct dl_address *address);

/* The deadline is the timeout, starting now. */
int64_t dl_store_timeout(dl_store *store);
void dl_store_set_timeout(dl_store *store, int64_t timeout);
dl_deadline dl_store_deadline(dl_store *store);

/* Checks the request and executes it.  Where the kind of store has no such request, wait,
 * append, multi_get, multi_set and barrier are made from the others; the rest is
 * DL_UNSUPPORTED.  A request that breaks a limit fails before anything is sent or
 * changed. */
dl_status dl_store_execute(dl_store *store, const dl_store_request *request,
                           dl_store_reply *reply, dl_deadline deadline);

/* The same with a reply that is a number, or a truth value. */
dl_status dl_store_execute_number(dl_store *store, const dl_store_request *request,
                                  int64_t *number, dl_deadline deadline);
dl_status dl_store_execute_truth(dl_store *store, const dl_store_request *request,
                                 bool *truth, dl_deadline deadline);

/* The names of all values; `visit` is called once for each, and its first failure ends the
 * listing.  It may use the store. */
dl_status dl_store_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes),
                             void *context, dl_deadline deadline);

static inline dl_status
dl_store_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_SET, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* Waits for the key; DL_TIMEOUT otherwise. */
static inline dl_status
dl_store_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_GET, .key = key};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = value},
                            deadline);
}

static inline dl_status
dl_store_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
             dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_ADD, .key = key, .number = delta};

    return dl_store_execute_number(store, &request, sum, deadline);
}

static inline dl_status
dl_store_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                     dl_buffer *held, dl_deadline deadline)
{
    dl_store_request request = {
        .op = DL_OP_COMPARE_SET, .key = key, .expected = expected, .value = desired};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = held},
                            deadline);
}

static inline dl_status
dl_store_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_DELETE_KEY, .key = key};

    return dl_store_execute_truth(store, &request, existed, deadline);
}

static inline dl_status
dl_store_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
               dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_CHECK, .keys = keys, .count = count};

    return dl_store_execute_truth(store, &request, exist, deadline);
}

static inline dl_status
dl_store_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_WAIT, .keys = keys, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

static inline dl_status
dl_store_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_NUM_KEYS};

    return dl_store_execute_number(store, &request, count, deadline);
}

static inline dl_status
dl_store_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_APPEND, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* Waits for all keys.  `values`: `count` zeroed buffers of the caller. */
static inline dl_status
dl_store_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                   dl_buffer *values, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_MULTI_GET, .keys = keys, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = values},
                            deadline);
}

static inline dl_status
dl_store_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                   size_t count, dl_deadline deadline)
{
    dl_store_request request = {
        .op = DL_OP_MULTI_SET, .keys = keys, .values = values, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

static inline dl_status
dl_store_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_QUEUE_PUSH, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* DL_QUEUE_EMPTY when the queue is empty and `is_blocking` is false. */
static inline dl_status
dl_store_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                   dl_deadline deadline)
{
    dl_store_request request = {
        .op = DL_OP_QUEUE_POP, .key = key, .is_blocking = is_blocking};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = value},
                            deadline);
}

static inline dl_status
dl_store_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_QUEUE_LEN, .key = key};

    return dl_store_execute_number(store, &request, count, deadline);
}

static inline dl_status
dl_store_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                 dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_BARRIER, .key = key, .number = world_size};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

dl_status dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline);

/* "clone is not implemented by Store": DL_UNSUPPORTED. */
dl_status dl_store_fail_missing(const dl_store *store, const char *method);

/* "wait timeout after 1000ms, keys: /a, /b", with `prefix` before each key, and "barrier
 * timeout after 100ms, key: bb": one wording for every kind.  Both return DL_TIMEOUT. */
dl_status dl_store_fail_timeout(const char *prefix, const dl_bytes *keys, size_t count,
                                dl_deadline deadline);
dl_status dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline);

#endif
