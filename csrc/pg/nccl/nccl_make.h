/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes communicators: from unique ids that some ranks put into the store, or from an
 * existing communicator, by splitting, shrinking or growing it.  Each way needs every
 * rank of the new communicator at the same time.  NCCL's call runs on a thread of its own,
 * because it blocks until all ranks have made it and cannot be cancelled: the caller
 * returns at its deadline, when it is interrupted, or when the group is aborted. */
#ifndef DISTLITE_PG_NCCL_NCCL_MAKE_H
#define DISTLITE_PG_NCCL_NCCL_MAKE_H

#include "pg/nccl/nccl_rendezvous.h"

/* Makes the communicator of the ranks of `place`, whose group has this watch; a split
 * that of a part of them, or NULL in `*comm` if this rank is in none.  The caller owns a
 * reference to `*comm`, which is not watched yet.  A failure before NCCL is called
 * leaves the parent as it was, except that it cannot grow any more if it was to; a later
 * one breaks it, and the parent's group fails. */
dl_status dl_nccl_comm_make(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* Returns which of DL_DEVICE_CAN_... the library has the calls for. */
int dl_nccl_ways(const dl_nccl_table *nccl);

#endif
