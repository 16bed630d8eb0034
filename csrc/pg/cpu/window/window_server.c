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
#include "base/references.h"
#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/tcp/link.h"

typedef struct connection {
    dl_list node; /* guarded by the server's lock */
    const dl_window_server *server;
    pthread_t thread;
    dl_link link;
    dl_window_session session;
    dl_window_served *window;
    dl_buffer payload;
    bool has_failed; /* an answer could not be sent whole */
} connection;

static dl_status
event_new(int *event)
{
    *event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*event < 0) {
        return dl_fail(DL_INTERNAL, "eventfd: %s", strerror(errno));
    }
    dl_fork_guard(*event);
    return DL_OK;
}

/* Without an event, -1, there is no thread to wake. */
static void
signal_event(int event)
{
    uint64_t one = 1;

    if (event >= 0) {
        (void)!write(event, &one, sizeof one);
    }
}

/* Waits until the connection can move bytes.  Fails, without a text, once the window or
 * its group ends. */
static dl_status
wait_for(connection *self, short events)
{
    struct pollfd entries[] = {
        dl_link_poll(&self->link, events),
        {.fd = self->window->ending, .events = POLLIN},
    };

    (void)poll(entries, 2, -1);
    return atomic_load(&self->window->is_ending) ? DL_CLOSED : DL_OK;
}

static dl_status
read_all(connection *self, uint8_t *target, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct iovec part = {target + at, size - at};
        size_t got;
        DL_TRY(dl_link_read(&self->link, &part, 1, &got));
        if (got == 0) {
            DL_TRY(wait_for(self, POLLIN));
        }
        at += got;
    }
    return DL_OK;
}

static dl_status
write_all(connection *self, const dl_buffer *bytes)
{
    for (size_t at = 0; at < bytes->size;) {
        struct iovec part = {bytes->data + at, bytes->size - at};
        size_t sent;
        DL_TRY(dl_link_write(&self->link, &part, 1, &sent));
        if (sent == 0) {
            DL_TRY(wait_for(self, POLLOUT));
        }
        at += sent;
    }
    return DL_OK;
}

/* A failure does not end the connection: what a rank has sent before it closed its side
 * is still carried out, such as the release of a lock. */
static void
send_answer(connection *self)
{
    dl_buffer *out = &self->session.out;

    self->has_failed = self->has_failed || write_all(self, out) != DL_OK;
    dl_buffer_clear(out);
}

/* A rank sends nothing while it waits for a lock, except to end the wait. */
static dl_status
check_lock_wait(void *context)
{
    connection *self = context;
    struct pollfd entry = dl_link_poll(&self->link, POLLIN);
    bool is_over = atomic_load(&self->window->is_ending) || poll(&entry, 1, 0) > 0;

    return is_over ? dl_fail(DL_INTERRUPTED, "the rank waits no longer") : DL_OK;
}

static dl_status
serve_request(connection *self)
{
    uint8_t bytes[DL_HEAD_SIZE];
    dl_head head;

    DL_TRY(read_all(self, bytes, sizeof bytes));
    if (!dl_head_take(bytes, &head)) {
        return dl_fail(DL_PROTOCOL, "a frame is not valid here");
    }
    DL_TRY(dl_buffer_reserve(&self->payload, head.size));
    DL_TRY(read_all(self, self->payload.data, head.size));
    DL_TRY(dl_window_session_answer(&self->session, self->window, &head,
                                    self->payload.data));
    send_answer(self);
    return DL_OK;
}

/* Sends the reason for the end of a connection: that of the group, or that the window
 * is closed. */
static void
send_reason(connection *self)
{
    static const dl_error closed = {.status = DL_CLOSED};
    const dl_window_ends *ends = &self->server->ends;
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    size_t size = dl_failure_notice_put(
        frame, atomic_load(&ends->is_over) ? &ends->cause : &closed);
    struct iovec part = {frame, size};

    (void)dl_link_write(&self->link, &part, 1, &size);
}

