/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank on another host may ask of a window: nothing may be touched outside of the
 * memory, and each answer must be whole. */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/window/window_session.h"

#define SIZE 96 /* of the memory, in bytes */
#define GUARD 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dl_process *const processes[2];
static const dl_peer peers[2] = {{.pid = 7, .host = "h"}, {.pid = 8, .host = "i"}};

static _Alignas(64) uint8_t contents[GUARD + SIZE + GUARD];
static _Alignas(
    DL_LINE) uint8_t first[sizeof(dl_window_head) + 2 * sizeof(dl_lock_queue_entry)];

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Takes all answers. */
static void
take_answers(dl_window_session *session)
{
    size_t at = 0;

    while (at < session->out.size) {
        dl_head head;
        require(session->out.size - at >= DL_HEAD_SIZE);
        require(dl_head_take(session->out.data + at, &head));
        require(head.detail == DL_WINDOW_DONE || head.detail == DL_WINDOW_FAILED);
        at += DL_HEAD_SIZE + head.size;
        require(at <= session->out.size);
    }
    dl_buffer_clear(&session->out);
}

/* Carries out the first of the requests; returns false if it is none. */
static bool
answer_first(dl_window_session *session, const dl_window_served *window,
             dl_bytes *requests)
{
    dl_buffer payload = {0};
    dl_head head;

    if (requests->size < DL_HEAD_SIZE || !dl_head_take(requests->data, &head)
        || requests->size - DL_HEAD_SIZE < head.size) {
        return false;
    }
    dl_buffer_put(&payload, (dl_bytes){requests->data + DL_HEAD_SIZE, head.size});
    dl_status status = dl_window_session_answer(session, window, &head, payload.data);
    take_answers(session);
    dl_buffer_fini(&payload);
    requests->data += DL_HEAD_SIZE + head.size;
    requests->size -= DL_HEAD_SIZE + head.size;
    return status == DL_OK;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dl_window_ends ends;
    dl_window_ranks ranks = {
        .size = 2,
        .group_name = "g",
        .peers = dl_peers_of(peers),
        .processes = processes,
        .ends = &ends,
    };
    dl_window_memory memory = {
        .head = (dl_window_head *)(void *)first,
        .elements = contents + GUARD,
        .size = SIZE,
        .dtype = DL_INT16,
        .item_size = 2,
    };
    dl_window_served window = {.number = 1, .memory = &memory, .ranks = &ranks};
    dl_window_session session = {.caller = 1};
    dl_bytes requests = {data, size};

    memset(contents, 0, sizeof contents);
    memset(first, 0, sizeof first);
    atomic_store(&memory.head->is_open, 1);
    while (answer_first(&session, &window, &requests)) {
    }
    dl_buffer_fini(&session.out);
    for (size_t i = 0; i < GUARD; i++) {
        require(contents[i] == 0 && contents[GUARD + SIZE + i] == 0);
    }
    return 0;
}
