/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/notices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

/* Connections that are made at a time: the number of descriptors of a process is
 * limited. */
#define BATCH 32

/* The number of ranks up to which each is called.  Of more, BATCH are, and pass the notice
 * on: all have it after log(ranks) / log(BATCH) steps. */
#define CALLED_LIMIT 256

/* Values of the head's `detail`.  The process of the rank that the notice is about has
 * ended. */
#define HAS_ENDED 1
/* The rank has not given up yet, and may not give up at all. */
#define IS_EXPECTED_TIMEOUT 2

/* What a rank answers that passes the notice on. */
#define WILL_PASS_ON 1

/* A connection whose frame has not been read whole. */
typedef struct notice {
    dl_list node;
    dl_transport transport;
    size_t got;
    uint8_t bytes[DL_FAILURE_NOTICE_SIZE];
} notice;

/* Ranks from `first` on, before `end`. */
typedef struct span {
    int first;
    int end;
} span;

/* A notice that this rank is to pass on. */
typedef struct errand {
    dl_list node;
    dl_head head;
    dl_error message;
} errand;

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
    dl_list_init(&notices->errands);
    pthread_mutex_init(&notices->lock, NULL);
    return DL_OK;
}

static void
drop_notice(notice *self)
{
    dl_list_remove(&self->node);
    free(self);
}

