/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "net/socket.h"
#include "pg/cpu/p2p/p2p.h"

#define PAGE ((size_t)4096)

/* The directory is locked while an area is entered, made part of the file and mapped:
 * microseconds.  After this many tries, a rank checks whether the holder
 * has died. */
#define PATIENT_TRIES 1000

typedef struct entry {
    _Atomic uint64_t key; /* identifies the borrowing group; 0: free */
    uint64_t serial;      /* of the loan; constant, like `count`, while `key` is set */
    uint64_t offset;      /* in the file; constant once the entry was used */
    uint32_t count;       /* members of the group */
    _Atomic uint32_t returned;
} entry;

struct dl_arena_directory {
    _Atomic uint32_t holder; /* of the lock: the holder's rank plus one; 0: free */
    _Atomic uint64_t end;    /* bytes of the file that have been given out */
    /* under the lock */
    uint32_t used; /* entries that ever had a key */
    uint64_t last_serial;
    entry entries[DL_ARENA_LOANS];
};

/* Returns the bytes that a group of `size` ranks uses. */
static size_t
memory_of(int size)
{
    return dl_round_up(dl_board_memory(size, DL_BOARD_CHUNK) + dl_p2p_memory(size),
                       PAGE);
}

/* Fewer ranks may need more memory, because their rings are larger. */
size_t
dl_arena_area(int size)
{
    size_t largest = 0;

    for (int count = 1; count <= size; count++) {
        size_t used = memory_of(count);
        largest = used > largest ? used : largest;
    }
    return largest;
}

static size_t
home_size(int size)
{
    return dl_arena_area(size) + dl_round_up(sizeof(struct dl_arena_directory), PAGE);
}

static dl_status
map_home(dl_arena *arena, int size)
{
    struct stat info;

    DL_TRY(dl_segment_map(arena->file, 0, home_size(size), &arena->home));
    arena->area = dl_arena_area(size);
    arena->file_id = fstat(arena->file, &info) == 0 ? info.st_ino : 0;
    arena->directory = (void *)((char *)arena->home.memory + arena->area);
    return DL_OK;
}

dl_status
dl_arena_create(dl_arena *arena, int size, int cores_per_rank)
{
    *arena = (dl_arena){.cores_per_rank = cores_per_rank};
    DL_TRY(dl_segment_create(home_size(size), &arena->file));
    arena->is_open = true;
    dl_status status = map_home(arena, size);
    if (status != DL_OK) {
        dl_arena_fini(arena);
        return status;
    }
    dl_board_format(arena->home.memory, size, DL_BOARD_CHUNK, cores_per_rank);
    atomic_store(&arena->directory->end, home_size(size));
    return DL_OK;
}

dl_status
dl_arena_open(dl_arena *arena, int size, int file)
{
    *arena = (dl_arena){.is_open = true, .file = file};
    dl_status status = map_home(arena, size);
    if (status != DL_OK) {
        dl_arena_fini(arena);
        return status;
    }
    arena->cores_per_rank = dl_board_cores_per_rank(arena->home.memory);
    return DL_OK;
}

void
dl_arena_fini(dl_arena *arena)
{
    dl_segment_fini(&arena->home);
    free(arena->returned);
    if (arena->is_open) {
        dl_socket_close(arena->file);
    }
    *arena = (dl_arena){0};
}

void
dl_arena_forget(dl_arena *arena)
{
    dl_segment_fini(&arena->home);
    free(arena->returned);
    *arena = (dl_arena){0};
}

/* Returns the key by which the members find the group.  The seed is the same
 * everywhere. */
static uint64_t
group_key(const dl_borrower *borrower)
{
    static const uint64_t name_seed[2] = {1, 2};
    uint64_t name = dl_hash_seeded(dl_bytes_of(borrower->name), name_seed);
    uint64_t ranks_seed[2] = {name, 3};
    dl_bytes ranks = {(const uint8_t *)borrower->ranks,
                      (size_t)borrower->count * sizeof *borrower->ranks};
    uint64_t key = dl_hash_seeded(ranks, ranks_seed);

    return key == 0 ? 1 : key;
}

/* Frees the lock if its holder has died.  An entry without a key does not exist. */
static dl_status
check_holder(struct dl_arena_directory *directory, const dl_borrower *borrower,
             dl_deadline deadline)
{
    uint32_t holder = atomic_load(&directory->holder);

    dl_process_table_poll();
    if (holder != 0 && holder <= (uint32_t)borrower->size
        && dl_process_has_ended(borrower->processes[holder - 1])) {
        atomic_compare_exchange_strong(&directory->holder, &holder, 0);
        return DL_OK;
    }
    DL_TRY(dl_interrupt_check());
    if (dl_deadline_passed(deadline)) {
        return dl_fail(DL_TIMEOUT,
                       "timed out after %" PRId64 "ms: rank %" PRIu32
                       " is creating a group and makes no progress",
                       deadline.limit / DL_MILLISECOND, holder - 1);
    }
    return DL_OK;
}

static dl_status
lock_directory(struct dl_arena_directory *directory, const dl_borrower *borrower,
               dl_deadline deadline)
{
    uint32_t self = (uint32_t)borrower->rank + 1;

    for (int tries = 1;; tries++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_weak(&directory->holder, &nobody, self)) {
            return DL_OK;
        }
        if (tries % PATIENT_TRIES == 0) {
            DL_TRY(check_holder(directory, borrower, deadline));
        }
        sched_yield();
    }
}

static void
unlock_directory(struct dl_arena_directory *directory)
{
    atomic_store(&directory->holder, 0);
}

