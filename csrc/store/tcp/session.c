/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/session.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "store/execute.h"
#include "store/store.h"
#include "store/tcp/partial.h"
#include "store/tcp/wire.h"

/* The path of the bytes:
 *
 *     fed -> take_in -> serve -> answer -> session->output
 *               |         |
 *               |         +-> incomplete or held back -> partial -> serve_held
 *               +-> the middle of a large value -> partial -> serve_value
 *
 * A request over many keys becomes `current`; go_on() executes it in steps, and then
 * the requests that were held back behind it.
 *
 * A client of ours has a slot: answer_change() executes each of its changes once, and
 * repeat() answers one that is repeated on a new connection.
 *
 * settle() ends every call, whether it succeeded or failed. */

/* Returns the session's output, NULL when out of memory.  With a journal, what is put
 * there waits for dl_hub_save(). */
static dl_output *
open_output(dl_session *session)
{
    dl_hub *hub = session->hub;

    if (session->output == NULL) {
        session->output = dl_hub_take_output(hub);
    }
    if (hub->journal != NULL && session->output != NULL
        && session->unsaved.next == NULL) {
        session->saved = dl_output_end(session->output);
        dl_list_append(&hub->unsaved, &session->unsaved);
    }
    return session->output;
}

/* Notes that the session has changed the table since `position`, so that its replies
 * depend on the journal. */
static void
note_change(dl_session *session, uint64_t position)
{
    dl_journal *journal = session->hub->journal;

    if (journal != NULL && dl_journal_position(journal) != position) {
        session->has_changed = true;
        dl_journal_relieve(journal);
    }
}

static uint64_t
journal_position(const dl_session *session)
{
    const dl_journal *journal = session->hub->journal;

    return journal == NULL ? 0 : dl_journal_position(journal);
}

/* Bytes that each client may hold even when the total is above its limit, so that
 * clients with small requests are still served, and only those that cause the excess
 * are refused. */
#define PENDING_FREE (64u << 10)

static size_t
long_size(const dl_long_request *one)
{
    return one == NULL ? 0
                       : one->bytes.capacity + one->reply.bytes.capacity
                             + one->reply.values.capacity;
}

/* Updates the number of bytes that are held for the client, and the hub's total. */
static void
count_pending(dl_session *session)
{
    const dl_partial *partial = session->partial;
    const dl_output *output = session->output;
    size_t size = long_size(session->current) + long_size(session->waiting);
    size_t output_size =
        output == NULL ? 0 : output->bytes.capacity + output->values.capacity;

    if (partial != NULL) {
        size += partial->held.capacity
                + (partial->value != NULL ? partial->value->capacity : 0);
    }
    size += output_size;
    session->hub->pending += size - session->pending;
    session->pending = size;
    session->hub->pending_output += output_size - session->pending_output;
    session->pending_output = output_size;
}

static dl_status
limit_pending(dl_session *session)
{
    dl_hub *hub = session->hub;
    const dl_output *output = session->output;
    size_t before = session->pending;

    /* The usual client has nothing but a small reply, which is not counted. */
    if (before == 0 && session->partial == NULL && session->current == NULL
        && session->waiting == NULL
        && (output == NULL || output->bytes.capacity <= PENDING_FREE)) {
        return DL_OK;
    }
    count_pending(session);
    if (hub->pending <= hub->limits.pending || session->pending <= before
        || session->pending <= PENDING_FREE) {
        return DL_OK;
    }
    hub->refused[DL_LIMIT_PENDING]++;
    return dl_fail(DL_NO_MEMORY,
                   "the store's server holds %zu bytes of incomplete requests and "
                   "unread replies; its limit is %" PRIu64 " (DISTLITE_STORE_PENDING)",
                   hub->pending, hub->limits.pending);
}

