/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/master.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/environment.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/listen.h"
#include "net/socket.h"
#include "store/tcp/server.h"

struct dl_master {
    dl_list node; /* guarded by registry_lock, like the next two */
    bool is_shared;
    size_t owners;
    /* fixed after init */
    dl_server *server;
    uint16_t port;
    dl_address address;
    dev_t device; /* device and inode identify the listening socket */
    ino_t inode;
    uint32_t fork_generation;
    char *journal; /* the path as given, or NULL */
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by registry_lock */
static dl_list all_masters = {&all_masters, &all_masters};

static const dl_loop_ops *
choose_loop(bool use_libuv)
{
    const dl_loop_ops *libuv = dl_loop_uv_ops();

    if (use_libuv && libuv == NULL) {
        /* Not a warning: torch's programs ask for libuv by default, and clients see no
         * difference. */
        dl_log(DL_LOG_INFO, "this build has no libuv: the store is served by epoll");
    }
    return use_libuv && libuv != NULL ? libuv : &dl_loop_epoll_ops;
}

/* Adds an owner to the shared server of `port` and returns it; NULL when there is none.
 * A server that was inherited by fork(2) does not count: its thread runs in the
 * parent. */
static dl_master *
join_shared(uint16_t port)
{
    dl_master *found = NULL;

    pthread_mutex_lock(&registry_lock);
    for (dl_list *node = all_masters.next; node != &all_masters && found == NULL;
         node = node->next) {
        dl_master *master = DL_LIST_ENTRY(node, dl_master, node);
        if (master->is_shared && master->port == port
            && master->fork_generation == dl_fork_generation()) {
            master->owners++;
            found = master;
        }
    }
    pthread_mutex_unlock(&registry_lock);
    return found;
}

bool
dl_master_serves(int fd)
{
    struct stat file;
    bool is_found = false;

    if (fd < 0 || fstat(fd, &file) != 0) {
        return false;
    }
    pthread_mutex_lock(&registry_lock);
    for (dl_list *node = all_masters.next; node != &all_masters; node = node->next) {
        const dl_master *master = DL_LIST_ENTRY(node, dl_master, node);
        is_found |= master->device == file.st_dev && master->inode == file.st_ino
                    && master->fork_generation == dl_fork_generation();
    }
    pthread_mutex_unlock(&registry_lock);
    return is_found;
}

/* Torch's launcher runs the server of its workers' store itself, and says so in the
 * environment. */
static bool
is_served_by_agent(uint16_t port)
{
    const char *master_port = getenv("MASTER_PORT");

    return dl_environment_is_on("TORCHELASTIC_USE_AGENT_STORE") && master_port != NULL
           && atoi(master_port) == port;
}

static dl_status
open_listener(const dl_tcp_store_options *options, dl_deadline deadline, int *fd)
{
    if (options->listen_fd < 0) {
        return dl_socket_listen(options->host, options->port, deadline, fd);
    }
    dl_status status = dl_socket_adopt(options->listen_fd, options->port);
    if (status != DL_OK) {
        dl_socket_close(options->listen_fd);
        return status;
    }
    *fd = options->listen_fd;
    return DL_OK;
}

/* Logs a warning for a server that strangers on the network can use. */
static void
warn_if_open(const dl_master *master, const dl_tcp_store_options *options,
             const dl_tls *tls)
{
    char address[DL_ADDRESS_TEXT_SIZE];

    if (options->secret != NULL || tls != NULL || master->address.size == 0
        || dl_address_is_loopback(&master->address)) {
        return;
    }
    dl_address_text(&master->address, address);
    dl_log(DL_LOG_WARNING,
           "the TCPStore at %s serves everybody who can connect to it: set "
           "DISTLITE_TOKEN on all processes of the job",
           address);
}

/* Starts a server on `fd`, which it takes, also on failure.  If TLS proves the token,
 * it is not proved again inside the connection. */
static dl_status
start_serving(const dl_tcp_store_options *options, dl_tls *tls, int fd,
              dl_master **master)
{
    dl_master *made = calloc(1, sizeof *made);

    if (made == NULL) {
        dl_socket_close(fd);
        return dl_fail_no_memory();
    }
    made->owners = 1;
    /* Not options->port, which may be 0: the kernel has chosen a port by now. */
    made->port = dl_socket_port(fd);
    made->fork_generation = dl_fork_generation();
    struct stat file = {0};
    (void)fstat(fd, &file);
    made->device = file.st_dev;
    made->inode = file.st_ino;
    (void)dl_socket_local_address(fd, &made->address);
    if (options->journal != NULL) {
        made->journal = strdup(options->journal);
        if (made->journal == NULL) {
            dl_socket_close(fd);
            free(made);
            return dl_fail_no_memory();
        }
    }
    const dl_server_options served = {
        .secret = dl_tls_proves_token(tls) ? NULL : options->secret,
        .tls = tls,
        .journal = made->journal,
        .sync = options->sync,
    };
    dl_status status =
        dl_server_start(choose_loop(options->use_libuv), fd, &served, &made->server);
    if (status != DL_OK) {
        free(made->journal);
        free(made);
        return status;
    }
    pthread_mutex_lock(&registry_lock);
    made->is_shared = options->multi_tenant;
    dl_list_append(&all_masters, &made->node);
    pthread_mutex_unlock(&registry_lock);
    warn_if_open(made, options, tls);
    *master = made;
    return DL_OK;
}

/* Releases the share in a server and fails with DL_INVALID if the server does not keep
 * the journal that was asked for. */
static dl_status
check_journal(dl_master **master, const dl_tcp_store_options *options)
{
    const char *held = (*master)->journal;

    if (options->journal == NULL
        || (held != NULL && strcmp(held, options->journal) == 0)) {
        return DL_OK;
    }
    dl_status status = dl_fail(
        DL_INVALID,
        "journal=%s: the server of port %u, which multi_tenant=True shares, %s; "
        "pass the journal to the store that is made first",
        options->journal, (*master)->port,
        held == NULL ? "has none" : "has another one");
    dl_master_stop(*master);
    *master = NULL;
    return status;
}

dl_status
dl_master_start(const dl_tcp_store_options *options, dl_tls *tls, dl_deadline deadline,
                dl_master **master)
{
    /* Port 0 asks for a new port, which no other master can have. */
    bool may_join = options->multi_tenant && options->port != 0;
    int fd = -1;

    *master = NULL;
    if (dl_master_serves(options->listen_fd)) {
        /* The descriptor stays open: it may be the very one that is served. */
        return dl_fail(DL_INVALID,
                       "master_listen_fd=%d is the socket of another TCPStore of this "
                       "process; give each its own, or leave it out and let "
                       "multi_tenant=True share the server of a port",
                       options->listen_fd);
    }
    *master = may_join ? join_shared(options->port) : NULL;
    if (*master != NULL) {
        dl_socket_close(options->listen_fd);
        return check_journal(master, options);
    }
    dl_status status = open_listener(options, deadline, &fd);
    if (status == DL_OK) {
        return start_serving(options, tls, fd, master);
    }
    /* Another thread may have started a server on this port since join_shared()
     * failed. */
    *master = may_join ? join_shared(options->port) : NULL;
    if (*master != NULL) {
        return check_journal(master, options);
    }
    if (status == DL_NETWORK && is_served_by_agent(options->port)) {
        dl_log(DL_LOG_INFO, "port %u is served by the launcher's agent: %s",
               options->port, dl_last_error()->text);
        return DL_OK;
    }
    return status;
}

bool
dl_master_is_private(const dl_master *master, char address[DL_ADDRESS_TEXT_SIZE])
{
    bool is_private =
        master->address.size > 0 && dl_address_is_loopback(&master->address);

    if (is_private) {
        dl_address_text(&master->address, address);
    }
    return is_private;
}

uint16_t
dl_master_port(const dl_master *master)
{
    return master->port;
}

void
dl_master_stop(dl_master *master)
{
    if (master == NULL) {
        return;
    }
    pthread_mutex_lock(&registry_lock);
    bool is_last = --master->owners == 0;
    if (is_last) {
        dl_list_remove(&master->node);
    }
    pthread_mutex_unlock(&registry_lock);
    /* Without the lock, since stopping joins a thread.  A master that is started on
     * this port meanwhile finds it in use, as it would in another process. */
    if (is_last) {
        dl_server_stop(master->server);
        free(master->journal);
        free(master);
    }
}
