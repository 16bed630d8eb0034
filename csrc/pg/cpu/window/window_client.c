/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_client.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "base/interrupt.h"

/* The owner answers at the deadline of a lock, and its answer, which names the holder,
 * needs time to arrive. */
#define ANSWER_PATIENCE (900 * DL_MILLISECOND)

/* A get and a fetch send the request for the next part before they have read the last
 * one, so that the owner works while the data travel. */
#define PARTS_AHEAD 2

void
dl_window_client_init(dl_window_client *client, const dl_window_ranks *ranks, int owner,
                      const dl_link_options *link, const dl_tcp_contact *tcp)
{
    *client = (dl_window_client){.ranks = ranks, .owner = owner, .options = *link};
    client->options.peer = owner;
    client->options.peers = ranks->peers;
    client->options.use = DL_FOR_WINDOWS;
    dl_link_options_aim(&client->options, tcp, 0);
    dl_lane_init(&client->turns);
}

void
dl_window_client_aim(dl_window_client *client, int number)
{
    client->options.index = number;
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

    dl_peers_describe(&self->ranks->peers, self->owner, peer);
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
    self->unread = 0;
}

/* Waits for the turn to use the link. */
static dl_status
take_turn(dl_window_client *self, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&self->turns, deadline);

    return status == DL_TIMEOUT ? fail_late_answer(self, deadline) : status;
}

