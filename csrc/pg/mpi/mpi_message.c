/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks, by MPI_Isend and MPI_Irecv; receives from any source are
 * matched as mpi_match.h describes.  A thread that waits polls the requests; the runner
 * polls those that no thread waits for.  A receive can be cancelled, a send cannot.
 *
 * MPI does not compare types, so each message begins with a head that describes its
 * elements.  Small contents follow the head.  Large contents are a message of their
 * own, whose tag is in the head, and go from array to array.  The array is not touched
 * before the head has been checked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pg/mpi/mpi_match.h"
#include "pg/mpi/mpi_probe.h"
#include "pg/mpi/mpi_state.h"
#include "pg/record/blocked_threads.h"
#include "tensor/strided.h"

/* How long MPI may take to cancel a receive that was given up. */
#define WITHDRAWAL DL_SECOND

/* Contents whose bytes an int cannot count are counted in blocks of this size. */
#define UNIT ((size_t)1 << 20)

typedef dl_mpi_head head;
typedef dl_mpi_frame frame;

typedef struct message {
    dl_work work;
    dl_mpi_task task;
    /* fixed after init */
    bool is_task; /* the runner polls it, and has the maker's reference */
    dl_mpi_comm *comm;
    dl_tensor tensor;   /* the array; shape and strides of one with gaps follow */
    void *copy;         /* contiguous, if the array cannot be used; or NULL */
    int awaited;        /* as in dl_mpi_pace */
    int peer, data_tag; /* of a send of large contents */
    frame *frame;
    bool has_full_frame; /* with room for dl_mpi_most_along() */
    dl_mpi_handle type;  /* a datatype of our own; or 0 */
    dl_deadline deadline;
    /* guarded by lock */
    pthread_mutex_t lock;
    dl_mpi_handle head_request; /* 0: the receive waits for its match */
    dl_mpi_match match;
    dl_mpi_handle data_request;
    bool is_head_pending; /* which of these two are in flight */
    bool is_head_here;    /* a probe had received the head */
    bool is_data_pending;
    bool is_refused;   /* the contents in flight do not match the array */
    dl_error *refusal; /* the reason; NULL also without memory for it */
    bool is_withdrawn;
    bool is_left;           /* its requests are left to MPI */
    dl_error *why;          /* of the withdrawal; NULL without memory for it */
    dl_deadline withdrawal; /* when a withdrawn receive is left to MPI */
} message;

static message *
message_of(dl_work *work)
{
    return (message *)(void *)work;
}

static const char *
name_of(const message *self)
{
    return dl_op_type_name((uint8_t)self->work.op);
}

/* What MPI may still use was left to it before, and is not freed here. */
static void
free_message(dl_work *work)
{
    message *self = message_of(work);

    if (self->type != 0 && dl_mpi_world_is_open()) {
        self->comm->mpi->type_free(self->type);
    }
    if (self->has_full_frame) {
        self->frame = atomic_exchange(&self->comm->spare, self->frame);
    }
    free(self->frame);
    dl_mpi_comm_unref(self->comm);
    pthread_mutex_destroy(&self->lock);
    free(self->copy);
    free(self->refusal);
    free(self->why);
    dl_work_fini(work);
    free(self);
}

/* Returns whether the receive has not been handed to MPI yet. */
static bool
waits_for_match(const message *self)
{
    return self->is_head_pending && self->head_request == 0;
}

/* Cancels a receive, with the thread's last error as the reason.  A send goes on, since
 * MPI has no way to cancel it, and so does a receive whose contents are in flight. */
static void
take_back_locked(message *self)
{
    if (!self->is_withdrawn) {
        self->withdrawal = dl_deadline_after(WITHDRAWAL);
        self->why = malloc(sizeof *self->why);
        if (self->why != NULL) {
            *self->why = *dl_last_error();
        }
        self->is_withdrawn = true;
    }
    if (waits_for_match(self)) {
        dl_mpi_match_take_back(self->comm, &self->match);
    } else if (self->work.op != DL_SEND && self->is_head_pending
               && dl_mpi_world_is_open()) {
        self->comm->mpi->cancel(&self->head_request);
    }
}

