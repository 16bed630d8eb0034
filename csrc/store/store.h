/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A key-value store that processes meet at.  The front door of this folder: every kind
 * of store is one table of functions, callers use the functions below, which check
 * arguments, count references, refuse a forked child and fall back to generic versions
 * (wait, append, multi, barrier) where a table leaves an entry NULL.  Knows nothing of
 * Python or of what is stored.
 *
 * Timeouts mean the same on every kind: a negative limit waits for ever, zero looks
 * once.  All functions may be called from any thread; no call delays another's. */
#ifndef DISTLITE_STORE_STORE_H
#define DISTLITE_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/deadline.h"
#include "base/status.h"

/* Limits of every kind of store, those of torch's server. */
#define DL_STORE_KEY_LIMIT 8191         /* the wire's 8192 less the leading slash */
#define DL_STORE_VALUE_LIMIT (8u << 20) /* of a call; append may grow a value on */
#define DL_STORE_KEYS_LIMIT 131072u     /* in one multi-key call */
#define DL_STORE_DEFAULT_TIMEOUT (300 * DL_SECOND)

typedef struct dl_store dl_store;
struct dl_address; /* net/address.h */

/* One kind of store.  `deadline` bounds waiting for keys; a store that asks a server
 * gives the answer itself a grace of its own, so that zero means "look once".
 * Out parameters are written only on success.  NULL entries: see the front door. */
typedef struct dl_store_ops {
    const char *kind; /* "TCPStore", ...: for error texts */

    dl_status (*set)(dl_store *, dl_bytes key, dl_bytes value, dl_deadline);
    /* Waits for the key.  DL_TIMEOUT otherwise. */
    dl_status (*get)(dl_store *, dl_bytes key, dl_buffer *value, dl_deadline);
    dl_status (*add)(dl_store *, dl_bytes key, int64_t delta, int64_t *sum,
                     dl_deadline);
    dl_status (*compare_set)(dl_store *, dl_bytes key, dl_bytes expected,
                             dl_bytes desired, dl_buffer *held, dl_deadline);
    dl_status (*delete_key)(dl_store *, dl_bytes key, bool *existed, dl_deadline);
    dl_status (*check)(dl_store *, const dl_bytes *keys, size_t count, bool *exist,
                       dl_deadline);
    dl_status (*wait)(dl_store *, const dl_bytes *keys, size_t count, dl_deadline);
    dl_status (*num_keys)(dl_store *, int64_t *count, dl_deadline);
    /* `visit` is called once per key; its first failure ends the listing. */
    dl_status (*list_keys)(dl_store *, dl_status (*visit)(void *context, dl_bytes key),
                           void *context, dl_deadline);
    dl_status (*append)(dl_store *, dl_bytes key, dl_bytes value, dl_deadline);
    /* Waits for all keys.  `values`: `count` zeroed buffers of the caller. */
    dl_status (*multi_get)(dl_store *, const dl_bytes *keys, size_t count,
                           dl_buffer *values, dl_deadline);
    dl_status (*multi_set)(dl_store *, const dl_bytes *keys, const dl_bytes *values,
                           size_t count, dl_deadline);
    dl_status (*queue_push)(dl_store *, dl_bytes key, dl_bytes value, dl_deadline);
    /* DL_QUEUE_EMPTY when it is empty and `is_blocking` is false. */
    dl_status (*queue_pop)(dl_store *, dl_bytes key, bool is_blocking, dl_buffer *value,
                           dl_deadline);
    dl_status (*queue_len)(dl_store *, dl_bytes key, int64_t *count, dl_deadline);
    dl_status (*barrier)(dl_store *, dl_bytes key, int64_t world_size, dl_deadline);
    /* A store of its own on the same data; HashStore gives itself. */
    dl_status (*clone)(dl_store *, dl_store **clone, dl_deadline);
    /* Ends connections and threads, wakes blocked calls with DL_CLOSED.  Called once at
     * most, and never in a forked child. */
    void (*close)(dl_store *);
    /* Frees the store itself.  Called with the last reference, after close; in a forked
     * child without it: whatever is shared with the parent stays untouched then. */
    void (*free)(dl_store *);
    /* Where the timeout is kept when not here (PrefixStore: the store below). */
    dl_store *(*timeout_owner)(dl_store *);
    bool (*local_address)(dl_store *, struct dl_address *);
    bool has_extended_api; /* append and multi_* are one round trip */
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

dl_status dl_store_set(dl_store *store, dl_bytes key, dl_bytes value,
                       dl_deadline deadline);
dl_status dl_store_get(dl_store *store, dl_bytes key, dl_buffer *value,
                       dl_deadline deadline);
dl_status dl_store_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
                       dl_deadline deadline);
dl_status dl_store_compare_set(dl_store *store, dl_bytes key, dl_bytes expected,
                               dl_bytes desired, dl_buffer *held, dl_deadline deadline);
dl_status dl_store_delete_key(dl_store *store, dl_bytes key, bool *existed,
                              dl_deadline deadline);
dl_status dl_store_check(dl_store *store, const dl_bytes *keys, size_t count,
                         bool *exist, dl_deadline deadline);
dl_status dl_store_wait(dl_store *store, const dl_bytes *keys, size_t count,
                        dl_deadline deadline);
dl_status dl_store_num_keys(dl_store *store, int64_t *count, dl_deadline deadline);
dl_status dl_store_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes),
                             void *context, dl_deadline deadline);
dl_status dl_store_append(dl_store *store, dl_bytes key, dl_bytes value,
                          dl_deadline deadline);
dl_status dl_store_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                             dl_buffer *values, dl_deadline deadline);
dl_status dl_store_multi_set(dl_store *store, const dl_bytes *keys,
                             const dl_bytes *values, size_t count,
                             dl_deadline deadline);
dl_status dl_store_queue_push(dl_store *store, dl_bytes key, dl_bytes value,
                              dl_deadline deadline);
dl_status dl_store_queue_pop(dl_store *store, dl_bytes key, bool is_blocking,
                             dl_buffer *value, dl_deadline deadline);
dl_status dl_store_queue_len(dl_store *store, dl_bytes key, int64_t *count,
                             dl_deadline deadline);
dl_status dl_store_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                           dl_deadline deadline);
dl_status dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline);

/* "wait timeout after 1000ms, keys: /a, /b", with `prefix` before each key, and "barrier
 * timeout after 100ms, key: bb": one wording for every kind.  Both return DL_TIMEOUT. */
dl_status dl_store_fail_timeout(const char *prefix, const dl_bytes *keys, size_t count,
                                dl_deadline deadline);
dl_status dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline);

#endif
