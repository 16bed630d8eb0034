/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Implements requests that a kind of store lacks by other requests.  Private to
 * store.c. */
#ifndef DISTLITE_STORE_GENERIC_H
#define DISTLITE_STORE_GENERIC_H

#include "store/store.h"

/* WAIT polls every few milliseconds.  APPEND is a loop of compare_set, whose reply
 * cannot distinguish two writers of the same bytes: simultaneous equal appends may
 * become one.  MULTI_GET and MULTI_SET are loops.  BARRIER counts in
 * "<key>/num_members"; the last member sets "<key>/last_member", for which all wait;
 * with no members it returns at once.  All other requests are DL_UNSUPPORTED. */
dl_status dl_generic_execute(dl_store *store, const dl_store_request *request,
                             dl_store_reply *reply, dl_deadline deadline);

#endif