/* Leaves the requests to MPI, which may use their memory for an unlimited time: heads and
 * copies are freed once MPI has completed them, and keeps_memory tells the owner of an
 * array that it must stay. */
static void
leave_to_mpi_locked(message *self)
{
    int result;

    if (waits_for_match(self)
        && (!dl_mpi_match_look(self->comm, &self->match, &result, &self->head_request)
            || result != 0)) {
        return; /* MPI does not have the receive */
    }
    if (self->is_head_pending) {
        dl_mpi_leftover_add(self->comm->mpi, self->head_request, self->frame);
        self->frame = NULL;
    }
    if (self->is_data_pending) {
        dl_mpi_leftover_add(self->comm->mpi, self->data_request, self->copy);
        self->work.keeps_memory = self->copy == NULL;
        self->copy = NULL;
    }
    atomic_store(&self->comm->has_pending, true);
    self->is_left = true;
}

static dl_status
fail_withdrawn(const message *self)
{
    return self->why == NULL ? dl_fail_no_memory() : dl_fail_again(self->why);
}

static dl_status
fail_call(const message *self, int result, const char *call)
{
    dl_mpi_check(self->comm->mpi, result, call);
    return dl_fail_while("%s in group %s on rank %d", name_of(self),
                         self->comm->group_name, self->comm->rank);
}

static bool
has_ended(const message *self, dl_mpi_handle *request, dl_mpi_status *status,
          int *result)
{
    int is_done = 0;

    *result = self->comm->mpi->test(request, &is_done, status);
    return is_done || *result != 0;
}

static bool
test_send_locked(message *self, dl_status *outcome)
{
    int results[2] = {0, 0};

    if (self->is_head_pending) {
        self->is_head_pending =
            !has_ended(self, &self->head_request, NULL, &results[0]);
    }
    if (self->is_data_pending) {
        self->is_data_pending =
            !has_ended(self, &self->data_request, NULL, &results[1]);
        if (!self->is_data_pending) {
            dl_mpi_comm_give_tag(self->comm, self->peer, self->data_tag);
        }
    }
    int result = results[0] != 0 ? results[0] : results[1];
    if (result != 0) {
        if (self->is_head_pending || self->is_data_pending) {
            leave_to_mpi_locked(self);
        }
        *outcome = fail_call(self, result, "MPI_Isend");
        return true;
    }
    if (self->is_head_pending || self->is_data_pending) {
        return false;
    }
    *outcome = self->is_withdrawn ? fail_withdrawn(self) : DL_OK;
    return true;
}

static dl_status
check_head(const message *self, const head *theirs)
{
    const dl_tensor *tensor = &self->tensor;
    size_t size = dl_tensor_size(tensor);
    char dtypes[2][DL_DTYPE_TEXT_SIZE];

    if (theirs->dtype != (uint8_t)tensor->dtype
        || theirs->code != tensor->opaque_code) {
        dl_dtype_describe((dl_dtype)theirs->dtype, theirs->code, dtypes[0]);
        dl_dtype_describe(tensor->dtype, tensor->opaque_code, dtypes[1]);
        return dl_fail(DL_MISMATCH,
                       "recv in group %s: the message of rank %d has dtype %s, but the "
                       "receive of rank %d expects %s",
                       self->comm->group_name, self->work.source, dtypes[0],
                       self->comm->rank, dtypes[1]);
    }
    if (theirs->size > size) {
        return dl_fail(DL_MISMATCH,
                       "recv in group %s: the message of rank %d of %" PRIu64
                       " bytes does not fit into the %zu bytes of rank %d's array",
                       self->comm->group_name, self->work.source, theirs->size, size,
                       self->comm->rank);
    }
    return DL_OK;
}

static void
put_contents(message *self, const void *contents, size_t size)
{
    if (self->tensor.is_contiguous) {
        memcpy(self->tensor.data, contents, size);
    } else {
        dl_strided_scatter_part(&self->tensor, contents, 0, size);
    }
}

