/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The UCC backend, for arrays in the CPU's memory.  The library is loaded at run time.
 * There is a team for each group, and one context for all groups that are made out of one
 * another, unless TORCH_UCC_SHARED_COMM=0 gives each its own.  UCC moves data only while
 * it is called, so a thread that waits for an operation drives it: awake for as long as
 * it should take, then between short sleeps.  UCC cannot cancel what it has begun: an
 * operation that is given up makes the context unusable, and with it all of its groups.
 *
 * Beside it is a CPU backend of the same ranks.  It carries the messages and scans, which
 * UCC lacks, and the addresses that UCC exchanges, and lets the ranks meet before each
 * collective, so that UCC gets only what all ranks have begun. */
#ifndef DISTLITE_PG_UCC_UCC_BACKEND_H
#define DISTLITE_PG_UCC_UCC_BACKEND_H

#include "pg/backend.h"

/* Creates the backend.  On failure the reason is sent to the other ranks. */
dl_status dl_ucc_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Sends the other ranks the reason why this one cannot make the group: the thread's
 * last error, which is kept.  dl_ucc_backend_new() does so itself.  Best effort. */
void dl_ucc_backend_refuse(const dl_backend_options *options);

/* Sets `*version`, 10300 for 1.3.0.  Fails if no library that will do is found. */
dl_status dl_ucc_version(int *version);

#endif
