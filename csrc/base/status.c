/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* The frames of record_frames() and dl_fail() are left out. */
#define OWN_FRAMES 2

/* One per thread, so that reporting a failure needs no lock and no memory, which may
 * have run out. */
static _Thread_local dl_error last_error;

static pthread_once_t frames_once = PTHREAD_ONCE_INIT;
static bool has_frames; /* fixed after `frames_once` */

static _Thread_local void *frames[DL_C_FRAMES_LIMIT];
static _Thread_local int frame_count;

static void
read_frames_setting(void)
{
    const char *text = getenv("TORCH_SHOW_CPP_STACKTRACES");
    void *first[1];

    has_frames = text != NULL && strcmp(text, "1") == 0;
    if (has_frames) {
        /* The first call loads a library (libgcc): do it now, since memory may have run
         * out when an error is reported. */
        (void)backtrace(first, 1);
    }
}

/* Records the calling thread's stack if traces are enabled.  Not inlined: OWN_FRAMES
 * counts its frame. */
__attribute__((noinline)) static void
record_frames(void)
{
    pthread_once(&frames_once, read_frames_setting);
    frame_count = has_frames ? backtrace(frames, DL_C_FRAMES_LIMIT) : 0;
}

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
    record_frames();
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
dl_fail_again(const dl_error *error)
{
    last_error = *error;
    record_frames();
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

/* Functions of this library are hidden from the dynamic linker, so most frames have no
 * name here. */
static void
describe_frame(int number, void *address, char *text, size_t *size)
{
    Dl_info info;

    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        dl_text_append(text, DL_C_FRAMES_TEXT_SIZE, size, "\n  #%d %p", number,
                       address);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    uintptr_t offset = (uintptr_t)address - (uintptr_t)info.dli_fbase;
    dl_text_append(text, DL_C_FRAMES_TEXT_SIZE, size, "\n  #%d %.60s+%#zx %.40s",
                   number, slash == NULL ? info.dli_fname : slash + 1, (size_t)offset,
                   info.dli_sname == NULL ? "" : info.dli_sname);
}

void
dl_c_frames_describe(char text[DL_C_FRAMES_TEXT_SIZE])
{
    size_t size = 0;

    text[0] = '\0';
    if (frame_count <= OWN_FRAMES) {
        return;
    }
    dl_text_append(text, DL_C_FRAMES_TEXT_SIZE, &size,
                   "\nC frames (most recent first):");
    for (int i = OWN_FRAMES; i < frame_count; i++) {
        describe_frame(i - OWN_FRAMES, frames[i], text, &size);
    }
}
