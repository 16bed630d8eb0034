/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A network with a delay for hosts that are network namespaces of one machine, for
 * kernels without the qdisc netem:
 *
 *     relay INTERFACE MBIT_PER_SECOND DELAY_US LOSS_PERCENT PID...
 *
 * makes the TUN device INTERFACE in the namespace of each process, prints "ready", and
 * carries IPv4 packets between the devices until its standard input ends.  The last
 * byte of an address is the number of a process in the command line, from 1.  A packet
 * arrives DELAY_US after it was sent, and packets to one host arrive at its rate: what
 * is more waits, QUEUE_SECONDS long at most, and is then lost.  The rate at which a host
 * sends is left to a qdisc on its device, which holds the sender up as a card does.
 *
 * The devices accept packets that are to be segmented, as cards do, so that a system
 * call moves up to 64 KiB.  With a loss they do not: it is by packet of the wire. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PORT_LIMIT 16
#define PACKET_LIMIT (sizeof(struct virtio_net_hdr) + 65536)
#define SECOND 1000000000ll
#define QUEUE_SECONDS (SECOND / 20)
/* Preamble, Ethernet's head and checksum, and the gap between frames. */
#define FRAMING 38
/* Addresses of IPv4 packets, behind the head of virtio. */
#define TARGET_AT (sizeof(struct virtio_net_hdr) + 16)
#define TARGET_LAST (TARGET_AT + 3)

typedef struct packet {
    struct packet *next;
    int64_t due;
    size_t size;
    uint8_t bytes[PACKET_LIMIT];
} packet;

/* A host's device, and what is on its way to it, in the order of arrival. */
typedef struct port {
    int fd;
    packet *first;
    packet *last;
    int64_t free_at; /* when its wire has carried all of it */
} port;

static port ports[PORT_LIMIT];
static int port_count;
static packet *spare; /* a list */
static double bytes_per_ns;
static int64_t delay;
static double loss;

static void
die(const char *what)
{
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static int
open_device(const char *interface, const char *pid)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    unsigned offload = loss > 0 ? 0 : TUN_F_CSUM | TUN_F_TSO4;
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) {
        die(path);
    }
    close(space);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        die("/dev/net/tun");
    }
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (ioctl(fd, TUNSETIFF, &request) != 0 || ioctl(fd, TUNSETOFFLOAD, offload) != 0) {
        die(interface);
    }
    return fd;
}

static packet *
take_packet(void)
{
    packet *taken = spare;

    if (taken == NULL) {
        taken = malloc(sizeof *taken);
        if (taken == NULL) {
            die("memory");
        }
    } else {
        spare = taken->next;
    }
    return taken;
}

static void
give_packet(packet *given)
{
    given->next = spare;
    spare = given;
}

/* Returns the bytes that the packet takes on the wire, in all of its segments. */
static size_t
wire_size(const packet *one)
{
    struct virtio_net_hdr head;
    size_t size = one->size - sizeof head;

    memcpy(&head, one->bytes, sizeof head);
    if (head.gso_type == VIRTIO_NET_HDR_GSO_NONE || head.gso_size == 0) {
        return size + FRAMING;
    }
    size_t payload = size - head.hdr_len;
    size_t segments = (payload + head.gso_size - 1) / head.gso_size;
    return payload + segments * (head.hdr_len + FRAMING);
}

/* Returns the port that the packet is for; NULL if it is for none, or lost. */
static port *
target_of(const packet *one)
{
    int number = one->size > TARGET_LAST ? one->bytes[TARGET_LAST] : 0;
    bool is_known = one->bytes[sizeof(struct virtio_net_hdr)] >> 4 == 4 && number >= 1
                    && number <= port_count;

    return is_known && drand48() >= loss ? &ports[number - 1] : NULL;
}

/* Returns false if the queue is full. */
static bool
enqueue(port *target, packet *one, int64_t at)
{
    int64_t arrival = at + delay;
    int64_t start = target->free_at > arrival ? target->free_at : arrival;

    if (start - arrival > QUEUE_SECONDS) {
        return false;
    }
    target->free_at = start + (int64_t)((double)wire_size(one) / bytes_per_ns);
    one->due = start;
    one->next = NULL;
    if (target->first == NULL) {
        target->first = one;
    } else {
        target->last->next = one;
    }
    target->last = one;
    return true;
}

/* Takes in what a host has sent, but no more than a share of it at a time, so that
 * packets that are due meanwhile are not late. */
static void
take_in(port *source)
{
    for (int i = 0; i < 16; i++) {
        packet *one = take_packet();
        ssize_t size = read(source->fd, one->bytes, sizeof one->bytes);
        one->size = size > 0 ? (size_t)size : 0;
        port *target = size > 0 ? target_of(one) : NULL;
        if (target == NULL || !enqueue(target, one, now())) {
            give_packet(one);
        }
        if (size <= 0) {
            return;
        }
    }
}

/* Delivers what is due, and returns when the next packet is. */
static int64_t
deliver(port *target)
{
    while (target->first != NULL && target->first->due <= now()) {
        packet *one = target->first;
        ssize_t size = write(target->fd, one->bytes, one->size);
        (void)size; /* a device that is down loses it */
        target->first = one->next;
        give_packet(one);
    }
    return target->first == NULL ? INT64_MAX : target->first->due;
}

static void
carry(void)
{
    struct pollfd polls[PORT_LIMIT + 1];

    for (int i = 0; i < port_count; i++) {
        polls[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    }
    polls[port_count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (polls[port_count].revents == 0) {
        int64_t due = INT64_MAX;
        for (int i = 0; i < port_count; i++) {
            int64_t next = deliver(&ports[i]);
            due = next < due ? next : due;
        }
        int64_t left = due == INT64_MAX ? SECOND : due - now();
        left = left < 0 ? 0 : left > SECOND ? SECOND : left;
        struct timespec time = {left / SECOND, left % SECOND};
        if (ppoll(polls, (nfds_t)port_count + 1, &time, NULL) < 0 && errno != EINTR) {
            die("ppoll");
        }
        for (int i = 0; i < port_count; i++) {
            if (polls[i].revents != 0) {
                take_in(&ports[i]);
            }
        }
    }
}

int
main(int count, char **words)
{
    struct sched_param first = {.sched_priority = 1};

    if (count < 7 || count - 5 > PORT_LIMIT) {
        fprintf(stderr, "usage: relay INTERFACE MBIT DELAY_US LOSS_PERCENT PID...\n");
        return 2;
    }
    bytes_per_ns = atof(words[2]) * 1e6 / 8 / 1e9;
    delay = atoll(words[3]) * 1000;
    loss = atof(words[4]) / 100;
    for (int i = 5; i < count; i++) {
        ports[port_count++].fd = open_device(words[1], words[i]);
    }
    /* A packet must not wait for a core: the wire that this stands for has its own. */
    (void)sched_setscheduler(0, SCHED_FIFO, &first);
    prctl(PR_SET_TIMERSLACK, 1);
    printf("ready\n");
    fflush(stdout);
    carry();
    return 0;
}
