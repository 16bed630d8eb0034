/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server side of a TCP store that is a master: chooses one of the two servers,
 * opens its listening socket, and counts its owners.  Masters of one port in one
 * process share a server if all of them are multi-tenant; it stops with the last of
 * them. */
#ifndef DISTLITE_STORE_TCP_MASTER_H
#define DISTLITE_STORE_TCP_MASTER_H

#include "base/deadline.h"
#include "base/status.h"
#include "net/address.h"
#include "net/tls.h"
#include "store/tcp/tcp_store_options.h"

typedef struct dl_master dl_master;

/* Returns whether a server of this process listens on this socket: a second one would
 * accept clients of the first, and close the socket as well. */
bool dl_master_serves(int fd);

/* Listens and starts a server, or becomes another owner of one.  `tls` is made from
 * options->tls.  Takes options->listen_fd, unless another store of this process serves
 * that socket already (DL_INVALID).  `*master` is NULL when the port is taken by a
 * launcher's agent, which is then the server: the environment says so
 * (TORCHELASTIC_USE_AGENT_STORE, MASTER_PORT). */
dl_status dl_master_start(const dl_tcp_store_options *options, dl_tls *tls,
                          dl_deadline deadline, dl_master **master);

/* Returns whether the server listens on loopback only, which no other host reaches;
 * `address` is then set, for example to "127.0.0.1:80". */
bool dl_master_is_private(const dl_master *master, char address[DL_ADDRESS_TEXT_SIZE]);

uint16_t dl_master_port(const dl_master *master);

/* Releases one owner's share; the last one stops the server.  NULL does nothing. */
void dl_master_stop(dl_master *master);

#endif
