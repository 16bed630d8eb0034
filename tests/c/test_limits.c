/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/limits.h"

#include <stdlib.h>

#include "base/deadline.h"
#include "check.h"

CHECK_CASE(the_defaults_are_far_above_what_a_job_needs)
{
    dl_limits limits;

    CHECK_OK(dl_limits_read(&limits));
    CHECK_EQUAL(limits.validate, 10 * DL_SECOND);
    CHECK_EQUAL(limits.stall, 300 * DL_SECOND);
    CHECK(limits.connections > 10);
    CHECK(limits.keys >= 16000 * 1000);
    CHECK(limits.bytes > 1 << 29 && limits.pending > 1 << 28);
    CHECK_EQUAL(limits.reply, 300 * DL_SECOND);
    CHECK(limits.reply_bytes > 1 << 26);
}

CHECK_CASE(the_environment_changes_them)
{
    dl_limits limits;

    setenv("DISTLITE_STORE_KEYS", "4", 1);
    setenv("DISTLITE_STORE_BYTES", "5000000000", 1);
    setenv("DISTLITE_STORE_CONNECTIONS", "", 1);
    CHECK_OK(dl_limits_read(&limits));
    CHECK_EQUAL(limits.keys, 4);
    CHECK_EQUAL(limits.bytes, 5000000000);
    CHECK_EQUAL(limits.pending, 2500000000);
    CHECK_EQUAL(limits.reply_bytes, 625000000);
    CHECK_EQUAL(limits.connections, dl_limits_default().connections);
    setenv("DISTLITE_STORE_CONNECTIONS", "7", 1);
    CHECK_OK(dl_limits_read(&limits));
    CHECK_EQUAL(limits.connections, 7);
}

CHECK_CASE(invalid_limits_are_refused_by_name)
{
    static const char *const texts[] = {"0", "-1", "ten", "1s", "99999999999999999999"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dl_limits limits = {0};
        setenv("DISTLITE_STORE_CONNECTIONS", texts[i], 1);
        CHECK_STATUS(dl_limits_read(&limits), DL_INVALID);
        CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_STORE_CONNECTIONS=");
        CHECK_CONTAINS(dl_last_error()->text, "whole number from 1 to ");
        CHECK_EQUAL(limits.connections, 0);
    }
}
