/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/ring_channel.h"

void
dl_doorbell_ring(dl_doorbell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    dl_futex_wake(&bell->rings);
}

static dl_ring_channel *
self_of(dl_channel *channel)
{
    return (dl_ring_channel *)(void *)channel;
}

static uint8_t *
reserve(dl_channel *channel, size_t size)
{
    return dl_ring_reserve(&self_of(channel)->out, size);
}

/* No system call is made for a peer that is awake. */
static void
publish(dl_channel *channel, const dl_frame *frame)
{
    dl_ring_channel *self = self_of(channel);

    dl_ring_publish(&self->out, frame);
    if (atomic_load(&self->bell->sleepers) != 0) {
        dl_doorbell_ring(self->bell);
    }
}

static bool
peek(dl_channel *channel, dl_received *received)
{
    const dl_frame *frame = dl_ring_peek(&self_of(channel)->in);

    if (frame == NULL) {
        return false;
    }
    *received = (dl_received){frame, dl_ring_payload(frame)};
    return true;
}

static void
release(dl_channel *channel)
{
    dl_ring_channel *self = self_of(channel);

    if (dl_ring_release(&self->in)) {
        dl_doorbell_ring(self->bell);
    }
}

static const dl_channel_ops ring_ops = {
    .reserve = reserve,
    .publish = publish,
    .peek = peek,
    .release = release,
};

void
dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell)
{
    channel->base.ops = &ring_ops;
    channel->bell = bell;
}