static errand *
take_errand_locked(dl_notices *self)
{
    dl_list *first = self->errands.next;

    if (dl_list_is_empty(&self->errands)) {
        return NULL;
    }
    dl_list_remove(first);
    return DL_LIST_ENTRY(first, errand, node);
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
    for (errand *left; (left = take_errand_locked(notices)) != NULL;) {
        free(left);
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

    (void)dl_failure_notice_fail(&self->options.peers, rank, head, text);
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
    dl_process *process = head->detail == HAS_ENDED
                              ? dl_processes_find(&self->options.processes, rank)
                              : NULL;
    if (process != NULL) {
        dl_process_set_ended(process);
    }
    if (self->sequence == 0 || head->id < self->sequence) {
        self->error = error_of(self, rank, head, text);
        self->sequence = head->id;
    }
}

/* Takes the errand of a notice that is to be passed on, and promises it to the sender, who
 * calls the ranks itself otherwise. */
static void
accept_errand_locked(dl_notices *self, notice *from, const dl_head *head)
{
    uint64_t size = (uint64_t)self->options.layout->size;
    uint8_t answer = WILL_PASS_ON;
    struct iovec part = {&answer, sizeof answer};
    size_t sent;
    int error;

    if (head->tag < 0 || (uint64_t)head->tag >= size || head->total >= head->length
        || head->length > size) {
        return;
    }
    errand *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->head = *head;
        memcpy(made->message.text, from->bytes + DL_HEAD_SIZE, head->size);
        dl_list_append(&self->errands, &made->node);
        (void)dl_transport_write(&from->transport, &part, 1, &sent, &error);
        dl_end_call_notifier();
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

    bool has_ended =
        dl_transport_read(&from->transport, &room, 1, &got, &error) != DL_OK;
    from->got += got;
    if (from->got < DL_HEAD_SIZE) {
        return has_ended;
    }
    bool is_notice = dl_head_take(from->bytes, &head) && head.kind == DL_HEAD_NOTICE
                     && head.size < DL_ERROR_TEXT_SIZE;
    bool is_whole = is_notice && from->got >= DL_HEAD_SIZE + head.size;
    if (is_whole) {
        note_locked(self, &head, from->bytes + DL_HEAD_SIZE);
        accept_errand_locked(self, from, &head);
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
 * middle, delays no other one's.  Keeps the thread's last error. */
static void
take_in_locked(dl_notices *self)
{
    while (accept_locked(self)) {
    }
    if (dl_list_is_empty(&self->arriving)) {
        return;
    }
    dl_error before = *dl_last_error();
    for (dl_list *node = self->arriving.next; node != &self->arriving;) {
        notice *from = DL_LIST_ENTRY(node, notice, node);
        node = node->next;
        if (read_locked(self, from)) {
            dl_transport_close(&from->transport);
            drop_notice(from);
        }
    }
    (void)dl_rethrow(&before);
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
    dl_peers_describe(&notices->options.peers, rank, peer);
    if (dl_processes_has_ended(&notices->options.processes, rank)) {
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

/* A connection to a rank that gets the notice, and passes it on to those of `rest`. */
typedef struct connection {
    dl_link link;
    bool is_sent;
    bool is_answered;
    span rest;
} connection;

/* The connections that are being made. */
typedef struct round {
    const dl_notices_options *options;
    dl_head head;
    const dl_error *message;
    connection connections[BATCH];
    struct pollfd polls[BATCH];
    int count;
    /* not passed on by the rank that was asked to */
    span left[BATCH];
    int left_count;
} round;

/* The frame fits the socket's send buffer, which is empty. */
static void
send_frame(const round *self, connection *to)
{
    uint8_t bytes[DL_HEAD_SIZE];
    dl_head head = self->head;
    struct iovec parts[] = {{bytes, sizeof bytes},
                            {(void *)self->message->text, head.size}};
    size_t sent;

    head.total = (uint64_t)to->rest.first;
    head.length = (uint64_t)to->rest.end;
    dl_head_put(bytes, &head);
    (void)dl_link_write(&to->link, parts, 2, &sent);
    to->is_sent = true;
}

/* Returns whether there is an answer, or none will come. */
static bool
read_answer(connection *to)
{
    uint8_t answer = 0;
    struct iovec room = {&answer, sizeof answer};
    size_t got = 0;
    dl_status status = dl_link_read(&to->link, &room, 1, &got);

    to->is_answered = answer == WILL_PASS_ON;
    return got > 0 || status != DL_OK;
}

/* Advances one connection.  Returns true when it is finished: the frame was sent, and
 * answered if an answer is due, or the rank cannot be reached. */
static bool
advance_connection(const round *self, connection *to)
{
    if (!to->is_sent) {
        dl_status status = dl_link_call(&to->link);
        if (!to->link.is_open) {
            return status != DL_OK;
        }
        send_frame(self, to);
    }
    return to->rest.first == to->rest.end || read_answer(to);
}

static void
drop_connection(round *self, int i)
{
    connection *to = &self->connections[i];

    if (to->rest.first < to->rest.end && !to->is_answered) {
        self->left[self->left_count++] = to->rest;
    }
    dl_link_fini(&to->link);
    *to = self->connections[--self->count];
}

/* Goes on until at most `most` connections are left; closes all of them at the
 * deadline. */
static void
run_round(round *self, int most, dl_deadline deadline)
{
    do {
        for (int i = self->count - 1; i >= 0; i--) {
            if (advance_connection(self, &self->connections[i])) {
                drop_connection(self, i);
            }
        }
        if (self->count <= most) {
            return;
        }
        for (int i = 0; i < self->count; i++) {
            connection *to = &self->connections[i];
            self->polls[i] = dl_link_poll(&to->link, to->is_sent ? POLLIN : POLLOUT);
        }
    } while (!dl_deadline_passed(deadline)
             && (poll(self->polls, (nfds_t)self->count,
                      dl_deadline_poll(deadline, DL_WAIT_SLICE))
                     >= 0
                 || errno == EINTR));
    while (self->count > 0) {
        drop_connection(self, self->count - 1);
    }
}

static void
add_connection(round *self, int rank, span rest)
{
    const dl_notices_options *options = self->options;
    connection *made = &self->connections[self->count++];
    dl_tcp_contact tcp;
    dl_link_options link = {
        .group = options->group_name,
        .peers = options->peers,
        .rank = options->layout->rank,
        .peer = rank,
        .use = DL_FOR_NOTICES,
    };

    *made = (connection){.rest = rest};
    dl_tcp_contacts_find(&options->tcp_contacts, rank, &tcp);
    dl_link_options_aim(&link, &tcp, 0);
    dl_link_init(&made->link, &link);
}

/* The host that the notice comes from knows of it by its memory. */
static bool
is_receiver(const round *self, int rank)
{
    const dl_notices_options *options = self->options;
    const dl_layout *layout = options->layout;
    int host = layout->host_of[rank];

    return host != layout->host_of[self->head.tag]
           && (self->head.detail != IS_EXPECTED_TIMEOUT
               || dl_layout_leader(layout, host) == rank)
           && !dl_processes_has_ended(&options->processes, rank);
}

static int
count_receivers(const round *self, span among)
{
    int count = 0;

    for (int rank = among.first; rank < among.end; rank++) {
        count += is_receiver(self, rank);
    }
    return count;
}

/* Calls as many of the ranks as can be called at a time, each of which passes the notice
 * on to those that follow it. */
static void
call_some(round *self, span among, dl_deadline deadline)
{
    int each = (count_receivers(self, among) + BATCH - 1) / BATCH;
    int seen = 0;

    for (int rank = among.first; rank < among.end; rank++) {
        if (is_receiver(self, rank) && seen++ % each == 0) {
            if (self->count > 0) {
                self->connections[self->count - 1].rest.end = rank;
            }
            add_connection(self, rank, (span){rank + 1, among.end});
        }
    }
    run_round(self, 0, deadline);
}

/* Connections that do not come about have their share of the time that is left, so that
 * ranks that do not answer do not use up the time of the others. */
static void
call_each(round *self, span among, dl_deadline deadline)
{
    int left = count_receivers(self, among);

    for (int rank = among.first; rank < among.end; rank++) {
        if (!is_receiver(self, rank)) {
            continue;
        }
        if (self->count == BATCH) {
            int64_t share = dl_deadline_left(deadline) / (left / BATCH + 2);
            run_round(self, BATCH - 1, dl_deadline_earlier(deadline, share));
        }
        add_connection(self, rank, (span){0});
        left--;
        if (advance_connection(self, &self->connections[self->count - 1])) {
            drop_connection(self, self->count - 1);
        }
    }
    run_round(self, 0, deadline);
}

/* Best effort: a rank that is not reached fails at its deadline.  The ranks that one did
 * not promise to pass the notice on to are called, in most of the time.  Several threads
 * may call this at a time. */
static void
send_notice(const dl_notices *self, dl_head head, span among, const dl_error *message,
            dl_deadline deadline)
{
    dl_error before = *dl_last_error();
    round *made = self->has_ended == NULL ? NULL : calloc(1, sizeof *made);

    if (made == NULL) {
        return;
    }
    made->options = &self->options;
    made->head = head;
    made->message = message;
    if (count_receivers(made, among) <= CALLED_LIMIT) {
        call_each(made, among, deadline);
    } else {
        call_some(made, among,
                  dl_deadline_earlier(deadline, dl_deadline_left(deadline) / 4));
    }
    for (int i = 0; i < made->left_count; i++) {
        int64_t share = dl_deadline_left(deadline) / (made->left_count - i);
        call_each(made, made->left[i], dl_deadline_earlier(deadline, share));
    }
    free(made);
    (void)dl_rethrow(&before);
}

/* To all ranks of other hosts. */
static void
send_own(const dl_notices *self, dl_head head, const dl_error *message,
         dl_deadline deadline)
{
    if (self->has_ended != NULL) {
        send_notice(self, head, (span){0, self->options.layout->size}, message,
                    deadline);
    }
}

void
dl_notices_pass_on(dl_notices *notices, dl_deadline deadline)
{
    if (notices->has_ended == NULL) {
        return;
    }
    pthread_mutex_lock(&notices->lock);
    take_in_locked(notices);
    for (errand *next; (next = take_errand_locked(notices)) != NULL;) {
        pthread_mutex_unlock(&notices->lock);
        send_notice(notices, next->head,
                    (span){(int)next->head.total, (int)next->head.length},
                    &next->message, deadline);
        free(next);
        pthread_mutex_lock(&notices->lock);
    }
    pthread_mutex_unlock(&notices->lock);
}

void
dl_notices_notify(dl_notices *notices, const dl_error *message, uint64_t sequence,
                  dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    if (notices->has_ended != NULL) {
        head.id = sequence;
        head.tag = notices->options.layout->rank;
        send_own(notices, head, message, deadline);
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
    send_own(notices, head, message, deadline);
}

void
dl_notices_notify_ended(dl_notices *notices, int rank, const dl_error *message,
                        uint64_t sequence, dl_deadline deadline)
{
    dl_head head = dl_failure_notice_head(message);

    head.id = sequence;
    head.tag = rank;
    head.detail = HAS_ENDED;
    send_own(notices, head, message, deadline);
}
