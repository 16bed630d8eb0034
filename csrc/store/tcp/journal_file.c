/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "store/tcp/journal_state.h"

int
dl_journal_file_open(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

    if (fd >= 0) {
        dl_fork_guard(fd);
    }
    return fd;
}

int
dl_journal_file_begin(int fd, const uint8_t identity[DL_JOURNAL_IDENTITY_SIZE],
                      uint64_t *size)
{
    dl_buffer head = {0};

    dl_journal_put_head(&head, identity);
    int error = head.has_failed ? ENOMEM : dl_write_at(fd, dl_buffer_bytes(&head), 0);
    *size = head.size;
    dl_buffer_fini(&head);
    return error;
}

int
dl_journal_file_open_folder(const char *path, int *folder)
{
    char *name = strdup(path);

    if (name == NULL) {
        return ENOMEM;
    }
    char *slash = strrchr(name, '/'); /* the path is absolute */
    slash[slash == name ? 1 : 0] = '\0';
    *folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = *folder < 0 && errno != EACCES ? errno : 0;
    free(name);
    return error;
}

void
dl_journal_file_sync_folder(int folder)
{
    if (folder >= 0) {
        (void)fsync(folder); /* some file systems have none for folders */
        close(folder);
    }
}

dl_status
dl_journal_file_fail(const char *path, const char *what, int error)
{
    return dl_fail(DL_BACKEND, "the store's journal %s: %s: %s", path, what,
                   strerror(error));
}
