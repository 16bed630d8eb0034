/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "session_fixture.h"

/* A folder of the test, and a server's table and journal in it. */
typedef struct kept {
    char folder[32];
    char path[64];
    dl_table table;
    dl_replies replies;
    dl_journal *journal;
    uint8_t identity[DL_JOURNAL_IDENTITY_SIZE];
} kept;

static dl_status
open_at(kept *k, const char *path)
{
    const dl_journal_state state = {&k->table, &k->replies, k->identity};

    dl_table_init(&k->table);
    dl_replies_init(&k->replies);
    return dl_journal_open(path, DL_JOURNAL_NEVER, &state, &k->journal);
}

static dl_status
reopen(kept *k)
{
    return open_at(k, k->path);
}

static void
make_folder(kept *k)
{
    *k = (kept){.folder = "/tmp/journal-XXXXXX"};
    CHECK(mkdtemp(k->folder) != NULL);
    snprintf(k->path, sizeof k->path, "%s/file", k->folder);
    memset(k->identity, 'i', sizeof k->identity);
}

static void
start(kept *k)
{
    make_folder(k);
    CHECK_OK(reopen(k));
}

static void
end(kept *k)
{
    dl_journal_close(k->journal);
    k->journal = NULL;
    dl_replies_fini(&k->replies);
    dl_table_fini(&k->table);
}

/* What a killed server leaves: nothing is written any more. */
static void
lose(kept *k)
{
    k->table.changes->size = DL_JOURNAL_FRAME_HEAD;
    end(k);
}

static void
remove_folder(kept *k)
{
    char path[80];

    snprintf(path, sizeof path, "%s.new", k->path);
    unlink(path);
    unlink(k->path);
    CHECK(rmdir(k->folder) == 0);
}

static void
set(kept *k, const char *key, const char *value)
{
    CHECK_OK(dl_journal_prepare(k->journal, dl_bytes_of(key)));
    CHECK_OK(dl_table_set(&k->table, dl_bytes_of(key), dl_bytes_of(value)));
}

static bool
holds(const kept *k, const char *key, const char *value)
{
    const dl_blob *blob = dl_table_get(&k->table, dl_bytes_of(key));

    return blob != NULL && dl_bytes_equal(dl_blob_bytes(blob), dl_bytes_of(value));
}

CHECK_CASE(committed_changes_are_read_back)
{
    kept k;
    struct stat file;

    start(&k);
    CHECK(stat(k.path, &file) == 0);
    CHECK_EQUAL(file.st_mode & 0777, 0600);
    CHECK_EQUAL(file.st_size, DL_JOURNAL_HEAD_SIZE);
    uint64_t before = dl_journal_position(k.journal);
    set(&k, "a", "1");
    CHECK(dl_journal_position(k.journal) > before);
    set(&k, "b", "2");
    CHECK_OK(dl_table_queue_push(&k.table, DL_LITERAL("q"), DL_LITERAL("item")));
    CHECK_OK(dl_journal_commit(k.journal));
    CHECK(dl_table_delete(&k.table, DL_LITERAL("a")));
    lose(&k);
    memset(k.identity, 'x', sizeof k.identity);
    CHECK_OK(reopen(&k));
    CHECK(k.identity[0] == 'i');
    CHECK(holds(&k, "a", "1") && holds(&k, "b", "2"));
    CHECK_EQUAL(dl_table_queue_size(&k.table, DL_LITERAL("q")), 1);
    /* Closing writes what is left. */
    CHECK(dl_table_delete(&k.table, DL_LITERAL("a")));
    end(&k);
    CHECK_OK(reopen(&k));
    CHECK_EQUAL(dl_table_num_keys(&k.table), 1);
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(one_server_at_a_time_uses_a_file)
{
    kept k;
    kept other = {.path = ""};

    start(&k);
    CHECK_STATUS(open_at(&other, k.path), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "is in use by another server");
    end(&k);
    CHECK_OK(open_at(&other, k.path));
    end(&other);
    remove_folder(&k);
}

CHECK_CASE(files_that_others_could_change_are_refused)
{
    kept k;
    char link_path[sizeof k.path];

    start(&k);
    end(&k);
    CHECK(chmod(k.path, 0640) == 0);
    CHECK_STATUS(reopen(&k), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "chmod 600 ");
    CHECK(chmod(k.path, 0600) == 0);
    snprintf(link_path, sizeof link_path, "%s", k.path);
    snprintf(k.path, sizeof k.path, "%s/link", k.folder);
    CHECK(symlink(link_path, k.path) == 0);
    CHECK_STATUS(reopen(&k), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "is a symbolic link");
    CHECK(unlink(k.path) == 0 && mkdir(k.path, 0700) == 0);
    CHECK_STATUS(reopen(&k), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "Is a directory");
    CHECK(rmdir(k.path) == 0 && mkfifo(k.path, 0600) == 0);
    CHECK_STATUS(reopen(&k), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "is not a regular file");
    CHECK(unlink(k.path) == 0);
    snprintf(k.path, sizeof k.path, "%s", link_path);
    remove_folder(&k);
    CHECK_STATUS(open_at(&k, ""), DL_INVALID);
    CHECK_STATUS(reopen(&k), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "No such file or directory");
}

CHECK_CASE(a_torn_end_is_cut_off)
{
    kept k;
    struct stat whole, file;

    start(&k);
    set(&k, "a", "1");
    CHECK_OK(dl_journal_commit(k.journal));
    CHECK(stat(k.path, &whole) == 0);
    set(&k, "b", "2");
    end(&k);
    CHECK(stat(k.path, &file) == 0);
    CHECK(truncate(k.path, file.st_size - 1) == 0);
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "a", "1"));
    CHECK_EQUAL(dl_table_num_keys(&k.table), 1);
    CHECK(stat(k.path, &file) == 0 && file.st_size == whole.st_size);
    set(&k, "c", "3");
    end(&k);
    /* A file of which not even the head was complete. */
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "c", "3"));
    end(&k);
    CHECK(truncate(k.path, 5) == 0);
    CHECK_OK(reopen(&k));
    CHECK_EQUAL(dl_table_num_keys(&k.table), 0);
    end(&k);
    CHECK_OK(reopen(&k));
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(damage_is_refused_with_path_and_place)
{
    kept k;
    uint8_t byte = 'x';

    start(&k);
    set(&k, "a", "1");
    end(&k);
    int fd = open(k.path, O_WRONLY);
    CHECK(pwrite(fd, &byte, 1, DL_JOURNAL_HEAD_SIZE + 20) == 1);
    close(fd);
    CHECK_STATUS(reopen(&k), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, k.path);
    CHECK_CONTAINS(dl_last_error()->text, "it is damaged at byte 32: ");
    remove_folder(&k);
}

