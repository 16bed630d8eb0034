/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which host a process is on, as far as sharing memory goes: processes whose texts are
 * equal run under one kernel, in one network namespace, and so reach each other's
 * abstract sockets.  Names of hosts are not looked at: they may be equal by chance. */
#ifndef DISTLITE_PG_CPU_HOST_H
#define DISTLITE_PG_CPU_HOST_H

/* A boot's identity and a namespace's number. */
#define DL_HOST_STACK_SIZE 80

/* For tests: sets processes apart that do share a host. */
#define DL_HOST_HINT_VARIABLE "DISTLITE_HOST_HINT"
#define DL_HOST_HINT_SIZE 64

typedef struct dl_host {
    char stack[DL_HOST_STACK_SIZE]; /* of network code: whose loopback is one */
    char hint[DL_HOST_HINT_SIZE];
} dl_host;

void dl_host_own(dl_host *host);

#endif
