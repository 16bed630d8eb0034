/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server's end of a relay's connection, which gets the input in pieces: the first
 * byte is their size.  All that it sends must be frames of a server. */
#include <stdlib.h>

#include "store/tcp/carrier.h"
#include "store/tcp/relay_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Takes all output, as the relay would. */
static void
hear(dl_relay_reader *reader, dl_session *session, dl_carrier *carrier)
{
    dl_bytes piece;
    int taken;

    for (int round = 0; round < 64 && dl_session_has_output(session); round++) {
        dl_output *output = &session->output;
        dl_bytes bytes = dl_buffer_bytes(&output->bytes);
        require(output->values.size == 0 && bytes.size > 0);
        while ((taken = dl_relay_next(reader, &bytes, &piece)) > 0) {
            uint8_t kind = reader->head.kind;
            require(kind != DL_RELAY_OPEN && kind != DL_RELAY_GRANT);
        }
        require(taken == 0);
        dl_output_consume(output, output->bytes.size);
        dl_session_sent(session);
        dl_carrier_refill(carrier);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_hub hub;
    dl_session session, *changed;
    dl_carrier *carrier;
    dl_relay_reader reader = {0};
    dl_status status = DL_OK;
    size_t step = size > 0 && data[0] > 0 ? data[0] : 1;

    dl_hub_init(&hub);
    dl_session_init(&session, &hub);
    require(dl_carrier_new(&session, &carrier) == DL_OK);
    for (size_t at = 1; at < size && status == DL_OK; at += step) {
        dl_bytes piece = {data + at, size - at < step ? size - at : step};
        status = dl_carrier_feed(carrier, piece);
        for (size_t left = dl_hub_round(&hub); left > 0; left--) {
            if ((changed = dl_session_take_changed(&hub)) != NULL
                && changed->carrier != NULL) {
                dl_carrier_resume(changed);
            }
        }
        hear(&reader, &session, carrier);
    }
    dl_carrier_free(carrier);
    require(hub.relayed_clients == 0 && hub.relays == 0);
    dl_session_fini(&session);
    require(hub.clients == 0 && hub.pending == 0);
    dl_hub_fini(&hub);
    return 0;
}
