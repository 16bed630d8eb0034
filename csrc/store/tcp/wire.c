/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/wire.h"

#include <inttypes.h>
#include <string.h>

static bool
has_pairs(dl_opcode op)
{
    return dl_request_kinds[op].fields[1] == DL_FIELD_PAIRS;
}

/* The prefix is a parameter because the caller would have to copy every key to add
 * it. */
static void
put_key(dl_buffer *out, dl_bytes key, dl_bytes prefix)
{
    dl_put_u64(out, prefix.size + key.size);
    dl_buffer_put(out, prefix);
    dl_buffer_put(out, key);
}

/* The key of a hello: the text, the slot's id and its sequence number. */
#define HELLO_TEXT_SIZE (sizeof DL_WIRE_HELLO - 1)
#define HELLO_SIZE (HELLO_TEXT_SIZE + DL_SLOT_ID_SIZE + sizeof(uint64_t))

void
dl_wire_put_hello(dl_buffer *out, const dl_slot *slot)
{
    dl_put_u8(out, DL_OP_CHECK);
    dl_put_u64(out, 1);
    dl_put_u64(out, HELLO_SIZE);
    dl_buffer_put(out, DL_LITERAL(DL_WIRE_HELLO));
    dl_buffer_put(out, (dl_bytes){slot->id, DL_SLOT_ID_SIZE});
    dl_put_u64(out, slot->sequence);
}

bool
dl_wire_take_hello(const dl_store_request *request, dl_slot *slot)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    if (request->op != DL_OP_CHECK || request->is_checked || request->count != 1
        || !dl_key_walk_next(&walk, &key, NULL) || key.size != HELLO_SIZE
        || !dl_bytes_start_with(key, DL_LITERAL(DL_WIRE_HELLO))) {
        return false;
    }
    dl_reader reader = dl_reader_of((dl_bytes){
        key.data + HELLO_TEXT_SIZE + DL_SLOT_ID_SIZE, sizeof slot->sequence});
    memcpy(slot->id, key.data + HELLO_TEXT_SIZE, DL_SLOT_ID_SIZE);
    return dl_take_u64(&reader, &slot->sequence);
}

void
dl_wire_put_welcome(dl_buffer *out, const dl_wire_welcome *welcome)
{
    dl_put_u8(out, DL_WIRE_READY);
    dl_buffer_put(out, (dl_bytes){welcome->identity, DL_IDENTITY_SIZE});
    dl_put_u8(out, welcome->is_remembered);
    dl_put_u32(out, welcome->shortcut.port);
    dl_buffer_put(
        out, (dl_bytes){(const uint8_t *)welcome->shortcut.name, DL_LOCAL_NAME_SIZE});
}

void
dl_wire_take_welcome(const uint8_t *bytes, dl_wire_welcome *welcome)
{
    const uint8_t *name = bytes + DL_WIRE_WELCOME_SIZE - DL_LOCAL_NAME_SIZE;
    dl_reader reader = dl_reader_of((dl_bytes){bytes + DL_IDENTITY_SIZE, 1 + 4});
    uint8_t is_remembered;
    uint32_t port;

    *welcome = (dl_wire_welcome){0};
    memcpy(welcome->identity, bytes, DL_IDENTITY_SIZE);
    dl_take_u8(&reader, &is_remembered);
    welcome->is_remembered = is_remembered != 0;
    dl_take_u32(&reader, &port);
    if (dl_local_service_is_name((dl_bytes){name, DL_LOCAL_NAME_SIZE - 1})) {
        memcpy(welcome->shortcut.name, name, DL_LOCAL_NAME_SIZE - 1);
        welcome->shortcut.port = (uint16_t)port;
    }
}

static void
put_field(dl_buffer *out, dl_request_field field, const dl_store_request *request,
          dl_bytes prefix)
{
    switch (field) {
    case DL_FIELD_END:
        break;
    case DL_FIELD_U32:
        dl_put_u32(out, (uint32_t)request->number);
        break;
    case DL_FIELD_I64:
        dl_put_i64(out, request->number);
        break;
    case DL_FIELD_KEY:
        put_key(out, request->key, prefix);
        break;
    case DL_FIELD_EXPECTED:
        dl_put_bytes(out, request->expected);
        break;
    case DL_FIELD_VALUE:
        dl_put_u64(out, request->value.size); /* the last field: the bytes follow */
        break;
    case DL_FIELD_COUNT:
        dl_put_u64(out, request->count);
        break;
    case DL_FIELD_KEYS:
    case DL_FIELD_PAIRS:
        for (size_t i = 0; i < request->count; i++) {
            put_key(out, request->keys[i], prefix);
            if (field == DL_FIELD_PAIRS) {
                dl_put_bytes(out, request->values[i]);
            }
        }
        break;
    }
}

