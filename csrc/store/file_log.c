/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/reader.h"
#include "base/thread.h"
#include "store/counter.h"

#define FIRST_LOCK_PAUSE (50 * DL_MILLISECOND / 1000)
#define LAST_LOCK_PAUSE (2 * DL_MILLISECOND)

/* The file is read in pieces of this size, or of one record if that is larger. */
#define PIECE_SIZE ((uint64_t)256 << 10)

#define LENGTH_SIZE 4

/* Only processes of the same user get access: others must not read what ranks exchange,
 * nor keep writers away by holding the lock, for which read access is enough.  To share
 * a file with other users, create it first, so that they can write to it. */
#define FILE_MODE 0600
#define OTHERS_READ (S_IRGRP | S_IROTH)
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

/* The smallest page size; assuming smaller pages than there are is safe. */
#define PAGE 4096

void
dl_file_log_fini(dl_file_log *log)
{
    dl_table_fini(&log->table);
    free(log->path);
    *log = (dl_file_log){0};
}

/* A missing folder is DL_NOT_FOUND, since it is usually a mistyped path; anything else
 * is DL_BACKEND. */
static dl_status
fail_to(const char *what, const char *path, int error)
{
    return dl_fail(error == ENOENT || error == ENOTDIR ? DL_NOT_FOUND : DL_BACKEND,
                   "%s %s: %s", what, path, strerror(error));
}

dl_status
dl_file_log_init(dl_file_log *log, const char *path)
{
    *log = (dl_file_log){0};
    dl_table_init(&log->table);
    return dl_absolute_path(path, &log->path);
}

/* Sleeps for `*pause`, which is doubled, up to `longest`. */
static dl_status
sleep_longer(int64_t *pause, int64_t longest, dl_deadline deadline)
{
    int64_t length = *pause;

    *pause = length * 2 < longest ? length * 2 : longest;
    return dl_sleep_until(dl_deadline_earlier(deadline, length));
}

static dl_status
lock_file(int fd, dl_file_access access, dl_deadline deadline, const char *path)
{
    int operation = (access == DL_FILE_READ ? LOCK_SH : LOCK_EX) | LOCK_NB;
    int64_t pause = FIRST_LOCK_PAUSE;

    if (dl_deadline_left(deadline) < DL_FILE_LOCK_PATIENCE) {
        deadline = dl_deadline_after(DL_FILE_LOCK_PATIENCE);
    }
    /* Not the blocking flock(2), which supports neither deadlines nor interrupts. */
    while (flock(fd, operation) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return fail_to("locking", path, errno);
        }
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT, "locking %s: another process keeps it locked",
                           path);
        }
        DL_TRY(sleep_longer(&pause, LAST_LOCK_PAUSE, deadline));
    }
    return DL_OK;
}

/* Returns whether the file was removed between opening and locking it. */
static bool
is_removed(int fd)
{
    struct stat file;

    return fstat(fd, &file) == 0 && file.st_nlink == 0;
}

dl_status
dl_file_open(const char *path, dl_file_access access, dl_deadline deadline, int *fd)
{
    int flags = access == DL_FILE_READ ? O_RDONLY : O_RDWR;

    if (access == DL_FILE_WRITE) {
        flags |= O_CREAT;
    }
    for (;;) {
        int opened = open(path, flags | O_CLOEXEC, FILE_MODE);
        /* Removed by the last member, or not created yet: an empty file. */
        if (opened < 0 && errno == ENOENT && access != DL_FILE_WRITE) {
            *fd = -1;
            return DL_OK;
        }
        if (opened < 0) {
            return fail_to("opening", path, errno);
        }
        dl_fork_guard(opened);
        /* The lock is on the inode that was opened.  If it has lost its name meanwhile,
         * others use a new file: start again, or the two would never meet. */
        dl_status status = lock_file(opened, access, deadline, path);
        if (status == DL_OK && !is_removed(opened)) {
            *fd = opened;
            return DL_OK;
        }
        dl_file_close(opened);
        DL_TRY(status);
    }
}

