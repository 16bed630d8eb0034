/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/group.h"

/* One function per collective for C callers that know which one they want: the compiler
 * checks that the struct matches the operation. */

dl_status
dl_group_all_reduce(dl_group *group, const dl_all_reduce_args *args,
                    dl_deadline deadline)
{
    return dl_group_run(group, DL_ALL_REDUCE, args, deadline);
}

dl_status
dl_group_broadcast(dl_group *group, const dl_broadcast_args *args, dl_deadline deadline)
{
    return dl_group_run(group, DL_BROADCAST, args, deadline);
}

dl_status
dl_group_reduce(dl_group *group, const dl_reduce_args *args, dl_deadline deadline)
{
    return dl_group_run(group, DL_REDUCE, args, deadline);
}

dl_status
dl_group_all_gather(dl_group *group, const dl_all_gather_args *args,
                    dl_deadline deadline)
{
    return dl_group_run(group, DL_ALL_GATHER, args, deadline);
}

dl_status
dl_group_gather(dl_group *group, const dl_gather_args *args, dl_deadline deadline)
{
    return dl_group_run(group, DL_GATHER, args, deadline);
}

dl_status
dl_group_scatter(dl_group *group, const dl_scatter_args *args, dl_deadline deadline)
{
    return dl_group_run(group, DL_SCATTER, args, deadline);
}

dl_status
dl_group_reduce_scatter(dl_group *group, const dl_reduce_scatter_args *args,
                        dl_deadline deadline)
{
    return dl_group_run(group, DL_REDUCE_SCATTER, args, deadline);
}

dl_status
dl_group_all_to_all(dl_group *group, const dl_all_to_all_args *args,
                    dl_deadline deadline)
{
    return dl_group_run(group, DL_ALL_TO_ALL, args, deadline);
}

dl_status
dl_group_barrier(dl_group *group, dl_deadline deadline)
{
    return dl_group_run(group, DL_BARRIER, NULL, deadline);
}
