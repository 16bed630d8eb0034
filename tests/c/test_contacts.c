/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>

#include "check.h"
#include "pg/cpu/contacts.h"
#include "pg/cpu/peer.h"

/* The contact of a rank on one of two hosts. */
static dl_contact
contact_of(int rank, const char *hint)
{
    dl_contact contact = {
        .tcp = {.count = 1, .life_port = (uint16_t)(2000 + rank)},
        .tls_mode = DL_TLS_PSK,
    };
    struct sockaddr_in *address = &contact.tcp.addresses[0].socket.ip4;

    contact.tcp.addresses[0].size = sizeof *address;
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)rank);
    address->sin_port = htons((uint16_t)(1000 + rank));
    memset(contact.tcp.token, rank + 1, DL_TOKEN_SIZE);
    snprintf(contact.socket, sizeof contact.socket, "distlite-%032x", rank + 0xabc);
    strcpy(contact.host.stack, "boot/1");
    strcpy(contact.host.hint, hint);
    return contact;
}

static void
put(dl_contacts *contacts, int rank, const dl_contact *contact)
{
    dl_peer peer = {.pid = 10 + rank, .host = rank % 2 == 0 ? "even" : "odd"};

    CHECK_OK(dl_contacts_put(contacts, rank, &peer, contact));
}

static void
check_three(const dl_contacts *contacts)
{
    dl_tcp_contact tcp;
    char socket[DL_LOCAL_NAME_SIZE];
    char problem[DL_PROBLEM_SIZE];

    for (int rank = 0; rank < 2; rank++) {
        dl_contact contact = contact_of(rank, "left");
        dl_contacts_find_tcp(contacts, rank, &tcp);
        CHECK_EQUAL(tcp.count, 1);
        CHECK(dl_address_equal(&tcp.addresses[0], &contact.tcp.addresses[0]));
        CHECK(memcmp(tcp.token, contact.tcp.token, DL_TOKEN_SIZE) == 0);
        CHECK_EQUAL(tcp.life_port, 2000 + rank);
        dl_contacts_socket(contacts, rank, socket);
        CHECK_TEXT(socket, contact.socket);
        dl_contacts_problem(contacts, rank, problem);
        CHECK_TEXT(problem, "");
        CHECK(contacts->entries[rank].has_address
              && contacts->entries[rank].has_loopback);
        CHECK_EQUAL(contacts->entries[rank].tls_mode, DL_TLS_PSK);
    }
    dl_contacts_socket(contacts, 2, socket);
    CHECK_TEXT(socket, "distlite-00000000000000000000000000000abe");
    dl_contacts_problem(contacts, 2, problem);
    CHECK_TEXT(problem, "eth7 is no interface");
    CHECK(!contacts->entries[2].has_address);
    CHECK_EQUAL(contacts->entries[0].host.hint, contacts->entries[1].host.hint);
    CHECK_EQUAL(contacts->entries[0].host.stack, contacts->entries[2].host.stack);
    CHECK(contacts->entries[0].host.hint != contacts->entries[2].host.hint);
}

static void
put_three(dl_contacts *contacts)
{
    dl_contact contact = contact_of(1, "left");

    CHECK_OK(dl_contacts_init(contacts, 1, 3));
    put(contacts, 1, &contact);
    contact = contact_of(0, "left");
    put(contacts, 0, &contact);
    contact = contact_of(2, "right");
    contact.tcp.count = 0;
    strcpy(contact.problem, "eth7 is no interface");
    put(contacts, 2, &contact);
}

static void
check_table(const dl_contacts *contacts)
{
    CHECK_EQUAL(dl_contacts_leader(contacts, 1), 0);
    CHECK_EQUAL(dl_contacts_leader(contacts, 2), 2);
    for (int rank = 0; rank < 3; rank++) {
        dl_peer peer = dl_contacts_peer(contacts, rank);
        CHECK_EQUAL(peer.pid, 10 + rank);
        CHECK_TEXT(peer.host, rank % 2 == 0 ? "even" : "odd");
    }
    CHECK(dl_contacts_peer(contacts, 0).host == dl_contacts_peer(contacts, 2).host);
}

