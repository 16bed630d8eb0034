/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/thread.h"

dl_status
dl_absolute_path(const char *path, char **whole)
{
    bool is_relative = path[0] != '/' && path[0] != '\0';
    char folder[PATH_MAX] = "";

    if (is_relative && getcwd(folder, sizeof folder) == NULL) {
        return dl_fail(DL_NOT_FOUND, "%s: there is no current folder: %s", path,
                       strerror(errno));
    }
    size_t room = strlen(folder) + 1 + strlen(path) + 1;
    *whole = malloc(room);
    if (*whole == NULL) {
        return dl_fail_no_memory();
    }
    const char *slash = is_relative && strcmp(folder, "/") != 0 ? "/" : "";
    snprintf(*whole, room, "%s%s%s", folder, slash, path);
    return DL_OK;
}

int
dl_write_at(int fd, dl_bytes bytes, uint64_t offset)
{
    while (bytes.size > 0) {
        ssize_t size = pwrite(fd, bytes.data, bytes.size, (off_t)offset);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        /* A write of nothing would be repeated for ever. */
        if (size <= 0) {
            return size < 0 ? errno : ENOSPC;
        }
        bytes.data += size;
        bytes.size -= (size_t)size;
        offset += (uint64_t)size;
    }
    return 0;
}

void
dl_file_close(int fd)
{
    if (fd < 0) {
        return;
    }
    /* close(2) alone does not release the lock while a child that another thread has
     * just forked has a copy of the descriptor. */
    (void)flock(fd, LOCK_UN);
    dl_fork_release(fd);
    close(fd);
}
