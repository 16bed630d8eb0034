/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/session.h"

#include "session_fixture.h"
#include "store/store.h"

static const dl_bytes KEYS[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}};
static const dl_bytes VALUES[] = {{(const uint8_t *)"1", 1},
                                  {(const uint8_t *)"22", 2}};

/* Validation */

CHECK_CASE(an_unvalidated_client_gets_nothing_done)
{
    fixture f;

    open_fixture(&f);
    for (int byte = 1; byte < 256; byte++) {
        const uint8_t first[] = {(uint8_t)byte, 1, 0, 0, 0, 0, 0, 0, 0, 'k'};
        dl_session session;
        dl_session_init(&session, &f.hub);
        CHECK_STATUS(dl_session_feed(&session, (dl_bytes){first, sizeof first}),
                     DL_PROTOCOL);
        CHECK(!dl_session_has_output(&session));
        dl_session_fini(&session);
    }
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 0);
    close_fixture(&f);
}

CHECK_CASE(the_wrong_magic_number_ends_the_conversation)
{
    dl_hub hub;
    dl_session session;

    dl_hub_init(&hub);
    dl_session_init(&session, &hub);
    CHECK_STATUS(dl_session_feed(&session, DL_LITERAL("\0\xcf\xf7\x85\x3c\x07")),
                 DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "0x3c85f7cf");
    CHECK(!dl_session_has_output(&session));
    /* What comes later is not even looked at. */
    CHECK_OK(dl_session_feed(&session, DL_LITERAL(VALIDATE "\x07")));
    CHECK(!dl_session_has_output(&session) && session.partial == NULL);
    dl_session_fini(&session);
    dl_hub_fini(&hub);
}

CHECK_CASE(validation_may_be_cut_anywhere)
{
    for (size_t cut = 0; cut <= 6; cut++) {
        dl_bytes bytes = DL_LITERAL(VALIDATE "\x07");
        fixture f;
        open_fixture(&f);
        dl_session_fini(&f.sessions[0]);
        dl_session_init(&f.sessions[0], &f.hub);
        put_bytes(&f, 0, (dl_bytes){bytes.data, cut});
        put_bytes(&f, 0, (dl_bytes){bytes.data + cut, bytes.size - cut});
        CHECK_BYTES(heard(&f, 0), U64("\0"));
        close_fixture(&f);
    }
}

CHECK_CASE(validating_twice_ends_the_conversation)
{
    fixture f;

    open_fixture(&f);
    CHECK_STATUS(dl_session_feed(&f.sessions[0], DL_LITERAL(VALIDATE)), DL_PROTOCOL);
    CHECK(!dl_session_has_output(&f.sessions[0]));
    close_fixture(&f);
}

/* What each request does */

CHECK_CASE(set_and_get)
{
    fixture f;

    open_fixture(&f);
    SET(0, "k", "first");
    SET(0, "k", "second");
    CHECK_BYTES(ASK(1, .op = DL_OP_GET, KEY("k")), U64("\x06") "second");
    CHECK_BYTES(ASK(1, .op = DL_OP_GET, KEY("absent")), U64("\0"));
    SET(0, "empty", "");
    CHECK_BYTES(ASK(1, .op = DL_OP_GET, .is_checked = true, KEY("empty")),
                "\0" U64("\0"));
    CHECK_BYTES(ASK(1, .op = DL_OP_GET, .is_checked = true, KEY("absent")),
                "\x05" U64("\x15") "key is absent: absent");
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, .is_checked = true, KEY("k"), VALUE("v")),
                "\0");
    close_fixture(&f);
}

CHECK_CASE(an_error_quotes_a_key_without_its_control_characters_and_not_endlessly)
{
    fixture f;
    char key[300], expected[300];
    dl_bytes long_key = {(const uint8_t *)key, sizeof key};

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_GET, .is_checked = true, KEY("a\n\x1b[2J")),
                "\x05" U64("\x1b") "key is absent: a\\x0a\\x1b[2J");
    memset(key, 'k', sizeof key);
    dl_bytes reply = ASK(0, .op = DL_OP_GET, .is_checked = true, .key = long_key);
    snprintf(expected, sizeof expected, "key is absent: %.100s...", key);
    CHECK(reply.size == 9 + strlen(expected));
    CHECK(memcmp(reply.data + 9, expected, strlen(expected)) == 0);
    dl_store_fail_not_a_number(long_key);
    CHECK(strstr(dl_last_error()->text, "kkk...\" is not a 64-bit number") != NULL);
    close_fixture(&f);
}

CHECK_CASE(compare_set)
{
    fixture f;

    open_fixture(&f);
#define COMPARE_SET(old, new) \
    ASK(0, .op = DL_OP_COMPARE_SET, KEY("k"), .expected = DL_LITERAL(old), VALUE(new))
    /* Absent and something expected: nothing stored, the expectation comes back. */
    CHECK_BYTES(COMPARE_SET("old", "new"), U64("\x03") "old");
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 0);
    CHECK_BYTES(COMPARE_SET("", "one"), U64("\x03") "one");
    CHECK_BYTES(COMPARE_SET("zero", "two"), U64("\x03") "one");
    CHECK_BYTES(COMPARE_SET("one", "three"), U64("\x05") "three");
    CHECK_BYTES(COMPARE_SET("", "four"), U64("\x05") "three");
    CHECK_BYTES(ASK(0, .op = DL_OP_COMPARE_SET, .is_checked = true, KEY("k"),
                    .expected = DL_LITERAL("three"), VALUE("")),
                "\0" U64("\0"));
    CHECK_BYTES(COMPARE_SET("", "five"), U64("\x04") "five");
    close_fixture(&f);
}

