/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/record/blocked_threads.h"
#include "tensor/strided.h"

/* Tags of heads in the communicator of users; a user's tag comes after that of
 * objects. */
#define OBJECT_TAG 0
#define FIRST_USER_TAG 1

/* Copying so many bytes costs less than another message. */
#define MOST_ALONG (((size_t)64 << 10) - sizeof(head))

typedef struct head {
    uint64_t size; /* of the contents */
    uint32_t code; /* of an opaque dtype */
    uint16_t tag;  /* of the message with the contents; 0: they follow the head */
    uint8_t dtype;
    uint8_t unused;
} head;

_Static_assert(sizeof(head) == 16, "ranks send it to each other");

/* A head with what follows it, in one allocation. */
typedef struct letter {
    dl_list node; /* in the mailbox, in the order of arrival */
    int source;
    int tag;               /* MPI's */
    dl_mpi_handle request; /* 0: it is here */
    head head;
    uint8_t contents[];
} letter;

#define LETTER_OFFSET offsetof(letter, head)

typedef struct message {
    dl_work work;
    /* fixed after init */
    dl_mpi_comm *comm;
    dl_tensor tensor;  /* the array; shape and strides of one with gaps follow */
    dl_probed *probed; /* of a probe */
    int peer;          /* or DL_ANY_RANK */
    int tag;           /* MPI's; or DL_ANY_TAG */
    dl_deadline deadline;
    /* guarded by the mailbox's lock */
    dl_list
        node; /* in the mailbox until it is over; the list has the maker's reference */
    letter *letter; /* of a send, what it sends; of a receive, what it has got */
    void *copy;     /* of large contents that do not go from or to the array; or NULL */
    dl_mpi_handle first, second; /* of a send: head and contents; 0: not pending */
    dl_error *refusal;           /* why the contents under way do not go to the array */
} message;

static message *
message_of(dl_work *work)
{
    return (message *)(void *)work;
}

static const char *
name_of(const message *self)
{
    return self->probed != NULL ? "probe" : dl_op_type_name((uint8_t)self->work.op);
}

dl_status
dl_mpi_mailbox_init(dl_mpi_mailbox *mailbox, int size)
{
    pthread_mutex_init(&mailbox->lock, NULL);
    dl_list_init(&mailbox->pending);
    dl_list_init(&mailbox->arrived);
    mailbox->sent = calloc((size_t)size, sizeof *mailbox->sent);
    return mailbox->sent == NULL ? dl_fail_no_memory() : DL_OK;
}

void
dl_mpi_mailbox_fini(dl_mpi_mailbox *mailbox)
{
    while (!dl_list_is_empty(&mailbox->arrived)) {
        letter *each = DL_LIST_ENTRY(mailbox->arrived.next, letter, node);
        dl_list_remove(&each->node);
        if (each->request == 0) {
            free(each); /* or MPI may still write to it */
        }
    }
    free(mailbox->sent);
    pthread_mutex_destroy(&mailbox->lock);
}

/* What MPI may still use was left to it before, and is not freed here. */
static void
free_message(dl_work *work)
{
    message *self = message_of(work);

    free(self->letter);
    free(self->copy);
    free(self->refusal);
    dl_mpi_comm_unref(self->comm);
    dl_work_fini(work);
    free(self);
}

static bool
fits(const message *self, const letter *came)
{
    bool is_tag =
        self->tag == DL_ANY_TAG ? came->tag != OBJECT_TAG : came->tag == self->tag;

    return is_tag && (self->peer == DL_ANY_RANK || self->peer == came->source);
}

static bool
awaits_letter(const message *self)
{
    return self->work.op != DL_SEND && self->probed == NULL && self->letter == NULL;
}

/* Gives a letter that has arrived to the first receive that it fits, or keeps it. */
static void
sort_in_locked(dl_mpi_mailbox *mailbox, letter *came)
{
    dl_list *all = &mailbox->pending;

    for (dl_list *node = all->next; node != all; node = node->next) {
        message *each = DL_LIST_ENTRY(node, message, node);
        if (awaits_letter(each) && fits(each, came)) {
            each->letter = came;
            return;
        }
    }
    dl_list_append(&mailbox->arrived, &came->node);
}

