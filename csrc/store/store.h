/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A key-value store through which processes exchange data.  This is the public
 * interface of the folder: every kind of store executes requests (store/request.h), and
 * the functions here check them, count references, refuse to work in a forked child,
 * and implement some requests by others for kinds that lack them.  Knows nothing of
 * Python or of what is stored.
 *
 * Timeouts mean the same for every kind: a negative limit waits for ever, zero checks
 * once.  All functions may be called from any thread; a call that waits delays no
 * other. */
#ifndef DISTLITE_STORE_STORE_H
#define DISTLITE_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/secret.h"
#include "store/request.h"

/* Limits of every kind of store; they are those of torch's server. */
#define DL_STORE_KEY_LIMIT 8191         /* the wire's 8192 less the leading slash */
#define DL_STORE_VALUE_LIMIT (8u << 20) /* per call; append may exceed it */
#define DL_STORE_KEYS_LIMIT 131072u     /* per multi-key call */
#define DL_STORE_DEFAULT_TIMEOUT (300 * DL_SECOND)

typedef struct dl_store dl_store;
struct dl_address; /* net/address.h */

/* One kind of store. */
typedef struct dl_store_ops {
    const char *kind; /* "TCPStore", ...: for error texts */
    uint32_t
        requests; /* a mask of DL_REQUEST(); others are implemented by these or fail */
    bool has_extended_api; /* append and multi_* take one round trip */
    /* execute() calls dl_blocking_begin() (base/interrupt.h) before it waits or does more
     * than a few microseconds of work. */
    bool is_brief;

    /* Executes one of `requests`, whose keys and values are within the limits.
     * `deadline` bounds the wait for keys (DL_TIMEOUT); a store with a server allows
     * some more time for the reply, so that a timeout of zero means "check once". */
    dl_status (*execute)(dl_store *, const dl_store_request *, dl_store_reply *,
                         dl_deadline);
    /* Makes another store on the same data; HashStore returns itself.  May be NULL. */
    dl_status (*clone)(dl_store *, dl_store **clone, dl_deadline);
    /* Ends connections and threads, and wakes blocked calls with DL_CLOSED.  Called at
     * most once, and never in a forked child.  May be NULL. */
    void (*close)(dl_store *);
    /* Frees the store.  Called with the last reference, after close; in a forked child
     * without close, and then it must not touch what is shared with the parent. */
    void (*free)(dl_store *);
    /* Returns the store of which this one is a view, and which answers in its place what
     * follows and has its timeout.  NULL: this one is no view. */
    dl_store *(*below)(dl_store *);
    bool (*local_address)(dl_store *, struct dl_address *); /* may be NULL */
    /* Returns the secret that users of the data have to prove, or NULL if they need not.
     * May be NULL. */
    dl_secret *(*secret)(dl_store *);
} dl_store_ops;

/* The base of every kind of store, embedded as its first member. */
struct dl_store {
    const dl_store_ops *ops; /* fixed after init */
    atomic_uint references;
    uint32_t fork_generation; /* fixed after init */
    int creator;              /* process id, for error texts; fixed after init */
    atomic_bool is_closed;
    _Atomic int64_t timeout; /* nanoseconds; negative waits for ever */
};

/* Initialises the base with one reference and the default timeout. */
void dl_store_init(dl_store *store, const dl_store_ops *ops);
dl_store *dl_store_ref(dl_store *store);
void dl_store_unref(dl_store *store); /* NULL does nothing */

/* Releases what the store holds; later calls fail with DL_CLOSED.  The last unref
 * closes the store as well. */
void dl_store_close(dl_store *store);

/* Returns whether this process was forked after the store was made, so that it must not
 * use the store. */
bool dl_store_is_inherited(const dl_store *store);

/* Fails with DL_CLOSED if the store is closed or inherited; every call that uses the
 * data checks it. */
dl_status dl_store_admit(const dl_store *store);

/* Returns whether append and multi_* take one round trip. */
bool dl_store_has_extended_api(dl_store *store);

/* Returns whether requests call dl_blocking_begin() (base/interrupt.h) before they take
 * long, so that a caller may hold what other threads need until then. */
bool dl_store_is_brief(dl_store *store);

/* Sets `*address` to the local address of a connection to the server; returns false if
 * there is none. */
bool dl_store_local_address(dl_store *store, struct dl_address *address);

/* Returns the secret that every user of the store's data has proved to know, or NULL if
 * none is asked for.  Borrowed; valid as long as the store, closed or not. */
dl_secret *dl_store_secret(dl_store *store);

/* The store's timeout in nanoseconds. */
int64_t dl_store_timeout(dl_store *store);
void dl_store_set_timeout(dl_store *store, int64_t timeout);

/* Checks the request and executes it.  If the kind of store lacks it, wait, append,
 * multi_get, multi_set and barrier are implemented by other requests; the rest is
 * DL_UNSUPPORTED.  A request that exceeds a limit fails before anything is sent or
 * changed. */
dl_status dl_store_execute(dl_store *store, const dl_store_request *request,
                           dl_store_reply *reply, dl_deadline deadline);

static inline dl_status
dl_store_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_SET, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* Waits for the key; DL_TIMEOUT if it does not exist in time. */
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
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, &request, &reply, deadline));
    *sum = reply.number;
    return DL_OK;
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
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, &request, &reply, deadline));
    *existed = reply.number != 0;
    return DL_OK;
}

static inline dl_status
dl_store_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
               dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_CHECK, .keys = keys, .count = count};
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, &request, &reply, deadline));
    *exist = reply.number != 0;
    return DL_OK;
}

/* Reads the key, and waits for none; the value is empty if the key does not exist. */
dl_status dl_store_get_if_set(dl_store *store, dl_bytes key, dl_buffer *value,
                              dl_deadline deadline);

static inline dl_status
dl_store_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_WAIT, .keys = keys, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* Waits for all keys.  `values`: `count` zeroed buffers, which the caller frees. */
static inline dl_status
dl_store_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                   dl_buffer *values, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_MULTI_GET, .keys = keys, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = values},
                            deadline);
}

/* Makes another store on the same data; DL_UNSUPPORTED if the kind has no such
 * operation. */
dl_status dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline);

/* Fails with DL_UNSUPPORTED: "Not implemented: Store has no clone()". */
dl_status dl_store_fail_missing(const dl_store *store, const char *method);

/* Fail with DL_TIMEOUT and the same text for every kind: "wait timeout after
 * 1000ms, keys: /a, /b", with `prefix` before each key, and "barrier timeout after
 * 100ms, key: bb". */
dl_status dl_store_fail_timeout(const char *prefix, const dl_bytes *keys, size_t count,
                                dl_deadline deadline);
dl_status dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline);

/* The same, naming only the keys that do not exist, which is asked of the store; of many
 * keys, or if the store does not tell, all of them. */
dl_status dl_store_fail_without(dl_store *store, const char *prefix,
                                const dl_bytes *keys, size_t count,
                                dl_deadline deadline);

/* Fail for a single key, which is quoted escaped and cut off where it is long: with
 * DL_NOT_FOUND, "key is absent: a"; with DL_INVALID, "the value of key "a" is not a
 * 64-bit number".  Values are not quoted, since texts are logged. */
dl_status dl_store_fail_absent(dl_bytes key);
dl_status dl_store_fail_not_a_number(dl_bytes key);

#endif
