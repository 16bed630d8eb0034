/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/environment.h"
#include "base/thread.h"
#include "pg/backend.h"
#include "pg/nccl/nccl_launch.h"
#include "pg/nccl/nccl_make.h"
#include "pg/nccl/nccl_watch.h"

/* So many ranks of one communicator meet at one address. */
#define RANKS_PER_ID 256

typedef struct nccl_backend {
    dl_backend base;
    /* fixed after init */
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    dl_store *store;
    int rank;
    int size;
    dl_device_options options;
    int64_t limit; /* of every operation, from NCCL_TIMEOUT; negative: the call's own */
    uint32_t fork_generation;
    dl_nccl_watch *watch;
    /* used with the group's turn for devices */
    dl_nccl_comm *comm;   /* all ranks'; NULL until it is made, like each pair's */
    dl_nccl_comm **pairs; /* indexed by the other rank */
    uint64_t splits;      /* how often `comm` has been split */
} nccl_backend;

/* Whether some streams of a batch's arrays are being captured, and some are not. */
typedef struct finding {
    const dl_cuda_table *cuda;
    bool has_captured;
    bool has_other;
} finding;

static nccl_backend *
nccl_backend_of(dl_backend *backend)
{
    return (nccl_backend *)(void *)backend;
}

static dl_status
check_stream(const dl_cuda_table *cuda, void *stream, bool *is_captured)
{
    int state = DL_CUDA_CAPTURE_NONE;
    int result = cuda->stream_is_capturing(stream, &state);

    if (result == DL_CUDA_CAPTURE_IMPLICIT) {
        cuda->last_error();
        return dl_fail(DL_INVALID,
                       "the array is ordered by the default stream while another "
                       "stream is being captured into a graph; name that one, with "
                       "stream= or cuda_stream()");
    }
    DL_TRY(dl_cuda_check(cuda, result, "cudaStreamIsCapturing"));
    if (state != DL_CUDA_CAPTURE_NONE && state != DL_CUDA_CAPTURE_ACTIVE) {
        return dl_fail(DL_INVALID,
                       "the graph capture of the array's stream has failed");
    }
    *is_captured = state == DL_CUDA_CAPTURE_ACTIVE;
    return DL_OK;
}

static dl_status
check_streams(finding *self, const dl_op *op, int size)
{
    dl_arrays arrays = dl_call_arrays(op->call, size);
    void *previous = NULL;
    const dl_tensor *tensor;
    bool is_captured = false;

    for (int i = 0; (tensor = dl_arrays_at(&arrays, i)) != NULL; i++) {
        if (i > 0 && tensor->stream == previous) {
            continue;
        }
        previous = tensor->stream;
        DL_TRY(check_stream(self->cuda, tensor->stream, &is_captured));
        self->has_captured = self->has_captured || is_captured;
        self->has_other = self->has_other || !is_captured;
    }
    return DL_OK;
}

/* Checks the communicator's own stream: it joins a capture with the first operation in
 * it, and leaves when the capture ends. */
static dl_status
check_comm(const nccl_backend *self, const dl_nccl_comm *comm, bool is_captured)
{
    bool is_inside = false;

    if (comm == NULL) {
        return is_captured ? dl_fail(DL_INVALID,
                                     "a communicator cannot be made while a graph is "
                                     "being captured; run the operation once before, "
                                     "or, for collectives, give "
                                     "init_process_group a device_id")
                           : DL_OK;
    }
    DL_TRY(check_stream(self->cuda, comm->stream, &is_inside));
    return is_inside && !is_captured
               ? dl_fail(DL_INVALID,
                         "%s is being captured into a graph; until that has ended, "
                         "other streams cannot use it",
                         self->watch->label)
               : DL_OK;
}

/* Finds out whether the streams of the batch's arrays are being captured into a graph.
 * DL_INVALID: only some of them are; or the communicator's stream is and they are not;
 * or they are and there is no communicator, which cannot be made during a capture. */
