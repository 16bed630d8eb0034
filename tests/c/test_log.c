/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "base/log.h"
#include "check.h"
#include "ranks.h"

static char captured[1 << 16];
static int pipe_ends[2];
static int saved_stderr;

/* Standard error goes into a pipe until captured_text(). */
static void
start_capture(void)
{
    CHECK(pipe2(pipe_ends, O_NONBLOCK) == 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
}

static const char *
captured_text(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    ssize_t size = read(pipe_ends[0], captured, sizeof captured - 1);
    captured[size > 0 ? size : 0] = '\0';
    return captured;
}

/* "[W1121 08:30:01.123456 distlite] ": digits stand for themselves as 0. */
static void
check_head(const char *line, char level)
{
    const char *pattern = "[L0000 00:00:00.000000 distlite] ";

    for (size_t i = 0; pattern[i] != '\0'; i++) {
        char expected = pattern[i] == 'L' ? level : pattern[i];
        char got = isdigit((unsigned char)line[i]) ? '0' : line[i];
        CHECK_EQUAL(got, expected);
    }
}

CHECK_CASE(a_line_has_level_time_and_text)
{
    unsetenv("TORCH_CPP_LOG_LEVEL");
    start_capture();
    dl_log(DL_LOG_WARNING, "rank %d is late", 3);
    const char *line = captured_text();
    check_head(line, 'W');
    CHECK_CONTAINS(line, "distlite] rank 3 is late\n");
}

CHECK_CASE(warnings_and_up_are_shown_by_default)
{
    unsetenv("TORCH_CPP_LOG_LEVEL");
    start_capture();
    dl_log(DL_LOG_INFO, "quiet");
    dl_log(DL_LOG_ERROR, "loud");
    const char *text = captured_text();
    check_head(text, 'E');
    CHECK(strstr(text, "quiet") == NULL);
}

CHECK_CASE(info_shows_everything)
{
    setenv("TORCH_CPP_LOG_LEVEL", "info", 1);
    start_capture();
    dl_log(DL_LOG_INFO, "quiet");
    check_head(captured_text(), 'I');
}

CHECK_CASE(error_hides_warnings)
{
    setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 1);
    start_capture();
    dl_log(DL_LOG_WARNING, "quiet");
    CHECK_TEXT(captured_text(), "");
}

CHECK_CASE(the_prefix_stands_before_the_line)
{
    start_capture();
    dl_log_set_rank(3);
    dl_log(DL_LOG_ERROR, "text");
    dl_log_set_rank(-1);
    dl_log(DL_LOG_ERROR, "text");
    const char *text = captured_text();
    CHECK(strncmp(text, "[rank3]:[E", 10) == 0);
    check_head(strchr(text, '\n') + 1, 'E');
}

CHECK_CASE(a_long_text_is_cut_and_still_ends_its_line)
{
    char text[8192];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    start_capture();
    dl_log(DL_LOG_ERROR, "%s", text);
    const char *line = captured_text();
    CHECK(strlen(line) > 2048 && strlen(line) < 4096);
    CHECK_EQUAL(line[strlen(line) - 1], '\n');
    CHECK_EQUAL(line[strlen(line) - 2], 'x');
}

CHECK_CASE(errno_stays_as_it_was)
{
    start_capture();
    close(pipe_ends[0]);
    signal(SIGPIPE, SIG_IGN);
    errno = EAGAIN;
    dl_log(DL_LOG_ERROR, "nobody reads this");
    CHECK_EQUAL(errno, EAGAIN);
}

static void
log_lines(int rank, int size, void *context)
{
    (void)context;
    for (int i = 0; i < 20; i++) {
        dl_log(DL_LOG_ERROR, "line of rank %d of %d;", rank, size);
    }
}

CHECK_CASE(lines_of_many_threads_do_not_mix)
{
    int lines = 0;

    start_capture();
    dl_run_ranks(4, log_lines, NULL);
    for (const char *line = captured_text(); *line != '\0'; lines++) {
        check_head(line, 'E');
        CHECK(strncmp(line + 33, "line of rank ", 13) == 0);
        CHECK(strncmp(line + 47, " of 4;\n", 7) == 0);
        line += 54;
    }
    CHECK_EQUAL(lines, 80);
}

CHECK_CASE(the_debug_level_alone_logs_nothing)
{
    unsetenv("TORCH_CPP_LOG_LEVEL");
    dl_debug_level_set(DL_DEBUG_DETAIL);
    CHECK(!dl_log_is_on(DL_LOG_INFO) && dl_log_is_on(DL_LOG_WARNING));
}

CHECK_CASE(limited_lines_come_once_a_second)
{
    dl_log_limit limit = {0};

    start_capture();
    for (int i = 0; i < 500; i++) {
        dl_log_limited(&limit, DL_LOG_WARNING, "line %d;", i);
    }
    limit.not_before = dl_now();
    dl_log_limited(&limit, DL_LOG_WARNING, "later");
    const char *text = captured_text();
    check_head(text, 'W');
    CHECK_CONTAINS(text, "distlite] line 0;\n");
    CHECK(strstr(text, "line 1;") == NULL);
    check_head(strchr(text, '\n') + 1, 'W');
    CHECK_CONTAINS(text, "distlite] later\n");
}

/* Blocks for good, if at all: the case is ended by its alarm then. */
static void
check_full(int reading, int writing)
{
    dl_log_limit limit = {0};
    char byte = 'x';
    int saved = dup(STDERR_FILENO);

    CHECK(fcntl(writing, F_SETFL, O_NONBLOCK) == 0);
    while (write(writing, &byte, 1) == 1) {
    }
    CHECK(fcntl(writing, F_SETFL, 0) == 0);
    CHECK(dup2(writing, STDERR_FILENO) >= 0);
    dl_log_limited(&limit, DL_LOG_ERROR, "nobody reads this");
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    /* Other users of the descriptor find it in blocking mode, as before. */
    CHECK((fcntl(writing, F_GETFL) & O_NONBLOCK) == 0);
    close(reading);
    close(writing);
    close(saved);
}

CHECK_CASE(a_limited_line_does_not_wait_for_the_reader)
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    check_full(ends[0], ends[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    check_full(ends[0], ends[1]);
}
