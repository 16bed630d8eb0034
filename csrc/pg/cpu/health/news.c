/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/news.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "net/socket.h"

/* Connections that are made at a time: the number of descriptors of a process is
 * limited. */
#define BATCH 32

/* Values of the head's `detail`.  The process of the rank that the news is about has
 * ended. */
#define HAS_ENDED 1
/* The rank has not given up yet, and may not give up at all. */
#define IS_EXPECTED_TIMEOUT 2

dl_status
dl_news_init(dl_news *news, const dl_news_options *options)
{
    *news = (dl_news){.options = *options, .fork_generation = dl_fork_generation()};
    news->has_ended = calloc((size_t)options->layout->size, sizeof *news->has_ended);
    if (news->has_ended == NULL) {
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&news->lock, NULL);
    return DL_OK;
}

void
dl_news_fini(dl_news *news)
{
    if (news->has_ended == NULL) {
        return;
    }
    if (news->fork_generation == dl_fork_generation()) {
        dl_transport_close(&news->transport);
    }
    free(news->has_ended);
    pthread_mutex_destroy(&news->lock);
    *news = (dl_news){0};
}

/* Returns the error that describes the news, and keeps the thread's last error. */
static dl_error
error_of(const dl_news *self, int rank, const dl_head *head)
{
    dl_error before = *dl_last_error();

    (void)dl_failure_notice_fail(&self->options.peers[rank], rank, head,
                                 self->bytes + DL_HEAD_SIZE);
    dl_error error = *dl_last_error();
    (void)dl_rethrow(&before);
    return error;
}

/* The failure with the lowest operation counts: an operation after it cannot have
 * begun. */
static void
note_locked(dl_news *self, const dl_head *head)
{
    const dl_layout *layout = self->options.layout;
    int rank = (int)head->tag;

    if (head->tag < 0 || head->tag >= layout->size || head->id == 0) {
        return;
    }
    if (head->detail == IS_EXPECTED_TIMEOUT) {
        self->late_sequence = head->id;
        self->late_rank = rank;
        self->late_error = error_of(self, rank, head);
        return;
    }
    self->has_ended[rank] = true;
    if (head->detail == HAS_ENDED && self->options.processes != NULL) {
        dl_process_set_ended(self->options.processes[rank]);
    }
    if (self->sequence == 0 || head->id < self->sequence) {
        self->error = error_of(self, rank, head);
        self->sequence = head->id;
    }
}

/* Reads from the connection.  Returns true when the connection can be closed: the news
 * is complete, the peer has closed, or the bytes are not news. */
static bool
hear_locked(dl_news *self)
{
    struct iovec room = {self->bytes + self->got, sizeof self->bytes - self->got};
    size_t got = 0;
    int error;
    dl_head head;

    dl_error before = *dl_last_error();
    bool has_ended =
        dl_transport_read(&self->transport, &room, 1, &got, &error) != DL_OK;
    (void)dl_rethrow(&before);
    self->got += got;
    if (self->got < DL_HEAD_SIZE) {
        return has_ended;
    }
    bool is_news = dl_head_take(self->bytes, &head) && head.kind == DL_HEAD_FAREWELL
                   && head.size < DL_ERROR_TEXT_SIZE;
    bool is_whole = is_news && self->got >= DL_HEAD_SIZE + head.size;
    if (is_whole) {
        note_locked(self, &head);
    }
    return is_whole || !is_news || has_ended;
}

/* Takes in all news that has arrived. */
static void
hear_all_locked(dl_news *self)
{
    const dl_news_options *options = &self->options;
    dl_hello contents = {
        .group = options->group_name,
        .caller = -1,
        .callee = options->layout->rank,
        .use = DL_FOR_NEWS,
    };
    bool goes_on = true;

    while (goes_on) {
        if (!self->transport.is_open) {
            (void)dl_listener_take(options->listener, &contents, &self->transport);
            self->got = 0;
        }
        goes_on = self->transport.is_open && hear_locked(self);
        if (goes_on) {
            dl_transport_close(&self->transport);
        }
    }
}

dl_status
dl_news_check(dl_news *news, uint64_t sequence)
{
    dl_status status = DL_OK;

    if (news->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&news->lock);
    hear_all_locked(news);
    if (news->sequence != 0 && news->sequence <= sequence) {
        status = dl_rethrow(&news->error);
    }
    pthread_mutex_unlock(&news->lock);
    return status;
}

dl_status
dl_news_late(dl_news *news, uint64_t sequence, int *leader)
{
    dl_status status = DL_OK;

    if (news->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&news->lock);
    hear_all_locked(news);
    if (news->late_sequence == sequence) {
        *leader = news->late_rank;
        status = dl_rethrow(&news->late_error);
    }
    pthread_mutex_unlock(&news->lock);
    return status;
}

void
dl_news_poll(dl_news *news)
{
    if (news->has_ended != NULL) {
        pthread_mutex_lock(&news->lock);
        hear_all_locked(news);
        pthread_mutex_unlock(&news->lock);
    }
}

