/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_client.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "base/interrupt.h"

/* The owner answers at the deadline of a lock, and its answer, which names the holder,
 * needs time to arrive. */
#define ANSWER_PATIENCE DL_SECOND

/* A get and a fetch send the request for the next part before they have read the last
 * one, so that the owner works while the data travel. */
#define PARTS_AHEAD 2

void
dl_window_client_init(dl_window_client *client, const dl_window_ranks *ranks, int owner,
                      const dl_link_options *link, const dl_way *way)
{
    *client = (dl_window_client){.ranks = ranks, .owner = owner, .options = *link};
    client->options.peer = owner;
    client->options.there = &ranks->peers[owner];
    client->options.use = DL_FOR_WINDOWS;
    dl_link_options_aim(&client->options, way, 0);
    dl_lane_init(&client->turns);
}

void
dl_window_client_aim(dl_window_client *client, int number)
{
    client->options.lane = number;
    dl_link_init(&client->link, &client->options);
}

void
dl_window_client_fini(dl_window_client *client, bool is_inherited)
{
    if (client->ranks != NULL && !is_inherited) {
        dl_link_fini(&client->link);
        dl_lane_fini(&client->turns);
    }
}

static dl_status
fail_late_answer(const dl_window_client *self, dl_deadline deadline)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peer_describe(&self->ranks->peers[self->owner], self->owner, peer);
    return dl_fail(DL_TIMEOUT,
                   "window in group %s: %s did not answer within %" PRId64 "ms",
                   self->ranks->group_name, peer, deadline.limit / DL_MILLISECOND);
}

/* The checks between two slices of a wait. */
static dl_status
check_wait(dl_window_client *self, dl_deadline deadline)
{
    DL_TRY(dl_window_ends_check(self->ranks->ends));
    DL_TRY(dl_interrupt_check());
    DL_TRY(dl_window_ranks_check(self->ranks, self->owner));
    DL_TRY(dl_link_check_host(&self->link));
    return dl_deadline_passed(deadline) ? fail_late_answer(self, deadline) : DL_OK;
}

/* Waits until the link can move bytes, or for a slice. */
static dl_status
wait_for(dl_window_client *self, short events, dl_deadline deadline)
{
    struct pollfd entry = dl_link_poll(&self->link, events);

    dl_blocking_begin();
    if (poll(&entry, 1, dl_deadline_poll(deadline, DL_WAIT_SLICE)) > 0) {
        return DL_OK;
    }
    return check_wait(self, deadline);
}

static void
reset_link(dl_window_client *self)
{
    dl_link_fini(&self->link);
    dl_link_init(&self->link, &self->options);
    self->has_lost = self->has_lost || self->is_dirty;
    self->is_dirty = false;
}

/* Waits for the turn to use the link. */
static dl_status
take_turn(dl_window_client *self, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&self->turns, deadline);

    return status == DL_TIMEOUT ? fail_late_answer(self, deadline) : status;
}

/* Releases the turn.  After a failure of the link itself the next access opens another
 * one. */
static dl_status
release_turn(dl_window_client *self, dl_status status, bool is_broken)
{
    if (is_broken) {
        dl_error error = *dl_last_error();
        reset_link(self);
        (void)dl_rethrow(&error);
    }
    dl_lane_pass(&self->turns);
    return status;
}

static dl_status
open_link(dl_window_client *self, dl_deadline deadline)
{
    while (!self->link.is_open) {
        DL_TRY(dl_link_call(&self->link));
        if (!self->link.is_open) {
            DL_TRY(wait_for(self, POLLOUT, deadline));
        }
    }
    return DL_OK;
}

static dl_status
read_all(dl_window_client *self, void *target, size_t size, dl_deadline deadline)
{
    uint8_t *at = target;

    while (size > 0) {
        struct iovec part = {at, size};
        size_t got;
        DL_TRY(dl_link_read(&self->link, &part, 1, &got));
        if (got == 0) {
            DL_TRY(wait_for(self, POLLIN, deadline));
        }
        at += got;
        size -= got;
    }
    return DL_OK;
}

