/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks leave for each other in the store, on the sockets of their host and in
 * recordings, by those who would like to be one.  The first byte says which it is.
 * Whatever is taken must come out of it again. */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/endpoint.h"
#include "pg/cpu/reach.h"
#include "pg/cpu/shm/join_message.h"
#include "pg/record/doing.h"
#include "pg/record/wait_graph.h"
#include "store/counter.h"

#define RANKS 8
#define RECORDING_SIZE 279168 /* of one with room for four operations */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Frees `again`, which must be `bytes`. */
static void
require_same(dl_buffer *again, dl_bytes bytes)
{
    require(dl_buffer_check(again) == DL_OK);
    require(dl_bytes_equal(dl_buffer_bytes(again), bytes));
    dl_buffer_fini(again);
}

static void
take_endpoint(dl_bytes bytes)
{
    dl_peer peer = {.pid = 0};
    dl_contact contact = {.tcp.count = 0};
    dl_buffer again = {0};
    dl_peer peer_again = {.pid = 0};
    dl_contact contact_again = {.tcp.count = 0};

    if (dl_endpoint_take(bytes, &peer, &contact) == DL_OK) {
        dl_endpoint_put(&again, &peer, &contact);
        require(dl_endpoint_take(dl_buffer_bytes(&again), &peer_again, &contact_again)
                == DL_OK);
        require(peer_again.pid == peer.pid && strcmp(peer_again.host, peer.host) == 0
                && contact_again.tcp.count == contact.tcp.count);
        dl_buffer_fini(&again);
    }
}

static void
take_all(dl_bytes bytes)
{
    dl_endpoint endpoint = {.size = RANKS};
    const dl_peer self = {.pid = 1, .host = "h"};
    const dl_contact own = {.socket = ""};
    dl_tcp_contact tcp;

    require(dl_contacts_init(&endpoint.contacts, 0, RANKS) == DL_OK);
    require(dl_endpoint_keep(&endpoint, 0, &self, &own) == DL_OK);
    if (dl_endpoint_take_all(&endpoint, bytes) == DL_OK) {
        for (int rank = 1; rank < RANKS; rank++) {
            dl_contacts_find_tcp(&endpoint.contacts, rank, &tcp);
            require(tcp.count <= DL_INTERFACES_LIMIT);
        }
    }
    dl_contacts_fini(&endpoint.contacts);
}

static void
take_table(dl_bytes bytes)
{
    dl_contacts contacts;
    dl_buffer table = {0};
    dl_tcp_contact tcp;
    dl_peer peer;
    char text[DL_PROBLEM_SIZE];

    require(dl_contacts_init(&contacts, 0, RANKS) == DL_OK);
    require(dl_buffer_set(&table, bytes) == DL_OK);
    if (dl_contacts_take(&contacts, &table) == DL_OK) {
        for (int rank = 0; rank < RANKS; rank++) {
            dl_contacts_find_tcp(&contacts, rank, &tcp);
            require(tcp.count <= DL_INTERFACES_LIMIT);
            for (int i = 0; i < tcp.count; i++) {
                dl_address_text(&tcp.addresses[i], text);
            }
            dl_contacts_problem(&contacts, rank, text);
            peer = dl_contacts_peer(&contacts, rank);
            dl_peer_describe(&peer, rank, text);
            require(dl_contacts_leader(&contacts, rank) <= rank);
        }
    }
    dl_contacts_fini(&contacts);
}

static void
take_list(dl_bytes bytes)
{
    int ranks[RANKS];
    int count = -1;
    char reason[DL_PROBLEM_SIZE];

    if (dl_reach_take(bytes, RANKS, ranks, &count, reason) == DL_OK) {
        require(count >= 0 && count < RANKS);
        for (int i = 0; i < count; i++) {
            require(ranks[i] >= 0 && ranks[i] < RANKS);
        }
        require(strlen(reason) < sizeof reason);
    }
}

static void
take_join(dl_bytes bytes)
{
    dl_invite invite;
    dl_welcome welcome;
    dl_refusal refusal;
    dl_cores cores;
    dl_records_digest digest;
    dl_buffer again = {0};
    int kinds = 0;

    if (dl_take_invite(bytes, &invite)) {
        dl_put_invite(&again, &invite);
        require_same(&again, bytes);
        kinds++;
    }
    if (dl_take_answer(bytes, &cores, &digest)) {
        dl_put_answer(&again, &cores, &digest);
        require_same(&again, bytes);
        kinds++;
    }
    if (dl_take_welcome(bytes, &welcome)) {
        dl_put_welcome(&again, &welcome);
        require_same(&again, bytes);
        kinds++;
    }
    if (dl_take_refusal(bytes, &refusal)) {
        dl_put_refusal(&again, &refusal);
        require_same(&again, bytes);
        kinds++;
    }
    require(kinds <= 1);
}

static void
take_wait_state(dl_bytes bytes)
{
    static dl_wait_state states[2];
    dl_buffer again = {0};

    if (dl_wait_state_read(bytes, &states[0])) {
        dl_wait_state_write(&states[0], &again);
        require(dl_buffer_check(&again) == DL_OK);
        require(dl_wait_state_read(dl_buffer_bytes(&again), &states[1]));
        dl_buffer_fini(&again);
    }
}

/* A mapped file is at the start of a page.  Zeroes make up for what is short of
 * `least`. */
static void
read_recording(dl_bytes bytes, size_t least)
{
    size_t size = bytes.size > least ? bytes.size : least;
    size_t room = (size + 4096) / 4096 * 4096;
    void *memory = aligned_alloc(4096, room);
    dl_doing doing;

    require(memory != NULL);
    memset(memory, 0, room);
    if (bytes.size > 0) {
        memcpy(memory, bytes.data, bytes.size);
    }
    dl_bytes snapshot = {memory, size};
    if (dl_doing_read(snapshot, &doing)) {
        require(strnlen(doing.group, sizeof doing.group) < sizeof doing.group);
        require(strnlen(doing.host, sizeof doing.host) < sizeof doing.host);
        require(strnlen(doing.site, sizeof doing.site) < sizeof doing.site);
        require(strnlen(doing.wait, sizeof doing.wait) < sizeof doing.wait);
        (void)dl_doing_has_begun(snapshot, doing.group, (uint64_t)doing.sequence);
    }
    free(memory);
}

static void
take_recording(dl_bytes bytes)
{
    read_recording(bytes, 0);
}

static void
take_long_recording(dl_bytes bytes)
{
    read_recording(bytes, RECORDING_SIZE);
}

static void
take_counter(dl_bytes bytes)
{
    int64_t number;
    int64_t again;
    char text[DL_COUNTER_TEXT_SIZE + 1];

    if (dl_counter_parse(bytes, &number)) {
        require(dl_counter_parse(dl_counter_format(number, text), &again));
        require(again == number);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(dl_bytes) = {
        take_endpoint, take_list,           take_join, take_wait_state, take_recording,
        take_counter,  take_long_recording, take_all,  take_table,
    };

    if (size > 0) {
        parsers[data[0] % (sizeof parsers / sizeof *parsers)](
            (dl_bytes){data + 1, size - 1});
    }
    return 0;
}
