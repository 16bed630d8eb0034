/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/record_mac.h"

#include "base/reader.h"

/* "dlseal" and, in the last byte, a version: no other record begins with it. */
#define MAGIC UINT64_C(0x01006c6165736c64)
#define HEAD_SIZE (sizeof(uint64_t) + DL_MAC_SIZE)

/* Separates these MACs from others that are computed with the token. */
#define LABEL "distlite record 1"

#define REMEDY                                                                      \
    "every process of a job needs the same DISTLITE_TOKEN, DISTLITE_TOKEN_FILE or " \
    "token=... of its store"

/* Each part has its size before it, so that no two different records have the same
 * bytes. */
static dl_status
compute_mac(const dl_record_mac *self, dl_bytes record, uint8_t mac[DL_MAC_SIZE])
{
    dl_buffer message = {0};

    dl_put_bytes(&message, DL_LITERAL(LABEL));
    dl_put_bytes(&message, dl_bytes_of(self->group));
    dl_put_bytes(&message, self->key);
    dl_put_bytes(&message, record);
    dl_status status = dl_buffer_check(&message);
    if (status == DL_OK) {
        status = dl_secret_mac(self->secret, dl_buffer_bytes(&message), mac);
    }
    dl_buffer_fini(&message);
    return status;
}

dl_status
dl_record_mac_put(dl_buffer *buffer, const dl_record_mac *self, dl_bytes record)
{
    uint8_t mac[DL_MAC_SIZE];

    if (self->secret != NULL) {
        DL_TRY(compute_mac(self, record, mac));
        dl_put_u64(buffer, MAGIC);
        dl_buffer_put(buffer, (dl_bytes){mac, sizeof mac});
    }
    dl_buffer_put(buffer, record);
    return dl_buffer_check(buffer);
}

static bool
has_head(dl_bytes bytes)
{
    dl_reader reader = dl_reader_of(bytes);
    uint64_t magic = 0;

    return dl_take_u64(&reader, &magic) && magic == MAGIC;
}

/* Compares the MAC, which begins behind the magic number. */
static dl_status
check_mac(const dl_record_mac *self, dl_bytes bytes, dl_bytes record)
{
    uint8_t mac[DL_MAC_SIZE];

    DL_TRY(compute_mac(self, record, mac));
    if (!dl_secret_mac_equal(mac, bytes.data + sizeof(uint64_t))) {
        return dl_fail(DL_DENIED,
                       "its record in the store was not written with this job's token: "
                       "its process has another token, or a process outside the job "
                       "has written the record; " REMEDY);
    }
    return DL_OK;
}

dl_status
dl_record_mac_take(dl_bytes bytes, const dl_record_mac *self, dl_bytes *record)
{
    bool has_mac = has_head(bytes);

    if (self->secret == NULL && has_mac) {
        return dl_fail(DL_DENIED,
                       "its record in the store was written with a token, and this "
                       "process has none; " REMEDY);
    }
    if (self->secret == NULL) {
        *record = bytes;
        return DL_OK;
    }
    if (!has_mac || bytes.size < HEAD_SIZE) {
        return dl_fail(DL_DENIED,
                       "its record in the store was written without this job's token: "
                       "its process has no token, or a process outside the job has "
                       "written the record; " REMEDY);
    }
    dl_bytes rest = {bytes.data + HEAD_SIZE, bytes.size - HEAD_SIZE};
    DL_TRY(check_mac(self, bytes, rest));
    *record = rest;
    return DL_OK;
}
