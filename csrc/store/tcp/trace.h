/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines of the log about single requests, as torch's servers write them. */
#ifndef DISTLITE_STORE_TCP_TRACE_H
#define DISTLITE_STORE_TCP_TRACE_H

#include "store/tcp/session.h"

/* Writes a line about the request at the level TRACE; without the id of a slot, which
 * nobody else may know. */
void dl_trace_request(dl_session *session, const dl_store_request *request);

#endif