/* A crash of the host loses what was not synced, block by block: the server starts with
 * what is whole before the first loss, and keeps the file as it was. */
CHECK_CASE(a_hole_ends_what_is_read_and_the_file_is_kept)
{
    static char value[10000];
    char kept_path[2][96];
    kept k;
    struct stat before, file;

    memset(value, 'x', sizeof value - 1);
    start(&k);
    for (int i = 0; i < 2; i++) {
        snprintf(kept_path[i], sizeof kept_path[i], "%s.damaged-%d", k.path, i + 1);
        set(&k, "whole", "1");
        CHECK_OK(dl_journal_commit(k.journal));
        CHECK(stat(k.path, &before) == 0);
        set(&k, "lost", value);
        CHECK_OK(dl_journal_commit(k.journal));
        set(&k, "later", "2");
        end(&k);
        static const uint8_t zeros[4096];
        off_t hole = (before.st_size / 4096 + 1) * 4096;
        int fd = open(k.path, O_WRONLY);
        CHECK(pwrite(fd, zeros, sizeof zeros, hole) == sizeof zeros);
        CHECK(fstat(fd, &file) == 0);
        close(fd);
        off_t size = file.st_size;
        CHECK_OK(reopen(&k));
        CHECK(holds(&k, "whole", "1"));
        CHECK_EQUAL(dl_table_num_keys(&k.table), 1);
        CHECK(stat(k.path, &file) == 0 && file.st_size == before.st_size);
        CHECK(stat(kept_path[i], &file) == 0 && file.st_size == size);
        CHECK_EQUAL(file.st_mode & 0777, 0600);
    }
    end(&k);
    CHECK(unlink(kept_path[0]) == 0 && unlink(kept_path[1]) == 0);
    remove_folder(&k);
}

/* A limit of the file's size stands for a disk that is full. */
static void
limit_files(rlim_t size)
{
    struct rlimit limit = {.rlim_cur = size, .rlim_max = RLIM_INFINITY};

    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

CHECK_CASE(a_full_disk_refuses_changes_until_there_is_room)
{
    kept k;
    struct stat file;

    start(&k);
    set(&k, "a", "1");
    CHECK_OK(dl_journal_commit(k.journal));
    CHECK(stat(k.path, &file) == 0);
    limit_files((rlim_t)file.st_size + 10);
    set(&k, "b", "2");
    CHECK_STATUS(dl_journal_commit(k.journal), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "writing: File too large");
    CHECK_STATUS(dl_journal_rethrow(k.journal), DL_BACKEND);
    CHECK_STATUS(dl_journal_prepare(k.journal, DL_LITERAL("c")), DL_BACKEND);
    CHECK_STATUS(dl_journal_commit(k.journal), DL_BACKEND);
    /* Meanwhile clients that come and go do not fill the memory. */
    uint64_t position = dl_journal_position(k.journal);
    for (uint64_t i = 0; i < 10; i++) {
        bool is_remembered;
        dl_slot named = {.id = {(uint8_t)i}, .sequence = 1};
        CHECK(dl_replies_open(&k.replies, &k.table, &named, &is_remembered) != NULL);
    }
    CHECK_EQUAL(dl_journal_position(k.journal), position);
    limit_files(RLIM_INFINITY);
    set(&k, "c", "3");
    CHECK_OK(dl_journal_commit(k.journal));
    lose(&k);
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "a", "1") && holds(&k, "b", "2") && holds(&k, "c", "3"));
    end(&k);
    remove_folder(&k);
}

static bool
has_same_contents(const dl_table *left, const dl_table *right, const dl_bytes *names,
                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dl_blob *one = dl_table_get(left, names[i]);
        dl_blob *other = dl_table_get(right, names[i]);
        bool is_same = one == NULL || other == NULL
                           ? one == other
                           : dl_bytes_equal(dl_blob_bytes(one), dl_blob_bytes(other));
        if (!is_same
            || dl_table_queue_size(left, names[i])
                   != dl_table_queue_size(right, names[i])) {
            return false;
        }
    }
    return dl_table_num_keys(left) == dl_table_num_keys(right);
}

