/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of every kind of store.  Requests are checked before anything is sent
 * or changed, so that one that exceeds a limit fails without any effect. */
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/references.h"
#include "base/text.h"
#include "base/thread.h"

/* The pauses between polls: short for a person, long enough to cost nothing. */
#define FIRST_PAUSE (1 * DL_MILLISECOND)
#define LAST_PAUSE (10 * DL_MILLISECOND)

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
    dl_reference_take(&store->references);
    return store;
}

void
dl_store_unref(dl_store *store)
{
    if (store != NULL && dl_reference_drop(&store->references)) {
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
bottom_of(dl_store *store)
{
    /* Views may be nested. */
    while (store->ops->below != NULL) {
        store = store->ops->below(store);
    }
    return store;
}

int64_t
dl_store_timeout(dl_store *store)
{
    /* Relaxed: no other memory is published with the timeout. */
    return atomic_load_explicit(&bottom_of(store)->timeout, memory_order_relaxed);
}

void
dl_store_set_timeout(dl_store *store, int64_t timeout)
{
    atomic_store_explicit(&bottom_of(store)->timeout, timeout, memory_order_relaxed);
}

bool
dl_store_has_extended_api(dl_store *store)
{
    return store->ops->has_extended_api;
}

/* A view does little more than the store below it. */
bool
dl_store_is_brief(dl_store *store)
{
    return bottom_of(store)->ops->is_brief;
}

dl_secret *
dl_store_secret(dl_store *store)
{
    dl_store *bottom = bottom_of(store);

    return bottom->ops->secret == NULL ? NULL : bottom->ops->secret(bottom);
}

bool
dl_store_local_address(dl_store *store, struct dl_address *address)
{
    dl_store *bottom = bottom_of(store);

    return bottom->ops->local_address != NULL && dl_store_admit(store) == DL_OK
           && dl_store_admit(bottom) == DL_OK
           && bottom->ops->local_address(bottom, address);
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
check_size(const char *what, dl_bytes bytes, size_t limit)
{
    return bytes.size <= limit
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "a %s of %zu bytes is longer than the limit of %zu bytes",
                         what, bytes.size, limit);
}

static dl_status
check_key(dl_bytes key)
{
    return check_size("key", key, DL_STORE_KEY_LIMIT);
}

static dl_status
check_value(dl_bytes value)
{
    return check_size("value", value, DL_STORE_VALUE_LIMIT);
}

/* Members that a request does not use are empty and pass every check. */
static dl_status
check_limits(const dl_store_request *request)
{
    if (request->count > DL_STORE_KEYS_LIMIT) {
        return dl_fail(DL_INVALID, "%zu keys in one call exceed the limit of %u",
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
    /* Torch's words, which programs match, come first. */
    const char *words =
        strncmp(method, "queue_", 6) == 0  ? "queue support is not implemented."
        : strcmp(method, "list_keys") == 0 ? "listKeys support is not implemented."
                                           : "Not implemented:";

    return dl_fail(DL_UNSUPPORTED, "%s %s has no %s()", words, store->ops->kind,
                   method);
}

/* The most keys about which an error text asks the store. */
#define NAMED_KEYS 64

dl_status
dl_store_fail_without(dl_store *store, const char *prefix, const dl_bytes *keys,
                      size_t count, dl_deadline deadline)
{
    dl_bytes missing[NAMED_KEYS];
    dl_status status = DL_OK;
    size_t found = 0;

    for (size_t i = 0; count > 1 && count <= NAMED_KEYS && i < count && status == DL_OK;
         i++) {
        bool exists = false;
        status = dl_store_check(store, &keys[i], 1, &exists, deadline);
        missing[found] = keys[i];
        found += !exists;
    }
    if (status != DL_OK && status != DL_TIMEOUT && status != DL_NETWORK
        && status != DL_UNSUPPORTED) {
        return status;
    }
    return status == DL_OK && found > 0
               ? dl_store_fail_timeout(prefix, missing, found, deadline)
               : dl_store_fail_timeout(prefix, keys, count, deadline);
}

static dl_status
generic_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    int64_t pause = FIRST_PAUSE;

    for (;;) {
        bool exist = false;
        DL_TRY(dl_store_check(store, keys, count, &exist, deadline));
        if (exist) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return dl_store_fail_without(store, "", keys, count, deadline);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause * 2 < LAST_PAUSE ? pause * 2 : LAST_PAUSE;
    }
}

/* Reads the value, extends it and swaps it.  The first expected value is the current
 * one and not an empty one: if the value already equals the bytes to append, the reply
 * to a wrong guess would look like success.  `*is_done` is false if another writer has
 * changed the value in between. */
static dl_status
try_append(dl_store *store, dl_bytes key, dl_bytes value, bool *is_done,
           dl_deadline deadline)
{
    dl_buffer held = {0}, longer = {0}, answer = {0};
    /* compare_set expects an empty value for none. */
    dl_status status = dl_store_get_if_set(store, key, &held, deadline);

    if (status == DL_OK) {
        dl_buffer_put(&longer, dl_buffer_bytes(&held));
        dl_buffer_put(&longer, value);
        status = dl_buffer_check(&longer);
    }
    if (status == DL_OK) {
        status = dl_store_compare_set(store, key, dl_buffer_bytes(&held),
                                      dl_buffer_bytes(&longer), &answer, deadline);
    }
    if (status == DL_OK) {
        *is_done = dl_bytes_equal(dl_buffer_bytes(&answer), dl_buffer_bytes(&longer));
    }
    dl_buffer_fini(&held);
    dl_buffer_fini(&longer);
    dl_buffer_fini(&answer);
    return status;
}

static dl_status
generic_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    bool is_done = false;

    for (;;) {
        DL_TRY(try_append(store, key, value, &is_done, deadline));
        if (is_done) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return dl_store_fail_timeout("", &key, 1, deadline);
        }
    }
}

static dl_status
meet_members(dl_store *store, dl_bytes members, dl_bytes last, int64_t world_size,
             dl_deadline deadline)
{
    int64_t arrived = 0;

    DL_TRY(dl_store_add(store, members, 1, &arrived, deadline));
    /* Every member from the last one on: the exact last one may have died before it
     * could set the key. */
    if (arrived >= world_size) {
        return dl_store_set(store, last, DL_LITERAL("1"), deadline);
    }
    return dl_store_wait(store, &last, 1, deadline);
}

/* Each round needs a key of its own: the counter is never reset. */
static dl_status
generic_barrier(dl_store *store, dl_bytes key, int64_t world_size, dl_deadline deadline)
{
    dl_buffer members = {0}, last = {0};

    if (world_size <= 0) {
        return DL_OK;
    }
    dl_buffer_put(&members, key);
    dl_buffer_put(&members, DL_LITERAL("/num_members"));
    dl_buffer_put(&last, key);
    dl_buffer_put(&last, DL_LITERAL("/last_member"));
    dl_status status = dl_buffer_check(&members);
    if (status == DL_OK) {
        status = dl_buffer_check(&last);
    }
    if (status == DL_OK) {
        status = meet_members(store, dl_buffer_bytes(&members), dl_buffer_bytes(&last),
                              world_size, deadline);
    }
    dl_buffer_fini(&members);
    dl_buffer_fini(&last);
    return status == DL_TIMEOUT ? dl_store_fail_barrier_timeout(key, deadline) : status;
}

/* Implements requests that a kind of store lacks by other requests.  WAIT polls every
 * few milliseconds.  APPEND is a loop of compare_set, whose reply cannot distinguish
 * two writers of the same bytes: simultaneous equal appends may become one.  MULTI_GET
 * and MULTI_SET are loops.  BARRIER counts in "<key>/num_members"; the last member sets
 * "<key>/last_member", for which all wait; with no members it returns at once.  All
 * other requests are DL_UNSUPPORTED. */
static dl_status
generic_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
                dl_deadline deadline)
{
    const dl_bytes *keys = request->keys;
    size_t count = request->count;

    switch (request->op) {
    case DL_OP_WAIT:
        return generic_wait(store, keys, count, deadline);
    case DL_OP_APPEND:
        return generic_append(store, request->key, request->value, deadline);
    case DL_OP_MULTI_GET:
        /* One deadline for all keys, so that many keys wait no longer than one. */
        for (size_t i = 0; i < count; i++) {
            DL_TRY(dl_store_get(store, keys[i], &reply->values[i], deadline));
        }
        return DL_OK;
    case DL_OP_MULTI_SET:
        /* Values that were set before a failure remain: with these requests they cannot
         * be withdrawn without being seen. */
        for (size_t i = 0; i < count; i++) {
            DL_TRY(dl_store_set(store, keys[i], request->values[i], deadline));
        }
        return DL_OK;
    case DL_OP_BARRIER:
        return generic_barrier(store, request->key, request->number, deadline);
    default:
        return dl_store_fail_missing(store, dl_request_kinds[request->op].name);
    }
}

