/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/poller.h"
#include "net/socket.h"
#include "store/tcp/acceptor.h"
#include "store/tcp/server.h"
#include "store/tcp/session.h"

/* Read by one call: what loopback delivers at once.  Shared by all clients. */
#define INPUT_SIZE (64u << 10)

/* Events taken by one epoll_wait(2). */
#define EVENTS 256

/* Parts of one sendmsg(2). */
#define PARTS 64

#define SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)

typedef struct connection {
    dl_session session;
    dl_list node; /* in the server's list */
    int fd;
    uint32_t events;    /* what the poller looks for */
    uint32_t swallowed; /* bytes read since the conversation was over */
    bool is_refused;    /* it is over: once all is sent, nothing is said any more */
} connection;

struct dl_server {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    int stop_fd; /* readable: end */
    /* server thread only */
    dl_hub hub;
    dl_poller poller;
    dl_acceptor acceptor;
    dl_deadline pause; /* the acceptor's, while it is starved */
    dl_list connections;
    uint8_t input[INPUT_SIZE];
};

static void
drop(dl_server *server, connection *client)
{
    dl_poller_remove(&server->poller, client->fd);
    dl_socket_close(client->fd);
    dl_list_remove(&client->node);
    dl_session_fini(&client->session);
    free(client);
}

/* Makes the poller look for what the connection is ready for. */
static bool
watch(dl_server *server, connection *client)
{
    bool wants_input = client->is_refused || dl_session_wants_input(&client->session);
    bool has_output = client->session.output != NULL;
    uint32_t events = (wants_input ? EPOLLIN : 0u) | (has_output ? EPOLLOUT : 0u);

    if (events == client->events) {
        return true;
    }
    client->events = events;
    return dl_poller_change(&server->poller, client->fd, events, client) == DL_OK;
}

static ssize_t
send_some(int fd, const dl_output *output)
{
    struct iovec parts[PARTS];
    int count = dl_output_gather(output, parts, PARTS);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};

    /* Most replies are one part, for which the kernel has less to copy in. */
    return count == 1 ? send(fd, parts->iov_base, parts->iov_len, SEND_FLAGS)
                      : sendmsg(fd, &message, SEND_FLAGS);
}

/* As much as the socket takes.  False: the client is gone. */
static bool
send_output(connection *client)
{
    dl_output *output;

    while ((output = client->session.output) != NULL) {
        ssize_t sent = send_some(client->fd, output);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        dl_output_consume(output, (size_t)sent);
        if (dl_output_size(output) == 0) {
            dl_session_sent(&client->session, output);
        }
    }
    return true;
}

/* After the session was given something to do; `status` is how it went. */
static void
follow_up(dl_server *server, connection *client, dl_status status)
{
    if (status != DL_OK) {
        dl_acceptor_log_refusal(client->fd);
        client->is_refused = true;
        if (client->session.output == NULL) {
            drop(server, client);
            return;
        }
    }
    if (!send_output(client) || !watch(server, client)) {
        drop(server, client);
        return;
    }
    if (client->is_refused && client->session.output == NULL) {
        shutdown(client->fd, SHUT_WR);
    }
}

/* Throws away what a client still sends to a conversation that is over. */
static void
swallow(dl_server *server, connection *client, size_t size)
{
    client->swallowed += (uint32_t)size;
    if (client->swallowed > DL_ACCEPTOR_PATIENCE) {
        drop(server, client);
    }
}

