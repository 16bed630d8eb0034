/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange_shared.h"

#include "pg/cpu/shm/shared.h"

/* Least bytes that are offered in place, where each rank has a core: copying fewer
 * takes less time than the additional meeting at the end.  Where ranks share cores, and
 * a meeting takes a scheduling round, the limit is a whole slot. */
#define LEAST ((size_t)8 << 10)

/* The first byte of a rank's line. */
typedef enum offer {
    NOTHING = 0,
    BLOCKS_IN_SLOT,
    BLOCKS_IN_PLACE,
} offer;

static offer
offer_of(const dl_exchange *self, int rank)
{
    return (offer)*dl_board_payload(self->board, rank);
}

/* Returns the places of the blocks of `rank`, by the blocks' index. */
static dl_shared_place *
places_of(const dl_exchange *self, int rank)
{
    uint8_t *slot = dl_board_slot(self->board, rank, 0);

    return (dl_shared_place *)(void *)(slot + self->header);
}

static bool
is_worth_it(const dl_exchange *self)
{
    size_t places = (size_t)self->board->options.size * sizeof(dl_shared_place);
    size_t least = self->board->waiter.spin > 0 ? LEAST : self->board->chunk;
    size_t sum = 0;

    for (int i = 0; i < self->outgoing_count; i++) {
        sum += self->outgoing[i].size;
    }
    return sum >= least && self->header + places <= self->board->chunk;
}

/* Returns false when a block is not in shared memory, or is not plain: then all are
 * copied. */
static bool
write_places(const dl_exchange *self)
{
    const dl_shared_views *views = self->board->options.views;
    dl_shared_place *places = places_of(self, self->transfer->rank);

    for (int i = 0; i < self->outgoing_count; i++) {
        const dl_stream *stream = &self->outgoing[i];
        if (!dl_tensor_is_plain(stream->tensor)) {
            return false;
        }
        dl_shared_place place =
            dl_shared_find(views->arena, stream->tensor->data, stream->size);
        if (place.size == 0) {
            return false;
        }
        places[stream->index] = place;
    }
    return true;
}

void
dl_exchange_offer(dl_exchange *self)
{
    /* The payload is const for readers; its owner may write to it before the
     * arrival. */
    uint8_t *line = (uint8_t *)dl_board_payload(self->board, self->transfer->rank);

    self->is_sharing = self->board->options.views != NULL
                       && self->transfer->factor == NULL && is_worth_it(self)
                       && write_places(self);
    offer given = self->is_sharing ? BLOCKS_IN_PLACE : BLOCKS_IN_SLOT;
    *line = (uint8_t)(self->outgoing_count == 0 ? NOTHING : given);
}

bool
dl_exchange_is_in_place(dl_exchange *self)
{
    bool needs_slots = false;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        offer offered = offer_of(self, rank);
        self->sharers += offered == BLOCKS_IN_PLACE;
        needs_slots |= offered == BLOCKS_IN_SLOT;
    }
    return self->sharers > 0 && !needs_slots;
}

dl_status
dl_exchange_locate(dl_exchange *self)
{
    dl_shared_views *views = self->board->options.views;

    for (int i = 0; i < self->incoming_count; i++) {
        dl_stream *stream = &self->incoming[i];
        if (offer_of(self, stream->rank) == BLOCKS_IN_PLACE) {
            const dl_shared_place *place =
                &places_of(self, stream->rank)[stream->index];
            DL_TRY(dl_shared_views_map(views, place, stream->size, &stream->data));
        }
    }
    return DL_OK;
}
