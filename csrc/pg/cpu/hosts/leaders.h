/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the leaders of all hosts do in an operation, between the phases of their hosts: the
 * algorithms, of which each has a file, the table that chooses one of them (select.c), and
 * what they share. */
#ifndef DISTLITE_PG_CPU_HOSTS_LEADERS_H
#define DISTLITE_PG_CPU_HOSTS_LEADERS_H

#include <stdlib.h>

#include "base/bytes.h"
#include "pg/cpu/hosts/hosts.h"
#include "tensor/copy.h"

/* The shares of hosts begin at its multiples. */
#define DL_HOSTS_SHARE_UNIT 64

/* One leader's side of an operation. */
typedef struct dl_leaders {
    dl_hosts *hosts;
    const dl_op_context *op; /* of scans, whose algorithms go through all phases */
    const dl_call *call;     /* of those and of all_to_all, which runs on all ranks */
    int root;                /* host that has the data or gets the result; -1: all */
    uint8_t *data;           /* what this host has, and the result; contiguous */
    size_t size;
    /* Of all_gather and reduce_scatter, by host: its part, and where that would end if the
     * parts lay side by side. */
    uint8_t *const *parts;
    const size_t *ends;
    bool scatters;   /* a reduce_scatter: hosts get their parts of the result only */
    uint8_t *target; /* then: of this host's part; an empty one may be nowhere */
    dl_fold fold;
    int divisor; /* divides the folded result; 1: no division */
} dl_leaders;

typedef dl_status dl_leaders_fn(const dl_leaders *self);

/* Returns the algorithm for an operation of `size` bytes: those of a rank's array, or of
 * the blocks that it has or gets. */
dl_leaders_fn *dl_hosts_select(dl_op_type op, int hosts, size_t size);

/* Returns whether leaders pass on what they have folded of the data of some hosts. */
bool dl_hosts_folds_partly(dl_leaders_fn *algorithm);

/* Returns how many of so many hosts are in a group; 1: there are no groups. */
int dl_hosts_group_size(int hosts);

dl_leaders_fn dl_send_tree, dl_fold_tree, dl_send_pieces, dl_send_shares;
dl_leaders_fn dl_fold_whole, dl_fold_groups, dl_fold_shares, dl_fold_parts;
dl_leaders_fn dl_fold_rounds, dl_gather_full, dl_gather_ring;
dl_leaders_fn dl_exchange_full, dl_exchange_slots, dl_scan_gathered, dl_scan_chain;

/* Chooses and runs the algorithm of an all_to_all. */
dl_leaders_fn dl_hosts_all_to_all_between;

/* As dl_exchange_full(), of blocks of more than `least` bytes only. */
dl_status dl_exchange_larger(const dl_leaders *self, size_t least);

/* dl_hosts_first() begins an operation and returns the context of the host's first
 * phase; dl_hosts_last() returns that of the last one.  Both are one object, owned by
 * `hosts`.  With dl_hosts_first_one_way(), the data goes one way if the ranks have called
 * an operation of this type, unless all calls are to be compared in it. */
const dl_op_context *dl_hosts_first(dl_hosts *hosts, const dl_op_context *op);
const dl_op_context *dl_hosts_first_one_way(dl_hosts *hosts, const dl_op_context *op,
                                            dl_op_type type);
const dl_op_context *dl_hosts_last(dl_hosts *hosts);

/* Returns the number of the current operation. */
uint64_t dl_hosts_operation(const dl_hosts *hosts);

/* Returns the operation of which the ranks have called a form. */
dl_op_type dl_hosts_called_in(const dl_op_context *op);

/* Goes through a phase in which no data is exchanged.  Does nothing for a rank that is
 * alone on its host. */
dl_status dl_hosts_arrive(dl_hosts *hosts, const dl_op_context *phase);

/* As dl_hosts_arrive(), and distributes the tensor of the host's local rank `root` within
 * the host. */
dl_status dl_hosts_broadcast_within(dl_hosts *hosts, const dl_op_context *phase,
                                    const dl_tensor *tensor, int root);

/* The leaders that exchange in rounds are in a ring (ring.c): those of all hosts,
 * or, in an exchange with groups, the heads of the groups (groups.c).
 * dl_hosts_ring_host() returns the host `distance` places behind this one. */
int dl_hosts_ring_count(const dl_hosts *hosts);
int dl_hosts_ring_host(const dl_hosts *hosts, int distance);
int dl_hosts_ring_behind(const dl_hosts *hosts, int host, int distance);
int dl_hosts_ring_leader(const dl_hosts *hosts, int distance);

/* Remembers that the hosts from `first` to `end` in the ring have come. */
void dl_hosts_note_come(dl_hosts *hosts, int first, int end);

/* All-gather in rounds: fills the other blocks of a row.  Block i is of the host i places
 * behind this one, and lies at `starts[i]` bytes; the last of `starts` is the row's size.
 * dl_hosts_begin_collecting() leaves the messages of the last round in the queues. */
dl_status dl_hosts_collect(dl_hosts *hosts, uint8_t *row, const size_t *starts);
dl_status dl_hosts_begin_collecting(dl_hosts *hosts, uint8_t *row,
                                    const size_t *starts);

/* The same, of everything that each leader has, `stride` bytes apart. */
dl_status dl_hosts_collect_equal(const dl_leaders *self, uint8_t *row, size_t stride);

/* Sets `hosts->starts` to those of a row of the parts, in the order of the ring. */
void dl_hosts_ring_starts(const dl_leaders *self);

/* As dl_hosts_collect() without data, to compare the calls of all hosts where data goes
 * only one way.  Leaves the last messages in the queues.  Also called on ranks that do not
 * lead, for which it only counts the stages.  Does nothing in a one-way operation. */
dl_status dl_hosts_greet(dl_hosts *hosts);

/* Makes room for `size` bytes in a scratch buffer, whose previous contents are lost. */
dl_status dl_hosts_room(dl_buffer *buffer, size_t size, uint8_t **room);

/* Sets `hosts->ends` to those of equal shares of `size` bytes. */
void dl_hosts_cut(dl_hosts *hosts, size_t size);

/* Divides what has been folded by `divisor`. */
void dl_leaders_divide(const dl_leaders *self, uint8_t *data, size_t size, int divisor);

/* Returns what dl_fold_run() would have divided by, and the divisor. */
static inline int
dl_leaders_divisor(const dl_leaders *self)
{
    return self->fold.op == DL_AVG ? self->fold.count : self->divisor;
}

/* Returns the part of `host`, by `ends`. */
static inline dl_bytes
dl_leaders_part(const dl_leaders *self, int host)
{
    size_t start = host == 0 ? 0 : self->ends[host - 1];

    return (dl_bytes){self->parts == NULL ? self->data + start : self->parts[host],
                      self->ends[host] - start};
}

/* Returns the leader of the host that is at `place` in the order from the root on. */
static inline int
dl_leaders_at(const dl_leaders *self, int place)
{
    const dl_layout *layout = self->hosts->layout;

    return dl_layout_leader(layout, (self->root + place) % layout->host_count);
}

/* A host that does not get the result may still fold a share of it. */
static inline bool
dl_leaders_gets_result(const dl_leaders *self, int host)
{
    return self->root < 0 || self->root == host;
}

static inline size_t
dl_least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* As dl_copy(); an empty block may be nowhere. */
static inline void
dl_hosts_copy(uint8_t *target, const uint8_t *source, size_t size)
{
    if (size > 0) {
        dl_copy(target, source, size);
    }
}

#endif
