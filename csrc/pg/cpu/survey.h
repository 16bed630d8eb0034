/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the records of all ranks say together: which ranks share a host, and what is
 * wrong with their settings.  Every rank would find the same, so the ranks of a host
 * share one survey, behind the table that it is made from (contacts.h): it has no
 * pointers. */
#ifndef DISTLITE_PG_CPU_SURVEY_H
#define DISTLITE_PG_CPU_SURVEY_H

#include <stddef.h>

#include "pg/cpu/contact_entry.h"
#include "pg/cpu/layout.h"

typedef struct dl_survey {
    /* The lowest ranks of which it is true; -1: none. */
    int refused;       /* its settings name something that does not exist */
    int other_mode;    /* its links have another TLS mode than those of rank 0 */
    int unaddressed;   /* it has no address for other hosts */
    bool has_loopback; /* some addresses lead each host to itself */
    bool has_stacks;   /* some ranks are in other network namespaces than others */
    bool is_whole; /* each rank can have a link to its neighbours in gather.h's tree */
    int host_count;
    int layout
        []; /* the memory of dl_layout, for the ranks that claim to share a host */
} dl_survey;

/* Returns the bytes of a survey. */
size_t dl_survey_size(int size);

/* Fills it in from the entries of all ranks.  Returns DL_NO_MEMORY. */
dl_status dl_survey_make(dl_survey *survey, const dl_contact_entry *entries, int size);

/* Returns the layout as `rank` sees it, which points into the survey. */
dl_layout dl_survey_layout(const dl_survey *survey, int size, int rank);

/* Returns whether two ranks can have a link to each other. */
bool dl_survey_can_link(const dl_contact_entry *left, const dl_contact_entry *right);

#endif
