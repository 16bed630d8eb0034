/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"

#define HEADER_WORDS (sizeof(dl_recording_header) / sizeof(uint64_t))

/* More attempts than a running writer can spoil. */
#define READ_TRIES 64

/* Far more than is ever configured; keeps sums of sizes from overflowing. */
#define ROWS_LIMIT (UINT64_C(1) << 24)

size_t
dl_recording_size(const dl_recording_header *header)
{
    if (header->record_count > ROWS_LIMIT || header->group_count > ROWS_LIMIT
        || header->site_count > ROWS_LIMIT || header->wait_count > ROWS_LIMIT) {
        return 0;
    }
    return sizeof *header + header->record_count * sizeof(dl_record)
           + header->group_count * sizeof(dl_recorded_group)
           + header->site_count * sizeof(dl_recorded_site)
           + header->wait_count * sizeof(dl_recorded_wait);
}

dl_recording
dl_recording_at(void *memory, const dl_recording_header *header)
{
    dl_recording self = {.header = memory};

    self.records =
        (dl_record *)(void *)((uint8_t *)memory + sizeof(dl_recording_header));
    self.groups = (dl_recorded_group *)(void *)(self.records + header->record_count);
    self.sites = (dl_recorded_site *)(void *)(self.groups + header->group_count);
    self.waits = (dl_recorded_wait *)(void *)(self.sites + header->site_count);
    return self;
}

/* Each store is a release, so no reader that sees one of the words can still see the
 * version from before.  On common processors that costs nothing, and unlike fences it
 * is understood by the thread sanitizer. */
void
dl_row_write(_Atomic uint64_t *row, const void *words, size_t count)
{
    uint64_t version = atomic_load_explicit(row, memory_order_relaxed) | 1;

    atomic_store_explicit(row, version, memory_order_relaxed);
    for (size_t i = 1; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)words + i * sizeof word, sizeof word);
        atomic_store_explicit(&row[i], word, memory_order_release);
    }
    atomic_store_explicit(row, version + 1, memory_order_release);
}

static bool
try_read(const _Atomic uint64_t *row, uint64_t *words, size_t count)
{
    words[0] = atomic_load_explicit(row, memory_order_acquire);
    for (size_t i = 1; i < count; i++) {
        words[i] = atomic_load_explicit(&row[i], memory_order_acquire);
    }
    uint64_t after = atomic_load_explicit(row, memory_order_relaxed);
    return after == words[0] && after % 2 == 0;
}

bool
dl_row_read(const _Atomic uint64_t *row, void *words, size_t count)
{
    for (int i = 0; i < READ_TRIES; i++) {
        if (try_read(row, words, count)) {
            return true;
        }
    }
    memset(words, 0, count * sizeof(uint64_t));
    return false;
}

/* Copies the header before checking it, so that the values checked are those used, even
 * if the memory changes meanwhile. */
bool
dl_recording_check(const void *memory, size_t size, dl_recording_header *header)
{
    if (size < sizeof *header || !dl_row_read(memory, header, HEADER_WORDS)) {
        return false;
    }
    uint64_t count = header->record_count;
    size_t wanted = dl_recording_size(header);
    return memcmp(header->magic, DL_RECORDING_MAGIC, sizeof header->magic) == 0
           && wanted != 0 && wanted <= size && count != 0 && (count & (count - 1)) == 0;
}

static void
copy_rows(const void *from, void *to, size_t rows, size_t row_size)
{
    for (size_t i = 0; i < rows; i++) {
        const void *bytes = (const uint8_t *)from + i * row_size;
        const _Atomic uint64_t *row = bytes;
        if (atomic_load_explicit(row, memory_order_relaxed) != 0) {
            dl_row_read(row, (uint8_t *)to + i * row_size, row_size / sizeof *row);
        }
    }
}

static void
copy_site(const dl_recording *from, dl_recording *to, uint64_t site, uint64_t count)
{
    if (site != 0 && site <= count && to->sites[site - 1].version == 0) {
        dl_row_read(&from->sites[site - 1].version, &to->sites[site - 1],
                    DL_SITE_WORDS);
    }
}

/* Copies the sites of the records and waits in `to`: they are few, and the table has
 * many pages. */
static void
copy_sites(const dl_recording *from, dl_recording *to,
           const dl_recording_header *header)
{
    for (size_t i = 0; i < header->record_count; i++) {
        copy_site(from, to, to->records[i].place >> 32, header->site_count);
    }
    for (size_t i = 0; i < header->wait_count; i++) {
        copy_site(from, to, to->waits[i].site, header->site_count);
    }
}

dl_status
dl_recording_snapshot(void *memory, const dl_recording_header *header, dl_buffer *copy)
{
    size_t size = dl_recording_size(header);
    uint8_t *data = calloc(1, size);

    dl_buffer_fini(copy);
    if (data == NULL) {
        return dl_fail_no_memory();
    }
    *copy = (dl_buffer){.data = data, .size = size, .capacity = size};
    dl_recording from = dl_recording_at(memory, header);
    dl_recording to = dl_recording_at(data, header);
    dl_recording_header taken = *header;
    /* A snapshot of a dump keeps the dump's time. */
    taken.taken = taken.taken != 0 ? taken.taken : dl_now();
    memcpy(data, &taken, sizeof taken);
    copy_rows(from.records, to.records, header->record_count, sizeof(dl_record));
    copy_rows(from.groups, to.groups, header->group_count, sizeof(dl_recorded_group));
    copy_rows(from.waits, to.waits, header->wait_count, sizeof(dl_recorded_wait));
    copy_sites(&from, &to, header);
    return DL_OK;
}
