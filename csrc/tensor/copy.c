/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/copy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* The most bytes that a third-level cache is taken to have: in a virtual machine others
 * use it as well.  Measured on Zen 4, of whose 32 MiB three quarters are what arrays may
 * have in all: 16 MiB that are read afterwards take 1.2 to 1.4 times as long past the
 * caches, and 32 MiB 0.9. */
#define MOST_CACHED ((size_t)32 << 20)

size_t
dl_copy_cached_limit(void)
{
    long found = -1;

#ifdef _SC_LEVEL3_CACHE_SIZE
    found = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    bool is_known = found > 0 && (size_t)found < MOST_CACHED;
    return (is_known ? (size_t)found : MOST_CACHED) / 4 * 3;
}

#if defined(__x86_64__)
#include <emmintrin.h>

/* The size of a cache line. */
#define LINE 64

/* Distance in bytes at which a non-temporal copy prefetches its source.  A prefetch
 * beyond the end has no effect. */
#define AHEAD 1024

/* memcpy(3) does not use string instructions for smaller sizes. */
#define LEAST_STRING 2048

typedef struct line {
    __m128i parts[4];
} line;

static inline line
load_line(const uint8_t *source)
{
    const __m128i *from = (const __m128i *)(const void *)source;

    return (line){{_mm_loadu_si128(from), _mm_loadu_si128(from + 1),
                   _mm_loadu_si128(from + 2), _mm_loadu_si128(from + 3)}};
}

static void
copy_lines(uint8_t *target, const uint8_t *source, size_t lines)
{
    for (size_t i = 0; i < lines; i++) {
        line next = load_line(source + i * LINE);
        __m128i *to = (__m128i *)(void *)(target + i * LINE);
        _mm_storeu_si128(to, next.parts[0]);
        _mm_storeu_si128(to + 1, next.parts[1]);
        _mm_storeu_si128(to + 2, next.parts[2]);
        _mm_storeu_si128(to + 3, next.parts[3]);
    }
}

/* `target` must be aligned to a line. */
static void
copy_lines_past_caches(uint8_t *target, const uint8_t *source, size_t lines)
{
    for (size_t i = 0; i < lines; i++) {
        _mm_prefetch((const char *)source + i * LINE + AHEAD, _MM_HINT_T0);
        line next = load_line(source + i * LINE);
        __m128i *to = (__m128i *)(void *)(target + i * LINE);
        _mm_stream_si128(to, next.parts[0]);
        _mm_stream_si128(to + 1, next.parts[1]);
        _mm_stream_si128(to + 2, next.parts[2]);
        _mm_stream_si128(to + 3, next.parts[3]);
    }
    /* Non-temporal stores are not ordered with other stores. */
    _mm_sfence();
}

/* Measured on Zen 3: distances of 1 to 31 bytes, modulo the page size, are slow. */
static bool
is_close_behind(const void *target, const void *source)
{
    uintptr_t distance = ((uintptr_t)target - (uintptr_t)source) % 4096;

    return distance > 0 && distance < 32;
}

void
dl_copy(void *target, const void *source, size_t size)
{
    uint8_t *to = target;
    const uint8_t *from = source;

    if (size == 0) {
        return;
    }
    if (size < LEAST_STRING || !is_close_behind(target, source)) {
        memcpy(target, source, size);
        return;
    }
    size_t done = size / LINE * LINE;
    copy_lines(to, from, size / LINE);
    memcpy(to + done, from + done, size - done);
}

void
dl_copy_streaming(void *target, const void *source, size_t size)
{
    uint8_t *to = target;
    const uint8_t *from = source;
    size_t head = (size_t)(-(uintptr_t)to % LINE);

    if (size < head + LINE) {
        memcpy(to, from, size);
        return;
    }
    memcpy(to, from, head);
    size_t lines = (size - head) / LINE;
    size_t done = head + lines * LINE;
    copy_lines_past_caches(to + head, from + head, lines);
    memcpy(to + done, from + done, size - done);
}

#else

void
dl_copy(void *target, const void *source, size_t size)
{
    if (size > 0) {
        memcpy(target, source, size);
    }
}

void
dl_copy_streaming(void *target, const void *source, size_t size)
{
    memcpy(target, source, size);
}

#endif
