/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/c_frames.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The frames of dl_c_frames_record() and dl_fail() are left out. */
#define OWN_FRAMES 2

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_wanted; /* fixed after `once` */

static _Thread_local void *frames[DL_C_FRAMES_LIMIT];
static _Thread_local int frame_count;

static void
read_wish(void)
{
    const char *text = getenv("TORCH_SHOW_CPP_STACKTRACES");
    void *first[1];

    is_wanted = text != NULL && strcmp(text, "") != 0 && strcmp(text, "0") != 0;
    if (is_wanted) {
        /* The first call loads a library (libgcc): do it now, since memory may have run
         * out when an error is reported. */
        (void)backtrace(first, 1);
    }
}

void
dl_c_frames_record(void)
{
    pthread_once(&once, read_wish);
    frame_count = is_wanted ? backtrace(frames, DL_C_FRAMES_LIMIT) : 0;
}

/* Functions of this library are hidden from the dynamic linker, so most frames have no
 * name here. */
static size_t
describe_frame(int number, void *address, char *text, size_t room)
{
    Dl_info info;

    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return (size_t)snprintf(text, room, "\n  #%d %p", number, address);
    }
    const char *slash = strrchr(info.dli_fname, '/');
    uintptr_t offset = (uintptr_t)address - (uintptr_t)info.dli_fbase;
    return (size_t)snprintf(text, room, "\n  #%d %.60s+%#zx %.40s", number,
                            slash == NULL ? info.dli_fname : slash + 1, (size_t)offset,
                            info.dli_sname == NULL ? "" : info.dli_sname);
}

void
dl_c_frames_describe(char text[DL_C_FRAMES_TEXT_SIZE])
{
    size_t used = 0;

    text[0] = '\0';
    if (frame_count <= OWN_FRAMES) {
        return;
    }
    used = (size_t)snprintf(text, DL_C_FRAMES_TEXT_SIZE,
                            "\nC frames (most recent first):");
    for (int i = OWN_FRAMES; i < frame_count && used < DL_C_FRAMES_TEXT_SIZE; i++) {
        used += describe_frame(i - OWN_FRAMES, frames[i], text + used,
                               DL_C_FRAMES_TEXT_SIZE - used);
    }
}
