/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The place in the user's program that called an operation, for error texts and logs.
 * The binding records it on the calling thread before it enters the core, and only if
 * call sites were asked for, since inspecting a Python frame is not free.  Knows
 * nothing of Python. */
#ifndef DISTLITE_BASE_CALL_SITE_H
#define DISTLITE_BASE_CALL_SITE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct dl_call_site {
    const char *file; /* `file` and `function` are valid during the call only */
    const char *function;
    int line;
} dl_call_site;

/* Room for the end of a long path; the beginning of a longer one is left out. */
#define DL_CALL_SITE_TEXT_SIZE 160

/* Enables the recording of call sites for the rest of the process's life.  Any
 * thread. */
void dl_call_sites_enable(void);

/* Set by the above and never again; for the next function, which is called at the
 * beginning of every operation. */
extern atomic_bool dl_call_sites_wanted;

static inline bool
dl_call_sites_are_enabled(void)
{
    return atomic_load_explicit(&dl_call_sites_wanted, memory_order_relaxed);
}

/* Records a copy of `*site` for the calling thread; NULL clears it. */
void dl_call_site_record(const dl_call_site *site);

/* Returns the calling thread's call site, or NULL if none is recorded. */
const dl_call_site *dl_call_site_noted(void);

/* Writes the calling thread's call site as "train.py:42 in step"; empty if none is
 * recorded. */
void dl_call_site_describe(char *text, size_t size);

#endif
