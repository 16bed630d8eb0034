/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tag of the receive that watches a rank; programs do not use it. */
#define WATCH_TAG INT64_MIN

/* Notes a lost rank and publishes a failure: a rank of another host may already know
 * enough to continue, and learns of the failure from the store. */
static dl_status
end(dl_ucc_backend *self, const dl_op_context *op, dl_status status)
{
    dl_ucc_note_loss(self, status);
    if (status != DL_OK) {
        dl_ucc_publish(self, op);
    }
    return status;
}

dl_status
dl_ucc_meet(dl_ucc_backend *self, const dl_op_context *op)
{
    DL_TRY(dl_ucc_admit(self));
    return end(self, op, self->cpu->ops->barrier(self->cpu, op));
}

/* Writes one number per rank: the sizes of a list, or the size of a single block at
 * `root`. */
static void
put_side(const dl_ucc_layout *side, int size, int root, uint64_t *numbers)
{
    for (int rank = 0; rank < size; rank++) {
        numbers[rank] = side->count > 1 ? side->counts[rank] : 0;
    }
    if (side->count == 1) {
        numbers[root] = side->counts[0];
    }
}

static dl_status
fail(const dl_ucc_backend *self, const dl_op_context *op, const uint64_t *rows,
     const int pair[2])
{
    size_t size = (size_t)self->size;
    size_t source = (size_t)pair[0];
    size_t destination = (size_t)pair[1];
    char sent[DL_FINGERPRINT_SIZE_TEXT_SIZE];
    char expected[DL_FINGERPRINT_SIZE_TEXT_SIZE];

    dl_fingerprint_describe_size(&op->fingerprint,
                                 rows[source * 2 * size + destination], sent);
    dl_fingerprint_describe_size(
        &op->fingerprint, rows[destination * 2 * size + size + source], expected);
    return dl_fail(DL_MISMATCH,
                   "%s #%" PRIu64 " in group %.100s: rank %d has %s for rank %d, which "
                   "expects %s",
                   dl_op_type_name(op->fingerprint.op), op->sequence, self->group_name,
                   pair[0], sent, pair[1], expected);
}

/* All ranks have the same rows, so all report the same pair. */
static dl_status
compare(const dl_ucc_backend *self, const dl_op_context *op, const uint64_t *rows)
{
    size_t size = (size_t)self->size;

    for (int source = 0; source < self->size; source++) {
        for (int destination = 0; destination < self->size; destination++) {
            uint64_t sent = rows[(size_t)source * 2 * size + (size_t)destination];
            uint64_t expected =
                rows[(size_t)destination * 2 * size + size + (size_t)source];
            if (sent != expected) {
                return fail(self, op, rows, (int[2]){source, destination});
            }
        }
    }
    return DL_OK;
}

static dl_tensor
row_of(const dl_ucc_backend *self, uint64_t *rows, int rank)
{
    size_t numbers = 2 * (size_t)self->size;

    return (dl_tensor){
        .data = rows + (size_t)rank * numbers,
        .count = numbers * sizeof *rows,
        .item_size = 1,
        .dtype = DL_UINT8,
        .is_contiguous = true,
        .is_writable = true,
    };
}

dl_status
dl_ucc_meet_sizes(dl_ucc_backend *self, const dl_op_context *op,
                  const dl_ucc_layout *from, const dl_ucc_layout *to, int root)
{
    size_t count = (size_t)self->size;
    uint64_t *rows = calloc(2 * count * count, sizeof *rows);
    dl_tensor *blocks = calloc(count, sizeof *blocks);
    dl_status status = dl_ucc_admit(self);

    if (status != DL_OK) {
        goto done;
    }
    if (rows == NULL || blocks == NULL) {
        status = dl_fail_no_memory();
        goto done;
    }
    for (int rank = 0; rank < self->size; rank++) {
        blocks[rank] = row_of(self, rows, rank);
    }
    dl_all_gather_args args = {.input = blocks[self->rank], .outputs = blocks};
    put_side(from, self->size, root, args.input.data);
    put_side(to, self->size, root, (uint64_t *)args.input.data + count);
    status = end(self, op, self->cpu->ops->all_gather(self->cpu, op, &args));
    if (status == DL_OK) {
        status = compare(self, op, rows);
    }

done:
    free(blocks);
    free(rows);
    return status;
}

void
dl_ucc_note_loss(dl_ucc_backend *self, dl_status status)
{
    if (status == DL_PEER_LOST && self->context != NULL) {
        atomic_store(&self->context->has_lost_rank, true);
    }
}

/* Fails with the reason why the watched rank is gone, without mention of the receive,
 * which the program has not posted. */
static dl_status
fail_watch_receive(const dl_ucc_backend *self)
{
    dl_error error = *dl_last_error();
    char before[128];

    snprintf(before, sizeof before, " in group %.100s: ", self->group_name);
    const char *reason = strstr(error.text, before);
    return dl_fail(error.status, "%s",
                   reason == NULL ? error.text : reason + strlen(before));
}

/* Watches the next rank in a ring by a receive for a message that is never sent.  The
 * receive fails once that rank is gone, on whatever host it is; other ranks learn of it
 * from this one. */
static dl_status
post_watch_receive(dl_ucc_backend *self)
{
    dl_message_args args = {
        .tensor = {.data = &self->watch_byte,
                   .count = 1,
                   .item_size = 1,
                   .dtype = DL_UINT8,
                   .is_contiguous = true,
                   .is_writable = true},
        .peer = (self->rank + 1) % self->size,
        .tag = WATCH_TAG,
    };

    if (self->watch_receive == NULL) {
        DL_TRY(self->cpu->ops->post(self->cpu, DL_RECV, &args, dl_deadline_after(-1),
                                    &self->watch_receive));
    }
    return dl_work_is_done(self->watch_receive)
                   && dl_work_result(self->watch_receive) != DL_OK
               ? fail_watch_receive(self)
               : DL_OK;
}

dl_status
dl_ucc_watch(dl_ucc_backend *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank) {
            DL_TRY(self->cpu->ops->watch(self->cpu, rank));
        }
    }
    return post_watch_receive(self);
}

/* Keeps the thread's last error, which is the operation's. */
void
dl_ucc_unwatch(dl_ucc_backend *self)
{
    if (self->watch_receive == NULL) {
        return;
    }
    dl_error error = *dl_last_error();
    self->watch_receive->ops->withdraw(self->watch_receive);
    dl_work_unref(self->watch_receive);
    self->watch_receive = NULL;
    (void)dl_fail_again(&error);
}
