/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/connection.h"

#include <netinet/in.h>
#include <poll.h>

#include "fakes/server.h"
#include "net/connect.h"

/* Connected, but not introduced. */
static dl_connection *
connect_to(fake_server *server)
{
    dl_connection *connection = NULL;
    int fd;

    fake_start(server, 0);
    CHECK_OK(dl_socket_connect_once("127.0.0.1", server->port, SOON, NULL, &fd));
    CHECK_OK(dl_connection_new(fd, &connection));
    return connection;
}

static dl_connection *
greet(fake_server *server)
{
    dl_connection *connection = connect_to(server);

    CHECK_OK(dl_connection_greet(connection, NULL, NULL, SOON));
    CHECK_EQUAL(connection->is_distlite, server->is_distlite);
    CHECK(connection->is_clean);
    CHECK(!connection->may_be_done);
    return connection;
}

static void
finish(fake_server *server, dl_connection *connection)
{
    dl_connection_free(connection, false);
    fake_stop(server);
}

static void
talk_handshake_bytes(fake_peer *peer)
{
    uint8_t bytes[128];
    dl_buffer expected = {0};

    /* One recv: it is one segment. */
    ssize_t size = recv(peer->fd, bytes, sizeof bytes, 0);
    dl_buffer_put(&expected, DL_LITERAL("\x00\xCE\xF7\x85\x3C\x0D"));
    dl_put_u32(&expected, (uint32_t)getpid() + 1);
    dl_buffer_put(&expected,
                  DL_LITERAL("\x05\1\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0distlite/3"));
    /* The id of the slot is random, and its sequence begins with 1. */
    CHECK_EQUAL(size, (ssize_t)expected.size + DL_SLOT_ID_SIZE + 8);
    CHECK(memcmp(bytes, expected.data, expected.size) == 0);
    CHECK(memcmp(bytes + size - 8, "\1\0\0\0\0\0\0\0", 8) == 0);
    dl_buffer_fini(&expected);
    fake_send(peer, (dl_bytes){bytes + 6, 4});
    FAKE_SEND(peer, "\1");
    recv(peer->fd, bytes, 1, 0);
}

CHECK_CASE(the_handshake_is_one_segment_of_torchs_requests)
{
    fake_server server = {.talk = talk_handshake_bytes};
    dl_connection *connection = greet(&server);

    finish(&server, connection);
}

static void
talk_wrong_ping(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_VALIDATE, &request));
    CHECK(fake_expect(peer, DL_OP_PING, &request));
    fake_pong(peer, &request, 1000);
    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(a_wrong_ping_is_reported_as_by_torch)
{
    fake_server server = {.talk = talk_wrong_ping};
    dl_connection *connection = connect_to(&server);
    char expected[128];

    CHECK_STATUS(dl_connection_greet(connection, NULL, NULL, SOON), DL_PROTOCOL);
    snprintf(expected, sizeof expected,
             "Ping failed, invalid value returned from server. Expected: %u, Got: %u",
             connection->nonce, connection->nonce + 1000);
    CHECK_TEXT(dl_last_error()->text, expected);
    CHECK(!connection->is_clean);
    finish(&server, connection);
}

static void
talk_odd_check(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_VALIDATE, &request));
    CHECK(fake_expect(peer, DL_OP_PING, &request));
    fake_pong(peer, &request, 0);
    FAKE_SEND(peer, "\7");
    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(an_odd_answer_to_the_hello_is_refused)
{
    fake_server server = {.talk = talk_odd_check};
    dl_connection *connection = connect_to(&server);

    CHECK_STATUS(dl_connection_greet(connection, NULL, NULL, SOON), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "ready or not_ready response expected");
    finish(&server, connection);
}

static void
talk_nothing(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_VALIDATE, &request));
}

CHECK_CASE(a_server_that_closes_is_reported_as_by_torch)
{
    fake_server server = {.talk = talk_nothing};
    dl_connection *connection = connect_to(&server);
    char expected[256];

    CHECK_STATUS(dl_connection_greet(connection, NULL, NULL, SOON), DL_NETWORK);
    snprintf(
        expected, sizeof expected,
        "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash? (127.0.0.1:%u)",
        server.port);
    /* It may have closed with the rest of the handshake unread, which resets. */
    if (strstr(dl_last_error()->text, "reset") == NULL) {
        CHECK_TEXT(dl_last_error()->text, expected);
    }
    finish(&server, connection);
}

