/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/generic.h"

#include "base/thread.h"

/* The pauses between polls: short for a person, long enough to cost nothing. */
#define FIRST_LOOK_AGAIN (1 * DL_MILLISECOND)
#define LAST_LOOK_AGAIN (10 * DL_MILLISECOND)

static dl_status
generic_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    int64_t pause = FIRST_LOOK_AGAIN;

    for (;;) {
        bool exist = false;
        DL_TRY(dl_store_check(store, keys, count, &exist, deadline));
        if (exist) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return dl_store_fail_timeout("", keys, count, deadline);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause * 2 < LAST_LOOK_AGAIN ? pause * 2 : LAST_LOOK_AGAIN;
    }
}

/* Reads the value into `held`, empty if there is none: compare_set expects
 * that for both. */
static dl_status
look_once(dl_store *store, dl_bytes key, dl_buffer *held, dl_deadline deadline)
{
    bool exists = false;

    dl_buffer_clear(held);
    DL_TRY(dl_store_check(store, &key, 1, &exists, deadline));
    if (!exists) {
        return DL_OK;
    }
    /* DL_TIMEOUT: deleted since the check, which is the same as absent. */
    dl_status status = dl_store_get(store, key, held, dl_deadline_after(0));
    return status == DL_TIMEOUT ? DL_OK : status;
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
    dl_status status = look_once(store, key, &held, deadline);

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
generic_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                  dl_buffer *values, dl_deadline deadline)
{
    /* One deadline for all keys, so that many keys wait no longer than one. */
    for (size_t i = 0; i < count; i++) {
        DL_TRY(dl_store_get(store, keys[i], &values[i], deadline));
    }
    return DL_OK;
}

static dl_status
generic_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                  size_t count, dl_deadline deadline)
{
    /* Values that were set before a failure remain: with these requests they cannot be
     * withdrawn without being seen. */
    for (size_t i = 0; i < count; i++) {
        DL_TRY(dl_store_set(store, keys[i], values[i], deadline));
    }
    return DL_OK;
}

static dl_status
meet(dl_store *store, dl_bytes members, dl_bytes last, int64_t world_size,
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
        status = meet(store, dl_buffer_bytes(&members), dl_buffer_bytes(&last),
                      world_size, deadline);
    }
    dl_buffer_fini(&members);
    dl_buffer_fini(&last);
    return status == DL_TIMEOUT ? dl_store_fail_barrier_timeout(key, deadline) : status;
}

dl_status
dl_generic_execute(dl_store *store, const dl_store_request *request,
                   dl_store_reply *reply, dl_deadline deadline)
{
    const dl_bytes *keys = request->keys;
    size_t count = request->count;

    switch (request->op) {
    case DL_OP_WAIT:
        return generic_wait(store, keys, count, deadline);
    case DL_OP_APPEND:
        return generic_append(store, request->key, request->value, deadline);
    case DL_OP_MULTI_GET:
        return generic_multi_get(store, keys, count, reply->values, deadline);
    case DL_OP_MULTI_SET:
        return generic_multi_set(store, keys, request->values, count, deadline);
    case DL_OP_BARRIER:
        return generic_barrier(store, request->key, request->number, deadline);
    default:
        return dl_store_fail_missing(store, dl_request_kinds[request->op].name);
    }
}