/* Fails with the text of a notice or of a failed request. */
static dl_status
fail_with_received_text(dl_window_client *self, const dl_head *head,
                        dl_deadline deadline)
{
    char text[DL_ERROR_TEXT_SIZE];
    const dl_peer *peer = &self->ranks->peers[self->owner];

    if (head->size >= sizeof text) {
        return dl_link_fail_protocol(&self->options);
    }
    DL_TRY(read_all(self, text, head->size, deadline));
    text[head->size] = '\0';
    if (head->kind == DL_HEAD_NOTICE) {
        return dl_failure_notice_fail(peer, self->owner, head, (uint8_t *)text);
    }
    if (head->root == DL_CLOSED) {
        return dl_window_ranks_fail_closed(self->ranks, self->owner);
    }
    bool is_failure = head->root != DL_OK && head->root <= DL_STATUS_LAST
                      && head->root != DL_INTERRUPTED;
    return dl_fail(is_failure ? (dl_status)head->root : DL_PROTOCOL, "%s", text);
}

/* Reads the answer to request `id`, or the last frame of the link.  `*is_told` is set if
 * the owner has refused the request; the link stays usable then. */
static dl_status
read_answer(dl_window_client *self, uint64_t id, void *output, size_t size,
            dl_deadline deadline, bool *is_told)
{
    uint8_t bytes[DL_HEAD_SIZE];
    dl_head head;

    DL_TRY(read_all(self, bytes, sizeof bytes, deadline));
    if (!dl_head_take(bytes, &head)) {
        return dl_link_fail_protocol(&self->options);
    }
    if (head.kind == DL_HEAD_NOTICE) {
        return fail_with_received_text(self, &head, deadline);
    }
    if (head.kind != DL_HEAD_WINDOW || (head.id != id && head.id != 0)) {
        return dl_link_fail_protocol(&self->options);
    }
    self->is_dirty = false;
    if (head.detail == DL_WINDOW_FAILED) {
        *is_told = head.id != 0;
        return fail_with_received_text(self, &head, deadline);
    }
    if (head.detail != DL_WINDOW_DONE || head.size != size) {
        return dl_link_fail_protocol(&self->options);
    }
    return read_all(self, output, size, deadline);
}

/* A notice that arrived before the connection broke gives the reason, which the break
 * does not. */
static dl_status
explain_break(dl_window_client *self, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    bool is_told = false;

    if (error.status == DL_PEER_LOST && self->link.is_open
        && read_answer(self, 0, NULL, 0, deadline, &is_told) != DL_OK
        && dl_last_error()->status != DL_PROTOCOL) {
        return dl_last_error()->status;
    }
    return dl_rethrow(&error);
}

static dl_status
write_all(dl_window_client *self, struct iovec *parts, int count, dl_deadline deadline)
{
    while (count > 0) {
        size_t sent;
        if (dl_link_write(&self->link, parts, count, &sent) != DL_OK) {
            return explain_break(self, deadline);
        }
        if (sent == 0) {
            DL_TRY(wait_for(self, POLLOUT, deadline));
        }
        while (count > 0 && sent >= parts->iov_len) {
            sent -= parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (uint8_t *)parts->iov_base + sent;
            parts->iov_len -= sent;
        }
    }
    return DL_OK;
}

/* Sends a request with up to two parts of payload. */
static dl_status
send_request(dl_window_client *self, dl_head *head, const void *input,
             const void *compared, dl_deadline deadline)
{
    uint8_t bytes[DL_HEAD_SIZE];
    struct iovec parts[3] = {{bytes, sizeof bytes}};
    int count = 1;

    head->id = ++self->requests;
    if (input != NULL) {
        parts[count++] = (struct iovec){(void *)(uintptr_t)input, (size_t)head->total};
    }
    if (compared != NULL) {
        parts[count++] =
            (struct iovec){(void *)(uintptr_t)compared, (size_t)head->total};
    }
    dl_head_put(bytes, head);
    self->is_dirty = self->is_dirty || !dl_window_frame_is_answered(head->detail);
    DL_TRY(open_link(self, deadline));
    return write_all(self, parts, count, deadline);
}

