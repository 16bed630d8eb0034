/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>

#include "base/log.h"
#include "base/thread.h"
#include "check.h"
#include "ranks.h"

#define ROOM 256 /* lines that the queue holds */

/* What the reader of a case does, and what it has seen. */
static dl_log_reader reader;
static sem_t may_begin;
static sem_t may_end;
static sem_t has_taken;
static atomic_bool is_wanted = true;
static atomic_int taken;
static char texts[1 << 20];
static dl_log_line last;
static sigset_t mask;

static bool
wanted(void)
{
    return is_wanted;
}

static void
take_all(void)
{
    dl_log_line line;

    while (dl_log_queue_take(&line)) {
        line.bytes[line.size - 1] = '\0';
        strcat(texts, line.bytes + line.head);
        strcat(texts, ";");
        last = line;
        taken++;
    }
}

static bool
read_all(void)
{
    dl_log_queue_begin();
    take_all();
    return true;
}

static bool
wait_and_read(void)
{
    sem_wait(&may_begin);
    return read_all();
}

static bool
begin_and_wait(void)
{
    dl_log_queue_begin();
    sem_post(&has_taken);
    sem_wait(&may_begin);
    take_all();
    return true;
}

static bool
take_one_and_wait(void)
{
    dl_log_line line;

    dl_log_queue_begin();
    CHECK(dl_log_queue_take(&line));
    sem_post(&has_taken);
    sem_wait(&may_begin);
    take_all();
    sem_wait(&may_end);
    return true;
}

static bool
begin_late_and_wait(void)
{
    sem_wait(&may_begin);
    dl_log_queue_begin();
    sem_post(&has_taken);
    sem_wait(&may_end);
    take_all();
    return true;
}

static bool
refuse(void)
{
    return false;
}

static bool
log_and_read(void)
{
    dl_log(DL_LOG_ERROR, "by the reader");
    dl_log_queue_flush(dl_deadline_after(-1));
    CHECK(dl_log_queue_is_idle());
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return read_all();
}

static void
start(bool (*read)(void), int64_t limit)
{
    reader = (dl_log_reader){.is_wanted = wanted, .read = read, .limit = limit};
    sem_init(&may_begin, 0, 0);
    sem_init(&may_end, 0, 0);
    sem_init(&has_taken, 0, 0);
    dl_log_queue_open(&reader);
}

/* With a limit that is short the line may be written before the reader's thread runs. */
static void
log_until_begun(void)
{
    struct timespec until;

    do {
        dl_log(DL_LOG_WARNING, "first");
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
    } while (sem_timedwait(&has_taken, &until) != 0);
}

/* Standard error is a pipe from here on. */
static int
capture(void)
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    return ends[0];
}

/* Waits for one more line on standard error, in `line`. */
static void
await_line(int fd, char line[DL_LOG_LINE_SIZE])
{
    size_t size = 0;

    do {
        CHECK(size < DL_LOG_LINE_SIZE && read(fd, line + size, 1) == 1);
    } while (line[size++] != '\n');
    line[size - 1] = '\0';
}

static void
check_nothing(int fd)
{
    char byte;

    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(read(fd, &byte, 1) == -1);
}

CHECK_CASE(a_line_reaches_the_reader_with_its_parts)
{
    struct timespec now;
    int captured = capture();

    start(read_all, 20 * DL_SECOND);
    (void)dl_fail(DL_NETWORK, "what happened");
    dl_log_set_rank(3);
    dl_log(DL_LOG_WARNING, "rank %d is late", 5);
    CHECK_TEXT(dl_last_error()->text, "what happened");
    dl_log_queue_flush(SOON);
    CHECK(dl_log_queue_is_idle());
    CHECK_TEXT(texts, "rank 5 is late;");
    CHECK(last.level == DL_LOG_WARNING && last.rank == 3);
    CHECK(strncmp(last.bytes, "[rank3]:[W", 10) == 0);
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(now.tv_sec * DL_SECOND + now.tv_nsec - last.time < 30 * DL_SECOND);
    check_nothing(captured);
}

