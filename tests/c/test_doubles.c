/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the doubles of other libraries calculate with. */
#include "../doubles/boxes.h"
#include "check.h"

CHECK_CASE(halves_come_back_as_they_were)
{
    for (unsigned bits = 0; bits < 31u << 10; bits++) {
        CHECK_EQUAL(to_half(from_half((uint16_t)bits)), bits);
        if (bits > 0) {
            unsigned negative = bits | 1u << 15;
            CHECK_EQUAL(to_half(from_half((uint16_t)negative)), negative);
        }
    }
    CHECK_EQUAL(to_half(65536.0), 31 << 10);
}
