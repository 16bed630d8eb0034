/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The harness of the C tests: include it once in a test_<file>.c and write
 *
 *     CHECK_CASE(something_works) { CHECK_OK(dl_something()); }
 *
 * Nothing is registered by hand.  Each case runs in a forked child of its own process
 * group with an alarm (60 s; DL_CHECK_TIMEOUT=seconds), so that a crash or a hang costs
 * one line of red and leaves no process behind.  "--list" prints the names, arguments
 * run those cases, none runs all.  Checks may fail on any thread of the case. */
#ifndef DISTLITE_TESTS_CHECK_H
#define DISTLITE_TESTS_CHECK_H

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/status.h"

#define DL_CHECK_UNUSED __attribute__((unused))

/* The time that other programs on a busy machine may add to any operation. */
#define CHECK_SLACK (3 * DL_SECOND)

/* For calls that should return at once: only a hang reaches this deadline. */
#define SOON dl_deadline_after(15 * DL_SECOND)
#define MS(count) dl_deadline_after((count) * DL_MILLISECOND)

typedef struct dl_check_case {
    const char *name;
    void (*run)(void);
    bool is_slow; /* left to the slow tier; its alarm is five times as long */
    struct dl_check_case *next;
} dl_check_case;

static dl_check_case *dl_check_first;
static dl_check_case **dl_check_end = &dl_check_first;

#define DL_CHECK_DEFINE(case_name, slow)                                         \
    static void case_##case_name(void);                                          \
    __attribute__((constructor)) static void register_##case_name(void)          \
    {                                                                            \
        static dl_check_case entry = {#case_name, case_##case_name, slow, NULL}; \
        *dl_check_end = &entry;                                                  \
        dl_check_end = &entry.next;                                              \
    }                                                                            \
    static void case_##case_name(void)

#define CHECK_CASE(name) DL_CHECK_DEFINE(name, false)
#define CHECK_SLOW_CASE(name) DL_CHECK_DEFINE(name, true)

DL_CHECK_UNUSED __attribute__((noreturn, format(printf, 3, 4))) static void
dl_check_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(NULL);
    _exit(1);
}

