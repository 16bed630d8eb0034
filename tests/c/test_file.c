/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

/* What the next calls of pwrite() return, the last of them from then on. */
static const ssize_t *answers;
static uint64_t offsets[4];
static int call_count;

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    (void)fd;
    (void)bytes;
    (void)size;
    CHECK(call_count < 4);
    offsets[call_count] = (uint64_t)offset;
    errno = answers[call_count] < 0 ? (int)-answers[call_count] : 0;
    return answers[call_count] < 0 ? call_count++, -1 : answers[call_count++];
}

CHECK_CASE(a_write_of_nothing_is_an_error)
{
    answers = (ssize_t[]){2, 0, 0, 0};
    CHECK_EQUAL(dl_write_at(1, DL_LITERAL("12345"), 10), ENOSPC);
    CHECK_EQUAL(call_count, 2);
}

CHECK_CASE(the_rest_of_a_short_write_follows_it)
{
    answers = (ssize_t[]){2, -EINTR, 3};
    CHECK_EQUAL(dl_write_at(1, DL_LITERAL("12345"), 10), 0);
    CHECK_EQUAL(call_count, 3);
    CHECK(offsets[0] == 10 && offsets[1] == 12 && offsets[2] == 12);
}

CHECK_CASE(an_error_of_a_write_is_returned)
{
    answers = (ssize_t[]){2, -EDQUOT};
    CHECK_EQUAL(dl_write_at(1, DL_LITERAL("12345"), 10), EDQUOT);
}

static void
check_path(const char *path, const char *expected)
{
    char *whole;

    CHECK_OK(dl_absolute_path(path, &whole));
    CHECK_TEXT(whole, expected);
    free(whole);
}

CHECK_CASE(relative_paths_begin_with_the_folder)
{
    CHECK(chdir("/proc/self") == 0);
    char *whole;
    CHECK_OK(dl_absolute_path("fd", &whole));
    CHECK(strncmp(whole, "/proc/", 6) == 0);
    free(whole);
    CHECK(chdir("/") == 0);
    check_path("fd", "/fd");
    check_path("/a/b", "/a/b");
    check_path("", "");
}

CHECK_CASE(a_folder_that_was_removed_leads_nowhere)
{
    char folder[] = "/tmp/dl-file-XXXXXX";

    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0 && rmdir(folder) == 0);
    char *whole = NULL;
    CHECK_STATUS(dl_absolute_path("store", &whole), DL_NOT_FOUND);
    CHECK_CONTAINS(dl_last_error()->text, "store: there is no current folder");
}
