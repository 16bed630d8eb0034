/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_rendezvous.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/agree/rank_keys.h"
#include "pg/nccl/rank_marks.h"

/* Time for the requests after the wait: the outcome must be written even if the
 * deadline has passed. */
#define OUTCOME_PATIENCE (2 * DL_SECOND)

static const char all_are_here[] = "all are here";

static dl_bytes
id_key(const void *context, int number, char text[DL_RANK_KEY_SIZE])
{
    const dl_nccl_rendezvous *place = context;

    snprintf(text, DL_RANK_KEY_SIZE, "%s/id/%d", place->key, number);
    return dl_bytes_of(text);
}

/* An id for growing belongs to the parent, of which the first rank is the first one. */
static dl_status
make_id(const dl_nccl_table *nccl, const dl_nccl_origin *origin, dl_deadline deadline,
        dl_nccl_id *id)
{
    if (origin->wanted.way != DL_DEVICE_GROW) {
        return dl_nccl_check(nccl, nccl->get_unique_id(id), "ncclGetUniqueId");
    }
    DL_TRY(dl_nccl_comm_take_turn(origin->parent, deadline));
    dl_status status = dl_nccl_watch_admit(origin->watch);
    if (status == DL_OK) {
        status = dl_nccl_check(nccl, nccl->comm_id(origin->parent->handle, id),
                               "ncclCommGetUniqueId");
    }
    dl_lane_pass(&origin->parent->turn);
    return status;
}

/* Publishes the id that is this rank's to make, if one is. */
static dl_status
put_id(const dl_nccl_watch *watch, const dl_nccl_rendezvous *place, int count,
       dl_deadline deadline)
{
    int ranks = count > 1 ? place->ranks_per_id : place->size;
    /* Zeroed, because old libraries do not write all of it. */
    dl_nccl_id id = {{0}};
    char text[DL_RANK_KEY_SIZE];

    if (place->rank % ranks != 0) {
        return DL_OK;
    }
    DL_TRY(make_id(watch->nccl, &place->origin, deadline, &id));
    return dl_store_set(place->store, id_key(place, place->rank / ranks, text),
                        (dl_bytes){(const uint8_t *)&id, sizeof id}, deadline);
}

static dl_bytes
outcome_key(const dl_nccl_rendezvous *place, char text[DL_RANK_KEY_SIZE])
{
    snprintf(text, DL_RANK_KEY_SIZE, "%s/outcome", place->key);
    return dl_bytes_of(text);
}

static int
rank_in_group(const dl_nccl_rendezvous *place, int rank)
{
    return place->members == NULL ? rank : place->members[rank];
}

/* Writes the outcome, or reads the one that another rank has written before.  `status`
 * is this rank's own outcome, with the thread's error; the result is what holds for
 * all.  The first to give up tells why, as the others may not know which rank is lost. */
static dl_status
agree_on_outcome(const dl_nccl_rendezvous *place, dl_status status)
{
    dl_error error = *dl_last_error();
    char key[DL_RANK_KEY_SIZE], own[DL_ERROR_TEXT_SIZE + 64];
    dl_buffer held = {0};

    snprintf(own, sizeof own, "rank %d gave up before all ranks had joined: %s",
             rank_in_group(place, place->rank),
             status == DL_INTERRUPTED ? "it was interrupted" : error.text);
    dl_status asked =
        dl_store_compare_set(place->store, outcome_key(place, key), DL_LITERAL(""),
                             dl_bytes_of(status == DL_OK ? all_are_here : own), &held,
                             dl_deadline_after(OUTCOME_PATIENCE));
    bool are_here = asked == DL_OK && held.size == strlen(all_are_here)
                    && memcmp(held.data, all_are_here, held.size) == 0;
    if (status == DL_OK && asked == DL_OK && !are_here) {
        status = dl_fail(DL_TIMEOUT, "%.*s", (int)held.size, (const char *)held.data);
    } else if (status == DL_OK) {
        status = asked;
    } else if (status == DL_TIMEOUT && are_here) {
        status = DL_OK;
    } else {
        (void)dl_rethrow(&error);
    }
    dl_buffer_fini(&held);
    return status;
}

