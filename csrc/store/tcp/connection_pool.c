/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/connection_pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/connect.h"
#include "net/socket.h"

static dl_connection *
connection_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_connection, node);
}

dl_status
dl_connection_pool_init(dl_connection_pool *pool, const char *host, uint16_t port)
{
    *pool = (dl_connection_pool){.port = port, .host = strdup(host)};
    pthread_mutex_init(&pool->lock, NULL);
    dl_list_init(&pool->idle);
    dl_list_init(&pool->busy);
    return pool->host == NULL ? dl_fail_no_memory() : DL_OK;
}

static void
free_all(dl_list *head, bool is_inherited)
{
    while (!dl_list_is_empty(head)) {
        dl_connection *connection = connection_of(head->next);
        dl_list_remove(&connection->node);
        dl_connection_free(connection, is_inherited);
    }
}

void
dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited)
{
    free_all(&pool->idle, is_inherited);
    /* Only a child finds any: its parent's threads are using them, over there. */
    free_all(&pool->busy, is_inherited);
    /* A child's copy may be locked for ever, by a thread that is not there. */
    if (!is_inherited) {
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool->host);
    pool->host = NULL;
}

/* The idle connection used last, now busy. */
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

/* Under the lock, so that dl_connection_pool_close() shuts down no descriptor that has
 * become somebody else's. */
static void
discard(dl_connection_pool *pool, dl_connection *connection)
{
    pthread_mutex_lock(&pool->lock);
    dl_list_remove(&connection->node);
    pthread_mutex_unlock(&pool->lock);
    dl_connection_free(connection, false);
}

dl_connection *
dl_connection_pool_take(dl_connection_pool *pool, bool is_careful)
{
    dl_connection *connection = take_last(pool);

    while (connection != NULL && is_careful && dl_socket_is_stale(connection->fd)) {
        discard(pool, connection);
        connection = take_last(pool);
    }
    if (connection != NULL) {
        connection->has_sent = false;
    }
    return connection;
}

/* Under the lock, so that a pool that closes either sees the connection or is seen to be
 * closed. */
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

dl_status
dl_connection_pool_open(dl_connection_pool *pool, const dl_store_request *first,
                        dl_deadline deadline, dl_connection **connection)
{
    dl_connection *opened = NULL;
    int fd = -1;

    DL_TRY(dl_socket_connect_once(pool->host, pool->port, deadline, &pool->is_closed,
                                  &fd));
    DL_TRY(dl_connection_new(fd, &opened));
    dl_status status = register_busy(pool, opened);
    if (status == DL_OK) {
        /* Busy already: closing the pool ends the handshake. */
        status = dl_connection_greet(opened, first, deadline);
    }
    if (status != DL_OK) {
        discard(pool, opened);
        return status;
    }
    *connection = opened;
    return DL_OK;
}

/* Freed outside the lock: closing a socket may take the kernel a while. */
void
dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection)
{
    bool is_kept = false;

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
    /* Zeros where the list was never initialised: a store may fail before it gets its
     * pool, and is closed all the same. */
    bool has_busy = !dl_list_is_empty(&pool->busy);
    for (dl_list *node = pool->busy.next; has_busy && node != &pool->busy;
         node = node->next) {
        /* Its call reads an end of stream, and closes it. */
        shutdown(connection_of(node)->fd, SHUT_RDWR);
    }
    free_all(&pool->idle, false);
    pool->idle_size = 0;
    pthread_mutex_unlock(&pool->lock);
}

int
dl_connection_pool_ends(dl_connection_pool *pool, dl_address *local, dl_address *peer)
{
    int fd = -1;

    pthread_mutex_lock(&pool->lock);
    dl_list *head = dl_list_is_empty(&pool->idle) ? &pool->busy : &pool->idle;
    if (!dl_list_is_empty(head)) {
        fd = connection_of(head->previous)->fd;
        if (dl_socket_local_address(fd, local) != DL_OK
            || dl_socket_peer_address(fd, peer) != DL_OK) {
            fd = -1;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return fd;
}
