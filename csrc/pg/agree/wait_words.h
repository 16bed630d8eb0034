/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Texts that describe what ranks wait for, for logs and errors. */
#ifndef DISTLITE_PG_AGREE_WAIT_WORDS_H
#define DISTLITE_PG_AGREE_WAIT_WORDS_H

#include "pg/record/wait_graph.h"

/* Leaves room in an error's text for what happened. */
#define DL_WAIT_TEXT_SIZE 1792

/* Writes a headline and a line for each rank of the cycle; `states` as for
 * dl_wait_cycle_find().  What does not fit into DL_WAIT_TEXT_SIZE bytes is cut off. */
void dl_wait_words_cycle(dl_wait_state *const *states, const dl_wait_cycle *cycle,
                         char *text);

/* Returns where such a text begins in `text`, or NULL. */
char *dl_wait_words_find_cycle(char *text);

/* Appends to `text` what a late rank is doing. */
#define DL_WAIT_LATE_SIZE 704

void dl_wait_words_late(int rank, const dl_doing *doing, char text[DL_WAIT_LATE_SIZE]);

#endif
