/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "pg/record/recording_file.h"
#include "ranks.h"

static char folder[] = "/tmp/recorder-XXXXXX";

static pid_t owner;

/* At this moment the recording is still there. */
static void
remove_folder(void)
{
    char command[PATH_MAX];

    if (getpid() == owner) {
        snprintf(command, sizeof command, "rm -r %s", folder);
        CHECK(system(command) == 0);
    }
}

/* Each case is a process of its own, and makes its own recording. */
static void
begin(void)
{
    CHECK(mkdtemp(folder) != NULL);
    owner = getpid();
    atexit(remove_folder);
    setenv("DISTLITE_RUNTIME_DIR", folder, 1);
}

static dl_seat
join(const char *name)
{
    dl_seat seat = {0};

    dl_recorder_join(&seat, name, "cpu", 1, 4);
    return seat;
}

static const char *
path_of_own(void)
{
    static char path[PATH_MAX];

    dl_recorder_path(path);
    return path;
}

static const dl_fingerprint sum = {
    .op = DL_ALL_REDUCE, .dtype = DL_FLOAT32, .count_low = 1000, .root = 7};

static dl_record *
start(const dl_seat *seat, uint64_t sequence)
{
    return dl_recorder_start(seat, NULL, &sum, sequence, dl_deadline_after(DL_SECOND));
}

static uint64_t
state_of(const dl_record *record)
{
    return dl_record_state(atomic_load(&record->what));
}

CHECK_CASE(an_operation_is_written_down)
{
    begin();
    dl_seat seat = join("0");
    dl_recorder_site = 9;
    dl_record *record = start(&seat, 17);

    CHECK(record != NULL && state_of(record) == DL_RECORD_RUNNING);
    CHECK_EQUAL(atomic_load(&seat.row->begun), 17);
    CHECK_EQUAL(atomic_load(&record->sequence), 17);
    CHECK_EQUAL(atomic_load(&record->count), 1000);
    CHECK_EQUAL(atomic_load(&record->place), 1 | UINT64_C(9) << 32);
    CHECK_EQUAL(atomic_load(&record->what), DL_ALL_REDUCE | DL_FLOAT32 << 8
                                                | DL_RECORD_RUNNING << 24
                                                | UINT64_C(7) << 32);
    CHECK(!dl_recorder_take_failure());
    dl_recorder_end_in(&seat, record, DL_TIMEOUT, dl_now());
    CHECK(state_of(record) == DL_RECORD_ENDED);
    CHECK_EQUAL(dl_record_status(atomic_load(&record->what)), DL_TIMEOUT);
    CHECK(atomic_load(&record->ended) >= atomic_load(&record->started));
    CHECK(atomic_load(&record->started) > 0);
    CHECK_EQUAL(atomic_load(&record->version) % 2, 0);
    CHECK(dl_recorder_take_failure() && !dl_recorder_take_failure());
}

CHECK_CASE(each_status_is_written_down)
{
    begin();
    dl_seat seat = join("0");

    for (int status = DL_OK; status <= DL_STATUS_LAST; status++) {
        dl_record *record = start(&seat, 1);
        dl_recorder_end(record, (dl_status)status);
        uint64_t what = atomic_load(&record->what);
        CHECK_EQUAL(dl_record_status(what), status);
        CHECK(dl_record_state(what) == DL_RECORD_ENDED && dl_record_root(what) == 7);
    }
}

CHECK_CASE(a_queued_one_starts_later)
{
    begin();
    dl_seat seat = join("0");
    dl_deadline never = dl_deadline_after(-1);
    dl_record *record = dl_recorder_queue(&seat, &sum, never);

    CHECK(state_of(record) == DL_RECORD_QUEUED && atomic_load(&record->started) == 0);
    CHECK_EQUAL(atomic_load(&seat.row->begun), 0);
    CHECK(dl_recorder_start(&seat, record, &sum, 3, never) == record);
    CHECK(state_of(record) == DL_RECORD_RUNNING);
    CHECK(atomic_load(&record->started) >= atomic_load(&record->queued));
    CHECK_EQUAL(atomic_load(&record->sequence), 3);
    CHECK_EQUAL(atomic_load(&seat.row->begun), 3);
}

