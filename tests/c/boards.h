/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Boards of several ranks over one piece of plain memory: for ranks that are threads of
 * one case, without a store or a socket. */
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
    dl_lifeline lines[DL_RANKS_LIMIT];
    dl_lifelines lifelines[DL_RANKS_LIMIT];
    dl_board boards[DL_RANKS_LIMIT];
} test_boards;

/* Every rank watches every other one's lifeline. */
DL_CHECK_UNUSED static void
boards_init(test_boards *all, int size, size_t chunk, bool may_spin)
{
    size_t memory_size = dl_board_memory(size, chunk);

    *all = (test_boards){.size = size};
    CHECK(posix_memalign(&all->memory, 4096, memory_size) == 0);
    memset(all->memory, 0, memory_size);
    dl_board_format(all->memory, size, chunk, may_spin);
    for (int rank = 0; rank < size; rank++) {
        all->peers[rank] = (dl_peer){.pid = 100 + rank, .host = "h"};
        CHECK_OK(dl_lifeline_make(&all->lines[rank]));
    }
    for (int rank = 0; rank < size; rank++) {
        dl_board_options options = {.rank = rank,
                                    .size = size,
                                    .group_name = "g",
                                    .peers = all->peers,
                                    .lifelines = &all->lifelines[rank]};
        CHECK_OK(dl_lifelines_init(&all->lifelines[rank], size));
        for (int peer = 0; peer < size; peer++) {
            if (peer != rank) {
                dl_lifelines_put(&all->lifelines[rank], peer,
                                 dup(all->lines[peer].shown));
            }
        }
        CHECK_OK(dl_board_init(&all->boards[rank], &options, all->memory, memory_size));
    }
}

/* As if the rank's process had ended. */
DL_CHECK_UNUSED static void
boards_cut(test_boards *all, int rank)
{
    dl_socket_close(all->lines[rank].held);
    all->lines[rank].held = -1;
}

DL_CHECK_UNUSED static void
boards_fini(test_boards *all)
{
    for (int rank = 0; rank < all->size; rank++) {
        dl_board_fini(&all->boards[rank]);
        dl_lifelines_fini(&all->lifelines[rank]);
        dl_socket_close(all->lines[rank].held);
        dl_socket_close(all->lines[rank].shown);
    }
    free(all->memory);
}

DL_CHECK_UNUSED static dl_op_context
boards_op(uint64_t sequence, dl_op_type op, int64_t limit)
{
    return (dl_op_context){.sequence = sequence,
                           .fingerprint = {.op = (uint8_t)op},
                           .deadline = dl_deadline_after(limit)};
}

#endif
