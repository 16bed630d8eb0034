/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_server.h"

#include <arpa/inet.h>
#include <dirent.h>

#include "pg/cpu/tcp/link.h"
#include "windows.h"

/* Rank 0 serves its window, and the links of rank 1 are in the same process. */
static scene all;
static dl_listener listener;
static dl_window_server *server;

static dl_deadline
soon(void)
{
    return dl_deadline_after(20 * DL_SECOND);
}

static void
begin(void)
{
    dl_tcp_contact tcp = {.count = 1, .addresses[0].size = sizeof(struct sockaddr_in)};

    scene_init(&all);
    tcp.addresses[0].socket.ip4.sin_family = AF_INET;
    tcp.addresses[0].socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_OK(dl_listener_open(&listener, &tcp));
    server = dl_window_server_new("g");
    CHECK(server != NULL);
    CHECK_OK(dl_window_server_add(server, &listener, &all.served));
    CHECK_EQUAL(all.served.number, 1);
}

static void
end(void)
{
    dl_window_server_close(server);
    dl_listener_fini(&listener);
    scene_fini(&all);
}

/* Connects as `rank`, for the window of that number. */
static void
open_link(dl_link *link, int rank, int number)
{
    dl_link_options options = {.group = "g",
                               .peers = dl_peers_of(all.peers),
                               .rank = rank,
                               .use = DL_FOR_WINDOWS};
    dl_deadline limit = soon();

    dl_link_options_aim(&options, &listener.tcp, 0);
    options.index = number;
    dl_link_init(link, &options);
    while (!link->is_open) {
        CHECK_OK(dl_link_call(link));
        CHECK(!dl_deadline_passed(limit));
    }
    (void)dl_listener_poll(&listener);
}

static void
send_request(dl_link *link, dl_head head)
{
    uint8_t bytes[DL_HEAD_SIZE];
    struct iovec part = {bytes, sizeof bytes};
    size_t sent;

    head.kind = DL_HEAD_WINDOW;
    dl_head_put(bytes, &head);
    CHECK_OK(dl_link_write(link, &part, 1, &sent));
    CHECK_EQUAL(sent, sizeof bytes);
}

/* Receives a whole frame; returns false if the connection ends before. */
static bool
receive(dl_link *link, dl_head *head)
{
    uint8_t bytes[DL_HEAD_SIZE + 1024];
    size_t size = DL_HEAD_SIZE, got = 0;
    dl_deadline limit = soon();

    while (got < size) {
        struct iovec part = {bytes + got, size - got};
        size_t more;
        (void)dl_listener_poll(&listener);
        CHECK(!dl_deadline_passed(limit));
        if (dl_link_read(link, &part, 1, &more) != DL_OK) {
            return false;
        }
        got += more;
        if (got == DL_HEAD_SIZE) {
            CHECK(dl_head_take(bytes, head) && head->size <= 1024);
            size = DL_HEAD_SIZE + head->size;
        }
    }
    return true;
}

static const dl_head flush = {.detail = DL_WINDOW_FLUSH};

static void
check_served(dl_link *link)
{
    dl_head head;

    send_request(link, flush);
    CHECK(receive(link, &head));
    CHECK_EQUAL(head.detail, DL_WINDOW_DONE);
}

/* The last frame of a connection to a window that is closed. */
static void
check_closed(dl_link *link)
{
    dl_head head;

    CHECK(receive(link, &head));
    CHECK_EQUAL(head.kind, DL_HEAD_NOTICE);
    CHECK_EQUAL(head.root, DL_CLOSED);
    CHECK(!receive(link, &head));
}

static int
count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = -2; /* "." and ".." */

    CHECK(tasks != NULL);
    while (readdir(tasks) != NULL) {
        count++;
    }
    closedir(tasks);
    return count;
}

CHECK_CASE(a_rank_has_one_connection_to_a_window)
{
    dl_link links[16];
    dl_head head;

    begin();
    int before = count_threads();
    for (int i = 0; i < 16; i++) {
        open_link(&links[i], 1, 1);
        check_served(&links[i]);
        CHECK_EQUAL(count_threads(), before + 1);
    }
    for (int i = 0; i < 15; i++) {
        CHECK(!receive(&links[i], &head));
        dl_link_fini(&links[i]);
    }
    dl_link other;
    open_link(&other, 2, 1);
    check_served(&other);
    check_served(&links[15]);
    CHECK_EQUAL(count_threads(), before + 2);
    dl_link_fini(&other);
    dl_link_fini(&links[15]);
    end();
}

CHECK_CASE(callers_of_no_window_are_disconnected)
{
    static const int wrong[][2] = {{1, 0}, {1, 2}, {1, -1}, {3, 1}, {-1, 1}};
    dl_link link;

    begin();
    int before = count_threads();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_link(&link, wrong[i][0], wrong[i][1]);
        check_closed(&link);
        dl_link_fini(&link);
        CHECK_EQUAL(count_threads(), before);
    }
    end();
}