CHECK_CASE(operations_of_one_call_do_not_overlap)
{
    begin();
    dl_seat seat = join("0");
    dl_deadline deadline = dl_deadline_after(DL_SECOND);

    for (uint64_t i = 1; i < 4; i++) {
        int64_t last = atomic_load(&seat.row->last_ended);
        dl_record *record = dl_recorder_start(&seat, NULL, &sum, i, deadline);
        CHECK(atomic_load(&record->started) >= last);
        dl_recorder_end_in(&seat, record, DL_OK, dl_now());
    }
}

CHECK_CASE(the_one_that_hangs_is_not_lost)
{
    begin();
    setenv("TORCH_FR_BUFFER_SIZE", "5", 1);
    dl_seat seat = join("0");
    dl_record *hung = start(&seat, 1);

    for (uint64_t i = 2; i < 40; i++) {
        dl_record *record = start(&seat, i);
        CHECK(record != NULL && record != hung);
        dl_recorder_end_in(&seat, record, DL_OK, dl_now());
    }
    CHECK_EQUAL(atomic_load(&hung->sequence), 1);
    /* Eight rows, all of them taken. */
    for (uint64_t i = 0; i < 7; i++) {
        CHECK(start(&seat, 40 + i) != NULL);
    }
    CHECK(start(&seat, 50) == NULL);
    dl_recorder_end_in(&seat, NULL, DL_OK, dl_now());
    dl_recorder_end(hung, DL_OK);
    CHECK(start(&seat, 51) == hung);
}

CHECK_CASE(zero_rows_turn_it_off)
{
    begin();
    setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    dl_seat seat = join("0");
    dl_buffer copy = {0};

    CHECK(seat.row == NULL && !dl_recorder_is_on());
    CHECK(start(&seat, 1) == NULL);
    CHECK_EQUAL(dl_recorder_add_site("x.py", "f", 1), 0);
    CHECK_TEXT(path_of_own(), "");
    CHECK_OK(dl_recorder_snapshot(&copy));
    CHECK_EQUAL(copy.size, 0);
    dl_buffer_fini(&copy);
}

CHECK_CASE(rows_of_closed_groups_are_given_again)
{
    begin();
    dl_seat first = join("first");
    dl_seat second = join("second");

    for (int i = 0; i < 126; i++) {
        CHECK(join("other").row != NULL);
    }
    CHECK(join("one too many").row == NULL);
    dl_recorder_leave(&second);
    dl_seat next = join("next");
    CHECK(next.row == second.row && next.serial != second.serial);
    /* Closing twice is not closing another's. */
    dl_recorder_leave(&second);
    CHECK_EQUAL(atomic_load(&next.row->is_open), 1);
    CHECK_EQUAL(atomic_load(&first.row->members), 1 | UINT64_C(4) << 32);
}

CHECK_CASE(a_site_has_one_number)
{
    char path[300];

    begin();
    join("0");
    uint32_t one = dl_recorder_add_site("a.py", "f", 1);
    CHECK(one != 0 && one != dl_recorder_add_site("a.py", "f", 2));
    CHECK_EQUAL(dl_recorder_add_site("a.py", "f", 1), one);
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    uint32_t tail = dl_recorder_add_site(path, path, 3);
    CHECK_EQUAL(dl_recorder_add_site(path, path, 3), tail);
    for (int line = 10; line < 1100; line++) {
        dl_recorder_add_site("b.py", "g", line);
    }
    CHECK_EQUAL(dl_recorder_add_site("c.py", "h", 1), 0);
    CHECK_EQUAL(dl_recorder_add_site("a.py", "f", 1), one);
}

CHECK_CASE(names_without_end_at_one_line_leave_room_for_the_others)
{
    char name[32];
    int found = 0;

    begin();
    join("0");
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "step %d", i);
        found += dl_recorder_add_label("a.py", name, 1) != 0;
    }
    CHECK(found >= 16 && found <= 32);
    for (int line = 2; line <= 980; line++) {
        CHECK(dl_recorder_add_site("a.py", "f", line) != 0);
    }
}

