/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/doing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/deadline.h"

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

void
dl_doing_describe_site(const dl_recorded_site *row, char text[DL_DOING_SITE_SIZE])
{
    dl_plain_site site;

    text[0] = '\0';
    if (!dl_row_read(&row->version, &site, DL_ROW_WORDS(site))
        || site.file[0] == '\0') {
        return;
    }
    site.file[sizeof site.file - 1] = '\0';
    site.function[sizeof site.function - 1] = '\0';
    snprintf(text, DL_DOING_SITE_SIZE, "%.56s:%" PRIu64 " in %.28s",
             base_name(site.file), site.line, site.function);
}

static bool
open_snapshot(dl_bytes snapshot, dl_recording_header *header, dl_recording *tables)
{
    void *memory = (void *)(uintptr_t)snapshot.data;

    if (!dl_recording_check(memory, snapshot.size, header)) {
        return false;
    }
    *tables = dl_recording_at(memory, header);
    return true;
}

static uint8_t
record_state_of(const dl_plain_record *record)
{
    return dl_record_state(record->what);
}

static bool
record_has_ended(const dl_plain_record *record)
{
    return record_state_of(record) == DL_RECORD_ENDED;
}

/* Returns when the operation was called or, if it has ended, when it ended. */
static int64_t
time_of(const dl_plain_record *record)
{
    return record_has_ended(record) ? record->ended
           : record->queued != 0    ? record->queued
                                    : record->started;
}

/* Returns true if `record` says more of what the process does than `best`.  An
 * operation that has not ended takes precedence over all that have. */
static bool
tells_more(const dl_plain_record *record, const dl_plain_record *best)
{
    if (record_state_of(best) == 0
        || record_has_ended(record) != record_has_ended(best)) {
        return record_state_of(best) == 0 || record_has_ended(best);
    }
    return time_of(record) > time_of(best);
}

static void
copy_name(const dl_recording *tables, uint64_t count, uint32_t serial, char name[64])
{
    dl_plain_group group;

    for (uint64_t i = 0; i < count; i++) {
        if (dl_row_read(&tables->groups[i].version, &group, DL_ROW_WORDS(group))
            && (uint32_t)group.serial == serial) {
            snprintf(name, 64, "%.63s", group.name);
        }
    }
}

/* The time may come from a damaged recording. */
static int64_t
span_since(int64_t since)
{
    int64_t now = dl_now();

    return since < 0 || since > now ? 0 : now - since;
}

static void
copy_site(const dl_recording *tables, uint64_t count, uint64_t site,
          char text[DL_DOING_SITE_SIZE])
{
    if (site > 0 && site <= count) {
        dl_doing_describe_site(&tables->sites[site - 1], text);
    }
}

/* Returns the wait that began last; zeroed if there is none. */
static dl_plain_wait
find_wait(const dl_recording *tables, uint64_t count)
{
    dl_plain_wait wait;
    dl_plain_wait best = {0};

    for (uint64_t i = 0; i < count; i++) {
        if (dl_row_read(&tables->waits[i].version, &wait, DL_ROW_WORDS(wait))
            && wait.since > best.since) {
            best = wait;
        }
    }
    return best;
}

void
dl_doing_take(dl_doing *doing, const dl_plain_record *record)
{
    doing->span = span_since(time_of(record));
    doing->sequence = record->sequence;
    doing->count = record->count;
    doing->root = dl_record_root(record->what);
    doing->op = dl_record_op(record->what);
    doing->dtype = dl_record_dtype(record->what);
    doing->reduce_op = dl_record_reduce_op(record->what);
    doing->state = record_state_of(record);
}

bool
dl_doing_read(dl_bytes snapshot, dl_doing *doing)
{
    dl_recording_header header;
    dl_recording tables;
    dl_plain_record record;
    dl_plain_record best = {0};

    *doing = (dl_doing){0};
    if (!open_snapshot(snapshot, &header, &tables)) {
        return false;
    }
    for (uint64_t i = 0; i < header.record_count; i++) {
        if (dl_row_read(&tables.records[i].version, &record, DL_ROW_WORDS(record))
            && record_state_of(&record) != 0 && tells_more(&record, &best)) {
            best = record;
        }
    }
    doing->pid = header.pid;
    snprintf(doing->host, sizeof doing->host, "%.63s", header.host);
    doing->state = record_state_of(&best);
    dl_plain_wait wait = find_wait(&tables, header.wait_count);
    if (wait.since != 0
        && (doing->state == 0 || record_has_ended(&best)
            || wait.since > time_of(&best))) {
        doing->state = DL_RECORD_RUNNING;
        doing->span = span_since(wait.since);
        snprintf(doing->wait, sizeof doing->wait, "%.103s", wait.text);
        copy_site(&tables, header.site_count, wait.site, doing->site);
        return true;
    }
    if (doing->state == 0) {
        return true;
    }
    dl_doing_take(doing, &best);
    copy_name(&tables, header.group_count, (uint32_t)best.place, doing->group);
    copy_site(&tables, header.site_count, best.place >> 32, doing->site);
    return true;
}

bool
dl_doing_has_begun(dl_bytes snapshot, const char *group, uint64_t sequence)
{
    dl_recording_header header;
    dl_recording tables;
    dl_plain_group row;
    uint64_t begun = 0;

    if (!open_snapshot(snapshot, &header, &tables)) {
        return false;
    }
    for (uint64_t i = 0; i < header.group_count; i++) {
        if (dl_row_read(&tables.groups[i].version, &row, DL_ROW_WORDS(row))
            && row.is_open && strncmp(row.name, group, sizeof row.name) == 0) {
            begun = row.begun > begun ? row.begun : begun;
        }
    }
    return begun >= sequence;
}
