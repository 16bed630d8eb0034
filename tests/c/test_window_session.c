/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_session.h"

#include "pg/window.h"
#include "base/thread.h"
#include "windows.h"

static scene all;
static dl_window_session session;
static bool has_given_up;

static dl_status
check_wait(void *unused)
{
    (void)unused;
    return has_given_up ? dl_fail(DL_INTERRUPTED, "given up") : DL_OK;
}

static void
begin(int caller)
{
    scene_init(&all);
    session = (dl_window_session){.caller = caller, .check_wait = check_wait};
}

static void
end(void)
{
    dl_buffer_fini(&session.out);
    scene_fini(&all);
}

static dl_status
ask(dl_head head, const void *payload)
{
    _Alignas(16) uint8_t aligned[512];

    if (head.size > 0) {
        memcpy(aligned, payload, head.size);
    }
    head.kind = DL_HEAD_WINDOW;
    return dl_window_session_answer(&session, &all.served, &head, aligned);
}

/* Takes the first answer off the output: its head, and the beginning of its payload. */
static dl_head
answer(void *payload, size_t room)
{
    dl_head head;

    CHECK(session.out.size >= DL_HEAD_SIZE);
    CHECK(dl_head_take(session.out.data, &head));
    CHECK(session.out.size >= DL_HEAD_SIZE + head.size);
    if (head.size > 0) {
        memcpy(payload, session.out.data + DL_HEAD_SIZE,
               head.size < room ? head.size : room);
    }
    dl_buffer_consume(&session.out, DL_HEAD_SIZE + head.size);
    return head;
}

CHECK_CASE(requests_are_carried_out_in_their_order)
{
    int32_t values[3] = {5, 6, 7}, got[3] = {0}, swapped[2] = {-1, 7};
    double factor = 1;
    uint64_t bits;

    begin(1);
    memcpy(&bits, &factor, sizeof bits);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_PUT, .size = 12, .tag = 4, .total = 12},
                 values));
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_UPDATE,
                           .size = 8,
                           .root = DL_SUM,
                           .tag = 4,
                           .total = 8,
                           .length = bits},
                 values));
    CHECK_EQUAL(session.out.size, 0);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_FETCH,
                           .size = 12,
                           .root = DL_UPDATE_REPLACE,
                           .tag = 4,
                           .total = 12},
                 values));
    dl_head head = answer(got, sizeof got);
    CHECK_EQUAL(head.detail, DL_WINDOW_DONE);
    CHECK(got[0] == 10 && got[1] == 12 && got[2] == 7);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_SWAP, .size = 8, .tag = 12, .total = 4},
                 swapped));
    CHECK_EQUAL(answer(got, sizeof got).size, 4);
    CHECK_EQUAL(got[0], 7);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_GET, .tag = 4, .total = 12}, NULL));
    CHECK_EQUAL(answer(got, sizeof got).size, 12);
    CHECK(got[0] == 5 && got[1] == 6 && got[2] == -1);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_FLUSH}, NULL));
    CHECK_EQUAL(answer(NULL, 0).detail, DL_WINDOW_DONE);
    end();
}

/* Requests that a rank of this version does not make: the rank is disconnected, and the
 * memory stays as it is. */
