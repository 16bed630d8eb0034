/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/environment.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
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

CHECK_CASE(seconds_are_a_number_that_is_large_enough)
{
    static const char *const wrong[] = {"soon", "0.1", "-1", "nan", "1e9", "2 s"};
    int64_t value = 0;

    unsetenv("WAIT");
    CHECK_OK(dl_environment_seconds("WAIT", 0.2, 5, &value));
    CHECK(value == 5 * DL_SECOND);
    setenv("WAIT", "0.25", 1);
    CHECK_OK(dl_environment_seconds("WAIT", 0.2, 5, &value));
    CHECK(value == DL_SECOND / 4);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("WAIT", wrong[i], 1);
        CHECK(dl_environment_seconds("WAIT", 0.2, 5, &value) == DL_INVALID);
        CHECK_CONTAINS(dl_last_error()->text, "a number of seconds, at least 0.2");
    }
    CHECK(value == DL_SECOND / 4);
}
