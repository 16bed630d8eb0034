/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "store/execute.h"

void
dl_hub_init(dl_hub *hub)
{
    *hub = (dl_hub){.since = dl_now()};
    dl_table_init(&hub->table);
    dl_replies_init(&hub->replies);
    dl_list_init(&hub->changed);
    dl_list_init(&hub->unauthenticated);
    dl_list_init(&hub->slow);
    dl_list_init(&hub->unsaved);
    const dl_limits limits = dl_limits_default();
    dl_hub_set_limits(hub, &limits);
}

void
dl_hub_set_limits(dl_hub *hub, const dl_limits *limits)
{
    hub->limits = *limits;
    hub->table.key_limit = limits->keys;
    hub->table.size_limit = limits->bytes;
    hub->replies.limit = limits->reply_bytes;
    hub->replies.age = limits->reply;
}

dl_status
dl_hub_open_journal(dl_hub *hub, const char *path, dl_journal_sync sync)
{
    const dl_journal_state state = {&hub->table, &hub->replies, hub->identity};

    _Static_assert(DL_JOURNAL_IDENTITY_SIZE == DL_IDENTITY_SIZE, "one identity");
    return dl_journal_open(path, sync, &state, &hub->journal);
}

void
dl_hub_commit(dl_hub *hub)
{
    if (hub->journal == NULL) {
        return;
    }
    dl_status status = dl_journal_commit(hub->journal);
    while (!dl_list_is_empty(&hub->unsaved)) {
        dl_client *client = DL_LIST_ENTRY(hub->unsaved.next, dl_client, unsaved);
        dl_list_remove(&client->unsaved);
        /* A change that could not be written stays in the table, since others may have
         * read it, and is written when that is possible again. */
        if (status != DL_OK && client->has_changed) {
            client->phase = DL_PHASE_UNSAVED;
        }
        client->has_changed = false;
        dl_hub_mark(hub, client);
    }
}

bool
dl_hub_has_work(const dl_hub *hub)
{
    return hub->changed_count > 0 || !dl_list_is_empty(&hub->unsaved);
}

void
dl_hub_fini(dl_hub *hub)
{
    dl_journal_close(hub->journal);
    dl_secret_unref(hub->secret);
    dl_replies_fini(&hub->replies);
    dl_tls_unref(hub->tls);
    dl_table_fini(&hub->table);
    *hub = (dl_hub){0};
}

void
dl_hub_idle(dl_hub *hub)
{
    if (hub->busy_since != 0) {
        int64_t took = dl_now() - hub->busy_since;
        hub->slowest_turn = took > hub->slowest_turn ? took : hub->slowest_turn;
        hub->busy_since = 0;
    }
}

/* The text may contain keys, which are foreign bytes and are escaped. */
void
dl_hub_log_refusal(dl_hub *hub, const char *name)
{
    const dl_error *error = dl_last_error();
    dl_status kind = error->status <= DL_STATUS_LAST ? error->status : DL_INTERNAL;
    char text[DL_ERROR_TEXT_SIZE] = "";
    size_t size = 0;

    dl_text_append_escaped(text, sizeof text, &size, error->text, strlen(error->text));
    hub->closed[kind]++;
    dl_log_limited(&hub->refusals[kind], DL_LOG_WARNING,
                   "store server: closing the connection of %s: %s", name, text);
}