static void
forget_image(dl_file_log *log)
{
    dl_table_fini(&log->table);
    dl_table_init(&log->table);
    log->reference_count = 0;
    log->cleanup_count = 0;
    log->has_references = false;
    log->has_cleanups = false;
    log->offset = 0;
}

/* Adds a record to the image.  Unknown keys are skipped: a newer version may
 * write more. */
static dl_status
apply_record(dl_file_log *log, dl_bytes key, dl_bytes value)
{
    const dl_bytes set = DL_LITERAL(DL_FILE_SET), delete = DL_LITERAL(DL_FILE_DELETE);

    if (dl_bytes_start_with(key, set)) {
        return dl_table_set(
            &log->table, (dl_bytes){key.data + set.size, key.size - set.size}, value);
    }
    if (dl_bytes_start_with(key, delete)) {
        dl_table_delete(&log->table,
                        (dl_bytes){key.data + delete.size, key.size - delete.size});
    } else if (dl_bytes_equal(key, DL_LITERAL(DL_FILE_REFERENCES))) {
        dl_counter_parse(value, &log->reference_count);
        log->has_references = true;
    } else if (dl_bytes_equal(key, DL_LITERAL(DL_FILE_CLEANUPS))) {
        dl_counter_parse(value, &log->cleanup_count);
        log->has_cleanups = true;
    }
    return DL_OK;
}

/* What a key begins with. */
static const char *const spaces[] = {DL_FILE_SET, DL_FILE_DELETE, DL_FILE_REFERENCES,
                                     DL_FILE_CLEANUPS};

/* Returns whether a key of this size may begin with `begin`, which is all of it, or as
 * much as there is. */
