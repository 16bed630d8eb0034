/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/session.h"

#include <stdlib.h>

#include "store/tcp/answer.h"
#include "store/tcp/partial.h"
#include "store/tcp/waiting.h"
#include "store/tcp/wire.h"

/* The way of the bytes:
 *
 *     fed -> take_in -> serve -> answer -> session->output
 *               |         |
 *               |         +-> what is left, or must wait -> partial -> serve_held
 *               +-> the middle of a large value -> partial -> serve_value
 *
 * and settle() at the end, whatever happened. */

void
dl_hub_init(dl_hub *hub)
{
    *hub = (dl_hub){0};
    dl_table_init(&hub->table);
    dl_list_init(&hub->changed);
    dl_list_init(&hub->turns);
}

static void
free_output(dl_output *output)
{
    if (output != NULL) {
        dl_output_fini(output);
        free(output);
    }
}

void
dl_hub_fini(dl_hub *hub)
{
    free_output(hub->spare);
    dl_table_fini(&hub->table);
    *hub = (dl_hub){0};
}

void
dl_session_mark_changed(dl_session *session)
{
    if (session->changed.next == NULL) {
        dl_list_append(&session->hub->changed, &session->changed);
        session->hub->changed_count++;
    }
}

static void
unmark_changed(dl_session *session)
{
    if (session->changed.next != NULL) {
        dl_list_remove(&session->changed);
        session->hub->changed_count--;
    }
}

dl_session *
dl_hub_take_changed(dl_hub *hub)
{
    if (dl_list_is_empty(&hub->changed)) {
        return NULL;
    }
    dl_session *session = DL_LIST_ENTRY(hub->changed.next, dl_session, changed);
    unmark_changed(session);
    return session;
}

/* An output that is empty again is passed to whoever speaks next: it has memory already. */
dl_output *
dl_session_open_output(dl_session *session)
{
    dl_hub *hub = session->hub;

    if (session->output == NULL) {
        session->output =
            hub->spare != NULL ? hub->spare : calloc(1, sizeof(dl_output));
        hub->spare = NULL;
    }
    return session->output;
}

static void
give_back_output(dl_hub *hub, dl_output *output)
{
    if (hub->spare == NULL && output != NULL && dl_output_check(output) == DL_OK) {
        hub->spare = output;
    } else {
        free_output(output);
    }
}

void
dl_session_sent(dl_session *session, dl_output *output)
{
    /* Not served right here: a client that asks for much and reads fast would keep the
     * server to itself. */
    if (output == session->output) {
        session->output = NULL;
    }
    give_back_output(session->hub, output);
    if (session->is_stalled) {
        dl_session_mark_changed(session);
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
    *session = (dl_session){.hub = hub};
}

void
dl_session_fini(dl_session *session)
{
    if (session->hub != NULL) {
        dl_waiting_leave(session);
        dl_waiting_end(session->hub);
        unmark_changed(session);
        drop_partial(session);
        free_output(session->output);
    }
    *session = (dl_session){0};
}

/* A client that has not shown the magic number can make the server do nothing and hold
 * nothing: the first byte must be right, then four more. */
static dl_status
validate(dl_session *session, const dl_store_request *request)
{
    if (session->is_validated) {
        return dl_fail(DL_PROTOCOL, "VALIDATE is not the first request");
    }
    if (request->number != DL_WIRE_MAGIC) {
        return dl_fail(DL_PROTOCOL, "VALIDATE with the wrong number 0x%08x",
                       (unsigned)request->number);
    }
    session->is_validated = true;
    return DL_OK;
}

static dl_status
answer(dl_session *session, const dl_store_request *request)
{
    return request->op == DL_OP_VALIDATE ? validate(session, request)
                                         : dl_answer(session, request);
}

/* The status of a request that is none; a checked one is told. */
static dl_status
refuse(dl_session *session, const dl_store_request *request)
{
    dl_error error = *dl_last_error();

    if (request->is_checked && dl_session_open_output(session) != NULL) {
        dl_wire_put_error(&session->output->bytes);
    }
    return dl_fail_again(&error);
}

static bool
has_too_much_output(const dl_session *session)
{
    return session->output != NULL && dl_output_is_full(session->output);
}

/* Answers the whole requests at the front of `bytes` and takes them off.  On return the
 * cursor is about the request that `bytes` then begins with. */
static dl_status
serve(dl_session *session, dl_wire_cursor *cursor, dl_bytes *bytes)
{
    dl_store_request request;

    while (bytes->size > 0) {
        /* Before each request, because one alone can make megabytes of replies. */
        if (has_too_much_output(session)) {
            session->is_stalled = true;
            return DL_OK;
        }
        if (!session->is_validated && bytes->data[0] != DL_OP_VALIDATE) {
            return dl_fail(DL_PROTOCOL, "the first byte is 0x%02x: not a store client",
                           bytes->data[0]);
        }
        int taken = dl_wire_take_request(cursor, *bytes, &request);
        if (taken < 0) {
            return refuse(session, &request);
        }
        if (taken == 0) {
            return DL_OK;
        }
        DL_TRY(answer(session, &request));
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

    /* Nothing is moved until all that can be served is: many small requests that were
     * kept back would otherwise be moved once each. */
    DL_TRY(serve(session, &partial->cursor, &bytes));
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
    dl_status status = dl_answer(session, &request);
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
    /* Bytes behind others have to be joined to them; alone, they are served in place. */
    if (session->partial != NULL) {
        DL_TRY(dl_partial_hold(session->partial, bytes));
        return session->is_stalled ? DL_OK : serve_held(session);
    }
    dl_wire_cursor cursor = {0};
    DL_TRY(serve(session, &cursor, &bytes));
    return bytes.size > 0 ? dl_partial_new(&cursor, bytes, &session->partial) : DL_OK;
}

/* After serving: an output that lost a byte to want of memory is worth nothing. */
static dl_status
settle(dl_session *session, dl_status status)
{
    dl_output *output = session->output;

    if (output != NULL && dl_output_check(output) != DL_OK) {
        session->output = NULL;
        free_output(output);
        status = dl_fail_no_memory();
    }
    if (output != NULL && session->output == output && dl_output_size(output) == 0) {
        session->output = NULL;
        give_back_output(session->hub, output);
    }
    if (status != DL_OK) {
        session->is_over = true;
        session->is_stalled = false;
        /* The reason outlives what giving up the rest may have to say. */
        dl_error error = *dl_last_error();
        dl_waiting_leave(session);
        dl_waiting_end(session->hub);
        unmark_changed(session);
        drop_partial(session);
        return dl_fail_again(&error);
    }
    return DL_OK;
}

dl_status
dl_session_feed(dl_session *session, dl_bytes bytes)
{
    return session->is_over || bytes.size == 0
               ? DL_OK
               : settle(session, take_in(session, bytes));
}

dl_status
dl_session_resume(dl_session *session)
{
    /* Somebody else ended this client's wait and had no memory to say so. */
    if (session->is_over) {
        return settle(session, dl_fail_no_memory());
    }
    if (!session->is_stalled || has_too_much_output(session)) {
        return settle(session, DL_OK);
    }
    session->is_stalled = false;
    bool is_receiving = dl_partial_is_receiving(session->partial);
    return settle(session, is_receiving ? DL_OK : serve_held(session));
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
