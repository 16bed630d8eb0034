/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/notices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

/* Connections that are made at a time: the number of descriptors of a process is
 * limited. */
#define BATCH 32

/* Values of the head's `detail`.  The process of the rank that the notice is about has
 * ended. */
#define HAS_ENDED 1
/* The rank has not given up yet, and may not give up at all. */
#define IS_EXPECTED_TIMEOUT 2

/* A connection whose frame has not been read whole. */
typedef struct notice {
    dl_list node;
    dl_transport transport;
    size_t got;
    uint8_t bytes[DL_FAILURE_NOTICE_SIZE];
} notice;

dl_status
dl_notices_init(dl_notices *notices, const dl_notices_options *options)
{
    *notices =
        (dl_notices){.options = *options, .fork_generation = dl_fork_generation()};
    notices->has_ended =
        calloc((size_t)options->layout->size, sizeof *notices->has_ended);
    if (notices->has_ended == NULL) {
        return dl_fail_no_memory();
    }
    dl_list_init(&notices->arriving);
    pthread_mutex_init(&notices->lock, NULL);
    return DL_OK;
}

static void
drop_notice(notice *self)
{
    dl_list_remove(&self->node);
    free(self);
}

void
dl_notices_fini(dl_notices *notices)
{
    bool is_own = notices->fork_generation == dl_fork_generation();

    if (notices->has_ended == NULL) {
        return;
    }
    while (!dl_list_is_empty(&notices->arriving)) {
        notice *first = DL_LIST_ENTRY(notices->arriving.next, notice, node);
        if (is_own) {
            dl_transport_close(&first->transport);
        }
        drop_notice(first);
    }
    free(notices->has_ended);
    pthread_mutex_destroy(&notices->lock);
    *notices = (dl_notices){0};
}

/* Returns the error that describes the notice, and keeps the thread's last error. */
static dl_error
error_of(const dl_notices *self, int rank, const dl_head *head, const uint8_t *text)
{
    dl_error before = *dl_last_error();

    (void)dl_failure_notice_fail(&self->options.peers[rank], rank, head, text);
    dl_error error = *dl_last_error();
    (void)dl_rethrow(&before);
    return error;
}

/* The failure with the lowest operation counts: an operation after it cannot have
 * begun. */
static void
note_locked(dl_notices *self, const dl_head *head, const uint8_t *text)
{
    const dl_layout *layout = self->options.layout;
    int rank = (int)head->tag;

    if (head->tag < 0 || head->tag >= layout->size || head->id == 0) {
        return;
    }
    if (head->detail == IS_EXPECTED_TIMEOUT) {
        self->late_sequence = head->id;
        self->late_rank = rank;
        self->late_error = error_of(self, rank, head, text);
        return;
    }
    self->has_ended[rank] = true;
    if (head->detail == HAS_ENDED && self->options.processes != NULL) {
        dl_process_set_ended(self->options.processes[rank]);
    }
    if (self->sequence == 0 || head->id < self->sequence) {
        self->error = error_of(self, rank, head, text);
        self->sequence = head->id;
    }
}

/* Reads from the connection.  Returns true when it can be closed: the notice is
 * complete, the peer has closed, or the bytes are no notice. */
static bool
read_locked(dl_notices *self, notice *from)
{
    struct iovec room = {from->bytes + from->got, sizeof from->bytes - from->got};
    size_t got = 0;
    int error;
    dl_head head;

    dl_error before = *dl_last_error();
    bool has_ended =
        dl_transport_read(&from->transport, &room, 1, &got, &error) != DL_OK;
    (void)dl_rethrow(&before);
    from->got += got;
    if (from->got < DL_HEAD_SIZE) {
        return has_ended;
    }
    bool is_notice = dl_head_take(from->bytes, &head) && head.kind == DL_HEAD_NOTICE
                     && head.size < DL_ERROR_TEXT_SIZE;
    bool is_whole = is_notice && from->got >= DL_HEAD_SIZE + head.size;
    if (is_whole) {
        note_locked(self, &head, from->bytes + DL_HEAD_SIZE);
    }
    return is_whole || !is_notice || has_ended;
}

