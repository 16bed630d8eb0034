/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The C functions on the way to the thread's last error, for those who work on this
 * library: TORCH_SHOW_CPP_STACKTRACES=1 asks for them.  Nobody else ever sees a frame.
 * dl_fail() notes addresses, which is cheap; words are made when an error is raised. */
#ifndef DISTLITE_BASE_C_FRAMES_H
#define DISTLITE_BASE_C_FRAMES_H

#include <stddef.h>

/* Lines of one trace at most, and their room. */
#define DL_C_FRAMES_LIMIT 24
#define DL_C_FRAMES_TEXT_SIZE (DL_C_FRAMES_LIMIT * 128)

/* Notes where the thread is, if anybody asked for it. */
void dl_c_frames_note(void);

/* "\nC frames (most recent first):\n  #0 _C.so+0x1234\n..." of the last note; empty if
 * nobody asked.  `addr2line -f -e <file> <offset>` gives the lines. */
void dl_c_frames_describe(char text[DL_C_FRAMES_TEXT_SIZE]);

#endif