static void
talk_silence(fake_peer *peer)
{
    dl_store_request request;

    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(a_silent_server_is_left_at_the_deadline)
{
    fake_server server = {.talk = talk_silence};
    dl_connection *connection = connect_to(&server);

    int64_t start = dl_now();
    CHECK_STATUS(dl_connection_greet(connection, NULL, NULL, MS(150)), DL_TIMEOUT);
    CHECK(dl_now() - start >= 150 * DL_MILLISECOND);
    CHECK(dl_now() - start < 400 * DL_MILLISECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "the store's server at 127.0.0.1:");
    CHECK_CONTAINS(dl_last_error()->text, " does not answer");
    finish(&server, connection);
}

static void
talk_first_request(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_ADD, &request));
    CHECK(!request.is_checked);
    CHECK_BYTES(request.key, "init/");
    fake_send_number(peer, 41);
    fake_next(peer, &request);
}

CHECK_CASE(a_first_request_travels_with_the_handshake)
{
    fake_server server = {.talk = talk_first_request, .is_distlite = true};
    dl_connection *connection = connect_to(&server);
    dl_store_request add = {.op = DL_OP_ADD, .key = DL_LITERAL("init/"), .number = 1};
    int64_t sum = 0;

    CHECK_OK(dl_connection_greet(connection, NULL, &add, SOON));
    CHECK(!connection->is_clean);
    CHECK_OK(dl_connection_take_i64(connection, SOON, &sum));
    CHECK_EQUAL(sum, 41);
    dl_connection_end_reply(connection);
    CHECK(connection->is_clean);
    finish(&server, connection);
}

#define LARGE_VALUE ((size_t)1 << 20)

static dl_bytes
pattern(size_t size)
{
    static uint8_t bytes[LARGE_VALUE];

    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 13 / 5);
    }
    return (dl_bytes){bytes, size};
}

/* Takes SETs of 5 bytes and of LARGE_VALUE, and acknowledges them. */
static void
talk_sets(fake_peer *peer)
{
    static uint8_t expected[LARGE_VALUE];
    const size_t sizes[] = {5, LARGE_VALUE};
    dl_store_request request, ping;

    for (size_t i = 0; i < LARGE_VALUE; i++) {
        expected[i] = (uint8_t)(i * 13 / 5);
    }
    CHECK(fake_greet(peer));
    for (int i = 0; i < 2; i++) {
        CHECK(fake_expect(peer, DL_OP_SET, &request));
        CHECK_EQUAL(request.is_checked, peer->server->is_distlite);
        CHECK_BYTES(request.key, "/key");
        CHECK_EQUAL(request.value.size, sizes[i]);
        CHECK(memcmp(request.value.data, expected, sizes[i]) == 0);
        if (peer->server->is_distlite) {
            FAKE_SEND(peer, "\0");
        } else {
            CHECK(fake_expect(peer, DL_OP_PING, &ping));
            CHECK(!ping.is_checked);
            fake_pong(peer, &ping, 0);
        }
    }
    fake_next(peer, &request);
}

static void
check_sets(bool is_distlite)
{
    fake_server server = {.talk = talk_sets, .is_distlite = is_distlite};
    dl_connection *connection = greet(&server);
    dl_store_request set = {.op = DL_OP_SET, .key = DL_LITERAL("key")};
    const size_t sizes[] = {5, LARGE_VALUE};

    for (int i = 0; i < 2; i++) {
        set.value = pattern(sizes[i]);
        CHECK_OK(dl_connection_ask(connection, &set, DL_LITERAL("/"), SOON));
        CHECK(connection->may_be_done);
        CHECK(!connection->is_clean);
        CHECK_OK(dl_connection_take_status(connection, SOON));
        CHECK_OK(dl_connection_take_echo(connection, SOON));
        dl_connection_end_reply(connection);
        CHECK(connection->is_clean);
    }
    finish(&server, connection);
}

CHECK_CASE(writes_are_acknowledged_by_either_server)
{
    check_sets(true);
    check_sets(false);
}

static void
talk_wrong_echo(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_SET, &request));
    CHECK(fake_expect(peer, DL_OP_PING, &request));
    fake_pong(peer, &request, 1);
    fake_next(peer, &request);
}

CHECK_CASE(an_acknowledgement_must_be_the_right_one)
{
    fake_server server = {.talk = talk_wrong_echo};
    dl_connection *connection = greet(&server);
    dl_store_request set = {.op = DL_OP_SET, .key = DL_LITERAL("key")};

    CHECK_OK(dl_connection_ask(connection, &set, DL_LITERAL("/"), SOON));
    CHECK_STATUS(dl_connection_take_echo(connection, SOON), DL_PROTOCOL);
    finish(&server, connection);
}