/* Receives a head that MPI has matched.  Its place in the order is fixed, even if it is
 * not here yet. */
static dl_status
take_letter_locked(dl_mpi_comm *comm, const dl_mpi_status *found, dl_mpi_handle matched)
{
    letter *came = malloc(LETTER_OFFSET + (size_t)found->bytes);

    if (came == NULL) {
        return dl_fail_no_memory();
    }
    came->request = 0;
    int result = comm->mpi->imrecv(&came->head, found->bytes, comm->mpi->byte, &matched,
                                   &came->request);
    if (result != 0) {
        free(came);
        return dl_mpi_check(comm->mpi, result, "MPI_Imrecv");
    }
    came->node = (dl_list){NULL, NULL};
    came->source = found->source;
    came->tag = found->tag;
    sort_in_locked(&comm->mailbox, came);
    return DL_OK;
}

/* Takes all heads that have arrived. */
static dl_status
empty_mailbox_locked(dl_mpi_comm *comm)
{
    const dl_mpi_table *mpi = comm->mpi;
    int is_there = 1;

    for (;;) {
        dl_mpi_handle matched;
        dl_mpi_status found;
        int result = dl_mpi_find_message(mpi, mpi->abi.any_tag, comm->users, &is_there,
                                         &matched, &found);
        DL_TRY(dl_mpi_check(mpi, result, "MPI_Improbe"));
        if (!is_there) {
            return DL_OK;
        }
        DL_TRY(take_letter_locked(comm, &found, matched));
    }
}

/* Returns the first letter that waits for a receive like this one, or NULL. */
static letter *
find_letter_locked(const message *self)
{
    dl_list *all = &self->comm->mailbox.arrived;

    for (dl_list *node = all->next; node != all; node = node->next) {
        letter *each = DL_LIST_ENTRY(node, letter, node);
        if (fits(self, each)) {
            return each;
        }
    }
    return NULL;
}

static dl_status
fail_call(const message *self, int result, const char *call)
{
    dl_mpi_check(self->comm->mpi, result, call);
    return dl_fail_while("%s in group %s on rank %d", name_of(self),
                         self->comm->group_name, self->comm->rank);
}

/* A function that fails may have written its request. */
static dl_status
check_started(const message *self, int result, dl_mpi_handle *request, const char *call)
{
    if (result != 0) {
        *request = 0;
        return fail_call(self, result, call);
    }
    return DL_OK;
}

/* Returns whether a request has ended, which is 0 from then on. */
static bool
has_ended(const message *self, dl_mpi_handle *request, int *result)
{
    int is_done = 0;

    if (*request == 0) {
        return true;
    }
    *result = dl_mpi_test(self->comm->mpi, request, &is_done);
    if (*result != 0 || is_done) {
        *request = 0;
        return true;
    }
    return false;
}

static bool
test_send_locked(message *self, dl_status *outcome)
{
    int result = 0;

    if (!has_ended(self, &self->first, &result) || result != 0
        || !has_ended(self, &self->second, &result)) {
        *outcome = result == 0 ? DL_OK : fail_call(self, result, "MPI_Isend");
        return result != 0;
    }
    *outcome = result == 0 ? DL_OK : fail_call(self, result, "MPI_Isend");
    return true;
}

static dl_status
check_head(const message *self)
{
    const dl_tensor *tensor = &self->tensor;
    const head *theirs = &self->letter->head;
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
    if (theirs->size > dl_tensor_size(tensor)) {
        return dl_fail(DL_MISMATCH,
                       "recv in group %s: the message of rank %d of %" PRIu64
                       " bytes does not fit into the %zu bytes of rank %d's array",
                       self->comm->group_name, self->work.source, theirs->size,
                       dl_tensor_size(tensor), self->comm->rank);
    }
    return DL_OK;
}

/* Refused contents are received all the same, into memory of their size, so that the
 * sender's wait ends.  A shorter buffer does not suffice: some MPIs write beyond its
 * end.  Without such memory the sender waits until its deadline. */
