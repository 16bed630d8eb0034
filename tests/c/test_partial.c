/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/partial.h"

#include <malloc.h>
#include <stdlib.h>

#include "session_fixture.h"

#define MIB (1u << 20)

static uint8_t *
pattern(size_t size)
{
    uint8_t *data = malloc(size);

    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 31 + i / 251);
    }
    return data;
}

/* SETs a value of `size` bytes that arrive in pieces of `step`, the first of which also
 * has something in front; reads to where the session wants them if `is_in_place`. */
static void
check_set_in_pieces(size_t size, size_t step, bool is_in_place)
{
    fixture f;
    uint8_t *value = pattern(size);
    dl_buffer bytes = {0};
    size_t piece = 0;

    open_fixture(&f);
    put_bytes(&f, 0, DL_LITERAL("\x0d\1\2\3\4"));
    dl_store_request set = {
        .op = DL_OP_SET, .is_checked = true, KEY("k"), .value = {value, size}};
    dl_wire_put_request(&bytes, &set, (dl_bytes){0});
    dl_put_u8(&bytes, DL_OP_NUM_KEYS);
    for (size_t i = 0; i < bytes.size; i += piece) {
        uint8_t *data = NULL;
        size_t room = step;
        piece = bytes.size - i < step ? bytes.size - i : step;
        if (is_in_place && dl_session_room(&f.sessions[0], &data, &room)) {
            CHECK(room > 0);
            piece = piece < room ? piece : room;
            memcpy(data, bytes.data + i, piece);
            put_bytes(&f, 0, (dl_bytes){data, piece});
        } else {
            put_bytes(&f, 0, (dl_bytes){bytes.data + i, piece});
        }
    }
    CHECK_BYTES(heard(&f, 0), "\1\2\3\4\0" U64("\1"));
    const dl_blob *held = dl_table_get(&f.hub.table, DL_LITERAL("k"));
    CHECK(dl_bytes_equal(dl_blob_bytes(held), (dl_bytes){value, size}));
    CHECK_EQUAL(held->capacity, size);
    CHECK(f.sessions[0].partial == NULL);
    dl_buffer_fini(&bytes);
    free(value);
    close_fixture(&f);
}

CHECK_CASE(a_large_value_arrives_in_pieces_of_any_size)
{
    const size_t steps[] = {1000, 16 << 10, 64 << 10, 1 << 20, 64 << 20};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        check_set_in_pieces(3 * MIB + 1, steps[i], false);
        check_set_in_pieces(3 * MIB + 1, steps[i], true);
    }
    check_set_in_pieces(20000, 1, false);
    check_set_in_pieces(20000, 1, true);
    check_set_in_pieces(DL_WIRE_VALUE_LIMIT, 64 << 10, true);
}

CHECK_CASE(a_large_value_is_read_into_its_place)
{
    fixture f;
    uint8_t *data = NULL;
    size_t room = 0;
    dl_buffer bytes = {0};

    open_fixture(&f);
    CHECK(!dl_session_room(&f.sessions[0], &data, &room));
    dl_put_u8(&bytes, DL_OP_SET);
    dl_put_bytes(&bytes, DL_LITERAL("k"));
    dl_put_u64(&bytes, MIB);
    put_bytes(&f, 0, dl_buffer_bytes(&bytes));
    uint8_t *piece = pattern(64 << 10);
    put_bytes(&f, 0, (dl_bytes){piece, 64 << 10});
    CHECK(dl_session_room(&f.sessions[0], &data, &room));
    CHECK(room >= 16 << 10);
    CHECK(data == f.sessions[0].partial->value->data + (64 << 10));
    free(piece);
    dl_buffer_fini(&bytes);
    close_fixture(&f);
}

/* What is allocated now, in bytes, of both kinds of glibc's memory. */
static size_t
allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

CHECK_CASE(memory_follows_what_has_arrived_and_not_what_was_announced)
{
    static const char *const heads[] = {"\x01" U64("\1") "k\0\0\x80\0\0\0\0\0",
                                        "\x09" U64("\1") "k\0\0\x80\0\0\0\0\0",
                                        "\x0e" U64("\1") "k\0\0\x80\0\0\0\0\0",
                                        "\x02" U64("\1") "k\0\0\x80\0\0\0\0\0",
                                        "\x0b\0\0\2\0\0\0\0\0" U64("\1") "k",
                                        "\x06\0\0\2\0\0\0\0\0\0\x20\0\0\0\0\0\0"};
    const size_t sizes[] = {18, 18, 18, 18, 18, 17};

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        fixture f;
        open_fixture(&f);
        size_t before = allocated();
        put_bytes(&f, 0, (dl_bytes){(const uint8_t *)heads[i], sizes[i]});
        CHECK(f.sessions[0].partial != NULL);
        CHECK(allocated() - before < 1024);
        close_fixture(&f);
    }
}

CHECK_CASE(memory_stays_near_what_has_arrived_of_a_long_request)
{
    enum { PIECE = 64 << 10 };
    fixture f;
    uint8_t *zeros = calloc(1, PIECE);

    open_fixture(&f);
    size_t before = allocated();
    put_bytes(&f, 0, DL_LITERAL("\x01" U64("\1") "k\0\0\x80\0\0\0\0\0"));
    /* Empty keys and values: every zero belongs to one. */
    put_bytes(&f, 1, DL_LITERAL("\x0b\0\0\2\0\0\0\0\0"));
    for (size_t arrived = PIECE; arrived < 2 * MIB; arrived += PIECE) {
        put_bytes(&f, 0, (dl_bytes){zeros, PIECE});
        put_bytes(&f, 1, (dl_bytes){zeros, PIECE});
        CHECK(allocated() - before < 2 * arrived + 2 * (272 << 10));
    }
    free(zeros);
    close_fixture(&f);
}

