/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of backends in C.  The functions of their tables do not wait, so a thread
 * that waits for a message polls it; the thread of extension_messages.c polls those for
 * which no thread waits. */
#ifndef DISTLITE_PG_EXTENSION_EXTENSION_MESSAGES_H
#define DISTLITE_PG_EXTENSION_EXTENSION_MESSAGES_H

#include "pg/extension/extension_state.h"

/* Whether the table has messages, and DL_INVALID if it has some of their functions only. */
bool dl_extension_has_messages(const distlite_backend *table);
dl_status dl_extension_check_messages(const char *name, const distlite_backend *table);

/* Makes the place for the messages of `self`; NULL when out of memory. */
dl_extension_messages *dl_extension_messages_new(dl_extension *self);

/* Ends all pending messages with `cause`, and all that are posted later.  Idempotent. */
void dl_extension_messages_end(dl_extension_messages *messages, const dl_error *cause);

/* Drops the backend's reference, after the end; in a forked child without that. */
void dl_extension_messages_unref(dl_extension_messages *messages);

/* The entry `post` of the backend. */
dl_status dl_extension_post(dl_backend *backend, const dl_call *call,
                            dl_deadline deadline, dl_work **work);

#endif
