/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/contacts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "net/socket.h"

/* Longer fields of a tail do not exist. */
#define FIELD_LIMIT 1024

/* "dltab" and, in the last byte, a version. */
#define TABLE_MAGIC UINT64_C(0x0200006261746c64)

/* Precedes the entries, which the tails follow.  All ranks have the same byte order:
 * they could not read each other's arrays otherwise. */
typedef struct table_head {
    uint64_t magic;
    uint32_t count;
    uint32_t entry_size;
    uint64_t tails_size;
    dl_records_digest digest;
} table_head;

typedef struct host_name {
    dl_map_entry entry; /* by `text` */
    uint32_t offset;    /* in the tails */
    char text[];
} host_name;

dl_status
dl_contacts_init(dl_contacts *contacts, int rank, int size)
{
    *contacts = (dl_contacts){
        .rank = rank,
        .size = size,
        .own_entries = calloc((size_t)size, sizeof *contacts->entries),
    };
    contacts->entries = contacts->own_entries;
    /* So that no entry has the offset 0, which means that there is no tail. */
    dl_put_u8(&contacts->own_tails, 0);
    return contacts->entries == NULL ? dl_fail_no_memory()
                                     : dl_buffer_check(&contacts->own_tails);
}

/* Frees what was put. */
static void
drop_own(dl_contacts *contacts)
{
    dl_map_entry *next;

    for (dl_map_entry *name = dl_map_first(&contacts->names); name != NULL;
         name = next) {
        next = dl_map_next(&contacts->names, name);
        free(DL_MAP_ENTRY(name, host_name, entry));
    }
    dl_map_fini(&contacts->names);
    contacts->names = (dl_map){0};
    free(contacts->own_entries);
    contacts->own_entries = NULL;
    dl_buffer_fini(&contacts->own_tails);
}

void
dl_contacts_fini(dl_contacts *contacts)
{
    drop_own(contacts);
    dl_buffer_fini(&contacts->table);
    free(contacts->own_survey);
    dl_segment_fini(&contacts->shared);
    *contacts = (dl_contacts){0};
}

static uint64_t
hash_text(const char *text)
{
    static const uint64_t seed[2] = {UINT64_C(0x646c686f73742031), 0};

    return dl_hash_seeded(dl_bytes_of(text), seed);
}

static bool
has_loopback(const dl_tcp_contact *tcp)
{
    for (int i = 0; i < tcp->count; i++) {
        if (dl_address_is_loopback(&tcp->addresses[i])) {
            return true;
        }
    }
    return false;
}

/* Returns NULL if there is no memory. */
static const host_name *
keep_name(dl_contacts *contacts, const char *host)
{
    dl_bytes text = dl_bytes_of(host);
    dl_map_entry *found = dl_map_find(&contacts->names, text);

    if (found == NULL) {
        host_name *made = calloc(1, sizeof *made + text.size + 1);
        if (made == NULL) {
            return NULL;
        }
        memcpy(made->text, text.data, text.size);
        made->offset = (uint32_t)contacts->own_tails.size;
        dl_buffer_put(&contacts->own_tails,
                      (dl_bytes){(const uint8_t *)made->text, text.size + 1});
        dl_map_insert(&contacts->names, &made->entry,
                      (dl_bytes){(const uint8_t *)made->text, text.size});
        found = &made->entry;
    }
    return DL_MAP_ENTRY(found, host_name, entry);
}

/* Sockets have random names of this many bytes, in hexadecimal digits (net/local.h). */
#define SOCKET_BYTES 16

static void
write_socket(const uint8_t bytes[SOCKET_BYTES], char socket[DL_LOCAL_NAME_SIZE])
{
    size_t used = (size_t)snprintf(socket, DL_LOCAL_NAME_SIZE, "distlite-");

    for (int i = 0; i < SOCKET_BYTES; i++) {
        used += (size_t)snprintf(socket + used, DL_LOCAL_NAME_SIZE - used, "%02x",
                                 bytes[i]);
    }
}

