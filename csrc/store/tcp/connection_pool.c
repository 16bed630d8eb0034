/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/connection_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/connect.h"
#include "net/socket.h"
#include "store/tcp/relay_client.h"
#include "store/tcp/server_variable.h"

static dl_connection *
connection_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_connection, node);
}

dl_status
dl_connection_pool_init(dl_connection_pool *pool, const char *host, uint16_t port,
                        dl_secret *secret, dl_tls *tls)
{
    *pool = (dl_connection_pool){.port = port,
                                 .host = strdup(host),
                                 .secret = dl_secret_ref(secret),
                                 .tls = dl_tls_ref(tls)};
    pthread_mutex_init(&pool->lock, NULL);
    dl_list_init(&pool->idle);
    dl_list_init(&pool->busy);
    if (pool->host == NULL) {
        return dl_fail_no_memory();
    }
    return dl_standby_find(host, port, &pool->standby, &pool->standby_port);
}

static void
free_all(dl_list *head, bool is_inherited)
{
    while (!dl_list_is_empty(head)) {
        dl_connection *connection = connection_of(head->next);
        dl_list_remove(&connection->node);
        if (!is_inherited) {
            dl_connection_leave(connection);
        }
        dl_connection_free(connection, is_inherited);
    }
}

void
dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited)
{
    free_all(&pool->idle, is_inherited);
    /* Not empty only in a forked child: the parent's threads are using these. */
    free_all(&pool->busy, is_inherited);
    /* In a forked child the mutex may be held by a thread that does not exist there. */
    if (!is_inherited) {
        pthread_mutex_destroy(&pool->lock);
    }
    dl_secret_unref(pool->secret);
    pool->secret = NULL;
    dl_tls_unref(pool->tls);
    pool->tls = NULL;
    free(pool->host);
    pool->host = NULL;
    free(pool->standby);
    pool->standby = NULL;
}

/* Moves the most recently used idle connection to the busy ones and returns it; NULL
 * when none is idle. */
static dl_connection *
take_last(dl_connection_pool *pool)
{
    dl_connection *connection = NULL;

    pthread_mutex_lock(&pool->lock);
    if (!dl_list_is_empty(&pool->idle)) {
        connection = connection_of(pool->idle.previous);
        dl_list_remove(&connection->node);
        pool->idle_size--;
        dl_list_append(&pool->busy, &connection->node);
    }
    pthread_mutex_unlock(&pool->lock);
    return connection;
}

/* Leaves the list before the descriptor is closed, so that dl_connection_pool_close()
 * never shuts down a number that has been reused. */
static void
discard_connection(dl_connection_pool *pool, dl_connection *connection)
{
    pthread_mutex_lock(&pool->lock);
    dl_list_remove(&connection->node);
    pthread_mutex_unlock(&pool->lock);
    dl_connection_free(connection, false);
}

/* Our server remembers the slot of a lost connection for longer than this. */
#define SURELY_REMEMBERED (500 * DL_MILLISECOND)

static bool
may_be_forgotten(const dl_connection *connection)
{
    return !connection->is_distlite
           || connection->idle_since + SURELY_REMEMBERED < dl_now();
}

dl_connection *
dl_connection_pool_take(dl_connection_pool *pool, bool is_careful)
{
    dl_connection *connection = take_last(pool);

    while (connection != NULL && is_careful && may_be_forgotten(connection)
           && dl_socket_is_stale(connection->fd)) {
        discard_connection(pool, connection);
        connection = take_last(pool);
    }
    return connection;
}

/* Checks and registers under one lock: either dl_connection_pool_close() finds the
 * connection in the list, or this finds the pool closed and returns DL_CANCELLED. */
static dl_status
register_busy(dl_connection_pool *pool, dl_connection *connection)
{
    pthread_mutex_lock(&pool->lock);
    bool is_closed = atomic_load(&pool->is_closed);
    if (!is_closed) {
        dl_list_append(&pool->busy, &connection->node);
    }
    pthread_mutex_unlock(&pool->lock);
    return is_closed ? dl_fail(DL_CANCELLED, "closed while connecting") : DL_OK;
}

dl_server_identity
dl_connection_pool_joined(dl_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    dl_server_identity joined = pool->joined;
    pthread_mutex_unlock(&pool->lock);
    return joined;
}

void
dl_connection_pool_set_joined(dl_connection_pool *pool,
                              const dl_server_identity *joined)
{
    pthread_mutex_lock(&pool->lock);
    pool->joined = *joined;
    pthread_mutex_unlock(&pool->lock);
}

