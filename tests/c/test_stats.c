/* SPDX-License-Identifier: BSD-3-Clause */
#include "session_fixture.h"

CHECK_CASE(lines_are_written_and_read)
{
    dl_buffer out = {0};
    dl_bytes name, value;

    dl_reply_put_fact(&out, "keys", UINT64_MAX);
    dl_reply_put_word(&out, "refusals/x", "word");
    CHECK_BYTES(dl_buffer_bytes(&out), "keys 18446744073709551615\nrefusals/x word\n");
    dl_bytes text = dl_buffer_bytes(&out);
    CHECK_EQUAL(dl_reply_take_fact(&text, &name, &value), 1);
    CHECK_BYTES(name, "keys");
    CHECK_BYTES(value, "18446744073709551615");
    CHECK_EQUAL(dl_reply_take_fact(&text, &name, &value), 1);
    CHECK_BYTES(name, "refusals/x");
    CHECK_BYTES(value, "word");
    CHECK_EQUAL(dl_reply_take_fact(&text, &name, &value), 0);
    dl_buffer_fini(&out);
}

CHECK_CASE(malformed_lines_are_refused)
{
    static const char *const texts[] = {"keys", "keys\n", "keys \n",
                                        " 1\n", "\n",     "keys 1"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dl_bytes text = dl_bytes_of(texts[i]);
        dl_bytes name, value;
        CHECK_EQUAL(dl_reply_take_fact(&text, &name, &value), -1);
    }
}

/* Returns the number that the server reports under this name. */
static uint64_t
told(fixture *f, const char *wanted)
{
    dl_buffer out = {0};
    dl_bytes name, value;
    uint64_t number = UINT64_MAX;

    dl_hub_put_stats(&f->hub, &out);
    CHECK_OK(dl_buffer_check(&out));
    dl_bytes text = dl_buffer_bytes(&out);
    while (dl_reply_take_fact(&text, &name, &value) == 1) {
        if (dl_bytes_equal(name, dl_bytes_of(wanted))) {
            number = strtoull((const char *)value.data, NULL, 10);
        }
    }
    dl_buffer_fini(&out);
    return number;
}

CHECK_CASE(a_server_reports_what_it_holds)
{
    fixture f;

    open_fixture(&f);
    SET(0, "a", "1");
    ASK(0, .op = DL_OP_QUEUE_PUSH, KEY("q"), VALUE("item"));
    ASK(1, .op = DL_OP_BARRIER, KEY("round"), .number = 2);
    CHECK_EQUAL(told(&f, "keys"), 2);
    CHECK_EQUAL(told(&f, "names"), 3);
    CHECK_EQUAL(told(&f, "waiters"), 1);
    CHECK_EQUAL(told(&f, "clients"), CLIENTS);
    CHECK_EQUAL(told(&f, "requests"), 3);
    CHECK_EQUAL(told(&f, "bytes"), f.hub.table.size);
    CHECK_EQUAL(told(&f, "input_bytes"), 0);
    CHECK_OK(dl_session_feed(&f.sessions[2], DL_LITERAL("\x01" U64("\x02") "k")));
    CHECK(told(&f, "input_bytes") > 0);
    CHECK_EQUAL(told(&f, "output_bytes"), 0);
    ASK(0, .op = DL_OP_BARRIER, KEY("round"), .number = 2);
    CHECK_EQUAL(told(&f, "waiters"), 0);
    dl_session_fini(&f.sessions[2]);
    CHECK_EQUAL(told(&f, "clients"), CLIENTS - 1);
    CHECK_EQUAL(told(&f, "input_bytes"), 0);
    f.hub.table.key_limit = 1;
    ASK(0, .op = DL_OP_SET, .is_checked = true, KEY("b"), VALUE("1"));
    CHECK_EQUAL(told(&f, "refusals/keys"), 1);
    for (int limit = 0; limit < DL_LIMIT_COUNT; limit++) {
        char name[64];
        snprintf(name, sizeof name, "refusals/%s", dl_limit_names[limit]);
        CHECK_EQUAL(told(&f, name), limit == DL_LIMIT_KEYS);
    }
    CHECK_EQUAL(told(&f, "closed/no_memory"), 0);
    close_fixture(&f);
}

CHECK_CASE(a_server_reports_what_it_remembers)
{
    fixture f;

    open_fixture(&f);
    for (int i = 0; i < 2; i++) {
        greet(&f, i, "someone's own id", 1);
        ASK(i, .op = DL_OP_ADD, .is_checked = true, KEY("n"), .number = 1);
        dl_session_fini(&f.sessions[i]);
    }
    CHECK_EQUAL(told(&f, "replies/slots"), 1);
    CHECK_EQUAL(told(&f, "replies/bytes"), f.hub.replies.size);
    CHECK_EQUAL(told(&f, "replies/repeated"), 1);
    CHECK_EQUAL(told(&f, "replies/forgotten"), 0);
    dl_session_wake(&f.hub, dl_now() + f.hub.limits.reply);
    CHECK_EQUAL(told(&f, "replies/forgotten"), 1);
    CHECK_EQUAL(told(&f, "replies/slots"), 0);
    close_fixture(&f);
}

CHECK_CASE(only_a_checked_request_asks_for_it)
{
    fixture f;

    open_fixture(&f);
    dl_bytes reply = ASK(0, .op = DL_OP_STATS, .is_checked = true);
    CHECK(reply.size > 9 && reply.data[0] == DL_OK);
    CHECK(memcmp(reply.data + 9, "identity 0000", 13) == 0);
    CHECK_STATUS(dl_session_feed(&f.sessions[0], DL_LITERAL("\x13")), DL_PROTOCOL);
    close_fixture(&f);
}

CHECK_CASE(the_slowest_turn_is_kept)
{
    fixture f;

    open_fixture(&f);
    dl_hub_idle(&f.hub);
    CHECK_EQUAL(f.hub.slowest_turn, 0);
    dl_hub_busy(&f.hub);
    f.hub.busy_since -= DL_SECOND;
    dl_hub_idle(&f.hub);
    CHECK(f.hub.slowest_turn >= DL_SECOND && f.hub.busy_since == 0);
    dl_hub_busy(&f.hub);
    dl_hub_idle(&f.hub);
    CHECK(told(&f, "slowest_turn_us") >= 1000000);
    close_fixture(&f);
}
