/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/file.h"
#include "store/file_log.h"
#include "store/file_store.h"
#include "store_suite.h"

static char folder[] = "/tmp/distlite-file-store-XXXXXX";
static char path[sizeof folder + 16];

static void
make_folder(void)
{
    if (path[0] == '\0') {
        CHECK(mkdtemp(folder) != NULL);
        snprintf(path, sizeof path, "%s/store", folder);
    }
}

static void
remove_folder(void)
{
    unlink(path);
    CHECK(rmdir(folder) == 0);
}

static dl_store *
open_store(int64_t world_size)
{
    dl_store *store;

    make_folder();
    CHECK_OK(dl_file_store_new(path, world_size, &store));
    return store;
}

static dl_store *
make_file(void)
{
    return open_store(-1);
}

/* The program's own, so that locks are counted. */
static atomic_int locks;

int
flock(int fd, int operation)
{
    atomic_fetch_add(&locks, (operation & LOCK_SH) != 0);
    return (int)syscall(SYS_flock, fd, operation);
}

static const suite_kind file = {
    .make = make_file, .finish = remove_folder, .hidden_keys = 1};
STORE_SUITE(file)

static size_t
read_file(uint8_t *bytes, size_t limit)
{
    int fd = open(path, O_RDONLY);
    ssize_t size = read(fd, bytes, limit);

    CHECK(fd >= 0 && size >= 0);
    close(fd);
    return (size_t)size;
}

static void
write_file(dl_bytes bytes, int flags)
{
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);

    CHECK(fd >= 0);
    CHECK(write(fd, bytes.data, bytes.size) == (ssize_t)bytes.size);
    close(fd);
}

static bool
file_exists(void)
{
    struct stat about;

    return stat(path, &about) == 0;
}

#define CHECK_FILE(literal)                                \
    do {                                                   \
        uint8_t bytes_[4096];                              \
        size_t size_ = read_file(bytes_, sizeof bytes_);   \
        CHECK_BYTES(((dl_bytes){bytes_, size_}), literal); \
    } while (0)

#define REFCOUNT(digit) "\x09\0\0\0refcount/\x01\0\0\0" digit
#define CLEANUP(digit) "\x08\0\0\0cleanup/\x01\0\0\0" digit

CHECK_CASE(the_file_is_laid_out_as_documented)
{
    dl_store *store = make_file();
    dl_buffer held = {0};

    CHECK_FILE(REFCOUNT("1"));
    SUITE_SET(store, A, "one");
    CHECK_EQUAL(suite_add(store, B, -3), -3);
    CHECK(suite_delete(store, A));
    CHECK(!suite_delete(store, A));
    /* A mismatch leaves nothing behind, a match always a record. */
    CHECK_OK(dl_store_compare_set(store, B, A, C, &held, SOON));
    CHECK_OK(dl_store_compare_set(store, B, DL_LITERAL("-3"), C, &held, SOON));
    CHECK_OK(dl_store_append(store, B, DL_LITERAL("d"), SOON));
    dl_store_unref(store);
    CHECK_FILE(REFCOUNT("1") "\x02\0\0\0/a\x03\0\0\0one"
                             "\x02\0\0\0/b\x02\0\0\0-3"
                             "\x03\0\0\0-/a\0\0\0\0"
                             "\x02\0\0\0/b\x01\0\0\0c"
                             "\x02\0\0\0/b\x02\0\0\0cd" CLEANUP("1") REFCOUNT("0"));
    dl_buffer_fini(&held);
    remove_folder();
}

CHECK_CASE(a_file_that_is_there_is_taken_over)
{
    make_folder();
    write_file(DL_LITERAL(REFCOUNT("3") "\x02\0\0\0/a\x03\0\0\0one"
                                        "\x02\0\0\0/b\x03\0\0\0two"
                                        "\x03\0\0\0-/b\0\0\0\0"
                                        "\x03\0\0\0-/x\0\0\0\0"
                                        "\0\0\0\0\0\0\0\0" CLEANUP("2")),
               O_TRUNC);
    dl_store *store = make_file();
    SUITE_HOLDS(store, A, "one");
    CHECK(!suite_exists(store, B));
    CHECK_EQUAL(suite_num_keys(store), 3); /* with both counts of members */
    dl_store_unref(store);
    uint8_t bytes[4096];
    size_t size = read_file(bytes, sizeof bytes);
    const dl_bytes end = DL_LITERAL(REFCOUNT("4") CLEANUP("3") REFCOUNT("3"));
    CHECK(size > end.size);
    CHECK(dl_bytes_equal((dl_bytes){bytes + size - end.size, end.size}, end));
    remove_folder();
}

