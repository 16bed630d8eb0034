/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of a host's disk.  A process sees all that was written; a crash of the host
 * keeps what was synced, and of the rest any sectors, in any order.  Names last once
 * their folder, or the file itself, was synced; before, a crash keeps the first of the
 * changes to them, as a file system with a journal does. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local.h"

#define SECTOR 512
#define NAME_SIZE 64
#define FILES 64
#define NAMES 16

/* How long a sync takes. */
#define SYNC_LEAST (100 * DL_MILLISECOND / 1000)
#define SYNC_MOST (20 * DL_MILLISECOND)

typedef struct contents {
    uint8_t *bytes;
    size_t size, capacity;
} contents;

struct sim_file {
    int number;
    contents seen;                    /* what processes read */
    contents synced;                  /* what a crash surely keeps */
    uint64_t version, synced_version; /* a later sync may end before an earlier one */
    uint64_t locker; /* generation of the descriptor that holds the lock; 0: none */
};

typedef struct name {
    char path[NAME_SIZE];
    sim_file *file;
} name;

typedef struct disk {
    name names[NAMES];
    int count;
    name history[FILES][NAMES]; /* the names after each change that was not synced */
    int counts[FILES];
    int history_count;
    bool is_full;
    int64_t extra; /* that a sync takes longer */
} disk;

int __wrap_open(const char *path, int flags, ...);
int __wrap_flock(int fd, int operation);
int __wrap_fstat(int fd, struct stat *found);
int __wrap_lstat(const char *path, struct stat *found);
int __wrap_ftruncate(int fd, off_t size);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
ssize_t __wrap_sendfile(int to, int from, off_t *offset, size_t size);
int __real_fstat(int fd, struct stat *found);
int __real_ftruncate(int fd, off_t size);

static disk disks[SIM_HOSTS];
static int files_made;

static disk *
own_disk(void)
{
    return &disks[sim_process_current()->host];
}

static int
fail(int error)
{
    errno = error;
    return -1;
}

static void
resize(contents *of, size_t size)
{
    if (size > of->capacity) {
        of->capacity = 2 * size;
        of->bytes = sim_grow(of->bytes, of->size, of->capacity);
    }
    if (size > of->size) {
        memset(of->bytes + of->size, 0, size - of->size);
    }
    of->size = size;
}

static void
copy_contents(contents *to, const contents *from)
{
    resize(to, from->size);
    if (from->size > 0) {
        memcpy(to->bytes, from->bytes, from->size);
    }
}

/* Names. */

static name *
find_name(disk *on, const char *path)
{
    for (int i = 0; i < on->count; i++) {
        if (strcmp(on->names[i].path, path) == 0) {
            return &on->names[i];
        }
    }
    return NULL;
}

static void
remember_names(disk *on)
{
    if (on->history_count == FILES) {
        sim_fail("more than %d changes of names without a sync", FILES);
    }
    memcpy(on->history[on->history_count], on->names, sizeof on->names);
    on->counts[on->history_count++] = on->count;
}

static void
set_name(disk *on, const char *path, sim_file *file)
{
    name *found = find_name(on, path);

    if (found == NULL) {
        if (on->count == NAMES || strlen(path) >= NAME_SIZE) {
            sim_fail("no room for the file %s", path);
        }
        found = &on->names[on->count++];
        strcpy(found->path, path);
    }
    found->file = file;
}

static void
remove_name(disk *on, name *gone)
{
    *gone = on->names[--on->count];
}

int
__wrap_open(const char *path, int flags, ...)
{
    disk *on = own_disk();
    name *found = find_name(on, path);
    sim_descriptor *opened;

    sim_call("open");
    if ((flags & O_DIRECTORY) == 0) {
        if (found != NULL && (flags & O_EXCL) != 0) {
            return fail(EEXIST);
        }
        if (found == NULL && (flags & O_CREAT) == 0) {
            return fail(ENOENT);
        }
    }
    int fd = sim_descriptor_open(SIM_FILE, &opened);
    if (fd < 0 || (flags & O_DIRECTORY) != 0) {
        return fd;
    }
    if (found == NULL) {
        sim_file *made = sim_allocate(sizeof *made);
        made->number = ++files_made;
        remember_names(on);
        set_name(on, path, made);
        found = find_name(on, path);
    }
    opened->file = found->file;
    return fd;
}

