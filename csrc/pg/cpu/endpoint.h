/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint is what the ranks of a group need to find each other.  Each rank
 * publishes one record in the store: its host, the name of its Unix socket, its
 * addresses, and a random token of its own.  A rank that presents that token has read
 * the record.  Up to eight ranks read the records of all.  In a larger group each reads
 * those of a few others, and sends its own to them, over links (gather.h); what comes
 * back are not the records, but one table of all ranks (contacts.h) for each host:
 *
 * rank 0 makes the table of all records, and sends it to the ranks below it that
 *                are the lowest of their hosts, the leaders; the others are told who
 *                leads them
 *     leaders    share the table with the ranks of their host, with the invitation to
 *                the join (invite.h)
 *     all        do as rank 0, with the ranks below them
 *
 * A rank that its leader does not reach, or the reverse, reads all records instead.
 *
 * If the job has a token (base/secret.h), the records carry a MAC by it (record_mac.h),
 * and ranks prove it to each other on every connection between hosts.  It is the token
 * of the group's store or, for kinds of stores that require none, that of the
 * environment. */
#ifndef DISTLITE_PG_CPU_ENDPOINT_H
#define DISTLITE_PG_CPU_ENDPOINT_H

#include "pg/backend.h"
#include "pg/cpu/contacts.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/traffic.h"

#define DL_TRAFFIC_NAME_SIZE 256

/* For tests: processes with different hints count as on different hosts. */
#define DL_HOST_HINT_VARIABLE "DISTLITE_HOST_HINT"

/* This rank's view; does not change after dl_endpoint_open(), until
 * dl_endpoint_close_local(). */
typedef struct dl_endpoint {
    int rank;
    int size;
    int listener;       /* Unix socket for ranks of this host; -1: closed */
    dl_listener calls;  /* for ranks of other hosts; closed if there are none */
    bool has_life_port; /* which may be dropped: no other host has relied on it */
    dl_peers peers;     /* by rank; its `ranks` are the names in texts */
    dl_contacts contacts;
    uint8_t token[DL_TOKEN_SIZE]; /* this rank's */
    dl_buffer record;             /* this rank's; empty once all records have come */
    dl_process **processes;       /* by rank; NULL: not needed yet; owns references */
    dl_layout layout;
    const char *group_name; /* borrowed until dl_endpoint_open() returns */
    /* Links to other ranks, for the join; see dl_endpoint_open_traffic(). */
    dl_traffic traffic;
    char traffic_name[DL_TRAFFIC_NAME_SIZE];
    /* The job's, which all of these ranks prove to each other; a reference, or NULL. */
    dl_secret *secret;
    /* Of the join, and when it leaves next whom it waits for (join_fault.h). */
    dl_store *store; /* borrowed */
    dl_deadline deadline;
    int64_t note;
    dl_tls *tls;        /* for the links; a reference, or NULL */
    bool has_unreached; /* this rank leads others that it has not reached at once */
    bool has_reached;   /* no rank is in such a case, and all know it */
    /* By rank: on a leader, the connections to the ranks of its host that it has
     * reached, over which the invitation to the join was sent; else -1.  NULL: none. */
    int *connections;
    int invited; /* on a member, that to the leader, if it has called already; else -1 */
    int table; /* on a leader, the file of the table, for the members; -1: there is none */
    /* Which ranks of one machine cannot connect to each other's Unix sockets, and why;
     * empty if all can. */
    char apart[DL_PROBLEM_SIZE];
} dl_endpoint;

/* Fills in the identity of the calling thread's host. */
void dl_host_own(dl_host *host);

/* Checks the settings for transport and interfaces, for groups that need no endpoint.
 * Returns DL_NETWORK if they name something that does not exist. */
dl_status dl_endpoint_check_settings(void);

/* Publishes this rank's record, gets all others, and finds out which ranks share a
 * host.  The text of DL_TIMEOUT names the ranks that have not come.  DL_NETWORK means
 * that ranks of different hosts have no addresses to reach each other, or that settings
 * name something that does not exist; its text names the ranks.  DL_DENIED: the record
 * of a rank was not written with the job's token.  After a failure there is nothing to
 * free, and the other ranks were informed if this rank has caused it. */
dl_status dl_endpoint_open(dl_endpoint *endpoint, const dl_backend_options *options,
                           dl_deadline deadline);

