/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The failure detector: one table per process of the processes that it works with.
 * Each entry has an identity, which its process draws at random, and a mark that the
 * process has ended.  All groups share the table, so that what one of them learns ends
 * the waits of all.
 *
 * A process of the same host hands over two descriptors.  The lifeline is the read end
 * of a pipe whose write end the other process holds until it ends or calls exec; a
 * child that it made without running fork handlers keeps the write end open as well.
 * The pidfd becomes readable when the process ends, whatever its children do.  No
 * process id is looked up, so a reused id cannot be mistaken for the process.  The end
 * of a process on another host is entered by dl_process_set_ended().
 *
 * One thread sleeps on all of these descriptors, and on those at which other hosts
 * call, while there are any.  It marks a process as ended at once, has connections
 * accepted, and wakes the subscribers' waits, also while the program computes.  Another
 * one, started at the first end that is to be told, tells other hosts.  The table knows
 * nothing of ranks and groups. */
#ifndef DISTLITE_PG_CPU_HEALTH_PROCESS_TABLE_H
#define DISTLITE_PG_CPU_HEALTH_PROCESS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

#define DL_PROCESS_ID_SIZE 16

typedef struct dl_process_id {
    uint8_t bytes[DL_PROCESS_ID_SIZE];
} dl_process_id;

/* What this process passes to others.  The descriptors belong to the table and stay
 * open until the process ends.  `pidfd` is a second lifeline where the system has no
 * pidfds. */
typedef struct dl_process_own {
    dl_process_id id;
    int lifeline;
    int pidfd;
} dl_process_own;

/* Gives the identity and the descriptors; makes them at the first call.  Returns
 * DL_INTERNAL if the system has no descriptors left. */
dl_status dl_process_own_get(dl_process_own *own);

/* Gives the identity alone, which needs no descriptors. */
dl_status dl_process_own_id(dl_process_id *id);

/* The entry of one process; reference-counted. */
typedef struct dl_process dl_process;

/* Gives the entry with that identity, and makes it if there is none.  The caller gets a
 * reference, which dl_process_unref() gives back; NULL does nothing there. */
dl_status dl_process_find(const dl_process_id *id, dl_process **process);
void dl_process_ref(dl_process *process);

/* As dl_process_find(), for threads that share `*slot`: the entry is made once, if the
 * slot is NULL, and stays there.  Returns it, or NULL if there is no memory. */
dl_process *dl_process_find_in(dl_process **slot, const dl_process_id *id);
void dl_process_unref(dl_process *process);

/* Watches the process by its two descriptors.  Takes ownership of both, also on
 * failure.  They are closed at once if the entry is this process itself, is watched
 * already, or has ended.  Returns DL_INTERNAL or DL_NO_MEMORY if they cannot be
 * watched. */
dl_status dl_process_watch(dl_process *process, int lifeline, int pidfd);

/* Returns false for NULL.  May be called from any thread. */
bool dl_process_has_ended(const dl_process *process);

/* Returns whether the process has ended, also if the table's thread has not noticed it
 * yet; leaves that to the thread.  Takes the table's lock. */
bool dl_process_is_gone(const dl_process *process);

/* Returns whether a process that the table watches or has watched is known to have
 * ended, also if the table's thread has not noticed it yet.  May be called from any
 * thread. */
bool dl_process_any_has_ended(void);

/* Marks the process as ended, as reported by another host, and wakes the subscribers'
 * waits.  May be called from any thread. */
void dl_process_set_ended(dl_process *process);

/* Returns whether the end of any process was ever found or reported.  May be called from
 * any thread. */
bool dl_process_any_end_is_known(void);

/* The processes of a group's ranks: most of those of other hosts are never asked for, and
 * need no entry. */
typedef struct dl_processes {
    /* Returns an entry that the context owns, or NULL if there is no memory; may be called
     * from any thread.  NULL: no process is known. */
    dl_process *(*find)(void *context, int rank);
    void *context;
    const int *ranks; /* by rank, that of the context; NULL: the same */
} dl_processes;

static inline dl_process *
dl_processes_find(const dl_processes *processes, int rank)
{
    const int *ranks = processes->ranks;

    return processes->find == NULL
               ? NULL
               : processes->find(processes->context,
                                 ranks == NULL ? rank : ranks[rank]);
}

/* Returns whether the rank's process is known to have ended. */
static inline bool
dl_processes_has_ended(const dl_processes *processes, int rank)
{
    return dl_process_any_end_is_known()
           && dl_process_has_ended(dl_processes_find(processes, rank));
}

/* Marks the processes that have ended by now, without blocking.  Does nothing unless
 * the table could not start its thread. */
void dl_process_table_poll(void);

/* Functions that are called when any process has ended. */
typedef struct dl_end_subscriber {
    dl_list node;
    /* Wakes the subscriber's waits.  Called from any thread, which may hold any locks:
     * must take none. */
    void (*wake)(void *context);
    /* Called after `wake`, and after dl_end_call_notifier(), on a thread that does nothing
     * else; must not remove this subscriber.  May take a while.  Returns true to be called again after
     * DL_END_RETRY.  May be NULL. */
    bool (*notify)(void *context);
    void *context;
} dl_end_subscriber;

#define DL_END_RETRY (250 * DL_MILLISECOND)
#define DL_CALL_SOURCE_RETRY (10 * DL_MILLISECOND)

/* A descriptor at which other hosts call this process. */
typedef struct dl_call_source {
    dl_list node;
    int fd; /* readable when another process calls */
    /* Called on the table's thread when another process has called; the subscribers'
     * waits are woken afterwards.  Returns true to be called again after
     * DL_CALL_SOURCE_RETRY, because a caller's introduction is incomplete.  Must not
     * call the table. */
    bool (*read)(void *context);
    void *context;
    bool is_watched; /* guarded by the table's lock */
    uint32_t fork_generation;
} dl_call_source;

/* `subscriber` stays in place until it is removed; its functions do not run any more
 * once dl_end_unsubscribe() returns, which waits for its own `notify`, and for no other
 * one.  A forked child has none of its parent's
 * subscribers, and must not remove them. */
void dl_end_subscribe(dl_end_subscriber *subscriber);
void dl_end_unsubscribe(dl_end_subscriber *subscriber);

/* Has all subscribers' `notify` called.  May be called from any thread, which may hold any
 * locks but those of this file. */
void dl_end_call_notifier(void);

/* The caller sets `fd`, `read` and `context`.  The source stays in place until it is
 * removed, after which `read` does not run any more; `fd` is closed only then.  If
 * adding fails, or the table has no thread, waits have to check for connections
 * themselves. dl_call_source_remove() does nothing with a source that was not added, or
 * was added by the parent of a fork. */
dl_status dl_call_source_add(dl_call_source *source);
void dl_call_source_remove(dl_call_source *source);

#endif
