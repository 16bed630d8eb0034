/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How texts of a backend call one of its ranks: "group 0, rank 1 of 4 on node7".  With the
 * host, as errors are read side by side with those of other ranks. */
#ifndef DISTLITE_PG_LABEL_H
#define DISTLITE_PG_LABEL_H

/* In memory for free(3); NULL: there is none. */
char *dl_label_new(const char *group_name, int rank, int size);

#endif
