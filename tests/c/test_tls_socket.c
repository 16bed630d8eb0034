/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/tls_socket.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "fakes/interrupts.h"
#include "net/connect.h"
#include "net/listen.h"
#include "net/socket.h"
#include "tls_fixture.h"

#define LARGE ((size_t)8 << 20)

typedef struct pair {
    int ours;
    int theirs;
    dl_tls_socket *client;
    dl_tls_socket *server;
} pair;

static pair
make_pair_of(dl_tls *client, dl_tls *server)
{
    pair made;
    int listening;

    CHECK_OK(dl_socket_listen("127.0.0.1", 0, SOON, &listening));
    CHECK_OK(dl_socket_connect_once("127.0.0.1", dl_socket_port(listening), SOON, NULL,
                                    &made.ours));
    made.theirs = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(made.theirs >= 0);
    dl_socket_prepare(made.theirs);
    dl_socket_close(listening);
    CHECK_OK(dl_tls_socket_new(client, false, made.ours, &made.client));
    CHECK_OK(dl_tls_socket_new(server, true, made.theirs, &made.server));
    dl_tls_unref(client);
    dl_tls_unref(server);
    return made;
}

static void
end_pair(pair ends)
{
    dl_tls_socket_free(ends.client);
    dl_tls_socket_free(ends.server);
    dl_socket_close(ends.ours);
    dl_socket_close(ends.theirs);
}

static void
await(int fd, short events)
{
    struct pollfd entry = {.fd = fd, .events = events};

    CHECK(poll(&entry, 1, 15000) == 1);
}

/* Serves a blocking client as a loop does: sends back what arrives. */
static void *
echo(void *argument)
{
    dl_tls_socket *self = argument;
    static uint8_t data[100000];
    size_t size;

    for (;;) {
        dl_status status = dl_tls_socket_receive(self, data, sizeof data, &size);
        if (status != DL_OK) {
            return (void *)(intptr_t)status;
        }
        struct iovec part = {data, size};
        while (part.iov_len > 0) {
            size_t sent;
            status = dl_tls_socket_send(self, &part, 1, &sent);
            if (status != DL_OK) {
                return (void *)(intptr_t)status;
            }
            part = (struct iovec){(char *)part.iov_base + sent, part.iov_len - sent};
            if (sent == 0) {
                await(self->fd, POLLOUT);
            }
        }
        if (size == 0) {
            await(self->fd, dl_tls_socket_wants_room(self) ? POLLIN | POLLOUT : POLLIN);
        }
    }
}

static dl_status
join(pthread_t thread)
{
    void *result;

    CHECK(pthread_join(thread, &result) == 0);
    return (dl_status)(intptr_t)result;
}

static pair
make_pair(void)
{
    return make_pair_of(tls_of("token", "link"), tls_of("token", "link"));
}

static dl_status
write_bytes(dl_tls_socket *self, dl_bytes bytes, dl_deadline deadline)
{
    struct iovec part = {(void *)bytes.data, bytes.size};

    return dl_tls_socket_write(self, &part, 1, deadline);
}

static dl_status
read_bytes(dl_tls_socket *self, uint8_t *bytes, size_t size, dl_deadline deadline)
{
    size_t got;

    DL_TRY(dl_tls_socket_read(self, (struct iovec){bytes, size}, size, deadline, &got));
    CHECK_EQUAL(got, size);
    return DL_OK;
}

static void
fill(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 31 + (i >> 13));
    }
}

/* A blocking server: reads a large value and sends it back in parts. */
static void *
return_large(void *argument)
{
    dl_tls_socket *self = argument;
    uint8_t *data = malloc(LARGE);

    CHECK(data != NULL);
    CHECK_OK(dl_tls_socket_greet(self, SOON));
    CHECK_OK(read_bytes(self, data, LARGE, SOON));
    struct iovec parts[] = {
        {data, 3}, {NULL, 0}, {data + 3, LARGE - 10}, {data + LARGE - 7, 7}, {NULL, 0}};
    CHECK_OK(dl_tls_socket_write(self, parts, 5, SOON));
    free(data);
    return NULL;
}

CHECK_CASE(a_large_value_goes_there_and_back)
{
    pair ends = make_pair();
    uint8_t *data = malloc(LARGE);
    uint8_t *back = calloc(1, LARGE);
    pthread_t server;

    CHECK(data != NULL && back != NULL);
    fill(data, LARGE);
    dl_socket_set_kernel_wait(ends.ours); /* as a store's client does */
    CHECK_OK(dl_thread_start(&server, return_large, ends.server));
    CHECK_OK(dl_tls_socket_greet(ends.client, SOON));
    CHECK_OK(write_bytes(ends.client, (dl_bytes){data, LARGE}, SOON));
    CHECK_OK(read_bytes(ends.client, back, LARGE, SOON));
    CHECK_OK(join(server));
    CHECK(memcmp(data, back, LARGE) == 0);
    free(data);
    free(back);
    end_pair(ends);
}

CHECK_CASE(a_loop_serves_a_blocking_client)
{
    pair ends = make_pair();
    static uint8_t data[60000];
    static uint8_t back[60000];
    pthread_t server;

    fill(data, sizeof data);
    CHECK_OK(dl_thread_start(&server, echo, ends.server));
    CHECK_OK(dl_tls_socket_greet(ends.client, SOON));
    for (size_t size = 1; size <= sizeof data; size = size * 7 + 5) {
        CHECK_OK(write_bytes(ends.client, (dl_bytes){data, size}, SOON));
        CHECK_OK(read_bytes(ends.client, back, size, SOON));
        CHECK(memcmp(data, back, size) == 0);
    }
    shutdown(ends.ours, SHUT_WR);
    CHECK_EQUAL(join(server), DL_CLOSED);
    end_pair(ends);
}

