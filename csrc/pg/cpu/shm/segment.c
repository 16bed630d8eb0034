/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/socket.h"

/* Linux has it from 5.14 on, and headers of C libraries later. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* MADV_DONTFORK: a child of fork(2) is not a member and must not keep the memory
 * alive.  What is only read, such as names for its errors, it may read as well. */
static dl_status
map_segment(int fd, size_t offset, size_t size, int protection, dl_segment *segment)
{
    /* Older kernels refuse to share a file that is sealed, even for reading. */
    int sharing = (protection & PROT_WRITE) != 0 ? MAP_SHARED : MAP_PRIVATE;
    void *memory = mmap(NULL, size, protection, sharing, fd, (off_t)offset);

    if (memory == MAP_FAILED) {
        return dl_fail(DL_NO_MEMORY, "mapping %zu bytes of shared memory: %s", size,
                       strerror(errno));
    }
    if ((protection & PROT_WRITE) != 0) {
        (void)madvise(memory, size, MADV_DONTFORK);
    }
    *segment = (dl_segment){memory, size, dl_fork_generation()};
    return DL_OK;
}

/* True where the system refuses memory files.  Such a process maps only its own files,
 * so dl_segment_map() need not check for seals, which plain files do not have. */
static atomic_bool has_plain_files;

/* Returns -1 with errno set if there is none. */
static int
open_memory_file(void)
{
    return memfd_create("distlite", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static bool
is_refused(int error)
{
    return error == ENOSYS || error == EPERM || error == EACCES;
}

/* Opens a file without a name, which no other process can open. */
static int
open_plain_file(void)
{
    static const char *const folders[] = {"/dev/shm", "/tmp", "."};
    int made = -1;

    for (size_t i = 0; made < 0 && i < sizeof folders / sizeof *folders; i++) {
        made = open(folders[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    atomic_store(&has_plain_files, made >= 0);
    return made;
}

dl_status
dl_segment_check(void)
{
    int made = open_memory_file();

    if (made < 0) {
        return dl_fail(DL_INTERNAL, "memfd_create: %s", strerror(errno));
    }
    close(made);
    return DL_OK;
}

dl_status
dl_segment_create(size_t size, int *fd)
{
    int made = open_memory_file();
    bool is_plain = made < 0 && is_refused(errno);

    made = is_plain ? open_plain_file() : made;
    if (made < 0) {
        return dl_fail(DL_INTERNAL, "%s: %s",
                       is_plain ? "memfd_create failed; falling back to an unnamed "
                                  "file in /dev/shm, /tmp and the current directory"
                                : "memfd_create",
                       strerror(errno));
    }
    dl_fork_guard(made);
    if (ftruncate(made, (off_t)size) < 0
        || (!is_plain && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK) < 0)) {
        dl_status status =
            dl_fail(DL_NO_MEMORY, "making %zu bytes of shared memory: %s", size,
                    strerror(errno));
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}

void
dl_segment_seal(int fd)
{
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
}

/* Sets the file's size, of which the part must be within. */
static dl_status
check_file(int fd, size_t offset, size_t part, size_t *size)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    bool is_safe =
        atomic_load(&has_plain_files) || (seals >= 0 && (seals & F_SEAL_SHRINK) != 0);
    if (!is_safe || fstat(fd, &info) < 0 || (size_t)info.st_size < offset
        || (size_t)info.st_size - offset < part) {
        return dl_fail(
            DL_PROTOCOL,
            "a peer sent a descriptor that is not shared memory of %zu bytes", part);
    }
    *size = (size_t)info.st_size;
    return DL_OK;
}

dl_status
dl_segment_map(int fd, size_t offset, size_t size, dl_segment *segment)
{
    size_t found;

    DL_TRY(check_file(fd, offset, size, &found));
    return map_segment(fd, offset, size, PROT_READ | PROT_WRITE, segment);
}

dl_status
dl_segment_map_whole(int fd, dl_segment *segment)
{
    size_t size = 0;

    DL_TRY(check_file(fd, 0, 1, &size));
    return map_segment(fd, 0, size, PROT_READ, segment);
}

void
dl_segment_populate(const void *memory, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory & ~(page - 1);

    (void)madvise((void *)first, (uintptr_t)memory + size - first, MADV_POPULATE_WRITE);
}

void
dl_segment_fini(dl_segment *segment)
{
    /* In a forked child, something else may be mapped at this address by now. */
    if (segment->memory != NULL && segment->fork_generation == dl_fork_generation()) {
        munmap(segment->memory, segment->size);
    }
    *segment = (dl_segment){0};
}
