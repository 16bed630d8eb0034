/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/traffic.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/shm/wait.h"
#include "pg/cpu/tcp/frame.h"
#include "traffics.h"

#define PATIENCE (10 * DL_SECOND)
#define LARGE ((size_t)3 << 20)

/* What one rank sends to another repeats this many bytes: sanitizers make a function for
 * each byte slow. */
#define PERIOD 769

static void
lay_period(uint8_t bytes[PERIOD], int from, int to)
{
    for (size_t i = 0; i < PERIOD; i++) {
        bytes[i] = (uint8_t)((size_t)from * 31 + (size_t)to * 7 + i / 3 + i);
    }
}

static void
lay_out(uint8_t *data, size_t size, int from, int to)
{
    uint8_t bytes[PERIOD];

    lay_period(bytes, from, to);
    for (size_t at = 0; at < size; at += PERIOD) {
        memcpy(data + at, bytes, dl_min_size(PERIOD, size - at));
    }
}

static void
check_laid_out(const uint8_t *data, size_t size, int from, int to)
{
    uint8_t bytes[PERIOD];

    lay_period(bytes, from, to);
    for (size_t at = 0; at < size; at += PERIOD) {
        CHECK(memcmp(data + at, bytes, dl_min_size(PERIOD, size - at)) == 0);
    }
}

/* Every rank sends `size` bytes to every other one. */
static void
exchange(test_traffics *all, int rank, uint64_t sequence, size_t size)
{
    dl_op_context op = test_op(sequence, DL_ALL_TO_ALL, PATIENCE);
    dl_traffic *traffic = &all->traffics[rank];
    uint8_t *out = malloc((size_t)all->size * size + 1);
    uint8_t *in = calloc((size_t)all->size, size + 1);

    dl_traffic_begin(traffic, &op);
    for (int peer = 0; peer < all->size; peer++) {
        uint8_t *data = out + (size_t)peer * size;
        lay_out(data, size, rank, peer);
        if (peer != rank) {
            CHECK_OK(dl_traffic_send(traffic, peer, data, size));
            CHECK_OK(dl_traffic_receive(traffic, peer, in + (size_t)peer * size, size));
        }
    }
    CHECK_OK(dl_traffic_wait(traffic, dl_traffic_next(traffic)));
    dl_traffic_end(traffic);
    for (int peer = 0; peer < all->size; peer++) {
        if (peer != rank) {
            check_laid_out(in + (size_t)peer * size, size, peer, rank);
        }
    }
    free(out);
    free(in);
}

static void
exchange_sizes(int rank, int size, void *context)
{
    const size_t sizes[] = {0, 1, 8, 4096, 20000, LARGE + 5, 3, 0};

    (void)size;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        exchange(context, rank, i + 1, sizes[i]);
    }
}

CHECK_CASE(bytes_of_all_sizes_come_across)
{
    test_traffics all;

    for (int size = 2; size <= 4; size++) {
        traffics_init(&all, size);
        dl_run_ranks(size, exchange_sizes, &all);
        traffics_fini(&all);
    }
}

CHECK_CASE(bytes_come_across_several_links)
{
    test_traffics all;

    for (int lanes = 2; lanes <= 5; lanes += 3) {
        traffics_init_lanes(&all, 3, lanes);
        dl_run_ranks(3, exchange_sizes, &all);
        for (int rank = 1; rank < 3; rank++) {
            dl_bundle *bundle = &all.traffics[0].routes[rank]->link;
            CHECK_EQUAL(bundle->count, lanes);
            CHECK(bundle->written > LARGE && bundle->read == bundle->written);
        }
        traffics_fini(&all);
    }
}

/* Two ranks with different numbers of interfaces use what both have. */
CHECK_CASE(the_fewer_interfaces_count)
{
    test_traffics all;

    traffics_init_lanes(&all, 2, 3);
    all.tcp_contacts[0].count = 2;
    all.listeners[0].tcp.count = 2;
    dl_run_ranks(2, exchange_sizes, &all);
    CHECK_EQUAL(all.traffics[0].routes[1]->link.count, 2);
    CHECK_EQUAL(all.traffics[1].routes[0]->link.count, 2);
    all.listeners[0].tcp.count = 3;
    traffics_fini(&all);
}

