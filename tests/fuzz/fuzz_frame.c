/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank on another host may send.  The first byte says in what steps the rest
 * arrives, the next two how much is expected in each of two messages.  However it is cut,
 * the same must come of it. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pg/cpu/tcp/route.h"

#define MESSAGES 2
#define UNIT 64 /* the largest messages go straight to their place */
#define INTRODUCTION (1 + MESSAGES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const dl_peer peers[2] = {{.pid = 6, .host = "g"}, {.pid = 7, .host = "h"}};

/* The call that the corpus's heads belong to. */
static const dl_op_context op = {
    .sequence = 1,
    .fingerprint = {.op = DL_ALL_GATHER, .dtype = DL_FLOAT32},
};

typedef struct outcome {
    dl_status status;
    uint64_t taken; /* messages */
    uint8_t data[MESSAGES][UINT8_MAX * UNIT];
} outcome;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
expect_messages(dl_route *route, const uint8_t *sizes, outcome *found)
{
    static dl_listener listener = {.tcp = {.count = 1}};
    static const dl_fingerprint called[DL_ROUTE_HISTORY];
    dl_link_options options = {
        .group = "g", .peers = dl_peers_of(peers), .peer = 1, .listener = &listener};

    require(dl_bundle_init(&route->link, &options, &listener.tcp) == DL_OK);
    route->link.is_open = true;
    route->link.links[0].is_open = true;
    route->op = &op;
    route->called = called;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        dl_queue_push(&route->in, found->data[i], (size_t)sizes[i] * UNIT, i);
    }
}

/* The bytes come `step` at a time. */
static void
receive_in_steps(dl_bytes bytes, size_t step, const uint8_t *sizes, outcome *found)
{
    dl_route *route = calloc(1, sizeof *route);
    int ends[2];

    require(route != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    expect_messages(route, sizes, found);
    route->link.links[0].transport = (dl_transport){.is_open = true, .fd = ends[0]};
    for (size_t at = 0; at < bytes.size && found->status == DL_OK; at += step) {
        size_t size = bytes.size - at < step ? bytes.size - at : step;
        bool has_moved = false;
        require(write(ends[1], bytes.data + at, size) == (ssize_t)size);
        found->status = dl_route_step(route, &has_moved);
    }
    found->taken = route->in.first;
    dl_bundle_fini(&route->link);
    close(ends[1]);
    free(route);
}

static void
check_encodes_back(dl_bytes bytes)
{
    uint8_t again[DL_HEAD_SIZE];
    dl_head head;

    if (bytes.size >= DL_HEAD_SIZE && dl_head_take(bytes.data, &head)) {
        dl_head_put(again, &head);
        require(memcmp(again, bytes.data, sizeof again) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < INTRODUCTION) {
        return 0;
    }
    dl_bytes bytes = {data + INTRODUCTION, size - INTRODUCTION};
    outcome *found = calloc(2, sizeof *found);
    /* Long inputs in long steps: each is a system call or two. */
    size_t least = bytes.size / 64 + 1;
    size_t step = (size_t)data[0] + 1;

    require(found != NULL);
    check_encodes_back(bytes);
    receive_in_steps(bytes, step < least ? least : step, data + 1, &found[0]);
    receive_in_steps(bytes, bytes.size + 1, data + 1, &found[1]);
    require(found[0].status == found[1].status && found[0].taken == found[1].taken);
    require(memcmp(found[0].data, found[1].data, sizeof found->data) == 0);
    free(found);
    return 0;
}
