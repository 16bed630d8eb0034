/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/thread.h"
#include "pg/record/recording_file.h"

/* Rows inspected for a free one before an operation is left unrecorded. */
#define LOOKS 256

/* Enough for a person to read, and for the last steps of a training loop. */
#define RECORDS 512
#define RECORDS_LIMIT (1 << 20)
#define GROUPS 128
#define SITES 1024
/* The rows in which a label of a line may be.  A loop that names its operations anew each
 * time fills those of its own line only, and does not search the whole table each time. */
#define LABEL_ROWS 32
#define WAITS 32

/* The contents of a new row, besides the fingerprint. */
typedef struct entry {
    int64_t queued;
    int64_t started;
    int64_t ended;
    int64_t sequence;
    uint64_t state;
} entry;

_Thread_local uint32_t dl_recorder_site;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dl_recorder recorder;
/* guarded by lock */
static dl_recording_header header;
static bool is_made;
static dl_job_folder folder;
static char own_path[PATH_MAX];
static uint64_t last_serial;
/* read without the lock */
static atomic_bool is_on;
static atomic_bool has_failure;

const dl_recorder *
dl_recorder_self(void)
{
    return &recorder;
}

static void
publish_header_locked(void)
{
    if (is_made) {
        header.dropped = atomic_load(&recorder.dropped);
        dl_row_write(recorder.tables.header, &header, DL_ROW_WORDS(header));
    }
}

static uint64_t
wanted_records(void)
{
    const char *text = getenv("TORCH_FR_BUFFER_SIZE");
    char *end;
    long wanted = text == NULL ? RECORDS : strtol(text, &end, 10);
    uint64_t count = 1;

    if (text != NULL && (end == text || *end != '\0' || wanted < 0)) {
        wanted = RECORDS;
    }
    if (wanted == 0) {
        return 0;
    }
    while (count < (uint64_t)wanted && count < RECORDS_LIMIT) {
        count *= 2;
    }
    return count;
}

/* Writes the command line of the process, with spaces between the arguments. */
static void
put_command(char *text, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);

    for (ssize_t i = 0; i + 1 < got; i++) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void
name_job_locked(const char *job)
{
    memset(header.job, 0, sizeof header.job);
    snprintf(header.job, sizeof header.job, "%s", job);
}

/* What a forked child inherited still refers to the parent's recording, so memory of its
 * own takes the place of that. */
static void
reset_recording(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (is_made) {
        is_made = false;
        atomic_store(&is_on, false);
        (void)mmap(recorder.tables.header, dl_recording_size(&header),
                   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0);
    }
}

__attribute__((constructor)) static void
init_recording(void)
{
    dl_reset_at_fork(reset_recording);
}

/* Makes the recording.  The memory is never unmapped: works may end after their group,
 * and a forked child still refers to its parent's. */
static void
make_locked(const char *job)
{
    header = (dl_recording_header){
        .record_count = wanted_records(),
        .group_count = GROUPS,
        .site_count = SITES,
        .wait_count = WAITS,
        .created = dl_now(),
        .rank = -1,
    };
    memcpy(header.magic, DL_RECORDING_MAGIC, sizeof header.magic);
    is_made = false;
    last_serial = 0;
    folder = (dl_job_folder){0};
    own_path[0] = '\0';
    name_job_locked(job);
    if (header.record_count == 0) {
        return;
    }
    header.to_wall_clock = dl_wall_clock() - header.created;
    dl_recording_identify(&header);
    put_command(header.command, sizeof header.command);
    void *memory = dl_recording_create(&header, dl_recording_size(&header), &folder);
    if (memory == NULL) {
        return;
    }
    dl_recording_path(&folder, &header, own_path);
    recorder.tables = dl_recording_at(memory, &header);
    recorder.mask = (uint32_t)header.record_count - 1;
    is_made = true;
    publish_header_locked();
    atomic_store(&is_on, true);
}

