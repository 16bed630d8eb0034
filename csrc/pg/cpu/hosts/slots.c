/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/hosts/leaders.h"
#include "tensor/strided.h"

/* All-to-all of small blocks in log2(hosts) rounds, by Bruck and others (ring.c): each rank
 * has a slot for the block that goes i hosts ahead, and in a round sends those with a bit
 * set in i as far ahead as the bit says.  Ranks know the sizes of their own blocks only, so
 * a slot begins with its block's size.  Blocks that do not fit follow directly.
 *
 * How large slots are is agreed on along the way: ranks send the class of their largest
 * block in the heads of all messages of an all_to_all (tcp/route.h), so that at its end all
 * of them know the largest class, which the next one is for.  Where blocks differ from one
 * operation to the next, that costs messages, but nothing else. */
#define SIZE_BYTES sizeof(uint64_t)

/* Returns the class of blocks of at most 1 << (class - 1) bytes. */
static uint8_t
class_of(size_t size)
{
    uint8_t number = 1;

    while ((size_t)1 << (number - 1) < size) {
        number++;
    }
    return number;
}

static uint8_t
largest_class(const dl_leaders *self)
{
    int own = self->hosts->layout->rank;
    size_t largest = 0;

    for (int rank = 0; rank < self->hosts->layout->size; rank++) {
        size_t sent = rank == own ? 0 : dl_tensor_size(&self->call->inputs[rank]);
        size_t received = rank == own ? 0 : dl_tensor_size(&self->call->outputs[rank]);
        largest = sent > largest ? sent : largest;
        largest = received > largest ? received : largest;
    }
    return class_of(largest);
}

/* Ranks that share a host do not hear from each other, and do not agree. */
dl_status
dl_hosts_all_to_all_between(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    dl_leaders sized = *self;
    bool is_agreed = count == hosts->layout->size && hosts->block_class > 0;

    hosts->traffic->note = largest_class(self);
    sized.size = is_agreed ? (size_t)1 << (hosts->block_class - 1) : 0;
    bool is_countable = is_agreed && sized.size <= SIZE_MAX / (size_t)count;
    size_t all = is_countable ? sized.size * (size_t)count : SIZE_MAX;
    DL_TRY(dl_hosts_select(DL_ALL_TO_ALL, count, all)(&sized));
    hosts->block_class = hosts->traffic->note;
    return DL_OK;
}

static void
fill_slots(const dl_leaders *self, uint8_t *slots, size_t stride)
{
    const dl_hosts *hosts = self->hosts;

    for (int i = 1; i < hosts->layout->host_count; i++) {
        const dl_tensor *block = &self->call->inputs[dl_hosts_ring_leader(hosts, i)];
        uint64_t size = dl_tensor_size(block);
        uint8_t *slot = slots + (size_t)i * stride;
        memcpy(slot, &size, sizeof size);
        if (size > 0 && size <= self->size) {
            dl_strided_gather_part(slot + SIZE_BYTES, block, 0, size);
        }
    }
}

/* Slot i now has the block of the host i places before this one. */
static dl_status
empty_slots(const dl_leaders *self, const uint8_t *slots, size_t stride)
{
    const dl_hosts *hosts = self->hosts;

    for (int i = 1; i < hosts->layout->host_count; i++) {
        int source = dl_hosts_ring_leader(hosts, -i);
        const dl_tensor *block = &self->call->outputs[source];
        const uint8_t *slot = slots + (size_t)i * stride;
        uint64_t size;
        memcpy(&size, slot, sizeof size);
        if (size != dl_tensor_size(block)) {
            return dl_fingerprint_fail_size(&hosts->phase.fingerprint, source, size,
                                            hosts->layout->rank, dl_tensor_size(block));
        }
        if (size > 0 && size <= self->size) {
            dl_strided_scatter_part(block, slot + SIZE_BYTES, 0, size);
        }
    }
    return DL_OK;
}

/* Copies the slots of a round to a message, or back. */
static size_t
copy_round(const dl_leaders *self, int bit, uint8_t *slots, size_t stride,
           uint8_t *message, bool is_in)
{
    size_t size = 0;

    for (int i = bit; i < self->hosts->layout->host_count; i++) {
        uint8_t *slot = slots + (size_t)i * stride;
        if ((i & bit) == 0) {
            continue;
        }
        if (message != NULL) {
            memcpy(is_in ? slot : message + size, is_in ? message + size : slot,
                   stride);
        }
        size += stride;
    }
    return size;
}

dl_status
dl_exchange_slots(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    size_t stride = SIZE_BYTES + self->size;
    uint8_t *slots;
    uint8_t *out;

    DL_TRY(dl_hosts_room(&hosts->work, (size_t)count * stride, &slots));
    DL_TRY(dl_hosts_room(&hosts->halves, 2 * (size_t)count * stride, &out));
    uint8_t *in = out + (size_t)count * stride;
    fill_slots(self, slots, stride);
    hosts->first_source = -1;
    for (int bit = 1; bit < count; bit *= 2) {
        size_t size = copy_round(self, bit, slots, stride, out, false);
        DL_TRY(dl_traffic_send(hosts->traffic, dl_hosts_ring_leader(hosts, bit), out,
                               size));
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_hosts_ring_leader(hosts, -bit), in,
                                  size));
        DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
        copy_round(self, bit, slots, stride, in, true);
    }
    dl_hosts_note_come(hosts, 1, count);
    DL_TRY(empty_slots(self, slots, stride));
    return dl_exchange_larger(self, self->size);
}
