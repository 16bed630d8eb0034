/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The label of a rank in a backend's error texts: "group 0, rank 1 of 4 on node7".  It
 * names the host because errors of several ranks are read side by side. */
#ifndef DISTLITE_PG_LABEL_H
#define DISTLITE_PG_LABEL_H

/* Returns a text that the caller frees with free(3), or NULL if there is no memory. */
char *dl_label_new(const char *group_name, int rank, int size);

#endif
