/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/trace.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/text.h"
#include "store/tcp/wire.h"

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

void
dl_trace_request(dl_session *session, const dl_store_request *request)
{
    const dl_request_kind *kind = &dl_request_kinds[request->op];
    char text[DL_ERROR_TEXT_SIZE] = "";
    size_t size = 0;
    dl_slot hello;

    if (!dl_log_is_on(DL_LOG_TRACE)) {
        return;
    }
    bool is_hello =
        dl_wire_take_hello(request, &hello) || dl_wire_asks_shortcut(request);
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
