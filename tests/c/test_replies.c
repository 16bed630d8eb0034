/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Changes that a client repeats after its connection was lost, seen through sessions. */
#include "store/tcp/replies.h"

#include "base/deadline.h"
#include "session_fixture.h"

#define MINE "my slot's own id"
#define OTHER "someone's own id"
#define FRESH "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define KNOWN "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"

/* Ends the client's connection and makes a new one. */
static void
reconnect(fixture *f, int client)
{
    dl_session_fini(&f->sessions[client]);
    send_all(f);
    dl_buffer_clear(&f->replies[client]);
    dl_session_init(&f->sessions[client], &f->hub);
    put_bytes(f, client, DL_LITERAL(VALIDATE));
}

/* The same, and names the slot and the number of the change that comes next. */
static void
return_to(fixture *f, int client, uint64_t sequence)
{
    reconnect(f, client);
    CHECK_BYTES(greet(f, client, MINE, sequence), KNOWN);
}

static void
open_with_slot(fixture *f)
{
    open_fixture(f);
    CHECK_BYTES(greet(f, 0, MINE, 1), FRESH);
}

/* A request of client 3, which has no slot. */
#define PLAIN(...) ask(f, 3, (dl_store_request){__VA_ARGS__})

static void
fill(fixture *f)
{
    PLAIN(.op = DL_OP_SET, KEY("text"), VALUE("old"));
    PLAIN(.op = DL_OP_SET, KEY("gone"), VALUE("with the wind"));
    PLAIN(.op = DL_OP_QUEUE_PUSH, KEY("queue"), VALUE("first"));
    PLAIN(.op = DL_OP_QUEUE_PUSH, KEY("queue"), VALUE("second"));
}

/* Returns all that the store holds. */
static dl_buffer
look(fixture *f)
{
    static const char *const names[] = {"n", "text", "other", "gone", "meet"};
    dl_buffer seen = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dl_buffer_put(&seen, PLAIN(.op = DL_OP_GET, .key = dl_bytes_of(names[i])));
    }
    dl_buffer_put(&seen, PLAIN(.op = DL_OP_QUEUE_LEN, KEY("queue")));
    dl_buffer_put(&seen, PLAIN(.op = DL_OP_NUM_KEYS));
    return seen;
}

static void
check_same(fixture *f, dl_buffer *before)
{
    dl_buffer now = look(f);

    CHECK(dl_bytes_equal(dl_buffer_bytes(before), dl_buffer_bytes(&now)));
    dl_buffer_fini(&now);
    dl_buffer_fini(before);
}

static dl_store_request
change_of(dl_opcode op)
{
    static const dl_bytes keys[] = {{(const uint8_t *)"text", 4},
                                    {(const uint8_t *)"other", 5}};
    dl_store_request request = {.op = op, .is_checked = true};

    request.key = op == DL_OP_ADD          ? DL_LITERAL("n")
                  : op == DL_OP_BARRIER    ? DL_LITERAL("meet")
                  : op == DL_OP_DELETE_KEY ? DL_LITERAL("gone")
                  : op == DL_OP_QUEUE_POP || op == DL_OP_QUEUE_PUSH
                      ? DL_LITERAL("queue")
                      : DL_LITERAL("text");
    request.value = DL_LITERAL("new");
    request.expected = DL_LITERAL("old");
    request.number = 1;
    if (op == DL_OP_MULTI_SET) {
        request.count = 2;
        request.keys = keys;
        request.values = keys;
    }
    return request;
}

static const dl_opcode changes[] = {
    DL_OP_SET,       DL_OP_COMPARE_SET, DL_OP_ADD,       DL_OP_DELETE_KEY, DL_OP_APPEND,
    DL_OP_MULTI_SET, DL_OP_QUEUE_PUSH,  DL_OP_QUEUE_POP, DL_OP_BARRIER};
#define CHANGES_COUNT (sizeof changes / sizeof *changes)

/* The reply of client 0 to `request`, in memory of its own. */
static dl_buffer
change(fixture *f, dl_store_request request)
{
    dl_buffer reply = {0};

    dl_buffer_put(&reply, ask(f, 0, request));
    return reply;
}

