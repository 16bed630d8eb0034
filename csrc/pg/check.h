/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Checks of a call's arguments as far as one rank can tell: devices, sizes, dtypes,
 * shared memory and roots.  A valid call is described by its fingerprint, which the
 * ranks compare. */
#ifndef DISTLITE_PG_CHECK_H
#define DISTLITE_PG_CHECK_H

#include "pg/call.h"
#include "pg/fingerprint.h"
#include "pg/group.h"

/* Checks the call and completes the fingerprint, whose op is that of the call.  It
 * becomes the uneven or coalesced form where the blocks call for that.  DL_INVALID and
 * DL_UNSUPPORTED: nothing has been sent. */
typedef dl_status dl_check_fn(const dl_group *group, const dl_call *call,
                              dl_fingerprint *fingerprint);

/* Operations with one tensor on every rank. */
dl_check_fn dl_check_all_reduce, dl_check_broadcast, dl_check_reduce, dl_check_scan;

/* Operations with lists of blocks, one block for each rank; `rooted` are gather and
 * scatter. */
dl_check_fn dl_check_all_gather, dl_check_rooted, dl_check_reduce_scatter;
dl_check_fn dl_check_all_to_all;

/* What ranks announce of a window, whose dtype is the same on all ranks. */
dl_check_fn dl_check_window;

/* Shared with the check of messages: checks one tensor, and describes one. */
dl_status dl_check_tensor(const dl_group *group, const dl_tensor *tensor,
                          bool is_written, const dl_fingerprint *fingerprint);
void dl_check_describe(const dl_tensor *tensor, dl_fingerprint *fingerprint);

#endif