/* The recording as another process finds it. */
static dl_recording_header
open_file(void **memory)
{
    dl_recording_header header;
    struct stat found;
    int fd = open(path_of_own(), O_RDONLY);

    CHECK(fd >= 0 && fstat(fd, &found) == 0);
    CHECK_EQUAL(found.st_mode & 0777, 0600);
    *memory = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(*memory != MAP_FAILED);
    CHECK(dl_recording_check(*memory, (size_t)found.st_size, &header));
    CHECK(!dl_recording_check(*memory, (size_t)found.st_size - 1, &header));
    CHECK(dl_recording_check(*memory, (size_t)found.st_size, &header));
    close(fd);
    return header;
}

CHECK_CASE(others_find_the_file)
{
    void *memory;

    begin();
    dl_seat seat = join("0");
    dl_recorder_identify("a job", 1, 4);
    dl_recorder_end_in(&seat, start(&seat, 1), DL_OK, dl_now());
    dl_recording_header header = open_file(&memory);
    CHECK_EQUAL(header.pid, getpid());
    CHECK(header.process_start != 0 && header.to_wall_clock > 0);
    CHECK_EQUAL(header.rank, 1);
    CHECK_EQUAL(header.size, 4);
    CHECK_TEXT(header.job, "a job");
    CHECK_CONTAINS(header.command, "recorder");
    CHECK_CONTAINS(path_of_own(), "/job-a_job/");
}