/* Returns false for the name of no socket. */
static bool
read_socket(const char *socket, uint8_t bytes[SOCKET_BYTES])
{
    const char *digits = strchr(socket, '-');
    char again[DL_LOCAL_NAME_SIZE];

    for (int i = 0; i < SOCKET_BYTES; i++) {
        unsigned byte;
        if (digits == NULL || strlen(digits) < 2 * SOCKET_BYTES
            || sscanf(digits + 1 + 2 * i, "%2x", &byte) != 1) {
            return false;
        }
        bytes[i] = (uint8_t)byte;
    }
    write_socket(bytes, again);
    return strcmp(again, socket) == 0;
}

dl_status
dl_contacts_put(dl_contacts *contacts, int rank, const dl_peer *peer,
                const dl_contact *contact)
{
    uint8_t socket[SOCKET_BYTES];
    const host_name *name = keep_name(contacts, peer->host);
    dl_buffer *tails = &contacts->own_tails;
    dl_contact_entry entry = {
        .host = {hash_text(contact->host.stack), hash_text(contact->host.hint)},
        .process = contact->process,
        .pid = (int32_t)peer->pid,
        .tail = (uint32_t)tails->size,
        .tls_mode = (uint8_t)contact->tls_mode,
        .is_refused = contact->is_refused,
        .has_loopback = has_loopback(&contact->tcp),
        .has_address = contact->tcp.count > 0,
        .has_socket = read_socket(contact->socket, socket),
        .has_problem = contact->problem[0] != '\0',
    };

    if (name == NULL) {
        return dl_fail_no_memory();
    }
    entry.host_name = name->offset;
    memcpy(entry.token, contact->tcp.token, sizeof entry.token);
    dl_tcp_contact_put(tails, &contact->tcp);
    if (entry.has_socket) {
        dl_buffer_put(tails, (dl_bytes){socket, sizeof socket});
    }
    if (entry.has_problem) {
        dl_put_bytes(tails, dl_bytes_of(contact->problem));
    }
    /* They may have moved, even if there is no room for the rest. */
    contacts->tails = dl_buffer_bytes(tails);
    DL_TRY(dl_buffer_check(tails));
    contacts->own_entries[rank] = entry;
    return DL_OK;
}

