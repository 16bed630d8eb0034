/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/connection_pool.h"

#include <fcntl.h>
#include <netinet/in.h>

#include "fakes/server.h"
#include "ranks.h"
#include "store/tcp/server_variable.h"

static void
talk_politely(fake_peer *peer)
{
    dl_store_request request;

    if (!fake_greet(peer)) {
        return;
    }
    while (fake_next(peer, &request)) {
        CHECK_EQUAL(request.op, DL_OP_NUM_KEYS);
        fake_send_number(peer, peer->number);
    }
}

static void
begin(fake_server *server, dl_connection_pool *pool)
{
    fake_start(server, 0);
    CHECK_OK(dl_connection_pool_init(pool, "127.0.0.1", server->port, NULL, NULL));
}

static void
end(fake_server *server, dl_connection_pool *pool)
{
    dl_connection_pool_close(pool);
    dl_connection_pool_fini(pool, false);
    fake_stop(server);
}

static dl_connection *
open_one(dl_connection_pool *pool)
{
    dl_connection *connection = NULL;

    CHECK_OK(dl_connection_pool_open(pool, NULL, NULL, SOON, &connection));
    return connection;
}

CHECK_CASE(the_connection_used_last_goes_out_first)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;

    begin(&server, &pool);
    CHECK(dl_connection_pool_take(&pool, false) == NULL);
    dl_connection *one = open_one(&pool), *two = open_one(&pool);
    CHECK(dl_connection_pool_take(&pool, false) == NULL);
    dl_connection_pool_give(&pool, one);
    dl_connection_pool_give(&pool, two);
    CHECK(dl_connection_pool_take(&pool, true) == two);
    CHECK(dl_connection_pool_take(&pool, true) == one);
    CHECK(dl_connection_pool_take(&pool, true) == NULL);
    dl_connection_pool_give(&pool, two);
    dl_connection_pool_give(&pool, one);
    end(&server, &pool);
}

CHECK_CASE(a_few_idle_ones_are_kept)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;
    dl_connection *opened[DL_POOL_IDLE_LIMIT + 3];

    begin(&server, &pool);
    for (int i = 0; i < DL_POOL_IDLE_LIMIT + 3; i++) {
        opened[i] = open_one(&pool);
    }
    for (int i = 0; i < DL_POOL_IDLE_LIMIT + 3; i++) {
        dl_connection_pool_give(&pool, opened[i]);
    }
    for (int i = DL_POOL_IDLE_LIMIT - 1; i >= 0; i--) {
        CHECK(dl_connection_pool_take(&pool, true) == opened[i]);
    }
    CHECK(dl_connection_pool_take(&pool, true) == NULL);
    for (int i = 0; i < DL_POOL_IDLE_LIMIT; i++) {
        dl_connection_pool_give(&pool, opened[i]);
    }
    dl_connection_pool_drop_idle(&pool);
    CHECK(dl_connection_pool_take(&pool, true) == NULL);
    end(&server, &pool);
}

CHECK_CASE(a_spoilt_connection_is_not_kept)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;

    begin(&server, &pool);
    dl_connection *connection = open_one(&pool);
    connection->is_clean = false;
    dl_connection_pool_give(&pool, connection);
    CHECK(dl_connection_pool_take(&pool, false) == NULL);
    end(&server, &pool);
}

/* Greets, and closes when the context says so. */
static void
talk_until_told(fake_peer *peer)
{
    atomic_int *keep = peer->server->context;

    CHECK(fake_greet(peer));
    while (peer->number >= atomic_load(keep)) {
        usleep(1000);
    }
}