CHECK_CASE(limited_lines_take_the_same_way)
{
    dl_log_limit limit = {.left_out = 7};

    start(read_all, 20 * DL_SECOND);
    dl_log_limited(&limit, DL_LOG_WARNING, "a stranger");
    dl_log_queue_flush(SOON);
    CHECK_TEXT(texts, "a stranger (7 similar lines were suppressed before this one);");
    CHECK_EQUAL(limit.left_out, 0);
}

CHECK_CASE(lines_that_are_not_wanted_go_to_standard_error_at_once)
{
    char line[DL_LOG_LINE_SIZE];
    int captured = capture();

    start(read_all, 20 * DL_SECOND);
    is_wanted = false;
    dl_log(DL_LOG_WARNING, "plain");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] plain");
    CHECK(dl_log_queue_is_idle());
    CHECK_EQUAL(taken, 0);
}

CHECK_CASE(lines_beyond_the_queue_are_counted_and_reported_in_their_place)
{
    start(take_one_and_wait, 20 * DL_SECOND);
    dl_log(DL_LOG_WARNING, "first");
    sem_wait(&has_taken);
    for (int i = 0; i < ROOM + 44; i++) {
        dl_log(DL_LOG_WARNING, "line %d", i);
    }
    sem_post(&may_begin);
    while (taken < ROOM + 1) {
        sched_yield();
    }
    CHECK_CONTAINS(texts, "line 0;line 1;");
    CHECK_CONTAINS(texts, "line 255;44 more lines were dropped: ");
    CHECK(strstr(texts, "line 256;") == NULL);
    CHECK_EQUAL(last.level, DL_LOG_WARNING);
    sem_post(&may_end);
}

CHECK_CASE(the_count_of_omitted_lines_comes_before_later_lines)
{
    dl_log_line line;

    start(wait_and_read, 60 * DL_SECOND);
    for (int i = 0; i < ROOM + 1; i++) {
        dl_log(DL_LOG_WARNING, "line %d", i);
    }
    /* There is room for one now, and two are needed. */
    CHECK(dl_log_queue_take(&line));
    dl_log(DL_LOG_WARNING, "not yet");
    CHECK(dl_log_queue_take(&line));
    dl_log(DL_LOG_WARNING, "later");
    sem_post(&may_begin);
    dl_log_queue_flush(SOON);
    CHECK_CONTAINS(
        texts,
        "line 255;2 more lines were dropped: the log's handlers cannot keep up;later;");
    CHECK(strstr(texts, "not yet") == NULL);
}

CHECK_CASE(a_reader_that_does_not_begin_is_not_waited_for)
{
    char line[DL_LOG_LINE_SIZE];
    int captured = capture();

    start(wait_and_read, 10 * DL_MILLISECOND);
    dl_log(DL_LOG_WARNING, "one");
    dl_log(DL_LOG_WARNING, "two");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] one");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] two");
    /* Later on it is back. */
    sem_post(&may_begin);
    sem_post(&may_begin);
    dl_log_queue_flush(SOON);
    CHECK_TEXT(texts, "");
}

CHECK_CASE(a_reader_that_has_begun_may_be_slow)
{
    char written[2 * DL_LOG_LINE_SIZE] = "";
    int captured = capture();

    start(begin_and_wait, 10 * DL_MILLISECOND);
    log_until_begun();
    dl_log(DL_LOG_WARNING, "one");
    dl_log(DL_LOG_WARNING, "two");
    /* Ten times as long as a reader may take to begin. */
    CHECK_OK(dl_sleep_until(dl_deadline_after(100 * DL_MILLISECOND)));
    sem_post(&may_begin);
    dl_log_queue_flush(SOON);
    CHECK_CONTAINS(texts, "one;two;");
    CHECK(fcntl(captured, F_SETFL, O_NONBLOCK) == 0);
    (void)!read(captured, written, sizeof written - 1);
    CHECK(strstr(written, "one") == NULL && strstr(written, "two") == NULL);
}