dl_status
dl_store_execute(dl_store *store, const dl_store_request *request,
                 dl_store_reply *reply, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    DL_TRY(check_limits(request));
    if ((store->ops->requests & DL_REQUEST(request->op)) == 0) {
        return generic_execute(store, request, reply, deadline);
    }
    return store->ops->execute(store, request, reply, deadline);
}

dl_status
dl_store_get_if_set(dl_store *store, dl_bytes key, dl_buffer *value,
                    dl_deadline deadline)
{
    bool exists = false;

    dl_buffer_clear(value);
    DL_TRY(dl_store_check(store, &key, 1, &exists, deadline));
    if (!exists) {
        return DL_OK;
    }
    /* DL_TIMEOUT: deleted since the check, which is the same as absent. */
    dl_status status = dl_store_get(store, key, value, dl_deadline_after(0));
    return status == DL_TIMEOUT ? DL_OK : status;
}

dl_status
dl_store_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    DL_TRY(dl_store_admit(store));
    return store->ops->clone == NULL ? dl_store_fail_missing(store, "clone")
                                     : store->ops->clone(store, clone, deadline);
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
        dl_text_append_escaped(names, sizeof names, &size, (const char *)keys[i].data,
                               keys[i].size);
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

/* Bytes of a key that an error about this key alone quotes. */
#define QUOTED_SIZE 100