/* Makes a datatype of exactly `size` bytes: whole units, and a rest in bytes. */
static dl_status
make_type(message *self, size_t size, dl_mpi_part *part)
{
    const dl_mpi_table *mpi = self->comm->mpi;
    dl_mpi_handle unit;
    size_t units = size / UNIT;
    int counts[2] = {(int)units, (int)(size % UNIT)};
    int64_t offsets[2] = {0, (int64_t)(units * UNIT)};

    DL_TRY(dl_mpi_check(mpi, mpi->type_contiguous((int)UNIT, mpi->byte, &unit),
                        "MPI_Type_contiguous"));
    dl_mpi_handle types[2] = {unit, mpi->byte};
    int result = mpi->type_pair(counts, offsets, types, &self->type);
    mpi->type_free(unit);
    DL_TRY(dl_mpi_check(mpi, result, "MPI_Type_create_struct"));
    part->count = 1;
    part->type = self->type;
    return DL_OK;
}

/* Describes large contents to MPI: the array itself, or a copy if it has gaps or the
 * contents are refused. */
static dl_status
make_part(message *self, size_t size, dl_mpi_part *part)
{
    *part = (dl_mpi_part){self->tensor.data, (int)size, self->comm->mpi->byte};
    if (!self->tensor.is_contiguous || self->is_refused) {
        self->copy = malloc(size);
        if (self->copy == NULL) {
            return dl_fail_no_memory();
        }
        part->data = self->copy;
        if (self->work.op == DL_SEND) {
            dl_strided_gather_part(self->copy, &self->tensor, 0, size);
        }
    }
    return size > self->comm->piece ? make_type(self, size, part) : DL_OK;
}

static void
keep_refusal(message *self)
{
    self->is_refused = true;
    self->refusal = malloc(sizeof *self->refusal);
    if (self->refusal != NULL) {
        *self->refusal = *dl_last_error();
    }
}

/* Refused contents are received all the same, into memory of their size, so that the
 * sender's wait ends.  A shorter buffer does not suffice: some MPIs write beyond its
 * end.  Without such memory the sender waits until its deadline. */
static dl_status
receive_contents(message *self, const head *theirs, dl_status verdict)
{
    const dl_mpi_comm *comm = self->comm;
    dl_mpi_part part;

    if (verdict != DL_OK) {
        keep_refusal(self);
    }
    DL_TRY(make_part(self, theirs->size, &part));
    int result = comm->mpi->irecv(&part, self->work.source, theirs->tag, comm->handle,
                                  &self->data_request);
    if (result != 0) {
        return fail_call(self, result, "MPI_Irecv");
    }
    self->is_data_pending = true;
    return DL_OK;
}

/* Handles a head that has arrived.  Afterwards the message has ended, with the status
 * that is returned, or its contents are pending. */
static dl_status
take_head(message *self)
{
    const head *theirs = &self->frame->head;
    dl_status verdict = check_head(self, theirs);

    if (theirs->tag != 0) {
        return receive_contents(self, theirs, verdict);
    }
    if (verdict == DL_OK && theirs->size > 0) {
        put_contents(self, self->frame->contents, theirs->size);
    }
    return verdict;
}

static dl_status
conclude_contents(message *self, int result)
{
    if (self->is_refused) {
        return self->refusal == NULL ? dl_fail_no_memory()
                                     : dl_fail_again(self->refusal);
    }
    if (result != 0) {
        return fail_call(self, result, "MPI_Irecv");
    }
    if (self->copy != NULL) {
        put_contents(self, self->copy, self->frame->head.size);
    }
    return DL_OK;
}

