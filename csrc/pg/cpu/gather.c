/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/gather.h"

int
dl_gather_neighbours(int rank, int size, int neighbours[DL_GATHER_NEIGHBOURS])
{
    int count = 0;

    if (rank > 0) {
        neighbours[count++] = (rank - 1) / 2;
    }
    for (int64_t child = 2 * (int64_t)rank + 1; child <= 2 * (int64_t)rank + 2;
         child++) {
        if (child < size) {
            neighbours[count++] = (int)child;
        }
    }
    return count;
}

static int
depth_of(int rank)
{
    int depth = 0;

    for (; rank > 0; rank = (rank - 1) / 2) {
        depth++;
    }
    return depth;
}

/* Return the stage in which the ranks of one depth pass the sizes of their bytes to
 * their parents, the deepest first, or get sizes from them; the bytes follow in the next
 * stage. */
static uint32_t
up_stage(const dl_gather *self, int depth)
{
    return 2 * (uint32_t)(depth_of(self->size - 1) - depth);
}

static uint32_t
down_stage(const dl_gather *self, int depth)
{
    return 2 * (uint32_t)(depth_of(self->size - 1) + depth - 1);
}

/* Waits until all stages before `stage` are done. */
static dl_status
reach_stage(dl_gather *self, uint32_t stage)
{
    while (self->traffic->stage < stage) {
        DL_TRY(dl_traffic_wait(self->traffic, dl_traffic_next(self->traffic)));
    }
    return DL_OK;
}

/* Sends bytes to neighbours, their size first; `bytes` is by neighbour. */
static dl_status
send_bytes(dl_gather *self, uint32_t stage, int first, int end, const dl_bytes *bytes)
{
    DL_TRY(reach_stage(self, stage));
    for (int i = first; i < end; i++) {
        self->totals[i] = bytes[i].size;
        DL_TRY(dl_traffic_send(self->traffic, self->neighbours[i], &self->totals[i],
                               sizeof self->totals[i]));
    }
    DL_TRY(reach_stage(self, stage + 1));
    for (int i = first; i < end; i++) {
        DL_TRY(dl_traffic_send(self->traffic, self->neighbours[i], bytes[i].data,
                               bytes[i].size));
    }
    return reach_stage(self, stage + 2);
}

/* Appends the bytes of neighbours, whose sizes are expected already. */
static dl_status
receive_bytes(dl_gather *self, uint32_t stage, int first, int end, dl_buffer *bytes)
{
    uint64_t total = 0;

    DL_TRY(reach_stage(self, stage + 1));
    for (int i = first; i < end; i++) {
        if (self->sizes[i] > self->limit) {
            return dl_fail(DL_PROTOCOL, "rank %d sends more than all ranks have",
                           self->neighbours[i]);
        }
        total += self->sizes[i];
    }
    DL_TRY(dl_buffer_reserve(bytes, total));
    for (int i = first; i < end; i++) {
        DL_TRY(dl_traffic_receive(self->traffic, self->neighbours[i],
                                  bytes->data + bytes->size, (size_t)self->sizes[i]));
        bytes->size += (size_t)self->sizes[i];
    }
    return reach_stage(self, stage + 2);
}

/* The sizes are expected early, so that a neighbour which gives up is noticed in any
 * stage. */
dl_status
dl_gather_up(dl_gather *gather, dl_buffer *bytes)
{
    int depth = depth_of(gather->rank);
    int end = gather->neighbour_count;
    int parents = dl_gather_has_parent(gather) ? 1 : 0;

    for (int i = 0; i < end; i++) {
        uint32_t stage =
            i < parents ? down_stage(gather, depth) : up_stage(gather, depth + 1);
        DL_TRY(dl_traffic_expect(gather->traffic, gather->neighbours[i],
                                 &gather->sizes[i], sizeof gather->sizes[i], stage));
    }
    if (end > parents) {
        DL_TRY(receive_bytes(gather, up_stage(gather, depth + 1), parents, end, bytes));
    }
    dl_bytes all = dl_buffer_bytes(bytes);
    return parents == 0 ? DL_OK
                        : send_bytes(gather, up_stage(gather, depth), 0, parents, &all);
}

dl_status
dl_gather_take_down(dl_gather *gather, dl_buffer *bytes)
{
    uint32_t stage = down_stage(gather, depth_of(gather->rank));

    dl_buffer_clear(bytes);
    return dl_gather_has_parent(gather) ? receive_bytes(gather, stage, 0, 1, bytes)
                                        : DL_OK;
}

dl_status
dl_gather_send_down(dl_gather *gather, const dl_bytes *bytes)
{
    int parents = dl_gather_has_parent(gather) ? 1 : 0;

    return send_bytes(gather, down_stage(gather, depth_of(gather->rank) + 1), parents,
                      gather->neighbour_count, bytes);
}

/* Sends one word to neighbours. */
static dl_status
send_word(dl_gather *self, uint32_t stage, int first, int end, uint64_t word)
{
    DL_TRY(reach_stage(self, stage));
    for (int i = first; i < end; i++) {
        self->totals[i] = word;
        DL_TRY(dl_traffic_send(self->traffic, self->neighbours[i], &self->totals[i],
                               sizeof self->totals[i]));
    }
    return reach_stage(self, stage + 1);
}

dl_status
dl_gather_any(dl_gather *gather, bool *any)
{
    /* A stage for each depth, up and down, after those of the steps before. */
    uint32_t depth = (uint32_t)depth_of(gather->rank);
    uint32_t turn = 5 * (uint32_t)depth_of(gather->size - 1) + 2;
    int end = gather->neighbour_count;
    int parents = dl_gather_has_parent(gather) ? 1 : 0;
    uint64_t word = *any;

    for (int i = 0; i < end; i++) {
        uint32_t stage = i < parents ? turn + depth : turn - depth - 1;
        DL_TRY(dl_traffic_expect(gather->traffic, gather->neighbours[i],
                                 &gather->sizes[i], sizeof gather->sizes[i],
                                 stage - gather->traffic->stage));
    }
    DL_TRY(reach_stage(gather, turn - depth));
    for (int i = parents; i < end; i++) {
        word |= gather->sizes[i];
    }
    if (parents > 0) {
        DL_TRY(send_word(gather, turn - depth, 0, parents, word));
        DL_TRY(reach_stage(gather, turn + depth + 1));
        word = gather->sizes[0];
    }
    *any = word != 0;
    return send_word(gather, turn + depth + 1, parents, end, word);
}
