/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/reader.h"
#include "pg/cpu/tcp/link.h"
#include "traffics.h"

/* A listener of rank 0 with a token, a link of rank 1 to it, and nothing else: each step
 * of either side is a call of the case. */
typedef struct fixture {
    dl_secret *secret;
    dl_tls *tls;
    dl_listener listener;
    dl_peer peer;
    dl_link link;
} fixture;

static void
open_fixture(fixture *f, bool uses_tls)
{
    dl_tcp_contact tcp = {.count = 1, .addresses[0].size = sizeof(struct sockaddr_in)};

    *f = (fixture){.peer = {.pid = 100, .host = "h"}};
    CHECK_OK(dl_secret_new(DL_LITERAL("token"), &f->secret));
    tcp.addresses[0].socket.ip4.sin_family = AF_INET;
    tcp.addresses[0].socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (uses_tls) {
        CHECK_OK(dl_tls_new(DL_TLS_PSK, "link", f->secret, &f->tls));
    }
    tcp.secret = uses_tls ? NULL : f->secret;
    tcp.tls = f->tls;
    memset(tcp.token, 7, sizeof tcp.token);
    CHECK_OK(dl_listener_open(&f->listener, &tcp));
    dl_link_options options = {.group = "g",
                               .peers = dl_peers_of(&f->peer),
                               .rank = 1,
                               .use = DL_FOR_MESSAGES};
    dl_link_options_aim(&options, &f->listener.tcp, 0);
    dl_link_init(&f->link, &options);
}

static void
fixture_init(fixture *f)
{
    open_fixture(f, false);
}

static void
fixture_fini(fixture *f)
{
    dl_link_fini(&f->link);
    dl_listener_fini(&f->listener);
    dl_tls_unref(f->tls);
    dl_secret_unref(f->secret);
}

static const dl_hello the_call = {.group = "g", .caller = 1, .use = DL_FOR_MESSAGES};

/* Both sides take steps until the listener has the call, which is returned. */
static dl_transport
meet(fixture *f)
{
    int64_t until = dl_now() + 15 * DL_SECOND;
    dl_transport taken = {0};

    while (!taken.is_open && dl_now() < until) {
        CHECK_OK(dl_link_call(&f->link));
        (void)dl_listener_take(&f->listener, &the_call, &taken);
    }
    CHECK(taken.is_open && f->link.is_open);
    return taken;
}

/* The listener has no call to give. */
static void
take_none(fixture *f)
{
    dl_transport taken;

    CHECK(!dl_listener_take(&f->listener, &the_call, &taken));
}

/* A connection that is not made by a dial. */
static int
stranger(const fixture *f)
{
    const dl_address *there = &f->listener.tcp.addresses[0];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, &there->socket.any, there->size) == 0);
    return fd;
}

static void
say(int fd, dl_bytes bytes)
{
    CHECK(send(fd, bytes.data, bytes.size, MSG_NOSIGNAL) == (ssize_t)bytes.size);
}

/* Receives `size` bytes, or fewer if the connection ends, while the listener serves its
 * connections. */
static size_t
hear(fixture *f, int fd, uint8_t *bytes, size_t size)
{
    int64_t until = dl_now() + 15 * DL_SECOND;
    size_t got = 0;

    while (got < size) {
        take_none(f);
        ssize_t more = recv(fd, bytes + got, size - got, MSG_DONTWAIT);
        if (more == 0 || (more < 0 && errno != EAGAIN)) {
            break;
        }
        got += more > 0 ? (size_t)more : 0;
        CHECK(dl_now() < until);
    }
    return got;
}

/* Checks that the unproved peer received `text`, and was disconnected. */
static void
check_refused(fixture *f, int fd, const char *text)
{
    uint8_t bytes[1024];
    char told[1024] = "";
    size_t size = hear(f, fd, bytes, sizeof bytes);

    CHECK(size > DL_LINK_REFUSAL_HEAD && size < sizeof bytes);
    CHECK_EQUAL(bytes[0], DL_DENIED);
    memcpy(told, bytes + DL_LINK_REFUSAL_HEAD, size - DL_LINK_REFUSAL_HEAD);
    CHECK_CONTAINS(told, text);
    CHECK_EQUAL(f->listener.pending_count, 0);
    close(fd);
}

