/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Simulated descriptors, for the files that implement calls on them: net.c has the
 * sockets, net_calls.c the calls on sockets, net_poll.c poll(2) and epoll(7), disk.c the
 * files. */
#ifndef DISTLITE_SIMULATE_NET_H
#define DISTLITE_SIMULATE_NET_H

#include "world.h"

#define SIM_FD_FIRST 1000
#define SIM_FD_COUNT 4096
#define SIM_BACKLOG 64

typedef enum sim_kind {
    SIM_NONE,
    SIM_SOCKET,
    SIM_LISTENER,
    SIM_EPOLL,
    SIM_EVENT,
    SIM_FILE,
    /* Those that have an object (local.h). */
    SIM_LIFELINE, /* lasts as long as its process */
    SIM_MEMORY,
    SIM_LOCAL, /* a Unix socket */
} sim_kind;

/* Bytes on their way; they arrive together. */
typedef struct sim_segment {
    size_t size;
    int64_t at;
} sim_segment;

/* One direction of a connection: what was sent and not read yet. */
typedef struct sim_stream {
    uint8_t *bytes;
    size_t first, last, capacity;
    sim_segment *segments;
    size_t segment_first, segment_last, segment_capacity;
    int64_t last_at;  /* when the last byte so far arrives */
    int64_t end_at;   /* when the end of the stream arrives; SIM_FOREVER: none */
    int64_t reset_at; /* when its reader learns of a reset */
    bool has_sent;    /* its reader has sent something */
    bool is_read;     /* false: nobody reads any more, and what is sent is lost */
} sim_stream;

typedef struct sim_link {
    int hosts[2];
    uint16_t ports[2];
    bool is_silent[2]; /* that end's host has crashed: it does not answer */
    sim_stream to[2];  /* what that end reads */
    struct sim_link *next;
} sim_link;

typedef struct sim_watch {
    int fd;
    uint64_t generation;
    uint32_t events;
    void *tag;
} sim_watch;

typedef struct sim_file sim_file;
typedef struct sim_object sim_object;

typedef struct sim_descriptor {
    sim_kind kind;
    sim_process *process;
    uint64_t generation; /* differs between two uses of one number */
    bool is_nonblocking;
    int64_t receive_limit;
    /* sockets */
    bool is_connecting;
    bool has_shut_down;
    int error;
    uint16_t port;
    uint16_t peer_port;
    int peer_host;
    sim_link *link;
    int side;
    /* listeners */
    sim_link *backlog[SIM_BACKLOG];
    int backlog_count;
    /* epoll */
    sim_watch *watches;
    int watch_count, watch_capacity;
    /* eventfd */
    uint64_t count;
    sim_file *file;
    sim_object *object;
} sim_descriptor;

/* Returns what a number of the current process stands for; NULL, with EBADF. */
sim_descriptor *sim_descriptor_of(int fd);
/* The same for a number that is known to be open, in the scheduler as well. */
sim_descriptor *sim_descriptor_at(int fd);
/* One more than the largest number that was ever used. */
int sim_descriptor_end(void);
/* Returns the lowest free number, or -1 with EMFILE. */
int sim_descriptor_open(sim_kind kind, sim_descriptor **opened);
int sim_descriptor_count(const sim_process *process, bool are_files);
void sim_descriptor_close(sim_descriptor *descriptor);

/* Streams. */
size_t sim_stream_arrived(const sim_stream *stream);
void sim_stream_put(sim_stream *stream, const void *bytes, size_t size, int64_t at);
size_t sim_stream_take(sim_stream *stream, void *bytes, size_t size, bool is_kept);
size_t sim_stream_room(const sim_stream *stream);
bool sim_stream_is_reset(const sim_stream *stream);
bool sim_stream_is_ended(const sim_stream *stream);

/* Returns when something sent now from one host to the other arrives. */
int64_t sim_arrival(int from, int to);

void sim_socket_connect(sim_descriptor *socket, int host, uint16_t port);
/* Resets the connection at its other end; `side` is the end that has ended. */
void sim_link_reset(sim_link *link, int side);
void sim_socket_end(sim_descriptor *socket);
sim_descriptor *sim_listener_at(int host, uint16_t port);

/* Returns the events of poll(2) that are true now. */
short sim_events(const sim_descriptor *descriptor);

void sim_file_close(sim_descriptor *descriptor);
void sim_file_copy(const sim_descriptor *descriptor, void *bytes, size_t size);

#endif
