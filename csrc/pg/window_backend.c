/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/window_backend.h"

#include <inttypes.h>
#include <stdio.h>

#include "pg/cpu/cpu_backend.h"
#include "pg/group_state.h"

/* Gives the backend to the group, unless that has ended meanwhile. */
static dl_status
install_backend(dl_group *group, dl_backend *made)
{
    pthread_mutex_lock(&group->lock);
    dl_status status =
        atomic_load(&group->is_broken) ? dl_fail_again(&group->cause) : DL_OK;
    if (status == DL_OK) {
        group->host.window_backend = made;
    }
    pthread_mutex_unlock(&group->lock);
    if (status != DL_OK) {
        dl_error cause = *dl_last_error();
        made->ops->abort(made, &cause);
        made->ops->free(made);
        return dl_fail_again(&cause);
    }
    return DL_OK;
}

/* Requires the turn. */
static dl_status
make_backend(dl_group *group, dl_deadline deadline)
{
    dl_backend_options options = {
        .store = group->store,
        .rank = group->rank,
        .size = group->size,
        .group_name = group->name,
        .backend_name = "cpu",
    };
    dl_backend *made;

    DL_TRY(dl_cpu_backend_new(&options, deadline, &made));
    return install_backend(group, made);
}

/* Breaks the group with the thread's last error, which is kept. */
static void
break_group_of_windows(dl_group *group)
{
    dl_error error = *dl_last_error();
    dl_error cause = dl_error_for_others();
    dl_error told = {.status = cause.status};

    snprintf(told.text, sizeof told.text,
             "group %.200s is broken: no windows could be made: %.1800s", group->name,
             cause.text);
    dl_group_fail(group, &told);
    (void)dl_fail_again(&error);
}

dl_status
dl_window_backend_open(dl_group *group, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&group->host.lane, deadline);

    if (status == DL_TIMEOUT) {
        return dl_fail(DL_TIMEOUT,
                       "window in group %s on rank %d: the operations before it have "
                       "not ended within %" PRId64 "ms",
                       group->name, group->rank, deadline.limit / DL_MILLISECOND);
    }
    DL_TRY(status);
    status = dl_group_admit(group);
    if (status == DL_OK && group->host.window_backend == NULL) {
        status = make_backend(group, deadline);
    }
    if (status != DL_OK) {
        break_group_of_windows(group);
    }
    dl_group_pass_turn(group, &group->host);
    return status;
}
