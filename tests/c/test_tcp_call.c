/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/tcp_call.h"

#include <netinet/in.h>

#include "fakes/interrupts.h"
#include "fakes/server.h"
#include "net/connect.h"
#include "store/store.h"

#define PATIENCE (15 * DL_SECOND)
/* The limit of a wait that has to begin, also on a busy machine, and is then given
 * up. */
#define IMPATIENCE (300 * DL_MILLISECOND)
#define KEY DL_LITERAL("k")

static dl_connection *
greet(fake_server *server)
{
    dl_connection *connection = NULL;
    int fd;

    fake_start(server, 0);
    CHECK_OK(dl_socket_connect_once("127.0.0.1", server->port, SOON, NULL, &fd));
    CHECK_OK(dl_connection_new(fd, &connection));
    CHECK_OK(dl_connection_greet(connection, NULL, NULL, SOON));
    return connection;
}

static void
finish(fake_server *server, dl_connection *connection)
{
    dl_connection_free(connection, false);
    fake_stop(server);
}

static dl_tcp_call
call_of(dl_opcode op, dl_deadline deadline)
{
    return (dl_tcp_call){.request = {.op = op, .key = KEY},
                         .key_prefix = DL_LITERAL("/"),
                         .deadline = deadline};
}

/* A get by `script`, which must end with `expected`; the connection is fine after it
 * unless `is_disabled`.  The limit counts from the call, not from the server's start. */
static void
check_get(fake_server *server, int64_t limit, dl_status expected, bool is_disabled)
{
    dl_connection *connection = greet(server);
    dl_tcp_call call = call_of(DL_OP_GET, dl_deadline_after(limit));
    dl_buffer value = {0};

    call.reply.values = &value;
    CHECK_STATUS(dl_tcp_call_once(connection, &call), expected);
    if (expected == DL_OK) {
        CHECK_BYTES(dl_buffer_bytes(&value), "value");
    }
    CHECK_EQUAL(connection->is_clean, !is_disabled);
    dl_buffer_fini(&value);
    finish(server, connection);
}

static void
expect_wait(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_WAIT, &request));
    CHECK_EQUAL(request.is_checked, peer->server->is_distlite);
    CHECK_EQUAL(request.count, 1);
    dl_reader items = request.items;
    CHECK_BYTES(dl_request_take_item(&items), "/k");
}

static void
expect_get(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_GET, &request));
    CHECK_EQUAL(request.is_checked, peer->server->is_distlite);
    CHECK_BYTES(request.key, "/k");
}

static void
expect_no_more(fake_peer *peer)
{
    dl_store_request request;

    if (fake_next(peer, &request)) {
        DL_CHECK_FAIL("%s came after the end", dl_request_kinds[request.op].wire_name);
    }
}

#define ABSENT "\5\6\0\0\0\0\0\0\0absent"

static void
talk_get_from_torch(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_wait(peer);
    FAKE_SEND(peer, "\0");
    expect_get(peer);
    fake_send_blob(peer, DL_LITERAL("value"));
    expect_no_more(peer);
}

CHECK_CASE(torchs_server_is_never_asked_for_what_may_be_absent)
{
    fake_server server = {.talk = talk_get_from_torch};

    check_get(&server, PATIENCE, DL_OK, false);
}

static void
talk_get_at_once(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_get(peer);
    FAKE_SEND(peer, "\0");
    fake_send_blob(peer, DL_LITERAL("value"));
    expect_no_more(peer);
}

CHECK_CASE(a_get_of_what_is_there_is_one_round_trip)
{
    fake_server server = {.talk = talk_get_at_once, .is_distlite = true};

    check_get(&server, PATIENCE, DL_OK, false);
}

static void
talk_get_later(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_get(peer);
    FAKE_SEND(peer, ABSENT);
    expect_wait(peer);
    FAKE_SEND(peer, "\0\0");
    /* Deleted in between: all over again. */
    expect_get(peer);
    FAKE_SEND(peer, ABSENT);
    expect_wait(peer);
    FAKE_SEND(peer, "\0\0");
    expect_get(peer);
    FAKE_SEND(peer, "\0");
    fake_send_blob(peer, DL_LITERAL("value"));
    expect_no_more(peer);
}

CHECK_CASE(a_get_waits_until_it_gets)
{
    fake_server server = {.talk = talk_get_later, .is_distlite = true};

    check_get(&server, PATIENCE, DL_OK, false);
}

static void
talk_absent(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_get(peer);
    FAKE_SEND(peer, ABSENT);
    expect_no_more(peer);
}

CHECK_CASE(a_get_that_looks_once_asks_ours_once)
{
    fake_server server = {.talk = talk_absent, .is_distlite = true};

    check_get(&server, 0, DL_TIMEOUT, false);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 0ms, keys: /k");
}

