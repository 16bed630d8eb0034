/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices of other hosts, which do not come over the links: the failures that these
 * report, and whether they are alive.  Every rank is a host of its own. */
#define DL_RANKS_LIMIT 300

#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "base/thread.h"
#include "pg/cpu/health/notices.h"
#include "pg/cpu/health/probes.h"
#include "traffics.h"

#define PATIENCE (10 * DL_SECOND)

static int hosts[DL_RANKS_LIMIT];

typedef struct papers {
    test_traffics traffics;
    dl_layout layouts[DL_RANKS_LIMIT];
    dl_notices notices[DL_RANKS_LIMIT];
} papers;

static void
papers_init(papers *all, int size)
{
    traffics_init(&all->traffics, size);
    for (int rank = 0; rank < size; rank++) {
        hosts[rank] = rank;
    }
    for (int rank = 0; rank < size; rank++) {
        CHECK_OK(dl_layout_init(&all->layouts[rank], rank, size, hosts));
        dl_notices_options options = {.group_name = "g",
                                      .layout = &all->layouts[rank],
                                      .peers = dl_peers_of(all->traffics.peers),
                                      .tcp_contacts = all->traffics.known,
                                      .listener = &all->traffics.listeners[rank]};
        CHECK_OK(dl_notices_init(&all->notices[rank], &options));
    }
}

static void
papers_fini(papers *all)
{
    for (int rank = 0; rank < all->traffics.size; rank++) {
        dl_notices_fini(&all->notices[rank]);
        dl_layout_fini(&all->layouts[rank]);
    }
    traffics_fini(&all->traffics);
}

static void
tell(papers *all, int rank, dl_status status, const char *text, uint64_t sequence)
{
    dl_error message = {.status = status};

    snprintf(message.text, sizeof message.text, "%s", text);
    dl_notices_notify(&all->notices[rank], &message, sequence,
                      dl_deadline_after(PATIENCE));
}

/* Packets take their time. */
static dl_status
hear(dl_notices *notices, uint64_t sequence)
{
    int64_t until = dl_now() + PATIENCE;
    dl_status status;

    while ((status = dl_notices_check(notices, sequence)) == DL_OK
           && dl_now() < until) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return status;
}

CHECK_CASE(all_ranks_learn_which_rank_failed_and_at_which_operation)
{
    papers all;

    papers_init(&all, 3);
    CHECK_OK(dl_notices_check(&all.notices[0], 9));
    tell(&all, 1, DL_TIMEOUT, "barrier #7 in group g timed out", 7);
    for (int rank = 0; rank < 3; rank += 2) {
        CHECK_STATUS(hear(&all.notices[rank], 7), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text,
                       "rank 1 (pid 101 on host h) gave up: barrier #7 in group g ");
        CHECK_OK(dl_notices_check(&all.notices[rank], 6));
        CHECK_STATUS(dl_notices_check(&all.notices[rank], 8), DL_TIMEOUT);
        CHECK_STATUS(dl_notices_watch(&all.notices[rank], 1), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid 101 on host h) gave up: ");
        CHECK_OK(dl_notices_watch(&all.notices[rank], 2 - rank));
    }
    CHECK_OK(dl_notices_check(&all.notices[1], 9));
    papers_fini(&all);
}

/* The failure of the earliest operation counts, in whatever order the notices arrive. */
CHECK_CASE(the_first_failure_stays)
{
    papers all;

    papers_init(&all, 3);
    tell(&all, 1, DL_MISMATCH, "late notices", 9);
    CHECK_STATUS(hear(&all.notices[0], 9), DL_MISMATCH);
    tell(&all, 2, DL_PEER_LOST, "early notices", 5);
    CHECK_STATUS(hear(&all.notices[0], 5), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "early notices");
    CHECK_STATUS(dl_notices_check(&all.notices[0], 9), DL_PEER_LOST);
    CHECK_STATUS(dl_notices_watch(&all.notices[0], 1), DL_PEER_LOST);
    papers_fini(&all);
}

