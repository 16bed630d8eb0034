/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/listener.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/reader.h"
#include "base/thread.h"
#include "net/socket.h"

/* Bytes of a group's name in a hello; groups whose names differ only beyond them are
 * distinguished by their ranks. */
#define NAME_LIMIT 1024u
/* The callee's token and the caller's. */
#define TOKENS_SIZE (2 * DL_TOKEN_SIZE)

#define HELLO_LIMIT (DL_HEAD_SIZE + TOKENS_SIZE + NAME_LIMIT)

/* Time for a hello.  A rank sends it at once; a caller that does not is none. */
#define PENDING_PATIENCE (10 * DL_SECOND)

/* Time after which a pending peer has to make room for others: a rank needs a hundredth
 * of it to prove the token, unless it is stopped; then it calls again. */
#define PENDING_ROOM_PATIENCE (200 * DL_MILLISECOND)

typedef struct pending_peer {
    dl_list node;
    dl_transport transport;
    int64_t since;
    dl_proof proof;
    dl_status failure; /* of the connection */
    size_t got;
    dl_head head;
    uint8_t bytes[HELLO_LIMIT];
} pending_peer;

const dl_proof_terms dl_link_proof = {
    .protocol = "distlite link 1",
    .asked = "this rank asks for the job's token",
    .wrong = "the token is not the one of this rank",
};

dl_status
dl_hello_put(dl_buffer *buffer, const dl_hello *contents,
             const uint8_t token[DL_TOKEN_SIZE], bool is_probe)
{
    static const uint8_t none[DL_TOKEN_SIZE];
    uint8_t head[DL_HEAD_SIZE];
    size_t size = strnlen(contents->group, NAME_LIMIT);

    dl_head_put(head, &(dl_head){
                          .kind = is_probe ? DL_HEAD_PROBE : DL_HEAD_HELLO,
                          .detail = (uint8_t)contents->use,
                          .size = (uint32_t)(TOKENS_SIZE + size),
                          .root = (uint32_t)contents->callee,
                          .id = (uint64_t)contents->caller,
                          .total = (uint64_t)contents->index,
                      });
    dl_buffer_put(buffer, (dl_bytes){head, sizeof head});
    dl_buffer_put(buffer, (dl_bytes){token, DL_TOKEN_SIZE});
    dl_buffer_put(buffer, (dl_bytes){contents->own == NULL ? none : contents->own,
                                     DL_TOKEN_SIZE});
    dl_buffer_put(buffer, (dl_bytes){(const uint8_t *)contents->group, size});
    return dl_buffer_check(buffer);
}

/* Sets the options on the listening socket: accepted sockets inherit them. */
static dl_status
listen_at(const dl_address *address, int *made)
{
    dl_address at = *address;
    int fd;

    at.socket.ip4.sin_port = 0; /* the port has the same offset in both families */
    if (!dl_socket_open(at.socket.any.sa_family, &fd)) {
        return dl_fail(DL_INTERNAL, "opening a socket: %s", strerror(errno));
    }
    if (bind(fd, &at.socket.any, at.size) != 0 || listen(fd, SOMAXCONN) != 0) {
        char text[DL_ADDRESS_TEXT_SIZE];
        int error = errno;
        dl_address_text(&at, text);
        dl_socket_close(fd);
        return dl_fail(DL_NETWORK, "listening at %s: %s", text, strerror(error));
    }
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Callers send first: usually the hello is there when the connection is
     * accepted. */
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 10);
    *made = fd;
    return DL_OK;
}

/* Whether callers have to prove anything, before they are known. */
static bool
is_guarded(const dl_listener *listener)
{
    return listener->tcp.secret != NULL || listener->tcp.tls != NULL;
}

