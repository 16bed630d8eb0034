/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A port at which this process listens until it ends, also after it has left all of its
 * groups.  Nobody accepts connections there: the kernel completes them as long as the
 * process lives, and refuses them afterwards.  So a rank of another host can tell a
 * process that has left in order from one that has ended; both have closed the listener
 * of the group (listener.h).  There is one such port for each local address, which all
 * groups share. */
#ifndef DISTLITE_PG_CPU_TCP_LIFE_PORT_H
#define DISTLITE_PG_CPU_TCP_LIFE_PORT_H

#include "net/address.h"

/* Returns the port at that address; 0: there is none, for lack of descriptors. */
uint16_t dl_life_port_open(const dl_address *address);

/* Takes back a call of dl_life_port_open() of which nobody knows; the port is closed with the
 * last of them. */
void dl_life_port_drop(const dl_address *address);

#endif
