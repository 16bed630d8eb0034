/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A window: memory of every rank of a group that all ranks read, write and update
 * without the owner taking part.  This is the interface to the layers above; what a
 * backend brings is in pg/window_part.h.
 *
 * Accesses do not take the group's turn: any thread may make them, also while an
 * operation of the group runs.  A put and a get move bytes, and are not atomic. Updates
 * (reductions, replacing, comparing and swapping) are atomic element by element against
 * all other updates of the window, whatever their reductions.  Accesses of one thread
 * to one rank take effect in the order of its calls.  A rank sees what others have
 * written once they have synchronised: by the lock, by dl_window_fence(), or by
 * dl_window_flush() on the writer followed by any message to the reader. */
#ifndef DISTLITE_PG_WINDOW_H
#define DISTLITE_PG_WINDOW_H

#include <stdbool.h>

#include "pg/group.h"
#include "pg/window_part.h"
#include "tensor/tensor.h"

typedef struct dl_window dl_window;

/* Makes a window, together with all other ranks, of which this rank's part has `count`
 * elements of the dtype of `model`; only dtype, code and size of an element are read.
 * The parts may differ in size, and are zeros at first.  DL_UNSUPPORTED: the group's
 * backend has no windows. */
dl_status dl_window_new(dl_group *group, const dl_tensor *model, uint64_t count,
                        dl_deadline deadline, dl_window **window);

/* Ends this rank's part as dl_window_end() does, and frees the window and its memory.  No
 * call may be using it. */
void dl_window_free(dl_window *window);

/* This rank's part, which stays in place until dl_window_free(). */
void *dl_window_own(const dl_window *window);
size_t dl_window_size(const dl_window *window); /* in bytes */
uint64_t dl_window_count(const dl_window *window, int rank);
dl_group *dl_window_group(const dl_window *window);

/* An access to the elements from `offset` on in the memory of `rank`.  Tensors have the
 * window's dtype, and any strides; their number of elements is the size of the
 * access. */
typedef struct dl_window_access {
    int rank;
    int64_t offset;
    const dl_tensor *input;
    const dl_tensor *compared; /* only of a swap */
    const dl_tensor *output;
    int update; /* a dl_reduce_op but AVG, or DL_UPDATE_...; only of an update */
    double factor;
} dl_window_access;

/* Writes the input.  The caller has its array back when this returns. */
dl_status dl_window_put(dl_window *window, const dl_window_access *access,
                        dl_deadline deadline);

/* Reads into the output. */
dl_status dl_window_get(dl_window *window, const dl_window_access *access,
                        dl_deadline deadline);

/* Updates the elements with the input, of which DL_UPDATE_NOTHING has none; the output,
 * unless it is NULL, gets what they were before.  Each element is read and written in
 * one atomic step. */
dl_status dl_window_update(dl_window *window, const dl_window_access *access,
                           dl_deadline deadline);

/* Replaces, in one atomic step, the element by the input if its bytes are those of
 * `compared`; the output gets what it was before.  Each tensor has one element. */
dl_status dl_window_swap(dl_window *window, const dl_window_access *access,
                         dl_deadline deadline);

/* Waits for the lock of the memory of `rank`, which many ranks may hold at a time if it
 * `is_shared`, and otherwise one.  It is granted in the order of the requests.  It
 * excludes only other ranks that take it, and does not block accesses.  DL_INVALID:
 * this rank has it already, or is waiting for it in another thread.  DL_PEER_LOST: a
 * rank ended while it held the lock; all waiting ranks fail, and the lock is not
 * granted any more. */
dl_status dl_window_lock(dl_window *window, int rank, bool is_shared,
                         dl_deadline deadline);

/* Waits until this rank's accesses to `rank` have taken effect, and gives its lock
 * back. */
dl_status dl_window_unlock(dl_window *window, int rank, dl_deadline deadline);

/* Waits until this rank's accesses to `rank`, or to all ranks if it is -1, have taken
 * effect. */
dl_status dl_window_flush(dl_window *window, int rank, dl_deadline deadline);

/* A flush of all ranks and a barrier of the group: afterwards every rank sees what all
 * ranks did before. */
dl_status dl_window_fence(dl_window *window, dl_deadline deadline);

/* A fence, after which the window is closed on every rank.  If the group has ended, it
 * only does what dl_window_end() does.  The memory of this rank stays readable. */
dl_status dl_window_close(dl_window *window, dl_deadline deadline);

/* Closes the window on this rank without telling the others, whose accesses to this
 * rank fail from now on. */
void dl_window_end(dl_window *window);

#endif
