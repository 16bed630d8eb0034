/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/socket.h"

dl_status
dl_lifeline_make(dl_lifeline *lifeline)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        return dl_fail(DL_INTERNAL, "making a pipe: %s", strerror(errno));
    }
    *lifeline = (dl_lifeline){.held = ends[1], .shown = ends[0]};
    dl_fork_guard(lifeline->held);
    dl_fork_guard(lifeline->shown);
    return DL_OK;
}

dl_status
dl_lifelines_init(dl_lifelines *lifelines, int size)
{
    *lifelines = (dl_lifelines){
        .shown = calloc((size_t)size, sizeof *lifelines->shown),
        .is_cut = calloc((size_t)size, sizeof *lifelines->is_cut),
        .size = size,
    };
    if (lifelines->shown == NULL || lifelines->is_cut == NULL) {
        dl_lifelines_forget(lifelines);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < size; rank++) {
        lifelines->shown[rank].fd = -1;
    }
    return DL_OK;
}

void
dl_lifelines_forget(dl_lifelines *lifelines)
{
    free(lifelines->shown);
    free(lifelines->is_cut);
    *lifelines = (dl_lifelines){0};
}

void
dl_lifelines_fini(dl_lifelines *lifelines)
{
    for (int rank = 0; rank < lifelines->size; rank++) {
        dl_socket_close(lifelines->shown[rank].fd);
    }
    dl_lifelines_forget(lifelines);
}

void
dl_lifelines_put(dl_lifelines *lifelines, int rank, int shown)
{
    dl_socket_close(lifelines->shown[rank].fd);
    lifelines->shown[rank].fd = shown;
}

/* Nothing is ever written into the pipes: any event is the end. */
static void
watch_locked(dl_lifelines *lifelines)
{
    if (poll(lifelines->shown, (nfds_t)lifelines->size, 0) <= 0) {
        return;
    }
    for (int rank = 0; rank < lifelines->size; rank++) {
        if (lifelines->shown[rank].fd >= 0 && lifelines->shown[rank].revents != 0) {
            atomic_store(&lifelines->is_cut[rank], true);
            dl_socket_close(lifelines->shown[rank].fd);
            lifelines->shown[rank].fd = -1;
        }
    }
}

void
dl_lifelines_watch(dl_lifelines *lifelines)
{
    pthread_mutex_lock(&lifelines->lock);
    watch_locked(lifelines);
    pthread_mutex_unlock(&lifelines->lock);
}