CHECK_CASE(the_path_is_kept)
{
    dl_store *store = make_file();

    CHECK_TEXT(dl_file_store_path(store), path);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(the_path_leads_to_the_same_file_from_any_folder)
{
    make_folder();
    CHECK(chdir(folder) == 0);
    dl_store *store, *clone;
    CHECK_OK(dl_file_store_new("store", 2, &store));
    CHECK_TEXT(dl_file_store_path(store), path);
    CHECK(chdir("/") == 0);
    SUITE_SET(store, A, "1");
    CHECK_OK(dl_store_clone(store, &clone, SOON));
    SUITE_HOLDS(clone, A, "1");
    dl_store_unref(clone);
    CHECK(file_exists());
    dl_store_unref(store);
    CHECK(!file_exists());
    remove_folder();
}

CHECK_CASE(a_missing_folder_fails_at_once)
{
    int64_t start = dl_now();
    dl_store *store = NULL;

    CHECK_STATUS(dl_file_store_new("/nowhere/at/all", 2, &store), DL_NOT_FOUND);
    CHECK_TEXT(dl_last_error()->text,
               "opening /nowhere/at/all: No such file or directory");
    CHECK_STATUS(dl_file_store_new("/etc/passwd/store", 2, &store), DL_NOT_FOUND);
    CHECK_STATUS(dl_file_store_new("/", 2, &store), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "Is a directory");
    CHECK(store == NULL);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
}

CHECK_CASE(truncation_starts_over)
{
    dl_store *store = make_file();
    const dl_bytes key = B;
    suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};

    SUITE_SET(store, A, "a value of some length");
    SUITE_HOLDS(store, A, "a value of some length");
    suite_start(&call, suite_run_get);
    CHECK_OK(dl_sleep_until(MS(30)));
    CHECK(truncate(path, 0) == 0);
    CHECK(!suite_exists(store, A));
    CHECK_EQUAL(suite_num_keys(store), 0);
    SUITE_SET(store, B, "1");
    SUITE_JOIN(&call, DL_OK);
    CHECK_FILE("\x02\0\0\0/b\x01\0\0\0001");
    /* At the border of a record some keys stay. */
    SUITE_SET(store, A, "2");
    CHECK(truncate(path, 11) == 0);
    CHECK(suite_exists(store, B) && !suite_exists(store, A));
    dl_buffer_fini(&call.value);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(a_removed_file_is_an_empty_store)
{
    dl_store *store = make_file();
    dl_buffer value = {0};

    SUITE_SET(store, A, "1");
    CHECK(unlink(path) == 0);
    CHECK(!suite_exists(store, A));
    CHECK(!suite_delete(store, A));
    CHECK_EQUAL(suite_num_keys(store), 0);
    CHECK_STATUS(dl_store_get(store, A, &value, MS(20)), DL_TIMEOUT);
    CHECK(!file_exists());
    SUITE_SET(store, A, "2");
    SUITE_HOLDS(store, A, "2");
    CHECK(unlink(path) == 0);
    /* There is nothing to delete then. */
    dl_store_unref(store);
    CHECK(!file_exists());
    dl_buffer_fini(&value);
    remove_folder();
}

CHECK_CASE(a_replaced_file_is_read_anew)
{
    dl_store *store = make_file();
    const dl_bytes key = B;
    suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};

    SUITE_SET(store, A, "1");
    SUITE_HOLDS(store, A, "1");
    suite_start(&call, suite_run_get);
    CHECK_OK(dl_sleep_until(MS(30)));
    CHECK(unlink(path) == 0);
    CHECK_OK(dl_sleep_until(MS(30)));
    /* Larger than what was read of the old one: its size gives nothing away. */
    write_file(DL_LITERAL(REFCOUNT("1") REFCOUNT("1") REFCOUNT("1") REFCOUNT("1")),
               O_TRUNC);
    CHECK(!suite_exists(store, A));
    CHECK_OK(dl_sleep_until(MS(30)));
    dl_store *other = make_file();
    int64_t start = dl_now();
    SUITE_SET(other, B, "2");
    SUITE_JOIN(&call, DL_OK);
    CHECK(call.ended - start < 500 * DL_MILLISECOND + CHECK_SLACK);
    dl_buffer_fini(&call.value);
    dl_store_unref(other);
    dl_store_unref(store);
    remove_folder();
}

