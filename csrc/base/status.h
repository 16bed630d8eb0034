/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Status codes and the thread's last error text.  The line that first detects a failure
 * writes the text, once, with dl_fail(); callers return the code, or add what they were
 * doing with dl_fail_while().  Codes are part of the wire protocol: never renumber
 * them. */
#ifndef DISTLITE_BASE_STATUS_H
#define DISTLITE_BASE_STATUS_H

typedef enum dl_status {
    DL_OK = 0,
    DL_TIMEOUT = 1,
    DL_NETWORK = 2,
    DL_CLOSED = 3,
    DL_PROTOCOL = 4,
    DL_NOT_FOUND = 5,
    DL_QUEUE_EMPTY = 6,
    DL_INVALID = 7,
    DL_UNSUPPORTED = 8,
    DL_NO_MEMORY = 9,
    DL_MISMATCH = 10,
    DL_PEER_LOST = 11,
    DL_BACKEND = 12,
    DL_CANCELLED = 13,
    DL_INTERRUPTED = 14,
    DL_INTERNAL = 15,
    DL_DENIED = 16, /* a proof of the job's secret is missing or wrong */
} dl_status;

/* The highest code. */
#define DL_STATUS_LAST DL_DENIED

/* Room for a list of the addresses tried or of the ranks that disagree. */
#define DL_ERROR_TEXT_SIZE 2048

typedef struct dl_error {
    dl_status status;
    char text[DL_ERROR_TEXT_SIZE];
} dl_error;

/* Sets the thread's last error and returns `status`. */
dl_status dl_fail(dl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prefixes the thread's last error with "<what>: " and returns its code unchanged. */
dl_status dl_fail_while(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails with DL_NO_MEMORY and its standard text. */
dl_status dl_fail_no_memory(void);

/* Returns the thread's last error; valid until the next failing call on this thread. */
const dl_error *dl_last_error(void);

/* Sets the thread's last error to one saved earlier or on another thread; returns its
 * code. */
dl_status dl_rethrow(const dl_error *error);

/* Returns the thread's last error as it is reported to other threads, to peers and to
 * later calls.  An interrupt (DL_INTERRUPTED) concerns only the call that was
 * interrupted: for all others it becomes DL_CANCELLED.  Code that keeps an error as the
 * cause of a lasting failure uses this function. */
dl_error dl_error_for_others(void);

/* Returns "timeout", "network", ...: for logs. */
const char *dl_status_name(dl_status status);

/* Returns from the calling function if `call` fails; only where there is nothing to
 * clean up. */
#define DL_TRY(call)                \
    do {                            \
        dl_status dl_try_ = (call); \
        if (dl_try_ != DL_OK) {     \
            return dl_try_;         \
        }                           \
    } while (0)

#endif
