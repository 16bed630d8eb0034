/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/join_fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/peer.h"

/* How long a rank that has timed out waits for the errors of the one that it waited
 * for, and of those that this one waited for: their deadlines are not quite the
 * same. */
#define LATE_PATIENCE (300 * DL_MILLISECOND)

/* How long a store that cannot look for a key is asked to wait for it. */
#define SHORT_WAIT (10 * DL_MILLISECOND)

/* A rank that waits for several asks for faults after half a second, and after pauses
 * that double up to this one. */
#define LAST_SLICE (8 * DL_SECOND)

/* Follows the name of a rank that has left whom it waits for, and still waits. */
#define NOTE_MARK " has not joined yet"

/* The last of what a rank leaves before its deadline. */
#define LEAST_NOTE (50 * DL_MILLISECOND)

/* Returns whether a failure is this rank's own: not that of another rank, nor a wait
 * for one that has not come, nor a record with a wrong MAC, which all ranks find. */
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

void
dl_join_fault_put(dl_store *store, dl_bytes key)
{
    dl_error error = *dl_last_error();
    char text[DL_ERROR_TEXT_SIZE + sizeof DL_JOIN_FAULT_MARK];

    snprintf(text, sizeof text, DL_JOIN_FAULT_MARK "%s", error.text);
    (void)dl_store_set(store, key, dl_bytes_of(text),
                       dl_deadline_after(DL_JOIN_FAULT_PATIENCE));
    (void)dl_rethrow(&error);
}

static void
describe_own(int rank, char text[DL_PEER_TEXT_SIZE])
{
    char host[DL_HOST_NAME_SIZE];
    dl_peer self;

    dl_peer_own(&self, host);
    dl_peer_describe(&self, rank, text);
}

/* The record of a rank that has timed out stays, because others are about to list those
 * that have none. */
