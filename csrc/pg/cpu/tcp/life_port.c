/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/life_port.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "net/interface.h"
#include "net/socket.h"

typedef struct life_port {
    dl_address address; /* its port is 0 */
    int fd;
    int users; /* 0: the entry is free */
} life_port;

static struct {
    pthread_mutex_t lock;
    life_port ports[DL_INTERFACES_LIMIT]; /* guarded by lock */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A forked child has none of its parent's descriptors. */
static void
reset_table(void)
{
    table.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(table.ports, 0, sizeof table.ports);
}

__attribute__((constructor)) static void
reset_in_children(void)
{
    dl_reset_at_fork(reset_table);
}

/* Returns the entry of the address, or a free one; NULL: there is none. */
static life_port *
find_locked(const dl_address *at)
{
    life_port *found = NULL;

    for (int i = 0; i < DL_INTERFACES_LIMIT; i++) {
        life_port *one = &table.ports[i];
        bool is_same = one->users > 0 && dl_address_equal(&one->address, at);
        if (is_same || (one->users == 0 && found == NULL)) {
            found = one;
        }
        if (is_same) {
            break;
        }
    }
    return found;
}

static bool
listen_for_life(const dl_address *at, int *fd)
{
    if (!dl_socket_open(at->socket.any.sa_family, fd)) {
        return false;
    }
    if (bind(*fd, &at->socket.any, at->size) == 0 && listen(*fd, SOMAXCONN) == 0) {
        return true;
    }
    dl_socket_close(*fd);
    return false;
}

static dl_address
without_port(const dl_address *address)
{
    dl_address at = *address;

    at.socket.ip4.sin_port = 0; /* the port has the same offset in both families */
    return at;
}

uint16_t
dl_life_port_open(const dl_address *address)
{
    dl_address at = without_port(address);
    uint16_t port = 0;

    pthread_mutex_lock(&table.lock);
    life_port *found = find_locked(&at);
    if (found != NULL && (found->users > 0 || listen_for_life(&at, &found->fd))) {
        found->address = at;
        found->users++;
        port = dl_socket_port(found->fd);
    }
    pthread_mutex_unlock(&table.lock);
    return port;
}

void
dl_life_port_drop(const dl_address *address)
{
    dl_address at = without_port(address);

    pthread_mutex_lock(&table.lock);
    life_port *found = find_locked(&at);
    if (found != NULL && found->users > 0 && --found->users == 0) {
        dl_socket_close(found->fd);
    }
    pthread_mutex_unlock(&table.lock);
}
