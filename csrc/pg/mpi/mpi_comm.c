/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_comm.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "pg/mpi/mpi_message.h"
#include "pg/mpi/mpi_processes.h"

/* A wait first polls its request without a pause: for as long as a small collective takes
 * if each rank of this host has a core, otherwise for as long as one message takes, in
 * which the awaited rank could have run.  Then it yields the core after each poll, and then
 * it naps: a thread wakes sooner from a nap than it gets a shared core back.  During the
 * first FEW_LOOKS it keeps a lock that other threads want (base/interrupt.h). */
#define FEW_LOOKS 64
#define SPAN_OF_A_COLLECTIVE (100 * INT64_C(1000))
#define SPAN_OF_A_MESSAGE (3 * INT64_C(1000))
/* A nap between two parts of long data would cost more than a part, so for these naps
 * begin later by what the data take at the slowest: 250 MB/s, but not above MOST_BYTES. */
#define LONGEST_YIELDING (10 * DL_MILLISECOND)
#define SPAN_OF_A_BYTE 4
#define MOST_BYTES ((size_t)512 << 20)
#define FIRST_NAP (20 * INT64_C(1000))
#define LONGEST_NAP DL_MILLISECOND
/* Without naps, an abort and the deadline are checked once in so many polls; with naps,
 * after each.  Signals are checked once in so many polls in both cases. */
#define CHECK_EVERY 64

/* The most bytes of one call of MPI, whose counts are ints: a power of two that leaves
 * room below INT_MAX for small sums.  A piece consists of whole elements, of which the
 * largest are complex128. */
#define LARGEST_PIECE ((size_t)1 << 30)
#define SMALLEST_PIECE ((size_t)1 << 12)
#define LARGEST_ITEM 16

/* What an int cannot count is counted in blocks of this size. */
#define UNIT ((size_t)1 << 20)

static struct {
    pthread_mutex_t lock;
    dl_list all; /* guarded by lock */
} comms = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = {&comms.all, &comms.all}};

/* Adds a reference, unless the last one has just been dropped. */
static bool
try_ref(dl_mpi_comm *comm)
{
    unsigned count = atomic_load(&comm->references);

    while (count > 0
           && !atomic_compare_exchange_weak(&comm->references, &count, count + 1)) {
    }
    return count > 0;
}

/* A communicator with a reference stays in the list, so the walk goes on from it. */
bool
dl_mpi_comm_for_each(bool (*call)(dl_mpi_comm *comm))
{
    dl_mpi_comm *last = NULL;
    bool is_any = false;

    pthread_mutex_lock(&comms.lock);
    for (dl_list *node = comms.all.next; node != &comms.all; node = node->next) {
        dl_mpi_comm *comm = DL_LIST_ENTRY(node, dl_mpi_comm, node);
        if (!try_ref(comm)) {
            continue;
        }
        pthread_mutex_unlock(&comms.lock);
        dl_mpi_comm_unref(last);
        is_any |= call(comm);
        last = comm;
        pthread_mutex_lock(&comms.lock);
    }
    pthread_mutex_unlock(&comms.lock);
    dl_mpi_comm_unref(last);
    return is_any;
}

static void
free_comm(dl_mpi_comm *comm)
{
    pthread_mutex_lock(&comms.lock);
    dl_list_remove(&comm->node);
    pthread_mutex_unlock(&comms.lock);
    bool is_freed = !atomic_load(&comm->has_pending) && dl_mpi_world_is_open();

    if (comm->handle != 0 && is_freed) {
        comm->mpi->comm_free(&comm->handle);
    }
    if (comm->users != 0 && is_freed) {
        comm->mpi->comm_free(&comm->users);
    }
    dl_mpi_mailbox_fini(&comm->mailbox);
    pthread_mutex_destroy(&comm->lock);
    free(comm->group_name);
    free(comm->world_ranks);
    free(comm);
}

/* Groups that other threads create at the same time most probably have other tags. */
static int
tag_of(const char *group_name, int last_tag)
{
    static const uint64_t seed[2] = {0, 0}; /* the same on all ranks */
    dl_bytes name = {(const uint8_t *)group_name, strlen(group_name)};

    return (int)(dl_hash_seeded(name, seed) % ((uint64_t)last_tag + 1));
}

/* Launchers publish the number of ranks on this host.  Without that number there may be
 * more ranks than cores. */
