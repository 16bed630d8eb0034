/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors, and connections between hosts: bytes arrive in order, after a delay, and
 * in pieces of any size. */
#include "local.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* What a connection holds that was not read. */
#define WINDOW 65536
#define SMALL_WINDOW 512
#define SMALL_WINDOW_OF_ARRAYS 2048

/* Delays of one way; one in SLOW_IN takes up to SLOW_MOST. */
#define DELAY_LEAST (20 * DL_MILLISECOND / 1000)
#define DELAY_MOST (2 * DL_MILLISECOND)
#define SLOW_IN 50
#define SLOW_MOST (300 * DL_MILLISECOND)

static sim_descriptor descriptors[SIM_FD_COUNT];
static int used; /* of the descriptors; the rest never was */
static uint64_t generations;
static sim_link *links;
static int64_t parted_until[SIM_HOSTS][SIM_HOSTS];

sim_descriptor *
sim_descriptor_of(int fd)
{
    sim_descriptor *found = fd < SIM_FD_FIRST || fd >= SIM_FD_FIRST + SIM_FD_COUNT
                                ? NULL
                                : &descriptors[fd - SIM_FD_FIRST];

    if (found == NULL || found->kind == SIM_NONE
        || found->process != sim_process_current()) {
        errno = EBADF;
        return NULL;
    }
    return found;
}

sim_descriptor *
sim_descriptor_at(int fd)
{
    return &descriptors[fd - SIM_FD_FIRST];
}

int
sim_descriptor_end(void)
{
    return SIM_FD_FIRST + used;
}

int
sim_descriptor_open(sim_kind kind, sim_descriptor **opened)
{
    if (!sim_descriptor_take()) {
        errno = EMFILE;
        return -1;
    }
    for (int i = 0; i < SIM_FD_COUNT; i++) {
        if (descriptors[i].kind == SIM_NONE) {
            used = i < used ? used : i + 1;
            descriptors[i] = (sim_descriptor){
                .kind = kind,
                .process = sim_process_current(),
                .generation = ++generations,
                .receive_limit = SIM_FOREVER,
            };
            *opened = &descriptors[i];
            return SIM_FD_FIRST + i;
        }
    }
    sim_fail("more than %d descriptors", SIM_FD_COUNT);
}

int
sim_descriptor_count(const sim_process *process, bool are_files)
{
    int count = 0;

    for (int i = 0; i < used; i++) {
        const sim_descriptor *one = &descriptors[i];
        bool is_own = one->kind == SIM_LIFELINE && one->object->of == process;
        count += one->kind != SIM_NONE && !is_own && one->process == process
                 && (one->kind == SIM_FILE) == are_files;
    }
    return count;
}

int
sim_net_open_count(const sim_process *process)
{
    return sim_descriptor_count(process, false);
}

sim_descriptor *
sim_listener_at(int host, uint16_t port)
{
    for (int i = 0; i < used; i++) {
        if (descriptors[i].kind == SIM_LISTENER && descriptors[i].port == port
            && descriptors[i].process->host == host) {
            return &descriptors[i];
        }
    }
    return NULL;
}

/* Streams. */

size_t
sim_stream_arrived(const sim_stream *stream)
{
    size_t size = 0;

    for (size_t i = stream->segment_first;
         i < stream->segment_last && stream->segments[i].at <= sim.now; i++) {
        size += stream->segments[i].size;
    }
    return size;
}

size_t
sim_stream_room(const sim_stream *stream)
{
    bool has_arrays = sim.has_buffers && !sim.is_apart;
    size_t small = has_arrays ? SMALL_WINDOW_OF_ARRAYS : SMALL_WINDOW;
    size_t limit = sim.seed % 4 == 0 ? small : WINDOW;
    size_t used = stream->last - stream->first;

    return used >= limit ? 0 : limit - used;
}

static void
make_room(sim_stream *stream, size_t size)
{
    if (stream->last + size > stream->capacity) {
        stream->capacity = 2 * (stream->last + size);
        stream->bytes = sim_grow(stream->bytes, stream->last, stream->capacity);
    }
    if (stream->segment_last == stream->segment_capacity) {
        size_t used = stream->segment_last * sizeof *stream->segments;
        stream->segment_capacity = 2 * stream->segment_capacity + 16;
        stream->segments =
            sim_grow(stream->segments, used,
                     stream->segment_capacity * sizeof *stream->segments);
    }
}

void
sim_stream_put(sim_stream *stream, const void *bytes, size_t size, int64_t at)
{
    stream->last_at = at > stream->last_at ? at : stream->last_at;
    if (!stream->is_read || size == 0) {
        return;
    }
    if (stream->first == stream->last) {
        stream->first = stream->last = 0;
        stream->segment_first = stream->segment_last = 0;
    }
    make_room(stream, size);
    memcpy(stream->bytes + stream->last, bytes, size);
    stream->last += size;
    stream->segments[stream->segment_last++] = (sim_segment){size, stream->last_at};
}

