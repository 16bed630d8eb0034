/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Variables of the environment that say something about one server, as text:
 * "WHAT@HOST:PORT". */
#ifndef DISTLITE_STORE_TCP_SERVER_VARIABLE_H
#define DISTLITE_STORE_TCP_SERVER_VARIABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

/* Where a store goes on if the server is lost, as "HOST:PORT@HOST:PORT": another server
 * serves the same contents there then, from the journal. */
#define DL_STANDBY_VARIABLE "DISTLITE_STORE_STANDBY"

/* Reads a variable.  `what` borrows its text; it is empty if the variable is unset.
 * `*is_meant` is whether it is about this server, whose host is compared as text.
 * DL_INVALID: it has another form. */
dl_status dl_server_variable_read(const char *variable, const char *host, uint16_t port,
                                  dl_bytes *what, bool *is_meant);

/* Reads DL_STANDBY_VARIABLE.  `*standby` is to be freed; NULL: there is none.
 * DL_INVALID: it has another form. */
dl_status dl_standby_find(const char *host, uint16_t port, char **standby,
                          uint16_t *standby_port);

#endif
