/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/answer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "store/execute.h"
#include "store/store.h"
#include "store/tcp/wire.h"

/* With a journal, replies in this output wait for dl_hub_commit(). */
dl_output *
dl_answer_output(dl_session *session)
{
    dl_hub *hub = session->hub;

    if (hub->journal != NULL && session->client.unsaved.next == NULL) {
        session->saved = dl_output_end(&session->output);
        dl_list_append(&hub->unsaved, &session->client.unsaved);
    }
    return &session->output;
}

/* Notes that the session has changed the table since `position`, so that its replies
 * depend on the journal. */
static void
note_change(dl_session *session, uint64_t position)
{
    dl_journal *journal = session->hub->journal;

    if (dl_journal_position(journal) != position) {
        session->client.has_changed = true;
        dl_journal_limit_recorded(journal);
    }
}

static dl_table *
table_of(dl_session *session)
{
    return &session->hub->table;
}

static void
reply_ready(dl_session *session)
{
    if (session->wait_is_checked) {
        dl_put_u8(&session->output.bytes, DL_OK);
    }
    dl_put_u8(&session->output.bytes, DL_WIRE_READY);
}

/* Answers a wait whose keys exist already; all others are answered by
 * end_wait(). */
static void
answer_if_over(dl_session *session, const dl_store_request *request)
{
    session->wait_is_checked = request->is_checked;
    if (!session->waiter.is_parked) {
        reply_ready(session);
        dl_buffer_fini(&session->waited);
    }
}

void
dl_answer_leave_wait(dl_session *session)
{
    dl_table_cancel(table_of(session), &session->waiter);
    dl_buffer_fini(&session->waited);
}

void
dl_answer_lose_slot(dl_session *session)
{
    if (session->slot != NULL) {
        dl_replies_lose(&session->hub->replies, table_of(session), session->slot,
                        dl_output_size(&session->output) > 0);
        session->slot = NULL;
    }
}

/* Ends the session of an older connection of the slot.  Requests that its client has
 * sent there must not be executed any more: the client repeats them on the new
 * connection. */
static void
replace_session(dl_session *old)
{
    dl_answer_leave_wait(old);
    old->slot = NULL;
    if (old->client.phase >= DL_PHASE_REPLACED) {
        return; /* it ends already, for another reason */
    }
    old->client.phase = DL_PHASE_REPLACED;
    dl_hub_mark(old->hub, &old->client);
}

/* Answers a hello: from here on the client's changes are those of the slot, or the
 * connection carries channels. */
static dl_status
answer_hello(dl_session *session, const dl_slot *named)
{
    dl_hub *hub = session->hub;
    dl_wire_welcome welcome = {.shortcut = hub->shortcut};

    dl_answer_lose_slot(session);
    memcpy(welcome.identity, hub->identity, sizeof welcome.identity);
    if (named->sequence == 0) {
        if (session->carrier != NULL) {
            return dl_fail(DL_PROTOCOL, "a relay behind a relay");
        }
        session->is_carrier = true;
        dl_wire_put_welcome(&session->output.bytes, &welcome);
        return DL_OK;
    }
    dl_reply_slot *slot =
        dl_replies_open(&hub->replies, &hub->table, named, &welcome.is_remembered);
    if (slot == NULL) {
        return dl_last_error()->status;
    }
    if (!welcome.is_remembered && named->sequence > 1) {
        hub->refused[DL_LIMIT_REPLIES]++; /* the client comes too late */
    }
    if (slot->session != NULL) {
        replace_session(slot->session);
    }
    slot->session = session;
    session->slot = slot;
    slot->next = named->sequence;
    dl_wire_put_welcome(&session->output.bytes, &welcome);
    return DL_OK;
}

/* Keeps the keys of a decoded WAIT, which have to outlive its bytes: an array, and behind
 * it the bytes. */