static dl_status
check_capture(const nccl_backend *self, const dl_batch *batch, const dl_nccl_comm *comm,
              bool *is_captured)
{
    finding found = {.cuda = self->cuda};

    for (size_t i = 0; i < batch->count; i++) {
        DL_TRY(check_streams(&found, &batch->ops[i], self->size));
    }
    if (found.has_captured && found.has_other) {
        return dl_fail(
            DL_INVALID,
            "only some of the streams of the arrays are being captured into a graph");
    }
    *is_captured = found.has_captured;
    return check_comm(self, comm, *is_captured);
}

static bool
is_message(dl_op_type op)
{
    return op == DL_SEND || op == DL_RECV;
}

/* DL_INVALID if the communicator is on another device: it never changes its device. */
static dl_status
check_device(const nccl_backend *self, int device)
{
    return self->comm == NULL || self->comm->device == device
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "the array is on cuda:%d, but %s has used cuda:%d since its "
                         "first operation; a process uses one device",
                         device, self->watch->label, self->comm->device);
}

/* Makes a communicator, unless there is one, and has it watched.  Called with the
 * device current. */
static dl_status
make_comm(nccl_backend *self, const dl_nccl_rendezvous *place, dl_deadline deadline,
          dl_nccl_comm **comm)
{
    dl_nccl_comm *made;

    if (*comm != NULL) {
        return DL_OK;
    }
    DL_TRY(dl_nccl_comm_make(self->watch, place, deadline, &made));
    DL_TRY(dl_nccl_comm_watch(self->watch, made));
    *comm = made;
    return DL_OK;
}

static dl_status
meet_all(nccl_backend *self, const dl_nccl_origin *origin, int device,
         dl_deadline deadline)
{
    dl_nccl_rendezvous place = {
        .store = self->store,
        .key = "nccl/all",
        .rank = self->rank,
        .size = self->size,
        .ranks_per_id = RANKS_PER_ID,
        .device = device,
        .options = &self->options,
        .origin = *origin,
    };

    return make_comm(self, &place, deadline, &self->comm);
}

/* Makes the communicator of this rank and `peer`; both use the same key, whichever of
 * them sends. */
static dl_status
meet_peer(nccl_backend *self, int peer, int device, dl_deadline deadline)
{
    int low = self->rank < peer ? self->rank : peer;
    int high = self->rank < peer ? peer : self->rank;
    int members[2] = {low, high};
    char key[64];
    dl_nccl_rendezvous place = {
        .store = self->store,
        .key = key,
        .rank = self->rank == low ? 0 : 1,
        .size = 2,
        .members = members,
        .device = device,
        .options = &self->options,
    };

    snprintf(key, sizeof key, "nccl/pair/%d-%d", low, high);
    return make_comm(self, &place, deadline, &self->pairs[peer]);
}

/* Returns the communicator of the batch, or NULL if it has not been made. */
static dl_nccl_comm *
comm_of(const nccl_backend *self, const dl_batch *batch)
{
    const dl_call *message = batch->ops[0].call;

    return batch->is_batch || !is_message(message->op) ? self->comm
                                                       : self->pairs[message->peer];
}

static dl_status
find_comm(nccl_backend *self, const dl_batch *batch, int device, dl_nccl_comm **comm)
{
    const dl_call *message = batch->ops[0].call;

    if (batch->is_batch || !is_message(message->op)) {
        DL_TRY(meet_all(self, &(dl_nccl_origin){0}, device, batch->deadline));
    } else {
        DL_TRY(meet_peer(self, message->peer, device, batch->deadline));
    }
    *comm = comm_of(self, batch);
    return DL_OK;
}

/* Orders the communicator's stream after the streams of the arrays.  Uses the work's
 * event, which is recorded again at the end. */