static dl_status
put_item(void *text, dl_bytes key, dl_bytes item)
{
    dl_put_bytes(text, key);
    dl_put_bytes(text, item);
    return DL_OK;
}

/* The items of all queues as text, of each the oldest first. */
static dl_buffer
items_of(dl_table *table)
{
    dl_buffer text = {0};

    CHECK_OK(dl_table_list_items(table, put_item, &text));
    return text;
}

#define NAMES 64

static void
change_at_random(kept *k, const dl_bytes *names, unsigned *seed, dl_bytes value)
{
    dl_bytes name = names[(unsigned)rand_r(seed) % NAMES];
    dl_blob *item = NULL;

    value.size = (size_t)rand_r(seed) % value.size;
    CHECK_OK(dl_journal_prepare(k->journal, name));
    switch (rand_r(seed) % 9) {
    case 0:
        CHECK_OK(dl_table_append(&k->table, name, (dl_bytes){value.data, 10}));
        break;
    case 1:
        (void)dl_table_delete(&k->table, name);
        break;
    case 2:
        /* Items of one queue only: a map's order is not that of another process. */
        CHECK_OK(dl_table_queue_push(&k->table, names[0], value));
        break;
    case 3:
    case 4:
        (void)dl_table_queue_pop(&k->table, names[0], &item);
        dl_blob_unref(item);
        break;
    default:
        CHECK_OK(dl_table_set(&k->table, name, value));
    }
}

/* The file is replaced several times while its contents change, and is right whenever the
 * server is killed. */
CHECK_CASE(a_file_that_has_grown_is_replaced_while_its_contents_change)
{
    static uint8_t bytes[200 << 10];
    static char texts[NAMES][8];
    dl_bytes names[NAMES];
    dl_bytes value = {bytes, sizeof bytes};
    uint64_t written = 0;
    unsigned seed = 1;
    static kept servers[7];
    kept *k = servers;
    struct stat file;

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 31);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof texts[i], "n%d", i);
        names[i] = dl_bytes_of(texts[i]);
    }
    start(k);
    for (int round = 0; round < 6; round++, k++) {
        for (int turn = 0; turn < 100; turn++) {
            for (int i = 0; i < 3; i++) {
                change_at_random(k, names, &seed, value);
            }
            CHECK_OK(dl_journal_commit(k->journal));
        }
        written += dl_journal_position(k->journal);
        dl_journal_close(k->journal);
        /* The table is kept for comparison; the file is as a killed server leaves it. */
        k[1] = *k;
        CHECK_OK(reopen(&k[1]));
        CHECK(has_same_contents(&k->table, &k[1].table, names, NAMES));
        dl_buffer items = items_of(&k->table);
        dl_buffer again = items_of(&k[1].table);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&items), dl_buffer_bytes(&again)));
        dl_buffer_fini(&items);
        dl_buffer_fini(&again);
        k->journal = NULL;
        end(k);
    }
    CHECK(stat(k->path, &file) == 0);
    CHECK(written > 64 << 20 && (uint64_t)file.st_size < written / 2);
    end(k);
    remove_folder(k);
}

CHECK_CASE(a_killed_server_s_unfinished_file_is_removed)
{
    kept k;
    char path[80];

    start(&k);
    end(&k);
    snprintf(path, sizeof path, "%s.new", k.path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    CHECK_OK(reopen(&k));
    CHECK(access(path, F_OK) != 0);
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(the_modes_have_names)
{
    dl_journal_sync sync = DL_JOURNAL_NEVER;

    CHECK_OK(dl_journal_sync_read("always", &sync));
    CHECK_EQUAL(sync, DL_JOURNAL_ALWAYS);
    CHECK_OK(dl_journal_sync_read("never", &sync));
    CHECK_EQUAL(sync, DL_JOURNAL_NEVER);
    CHECK_STATUS(dl_journal_sync_read("sometimes", &sync), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "\"never\", \"interval\" or \"always\"");
}

/* In place of the library's: while the gate is closed, a thread of the journal waits in
 * it, and a call by the test's own thread, which is the server's, is noted. */
static atomic_bool gate_is_closed;
static atomic_bool has_blocked;
static atomic_int waiting;
static atomic_int synced;
static pthread_t server_thread;

int
fdatasync(int fd)
{
    if (atomic_load(&gate_is_closed) && pthread_equal(pthread_self(), server_thread)) {
        atomic_store(&has_blocked, true);
        return 0;
    }
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&gate_is_closed)) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    atomic_fetch_sub(&waiting, 1);
    atomic_fetch_add(&synced, 1);
    return fsync(fd);
}

/* What a killed server wrote may be missing on the disk, and is served from then on. */
CHECK_CASE(what_an_earlier_server_wrote_is_synced_before_it_is_served)
{
    kept k;

    start(&k);
    set(&k, "a", "1");
    CHECK_OK(dl_journal_commit(k.journal));
    end(&k);
    int before = atomic_load(&synced);
    CHECK_OK(reopen(&k));
    CHECK_EQUAL(atomic_load(&synced), before + 1);
    CHECK(holds(&k, "a", "1"));
    end(&k);
    remove_folder(&k);
}

