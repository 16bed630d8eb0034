/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that the processes of one host share: an anonymous file, which exists as long
 * as some process has it open or mapped, needs no room in /dev/shm, and is passed on as
 * a descriptor.  Pages cost nothing until they are touched.  A forked child does not
 * inherit the mapping. */
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

/* Checks whether this process can create memory files that others can map.
 * DL_INTERNAL: it cannot, with the reason. */
dl_status dl_segment_check(void);

/* Creates a file of zeros.  Where dl_segment_check() fails, the file can be mapped by
 * this process only.  The caller closes `*fd` with dl_socket_close(). */
dl_status dl_segment_create(size_t size, int *fd);

/* Maps a part of a file, which another process may have created; the descriptor stays
 * the caller's.  Refuses a file that could still shrink, because touching pages that
 * were cut off would kill the process. */
dl_status dl_segment_map(int fd, size_t offset, size_t size, dl_segment *segment);

/* Lets nobody write to the file from now on, where the system can do so; no writable
 * mapping of it may be left. */
void dl_segment_seal(int fd);

/* Maps all of a file for reading only, by the same rules; a forked child inherits it. */
dl_status dl_segment_map_whole(int fd, dl_segment *segment);

/* Gives `size` bytes of writable memory their pages: one call of the kernel costs less
 * than a fault for each.  A kernel that cannot do so leaves it to the faults. */
void dl_segment_populate(const void *memory, size_t size);

void dl_segment_fini(dl_segment *segment);

#endif