static dl_status
order_after(const nccl_backend *self, const dl_nccl_comm *comm,
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
launch_of(const nccl_backend *self, const dl_op *op, const dl_nccl_comm *comm)
{
    dl_nccl_launch launch = {
        .nccl = self->nccl,
        .cuda = self->cuda,
        .comm = comm->handle,
        .stream = comm->stream,
        .rank = comm->rank,
        .size = comm->size,
        .call = op->call,
    };

    if (is_message(op->call->op)) {
        launch.peer = comm == self->comm ? op->call->peer : 1 - comm->rank;
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
launch_items(nccl_backend *self, dl_nccl_launch *launches, size_t count,
             const dl_nccl_comm *comm, const dl_nccl_work *work)
{
    dl_status status = order_after(self, comm, work);

    for (size_t i = 0; status == DL_OK && i < count; i++) {
        status = dl_nccl_launch_begin(&launches[i]);
    }
    if (status == DL_OK) {
        status = dl_nccl_comm_await(self->watch, comm->handle,
                                    call_nccl(self->nccl, launches, count), "NCCL",
                                    work->deadline);
    }
    for (size_t i = 0; i < count; i++) {
        dl_error error = *dl_last_error();
        dl_status ended = dl_nccl_launch_end(&launches[i], status == DL_OK);
        status = status == DL_OK ? ended : dl_rethrow(&error);
    }
    DL_TRY(status);
    return dl_cuda_check(self->cuda,
                         self->cuda->event_record(work->event, comm->stream),
                         "cudaEventRecord");
}

/* Called with the turn: no other thread is inside the communicator or frees it. */
static dl_status
launch_batch(nccl_backend *self, const dl_batch *batch, dl_nccl_comm *comm,
             dl_nccl_work *work)
{
    dl_nccl_launch one, *launches = &one;

    if (batch->count > 1) {
        launches = calloc(batch->count, sizeof *launches);
    }
    if (launches == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; i < batch->count; i++) {
        launches[i] = launch_of(self, &batch->ops[i], comm);
    }
    dl_status status = launch_items(self, launches, batch->count, comm, work);
    if (launches != &one) {
        free(launches);
    }
    return status;
}

/* Launches a work that is watched.  A teardown that has begun meanwhile takes the turn,
 * too; a thread that gets the turn after it must not use the communicator, so the check
 * is made with the turn. */
static dl_status
launch_watched(nccl_backend *self, const dl_batch *batch, dl_nccl_comm *comm,
               dl_nccl_work *work)
{
    DL_TRY(dl_nccl_comm_take_turn(comm, work->deadline));
    dl_status status = dl_nccl_watch_admit(self->watch);
    if (status == DL_OK) {
        status = launch_batch(self, batch, comm, work);
    }
    dl_lane_pass(&comm->turn);
    return status;
}

/* Leaves a launched work to the watch.  The event of a captured one must not be
 * queried, so such a work is finished at once. */
static void
hand_to_watch(dl_nccl_work *work)
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
drop_failed(nccl_backend *self, dl_nccl_work *work, dl_status status)
{
    char name[DL_NCCL_WORK_TEXT_SIZE];
    dl_error error = *dl_last_error();

    if (status != DL_INTERRUPTED && dl_nccl_watch_cause(self->watch) != DL_OK) {
        error = *dl_last_error();
    } else {
        (void)dl_rethrow(&error);
        dl_nccl_work_describe(work, name, sizeof name);
        dl_fail_while("%s in %s", name, self->watch->label);
        error = *dl_last_error();
    }
    if (dl_nccl_watch_retract(work)) {
        dl_nccl_work_drop(work);
    } else {
        dl_work_unref(&work->work);
    }
    return dl_rethrow(&error);
}

static dl_status
launch_work(nccl_backend *self, const dl_batch *batch, dl_nccl_comm *comm,
            dl_nccl_work *work)
{
    dl_status status = dl_nccl_watch_begin(work);

    if (status != DL_OK) {
        dl_nccl_work_drop(work);
        return status;
    }
    status = launch_watched(self, batch, comm, work);
    if (status != DL_OK) {
        return drop_failed(self, work, status);
    }
    hand_to_watch(work);
    return DL_OK;
}

/* Called before anything is sent, so that a refused call leaves the group usable. */
static dl_status
check_batch(const nccl_backend *self, const dl_batch *batch, int device)
{
    DL_TRY(dl_nccl_watch_admit(self->watch));
    for (size_t i = 0; i < batch->count; i++) {
        const dl_op *op = &batch->ops[i];
        DL_TRY(dl_nccl_launch_check(self->nccl, self->cuda, device, op->call));
    }
    return DL_OK;
}

static dl_status
add_streams(const nccl_backend *self, const dl_batch *batch, dl_nccl_work *work)
{
    for (size_t i = 0; i < batch->count; i++) {
        dl_arrays arrays = dl_call_arrays(batch->ops[i].call, self->size);
        const dl_tensor *tensor;
        for (int k = 0; (tensor = dl_arrays_at(&arrays, k)) != NULL; k++) {
            DL_TRY(dl_nccl_work_add_stream(work, tensor->stream));
            work->work.ignores_streams |= tensor->ignores_streams;
        }
    }
    return DL_OK;
}

/* Makes the work of a batch, with the number of its first operation; 0 for a message. */
static dl_status
work_for(nccl_backend *self, const dl_batch *batch, int device, dl_nccl_work **work)
{
    const dl_op *first = &batch->ops[0];

    DL_TRY(dl_nccl_work_new(self->watch, first->call->op, device, work));
    atomic_store(&(*work)->work.sequence, first->context.sequence);
    (*work)->peer = batch->is_batch || !is_message(first->call->op) ? DL_ANY_RANK
                                                                    : first->call->peer;
    (*work)->deadline =
        self->limit < 0 ? batch->deadline : dl_deadline_after(self->limit);
    dl_status status = add_streams(self, batch, *work);
    if (status != DL_OK) {
        dl_nccl_work_drop(*work);
    }
    return status;
}

/* A failure from here on fails the group, since its ranks may have begun different
 * operations. */
static dl_status
enqueue_checked(nccl_backend *self, const dl_batch *batch, dl_nccl_work *work)
{
    dl_nccl_comm *comm;
    dl_status status = find_comm(self, batch, work->device, &comm);

    if (status != DL_OK) {
        dl_nccl_work_drop(work);
    } else {
        status = launch_work(self, batch, comm, work);
    }
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        dl_nccl_watch_fail(self->watch, &cause);
        (void)dl_rethrow(&error);
    }
    return status;
}

static dl_status
enqueue_entered(nccl_backend *self, const dl_batch *batch, int device, dl_work **work)
{
    dl_nccl_work *made;
    bool is_captured = false;

    DL_TRY(check_capture(self, batch, comm_of(self, batch), &is_captured));
    DL_TRY(work_for(self, batch, device, &made));
    made->is_captured = is_captured;
    DL_TRY(enqueue_checked(self, batch, made));
    *work = &made->work;
    return DL_OK;
}

/* The device is made current for NCCL, and afterwards the program's is restored. */
static dl_status
enqueue_batch(dl_backend *backend, const dl_batch *batch, dl_work **work)
{
    nccl_backend *self = nccl_backend_of(backend);
    dl_arrays arrays = dl_call_arrays(batch->ops[0].call, self->size);
    int device = dl_arrays_at(&arrays, 0)->device_index;
    int previous;

    DL_TRY(check_batch(self, batch, device));
    DL_TRY(check_device(self, device));
    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = enqueue_entered(self, batch, device, work);
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}

static dl_status
connect_all(dl_backend *backend, int device, dl_deadline deadline)
{
    nccl_backend *self = nccl_backend_of(backend);
    int previous;

    DL_TRY(dl_nccl_watch_admit(self->watch));
    DL_TRY(check_device(self, device));
    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = meet_all(self, &(dl_nccl_origin){0}, device, deadline);
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}

/* A communicator that grows must not block (making_new()), as these options want it to;
 * and where the user has chosen the address of ids, NCCL refuses to make one for it. */
static bool
can_grow(const nccl_backend *self)
{
    return self->options.blocking != 1 && !dl_environment_is_on("NCCL_COMM_BLOCKING")
           && getenv("NCCL_COMM_ID") == NULL;
}

/* An operation in progress would disturb NCCL. */
static dl_status
ways_of(dl_backend *backend, dl_deadline deadline, int *ways)
{
    nccl_backend *self = nccl_backend_of(backend);

    *ways = dl_nccl_ways(self->nccl);
    if (!can_grow(self)) {
        *ways &= ~DL_DEVICE_CAN_GROW;
    }
    DL_TRY(dl_nccl_watch_drain(self->watch, deadline));
    if (self->comm != NULL) {
        *ways |= DL_DEVICE_IS_READY;
    }
    return DL_OK;
}

/* Splits the communicator with the parent's device current, and gives the new one to
 * `child` (NULL if the child has no backend of ours).  NCCL orders the ranks of a part
 * by their keys, which is the order of the child's ranks. */
static dl_status
split_entered(nccl_backend *self, const dl_device_split_args *wanted,
              dl_deadline deadline, nccl_backend *child)
{
    char key[48];
    dl_nccl_rendezvous place = {
        .store = self->store,
        .key = key,
        .rank = self->rank,
        .size = self->size,
        .device = self->comm->device,
        .options = child == NULL ? &self->options : &child->options,
        .origin = {.wanted = *wanted, .parent = self->comm, .watch = self->watch},
    };
    dl_nccl_comm *made;

    if (child == NULL) {
        /* A part without a backend of ours needs no communicator. */
        place.origin.wanted.color = -1;
    }
    snprintf(key, sizeof key, "nccl/split/%" PRIu64, self->splits++);
    DL_TRY(dl_nccl_comm_make(self->watch, &place, deadline, &made));
    if (made == NULL) {
        return DL_OK;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): none is made without it */
    made->rank = child->rank;
    made->size = child->size;
    DL_TRY(dl_nccl_comm_watch(child->watch, made));
    child->comm = made;
    return DL_OK;
}

/* Follows the parent with the ranks of `child` and the device of this rank current. */
static dl_status
follow_entered(nccl_backend *parent, const dl_device_split_args *wanted, int device,
               dl_deadline deadline, nccl_backend *child)
{
    dl_nccl_origin origin = {.wanted = *wanted};

    if (wanted->way == DL_DEVICE_SPLIT) {
        return split_entered(parent, wanted, deadline, child);
    }
    if (child == NULL) {
        return DL_OK;
    }
    if (parent != NULL) {
        origin.parent = parent->comm;
        origin.watch = parent->watch;
    }
    return meet_all(child, &origin, device, deadline);
}

/* A parent without a communicator has nothing to split: each part then makes its own.
 * All ranks are in the same state here, since making a communicator needs all of
 * them. */
static dl_status
split_backend(dl_backend *backend, const dl_device_split_args *wanted,
              dl_deadline deadline, dl_backend *child)
{
    nccl_backend *self = backend == NULL ? NULL : nccl_backend_of(backend);
    /* A child that another backend serves connects by itself. */
    bool is_ours = child != NULL && child->ops->split == split_backend;
    const dl_cuda_table *cuda = (self == NULL ? nccl_backend_of(child) : self)->cuda;
    int device = wanted->device, previous;

    if (self != NULL && self->comm == NULL) {
        return DL_OK;
    }
    if (self != NULL) {
        DL_TRY(dl_nccl_watch_admit(self->watch));
        device = self->comm->device;
    }
    DL_TRY(dl_cuda_enter(cuda, device, &previous));
    dl_status status = follow_entered(self, wanted, device, deadline,
                                      is_ours ? nccl_backend_of(child) : NULL);
    dl_cuda_leave(cuda, device, previous);
    return status;
}

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_nccl_watch_fail(nccl_backend_of(backend)->watch, cause);
}

static void
leave_backend(dl_backend *backend)
{
    dl_nccl_watch_leave(nccl_backend_of(backend)->watch);
}

/* In a forked child neither the watch's thread nor the device's context exists: it
 * leaves the watch and the communicators as they are. */
static void
free_backend(dl_backend *backend)
{
    nccl_backend *self = nccl_backend_of(backend);

    if (self->watch != NULL && self->fork_generation == dl_fork_generation()) {
        dl_nccl_watch_free(self->watch);
        dl_nccl_comm_unref(self->comm);
        for (int peer = 0; peer < self->size; peer++) {
            dl_nccl_comm_unref(self->pairs[peer]);
        }
    }
    dl_store_unref(self->store);
    free(self->pairs);
    free(self);
}

static int
device_of(const dl_backend *backend)
{
    const nccl_backend *self = (const nccl_backend *)(const void *)backend;

    return self->comm == NULL ? -1 : self->comm->device;
}

static const dl_backend_ops nccl_ops = {
    .name = "nccl",
    .enqueue = enqueue_batch,
    .connect = connect_all,
    .device = device_of,
    .ways = ways_of,
    .split = split_backend,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* NCCL_TIMEOUT is in seconds; -1 if it is not set.  One that is too long for the clock,
 * such as "inf", never passes. */
static int64_t
limit_from_environment(void)
{
    const char *text = getenv("NCCL_TIMEOUT");
    double limit = text == NULL ? 0 : strtod(text, NULL) * (double)DL_SECOND;

    return !(limit > 0) ? -1 : limit < (double)INT64_MAX ? (int64_t)limit : INT64_MAX;
}

/* Refuses malformed texts once, so that operations can read the switches again. */
static dl_status
check_switches(void)
{
    static const char *const names[] = {
        "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_USE_COMM_NONBLOCKING",
        "TORCH_NCCL_HIGH_PRIORITY",
    };
    bool is_on;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        DL_TRY(dl_environment_flag(names[i], false, &is_on));
    }
    return DL_OK;
}

/* NCCL aborts communicators that share resources together and lets one thread at a time
 * into all of them, while groups fail one by one and have turns of their own.  NCCL's
 * variables override the options. */
static dl_status
check_sharing(const dl_device_options *options)
{
    bool is_split = options->split_share == 1, is_shrunk = options->shrink_share == 1;

    DL_TRY(dl_environment_flag("NCCL_COMM_SPLIT_SHARE_RESOURCES", is_split, &is_split));
    DL_TRY(
        dl_environment_flag("NCCL_COMM_SHRINK_SHARE_RESOURCES", is_shrunk, &is_shrunk));
    return is_split || is_shrunk
               ? dl_fail(
                     DL_UNSUPPORTED,
                     "groups do not share resources of NCCL, which would abort them "
                     "together: leave out config.split_share, config.shrink_share "
                     "and NCCL_COMM_..._SHARE_RESOURCES")
               : DL_OK;
}

static dl_status
open_backend(nccl_backend *self, const dl_backend_options *options)
{
    DL_TRY(check_switches());
    DL_TRY(check_sharing(&self->options));
    DL_TRY(dl_nccl_load(&self->nccl));
    DL_TRY(dl_cuda_load(&self->cuda));
    self->pairs = calloc((size_t)options->size, sizeof *self->pairs);
    if (self->pairs == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_nccl_watch_new(
        self->nccl, self->cuda,
        dl_label_new(options->group_name, options->rank, options->size), &self->watch));
    dl_nccl_watch_set_lost(self->watch, options->lost, options->context);
    return DL_OK;
}

dl_status
dl_nccl_backend_new(const dl_backend_options *options, dl_deadline deadline,
                    dl_backend **backend)
{
    nccl_backend *self = calloc(1, sizeof *self);

    (void)deadline;
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &nccl_ops;
    self->store = dl_store_ref(options->store);
    self->rank = options->rank;
    self->size = options->size;
    self->options = *options->on_device;
    self->limit = limit_from_environment();
    self->fork_generation = dl_fork_generation();
    dl_status status = open_backend(self, options);
    if (status != DL_OK) {
        free_backend(&self->base);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}

dl_status
dl_nccl_version(int *version)
{
    const dl_nccl_table *nccl;

    DL_TRY(dl_nccl_load(&nccl));
    *version = nccl->version;
    return DL_OK;
}

dl_status
dl_nccl_device_of(const void *data, int *device)
{
    const dl_cuda_table *cuda;
    dl_cuda_pointer attributes = {0};

    DL_TRY(dl_cuda_load(&cuda));
    if (data == NULL) {
        /* An empty array, which has no memory on any device. */
        return dl_cuda_check(cuda, cuda->get_device(device), "cudaGetDevice");
    }
    DL_TRY(dl_cuda_check(cuda, cuda->pointer_attributes(&attributes, data),
                         "cudaPointerGetAttributes"));
    *device = attributes.device;
    return DL_OK;
}
