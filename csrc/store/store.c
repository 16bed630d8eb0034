/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of every kind of store.  Requests are checked before anything is sent
 * or changed, so that one that exceeds a limit fails without any effect. */
#include "store/store.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/text.h"
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
        /* In a forked child dl_store_close() closes nothing, but the memory is the
         * child's own and is freed. */
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
    /* A child must not end what the parent still uses, such as sockets and the counts
     * in a file.  If several threads close at once, the first one does it, and the
     * others return before it is done. */
    if (!atomic_exchange(&store->is_closed, true) && !dl_store_is_inherited(store)
        && store->ops->close != NULL) {
        store->ops->close(store);
    }
}

static dl_store *
timeout_owner(dl_store *store)
{
    /* Views may be nested. */
    while (store->ops->timeout_owner != NULL) {
        store = store->ops->timeout_owner(store);
    }
    return store;
}

int64_t
dl_store_timeout(dl_store *store)
{
    /* Relaxed: no other memory is published with the timeout. */
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
check_key(dl_bytes key)
{
    if (key.size > DL_STORE_KEY_LIMIT) {
        return dl_fail(DL_INVALID,
                       "a key of %zu bytes is longer than the limit of %d bytes",
                       key.size, DL_STORE_KEY_LIMIT);
    }
    return DL_OK;
}

static dl_status
check_value(dl_bytes value)
{
    if (value.size > DL_STORE_VALUE_LIMIT) {
        return dl_fail(DL_INVALID,
                       "a value of %zu bytes is longer than the limit of %u bytes",
                       value.size, DL_STORE_VALUE_LIMIT);
    }
    return DL_OK;
}

/* Members that a request does not use are empty and pass every check. */
static dl_status
check_limits(const dl_store_request *request)
{
    if (request->count > DL_STORE_KEYS_LIMIT) {
        return dl_fail(DL_INVALID, "%zu keys in one call are over the limit of %u",
                       request->count, DL_STORE_KEYS_LIMIT);
    }
    for (size_t i = 0; i < request->count; i++) {
        DL_TRY(check_key(request->keys[i]));
    }
    for (size_t i = 0; i < request->count && request->values != NULL; i++) {
        DL_TRY(check_value(request->values[i]));
    }
    DL_TRY(check_key(request->key));
    DL_TRY(check_value(request->expected));
    return check_value(request->value);
}

dl_status
dl_store_fail_missing(const dl_store *store, const char *method)
{
    return dl_fail(DL_UNSUPPORTED, "%s is not implemented by %s", method,
                   store->ops->kind);
}

dl_status
dl_store_execute(dl_store *store, const dl_store_request *request,
                 dl_store_reply *reply, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    DL_TRY(check_limits(request));
    if ((store->ops->requests & DL_REQUEST(request->op)) == 0) {
        return dl_generic_execute(store, request, reply, deadline);
    }
    return store->ops->execute(store, request, reply, deadline);
}

dl_status
dl_store_execute_number(dl_store *store, const dl_store_request *request,
                        int64_t *number, dl_deadline deadline)
{
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, request, &reply, deadline));
    *number = reply.number;
    return DL_OK;
}

dl_status
dl_store_execute_truth(dl_store *store, const dl_store_request *request, bool *truth,
                       dl_deadline deadline)
{
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, request, &reply, deadline));
    *truth = reply.number != 0;
    return DL_OK;
}

dl_status
dl_store_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
                   dl_deadline deadline)
{
    const dl_store_request request = {.op = DL_OP_LIST_KEYS};
    dl_buffer names = {0};
    dl_store_reply reply = {.values = &names};
    dl_bytes name;

    dl_status status = dl_store_execute(store, &request, &reply, deadline);
    dl_reader reader = dl_reader_of(dl_buffer_bytes(&names));
    while (status == DL_OK && dl_take_bytes(&reader, SIZE_MAX, &name) == 1) {
        status = visit(context, name);
    }
    dl_buffer_fini(&names);
    return status;
}

dl_status
dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    return store->ops->clone == NULL ? dl_store_fail_missing(store, "clone")
                                     : store->ops->clone(store, clone, deadline);
}

static void
append_key(char *text, size_t room, size_t *size, dl_bytes key)
{
    /* Of a key that is longer than the text, the rest is not looked at. */
    size_t shown = key.size < room ? key.size : room;

    dl_text_append_escaped(text, room, size, (const char *)key.data, shown);
}

dl_status
dl_store_fail_timeout(const char *prefix, const dl_bytes *keys, size_t count,
                      dl_deadline deadline)
{
    char names[DL_ERROR_TEXT_SIZE] = "";
    size_t size = 0;

    for (size_t i = 0; i < count; i++) {
        const char *separator = i == 0 ? "" : ", ";
        size_t before = size;
        dl_text_append(names, sizeof names, &size, "%s%s", separator, prefix);
        append_key(names, sizeof names, &size, keys[i]);
        /* Leaves room for the rest of the text and for prefixes that callers add. */
        if (size > sizeof names - 300) {
            size = before;
            dl_text_append(names, sizeof names, &size, "%s... (%zu in all)", separator,
                           count);
            break;
        }
    }
    return dl_fail(DL_TIMEOUT, "wait timeout after %" PRId64 "ms, keys: %s",
                   deadline.limit / DL_MILLISECOND, names);
}

dl_status
dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline)
{
    char name[DL_ERROR_TEXT_SIZE] = "";
    size_t size = 0;

    append_key(name, sizeof name, &size, key);
    return dl_fail(DL_TIMEOUT, "barrier timeout after %" PRId64 "ms, key: %s",
                   deadline.limit / DL_MILLISECOND, name);
}
