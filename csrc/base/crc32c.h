/* SPDX-License-Identifier: BSD-3-Clause
 *
 * CRC-32C (Castagnoli), the checksum of what is kept in files.  It finds damage, and is
 * no protection against changes made on purpose. */
#ifndef DISTLITE_BASE_CRC32C_H
#define DISTLITE_BASE_CRC32C_H

#include "base/bytes.h"

/* Returns the checksum of all bytes that led to `crc` (0 for none) followed by
 * `bytes`. */
uint32_t dl_crc32c(uint32_t crc, dl_bytes bytes);

#endif