static void
start_gated(kept *k)
{
    const dl_journal_state state = {&k->table, &k->replies, k->identity};

    make_folder(k);
    server_thread = pthread_self();
    dl_table_init(&k->table);
    dl_replies_init(&k->replies);
    CHECK_OK(dl_journal_open(k->path, DL_JOURNAL_INTERVAL, &state, &k->journal));
    atomic_store(&gate_is_closed, true);
}

/* Does what a server does in a turn in which nothing is sent to it. */
static void
turn(kept *k)
{
    if (dl_journal_next_wake(k->journal) <= dl_now()) {
        dl_journal_wake(k->journal, dl_now());
    }
    CHECK_OK(dl_journal_commit(k->journal));
}

static void
open_gate(kept *k)
{
    atomic_store(&gate_is_closed, false);
    CHECK(!atomic_load(&has_blocked));
    while (atomic_load(&waiting) > 0) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
        turn(k);
    }
}

CHECK_CASE(a_slow_disk_does_not_hold_the_server)
{
    kept k;

    start_gated(&k);
    set(&k, "a", "1");
    CHECK_OK(dl_journal_commit(k.journal));
    int64_t at = dl_journal_next_wake(k.journal);
    CHECK(at <= dl_now() + DL_SECOND);
    dl_journal_wake(k.journal, at);
    for (int i = 0; i < 10; i++) {
        set(&k, "a", "2");
        turn(&k);
    }
    open_gate(&k);
    end(&k);
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "a", "2"));
    end(&k);
    remove_folder(&k);
}

static void
grow(kept *k, size_t size)
{
    static char value[1 << 20];

    memset(value, 'x', sizeof value - 1);
    for (size_t written = 0; written < size; written += sizeof value) {
        set(k, "large", value);
        CHECK_OK(dl_journal_commit(k->journal));
    }
}

static off_t
size_of_file(const kept *k)
{
    struct stat file;

    CHECK(stat(k->path, &file) == 0);
    return file.st_size;
}

CHECK_CASE(a_file_is_replaced_between_two_slow_syncs)
{
    static kept k;

    start_gated(&k);
    set(&k, "a", "1");
    CHECK_OK(dl_journal_commit(k.journal));
    dl_journal_wake(k.journal, dl_journal_next_wake(k.journal));
    grow(&k, 17 << 20);
    CHECK(size_of_file(&k) > 17 << 20);
    atomic_store(&gate_is_closed, false);
    for (int i = 0; i < 5000 && size_of_file(&k) > 17 << 20; i++) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
        dl_journal_wake(k.journal, dl_now() + 2 * DL_SECOND);
    }
    CHECK(size_of_file(&k) < 2 << 20);
    end(&k);
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "a", "1"));
    end(&k);
    remove_folder(&k);
}

/* Queues go on in all ways, in the old file and in the new one. */
CHECK_CASE(a_file_that_is_replaced_has_the_same_contents)
{
    static kept k, next;
    const dl_bytes names[] = {DL_LITERAL("q"), DL_LITERAL("r"), DL_LITERAL("s")};
    bool is_remembered;
    unsigned seed = 1;

    start(&k);
    for (int i = 0; i < 30000; i++) {
        CHECK_OK(dl_table_queue_push(&k.table, names[i % 2], DL_LITERAL("an item")));
    }
    for (int i = 0; i < 5000; i++) {
        dl_slot named = {.sequence = 1};
        memcpy(named.id, &i, sizeof i);
        CHECK(dl_replies_open(&k.replies, &k.table, &named, &is_remembered) != NULL);
    }
    grow(&k, 10 << 20);
    for (int step = 0; step < 300; step++) {
        char text[16];
        dl_bytes name = names[rand_r(&seed) % 3];
        dl_blob *item = NULL;
        snprintf(text, sizeof text, "%d", step);
        CHECK_OK(dl_journal_prepare(k.journal, name));
        switch (rand_r(&seed) % 4) {
        case 0:
            CHECK_OK(dl_table_queue_push(&k.table, name, dl_bytes_of(text)));
            break;
        case 1:
            item = dl_blob_copy(dl_bytes_of(text));
            CHECK_OK(dl_table_queue_put_back(&k.table, name, item));
            break;
        default:
            (void)dl_table_queue_pop(&k.table, name, &item);
            dl_blob_unref(item);
        }
        turn(&k);
        if (step == 150) {
            grow(&k, 8 << 20);
        }
    }
    set(&k, "late", "1");
    turn(&k);
    set(&k, "later", "2");
    dl_journal_close(k.journal);
    struct stat file;
    CHECK(stat(k.path, &file) == 0 && file.st_size < 6 << 20);
    next = k;
    CHECK_OK(reopen(&next));
    CHECK(has_same_contents(&k.table, &next.table, names, 3));
    CHECK(holds(&next, "late", "1") && holds(&next, "later", "2"));
    CHECK_EQUAL(next.replies.slots.count, 5000);
    for (int i = 0; i < 3; i++) {
        dl_blob *one = NULL, *other = NULL;
        while (dl_table_queue_pop(&k.table, names[i], &one) > 0) {
            CHECK(dl_table_queue_pop(&next.table, names[i], &other) > 0);
            CHECK(dl_bytes_equal(dl_blob_bytes(one), dl_blob_bytes(other)));
            dl_blob_unref(one);
            dl_blob_unref(other);
        }
    }
    k.journal = NULL;
    k.table.changes = NULL;
    end(&k);
    end(&next);
    remove_folder(&k);
}

