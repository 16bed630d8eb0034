/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of calls whose connection is lost, seen through a store. */
#include "store/tcp/tcp_call.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "fakes/interrupts.h"
#include "fakes/server.h"
#include "ports.h"
#include "store/tcp/tcp_store.h"
#include "store_calls.h"

#define KEY DL_LITERAL("k")

/* A server that answers every request in the same way, and fails as the case
 * chooses. */
typedef struct script {
    atomic_int drops; /* so many requests cost their connection; negative: all */
    dl_bytes before;  /* what a dropped one gets to see first */
    bool is_rude;     /* a reset instead of an end */
    atomic_int requests;
    atomic_int goodbyes; /* connections that shall end after their next answer */
} script;

/* Ends the conversation with a reset, while the fake keeps its descriptor's number. */
static void
reset(fake_peer *peer)
{
    struct linger linger = {.l_onoff = 1};
    int spare = dup(0);

    CHECK(setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(dup2(spare, peer->fd) == peer->fd);
    close(spare);
}

static bool
take_one(atomic_int *count)
{
    int left = atomic_load(count);

    while (left > 0 && !atomic_compare_exchange_weak(count, &left, left - 1)) {
    }
    return left != 0;
}

/* The reply, with the status of a checked request in front of it. */
static dl_bytes
reply_to(dl_opcode op)
{
    switch (op) {
    case DL_OP_GET:
    case DL_OP_MULTI_GET:
    case DL_OP_COMPARE_SET:
        return DL_LITERAL("\0\5\0\0\0\0\0\0\0value");
    case DL_OP_CHECK:
    case DL_OP_WAIT:
    case DL_OP_BARRIER:
        return DL_LITERAL("\0\0");
    case DL_OP_CANCEL_WAIT:
        return DL_LITERAL("\0\1");
    case DL_OP_QUEUE_POP:
        return DL_LITERAL("\0\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0value");
    case DL_OP_LIST_KEYS:
        return DL_LITERAL("\0\0\0\0\0\0\0\0\0");
    case DL_OP_ADD:
    case DL_OP_NUM_KEYS:
    case DL_OP_DELETE_KEY:
    case DL_OP_QUEUE_LEN:
        return DL_LITERAL("\0\1\0\0\0\0\0\0\0");
    default:
        return DL_LITERAL("\0");
    }
}

static void
answer(fake_peer *peer, const dl_store_request *request)
{
    dl_bytes reply = reply_to(request->op);

    if (request->op == DL_OP_PING) {
        fake_pong(peer, request, 0);
    } else if (request->is_checked) {
        fake_send(peer, reply);
    } else {
        fake_send(peer, (dl_bytes){reply.data + 1, reply.size - 1});
    }
}

static void
talk_by_script(fake_peer *peer)
{
    script *script = peer->server->context;
    dl_store_request request;

    if (!fake_greet(peer)) {
        return;
    }
    while (fake_next(peer, &request)) {
        atomic_fetch_add(&script->requests, 1);
        if (take_one(&script->drops)) {
            fake_send(peer, script->before);
            if (script->is_rude) {
                reset(peer);
            }
            return;
        }
        /* Before the answer, after which the case may want another one. */
        bool is_last = take_one(&script->goodbyes);
        answer(peer, &request);
        if (is_last) {
            return;
        }
    }
}

static dl_store *
make_client(uint16_t port)
{
    const dl_tcp_store_options options = {.host = "127.0.0.1",
                                          .port = port,
                                          .world_size = -1,
                                          .listen_fd = -1,
                                          .use_libuv = true,
                                          .timeout = 15 * DL_SECOND};
    dl_store *store = NULL;

    CHECK_OK(dl_tcp_store_new(&options, SOON, &store));
    return store;
}

static dl_store *
begin_as(fake_server *server, script *script, bool is_distlite)
{
    server->talk = talk_by_script;
    server->is_distlite = is_distlite;
    server->context = script;
    fake_start(server, reserve_port());
    return make_client(server->port);
}

static dl_store *
begin(fake_server *server, script *script)
{
    return begin_as(server, script, true);
}

static void
end(fake_server *server, dl_store *store)
{
    dl_store_unref(store);
    fake_stop(server);
}

static dl_status
see(void *context, dl_bytes key)
{
    (void)context;
    (void)key;
    return DL_OK;
}

/* Any call, by the request it makes. */
static dl_status
call(dl_store *store, dl_opcode op, dl_deadline deadline)
{
    dl_buffer value = {0};
    dl_status status = DL_INTERNAL;
    const dl_bytes key = KEY;
    int64_t number;
    bool flag;

    switch (op) {
    case DL_OP_SET:
        return dl_store_set(store, KEY, KEY, deadline);
    case DL_OP_ADD:
        return dl_store_add(store, KEY, 1, &number, deadline);
    case DL_OP_CHECK:
        return dl_store_check(store, &key, 1, &flag, deadline);
    case DL_OP_WAIT:
        return dl_store_wait(store, &key, 1, deadline);
    case DL_OP_NUM_KEYS:
        return dl_store_num_keys(store, &number, deadline);
    case DL_OP_DELETE_KEY:
        return dl_store_delete_key(store, KEY, &flag, deadline);
    case DL_OP_APPEND:
        return dl_store_append(store, KEY, KEY, deadline);
    case DL_OP_MULTI_SET:
        return dl_store_multi_set(store, &key, &key, 1, deadline);
    case DL_OP_QUEUE_PUSH:
        return dl_store_queue_push(store, KEY, KEY, deadline);
    case DL_OP_QUEUE_LEN:
        return dl_store_queue_len(store, KEY, &number, deadline);
    case DL_OP_LIST_KEYS:
        return dl_store_list_keys(store, see, NULL, deadline);
    case DL_OP_BARRIER:
        return dl_store_barrier(store, KEY, 2, deadline);
    case DL_OP_GET:
        status = dl_store_get(store, KEY, &value, deadline);
        break;
    case DL_OP_MULTI_GET:
        status = dl_store_multi_get(store, &key, 1, &value, deadline);
        break;
    case DL_OP_COMPARE_SET:
        status = dl_store_compare_set(store, KEY, KEY, KEY, &value, deadline);
        break;
    case DL_OP_QUEUE_POP:
        status = dl_store_queue_pop(store, KEY, true, &value, deadline);
        break;
    default:
        DL_CHECK_FAIL("no call makes request %d", op);
    }
    if (status == DL_OK) {
        CHECK_BYTES(dl_buffer_bytes(&value), "value");
    }
    dl_buffer_fini(&value);
    return status;
}

static const dl_opcode looks[] = {DL_OP_GET,      DL_OP_CHECK,     DL_OP_WAIT,
                                  DL_OP_NUM_KEYS, DL_OP_MULTI_GET, DL_OP_QUEUE_LEN,
                                  DL_OP_LIST_KEYS};
#define LOOKS_COUNT (sizeof looks / sizeof *looks)

static const dl_opcode changes[] = {
    DL_OP_SET,        DL_OP_DELETE_KEY,  DL_OP_MULTI_SET, DL_OP_ADD,    DL_OP_APPEND,
    DL_OP_QUEUE_PUSH, DL_OP_COMPARE_SET, DL_OP_QUEUE_POP, DL_OP_BARRIER};
#define CHANGES_COUNT (sizeof changes / sizeof *changes)

static void
check_repeated(fake_server *server, dl_store *store, const dl_opcode *ops, size_t count)
{
    script *script = server->context;
    int accepted = atomic_load(&server->accepted);

    for (size_t i = 0; i < count; i++) {
        atomic_store(&script->drops, 1);
        atomic_store(&script->requests, 0);
        CHECK_OK(call(store, ops[i], SOON));
        CHECK(atomic_load(&script->requests) >= 2);
    }
    CHECK_EQUAL(atomic_load(&server->accepted), accepted + (int)count);
}

CHECK_CASE(a_server_of_ours_is_asked_again)
{
    for (int is_rude = 0; is_rude < 2; is_rude++) {
        fake_server server = {0};
        script script = {.is_rude = is_rude};
        dl_store *store = begin(&server, &script);
        check_repeated(&server, store, looks, LOOKS_COUNT);
        check_repeated(&server, store, changes, CHANGES_COUNT);
        end(&server, store);
    }
}

CHECK_CASE(a_server_of_torchs_is_asked_again_for_what_changes_nothing)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin_as(&server, &script, false);

    check_repeated(&server, store, looks, LOOKS_COUNT);
    end(&server, store);
}

