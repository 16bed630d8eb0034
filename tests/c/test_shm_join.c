/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/resource.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "net/socket.h"
#include "fakes/other_ranks.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/shm/join_message.h"
#include "ports.h"
#include "ranks.h"
#include "store/hash_store.h"
#include "store_calls.h"

static dl_store *store;

/* A rank of one case: its endpoint is open. */
typedef struct joiner {
    dl_backend_options options;
    dl_endpoint endpoint;
    dl_membership membership;
} joiner;

/* The join expects those of its host. */
static void
find_processes(joiner *self)
{
    dl_processes processes = dl_endpoint_processes(&self->endpoint);

    for (int rank = 0; rank < self->endpoint.size; rank++) {
        CHECK(dl_processes_find(&processes, rank) != NULL);
    }
}

static void
open_endpoint(joiner *self, int rank, int size)
{
    *self = (joiner){
        .options = {.store = store, .rank = rank, .size = size, .group_name = "g"}};
    CHECK_OK(dl_endpoint_open(&self->endpoint, &self->options,
                              dl_deadline_after(5 * DL_SECOND)));
    find_processes(self);
}

static dl_status
join(joiner *self, int64_t limit)
{
    dl_join work = {.endpoint = &self->endpoint,
                    .options = &self->options,
                    .deadline = dl_deadline_after(limit)};

    return dl_join_run(&work, &self->membership);
}

static void
end(joiner *self)
{
    dl_membership_fini(&self->membership);
    dl_endpoint_fini(&self->endpoint);
}

static void
on_a_store(int size, dl_rank_fn body)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, body, NULL);
    dl_store_unref(store);
}

static void
await_all(int size)
{
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("done"), size,
                              dl_deadline_after(10 * DL_SECOND)));
}

static void
join_and_meet(int rank, int size, void *unused)
{
    joiner self;
    dl_board board;
    dl_op_context op = {.sequence = 1, .deadline = dl_deadline_after(10 * DL_SECOND)};

    dl_peer peers[DL_RANKS_LIMIT];

    (void)unused;
    open_endpoint(&self, rank, size);
    CHECK_OK(join(&self, 10 * DL_SECOND));
    for (int peer = 0; peer < size; peer++) {
        peers[peer] = dl_peers_find(&self.endpoint.peers, peer);
    }
    dl_endpoint_close_local(&self.endpoint);
    dl_board_options options = {.rank = rank,
                                .size = size,
                                .group_name = "g",
                                .peers = peers,
                                .processes = self.endpoint.processes};
    CHECK_OK(dl_board_init(&board, &options, self.membership.arena.home.memory,
                           self.membership.arena.home.size));
    dl_board_begin(&board, &op)[0] = (uint8_t)rank;
    CHECK_OK(dl_board_arrive(&board));
    for (int peer = 0; peer < size; peer++) {
        CHECK_EQUAL(dl_board_payload(&board, peer)[0], peer);
        CHECK(!dl_process_has_ended(self.endpoint.processes[peer]));
    }
    op.sequence = 2;
    dl_board_begin(&board, &op);
    CHECK_OK(dl_board_arrive(&board));
    dl_board_fini(&board);
    end(&self);
}

CHECK_CASE(all_share_memory)
{
    for (int size = 2; size <= 9; size++) {
        on_a_store(size, join_and_meet);
    }
}

static const dl_peer other = {.pid = 77, .host = "here"};

/* A rank of this host that has a socket and never accepts a call. */
static void
publish_silent(int rank)
{
    dl_contact contact = {.process.bytes = {1, (uint8_t)rank}};

    dl_host_own(&contact.host);
    fake_open_socket(&contact);
    fake_publish_record(store, rank, &other, &contact);
    fake_publish_reach(store, rank, &contact);
}

/* A rank of this host that has ended, and so has its listener. */
static void
publish_ended(int rank)
{
    dl_contact contact = {
        .socket = "distlite-nobody",
        .process.bytes = {1, (uint8_t)rank},
        .tcp = {.addresses = {{.socket.ip4 = {.sin_family = AF_INET,
                                              .sin_addr.s_addr = 0x0100007f,
                                              .sin_port = htons(reserve_port())},
                               .size = sizeof(struct sockaddr_in)}},
                .count = 1},
    };

    dl_host_own(&contact.host);
    fake_publish_record(store, rank, &other, &contact);
}

