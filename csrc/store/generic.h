/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the front door does for a kind of store that does not know a request: it is made
 * from other requests.  Private to store.c. */
#ifndef DISTLITE_STORE_GENERIC_H
#define DISTLITE_STORE_GENERIC_H

#include "store/store.h"

/* WAIT looks every few milliseconds.  APPEND is a loop of compare_set, whose answer cannot
 * tell two writers of the same bytes apart: equal appends at one moment may become one.
 * MULTI_GET and MULTI_SET are loops.  BARRIER counts in "<key>/num_members"; the last
 * sets "<key>/last_member", for which all wait; with no members it is over at once.  All
 * others are DL_UNSUPPORTED. */
dl_status dl_generic_execute(dl_store *store, const dl_store_request *request,
                             dl_store_reply *reply, dl_deadline deadline);

#endif