/* Keeps the id of each connection's slot, and loses the reply to the second change. */
static void
talk_slots(fake_peer *peer)
{
    dl_slot *slots = peer->server->context;
    dl_store_request request;

    CHECK(fake_greet(peer));
    slots[peer->number] = peer->slot;
    for (int i = 0; fake_next(peer, &request); i++) {
        if (peer->number == 0 && i == 2) {
            return;
        }
        answer(peer, &request);
    }
}

CHECK_CASE(a_change_is_repeated_in_its_slot)
{
    dl_slot slots[FAKE_CONNECTIONS_LIMIT] = {0};
    fake_server server = {.talk = talk_slots, .is_distlite = true, .context = slots};

    fake_start(&server, 0);
    dl_store *store = make_client(server.port);
    CHECK_OK(call(store, DL_OP_ADD, SOON));
    CHECK_OK(call(store, DL_OP_GET, SOON));
    CHECK_OK(call(store, DL_OP_ADD, SOON));
    CHECK_OK(call(store, DL_OP_ADD, SOON));
    end(&server, store);
    CHECK_EQUAL(atomic_load(&server.accepted), 2);
    CHECK(memcmp(slots[0].id, slots[1].id, sizeof slots[0].id) == 0);
    CHECK_EQUAL(slots[0].sequence, 1);
    CHECK_EQUAL(slots[1].sequence, 2);
}