/* Ranks 0, 1 and 3 join in shared memory; rank 2 cannot be reached in it. */
static void
divide_off_rank_2(int rank, int size, void *unused)
{
    joiner self;

    (void)size;
    (void)unused;
    open_endpoint(&self, rank == 2 ? 3 : rank, 4);
    CHECK_EQUAL(self.endpoint.layout.host_count, 2);
    CHECK_EQUAL(self.endpoint.layout.host_of[1], 0);
    CHECK_EQUAL(self.endpoint.layout.host_of[2], 1);
    CHECK_EQUAL(self.endpoint.layout.host_of[3], 0);
    CHECK_CONTAINS(self.endpoint.apart, "rank 0 to rank 2: no process in this network "
                                        "namespace listens on the Unix socket @");
    end(&self);
}

CHECK_CASE(a_rank_that_is_not_reached_is_another_host)
{
    CHECK_OK(dl_hash_store_new(&store));
    publish_ended(2);
    dl_run_ranks(3, divide_off_rank_2, NULL);
    dl_store_unref(store);
}

CHECK_CASE(a_leader_that_ended_is_named)
{
    joiner self = {.options = {.rank = 1, .size = 2, .group_name = "g"}};

    CHECK_OK(dl_hash_store_new(&store));
    self.options.store = store;
    publish_ended(0);
    CHECK_STATUS(dl_endpoint_open(&self.endpoint, &self.options, dl_deadline_after(-1)),
                 DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 0 (pid 77 on host here) exited or was "
                                          "killed: no process listens at 127.0.0.1:");
    dl_store_unref(store);
}

static void
fail_ended(const dl_endpoint *endpoint, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(endpoint, rank, peer);
    (void)dl_fail(DL_PEER_LOST, "%s was killed", peer);
}

/* Rank 1 comes after rank 0 has left that it waits for it; at the end that is deleted. */
static void
with_a_slow_member(int rank, int size, void *unused)
{
    const dl_bytes late = DL_LITERAL("cpu/0/late");
    bool exists = true;
    joiner self;

    (void)unused;
    open_endpoint(&self, rank, size);
    if (rank == 1) {
        CHECK_OK(dl_store_wait(store, &late, 1, dl_deadline_after(10 * DL_SECOND)));
    }
    CHECK_OK(join(&self, 4 * DL_SECOND));
    await_all(size);
    CHECK_OK(dl_store_check(store, &late, 1, &exists, dl_deadline_after(0)));
    CHECK(!exists);
    end(&self);
}

CHECK_CASE(what_a_rank_has_left_while_it_waited_is_deleted)
{
    on_a_store(2, with_a_slow_member);
}