static dl_status
receive_contents_locked(message *self, dl_status verdict)
{
    const dl_mpi_comm *comm = self->comm;
    const head *theirs = &self->letter->head;
    dl_mpi_part part;
    dl_mpi_handle type;

    if (verdict != DL_OK) {
        self->refusal = malloc(sizeof *self->refusal);
        if (self->refusal == NULL) {
            return dl_fail_no_memory();
        }
        *self->refusal = *dl_last_error();
    }
    if (verdict != DL_OK || !self->tensor.is_contiguous) {
        self->copy = malloc(theirs->size);
        if (self->copy == NULL) {
            return dl_fail_no_memory();
        }
    }
    void *target = self->copy != NULL ? self->copy : self->tensor.data;
    DL_TRY(dl_mpi_part_of(comm, target, theirs->size, &part, &type));
    int result = comm->mpi->irecv(part.data, part.count, part.type, self->work.source,
                                  theirs->tag, comm->handle, &self->first);
    dl_mpi_type_free(comm, type);
    return check_started(self, result, &self->first, "MPI_Irecv");
}

/* Handles a head.  Afterwards the receive has ended, with the status that is returned,
 * or its contents are pending. */
static dl_status
open_letter_locked(message *self)
{
    self->work.source = self->letter->source;
    dl_status verdict = check_head(self);

    if (self->letter->head.tag != 0) {
        return receive_contents_locked(self, verdict);
    }
    if (verdict == DL_OK && self->letter->head.size > 0) {
        dl_strided_scatter_part(&self->tensor, self->letter->contents, 0,
                                self->letter->head.size);
    }
    return verdict;
}

static dl_status
conclude_contents(message *self, int result)
{
    if (self->refusal != NULL) {
        return dl_fail_again(self->refusal);
    }
    if (result != 0) {
        return fail_call(self, result, "MPI_Irecv");
    }
    if (self->copy != NULL) {
        dl_strided_scatter_part(&self->tensor, self->copy, 0, self->letter->head.size);
    }
    return DL_OK;
}

static bool
test_receive_locked(message *self, dl_status *outcome)
{
    int result = 0;

    if (self->first == 0) {
        *outcome = self->letter == NULL ? empty_mailbox_locked(self->comm) : DL_OK;
        if (*outcome != DL_OK || self->letter == NULL) {
            return *outcome != DL_OK;
        }
        if (!has_ended(self, &self->letter->request, &result)) {
            return false;
        }
        *outcome = result == 0 ? open_letter_locked(self)
                               : fail_call(self, result, "MPI_Imrecv");
        if (*outcome != DL_OK || self->first == 0) {
            return true;
        }
    }
    if (!has_ended(self, &self->first, &result)) {
        return false;
    }
    *outcome = conclude_contents(self, result);
    return true;
}

static bool
test_probe_locked(message *self, dl_status *outcome)
{
    int result = 0;

    *outcome = empty_mailbox_locked(self->comm);
    letter *found = *outcome == DL_OK ? find_letter_locked(self) : NULL;
    if (found == NULL || !has_ended(self, &found->request, &result)) {
        return *outcome != DL_OK;
    }
    if (result != 0) {
        *outcome = fail_call(self, result, "MPI_Imrecv");
        return true;
    }
    *self->probed = (dl_probed){.source = found->source,
                                .tag = found->tag - FIRST_USER_TAG,
                                .size = found->head.size,
                                .dtype = (dl_dtype)found->head.dtype,
                                .opaque_code = found->head.code};
    self->work.source = found->source;
    return true;
}

static bool
test_locked(message *self, dl_status *outcome)
{
    *outcome = dl_mpi_world_admit();
    if (*outcome != DL_OK) {
        return true;
    }
    if (self->probed != NULL) {
        return test_probe_locked(self, outcome);
    }
    return self->work.op == DL_SEND ? test_send_locked(self, outcome)
                                    : test_receive_locked(self, outcome);
}

/* Keeps a letter that is on its way for the next receive. */
static void
return_letter_locked(message *self)
{
    letter *came = self->letter;

    if (self->work.op != DL_SEND && came != NULL && came->request != 0) {
        self->letter = NULL;
        sort_in_locked(&self->comm->mailbox, came);
    }
}

