/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/resource.h>

#include "base/thread.h"
#include "fakes/other_ranks.h"
#include "net/socket.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/invite.h"
#include "pg/cpu/join_fault.h"
#include "ranks.h"
#include "store/hash_store.h"
#include "store_calls.h"

static dl_store *store;

static dl_backend_options
options_of(int rank, int size)
{
    return (dl_backend_options){
        .store = store, .rank = rank, .size = size, .group_name = "g"};
}

static void
open_one(int rank, int size, void *unused)
{
    dl_backend_options options = options_of(rank, size);
    dl_endpoint endpoint;
    char socket[DL_LOCAL_NAME_SIZE];

    (void)unused;
    CHECK_OK(dl_endpoint_open(&endpoint, &options, dl_deadline_after(5 * DL_SECOND)));
    for (int peer = 0; peer < size; peer++) {
        dl_peer found = dl_peers_find(&endpoint.peers, peer);
        CHECK_EQUAL(found.pid, getpid());
        CHECK(found.host[0] != '\0');
        dl_contacts_socket(&endpoint.contacts, peer, socket);
        CHECK_OK(dl_local_check(socket));
        CHECK(peer == rank
              || memcmp(endpoint.contacts.entries[peer].token, endpoint.token,
                        DL_TOKEN_SIZE)
                     != 0);
    }
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("read"), size,
                              dl_deadline_after(5 * DL_SECOND)));
    dl_endpoint_clear(&endpoint, store, dl_deadline_after(5 * DL_SECOND));
    dl_endpoint_fini(&endpoint);
    dl_endpoint_fini(&endpoint);
}

CHECK_CASE(all_find_all_and_leave_nothing)
{
    bool exists = true;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(4, open_one, NULL);
    CHECK_OK(
        dl_store_check(store, &DL_LITERAL("cpu/2"), 1, &exists, dl_deadline_after(0)));
    CHECK(!exists);
    dl_store_unref(store);
}

/* Too many to read all records from the store. */
CHECK_CASE(many_find_all_over_links)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(20, open_one, NULL);
    dl_store_unref(store);
}

/* The lowest rank has the table's file, and the others have mapped it. */
static void
share_table(int rank, int size, void *unused)
{
    dl_backend_options options = options_of(rank, size);
    dl_endpoint endpoint;

    (void)unused;
    CHECK_OK(dl_endpoint_open(&endpoint, &options, dl_deadline_after(5 * DL_SECOND)));
    CHECK(endpoint.contacts.shared.memory != NULL);
    CHECK_EQUAL(endpoint.contacts.table.size, 0);
    CHECK_EQUAL(endpoint.table >= 0, rank == 0);
    CHECK_EQUAL(endpoint.invited >= 0, rank > 0);
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("read"), size,
                              dl_deadline_after(5 * DL_SECOND)));
    dl_endpoint_fini(&endpoint);
}

CHECK_CASE(the_ranks_of_a_host_share_one_table)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(12, share_table, NULL);
    dl_store_unref(store);
}

/* Ranks that lose others are not told of anything else; and none keeps memory that it was
 * about to send, which the address sanitizer finds at the end. */
static void
open_or_fail(int rank, int size, void *unused)
{
    dl_backend_options options = options_of(rank, size);
    dl_endpoint endpoint;
    dl_status status =
        dl_endpoint_open(&endpoint, &options, dl_deadline_after(30 * DL_SECOND));

    (void)unused;
    CHECK(status == DL_OK || status == DL_NO_MEMORY || status == DL_PEER_LOST);
    if (status == DL_OK) {
        dl_endpoint_fini(&endpoint);
    }
}

CHECK_CASE(a_gather_that_breaks_anywhere_leaves_no_memory)
{
    long number = 0;

    do {
        number += 17;
        CHECK_OK(dl_hash_store_new(&store));
        dl_check_fail_allocation_at(number);
        dl_run_ranks(12, open_or_fail, NULL);
        dl_store_unref(store);
    } while (dl_check_allocation_failed());
    CHECK(number > 200);
}

