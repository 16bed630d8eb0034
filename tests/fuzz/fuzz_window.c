/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank on another host may ask of a window.  The first byte says in what steps
 * the rest arrives.  However it is cut, the memory and the answers must be the same, and
 * nothing may be touched outside of the memory. */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/window/window_session.h"

#define SIZE 96 /* of the memory, in bytes */
#define GUARD 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dl_process *const processes[2];
static const dl_peer peers[2] = {{.pid = 7, .host = "h"}, {.pid = 8, .host = "i"}};

typedef struct outcome {
    dl_status status;
    uint64_t answers; /* a hash */
    _Alignas(64) uint8_t memory[GUARD + SIZE + GUARD];
    _Alignas(
        DL_LINE) uint8_t head[sizeof(dl_window_head) + 2 * sizeof(dl_lock_queue_entry)];
} outcome;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Takes all answers, whose heads have to be whole. */
static void
take_answers(dl_window_session *session, outcome *found)
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
    for (size_t i = 0; i < session->out.size; i++) {
        found->answers =
            (found->answers ^ session->out.data[i]) * UINT64_C(0x100000001b3);
    }
    dl_buffer_clear(&session->out);
}

static void
receive_in_steps(dl_bytes bytes, size_t step, outcome *found)
{
    static dl_window_ends ends;
    dl_window_ranks ranks = {
        .size = 2,
        .group_name = "g",
        .peers = peers,
        .processes = processes,
        .ends = &ends,
    };
    dl_list windows;
    dl_window_session session;

    memset(found, 0, sizeof *found);
    dl_window_memory memory = {
        .head = (dl_window_head *)(void *)found->head,
        .elements = found->memory + GUARD,
        .size = SIZE,
        .dtype = DL_INT16,
        .item_size = 2,
    };
    dl_window_served served = {.number = 1, .memory = &memory, .ranks = &ranks};
    atomic_store(&memory.head->is_open, 1);
    dl_list_init(&windows);
    dl_list_append(&windows, &served.node);
    dl_window_session_init(&session, 1, &windows);
    while (found->status == DL_OK && bytes.size > 0) {
        size_t size = bytes.size < step ? bytes.size : step;
        dl_buffer_put(&session.in, (dl_bytes){bytes.data, size});
        found->status = dl_window_session_step(&session);
        take_answers(&session, found);
        bytes = (dl_bytes){bytes.data + size, bytes.size - size};
    }
    dl_window_session_fini(&session);
    for (size_t i = 0; i < GUARD; i++) {
        require(found->memory[i] == 0 && found->memory[GUARD + SIZE + i] == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static outcome whole, cut;

    if (size < 1) {
        return 0;
    }
    dl_bytes bytes = {data + 1, size - 1};
    receive_in_steps(bytes, bytes.size + 1, &whole);
    receive_in_steps(bytes, (size_t)data[0] % 61 + 1, &cut);
    require(whole.status == cut.status && whole.answers == cut.answers);
    require(memcmp(whole.memory, cut.memory, sizeof whole.memory) == 0);
    return 0;
}