CHECK_CASE(add_counts_in_decimal)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_ADD, KEY("n"), .number = 5), U64("\x05"));
    CHECK_BYTES(ASK(0, .op = DL_OP_ADD, KEY("n"), .number = -7),
                "\xfe\xff\xff\xff\xff\xff\xff\xff");
    CHECK_BYTES(ASK(0, .op = DL_OP_GET, KEY("n")), U64("\x02") "-2");
    CHECK_BYTES(ASK(0, .op = DL_OP_ADD, .is_checked = true, KEY("n"), .number = 2),
                "\0" U64("\0"));
    close_fixture(&f);
}

CHECK_CASE(add_on_text_is_an_error_of_checked_requests_and_ends_other_connections)
{
    fixture f;

    open_fixture(&f);
    SET(0, "t", "text");
    dl_bytes reply = ASK(0, .op = DL_OP_ADD, .is_checked = true, KEY("t"), .number = 1);
    CHECK_EQUAL(reply.data[0], DL_INVALID);
    CHECK(reply.size > 9);
    CHECK_BYTES(ASK(0, .op = DL_OP_GET, KEY("t")), U64("\x04") "text");
    CHECK_STATUS(
        dl_session_feed(&f.sessions[1], DL_LITERAL("\x04" U64("\x01") "t" U64("\x01"))),
        DL_INVALID);
    CHECK_STATUS(
        dl_session_feed(&f.sessions[2], DL_LITERAL("\x12" U64("\x01") "t" U64("\x01"))),
        DL_INVALID);
    CHECK_BYTES(ASK(0, .op = DL_OP_GET, KEY("t")), U64("\x04") "text");
    close_fixture(&f);
}

CHECK_CASE(check_looks_at_values_and_queues)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_CHECK, .count = 0), "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_CHECK, .count = 2, .keys = KEYS), "\1");
    SET(0, "a", "");
    CHECK_BYTES(ASK(0, .op = DL_OP_CHECK, .count = 2, .keys = KEYS), "\1");
    CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_PUSH, KEY("b"), VALUE("item")), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_CHECK, .is_checked = true, .count = 2, .keys = KEYS),
                "\0\0");
    close_fixture(&f);
}

CHECK_CASE(a_server_of_ours_is_known_by_its_hello)
{
    const dl_bytes keys[] = {DL_LITERAL(DL_WIRE_HELLO), DL_LITERAL(DL_WIRE_HELLO)};
    fixture f;

    open_fixture(&f);
    memset(f.hub.identity, 'i', sizeof f.hub.identity);
    CHECK_BYTES(greet(&f, 0, "someone's slot 1", 1), "\0iiiiiiiiiiiiiiii\0");
    CHECK_BYTES(greet(&f, 1, "someone's slot 2", 1), "\0iiiiiiiiiiiiiiii\0");
    dl_session_fini(&f.sessions[0]);
    CHECK_BYTES(greet(&f, 2, "someone's slot 1", 1), "\0iiiiiiiiiiiiiiii\1");
    /* What merely resembles one is a key that does not exist. */
    CHECK_BYTES(ASK(3, .op = DL_OP_CHECK, .count = 1, .keys = keys), "\1");
    CHECK_BYTES(ASK(3, .op = DL_OP_CHECK, .count = 2, .keys = keys), "\1");
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 0);
    close_fixture(&f);
}

CHECK_CASE(keys_are_counted_listed_and_deleted)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_LIST_KEYS), U64("\0"));
    SET(0, "name", "v");
    CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_PUSH, KEY("q"), VALUE("item")), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_NUM_KEYS), U64("\1"));
    CHECK_BYTES(ASK(0, .op = DL_OP_LIST_KEYS), U64("\1") U64("\4") "name");
    CHECK_BYTES(ASK(0, .op = DL_OP_LIST_KEYS, .is_checked = true),
                "\0" U64("\1") U64("\4") "name");
    CHECK_BYTES(ASK(0, .op = DL_OP_DELETE_KEY, KEY("q")), U64("\0"));
    CHECK_BYTES(ASK(0, .op = DL_OP_DELETE_KEY, KEY("name")), U64("\1"));
    CHECK_BYTES(ASK(0, .op = DL_OP_DELETE_KEY, KEY("name")), U64("\0"));
    CHECK_BYTES(ASK(0, .op = DL_OP_NUM_KEYS, .is_checked = true), "\0" U64("\0"));
    close_fixture(&f);
}

CHECK_CASE(append_extends_or_creates)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_APPEND, KEY("k"), VALUE("ab")), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_APPEND, .is_checked = true, KEY("k"), VALUE("c")),
                "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_GET, KEY("k")), U64("\3") "abc");
    close_fixture(&f);
}

CHECK_CASE(several_keys_at_once)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(
        ASK(0, .op = DL_OP_MULTI_SET, .count = 2, .keys = KEYS, .values = VALUES), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_MULTI_GET, .count = 2, .keys = KEYS),
                U64("\1") "1" U64("\2") "22");
    CHECK_BYTES(ASK(0, .op = DL_OP_DELETE_KEY, KEY("b")), U64("\1"));
    CHECK_BYTES(ASK(0, .op = DL_OP_MULTI_GET, .count = 2, .keys = KEYS),
                U64("\1") "1" U64("\0"));
    CHECK_BYTES(
        ASK(0, .op = DL_OP_MULTI_GET, .is_checked = true, .count = 2, .keys = KEYS),
        "\5" U64("\x10") "key is absent: b");
    CHECK_BYTES(ASK(0, .op = DL_OP_MULTI_GET, .is_checked = true, .count = 0), "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_MULTI_SET, .is_checked = true, .count = 0), "\0");
    close_fixture(&f);
}

