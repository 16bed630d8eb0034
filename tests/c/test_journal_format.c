/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A journal's bytes: cut off at every byte, and changed at every bit. */
#include "store/journal_format.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "check.h"
#include "store/table.h"

static const uint8_t IDENTITY[DL_JOURNAL_IDENTITY_SIZE] = "an identity ...";

#define FRAMES_MAX 64

typedef struct journal_bytes {
    dl_buffer file;
    size_t ends[FRAMES_MAX]; /* of the head and of each frame */
    int count;
} journal_bytes;

static void
put_frame(journal_bytes *made, const dl_buffer *records)
{
    static const uint8_t head[DL_JOURNAL_FRAME_HEAD];
    dl_buffer frame = {0};

    dl_buffer_put(&frame, (dl_bytes){head, sizeof head});
    dl_buffer_put(&frame, dl_buffer_bytes(records));
    dl_journal_checksum_frame(&frame, made->file.size);
    dl_buffer_put(&made->file, dl_buffer_bytes(&frame));
    made->ends[made->count++] = made->file.size;
    dl_buffer_fini(&frame);
}

static journal_bytes
begin(void)
{
    journal_bytes made = {0};

    dl_journal_put_head(&made.file, IDENTITY);
    made.ends[made.count++] = made.file.size;
    return made;
}

static void
put_item(journal_bytes *made, dl_change_kind kind, const char *key, int64_t number,
         const char *value)
{
    dl_buffer records = {0};

    dl_change_put(&records, (dl_change){.kind = kind,
                                        .key = dl_bytes_of(key),
                                        .number = number,
                                        .value = dl_bytes_of(value)});
    put_frame(made, &records);
    dl_buffer_fini(&records);
}

static void
put_change(journal_bytes *made, dl_change_kind kind, const char *key, const char *value)
{
    put_item(made, kind, key, 0, value);
}

/* One record of each kind, in frames of one or two. */
static journal_bytes
sample(void)
{
    journal_bytes made = begin();
    dl_buffer two = {0};

    put_change(&made, DL_CHANGE_SET, "a", "1");
    put_change(&made, DL_CHANGE_APPEND, "a", "2");
    dl_change_put(&two, (dl_change){.kind = DL_CHANGE_SET,
                                    .key = DL_LITERAL("gone"),
                                    .value = DL_LITERAL("x")});
    dl_change_put(&two,
                  (dl_change){.kind = DL_CHANGE_DELETE, .key = DL_LITERAL("gone")});
    put_frame(&made, &two);
    put_change(&made, DL_CHANGE_PUSH, "q", "old");
    put_item(&made, DL_CHANGE_POP, "q", 0, "");
    put_change(&made, DL_CHANGE_PUSH, "q", "one");
    put_change(&made, DL_CHANGE_PUSH, "q", "two");
    put_item(&made, DL_CHANGE_POP, "q", 1, "");
    /* The second one is there already. */
    put_item(&made, DL_CHANGE_PUT_BACK, "q", 2, "zero");
    put_item(&made, DL_CHANGE_PUT_BACK, "q", 2, "zero");
    put_change(&made, DL_CHANGE_SET, "last", "value");
    dl_buffer_fini(&two);
    return made;
}

static dl_status
apply(void *table, const dl_change *change)
{
    dl_blob *popped = NULL;
    dl_status status = dl_table_apply(table, change, &popped);

    dl_blob_unref(popped);
    return status;
}

static dl_status
read_into(dl_table *table, dl_bytes file, dl_journal_contents *contents)
{
    /* Memory of exactly this size, so that a sanitizer sees reads beyond it. */
    uint8_t *copy = malloc(file.size + 1);
    CHECK(copy != NULL);
    memcpy(copy + 1, file.data, file.size);
    dl_table_init(table);
    dl_status status =
        dl_journal_read((dl_bytes){copy + 1, file.size}, apply, table, contents);
    free(copy);
    return status;
}