CHECK_CASE(a_forked_child_makes_its_own)
{
    begin();
    dl_seat seat = join("0");
    char path[PATH_MAX];
    int status;

    strcpy(path, path_of_own());
    pid_t child = fork();
    if (child == 0) {
        join("0");
        exit(strcmp(path, path_of_own()) == 0 || access(path, F_OK) != 0
             || access(path_of_own(), F_OK) != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(access(path, F_OK) == 0 && seat.row != NULL);
}

CHECK_CASE(a_forked_child_does_not_write_to_inherited_descriptors)
{
    begin();
    dl_seat seat = join("0");
    dl_record *record = start(&seat, 1);
    dl_buffer copy = {0};
    int status;

    pid_t child = fork();
    if (child == 0) {
        dl_recorder_end(record, DL_CLOSED);
        dl_recorder_leave(&seat);
        CHECK(!dl_recorder_is_on());
        CHECK_OK(dl_recorder_snapshot(&copy));
        _exit(copy.size != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(state_of(record) == DL_RECORD_RUNNING);
    CHECK_EQUAL(atomic_load(&seat.row->is_open), 1);
    CHECK_EQUAL(atomic_load(&seat.row->begun), 1);
}

/* A rank of `job`, as a process of its own: it joins, reports that, and waits for a byte
 * that ends it, or for its death. */
typedef struct member {
    pid_t pid;
    int orders;
} member;

static member
start_member(const char *job, int rank)
{
    int orders[2];
    int answers[2];
    char byte = 0;

    CHECK(pipe(orders) == 0 && pipe(answers) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(orders[1]);
        dl_recorder_identify(job, rank, 4);
        join("0");
        CHECK(write(answers[1], &byte, 1) == 1);
        CHECK(read(orders[0], &byte, 1) == 1);
        exit(byte == 'c' && dl_recorder_claim_table());
    }
    CHECK(pid > 0 && read(answers[0], &byte, 1) == 1);
    close(orders[0]);
    close(answers[0]);
    close(answers[1]);
    return (member){pid, orders[1]};
}

/* How it ended; '\0': it has its order already. */
static int
end_member(member member, char order)
{
    int status;

    if (order == 'k') {
        kill(member.pid, SIGKILL);
    } else if (order != '\0') {
        CHECK(write(member.orders, &order, 1) == 1);
    }
    CHECK(waitpid(member.pid, &status, 0) == member.pid);
    close(member.orders);
    return status;
}

static bool
has_folder(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int
count_files(const char *name)
{
    char path[PATH_MAX];
    int count = 0;
    struct dirent *entry;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    DIR *list = opendir(path);
    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL) {
        count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    }
    closedir(list);
    return count;
}

CHECK_CASE(a_killed_rank_s_files_are_removed_with_the_last_of_its_job)
{
    begin();
    member first = start_member("one", 0);
    member killed = start_member("one", 1);
    member last = start_member("one", 2);

    end_member(killed, 'k');
    CHECK_EQUAL(count_files("job-one"), 3);
    /* Another job of this user sees that it lives. */
    CHECK_EQUAL(end_member(start_member("other", 0), 'e'), 0);
    CHECK(!has_folder("job-other"));
    CHECK_EQUAL(end_member(first, 'e'), 0);
    CHECK_EQUAL(count_files("job-one"), 2);
    CHECK_EQUAL(end_member(last, 'e'), 0);
    CHECK(!has_folder("job-one"));
}

CHECK_CASE(a_job_that_died_as_a_whole_goes_with_the_beginnings_of_others)
{
    begin();
    member first = start_member("one", 0);
    member second = start_member("one", 1);

    end_member(first, 'k');
    end_member(second, 'k');
    CHECK_EQUAL(count_files("job-one"), 2);
    /* A job sweeps for a few milliseconds at most: on a slow machine it leaves the rest
     * to later ones. */
    for (int jobs = 0; has_folder("job-one"); jobs++) {
        CHECK(jobs < 50);
        CHECK_EQUAL(end_member(start_member("other", 0), 'e'), 0);
    }
    member next = start_member("two", 0);
    CHECK_EQUAL(count_files("job-two"), 1);
    end_member(next, 'k');
    dl_recordings_sweep();
    CHECK(!has_folder("job-two"));
}

CHECK_CASE(one_rank_of_a_job_claims_the_table)
{
    int claimed = 0;

    begin();
    for (int job = 0; job < 2; job++) {
        member members[4];
        for (int rank = 0; rank < 4; rank++) {
            members[rank] = start_member(job == 0 ? "one" : "two", rank);
        }
        for (int rank = 0; rank < 4; rank++) {
            CHECK(write(members[rank].orders, "c", 1) == 1);
        }
        for (int rank = 0; rank < 4; rank++) {
            claimed += end_member(members[rank], '\0') != 0;
        }
        CHECK_EQUAL(claimed, job + 1);
    }
}

CHECK_CASE(a_claim_holds_for_a_while)
{
    dl_job_folder job = {0};

    begin();
    CHECK(dl_job_folder_enter(&job, folder, "job-x"));
    CHECK(dl_job_folder_claim(&job, 1000, 100));
    CHECK(!dl_job_folder_claim(&job, 1100, 100));
    CHECK(dl_job_folder_claim(&job, 1101, 100));
    dl_job_folder_leave(&job);
    dl_job_folder_leave(&job);
    CHECK(!has_folder("job-x"));
}

static bool
note_path(void *context, const char *path, dl_buffer *snapshot)
{
    strcat(strcat(context, " "), path);
    CHECK(snapshot->size > sizeof(dl_recording_header));
    return true;
}

CHECK_CASE(a_job_reads_no_other)
{
    char paths[4 * PATH_MAX] = "";
    char name[64];

    begin();
    member other = start_member("two", 0);
    member peer = start_member("one", 1);
    join("before the job is known");
    CHECK_CONTAINS(path_of_own(), "/process-");
    dl_recorder_visit_job(note_path, paths);
    CHECK_TEXT(paths, "");
    dl_recorder_identify("one", 0, 2);
    CHECK_CONTAINS(path_of_own(), "/job-one/");
    CHECK(access(path_of_own(), F_OK) == 0);
    dl_recorder_visit_job(note_path, paths);
    snprintf(name, sizeof name, "-%d-", (int)peer.pid);
    CHECK_CONTAINS(paths, name);
    CHECK_CONTAINS(paths, "/job-one/");
    CHECK(strchr(paths + 1, ' ') == NULL);
    end_member(peer, 'e');
    end_member(other, 'e');
}

/* Ranks whose recording cannot be found log that, and go on. */
static void
check_told(const char *text)
{
    char told[512] = "";
    int ends[2];
    int kept = dup(STDERR_FILENO);

    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    dl_seat seat = join("0");
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    CHECK(read(ends[0], told, sizeof told - 1) >= 0);
    CHECK(strstr(told, text) != NULL);
    CHECK(seat.row != NULL);
    CHECK_TEXT(path_of_own(), "");
}

CHECK_CASE(a_folder_of_others_is_not_used)
{
    begin();
    CHECK(chmod(folder, 0755) == 0);
    check_told("the folder must belong to this user and have mode 0700");
}

CHECK_CASE(a_folder_that_cannot_be_made_is_an_error)
{
    begin();
    setenv("DISTLITE_RUNTIME_DIR", "/nowhere/at/all", 1);
    check_told("DISTLITE_RUNTIME_DIR=/nowhere/at/all: No such file or directory");
}

CHECK_CASE(a_folder_has_a_whole_path)
{
    begin();
    setenv("DISTLITE_RUNTIME_DIR", "here", 1);
    check_told("DISTLITE_RUNTIME_DIR=here: it must be an absolute path");
}

static atomic_bool is_over;

/* Rows whose words all derive from one of them, so that a torn row is noticed. */
static void
write_rows(const dl_seat *seat)
{
    for (uint64_t i = 1; i <= 20000; i++) {
        dl_fingerprint what = {.op = DL_BARRIER, .count_low = (uint32_t)i};
        dl_deadline deadline = {.at = (int64_t)(2 * i), .limit = (int64_t)i};
        dl_record *record = dl_recorder_post(seat, &what, (int64_t)i, deadline);
        CHECK(record != NULL);
        dl_recorder_end(record, DL_OK);
    }
}

static void
read_rows(void)
{
    dl_buffer copy = {0};

    while (!atomic_load(&is_over)) {
        CHECK_OK(dl_recorder_snapshot(&copy));
        const dl_recording_header *header = (const void *)copy.data;
        dl_recording tables = dl_recording_at(copy.data, header);
        for (uint64_t i = 0; i < header->record_count; i++) {
            const dl_record *row = &tables.records[i];
            CHECK_EQUAL(row->version % 2, 0);
            CHECK_EQUAL(row->count, row->sequence);
            CHECK_EQUAL(row->count, row->started);
        }
    }
    dl_buffer_fini(&copy);
}

static void
write_or_read(int rank, int size, void *context)
{
    atomic_int *writers = context;

    if (rank == size - 1) {
        read_rows();
        return;
    }
    dl_seat seat = join("0");
    write_rows(&seat);
    if (atomic_fetch_sub(writers, 1) == 1) {
        atomic_store(&is_over, true);
    }
}

CHECK_CASE(readers_never_see_half_a_row)
{
    atomic_int writers;

    begin();
    setenv("TORCH_FR_BUFFER_SIZE", "16", 1);
    join("0"); /* the reader may be first, and is to find a recording */
    atomic_init(&writers, 2);
    dl_run_ranks(3, write_or_read, &writers);
}

CHECK_CASE(a_writer_killed_half_way_spoils_no_later_row)
{
    const uint64_t words[] = {0, 5, 6};
    _Atomic uint64_t row[3];
    uint64_t found[3];

    atomic_init(&row[0], 7); /* odd, as the writer left it */
    atomic_init(&row[1], 5);
    atomic_init(&row[2], 0);
    CHECK(!dl_row_read(row, found, 3));
    dl_row_write(row, words, 3);
    CHECK(dl_row_read(row, found, 3) && found[1] == 5 && found[2] == 6);
    dl_row_write(row, words, 3);
    CHECK(dl_row_read(row, found, 3));
}

CHECK_CASE(absurd_bytes_are_no_recording)
{
    union {
        dl_recording_header header;
        uint64_t words[64];
    } memory = {0};
    dl_recording_header header;

    memcpy(memory.header.magic, DL_RECORDING_MAGIC, sizeof memory.header.magic);
    memory.header.record_count = 1;
    CHECK(dl_recording_check(&memory, sizeof memory, &header));
    CHECK(!dl_recording_check(&memory, 64, &header));
    memory.header.version = 1;
    CHECK(!dl_recording_check(&memory, sizeof memory, &header));
    memory.header.version = 2;
    memory.header.record_count = 3;
    CHECK(!dl_recording_check(&memory, SIZE_MAX, &header));
    memory.header.record_count = UINT64_MAX;
    CHECK(!dl_recording_check(&memory, SIZE_MAX, &header));
    memory.header.record_count = 1;
    memory.header.magic[3] = 'x';
    CHECK(!dl_recording_check(&memory, SIZE_MAX, &header));
}
