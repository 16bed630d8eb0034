/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The file of a FileStore, written by somebody else.  The first byte says where it is
 * cut: the second part comes when the first has been read, as if a member wrote it
 * meanwhile.  What is read in two parts must be what is read at once; and where it can
 * be read, it can be written to, and read again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/file_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static const char *
file_of_this_process(void)
{
    static char path[128];

    if (path[0] == '\0') {
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/distlite-fuzz-XXXXXX",
                 folder != NULL ? folder : "/tmp");
        int fd = mkstemp(path);
        require(fd >= 0);
        close(fd);
    }
    return path;
}

static void
remove_file(void)
{
    unlink(file_of_this_process());
}

static dl_status
read_all(dl_file_log *log, const char *path)
{
    int fd;

    require(dl_file_open(path, DL_FILE_READ, dl_deadline_after(DL_SECOND), &fd)
            == DL_OK);
    dl_status status = dl_file_log_read(log, fd);
    dl_file_close(fd);
    return status;
}

static void
write_part(const char *path, dl_bytes part, int flags)
{
    int fd = open(path, O_WRONLY | flags);

    require(fd >= 0);
    require(part.size == 0 || write(fd, part.data, part.size) == (ssize_t)part.size);
    close(fd);
}

static void
add_record(dl_file_log *log, const char *path)
{
    int fd;

    require(dl_file_open(path, DL_FILE_WRITE, dl_deadline_after(DL_SECOND), &fd)
            == DL_OK);
    require(dl_file_log_read(log, fd) == DL_OK);
    require(dl_table_set(&log->table, DL_LITERAL("fuzz"), DL_LITERAL("v")) == DL_OK);
    require(dl_file_log_write(log, fd, DL_FILE_SET, DL_LITERAL("fuzz"), DL_LITERAL("v"))
            == DL_OK);
    dl_file_close(fd);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_registered;
    const char *path = file_of_this_process();
    dl_file_log once, parts;

    if (size == 0) {
        return 0;
    }
    if (!is_registered) {
        is_registered = atexit(remove_file) == 0;
    }
    dl_bytes all = {data + 1, size - 1};
    size_t cut = all.size * data[0] / 256;
    require(dl_file_log_init(&once, path) == DL_OK);
    require(dl_file_log_init(&parts, path) == DL_OK);
    write_part(path, (dl_bytes){all.data, cut}, O_TRUNC);
    (void)read_all(&parts, path);
    write_part(path, (dl_bytes){all.data + cut, all.size - cut}, O_APPEND);
    dl_status status = read_all(&once, path);
    require(read_all(&parts, path) == status);
    if (status == DL_OK) {
        require(once.table.value_count == parts.table.value_count
                && once.offset == parts.offset
                && once.reference_count == parts.reference_count);
        add_record(&once, path);
        require(read_all(&parts, path) == DL_OK);
        require(dl_table_get(&parts.table, DL_LITERAL("fuzz")) != NULL);
        require(once.table.value_count == parts.table.value_count);
    }
    dl_file_log_fini(&once);
    dl_file_log_fini(&parts);
    return 0;
}
