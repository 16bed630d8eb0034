/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Status codes and the thread's last error text.  The line that first knows what is
 * wrong writes the text, once, with dl_fail(); callers pass the code on, or say what
 * they were doing with dl_fail_while().  Codes travel on the wire: never renumber. */
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
} dl_status;

/* Room for a table of addresses tried or of ranks that disagree. */
#define DL_ERROR_TEXT_SIZE 2048

typedef struct dl_error {
    dl_status status;
    char text[DL_ERROR_TEXT_SIZE];
} dl_error;

/* Writes the thread's last error and returns `status`. */
dl_status dl_fail(dl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prefixes the thread's last error with "<what>: " and returns its code unchanged. */
dl_status dl_fail_while(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* DL_NO_MEMORY with one worded text. */
dl_status dl_fail_no_memory(void);

/* The thread's last error; valid until its next failing call. */
const dl_error *dl_last_error(void);

/* Makes an error saved on another thread this thread's last one; returns its code. */
dl_status dl_fail_again(const dl_error *error);

/* The thread's last error as other threads, peers and later calls are told of it.  An
 * interrupt (DL_INTERRUPTED) belongs to the interrupted call alone: for everybody else it
 * is DL_CANCELLED.  Whatever keeps an error as the cause of a lasting failure uses this. */
dl_error dl_error_for_others(void);

/* "timeout", "network", ...: for logs. */
const char *dl_status_name(dl_status status);

/* Only where there is nothing to clean up. */
#define DL_TRY(call)                \
    do {                            \
        dl_status dl_try_ = (call); \
        if (dl_try_ != DL_OK) {     \
            return dl_try_;         \
        }                           \
    } while (0)

#endif
