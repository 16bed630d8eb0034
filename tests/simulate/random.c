/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams of choices: splitmix64 (Steele, Lea, Flood, 2014). */
#include <math.h>

#include "world.h"

sim_random
sim_random_of(uint64_t seed, uint64_t stream)
{
    sim_random made = {seed * UINT64_C(0x9E3779B97F4A7C15)
                       + stream * UINT64_C(0xD1B54A32D192ED03)};

    (void)sim_random_next(&made);
    return made;
}

uint64_t
sim_random_next(sim_random *random)
{
    uint64_t word = random->state += UINT64_C(0x9E3779B97F4A7C15);

    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
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
