/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The event loop of a store's server: waits, on one thread, until descriptors that it
 * watches are ready or a time has come.  There are two kinds, epoll's and libuv's.
 * Knows nothing of clients. */
#ifndef DISTLITE_STORE_TCP_LOOP_H
#define DISTLITE_STORE_TCP_LOOP_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct dl_loop dl_loop;

enum {
    DL_LOOP_READABLE = 1,
    DL_LOOP_WRITABLE = 2,
    DL_LOOP_BROKEN = 4, /* always reported; dl_loop_ops.change() must follow */
};

/* A descriptor that is watched, embedded in what it belongs to. */
typedef struct dl_watch {
    int fd;
    uint32_t events; /* READABLE, WRITABLE, both or 0 */
    /* Called while any of `events` holds, at most once per turn.  It may remove this
     * watch, and no other. */
    void (*ready)(struct dl_watch *watch, uint32_t events);
    void *handle; /* the loop's */
} dl_watch;

typedef struct dl_loop_ops {
    const char *kind; /* "libuv", "epoll" */
    dl_status (*open)(dl_loop **loop);
    /* Frees a loop that does not run and watches nothing.  Not in a forked child. */
    void (*close)(dl_loop *loop);

    /* Begins to watch; `fd`, `events` and `ready` are set. */
    dl_status (*add)(dl_loop *loop, dl_watch *watch);
    dl_status (*change)(dl_loop *loop, dl_watch *watch, uint32_t events);
    /* To be called before the descriptor is closed. */
    void (*remove)(dl_loop *loop, dl_watch *watch);

    /* Calls `turn` before each sleep, after the watches that were ready; it returns
     * until when the loop may sleep.  Returns after stop(). */
    void (*run)(dl_loop *loop, dl_deadline (*turn)(void *), void *context);
    void (*stop)(dl_loop *loop); /* any thread */
} dl_loop_ops;

extern const dl_loop_ops dl_loop_epoll_ops;

/* Returns NULL in a build without libuv. */
const dl_loop_ops *dl_loop_uv_ops(void);

#endif
