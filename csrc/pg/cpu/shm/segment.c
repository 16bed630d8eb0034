/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/socket.h"

/* A child of fork(2) is no member and must not keep the memory alive. */
static dl_status
map(int fd, size_t offset, size_t size, dl_segment *segment)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

    if (memory == MAP_FAILED) {
        return dl_fail(DL_NO_MEMORY, "mapping %zu bytes of shared memory: %s", size,
                       strerror(errno));
    }
    (void)madvise(memory, size, MADV_DONTFORK);
    *segment = (dl_segment){memory, size, dl_fork_generation()};
    return DL_OK;
}

dl_status
dl_segment_create(size_t size, int *fd)
{
    int made = memfd_create("distlite", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (made < 0) {
        return dl_fail(DL_INTERNAL, "memfd_create: %s", strerror(errno));
    }
    dl_fork_guard(made);
    if (ftruncate(made, (off_t)size) < 0
        || fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
        dl_status status =
            dl_fail(DL_NO_MEMORY, "making %zu bytes of shared memory: %s", size,
                    strerror(errno));
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}

dl_status
dl_segment_map(int fd, size_t offset, size_t size, dl_segment *segment)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) < 0
        || (size_t)info.st_size < offset || (size_t)info.st_size - offset < size) {
        return dl_fail(DL_PROTOCOL,
                       "a peer offers a descriptor that is no shared memory of %zu "
                       "bytes",
                       size);
    }
    return map(fd, offset, size, segment);
}

void
dl_segment_fini(dl_segment *segment)
{
    /* In a forked child the address may by now be something else's. */
    if (segment->memory != NULL && segment->fork_generation == dl_fork_generation()) {
        munmap(segment->memory, segment->size);
    }
    *segment = (dl_segment){0};
}
