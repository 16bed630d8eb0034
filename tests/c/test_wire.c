/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/wire.h"

#include <stdlib.h>

#include "check.h"

static const dl_bytes SLASH = {(const uint8_t *)"/", 1};
static const dl_bytes NOTHING = {NULL, 0};

/* One request of every kind and its bytes, written down from the protocol and not from
 * the code.  Keys get "/" in front. */
typedef struct golden {
    dl_store_request request;
    dl_bytes bytes;
} golden;

static const dl_bytes TWO_KEYS[] = {{(const uint8_t *)"a", 1},
                                    {(const uint8_t *)"", 0}};
static const dl_bytes TWO_VALUES[] = {{(const uint8_t *)"", 0},
                                      {(const uint8_t *)"yz", 2}};

#define TEXT(text) {(const uint8_t *)(text), sizeof(text) - 1}
#define U64(low) low "\0\0\0\0\0\0\0"

static const golden GOLDEN[] = {
    {{.op = DL_OP_VALIDATE, .number = DL_WIRE_MAGIC}, TEXT("\x00\xce\xf7\x85\x3c")},
    {{.op = DL_OP_SET, .key = TEXT("k"), .value = TEXT("vw")},
     TEXT("\x01" U64("\x02") "/k" U64("\x02") "vw")},
    {{.op = DL_OP_COMPARE_SET,
      .key = TEXT("k"),
      .expected = TEXT("old"),
      .value = TEXT("new!")},
     TEXT("\x02" U64("\x02") "/k" U64("\x03") "old" U64("\x04") "new!")},
    {{.op = DL_OP_GET, .key = TEXT("k")}, TEXT("\x03" U64("\x02") "/k")},
    {{.op = DL_OP_ADD, .key = TEXT("k"), .number = -2},
     TEXT("\x04" U64("\x02") "/k\xfe\xff\xff\xff\xff\xff\xff\xff")},
    {{.op = DL_OP_CHECK, .count = 2, .keys = TWO_KEYS},
     TEXT("\x05" U64("\x02") U64("\x02") "/a" U64("\x01") "/")},
    {{.op = DL_OP_WAIT, .count = 1, .keys = TWO_KEYS},
     TEXT("\x06" U64("\x01") U64("\x02") "/a")},
    {{.op = DL_OP_NUM_KEYS}, TEXT("\x07")},
    {{.op = DL_OP_DELETE_KEY, .key = TEXT("k")}, TEXT("\x08" U64("\x02") "/k")},
    {{.op = DL_OP_APPEND, .key = TEXT("k"), .value = TEXT("v")},
     TEXT("\x09" U64("\x02") "/k" U64("\x01") "v")},
    {{.op = DL_OP_MULTI_GET, .count = 0}, TEXT("\x0a" U64("\x00"))},
    {{.op = DL_OP_MULTI_SET, .count = 2, .keys = TWO_KEYS, .values = TWO_VALUES},
     TEXT("\x0b" U64("\x02") U64("\x02") "/a" U64("\x00")
              U64("\x01") "/" U64("\x02") "yz")},
    {{.op = DL_OP_CANCEL_WAIT}, TEXT("\x0c")},
    {{.op = DL_OP_PING, .number = 0x04030201}, TEXT("\x0d\x01\x02\x03\x04")},
    {{.op = DL_OP_QUEUE_PUSH, .key = TEXT("q"), .value = TEXT("")},
     TEXT("\x0e" U64("\x02") "/q" U64("\x00"))},
    {{.op = DL_OP_QUEUE_POP, .key = TEXT("q")}, TEXT("\x0f" U64("\x02") "/q")},
    {{.op = DL_OP_QUEUE_LEN, .key = TEXT("q")}, TEXT("\x10" U64("\x02") "/q")},
    {{.op = DL_OP_LIST_KEYS}, TEXT("\x11")},
    {{.op = DL_OP_BARRIER, .key = TEXT("b"), .number = 4},
     TEXT("\x12" U64("\x02") "/b" U64("\x04"))},
    {{.op = DL_OP_SET, .is_checked = true, .key = TEXT("k"), .value = TEXT("v")},
     TEXT("\x81" U64("\x02") "/k" U64("\x01") "v")},
    {{.op = DL_OP_BARRIER, .is_checked = true, .key = TEXT("b"), .number = 1},
     TEXT("\x92" U64("\x02") "/b" U64("\x01"))},
    {{.op = DL_OP_STATS, .is_checked = true}, TEXT("\x93")},
};