static bool
add_to_epoll(const dl_listener *listener, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(listener->fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Makes one descriptor for all sockets, so that waits need not know their number.  If
 * callers have to prove the token, which takes several messages, it watches pending
 * peers as well. */
static dl_status
gather_sockets(dl_listener *listener)
{
    if (listener->tcp.count == 1 && !is_guarded(listener)) {
        listener->fd = listener->sockets[0];
        return DL_OK;
    }
    listener->fd = epoll_create1(EPOLL_CLOEXEC);
    if (listener->fd < 0) {
        return dl_fail(DL_INTERNAL, "epoll_create1: %s", strerror(errno));
    }
    dl_fork_guard(listener->fd);
    for (int i = 0; i < listener->tcp.count; i++) {
        if (!add_to_epoll(listener, listener->sockets[i])) {
            return dl_fail(DL_INTERNAL, "epoll_ctl: %s", strerror(errno));
        }
    }
    return DL_OK;
}

static void
close_sockets(dl_listener *listener)
{
    if (listener->tcp.count == 0 || listener->fd != listener->sockets[0]) {
        dl_socket_close(listener->fd);
    }
    for (int i = 0; i < listener->tcp.count; i++) {
        dl_socket_close(listener->sockets[i]);
    }
}

static dl_status
open_sockets(dl_listener *listener, const dl_tcp_contact *tcp)
{
    for (int i = 0; i < tcp->count; i++) {
        dl_address *own = &listener->tcp.addresses[i];
        DL_TRY(listen_at(&tcp->addresses[i], &listener->sockets[i]));
        listener->tcp.count++;
        DL_TRY(dl_socket_local_address(listener->sockets[i], own));
    }
    return gather_sockets(listener);
}

dl_status
dl_listener_open(dl_listener *listener, const dl_tcp_contact *tcp)
{
    *listener = (dl_listener){
        .is_open = true, .fork_generation = dl_fork_generation(), .fd = -1};
    memcpy(listener->tcp.token, tcp->token, sizeof tcp->token);
    listener->tcp.secret = tcp->secret;
    listener->tcp.tls = tcp->tls;
    /* Not zeroed: that would touch all of its pages, and groups on one host close the
     * listener as soon as they know. */
    listener->ended = malloc(DL_ENDED_LIMIT * sizeof *listener->ended);
    dl_status status =
        listener->ended == NULL ? dl_fail_no_memory() : open_sockets(listener, tcp);
    if (status != DL_OK) {
        close_sockets(listener);
        free(listener->ended);
        *listener = (dl_listener){.fd = -1};
        return status;
    }
    pthread_mutex_init(&listener->lock, NULL);
    dl_list_init(&listener->pending);
    dl_list_init(&listener->callers);
    dl_list_init(&listener->probes);
    dl_list_init(&listener->bells);
    return DL_OK;
}

static pending_peer *
pending_peer_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, pending_peer, node);
}

/* Disconnects a peer, unless its connection has been taken, and frees it. */
static void
disconnect_peer(pending_peer *self)
{
    dl_list_remove(&self->node);
    dl_transport_close(&self->transport);
    free(self);
}

static void
disconnect_all(dl_list *list)
{
    while (!dl_list_is_empty(list)) {
        disconnect_peer(pending_peer_of(list->next));
    }
}

static void take_leave(dl_listener *listener);

void
dl_listener_fini(dl_listener *listener)
{
    /* In a forked child the descriptors are closed, and their numbers may be reused. */
    if (listener->is_open && listener->fork_generation == dl_fork_generation()) {
        take_leave(listener);
        close_sockets(listener);
        disconnect_all(&listener->pending);
        disconnect_all(&listener->callers);
        disconnect_all(&listener->probes);
        free(listener->ended);
        pthread_mutex_destroy(&listener->lock);
    }
    *listener = (dl_listener){.fd = -1};
}

/* Receives until `size` bytes are there.  Returns 1 if they are, 0 if not yet, -1 if
 * the peer has disconnected. */
static int
receive_up_to(pending_peer *self, size_t size)
{
    while (self->got < size) {
        struct iovec room = {self->bytes + self->got, size - self->got};
        size_t got = 0;
        int error;
        self->failure = dl_transport_read(&self->transport, &room, 1, &got, &error);
        if (self->failure != DL_OK) {
            return -1;
        }
        if (got == 0) {
            return 0;
        }
        self->got += got;
    }
    return 1;
}

