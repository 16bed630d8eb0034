/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An engine of messages whose peer on another host is played by the test, byte by
 * byte. */
#include "pg/cpu/p2p/p2p.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "boards.h"
#include "traffics.h"

#define PATIENCE (10 * DL_SECOND)

typedef struct fixture {
    test_traffics all; /* its listeners and addresses; rank 0 has the engine */
    dl_layout layout;
    test_boards boards;
    void *memory;
    dl_p2p *engine;
    dl_link link; /* rank 1's */
} fixture;

static void
fixture_init(fixture *self)
{
    const int hosts[] = {0, 1};
    dl_link_options link = {.group = "g",
                            .peers = dl_peers_of(self->all.peers),
                            .listener = &self->all.listeners[1],
                            .rank = 1,
                            .peer = 0,
                            .use = DL_FOR_MESSAGES};

    memset(self, 0, sizeof *self);
    traffics_init(&self->all, 2);
    CHECK_OK(dl_layout_init(&self->layout, 0, 2, hosts));
    boards_init(&self->boards, 1, 4096, false);
    self->memory = calloc(1, dl_p2p_memory(1) + 64);
    dl_p2p_options options = {.group_name = "g",
                              .peers = dl_peers_of(self->all.peers),
                              .layout = &self->layout,
                              .board = &self->boards.boards[0],
                              .tcp_contacts = self->all.known,
                              .listener = &self->all.listeners[0]};
    CHECK_OK(dl_p2p_new(&options, self->memory, &self->engine));
    dl_link_options_aim(&link, &self->all.tcp_contacts[0], 0);
    dl_link_init(&self->link, &link);
    while (!self->link.is_open) {
        CHECK_OK(dl_link_call(&self->link));
    }
}

static void
fixture_fini(fixture *self)
{
    dl_p2p_close(self->engine);
    dl_link_fini(&self->link);
    dl_layout_fini(&self->layout);
    traffics_fini(&self->all);
    boards_fini(&self->boards);
    free(self->memory);
}

/* The size of the payload may be anything. */
static void
put(fixture *self, const dl_head *head)
{
    uint8_t bytes[DL_HEAD_SIZE + 4096] = {0};
    struct iovec part = {bytes, DL_HEAD_SIZE + head->size};
    size_t sent;

    CHECK(part.iov_len <= sizeof bytes);
    dl_head_put(bytes, head);
    CHECK_OK(dl_link_write(&self->link, &part, 1, &sent));
    CHECK_EQUAL(sent, DL_HEAD_SIZE + head->size);
}

/* Reads whole heads with their payloads until the notice. */
static void
expect_notice(fixture *self, dl_error *told)
{
    uint8_t bytes[DL_HEAD_SIZE + DL_ERROR_TEXT_SIZE];
    dl_head head = {0};

    CHECK(fcntl(self->link.transport.fd, F_SETFL, 0) == 0);
    while (head.kind != DL_HEAD_NOTICE) {
        CHECK_EQUAL(recv(self->link.transport.fd, bytes, DL_HEAD_SIZE, MSG_WAITALL),
                    DL_HEAD_SIZE);
        CHECK(dl_head_take(bytes, &head));
        CHECK(head.size < DL_ERROR_TEXT_SIZE);
        CHECK_EQUAL(recv(self->link.transport.fd, bytes, head.size, MSG_WAITALL),
                    head.size);
    }
    bytes[head.size] = '\0';
    told->status = (dl_status)head.root;
    memcpy(told->text, bytes, head.size + 1);
    CHECK_EQUAL(recv(self->link.transport.fd, bytes, 1, MSG_WAITALL), 0);
}

static dl_work *
post(fixture *self, dl_op_type op, uint64_t *data, size_t count)
{
    dl_call call = {.op = op,
                    .tensor = {.data = data,
                               .count = count,
                               .item_size = sizeof *data,
                               .dtype = DL_INT64,
                               .ndim = 1,
                               .is_contiguous = true,
                               .is_writable = true},
                    .peer = 1,
                    .is_awaited = true};
    dl_work *work = NULL;

    CHECK_OK(dl_p2p_post(self->engine, &call, dl_deadline_after(PATIENCE), &work));
    return work;
}

static void
expect_failure(dl_work *work, const char *text)
{
    CHECK_STATUS(dl_work_wait(work, dl_deadline_after(PATIENCE)), DL_PROTOCOL);
    CHECK(strstr(dl_last_error()->text, text) != NULL);
    dl_work_unref(work);
}

