/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server.h"

#include <stdlib.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/local.h"
#include "net/socket.h"
#include "store/tcp/carrier.h"
#include "store/tcp/peer.h"

typedef struct connection {
    dl_watch watch;
    dl_peer peer;
    dl_server *server;
    dl_list node; /* in the server's list */
} connection;

typedef struct listener {
    dl_watch watch;
    dl_acceptor acceptor;
    dl_server *server;
} listener;

/* At the TCP port, and at the shortcut if there is one. */
#define LISTENERS 2

struct dl_server {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    const dl_loop_ops *ops;
    dl_loop *loop;
    /* server thread only */
    dl_hub hub;
    listener listeners[LISTENERS];
    dl_deadline pause; /* until when starved listeners are not watched; else never */
    dl_list connections;
    uint8_t input[DL_PEER_INPUT_SIZE];
};

static void
drop_client(connection *client)
{
    dl_server *server = client->server;

    server->ops->remove(server->loop, &client->watch);
    dl_socket_close(client->peer.fd);
    dl_list_remove(&client->node);
    dl_peer_fini(&client->peer);
    free(client);
}

/* Watches for the events that the client wants now; drops the client unless
 * `is_alive`. */
static void
watch_client(connection *client, bool is_alive, bool is_broken)
{
    dl_server *server = client->server;
    uint32_t events = (dl_peer_wants_input(&client->peer) ? DL_LOOP_READABLE : 0u)
                      | (dl_peer_wants_room(&client->peer) ? DL_LOOP_WRITABLE : 0u);

    if (is_alive && (is_broken || events != client->watch.events)) {
        is_alive = server->ops->change(server->loop, &client->watch, events) == DL_OK;
    }
    if (!is_alive) {
        drop_client(client);
    }
}

static void
serve_client(dl_watch *watch, uint32_t events)
{
    connection *client = DL_LIST_ENTRY(watch, connection, watch);
    bool is_broken = (events & DL_LOOP_BROKEN) != 0;
    bool wants_input = dl_peer_wants_input(&client->peer);
    bool is_alive = true;

    /* Input that arrived before the connection broke can still be read; recv(2) then
     * returns the error. */
    if (is_broken || (wants_input && (events & DL_LOOP_READABLE) != 0)) {
        is_alive = (watch->events & DL_LOOP_READABLE) != 0
                   && dl_peer_receive(&client->peer, client->server->input);
    }
    if (is_alive && (events & DL_LOOP_WRITABLE) != 0) {
        is_alive = dl_peer_send(&client->peer);
    }
    /* A session that is stalled until the end of this turn continues in
     * serve_changed(), usually with the same events: changing them in between costs
     * system calls. */
    if (!is_alive || is_broken || !wants_input
        || !dl_session_is_marked(&client->peer.session)) {
        watch_client(client, is_alive, is_broken);
    }
}

static void
admit_client(dl_server *server, int fd, bool is_local)
{
    connection *client = calloc(1, sizeof *client);

    if (client != NULL) {
        client->server = server;
        client->watch =
            (dl_watch){.fd = fd, .events = DL_LOOP_READABLE, .ready = serve_client};
    }
    if (client == NULL || server->ops->add(server->loop, &client->watch) != DL_OK) {
        free(client);
        dl_socket_close(fd);
        return;
    }
    dl_peer_init(&client->peer, &server->hub, fd, is_local);
    dl_list_append(&server->connections, &client->node);
}

static void
accept_some(dl_watch *watch, uint32_t events)
{
    listener *one = DL_LIST_ENTRY(watch, listener, watch);
    dl_server *server = one->server;
    int fd;

    /* A limited number at a time: the listening socket stays readable while more
     * wait. */
    for (int left = DL_ACCEPTOR_ROUND;
         left > 0 && (fd = dl_acceptor_next(&one->acceptor)) >= 0; left--) {
        admit_client(server, fd, one->acceptor.is_local);
    }
    if (one->acceptor.is_starved || (events & DL_LOOP_BROKEN) != 0) {
        /* The listening socket stays readable, so the loop would spin on it. */
        (void)server->ops->change(server->loop, watch, 0);
        server->pause = dl_deadline_after(DL_ACCEPTOR_PAUSE);
    }
}

static void
end_pause(dl_server *server)
{
    server->pause = dl_deadline_after(-1);
    for (int i = 0; i < LISTENERS && server->listeners[i].watch.ready != NULL; i++) {
        (void)server->ops->change(server->loop, &server->listeners[i].watch,
                                  DL_LOOP_READABLE);
    }
}

/* Serves the sessions that another client's request, or room in their output, has made
 * ready.  A session that is marked again meanwhile is served after the next round of
 * input, so that it does not keep the other clients waiting. */
static void
serve_changed(dl_server *server)
{
    dl_session *session;

    for (size_t left = dl_hub_round(&server->hub); left > 0; left--) {
        if ((session = dl_session_take_changed(&server->hub)) == NULL) {
            return;
        }
        /* The output of a channel leaves by the connection of its carrier. */
        dl_session *sender = dl_carrier_sender(session);
        connection *client = DL_LIST_ENTRY(sender, connection, peer.session);
        if (sender != session) {
            bool is_alive = dl_carrier_resume(session) == DL_OK;
            watch_client(client, is_alive && dl_peer_send(&client->peer), false);
        } else {
            watch_client(client, dl_peer_resume(&client->peer), false);
        }
    }
}