/* Gets the records of all other ranks: part of dl_endpoint_open(), with its errors. */
dl_status dl_endpoint_get_records(dl_endpoint *endpoint, dl_store *store,
                                  dl_deadline deadline);

/* Fails with DL_MISMATCH and the name of a rank that differs unless another rank's
 * digest is that of this one. */
dl_status dl_endpoint_compare(const dl_endpoint *endpoint,
                              const dl_records_digest *theirs);

/* Returns what finds the ranks' addresses, as long as the endpoint stays in place. */
dl_tcp_contacts dl_endpoint_tcp_contacts(const dl_endpoint *endpoint);

/* Returns what finds the ranks' processes, as long as the endpoint stays in place. */
dl_processes dl_endpoint_processes(dl_endpoint *endpoint);

/* Makes endpoint->traffic for the operations of a join between hosts, unless it exists.
 * The first one in it is the gathering of the records, even where that is not
 * needed. */
dl_status dl_endpoint_open_traffic(dl_endpoint *endpoint, const char *group_name);

/* Deletes what this rank has published in the store, because a later group may use the
 * same keys.  Called when all ranks of all hosts have read it.  Best effort. */
void dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store,
                       dl_deadline deadline);

/* Makes the part of the endpoint that is about this host, in which ranks are local on
 * the host.   Sockets, connections and process references
 * stay owned by `endpoint`, which must outlive `local`.  dl_endpoint_drop_local()
 * frees the part. */
dl_status dl_endpoint_open_local(dl_endpoint *endpoint, dl_endpoint *local);
void dl_endpoint_drop_local(dl_endpoint *local);

/* Closes the Unix socket, the connections to ranks of this host, and the traffic; the
 * rest stays usable. */
void dl_endpoint_close_local(dl_endpoint *endpoint);

/* Stops listening to ranks of other hosts. */
void dl_endpoint_close_calls(dl_endpoint *endpoint);

/* Closes and frees everything.  A second call does nothing. */
void dl_endpoint_fini(dl_endpoint *endpoint);

/* Writes "rank 2 (pid 123 on host h)". */
void dl_endpoint_describe(const dl_endpoint *endpoint, int rank,
                          char text[DL_PEER_TEXT_SIZE]);

/* Writes the key of a rank's record, "cpu/3"; the result points into `text`. */
#define DL_ENDPOINT_KEY_SIZE 24
dl_bytes dl_endpoint_key(int rank, char text[DL_ENDPOINT_KEY_SIZE]);

/* dl_endpoint_store() stores a record behind its MAC by the job's token, and
 * dl_endpoint_verify() returns the record in the bytes that were read.  Only while
 * dl_endpoint_open() runs.  DL_DENIED: it was not written with the token that this rank
 * has, or not for this group and key. */
dl_status dl_endpoint_store(const dl_endpoint *endpoint, dl_store *store, dl_bytes key,
                            const dl_buffer *record, dl_deadline deadline);
dl_status dl_endpoint_verify(const dl_endpoint *endpoint, dl_bytes key,
                             const dl_buffer *stored, dl_bytes *record);

/* Write and read the record of one rank; the peer's name is the contact's `host_name`
 * after dl_endpoint_take(), which returns DL_PROTOCOL if the
 * record is damaged, or of another version of distlite. */
void dl_endpoint_put(dl_buffer *buffer, const dl_peer *peer, const dl_contact *contact);
dl_status dl_endpoint_take(dl_bytes bytes, dl_peer *peer, dl_contact *contact);

/* Keeps what was taken from a rank's record. */
dl_status dl_endpoint_keep(dl_endpoint *endpoint, int rank, const dl_peer *peer,
                           const dl_contact *contact);

/* Fails with DL_MISMATCH if the table has another process of this rank. */
dl_status dl_endpoint_check_own(const dl_endpoint *endpoint);

/* Fails with DL_MISMATCH, because two processes of the rank are in the records. */
dl_status dl_endpoint_fail_twice(const dl_endpoint *endpoint, int rank);

/* Reads the records of other ranks that came over a link, each after its rank, into an
 * endpoint with room for them.  DL_PROTOCOL: they are damaged, or a rank's is
 * missing. */
dl_status dl_endpoint_take_all(dl_endpoint *endpoint, dl_bytes bytes);

#endif
