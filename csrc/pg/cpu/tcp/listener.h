/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where a process is called by ranks of other hosts: one listening socket for each of its
 * addresses, for all of its groups.  Whoever waits for a caller looks who has come,
 * keeps those who came for others, and takes the one it waits for; the thread of the
 * process table looks whenever somebody calls.  A caller shows by a secret that it has read
 * this process's record in the store; all others are sent away.
 *
 * A caller of a group that has ended here is told so, with the reason, and hung up on: its
 * own wait ends then.  So is a caller of a group which this process has not made, and will
 * not make any more.
 *
 * The system answers for a process that does not look, and ends what was not looked at
 * when the process ends: so a connection also shows whether the callee lives. */
#ifndef DISTLITE_PG_CPU_TCP_LISTENER_H
#define DISTLITE_PG_CPU_TCP_LISTENER_H

#include <pthread.h>

#include "base/list.h"
#include "net/interface.h"
#include "pg/cpu/tcp/frame.h"

#define DL_TOKEN_SIZE 16

/* Of the groups that have ended here the last ones are remembered, but for those with a
 * longer name, and no more of a farewell.  Who calls another one is kept as the caller of a
 * group that is yet to be made. */
#define DL_ENDED_LIMIT 256
#define DL_ENDED_NAME_SIZE 128
#define DL_ENDED_FAREWELL_SIZE 512

typedef struct dl_ended_group {
    char name[DL_ENDED_NAME_SIZE]; /* empty: none */
    uint8_t farewell[DL_ENDED_FAREWELL_SIZE];
    size_t farewell_size;
    uint64_t renounced; /* the family of what might be made out of it; 0: still might */
} dl_ended_group;

/* Where a rank is called: one address for each interface it was told to use. */
typedef struct dl_way {
    dl_address addresses[DL_INTERFACES_LIMIT]; /* with their ports */
    int count;
    uint8_t token[DL_TOKEN_SIZE];
} dl_way;

typedef enum dl_call_use {
    DL_FOR_COLLECTIVES = 0,
    DL_FOR_MESSAGES = 1,
    DL_FOR_NEWS = 2,
} dl_call_use;

/* Who calls whom, and what for. */
typedef struct dl_call {
    const char *group; /* its name; borrowed */
    uint64_t family;   /* the group's (pg/cpu/family.h); 0, for the taker: any */
    int caller;        /* ranks in that group; -1, for the taker: any */
    int callee;
    int lane; /* which of several links of the two */
    dl_call_use use;
} dl_call;

/* Zeroed memory is a closed one. */
typedef struct dl_listener {
    bool is_open;
    /* fixed after open */
    uint32_t fork_generation;
    int fd;                           /* to poll(2): readable when somebody calls */
    int sockets[DL_INTERFACES_LIMIT]; /* one for each address of the way */
    dl_way way;
    /* guarded by lock */
    pthread_mutex_t lock;
    dl_list strangers; /* that have not said all yet */
    dl_list callers;   /* that wait to be taken */
    dl_list probes;
    dl_list made;          /* names of the groups that have begun and not ended */
    dl_ended_group *ended; /* DL_ENDED_LIMIT, used in turn */
    uint64_t ended_count;  /* ever */
} dl_listener;

/* At the addresses of `way`, at ports that the system chooses. */
dl_status dl_listener_open(dl_listener *listener, const dl_way *way);

/* Callers that were not taken are hung up on.  In a forked child it forgets them. */
void dl_listener_fini(dl_listener *listener);

/* The caller's descriptor, which is then the taker's; -1: it has not called yet.  From
 * any thread, does not wait. */
int dl_listener_take(dl_listener *listener, const dl_call *call);

/* Looks who has called, and answers those whose group has ended.  Returns whether somebody
 * has not said all yet.  `listener` is a dl_listener. */
bool dl_listener_hear(void *listener);

/* This process gives up the group, or leaves it: those who have called it for that group,
 * or will, are sent `farewell`, a frame of at most DL_ENDED_FAREWELL_SIZE bytes, and hung up
 * on.  The first farewell stays. */
void dl_listener_end(dl_listener *listener, const char *group, dl_bytes farewell);

/* No group will be made any more out of the group, which has ended: its farewell also goes
 * to those who call for such a group that this process has not made. */
void dl_listener_renounce(dl_listener *listener, const char *group);

/* A group of that name is made, be it another one of the same name as before. */
dl_status dl_listener_begin(dl_listener *listener, const char *group);

/* What a caller says first; `is_probe`: and all that it ever says. */
dl_status dl_call_put(dl_buffer *buffer, const dl_call *call,
                      const uint8_t token[DL_TOKEN_SIZE], bool is_probe);

#endif