/* A WAIT for which the key is there and a GET for which it is not: a queue's. */
static void
talk_queue_only(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    while (fake_next(peer, &request)) {
        atomic_fetch_add((atomic_int *)peer->server->context, 1);
        fake_send(peer, request.op == DL_OP_GET    ? DL_LITERAL(ABSENT)
                        : request.op == DL_OP_WAIT ? DL_LITERAL("\0\0")
                                                   : DL_LITERAL("\0\1"));
    }
}

CHECK_CASE(a_get_of_a_queue_waits_without_haste)
{
    atomic_int requests = 0;
    fake_server server = {
        .talk = talk_queue_only, .context = &requests, .is_distlite = true};

    int64_t start = dl_now();
    check_get(&server, IMPATIENCE, DL_TIMEOUT, false);
    CHECK(dl_now() - start >= IMPATIENCE);
    CHECK(dl_now() - start < 2 * IMPATIENCE + CHECK_SLACK);
    CHECK(atomic_load(&requests) < 40);
}

static void
expect_cancel(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_CANCEL_WAIT, &request));
    CHECK_EQUAL(request.is_checked, peer->server->is_distlite);
}

/* A wait for a key that is not there, until it is cancelled. */
static void
talk_until_cancelled(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    if (peer->server->is_distlite) {
        expect_get(peer);
        FAKE_SEND(peer, ABSENT);
    }
    expect_wait(peer);
    expect_cancel(peer);
}

static void
talk_timeout(fake_peer *peer)
{
    talk_until_cancelled(peer);
    fake_send(peer, peer->server->is_distlite ? DL_LITERAL("\0\1") : DL_LITERAL("\1"));
    expect_no_more(peer);
}

static void
check_get_times_out(bool is_distlite)
{
    fake_server server = {.talk = talk_timeout, .is_distlite = is_distlite};

    int64_t start = dl_now();
    check_get(&server, IMPATIENCE, DL_TIMEOUT, false);
    CHECK(dl_now() - start >= IMPATIENCE);
    CHECK(dl_now() - start < 2 * IMPATIENCE + CHECK_SLACK);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 300ms, keys: /k");
}

CHECK_CASE(a_wait_that_times_out_is_cancelled)
{
    check_get_times_out(true);
    check_get_times_out(false);
}

/* The key comes while the cancellation is on its way. */
static void
talk_race(fake_peer *peer)
{
    bool is_distlite = peer->server->is_distlite;

    talk_until_cancelled(peer);
    fake_send(peer, is_distlite ? DL_LITERAL("\0\0\0\1") : DL_LITERAL("\0\1"));
    expect_get(peer);
    if (is_distlite) {
        FAKE_SEND(peer, "\0");
    }
    fake_send_blob(peer, DL_LITERAL("value"));
    expect_no_more(peer);
}

CHECK_CASE(a_wait_that_came_true_before_its_cancellation_is_a_success)
{
    fake_server torch = {.talk = talk_race};
    fake_server ours = {.talk = talk_race, .is_distlite = true};

    check_get(&torch, IMPATIENCE, DL_OK, false);
    check_get(&ours, IMPATIENCE, DL_OK, false);
}

CHECK_CASE(a_wait_that_looks_once_lets_torchs_server_decide)
{
    fake_server present = {.talk = talk_race}, absent = {.talk = talk_timeout};

    check_get(&present, 0, DL_OK, false);
    check_get(&absent, 0, DL_TIMEOUT, false);
}

static void
talk_half_an_end(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_get(peer);
    FAKE_SEND(peer, ABSENT);
    expect_wait(peer);
    FAKE_SEND(peer, "\0");
    expect_cancel(peer);
    FAKE_SEND(peer, "\0\0\1");
    expect_get(peer);
    FAKE_SEND(peer, "\0");
    fake_send_blob(peer, DL_LITERAL("value"));
    expect_no_more(peer);
}

CHECK_CASE(a_deadline_in_the_middle_of_a_reply_loses_nothing)
{
    fake_server server = {.talk = talk_half_an_end, .is_distlite = true};

    check_get(&server, IMPATIENCE, DL_OK, false);
}

static void
talk_deaf(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    while (fake_next(peer, &request)) {
    }
}

CHECK_SLOW_CASE(a_server_that_does_not_even_cancel_is_a_timeout)
{
    fake_server server = {.talk = talk_deaf};

    int64_t start = dl_now();
    check_get(&server, 100 * DL_MILLISECOND, DL_TIMEOUT, true);
    CHECK_TEXT(dl_last_error()->text, "wait timeout after 100ms, keys: /k");
    CHECK(dl_now() - start >= DL_ANSWER_GRACE);
    CHECK(dl_now() - start < DL_ANSWER_GRACE + DL_SECOND + CHECK_SLACK);
}