/* Fails, once, if accesses were never confirmed because their link ended. */
static dl_status
check_lost(dl_window_client *self)
{
    char peer[DL_PEER_TEXT_SIZE];

    if (!self->has_lost) {
        return DL_OK;
    }
    self->has_lost = false;
    dl_peer_describe(&self->ranks->peers[self->owner], self->owner, peer);
    return dl_fail(DL_PEER_LOST,
                   "window in group %s: the connection to %s ended before it had "
                   "confirmed earlier accesses; what they wrote may be missing",
                   self->ranks->group_name, peer);
}

/* Sends a request without payload, and waits for its answer; `*is_told` is as for
 * read_answer(). */
static dl_status
request_answer(dl_window_client *self, dl_head head, dl_deadline deadline,
               bool *is_told)
{
    DL_TRY(send_request(self, &head, NULL, NULL, deadline));
    return read_answer(self, head.id, NULL, 0, deadline, is_told);
}

/* As request_answer(), and fails if earlier accesses may be lost.  Releases the turn. */
static dl_status
confirm_accesses(dl_window_client *self, dl_head head, dl_deadline deadline)
{
    bool is_told = false;
    dl_status status = request_answer(self, head, deadline, &is_told);

    if (status == DL_OK) {
        status = check_lost(self);
        is_told = true;
    }
    return release_turn(self, status, status != DL_OK && !is_told);
}

/* The part of an access from byte `at` on. */
static dl_access
part_of(const dl_access *access, size_t at, size_t size)
{
    dl_access part = *access;

    part.offset += at;
    part.size = size;
    if (part.input != NULL) {
        part.input = (const uint8_t *)part.input + at;
    }
    if (part.output != NULL) {
        part.output = (uint8_t *)part.output + at;
    }
    return part;
}

/* The parts of one access, of which some have been asked for and fewer have been
 * read. */
typedef struct parts {
    const dl_access *access;
    size_t piece;
    size_t asked; /* bytes */
    size_t read;
    uint64_t first_id; /* of the answers; the next ones follow */
} parts;

static size_t
size_of_part(const parts *self, size_t at)
{
    size_t left = self->access->size - at;

    return left < self->piece ? left : self->piece;
}

static dl_status
ask_for_part(dl_window_client *self, parts *all, dl_deadline deadline)
{
    dl_access part = part_of(all->access, all->asked, size_of_part(all, all->asked));
    dl_head head = dl_window_frame_of(&part);

    DL_TRY(send_request(self, &head, part.input, part.compared, deadline));
    all->first_id = all->asked == 0 ? head.id : all->first_id;
    all->asked += part.size;
    return DL_OK;
}

/* A refusal of one part leaves answers to later ones behind, so the link is broken after
 * it unless it was the last. */
static dl_status
move_parts(dl_window_client *self, parts *all, dl_deadline deadline, bool *is_whole)
{
    bool is_answered = all->access->output != NULL;
    size_t size = all->access->size;
    /* Both sides could wait for each other to read what they send. */
    size_t ahead = all->access->input == NULL ? PARTS_AHEAD * all->piece : all->piece;
    uint64_t id = 0;

    while (all->read < size) {
        while (all->asked < size && (!is_answered || all->asked < all->read + ahead)) {
            DL_TRY(ask_for_part(self, all, deadline));
        }
        if (!is_answered) {
            return DL_OK;
        }
        size_t part = size_of_part(all, all->read);
        bool is_told = false;
        dl_status status = read_answer(self, all->first_id + id++,
                                       (uint8_t *)all->access->output + all->read, part,
                                       deadline, &is_told);
        *is_whole = is_told && all->read + part == all->asked;
        DL_TRY(status);
        all->read += part;
    }
    return DL_OK;
}