static bool
test_receive_locked(message *self, dl_status *outcome)
{
    dl_mpi_status status = {.source = -1};
    int result;

    if (self->is_head_here) {
        self->is_head_here = false;
        *outcome = take_head(self);
        if (!self->is_data_pending) {
            return true;
        }
    }
    if (self->is_head_pending) {
        result = 0;
        if (waits_for_match(self)
            && !dl_mpi_match_look(self->comm, &self->match, &result,
                                  &self->head_request)) {
            *outcome = self->is_withdrawn ? fail_withdrawn(self) : DL_OK;
            return self->is_withdrawn;
        }
        if (result == 0 && !has_ended(self, &self->head_request, &status, &result)) {
            return false;
        }
        self->is_head_pending = false;
        if (result != 0 || status.is_cancelled) {
            *outcome = result != 0 ? fail_call(self, result, "MPI_Irecv")
                                   : fail_withdrawn(self);
            return true;
        }
        self->work.source = status.source;
        *outcome = take_head(self);
        if (!self->is_data_pending) {
            return true;
        }
    }
    if (!has_ended(self, &self->data_request, NULL, &result)) {
        return false;
    }
    self->is_data_pending = false;
    *outcome = conclude_contents(self, result);
    return true;
}

/* Returns whether the message has ended; `*outcome` is then its status. */
static bool
test_locked(message *self, dl_status *outcome)
{
    *outcome = dl_mpi_world_admit();
    if (*outcome != DL_OK) {
        return true;
    }
    if (self->is_left) {
        return false; /* MPI is about to end, and so is this process */
    }
    return self->work.op == DL_SEND ? test_send_locked(self, outcome)
                                    : test_receive_locked(self, outcome);
}

/* Drops the maker's reference, which a task leaves to the runner while that looks at
 * it; the caller has its own. */
static void
drop_maker(message *self)
{
    if (!self->is_task || dl_mpi_runner_remove(&self->task)) {
        dl_work_unref(&self->work);
    }
}

/* Polls the message once, and returns whether it has ended.  The call that finds its
 * end drops the maker's reference. */
static bool
poll_message(message *self)
{
    dl_status outcome;

    pthread_mutex_lock(&self->lock);
    if (dl_work_is_done(&self->work)) {
        pthread_mutex_unlock(&self->lock);
        return true;
    }
    bool is_over = test_locked(self, &outcome);
    if (is_over) {
        if (waits_for_match(self)) {
            dl_mpi_match_take_back(self->comm, &self->match);
        }
        /* With the lock held, so that no other thread ends it a second time. */
        dl_work_finish(&self->work, outcome);
    }
    pthread_mutex_unlock(&self->lock);
    if (is_over) {
        drop_maker(self);
    }
    return is_over;
}

/* Returns whether a withdrawn message is over for its owner, although MPI has not
 * completed it: a send at once, a receive if MPI does not cancel it by `withdrawal`, as
 * when the sender has stopped midway. */
static bool
is_over_for_owner(const message *self)
{
    return self->work.op == DL_SEND || dl_deadline_passed(self->withdrawal);
}

/* Ends a withdrawn message that is over for its owner, and leaves its requests to
 * MPI. */
static void
leave_if_over(message *self)
{
    pthread_mutex_lock(&self->lock);
    bool is_ended = !dl_work_is_done(&self->work) && is_over_for_owner(self);
    if (is_ended) {
        leave_to_mpi_locked(self);
        dl_work_finish(&self->work, fail_withdrawn(self));
    }
    pthread_mutex_unlock(&self->lock);
    if (is_ended) {
        drop_maker(self);
    }
}

/* Withdraws the message, which fails with the thread's last error. */
static void
withdraw_with_error(message *self)
{
    pthread_mutex_lock(&self->lock);
    if (!self->is_withdrawn && !dl_work_is_done(&self->work)) {
        take_back_locked(self);
    }
    pthread_mutex_unlock(&self->lock);
    leave_if_over(self);
}

/* Withdraws the message after an abort, or after its deadline. */
static void
check_limits(message *self)
{
    dl_status status = dl_mpi_comm_admit(self->comm);

    if (status == DL_OK && dl_deadline_passed(self->deadline)) {
        status = dl_mpi_comm_fail_timeout(self->comm, name_of(self), self->awaited - 1,
                                          self->deadline);
    }
    if (status != DL_OK) {
        withdraw_with_error(self);
    }
}

