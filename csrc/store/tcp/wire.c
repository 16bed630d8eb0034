/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/wire.h"

#include <inttypes.h>

#define FIELDS_MAX 4 /* the longest layout and its end */

/* What may follow an opcode, in the order of the layout. */
typedef enum field_kind {
    FIELD_END = 0, /* zeroed entries end a layout */
    FIELD_U32,
    FIELD_I64,
    FIELD_KEY,
    FIELD_EXPECTED,
    FIELD_VALUE,
    FIELD_COUNT,
    FIELD_KEYS,  /* `count` keys */
    FIELD_PAIRS, /* `count` times a key and a value */
} field_kind;

typedef struct layout {
    const char *name;
    field_kind fields[FIELDS_MAX];
} layout;

static const layout layouts[DL_OP_COUNT] = {
    [DL_OP_VALIDATE] = {"VALIDATE", {FIELD_U32}},
    [DL_OP_SET] = {"SET", {FIELD_KEY, FIELD_VALUE}},
    [DL_OP_COMPARE_SET] = {"COMPARE_SET", {FIELD_KEY, FIELD_EXPECTED, FIELD_VALUE}},
    [DL_OP_GET] = {"GET", {FIELD_KEY}},
    [DL_OP_ADD] = {"ADD", {FIELD_KEY, FIELD_I64}},
    [DL_OP_CHECK] = {"CHECK", {FIELD_COUNT, FIELD_KEYS}},
    [DL_OP_WAIT] = {"WAIT", {FIELD_COUNT, FIELD_KEYS}},
    [DL_OP_NUM_KEYS] = {"GETNUMKEYS", {FIELD_END}},
    [DL_OP_DELETE_KEY] = {"DELETE_KEY", {FIELD_KEY}},
    [DL_OP_APPEND] = {"APPEND", {FIELD_KEY, FIELD_VALUE}},
    [DL_OP_MULTI_GET] = {"MULTI_GET", {FIELD_COUNT, FIELD_KEYS}},
    [DL_OP_MULTI_SET] = {"MULTI_SET", {FIELD_COUNT, FIELD_PAIRS}},
    [DL_OP_CANCEL_WAIT] = {"CANCEL_WAIT", {FIELD_END}},
    [DL_OP_PING] = {"PING", {FIELD_U32}},
    [DL_OP_QUEUE_PUSH] = {"QUEUE_PUSH", {FIELD_KEY, FIELD_VALUE}},
    [DL_OP_QUEUE_POP] = {"QUEUE_POP", {FIELD_KEY}},
    [DL_OP_QUEUE_LEN] = {"QUEUE_LEN", {FIELD_KEY}},
    [DL_OP_LIST_KEYS] = {"LIST_KEYS", {FIELD_END}},
    [DL_OP_BARRIER] = {"BARRIER", {FIELD_KEY, FIELD_I64}},
};

const char *
dl_wire_op_name(dl_opcode op)
{
    return (unsigned)op < DL_OP_COUNT ? layouts[op].name : "unknown request";
}

static void
put_key(dl_buffer *out, dl_bytes key, dl_bytes prefix)
{
    dl_put_u64(out, prefix.size + key.size);
    dl_buffer_put(out, prefix);
    dl_buffer_put(out, key);
}

static void
put_items(dl_buffer *out, const dl_request *request, dl_bytes prefix)
{
    for (size_t i = 0; i < request->count; i++) {
        put_key(out, request->keys[i], prefix);
        if (request->op == DL_OP_MULTI_SET) {
            dl_put_bytes(out, request->values[i]);
        }
    }
}

static void
put_field(dl_buffer *out, field_kind field, const dl_request *request, dl_bytes prefix)
{
    switch (field) {
    case FIELD_END:
        break;
    case FIELD_U32:
        dl_put_u32(out, (uint32_t)request->number);
        break;
    case FIELD_I64:
        dl_put_i64(out, request->number);
        break;
    case FIELD_KEY:
        put_key(out, request->key, prefix);
        break;
    case FIELD_EXPECTED:
        dl_put_bytes(out, request->expected);
        break;
    case FIELD_VALUE:
        dl_put_bytes(out, request->value);
        break;
    case FIELD_COUNT:
        dl_put_u64(out, request->count);
        break;
    case FIELD_KEYS:
    case FIELD_PAIRS:
        put_items(out, request, prefix);
        break;
    }
}

static void
put_opcode(dl_buffer *out, const dl_request *request)
{
    dl_put_u8(out,
              (uint8_t)(request->op | (request->is_checked ? DL_WIRE_CHECKED : 0)));
}

void
dl_wire_put_request(dl_buffer *out, const dl_request *request, dl_bytes key_prefix)
{
    const field_kind *field = layouts[request->op].fields;

    put_opcode(out, request);
    for (; *field != FIELD_END; field++) {
        put_field(out, *field, request, key_prefix);
    }
}

void
dl_wire_put_request_head(dl_buffer *out, const dl_request *request, dl_bytes key_prefix)
{
    put_opcode(out, request);
    put_key(out, request->key, key_prefix);
    dl_put_u64(out, request->value.size);
}

void
dl_wire_put_error(dl_buffer *out)
{
    const dl_error *error = dl_last_error();

    dl_put_u8(out, (uint8_t)error->status);
    dl_put_bytes(out, dl_bytes_of(error->text));
}
