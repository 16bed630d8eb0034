/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/answer.h"

#include "store/tcp/waiting.h"

/* Each answers one kind of request.  On failure nothing has been put; dl_answer() puts
 * the error. */
typedef dl_status (*answer_fn)(dl_session *session, const dl_request *request);

/* Where the plain reply goes. */
static dl_output *
begin_reply(dl_session *session, const dl_request *request)
{
    if (request->is_checked) {
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    return session->output;
}

static void
reply_byte(dl_session *session, const dl_request *request, uint8_t byte)
{
    dl_put_u8(&begin_reply(session, request)->bytes, byte);
}

static void
reply_number(dl_session *session, const dl_request *request, int64_t number)
{
    dl_put_i64(&begin_reply(session, request)->bytes, number);
}

static dl_table *
table_of(dl_session *session)
{
    return &session->hub->table;
}

static dl_status
answer_set(dl_session *session, const dl_request *request)
{
    if (request->blob != NULL) {
        DL_TRY(dl_table_set_blob(table_of(session), request->key, request->blob));
    } else {
        DL_TRY(dl_table_set(table_of(session), request->key, request->value));
    }
    begin_reply(session, request);
    return DL_OK;
}

static dl_status
answer_compare_set(dl_session *session, const dl_request *request)
{
    dl_blob *held;

    DL_TRY(dl_table_compare_set(table_of(session), request->key, request->expected,
                                request->value, &held));
    dl_output *output = begin_reply(session, request);
    /* Torch's clients take the echo of what they expected for "there is no such key". */
    if (held != NULL) {
        dl_output_put_value(output, held);
    } else {
        dl_put_bytes(&output->bytes, request->expected);
    }
    return DL_OK;
}

static dl_status
fail_absent(dl_bytes key)
{
    return dl_fail(DL_NOT_FOUND, "key is absent: %.*s", (int)key.size,
                   (const char *)key.data);
}

static dl_status
answer_get(dl_session *session, const dl_request *request)
{
    dl_blob *value = dl_table_get(table_of(session), request->key);

    /* A plain reply has no way to say "absent": torch's server answers nothing, too. */
    if (value == NULL && request->is_checked) {
        return fail_absent(request->key);
    }
    dl_output_put_value(begin_reply(session, request), value);
    return DL_OK;
}

static dl_status
answer_add(dl_session *session, const dl_request *request)
{
    int64_t sum;

    DL_TRY(dl_table_add(table_of(session), request->key, request->number, &sum));
    reply_number(session, request, sum);
    return DL_OK;
}

static bool
is_hello(const dl_request *request)
{
    dl_reader items = request->items;

    return request->count == 1
           && dl_bytes_equal(dl_wire_take_item(&items), DL_LITERAL(DL_WIRE_HELLO));
}

static dl_status
answer_check(dl_session *session, const dl_request *request)
{
    dl_reader items = request->items;
    bool exist = true;

    /* Key by key, straight from the request: an array of them all would be as large as
     * the request itself. */
    for (size_t i = 0; i < request->count && exist; i++) {
        dl_bytes key = dl_wire_take_item(&items);
        exist = dl_table_check(table_of(session), &key, 1);
    }
    exist = exist || is_hello(request);
    reply_byte(session, request, exist ? DL_WIRE_READY : DL_WIRE_NOT_READY);
    return DL_OK;
}

static dl_status
answer_num_keys(dl_session *session, const dl_request *request)
{
    reply_number(session, request, dl_table_num_keys(table_of(session)));
    return DL_OK;
}

static dl_status
answer_delete_key(dl_session *session, const dl_request *request)
{
    reply_number(session, request, dl_table_delete(table_of(session), request->key));
    return DL_OK;
}

static dl_status
answer_append(dl_session *session, const dl_request *request)
{
    DL_TRY(dl_table_append(table_of(session), request->key, request->value));
    begin_reply(session, request);
    return DL_OK;
}

static dl_status
check_all_have_values(dl_session *session, const dl_request *request)
{
    dl_reader items = request->items;

    for (size_t i = 0; i < request->count; i++) {
        dl_bytes key = dl_wire_take_item(&items);
        if (dl_table_get(table_of(session), key) == NULL) {
            return fail_absent(key);
        }
    }
    return DL_OK;
}

static dl_status
answer_multi_get(dl_session *session, const dl_request *request)
{
    dl_reader items = request->items;

    /* The status comes first, and cannot be taken back. */
    if (request->is_checked) {
        DL_TRY(check_all_have_values(session, request));
    }
    dl_output *output = begin_reply(session, request);
    for (size_t i = 0; i < request->count; i++) {
        dl_bytes key = dl_wire_take_item(&items);
        dl_output_put_value(output, dl_table_get(table_of(session), key));
    }
    return DL_OK;
}

static dl_status
answer_multi_set(dl_session *session, const dl_request *request)
{
    dl_reader items = request->items;

    for (size_t i = 0; i < request->count; i++) {
        dl_bytes key = dl_wire_take_item(&items);
        dl_bytes value = dl_wire_take_item(&items);
        DL_TRY(dl_table_set(table_of(session), key, value));
    }
    begin_reply(session, request);
    return DL_OK;
}

static dl_status
answer_ping(dl_session *session, const dl_request *request)
{
    dl_put_u32(&begin_reply(session, request)->bytes, (uint32_t)request->number);
    return DL_OK;
}

static dl_status
answer_queue_push(dl_session *session, const dl_request *request)
{
    DL_TRY(dl_table_queue_push(table_of(session), request->key, request->value));
    begin_reply(session, request);
    return DL_OK;
}

static dl_status
answer_queue_pop(dl_session *session, const dl_request *request)
{
    dl_blob *item = NULL;

    reply_number(session, request,
                 dl_table_queue_pop(table_of(session), request->key, &item));
    if (item != NULL) {
        /* The size before the pop tells that a value follows, even an empty one. */
        dl_output_put_value(session->output, item);
        dl_blob_unref(item);
    }
    return DL_OK;
}

static dl_status
answer_queue_len(dl_session *session, const dl_request *request)
{
    reply_number(session, request,
                 dl_table_queue_size(table_of(session), request->key));
    return DL_OK;
}

static dl_status
put_listed(void *bytes, dl_bytes key)
{
    dl_put_bytes(bytes, key);
    return DL_OK;
}

static dl_status
answer_list_keys(dl_session *session, const dl_request *request)
{
    reply_number(session, request, dl_table_num_keys(table_of(session)));
    return dl_table_list(table_of(session), put_listed, &session->output->bytes);
}

static dl_status
answer_cancel_wait(dl_session *session, const dl_request *request)
{
    dl_waiting_leave(session);
    reply_byte(session, request, DL_WIRE_CANCELLED);
    return DL_OK;
}

static const answer_fn answers[DL_OP_COUNT] = {
    [DL_OP_SET] = answer_set,
    [DL_OP_COMPARE_SET] = answer_compare_set,
    [DL_OP_GET] = answer_get,
    [DL_OP_ADD] = answer_add,
    [DL_OP_CHECK] = answer_check,
    [DL_OP_WAIT] = dl_waiting_begin,
    [DL_OP_NUM_KEYS] = answer_num_keys,
    [DL_OP_DELETE_KEY] = answer_delete_key,
    [DL_OP_APPEND] = answer_append,
    [DL_OP_MULTI_GET] = answer_multi_get,
    [DL_OP_MULTI_SET] = answer_multi_set,
    [DL_OP_CANCEL_WAIT] = answer_cancel_wait,
    [DL_OP_PING] = answer_ping,
    [DL_OP_QUEUE_PUSH] = answer_queue_push,
    [DL_OP_QUEUE_POP] = answer_queue_pop,
    [DL_OP_QUEUE_LEN] = answer_queue_len,
    [DL_OP_LIST_KEYS] = answer_list_keys,
    [DL_OP_BARRIER] = dl_waiting_barrier,
};

dl_status
dl_answer(dl_session *session, const dl_request *request)
{
    if (dl_session_open_output(session) == NULL) {
        dl_blob_unref(request->blob);
        return dl_fail_no_memory();
    }
    dl_waiting_use_turn(session, request);
    /* Nothing is put before it is certain, so that an error can be put instead. */
    dl_status status = answers[request->op](session, request);
    if (status != DL_OK && request->is_checked) {
        dl_wire_put_error(&session->output->bytes);
        status = DL_OK;
    }
    /* After each request and not each round of input, so that the answer to a wait comes
     * before that to a later request to cancel it. */
    dl_waiting_end(session->hub);
    return status;
}