/* Several stages under way, waited for one by one. */
static void
run_stages(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_context op = test_op(1, DL_ALL_REDUCE, PATIENCE);
    int64_t out[6];
    int64_t in[6] = {0};

    (void)size;
    dl_traffic_begin(traffic, &op);
    for (uint32_t stage = 0; stage < 6; stage++) {
        out[stage] = rank * 100 + (int64_t)stage;
        CHECK_OK(dl_traffic_send(traffic, 1 - rank, &out[stage], sizeof *out));
        CHECK_OK(dl_traffic_receive(traffic, 1 - rank, &in[stage], sizeof *in));
        CHECK_EQUAL(dl_traffic_next(traffic), stage);
        if (stage >= 2) {
            CHECK_OK(dl_traffic_wait(traffic, stage - 2));
            CHECK_EQUAL(in[stage - 2], (1 - rank) * 100 + (int64_t)stage - 2);
        }
    }
    CHECK_OK(dl_traffic_wait(traffic, 5));
    CHECK_EQUAL(in[5], (1 - rank) * 100 + 5);
    dl_traffic_end(traffic);
}

CHECK_CASE(stages_are_waited_for_in_their_order)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, run_stages, &all);
    traffics_fini(&all);
}

/* Sends one byte to the other of two ranks and expects `expected`. */
static dl_status
meet(dl_traffic *traffic, const dl_op_context *op, size_t expected)
{
    static uint8_t byte = 7;
    uint8_t in[8];
    int peer = 1 - traffic->options.rank;

    dl_traffic_begin(traffic, op);
    CHECK_OK(dl_traffic_send(traffic, peer, &byte, 1));
    CHECK_OK(dl_traffic_receive(traffic, peer, in, expected));
    dl_status status = dl_traffic_wait(traffic, dl_traffic_next(traffic));
    if (status != DL_OK) {
        dl_traffic_break(traffic, NULL, 0);
    }
    dl_traffic_end(traffic);
    return status;
}

static void
disagree(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_type types[] = {DL_BARRIER, DL_ALL_REDUCE};
    dl_op_context op = test_op(3, types[rank], PATIENCE);

    (void)size;
    CHECK_STATUS(meet(&all->traffics[rank], &op, 1), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, " #3 in group g: rank 0 called barrier(), ");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called all_reduce(");
}

CHECK_CASE(calls_that_differ_are_reported_on_both_sides)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, disagree, &all);
    traffics_fini(&all);
}

/* Only sends to the other of two ranks, or only receives from it. */
static dl_status
go_one_way(dl_traffic *traffic, const dl_op_context *op, bool sends)
{
    static uint8_t byte = 7;
    uint8_t in = 0;
    int peer = 1 - traffic->options.rank;

    dl_traffic_begin(traffic, op);
    traffic->is_one_way = true;
    CHECK_OK(sends ? dl_traffic_send(traffic, peer, &byte, 1)
                   : dl_traffic_receive(traffic, peer, &in, 1));
    dl_status status = dl_traffic_wait(traffic, dl_traffic_next(traffic));
    CHECK(status != DL_OK || sends || in == 7);
    if (status != DL_OK) {
        dl_traffic_break(traffic, NULL, 0);
    }
    dl_traffic_end(traffic);
    return status;
}

static void
wait_for_each_other(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_type types[] = {DL_GATHER, DL_REDUCE};
    dl_op_context op = test_op(3, types[rank], PATIENCE);

    (void)size;
    CHECK_STATUS(go_one_way(&all->traffics[rank], &op, false), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, " #3 in group g: rank 0 called gather(");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called reduce(");
}

CHECK_CASE(ranks_that_wait_for_each_other_learn_how_their_calls_differ)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, wait_for_each_other, &all);
    traffics_fini(&all);
}

/* Each waits for the next one, and has nothing to do with the one that waits for it. */
static void
wait_in_a_circle(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_type types[] = {DL_GATHER, DL_REDUCE, DL_GATHER, DL_REDUCE, DL_SCATTER};
    dl_op_context op = test_op(2, types[rank], PATIENCE);
    uint8_t in;

    exchange(all, rank, 1, 5);
    dl_traffic_begin(traffic, &op);
    traffic->is_one_way = true;
    CHECK_OK(dl_traffic_receive(traffic, (rank + 1) % size, &in, 1));
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, " #2 in group g");
    CHECK_CONTAINS(dl_last_error()->text, " called ");
    dl_traffic_break(traffic, NULL, 0);
    dl_traffic_end(traffic);
}

CHECK_CASE(ranks_that_wait_in_a_circle_learn_how_their_calls_differ)
{
    for (int size = 3; size <= 5; size += 2) {
        test_traffics all;
        traffics_init(&all, size);
        dl_run_ranks(size, wait_in_a_circle, &all);
        traffics_fini(&all);
    }
}