CHECK_CASE(ping_gives_the_number_back)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_PING, .number = 0xfedcba98), "\x98\xba\xdc\xfe");
    CHECK_BYTES(ASK(0, .op = DL_OP_PING, .is_checked = true, .number = 1),
                "\0\1\0\0\0");
    close_fixture(&f);
}

CHECK_CASE(queues_are_first_in_first_out)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_POP, KEY("q")), U64("\0"));
    CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_PUSH, KEY("q"), VALUE("one")), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_PUSH, .is_checked = true, KEY("q"), VALUE("")),
                "\0");
    CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_LEN, KEY("q")), U64("\2"));
    CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_POP, KEY("q")), U64("\2") U64("\3") "one");
    CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_POP, .is_checked = true, KEY("q")),
                "\0" U64("\1") U64("\0"));
    CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_LEN, KEY("q")), U64("\0"));
    close_fixture(&f);
}

CHECK_CASE(a_malformed_request_ends_the_conversation_and_a_checked_one_gets_an_error)
{
    fixture f;

    open_fixture(&f);
    CHECK_STATUS(dl_session_feed(&f.sessions[0], DL_LITERAL("\x7f")), DL_PROTOCOL);
    CHECK(!dl_session_has_output(&f.sessions[0]));
    CHECK_STATUS(dl_session_feed(&f.sessions[1], DL_LITERAL("\xff")), DL_PROTOCOL);
    send_some(&f, 1, SIZE_MAX);
    CHECK_BYTES(heard(&f, 1), "\4" U64("\x14") "unknown request 0xff");
    CHECK_STATUS(
        dl_session_feed(&f.sessions[2], DL_LITERAL("\x83\0\0\0\0\x01\0\0\0 and more")),
        DL_INVALID);
    send_some(&f, 2, SIZE_MAX);
    CHECK_BYTES(heard(&f, 2),
                "\7" U64("\x2f") "GET: key of 4294967296 bytes, the limit is 8192");
    close_fixture(&f);
}

CHECK_CASE(requests_before_a_bad_one_are_answered)
{
    fixture f;

    open_fixture(&f);
    CHECK_STATUS(
        dl_session_feed(&f.sessions[0], DL_LITERAL("\x0d\1\2\3\4\x07\x7f\x07")),
        DL_PROTOCOL);
    send_some(&f, 0, SIZE_MAX);
    CHECK_BYTES(heard(&f, 0), "\1\2\3\4" U64("\0"));
    close_fixture(&f);
}

/* However the bytes are cut */

/* Every kind of request, some twice, one after the other without waiting for replies. */
static void
put_conversation(dl_buffer *bytes)
{
    static const dl_store_request requests[] = {
        {.op = DL_OP_PING, .number = 77},
        {.op = DL_OP_SET, KEY("k"), VALUE("some value")},
        {.op = DL_OP_SET, .is_checked = true, KEY("k2"), VALUE("")},
        {.op = DL_OP_GET, KEY("k")},
        {.op = DL_OP_GET, .is_checked = true, KEY("none")},
        {.op = DL_OP_COMPARE_SET, KEY("c"), .expected = {NULL, 0}, VALUE("new")},
        {.op = DL_OP_ADD, KEY("n"), .number = 40},
        {.op = DL_OP_ADD, .is_checked = true, KEY("k"), .number = 40},
        {.op = DL_OP_MULTI_SET, .count = 2, .keys = KEYS, .values = VALUES},
        {.op = DL_OP_CHECK, .count = 2, .keys = KEYS},
        {.op = DL_OP_WAIT, .count = 2, .keys = KEYS},
        {.op = DL_OP_MULTI_GET, .count = 2, .keys = KEYS},
        {.op = DL_OP_APPEND, KEY("a"), VALUE("111")},
        {.op = DL_OP_CANCEL_WAIT},
        {.op = DL_OP_QUEUE_PUSH, KEY("q"), VALUE("item")},
        {.op = DL_OP_QUEUE_LEN, KEY("q")},
        {.op = DL_OP_QUEUE_POP, KEY("q")},
        {.op = DL_OP_BARRIER, KEY("round"), .number = 1},
        {.op = DL_OP_DELETE_KEY, KEY("n")},
        {.op = DL_OP_NUM_KEYS},
        {.op = DL_OP_GET, KEY("a")},
    };

    dl_buffer_put(bytes, DL_LITERAL(VALIDATE));
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        dl_wire_put_request(bytes, &requests[i], (dl_bytes){0});
    }
    CHECK_OK(dl_buffer_check(bytes));
}

/* All replies when the conversation arrives as `first` bytes and then in pieces of
 * `step`.  Each piece lies in memory of its own. */