CHECK_CASE(a_server_that_has_forgotten_the_client_leaves_it_unknown)
{
    fake_server server = {.forgets = true};
    script script = {0};
    dl_store *store = begin(&server, &script);

    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        atomic_store(&script.drops, 1);
        atomic_store(&script.requests, 0);
        CHECK_STATUS(call(store, changes[i], SOON), DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "has forgotten this client");
        CHECK_CONTAINS(dl_last_error()->text, "is unknown");
        CHECK_EQUAL(atomic_load(&script.requests), 1);
        CHECK_OK(call(store, changes[i], SOON));
    }
    end(&server, store);
}

CHECK_CASE(another_server_on_the_port_is_asked_for_nothing)
{
    for (size_t i = 0; i < CHANGES_COUNT + LOOKS_COUNT; i++) {
        fake_server first = {0}, second;
        script script = {0};
        dl_store *store = begin_as(&first, &script, i % 3 != 0);
        dl_opcode op = i < CHANGES_COUNT ? changes[i] : looks[i - CHANGES_COUNT];
        fake_stop(&first);
        second = (fake_server){.talk = talk_by_script,
                               .is_distlite = i % 3 != 1,
                               .context = &script,
                               .identity = "another"};
        fake_start(&second, first.port);
        atomic_store(&script.requests, 0);
        CHECK_STATUS(call(store, op, SOON), DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "is another server than the one this");
        CHECK_EQUAL(atomic_load(&script.requests), 0);
        end(&second, store);
    }
}

CHECK_CASE(half_a_reply_does_not_count)
{
    fake_server server = {0};
    script script = {.drops = 1, .before = DL_LITERAL("\0\5\0\0\0\0\0\0\0va")};
    dl_store *store = begin(&server, &script);

    CHECK_OK(call(store, DL_OP_GET, SOON));
    atomic_store(&script.drops, 1);
    CHECK_OK(call(store, DL_OP_MULTI_GET, SOON));
    end(&server, store);
}

