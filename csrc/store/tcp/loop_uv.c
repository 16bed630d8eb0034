/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/loop.h"

#include <stddef.h>

#ifndef DL_HAVE_LIBUV

const dl_loop_ops *
dl_loop_uv_ops(void)
{
    return NULL;
}

#else

#include <stdlib.h>
#include <uv.h>

struct dl_loop {
    uv_loop_t uv;
    uv_async_t stop; /* the one handle that other threads touch */
    uv_prepare_t before_sleep;
    uv_timer_t wake;
    int64_t wake_at; /* when `wake` expires; INT64_MAX: never */
    uv_idle_t no_sleep;
    dl_deadline (*turn)(void *);
    void *context;
};

_Static_assert((int)DL_LOOP_READABLE == UV_READABLE
                   && (int)DL_LOOP_WRITABLE == UV_WRITABLE,
               "events are passed on as they are");

static dl_status
fail_uv(int error)
{
    return error == UV_ENOMEM ? dl_fail_no_memory()
                              : dl_fail(DL_NETWORK, "libuv: %s", uv_strerror(error));
}

static void
on_stop(uv_async_t *handle)
{
    uv_stop(handle->loop);
}

/* Does nothing: while an idle handle is active, libuv polls without sleeping. */
static void
on_no_sleep(uv_idle_t *handle)
{
    (void)handle;
}

/* What is due is done by the turn before the next sleep. */
static void
on_wake(uv_timer_t *timer)
{
    dl_loop *loop = timer->loop->data;

    loop->wake_at = INT64_MAX;
}

/* Starts the timer unless it expires early enough.  If the next wake-up was postponed
 * meanwhile, the timer expires too early and is started again then.  Without a next
 * wake-up it is stopped: when epoll_wait(2) has a timeout, the kernel sets a timer each
 * time. */
static void
set_wake(dl_loop *loop, dl_deadline until)
{
    if (until.at == INT64_MAX) {
        uv_timer_stop(&loop->wake);
        loop->wake_at = until.at;
    } else if (until.at < loop->wake_at) {
        int64_t left = dl_deadline_left(until);
        loop->wake_at = until.at;
        uv_timer_start(&loop->wake, on_wake, (uint64_t)(left / DL_MILLISECOND) + 1, 0);
    }
}

/* Prepare handles run right before each poll: after all input of an iteration, and
 * before the loop may sleep. */
static void
on_before_sleep(uv_prepare_t *handle)
{
    dl_loop *loop = handle->loop->data;
    dl_deadline until = loop->turn(loop->context);

    if (until.at <= 0) {
        uv_idle_start(&loop->no_sleep, on_no_sleep);
    } else {
        uv_idle_stop(&loop->no_sleep);
        set_wake(loop, until);
    }
}

static void
close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

static void
close_uv(dl_loop *loop)
{
    /* Handles need one iteration of the loop to be closed. */
    uv_walk(&loop->uv, close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    free(loop);
}

static dl_status
open_uv(dl_loop **opened)
{
    dl_loop *loop = calloc(1, sizeof *loop);
    int error = loop == NULL ? UV_ENOMEM : uv_loop_init(&loop->uv);

    if (error != 0) {
        free(loop);
        return fail_uv(error);
    }
    loop->uv.data = loop;
    loop->wake_at = INT64_MAX;
    uv_idle_init(&loop->uv, &loop->no_sleep);
    uv_timer_init(&loop->uv, &loop->wake);
    uv_prepare_init(&loop->uv, &loop->before_sleep);
    error = uv_async_init(&loop->uv, &loop->stop, on_stop);
    if (error != 0) {
        close_uv(loop);
        return fail_uv(error);
    }
    *opened = loop;
    return DL_OK;
}

static void
on_ready(uv_poll_t *handle, int error, int events)
{
    dl_watch *watch = handle->data;

    /* libuv has stopped polling after an error. */
    watch->ready(watch, error != 0 ? DL_LOOP_BROKEN : (uint32_t)events);
}

static void
on_closed(uv_handle_t *handle)
{
    free(handle);
}

/* A uv_poll_t and not a uv_tcp_t: both loops share the code that reads and writes, and
 * its recv(2) and send(2) cost less than libuv's read(2) and write(2).  Besides, a
 * uv_tcp_t closes new connections when descriptors run out. */
static dl_status
add_uv(dl_loop *loop, dl_watch *watch)
{
    uv_poll_t *handle = calloc(1, sizeof *handle);
    int error = handle == NULL ? UV_ENOMEM : uv_poll_init(&loop->uv, handle, watch->fd);

    if (error != 0) {
        free(handle);
        return fail_uv(error);
    }
    handle->data = watch;
    watch->handle = handle;
    error = uv_poll_start(handle, (int)watch->events, on_ready);
    if (error != 0) {
        uv_close((uv_handle_t *)handle, on_closed);
        return fail_uv(error);
    }
    return DL_OK;
}

/* No events at all is allowed and stops the polling. */
static dl_status
change_uv(dl_loop *loop, dl_watch *watch, uint32_t events)
{
    (void)loop;
    watch->events = events;
    int error = uv_poll_start(watch->handle, (int)events, on_ready);
    return error == 0 ? DL_OK : fail_uv(error);
}

static void
remove_uv(dl_loop *loop, dl_watch *watch)
{
    (void)loop;
    /* Stops polling the descriptor at once, so that it can be closed; the handle's
     * memory is freed in the loop's next iteration. */
    uv_close(watch->handle, on_closed);
}

static void
run_uv(dl_loop *loop, dl_deadline (*turn)(void *), void *context)
{
    loop->turn = turn;
    loop->context = context;
    uv_prepare_start(&loop->before_sleep, on_before_sleep);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_prepare_stop(&loop->before_sleep);
}

static void
stop_uv(dl_loop *loop)
{
    uv_async_send(&loop->stop);
}

const dl_loop_ops *
dl_loop_uv_ops(void)
{
    static const dl_loop_ops ops = {
        .kind = "libuv",
        .open = open_uv,
        .close = close_uv,
        .add = add_uv,
        .change = change_uv,
        .remove = remove_uv,
        .run = run_uv,
        .stop = stop_uv,
    };

    return &ops;
}

#endif
