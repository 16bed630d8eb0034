/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"

/* The pauses between checks without inotify: short at first, since the awaited key is
 * often just being written. */
#define FIRST_PAUSE (1 * DL_MILLISECOND)
#define LAST_PAUSE (10 * DL_MILLISECOND)

/* Includes the events of replacing and removing the file. */
#define CHANGES (IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)

void
dl_file_watch_init(dl_file_watch *watch, const char *path)
{
    *watch = (dl_file_watch){
        .path = path,
        .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC),
        .pause = FIRST_PAUSE,
    };
    dl_fork_guard(watch->fd);
}

void
dl_file_watch_fini(dl_file_watch *watch)
{
    if (watch->fd >= 0) {
        dl_fork_release(watch->fd);
        close(watch->fd);
    }
    watch->fd = -1;
}

void
dl_file_watch_arm(dl_file_watch *watch)
{
    /* Adding the same file again is cheap and changes nothing. */
    watch->is_armed =
        watch->fd >= 0 && inotify_add_watch(watch->fd, watch->path, CHANGES) >= 0;
}

static dl_status
pause_a_little(dl_file_watch *watch, dl_deadline deadline)
{
    int64_t pause = watch->pause;

    watch->pause = pause * 2 < LAST_PAUSE ? pause * 2 : LAST_PAUSE;
    return dl_sleep_until(dl_deadline_earlier(deadline, pause));
}

dl_status
dl_file_watch_wait(dl_file_watch *watch, dl_deadline deadline)
{
    char events[1024];
    struct pollfd watched = {.fd = watch->fd, .events = POLLIN};

    /* No inotify instance available, no file yet, or a file system without inotify. */
    if (!watch->is_armed) {
        return pause_a_little(watch, deadline);
    }
    /* In slices: changes by other hosts cause no event and are found by checking. */
    if (poll(&watched, 1, dl_deadline_poll(deadline, DL_WAIT_SLICE)) > 0) {
        /* Drains the events; which changes they report does not matter. */
        while (read(watch->fd, events, sizeof events) > 0) {
        }
        watch->pause = FIRST_PAUSE;
    }
    /* After events, too: there is no end of them while others write all the time. */
    return dl_interrupt_check();
}
