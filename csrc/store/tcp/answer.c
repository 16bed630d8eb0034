/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/answer.h"

#include "store/execute.h"
#include "store/tcp/waiting.h"

/* Where the plain reply goes. */
static dl_output *
begin_reply(dl_session *session, const dl_store_request *request)
{
    if (request->is_checked) {
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    return session->output;
}

/* COMPARE_SET of an absent key is answered with what was expected, which torch's clients
 * take for "there is no such key"; a plain GET of one, with nothing. */
static void
put_value(dl_output *output, const dl_store_request *request, dl_blob *value)
{
    if (value != NULL) {
        dl_output_put_value(output, value);
    } else {
        dl_put_bytes(&output->bytes, request->expected);
    }
}

static void
put_values(dl_output *output, const dl_table *table, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    while (dl_key_walk_next(&walk, &key, NULL)) {
        dl_output_put_value(output, dl_table_get(table, key));
    }
}

static dl_status
put_name(void *bytes, dl_bytes name)
{
    dl_put_bytes(bytes, name);
    return DL_OK;
}

static void
put_reply(dl_session *session, const dl_store_request *request,
          const dl_table_reply *reply)
{
    const dl_table *table = &session->hub->table;
    dl_output *output = begin_reply(session, request);

    switch (dl_request_kinds[request->op].reply) {
    case DL_REPLY_ALL_EXIST:
        dl_put_u8(&output->bytes, reply->number ? DL_WIRE_READY : DL_WIRE_NOT_READY);
        break;
    case DL_REPLY_EXISTED:
    case DL_REPLY_NUMBER:
        dl_put_i64(&output->bytes, reply->number);
        break;
    case DL_REPLY_NONCE:
        dl_put_u32(&output->bytes, (uint32_t)request->number);
        break;
    case DL_REPLY_VALUE:
        put_value(output, request, reply->value);
        break;
    case DL_REPLY_VALUES:
        put_values(output, table, request);
        break;
    case DL_REPLY_ITEM:
        /* The length before the pop tells that a value follows, even an empty one. */
        dl_put_i64(&output->bytes, reply->number);
        if (reply->value != NULL) {
            dl_output_put_value(output, reply->value);
            dl_blob_unref(reply->value);
        }
        break;
    case DL_REPLY_NAMES:
        dl_put_i64(&output->bytes, reply->number);
        (void)dl_table_list(table, put_name, &output->bytes);
        break;
    case DL_REPLY_CANCELLED:
        dl_put_u8(&output->bytes, DL_WIRE_CANCELLED);
        break;
    case DL_REPLY_NONE:
    case DL_REPLY_OVER: /* put by dl_waiting_begin() or dl_waiting_end() */
        break;
    }
}

static bool
is_hello(const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    return request->op == DL_OP_CHECK && request->count == 1
           && dl_key_walk_next(&walk, &key, NULL)
           && dl_bytes_equal(key, DL_LITERAL(DL_WIRE_HELLO));
}

static dl_status
fail_absent(const dl_store_request *request, int64_t index)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key = {0};

    while (dl_key_walk_next(&walk, &key, NULL) && index-- > 0) {
    }
    return dl_fail(DL_NOT_FOUND, "key is absent: %.*s", (int)key.size,
                   (const char *)key.data);
}

/* The executor's answer as it goes over the wire. */
static dl_status
execute(dl_session *session, const dl_store_request *request, dl_table_reply *reply)
{
    dl_status status = dl_table_execute(&session->hub->table, request, reply);

    /* The length 0 is the whole reply. */
    if (status == DL_QUEUE_EMPTY) {
        return DL_OK;
    }
    /* A plain reply has no way to say "absent": torch's server answers nothing, too. */
    if (status == DL_NOT_FOUND) {
        return request->is_checked ? fail_absent(request, reply->number) : DL_OK;
    }
    if (status == DL_OK && is_hello(request)) {
        reply->number = 1;
    }
    return status;
}

/* Nothing is put before it is certain, so that an error can be put instead. */
static dl_status
answer(dl_session *session, const dl_store_request *request)
{
    dl_table_reply reply = {0};

    switch (request->op) {
    case DL_OP_WAIT:
        return dl_waiting_begin(session, request);
    case DL_OP_BARRIER:
        return dl_waiting_barrier(session, request);
    case DL_OP_CANCEL_WAIT:
        dl_waiting_leave(session);
        break;
    case DL_OP_PING:
        break;
    default:
        DL_TRY(execute(session, request, &reply));
    }
    put_reply(session, request, &reply);
    return DL_OK;
}

dl_status
dl_answer(dl_session *session, const dl_store_request *request)
{
    if (dl_session_open_output(session) == NULL) {
        dl_blob_unref(request->blob);
        return dl_fail_no_memory();
    }
    dl_waiting_use_turn(session, request);
    dl_status status = answer(session, request);
    if (status != DL_OK && request->is_checked) {
        dl_wire_put_error(&session->output->bytes);
        status = DL_OK;
    }
    /* After each request and not each round of input, so that the answer to a wait comes
     * before that to a later request to cancel it. */
    dl_waiting_end(session->hub);
    return status;
}
