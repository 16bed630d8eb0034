/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server_variable.h"

#include <stdlib.h>

#include "check.h"

CHECK_CASE(a_standby_is_that_of_one_server)
{
    char *standby;
    uint16_t port = 0;

    unsetenv(DL_STANDBY_VARIABLE);
    CHECK_OK(dl_standby_find("h", 7, &standby, &port));
    CHECK(standby == NULL);
    setenv(DL_STANDBY_VARIABLE, "fd77::2:29500@::1:7", 1);
    CHECK_OK(dl_standby_find("::1", 7, &standby, &port));
    CHECK_TEXT(standby, "fd77::2");
    CHECK_EQUAL(port, 29500);
    free(standby);
    CHECK_OK(dl_standby_find("::1", 8, &standby, &port));
    CHECK(standby == NULL);
    CHECK_OK(dl_standby_find("::2", 7, &standby, &port));
    CHECK(standby == NULL);
}

CHECK_CASE(a_malformed_standby_is_an_error)
{
    const char *const malformed[] = {"x",           "@h:7",    "g:1@h",   "g@h:7",
                                     "g:@h:7",      "g:0@h:7", "g:x@h:7", "g:1x@h:7",
                                     "g:65536@h:7", ":1@h:7"};
    char *standby;
    uint16_t port;

    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        setenv(DL_STANDBY_VARIABLE, malformed[i], 1);
        CHECK_STATUS(dl_standby_find("h", 7, &standby, &port), DL_INVALID);
        CHECK(standby == NULL);
        CHECK_CONTAINS(dl_last_error()->text, DL_STANDBY_VARIABLE);
    }
}
