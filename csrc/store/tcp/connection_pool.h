/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The connections of one client to one server.  Every call takes one for itself, so that
 * a blocked call never delays another; the most recently used goes out first, and a few
 * idle ones are kept.  Those in use are known too, so that closing wakes their calls. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_POOL_H
#define DISTLITE_STORE_TCP_CONNECTION_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/list.h"
#include "base/status.h"
#include "net/address.h"
#include "store/tcp/connection.h"

/* Idle connections kept: the threads of a usual process. */
#define DL_POOL_IDLE_LIMIT 8

typedef struct dl_connection_pool {
    char *host;    /* fixed after init */
    uint16_t port; /* fixed after init */
    atomic_bool is_closed;
    pthread_mutex_t lock;
    dl_list idle;       /* guarded by lock; the last was used last */
    dl_list busy;       /* guarded by lock */
    uint32_t idle_size; /* guarded by lock */
} dl_connection_pool;

dl_status dl_connection_pool_init(dl_connection_pool *pool, const char *host,
                                  uint16_t port);

/* Nobody may be using it any more.  `is_inherited` as in dl_connection_free(). */
void dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited);

/* An idle connection, or NULL.  A careful caller gets none that the server has closed:
 * for requests that must not be lost on the way. */
dl_connection *dl_connection_pool_take(dl_connection_pool *pool, bool is_careful);

/* A new connection, in one round of connecting, which has introduced itself; `first` as
 * in dl_connection_greet(). */
dl_status dl_connection_pool_open(dl_connection_pool *pool,
                                  const dl_store_request *first, dl_deadline deadline,
                                  dl_connection **connection);

/* Gives back what was taken or opened: kept if it is clean and there is room. */
void dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection);

/* Closes the idle ones: after one connection was lost the others are lost, too. */
void dl_connection_pool_drop_idle(dl_connection_pool *pool);

/* Ends every conversation: calls under way fail, later ones get no connection. */
void dl_connection_pool_close(dl_connection_pool *pool);

/* Both ends of any one of the connections and its descriptor; -1 when there is none. */
int dl_connection_pool_ends(dl_connection_pool *pool, dl_address *local,
                            dl_address *peer);

#endif
