/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_comm.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "base/references.h"
#include "base/thread.h"

/* A communicator in progress is polled without sleeping for AWAKE, since a launch takes
 * only some microseconds, and then every POLL_EVERY. */
#define AWAKE (50 * INT64_C(1000))
#define POLL_EVERY (100 * INT64_C(1000))

/* How long a teardown waits for a thread inside a communicator: at first, and again
 * after it has revoked the communicator. */
#define PATIENCE (20 * DL_MILLISECOND)
#define REVOKE_PATIENCE DL_SECOND

/* How long ncclCommFinalize may take. */
#define FINALIZE_PATIENCE DL_SECOND

dl_status
dl_nccl_comm_take_turn(dl_nccl_comm *comm, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&comm->turn, deadline);

    return status == DL_TIMEOUT ? dl_fail(DL_TIMEOUT,
                                          "another thread's launch has not returned "
                                          "from NCCL within %" PRId64 "ms",
                                          deadline.limit / DL_MILLISECOND)
                                : status;
}

dl_status
dl_nccl_comm_await(dl_nccl_watch *watch, void *handle, int result, const char *call,
                   dl_deadline deadline)
{
    int64_t awake_until = dl_now() + AWAKE;

    while (result == DL_NCCL_IN_PROGRESS) {
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "%s did not end within %" PRId64
                           "ms in %s: a rank did not join, or NCCL cannot reach it",
                           call, deadline.limit / DL_MILLISECOND, watch->label);
        }
        if (dl_now() < awake_until) {
            sched_yield();
        } else {
            DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, POLL_EVERY)));
        }
        DL_TRY(dl_nccl_watch_cause(watch));
        int asked = watch->nccl->comm_error(handle, &result);
        result = asked == DL_NCCL_SUCCESS ? result : asked;
    }
    return dl_nccl_check(watch->nccl, result, call);
}

void
dl_nccl_comm_unref(dl_nccl_comm *comm)
{
    if (comm != NULL && dl_reference_drop(&comm->references)) {
        dl_lane_fini(&comm->turn);
        free(comm);
    }
}

/* Takes the communicator's turn from a thread that is inside the communicator.  In a
 * non-blocking call that thread polls, and returns because the group has failed.  A
 * blocking call is only ended by ncclCommRevoke, which frees nothing and exists from
 * 2.28.7 on.  Returns false when the thread is still inside. */
static bool
take_over(const dl_nccl_watch *watch, dl_nccl_comm *comm)
{
    dl_lane *turn = &comm->turn;

    if (dl_lane_take(turn, dl_deadline_after(PATIENCE)) == DL_OK) {
        return true;
    }
    if (watch->nccl->comm_revoke != NULL && !comm->is_waiting) {
        (void)watch->nccl->comm_revoke(comm->handle, 0);
    }
    return dl_lane_take(turn, dl_deadline_after(REVOKE_PATIENCE)) == DL_OK;
}

/* Aborts or destroys the communicator.  If a thread is still inside, only an abort can
 * end its call; the stream and the memory then stay allocated, as that thread may use
 * them. */
static void
close_handle(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted)
{
    bool has_turn = take_over(watch, comm);

    if (is_aborted || !has_turn) {
        watch->nccl->comm_abort(comm->handle);
    } else {
        int result = watch->nccl->comm_finalize(comm->handle);
        /* The result is ignored: the communicator is destroyed in any case. */
        dl_nccl_comm_await(watch, comm->handle, result, "ncclCommFinalize",
                           dl_deadline_after(FINALIZE_PATIENCE));
        watch->nccl->comm_destroy(comm->handle);
    }
    if (has_turn) {
        dl_lane_pass(&comm->turn);
    } else {
        dl_reference_take(&comm->references);
        comm->stream = NULL;
    }
}

/* Any of these calls of NCCL may hang when a peer is gone.  NCCL makes its device current
 * by itself; an abort must not wait for the device before it has ended the kernels. */
void
dl_nccl_comm_free(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted)
{
    const dl_cuda_table *cuda = watch->cuda;
    int previous = comm->device;

    if (comm->handle != NULL) {
        close_handle(watch, comm, is_aborted);
        comm->handle = NULL;
    }
    if (comm->stream != NULL) {
        (void)dl_cuda_enter(cuda, comm->device, &previous);
        cuda->stream_destroy(comm->stream);
        dl_cuda_leave(cuda, comm->device, previous);
        comm->stream = NULL;
    }
    dl_nccl_comm_unref(comm);
}

dl_status
dl_nccl_comm_watch(dl_nccl_watch *watch, dl_nccl_comm *comm)
{
    if (dl_nccl_watch_comm(watch, comm) == DL_OK) {
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_nccl_comm_free(watch, comm, true);
    return dl_rethrow(&error);
}
