/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/session.h"

#include <inttypes.h>
#include <stdlib.h>

#include "store/tcp/answer.h"
#include "store/tcp/partial.h"
#include "store/tcp/wire.h"

/* The path of the bytes:
 *
 *     fed -> take_in -> serve -> answer -> session->output (store/tcp/answer.h)
 *               |         |
 *               |         +-> incomplete or held back -> partial -> serve_held
 *               +-> the middle of a large value -> partial -> serve_value
 *
 * end_serving() ends every call, whether it succeeded or failed. */

/* Bytes that each client may hold even when the total is above its limit, so that
 * clients with small requests are still served, and only those that cause the excess
 * are refused. */
#define PENDING_FREE (64u << 10)

/* Updates the number of bytes that are held for the client, and the hub's total. */
static void
count_pending(dl_session *session)
{
    const dl_partial *partial = session->partial;
    const dl_output *output = &session->output;
    size_t size = session->waited.capacity;
    size_t output_size = output->bytes.capacity + output->values.capacity;

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
    size_t before = session->pending;

    /* The usual client has nothing but a small reply, which is not counted. */
    if (before == 0 && session->partial == NULL
        && session->waited.capacity <= PENDING_FREE
        && session->output.bytes.capacity <= PENDING_FREE) {
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
                   "unread replies; its limit is %" PRIu64 " (DISTLITE_STORE_BYTES)",
                   hub->pending, hub->limits.pending);
}

void
dl_session_sent(dl_session *session)
{
    if (session->pending > 0) {
        count_pending(session);
    }
    /* A stalled session is marked and not served here: a client that asks for much and
     * reads fast would monopolise the server. */
    if (session->client.phase == DL_PHASE_STALLED) {
        dl_hub_mark(session->hub, &session->client);
    }
}

/* Ends the session's time limit, even if it has passed and the session was not resumed
 * yet: when many sessions change at once, some of them wait for their turn. */
static void
end_limit(dl_session *session)
{
    dl_list_remove(&session->client.timed);
    session->client.timed_since = 0;
}

static bool
is_admitted(const dl_session *session)
{
    return session->client.phase >= DL_PHASE_SERVING;
}

void
dl_session_owes(dl_session *session, bool has_taken)
{
    dl_client *client = &session->client;

    /* The limit for clients that are not admitted yet is the stricter one. */
    if (!is_admitted(session)) {
        return;
    }
    if (has_taken) {
        end_limit(session);
    }
    if (client->timed.next == NULL) {
        client->timed_since = dl_now();
        dl_list_append(&session->hub->slow, &client->timed);
    }
}

void
dl_session_owes_nothing(dl_session *session)
{
    if (is_admitted(session)) {
        end_limit(session);
    }
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
    *session = (dl_session){.hub = hub, .client.timed_since = dl_now()};
    dl_list_append(&hub->unauthenticated, &session->client.timed);
    hub->clients++;
}

void
dl_session_fini(dl_session *session)
{
    if (session->hub != NULL) {
        dl_list_remove(&session->client.timed);
        dl_list_remove(&session->client.unsaved);
        free(session->proof);
        dl_answer_lose_slot(session);
        dl_answer_leave_wait(session);
        dl_answer_end_waits(session->hub);
        dl_hub_unmark(session->hub, &session->client);
        drop_partial(session);
        session->hub->pending -= session->pending;
        session->hub->pending_output -= session->pending_output;
        session->hub->clients--;
        dl_output_fini(&session->output);
    }
    *session = (dl_session){0};
}

static void
end_handshake(dl_session *session)
{
    session->client.phase = DL_PHASE_SERVING;
    end_limit(session);
}

/* Checks the magic number.  Until then serve_requests() accepts no other opcode, so a
 * foreign client can make the server execute nothing and hold nothing. */
static dl_status
validate_client(dl_session *session, const dl_store_request *request)
{
    if (session->client.phase != DL_PHASE_NEW) {
        return dl_fail(DL_PROTOCOL, "VALIDATE is not the first request");
    }
    if (request->number != DL_WIRE_MAGIC) {
        return dl_fail(DL_PROTOCOL, "VALIDATE with the wrong number 0x%08x",
                       (unsigned)request->number);
    }
    session->client.phase = DL_PHASE_PROVING;
    /* A relay has proved the secret before it opened a channel. */
    if (session->hub->secret == NULL || session->carrier != NULL) {
        end_handshake(session);
    }
    return DL_OK;
}

/* Puts the thread's last error as the reply, if `is_checked`; returns its status. */
static dl_status
put_failure(dl_session *session, bool is_checked)
{
    dl_error error = *dl_last_error();

    if (is_checked) {
        dl_wire_put_error(&dl_answer_output(session)->bytes);
    }
    return dl_rethrow(&error);
}

