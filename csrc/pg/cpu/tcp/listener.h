/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Accepts the connections from ranks of other hosts: one listening socket for each of
 * the process's addresses, for all of its groups.  A thread that waits for a caller
 * accepts all pending connections, takes the one that it waits for, and keeps the
 * others; the thread of the process table accepts whenever a rank connects.  A caller
 * shows by the listener's own token that it has read this process's record in the
 * store; all others are disconnected.
 *
 * If the job has a token or certificates, caller and listener first prove that they
 * belong to it (base/proof.h, net/tls.h), and nothing else is sent before that.
 * Callers that have not proved it are pending peers: they have limited time, memory and
 * descriptors, receive the reason of a refusal, and cause at most one line of the log a
 * second.
 *
 * A caller of a group that has ended in this process is sent the reason and
 * disconnected, which ends its wait.
 *
 * The kernel completes connections even if the process accepts none, and ends those
 * that were not accepted when the process ends.  So a connection also shows whether the
 * callee is alive. */
#ifndef DISTLITE_PG_CPU_TCP_LISTENER_H
#define DISTLITE_PG_CPU_TCP_LISTENER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/log.h"
#include "base/proof.h"
#include "net/interface.h"
#include "net/transport.h"
#include "pg/cpu/tcp/frame.h"

/* Size of a listener's own token. */
#define DL_TOKEN_SIZE 16

/* The terms of the proof between a rank and a listener if the job has a token.  The
 * context is the listener's own token. */
extern const dl_proof_terms dl_link_proof;

/* A refusal is a status, the size of a text in eight bytes, and the text. */
#define DL_LINK_REFUSAL_HEAD (1 + 8)

/* Pending peers at a time, if they have to prove anything; others wait in the
 * kernel. */
#define DL_PENDING_PEERS_LIMIT 128

/* The groups that have ended last are remembered, except for those with a longer name;
 * notices have at most this size.  A caller of another group is kept, because that
 * group may yet be made. */
#define DL_ENDED_LIMIT 256
#define DL_ENDED_NAME_SIZE 128
#define DL_ENDED_NOTICE_SIZE 512

typedef struct dl_ended_group {
    char name[DL_ENDED_NAME_SIZE]; /* empty: the entry is free */
    uint8_t notice[DL_ENDED_NOTICE_SIZE];
    size_t notice_size;
} dl_ended_group;

/* The addresses at which a rank is reached, one for each interface that it uses. */
typedef struct dl_tcp_contact {
    dl_address addresses[DL_INTERFACES_LIMIT]; /* with their ports */
    int count;
    uint16_t life_port; /* at the first address (life_port.h); 0: there is none */
    uint8_t token[DL_TOKEN_SIZE];
    /* The token to prove on each connection, inside of TLS if there is any; borrowed,
     * and NULL if none is proved. */
    const dl_secret *secret;
    dl_tls *tls;
} dl_tcp_contact;

/* Finds how to reach the ranks of a group, most of which are never needed. */
typedef struct dl_tcp_contacts {
    void (*find)(const void *context, int rank, dl_tcp_contact *tcp);
    const void *context;
    const int *ranks; /* by rank: what `find` calls it; NULL: the same */
} dl_tcp_contacts;

static inline void
dl_tcp_contacts_find(const dl_tcp_contacts *tcp_contacts, int rank, dl_tcp_contact *tcp)
{
    tcp_contacts->find(tcp_contacts->context,
                       tcp_contacts->ranks == NULL ? rank : tcp_contacts->ranks[rank],
                       tcp);
}

typedef enum dl_hello_use {
    DL_FOR_COLLECTIVES = 0,
    DL_FOR_MESSAGES = 1,
    DL_FOR_NOTICES = 2,
    DL_FOR_WINDOWS = 3,
} dl_hello_use;

/* What a hello states about its connection. */
typedef struct dl_hello {
    const char *group; /* its name; borrowed */
    int caller;        /* ranks in that group; -1 in a take: any */
    int callee;
    int index; /* index among the links of the two ranks; for windows, the window's number */
    dl_hello_use use;
    /* The own token of the caller's listener, by which two processes that were started
     * as the same rank differ; borrowed.  NULL: the callee does not compare it; in a
     * take: any process. */
    const uint8_t *own;
} dl_hello;

/* Zeroed memory is a closed listener. */
typedef struct dl_listener {
    bool is_open;
    /* fixed after open */
    uint32_t fork_generation;
    /* For poll(2): readable when a rank connects, or sends more of its proof. */
    int fd;
    int sockets[DL_INTERFACES_LIMIT]; /* one for each address in `tcp` */
    dl_tcp_contact tcp;
    /* guarded by lock */
    pthread_mutex_t lock;
    dl_list pending; /* whose hello is not complete yet, the oldest first */
    int pending_count;
    dl_log_limit refusals;
    dl_list callers; /* whose connections have not been taken yet */
    dl_list probes;
    dl_list bells;         /* of dl_listener_bell */
    dl_ended_group *ended; /* room for DL_ENDED_LIMIT, used cyclically */
    uint64_t ended_count;  /* groups that have ended so far */
    /* callers wait in the kernel, for lack of descriptors or memory, so that `fd` stays
     * readable */
    atomic_bool is_full;
} dl_listener;

/* Listens at the addresses of `tcp`, at ports that the system chooses. */
dl_status dl_listener_open(dl_listener *listener, const dl_tcp_contact *tcp);

/* Disconnects callers that were not taken.  In a forked child it forgets them. */
void dl_listener_fini(dl_listener *listener);

/* Takes the caller's connection, which is then the taker's to close.  Returns false,
 * and leaves `*transport` unchanged, if it has not connected yet.  Does not block; may
 * be called from any thread. */
bool dl_listener_take(dl_listener *listener, const dl_hello *contents,
                      dl_transport *transport);

/* A callback for each new caller of one use, whichever thread has accepted it.  `ring`
 * is called with the listener locked, and must take no lock with which a listener is
 * called. */
typedef struct dl_listener_bell {
    dl_list node;
    dl_hello_use use;
    void (*ring)(void *context);
    void *context;
} dl_listener_bell;

/* The bell stays in place until it is removed. */
void dl_listener_add_bell(dl_listener *listener, dl_listener_bell *bell);
void dl_listener_remove_bell(dl_listener *listener, dl_listener_bell *bell);

/* Takes the connection of any rank, and stores caller and index, each -1 if it is no
 * valid number. */
bool dl_listener_take_any(dl_listener *listener, dl_hello *contents,
                          dl_transport *transport);

/* Accepts pending connections, and answers callers of groups that have ended.  Returns
 * true if some hello is not complete yet.  `listener` is a dl_listener.  May be called
 * from any thread. */
bool dl_listener_poll(void *listener);

/* For a group that this process gives up or leaves: callers of that group, now and
 * later, receive `notice`, a frame of at most DL_ENDED_NOTICE_SIZE bytes, and are
 * disconnected. The first notice of a group is kept. */
void dl_listener_end(dl_listener *listener, const char *group, dl_bytes notice);

/* For a new group, which may have the name of one that has ended: that one is
 * forgotten. */
void dl_listener_forget_end(dl_listener *listener, const char *group);

/* Appends the hello with which a caller introduces itself; a probe sends nothing
 * else. */
dl_status dl_hello_put(dl_buffer *buffer, const dl_hello *contents,
                       const uint8_t token[DL_TOKEN_SIZE], bool is_probe);

#endif
