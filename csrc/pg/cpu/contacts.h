/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of a group are reached, in little memory: every rank keeps this of
 * every other one, and calls few of them.  A rank's record is decoded when it comes (a
 * dl_contact, of more than a kilobyte), and kept as an entry of fixed size, by rank,
 * and a tail that is decoded again when the rank is called:
 *
 *     entries   token, host, process, settings, offsets of the tail and the host's name
 *     tails     addresses; socket, if there is one; problem, if there is one; and the
 *               names of hosts, each of them once
 *
 * Once the records of all ranks are known, the two are put into one table, which does
 * not change any more.  It is sent to other hosts as it is, and the ranks of a host may
 * map one table, with the survey of it (survey.h), in place of one each.  Knows nothing
 * of the store, and of who reads the records. */
#ifndef DISTLITE_PG_CPU_CONTACTS_H
#define DISTLITE_PG_CPU_CONTACTS_H

#include "base/map.h"
#include "base/reader.h"
#include "net/local.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/shm/segment.h"
#include "pg/cpu/survey.h"
#include "pg/cpu/tcp/listener.h"

#define DL_PROBLEM_SIZE 512

/* Room for a boot id and the number of a namespace. */
#define DL_HOST_STACK_SIZE 80
#define DL_HOST_HINT_SIZE 96

/* The identity of a process's host, for the purpose of sharing memory.  Processes with
 * equal texts run under one kernel and in one network namespace, so they reach each
 * other's abstract sockets.  Host names are not compared: they may be equal by chance.
 * Ranks of different users count as on different hosts, because users share no memory
 * (net/local.h). */
typedef struct dl_host {
    char stack[DL_HOST_STACK_SIZE]; /* boot id, and number of the network namespace */
    char hint[DL_HOST_HINT_SIZE];   /* DISTLITE_HOST_HINT, and the user's id */
} dl_host;

/* How a rank can be reached. */
typedef struct dl_contact {
    char socket[DL_LOCAL_NAME_SIZE];
    char host_name[DL_HOST_NAME_SIZE];
    dl_host host;
    dl_process_id process;
    dl_tcp_contact tcp;            /* for other hosts; may have no address */
    dl_tls_mode tls_mode;          /* of its links */
    char problem[DL_PROBLEM_SIZE]; /* why it has none */
    /* Its settings name an interface or transport that does not exist: an error in
     * every group, even on one host. */
    bool is_refused;
} dl_contact;

typedef struct dl_contacts {
    int rank; /* this one */
    int size;
    dl_contact_entry *entries; /* by rank */
    dl_bytes tails;
    /* Of the table; NULL: there is none. */
    const dl_records_digest *digest;
    const dl_survey *survey;
    /* Where these two lie: while ranks are put, each by itself; then in the table. */
    dl_contact_entry *own_entries;
    dl_buffer own_tails;
    dl_map names;    /* of hosts, in the tails */
    dl_buffer table; /* this process's, with its survey */
    dl_survey *own_survey;
    dl_segment shared; /* or those of the host */
    /* What all links prove and use; borrowed, or NULL. */
    const dl_secret *secret;
    dl_tls *tls;
} dl_contacts;

dl_status dl_contacts_init(dl_contacts *contacts, int rank, int size);
void dl_contacts_fini(dl_contacts *contacts);

/* Keeps what is needed of a rank's record, and the name of the peer's host, once for
 * all ranks of the host.  Of a rank that is put again the last one counts.  Returns
 * DL_NO_MEMORY. */
dl_status dl_contacts_put(dl_contacts *contacts, int rank, const dl_peer *peer,
                          const dl_contact *contact);

/* Makes the table of the ranks that were put, unless there is one. */
dl_status dl_contacts_make_table(dl_contacts *contacts);

/* Take the table that another rank has made in place of what was put:
 * dl_contacts_take() the memory of the buffer, dl_contacts_map() a file of
 * dl_contacts_share(), which stays the caller's.  Returns DL_PROTOCOL for a damaged
 * table, or one that lacks a rank, for which dl_contacts_map() does not look again. */
dl_status dl_contacts_take(dl_contacts *contacts, dl_buffer *table);
dl_status dl_contacts_map(dl_contacts *contacts, int file);

/* Moves the table, and its survey, into a file that other ranks of the host can map; the
 * caller closes it with dl_socket_close(). */
dl_status dl_contacts_share(dl_contacts *contacts, int *file);

/* Returns the table; empty if there is none.  It is valid until it is shared. */
dl_bytes dl_contacts_table(const dl_contacts *contacts);

/* Returns the peer that was put, or an empty one; it is valid until another is put or
 * the table is made or shared.  A dl_peers' function, whose context is the contacts. */
dl_peer dl_contacts_peer(const void *contacts, int rank);

/* Returns the digest of all ranks' records; a table has it. */
dl_records_digest dl_contacts_digest(const dl_contacts *contacts);

/* Returns the lowest rank of the host that `rank` is on.  Only with a table. */
int dl_contacts_leader(const dl_contacts *contacts, int rank);

/* Return parts of a rank's contact; empty if it was not put.  dl_contacts_find_tcp() is
 * a dl_tcp_contacts' function, whose context is the contacts. */
void dl_contacts_find_tcp(const void *contacts, int rank, dl_tcp_contact *tcp);
void dl_contacts_socket(const dl_contacts *contacts, int rank,
                        char socket[DL_LOCAL_NAME_SIZE]);
void dl_contacts_problem(const dl_contacts *contacts, int rank,
                         char problem[DL_PROBLEM_SIZE]);

/* Writes and reads a contact's addresses and ports, in a record as well.  Returns false
 * for damaged bytes. */
void dl_tcp_contact_put(dl_buffer *buffer, const dl_tcp_contact *tcp);
bool dl_tcp_contact_take(dl_reader *reader, dl_tcp_contact *tcp);

#endif