/* Both have left the operation in which their calls differ. */
static void
differ_before(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_type types[] = {DL_BROADCAST, DL_SCATTER};
    dl_op_context before = test_op(3, types[rank], PATIENCE);
    dl_op_context op = test_op(4, DL_BARRIER, PATIENCE);

    (void)size;
    CHECK_OK(go_one_way(&all->traffics[rank], &before, true));
    CHECK_STATUS(meet(&all->traffics[rank], &op, 1), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "in group g: rank 0 called broadcast(");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called scatter(");
}

CHECK_CASE(calls_that_differed_before_are_reported_on_both_sides)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, differ_before, &all);
    traffics_fini(&all);
}

/* Rank 1 waits until it has greeted rank 0, which reads that before it sends. */
static void
send_late(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_context op = test_op(2, DL_BROADCAST, PATIENCE);
    struct pollfd polled = {.events = POLLIN};

    (void)size;
    exchange(all, rank, 1, 5);
    if (rank == 0) {
        polled.fd = traffic->routes[1]->link.links[0].transport.fd;
        CHECK(poll(&polled, 1, 5000) == 1);
    }
    CHECK_OK(go_one_way(traffic, &op, rank == 0));
    if (rank == 0) {
        CHECK_EQUAL(dl_traffic_last_seen(traffic, 1), 2);
    }
    exchange(all, rank, 3, 5);
}

CHECK_CASE(a_sender_that_was_waited_for_reads_that_first)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, send_late, &all);
    traffics_fini(&all);
}

/* What the kernels of two ranks hold together, and that of rank 1 alone does not. */
#define HELD ((size_t)128 << 10)

static atomic_int held_stage;

static void
await_stage(int stage)
{
    while (atomic_load(&held_stage) < stage) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
}

static dl_status
move_one_way(dl_traffic *traffic, uint8_t *bytes, bool sends)
{
    dl_op_context op = test_op(2, DL_BROADCAST, PATIENCE);

    dl_traffic_begin(traffic, &op);
    traffic->is_one_way = true;
    CHECK_OK(sends ? dl_traffic_send(traffic, 1, bytes, HELD)
                   : dl_traffic_receive(traffic, 0, bytes, HELD));
    dl_status status = dl_traffic_wait(traffic, dl_traffic_next(traffic));
    dl_traffic_end(traffic);
    return status;
}

static void
finish_sending(dl_traffic *traffic, uint8_t *bytes)
{
    const dl_bundle *bundle = &traffic->routes[1]->link;

    /* All that was sent so far is for an operation of both. */
    int64_t start = dl_now();
    CHECK_OK(dl_traffic_finish(traffic, dl_deadline_after(PATIENCE)));
    await_stage(1);
    CHECK_OK(move_one_way(traffic, bytes, true));
    CHECK(dl_bundle_unacknowledged(bundle) > 0);
    CHECK_OK(dl_traffic_finish(traffic, dl_deadline_after(20 * DL_MILLISECOND)));
    CHECK(dl_bundle_unacknowledged(bundle) > 0);
    atomic_store(&held_stage, 2);
    CHECK_OK(dl_traffic_finish(traffic, dl_deadline_after(PATIENCE)));
    CHECK_EQUAL(dl_bundle_unacknowledged(bundle), 0);
    CHECK(dl_now() - start < PATIENCE);
    atomic_store(&held_stage, 3);
}

/* Rank 1 reads late what rank 0 has sent, and then drops the connection. */
static void
finish_before_leaving(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    uint8_t *bytes = calloc(1, HELD);

    (void)size;
    exchange(all, rank, 1, 5);
    int fd = traffic->routes[1 - rank]->link.links[0].transport.fd;
    dl_socket_set_option(fd, SOL_SOCKET, rank == 0 ? SO_SNDBUF : SO_RCVBUF,
                         rank == 0 ? 2 * (int)HELD : 4096);
    if (rank == 0) {
        finish_sending(traffic, bytes);
    } else {
        atomic_store(&held_stage, 1);
        await_stage(2);
        CHECK_OK(move_one_way(traffic, bytes, false));
        await_stage(3);
    }
    free(bytes);
}

CHECK_CASE(a_rank_that_finishes_waits_for_what_it_has_sent_one_way)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, finish_before_leaving, &all);
    traffics_fini(&all);
}