/* Ends a turn of the loop, once all input is served; returns until when it may sleep. */
static dl_deadline
end_turn(void *context)
{
    dl_server *server = context;
    dl_hub *hub = &server->hub;
    int64_t at = dl_hub_next_wake(hub);

    if (at != INT64_MAX && at <= dl_now()) {
        dl_session_wake(hub, dl_now());
    }
    if (dl_deadline_passed(server->pause)) {
        end_pause(server);
    }
    dl_hub_commit(hub);
    serve_changed(server);
    dl_hub_idle(hub);
    at = dl_hub_next_wake(hub);
    return dl_hub_has_work(hub)    ? (dl_deadline){0}
           : at < server->pause.at ? (dl_deadline){.at = at}
                                   : server->pause;
}

static void *
run_server(void *argument)
{
    dl_server *server = argument;

    server->ops->run(server->loop, end_turn, server);
    return NULL;
}

/* Frees a server whose thread does not run, also one that was only partly started. */
static void
free_server(dl_server *server)
{
    while (!dl_list_is_empty(&server->connections)) {
        drop_client(DL_LIST_ENTRY(server->connections.next, connection, node));
    }
    for (int i = 0; i < LISTENERS; i++) {
        if (server->listeners[i].watch.ready != NULL) {
            server->ops->remove(server->loop, &server->listeners[i].watch);
        }
        dl_socket_close(server->listeners[i].acceptor.fd);
    }
    if (server->loop != NULL) {
        server->ops->close(server->loop);
    }
    dl_hub_fini(&server->hub);
    free(server);
}

/* `fd` may be -1: there is no such listener. */
static dl_status
add_listener(dl_server *server, listener *one, int fd, bool is_local)
{
    dl_acceptor_init(&one->acceptor, fd, is_local, &server->hub);
    if (fd < 0) {
        return DL_OK;
    }
    one->server = server;
    one->watch = (dl_watch){.fd = fd, .events = DL_LOOP_READABLE, .ready = accept_some};
    dl_status status = server->ops->add(server->loop, &one->watch);
    if (status != DL_OK) {
        one->watch.ready = NULL;
    }
    return status;
}

/* Makes the Unix socket, and returns its descriptor; -1 if there can be none: clients then
 * stay with TCP. */
static int
open_shortcut(int listen_fd, dl_shortcut *shortcut)
{
    int fd = -1;

    shortcut->port = dl_socket_port(listen_fd);
    if (dl_local_service_listen(shortcut->name, &fd) != DL_OK) {
        dl_log(DL_LOG_INFO, "the store's server has no Unix socket: %s",
               dl_last_error()->text);
        *shortcut = (dl_shortcut){0};
    }
    return fd;
}

static dl_status
prepare_server(dl_server *server, const dl_server_options *options)
{
    listener *listeners = server->listeners;
    int listen_fd = listeners[0].acceptor.fd;
    dl_hub *hub = &server->hub;
    dl_limits limits;
    bool has_shortcut;

    DL_TRY(dl_environment_flag(DL_SHORTCUT_VARIABLE, true, &has_shortcut));
    hub->secret = dl_secret_ref(options->secret);
    hub->tls = dl_tls_ref(options->tls);
    if (options->limits == NULL) {
        DL_TRY(dl_limits_read(&limits));
    }
    dl_hub_set_limits(hub, options->limits != NULL ? options->limits : &limits);
    DL_TRY(dl_random(hub->identity, sizeof hub->identity));
    if (options->journal != NULL) {
        DL_TRY(dl_hub_open_journal(hub, options->journal, options->sync));
    }
    DL_TRY(server->ops->open(&server->loop));
    DL_TRY(add_listener(server, &listeners[0], listen_fd, false));
    int unix_fd = has_shortcut ? open_shortcut(listen_fd, &hub->shortcut) : -1;
    return add_listener(server, &listeners[1], unix_fd, true);
}

dl_status
dl_server_start(const dl_loop_ops *kind, int listen_fd,
                const dl_server_options *options, dl_server **started)
{
    dl_server *server = calloc(1, sizeof *server);

    if (server == NULL) {
        dl_socket_close(listen_fd);
        return dl_fail_no_memory();
    }
    /* Set before anything can fail, for free_server(). */
    server->ops = kind;
    server->fork_generation = dl_fork_generation();
    server->listeners[0].acceptor.fd = listen_fd;
    server->listeners[1].acceptor.fd = -1;
    server->pause = dl_deadline_after(-1);
    dl_list_init(&server->connections);
    dl_hub_init(&server->hub);
    dl_status status = prepare_server(server, options);
    if (status == DL_OK) {
        status = dl_thread_start(&server->thread, run_server, server);
    }
    if (status != DL_OK) {
        free_server(server);
        return status;
    }
    *started = server;
    return DL_OK;
}

void
dl_server_stop(dl_server *server)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    server->ops->stop(server->loop);
    pthread_join(server->thread, NULL);
    free_server(server);
}