CHECK_CASE(lines_that_the_reader_cannot_take_go_to_standard_error)
{
    char line[DL_LOG_LINE_SIZE];
    int captured = capture();

    start(refuse, 60 * DL_SECOND);
    dl_log(DL_LOG_WARNING, "one");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] one");
    dl_log_queue_flush(SOON);
    CHECK(dl_log_queue_is_idle());
}

CHECK_CASE(closing_writes_what_is_left)
{
    char line[DL_LOG_LINE_SIZE];
    int captured = capture();

    start(wait_and_read, 60 * DL_SECOND);
    dl_log(DL_LOG_WARNING, "one");
    dl_log(DL_LOG_WARNING, "two");
    dl_log_queue_flush(dl_deadline_after(10 * DL_MILLISECOND));
    CHECK(!dl_log_queue_is_idle());
    dl_log_queue_close();
    dl_log(DL_LOG_WARNING, "three");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] one");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] two");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] three");
}

CHECK_CASE(the_reader_does_not_get_the_lines_that_it_causes)
{
    char line[DL_LOG_LINE_SIZE];
    int captured = capture();

    start(log_and_read, 20 * DL_SECOND);
    dl_log(DL_LOG_WARNING, "one");
    dl_log_queue_flush(SOON);
    CHECK_TEXT(texts, "one;");
    await_line(captured, line);
    CHECK_CONTAINS(line, " distlite] by the reader");
    /* And the program's signals are not for its thread. */
    for (int signal = 1; signal < 32; signal++) {
        CHECK(signal == SIGKILL || signal == SIGSTOP
              || sigismember(&mask, signal) == 1);
    }
}

#ifndef __SANITIZE_THREAD__ /* a forked child may not start threads under it */
CHECK_CASE(a_forked_child_begins_with_an_empty_queue)
{
    char line[DL_LOG_LINE_SIZE];
    int saved = dup(STDERR_FILENO);
    int captured = capture();
    int status;

    /* Both threads run before the fork: while they start, the address sanitizer keeps
     * locks that the child would find locked. */
    start(begin_late_and_wait, 10 * DL_MILLISECOND);
    dl_log(DL_LOG_WARNING, "first");
    await_line(captured, line);
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    sem_post(&may_begin);
    log_until_begun();
    dl_log(DL_LOG_WARNING, "of the parent");
    pid_t child = fork();
    if (child == 0) {
        CHECK(dl_log_queue_is_idle());
        texts[0] = '\0';
        reader.limit = 60 * DL_SECOND;
        dl_log(DL_LOG_WARNING, "of the child");
        sem_post(&may_begin);
        sem_post(&may_end);
        dl_log_queue_flush(SOON);
        CHECK_TEXT(texts, "of the child;");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    sem_post(&may_end);
    dl_log_queue_flush(SOON);
    CHECK_CONTAINS(texts, "of the parent;");
    CHECK(strstr(texts, "of the child;") == NULL);
}
#endif

static void
log_lines(int rank, int size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < 30; i++) {
        dl_log(DL_LOG_ERROR, "%d", rank);
    }
}

CHECK_CASE(lines_of_many_threads_arrive_once_each)
{
    int counts[8] = {0};

    start(read_all, 60 * DL_SECOND);
    dl_run_ranks(8, log_lines, NULL);
    dl_log_queue_flush(SOON);
    for (const char *text = texts; *text != '\0'; text += 2) {
        CHECK(text[0] >= '0' && text[0] < '8' && text[1] == ';');
        counts[text[0] - '0']++;
    }
    for (int rank = 0; rank < 8; rank++) {
        CHECK_EQUAL(counts[rank], 30);
    }
}