CHECK_CASE(a_repeated_change_happens_once_and_has_the_same_reply)
{
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        fixture f;
        open_with_slot(&f);
        fill(&f);
        dl_buffer first = change(&f, change_of(changes[i]));
        CHECK(first.size > 0 && first.data[0] == DL_OK);
        dl_buffer before = look(&f);
        for (int again = 0; again < 3; again++) {
            return_to(&f, 0, 1);
            dl_buffer reply = change(&f, change_of(changes[i]));
            CHECK(dl_bytes_equal(dl_buffer_bytes(&reply), dl_buffer_bytes(&first)));
            dl_buffer_fini(&reply);
        }
        CHECK_EQUAL(f.hub.replies.repeated, 3);
        dl_buffer_fini(&first);
        check_same(&f, &before);
        /* The next change is another one. */
        CHECK_EQUAL(ask(&f, 0, change_of(DL_OP_ADD)).data[1],
                    changes[i] == DL_OP_ADD ? 2 : 1);
        close_fixture(&f);
    }
}

/* What another client has done meanwhile neither makes it happen again nor keeps it from
 * happening. */
CHECK_CASE(a_comparison_is_made_until_it_has_succeeded)
{
    fixture f;
    dl_store_request swap = change_of(DL_OP_COMPARE_SET);

    open_with_slot(&f);
    SET(3, "text", "else");
    CHECK_BYTES(ask(&f, 0, swap), "\0" U64("\4") "else");
    SET(3, "text", "old");
    return_to(&f, 0, 1);
    CHECK_BYTES(ask(&f, 0, swap), "\0" U64("\3") "new");
    SET(3, "text", "old");
    return_to(&f, 0, 1);
    CHECK_BYTES(ask(&f, 0, swap), "\0" U64("\3") "new");
    CHECK_BYTES(ASK(3, .op = DL_OP_GET, KEY("text")), U64("\3") "old");
    close_fixture(&f);
}

CHECK_CASE(a_change_that_did_not_arrive_is_executed)
{
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        fixture f;
        dl_store_request request = change_of(changes[i]);
        dl_buffer bytes = {0};
        open_with_slot(&f);
        fill(&f);
        dl_wire_put_request(&bytes, &request, (dl_bytes){0});
        dl_buffer before = look(&f);
        put_bytes(&f, 0, (dl_bytes){bytes.data, bytes.size - 1});
        return_to(&f, 0, 1);
        check_same(&f, &before);
        dl_buffer reply = change(&f, request);
        CHECK(reply.size > 0 && reply.data[0] == DL_OK);
        CHECK_EQUAL(f.hub.replies.repeated, 0);
        dl_buffer_fini(&reply);
        dl_buffer_fini(&bytes);
        close_fixture(&f);
    }
}

CHECK_CASE(a_failed_change_is_executed_again)
{
    fixture f;
    dl_store_request add = change_of(DL_OP_ADD);

    open_with_slot(&f);
    SET(3, "n", "no number");
    CHECK_EQUAL(ask(&f, 0, add).data[0], DL_INVALID);
    SET(3, "n", "4");
    return_to(&f, 0, 1);
    CHECK_BYTES(ask(&f, 0, add), "\0\5\0\0\0\0\0\0\0");
    close_fixture(&f);
}

CHECK_CASE(requests_without_a_slot_are_executed_each_time)
{
    fixture f;
    dl_store_request add = change_of(DL_OP_ADD);

    open_fixture(&f);
    CHECK_BYTES(ask(&f, 0, add), "\0\1\0\0\0\0\0\0\0");
    reconnect(&f, 0);
    CHECK_BYTES(ask(&f, 0, add), "\0\2\0\0\0\0\0\0\0");
    CHECK_EQUAL(f.hub.replies.slots.count, 0);
    close_fixture(&f);
}

/* A connection that is slower than the one which replaces it must not execute what was
 * repeated there. */