void
dl_hub_put_stats(const dl_hub *hub, dl_buffer *text)
{
    char name[64];

    for (size_t i = 0; i < DL_IDENTITY_SIZE; i++) {
        snprintf(name + 2 * i, 3, "%02x", hub->identity[i]);
    }
    dl_reply_put_word(text, "identity", name);
    dl_table_put_facts(&hub->table, text);
    dl_reply_put_fact(text, "clients", hub->clients);
    dl_reply_put_fact(text, "unix_clients", hub->unix_clients);
    dl_reply_put_fact(text, "relays", hub->relays);
    dl_reply_put_fact(text, "relayed_clients", hub->relayed_clients);
    dl_reply_put_fact(text, "requests", hub->requests);
    dl_reply_put_fact(text, "input_bytes", hub->pending - hub->pending_output);
    dl_reply_put_fact(text, "output_bytes", hub->pending_output);
    dl_reply_put_fact(text, "slowest_turn_us",
                      (uint64_t)(hub->slowest_turn * 1000 / DL_MILLISECOND));
    dl_reply_put_fact(text, "uptime_ms",
                      (uint64_t)((dl_now() - hub->since) / DL_MILLISECOND));
    dl_reply_put_fact(text, "replies/slots", hub->replies.slots.count);
    dl_reply_put_fact(text, "replies/bytes", hub->replies.size);
    dl_reply_put_fact(text, "replies/repeated", hub->replies.repeated);
    dl_reply_put_fact(text, "replies/forgotten", hub->replies.forgotten);
    if (hub->journal != NULL) {
        dl_journal_put_stats(hub->journal, text);
    }
    for (int limit = 0; limit < DL_LIMIT_COUNT; limit++) {
        snprintf(name, sizeof name, "refusals/%s", dl_limit_names[limit]);
        /* The table counts its own. */
        dl_reply_put_fact(text, name,
                          limit == DL_LIMIT_KEYS    ? hub->table.key_refusals
                          : limit == DL_LIMIT_BYTES ? hub->table.size_refusals
                                                    : hub->refused[limit]);
    }
    for (int status = DL_OK + 1; status <= DL_STATUS_LAST; status++) {
        snprintf(name, sizeof name, "closed/%s", dl_status_name((dl_status)status));
        for (char *blank = name; (blank = strchr(blank, ' ')) != NULL;) {
            *blank = '_';
        }
        dl_reply_put_fact(text, name, hub->closed[status]);
    }
}

void
dl_hub_mark(dl_hub *hub, dl_client *client)
{
    if (client->changed.next == NULL) {
        dl_list_append(&hub->changed, &client->changed);
        hub->changed_count++;
    }
}

void
dl_hub_unmark(dl_hub *hub, dl_client *client)
{
    if (client->changed.next != NULL) {
        dl_list_remove(&client->changed);
        hub->changed_count--;
    }
}

dl_client *
dl_hub_take_changed(dl_hub *hub)
{
    if (dl_list_is_empty(&hub->changed)) {
        return NULL;
    }
    dl_client *client = DL_LIST_ENTRY(hub->changed.next, dl_client, changed);
    dl_hub_unmark(hub, client);
    return client;
}

static dl_client *
first_timed(const dl_list *list)
{
    return dl_list_is_empty(list) ? NULL : DL_LIST_ENTRY(list->next, dl_client, timed);
}

static int64_t
earlier_limit(int64_t at, const dl_client *timed, int64_t limit)
{
    return timed != NULL && timed->timed_since + limit < at ? timed->timed_since + limit
                                                            : at;
}

int64_t
dl_hub_next_wake(const dl_hub *hub)
{
    int64_t at = dl_replies_next_wake(&hub->replies);

    if (hub->journal != NULL) {
        int64_t sync_at = dl_journal_next_wake(hub->journal);
        at = sync_at < at ? sync_at : at;
    }
    at = earlier_limit(at, first_timed(&hub->unauthenticated), hub->limits.validate);
    return earlier_limit(at, first_timed(&hub->slow), hub->limits.stall);
}

static void
expire_limits(dl_hub *hub, const dl_list *list, int64_t limit, int64_t now)
{
    dl_client *client;

    while ((client = first_timed(list)) != NULL && client->timed_since + limit <= now) {
        dl_list_remove(&client->timed);
        dl_hub_mark(hub, client);
    }
}

void
dl_hub_wake(dl_hub *hub, int64_t now)
{
    if (hub->journal != NULL) {
        dl_journal_wake(hub->journal, now);
    }
    dl_replies_wake(&hub->replies, &hub->table, now);
    expire_limits(hub, &hub->unauthenticated, hub->limits.validate, now);
    expire_limits(hub, &hub->slow, hub->limits.stall, now);
}
