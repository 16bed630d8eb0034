/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that processes of one host share: an anonymous file that exists as long as
 * somebody maps it, needs no room in /dev/shm, and is handed on as a descriptor.  Pages
 * cost nothing until they are touched.  A forked child does not inherit the mapping. */
#ifndef DISTLITE_PG_CPU_SHM_SEGMENT_H
#define DISTLITE_PG_CPU_SHM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dl_segment {
    void *memory; /* page-aligned */
    size_t size;
    uint32_t fork_generation; /* of the process that mapped it */
} dl_segment;

/* Whether this process can make files that others may map.  DL_INTERNAL: why not. */
dl_status dl_segment_check(void);

/* A fresh file of zeros; where dl_segment_check() fails, one for this process alone.  The
 * caller closes `*fd` with dl_socket_close(). */
dl_status dl_segment_create(size_t size, int *fd);

/* Maps a part of one, also of one that another process made; the descriptor stays the
 * caller's.  Refuses a file that could still shrink, because touching what is cut off
 * kills the process. */
dl_status dl_segment_map(int fd, size_t offset, size_t size, dl_segment *segment);

void dl_segment_fini(dl_segment *segment);

#endif
