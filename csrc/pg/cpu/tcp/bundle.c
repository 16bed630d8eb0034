/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/bundle.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "net/socket.h"

/* If the two ranks list different numbers of interfaces, the smaller number is used. */
static int
count_links(const dl_link_options *options, const dl_tcp_contact *tcp)
{
    int own = options->listener->tcp.count;
    int least = own < tcp->count ? own : tcp->count;

    return least < 1 ? 1 : least;
}

dl_status
dl_bundle_init(dl_bundle *bundle, const dl_link_options *options,
               const dl_tcp_contact *tcp)
{
    dl_link_options link = *options;
    int count = count_links(options, tcp);

    *bundle = (dl_bundle){.count = count};
    bundle->links = calloc((size_t)count, sizeof *bundle->links);
    if (bundle->links == NULL) {
        return dl_fail_no_memory();
    }
    for (int index = 0; index < count; index++) {
        dl_link_options_aim(&link, tcp, index);
        dl_link_init(&bundle->links[index], &link);
    }
    return DL_OK;
}

void
dl_bundle_fini(dl_bundle *bundle)
{
    for (int index = 0; bundle->links != NULL && index < bundle->count; index++) {
        dl_link_fini(&bundle->links[index]);
    }
    dl_bundle_forget(bundle);
}

void
dl_bundle_forget(dl_bundle *bundle)
{
    free(bundle->links);
    *bundle = (dl_bundle){0};
}

/* Opens all links at the same time, in one round trip whatever their number. */
dl_status
dl_bundle_open(dl_bundle *bundle)
{
    bool is_open = true;

    if (bundle->is_open) {
        return DL_OK;
    }
    for (int index = 0; index < bundle->count; index++) {
        DL_TRY(dl_link_open(&bundle->links[index]));
        is_open &= bundle->links[index].is_open;
    }
    bundle->is_open = is_open;
    return DL_OK;
}

dl_status
dl_bundle_check_host(dl_bundle *bundle)
{
    return dl_link_check_host(&bundle->links[0]);
}

/* Returns the link that carries the byte at `position`. */
static dl_link *
link_at(const dl_bundle *bundle, uint64_t position)
{
    uint64_t stripe = position / DL_STRIPE_SIZE;

    return &bundle->links[stripe % (uint64_t)bundle->count];
}

/* Shortens the parts to the rest of the stripe at `position`, and returns how many
 * remain. */
static int
cut_at_stripe(const dl_bundle *bundle, uint64_t position, struct iovec *parts,
              int count)
{
    size_t left = DL_STRIPE_SIZE - (size_t)(position % DL_STRIPE_SIZE);
    int kept = 0;

    if (bundle->count == 1) {
        return count;
    }
    while (kept < count && left > 0) {
        if (parts[kept].iov_len > left) {
            parts[kept].iov_len = left;
        }
        left -= parts[kept++].iov_len;
    }
    return kept;
}

dl_status
dl_bundle_write(dl_bundle *bundle, struct iovec *parts, int count, size_t *size)
{
    *size = 0;
    if (!bundle->is_open) {
        return DL_OK;
    }
    count = cut_at_stripe(bundle, bundle->written, parts, count);
    DL_TRY(dl_link_write(link_at(bundle, bundle->written), parts, count, size));
    bundle->written += *size;
    return DL_OK;
}

dl_status
dl_bundle_read(dl_bundle *bundle, struct iovec *parts, int count, size_t *size)
{
    *size = 0;
    if (!bundle->is_open) {
        return DL_OK;
    }
    count = cut_at_stripe(bundle, bundle->read, parts, count);
    DL_TRY(dl_link_read(link_at(bundle, bundle->read), parts, count, size));
    bundle->read += *size;
    return DL_OK;
}

void
dl_bundle_notify(dl_bundle *bundle, const dl_error *cause)
{
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    size_t size = dl_failure_notice_put(frame, cause);
    size_t done = 0;
    size_t sent = 0;

    for (int index = 0; index < bundle->count; index++) {
        if (dl_link_is_between(&bundle->links[index])) {
            return;
        }
    }
    do {
        struct iovec part = {frame + done, size - done};
        if (dl_bundle_write(bundle, &part, 1, &sent) != DL_OK) {
            return;
        }
        done += sent;
    } while (sent > 0 && done < size);
}

size_t
dl_bundle_unacknowledged(const dl_bundle *bundle)
{
    size_t size = 0;

    for (int index = 0; index < bundle->count; index++) {
        if (bundle->links[index].is_open) {
            size += dl_socket_unacknowledged(bundle->links[index].transport.fd);
        }
    }
    return size;
}

void
dl_bundle_shutdown(dl_bundle *bundle)
{
    for (int index = 0; index < bundle->count; index++) {
        if (bundle->links[index].is_open) {
            (void)shutdown(bundle->links[index].transport.fd, SHUT_WR);
        }
    }
}

/* While the bundle is not open, one of the missing links is enough: after its event all
 * of them are advanced. */
int
dl_bundle_poll(const dl_bundle *bundle, short events, struct pollfd *entries)
{
    for (int index = 0; !bundle->is_open && index < bundle->count; index++) {
        if (!bundle->links[index].is_open) {
            entries[0] = dl_link_poll(&bundle->links[index], events);
            return 1;
        }
    }
    const dl_link *in = link_at(bundle, bundle->read);
    const dl_link *out = link_at(bundle, bundle->written);
    if (in == out || (events & POLLOUT) == 0) {
        entries[0] = dl_link_poll(in, events);
        return 1;
    }
    entries[0] = dl_link_poll(out, POLLOUT);
    entries[1] = dl_link_poll(in, events & POLLIN);
    return 2;
}

bool
dl_bundle_awaits_call(const dl_bundle *bundle)
{
    for (int index = 0; !bundle->is_open && index < bundle->count; index++) {
        if (dl_link_awaits_call(&bundle->links[index])) {
            return true;
        }
    }
    return false;
}