static void
check_damaged(dl_store *store)
{
    dl_buffer value = {0};
    char text[128];
    int64_t sum;

    CHECK_STATUS(dl_store_get(store, A, &value, SOON), DL_BACKEND);
    snprintf(text, sizeof text, "%s is damaged: the record at byte 18 reaches", path);
    CHECK_CONTAINS(dl_last_error()->text, text);
    CHECK_STATUS(dl_store_add(store, A, 1, &sum, SOON), DL_BACKEND);
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_BACKEND);
    dl_buffer_fini(&value);
}

/* A writer of torch's that was killed leaves the beginning of a record. */
CHECK_CASE(a_torn_record_is_skipped_and_written_over)
{
    static const dl_bytes whole = DL_LITERAL("\x02\0\0\0/a\x03\0\0\0one");
    dl_store *store = make_file();
    bool exists;

    SUITE_SET(store, B, "two");
    off_t end = lseek(open(path, O_RDONLY), 0, SEEK_END);
    for (size_t size = 1; size < whole.size; size++) {
        write_file((dl_bytes){whole.data, size}, O_APPEND);
        SUITE_HOLDS(store, B, "two");
        CHECK_OK(dl_store_check(store, &A, 1, &exists, SOON));
        CHECK(!exists);
        SUITE_SET(store, B, "two");
        SUITE_HOLDS(store, B, "two");
        CHECK(truncate(path, end) == 0);
        SUITE_HOLDS(store, B, "two");
    }
    write_file(whole, O_APPEND);
    SUITE_HOLDS(store, A, "one");
    dl_store_unref(store);
    remove_folder();
}