static dl_status
keep_keys(dl_session *session, const dl_store_request *request)
{
    dl_buffer *kept = &session->waited;
    size_t array_size = request->count * sizeof(dl_bytes);
    size_t size = dl_reader_left(&request->items);

    if (request->count == 0) {
        return DL_OK;
    }
    DL_TRY(dl_buffer_resize_capacity(kept, array_size + size));
    uint8_t *copy = kept->data + array_size;
    memcpy(copy, request->items.next, size);
    dl_reader items = dl_reader_of((dl_bytes){copy, size});
    dl_bytes *keys = (dl_bytes *)(void *)kept->data;
    for (size_t i = 0; i < request->count; i++) {
        keys[i] = dl_request_take_item(&items);
    }
    return DL_OK;
}

static dl_status
wait_for_keys(dl_session *session, const dl_store_request *request)
{
    dl_answer_leave_wait(session);
    DL_TRY(keep_keys(session, request));
    DL_TRY(dl_table_wait(table_of(session), &session->waiter, DL_WAIT_KEYS,
                         (dl_bytes *)(void *)session->waited.data, request->count));
    answer_if_over(session, request);
    return DL_OK;
}

/* `is_counted` tells that the client is counted in the barrier already: it repeats the
 * request on a new connection. */
static dl_status
wait_barrier(dl_session *session, const dl_store_request *request, bool is_counted)
{
    dl_answer_leave_wait(session);
    DL_TRY(dl_table_barrier(table_of(session), &session->waiter, request->key,
                            request->number, is_counted));
    if (session->slot != NULL) {
        session->slot->outcome =
            session->waiter.is_parked ? DL_OUTCOME_BEGUN : DL_OUTCOME_DONE;
    }
    answer_if_over(session, request);
    return DL_OK;
}

/* Notes that the barrier in which the slot's client waited is over. */
static dl_status
end_barrier(dl_session *session)
{
    dl_reply_slot *slot = session->slot;

    if (slot == NULL || slot->op != DL_OP_BARRIER
        || slot->outcome != DL_OUTCOME_BEGUN) {
        return DL_OK;
    }
    slot->outcome = DL_OUTCOME_DONE;
    return dl_replies_record(&session->hub->replies, slot);
}

static void
end_wait(dl_session *session)
{
    const dl_waiter *waiter = &session->waiter;

    if (session->client.phase > DL_PHASE_STALLED) {
        return; /* nothing more may be put into its output: it fails when resumed */
    }
    dl_buffer_fini(&session->waited);
    dl_buffer *reply = &dl_answer_output(session)->bytes;
    if (waiter->status != DL_OK && session->wait_is_checked) {
        dl_wire_put_error(reply);
    } else if (waiter->status == DL_OK
               && (waiter->kind != DL_WAIT_BARRIER || end_barrier(session) == DL_OK)) {
        reply_ready(session);
    } else {
        session->client.phase = DL_PHASE_OVER; /* reported by dl_session_resume() */
    }
    dl_hub_mark(session->hub, &session->client);
}

void
dl_answer_end_waits(dl_hub *hub)
{
    dl_waiter *waiter;

    while ((waiter = dl_table_take_ready(&hub->table)) != NULL) {
        end_wait(DL_LIST_ENTRY(waiter, dl_session, waiter));
    }
}

/* Puts the status of a checked request, and returns the output for the plain reply. */
static dl_output *
begin_reply(dl_session *session, const dl_store_request *request)
{
    if (request->is_checked) {
        dl_put_u8(&session->output.bytes, DL_OK);
    }
    return &session->output;
}

/* The reply to COMPARE_SET of an absent key is the expected value, as torch's server
 * answers; the reply to a plain GET of one is the empty value. */
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

static void
put_stats(const dl_session *session, dl_buffer *bytes)
{
    dl_buffer text = {0};

    dl_hub_put_stats(session->hub, &text);
    dl_put_bytes(bytes, dl_buffer_bytes(&text));
    bytes->has_failed |= text.has_failed;
    dl_buffer_fini(&text);
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
        /* A length before the pop other than 0 announces a value, even an empty one. */
        dl_put_i64(&output->bytes, reply->number);
        if (reply->value != NULL) {
            dl_output_put_value(output, reply->value);
            dl_blob_unref(reply->value);
        }
        break;
    case DL_REPLY_NAMES:
        dl_put_i64(&output->bytes, reply->number);
        (void)dl_table_put_names(table, &output->bytes);
        break;
    case DL_REPLY_CANCELLED:
        dl_put_u8(&output->bytes, DL_WIRE_CANCELLED);
        break;
    case DL_REPLY_STATS:
        put_stats(session, &output->bytes);
        break;
    case DL_REPLY_NONE:
    case DL_REPLY_OVER: /* put by answer_if_over() or end_wait() */
        break;
    }
}