CHECK_CASE(a_link_is_proved_before_it_carries_anything)
{
    fixture f;
    char byte = 'x';
    char got = 0;
    size_t size;

    fixture_init(&f);
    struct iovec part = {&byte, 1};
    CHECK_OK(dl_link_call(&f.link));
    CHECK(!f.link.is_open);
    CHECK_OK(dl_link_write(&f.link, &part, 1, &size));
    CHECK_EQUAL(size, 0);
    dl_transport taken = meet(&f);
    CHECK_EQUAL(f.listener.pending_count, 0);
    CHECK_OK(dl_link_write(&f.link, &part, 1, &size));
    CHECK_EQUAL(size, 1);
    CHECK(fcntl(taken.fd, F_SETFL, 0) == 0);
    CHECK_EQUAL(recv(taken.fd, &got, 1, MSG_WAITALL), 1);
    CHECK_EQUAL(got, 'x');
    dl_transport_close(&taken);
    fixture_fini(&f);
}

CHECK_CASE(a_probe_is_proved_too)
{
    fixture f;
    int64_t until = dl_now() + 15 * DL_SECOND;

    fixture_init(&f);
    while (f.link.probe.stage != DL_DIAL_OPEN && dl_now() < until) {
        CHECK_OK(dl_link_probe(&f.link));
        (void)dl_listener_poll(&f.listener);
    }
    (void)dl_listener_poll(&f.listener);
    CHECK(!dl_list_is_empty(&f.listener.probes));
    CHECK_OK(dl_link_probe(&f.link));
    fixture_fini(&f);
}

/* However long it is asked: a host that refuses has answered. */
CHECK_CASE(a_host_that_refuses_is_not_lost)
{
    fixture f;

    fixture_init(&f);
    dl_listener_fini(&f.listener);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(dl_link_probe(&f.link), DL_PEER_LOST);
        CHECK_EQUAL(f.link.probe.unanswered_since, 0);
        CHECK(!dl_dial_is_host_lost(&f.link.probe));
        dl_dial_close(&f.link.probe);
    }
    fixture_fini(&f);
}

/* The peer reads nothing before the link is closed, so the kernel has more to send than
 * fits into the peer's buffer; a reset would discard it. */
CHECK_CASE(a_link_that_is_closed_with_unread_input_delivers_what_was_sent)
{
    static char bytes[1 << 16];
    fixture f;
    size_t sent = 0;
    size_t received = 0;
    size_t size = 1;
    int error;

    fixture_init(&f);
    dl_transport taken = meet(&f);
    struct iovec part = {bytes, sizeof bytes};
    while (size > 0) {
        CHECK_OK(dl_link_write(&f.link, &part, 1, &size));
        sent += size;
    }
    part.iov_len = 1;
    CHECK_OK(dl_transport_write(&taken, &part, 1, &size, &error));
    struct pollfd entry = dl_link_poll(&f.link, POLLIN);
    CHECK_EQUAL(poll(&entry, 1, 15000), 1);
    dl_link_fini(&f.link);
    entry.fd = taken.fd;
    for (dl_status status = DL_OK; status == DL_OK; received += size) {
        CHECK_EQUAL(poll(&entry, 1, 15000), 1);
        part.iov_len = sizeof bytes;
        size = 0;
        status = dl_transport_read(&taken, &part, 1, &size, &error);
    }
    CHECK_EQUAL(received, sent);
    dl_transport_close(&taken);
    fixture_fini(&f);
}

/* What a rank without a token would begin with, and others. */
CHECK_CASE(unproved_peers_get_an_error)
{
    fixture f;
    dl_buffer hello = {0};

    fixture_init(&f);
    CHECK_OK(dl_hello_put(&hello, &the_call, f.listener.tcp.token, false));
    const dl_bytes begins[] = {dl_buffer_bytes(&hello), DL_LITERAL("GET / HTTP/1.1"),
                               DL_LITERAL("\0"), DL_LITERAL("\xc1"),
                               DL_LITERAL("\xff")};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        int fd = stranger(&f);
        say(fd, begins[i]);
        check_refused(&f, fd, "this rank asks for the job's token");
    }
    dl_buffer_fini(&hello);
    fixture_fini(&f);
}

