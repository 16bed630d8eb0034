/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Larger than a core's own cache: with as many leaders on a core as a test has, half as many
 * wake-ups weigh more. */
#define PIECE ((size_t)256 << 10)

/* Pieces that a leader may be ahead of the one below; a route's queue has room for
 * them. */
#define AHEAD 8

static dl_bytes
piece_of(const dl_leaders *self, size_t piece)
{
    size_t start = piece * PIECE;

    return (dl_bytes){self->data + start, dl_least(self->size - start, PIECE)};
}

/* Waits for a piece from the leader above, and expects those that may follow it. */
static dl_status
receive_piece(const dl_leaders *self, int above, size_t piece, size_t *expected)
{
    dl_traffic *traffic = self->hosts->traffic;

    while (*expected < piece + AHEAD && *expected * PIECE < self->size) {
        dl_bytes next = piece_of(self, *expected);
        DL_TRY(dl_traffic_expect(traffic, above, (uint8_t *)(uintptr_t)next.data,
                                 next.size, (uint32_t)(*expected - piece)));
        ++*expected;
    }
    return dl_traffic_wait(traffic, traffic->stage);
}

/* Pieces go down a binary tree, so that all levels of it work at the same time.  Where
 * data does not go one way, greetings compare the calls. */
dl_status
dl_send_pieces(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    dl_traffic *traffic = hosts->traffic;
    int count = hosts->layout->host_count;
    int place = (hosts->layout->host - self->root + count) % count;
    size_t expected = 0;

    DL_TRY(dl_hosts_greet(hosts));
    hosts->is_below = traffic->is_one_way && place > 2;
    for (size_t piece = 0; piece * PIECE < self->size; piece++) {
        dl_bytes part = piece_of(self, piece);
        if (place > 0) {
            int above = dl_leaders_at(self, (place - 1) / 2);
            DL_TRY(receive_piece(self, above, piece, &expected));
        } else if (piece >= AHEAD) {
            DL_TRY(dl_traffic_wait(traffic, traffic->stage - AHEAD));
        }
        for (int below = 2 * place + 1; below <= 2 * place + 2 && below < count;
             below++) {
            DL_TRY(dl_traffic_send(traffic, dl_leaders_at(self, below), part.data,
                                   part.size));
        }
        dl_traffic_next(traffic);
    }
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}