CHECK_CASE(a_file_is_replaced_where_it_is_when_the_program_changes_its_folder)
{
    char elsewhere[] = "/tmp/journal-XXXXXX";
    struct stat before, now;
    kept k;

    make_folder(&k);
    CHECK(mkdtemp(elsewhere) != NULL);
    CHECK(chdir(k.folder) == 0);
    CHECK_OK(open_at(&k, "file"));
    CHECK(chdir(elsewhere) == 0 && stat(k.path, &before) == 0);
    do {
        grow(&k, 1 << 20);
        CHECK(stat(k.path, &now) == 0 && now.st_size < 200 << 20);
    } while (now.st_ino == before.st_ino);
    end(&k);
    CHECK(rmdir(elsewhere) == 0);
    remove_folder(&k);
}

CHECK_CASE(a_file_that_could_not_be_replaced_is_tried_again_soon)
{
    char path[80];
    kept k;

    start(&k);
    snprintf(path, sizeof path, "%s.new", k.path);
    CHECK(mkdir(path, 0700) == 0);
    grow(&k, 40 << 20);
    CHECK(size_of_file(&k) > 40 << 20);
    CHECK(rmdir(path) == 0);
    for (int i = 0; i < 17 && size_of_file(&k) > 40 << 20; i++) {
        grow(&k, 1 << 20);
    }
    CHECK(size_of_file(&k) < 4 << 20);
    end(&k);
    CHECK_OK(reopen(&k));
    end(&k);
    remove_folder(&k);
}

/* Sessions: what they reply waits for the journal. */

static void
open_kept_fixture(fixture *f, kept *k)
{
    make_folder(k);
    open_fixture(f);
    CHECK_OK(dl_hub_open_journal(&f->hub, k->path, DL_JOURNAL_ALWAYS));
}

static bool
has_reply(const dl_session *session)
{
    return dl_session_has_output(session);
}

CHECK_CASE(replies_wait_until_the_changes_of_the_round_are_written)
{
    fixture f;
    kept k;

    open_kept_fixture(&f, &k);
    CHECK(!dl_hub_has_work(&f.hub));
    CHECK_OK(
        dl_session_feed(&f.sessions[1], DL_LITERAL("\x86" U64("\1") U64("\1") "k")));
    dl_hub_commit(&f.hub);
    settle(&f);
    CHECK_OK(dl_session_feed(&f.sessions[0],
                             DL_LITERAL("\x81" U64("\1") "k" U64("\1") "v")));
    CHECK(has_reply(&f.sessions[0]) && has_reply(&f.sessions[1]));
    CHECK(!dl_session_may_send(&f.sessions[0]) && !dl_session_may_send(&f.sessions[1]));
    CHECK(dl_hub_has_work(&f.hub));
    dl_hub_commit(&f.hub);
    CHECK(dl_session_may_send(&f.sessions[0]) && dl_session_may_send(&f.sessions[1]));
    send_all(&f);
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_BYTES(heard(&f, 1), "\0\0");
    /* One that leaves meanwhile is not saved any more. */
    CHECK_OK(dl_session_feed(&f.sessions[2], DL_LITERAL("\x87")));
    dl_session_fini(&f.sessions[2]);
    dl_hub_commit(&f.hub);
    CHECK(!dl_hub_has_work(&f.hub));
    close_fixture(&f);
    remove_folder(&k);
}

/* A client whose change is not written gets the error and is disconnected; a client
 * that only reads gets the reply. */
