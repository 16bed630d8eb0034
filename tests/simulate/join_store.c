/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The store of the stage "join".  Its server has a host of its own, and no faults. */
#include "net/listen.h"
#include "stage_join.h"
#include "store/prefix_store.h"
#include "store/tcp/server.h"
#include "store/tcp/tcp_store.h"

#define HOST 0
#define STOP_LIMIT (10000 * DL_SECOND)

static bool is_stopping;
static bool has_stopped;

static bool
must_stop(void *context)
{
    (void)context;
    return is_stopping;
}

static void *
run_server(void *argument)
{
    const dl_server_options options = {.journal = NULL};
    dl_server *started;
    int fd;

    (void)argument;
    if (dl_socket_listen(SIM_JOIN_ADDRESS, SIM_JOIN_PORT, dl_deadline_after(DL_SECOND),
                         &fd)
            != DL_OK
        || dl_server_start(&dl_loop_epoll_ops, fd, &options, &started) != DL_OK) {
        sim_fail("the server does not start: %s", dl_last_error()->text);
    }
    sim_wait("the end of the run", must_stop, NULL, SIM_FOREVER);
    dl_server_stop(started);
    has_stopped = true;
    return NULL;
}

static bool
is_over(void)
{
    return has_stopped;
}

void
sim_join_server_start(void)
{
    sim_process_start("server", HOST, run_server, NULL);
}

void
sim_join_server_stop(void)
{
    is_stopping = true;
    sim_run(is_over, STOP_LIMIT);
}

dl_status
sim_join_store_open(const char *prefix, int64_t limit, dl_store **store)
{
    const dl_tcp_store_options options = {
        .host = SIM_JOIN_ADDRESS,
        .port = SIM_JOIN_PORT,
        .world_size = -1,
        .listen_fd = -1,
        .use_libuv = true,
        .timeout = limit,
    };
    dl_store *below = NULL;

    DL_TRY(dl_tcp_store_new(&options, dl_deadline_after(limit), &below));
    dl_status status = dl_prefix_store_new(dl_bytes_of(prefix), below, store);
    dl_store_unref(below);
    return status;
}
