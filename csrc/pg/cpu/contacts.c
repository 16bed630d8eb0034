/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/contacts.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Longer fields of a tail do not exist. */
#define FIELD_LIMIT 1024

typedef struct host_name {
    dl_map_entry entry; /* by `text` */
    char text[];
} host_name;

dl_status
dl_contacts_init(dl_contacts *contacts, int rank, int size)
{
    *contacts = (dl_contacts){
        .rank = rank,
        .entries = calloc((size_t)size, sizeof *contacts->entries),
    };
    /* So that no entry has the offset 0, which means that there is no tail. */
    dl_put_u8(&contacts->tails, 0);
    return contacts->entries == NULL ? dl_fail_no_memory()
                                     : dl_buffer_check(&contacts->tails);
}

void
dl_contacts_fini(dl_contacts *contacts)
{
    dl_map_entry *next;

    for (dl_map_entry *name = dl_map_first(&contacts->names); name != NULL;
         name = next) {
        next = dl_map_next(&contacts->names, name);
        free(DL_MAP_ENTRY(name, host_name, entry));
    }
    dl_map_fini(&contacts->names);
    free(contacts->entries);
    dl_buffer_fini(&contacts->tails);
    *contacts = (dl_contacts){0};
}

static uint64_t
hash_text(const char *text)
{
    static const uint64_t seed[2] = {UINT64_C(0x646c686f73742031), 0};

    return dl_hash_seeded(dl_bytes_of(text), seed);
}

static bool
has_loopback(const dl_way *way)
{
    for (int i = 0; i < way->count; i++) {
        if (dl_address_is_loopback(&way->addresses[i])) {
            return true;
        }
    }
    return false;
}

dl_status
dl_contacts_put(dl_contacts *contacts, int rank, const dl_contact *contact)
{
    const dl_host_id *own = &contacts->entries[contacts->rank].host;
    dl_buffer *tails = &contacts->tails;
    dl_contact_entry entry = {
        .host = {hash_text(contact->host.stack), hash_text(contact->host.hint)},
        .tail = (uint32_t)tails->size,
        .tls_mode = (uint8_t)contact->tls_mode,
        .is_refused = contact->is_refused,
        .has_loopback = has_loopback(&contact->way),
        .has_address = contact->way.count > 0,
        .has_problem = contact->problem[0] != '\0',
    };
    bool is_near = entry.host.stack == own->stack && entry.host.hint == own->hint;

    entry.has_socket =
        (rank == contacts->rank || is_near) && contact->socket[0] != '\0';

    memcpy(entry.token, contact->way.token, sizeof entry.token);
    dl_way_put(tails, &contact->way);
    if (entry.has_socket) {
        dl_put_bytes(tails, dl_bytes_of(contact->socket));
    }
    if (entry.has_problem) {
        dl_put_bytes(tails, dl_bytes_of(contact->problem));
    }
    DL_TRY(dl_buffer_check(tails));
    contacts->entries[rank] = entry;
    return DL_OK;
}

dl_status
dl_contacts_keep_name(dl_contacts *contacts, const dl_peer *peer, dl_peer *kept)
{
    dl_bytes text = dl_bytes_of(peer->host);
    dl_map_entry *found = dl_map_find(&contacts->names, text);

    if (found == NULL) {
        host_name *made = calloc(1, sizeof *made + text.size + 1);
        if (made == NULL) {
            return dl_fail_no_memory();
        }
        memcpy(made->text, text.data, text.size);
        dl_map_insert(&contacts->names, &made->entry,
                      (dl_bytes){(const uint8_t *)made->text, text.size});
        found = &made->entry;
    }
    *kept = (dl_peer){.pid = peer->pid, .host = (const char *)found->key};
    return DL_OK;
}

/* Reads a field of a tail, if it is there, into `room` bytes, including the terminating
 * zero. */
static void
take_text(dl_reader *reader, bool is_there, char *text, size_t room)
{
    dl_bytes field = {0};

    text[0] = '\0';
    if (is_there && dl_take_bytes(reader, FIELD_LIMIT, &field) == 1
        && field.size < room) {
        memcpy(text, field.data, field.size);
        text[field.size] = '\0';
    }
}

/* The rank's tail, from its way on, which is read. */
static dl_reader
open_tail(const dl_contacts *contacts, int rank, dl_way *way)
{
    uint32_t tail = contacts->entries[rank].tail;
    const dl_buffer *tails = &contacts->tails;
    dl_reader reader = dl_reader_of(
        (dl_bytes){tails->data + tail, tail == 0 ? 0 : tails->size - tail});

    way->count = 0;
    way->life_port = 0;
    (void)dl_way_take(&reader, way);
    return reader;
}

void
dl_contacts_find_way(const void *contacts, int rank, dl_way *way)
{
    const dl_contacts *self = contacts;

    (void)open_tail(self, rank, way);
    memcpy(way->token, self->entries[rank].token, sizeof way->token);
    way->secret = self->secret;
    way->tls = self->tls;
}

void
dl_contacts_socket(const dl_contacts *contacts, int rank,
                   char socket[DL_LOCAL_NAME_SIZE])
{
    dl_way way;
    dl_reader reader = open_tail(contacts, rank, &way);

    take_text(&reader, contacts->entries[rank].has_socket, socket, DL_LOCAL_NAME_SIZE);
}

void
dl_contacts_problem(const dl_contacts *contacts, int rank,
                    char problem[DL_PROBLEM_SIZE])
{
    dl_way way;
    dl_reader reader = open_tail(contacts, rank, &way);
    char socket[DL_LOCAL_NAME_SIZE];

    take_text(&reader, contacts->entries[rank].has_socket, socket, sizeof socket);
    take_text(&reader, contacts->entries[rank].has_problem, problem, DL_PROBLEM_SIZE);
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
dl_way_put(dl_buffer *buffer, const dl_way *way)
{
    dl_put_u32(buffer, (uint32_t)way->count);
    for (int i = 0; i < way->count; i++) {
        dl_put_bytes(buffer, address_bytes(&way->addresses[i]));
        /* The port has the same offset in both families. */
        dl_put_u32(buffer, ntohs(way->addresses[i].socket.ip4.sin_port));
    }
    dl_put_u32(buffer, way->life_port);
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
dl_way_take(dl_reader *reader, dl_way *way)
{
    uint32_t count;
    uint32_t life_port;

    if (!dl_take_u32(reader, &count) || count > DL_INTERFACES_LIMIT) {
        return false;
    }
    way->count = (int)count;
    for (int i = 0; i < way->count; i++) {
        if (!take_address(reader, &way->addresses[i])) {
            return false;
        }
    }
    if (!dl_take_u32(reader, &life_port) || life_port > UINT16_MAX) {
        return false;
    }
    way->life_port = (uint16_t)life_port;
    return true;
}