/* Fails if a key has neither a value nor a queue.  Of one that has only a queue the
 * value is empty, as torch's server answers. */
static dl_status
need_names(const dl_table *table, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    while (dl_key_walk_next(&walk, &key, NULL)) {
        if (!dl_table_has(table, key)) {
            return dl_store_fail_absent(key);
        }
    }
    return DL_OK;
}

/* Executes the request on the table and maps the status to the wire's reply. */
static dl_status
execute_at_table(dl_session *session, const dl_store_request *request,
                 dl_table_reply *reply)
{
    dl_status status = dl_table_execute(&session->hub->table, request, reply);

    /* The reply is the length, which is 0. */
    if (status == DL_QUEUE_EMPTY) {
        return DL_OK;
    }
    /* A plain reply cannot report an absent key; torch's server sends an empty value,
     * too. */
    if (status == DL_NOT_FOUND) {
        return request->is_checked ? need_names(&session->hub->table, request) : DL_OK;
    }
    return status;
}

/* The changes of one request may be many times what the journal's buffer should hold. */
static dl_status
set_many(dl_session *session, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key, value;

    while (dl_key_walk_next(&walk, &key, &value)) {
        uint64_t position = dl_journal_position(session->hub->journal);
        DL_TRY(dl_journal_prepare(session->hub->journal, key));
        DL_TRY(dl_table_set(table_of(session), key, value));
        note_change(session, position);
    }
    return DL_OK;
}

/* Returns whether a comparison has failed, so that the key has another value. */
static bool
is_mismatch(const dl_store_request *request, const dl_table_reply *reply)
{
    return request->op == DL_OP_COMPARE_SET
           && (reply->value == NULL
               || !dl_bytes_equal(dl_blob_bytes(reply->value), request->value));
}

/* Executes the request and remembers the reply to a change.  One that has changed nothing
 * may be executed again, and no record of the journal has the value of its reply. */
static dl_status
execute_and_keep(dl_session *session, const dl_store_request *request,
                 dl_table_reply *reply)
{
    uint64_t position = dl_journal_position(session->hub->journal);

    DL_TRY(request->op == DL_OP_MULTI_SET ? set_many(session, request)
                                          : execute_at_table(session, request, reply));
    if (session->slot != NULL && dl_request_kinds[request->op].is_change
        && !is_mismatch(request, reply)
        && (session->hub->journal == NULL
            || dl_journal_position(session->hub->journal) != position)) {
        dl_replies_keep(&session->hub->replies, table_of(session), session->slot,
                        reply);
    }
    return DL_OK;
}

/* Puts nothing before the request has succeeded, so that the caller can put an
 * error. */
static dl_status
execute_or_wait(dl_session *session, const dl_store_request *request)
{
    dl_table_reply reply = {0};
    dl_slot hello;

    if (dl_request_kinds[request->op].is_change
        && dl_journal_prepare(session->hub->journal, request->key) != DL_OK) {
        dl_blob_unref(request->blob);
        return dl_last_error()->status;
    }
    if (request->op == DL_OP_CHECK && dl_wire_take_hello(request, &hello)) {
        return answer_hello(session, &hello);
    }
    switch (request->op) {
    case DL_OP_WAIT:
        return wait_for_keys(session, request);
    case DL_OP_BARRIER:
        return wait_barrier(session, request, false);
    case DL_OP_CANCEL_WAIT:
        dl_answer_leave_wait(session);
        break;
    case DL_OP_PING:
        break;
    default:
        DL_TRY(execute_and_keep(session, request, &reply));
    }
    put_reply(session, request, &reply);
    return DL_OK;
}

