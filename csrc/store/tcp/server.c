/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/server.h"

#include "store/tcp/shortcut.h"

dl_status
dl_server_prepare(int listen_fd, const dl_server_options *options, dl_hub *hub,
                  dl_acceptor acceptors[DL_SERVER_ACCEPTORS])
{
    dl_limits limits;
    bool has_shortcut;

    /* Set before anything can fail, so that the caller can free them in any case. */
    acceptors[0].fd = listen_fd;
    acceptors[1].fd = -1;
    dl_hub_init(hub);
    dl_hub_set_secret(hub, options->secret);
    dl_hub_set_tls(hub, options->tls);
    DL_TRY(dl_shortcut_is_allowed(&has_shortcut));
    if (options->limits == NULL) {
        DL_TRY(dl_limits_read(&limits));
    }
    dl_hub_set_limits(hub, options->limits != NULL ? options->limits : &limits);
    DL_TRY(dl_hub_draw_identity(hub));
    if (options->journal != NULL) {
        DL_TRY(dl_hub_open_journal(hub, options->journal, options->sync));
    }
    int unix_fd = has_shortcut ? dl_shortcut_open(listen_fd, &hub->shortcut) : -1;
    dl_acceptor_init(&acceptors[0], listen_fd, false, hub);
    dl_acceptor_init(&acceptors[1], unix_fd, true, hub);
    return DL_OK;
}
