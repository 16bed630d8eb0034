/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/copy.h"

#include "check.h"

#define PAGE 4096
#define MOST (2 * PAGE + 131)

static uint8_t source[2 * PAGE + MOST] __attribute__((aligned(PAGE)));
static uint8_t target[2 * PAGE + MOST] __attribute__((aligned(PAGE)));

typedef void (*copy_fn)(void *, const void *, size_t);

static void
check_copy(copy_fn copy, size_t to, size_t from, size_t size)
{
    memset(target, 0xee, sizeof target);
    copy(target + to, source + from, size);
    CHECK(memcmp(target + to, source + from, size) == 0);
    CHECK(to == 0 || target[to - 1] == 0xee);
    CHECK_EQUAL(target[to + size], 0xee);
}

static void
check_places(copy_fn copy)
{
    static const size_t sizes[] = {0,    1,    63,   64,       65,   127, 128,
                                   2047, 2048, 2111, PAGE + 5, 8191, MOST};
    static const size_t places[] = {0, 1, 8, 16, 31, 32, 33, 48, 63, 64, 4095};

    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (size_t to = 0; to < sizeof places / sizeof *places; to++) {
            for (size_t from = 0; from < sizeof places / sizeof *places; from++) {
                check_copy(copy, places[to], places[from], sizes[n]);
            }
        }
    }
}

CHECK_CASE(copies_of_any_size_between_any_places)
{
    check_places(dl_copy);
}

CHECK_CASE(copies_past_caches)
{
    check_places(dl_copy_streaming);
}

CHECK_CASE(a_few_megabytes_stay_in_caches)
{
    CHECK(dl_copy_cached_limit() > 0);
    CHECK(dl_copy_cached_limit() <= (size_t)24 << 20);
    CHECK_EQUAL(dl_copy_cached_limit(), dl_copy_cached_limit());
}