#define DL_CHECK_FAIL(...) dl_check_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(expression)                                     \
    do {                                                      \
        if (!(expression)) {                                  \
            DL_CHECK_FAIL("CHECK(%s) is false", #expression); \
        }                                                     \
    } while (0)

/* Shows the error text of a status that is not the expected one. */
#define CHECK_STATUS(call, expected)                                               \
    do {                                                                           \
        dl_status check_got_ = (call), check_want_ = (expected);                   \
        if (check_got_ != check_want_) {                                           \
            DL_CHECK_FAIL("%s: %s instead of %s (%s)", #call,                      \
                          dl_status_name(check_got_), dl_status_name(check_want_), \
                          check_got_ == DL_OK ? "" : dl_last_error()->text);       \
        }                                                                          \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, DL_OK)

#define CHECK_EQUAL(left, right)                                                    \
    do {                                                                            \
        long long check_left_ = (long long)(left);                                  \
        long long check_right_ = (long long)(right);                                \
        if (check_left_ != check_right_) {                                          \
            DL_CHECK_FAIL("%s == %s: %lld is not %lld", #left, #right, check_left_, \
                          check_right_);                                            \
        }                                                                           \
    } while (0)

/* The literal may hold zero bytes. */
#define CHECK_BYTES(bytes, literal) \
    dl_check_bytes(__FILE__, __LINE__, #bytes, (bytes), DL_LITERAL(literal))

#define CHECK_TEXT(text, expected) \
    dl_check_bytes(__FILE__, __LINE__, #text, dl_bytes_of(text), dl_bytes_of(expected))

#define CHECK_CONTAINS(text, part)                                                \
    do {                                                                          \
        const char *check_text_ = (text);                                         \
        if (strstr(check_text_, (part)) == NULL) {                                \
            DL_CHECK_FAIL("%s: no \"%s\" in \"%s\"", #text, (part), check_text_); \
        }                                                                         \
    } while (0)

DL_CHECK_UNUSED static void
dl_check_print(const char *what, dl_bytes bytes)
{
    fprintf(stderr, "  %s (%zu bytes) \"", what, bytes.size);
    for (size_t i = 0; i < bytes.size && i < 200; i++) {
        bool is_plain = bytes.data[i] >= ' ' && bytes.data[i] < 0x7f;
        fprintf(stderr, is_plain ? "%c" : "\\x%02x", bytes.data[i]);
    }
    fputs("\"\n", stderr);
}

DL_CHECK_UNUSED static void
dl_check_bytes(const char *file, int line, const char *what, dl_bytes got,
               dl_bytes expected)
{
    if (!dl_bytes_equal(got, expected)) {
        dl_check_print("got     ", got);
        dl_check_print("expected", expected);
        dl_check_fail(file, line, "%s differs", what);
    }
}

/* Allocation failure.  The linker sends the code's malloc, calloc, realloc and strdup
 * through the wrappers (-Wl,--wrap=...), under every sanitizer too. */
static atomic_long
    dl_check_allocations;            /* since the last dl_check_fail_allocation_at */
static atomic_long dl_check_failing; /* number of the one that fails; 0: none fails */

void *__real_malloc(size_t size) __attribute__((weak));
void *__real_calloc(size_t count, size_t size) __attribute__((weak));
void *__real_realloc(void *memory, size_t size) __attribute__((weak));
char *__real_strdup(const char *text) __attribute__((weak));
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);

static bool
dl_check_must_fail(void)
{
    return atomic_fetch_add(&dl_check_allocations, 1) + 1
           == atomic_load(&dl_check_failing);
}

void *
__wrap_malloc(size_t size)
{
    return dl_check_must_fail() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return dl_check_must_fail() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *memory, size_t size)
{
    return dl_check_must_fail() ? NULL : __real_realloc(memory, size);
}

char *
__wrap_strdup(const char *text)
{
    return dl_check_must_fail() ? NULL : __real_strdup(text);
}

/* Makes the `number`-th allocation from now on (from 1), and no other, fail; 0:
 * none. */
DL_CHECK_UNUSED static void
dl_check_fail_allocation_at(long number)
{
    CHECK(__real_malloc != NULL && "link with -Wl,--wrap=malloc and the others");
    atomic_store(&dl_check_failing, number);
    atomic_store(&dl_check_allocations, 0);
}

/* Returns a number that grows by one with each open descriptor of this process. */
DL_CHECK_UNUSED static int
check_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Returns whether that allocation was reached and failed; afterwards none fails.  A
 * loop over numbers ends when this returns false. */
DL_CHECK_UNUSED static bool
dl_check_allocation_failed(void)
{
    long failing = atomic_exchange(&dl_check_failing, 0);

    return failing != 0 && atomic_load(&dl_check_allocations) >= failing;
}

/* Returns how many seconds a case may take, unless it is slow. */
static unsigned
dl_check_seconds(void)
{
    const char *text = getenv("DL_CHECK_TIMEOUT");
    int seconds = text == NULL ? 0 : atoi(text);

    return seconds > 0 ? (unsigned)seconds : 60;
}

static unsigned
dl_check_timeout(const dl_check_case *entry)
{
    return dl_check_seconds() * (entry->is_slow ? 5 : 1);
}

/* Starts a process that kills the process group when the writing end of the pipe
 * closes: after the case, or when this program has been killed and cannot do it
 * itself. */
static pid_t
dl_check_guard(pid_t group, const int pipe_ends[2])
{
    char byte;
    pid_t guard = fork();

    if (guard == 0) {
        setpgid(0, 0);
        close(pipe_ends[1]);
        while (read(pipe_ends[0], &byte, 1) < 0) {
        }
        kill(-group, SIGKILL);
        _exit(0);
    }
    close(pipe_ends[0]);
    return guard;
}

static bool
dl_check_run(const dl_check_case *entry)
{
    int status = 0;
    int pipe_ends[2];

    if (pipe(pipe_ends) != 0) {
        perror("pipe");
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(dl_check_timeout(entry));
        entry->run();
        /* Not _exit(), as leak checkers run at exit(). */
        exit(0);
    }
    if (child < 0) {
        perror("fork");
        return false;
    }
    setpgid(child, child); /* in both processes: the guard needs the group */
    pid_t guard = dl_check_guard(child, pipe_ends);
    while (waitpid(child, &status, 0) < 0) {
    }
    /* Processes that the case has started are killed with it. */
    close(pipe_ends[1]);
    waitpid(guard, NULL, 0);
    if (status == 0) {
        return true;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        fprintf(stderr, "%s: timed out after %u s\n", entry->name,
                dl_check_timeout(entry));
    } else if (WIFSIGNALED(status)) {
        fprintf(stderr, "%s: %s\n", entry->name, strsignal(WTERMSIG(status)));
    } else {
        fprintf(stderr, "%s: failed, exit status %d\n", entry->name,
                WEXITSTATUS(status));
    }
    return false;
}

static bool
dl_check_is_asked_for(const char *name, int count, char **names)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return count < 2;
}

int
main(int count, char **names)
{
    bool is_listing = count == 2 && strcmp(names[1], "--list") == 0;
    int ran = 0;
    int failed = 0;

    for (const dl_check_case *entry = dl_check_first; entry != NULL;
         entry = entry->next) {
        if (is_listing) {
            printf("%s%s\n", entry->name, entry->is_slow ? " slow" : "");
        } else if (dl_check_is_asked_for(entry->name, count, names)) {
            ran++;
            failed += !dl_check_run(entry);
        }
    }
    if (!is_listing) {
        printf("%d of %d cases failed\n", failed, ran);
    }
    return failed > 0 || (ran == 0 && !is_listing);
}

#endif