/* The other kernel acknowledges nothing any more. */
CHECK_CASE(a_connection_that_was_reset_owes_nothing)
{
    test_traffics all;
    uint8_t *bytes = calloc(1, HELD);

    traffics_init(&all, 2);
    dl_run_ranks(2, exchange_sizes, &all);
    dl_link *links[] = {all.traffics[0].routes[1]->link.links,
                        all.traffics[1].routes[0]->link.links};
    dl_socket_set_option(links[1]->transport.fd, SOL_SOCKET, SO_RCVBUF, 4096);
    for (size_t sent = 1; sent > 0;) {
        struct iovec part = {bytes, HELD};
        CHECK_OK(dl_link_write(links[0], &part, 1, &sent));
    }
    CHECK(dl_socket_unacknowledged(links[0]->transport.fd) > 0);
    dl_transport_close(&links[1]->transport);
    links[1]->is_open = false;
    struct pollfd entry = {.fd = links[0]->transport.fd};
    CHECK_EQUAL(poll(&entry, 1, 5000), 1);
    CHECK_EQUAL(dl_socket_unacknowledged(links[0]->transport.fd), 0);
    free(bytes);
    traffics_fini(&all);
}

static void
disagree_on_size(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_context op = test_op(1, DL_ALL_TO_ALL, PATIENCE);

    (void)size;
    CHECK_STATUS(meet(&all->traffics[rank], &op, 3), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, " has 1 bytes for rank ");
    CHECK_CONTAINS(dl_last_error()->text, "which expects 3 bytes");
}

CHECK_CASE(sizes_that_differ_are_reported_on_both_sides)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, disagree_on_size, &all);
    traffics_fini(&all);
}

/* Rank 1 notes what no rank of this version does. */
static void
note_too_much(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];

    (void)size;
    for (int past = 0; past < 2; past++) {
        dl_op_context op = test_op((uint64_t)past + 1, DL_ALL_TO_ALL, PATIENCE);
        uint8_t byte = 0;
        dl_traffic_begin(traffic, &op);
        traffic->note = (uint8_t)(rank * (DL_NOTE_LIMIT + past));
        if (rank == 1) {
            CHECK_OK(dl_traffic_send(traffic, 0, &byte, 1));
        } else {
            CHECK_OK(dl_traffic_receive(traffic, 1, &byte, 1));
        }
        CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)),
                     rank == 0 && past == 1 ? DL_PROTOCOL : DL_OK);
        CHECK_EQUAL(traffic->note,
                    past == 0 ? DL_NOTE_LIMIT : rank * (DL_NOTE_LIMIT + 1));
        dl_traffic_end(traffic);
    }
}

CHECK_CASE(notes_beyond_the_limit_are_refused)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, note_too_much, &all);
    traffics_fini(&all);
}

/* Rank 2 meets the others once and ends; these wait for it, directly or not. */
static void
lose_rank_2(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_context op = test_op(2, DL_BARRIER, PATIENCE);
    uint8_t byte = 0;

    (void)size;
    exchange(all, rank, 1, 5);
    if (rank == 2) {
        traffics_cut(all, 2);
        return;
    }
    dl_traffic_begin(traffic, &op);
    CHECK_OK(dl_traffic_receive(traffic, rank == 0 ? 1 : 2, &byte, 1));
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "barrier #2 in group g: rank 2 (pid 102 on");
    CHECK_CONTAINS(dl_last_error()->text, "(last seen in #1)");
    dl_traffic_break(traffic, NULL, 0);
    dl_traffic_end(traffic);
}

CHECK_CASE(a_lost_rank_is_named_by_ranks_that_never_waited_for_it)
{
    test_traffics all;

    traffics_init(&all, 3);
    dl_run_ranks(3, lose_rank_2, &all);
    traffics_fini(&all);
}

static dl_status
tell_late(void *context)
{
    return --*(int *)context > 0 ? DL_OK : dl_fail(DL_MISMATCH, "rank 2 gave up");
}

/* Rank 1 disconnects without a notice, for a reason that reaches rank 0 by other
 * means. */
static void
hang_up(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_context op = test_op(2, DL_BARRIER, PATIENCE);
    uint8_t byte = 0;
    int looks = 5;

    (void)size;
    exchange(all, rank, 1, 5);
    if (rank == 1) {
        traffics_cut(all, 1);
        return;
    }
    traffic->options.check = tell_late;
    traffic->options.context = &looks;
    dl_traffic_begin(traffic, &op);
    CHECK_OK(dl_traffic_receive(traffic, 1, &byte, 1));
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_MISMATCH);
    CHECK_TEXT(dl_last_error()->text, "barrier #2 in group g: rank 2 gave up");
    dl_traffic_break(traffic, NULL, 0);
    dl_traffic_end(traffic);
}

CHECK_CASE(a_peer_that_closes_silently_is_not_blamed_for_another_failure)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, hang_up, &all);
    traffics_fini(&all);
}