CHECK_CASE(changes_at_a_server_of_torchs_say_that_their_outcome_is_unknown)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin_as(&server, &script, false);
    char expected[256];

    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        atomic_store(&script.drops, 1);
        atomic_store(&script.requests, 0);
        CHECK_STATUS(call(store, changes[i], SOON), DL_NETWORK);
        snprintf(
            expected, sizeof expected,
            "Failed to recv, got 0 bytes. Connection was likely closed. Did the "
            "remote server shutdown or crash? (127.0.0.1:%u). The outcome of %s is "
            "unknown: the server may or may not have done it.",
            server.port, dl_request_kinds[changes[i]].name);
        CHECK_TEXT(dl_last_error()->text, expected);
        CHECK(atomic_load(&script.requests) <= 2); /* a PING may follow */
        /* The store is not harmed. */
        CHECK_OK(call(store, changes[i], SOON));
    }
    end(&server, store);
}

/* Returns once the client's socket has received the end of its connection. */
static void
await_goodbye(const fake_server *server)
{
    const fake_peer *last = &server->peers[atomic_load(&server->accepted) - 1];
    dl_deadline deadline = SOON;
    struct tcp_info info = {0};

    while (info.tcpi_state != TCP_FIN_WAIT2) {
        socklen_t size = sizeof info;
        CHECK(getsockopt(last->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
}

CHECK_CASE(a_connection_closed_while_idle_is_simply_replaced)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);

    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        atomic_store(&script.goodbyes, 1);
        CHECK_OK(call(store, DL_OP_SET, SOON));
        await_goodbye(&server);
        CHECK_OK(call(store, changes[i], MS(0)));
    }
    for (size_t i = 0; i < LOOKS_COUNT; i++) {
        atomic_store(&script.goodbyes, 1);
        CHECK_OK(call(store, DL_OP_SET, SOON));
        await_goodbye(&server);
        CHECK_OK(call(store, looks[i], MS(0)));
    }
    end(&server, store);
}

CHECK_CASE(a_server_restarted_on_its_port_is_found_again)
{
    fake_server first = {0}, second;
    script script = {0};
    dl_store *store = begin(&first, &script);

    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(call(store, DL_OP_SET, SOON));
        fake_stop(&first);
        second = (fake_server){
            .talk = talk_by_script, .is_distlite = true, .context = &script};
        fake_start(&second, first.port);
        CHECK_OK(call(store, i == 0 ? DL_OP_GET : DL_OP_ADD, SOON));
        fake_stop(&second);
        first = (fake_server){
            .talk = talk_by_script, .is_distlite = true, .context = &script};
        fake_start(&first, second.port);
    }
    end(&first, store);
}

CHECK_CASE(a_lost_server_is_reported_with_the_first_cause)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);
    char expected[512];

    CHECK_OK(call(store, DL_OP_SET, SOON));
    fake_stop(&server);
    int64_t start = dl_now();
    CHECK_STATUS(call(store, DL_OP_GET, MS(300)), DL_NETWORK);
    CHECK(dl_now() - start >= 300 * DL_MILLISECOND);
    CHECK(dl_now() - start < 700 * DL_MILLISECOND + CHECK_SLACK);
    snprintf(
        expected, sizeof expected,
        "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash? (127.0.0.1:%u). Reconnecting failed: The client "
        "socket has timed out after ",
        server.port);
    CHECK_CONTAINS(dl_last_error()->text, expected);
    CHECK_CONTAINS(dl_last_error()->text, "Connection refused (errno 111)");
    /* Nothing was sent this time. */
    CHECK_STATUS(call(store, DL_OP_ADD, MS(100)), DL_NETWORK);
    CHECK(strstr(dl_last_error()->text, "unknown") == NULL);
    CHECK_STATUS(call(store, DL_OP_GET, MS(0)), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "has timed out after 0ms");
    dl_store_unref(store);
}

CHECK_SLOW_CASE(a_server_that_is_gone_is_not_waited_for_long)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);

    fake_stop(&server);
    int64_t start = dl_now();
    CHECK_STATUS(call(store, DL_OP_WAIT, dl_deadline_after(-1)), DL_NETWORK);
    CHECK(dl_now() - start >= DL_TCP_STORE_PATIENCE);
    CHECK(dl_now() - start < DL_TCP_STORE_PATIENCE + DL_SECOND + CHECK_SLACK);
    /* The text has the time for which the call was tried, not its whole limit. */
    CHECK_STATUS(call(store, DL_OP_GET, dl_deadline_after(60 * DL_SECOND)), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "has timed out after 5000ms");
    dl_store_unref(store);
}