static bool
has_token(const dl_listener *listener, const pending_peer *self)
{
    const uint8_t *token = self->bytes + DL_HEAD_SIZE;

    return memcmp(token, listener->tcp.token, DL_TOKEN_SIZE) == 0;
}

/* Sends all of the bytes, as far as there is room for them, and frees them. */
static bool
send_whole(pending_peer *self, dl_buffer *bytes)
{
    struct iovec part = {bytes->data, bytes->size};
    size_t sent = 0;
    int error;

    bool is_sent =
        dl_buffer_check(bytes) == DL_OK
        && dl_transport_write(&self->transport, &part, 1, &sent, &error) == DL_OK
        && sent == bytes->size;
    dl_buffer_fini(bytes);
    return is_sent;
}

static void
log_refusal(dl_listener *listener, const pending_peer *self, const char *why)
{
    char address[DL_ADDRESS_TEXT_SIZE] = "an unknown address";
    dl_address from;

    if (dl_socket_peer_address(self->transport.fd, &from) == DL_OK) {
        dl_address_text(&from, address);
    }
    dl_log_limited(&listener->refusals, DL_LOG_WARNING,
                   "refused a connection from %s to this rank: %s", address, why);
}

/* Sends the reason of a refusal to a pending peer, and logs it. */
static void
refuse_pending_peer(dl_listener *listener, pending_peer *self)
{
    const dl_error *why = dl_last_error();
    dl_buffer refusal = {0};

    dl_put_u8(&refusal, (uint8_t)why->status);
    dl_put_bytes(&refusal, dl_bytes_of(why->text));
    (void)send_whole(self, &refusal);
    log_refusal(listener, self, "it does not prove that it knows the job's token");
    dl_socket_discard_input(self->transport.fd);
}

/* Serves the next message of the proof; returns like receive_up_to(). */
static int
prove_once(dl_listener *listener, pending_peer *self)
{
    int has_all = receive_up_to(self, DL_PROOF_SIZE);
    dl_buffer reply = {0};
    size_t size;

    if (has_all < 0) {
        return -1;
    }
    int taken = dl_proof_answer(&self->proof, listener->tcp.secret,
                                (dl_bytes){self->bytes, self->got}, &size, &reply);
    if (taken < 0) {
        refuse_pending_peer(listener, self);
    }
    if (taken > 0) {
        /* The first bytes of a connection always fit into its buffers. */
        taken = send_whole(self, &reply) ? 1 : -1;
        self->got = 0;
    }
    dl_buffer_fini(&reply);
    return taken;
}

/* Returns 1 once the peer has proved the job's token, otherwise like
 * receive_up_to(). */
static int
prove_token(dl_listener *listener, pending_peer *self)
{
    int is_served = 1;

    while (is_served == 1 && listener->tcp.secret != NULL
           && self->proof.stage != DL_PROOF_DONE) {
        is_served = prove_once(listener, self);
    }
    return is_served;
}

/* Receives the hello and checks it; returns like receive_up_to().  Reads no byte beyond
 * the hello, because the rest is for the taker. */
static int
read_hello(dl_listener *listener, pending_peer *self)
{
    int has_proved = prove_token(listener, self);

    if (has_proved != 1) {
        return has_proved;
    }
    int has_head = receive_up_to(self, DL_HEAD_SIZE);
    if (has_head != 1) {
        return has_head;
    }
    if (!dl_head_take(self->bytes, &self->head) || self->head.kind > DL_HEAD_PROBE
        || self->head.size < TOKENS_SIZE
        || self->head.size > TOKENS_SIZE + NAME_LIMIT) {
        return -1;
    }
    int has_all = receive_up_to(self, DL_HEAD_SIZE + self->head.size);
    return has_all == 1 && !has_token(listener, self) ? -1 : has_all;
}

/* As read_hello(), and keeps the thread's last error.  Reading also continues the
 * handshake of TLS. */