/* Releases the turn.  A link that still has answers is not used again. */
static dl_status
release_turn(dl_window_client *self, dl_status status)
{
    if (self->unread > 0) {
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

/* Fails with the text of a notice, the last frame of a link, or of a refused request.
 * A notice without text is about the window, and others are about the group. */
static dl_status
fail_refused(dl_window_client *self, const dl_head *head, const char *text)
{
    if (head->root == DL_CLOSED && (head->kind != DL_HEAD_NOTICE || head->size == 0)) {
        return dl_window_ranks_fail_closed(self->ranks, self->owner);
    }
    if (head->kind == DL_HEAD_NOTICE) {
        return dl_failure_notice_fail(&self->ranks->peers, self->owner, head,
                                      (const uint8_t *)text);
    }
    bool is_failure = head->root != DL_OK && head->root <= DL_STATUS_LAST
                      && head->root != DL_INTERRUPTED;
    return dl_fail(is_failure ? (dl_status)head->root : DL_PROTOCOL, "%s", text);
}

/* Reads the next answer, whose payload has `size` bytes. */
static dl_status
read_answer(dl_window_client *self, void *output, size_t size, dl_deadline deadline)
{
    uint8_t bytes[DL_HEAD_SIZE];
    char text[DL_ERROR_TEXT_SIZE];
    dl_head head = {0};

    DL_TRY(read_all(self, bytes, sizeof bytes, deadline));
    bool is_head = dl_head_take(bytes, &head);
    bool is_answer = is_head && head.kind == DL_HEAD_WINDOW;
    bool is_done = is_answer && head.detail == DL_WINDOW_DONE && head.size == size;
    bool is_refusal = is_answer ? head.detail == DL_WINDOW_FAILED
                                : is_head && head.kind == DL_HEAD_NOTICE;
    if (!is_done && (!is_refusal || head.size >= sizeof text)) {
        return dl_link_fail_protocol(&self->options);
    }
    DL_TRY(read_all(self, is_done ? output : text, head.size, deadline));
    self->is_dirty = self->is_dirty && !is_answer;
    self->unread -= is_answer;
    if (is_done) {
        return DL_OK;
    }
    text[head.size] = '\0';
    return fail_refused(self, &head, text);
}

/* A notice that arrived before the connection broke gives the reason, which the break
 * does not. */
static dl_status
explain_break(dl_window_client *self, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    dl_status status = error.status == DL_PEER_LOST
                           ? read_answer(self, NULL, 0, deadline)
                           : DL_PROTOCOL;

    return status == DL_OK || status == DL_PROTOCOL ? dl_rethrow(&error) : status;
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
send_request(dl_window_client *self, const dl_head *head, const void *input,
             const void *compared, dl_deadline deadline)
{
    uint8_t bytes[DL_HEAD_SIZE];
    struct iovec parts[3] = {{bytes, sizeof bytes}};
    int count = 1;

    if (input != NULL) {
        parts[count++] = (struct iovec){(void *)(uintptr_t)input, (size_t)head->total};
    }
    if (compared != NULL) {
        parts[count++] =
            (struct iovec){(void *)(uintptr_t)compared, (size_t)head->total};
    }
    dl_head_put(bytes, head);
    bool is_answered = dl_window_is_answered(head->detail);
    self->unread++;
    self->is_dirty = self->is_dirty || !is_answered;
    DL_TRY(open_link(self, deadline));
    DL_TRY(write_all(self, parts, count, deadline));
    self->unread -= !is_answered;
    return DL_OK;
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
    dl_peers_describe(&self->ranks->peers, self->owner, peer);
    return dl_fail(DL_PEER_LOST,
                   "window in group %s: the connection to %s ended before it had "
                   "confirmed earlier accesses; what they wrote may be missing",
                   self->ranks->group_name, peer);
}

/* Sends a request without payload, and waits for its answer. */
static dl_status
request_answer(dl_window_client *self, const dl_head *head, dl_deadline deadline)
{
    DL_TRY(send_request(self, head, NULL, NULL, deadline));
    return read_answer(self, NULL, 0, deadline);
}

/* The part of an access from byte `at` on, of at most `piece` bytes. */
static dl_access
part_of(const dl_access *access, size_t at, size_t piece)
{
    dl_access part = *access;

    part.offset += at;
    part.size = access->size - at < piece ? access->size - at : piece;
    if (part.input != NULL) {
        part.input = (const uint8_t *)part.input + at;
    }
    if (part.output != NULL) {
        part.output = (uint8_t *)part.output + at;
    }
    return part;
}

/* Sends the requests for an access in parts, and reads the answers, if it has any. */
static dl_status
move_parts(dl_window_client *self, const dl_access *access, size_t piece,
           dl_deadline deadline)
{
    /* Both sides could wait for each other to read what they send. */
    size_t ahead = access->input == NULL ? PARTS_AHEAD * piece : piece;
    size_t asked = 0;

    for (size_t at = 0; at < access->size; at += piece) {
        while (asked < access->size && asked < at + ahead) {
            dl_access part = part_of(access, asked, piece);
            dl_head head = dl_window_head_of(&part);
            DL_TRY(send_request(self, &head, part.input, part.compared, deadline));
            asked += part.size;
        }
        if (access->output != NULL) {
            dl_access part = part_of(access, at, piece);
            DL_TRY(read_answer(self, part.output, part.size, deadline));
        }
    }
    return DL_OK;
}

dl_status
dl_window_client_access(dl_window_client *client, const dl_access *access,
                        size_t item_size, dl_deadline deadline)
{
    bool is_atomic = access->kind == DL_ACCESS_UPDATE || access->kind == DL_ACCESS_SWAP;
    size_t limit = access->kind == DL_ACCESS_SWAP ? DL_PART_LIMIT / 2 : DL_PART_LIMIT;
    size_t piece = is_atomic ? limit / item_size * item_size : limit;

    DL_TRY(take_turn(client, deadline));
    return release_turn(client, move_parts(client, access, piece, deadline));
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
    self->unread++;
}

dl_status
dl_window_client_lock(dl_window_client *client, bool is_shared, dl_deadline deadline)
{
    dl_head head = {
        .kind = DL_HEAD_WINDOW,
        .detail = DL_WINDOW_LOCK,
        .root = is_shared,
        .length = (uint64_t)dl_deadline_left(deadline),
    };
    dl_deadline patience = deadline;

    if (deadline.at < INT64_MAX - ANSWER_PATIENCE) {
        patience.at += ANSWER_PATIENCE;
    }
    DL_TRY(take_turn(client, deadline));
    dl_status status = request_answer(client, &head, patience);
    if (client->unread > 0) {
        dl_error error = *dl_last_error();
        send_unlock(client);
        (void)dl_rethrow(&error);
    }
    return release_turn(client, status);
}

dl_status
dl_window_client_flush(dl_window_client *client, bool *has_lock, dl_deadline deadline)
{
    dl_head head = {.kind = DL_HEAD_WINDOW,
                    .detail = has_lock != NULL ? DL_WINDOW_UNLOCK : DL_WINDOW_FLUSH};
    dl_status status = DL_OK;

    DL_TRY(take_turn(client, deadline));
    if (has_lock != NULL || client->is_dirty) {
        status = request_answer(client, &head, deadline);
    }
    if (has_lock != NULL) {
        *has_lock = client->unread > 0;
    }
    if (status == DL_OK) {
        status = check_lost(client);
    }
    return release_turn(client, status);
}

void
dl_window_client_drop(dl_window_client *client)
{
    if (dl_lane_try(&client->turns)) {
        send_unlock(client);
        (void)release_turn(client, DL_OK);
    }
}