CHECK_CASE(a_journal_that_cannot_be_written_fails_changes)
{
    fixture f;
    kept k;
    static uint8_t large[100];

    open_kept_fixture(&f, &k);
    limit_files(DL_JOURNAL_HEAD_SIZE + 10);
    CHECK_OK(dl_session_feed(&f.sessions[0], DL_LITERAL("\x87")));
    send_some(&f, 0, 0);
    CHECK_OK(dl_session_feed(&f.sessions[0],
                             DL_LITERAL("\x81" U64("\1") "k" U64("\1") "v")));
    CHECK_OK(dl_session_feed(&f.sessions[1], DL_LITERAL("\x83" U64("\1") "k")));
    CHECK_OK(dl_session_feed(&f.sessions[2],
                             DL_LITERAL("\x01" U64("\1") "p" U64("\1") "v\x07")));
    dl_hub_commit(&f.hub);
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[0]);
    CHECK_STATUS(dl_session_resume(&f.sessions[0]), DL_BACKEND);
    CHECK(dl_session_may_send(&f.sessions[0]));
    send_some(&f, 0, SIZE_MAX);
    dl_bytes told = heard(&f, 0);
    CHECK(told.size > 9 && told.data[0] == DL_BACKEND);
    CHECK_BYTES(((dl_bytes){told.data + 9, 19}), "the store's journal");
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[1]);
    CHECK_OK(dl_session_resume(&f.sessions[1]));
    send_some(&f, 1, SIZE_MAX);
    CHECK_BYTES(heard(&f, 1), "\0" U64("\1") "v");
    /* The protocol of a plain client has no error reply. */
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[2]);
    CHECK_STATUS(dl_session_resume(&f.sessions[2]), DL_BACKEND);
    CHECK(!has_reply(&f.sessions[2]));
    /* Later changes are refused before they are made, and reading goes on. */
    CHECK_OK(dl_session_feed(&f.sessions[1],
                             DL_LITERAL("\x81" U64("\1") "n" U64("\1") "v\x87")));
    dl_hub_commit(&f.hub);
    settle(&f);
    send_all(&f);
    told = heard(&f, 1);
    CHECK(told.size > 18 && told.data[0] == DL_BACKEND);
    CHECK_BYTES(((dl_bytes){told.data + told.size - 9, 9}), "\0" U64("\2"));
    /* A MULTI_SET of many keys is refused in the same way. */
    dl_bytes keys[200], values[200];
    for (int i = 0; i < 200; i++) {
        keys[i] = (dl_bytes){large, (size_t)i % 100};
        values[i] = DL_LITERAL("v");
    }
    told = ASK(1, .op = DL_OP_MULTI_SET, .is_checked = true, .count = 200, .keys = keys,
               .values = values);
    CHECK(told.size > 9 && told.data[0] == DL_BACKEND);
    limit_files(RLIM_INFINITY);
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, .is_checked = true, KEY("n"), VALUE("v")),
                "\0");
    dl_hub_commit(&f.hub);
    CHECK(f.sessions[1].client.phase != DL_PHASE_UNSAVED);
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 3);
    close_fixture(&f);
    CHECK_OK(reopen(&k));
    CHECK(holds(&k, "k", "v") && holds(&k, "p", "v") && holds(&k, "n", "v"));
    end(&k);
    remove_folder(&k);
}

/* The replies that a server keeps for its clients. */

static const dl_slot SLOT = {.id = "slot of a client", .sequence = 1};

static dl_reply_slot *
open_slot(kept *k, const dl_slot *named, bool *is_remembered)
{
    dl_reply_slot *slot = dl_replies_open(&k->replies, &k->table, named, is_remembered);

    CHECK(slot != NULL);
    return slot;
}

