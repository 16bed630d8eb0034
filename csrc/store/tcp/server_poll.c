/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/thread.h"
#include "net/poller.h"
#include "net/socket.h"
#include "store/tcp/peer.h"
#include "store/tcp/server.h"

/* Most events that one epoll_wait(2) returns. */
#define EVENTS 256

typedef struct connection {
    dl_peer peer;
    dl_list node;    /* in the server's list */
    uint32_t events; /* that the poller is set to report */
} connection;

struct dl_server {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    int stop_fd; /* an eventfd; readable when the thread must end */
    /* server thread only */
    dl_hub hub;
    dl_poller poller;
    dl_acceptor acceptors[DL_SERVER_ACCEPTORS];
    dl_deadline pause; /* until when starved acceptors are not polled; else never */
    dl_list connections;
    uint8_t input[DL_PEER_INPUT_SIZE];
};

static void
drop(dl_server *server, connection *client)
{
    dl_poller_remove(&server->poller, client->peer.fd);
    dl_socket_close(client->peer.fd);
    dl_list_remove(&client->node);
    dl_peer_fini(&client->peer);
    free(client);
}

/* Sets the poller to the events that the client wants now; drops the client unless
 * `is_alive`. */
static void
watch(dl_server *server, connection *client, bool is_alive)
{
    uint32_t events = (dl_peer_wants_input(&client->peer) ? EPOLLIN : 0u)
                      | (dl_peer_wants_room(&client->peer) ? EPOLLOUT : 0u);

    if (is_alive && events != client->events) {
        client->events = events;
        is_alive =
            dl_poller_change(&server->poller, client->peer.fd, events, client) == DL_OK;
    }
    if (!is_alive) {
        drop(server, client);
    }
}

static void
serve(dl_server *server, connection *client, uint32_t events)
{
    const uint32_t broken = EPOLLERR | EPOLLHUP;
    bool wants_input = dl_peer_wants_input(&client->peer);
    bool is_alive = true;

    /* Input that arrived before the connection broke can still be read; recv(2) then
     * returns the error. */
    if ((events & broken) != 0 || (wants_input && (events & EPOLLIN) != 0)) {
        is_alive = (client->events & EPOLLIN) != 0
                   && dl_peer_receive(&client->peer, server->input);
    }
    if (is_alive && (events & EPOLLOUT) != 0) {
        is_alive = dl_peer_send(&client->peer);
    }
    /* A session that is stalled until the end of this turn continues in
     * serve_changed(), usually with the same events. */
    if (!is_alive || (events & broken) != 0 || !wants_input
        || !dl_session_is_marked(&client->peer.session)) {
        watch(server, client, is_alive);
    }
}

static void
admit(dl_server *server, int fd, bool is_local)
{
    connection *client = calloc(1, sizeof *client);

    if (client == NULL
        || dl_poller_add(&server->poller, fd, EPOLLIN, client) != DL_OK) {
        free(client);
        dl_socket_close(fd);
        return;
    }
    client->events = EPOLLIN;
    dl_peer_init(&client->peer, &server->hub, fd, is_local);
    dl_list_append(&server->connections, &client->node);
}

static void
accept_all(dl_server *server, dl_acceptor *acceptor)
{
    int fd;

    /* A limited number at a time: the listening socket stays readable while more
     * wait. */
    for (int left = DL_ACCEPTOR_ROUND;
         left > 0 && (fd = dl_acceptor_next(acceptor)) >= 0; left--) {
        admit(server, fd, acceptor->is_local);
    }
    if (acceptor->is_starved) {
        /* The listening socket stays readable, so the loop would spin on it. */
        dl_poller_change(&server->poller, acceptor->fd, 0, acceptor);
        server->pause = dl_deadline_after(DL_ACCEPTOR_PAUSE);
    }
}

static void
end_pause(dl_server *server)
{
    server->pause = dl_deadline_after(-1);
    for (int i = 0; i < DL_SERVER_ACCEPTORS && server->acceptors[i].fd >= 0; i++) {
        dl_acceptor *acceptor = &server->acceptors[i];
        dl_poller_change(&server->poller, acceptor->fd, EPOLLIN, acceptor);
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
        if ((session = dl_hub_take_changed(&server->hub)) == NULL) {
            return;
        }
        connection *client = DL_LIST_ENTRY(session, connection, peer.session);
        watch(server, client, dl_peer_resume(&client->peer));
    }
}