bool
dl_wire_put_request_head(dl_buffer *out, const dl_store_request *request,
                         dl_bytes key_prefix)
{
    const dl_request_field *field = dl_request_kinds[request->op].fields;
    bool has_value = false;

    dl_put_u8(out,
              (uint8_t)(request->op | (request->is_checked ? DL_WIRE_CHECKED : 0)));
    for (; *field != DL_FIELD_END; field++) {
        put_field(out, *field, request, key_prefix);
        has_value = *field == DL_FIELD_VALUE;
    }
    return has_value;
}

void
dl_wire_put_request(dl_buffer *out, const dl_store_request *request,
                    dl_bytes key_prefix)
{
    if (dl_wire_put_request_head(out, request, key_prefix)) {
        dl_buffer_put(out, request->value);
    }
}

void
dl_wire_put_error(dl_buffer *out)
{
    const dl_error *error = dl_last_error();

    dl_put_u8(out, (uint8_t)error->status);
    dl_put_bytes(out, dl_bytes_of(error->text));
}

const dl_proof_terms dl_wire_proof = {
    .protocol = "distlite store 1",
    .asked = "this store asks for the job's token",
    .wrong = "the token is not the one of this store",
};

void
dl_wire_put_refusal(dl_buffer *out, uint8_t first)
{
    if ((first & DL_WIRE_CHECKED) != 0) {
        dl_wire_put_error(out);
    } else {
        dl_put_u32(out, DL_WIRE_PROOF_REQUIRED);
        dl_put_bytes(out, dl_bytes_of(dl_last_error()->text));
    }
}

/* The decoding functions below return 1, 0 or -1 as dl_take_bytes() does.  They are
 * called again when there are more bytes, with the cursor at the field that was
 * incomplete, so that no field is decoded twice (except for the eight bytes of its
 * size). */

static int
take_opcode(dl_reader *reader, dl_store_request *request)
{
    uint8_t byte;

    if (!dl_take_u8(reader, &byte)) {
        return 0;
    }
    request->op = (dl_opcode)(byte & ~DL_WIRE_CHECKED);
    request->is_checked = (byte & DL_WIRE_CHECKED) != 0;
    /* Torch's protocol may give this number to a plain request of its own later. */
    bool is_foreign = request->op >= DL_OP_FIRST_OWN && !request->is_checked;
    if (request->op >= DL_OP_COUNT || is_foreign) {
        dl_fail(DL_PROTOCOL, "unknown request 0x%02x", byte);
        return -1;
    }
    return 1;
}

/* Takes a key or a value, or sets how many bytes are needed for it. */
static int
take_blob(dl_wire_cursor *cursor, dl_reader *reader, bool is_key, dl_bytes *blob,
          const dl_store_request *request)
{
    size_t limit = is_key ? DL_WIRE_KEY_LIMIT : DL_WIRE_VALUE_LIMIT;
    dl_reader probe = *reader;
    uint64_t size = 0;
    int taken = dl_take_bytes(reader, limit, blob);

    if (taken == 1) {
        return 1;
    }
    bool has_size = dl_take_u64(&probe, &size);
    cursor->needed = cursor->position + sizeof size + (has_size ? (size_t)size : 0);
    if (taken < 0) {
        dl_fail(DL_INVALID, "%s: %s of %" PRIu64 " bytes, the limit is %zu",
                dl_request_kinds[request->op].wire_name, is_key ? "key" : "value", size,
                limit);
    }
    return taken;
}

static int
take_number(dl_wire_cursor *cursor, dl_reader *reader, size_t size, int64_t *number)
{
    uint32_t narrow;

    cursor->needed = cursor->position + size;
    if (size == sizeof *number) {
        return dl_take_i64(reader, number);
    }
    if (!dl_take_u32(reader, &narrow)) {
        return 0;
    }
    *number = narrow;
    return 1;
}