/* Before MPI ends: hands pending requests to the leftovers (mpi_world.h), which
 * complete them before MPI is finalized.  Neither the message nor its array is
 * freed. */
static void
end_task(dl_mpi_task *task)
{
    message *self = DL_LIST_ENTRY(task, message, task);

    dl_fail(DL_CLOSED, "MPI was finalized at exit");
    pthread_mutex_lock(&self->lock);
    if (!dl_work_is_done(&self->work) && !self->is_left) {
        take_back_locked(self);
        leave_to_mpi_locked(self);
    }
    pthread_mutex_unlock(&self->lock);
}

static bool
poll_task(dl_mpi_task *task)
{
    message *self = DL_LIST_ENTRY(task, message, task);

    if (!poll_message(self)) {
        check_limits(self);
        if (!dl_work_is_done(&self->work)) {
            return false;
        }
    }
    dl_work_unref(&self->work);
    return true;
}

/* A wait that ends early leaves the message pending: the runner has it, or the
 * caller withdraws it. */
static dl_status
wait_message(dl_work *work, dl_deadline deadline)
{
    message *self = message_of(work);
    dl_mpi_pace pace = {.patience = dl_mpi_patience(dl_tensor_size(&self->tensor)),
                        .awaited = self->awaited};
    dl_deadline first = deadline.at < self->deadline.at ? deadline : self->deadline;

    while (!poll_message(self)) {
        dl_status status = dl_mpi_pause(self->comm, &pace, first);
        if (pace.naps > 0) {
            dl_blocked_look(atomic_load(&work->record), NULL, self->deadline);
        }
        if (status == DL_INTERRUPTED
            || (pace.is_late && dl_deadline_passed(deadline))) {
            dl_blocked_end();
            return dl_work_is_done(work) ? DL_OK : status;
        }
        /* An abort and the message's own deadline do not end the wait here, but
         * withdraw the message. */
        if (status == DL_PEER_LOST && pace.is_lost) {
            dl_fail_while("%s", name_of(self));
            withdraw_with_error(self);
        } else if (status != DL_OK) {
            check_limits(self);
        }
    }
    dl_blocked_end();
    return DL_OK;
}

/* Ends the message for a caller that takes its array back: blocks until MPI has
 * cancelled it, or WITHDRAWAL has passed. */
static void
withdraw_message(dl_work *work)
{
    message *self = message_of(work);

    dl_fail_while("%s in group %s", name_of(self), self->comm->group_name);
    pthread_mutex_lock(&self->lock);
    if (!dl_work_is_done(work)) {
        take_back_locked(self);
    }
    pthread_mutex_unlock(&self->lock);
    dl_mpi_pace pace = {.bound_until = INT64_MAX}; /* nothing ends this wait early */
    while (!poll_message(self)) {
        (void)dl_mpi_pause(self->comm, &pace, self->withdrawal);
        leave_if_over(self);
    }
}

static void
look_at_message(dl_work *work)
{
    (void)poll_message(message_of(work));
}

static void
expedite_message(dl_work *work)
{
    (void)work;
    dl_mpi_runner_wake();
}

static const dl_work_ops message_ops = {
    .wait = wait_message,
    .withdraw = withdraw_message,
    .free = free_message,
    .poll = look_at_message,
    .expedite = expedite_message,
};

/* Allocates a message, with a copy of the shape and strides of an array with gaps. */
static dl_status
keep_tensor(const dl_tensor *tensor, message **made)
{
    size_t entries = tensor->is_contiguous ? 0 : (size_t)tensor->ndim;
    /* Not calloc(), which in many libcs is slower where memory was just freed. */
    message *self = malloc(sizeof *self + 2 * entries * sizeof(int64_t));

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    *self = (message){.tensor = *tensor};
    if (entries > 0) {
        int64_t *numbers = (int64_t *)(void *)(self + 1);
        memcpy(numbers, tensor->shape, entries * sizeof *numbers);
        memcpy(numbers + entries, tensor->strides, entries * sizeof *numbers);
        self->tensor.shape = numbers;
        self->tensor.strides = numbers + entries;
    }
    *made = self;
    return DL_OK;
}