static void
store_fault(dl_store *store, int rank)
{
    dl_error error = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(DL_JOIN_FAULT_PATIENCE);
    char key[DL_ENDPOINT_KEY_SIZE];
    char late[DL_RANK_KEY_SIZE];
    char self_text[DL_PEER_TEXT_SIZE];
    char text[DL_ERROR_TEXT_SIZE];

    describe_own(rank, self_text);
    snprintf(text, sizeof text, "%s could not join: %.1800s", self_text,
             error.status == DL_INTERRUPTED ? "it was interrupted" : error.text);
    if (error.status == DL_TIMEOUT) {
        (void)dl_store_set(store, late_key(rank, late), dl_bytes_of(text), deadline);
    } else {
        (void)dl_store_set(store, DL_LITERAL(DL_JOIN_FAULT_KEY), dl_bytes_of(text),
                           deadline);
        (void)dl_fail(error.status, "%s", text);
        dl_join_fault_put(store, dl_endpoint_key(rank, key));
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

dl_deadline
dl_join_fault_next(dl_deadline deadline, int64_t left)
{
    int64_t before = left == 0 ? deadline.limit / 2 : left;

    if (deadline.limit >= 0 && before > LEAST_NOTE) {
        deadline.at -= before;
    }
    return deadline;
}

/* Leaves whom the thread's last error says that this rank waits for. */
static void
store_note(dl_store *store, int rank, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    const char *awaited = strstr(error.text, "waiting for ");
    char key[DL_RANK_KEY_SIZE];
    char self_text[DL_PEER_TEXT_SIZE];
    char text[DL_ERROR_TEXT_SIZE];

    describe_own(rank, self_text);
    snprintf(text, sizeof text,
             "%s" NOTE_MARK ", with a timeout of %" PRId64 "ms: %.1800s", self_text,
             deadline.limit / DL_MILLISECOND, awaited == NULL ? error.text : awaited);
    (void)dl_store_set(store, late_key(rank, key), dl_bytes_of(text),
                       dl_deadline_after(DL_JOIN_FAULT_PATIENCE));
    (void)dl_rethrow(&error);
}

void
dl_join_fault_note(dl_store *store, int rank, dl_deadline deadline, int64_t *left)
{
    dl_deadline next = dl_join_fault_next(deadline, *left);

    if (deadline.limit >= 0 && next.at < deadline.at && dl_deadline_passed(next)) {
        *left = (deadline.at - next.at) / 2;
        store_note(store, rank, deadline);
    }
}

void
dl_join_fault_clear(dl_store *store, int rank)
{
    dl_error error = *dl_last_error();
    char key[DL_RANK_KEY_SIZE];
    bool existed;

    (void)dl_store_delete_key(store, late_key(rank, key), &existed,
                              dl_deadline_after(DL_JOIN_FAULT_PATIENCE));
    (void)dl_rethrow(&error);
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

/* A store that cannot look for a key is asked by a short wait. */
static bool
key_exists(dl_store *store, dl_bytes key, dl_deadline deadline)
{
    bool is_there = false;
    dl_status status = dl_store_check(store, &key, 1, &is_there, deadline);

    if (status == DL_UNSUPPORTED) {
        deadline = dl_deadline_earlier(deadline, SHORT_WAIT);
        return dl_store_wait(store, &key, 1, deadline) == DL_OK;
    }
    return status == DL_OK && is_there;
}

/* The text is empty if there is no value, or its rank deletes it in this moment, for
 * which a get would wait. */
static void
read_text(dl_store *store, dl_bytes key, char text[DL_ERROR_TEXT_SIZE],
          dl_deadline deadline)
{
    dl_buffer value = {0};

    text[0] = '\0';
    if (key_exists(store, key, deadline)
        && dl_store_get(store, key, &value,
                        dl_deadline_earlier(deadline, LATE_PATIENCE))
               == DL_OK) {
        snprintf(text, DL_ERROR_TEXT_SIZE, "%.*s", (int)value.size,
                 (const char *)value.data);
    }
    dl_buffer_fini(&value);
}

static bool
is_fault(const char *text)
{
    return strncmp(text, DL_JOIN_FAULT_MARK, sizeof DL_JOIN_FAULT_MARK - 1) == 0;
}

/* Returns whether the rank that the fault is of has published a record since. */
static bool
is_outdated(dl_store *store, const char *text, dl_deadline deadline)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    char record[DL_ERROR_TEXT_SIZE];
    int rank;

    if (sscanf(text, "rank %d", &rank) != 1) {
        return false;
    }
    read_text(store, dl_endpoint_key(rank, key), record, deadline);
    return record[0] != '\0' && !is_fault(record);
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

/* Fails with what the rank that begins the text `lost` has left when it timed out, or
 * leaves until `deadline`.  The process is compared, because that may be of an earlier
 * join. */
static dl_status
check_timeout(dl_store *store, const char *lost, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    char key[DL_RANK_KEY_SIZE];
    char text[DL_ERROR_TEXT_SIZE];
    int rank, pid;

    /* One that has not joined has no process yet, and has left nothing. */
    if (lost == NULL || sscanf(lost, "rank %d (pid %d", &rank, &pid) != 2) {
        return DL_OK;
    }
    dl_bytes late = late_key(rank, key);
    if (!dl_deadline_passed(deadline)) {
        (void)dl_store_wait(store, &late, 1, deadline);
    }
    read_text(store, late, text, dl_deadline_after(DL_JOIN_FAULT_PATIENCE));
    size_t named = strcspn(text, ")");
    (void)dl_rethrow(&error);
    return text[named] == '\0' || strncmp(text, lost, named) != 0
               ? DL_OK
               : dl_fail(DL_PEER_LOST, "%s", text);
}

/* Returns whether a rank left this while it waited, and not at its end. */
static bool
is_note(const char *text)
{
    const char *name = text + strcspn(text, ")");

    return strncmp(name, ")" NOTE_MARK, sizeof ")" NOTE_MARK - 1) == 0;
}

dl_status
dl_join_fault_check_lost(dl_store *store)
{
    DL_TRY(dl_join_fault_check(store));
    dl_error error = *dl_last_error();
    dl_status status =
        check_timeout(store, strstr(error.text, "rank "), dl_deadline_after(0));

    if (status != DL_OK && is_note(dl_last_error()->text)) {
        /* The rank went on after that, and has ended for another reason. */
        (void)dl_rethrow(&error);
        return DL_OK;
    }
    return status;
}

/* What ranks have left before their deadlines may be outdated, so they may wait for
 * each other by it: from time to time a rank is kept, and is met again in such a
 * circle. */
dl_status
dl_join_fault_check_late(dl_store *store)
{
    dl_error own = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(LATE_PATIENCE);
    char kept[DL_PEER_TEXT_SIZE] = "";

    for (unsigned step = 0;; step++) {
        dl_error error = *dl_last_error();
        const char *awaited = strstr(error.text, "waiting for rank ");
        awaited = awaited == NULL ? NULL : awaited + strlen("waiting for ");
        if (check_timeout(store, awaited, deadline) == DL_OK) {
            return step == 0 ? DL_OK : DL_PEER_LOST;
        }
        if (strncmp(kept, awaited, sizeof kept - 1) == 0) {
            (void)dl_rethrow(&own);
            return DL_OK;
        }
        if ((step & (step - 1)) == 0) {
            snprintf(kept, sizeof kept, "%s", awaited);
        }
    }
}

/* What a rank looks for while it waits in the store. */
typedef struct watch {
    dl_status (*poll)(void *context);
    void *context;
    int64_t next; /* time of the next poll */
    dl_error found;
} watch;

static bool
has_found(void *context)
{
    watch *self = context;

    if (self->found.status != DL_OK) {
        return true;
    }
    if (self->poll == NULL || dl_now() < self->next) {
        return false;
    }
    self->next = dl_now() + DL_JOIN_FAULT_LOOK;
    if (self->poll(self->context) == DL_OK) {
        return false;
    }
    self->found = *dl_last_error();
    return true;
}

/* Fails if a rank has left a fault in place of a value. */
static dl_status
check_values(const dl_buffer *values, int count)
{
    size_t mark = sizeof DL_JOIN_FAULT_MARK - 1;

    for (int i = 0; i < count; i++) {
        const char *text = (const char *)values[i].data;
        if (values[i].size > mark && memcmp(text, DL_JOIN_FAULT_MARK, mark) == 0) {
            return dl_fail(DL_PEER_LOST, "%.*s", (int)(values[i].size - mark),
                           text + mark);
        }
    }
    return DL_OK;
}

/* Reads the values of all keys, which are there, and fails with a fault in one. */
static dl_status
read_values(const dl_rank_keys *keys, dl_store *store, dl_buffer *values,
            dl_deadline deadline)
{
    DL_TRY(dl_rank_keys_get(keys, store, values, deadline));
    return check_values(values, keys->size);
}

/* Waits for all keys, in slices, because a fault in one ends no wait for several.
 * Between them it looks as well: a store that is written in Python may not do so. */
static dl_status
await_keys(const dl_rank_keys *keys, dl_store *store, dl_deadline deadline, watch *self)
{
    int64_t slice = DL_JOIN_FAULT_LOOK;

    for (;;) {
        dl_status status =
            dl_rank_keys_get(keys, store, NULL, dl_deadline_earlier(deadline, slice));
        if (status != DL_TIMEOUT || dl_deadline_passed(deadline)) {
            return status;
        }
        DL_TRY(dl_join_fault_check(store));
        if (has_found(self)) {
            return DL_INTERRUPTED;
        }
        slice = slice < LAST_SLICE ? 2 * slice : slice;
    }
}

dl_status
dl_join_fault_await(const dl_rank_keys *keys, dl_store *store, dl_buffer *values,
                    dl_deadline deadline, dl_status (*poll)(void *context),
                    void *context)
{
    dl_deadline first = dl_deadline_earlier(deadline, DL_JOIN_FAULT_FIRST_LOOK);
    watch self = {poll, context, first.at, {0}};

    (void)dl_interrupt_set_own((dl_interrupt_own){
        .check = has_found, .context = &self, .pause = DL_JOIN_FAULT_FIRST_LOOK});
    dl_status status = await_keys(keys, store, deadline, &self);
    (void)dl_interrupt_set_own((dl_interrupt_own){.check = NULL});
    if (self.found.status != DL_OK) {
        (void)dl_rethrow(&self.found);
        if (self.found.status == DL_PEER_LOST) {
            DL_TRY(dl_join_fault_check_lost(store));
        }
        return self.found.status;
    }
    status = status == DL_OK ? read_values(keys, store, values, deadline) : status;
    if (status == DL_PEER_LOST && !dl_deadline_passed(first)) {
        /* That may be of an earlier join over the same keys, whose rank comes again. */
        DL_TRY(dl_sleep_until(first));
        status = read_values(keys, store, values, deadline);
    }
    if (status == DL_TIMEOUT) {
        DL_TRY(dl_join_fault_check(store));
    }
    return status;
}