#define GOLDEN_COUNT (sizeof GOLDEN / sizeof *GOLDEN)

CHECK_CASE(every_request_is_encoded_as_documented)
{
    bool is_seen[DL_OP_COUNT] = {false};

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        dl_buffer out = {0};
        dl_wire_put_request(&out, &GOLDEN[i].request, SLASH);
        CHECK_OK(dl_buffer_check(&out));
        dl_check_bytes(__FILE__, __LINE__,
                       dl_request_kinds[GOLDEN[i].request.op].wire_name,
                       dl_buffer_bytes(&out), GOLDEN[i].bytes);
        is_seen[GOLDEN[i].request.op] = true;
        dl_buffer_fini(&out);
    }
    for (int op = 0; op < DL_OP_COUNT; op++) {
        CHECK(is_seen[op]);
    }
}

static void
check_with_slash(dl_bytes got, dl_bytes key)
{
    CHECK(got.size == key.size + 1 && got.data[0] == '/');
    CHECK(dl_bytes_equal((dl_bytes){got.data + 1, key.size}, key));
}

static void
check_decoded(const dl_store_request *got, const dl_store_request *sent)
{
    dl_reader items = got->items;

    CHECK_EQUAL(got->op, sent->op);
    CHECK_EQUAL(got->is_checked, sent->is_checked);
    CHECK_EQUAL(got->number, sent->number);
    CHECK_EQUAL(got->count, sent->count);
    CHECK(dl_bytes_equal(got->expected, sent->expected));
    CHECK(dl_bytes_equal(got->value, sent->value));
    if (sent->key.data != NULL) {
        check_with_slash(got->key, sent->key);
    }
    for (size_t i = 0; i < sent->count; i++) {
        check_with_slash(dl_request_take_item(&items), sent->keys[i]);
        if (sent->values != NULL) {
            CHECK(dl_bytes_equal(dl_request_take_item(&items), sent->values[i]));
        }
    }
    CHECK_EQUAL(dl_reader_left(&items), 0);
}

CHECK_CASE(every_request_is_decoded_from_its_bytes)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        dl_wire_cursor cursor = {0};
        dl_store_request request;
        CHECK_EQUAL(dl_wire_take_request(&cursor, GOLDEN[i].bytes, &request), 1);
        CHECK_EQUAL(cursor.position, GOLDEN[i].bytes.size);
        check_decoded(&request, &GOLDEN[i].request);
    }
}

/* Every prefix lies in memory of its own, as it does in a buffer that moves when it
 * grows; a sanitizer sees a read behind its end. */
CHECK_CASE(every_request_is_decoded_when_it_arrives_byte_by_byte)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        dl_wire_cursor cursor = {0};
        dl_store_request request;
        dl_bytes bytes = GOLDEN[i].bytes;
        for (size_t size = 0; size <= bytes.size; size++) {
            uint8_t *arrived = malloc(size + 1);
            memcpy(arrived, bytes.data, size);
            int taken =
                dl_wire_take_request(&cursor, (dl_bytes){arrived, size}, &request);
            CHECK_EQUAL(taken, size == bytes.size);
            if (taken == 1) {
                check_decoded(&request, &GOLDEN[i].request);
            }
            free(arrived);
        }
    }
}

CHECK_CASE(every_request_is_decoded_from_any_two_pieces)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        dl_bytes bytes = GOLDEN[i].bytes;
        for (size_t cut = 0; cut < bytes.size; cut++) {
            dl_wire_cursor cursor = {0};
            dl_store_request request;
            CHECK_EQUAL(
                dl_wire_take_request(&cursor, (dl_bytes){bytes.data, cut}, &request),
                0);
            CHECK(cut == 0 || cursor.needed > cut);
            CHECK_EQUAL(dl_wire_take_request(&cursor, bytes, &request), 1);
            CHECK_EQUAL(cursor.position, bytes.size);
            check_decoded(&request, &GOLDEN[i].request);
        }
    }
}

