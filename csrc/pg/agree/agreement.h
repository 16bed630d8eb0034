/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the debug level DETAIL adds to a collective: before it begins, the ranks state
 * their calls and the lines that made them in the store, and compare operation, shapes,
 * dtypes, reduction, root and blocks.  If ranks differ or do not come, the call fails on
 * every rank before anything is sent.  Messages between two ranks are not compared. */
#ifndef DISTLITE_PG_AGREE_AGREEMENT_H
#define DISTLITE_PG_AGREE_AGREEMENT_H

#include "pg/agree/roll_call.h"
#include "pg/group_state.h"

typedef struct dl_agreement dl_agreement;

/* Returns the agreement of a group, or that of its arrays on devices with the backend
 * `device`, whose operations are counted separately; NULL if there is no memory.  The
 * group is borrowed. */
dl_agreement *dl_agreement_new(dl_group *group, const char *device);
void dl_agreement_free(dl_agreement *self);

/* Returns DL_OK once all ranks have stated the same call to the side's agreement.  The
 * texts of DL_MISMATCH, DL_TIMEOUT and DL_PEER_LOST name ranks, hosts, calls and
 * lines.  Any failure but a mismatch aborts the side's backend, so that ranks which come
 * later fail at once and do not wait.  Called with the side's turn. */
dl_status dl_agreement_reach(dl_side *side, const dl_op_context *op,
                             const dl_call *call);

#endif
