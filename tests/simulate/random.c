/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams of choices: splitmix64 (Steele, Lea, Flood, 2014). */
#include <math.h>

#include "world.h"

#define STEP UINT64_C(0x9E3779B97F4A7C15)

static uint64_t
mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

/* All streams walk the same cycle of states, so they have to begin far apart in it: a sum
 * of multiples of the step would begin a neighbour's sequence a few steps further on. */
sim_random
sim_random_of(uint64_t seed, uint64_t stream)
{
    return (sim_random){mix(mix(seed + STEP) + stream * STEP)};
}

uint64_t
sim_random_next(sim_random *random)
{
    return mix(random->state += STEP);
}

uint64_t
sim_random_below(sim_random *random, uint64_t limit)
{
    return limit == 0 ? 0 : sim_random_next(random) % limit;
}

bool
sim_random_once_in(sim_random *random, uint64_t count)
{
    return sim_random_below(random, count) == 0;
}

int64_t
sim_random_span(sim_random *random, int64_t least, int64_t most)
{
    double part = (double)(sim_random_next(random) >> 11) / (double)(1ull << 53);

    return (int64_t)((double)least * pow((double)most / (double)least, part));
}
