/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the server does for each kind of request: the table's calls and the reply's
 * bytes.  Knows requests, not how their bytes arrived. */
#ifndef DISTLITE_STORE_TCP_ANSWER_H
#define DISTLITE_STORE_TCP_ANSWER_H

#include "store/tcp/session.h"
#include "store/tcp/wire.h"

/* Any request but VALIDATE.  Takes request->blob.  A failure ends the conversation, since
 * the client could not be told: one of a checked request is told and is no failure. */
dl_status dl_answer(dl_session *session, const dl_store_request *request);

#endif
