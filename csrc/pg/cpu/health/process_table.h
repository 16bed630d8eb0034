/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The failure detector: one table per process of the other processes it works with, by an
 * identity that each draws at random, and whether they have ended.  It is shared by all
 * groups, so that what one of them learns holds for every wait of the process.
 *
 * A process of the same host hands over two descriptors.  One is the reading end of a
 * pipe whose writing end it holds until it ends or calls exec; a child that was made
 * without fork handlers keeps that end open, too.  The other is a pidfd, which becomes
 * readable when the process ends, whatever its children do.  No process id is looked up,
 * so none can be mistaken after it was reused.  Processes of other hosts are entered by
 * what is told about them.
 *
 * One thread sleeps on all of these descriptors while there are any, and on those at
 * which other hosts call.  It marks a process as ended at once, has callers heard, and
 * wakes the subscribers' waits, also while the program computes.  Knows nothing of ranks
 * and groups. */
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

/* What this process shows to others.  The descriptors belong to the table and stay open
 * until the process ends; `pidfd` is a second lifeline where the system has no pidfds. */
typedef struct dl_process_own {
    dl_process_id id;
    int lifeline;
    int pidfd;
} dl_process_own;

dl_status dl_process_own_get(dl_process_own *own);

/* The identity alone, which needs no descriptors. */
dl_status dl_process_own_id(dl_process_id *id);

/* The entry of one process, counted. */
typedef struct dl_process dl_process;

dl_status dl_process_find(const dl_process_id *id, dl_process **process);
dl_process *dl_process_ref(dl_process *process);
void dl_process_unref(dl_process *process);

/* Takes both descriptors, also on failure; they are closed where they are not needed:
 * of this process itself, and of one that is watched already.  DL_INTERNAL: no
 * descriptors or memory to watch them with. */
dl_status dl_process_watch(dl_process *process, int lifeline, int pidfd);

/* From any thread.  False for NULL. */
bool dl_process_has_ended(const dl_process *process);

/* Another host has told so. */
void dl_process_set_ended(dl_process *process);

/* Looks, without waiting, who has ended by now.  Only needed, and only does something,
 * where the table could not start its thread. */
void dl_process_table_look(void);

/* Somebody who wants to know when any process has ended. */
typedef struct dl_end_subscriber {
    dl_list node;
    /* Wakes those who wait.  From any thread, with any locks held: takes none. */
    void (*wake)(void *context);
    /* Afterwards, on the table's thread, without locks; may take a while.  Returns whether
     * to be called again after DL_END_RETRY.  May be NULL. */
    bool (*tell)(void *context);
    void *context;
} dl_end_subscriber;

#define DL_END_RETRY (250 * DL_MILLISECOND)
#define DL_HEAR_RETRY (10 * DL_MILLISECOND)

/* Where other hosts call this process. */
typedef struct dl_call_source {
    dl_list node;
    int fd; /* readable when somebody calls */
    /* On the table's thread when somebody has called; the subscribers' waits are woken
     * behind it.  Returns whether to be called again after DL_HEAR_RETRY, because a caller
     * has not said all yet.  Must not call the table. */
    bool (*hear)(void *context);
    void *context;
    bool is_watched; /* guarded by the table */
    uint32_t fork_generation;
} dl_call_source;

/* `subscriber` stays in place until it is removed; after that its functions do not run any
 * more.  In a forked child both do nothing. */
void dl_end_subscribe(dl_end_subscriber *subscriber);
void dl_end_unsubscribe(dl_end_subscriber *subscriber);

/* Of the source, fd, hear and context are set; it stays in place until it is removed,
 * after which `hear` does not run any more, and only then `fd` is closed.  On failure, and
 * where there is no thread, those who wait have to look for callers themselves.  Removing
 * one that was not added, or was by the parent of a fork, does nothing. */
dl_status dl_call_source_add(dl_call_source *source);
void dl_call_source_remove(dl_call_source *source);

#endif
