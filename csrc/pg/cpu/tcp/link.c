/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/deadline.h"
#include "net/socket.h"

/* Time before the probe: a rank that is about to call does so well within it. */
#define PROBE_AFTER DL_WAIT_SLICE

/* The same for an open link, and after a probe that has failed. */
#define CHECK_AFTER (500 * DL_MILLISECOND)

/* What a call may take longer than the answer to a probe: a lost packet is sent again
 * after 200 ms. */
#define CALL_PATIENCE (500 * DL_MILLISECOND)

/* The same where the other process has ended, which is told later for it: shorter, and
 * enough for one packet that was lost. */
#define LAST_CALL_PATIENCE (250 * DL_MILLISECOND)

void
dl_link_init(dl_link *link, const dl_link_options *options)
{
    *link = (dl_link){.options = *options};
}

void
dl_link_fini(dl_link *link)
{
    if (link->is_open) {
        /* Such as a greeting that came after the last send. */
        dl_socket_discard_input(link->transport.fd);
    }
    dl_transport_close(&link->transport);
    dl_dial_close(&link->call);
    dl_dial_close(&link->probe);
    link->is_open = false;
}

/* The part of the higher rank.  Data may follow the hello at once, because the callee's
 * kernel keeps them until they are read. */
dl_status
dl_link_call(dl_link *link)
{
    if (link->is_open) {
        return DL_OK;
    }
    DL_TRY(dl_dial_advance(&link->call, &link->options, false));
    if (link->call.stage == DL_DIAL_OPEN) {
        link->transport = dl_dial_take(&link->call);
        link->is_open = true;
    }
    return DL_OK;
}

static dl_status
fail_left(const dl_link *link)
{
    (void)dl_dial_fail_lost(&link->options, "left the group");
    return dl_fail(DL_CLOSED, "%s", dl_last_error()->text);
}

/* Fails with the notice that the probe has received: the other process is alive, but no
 * longer in this group. */
static dl_status
fail_notice(dl_link *link, const uint8_t *frame, size_t size)
{
    const dl_link_options *options = &link->options;
    dl_head head;

    if (size < DL_HEAD_SIZE || !dl_head_take(frame, &head)
        || head.kind != DL_HEAD_NOTICE || size < DL_HEAD_SIZE + head.size) {
        return dl_dial_fail_lost(&link->options, "exited, was killed, or left");
    }
    link->is_told = true;
    if (head.root == DL_CLOSED) {
        return fail_left(link);
    }
    return dl_failure_notice_fail(&options->peers, options->peer, &head,
                                  frame + DL_HEAD_SIZE);
}

/* The probe is a connection of its own, which ends when the other process or its group
 * does. */
dl_status
dl_link_probe(dl_link *link)
{
    const dl_link_options *options = &link->options;
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];

    if (link->probe.stage != DL_DIAL_OPEN) {
        DL_TRY(dl_dial_advance(&link->probe, options, true));
    }
    if (link->probe.stage != DL_DIAL_OPEN) {
        return DL_OK;
    }
    struct iovec room = {frame, sizeof frame};
    size_t got;
    int error;
    dl_status status =
        dl_transport_read(&link->probe.transport, &room, 1, &got, &error);
    if (status != DL_OK) {
        link->probe.error = error;
        bool is_ended = error == 0 || error == ECONNRESET || error == EPIPE;
        return is_ended ? dl_dial_fail_lost(options, "exited, was killed, or left")
                        : dl_dial_fail_stream(options, status, error);
    }
    return got == 0 ? DL_OK : fail_notice(link, frame, got);
}

/* Returns whether the probe that has failed shows that the other process has ended, and
 * not why. */
static bool
peer_has_ended(const dl_link *link)
{
    int error = link->probe.error;

    return !link->is_told
           && (error == ECONNREFUSED
               || (link->probe.stage == DL_DIAL_OPEN
                   && (error == 0 || error == ECONNRESET || error == EPIPE)));
}

static dl_status
fail_ended(const dl_link *link)
{
    return link->end_error == 0
               ? dl_dial_fail_lost(&link->options, "exited, was killed, or left")
               : dl_dial_fail_stream(&link->options, DL_PEER_LOST, link->end_error);
}

/* The part of the lower rank.  Before the probe it cannot tell whether the other rank
 * is alive, late, or never going to call.  One that has left or ended may have called
 * before, and the probe's answer may overtake the call. */