/* A text as long as any, in more than one packet. */
CHECK_CASE(a_long_text_comes_whole)
{
    papers all;
    char text[DL_ERROR_TEXT_SIZE];

    papers_init(&all, 2);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    tell(&all, 0, DL_PEER_LOST, text, 1);
    CHECK_STATUS(hear(&all.notices[1], 1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, text);
    papers_fini(&all);
}

/* A caller that has the token and sends something other than a notice; returns its
 * connection. */
static int
call_with(papers *all, dl_bytes bytes)
{
    dl_hello contents = {.group = "g", .caller = 1, .use = DL_FOR_NOTICES};
    const dl_tcp_contact *tcp = &all->traffics.tcp_contacts[0];
    dl_buffer hello = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(connect(fd, &tcp->addresses[0].socket.any, tcp->addresses[0].size) == 0);
    CHECK_OK(dl_hello_put(&hello, &contents, tcp->token, false));
    dl_buffer_put(&hello, bytes);
    CHECK(send(fd, hello.data, hello.size, 0) == (ssize_t)hello.size);
    dl_buffer_fini(&hello);
    return fd;
}

CHECK_CASE(malformed_notices_are_ignored)
{
    papers all;
    uint8_t bytes[DL_HEAD_SIZE];
    dl_head heads[] = {
        {.kind = DL_HEAD_DATA, .id = 1},
        {.kind = DL_HEAD_NOTICE, .id = 1, .tag = 2},
        {.kind = DL_HEAD_NOTICE, .id = 1, .tag = -1},
        {.kind = DL_HEAD_NOTICE, .id = 0, .tag = 1},
        {.kind = DL_HEAD_NOTICE, .id = 1, .tag = 1, .size = DL_ERROR_TEXT_SIZE},
        {.kind = DL_HEAD_NOTICE, .id = 1, .tag = 1, .size = 5},
        {.kind = DL_HEAD_NOTICE, .id = 4, .tag = 1, .total = 1, .length = 3},
        {.kind = DL_HEAD_NOTICE, .id = 4, .tag = 2, .total = 1, .length = 2},
        {.kind = DL_HEAD_NOTICE, .id = 4, .tag = 1, .total = 2, .length = 1},
        {.kind = DL_HEAD_NOTICE, .id = 4, .tag = 1, .total = 1, .length = UINT64_MAX},
    };

    papers_init(&all, 2);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        dl_head_put(bytes, &heads[i]);
        close(call_with(&all, (dl_bytes){bytes, sizeof bytes}));
    }
    close(call_with(&all, (dl_bytes){(const uint8_t *)"no head", 7}));
    /* Callers are served in their order, so this one shows that all were served. */
    tell(&all, 1, DL_CLOSED, "", 3);
    dl_notices_pass_on(&all.notices[0], dl_deadline_after(PATIENCE));
    CHECK_STATUS(hear(&all.notices[0], 3), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "rank 1 (pid 101 on host h) left the group");
    CHECK_OK(dl_notices_check(&all.notices[0], 2));
    papers_fini(&all);
}

/* Senders that stop behind their introduction, in the head or in the text: the others
 * are heard, and they are themselves once they go on. */
CHECK_CASE(a_sender_that_stops_delays_nobody_else)
{
    papers all;
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    dl_error message = {.status = DL_TIMEOUT, .text = "slow notice"};
    size_t parts[] = {0, 5, DL_HEAD_SIZE, DL_HEAD_SIZE + 4};
    int stopped[4];

    papers_init(&all, 3);
    size_t size = dl_failure_notice_put(frame, &message);
    dl_head head = dl_failure_notice_head(&message);
    head.id = 3;
    head.tag = 1;
    dl_head_put(frame, &head);
    for (int i = 0; i < 4; i++) {
        stopped[i] = call_with(&all, (dl_bytes){frame, parts[i]});
    }
    CHECK_OK(dl_notices_check(&all.notices[0], 9));
    tell(&all, 2, DL_PEER_LOST, "fast notice", 7);
    CHECK_STATUS(hear(&all.notices[0], 9), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "fast notice");
    for (int i = 0; i < 4; i++) {
        CHECK_OK(dl_notices_check(&all.notices[0], 6));
        ssize_t rest = (ssize_t)(size - parts[i]);
        CHECK(i < 3 || send(stopped[i], frame + parts[i], (size_t)rest, 0) == rest);
        close(stopped[i]);
    }
    CHECK_STATUS(hear(&all.notices[0], 3), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "slow notice");
    papers_fini(&all);
}

/* Neither a missing listener nor one that does not accept makes the sender wait. */
CHECK_CASE(telling_takes_no_listener)
{
    papers all;
    int64_t start = dl_now();

    papers_init(&all, 3);
    dl_listener_fini(&all.traffics.listeners[1]);
    tell(&all, 0, DL_PEER_LOST, "gone", 1);
    CHECK(dl_now() - start < PATIENCE);
    CHECK_STATUS(hear(&all.notices[2], 1), DL_PEER_LOST);
    papers_fini(&all);
}

