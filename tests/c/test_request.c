/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/request.h"

#include "check.h"
#include "store/tcp/wire.h"

static const dl_bytes KEYS[] = {{(const uint8_t *)"a", 1}, {NULL, 0}};
static const dl_bytes VALUES[] = {{NULL, 0}, {(const uint8_t *)"yz", 2}};

static void
check_walk(const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key, value;

    for (size_t i = 0; i < 2; i++) {
        CHECK(dl_key_walk_next(&walk, &key, &value));
        CHECK(dl_bytes_equal(key, KEYS[i]));
        CHECK(dl_bytes_equal(value, VALUES[i]));
    }
    CHECK(!dl_key_walk_next(&walk, &key, &value));
}

CHECK_CASE(a_walk_is_the_same_before_and_after_the_wire)
{
    const dl_store_request sent = {
        .op = DL_OP_MULTI_SET, .count = 2, .keys = KEYS, .values = VALUES};
    dl_store_request got;
    dl_wire_cursor cursor = {0};
    dl_buffer bytes = {0};

    check_walk(&sent);
    dl_wire_put_request(&bytes, &sent, (dl_bytes){0});
    CHECK_EQUAL(dl_wire_take_request(&cursor, dl_buffer_bytes(&bytes), &got), 1);
    check_walk(&got);
    dl_buffer_fini(&bytes);
}

CHECK_CASE(a_walk_of_one_key_or_of_none)
{
    const dl_store_request get = {.op = DL_OP_GET, .key = DL_LITERAL("k")};
    const dl_store_request list = {.op = DL_OP_LIST_KEYS};
    dl_key_walk walk = dl_key_walk_begin(&get);
    size_t count;
    dl_bytes key;

    CHECK(dl_key_walk_next(&walk, &key, NULL));
    CHECK_BYTES(key, "k");
    CHECK(!dl_key_walk_next(&walk, &key, NULL));
    CHECK(dl_request_keys(&get, &count) == &get.key);
    CHECK_EQUAL(count, 1);
    walk = dl_key_walk_begin(&list);
    CHECK(!dl_key_walk_next(&walk, &key, NULL));
    (void)dl_request_keys(&list, &count);
    CHECK_EQUAL(count, 0);
}

/* Where a listing is cut to a prefix, which names are left and how many. */
CHECK_CASE(names_of_a_prefix_are_kept_without_it)
{
    dl_buffer names = {0};
    dl_store_reply reply = {.number = 4, .values = &names};
    const char *const all[] = {"P/a", "P", "Po/x", "P/"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        dl_put_bytes(&names, dl_bytes_of(all[i]));
    }
    CHECK_OK(dl_reply_keep_names(&reply, DL_LITERAL("P/")));
    CHECK_EQUAL(reply.number, 2);
    CHECK_BYTES(dl_buffer_bytes(&names), "\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0");
    dl_buffer_fini(&names);
}

/* What the rows promise each other. */
CHECK_CASE(rows_are_consistent)
{
    for (int op = 0; op < DL_OP_COUNT; op++) {
        const dl_request_kind *kind = &dl_request_kinds[op];
        CHECK(kind->wire_name != NULL);
        CHECK(kind->fields[DL_REQUEST_FIELDS_MAX - 1] == DL_FIELD_END);
        CHECK(
            (kind->fields[0] == DL_FIELD_COUNT)
            == (kind->fields[1] == DL_FIELD_KEYS || kind->fields[1] == DL_FIELD_PAIRS));
        CHECK(kind->reply != DL_REPLY_OVER || kind->may_wait);
        CHECK(kind->name != NULL || (!kind->may_wait && !kind->is_change));
    }
}