CHECK_CASE(requests_beyond_the_memory_are_refused)
{
    static const dl_head wrong[] = {
        {.detail = DL_WINDOW_PUT, .size = 8, .tag = 252, .total = 8},
        {.detail = DL_WINDOW_PUT, .size = 4, .tag = -4, .total = 4},
        {.detail = DL_WINDOW_PUT, .size = 4, .tag = INT64_MAX, .total = 4},
        {.detail = DL_WINDOW_PUT, .size = 4, .tag = 0, .total = 8},
        {.detail = DL_WINDOW_PUT},
        {.detail = DL_WINDOW_GET, .tag = 0, .total = UINT64_MAX},
        {.detail = DL_WINDOW_GET, .tag = 256, .total = 1},
        {.detail = DL_WINDOW_GET, .tag = 8, .total = 249},
        {.detail = DL_WINDOW_GET, .size = 4, .total = 4},
        {.detail = DL_WINDOW_UPDATE, .size = 4, .tag = 2, .total = 4},
        {.detail = DL_WINDOW_UPDATE, .size = 6, .tag = 0, .total = 6},
        {.detail = DL_WINDOW_UPDATE, .size = 4, .total = 4, .root = DL_AVG},
        {.detail = DL_WINDOW_UPDATE, .size = 4, .total = 4, .root = DL_MINLOC},
        {.detail = DL_WINDOW_UPDATE, .size = 4, .total = 4, .root = 31},
        {.detail = DL_WINDOW_UPDATE, .size = 4, .total = 4, .root = UINT32_MAX},
        {.detail = DL_WINDOW_FETCH, .size = 4, .total = 4, .root = DL_UPDATE_NOTHING},
        {.detail = DL_WINDOW_SWAP, .size = 16, .total = 8},
        {.detail = DL_WINDOW_SWAP, .size = 4, .total = 4},
        {.detail = 0},
        {.detail = DL_WINDOW_FLUSH + 1},
        {.detail = DL_WINDOW_DONE},
        {.detail = 99},
    };
    uint8_t payload[512];

    memset(payload, 0xff, sizeof payload);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin(1);
        if (ask(wrong[i], payload) != DL_PROTOCOL) {
            DL_CHECK_FAIL("request %zu was carried out", i);
        }
        for (size_t at = 0; at < all.memory.size; at++) {
            CHECK_EQUAL(all.memory.elements[at], 0);
        }
        end();
    }
}

CHECK_CASE(a_closed_window_is_reported)
{
    char text[DL_ERROR_TEXT_SIZE] = "";
    int32_t one = 1;

    begin(1);
    atomic_store(&all.memory.head->is_open, 0);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_PUT, .size = 4, .total = 4}, &one));
    CHECK_EQUAL(session.out.size, 0);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_FLUSH}, NULL));
    dl_head head = answer(text, sizeof text);
    CHECK_EQUAL(head.detail, DL_WINDOW_FAILED);
    CHECK_EQUAL(head.root, DL_CLOSED);
    CHECK(strstr(text, "has closed it") != NULL);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_GET, .total = 4}, NULL));
    CHECK_EQUAL(answer(text, sizeof text).root, DL_CLOSED);
    end();
}

/* A lock that rank 2 has, which shares this host with the owner. */
static void
take_here(void)
{
    dl_lock_request request = {.asker = 2, .deadline = dl_deadline_after(DL_SECOND)};

    CHECK_OK(dl_lock_queue_take(all.queue, &all.ranks[2], 0, &request));
}

static void
give_back_here(void)
{
    CHECK_OK(dl_lock_queue_leave(all.queue, &all.ranks[2], 0, 2,
                                 dl_deadline_after(DL_SECOND)));
}

static void *
give_back_later(void *unused)
{
    (void)unused;
    while (atomic_load(&all.queue->sleepers) == 0) {
        sched_yield();
    }
    give_back_here();
    return NULL;
}

CHECK_CASE(a_lock_is_granted_when_it_is_free)
{
    pthread_t thread;

    begin(1);
    take_here();
    CHECK_OK(dl_thread_start(&thread, give_back_later, NULL));
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_LOCK, .length = UINT64_MAX}, NULL));
    CHECK_EQUAL(answer(NULL, 0).detail, DL_WINDOW_DONE);
    pthread_join(thread, NULL);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_UNLOCK}, NULL));
    CHECK_EQUAL(answer(NULL, 0).detail, DL_WINDOW_DONE);
    take_here();
    give_back_here();
    end();
}

CHECK_CASE(a_wait_ends_at_its_limit_and_names_the_holder)
{
    char text[DL_ERROR_TEXT_SIZE] = "";

    begin(1);
    take_here();
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_LOCK, .length = 0}, NULL));
    dl_head head = answer(text, sizeof text);
    CHECK_EQUAL(head.root, DL_TIMEOUT);
    CHECK(strstr(text, "rank 2 (pid 102 on host h) has locked it") != NULL);
    give_back_here();
    take_here();
    end();
}

CHECK_CASE(a_wait_that_is_given_up_has_no_answer)
{
    begin(1);
    take_here();
    has_given_up = true;
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_LOCK, .length = UINT64_MAX}, NULL));
    CHECK_EQUAL(session.out.size, 0);
    CHECK_OK(ask((dl_head){.detail = DL_WINDOW_UNLOCK}, NULL));
    CHECK_EQUAL(answer(NULL, 0).detail, DL_WINDOW_DONE);
    give_back_here();
    take_here();
    end();
}