static void
converse(dl_bytes bytes, size_t first, size_t step, dl_buffer *reply)
{
    fixture f;
    size_t next = 0;

    open_fixture(&f);
    dl_session_fini(&f.sessions[0]);
    dl_session_init(&f.sessions[0], &f.hub);
    for (size_t start = 0; start < bytes.size; start = next) {
        next = start + (start == 0 ? first : step);
        next = next < bytes.size ? next : bytes.size;
        uint8_t *piece = malloc(next - start + 1);
        memcpy(piece, bytes.data + start, next - start);
        put_bytes(&f, 0, (dl_bytes){piece, next - start});
        free(piece);
    }
    CHECK(f.sessions[0].partial == NULL);
    CHECK_OK(dl_buffer_set(reply, dl_buffer_bytes(&f.replies[0])));
    close_fixture(&f);
}

CHECK_CASE(replies_do_not_depend_on_how_the_bytes_are_cut)
{
    dl_buffer bytes = {0};
    dl_buffer whole = {0};
    dl_buffer cut = {0};

    put_conversation(&bytes);
    converse(dl_buffer_bytes(&bytes), bytes.size, bytes.size, &whole);
    CHECK(whole.size > 100);
    for (size_t first = 1; first < bytes.size; first++) {
        converse(dl_buffer_bytes(&bytes), first, bytes.size, &cut);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&cut), dl_buffer_bytes(&whole)));
    }
    for (size_t step = 1; step < 30; step++) {
        converse(dl_buffer_bytes(&bytes), step, step, &cut);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&cut), dl_buffer_bytes(&whole)));
    }
    dl_buffer_fini(&bytes);
    dl_buffer_fini(&whole);
    dl_buffer_fini(&cut);
}

/* With one allocation failing, the conversation goes as it should up to some point and
 * then ends: a client never hears half a reply, and nothing leaks or is touched after
 * it was freed. */
static bool
converse_without_memory(dl_bytes bytes, long failing, dl_bytes expected)
{
    fixture f;
    dl_status status = DL_OK;

    open_fixture(&f);
    dl_session_fini(&f.sessions[0]);
    dl_session_init(&f.sessions[0], &f.hub);
    dl_check_fail_allocation_at(failing);
    for (size_t i = 0; i < bytes.size && status == DL_OK; i += 7) {
        size_t size = bytes.size - i < 7 ? bytes.size - i : 7;
        status = dl_session_feed(&f.sessions[0], (dl_bytes){bytes.data + i, size});
        if (status == DL_OK && dl_session_take_changed(&f.hub) != NULL) {
            status = dl_session_resume(&f.sessions[0]);
        }
    }
    while (status == DL_OK && dl_session_take_changed(&f.hub) != NULL) {
        status = dl_session_resume(&f.sessions[0]);
    }
    bool has_failed = dl_check_allocation_failed();
    send_some(&f, 0, SIZE_MAX);
    dl_bytes reply = dl_buffer_bytes(&f.replies[0]);
    /* "out of memory" is a reply too, to a checked request. */
    bool is_told = reply.size != expected.size || !dl_bytes_equal(reply, expected);
    CHECK(!is_told || has_failed);
    CHECK(status == DL_OK || status == DL_NO_MEMORY);
    close_fixture(&f);
    return has_failed;
}

CHECK_CASE(a_conversation_survives_or_ends_when_memory_runs_out)
{
    dl_buffer bytes = {0};
    dl_buffer whole = {0};
    long failing = 1;

    put_conversation(&bytes);
    converse(dl_buffer_bytes(&bytes), bytes.size, bytes.size, &whole);
    while (converse_without_memory(dl_buffer_bytes(&bytes), failing,
                                   dl_buffer_bytes(&whole))) {
        failing++;
    }
    CHECK(failing > 30);
    dl_buffer_fini(&bytes);
    dl_buffer_fini(&whole);
}

/* 100,000 pairs byte by byte: a step per byte, or this case times out. */
CHECK_CASE(a_long_request_may_arrive_byte_by_byte)
{
    enum { PAIRS = 100000 };
    fixture f;
    char key[16];

    open_fixture(&f);
    put_bytes(&f, 0, DL_LITERAL("\x8b\xa0\x86\x01\0\0\0\0\0"));
    for (int i = 0; i < PAIRS; i++) {
        dl_buffer pair = {0};
        snprintf(key, sizeof key, "%d", i);
        dl_put_bytes(&pair, dl_bytes_of(key));
        dl_put_bytes(&pair, DL_LITERAL("v"));
        for (size_t j = 0; j < pair.size; j++) {
            CHECK_OK(dl_session_feed(&f.sessions[0], (dl_bytes){pair.data + j, 1}));
        }
        dl_buffer_fini(&pair);
    }
    send_all(&f);
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), PAIRS);
    close_fixture(&f);
}

CHECK_CASE(a_request_that_never_becomes_whole_leaves_nothing)
{
    fixture f;

    open_fixture(&f);
    put_bytes(
        &f, 0,
        DL_LITERAL("\x0b" U64("\x02") U64("\x01") "a" U64("\x01") "v" U64("\x01")));
    CHECK(f.sessions[0].partial != NULL);
    dl_session_fini(&f.sessions[0]);
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 0);
    close_fixture(&f);
}

/* Replies that the client does not read */

