/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which process listens at a port of this host, for the error of the one that cannot. */
#ifndef DISTLITE_NET_PORT_HOLDER_H
#define DISTLITE_NET_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes "pid 1234 (python train.py)" into `text`.  False: nobody in this network
 * namespace listens there, or it is another user's process, whose descriptors this one may
 * not see.  Reads /proc, one folder of descriptors after the other: milliseconds. */
bool dl_port_holder(uint16_t port, char *text, size_t size);

#endif
