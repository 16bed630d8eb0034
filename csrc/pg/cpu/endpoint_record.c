/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes of a rank's record. */
#include <stdio.h>
#include <string.h>

#include "base/reader.h"
#include "pg/cpu/endpoint.h"

/* "dlcpu" and, in the last byte, a version.  A record that begins with another number
 * is not read any further. */
#define RECORD_MAGIC UINT64_C(0x0900007570636c64)
#define FIELD_LIMIT 1024

void
dl_endpoint_put(dl_buffer *buffer, const dl_peer *peer, const dl_contact *contact)
{
    const dl_tcp_contact *tcp = &contact->tcp;

    dl_put_u64(buffer, RECORD_MAGIC);
    dl_put_i64(buffer, peer->pid);
    dl_put_bytes(buffer, dl_bytes_of(peer->host));
    dl_put_bytes(buffer, dl_bytes_of(contact->socket));
    dl_put_bytes(buffer, (dl_bytes){tcp->token, sizeof tcp->token});
    dl_put_bytes(buffer, (dl_bytes){contact->process.bytes, DL_PROCESS_ID_SIZE});
    dl_put_bytes(buffer, dl_bytes_of(contact->host.stack));
    dl_put_bytes(buffer, dl_bytes_of(contact->host.hint));
    dl_tcp_contact_put(buffer, tcp);
    dl_put_bytes(buffer, dl_bytes_of(contact->problem));
    dl_put_u32(buffer, contact->is_refused);
    if (contact->tls_mode != DL_TLS_OFF) {
        dl_put_u32(buffer, contact->tls_mode);
    }
}

/* Reads a string into `room` bytes, including the terminating zero. */
static bool
take_text(dl_reader *reader, char *text, size_t room)
{
    dl_bytes field;

    if (dl_take_bytes(reader, FIELD_LIMIT, &field) != 1 || field.size >= room) {
        return false;
    }
    if (field.size > 0) {
        memcpy(text, field.data, field.size);
    }
    text[field.size] = '\0';
    return true;
}

/* Reads a field of exactly `size` bytes, which is compared byte by byte. */
static bool
take_exactly(dl_reader *reader, size_t size, uint8_t *bytes)
{
    dl_bytes field;

    if (dl_take_bytes(reader, FIELD_LIMIT, &field) != 1 || field.size != size) {
        return false;
    }
    memcpy(bytes, field.data, size);
    return true;
}

dl_status
dl_endpoint_take(dl_bytes bytes, dl_peer *peer, dl_contact *contact)
{
    dl_reader reader = dl_reader_of(bytes);
    uint64_t magic;
    uint32_t is_refused;
    uint32_t tls_mode = DL_TLS_OFF;

    if (!dl_take_u64(&reader, &magic) || magic != RECORD_MAGIC) {
        return dl_fail(
            DL_PROTOCOL,
            "its record in the store was written by another version of distlite");
    }
    if (!dl_take_i64(&reader, &peer->pid)
        || !take_text(&reader, contact->host_name, sizeof contact->host_name)
        || !take_text(&reader, contact->socket, sizeof contact->socket)
        || !take_exactly(&reader, DL_TOKEN_SIZE, contact->tcp.token)
        || !take_exactly(&reader, DL_PROCESS_ID_SIZE, contact->process.bytes)
        || !take_text(&reader, contact->host.stack, sizeof contact->host.stack)
        || !take_text(&reader, contact->host.hint, sizeof contact->host.hint)
        || !dl_tcp_contact_take(&reader, &contact->tcp)
        || !take_text(&reader, contact->problem, sizeof contact->problem)
        || !dl_take_u32(&reader, &is_refused)
        || (dl_reader_left(&reader) > 0
            && (!dl_take_u32(&reader, &tls_mode) || tls_mode > DL_TLS_CERT))) {
        return dl_fail(DL_PROTOCOL, "its record in the store is damaged");
    }
    contact->is_refused = is_refused != 0;
    contact->tls_mode = (dl_tls_mode)tls_mode;
    peer->host = contact->host_name;
    return DL_OK;
}

dl_status
dl_endpoint_fail_twice(const dl_endpoint *endpoint, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(endpoint, rank, peer);
    return dl_fail(DL_MISMATCH,
                   "%s was started a second time: some ranks have found one process of "
                   "it, and some another",
                   peer);
}

dl_status
dl_endpoint_check_own(const dl_endpoint *endpoint)
{
    int own = endpoint->rank;
    bool is_own =
        memcmp(endpoint->contacts.entries[own].token, endpoint->token, DL_TOKEN_SIZE)
        == 0;

    return is_own ? DL_OK : dl_endpoint_fail_twice(endpoint, own);
}

dl_status
dl_endpoint_compare(const dl_endpoint *endpoint, const dl_records_digest *theirs)
{
    dl_records_digest own = dl_contacts_digest(&endpoint->contacts);

    if (memcmp(&own, theirs, sizeof own) == 0) {
        return DL_OK;
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        int part = rank % DL_DIGEST_PARTS;
        uint64_t sum = theirs->sums[part] - own.sums[part];
        uint64_t weighted = theirs->weighted[part] - own.weighted[part];
        if (sum != 0 && weighted == sum * ((uint64_t)rank + 1)) {
            return dl_endpoint_fail_twice(endpoint, rank);
        }
    }
    return dl_fail(DL_MISMATCH, "several ranks were started a second time: some ranks "
                                "have found one process of them, and some another");
}

dl_bytes
dl_endpoint_key(int rank, char text[DL_ENDPOINT_KEY_SIZE])
{
    int size = snprintf(text, DL_ENDPOINT_KEY_SIZE, "cpu/%d", rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}
