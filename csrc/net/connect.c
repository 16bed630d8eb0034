/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/connect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/interrupt.h"
#include "base/text.h"
#include "base/thread.h"
#include "net/address.h"
#include "net/socket.h"

/* Delays grow by a quarter, so that a listener which comes up is found with a delay of
 * about a fifth of the time waited so far. */
#define FIRST_DELAY (2 * DL_MILLISECOND)
#define LAST_DELAY DL_SECOND
#define GROWTH_NUMERATOR 5
#define GROWTH_DENOMINATOR 4

/* The next address is tried as well once the previous one has not answered for this
 * time: longer than most round trips, and short for a person. */
#define STAGGER (250 * DL_MILLISECOND)

/* The longest round.  After this time the name may resolve to another host, and a new
 * SYN arrives sooner than the kernel would repeat the old one. */
#define ROUND_LIMIT (10 * DL_SECOND)

/* Returns nanoseconds between half and one and a half times `delay`.  The clock is
 * random enough to spread a thousand clients that start together. */
static int64_t
with_jitter(int64_t delay)
{
    /* 2^64 divided by the golden ratio: clock readings that lie close together end up
     * far apart in the upper half. */
    uint64_t noise = (uint64_t)dl_now() * UINT64_C(0x9E3779B97F4A7C15);

    return delay / 2 + (int64_t)((noise >> 32) % (uint64_t)delay);
}

static dl_status
check_wanted(const atomic_bool *cancelled)
{
    DL_TRY(dl_interrupt_check());
    return cancelled != NULL && atomic_load_explicit(cancelled, memory_order_acquire)
               ? dl_fail(DL_CANCELLED, "cancelled while connecting")
               : DL_OK;
}

dl_status
dl_backoff_sleep(dl_backoff *backoff, dl_deadline deadline,
                 const atomic_bool *cancelled)
{
    if (backoff->delay == 0) {
        backoff->delay = FIRST_DELAY;
    }
    dl_deadline until = dl_deadline_earlier(deadline, with_jitter(backoff->delay));
    int64_t longer = backoff->delay / GROWTH_DENOMINATOR * GROWTH_NUMERATOR;
    backoff->delay = longer < LAST_DELAY ? longer : LAST_DELAY;
    while (!dl_deadline_passed(until)) {
        DL_TRY(check_wanted(cancelled));
        DL_TRY(dl_sleep_until(dl_deadline_earlier(until, DL_WAIT_SLICE)));
    }
    return dl_deadline_passed(deadline) ? DL_TIMEOUT : DL_OK;
}

/* The addresses of one round, of which the first `started` are or were tried.  If the
 * descriptor of an entry of `polls` is -1, that attempt failed with its entry of
 * `errors`. */
typedef struct dl_round {
    dl_address *addresses;
    struct pollfd *polls;
    int *errors;
    size_t count;
    size_t started;
    size_t pending;
    int64_t next_start;
} dl_round;

static void
round_fini(dl_round *round)
{
    for (size_t i = 0; i < round->started; i++) {
        dl_socket_close(round->polls[i].fd);
    }
    free(round->addresses);
    free(round->polls);
    free(round->errors);
}

static dl_status
round_init(dl_round *round, const char *host, uint16_t port, dl_deadline deadline)
{
    DL_TRY(dl_address_resolve(host, port, deadline, &round->addresses, &round->count));
    round->polls = calloc(round->count, sizeof *round->polls);
    round->errors = calloc(round->count, sizeof *round->errors);
    if (round->polls == NULL || round->errors == NULL) {
        return dl_fail_no_memory();
    }
    return DL_OK;
}

static void
give_up_address(dl_round *round, size_t index, int error)
{
    dl_socket_close(round->polls[index].fd);
    round->polls[index].fd = -1;
    round->errors[index] = error;
    round->pending--;
}

/* Returns whether the socket is connected to itself.  This happens if nobody
 * listens on a port of the ephemeral range and the kernel picks that port for the
 * connecting socket. */
static bool
is_talking_to_itself(int fd)
{
    dl_address local;
    dl_address peer;

    return dl_socket_local_address(fd, &local) == DL_OK
           && dl_socket_peer_address(fd, &peer) == DL_OK
           && dl_address_equal(&local, &peer);
}