static void
await_stale(const dl_connection *connection)
{
    dl_deadline deadline = SOON;

    while (!dl_socket_is_stale(connection->fd)) {
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
}

CHECK_CASE(a_caller_that_checks_gets_no_closed_connection)
{
    atomic_int closed = 0;
    fake_server server = {.talk = talk_until_told, .context = &closed};
    dl_connection_pool pool;

    begin(&server, &pool);
    dl_connection *first = open_one(&pool), *second = open_one(&pool);
    dl_connection *third = open_one(&pool);
    dl_connection_pool_give(&pool, third);
    dl_connection_pool_give(&pool, second);
    dl_connection_pool_give(&pool, first);
    atomic_store(&closed, 2);
    await_stale(first);
    await_stale(second);
    /* The careless one finds out by itself. */
    CHECK(dl_connection_pool_take(&pool, false) == first);
    dl_connection_pool_give(&pool, first);
    CHECK(dl_connection_pool_take(&pool, true) == third);
    CHECK(dl_connection_pool_take(&pool, true) == NULL);
    dl_connection_pool_give(&pool, third);
    atomic_store(&closed, 3);
    end(&server, &pool);
}

typedef struct blocked_call {
    pthread_t thread;
    dl_connection_pool *pool;
    dl_status status;
    atomic_bool is_running;
} blocked_call;

static void *
read_for_ever(void *argument)
{
    blocked_call *call = argument;
    dl_connection *connection = open_one(call->pool);
    uint8_t byte;

    atomic_store(&call->is_running, true);
    call->status = dl_connection_take_u8(connection, SOON, &byte);
    dl_connection_pool_give(call->pool, connection);
    return NULL;
}

static void *
open_for_ever(void *argument)
{
    blocked_call *call = argument;
    dl_connection *connection;

    atomic_store(&call->is_running, true);
    call->status = dl_connection_pool_open(call->pool, NULL, NULL, SOON, &connection);
    return NULL;
}

static void
await_running(blocked_call *call)
{
    dl_deadline deadline = SOON;

    while (!atomic_load(&call->is_running)) {
        CHECK(!dl_deadline_passed(deadline));
        usleep(1000);
    }
    /* Let it come to the read. */
    usleep(30000);
}

CHECK_CASE(closing_wakes_calls_and_refuses_later_ones)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;
    blocked_call call = {.pool = &pool};
    dl_connection *connection = NULL;

    begin(&server, &pool);
    CHECK(pthread_create(&call.thread, NULL, read_for_ever, &call) == 0);
    await_running(&call);
    int64_t start = dl_now();
    dl_connection_pool_close(&pool);
    CHECK(pthread_join(call.thread, NULL) == 0);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    CHECK_EQUAL(call.status, DL_NETWORK);
    CHECK(dl_connection_pool_take(&pool, false) == NULL);
    CHECK_STATUS(dl_connection_pool_open(&pool, NULL, NULL, SOON, &connection),
                 DL_CANCELLED);
    end(&server, &pool);
}

static void
talk_deaf(fake_peer *peer)
{
    dl_store_request request;

    while (fake_next(peer, &request)) {
    }
}

CHECK_CASE(closing_ends_a_handshake)
{
    fake_server server = {.talk = talk_deaf};
    dl_connection_pool pool;
    blocked_call call = {.pool = &pool};

    begin(&server, &pool);
    CHECK(pthread_create(&call.thread, NULL, open_for_ever, &call) == 0);
    await_running(&call);
    int64_t start = dl_now();
    dl_connection_pool_close(&pool);
    CHECK(pthread_join(call.thread, NULL) == 0);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    CHECK(call.status == DL_NETWORK || call.status == DL_CANCELLED);
    end(&server, &pool);
}

static void
use_pool(int rank, int size, void *context)
{
    dl_connection_pool *pool = context;
    dl_store_request request = {.op = DL_OP_NUM_KEYS};

    for (int i = 0; i < 50; i++) {
        dl_connection *connection = dl_connection_pool_take(pool, (rank + i) % 2 == 0);
        int64_t number = -1;
        if (connection == NULL) {
            connection = open_one(pool);
        }
        CHECK_OK(dl_connection_ask(connection, &request, DL_LITERAL("/"), SOON));
        CHECK_OK(dl_connection_take_i64(connection, SOON, &number));
        dl_connection_end_reply(connection);
        CHECK(number >= 0 && number < FAKE_CONNECTIONS_LIMIT);
        dl_connection_pool_give(pool, connection);
    }
    CHECK(size > 0);
}

CHECK_CASE(threads_share_a_pool)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;

    begin(&server, &pool);
    /* No more than are kept idle: no connection is ever closed. */
    dl_run_ranks(DL_POOL_IDLE_LIMIT, use_pool, &pool);
    CHECK(atomic_load(&server.accepted) <= DL_POOL_IDLE_LIMIT);
    end(&server, &pool);
}

CHECK_CASE(the_ends_of_a_connection_are_known)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;
    dl_address local, peer;

    begin(&server, &pool);
    CHECK_EQUAL(dl_connection_pool_addresses(&pool, &local, &peer), -1);
    dl_connection *connection = open_one(&pool);
    CHECK_EQUAL(dl_connection_pool_addresses(&pool, &local, &peer), connection->fd);
    CHECK_EQUAL(ntohs(peer.socket.ip4.sin_port), server.port);
    CHECK_EQUAL(ntohs(local.socket.ip4.sin_port), dl_socket_port(connection->fd));
    dl_connection_pool_give(&pool, connection);
    CHECK(dl_connection_pool_addresses(&pool, &local, &peer) >= 0);
    end(&server, &pool);
}