void
sim_file_close(sim_descriptor *descriptor)
{
    if (descriptor->file != NULL
        && descriptor->file->locker == descriptor->generation) {
        descriptor->file->locker = 0;
    }
}

int
__wrap_flock(int fd, int operation)
{
    sim_descriptor *opened = sim_descriptor_of(fd);

    sim_call("flock");
    if (opened == NULL) {
        return -1;
    }
    if ((operation & LOCK_UN) != 0) {
        sim_file_close(opened);
        return 0;
    }
    if (opened->file->locker != 0 && opened->file->locker != opened->generation) {
        return fail(EWOULDBLOCK);
    }
    opened->file->locker = opened->generation;
    return 0;
}

static int
fill_stat(const sim_file *file, struct stat *found)
{
    *found = (struct stat){
        .st_ino = (ino_t)file->number,
        .st_dev = 1,
        .st_mode = S_IFREG | 0600,
        .st_uid = geteuid(),
        .st_size = (off_t)file->seen.size,
    };
    return 0;
}

int
__wrap_fstat(int fd, struct stat *found)
{
    const sim_descriptor *opened = sim_descriptor_of(fd);

    sim_call("fstat");
    if (opened != NULL && opened->kind == SIM_MEMORY) {
        return __real_fstat(opened->object->memory, found);
    }
    return opened == NULL ? -1 : fill_stat(opened->file, found);
}

int
__wrap_lstat(const char *path, struct stat *found)
{
    sim_call("lstat");
    const name *one = find_name(own_disk(), path);
    return one == NULL ? fail(ENOENT) : fill_stat(one->file, found);
}

int
__wrap_ftruncate(int fd, off_t size)
{
    sim_call("ftruncate");
    if (sim_descriptor_of(fd)->kind == SIM_MEMORY) {
        return __real_ftruncate(sim_descriptor_of(fd)->object->memory, size);
    }
    resize(&sim_descriptor_of(fd)->file->seen, (size_t)size);
    sim_result("ftruncate", size);
    return 0;
}

ssize_t
__wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    sim_call("pwrite");
    sim_process *process = sim_process_current();
    bool is_doomed = process->kill_at_call != 0;
    sim_descriptor *opened = sim_descriptor_of(fd);
    if (opened == NULL) {
        return -1;
    }
    if (own_disk()->is_full) {
        /* The last bytes of a disk are taken before the error. */
        size = sim_random_once_in(&sim.disk, 2) ? 0 : size / 2;
        if (size == 0) {
            return fail(ENOSPC);
        }
    } else if (size > 1 && sim_random_once_in(&sim.disk, is_doomed ? 2 : 8)) {
        size = 1 + (size_t)sim_random_below(&sim.disk, size);
        /* A process that is about to be killed is killed before it writes the rest. */
        process->kill_at_call = is_doomed ? process->calls : 0;
    }
    contents *seen = &opened->file->seen;
    if ((size_t)offset + size > seen->size) {
        resize(seen, (size_t)offset + size);
    }
    memcpy(seen->bytes + offset, bytes, size);
    sim_result("pwrite", (int64_t)size);
    return (ssize_t)size;
}

/* What was written while the sync waits for the disk may be left out. */
static int
sync_file(int fd, const char *call)
{
    sim_call(call);
    disk *on = own_disk();
    sim_descriptor *opened = sim_descriptor_of(fd);
    if (opened == NULL) {
        return -1;
    }
    contents taken = {0};
    sim_file *file = opened->file;
    int names = on->history_count;
    uint64_t version = 0;
    if (file != NULL) {
        version = ++file->version;
        copy_contents(&taken, &file->seen);
    }
    int64_t took = sim_random_span(&sim.disk, SYNC_LEAST, SYNC_MOST) + on->extra;
    sim_wait(call, NULL, NULL, sim.now + took);
    if (file != NULL && version > file->synced_version) {
        copy_contents(&file->synced, &taken);
        file->synced_version = version;
    }
    if (file == NULL) {
        on->history_count -= names;
        memmove(on->history, on->history[names],
                (size_t)on->history_count * sizeof *on->history);
        memmove(on->counts, on->counts + names,
                (size_t)on->history_count * sizeof *on->counts);
    }
    sim_result(call, file == NULL ? -1 : (int64_t)file->synced.size);
    return 0;
}