static void
talk_half_a_cancellation(fake_peer *peer)
{
    talk_until_cancelled(peer);
    fake_send(peer, peer->server->is_distlite ? DL_LITERAL("\0\0") : DL_LITERAL("\0"));
    expect_no_more(peer);
}

CHECK_SLOW_CASE(nothing_is_sent_behind_a_cancellation_that_is_not_answered)
{
    fake_server torch = {.talk = talk_half_a_cancellation};
    fake_server ours = {.talk = talk_half_a_cancellation, .is_distlite = true};

    check_get(&torch, IMPATIENCE, DL_TIMEOUT, true);
    check_get(&ours, IMPATIENCE, DL_TIMEOUT, true);
}

CHECK_SLOW_CASE(an_answer_has_its_grace_whatever_the_timeout)
{
    fake_server server = {.talk = talk_deaf};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_NUM_KEYS, MS(0));

    int64_t start = dl_now();
    CHECK_STATUS(dl_tcp_call_once(connection, &call), DL_TIMEOUT);
    CHECK(dl_now() - start >= DL_ANSWER_GRACE);
    CHECK(dl_now() - start < DL_ANSWER_GRACE + DL_SECOND + CHECK_SLACK);
    finish(&server, connection);
}

/* Interrupts the client while it waits. */
static void
talk_of_an_interrupt(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_next(peer, &request));
    fake_interrupt_after(120 * DL_MILLISECOND);
    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(a_wait_can_be_interrupted)
{
    fake_server server = {.talk = talk_of_an_interrupt};

    check_get(&server, PATIENCE, DL_INTERRUPTED, true);
    CHECK(dl_now() - atomic_load(&fake_interrupt_at) < FAKE_INTERRUPT_SLACK);
}

static void
talk_reply(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_next(peer, &request));
    fake_send(peer, *(dl_bytes *)peer->server->context);
    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(unexpected_replies_to_a_wait_are_errors)
{
    dl_bytes reply = DL_LITERAL("\7");
    fake_server server = {.talk = talk_reply, .context = &reply};
    dl_bytes cancelled = DL_LITERAL("\1");
    fake_server early = {.talk = talk_reply, .context = &cancelled};

    check_get(&server, PATIENCE, DL_PROTOCOL, true);
    CHECK_TEXT(dl_last_error()->text, "Stop_waiting response is expected");
    check_get(&early, PATIENCE, DL_PROTOCOL, true);
    CHECK_TEXT(dl_last_error()->text, "Stop_waiting response is expected");
}

CHECK_CASE(unexpected_replies_to_a_check_are_errors)
{
    dl_bytes reply = DL_LITERAL("\7");
    fake_server server = {.talk = talk_reply, .context = &reply};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_CHECK, SOON);

    CHECK_STATUS(dl_tcp_call_once(connection, &call), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "ready or not_ready response expected");
    finish(&server, connection);
}

static void
talk_barrier(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_BARRIER, &request));
    CHECK_BYTES(request.key, "/k");
    CHECK_EQUAL(request.number, 3);
    expect_cancel(peer);
    FAKE_SEND(peer, "\1");
    expect_no_more(peer);
}

CHECK_CASE(a_barrier_that_times_out_names_the_bare_key)
{
    fake_server server = {.talk = talk_barrier};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_BARRIER, MS(100));

    call.request.number = 3;
    CHECK_STATUS(dl_tcp_call_once(connection, &call), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text, "barrier timeout after 100ms, key: k");
    CHECK(connection->is_clean);
    finish(&server, connection);
}

static void
expect_pop(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_expect(peer, DL_OP_QUEUE_POP, &request));
    CHECK_BYTES(request.key, "/k");
}

static void
talk_pop(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_pop(peer);
    fake_send_number(peer, 0);
    expect_wait(peer);
    FAKE_SEND(peer, "\0");
    /* Another client was faster. */
    expect_pop(peer);
    fake_send_number(peer, 0);
    expect_wait(peer);
    FAKE_SEND(peer, "\0");
    expect_pop(peer);
    fake_send_number(peer, 3);
    fake_send_blob(peer, DL_LITERAL("item"));
    expect_no_more(peer);
}

CHECK_CASE(a_blocking_pop_goes_on_until_it_wins)
{
    fake_server server = {.talk = talk_pop};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_QUEUE_POP, SOON);
    dl_buffer value = {0};

    call.reply.values = &value;
    call.request.is_blocking = true;
    CHECK_OK(dl_tcp_call_once(connection, &call));
    CHECK_BYTES(dl_buffer_bytes(&value), "item");
    dl_buffer_fini(&value);
    finish(&server, connection);
}

