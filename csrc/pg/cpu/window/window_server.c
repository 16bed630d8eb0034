/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/tcp/link.h"

/* Bytes per receive, and receives from one connection before the next one is served. */
#define INPUT ((size_t)512 << 10)
#define INPUTS 8

/* The thread cannot sleep on memory and on sockets at once, so while a rank waits for a
 * lock that another rank of this host holds, it polls the lock this often. */
#define LOCK_SLICE_MS 1

typedef struct connection {
    dl_list node;
    dl_link link;
    dl_peer nobody; /* the peer in the link's error texts, which are not shown */
    dl_window_session session;
    size_t sent; /* of the session's output */
    bool is_over;
} connection;

struct dl_window_server {
    atomic_uint references;
    /* fixed after init */
    dl_window_server_options options;
    uint32_t fork_generation;
    char *group_name;
    int bell; /* eventfd */
    pthread_t thread;
    bool has_thread; /* only for the caller of dl_window_server_stop() */
    atomic_bool is_stopped;
    dl_listener_bell callers;
    struct pollfd *polled; /* of the thread, like the next one */
    size_t polled_capacity;
    pthread_mutex_t lock; /* held while requests are carried out */
    /* guarded by lock */
    dl_list windows;
    dl_list connections;
    uint32_t window_count; /* so far */
};

static connection *
connection_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, connection, node);
}

static void
disconnect(connection *self)
{
    dl_list_remove(&self->node);
    dl_window_session_fini(&self->session);
    dl_link_fini(&self->link);
    free(self);
}

/* Accepts one connection.  Returns false if there is none. */
static bool
take_caller(dl_window_server *self)
{
    connection *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return false; /* the caller waits until there is memory, or its deadline */
    }
    dl_link_init(&made->link, &(dl_link_options){
                                  .group = self->group_name,
                                  .there = &made->nobody,
                                  .listener = self->options.listener,
                                  .rank = self->options.rank,
                                  .use = DL_FOR_WINDOWS,
                              });
    if (!dl_link_take_any(&made->link)) {
        free(made);
        return false;
    }
    int caller = made->link.options.peer;
    dl_window_session_init(&made->session, caller, &self->windows);
    dl_list_append(&self->connections, &made->node);
    if (caller < 0 || caller >= self->options.size) {
        disconnect(made);
    }
    return true;
}

/* Sends what the kernel accepts. */
static dl_status
send_output(connection *self)
{
    dl_buffer *out = &self->session.out;
    size_t sent = 0;

    if (out->size > 0) {
        struct iovec part = {out->data + self->sent, out->size - self->sent};
        DL_TRY(dl_link_write(&self->link, &part, 1, &sent));
        self->sent += sent;
    }
    if (self->sent == out->size) {
        dl_buffer_clear(out);
        self->sent = 0;
    }
    return DL_OK;
}

/* Receives into the session's own buffer; `*size` is 0 if nothing has arrived. */
static dl_status
receive_input(connection *self, size_t *size)
{
    dl_buffer *in = &self->session.in;

    DL_TRY(dl_buffer_reserve(in, INPUT));
    struct iovec part = {in->data + in->size, INPUT};
    DL_TRY(dl_link_read(&self->link, &part, 1, size));
    in->size += *size;
    return DL_OK;
}

/* Moves what can be moved without blocking.  A rank that does not read its answers is
 * not read from. */
static dl_status
move_bytes(connection *self, bool has_input)
{
    const dl_buffer *in = &self->session.in, *out = &self->session.out;

    has_input = has_input && out->size == 0;
    for (int turn = 0;; turn++) {
        size_t got = 0;
        if (has_input && turn < INPUTS) {
            DL_TRY(receive_input(self, &got));
        }
        size_t waiting = in->size;
        DL_TRY(dl_window_session_step(&self->session));
        bool is_idle = got == 0 && in->size == waiting && out->size == 0;
        has_input = has_input && out->size == 0;
        DL_TRY(send_output(self));
        if (is_idle || out->size > 0) {
            return DL_OK;
        }
    }
}

/* Any event may mean input, since dl_link_poll() asks for POLLOUT while TLS holds
 * received bytes. */
static void
advance_connection(dl_window_server *server, connection *self, short events)
{
    dl_status status = move_bytes(self, events != 0);

    if (status == DL_PROTOCOL) {
        dl_log(DL_LOG_WARNING,
               "group %s: rank %d sent a request for a window that is not valid, and "
               "was disconnected: %s",
               server->group_name, self->session.caller, dl_last_error()->text);
    }
    self->is_over = status != DL_OK;
}

static bool
has_room(dl_window_server *self, size_t count)
{
    if (count <= self->polled_capacity) {
        return true;
    }
    size_t capacity = 2 * count;
    void *grown = realloc(self->polled, capacity * sizeof *self->polled);
    if (grown == NULL) {
        return false;
    }
    self->polled = grown;
    self->polled_capacity = capacity;
    return true;
}

/* Fills in what to sleep on, and for how long.  Requires the lock. */
static size_t
fill_polled(dl_window_server *self, int *limit)
{
    size_t count = 0;

    *limit = -1;
    self->polled[count++] = (struct pollfd){.fd = self->bell, .events = POLLIN};
    for (dl_list *node = self->connections.next; node != &self->connections;
         node = node->next) {
        connection *each = connection_of(node);
        short events = each->session.out.size > 0 ? POLLOUT : POLLIN;
        if (!has_room(self, count + 1)) {
            break; /* the others wait until there is memory */
        }
        self->polled[count++] = dl_link_poll(&each->link, events);
        if (each->session.is_waiting) {
            *limit = LOCK_SLICE_MS;
        }
    }
    return count;
}