/* Takes the next connection; without memory for it, it stays with the listener. */
static bool
accept_locked(dl_notices *self)
{
    const dl_notices_options *options = &self->options;
    dl_hello contents = {
        .group = options->group_name,
        .caller = -1,
        .callee = options->layout->rank,
        .use = DL_FOR_NOTICES,
    };
    notice *made = calloc(1, sizeof *made);

    if (made == NULL
        || !dl_listener_take(options->listener, &contents, &made->transport)) {
        free(made);
        return false;
    }
    dl_list_append(&self->arriving, &made->node);
    return true;
}

/* Takes in all notices that have arrived.  A sender that is slow, or stopped in the
 * middle, delays no other one's. */
static void
take_in_locked(dl_notices *self)
{
    while (accept_locked(self)) {
    }
    for (dl_list *node = self->arriving.next; node != &self->arriving;) {
        notice *from = DL_LIST_ENTRY(node, notice, node);
        node = node->next;
        if (read_locked(self, from)) {
            dl_transport_close(&from->transport);
            drop_notice(from);
        }
    }
}

dl_status
dl_notices_check(dl_notices *notices, uint64_t sequence)
{
    dl_status status = DL_OK;

    if (notices->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&notices->lock);
    take_in_locked(notices);
    if (notices->sequence != 0 && notices->sequence <= sequence) {
        status = dl_rethrow(&notices->error);
    }
    pthread_mutex_unlock(&notices->lock);
    return status;
}

dl_status
dl_notices_late(dl_notices *notices, uint64_t sequence, int *leader)
{
    dl_status status = DL_OK;

    if (notices->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&notices->lock);
    take_in_locked(notices);
    if (notices->late_sequence == sequence) {
        *leader = notices->late_rank;
        status = dl_rethrow(&notices->late_error);
    }
    pthread_mutex_unlock(&notices->lock);
    return status;
}

void
dl_notices_poll(dl_notices *notices)
{
    if (notices->has_ended != NULL) {
        pthread_mutex_lock(&notices->lock);
        take_in_locked(notices);
        pthread_mutex_unlock(&notices->lock);
    }
}

dl_status
dl_notices_watch(dl_notices *notices, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];
    dl_status status = DL_OK;

    if (notices->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&notices->lock);
    dl_peer_describe(&notices->options.peers[rank], rank, peer);
    if (notices->options.processes != NULL
        && dl_process_has_ended(notices->options.processes[rank])) {
        status = dl_fail(DL_PEER_LOST, "%s exited or was killed", peer);
    } else if (notices->has_ended[rank]) {
        bool is_named = strstr(notices->error.text, peer) != NULL;
        status = is_named ? dl_fail(DL_PEER_LOST, "%s", notices->error.text)
                          : dl_fail(DL_PEER_LOST, "%s gave up: %.1800s", peer,
                                    notices->error.text);
    }
    pthread_mutex_unlock(&notices->lock);
    return status;
}

/* Connections that are being made, and the frame that is sent over each. */
typedef struct round {
    dl_link links[BATCH];
    struct pollfd polls[BATCH];
    int count;
    dl_buffer text;
} round;

/* Advances one connection.  Returns true when it is finished: the frame was sent, or
 * the rank cannot be reached. */
static bool
advance_connection(dl_link *link, const dl_buffer *text)
{
    struct iovec part = {text->data, text->size};
    size_t sent;

    if (dl_link_call(link) == DL_OK && !link->is_open) {
        return false;
    }
    /* The frame fits the socket's send buffer, which is empty. */
    (void)dl_link_write(link, &part, 1, &sent);
    dl_link_fini(link);
    return true;
}

/* Sends the frame until at most `most` connections are left; closes all of them at the
 * deadline. */