/* Returns MPI's tag for a user's tag. */
static int
tag_of(int64_t tag)
{
    return tag == DL_OBJECT_TAG ? DL_MPI_OBJECT_TAG : DL_MPI_USER_TAG + (int)tag;
}

static dl_status
check_tag(const dl_mpi_comm *comm, dl_op_type op, int64_t tag)
{
    int last = comm->world->last_tag - DL_MPI_USER_TAG;

    if ((tag >= 0 && tag <= last) || tag == DL_OBJECT_TAG) {
        return DL_OK;
    }
    return dl_fail(DL_INVALID,
                   "%s: tag %" PRId64
                   ": backend mpi supports tags from 0 to %d here (MPI_TAG_UB of %s), "
                   "and up to 32000 with every MPI",
                   dl_op_type_name((uint8_t)op), tag, last, dl_mpi_library_text());
}

/* Reserves a tag for contents that are too large to follow their head. */
static dl_status
take_tag(message *self, int peer)
{
    dl_mpi_comm *comm = self->comm;

    self->data_tag = dl_mpi_comm_take_tag(comm, peer);
    if (self->data_tag == 0) {
        return dl_fail(DL_INVALID,
                       "send in group %s: %d messages of more than %zu bytes to rank "
                       "%d are pending without a matching receive, the limit of "
                       "backend mpi: wait for some of them first",
                       comm->group_name, DL_MPI_DATA_TAGS, dl_mpi_most_along(comm),
                       peer);
    }
    self->peer = peer;
    self->frame->head.tag = (uint16_t)self->data_tag;
    return DL_OK;
}

/* Fills the frame with the head, and with the contents if they are small. */
static dl_status
fill_frame(message *self, int peer, size_t along, dl_mpi_part *contents)
{
    size_t size = dl_tensor_size(&self->tensor);

    self->frame = malloc(sizeof *self->frame + along);
    if (self->frame == NULL) {
        return dl_fail_no_memory();
    }
    self->frame->head = (head){.size = size,
                               .code = self->tensor.opaque_code,
                               .dtype = (uint8_t)self->tensor.dtype};
    if (along < size) {
        DL_TRY(make_part(self, size, contents));
        return take_tag(self, peer);
    }
    if (size > 0 && self->tensor.is_contiguous) {
        memcpy(self->frame->contents, self->tensor.data, size);
    } else if (size > 0) {
        dl_strided_gather_part(self->frame->contents, &self->tensor, 0, size);
    }
    return DL_OK;
}

/* Sends large contents after their head, so that most receives are posted before the
 * contents arrive: Intel MPI takes three times as long for 1 MiB that nobody expects
 * yet.  If that fails, the tag stays in use: the receiver expects contents with it. */
static dl_status
begin_send(message *self, int peer, int tag)
{
    const dl_mpi_comm *comm = self->comm;
    size_t size = dl_tensor_size(&self->tensor);
    size_t along = size <= dl_mpi_most_along(comm) ? size : 0;
    dl_mpi_part contents;

    DL_TRY(fill_frame(self, peer, along, &contents));
    dl_mpi_part first = {self->frame, (int)(sizeof *self->frame + along),
                         comm->mpi->byte};
    int result = comm->mpi->isend(&first, peer, tag, dl_mpi_comm_of_tag(comm, tag),
                                  &self->head_request);
    if (result != 0) {
        if (along < size) {
            dl_mpi_comm_give_tag(self->comm, peer, self->data_tag);
        }
        return fail_call(self, result, "MPI_Isend");
    }
    self->is_head_pending = true;
    if (along < size) {
        result = comm->mpi->issend(&contents, peer, self->data_tag, comm->handle,
                                   &self->data_request);
        self->is_data_pending = result == 0;
    }
    return result == 0 ? DL_OK : fail_call(self, result, "MPI_Issend");
}

/* Posts the receive of a head, unless a probe has received it already.  Requires the
 * lock of the queue: a probe in between would take a head that the receive then waits
 * for. */