int
__wrap_fsync(int fd)
{
    return sync_file(fd, "fsync");
}

int
__wrap_fdatasync(int fd)
{
    return sync_file(fd, "fdatasync");
}

int
__wrap_rename(const char *from, const char *to)
{
    sim_call("rename");
    disk *on = own_disk();
    name *found = find_name(on, from);
    if (found == NULL) {
        return fail(ENOENT);
    }
    remember_names(on);
    sim_file *file = found->file;
    remove_name(on, found);
    set_name(on, to, file);
    return 0;
}

int
__wrap_unlink(const char *path)
{
    sim_call("unlink");
    disk *on = own_disk();
    name *found = find_name(on, path);
    if (found == NULL) {
        return fail(ENOENT);
    }
    remember_names(on);
    remove_name(on, found);
    return 0;
}

ssize_t
__wrap_sendfile(int to, int from, off_t *offset, size_t size)
{
    const contents *seen = &sim_descriptor_of(from)->file->seen;
    ssize_t written = __wrap_pwrite(to, seen->bytes + *offset, size, *offset);

    *offset += written > 0 ? written : 0;
    return written;
}

void
sim_file_copy(const sim_descriptor *descriptor, void *bytes, size_t size)
{
    memcpy(bytes, descriptor->file->seen.bytes, size);
}

/* Faults. */

void
sim_disk_kill(sim_process *process)
{
    for (int fd = SIM_FD_FIRST; fd < sim_descriptor_end(); fd++) {
        sim_descriptor *one = sim_descriptor_at(fd);
        if (one->kind == SIM_FILE && one->process == process) {
            sim_descriptor_close(one);
        }
    }
}

/* The size is that before or after; each sector that differs is the old or the new one,
 * and one that was never written holds zeros. */
static void
lose_unsynced(sim_file *file)
{
    contents left = {0};
    const contents *old = &file->synced;
    const contents *new = &file->seen;
    bool has_new_size = !sim_random_once_in(&sim.disk, 3);
    uint64_t lost_in = 1 + sim_random_below(&sim.disk, 8);

    resize(&left, has_new_size ? new->size : old->size);
    for (size_t at = 0; at < left.size; at += SECTOR) {
        bool is_new = !sim_random_once_in(&sim.disk, lost_in);
        const contents *from = is_new && has_new_size ? new : old;
        size_t size = left.size - at < SECTOR ? left.size - at : SECTOR;
        size_t there = from->size <= at ? 0 : from->size - at;
        if (there > 0) {
            memcpy(left.bytes + at, from->bytes + at, size < there ? size : there);
        }
    }
    copy_contents(&file->seen, &left);
    copy_contents(&file->synced, &left);
    file->locker = 0;
}

void
sim_disk_crash(int host)
{
    disk *on = &disks[host];
    int kept = (int)sim_random_below(&sim.disk, (uint64_t)on->history_count + 1);

    if (kept < on->history_count) {
        memcpy(on->names, on->history[kept], sizeof on->names);
        on->count = on->counts[kept];
    }
    on->history_count = 0;
    for (int i = 0; i < on->count; i++) {
        lose_unsynced(on->names[i].file);
    }
}

size_t
sim_disk_look(int host, const char *path, const uint8_t **bytes)
{
    const name *found = find_name(&disks[host], path);

    *bytes = found == NULL ? NULL : found->file->seen.bytes;
    return found == NULL ? 0 : found->file->seen.size;
}

void
sim_disk_put(int host, const char *path, const uint8_t *bytes, size_t size)
{
    name *found = find_name(&disks[host], path);

    if (found != NULL && size == 0) {
        remove_name(&disks[host], found);
    } else if (found != NULL) {
        const contents put = {.bytes = (uint8_t *)bytes, .size = size};
        copy_contents(&found->file->seen, &put);
        copy_contents(&found->file->synced, &put);
    }
}

void
sim_disk_set_full(int host, bool is_full)
{
    disks[host].is_full = is_full;
}

void
sim_disk_set_slow(int host, int64_t extra)
{
    disks[host].extra = extra;
}

int
sim_disk_open_count(const sim_process *process)
{
    return sim_descriptor_count(process, true);
}