/* A rank leaves in the middle of its time whom it waits for, and then goes on. */
CHECK_CASE(a_rank_that_is_killed_after_it_has_waited_has_not_timed_out)
{
    const dl_deadline deadline = dl_deadline_after(2 * DL_SECOND);
    int64_t left = 0;
    joiner self;

    CHECK_OK(dl_hash_store_new(&store));
    open_endpoint(&self, 0, 1);
    (void)dl_fail(DL_TIMEOUT, "timed out after 2000ms: waiting for rank 1 (pid 5)");
    CHECK_OK(dl_sleep_until(dl_join_fault_next(deadline, left)));
    dl_join_fault_note(store, 0, deadline, &left);
    CHECK(left > 0);
    fail_ended(&self.endpoint, 0);
    CHECK_OK(dl_join_fault_check_lost(store));
    CHECK_CONTAINS(dl_last_error()->text, " was killed");
    /* For a rank that waits for it, that is how it waits. */
    char peer[DL_PEER_TEXT_SIZE];
    dl_endpoint_describe(&self.endpoint, 0, peer);
    (void)dl_fail(DL_TIMEOUT, "timed out after 2000ms: waiting for %s", peer);
    CHECK_STATUS(dl_join_fault_check_late(store), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 0 (pid ");
    CHECK_CONTAINS(
        dl_last_error()->text,
        " has not joined yet, with a timeout of 2000ms: waiting for rank 1 ");
    /* Once it has timed out, that is why it ends. */
    (void)dl_fail(DL_TIMEOUT, "timed out after 2000ms: waiting for rank 1 (pid 5)");
    dl_join_fault_publish(store, 0);
    fail_ended(&self.endpoint, 0);
    CHECK_STATUS(dl_join_fault_check_lost(store), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "could not join: timed out after 2000ms");
    end(&self);
    dl_store_unref(store);
}

/* Rank 1 opens its endpoint and then ends, or keeps silent until the others are done. */
static void
with_a_silent_member(int rank, int size, void *context)
{
    const int64_t *patience = context;
    joiner self;
    int64_t start = dl_now();

    open_endpoint(&self, rank, size);
    if (rank == 1) {
        if (*patience < 0) {
            CHECK_OK(dl_sleep_until(dl_deadline_after(100 * DL_MILLISECOND)));
        } else {
            await_all(size);
        }
        end(&self);
        return;
    }
    dl_status status = join(&self, *patience);
    if (*patience < 0) {
        CHECK_EQUAL(status, DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "exited, was killed or gave up");
    } else {
        /* The others are told by their leader, or read whom that waits for. */
        CHECK(status == DL_TIMEOUT || (rank != 0 && status == DL_PEER_LOST));
        CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 1 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, ", which does not answer");
        await_all(size);
    }
    CHECK(dl_now() - start < 2 * DL_SECOND + CHECK_SLACK);
    end(&self);
}

CHECK_CASE(a_member_that_ends_is_lost)
{
    int64_t patience = -1;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(4, with_a_silent_member, &patience);
    dl_store_unref(store);
}

CHECK_CASE(a_silent_member_is_a_timeout)
{
    int64_t patience = 200 * DL_MILLISECOND;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(4, with_a_silent_member, &patience);
    dl_store_unref(store);
}

static void
with_a_leader_that_ends(int rank, int size, void *unused)
{
    joiner self;

    (void)unused;
    open_endpoint(&self, rank, size);
    if (rank == 0) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(50 * DL_MILLISECOND)));
    } else {
        CHECK_STATUS(join(&self, -1), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 0 (pid ");
    }
    end(&self);
}

CHECK_CASE(a_leader_that_ends_is_lost)
{
    on_a_store(3, with_a_leader_that_ends);
}

CHECK_CASE(a_silent_leader_is_a_timeout)
{
    joiner leader;
    joiner self;

    CHECK_OK(dl_hash_store_new(&store));
    publish_silent(1);
    open_endpoint(&leader, 0, 2);
    open_endpoint(&self, 1, 2);
    /* Another program may call, too. */
    char socket[DL_LOCAL_NAME_SIZE];
    const dl_parcel call = {.bytes = {.data = (uint8_t *)"call", .size = 4}};
    int fd;
    dl_contacts_socket(&self.endpoint.contacts, 1, socket);
    CHECK_OK(dl_local_call(socket, self.endpoint.token, &call,
                           dl_deadline_after(DL_SECOND), &fd));
    CHECK_STATUS(join(&self, 60 * DL_MILLISECOND), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "timed out after 60ms: waiting for rank 0 (pid ");
    close(fd);
    end(&self);
    end(&leader);
    dl_store_unref(store);
}

static void
send_parcel(int fd, dl_parcel *parcel)
{
    CHECK_OK(dl_local_send(fd, parcel, dl_deadline_after(DL_SECOND)));
    dl_parcel_fini(parcel);
}

/* Frees the parcel. */
static void
call_rank(const dl_endpoint *endpoint, int rank, dl_parcel *parcel, int *fd)
{
    char socket[DL_LOCAL_NAME_SIZE];

    dl_contacts_socket(&endpoint->contacts, rank, socket);
    CHECK_OK(dl_local_call(socket, endpoint->contacts.entries[rank].token, parcel,
                           dl_deadline_after(DL_SECOND), fd));
    dl_parcel_fini(parcel);
}

/* Calls rank 1; without an invitation, says something else. */
static int
call(const joiner *self, const dl_invite *invite)
{
    dl_parcel parcel = {0};
    int fd;

    if (invite != NULL) {
        dl_put_invite(&parcel.bytes, invite);
    } else {
        dl_buffer_put(&parcel.bytes, DL_LITERAL("hello"));
    }
    call_rank(&self->endpoint, 1, &parcel, &fd);
    return fd;
}

/* Strangers name another group, guess the key, have ended, or send nonsense; they keep
 * their ends open.  Rank 0 comes last, and reports that it cannot lead. */
CHECK_CASE(connections_without_proof_are_closed)
{
    dl_invite invite = {.group_name = DL_LITERAL("other"), .rank = 1};
    dl_parcel parcel = {0};
    joiner self;
    int fds[5];

    CHECK_OK(dl_hash_store_new(&store));
    publish_silent(0);
    open_endpoint(&self, 1, 2);
    memcpy(invite.token, self.endpoint.contacts.entries[1].token, DL_TOKEN_SIZE);
    fds[0] = call(&self, &invite);
    fds[1] = call(&self, &(dl_invite){.group_name = DL_LITERAL("g"), .rank = 1});
    fds[2] = call(&self, NULL);
    fds[3] = call(&self, NULL);
    dl_socket_close(call(&self, NULL));
    invite.group_name = DL_LITERAL("g");
    fds[4] = call(&self, &invite);
    dl_put_refusal(&parcel.bytes,
                   &(dl_refusal){.status = DL_CANCELLED, .text = DL_LITERAL("enough")});
    send_parcel(fds[4], &parcel);
    int64_t began = dl_now();
    CHECK_STATUS(join(&self, -1), DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, "enough");
    CHECK(dl_now() - began < CHECK_SLACK);
    for (int i = 0; i < 5; i++) {
        if (i < 4) {
            CHECK_STATUS(dl_local_receive(fds[i], &parcel, dl_deadline_after(0)),
                         DL_CLOSED);
        }
        dl_socket_close(fds[i]);
    }
    end(&self);
    dl_store_unref(store);
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

static void
with_an_interrupted_leader(int rank, int size, void *context)
{
    atomic_int *opened = context;
    joiner self;

    open_endpoint(&self, rank, 3);
    /* The interrupt reaches every thread: none of them may get it before that. */
    atomic_fetch_add(opened, 1);
    while (atomic_load(opened) < size) {
        usleep(1000);
    }
    if (rank == 0) {
        dl_interrupt_install(interrupt);
        CHECK_STATUS(join(&self, -1), DL_INTERRUPTED);
        dl_interrupt_install(NULL);
    } else {
        dl_status status = join(&self, -1);
        CHECK(status == DL_CANCELLED || status == DL_INTERRUPTED);
    }
    end(&self);
}

CHECK_CASE(an_interrupt_ends_the_joining)
{
    atomic_int opened = 0;
    joiner silent;

    CHECK_OK(dl_hash_store_new(&store));
    for (int rank = 0; rank < 2; rank++) {
        publish_silent(rank);
    }
    open_endpoint(&silent, 2, 3);
    CHECK_OK(dl_store_delete_key(store, DL_LITERAL("cpu/0"), &(bool){0},
                                 dl_deadline_after(0)));
    CHECK_OK(dl_store_delete_key(store, DL_LITERAL("cpu/1"), &(bool){0},
                                 dl_deadline_after(0)));
    dl_run_ranks(2, with_an_interrupted_leader, &opened);
    end(&silent);
    dl_store_unref(store);
}

/* Rank 3's lifeline is cut; the others' are not, however long one looks. */
static bool
has_ended_soon(const dl_process *process)
{
    int64_t until = dl_now() + 300 * DL_MILLISECOND;

    while (!dl_process_has_ended(process) && dl_now() < until) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return dl_process_has_ended(process);
}

/* The memory and the descriptors of many ranks come in several messages. */
CHECK_CASE(a_welcome_in_parts_is_put_together)
{
    joiner leader;
    joiner self;
    dl_parcel parcel = {0};
    dl_arena arena;
    int memory, fd, ends[2], others[2];

    CHECK(pipe(ends) == 0 && pipe(others) == 0);
    CHECK_OK(dl_hash_store_new(&store));
    publish_silent(1);
    publish_silent(2);
    publish_silent(3);
    open_endpoint(&leader, 0, 4);
    open_endpoint(&self, 2, 4);
    dl_join work = {.endpoint = &self.endpoint,
                    .options = &self.options,
                    .deadline = dl_deadline_after(5 * DL_SECOND)};
    CHECK_OK(dl_arena_create(&arena, 4, false));
    memory = arena.file;
    /* All messages of the leader are written before the member reads any of them. */
    dl_invite invite = {.group_name = DL_LITERAL("g"), .rank = 2};
    memcpy(invite.token, self.endpoint.contacts.entries[2].token, DL_TOKEN_SIZE);
    dl_put_invite(&parcel.bytes, &invite);
    call_rank(&self.endpoint, 2, &parcel, &fd);
    dl_put_welcome(&parcel.bytes,
                   &(dl_welcome){.memory_size = arena.home.size, .count = 1});
    parcel.fd_count = 3;
    parcel.fds[0] = memory;
    parcel.fds[1] = parcel.fds[2] = others[0];
    send_parcel(fd, &parcel);
    dl_put_welcome(&parcel.bytes, &(dl_welcome){.first = 1, .count = 3});
    parcel.fd_count = 6;
    for (int i = 0; i < 6; i++) {
        parcel.fds[i] = i < 4 ? others[0] : ends[0];
    }
    send_parcel(fd, &parcel);
    parcel.fd_count = 0;
    dl_put_refusal(&parcel.bytes, &(dl_refusal){.status = DL_OK});
    send_parcel(fd, &parcel);
    CHECK_OK(dl_join_run(&work, &self.membership));
    CHECK_EQUAL(self.membership.arena.home.size, arena.home.size);
    close(ends[1]);
    for (int rank = 0; rank < 4; rank++) {
        CHECK_EQUAL(has_ended_soon(self.endpoint.processes[rank]), rank == 3);
    }
    dl_socket_close(fd);
    dl_arena_fini(&arena);
    end(&self);
    end(&leader);
    dl_store_unref(store);
}

/* Every rank gets an answer, and nothing stays open, however few may be opened. */
static void
join_with_few_descriptors(int rank, int size, void *context)
{
    atomic_int *failures = context;
    joiner self = {
        .options = {.store = store, .rank = rank, .size = size, .group_name = "g"}};
    dl_deadline deadline = dl_deadline_after(300 * DL_MILLISECOND);
    dl_status status = dl_endpoint_open(&self.endpoint, &self.options, deadline);

    if (status == DL_OK) {
        find_processes(&self);
        dl_join work = {
            .endpoint = &self.endpoint, .options = &self.options, .deadline = deadline};
        status = dl_join_run(&work, &self.membership);
    }
    atomic_fetch_add(failures, status != DL_OK);
    end(&self);
}

CHECK_CASE(too_few_descriptors_are_an_error_on_every_rank)
{
    struct rlimit limit;
    dl_process_own own;

    /* These the process keeps. */
    CHECK_OK(dl_process_own_get(&own));
    int next = dup(0);
    int room = 1;
    atomic_int failures;

    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    do {
        CHECK_OK(dl_hash_store_new(&store));
        limit.rlim_cur = (rlim_t)(next + room);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        atomic_store(&failures, 0);
        dl_run_ranks(3, join_with_few_descriptors, &failures);
        int free_one = dup(0);
        CHECK_EQUAL(free_one, next);
        close(free_one);
        dl_store_unref(store);
        room += 3;
    } while (atomic_load(&failures) > 0 && room < 100);
    CHECK(room > 10 && room < 100);
}