/* Posts a receive, whose id is 1, and sends the heads to it. */
static void
expect_protocol(const dl_head *heads, int count)
{
    const char *text = "rank 1 (pid 101 on host h) sent a frame";
    fixture self;
    uint64_t data[4];
    dl_error told;

    fixture_init(&self);
    dl_work *work = post(&self, DL_RECV, data, 4);
    for (int i = 0; i < count; i++) {
        put(&self, &heads[i]);
    }
    expect_failure(work, text);
    expect_notice(&self, &told);
    CHECK_EQUAL(told.status, DL_PROTOCOL);
    CHECK(strstr(told.text, text) != NULL);
    expect_failure(post(&self, DL_RECV, data, 4), text);
    fixture_fini(&self);
}

static dl_head
message_of(uint32_t size, uint64_t total)
{
    return (dl_head){.kind = DL_HEAD_MESSAGE,
                     .detail = DL_FRAME_RTS,
                     .dtype = DL_INT64,
                     .size = size,
                     .id = 5,
                     .total = total};
}

CHECK_CASE(unknown_frames_are_reported_on_both_sides)
{
    dl_head heads[] = {message_of(0, 32)};

    heads[0].detail = DL_FRAME_STOP + 1;
    expect_protocol(heads, 1);
    heads[0].detail = 0;
    expect_protocol(heads, 1);
    heads[0].kind = DL_HEAD_DATA;
    expect_protocol(heads, 1);
}

CHECK_CASE(more_data_than_announced_are_reported_on_both_sides)
{
    dl_head heads[] = {message_of(0, 32), message_of(24, 0), message_of(16, 0)};

    heads[1].detail = heads[2].detail = DL_FRAME_DATA;
    heads[1].id = heads[2].id = 5;
    expect_protocol(heads, 3);
}

CHECK_CASE(more_contents_than_the_message_has_are_reported_on_both_sides)
{
    dl_head heads[] = {message_of(40, 32)};

    expect_protocol(heads, 1);
    heads[0] = message_of(16, 32);
    expect_protocol(heads, 1);
}

CHECK_CASE(a_peer_that_understands_nothing_is_believed)
{
    fixture self;
    uint64_t data[4];
    dl_error cause = {DL_PROTOCOL, "rank 0 (pid 100 on host h) sent a frame"};
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    struct iovec part = {frame, dl_failure_notice_put(frame, &cause)};
    size_t sent;

    fixture_init(&self);
    CHECK_OK(dl_link_write(&self.link, &part, 1, &sent));
    expect_failure(post(&self, DL_RECV, data, 4), cause.text);
    fixture_fini(&self);
}

#define MANY ((size_t)4 << 20) /* items: more than a connection's buffers hold */

/* Fills the link, until an answer to rank 1 finds neither room nor memory. */
static void
run_out_of_memory(fixture *self, uint64_t *data)
{
    dl_head accept = message_of(0, 0);
    dl_head message = message_of(0, 0);

    accept.detail = DL_FRAME_CTS;
    accept.id = 1; /* the first operation's */
    put(self, &accept);
    for (int i = 0; !self->engine->is_aborted && i < 10000; i++) {
        dl_work_unref(post(self, DL_RECV, data, 0));
        put(self, &message);
        pthread_mutex_lock(&self->engine->lock);
        dl_check_fail_allocation_at(1);
        dl_p2p_progress(self->engine);
        dl_check_fail_allocation_at(0);
        dl_p2p_unlock_and_finish(self->engine);
    }
    CHECK(self->engine->is_aborted);
}

CHECK_CASE(an_engine_without_memory_notifies_its_peers)
{
    fixture self;
    uint64_t *data = calloc(MANY, sizeof *data);
    struct pollfd end;

    fixture_init(&self);
    dl_work *work = post(&self, DL_SEND, data, MANY);
    run_out_of_memory(&self, data);
    CHECK_STATUS(dl_work_wait(work, dl_deadline_after(PATIENCE)), DL_NO_MEMORY);
    dl_work_unref(work);
    CHECK_EQUAL(atomic_load(&self.boards.boards[0].members[0].state), DL_ABORTED);
    /* No notice fits into the link; its end does. */
    do {
        end = (struct pollfd){.fd = self.link.transport.fd, .events = POLLIN};
        CHECK_EQUAL(poll(&end, 1, PATIENCE / DL_MILLISECOND), 1);
    } while (recv(self.link.transport.fd, data, MANY, MSG_DONTWAIT) > 0);
    fixture_fini(&self);
    free(data);
}