CHECK_CASE(a_replaced_connection_is_ended)
{
    fixture f;
    dl_store_request add = change_of(DL_OP_ADD);
    dl_buffer bytes = {0};
    dl_slot slot = {.sequence = 1};

    open_with_slot(&f);
    memcpy(slot.id, MINE, sizeof slot.id);
    dl_wire_put_hello(&bytes, &slot);
    CHECK_OK(dl_session_feed(&f.sessions[1], dl_buffer_bytes(&bytes)));
    dl_buffer_clear(&bytes);
    dl_wire_put_request(&bytes, &add, (dl_bytes){0});
    CHECK_OK(dl_session_feed(&f.sessions[0], dl_buffer_bytes(&bytes)));
    CHECK(dl_session_take_changed(&f.hub) == &f.sessions[0]);
    CHECK_STATUS(dl_session_resume(&f.sessions[0]), DL_CLOSED);
    CHECK_CONTAINS(dl_last_error()->text, "has replaced the connection by a new one");
    CHECK(dl_session_take_changed(&f.hub) == NULL);
    send_all(&f);
    CHECK(dl_bytes_start_with(heard(&f, 1), DL_LITERAL(KNOWN)));
    CHECK_BYTES(ask(&f, 1, add), "\0\1\0\0\0\0\0\0\0");
    dl_buffer_fini(&bytes);
    close_fixture(&f);
}

CHECK_CASE(a_barrier_is_joined_once)
{
    fixture f;
    dl_store_request meet = change_of(DL_OP_BARRIER);

    open_with_slot(&f);
    meet.number = 2;
    CHECK_BYTES(ask(&f, 0, meet), "");
    for (int i = 0; i < 3; i++) {
        return_to(&f, 0, 1);
        CHECK_BYTES(ask(&f, 0, meet), "");
        CHECK_BYTES(ASK(3, .op = DL_OP_GET, KEY("meet")), "\1\0\0\0\0\0\0\0"
                                                          "1");
    }
    /* It is over while its client is away. */
    reconnect(&f, 0);
    CHECK_BYTES(ASK(3, .op = DL_OP_BARRIER, KEY("meet"), .number = 2), "\0");
    CHECK_BYTES(greet(&f, 0, MINE, 1), KNOWN);
    CHECK_BYTES(ask(&f, 0, meet), "\0\0");
    return_to(&f, 0, 1);
    CHECK_BYTES(ask(&f, 0, meet), "\0\0");
    CHECK_BYTES(ASK(3, .op = DL_OP_GET, KEY("meet")), "\1\0\0\0\0\0\0\0"
                                                      "2");
    close_fixture(&f);
}

static uint8_t large[100000];
#define LARGE               \
    (dl_bytes)              \
    {                       \
        large, sizeof large \
    }

/* Client 0 pops an item of `value`, of which the socket takes `sent` bytes. */
static void
pop_and_lose(fixture *f, dl_bytes value, size_t sent)
{
    dl_store_request pop = change_of(DL_OP_QUEUE_POP);
    dl_buffer bytes = {0};

    open_with_slot(f);
    PLAIN(.op = DL_OP_QUEUE_PUSH, KEY("queue"), .value = value);
    PLAIN(.op = DL_OP_QUEUE_PUSH, KEY("queue"), VALUE("second"));
    dl_wire_put_request(&bytes, &pop, (dl_bytes){0});
    CHECK_OK(dl_session_feed(&f->sessions[0], dl_buffer_bytes(&bytes)));
    send_some(f, 0, sent);
    reconnect(f, 0);
    dl_buffer_fini(&bytes);
}

static void
pass_time(fixture *f, int64_t span)
{
    dl_session_wake(&f->hub, dl_now() + span);
    send_all(f);
}

#define REPLY_SIZE(item_size) (1 + 8 + 8 + (item_size))

CHECK_CASE(a_popped_item_is_kept_for_its_client)
{
    fixture f;

    for (size_t sent = 0; sent <= REPLY_SIZE(sizeof large);
         sent += REPLY_SIZE(sizeof large) / 3) {
        pop_and_lose(&f, LARGE, sent);
        CHECK(f.hub.replies.size > sizeof large);
        pass_time(&f, 299 * DL_SECOND);
        CHECK_BYTES(greet(&f, 0, MINE, 1), KNOWN);
        put_bytes(&f, 0, DL_LITERAL("\x8f\5\0\0\0\0\0\0\0queue"));
        CHECK_EQUAL(f.replies[0].size, REPLY_SIZE(sizeof large));
        /* Its next request shows that it has read the item. */
        dl_buffer_clear(&f.replies[0]);
        CHECK_BYTES(ASK(0, .op = DL_OP_QUEUE_LEN, KEY("queue")), "\1\0\0\0\0\0\0\0");
        CHECK(f.hub.replies.size < 1000);
        close_fixture(&f);
    }
}