/* Around the buffer's size, and far beyond. */
static const size_t blob_sizes[] = {0,
                                    1,
                                    7,
                                    DL_CONNECTION_ROOM - 9,
                                    DL_CONNECTION_ROOM - 8,
                                    DL_CONNECTION_ROOM - 7,
                                    3,
                                    DL_CONNECTION_ROOM * 3 + 1,
                                    LARGE_VALUE};
#define BLOB_COUNT (sizeof blob_sizes / sizeof *blob_sizes)

static void
talk_blobs(fake_peer *peer)
{
    static uint8_t bytes[LARGE_VALUE];
    dl_store_request request;
    dl_buffer out = {0};
    size_t piece = *(size_t *)peer->server->context;

    for (size_t i = 0; i < LARGE_VALUE; i++) {
        bytes[i] = (uint8_t)(i * 13 / 5);
    }
    CHECK(fake_greet(peer));
    for (size_t i = 0; i < BLOB_COUNT; i++) {
        dl_put_bytes(&out, (dl_bytes){bytes, blob_sizes[i]});
    }
    for (size_t sent = 0; sent < out.size; sent += piece) {
        size_t left = out.size - sent;
        fake_send(peer, (dl_bytes){out.data + sent, left < piece ? left : piece});
    }
    dl_buffer_fini(&out);
    fake_next(peer, &request);
}

static void
check_blobs(size_t piece)
{
    fake_server server = {.talk = talk_blobs, .context = &piece};
    dl_connection *connection = greet(&server);
    dl_buffer value = {0};

    for (size_t i = 0; i < BLOB_COUNT; i++) {
        CHECK_OK(dl_connection_take_blob(connection, SOON, &value));
        CHECK(dl_bytes_equal(dl_buffer_bytes(&value), pattern(blob_sizes[i])));
    }
    dl_connection_end_reply(connection);
    CHECK(connection->is_clean);
    dl_buffer_fini(&value);
    finish(&server, connection);
}

CHECK_CASE(values_of_any_size_arrive_however_they_are_cut)
{
    check_blobs(LARGE_VALUE * 4);
    check_blobs(10007);
    check_blobs(DL_CONNECTION_ROOM);
}

static void
talk_context(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    fake_send(peer, *(dl_bytes *)peer->server->context);
    fake_next(peer, &request);
}

