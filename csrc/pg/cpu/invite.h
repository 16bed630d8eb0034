/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first message on a connection between ranks of one host: the leader of the host,
 * its lowest rank, calls each other one's Unix socket, and leaves there an invitation to
 * share memory (pg/cpu/shm/join.h) and, in larger groups, the table of all ranks
 * (pg/cpu/contacts.h). */
#ifndef DISTLITE_PG_CPU_INVITE_H
#define DISTLITE_PG_CPU_INVITE_H

#include "pg/cpu/endpoint.h"

/* On a leader: invites `rank`, by the endpoint's connection to it, which is made; does
 * nothing if there is one.  DL_NOT_FOUND, DL_CLOSED or DL_TIMEOUT: the rank was not
 * reached. */
dl_status dl_invite_rank(dl_endpoint *endpoint, const char *group_name, int rank,
                         dl_deadline deadline);

/* Returns whether the error of an invitation means that the rank was not reached. */
bool dl_invite_is_unreached(dl_status status, dl_deadline deadline);

/* On a member, which other ranks know as `name`: waits for the invitation, and sets `*fd`
 * to the connection and `*table` to the file of the table; -1: none came with it.
 * DL_TIMEOUT (no text written): it has not come.  If this rank itself fails, `*fd` may be
 * set, so that the reason can be reported before the leader sees the connection end. */
dl_status dl_invite_await(const dl_endpoint *endpoint, const char *group_name, int name,
                          dl_deadline deadline, int *fd, int *table);

#endif
