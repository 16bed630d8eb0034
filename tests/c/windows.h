/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A window in plain memory, whose ranks are processes that end when their lifeline is
 * closed. */
#ifndef DISTLITE_TESTS_WINDOWS_H
#define DISTLITE_TESTS_WINDOWS_H

#include <sched.h>
#include <unistd.h>

#include "pg/cpu/window/window_session.h"
#include "ranks.h"

#define SCENE_SIZE 3
#define SCENE_COUNT 64 /* elements of int32, of rank 0 */

typedef struct scene {
    int held[SCENE_SIZE];
    dl_peer peers[SCENE_SIZE];
    dl_process *processes[SCENE_SIZE];
    dl_window_ranks ranks[SCENE_SIZE];
    dl_window_ends ends;
    void *mapped;
    dl_window_memory memory;
    dl_lock_queue *queue;
    dl_window_served served;
} scene;

DL_CHECK_UNUSED static void
scene_init(scene *self)
{
    size_t head = dl_window_head_size(SCENE_SIZE);

    memset(self, 0, sizeof *self);
    CHECK(posix_memalign(&self->mapped, 4096, head + 4096) == 0);
    memset(self->mapped, 0, head + 4096);
    self->memory = (dl_window_memory){
        .head = self->mapped,
        .elements = (uint8_t *)self->mapped + head,
        .size = SCENE_COUNT * sizeof(int32_t),
        .dtype = DL_INT32,
        .item_size = sizeof(int32_t),
    };
    self->queue = &self->memory.head->queue;
    atomic_store(&self->memory.head->is_open, 1);
    for (int rank = 0; rank < SCENE_SIZE; rank++) {
        dl_process_id id = {.bytes = {'w', (uint8_t)rank}};
        int ends[2];
        self->peers[rank] = (dl_peer){.pid = 100 + rank, .host = "h"};
        CHECK(pipe(ends) == 0);
        self->held[rank] = ends[1];
        CHECK_OK(dl_process_find(&id, &self->processes[rank]));
        CHECK_OK(dl_process_watch(self->processes[rank], ends[0], -1));
        self->ranks[rank] = (dl_window_ranks){
            .rank = rank,
            .size = SCENE_SIZE,
            .group_name = "g",
            .peers = dl_peers_of(self->peers),
            .processes = self->processes,
            .ends = &self->ends,
        };
    }
    self->served = (dl_window_served){
        .number = 1, .memory = &self->memory, .ranks = &self->ranks[0]};
}

DL_CHECK_UNUSED static void
end_rank(scene *self, int rank)
{
    close(self->held[rank]);
    while (!dl_process_has_ended(self->processes[rank])) {
        dl_process_table_poll();
        sched_yield();
    }
}

DL_CHECK_UNUSED static void
scene_fini(scene *self)
{
    for (int rank = 0; rank < SCENE_SIZE; rank++) {
        dl_process_unref(self->processes[rank]);
    }
    free(self->mapped);
}

#endif
