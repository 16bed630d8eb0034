/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of a group are reached, in little memory: every rank keeps this of every
 * other one, and calls few of them.  A rank's record is decoded when it comes (a
 * dl_contact, of more than a kilobyte), and kept as an entry of fixed size, by rank, and a
 * tail that is decoded again when the rank is called:
 *
 *     entries   token, host, settings, offset of the tail
 *     tails     addresses; socket, if it is of this host; problem, if there is one
 *     names     of hosts, for texts, each of them once
 *
 * Knows nothing of the store, and of who reads the records. */
#ifndef DISTLITE_PG_CPU_CONTACTS_H
#define DISTLITE_PG_CPU_CONTACTS_H

#include "base/map.h"
#include "base/reader.h"
#include "net/local.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/peer.h"
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

/* Hashes of the two texts, which are kept in their place.  Every rank computes the same.
 * Should two hosts ever share them, the ranks of one do not reach those of the other by
 * their sockets, and are divided as others that do not (pg/cpu/reach.h). */
typedef struct dl_host_id {
    uint64_t stack;
    uint64_t hint;
} dl_host_id;

/* How a rank can be reached. */
typedef struct dl_contact {
    char socket[DL_LOCAL_NAME_SIZE];
    char host_name[DL_HOST_NAME_SIZE];
    dl_host host;
    dl_process_id process;
    dl_way way;                    /* for other hosts; may have no address */
    dl_tls_mode tls_mode;          /* of its links */
    char problem[DL_PROBLEM_SIZE]; /* why it has none */
    /* Its settings name an interface or transport that does not exist: an error in
     * every group, even on one host. */
    bool is_refused;
} dl_contact;

typedef struct dl_contact_entry {
    uint8_t token[DL_TOKEN_SIZE];
    dl_host_id host;
    uint32_t tail; /* its offset */
    uint8_t tls_mode;
    bool is_refused : 1;
    bool has_loopback : 1; /* some of its addresses lead each host to itself */
    bool has_address : 1;
    bool has_socket : 1; /* in the tail */
    bool has_problem : 1;
} dl_contact_entry;

typedef struct dl_contacts {
    int rank;                  /* this one */
    dl_contact_entry *entries; /* by rank */
    dl_buffer tails;
    dl_map names; /* of hosts */
    /* What all links prove and use; borrowed, or NULL. */
    const dl_secret *secret;
    dl_tls *tls;
} dl_contacts;

dl_status dl_contacts_init(dl_contacts *contacts, int rank, int size);
void dl_contacts_fini(dl_contacts *contacts);

/* Keeps what is needed of a rank's contact; the own one is put first.  Of a rank that is
 * put again the last one counts.  Returns DL_NO_MEMORY. */
dl_status dl_contacts_put(dl_contacts *contacts, int rank, const dl_contact *contact);

/* Sets `*kept` to `peer`, whose host's name is copied, once for all ranks of the host; it
 * is valid as long as the contacts.  Returns DL_NO_MEMORY. */
dl_status dl_contacts_keep_name(dl_contacts *contacts, const dl_peer *peer,
                                dl_peer *kept);

/* Return parts of a rank's contact; empty if it was not put.  dl_contacts_find_way() is a
 * dl_ways' function, whose context is the contacts. */
void dl_contacts_find_way(const void *contacts, int rank, dl_way *way);
void dl_contacts_socket(const dl_contacts *contacts, int rank,
                        char socket[DL_LOCAL_NAME_SIZE]);
void dl_contacts_problem(const dl_contacts *contacts, int rank,
                         char problem[DL_PROBLEM_SIZE]);

/* Writes and reads a way's addresses and ports, in a record as well.  Returns false for
 * damaged bytes. */
void dl_way_put(dl_buffer *buffer, const dl_way *way);
bool dl_way_take(dl_reader *reader, dl_way *way);

#endif
