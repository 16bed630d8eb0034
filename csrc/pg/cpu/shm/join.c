/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/join.h"

#include "pg/cpu/join_fault.h"

dl_status
dl_join_fail_ended(const dl_join *join, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    DL_TRY(dl_join_fault_check(join->options->store));
    dl_endpoint_describe(join->endpoint, rank, peer);
    return dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
}

dl_status
dl_join_run(const dl_join *join, dl_membership *membership)
{
    *membership = (dl_membership){0};
    dl_status status = join->endpoint->rank == 0 ? dl_join_lead(join, membership)
                                                 : dl_join_follow(join, membership);
    if (status != DL_OK) {
        dl_membership_fini(membership);
    }
    return status;
}

void
dl_membership_fini(dl_membership *membership)
{
    dl_arena_fini(&membership->arena);
    *membership = (dl_membership){0};
}

void
dl_membership_forget(dl_membership *membership)
{
    dl_arena_forget(&membership->arena);
    *membership = (dl_membership){0};
}