CHECK_CASE(decoding_stops_at_the_end_of_the_request)
{
    dl_wire_cursor cursor = {0};
    dl_store_request request;

    CHECK_EQUAL(dl_wire_take_request(&cursor, DL_LITERAL("\x07\x07\xff"), &request), 1);
    CHECK_EQUAL(cursor.position, 1);
    CHECK_EQUAL(request.op, DL_OP_NUM_KEYS);
}

CHECK_CASE(a_head_is_the_request_less_its_value)
{
    const dl_opcode ops[] = {DL_OP_SET, DL_OP_APPEND, DL_OP_QUEUE_PUSH};

    for (size_t i = 0; i < 3; i++) {
        dl_store_request request = {.op = ops[i],
                                    .is_checked = true,
                                    .key = DL_LITERAL("key"),
                                    .value = DL_LITERAL("some value")};
        dl_buffer whole = {0};
        dl_buffer head = {0};
        dl_wire_put_request(&whole, &request, SLASH);
        dl_wire_put_request_head(&head, &request, SLASH);
        CHECK_EQUAL(head.size + request.value.size, whole.size);
        dl_buffer_put(&head, request.value);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&head), dl_buffer_bytes(&whole)));
        dl_buffer_fini(&whole);
        dl_buffer_fini(&head);
    }
}

CHECK_CASE(a_head_is_taken_once_the_size_of_the_value_is_there)
{
    dl_bytes bytes = DL_LITERAL("\x81" U64("\x02") "/k" U64("\x05") "val");
    dl_store_request request;
    size_t head_size = 0;
    size_t value_size = 0;

    for (size_t size = 0; size < 19; size++) {
        CHECK(!dl_wire_take_head((dl_bytes){bytes.data, size}, &request, &head_size,
                                 &value_size));
    }
    CHECK(dl_wire_take_head(bytes, &request, &head_size, &value_size));
    CHECK_EQUAL(head_size, 19);
    CHECK_EQUAL(value_size, 5);
    CHECK(request.is_checked);
    CHECK_BYTES(request.key, "/k");
    CHECK(!dl_wire_take_head(DL_LITERAL("\x09" U64("\x01") "k" U64("\x05")), &request,
                             &head_size, &value_size));
}

/* Feeds `bytes`, of which the request wants more than there are, in two pieces at every
 * place: the answer comes as soon as the bad field is there. */
static void
check_refused(dl_bytes bytes, dl_status status, const char *text)
{
    for (size_t cut = 0; cut < bytes.size; cut++) {
        dl_wire_cursor cursor = {0};
        dl_store_request request;
        CHECK_EQUAL(
            dl_wire_take_request(&cursor, (dl_bytes){bytes.data, cut}, &request), 0);
        CHECK_EQUAL(dl_wire_take_request(&cursor, bytes, &request), -1);
        CHECK_EQUAL(dl_last_error()->status, status);
        CHECK_TEXT(dl_last_error()->text, text);
        CHECK_EQUAL(request.is_checked, (bytes.data[0] & DL_WIRE_CHECKED) != 0);
    }
}