CHECK_CASE(contacts_come_back)
{
    dl_contacts contacts;

    put_three(&contacts);
    check_three(&contacts);
    CHECK_EQUAL(dl_contacts_table(&contacts).size, 0);
    dl_contacts_fini(&contacts);
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_table_has_what_was_put)
{
    dl_contacts left;
    dl_contacts right;
    dl_contacts member;
    dl_contact own = contact_of(2, "right");
    dl_buffer copy = {0};
    int file;

    put_three(&left);
    CHECK_OK(dl_contacts_make_table(&left));
    CHECK_OK(dl_contacts_make_table(&left));
    check_three(&left);
    check_table(&left);
    /* Another host has it as it is, in place of what it knew. */
    CHECK_OK(dl_contacts_init(&right, 2, 3));
    put(&right, 2, &own);
    CHECK_OK(dl_buffer_set(&copy, dl_contacts_table(&left)));
    CHECK_OK(dl_contacts_take(&right, &copy));
    CHECK_EQUAL(copy.size, 0);
    check_three(&right);
    check_table(&right);
    /* A rank of that host maps it. */
    CHECK_OK(dl_contacts_share(&right, &file));
    check_three(&right);
    CHECK(pwrite(file, "x", 1, 0) < 0 && errno == EPERM);
    CHECK_OK(dl_contacts_init(&member, 2, 3));
    CHECK_OK(dl_contacts_map(&member, file));
    close(file);
    dl_contacts_fini(&right);
    check_three(&member);
    check_table(&member);
    CHECK(dl_bytes_equal(dl_contacts_table(&member), dl_contacts_table(&left)));
    dl_contacts_fini(&member);
    dl_contacts_fini(&left);
}

CHECK_CASE(damaged_tables_are_refused)
{
    dl_contacts left;
    dl_contacts other;
    dl_buffer copy = {0};

    put_three(&left);
    CHECK_OK(dl_contacts_make_table(&left));
    dl_bytes table = dl_contacts_table(&left);
    for (size_t size = 0; size < table.size; size++) {
        CHECK_OK(dl_contacts_init(&other, 0, 3));
        CHECK_OK(dl_buffer_set(&copy, (dl_bytes){table.data, size}));
        CHECK_STATUS(dl_contacts_take(&other, &copy), DL_PROTOCOL);
        dl_contacts_fini(&other);
    }
    for (size_t i = 0; i < table.size; i++) {
        dl_tcp_contact tcp;
        char text[DL_PROBLEM_SIZE];
        CHECK_OK(dl_contacts_init(&other, 0, 3));
        CHECK_OK(dl_buffer_set(&copy, table));
        copy.data[i] ^= 0xff;
        if (dl_contacts_take(&other, &copy) == DL_OK) {
            for (int rank = 0; rank < 3; rank++) {
                dl_contacts_find_tcp(&other, rank, &tcp);
                CHECK_EQUAL(other.entries[rank].has_address, tcp.count > 0);
                dl_contacts_problem(&other, rank, text);
                dl_peer peer = dl_contacts_peer(&other, rank);
                dl_peer_describe(&peer, rank, text);
            }
        }
        dl_contacts_fini(&other);
    }
    /* A rank would greet others by the digest of records that it does not have. */
    CHECK_OK(dl_contacts_init(&other, 0, 3));
    CHECK_OK(dl_buffer_set(&copy, table));
    copy.data[left.entries[1].token - table.data] ^= 1;
    CHECK_STATUS(dl_contacts_take(&other, &copy), DL_PROTOCOL);
    dl_contacts_fini(&other);
    CHECK_OK(dl_contacts_init(&other, 0, 3));
    CHECK_STATUS(dl_contacts_make_table(&other), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "no record of rank 0 came");
    dl_contacts_fini(&other);
    dl_contacts_fini(&left);
}

