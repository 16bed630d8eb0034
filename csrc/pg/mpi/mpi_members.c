/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"

/* How long the members' decision may take in the store after a member's deadline. */
#define GRACE (10 * DL_SECOND)

static dl_bytes
member_key(char text[64], int64_t turn, int rank)
{
    int size = snprintf(text, 64, "mpi/%" PRId64 "/%d", turn, rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

/* A store may outlive a group of this name, so each attempt has keys of its own. */
static dl_status
announce(const dl_backend_options *options, const dl_mpi_member *self,
         dl_deadline deadline, int64_t *turn)
{
    char key[64], value[160];

    snprintf(key, sizeof key, "mpi/turn/%d", options->rank);
    DL_TRY(dl_store_add(options->store, dl_bytes_of(key), 1, turn, deadline));
    snprintf(value, sizeof value, "v5 %d %d %d %" PRIx64 " %" PRIx64, self->world_rank,
             self->world_size, self->process.pid, self->process.space,
             self->memory_space);
    return dl_store_set(options->store, member_key(key, *turn, options->rank),
                        dl_bytes_of(value), deadline);
}

/* Reads a value as a text, cut to the size of `text`. */
static dl_status
read_text(dl_store *store, dl_bytes key, dl_deadline deadline, char *text, size_t room)
{
    dl_buffer value = {0};
    dl_status status = dl_store_get(store, key, &value, deadline);

    if (status == DL_OK) {
        status = dl_buffer_check(&value);
    }
    if (status == DL_OK) {
        snprintf(text, room, "%.*s", (int)value.size, (const char *)value.data);
    }
    dl_buffer_fini(&value);
    return status;
}

static dl_status
read_member(const dl_backend_options *options, int64_t turn, int rank,
            dl_deadline deadline, dl_mpi_member *told)
{
    char key[64], text[160];
    dl_status status = read_text(options->store, member_key(key, turn, rank), deadline,
                                 text, sizeof text);

    if (status == DL_OK
        && sscanf(text, "v5 %d %d %d %" SCNx64 " %" SCNx64, &told->world_rank,
                  &told->world_size, &told->process.pid, &told->process.space,
                  &told->memory_space)
               != 5) {
        status = dl_fail(
            DL_PROTOCOL,
            "its record in the store was written by another version of distlite");
    }
    return status == DL_OK
               ? DL_OK
               : dl_fail_while("rank %d, which must join group %s with backend mpi",
                               rank, options->group_name);
}

/* Checks that `rank` can be in one communicator with the ranks below it.  All ranks
 * come to the same result, since all compare the same values. */
static dl_status
check_member(const dl_backend_options *options, int rank, const dl_mpi_member *first,
             const dl_mpi_member *theirs, const int *world_ranks)
{
    if (theirs->world_size != first->world_size) {
        return dl_fail(DL_INVALID,
                       "group %s: MPI's world has %d ranks for rank 0 and %d for rank "
                       "%d: start all ranks with one mpirun",
                       options->group_name, first->world_size, theirs->world_size,
                       rank);
    }
    for (int other = 0; other < rank; other++) {
        if (world_ranks[other] == theirs->world_rank) {
            return dl_fail(
                DL_INVALID,
                "group %s: ranks %d and %d both are rank %d of an MPI world: "
                "start all ranks with one mpirun",
                options->group_name, other, rank, theirs->world_rank);
        }
    }
    return DL_OK;
}

static dl_status
read_all_members(dl_mpi_members *members, const dl_backend_options *options,
                 int64_t turn, dl_deadline deadline)
{
    dl_mpi_member first = {0};

    for (int rank = 0; rank < options->size; rank++) {
        dl_mpi_member told;
        DL_TRY(read_member(options, turn, rank, deadline, &told));
        if (rank == 0) {
            first = told;
            members->share_memory = told.memory_space != 0;
        }
        members->share_memory &= told.memory_space == first.memory_space;
        DL_TRY(check_member(options, rank, &first, &told, members->world_ranks));
        members->world_ranks[rank] = told.world_rank;
        members->processes[rank] = told.process;
    }
    return DL_OK;
}

#define GO "go"

/* The members' decision: the first proposal wins. */
typedef struct decision {
    dl_mpi_members *members;
    const dl_backend_options *options;
    int64_t turn;
    dl_deadline deadline;
    dl_status own; /* the result of this member's own read_all_members() */
    char text[DL_ERROR_TEXT_SIZE + 64]; /* the proposal, then what was decided */
    dl_status status;
    dl_error error; /* if status is not DL_OK */
} decision;

static dl_status
vote(const decision *made, int64_t weight, int64_t *order)
{
    char votes[64];

    snprintf(votes, sizeof votes, "mpi/%" PRId64 "/votes", made->turn);
    return dl_store_add(made->options->store, dl_bytes_of(votes), weight, order,
                        made->deadline);
}

/* Uses only add(), set() and get(), which every store has, also one written in Python.
 *
 * The first voter decides for all, and nobody overrules it: a member that then gives up
 * although "go" was decided could leave the others in MPI, which cannot be interrupted.
 * "go" is never decided before all have announced themselves, so members whose own
 * read_all_members() failed can still follow.  If the first voter ends between its vote and its
 * proposal, or its store fails there, the others find no decision and fail at their
 * deadlines.  What remains is a proposal that comes after these, from a first voter that
 * was stopped for longer: it then waits in MPI alone, as for any member that ends after
 * the decision. */
static dl_status
settle(decision *made)
{
    dl_store *store = made->options->store;
    char outcome[64];
    int64_t order;

    snprintf(outcome, sizeof outcome, "mpi/%" PRId64 "/decision", made->turn);
    DL_TRY(vote(made, 1, &order));
    if (order == 1) {
        return dl_store_set(store, dl_bytes_of(outcome), dl_bytes_of(made->text),
                            made->deadline);
    }
    return read_text(store, dl_bytes_of(outcome), made->deadline, made->text,
                     sizeof made->text);
}

/* This member may serve the store, and exit once it has raised.  The others, which come
 * to the same conclusion, need the store for a moment longer. */
static void
linger(const decision *made)
{
    dl_deadline soon = dl_deadline_after(DL_SECOND);
    int64_t votes = 0;

    while (!dl_deadline_passed(soon) && vote(made, 0, &votes) == DL_OK
           && votes < made->options->size
           && dl_sleep_until(dl_deadline_after(DL_MILLISECOND)) == DL_OK) {
    }
}

static dl_status
decide(decision *made)
{
    DL_TRY(settle(made));
    if (made->own == DL_INVALID) {
        linger(made);
    }
    /* No member proposes to go on before all have announced themselves, so this finds
     * all members at once. */
    return made->own != DL_OK && strcmp(made->text, GO) == 0
               ? read_all_members(made->members, made->options, made->turn,
                                  made->deadline)
               : DL_OK;
}

static void *
decide_aside(void *argument)
{
    decision *made = argument;

    made->status = decide(made);
    if (made->status != DL_OK) {
        made->error = *dl_last_error();
    }
    return NULL;
}

/* After an interruption this decides on another thread, as the pending exception would
 * end every wait on this one. */
static dl_status
decide_uninterrupted(decision *made)
{
    pthread_t thread;

    if (made->own != DL_INTERRUPTED) {
        return decide(made);
    }
    DL_TRY(dl_thread_start(&thread, decide_aside, made));
    pthread_join(thread, NULL);
    return made->status == DL_OK ? DL_OK : dl_fail_again(&made->error);
}

dl_status
dl_mpi_members_meet(dl_mpi_members *members, const dl_backend_options *options,
                    const dl_mpi_member *self, dl_deadline deadline)
{
    decision made = {.members = members, .options = options, .text = GO};
    dl_error error = {0};

    DL_TRY(announce(options, self, deadline, &made.turn));
    made.own = read_all_members(members, options, made.turn, deadline);
    if (made.own != DL_OK) {
        error = *dl_last_error();
        snprintf(made.text, sizeof made.text, "rank %d gave up: %s", options->rank,
                 made.own == DL_INTERRUPTED ? "it was interrupted" : error.text);
    }
    made.deadline =
        dl_deadline_left(deadline) > GRACE ? deadline : dl_deadline_after(GRACE);
    dl_status settled = decide_uninterrupted(&made);
    if (settled == DL_OK && strcmp(made.text, GO) == 0) {
        members->is_interrupted = made.own == DL_INTERRUPTED;
        return DL_OK;
    }
    if (made.own != DL_OK) {
        return dl_fail_again(&error);
    }
    return settled != DL_OK
               ? settled
               : dl_fail(DL_PEER_LOST, "group %s with backend mpi: %.1800s",
                         options->group_name, made.text);
}