/* Refuses a request that cannot be decoded and begins with the byte `first`. */
static dl_status
refuse_request(dl_session *session, const dl_store_request *request, uint8_t first)
{
    if (first == DL_PROOF_CHALLENGE && session->hub->secret == NULL) {
        (void)dl_fail(
            DL_DENIED,
            "this store has no token, so it cannot prove that it belongs to the job: "
            "start its server with the token, too, or unset DISTLITE_TOKEN and "
            "DISTLITE_TOKEN_FILE here");
    }
    return put_failure(session, request->is_checked);
}

/* Serves the message of the proof at the start of `bytes`; returns 1, 0 and -1 as
 * dl_proof_answer(), and -1 when there is no memory for the proof. */
static int
serve_proof(dl_session *session, dl_bytes bytes, size_t *size)
{
    dl_buffer *reply = &dl_answer_output(session)->bytes;

    if (session->proof == NULL) {
        session->proof = malloc(sizeof *session->proof);
        if (session->proof == NULL) {
            (void)dl_fail_no_memory();
            return -1;
        }
        *session->proof = (dl_proof){.terms = &dl_wire_proof};
    }
    int taken =
        dl_proof_answer(session->proof, session->hub->secret, bytes, size, reply);
    if (taken < 0) {
        dl_wire_put_refusal(reply, bytes.data[0]);
    }
    if (session->proof->stage == DL_PROOF_DONE) {
        free(session->proof);
        session->proof = NULL;
        end_handshake(session);
    }
    return taken;
}

/* Answers the complete requests at the front of `bytes` and removes them.  On return
 * the cursor decodes the request that `bytes` then begins with. */
static dl_status
serve_requests(dl_session *session, dl_wire_cursor *cursor, dl_bytes *bytes)
{
    dl_store_request request;

    while (bytes->size > 0) {
        /* Checked before each request, because one alone may have a reply of
         * megabytes. */
        if (dl_output_is_full(&session->output)) {
            dl_hub_stall(&session->client);
        }
        if (session->hub->work <= 0) {
            dl_hub_stall(&session->client);
            dl_hub_mark(session->hub, &session->client);
        }
        if (session->client.phase >= DL_PHASE_STALLED) {
            return DL_OK;
        }
        if (session->client.phase == DL_PHASE_NEW && bytes->data[0] != DL_OP_VALIDATE) {
            return dl_fail(
                DL_PROTOCOL, "the first byte is 0x%02x: not a store client%s",
                bytes->data[0],
                bytes->data[0] == DL_TLS_FIRST_BYTE
                    ? ", or one with DISTLITE_TLS, which this server does not have"
                    : "");
        }
        if (bytes->data[0] == DL_WIRE_LEAVE && session->slot != NULL) {
            dl_replies_forget(&session->hub->replies, session->slot);
            session->slot = NULL;
            *bytes = (dl_bytes){bytes->data + 1, bytes->size - 1};
            *cursor = (dl_wire_cursor){0};
            continue;
        }
        bool is_proof = session->client.phase == DL_PHASE_PROVING;
        int taken = is_proof ? serve_proof(session, *bytes, &cursor->position)
                             : dl_wire_take_request(cursor, *bytes, &request);
        if (taken < 0) {
            return is_proof ? dl_last_error()->status
                            : refuse_request(session, &request, bytes->data[0]);
        }
        if (taken == 0) {
            return DL_OK;
        }
        session->hub->work--;
        if (!is_proof) {
            session->hub->work -= (int)request.count;
            DL_TRY(request.op == DL_OP_VALIDATE ? validate_client(session, &request)
                                                : dl_answer_request(session, &request));
        }
        *bytes =
            (dl_bytes){bytes->data + cursor->position, bytes->size - cursor->position};
        *cursor = (dl_wire_cursor){0};
    }
    return DL_OK;
}

static dl_status
serve_held(dl_session *session)
{
    dl_partial *partial = session->partial;
    dl_bytes bytes = dl_buffer_bytes(&partial->held);

    /* The held bytes are moved once, after all complete requests are served: many small
     * ones would otherwise be moved once each. */
    DL_TRY(serve_requests(session, &partial->cursor, &bytes));
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
    dl_status status = dl_answer_request(session, &request);
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
        return session->client.phase == DL_PHASE_STALLED ? DL_OK : serve_held(session);
    }
    dl_wire_cursor cursor = {0};
    if (session->client.phase != DL_PHASE_STALLED) {
        DL_TRY(serve_requests(session, &cursor, &bytes));
    }
    return bytes.size > 0 ? dl_partial_new(&cursor, bytes, &session->partial) : DL_OK;
}