static bool
shares_cores(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");

    if (text == NULL) {
        text = getenv("MPI_LOCALNRANKS");
    }
    return text == NULL || atoi(text) > sysconf(_SC_NPROCESSORS_ONLN);
}

/* DISTLITE_MPI_PIECE lets tests exercise arrays that are too large for one call of
 * MPI. */
static size_t
choose_piece(void)
{
    const char *text = getenv("DISTLITE_MPI_PIECE");
    size_t asked = text == NULL ? 0 : (size_t)strtoull(text, NULL, 10);
    bool is_right = asked >= SMALLEST_PIECE && asked <= LARGEST_PIECE;

    return is_right ? asked / LARGEST_ITEM * LARGEST_ITEM : LARGEST_PIECE;
}

/* Creates it from the world instead of a parent, so that only the members take part and
 * no communicator has to outlive its group. */
static dl_status
create(const dl_mpi_comm *comm, const int *ranks, dl_mpi_handle *handle)
{
    const dl_mpi_table *mpi = comm->mpi;
    int tag = tag_of(comm->group_name, comm->world->last_tag);
    dl_mpi_handle all = 0, some = 0;

    DL_TRY(dl_mpi_check(mpi, mpi->comm_group(mpi->world, &all), "MPI_Comm_group"));
    int result = mpi->group_incl(all, comm->size, ranks, &some);
    mpi->group_free(&all);
    DL_TRY(dl_mpi_check(mpi, result, "MPI_Group_incl"));
    result = mpi->comm_create_group(mpi->world, some, tag, handle);
    mpi->group_free(&some);
    DL_TRY(dl_mpi_check(mpi, result, "MPI_Comm_create_group"));
    mpi->comm_set_errhandler(*handle, mpi->errors_return);
    return DL_OK;
}

dl_status
dl_mpi_comm_new(const dl_mpi_world *world, const char *group_name, const int *ranks,
                int rank, int size, dl_mpi_comm **comm)
{
    dl_mpi_comm *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&made->lock, NULL);
    atomic_init(&made->references, 1);
    made->mpi = world->mpi;
    made->world = world;
    made->rank = rank;
    made->size = size;
    made->piece = choose_piece();
    made->shares_cores = shares_cores();
    made->group_name = strdup(group_name);
    made->world_ranks = malloc((size_t)size * sizeof *made->world_ranks);
    dl_status status = dl_mpi_mailbox_init(&made->mailbox, size);
    if (made->group_name == NULL || made->world_ranks == NULL) {
        status = dl_fail_no_memory();
    }
    if (status == DL_OK) {
        memcpy(made->world_ranks, ranks, (size_t)size * sizeof *ranks);
        status = create(made, ranks, &made->handle);
    }
    if (status == DL_OK) {
        status = create(made, ranks, &made->users);
    }
    if (status != DL_OK) {
        free_comm(made);
        return status;
    }
    pthread_mutex_lock(&comms.lock);
    dl_list_append(&comms.all, &made->node);
    pthread_mutex_unlock(&comms.lock);
    *comm = made;
    return DL_OK;
}

dl_mpi_comm *
dl_mpi_comm_ref(dl_mpi_comm *comm)
{
    atomic_fetch_add_explicit(&comm->references, 1, memory_order_relaxed);
    return comm;
}

void
dl_mpi_comm_unref(dl_mpi_comm *comm)
{
    if (comm != NULL
        && atomic_fetch_sub_explicit(&comm->references, 1, memory_order_acq_rel) == 1) {
        free_comm(comm);
    }
}

void
dl_mpi_comm_abort(dl_mpi_comm *comm, const dl_error *cause)
{
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->is_aborted)) {
        comm->cause = *cause;
        atomic_store(&comm->is_aborted, true);
    }
    pthread_mutex_unlock(&comm->lock);
}

void
dl_mpi_comm_leave(dl_mpi_comm *comm, dl_mpi_handle request, void *memory)
{
    atomic_store(&comm->has_pending, true);
    dl_mpi_leftover_add(request, memory);
}

/* Makes the type of whole units and a rest in bytes, and commits it, since callers use
 * it at once.  An array of handles has the width that they have in this MPI. */
