/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The identity of a process's host, as far as sharing memory goes.  Processes with
 * equal texts run under one kernel and in one network namespace, so they reach each
 * other's abstract sockets.  Host names are not compared: they may be equal by
 * chance. */
#ifndef DISTLITE_PG_CPU_HOST_H
#define DISTLITE_PG_CPU_HOST_H

/* Room for a boot id and the number of a namespace. */
#define DL_HOST_STACK_SIZE 80

/* For tests: processes with different hints count as on different hosts. */
#define DL_HOST_HINT_VARIABLE "DISTLITE_HOST_HINT"
#define DL_HOST_HINT_SIZE 64

typedef struct dl_host {
    char stack[DL_HOST_STACK_SIZE]; /* boot id, and number of the network namespace */
    char hint[DL_HOST_HINT_SIZE];
} dl_host;

/* Fills in the identity of the calling thread's host. */
void dl_host_own(dl_host *host);

#endif
