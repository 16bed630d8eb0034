/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/rank_keys.h"

/* Time for the requests after the wait: the verdict must be written even if the
 * deadline has passed. */
#define VERDICT_PATIENCE (2 * DL_SECOND)

static const char all_are_here[] = "all are here";

static dl_bytes
key_of(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    const dl_nccl_meeting *meeting = context;

    snprintf(text, DL_RANK_KEY_SIZE, "%s/%d", meeting->key, rank);
    return dl_bytes_of(text);
}

static dl_status
announce(const dl_nccl_watch *watch, const dl_nccl_meeting *meeting, dl_bytes key,
         dl_deadline deadline, dl_nccl_id *id)
{
    dl_bytes value = DL_LITERAL("here");

    if (id != NULL && meeting->rank == 0) {
        DL_TRY(dl_nccl_check(watch->nccl, watch->nccl->get_unique_id(id),
                             "ncclGetUniqueId"));
        value = (dl_bytes){(const uint8_t *)id, sizeof *id};
    }
    return dl_store_set(meeting->store, key, value, deadline);
}

static int
name_of(const dl_nccl_meeting *meeting, int rank)
{
    return meeting->members == NULL ? rank : meeting->members[rank];
}

/* Writes the verdict, or reads the one that another rank has written before.  `status`
 * is this rank's own outcome, with the thread's error; the result is what holds for
 * all. */
static dl_status
settle(const dl_nccl_meeting *meeting, dl_status status)
{
    dl_error error = *dl_last_error();
    char key[DL_RANK_KEY_SIZE], own[64];
    dl_buffer held = {0};

    snprintf(key, sizeof key, "%s/verdict", meeting->key);
    snprintf(own, sizeof own, "rank %d gave up", name_of(meeting, meeting->rank));
    dl_status asked =
        dl_store_compare_set(meeting->store, dl_bytes_of(key), DL_LITERAL(""),
                             dl_bytes_of(status == DL_OK ? all_are_here : own), &held,
                             dl_deadline_after(VERDICT_PATIENCE));
    bool are_here = asked == DL_OK && held.size == strlen(all_are_here)
                    && memcmp(held.data, all_are_here, held.size) == 0;
    if (status == DL_OK && asked == DL_OK && !are_here) {
        status = dl_fail(DL_TIMEOUT, "%.*s before all ranks had come to it",
                         (int)held.size, (const char *)held.data);
    } else if (status == DL_OK) {
        status = asked;
    } else if (status == DL_TIMEOUT && are_here) {
        status = DL_OK;
    } else {
        (void)dl_fail_again(&error);
    }
    dl_buffer_fini(&held);
    return status;
}

/* Words a timeout.  Keeps the thread's error if all keys exist by now. */
static dl_status
name_absent(const dl_nccl_meeting *meeting, const dl_rank_keys *keys,
            dl_deadline deadline)
{
    dl_error late = *dl_last_error();
    dl_rank_list absent;

    if (dl_rank_keys_absent(keys, meeting->store, &absent) != DL_OK
        || absent.count == 0) {
        return dl_fail_again(&late);
    }
    return dl_fail(DL_TIMEOUT,
                   "rank%s %s did not come to it within %" PRId64
                   "ms; `distlite ps` shows what each rank does",
                   absent.count == 1 ? "" : "s", absent.text,
                   deadline.limit / DL_MILLISECOND);
}

static bool
is_given_up(void *watch)
{
    return dl_nccl_watch_cause(watch) != DL_OK;
}

/* Announces this rank and waits for all others; an abort of the group ends the wait. */
static dl_status
gather(dl_nccl_watch *watch, const dl_nccl_meeting *meeting, const dl_rank_keys *keys,
       dl_deadline deadline, dl_nccl_id *id)
{
    dl_interrupt_set_own(is_given_up, watch);
    dl_status status =
        announce(watch, meeting, keys->keys[meeting->rank], deadline, id);
    if (status == DL_OK) {
        status =
            dl_store_wait(meeting->store, keys->keys, (size_t)keys->size, deadline);
    }
    dl_interrupt_set_own(NULL, NULL);
    if (status == DL_INTERRUPTED) {
        dl_error interrupt = *dl_last_error();
        status = dl_nccl_watch_cause(watch);
        status = status == DL_OK ? dl_fail_again(&interrupt) : status;
    } else if (status == DL_TIMEOUT) {
        status = name_absent(meeting, keys, deadline);
    }
    return settle(meeting, status);
}

static dl_status
take_id(const dl_nccl_meeting *meeting, dl_bytes key, dl_deadline deadline,
        dl_nccl_id *id)
{
    dl_buffer value = {0};
    dl_status status = dl_store_get(meeting->store, key, &value, deadline);

    if (status == DL_OK && value.size != sizeof *id) {
        status =
            dl_fail(DL_PROTOCOL, "the store holds no NCCL id under %s", meeting->key);
    }
    if (status == DL_OK) {
        memcpy(id, value.data, sizeof *id);
    }
    dl_buffer_fini(&value);
    return status;
}

dl_status
dl_nccl_meet(dl_nccl_watch *watch, const dl_nccl_meeting *meeting, dl_deadline deadline,
             dl_nccl_id *id)
{
    dl_rank_keys keys;

    DL_TRY(dl_rank_keys_init(&keys, meeting->size, key_of, meeting));
    keys.names = meeting->members;
    dl_status status = gather(watch, meeting, &keys, deadline, id);
    if (status == DL_OK && id != NULL && meeting->rank > 0) {
        /* The id is in the store already, but the deadline may just have passed. */
        status =
            take_id(meeting, keys.keys[0], dl_deadline_after(VERDICT_PATIENCE), id);
    }
    dl_rank_keys_fini(&keys);
    return status;
}
