/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>

#include "check.h"
#include "pg/cpu/contacts.h"
#include "pg/cpu/peer.h"

/* The contact of a rank on one of two hosts. */
static dl_contact
contact_of(int rank, const char *hint)
{
    dl_contact contact = {
        .way = {.count = 1, .life_port = (uint16_t)(2000 + rank)},
        .tls_mode = DL_TLS_PSK,
    };
    struct sockaddr_in *address = &contact.way.addresses[0].socket.ip4;

    contact.way.addresses[0].size = sizeof *address;
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)rank);
    address->sin_port = htons((uint16_t)(1000 + rank));
    memset(contact.way.token, rank + 1, DL_TOKEN_SIZE);
    snprintf(contact.socket, sizeof contact.socket, "distlite-%d", rank);
    strcpy(contact.host.stack, "boot/1");
    strcpy(contact.host.hint, hint);
    return contact;
}

CHECK_CASE(contacts_come_back)
{
    dl_contacts contacts;
    dl_contact contact;
    dl_way way;
    char socket[DL_LOCAL_NAME_SIZE];
    char problem[DL_PROBLEM_SIZE];

    CHECK_OK(dl_contacts_init(&contacts, 1, 4));
    contact = contact_of(1, "left");
    CHECK_OK(dl_contacts_put(&contacts, 1, &contact));
    contact = contact_of(0, "left");
    CHECK_OK(dl_contacts_put(&contacts, 0, &contact));
    contact = contact_of(2, "right");
    contact.way.count = 0;
    strcpy(contact.problem, "eth7 is no interface");
    CHECK_OK(dl_contacts_put(&contacts, 2, &contact));
    for (int rank = 0; rank < 2; rank++) {
        contact = contact_of(rank, "left");
        dl_contacts_find_way(&contacts, rank, &way);
        CHECK_EQUAL(way.count, 1);
        CHECK(dl_address_equal(&way.addresses[0], &contact.way.addresses[0]));
        CHECK(memcmp(way.token, contact.way.token, DL_TOKEN_SIZE) == 0);
        CHECK_EQUAL(way.life_port, 2000 + rank);
        dl_contacts_socket(&contacts, rank, socket);
        CHECK_TEXT(socket, contact.socket);
        dl_contacts_problem(&contacts, rank, problem);
        CHECK_TEXT(problem, "");
        CHECK(contacts.entries[rank].has_address
              && contacts.entries[rank].has_loopback);
        CHECK_EQUAL(contacts.entries[rank].tls_mode, DL_TLS_PSK);
    }
    /* Nobody calls the socket of another host. */
    dl_contacts_socket(&contacts, 2, socket);
    CHECK_TEXT(socket, "");
    dl_contacts_problem(&contacts, 2, problem);
    CHECK_TEXT(problem, "eth7 is no interface");
    CHECK(!contacts.entries[2].has_address);
    CHECK_EQUAL(contacts.entries[0].host.hint, contacts.entries[1].host.hint);
    CHECK_EQUAL(contacts.entries[0].host.stack, contacts.entries[2].host.stack);
    CHECK(contacts.entries[0].host.hint != contacts.entries[2].host.hint);
    dl_contacts_fini(&contacts);
    dl_contacts_fini(&contacts);
}

/* As of a rank whose record has not come, or that was started again meanwhile. */
CHECK_CASE(a_contact_may_be_missing_or_come_twice)
{
    dl_contacts contacts;
    dl_way way;
    char text[DL_PROBLEM_SIZE];

    CHECK_OK(dl_contacts_init(&contacts, 0, 2));
    dl_contacts_find_way(&contacts, 1, &way);
    CHECK_EQUAL(way.count, 0);
    CHECK_EQUAL(way.life_port, 0);
    dl_contacts_problem(&contacts, 1, text);
    CHECK_TEXT(text, "");
    for (int turn = 5; turn < 7; turn++) {
        dl_contact contact = contact_of(turn, "right");
        CHECK_OK(dl_contacts_put(&contacts, 1, &contact));
        dl_contacts_find_way(&contacts, 1, &way);
        CHECK_EQUAL(way.life_port, 2000 + turn);
        CHECK_EQUAL(way.token[0], turn + 1);
    }
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_rank_of_another_host_takes_little_memory)
{
    enum { RANKS = 1000 };
    dl_contacts contacts;

    CHECK_OK(dl_contacts_init(&contacts, 0, RANKS));
    for (int rank = 0; rank < RANKS; rank++) {
        dl_contact contact = contact_of(rank, rank == 0 ? "left" : "right");
        CHECK_OK(dl_contacts_put(&contacts, rank, &contact));
    }
    CHECK(sizeof *contacts.entries + contacts.tails.capacity / RANKS < 100);
    dl_contacts_fini(&contacts);
}

CHECK_CASE(a_failed_allocation_leaves_the_contact_before)
{
    dl_contacts contacts;
    dl_contact contact = contact_of(0, "left");
    dl_way way;

    CHECK_OK(dl_contacts_init(&contacts, 0, 1));
    CHECK_OK(dl_contacts_put(&contacts, 0, &contact));
    memset(contact.problem, 'x', sizeof contact.problem - 1);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_contacts_put(&contacts, 0, &contact), DL_NO_MEMORY);
    CHECK(dl_check_allocation_failed());
    dl_contacts_find_way(&contacts, 0, &way);
    CHECK_EQUAL(way.count, 1);
    dl_contacts_fini(&contacts);
}

CHECK_CASE(the_ranks_of_a_host_have_one_name)
{
    dl_contacts contacts;
    dl_peer peers[4];
    char name[] = "a.host";
    char own[DL_HOST_NAME_SIZE];
    char text[DL_PEER_TEXT_SIZE];

    CHECK_OK(dl_contacts_init(&contacts, 0, 1));
    dl_peer peer = {.pid = 5, .host = name};
    CHECK_OK(dl_contacts_keep_name(&contacts, &peer, &peers[0]));
    CHECK_OK(dl_contacts_keep_name(&contacts, &(dl_peer){6, ""}, &peers[1]));
    CHECK_OK(dl_contacts_keep_name(&contacts, &peer, &peers[2]));
    dl_peer_own(&peer, own);
    CHECK_OK(dl_contacts_keep_name(&contacts, &peer, &peers[3]));
    name[0] = 'b';
    own[0] = '\0';
    CHECK_EQUAL(peers[0].pid, 5);
    CHECK_TEXT(peers[0].host, "a.host");
    CHECK_TEXT(peers[1].host, "");
    CHECK(peers[2].host == peers[0].host);
    CHECK(peers[3].pid == getpid() && peers[3].host[0] != '\0');
    dl_peer_describe(&(dl_peer){.pid = 3}, 4, text);
    CHECK_TEXT(text, "rank 4 (pid 3 on host )");
    dl_contacts_fini(&contacts);
}
