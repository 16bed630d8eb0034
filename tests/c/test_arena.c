/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/arena.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/shm/failure_check.h"
#include "ranks.h"

#define SIZE 4
#define TURNS 50

static int
copy_of(int fd)
{
    int copy = dup(fd);

    CHECK(copy >= 0);
    dl_fork_guard(copy);
    return copy;
}

/* A borrower for ranks whose processes are not watched.  A rank that waits for the lock
 * checks the process of its holder. */
static dl_borrower
borrower_of(const char *name, int rank, const int *ranks, int count)
{
    static dl_process *const nobody[SIZE];

    return (dl_borrower){rank, name, ranks, count, nobody, SIZE};
}

static int64_t
bytes_used(const dl_arena *arena)
{
    struct stat info;

    CHECK(fstat(arena->file, &info) == 0);
    return (int64_t)info.st_blocks * 512;
}

static dl_arena shared;

/* Of a group of two each: every rank borrows with its neighbour, and both see the same
 * memory, fresh every time. */
static void
borrow_in_pairs(int rank, int size, void *unused)
{
    dl_arena arena;
    int pair[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    char name[32];

    (void)unused;
    CHECK_OK(dl_arena_open(&arena, size, copy_of(shared.file)));
    for (int turn = 0; turn < TURNS; turn++) {
        dl_loan loan;
        snprintf(name, sizeof name, "group %d", turn % 3 == 0 ? 0 : turn);
        dl_borrower self = borrower_of(name, rank, pair, 2);
        CHECK_OK(
            dl_arena_borrow(&arena, &self, dl_deadline_after(10 * DL_SECOND), &loan));
        dl_board board;
        dl_board_options options = {.rank = rank % 2, .size = 2, .group_name = name};
        CHECK_OK(
            dl_board_init(&board, &options, loan.segment.memory, loan.segment.size));
        dl_op_context op = {.sequence = 1,
                            .deadline = dl_deadline_after(10 * DL_SECOND)};
        dl_board_begin(&board, &op)[0] = (uint8_t)(10 * turn + rank);
        CHECK_OK(dl_board_arrive(&board));
        CHECK_EQUAL(dl_board_payload(&board, (rank + 1) % 2)[0],
                    (uint8_t)(10 * turn + (rank ^ 1)));
        dl_board_fini(&board);
        dl_arena_return(&arena, &loan);
        CHECK(loan.segment.memory == NULL);
        dl_arena_return(&arena, &loan);
    }
    dl_arena_fini(&arena);
}

CHECK_CASE(only_members_find_the_same_area)
{
    CHECK_OK(dl_arena_create(&shared, SIZE, false));
    int64_t before = bytes_used(&shared);
    dl_run_ranks(SIZE, borrow_in_pairs, NULL);
    /* The directory itself, and nothing else. */
    CHECK(bytes_used(&shared) <= before + 64 * 1024 + DL_ARENA_LOANS * 16);
    dl_arena_fini(&shared);
    dl_arena_fini(&shared);
}

/* The rings of fewer ranks are larger than those of the whole group. */
CHECK_CASE(an_area_has_room_for_fewer_ranks)
{
    static dl_process *const nobody[DL_RANKS_LIMIT];
    static const int sizes[] = {2, 6, 9, 12, 17, 33, 65};
    int ranks[DL_RANKS_LIMIT];

    for (int i = 0; i < DL_RANKS_LIMIT; i++) {
        ranks[i] = i;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int size = sizes[i];
        dl_loan loans[2];
        dl_arena arena;
        CHECK_OK(dl_arena_create(&arena, size, true));
        for (int place = 0; place < 2; place++) {
            dl_borrower self = {
                0, place == 0 ? "first" : "second", ranks, size - 1, nobody, size};
            CHECK_OK(dl_arena_borrow(&arena, &self, dl_deadline_after(DL_SECOND),
                                     &loans[place]));
            uint8_t *memory = loans[place].segment.memory;
            memory[loans[place].segment.size - 1] = (uint8_t)(1 + place);
        }
        /* Neither lies in the other one or in the memory of the whole group. */
        for (int place = 0; place < 2; place++) {
            const uint8_t *memory = loans[place].segment.memory;
            CHECK_EQUAL(memory[loans[place].segment.size - 1], 1 + place);
            CHECK(loans[place].segment.size <= arena.area);
            dl_arena_return(&arena, &loans[place]);
        }
        dl_arena_fini(&arena);
    }
}

CHECK_CASE(the_same_name_with_other_ranks_is_another_group)
{
    dl_loan loans[2];
    int first[] = {0, 1}, second[] = {0, 2};

    CHECK_OK(dl_arena_create(&shared, SIZE, true));
    dl_borrower one = borrower_of("g", 0, first, 2);
    dl_borrower two = borrower_of("g", 0, second, 2);
    CHECK_OK(dl_arena_borrow(&shared, &one, dl_deadline_after(0), &loans[0]));
    CHECK_OK(dl_arena_borrow(&shared, &two, dl_deadline_after(0), &loans[1]));
    CHECK(loans[0].entry != loans[1].entry);
    CHECK(dl_board_cores_per_rank(loans[0].segment.memory));
    dl_arena_return(&shared, &loans[0]);
    dl_arena_return(&shared, &loans[1]);
    dl_arena_fini(&shared);
}

CHECK_CASE(there_is_an_end_to_it)
{
    static dl_loan loans[DL_ARENA_LOANS];
    dl_loan more;
    int ranks[] = {0, 1};
    char name[32];

    CHECK_OK(dl_arena_create(&shared, 2, false));
    for (int i = 0; i <= DL_ARENA_LOANS; i++) {
        snprintf(name, sizeof name, "%d", i);
        dl_borrower self = borrower_of(name, 0, ranks, 2);
        if (i < DL_ARENA_LOANS) {
            CHECK_OK(dl_arena_borrow(&shared, &self, dl_deadline_after(0), &loans[i]));
        } else {
            CHECK_STATUS(dl_arena_borrow(&shared, &self, dl_deadline_after(0), &more),
                         DL_INVALID);
        }
    }
    for (int i = 0; i < DL_ARENA_LOANS; i++) {
        dl_arena_return(&shared, &loans[i]);
    }
    dl_arena_fini(&shared);
}

/* The lock is the directory's first word. */
static _Atomic uint32_t *
lock_of(const dl_arena *arena)
{
    return (_Atomic uint32_t *)(void *)arena->directory;
}

CHECK_CASE(a_lock_is_taken_only_from_a_process_that_has_ended)
{
    static dl_process *processes[SIZE];
    dl_process_id id = {.bytes = {1}};
    int other[2];
    dl_loan loan;
    int ranks[] = {0, 1};

    CHECK(pipe(other) == 0);
    CHECK_OK(dl_process_find(&id, &processes[1]));
    CHECK_OK(dl_process_watch(processes[1], other[0], -1));
    CHECK_OK(dl_arena_create(&shared, 2, false));
    atomic_store(lock_of(&shared), 2);
    dl_borrower self = borrower_of("g", 0, ranks, 2);
    self.processes = processes;
    CHECK_STATUS(
        dl_arena_borrow(&shared, &self, dl_deadline_after(20 * DL_MILLISECOND), &loan),
        DL_TIMEOUT);
    CHECK_TEXT(
        dl_last_error()->text,
        "timed out after 20ms: rank 1 is creating a group and makes no progress");
    close(other[1]);
    CHECK_OK(dl_arena_borrow(&shared, &self, dl_deadline_after(5 * DL_SECOND), &loan));
    dl_arena_return(&shared, &loan);
    dl_arena_fini(&shared);
    dl_process_unref(processes[1]);
}

/* Its last member has left, and was killed before it freed the area. */
CHECK_CASE(an_area_that_cannot_be_freed_does_not_block_others)
{
    dl_loan loan, other;
    int ranks[] = {0, 1};

    CHECK_OK(dl_arena_create(&shared, 2, false));
    dl_borrower self = borrower_of("g", 0, ranks, 2);
    CHECK_OK(dl_arena_borrow(&shared, &self, dl_deadline_after(0), &loan));
    dl_loan again = loan;
    CHECK_OK(dl_arena_borrow(&shared, &self, dl_deadline_after(0), &other));
    CHECK_EQUAL(other.entry, loan.entry);
    int file = shared.file;
    shared.file = -1; /* so that it cannot be freed */
    dl_arena_return(&shared, &again);
    dl_arena_return(&shared, &other);
    shared.file = file;
    CHECK_OK(dl_arena_borrow(&shared, &self, dl_deadline_after(0), &other));
    CHECK(other.entry != loan.entry);
    dl_arena_return(&shared, &other);
    dl_arena_fini(&shared);
}

/* Its earlier area would hold old contents, and would be returned for a second time. */
CHECK_CASE(a_rank_that_tries_again_gets_another_area)
{
    dl_arena other;
    dl_loan first, second, late, next;
    int ranks[] = {0, 1};

    CHECK_OK(dl_arena_create(&shared, 2, false));
    CHECK_OK(dl_arena_open(&other, 2, copy_of(shared.file)));
    dl_borrower one = borrower_of("g", 0, ranks, 2);
    dl_borrower two = borrower_of("g", 1, ranks, 2);
    CHECK_OK(dl_arena_borrow(&shared, &one, dl_deadline_after(0), &first));
    uint32_t old = first.entry;
    dl_arena_return(&shared, &first);
    CHECK_OK(dl_arena_borrow(&shared, &one, dl_deadline_after(0), &second));
    CHECK(second.entry != old);
    /* The other rank may still read what was left for it there. */
    CHECK_OK(dl_arena_borrow(&other, &two, dl_deadline_after(0), &late));
    CHECK_EQUAL(late.entry, old);
    dl_arena_return(&other, &late);
    CHECK_OK(dl_arena_borrow(&other, &two, dl_deadline_after(0), &next));
    CHECK_EQUAL(next.entry, second.entry);
    dl_arena_return(&other, &next);
    dl_arena_return(&shared, &second);
    /* Nothing is left: the first area is used again. */
    CHECK_OK(dl_arena_borrow(&shared, &one, dl_deadline_after(0), &first));
    CHECK_EQUAL(first.entry, 0);
    dl_arena_return(&shared, &first);
    dl_arena_fini(&other);
    dl_arena_fini(&shared);
}

CHECK_CASE(the_file_grows_with_its_use)
{
    static dl_loan loans[20];
    struct rlimit limit = {.rlim_cur = 512 << 20, .rlim_max = 512 << 20};
    struct stat info;
    int ranks[] = {0, 1};
    char name[32];
    dl_status status = DL_OK;
    int count = 0;

    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_OK(dl_arena_create(&shared, 2, false));
    CHECK(fstat(shared.file, &info) == 0);
    CHECK(info.st_size < 2 * (off_t)shared.area);
    while (status == DL_OK && count < 20) {
        snprintf(name, sizeof name, "group %d", count);
        dl_borrower self = borrower_of(name, 0, ranks, 1);
        status = dl_arena_borrow(&shared, &self, dl_deadline_after(0), &loans[count]);
        count += status == DL_OK;
    }
    CHECK(fstat(shared.file, &info) == 0);
    CHECK(info.st_size <= (off_t)(count + 2) * (off_t)shared.area);
    uint64_t stretch = dl_arena_extend(&shared, 4096);
    CHECK_EQUAL(posix_fallocate(shared.file, (off_t)stretch, 4096), 0);
    for (int i = 0; i < count; i++) {
        dl_arena_return(&shared, &loans[i]);
    }
    dl_arena_fini(&shared);
}