CHECK_CASE(a_client_that_takes_no_replies_is_not_served_until_it_does)
{
    enum { REQUESTS = 6000 };
    static uint8_t value[4096];
    fixture f;
    dl_buffer bytes = {0};
    size_t total = 0;

    open_fixture(&f);
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, KEY("k"), .value = {value, sizeof value}), "");
    for (int i = 0; i < REQUESTS; i++) {
        dl_store_request get = {.op = DL_OP_GET, KEY("k")};
        dl_wire_put_request(&bytes, &get, (dl_bytes){0});
    }
    CHECK_OK(dl_session_feed(&f.sessions[0], dl_buffer_bytes(&bytes)));
    CHECK(!dl_session_wants_input(&f.sessions[0]));
    CHECK(dl_output_size(&f.sessions[0].output) < DL_OUTPUT_LIMIT + 2 * sizeof value);
    /* Part of it taken is not enough: memory is given back only at the end. */
    send_some(&f, 0, 1000);
    CHECK_EQUAL(f.hub.changed_count, 0);
    CHECK(!dl_session_wants_input(&f.sessions[0]));
    CHECK_OK(dl_session_feed(&f.sessions[1], DL_LITERAL("\x0d\1\2\3\4")));
    CHECK_EQUAL(dl_output_size(&f.sessions[1].output), 4);
    while (dl_session_has_output(&f.sessions[0])) {
        send_some(&f, 0, SIZE_MAX);
        settle(&f);
        total += f.replies[0].size;
        dl_buffer_clear(&f.replies[0]);
    }
    CHECK_EQUAL(total, REQUESTS * (8 + sizeof value));
    CHECK(dl_session_wants_input(&f.sessions[0]));
    CHECK(f.sessions[0].partial == NULL);
    dl_buffer_fini(&bytes);
    close_fixture(&f);
}

CHECK_CASE(one_request_for_much_is_held_by_reference)
{
    enum { COUNT = 10000 };
    static uint8_t value[12 << 10];
    static dl_bytes keys[COUNT];
    fixture f;
    dl_buffer bytes = {0};

    open_fixture(&f);
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, KEY("k"), .value = {value, sizeof value}), "");
    for (int i = 0; i < COUNT; i++) {
        keys[i] = DL_LITERAL("k");
    }
    dl_store_request request = {.op = DL_OP_MULTI_GET, .count = COUNT, .keys = keys};
    dl_wire_put_request(&bytes, &request, (dl_bytes){0});
    CHECK_OK(dl_session_feed(&f.sessions[0], dl_buffer_bytes(&bytes)));
    settle(&f);
    const dl_output *output = &f.sessions[0].output;
    CHECK_EQUAL(dl_output_size(output), COUNT * (8 + sizeof value));
    CHECK(output->bytes.capacity + output->values.capacity < 2 << 20);
    dl_buffer_fini(&bytes);
    close_fixture(&f);
}

CHECK_CASE(the_rest_of_a_bad_client_s_requests_is_dropped)
{
    static uint8_t value[1 << 20];
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(1, .op = DL_OP_SET, KEY("k"), .value = {value, sizeof value}), "");
    CHECK_OK(dl_session_feed(&f.sessions[0],
                             DL_LITERAL("\3" U64("\1") "k\3" U64("\1") "k\x7f\x07")));
    CHECK_EQUAL(f.sessions[0].client.phase, DL_PHASE_STALLED);
    send_some(&f, 0, SIZE_MAX);
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[0]);
    CHECK_OK(dl_session_resume(&f.sessions[0]));
    send_some(&f, 0, SIZE_MAX);
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[0]);
    CHECK_STATUS(dl_session_resume(&f.sessions[0]), DL_PROTOCOL);
    CHECK(!dl_session_has_output(&f.sessions[0]) && f.sessions[0].partial == NULL);
    CHECK_EQUAL(f.hub.changed_count, 0);
    close_fixture(&f);
}

/* Turns: what one client asks for in one round is done a bit at a time. */

/* Serves client 0 until it has nothing to do, and looks after each of its turns whether
 * another client is served at once.  Returns the number of turns. */
static int
turns_of(fixture *f)
{
    int turns = 0;

    for (; f->hub.changed_count > 0; turns++) {
        CHECK(dl_session_take_changed(&f->hub) == &f->sessions[0]);
        CHECK_OK(dl_session_resume(&f->sessions[0]));
        CHECK_OK(dl_session_feed(&f->sessions[1], DL_LITERAL("\x0d\1\2\3\4")));
        CHECK_EQUAL(dl_output_size(&f->sessions[1].output), 4);
        send_some(f, 1, SIZE_MAX);
        CHECK_BYTES(heard(f, 1), "\1\2\3\4");
        send_some(f, 0, SIZE_MAX);
    }
    return turns;
}

CHECK_CASE(many_small_requests_take_several_turns)
{
    enum { REQUESTS = 60000 };
    static uint8_t bytes[REQUESTS]; /* GETNUMKEYS, of one byte */
    fixture f;

    open_fixture(&f);
    memset(bytes, DL_OP_NUM_KEYS, sizeof bytes);
    CHECK_OK(dl_session_feed(&f.sessions[0], (dl_bytes){bytes, sizeof bytes}));
    CHECK(!dl_session_wants_input(&f.sessions[0]));
    CHECK(turns_of(&f) >= REQUESTS / DL_SESSION_WORK - 1);
    CHECK_EQUAL(f.replies[0].size, 8 * REQUESTS);
    CHECK(dl_session_wants_input(&f.sessions[0]));
    CHECK(f.sessions[0].partial == NULL);
    close_fixture(&f);
}

#define MANY 20000

/* "0", "1", and so on. */
static const dl_bytes *
many_keys(void)
{
    static char text[MANY][8];
    static dl_bytes keys[MANY];

    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], "%d", i);
        keys[i] = dl_bytes_of(text[i]);
    }
    return keys;
}

/* Feeds the request to client 0, whole or in pieces, and a PING that is left for another
 * turn; afterwards nothing is left over. */