CHECK_CASE(a_child_leaves_its_parents_connections_alone)
{
    fake_server server = {.talk = talk_politely};
    dl_connection_pool pool;
    int status;

    begin(&server, &pool);
    dl_connection *idle = open_one(&pool), *busy = open_one(&pool);
    int numbers[] = {idle->fd, busy->fd};
    dl_connection_pool_give(&pool, idle);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* Closed by the fork, and taken by something else since. */
        CHECK(fcntl(numbers[0], F_GETFD) < 0 && fcntl(numbers[1], F_GETFD) < 0);
        CHECK(dup2(1, numbers[0]) >= 0 && dup2(1, numbers[1]) >= 0);
        dl_connection_pool_fini(&pool, true);
        CHECK(fcntl(numbers[0], F_GETFD) >= 0 && fcntl(numbers[1], F_GETFD) >= 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!dl_socket_is_stale(numbers[0]));
    dl_connection_pool_give(&pool, busy);
    end(&server, &pool);
}

static void
begin_with_standby(fake_server *server, fake_server *standby, dl_connection_pool *pool)
{
    char text[64];

    fake_start(standby, 0);
    fake_start(server, 0);
    snprintf(text, sizeof text, "127.0.0.1:%u@127.0.0.1:%u", standby->port,
             server->port);
    setenv(DL_STANDBY_VARIABLE, text, 1);
    CHECK_OK(dl_connection_pool_init(pool, "127.0.0.1", server->port, NULL, NULL));
}

static void
open_and_drop(dl_connection_pool *pool)
{
    dl_connection_pool_give(pool, open_one(pool));
    dl_connection_pool_drop_idle(pool);
}

CHECK_CASE(a_lost_server_is_looked_for_at_the_standby)
{
    fake_server server = {
        .talk = talk_politely, .is_distlite = true, .identity = "the same"};
    fake_server standby = server;
    dl_connection_pool pool;

    begin_with_standby(&server, &standby, &pool);
    open_and_drop(&pool);
    CHECK_EQUAL(atomic_load(&standby.accepted), 0);
    fake_stop(&server);
    open_and_drop(&pool);
    CHECK_EQUAL(atomic_load(&standby.accepted), 1);
    /* From now on first there, and back again. */
    fake_server again = {
        .talk = talk_politely, .is_distlite = true, .identity = "the same"};
    fake_start(&again, server.port);
    open_and_drop(&pool);
    CHECK_EQUAL(atomic_load(&standby.accepted), 2);
    fake_stop(&standby);
    open_and_drop(&pool);
    CHECK_EQUAL(atomic_load(&again.accepted), 1);
    end(&again, &pool);
}

CHECK_CASE(a_standby_that_is_another_server_is_refused)
{
    fake_server server = {
        .talk = talk_politely, .is_distlite = true, .identity = "the first"};
    fake_server standby = {
        .talk = talk_politely, .is_distlite = true, .identity = "another"};
    dl_connection_pool pool;
    dl_connection *connection;

    begin_with_standby(&server, &standby, &pool);
    open_and_drop(&pool);
    fake_stop(&server);
    CHECK_STATUS(dl_connection_pool_open(&pool, NULL, NULL, SOON, &connection),
                 DL_MISMATCH);
    end(&standby, &pool);
}

static void
stay_silent(fake_peer *peer)
{
    uint8_t byte;

    while (read(peer->fd, &byte, 1) > 0) {
    }
}

CHECK_CASE(a_silent_server_leaves_time_for_the_standby)
{
    fake_server server = {.talk = stay_silent};
    fake_server standby = {.talk = talk_politely, .is_distlite = true};
    dl_connection_pool pool;
    dl_connection *connection;

    begin_with_standby(&server, &standby, &pool);
    CHECK_OK(dl_connection_pool_open(&pool, NULL, NULL,
                                     dl_deadline_after(4 * DL_SECOND), &connection));
    dl_connection_pool_give(&pool, connection);
    CHECK_EQUAL(atomic_load(&standby.accepted), 1);
    fake_stop(&server);
    end(&standby, &pool);
}

CHECK_CASE(allocations_may_fail)
{
    bool has_failed = true;
    int listening;

    /* The listener accepts nothing: a server's threads would allocate, too. */
    CHECK_OK(dl_socket_listen("127.0.0.1", 0, SOON, &listening));
    for (long number = 1; has_failed; number++) {
        dl_deadline deadline = dl_deadline_after(100 * DL_MILLISECOND);
        dl_connection_pool pool;
        dl_connection *connection;
        dl_check_fail_allocation_at(number);
        dl_status status = dl_connection_pool_init(
            &pool, "127.0.0.1", dl_socket_port(listening), NULL, NULL);
        if (status == DL_OK) {
            status = dl_connection_pool_open(&pool, NULL, NULL, deadline, &connection);
        }
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_TIMEOUT);
        dl_connection_pool_close(&pool);
        dl_connection_pool_fini(&pool, false);
    }
    dl_socket_close(listening);
}

CHECK_CASE(zeroed_memory_is_an_empty_pool)
{
    dl_connection_pool pool = {0};

    dl_connection_pool_close(&pool);
    dl_connection_pool_fini(&pool, false);
}