/* Stores whether the caller, which may have the window's lock, has disconnected. */
static void
set_lost(const connection *self, bool is_lost)
{
    const dl_window_memory *memory = self->window->memory;

    dl_lock_queue_set_lost(&memory->head->queue, self->window->ranks, memory->owner,
                           self->session.caller, is_lost);
}

static void *
run_connection(void *context)
{
    connection *self = context;
    dl_status status;

    set_lost(self, false);
    do {
        status = serve_request(self);
    } while (status == DL_OK && !atomic_load(&self->window->is_ending));
    if (status == DL_PROTOCOL) {
        dl_log(DL_LOG_WARNING,
               "group %s: rank %d sent a request for a window that is not valid, and "
               "was disconnected: %s",
               self->server->group_name, self->session.caller, dl_last_error()->text);
    }
    if (atomic_load(&self->window->is_ending) && !self->has_failed) {
        send_reason(self);
    }
    (void)shutdown(self->link.transport.fd, SHUT_RDWR);
    set_lost(self, true);
    return NULL;
}

static void
free_connection(connection *self)
{
    dl_link_fini(&self->link);
    dl_buffer_fini(&self->session.out);
    dl_buffer_fini(&self->payload);
    free(self);
}

/* Ends the connections to a window, or only that of one rank, unless `caller` is -1.
 * Requires the lock. */
static void
end_connections(dl_window_server *self, const dl_window_served *window, int caller)
{
    for (dl_list *node = self->connections.next; node != &self->connections;) {
        connection *each = DL_LIST_ENTRY(node, connection, node);
        node = node->next;
        if (each->window == window && (caller < 0 || caller == each->session.caller)) {
            if (caller >= 0) {
                (void)shutdown(each->link.transport.fd, SHUT_RDWR);
            }
            pthread_join(each->thread, NULL);
            dl_list_remove(&each->node);
            free_connection(each);
        }
    }
}

/* Requires the lock. */
static dl_window_served *
find_window(const dl_window_server *self, int number)
{
    for (dl_list *node = self->windows.next; node != &self->windows;
         node = node->next) {
        dl_window_served *window = DL_LIST_ENTRY(node, dl_window_served, node);
        if (window->number == number) {
            return window;
        }
    }
    return NULL;
}

/* Starts a thread for a connection.  What an earlier connection of the rank has sent is
 * carried out before: the rank may have left it because of an interrupt, and be back.
 * Requires the lock. */
static dl_status
serve_connection(dl_window_server *self, connection *made)
{
    int caller = made->link.options.peer;

    if (caller < 0 || caller >= self->size || made->window == NULL) {
        return DL_CLOSED;
    }
    end_connections(self, made->window, caller);
    DL_TRY(dl_thread_start(&made->thread, run_connection, made));
    dl_list_append(&self->connections, &made->node);
    return DL_OK;
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
                                  .listener = self->listener,
                                  .rank = self->rank,
                                  .use = DL_FOR_WINDOWS,
                              });
    if (!dl_link_take_any(&made->link)) {
        free(made);
        return false;
    }
    made->server = self;
    made->session = (dl_window_session){
        .caller = made->link.options.peer,
        .check_wait = check_lock_wait,
        .context = made,
    };
    pthread_mutex_lock(&self->lock);
    made->window = find_window(self, made->link.options.index);
    dl_status status = serve_connection(self, made);
    pthread_mutex_unlock(&self->lock);
    if (status != DL_OK) {
        send_reason(made);
        free_connection(made);
    }
    return true;
}

static bool
is_ending(const dl_window_server *self)
{
    return atomic_load(&self->is_stopped) || atomic_load(&self->ends.is_over);
}

static void
end_window(dl_window_server *self, dl_window_served *window)
{
    atomic_store(&window->is_ending, true);
    signal_event(window->ending);
    end_connections(self, window, -1);
}