CHECK_CASE(a_table_with_another_process_of_this_rank_is_refused)
{
    dl_endpoint endpoint = {.rank = 1, .size = 2, .token = {1}};
    dl_contact contact = {.socket = ""};
    dl_peer peer = {.pid = 7, .host = "h"};

    CHECK_OK(dl_contacts_init(&endpoint.contacts, 1, 2));
    endpoint.peers =
        (dl_peers){.find = dl_contacts_peer, .context = &endpoint.contacts};
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(dl_endpoint_keep(&endpoint, rank, &peer, &contact));
    }
    CHECK_OK(dl_contacts_make_table(&endpoint.contacts));
    CHECK_STATUS(dl_endpoint_check_own(&endpoint), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 1 (pid 7 on host h) was started a second time");
    dl_contacts_fini(&endpoint.contacts);
}

CHECK_CASE(a_rank_that_is_in_two_lists_differently_is_named)
{
    enum { SIZE = 40 };
    static dl_contact_entry entries[2][SIZE];
    dl_peer peers[SIZE] = {0};
    dl_endpoint ends[2];

    for (int i = 0; i < 2; i++) {
        ends[i] = (dl_endpoint){.size = SIZE,
                                .peers = dl_peers_of(peers),
                                .contacts = {.size = SIZE, .entries = entries[i]}};
        for (int rank = 0; rank < SIZE; rank++) {
            peers[rank] = (dl_peer){.pid = 100 + rank, .host = "h"};
            memset(entries[i][rank].token, rank / 2, DL_TOKEN_SIZE);
        }
    }
    for (int rank = 0; rank < SIZE; rank++) {
        char text[64];
        dl_records_digest digest = dl_contacts_digest(&ends[1].contacts);
        CHECK_OK(dl_endpoint_compare(&ends[0], &digest));
        entries[1][rank].token[rank % DL_TOKEN_SIZE] ^= 1;
        digest = dl_contacts_digest(&ends[1].contacts);
        CHECK_STATUS(dl_endpoint_compare(&ends[0], &digest), DL_MISMATCH);
        snprintf(text, sizeof text, "rank %d (pid %d on host h) was", rank, 100 + rank);
        CHECK_CONTAINS(dl_last_error()->text, text);
        entries[1][(rank + DL_DIGEST_PARTS) % SIZE].token[0] ^= 1;
        digest = dl_contacts_digest(&ends[1].contacts);
        CHECK_STATUS(dl_endpoint_compare(&ends[0], &digest), DL_MISMATCH);
        CHECK_CONTAINS(dl_last_error()->text, "several ranks were started");
        int next = (rank + 1) % SIZE;
        entries[1][next].token[0] ^= 1;
        digest = dl_contacts_digest(&ends[1].contacts);
        CHECK_STATUS(dl_endpoint_compare(&ends[0], &digest), DL_MISMATCH);
        snprintf(text, sizeof text, "rank %d (pid %d on host h) was", next, 100 + next);
        CHECK_CONTAINS(dl_last_error()->text, text);
        memcpy(entries[1], entries[0], sizeof entries[0]);
    }
}

CHECK_CASE(missing_ranks_are_named)
{
    dl_backend_options options = options_of(1, 4);
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    options.store = store;
    CHECK_STATUS(
        dl_endpoint_open(&endpoint, &options, dl_deadline_after(60 * DL_MILLISECOND)),
        DL_TIMEOUT);
    CHECK_TEXT(
        dl_last_error()->text,
        "timed out after 60ms: waiting for ranks 0, 2, 3, which have not joined");
    options.size = 40;
    CHECK_STATUS(dl_endpoint_open(&endpoint, &options, dl_deadline_after(0)),
                 DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "ranks 0, 2, 3, ");
    CHECK_CONTAINS(dl_last_error()->text, ", 16 and 23 more, which have not joined");
    dl_store_unref(store);
}

static const dl_peer some_peer = {.pid = -5, .host = "a.host"};
static const dl_contact some_contact = {
    .socket = "distlite-x",
    .host = {.stack = "boot/1", .hint = "left"},
    .tcp = {.addresses = {{.socket.ip4 = {.sin_family = AF_INET,
                                          .sin_port = 0x3412,
                                          .sin_addr.s_addr = 0x0100007f},
                           .size = sizeof(struct sockaddr_in)},
                          {.socket.ip6 = {.sin6_family = AF_INET6,
                                          .sin6_port = 0x3512,
                                          .sin6_addr.s6_addr = {0xfd, [15] = 1}},
                           .size = sizeof(struct sockaddr_in6)}},
            .count = 2,
            .life_port = 4711,
            .token = {1, 2, 3}},
    .process.bytes = {4, 5, 6},
    .problem = "none",
    .is_refused = true,
};