/* The handshake up to the proof, with `token` and the `context` of another listener;
 * leaves PROVE in `prove`. */
static int
converse(fixture *f, const char *token, uint8_t context, dl_buffer *prove)
{
    uint8_t contexts[DL_TOKEN_SIZE];
    uint8_t bytes[DL_PROOF_SIZE];
    dl_proof proof = {.terms = &dl_link_proof, .context = {contexts, sizeof contexts}};
    dl_buffer challenge = {0};
    dl_secret *secret;
    int fd = stranger(f);

    memset(contexts, context, sizeof contexts);
    CHECK_OK(dl_secret_new(dl_bytes_of(token), &secret));
    CHECK_OK(dl_proof_put_challenge(&proof, &challenge));
    /* Byte by byte: the listener answers the whole only. */
    for (size_t i = 0; i < challenge.size; i++) {
        say(fd, (dl_bytes){challenge.data + i, 1});
        take_none(f);
    }
    CHECK_EQUAL(hear(f, fd, bytes, sizeof bytes), DL_PROOF_SIZE);
    CHECK_EQUAL(bytes[0], DL_OK);
    CHECK_OK(dl_proof_put_prove(&proof, secret, bytes + 1, prove));
    dl_buffer_fini(&challenge);
    dl_secret_unref(secret);
    return fd;
}

CHECK_CASE(wrong_proofs_are_refused)
{
    fixture f;
    dl_buffer prove = {0};
    uint8_t bytes[DL_PROOF_SIZE];

    fixture_init(&f);
    int fd = converse(&f, "another", 7, &prove);
    say(fd, dl_buffer_bytes(&prove));
    check_refused(&f, fd, "the token is not the one of this rank");
    /* A proof for another rank, which an attacker in between forwards. */
    dl_buffer_clear(&prove);
    fd = converse(&f, "token", 8, &prove);
    say(fd, dl_buffer_bytes(&prove));
    check_refused(&f, fd, "the token is not the one of this rank");
    /* A valid proof, and the same one again in another connection. */
    dl_buffer_clear(&prove);
    fd = converse(&f, "token", 7, &prove);
    say(fd, dl_buffer_bytes(&prove));
    CHECK_EQUAL(hear(&f, fd, bytes, sizeof bytes), DL_PROOF_SIZE);
    CHECK_EQUAL(bytes[0], DL_OK);
    close(fd);
    dl_buffer other = {0};
    fd = converse(&f, "token", 7, &other);
    say(fd, dl_buffer_bytes(&prove));
    check_refused(&f, fd, "the token is not the one of this rank");
    dl_buffer_fini(&other);
    dl_buffer_fini(&prove);
    fixture_fini(&f);
}

/* Silent ones are limited in number, and a rank gets through at any time. */
/* Connects until the queue of the listener that nobody serves is full, so that the kernel
 * drops what comes next, as a host without power does. */
static void
fill_queue(const dl_address *there)
{
    bool is_full = false;

    for (int i = 0; i < 16 && !is_full; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(fd >= 0);
        CHECK(connect(fd, &there->socket.any, there->size) == 0
              || errno == EINPROGRESS);
        is_full = poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 200) == 0;
    }
    CHECK(is_full);
}

/* An open link to the address, to which nothing comes. */
static void
open_quiet(fixture *f, int ends[2], const dl_address *there)
{
    setenv("DISTLITE_HEARTBEAT_TIMEOUT", "0.4", 1);
    CHECK_OK(dl_dial_configure());
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK_OK(dl_transport_open(&f->link.transport, ends[0], NULL, false));
    f->link.is_open = true;
    f->link.options.address = *there;
}

