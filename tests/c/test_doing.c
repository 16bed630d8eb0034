/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"
#include "check.h"
#include "pg/record/doing.h"
#include "pg/record/recorder.h"
#include "pg/record/waiting.h"

static dl_seat
join(const char *name)
{
    dl_seat seat = {0};

    dl_recorder_join(&seat, name, "cpu", 1, 4);
    return seat;
}

static dl_record *
start(const dl_seat *seat, uint64_t sequence)
{
    dl_fingerprint sum = {.op = DL_ALL_REDUCE, .dtype = DL_FLOAT32, .count_low = 9};

    return dl_recorder_start(seat, NULL, &sum, sequence, dl_deadline_after(DL_SECOND));
}

static dl_doing
read_own(dl_buffer *copy)
{
    dl_doing doing;

    CHECK(dl_recorder_snapshot(copy) == DL_OK);
    CHECK(dl_doing_read(dl_buffer_bytes(copy), &doing));
    return doing;
}

CHECK_CASE(running_operations_come_before_ended_ones)
{
    dl_fingerprint taken = {
        .op = DL_RECV, .dtype = DL_FLOAT32, .count_low = 4, .root = 2};
    dl_buffer copy = {0};
    dl_seat seat = join("0");

    dl_doing doing = read_own(&copy);
    CHECK_EQUAL(doing.state, 0);
    CHECK_EQUAL(doing.pid, getpid());
    dl_record *message = dl_recorder_post(&seat, &taken, 7, dl_deadline_after(-1));
    dl_recorder_end(start(&seat, 3), DL_OK);
    doing = read_own(&copy);
    CHECK_EQUAL(doing.state, DL_RECORD_RUNNING);
    CHECK_EQUAL(doing.op, DL_RECV);
    CHECK_EQUAL(doing.sequence, 7);
    CHECK_EQUAL(doing.root, 2);
    CHECK(strcmp(doing.group, "0") == 0);
    /* Of several operations, the one that was called last. */
    dl_record *running = start(&seat, 4);
    CHECK_EQUAL(read_own(&copy).sequence, 4);
    dl_recorder_end(message, DL_OK);
    dl_recorder_end(running, DL_OK);
    doing = read_own(&copy);
    CHECK_EQUAL(doing.state, DL_RECORD_ENDED);
    CHECK_EQUAL(doing.sequence, 4);
    CHECK(doing.span >= 0 && doing.span < 60 * DL_SECOND);
    dl_buffer_fini(&copy);
}

CHECK_CASE(operations_begun_are_known_by_group)
{
    dl_buffer copy = {0};
    dl_seat first = join("0");
    dl_seat second = join("1");

    dl_recorder_end(start(&first, 5), DL_OK);
    dl_recorder_end(start(&second, 2), DL_OK);
    CHECK(dl_recorder_snapshot(&copy) == DL_OK);
    CHECK(dl_doing_has_begun(dl_buffer_bytes(&copy), "0", 5));
    CHECK(!dl_doing_has_begun(dl_buffer_bytes(&copy), "0", 6));
    CHECK(dl_doing_has_begun(dl_buffer_bytes(&copy), "1", 2));
    CHECK(!dl_doing_has_begun(dl_buffer_bytes(&copy), "1", 3));
    CHECK(!dl_doing_has_begun(dl_buffer_bytes(&copy), "2", 1));
    dl_buffer_fini(&copy);
}

CHECK_CASE(other_bytes_are_no_recording)
{
    uint8_t bytes[512] = {1};
    dl_doing doing;

    CHECK(!dl_doing_read((dl_bytes){bytes, sizeof bytes}, &doing));
    CHECK_EQUAL(doing.pid, 0);
    CHECK(!dl_doing_has_begun((dl_bytes){bytes, sizeof bytes}, "0", 0));
}

CHECK_CASE(a_wait_is_shown_after_a_slice_and_until_its_end)
{
    dl_waiting outer, inner;
    dl_buffer copy = {0};
    dl_seat seat = join("0");

    dl_recorder_end(start(&seat, 3), DL_OK);
    dl_record *message = start(&seat, 4);
    dl_waiting_begin(&outer, dl_waiting_copy, "outer", dl_deadline_after(-1));
    CHECK(read_own(&copy).wait[0] == '\0');
    /* A part of the call is not shown, and does not end what is. */
    dl_waiting_begin(&inner, dl_waiting_copy, "inner", dl_deadline_after(-1));
    CHECK(dl_interrupt_check() == DL_OK);
    dl_waiting_end(&inner);
    dl_doing doing = read_own(&copy);
    CHECK(strcmp(doing.wait, "outer") == 0);
    CHECK_EQUAL(doing.state, DL_RECORD_RUNNING);
    CHECK(doing.span >= 0 && doing.span < 60 * DL_SECOND);
    dl_recorder_end(message, DL_OK);
    dl_waiting_end(&outer);
    CHECK(dl_interrupt_check() == DL_OK);
    doing = read_own(&copy);
    CHECK(doing.wait[0] == '\0');
    CHECK_EQUAL(doing.state, DL_RECORD_ENDED);
    dl_buffer_fini(&copy);
}

CHECK_CASE(waits_without_a_row_are_not_shown_and_rows_are_used_again)
{
    dl_recorded_wait *rows[64];
    int given = 0;

    (void)join("0");
    for (int i = 0; i < 64; i++) {
        rows[i] = dl_recorder_show_wait(dl_now(), "wait");
        given += rows[i] != NULL;
    }
    CHECK(given > 0 && given < 64);
    dl_recorder_hide_wait(rows[0]);
    CHECK(dl_recorder_show_wait(dl_now(), "again") == rows[0]);
    for (int i = 0; i < 64; i++) {
        dl_recorder_hide_wait(rows[i]);
    }
}
