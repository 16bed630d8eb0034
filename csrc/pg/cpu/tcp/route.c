/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/route.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "net/socket.h"

/* Parts smaller than this go through the bytes read ahead, which costs a copy and may
 * save a system call. */
#define DIRECT_LEAST 4096

/* The tag has the kind of operation in its low byte and the stage above it. */
#define STAGE_SHIFT 8
#define STAGE_MASK 0xffffffffu

/* The stage in the head of a greeting. */
#define GREETING STAGE_MASK

void
dl_queue_push(dl_queue *queue, void *data, size_t size, uint32_t stage)
{
    queue->cargos[queue->end++ % DL_ROUTE_QUEUE] =
        (dl_cargo){.data = data, .size = size, .stage = stage};
}

void
dl_route_greet(dl_route *route, uint32_t stage)
{
    if (route->told < route->op->sequence) {
        dl_queue_push(&route->out, NULL, 0, stage);
        route->out.cargos[(route->out.end - 1) % DL_ROUTE_QUEUE].is_greeting = true;
        route->told = route->op->sequence;
    }
}

static size_t
min_size(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* The head of each part identifies the call that the part belongs to.  The receiver
 * compares it with its own call: the fingerprint, as it is compared within a host, and
 * the size, which only the two ranks know where blocks are uneven. */

/* Returns the head of a part; the caller sets `size` and `length`. */
static dl_head
head_of(const dl_op_context *op, uint32_t stage)
{
    const dl_fingerprint *fingerprint = &op->fingerprint;

    return (dl_head){
        .kind = DL_HEAD_DATA,
        .dtype = fingerprint->dtype,
        .root = fingerprint->root,
        .code = fingerprint->detail,
        .id = op->sequence,
        .tag = (int64_t)((uint64_t)stage << STAGE_SHIFT | fingerprint->op),
        .total = dl_fingerprint_count(fingerprint),
    };
}

static uint64_t
stage_of(const dl_head *head)
{
    return (uint64_t)head->tag >> STAGE_SHIFT & STAGE_MASK;
}

/* Returns the other rank's call as its head describes it.  The head is not
 * validated. */
static dl_fingerprint
fingerprint_of(const dl_head *head)
{
    dl_fingerprint theirs = {
        .op = (uint8_t)head->tag,
        .dtype = head->dtype,
        .root = head->root,
        .detail = head->code,
    };

    dl_fingerprint_set_count(&theirs, head->total);
    return theirs;
}

/* Returns this rank's call in an operation that the other one was in; the current one
 * if it has not called that yet, or no longer remembers it. */
static const dl_fingerprint *
call_in(const dl_route *self, uint64_t sequence)
{
    uint64_t current = self->op->sequence;
    bool is_known = sequence < current && current - sequence < DL_ROUTE_HISTORY;

    return is_known ? &self->called[sequence % DL_ROUTE_HISTORY]
                    : &self->op->fingerprint;
}

/* Names the lower rank first, so that the texts are the same on both sides. */
static dl_status
fail_calls(const dl_route *self, const dl_head *head)
{
    const dl_link_options *link = dl_bundle_options(&self->link);
    const dl_op_context *op = self->op;
    const dl_fingerprint *own = call_in(self, head->id);
    dl_fingerprint theirs = fingerprint_of(head);
    bool is_first = link->rank < link->peer;
    const dl_fingerprint *calls[] = {is_first ? own : &theirs,
                                     is_first ? &theirs : own};
    int ranks[] = {is_first ? link->rank : link->peer,
                   is_first ? link->peer : link->rank};
    char texts[2][DL_FINGERPRINT_TEXT_SIZE];

    for (int i = 0; i < 2; i++) {
        dl_fingerprint_describe(calls[i], texts[i], sizeof texts[i]);
    }
    if (head->id != op->sequence && own == &op->fingerprint) {
        return dl_fail(DL_MISMATCH,
                       "rank %d is in its call #%" PRIu64
                       ", which is %s, rank %d in #%" PRIu64 ", %s",
                       ranks[0], is_first ? op->sequence : head->id, texts[0], ranks[1],
                       is_first ? head->id : op->sequence, texts[1]);
    }
    return dl_fail(DL_MISMATCH, "rank %d called %s, rank %d called %s", ranks[0],
                   texts[0], ranks[1], texts[1]);
}

static dl_status
fail_sizes(const dl_route *self, const dl_cargo *cargo, const dl_head *head)
{
    const dl_link_options *link = dl_bundle_options(&self->link);

    return dl_fingerprint_fail_size(&self->op->fingerprint, link->peer, head->length,
                                    link->rank, cargo->size);
}

/* Returns DL_OK if the head belongs to the message that `cargo` expects, else
 * DL_MISMATCH or DL_PROTOCOL. */
static dl_status
compare_head(const dl_route *self, const dl_cargo *cargo, const dl_head *head)
{
    dl_fingerprint theirs = fingerprint_of(head);

    if (head->id != self->op->sequence
        || !dl_fingerprint_equal(&theirs, &self->op->fingerprint)) {
        return fail_calls(self, head);
    }
    if (head->length != cargo->size) {
        return fail_sizes(self, cargo, head);
    }
    return stage_of(head) == cargo->stage
               ? DL_OK
               : dl_link_fail_protocol(dl_bundle_options(&self->link));
}

/* Compares the call of a rank that waits for this one. */
static dl_status
compare_greeting(const dl_route *self, const dl_head *head)
{
    dl_fingerprint theirs = fingerprint_of(head);

    /* A route on which this rank only sends may be read after many operations. */
    bool is_forgotten = self->op->sequence - head->id >= DL_ROUTE_HISTORY;

    return is_forgotten || dl_fingerprint_equal(&theirs, call_in(self, head->id))
               ? DL_OK
               : fail_calls(self, head);
}

/* Each part has its own head, so that the receiver notices at any of them that the
 * sender is in another operation, or has given up. */
static void
begin_part(dl_route *self, dl_cargo *cargo)
{
    dl_head head = head_of(self->op, cargo->is_greeting ? GREETING : cargo->stage);

    head.size = (uint32_t)min_size(cargo->size - cargo->done, DL_PART_LIMIT);
    head.length = cargo->size;
    head.detail = *self->note;
    dl_head_put(self->head, &head);
    self->head_left = DL_HEAD_SIZE;
    self->part_left = head.size;
    cargo->is_begun = true;
}

/* Sends what the link accepts of the head and the part; `*sent` is the byte count, 0 if
 * it would block. */
static dl_status
send_some(dl_route *self, dl_cargo *cargo, size_t *sent)
{
    struct iovec parts[] = {
        {self->head + DL_HEAD_SIZE - self->head_left, self->head_left},
        {cargo->data + cargo->done, self->part_left},
    };

    DL_TRY(dl_bundle_write(&self->link, parts, self->part_left > 0 ? 2 : 1, sent));
    size_t of_head = min_size(*sent, self->head_left);
    self->head_left -= of_head;
    self->part_left -= *sent - of_head;
    cargo->done += *sent - of_head;
    return DL_OK;
}

static dl_status
step_out(dl_route *self, bool *has_moved)
{
    while (!dl_queue_is_empty(&self->out)) {
        dl_cargo *cargo = dl_queue_front(&self->out);
        size_t sent;
        if (self->head_left == 0 && self->part_left == 0) {
            begin_part(self, cargo);
        }
        DL_TRY(send_some(self, cargo, &sent));
        if (sent == 0) {
            return DL_OK;
        }
        *has_moved = true;
        if (self->head_left == 0 && cargo->done == cargo->size) {
            self->out.first++;
        }
    }
    return DL_OK;
}

static dl_status
fail_with_notice(dl_route *self, const dl_head *head)
{
    const dl_link_options *options = dl_bundle_options(&self->link);

    self->is_told = head->root != DL_CLOSED;
    return dl_failure_notice_fail(&options->peers, options->peer, head,
                                  self->ahead + self->start + DL_HEAD_SIZE);
}

/* Examines the head at the front of the bytes read ahead.  `*is_taken` is true if it
 * begins the expected part, or is a greeting; it is then consumed. */
static dl_status
take_head(dl_route *self, bool *is_taken)
{
    dl_head head;
    size_t ready = self->end - self->start;

    *is_taken = false;
    if (ready < DL_HEAD_SIZE) {
        return DL_OK;
    }
    if (!dl_head_take(self->ahead + self->start, &head)
        || (head.kind != DL_HEAD_DATA && head.kind != DL_HEAD_NOTICE)
        || (head.kind == DL_HEAD_DATA && head.detail > DL_NOTE_LIMIT)
        || (head.kind == DL_HEAD_NOTICE && head.size > DL_ERROR_TEXT_SIZE)) {
        return dl_link_fail_protocol(dl_bundle_options(&self->link));
    }
    if (head.kind == DL_HEAD_NOTICE) {
        bool is_whole = ready >= DL_HEAD_SIZE + head.size;
        return is_whole ? fail_with_notice(self, &head) : DL_OK;
    }
    self->heard = head.id;
    if (stage_of(&head) == GREETING && head.id <= self->op->sequence) {
        self->start += DL_HEAD_SIZE;
        *is_taken = true;
        return compare_greeting(self, &head);
    }
    if (dl_queue_is_empty(&self->in)) {
        return DL_OK;
    }
    dl_cargo *cargo = dl_queue_front(&self->in);
    DL_TRY(compare_head(self, cargo, &head));
    if (head.size > cargo->size - cargo->done) {
        return dl_link_fail_protocol(dl_bundle_options(&self->link));
    }
    *self->note = head.detail > *self->note ? head.detail : *self->note;
    self->start += DL_HEAD_SIZE;
    self->in_left = head.size;
    cargo->is_begun = true;
    *is_taken = true;
    return DL_OK;
}

/* Copies payload out of the bytes read ahead. */
static void
take_payload(dl_route *self, dl_cargo *cargo)
{
    size_t size = min_size(self->in_left, self->end - self->start);

    if (size > 0) {
        memcpy(cargo->data + cargo->done, self->ahead + self->start, size);
    }
    cargo->done += size;
    self->in_left -= size;
    self->start += size;
}

static bool
is_idle(const dl_route *self)
{
    return dl_queue_is_empty(&self->in) && dl_queue_is_empty(&self->out);
}

/* Processes the bytes read ahead as far as possible without reading more.  A notice
 * behind everything that was expected is left for the operation that needs more. */
static dl_status
process_ahead(dl_route *self)
{
    bool goes_on = true;

    while (goes_on) {
        bool is_expected = !dl_queue_is_empty(&self->in);
        dl_cargo *cargo = dl_queue_front(&self->in);
        if (is_expected && self->in_left > 0) {
            take_payload(self, cargo);
        }
        if (is_expected && self->in_left == 0 && cargo->is_begun
            && cargo->done == cargo->size) {
            self->in.first++;
            continue;
        }
        goes_on = false;
        if (self->in_left == 0 && !is_idle(self)) {
            DL_TRY(take_head(self, &goes_on));
        }
    }
    return DL_OK;
}

/* Reads the rest of a large part straight into place, and at most the next head behind
 * it: more bytes could belong to a part that is to be read straight into place
 * itself. */
static dl_status
receive_some(dl_route *self, size_t *got)
{
    dl_cargo *cargo = dl_queue_front(&self->in);
    bool is_direct = self->in_left >= DIRECT_LEAST;

    if (self->start > 0) {
        memmove(self->ahead, self->ahead + self->start, self->end - self->start);
        self->end -= self->start;
        self->start = 0;
    }
    struct iovec parts[] = {
        {is_direct ? cargo->data + cargo->done : NULL, is_direct ? self->in_left : 0},
        {self->ahead + self->end,
         is_direct ? DL_HEAD_SIZE : DL_ROUTE_AHEAD - self->end},
    };
    int skipped = is_direct ? 0 : 1;
    *got = 0;
    if (parts[skipped].iov_len == 0) {
        return DL_OK;
    }
    DL_TRY(dl_bundle_read(&self->link, parts + skipped, 2 - skipped, got));
    size_t direct = is_direct ? min_size(*got, self->in_left) : 0;
    cargo->done += direct;
    self->in_left -= direct;
    self->end += *got - direct;
    return DL_OK;
}

/* Reads even if only sends are queued: the other rank may have given up and sent the
 * reason. */
static dl_status
step_in(dl_route *self, bool *has_moved)
{
    size_t got;

    DL_TRY(process_ahead(self));
    while (!is_idle(self)) {
        DL_TRY(receive_some(self, &got));
        if (got == 0) {
            return DL_OK;
        }
        *has_moved = true;
        DL_TRY(process_ahead(self));
    }
    return DL_OK;
}

static bool
is_greeting_next(const dl_route *self)
{
    dl_head head;

    return self->end - self->start >= DL_HEAD_SIZE
           && dl_head_take(self->ahead + self->start, &head)
           && head.kind == DL_HEAD_DATA && stage_of(&head) == GREETING
           && head.id <= self->op->sequence;
}

dl_status
dl_route_read_call(dl_route *self)
{
    bool is_taken;
    size_t got;
    dl_status status = DL_OK;

    if (!self->link.is_open || !is_idle(self)) {
        return DL_OK;
    }
    if (self->end - self->start < DL_HEAD_SIZE) {
        status = receive_some(self, &got);
    }
    while (status == DL_OK && is_greeting_next(self)) {
        status = take_head(self, &is_taken);
    }
    return status == DL_MISMATCH ? status : DL_OK;
}

dl_status
dl_route_step(dl_route *self, bool *has_moved)
{
    if (is_idle(self)) {
        return DL_OK;
    }
    DL_TRY(dl_bundle_open(&self->link));
    if (self->is_quiet) {
        self->is_quiet = false;
        DL_TRY(step_in(self, has_moved));
    }
    dl_status status = step_out(self, has_moved);
    if (status != DL_OK) {
        /* What the other rank sent before the connection ended is more precise. */
        dl_error error = *dl_last_error();
        DL_TRY(step_in(self, has_moved));
        return dl_rethrow(&error);
    }
    return step_in(self, has_moved);
}

int
dl_route_poll(const dl_route *self, struct pollfd *entries)
{
    short events = (short)(dl_queue_is_empty(&self->out) ? POLLIN : POLLIN | POLLOUT);

    /* Data for a later operation are left unread, and must not end each sleep. */
    if (dl_queue_is_empty(&self->in) && self->end - self->start >= DL_HEAD_SIZE) {
        events &= (short)~POLLIN;
    }
    return is_idle(self) ? 0 : dl_bundle_poll(&self->link, events, entries);
}

/* Sends the rest of the current part.  Returns true if nothing is left of it. */
static bool
finish_part(dl_route *self, dl_deadline deadline)
{
    while (self->head_left > 0 || self->part_left > 0) {
        struct pollfd entries[DL_BUNDLE_POLLS];
        int count = dl_bundle_poll(&self->link, POLLOUT, entries);
        size_t sent;
        if (send_some(self, dl_queue_front(&self->out), &sent) != DL_OK) {
            return false;
        }
        if (sent > 0) {
            continue;
        }
        if (dl_deadline_passed(deadline)
            || (poll(entries, (nfds_t)count, dl_deadline_poll(deadline, DL_WAIT_SLICE))
                    < 0
                && errno != EINTR)) {
            return false;
        }
    }
    return true;
}

void
dl_route_notify(dl_route *self, const dl_error *cause, dl_deadline deadline)
{
    if (dl_bundle_open(&self->link) != DL_OK || !self->link.is_open) {
        return;
    }
    if (finish_part(self, deadline)) {
        dl_bundle_notify(&self->link, cause);
    }
    dl_bundle_shutdown(&self->link);
}
