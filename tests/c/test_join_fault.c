/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/join_fault.h"

#include "check.h"
#include "pg/cpu/peer.h"
#include "store/hash_store.h"

static dl_store *store;

/* Fails as a rank that has waited for another one of this process. */
static dl_status
fail_waiting(int rank)
{
    char host[DL_HOST_NAME_SIZE];
    char text[DL_PEER_TEXT_SIZE];
    dl_peer self;

    dl_peer_own(&self, host);
    dl_peer_describe(&self, rank, text);
    return dl_fail(DL_TIMEOUT, "timed out after 5ms: waiting for %s, as it said", text);
}

static void
leave_waiting(int rank, int awaited)
{
    (void)fail_waiting(awaited);
    dl_join_fault_publish(store, rank);
}

CHECK_CASE(whom_the_awaited_ranks_wait_for_is_found)
{
    CHECK_OK(dl_hash_store_new(&store));
    for (int rank = 1; rank < 100; rank++) {
        leave_waiting(rank, rank + 1);
    }
    (void)fail_waiting(1);
    CHECK_STATUS(dl_join_fault_check_late(store), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 99 (pid ");
    CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 100 (pid ");
    dl_store_unref(store);
}

/* As after a rank that had left whom it waited for, and then went on to wait for one that
 * waits for it. */
CHECK_CASE(ranks_that_wait_in_a_circle_are_not_followed_for_ever)
{
    for (int size = 1; size < 8; size++) {
        CHECK_OK(dl_hash_store_new(&store));
        for (int rank = 1; rank < 5 + size; rank++) {
            leave_waiting(rank, rank + 1);
        }
        leave_waiting(5 + size, 6);
        (void)fail_waiting(1);
        CHECK_OK(dl_join_fault_check_late(store));
        CHECK_STATUS(dl_last_error()->status, DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "5ms: waiting for rank 1 (pid ");
        dl_store_unref(store);
    }
}

/* The time is that of all together. */
CHECK_CASE(one_that_says_nothing_is_awaited_for_a_moment)
{
    int64_t began = dl_now();

    CHECK_OK(dl_hash_store_new(&store));
    (void)fail_waiting(1);
    CHECK_OK(dl_join_fault_check_late(store));
    CHECK_CONTAINS(dl_last_error()->text, "5ms: waiting for rank 1 (pid ");
    CHECK(dl_now() - began < DL_SECOND + CHECK_SLACK);
    dl_store_unref(store);
}
