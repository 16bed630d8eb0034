/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first byte says in what steps the rest arrives.  However it is cut, the same
 * requests must come out, and each must be encoded back into the bytes it was. */
#include <stdlib.h>

#include "store/tcp/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* The items again as arrays, which encoding wants. */
static void
unpack_items(dl_store_request *request, dl_bytes **keys, dl_bytes **values)
{
    dl_reader items = request->items;

    *keys = calloc(request->count + 1, sizeof **keys);
    *values = calloc(request->count + 1, sizeof **values);
    require(*keys != NULL && *values != NULL);
    for (size_t i = 0; i < request->count; i++) {
        (*keys)[i] = dl_request_take_item(&items);
        if (request->op == DL_OP_MULTI_SET) {
            (*values)[i] = dl_request_take_item(&items);
        }
    }
    require(dl_reader_left(&items) == 0);
    request->keys = *keys;
    request->values = *values;
}

static void
check_encodes_back(dl_store_request *request, dl_bytes bytes)
{
    dl_buffer again = {0};
    dl_bytes *keys;
    dl_bytes *values;

    unpack_items(request, &keys, &values);
    dl_wire_put_request(&again, request, (dl_bytes){0});
    require(dl_buffer_check(&again) == DL_OK);
    require(dl_bytes_equal(dl_buffer_bytes(&again), bytes));
    dl_buffer_fini(&again);
    free(keys);
    free(values);
}

/* The answer of dl_wire_take_request() to bytes that come `step` at a time, each time in
 * memory of their own. */
static int
take_in_steps(dl_bytes bytes, size_t step, size_t *used)
{
    dl_wire_cursor cursor = {0};
    int taken = 0;

    for (size_t size = step; taken == 0; size += step) {
        size_t arrived = size < bytes.size ? size : bytes.size;
        uint8_t *copy = malloc(arrived + 1);
        dl_store_request request;
        require(copy != NULL);
        memcpy(copy, bytes.data, arrived);
        taken = dl_wire_take_request(&cursor, (dl_bytes){copy, arrived}, &request);
        if (taken == 1) {
            check_encodes_back(&request, (dl_bytes){copy, cursor.position});
        }
        free(copy);
        if (arrived == bytes.size) {
            break;
        }
        require(taken != 0 || cursor.needed > arrived || arrived == 0);
    }
    *used = cursor.position;
    return taken;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t step = 1 + data[0];
    dl_bytes bytes = {data + 1, size - 1};

    for (int taken = 1; taken == 1 && bytes.size > 0;) {
        dl_wire_cursor cursor = {0};
        dl_store_request request;
        size_t used = 0;
        taken = dl_wire_take_request(&cursor, bytes, &request);
        /* Quadratic, as this test copies: long inputs come in long steps. */
        size_t least = bytes.size / 64 + 1;
        require(take_in_steps(bytes, step < least ? least : step, &used) == taken);
        require(taken != 1 || used == cursor.position);
        bytes.data += taken == 1 ? used : 0;
        bytes.size -= taken == 1 ? used : 0;
    }
    return 0;
}