CHECK_CASE(records_are_applied_in_order)
{
    journal_bytes made = sample();
    dl_journal_contents contents;
    dl_table table;
    dl_blob *item = NULL;

    CHECK_OK(read_into(&table, dl_buffer_bytes(&made.file), &contents));
    CHECK(!contents.is_torn);
    CHECK_EQUAL(contents.size, made.file.size);
    CHECK_EQUAL(contents.changes, 12);
    CHECK(memcmp(contents.identity, IDENTITY, sizeof IDENTITY) == 0);
    CHECK_EQUAL(dl_table_num_keys(&table), 2);
    CHECK_BYTES(dl_blob_bytes(dl_table_get(&table, DL_LITERAL("a"))), "12");
    CHECK_BYTES(dl_blob_bytes(dl_table_get(&table, DL_LITERAL("last"))), "value");
    CHECK_EQUAL(dl_table_queue_pop(&table, DL_LITERAL("q"), &item), 2);
    CHECK_BYTES(dl_blob_bytes(item), "zero");
    dl_blob_unref(item);
    CHECK_EQUAL(dl_table_queue_pop(&table, DL_LITERAL("q"), &item), 1);
    CHECK_BYTES(dl_blob_bytes(item), "two");
    dl_blob_unref(item);
    dl_table_fini(&table);
    dl_buffer_fini(&made.file);
}

/* Of a file that is cut off, all frames before the cut are read. */
CHECK_CASE(a_file_that_is_cut_off_anywhere_is_read_up_to_there)
{
    journal_bytes made = sample();

    for (size_t size = 0; size <= made.file.size; size++) {
        dl_journal_contents contents;
        dl_table table;
        size_t whole = 0;
        for (int i = 0; i < made.count && made.ends[i] <= size; i++) {
            whole = made.ends[i];
        }
        CHECK_OK(read_into(&table, (dl_bytes){made.file.data, size}, &contents));
        CHECK_EQUAL(contents.size, whole);
        CHECK_EQUAL(contents.is_torn, whole != size);
        dl_table_fini(&table);
    }
    dl_buffer_fini(&made.file);
}

CHECK_CASE(a_changed_bit_is_found_wherever_it_is)
{
    journal_bytes made = sample();

    for (size_t i = 0; i < made.file.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            dl_journal_contents contents;
            dl_table table;
            made.file.data[i] ^= (uint8_t)(1 << bit);
            CHECK_STATUS(read_into(&table, dl_buffer_bytes(&made.file), &contents),
                         DL_BACKEND);
            CHECK_CONTAINS(dl_last_error()->text, "is damaged at byte ");
            made.file.data[i] ^= (uint8_t)(1 << bit);
            dl_table_fini(&table);
        }
    }
    dl_buffer_fini(&made.file);
}

/* After a crash of the host, blocks that were not written are zeros. */
CHECK_CASE(a_sector_that_was_not_written_is_no_damage)
{
    static char value[3000];
    journal_bytes made = sample();
    size_t before = made.file.size;
    dl_journal_contents contents;
    dl_table table;

    memset(value, 'x', sizeof value - 1);
    put_change(&made, DL_CHANGE_SET, "large", value);
    memset(made.file.data + 1024, 0, 512);
    CHECK_OK(read_into(&table, dl_buffer_bytes(&made.file), &contents));
    CHECK(contents.has_hole && !contents.is_torn);
    CHECK_EQUAL(contents.size, before);
    dl_table_fini(&table);
    /* The host writes blocks in any order, so that later frames may be whole. */
    put_change(&made, DL_CHANGE_SET, "later", "value");
    CHECK_OK(read_into(&table, dl_buffer_bytes(&made.file), &contents));
    CHECK(contents.has_hole);
    CHECK_EQUAL(contents.size, before);
    CHECK(dl_table_get(&table, DL_LITERAL("later")) == NULL);
    dl_table_fini(&table);
    dl_buffer_fini(&made.file);
}

/* Two frames, of which the second begins `shared` bytes before the end of a sector. */
static journal_bytes
two_frames(size_t shared)
{
    static char value[512];
    journal_bytes made = begin();

    put_change(&made, DL_CHANGE_SET, "first", "");
    size_t missing = 512 - shared - made.file.size;
    dl_buffer_fini(&made.file);
    made = begin();
    memset(value, 'x', missing);
    value[missing] = '\0';
    put_change(&made, DL_CHANGE_SET, "first", value);
    CHECK_EQUAL(made.file.size, 512 - shared);
    put_change(&made, DL_CHANGE_SET, "second", "value");
    return made;
}