static int
try_hello(dl_listener *listener, pending_peer *self)
{
    dl_error before = *dl_last_error();

    int is_known = read_hello(listener, self);
    if (self->failure == DL_DENIED || self->failure == DL_PROTOCOL) {
        log_refusal(listener, self, dl_last_error()->text);
    }
    (void)dl_rethrow(&before);
    return is_known;
}

/* Returns the name of the group that the peer calls. */
static dl_bytes
group_name_of(const pending_peer *self)
{
    return (dl_bytes){self->bytes + DL_HEAD_SIZE + TOKENS_SIZE,
                      self->head.size - TOKENS_SIZE};
}

static dl_bytes
bytes_of(const char *group)
{
    return (dl_bytes){(const uint8_t *)group, strnlen(group, NAME_LIMIT)};
}

static bool
is_name(dl_bytes name, const char *group)
{
    return dl_bytes_equal(name, bytes_of(group));
}

/* Returns NULL if no ended group of that name is remembered. */
static dl_ended_group *
find_ended(const dl_listener *listener, dl_bytes name)
{
    uint64_t used = listener->ended_count;

    used = used < DL_ENDED_LIMIT ? used : DL_ENDED_LIMIT;
    for (uint64_t i = 0; i < used && name.size > 0; i++) {
        if (is_name(name, listener->ended[i].name)) {
            return &listener->ended[i];
        }
    }
    return NULL;
}

/* Sends the notice and disconnects. */
static void
send_notice(pending_peer *self, const dl_ended_group *group)
{
    if (self->head.detail != DL_FOR_NOTICES) {
        struct iovec part = {(void *)group->notice, group->notice_size};
        size_t sent;
        int error;
        (void)dl_transport_write(&self->transport, &part, 1, &sent, &error);
    }
    dl_socket_discard_input(self->transport.fd);
    disconnect_peer(self);
}

static void
ring_bells(const dl_listener *listener, const pending_peer *caller)
{
    const dl_list *bells = &listener->bells;

    for (dl_list *node = bells->next; node != bells; node = node->next) {
        const dl_listener_bell *bell = DL_LIST_ENTRY(node, dl_listener_bell, node);
        if (caller->head.detail == (uint8_t)bell->use) {
            bell->ring(bell->context);
        }
    }
}

/* Turns a pending peer into a caller or a probe, keeps it pending, or disconnects
 * it. */
static void
advance_pending_peer(dl_listener *listener, pending_peer *self)
{
    int is_known = try_hello(listener, self);
    const dl_ended_group *ended =
        is_known > 0 ? find_ended(listener, group_name_of(self)) : NULL;

    bool is_late = is_known == 0 && dl_now() > self->since + PENDING_PATIENCE;

    listener->pending_count -= is_known != 0 || is_late;
    if (is_known > 0 && is_guarded(listener)) {
        (void)epoll_ctl(listener->fd, EPOLL_CTL_DEL, self->transport.fd, NULL);
    }
    if (is_known < 0 || is_late) {
        disconnect_peer(self);
    } else if (ended != NULL) {
        send_notice(self, ended);
    } else if (is_known > 0) {
        dl_list_remove(&self->node);
        dl_list_append(self->head.kind == DL_HEAD_PROBE ? &listener->probes
                                                        : &listener->callers,
                       &self->node);
        ring_bells(listener, self);
    }
}

static void
advance_pending_peers(dl_listener *listener)
{
    dl_list *pending = &listener->pending;

    for (dl_list *node = pending->next; node != pending;) {
        dl_list *next = node->next;
        advance_pending_peer(listener, pending_peer_of(node));
        node = next;
    }
}

/* Disconnects probes whose owners have ended or closed them. */
static void
drop_old_probes(dl_listener *listener)
{
    dl_list *probes = &listener->probes;

    for (dl_list *node = probes->next; node != probes;) {
        dl_list *next = node->next;
        if (dl_socket_is_stale(pending_peer_of(node)->transport.fd)) {
            disconnect_peer(pending_peer_of(node));
        }
        node = next;
    }
}