void
dl_session_sent(dl_session *session, dl_output *output)
{
    /* A stalled session is marked and not served here: a client that asks for much and
     * reads fast would monopolise the server. */
    if (output == session->output) {
        session->output = NULL;
    }
    dl_hub_give_output(session->hub, output);
    if (session->pending > 0) {
        count_pending(session);
    }
    if (session->is_stalled) {
        dl_hub_mark(session);
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
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    dl_put_u8(&session->output->bytes, DL_WIRE_READY);
}

/* Answers a wait whose keys exist already; all others are answered by
 * dl_session_end_wait(). */
static void
answer_if_over(dl_session *session, const dl_store_request *request)
{
    session->wait_is_checked = request->is_checked;
    if (!session->waiter.is_parked) {
        reply_ready(session);
    }
}

static void
drop_long(dl_long_request **one)
{
    dl_long_free(*one);
    *one = NULL;
}

/* Cancels the session's wait and passes its turn on, if it has any. */
static void
leave_wait(dl_session *session)
{
    bool has_turn = session->turn != NULL && !session->waiter.is_parked;

    /* Cancelled before the turn is passed on, or this waiter might get it again. */
    dl_table_cancel(table_of(session), &session->waiter);
    drop_long(&session->waiting);
    session->is_waking = false;
    if (has_turn) {
        dl_table_queue_pass_on(table_of(session), dl_blob_bytes(session->turn));
    }
    dl_hub_end_turn(session);
}

/* Whether the slot's latest change is `op` and has begun in this session. */
static bool
has_begun(const dl_session *session, dl_opcode op)
{
    return session->slot != NULL && session->slot->op == op
           && session->slot->outcome == DL_OUTCOME_BEGUN;
}

/* The session cannot finish its MULTI_SET: the slot's next connection does, or the hub.
 * Others may have seen a part of it already. */
static void
pass_on_change(dl_session *session)
{
    dl_long_request *one = session->current;

    if (one != NULL && one->walk.request != NULL
        && has_begun(session, one->request.op)) {
        dl_replies_take_unfinished(&session->hub->replies, session->slot, one);
        session->current = NULL;
    }
}

static void
lose_slot(dl_session *session)
{
    const dl_output *output = session->output;

    if (session->slot != NULL) {
        pass_on_change(session);
        dl_replies_lose(&session->hub->replies, table_of(session), session->slot,
                        output != NULL && dl_output_size(output) > 0);
        session->slot = NULL;
    }
}

/* Ends the session of an older connection of the slot.  What its client has sent there
 * must not be executed any more: the client repeats it here. */
static void
replace(dl_session *old)
{
    pass_on_change(old);
    leave_wait(old);
    old->slot = NULL;
    old->is_replaced = true;
    dl_hub_mark(old);
}

static dl_status
fail_replaced(void)
{
    return dl_fail(DL_CLOSED, "its client has replaced the connection by a new one");
}

/* Answers a hello: from here on the client's changes are those of the slot. */
static dl_status
welcome(dl_session *session, const dl_slot *named)
{
    dl_hub *hub = session->hub;
    bool is_remembered;

    lose_slot(session);
    dl_reply_slot *slot =
        dl_replies_open(&hub->replies, &hub->table, named, &is_remembered);
    if (slot == NULL) {
        return dl_last_error()->status;
    }
    if (!is_remembered && named->sequence > 1) {
        hub->refused[DL_LIMIT_REPLIES]++; /* the client comes too late */
    }
    if (slot->session != NULL) {
        replace(slot->session);
    }
    slot->session = session;
    session->slot = slot;
    slot->next = named->sequence;
    dl_wire_put_welcome(&session->output->bytes, hub->identity, is_remembered);
    return DL_OK;
}

/* The name may be a queue's: it is kept, to check whether the client pops from it when
 * the wait is over.  A client that waits for several names does not pop. */
static dl_status
wait_for_one(dl_session *session, dl_bytes key)
{
    DL_TRY(dl_table_wait(table_of(session), &session->waiter, DL_WAIT_TURN, &key, 1));
    if (!session->waiter.is_parked) {
        return DL_OK;
    }
    session->turn = dl_blob_copy(key);
    if (session->turn == NULL) {
        dl_table_cancel(table_of(session), &session->waiter);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

static dl_status
wait_for_all(dl_session *session, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes *keys = calloc(request->count + 1, sizeof *keys); /* never of size 0 */
    size_t count = 0;

    if (keys == NULL) {
        return dl_fail_no_memory();
    }
    while (dl_key_walk_next(&walk, &keys[count], NULL)) {
        count++;
    }
    dl_status status =
        dl_table_wait(table_of(session), &session->waiter, DL_WAIT_KEYS, keys, count);
    free(keys);
    return status;
}

static dl_status
wait_begin(dl_session *session, const dl_store_request *request)
{
    dl_reader items = request->items;

    leave_wait(session);
    DL_TRY(request->count == 1 ? wait_for_one(session, dl_request_take_item(&items))
                               : wait_for_all(session, request));
    answer_if_over(session, request);
    return DL_OK;
}

static dl_status
wait_barrier(dl_session *session, const dl_store_request *request)
{
    leave_wait(session);
    DL_TRY(dl_table_barrier(table_of(session), &session->waiter, request->key,
                            request->number));
    if (session->slot != NULL) {
        session->slot->outcome =
            session->waiter.is_parked ? DL_OUTCOME_BEGUN : DL_OUTCOME_DONE;
    }
    answer_if_over(session, request);
    return DL_OK;
}

/* Waits again for a BARRIER in which the client has been counted. */
static dl_status
wait_barrier_again(dl_session *session, const dl_store_request *request)
{
    leave_wait(session);
    DL_TRY(dl_table_barrier_again(table_of(session), &session->waiter, request->key,
                                  request->number));
    if (!session->waiter.is_parked) {
        session->slot->outcome = DL_OUTCOME_DONE;
    }
    answer_if_over(session, request);
    return DL_OK;
}

/* Called before each request: a session that has its turn uses it with a pop from that
 * queue, and passes it on with any other request. */
static void
use_turn(dl_session *session, const dl_store_request *request)
{
    if (session->turn == NULL || session->waiter.is_parked) {
        return;
    }
    if (request->op == DL_OP_QUEUE_POP
        && dl_bytes_equal(request->key, dl_blob_bytes(session->turn))) {
        dl_hub_end_turn(session);
    } else {
        leave_wait(session);
    }
}

void
dl_session_end_wait(dl_session *session)
{
    if (session->waiting != NULL) {
        session->is_waking = true;
        session->is_stalled = true;
        dl_hub_mark(session);
        return;
    }
    if (session->turn != NULL) {
        dl_hub_begin_turn(session);
    }
    if (session->waiter.kind == DL_WAIT_BARRIER && has_begun(session, DL_OP_BARRIER)) {
        session->slot->outcome = DL_OUTCOME_DONE;
    }
    if (open_output(session) != NULL) {
        reply_ready(session);
    } else {
        session->is_over = true; /* reported by dl_session_resume() */
    }
    dl_hub_mark(session);
}

/* Takes back a limit that has passed, too, if the session has not been resumed since:
 * when many sessions change at once, some of them wait for their turn. */
static void
end_limit(dl_session *session)
{
    dl_list_remove(&session->timed);
    session->is_late = false;
}

void
dl_session_owes(dl_session *session, bool has_taken)
{
    /* The limit for clients that are not admitted yet is the stricter one. */
    if (!session->is_admitted) {
        return;
    }
    if (has_taken) {
        end_limit(session);
    }
    if (session->timed.next == NULL) {
        session->timed_since = dl_now();
        dl_list_append(&session->hub->slow, &session->timed);
    }
}

void
dl_session_owes_nothing(dl_session *session)
{
    if (session->is_admitted) {
        end_limit(session);
    }
}

/* Puts the status of a checked request, and returns the output for the plain reply. */
static dl_output *
begin_reply(dl_session *session, const dl_store_request *request)
{
    if (request->is_checked) {
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    return session->output;
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

static dl_status
put_name(void *bytes, dl_bytes name)
{
    dl_put_bytes(bytes, name);
    return DL_OK;
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
        (void)dl_table_list(table, put_name, &output->bytes);
        break;
    case DL_REPLY_CANCELLED:
        dl_put_u8(&output->bytes, DL_WIRE_CANCELLED);
        break;
    case DL_REPLY_STATS:
        put_stats(session, &output->bytes);
        break;
    case DL_REPLY_NONE:
    case DL_REPLY_OVER: /* put by answer_if_over() or dl_session_end_wait() */
        break;
    }
}

/* Fails if a key has neither a value nor a queue.  Of one that has only a queue the value
 * is empty, as torch's server answers. */
static dl_status
need_names(const dl_table *table, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    while (dl_key_walk_next(&walk, &key, NULL)) {
        if (!dl_table_check(table, &key, 1)) {
            return dl_store_fail_absent(key);
        }
    }
    return DL_OK;
}

/* Executes the request on the table and maps the status to the wire's reply. */
static dl_status
execute(dl_session *session, const dl_store_request *request, dl_table_reply *reply)
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

/* Makes the request `current`: go_on() carries it out, from the client's next turn
 * on. */
static dl_status
begin_long(dl_session *session, const dl_store_request *request)
{
    if (request->op == DL_OP_WAIT) {
        leave_wait(session);
    }
    session->current = dl_long_new(request, table_of(session));
    if (session->current == NULL) {
        return dl_fail_no_memory();
    }
    if (session->slot != NULL && dl_request_kinds[request->op].is_change) {
        session->slot->outcome = DL_OUTCOME_BEGUN;
    }
    session->is_stalled = true;
    dl_hub_mark(session);
    return DL_OK;
}

static dl_status
put_long_reply(dl_session *session, dl_long_request *one)
{
    if (open_output(session) == NULL) {
        return dl_fail_no_memory();
    }
    if (one->request.is_checked) {
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    dl_output_append(session->output, &one->reply);
    return DL_OK;
}

/* Puts the failure of a checked request as its reply and returns DL_OK; returns any
 * other `status` as it is. */
static dl_status
tell_failure(dl_session *session, const dl_store_request *request, dl_status status)
{
    dl_error error = *dl_last_error();

    if (status == DL_OK || !request->is_checked) {
        return status;
    }
    if (open_output(session) == NULL) {
        return dl_fail_again(&error);
    }
    dl_wire_put_error(&session->output->bytes);
    return DL_OK;
}

/* Carries out one turn's work of `*slot`, which is `current` or `waiting`.  `*slot` is
 * NULL afterwards if the request is answered or blocked; a blocked one is in
 * `waiting`. */
static dl_status
step_long(dl_session *session, dl_long_request **slot)
{
    dl_long_request *one = *slot;
    dl_hub *hub = session->hub;
    dl_bytes key;

    if (one->request.op == DL_OP_MULTI_SET && hub->journal != NULL
        && dl_journal_prepare(hub->journal, (dl_bytes){0}) != DL_OK) {
        *slot = NULL;
        if (has_begun(session, DL_OP_MULTI_SET)) {
            session->slot->outcome = DL_OUTCOME_NONE;
        }
        dl_status refusal =
            tell_failure(session, &one->request, dl_last_error()->status);
        dl_long_free(one);
        return refusal;
    }
    uint64_t position = journal_position(session);
    dl_long_progress progress =
        dl_long_step(one, &hub->table, &hub->names, &hub->work, &key);
    dl_status status = DL_OK;
    if (progress != DL_LONG_MORE && one->request.op == DL_OP_MULTI_SET
        && has_begun(session, DL_OP_MULTI_SET)) {
        session->slot->outcome =
            progress == DL_LONG_DONE ? DL_OUTCOME_DONE : DL_OUTCOME_NONE;
        dl_replies_record(&hub->replies, session->slot);
    }
    if (one->request.op == DL_OP_MULTI_SET) {
        note_change(session, position);
    }
    if (progress == DL_LONG_MORE) {
        return DL_OK;
    }
    *slot = NULL;
    if (progress == DL_LONG_BLOCKED) {
        status = dl_table_wait(&hub->table, &session->waiter, DL_WAIT_KEYS, &key, 1);
        if (status == DL_OK) {
            session->waiting = one;
            return DL_OK;
        }
    } else {
        status = progress == DL_LONG_FAILED ? dl_last_error()->status
                                            : put_long_reply(session, one);
    }
    status = tell_failure(session, &one->request, status);
    dl_long_free(one);
    return status;
}

/* Most values that a request removes because they have ended; the hub removes the rest
 * at the end of the turn. */
#define EXPIRED_PER_REQUEST 64

/* Tells the table the time, if that matters to it. */
static void
advance(dl_hub *hub, const dl_store_request *request)
{
    int work = EXPIRED_PER_REQUEST;

    if (hub->table.end_count > 0 || dl_request_has_ttl(request->op)) {
        dl_hub_advance(hub, dl_now());
        (void)dl_table_expire(&hub->table, hub->table.now, &work);
    }
}

/* Fails, before anything is changed, while the journal cannot be written. */
static dl_status
prepare_change(dl_session *session, const dl_store_request *request)
{
    return session->hub->journal == NULL
               ? DL_OK
               : dl_journal_prepare(session->hub->journal, request->key);
}

/* Puts nothing before the request has succeeded, so that the caller can put an
 * error. */
static dl_status
execute_or_wait(dl_session *session, const dl_store_request *request)
{
    dl_table_reply reply = {0};
    dl_slot hello;

    if (dl_request_kinds[request->op].is_change
        && prepare_change(session, request) != DL_OK) {
        dl_blob_unref(request->blob);
        return dl_last_error()->status;
    }
    if (dl_request_is_long(request, table_of(session))) {
        return begin_long(session, request);
    }
    if (request->op == DL_OP_CHECK && dl_wire_take_hello(request, &hello)) {
        return welcome(session, &hello);
    }
    switch (request->op) {
    case DL_OP_WAIT:
        return wait_begin(session, request);
    case DL_OP_BARRIER:
        return wait_barrier(session, request);
    case DL_OP_CANCEL_WAIT:
        leave_wait(session);
        break;
    case DL_OP_PING:
        break;
    default:
        DL_TRY(execute(session, request, &reply));
        if (session->slot != NULL && dl_request_kinds[request->op].is_change) {
            dl_replies_keep(&session->hub->replies, table_of(session), session->slot,
                            &reply);
        }
    }
    put_reply(session, request, &reply);
    return DL_OK;
}

/* Answers a change that is repeated with what is known of it. */
static dl_status
repeat(dl_session *session, const dl_store_request *request)
{
    dl_reply_slot *slot = session->slot;
    const dl_table_reply reply = {.number = slot->number, .value = slot->value};

    dl_blob_unref(request->blob);
    if (slot->op != request->op) {
        return dl_fail(DL_PROTOCOL, "%s repeats a change that was a %s",
                       dl_wire_op_name(request->op), dl_wire_op_name(slot->op));
    }
    session->hub->replies.repeated++;
    /* The journal may lack the change itself. */
    session->has_changed |=
        session->hub->journal != NULL && dl_journal_has_failed(session->hub->journal);
    if (slot->outcome == DL_OUTCOME_FORGOTTEN) {
        session->hub->refused[DL_LIMIT_REPLIES]++;
        return dl_fail(DL_NETWORK,
                       "%s was done, but the store's server remembers its reply no "
                       "longer: at most %" PRIu64 " bytes of replies "
                       "(DISTLITE_STORE_REPLY_BYTES), for %d seconds "
                       "(DISTLITE_STORE_REPLY_SECONDS)",
                       dl_wire_op_name(request->op), session->hub->limits.reply_bytes,
                       (int)(session->hub->limits.reply / DL_SECOND));
    }
    if (slot->outcome == DL_OUTCOME_BEGUN && request->op == DL_OP_BARRIER) {
        return wait_barrier_again(session, request);
    }
    if (slot->outcome == DL_OUTCOME_BEGUN) {
        session->current = dl_replies_give_unfinished(&session->hub->replies, slot);
        session->is_stalled = true;
        dl_hub_mark(session);
        return DL_OK;
    }
    if (request->op == DL_OP_BARRIER) {
        session->wait_is_checked = request->is_checked;
        reply_ready(session);
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

    if (sequence == slot->sequence && dl_replies_has_reply(slot)) {
        return repeat(session, request);
    }
    dl_replies_begin(&session->hub->replies, slot, sequence, request);
    dl_status status = execute_or_wait(session, request);
    dl_replies_record(&session->hub->replies, slot);
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

/* Bytes of a key that a line of the log shows. */
#define SHOWN_SIZE 200

static void
show_key(char *text, size_t room, size_t *size, const char *name, dl_bytes key)
{
    size_t shown = key.size < SHOWN_SIZE ? key.size : SHOWN_SIZE;

    dl_text_append(text, room, size, " %s:", name);
    dl_text_append_escaped(text, room, size, (const char *)key.data, shown);
}

static const char *
number_name(dl_opcode op)
{
    return op == DL_OP_VALIDATE     ? "magic"
           : op == DL_OP_PING       ? "nonce"
           : dl_request_has_ttl(op) ? "ttl_ms"
                                    : "val";
}

static void
show_field(char *text, size_t room, size_t *size, dl_request_field field,
           const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes first;

    switch (field) {
    case DL_FIELD_KEY:
        show_key(text, room, size, "key", request->key);
        break;
    case DL_FIELD_U32:
    case DL_FIELD_I64:
        dl_text_append(text, room, size, " %s:%" PRId64, number_name(request->op),
                       request->number);
        break;
    case DL_FIELD_COUNT:
        dl_text_append(text, room, size, " key_count:%zu", request->count);
        if (dl_key_walk_next(&walk, &first, NULL)) {
            show_key(text, room, size, "keys[0]", first);
        }
        break;
    default: /* values are not told */
        break;
    }
}

/* Writes a line about the request, as torch's servers do; without the id of a slot, which
 * nobody else may know. */
static void
trace(dl_session *session, const dl_store_request *request)
{
    const dl_request_kind *kind = &dl_request_kinds[request->op];
    char text[DL_ERROR_TEXT_SIZE] = "";
    size_t size = 0;
    dl_slot hello;

    if (!dl_log_is_on(DL_LOG_TRACE)) {
        return;
    }
    bool is_hello = dl_wire_take_hello(request, &hello);
    const char *name = is_hello                        ? "hello"
                       : kind->name != NULL            ? kind->name
                       : request->op == DL_OP_PING     ? "ping"
                       : request->op == DL_OP_VALIDATE ? "validate"
                                                       : "cancel_wait";
    for (size_t i = 0; !is_hello && kind->fields[i] != DL_FIELD_END; i++) {
        show_field(text, sizeof text, &size, kind->fields[i], request);
    }
    dl_log_at_once(&session->hub->trace, DL_LOG_TRACE, "%s%s address:%s", name, text,
                   session->address == NULL ? "unknown" : session->address);
}

static dl_status
answer_request(dl_session *session, const dl_store_request *request)
{
    trace(session, request);
    if (open_output(session) == NULL) {
        dl_blob_unref(request->blob);
        return dl_fail_no_memory();
    }
    session->hub->requests++;
    session->is_checked = request->is_checked;
    advance(session->hub, request);
    use_turn(session, request);
    uint64_t position = journal_position(session);
    dl_status status = session->slot != NULL ? answer_slotted(session, request)
                                             : execute_or_wait(session, request);
    if (dl_request_kinds[request->op].is_change) {
        note_change(session, position);
    }
    if (status != DL_OK && request->is_checked) {
        dl_wire_put_error(&session->output->bytes);
        status = DL_OK;
    }
    /* The text of a failed plain request is logged, and must not contain the value. */
    if (status == DL_INVALID
        && (request->op == DL_OP_ADD || request->op == DL_OP_BARRIER)) {
        status = dl_store_fail_not_a_number(dl_wire_op_name(request->op), request->key);
    }
    /* After each request and not after each round of input, so that the reply to a wait
     * precedes the reply to a later request that cancels it. */
    dl_hub_end_waits(session->hub);
    return status;
}

static void
drop_partial(dl_session *session)
{
    dl_partial_free(session->partial);
    session->partial = NULL;
}

void
dl_session_init(dl_session *session, dl_hub *hub)
{
    *session = (dl_session){.hub = hub, .timed_since = dl_now()};
    dl_list_append(&hub->strangers, &session->timed);
    hub->clients++;
}

void
dl_session_fini(dl_session *session)
{
    if (session->hub != NULL) {
        dl_list_remove(&session->timed);
        dl_list_remove(&session->unsaved);
        free(session->proof);
        free(session->address);
        lose_slot(session);
        leave_wait(session);
        dl_hub_end_waits(session->hub);
        dl_hub_unmark(session);
        drop_partial(session);
        drop_long(&session->current);
        session->hub->pending -= session->pending;
        session->hub->pending_output -= session->pending_output;
        session->hub->clients--;
        dl_output_free(session->output);
    }
    *session = (dl_session){0};
}

static void
admit(dl_session *session)
{
    session->is_admitted = true;
    end_limit(session);
}

/* Checks the magic number.  Until then serve() accepts no other opcode, so that a
 * foreign client can make the server execute nothing and hold nothing. */
static dl_status
validate(dl_session *session, const dl_store_request *request)
{
    trace(session, request);
    if (session->is_validated) {
        return dl_fail(DL_PROTOCOL, "VALIDATE is not the first request");
    }
    if (request->number != DL_WIRE_MAGIC) {
        return dl_fail(DL_PROTOCOL, "VALIDATE with the wrong number 0x%08x",
                       (unsigned)request->number);
    }
    session->is_validated = true;
    if (session->hub->secret == NULL) {
        admit(session);
    }
    return DL_OK;
}

static dl_status
answer(dl_session *session, const dl_store_request *request)
{
    return request->op == DL_OP_VALIDATE ? validate(session, request)
                                         : answer_request(session, request);
}

/* The failure of a CHALLENGE to a server that has no token. */
static dl_status
fail_needless(void)
{
    return dl_fail(DL_DENIED,
                   "this store has no token, so it cannot prove that it belongs to the "
                   "job: start its server with the token, too, or unset DISTLITE_TOKEN "
                   "and DISTLITE_TOKEN_FILE here");
}

/* Returns the status of a request that cannot be decoded and begins with the byte
 * `first`, after putting it as the reply if the request is checked. */
static dl_status
refuse(dl_session *session, const dl_store_request *request, uint8_t first)
{
    if (first == DL_PROOF_CHALLENGE && session->hub->secret == NULL) {
        (void)fail_needless();
    }
    dl_error error = *dl_last_error();

    if (request->is_checked && open_output(session) != NULL) {
        dl_wire_put_error(&session->output->bytes);
    }
    return dl_fail_again(&error);
}

/* Serves the message of the proof at the start of `bytes`; returns 1, 0 and -1 as
 * dl_proof_answer(), and -1 when there is no memory for the reply. */
static int
prove(dl_session *session, dl_bytes bytes, size_t *size)
{
    if (open_output(session) == NULL) {
        (void)dl_fail_no_memory();
        return -1;
    }
    if (session->proof == NULL) {
        session->proof = malloc(sizeof *session->proof);
        if (session->proof == NULL) {
            (void)dl_fail_no_memory();
            return -1;
        }
        *session->proof = (dl_proof){.terms = &dl_wire_proof};
    }
    int taken = dl_proof_answer(session->proof, session->hub->secret, bytes, size,
                                &session->output->bytes);
    if (taken < 0) {
        dl_wire_put_refusal(&session->output->bytes, bytes.data[0]);
    }
    if (session->proof->stage == DL_PROOF_DONE) {
        free(session->proof);
        session->proof = NULL;
        admit(session);
    }
    return taken;
}

static bool
has_too_much_output(const dl_session *session)
{
    return session->output != NULL && dl_output_is_full(session->output);
}

/* Answers the complete requests at the front of `bytes` and removes them.  On return
 * the cursor decodes the request that `bytes` then begins with. */
static dl_status
serve(dl_session *session, dl_wire_cursor *cursor, dl_bytes *bytes)
{
    dl_store_request request;

    while (bytes->size > 0) {
        /* Checked before each request, because one alone may have a reply of
         * megabytes. */
        if (has_too_much_output(session)) {
            session->is_stalled = true;
        }
        if (session->hub->work <= 0) {
            session->is_stalled = true;
            dl_hub_mark(session);
        }
        if (session->is_stalled) {
            return DL_OK;
        }
        if (!session->is_validated && bytes->data[0] != DL_OP_VALIDATE) {
            return dl_fail(DL_PROTOCOL,
                           "the first byte is 0x%02x: not a store client%s",
                           bytes->data[0],
                           bytes->data[0] == DL_TLS_FIRST_BYTE
                               ? ", or one with DISTLITE_TLS, which this server has not"
                               : "");
        }
        if (bytes->data[0] == DL_WIRE_LEAVE && session->slot != NULL) {
            dl_replies_forget(&session->hub->replies, session->slot);
            session->slot = NULL;
            *bytes = (dl_bytes){bytes->data + 1, bytes->size - 1};
            *cursor = (dl_wire_cursor){0};
            continue;
        }
        bool is_proof = session->is_validated && !session->is_admitted;
        int taken = is_proof ? prove(session, *bytes, &cursor->position)
                             : dl_wire_take_request(cursor, *bytes, &request);
        if (taken < 0) {
            return is_proof ? dl_last_error()->status
                            : refuse(session, &request, bytes->data[0]);
        }
        if (taken == 0) {
            return DL_OK;
        }
        session->hub->work--;
        if (!is_proof) {
            DL_TRY(answer(session, &request));
        }
        *bytes =
            (dl_bytes){bytes->data + cursor->position, bytes->size - cursor->position};
        *cursor = (dl_wire_cursor){0};
    }
    return DL_OK;
}

/* Gives the memory of the held bytes to the long request that they begin with; the
 * bytes behind it (`rest`), one read's worth at most, are copied. */
static dl_status
pass_held(dl_session *session, dl_bytes rest)
{
    const dl_wire_cursor start = {0};
    dl_buffer held = session->partial->held;

    session->partial->held = (dl_buffer){0};
    drop_partial(session);
    if (session->current->walk.request == NULL) {
        dl_long_own(session->current, &held);
    }
    dl_status status =
        rest.size > 0 ? dl_partial_new(&start, rest, &session->partial) : DL_OK;
    /* Empty, unless the request was begun on a connection that is lost. */
    dl_buffer_fini(&held);
    return status;
}

static dl_status
serve_held(dl_session *session)
{
    dl_partial *partial = session->partial;
    dl_bytes bytes = dl_buffer_bytes(&partial->held);

    /* The held bytes are moved once, after all complete requests are served: many small
     * ones would otherwise be moved once each. */
    DL_TRY(serve(session, &partial->cursor, &bytes));
    if (session->current != NULL) {
        return pass_held(session, bytes);
    }
    if (bytes.size == 0) {
        drop_partial(session);
        return DL_OK;
    }
    return dl_partial_keep_last(partial, bytes.size);
}

static dl_status
serve_value(dl_session *session)
{
    dl_store_request request;

    dl_partial_take_value(session->partial, &request);
    dl_status status = answer_request(session, &request);
    drop_partial(session);
    return status;
}

static dl_status
take_in(dl_session *session, dl_bytes bytes)
{
    if (session->partial != NULL && dl_partial_is_receiving(session->partial)) {
        DL_TRY(dl_partial_receive(session->partial, &bytes));
        if (dl_partial_is_receiving(session->partial)) {
            return DL_OK;
        }
        DL_TRY(serve_value(session));
    }
    /* Bytes that follow held ones are appended to these; otherwise they are served in
     * place. */
    if (session->partial != NULL) {
        DL_TRY(dl_partial_hold(session->partial, bytes));
        return session->is_stalled ? DL_OK : serve_held(session);
    }
    dl_wire_cursor cursor = {0};
    if (!session->is_stalled) {
        DL_TRY(serve(session, &cursor, &bytes));
        if (session->current != NULL && session->current->walk.request == NULL) {
            DL_TRY(dl_long_copy(session->current));
        }
    }
    return bytes.size > 0 ? dl_partial_new(&cursor, bytes, &session->partial) : DL_OK;
}

/* Puts the failure as a reply when the request that is held incomplete is checked;
 * returns `status`. */
static dl_status
tell_limit(dl_session *session, dl_status status)
{
    const dl_partial *partial = session->partial;

    if (status != DL_OK && partial != NULL && partial->held.size > 0
        && (partial->held.data[0] & DL_WIRE_CHECKED) != 0 && !session->is_stalled) {
        dl_error error = *dl_last_error();
        if (open_output(session) != NULL) {
            dl_wire_put_error(&session->output->bytes);
        }
        return dl_fail_again(&error);
    }
    return status;
}

/* Ends every call that served the session: drops an output in which a put has failed,
 * gives back an empty one, applies the limit of held bytes, and after a failure
 * releases all that the session holds but its output. */
static dl_status
settle(dl_session *session, dl_status status)
{
    dl_output *output = session->output;

    if (output != NULL && dl_output_check(output) != DL_OK) {
        session->output = NULL;
        dl_output_free(output);
        status = dl_fail_no_memory();
    }
    if (output != NULL && session->output == output && dl_output_size(output) == 0) {
        session->output = NULL;
        dl_hub_give_output(session->hub, output);
    }
    if (status == DL_OK) {
        status = tell_limit(session, limit_pending(session));
    }
    if (status != DL_OK) {
        session->is_over = true;
        session->is_stalled = false;
        /* Releasing the rest may overwrite the thread's last error. */
        dl_error error = *dl_last_error();
        pass_on_change(session);
        leave_wait(session);
        dl_hub_end_waits(session->hub);
        dl_hub_unmark(session);
        drop_partial(session);
        drop_long(&session->current);
        if (session->pending > 0) {
            count_pending(session);
        }
        return dl_fail_again(&error);
    }
    return DL_OK;
}

dl_status
dl_session_feed(dl_session *session, dl_bytes bytes)
{
    session->hub->work = DL_SESSION_WORK;
    if (session->is_over || bytes.size == 0) {
        return DL_OK;
    }
    return settle(session,
                  session->is_replaced ? fail_replaced() : take_in(session, bytes));
}

/* Carries on with the long requests, and then with what was held back behind them. */
static dl_status
go_on(dl_session *session)
{
    dl_hub *hub = session->hub;

    if (session->is_waking) {
        dl_long_request *one = session->waiting;
        session->waiting = NULL;
        dl_status status = step_long(session, &one);
        if (one != NULL) {
            session->waiting = one;
        } else {
            session->is_waking = false;
        }
        DL_TRY(status);
    }
    if (session->current != NULL && hub->work > 0) {
        dl_status status = step_long(session, &session->current);
        dl_hub_end_waits(hub);
        DL_TRY(status);
    }
    if (session->is_waking || session->current != NULL) {
        dl_hub_mark(session);
        return DL_OK;
    }
    session->is_stalled = false;
    return session->partial == NULL || dl_partial_is_receiving(session->partial)
               ? DL_OK
               : serve_held(session);
}

/* Drops the output, which the client does not read, and fails for its time limit. */
static dl_status
end_late(dl_session *session)
{
    const dl_limits *limits = &session->hub->limits;

    session->hub->refused[session->is_admitted ? DL_LIMIT_STALL : DL_LIMIT_VALIDATE]++;
    session->is_late = false;
    lose_slot(session);
    dl_output_free(session->output);
    session->output = NULL;
    return session->is_admitted
               ? dl_fail(DL_TIMEOUT,
                         "it has read none of the replies sent to it for %d seconds "
                         "(DISTLITE_STORE_STALL_SECONDS)",
                         (int)(limits->stall / DL_SECOND))
               : dl_fail(DL_TIMEOUT,
                         "it did not identify itself as a store client%s within %d "
                         "seconds (DISTLITE_STORE_VALIDATE_SECONDS)",
                         session->is_validated ? " that knows the token" : "",
                         (int)(limits->validate / DL_SECOND));
}

/* Replaces the replies that waited for the journal by its error, and fails. */
static dl_status
drop_unsaved(dl_session *session)
{
    dl_output *output = session->output;

    session->is_unsaved = false;
    dl_status status = dl_journal_fail_again(session->hub->journal);
    if (output != NULL && output->bytes.size >= session->saved.bytes
        && dl_output_check(output) == DL_OK) {
        dl_output_cut(output, session->saved);
        if (session->is_checked) {
            dl_wire_put_error(&output->bytes);
        }
    }
    return status;
}

dl_status
dl_session_resume(dl_session *session)
{
    session->hub->work = DL_SESSION_WORK;
    if (session->is_unsaved) {
        return settle(session, drop_unsaved(session));
    }
    if (session->is_late) {
        return settle(session, end_late(session));
    }
    if (session->is_replaced) {
        return settle(session, fail_replaced());
    }
    /* Another session's request ended this client's wait, and there was no memory for
     * the reply. */
    if (session->is_over) {
        return settle(session, dl_fail_no_memory());
    }
    if (!session->is_stalled || has_too_much_output(session)) {
        return settle(session, DL_OK);
    }
    return settle(session, go_on(session));
}

bool
dl_session_wants_input(const dl_session *session)
{
    return !session->is_stalled && !has_too_much_output(session);
}

bool
dl_session_room(dl_session *session, uint8_t **data, size_t *size)
{
    return session->partial != NULL && dl_partial_room(session->partial, data, size);
}
