/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Each call is checked, then passed to the kind of store, or to the generic version where
 * the kind has none.  The checks come before anything is sent or changed, so that a call
 * that breaks a limit fails alone and whole. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"
#include "store/generic.h"

void
dl_store_init(dl_store *store, const dl_store_ops *ops)
{
    store->ops = ops;
    atomic_init(&store->references, 1);
    store->fork_generation = dl_fork_generation();
    store->creator = (int)getpid();
    atomic_init(&store->is_closed, false);
    atomic_init(&store->timeout, DL_STORE_DEFAULT_TIMEOUT);
}

dl_store *
dl_store_ref(dl_store *store)
{
    atomic_fetch_add_explicit(&store->references, 1, memory_order_relaxed);
    return store;
}

void
dl_store_unref(dl_store *store)
{
    if (store != NULL
        && atomic_fetch_sub_explicit(&store->references, 1, memory_order_acq_rel)
               == 1) {
        /* In a forked child this closes nothing and frees all the same: memory is the
         * child's own. */
        dl_store_close(store);
        store->ops->free(store);
    }
}

bool
dl_store_is_inherited(const dl_store *store)
{
    return store->fork_generation != dl_fork_generation();
}

void
dl_store_close(dl_store *store)
{
    /* A child must not end what the parent still uses: sockets, counts in files. */
    /* Of several that close at once the first does it, and the others return before it
     * is done. */
    if (!atomic_exchange(&store->is_closed, true) && !dl_store_is_inherited(store)
        && store->ops->close != NULL) {
        store->ops->close(store);
    }
}

static dl_store *
timeout_owner(dl_store *store)
{
    /* Views may lie on views. */
    while (store->ops->timeout_owner != NULL) {
        store = store->ops->timeout_owner(store);
    }
    return store;
}

int64_t
dl_store_timeout(dl_store *store)
{
    /* Relaxed: it is a number and nothing else, no other memory goes with it. */
    return atomic_load_explicit(&timeout_owner(store)->timeout, memory_order_relaxed);
}

void
dl_store_set_timeout(dl_store *store, int64_t timeout)
{
    atomic_store_explicit(&timeout_owner(store)->timeout, timeout,
                          memory_order_relaxed);
}

dl_deadline
dl_store_deadline(dl_store *store)
{
    return dl_deadline_after(dl_store_timeout(store));
}

bool
dl_store_has_extended_api(dl_store *store)
{
    return store->ops->has_extended_api;
}

bool
dl_store_local_address(dl_store *store, struct dl_address *address)
{
    return store->ops->local_address != NULL && dl_store_admit(store) == DL_OK
           && store->ops->local_address(store, address);
}

dl_status
dl_store_admit(const dl_store *store)
{
    if (dl_store_is_inherited(store)) {
        return dl_fail(DL_CLOSED,
                       "this %s was created in process %d; a forked child must create "
                       "its own",
                       store->ops->kind, store->creator);
    }
    if (atomic_load_explicit(&store->is_closed, memory_order_relaxed)) {
        return dl_fail(DL_CLOSED, "this %s is closed", store->ops->kind);
    }
    return DL_OK;
}

static dl_status
admit_key(const dl_store *store, dl_bytes key)
{
    DL_TRY(dl_store_admit(store));
    if (key.size > DL_STORE_KEY_LIMIT) {
        return dl_fail(DL_INVALID,
                       "a key of %zu bytes is longer than the limit of %d bytes",
                       key.size, DL_STORE_KEY_LIMIT);
    }
    return DL_OK;
}

static dl_status
admit_keys(const dl_store *store, const dl_bytes *keys, size_t count)
{
    DL_TRY(dl_store_admit(store));
    if (count > DL_STORE_KEYS_LIMIT) {
        return dl_fail(DL_INVALID, "%zu keys in one call are over the limit of %u",
                       count, DL_STORE_KEYS_LIMIT);
    }
    for (size_t i = 0; i < count; i++) {
        DL_TRY(admit_key(store, keys[i]));
    }
    return DL_OK;
}

static dl_status
admit_value(dl_bytes value)
{
    if (value.size > DL_STORE_VALUE_LIMIT) {
        return dl_fail(DL_INVALID,
                       "a value of %zu bytes is longer than the limit of %u bytes",
                       value.size, DL_STORE_VALUE_LIMIT);
    }
    return DL_OK;
}

/* One wording for all kinds and all methods. */
static dl_status
lacks(const dl_store *store, const char *method)
{
    return dl_fail(DL_UNSUPPORTED, "%s is not implemented by %s", method,
                   store->ops->kind);
}

dl_status
dl_store_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    DL_TRY(admit_value(value));
    return store->ops->set == NULL ? lacks(store, "set")
                                   : store->ops->set(store, key, value, deadline);
}

