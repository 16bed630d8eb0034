/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_meeting.h"

#include <inttypes.h>
#include <stdlib.h>

/* On another host a rank may have heard enough to go on: it hears of this from the
 * store. */
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

/* A side as one number for each rank: what a list has for it, or one block that is the
 * root's alone. */
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

/* Everyone has the same rows, so everyone says the same. */
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
        atomic_store(&self->context->is_bereaved, true);
    }
}

dl_status
dl_ucc_watch(dl_ucc_backend *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank) {
            DL_TRY(self->cpu->ops->watch(self->cpu, rank));
        }
    }
    return DL_OK;
}