static void
talk_deaf(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    while (fake_next(peer, &request)) {
    }
}

CHECK_SLOW_CASE(no_answer_to_what_may_not_be_repeated_leaves_it_unknown)
{
    fake_server server = {.talk = talk_deaf, .is_distlite = true};
    char expected[256];

    fake_start(&server, 0);
    dl_store *store = make_client(server.port);
    CHECK_STATUS(call(store, DL_OP_ADD, MS(0)), DL_TIMEOUT);
    snprintf(
        expected, sizeof expected,
        "the store's server at 127.0.0.1:%u does not answer. The outcome of add is "
        "unknown: the server may or may not have done it.",
        server.port);
    CHECK_TEXT(dl_last_error()->text, expected);
    CHECK_EQUAL(atomic_load(&server.accepted), 1);
    end(&server, store);
}

CHECK_CASE(a_call_that_kills_every_connection_is_given_up)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);

    atomic_store(&script.drops, -1);
    CHECK_STATUS(call(store, DL_OP_LIST_KEYS, SOON), DL_NETWORK);
    CHECK(atomic_load(&script.requests) >= 3);
    CHECK(atomic_load(&script.requests) <= 6);
    CHECK(strstr(dl_last_error()->text, "Reconnecting failed") == NULL);
    CHECK(strstr(dl_last_error()->text, "unknown") == NULL);
    end(&server, store);
}

/* POP says empty; the WAIT that follows costs the connection. */
static void
talk_lost_wait(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_QUEUE_POP, &request));
    if (peer->number > 0) {
        answer(peer, &request);
        fake_next(peer, &request);
        return;
    }
    FAKE_SEND(peer, "\0\0\0\0\0\0\0\0\0");
    CHECK(fake_expect(peer, DL_OP_WAIT, &request));
}

CHECK_CASE(a_pop_that_only_waits_may_be_repeated)
{
    fake_server server = {.talk = talk_lost_wait, .is_distlite = true};

    fake_start(&server, 0);
    dl_store *store = make_client(server.port);
    CHECK_OK(call(store, DL_OP_QUEUE_POP, SOON));
    CHECK_EQUAL(atomic_load(&server.accepted), 2);
    end(&server, store);
}

CHECK_CASE(looking_for_a_lost_server_can_be_interrupted)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);

    fake_stop(&server);
    fake_interrupt_after(150 * DL_MILLISECOND);
    CHECK_INTERRUPTED(call(store, DL_OP_GET, SOON));
    dl_store_unref(store);
}

static void *
close_later(void *store)
{
    usleep(150000);
    dl_store_close(store);
    return NULL;
}

CHECK_CASE(closing_ends_the_search_for_a_lost_server)
{
    fake_server server = {0};
    script script = {0};
    dl_store *store = begin(&server, &script);
    pthread_t thread;

    fake_stop(&server);
    CHECK(pthread_create(&thread, NULL, close_later, store) == 0);
    int64_t start = dl_now();
    CHECK_STATUS(call(store, DL_OP_GET, SOON), DL_CLOSED);
    CHECK_TEXT(dl_last_error()->text, "this TCPStore was closed during the call");
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    CHECK(pthread_join(thread, NULL) == 0);
    dl_store_unref(store);
}

static void
talk_refusal(fake_peer *peer)
{
    dl_store_request request;

    CHECK(fake_greet(peer));
    CHECK(fake_expect(peer, DL_OP_ADD, &request));
    FAKE_SEND(peer, "\7\3\0\0\0\0\0\0\0no!");
}

CHECK_CASE(refused_requests_are_not_repeated)
{
    fake_server server = {.talk = talk_refusal, .is_distlite = true};

    fake_start(&server, 0);
    dl_store *store = make_client(server.port);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(call(store, DL_OP_ADD, SOON), DL_INVALID);
        CHECK_TEXT(dl_last_error()->text, "no!");
        CHECK_EQUAL(atomic_load(&server.accepted), i + 1);
    }
    end(&server, store);
}
