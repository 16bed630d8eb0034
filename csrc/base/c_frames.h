/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The C call stack at the thread's last error, for developers of this library.  It is
 * recorded and shown only with TORCH_SHOW_CPP_STACKTRACES=1.  dl_fail() records
 * addresses, which is cheap; they are turned into text when an error is raised. */
#ifndef DISTLITE_BASE_C_FRAMES_H
#define DISTLITE_BASE_C_FRAMES_H

#include <stddef.h>

/* The most frames in one trace, and the size of its text. */
#define DL_C_FRAMES_LIMIT 24
#define DL_C_FRAMES_TEXT_SIZE (DL_C_FRAMES_LIMIT * 128)

/* Records the calling thread's stack if traces are enabled. */
void dl_c_frames_record(void);

/* Writes the last recorded stack as "\nC frames (most recent first):\n  #0
 * _C.so+0x1234\n..."; empty if traces are not enabled.  `addr2line -f -e <file>
 * <offset>` gives the source lines. */
void dl_c_frames_describe(char text[DL_C_FRAMES_TEXT_SIZE]);

#endif
