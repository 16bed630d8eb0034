/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server.h"

#ifndef DL_HAVE_LIBUV

#include <stddef.h>

const dl_server_ops *
dl_server_uv_ops(void)
{
    return NULL;
}

#else

#include <stdlib.h>
#include <uv.h>

#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/peer.h"

/* A uv_poll_t and not a uv_tcp_t: both servers share the code that reads and writes,
 * and its recv(2) and send(2) cost less than libuv's read(2) and write(2).  Besides, a
 * uv_tcp_t closes new connections when descriptors run out. */
typedef struct connection {
    uv_poll_t poll;
    dl_peer peer;
    int events; /* that libuv is set to report */
} connection;

struct dl_server {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    uv_async_t stop; /* the one handle that other threads touch */
    /* server thread only */
    uv_loop_t loop;
    uv_poll_t listening[DL_SERVER_ACCEPTORS]; /* for the acceptors */
    uv_timer_t pause;
    uv_timer_t wake;
    int64_t wake_at; /* when `wake` expires; INT64_MAX: never */
    uv_prepare_t before_sleep;
    uv_idle_t no_sleep;
    dl_acceptor acceptors[DL_SERVER_ACCEPTORS];
    dl_hub hub;
    uint8_t input[DL_PEER_INPUT_SIZE];
};

static dl_server *
server_of(const connection *client)
{
    return client->poll.loop->data;
}

static void
on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void
drop(connection *client)
{
    /* uv_close() stops polling the descriptor at once, so that it can be closed here;
     * the handle's memory is freed in the loop's next iteration. */
    uv_close((uv_handle_t *)&client->poll, on_closed);
    dl_socket_close(client->peer.fd);
    dl_peer_fini(&client->peer);
}

static void on_ready(uv_poll_t *handle, int error, int events);

/* Sets libuv to the events that the client wants now; drops the client unless
 * `is_alive`. */
static void
watch(connection *client, bool is_alive)
{
    int events = (dl_peer_wants_input(&client->peer) ? UV_READABLE : 0)
                 | (dl_peer_wants_room(&client->peer) ? UV_WRITABLE : 0);

    if (is_alive && events != client->events) {
        client->events = events;
        /* No events at all is allowed and stops the polling: the session is stalled
         * then, and will be marked as changed. */
        is_alive = uv_poll_start(&client->poll, events, on_ready) == 0;
    }
    if (!is_alive) {
        drop(client);
    }
}

static void
on_ready(uv_poll_t *handle, int error, int events)
{
    connection *client = handle->data;
    int watched = client->events;
    bool wants_input = dl_peer_wants_input(&client->peer);
    bool is_alive = true;

    if (error != 0) {
        client->events = 0; /* libuv has stopped polling */
    }
    /* Input that arrived before the connection broke can still be read; recv(2) then
     * returns the error. */
    if (error != 0 || (wants_input && (events & UV_READABLE) != 0)) {
        is_alive = (watched & UV_READABLE) != 0
                   && dl_peer_receive(&client->peer, server_of(client)->input);
    }
    if (is_alive && (events & UV_WRITABLE) != 0) {
        is_alive = dl_peer_send(&client->peer);
    }
    /* A session that is stalled until the end of this turn continues in
     * on_before_sleep(), usually with the same events: changing them in between costs
     * four system calls. */
    if (!is_alive || error != 0 || !wants_input
        || !dl_session_is_marked(&client->peer.session)) {
        watch(client, is_alive);
    }
}

/* Does nothing: while an idle handle is active, libuv polls without sleeping. */
static void
on_no_sleep(uv_idle_t *handle)
{
    (void)handle;
}

/* Marks the sessions whose time has come as changed; on_before_sleep() serves them. */
static void
on_wake(uv_timer_t *timer)
{
    dl_server *server = timer->loop->data;

    server->wake_at = INT64_MAX;
    dl_hub_wake(&server->hub, dl_now());
}

/* Starts the timer unless it expires early enough.  If the next wake-up was postponed
 * meanwhile, the timer expires too early and is started again then.  Without a next
 * wake-up it is stopped: when epoll_wait(2) has a timeout, the kernel sets a timer each
 * time. */
static void
set_wake(dl_server *server)
{
    int64_t at = dl_hub_next_wake(&server->hub);

    if (at == INT64_MAX) {
        uv_timer_stop(&server->wake);
        server->wake_at = at;
    } else if (at < server->wake_at) {
        int64_t left = dl_deadline_left((dl_deadline){.at = at});
        server->wake_at = at;
        uv_timer_start(&server->wake, on_wake, (uint64_t)(left / DL_MILLISECOND) + 1,
                       0);
    }
}

/* Serves the sessions that another client's request, or room in their output, has made
 * ready.  A session that is marked again meanwhile is served after the next round of
 * input, so that it does not keep the other clients waiting. */
static void
on_before_sleep(uv_prepare_t *handle)
{
    dl_server *server = handle->loop->data;
    dl_hub *hub = &server->hub;
    dl_session *session;

    dl_hub_save(hub);
    for (size_t left = dl_hub_round(hub); left > 0; left--) {
        if ((session = dl_hub_take_changed(hub)) != NULL) {
            connection *client = DL_LIST_ENTRY(session, connection, peer.session);
            watch(client, dl_peer_resume(&client->peer));
        }
    }
    set_wake(server);
    if (dl_hub_has_work(hub)) {
        uv_idle_start(&server->no_sleep, on_no_sleep);
    } else {
        uv_idle_stop(&server->no_sleep);
    }
    dl_hub_idle(hub);
}

