/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Before each collective its ranks meet by the CPU backend that a group has beside UCC.
 * That compares what they call, waits with a deadline, and notices who is dead: once UCC
 * has an operation nothing of this can be made good, as it has no way to call one back.
 * What UCC then gets, all ranks have begun alike. */
#ifndef DISTLITE_PG_UCC_UCC_MEETING_H
#define DISTLITE_PG_UCC_UCC_MEETING_H

#include "pg/ucc/ucc_layout.h"

/* Returns once all ranks have called the same. */
dl_status dl_ucc_meet(dl_ucc_backend *self, const dl_op_context *op);

/* The same for operations whose fingerprints leave sizes open: compares what each rank has
 * for the others with what these expect.  A side of one block is for, or from, `root`. */
dl_status dl_ucc_meet_sizes(dl_ucc_backend *self, const dl_op_context *op,
                            const dl_ucc_layout *from, const dl_ucc_layout *to,
                            int root);

/* DL_OK, or who is gone, as far as is known now: of other hosts this rank sees one, from
 * the first call on until the end, which is for whoever has waited. */
dl_status dl_ucc_watch(dl_ucc_backend *self);
void dl_ucc_unwatch(dl_ucc_backend *self);

/* Of a lost rank the context remembers that there is nobody to wait for in the end. */
void dl_ucc_note_loss(dl_ucc_backend *self, dl_status status);

#endif