/* A member that comes later reads the file from its beginning. */
CHECK_CASE(a_torn_record_does_not_block_other_members)
{
    dl_store *store = make_file();

    SUITE_SET(store, A, "one");
    write_file(DL_LITERAL("\x02\0\0\0/a\xff\xff\xff\x7ftorn"), O_APPEND);
    dl_store *other;
    CHECK_OK(dl_file_store_new(path, 2, &other));
    SUITE_HOLDS(other, A, "one");
    SUITE_SET(other, B, "two");
    SUITE_HOLDS(store, B, "two");
    dl_store_unref(other);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(garbage_is_a_clear_error)
{
    dl_store *store = make_file();

    write_file(DL_LITERAL("\xff\xff\xff\xffgarbage that claims to be four gigabytes"),
               O_APPEND);
    check_damaged(store);
    CHECK(truncate(path, 0) == 0);
    bool exists;
    CHECK_OK(dl_store_check(store, &A, 1, &exists, SOON));
    write_file(DL_LITERAL("\x40\0\0\0/no first record"), O_APPEND);
    dl_buffer value = {0};
    CHECK_STATUS(dl_store_get(store, A, &value, SOON), DL_BACKEND);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(a_file_that_is_no_store_s_keeps_its_mode)
{
    static const char *const texts[] = {"import distlite", "#!/usr/bin/env python\n",
                                        "\0\0\0\0\0\0\0\0"};
    const size_t sizes[] = {15, 22, 8};
    struct stat file;
    dl_store *store = NULL;

    make_folder();
    for (size_t i = 0; i < 3; i++) {
        write_file((dl_bytes){(const uint8_t *)texts[i], sizes[i]}, O_TRUNC);
        CHECK(chmod(path, 0755) == 0);
        CHECK_STATUS(dl_file_store_new(path, -1, &store), DL_BACKEND);
        CHECK(stat(path, &file) == 0 && (file.st_mode & 0777) == 0755);
        CHECK_EQUAL(file.st_size, sizes[i]);
    }
    remove_folder();
}

/* Read access is enough to lock a file for ever. */
CHECK_CASE(users_with_read_access_can_no_longer_open_the_file)
{
    struct stat file;
    dl_store *store = make_file();

    CHECK(stat(path, &file) == 0 && (file.st_mode & 0777) == 0600);
    CHECK(chmod(path, 0644) == 0);
    SUITE_SET(store, A, "1");
    CHECK(stat(path, &file) == 0 && (file.st_mode & 0777) == 0600);
    CHECK(chmod(path, 0660) == 0);
    SUITE_SET(store, A, "2");
    CHECK(stat(path, &file) == 0 && (file.st_mode & 0777) == 0660);
    dl_store_unref(store);
    remove_folder();
}

static void
wait_for_child(pid_t child)
{
    int status = -1;

    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

/* Bytes that pwrite(2) still writes before the process is killed; negative: any number. */
static ssize_t until_killed = -1;

/* Replaces the C library's. */
ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    bool is_last = until_killed >= 0 && (size_t)until_killed < size;
    long count =
        syscall(SYS_pwrite64, fd, bytes, is_last ? (size_t)until_killed : size, offset);

    if (is_last) {
        _exit(0);
    }
    until_killed -= until_killed < 0 ? 0 : count;
    return count;
}

/* A kill comes between pages, or between two writes. */
CHECK_CASE(a_writer_killed_while_writing_breaks_nothing)
{
    static uint8_t bytes[3 * 4096];
    const dl_bytes value = {bytes, sizeof bytes};
    const ssize_t sizes[] = {0, 4096 - 18 - 4, 2 * 4096 - 18 - 4, 3 * 4096 + 10 - 4};
    dl_store *store = make_file();

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(truncate(path, 18) == 0);
        CHECK(!suite_exists(store, A)); /* and so it has seen that the file was cut */
        pid_t child = fork();
        if (child == 0) {
            dl_store *own;
            CHECK_OK(dl_file_store_new(path, -1, &own));
            CHECK(truncate(path, 18) == 0);
            until_killed = sizes[i];
            (void)dl_store_set(own, B, value, SOON);
            _exit(1);
        }
        wait_for_child(child);
        CHECK(!suite_exists(store, B));
        SUITE_SET(store, A, "1");
        SUITE_SET(store, A, "2");
        CHECK_FILE(REFCOUNT("1") "\x02\0\0\0/a\x01\0\0\0001"
                                 "\x02\0\0\0/a\x01\0\0\0002");
    }
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(a_full_disk_leaves_no_torn_record)
{
    struct rlimit limit = {.rlim_cur = 5000, .rlim_max = RLIM_INFINITY};
    dl_store *store = make_file();
    uint8_t value[8000] = {0};

    SUITE_SET(store, A, "1");
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_STATUS(dl_store_set(store, B, (dl_bytes){value, sizeof value}, SOON),
                 DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "writing ");
    CHECK_CONTAINS(dl_last_error()->text, strerror(EFBIG));
    SUITE_SET(store, C, "2");
    CHECK_FILE(REFCOUNT("1") "\x02\0\0\0/a\x01\0\0\0001"
                             "\x02\0\0\0/c\x01\0\0\0002");
    CHECK(!suite_exists(store, B));
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(a_lock_that_is_never_given_back_is_an_error)
{
    dl_store *store = make_file();
    dl_buffer value = {0};
    int fd = open(path, O_RDWR);

    CHECK(flock(fd, LOCK_EX) == 0);
    int64_t start = dl_now();
    CHECK_STATUS(dl_store_get(store, A, &value, MS(0)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "another process keeps it locked");
    CHECK(dl_now() - start < 5 * DL_SECOND);
    close(fd);
    SUITE_SET(store, A, "1");
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(processes_that_add_and_append_agree_on_the_sum)
{
    enum { PROCESSES = 4, ROUNDS = 150 };
    dl_store *store = make_file();
    pid_t children[PROCESSES];
    dl_buffer held = {0};

    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            dl_store *own = make_file();
            for (int round = 0; round < ROUNDS; round++) {
                suite_add(own, A, i + 1);
                CHECK_OK(dl_store_append(own, B, DL_LITERAL("x"), SOON));
            }
            dl_store_unref(own);
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        wait_for_child(children[i]);
    }
    CHECK_EQUAL(suite_add(store, A, 0), ROUNDS * PROCESSES * (PROCESSES + 1) / 2);
    CHECK_OK(dl_store_get(store, B, &held, SOON));
    CHECK_EQUAL(held.size, PROCESSES * ROUNDS);
    dl_buffer_fini(&held);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(a_forked_child_does_not_count_as_closed)
{
    dl_store *store = open_store(1);
    pid_t child = fork();

    if (child == 0) {
        dl_store_unref(store);
        _exit(0);
    }
    wait_for_child(child);
    CHECK_FILE(REFCOUNT("1"));
    dl_store_unref(store);
    CHECK(!file_exists());
    remove_folder();
}

CHECK_CASE(a_child_forked_in_the_middle_of_a_call_keeps_no_lock)
{
    dl_store *store = make_file();
    int fd;

    CHECK_OK(dl_file_open(path, DL_FILE_WRITE, SOON, &fd));
    pid_t child = fork();
    if (child == 0) {
        _exit(fcntl(fd, F_GETFD) != -1);
    }
    wait_for_child(child);
    int copy = dup(fd); /* as in a child that is forked at the last moment */
    dl_file_close(fd);
    SUITE_SET(store, A, "1");
    close(copy);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(the_last_of_its_members_removes_the_file)
{
    static const struct {
        int64_t world_size;
        int members;
        bool is_removed;
    } rows[] = {
        {-1, 1, false}, {0, 1, true}, {1, 1, true},
        {2, 1, false},  {2, 2, true}, {3, 2, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dl_store *stores[3];
        for (int member = 0; member < rows[i].members; member++) {
            stores[member] = open_store(rows[i].world_size);
        }
        for (int member = 0; member < rows[i].members; member++) {
            CHECK(file_exists());
            dl_store_unref(stores[member]);
        }
        CHECK(file_exists() == !rows[i].is_removed);
        unlink(path);
    }
    remove_folder();
}

CHECK_CASE(members_that_follow_each_other_count_too)
{
    dl_store_unref(open_store(2));
    CHECK(file_exists());
    dl_store_unref(open_store(2));
    CHECK(!file_exists());
    remove_folder();
}

CHECK_CASE(a_clone_is_a_member_of_its_own)
{
    dl_store *store = open_store(2), *clone;

    CHECK_OK(dl_store_clone(store, &clone, SOON));
    CHECK(clone != store);
    dl_store_close(store);
    SUITE_SET(clone, A, "1");
    dl_store_unref(store);
    CHECK(file_exists());
    dl_store_unref(clone);
    CHECK(!file_exists());
    remove_folder();
}

CHECK_CASE(a_clone_waits_for_the_lock_as_long_as_it_may)
{
    dl_store *store = open_store(2), *clone = NULL;
    int fd = open(path, O_RDWR);

    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    CHECK_STATUS(dl_store_clone(store, &clone, MS(20)), DL_TIMEOUT);
    CHECK(clone == NULL);
    close(fd);
    dl_store_unref(store);
    remove_folder();
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

CHECK_CASE(a_wait_can_be_interrupted)
{
    dl_store *store = make_file();
    const dl_bytes key = A;

    dl_interrupt_install(interrupt);
    CHECK_STATUS(dl_store_wait(store, &key, 1, dl_deadline_after(-1)), DL_INTERRUPTED);
    dl_interrupt_install(NULL);
    dl_store_unref(store);
    remove_folder();
}

/* Processor time of a wait, in nanoseconds. */
static int64_t
measure_wait(dl_store *store, int64_t limit)
{
    struct timespec before, after;
    const dl_bytes key = DL_LITERAL("nope");

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK_STATUS(dl_store_wait(store, &key, 1, dl_deadline_after(limit)), DL_TIMEOUT);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    return (after.tv_sec - before.tv_sec) * DL_SECOND + after.tv_nsec - before.tv_nsec;
}

#define CROWD 400

/* A lock that many processes share again and again is never free for one that needs it
 * exclusively. */
CHECK_CASE(many_waiters_do_not_block_a_writer)
{
    static suite_call calls[CROWD];
    dl_store *store = make_file();
    const dl_bytes end = DL_LITERAL("end");

    for (int i = 0; i < CROWD; i++) {
        calls[i] = (suite_call){.store = store, .keys = &end, .limit = 50 * DL_SECOND};
        suite_start(&calls[i], suite_run_get);
    }
    CHECK_OK(dl_sleep_until(MS(200)));
    for (int i = 0; i < 20; i++) {
        /* Without the patience of a caller that has time. */
        CHECK_OK(dl_store_set(store, A, DL_LITERAL("1"), dl_deadline_after(0)));
    }
    SUITE_SET(store, end, "1");
    for (int i = 0; i < CROWD; i++) {
        SUITE_JOIN(&calls[i], DL_OK);
    }
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(waiting_does_not_spin)
{
    dl_store *store = make_file();

    CHECK(measure_wait(store, DL_SECOND) < 50 * DL_MILLISECOND);
    CHECK(unlink(path) == 0);
    CHECK(measure_wait(store, DL_SECOND) < 50 * DL_MILLISECOND);
    dl_store_unref(store);
    remove_folder();
}

/* Returns how long after its key is written a wait ends that began `before` earlier: the
 * least of several tries, since the machine may be busy.  Stops at the first try below
 * `good`. */
static int64_t
measure_end(dl_store *store, int64_t before, int64_t good)
{
    const dl_bytes key = A;
    int64_t least = INT64_MAX;

    for (int i = 0; i < 20 && least >= good; i++) {
        bool existed;
        suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};
        CHECK_OK(dl_store_delete_key(store, key, &existed, SOON));
        suite_start(&call, suite_run_get);
        CHECK_OK(dl_sleep_until(dl_deadline_after(before)));
        int64_t start = dl_now();
        SUITE_SET(store, A, "1");
        SUITE_JOIN(&call, DL_OK);
        least = call.ended - start < least ? call.ended - start : least;
        dl_buffer_fini(&call.value);
    }
    return least;
}

CHECK_CASE(a_wait_ends_soon_after_the_change)
{
    dl_store *store = make_file();

    CHECK(suite_timeout_excess(store, 7 * DL_MILLISECOND, 15 * DL_MILLISECOND)
          < 15 * DL_MILLISECOND);
    /* A pause is an eighth of what was waited before. */
    int64_t short_wait = 4 * DL_MILLISECOND, long_wait = 20 * DL_MILLISECOND;
    CHECK(measure_end(store, 8 * DL_MILLISECOND, short_wait) < short_wait);
    CHECK(measure_end(store, 300 * DL_MILLISECOND, long_wait) < long_wait);
    dl_store_unref(store);
    remove_folder();
}

CHECK_CASE(large_files_are_read_in_pieces)
{
    dl_store *writer = make_file(), *reader = make_file();
    static uint8_t value[300001];
    dl_buffer held = {0};
    char name[16];

    /* Records that are shorter and longer than a piece, across its borders. */
    for (int i = 0; i < 60; i++) {
        size_t size = (size_t)(i * 5003) % sizeof value;
        memset(value, i, size);
        snprintf(name, sizeof name, "key%d", i);
        CHECK_OK(
            dl_store_set(writer, dl_bytes_of(name), (dl_bytes){value, size}, SOON));
    }
    for (int i = 0; i < 60; i++) {
        size_t size = (size_t)(i * 5003) % sizeof value;
        snprintf(name, sizeof name, "key%d", i);
        CHECK_OK(dl_store_get(reader, dl_bytes_of(name), &held, SOON));
        CHECK_EQUAL(held.size, size);
        CHECK(size == 0 || (held.data[0] == i && held.data[size - 1] == i));
    }
    dl_buffer_fini(&held);
    dl_store_unref(writer);
    dl_store_unref(reader);
    remove_folder();
}

CHECK_CASE(without_memory_calls_fail_and_the_store_lives)
{
    dl_store *store = make_file(), *other = NULL;
    dl_buffer value = {0};
    int64_t sum;
    int failures = 0;

    for (long number = 1;; number++) {
        dl_check_fail_allocation_at(number);
        dl_status status = dl_file_store_new(path, -1, &other);
        if (!dl_check_allocation_failed()) {
            CHECK_OK(status);
            break;
        }
        if (status == DL_OK) {
            dl_store_unref(other);
            continue;
        }
        CHECK_STATUS(status, DL_NO_MEMORY);
        failures++;
    }
    CHECK(failures >= 3);
    SUITE_SET(store, A, "1");
    for (long number = 1; number < 5; number++) {
        dl_check_fail_allocation_at(number);
        dl_status status = dl_store_add(store, A, 1, &sum, SOON);
        CHECK(status == DL_OK || status == DL_NO_MEMORY);
        dl_check_fail_allocation_at(number);
        dl_buffer_fini(&value);
        status = dl_store_get(other, A, &value, SOON);
        CHECK(status == DL_OK || status == DL_NO_MEMORY);
        dl_check_fail_allocation_at(0);
    }
    int64_t total = suite_add(store, A, 0);
    CHECK(total >= 1 && total == suite_add(other, A, 0));
    dl_buffer_fini(&value);
    dl_store_unref(other);
    dl_store_unref(store);
    remove_folder();
}

/* Many waiting processes would keep out the writer if each took the lock at each look. */
CHECK_CASE(a_wait_for_a_file_that_does_not_change_seldom_locks_it)
{
    dl_store *store = make_file();
    const dl_bytes key = DL_LITERAL("missing"), other = DL_LITERAL("other");

    CHECK_OK(dl_store_set(store, other, other, SOON));
    atomic_store(&locks, 0);
    CHECK_STATUS(dl_store_wait(store, &key, 1, dl_deadline_after(DL_SECOND)),
                 DL_TIMEOUT);
    CHECK(atomic_load(&locks) <= 2 + 5);
    dl_store_unref(store);
    remove_folder();
}