/* Puts the failure as a reply when the request that is held incomplete is checked;
 * returns `status`. */
static dl_status
report_limit(dl_session *session, dl_status status)
{
    const dl_partial *partial = session->partial;
    bool is_checked = partial != NULL && partial->held.size > 0
                      && (partial->held.data[0] & DL_WIRE_CHECKED) != 0
                      && session->client.phase != DL_PHASE_STALLED;

    return status == DL_OK ? DL_OK : put_failure(session, is_checked);
}

/* Ends every call that served the session: drops an output in which a put has failed,
 * applies the limit of held bytes, and after a failure releases all that the session
 * holds but its output. */
static dl_status
end_serving(dl_session *session, dl_status status)
{
    if (dl_output_check(&session->output) != DL_OK) {
        dl_output_fini(&session->output);
        status = dl_fail_no_memory();
    }
    if (status == DL_OK) {
        status = report_limit(session, limit_pending(session));
    }
    if (status != DL_OK) {
        session->client.phase = is_admitted(session) ? DL_PHASE_OVER : DL_PHASE_REFUSED;
        /* Releasing the rest may overwrite the thread's last error. */
        dl_error error = *dl_last_error();
        dl_answer_leave_wait(session);
        dl_answer_end_waits(session->hub);
        dl_hub_unmark(session->hub, &session->client);
        drop_partial(session);
        if (session->pending > 0) {
            count_pending(session);
        }
        return dl_rethrow(&error);
    }
    return DL_OK;
}

dl_status
dl_session_feed(dl_session *session, dl_bytes bytes)
{
    session->hub->work = DL_SESSION_WORK;
    /* One that is replaced or unsaved fails when it is resumed. */
    if (session->client.phase > DL_PHASE_STALLED || dl_session_is_over(session)
        || bytes.size == 0) {
        return DL_OK;
    }
    return end_serving(session, take_in(session, bytes));
}

/* Serves the requests that were held back. */
static dl_status
go_on(dl_session *session)
{
    session->client.phase = DL_PHASE_SERVING;
    return session->partial == NULL || dl_partial_is_receiving(session->partial)
               ? DL_OK
               : serve_held(session);
}

/* Drops the output, which the client does not read, and fails for its time limit. */
static dl_status
end_late(dl_session *session)
{
    const dl_limits *limits = &session->hub->limits;

    session->hub->refused[is_admitted(session) ? DL_LIMIT_STALL : DL_LIMIT_VALIDATE]++;
    end_limit(session);
    dl_answer_lose_slot(session);
    dl_output_fini(&session->output);
    return is_admitted(session)
               ? dl_fail(DL_TIMEOUT,
                         "it has read none of the replies sent to it for %d seconds",
                         (int)(limits->stall / DL_SECOND))
               : dl_fail(DL_TIMEOUT,
                         "it did not identify itself as a store client%s within %d "
                         "seconds",
                         session->client.phase == DL_PHASE_PROVING
                             ? " that knows the token"
                             : "",
                         (int)(limits->validate / DL_SECOND));
}

/* Replaces the replies that waited for the journal by its error, and fails. */
static dl_status
drop_unsaved(dl_session *session)
{
    dl_output *output = &session->output;

    dl_status status = dl_journal_rethrow(session->hub->journal);
    if (output->bytes.size >= session->saved.bytes
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
    dl_phase phase = session->client.phase;

    session->hub->work = DL_SESSION_WORK;
    if (phase == DL_PHASE_UNSAVED) {
        return end_serving(session, drop_unsaved(session));
    }
    if (dl_client_is_late(&session->client)) {
        return end_serving(session, end_late(session));
    }
    if (phase == DL_PHASE_REPLACED) {
        return end_serving(
            session,
            dl_fail(DL_CLOSED, "its client has replaced the connection by a new one"));
    }
    /* Another session's request ended this client's wait, and there was no memory for
     * the reply. */
    if (dl_session_is_over(session)) {
        return end_serving(session, dl_fail_no_memory());
    }
    if (phase != DL_PHASE_STALLED || dl_output_is_full(&session->output)) {
        return end_serving(session, DL_OK);
    }
    return end_serving(session, go_on(session));
}

void
dl_session_wake(dl_hub *hub, int64_t now)
{
    dl_hub_wake(hub, now);
    dl_answer_end_waits(hub);
}

bool
dl_session_wants_input(const dl_session *session)
{
    return session->client.phase != DL_PHASE_STALLED
           && !dl_output_is_full(&session->output);
}

bool
dl_session_room(dl_session *session, uint8_t **data, size_t *size)
{
    return session->partial != NULL && dl_partial_room(session->partial, data, size);
}