static void
take_turns(fixture *f, dl_store_request request, size_t piece)
{
    dl_buffer bytes = {0};
    size_t next;

    dl_wire_put_request(&bytes, &request, (dl_bytes){0});
    dl_wire_put_request(&bytes, &(dl_store_request){.op = DL_OP_PING, .number = 7},
                        (dl_bytes){0});
    for (size_t start = 0; start < bytes.size; start = next) {
        next = bytes.size - start < piece ? bytes.size : start + piece;
        CHECK_OK(dl_session_feed(&f->sessions[0],
                                 (dl_bytes){bytes.data + start, next - start}));
    }
    CHECK(!dl_session_wants_input(&f->sessions[0]));
    CHECK(turns_of(f) >= 1);
    CHECK(f->sessions[0].partial == NULL);
    dl_buffer_fini(&bytes);
}

/* Takes `size` bytes off the replies of client 0, which must be `expected`. */
static void
check_heard_first(fixture *f, dl_bytes expected)
{
    dl_buffer *reply = &f->replies[0];

    CHECK(reply->size >= expected.size
          && memcmp(reply->data, expected.data, expected.size) == 0);
    dl_buffer_consume(reply, expected.size);
}

#define CHECK_HEARD_FIRST(literal) check_heard_first(&f, DL_LITERAL(literal))

CHECK_CASE(a_request_over_many_keys_ends_its_client_s_turn)
{
    const size_t pieces[] = {1 << 16, 1 << 30};
    const dl_bytes *keys = many_keys();

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        fixture f;
        size_t piece = pieces[i];

        open_fixture(&f);
        take_turns(&f,
                   (dl_store_request){.op = DL_OP_MULTI_SET,
                                      .is_checked = true,
                                      .count = MANY,
                                      .keys = keys,
                                      .values = keys},
                   piece);
        CHECK_HEARD_FIRST("\0\7\0\0\0");
        CHECK_EQUAL(dl_table_num_keys(&f.hub.table), MANY);
        take_turns(&f,
                   (dl_store_request){.op = DL_OP_CHECK, .count = MANY, .keys = keys},
                   piece);
        CHECK_HEARD_FIRST("\0\7\0\0\0");
        take_turns(&f,
                   (dl_store_request){.op = DL_OP_WAIT, .count = MANY, .keys = keys},
                   piece);
        CHECK_HEARD_FIRST("\0\7\0\0\0");
        take_turns(
            &f, (dl_store_request){.op = DL_OP_MULTI_GET, .count = MANY, .keys = keys},
            piece);
        for (size_t key = 0; key < MANY; key++) {
            dl_buffer value = {0};
            dl_put_bytes(&value, keys[key]);
            check_heard_first(&f, dl_buffer_bytes(&value));
            dl_buffer_fini(&value);
        }
        CHECK_HEARD_FIRST("\7\0\0\0");
        CHECK_EQUAL(f.replies[0].size, 0);
        close_fixture(&f);
    }
}

CHECK_CASE(many_names_are_listed)
{
    const dl_bytes *keys = many_keys();
    fixture f;
    dl_buffer expected = {0};

    open_fixture(&f);
    dl_put_i64(&expected, MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(dl_table_set(&f.hub.table, keys[i], keys[i]));
        dl_put_bytes(&expected, keys[i]);
    }
    put_bytes(&f, 0, DL_LITERAL("\x11"));
    check_heard_first(&f, dl_buffer_bytes(&expected));
    CHECK_EQUAL(f.replies[0].size, 0);
    dl_buffer_fini(&expected);
    close_fixture(&f);
}

/* A wait for many keys hangs off one of them at a time. */
CHECK_CASE(a_wait_for_many_keys_ends_when_each_was_seen)
{
    const dl_bytes *keys = many_keys();
    fixture f;

    open_fixture(&f);
    for (int i = 0; i < MANY; i++) {
        if (i != 100 && i != 15000) {
            CHECK_OK(dl_table_set(&f.hub.table, keys[i], keys[i]));
        }
    }
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = MANY, .keys = keys), "");
    CHECK(f.sessions[0].waiter.is_parked);
    CHECK_EQUAL(f.hub.table.waiter_count, 1);
    CHECK(f.hub.pending > MANY * sizeof(dl_bytes));
    CHECK_BYTES(ASK(0, .op = DL_OP_PING, .number = 7), "\7\0\0\0");
    SET(1, "100", "");
    CHECK(dl_table_delete(&f.hub.table, DL_LITERAL("100")));
    CHECK_BYTES(heard(&f, 0), "");
    SET(1, "15000", "");
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK(!f.sessions[0].waiter.is_parked);
    CHECK_EQUAL(f.hub.pending, 0);
    close_fixture(&f);
}

CHECK_CASE(a_wait_for_many_keys_is_cancelled_and_replaced)
{
    const dl_bytes *keys = many_keys();
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = MANY, .keys = keys), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_CANCEL_WAIT), "\1");
    SET(1, "0", "");
    CHECK_BYTES(heard(&f, 0), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = MANY, .keys = keys), "");
    CHECK_BYTES(
        ASK(0, .op = DL_OP_WAIT, .is_checked = true, .count = 1, .keys = keys + 1), "");
    SET(1, "1", "");
    CHECK_BYTES(heard(&f, 0), "\0\0");
    /* One that is still waiting when the client leaves. */
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = MANY, .keys = keys), "");
    close_fixture(&f);
}

/* 131,071 times the same key: setting or deleting that key costs no more than with
 * one. */
