/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What processes of one host share, and pass to each other: the objects behind
 * descriptors, of which several processes may have one. */
#ifndef DISTLITE_SIMULATE_LOCAL_H
#define DISTLITE_SIMULATE_LOCAL_H

#include <sys/socket.h>

#include "net.h"

#define SIM_NAME_SIZE 64
#define SIM_FILTER_STEPS 64

typedef struct sim_filter_step {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
} sim_filter_step;

typedef struct sim_message sim_message;

struct sim_object {
    sim_kind kind;
    int references;        /* descriptors, and messages under way */
    const sim_process *of; /* who made it; of a lifeline, whose end it shows */
    int memory;            /* a real descriptor */
    uint64_t number;       /* of the memory */
    /* Unix sockets; the rest is for those of kind SIM_LOCAL. */
    sim_object *peer; /* of a pair, also after its end; NULL: for datagrams */
    sim_message *first, *last;
    int queued;
    bool is_closed;
    bool is_reset; /* its peer has closed with messages left; told once */
    bool wants_sender;
    char name[SIM_NAME_SIZE]; /* empty: none */
    sim_filter_step filter[SIM_FILTER_STEPS];
    int filter_steps;
    sim_object *next_named;
};

sim_object *sim_object_new(sim_kind kind);
void sim_object_drop(sim_object *object);
/* Opens a descriptor of the current process for the object, whose reference it takes; -1:
 * it has reached its limit, and the reference is dropped. */
int sim_object_open(sim_object *object);

int sim_local_socket(void);
int sim_local_bind(sim_object *object, const struct sockaddr *address, socklen_t size);
int sim_local_set(sim_object *object, int name, const void *value);
ssize_t sim_local_send(sim_object *object, const struct msghdr *message);
ssize_t sim_local_receive(sim_object *object, struct msghdr *message);
/* Returns the events of poll(2), of a lifeline as well. */
short sim_object_events(const sim_object *object);

/* memory_files.c: the process's mappings end. */
void sim_mappings_end(const sim_process *process);
int sim_mapping_count(const sim_process *process);
/* Where a word is: the same for all processes that map it. */
typedef struct sim_place {
    uintptr_t space, at;
} sim_place;
sim_place sim_place_of(const void *word);

#endif