static bool
is_full_of_pending_peers(const dl_listener *listener)
{
    return is_guarded(listener) && listener->pending_count >= DL_PENDING_PEERS_LIMIT;
}

/* Returns whether one more peer may be accepted: there is room, or the oldest one
 * has had its time. */
static bool
may_accept(const dl_listener *listener)
{
    return !is_full_of_pending_peers(listener)
           || dl_now() >= pending_peer_of(listener->pending.next)->since
                              + PENDING_ROOM_PATIENCE;
}

/* Called once another caller is there: nobody is disconnected for room that nobody
 * needs. */
static void
make_room(dl_listener *listener)
{
    if (is_full_of_pending_peers(listener)) {
        disconnect_peer(pending_peer_of(listener->pending.next));
        listener->pending_count--;
    }
}

/* Keeps an accepted connection as a pending peer. */
static void
add_pending_peer(dl_listener *listener, pending_peer *made, int fd)
{
    const dl_tcp_contact *tcp = &listener->tcp;

    dl_socket_prepare(fd);
    if (dl_transport_open(&made->transport, fd, tcp->tls, true) != DL_OK) {
        free(made);
        return;
    }
    made->since = dl_now();
    made->proof =
        (dl_proof){.terms = &dl_link_proof, .context = {tcp->token, sizeof tcp->token}};
    dl_list_append(&listener->pending, &made->node);
    listener->pending_count++;
    if (is_guarded(listener)) {
        /* If this fails, its data are read at the next retry. */
        (void)add_to_epoll(listener, fd);
    }
}

/* Allocates before it accepts: a connection that is closed for lack of memory would
 * look like the end of this process.  Without memory, callers wait in the kernel. */
static void
accept_at(dl_listener *listener, int socket, bool *has_any)
{
    for (;;) {
        if (!may_accept(listener)) {
            atomic_store(&listener->is_full, true);
            return;
        }
        pending_peer *made = calloc(1, sizeof *made);
        int fd = made == NULL
                     ? -1
                     : accept4(socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool is_full = made == NULL || errno == EMFILE || errno == ENFILE
                           || errno == ENOBUFS || errno == ENOMEM;
            free(made);
            if (is_full) {
                atomic_store(&listener->is_full, true);
            }
            return;
        }
        make_room(listener);
        add_pending_peer(listener, made, fd);
        *has_any = true;
    }
}

static void
accept_all(dl_listener *listener)
{
    bool has_any = false;

    atomic_store(&listener->is_full, false);
    for (int i = 0; i < listener->tcp.count; i++) {
        accept_at(listener, listener->sockets[i], &has_any);
    }
    if (has_any) {
        drop_old_probes(listener);
    }
}

/* Compares everything that distinguishes connections: two processes may have several,
 * for different groups and uses, and a process has a different rank in each group. */
static bool
is_hello(const pending_peer *self, const dl_hello *contents)
{
    bool is_caller = contents->caller < 0
                     || (self->head.id == (uint64_t)contents->caller
                         && self->head.total == (uint64_t)contents->index);
    const uint8_t *own = self->bytes + DL_HEAD_SIZE + DL_TOKEN_SIZE;

    if (contents->own != NULL && memcmp(own, contents->own, DL_TOKEN_SIZE) != 0) {
        return false;
    }

    return is_caller && self->head.root == (uint32_t)contents->callee
           && self->head.detail == (uint8_t)contents->use
           && is_name(group_name_of(self), contents->group);
}

void
dl_listener_add_bell(dl_listener *listener, dl_listener_bell *bell)
{
    pthread_mutex_lock(&listener->lock);
    dl_list_append(&listener->bells, &bell->node);
    pthread_mutex_unlock(&listener->lock);
}

void
dl_listener_remove_bell(dl_listener *listener, dl_listener_bell *bell)
{
    pthread_mutex_lock(&listener->lock);
    dl_list_remove(&bell->node);
    pthread_mutex_unlock(&listener->lock);
}

/* A number that does not fit is none. */
static int
number_of(uint64_t value)
{
    return value > INT32_MAX ? -1 : (int)value;
}

