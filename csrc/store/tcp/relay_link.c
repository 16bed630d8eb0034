/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_link.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/thread.h"
#include "net/connect.h"
#include "net/socket.h"

/* How long one attempt may take. */
#define ATTEMPT (10 * DL_SECOND)

static dl_status
connect_once(dl_relay_link *link, dl_connection **made)
{
    const dl_slot none = {.sequence = 0};
    dl_connection *opened;

    /* A server that was started again without a journal is another one, which clients
     * find out themselves. */
    dl_connection_pool_set_joined(&link->pool, &(dl_server_identity){0});
    DL_TRY(dl_connection_pool_open(&link->pool, &none, NULL, dl_deadline_after(ATTEMPT),
                                   &opened));
    if (!opened->is_distlite) {
        dl_status status =
            dl_fail(DL_UNSUPPORTED,
                    "the store's server at %s is torch's, or of an older version, "
                    "which do not support relays",
                    opened->peer);
        dl_connection_pool_give(&link->pool, opened);
        return status;
    }
    /* The handshake of a connection may sleep in the kernel; the loop must not. */
    const struct timeval no_wait = {0};
    (void)setsockopt(opened->fd, SOL_SOCKET, SO_RCVTIMEO, &no_wait, sizeof no_wait);
    *made = opened;
    return DL_OK;
}

/* Connects until it succeeds; returns NULL when the link is closed. */
static dl_connection *
connect_patiently(dl_relay_link *link)
{
    dl_connection *made = NULL;
    dl_status logged = DL_OK;
    dl_backoff backoff = {0};

    do {
        dl_status status = connect_once(link, &made);
        bool is_refused =
            status != DL_OK && status != DL_NETWORK && status != DL_TIMEOUT;
        if (!atomic_exchange(&link->is_refused, is_refused) && is_refused) {
            (void)eventfd_write(link->wake_fd, 1);
        }
        /* A server that is not there yet is the usual case; anything else is told
         * once. */
        if (status != DL_OK && status != logged && status != DL_CANCELLED) {
            dl_log(status == DL_NETWORK ? DL_LOG_INFO : DL_LOG_WARNING,
                   "store relay: %s; clients connect directly meanwhile",
                   dl_last_error()->text);
            logged = status;
        }
    } while (made == NULL
             && dl_backoff_sleep(&backoff, dl_deadline_after(-1), &link->pool.is_closed)
                    == DL_OK);
    return made;
}

static void *
run_link(void *argument)
{
    dl_relay_link *link = argument;

    for (;;) {
        while (sem_wait(&link->wanted) != 0) {
        }
        if (atomic_load(&link->pool.is_closed)) {
            return NULL;
        }
        atomic_store(&link->made, connect_patiently(link));
        (void)eventfd_write(link->wake_fd, 1);
    }
}

static void
free_link(dl_relay_link *link)
{
    dl_connection_pool_fini(&link->pool, false);
    dl_socket_close(link->wake_fd);
    sem_destroy(&link->wanted);
}

static dl_status
prepare_link(dl_relay_link *link, const char *host, uint16_t port, dl_secret *secret,
             const char *mode)
{
    dl_tls *tls;

    DL_TRY(dl_connection_tls(mode, secret, &tls));
    dl_status status = dl_connection_pool_init(&link->pool, host, port, secret, tls);
    dl_tls_unref(tls);
    DL_TRY(status);
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0) {
        return dl_fail(DL_INTERNAL, "eventfd: %s", strerror(errno));
    }
    dl_fork_guard(link->wake_fd);
    return dl_thread_start(&link->thread, run_link, link);
}

dl_status
dl_relay_link_start(dl_relay_link *link, const char *host, uint16_t port,
                    dl_secret *secret, const char *tls)
{
    *link = (dl_relay_link){.wake_fd = -1};
    sem_init(&link->wanted, 0, 1);
    dl_status status = prepare_link(link, host, port, secret, tls);
    if (status != DL_OK) {
        free_link(link);
    }
    return status;
}

void
dl_relay_link_stop(dl_relay_link *link)
{
    if (link->pool.host == NULL) {
        return; /* it was not started */
    }
    dl_connection_pool_close(&link->pool);
    sem_post(&link->wanted);
    pthread_join(link->thread, NULL);
    free_link(link);
}

dl_connection *
dl_relay_link_take(dl_relay_link *link)
{
    eventfd_t unused;

    (void)eventfd_read(link->wake_fd, &unused);
    return atomic_exchange(&link->made, NULL);
}

void
dl_relay_link_replace(dl_relay_link *link, dl_connection *lost)
{
    lost->is_clean = false;
    dl_connection_pool_give(&link->pool, lost);
    sem_post(&link->wanted);
}
