/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

static uint64_t process_seed[2];
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;

static void
draw_seed(void)
{
    if (getrandom(process_seed, sizeof process_seed, GRND_NONBLOCK)
        == (ssize_t)sizeof process_seed) {
        return;
    }
    /* No entropy yet (early boot), or getrandom(2) is not allowed: the clock and the
     * address-space layout still make the seed hard to guess. */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    process_seed[0] = (uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&now;
    process_seed[1] = (uint64_t)now.tv_sec ^ (uint64_t)(uintptr_t)&process_seed << 16;
}

static inline uint64_t
rotate_left(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

/* One round of SipHash: called once per word and three times at the end. */
static inline void
mix_state(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[3];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

/* Reads up to eight bytes in little-endian order. */
static inline uint64_t
load_word(const uint8_t *bytes, size_t size)
{
    uint64_t word = 0;

    for (size_t i = 0; i < size; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

uint64_t
dl_hash_seeded(dl_bytes bytes, const uint64_t seed[2])
{
    /* The initial state spells "somepseudorandomlygeneratedbytes". */
    uint64_t v[4] = {
        seed[0] ^ UINT64_C(0x736f6d6570736575),
        seed[1] ^ UINT64_C(0x646f72616e646f6d),
        seed[0] ^ UINT64_C(0x6c7967656e657261),
        seed[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t whole = bytes.size & ~(size_t)7;

    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word = load_word(bytes.data + i, 8);
        v[3] ^= word;
        mix_state(v);
        v[0] ^= word;
    }
    /* The size is part of the last word, so that trailing zeros change the hash. */
    uint64_t last = (uint64_t)bytes.size << 56;
    if (whole < bytes.size) {
        last |= load_word(bytes.data + whole, bytes.size - whole);
    }
    v[3] ^= last;
    mix_state(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    mix_state(v);
    mix_state(v);
    mix_state(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t
dl_hash(dl_bytes bytes)
{
    pthread_once(&seed_once, draw_seed);
    return dl_hash_seeded(bytes, process_seed);
}