CHECK_CASE(one_key_that_is_waited_for_often_hangs_once)
{
    enum { TIMES = 131071 };
    static dl_bytes keys[TIMES];
    fixture f;

    open_fixture(&f);
    for (int i = 0; i < TIMES; i++) {
        keys[i] = DL_LITERAL("k");
    }
    CHECK_BYTES(
        ASK(0, .op = DL_OP_WAIT, .is_checked = true, .count = TIMES, .keys = keys), "");
    CHECK_EQUAL(f.hub.table.waiter_count, 1);
    SET(1, "k", "");
    CHECK_BYTES(heard(&f, 0), "\0\0");
    close_fixture(&f);
}

CHECK_CASE(an_absent_key_among_many_is_named)
{
    static dl_bytes keys[MANY];
    fixture f;

    memcpy(keys, many_keys(), sizeof keys);
    open_fixture(&f);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(dl_table_set(&f.hub.table, keys[i], keys[i]));
    }
    keys[MANY - 1] = DL_LITERAL("absen\n");
    take_turns(
        &f,
        (dl_store_request){
            .op = DL_OP_MULTI_GET, .is_checked = true, .count = MANY, .keys = keys},
        1 << 16);
    dl_bytes reply = heard(&f, 0);
    CHECK_EQUAL(reply.data[0], DL_NOT_FOUND);
    CHECK_EQUAL(reply.size, 1 + 8 + strlen("key is absent: absen\\x0a") + 4);
    close_fixture(&f);
}

/* Time */

CHECK_CASE(a_client_has_to_show_the_magic_number_in_time)
{
    dl_session silent, halfway;
    fixture f;

    open_fixture(&f);
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), INT64_MAX);
    dl_session_init(&silent, &f.hub);
    dl_session_init(&halfway, &f.hub);
    CHECK_OK(dl_session_feed(&halfway, DL_LITERAL("\x00\xce")));
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), silent.client.timed_since + 10 * DL_SECOND);
    dl_session_wake(&f.hub, halfway.client.timed_since + 9 * DL_SECOND);
    CHECK_EQUAL(f.hub.changed_count, 0);
    dl_session_wake(&f.hub, halfway.client.timed_since + 10 * DL_SECOND);
    CHECK(dl_session_take_changed(&f.hub) == &silent);
    CHECK_STATUS(dl_session_resume(&silent), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text,
               "it did not identify itself as a store client within 10 seconds");
    CHECK(dl_session_take_changed(&f.hub) == &halfway);
    CHECK_STATUS(dl_session_resume(&halfway), DL_TIMEOUT);
    CHECK_EQUAL(f.hub.refused[DL_LIMIT_VALIDATE], 2);
    CHECK_EQUAL(f.hub.refused[DL_LIMIT_STALL], 0);
    dl_session_fini(&silent);
    dl_session_fini(&halfway);
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), INT64_MAX);
    close_fixture(&f);
}

CHECK_CASE(a_client_has_to_take_some_of_its_replies_in_time)
{
    fixture f;
    dl_session *session = &f.sessions[0];

    open_fixture(&f);
    CHECK_OK(dl_session_feed(session, DL_LITERAL("\x07\x07")));
    dl_session_owes(session, false);
    int64_t since = session->client.timed_since;
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), since + f.hub.limits.stall);
    dl_session_owes(session, false);
    CHECK_EQUAL(session->client.timed_since, since);
    dl_session_owes(session, true);
    CHECK(session->client.timed_since > since);
    dl_session_wake(&f.hub, since + f.hub.limits.stall);
    CHECK_EQUAL(f.hub.changed_count, 0);
    dl_session_wake(&f.hub, session->client.timed_since + f.hub.limits.stall);
    CHECK(dl_session_take_changed(&f.hub) == session);
    CHECK_STATUS(dl_session_resume(session), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "for 300 seconds");
    CHECK_EQUAL(f.hub.refused[DL_LIMIT_STALL], 1);
    CHECK(!dl_session_has_output(session));
    dl_session_owes(&f.sessions[1], true);
    dl_session_owes_nothing(&f.sessions[1]);
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), INT64_MAX);
    close_fixture(&f);
}

CHECK_CASE(a_client_that_acts_before_its_limit_is_enforced_stays)
{
    fixture f;
    dl_session *reader = &f.sessions[0];
    dl_session stranger;

    open_fixture(&f);
    f.hub.limits.validate = 10 * DL_SECOND;
    dl_session_init(&stranger, &f.hub);
    CHECK_OK(dl_session_feed(reader, DL_LITERAL("\x07\x07")));
    dl_session_owes(reader, false);
    dl_session_owes(&f.sessions[1], false);
    dl_session_wake(&f.hub, dl_now() + f.hub.limits.stall);
    CHECK_EQUAL(f.hub.changed_count, 3);
    CHECK_OK(dl_session_feed(&stranger, DL_LITERAL(VALIDATE)));
    CHECK_OK(dl_session_resume(&stranger));
    dl_session_owes(reader, true);
    CHECK_OK(dl_session_resume(reader));
    CHECK_EQUAL(dl_output_size(&reader->output), 16);
    dl_session_owes_nothing(&f.sessions[1]);
    CHECK_OK(dl_session_resume(&f.sessions[1]));
    dl_session_fini(&stranger);
    close_fixture(&f);
}

