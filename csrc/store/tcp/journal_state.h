/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parts of a server that its journal keeps (journal.h). */
#ifndef DISTLITE_STORE_TCP_JOURNAL_STATE_H
#define DISTLITE_STORE_TCP_JOURNAL_STATE_H

#include "store/tcp/replies.h"

typedef struct dl_journal_state {
    dl_table *table;
    dl_replies *replies;
    uint8_t *identity; /* DL_JOURNAL_IDENTITY_SIZE bytes */
} dl_journal_state;

#endif