static void
receive(dl_server *server, connection *client)
{
    uint8_t *data = server->input;
    size_t room = sizeof server->input;

    (void)dl_session_room(&client->session, &data, &room);
    ssize_t size = recv(client->fd, data, room, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (size <= 0) {
        drop(server, client);
    } else if (client->is_refused) {
        swallow(server, client, (size_t)size);
    } else {
        follow_up(server, client,
                  dl_session_feed(&client->session, (dl_bytes){data, (size_t)size}));
    }
}

static void
serve(dl_server *server, connection *client, uint32_t events)
{
    bool is_broken = (events & (EPOLLERR | EPOLLHUP)) != 0;

    if ((events & EPOLLIN) != 0 || (is_broken && (client->events & EPOLLIN) != 0)) {
        receive(server, client);
    } else if (is_broken) {
        drop(server, client);
    } else {
        follow_up(server, client, DL_OK);
    }
}

static void
admit(dl_server *server, int fd)
{
    connection *client = calloc(1, sizeof *client);

    if (client == NULL
        || dl_poller_add(&server->poller, fd, EPOLLIN, client) != DL_OK) {
        free(client);
        dl_socket_close(fd);
        return;
    }
    client->fd = fd;
    client->events = EPOLLIN;
    dl_session_init(&client->session, &server->hub);
    dl_list_append(&server->connections, &client->node);
}

static void
accept_all(dl_server *server)
{
    int fd;

    while ((fd = dl_acceptor_next(&server->acceptor)) >= 0) {
        admit(server, fd);
    }
    if (server->acceptor.is_starved) {
        /* The listening socket stays readable and would not let the loop rest. */
        dl_poller_change(&server->poller, server->acceptor.fd, 0, &server->acceptor);
        server->pause = dl_deadline_after(DL_ACCEPTOR_PAUSE);
    }
}

static void
end_pause(dl_server *server)
{
    server->pause = dl_deadline_after(-1);
    dl_poller_change(&server->poller, server->acceptor.fd, EPOLLIN, &server->acceptor);
}

/* Clients that another's request, or their own reading, has got something to do for.
 * Those who come up again have to wait until everybody else has been looked at. */
static void
serve_changed(dl_server *server)
{
    dl_session *session;

    for (size_t left = server->hub.changed_count; left > 0; left--) {
        if ((session = dl_hub_take_changed(&server->hub)) == NULL) {
            return;
        }
        follow_up(server, DL_LIST_ENTRY(session, connection, session),
                  dl_session_resume(session));
    }
}

static dl_deadline
next_wake(const dl_server *server)
{
    return server->hub.changed_count > 0 ? dl_deadline_after(0) : server->pause;
}

static void *
run(void *argument)
{
    dl_server *server = argument;
    struct epoll_event events[EVENTS];

    for (;;) {
        int count = dl_poller_wait(&server->poller, events, EVENTS, next_wake(server));
        for (int i = 0; i < count; i++) {
            void *tag = events[i].data.ptr;
            if (tag == server) {
                return NULL;
            }
            if (tag == &server->acceptor) {
                accept_all(server);
            } else {
                serve(server, tag, events[i].events);
            }
        }
        serve_changed(server);
        if (dl_deadline_passed(server->pause)) {
            end_pause(server);
        }
    }
}

/* What there is of a server whose thread does not run. */
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
    dl_socket_close(server->acceptor.fd);
    dl_socket_close(server->stop_fd);
    free(server);
}

static dl_status
open_loop(dl_server *server)
{
    DL_TRY(dl_poller_init(&server->poller));
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->stop_fd < 0) {
        return dl_fail(DL_NETWORK, "eventfd: %s", strerror(errno));
    }
    dl_fork_guard(server->stop_fd);
    DL_TRY(dl_poller_add(&server->poller, server->stop_fd, EPOLLIN, server));
    return dl_poller_add(&server->poller, server->acceptor.fd, EPOLLIN,
                         &server->acceptor);
}

static dl_status
start_poll(int listen_fd, dl_server **started)
{
    dl_server *server = calloc(1, sizeof *server);

    if (server == NULL) {
        dl_socket_close(listen_fd);
        return dl_fail_no_memory();
    }
    server->fork_generation = dl_fork_generation();
    server->stop_fd = -1;
    server->poller.fd = -1;
    server->acceptor.fd = listen_fd;
    server->pause = dl_deadline_after(-1);
    dl_list_init(&server->connections);
    dl_hub_init(&server->hub);
    dl_status status = open_loop(server);
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
    (void)eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    free_server(server);
}

const dl_server_ops dl_server_poll_ops = {
    .kind = "poll",
    .start = start_poll,
    .stop = stop_poll,
};