/* The lower rank is not called, and the higher not answered. */
CHECK_CASE(a_rank_that_ended_before_any_call_is_noticed_from_both_sides)
{
    for (int rank = 0; rank < 2; rank++) {
        test_traffics all;
        dl_op_context op = test_op(1, DL_BARRIER, PATIENCE);
        traffics_init(&all, 2);
        traffics_cut(&all, 1 - rank);
        CHECK_STATUS(meet(&all.traffics[rank], &op, 1), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text,
                       "exited or was killed: no process listens");
        CHECK_CONTAINS(dl_last_error()->text,
                       "(nothing has been received from it yet)");
        traffics_fini(&all);
    }
}

CHECK_CASE(a_rank_that_ends_while_it_is_probed_is_noticed)
{
    test_traffics all;
    int64_t start = dl_now(); /* before the operation takes its own */
    dl_op_context op = test_op(1, DL_BARRIER, 200 * DL_MILLISECOND);

    traffics_init(&all, 2);
    CHECK_STATUS(meet(&all.traffics[0], &op, 1), DL_TIMEOUT);
    CHECK(dl_now() - start > 200 * DL_MILLISECOND);
    CHECK_CONTAINS(dl_last_error()->text,
                   "timed out after 200ms: waiting for rank 1 (pid 101 on host h)");
    dl_listener_fini(&all.listeners[1]);
    op = test_op(2, DL_BARRIER, PATIENCE);
    CHECK_STATUS(meet(&all.traffics[0], &op, 1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid 101 on host h) exited");
    traffics_fini(&all);
}

typedef struct announced {
    int64_t at;
    dl_error error;
    const char *known; /* the failure that another host has reported; NULL: none */
} announced;

static void
note_foretold(void *context, const dl_error *error)
{
    announced *self = context;

    *self = (announced){dl_now(), *error, self->known};
}

static dl_status
tell_known(void *context)
{
    const announced *self = context;

    return self->known == NULL ? DL_OK : dl_fail(DL_TIMEOUT, "%s", self->known);
}

CHECK_CASE(the_error_of_a_wait_is_known_before_its_deadline)
{
    for (int is_known = 0; is_known < 2; is_known++) {
        test_traffics all;
        announced note = {.known = is_known ? "rank 7 is late" : NULL};
        /* It is announced in the last half second, in which the thread has to run. */
        dl_op_context op = test_op(1, DL_BARRIER, DL_SECOND);
        traffics_init(&all, 2);
        all.traffics[0].options.late = tell_known;
        all.traffics[0].options.announce_timeout = note_foretold;
        all.traffics[0].options.context = &note;
        CHECK_STATUS(meet(&all.traffics[0], &op, 1), DL_TIMEOUT);
        CHECK(note.at > 0 && note.at < op.deadline.at);
        CHECK_TEXT(note.error.text, dl_last_error()->text);
        CHECK_CONTAINS(note.error.text,
                       is_known ? "rank 7 is late" : "waiting for rank 1 (pid 101");
        traffics_fini(&all);
    }
}

static void
abort_rank_1(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_context op = test_op(2, DL_BARRIER, PATIENCE);
    dl_error cause = {DL_CANCELLED, "stop it"};
    dl_error message = {DL_PEER_LOST, "rank 1: was stopped"};

    (void)size;
    exchange(all, rank, 1, 1);
    if (rank == 1) {
        dl_traffic_abort(&all->traffics[1], &cause, &message);
        CHECK_STATUS(meet(&all->traffics[1], &op, 1), DL_CANCELLED);
        CHECK_CONTAINS(dl_last_error()->text, "stop it");
        return;
    }
    CHECK_STATUS(meet(&all->traffics[0], &op, 1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "barrier #2 in group g: rank 1: was stopped");
}

CHECK_CASE(an_abort_between_operations_is_reported)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, abort_rank_1, &all);
    traffics_fini(&all);
}

typedef ssize_t (*recvmsg_fn)(int, struct msghdr *, int);

/* A rank whose data comes a little at a time, though never late, and whose operation is
 * ended when some has come; NULL: none. */
static dl_traffic *trickled;
static int trickles;

ssize_t
recvmsg(int fd, struct msghdr *message, int flags)
{
    const dl_error cause = {DL_CANCELLED, "stop it"};
    struct iovec part = message->msg_iov[0];
    struct msghdr less = {.msg_iov = &part, .msg_iovlen = 1};
    recvmsg_fn real;

    *(void **)&real = dlsym(RTLD_NEXT, "recvmsg");
    if (trickled == NULL) {
        return real(fd, message, flags);
    }
    trickles++;
    if (trickles == 5) {
        dl_traffic_abort(trickled, &cause, &cause);
    }
    if (trickles % 2 == 0) {
        errno = EAGAIN;
        return -1;
    }
    part.iov_len = dl_min_size(part.iov_len, 100);
    return real(fd, &less, flags);
}