static dl_status
expect_head_locked(message *self, int peer, int tag)
{
    dl_mpi_comm *comm = self->comm;

    if (dl_mpi_probe_take(comm, peer, tag, &self->frame, &self->work.source)) {
        self->is_head_here = true;
        return DL_OK;
    }
    self->frame = atomic_exchange(&comm->spare, NULL);
    if (self->frame == NULL) {
        self->frame = malloc(sizeof *self->frame + dl_mpi_most_along(comm));
    }
    if (self->frame == NULL) {
        return dl_fail_no_memory();
    }
    self->has_full_frame = true;
    dl_mpi_part part = {self->frame,
                        (int)(sizeof *self->frame + dl_mpi_most_along(comm)),
                        comm->mpi->byte};
    if (dl_mpi_match_post(comm, &self->match, &part, peer, tag)) {
        self->is_head_pending = true;
        return DL_OK;
    }
    int result = comm->mpi->irecv(&part, peer, tag, dl_mpi_comm_of_tag(comm, tag),
                                  &self->head_request);
    self->is_head_pending = result == 0;
    return result == 0 ? DL_OK : fail_call(self, result, "MPI_Irecv");
}

static dl_status
begin_receive(message *self, int peer, int tag)
{
    dl_mpi_queue *queue = &self->comm->matching;

    pthread_mutex_lock(&queue->lock);
    dl_status status = expect_head_locked(self, peer, tag);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* Posts the message.  Fails only if MPI has taken no part of it: otherwise the message
 * has ended with the failure. */
static dl_status
post_requests(message *self, const dl_call *call)
{
    const dl_mpi_comm *comm = self->comm;
    int peer = call->peer == DL_ANY_RANK ? comm->mpi->any_source : call->peer;
    int tag = tag_of(call->tag);
    dl_status status = self->work.op == DL_SEND ? begin_send(self, peer, tag)
                                                : begin_receive(self, peer, tag);

    if (status != DL_OK && (self->is_head_pending || self->is_data_pending)) {
        dl_error error = *dl_last_error();
        leave_to_mpi_locked(self);
        dl_work_finish(&self->work, dl_fail_again(&error));
        dl_work_unref(&self->work); /* the maker's */
        return DL_OK;
    }
    return status;
}

/* Many receives find their message, and small sends complete at once: these are not
 * added to the runner, and neither are messages that the caller waits for. */
static dl_status
start_message(message *self, const dl_call *call)
{
    DL_TRY(post_requests(self, call));
    if (poll_message(self) || call->is_awaited) {
        return DL_OK;
    }
    self->task.look = poll_task;
    self->task.end = end_task;
    self->is_task = true;
    dl_status status = dl_mpi_runner_add(&self->task);
    if (status != DL_OK) {
        self->is_task = false;
        withdraw_message(&self->work);
    }
    return DL_OK;
}

dl_status
dl_mpi_post(dl_mpi_comm *comm, const dl_call *call, dl_deadline deadline,
            dl_work **work)
{
    message *self = NULL;

    if (call->probed != NULL) {
        DL_TRY(call->tag == DL_ANY_TAG ? DL_OK : check_tag(comm, call->op, call->tag));
        return dl_mpi_probe_post(comm, call, deadline, work);
    }
    DL_TRY(check_tag(comm, call->op, call->tag));
    DL_TRY(dl_mpi_comm_admit(comm));
    DL_TRY(keep_tensor(&call->tensor, &self));
    pthread_mutex_init(&self->lock, NULL);
    dl_work_init(&self->work, &message_ops, call->op);
    self->work.is_brief = dl_tensor_size(&call->tensor) <= dl_mpi_most_along(comm);
    self->comm = dl_mpi_comm_ref(comm);
    self->deadline = deadline;
    self->awaited = call->peer == DL_ANY_RANK ? 0 : call->peer + 1;
    dl_status status = start_message(self, call);
    if (status != DL_OK) {
        free_message(&self->work);
        return status;
    }
    *work = &self->work;
    return DL_OK;
}
