/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/join_fault.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/peer.h"

/* Returns whether a failure is this rank's own: not that of another rank, nor a wait
 * for one that has not come, nor a record with a wrong seal, which all ranks find. */
static bool
is_own(dl_status status)
{
    return status != DL_OK && status != DL_TIMEOUT && status != DL_PEER_LOST
           && status != DL_MISMATCH && status != DL_CLOSED && status != DL_DENIED;
}

/* Returns the key under which a rank leaves the error of its timeout. */
static dl_bytes
late_key(int rank, char text[DL_RANK_KEY_SIZE])
{
    int size = snprintf(text, DL_RANK_KEY_SIZE, "cpu/%d/late", rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

/* The record is deleted first: a fault whose rank has a record counts as old.  That of a
 * rank that has timed out stays, because others are about to list those that have none. */
static void
store_fault(dl_store *store, int rank)
{
    dl_error error = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(DL_JOIN_FAULT_PATIENCE);
    char key[DL_ENDPOINT_KEY_SIZE];
    char late[DL_RANK_KEY_SIZE];
    char self_text[DL_PEER_TEXT_SIZE];
    char host[DL_HOST_NAME_SIZE];
    dl_peer self;
    char text[DL_ERROR_TEXT_SIZE];
    bool existed;

    dl_peer_own(&self, host);
    dl_peer_describe(&self, rank, self_text);
    snprintf(text, sizeof text, "%s could not join: %.1800s", self_text,
             error.status == DL_INTERRUPTED ? "it was interrupted" : error.text);
    if (error.status == DL_TIMEOUT) {
        (void)dl_store_set(store, late_key(rank, late), dl_bytes_of(text), deadline);
    } else {
        (void)dl_store_delete_key(store, dl_endpoint_key(rank, key), &existed,
                                  deadline);
        (void)dl_store_set(store, DL_LITERAL(DL_JOIN_FAULT_KEY), dl_bytes_of(text),
                           deadline);
    }
    (void)dl_rethrow(&error);
}

void
dl_join_fault_publish(dl_store *store, int rank)
{
    dl_status status = dl_last_error()->status;

    if (is_own(status) || status == DL_TIMEOUT) {
        store_fault(store, rank);
    }
}

void
dl_join_fault_pass_on(dl_store *store, int rank)
{
    dl_error error = *dl_last_error();

    if (error.status == DL_TIMEOUT || dl_join_fault_check(store) == DL_OK) {
        (void)dl_rethrow(&error);
        store_fault(store, rank);
    }
    (void)dl_rethrow(&error);
}

static bool
exists(dl_store *store, dl_bytes key, dl_deadline deadline)
{
    bool is_there = false;

    return dl_store_check(store, &key, 1, &is_there, deadline) == DL_OK && is_there;
}

/* Returns whether the rank that the fault is of has published a record since. */
static bool
is_outdated(dl_store *store, const char *text, dl_deadline deadline)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    int rank;

    return sscanf(text, "rank %d", &rank) == 1
           && exists(store, dl_endpoint_key(rank, key), deadline);
}

/* The text is empty if there is no value. */
static void
read_text(dl_store *store, dl_bytes key, char text[DL_ERROR_TEXT_SIZE],
          dl_deadline deadline)
{
    dl_buffer value = {0};

    text[0] = '\0';
    if (exists(store, key, deadline)
        && dl_store_get(store, key, &value, deadline) == DL_OK) {
        snprintf(text, DL_ERROR_TEXT_SIZE, "%.*s", (int)value.size,
                 (const char *)value.data);
    }
    dl_buffer_fini(&value);
}

/* A store that does not answer is not a fault: the caller's own wait reports it. */
dl_status
dl_join_fault_check(dl_store *store)
{
    dl_error before = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(DL_JOIN_FAULT_PATIENCE);
    char text[DL_ERROR_TEXT_SIZE];

    read_text(store, DL_LITERAL(DL_JOIN_FAULT_KEY), text, deadline);
    if (text[0] == '\0' || is_outdated(store, text, deadline)) {
        (void)dl_rethrow(&before);
        return DL_OK;
    }
    return dl_fail(DL_PEER_LOST, "%s", text);
}

/* The process is compared, because the text may be that of an earlier join. */
dl_status
dl_join_fault_check_lost(dl_store *store)
{
    DL_TRY(dl_join_fault_check(store));
    dl_error error = *dl_last_error();
    char key[DL_RANK_KEY_SIZE];
    char text[DL_ERROR_TEXT_SIZE];
    const char *lost = strstr(error.text, "rank ");
    int rank;

    if (lost == NULL || sscanf(lost, "rank %d", &rank) != 1) {
        return DL_OK;
    }
    read_text(store, late_key(rank, key), text,
              dl_deadline_after(DL_JOIN_FAULT_PATIENCE));
    size_t named = strcspn(text, ")");
    (void)dl_rethrow(&error);
    return text[named] == '\0' || strncmp(text, lost, named) != 0
               ? DL_OK
               : dl_fail(DL_PEER_LOST, "%s", text);
}

dl_status
dl_join_fault_await(const dl_rank_keys *keys, dl_store *store, dl_buffer *values,
                    dl_deadline deadline, dl_status (*look)(void *context),
                    void *context)
{
    for (int64_t slice = DL_JOIN_FAULT_FIRST_SLICE;; slice = DL_JOIN_FAULT_LAST_SLICE) {
        dl_deadline end = dl_deadline_earlier(deadline, slice);
        dl_status status = dl_rank_keys_get(keys, store, NULL, end);
        if (status == DL_OK) {
            /* A rank that fails deletes its record, which may be after the wait. */
            status = dl_rank_keys_get(keys, store, values, end);
        }
        if (status != DL_TIMEOUT) {
            return status;
        }
        DL_TRY(dl_interrupt_check());
        DL_TRY(dl_join_fault_check(store));
        if (look != NULL) {
            DL_TRY(look(context));
        }
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
    }
}