dl_status
dl_news_watch(dl_news *news, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];
    dl_status status = DL_OK;

    if (news->has_ended == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&news->lock);
    dl_peer_describe(&news->options.peers[rank], rank, peer);
    if (news->options.processes != NULL
        && dl_process_has_ended(news->options.processes[rank])) {
        status = dl_fail(DL_PEER_LOST, "%s exited or was killed", peer);
    } else if (news->has_ended[rank]) {
        bool is_named = strstr(news->error.text, peer) != NULL;
        status = is_named ? dl_fail(DL_PEER_LOST, "%s", news->error.text)
                          : dl_fail(DL_PEER_LOST, "%s gave up: %.1800s", peer,
                                    news->error.text);
    }
    pthread_mutex_unlock(&news->lock);
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

/* Sends the frame over all connections of the round, and closes them at the deadline at
 * the latest.  The round is empty afterwards. */
static void
send_round(round *self, dl_deadline deadline)
{
    do {
        for (int i = self->count - 1; i >= 0; i--) {
            if (advance_connection(&self->links[i], &self->text)) {
                self->links[i] = self->links[--self->count];
            }
        }
        for (int i = 0; i < self->count; i++) {
            self->polls[i] = dl_link_poll(&self->links[i], POLLOUT);
        }
    } while (self->count > 0 && !dl_deadline_passed(deadline)
             && (poll(self->polls, (nfds_t)self->count,
                      dl_deadline_poll(deadline, DL_WAIT_SLICE))
                     >= 0
                 || errno == EINTR));
    while (self->count > 0) {
        dl_link_fini(&self->links[--self->count]);
    }
}

static void
add_connection(round *self, const dl_news_options *options, int rank)
{
    dl_link_options link = {
        .group = options->group_name,
        .there = &options->peers[rank],
        .rank = options->layout->rank,
        .peer = rank,
        .use = DL_FOR_NEWS,
    };

    dl_link_options_aim(&link, &options->ways[rank], 0);
    dl_link_init(&self->links[self->count++], &link);
}

static dl_status
put_text(dl_head head, const dl_error *message, dl_buffer *text)
{
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &head);
    dl_buffer_put(text, (dl_bytes){bytes, sizeof bytes});
    dl_buffer_put(text, (dl_bytes){(const uint8_t *)message->text, head.size});
    return dl_buffer_check(text);
}

static bool
is_receiver(const dl_layout *layout, int rank, bool is_for_leaders)
{
    int host = layout->host_of[rank];

    return host != layout->host
           && (!is_for_leaders || dl_layout_leader(layout, host) == rank);
}

/* Each batch has its share of the time that is left, so that ranks that do not answer
 * do not use up the time of the others. */
static void
send_to_all(const dl_news *self, round *made, bool is_for_leaders, dl_deadline deadline)
{
    const dl_layout *layout = self->options.layout;
    int left = 0;

    for (int rank = 0; rank < layout->size; rank++) {
        left += is_receiver(layout, rank, is_for_leaders);
    }
    for (int rank = 0; left > 0; rank++) {
        if (is_receiver(layout, rank, is_for_leaders)) {
            add_connection(made, &self->options, rank);
        }
        if (made->count == BATCH || made->count == left) {
            int batches = (left + BATCH - 1) / BATCH;
            left -= made->count;
            send_round(made, dl_deadline_earlier(deadline,
                                                 dl_deadline_left(deadline) / batches));
        }
    }
}

/* Best effort: a rank that is not reached fails at its deadline.  Several threads may
 * call this at a time. */
static void
send_news(const dl_news *self, dl_head head, const dl_error *message,
          dl_deadline deadline)
{
    dl_error before = *dl_last_error();
    round *made = calloc(1, sizeof *made);

    if (made != NULL && self->has_ended != NULL
        && put_text(head, message, &made->text) == DL_OK) {
        send_to_all(self, made, head.detail == IS_EXPECTED_TIMEOUT, deadline);
    }
    if (made != NULL) {
        dl_buffer_fini(&made->text);
    }
    free(made);
    (void)dl_rethrow(&before);
}

void
dl_news_notify(dl_news *news, const dl_error *message, uint64_t sequence,
               dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    if (news->has_ended != NULL) {
        head.id = sequence;
        head.tag = news->options.layout->rank;
        send_news(news, head, message, deadline);
    }
}

void
dl_news_announce_timeout(dl_news *news, const dl_error *message, uint64_t sequence,
                         dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    head.id = sequence;
    head.tag = news->options.layout->rank;
    head.detail = IS_EXPECTED_TIMEOUT;
    send_news(news, head, message, deadline);
}

void
dl_news_notify_ended(dl_news *news, int rank, const dl_error *message,
                     uint64_t sequence, dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    head.id = sequence;
    head.tag = rank;
    head.detail = HAS_ENDED;
    send_news(news, head, message, deadline);
}
