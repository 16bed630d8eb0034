/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "pg/nccl/nccl_comm.h"
#include "pg/nccl/nccl_launch.h"
#include "pg/nccl/nccl_state.h"

static bool
is_message(dl_op_type op)
{
    return op == DL_SEND || op == DL_RECV;
}

/* DL_INVALID if the communicator is on another device: it never changes its device. */
static dl_status
check_device(const dl_nccl_backend *self, int device)
{
    return self->comm == NULL || self->comm->device == device
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "the array is on cuda:%d, but %s works on cuda:%d since its "
                         "first operation; one process uses one device",
                         device, self->watch->label, self->comm->device);
}

/* Makes a communicator, unless there is one, and has it watched.  Called with the
 * device current. */
static dl_status
meet(dl_nccl_backend *self, const dl_nccl_meeting *meeting, dl_deadline deadline,
     dl_nccl_comm **comm)
{
    dl_nccl_comm *made;

    if (*comm != NULL) {
        return DL_OK;
    }
    DL_TRY(dl_nccl_comm_meet(self->watch, meeting, deadline, &made));
    DL_TRY(dl_nccl_watch_comm(self->watch, made));
    *comm = made;
    return DL_OK;
}

static dl_status
meet_all(dl_nccl_backend *self, int device, dl_deadline deadline)
{
    dl_nccl_meeting meeting = {
        .store = self->store,
        .key = "nccl/all",
        .rank = self->rank,
        .size = self->size,
        .device = device,
        .options = &self->options,
    };

    return meet(self, &meeting, deadline, &self->comm);
}

/* Makes the communicator of this rank and `peer`; both use the same key, whichever of
 * them sends. */
static dl_status
meet_peer(dl_nccl_backend *self, int peer, int device, dl_deadline deadline)
{
    int low = self->rank < peer ? self->rank : peer;
    int high = self->rank < peer ? peer : self->rank;
    int members[2] = {low, high};
    char key[64];
    dl_nccl_meeting meeting = {
        .store = self->store,
        .key = key,
        .rank = self->rank == low ? 0 : 1,
        .size = 2,
        .members = members,
        .device = device,
        .options = &self->options,
    };

    snprintf(key, sizeof key, "nccl/pair/%d-%d", low, high);
    return meet(self, &meeting, deadline, &self->pairs[peer]);
}

/* Returns the communicator of the call, or NULL if it has not been made. */
static dl_nccl_comm *
comm_of(const dl_nccl_backend *self, const dl_device_call *call)
{
    const dl_message_args *message = call->items[0].args;

    return call->is_batch || !is_message(call->items[0].op)
               ? self->comm
               : self->pairs[message->peer];
}

static dl_status
find_comm(dl_nccl_backend *self, const dl_device_call *call, int device,
          dl_nccl_comm **comm)
{
    const dl_message_args *message = call->items[0].args;

    if (call->is_batch || !is_message(call->items[0].op)) {
        DL_TRY(meet_all(self, device, call->deadline));
    } else {
        DL_TRY(meet_peer(self, message->peer, device, call->deadline));
    }
    *comm = comm_of(self, call);
    return DL_OK;
}

/* Orders the communicator's stream after the streams of the arrays.  Uses the work's
 * event, which is recorded again at the end. */
static dl_status
order_after(const dl_nccl_backend *self, const dl_nccl_comm *comm,
            const dl_nccl_work *work)
{
    for (size_t i = 0; i < work->stream_count; i++) {
        DL_TRY(dl_cuda_check(self->cuda,
                             self->cuda->event_record(work->event, work->streams[i]),
                             "cudaEventRecord"));
        DL_TRY(dl_cuda_check(self->cuda,
                             self->cuda->stream_wait(comm->stream, work->event, 0),
                             "cudaStreamWaitEvent"));
    }
    return DL_OK;
}

static dl_nccl_launch
launch_of(const dl_nccl_backend *self, const dl_device_item *item,
          const dl_nccl_comm *comm)
{
    const dl_message_args *message = item->args;
    dl_nccl_launch launch = {
        .nccl = self->nccl,
        .cuda = self->cuda,
        .comm = comm->handle,
        .stream = comm->stream,
        .rank = comm->rank,
        .size = comm->size,
        .op = item->op,
        .args = item->args,
    };

    if (is_message(item->op)) {
        launch.peer = comm == self->comm ? message->peer : 1 - comm->rank;
    }
    return launch;
}

