/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A scripted server of a store.  Each connection gets a thread that runs `talk`;
 * when that returns, the connection is closed.  The helpers below read whole
 * requests and write the replies of torch's server, or of ours, so that a script has
 * only what goes wrong. */
#ifndef DISTLITE_TESTS_FAKES_SERVER_H
#define DISTLITE_TESTS_FAKES_SERVER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buffer.h"
#include "check.h"
#include "net/listen.h"
#include "net/socket.h"
#include "store/tcp/wire.h"

#define FAKE_CONNECTIONS_LIMIT 128

struct fake_server;

/* One accepted connection. */
typedef struct fake_peer {
    struct fake_server *server;
    pthread_t thread;
    int fd;
    int number;   /* from 0, in the order of arrival */
    dl_slot slot; /* of the client's hello */
    dl_buffer in;
    size_t taken; /* of `in`, by the request that was returned last */
} fake_peer;

typedef void (*fake_talk_fn)(fake_peer *peer);

typedef struct fake_server {
    int fd;
    uint16_t port;
    bool is_distlite; /* whether the handshake's answer is that of our server */
    bool forgets;     /* ours: says that it does not remember the client's slot */
    uint8_t identity[DL_IDENTITY_SIZE];
    const char *shortcut; /* ours: its name; NULL: there is none */
    int port_difference;  /* of the shortcut, from the port */
    fake_talk_fn talk;
    void *context;
    pthread_t thread;
    int wake[2]; /* a pipe whose closing ends the accepting thread */
    atomic_int accepted;
    fake_peer peers[FAKE_CONNECTIONS_LIMIT];
} fake_server;

static void *
fake_peer_main(void *argument)
{
    fake_peer *peer = argument;

    peer->server->talk(peer);
    dl_buffer_fini(&peer->in);
    /* The client sees the end now; the descriptor is closed in fake_stop(), so that its
     * number stays reserved. */
    shutdown(peer->fd, SHUT_RDWR);
    return NULL;
}

static void *
fake_accept_main(void *argument)
{
    fake_server *server = argument;
    struct pollfd polls[] = {{.fd = server->fd, .events = POLLIN},
                             {.fd = server->wake[0], .events = POLLIN}};

    for (;;) {
        poll(polls, 2, -1);
        int number = atomic_load(&server->accepted);
        if (polls[1].revents != 0 || number == FAKE_CONNECTIONS_LIMIT) {
            return NULL;
        }
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        fake_peer *peer = &server->peers[number];
        *peer = (fake_peer){.server = server, .fd = fd, .number = number};
        atomic_store(&server->accepted, number + 1);
        CHECK(pthread_create(&peer->thread, NULL, fake_peer_main, peer) == 0);
    }
}

/* Starts the server; `port` 0 stands for any free port.  The caller has set is_distlite,
 * talk and context. */
DL_CHECK_UNUSED static void
fake_start(fake_server *server, uint16_t port)
{
    dl_deadline soon = dl_deadline_after(10 * DL_SECOND);

    CHECK_OK(dl_socket_listen("127.0.0.1", port, soon, &server->fd));
    server->port = dl_socket_port(server->fd);
    CHECK(pipe(server->wake) == 0);
    CHECK(pthread_create(&server->thread, NULL, fake_accept_main, server) == 0);
}

/* Closes everything, the listening socket first. */
DL_CHECK_UNUSED static void
fake_stop(fake_server *server)
{
    close(server->wake[1]);
    pthread_join(server->thread, NULL);
    dl_socket_close(server->fd);
    close(server->wake[0]);
    for (int i = 0; i < atomic_load(&server->accepted); i++) {
        shutdown(server->peers[i].fd, SHUT_RDWR);
        pthread_join(server->peers[i].thread, NULL);
        close(server->peers[i].fd);
    }
}

/* Returns false if the client has closed the connection. */
static bool
fake_read_more(fake_peer *peer)
{
    CHECK_OK(dl_buffer_reserve(&peer->in, 65536));
    ssize_t size = recv(peer->fd, peer->in.data + peer->in.size, 65536, 0);
    peer->in.size += size > 0 ? (size_t)size : 0;
    return size > 0;
}

/* Reads the next request, whose fields are valid until the one after.  Returns false if
 * there are no more. */