/* The finishing step of a known generator (splitmix64). */
static uint64_t
mix_bits(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* The token is drawn for each record. */
static dl_records_digest
digest_of(const dl_contact_entry *entries, int size)
{
    dl_records_digest digest = {.sums = {0}};

    for (int rank = 0; rank < size; rank++) {
        uint64_t words[DL_TOKEN_SIZE / sizeof(uint64_t)];
        memcpy(words, entries[rank].token, sizeof words);
        uint64_t part =
            mix_bits(words[0] ^ mix_bits(words[1] ^ mix_bits((uint64_t)rank + 1)));
        digest.sums[rank % DL_DIGEST_PARTS] += part;
        digest.weighted[rank % DL_DIGEST_PARTS] += part * ((uint64_t)rank + 1);
    }
    return digest;
}

dl_records_digest
dl_contacts_digest(const dl_contacts *contacts)
{
    return contacts->digest != NULL ? *contacts->digest
                                    : digest_of(contacts->entries, contacts->size);
}

static size_t
entries_size(const dl_contacts *contacts)
{
    return (size_t)contacts->size * sizeof *contacts->entries;
}

static size_t
table_size(const dl_contacts *contacts, size_t tails_size)
{
    return sizeof(table_head) + entries_size(contacts) + tails_size;
}

/* Returns whether the addresses of a tail can be read, and are there if they should
 * be. */
static bool
has_way(const dl_contact_entry *entry, dl_bytes tails)
{
    dl_reader reader =
        dl_reader_of((dl_bytes){tails.data + entry->tail, tails.size - entry->tail});
    dl_tcp_contact tcp;

    return dl_tcp_contact_take(&reader, &tcp) && entry->has_address == (tcp.count > 0);
}

/* Names end within the tails, because these end with a zero. */
static dl_status
check_entries(const table_head *head, const dl_contact_entry *entries, int size,
              dl_bytes tails)
{
    dl_records_digest digest = digest_of(entries, size);

    for (int rank = 0; rank < size; rank++) {
        const dl_contact_entry *entry = &entries[rank];
        if (entry->tail == 0) {
            return dl_fail(DL_PROTOCOL, "no record of rank %d came over a link", rank);
        }
        if (entry->tail >= tails.size || entry->host_name >= tails.size
            || entry->tls_mode > DL_TLS_CERT || !has_way(entry, tails)) {
            return dl_fail(DL_PROTOCOL, "the record of rank %d is damaged", rank);
        }
    }
    return memcmp(&digest, &head->digest, sizeof digest) == 0
               ? DL_OK
               : dl_fail(DL_PROTOCOL, "the table of all ranks is damaged");
}

/* Returns where the survey lies behind a table of this size that is shared. */
static size_t
survey_offset(size_t table_size)
{
    size_t alignment = _Alignof(dl_survey);

    return (table_size + alignment - 1) / alignment * alignment;
}

/* Makes the survey of a table that came over a link, whose records are checked first, or
 * of this process's. */
static dl_status
make_survey(dl_contacts *contacts, const table_head *head,
            const dl_contact_entry *entries, dl_bytes tails)
{
    DL_TRY(check_entries(head, entries, contacts->size, tails));
    contacts->own_survey = calloc(1, dl_survey_size(contacts->size));
    if (contacts->own_survey == NULL) {
        return dl_fail_no_memory();
    }
    return dl_survey_make(contacts->own_survey, entries, contacts->size);
}

/* Uses the table from now on.  The rank that shares one with its host has checked it. */
static dl_status
use_table(dl_contacts *contacts, dl_bytes table, bool is_shared)
{
    const table_head *head = (const void *)table.data;
    size_t before = sizeof *head + entries_size(contacts);

    if (table.size <= before || head->magic != TABLE_MAGIC
        || head->count != (uint32_t)contacts->size
        || head->entry_size != sizeof *contacts->entries
        || head->tails_size != table.size - before
        || table.data[table.size - 1] != '\0') {
        return dl_fail(DL_PROTOCOL, "the table of all ranks is damaged");
    }
    dl_contact_entry *entries = (void *)(uintptr_t)(table.data + sizeof *head);
    dl_bytes tails = {table.data + before, table.size - before};
    if (!is_shared) {
        DL_TRY(make_survey(contacts, head, entries, tails));
    }
    contacts->digest = &head->digest;
    contacts->survey = contacts->own_survey;
    contacts->entries = entries;
    contacts->tails = tails;
    drop_own(contacts);
    return DL_OK;
}

dl_status
dl_contacts_make_table(dl_contacts *contacts)
{
    dl_buffer table = {0};
    table_head head = {
        .magic = TABLE_MAGIC,
        .count = (uint32_t)contacts->size,
        .entry_size = sizeof *contacts->entries,
        .tails_size = contacts->tails.size + 1,
        .digest = dl_contacts_digest(contacts),
    };

    if (contacts->own_entries == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_buffer_reserve(&table, table_size(contacts, (size_t)head.tails_size)));
    dl_buffer_put(&table, (dl_bytes){(const uint8_t *)&head, sizeof head});
    dl_buffer_put(&table, (dl_bytes){(const uint8_t *)contacts->own_entries,
                                     entries_size(contacts)});
    dl_buffer_put(&table, contacts->tails);
    dl_put_u8(&table, 0);
    return dl_contacts_take(contacts, &table);
}

dl_status
dl_contacts_take(dl_contacts *contacts, dl_buffer *table)
{
    dl_status status = use_table(contacts, dl_buffer_bytes(table), false);

    if (status != DL_OK) {
        dl_buffer_fini(table);
        return status;
    }
    contacts->table = *table;
    *table = (dl_buffer){0};
    return DL_OK;
}

/* The survey of the file is behind the table. */
static dl_status
use_shared(dl_contacts *contacts, const dl_segment *mapped)
{
    const table_head *head = mapped->memory;
    size_t behind = dl_survey_size(contacts->size);

    if (mapped->size < sizeof *head + behind || head->tails_size > mapped->size) {
        return dl_fail(DL_PROTOCOL, "the table of all ranks is damaged");
    }
    dl_bytes table = {mapped->memory, table_size(contacts, (size_t)head->tails_size)};
    size_t offset = survey_offset(table.size);
    if (mapped->size != offset + behind) {
        return dl_fail(DL_PROTOCOL, "the table of all ranks is damaged");
    }
    DL_TRY(use_table(contacts, table, true));
    contacts->survey = (const void *)((const uint8_t *)mapped->memory + offset);
    return DL_OK;
}

dl_status
dl_contacts_map(dl_contacts *contacts, int file)
{
    dl_segment mapped;

    DL_TRY(dl_segment_map_whole(file, &mapped));
    dl_status status = use_shared(contacts, &mapped);
    if (status != DL_OK) {
        dl_segment_fini(&mapped);
        return status;
    }
    dl_buffer_fini(&contacts->table);
    free(contacts->own_survey);
    contacts->own_survey = NULL;
    contacts->shared = mapped;
    return DL_OK;
}

dl_status
dl_contacts_share(dl_contacts *contacts, int *file)
{
    dl_bytes table = dl_contacts_table(contacts);
    size_t offset = survey_offset(table.size);
    size_t behind = dl_survey_size(contacts->size);
    dl_segment mapped;
    int made;

    DL_TRY(dl_segment_create(offset + behind, &made));
    dl_status status = dl_segment_map(made, 0, offset + behind, &mapped);
    if (status == DL_OK) {
        memcpy(mapped.memory, table.data, table.size);
        memcpy((uint8_t *)mapped.memory + offset, contacts->survey, behind);
        dl_segment_fini(&mapped);
        dl_segment_seal(made);
        status = dl_contacts_map(contacts, made);
    }
    if (status != DL_OK) {
        dl_socket_close(made);
        return status;
    }
    *file = made;
    return DL_OK;
}

dl_bytes
dl_contacts_table(const dl_contacts *contacts)
{
    return contacts->shared.memory == NULL
               ? dl_buffer_bytes(&contacts->table)
               : (dl_bytes){contacts->shared.memory,
                            table_size(contacts, contacts->tails.size)};
}

dl_peer
dl_contacts_peer(const void *contacts, int rank)
{
    const dl_contacts *self = contacts;
    const dl_contact_entry *entry = &self->entries[rank];

    return entry->tail == 0
               ? (dl_peer){0}
               : (dl_peer){.pid = entry->pid,
                           .host = (const char *)self->tails.data + entry->host_name};
}

int
dl_contacts_leader(const dl_contacts *contacts, int rank)
{
    dl_layout layout = dl_survey_layout(contacts->survey, contacts->size, rank);

    return dl_layout_leader(&layout, layout.host);
}

/* The rank's tail, from its addresses on, which are read. */
static dl_reader
open_tail(const dl_contacts *contacts, int rank, dl_tcp_contact *tcp)
{
    uint32_t tail = contacts->entries[rank].tail;
    dl_bytes tails = contacts->tails;
    dl_reader reader =
        dl_reader_of(tail == 0 ? (dl_bytes){NULL, 0}
                               : (dl_bytes){tails.data + tail, tails.size - tail});

    tcp->count = 0;
    tcp->life_port = 0;
    (void)dl_tcp_contact_take(&reader, tcp);
    return reader;
}

void
dl_contacts_find_tcp(const void *contacts, int rank, dl_tcp_contact *tcp)
{
    const dl_contacts *self = contacts;

    (void)open_tail(self, rank, tcp);
    memcpy(tcp->token, self->entries[rank].token, sizeof tcp->token);
    tcp->secret = self->secret;
    tcp->tls = self->tls;
}

/* Reads the socket of a tail, if it is there. */
static void
take_socket(dl_reader *reader, bool is_there, char socket[DL_LOCAL_NAME_SIZE])
{
    uint8_t bytes[SOCKET_BYTES];

    socket[0] = '\0';
    if (!is_there) {
        return;
    }
    for (int i = 0; i < SOCKET_BYTES; i++) {
        if (!dl_take_u8(reader, &bytes[i])) {
            return;
        }
    }
    write_socket(bytes, socket);
}

void
dl_contacts_socket(const dl_contacts *contacts, int rank,
                   char socket[DL_LOCAL_NAME_SIZE])
{
    dl_tcp_contact tcp;
    dl_reader reader = open_tail(contacts, rank, &tcp);

    take_socket(&reader, contacts->entries[rank].has_socket, socket);
}

void
dl_contacts_problem(const dl_contacts *contacts, int rank,
                    char problem[DL_PROBLEM_SIZE])
{
    dl_tcp_contact tcp;
    dl_reader reader = open_tail(contacts, rank, &tcp);
    char socket[DL_LOCAL_NAME_SIZE];
    dl_bytes text = {0};

    take_socket(&reader, contacts->entries[rank].has_socket, socket);
    if (contacts->entries[rank].has_problem) {
        (void)dl_take_bytes(&reader, DL_PROBLEM_SIZE - 1, &text);
    }
    snprintf(problem, DL_PROBLEM_SIZE, "%.*s", (int)text.size, (const char *)text.data);
}

/* Returns the address in network byte order; its size identifies the family. */
static dl_bytes
address_bytes(const dl_address *address)
{
    const struct sockaddr_in6 *ip6 = &address->socket.ip6;

    switch (address->size == 0 ? AF_UNSPEC : address->socket.any.sa_family) {
    case AF_INET:
        return (dl_bytes){(const uint8_t *)&address->socket.ip4.sin_addr, 4};
    case AF_INET6:
        return (dl_bytes){ip6->sin6_addr.s6_addr, 16};
    default:
        return (dl_bytes){NULL, 0};
    }
}

void
dl_tcp_contact_put(dl_buffer *buffer, const dl_tcp_contact *tcp)
{
    dl_put_u32(buffer, (uint32_t)tcp->count);
    for (int i = 0; i < tcp->count; i++) {
        dl_put_bytes(buffer, address_bytes(&tcp->addresses[i]));
        /* The port has the same offset in both families. */
        dl_put_u32(buffer, ntohs(tcp->addresses[i].socket.ip4.sin_port));
    }
    dl_put_u32(buffer, tcp->life_port);
}

static bool
take_address(dl_reader *reader, dl_address *address)
{
    dl_bytes host;
    uint32_t port;

    if (dl_take_bytes(reader, FIELD_LIMIT, &host) != 1 || !dl_take_u32(reader, &port)
        || (host.size != 4 && host.size != 16) || port > UINT16_MAX) {
        return false;
    }
    *address = (dl_address){.size = 0};
    if (host.size == 4) {
        address->size = sizeof address->socket.ip4;
        address->socket.ip4.sin_family = AF_INET;
        memcpy(&address->socket.ip4.sin_addr, host.data, host.size);
    } else {
        address->size = sizeof address->socket.ip6;
        address->socket.ip6.sin6_family = AF_INET6;
        memcpy(&address->socket.ip6.sin6_addr, host.data, host.size);
    }
    address->socket.ip4.sin_port = htons((uint16_t)port);
    return true;
}

/* The list is empty for a rank without an address. */
bool
dl_tcp_contact_take(dl_reader *reader, dl_tcp_contact *tcp)
{
    uint32_t count;
    uint32_t life_port;

    if (!dl_take_u32(reader, &count) || count > DL_INTERFACES_LIMIT) {
        return false;
    }
    tcp->count = (int)count;
    for (int i = 0; i < tcp->count; i++) {
        if (!take_address(reader, &tcp->addresses[i])) {
            return false;
        }
    }
    if (!dl_take_u32(reader, &life_port) || life_port > UINT16_MAX) {
        return false;
    }
    tcp->life_port = (uint16_t)life_port;
    return true;
}