/* Requires the lock. */
static void
advance_all(dl_window_server *self, size_t count)
{
    dl_list *node = self->connections.next;

    for (size_t i = 1; i < count && node != &self->connections; i++) {
        connection *each = connection_of(node);
        node = node->next;
        short events = self->polled[i].revents;
        if (events != 0 || each->session.is_waiting) {
            advance_connection(self, each, events);
        }
        if (each->is_over) {
            disconnect(each);
        }
    }
}

/* Sends a caller the reason why it is disconnected, unless an answer to it is
 * incomplete. */
static void
send_farewell(const dl_window_server *self, connection *each)
{
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    size_t sent;

    if (each->session.out.size == 0
        && dl_window_ends_check(self->options.ends) != DL_OK) {
        struct iovec part = {frame, dl_failure_notice_put(frame, dl_last_error())};
        (void)dl_link_write(&each->link, &part, 1, &sent);
    }
}

static void
clear_bell(const dl_window_server *self)
{
    uint64_t rings;

    (void)!read(self->bell, &rings, sizeof rings);
}

static void *
run_server(void *context)
{
    dl_window_server *self = context;

    for (;;) {
        int limit;
        pthread_mutex_lock(&self->lock);
        bool is_over = atomic_load(&self->is_stopped)
                       || dl_window_ends_check(self->options.ends) != DL_OK;
        while (!is_over && take_caller(self)) {
        }
        size_t count = is_over ? 0 : fill_polled(self, &limit);
        pthread_mutex_unlock(&self->lock);
        if (is_over) {
            break;
        }
        int ready = poll(self->polled, count, limit);
        if (ready < 0) {
            continue;
        }
        if (self->polled[0].revents != 0) {
            clear_bell(self);
        }
        pthread_mutex_lock(&self->lock);
        advance_all(self, count);
        pthread_mutex_unlock(&self->lock);
    }
    pthread_mutex_lock(&self->lock);
    while (!dl_list_is_empty(&self->connections)) {
        send_farewell(self, connection_of(self->connections.next));
        disconnect(connection_of(self->connections.next));
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static void
free_server(dl_window_server *self)
{
    if (self->bell >= 0 && self->fork_generation == dl_fork_generation()) {
        dl_socket_close(self->bell);
    }
    dl_window_ends_unref(self->options.ends);
    pthread_mutex_destroy(&self->lock);
    free(self->polled);
    free(self->group_name);
    free(self);
}

static void
ring_server(void *context)
{
    dl_window_server_ring(context);
}

dl_status
dl_window_server_new(const dl_window_server_options *options, dl_window_server **server)
{
    dl_window_server *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&self->references, 1);
    self->options = *options;
    self->options.ends = dl_window_ends_ref(options->ends);
    self->fork_generation = dl_fork_generation();
    pthread_mutex_init(&self->lock, NULL);
    dl_list_init(&self->windows);
    dl_list_init(&self->connections);
    self->group_name = strdup(options->group_name);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dl_status status = DL_OK;
    if (self->group_name == NULL || !has_room(self, 16)) {
        status = dl_fail_no_memory();
    } else if (self->bell < 0) {
        status = dl_fail(DL_INTERNAL, "eventfd: %s", strerror(errno));
    } else {
        dl_fork_guard(self->bell);
        status = dl_thread_start(&self->thread, run_server, self);
    }
    if (status != DL_OK) {
        free_server(self);
        return status;
    }
    self->has_thread = true;
    self->callers =
        (dl_listener_bell){.use = DL_FOR_WINDOWS, .ring = ring_server, .context = self};
    dl_listener_add_bell(options->listener, &self->callers);
    *server = self;
    return DL_OK;
}

dl_window_server *
dl_window_server_ref(dl_window_server *server)
{
    atomic_fetch_add_explicit(&server->references, 1, memory_order_relaxed);
    return server;
}

void
dl_window_server_unref(dl_window_server *server)
{
    if (server != NULL && atomic_fetch_sub(&server->references, 1) == 1) {
        free_server(server);
    }
}

void
dl_window_server_ring(dl_window_server *server)
{
    uint64_t one = 1;

    if (server != NULL) {
        (void)!write(server->bell, &one, sizeof one);
    }
}

void
dl_window_server_stop(dl_window_server *server)
{
    if (server->has_thread && server->fork_generation == dl_fork_generation()) {
        dl_listener_remove_bell(server->options.listener, &server->callers);
        atomic_store(&server->is_stopped, true);
        dl_window_server_ring(server);
        pthread_join(server->thread, NULL);
        server->has_thread = false;
    }
}

void
dl_window_server_add(dl_window_server *server, dl_window_served *window)
{
    pthread_mutex_lock(&server->lock);
    window->number = ++server->window_count;
    dl_list_append(&server->windows, &window->node);
    pthread_mutex_unlock(&server->lock);
}

void
dl_window_server_remove(dl_window_server *server, dl_window_served *window)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    dl_list_remove(&window->node);
    for (dl_list *node = server->connections.next; node != &server->connections;
         node = node->next) {
        dl_window_session_withdraw(&connection_of(node)->session, window);
    }
    pthread_mutex_unlock(&server->lock);
}