/* Leaves to MPI what it still has: heads and copies are freed once MPI has completed
 * them, and keeps_memory tells the owner of an array that it must stay. */
static void
leave_locked(message *self)
{
    bool is_send = self->work.op == DL_SEND;
    dl_mpi_handle contents = is_send ? self->second : self->first;

    dl_list_remove(&self->node);
    return_letter_locked(self);
    if (is_send && self->first != 0) {
        dl_mpi_comm_leave(self->comm, self->first, self->letter);
        self->letter = NULL;
    }
    if (contents != 0) {
        dl_mpi_comm_leave(self->comm, contents, self->copy);
        self->work.keeps_memory = self->copy == NULL;
        self->copy = NULL;
    }
    self->first = self->second = 0;
}

/* Ends the message without the lock, after a thread has removed it from the mailbox,
 * which only one does. */
static void
end_message(message *self, dl_status outcome)
{
    dl_work_finish(&self->work, outcome);
    dl_work_unref(&self->work);
}

/* Ends the message with the thread's last error, unless it has just ended otherwise if
 * `looks`: a letter that it has got meanwhile is not lost. */
static void
give_up(message *self, bool looks)
{
    dl_error error = *dl_last_error();
    dl_status outcome = DL_OK;
    bool has_ended = false;

    pthread_mutex_lock(&self->comm->mailbox.lock);
    bool is_ending = self->node.next != NULL;
    if (is_ending) {
        has_ended = looks && test_locked(self, &outcome);
        leave_locked(self);
    }
    pthread_mutex_unlock(&self->comm->mailbox.lock);
    if (is_ending) {
        end_message(self, has_ended ? outcome : dl_fail_again(&error));
    }
}

static dl_status
fail_timeout(const message *self)
{
    const dl_mpi_comm *comm = self->comm;
    char who[32] = "no rank has";

    if (self->peer != DL_ANY_RANK) {
        snprintf(who, sizeof who, "rank %d has not", self->peer);
    }
    return dl_fail(DL_TIMEOUT,
                   "%s in group %s on rank %d timed out after %" PRId64
                   "ms: %s %s the message",
                   name_of(self), comm->group_name, comm->rank,
                   self->deadline.limit / DL_MILLISECOND, who,
                   self->work.op == DL_SEND ? "taken" : "sent");
}

/* Returns whether the message has ended, or is to end for an abort or its deadline. */
static bool
is_over_locked(message *self, bool has_limits, dl_status *outcome)
{
    if (test_locked(self, outcome)) {
        return true;
    }
    if (!has_limits) {
        return false;
    }
    *outcome = dl_mpi_comm_admit(self->comm);
    if (*outcome == DL_OK && dl_deadline_passed(self->deadline)) {
        *outcome = fail_timeout(self);
    }
    return *outcome != DL_OK;
}

