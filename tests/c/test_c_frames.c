/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"
#include "check.h"

CHECK_CASE(frames_are_shown_only_on_request)
{
    char text[DL_C_FRAMES_TEXT_SIZE] = "old";

    unsetenv("TORCH_SHOW_CPP_STACKTRACES");
    dl_fail(DL_NETWORK, "text");
    dl_c_frames_describe(text);
    CHECK_TEXT(text, "");
}

CHECK_CASE(zero_is_no)
{
    char text[DL_C_FRAMES_TEXT_SIZE] = "old";

    setenv("TORCH_SHOW_CPP_STACKTRACES", "0", 1);
    dl_fail(DL_NETWORK, "text");
    dl_c_frames_describe(text);
    CHECK_TEXT(text, "");
}

CHECK_CASE(a_thread_that_asks_sees_the_frames_of_its_last_error)
{
    char text[DL_C_FRAMES_TEXT_SIZE];

    setenv("TORCH_SHOW_CPP_STACKTRACES", "1", 1);
    dl_c_frames_describe(text);
    CHECK_TEXT(text, "");
    dl_fail(DL_NETWORK, "text");
    dl_c_frames_describe(text);
    CHECK_CONTAINS(text, "\nC frames (most recent first):\n  #0 test_c_frames+0x");
    CHECK_CONTAINS(text, "\n  #1 ");
    /* The text of the error itself is free of them. */
    CHECK_TEXT(dl_last_error()->text, "text");
}
