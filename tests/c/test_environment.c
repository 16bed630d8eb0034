/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/environment.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char *const NAME = "DISTLITE_TEST_FLAG";

CHECK_CASE(the_words_of_a_flag_are_torchs_in_any_case)
{
    static const char *const on[] = {"1", "true", "TRUE", "t", "Yes", "y"};
    static const char *const off[] = {"0", "false", "False", "F", "no", "N"};
    bool value;

    for (int i = 0; i < 6; i++) {
        setenv(NAME, on[i], 1);
        CHECK(dl_environment_flag(NAME, false, &value) == DL_OK && value);
        CHECK(dl_environment_is_on(NAME));
        setenv(NAME, off[i], 1);
        CHECK(dl_environment_flag(NAME, true, &value) == DL_OK && !value);
        CHECK(!dl_environment_is_on(NAME));
    }
}

CHECK_CASE(an_unset_or_empty_flag_is_its_default)
{
    bool value;

    for (int i = 0; i < 2; i++) {
        CHECK(dl_environment_flag(NAME, true, &value) == DL_OK && value);
        CHECK(dl_environment_flag(NAME, false, &value) == DL_OK && !value);
        CHECK(!dl_environment_is_on(NAME));
        setenv(NAME, "", 1);
    }
}

CHECK_CASE(other_words_are_refused_by_the_variables_name)
{
    bool value;

    setenv(NAME, "perhaps", 1);
    CHECK(dl_environment_flag(NAME, false, &value) == DL_INVALID);
    CHECK(strstr(dl_last_error()->text, NAME) != NULL);
    CHECK(strstr(dl_last_error()->text, "'perhaps'") != NULL);
    CHECK(!dl_environment_is_on(NAME));
}