/* Polls the message once, and returns whether it has ended. */
static bool
poll_message(message *self, bool has_limits)
{
    dl_mpi_mailbox *mailbox = &self->comm->mailbox;
    dl_status outcome = DL_OK;

    pthread_mutex_lock(&mailbox->lock);
    bool is_ending =
        self->node.next != NULL && is_over_locked(self, has_limits, &outcome);
    if (is_ending) {
        leave_locked(self);
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (is_ending) {
        end_message(self, outcome);
    }
    return is_ending || dl_work_is_done(&self->work);
}

/* Removes the first message that is over from the mailbox; NULL: none is. */
static message *
take_ended_locked(dl_mpi_mailbox *mailbox, dl_status *outcome)
{
    dl_list *all = &mailbox->pending;

    for (dl_list *node = all->next; node != all; node = node->next) {
        message *each = DL_LIST_ENTRY(node, message, node);
        if (is_over_locked(each, true, outcome)) {
            leave_locked(each);
            return each;
        }
    }
    return NULL;
}

bool
dl_mpi_poll_messages(dl_mpi_comm *comm)
{
    dl_mpi_mailbox *mailbox = &comm->mailbox;

    for (;;) {
        dl_status outcome = DL_OK;
        pthread_mutex_lock(&mailbox->lock);
        message *ended = take_ended_locked(mailbox, &outcome);
        bool is_pending = !dl_list_is_empty(&mailbox->pending);
        pthread_mutex_unlock(&mailbox->lock);
        if (ended == NULL) {
            return is_pending;
        }
        end_message(ended, outcome);
    }
}

bool
dl_mpi_leave_messages(dl_mpi_comm *comm)
{
    dl_mpi_mailbox *mailbox = &comm->mailbox;

    pthread_mutex_lock(&mailbox->lock);
    while (!dl_list_is_empty(&mailbox->pending)) {
        leave_locked(DL_LIST_ENTRY(mailbox->pending.next, message, node));
    }
    pthread_mutex_unlock(&mailbox->lock);
    return false;
}

/* A wait that ends early leaves the message pending: the runner has it, or the
 * caller withdraws it. */
static dl_status
wait_message(dl_work *work, dl_deadline deadline)
{
    message *self = message_of(work);
    dl_mpi_pace pace = {.bytes = dl_tensor_size(&self->tensor),
                        .awaited = self->peer,
                        .is_any = self->peer == DL_ANY_RANK};
    dl_deadline first = deadline.at < self->deadline.at ? deadline : self->deadline;

    while (!poll_message(self, false)) {
        dl_status status = dl_mpi_pause(self->comm, &pace, first);
        if (pace.naps > 0) {
            dl_blocked_look(atomic_load(&work->record), NULL, self->deadline);
        }
        if (status == DL_INTERRUPTED
            || (pace.is_late && dl_deadline_passed(deadline))) {
            dl_blocked_end();
            return dl_work_is_done(work) ? DL_OK : status;
        }
        if (status == DL_PEER_LOST && pace.is_lost) {
            dl_fail_while("%s", name_of(self));
            give_up(self, true);
        } else if (status != DL_OK) {
            (void)poll_message(self, true);
        }
    }
    dl_blocked_end();
    return DL_OK;
}

/* Ends the message at once for a caller that takes its array back. */
static void
withdraw_message(dl_work *work)
{
    message *self = message_of(work);

    dl_fail_while("%s in group %s", name_of(self), self->comm->group_name);
    give_up(self, true);
}

static void
look_at_message(dl_work *work)
{
    (void)poll_message(message_of(work), false);
}

static const dl_work_ops message_ops = {
    .wait = wait_message,
    .withdraw = withdraw_message,
    .free = free_message,
    .poll = look_at_message,
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
    return tag == DL_ANY_TAG      ? DL_ANY_TAG
           : tag == DL_OBJECT_TAG ? OBJECT_TAG
                                  : FIRST_USER_TAG + (int)tag;
}

static dl_status
check_tag(const dl_mpi_comm *comm, const dl_call *call)
{
    int last = comm->world->last_tag - FIRST_USER_TAG;
    bool is_any = call->probed != NULL && call->tag == DL_ANY_TAG;

    if (is_any || (call->tag >= 0 && call->tag <= last) || call->tag == DL_OBJECT_TAG) {
        return DL_OK;
    }
    return dl_fail(DL_INVALID,
                   "%s: tag %" PRId64
                   ": backend mpi supports tags from 0 to %d here (MPI_TAG_UB of %s), "
                   "and up to 32000 with every MPI",
                   dl_op_type_name((uint8_t)call->op), call->tag, last,
                   dl_mpi_library_text());
}

/* Sends large contents after their head, so that most receives are posted before the
 * contents arrive: Intel MPI takes three times as long for 1 MiB that nobody expects
 * yet. */
static dl_status
send_contents(message *self, size_t size)
{
    const dl_mpi_comm *comm = self->comm;
    void *source = self->copy != NULL ? self->copy : self->tensor.data;
    dl_mpi_part part;
    dl_mpi_handle type;

    DL_TRY(dl_mpi_part_of(comm, source, size, &part, &type));
    int result = comm->mpi->isend(part.data, part.count, part.type, self->peer,
                                  self->letter->head.tag, comm->handle, &self->second);
    dl_mpi_type_free(comm, type);
    return check_started(self, result, &self->second, "MPI_Isend");
}

/* Writes the letter, and the copy of large contents with gaps. */
static dl_status
write_letter_locked(message *self, size_t size, size_t along)
{
    uint32_t *sent = &self->comm->mailbox.sent[self->peer];

    self->letter = malloc(sizeof *self->letter + along);
    self->copy = along < size && !self->tensor.is_contiguous ? malloc(size) : NULL;
    if (self->letter == NULL
        || (along < size && !self->tensor.is_contiguous && self->copy == NULL)) {
        return dl_fail_no_memory();
    }
    self->letter->head = (head){.size = size,
                                .code = self->tensor.opaque_code,
                                .dtype = (uint8_t)self->tensor.dtype};
    if (along < size) {
        self->letter->head.tag = (uint16_t)(DL_MPI_CONTENTS_TAG + *sent);
        *sent = (*sent + 1) % DL_MPI_CONTENTS_TAGS;
    }
    void *row = self->copy != NULL ? self->copy : self->letter->contents;
    if (size > 0 && (along == size || self->copy != NULL)) {
        dl_strided_gather_part(row, &self->tensor, 0, size);
    }
    return DL_OK;
}

static dl_status
begin_send_locked(message *self)
{
    const dl_mpi_comm *comm = self->comm;
    size_t size = dl_tensor_size(&self->tensor);
    size_t along = size <= MOST_ALONG ? size : 0;

    DL_TRY(write_letter_locked(self, size, along));
    int result = comm->mpi->isend(&self->letter->head, (int)(sizeof(head) + along),
                                  comm->mpi->byte, self->peer, self->tag, comm->users,
                                  &self->first);
    DL_TRY(check_started(self, result, &self->first, "MPI_Isend"));
    return along < size ? send_contents(self, size) : DL_OK;
}

/* Takes a letter that has arrived before. */
static void
begin_receive_locked(message *self)
{
    self->letter = find_letter_locked(self);
    if (self->letter != NULL) {
        dl_list_remove(&self->letter->node);
    }
}

/* Fails only if MPI has taken no part of the message: otherwise that has ended with the
 * failure. */
static dl_status
begin_message(message *self)
{
    dl_mpi_mailbox *mailbox = &self->comm->mailbox;
    dl_status status = DL_OK;

    pthread_mutex_lock(&mailbox->lock);
    if (self->work.op == DL_SEND) {
        status = begin_send_locked(self);
    } else if (self->probed == NULL) {
        begin_receive_locked(self);
    }
    bool has_begun = status == DL_OK || self->first != 0;
    if (has_begun) {
        dl_list_append(&mailbox->pending, &self->node);
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (status != DL_OK && has_begun) {
        give_up(self, false);
    }
    return has_begun ? DL_OK : status;
}

/* Many receives find their message, and small sends complete at once.  The runner is
 * not woken for these, nor for messages that the caller waits for. */
static dl_status
start_message(message *self, const dl_call *call)
{
    DL_TRY(begin_message(self));
    if (poll_message(self, false) || call->is_awaited) {
        return DL_OK;
    }
    if (self->probed != NULL) {
        dl_fail(DL_NOT_FOUND, "no such message has arrived");
        give_up(self, true);
    } else {
        dl_mpi_runner_wake();
    }
    return DL_OK;
}

dl_status
dl_mpi_post(dl_mpi_comm *comm, const dl_call *call, dl_deadline deadline,
            dl_work **work)
{
    message *self = NULL;

    DL_TRY(check_tag(comm, call));
    DL_TRY(dl_mpi_comm_admit(comm));
    DL_TRY(keep_tensor(&call->tensor, &self));
    dl_work_init(&self->work, &message_ops, call->op);
    self->work.is_brief = dl_tensor_size(&call->tensor) <= MOST_ALONG;
    self->comm = dl_mpi_comm_ref(comm);
    self->deadline = deadline;
    self->probed = call->probed;
    self->peer = call->peer;
    self->tag = tag_of(call->tag);
    dl_status status = start_message(self, call);
    if (status != DL_OK) {
        free_message(&self->work);
        return status;
    }
    *work = &self->work;
    return DL_OK;
}