static void
admit(dl_server *server, int fd, bool is_local)
{
    connection *client = calloc(1, sizeof *client);

    if (client == NULL || uv_poll_init(&server->loop, &client->poll, fd) != 0) {
        free(client);
        dl_socket_close(fd);
        return;
    }
    client->poll.data = client;
    dl_peer_init(&client->peer, &server->hub, fd, is_local);
    watch(client, true);
}

static void on_connection(uv_poll_t *handle, int error, int events);

static void
on_pause_over(uv_timer_t *timer)
{
    dl_server *server = timer->loop->data;

    for (int i = 0; i < DL_SERVER_ACCEPTORS && server->acceptors[i].fd >= 0; i++) {
        uv_poll_start(&server->listening[i], UV_READABLE, on_connection);
    }
}

static void
on_connection(uv_poll_t *handle, int error, int events)
{
    dl_server *server = handle->loop->data;
    dl_acceptor *acceptor = &server->acceptors[handle - server->listening];
    int fd;

    (void)events;
    /* A limited number at a time: the listening socket stays readable while more
     * wait. */
    for (int left = DL_ACCEPTOR_ROUND;
         left > 0 && (fd = dl_acceptor_next(acceptor)) >= 0; left--) {
        admit(server, fd, acceptor->is_local);
    }
    if (acceptor->is_starved || error != 0) {
        /* The listening socket stays readable, so the loop would spin on it. */
        uv_poll_stop(handle);
        uv_timer_start(&server->pause, on_pause_over,
                       DL_ACCEPTOR_PAUSE / DL_MILLISECOND, 0);
    }
}

static void
close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (uv_is_closing(handle)) {
        return;
    }
    if (handle->data != NULL) {
        /* Only connections have data; the server's own handles lie in the server. */
        drop(handle->data);
    } else {
        uv_close(handle, NULL);
    }
}

/* Closes all handles, after which nothing keeps the loop running. */
static void
on_stop(uv_async_t *handle)
{
    uv_walk(handle->loop, close_handle, NULL);
}

static void *
run(void *argument)
{
    dl_server *server = argument;

    uv_run(&server->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Opens and starts the server's own handles.  On failure the caller closes those that
 * have been opened. */
static int
open_handles(dl_server *server)
{
    uv_loop_t *loop = &server->loop;

    uv_prepare_init(loop, &server->before_sleep);
    uv_idle_init(loop, &server->no_sleep);
    uv_timer_init(loop, &server->pause);
    uv_timer_init(loop, &server->wake);
    /* Prepare handles run right before each poll: after all input of an iteration, and
     * before the loop may sleep although that input has changed sessions. */
    int error = uv_prepare_start(&server->before_sleep, on_before_sleep);
    if (error == 0) {
        error = uv_async_init(loop, &server->stop, on_stop);
    }
    for (int i = 0;
         error == 0 && i < DL_SERVER_ACCEPTORS && server->acceptors[i].fd >= 0; i++) {
        error = uv_poll_init(loop, &server->listening[i], server->acceptors[i].fd);
        if (error == 0) {
            error = uv_poll_start(&server->listening[i], UV_READABLE, on_connection);
        }
    }
    return error;
}

/* Frees a server whose thread does not run. */
static void
free_server(dl_server *server)
{
    /* When the thread has run, on_stop() has closed all handles.  After a failed start
     * they are open, and need one iteration of the loop to be closed. */
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_loop_close(&server->loop);
    dl_hub_fini(&server->hub);
    dl_socket_close(server->acceptors[0].fd);
    dl_socket_close(server->acceptors[1].fd);
    free(server);
}

static dl_status
fail_loop(int error)
{
    return error == UV_ENOMEM
               ? dl_fail_no_memory()
               : dl_fail(DL_NETWORK, "starting a libuv loop: %s", uv_strerror(error));
}

static dl_status
start_uv(int listen_fd, const dl_server_options *options, dl_server **started)
{
    dl_server *server = calloc(1, sizeof *server);
    int error = server == NULL ? UV_ENOMEM : uv_loop_init(&server->loop);

    if (error != 0) {
        free(server);
        dl_socket_close(listen_fd);
        return fail_loop(error);
    }
    server->fork_generation = dl_fork_generation();
    server->loop.data = server;
    server->wake_at = INT64_MAX;
    dl_status status =
        dl_server_prepare(listen_fd, options, &server->hub, server->acceptors);
    if (status == DL_OK) {
        error = open_handles(server);
        status = error == 0 ? dl_thread_start(&server->thread, run, server)
                            : fail_loop(error);
    }
    if (status != DL_OK) {
        free_server(server);
        return status;
    }
    *started = server;
    return DL_OK;
}

static void
stop_uv(dl_server *server)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    free_server(server);
}

const dl_server_ops *
dl_server_uv_ops(void)
{
    static const dl_server_ops ops = {
        .kind = "libuv",
        .start = start_uv,
        .stop = stop_uv,
    };

    return &ops;
}

#endif
