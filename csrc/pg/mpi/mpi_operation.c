/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests of one operation: how they begin together, are waited for, and are left to
 * MPI after a failure.  MPI completes them while it is polled: at first without a pause,
 * then with naps that grow to a millisecond.  So a deadline, a signal, an abort and the end
 * of a rank end every wait. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/interrupt.h"
#include "pg/mpi/mpi_state.h"
#include "pg/record/blocked_threads.h"

/* How long a wait yields the core between polls before it naps: all ranks have come, and
 * a nap between two parts of long data would cost more than a part. */
#define LONGEST_YIELDING (2 * DL_SECOND)
#define FIRST_NAP (20 * INT64_C(1000))
#define LONGEST_NAP DL_MILLISECOND

/* How often a wait looks for what ends it early. */
#define CHECK_EVERY DL_MILLISECOND

/* How long MPI may take to complete the requests of an operation that failed. */
#define PARTING (100 * DL_MILLISECOND)

dl_status
dl_mpi_rendezvous(dl_mpi_backend *self)
{
    dl_call barrier = dl_call_barrier();

    DL_TRY(dl_mpi_world_admit());
    DL_TRY(dl_backend_run(self->pair.base.cpu, self->op, &barrier));
    dl_blocking_begin();
    return dl_op_check_arrays(self->op);
}

char *
dl_mpi_stage(dl_mpi_backend *self, size_t size)
{
    dl_buffer_clear(&self->staging);
    return dl_buffer_reserve(&self->staging, size) == DL_OK ? (char *)self->staging.data
                                                            : NULL;
}

static dl_status
fail_call(const dl_mpi_backend *self, int result, const char *name)
{
    dl_mpi_check(self->mpi, result, name);
    return dl_fail_while("%s #%" PRIu64 " in group %s on rank %d",
                         dl_op_type_name(self->op->fingerprint.op), self->op->sequence,
                         self->group_name, self->rank);
}

dl_status
dl_mpi_make_room(dl_mpi_backend *self)
{
    if (self->pending_count < self->pending_room) {
        return DL_OK;
    }
    int room = self->pending_room * 2 + 8;
    void *grown = realloc(self->pending, (size_t)room * sizeof *self->pending);
    if (grown == NULL) {
        return dl_fail_no_memory();
    }
    self->pending = grown;
    self->pending_room = room;
    return DL_OK;
}

/* There is always room for one request, as MPI already has it. */
dl_status
dl_mpi_add(dl_mpi_backend *self, int result, dl_mpi_handle request, const char *name)
{
    if (result != 0) {
        return fail_call(self, result, name);
    }
    self->pending[self->pending_count++] = (dl_mpi_pending){request, name};
    return dl_mpi_make_room(self);
}

/* The state of a wait that polls. */
typedef struct pace {
    int64_t began;
    int64_t checked;
    int naps;     /* so far */
    bool is_lost; /* a rank has ended */
} pace;

/* Spends the time until the next poll. */
static void
pass_time(pace *pace, int64_t now)
{
    if (now - pace->began < LONGEST_YIELDING) {
        sched_yield();
        return;
    }
    int64_t span = FIRST_NAP * ++pace->naps;
    struct timespec time = {.tv_nsec = span < LONGEST_NAP ? span : LONGEST_NAP};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* Fails the second time that a rank is found to have ended, so that what it had sent is
 * received. */
static dl_status
check_ranks(dl_mpi_backend *self, pace *pace)
{
    dl_status status = self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1);
    bool was_lost = pace->is_lost;

    pace->is_lost = status != DL_OK;
    return was_lost ? status : DL_OK;
}

static dl_status
fail_late_mpi(const dl_mpi_backend *self)
{
    const dl_op_context *op = self->op;

    return dl_fail(
        DL_TIMEOUT,
        "%s #%" PRIu64 " in group %.100s timed out after %" PRId64
        "ms on rank %d of %d: all ranks called it, but MPI has not completed "
        "it; `distlite ps` shows what each does",
        dl_op_type_name(op->fingerprint.op), op->sequence, self->group_name,
        op->deadline.limit / DL_MILLISECOND, self->rank, self->size);
}

/* Publishes that this thread waits, for all others, which have called the operation. */
static void
note_mpi_wait(const dl_mpi_backend *self)
{
    dl_awaited awaited = {.count = 0};

    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank) {
            dl_awaited_add_unless_begun(&awaited, rank);
        }
    }
    dl_blocked_check(self->op->record, &awaited);
}

