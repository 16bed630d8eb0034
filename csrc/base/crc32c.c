/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crc32c.h"

#include <pthread.h>

/* The polynomial with its bits reversed. */
#define POLYNOMIAL 0x82F63B78u

/* Eight bytes are processed per step: tables[i][b] is the checksum of the byte b followed
 * by i zero bytes. */
#define SLICES 8

static uint32_t tables[SLICES][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void
fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        }
        tables[0][byte] = crc;
    }
    for (int i = 1; i < SLICES; i++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[i - 1][byte];
            tables[i][byte] = (before >> 8) ^ tables[0][before & 0xff];
        }
    }
}

uint32_t
dl_crc32c(uint32_t crc, dl_bytes bytes)
{
    const uint8_t *next = bytes.data;
    size_t left = bytes.size;

    pthread_once(&tables_once, fill_tables);
    crc = ~crc;
    for (; left >= SLICES; left -= SLICES, next += SLICES) {
        uint32_t low = crc
                       ^ (next[0] | (uint32_t)next[1] << 8 | (uint32_t)next[2] << 16
                          | (uint32_t)next[3] << 24);
        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff]
              ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^ tables[3][next[4]]
              ^ tables[2][next[5]] ^ tables[1][next[6]] ^ tables[0][next[7]];
    }
    for (; left > 0; left--, next++) {
        crc = (crc >> 8) ^ tables[0][(crc ^ *next) & 0xff];
    }
    return ~crc;
}
