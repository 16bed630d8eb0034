/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>

#include "base/call_site.h"
#include "check.h"

CHECK_CASE(nothing_is_noted_at_first)
{
    char text[DL_CALL_SITE_TEXT_SIZE] = "old";

    CHECK(!dl_call_sites_are_enabled());
    CHECK(dl_call_site_noted() == NULL);
    dl_call_site_describe(text, sizeof text);
    CHECK_TEXT(text, "");
    dl_call_sites_enable();
    CHECK(dl_call_sites_are_enabled());
}

static void *
look(void *unused)
{
    (void)unused;
    CHECK(dl_call_site_noted() == NULL);
    return NULL;
}

CHECK_CASE(a_note_is_the_threads_own)
{
    dl_call_site site = {.file = "train.py", .function = "step", .line = 42};
    char text[DL_CALL_SITE_TEXT_SIZE];
    pthread_t other;

    dl_call_site_record(&site);
    site.line = 43;
    dl_call_site_describe(text, sizeof text);
    CHECK_TEXT(text, "train.py:42 in step");
    CHECK_EQUAL(dl_call_site_noted()->line, 42);
    CHECK(pthread_create(&other, NULL, look, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    dl_call_site_record(NULL);
    CHECK(dl_call_site_noted() == NULL);
}

CHECK_CASE(of_a_long_path_the_end_is_shown)
{
    char path[400];
    char text[DL_CALL_SITE_TEXT_SIZE];
    dl_call_site site = {.file = path, .function = "main", .line = 7};

    memset(path, 'a', sizeof path);
    memcpy(path + sizeof path - 9, "/here.py", 9);
    dl_call_site_record(&site);
    dl_call_site_describe(text, sizeof text);
    CHECK(strncmp(text, "...aaa", 6) == 0);
    CHECK_CONTAINS(text, "a/here.py:7 in main");
}