/* `job` is empty if it is not known yet. */
static void
make_once_locked(const char *job)
{
    if (!is_made) {
        make_locked(job);
    }
}

void
dl_recorder_make(void)
{
    pthread_mutex_lock(&lock);
    make_once_locked("");
    pthread_mutex_unlock(&lock);
}

/* Finds the first row that no open group has, beginning at that of the next serial. */
static dl_recorded_group *
find_row_locked(uint64_t *serial)
{
    for (uint64_t i = last_serial + 1; i <= last_serial + GROUPS; i++) {
        dl_recorded_group *row = &recorder.tables.groups[i % GROUPS];
        if (atomic_load_explicit(&row->is_open, memory_order_relaxed) == 0) {
            *serial = i;
            return row;
        }
    }
    return NULL;
}

static void
give_row_locked(dl_seat *seat, dl_plain_group *group)
{
    dl_recorded_group *row = find_row_locked(&group->serial);

    if (row != NULL) {
        last_serial = group->serial;
        dl_row_write(&row->version, group, DL_ROW_WORDS(*group));
        *seat = (dl_seat){row, group->serial};
    }
}

void
dl_recorder_join(dl_seat *seat, const char *name, const char *backend, int rank,
                 int size)
{
    dl_plain_group group = {.members = (uint32_t)rank | (uint64_t)size << 32,
                            .is_open = 1};

    snprintf(group.name, sizeof group.name, "%s", name);
    snprintf(group.backend, sizeof group.backend, "%s", backend);
    pthread_mutex_lock(&lock);
    make_once_locked("");
    if (is_made) {
        give_row_locked(seat, &group);
        /* Not when the recording is made: then no process is in its job's folder yet. */
        dl_job_folder_sweep(&folder);
    }
    pthread_mutex_unlock(&lock);
}

void
dl_recorder_leave(const dl_seat *seat)
{
    /* The row may belong to another group by now. */
    if (seat->row != NULL
        && atomic_load_explicit(&seat->row->serial, memory_order_relaxed)
               == seat->serial) {
        atomic_store_explicit(&seat->row->is_open, 0, memory_order_release);
    }
}

void
dl_recorder_identify(const char *job, int rank, int size)
{
    pthread_mutex_lock(&lock);
    make_once_locked(job);
    if (strncmp(header.job, job, sizeof header.job - 1) != 0) {
        name_job_locked(job);
        dl_recording_move(&header, &folder);
        dl_recording_path(&folder, &header, own_path);
    }
    header.rank = rank;
    header.size = size;
    publish_header_locked();
    pthread_mutex_unlock(&lock);
}

bool
dl_recorder_claim_table(void)
{
    pthread_mutex_lock(&lock);
    bool is_mine = is_made && dl_job_folder_claim(&folder, dl_now(), DL_RECORDER_QUIET);
    pthread_mutex_unlock(&lock);
    return is_mine;
}

void
dl_recorder_end_table(void)
{
    pthread_mutex_lock(&lock);
    dl_job_folder_end_claim(&folder, dl_now());
    pthread_mutex_unlock(&lock);
}

void
dl_recorder_visit_job(dl_recording_visit_fn visit, void *context)
{
    dl_recording_header mine = {0};

    pthread_mutex_lock(&lock);
    bool has_others = is_made && header.job[0] != '\0';
    mine = header;
    pthread_mutex_unlock(&lock);
    if (has_others) {
        dl_recordings_of_job(&mine, visit, context);
    }
}

/* Returns the end of a long path, which identifies the file better than its
 * beginning. */
static const char *
tail_of(const char *text, size_t room)
{
    size_t size = strlen(text);

    return size < room ? text : text + size - room + 1;
}

/* Returns the row of the site, or the empty row where it belongs; SITES if neither is
 * among so many rows. */