/* Always makes the calls as a group, which launches nothing if one of them fails; for a
 * single call a group costs nothing. */
static int
call_nccl(const dl_nccl_table *nccl, const dl_nccl_launch *launches, size_t count)
{
    int result = nccl->group_start();

    for (size_t i = 0; !dl_nccl_has_failed(result) && i < count; i++) {
        result = dl_nccl_launch_op(&launches[i]);
    }
    /* Also after a failure, or the thread would stay inside the group of calls. */
    int ended = nccl->group_end();
    return dl_nccl_has_failed(result) ? result : ended;
}

/* Enqueues everything on the communicator's stream, and records the work's event. */
static dl_status
launch_items(dl_nccl_backend *self, dl_nccl_launch *launches, size_t count,
             const dl_nccl_comm *comm, const dl_nccl_work *work)
{
    dl_status status = order_after(self, comm, work);

    for (size_t i = 0; status == DL_OK && i < count; i++) {
        status = dl_nccl_launch_begin(&launches[i]);
    }
    if (status == DL_OK) {
        status = dl_nccl_comm_settle(self->watch, comm->handle,
                                     call_nccl(self->nccl, launches, count), "NCCL",
                                     work->deadline);
    }
    for (size_t i = 0; i < count; i++) {
        dl_error error = *dl_last_error();
        dl_status ended = dl_nccl_launch_end(&launches[i], status == DL_OK);
        status = status == DL_OK ? ended : dl_fail_again(&error);
    }
    DL_TRY(status);
    return dl_cuda_check(self->cuda,
                         self->cuda->event_record(work->event, comm->stream),
                         "cudaEventRecord");
}

/* Called with the turn: no other thread is inside the communicator or frees it. */
static dl_status
launch_call(dl_nccl_backend *self, const dl_device_call *call, dl_nccl_comm *comm,
            dl_nccl_work *work)
{
    dl_nccl_launch one, *launches = &one;

    if (call->count > 1) {
        launches = calloc(call->count, sizeof *launches);
    }
    if (launches == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; i < call->count; i++) {
        launches[i] = launch_of(self, &call->items[i], comm);
    }
    dl_status status = launch_items(self, launches, call->count, comm, work);
    if (launches != &one) {
        free(launches);
    }
    return status;
}

/* Launches a work that is watched.  A teardown that has begun meanwhile takes the turn,
 * too; a thread that gets the turn after it must not use the communicator, so the check
 * is made with the turn. */
static dl_status
launch_watched(dl_nccl_backend *self, const dl_device_call *call, dl_nccl_comm *comm,
               dl_nccl_work *work)
{
    DL_TRY(dl_nccl_comm_take_turn(comm, work->deadline));
    dl_status status = dl_nccl_watch_admit(self->watch);
    if (status == DL_OK) {
        status = launch_call(self, call, comm, work);
    }
    dl_lane_pass(&comm->family->turn);
    return status;
}

/* Leaves a launched work to the watch.  The event of a captured one must not be
 * queried, so such a work is finished at once. */
static void
hand_over(dl_nccl_work *work)
{
    if (!work->is_captured) {
        dl_nccl_watch_launched(work);
        return;
    }
    dl_nccl_watch_graph(work->watch);
    if (dl_nccl_watch_retract(work)) {
        dl_work_finish(&work->work, DL_OK);
        dl_work_unref(&work->work);
    }
}

/* Drops a work whose launch has failed, and returns the error: the group's cause if
 * there is one, which tells more than NCCL's error after an abort. */
static dl_status
give_up(dl_nccl_backend *self, dl_nccl_work *work, dl_status status)
{
    char name[DL_NCCL_WORK_TEXT_SIZE];
    dl_error error = *dl_last_error();

    if (status != DL_INTERRUPTED && dl_nccl_watch_cause(self->watch) != DL_OK) {
        error = *dl_last_error();
    } else {
        (void)dl_fail_again(&error);
        dl_nccl_work_describe(work, name, sizeof name);
        dl_fail_while("%s in %s", name, self->watch->label);
        error = *dl_last_error();
    }
    if (dl_nccl_watch_retract(work)) {
        dl_nccl_work_drop(work);
    } else {
        dl_work_unref(&work->work);
    }
    return dl_fail_again(&error);
}