dl_status
dl_window_client_access(dl_window_client *client, const dl_access *access,
                        size_t item_size, dl_deadline deadline)
{
    size_t limit = access->kind == DL_ACCESS_SWAP ? DL_PART_LIMIT / 2 : DL_PART_LIMIT;
    bool is_atomic = access->kind == DL_ACCESS_UPDATE || access->kind == DL_ACCESS_SWAP;
    parts all = {.access = access,
                 .piece = is_atomic ? limit / item_size * item_size : limit};
    bool is_whole = false;

    DL_TRY(take_turn(client, deadline));
    dl_status status = move_parts(client, &all, deadline, &is_whole);
    return release_turn(client, status, status != DL_OK && !is_whole);
}

/* Releases this rank's lock, or ends its wait for the lock, before the link is closed:
 * the owner reads what was sent before the end.  No thread reads the answer. */
static void
send_unlock(dl_window_client *self)
{
    uint8_t bytes[DL_HEAD_SIZE];
    struct iovec part = {bytes, sizeof bytes};
    size_t sent;

    dl_head_put(bytes, &(dl_head){.kind = DL_HEAD_WINDOW, .detail = DL_WINDOW_UNLOCK});
    if (self->link.is_open && !dl_link_is_between(&self->link)) {
        (void)dl_link_write(&self->link, &part, 1, &sent);
    }
}

/* The limit of a wait there, in whole milliseconds: the owner's error states it. */
static uint64_t
limit_of(int64_t left)
{
    return left > INT64_MAX - DL_MILLISECOND
               ? UINT64_MAX
               : (uint64_t)((left + DL_MILLISECOND - 1) / DL_MILLISECOND
                            * DL_MILLISECOND);
}

dl_status
dl_window_client_lock(dl_window_client *client, bool is_shared, dl_deadline deadline)
{
    int64_t left = dl_deadline_left(deadline);
    dl_deadline patience = left == INT64_MAX || left > INT64_MAX - ANSWER_PATIENCE
                               ? dl_deadline_after(-1)
                               : dl_deadline_after(left + ANSWER_PATIENCE);
    dl_head head = {
        .kind = DL_HEAD_WINDOW,
        .detail = DL_WINDOW_LOCK,
        .root = is_shared,
        .length = limit_of(left),
    };
    bool is_told = false;

    DL_TRY(take_turn(client, deadline));
    dl_status status = request_answer(client, head, patience, &is_told);
    if (status == DL_OK) {
        atomic_store(&client->has_lock, true);
    } else if (!is_told) {
        dl_error error = *dl_last_error();
        send_unlock(client);
        (void)dl_rethrow(&error);
    }
    return release_turn(client, status, status != DL_OK && !is_told);
}

dl_status
dl_window_client_unlock(dl_window_client *client, dl_deadline deadline)
{
    dl_head head = {.kind = DL_HEAD_WINDOW, .detail = DL_WINDOW_UNLOCK};

    DL_TRY(take_turn(client, deadline));
    atomic_store(&client->has_lock, false);
    return confirm_accesses(client, head, deadline);
}

dl_status
dl_window_client_flush(dl_window_client *client, dl_deadline deadline)
{
    dl_head head = {.kind = DL_HEAD_WINDOW, .detail = DL_WINDOW_FLUSH};

    DL_TRY(take_turn(client, deadline));
    if (!client->is_dirty) {
        return release_turn(client, check_lost(client), false);
    }
    return confirm_accesses(client, head, deadline);
}

void
dl_window_client_drop(dl_window_client *client)
{
    if (atomic_exchange(&client->has_lock, false) && dl_lane_try(&client->turns)) {
        send_unlock(client);
        (void)release_turn(client, DL_OK, true);
    }
}
