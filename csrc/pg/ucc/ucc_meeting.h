/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The meeting of the ranks before each collective, over the CPU backend that a group
 * has beside UCC.  It compares what the ranks call, waits with a deadline, and notices
 * dead ranks; after UCC has begun an operation it is too late for that, because UCC
 * cannot cancel.  So UCC gets only operations that all ranks have begun alike. */
#ifndef DISTLITE_PG_UCC_UCC_MEETING_H
#define DISTLITE_PG_UCC_UCC_MEETING_H

#include "pg/ucc/ucc_layout.h"

/* Returns once all ranks have called the same operation. */
dl_status dl_ucc_meet(dl_ucc_backend *self, const dl_op_context *op);

/* Like dl_ucc_meet(), for operations whose fingerprints do not fix the sizes: compares
 * what each rank sends to the others with what these expect.  A side of one block is
 * for `root`, or from it. */
dl_status dl_ucc_meet_sizes(dl_ucc_backend *self, const dl_op_context *op,
                            const dl_ucc_layout *from, const dl_ucc_layout *to,
                            int root);

/* dl_ucc_watch() returns DL_OK, or fails if a rank is known to be gone; of the other
 * hosts it watches one rank, from its first call until dl_ucc_unwatch(), which is
 * called after each wait. */
dl_status dl_ucc_watch(dl_ucc_backend *self);
void dl_ucc_unwatch(dl_ucc_backend *self);

/* If `status` is DL_PEER_LOST, the context remembers that ranks that leave need not
 * wait. */
void dl_ucc_note_loss(dl_ucc_backend *self, dl_status status);

#endif
