/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/ucc/ucc_state.h"

/* A wait stays awake this long for operations of few bytes, and a nanosecond longer per
 * byte, so that at a gigabyte per second it never sleeps. */
#define AWAKE (200 * INT64_C(1000))

/* A sleep between polls.  UCC makes no progress meanwhile, so long sleeps would delay
 * other ranks. */
#define NAP (50 * INT64_C(1000))

/* Polls of UCC between two readings of the clock. */
#define POLLS 32

/* Slices that a wait continues after a rank is gone, because what it sent before may
 * still have to arrive. */
#define LAST_SLICES 6

/* Fails with the reason why operations have to end. */
static dl_status
check_admitted(dl_ucc_backend *self)
{
    DL_TRY(dl_paired_admit(&self->pair));
    return self->context == NULL ? DL_OK : dl_ucc_context_admit(self->context);
}

static void
note_loss(dl_ucc_backend *self, dl_status status)
{
    if (status == DL_PEER_LOST && self->context != NULL) {
        atomic_store(&self->context->has_lost_rank, true);
    }
}

/* Carries out a call on the CPU backend, which tells the other ranks of a failure.  If a
 * rank is lost, the context remembers that ranks that leave need not wait. */
static dl_status
run_on_cpu(dl_ucc_backend *self, const dl_op_context *op, const dl_call *call)
{
    DL_TRY(check_admitted(self));
    dl_status status = dl_backend_run(self->pair.base.cpu, op, call);
    note_loss(self, status);
    return status;
}

dl_status
dl_ucc_rendezvous(dl_ucc_backend *self, const dl_op_context *op)
{
    return run_on_cpu(self, op, &(dl_call){.op = DL_BARRIER});
}

/* All ranks find the same, as the fingerprints of such calls have the sizes. */
static bool
is_uneven(const dl_ucc_backend *self, const dl_call *call)
{
    const dl_tensor *blocks = call->op == DL_ALL_GATHER       ? call->outputs
                              : call->op == DL_REDUCE_SCATTER ? call->inputs
                                                              : NULL;

    for (int i = 1; blocks != NULL && i < self->size; i++) {
        if (blocks[i].count != blocks[0].count) {
            return true;
        }
    }
    return false;
}

dl_status
dl_ucc_collective(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    static dl_collective_fn *const in_ucc[DL_OP_TYPE_COUNT] = {
        [DL_ALL_REDUCE] = dl_ucc_all_reduce,
        [DL_BROADCAST] = dl_ucc_broadcast,
        [DL_BARRIER] = dl_ucc_barrier,
        [DL_REDUCE] = dl_ucc_reduce,
        [DL_ALL_GATHER] = dl_ucc_all_gather,
        [DL_REDUCE_SCATTER] = dl_ucc_reduce_scatter,
        [DL_ALL_TO_ALL] = dl_ucc_all_to_all,
    };
    dl_ucc_backend *self = dl_ucc_self(backend);

    return self->size > 1 && in_ucc[call->op] != NULL && !is_uneven(self, call)
               ? in_ucc[call->op](backend, op, call)
               : run_on_cpu(self, op, call);
}

static dl_status
fail_sizes(const dl_ucc_backend *self, const dl_op_context *op, const uint64_t *rows,
           const int pair[2])
{
    size_t size = (size_t)self->size;
    size_t source = (size_t)pair[0];
    size_t destination = (size_t)pair[1];

    dl_fingerprint_fail_size(&op->fingerprint, pair[0],
                             rows[source * 2 * size + destination], pair[1],
                             rows[destination * 2 * size + size + source]);
    return dl_fail_while("%s #%" PRIu64 " in group %.100s",
                         dl_op_type_name(op->fingerprint.op), op->sequence,
                         self->group_name);
}

/* All ranks have the same rows, so all report the same pair. */
static dl_status
compare_sizes(const dl_ucc_backend *self, const dl_op_context *op, const uint64_t *rows)
{
    size_t size = (size_t)self->size;

    for (int source = 0; source < self->size; source++) {
        for (int destination = 0; destination < self->size; destination++) {
            uint64_t sent = rows[(size_t)source * 2 * size + (size_t)destination];
            uint64_t expected =
                rows[(size_t)destination * 2 * size + size + (size_t)source];
            if (sent != expected) {
                return fail_sizes(self, op, rows, (int[2]){source, destination});
            }
        }
    }
    return DL_OK;
}

