/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_waits.h"

#include <stdlib.h>

typedef struct dl_relay_wait {
    dl_map_entry by_request;
    dl_map_entry by_channel; /* while `channel` is open */
    uint32_t channel;
    dl_buffer data; /* what the channel carries: VALIDATE and the request */
    dl_buffer reply;
    dl_list asked; /* before the request was sent */
    dl_list later; /* since then */
} dl_relay_wait;

bool
dl_relay_is_wait(dl_bytes bytes)
{
    dl_wire_cursor cursor = {0};
    dl_store_request request;

    return bytes.size > 0 && bytes.data[0] == (DL_OP_WAIT | DL_WIRE_CHECKED)
           && dl_wire_take_request(&cursor, bytes, &request) == 1
           && cursor.position == bytes.size;
}

/* Each round has a channel of its own, so that nothing of the one before is taken for
 * its reply. */
static void
send_wait(dl_relay_waits *waits, dl_relay_wait *wait)
{
    waits->last_channel = (waits->last_channel + 1) | DL_RELAY_SHARED;
    wait->channel = waits->last_channel;
    dl_map_insert(&waits->channels, &wait->by_channel,
                  (dl_bytes){(const uint8_t *)&wait->channel, sizeof wait->channel});
    dl_relay_put_head(waits->out, DL_RELAY_OPEN, wait->channel, 0);
    dl_relay_put_head(waits->out, DL_RELAY_DATA, wait->channel,
                      (uint32_t)wait->data.size);
    dl_buffer_put(waits->out, dl_buffer_bytes(&wait->data));
}

static void
close_wait(dl_relay_waits *waits, dl_relay_wait *wait)
{
    dl_relay_put_head(waits->out, DL_RELAY_CLOSE, wait->channel, 0);
    dl_map_remove(&waits->channels, &wait->by_channel);
    dl_buffer_clear(&wait->reply);
}

static void
free_wait(dl_relay_waits *waits, dl_relay_wait *wait)
{
    dl_map_remove(&waits->requests, &wait->by_request);
    dl_buffer_fini(&wait->data);
    dl_buffer_fini(&wait->reply);
    free(wait);
}

static dl_relay_wait *
make_wait(dl_relay_waits *waits, dl_bytes request)
{
    const dl_store_request validate = {.op = DL_OP_VALIDATE, .number = DL_WIRE_MAGIC};
    dl_relay_wait *made = calloc(1, sizeof *made);

    if (made == NULL) {
        dl_fail_no_memory();
        return NULL;
    }
    dl_wire_put_request(&made->data, &validate, DL_LITERAL(""));
    size_t start = made->data.size;
    dl_buffer_put(&made->data, request);
    if (dl_buffer_check(&made->data) != DL_OK) {
        dl_buffer_fini(&made->data);
        free(made);
        return NULL;
    }
    dl_list_init(&made->asked);
    dl_list_init(&made->later);
    dl_map_insert(&waits->requests, &made->by_request,
                  (dl_bytes){made->data.data + start, request.size});
    return made;
}

dl_status
dl_relay_waits_join(dl_relay_waits *waits, dl_relay_waiter *waiter, dl_bytes request)
{
    dl_map_entry *entry = dl_map_find(&waits->requests, request);

    if (entry != NULL) {
        waiter->wait = DL_MAP_ENTRY(entry, dl_relay_wait, by_request);
        dl_list_append(&waiter->wait->later, &waiter->node);
        return DL_OK;
    }
    waiter->wait = make_wait(waits, request);
    if (waiter->wait == NULL) {
        return DL_NO_MEMORY;
    }
    dl_list_append(&waiter->wait->asked, &waiter->node);
    send_wait(waits, waiter->wait);
    return DL_OK;
}

void
dl_relay_waits_leave(dl_relay_waits *waits, dl_relay_waiter *waiter)
{
    dl_relay_wait *wait = waiter->wait;

    if (wait == NULL) {
        return;
    }
    dl_list_remove(&waiter->node);
    waiter->wait = NULL;
    if (dl_list_is_empty(&wait->asked) && dl_list_is_empty(&wait->later)) {
        close_wait(waits, wait);
        free_wait(waits, wait);
    }
}

/* Ends the round: gives its reply to those who had asked before, and sends the request
 * again for the others. */
static void
end_round(dl_relay_waits *waits, dl_relay_wait *wait)
{
    dl_buffer reply = wait->reply;

    wait->reply = (dl_buffer){0};
    close_wait(waits, wait);
    while (!dl_list_is_empty(&wait->asked)) {
        dl_relay_waiter *waiter =
            DL_LIST_ENTRY(wait->asked.next, dl_relay_waiter, node);
        dl_list_remove(&waiter->node);
        waiter->wait = NULL;
        waits->reply(waiter, dl_buffer_bytes(&reply));
    }
    dl_buffer_fini(&reply);
    dl_list_move(&wait->later, &wait->asked);
    if (dl_list_is_empty(&wait->asked)) {
        free_wait(waits, wait);
    } else {
        send_wait(waits, wait);
    }
}

/* Returns whether the reply has arrived: a status and a byte, or a status and a text. */
static bool
is_complete(dl_bytes reply)
{
    dl_reader reader = dl_reader_of(reply);
    uint8_t byte;
    dl_bytes text;

    if (!dl_take_u8(&reader, &byte)) {
        return false;
    }
    return byte == DL_OK ? dl_reader_left(&reader) > 0
                         : dl_take_bytes(&reader, DL_RELAY_DATA_LIMIT, &text) != 0;
}

void
dl_relay_waits_take(dl_relay_waits *waits, const dl_relay_head *head, dl_bytes piece)
{
    dl_map_entry *entry =
        dl_map_find(&waits->channels,
                    (dl_bytes){(const uint8_t *)&head->channel, sizeof head->channel});

    if (entry == NULL) {
        return;
    }
    dl_relay_wait *wait = DL_MAP_ENTRY(entry, dl_relay_wait, by_channel);
    dl_buffer_put(&wait->reply, piece);
    if (head->kind == DL_RELAY_CLOSE || wait->reply.has_failed) {
        dl_buffer_clear(&wait->reply);
        end_round(waits, wait);
    } else if (is_complete(dl_buffer_bytes(&wait->reply))) {
        end_round(waits, wait);
    }
}

void
dl_relay_waits_fini(dl_relay_waits *waits)
{
    dl_map_entry *entry;

    while ((entry = dl_map_first(&waits->requests)) != NULL) {
        dl_relay_wait *wait = DL_MAP_ENTRY(entry, dl_relay_wait, by_request);
        close_wait(waits, wait);
        free_wait(waits, wait);
    }
    dl_map_fini(&waits->requests);
    dl_map_fini(&waits->channels);
}
