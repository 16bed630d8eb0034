/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The errors for ranks whose calls differ and for ranks that do not come to the roll
 * call. */
#ifndef DISTLITE_PG_WRAPPER_DISAGREEMENT_H
#define DISTLITE_PG_WRAPPER_DISAGREEMENT_H

#include "pg/wrapper/agreement.h"
#include "pg/wrapper/statement.h"

/* The result of one roll call. */
typedef struct dl_hearing {
    const dl_agreement *agreement;
    const dl_op_context *op;
    const dl_buffer *words; /* by rank; empty if the rank has not come */
    int gone;               /* a rank that will never come; -1 if none is known */
} dl_hearing;

/* Compares the calls of all ranks, all of which have come; DL_MISMATCH if they
 * differ. */
dl_status dl_disagreement_look(const dl_hearing *self);

/* Words the failure of a roll call to which some ranks have not come, and returns
 * `status`.  If a rank is gone, the thread's last error is quoted as the cause. */
dl_status dl_disagreement_absent(const dl_hearing *self, dl_status status);

#endif