CHECK_CASE(absurd_sizes_are_refused)
{
    const dl_bytes sizes[] = {DL_LITERAL("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
                              DL_LITERAL("\0\0\0\0\0\1\1\0"),
                              DL_LITERAL("\0\0\0\0\0\0\0\x80")};

    for (int i = 0; i < 3; i++) {
        fake_server server = {.talk = talk_context, .context = (void *)&sizes[i]};
        dl_connection *connection = greet(&server);
        dl_buffer value = {0};
        CHECK_STATUS(dl_connection_take_blob(connection, SOON, &value), DL_PROTOCOL);
        CHECK_CONTAINS(dl_last_error()->text,
                       "bytes, which is over the limit, was announced by 127.0.0.1:");
        dl_buffer_fini(&value);
        finish(&server, connection);
    }
}

static void
check_refusal(dl_bytes reply, dl_status expected, const char *text)
{
    fake_server server = {.talk = talk_context, .context = &reply, .is_distlite = true};
    dl_connection *connection = greet(&server);

    connection->is_clean = false;
    CHECK_STATUS(dl_connection_take_status(connection, SOON), expected);
    CHECK_TEXT(dl_last_error()->text, text);
    CHECK(connection->is_clean);
    finish(&server, connection);
}

CHECK_CASE(the_text_of_our_server_s_refusals_is_shown)
{
    check_refusal(DL_LITERAL("\7\4\0\0\0\0\0\0\0nope"), DL_INVALID, "nope");
    check_refusal(DL_LITERAL("\5\0\0\0\0\0\0\0\0"), DL_NOT_FOUND, "");
    /* A status of the future. */
    check_refusal(DL_LITERAL("\x63\2\0\0\0\0\0\0\0ab"), DL_PROTOCOL, "ab");
}

CHECK_CASE(more_than_was_asked_for_spoils_the_connection)
{
    dl_bytes reply = DL_LITERAL("\1\2");
    fake_server server = {.talk = talk_context, .context = &reply};
    dl_connection *connection = greet(&server);
    uint8_t byte;

    CHECK_OK(dl_connection_await(connection, 2, SOON));
    CHECK_OK(dl_connection_take_u8(connection, SOON, &byte));
    dl_connection_end_reply(connection);
    CHECK(!connection->is_clean);
    finish(&server, connection);
}

static void
talk_half_number(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    FAKE_SEND(peer, "\x2A\0\0");
    CHECK(fake_expect(peer, DL_OP_NUM_KEYS, &request));
    FAKE_SEND(peer, "\0\0\0\0\0");
    fake_next(peer, &request);
}

CHECK_CASE(half_a_reply_is_kept_when_the_deadline_passes)
{
    fake_server server = {.talk = talk_half_number};
    dl_connection *connection = greet(&server);
    dl_store_request request = {.op = DL_OP_NUM_KEYS};
    int64_t number = 0;

    CHECK_OK(dl_connection_await(connection, 3, SOON));
    CHECK_STATUS(dl_connection_take_i64(connection, MS(30), &number), DL_TIMEOUT);
    CHECK_OK(dl_connection_ask(connection, &request, DL_LITERAL("/"), SOON));
    CHECK_OK(dl_connection_take_i64(connection, SOON, &number));
    CHECK_EQUAL(number, 42);
    finish(&server, connection);
}

/* Closes the socket, so that the client gets a reset; another descriptor takes its
 * number, because the fake closes that number later. */
static void
reset(const fake_peer *peer)
{
    struct linger linger = {.l_onoff = 1};

    CHECK(setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    int spare = dup(0);
    CHECK(dup2(spare, peer->fd) == peer->fd);
    close(spare);
}

static void
talk_reset(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    reset(peer);
}

CHECK_CASE(a_request_that_could_not_be_sent_is_known_not_to_be)
{
    fake_server server = {.talk = talk_reset};
    dl_connection *connection = greet(&server);
    dl_store_request request = {.op = DL_OP_ADD, .key = DL_LITERAL("key")};
    dl_deadline deadline = SOON;

    while (!dl_socket_is_stale(connection->fd)) {
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
    CHECK_STATUS(dl_connection_ask(connection, &request, DL_LITERAL("/"), SOON),
                 DL_NETWORK);
    CHECK(!connection->may_be_done);
    CHECK(!connection->is_clean);
    finish(&server, connection);
}

CHECK_CASE(a_request_that_cannot_be_encoded_is_not_sent)
{
    fake_server server = {.talk = talk_silence};
    dl_connection *connection = connect_to(&server);
    dl_store_request request = {.op = DL_OP_ADD, .key = DL_LITERAL("key")};

    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_connection_ask(connection, &request, DL_LITERAL("/"), SOON),
                 DL_NO_MEMORY);
    CHECK(dl_check_allocation_failed());
    CHECK(!connection->may_be_done);
    finish(&server, connection);
}

static void
talk_until_asked(fake_peer *peer)
{
    struct pollfd entry = {.fd = peer->fd, .events = POLLIN};

    CHECK(fake_greet(peer));
    CHECK(poll(&entry, 1, 15000) == 1);
    /* Only shut down, it would take no notice of a client that waits for room. */
    reset(peer);
}

/* Its head was sent, its end was not: the client cannot know what the server has
 * received. */
CHECK_CASE(a_large_request_that_is_cut_short_may_have_been_sent)
{
    static uint8_t large[LARGE_VALUE * 24];
    fake_server server = {.talk = talk_until_asked, .is_distlite = true};
    dl_connection *connection = greet(&server);
    dl_store_request push = {.op = DL_OP_QUEUE_PUSH,
                             .key = DL_LITERAL("key"),
                             .value = {large, sizeof large}};

    dl_status status = dl_connection_ask(connection, &push, DL_LITERAL("/"), SOON);
    CHECK_EQUAL(status, DL_NETWORK);
    CHECK(connection->may_be_done);
    CHECK(!connection->is_clean);
    finish(&server, connection);
}

CHECK_CASE(the_buffer_of_a_large_request_is_given_back)
{
    fake_server server = {.talk = talk_silence};
    dl_connection *connection = connect_to(&server);
    dl_bytes key = DL_LITERAL("key"), value = pattern(LARGE_VALUE);
    dl_store_request request = {
        .op = DL_OP_MULTI_SET, .count = 1, .keys = &key, .values = &value};

    CHECK_OK(dl_connection_ask(connection, &request, DL_LITERAL("/"), SOON));
    CHECK_EQUAL(connection->out.capacity, 0);
    finish(&server, connection);
}