static uint32_t
find_site_locked(const dl_plain_site *wanted, uint32_t rows)
{
    uint32_t first = (uint32_t)(dl_hash(dl_bytes_of(wanted->file)) + wanted->line * 31);
    dl_plain_site found;

    for (uint32_t i = first; i != first + rows; i++) {
        const dl_recorded_site *row = &recorder.tables.sites[i % SITES];
        dl_row_read(&row->version, &found, DL_SITE_WORDS);
        if (found.version == 0
            || (found.line == wanted->line && strcmp(found.file, wanted->file) == 0
                && strcmp(found.function, wanted->function) == 0)) {
            return i % SITES;
        }
    }
    return SITES;
}

static uint32_t
add_site_locked(const dl_plain_site *site, uint32_t rows)
{
    uint32_t number = find_site_locked(site, rows);

    if (number == SITES) {
        return 0;
    }
    dl_recorded_site *row = &recorder.tables.sites[number];
    if (atomic_load_explicit(&row->version, memory_order_relaxed) == 0) {
        dl_row_write(&row->version, site, DL_SITE_WORDS);
    }
    return number + 1;
}

static uint32_t
add_site(const char *file, const char *function, int line, uint32_t rows)
{
    dl_plain_site site = {.line = (uint64_t)line};

    snprintf(site.file, sizeof site.file, "%s", tail_of(file, sizeof site.file));
    snprintf(site.function, sizeof site.function, "%s", function);
    pthread_mutex_lock(&lock);
    uint32_t number = is_made ? add_site_locked(&site, rows) : 0;
    pthread_mutex_unlock(&lock);
    return number;
}

uint32_t
dl_recorder_add_site(const char *file, const char *function, int line)
{
    return add_site(file, function, line, SITES);
}

uint32_t
dl_recorder_add_label(const char *file, const char *label, int line)
{
    return add_site(file, label, line, LABEL_ROWS);
}

void
dl_recorder_describe_site(uint64_t place, char text[DL_DOING_SITE_SIZE])
{
    uint64_t number = place >> 32;

    text[0] = '\0';
    if (number > 0) {
        dl_doing_describe_site(&recorder.tables.sites[number - 1], text);
    }
}