CHECK_CASE(replies_are_remembered)
{
    static uint8_t large[5000];
    const dl_store_request pop = {.op = DL_OP_QUEUE_POP, KEY("queue")};
    dl_slot named = SLOT;
    dl_blob *item = NULL;
    bool is_remembered = true;
    kept k;

    start(&k);
    dl_reply_slot *slot = open_slot(&k, &named, &is_remembered);
    CHECK(!is_remembered);
    CHECK_OK(dl_table_queue_push(&k.table, pop.key, DL_LITERAL("first")));
    CHECK_OK(dl_table_queue_push(&k.table, pop.key, (dl_bytes){large, sizeof large}));
    CHECK_EQUAL(dl_table_queue_pop(&k.table, pop.key, &item), 2);
    dl_blob_unref(item);
    uint64_t position = dl_journal_position(k.journal);
    dl_replies_begin(&k.replies, slot, 1, &pop);
    CHECK_EQUAL(dl_table_queue_pop(&k.table, pop.key, &item), 1);
    dl_replies_keep(&k.replies, &k.table, slot,
                    &(dl_table_reply){.number = 7, .value = item});
    CHECK_OK(dl_replies_record(&k.replies, slot));
    dl_blob_unref(item);
    /* The file has the item once. */
    CHECK(dl_journal_position(k.journal) - position < 200);
    end(&k);
    CHECK_OK(reopen(&k));
    slot = open_slot(&k, &named, &is_remembered);
    CHECK(is_remembered && dl_replies_has_reply(slot));
    CHECK_EQUAL(slot->sequence, 1);
    CHECK_EQUAL(slot->op, DL_OP_QUEUE_POP);
    CHECK_EQUAL(slot->outcome, DL_OUTCOME_DONE);
    CHECK_EQUAL(slot->number, 7);
    CHECK_EQUAL(slot->value->size, sizeof large);
    CHECK_BYTES(dl_buffer_bytes(&slot->name), "queue");
    CHECK(k.replies.size > sizeof large);
    /* The next change takes its place. */
    dl_replies_begin(&k.replies, slot, 2, &(dl_store_request){.op = DL_OP_SET});
    CHECK_OK(dl_replies_record(&k.replies, slot));
    end(&k);
    CHECK_OK(reopen(&k));
    named.sequence = 3;
    slot = open_slot(&k, &named, &is_remembered);
    CHECK(is_remembered && slot->value == NULL && !dl_replies_has_reply(slot));
    dl_replies_forget(&k.replies, slot);
    end(&k);
    CHECK_OK(reopen(&k));
    (void)open_slot(&k, &named, &is_remembered);
    CHECK(!is_remembered);
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(a_new_slot_is_known_before_its_first_change)
{
    bool is_remembered;
    kept k;

    start(&k);
    (void)open_slot(&k, &SLOT, &is_remembered);
    end(&k);
    CHECK_OK(reopen(&k));
    dl_reply_slot *slot = open_slot(&k, &SLOT, &is_remembered);
    CHECK(is_remembered && !dl_replies_has_reply(slot));
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(malformed_replies_are_refused)
{
    static const char *const values[] = {"", "\x63", "\x01\x09", "\x01\x01short"};
    dl_table table;
    dl_replies replies;
    dl_change change = {.kind = DL_CHANGE_REPLY, .key = DL_LITERAL("0123456789abcdef")};

    dl_table_init(&table);
    dl_replies_init(&replies);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        change.value = dl_bytes_of(values[i]);
        CHECK_STATUS(dl_replies_apply(&replies, &table, &change, (dl_bytes){0}, NULL),
                     DL_BACKEND);
    }
    change.key.size = 15;
    CHECK_STATUS(dl_replies_apply(&replies, &table, &change, (dl_bytes){0}, NULL),
                 DL_BACKEND);
    change =
        (dl_change){.kind = DL_CHANGE_FORGET, .key = DL_LITERAL("fedcba9876543210")};
    CHECK_OK(dl_replies_apply(&replies, &table, &change, (dl_bytes){0}, NULL));
    dl_replies_fini(&replies);
    dl_table_fini(&table);
}

/* However many slots a file has, they do not exceed the limit of memory. */
CHECK_CASE(slots_that_are_read_are_bounded)
{
    bool is_remembered;
    kept k;

    start(&k);
    for (uint8_t i = 0; i < 100; i++) {
        dl_slot named = SLOT;
        named.id[0] = i;
        (void)open_slot(&k, &named, &is_remembered);
    }
    size_t size = k.replies.size;
    end(&k);
    const dl_journal_state state = {&k.table, &k.replies, k.identity};
    dl_table_init(&k.table);
    dl_replies_init(&k.replies);
    k.replies.limit = size / 2;
    CHECK_OK(dl_journal_open(k.path, DL_JOURNAL_NEVER, &state, &k.journal));
    CHECK(k.replies.size > 0 && k.replies.size <= size / 2);
    end(&k);
    remove_folder(&k);
}

CHECK_CASE(a_failed_allocation_at_opening_leaves_nothing)
{
    bool has_failed = true;
    kept k;

    start(&k);
    set(&k, "a", "1");
    end(&k);
    for (long failing = 1; has_failed; failing++) {
        dl_check_fail_allocation_at(failing);
        dl_status status = reopen(&k);
        has_failed = dl_check_allocation_failed();
        CHECK(status == DL_OK || status == DL_NO_MEMORY);
        CHECK(status != DL_OK || holds(&k, "a", "1"));
        end(&k);
    }
    remove_folder(&k);
}

/* What could not be recorded is not acknowledged, and the file stays readable. */
CHECK_CASE(a_failed_allocation_is_reported_before_a_change_is_acknowledged)
{
    static uint8_t large[2 << 20];
    bool has_failed = true;

    for (long failing = 1; has_failed; failing++) {
        kept k;
        bool is_done;
        bool is_remembered;
        start(&k);
        set(&k, "a", "1");
        CHECK_OK(dl_journal_commit(k.journal));
        dl_check_fail_allocation_at(failing);
        is_done =
            dl_journal_prepare(k.journal, DL_LITERAL("b")) == DL_OK
            && dl_table_set(&k.table, DL_LITERAL("b"), (dl_bytes){large, sizeof large})
                   == DL_OK
            && dl_journal_commit(k.journal) == DL_OK
            && dl_replies_open(&k.replies, &k.table, &SLOT, &is_remembered) != NULL
            && dl_journal_commit(k.journal) == DL_OK;
        has_failed = dl_check_allocation_failed();
        CHECK(is_done || has_failed);
        /* There is memory again. */
        set(&k, "c", "3");
        CHECK_OK(dl_journal_commit(k.journal));
        lose(&k);
        CHECK_OK(reopen(&k));
        CHECK(holds(&k, "a", "1") && holds(&k, "c", "3"));
        const dl_blob *value = dl_table_get(&k.table, DL_LITERAL("b"));
        CHECK(!is_done || (value != NULL && value->size == sizeof large));
        CHECK(!is_done || k.replies.slots.count == 1);
        end(&k);
        remove_folder(&k);
    }
}

/* A file with more than the limits of the new server is read; changes are refused
 * then. */
CHECK_CASE(limits_do_not_hold_while_a_file_is_read)
{
    char key[16];
    kept k;

    start(&k);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        set(&k, key, "x");
    }
    end(&k);
    const dl_journal_state state = {&k.table, &k.replies, k.identity};
    dl_table_init(&k.table);
    dl_replies_init(&k.replies);
    k.table.key_limit = 2;
    k.table.size_limit = 1000;
    CHECK_OK(dl_journal_open(k.path, DL_JOURNAL_NEVER, &state, &k.journal));
    CHECK_EQUAL(dl_table_num_keys(&k.table), 100);
    CHECK_EQUAL(k.table.key_refusals + k.table.size_refusals, 0);
    CHECK_STATUS(dl_table_set(&k.table, DL_LITERAL("third"), DL_LITERAL("z")),
                 DL_NO_MEMORY);
    end(&k);
    remove_folder(&k);
}

/* A member that was killed off before it had the reply to a barrier gets it from the next
 * server, whatever has become of the counter. */