typedef struct quoted_key {
    char text[4 * QUOTED_SIZE + sizeof "..."]; /* an escaped byte takes 4 */
} quoted_key;

static quoted_key
quote_key(dl_bytes key)
{
    quoted_key quoted = {""};
    size_t size = 0;
    size_t shown = key.size < QUOTED_SIZE ? key.size : QUOTED_SIZE;

    dl_text_append_escaped(quoted.text, sizeof quoted.text, &size,
                           (const char *)key.data, shown);
    dl_text_append(quoted.text, sizeof quoted.text, &size, "%s",
                   key.size > shown ? "..." : "");
    return quoted;
}

dl_status
dl_store_fail_barrier_timeout(dl_bytes key, dl_deadline deadline)
{
    return dl_fail(DL_TIMEOUT, "barrier timeout after %" PRId64 "ms, key: %s",
                   deadline.limit / DL_MILLISECOND, quote_key(key).text);
}

dl_status
dl_store_fail_absent(dl_bytes key)
{
    return dl_fail(DL_NOT_FOUND, "key is absent: %s", quote_key(key).text);
}

dl_status
dl_store_fail_not_a_number(dl_bytes key)
{
    return dl_fail(DL_INVALID, "the value of key \"%s\" is not a 64-bit number",
                   quote_key(key).text);
}