static dl_tensor
sizes_of(const dl_ucc_backend *self, uint64_t *rows, int rank)
{
    size_t numbers = 2 * (size_t)self->size;

    return dl_tensor_of_bytes(rows + (size_t)rank * numbers, numbers * sizeof *rows);
}

dl_status
dl_ucc_compare_sizes(dl_ucc_backend *self, const dl_op_context *op,
                     const dl_ucc_layout *from, const dl_ucc_layout *to)
{
    size_t count = (size_t)self->size;
    size_t bytes = count * sizeof(uint64_t);
    uint64_t *rows = calloc(2 * count * count, sizeof *rows);
    dl_tensor *blocks = calloc(count, sizeof *blocks);
    dl_status status;

    if (rows == NULL || blocks == NULL) {
        status = dl_fail_no_memory();
        goto done;
    }
    for (int rank = 0; rank < self->size; rank++) {
        blocks[rank] = sizes_of(self, rows, rank);
    }
    dl_call call = dl_call_all_gather(&blocks[self->rank], blocks);
    memcpy(call.tensor.data, from->counts, bytes);
    memcpy((uint64_t *)call.tensor.data + count, to->counts, bytes);
    status = run_on_cpu(self, op, &call);
    if (status == DL_OK) {
        status = compare_sizes(self, op, rows);
    }

done:
    free(blocks);
    free(rows);
    return status;
}

void
dl_ucc_patience_init(dl_ucc_patience *patience, size_t bytes)
{
    int64_t now = dl_now();

    *patience = (dl_ucc_patience){
        .awake_until = now + AWAKE + (int64_t)bytes,
        .next_slice = now + DL_WAIT_SLICE,
    };
}

dl_status
dl_ucc_patience_rest(dl_ucc_patience *patience)
{
    int64_t now = dl_now();

    if (now >= patience->next_slice) {
        patience->next_slice = now + DL_WAIT_SLICE;
        patience->rounds++;
        DL_TRY(dl_interrupt_check());
    }
    if (now < patience->awake_until) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
    }
    return DL_OK;
}

/* Sends the failure to the other ranks, so that they need not wait until their own
 * deadlines.  Returns the failure. */
static dl_status
send_failure(dl_ucc_backend *self, const dl_op_context *op)
{
    dl_error error = *dl_last_error();
    dl_error told = {.status = DL_PEER_LOST};

    snprintf(told.text, sizeof told.text, "%.200s gave up %s #%" PRIu64 ": %.1600s",
             self->label, dl_op_type_name(op->fingerprint.op), op->sequence,
             error.text);
    self->pair.base.cpu->ops->abort(self->pair.base.cpu, &told);
    return dl_rethrow(&error);
}

static dl_status
fail_late_operation(const dl_ucc_backend *self, const dl_op_context *op)
{
    return dl_fail(DL_TIMEOUT,
                   "%s #%" PRIu64 " timed out after %" PRId64
                   "ms in %s: UCC has not completed it; another rank is late, has "
                   "exited, or is in another operation",
                   dl_op_type_name(op->fingerprint.op), op->sequence,
                   op->deadline.limit / DL_MILLISECOND, self->label);
}

/* Fails once a rank has been gone for LAST_SLICES slices. */
static dl_status
check_loss(dl_ucc_backend *self, const dl_op_context *op, dl_ucc_patience *patience)
{
    if (self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1) == DL_OK
        || ++patience->slices_after_loss < LAST_SLICES) {
        return DL_OK;
    }
    note_loss(self, DL_PEER_LOST);
    dl_error error = *dl_last_error();
    return dl_fail(DL_PEER_LOST, "%s #%" PRIu64 " cannot end in %s: %.1800s",
                   dl_op_type_name(op->fingerprint.op), op->sequence, self->label,
                   error.text);
}

/* Pauses between polls, and checks whether the wait has to end. */
static dl_status
pause_and_check(dl_ucc_backend *self, const dl_op_context *op,
                dl_ucc_patience *patience)
{
    int rounds = patience->rounds;

    DL_TRY(check_admitted(self));
    if (dl_deadline_passed(op->deadline)) {
        return fail_late_operation(self, op);
    }
    DL_TRY(dl_ucc_patience_rest(patience));
    if (patience->rounds == rounds) {
        return DL_OK;
    }
    return check_loss(self, op, patience);
}