static void
check_hole(const journal_bytes *made, size_t whole)
{
    dl_journal_contents contents;
    dl_table table;

    CHECK_OK(read_into(&table, dl_buffer_bytes(&made->file), &contents));
    CHECK(contents.has_hole && !contents.is_torn);
    CHECK_EQUAL(contents.size, whole);
    dl_table_fini(&table);
}

CHECK_CASE(a_sector_that_has_only_a_few_bytes_of_a_frame_is_no_damage)
{
    for (size_t shared = 1; shared < 20; shared++) {
        journal_bytes made = two_frames(shared);
        memset(made.file.data + 512 - shared, 0, shared);
        check_hole(&made, 512 - shared);
        dl_buffer_fini(&made.file);
        made = two_frames(shared);
        memset(made.file.data + 512, 0, made.file.size - 512);
        check_hole(&made, 512 - shared);
        dl_buffer_fini(&made.file);
    }
}

CHECK_CASE(frames_do_not_count_at_another_place)
{
    journal_bytes made = sample();
    dl_buffer moved = {0};
    dl_journal_contents contents;
    dl_table table;

    /* Without the first frame, and with the second twice. */
    dl_buffer_put(&moved, (dl_bytes){made.file.data, made.ends[0]});
    dl_buffer_put(&moved, (dl_bytes){made.file.data + made.ends[1],
                                     made.file.size - made.ends[1]});
    CHECK_STATUS(read_into(&table, dl_buffer_bytes(&moved), &contents), DL_BACKEND);
    dl_table_fini(&table);
    dl_buffer_clear(&moved);
    dl_buffer_put(&moved, (dl_bytes){made.file.data, made.ends[2]});
    dl_buffer_put(&moved, (dl_bytes){made.file.data + made.ends[1],
                                     made.file.size - made.ends[1]});
    CHECK_STATUS(read_into(&table, dl_buffer_bytes(&moved), &contents), DL_BACKEND);
    dl_table_fini(&table);
    dl_buffer_fini(&moved);
    dl_buffer_fini(&made.file);
}

CHECK_CASE(files_of_other_formats_are_refused_with_an_error)
{
    journal_bytes made = begin();
    dl_journal_contents contents;
    dl_buffer records = {0};
    dl_table table;

    CHECK_STATUS(read_into(&table, DL_LITERAL("#!/bin/sh\n"), &contents), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text,
                   "it is not a journal of a store, or is damaged at byte 0");
    dl_table_fini(&table);
    /* A record of an unknown kind, in a valid frame. */
    dl_put_u8(&records, DL_CHANGE_LAST + 1);
    put_frame(&made, &records);
    CHECK_STATUS(read_into(&table, dl_buffer_bytes(&made.file), &contents), DL_BACKEND);
    CHECK_CONTAINS(dl_last_error()->text, "a record is malformed");
    dl_table_fini(&table);
    dl_buffer_fini(&records);
    dl_buffer_fini(&made.file);
}

CHECK_CASE(a_newer_version_is_refused)
{
    /* The head of version 3 with its own checksum. */
    journal_bytes made = begin();
    dl_journal_contents contents;
    dl_table table;

    made.file.data[8] = 3;
    made.file.size -= 4;
    dl_put_u32(&made.file, dl_crc32c(0, dl_buffer_bytes(&made.file)));
    CHECK_STATUS(read_into(&table, dl_buffer_bytes(&made.file), &contents), DL_BACKEND);
    CHECK_TEXT(dl_last_error()->text,
               "its format has version 3, and this version of distlite reads 2");
    dl_table_fini(&table);
    dl_buffer_fini(&made.file);
}

CHECK_CASE(a_failure_to_apply_ends_the_reading)
{
    journal_bytes made = sample();
    dl_journal_contents contents;
    dl_table table;

    dl_table_init(&table);
    table.key_limit = 1;
    CHECK_STATUS(dl_journal_read(dl_buffer_bytes(&made.file), apply, &table, &contents),
                 DL_NO_MEMORY);
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_STORE_KEYS");
    dl_table_fini(&table);
    dl_buffer_fini(&made.file);
}
