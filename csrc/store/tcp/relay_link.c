/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/thread.h"
#include "net/connect.h"
#include "net/socket.h"

/* How long one attempt may take once the host is reached, as for clients. */
#define ATTEMPT (5 * DL_SECOND)

/* The pauses between attempts: clients wait for the relay, so they are short. */
#define FIRST_PAUSE (20 * DL_MILLISECOND)
#define LAST_PAUSE DL_SECOND

/* Sets the descriptor that dl_relay_link_stop() shuts down. */
static void
set_connecting(dl_relay_link *link, int fd)
{
    pthread_mutex_lock(&link->lock);
    link->connecting = fd;
    if (fd >= 0 && atomic_load(&link->is_closed)) {
        shutdown(fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&link->lock);
}

static dl_status
greet_server(dl_relay_link *link, dl_connection *connection, dl_deadline deadline)
{
    DL_TRY(dl_connection_secure(connection, link->tls, deadline));
    DL_TRY(dl_connection_greet_relay(
        connection, dl_tls_proves_token(link->tls) ? NULL : link->secret, deadline));
    return connection->is_distlite
               ? DL_OK
               : dl_fail(DL_UNSUPPORTED,
                         "the store's server at %s is torch's, or of an older version, "
                         "which do not support relays",
                         connection->peer);
}

static dl_status
connect_once(dl_relay_link *link, dl_connection **made)
{
    dl_deadline deadline = dl_deadline_after(ATTEMPT);
    dl_connection *connection;
    int fd;

    DL_TRY(dl_socket_connect_once(link->host, link->port, deadline, &link->is_closed,
                                  &fd));
    DL_TRY(dl_connection_new(fd, &connection));
    set_connecting(link, fd);
    dl_status status = greet_server(link, connection, dl_deadline_after(ATTEMPT));
    set_connecting(link, -1);
    if (status != DL_OK) {
        dl_connection_free(connection, false);
        return status;
    }
    /* The handshake of a connection may sleep in the kernel; the loop must not. */
    const struct timeval none = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    *made = connection;
    return DL_OK;
}

/* Connects until it succeeds; returns NULL when the link is closed. */
static dl_connection *
connect_patiently(dl_relay_link *link)
{
    dl_connection *made = NULL;
    dl_status logged = DL_OK;
    int64_t pause = FIRST_PAUSE;

    while (!atomic_load(&link->is_closed)) {
        dl_status status = connect_once(link, &made);
        bool is_refused =
            status != DL_OK && status != DL_NETWORK && status != DL_TIMEOUT;
        if (is_refused && !atomic_exchange(&link->is_refused, is_refused)) {
            (void)eventfd_write(link->wake_fd, 1);
        }
        atomic_store(&link->is_refused, is_refused);
        if (status == DL_OK) {
            return made;
        }
        /* A server that is not there yet is the usual case; anything else is told
         * once. */
        if (status != logged && !atomic_load(&link->is_closed)) {
            dl_log(status == DL_NETWORK ? DL_LOG_INFO : DL_LOG_WARNING,
                   "store relay: %s; clients connect directly meanwhile",
                   dl_last_error()->text);
            logged = status;
        }
        pthread_mutex_lock(&link->lock);
        int64_t until = dl_now() + pause;
        while (!atomic_load(&link->is_closed)
               && dl_condition_wait_until(&link->condition, &link->lock, until)) {
        }
        pthread_mutex_unlock(&link->lock);
        pause = 2 * pause < LAST_PAUSE ? 2 * pause : LAST_PAUSE;
    }
    return NULL;
}

static void *
run_link(void *argument)
{
    dl_relay_link *link = argument;

    pthread_mutex_lock(&link->lock);
    while (!atomic_load(&link->is_closed)) {
        if (!link->is_wanted) {
            (void)dl_condition_wait_until(&link->condition, &link->lock, INT64_MAX);
            continue;
        }
        pthread_mutex_unlock(&link->lock);
        dl_connection *made = connect_patiently(link);
        pthread_mutex_lock(&link->lock);
        if (made != NULL) {
            link->made = made;
            link->is_wanted = false;
            (void)eventfd_write(link->wake_fd, 1);
        }
    }
    pthread_mutex_unlock(&link->lock);
    return NULL;
}

static void
free_link(dl_relay_link *link)
{
    dl_connection_free(link->made, false);
    dl_socket_close(link->wake_fd);
    dl_secret_unref(link->secret);
    dl_tls_unref(link->tls);
    free(link->host);
    pthread_cond_destroy(&link->condition);
    pthread_mutex_destroy(&link->lock);
}

static dl_status
prepare_link(dl_relay_link *link, const char *host, const char *tls)
{
    dl_tls_mode mode;

    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0) {
        return dl_fail(DL_INTERNAL, "eventfd: %s", strerror(errno));
    }
    dl_fork_guard(link->wake_fd);
    link->host = strdup(host);
    if (link->host == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(tls != NULL ? dl_tls_mode_from(tls, "tls", &mode) : dl_tls_mode_find(&mode));
    return dl_tls_new(mode, "store", link->secret, &link->tls);
}

dl_status
dl_relay_link_start(dl_relay_link *link, const char *host, uint16_t port,
                    dl_secret *secret, const char *tls)
{
    *link = (dl_relay_link){.port = port,
                            .secret = dl_secret_ref(secret),
                            .wake_fd = -1,
                            .connecting = -1,
                            .is_wanted = true};
    pthread_mutex_init(&link->lock, NULL);
    dl_condition_init(&link->condition);
    dl_status status = prepare_link(link, host, tls);
    if (status == DL_OK) {
        status = dl_thread_start(&link->thread, run_link, link);
    }
    if (status != DL_OK) {
        free_link(link);
    }
    return status;
}

void
dl_relay_link_stop(dl_relay_link *link)
{
    pthread_mutex_lock(&link->lock);
    atomic_store(&link->is_closed, true);
    if (link->connecting >= 0) {
        shutdown(link->connecting, SHUT_RDWR);
    }
    pthread_cond_broadcast(&link->condition);
    pthread_mutex_unlock(&link->lock);
    pthread_join(link->thread, NULL);
    free_link(link);
}

dl_connection *
dl_relay_link_take(dl_relay_link *link)
{
    eventfd_t unused;

    (void)eventfd_read(link->wake_fd, &unused);
    pthread_mutex_lock(&link->lock);
    dl_connection *made = link->made;
    link->made = NULL;
    pthread_mutex_unlock(&link->lock);
    return made;
}

void
dl_relay_link_want(dl_relay_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->is_wanted = true;
    pthread_cond_broadcast(&link->condition);
    pthread_mutex_unlock(&link->lock);
}
