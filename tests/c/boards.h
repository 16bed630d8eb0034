/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Boards of several ranks over one piece of plain memory, for ranks that are threads of
 * one case; needs neither a store nor a socket. */
#ifndef DISTLITE_TESTS_BOARDS_H
#define DISTLITE_TESTS_BOARDS_H

#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/shm/board.h"
#include "ranks.h"

typedef struct test_boards {
    int size;
    void *memory;
    dl_peer peers[DL_RANKS_LIMIT];
    int held[DL_RANKS_LIMIT]; /* by rank, the writing end of its lifeline */
    dl_process *processes[DL_RANKS_LIMIT];
    dl_board boards[DL_RANKS_LIMIT];
} test_boards;

/* Bytes of an eager buffer that the ranks use. */
#define EAGER_SIZE ((size_t)4096)

/* The table of processes sees each rank as a process of its own. */
DL_CHECK_UNUSED static void
boards_init(test_boards *all, int size, size_t chunk, int cores_per_rank)
{
    size_t memory_size = dl_board_memory(size, chunk);

    *all = (test_boards){.size = size};
    CHECK(posix_memalign(&all->memory, 4096, memory_size) == 0);
    memset(all->memory, 0, memory_size);
    dl_board_format(all->memory, size, chunk, cores_per_rank);
    for (int rank = 0; rank < size; rank++) {
        dl_process_id id = {.bytes = {'r', (uint8_t)rank}};
        int ends[2];
        all->peers[rank] = (dl_peer){.pid = 100 + rank, .host = "h"};
        CHECK(pipe(ends) == 0);
        all->held[rank] = ends[1];
        CHECK_OK(dl_process_find(&id, &all->processes[rank]));
        CHECK_OK(dl_process_watch(all->processes[rank], ends[0], -1));
    }
    for (int rank = 0; rank < size; rank++) {
        dl_board_options options = {.rank = rank,
                                    .size = size,
                                    .group_name = "g",
                                    .peers = all->peers,
                                    .processes = all->processes};
        CHECK_OK(dl_board_init(&all->boards[rank], &options, all->memory, memory_size));
        /* Less than it has, so that blocks of several chunks go through slots. */
        all->boards[rank].eager_size = EAGER_SIZE;
    }
}

/* As after many operations, when all parts of the slots are in use. */
DL_CHECK_UNUSED static void
boards_go_on(test_boards *all)
{
    for (int rank = 0; rank < all->size; rank++) {
        all->boards[rank].round = 1 << 20;
    }
}

/* Lets all ranks write their slots with non-temporal stores, whatever these take. */
DL_CHECK_UNUSED static void
boards_stream(test_boards *all)
{
    for (int rank = 0; rank < all->size; rank++) {
        all->boards[rank].writer =
            (dl_slot_writer){.is_streaming = true, .until_sample = SIZE_MAX};
    }
}

/* Ends the rank's lifeline, as the end of its process would. */
DL_CHECK_UNUSED static void
boards_cut(test_boards *all, int rank)
{
    close(all->held[rank]);
    all->held[rank] = -1;
}

DL_CHECK_UNUSED static void
boards_fini(test_boards *all)
{
    for (int rank = 0; rank < all->size; rank++) {
        dl_board_fini(&all->boards[rank]);
        dl_process_unref(all->processes[rank]);
        dl_socket_close(all->held[rank]);
    }
    free(all->memory);
}

#endif