/* Notes the shortcut that the server has told over TCP, if this client is on its host: the
 * kernel gives both ends of a connection within a host the same address, unless one of them
 * has chosen another.  A server that is started again has another name.  Called with the
 * lock held. */
static void
note_shortcut(dl_connection_pool *pool, const dl_connection *connection)
{
    const dl_shortcut *told = &connection->server.shortcut;
    dl_address local, peer;

    if (!pool->takes_shortcut || connection->is_local || told->port != pool->port
        || strcmp(told->name, pool->shortcut) == 0
        || dl_socket_local_address(connection->fd, &local) != DL_OK
        || dl_socket_peer_address(connection->fd, &peer) != DL_OK) {
        return;
    }
    pool->local = local;
    pool->peer = peer;
    memcpy(pool->shortcut, told->name, sizeof pool->shortcut);
    pool->is_shortcut_usable =
        dl_bytes_equal(dl_address_bytes(&local), dl_address_bytes(&peer));
}

/* Joins the server that the first connection has reached, and compares those that later
 * ones reach with it. */
static dl_status
check_identity(dl_connection_pool *pool, const dl_connection *connection)
{
    dl_server_identity met = {.is_known = true, .is_distlite = connection->is_distlite};

    if (met.is_distlite) {
        memcpy(met.bytes, connection->server.identity, sizeof met.bytes);
    }
    pthread_mutex_lock(&pool->lock);
    if (!pool->joined.is_known) {
        pool->joined = met;
    }
    bool is_same = pool->joined.is_distlite == met.is_distlite
                   && memcmp(pool->joined.bytes, met.bytes, sizeof met.bytes) == 0;
    if (is_same) {
        note_shortcut(pool, connection);
    }
    pthread_mutex_unlock(&pool->lock);
    return is_same ? DL_OK
                   : dl_fail(DL_MISMATCH,
                             "the store at %s:%u is another server than the one this "
                             "client joined, which has ended: its keys are gone, and "
                             "no request was sent to the new server. To join it, "
                             "create a new TCPStore",
                             pool->host, pool->port);
}

/* The relay has proved the token and speaks TLS in the name of this user's processes.
 * The addresses come once it is connected to the server. */
static dl_status
follow_relay(dl_connection_pool *pool, dl_connection *opened, dl_deadline deadline)
{
    dl_address local, peer;

    DL_TRY(dl_connection_take_addresses(opened, deadline, &local, &peer));
    dl_address_text(&peer, opened->peer);
    pthread_mutex_lock(&pool->lock);
    pool->local = local;
    pool->peer = peer;
    pthread_mutex_unlock(&pool->lock);
    return DL_OK;
}

/* Performs the handshake on a new connection, which it frees on failure. */
static dl_status
handshake(dl_connection_pool *pool, dl_connection *opened, const dl_slot *slot,
          const dl_store_request *first, dl_deadline deadline)
{
    if (slot != NULL) {
        opened->slot = *slot;
    }
    dl_status status = register_busy(pool, opened);
    if (status == DL_OK) {
        /* The connection is listed already, so that closing the pool ends the
         * handshake. */
        status = opened->is_relayed ? follow_relay(pool, opened, deadline)
                                    : dl_connection_secure(opened, pool->tls, deadline);
    }
    if (status == DL_OK) {
        dl_secret *proved =
            opened->is_relayed || dl_tls_proves_token(pool->tls) ? NULL : pool->secret;
        status = dl_connection_greet(opened, proved, first, deadline);
    }
    if (status == DL_OK) {
        status = check_identity(pool, opened);
    }
    if (status != DL_OK) {
        discard_connection(pool, opened);
    }
    return status;
}

static dl_status
open_at(dl_connection_pool *pool, bool is_standby, const dl_slot *slot,
        const dl_store_request *first, dl_deadline deadline, dl_connection **connection)
{
    dl_connection *opened;
    int fd = -1;

    DL_TRY(dl_socket_connect_once(is_standby ? pool->standby : pool->host,
                                  is_standby ? pool->standby_port : pool->port,
                                  deadline, &pool->is_closed, &fd));
    DL_TRY(dl_connection_new(fd, &opened));
    DL_TRY(handshake(pool, opened, slot, first, deadline));
    *connection = opened;
    return DL_OK;
}

/* Returns whether the failure ends the call, rather than the attempt to use shortcut,
 * relay or one of two addresses. */
static bool
ends_call(dl_status status)
{
    return status == DL_INTERRUPTED || status == DL_CANCELLED;
}

/* With two addresses, the longest wait for the one that was reached last. */
#define STANDBY_PATIENCE (3 * DL_SECOND)