CHECK_CASE(memory_is_given_back_when_a_request_is_over)
{
    fixture f;
    dl_buffer bytes = {0};
    uint8_t *value = pattern(MIB);

    open_fixture(&f);
    size_t before = allocated();
    dl_store_request append = {.op = DL_OP_APPEND, KEY("k"), .value = {value, MIB}};
    dl_wire_put_request(&bytes, &append, (dl_bytes){0});
    put_bytes(&f, 0, (dl_bytes){bytes.data, MIB / 2});
    put_bytes(&f, 0, (dl_bytes){bytes.data + MIB / 2, bytes.size - MIB / 2});
    /* The beginning of the next request stays: in a small buffer. */
    put_bytes(&f, 0, (dl_bytes){bytes.data, MIB / 2});
    dl_buffer_put(&bytes, DL_LITERAL("\x03"));
    put_bytes(&f, 0, (dl_bytes){bytes.data + MIB / 2, bytes.size - MIB / 2});
    CHECK(f.sessions[0].partial->held.capacity < 64 << 10);
    dl_buffer_fini(&bytes);
    CHECK_BYTES(ASK(1, .op = DL_OP_DELETE_KEY, KEY("k")), U64("\1"));
    CHECK(allocated() - before < 256 << 10);
    free(value);
    close_fixture(&f);
}

CHECK_CASE(a_large_value_survives_failed_allocations_or_is_dropped)
{
    uint8_t *value = pattern(MIB);
    dl_buffer bytes = {0};
    dl_store_request set = {.op = DL_OP_SET, KEY("k"), .value = {value, MIB}};
    bool has_failed = true;

    dl_wire_put_request(&bytes, &set, (dl_bytes){0});
    for (long failing = 1; has_failed; failing++) {
        fixture f;
        dl_status status = DL_OK;
        open_fixture(&f);
        dl_check_fail_allocation_at(failing);
        for (size_t i = 0; i < bytes.size && status == DL_OK; i += 60000) {
            size_t size = bytes.size - i < 60000 ? bytes.size - i : 60000;
            status = dl_session_feed(&f.sessions[0], (dl_bytes){bytes.data + i, size});
        }
        has_failed = dl_check_allocation_failed();
        CHECK(status == DL_OK || (has_failed && status == DL_NO_MEMORY));
        CHECK_EQUAL(dl_table_num_keys(&f.hub.table), status == DL_OK);
        close_fixture(&f);
    }
    dl_buffer_fini(&bytes);
    free(value);
}

/* The SET waits with the rest until the replies before it are taken, then its value is
 * received as usual. */
CHECK_CASE(a_large_value_may_come_behind_too_much_output)
{
    fixture f;
    uint8_t *value = pattern(2 * MIB);
    dl_buffer bytes = {0};
    dl_store_request get = {.op = DL_OP_GET, KEY("k")};
    dl_store_request set = {
        .op = DL_OP_SET, .is_checked = true, KEY("k"), .value = {value, MIB}};

    open_fixture(&f);
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, KEY("k"), .value = {value, 2 * MIB}), "");
    dl_wire_put_request(&bytes, &get, (dl_bytes){0});
    dl_wire_put_request(&bytes, &set, (dl_bytes){0});
    CHECK_OK(dl_session_feed(&f.sessions[0], (dl_bytes){bytes.data, MIB / 2}));
    CHECK(!dl_session_wants_input(&f.sessions[0]));
    /* A piece that was on its way already is not lost. */
    CHECK_OK(
        dl_session_feed(&f.sessions[0], (dl_bytes){bytes.data + MIB / 2, MIB / 4}));
    send_all(&f);
    CHECK_EQUAL(f.replies[0].size, 8 + 2 * MIB);
    dl_buffer_clear(&f.replies[0]);
    CHECK(f.sessions[0].partial->value != NULL);
    put_bytes(&f, 0, (dl_bytes){bytes.data + 3 * MIB / 4, bytes.size - 3 * MIB / 4});
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_EQUAL(dl_table_get(&f.hub.table, DL_LITERAL("k"))->size, MIB);
    dl_buffer_fini(&bytes);
    free(value);
    close_fixture(&f);
}

/* What the server read before it saw that the output is too much. */
CHECK_CASE(a_value_goes_on_while_the_output_is_too_much)
{
    fixture f;
    uint8_t *value = pattern(MIB);
    dl_buffer bytes = {0};
    dl_store_request set = {.op = DL_OP_SET, KEY("new"), .value = {value, MIB}};

    open_fixture(&f);
    dl_wire_put_request(&bytes, &set, (dl_bytes){0});
    put_bytes(&f, 0, (dl_bytes){bytes.data, 10});
    dl_output *output = &f.sessions[0].output;
    dl_put_bytes(&output->bytes, (dl_bytes){value, MIB});
    dl_put_u64(&output->bytes, 0);
    CHECK(!dl_session_wants_input(&f.sessions[0]));
    for (size_t i = 10; i < bytes.size; i += 100000) {
        size_t size = bytes.size - i < 100000 ? bytes.size - i : 100000;
        CHECK_OK(dl_session_feed(&f.sessions[0], (dl_bytes){bytes.data + i, size}));
        settle(&f);
    }
    send_all(&f);
    CHECK_EQUAL(dl_table_get(&f.hub.table, DL_LITERAL("new"))->size, MIB);
    CHECK(f.sessions[0].partial == NULL);
    dl_buffer_fini(&bytes);
    free(value);
    close_fixture(&f);
}
