/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where in the user's program an operation was called, for texts that people read.  The
 * binding notes it on the calling thread before it enters the core, if anybody asked for
 * it: looking at a Python frame is not free.  Knows nothing of Python. */
#ifndef DISTLITE_BASE_CALL_SITE_H
#define DISTLITE_BASE_CALL_SITE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dl_call_site {
    const char *file; /* both live as long as the call, no longer */
    const char *function;
    int line;
} dl_call_site;

/* Enough for a long path's end; the front of a longer one is left out. */
#define DL_CALL_SITE_TEXT_SIZE 160

/* From now on call sites are noted, for the rest of the process's life. */
void dl_call_sites_want(void);
bool dl_call_sites_are_wanted(void);

/* This thread's; copied, NULL for none. */
void dl_call_site_note(const dl_call_site *site);

/* NULL when none was noted. */
const dl_call_site *dl_call_site_noted(void);

/* "train.py:42 in step", the noted one; empty when there is none. */
void dl_call_site_describe(char *text, size_t size);

#endif