/* Another client was notified of the item, and has stopped. */
static void
talk_untold_item(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_pop(peer);
    fake_send_number(peer, 0);
    expect_wait(peer);
    expect_cancel(peer);
    fake_send(peer, DL_LITERAL("\1"));
    expect_pop(peer);
    fake_send_number(peer, 1);
    fake_send_blob(peer, DL_LITERAL("item"));
    expect_no_more(peer);
}

static void
check_untold_item(int64_t limit)
{
    fake_server server = {.talk = talk_untold_item};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_QUEUE_POP, dl_deadline_after(limit));
    dl_buffer value = {0};

    call.reply.values = &value;
    call.request.is_blocking = true;
    CHECK_OK(dl_tcp_call_once(connection, &call));
    CHECK_BYTES(dl_buffer_bytes(&value), "item");
    dl_buffer_fini(&value);
    finish(&server, connection);
}

CHECK_CASE(a_blocking_pop_polls_for_items_without_a_notification)
{
    check_untold_item(-1);
    check_untold_item(IMPATIENCE);
}

CHECK_CASE(a_pop_that_does_not_block_reports_an_empty_queue)
{
    dl_bytes reply = DL_LITERAL("\0\0\0\0\0\0\0\0");
    fake_server server = {.talk = talk_reply, .context = &reply};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_QUEUE_POP, SOON);

    CHECK_STATUS(dl_tcp_call_once(connection, &call), DL_QUEUE_EMPTY);
    CHECK_TEXT(dl_last_error()->text, "queue is empty");
    CHECK(connection->is_clean);
    finish(&server, connection);
}

static void
talk_greeting_only(fake_peer *peer)
{
    CHECK(fake_greet(peer));
    expect_no_more(peer);
}

CHECK_CASE(a_legacy_server_is_not_asked_for_queues)
{
    const dl_opcode ops[] = {DL_OP_QUEUE_PUSH, DL_OP_QUEUE_POP, DL_OP_QUEUE_LEN};
    fake_server server = {.talk = talk_greeting_only};
    dl_connection *connection = greet(&server);

    for (int i = 0; i < 3; i++) {
        dl_tcp_call call = call_of(ops[i], SOON);
        call.is_legacy = true;
        CHECK_STATUS(dl_tcp_call_once(connection, &call), DL_UNSUPPORTED);
        CHECK_TEXT(dl_last_error()->text,
                   "queues not implemented on legacy TCPStore backend");
        CHECK(connection->is_clean);
        CHECK(!connection->may_be_done);
    }
    finish(&server, connection);
}

static void
talk_many(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_LIST_KEYS, &request));
    fake_send_number(peer, 3);
    fake_send_blob(peer, DL_LITERAL("/a"));
    fake_send_blob(peer, DL_LITERAL("init/"));
    fake_send_blob(peer, DL_LITERAL("/"));
    expect_no_more(peer);
}

CHECK_CASE(a_listing_is_read_whole)
{
    fake_server server = {.talk = talk_many};
    dl_connection *connection = greet(&server);
    dl_tcp_call call = call_of(DL_OP_LIST_KEYS, SOON);
    dl_buffer names = {0};

    call.reply.values = &names;
    CHECK_OK(dl_tcp_call_once(connection, &call));
    CHECK_EQUAL(call.reply.number, 3);
    CHECK_BYTES(dl_buffer_bytes(&names), "\2\0\0\0\0\0\0\0/a\5\0\0\0\0\0\0\0init/"
                                         "\1\0\0\0\0\0\0\0/");
    CHECK(connection->is_clean);
    dl_buffer_fini(&names);
    finish(&server, connection);
}

CHECK_CASE(the_calls_that_change_something_are_these)
{
    const dl_opcode changes[] = {DL_OP_SET,       DL_OP_ADD,        DL_OP_APPEND,
                                 DL_OP_MULTI_SET, DL_OP_DELETE_KEY, DL_OP_COMPARE_SET,
                                 DL_OP_BARRIER,   DL_OP_QUEUE_PUSH, DL_OP_QUEUE_POP};
    const dl_opcode looks[] = {DL_OP_GET,      DL_OP_CHECK,     DL_OP_WAIT,
                               DL_OP_NUM_KEYS, DL_OP_MULTI_GET, DL_OP_QUEUE_LEN,
                               DL_OP_LIST_KEYS};

    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        CHECK(dl_request_kinds[changes[i]].is_change);
    }
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        CHECK(!dl_request_kinds[looks[i]].is_change);
    }
}