/* Pauses between two polls, and checks whether the wait has to end. */
static dl_status
pause_and_check(dl_mpi_backend *self, pace *pace)
{
    int64_t now = dl_now();

    pass_time(pace, now);
    if (now - pace->checked < CHECK_EVERY) {
        return DL_OK;
    }
    pace->checked = now;
    DL_TRY(dl_paired_admit(&self->pair));
    DL_TRY(dl_mpi_world_admit());
    if (dl_deadline_passed(self->op->deadline)) {
        return fail_late_mpi(self);
    }
    note_mpi_wait(self);
    DL_TRY(check_ranks(self, pace));
    return dl_interrupt_check();
}

/* MPI's own error may come from a rank that has ended, which the CPU backend names. */
static dl_status
fail_request(dl_mpi_backend *self, int result, const char *name)
{
    DL_TRY(self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1));
    return fail_call(self, result, name);
}

static dl_status
await_request(dl_mpi_backend *self, dl_mpi_pending *pending)
{
    int64_t now = dl_now();
    pace pace = {.began = now, .checked = now};
    int is_done = 0;

    for (;;) {
        int result = dl_mpi_test(self->mpi, &pending->request, &is_done);
        if (result != 0 || is_done) {
            pending->request = 0;
            return result == 0 ? DL_OK : fail_request(self, result, pending->name);
        }
        DL_TRY(pause_and_check(self, &pace));
    }
}

dl_status
dl_mpi_finish(dl_mpi_backend *self)
{
    dl_status status = DL_OK;

    for (int i = 0; i < self->pending_count && status == DL_OK; i++) {
        status = await_request(self, &self->pending[i]);
    }
    dl_blocked_end();
    DL_TRY(status);
    self->pending_count = 0;
    return dl_op_check_arrays(self->op);
}

/* Tests the requests that are pending, and returns whether MPI has completed all. */
static bool
have_ended(dl_mpi_backend *self)
{
    bool have_all = true;

    for (int i = 0; i < self->pending_count; i++) {
        dl_mpi_handle *request = &self->pending[i].request;
        int is_done = 0;
        if (*request != 0
            && (dl_mpi_test(self->mpi, request, &is_done) != 0 || is_done)) {
            *request = 0;
        }
        have_all &= *request == 0;
    }
    return have_all;
}

/* Leaves memory to MPI until the process ends.  The list is for tools that look for
 * leaks. */
static void
keep_for_good(void *memory)
{
    static struct kept {
        struct kept *next;
        void *memory;
    } *_Atomic all;
    struct kept *made = memory == NULL ? NULL : malloc(sizeof *made);

    if (made != NULL) {
        made->memory = memory;
        made->next = atomic_load(&all);
        while (!atomic_compare_exchange_weak(&all, &made->next, made)) {
        }
    }
}

/* Returns whether MPI keeps requests that it does not complete soon, and with them the
 * communicator and the arrays. */
static bool
are_left(dl_mpi_backend *self)
{
    dl_deadline soon = dl_deadline_after(PARTING);

    while (dl_mpi_world_is_open() && !have_ended(self)) {
        if (dl_deadline_passed(soon)) {
            self->has_left = true;
            return true;
        }
        sched_yield();
    }
    self->pending_count = 0;
    return false;
}

/* Frees the staging memory, or leaves it to MPI where requests are pending. */
static void
release_staging(dl_mpi_backend *self)
{
    if (self->pending_count > 0 && are_left(self)) {
        keep_for_good(self->staging.data);
    } else {
        dl_buffer_fini(&self->staging);
    }
    self->staging = (dl_buffer){0};
}

dl_status
dl_mpi_fail_operation(dl_mpi_backend *self)
{
    dl_error error = *dl_last_error();
    dl_error told = {.status = DL_PEER_LOST};

    /* Where the ranks have not met, all of them have failed before MPI had anything. */
    if (self->pending_count > 0) {
        dl_mpi_world_skip_finalize();
    }
    snprintf(told.text, sizeof told.text,
             "rank %d gave up %s #%" PRIu64 " in group %.200s: %.1500s", self->rank,
             dl_op_type_name(self->op->fingerprint.op), self->op->sequence,
             self->group_name,
             error.status == DL_INTERRUPTED ? "it was interrupted" : error.text);
    self->pair.base.cpu->ops->abort(self->pair.base.cpu, &told);
    release_staging(self);
    if (self->pending_count > 0 && self->uses_arrays) {
        dl_backend_keep_memory();
    }
    self->pending_count = 0;
    return dl_rethrow(&error);
}
