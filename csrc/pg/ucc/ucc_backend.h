/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC for a group's arrays in the CPU's memory.  The library is found at run time.  The
 * ranks meet through the store: one context for all groups that are made out of one
 * another, and a team for each group.  UCC moves data only while somebody asks it to, so
 * whoever waits for an operation does that: awake for as long as it should take, then in
 * short naps.  What UCC has begun it cannot call back: an operation that is given up ends
 * the context, and with it all of its groups.
 *
 * Beside it is a CPU backend of the same ranks: it has the messages, which UCC lacks, and
 * meets before each collective, so that UCC gets only what all ranks have begun. */
#ifndef DISTLITE_PG_UCC_UCC_BACKEND_H
#define DISTLITE_PG_UCC_UCC_BACKEND_H

#include "pg/backend.h"

dl_status dl_ucc_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Tells the other ranks of a group which this one cannot make, that and why: the thread's
 * last error, which stays.  dl_ucc_backend_new() does so itself.  Best effort. */
void dl_ucc_backend_refuse(const dl_backend_options *options);

/* As dl_ucc_backend_new(), for arrays on the thread's current CUDA device, and for nothing else.  The
 * stream of each is an event instead, which the operation waits for first. */
#define DL_UCC_CUDA_GROUP "ucc on devices"
dl_status dl_ucc_cuda_new(const dl_backend_options *options, dl_deadline deadline,
                          dl_backend **backend);

/* 10300 for 1.3.0; fails where there is no library. */
dl_status dl_ucc_version(int *version);

#endif