/* The client's last message of the handshake travels with the first read, too. */
CHECK_CASE(a_server_may_speak_first)
{
    pair ends = make_pair();
    struct iovec part = {"hi", 2};
    uint8_t back[2];
    size_t size = 0;

    CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    CHECK_EQUAL(size, 0);
    while (!dl_tls_is_up(ends.client->stream)) {
        await(ends.theirs, POLLIN);
        CHECK_OK(dl_tls_socket_receive(ends.server, back, 2, &size));
        await(ends.ours, POLLIN);
        CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    }
    await(ends.theirs, POLLIN);
    CHECK_OK(dl_tls_socket_receive(ends.server, back, 2, &size));
    CHECK_OK(dl_tls_socket_send(ends.server, &part, 1, &size));
    CHECK_EQUAL(size, 2);
    CHECK_OK(read_bytes(ends.client, back, 2, SOON));
    CHECK(memcmp(back, "hi", 2) == 0);
    end_pair(ends);
}

CHECK_CASE(held_plaintext_is_known)
{
    pair ends = make_pair();
    pthread_t server;
    uint8_t back[2];
    size_t size;

    CHECK_OK(dl_thread_start(&server, echo, ends.server));
    CHECK_OK(dl_tls_socket_greet(ends.client, SOON));
    CHECK_OK(write_bytes(ends.client, DL_LITERAL("abcde"), SOON));
    await(ends.ours, POLLIN);
    CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    CHECK(size == 2 && dl_tls_socket_holds_input(ends.client));
    CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    CHECK(size == 2 && dl_tls_socket_holds_input(ends.client));
    CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    CHECK(size == 1 && !dl_tls_socket_holds_input(ends.client));
    CHECK(back[0] == 'e');
    /* A read that fills its room is not one that leaves something behind. */
    CHECK_OK(write_bytes(ends.client, DL_LITERAL("fg"), SOON));
    CHECK_OK(read_bytes(ends.client, back, 2, SOON));
    CHECK(!dl_tls_socket_holds_input(ends.client));
    CHECK_OK(dl_tls_socket_receive(ends.client, back, 2, &size));
    CHECK_EQUAL(size, 0);
    shutdown(ends.ours, SHUT_WR);
    CHECK_EQUAL(join(server), DL_CLOSED);
    end_pair(ends);
}

/* A sender that is not read holds a bounded amount of output. */
CHECK_CASE(a_full_socket_is_no_error)
{
    pair ends = make_pair();
    pthread_t server;
    static uint8_t data[1 << 20];
    struct iovec part = {data, sizeof data};
    size_t total = 0;
    size_t size = 1;

    CHECK_OK(dl_thread_start(&server, echo, ends.server));
    CHECK_OK(dl_tls_socket_greet(ends.client, SOON));
    shutdown(ends.ours, SHUT_WR);
    CHECK_EQUAL(join(server), DL_CLOSED);
    end_pair(ends);

    ends = make_pair();
    CHECK_OK(dl_thread_start(&server, echo, ends.server));
    CHECK_OK(dl_tls_socket_greet(ends.client, SOON));
    /* The echo stops reading once its own output is full. */
    while (size > 0 || total == 0) {
        CHECK_OK(dl_tls_socket_send(ends.client, &part, 1, &size));
        total += size;
        CHECK(total < (1 << 30));
    }
    CHECK(dl_tls_socket_wants_room(ends.client));
    /* A reset: the end of the stream would wait behind what the server does not read. */
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(ends.ours, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    dl_socket_close(ends.ours);
    ends.ours = -1;
    CHECK(join(server) != DL_OK);
    end_pair(ends);
}

CHECK_CASE(a_wrong_token_is_reported_on_both_sides)
{
    pair ends = make_pair_of(tls_of("mine", "link"), tls_of("theirs", "link"));
    pthread_t server;

    CHECK_OK(dl_thread_start(&server, echo, ends.server));
    CHECK_STATUS(dl_tls_socket_greet(ends.client, SOON), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "the server refuses this process's key");
    CHECK_EQUAL(join(server), DL_DENIED);
    end_pair(ends);
}

CHECK_CASE(a_peer_without_tls_is_named)
{
    pair ends = make_pair();

    CHECK(send(ends.theirs, "not TLS", 7, 0) == 7);
    CHECK_STATUS(dl_tls_socket_greet(ends.client, SOON), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "what the server sends is not TLS 1.3");
    end_pair(ends);
    ends = make_pair();
    shutdown(ends.theirs, SHUT_RDWR);
    CHECK_STATUS(dl_tls_socket_greet(ends.client, SOON), DL_CLOSED);
    end_pair(ends);
}

CHECK_CASE(deadlines_and_interrupts_end_waits)
{
    pair ends = make_pair();

    CHECK_STATUS(dl_tls_socket_greet(ends.client, MS(20)), DL_TIMEOUT);
    fake_interrupt_after(20 * DL_MILLISECOND);
    CHECK_INTERRUPTED(dl_tls_socket_greet(ends.client, SOON));
    end_pair(ends);
}