static dl_deadline
next_wake(const dl_server *server)
{
    int64_t at = dl_hub_next_wake(&server->hub);

    return dl_hub_has_work(&server->hub) ? dl_deadline_after(0)
           : at < server->pause.at       ? (dl_deadline){.at = at}
                                         : server->pause;
}

static void *
run(void *argument)
{
    dl_server *server = argument;
    struct epoll_event events[EVENTS];

    for (;;) {
        dl_hub_idle(&server->hub);
        int count = dl_poller_wait(&server->poller, events, EVENTS, next_wake(server));
        /* A descriptor occurs once per batch, and serving it drops no other connection,
         * so no later tag of the batch points to freed memory. */
        for (int i = 0; i < count; i++) {
            void *tag = events[i].data.ptr;
            if (tag == server) {
                return NULL;
            }
            if (tag == &server->acceptors[0] || tag == &server->acceptors[1]) {
                accept_all(server, tag);
            } else {
                serve(server, tag, events[i].events);
            }
        }
        if (dl_hub_next_wake(&server->hub) != INT64_MAX) {
            dl_hub_wake(&server->hub, dl_now());
        }
        dl_hub_save(&server->hub);
        serve_changed(server);
        if (dl_deadline_passed(server->pause)) {
            end_pause(server);
        }
    }
}

/* Frees a server whose thread does not run, also one that was only partly started. */
static void
free_server(dl_server *server)
{
    while (!dl_list_is_empty(&server->connections)) {
        drop(server, DL_LIST_ENTRY(server->connections.next, connection, node));
    }
    dl_hub_fini(&server->hub);
    if (server->poller.fd >= 0) {
        dl_poller_fini(&server->poller);
    }
    dl_socket_close(server->acceptors[0].fd);
    dl_socket_close(server->acceptors[1].fd);
    dl_socket_close(server->stop_fd);
    free(server);
}

static dl_status
open_loop(dl_server *server, int listen_fd, const dl_server_options *options)
{
    dl_acceptor *acceptors = server->acceptors;

    DL_TRY(dl_server_prepare(listen_fd, options, &server->hub, acceptors));
    DL_TRY(dl_poller_init(&server->poller));
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->stop_fd < 0) {
        return dl_fail(DL_NETWORK, "eventfd: %s", strerror(errno));
    }
    dl_fork_guard(server->stop_fd);
    DL_TRY(dl_poller_add(&server->poller, server->stop_fd, EPOLLIN, server));
    for (int i = 0; i < DL_SERVER_ACCEPTORS && acceptors[i].fd >= 0; i++) {
        DL_TRY(dl_poller_add(&server->poller, acceptors[i].fd, EPOLLIN, &acceptors[i]));
    }
    return DL_OK;
}

static dl_status
start_poll(int listen_fd, const dl_server_options *options, dl_server **started)
{
    dl_server *server = calloc(1, sizeof *server);

    if (server == NULL) {
        dl_socket_close(listen_fd);
        return dl_fail_no_memory();
    }
    /* Set before anything can fail: free_server() skips descriptors that are -1. */
    server->fork_generation = dl_fork_generation();
    server->stop_fd = -1;
    server->poller.fd = -1;
    server->pause = dl_deadline_after(-1);
    dl_list_init(&server->connections);
    dl_status status = open_loop(server, listen_fd, options);
    if (status == DL_OK) {
        status = dl_thread_start(&server->thread, run, server);
    }
    if (status != DL_OK) {
        free_server(server);
        return status;
    }
    *started = server;
    return DL_OK;
}

static void
stop_poll(dl_server *server)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    /* The eventfd is never read, so it stays readable until the thread has seen it. */
    (void)eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    free_server(server);
}

const dl_server_ops dl_server_poll_ops = {
    .kind = "poll",
    .start = start_poll,
    .stop = stop_poll,
};