static void
exchange_once(int rank, int size, void *context)
{
    (void)size;
    exchange(context, rank, 1, 1);
}

CHECK_CASE(an_abort_ends_a_wait_in_which_data_comes)
{
    static uint8_t sent[DL_HEAD_SIZE + 20000];
    static uint8_t got[20000];
    dl_head head = {.kind = DL_HEAD_DATA,
                    .id = 2,
                    .tag = DL_BROADCAST,
                    .size = sizeof got,
                    .length = sizeof got};
    test_traffics all;
    dl_op_context op = test_op(2, DL_BROADCAST, PATIENCE);

    traffics_init(&all, 2);
    dl_run_ranks(2, exchange_once, &all);
    dl_traffic *traffic = &all.traffics[0];
    dl_head_put(sent, &head);
    CHECK_EQUAL(send(all.traffics[1].routes[0]->link.links[0].transport.fd, sent,
                     sizeof sent, 0),
                sizeof sent);
    dl_traffic_begin(traffic, &op);
    CHECK_OK(dl_traffic_receive(traffic, 1, got, sizeof got));
    trickled = traffic;
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, "stop it");
    CHECK(trickles < 10);
    trickled = NULL;
    dl_traffic_end(traffic);
    traffics_fini(&all);
}

static atomic_bool is_breaking;

/* A notice comes between two parts of a message that the receiver does not take. */
static void
give_up_in_the_middle(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_traffic *traffic = &all->traffics[rank];
    dl_op_context op = test_op(2, DL_BROADCAST, PATIENCE);
    static uint8_t data[2][8 * LARGE];
    dl_error cause = {DL_CANCELLED, "enough"};

    (void)size;
    exchange(all, rank, 1, 1);
    dl_traffic_begin(traffic, &op);
    if (rank == 0) {
        op.deadline = dl_deadline_after(DL_MILLISECOND);
        CHECK_OK(dl_traffic_send(traffic, 1, data[0], sizeof data[0]));
        CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_TIMEOUT);
        (void)dl_rethrow(&cause);
        atomic_store(&is_breaking, true);
        dl_traffic_break(traffic, NULL, 0);
    } else {
        while (!atomic_load(&is_breaking)) {
            CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
        }
        CHECK_OK(dl_traffic_receive(traffic, 0, data[1], sizeof data[1]));
        CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_CANCELLED);
        CHECK_CONTAINS(dl_last_error()->text,
                       "rank 0 (pid 100 on host h) gave up: eno");
    }
    dl_traffic_end(traffic);
}

CHECK_CASE(a_sender_can_cancel_in_the_middle_of_a_message)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, give_up_in_the_middle, &all);
    traffics_fini(&all);
}

/* Returns the descriptor of the call, or -1 if it has not come. */
static int
take(dl_listener *listener, const dl_hello *contents)
{
    dl_transport taken;

    return dl_listener_take(listener, contents, &taken) ? taken.fd : -1;
}

CHECK_CASE(connections_without_proof_are_closed)
{
    test_traffics all;
    dl_hello contents = {.group = "g", .caller = 1, .use = DL_FOR_COLLECTIVES};
    const dl_address *there = &all.tcp_contacts[0].addresses[0];
    char byte;

    traffics_init(&all, 2);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, &there->socket.any, there->size) == 0);
    dl_buffer hello = {0};
    CHECK_OK(dl_hello_put(&hello, &contents, all.tcp_contacts[1].token, false));
    CHECK(send(fd, hello.data, hello.size, 0) == (ssize_t)hello.size);
    int64_t until = dl_now() + 5 * DL_SECOND;
    ssize_t got = -1;
    while (got < 0 && dl_now() < until) {
        CHECK_EQUAL(take(&all.listeners[0], &contents), -1);
        got = recv(fd, &byte, 1, MSG_DONTWAIT);
    }
    CHECK_EQUAL(got, 0);
    close(fd);
    dl_buffer_fini(&hello);
    traffics_fini(&all);
}

