/* SPDX-License-Identifier: BSD-3-Clause */
#include "session_fixture.h"

static const dl_bytes KEYS[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}};

#define WAIT(client, number_of_keys) \
    ASK(client, .op = DL_OP_WAIT, .count = number_of_keys, .keys = KEYS)

CHECK_CASE(a_wait_for_what_is_there_ends_at_once)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 0), "\0");
    SET(1, "a", "");
    CHECK_BYTES(WAIT(0, 1), "\0");
    SET(1, "b", "");
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .is_checked = true, .count = 2, .keys = KEYS),
                "\0\0");
    close_fixture(&f);
}

CHECK_CASE(a_wait_ends_when_the_last_key_comes)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 2), "");
    CHECK_BYTES(ASK(1, .op = DL_OP_WAIT, .is_checked = true, .count = 2, .keys = KEYS),
                "");
    SET(2, "b", "");
    CHECK_BYTES(heard(&f, 0), "");
    CHECK_BYTES(ASK(2, .op = DL_OP_ADD, KEY("a"), .number = 1), U64("\1"));
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_BYTES(heard(&f, 1), "\0\0");
    SET(2, "a", "");
    CHECK_BYTES(heard(&f, 0), "");
    close_fixture(&f);
}

CHECK_CASE(every_way_to_make_a_key_ends_a_wait)
{
    static const dl_bytes value[] = {{NULL, 0}};
    const dl_store_request makers[] = {
        {.op = DL_OP_SET, KEY("a")},
        {.op = DL_OP_ADD, KEY("a")},
        {.op = DL_OP_COMPARE_SET, KEY("a"), VALUE("v")},
        {.op = DL_OP_APPEND, KEY("a")},
        {.op = DL_OP_MULTI_SET, .count = 1, .keys = KEYS, .values = value},
        {.op = DL_OP_QUEUE_PUSH, KEY("a")},
        {.op = DL_OP_BARRIER, KEY("a"), .number = 1},
    };

    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        fixture f;
        open_fixture(&f);
        CHECK_BYTES(WAIT(0, 1), "");
        ask(&f, 1, makers[i]);
        CHECK_BYTES(heard(&f, 0), "\0");
        close_fixture(&f);
    }
}

CHECK_CASE(a_failed_compare_set_wakes_nobody)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_BYTES(ASK(1, .op = DL_OP_COMPARE_SET, KEY("a"), .expected = DL_LITERAL("x"),
                    VALUE("y")),
                U64("\1") "x");
    CHECK_BYTES(heard(&f, 0), "");
    close_fixture(&f);
}

CHECK_CASE(a_key_that_was_seen_counts_after_it_is_deleted)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 2), "");
    SET(1, "a", "");
    CHECK_BYTES(ASK(1, .op = DL_OP_DELETE_KEY, KEY("a")), U64("\1"));
    CHECK_BYTES(heard(&f, 0), "");
    SET(1, "b", "");
    CHECK_BYTES(heard(&f, 0), "\0");
    close_fixture(&f);
}

CHECK_CASE(other_requests_are_served_while_a_client_waits)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_PING, .number = 9), "\x09\0\0\0");
    SET(0, "b", "");
    /* Its own request may end the wait: the reply comes behind that request's. */
    CHECK_BYTES(ASK(0, .op = DL_OP_ADD, KEY("a"), .number = 1), U64("\1") "\0");
    close_fixture(&f);
}

CHECK_CASE(cancelling_is_always_answered_and_ends_the_wait)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_CANCEL_WAIT), "\1");
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_CANCEL_WAIT, .is_checked = true), "\0\1");
    SET(1, "a", "");
    CHECK_BYTES(heard(&f, 0), "");
    /* Too late: the wait was over, both answers come. */
    CHECK_BYTES(WAIT(0, 1), "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_CANCEL_WAIT), "\1");
    close_fixture(&f);
}

CHECK_CASE(a_second_wait_replaces_the_first)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = 1, .keys = KEYS + 1), "");
    SET(1, "a", "");
    CHECK_BYTES(heard(&f, 0), "");
    SET(1, "b", "");
    CHECK_BYTES(heard(&f, 0), "\0");
    close_fixture(&f);
}