/* Returns true if the entry is the loan that this rank is to use.  Requires the lock.
 * A loan that all members have returned is about to be freed, or its last member died
 * before it could.  One that this rank has returned belongs to an earlier group of the
 * same name. */
static bool
is_for(const dl_arena *arena, uint32_t index, uint64_t key)
{
    const entry *entry = &arena->directory->entries[index];

    return atomic_load(&entry->key) == key
           && atomic_load(&entry->returned) < entry->count
           && (arena->returned == NULL || arena->returned[index] != entry->serial);
}

/* Returns the group's entry, or a free one, or NULL when all are taken.  Requires the
 * lock.  There are several entries for a key if a faster rank has already made another
 * group of this name; the oldest is the one wanted. */
static entry *
find_entry(const dl_arena *arena, uint64_t key)
{
    struct dl_arena_directory *directory = arena->directory;
    entry *oldest = NULL;
    entry *vacant = NULL;

    for (uint32_t i = 0; i < directory->used; i++) {
        entry *entry = &directory->entries[i];
        if (is_for(arena, i, key)
            && (oldest == NULL || entry->serial < oldest->serial)) {
            oldest = entry;
        }
        if (atomic_load(&entry->key) == 0 && vacant == NULL) {
            vacant = entry;
        }
    }
    if (oldest == NULL && vacant == NULL && directory->used < DL_ARENA_LOANS) {
        /* An entry counts once it has its area, as this process may be killed here. */
        vacant = &directory->entries[directory->used];
        vacant->offset = atomic_fetch_add(&directory->end, arena->area);
        atomic_signal_fence(memory_order_seq_cst);
        directory->used++;
    }
    return oldest != NULL ? oldest : vacant;
}

/* Makes the file at least `size` bytes long.  Requires the lock.  Stretches for arrays
 * grow the file without the lock; ftruncate() could shrink it again. */
static dl_status
extend_file(const dl_arena *arena, uint64_t size)
{
    struct stat info;
    int error;

    if (fstat(arena->file, &info) == 0 && (uint64_t)info.st_size >= size) {
        return DL_OK;
    }
    do {
        error = posix_fallocate(arena->file, (off_t)size - 1, 1);
    } while (error == EINTR);
    return error == 0 ? DL_OK
                      : dl_fail(DL_NO_MEMORY, "making %zu bytes of shared memory: %s",
                                arena->area, strerror(error));
}

/* Finds or takes the group's area and maps `size` bytes of it.  Requires the lock. */
static dl_status
map_area(dl_arena *arena, const dl_borrower *borrower, size_t size, dl_loan *loan)
{
    uint64_t key = group_key(borrower);
    entry *entry = find_entry(arena, key);

    if (entry == NULL) {
        return dl_fail(DL_INVALID,
                       "no more than %d groups can be created from one group at a time",
                       DL_ARENA_LOANS);
    }
    if (arena->returned == NULL) {
        arena->returned = calloc(DL_ARENA_LOANS, sizeof *arena->returned);
    }
    if (arena->returned == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(extend_file(arena, entry->offset + arena->area));
    DL_TRY(dl_segment_map(arena->file, entry->offset, size, &loan->segment));
    loan->entry = (uint32_t)(entry - arena->directory->entries);
    if (atomic_load(&entry->key) == key) {
        return DL_OK;
    }
    entry->serial = ++arena->directory->last_serial;
    dl_board_format(loan->segment.memory, borrower->count, DL_BOARD_CHUNK,
                    arena->cores_per_rank);
    entry->count = (uint32_t)borrower->count;
    atomic_store(&entry->returned, 0);
    atomic_store(&entry->key, key);
    return DL_OK;
}

static dl_status
borrow_area(dl_arena *arena, const dl_borrower *borrower, size_t size,
            dl_deadline deadline, dl_loan *loan)
{
    *loan = (dl_loan){0};
    DL_TRY(lock_directory(arena->directory, borrower, deadline));
    dl_status status = map_area(arena, borrower, size, loan);
    unlock_directory(arena->directory);
    return status;
}

dl_status
dl_arena_borrow(dl_arena *arena, const dl_borrower *borrower, dl_deadline deadline,
                dl_loan *loan)
{
    return borrow_area(arena, borrower, memory_of(borrower->count), deadline, loan);
}

dl_status
dl_arena_refuse(dl_arena *arena, const dl_borrower *borrower, int local_rank,
                const char *reason, dl_deadline deadline)
{
    dl_loan loan;

    DL_TRY(
        borrow_area(arena, borrower, dl_board_head(borrower->count), deadline, &loan));
    dl_board_refuse(loan.segment.memory, local_rank, reason);
    dl_arena_return(arena, &loan);
    return DL_OK;
}

uint64_t
dl_arena_extend(dl_arena *arena, size_t size)
{
    return atomic_fetch_add(&arena->directory->end, size);
}

/* Returns the pages to the system, which also zeroes the area for its next user.  An
 * area that could not be zeroed is never lent again. */
static void
free_area(dl_arena *arena, uint32_t index)
{
    if (fallocate(arena->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)arena->directory->entries[index].offset, (off_t)arena->area)
        == 0) {
        atomic_store(&arena->directory->entries[index].key, 0);
    }
}

void
dl_arena_return(dl_arena *arena, dl_loan *loan)
{
    if (loan->segment.memory == NULL) {
        return;
    }
    entry *entry = &arena->directory->entries[loan->entry];
    dl_segment_fini(&loan->segment);
    atomic_store(&arena->returned[loan->entry], entry->serial);
    if (atomic_fetch_add(&entry->returned, 1) + 1 == entry->count) {
        free_area(arena, loan->entry);
    }
    *loan = (dl_loan){0};
}