static void
send_round(round *self, int most, dl_deadline deadline)
{
    do {
        for (int i = self->count - 1; i >= 0; i--) {
            if (advance_connection(&self->links[i], &self->text)) {
                self->links[i] = self->links[--self->count];
            }
        }
        if (self->count <= most) {
            return;
        }
        for (int i = 0; i < self->count; i++) {
            self->polls[i] = dl_link_poll(&self->links[i], POLLOUT);
        }
    } while (!dl_deadline_passed(deadline)
             && (poll(self->polls, (nfds_t)self->count,
                      dl_deadline_poll(deadline, DL_WAIT_SLICE))
                     >= 0
                 || errno == EINTR));
    while (self->count > 0) {
        dl_link_fini(&self->links[--self->count]);
    }
}

static void
add_connection(round *self, const dl_notices_options *options, int rank)
{
    dl_tcp_contact tcp;
    dl_link_options link = {
        .group = options->group_name,
        .there = &options->peers[rank],
        .rank = options->layout->rank,
        .peer = rank,
        .use = DL_FOR_NOTICES,
    };

    dl_tcp_contacts_find(&options->tcp_contacts, rank, &tcp);
    dl_link_options_aim(&link, &tcp, 0);
    dl_link_init(&self->links[self->count++], &link);
}

static dl_status
put_notice(dl_head head, const dl_error *message, dl_buffer *text)
{
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &head);
    dl_buffer_put(text, (dl_bytes){bytes, sizeof bytes});
    dl_buffer_put(text, (dl_bytes){(const uint8_t *)message->text, head.size});
    return dl_buffer_check(text);
}

static bool
is_receiver(const dl_notices_options *options, int rank, bool is_for_leaders)
{
    const dl_layout *layout = options->layout;
    int host = layout->host_of[rank];

    return host != layout->host
           && (!is_for_leaders || dl_layout_leader(layout, host) == rank)
           && (options->processes == NULL
               || !dl_process_has_ended(options->processes[rank]));
}

/* Connections that do not come about have their share of the time that is left, so that
 * ranks that do not answer do not use up the time of the others. */
static void
send_to_all(const dl_notices *self, round *made, bool is_for_leaders,
            dl_deadline deadline)
{
    const dl_notices_options *options = &self->options;
    int left = 0;

    for (int rank = 0; rank < options->layout->size; rank++) {
        left += is_receiver(options, rank, is_for_leaders);
    }
    for (int rank = 0; rank < options->layout->size; rank++) {
        if (!is_receiver(options, rank, is_for_leaders)) {
            continue;
        }
        if (made->count == BATCH) {
            int64_t share = dl_deadline_left(deadline) / (left / BATCH + 2);
            send_round(made, BATCH - 1, dl_deadline_earlier(deadline, share));
        }
        add_connection(made, options, rank);
        left--;
        if (advance_connection(&made->links[made->count - 1], &made->text)) {
            made->count--;
        }
    }
    send_round(made, 0, deadline);
}

/* Best effort: a rank that is not reached fails at its deadline.  Several threads may
 * call this at a time. */
static void
send_notice(const dl_notices *self, dl_head head, const dl_error *message,
            dl_deadline deadline)
{
    dl_error before = *dl_last_error();
    round *made = calloc(1, sizeof *made);

    if (made != NULL && self->has_ended != NULL
        && put_notice(head, message, &made->text) == DL_OK) {
        send_to_all(self, made, head.detail == IS_EXPECTED_TIMEOUT, deadline);
    }
    if (made != NULL) {
        dl_buffer_fini(&made->text);
    }
    free(made);
    (void)dl_rethrow(&before);
}

void
dl_notices_notify(dl_notices *notices, const dl_error *message, uint64_t sequence,
                  dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    if (notices->has_ended != NULL) {
        head.id = sequence;
        head.tag = notices->options.layout->rank;
        send_notice(notices, head, message, deadline);
    }
}

void
dl_notices_announce_timeout(dl_notices *notices, const dl_error *message,
                            uint64_t sequence, dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    head.id = sequence;
    head.tag = notices->options.layout->rank;
    head.detail = IS_EXPECTED_TIMEOUT;
    send_notice(notices, head, message, deadline);
}

void
dl_notices_notify_ended(dl_notices *notices, int rank, const dl_error *message,
                        uint64_t sequence, dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    head.id = sequence;
    head.tag = rank;
    head.detail = HAS_ENDED;
    send_notice(notices, head, message, deadline);
}