/* Two processes were started as the same rank, and both have read where to call. */
CHECK_CASE(only_the_process_of_the_list_is_taken)
{
    test_traffics all;
    uint8_t twins[2][DL_TOKEN_SIZE] = {{1}, {2}};
    dl_hello contents = {.group = "g", .caller = 1, .use = DL_FOR_COLLECTIVES};
    const dl_address *there = &all.tcp_contacts[0].addresses[0];
    int fds[2];
    char byte;

    traffics_init(&all, 2);
    for (int i = 0; i < 2; i++) {
        dl_buffer hello = {0};
        contents.own = twins[i];
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fds[i], &there->socket.any, there->size) == 0);
        CHECK_OK(dl_hello_put(&hello, &contents, all.tcp_contacts[0].token, false));
        dl_buffer_put(&hello, (dl_bytes){twins[i], 1});
        CHECK(send(fds[i], hello.data, hello.size, 0) == (ssize_t)hello.size);
        dl_buffer_fini(&hello);
    }
    int64_t until = dl_now() + PATIENCE;
    int taken = -1;
    while (taken < 0 && dl_now() < until) {
        taken = take(&all.listeners[0], &contents);
    }
    CHECK(recv(taken, &byte, 1, 0) == 1 && byte == 2);
    CHECK_EQUAL(take(&all.listeners[0], &contents), -1);
    dl_socket_close(taken);
    close(fds[0]);
    close(fds[1]);
    traffics_fini(&all);
}

/* A call of rank 1 to rank 0. */
static int
call_rank_0(const test_traffics *all, const char *group, bool is_probe)
{
    dl_hello contents = {.group = group, .caller = 1, .use = DL_FOR_MESSAGES};
    const dl_address *there = &all->tcp_contacts[0].addresses[0];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    dl_buffer hello = {0};

    CHECK(connect(fd, &there->socket.any, there->size) == 0);
    CHECK_OK(dl_hello_put(&hello, &contents, all->tcp_contacts[0].token, is_probe));
    /* A probe says no more. */
    dl_buffer_put(&hello, (dl_bytes){(const uint8_t *)"more", is_probe ? 0 : 4});
    CHECK(send(fd, hello.data, hello.size, 0) == (ssize_t)hello.size);
    dl_buffer_fini(&hello);
    return fd;
}

static bool
is_heard(test_traffics *all, int fd)
{
    int64_t until = dl_now() + PATIENCE;
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    do {
        dl_listener_poll(&all->listeners[0]);
    } while (poll(&entry, 1, 1) == 0 && dl_now() < until);
    return entry.revents != 0;
}

static void
check_told(test_traffics *all, int fd, const char *text)
{
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    dl_head head;

    CHECK(is_heard(all, fd));
    CHECK_EQUAL(recv(fd, frame, sizeof frame, 0),
                (ssize_t)(DL_HEAD_SIZE + strlen(text)));
    CHECK(dl_head_take(frame, &head) && head.kind == DL_HEAD_NOTICE);
    CHECK(memcmp(frame + DL_HEAD_SIZE, text, strlen(text)) == 0);
    CHECK(is_heard(all, fd));
    CHECK(recv(fd, frame, sizeof frame, 0) <= 0);
    close(fd);
}

static void
end_group(test_traffics *all, const char *group, const char *text)
{
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    dl_error cause = {.status = DL_CANCELLED};

    snprintf(cause.text, sizeof cause.text, "%s", text);
    dl_listener_end(&all->listeners[0], group,
                    (dl_bytes){frame, dl_failure_notice_put(frame, &cause)});
}

CHECK_CASE(connecting_for_a_group_that_has_ended_fails)
{
    test_traffics all;
    dl_hello contents = {.group = "g", .caller = 1, .use = DL_FOR_MESSAGES};
    char name[32];

    traffics_init(&all, 2);
    int before[] = {call_rank_0(&all, "g", false), call_rank_0(&all, "g", true)};
    int other = call_rank_0(&all, "h", false);
    end_group(&all, "g", "enough");
    end_group(&all, "g", "again");
    check_told(&all, before[0], "enough");
    check_told(&all, before[1], "enough");
    check_told(&all, call_rank_0(&all, "g", true), "enough");
    check_told(&all, call_rank_0(&all, "g", false), "enough");
    /* Connections for other groups stay, also for a later group of the same name. */
    dl_listener_forget_end(&all.listeners[0], "g");
    int anew = call_rank_0(&all, "g", false);
    int64_t until = dl_now() + PATIENCE;
    int taken = -1;
    while (taken < 0 && dl_now() < until) {
        taken = take(&all.listeners[0], &contents);
    }
    CHECK(taken >= 0);
    contents.group = "h";
    int kept = take(&all.listeners[0], &contents);
    CHECK(kept >= 0);
    /* The last ones are remembered, and no more. */
    for (int i = 0; i <= DL_ENDED_LIMIT; i++) {
        snprintf(name, sizeof name, "old %d", i);
        end_group(&all, name, name);
    }
    check_told(&all, call_rank_0(&all, name, false), name);
    check_told(&all, call_rank_0(&all, "old 1", false), "old 1");
    int older = call_rank_0(&all, "old 0", false);
    contents.group = "old 0";
    int other_kept = -1;
    while (other_kept < 0 && dl_now() < until) {
        other_kept = take(&all.listeners[0], &contents);
    }
    CHECK(other_kept >= 0);
    close(other_kept);
    close(older);
    close(taken);
    close(kept);
    close(anew);
    close(other);
    traffics_fini(&all);
}