CHECK_CASE(records_come_back)
{
    dl_buffer record = {0};
    dl_peer peer;
    dl_contact contact;

    dl_endpoint_put(&record, &some_peer, &some_contact);
    CHECK_OK(dl_buffer_check(&record));
    CHECK_BYTES(((dl_bytes){record.data, 8}), "dlcpu\0\0\11");
    CHECK_OK(dl_endpoint_take(dl_buffer_bytes(&record), &peer, &contact));
    CHECK_EQUAL(peer.pid, -5);
    CHECK_TEXT(peer.host, "a.host");
    CHECK_TEXT(contact.socket, "distlite-x");
    CHECK(memcmp(contact.tcp.token, some_contact.tcp.token, DL_TOKEN_SIZE) == 0);
    CHECK_EQUAL(contact.tcp.count, 2);
    CHECK_EQUAL(contact.tcp.life_port, 4711);
    for (int i = 0; i < 2; i++) {
        CHECK(dl_address_equal(&contact.tcp.addresses[i],
                               &some_contact.tcp.addresses[i]));
    }
    CHECK(contact.is_refused);
    CHECK(memcmp(&contact.process, &some_contact.process, DL_PROCESS_ID_SIZE) == 0);
    CHECK_TEXT(contact.host.stack, "boot/1");
    CHECK_TEXT(contact.host.hint, "left");
    CHECK_TEXT(contact.problem, "none");
    dl_buffer_fini(&record);
}

CHECK_CASE(damaged_records_are_refused)
{
    dl_buffer record = {0};
    dl_peer peer;
    dl_contact contact;

    dl_endpoint_put(&record, &some_peer, &some_contact);
    for (size_t size = 0; size < record.size; size++) {
        dl_bytes part = {record.data, size};
        CHECK_STATUS(dl_endpoint_take(part, &peer, &contact), DL_PROTOCOL);
    }
    for (size_t i = 0; i < record.size; i++) {
        record.data[i] ^= 0xff; /* lengths become absurd, the rest odd */
        (void)dl_endpoint_take(dl_buffer_bytes(&record), &peer, &contact);
        record.data[i] ^= 0xff;
    }
    record.data[7] = 2;
    CHECK_STATUS(dl_endpoint_take(dl_buffer_bytes(&record), &peer, &contact),
                 DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "another version of distlite");
    dl_buffer_fini(&record);
}

CHECK_CASE(the_rank_with_a_bad_record_is_named)
{
    dl_backend_options options;
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    options = options_of(0, 2);
    CHECK_OK(dl_store_set(store, DL_LITERAL("cpu/1"), DL_LITERAL("another program's"),
                          dl_deadline_after(0)));
    CHECK_STATUS(dl_endpoint_open(&endpoint, &options, dl_deadline_after(0)),
                 DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1: its record");
    dl_store_unref(store);
}

/* Rank 1 fails after a while, and rank 2 never comes. */
static void
miss_one_of_two(int rank, int size, void *unused)
{
    dl_backend_options options = options_of(rank, size + 1);
    dl_endpoint endpoint;
    int64_t start = dl_now();

    (void)unused;
    if (rank == 1) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(100 * DL_MILLISECOND)));
        (void)dl_fail_no_memory();
        dl_join_fault_publish(store, rank);
        return;
    }
    CHECK_STATUS(dl_endpoint_open(&endpoint, &options, dl_deadline_after(-1)),
                 DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
    CHECK_CONTAINS(dl_last_error()->text, "could not join: out of memory");
    CHECK(dl_now() - start < 2 * DL_SECOND + CHECK_SLACK);
}

CHECK_CASE(a_fault_ends_a_wait_for_another_rank_as_well)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, miss_one_of_two, NULL);
    dl_store_unref(store);
}