DL_CHECK_UNUSED static bool
fake_next(fake_peer *peer, dl_store_request *request)
{
    dl_wire_cursor cursor = {0};

    dl_buffer_consume(&peer->in, peer->taken);
    peer->taken = 0;
    for (;;) {
        if (peer->in.size > 0 && peer->in.data[0] == DL_WIRE_LEAVE) {
            return false;
        }
        *request = (dl_store_request){0};
        int taken = dl_wire_take_request(&cursor, dl_buffer_bytes(&peer->in), request);
        CHECK(taken >= 0);
        if (taken == 1) {
            peer->taken = cursor.position;
            return true;
        }
        if (!fake_read_more(peer)) {
            return false;
        }
    }
}

/* Reads the next request and checks its opcode.  Returns false if the client has
 * closed the connection. */
DL_CHECK_UNUSED static bool
fake_expect(fake_peer *peer, dl_opcode op, dl_store_request *request)
{
    if (!fake_next(peer, request)) {
        return false;
    }
    if (request->op != op) {
        DL_CHECK_FAIL("%s was sent, not %s", dl_request_kinds[request->op].wire_name,
                      dl_request_kinds[op].wire_name);
    }
    return true;
}

DL_CHECK_UNUSED static void
fake_send(fake_peer *peer, dl_bytes bytes)
{
    size_t sent = 0;

    while (sent < bytes.size) {
        ssize_t size =
            send(peer->fd, bytes.data + sent, bytes.size - sent, MSG_NOSIGNAL);
        if (size < 0) {
            return; /* the client has closed: its own checks report that */
        }
        sent += (size_t)size;
    }
}

#define FAKE_SEND(peer, literal) fake_send(peer, DL_LITERAL(literal))

/* Echoes a PING, with `difference` added to its number. */
DL_CHECK_UNUSED static void
fake_pong(fake_peer *peer, const dl_store_request *ping, uint32_t difference)
{
    dl_buffer out = {0};

    dl_put_u32(&out, (uint32_t)ping->number + difference);
    fake_send(peer, dl_buffer_bytes(&out));
    dl_buffer_fini(&out);
}

/* Sends the reply of a server of ours to a hello. */
static void
fake_welcome(fake_peer *peer)
{
    const fake_server *server = peer->server;
    dl_wire_welcome welcome = {.is_remembered = !server->forgets};
    dl_buffer out = {0};

    memcpy(welcome.identity, server->identity, sizeof welcome.identity);
    if (server->shortcut != NULL) {
        welcome.shortcut.port = (uint16_t)(server->port + server->port_difference);
        strncpy(welcome.shortcut.name, server->shortcut,
                sizeof welcome.shortcut.name - 1);
    }
    dl_wire_put_welcome(&out, &welcome);
    fake_send(peer, dl_buffer_bytes(&out));
    dl_buffer_fini(&out);
}

/* Answers VALIDATE, PING and CHECK.  Returns false if the client has
 * closed the connection. */
DL_CHECK_UNUSED static bool
fake_greet(fake_peer *peer)
{
    dl_store_request request;

    if (!fake_expect(peer, DL_OP_VALIDATE, &request)
        || !fake_expect(peer, DL_OP_PING, &request)) {
        return false;
    }
    CHECK_EQUAL(request.is_checked, false);
    fake_pong(peer, &request, 0);
    if (!fake_expect(peer, DL_OP_CHECK, &request)) {
        return false;
    }
    CHECK(dl_wire_take_hello(&request, &peer->slot));
    if (peer->server->is_distlite) {
        fake_welcome(peer);
    } else {
        FAKE_SEND(peer, "\1");
    }
    return true;
}

DL_CHECK_UNUSED static void
fake_send_blob(fake_peer *peer, dl_bytes value)
{
    dl_buffer out = {0};

    dl_put_bytes(&out, value);
    fake_send(peer, dl_buffer_bytes(&out));
    dl_buffer_fini(&out);
}

DL_CHECK_UNUSED static void
fake_send_number(fake_peer *peer, int64_t number)
{
    dl_buffer out = {0};

    dl_put_i64(&out, number);
    fake_send(peer, dl_buffer_bytes(&out));
    dl_buffer_fini(&out);
}

#endif
