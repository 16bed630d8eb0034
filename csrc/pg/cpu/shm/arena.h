/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that the ranks of one host share, in areas of equal size.  The first area
 * belongs to the group that met over the store; the others are lent to the groups that
 * are made out of it, so that these need neither a store nor sockets:
 *
 *     area of the first group | directory | area | area | array | area | ...
 *
 * The first member of a new group enters the group's name in the directory and thereby
 * takes an area; the other members find the area by the name.  The last member to
 * return the area frees it.  A rank that has returned an area and makes a group of the
 * same name again gets another one, where the other members find it once they have
 * returned theirs.  The file grows with its use; parts that were never written are
 * holes. */
#ifndef DISTLITE_PG_CPU_SHM_ARENA_H
#define DISTLITE_PG_CPU_SHM_ARENA_H

#include "base/deadline.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/shm/segment.h"

/* Most groups at a time. */
#define DL_ARENA_LOANS 4096

struct dl_arena_directory;

/* The arena as one process sees it.  Zeroed memory is valid. */
typedef struct dl_arena {
    /* fixed after init */
    bool is_open;
    int file;
    size_t area;      /* bytes of an area */
    uint64_t file_id; /* inode: differs between all files that are open */
    int cores_per_rank;
    dl_segment home; /* the first area and the directory */
    struct dl_arena_directory *directory;
    /* Serial number of the last loan that this rank has returned, by entry; allocated
     * with the first loan. */
    _Atomic uint64_t *returned;
} dl_arena;

/* Returns the bytes of an area in the arena of a group of `size` ranks: enough for any
 * group that is made out of it. */
size_t dl_arena_area(int size);

/* Creates the file for a group of `size` ranks and formats that group's area.
 * `cores_per_rank` is as for dl_board_format(). */
dl_status dl_arena_create(dl_arena *arena, int size, int cores_per_rank);

/* Maps the file that another process created.  Takes the descriptor. */
dl_status dl_arena_open(dl_arena *arena, int size, int file);
void dl_arena_fini(dl_arena *arena);

/* Frees memory in a forked child, where the descriptor is closed already. */
void dl_arena_forget(dl_arena *arena);

/* The member that wants an area; all pointers are borrowed. */
typedef struct dl_borrower {
    int rank;         /* of this process, in the group that met */
    const char *name; /* of the new group */
    /* members of the new group on this host, as ranks of the group that met */
    const int *ranks;
    int count;
    dl_process *const *processes; /* of the group that met, by rank */
    int size;                     /* of the group that met */
} dl_borrower;

typedef struct dl_loan {
    dl_segment segment; /* formatted for `count` ranks */
    uint32_t entry;
} dl_loan;

/* Borrows the area of the group that `borrower` describes, which is the same for all
 * members.  DL_TIMEOUT: the directory stayed locked until the deadline. */
dl_status dl_arena_borrow(dl_arena *arena, const dl_borrower *borrower,
                          dl_deadline deadline, dl_loan *loan);

/* For a member that cannot make the group: has the effect of borrowing the area,
 * writing `reason` for a member that aborted, and returning it.  Needs little memory.
 * `local_rank` is the member's index in borrower->ranks. */
dl_status dl_arena_refuse(dl_arena *arena, const dl_borrower *borrower, int local_rank,
                          const char *reason, dl_deadline deadline);

/* Returns the offset of a new stretch of the file, which is never given out twice.  The
 * caller makes the file long enough before it writes there. */
uint64_t dl_arena_extend(dl_arena *arena, size_t size);

/* Returns an area; each member does so once.  An empty loan is left as it is. */
void dl_arena_return(dl_arena *arena, dl_loan *loan);

#endif