static atomic_int looks;
static atomic_bool is_enough;

static dl_status
count_looks(void *context)
{
    (void)context;
    atomic_fetch_add(&looks, 1);
    return atomic_load(&is_enough) ? dl_fail(DL_CANCELLED, "enough") : DL_OK;
}

static void
wait_or_wake(int rank, int size, void *context)
{
    test_traffics *all = context;
    dl_op_context op = test_op(1, DL_BROADCAST, 60 * DL_SECOND);
    /* The one that calls: its link is open, and quiet. */
    dl_traffic *traffic = &all->traffics[1];
    char byte;

    (void)size;
    if (rank == 0) {
        traffic->options.check = count_looks;
        dl_traffic_begin(traffic, &op);
        CHECK_OK(dl_traffic_receive(traffic, 0, &byte, 1));
        CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_CANCELLED);
        dl_traffic_end(traffic);
        return;
    }
    /* Wakes at the ends of slices are far fewer. */
    int64_t until = dl_now() + 20 * DL_SECOND;
    for (int i = 0; i < 1000 && dl_now() < until; i++) {
        int before = atomic_load(&looks);
        while (atomic_load(&looks) == before && dl_now() < until) {
            dl_traffic_wake(traffic);
            CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND / 10)));
        }
    }
    CHECK(dl_now() < until);
    atomic_store(&is_enough, true);
    dl_traffic_wake(traffic);
}

CHECK_CASE(a_sleep_at_links_ends_when_it_is_woken)
{
    test_traffics all;

    traffics_init(&all, 2);
    dl_run_ranks(2, wait_or_wake, &all);
    traffics_fini(&all);
}

/* Leaves no descriptor to this process, and one caller that waits at `listener`. */
static int
call_without_descriptors(const dl_listener *listener)
{
    const dl_address *address = &listener->tcp.addresses[0];
    int caller = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(connect(caller, &address->socket.any, address->size) == 0);
    CHECK_EQUAL(send(caller, "?", 1, 0), 1);
    int next = dup(caller);
    CHECK(next >= 0 && close(next) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, (rlim_t)next}) == 0);
    return caller;
}

static long
sleeps_so_far(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_nvcsw;
}

CHECK_CASE(a_wait_without_descriptors_sleeps)
{
    test_traffics all;
    dl_op_context op = test_op(1, DL_BROADCAST, 300 * DL_MILLISECOND);
    char byte;

    traffics_init(&all, 2);
    dl_traffic *traffic = &all.traffics[0];
    dl_traffic_begin(traffic, &op);
    CHECK_OK(dl_traffic_receive(traffic, 1, &byte, 1));
    dl_link *link = &traffic->routes[1]->link.links[0];
    while (link->probe.stage != DL_DIAL_OPEN) {
        CHECK_OK(dl_link_probe(link));
    }
    int caller = call_without_descriptors(&all.listeners[0]);
    long before = sleeps_so_far();
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_TIMEOUT);
    CHECK(sleeps_so_far() - before >= 4);
    dl_traffic_end(traffic);
    close(caller);
    traffics_fini(&all);
}

CHECK_CASE(an_abort_ends_the_sleep)
{
    const dl_error cause = {DL_CANCELLED, "enough"};
    test_traffics all;
    dl_op_context op = test_op(1, DL_BROADCAST, 200 * DL_MILLISECOND);
    char byte;

    traffics_init(&all, 2);
    dl_traffic *traffic = &all.traffics[0];
    dl_traffic_begin(traffic, &op);
    CHECK_OK(dl_traffic_receive(traffic, 1, &byte, 1));
    CHECK_STATUS(dl_traffic_wait(traffic, dl_traffic_next(traffic)), DL_TIMEOUT);
    struct pollfd wake = {.fd = atomic_load(&traffic->wake), .events = POLLIN};
    CHECK(wake.fd >= 0);
    CHECK_EQUAL(poll(&wake, 1, 0), 0);
    dl_traffic_abort(traffic, &cause, &cause);
    CHECK_EQUAL(poll(&wake, 1, 0), 1);
    dl_traffic_end(traffic);
    traffics_fini(&all);
}