CHECK_CASE(an_item_that_its_client_cannot_have_returns_to_its_queue)
{
    fixture f;

    for (size_t sent = 0; sent < REPLY_SIZE(5); sent++) {
        pop_and_lose(&f, DL_LITERAL("first"), sent);
        CHECK_BYTES(ASK(1, .op = DL_OP_WAIT, .count = 1, .keys = &DL_LITERAL("queue")),
                    "\0");
        CHECK(ASK(2, .op = DL_OP_QUEUE_POP, KEY("queue")).size > 0);
        CHECK_BYTES(ASK(2, .op = DL_OP_WAIT, .count = 1, .keys = &DL_LITERAL("queue")),
                    "");
        pass_time(&f, 301 * DL_SECOND);
        /* A client that waits for an item is notified. */
        CHECK_BYTES(heard(&f, 2), "\0");
        CHECK_BYTES(ASK(2, .op = DL_OP_QUEUE_POP, KEY("queue")),
                    "\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0first");
        CHECK_BYTES(greet(&f, 0, MINE, 1), FRESH);
        close_fixture(&f);
    }
}

CHECK_CASE(an_item_that_its_client_may_have_counts_as_taken)
{
    fixture f;

    pop_and_lose(&f, DL_LITERAL("first"), REPLY_SIZE(5));
    pass_time(&f, 301 * DL_SECOND);
    CHECK_BYTES(ASK(1, .op = DL_OP_QUEUE_LEN, KEY("queue")), "\1\0\0\0\0\0\0\0");
    CHECK_EQUAL(f.hub.replies.slots.count, 0);
    CHECK_EQUAL(f.hub.replies.size, 0);
    CHECK_EQUAL(f.hub.replies.forgotten, 1);
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), INT64_MAX);
    close_fixture(&f);
}

CHECK_CASE(a_client_that_leaves_is_forgotten)
{
    fixture f;

    open_with_slot(&f);
    CHECK_EQUAL(f.hub.replies.slots.count, 1);
    ask(&f, 0, change_of(DL_OP_ADD));
    put_bytes(&f, 0, DL_LITERAL("\xc2"));
    CHECK_EQUAL(f.hub.replies.slots.count, 0);
    CHECK_EQUAL(f.hub.replies.size, 0);
    reconnect(&f, 0);
    CHECK_EQUAL(dl_hub_next_wake(&f.hub), INT64_MAX);
    CHECK_BYTES(greet(&f, 0, MINE, 2), FRESH);
    /* Without a slot it is no request. */
    CHECK_STATUS(dl_session_feed(&f.sessions[1], DL_LITERAL("\xc2")), DL_PROTOCOL);
    close_fixture(&f);
}

CHECK_CASE(a_large_reply_is_forgotten_in_time)
{
    fixture f;
    dl_store_request pop = change_of(DL_OP_QUEUE_POP);

    open_with_slot(&f);
    fixture *at = &f;
    ask(at, 3,
        (dl_store_request){.op = DL_OP_QUEUE_PUSH, KEY("queue"), .value = LARGE});
    put_bytes(&f, 0, DL_LITERAL("\x8f\5\0\0\0\0\0\0\0queue"));
    CHECK_EQUAL(f.replies[0].size, REPLY_SIZE(sizeof large));
    /* Its connection lasts, and its client neither asks nor leaves. */
    pass_time(&f, 301 * DL_SECOND);
    CHECK(f.hub.replies.size < 1000);
    return_to(&f, 0, 1);
    dl_bytes reply = ask(&f, 0, pop);
    CHECK(reply.size > 9 && reply.data[0] == DL_NETWORK);
    CHECK(memmem(reply.data, reply.size, "an eighth of DISTLITE_STORE_BYTES", 33)
          != NULL);
    CHECK_EQUAL(f.hub.refused[DL_LIMIT_REPLIES], 1);
    close_fixture(&f);
}

CHECK_CASE(the_oldest_are_forgotten_when_there_are_too_many)
{
    fixture f;
    char id[17];

    open_fixture(&f);
    f.hub.replies.limit = 50 * sizeof(dl_reply_slot);
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "%016d", i);
        CHECK_BYTES(greet(&f, 0, id, 1), FRESH);
        ask(&f, 0, change_of(DL_OP_ADD));
        reconnect(&f, 0);
    }
    CHECK(f.hub.replies.size <= f.hub.replies.limit);
    CHECK_EQUAL(f.hub.replies.slots.count + f.hub.replies.forgotten, 1000);
    CHECK_BYTES(greet(&f, 0, id, 1), KNOWN);
    snprintf(id, sizeof id, "%016d", 3);
    CHECK_BYTES(greet(&f, 0, id, 1), FRESH);
    close_fixture(&f);
}