CHECK_CASE(an_over_long_field_is_refused_when_its_size_is_known)
{
    check_refused(DL_LITERAL("\x03\x01\x20\0\0\0\0\0\0"), DL_INVALID,
                  "GET: key of 8193 bytes, the limit is 8192");
    check_refused(DL_LITERAL("\x83\xff\xff\xff\xff\xff\xff\xff\xff"), DL_INVALID,
                  "GET: key of 18446744073709551615 bytes, the limit is 8192");
    check_refused(DL_LITERAL("\x01" U64("\x01") "k\x01\0\x80\0\0\0\0\0"), DL_INVALID,
                  "SET: value of 8388609 bytes, the limit is 8388608");
    check_refused(DL_LITERAL("\x02" U64("\x01") "k\0\0\0\0\0\0\0\x80"), DL_INVALID,
                  "COMPARE_SET: value of 9223372036854775808 bytes, "
                  "the limit is 8388608");
    check_refused(DL_LITERAL("\x8a\x01\0\x02\0\0\0\0\0"), DL_INVALID,
                  "MULTI_GET: 131073 keys, the limit is 131072");
    check_refused(DL_LITERAL("\x05" U64("\x02") U64("\x01") "a\0\0\0\0\x01\0\0\0"),
                  DL_INVALID, "CHECK: key of 4294967296 bytes, the limit is 8192");
    check_refused(DL_LITERAL("\x0b" U64("\x01") U64("\x01") "a\0\0\0\0\x01\0\0\0"),
                  DL_INVALID,
                  "MULTI_SET: value of 4294967296 bytes, the limit is 8388608");
}

CHECK_CASE(fields_of_exactly_the_limit_are_taken)
{
    dl_buffer bytes = {0};
    uint8_t *large = calloc(1, DL_WIRE_VALUE_LIMIT);
    dl_store_request request = {.op = DL_OP_SET,
                                .key = {large, DL_WIRE_KEY_LIMIT},
                                .value = {large, DL_WIRE_VALUE_LIMIT}};
    dl_wire_cursor cursor = {0};

    dl_wire_put_request(&bytes, &request, NOTHING);
    CHECK_EQUAL(dl_wire_take_request(&cursor, dl_buffer_bytes(&bytes), &request), 1);
    CHECK_EQUAL(request.key.size, DL_WIRE_KEY_LIMIT);
    CHECK_EQUAL(request.value.size, DL_WIRE_VALUE_LIMIT);
    dl_buffer_fini(&bytes);
    free(large);
}

CHECK_CASE(an_unknown_opcode_is_refused)
{
    for (int byte = 0; byte < 256; byte++) {
        const uint8_t data[] = {(uint8_t)byte};
        dl_wire_cursor cursor = {0};
        dl_store_request request;
        int taken = dl_wire_take_request(&cursor, (dl_bytes){data, 1}, &request);
        CHECK_EQUAL(taken == -1, (byte & 0x7f) >= DL_OP_COUNT
                                     || (byte >= DL_OP_FIRST_OWN && byte < 0x80));
        CHECK_EQUAL(request.is_checked, byte >= 0x80);
        if (taken == -1) {
            CHECK_EQUAL(dl_last_error()->status, DL_PROTOCOL);
            CHECK_CONTAINS(dl_last_error()->text, "unknown request 0x");
        }
    }
}

/* 100,000 pairs byte by byte: with anything but a step per byte this case times out. */
CHECK_CASE(decoding_is_linear_however_the_bytes_are_cut)
{
    enum { PAIRS = 100000 };
    dl_buffer bytes = {0};
    dl_wire_cursor cursor = {0};
    dl_store_request request;

    dl_put_u8(&bytes, DL_OP_MULTI_SET);
    dl_put_u64(&bytes, PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        dl_put_bytes(&bytes, DL_LITERAL("some key"));
        dl_put_bytes(&bytes, DL_LITERAL("v"));
    }
    CHECK_OK(dl_buffer_check(&bytes));
    for (size_t size = 1; size < bytes.size; size++) {
        CHECK_EQUAL(
            dl_wire_take_request(&cursor, (dl_bytes){bytes.data, size}, &request), 0);
    }
    CHECK_EQUAL(dl_wire_take_request(&cursor, dl_buffer_bytes(&bytes), &request), 1);
    CHECK_EQUAL(request.count, PAIRS);
    dl_buffer_fini(&bytes);
}

CHECK_CASE(an_error_is_a_status_and_a_text)
{
    dl_buffer out = {0};

    dl_fail(DL_INVALID, "no number");
    dl_wire_put_error(&out);
    CHECK_BYTES(dl_buffer_bytes(&out), "\x07" U64("\x09") "no number");
    dl_buffer_fini(&out);
}