/* As of a rank whose record has not come, or that was started again meanwhile. */
CHECK_CASE(a_contact_may_be_missing_or_come_twice)
{
    dl_contacts contacts;
    dl_tcp_contact tcp;
    char text[DL_PROBLEM_SIZE];

    CHECK_OK(dl_contacts_init(&contacts, 0, 2));
    dl_contacts_find_tcp(&contacts, 1, &tcp);
    CHECK_EQUAL(tcp.count, 0);
    CHECK_EQUAL(tcp.life_port, 0);
    dl_contacts_problem(&contacts, 1, text);
    CHECK_TEXT(text, "");
    for (int turn = 5; turn < 7; turn++) {
        dl_contact contact = contact_of(turn, "right");
        put(&contacts, 1, &contact);
        dl_contacts_find_tcp(&contacts, 1, &tcp);
        CHECK_EQUAL(tcp.life_port, 2000 + turn);
        CHECK_EQUAL(tcp.token[0], turn + 1);
    }
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_rank_takes_little_memory)
{
    enum { RANKS = 1000 };
    dl_contacts contacts;

    CHECK_OK(dl_contacts_init(&contacts, 0, RANKS));
    for (int rank = 0; rank < RANKS; rank++) {
        dl_contact contact = contact_of(rank, rank == 0 ? "left" : "right");
        put(&contacts, rank, &contact);
    }
    CHECK_OK(dl_contacts_make_table(&contacts));
    CHECK(dl_contacts_table(&contacts).size / RANKS < 115);
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_failed_allocation_leaves_the_contact_before)
{
    dl_contacts contacts;
    dl_contact contact = contact_of(0, "left");
    dl_peer peer = {.pid = 5, .host = "a.host"};
    dl_tcp_contact tcp;

    CHECK_OK(dl_contacts_init(&contacts, 0, 1));
    CHECK_OK(dl_contacts_put(&contacts, 0, &peer, &contact));
    memset(contact.problem, 'x', sizeof contact.problem - 1);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_contacts_put(&contacts, 0, &peer, &contact), DL_NO_MEMORY);
    CHECK(dl_check_allocation_failed());
    dl_contacts_find_tcp(&contacts, 0, &tcp);
    CHECK_EQUAL(tcp.count, 1);
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_contact_is_found_where_it_has_moved)
{
    dl_contacts contacts;
    dl_contact contact = contact_of(0, "left");
    char long_name[100] = "";
    long number = 0;
    dl_tcp_contact tcp;

    memset(long_name, 'n', sizeof long_name - 1);
    do {
        dl_peer peer = {.pid = 5, .host = "a.host"};
        contact.problem[0] = '\0';
        CHECK_OK(dl_contacts_init(&contacts, 0, 1));
        CHECK_OK(dl_contacts_put(&contacts, 0, &peer, &contact));
        memset(contact.problem, 'x', sizeof contact.problem - 1);
        peer.host = long_name;
        dl_check_fail_allocation_at(++number);
        (void)dl_contacts_put(&contacts, 0, &peer, &contact);
        dl_contacts_find_tcp(&contacts, 0, &tcp);
        CHECK_EQUAL(tcp.count, 1);
        CHECK(dl_address_equal(&tcp.addresses[0], &contact.tcp.addresses[0]));
        dl_contacts_fini(&contacts);
    } while (dl_check_allocation_failed());
    CHECK(number > 5);
}

CHECK_CASE(the_ranks_of_a_host_have_one_name)
{
    dl_contacts contacts;
    dl_contact contact = contact_of(0, "left");
    char name[] = "a.host";
    char own[DL_HOST_NAME_SIZE];
    char text[DL_PEER_TEXT_SIZE];

    CHECK_OK(dl_contacts_init(&contacts, 0, 4));
    dl_peer peer = {.pid = 5, .host = name};
    CHECK_OK(dl_contacts_put(&contacts, 0, &peer, &contact));
    CHECK_OK(dl_contacts_put(&contacts, 1, &(dl_peer){6, ""}, &contact));
    CHECK_OK(dl_contacts_put(&contacts, 2, &peer, &contact));
    dl_peer_own(&peer, own);
    CHECK_OK(dl_contacts_put(&contacts, 3, &peer, &contact));
    name[0] = 'b';
    own[0] = '\0';
    dl_peer first = dl_contacts_peer(&contacts, 0);
    dl_peer last = dl_contacts_peer(&contacts, 3);
    CHECK_EQUAL(first.pid, 5);
    CHECK_TEXT(first.host, "a.host");
    CHECK_TEXT(dl_contacts_peer(&contacts, 1).host, "");
    CHECK(dl_contacts_peer(&contacts, 2).host == first.host);
    CHECK(last.pid == getpid() && last.host[0] != '\0');
    dl_peer_describe(&(dl_peer){.pid = 3}, 4, text);
    CHECK_TEXT(text, "rank 4 (pid 3 on host )");
    dl_contacts_fini(&contacts);
}
