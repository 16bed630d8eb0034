/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/paired_gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/agree/rank_keys.h"

/* Each block begins with its number of bytes, as a message may be shorter than its
 * receiver expects. */
typedef uint64_t block_head;

static size_t
block_size(const dl_paired_gather *self)
{
    return sizeof(block_head) + self->bytes;
}

static uint8_t *
block_at(const dl_paired_gather *self, int distance)
{
    return self->blocks + (size_t)distance * block_size(self);
}

/* How many blocks the round adds. */
static int
new_blocks(const dl_paired_gather *self)
{
    int missing = self->size - self->count;

    return missing < self->count ? missing : self->count;
}

/* The rank to which the round sends (index 0), and the one from which it receives. */
static int
peer_of(const dl_paired_gather *self, int index)
{
    int distance = index == 0 ? self->size - self->count : self->count;

    return (self->rank + distance) % self->size;
}

static dl_call
call_of(const dl_paired_gather *self, int index)
{
    size_t bytes = (size_t)new_blocks(self) * block_size(self);
    uint8_t *first = block_at(self, index == 0 ? 0 : self->count);

    return (dl_call){.op = index == 0 ? DL_SEND : DL_RECV,
                     .tensor = dl_tensor_of_bytes(first, bytes),
                     .peer = peer_of(self, index),
                     .is_awaited = true};
}

/* Begins a round, unless all blocks have come.  A rank for which one waits in the first
 * round has not come; in the next ones it may wait itself, so that others get time to
 * tell for whom. */
static dl_status
begin_round(dl_paired_gather *self)
{
    dl_call calls[2] = {call_of(self, 0), call_of(self, 1)};
    dl_deadline deadline =
        self->count == 1 ? self->deadline : dl_deadline_with_grace(self->deadline);
    int posted;

    return self->count == self->size
               ? DL_OK
               : self->cpu->ops->post_all(self->cpu, calls, 2, deadline, self->works,
                                          &posted);
}

static dl_status
fail_late(const dl_paired_gather *self, int peer)
{
    dl_rank_list late = {.count = 1};

    snprintf(late.text, sizeof late.text, "%d%s", peer,
             self->count == 1 ? "" : ", or one that it waits for,");
    return dl_rank_list_fail(&late, self->what, self->deadline);
}

static dl_status
fail_unequal(const dl_paired_gather *self, int peer)
{
    return dl_fail(DL_MISMATCH,
                   "rank %d does not send %zu bytes to join %s, as rank %d does; check "
                   "that all ranks have the same version of the library",
                   peer, self->bytes, self->what, self->rank);
}

static dl_status
fail_message(const dl_paired_gather *self, int peer, dl_status status)
{
    return status == DL_TIMEOUT    ? fail_late(self, peer)
           : status == DL_MISMATCH ? fail_unequal(self, peer)
                                   : dl_fail_while("joining %s", self->what);
}

/* Waits until that time for the messages of the round. */
static dl_status
await_messages(dl_paired_gather *self, dl_deadline until, bool *are_done)
{
    for (int i = 0; i < 2; i++) {
        dl_work *work = self->works[i];
        dl_status status = work == NULL ? DL_OK : dl_work_wait(work, until);
        *are_done = work == NULL || dl_work_is_done(work);
        if (!*are_done) {
            return status == DL_TIMEOUT ? DL_OK : status;
        }
        DL_TRY(status == DL_OK ? DL_OK : fail_message(self, peer_of(self, i), status));
        dl_work_unref(work);
        self->works[i] = NULL;
    }
    return DL_OK;
}

static dl_status
check_blocks(const dl_paired_gather *self)
{
    for (int i = 0; i < new_blocks(self); i++) {
        block_head bytes;
        memcpy(&bytes, block_at(self, self->count + i), sizeof bytes);
        if (bytes != self->bytes) {
            return fail_unequal(self, (self->rank + self->count + i) % self->size);
        }
    }
    return DL_OK;
}

static void
copy_blocks(const dl_paired_gather *self)
{
    for (int i = 0; i < self->size; i++) {
        size_t rank = (size_t)((self->rank + i) % self->size);
        memcpy((uint8_t *)self->all + rank * self->bytes,
               block_at(self, i) + sizeof(block_head), self->bytes);
    }
}

dl_status
dl_paired_gather_begin(dl_paired_gather *gather, dl_bytes own)
{
    block_head bytes = own.size;

    gather->bytes = own.size;
    gather->blocks = calloc((size_t)gather->size, block_size(gather));
    if (gather->blocks == NULL) {
        return dl_fail_no_memory();
    }
    memcpy(gather->blocks, &bytes, sizeof bytes);
    memcpy(gather->blocks + sizeof bytes, own.data, own.size);
    gather->count = 1;
    return begin_round(gather);
}

dl_status
dl_paired_gather_test(dl_paired_gather *gather, dl_deadline until, bool *is_done)
{
    bool are_done = true;

    while (gather->count < gather->size && are_done) {
        DL_TRY(await_messages(gather, until, &are_done));
        if (are_done) {
            DL_TRY(check_blocks(gather));
            gather->count += new_blocks(gather);
            DL_TRY(begin_round(gather));
        }
    }
    if (are_done) {
        copy_blocks(gather);
    }
    *is_done = are_done;
    return DL_OK;
}

void
dl_paired_gather_end(dl_paired_gather *gather)
{
    dl_error error = *dl_last_error();

    for (int i = 0; i < 2; i++) {
        dl_work *work = gather->works[i];
        if (work != NULL && !dl_work_is_done(work)) {
            work->ops->withdraw(work);
        }
        dl_work_unref(work);
    }
    free(gather->blocks);
    (void)dl_rethrow(&error);
}
