/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One per thread, so that reporting a failure needs no lock and no memory, which may
 * have run out. */
static _Thread_local dl_error last_error;

dl_status
dl_fail(dl_status status, const char *format, ...)
{
    /* Formatted into a copy first: an argument may be the old text. */
    char text[DL_ERROR_TEXT_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_error.text, text, strlen(text) + 1);
    last_error.status = status;
    return status;
}

dl_status
dl_fail_while(const char *format, ...)
{
    /* A quarter, so that the prefix never pushes the cause out of the text. */
    char what[DL_ERROR_TEXT_SIZE / 4];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return dl_fail(last_error.status, "%s: %s", what, last_error.text);
}

dl_status
dl_fail_no_memory(void)
{
    return dl_fail(DL_NO_MEMORY, "out of memory");
}

const dl_error *
dl_last_error(void)
{
    return &last_error;
}

dl_status
dl_rethrow(const dl_error *error)
{
    last_error = *error;
    return error->status;
}

dl_error
dl_error_for_others(void)
{
    dl_error error = last_error;

    if (error.status == DL_INTERRUPTED) {
        error.status = DL_CANCELLED;
    }
    return error;
}

const char *
dl_status_name(dl_status status)
{
    static const char *const names[] = {
        [DL_OK] = "ok",
        [DL_TIMEOUT] = "timeout",
        [DL_NETWORK] = "network",
        [DL_CLOSED] = "closed",
        [DL_PROTOCOL] = "protocol",
        [DL_NOT_FOUND] = "not found",
        [DL_QUEUE_EMPTY] = "queue empty",
        [DL_INVALID] = "invalid",
        [DL_UNSUPPORTED] = "unsupported",
        [DL_NO_MEMORY] = "no memory",
        [DL_MISMATCH] = "mismatch",
        [DL_PEER_LOST] = "peer lost",
        [DL_BACKEND] = "backend",
        [DL_CANCELLED] = "cancelled",
        [DL_INTERRUPTED] = "interrupted",
        [DL_INTERNAL] = "internal",
        [DL_DENIED] = "denied",
    };

    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}
