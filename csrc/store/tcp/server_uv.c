/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server.h"

#ifndef DL_HAVE_LIBUV

#include <stddef.h>

const dl_server_ops *
dl_server_uv_ops(void)
{
    return NULL;
}

#else

#include <stdlib.h>
#include <uv.h>

#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/acceptor.h"
#include "store/tcp/uv_connection.h"

struct dl_server {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    uv_async_t stop; /* the one handle that other threads touch */
    /* server thread only */
    uv_loop_t loop;
    uv_poll_t listening; /* libuv's own accepting turns clients away when descriptors
                            run out; here they wait */
    uv_timer_t pause;
    uv_prepare_t before_sleep;
    uv_idle_t no_sleep;
    dl_acceptor acceptor;
    dl_uv_shared shared;
};

static void
on_no_sleep(uv_idle_t *handle)
{
    (void)handle;
}

/* Clients that another's request, or their own reading, has got something to do for.
 * Those who come up again have to wait until everybody else has been looked at. */
static void
on_before_sleep(uv_prepare_t *handle)
{
    dl_server *server = handle->data;
    dl_hub *hub = &server->shared.hub;
    dl_session *session;

    for (size_t left = hub->changed_count; left > 0; left--) {
        if ((session = dl_hub_take_changed(hub)) != NULL) {
            dl_uv_connection_resume(session);
        }
    }
    if (hub->changed_count > 0) {
        uv_idle_start(&server->no_sleep, on_no_sleep);
    } else {
        uv_idle_stop(&server->no_sleep);
    }
}

static void on_connection(uv_poll_t *handle, int error, int events);

static void
on_pause_over(uv_timer_t *timer)
{
    dl_server *server = timer->data;

    uv_poll_start(&server->listening, UV_READABLE, on_connection);
}

static void
on_connection(uv_poll_t *handle, int error, int events)
{
    dl_server *server = handle->data;
    int fd;

    (void)error;
    (void)events;
    while ((fd = dl_acceptor_next(&server->acceptor)) >= 0) {
        dl_uv_connection_open(&server->loop, fd);
    }
    if (server->acceptor.is_starved) {
        /* The listening socket stays readable and would not let the loop rest. */
        uv_poll_stop(&server->listening);
        uv_timer_start(&server->pause, on_pause_over,
                       DL_ACCEPTOR_PAUSE / DL_MILLISECOND, 0);
    }
}

static void
close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (handle->type == UV_TCP) {
        dl_uv_connection_close(handle);
    } else if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

/* Then nothing is left that keeps the loop running. */
static void
on_stop(uv_async_t *handle)
{
    uv_walk(handle->loop, close_handle, NULL);
}

static void *
run(void *argument)
{
    dl_server *server = argument;

    uv_run(&server->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* The caller closes what has been opened, also on failure. */
static int
open_handles(dl_server *server)
{
    uv_loop_t *loop = &server->loop;

    uv_prepare_init(loop, &server->before_sleep);
    uv_idle_init(loop, &server->no_sleep);
    uv_timer_init(loop, &server->pause);
    server->before_sleep.data = server;
    server->pause.data = server;
    int error = uv_prepare_start(&server->before_sleep, on_before_sleep);
    if (error == 0) {
        error = uv_async_init(loop, &server->stop, on_stop);
    }
    if (error == 0) {
        error = uv_poll_init(loop, &server->listening, server->acceptor.fd);
    }
    if (error == 0) {
        server->listening.data = server;
        error = uv_poll_start(&server->listening, UV_READABLE, on_connection);
    }
    return error;
}

/* Of a server whose thread does not run. */
static void
free_server(dl_server *server)
{
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_loop_close(&server->loop);
    dl_hub_fini(&server->shared.hub);
    dl_socket_close(server->acceptor.fd);
    free(server);
}

static dl_status
start_uv(int listen_fd, dl_server **started)
{
    dl_server *server = calloc(1, sizeof *server);
    int error = server == NULL ? UV_ENOMEM : uv_loop_init(&server->loop);

    if (error != 0) {
        free(server);
        dl_socket_close(listen_fd);
        return dl_fail(DL_NETWORK, "starting a libuv loop: %s", uv_strerror(error));
    }
    server->fork_generation = dl_fork_generation();
    server->loop.data = &server->shared;
    server->acceptor.fd = listen_fd;
    dl_hub_init(&server->shared.hub);
    error = open_handles(server);
    dl_status status = error == 0 ? dl_thread_start(&server->thread, run, server)
                                  : dl_fail(DL_NETWORK, "starting a libuv loop: %s",
                                            uv_strerror(error));
    if (status != DL_OK) {
        free_server(server);
        return status;
    }
    *started = server;
    return DL_OK;
}

static void
stop_uv(dl_server *server)
{
    if (server->fork_generation != dl_fork_generation()) {
        return;
    }
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    free_server(server);
}

const dl_server_ops *
dl_server_uv_ops(void)
{
    static const dl_server_ops ops = {
        .kind = "libuv",
        .start = start_uv,
        .stop = stop_uv,
    };

    return &ops;
}

#endif
