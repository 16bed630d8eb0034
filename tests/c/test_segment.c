/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <sys/mman.h>

#include "check.h"
#include "net/socket.h"
#include "pg/cpu/shm/segment.h"

CHECK_CASE(two_mappings_are_one_memory)
{
    dl_segment one = {0};
    dl_segment two = {0};
    int fd;

    CHECK_OK(dl_segment_create(10000, &fd));
    CHECK_OK(dl_segment_map(fd, 0, 10000, &one));
    CHECK_OK(dl_segment_map(fd, 0, 10000, &two));
    dl_socket_close(fd);
    CHECK(one.memory != two.memory);
    for (size_t i = 0; i < one.size; i++) {
        CHECK_EQUAL(((uint8_t *)one.memory)[i], 0);
    }
    memcpy((char *)one.memory + 9000, "seen", 5);
    CHECK_TEXT((char *)two.memory + 9000, "seen");
    dl_segment_fini(&one);
    CHECK_TEXT((char *)two.memory + 9000, "seen");
    dl_segment_fini(&two);
    dl_segment_fini(&two);
}

CHECK_CASE(a_part_can_be_mapped)
{
    dl_segment whole = {0};
    dl_segment part = {0};
    int fd;

    CHECK_OK(dl_segment_create(3 * 4096, &fd));
    CHECK_OK(dl_segment_map(fd, 0, 3 * 4096, &whole));
    CHECK_OK(dl_segment_map(fd, 4096, 100, &part));
    CHECK_STATUS(dl_segment_map(fd, 4096, 2 * 4096 + 1, &part), DL_PROTOCOL);
    CHECK_STATUS(dl_segment_map(fd, 4 * 4096, 1, &part), DL_PROTOCOL);
    CHECK_STATUS(dl_segment_map(fd, SIZE_MAX - 4095, 4097, &part), DL_PROTOCOL);
    memcpy((char *)whole.memory + 4096 + 7, "seen", 5);
    CHECK_TEXT((char *)part.memory + 7, "seen");
    dl_segment_fini(&part);
    dl_segment_fini(&whole);
    dl_socket_close(fd);
}

CHECK_CASE(memory_that_may_shrink_is_refused)
{
    dl_segment segment = {0};
    int fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    CHECK_STATUS(dl_segment_map(fd, 0, 8192, &segment), DL_PROTOCOL);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK_STATUS(dl_segment_map(fd, 0, 8193, &segment), DL_PROTOCOL);
    CHECK_OK(dl_segment_map(fd, 0, 8192, &segment));
    dl_segment_fini(&segment);
    close(fd);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK_STATUS(dl_segment_map(fd, 0, 8192, &segment), DL_PROTOCOL);
    close(fd);
}

CHECK_CASE(memory_that_cannot_be_mapped_is_an_error)
{
    dl_segment segment = {0};
    int fd;

    CHECK_STATUS(dl_segment_create(SIZE_MAX / 2 + 1, &fd), DL_NO_MEMORY);
    CHECK_OK(dl_segment_create((size_t)1 << 60, &fd));
    CHECK_STATUS(dl_segment_map(fd, 0, (size_t)1 << 60, &segment), DL_NO_MEMORY);
    CHECK(segment.memory == NULL);
    dl_socket_close(fd);
}

CHECK_CASE(a_child_neither_inherits_nor_unmaps)
{
    dl_segment segment = {0};
    int fd, status;

    CHECK_OK(dl_segment_create(4096, &fd));
    CHECK_OK(dl_segment_map(fd, 0, 4096, &segment));
    dl_socket_close(fd);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The address is free here, and may be taken by somebody else. */
        char *other = mmap(segment.memory, 4096, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(other == segment.memory);
        dl_segment_fini(&segment);
        other[0] = 1;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    dl_segment_fini(&segment);
}