/* Takes a connection with that hello, and completes the hello. */
static bool
take_caller(dl_listener *listener, dl_hello *contents, dl_transport *transport)
{
    dl_list *callers = &listener->callers;
    bool is_there = false;

    pthread_mutex_lock(&listener->lock);
    accept_all(listener);
    advance_pending_peers(listener);
    for (dl_list *node = callers->next; node != callers; node = node->next) {
        pending_peer *self = pending_peer_of(node);
        if (is_hello(self, contents)) {
            *transport = self->transport;
            self->transport = (dl_transport){0};
            contents->caller = number_of(self->head.id);
            contents->index = number_of(self->head.total);
            is_there = true;
            disconnect_peer(self);
            break;
        }
    }
    pthread_mutex_unlock(&listener->lock);
    return is_there;
}

bool
dl_listener_take(dl_listener *listener, const dl_hello *contents,
                 dl_transport *transport)
{
    dl_hello wanted = *contents;

    return take_caller(listener, &wanted, transport);
}

bool
dl_listener_take_any(dl_listener *listener, dl_hello *contents, dl_transport *transport)
{
    contents->caller = -1;
    return take_caller(listener, contents, transport);
}

bool
dl_listener_poll(void *context)
{
    dl_listener *listener = context;

    pthread_mutex_lock(&listener->lock);
    accept_all(listener);
    advance_pending_peers(listener);
    bool has_pending_peers = listener->pending.next != &listener->pending;
    pthread_mutex_unlock(&listener->lock);
    return has_pending_peers;
}

static void
send_notices_to(const dl_listener *listener, const dl_list *peers)
{
    for (dl_list *node = peers->next; node != peers;) {
        dl_list *next = node->next;
        const dl_ended_group *group =
            find_ended(listener, group_name_of(pending_peer_of(node)));
        if (group != NULL) {
            send_notice(pending_peer_of(node), group);
        }
        node = next;
    }
}

/* Answers the callers so far, at once: afterwards the group and its memory may be
 * gone. */
static void
send_notices(dl_listener *listener)
{
    send_notices_to(listener, &listener->callers);
    send_notices_to(listener, &listener->probes);
    accept_all(listener);
    advance_pending_peers(listener);
}

/* Tells the probes of the whole process, which name no group, that it leaves in
 * order. */
static void
take_leave(dl_listener *listener)
{
    dl_error closed = {.status = DL_CLOSED};
    dl_ended_group left = {.notice_size = 0};
    uint8_t notice[DL_FAILURE_NOTICE_SIZE];

    left.notice_size = dl_failure_notice_put(notice, &closed);
    memcpy(left.notice, notice, left.notice_size);
    accept_all(listener);
    advance_pending_peers(listener);
    for (dl_list *node = listener->probes.next; node != &listener->probes;) {
        pending_peer *probe = pending_peer_of(node);
        node = node->next;
        if (group_name_of(probe).size == 0) {
            send_notice(probe, &left);
        }
    }
}

void
dl_listener_end(dl_listener *listener, const char *group, dl_bytes notice)
{
    bool fits = strlen(group) < DL_ENDED_NAME_SIZE;

    if (!listener->is_open) {
        return;
    }
    pthread_mutex_lock(&listener->lock);
    if (fits && find_ended(listener, bytes_of(group)) == NULL) {
        dl_ended_group *ended =
            &listener->ended[listener->ended_count++ % DL_ENDED_LIMIT];
        memcpy(ended->name, group, strlen(group) + 1);
        memcpy(ended->notice, notice.data, notice.size);
        ended->notice_size = notice.size;
        send_notices(listener);
    }
    pthread_mutex_unlock(&listener->lock);
}

void
dl_listener_forget_end(dl_listener *listener, const char *group)
{
    if (!listener->is_open) {
        return;
    }
    pthread_mutex_lock(&listener->lock);
    dl_ended_group *found = find_ended(listener, bytes_of(group));
    if (found != NULL) {
        found->name[0] = '\0';
    }
    pthread_mutex_unlock(&listener->lock);
}