/* Rank 1 has failed before, in a join over the same keys, and tries again. */
static void
try_again(int rank, int size, void *unused)
{
    if (rank == 1) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(20 * DL_MILLISECOND)));
    }
    open_one(rank, size, unused);
}

CHECK_CASE(a_fault_of_an_earlier_join_is_outdated_when_its_rank_comes_again)
{
    CHECK_OK(dl_hash_store_new(&store));
    (void)dl_fail_no_memory();
    dl_join_fault_publish(store, 1);
    dl_run_ranks(2, try_again, NULL);
    dl_store_unref(store);
}

/* The record of a rank that is not this process; `ip4` 0: without an address. */
static void
publish_other(int rank, const char *stack, const char *hint, uint32_t ip4)
{
    dl_peer peer = {.pid = 70 + rank, .host = "other"};
    dl_contact contact = some_contact;

    fake_open_socket(&contact);
    dl_host_own(&contact.host);
    if (stack != NULL) {
        strcpy(contact.host.stack, stack);
    }
    snprintf(contact.host.hint, sizeof contact.host.hint, "%s/%u", hint,
             (unsigned)geteuid());
    contact.is_refused = false;
    contact.tcp.count = 1;
    contact.tcp.addresses[0].socket.ip4.sin_addr.s_addr = htonl(ip4);
    if (ip4 == 0) {
        contact.tcp.count = 0;
        strcpy(contact.problem, "eth7 is no interface");
    }
    fake_publish_record(store, rank, &peer, &contact);
    fake_publish_reach(store, rank, &contact);
}

static dl_status
open_with_others(dl_endpoint *endpoint, int rank, int size)
{
    dl_backend_options options = options_of(rank, size);

    return dl_endpoint_open(endpoint, &options, dl_deadline_after(0));
}

CHECK_CASE(ranks_are_grouped_by_host)
{
    dl_endpoint endpoint;
    dl_endpoint local;
    char text[DL_PEER_TEXT_SIZE];

    CHECK_OK(dl_hash_store_new(&store));
    unsetenv(DL_HOST_HINT_VARIABLE);
    publish_other(0, NULL, "left", INADDR_LOOPBACK);
    publish_other(2, NULL, "", INADDR_LOOPBACK);
    publish_other(3, NULL, "right", INADDR_LOOPBACK);
    publish_other(4, NULL, "left", INADDR_LOOPBACK);
    CHECK_OK(open_with_others(&endpoint, 1, 5));
    CHECK_EQUAL(endpoint.layout.host_count, 3);
    CHECK_EQUAL(endpoint.layout.host_of[4], 0);
    CHECK_EQUAL(endpoint.layout.host_of[2], 1);
    CHECK_EQUAL(endpoint.layout.host_of[3], 2);
    CHECK(endpoint.calls.is_open);
    CHECK_OK(dl_endpoint_open_local(&endpoint, &local));
    CHECK_EQUAL(local.size, 2);
    CHECK_EQUAL(local.rank, 0);
    dl_endpoint_describe(&local, 1, text);
    CHECK_TEXT(text, "rank 2 (pid 72 on host other)");
    dl_endpoint_drop_local(&local);
    dl_endpoint_fini(&endpoint);
    dl_store_unref(store);
}

/* Users share no memory, so a rank of another one is reached by TCP. */
CHECK_CASE(ranks_of_another_user_are_another_host)
{
    dl_host own;
    char user[16];

    unsetenv(DL_HOST_HINT_VARIABLE);
    dl_host_own(&own);
    snprintf(user, sizeof user, "/%u", (unsigned)geteuid());
    CHECK_TEXT(own.hint, user);
    setenv(DL_HOST_HINT_VARIABLE, "left", 1);
    dl_host_own(&own);
    CHECK_CONTAINS(own.hint, "left/");
}

CHECK_CASE(one_host_needs_no_address)
{
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    unsetenv(DL_HOST_HINT_VARIABLE);
    publish_other(0, NULL, "", 0);
    CHECK_OK(open_with_others(&endpoint, 1, 2));
    CHECK(!endpoint.calls.is_open);
    dl_endpoint_fini(&endpoint);
    dl_store_unref(store);
}

