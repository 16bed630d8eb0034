/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/record_mac.h"

#include "check.h"

static dl_record_mac
mac_of(const char *token, const char *group, const char *key)
{
    dl_record_mac mac = {.group = group, .key = dl_bytes_of(key)};
    dl_secret *secret = NULL;

    if (token != NULL) {
        CHECK_OK(dl_secret_new(dl_bytes_of(token), &secret));
    }
    mac.secret = secret;
    return mac;
}

static void
drop(dl_record_mac *mac)
{
    dl_secret_unref((dl_secret *)mac->secret);
}

/* Whether the reader takes what the writer has put. */
static dl_status
pass(dl_record_mac writer, dl_record_mac reader)
{
    const dl_bytes record = DL_LITERAL("a record");
    dl_buffer buffer = {0};
    dl_bytes got;

    CHECK_OK(dl_record_mac_put(&buffer, &writer, record));
    dl_status status = dl_record_mac_take(dl_buffer_bytes(&buffer), &reader, &got);
    CHECK(status != DL_OK || dl_bytes_equal(got, record));
    dl_buffer_fini(&buffer);
    drop(&writer);
    drop(&reader);
    return status;
}

CHECK_CASE(a_record_is_for_one_group_and_key)
{
    CHECK_OK(pass(mac_of("t", "g", "cpu/1"), mac_of("t", "g", "cpu/1")));
    CHECK_STATUS(pass(mac_of("t", "g", "cpu/1"), mac_of("t", "g", "cpu/2")), DL_DENIED);
    CHECK_STATUS(pass(mac_of("t", "g", "cpu/1"), mac_of("t", "h", "cpu/1")), DL_DENIED);
    CHECK_STATUS(pass(mac_of("t", "gc", "pu/1"), mac_of("t", "g", "cpu/1")), DL_DENIED);
    CHECK_OK(pass(mac_of(NULL, "g", "cpu/1"), mac_of(NULL, "h", "cpu/2")));
}

CHECK_CASE(tokens_have_to_be_the_same)
{
    CHECK_STATUS(pass(mac_of("a", "g", "k"), mac_of("b", "g", "k")), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "not written with this job's token");
    CHECK_STATUS(pass(mac_of(NULL, "g", "k"), mac_of("b", "g", "k")), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "without this job's token");
    CHECK_STATUS(pass(mac_of("a", "g", "k"), mac_of(NULL, "g", "k")), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "this process has none");
}

CHECK_CASE(every_bit_counts)
{
    dl_record_mac mac = mac_of("t", "g", "k");
    dl_buffer buffer = {0};
    dl_bytes got;

    CHECK_OK(dl_record_mac_put(&buffer, &mac, DL_LITERAL("r")));
    for (size_t i = 0; i < 8 * buffer.size; i++) {
        buffer.data[i / 8] ^= (uint8_t)(1u << i % 8);
        CHECK_STATUS(dl_record_mac_take(dl_buffer_bytes(&buffer), &mac, &got),
                     DL_DENIED);
        buffer.data[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    for (size_t size = 0; size < buffer.size; size++) {
        CHECK_STATUS(dl_record_mac_take((dl_bytes){buffer.data, size}, &mac, &got),
                     DL_DENIED);
    }
    CHECK_OK(dl_record_mac_take(dl_buffer_bytes(&buffer), &mac, &got));
    dl_buffer_fini(&buffer);
    drop(&mac);
}