static dl_status
start_next(dl_round *round)
{
    size_t index = round->started;
    const dl_address *address = &round->addresses[index];
    struct pollfd *entry = &round->polls[index];

    entry->fd = -1;
    entry->events = POLLOUT;
    round->next_start = dl_now() + STAGGER;
    if (!dl_socket_open(address->socket.any.sa_family, &entry->fd)) {
        /* Without IPv6, the next address is tried.  Other failures, such as running out
         * of descriptors, would recur in the next round. */
        if (errno != EAFNOSUPPORT) {
            return dl_fail(DL_INTERNAL, "opening a socket: %s (errno %d)",
                           strerror(errno), errno);
        }
        round->errors[index] = errno;
        round->started++;
        return DL_OK;
    }
    round->started++;
    round->pending++;
    if (connect(entry->fd, &address->socket.any, address->size) != 0
        && errno != EINPROGRESS && errno != EINTR) {
        give_up_address(round, index, errno);
    }
    return DL_OK;
}

/* Returns the descriptor of an established connection, which the caller then
 * owns, or -1. */
static int
take_winner(dl_round *round)
{
    for (size_t i = 0; i < round->started; i++) {
        struct pollfd *entry = &round->polls[i];
        int error = 0;
        socklen_t size = sizeof error;
        if (entry->fd < 0 || entry->revents == 0) {
            continue;
        }
        /* A writable socket has connected or failed: SO_ERROR tells which. */
        if (getsockopt(entry->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
            error = errno;
        }
        if (error == 0 && is_talking_to_itself(entry->fd)) {
            error = ECONNREFUSED;
        }
        if (error == 0) {
            int winner = entry->fd;
            entry->fd = -1;
            return winner;
        }
        give_up_address(round, i, error);
    }
    return -1;
}

/* Returns the milliseconds until the next start or the next check for interrupts. */
static int
poll_span(const dl_round *round, dl_deadline deadline)
{
    int64_t span = DL_WAIT_SLICE;

    if (round->started < round->count) {
        int64_t left = round->next_start - dl_now();
        span = left < 0 ? 0 : left < span ? left : span;
    }
    return dl_deadline_poll(deadline, span);
}

/* Runs until a connection is established or no attempt is left:
 *
 *   start   the next address, if its time has come or no attempt is pending
 *   poll    all pending attempts, until the next start or for a slice
 *   check   which have connected, and which have failed
 *
 * DL_TIMEOUT: no address answered. */
static dl_status
try_round(dl_round *round, dl_deadline deadline, const atomic_bool *cancelled, int *fd)
{
    while (round->started < round->count || round->pending > 0) {
        /* Read before the poll, so that answers that have arrived count. */
        bool is_last_look = dl_deadline_passed(deadline);
        /* When time is up, the rest starts at once: a timeout of zero means to check
         * once, and that includes every address. */
        while (
            round->started < round->count
            && (is_last_look || round->pending == 0 || dl_now() >= round->next_start)) {
            DL_TRY(start_next(round));
        }
        int ready = poll(round->polls, round->started, poll_span(round, deadline));
        int winner = ready > 0 ? take_winner(round) : -1;
        if (winner >= 0) {
            *fd = winner;
            return DL_OK;
        }
        if (ready <= 0 && is_last_look) {
            break;
        }
        if (ready <= 0) {
            DL_TRY(check_wanted(cancelled));
        }
    }
    return DL_TIMEOUT;
}

/* Writes "127.0.0.1:80 on this host itself Connection refused (errno 111),
 * [::1]:80 ...". */
static void
list_errors(const dl_round *round, char *text, size_t size)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < round->count; i++) {
        int error = round->errors[i] == 0 ? ETIMEDOUT : round->errors[i];
        dl_address_text(&round->addresses[i], address);
        dl_text_append(
            text, size, &used, "%s%s%s %s (errno %d)", i == 0 ? "" : ", ", address,
            dl_address_is_loopback(&round->addresses[i]) ? " on this host itself" : "",
            strerror(error), error);
    }
}

dl_status
dl_socket_connect_once(const char *host, uint16_t port, dl_deadline deadline,
                       const atomic_bool *cancelled, int *fd)
{
    dl_deadline limit = dl_deadline_earlier(deadline, ROUND_LIMIT);
    char why[DL_ERROR_TEXT_SIZE];
    dl_round round = {0};

    dl_status status = round_init(&round, host, port, limit);
    snprintf(why, sizeof why, "%s", status == DL_OK ? "" : dl_last_error()->text);
    if (status == DL_OK) {
        status = try_round(&round, limit, cancelled, fd);
        list_errors(&round, why, sizeof why);
    }
    round_fini(&round);
    /* Other failures (cancelled, interrupted, out of memory) have their text
     * already. */
    if (status != DL_NETWORK && status != DL_TIMEOUT) {
        return status;
    }
    return dl_fail(DL_NETWORK,
                   "The client socket has timed out after %lldms while trying to "
                   "connect to (%s, %u): %s",
                   (long long)(deadline.limit / DL_MILLISECOND), host, port, why);
}
