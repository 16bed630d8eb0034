/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The file in which a server keeps its contents, so that its clients recognise a server
 * that is restarted on it as the same.  The table appends a record of each change to a
 * buffer; once per turn of the loop the server writes this buffer in one write(2), and
 * only then sends the replies of that turn:
 *
 *     request -> table -> changes -+                      +-> replies
 *     request -> table -> changes -+-> dl_journal_commit -+-> replies
 *
 * A file that has grown to several times its contents is replaced by a shorter one
 * (journal_replacement.c).  Threads of their own wait for the disk, but for the waiting
 * that precedes replies.
 *
 * A file that cannot be written, such as on a full disk, fails the changes of that turn
 * and refuses later ones until it can be written again.  One server uses a file at a
 * time.  Server thread only, but for opening and closing.
 *
 * A server without a journal has NULL, which records nothing: only dl_journal_commit(),
 * dl_journal_rethrow(), the two for waking and the one for STATS need one. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_H
#define DISTLITE_STORE_TCP_JOURNAL_H

#include "base/deadline.h"
#include "store/tcp/journal_state.h"

typedef enum dl_journal_sync {
    DL_JOURNAL_NEVER, /* outlives the process; a crash of the host may lose changes */
    /* The host's crash loses the last second, and the time that the disk takes. */
    DL_JOURNAL_INTERVAL,
    DL_JOURNAL_ALWAYS, /* no reply is sent before fdatasync(2) */
} dl_journal_sync;

typedef struct dl_journal dl_journal;

/* The size in bytes below which no file is replaced; tests make it smaller. */
extern uint64_t dl_journal_least_replaced;

/* Sets `*sync` to the mode with the name `text`; the text of DL_INVALID lists the
 * names. */
dl_status dl_journal_sync_read(const char *text, dl_journal_sync *sync);

/* Opens the file, or makes it with mode 0600, and applies what it holds to `state`.
 * The identity is the server's if the file is new, and is set to that in the file
 * otherwise. From then on changes of the table and of the remembered replies are
 * recorded.
 *
 * DL_INVALID, with the path in the text: the file is in use by another server, is a
 * symbolic link or no regular file, or can be read or written by others.  DL_BACKEND:
 * it is damaged (journal_format.h), or a system call has failed. */
dl_status dl_journal_open(const char *path, dl_journal_sync sync,
                          const dl_journal_state *state, dl_journal **journal);

/* Writes the remaining changes and, unless the mode is DL_JOURNAL_NEVER, waits until
 * they are on the disk. */
void dl_journal_close(dl_journal *journal);

/* To be called before a request changes the table: fails while the file cannot be
 * written, and provides the memory for the record of a change to `key`, but for its
 * value, and of the reply. */
dl_status dl_journal_prepare(dl_journal *journal, dl_bytes key);

/* Returns the number of bytes recorded so far: it differs after a change. */
uint64_t dl_journal_position(const dl_journal *journal);

/* To be called after a request: writes the recorded changes if they are too large to
 * wait for the end of the turn.  dl_journal_commit() reports a failure. */
void dl_journal_limit_recorded(dl_journal *journal);

/* Makes the recorded changes lasting, as the mode says.  After DL_BACKEND they are not;
 * they stay recorded, and the next call tries again. */
dl_status dl_journal_commit(dl_journal *journal);

/* Returns whether there are changes that could not be written yet. */
bool dl_journal_has_failed(const dl_journal *journal);

/* Fails as the last dl_journal_commit() that failed. */
dl_status dl_journal_rethrow(const dl_journal *journal);

/* Returns when dl_journal_wake() must be called next; INT64_MAX: never. */
int64_t dl_journal_next_wake(const dl_journal *journal);
void dl_journal_wake(dl_journal *journal, int64_t now);

/* Appends "journal/bytes", "journal/writes" and so on to a reply to STATS. */
void dl_journal_put_stats(const dl_journal *journal, dl_buffer *text);

#endif