/* Requests over many keys, and a wait that the client ends itself. */
static void
put_long_conversation(dl_buffer *bytes)
{
    enum { COUNT = 300 };
    static dl_bytes keys[COUNT];

    memcpy(keys, many_keys(), sizeof keys);
    const dl_store_request requests[] = {
        {.op = DL_OP_MULTI_SET, .count = COUNT, .keys = keys, .values = keys},
        {.op = DL_OP_CHECK, .is_checked = true, .count = COUNT, .keys = keys},
        {.op = DL_OP_MULTI_GET, .is_checked = true, .count = COUNT, .keys = keys},
        {.op = DL_OP_DELETE_KEY, KEY("200")},
        {.op = DL_OP_WAIT, .is_checked = true, .count = COUNT, .keys = keys},
        {.op = DL_OP_SET, .is_checked = true, KEY("200"), VALUE("late")},
        {.op = DL_OP_LIST_KEYS, .is_checked = true},
        {.op = DL_OP_NUM_KEYS},
    };

    dl_buffer_put(bytes, DL_LITERAL(VALIDATE));
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        dl_wire_put_request(bytes, &requests[i], (dl_bytes){0});
    }
    CHECK_OK(dl_buffer_check(bytes));
}

CHECK_CASE(long_replies_do_not_depend_on_how_the_bytes_are_cut)
{
    dl_buffer bytes = {0};
    dl_buffer whole = {0};
    dl_buffer cut = {0};

    put_long_conversation(&bytes);
    converse(dl_buffer_bytes(&bytes), bytes.size, bytes.size, &whole);
    CHECK(whole.size > 300 * 9);
    for (size_t step = 1; step < 20000; step = step * 3 + 1) {
        converse(dl_buffer_bytes(&bytes), 5, step, &cut);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&cut), dl_buffer_bytes(&whole)));
    }
    dl_buffer_fini(&bytes);
    dl_buffer_fini(&whole);
    dl_buffer_fini(&cut);
}

CHECK_CASE(a_long_conversation_survives_or_ends_when_memory_runs_out)
{
    dl_buffer bytes = {0};
    dl_buffer whole = {0};
    long failing = 1;

    put_long_conversation(&bytes);
    converse(dl_buffer_bytes(&bytes), bytes.size, bytes.size, &whole);
    while (converse_without_memory(dl_buffer_bytes(&bytes), failing,
                                   dl_buffer_bytes(&whole))) {
        failing++;
    }
    CHECK(failing > 300);
    dl_buffer_fini(&bytes);
    dl_buffer_fini(&whole);
}

/* Memory */

CHECK_CASE(requests_that_do_not_become_whole_are_bounded_in_all)
{
    static uint8_t value[256 << 10];
    fixture f;
    dl_buffer head = {0};
    int refused = -1;

    open_fixture(&f);
    f.hub.limits.pending = 1 << 20;
    dl_put_u8(&head, DL_OP_SET | DL_WIRE_CHECKED);
    dl_put_bytes(&head, DL_LITERAL("k"));
    dl_put_u64(&head, 8 << 20);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_session_feed(&f.sessions[i], dl_buffer_bytes(&head)));
    }
    CHECK(f.hub.pending > 0 && f.hub.pending < 1024);
    for (int round = 0; round < 3 && refused < 0; round++) {
        for (int i = 0; i < 2 && refused < 0; i++) {
            if (dl_session_feed(&f.sessions[i], (dl_bytes){value, sizeof value})
                != DL_OK) {
                refused = i;
            }
        }
    }
    CHECK(refused >= 0);
    CHECK_EQUAL(dl_last_error()->status, DL_NO_MEMORY);
    CHECK_CONTAINS(dl_last_error()->text,
                   "its limit is 1048576 (DISTLITE_STORE_BYTES)");
    CHECK_EQUAL(f.hub.refused[DL_LIMIT_PENDING], 1);
    CHECK_EQUAL(f.sessions[refused].output.bytes.data[0], DL_NO_MEMORY);
    CHECK(f.hub.pending <= 1 << 20);
    /* Clients with few held bytes are served, also at the limit. */
    f.hub.limits.pending = 1;
    SET(2, "k", "v");
    CHECK_OK(dl_session_feed(&f.sessions[3], DL_LITERAL("\x01" U64("\x02") "k")));
    CHECK_OK(dl_session_feed(&f.sessions[3], DL_LITERAL("2" U64("\x01") "v")));
    settle(&f);
    CHECK_EQUAL(dl_table_num_keys(&f.hub.table), 2);
    dl_buffer_fini(&head);
    for (int i = 0; i < CLIENTS; i++) {
        dl_session_fini(&f.sessions[i]);
    }
    CHECK_EQUAL(f.hub.pending, 0);
    close_fixture(&f);
}

CHECK_CASE(held_bytes_stop_counting_once_the_request_is_done)
{
    const dl_bytes *keys = many_keys();
    fixture f;

    open_fixture(&f);
    take_turns(&f,
               (dl_store_request){
                   .op = DL_OP_MULTI_SET, .count = MANY, .keys = keys, .values = keys},
               1 << 16);
    take_turns(&f,
               (dl_store_request){.op = DL_OP_MULTI_GET, .count = MANY, .keys = keys},
               1 << 16);
    CHECK_OK(dl_session_feed(&f.sessions[1], DL_LITERAL("\1" U64("\1"))));
    CHECK(f.hub.pending > 0);
    CHECK_OK(dl_session_feed(&f.sessions[1], DL_LITERAL("k" U64("\1") "v")));
    CHECK_EQUAL(f.hub.pending, 0);
    close_fixture(&f);
}