CHECK_CASE(a_request_that_is_not_valid_ends_the_connection)
{
    dl_head head;
    dl_link link;

    begin();
    open_link(&link, 1, 1);
    send_request(&link, (dl_head){.detail = DL_WINDOW_GET, .tag = 256, .total = 1});
    CHECK(!receive(&link, &head));
    dl_link_fini(&link);
    open_link(&link, 1, 1);
    check_served(&link);
    dl_link_fini(&link);
    end();
}

/* A rank gives up its wait for the lock by an UNLOCK, and comes back on another
 * connection. */
CHECK_CASE(a_wait_for_a_lock_ends_with_its_rank_s_patience)
{
    dl_lock_request request = {.asker = 2, .deadline = soon()};
    dl_head lock = {.detail = DL_WINDOW_LOCK, .length = UINT64_MAX};
    dl_link first, second;
    dl_head head;

    begin();
    CHECK_OK(dl_lock_queue_take(all.queue, &all.ranks[2], 0, &request));
    open_link(&first, 1, 1);
    send_request(&first, lock);
    send_request(&first, (dl_head){.detail = DL_WINDOW_UNLOCK});
    dl_link_fini(&first);
    open_link(&second, 1, 1);
    send_request(&second, lock);
    dl_deadline limit = soon();
    while (atomic_load(&all.queue->sleepers) == 0) {
        (void)dl_listener_poll(&listener);
        CHECK(!dl_deadline_passed(limit));
    }
    CHECK_OK(dl_lock_queue_leave(all.queue, &all.ranks[2], 0, 2, soon()));
    CHECK(receive(&second, &head));
    CHECK_EQUAL(head.detail, DL_WINDOW_DONE);
    dl_link_fini(&second);
    end();
}

/* Sends requests until nothing more is taken. */
static void
send_without_reading(dl_link *link)
{
    uint8_t bytes[DL_HEAD_SIZE];
    int64_t moved_at = dl_now();

    dl_head_put(
        bytes,
        &(dl_head){.kind = DL_HEAD_WINDOW, .detail = DL_WINDOW_GET, .total = 256});
    for (size_t at = 0; dl_now() < moved_at + DL_SECOND / 4;) {
        struct iovec part = {bytes + at, sizeof bytes - at};
        size_t sent;
        CHECK_OK(dl_link_write(link, &part, 1, &sent));
        at = (at + sent) % sizeof bytes;
        moved_at = sent > 0 ? dl_now() : moved_at;
    }
}

CHECK_CASE(a_rank_that_does_not_read_delays_no_other_and_no_end)
{
    dl_link lazy, other;

    begin();
    open_link(&lazy, 1, 1);
    send_without_reading(&lazy);
    open_link(&other, 2, 1);
    check_served(&other);
    dl_window_server_remove(server, &all.served);
    check_closed(&other);
    dl_link_fini(&lazy);
    dl_link_fini(&other);
    end();
}

CHECK_CASE(a_withdrawn_window_is_reported_to_all)
{
    dl_lock_request request = {.asker = 2, .deadline = soon()};
    dl_link idle, waiting, late;

    begin();
    CHECK_OK(dl_lock_queue_take(all.queue, &all.ranks[2], 0, &request));
    open_link(&idle, 2, 1);
    open_link(&waiting, 1, 1);
    check_served(&idle);
    send_request(&waiting, (dl_head){.detail = DL_WINDOW_LOCK, .length = UINT64_MAX});
    dl_deadline limit = soon();
    while (atomic_load(&all.queue->sleepers) == 0) {
        (void)dl_listener_poll(&listener);
        CHECK(!dl_deadline_passed(limit));
    }
    int before = count_threads();
    dl_window_server_remove(server, &all.served);
    CHECK_EQUAL(count_threads(), before - 2);
    check_closed(&idle);
    check_closed(&waiting);
    open_link(&late, 1, 1);
    check_closed(&late);
    dl_link_fini(&idle);
    dl_link_fini(&waiting);
    dl_link_fini(&late);
    end();
}

CHECK_CASE(the_end_of_the_group_is_reported)
{
    dl_error cause = {.status = DL_CANCELLED, .text = "aborted"};
    dl_head head;
    dl_link link;

    begin();
    open_link(&link, 1, 1);
    check_served(&link);
    dl_window_server_end(server, &cause);
    CHECK(receive(&link, &head));
    CHECK_EQUAL(head.kind, DL_HEAD_NOTICE);
    CHECK_EQUAL(head.root, DL_CANCELLED);
    CHECK(!receive(&link, &head));
    dl_link_fini(&link);
    end();
}