size_t
sim_stream_take(sim_stream *stream, void *bytes, size_t size, bool is_kept)
{
    size_t arrived = sim_stream_arrived(stream);

    size = size < arrived ? size : arrived;
    if (size == 0) {
        return 0;
    }
    memcpy(bytes, stream->bytes + stream->first, size);
    if (is_kept) {
        return size;
    }
    stream->first += size;
    for (size_t left = size; left > 0;) {
        sim_segment *segment = &stream->segments[stream->segment_first];
        size_t part = left < segment->size ? left : segment->size;
        segment->size -= part;
        left -= part;
        stream->segment_first += segment->size == 0;
    }
    return size;
}

bool
sim_stream_is_reset(const sim_stream *stream)
{
    return stream->reset_at <= sim.now;
}

bool
sim_stream_is_ended(const sim_stream *stream)
{
    return stream->end_at <= sim.now;
}

/* Drops what has not arrived yet, but for its first `kept` bytes, which arrive now. */
static void
cut_stream(sim_stream *stream, size_t kept)
{
    size_t arrived = sim_stream_arrived(stream);
    size_t size = stream->last - stream->first;

    kept = arrived + (kept < size - arrived ? kept : size - arrived);
    stream->last = stream->first + kept;
    stream->segment_first = 0;
    stream->segment_last = 0;
    if (kept > 0) {
        make_room(stream, 0);
        stream->segments[stream->segment_last++] = (sim_segment){kept, sim.now};
    }
}

/* Connections. */

static void
look_again(void *context)
{
    (void)context;
}

/* Time does not jump over the arrival, at which somebody may have to be woken. */
int64_t
sim_arrival(int from, int to)
{
    int64_t delay = sim_random_once_in(&sim.wire, SLOW_IN)
                        ? sim_random_span(&sim.wire, DELAY_MOST, SLOW_MOST)
                        : sim_random_span(&sim.wire, DELAY_LEAST, DELAY_MOST);
    int64_t start = parted_until[from][to] > sim.now ? parted_until[from][to] : sim.now;

    sim_at(start + delay, look_again, NULL);
    return start + delay;
}

static sim_stream
new_stream(void)
{
    return (sim_stream){
        .end_at = SIM_FOREVER, .reset_at = SIM_FOREVER, .is_read = true};
}

/* What travels with a connection that is being made. */
typedef struct dialling {
    sim_descriptor *socket;
    uint64_t generation;
    int host;
    uint16_t port;
    sim_link *link;
} dialling;

static bool
is_given_up(const dialling *dial)
{
    return dial->socket->generation != dial->generation
           || dial->socket->kind == SIM_NONE;
}

static void
end_dialling(void *context)
{
    dialling *dial = context;
    sim_descriptor *socket = dial->socket;

    if (is_given_up(dial)) {
        if (dial->link != NULL) {
            sim_link_reset(dial->link, 0);
        }
        return;
    }
    socket->is_connecting = false;
    if (dial->link == NULL) {
        socket->error = ECONNREFUSED;
        return;
    }
    socket->link = dial->link;
    socket->side = 0;
}

/* The listener's host answers. */
static void
answer_dialling(void *context)
{
    dialling *dial = context;
    sim_descriptor *listener = sim_listener_at(dial->host, dial->port);

    if (is_given_up(dial)) {
        return;
    }
    if (sim.host_up_at[dial->host] > sim.now) {
        sim_at(sim.host_up_at[dial->host], answer_dialling, dial);
        return;
    }
    if (listener != NULL && listener->backlog_count < SIM_BACKLOG) {
        sim_link *made = sim_allocate(sizeof *made);
        *made = (sim_link){
            .hosts = {dial->socket->process->host, dial->host},
            .ports = {dial->socket->port, dial->port},
            .to = {new_stream(), new_stream()},
            .next = links,
        };
        links = made;
        listener->backlog[listener->backlog_count++] = made;
        dial->link = made;
    }
    sim_at(sim_arrival(dial->host, dial->socket->process->host), end_dialling, dial);
}

void
sim_socket_connect(sim_descriptor *socket, int host, uint16_t port)
{
    dialling *dial = sim_allocate(sizeof *dial);

    *dial = (dialling){socket, socket->generation, host, port, NULL};
    socket->is_connecting = true;
    socket->peer_host = host;
    socket->peer_port = port;
    sim_at(sim_arrival(socket->process->host, host), answer_dialling, dial);
}

/* Behind all that was sent before. */
static int64_t
arrival_behind(const sim_link *link, int side)
{
    int64_t at = sim_arrival(link->hosts[side], link->hosts[!side]);
    int64_t before = link->to[!side].last_at;

    return at > before ? at : before;
}

void
sim_link_reset(sim_link *link, int side)
{
    sim_stream *peer = &link->to[!side];
    int64_t at = arrival_behind(link, side);

    link->to[side].is_read = false;
    peer->reset_at = at < peer->reset_at ? at : peer->reset_at;
}

