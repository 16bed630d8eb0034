/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rare part of the recorder: makes the recording, and gives rows to groups
 * and call sites. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "pg/recorder_state.h"
#include "pg/recording_file.h"

/* Enough for a person to read, and for the last steps of a training loop. */
#define RECORDS 512
#define RECORDS_LIMIT (1 << 20)
#define GROUPS 128
#define SITES 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static dl_recorder recorder;
/* guarded by lock */
static dl_recording_header header;
static uint32_t generation; /* fork generation of the process that made it */
static bool is_made;
static dl_job_folder folder;
static char own_path[PATH_MAX];
static uint64_t last_serial;
/* read without the lock */
static atomic_bool is_on;

dl_recorder *
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

/* The header is not written here, since this may be any thread at any time. */
void
dl_recorder_drop(dl_recorder *self)
{
    atomic_fetch_add_explicit(&self->dropped, 1, memory_order_relaxed);
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

/* Runs in a forked child, which has none of the parent's threads; one of them may have
 * held the lock.  What the child inherited still refers to the parent's recording, so
 * memory of its own takes the place of that. */
static void
forget_parent(void)
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

static void
prepare(void)
{
    pthread_atfork(NULL, NULL, forget_parent);
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
        .created = dl_now(),
        .rank = -1,
    };
    memcpy(header.magic, DL_RECORDING_MAGIC, sizeof header.magic);
    is_made = false;
    generation = dl_fork_generation();
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
    pthread_once(&once, prepare);
    if (recorder.tables.header == NULL || generation != dl_fork_generation()) {
        make_locked(job);
    }
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
fill_row(dl_recorded_group *row, const uint64_t *words)
{
    dl_row_write(&row->version, words, DL_ROW_WORDS(*row));
}

static void
sit_locked(dl_seat *seat, dl_plain_group *group)
{
    dl_recorded_group *row = find_row_locked(&group->serial);
    uint64_t words[DL_ROW_WORDS(*group)];

    if (row == NULL) {
        return;
    }
    last_serial = group->serial;
    memcpy(words, group, sizeof words);
    fill_row(row, words);
    *seat = (dl_seat){row, group->serial};
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
        sit_locked(seat, &group);
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

/* Returns the end of a long path, which tells more than its beginning. */
static const char *
tail_of(const char *text, size_t room)
{
    size_t size = strlen(text);

    return size < room ? text : text + size - room + 1;
}

/* Returns the row of the site, or the empty row where it belongs; SITES if
 * there is neither. */
static uint32_t
find_site_locked(const dl_plain_site *wanted)
{
    uint32_t first = (uint32_t)(wanted->line * 31 + strlen(wanted->file));
    dl_plain_site found;

    for (uint32_t i = first; i != first + SITES; i++) {
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
add_site_locked(const dl_plain_site *site)
{
    uint32_t number = find_site_locked(site);
    uint64_t words[DL_SITE_WORDS];

    if (number == SITES) {
        return 0;
    }
    dl_recorded_site *row = &recorder.tables.sites[number];
    if (atomic_load_explicit(&row->version, memory_order_relaxed) == 0) {
        memcpy(words, site, sizeof words);
        dl_row_write(&row->version, words, DL_SITE_WORDS);
    }
    return number + 1;
}

uint32_t
dl_recorder_add_site(const char *file, const char *function, int line)
{
    dl_plain_site site = {.line = (uint64_t)line};

    snprintf(site.file, sizeof site.file, "%s", tail_of(file, sizeof site.file));
    snprintf(site.function, sizeof site.function, "%s", function);
    pthread_mutex_lock(&lock);
    uint32_t number = is_made ? add_site_locked(&site) : 0;
    pthread_mutex_unlock(&lock);
    return number;
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
        size_t size = dl_recording_size(&header);
        status = dl_buffer_reserve(copy, size);
        if (status == DL_OK) {
            publish_header_locked();
            dl_recording_snapshot(recorder.tables.header, &header, copy->data);
            copy->size = size;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Removes the recording at an orderly exit.  A forked child does not
 * remove its parent's. */
__attribute__((destructor)) static void
take_away(void)
{
    if (header.pid == getpid()) {
        dl_recording_remove(&header, &folder);
    }
}