static dl_status
open_tcp(dl_connection_pool *pool, const dl_slot *slot, const dl_store_request *first,
         dl_deadline deadline, dl_connection **connection)
{
    bool is_standby = atomic_load(&pool->is_at_standby);

    if (pool->standby == NULL) {
        return open_at(pool, false, slot, first, deadline, connection);
    }
    int64_t half = dl_deadline_left(deadline) / 2;
    dl_status status =
        open_at(pool, is_standby, slot, first,
                dl_deadline_earlier(deadline,
                                    half < STANDBY_PATIENCE ? half : STANDBY_PATIENCE),
                connection);
    if (status != DL_OK && !ends_call(status)) {
        status = open_at(pool, !is_standby, slot, first, deadline, connection);
        if (status == DL_OK) {
            atomic_store(&pool->is_at_standby, !is_standby);
        }
    }
    return status;
}

/* How long the server may take to answer a handshake over the shortcut, which takes
 * about as long as one over TCP. */
#define SHORTCUT_PATIENCE DL_SECOND

static bool
has_shortcut(dl_connection_pool *pool, char name[DL_LOCAL_NAME_SIZE])
{
    pthread_mutex_lock(&pool->lock);
    bool has = pool->is_shortcut_usable;
    memcpy(name, pool->shortcut, sizeof pool->shortcut);
    pthread_mutex_unlock(&pool->lock);
    return has;
}

/* Texts about the connection name the address that the program knows. */
static dl_status
try_shortcut(dl_connection_pool *pool, const char *name, const dl_slot *slot,
             dl_deadline deadline, dl_connection **connection)
{
    dl_connection *opened;
    int fd;

    DL_TRY(dl_local_service_connect(name, &fd));
    DL_TRY(dl_connection_new(fd, &opened));
    opened->is_local = true;
    pthread_mutex_lock(&pool->lock);
    dl_address_text(&pool->peer, opened->peer);
    pthread_mutex_unlock(&pool->lock);
    dl_status status = handshake(pool, opened, slot, NULL,
                                 dl_deadline_earlier(deadline, SHORTCUT_PATIENCE));
    if (status != DL_OK) {
        /* DL_TIMEOUT means that too many clients wait to be accepted. */
        return status == DL_TIMEOUT ? dl_fail(DL_NETWORK, "%s", dl_last_error()->text)
                                    : status;
    }
    *connection = opened;
    return DL_OK;
}

/* A shortcut that does not work is not tried again, unless clients are only too many. */
static dl_status
open_shortcut(dl_connection_pool *pool, const char *name, const dl_slot *slot,
              dl_deadline deadline, dl_connection **connection)
{
    dl_status status = try_shortcut(pool, name, slot, deadline, connection);

    if (status == DL_OK) {
        dl_log(DL_LOG_INFO, "The client socket to (%s, %u) has moved to @%s.",
               pool->host, pool->port, name);
    } else if (!ends_call(status)) {
        dl_log(DL_LOG_INFO, "The client socket to (%s, %u) stays with TCP: %s",
               pool->host, pool->port, dl_last_error()->text);
        pthread_mutex_lock(&pool->lock);
        pool->is_shortcut_usable = status == DL_TIMEOUT;
        pthread_mutex_unlock(&pool->lock);
    }
    return status;
}

/* How long connections lead to the server directly after the relay did not answer. */
#define RELAY_PAUSE (5 * DL_SECOND)

/* The longest wait for a relay that lives and is not connected to the server. */
#define RELAY_CONNECTING (5 * DL_SECOND)

static void
avoid_relay(dl_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool is_told = pool->is_relay_told;
    pool->is_relay_told = true;
    pool->relay_from = dl_now() + RELAY_PAUSE;
    pthread_mutex_unlock(&pool->lock);
    if (!is_told) {
        dl_log(DL_LOG_WARNING, "%s; connecting to the server directly",
               dl_last_error()->text);
    }
}

static bool
has_relay(dl_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool has = pool->relay[0] != '\0' && pool->relay_from <= dl_now();
    pthread_mutex_unlock(&pool->lock);
    return has;
}

/* Half of the time is left to a direct connection, which also tells what is wrong if it
 * is the server. */
static dl_status
open_relayed(dl_connection_pool *pool, const dl_slot *slot,
             const dl_store_request *first, dl_deadline deadline,
             dl_connection **connection)
{
    int64_t half = dl_deadline_left(deadline) / 2;
    dl_connection *opened;
    int fd;

    dl_status status = dl_relay_connect(pool->relay, &fd);
    if (status != DL_OK) {
        if (status == DL_TIMEOUT) {
            avoid_relay(pool);
        }
        return status;
    }
    DL_TRY(dl_connection_new(fd, &opened));
    opened->is_local = true;
    opened->is_relayed = true;
    memcpy(opened->relay, pool->relay, sizeof opened->relay);
    snprintf(opened->peer, sizeof opened->peer, "%s:%u", pool->host, pool->port);
    DL_TRY(handshake(pool, opened, slot, first,
                     dl_deadline_earlier(
                         deadline, half < RELAY_CONNECTING ? half : RELAY_CONNECTING)));
    *connection = opened;
    return DL_OK;
}