CHECK_CASE(a_barrier_that_is_over_stays_over)
{
    static const char *const ids[] = {"slot of client 0", "slot of client 1"};
    fixture f;
    kept k;

    open_kept_fixture(&f, &k);
    for (int i = 0; i < 2; i++) {
        (void)greet(&f, i, ids[i], 1);
        dl_hub_commit(&f.hub);
        send_all(&f);
    }
    for (int i = 0; i < 2; i++) {
        (void)ASK(i, .op = DL_OP_BARRIER, KEY("b"), .number = 2, .is_checked = true);
        dl_hub_commit(&f.hub);
    }
    CHECK_BYTES(ASK(2, .op = DL_OP_DELETE_KEY, KEY("b")), U64("\1"));
    dl_hub_commit(&f.hub);
    close_fixture(&f);
    open_fixture(&f);
    CHECK_OK(dl_hub_open_journal(&f.hub, k.path, DL_JOURNAL_ALWAYS));
    for (int i = 0; i < 2; i++) {
        (void)greet(&f, i, ids[i], 1);
        CHECK_BYTES(
            ASK(i, .op = DL_OP_BARRIER, KEY("b"), .number = 2, .is_checked = true),
            "\0\0");
        dl_hub_commit(&f.hub);
    }
    close_fixture(&f);
    remove_folder(&k);
}

/* A value that a change and its reply have in common is written once, and a change that
 * is repeated to the next server gets the same reply. */
CHECK_CASE(a_value_in_a_reply_is_written_once)
{
    static uint8_t large[20000];
    const dl_bytes value = {large, sizeof large};
    fixture f;
    kept k;

    memset(large, 'x', sizeof large);
    open_kept_fixture(&f, &k);
    for (int round = 0; round < 2; round++) {
        (void)greet(&f, 0, "slot of client 0", 1);
        (void)greet(&f, 1, "slot of client 1", round == 0 ? 1 : 2);
        uint64_t position = dl_journal_position(f.hub.journal);
        dl_bytes told = ASK(0, .op = DL_OP_COMPARE_SET, KEY("k"), .value = value);
        CHECK(told.size == 8 + sizeof large && told.data[8] == 'x');
        if (round == 0) {
            CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_PUSH, KEY("q"), .value = value), "");
        }
        told = ASK(1, .op = DL_OP_QUEUE_POP, KEY("q"));
        CHECK(told.size == 16 + sizeof large && told.data[0] == 1);
        uint64_t written = dl_journal_position(f.hub.journal) - position;
        CHECK(written < (round == 0 ? 2 * sizeof large + 1000 : 1000));
        dl_hub_commit(&f.hub);
        if (round == 0) {
            close_fixture(&f);
            open_fixture(&f);
            CHECK_OK(dl_hub_open_journal(&f.hub, k.path, DL_JOURNAL_ALWAYS));
        }
    }
    CHECK_EQUAL(dl_table_queue_size(&f.hub.table, DL_LITERAL("q")), 0);
    CHECK_EQUAL(f.hub.replies.repeated, 2);
    close_fixture(&f);
    remove_folder(&k);
}

/* Between two servers other clients make changes, whose values are not those of the
 * reply. */
CHECK_CASE(an_item_that_is_told_again_is_still_the_one_that_was_taken)
{
    fixture f;
    kept k;

    open_kept_fixture(&f, &k);
    (void)ASK(2, .op = DL_OP_QUEUE_PUSH, KEY("q"), VALUE("mine"));
    for (int round = 0; round < 3; round++) {
        (void)ASK(2, .op = DL_OP_SET, KEY("k"), VALUE("other"));
        (void)greet(&f, 0, "slot of client 0", 1);
        dl_bytes told = ASK(0, .op = DL_OP_QUEUE_POP, KEY("q"));
        CHECK_EQUAL(told.size, 16 + 4);
        CHECK(memcmp(told.data + 16, "mine", 4) == 0);
        dl_hub_commit(&f.hub);
        if (round < 2) {
            close_fixture(&f);
            open_fixture(&f);
            CHECK_OK(dl_hub_open_journal(&f.hub, k.path, DL_JOURNAL_ALWAYS));
        }
    }
    close_fixture(&f);
    remove_folder(&k);
}

/* What changed nothing has left no value to refer to: it is executed again. */
CHECK_CASE(a_comparison_that_failed_is_repeated_to_the_next_server)
{
    static uint8_t large[2000];
    fixture f;
    kept k;

    open_kept_fixture(&f, &k);
    for (int round = 0; round < 2; round++) {
        if (round == 0) {
            (void)ASK(2, .op = DL_OP_SET, KEY("k"), .value = {large, sizeof large});
            (void)ASK(2, .op = DL_OP_SET, KEY("other"), VALUE("x"));
            /* A lost slot is forgotten, which is a record, too. */
            (void)greet(&f, 1, "slot of client 1", 1);
            dl_session_fini(&f.sessions[1]);
            f.sessions[1] = (dl_session){0};
        }
        (void)greet(&f, 0, "slot of client 0", 1);
        f.hub.replies.limit = 100;
        dl_bytes told = ASK(0, .op = DL_OP_COMPARE_SET, KEY("k"),
                            .expected = DL_LITERAL("no"), VALUE("new"));
        CHECK_EQUAL(told.size, 8 + sizeof large);
        f.hub.replies.limit = 0;
        dl_hub_commit(&f.hub);
        if (round == 0) {
            close_fixture(&f);
            open_fixture(&f);
            CHECK_OK(dl_hub_open_journal(&f.hub, k.path, DL_JOURNAL_ALWAYS));
        }
    }
    close_fixture(&f);
    remove_folder(&k);
}