static void *
run_server(void *context)
{
    dl_window_server *self = context;
    struct pollfd entry = {.fd = self->bell, .events = POLLIN};
    uint64_t rings;

    while (!is_ending(self)) {
        while (take_caller(self)) {
        }
        (void)poll(&entry, 1, -1);
        (void)!read(self->bell, &rings, sizeof rings);
    }
    pthread_mutex_lock(&self->lock);
    for (dl_list *node = self->windows.next; node != &self->windows;
         node = node->next) {
        end_window(self, DL_LIST_ENTRY(node, dl_window_served, node));
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static void
ring_bell(void *context)
{
    signal_event(atomic_load(&((dl_window_server *)context)->bell));
}

dl_window_server *
dl_window_server_new(const char *group_name)
{
    dl_window_server *self = calloc(1, sizeof *self);

    if (self == NULL || (self->group_name = strdup(group_name)) == NULL) {
        free(self);
        return NULL;
    }
    atomic_init(&self->references, 1);
    atomic_init(&self->bell, -1);
    self->fork_generation = dl_fork_generation();
    pthread_mutex_init(&self->lock, NULL);
    dl_list_init(&self->windows);
    dl_list_init(&self->connections);
    return self;
}

dl_window_server *
dl_window_server_ref(dl_window_server *server)
{
    dl_reference_take(&server->references);
    return server;
}

void
dl_window_server_unref(dl_window_server *server)
{
    if (server == NULL || !dl_reference_drop(&server->references)) {
        return;
    }
    if (server->fork_generation == dl_fork_generation()) {
        dl_socket_close(atomic_load(&server->bell));
    }
    pthread_mutex_destroy(&server->lock);
    free(server->group_name);
    free(server);
}

void
dl_window_server_end(dl_window_server *server, const dl_error *cause)
{
    if (!atomic_exchange(&server->has_cause, true)) {
        server->ends.cause = *cause;
        atomic_store(&server->ends.is_over, true);
        ring_bell(server);
    }
}

void
dl_window_server_close(dl_window_server *server)
{
    if (server != NULL && server->has_thread
        && server->fork_generation == dl_fork_generation()) {
        dl_listener_remove_bell(server->listener, &server->callers);
        atomic_store(&server->is_stopped, true);
        ring_bell(server);
        pthread_join(server->thread, NULL);
    }
    dl_window_server_unref(server);
}

/* Starts the thread that accepts callers. */
static dl_status
start_thread(dl_window_server *self, dl_listener *listener,
             const dl_window_ranks *ranks)
{
    int bell = atomic_load(&self->bell);

    if (bell < 0) {
        DL_TRY(event_new(&bell));
        atomic_store(&self->bell, bell);
    }
    self->listener = listener;
    self->rank = ranks->rank;
    self->size = ranks->size;
    DL_TRY(dl_thread_start(&self->thread, run_server, self));
    self->has_thread = true;
    self->callers =
        (dl_listener_bell){.use = DL_FOR_WINDOWS, .ring = ring_bell, .context = self};
    dl_listener_add_bell(listener, &self->callers);
    return DL_OK;
}

dl_status
dl_window_server_add(dl_window_server *server, dl_listener *listener,
                     dl_window_served *window)
{
    if (!server->has_thread) {
        DL_TRY(start_thread(server, listener, window->ranks));
    }
    DL_TRY(event_new(&window->ending));
    pthread_mutex_lock(&server->lock);
    window->number = ++server->window_count;
    dl_list_append(&server->windows, &window->node);
    pthread_mutex_unlock(&server->lock);
    return DL_OK;
}

void
dl_window_server_remove(dl_window_server *server, dl_window_served *window)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    dl_list_remove(&window->node);
    end_window(server, window);
    pthread_mutex_unlock(&server->lock);
    dl_socket_close(window->ending);
}