static dl_status
launch(dl_nccl_backend *self, const dl_device_call *call, dl_nccl_comm *comm,
       dl_nccl_work *work)
{
    dl_status status = dl_nccl_watch_begin(work);

    if (status != DL_OK) {
        dl_nccl_work_drop(work);
        return status;
    }
    status = launch_watched(self, call, comm, work);
    if (status != DL_OK) {
        return give_up(self, work, status);
    }
    hand_over(work);
    return DL_OK;
}

/* Called before anything is sent, so that a refused call leaves the group usable. */
static dl_status
check_call(const dl_nccl_backend *self, const dl_device_call *call, int device)
{
    DL_TRY(dl_nccl_watch_admit(self->watch));
    for (size_t i = 0; i < call->count; i++) {
        const dl_device_item *item = &call->items[i];
        DL_TRY(
            dl_nccl_launch_check(self->nccl, self->cuda, device, item->op, item->args));
    }
    return DL_OK;
}

static dl_status
add_streams(const dl_nccl_backend *self, const dl_device_call *call, dl_nccl_work *work)
{
    for (size_t i = 0; i < call->count; i++) {
        dl_arrays arrays =
            dl_arguments_arrays(call->items[i].op, call->items[i].args, self->size);
        const dl_tensor *tensor;
        for (int k = 0; (tensor = dl_arrays_at(&arrays, k)) != NULL; k++) {
            DL_TRY(dl_nccl_work_add_stream(work, tensor->stream));
        }
    }
    return DL_OK;
}

/* Makes the work of a call, with the number of its first operation; 0 for a message. */
static dl_status
work_for(dl_nccl_backend *self, const dl_device_call *call, int device,
         dl_nccl_work **work)
{
    const dl_device_item *first = &call->items[0];

    DL_TRY(dl_nccl_work_new(self->watch, first->op, device, work));
    atomic_store(&(*work)->work.sequence, first->sequence);
    (*work)->peer = call->is_batch || !is_message(first->op)
                        ? DL_ANY_RANK
                        : ((const dl_message_args *)first->args)->peer;
    (*work)->deadline =
        self->limit < 0 ? call->deadline : dl_deadline_after(self->limit);
    dl_status status = add_streams(self, call, *work);
    if (status != DL_OK) {
        dl_nccl_work_drop(*work);
    }
    return status;
}

/* A failure from here on fails the group, since its ranks may have begun different
 * operations. */
static dl_status
enqueue_checked(dl_nccl_backend *self, const dl_device_call *call, dl_nccl_work *work)
{
    dl_nccl_comm *comm;
    dl_status status = find_comm(self, call, work->device, &comm);

    if (status != DL_OK) {
        dl_nccl_work_drop(work);
    } else {
        status = launch(self, call, comm, work);
    }
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        dl_nccl_watch_fail(self->watch, &cause);
        (void)dl_fail_again(&error);
    }
    return status;
}

static dl_status
enqueue_entered(dl_nccl_backend *self, const dl_device_call *call, int device,
                dl_work **work)
{
    dl_nccl_work *made;
    bool is_captured;

    DL_TRY(dl_nccl_capture_look(self, call, comm_of(self, call), &is_captured));
    DL_TRY(work_for(self, call, device, &made));
    made->is_captured = is_captured;
    DL_TRY(enqueue_checked(self, call, made));
    *work = &made->work;
    return DL_OK;
}

/* The device is made current for NCCL, and afterwards the program's is restored. */
dl_status
dl_nccl_enqueue(dl_device_backend *backend, const dl_device_call *call, dl_work **work)
{
    dl_nccl_backend *self = dl_nccl_self(backend);
    dl_arrays arrays =
        dl_arguments_arrays(call->items[0].op, call->items[0].args, self->size);
    int device = dl_arrays_at(&arrays, 0)->device_index;
    int previous;

    DL_TRY(check_call(self, call, device));
    DL_TRY(check_device(self, device));
    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = enqueue_entered(self, call, device, work);
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}

dl_status
dl_nccl_connect(dl_device_backend *backend, int device, dl_deadline deadline)
{
    dl_nccl_backend *self = dl_nccl_self(backend);
    int previous;

    DL_TRY(dl_nccl_watch_admit(self->watch));
    DL_TRY(check_device(self, device));
    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = meet_all(self, device, deadline);
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}