CHECK_CASE(a_number_out_of_sequence_is_refused)
{
    const uint64_t wrong[] = {1, 2, 5, UINT64_MAX};
    fixture f;

    open_with_slot(&f);
    for (int i = 0; i < 3; i++) {
        ask(&f, 0, change_of(DL_OP_ADD));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dl_slot slot = {.sequence = wrong[i]};
        dl_buffer bytes = {0};
        memcpy(slot.id, MINE, sizeof slot.id);
        dl_wire_put_hello(&bytes, &slot);
        reconnect(&f, 1);
        CHECK_STATUS(dl_session_feed(&f.sessions[1], dl_buffer_bytes(&bytes)),
                     DL_PROTOCOL);
        CHECK_CONTAINS(dl_last_error()->text, "out of sequence");
        dl_buffer_fini(&bytes);
    }
    /* The slot's own connection has noticed nothing. */
    CHECK_BYTES(ask(&f, 0, change_of(DL_OP_ADD)), "\0\4\0\0\0\0\0\0\0");
    return_to(&f, 0, 4);
    CHECK_EQUAL(ask(&f, 0, change_of(DL_OP_SET)).data[0], DL_PROTOCOL);
    close_fixture(&f);
}

CHECK_CASE(a_slot_that_lacks_changes_of_its_client_is_begun_anew)
{
    const uint64_t ahead[] = {3, 7, UINT64_MAX};
    fixture f;

    open_fixture(&f);
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
        reconnect(&f, 0);
        CHECK_BYTES(greet(&f, 0, MINE, 1), FRESH);
        ask(&f, 0, change_of(DL_OP_ADD));
        reconnect(&f, 0);
        CHECK_BYTES(greet(&f, 0, MINE, ahead[i]), FRESH);
        CHECK_EQUAL(f.hub.replies.slots.count, 1);
        CHECK_EQUAL(f.hub.replies.forgotten, i + 1);
        CHECK_EQUAL(ask(&f, 0, change_of(DL_OP_ADD)).data[1], 2 * i + 2);
        return_to(&f, 0, ahead[i]);
        CHECK_EQUAL(ask(&f, 0, change_of(DL_OP_ADD)).data[1], 2 * i + 2);
        put_bytes(&f, 0, DL_LITERAL("\xc2")); /* it leaves */
    }
    close_fixture(&f);
}

CHECK_CASE(a_client_may_take_another_slot)
{
    fixture f;

    open_with_slot(&f);
    CHECK_BYTES(ask(&f, 0, change_of(DL_OP_ADD)), "\0\1\0\0\0\0\0\0\0");
    CHECK_BYTES(greet(&f, 0, OTHER, 1), FRESH);
    CHECK_BYTES(ask(&f, 0, change_of(DL_OP_ADD)), "\0\2\0\0\0\0\0\0\0");
    CHECK_BYTES(greet(&f, 0, MINE, 1), KNOWN);
    CHECK_BYTES(ask(&f, 0, change_of(DL_OP_ADD)), "\0\1\0\0\0\0\0\0\0");
    close_fixture(&f);
}

CHECK_CASE(a_lack_of_memory_costs_no_slot)
{
    dl_slot slot = {.sequence = 1};
    dl_buffer hello = {0};
    bool has_failed = true;

    memcpy(slot.id, OTHER, sizeof slot.id);
    dl_wire_put_hello(&hello, &slot);
    for (int at = 1; has_failed; at++) {
        fixture f;
        open_with_slot(&f);
        dl_check_fail_allocation_at(at);
        dl_status status = dl_session_feed(&f.sessions[1], dl_buffer_bytes(&hello));
        has_failed = dl_check_allocation_failed();
        CHECK(has_failed || status == DL_OK);
        reconnect(&f, 1);
        CHECK_EQUAL(greet(&f, 1, OTHER, 1).size, sizeof FRESH - 1);
        CHECK_EQUAL(f.hub.replies.slots.count, 2);
        close_fixture(&f);
    }
    dl_buffer_fini(&hello);
}
