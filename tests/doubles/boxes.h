/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the doubles of NCCL and UCC share: chunks that processes of one host pass
 * through mailboxes in shared memory, one for each pair of ranks and direction, and
 * 16-bit floats. */
#ifndef DISTLITE_TESTS_DOUBLES_BOXES_H
#define DISTLITE_TESTS_DOUBLES_BOXES_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK 65536

typedef struct box {
    _Atomic uint32_t is_full;
    uint32_t size;
    size_t total; /* of the whole array */
    char data[CHUNK];
} box;

/* One array in flight between two ranks. */
typedef struct transfer {
    int from, to;
    char *data;
    size_t size, done;
    bool is_over;
    bool is_copy; /* freed with the plan */
} transfer;

/* Maps the file `name`, which the first of `size` ranks creates, or returns NULL.  It
 * begins with an atomic_int that counts the ranks; the last one to come removes the
 * name. */
static inline void *
open_shared(const char *name, size_t bytes, int size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
        return NULL;
    }
    atomic_int *arrived = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (atomic_fetch_add(arrived, 1) + 1 == size) {
        unlink(name);
    }
    return arrived;
}

/* Moves one chunk if the mailbox allows it, on the sending or the receiving `rank`.
 * `boxes` are those of `size` ranks, [from * size + to].  Aborts the process if the two
 * sides differ in size, unless `is_checked` is false and the receiver has more room. */
static inline bool
move_chunk(box *boxes, int rank, int size, transfer *moved, const char *title,
           bool is_checked)
{
    box *box = &boxes[moved->from * size + moved->to];
    bool is_sending = moved->from == rank;
    size_t left = moved->size - moved->done;
    uint32_t bytes = (uint32_t)(left < CHUNK ? left : CHUNK);

    if ((atomic_load(&box->is_full) != 0) == is_sending) {
        return false;
    }
    if (is_sending) {
        box->size = bytes;
        box->total = moved->size;
    } else {
        bytes = box->size;
        if (bytes > left || (is_checked && box->total != moved->size)) {
            fprintf(stderr, "%s double: rank %d sent %zu bytes, rank %d expects %zu\n",
                    title, moved->from, box->total, moved->to, moved->size);
            abort();
        }
    }
    if (bytes > 0) {
        memcpy(is_sending ? box->data : moved->data + moved->done,
               is_sending ? moved->data + moved->done : box->data, bytes);
    }
    atomic_store(&box->is_full, is_sending);
    moved->done += bytes;
    moved->is_over = moved->done == moved->size;
    return true;
}

static inline double
from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = (bits & 1023) / 1024.0;
    double value = exponent == 0 ? fraction / 16384.0 : 1.0 + fraction;

    for (int i = 15; i < exponent; i++) {
        value *= 2;
    }
    for (int i = exponent; exponent > 0 && i < 15; i++) {
        value /= 2;
    }
    return bits >> 15 ? -value : value;
}

/* Converts exact values only, as tests use small numbers.  Exact subnormals stay
 * exact; whatever is larger than any number becomes an infinity. */
static inline uint16_t
to_half(double value)
{
    uint16_t sign = value < 0 ? 1 << 15 : 0;
    int exponent = 15;

    value = value < 0 ? -value : value;
    if (value == 0) {
        return sign;
    }
    for (; value >= 2 && exponent < 31; exponent++) {
        value /= 2;
    }
    if (exponent == 31) {
        return sign | 31 << 10;
    }
    for (; value < 1 && exponent > 1; exponent--) {
        value *= 2;
    }
    /* A subnormal number has the exponent field 0 and no implicit 1.  The sum carries
     * into the exponent where rounding does. */
    int field = value < 1 ? 0 : exponent;
    double fraction = value < 1 ? value : value - 1;
    return (uint16_t)(sign | ((field << 10) + (int)(fraction * 1024 + 0.5)));
}

static inline float
from_bfloat16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Cuts off the bits beyond. */
static inline uint16_t
to_bfloat16(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, sizeof wide);
    return (uint16_t)(wide >> 16);
}

#endif