/* Answers a change that is repeated with what is known of it. */
static dl_status
repeat_reply(dl_session *session, const dl_store_request *request)
{
    dl_reply_slot *slot = session->slot;
    const dl_table_reply reply = {.number = slot->number, .value = slot->value};

    dl_blob_unref(request->blob);
    if (slot->op != request->op) {
        return dl_fail(DL_PROTOCOL, "%s repeats a change that was a %s",
                       dl_request_kinds[request->op].wire_name,
                       dl_request_kinds[slot->op].wire_name);
    }
    session->hub->replies.repeated++;
    /* The journal may lack the change itself. */
    session->client.has_changed |= dl_journal_has_failed(session->hub->journal);
    if (slot->outcome == DL_OUTCOME_FORGOTTEN) {
        session->hub->refused[DL_LIMIT_REPLIES]++;
        return dl_fail(DL_NETWORK,
                       "%s was done, but the store's server no longer remembers "
                       "its reply: it keeps at most %" PRIu64 " bytes of replies (an "
                       "eighth of DISTLITE_STORE_BYTES), for %d seconds",
                       dl_request_kinds[request->op].wire_name,
                       session->hub->limits.reply_bytes,
                       (int)(session->hub->limits.reply / DL_SECOND));
    }
    if (slot->outcome == DL_OUTCOME_BEGUN) {
        return wait_barrier(session, request, true);
    }
    if (request->op == DL_OP_BARRIER) {
        session->wait_is_checked = request->is_checked;
        reply_ready(session);
        return DL_OK;
    }
    /* It was done: the key had the desired value afterwards. */
    if (request->op == DL_OP_COMPARE_SET) {
        dl_put_bytes(&begin_reply(session, request)->bytes, request->value);
        return DL_OK;
    }
    if (request->op == DL_OP_QUEUE_POP && reply.value != NULL) {
        dl_blob_ref(reply.value); /* put_reply() drops one */
    }
    put_reply(session, request, &reply);
    return DL_OK;
}

/* Executes the next change of the slot, or repeats the reply to the latest one. */
static dl_status
answer_change(dl_session *session, const dl_store_request *request)
{
    dl_reply_slot *slot = session->slot;
    uint64_t sequence = session->slot->next++;

    dl_status status;

    if (sequence == slot->sequence && dl_replies_has_reply(slot)) {
        status = repeat_reply(session, request);
        if (slot->value != NULL) {
            /* A reply with a value has its record, behind that of its change.  Another
             * one here would refer to the change of somebody else. */
            return status;
        }
    } else {
        dl_replies_begin(&session->hub->replies, slot, sequence, request);
        status = execute_or_wait(session, request);
    }
    (void)dl_replies_record(&session->hub->replies, slot);
    return status;
}

static dl_status
answer_slotted(dl_session *session, const dl_store_request *request)
{
    if (dl_request_kinds[request->op].is_change) {
        return answer_change(session, request);
    }
    /* The client has read the reply to its last change, unless it is about to repeat
     * that. */
    if (session->slot->value != NULL && session->slot->next > session->slot->sequence) {
        dl_replies_drop_value(&session->hub->replies, session->slot);
        session->slot->outcome = DL_OUTCOME_FORGOTTEN;
    }
    return execute_or_wait(session, request);
}

dl_status
dl_answer_request(dl_session *session, const dl_store_request *request)
{
    dl_buffer *reply = &dl_answer_output(session)->bytes;

    session->hub->requests++;
    session->is_checked = request->is_checked;
    uint64_t position = dl_journal_position(session->hub->journal);
    dl_status status = session->slot != NULL ? answer_slotted(session, request)
                                             : execute_or_wait(session, request);
    if (dl_request_kinds[request->op].is_change) {
        note_change(session, position);
    }
    if (status != DL_OK && request->is_checked) {
        dl_wire_put_error(reply);
        status = DL_OK;
    }
    /* After each request and not after each round of input, so that the reply to a wait
     * precedes the reply to a later request that cancels it. */
    dl_answer_end_waits(session->hub);
    return status;
}