/* Finds a better error.  UCC notices by its own network that a rank is gone, but not
 * which one or why; ranks that have the reason get time to report it. */
static dl_status
find_cause(dl_ucc_backend *self, const dl_op_context *op)
{
    dl_ucc_patience patience = {.slices_after_loss = LAST_SLICES};
    dl_error error = *dl_last_error();

    for (int round = 0; round < LAST_SLICES; round++) {
        DL_TRY(check_loss(self, op, &patience));
        DL_TRY(dl_sleep_until(dl_deadline_after(DL_WAIT_SLICE)));
    }
    return dl_rethrow(&error);
}

/* Drives UCC until it has completed the request, POLLS times at most. */
static dl_status
poll_request(dl_ucc_backend *self, const volatile int *status)
{
    const dl_ucc_table *ucc = self->context->ucc;
    int result = DL_UCC_OK;

    DL_TRY(dl_ucc_context_drive(self->context));
    for (int i = 0; i < POLLS && result >= 0 && *status == DL_UCC_IN_PROGRESS; i++) {
        result = ucc->context_progress(self->context->handle);
    }
    dl_ucc_context_pause(self->context);
    return dl_ucc_check(ucc, result, "ucc_context_progress");
}

/* Waits until UCC has completed the request.  `*is_over` is set if it has, so that the
 * request can be freed. */
static dl_status
wait_for_request(dl_ucc_backend *self, const dl_op_context *op, dl_ucc_request *request,
                 size_t bytes, bool *is_over)
{
    const volatile int *status = &request->status;
    dl_ucc_patience patience;

    dl_ucc_patience_init(&patience, bytes);
    for (;;) {
        DL_TRY(poll_request(self, status));
        if (*status != DL_UCC_IN_PROGRESS) {
            *is_over = true;
            return dl_ucc_check(self->context->ucc, *status,
                                dl_op_type_name(op->fingerprint.op));
        }
        DL_TRY(pause_and_check(self, op, &patience));
    }
}

/* Gives the rows and lengths up, because UCC may still access them, and disables the
 * context. */
static void
abandon_request(dl_ucc_backend *self)
{
    dl_error error = *dl_last_error();

    self->raw = self->input = self->output = (dl_buffer){0};
    self->lengths = NULL;
    dl_ucc_context_disable(self->context, self->group_name, &error);
    (void)dl_rethrow(&error);
}

static dl_status
post_collective(dl_ucc_backend *self, const char *name, dl_ucc_args *args,
                dl_ucc_request **request)
{
    const dl_ucc_table *ucc = self->context->ucc;

    int status = ucc->collective_init(args, request, self->team);
    if (status == DL_UCC_NOT_SUPPORTED || status == DL_UCC_NOT_IMPLEMENTED) {
        /* Not DL_UNSUPPORTED, as the other ranks may not fail alike. */
        return dl_fail(DL_BACKEND,
                       "%s: %s in UCC %u.%u with the transports available here "
                       "(UCC_CLS, UCC_TLS)",
                       name, ucc->status_text(status), ucc->major, ucc->minor);
    }
    DL_TRY(dl_ucc_check(ucc, status, name));
    status = ucc->collective_post(*request);
    if (status < 0) {
        ucc->collective_finalize(*request);
    }
    return dl_ucc_check(ucc, status, name);
}

/* Another group may have given up an operation since the ranks began to meet. */
static dl_status
post_if_enabled(dl_ucc_backend *self, const char *name, dl_ucc_args *args,
                dl_ucc_request **request)
{
    DL_TRY(dl_ucc_context_drive(self->context));
    dl_status status = post_collective(self, name, args, request);
    dl_ucc_context_pause(self->context);
    return status;
}

dl_status
dl_ucc_run(dl_ucc_backend *self, const dl_op_context *op, dl_ucc_args *args,
           size_t bytes)
{
    dl_ucc_request *request = NULL;
    bool is_over = false;

    dl_status status =
        post_if_enabled(self, dl_op_type_name(op->fingerprint.op), args, &request);
    if (status == DL_OK) {
        status = wait_for_request(self, op, request, bytes, &is_over);
        status = status == DL_BACKEND ? find_cause(self, op) : status;
        if (is_over) {
            self->context->ucc->collective_finalize(request);
        } else {
            abandon_request(self);
        }
    }
    return status == DL_OK ? DL_OK : send_failure(self, op);
}
