/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks wait for, in words for logs and errors. */
#ifndef DISTLITE_PG_WAIT_WORDS_H
#define DISTLITE_PG_WAIT_WORDS_H

#include "pg/wait_graph.h"

/* Leaves room in an error for what happened. */
#define DL_WAIT_TEXT_SIZE 1792

/* A line for each rank of the cycle below the opening; `states` as for
 * dl_wait_cycle_find().  What does not fit into DL_WAIT_TEXT_SIZE bytes is cut off. */
void dl_wait_words_cycle(const dl_wait_state *const *states, const dl_wait_cycle *cycle,
                         char *text);

/* Where such a text begins in another one, or NULL. */
char *dl_wait_words_find_cycle(char *text);

/* What a late rank is doing, and how many more there are: appended to what is in `text`. */
#define DL_WAIT_LATE_SIZE 704

void dl_wait_words_late(int rank, const dl_doing *doing, char text[DL_WAIT_LATE_SIZE]);
void dl_wait_words_more(int count, char text[DL_WAIT_LATE_SIZE]);

#endif