static dl_status
accept_call(dl_link *link)
{
    const dl_link_options *options = &link->options;
    dl_hello contents = {
        .group = options->group,
        .caller = options->peer,
        .callee = options->rank,
        .index = options->index,
        .use = options->use,
        .own = options->token,
    };
    int64_t now = dl_now();

    if (dl_listener_take(options->listener, &contents, &link->transport)) {
        link->is_open = true;
        dl_dial_close(&link->probe);
        return DL_OK;
    }
    link->wanted_since = link->wanted_since == 0 ? now : link->wanted_since;
    if (link->left_at != 0) {
        return now > link->left_at + CALL_PATIENCE ? fail_left(link) : DL_OK;
    }
    if (link->ended_at != 0) {
        return now > link->ended_at + LAST_CALL_PATIENCE ? fail_ended(link) : DL_OK;
    }
    dl_status status =
        now > link->wanted_since + PROBE_AFTER ? dl_link_probe(link) : DL_OK;
    if (status == DL_CLOSED) {
        link->left_at = now;
    } else if (status == DL_PEER_LOST && peer_has_ended(link)) {
        link->ended_at = now;
        link->end_error = link->probe.error;
    } else {
        return status;
    }
    dl_dial_close(&link->probe);
    return DL_OK;
}

bool
dl_link_take_any(dl_link *link)
{
    dl_link_options *options = &link->options;
    dl_hello call = {
        .group = options->group,
        .callee = options->rank,
        .use = options->use,
    };

    link->is_open = dl_listener_take_any(options->listener, &call, &link->transport);
    options->peer = call.caller;
    options->index = call.index;
    return link->is_open;
}

dl_status
dl_link_open(dl_link *link)
{
    if (link->is_open) {
        return DL_OK;
    }
    return link->options.rank > link->options.peer ? dl_link_call(link)
                                                   : accept_call(link);
}

dl_status
dl_link_write(dl_link *link, struct iovec *parts, int count, size_t *size)
{
    int error;

    *size = 0;
    if (!link->is_open) {
        return DL_OK;
    }
    dl_status status = dl_transport_write(&link->transport, parts, count, size, &error);
    return status == DL_OK ? DL_OK : dl_dial_fail_stream(&link->options, status, error);
}

static void
forget_silence(dl_link *link)
{
    dl_dial_close(&link->probe);
    link->probe = (dl_dial){0};
    link->quiet_since = 0;
}

dl_status
dl_link_read(dl_link *link, struct iovec *parts, int count, size_t *size)
{
    int error;

    *size = 0;
    if (!link->is_open) {
        return DL_OK;
    }
    dl_status status = dl_transport_read(&link->transport, parts, count, size, &error);
    if (*size > 0 && link->quiet_since != 0) {
        forget_silence(link);
    }
    return status == DL_OK ? DL_OK : dl_dial_fail_stream(&link->options, status, error);
}

/* Only a host that does not answer is lost here; the link reports all else itself. */
dl_status
dl_link_check_host(dl_link *link)
{
    int64_t now = dl_now();

    if (!link->is_open || now < link->check_after) {
        return DL_OK;
    }
    link->quiet_since = link->quiet_since == 0 ? now : link->quiet_since;
    if (now < link->quiet_since + CHECK_AFTER) {
        return DL_OK;
    }
    dl_status status = dl_link_probe(link);
    if (status == DL_OK) {
        return DL_OK;
    }
    bool is_lost = dl_dial_is_host_lost(&link->probe);
    dl_dial_close(&link->probe);
    link->check_after = now + CHECK_AFTER;
    return is_lost ? status : DL_OK;
}

bool
dl_link_is_between(const dl_link *link)
{
    return dl_transport_is_between(&link->transport);
}

dl_status
dl_link_fail_protocol(const dl_link_options *options)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peers_describe(&options->peers, options->peer, peer);
    return dl_fail(DL_PROTOCOL,
                   "%s sent a frame that is not valid here: the ranks run different "
                   "versions of distlite",
                   peer);
}

struct pollfd
dl_link_poll(const dl_link *link, short events)
{
    if (link->is_open) {
        return (struct pollfd){.fd = link->transport.fd,
                               .events = dl_transport_events(&link->transport, events)};
    }
    if (link->call.stage != DL_DIAL_NONE) {
        return dl_dial_poll(&link->call);
    }
    return dl_dial_poll(&link->probe);
}

bool
dl_link_awaits_call(const dl_link *link)
{
    return !link->is_open && link->options.rank < link->options.peer;
}