/* Takes a free row, to which no other thread writes while its version is odd. */
static dl_record *
take_row(void)
{
    uint32_t at = atomic_load_explicit(&recorder.next, memory_order_relaxed);

    for (uint32_t end = at + LOOKS; at != end; at++) {
        dl_record *record = &recorder.tables.records[at & recorder.mask];
        uint64_t version = atomic_load_explicit(&record->version, memory_order_acquire);
        uint8_t state =
            dl_record_state(atomic_load_explicit(&record->what, memory_order_relaxed));
        if (version % 2 == 1 || state == DL_RECORD_QUEUED
            || state == DL_RECORD_RUNNING) {
            continue;
        }
        if (atomic_compare_exchange_strong_explicit(&record->version, &version,
                                                    version + 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            atomic_store_explicit(&recorder.next, at + 1, memory_order_relaxed);
            return record;
        }
    }
    /* The header is not written here, since this may be any thread at any time. */
    atomic_fetch_add_explicit(&recorder.dropped, 1, memory_order_relaxed);
    return NULL;
}

static void
open_row(dl_record *record)
{
    uint64_t version = atomic_load_explicit(&record->version, memory_order_relaxed);

    atomic_store_explicit(&record->version, version + 1, memory_order_relaxed);
}

/* After this, others may take the row if its operation has ended. */
static void
close_row(dl_record *record)
{
    uint64_t version = atomic_load_explicit(&record->version, memory_order_relaxed);

    atomic_store_explicit(&record->version, version + 1, memory_order_release);
}

static dl_record *
record_new(const dl_seat *seat, const dl_fingerprint *what, const entry *entry)
{
    dl_record *record = take_row();

    if (record == NULL) {
        return NULL;
    }
    uint64_t packed = what->op | (uint64_t)what->dtype << 8
                      | (uint64_t)dl_fingerprint_reduce_op(what) << 16
                      | entry->state << DL_RECORD_STATE_SHIFT
                      | (uint64_t)what->root << 32;
    uint64_t place = (seat->serial & UINT32_MAX) | (uint64_t)dl_recorder_site << 32;
    atomic_store_explicit(&record->queued, entry->queued, memory_order_release);
    atomic_store_explicit(&record->started, entry->started, memory_order_release);
    atomic_store_explicit(&record->ended, entry->ended, memory_order_release);
    atomic_store_explicit(&record->sequence, entry->sequence, memory_order_release);
    atomic_store_explicit(&record->count, dl_fingerprint_count(what),
                          memory_order_release);
    atomic_store_explicit(&record->place, place, memory_order_release);
    atomic_store_explicit(&record->what, packed, memory_order_release);
    close_row(record);
    return record;
}

/* Takes the time of the call from its deadline, because reading the clock again would
 * be half of the cost of recording.  Operations of one call share a deadline; so that
 * they do not overlap, none starts before the one before has ended. */
static int64_t
start_of(const dl_seat *seat, dl_deadline deadline)
{
    int64_t start = dl_deadline_start(deadline);
    int64_t last = atomic_load_explicit(&seat->row->last_ended, memory_order_relaxed);

    return start > last ? start : last;
}

dl_record *
dl_recorder_queue(const dl_seat *seat, const dl_fingerprint *what, dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    entry entry = {.queued = dl_deadline_start(deadline), .state = DL_RECORD_QUEUED};
    return record_new(seat, what, &entry);
}

static void
start_queued(dl_record *record, uint64_t sequence)
{
    uint64_t what = atomic_load_explicit(&record->what, memory_order_relaxed);
    uint64_t state = DL_RECORD_STATE_MASK << DL_RECORD_STATE_SHIFT;

    what = (what & ~state) | (uint64_t)DL_RECORD_RUNNING << DL_RECORD_STATE_SHIFT;
    open_row(record);
    atomic_store_explicit(&record->started, dl_now(), memory_order_release);
    atomic_store_explicit(&record->sequence, (int64_t)sequence, memory_order_release);
    atomic_store_explicit(&record->what, what, memory_order_release);
    close_row(record);
}

dl_record *
dl_recorder_start(const dl_seat *seat, dl_record *queued, const dl_fingerprint *what,
                  uint64_t sequence, dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    atomic_store_explicit(&seat->row->begun, sequence, memory_order_release);
    if (queued != NULL) {
        start_queued(queued, sequence);
        return queued;
    }
    entry entry = {.started = start_of(seat, deadline),
                   .sequence = (int64_t)sequence,
                   .state = DL_RECORD_RUNNING};
    return record_new(seat, what, &entry);
}

/* An entry of a message that runs. */
static entry
entry_of_message(int64_t tag, dl_deadline deadline)
{
    return (entry){.started = dl_deadline_start(deadline),
                   .sequence = tag,
                   .state = DL_RECORD_RUNNING};
}

dl_record *
dl_recorder_post(const dl_seat *seat, const dl_fingerprint *what, int64_t tag,
                 dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    entry entry = entry_of_message(tag, deadline);
    return record_new(seat, what, &entry);
}

void
dl_recorder_post_ended(const dl_seat *seat, const dl_fingerprint *what, int64_t tag,
                       dl_deadline deadline, int64_t now)
{
    if (seat->row != NULL) {
        entry entry = entry_of_message(tag, deadline);
        entry.ended = now;
        entry.state |= DL_RECORD_ENDED;
        (void)record_new(seat, what, &entry);
    }
}

static void
end_at(dl_record *record, dl_status status, int64_t now)
{
    uint64_t what = atomic_load_explicit(&record->what, memory_order_relaxed);

    what |= (uint64_t)DL_RECORD_ENDED << DL_RECORD_STATE_SHIFT;
    what |= ((uint64_t)status & DL_RECORD_STATUS_MASK) << DL_RECORD_STATUS_SHIFT;
    open_row(record);
    atomic_store_explicit(&record->ended, now, memory_order_release);
    atomic_store_explicit(&record->what, what, memory_order_release);
    close_row(record);
    if (status == DL_TIMEOUT || status == DL_PEER_LOST || status == DL_MISMATCH) {
        atomic_store_explicit(&has_failure, true, memory_order_relaxed);
    }
}

void
dl_recorder_end(dl_record *record, dl_status status)
{
    if (record != NULL) {
        end_at(record, status, dl_now());
    }
}

void
dl_recorder_end_at(dl_record *record, dl_status status, int64_t now)
{
    if (record != NULL) {
        end_at(record, status, now);
    }
}

void
dl_recorder_end_in(const dl_seat *seat, dl_record *record, dl_status status,
                   int64_t now)
{
    if (record != NULL) {
        atomic_store_explicit(&seat->row->last_ended, now, memory_order_relaxed);
        end_at(record, status, now);
    }
}

/* Takes an empty row, to which no other thread writes while its version is odd. */
static dl_recorded_wait *
take_wait(void)
{
    for (int i = 0; i < WAITS; i++) {
        dl_recorded_wait *row = &recorder.tables.waits[i];
        uint64_t version = atomic_load_explicit(&row->version, memory_order_acquire);
        if (version % 2 == 0
            && atomic_load_explicit(&row->since, memory_order_relaxed) == 0
            && atomic_compare_exchange_strong_explicit(
                &row->version, &version, version + 1, memory_order_acquire,
                memory_order_relaxed)) {
            return row;
        }
    }
    return NULL;
}

dl_recorded_wait *
dl_recorder_show_wait(int64_t since, const char *text)
{
    dl_plain_wait wait = {.since = since, .site = dl_recorder_site};
    dl_recorded_wait *row = dl_recorder_is_on() ? take_wait() : NULL;

    if (row != NULL) {
        snprintf(wait.text, sizeof wait.text, "%s", text);
        dl_row_write(&row->version, &wait, DL_ROW_WORDS(wait));
    }
    return row;
}

void
dl_recorder_hide_wait(dl_recorded_wait *row)
{
    const dl_plain_wait empty = {0};

    if (row != NULL) {
        dl_row_write(&row->version, &empty, DL_ROW_WORDS(empty));
    }
}

static _Atomic(dl_explain_fn) explainer;

void
dl_recorder_set_explain(dl_explain_fn explain)
{
    atomic_store(&explainer, explain);
}

dl_status
dl_recorder_explain(const dl_record *record)
{
    dl_explain_fn explain = atomic_load(&explainer);

    return explain == NULL || record == NULL ? dl_last_error()->status
                                             : explain(record);
}

bool
dl_recorder_take_failure(void)
{
    return atomic_load_explicit(&has_failure, memory_order_relaxed)
           && atomic_exchange_explicit(&has_failure, false, memory_order_relaxed);
}

bool
dl_recorder_is_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

void
dl_recorder_path(char path[PATH_MAX])
{
    pthread_mutex_lock(&lock);
    strcpy(path, own_path);
    pthread_mutex_unlock(&lock);
}

dl_status
dl_recorder_snapshot(dl_buffer *copy)
{
    dl_status status = DL_OK;

    pthread_mutex_lock(&lock);
    dl_buffer_clear(copy);
    if (is_made) {
        publish_header_locked();
        status = dl_recording_snapshot(recorder.tables.header, &header, copy);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Removes the recording at an orderly exit.  A forked child does not
 * remove its parent's. */
__attribute__((destructor)) static void
remove_recording(void)
{
    if (header.pid == getpid()) {
        dl_recording_remove(&header, &folder);
    }
}