static int
make_type(const dl_mpi_table *mpi, size_t size, dl_mpi_handle *type)
{
    int counts[2] = {(int)(size / UNIT), (int)(size % UNIT)};
    int64_t offsets[2] = {0, (int64_t)(size - size % UNIT)};
    dl_mpi_handle unit = 0;
    char types[2 * sizeof unit];
    int result = mpi->type_contiguous((int)UNIT, mpi->byte, &unit);

    if (result != 0) {
        return result;
    }
    memcpy(types, &unit, mpi->abi.handle_size);
    memcpy(types + mpi->abi.handle_size, &mpi->byte, mpi->abi.handle_size);
    result = mpi->type_struct(2, counts, offsets, types, type);
    mpi->type_free(&unit);
    return result == 0 ? mpi->type_commit(type) : result;
}

dl_status
dl_mpi_part_of(const dl_mpi_comm *comm, void *data, size_t size, dl_mpi_part *part,
               dl_mpi_handle *type)
{
    *part = (dl_mpi_part){data, (int)size, comm->mpi->byte};
    *type = 0;
    if (size > comm->piece) {
        DL_TRY(dl_mpi_check(comm->mpi, make_type(comm->mpi, size, type),
                            "MPI_Type_create_struct"));
        part->count = 1;
        part->type = *type;
    }
    return DL_OK;
}

void
dl_mpi_type_free(const dl_mpi_comm *comm, dl_mpi_handle type)
{
    if (type != 0) {
        comm->mpi->type_free(&type);
    }
}

dl_status
dl_mpi_comm_admit(dl_mpi_comm *comm)
{
    return atomic_load_explicit(&comm->is_aborted, memory_order_acquire)
               ? dl_fail_again(&comm->cause)
               : dl_mpi_world_admit();
}

dl_status
dl_mpi_comm_lost(const dl_mpi_comm *comm, int rank)
{
    int first = rank < 0 ? 0 : rank;
    int last = rank < 0 ? comm->size - 1 : rank;
    int pid;

    for (int each = first; each <= last; each++) {
        if (dl_mpi_process_has_ended(comm->world_ranks[each], &pid)) {
            return dl_fail(DL_PEER_LOST,
                           "group %s: rank %d (pid %d) exited or was killed",
                           comm->group_name, each, pid);
        }
    }
    return DL_OK;
}

/* Fails the second time that the awaited rank is found to have ended. */
static dl_status
check_awaited(const dl_mpi_comm *comm, dl_mpi_pace *pace)
{
    if (pace->is_any || dl_mpi_comm_lost(comm, pace->awaited) == DL_OK) {
        return DL_OK;
    }
    if (!pace->is_lost) {
        pace->is_lost = true;
        return DL_OK;
    }
    dl_mpi_world_skip_finalize();
    return DL_PEER_LOST;
}

static void
nap(int times)
{
    int64_t span = FIRST_NAP * times;
    struct timespec time = {.tv_nsec = span < LONGEST_NAP ? span : LONGEST_NAP};

    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* Spends the time until the next poll. */
static void
pass_time(const dl_mpi_comm *comm, dl_mpi_pace *pace)
{
    int64_t now = dl_now();
    size_t bytes = pace->bytes < MOST_BYTES ? pace->bytes : MOST_BYTES;

    pace->began = pace->began == 0 ? now : pace->began;
    int64_t waited = now - pace->began;
    bool is_eager =
        waited < (comm->shares_cores ? SPAN_OF_A_MESSAGE : SPAN_OF_A_COLLECTIVE);
    if (!is_eager || pace->looks >= FEW_LOOKS) {
        dl_blocking_begin();
    }
    if (waited >= LONGEST_YIELDING + (int64_t)bytes * SPAN_OF_A_BYTE) {
        nap(++pace->naps);
    } else if (!is_eager) {
        sched_yield();
    }
}

dl_status
dl_mpi_pause(dl_mpi_comm *comm, dl_mpi_pace *pace, dl_deadline deadline)
{
    bool is_check = ++pace->looks % CHECK_EVERY == 0;

    pass_time(comm, pace);
    if (!is_check && pace->naps == 0) {
        return DL_OK;
    }
    DL_TRY(dl_mpi_comm_admit(comm));
    if (dl_deadline_passed(deadline)) {
        pace->is_late = true;
        return DL_TIMEOUT;
    }
    if (!is_check) {
        return DL_OK;
    }
    DL_TRY(pace->naps == 0 ? DL_OK : check_awaited(comm, pace));
    return dl_interrupt_check();
}
