/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the process that listens on a port of this host, for the error of one that
 * cannot bind it. */
#ifndef DISTLITE_NET_PORT_HOLDER_H
#define DISTLITE_NET_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes "pid 1234 (python train.py)" into `text`.  False: no process of this network
 * namespace listens there, or it belongs to another user, whose descriptors this
 * process may not inspect.  Reads the descriptors of all processes in /proc, which
 * takes milliseconds. */
bool dl_port_holder(uint16_t port, char *text, size_t size);

#endif