static int
take_count(dl_wire_cursor *cursor, dl_reader *reader, dl_store_request *request)
{
    uint64_t count;

    cursor->needed = cursor->position + sizeof count;
    if (!dl_take_u64(reader, &count)) {
        return 0;
    }
    if (count > DL_WIRE_KEYS_LIMIT) {
        dl_fail(DL_INVALID, "%s: %" PRIu64 " keys, the limit is %u",
                dl_request_kinds[request->op].wire_name, count, DL_WIRE_KEYS_LIMIT);
        return -1;
    }
    /* Nothing is allocated for the announced keys, which may never arrive. */
    cursor->count = (uint32_t)count;
    cursor->left = cursor->count * (has_pairs(request->op) ? 2 : 1);
    cursor->items = cursor->position + sizeof count;
    return 1;
}

/* Checks keys, or keys and values in turn.  They are not stored, since there may be
 * many: request->items points to them. */
static int
take_items(dl_wire_cursor *cursor, dl_reader *reader, const dl_store_request *request)
{
    dl_bytes item;

    while (cursor->left > 0) {
        const uint8_t *start = reader->next;
        bool is_value = has_pairs(request->op) && cursor->left % 2 == 1;
        int taken = take_blob(cursor, reader, !is_value, &item, request);
        if (taken != 1) {
            return taken;
        }
        cursor->position += (size_t)(reader->next - start);
        cursor->left--;
    }
    return 1;
}

static int
take_field(dl_wire_cursor *cursor, dl_request_field field, dl_reader *reader,
           dl_store_request *request)
{
    switch (field) {
    case DL_FIELD_U32:
        return take_number(cursor, reader, 4, &request->number);
    case DL_FIELD_I64:
        return take_number(cursor, reader, 8, &request->number);
    case DL_FIELD_KEY:
        return take_blob(cursor, reader, true, &request->key, request);
    case DL_FIELD_EXPECTED:
        return take_blob(cursor, reader, false, &request->expected, request);
    case DL_FIELD_VALUE:
        return take_blob(cursor, reader, false, &request->value, request);
    case DL_FIELD_COUNT:
        return take_count(cursor, reader, request);
    case DL_FIELD_KEYS:
    case DL_FIELD_PAIRS:
        return take_items(cursor, reader, request);
    case DL_FIELD_END:
        break;
    }
    return 1;
}

static int
take_fields(dl_wire_cursor *cursor, dl_bytes bytes, dl_store_request *request)
{
    const dl_request_field *fields = dl_request_kinds[request->op].fields;
    dl_reader reader = {bytes.data + cursor->position, bytes.data + bytes.size};

    while (fields[cursor->field] != DL_FIELD_END) {
        int taken = take_field(cursor, fields[cursor->field], &reader, request);
        if (taken != 1) {
            return taken;
        }
        cursor->position = (size_t)(reader.next - bytes.data);
        cursor->field++;
    }
    request->count = cursor->count;
    if (cursor->items > 0) {
        request->items = (dl_reader){bytes.data + cursor->items, reader.next};
    }
    return 1;
}

int
dl_wire_take_request(dl_wire_cursor *cursor, dl_bytes bytes, dl_store_request *request)
{
    dl_reader reader = dl_reader_of(bytes);
    bool is_fresh = cursor->position == 0;

    *request = (dl_store_request){0};
    int taken = take_opcode(&reader, request);
    if (taken != 1) {
        return taken;
    }
    /* A client that sends single bytes then costs one comparison for each. */
    if (is_fresh) {
        cursor->position = 1;
    } else if (bytes.size < cursor->needed) {
        return 0;
    }
    taken = take_fields(cursor, bytes, request);
    if (taken != 1 || is_fresh) {
        return taken;
    }
    if (cursor->items == 0) {
        /* Fields that earlier calls decoded point to where the bytes were then. */
        *cursor = (dl_wire_cursor){.position = 1};
        take_fields(cursor, bytes, request);
    }
    return 1;
}

bool
dl_wire_take_head(dl_bytes bytes, dl_store_request *request, size_t *head_size,
                  size_t *value_size)
{
    dl_reader reader = dl_reader_of(bytes);
    uint64_t size;

    if (take_opcode(&reader, request) != 1 || request->op != DL_OP_SET
        || dl_take_bytes(&reader, DL_WIRE_KEY_LIMIT, &request->key) != 1
        || !dl_take_u64(&reader, &size) || size > DL_WIRE_VALUE_LIMIT) {
        return false;
    }
    *head_size = bytes.size - dl_reader_left(&reader);
    *value_size = (size_t)size;
    return true;
}
