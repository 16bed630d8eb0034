/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The words for ranks that are about to do different things, or that do not come. */
#ifndef DISTLITE_PG_WRAPPER_DISAGREEMENT_H
#define DISTLITE_PG_WRAPPER_DISAGREEMENT_H

#include "pg/wrapper/agreement.h"
#include "pg/wrapper/statement.h"

/* One roll call, as it went. */
typedef struct dl_hearing {
    const dl_agreement *agreement;
    const dl_op_context *op;
    const dl_buffer *words; /* by rank; empty: it has not come */
    int gone;               /* a rank that will never come; -1: none is known */
} dl_hearing;

/* All have come.  DL_MISMATCH if they do not agree. */
dl_status dl_disagreement_look(const dl_hearing *self);

/* Some have not: returns `status`, whose text so far (of DL_PEER_LOST) becomes the
 * cause. */
dl_status dl_disagreement_absent(const dl_hearing *self, dl_status status);

#endif