/* The same to an address where nothing answers. */
static void
open_unanswered(fixture *f, int ends[2])
{
    dl_address there = {.size = sizeof(struct sockaddr_in)};
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    there.socket.ip4.sin_family = AF_INET;
    there.socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listening, &there.socket.any, there.size) == 0);
    CHECK(getsockname(listening, &there.socket.any, &there.size) == 0);
    CHECK(listen(listening, 0) == 0);
    fill_queue(&there);
    open_quiet(f, ends, &there);
}

CHECK_CASE(a_host_that_does_not_answer_is_lost_to_an_open_link)
{
    fixture f;
    int ends[2];
    int64_t until = dl_now() + 15 * DL_SECOND;
    dl_status status = DL_OK;

    fixture_init(&f);
    open_unanswered(&f, ends);
    while (status == DL_OK && dl_now() < until) {
        status = dl_link_check_host(&f.link);
    }
    CHECK(status == DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "cannot be reached at 127.0.0.1:");
    CHECK(f.link.probe.stage == DL_DIAL_NONE);
    fixture_fini(&f);
}

/* Two moments without an answer, one long after the other, are not one long silence. */
CHECK_CASE(an_earlier_attempt_that_found_no_host_is_forgotten)
{
    fixture f;
    int ends[2];
    int64_t until = dl_now() + 15 * DL_SECOND;

    fixture_init(&f);
    open_unanswered(&f, ends);
    f.link.probe.unanswered_since = dl_now() - 60 * DL_SECOND;
    f.link.probe.unanswered_until = dl_now() - 50 * DL_SECOND;
    while (f.link.probe.stage == DL_DIAL_NONE && dl_now() < until) {
        CHECK_OK(dl_link_check_host(&f.link));
    }
    CHECK(f.link.probe.stage == DL_DIAL_CONNECTING);
    CHECK(f.link.probe.unanswered_since == 0);
    fixture_fini(&f);
}

/* Its kernel answers, and it may come back, as a rank that was stopped does; the probe
 * ends once bytes come. */
CHECK_CASE(a_rank_that_does_not_answer_itself_is_not_lost)
{
    fixture f;
    int ends[2];
    uint8_t byte = 1;
    struct iovec part = {&byte, 1};
    size_t got;

    fixture_init(&f);
    open_quiet(&f, ends, &f.listener.tcp.addresses[0]);
    int64_t until = dl_now() + 2 * DL_SECOND;
    while (dl_now() < until) {
        CHECK_OK(dl_link_check_host(&f.link));
    }
    CHECK(f.link.probe.stage == DL_DIAL_ASKED);
    CHECK(write(ends[1], &byte, 1) == 1);
    CHECK_OK(dl_link_read(&f.link, &part, 1, &got));
    CHECK(got == 1 && f.link.probe.stage == DL_DIAL_NONE);
    fixture_fini(&f);
}

CHECK_CASE(many_unproved_connections_do_not_block_ranks)
{
    enum { MANY = 2 * DL_PENDING_PEERS_LIMIT };
    fixture f;
    int fds[MANY];

    fixture_init(&f);
    for (int i = 0; i < MANY; i++) {
        fds[i] = stranger(&f);
        say(fds[i], DL_LITERAL("\xc0"));
        (void)dl_listener_poll(&f.listener);
        CHECK(f.listener.pending_count <= DL_PENDING_PEERS_LIMIT);
    }
    CHECK_EQUAL(f.listener.pending_count, DL_PENDING_PEERS_LIMIT);
    dl_transport taken = meet(&f);
    dl_transport_close(&taken);
    CHECK(f.listener.pending_count <= DL_PENDING_PEERS_LIMIT);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    fixture_fini(&f);
}

/* A socket in place of the listener, whose owner does not have the token. */
typedef struct impostor {
    int listening;
    int fd;
} impostor;

static void
impostor_init(impostor *self, fixture *f)
{
    dl_address *there = &f->link.options.address;
    socklen_t size = sizeof there->socket.ip4;

    fixture_init(f);
    self->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    there->socket.ip4.sin_port = 0;
    CHECK(bind(self->listening, &there->socket.any, there->size) == 0
          && listen(self->listening, 8) == 0
          && getsockname(self->listening, &there->socket.any, &size) == 0);
    self->fd = -1;
}