CHECK_CASE(a_client_that_leaves_is_no_waiter)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 2), "");
    CHECK_BYTES(WAIT(1, 1), "");
    dl_session_fini(&f.sessions[0]);
    SET(2, "b", "");
    SET(2, "a", "");
    CHECK_BYTES(heard(&f, 1), "\0");
    close_fixture(&f);
}

CHECK_CASE(a_rejected_client_is_no_waiter)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_STATUS(dl_session_feed(&f.sessions[0], DL_LITERAL("\x7f")), DL_PROTOCOL);
    SET(2, "a", "");
    CHECK_EQUAL(f.hub.changed_count, 0);
    CHECK(!dl_session_has_output(&f.sessions[0]));
    close_fixture(&f);
}

CHECK_CASE(a_barrier_opens_when_all_have_come)
{
    fixture f;

    open_fixture(&f);
#define BARRIER(client, size) ASK(client, .op = DL_OP_BARRIER, KEY("r"), .number = size)
    CHECK_BYTES(BARRIER(0, 3), "");
    CHECK_BYTES(ASK(1, .op = DL_OP_BARRIER, .is_checked = true, KEY("r"), .number = 3),
                "");
    CHECK_BYTES(ASK(3, .op = DL_OP_GET, KEY("r")), U64("\1") "2");
    CHECK_BYTES(BARRIER(2, 3), "\0");
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_BYTES(heard(&f, 1), "\0\0");
    /* It stays open, and is open at once if no rank is to come. */
    CHECK_BYTES(BARRIER(0, 3), "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_BARRIER, KEY("none"), .number = 0), "\0");
    CHECK_BYTES(ASK(0, .op = DL_OP_BARRIER, KEY("none"), .number = -1), "\0");
    close_fixture(&f);
}

CHECK_CASE(a_barrier_on_text_is_an_error_and_the_wait_before_it_is_gone)
{
    fixture f;

    open_fixture(&f);
    SET(0, "r", "text");
    CHECK_BYTES(WAIT(0, 1), "");
    dl_bytes reply =
        ASK(0, .op = DL_OP_BARRIER, .is_checked = true, KEY("r"), .number = 1);
    CHECK_EQUAL(reply.data[0], DL_INVALID);
    SET(1, "a", "");
    CHECK_BYTES(heard(&f, 0), "");
    close_fixture(&f);
}

CHECK_CASE(a_cancelled_participant_stays_counted)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(BARRIER(0, 2), "");
    CHECK_BYTES(ASK(0, .op = DL_OP_CANCEL_WAIT), "\1");
    CHECK_BYTES(BARRIER(1, 2), "\0");
    CHECK_BYTES(heard(&f, 0), "");
    close_fixture(&f);
}

/* Waits at a queue */

#define PUSH(text) \
    CHECK_BYTES(ASK(3, .op = DL_OP_QUEUE_PUSH, KEY("a"), VALUE(text)), "")
#define POP(client) ASK(client, .op = DL_OP_QUEUE_POP, KEY("a"))

CHECK_CASE(a_push_ends_all_waits_and_the_first_to_pop_gets_the_item)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(WAIT(0, 1), "");
    CHECK_BYTES(WAIT(1, 1), "");
    PUSH("x");
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_BYTES(heard(&f, 1), "\0");
    CHECK_BYTES(POP(1), U64("\1") U64("\1") "x");
    CHECK_BYTES(POP(0), U64("\0"));
    CHECK_BYTES(WAIT(0, 1), "");
    PUSH("y");
    CHECK_BYTES(heard(&f, 0), "\0");
    CHECK_BYTES(WAIT(1, 1), "\0");
    CHECK_BYTES(POP(0), U64("\1") U64("\1") "y");
    close_fixture(&f);
}

CHECK_CASE(a_push_does_not_end_a_wait_for_another_queue)
{
    fixture f;

    open_fixture(&f);
    CHECK_BYTES(ASK(0, .op = DL_OP_WAIT, .count = 1, .keys = KEYS + 1), "");
    CHECK_BYTES(WAIT(1, 1), "");
    PUSH("x");
    CHECK_BYTES(heard(&f, 0), "");
    CHECK_BYTES(heard(&f, 1), "\0");
    close_fixture(&f);
}