/* A listener whose queue of connections is full: the kernel answers no other. */
static dl_address
busy_address(int held[2])
{
    dl_address here = {.size = sizeof here.socket.ip4};

    held[0] = socket(AF_INET, SOCK_STREAM, 0);
    held[1] = socket(AF_INET, SOCK_STREAM, 0);
    here.socket.ip4.sin_family = AF_INET;
    here.socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(held[0], &here.socket.any, here.size) == 0 && listen(held[0], 0) == 0);
    CHECK(getsockname(held[0], &here.socket.any, &here.size) == 0);
    CHECK(connect(held[1], &here.socket.any, here.size) == 0);
    return here;
}

/* More ranks than get a notice at a time, and the first of them do not answer. */
CHECK_CASE(any_number_of_ranks_is_reported)
{
    enum { MANY = 70 };
    static papers all;
    dl_error message = {.status = DL_PEER_LOST, .text = "gone"};
    int held[2];

    papers_init(&all, MANY);
    dl_address busy = busy_address(held);
    for (int rank = 1; rank < MANY / 2; rank++) {
        all.traffics.tcp_contacts[rank].addresses[0] = busy;
    }
    dl_notices_notify(&all.notices[0], &message, 1, dl_deadline_after(DL_SECOND));
    for (int rank = MANY / 2; rank < MANY; rank++) {
        CHECK_STATUS(hear(&all.notices[rank], 1), DL_PEER_LOST);
    }
    close(held[0]);
    close(held[1]);
    papers_fini(&all);
}

enum { CROWD = 300 };

/* A crowd, of which each rank may pass notices on, or only read them. */
typedef struct crowd {
    papers all;
    pthread_t sender;
    dl_deadline deadline;
} crowd;

static void *
run_sender(void *context)
{
    crowd *self = context;
    dl_error message = {.status = DL_PEER_LOST, .text = "gone"};

    dl_notices_notify(&self->all.notices[0], &message, 1, self->deadline);
    return NULL;
}

static int
count_told(papers *all)
{
    int count = 0;

    for (int rank = 1; rank < CROWD; rank++) {
        count += all->traffics.listeners[rank].is_open
                 && dl_notices_check(&all->notices[rank], 1) != DL_OK;
    }
    return count;
}

/* All read the notices, until the sender has sent its own. */
static void
read_until_sent(crowd *self)
{
    while (pthread_tryjoin_np(self->sender, NULL) != 0) {
        (void)count_told(&self->all);
    }
}

static void
crowd_send(crowd *self, int64_t patience)
{
    self->deadline = dl_deadline_after(patience);
    CHECK_OK(dl_thread_start(&self->sender, run_sender, self));
}

/* The ranks that are called promise to pass the notice on, and nobody else has it before
 * they do. */
CHECK_CASE(a_crowd_passes_the_notice_on)
{
    static crowd self;
    int64_t until = dl_now() + PATIENCE;

    papers_init(&self.all, CROWD);
    crowd_send(&self, PATIENCE);
    read_until_sent(&self);
    CHECK_EQUAL(count_told(&self.all), 30);
    while (count_told(&self.all) < CROWD - 1 && dl_now() < until) {
        for (int rank = 1; rank < CROWD; rank++) {
            dl_notices_pass_on(&self.all.notices[rank], dl_deadline_after(PATIENCE));
        }
    }
    CHECK_EQUAL(count_told(&self.all), CROWD - 1);
    CHECK_STATUS(dl_notices_check(&self.all.notices[CROWD - 1], 1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "gone");
    papers_fini(&self.all);
}

/* Only ranks that could still answer are waited for. */
CHECK_CASE(a_crowd_does_not_wait_for_ranks_that_have_ended)
{
    static crowd self;
    int64_t start = dl_now();

    papers_init(&self.all, CROWD);
    dl_listener_fini(&self.all.traffics.listeners[1]);
    crowd_send(&self, 4 * PATIENCE);
    read_until_sent(&self);
    CHECK(dl_now() - start < PATIENCE);
    papers_fini(&self.all);
}

/* Those who would pass it on have ended, do not answer, or do not read. */
CHECK_CASE(a_crowd_is_told_without_those_who_do_not_answer)
{
    static crowd self;
    int held[2], told = 0;

    papers_init(&self.all, CROWD);
    dl_address busy = busy_address(held);
    dl_listener_fini(&self.all.traffics.listeners[1]);
    self.all.traffics.tcp_contacts[6].addresses[0] = busy;
    crowd_send(&self, DL_SECOND);
    CHECK(pthread_join(self.sender, NULL) == 0);
    for (int64_t until = dl_now() + PATIENCE; told < CROWD - 3 && dl_now() < until;) {
        told = count_told(&self.all);
    }
    CHECK_EQUAL(told, CROWD - 3);
    close(held[0]);
    close(held[1]);
    papers_fini(&self.all);
}

static void
ignore(int number)
{
    (void)number;
}

/* Signals of the program, as from a profiler, do not end the sending of notices before its
 * deadline. */
CHECK_CASE(signals_cost_no_notice)
{
    papers all;
    struct sigaction action = {.sa_handler = ignore};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, DL_MILLISECOND}, {0, DL_MILLISECOND}};
    dl_error message = {.status = DL_PEER_LOST, .text = "gone"};
    timer_t timer;
    int held[2];

    papers_init(&all, 2);
    all.traffics.tcp_contacts[1].addresses[0] = busy_address(held);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    int64_t start = dl_now();
    dl_notices_notify(&all.notices[0], &message, 1, dl_deadline_after(DL_SECOND / 4));
    CHECK(dl_now() - start >= DL_SECOND / 4);
    timer_delete(timer);
    close(held[0]);
    close(held[1]);
    papers_fini(&all);
}