static bool
is_given_up(void *watch)
{
    return dl_nccl_watch_cause(watch) != DL_OK;
}

/* Names the ranks that have not come. */
static dl_status
fail_absent_ranks(const dl_nccl_rendezvous *place, const dl_rank_marks *marks,
                  dl_deadline deadline)
{
    dl_error late = *dl_last_error();
    dl_deadline patience = dl_deadline_after(OUTCOME_PATIENCE);
    dl_rank_list absent = {.count = 0};
    int rank = DL_NO_MARK;

    while ((rank = dl_rank_marks_find_absent(marks, rank + 1, patience))
           != DL_NO_MARK) {
        dl_rank_list_add(&absent, rank_in_group(place, rank));
    }
    dl_rank_list_end(&absent);
    return absent.count == 0 ? dl_rethrow(&late)
                             : dl_rank_list_fail(&absent, "it", deadline);
}

/* Announces this rank; the last one of all writes the outcome. */
static dl_status
announce_and_wait(const dl_nccl_rendezvous *place, const dl_rank_marks *marks,
                  dl_deadline deadline)
{
    char text[DL_RANK_KEY_SIZE];
    dl_bytes outcome = outcome_key(place, text);
    bool is_last = false;

    DL_TRY(dl_rank_marks_add(marks, place->rank, deadline, &is_last));
    return is_last ? DL_OK : dl_store_wait(place->store, &outcome, 1, deadline);
}

/* An abort of the group ends the wait. */
static dl_status
await_ranks(dl_nccl_watch *watch, const dl_nccl_rendezvous *place, int id_count,
            dl_deadline deadline)
{
    dl_rank_marks marks = {
        .store = place->store, .step = place->key, .count = place->size};
    dl_status status = DL_OK;

    (void)dl_interrupt_set_own(
        (dl_interrupt_own){.check = is_given_up, .context = watch});
    if (id_count > 0) {
        status = put_id(watch, place, id_count, deadline);
    }
    if (status == DL_OK) {
        status = announce_and_wait(place, &marks, deadline);
    }
    (void)dl_interrupt_set_own((dl_interrupt_own){.check = NULL});
    if (status == DL_INTERRUPTED) {
        dl_error interrupt = *dl_last_error();
        status = dl_nccl_watch_cause(watch);
        status = status == DL_OK ? dl_rethrow(&interrupt) : status;
    } else if (status == DL_TIMEOUT) {
        status = fail_absent_ranks(place, &marks, deadline);
    }
    return agree_on_outcome(place, status);
}

static dl_status
take_ids(const dl_nccl_rendezvous *place, dl_nccl_id *ids, int count,
         dl_deadline deadline)
{
    dl_buffer *values = dl_rank_values_new(count);
    dl_rank_keys keys = {0};
    dl_status status =
        values == NULL ? DL_NO_MEMORY : dl_rank_keys_init(&keys, count, id_key, place);

    if (status == DL_OK) {
        status = dl_rank_keys_get(&keys, place->store, values, deadline);
    }
    for (int i = 0; status == DL_OK && i < count; i++) {
        if (values[i].size != sizeof *ids) {
            status =
                dl_fail(DL_PROTOCOL, "the store holds no NCCL id under %s", place->key);
        } else {
            memcpy(&ids[i], values[i].data, sizeof *ids);
        }
    }
    dl_rank_keys_fini(&keys);
    dl_rank_values_free(values, count);
    return status;
}

dl_status
dl_nccl_meet(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
             dl_deadline deadline, dl_nccl_id *ids, int id_count)
{
    DL_TRY(await_ranks(watch, place, id_count, deadline));
    /* The ids are in the store already, but the deadline may just have passed. */
    return id_count == 0
               ? DL_OK
               : take_ids(place, ids, id_count, dl_deadline_after(OUTCOME_PATIENCE));
}