static bool
may_be_key(dl_bytes begin, size_t key_size)
{
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t length = strlen(spaces[i]);
        size_t size = begin.size < length ? begin.size : length;
        if (key_size >= length && memcmp(begin.data, spaces[i], size) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes a u32 size and that many bytes.  False: at least `*needed` more bytes are
 * required to complete the field. */
static bool
take_field(dl_reader *reader, dl_bytes *field, uint64_t *needed)
{
    uint32_t size;

    if (!dl_take_u32(reader, &size)) {
        *needed = LENGTH_SIZE - dl_reader_left(reader);
        return false;
    }
    if (dl_reader_left(reader) < size) {
        *needed = size - dl_reader_left(reader);
        return false;
    }
    *field = (dl_bytes){reader->next, size};
    reader->next += size;
    return true;
}

/* Returns whether a record with a key size of 0 has a key nevertheless, which means
 * that its writer was killed (see append_record()).  At offset 0 it means a file of
 * another format, which must not be cut: the first record counts a member, fits into one
 * page and is written at once. */
static bool
is_unfinished(const dl_file_log *log, const dl_reader *reader)
{
    return log->offset > 0 && dl_reader_left(reader) > 0 && *reader->next != 0;
}

/* Applies the complete records of a piece.  `*needed` is the number of bytes that the
 * next field requires beyond the piece; 0 if the piece ends with a record. */
static dl_status
apply_piece(dl_file_log *log, dl_bytes piece, uint64_t *needed)
{
    dl_reader reader = dl_reader_of(piece);

    *needed = 0;
    while (dl_reader_left(&reader) > 0) {
        dl_reader probe = reader;
        dl_bytes key, value;
        if (!take_field(&probe, &key, needed)) {
            return DL_OK;
        }
        if (key.size == 0 && is_unfinished(log, &probe)) {
            log->is_unfinished = true;
            return DL_OK;
        }
        if (!take_field(&probe, &value, needed)) {
            return DL_OK;
        }
        if (log->offset == 0 && !may_be_key(key, key.size)) {
            return dl_fail(DL_BACKEND, "%s is not the file of a FileStore", log->path);
        }
        DL_TRY(apply_record(log, key, value));
        log->offset += (uint64_t)(probe.next - reader.next);
        reader = probe;
    }
    return DL_OK;
}

/* Replaces the contents of `piece` with `size` bytes of the file from the offset on. */
static dl_status
read_piece(dl_file_log *log, int fd, uint64_t size, dl_buffer *piece)
{
    dl_buffer_clear(piece);
    DL_TRY(dl_buffer_reserve(piece, size));
    while (piece->size < size) {
        ssize_t count = pread(fd, piece->data + piece->size, size - piece->size,
                              (off_t)(log->offset + piece->size));
        /* The file ends before `size` only if it is truncated without the lock. */
        if (count == 0 || (count < 0 && errno != EINTR)) {
            return fail_to("reading", log->path, count == 0 ? EIO : errno);
        }
        piece->size += count > 0 ? (size_t)count : 0;
    }
    return DL_OK;
}

/* Returns whether `tail`, the end of the file, is the beginning of a record: its writer
 * was killed.  While the caller holds the lock no write is in progress.  torch writes a
 * record in four parts. */
static bool
is_torn(const dl_file_log *log, dl_bytes tail)
{
    dl_reader reader = dl_reader_of(tail);
    uint32_t key_size;

    /* At offset 0 there may be too few bytes to tell a first record from another
     * format. */
    if (log->offset == 0) {
        return false;
    }
    if (!dl_take_u32(&reader, &key_size)) {
        return true;
    }
    size_t left = dl_reader_left(&reader);
    return may_be_key((dl_bytes){reader.next, left < key_size ? left : key_size},
                      key_size);
}

/* Reads up to `end`.  A piece that ends within a record is read again, larger, from the
 * start of that record.  A record that could only end beyond the file is torn, or the
 * file is damaged. */
static dl_status
read_up_to(dl_file_log *log, int fd, uint64_t end, dl_buffer *piece)
{
    uint64_t size = PIECE_SIZE;

    log->is_unfinished = false;
    while (log->offset < end && !log->is_unfinished) {
        uint64_t needed;
        uint64_t left = end - log->offset;
        if (size > left) {
            size = left;
        }
        DL_TRY(read_piece(log, fd, size, piece));
        uint64_t start = log->offset;
        DL_TRY(apply_piece(log, dl_buffer_bytes(piece), &needed));
        /* Now the rest of the piece: a record that lacks `needed` bytes. */
        size -= log->offset - start;
        dl_bytes tail = {piece->data + (log->offset - start), size};
        if (size + needed > end - log->offset && is_torn(log, tail)) {
            log->is_unfinished = true;
        } else if (size + needed > end - log->offset) {
            return dl_fail(DL_BACKEND,
                           "%s is damaged: the record at byte %" PRIu64
                           " reaches beyond the end of the file",
                           log->path, log->offset);
        }
        size = size + needed > PIECE_SIZE ? size + needed : PIECE_SIZE;
    }
    return DL_OK;
}

/* A new file may reuse the inode number at once; the time of birth distinguishes the
 * two if the file system records it (otherwise it is 0). */
static int64_t
birth_of(const struct statx *file)
{
    return file->stx_btime.tv_sec * DL_SECOND + file->stx_btime.tv_nsec;
}

#define WANTED_FACTS \
    (STATX_INO | STATX_SIZE | STATX_BTIME | STATX_TYPE | STATX_MODE | STATX_UID)

bool
dl_file_log_is_current(const dl_file_log *log)
{
    struct statx file = {0};

    if (statx(AT_FDCWD, log->path, 0, WANTED_FACTS, &file) != 0) {
        return errno == ENOENT && log->offset == 0;
    }
    return file.stx_ino == log->inode && birth_of(&file) == log->born
           && file.stx_size == log->offset;
}

/* Withdraws other users' read access to a file of this user that they cannot write,
 * such as torch makes: no member of the store needs read access alone, and a process
 * that has it can hold the lock for ever. */
static void
make_private(int fd, const struct statx *file)
{
    if (S_ISREG(file->stx_mode) && file->stx_uid == geteuid()
        && (file->stx_mode & OTHERS_READ) != 0
        && (file->stx_mode & OTHERS_WRITE) == 0) {
        (void)fchmod(fd, file->stx_mode & 07777 & ~(mode_t)OTHERS_READ);
    }
}

dl_status
dl_file_log_read(dl_file_log *log, int fd)
{
    struct statx file = {0};
    dl_buffer piece = {0};

    if (fd < 0) {
        forget_image(log);
        return DL_OK;
    }
    if (statx(fd, "", AT_EMPTY_PATH, WANTED_FACTS, &file) != 0) {
        return fail_to("reading", log->path, errno);
    }
    int64_t born = birth_of(&file);
    /* Another file, or a truncated one: the image is no longer valid. */
    if (file.stx_ino != log->inode || born != log->born
        || file.stx_size < log->offset) {
        forget_image(log);
    }
    log->inode = file.stx_ino;
    log->born = born;
    dl_status status = read_up_to(log, fd, file.stx_size, &piece);
    dl_buffer_fini(&piece);
    /* Not before: a file that is no store's, named by mistake, keeps its mode. */
    if (status == DL_OK) {
        make_private(fd, &file);
    }
    return status;
}

static dl_status
encode_record(dl_buffer *record, const char *space, dl_bytes key, dl_bytes value)
{
    size_t key_size = strlen(space) + key.size;

    if (value.size > UINT32_MAX) {
        return dl_fail(DL_INVALID, "a value of %zu bytes is too large for a FileStore",
                       value.size);
    }
    dl_put_u32(record, (uint32_t)key_size);
    dl_buffer_put(record, dl_bytes_of(space));
    dl_buffer_put(record, key);
    dl_put_u32(record, (uint32_t)value.size);
    dl_buffer_put(record, value);
    return dl_buffer_check(record);
}

/* Removes what lies beyond `size`, since half a record would make the file unreadable
 * for every member.  Returns 0 or an errno. */
static int
cut_to(int fd, uint64_t size)
{
    struct stat file;
    bool is_longer = fstat(fd, &file) == 0 && (uint64_t)file.st_size > size;

    return is_longer && ftruncate(fd, (off_t)size) != 0 ? errno : 0;
}

/* Writes the record at the offset, which is the end of the file: the writer has read
 * everything under the same lock.  A kill can end a write between two pages, so a
 * record that spans several gets its first bytes last, and is not valid before. */
static dl_status
append_record(dl_file_log *log, int fd, dl_bytes record)
{
    bool is_in_one_page = log->offset % PAGE + record.size <= PAGE;
    size_t last = is_in_one_page ? 0 : LENGTH_SIZE;
    dl_bytes rest = {record.data + last, record.size - last};
    int error = log->is_unfinished ? cut_to(fd, log->offset) : 0;

    if (error == 0) {
        error = dl_write_at(fd, rest, log->offset + last);
    }
    if (error == 0) {
        error = dl_write_at(fd, (dl_bytes){record.data, last}, log->offset);
    }
    if (error == 0) {
        return DL_OK;
    }
    int cutting = cut_to(fd, log->offset);
    return fail_to("writing", log->path, cutting == 0 ? error : cutting);
}

dl_status
dl_file_log_write(dl_file_log *log, int fd, const char *space, dl_bytes key,
                  dl_bytes value)
{
    dl_buffer record = {0};
    dl_status status = encode_record(&record, space, key, value);

    if (status == DL_OK) {
        status = append_record(log, fd, dl_buffer_bytes(&record));
    }
    if (status == DL_OK) {
        log->offset += record.size;
    } else {
        forget_image(log);
    }
    dl_buffer_fini(&record);
    return status;
}

dl_status
dl_file_log_count(dl_file_log *log, int fd, const char *counter, int64_t number)
{
    char text[DL_COUNTER_TEXT_SIZE + 1];
    dl_bytes value = dl_counter_format(number, text);

    DL_TRY(dl_file_log_write(log, fd, counter, DL_LITERAL(""), value));
    return apply_record(log, dl_bytes_of(counter), value);
}
