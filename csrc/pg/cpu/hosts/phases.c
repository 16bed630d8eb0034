/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/leaders.h"

dl_status
dl_hosts_init(dl_hosts *hosts)
{
    const dl_layout *layout = hosts->layout;
    size_t count = (size_t)dl_hosts_local_count(hosts);

    size_t host_count = (size_t)layout->host_count;
    hosts->group = dl_hosts_group_size(layout->host_count);
    hosts->step = 1;
    hosts->come = calloc(host_count, sizeof *hosts->come);
    hosts->blocks = calloc(host_count, sizeof *hosts->blocks);
    hosts->starts = calloc(3 * (host_count + 1), sizeof *hosts->starts);
    hosts->locals[0] = calloc(2 * count, sizeof **hosts->locals);
    hosts->is_end_known = calloc(count, sizeof *hosts->is_end_known);
    if (hosts->come == NULL || hosts->blocks == NULL || hosts->starts == NULL
        || hosts->locals[0] == NULL || hosts->is_end_known == NULL) {
        dl_hosts_fini(hosts);
        return dl_fail_no_memory();
    }
    hosts->locals[1] = hosts->locals[0] + count;
    hosts->ends = hosts->starts + host_count + 1;
    hosts->no_blocks = hosts->ends + host_count + 1;
    return DL_OK;
}

void
dl_hosts_fini(dl_hosts *hosts)
{
    free(hosts->come);
    free(hosts->blocks);
    free(hosts->starts);
    free(hosts->locals[0]);
    free(hosts->is_end_known);
    dl_buffer_fini(&hosts->work);
    dl_buffer_fini(&hosts->incoming);
    dl_buffer_fini(&hosts->halves);
    dl_buffer_fini(&hosts->flat);
    *hosts = (dl_hosts){0};
}

const dl_op_context *
dl_hosts_first(dl_hosts *hosts, const dl_op_context *op)
{
    hosts->phase = *op;
    hosts->phase.sequence = (op->sequence - 1) * DL_HOSTS_PHASES + 1;
    hosts->traffic->is_one_way = false;
    hosts->is_below = false;
    hosts->first_source = 0;
    hosts->step = 1;
    return &hosts->phase;
}

/* Returns the operation of which the ranks have called a form, of uneven blocks or of
 * objects: other backends let them meet, and functions are reduced, by further collectives
 * within an operation. */
dl_op_type
dl_hosts_called_in(const dl_op_context *op)
{
    switch (op->fingerprint.op) {
    case DL_BROADCAST_OBJECTS:
        return DL_BROADCAST;
    case DL_GATHER_V:
    case DL_GATHER_OBJECTS:
        return DL_GATHER;
    case DL_SCATTER_V:
    case DL_SCATTER_OBJECTS:
        return DL_SCATTER;
    default:
        return (dl_op_type)op->fingerprint.op;
    }
}

const dl_op_context *
dl_hosts_first_one_way(dl_hosts *hosts, const dl_op_context *op, dl_op_type type)
{
    const dl_op_context *first = dl_hosts_first(hosts, op);

    hosts->traffic->is_one_way =
        dl_hosts_called_in(op) == type && op->sequence % DL_ROUTE_HISTORY != 1;
    return first;
}

const dl_op_context *
dl_hosts_phase_of(dl_hosts *hosts, const dl_op_context *op)
{
    uint64_t phase = hosts->phase.sequence;
    bool has_begun = (phase + DL_HOSTS_PHASES - 1) / DL_HOSTS_PHASES == op->sequence;

    return has_begun ? &hosts->phase : dl_hosts_first(hosts, op);
}

/* The board borrows the context, so the increment tells it that this rank is past the
 * first phase: from now on its checks report failures of the last one. */
const dl_op_context *
dl_hosts_last(dl_hosts *hosts)
{
    dl_op_context *phase = &hosts->phase;

    if (phase->sequence % DL_HOSTS_PHASES != 0) {
        phase->sequence++;
    }
    return phase;
}

dl_status
dl_hosts_arrive(dl_hosts *hosts, const dl_op_context *phase)
{
    return hosts->board == NULL ? DL_OK : dl_barrier_line(hosts->board, phase);
}

dl_status
dl_hosts_broadcast_within(dl_hosts *hosts, const dl_op_context *phase,
                          const dl_tensor *tensor, int root)
{
    dl_call call = dl_call_broadcast(tensor, root);

    return hosts->board == NULL ? DL_OK
                                : dl_broadcast_board(hosts->exchange, phase, &call);
}

dl_status
dl_hosts_room(dl_buffer *buffer, size_t size, uint8_t **room)
{
    dl_buffer_clear(buffer);
    DL_TRY(dl_buffer_reserve(buffer, size));
    *room = buffer->data;
    return DL_OK;
}

/* A leader greets after its own host has met, so the greetings of all hosts prove that
 * all ranks have come. */
dl_status
dl_hosts_barrier(dl_hosts *hosts, const dl_op_context *op)
{
    DL_TRY(dl_hosts_arrive(hosts, dl_hosts_first(hosts, op)));
    dl_hosts_last(hosts);
    DL_TRY(dl_hosts_greet(hosts));
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    return dl_hosts_arrive(hosts, dl_hosts_last(hosts));
}

uint64_t
dl_hosts_operation(const dl_hosts *hosts)
{
    return (hosts->phase.sequence + DL_HOSTS_PHASES - 1) / DL_HOSTS_PHASES;
}

void
dl_hosts_cut(dl_hosts *hosts, size_t size)
{
    size_t count = (size_t)hosts->layout->host_count;
    size_t share = dl_round_up((size + count - 1) / count, DL_HOSTS_SHARE_UNIT);

    for (size_t i = 0; i < count; i++) {
        hosts->ends[i] = dl_least((i + 1) * share, size);
    }
}

void
dl_leaders_divide(const dl_leaders *self, uint8_t *data, size_t size, int divisor)
{
    if (divisor > 1 && size > 0) {
        dl_reduce_divide(data, self->fold.dtype, size / self->fold.item_size, divisor);
    }
}