CHECK_CASE(settings_that_cannot_be_had_are_an_error_on_one_host_too)
{
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    unsetenv(DL_HOST_HINT_VARIABLE);
    setenv("GLOO_SOCKET_IFNAME", "eth99", 1);
    CHECK_STATUS(dl_endpoint_check_settings(), DL_NETWORK);
    publish_other(0, NULL, "", 0);
    CHECK_STATUS(open_with_others(&endpoint, 1, 2), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
    CHECK_CONTAINS(dl_last_error()->text, "GLOO_SOCKET_IFNAME=eth99: no interface");
    setenv("GLOO_SOCKET_IFNAME", "", 1);
    CHECK_OK(dl_endpoint_check_settings());
    setenv("GLOO_DEVICE_TRANSPORT", "UV", 1);
    CHECK_STATUS(dl_endpoint_check_settings(), DL_NETWORK);
    CHECK_STATUS(open_with_others(&endpoint, 1, 2), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "GLOO_DEVICE_TRANSPORT=UV is not supported");
    setenv("GLOO_DEVICE_TRANSPORT", "tcp", 1);
    CHECK_STATUS(dl_endpoint_check_settings(), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text,
                   "GLOO_DEVICE_TRANSPORT=tcp is not a transport");
    setenv("GLOO_DEVICE_TRANSPORT", "TCP", 1);
    CHECK_OK(dl_endpoint_check_settings());
    CHECK_OK(open_with_others(&endpoint, 1, 2));
    dl_endpoint_fini(&endpoint);
    dl_store_unref(store);
}

CHECK_CASE(loopback_and_missing_addresses_are_reported_between_hosts)
{
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    publish_other(0, "boot/2", "", INADDR_LOOPBACK);
    CHECK_STATUS(open_with_others(&endpoint, 1, 2), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "the ranks are on different hosts");
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 0 (pid 70 on host other) at 127.0.0.1:4660\n");
    publish_other(0, "boot/2", "", 0);
    CHECK_STATUS(open_with_others(&endpoint, 1, 2), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 0 (pid 70 on host other) has no address for ranks on other "
                   "hosts: eth7 is no interface");
    dl_store_unref(store);
}

/* This rank has no neighbour that it can call, so it reads all records from the store. */
CHECK_CASE(many_without_links_find_what_few_find)
{
    dl_endpoint endpoint;

    CHECK_OK(dl_hash_store_new(&store));
    unsetenv(DL_HOST_HINT_VARIABLE);
    for (int rank = 0; rank < 12; rank++) {
        if (rank != 1) {
            publish_other(rank, NULL, "", 0);
        }
    }
    CHECK_OK(open_with_others(&endpoint, 1, 12));
    CHECK_EQUAL(endpoint.layout.host_count, 1);
    CHECK_EQUAL(dl_peers_find(&endpoint.peers, 11).pid, 81);
    dl_endpoint_fini(&endpoint);
    for (int rank = 2; rank < 12; rank++) {
        publish_other(rank, "boot/2", "", INADDR_LOOPBACK);
    }
    CHECK_STATUS(open_with_others(&endpoint, 1, 12), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 0 (pid 70 on host other) has no address");
    publish_other(0, "boot/2", "", INADDR_LOOPBACK);
    CHECK_STATUS(open_with_others(&endpoint, 1, 12), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "the ranks are on different hosts");
    dl_store_unref(store);
}

/* This rank has made the table when it waits for room in the other one's socket. */
CHECK_CASE(a_leader_that_is_late_names_a_rank_of_its_table)
{
    const dl_parcel call = {.bytes = {.data = (uint8_t *)"call", .size = 4}};
    dl_endpoint endpoint;
    dl_buffer record = {0};
    dl_contact contact;
    dl_peer peer;
    int fd;

    CHECK_OK(dl_hash_store_new(&store));
    unsetenv(DL_HOST_HINT_VARIABLE);
    for (int rank = 1; rank < 12; rank++) {
        publish_other(rank, NULL, "", 0);
    }
    CHECK_OK(dl_store_get(store, DL_LITERAL("cpu/1"), &record,
                          dl_deadline_after(DL_SECOND)));
    CHECK_OK(dl_endpoint_take(dl_buffer_bytes(&record), &peer, &contact));
    dl_buffer_fini(&record);
    while (dl_local_call(contact.socket, contact.tcp.token, &call, dl_deadline_after(0),
                         &fd)
           == DL_OK) {
        close(fd);
    }
    CHECK_STATUS(open_with_others(&endpoint, 0, 12), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 1 (pid 71 on host other)");
    dl_store_unref(store);
}

CHECK_CASE(an_invitation_without_room_for_its_table_is_an_error)
{
    int connections[2] = {-1, -1};
    dl_endpoint leader = {.size = 2, .connections = connections, .table = dup(0)};
    dl_endpoint member = {.rank = 1, .token = {5}};
    dl_contact contact = {.tcp.token = {5}};
    dl_peer peer = {.pid = 7, .host = "h"};
    struct rlimit limit;
    int fd;
    int table;

    CHECK_OK(dl_local_listen(contact.tcp.token, contact.socket, &member.listener));
    CHECK_OK(dl_contacts_init(&leader.contacts, 0, 2));
    CHECK_OK(dl_contacts_put(&leader.contacts, 1, &peer, &contact));
    CHECK_OK(dl_invite_rank(&leader, "g", 1, dl_deadline_after(DL_SECOND)));
    int next = dup(0);
    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)next + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_STATUS(dl_invite_await(&member, "g", 1, dl_deadline_after(0), &fd, &table),
                 DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "limit of open files");
    CHECK_EQUAL(fd, next);
    CHECK_EQUAL(table, -1);
    dl_socket_close(fd);
    dl_socket_close(member.listener);
    dl_socket_close(leader.table);
    dl_socket_close(connections[1]);
    dl_contacts_fini(&leader.contacts);
}

static void
put_record(dl_buffer *buffer, uint32_t rank)
{
    dl_buffer record = {0};

    dl_endpoint_put(&record, &some_peer, &some_contact);
    dl_put_u32(buffer, rank);
    dl_put_bytes(buffer, dl_buffer_bytes(&record));
    CHECK_OK(dl_buffer_check(buffer));
    dl_buffer_fini(&record);
}

CHECK_CASE(damaged_records_over_links_are_refused)
{
    dl_endpoint endpoint = {.size = 3};
    dl_peer peer = {.pid = 1, .host = "h"};
    dl_contact own = {.socket = ""};
    dl_buffer buffer = {0};

    CHECK_OK(dl_contacts_init(&endpoint.contacts, 0, 3));
    CHECK_OK(dl_endpoint_keep(&endpoint, 0, &peer, &own));
    put_record(&buffer, 2);
    CHECK_STATUS(dl_endpoint_take_all(&endpoint, dl_buffer_bytes(&buffer)),
                 DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "no record of rank 1 came over a link");
    put_record(&buffer, 1);
    CHECK_OK(dl_endpoint_take_all(&endpoint, dl_buffer_bytes(&buffer)));
    CHECK_EQUAL(endpoint.contacts.entries[1].token[2], 3);
    for (size_t size = 0; size < buffer.size; size++) {
        endpoint.contacts.entries[1].tail = 0;
        dl_bytes part = {buffer.data, size};
        CHECK_STATUS(dl_endpoint_take_all(&endpoint, part), DL_PROTOCOL);
    }
    put_record(&buffer, 3);
    CHECK_STATUS(dl_endpoint_take_all(&endpoint, dl_buffer_bytes(&buffer)),
                 DL_PROTOCOL);
    dl_contacts_fini(&endpoint.contacts);
    dl_buffer_fini(&buffer);
}

CHECK_CASE(every_failed_allocation_is_reported)
{
    dl_endpoint endpoint;
    long number = 0;
    dl_status status;

    CHECK_OK(dl_hash_store_new(&store));
    dl_backend_options options = options_of(0, 1);
    do {
        dl_check_fail_allocation_at(++number);
        status = dl_endpoint_open(&endpoint, &options, dl_deadline_after(DL_SECOND));
        if (status == DL_OK) {
            dl_endpoint_fini(&endpoint);
        } else {
            CHECK_EQUAL(status, DL_NO_MEMORY);
        }
    } while (dl_check_allocation_failed());
    CHECK(number > 4);
    dl_store_unref(store);
}