/* As close(2): what was not read makes it a reset. */
void
sim_socket_end(sim_descriptor *socket)
{
    sim_link *link = socket->link;

    if (link == NULL) {
        return;
    }
    sim_stream *own = &link->to[socket->side];
    sim_stream *peer = &link->to[!socket->side];
    if (own->first != own->last) {
        sim_link_reset(link, socket->side);
    } else if (peer->end_at == SIM_FOREVER) {
        peer->end_at = arrival_behind(link, socket->side);
    }
    own->is_read = false;
}

void
sim_descriptor_close(sim_descriptor *descriptor)
{
    if (descriptor->kind == SIM_SOCKET) {
        sim_socket_end(descriptor);
    }
    for (int i = 0; i < descriptor->backlog_count; i++) {
        sim_link_reset(descriptor->backlog[i], 1);
    }
    if (descriptor->kind == SIM_FILE) {
        sim_file_close(descriptor);
    }
    descriptor->kind = SIM_NONE;
    if (descriptor->object != NULL) {
        sim_object *object = descriptor->object;
        descriptor->object = NULL;
        sim_object_drop(object);
    }
}

void
sim_net_kill(sim_process *process)
{
    for (int i = 0; i < used; i++) {
        if (descriptors[i].kind != SIM_NONE && descriptors[i].process == process
            && descriptors[i].kind != SIM_FILE) {
            sim_descriptor_close(&descriptors[i]);
        }
    }
    sim_mappings_end(process);
}

/* Faults. */

/* What is under way from the host is lost; what is sent to it is lost as well, and once
 * the host is up again it answers with a reset (net_calls.c). */
void
sim_net_crash(int host)
{
    for (sim_link *link = links; link != NULL; link = link->next) {
        for (int side = 0; side < 2; side++) {
            if (link->hosts[side] == host) {
                link->is_silent[side] = true;
                link->to[side].is_read = false;
                cut_stream(&link->to[!side], 0);
            }
        }
    }
    for (int i = 0; i < used; i++) {
        if (descriptors[i].kind != SIM_NONE && descriptors[i].kind != SIM_FILE
            && descriptors[i].object == NULL && descriptors[i].process->host == host) {
            descriptors[i].kind = SIM_NONE;
        }
    }
}

bool
sim_net_cut(sim_random *random)
{
    sim_link *open[256];
    size_t count = 0;

    for (sim_link *link = links; link != NULL && count < 256; link = link->next) {
        if (link->to[0].is_read && link->to[1].is_read) {
            open[count++] = link;
        }
    }
    if (count == 0) {
        return false;
    }
    sim_link *link = open[sim_random_below(random, count)];
    for (int side = 0; side < 2; side++) {
        sim_stream *stream = &link->to[side];
        size_t under_way = stream->last - stream->first - sim_stream_arrived(stream);
        cut_stream(stream, (size_t)sim_random_below(random, under_way + 1));
        stream->reset_at = sim.now;
    }
    sim_note("cut %d:%d to %d:%d", link->hosts[0], link->ports[0], link->hosts[1],
             link->ports[1]);
    return true;
}

static void
hold_back(sim_stream *stream, int64_t until)
{
    for (size_t i = stream->segment_first; i < stream->segment_last; i++) {
        int64_t *at = &stream->segments[i].at;
        *at = *at > sim.now && *at < until ? until : *at;
    }
    int64_t *ends[] = {&stream->last_at, &stream->end_at, &stream->reset_at};
    for (int i = 0; i < 3; i++) {
        *ends[i] = *ends[i] > sim.now && *ends[i] < until ? until : *ends[i];
    }
}

void
sim_net_partition(int first, int second, int64_t until)
{
    parted_until[first][second] = until;
    parted_until[second][first] = until;
    sim_at(until, look_again, NULL);
    for (sim_link *link = links; link != NULL; link = link->next) {
        if ((link->hosts[0] == first && link->hosts[1] == second)
            || (link->hosts[0] == second && link->hosts[1] == first)) {
            hold_back(&link->to[0], until);
            hold_back(&link->to[1], until);
        }
    }
}

/* What poll(2) tells. */
short
sim_events(const sim_descriptor *descriptor)
{
    int events = 0;

    if (descriptor->kind == SIM_LISTENER) {
        return descriptor->backlog_count > 0 ? POLLIN : 0;
    }
    if (descriptor->kind == SIM_EVENT) {
        return descriptor->count > 0 ? POLLIN | POLLOUT : POLLOUT;
    }
    if (descriptor->object != NULL) {
        return sim_object_events(descriptor->object);
    }
    if (descriptor->kind != SIM_SOCKET || descriptor->is_connecting) {
        return 0;
    }
    if (descriptor->link == NULL) {
        return POLLOUT | POLLHUP | POLLIN | (descriptor->error != 0 ? POLLERR : 0);
    }
    const sim_stream *own = &descriptor->link->to[descriptor->side];
    const sim_stream *peer = &descriptor->link->to[!descriptor->side];
    if (sim_stream_is_reset(own)) {
        return POLLIN | POLLOUT | POLLERR | POLLHUP;
    }
    events |= sim_stream_arrived(own) > 0 || sim_stream_is_ended(own) ? POLLIN : 0;
    events |= sim_stream_room(peer) > 0 ? POLLOUT : 0;
    return (short)events;
}