static dl_status
look_until_lost(dl_probes *probes, int rank, int name)
{
    int64_t until = dl_now() + PATIENCE;
    dl_status status;

    while ((status = dl_probes_poll(probes, rank, name)) == DL_OK && dl_now() < until) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return status;
}

CHECK_CASE(a_probe_shows_whether_a_process_lives)
{
    test_traffics all;
    dl_probes probes;

    traffics_init(&all, 3);
    dl_probes options = {.rank = 0,
                         .size = 3,
                         .peers = dl_peers_of(all.peers),
                         .tcp_contacts = all.known};
    CHECK_OK(dl_probes_init(&probes, &options));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(dl_probes_poll(&probes, 1, 1));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    dl_listener_fini(&all.listeners[1]);
    dl_listener_fini(&all.listeners[2]);
    /* Looked at before, and never before; in the words of a group of others. */
    CHECK_STATUS(look_until_lost(&probes, 1, 1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid 101 on host h) left the group");
    CHECK_OK(dl_probes_lost(&probes, 1, 1));
    CHECK_STATUS(look_until_lost(&probes, 2, 7), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 7 (pid 102 on host h) exited");
    CHECK_STATUS(look_until_lost(&probes, 1, 1), DL_PEER_LOST);
    CHECK_OK(dl_probes_lost(&probes, 1, 1));
    CHECK_OK(dl_probes_lost(&probes, 2, 7));
    dl_probes_fini(&probes);
    traffics_fini(&all);
}

CHECK_CASE(zeroed_probes_and_notices_watch_no_rank)
{
    dl_probes probes = {0};
    dl_notices notices = {0};

    CHECK_OK(dl_probes_poll(&probes, 1, 1));
    CHECK_OK(dl_notices_check(&notices, 1));
    CHECK_OK(dl_notices_watch(&notices, 1));
    dl_probes_fini(&probes);
    dl_notices_fini(&notices);
}

/* A notice whose status is none comes from another version, or is damaged. */
CHECK_CASE(a_notice_without_a_failure_is_one)
{
    dl_head head = {.kind = DL_HEAD_NOTICE, .root = DL_OK, .size = 2};

    CHECK_STATUS(
        dl_failure_notice_fail(&(dl_peers){0}, 3, &head, (const uint8_t *)"ok"),
        DL_PROTOCOL);
}

/* More ranks than connections: all but the last one's listener are one and the same. */
CHECK_CASE(any_number_of_ranks_is_looked_at)
{
    enum { MANY = 3 * DL_PROBES_OPEN };
    static dl_peer peers[MANY];
    static int ranks[MANY];
    test_traffics all;
    dl_probes probes;

    traffics_init(&all, 3);
    for (int rank = 0; rank < MANY; rank++) {
        peers[rank] = all.peers[1];
        ranks[rank] = rank < MANY - 1 ? 1 : 2;
    }
    dl_probes options = {.rank = 0,
                         .size = MANY,
                         .peers = dl_peers_of(peers),
                         .tcp_contacts = all.known};
    options.tcp_contacts.ranks = ranks;
    CHECK_OK(dl_probes_init(&probes, &options));
    for (int turn = 0; turn < 2; turn++) {
        for (int rank = 1; rank < MANY; rank++) {
            CHECK_OK(dl_probes_poll(&probes, rank, rank));
            CHECK(probes.open <= DL_PROBES_OPEN);
        }
    }
    dl_listener_fini(&all.listeners[2]);
    CHECK_STATUS(look_until_lost(&probes, MANY - 1, MANY - 1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 191 (pid ");
    dl_probes_fini(&probes);
    traffics_fini(&all);
}