dl_status
dl_store_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    return store->ops->get == NULL ? lacks(store, "get")
                                   : store->ops->get(store, key, value, deadline);
}

dl_status
dl_store_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
             dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    return store->ops->add == NULL ? lacks(store, "add")
                                   : store->ops->add(store, key, delta, sum, deadline);
}

dl_status
dl_store_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                     dl_buffer *held, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    DL_TRY(admit_value(expected));
    DL_TRY(admit_value(desired));
    if (store->ops->compare_set == NULL) {
        return lacks(store, "compare_set");
    }
    return store->ops->compare_set(store, key, expected, desired, held, deadline);
}

dl_status
dl_store_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    if (store->ops->delete_key == NULL) {
        return lacks(store, "delete_key");
    }
    return store->ops->delete_key(store, key, existed, deadline);
}

dl_status
dl_store_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
               dl_deadline deadline)
{
    DL_TRY(admit_keys(store, keys, count));
    if (store->ops->check == NULL) {
        return lacks(store, "check");
    }
    return store->ops->check(store, keys, count, exist, deadline);
}

dl_status
dl_store_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    DL_TRY(admit_keys(store, keys, count));
    return (store->ops->wait == NULL ? dl_generic_wait
                                     : store->ops->wait)(store, keys, count, deadline);
}

dl_status
dl_store_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    return store->ops->num_keys == NULL ? lacks(store, "num_keys")
                                        : store->ops->num_keys(store, count, deadline);
}

dl_status
dl_store_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
                   dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    if (store->ops->list_keys == NULL) {
        return lacks(store, "list_keys");
    }
    return store->ops->list_keys(store, visit, context, deadline);
}

dl_status
dl_store_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    DL_TRY(admit_value(value));
    return (store->ops->append == NULL ? dl_generic_append : store->ops->append)(
        store, key, value, deadline);
}

dl_status
dl_store_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                   dl_buffer *values, dl_deadline deadline)
{
    DL_TRY(admit_keys(store, keys, count));
    return (store->ops->multi_get == NULL
                ? dl_generic_multi_get
                : store->ops->multi_get)(store, keys, count, values, deadline);
}

dl_status
dl_store_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                   size_t count, dl_deadline deadline)
{
    DL_TRY(admit_keys(store, keys, count));
    for (size_t i = 0; i < count; i++) {
        DL_TRY(admit_value(values[i]));
    }
    return (store->ops->multi_set == NULL
                ? dl_generic_multi_set
                : store->ops->multi_set)(store, keys, values, count, deadline);
}

dl_status
dl_store_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    DL_TRY(admit_value(value));
    if (store->ops->queue_push == NULL) {
        return lacks(store, "queue_push");
    }
    return store->ops->queue_push(store, key, value, deadline);
}

dl_status
dl_store_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                   dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    if (store->ops->queue_pop == NULL) {
        return lacks(store, "queue_pop");
    }
    return store->ops->queue_pop(store, key, is_blocking, value, deadline);
}

dl_status
dl_store_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    if (store->ops->queue_len == NULL) {
        return lacks(store, "queue_len");
    }
    return store->ops->queue_len(store, key, count, deadline);
}

dl_status
dl_store_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                 dl_deadline deadline)
{
    DL_TRY(admit_key(store, key));
    return (store->ops->barrier == NULL ? dl_generic_barrier : store->ops->barrier)(
        store, key, world_size, deadline);
}

dl_status
dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    return store->ops->clone == NULL ? lacks(store, "clone")
                                     : store->ops->clone(store, clone, deadline);
}

dl_status
dl_store_fail_timeout(const char *prefix, const dl_bytes *keys, size_t count,
                      dl_deadline deadline)
{
    char names[DL_ERROR_TEXT_SIZE];
    size_t size = 0;

    names[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        int more =
            snprintf(names + size, sizeof names - size, "%s%s%.*s", i == 0 ? "" : ", ",
                     prefix, (int)keys[i].size, (const char *)keys[i].data);
        /* Room is kept for the closing words and for who prefixes the text. */
        if (more < 0 || size + (size_t)more > sizeof names - 300) {
            snprintf(names + size, sizeof names - size, "%s... (%zu in all)",
                     i == 0 ? "" : ", ", count);
            break;
        }
        size += (size_t)more;
    }
    return dl_fail(DL_TIMEOUT, "wait timeout after %" PRId64 "ms, keys: %s",
                   deadline.limit / DL_MILLISECOND, names);
}

dl_status
dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline)
{
    return dl_fail(DL_TIMEOUT, "barrier timeout after %" PRId64 "ms, key: %.*s",
                   deadline.limit / DL_MILLISECOND, (int)key.size,
                   (const char *)key.data);
}