/* After a failure over the shortcut the server may have ended, or been restarted under
 * another name, so TCP is tried. */
dl_status
dl_connection_pool_open(dl_connection_pool *pool, const dl_slot *slot,
                        const dl_store_request *first, dl_deadline deadline,
                        dl_connection **connection)
{
    char name[DL_LOCAL_NAME_SIZE];

    if (has_relay(pool)) {
        dl_status status = open_relayed(pool, slot, first, deadline, connection);
        if (status == DL_OK || ends_call(status)) {
            return status;
        }
        dl_log(DL_LOG_INFO, "The client socket to (%s, %u) uses no relay: %s",
               pool->host, pool->port, dl_last_error()->text);
    }
    if (first == NULL && has_shortcut(pool, name)) {
        dl_status status = open_shortcut(pool, name, slot, deadline, connection);
        if (status == DL_OK || ends_call(status)) {
            return status;
        }
    }
    return open_tcp(pool, slot, first, deadline, connection);
}

bool
dl_connection_pool_is_due(dl_connection_pool *pool, const dl_connection *connection)
{
    uint32_t worth = pool->tls == NULL ? DL_SHORTCUT_WORTH : DL_SHORTCUT_WORTH_TLS;
    char name[DL_LOCAL_NAME_SIZE];

    return connection->uses == worth && !connection->is_local
           && has_shortcut(pool, name);
}

dl_status
dl_connection_pool_take_shortcut(dl_connection_pool *pool, dl_connection **connection,
                                 dl_deadline deadline)
{
    dl_connection *old = *connection;
    char name[DL_LOCAL_NAME_SIZE];

    old->uses = 0;
    (void)has_shortcut(pool, name);
    dl_status status = open_shortcut(pool, name, NULL, deadline, connection);
    if (status == DL_OK) {
        dl_connection_leave(old);
        discard_connection(pool, old);
    } else if (ends_call(status)) {
        dl_connection_pool_give(pool, old);
        return status;
    }
    return DL_OK;
}

/* Freed outside the lock: closing a socket may take the kernel a while. */
void
dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection)
{
    bool is_kept = false;

    if (connection->is_relay_silent) {
        avoid_relay(pool);
    }
    connection->idle_since = dl_now();
    connection->uses++;
    pthread_mutex_lock(&pool->lock);
    dl_list_remove(&connection->node);
    if (connection->is_clean && pool->idle_size < DL_POOL_IDLE_LIMIT
        && !atomic_load(&pool->is_closed)) {
        dl_list_append(&pool->idle, &connection->node);
        pool->idle_size++;
        is_kept = true;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept) {
        dl_connection_leave(connection);
        dl_connection_free(connection, false);
    }
}

void
dl_connection_pool_drop_idle(dl_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    free_all(&pool->idle, false);
    pool->idle_size = 0;
    pthread_mutex_unlock(&pool->lock);
}

void
dl_connection_pool_close(dl_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->is_closed, true);
    /* A store that failed before its pool was initialised is closed as well: its lists
     * are zeroed and count as empty. */
    bool has_busy = !dl_list_is_empty(&pool->busy);
    for (dl_list *node = pool->busy.next; has_busy && node != &pool->busy;
         node = node->next) {
        /* The call that uses it reads an end of stream and closes the descriptor. */
        shutdown(connection_of(node)->fd, SHUT_RDWR);
    }
    free_all(&pool->idle, false);
    pool->idle_size = 0;
    pthread_mutex_unlock(&pool->lock);
}

int
dl_connection_pool_addresses(dl_connection_pool *pool, dl_address *local,
                             dl_address *peer)
{
    int fd = -1;

    pthread_mutex_lock(&pool->lock);
    dl_list *head = dl_list_is_empty(&pool->idle) ? &pool->busy : &pool->idle;
    if (!dl_list_is_empty(head)) {
        const dl_connection *connection = connection_of(head->previous);
        fd = connection->fd;
        *local = pool->local;
        *peer = pool->peer;
        if (!connection->is_local
            && (dl_socket_local_address(fd, local) != DL_OK
                || dl_socket_peer_address(fd, peer) != DL_OK)) {
            fd = -1;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return fd;
}
