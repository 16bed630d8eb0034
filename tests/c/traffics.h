/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks that are threads of one case and talk over TCP on the loopback address, as if
 * each were on a host of its own. */
#ifndef DISTLITE_TESTS_TRAFFICS_H
#define DISTLITE_TESTS_TRAFFICS_H

#include <arpa/inet.h>

#include "base/thread.h"
#include "pg/cpu/tcp/traffic.h"
#include "ranks.h"

typedef struct test_traffics {
    int size;
    dl_secret *secret; /* made of traffics_token */
    dl_tls *tls;
    /* With a token; accepts callers, as the process table's thread does. */
    pthread_t ear;
    atomic_bool is_over;
    dl_peer peers[DL_RANKS_LIMIT];
    dl_tcp_contact tcp_contacts[DL_RANKS_LIMIT];
    dl_tcp_contacts known; /* finds all of them */
    dl_listener listeners[DL_RANKS_LIMIT];
    dl_traffic traffics[DL_RANKS_LIMIT];
} test_traffics;

/* The job's token, which is set before the fixture is made; NULL: there is none. */
static const char *traffics_token;
static bool traffics_use_tls; /* with the key of the token */

DL_CHECK_UNUSED static void *
traffics_hear(void *context)
{
    test_traffics *all = context;

    while (!atomic_load(&all->is_over)) {
        for (int rank = 0; rank < all->size; rank++) {
            (void)dl_listener_poll(&all->listeners[rank]);
        }
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    return NULL;
}

DL_CHECK_UNUSED static void
traffics_find_tcp(const void *context, int rank, dl_tcp_contact *tcp)
{
    *tcp = ((const test_traffics *)context)->tcp_contacts[rank];
}

/* Each rank has `lanes` addresses, as if it had so many interfaces. */
DL_CHECK_UNUSED static void
traffics_init_lanes(test_traffics *all, int size, int lanes)
{
    dl_address here = {.size = sizeof here.socket.ip4};

    *all = (test_traffics){.size = size, .known = {traffics_find_tcp, all, NULL}};
    if (traffics_token != NULL) {
        CHECK_OK(dl_secret_new(dl_bytes_of(traffics_token), &all->secret));
    }
    if (traffics_use_tls) {
        CHECK_OK(dl_tls_new(DL_TLS_PSK, "link", all->secret, &all->tls));
    }
    here.socket.ip4.sin_family = AF_INET;
    here.socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int rank = 0; rank < size; rank++) {
        all->peers[rank] = (dl_peer){.pid = 100 + rank, .host = "h"};
        memset(all->tcp_contacts[rank].token, rank + 1, DL_TOKEN_SIZE);
        all->tcp_contacts[rank].count = lanes;
        all->tcp_contacts[rank].secret = all->tls == NULL ? all->secret : NULL;
        all->tcp_contacts[rank].tls = all->tls;
        for (int index = 0; index < lanes; index++) {
            all->tcp_contacts[rank].addresses[index] = here;
        }
        CHECK_OK(dl_listener_open(&all->listeners[rank], &all->tcp_contacts[rank]));
        all->tcp_contacts[rank] = all->listeners[rank].tcp;
    }
    for (int rank = 0; rank < size; rank++) {
        dl_traffic_options options = {
            .rank = rank,
            .size = size,
            .group_name = "g",
            .peers = dl_peers_of(all->peers),
            .tcp_contacts = all->known,
            .listener = &all->listeners[rank],
        };
        CHECK_OK(dl_traffic_init(&all->traffics[rank], &options));
    }
    if (all->secret != NULL) {
        CHECK(pthread_create(&all->ear, NULL, traffics_hear, all) == 0);
    }
}

DL_CHECK_UNUSED static void
traffics_init(test_traffics *all, int size)
{
    traffics_init_lanes(all, size, 1);
}

/* Ends the thread that accepts callers. */
DL_CHECK_UNUSED static void
traffics_deafen(test_traffics *all)
{
    if (all->secret != NULL && !atomic_exchange(&all->is_over, true)) {
        CHECK(pthread_join(all->ear, NULL) == 0);
    }
}

/* Ends the rank's connections, as the end of its process would. */
DL_CHECK_UNUSED static void
traffics_cut(test_traffics *all, int rank)
{
    dl_traffic_fini(&all->traffics[rank]);
    dl_listener_fini(&all->listeners[rank]);
}

DL_CHECK_UNUSED static void
traffics_fini(test_traffics *all)
{
    traffics_deafen(all);
    for (int rank = 0; rank < all->size; rank++) {
        traffics_cut(all, rank);
    }
    dl_tls_unref(all->tls);
    dl_secret_unref(all->secret);
}

#endif