/* Accepts, and waits for the CHALLENGE and nothing else. */
static void
impostor_accept(impostor *self, fixture *f)
{
    uint8_t bytes[2 * DL_PROOF_SIZE];
    int64_t until = dl_now() + 15 * DL_SECOND;

    while (f->link.call.stage != DL_DIAL_ASKED && dl_now() < until) {
        CHECK_OK(dl_link_call(&f->link));
    }
    self->fd = accept4(self->listening, NULL, NULL, SOCK_CLOEXEC);
    CHECK_EQUAL(recv(self->fd, bytes, sizeof bytes, 0), DL_PROOF_SIZE);
    CHECK_EQUAL(bytes[0], DL_PROOF_CHALLENGE);
}

static void
impostor_fini(impostor *self, fixture *f)
{
    close(self->listening);
    close(self->fd);
    fixture_fini(f);
}

static dl_status
call_until_told(fixture *f)
{
    int64_t until = dl_now() + 15 * DL_SECOND;
    dl_status status = DL_OK;

    while (status == DL_OK && !f->link.is_open && dl_now() < until) {
        status = dl_link_call(&f->link);
    }
    return status;
}

CHECK_CASE(a_listener_that_does_not_know_the_token_gets_nothing)
{
    static const uint8_t any[DL_PROOF_SIZE] = {DL_OK, 1, 2, 3};
    uint8_t bytes[2 * DL_PROOF_SIZE];
    fixture f;
    impostor other;

    impostor_init(&other, &f);
    impostor_accept(&other, &f);
    say(other.fd, (dl_bytes){any, sizeof any});
    while (f.link.call.stage == DL_DIAL_ASKED) {
        CHECK_OK(dl_link_call(&f.link));
    }
    CHECK_EQUAL(recv(other.fd, bytes, sizeof bytes, 0), DL_PROOF_SIZE);
    CHECK_EQUAL(bytes[0], DL_PROOF_PROVE);
    /* The caller's own proof does not serve. */
    bytes[0] = DL_OK;
    say(other.fd, (dl_bytes){bytes, DL_PROOF_SIZE});
    CHECK_STATUS(call_until_told(&f), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 0 (pid 100 on host h) cannot be reached at 127.0.0.1:");
    CHECK_CONTAINS(dl_last_error()->text,
                   "does not prove that it knows the job's token");
    CHECK_EQUAL(recv(other.fd, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    impostor_fini(&other, &f);
}

CHECK_CASE(the_text_of_a_listener_s_refusal_is_escaped)
{
    fixture f;
    impostor other;
    dl_buffer refusal = {0};

    impostor_init(&other, &f);
    impostor_accept(&other, &f);
    dl_put_u8(&refusal, DL_DENIED);
    dl_put_bytes(&refusal, DL_LITERAL("go\n\x1b[2J away"));
    say(other.fd, dl_buffer_bytes(&refusal));
    CHECK_STATUS(call_until_told(&f), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "the job's token: go\\x0a\\x1b[2J away");
    dl_buffer_fini(&refusal);
    impostor_fini(&other, &f);
}

/* A rank that was stopped so long that the listener has disconnected it calls again; one
 * whose listener ends at once, or again and again, learns that it is lost. */
CHECK_CASE(a_connection_that_was_not_proved_in_time_is_made_again)
{
    fixture f;
    impostor other;

    impostor_init(&other, &f);
    impostor_accept(&other, &f);
    close(other.fd);
    CHECK_STATUS(call_until_told(&f), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "exited or was killed");
    dl_link_fini(&f.link);
    dl_link_options options = f.link.options;
    dl_link_init(&f.link, &options);
    for (int i = 0; i < 3; i++) {
        impostor_accept(&other, &f);
        CHECK_OK(dl_sleep_until(dl_deadline_after(120 * DL_MILLISECOND)));
        close(other.fd);
        while (f.link.call.stage == DL_DIAL_ASKED) {
            CHECK_OK(dl_link_call(&f.link));
        }
    }
    impostor_accept(&other, &f);
    CHECK_OK(dl_sleep_until(dl_deadline_after(120 * DL_MILLISECOND)));
    close(other.fd);
    CHECK_STATUS(call_until_told(&f), DL_PEER_LOST);
    other.fd = -1;
    impostor_fini(&other, &f);
}

CHECK_CASE(the_descriptor_to_wait_for_shows_each_message)
{
    fixture f;
    uint8_t bytes[DL_PROOF_SIZE];

    fixture_init(&f);
    struct pollfd entry = {.fd = f.listener.fd, .events = POLLIN};
    dl_buffer prove = {0};
    int fd = converse(&f, "token", 7, &prove);
    CHECK_EQUAL(poll(&entry, 1, 0), 0);
    say(fd, dl_buffer_bytes(&prove));
    CHECK_EQUAL(poll(&entry, 1, 15000), 1);
    CHECK_EQUAL(hear(&f, fd, bytes, sizeof bytes), DL_PROOF_SIZE);
    dl_buffer hello = {0};
    CHECK_OK(dl_hello_put(&hello, &the_call, f.listener.tcp.token, false));
    say(fd, dl_buffer_bytes(&hello));
    CHECK_EQUAL(poll(&entry, 1, 15000), 1);
    (void)dl_listener_poll(&f.listener);
    /* Further bytes belong to the taker, and wake no other thread. */
    say(fd, DL_LITERAL("more"));
    CHECK_EQUAL(poll(&entry, 1, 0), 0);
    dl_transport taken;
    CHECK(dl_listener_take(&f.listener, &the_call, &taken));
    dl_transport_close(&taken);
    close(fd);
    dl_buffer_fini(&hello);
    dl_buffer_fini(&prove);
    fixture_fini(&f);
}

/* An attacker in the middle of a link with TLS, who sees all bytes and may change
 * one. */
typedef struct middle {
    impostor front;
    int back;
    uint64_t carried;   /* bytes to the listener so far */
    uint64_t change_at; /* the one to be changed */
    bool has_seen;      /* the plaintext */
} middle;

static const char plaintext[] = "this is what nobody else may read";

static void
carry(middle *m, int from, int to, bool is_onward)
{
    uint8_t bytes[4096];
    ssize_t got = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (got <= 0) {
        return;
    }
    m->has_seen |= memmem(bytes, (size_t)got, plaintext, sizeof plaintext - 1) != NULL;
    for (ssize_t i = 0; i < got && is_onward; i++) {
        bytes[i] ^= m->carried++ == m->change_at ? 0x10 : 0;
    }
    (void)!send(to, bytes, (size_t)got, MSG_NOSIGNAL);
}

static void
carry_both(middle *m)
{
    carry(m, m->front.fd, m->back, true);
    carry(m, m->back, m->front.fd, false);
}

static void
middle_init(middle *m, fixture *f, uint64_t change_at)
{
    dl_address *there = &f->link.options.address;
    socklen_t size = sizeof there->socket.ip4;

    *m = (middle){.change_at = change_at};
    open_fixture(f, true);
    m->back = stranger(f);
    m->front.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    there->socket.ip4.sin_port = 0;
    CHECK(bind(m->front.listening, &there->socket.any, there->size) == 0
          && listen(m->front.listening, 8) == 0
          && getsockname(m->front.listening, &there->socket.any, &size) == 0);
    CHECK_OK(dl_link_call(&f->link));
    m->front.fd = accept4(m->front.listening, NULL, NULL, SOCK_CLOEXEC);
    CHECK(m->front.fd >= 0);
}

/* Sends the text through the link; returns the first failure of either side. */
static dl_status
send_through(middle *m, fixture *f)
{
    int64_t until = dl_now() + 15 * DL_SECOND;
    char text[sizeof plaintext];
    struct iovec out = {(void *)plaintext, sizeof plaintext};
    struct iovec in = {text, sizeof text};
    dl_transport taken = {0};
    dl_status status = DL_OK;
    size_t sent = 0;
    size_t got = 0;
    int error;

    while (status == DL_OK && got == 0 && dl_now() < until) {
        carry_both(m);
        status = dl_link_call(&f->link);
        if (status == DL_OK && sent == 0) {
            status = dl_link_write(&f->link, &out, 1, &sent);
        }
        if (!taken.is_open) {
            (void)dl_listener_take(&f->listener, &the_call, &taken);
        }
        if (status == DL_OK && taken.is_open) {
            status = dl_transport_read(&taken, &in, 1, &got, &error);
        }
        if (!taken.is_open && f->listener.pending_count == 0 && m->carried > 0) {
            status = status == DL_OK ? DL_DENIED : status;
        }
    }
    CHECK(status != DL_OK || (got == sizeof text && strcmp(text, plaintext) == 0));
    dl_transport_close(&taken);
    return status;
}

static void
middle_fini(middle *m, fixture *f)
{
    close(m->back);
    impostor_fini(&m->front, f);
}

CHECK_CASE(a_man_in_the_middle_reads_nothing)
{
    fixture f;
    middle m;

    middle_init(&m, &f, UINT64_MAX);
    CHECK_OK(send_through(&m, &f));
    CHECK(!m.has_seen && m.carried > sizeof plaintext);
    middle_fini(&m, &f);
}

/* Whichever byte it is: that of the handshake, of the hello or of the text. */
CHECK_CASE(a_man_in_the_middle_changes_nothing)
{
    fixture f;
    middle m;

    middle_init(&m, &f, UINT64_MAX);
    CHECK_OK(send_through(&m, &f));
    uint64_t all = m.carried;
    middle_fini(&m, &f);
    /* From behind the head of the first record, whose version counts for nothing. */
    for (uint64_t at = 5; at < all; at += at < 64 || at + 64 > all ? 3 : 29) {
        middle_init(&m, &f, at);
        CHECK(send_through(&m, &f) != DL_OK);
        CHECK(!m.has_seen);
        middle_fini(&m, &f);
    }
}

CHECK_CASE(an_idle_link_with_tls_wakes_no_thread)
{
    fixture f;
    char byte = 0;
    size_t size;
    int error;

    open_fixture(&f, true);
    dl_transport taken = meet(&f);
    struct iovec part = {&byte, 1};
    CHECK_OK(dl_link_read(&f.link, &part, 1, &size));
    CHECK_OK(dl_transport_read(&taken, &part, 1, &size, &error));
    CHECK_EQUAL(size, 0);
    struct pollfd entries[] = {dl_link_poll(&f.link, POLLIN),
                               {taken.fd, dl_transport_events(&taken, POLLIN), 0}};
    CHECK_EQUAL(poll(entries, 2, 0), 0);
    /* What a read has left behind shows. */
    struct iovec two = {(void *)"xy", 2};
    CHECK_OK(dl_link_write(&f.link, &two, 1, &size));
    CHECK_EQUAL(size, 2);
    for (size = 0; size == 0;) {
        CHECK_OK(dl_transport_read(&taken, &part, 1, &size, &error));
    }
    CHECK((dl_transport_events(&taken, POLLIN) & POLLOUT) != 0);
    CHECK_OK(dl_transport_read(&taken, &part, 1, &size, &error));
    CHECK_EQUAL(byte, 'y');
    dl_transport_close(&taken);
    fixture_fini(&f);
}

/* A peer that reads nothing: bytes are reported once all of their ciphertext is sent, and
 * nothing else can be written before. */
CHECK_CASE(a_link_with_tls_reports_what_is_sent)
{
    enum { SIZE = 32 << 20 };
    fixture f;
    uint8_t *out = malloc(SIZE);
    uint8_t *in = malloc(SIZE);
    size_t sent = 0;
    size_t got = 0;
    int error;

    CHECK(out != NULL && in != NULL);
    for (size_t i = 0; i < SIZE; i++) {
        out[i] = (uint8_t)(i * 7 + i / 4096);
    }
    open_fixture(&f, true);
    dl_transport taken = meet(&f);
    while (!dl_link_is_between(&f.link)) {
        struct iovec part = {out + sent, SIZE - sent};
        size_t size;
        CHECK_OK(dl_link_write(&f.link, &part, 1, &size));
        sent += size;
        CHECK(sent < SIZE);
    }
    CHECK((dl_link_poll(&f.link, POLLIN).events & POLLOUT) != 0);
    while (got < SIZE) {
        struct iovec part = {out + sent, SIZE - sent};
        struct iovec parts[] = {{in + got, 1000 < SIZE - got ? 1000 : SIZE - got},
                                {NULL, 0}};
        size_t size;
        parts[1].iov_base = in + got + parts[0].iov_len;
        parts[1].iov_len = SIZE - got - parts[0].iov_len;
        CHECK_OK(dl_transport_read(&taken, parts, 2, &size, &error));
        got += size;
        if (sent < SIZE) {
            CHECK_OK(dl_link_write(&f.link, &part, 1, &size));
            sent += size;
        }
    }
    CHECK(sent == SIZE && memcmp(in, out, SIZE) == 0);
    dl_transport_close(&taken);
    fixture_fini(&f);
    free(out);
    free(in);
}

/* A peer without TLS, and one with another token. */
CHECK_CASE(connections_without_tls_are_closed)
{
    fixture f;
    uint8_t bytes[256];
    dl_buffer hello = {0};

    open_fixture(&f, true);
    CHECK_OK(dl_hello_put(&hello, &the_call, f.listener.tcp.token, false));
    int fd = stranger(&f);
    say(fd, dl_buffer_bytes(&hello));
    (void)hear(&f, fd, bytes, sizeof bytes);
    CHECK_EQUAL(f.listener.pending_count, 0);
    close(fd);
    dl_buffer_fini(&hello);
    dl_secret *secret;
    dl_tls *tls;
    CHECK_OK(dl_secret_new(DL_LITERAL("another"), &secret));
    CHECK_OK(dl_tls_new(DL_TLS_PSK, "link", secret, &tls));
    dl_link_options options = f.link.options;
    options.tls = tls;
    dl_link_init(&f.link, &options);
    int64_t until = dl_now() + 15 * DL_SECOND;
    dl_status status = DL_OK;
    while (status == DL_OK && dl_now() < until) {
        status = dl_link_call(&f.link);
        take_none(&f);
    }
    CHECK_EQUAL(status, DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text,
                   "TLS between this rank and rank 0 (pid 100 on host h): ");
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_TOKEN");
    CHECK_EQUAL(f.listener.pending_count, 0);
    dl_link_fini(&f.link);
    dl_tls_unref(tls);
    dl_secret_unref(secret);
    fixture_fini(&f);
}

/* A token changes nothing in what links carry. */
static void
exchange(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    enum { COUNT = 300000 };
    static uint8_t blocks[3][COUNT];
    uint8_t *in[3];

    memset(blocks[rank], rank + 1, COUNT);
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        dl_op_context op = test_op(sequence, DL_ALL_GATHER, 30 * DL_SECOND);
        dl_traffic_begin(traffic, &op);
        for (int other = 0; other < size; other++) {
            in[other] = other == rank ? NULL : calloc(1, COUNT);
            if (other != rank) {
                CHECK_OK(dl_traffic_send(traffic, other, blocks[rank], COUNT));
                CHECK_OK(dl_traffic_receive(traffic, other, in[other], COUNT));
            }
        }
        CHECK_OK(dl_traffic_wait(traffic, dl_traffic_next(traffic)));
        dl_traffic_end(traffic);
        for (int other = 0; other < size; other++) {
            CHECK(in[other] == NULL
                  || (in[other][0] == other + 1 && in[other][COUNT - 1] == other + 1));
            free(in[other]);
        }
    }
}

CHECK_CASE(proved_links_carry_what_others_do)
{
    test_traffics all;

    traffics_token = "token";
    traffics_init_lanes(&all, 3, 2);
    dl_run_ranks(3, exchange, &all);
    traffics_fini(&all);
}

CHECK_CASE(encrypted_links_carry_what_others_do)
{
    test_traffics all;

    traffics_token = "token";
    traffics_use_tls = true;
    traffics_init_lanes(&all, 3, 2);
    dl_run_ranks(3, exchange, &all);
    traffics_fini(&all);
}
