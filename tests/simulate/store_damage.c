/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stage "damage": what a server makes of a journal that is changed while no server runs.
 * It either starts with what came before the damage, and says so in its log, or says where
 * the damage is; then it starts with a copy of the file, and without the file. */
#include <stdlib.h>
#include <string.h>

#include "net/listen.h"
#include "stage_store.h"
#include "store/journal_format.h"
#include "store/tcp/journal.h"
#include "store/tcp/server.h"

#define LIMIT (100 * DL_SECOND)
#define TRIES 8
#define SECTOR 512
#define KEPT SIM_JOURNAL ".damaged-1"

/* The journal before it was damaged. */
typedef struct journal {
    uint8_t *bytes;
    size_t size;
} journal;

static struct {
    bool is_over;
    dl_error error; /* DL_OK if it started */
} attempt;

static void *
serve(void *unused)
{
    const dl_server_options options = {.journal = SIM_JOURNAL,
                                       .sync = DL_JOURNAL_INTERVAL};
    dl_server *started;
    int fd;

    (void)unused;
    /* So that what is left of the file can be looked at. */
    dl_journal_least_replaced = UINT64_MAX;
    attempt.error = (dl_error){.status = DL_OK};
    dl_status status = dl_socket_listen(SIM_SERVER_ADDRESS, SIM_PORT,
                                        dl_deadline_after(DL_SECOND), &fd);
    if (status == DL_OK) {
        status = dl_server_start(&dl_loop_epoll_ops, fd, &options, &started);
    }
    if (status == DL_OK) {
        dl_server_stop(started);
    } else {
        attempt.error = *dl_last_error();
    }
    attempt.is_over = true;
    return NULL;
}

static bool
is_over(void)
{
    return attempt.is_over;
}

/* Returns whether the server starts. */
static bool
start(void)
{
    attempt.is_over = false;
    sim_process_start("server of a damaged journal", 0, serve, NULL);
    sim_run(is_over, sim.now + LIMIT);
    return attempt.error.status == DL_OK;
}

static journal
read_journal(const char *path)
{
    const uint8_t *bytes;
    journal found = {.size = sim_disk_look(0, path, &bytes)};

    found.bytes = sim_allocate(found.size + 1);
    memcpy(found.bytes, bytes, found.size);
    return found;
}

/* Returns the first byte that differs, or -1: the damage has changed nothing. */
static int64_t
damage(sim_random *random, const journal *whole)
{
    journal changed = {sim_allocate(whole->size), whole->size};
    size_t at = (size_t)sim_random_below(random, whole->size);
    size_t size = 1;

    memcpy(changed.bytes, whole->bytes, whole->size);
    if (sim_random_once_in(random, 3)) {
        at -= at % SECTOR;
        size = whole->size - at < SECTOR ? whole->size - at : SECTOR;
        memset(changed.bytes + at, 0, size);
    } else if (sim_random_once_in(random, 3)) {
        size = (size_t)sim_random_below(random, 64);
        size = size < whole->size - at ? size : whole->size - at;
        for (size_t i = 0; i < size; i++) {
            changed.bytes[at + i] = (uint8_t)sim_random_below(random, 256);
        }
    } else {
        changed.bytes[at] ^= (uint8_t)(1 << sim_random_below(random, 8));
    }
    sim_disk_put(0, SIM_JOURNAL, changed.bytes, changed.size);
    int64_t first = -1;
    for (size_t i = 0; i < size && first < 0; i++) {
        first = changed.bytes[at + i] != whole->bytes[at + i] ? (int64_t)(at + i) : -1;
    }
    sim_note("damage of %zu bytes at %zu of %zu, first %lld", size, at, whole->size,
             (long long)first);
    sim_release(changed.bytes);
    return first;
}

/* The end of the frame, or of the head, in which the byte is. */
static size_t
frame_end(const journal *whole, size_t byte)
{
    size_t end = DL_JOURNAL_HEAD_SIZE;

    while (end <= byte) {
        const uint8_t *head = whole->bytes + end;
        end += DL_JOURNAL_FRAME_HEAD
               + ((size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16
                  | (size_t)head[3] << 24);
    }
    return end;
}

/* The server has started, without what follows the damage. */
static void
check_start(const journal *whole, size_t first, int logged)
{
    journal left = read_journal(SIM_JOURNAL);
    const uint8_t *kept;
    bool is_last = frame_end(whole, first) == whole->size;

    if (left.size > first || memcmp(left.bytes, whole->bytes, left.size) != 0) {
        sim_fail("a server starts with %zu bytes of a journal that is damaged at %zu",
                 left.size, first);
    }
    if (sim.logged == logged) {
        sim_fail("a server starts with a damaged journal, and says nothing");
    }
    if (!is_last && sim_disk_look(0, KEPT, &kept) != whole->size) {
        sim_fail("a server drops whole frames behind a damage, and keeps no copy");
    }
    sim_release(left.bytes);
}

/* The server has not started, and says why and how to go on. */
static void
check_refusal(size_t first)
{
    const char *text = attempt.error.text;
    const char *at = strstr(text, "damaged at byte ");

    if (at == NULL || strtoull(at + 16, NULL, 10) > first
        || strstr(text, SIM_JOURNAL) == NULL || strstr(text, "move it away") == NULL) {
        sim_fail("a server says wrongly of a journal that is damaged at %zu: %s", first,
                 text);
    }
}

static void
damage_once(sim_random *random, const journal *whole)
{
    int64_t first = damage(random, whole);
    int logged = sim.logged;

    sim_disk_put(0, KEPT, NULL, 0); /* of a crash */
    if (!start()) {
        check_refusal((size_t)first);
    } else if (first >= 0) {
        check_start(whole, (size_t)first, logged);
    }
    sim_disk_put(0, SIM_JOURNAL, whole->bytes, whole->size);
    if (!start()) {
        sim_fail("a server does not start with a copy: %s", attempt.error.text);
    }
}

void
sim_store_damage(void)
{
    sim_random random = sim_random_of(sim.seed, 9);
    journal whole = read_journal(SIM_JOURNAL);

    /* Faults may last longer than the clients. */
    sim_disk_set_full(0, false);
    sim_disk_set_slow(0, 0);
    for (int i = 0; i < TRIES && whole.size > 0; i++) {
        damage_once(&random, &whole);
    }
    sim_disk_put(0, SIM_JOURNAL, NULL, 0);
    if (!start()) {
        sim_fail("a server does not start with an empty store: %s", attempt.error.text);
    }
    sim_release(whole.bytes);
}
