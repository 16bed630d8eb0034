/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that the ranks of one host share, in areas of one size.  The first is that
 * of the group which met; the others are lent to the groups made out of it, so that these
 * need neither a store nor sockets:
 *
 *     area of the first group | directory | area | area | array | area | ...
 *
 * Whoever of a new group comes first enters its name in the directory, and so takes an
 * area; the others find it by the name.  The last one to give it back frees it.  A rank
 * that has given it back and makes a group of the same name again gets another one, where
 * the others find it once they have given back theirs.  The file grows with its use, and
 * has holes where nobody has written. */
#ifndef DISTLITE_PG_CPU_SHM_ARENA_H
#define DISTLITE_PG_CPU_SHM_ARENA_H

#include "base/deadline.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/shm/board_layout.h"
#include "pg/cpu/shm/segment.h"

/* Groups at a time. */
#define DL_ARENA_LOANS 4096

#define DL_ARENA_NOTES 256

struct dl_arena_directory;

/* One process's view.  Zeroed memory is valid. */
typedef struct dl_arena {
    /* fixed after init */
    bool is_open;
    int file;
    size_t area;      /* bytes */
    uint64_t file_id; /* differs between all files that are open somewhere */
    bool may_spin;
    dl_segment home; /* the first area and the directory */
    struct dl_arena_directory *directory;
    /* By entry, the last loan that this rank has given back; made when it is needed. */
    _Atomic uint64_t *returned;
} dl_arena;

/* Bytes of the area for a group of `size` ranks. */
size_t dl_arena_area(int size);

/* For a group of `size`, its area formatted. */
dl_status dl_arena_create(dl_arena *arena, int size, bool may_spin);

/* Maps what another process made, and takes the descriptor. */
dl_status dl_arena_open(dl_arena *arena, int size, int file);
void dl_arena_fini(dl_arena *arena);

/* In a forked child, where the descriptor is closed already. */
void dl_arena_forget(dl_arena *arena);

/* Who wants an area. */
typedef struct dl_borrower {
    int rank;         /* of this process, in the group that met */
    const char *name; /* of the new group */
    const int *ranks; /* its members on this host, in the group that met */
    int count;
    dl_process *const *processes; /* of the group that met, by rank */
    int size;                     /* of that group */
} dl_borrower;

typedef struct dl_loan {
    dl_segment segment; /* formatted for `count` ranks */
    uint32_t entry;
} dl_loan;

/* The same area for all members, whoever comes first. */
dl_status dl_arena_borrow(dl_arena *arena, const dl_borrower *borrower,
                          dl_deadline deadline, dl_loan *loan);

/* For a member that cannot: as if it had borrowed, said `reason` and given back.  Needs
 * little memory.  `place` is its own in `ranks`. */
dl_status dl_arena_refuse(dl_arena *arena, const dl_borrower *borrower, int place,
                          const char *reason, dl_deadline deadline);

/* The rank of `borrower`, of which only that, the processes and their number count, makes no
 * more groups of the family (pg/cpu/family.h): those who have made one find the reason.
 * The last DL_ARENA_NOTES of these are kept. */
dl_status dl_arena_renounce(dl_arena *arena, const dl_borrower *borrower,
                            uint64_t family, const char *reason, dl_deadline deadline);

/* Whether `rank` has; takes no locks. */
bool dl_arena_has_renounced(const dl_arena *arena, int rank, uint64_t family,
                            char reason[DL_BOARD_REASON_SIZE]);

/* A stretch of the file for one rank, which nobody has had or will have again; whoever
 * wants to write there makes the file that long. */
uint64_t dl_arena_extend(dl_arena *arena, size_t size);

/* Once by each member.  An empty loan is left as it is. */
void dl_arena_return(dl_arena *arena, dl_loan *loan);

#endif
