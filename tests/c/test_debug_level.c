/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "check.h"

CHECK_CASE(levels_are_read_in_any_case)
{
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_OFF);
    CHECK_OK(dl_debug_level_read("detail"));
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_DETAIL);
    CHECK_OK(dl_debug_level_read("Info"));
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_INFO);
    CHECK_OK(dl_debug_level_read("OFF"));
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_OFF);
    dl_debug_level_set(DL_DEBUG_DETAIL);
    CHECK_OK(dl_debug_level_read(NULL));
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_OFF);
}

CHECK_CASE(a_wrong_word_changes_nothing)
{
    dl_debug_level_set(DL_DEBUG_INFO);
    CHECK_STATUS(dl_debug_level_read(""), DL_INVALID);
    CHECK_STATUS(dl_debug_level_read("2"), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
    CHECK_EQUAL(dl_debug_level_get(), DL_DEBUG_INFO);
}
